//! The JSON of the read API for callers in the same process: `--json` prints what HTTP answers.

use serde_json::{Value, json};
use weft_engine::code::WorkstreamStatus;
use weft_engine::{Answer, Engine, Mode, SessionFull, now};

use crate::http::{ApiError, dto, search, traces};

/// What a read has to say instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Text of `error`.
    pub text: String,
}

impl From<ApiError> for Refusal {
    fn from(e: ApiError) -> Self {
        Self {
            status: e.0.as_u16(),
            text: e.1,
        }
    }
}

/// The state of a code index as `GET /api/weave/{repo_id}/search/index` shows it.
pub fn code_index(
    repo_id: &str,
    rows: &[WorkstreamStatus],
    skipped: &[(String, String)],
    failed: u64,
) -> Value {
    let workstreams: Vec<Value> = rows
        .iter()
        .map(|w| {
            let mut v = json!({
                "workstream": w.workstream,
                "indexed_head": w.indexed_head,
                "head": w.head,
                "behind": w.indexed_head != w.head,
                "files": w.files,
                "symbols": w.symbols,
                "vectors": w.vectors,
                "state": w.state,
                "last_error": if w.last_error.is_empty() { Value::Null } else { json!(w.last_error) },
            });
            if w.indexed_at > 0 {
                v["indexed_at"] = json!(weft_core::time::format_micros(w.indexed_at));
            }
            v
        })
        .collect();
    let skipped: Vec<Value> = skipped
        .iter()
        .map(|(p, r)| json!({"path": p, "reason": r}))
        .collect();
    json!({
        "type": "code_index",
        "repo_id": repo_id,
        "workstreams": workstreams,
        "skipped": skipped,
        "not_parsed": failed,
    })
}

/// A session as `GET /v1/sessions/{id}` shows it.
pub fn session(s: SessionFull) -> Value {
    serde_json::to_value(dto::session(s, now())).unwrap_or_default()
}

/// An answer as `GET /v1/search/spans` shows it.
pub fn answer(query: &str, a: &Answer) -> Value {
    match a.mode {
        Mode::Vector => search::search_output(query, &a.hits, true),
        _ => search::hybrid_output(query, a),
    }
}

/// `GET /v1/sessions/{id}/traces`.
///
/// # Errors
/// As the route.
pub fn session_traces(engine: &Engine, id: &str, preview: bool) -> Result<Value, Refusal> {
    let body = traces::session_traces(engine, id, preview)?;
    Ok(serde_json::to_value(body).unwrap_or_default())
}

/// `GET /v1/traces/{trace_id}`.
///
/// # Errors
/// As the route.
pub fn trace(engine: &Engine, id: &str, preview: bool) -> Result<Value, Refusal> {
    Ok(traces::trace_detail(engine, id, preview)?)
}

/// `GET /v1/traces/{trace_id}/spans/{span_id}`.
///
/// # Errors
/// As the route.
pub fn span(engine: &Engine, trace: &str, span: &str) -> Result<Value, Refusal> {
    Ok(traces::span_detail(engine, trace, span)?)
}
