//! Which span wrote which file: rows beside the spans, written with them.

use serde_json::json;
use uuid::Uuid;
use weft_core::block::ContentBlock;
use weft_core::derive::Projection;
use weft_core::edits;

use super::PgStore;
use super::pool::{Conn, PgResult};
use super::spans::in_batches;
use super::types::{At, Json, id_text, text};
use crate::edits::name_of;
use crate::{Edits, FileEdit, Result};

/// Replaces the rows of a session.
pub(super) fn replace(c: &mut Conn, org: Uuid, session: Uuid, p: &Projection) -> PgResult<()> {
    c.run(
        "DELETE FROM file_edits WHERE org_id = $1 AND session_id = $2",
        &[&org, &session],
    )?;
    let rows = p.traces.iter().flat_map(|t| {
        t.spans
            .iter()
            .filter(|s| s.kind == "tool" && edits::writes(&s.name))
            .flat_map(move |s| {
                s.input
                    .iter()
                    .flat_map(|b| edits::edits(&b.tool_input))
                    .map(move |e| {
                        json!({"name": name_of(&e.path), "path": e.path, "trace_id": t.trace_id,
                            "span_id": s.span_id, "started_at": s.started_at})
                    })
            })
    });
    in_batches(
        c,
        "INSERT INTO file_edits (org_id, session_id, name, path, trace_id, span_id, started_at)
         SELECT $1, $2, x.name, x.path, x.trace_id, x.span_id,
           timestamptz 'epoch' + x.started_at * interval '1 microsecond'
         FROM jsonb_to_recordset($3) AS x(name text, path text, trace_id text, span_id text, started_at bigint)
         ON CONFLICT (org_id, name, path, trace_id, span_id) DO NOTHING",
        &[&org, &session],
        rows,
    )
}

impl Edits for PgStore {
    /// Every span of this store had its edits noted when it was written.
    fn fill_file_edits(&self) -> Result<()> {
        Ok(())
    }

    fn edits_of(&self, path: &str, limit: usize) -> Result<Vec<FileEdit>> {
        let path = text(path);
        self.pool.read(|c| {
            let rows = c.rows(
                r"SELECT e.path, e.session_id, e.trace_id, e.span_id, e.started_at, s.name, s.input, t.user_prompt
                 FROM file_edits e
                 JOIN spans_20260615 s ON s.org_id = $1 AND s.trace_id = e.trace_id AND s.span_id = e.span_id
                 JOIN span_turns_20260615 t ON t.org_id = $1 AND t.trace_id = e.trace_id
                 WHERE e.org_id = $1 AND e.name = $2
                   AND (e.path = $3 OR lower(right(replace(e.path, '\', '/'), length($3) + 1)) = '/' || lower($3))
                 ORDER BY e.started_at DESC LIMIT $4",
                &[&self.org, &name_of(&path), &path, &(limit as i64)],
            )?;
            Ok(rows
                .iter()
                .map(|r| {
                    let input: Option<Json<'static>> = r.get(6);
                    let blocks: Vec<ContentBlock> = input
                        .and_then(|j| serde_json::from_str(&j.0).ok())
                        .unwrap_or_default();
                    let path: String = r.get(0);
                    FileEdit {
                        edits: blocks
                            .iter()
                            .flat_map(|b| edits::edits(&b.tool_input))
                            .filter(|e| e.path == path)
                            .collect(),
                        path,
                        session_id: id_text(r.get(1)),
                        trace_id: r.get(2),
                        span_id: r.get(3),
                        started_at: r.get::<_, At>(4).0,
                        tool: r.get(5),
                        prompt: r.get(7),
                    }
                })
                .collect())
        })
    }
}
