//! Repositories that were seen, claims of drafts, purged paths: truth about code.

use rusqlite::{OptionalExtension as _, params};

use super::SqliteStore;
use crate::{Claim, Repositories, RepositoryRow, Result, Write};

fn row(r: &rusqlite::Row<'_>) -> rusqlite::Result<RepositoryRow> {
    Ok(RepositoryRow {
        common_dir: r.get(0)?,
        repo_id: r.get(1)?,
        root: r.get(2)?,
        origin: r.get(3)?,
        first_commit: r.get(4)?,
    })
}

const COLUMNS: &str = "common_dir, repo_id, root, origin, first_commit";

impl Repositories for SqliteStore {
    fn repository_at(&self, common_dir: &str) -> Result<Option<RepositoryRow>> {
        self.readers.with(|c| {
            Ok(c.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM truth.repositories WHERE common_dir = ?1"
            ))?
            .query_row([common_dir], row)
            .optional()?)
        })
    }

    fn repositories(&self, repo_id: Option<&str>) -> Result<Vec<RepositoryRow>> {
        self.readers.with(|c| {
            let mut s = c.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM truth.repositories WHERE ?1 IS NULL OR repo_id = ?1 ORDER BY added_at DESC"
            ))?;
            let rows = s.query_map([repo_id], row)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn put_repository(&self, r: &RepositoryRow, now: i64) -> Result<()> {
        let r = r.clone();
        self.truth.run(move |c| {
            c.execute(
                "INSERT INTO repositories (common_dir, repo_id, root, origin, first_commit, added_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT DO UPDATE SET repo_id = excluded.repo_id, root = excluded.root, origin = excluded.origin,
                   first_commit = excluded.first_commit",
                params![r.common_dir, r.repo_id, r.root, r.origin, r.first_commit, now],
            )?;
            Ok(())
        })
    }

    fn claim_draft(&self, repo_id: &str, claim: &Claim) -> Result<()> {
        let (repo_id, k) = (repo_id.to_owned(), claim.clone());
        self.truth.run(move |c| {
            c.execute(
                "INSERT INTO draft_claims (repo_id, checkout, path, agent, claimed_at) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET agent = excluded.agent, claimed_at = excluded.claimed_at",
                params![repo_id, k.checkout, k.path, k.agent, k.claimed_at],
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
        let (repo_id, checkout) = (repo_id.to_owned(), checkout.to_owned());
        let (paths, agent) = (paths.to_vec(), agent.map(str::to_owned));
        self.truth.run(move |c| {
            let sql = "DELETE FROM draft_claims WHERE repo_id = ?1 AND checkout = ?2
                       AND (?3 IS NULL OR path = ?3) AND (?4 IS NULL OR agent = ?4)";
            if paths.is_empty() {
                return Ok(c.execute(sql, params![repo_id, checkout, None::<String>, agent])?);
            }
            let mut n = 0;
            for p in &paths {
                n += c.execute(sql, params![repo_id, checkout, p, agent])?;
            }
            Ok(n)
        })
    }

    fn draft_claims(&self, repo_id: &str) -> Result<Vec<Claim>> {
        self.readers.with(|c| {
            let mut s = c.prepare_cached(
                "SELECT checkout, path, agent, claimed_at FROM truth.draft_claims WHERE repo_id = ?1 ORDER BY checkout, path",
            )?;
            let rows = s.query_map([repo_id], |r| {
                Ok(Claim {
                    checkout: r.get(0)?,
                    path: r.get(1)?,
                    agent: r.get(2)?,
                    claimed_at: r.get(3)?,
                })
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn put_purged(&self, repo_id: &str, paths: &[String], now: i64) -> Result<()> {
        let (repo_id, paths) = (repo_id.to_owned(), paths.to_vec());
        self.truth.run(move |c| {
            for p in &paths {
                c.execute(
                    "INSERT INTO purged_paths (repo_id, path, purged_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                    params![repo_id, p, now],
                )?;
            }
            Ok(())
        })
    }

    fn purged(&self, repo_id: &str) -> Result<Vec<String>> {
        self.readers.with(|c| {
            let mut s = c.prepare_cached(
                "SELECT path FROM truth.purged_paths WHERE repo_id = ?1 ORDER BY path",
            )?;
            let rows = s.query_map([repo_id], |r| r.get(0))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn writes_since(&self, since: i64, limit: usize) -> Result<Vec<Write>> {
        self.readers.with(|c| {
            let mut s = c.prepare_cached(
                "SELECT e.session_id, coalesce(nullif(s.display_name, ''), nullif(s.name, ''), s.harness_id), e.started_at, e.path
                 FROM file_edits e JOIN truth.sessions s ON s.id = e.session_id
                 WHERE e.started_at >= ?1 ORDER BY e.started_at DESC LIMIT ?2",
            )?;
            let mut rows = s.query(params![since, limit])?;
            let mut out = Vec::new();
            while let Some(r) = rows.next()? {
                out.push(Write {
                    session_id: r.get(0)?,
                    agent: r.get(1)?,
                    at: r.get(2)?,
                    path: r.get(3)?,
                });
            }
            Ok(out)
        })
    }
}
