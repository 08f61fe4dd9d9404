//! The derived rows: traces, spans, links, rollups. Written whole, one session at a time.

use serde_json::Value;
use weft_core::block::ContentBlock;
use weft_core::derive::Projection;
use weft_core::hash::sha256_hex;
use weft_core::span::{Link, Span, Trace};
use weft_core::time::Micros;

use crate::Result;
use crate::documents::Document;
use crate::sessions::SessionRow;

/// A stored trace.
#[derive(Clone, Debug, Default)]
pub struct TraceRow {
    /// The trace; `spans` is empty.
    pub trace: Trace,
    /// Session it belongs to.
    pub session_id: String,
    /// `post-compaction`, `shadow-opener` or "".
    pub synthetic: String,
    /// Number of its spans.
    pub span_count: i64,
}

/// A payload column: JSON text as it was stored.
pub type PayloadRow = Option<String>;

/// A stored span.
#[derive(Clone, Debug, Default)]
pub struct SpanRow {
    /// Trace it belongs to.
    pub trace_id: String,
    /// Id in the trace.
    pub span_id: String,
    /// Parent span.
    pub parent_span_id: String,
    /// Session it belongs to.
    pub session_id: String,
    /// `agent`, `llm`, `tool`, `event`.
    pub kind: String,
    /// What is shown.
    pub name: String,
    /// `ok` or `error`.
    pub status: String,
    /// Kind of the call.
    pub call_kind: String,
    /// Subagent's thread.
    pub thread_id: String,
    /// Model.
    pub model: String,
    /// Why it stopped.
    pub stop_reason: String,
    /// Start.
    pub started_at: Micros,
    /// Duration, nanoseconds.
    pub duration_ns: i64,
    /// Position.
    pub seq: i64,
    /// JSON array of blocks.
    pub input: PayloadRow,
    /// JSON array of blocks.
    pub output: PayloadRow,
    /// JSON object.
    pub usage: PayloadRow,
    /// Raw turn behind it.
    pub raw_turn_id: Option<i64>,
    /// JSON object.
    pub verdict: PayloadRow,
}

/// A stored link.
pub type LinkRow = Link;

/// Traces, spans and links.
pub trait Spans {
    /// Replaces everything derived from a session by `p`, in one transaction. What did not change
    /// is not written. `derived_rows` is the newest raw turn that went in; a projection of fewer
    /// turns than the stored one is dropped.
    fn write_projection(
        &self,
        session: &SessionRow,
        p: Projection,
        docs: Vec<Document>,
        derived_rows: u64,
    ) -> Result<()>;

    /// Traces of a session by start, then id.
    fn traces(&self, session_id: &str) -> Result<Vec<TraceRow>>;

    /// One trace.
    fn trace(&self, trace_id: &str) -> Result<Option<TraceRow>>;

    /// Spans of a trace by position.
    fn spans(&self, trace_id: &str) -> Result<Vec<SpanRow>>;

    /// Spans of a session by trace, then position.
    fn session_spans(&self, session_id: &str) -> Result<Vec<SpanRow>>;

    /// One span.
    fn span(&self, trace_id: &str, span_id: &str) -> Result<Option<SpanRow>>;

    /// Spans of this id, in any trace; at most ten.
    fn spans_by_id(&self, span_id: &str) -> Result<Vec<SpanRow>>;

    /// Links of a session, by primary key.
    fn session_links(&self, session_id: &str) -> Result<Vec<LinkRow>>;

    /// Links that touch a trace on either side.
    fn trace_links(&self, trace_id: &str) -> Result<Vec<LinkRow>>;
}

pub(crate) fn blocks_json(blocks: &[ContentBlock]) -> Option<String> {
    if blocks.is_empty() {
        return None;
    }
    serde_json::to_string(blocks).ok()
}

/// Hash over length-prefixed fields, so that no two field lists collide.
pub(crate) fn fields_hash(fields: &[&[u8]]) -> String {
    let mut bytes = Vec::new();
    for f in fields {
        bytes.extend_from_slice(&(f.len() as u64).to_be_bytes());
        bytes.extend_from_slice(f);
    }
    sha256_hex(&bytes)
}

/// Prompt of the first real turn of a session, else of its first turn.
pub(crate) fn preview(traces: &[Trace]) -> String {
    traces
        .iter()
        .min_by_key(|t| {
            let real = t.synthetic.is_empty() && !t.user_prompt.trim().is_empty();
            (!real, t.started_at)
        })
        .map(|t| t.user_prompt.clone())
        .unwrap_or_default()
}

/// Hash of everything that a trace's row says.
pub(crate) fn trace_hash(session_id: &str, t: &Trace) -> String {
    let numbers = format!(
        "{} {} {} {} {} {} {} {} {} {} {}",
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
        t.spans.len(),
    );
    fields_hash(&[
        session_id.as_bytes(),
        t.user_prompt.as_bytes(),
        t.response_preview.as_bytes(),
        t.synthetic.as_bytes(),
        t.source.as_bytes(),
        numbers.as_bytes(),
    ])
}

/// Hash of everything that a span's row says.
pub(crate) fn span_hash(session_id: &str, s: &Span) -> String {
    let (input, output) = (blocks_json(&s.input), blocks_json(&s.output));
    let usage = s.usage.as_ref().and_then(|u| serde_json::to_string(u).ok());
    let verdict = s.verdict.as_ref().map(Value::to_string);
    let text = |o: &Option<String>| o.clone().unwrap_or_default().into_bytes();
    fields_hash(&[
        session_id.as_bytes(),
        s.parent_span_id.as_bytes(),
        s.kind.as_bytes(),
        s.name.as_bytes(),
        s.status.as_bytes(),
        s.call_kind.as_bytes(),
        s.thread_id.as_bytes(),
        s.model.as_bytes(),
        s.stop_reason.as_bytes(),
        format!(
            "{} {} {} {}",
            s.started_at, s.duration_ns, s.seq, s.raw_turn_id
        )
        .as_bytes(),
        &text(&input),
        &text(&output),
        &text(&usage),
        &text(&verdict),
        s.node_hash.as_bytes(),
        s.fidelity.as_bytes(),
    ])
}
