//! The derived rows: traces, spans, links, rollups. Written whole, one session at a time.

use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use serde_json::Value;
use weft_core::derive::Projection;
use weft_core::span::{Link, Span, Trace};

use super::SqliteStore;
use super::documents;
use super::edits;
use crate::pack::{pack, unpack};
use crate::projection::{blocks_json, preview, span_hash, trace_hash};
use crate::{Document, LinkRow, PayloadRow, Result, SessionRow, SpanRow, Spans, TraceRow};

fn write_trace(c: &Connection, session_id: &str, t: &Trace) -> Result<()> {
    let hash = trace_hash(session_id, t);
    c.prepare_cached(
        "INSERT INTO traces VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18)
         ON CONFLICT (trace_id) DO UPDATE SET session_id = excluded.session_id,
           user_prompt = excluded.user_prompt, response_preview = excluded.response_preview,
           synthetic = excluded.synthetic, source = excluded.source,
           started_at = excluded.started_at, ended_at = excluded.ended_at,
           input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens,
           main_input_tokens = excluded.main_input_tokens,
           main_output_tokens = excluded.main_output_tokens,
           cache_read_tokens = excluded.cache_read_tokens,
           cache_creation_tokens = excluded.cache_creation_tokens,
           cost_usd = excluded.cost_usd, tool_calls = excluded.tool_calls,
           span_count = excluded.span_count, content_hash = excluded.content_hash
         WHERE content_hash <> excluded.content_hash",
    )?
    .execute(params![
        t.trace_id,
        session_id,
        t.user_prompt,
        t.response_preview,
        t.synthetic,
        t.source,
        t.started_at,
        t.ended_at,
        t.input_tokens,
        t.output_tokens,
        t.main_input_tokens,
        t.main_output_tokens,
        t.cache_read_tokens,
        t.cache_creation_tokens,
        t.cost_usd,
        t.tool_calls,
        t.spans.len() as i64,
        hash,
    ])?;
    Ok(())
}

fn write_span(c: &Connection, session_id: &str, trace_id: &str, s: &Span) -> Result<()> {
    let (input, output) = (blocks_json(&s.input), blocks_json(&s.output));
    let usage = s.usage.as_ref().and_then(|u| serde_json::to_string(u).ok());
    let verdict = s.verdict.as_ref().map(Value::to_string);
    let hash = span_hash(session_id, s);
    let same: Option<bool> = c
        .prepare_cached("SELECT content_hash = ?3 FROM spans WHERE trace_id = ?1 AND span_id = ?2")?
        .query_row(params![trace_id, s.span_id, hash], |r| r.get(0))
        .optional()?;
    if same == Some(true) {
        return Ok(());
    }
    c.prepare_cached(
        "INSERT OR REPLACE INTO spans VALUES
         (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22)",
    )?
    .execute(params![
        trace_id,
        s.span_id,
        s.parent_span_id,
        session_id,
        s.kind,
        s.name,
        s.status,
        s.call_kind,
        s.thread_id,
        s.model,
        s.stop_reason,
        s.started_at,
        s.duration_ns,
        s.seq,
        input.map(|j| pack(j.as_bytes())),
        output.map(|j| pack(j.as_bytes())),
        usage,
        (s.raw_turn_id > 0).then_some(s.raw_turn_id),
        s.node_hash,
        verdict,
        s.fidelity,
        hash,
    ])?;
    Ok(())
}

/// Deletes what of a session is not in the temporary table of kept keys.
fn prune(c: &Connection, session_id: &str, p: &Projection) -> Result<()> {
    c.execute_batch(
        "CREATE TEMP TABLE IF NOT EXISTS kept (trace_id TEXT, span_id TEXT,
           PRIMARY KEY (trace_id, span_id)) WITHOUT ROWID;
         DELETE FROM kept;",
    )?;
    {
        let mut keep = c.prepare_cached("INSERT OR IGNORE INTO kept VALUES (?1, ?2)")?;
        for t in &p.traces {
            keep.execute(params![t.trace_id, ""])?;
            for s in &t.spans {
                keep.execute(params![t.trace_id, s.span_id])?;
            }
        }
    }
    c.execute(
        "DELETE FROM spans WHERE session_id = ?1 AND NOT EXISTS
           (SELECT 1 FROM kept k WHERE k.trace_id = spans.trace_id AND k.span_id = spans.span_id)",
        [session_id],
    )?;
    c.execute(
        "DELETE FROM traces WHERE session_id = ?1 AND NOT EXISTS
           (SELECT 1 FROM kept k WHERE k.trace_id = traces.trace_id AND k.span_id = '')",
        [session_id],
    )?;
    Ok(())
}

fn read_trace(r: &Row<'_>) -> rusqlite::Result<TraceRow> {
    Ok(TraceRow {
        session_id: r.get(1)?,
        synthetic: r.get(4)?,
        span_count: r.get(16)?,
        trace: Trace {
            trace_id: r.get(0)?,
            user_prompt: r.get(2)?,
            response_preview: r.get(3)?,
            source: r.get(5)?,
            started_at: r.get(6)?,
            ended_at: r.get(7)?,
            input_tokens: r.get(8)?,
            output_tokens: r.get(9)?,
            main_input_tokens: r.get(10)?,
            main_output_tokens: r.get(11)?,
            cache_read_tokens: r.get(12)?,
            cache_creation_tokens: r.get(13)?,
            cost_usd: r.get(14)?,
            tool_calls: r.get(15)?,
            ..Trace::default()
        },
    })
}

const SPAN_COLUMNS: &str = "trace_id, span_id, parent_span_id, session_id, kind, name, status,
  call_kind, thread_id, model, stop_reason, started_at, duration_ns, seq, input, output, usage,
  raw_turn_id, verdict";

fn read_span(r: &Row<'_>) -> Result<SpanRow> {
    let payload = |i: usize| -> Result<PayloadRow> {
        let column: Option<Vec<u8>> = r.get(i)?;
        column
            .map(|c| Ok(String::from_utf8_lossy(&unpack(&c)?).into_owned()))
            .transpose()
    };
    Ok(SpanRow {
        trace_id: r.get(0)?,
        span_id: r.get(1)?,
        parent_span_id: r.get(2)?,
        session_id: r.get(3)?,
        kind: r.get(4)?,
        name: r.get(5)?,
        status: r.get(6)?,
        call_kind: r.get(7)?,
        thread_id: r.get(8)?,
        model: r.get(9)?,
        stop_reason: r.get(10)?,
        started_at: r.get(11)?,
        duration_ns: r.get(12)?,
        seq: r.get(13)?,
        input: payload(14)?,
        output: payload(15)?,
        usage: r.get(16)?,
        raw_turn_id: r.get(17)?,
        verdict: r.get(18)?,
    })
}

impl Spans for SqliteStore {
    fn write_projection(
        &self,
        session: &SessionRow,
        p: Projection,
        docs: Vec<Document>,
        derived_rows: u64,
    ) -> Result<()> {
        let session_id = session.id.clone();
        self.index.run(move |c| {
            // Another process may have read more rows and been faster.
            let known: Option<i64> = c
                .prepare_cached("SELECT derived_rows FROM rollups WHERE session_id = ?1")?
                .query_row([&session_id], |r| r.get(0))
                .optional()?;
            if known.is_some_and(|k| k > derived_rows as i64) {
                return Ok(());
            }
            c.execute(
                "DELETE FROM file_edits WHERE session_id = ?1",
                [&session_id],
            )?;
            for t in &p.traces {
                write_trace(c, &session_id, t)?;
                for s in &t.spans {
                    write_span(c, &session_id, &t.trace_id, s)?;
                    if s.kind == "tool" && weft_core::edits::writes(&s.name) {
                        let at = s.started_at;
                        edits::write(c, &session_id, &t.trace_id, &s.span_id, at, &s.input)?;
                    }
                }
            }
            prune(c, &session_id, &p)?;
            c.execute("DELETE FROM links WHERE session_id = ?1", [&session_id])?;
            {
                let mut insert = c.prepare_cached(
                    "INSERT OR REPLACE INTO links VALUES (?1,?2,?3,?4,?5,?6,?7,?8)",
                )?;
                for l in &p.links {
                    insert.execute(params![
                        l.from_trace_id,
                        l.from_span_id,
                        l.to_trace_id,
                        l.to_span_id,
                        l.from_io,
                        l.to_io,
                        l.kind,
                        session_id
                    ])?;
                }
            }
            documents::replace(c, &session_id, &docs)?;
            let preview = preview(&p.traces);
            let r = &p.rollup;
            c.prepare_cached("INSERT OR REPLACE INTO rollups VALUES (?1,?2,?3,?4,?5,?6,?7,?8)")?
                .execute(params![
                    session_id,
                    r.turn_count,
                    r.cost_usd,
                    r.input_tokens + r.output_tokens,
                    r.status,
                    preview,
                    serde_json::to_string(r).unwrap_or_default(),
                    derived_rows as i64,
                ])?;
            Ok(())
        })
    }

    fn traces(&self, session_id: &str) -> Result<Vec<TraceRow>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT * FROM traces WHERE session_id = ?1 ORDER BY started_at, trace_id",
            )?;
            let rows = q.query_map([session_id], read_trace)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    fn trace(&self, trace_id: &str) -> Result<Option<TraceRow>> {
        self.readers.with(|c| {
            Ok(
                c.prepare_cached("SELECT * FROM traces WHERE trace_id = ?1")?
                    .query_row([trace_id], read_trace)
                    .optional()?,
            )
        })
    }

    fn spans(&self, trace_id: &str) -> Result<Vec<SpanRow>> {
        self.spans_where("trace_id = ?1 ORDER BY seq", [trace_id])
    }

    fn session_spans(&self, session_id: &str) -> Result<Vec<SpanRow>> {
        self.spans_where("session_id = ?1 ORDER BY trace_id, seq", [session_id])
    }

    fn span(&self, trace_id: &str, span_id: &str) -> Result<Option<SpanRow>> {
        let mut found = self.spans_where("trace_id = ?1 AND span_id = ?2", [trace_id, span_id])?;
        Ok(found.pop())
    }

    fn spans_by_id(&self, span_id: &str) -> Result<Vec<SpanRow>> {
        self.spans_where("span_id = ?1 LIMIT 10", [span_id])
    }

    fn session_links(&self, session_id: &str) -> Result<Vec<LinkRow>> {
        self.links_where("session_id = ?1", session_id)
    }

    fn trace_links(&self, trace_id: &str) -> Result<Vec<LinkRow>> {
        self.links_where("from_trace_id = ?1 OR to_trace_id = ?1", trace_id)
    }
}

impl SqliteStore {
    /// Removes everything derived from a session.
    pub(crate) fn remove_projection(&self, session_id: &str) -> Result<()> {
        let id = session_id.to_owned();
        self.index.run(move |c| {
            documents::replace(c, &id, &[])?;
            for table in ["links", "file_edits", "spans", "traces", "rollups"] {
                c.execute(&format!("DELETE FROM {table} WHERE session_id = ?1"), [&id])?;
            }
            Ok(())
        })
    }

    fn spans_where(&self, clause: &str, values: impl Params) -> Result<Vec<SpanRow>> {
        self.readers.with(|c| {
            let mut q =
                c.prepare_cached(&format!("SELECT {SPAN_COLUMNS} FROM spans WHERE {clause}"))?;
            let mut rows = q.query(values)?;
            let mut out = Vec::new();
            while let Some(r) = rows.next()? {
                out.push(read_span(r)?);
            }
            Ok(out)
        })
    }

    fn links_where(&self, clause: &str, value: &str) -> Result<Vec<LinkRow>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(&format!(
                "SELECT kind, from_trace_id, from_span_id, from_io, to_trace_id, to_span_id, to_io
                 FROM links WHERE {clause}
                 ORDER BY from_trace_id, from_span_id, to_trace_id, to_span_id, from_io, to_io"
            ))?;
            let rows = q.query_map([value], |r| {
                Ok(Link {
                    kind: r.get(0)?,
                    from_trace_id: r.get(1)?,
                    from_span_id: r.get(2)?,
                    from_io: r.get(3)?,
                    to_trace_id: r.get(4)?,
                    to_span_id: r.get(5)?,
                    to_io: r.get(6)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }
}
