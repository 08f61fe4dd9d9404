//! What derivation produces: traces, spans, links and a session's sums.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::block::{ContentBlock, Usage};
use crate::time::Micros;

/// Name of the shape of the projection, as the read API reports it.
pub const SCHEMA: &str = "2026-06-15";

/// One user-visible turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// `trc_` and the identity of the opening call.
    pub trace_id: String,
    /// What the user asked, at most 280 bytes.
    pub user_prompt: String,
    /// What was last answered, at most 280 bytes.
    pub response_preview: String,
    /// "", `post-compaction` or `shadow-opener`.
    pub synthetic: &'static str,
    /// Source of the opening row.
    pub source: String,
    /// Start of the opening call.
    pub started_at: Micros,
    /// End of the last span.
    pub ended_at: Micros,
    /// Input and output tokens of all llm spans.
    pub input_tokens: i64,
    /// Output tokens of all llm spans.
    pub output_tokens: i64,
    /// Input tokens of the conversation itself.
    pub main_input_tokens: i64,
    /// Output tokens of the conversation itself.
    pub main_output_tokens: i64,
    /// Input tokens that the provider had cached.
    pub cache_read_tokens: i64,
    /// Input tokens that the provider wrote to its cache.
    pub cache_creation_tokens: i64,
    /// Cost, US dollars.
    pub cost_usd: f64,
    /// Number of tool spans.
    pub tool_calls: i64,
    /// The spans; the first is the root agent span.
    pub spans: Vec<Span>,
}

/// One unit of work in a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// Deterministic id, unique in its trace.
    pub span_id: String,
    /// The span under which this one hangs; "" for the root.
    pub parent_span_id: String,
    /// `agent`, `llm`, `tool` or `event`.
    pub kind: &'static str,
    /// What is shown.
    pub name: String,
    /// `ok`, or `error` on tool spans.
    pub status: &'static str,
    /// Kind of the call, on llm and event spans.
    pub call_kind: String,
    /// The subagent's thread; "" = main thread.
    pub thread_id: String,
    /// Model that answered.
    pub model: String,
    /// Why it stopped.
    pub stop_reason: String,
    /// Start.
    pub started_at: Micros,
    /// Duration, nanoseconds.
    pub duration_ns: i64,
    /// Position in the trace.
    pub seq: i64,
    /// What went in; for an llm span only what is new.
    pub input: Vec<ContentBlock>,
    /// What came out.
    pub output: Vec<ContentBlock>,
    /// Tokens, on llm spans.
    pub usage: Option<Usage>,
    /// The raw turn behind an llm span; 0 = none.
    pub raw_turn_id: i64,
    /// Hash of the message behind an llm or event span.
    pub node_hash: String,
    /// A permission check's verdict.
    pub verdict: Option<Value>,
    /// What is left of the provider's bytes.
    pub fidelity: &'static str,
}

/// A directed relation between two spans.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Link {
    /// `emits`, `feeds`, `rejoin`, `verdict`, `compaction-seam`.
    pub kind: String,
    /// Trace of the origin.
    pub from_trace_id: String,
    /// Span of the origin.
    pub from_span_id: String,
    /// `input`, `output` or ''.
    pub from_io: String,
    /// Trace of the target.
    pub to_trace_id: String,
    /// Span of the target.
    pub to_span_id: String,
    /// `input`, `output`, `verdict` or ''.
    pub to_io: String,
}

/// Sums and facts about one session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rollup {
    /// `completed`, `failed` or `unknown`.
    pub status: String,
    /// Title that the harness asked a model for.
    pub title: String,
    /// The model that answered most often in the main thread.
    pub model: String,
    /// Number of traces, synthetic ones included.
    pub turn_count: i64,
    /// Input tokens.
    pub input_tokens: i64,
    /// Output tokens.
    pub output_tokens: i64,
    /// Cost, US dollars.
    pub cost_usd: f64,
    /// Whether a tool committed or pushed.
    pub has_git_activity: bool,
    /// Tool spans with an output.
    pub tool_result_count: i64,
    /// Tool spans that failed.
    pub tool_error_count: i64,
    /// Tokens by model.
    pub model_usage: Vec<ModelUsage>,
    /// The task list as the session left it.
    pub tasks: Vec<Task>,
    /// Spans by call kind.
    pub kind_counts: BTreeMap<String, i64>,
}

/// Tokens of one model in a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// Raw model name.
    pub model: String,
    /// Number of calls.
    pub calls: i64,
    /// Input tokens.
    pub input_tokens: i64,
    /// Output tokens.
    pub output_tokens: i64,
    /// Cost, US dollars.
    pub cost_usd: f64,
}

/// One entry of a session's task list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Number that the tool gave it; may be "".
    pub id: String,
    /// What is to be done.
    pub subject: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// `pending`, `in_progress`, `completed`, …
    pub status: String,
    /// How often it was changed.
    pub updates: i64,
}
