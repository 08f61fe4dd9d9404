//! Documents: what search reads of one span, and how a query's scope chooses among them.

use rusqlite::{Connection, OptionalExtension, ToSql, params};

use super::SqliteStore;
use crate::{Coverage, Document, Documents, Filter, Result, Role, SpanHit, Subagents};

/// The conditions on `d` (documents) and their values.
pub(crate) fn conditions(filter: &Filter) -> (String, Vec<Box<dyn ToSql>>) {
    let mut wheres = vec!["1".to_owned()];
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    if !filter.sessions.is_empty() {
        let marks = vec!["?"; filter.sessions.len()].join(",");
        wheres.push(format!("d.session_id IN ({marks})"));
        for s in &filter.sessions {
            values.push(Box::new(s.clone()));
        }
    }
    for (column, value) in [("agent", &filter.agent), ("model", &filter.model)] {
        if let Some(v) = value {
            wheres.push(format!("d.{column} = ?"));
            values.push(Box::new(v.clone()));
        }
    }
    if let Some(r) = &filter.repository {
        wheres.push("(d.repository = ? OR substr(d.repository, -length(?) - 1) = '/' || ?)".into());
        for _ in 0..3 {
            values.push(Box::new(r.clone()));
        }
    }
    if let Some(role) = filter.role {
        wheres.push(format!(
            "d.{} <> ''",
            match role {
                Role::User => "user_text",
                Role::Assistant => "assistant_text",
                Role::Tool => "tool_text",
            }
        ));
    }
    if let Some(t) = filter.since {
        wheres.push("d.started_at >= ?".into());
        values.push(Box::new(t));
    }
    if let Some(t) = filter.until {
        wheres.push("d.started_at < ?".into());
        values.push(Box::new(t));
    }
    match filter.subagents {
        Subagents::Include => {}
        Subagents::Exclude => wheres.push("d.thread_id = ''".into()),
        Subagents::Only => wheres.push("d.thread_id <> ''".into()),
    }
    if let Some(t) = &filter.tool {
        wheres.push(
            "EXISTS (SELECT 1 FROM spans s WHERE s.trace_id = d.trace_id AND s.kind = 'tool' AND s.name = ? COLLATE NOCASE)"
                .into(),
        );
        values.push(Box::new(t.clone()));
    }
    if let Some(f) = &filter.file {
        let f = f.trim_start_matches("./").to_owned();
        wheres.push(
            "(EXISTS (SELECT 1 FROM file_edits e WHERE e.trace_id = d.trace_id AND (e.path = ? OR substr(e.path, -length(?) - 1) = '/' || ?))
              OR instr(d.user_text, ?) > 0 OR instr(d.assistant_text, ?) > 0 OR instr(d.tool_text, ?) > 0)"
                .into(),
        );
        for _ in 0..6 {
            values.push(Box::new(f.clone()));
        }
    }
    if let Some(b) = &filter.branch {
        wheres.push(
            "EXISTS (SELECT 1 FROM truth.sessions x WHERE x.id = d.session_id AND json_extract(x.harness_metadata, '$.gitBranch') = ?)"
                .into(),
        );
        values.push(Box::new(b.clone()));
    }
    (wheres.join(" AND "), values)
}

/// Makes a session's documents equal to `docs`; an unchanged document keeps its id.
pub(crate) fn replace(c: &Connection, session_id: &str, docs: &[Document]) -> Result<()> {
    let mut old: std::collections::HashMap<(String, String), (i64, Vec<u8>)> = {
        let mut q = c.prepare_cached(
            "SELECT trace_id, span_id, id, content_hash FROM documents WHERE session_id = ?1",
        )?;
        let rows = q.query_map([session_id], |r| {
            Ok(((r.get(0)?, r.get(1)?), (r.get(2)?, r.get(3)?)))
        })?;
        rows.collect::<Result<_, _>>()?
    };
    let mut remove = Vec::new();
    let mut add = Vec::new();
    for d in docs {
        match old.remove(&(d.trace_id.clone(), d.span_id.clone())) {
            Some((_, hash)) if hash == d.content_hash => {}
            Some((id, _)) => {
                remove.push(id);
                add.push(d);
            }
            None => add.push(d),
        }
    }
    remove.extend(old.into_values().map(|(id, _)| id));
    let (mut documents, mut embeddable) = (0, 0);
    for id in remove {
        documents -= 1;
        embeddable -= c
            .prepare_cached("SELECT hash IS NOT NULL FROM documents WHERE id = ?1")?
            .query_row([id], |r| r.get::<_, i64>(0))?;
        c.prepare_cached(
            "INSERT INTO removed_documents (id, hash) SELECT id, hash FROM documents WHERE id = ?1",
        )?
        .execute([id])?;
        c.prepare_cached("DELETE FROM documents WHERE id = ?1")?
            .execute([id])?;
    }
    let mut insert = c.prepare_cached(
        "INSERT INTO documents (trace_id, span_id, session_id, thread_id, agent, model, repository,
           started_at, user_text, assistant_text, context_text, tool_text, hash, content_hash)
         VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14)
         ON CONFLICT (trace_id, span_id) DO NOTHING",
    )?;
    for d in add {
        let new = insert.execute(params![
            d.trace_id,
            d.span_id,
            d.session_id,
            d.thread_id,
            d.agent,
            d.model,
            d.repository,
            d.started_at,
            d.user_text,
            d.assistant_text,
            d.context_text,
            d.tool_text,
            d.hash,
            d.content_hash,
        ])?;
        documents += new as i64;
        embeddable += i64::from(new > 0 && d.hash.is_some());
    }
    count(c, DOCUMENTS, documents)?;
    count(c, EMBEDDABLE, embeddable)
}

pub(crate) const COLUMNS: &str = "d.id, d.trace_id, d.span_id, d.session_id, d.thread_id, d.agent,
  d.model, d.repository, d.started_at, d.user_text, d.assistant_text, d.context_text, d.tool_text";

pub(crate) fn read(r: &rusqlite::Row<'_>) -> rusqlite::Result<(i64, Document)> {
    Ok((
        r.get(0)?,
        Document {
            trace_id: r.get(1)?,
            span_id: r.get(2)?,
            session_id: r.get(3)?,
            thread_id: r.get(4)?,
            agent: r.get(5)?,
            model: r.get(6)?,
            repository: r.get(7)?,
            started_at: r.get(8)?,
            user_text: r.get(9)?,
            assistant_text: r.get(10)?,
            context_text: r.get(11)?,
            tool_text: r.get(12)?,
            ..Document::default()
        },
    ))
}

/// Names of the counters that are kept with the documents.
const DOCUMENTS: &str = "documents.count";

const EMBEDDABLE: &str = "documents.embeddable";

fn counter(c: &Connection, name: &str) -> Result<u64> {
    let value: Option<String> = c
        .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([name], |r| r.get(0))
        .optional()?;
    Ok(value.and_then(|v| v.parse().ok()).unwrap_or(0))
}

/// Adds to a counter in the transaction that changes what it counts.
fn count(c: &Connection, name: &str, by: i64) -> Result<()> {
    if by == 0 {
        return Ok(());
    }
    let now = counter(c, name)?.saturating_add_signed(by);
    c.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2)")?
        .execute(params![name, now.to_string()])?;
    Ok(())
}

impl Documents for SqliteStore {
    fn hydrate(&self, ids: &[i64]) -> Result<Vec<SpanHit>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(&format!(
                "SELECT {COLUMNS}, t.user_prompt FROM documents d
                 JOIN traces t ON t.trace_id = d.trace_id WHERE d.id = ?1"
            ))?;
            let mut out = Vec::with_capacity(ids.len());
            for id in ids {
                let hit = q
                    .query_row([id], |r| {
                        let (id, document) = read(r)?;
                        Ok(SpanHit {
                            id,
                            document,
                            user_prompt: r.get(13)?,
                        })
                    })
                    .optional()?;
                out.extend(hit);
            }
            Ok(out)
        })
    }

    fn document_of(&self, trace_id: &str, span_id: &str) -> Result<Option<i64>> {
        self.readers.with(|c| {
            Ok(
                c.prepare_cached("SELECT id FROM documents WHERE trace_id = ?1 AND span_id = ?2")?
                    .query_row([trace_id, span_id], |r| r.get(0))
                    .optional()?,
            )
        })
    }

    fn around(&self, session_id: &str, id: i64, each: usize) -> Result<Vec<SpanHit>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(&format!(
                "SELECT {COLUMNS}, t.user_prompt FROM documents d
                 JOIN traces t ON t.trace_id = d.trace_id
                 WHERE d.session_id = ?1 AND d.thread_id =
                   (SELECT thread_id FROM documents WHERE id = ?2)
                 ORDER BY d.started_at, d.id"
            ))?;
            let all: Vec<SpanHit> = q
                .query_map(params![session_id, id], |r| {
                    let (id, document) = read(r)?;
                    Ok(SpanHit {
                        id,
                        document,
                        user_prompt: r.get(13)?,
                    })
                })?
                .collect::<Result<_, _>>()?;
            let Some(at) = all.iter().position(|h| h.id == id) else {
                return Ok(Vec::new());
            };
            let from = at.saturating_sub(each);
            let to = (at + each + 1).min(all.len());
            Ok(all[from..to].to_vec())
        })
    }

    fn coverage(&self, model_id: Option<i64>) -> Result<Coverage> {
        self.readers.with(|c| {
            let one = |sql: &str| -> Result<u64> {
                Ok(c.prepare_cached(sql)?.query_row([], |r| r.get(0))?)
            };
            let (documents, embeddable) = (counter(c, DOCUMENTS)?, counter(c, EMBEDDABLE)?);
            let pending: u64 = match model_id {
                // Two ranges of the index: everything that is settled is passed over.
                Some(id) => c
                    .prepare_cached(
                        "SELECT (SELECT count(*) FROM documents
                                 WHERE hash IS NOT NULL AND embed_model < ?1) +
                                (SELECT count(*) FROM documents
                                 WHERE hash IS NOT NULL AND embed_model > ?1)",
                    )?
                    .query_row([id], |r| r.get(0))?,
                None => embeddable,
            };
            Ok(Coverage {
                documents,
                embeddable,
                embedded: embeddable.saturating_sub(pending),
                words_pending: one("SELECT count(*) FROM documents WHERE words_done = 0")?,
                underived_sessions: one("SELECT count(*) FROM truth.derive_queue")?,
            })
        })
    }
}
