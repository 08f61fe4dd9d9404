//! Repositories that were seen, claims of drafts, purged paths: truth about code.

use postgres::Row;

use super::PgStore;
use super::types::{At, id_text, text};
use crate::{Claim, Repositories, RepositoryRow, Result, Write};

fn row(r: &Row) -> RepositoryRow {
    RepositoryRow {
        common_dir: r.get(0),
        repo_id: r.get(1),
        root: r.get(2),
        origin: r.get(3),
        first_commit: r.get(4),
    }
}

const COLUMNS: &str = "common_dir, repo_id, root, origin, first_commit";

impl Repositories for PgStore {
    fn repository_at(&self, common_dir: &str) -> Result<Option<RepositoryRow>> {
        self.pool.read(|c| {
            let r = c.row(
                &format!(
                    "SELECT {COLUMNS} FROM repositories WHERE org_id = $1 AND common_dir = $2
                     ORDER BY added_at DESC LIMIT 1"
                ),
                &[&self.org, &text(common_dir)],
            )?;
            Ok(r.as_ref().map(row))
        })
    }

    fn repositories(&self, repo_id: Option<&str>) -> Result<Vec<RepositoryRow>> {
        self.pool.read(|c| {
            let rows = c.rows(
                &format!(
                    "SELECT {COLUMNS} FROM repositories WHERE org_id = $1
                       AND ($2::text IS NULL OR repo_id = $2) ORDER BY added_at DESC, common_dir COLLATE \"C\""
                ),
                &[&self.org, &repo_id],
            )?;
            Ok(rows.iter().map(row).collect())
        })
    }

    fn put_repository(&self, r: &RepositoryRow, now: i64) -> Result<()> {
        self.pool.write(|c| {
            // A folder whose repository became another one.
            c.run(
                "DELETE FROM repositories WHERE org_id = $1 AND common_dir = $2 AND repo_id <> $3",
                &[&self.org, &text(&r.common_dir), &text(&r.repo_id)],
            )?;
            c.run(
                "INSERT INTO repositories (org_id, repo_id, common_dir, root, origin, first_commit, added_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)
                 ON CONFLICT (org_id, repo_id, common_dir) DO UPDATE SET root = excluded.root,
                   origin = excluded.origin, first_commit = excluded.first_commit",
                &[
                    &self.org,
                    &text(&r.repo_id),
                    &text(&r.common_dir),
                    &text(&r.root),
                    &text(&r.origin),
                    &text(&r.first_commit),
                    &At(now),
                ],
            )?;
            Ok(())
        })
    }

    fn claim_draft(&self, repo_id: &str, k: &Claim) -> Result<()> {
        self.pool.write(|c| {
            c.run(
                "INSERT INTO draft_claims (org_id, repo_id, checkout, path, agent, claimed_at)
                 VALUES ($1, $2, $3, $4, $5, $6)
                 ON CONFLICT (org_id, repo_id, checkout, path) DO UPDATE SET agent = excluded.agent,
                   claimed_at = excluded.claimed_at",
                &[
                    &self.org,
                    &text(repo_id),
                    &text(&k.checkout),
                    &text(&k.path),
                    &text(&k.agent),
                    &At(k.claimed_at),
                ],
            )?;
            Ok(())
        })
    }

    fn release_drafts(
        &self,
        repo_id: &str,
        checkout: &str,
        paths: &[String],
        agent: Option<&str>,
    ) -> Result<usize> {
        let paths = (!paths.is_empty()).then_some(paths);
        self.pool.write(|c| {
            Ok(c.run(
                "DELETE FROM draft_claims WHERE org_id = $1 AND repo_id = $2 AND checkout = $3
                   AND ($4::text[] IS NULL OR path = ANY($4)) AND ($5::text IS NULL OR agent = $5)",
                &[&self.org, &text(repo_id), &text(checkout), &paths, &agent],
            )? as usize)
        })
    }

    fn draft_claims(&self, repo_id: &str) -> Result<Vec<Claim>> {
        self.pool.read(|c| {
            let rows = c.rows(
                "SELECT checkout, path, agent, claimed_at FROM draft_claims
                 WHERE org_id = $1 AND repo_id = $2 ORDER BY checkout COLLATE \"C\", path COLLATE \"C\"",
                &[&self.org, &text(repo_id)],
            )?;
            Ok(rows
                .iter()
                .map(|r| Claim {
                    checkout: r.get(0),
                    path: r.get(1),
                    agent: r.get(2),
                    claimed_at: r.get::<_, At>(3).0,
                })
                .collect())
        })
    }

    fn put_purged(&self, repo_id: &str, paths: &[String], now: i64) -> Result<()> {
        self.pool.write(|c| {
            c.run(
                "INSERT INTO purged_paths (org_id, repo_id, path, purged_at)
                 SELECT $1, $2, p, $4 FROM unnest($3::text[]) p ON CONFLICT DO NOTHING",
                &[&self.org, &text(repo_id), &paths, &At(now)],
            )?;
            Ok(())
        })
    }

    fn purged(&self, repo_id: &str) -> Result<Vec<String>> {
        self.pool.read(|c| {
            let rows = c.rows(
                "SELECT path FROM purged_paths WHERE org_id = $1 AND repo_id = $2 ORDER BY path COLLATE \"C\"",
                &[&self.org, &text(repo_id)],
            )?;
            Ok(rows.iter().map(|r| r.get(0)).collect())
        })
    }

    fn writes_since(&self, since: i64, limit: usize) -> Result<Vec<Write>> {
        self.pool.read(|c| {
            let rows = c.rows(
                "SELECT e.session_id, coalesce(nullif(s.display_name, ''), nullif(s.name, ''), s.harness_id),
                   e.started_at, e.path
                 FROM file_edits e JOIN sessions s ON s.org_id = $1 AND s.id = e.session_id
                 WHERE e.org_id = $1 AND e.started_at >= $2 ORDER BY e.started_at DESC LIMIT $3",
                &[&self.org, &At(since), &(limit as i64)],
            )?;
            Ok(rows
                .iter()
                .map(|r| Write {
                    session_id: id_text(Some(r.get(0))),
                    agent: r.get(1),
                    at: r.get::<_, At>(2).0,
                    path: r.get(3),
                })
                .collect())
        })
    }
}
