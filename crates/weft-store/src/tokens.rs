//! Tokens of the HTTP API: only their hashes are kept.

use rusqlite::{OptionalExtension as _, params};

use crate::{Result, Store};

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

fn row(r: &rusqlite::Row<'_>) -> rusqlite::Result<TokenRow> {
    let scope: String = r.get(2)?;
    let repositories: String = r.get(3)?;
    Ok(TokenRow {
        id: r.get(0)?,
        name: r.get(1)?,
        scope: Scope::parse(&scope).unwrap_or(Scope::Read),
        repositories: repositories
            .split(' ')
            .filter(|s| !s.is_empty())
            .map(str::to_owned)
            .collect(),
        created_at: r.get(4)?,
    })
}

impl Store {
    /// Keeps a token by its hash.
    pub fn put_token(&self, hash: [u8; 32], t: &TokenRow) -> Result<()> {
        let t = t.clone();
        self.truth.run(move |c| {
            c.execute(
                "INSERT INTO tokens (id, hash, name, scope, repositories, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![t.id, hash.as_slice(), t.name, t.scope.name(), t.repositories.join(" "), t.created_at],
            )?;
            Ok(())
        })
    }

    /// The token of a hash.
    pub fn token(&self, hash: [u8; 32]) -> Result<Option<TokenRow>> {
        self.readers.with(|c| {
            Ok(c.prepare_cached("SELECT id, name, scope, repositories, created_at FROM truth.tokens WHERE hash = ?1")?
                .query_row([hash.as_slice()], row)
                .optional()?)
        })
    }

    /// All tokens, oldest first.
    pub fn tokens(&self) -> Result<Vec<TokenRow>> {
        self.readers.with(|c| {
            let mut s = c.prepare_cached("SELECT id, name, scope, repositories, created_at FROM truth.tokens ORDER BY created_at, id")?;
            let rows = s.query_map([], row)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Revokes tokens whose id begins with `id`; returns how many.
    pub fn remove_token(&self, id: &str) -> Result<usize> {
        let id = id.to_owned();
        self.truth.run(move |c| {
            Ok(c.execute(
                "DELETE FROM tokens WHERE substr(id, 1, length(?1)) = ?1",
                [id],
            )?)
        })
    }
}
