//! Who asks: the scope and the repositories of a token.

use std::sync::Arc;

use axum::http::Method;
use sha2::{Digest, Sha256};
use weft_engine::Engine;
pub(crate) use weft_engine::Scope;

/// What a caller may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// What the token allows.
    pub(crate) scope: Scope,
    /// Repositories that it sees; empty = all.
    pub(crate) repositories: Arc<[String]>,
    /// Whether the header `Authorization` holds a token of weft's.
    pub(crate) by_token: bool,
}

impl Access {
    /// The owner of `WEFT_TOKEN`.
    pub(crate) fn owner() -> Self {
        Self {
            by_token: true,
            ..Self::all()
        }
    }

    /// The owner of the machine.
    pub(crate) fn all() -> Self {
        Self {
            scope: Scope::Admin,
            repositories: Arc::from([]),
            by_token: false,
        }
    }

    /// The access of a stored token.
    pub(crate) fn of(engine: &Engine, token: &str) -> Option<Self> {
        // The look-up is by hash: its time tells nothing of the token.
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let row = engine.store().token(hash).ok()??;
        Some(Self {
            scope: row.scope,
            repositories: row.repositories.into(),
            by_token: true,
        })
    }

    /// Whether it sees a repository.
    pub(crate) fn sees(&self, repo_id: &str) -> bool {
        self.repositories.is_empty() || self.repositories.iter().any(|r| r == repo_id)
    }

    /// Whether it sees only some repositories: then it sees nothing that belongs to none.
    pub(crate) fn is_narrow(&self) -> bool {
        !self.repositories.is_empty()
    }
}

/// The scope that a request needs.
pub(crate) fn needed(method: &Method, path: &str) -> Scope {
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let decides = path.starts_with("/v1/decisions") || path.starts_with("/v1/workspaces/");
    let cassette = path.starts_with("/v1/cassettes/") && path != "/v1/cassettes/search/spans";
    if path.starts_with("/v1/ingest") || ((decides || cassette) && !reads) {
        Scope::Write
    } else if reads
        || path.starts_with("/api/")
        || path == "/v1/cassettes/search/spans"
        || path.ends_with("/mcp")
        || path.starts_with("/mcp")
    {
        // The handlers of `/api/` ask for more themselves, after the 404 of what is not to be seen.
        Scope::Read
    } else {
        Scope::Admin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_of_requests() {
        assert_eq!(needed(&Method::GET, "/v1/sessions"), Scope::Read);
        assert_eq!(needed(&Method::POST, "/v1/ingest"), Scope::Write);
        assert_eq!(needed(&Method::DELETE, "/v1/sessions/x"), Scope::Admin);
        assert_eq!(needed(&Method::POST, "/v1/admin/derive/run"), Scope::Admin);
        assert_eq!(needed(&Method::POST, "/api/weave/x/search"), Scope::Read);
        assert_eq!(needed(&Method::POST, "/v1/mcp"), Scope::Read);
        assert_eq!(
            needed(&Method::POST, "/v1/cassettes/search/spans"),
            Scope::Read
        );
        assert_eq!(needed(&Method::POST, "/v1/cassettes/x/y"), Scope::Write);
        assert_eq!(needed(&Method::GET, "/v1/decisions"), Scope::Read);
        assert_eq!(
            needed(&Method::POST, "/v1/workspaces/x/decisions"),
            Scope::Write
        );
        assert!(Scope::Read < Scope::Write && Scope::Write < Scope::Admin);
    }
}
