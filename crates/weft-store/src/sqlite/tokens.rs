//! Tokens of the HTTP API: only their hashes are kept.

use rusqlite::{OptionalExtension as _, params};

use super::SqliteStore;
use crate::{Result, Scope, TokenRow, Tokens};

/// Reads `id, name, scope, repositories, created_at`.
pub(super) fn row(r: &rusqlite::Row<'_>) -> rusqlite::Result<TokenRow> {
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

impl Tokens for SqliteStore {
    fn put_token(&self, hash: [u8; 32], t: &TokenRow) -> Result<()> {
        let t = t.clone();
        self.truth.run(move |c| {
            c.execute(
                "INSERT INTO tokens (id, hash, name, scope, repositories, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![t.id, hash.as_slice(), t.name, t.scope.name(), t.repositories.join(" "), t.created_at],
            )?;
            Ok(())
        })
    }

    fn token(&self, hash: [u8; 32]) -> Result<Option<TokenRow>> {
        self.readers.with(|c| {
            Ok(c.prepare_cached("SELECT id, name, scope, repositories, created_at FROM truth.tokens WHERE hash = ?1")?
                .query_row([hash.as_slice()], row)
                .optional()?)
        })
    }

    fn tokens(&self) -> Result<Vec<TokenRow>> {
        self.readers.with(|c| {
            let mut s = c.prepare_cached("SELECT id, name, scope, repositories, created_at FROM truth.tokens ORDER BY created_at, id")?;
            let rows = s.query_map([], row)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn remove_token(&self, id: &str) -> Result<usize> {
        let id = id.to_owned();
        self.truth.run(move |c| {
            Ok(c.execute(
                "DELETE FROM tokens WHERE substr(id, 1, length(?1)) = ?1",
                [id],
            )?)
        })
    }
}
