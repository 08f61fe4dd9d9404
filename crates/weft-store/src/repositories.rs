//! Repositories that were seen, claims of drafts, purged paths: truth about code.

use crate::Result;

/// A repository that was seen on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepositoryRow {
    /// Folder that a clone and its worktrees share.
    pub common_dir: String,
    /// Id: equal for every clone.
    pub repo_id: String,
    /// Top of the checkout in which it was seen last.
    pub root: String,
    /// URL of `origin`; "" = none.
    pub origin: String,
    /// Oldest commit; "" = none.
    pub first_commit: String,
}

/// A path that an agent says it works on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Top of the checkout.
    pub checkout: String,
    /// Path, or a folder with a trailing `/`.
    pub path: String,
    /// Who.
    pub agent: String,
    /// Microseconds since 1970.
    pub claimed_at: i64,
}

/// A file that a captured tool call wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// Session.
    pub session_id: String,
    /// Name of the session, else of the agent program.
    pub agent: String,
    /// Microseconds since 1970.
    pub at: i64,
    /// Path as the call gave it.
    pub path: String,
}

/// Repositories, claims of drafts and purged paths.
pub trait Repositories {
    /// The repository whose shared folder this is.
    fn repository_at(&self, common_dir: &str) -> Result<Option<RepositoryRow>>;

    /// All places of a repository on this machine, the newest first.
    fn repositories(&self, repo_id: Option<&str>) -> Result<Vec<RepositoryRow>>;

    /// Remembers a repository.
    fn put_repository(&self, r: &RepositoryRow, now: i64) -> Result<()>;

    /// Claims a path for an agent; a claim of the same path is replaced.
    fn claim_draft(&self, repo_id: &str, claim: &Claim) -> Result<()>;

    /// Releases claims: of these paths, or of everything where the list is empty; of one agent, or
    /// of all. Returns how many went.
    fn release_drafts(
        &self,
        repo_id: &str,
        checkout: &str,
        paths: &[String],
        agent: Option<&str>,
    ) -> Result<usize>;

    /// Claims in a repository.
    fn draft_claims(&self, repo_id: &str) -> Result<Vec<Claim>>;

    /// Remembers paths that must never be indexed again.
    fn put_purged(&self, repo_id: &str, paths: &[String], now: i64) -> Result<()>;

    /// Purged paths of a repository.
    fn purged(&self, repo_id: &str) -> Result<Vec<String>>;

    /// Captured calls of tools that write files, newest first, at or after an instant.
    fn writes_since(&self, since: i64, limit: usize) -> Result<Vec<Write>>;
}
