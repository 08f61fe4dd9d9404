//! Tokens of the HTTP API: only their hashes are kept.

use postgres::Row;

use super::PgStore;
use super::types::{At, text};
use crate::{Result, Scope, TokenRow, Tokens};

/// Reads `id, name, scope, repositories, created_at`.
pub(super) fn row(r: &Row) -> TokenRow {
    let scope: String = r.get(2);
    let repositories: String = r.get(3);
    TokenRow {
        id: r.get(0),
        name: r.get(1),
        scope: Scope::parse(&scope).unwrap_or(Scope::Read),
        repositories: repositories.split_whitespace().map(str::to_owned).collect(),
        created_at: r.get::<_, At>(4).0,
    }
}

impl Tokens for PgStore {
    fn put_token(&self, hash: [u8; 32], t: &TokenRow) -> Result<()> {
        self.pool.write(|c| {
            c.run(
                "INSERT INTO tokens (org_id, id, hash, name, scope, repositories, created_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (org_id, id) DO NOTHING",
                &[
                    &self.org,
                    &t.id,
                    &hash.as_slice(),
                    &text(&t.name),
                    &t.scope.name(),
                    &text(&t.repositories.join(" ")),
                    &At(t.created_at),
                ],
            )?;
            Ok(())
        })
    }

    fn token(&self, hash: [u8; 32]) -> Result<Option<TokenRow>> {
        self.pool.read(|c| {
            let r = c.row(
                "SELECT id, name, scope, repositories, created_at FROM tokens WHERE org_id = $1 AND hash = $2",
                &[&self.org, &hash.as_slice()],
            )?;
            Ok(r.as_ref().map(row))
        })
    }

    fn tokens(&self) -> Result<Vec<TokenRow>> {
        self.pool.read(|c| {
            let rows = c.rows(
                "SELECT id, name, scope, repositories, created_at FROM tokens WHERE org_id = $1
                 ORDER BY created_at, id COLLATE \"C\"",
                &[&self.org],
            )?;
            Ok(rows.iter().map(row).collect())
        })
    }

    fn remove_token(&self, id: &str) -> Result<usize> {
        self.pool.write(|c| {
            Ok(c.run(
                "DELETE FROM tokens WHERE org_id = $1 AND starts_with(id, $2)",
                &[&self.org, &text(id)],
            )? as usize)
        })
    }
}
