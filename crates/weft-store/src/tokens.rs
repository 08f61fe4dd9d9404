//! Tokens of the HTTP API: only their hashes are kept.

use crate::Result;

/// What a token allows; each scope includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Reading and searching.
    Read,
    /// Also sending turns.
    Write,
    /// Also reindexing and purging.
    Admin,
}

impl Scope {
    /// All scopes with their names.
    pub const ALL: [(&'static str, Self); 3] = [
        ("read", Self::Read),
        ("write", Self::Write),
        ("admin", Self::Admin),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// The scope of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|s| s.0 == name).map(|s| s.1)
    }
}

/// A token as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// Id, for listing and revoking.
    pub id: String,
    /// What it is for.
    pub name: String,
    /// What it allows.
    pub scope: Scope,
    /// Repositories that it can see; empty = all.
    pub repositories: Vec<String>,
    /// Microseconds since 1970.
    pub created_at: i64,
}

/// Tokens of the HTTP API.
pub trait Tokens {
    /// Keeps a token by its hash.
    fn put_token(&self, hash: [u8; 32], t: &TokenRow) -> Result<()>;

    /// The token of a hash.
    fn token(&self, hash: [u8; 32]) -> Result<Option<TokenRow>>;

    /// All tokens, oldest first.
    fn tokens(&self) -> Result<Vec<TokenRow>>;

    /// Revokes tokens whose id begins with `id`; returns how many.
    fn remove_token(&self, id: &str) -> Result<usize>;
}
