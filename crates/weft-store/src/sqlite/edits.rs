//! Which span wrote which file: rows beside the spans, written with them.

use rusqlite::{Connection, OptionalExtension as _, params};
use weft_core::block::ContentBlock;
use weft_core::edits::{self};
use weft_core::time::Micros;

use super::SqliteStore;
use crate::edits::name_of;
use crate::pack::unpack;
use crate::{Edits, FileEdit, Result};

const WAITING: &str = "file_edits.waiting";

/// Writes the rows of one tool span.
pub(crate) fn write(
    c: &Connection,
    session_id: &str,
    trace_id: &str,
    span_id: &str,
    started_at: Micros,
    input: &[ContentBlock],
) -> Result<()> {
    for block in input {
        for e in edits::edits(&block.tool_input) {
            c.prepare_cached("INSERT OR REPLACE INTO file_edits VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
                .execute(params![
                    name_of(&e.path),
                    e.path,
                    session_id,
                    trace_id,
                    span_id,
                    started_at
                ])?;
        }
    }
    Ok(())
}

impl Edits for SqliteStore {
    fn fill_file_edits(&self) -> Result<()> {
        let waiting: Option<String> = self.readers.with(|c| {
            Ok(c.prepare_cached("SELECT value FROM meta WHERE key = ?1")?
                .query_row([WAITING], |r| r.get(0))
                .optional()?)
        })?;
        if waiting.is_none() {
            return Ok(());
        }
        self.index.run(|c| {
            {
                let mut q = c.prepare(
                    "SELECT session_id, trace_id, span_id, started_at, name, input FROM spans WHERE kind = 'tool'",
                )?;
                let mut rows = q.query([])?;
                while let Some(r) = rows.next()? {
                    let (session, trace, span): (String, String, String) = (r.get(0)?, r.get(1)?, r.get(2)?);
                    let (at, name): (Micros, String) = (r.get(3)?, r.get(4)?);
                    let input: Option<Vec<u8>> = r.get(5)?;
                    if let Some(packed) = input.filter(|_| edits::writes(&name)) {
                        let blocks: Vec<ContentBlock> =
                            serde_json::from_slice(&unpack(&packed)?).unwrap_or_default();
                        write(c, &session, &trace, &span, at, &blocks)?;
                    }
                }
            }
            c.execute("DELETE FROM meta WHERE key = ?1", [WAITING])?;
            Ok(())
        })
    }

    fn edits_of(&self, path: &str, limit: usize) -> Result<Vec<FileEdit>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT e.path, e.session_id, e.trace_id, e.span_id, e.started_at, s.name, s.input, t.user_prompt
                 FROM file_edits e
                 JOIN spans s ON s.trace_id = e.trace_id AND s.span_id = e.span_id
                 JOIN traces t ON t.trace_id = e.trace_id
                 WHERE e.name = ?1 AND (e.path = ?2 OR replace(e.path, '\\', '/') LIKE '%/' || ?3 ESCAPE '\\')
                 ORDER BY e.started_at DESC LIMIT ?4",
            )?;
            let like = path.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
            let mut rows = q.query(params![name_of(path), path, like, limit])?;
            let mut out = Vec::new();
            while let Some(r) = rows.next()? {
                let input: Option<Vec<u8>> = r.get(6)?;
                let bytes = input.map(|i| unpack(&i)).transpose()?.unwrap_or_default();
                let blocks: Vec<ContentBlock> = serde_json::from_slice(&bytes).unwrap_or_default();
                let path: String = r.get(0)?;
                out.push(FileEdit {
                    edits: blocks
                        .iter()
                        .flat_map(|b| edits::edits(&b.tool_input))
                        .filter(|e| e.path == path)
                        .collect(),
                    path,
                    session_id: r.get(1)?,
                    trace_id: r.get(2)?,
                    span_id: r.get(3)?,
                    started_at: r.get(4)?,
                    tool: r.get(5)?,
                    prompt: r.get(7)?,
                });
            }
            Ok(out)
        })
    }
}
