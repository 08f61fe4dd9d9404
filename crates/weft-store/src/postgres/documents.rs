//! Documents: what search reads of one span, and how a query's scope chooses among them.

use std::collections::HashMap;

use postgres::Row;
use postgres::types::ToSql;
use serde_json::json;
use uuid::Uuid;

use super::PgStore;
use super::pool::{Conn, PgResult};
use super::spans::in_batches;
use super::types::{At, hex, id_text, text, uuid};
use crate::{Coverage, Document, Documents, Filter, Result, Role, SpanHit, Subagents};

/// Conditions with their values; `$1` is the organisation.
pub(super) struct Conditions {
    pub(super) sql: String,
    pub(super) values: Vec<Box<dyn ToSql + Sync>>,
}

impl Conditions {
    /// References to the values, for a statement.
    pub(super) fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.values.iter().map(|v| &**v).collect()
    }

    /// Adds a value; its place.
    pub(super) fn bind(&mut self, v: impl ToSql + Sync + 'static) -> String {
        self.values.push(Box::new(v));
        format!("${}", self.values.len())
    }
}

/// The conditions of a filter on `d` (documents), beside the organisation, which every statement
/// names itself.
pub(super) fn conditions(org: Uuid, filter: &Filter) -> Conditions {
    let mut c = Conditions {
        sql: String::new(),
        values: vec![Box::new(org)],
    };
    let owned = |s: &str| text(s).into_owned();
    let mut wheres = vec!["true".to_owned()];
    if !filter.sessions.is_empty() {
        let ids: Vec<Uuid> = filter.sessions.iter().filter_map(|s| uuid(s)).collect();
        let b = c.bind(ids);
        wheres.push(format!("d.session_id = ANY({b})"));
    }
    for (column, value) in [("agent", &filter.agent), ("model", &filter.model)] {
        if let Some(v) = value {
            let b = c.bind(owned(v));
            wheres.push(format!("d.{column} = {b}"));
        }
    }
    if let Some(r) = &filter.repository {
        let b = c.bind(owned(r));
        wheres.push(format!(
            "(d.repository = {b} OR right(d.repository, length({b}) + 1) = '/' || {b})"
        ));
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
        let b = c.bind(At(t));
        wheres.push(format!("d.started_at >= {b}"));
    }
    if let Some(t) = filter.until {
        let b = c.bind(At(t));
        wheres.push(format!("d.started_at < {b}"));
    }
    match filter.subagents {
        Subagents::Include => {}
        Subagents::Exclude => wheres.push("d.thread_id = ''".into()),
        Subagents::Only => wheres.push("d.thread_id <> ''".into()),
    }
    if let Some(t) = &filter.tool {
        let b = c.bind(owned(t));
        wheres.push(format!(
            "EXISTS (SELECT 1 FROM spans_20260615 s WHERE s.org_id = $1 AND s.trace_id = d.trace_id
               AND s.kind = 'tool' AND lower(s.name) = lower({b}))"
        ));
    }
    if let Some(f) = &filter.file {
        let b = c.bind(owned(f.trim_start_matches("./")));
        wheres.push(format!(
            "(EXISTS (SELECT 1 FROM file_edits e WHERE e.org_id = $1 AND e.trace_id = d.trace_id
                AND (e.path = {b} OR right(e.path, length({b}) + 1) = '/' || {b}))
              OR strpos(d.user_text, {b}) > 0 OR strpos(d.assistant_text, {b}) > 0
              OR strpos(d.tool_text, {b}) > 0)"
        ));
    }
    if let Some(branch) = &filter.branch {
        let b = c.bind(owned(branch));
        wheres.push(format!(
            "EXISTS (SELECT 1 FROM sessions x WHERE x.org_id = $1 AND x.id = d.session_id
               AND x.harness_metadata->>'gitBranch' = {b})"
        ));
    }
    c.sql = wheres.join(" AND ");
    c
}

/// Makes a session's documents equal to `docs`; an unchanged document keeps its id.
pub(super) fn replace(c: &mut Conn, org: Uuid, session: Uuid, docs: &[Document]) -> PgResult<()> {
    let mut old: HashMap<(String, String), (i64, String)> = c
        .rows(
            "SELECT trace_id, span_id, id, content_hash FROM span_documents
             WHERE org_id = $1 AND session_id = $2",
            &[&org, &session],
        )?
        .iter()
        .map(|r| ((r.get(0), r.get(1)), (r.get(2), r.get(3))))
        .collect();
    let mut remove = Vec::new();
    let mut add = Vec::new();
    for d in docs {
        match old.remove(&(d.trace_id.clone(), d.span_id.clone())) {
            Some((_, hash)) if hash == hex(&d.content_hash) => {}
            Some((id, _)) => {
                remove.push(id);
                add.push(d);
            }
            None => add.push(d),
        }
    }
    remove.extend(old.into_values().map(|(id, _)| id));
    if !remove.is_empty() {
        c.run(
            "WITH gone AS (DELETE FROM span_documents WHERE org_id = $1 AND id = ANY($2)
               RETURNING org_id, id, trace_id, span_id)
             INSERT INTO removed_documents (org_id, id, trace_id, span_id)
             SELECT org_id, id, trace_id, span_id FROM gone ON CONFLICT DO NOTHING",
            &[&org, &remove],
        )?;
    }
    let rows = add.iter().map(|d| {
        json!({
            "trace_id": d.trace_id, "span_id": d.span_id, "thread_id": d.thread_id,
            "agent": d.agent, "model": d.model, "repository": d.repository,
            "started_at": d.started_at, "user_text": d.user_text,
            "assistant_text": d.assistant_text, "context_text": d.context_text,
            "tool_text": d.tool_text, "hash": d.hash.map(|h| hex(&h)),
            "content_hash": hex(&d.content_hash),
        })
    });
    in_batches(
        c,
        "INSERT INTO span_documents (org_id, session_id, trace_id, span_id, thread_id, agent, model,
           repository, started_at, user_text, assistant_text, context_text, tool_text, hash, content_hash)
         SELECT $1, $2, x.trace_id, x.span_id, x.thread_id, x.agent, x.model, x.repository,
           timestamptz 'epoch' + x.started_at * interval '1 microsecond', x.user_text,
           x.assistant_text, x.context_text, x.tool_text, x.hash, x.content_hash
         FROM jsonb_to_recordset($3) AS x(trace_id text, span_id text, thread_id text, agent text,
           model text, repository text, started_at bigint, user_text text, assistant_text text,
           context_text text, tool_text text, hash text, content_hash text)
         ON CONFLICT (org_id, trace_id, span_id) DO NOTHING",
        &[&org, &session],
        rows,
    )
}

pub(super) const COLUMNS: &str = "d.id, d.trace_id, d.span_id, d.session_id, d.thread_id, d.agent,
  d.model, d.repository, d.started_at, d.user_text, d.assistant_text, d.context_text, d.tool_text";

pub(super) fn read(r: &Row) -> (i64, Document) {
    (
        r.get(0),
        Document {
            trace_id: r.get(1),
            span_id: r.get(2),
            session_id: id_text(r.get(3)),
            thread_id: r.get(4),
            agent: r.get(5),
            model: r.get(6),
            repository: r.get(7),
            started_at: r.get::<_, At>(8).0,
            user_text: r.get(9),
            assistant_text: r.get(10),
            context_text: r.get(11),
            tool_text: r.get(12),
            ..Document::default()
        },
    )
}

fn hit(r: &Row) -> SpanHit {
    let (id, document) = read(r);
    SpanHit {
        id,
        document,
        user_prompt: r.get(13),
    }
}

const WITH_PROMPT: &str = "FROM span_documents d JOIN span_turns_20260615 t
  ON t.org_id = d.org_id AND t.trace_id = d.trace_id";

impl Documents for PgStore {
    fn hydrate(&self, ids: &[i64]) -> Result<Vec<SpanHit>> {
        self.pool.read(|c| {
            let rows = c.rows(
                &format!(
                    "SELECT {COLUMNS}, t.user_prompt {WITH_PROMPT} WHERE d.org_id = $1 AND d.id = ANY($2)"
                ),
                &[&self.org, &ids],
            )?;
            let mut found: HashMap<i64, SpanHit> = rows
                .iter()
                .map(|r| {
                    let h = hit(r);
                    (h.id, h)
                })
                .collect();
            Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
        })
    }

    fn document_of(&self, trace_id: &str, span_id: &str) -> Result<Option<i64>> {
        self.pool.read(|c| {
            let r = c.row(
                "SELECT id FROM span_documents WHERE org_id = $1 AND trace_id = $2 AND span_id = $3",
                &[&self.org, &text(trace_id), &text(span_id)],
            )?;
            Ok(r.map(|r| r.get(0)))
        })
    }

    fn around(&self, session_id: &str, id: i64, each: usize) -> Result<Vec<SpanHit>> {
        let Some(session) = uuid(session_id) else {
            return Ok(Vec::new());
        };
        self.pool.read(|c| {
            let rows = c.rows(
                &format!(
                    "WITH it AS (SELECT started_at, id, thread_id FROM span_documents
                       WHERE org_id = $1 AND id = $3 AND session_id = $2)
                     (SELECT {COLUMNS}, t.user_prompt {WITH_PROMPT}, it
                      WHERE d.org_id = $1 AND d.session_id = $2 AND d.thread_id = it.thread_id
                        AND (d.started_at, d.id) < (it.started_at, it.id)
                      ORDER BY d.started_at DESC, d.id DESC LIMIT $4)
                     UNION ALL
                     (SELECT {COLUMNS}, t.user_prompt {WITH_PROMPT}, it
                      WHERE d.org_id = $1 AND d.session_id = $2 AND d.thread_id = it.thread_id
                        AND (d.started_at, d.id) >= (it.started_at, it.id)
                      ORDER BY d.started_at, d.id LIMIT $4 + 1)"
                ),
                &[&self.org, &session, &id, &(each as i64)],
            )?;
            let mut hits: Vec<SpanHit> = rows.iter().map(hit).collect();
            hits.sort_by_key(|h| (h.document.started_at, h.id));
            Ok(hits)
        })
    }

    fn coverage(&self, model_id: Option<i64>) -> Result<Coverage> {
        let seen = self.words_seen().unwrap_or_default();
        self.pool.read(|c| {
            // Two ranges of the index: everything that is settled is passed over.
            let r = c.row(
                "SELECT
                   (SELECT count(*) FROM span_documents WHERE org_id = $1 AND hash IS NOT NULL AND embed_model < $2) +
                   (SELECT count(*) FROM span_documents WHERE org_id = $1 AND hash IS NOT NULL AND embed_model > $2),
                   (SELECT count(*) FROM span_documents WHERE org_id = $1 AND derive_seq > $3),
                   (SELECT count(*) FROM derive_queue WHERE org_id = $1)",
                &[&self.org, &model_id.unwrap_or(-1), &seen],
            )?;
            let n = |i: usize| r.as_ref().map_or(0, |r| r.get::<_, i64>(i)) as u64;
            let (documents, embeddable) = self.sizes.documents(c, self.org)?;
            Ok(Coverage {
                documents,
                embeddable,
                embedded: embeddable.saturating_sub(n(0)),
                words_pending: n(1),
                underived_sessions: n(2),
            })
        })
    }
}
