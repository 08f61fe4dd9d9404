//! Decisions: the records are in the database, what this machine read of them is in its folder.

use weft_core::time::Micros;

use super::PgStore;
use super::pool::{Conn, PgResult};
use super::types::{At, text};
use crate::pack::{pack, unpack};
use crate::{
    DecisionEntry, DecisionEvent, DecisionIndex, DecisionRecords, DecisionRow, DecisionText,
    DecisionTruth, ModelInfo, Result, StoreError, Workspace,
};

fn note(c: &mut Conn, org: uuid::Uuid, workspace: &str, e: &DecisionEvent) -> PgResult<()> {
    c.run(
        "INSERT INTO decision_events (org_id, workspace, id, kind, made_by, note, at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[
            &org,
            &text(workspace),
            &text(&e.id),
            &text(&e.kind),
            &text(&e.made_by),
            &text(&e.note),
            &At(e.at),
        ],
    )?;
    Ok(())
}

/// Inserts a record; `conflict` says what happens where its path is known.
fn put(
    c: &mut Conn,
    org: uuid::Uuid,
    workspace: &str,
    r: &DecisionTruth,
    conflict: &str,
) -> PgResult<u64> {
    Ok(c.run(
        &format!(
            "INSERT INTO decisions (org_id, workspace, path, id, created_at, body, body_hash, baseline)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (org_id, workspace, path) {conflict}"
        ),
        &[
            &org,
            &text(workspace),
            &text(&r.path),
            &text(&r.id),
            &At(r.created_at),
            &r.body.as_deref().map(pack),
            &r.body_hash,
            &text(&r.baseline),
        ],
    )?)
}

impl DecisionRecords for PgStore {
    fn workspaces(&self) -> Result<Vec<Workspace>> {
        self.pool.read(|c| {
            let rows = c.rows(
                "SELECT slug, repo_id FROM workspaces WHERE org_id = $1 ORDER BY slug COLLATE \"C\"",
                &[&self.org],
            )?;
            Ok(rows
                .iter()
                .map(|r| Workspace {
                    slug: r.get(0),
                    repo_id: r.get(1),
                })
                .collect())
        })
    }

    fn put_workspace(&self, slug: &str, repo_id: &str, now: Micros) -> Result<Workspace> {
        self.pool.write(|c| {
            for n in 1..10_000 {
                let found = c.row(
                    "SELECT slug FROM workspaces WHERE org_id = $1
                       AND (($3 <> '' AND repo_id = $3) OR ($3 = '' AND slug = $2))",
                    &[&self.org, &text(slug), &text(repo_id)],
                )?;
                if let Some(r) = found {
                    return Ok(Workspace {
                        slug: r.get(0),
                        repo_id: repo_id.to_owned(),
                    });
                }
                let name = if n == 1 {
                    slug.to_owned()
                } else {
                    format!("{slug}-{n}")
                };
                // Another process may have made it in between: then it is found.
                c.run(
                    "INSERT INTO workspaces (org_id, slug, repo_id, created_at) VALUES ($1, $2, $3, $4)
                     ON CONFLICT DO NOTHING",
                    &[&self.org, &text(&name), &text(repo_id), &At(now)],
                )?;
            }
            Err(StoreError::Other("no name is left for the workspace".into()).into())
        })
    }

    fn decision_folders(&self, workspace: &str) -> Result<Vec<String>> {
        self.pool.read(|c| {
            let rows = c.rows(
                "SELECT folder FROM decision_folders WHERE org_id = $1 AND workspace = $2
                 ORDER BY folder COLLATE \"C\"",
                &[&self.org, &text(workspace)],
            )?;
            Ok(rows.iter().map(|r| r.get(0)).collect())
        })
    }

    fn add_decision_folder(&self, workspace: &str, folder: &str) -> Result<()> {
        self.pool.write(|c| {
            c.run(
                "INSERT INTO decision_folders (org_id, workspace, folder) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
                &[&self.org, &text(workspace), &text(folder)],
            )?;
            Ok(())
        })
    }

    fn decisions(&self, workspace: &str) -> Result<Vec<DecisionTruth>> {
        self.pool.read(|c| {
            let rows = c.rows(
                "SELECT path, id, created_at, body_hash, baseline FROM decisions
                 WHERE org_id = $1 AND workspace = $2 ORDER BY path COLLATE \"C\"",
                &[&self.org, &text(workspace)],
            )?;
            Ok(rows
                .iter()
                .map(|r| DecisionTruth {
                    path: r.get(0),
                    id: r.get(1),
                    created_at: r.get::<_, At>(2).0,
                    body: None,
                    body_hash: r.get(3),
                    baseline: r.get(4),
                })
                .collect())
        })
    }

    fn decision_body(&self, workspace: &str, path: &str) -> Result<Option<Vec<u8>>> {
        let packed: Option<Vec<u8>> = self.pool.read(|c| {
            let r = c.row(
                "SELECT body FROM decisions WHERE org_id = $1 AND workspace = $2 AND path = $3",
                &[&self.org, &text(workspace), &text(path)],
            )?;
            Ok(r.and_then(|r| r.get(0)))
        })?;
        packed.map(|b| unpack(&b)).transpose()
    }

    fn put_decisions(
        &self,
        workspace: &str,
        records: Vec<DecisionTruth>,
        events: Vec<DecisionEvent>,
    ) -> Result<()> {
        self.pool.transaction(events.is_empty(), |c| {
            for r in &records {
                put(
                    c,
                    self.org,
                    workspace,
                    r,
                    "DO UPDATE SET body = coalesce(excluded.body, decisions.body),
                       body_hash = coalesce(excluded.body_hash, decisions.body_hash),
                       baseline = CASE WHEN excluded.baseline = '' THEN decisions.baseline ELSE excluded.baseline END",
                )?;
            }
            for e in &events {
                note(c, self.org, workspace, e)?;
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
        self.pool.transaction(false, |c| {
            let new = put(c, self.org, workspace, r, "DO NOTHING")? > 0;
            if new {
                note(c, self.org, workspace, e)?;
            }
            Ok(new)
        })
    }

    fn move_decision(&self, workspace: &str, from: &str, to: &str) -> Result<()> {
        self.pool.write(|c| {
            let key: super::pool::Params<'_> =
                &[&self.org, &text(workspace), &text(from), &text(to)];
            c.run(
                "DELETE FROM decisions t WHERE org_id = $1 AND workspace = $2 AND path = $4 AND $3 <> $4 AND EXISTS
                   (SELECT 1 FROM decisions f WHERE f.org_id = $1 AND f.workspace = $2 AND f.path = $3)",
                key,
            )?;
            c.run(
                "UPDATE decisions SET path = $4 WHERE org_id = $1 AND workspace = $2 AND path = $3",
                key,
            )?;
            Ok(())
        })
    }

    fn purge_decision(&self, workspace: &str, path: &str, e: &DecisionEvent) -> Result<()> {
        self.pool.transaction(false, |c| {
            c.run(
                "DELETE FROM decisions WHERE org_id = $1 AND workspace = $2 AND path = $3",
                &[&self.org, &text(workspace), &text(path)],
            )?;
            note(c, self.org, workspace, e)
        })?;
        let gone = vec![path.to_owned()];
        self.local
            .write_decision_rows(workspace, "", Vec::new(), gone, Vec::new(), 0)
    }

    fn decision_events(&self, workspace: &str, id: &str) -> Result<Vec<DecisionEvent>> {
        self.pool.read(|c| {
            let rows = c.rows(
                "SELECT id, kind, made_by, note, at FROM decision_events
                 WHERE org_id = $1 AND workspace = $2 AND id = $3 ORDER BY seq",
                &[&self.org, &text(workspace), &text(id)],
            )?;
            Ok(rows
                .iter()
                .map(|r| DecisionEvent {
                    id: r.get(0),
                    kind: r.get(1),
                    made_by: r.get(2),
                    note: r.get(3),
                    at: r.get::<_, At>(4).0,
                })
                .collect())
        })
    }

    fn count_decisions(&self) -> Result<u64> {
        self.pool.read(|c| {
            Ok(c.number(
                "SELECT count(*) FROM decisions WHERE org_id = $1",
                &[&self.org],
            )? as u64)
        })
    }
}

impl DecisionIndex for PgStore {
    fn decision_rows(
        &self,
        workspace: &str,
        checkout: &str,
        reader: u32,
    ) -> Result<Vec<(DecisionRow, bool)>> {
        self.local.decision_rows(workspace, checkout, reader)
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
        self.local
            .write_decision_rows(workspace, checkout, rows, gone, texts, reader)
    }

    fn decision_entries(
        &self,
        workspace: &str,
        checkout: &str,
        model: Option<&ModelInfo>,
    ) -> Result<Vec<DecisionEntry>> {
        self.local.decision_entries(workspace, checkout, model)
    }

    fn decision_rationale(&self, hash: &[u8]) -> Result<String> {
        self.local.decision_rationale(hash)
    }

    fn decisions_to_embed(&self, model: &ModelInfo, limit: usize) -> Result<Vec<DecisionText>> {
        self.local.decisions_to_embed(model, limit)
    }

    fn put_decision_vectors(&self, model: &ModelInfo, all: Vec<(Vec<u8>, Vec<f32>)>) -> Result<()> {
        self.local.put_decision_vectors(model, all)
    }
}
