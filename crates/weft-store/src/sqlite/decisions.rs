//! Decisions: the records that the store keeps (truth), and what was read of every record (projection).
//!
//! **Invariant.** A record that was stored is never lost: a change writes the new body and an event in
//! one transaction, and only a purge removes one.

use rusqlite::{OptionalExtension as _, params};
use weft_core::time::Micros;

use super::SqliteStore;
use super::models::{from_blob, to_blob};
use crate::pack::{pack, unpack};
use crate::{
    DecisionEntry, DecisionEvent, DecisionIndex, DecisionRecords, DecisionRow, DecisionText,
    DecisionTruth, ModelInfo, Result, StoreError, Workspace,
};

fn row(r: &rusqlite::Row<'_>) -> rusqlite::Result<DecisionRow> {
    Ok(DecisionRow {
        path: r.get(0)?,
        id: r.get(1)?,
        created_at: r.get(2)?,
        size: r.get(3)?,
        modified_ns: r.get(4)?,
        hash: r.get(5)?,
        problem: r.get(6)?,
    })
}

impl DecisionRecords for SqliteStore {
    fn workspaces(&self) -> Result<Vec<Workspace>> {
        self.readers.with(|c| {
            let mut q =
                c.prepare_cached("SELECT slug, repo_id FROM truth.workspaces ORDER BY slug")?;
            let rows = q.query_map([], |r| {
                Ok(Workspace {
                    slug: r.get(0)?,
                    repo_id: r.get(1)?,
                })
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn put_workspace(&self, slug: &str, repo_id: &str, now: Micros) -> Result<Workspace> {
        let (slug, repo_id) = (slug.to_owned(), repo_id.to_owned());
        self.truth.run(move |c| {
            let found: Option<String> = c
                .query_row(
                    "SELECT slug FROM workspaces WHERE (?2 <> '' AND repo_id = ?2) OR (?2 = '' AND slug = ?1)",
                    params![slug, repo_id],
                    |r| r.get(0),
                )
                .optional()?;
            if let Some(slug) = found {
                return Ok(Workspace { slug, repo_id });
            }
            for n in 1.. {
                let name = if n == 1 { slug.clone() } else { format!("{slug}-{n}") };
                let new = c.execute(
                    "INSERT INTO workspaces (slug, repo_id, created_at) VALUES (?1, ?2, ?3) ON CONFLICT (slug) DO NOTHING",
                    params![name, repo_id, now],
                )?;
                if new > 0 {
                    return Ok(Workspace { slug: name, repo_id });
                }
            }
            Err(StoreError::Other("no name is left for the workspace".into()))
        })
    }

    fn decision_folders(&self, workspace: &str) -> Result<Vec<String>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT folder FROM truth.decision_folders WHERE workspace = ?1 ORDER BY folder",
            )?;
            let rows = q.query_map([workspace], |r| r.get(0))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn add_decision_folder(&self, workspace: &str, folder: &str) -> Result<()> {
        let (workspace, folder) = (workspace.to_owned(), folder.to_owned());
        self.truth.run(move |c| {
            c.execute(
                "INSERT INTO decision_folders VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                params![workspace, folder],
            )?;
            Ok(())
        })
    }

    fn decisions(&self, workspace: &str) -> Result<Vec<DecisionTruth>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT path, id, created_at, body_hash, baseline FROM truth.decisions WHERE workspace = ?1 ORDER BY path",
            )?;
            let rows = q.query_map([workspace], |r| {
                Ok(DecisionTruth {
                    path: r.get(0)?,
                    id: r.get(1)?,
                    created_at: r.get(2)?,
                    body: None,
                    body_hash: r.get(3)?,
                    baseline: r.get(4)?,
                })
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn decision_body(&self, workspace: &str, path: &str) -> Result<Option<Vec<u8>>> {
        let packed: Option<Option<Vec<u8>>> = self.readers.with(|c| {
            Ok(c.prepare_cached(
                "SELECT body FROM truth.decisions WHERE workspace = ?1 AND path = ?2",
            )?
            .query_row([workspace, path], |r| r.get(0))
            .optional()?)
        })?;
        packed.flatten().map(|b| unpack(&b)).transpose()
    }

    fn put_decisions(
        &self,
        workspace: &str,
        records: Vec<DecisionTruth>,
        events: Vec<DecisionEvent>,
    ) -> Result<()> {
        let workspace = workspace.to_owned();
        self.truth.run(move |c| {
            for r in &records {
                c.prepare_cached(
                    "INSERT INTO decisions (workspace, path, id, created_at, body, body_hash, baseline)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                     ON CONFLICT DO UPDATE SET body = coalesce(excluded.body, body),
                       body_hash = coalesce(excluded.body_hash, body_hash),
                       baseline = CASE excluded.baseline WHEN '' THEN baseline ELSE excluded.baseline END",
                )?
                .execute(params![
                    workspace,
                    r.path,
                    r.id,
                    r.created_at,
                    r.body.as_deref().map(pack),
                    r.body_hash,
                    r.baseline
                ])?;
            }
            for e in &events {
                c.prepare_cached(
                    "INSERT INTO decision_events (workspace, id, kind, made_by, note, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![workspace, e.id, e.kind, e.made_by, e.note, e.at])?;
            }
            Ok(())
        })
    }

    fn create_decision(
        &self,
        workspace: &str,
        r: &DecisionTruth,
        e: &DecisionEvent,
    ) -> Result<bool> {
        let (workspace, r, e) = (workspace.to_owned(), r.clone(), e.clone());
        self.truth.run(move |c| {
            let new = c.execute(
                "INSERT INTO decisions (workspace, path, id, created_at, body, body_hash, baseline)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
                params![workspace, r.path, r.id, r.created_at, r.body.as_deref().map(pack), r.body_hash, r.baseline],
            )?;
            if new > 0 {
                c.execute(
                    "INSERT INTO decision_events (workspace, id, kind, made_by, note, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    params![workspace, e.id, e.kind, e.made_by, e.note, e.at],
                )?;
            }
            Ok(new > 0)
        })
    }

    fn move_decision(&self, workspace: &str, from: &str, to: &str) -> Result<()> {
        let (workspace, from, to) = (workspace.to_owned(), from.to_owned(), to.to_owned());
        self.truth.run(move |c| {
            c.execute(
                "DELETE FROM decisions WHERE workspace = ?1 AND path = ?3 AND ?2 <> ?3 AND EXISTS
                   (SELECT 1 FROM decisions f WHERE f.workspace = ?1 AND f.path = ?2)",
                [&workspace, &from, &to],
            )?;
            c.execute(
                "UPDATE decisions SET path = ?3 WHERE workspace = ?1 AND path = ?2",
                [&workspace, &from, &to],
            )?;
            Ok(())
        })
    }

    fn purge_decision(&self, workspace: &str, path: &str, e: &DecisionEvent) -> Result<()> {
        let (ws, p, e) = (workspace.to_owned(), path.to_owned(), e.clone());
        self.truth.run(move |c| {
            c.execute("DELETE FROM decisions WHERE workspace = ?1 AND path = ?2", [&ws, &p])?;
            c.execute(
                "INSERT INTO decision_events (workspace, id, kind, made_by, note, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![ws, e.id, e.kind, e.made_by, e.note, e.at],
            )?;
            Ok(())
        })?;
        self.write_decision_rows(
            workspace,
            "",
            Vec::new(),
            vec![path.to_owned()],
            Vec::new(),
            0,
        )
    }

    fn decision_events(&self, workspace: &str, id: &str) -> Result<Vec<DecisionEvent>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT id, kind, made_by, note, at FROM truth.decision_events WHERE workspace = ?1 AND id = ?2 ORDER BY seq",
            )?;
            let rows = q.query_map([workspace, id], |r| {
                Ok(DecisionEvent {
                    id: r.get(0)?,
                    kind: r.get(1)?,
                    made_by: r.get(2)?,
                    note: r.get(3)?,
                    at: r.get(4)?,
                })
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn count_decisions(&self) -> Result<u64> {
        self.readers
            .with(|c| Ok(c.query_row("SELECT count(*) FROM truth.decisions", [], |r| r.get(0))?))
    }
}

impl DecisionIndex for SqliteStore {
    fn decision_rows(
        &self,
        workspace: &str,
        checkout: &str,
        reader: u32,
    ) -> Result<Vec<(DecisionRow, bool)>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT r.path, r.id, r.created_at, r.size, r.modified_ns, r.hash, r.problem,
                        coalesce(t.reader = ?3, 0)
                 FROM decision_rows r LEFT JOIN decision_texts t ON t.hash = r.hash
                 WHERE r.workspace = ?1 AND r.checkout = ?2 ORDER BY r.path",
            )?;
            let rows = q.query_map(params![workspace, checkout, reader], |r| {
                Ok((row(r)?, r.get(7)?))
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn write_decision_rows(
        &self,
        workspace: &str,
        checkout: &str,
        rows: Vec<DecisionRow>,
        gone: Vec<String>,
        texts: Vec<DecisionText>,
        reader: u32,
    ) -> Result<()> {
        let (workspace, checkout) = (workspace.to_owned(), checkout.to_owned());
        self.index.run(move |c| {
            for t in &texts {
                c.prepare_cached("INSERT OR REPLACE INTO decision_texts (hash, reader, card, rationale, words, pieces_hash)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
                    .execute(params![t.hash, reader, t.card, pack(t.rationale.as_bytes()), t.words, t.pieces_hash])?;
            }
            for r in &rows {
                c.prepare_cached("INSERT OR REPLACE INTO decision_rows VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?
                    .execute(params![
                        workspace, checkout, r.path, r.id, r.created_at, r.size, r.modified_ns, r.hash, r.problem
                    ])?;
            }
            for path in &gone {
                c.prepare_cached("DELETE FROM decision_rows WHERE workspace = ?1 AND checkout = ?2 AND path = ?3")?
                    .execute([&workspace, &checkout, path])?;
            }
            c.execute(
                "DELETE FROM decision_texts WHERE NOT EXISTS (SELECT 1 FROM decision_rows r WHERE r.hash = decision_texts.hash)",
                [],
            )?;
            c.execute(
                "DELETE FROM decision_vectors WHERE NOT EXISTS
                   (SELECT 1 FROM decision_texts t WHERE t.pieces_hash = decision_vectors.pieces_hash)",
                [],
            )?;
            Ok(())
        })
    }

    fn decision_entries(
        &self,
        workspace: &str,
        checkout: &str,
        model: Option<&ModelInfo>,
    ) -> Result<Vec<DecisionEntry>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT r.path, r.id, r.created_at, r.size, r.modified_ns, r.hash, r.problem, t.card, t.words, v.vectors
                 FROM decision_rows r JOIN decision_texts t ON t.hash = r.hash
                 LEFT JOIN decision_vectors v ON v.model_id = ?3 AND v.pieces_hash = t.pieces_hash
                 WHERE r.workspace = ?1 AND r.checkout IN ('', ?2) ORDER BY r.path",
            )?;
            let mut rows = q.query(params![workspace, checkout, model.map(|m| m.id)])?;
            let mut out = Vec::new();
            while let Some(r) = rows.next()? {
                let vectors: Option<Vec<u8>> = r.get(9)?;
                out.push(DecisionEntry {
                    row: row(r)?,
                    card: r.get(7)?,
                    words: r.get(8)?,
                    vectors: vectors.map(|v| from_blob(&v)).unwrap_or_default(),
                });
            }
            Ok(out)
        })
    }

    fn decision_rationale(&self, hash: &[u8]) -> Result<String> {
        let packed: Option<Vec<u8>> = self.readers.with(|c| {
            Ok(
                c.prepare_cached("SELECT rationale FROM decision_texts WHERE hash = ?1")?
                    .query_row([hash], |r| r.get(0))
                    .optional()?,
            )
        })?;
        let bytes = packed.map(|p| unpack(&p)).transpose()?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn decisions_to_embed(&self, model: &ModelInfo, limit: usize) -> Result<Vec<DecisionText>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT t.hash, t.card, t.rationale, t.pieces_hash FROM decision_texts t
                 WHERE NOT EXISTS (SELECT 1 FROM decision_vectors v WHERE v.model_id = ?1 AND v.pieces_hash = t.pieces_hash)
                 LIMIT ?2",
            )?;
            let mut rows = q.query(params![model.id, limit])?;
            let mut out = Vec::new();
            while let Some(r) = rows.next()? {
                let rationale: Vec<u8> = r.get(2)?;
                out.push(DecisionText {
                    hash: r.get(0)?,
                    card: r.get(1)?,
                    rationale: String::from_utf8_lossy(&unpack(&rationale)?).into_owned(),
                    words: Vec::new(),
                    pieces_hash: r.get(3)?,
                });
            }
            Ok(out)
        })
    }

    fn put_decision_vectors(&self, model: &ModelInfo, all: Vec<(Vec<u8>, Vec<f32>)>) -> Result<()> {
        let id = model.id;
        self.index.run(move |c| {
            for (hash, vectors) in &all {
                c.prepare_cached("INSERT OR REPLACE INTO decision_vectors VALUES (?1, ?2, ?3)")?
                    .execute(params![id, hash, to_blob(vectors)])?;
            }
            Ok(())
        })
    }
}
