//! The derived rows: traces, spans, links, rollups. Written whole, one session at a time.

use std::collections::{HashMap, HashSet};

use postgres::Row;
use serde_json::{Value, json};
use uuid::Uuid;
use weft_core::block::ContentBlock;
use weft_core::derive::Projection;
use weft_core::span::{Link, Span, Trace};

use super::PgStore;
use super::pool::{Conn, Params, PgResult};
use super::types::{At, Json, id_text, json as column, text, uuid};
use super::{documents, edits};
use crate::projection::{preview, span_hash, trace_hash};
use crate::{Document, LinkRow, Result, SessionRow, SpanRow, Spans, StoreError, TraceRow};

/// JSON of one statement's rows, bytes, roughly at most.
const BATCH_BYTES: usize = 4 << 20;
/// Rows of one statement, at most.
const BATCH_ROWS: usize = 500;

/// What is worse counts for a trace.
fn worst_fidelity(t: &Trace) -> &'static str {
    let rank = |f: &str| match f {
        "degraded" => 0,
        "reduced" => 1,
        "raw" => 2,
        _ => 3,
    };
    t.spans
        .iter()
        .map(|s| s.fidelity)
        .min_by_key(|f| rank(f))
        .unwrap_or_default()
}

/// Runs a statement over rows given as a JSON array, some at a time.
pub(super) fn in_batches(
    c: &mut Conn,
    sql: &str,
    first: Params<'_>,
    rows: impl Iterator<Item = Value>,
) -> PgResult<()> {
    let mut batch = String::from("[");
    let mut n = 0;
    let flush = |c: &mut Conn, batch: &mut String| -> PgResult<()> {
        batch.push(']');
        let rows = column(batch).0;
        let mut params: Vec<&(dyn postgres::types::ToSql + Sync)> = first.to_vec();
        params.push(&rows);
        c.run(sql, &params)?;
        batch.clear();
        batch.push('[');
        Ok(())
    };
    for row in rows {
        if n > 0 {
            batch.push(',');
        }
        batch.push_str(&row.to_string());
        n += 1;
        if n >= BATCH_ROWS || batch.len() >= BATCH_BYTES {
            flush(c, &mut batch)?;
            n = 0;
        }
    }
    if n > 0 {
        flush(c, &mut batch)?;
    }
    Ok(())
}

/// A time as the number of microseconds; `jsonb_to_recordset` gives it on as a bigint.
const MICROS: &str = "timestamptz 'epoch' + x.started_at * interval '1 microsecond'";

fn write_traces(
    c: &mut Conn,
    org: Uuid,
    session: Uuid,
    traces: &[(&Trace, String)],
) -> PgResult<()> {
    let sql = format!(
        "INSERT INTO span_turns_20260615 (org_id, session_id, trace_id, user_prompt, response_preview,
           synthetic, source, started_at, ended_at, duration_ns, total_input_tokens, total_output_tokens,
           main_input_tokens, main_output_tokens, cache_read_tokens, cache_creation_tokens,
           total_cost_usd, cost_exact, tool_calls, span_count, fidelity, content_hash, derive_seq)
         SELECT $1, $2, x.trace_id, x.user_prompt, x.response_preview, x.synthetic, x.source, {MICROS},
           timestamptz 'epoch' + x.ended_at * interval '1 microsecond', (x.ended_at - x.started_at) * 1000,
           x.input, x.output, x.main_input, x.main_output, x.cache_read, x.cache_creation,
           x.cost::numeric(12,4), x.cost, x.tool_calls, x.span_count, x.fidelity, x.content_hash,
           pg_current_xact_id()::text::bigint
         FROM jsonb_to_recordset($3) AS x(trace_id text, user_prompt text, response_preview text,
           synthetic text, source text, started_at bigint, ended_at bigint, input bigint, output bigint,
           main_input bigint, main_output bigint, cache_read bigint, cache_creation bigint,
           cost double precision, tool_calls bigint, span_count bigint, fidelity text, content_hash text)
         ON CONFLICT (org_id, trace_id) DO UPDATE SET
           session_id = coalesce(span_turns_20260615.session_id, excluded.session_id),
           user_prompt = excluded.user_prompt, response_preview = excluded.response_preview,
           synthetic = excluded.synthetic, source = excluded.source, started_at = excluded.started_at,
           ended_at = excluded.ended_at, duration_ns = excluded.duration_ns,
           total_input_tokens = excluded.total_input_tokens,
           total_output_tokens = excluded.total_output_tokens,
           main_input_tokens = excluded.main_input_tokens,
           main_output_tokens = excluded.main_output_tokens,
           cache_read_tokens = excluded.cache_read_tokens,
           cache_creation_tokens = excluded.cache_creation_tokens,
           total_cost_usd = excluded.total_cost_usd, cost_exact = excluded.cost_exact,
           tool_calls = excluded.tool_calls, span_count = excluded.span_count,
           fidelity = excluded.fidelity, content_hash = excluded.content_hash,
           derive_seq = excluded.derive_seq"
    );
    let rows = traces.iter().map(|(t, hash)| {
        json!({
            "trace_id": t.trace_id, "user_prompt": t.user_prompt,
            "response_preview": t.response_preview, "synthetic": t.synthetic, "source": t.source,
            "started_at": t.started_at, "ended_at": t.ended_at, "input": t.input_tokens,
            "output": t.output_tokens, "main_input": t.main_input_tokens,
            "main_output": t.main_output_tokens, "cache_read": t.cache_read_tokens,
            "cache_creation": t.cache_creation_tokens, "cost": t.cost_usd,
            "tool_calls": t.tool_calls, "span_count": t.spans.len(),
            "fidelity": worst_fidelity(t), "content_hash": hash,
        })
    });
    in_batches(c, &sql, &[&org, &session], rows)
}

fn write_spans(
    c: &mut Conn,
    org: Uuid,
    session: Uuid,
    spans: &[(&str, &Span, String)],
) -> PgResult<()> {
    let sql = format!(
        "INSERT INTO spans_20260615 (org_id, session_id, trace_id, span_id, parent_span_id, kind, name,
           status, call_kind, thread_id, model, stop_reason, started_at, duration_ns, seq, input,
           output, usage, raw_turn_id, node_hash, verdict, fidelity, content_hash, derive_seq)
         SELECT $1, $2, x.trace_id, x.span_id, x.parent_span_id, x.kind, x.name, x.status, x.call_kind,
           x.thread_id, x.model, x.stop_reason, {MICROS}, x.duration_ns, x.seq, x.input, x.output,
           x.usage, x.raw_turn_id, x.node_hash, x.verdict, x.fidelity, x.content_hash,
           pg_current_xact_id()::text::bigint
         FROM jsonb_to_recordset($3) AS x(trace_id text, span_id text, parent_span_id text, kind text,
           name text, status text, call_kind text, thread_id text, model text, stop_reason text,
           started_at bigint, duration_ns bigint, seq bigint, input jsonb, output jsonb, usage jsonb,
           raw_turn_id bigint, node_hash text, verdict jsonb, fidelity text, content_hash text)
         ON CONFLICT (org_id, trace_id, span_id) DO UPDATE SET
           session_id = coalesce(spans_20260615.session_id, excluded.session_id),
           parent_span_id = excluded.parent_span_id, kind = excluded.kind, name = excluded.name,
           status = excluded.status, call_kind = excluded.call_kind, thread_id = excluded.thread_id,
           model = excluded.model, stop_reason = excluded.stop_reason,
           started_at = excluded.started_at, duration_ns = excluded.duration_ns, seq = excluded.seq,
           input = excluded.input, output = excluded.output, usage = excluded.usage,
           raw_turn_id = excluded.raw_turn_id, node_hash = excluded.node_hash,
           verdict = excluded.verdict, fidelity = excluded.fidelity,
           content_hash = excluded.content_hash, derive_seq = excluded.derive_seq"
    );
    let blocks = |b: &[ContentBlock]| match b {
        [] => Value::Null,
        b => serde_json::to_value(b).unwrap_or_default(),
    };
    let rows = spans.iter().map(|(trace_id, s, hash)| {
        json!({
            "trace_id": trace_id, "span_id": s.span_id, "parent_span_id": s.parent_span_id,
            "kind": s.kind, "name": s.name, "status": s.status, "call_kind": s.call_kind,
            "thread_id": s.thread_id, "model": s.model, "stop_reason": s.stop_reason,
            "started_at": s.started_at, "duration_ns": s.duration_ns, "seq": s.seq,
            "input": blocks(&s.input), "output": blocks(&s.output),
            "usage": s.usage.as_ref().and_then(|u| serde_json::to_value(u).ok()),
            "raw_turn_id": (s.raw_turn_id > 0).then_some(s.raw_turn_id),
            "node_hash": s.node_hash, "verdict": s.verdict, "fidelity": s.fidelity,
            "content_hash": hash,
        })
    });
    in_batches(c, &sql, &[&org, &session], rows)
}

fn write_links(c: &mut Conn, org: Uuid, session: Uuid, links: &[Link]) -> PgResult<()> {
    c.run(
        "DELETE FROM span_links_20260615 WHERE org_id = $1 AND session_id = $2",
        &[&org, &session],
    )?;
    let rows = links
        .iter()
        .map(|l| serde_json::to_value(l).unwrap_or_default());
    in_batches(
        c,
        "INSERT INTO span_links_20260615 (org_id, session_id, kind, from_trace_id, from_span_id, from_io,
           to_trace_id, to_span_id, to_io)
         SELECT DISTINCT ON (x.from_trace_id, x.from_span_id, x.to_trace_id, x.to_span_id, x.from_io, x.to_io)
           $1::uuid, $2::uuid, x.kind, x.from_trace_id, x.from_span_id, x.from_io, x.to_trace_id, x.to_span_id, x.to_io
         FROM jsonb_to_recordset($3) AS x(kind text, from_trace_id text, from_span_id text, from_io text,
           to_trace_id text, to_span_id text, to_io text)
         ON CONFLICT (org_id, from_trace_id, from_span_id, to_trace_id, to_span_id, from_io, to_io)
           DO UPDATE SET kind = excluded.kind, session_id = excluded.session_id",
        &[&org, &session],
        rows,
    )
}

fn write_rollup(
    c: &mut Conn,
    org: Uuid,
    session: Uuid,
    p: &Projection,
    derived_rows: u64,
) -> PgResult<()> {
    let r = &p.rollup;
    let rollup = serde_json::to_string(r).unwrap_or_default();
    let preview = preview(&p.traces);
    c.run(
        "UPDATE sessions SET rollup = x.rollup, preview = $4, derived_rows = $5,
           total_input_tokens = (x.rollup->>'input_tokens')::bigint,
           total_output_tokens = (x.rollup->>'output_tokens')::bigint,
           total_cost_usd = (x.rollup->>'cost_usd')::numeric(12,4),
           turn_count = (x.rollup->>'turn_count')::int, derived_status = x.rollup->>'status',
           has_git_activity = (x.rollup->>'has_git_activity')::boolean,
           tool_result_count = (x.rollup->>'tool_result_count')::int,
           tool_error_count = (x.rollup->>'tool_error_count')::int,
           derived_title = nullif(x.rollup->>'title', ''), derived_model = x.rollup->>'model',
           model_usage = x.rollup->'model_usage', tasks = x.rollup->'tasks',
           kind_counts = x.rollup->'kind_counts'
         FROM (SELECT $3::jsonb AS rollup) x WHERE org_id = $1 AND id = $2",
        &[
            &org,
            &session,
            &column(&rollup).0,
            &text(&preview),
            &(derived_rows as i64),
        ],
    )?;
    Ok(())
}

const TRACE_COLUMNS: &str = "trace_id, session_id, user_prompt, response_preview, synthetic, source,
  started_at, ended_at, total_input_tokens, total_output_tokens, main_input_tokens, main_output_tokens,
  cache_read_tokens, cache_creation_tokens, cost_exact, tool_calls, span_count";

fn read_trace(r: &Row) -> TraceRow {
    TraceRow {
        session_id: id_text(r.get(1)),
        synthetic: r.get(4),
        span_count: r.get(16),
        trace: Trace {
            trace_id: r.get(0),
            user_prompt: r.get(2),
            response_preview: r.get(3),
            source: r.get(5),
            started_at: r.get::<_, At>(6).0,
            ended_at: r.get::<_, Option<At>>(7).map_or(0, |t| t.0),
            input_tokens: r.get(8),
            output_tokens: r.get(9),
            main_input_tokens: r.get(10),
            main_output_tokens: r.get(11),
            cache_read_tokens: r.get(12),
            cache_creation_tokens: r.get(13),
            cost_usd: r.get(14),
            tool_calls: r.get(15),
            ..Trace::default()
        },
    }
}

const SPAN_COLUMNS: &str = "trace_id, span_id, parent_span_id, session_id, kind, name, status,
  call_kind, thread_id, model, stop_reason, started_at, duration_ns, seq, input, output, usage,
  raw_turn_id, verdict";

fn read_span(r: &Row) -> SpanRow {
    let payload = |i: usize| {
        r.get::<_, Option<Json<'static>>>(i)
            .map(|j| j.0.into_owned())
    };
    SpanRow {
        trace_id: r.get(0),
        span_id: r.get(1),
        parent_span_id: r.get(2),
        session_id: id_text(r.get(3)),
        kind: r.get(4),
        name: r.get(5),
        status: r.get(6),
        call_kind: r.get(7),
        thread_id: r.get(8),
        model: r.get(9),
        stop_reason: r.get(10),
        started_at: r.get::<_, At>(11).0,
        duration_ns: r.get(12),
        seq: r.get(13),
        input: payload(14),
        output: payload(15),
        usage: payload(16),
        raw_turn_id: r.get(17),
        verdict: payload(18),
    }
}

impl PgStore {
    fn spans_where(
        &self,
        clause: &str,
        value: &(dyn postgres::types::ToSql + Sync),
    ) -> Result<Vec<SpanRow>> {
        self.pool.read(|c| {
            let rows = c.rows(
                &format!(
                    "SELECT {SPAN_COLUMNS} FROM spans_20260615 WHERE org_id = $1 AND {clause}"
                ),
                &[&self.org, value],
            )?;
            Ok(rows.iter().map(read_span).collect())
        })
    }

    fn links_where(
        &self,
        clause: &str,
        value: &(dyn postgres::types::ToSql + Sync),
    ) -> Result<Vec<LinkRow>> {
        self.pool.read(|c| {
            let rows = c.rows(
                &format!(
                    "SELECT kind, from_trace_id, from_span_id, from_io, to_trace_id, to_span_id, to_io
                     FROM span_links_20260615 WHERE org_id = $1 AND {clause}
                     ORDER BY from_trace_id COLLATE \"C\", from_span_id COLLATE \"C\",
                       to_trace_id COLLATE \"C\", to_span_id COLLATE \"C\", from_io COLLATE \"C\", to_io COLLATE \"C\""
                ),
                &[&self.org, value],
            )?;
            Ok(rows
                .iter()
                .map(|r| Link {
                    kind: r.get(0),
                    from_trace_id: r.get(1),
                    from_span_id: r.get(2),
                    from_io: r.get(3),
                    to_trace_id: r.get(4),
                    to_span_id: r.get(5),
                    to_io: r.get(6),
                })
                .collect())
        })
    }
}

/// Hashes of a session's rows by key; a trace has the span "".
type Known = HashMap<(String, String), String>;

fn known(c: &mut Conn, org: Uuid, session: Uuid) -> PgResult<Known> {
    let rows = c.rows(
        "SELECT trace_id, '' AS span_id, content_hash FROM span_turns_20260615
           WHERE org_id = $1 AND session_id = $2
         UNION ALL SELECT trace_id, span_id, content_hash FROM spans_20260615
           WHERE org_id = $1 AND session_id = $2",
        &[&org, &session],
    )?;
    Ok(rows
        .iter()
        .map(|r| ((r.get(0), r.get(1)), r.get(2)))
        .collect())
}

/// Deletes the rows of a session that are not in the new projection.
fn prune(c: &mut Conn, org: Uuid, known: &Known, kept: &HashSet<(&str, &str)>) -> PgResult<()> {
    let (mut traces, mut span_traces, mut spans) = (Vec::new(), Vec::new(), Vec::new());
    for (trace, span) in known.keys() {
        if kept.contains(&(trace.as_str(), span.as_str())) {
            continue;
        }
        if span.is_empty() {
            traces.push(trace.as_str());
        } else {
            span_traces.push(trace.as_str());
            spans.push(span.as_str());
        }
    }
    if !spans.is_empty() {
        c.run(
            "DELETE FROM spans_20260615 s USING unnest($2::text[], $3::text[]) AS x(trace_id, span_id)
             WHERE s.org_id = $1 AND s.trace_id = x.trace_id AND s.span_id = x.span_id",
            &[&org, &span_traces, &spans],
        )?;
    }
    if !traces.is_empty() {
        c.run(
            "DELETE FROM span_turns_20260615 WHERE org_id = $1 AND trace_id = ANY($2)",
            &[&org, &traces],
        )?;
    }
    Ok(())
}

impl Spans for PgStore {
    fn write_projection(
        &self,
        session: &SessionRow,
        p: Projection,
        docs: Vec<Document>,
        derived_rows: u64,
    ) -> Result<()> {
        let (org, session_id) = (self.org, &session.id);
        let Some(id) = uuid(session_id) else {
            return Err(StoreError::Other(format!("{session_id:?} is not a UUID")));
        };
        self.pool.write(|c| {
            // A large session may take longer than a statement usually may.
            c.batch("SET LOCAL statement_timeout = '10min'")?;
            // Another process may have read more rows and been faster; a deleted session stays so.
            let row = c.row(
                "SELECT derived_rows FROM sessions WHERE org_id = $1 AND id = $2 FOR UPDATE",
                &[&org, &id],
            )?;
            match row.map(|r| r.get::<_, i64>(0)) {
                Some(known) if known <= derived_rows as i64 => {}
                _ => return Ok(()),
            }
            let known = known(c, org, id)?;
            let mut kept: HashSet<(&str, &str)> = HashSet::new();
            let mut traces = Vec::new();
            let mut spans = Vec::new();
            for t in &p.traces {
                if !kept.insert((&t.trace_id, "")) {
                    continue;
                }
                let hash = trace_hash(session_id, t);
                if known.get(&(t.trace_id.clone(), String::new())) != Some(&hash) {
                    traces.push((t, hash));
                }
                for s in &t.spans {
                    if !kept.insert((&t.trace_id, &s.span_id)) {
                        continue;
                    }
                    let hash = span_hash(session_id, s);
                    if known.get(&(t.trace_id.clone(), s.span_id.clone())) != Some(&hash) {
                        spans.push((t.trace_id.as_str(), s, hash));
                    }
                }
            }
            write_traces(c, org, id, &traces)?;
            write_spans(c, org, id, &spans)?;
            documents::replace(c, org, id, &docs)?;
            prune(c, org, &known, &kept)?;
            edits::replace(c, org, id, &p)?;
            write_links(c, org, id, &p.links)?;
            write_rollup(c, org, id, &p, derived_rows)
        })
    }

    fn traces(&self, session_id: &str) -> Result<Vec<TraceRow>> {
        let Some(id) = uuid(session_id) else {
            return Ok(Vec::new());
        };
        self.pool.read(|c| {
            let rows = c.rows(
                &format!(
                    "SELECT {TRACE_COLUMNS} FROM span_turns_20260615
                     WHERE org_id = $1 AND session_id = $2 ORDER BY started_at, trace_id COLLATE \"C\""
                ),
                &[&self.org, &id],
            )?;
            Ok(rows.iter().map(read_trace).collect())
        })
    }

    fn trace(&self, trace_id: &str) -> Result<Option<TraceRow>> {
        self.pool.read(|c| {
            let row = c.row(
                &format!(
                    "SELECT {TRACE_COLUMNS} FROM span_turns_20260615 WHERE org_id = $1 AND trace_id = $2"
                ),
                &[&self.org, &text(trace_id)],
            )?;
            Ok(row.as_ref().map(read_trace))
        })
    }

    fn spans(&self, trace_id: &str) -> Result<Vec<SpanRow>> {
        self.spans_where("trace_id = $2 ORDER BY seq", &text(trace_id))
    }

    fn session_spans(&self, session_id: &str) -> Result<Vec<SpanRow>> {
        match uuid(session_id) {
            Some(id) => {
                self.spans_where("session_id = $2 ORDER BY trace_id COLLATE \"C\", seq", &id)
            }
            None => Ok(Vec::new()),
        }
    }

    fn span(&self, trace_id: &str, span_id: &str) -> Result<Option<SpanRow>> {
        self.pool.read(|c| {
            let row = c.row(
                &format!(
                    "SELECT {SPAN_COLUMNS} FROM spans_20260615
                     WHERE org_id = $1 AND trace_id = $2 AND span_id = $3"
                ),
                &[&self.org, &text(trace_id), &text(span_id)],
            )?;
            Ok(row.as_ref().map(read_span))
        })
    }

    fn spans_by_id(&self, span_id: &str) -> Result<Vec<SpanRow>> {
        self.spans_where("span_id = $2 LIMIT 10", &text(span_id))
    }

    fn session_links(&self, session_id: &str) -> Result<Vec<LinkRow>> {
        match uuid(session_id) {
            Some(id) => self.links_where("session_id = $2", &id),
            None => Ok(Vec::new()),
        }
    }

    fn trace_links(&self, trace_id: &str) -> Result<Vec<LinkRow>> {
        self.links_where("(from_trace_id = $2 OR to_trace_id = $2)", &text(trace_id))
    }
}
