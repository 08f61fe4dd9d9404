//! Bodies of the read API, converted from stored rows by hand.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use weft_core::derive::display_title;
use weft_core::project::cut_chars;
use weft_core::span::{ModelUsage, Task};
use weft_core::time::format_micros;
use weft_engine::{SessionFull, SpanRow, TraceRow};

/// Code points of a string in preview mode.
const PREVIEW_CHARS: usize = 512;
/// Code points of a session's preview.
const SESSION_PREVIEW_CHARS: usize = 120;
/// A session is live while its last sign of life is younger than this, microseconds.
const LIVE: i64 = 5 * 60 * 1_000_000;

fn empty<T>(v: &[T]) -> bool {
    v.is_empty()
}

#[derive(Debug, Serialize)]
pub(crate) struct SessionItem {
    id: String,
    harness_id: String,
    harness_session_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    cwd: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    harness_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    parent_session_id: String,
    started_at: String,
    last_seen_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    harness_metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "String::is_empty")]
    auth_subject: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    display_name: String,
    display_title: String,
    live: bool,
    rollup: RollupItem,
}

#[derive(Debug, Serialize)]
struct RollupItem {
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    title: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    preview: String,
    turn_count: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    model: String,
    #[serde(skip_serializing_if = "empty")]
    model_usage: Vec<ModelUsage>,
    kind_counts: std::collections::BTreeMap<String, i64>,
    tasks: Vec<Task>,
    usage: Value,
}

/// A session as lists and single reads show it.
pub(crate) fn session(s: SessionFull, now: i64) -> SessionItem {
    let (row, r) = (s.row, s.rollup);
    let title = display_title(
        &row.display_name,
        &r.title,
        &s.preview,
        &row.name,
        &row.key.harness_session_id,
        &row.id,
    );
    let name = if row.name.is_empty() {
        r.title.clone()
    } else {
        row.name
    };
    SessionItem {
        display_title: title,
        live: row.ended_at.is_none() && now - row.last_seen_at < LIVE,
        id: row.id,
        harness_id: row.key.harness_id,
        harness_session_id: row.key.harness_session_id,
        cwd: row.cwd,
        harness_version: row.harness_version,
        parent_session_id: row.parent_session_id,
        started_at: format_micros(row.started_at),
        last_seen_at: format_micros(row.last_seen_at),
        ended_at: row.ended_at.map(format_micros),
        harness_metadata: row.harness_metadata,
        auth_subject: row.auth_subject,
        name,
        display_name: row.display_name,
        rollup: RollupItem {
            status: r.status,
            title: r.title,
            preview: s
                .preview
                .trim()
                .chars()
                .take(SESSION_PREVIEW_CHARS)
                .collect(),
            turn_count: r.turn_count,
            model: r.model,
            model_usage: r.model_usage,
            kind_counts: r.kind_counts,
            tasks: r.tasks,
            usage: json!({"input_tokens": r.input_tokens, "output_tokens": r.output_tokens, "cost_usd": r.cost_usd}),
        },
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct TraceItem {
    trace_id: String,
    user_prompt: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    response_preview: String,
    status: &'static str,
    source: String,
    started_at: String,
    ended_at: String,
    duration_ns: i64,
    span_count: i64,
    usage: Value,
    main_usage: Value,
    #[serde(skip_serializing_if = "String::is_empty")]
    synthetic: String,
}

pub(crate) fn trace(row: TraceRow) -> TraceItem {
    let t = row.trace;
    TraceItem {
        status: "ok",
        started_at: format_micros(t.started_at),
        ended_at: format_micros(t.ended_at),
        duration_ns: (t.ended_at - t.started_at) * 1000,
        span_count: row.span_count,
        usage: json!({"input_tokens": t.input_tokens, "output_tokens": t.output_tokens,
            "cache_read_tokens": t.cache_read_tokens, "cache_creation_tokens": t.cache_creation_tokens,
            "cost_usd": t.cost_usd}),
        main_usage: json!({"input_tokens": t.main_input_tokens, "output_tokens": t.main_output_tokens}),
        synthetic: row.synthetic,
        trace_id: t.trace_id,
        user_prompt: t.user_prompt,
        response_preview: t.response_preview,
        source: t.source,
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct SpanItem {
    pub(crate) trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    parent_span_id: String,
    seq: i64,
    kind: String,
    name: String,
    status: String,
    started_at: String,
    duration_ns: i64,
    call_kind: String,
    model: String,
    stop_reason: String,
    thread_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_turn_id: Option<i64>,
    verdict: Box<RawValue>,
    input: Box<RawValue>,
    output: Box<RawValue>,
    usage: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'static str>,
}

/// Stored JSON as it is; something valid in its place where it is missing or broken.
fn raw(json: Option<String>, otherwise: &str) -> Box<RawValue> {
    json.and_then(|j| RawValue::from_string(j).ok())
        .or_else(|| RawValue::from_string(otherwise.into()).ok())
        .unwrap_or_default()
}

pub(crate) fn span(s: SpanRow, preview: bool) -> SpanItem {
    let payload = |json: Option<String>| {
        let json = if preview { json.map(cut_payload) } else { json };
        raw(json, "[]")
    };
    SpanItem {
        started_at: format_micros(s.started_at),
        input: payload(s.input),
        output: payload(s.output),
        usage: raw(s.usage, "{}"),
        verdict: raw(s.verdict, "null"),
        payload: preview.then_some("preview"),
        trace_id: s.trace_id,
        span_id: s.span_id,
        parent_span_id: s.parent_span_id,
        seq: s.seq,
        kind: s.kind,
        name: s.name,
        status: s.status,
        duration_ns: s.duration_ns,
        call_kind: s.call_kind,
        model: s.model,
        stop_reason: s.stop_reason,
        thread_id: s.thread_id,
        raw_turn_id: s.raw_turn_id,
    }
}

/// Cuts the long members of each block.
fn cut_payload(json: String) -> String {
    let Ok(Value::Array(mut blocks)) = serde_json::from_str::<Value>(&json) else {
        return json;
    };
    for block in blocks.iter_mut().filter_map(Value::as_object_mut) {
        block.remove("image_base64");
        for name in ["text", "thinking", "tool_output", "tool_input"] {
            if let Some(v) = block.get_mut(name) {
                cut_strings(v);
            }
        }
    }
    Value::Array(blocks).to_string()
}

fn cut_strings(v: &mut Value) {
    match v {
        Value::String(s) => *s = cut_chars(s, PREVIEW_CHARS),
        Value::Array(a) => a.iter_mut().for_each(cut_strings),
        Value::Object(o) => o.values_mut().for_each(cut_strings),
        _ => {}
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct LinkItem {
    kind: String,
    from_trace_id: String,
    from_span_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    from_io: String,
    to_trace_id: String,
    to_span_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    to_io: String,
}

pub(crate) fn link(l: weft_engine::LinkRow) -> LinkItem {
    LinkItem {
        kind: l.kind,
        from_trace_id: l.from_trace_id,
        from_span_id: l.from_span_id,
        from_io: l.from_io,
        to_trace_id: l.to_trace_id,
        to_span_id: l.to_span_id,
        to_io: l.to_io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn previews_cut_strings_and_drop_images() {
        let long = "é".repeat(600);
        let json = json!([{"type": "tool_use", "tool_input": {"a": [long]}, "image_base64": "x"}, {"type": "text", "text": "short"}]);
        let cut: Value = serde_json::from_str(&cut_payload(json.to_string())).expect("json");
        assert_eq!(
            cut[0]["tool_input"]["a"][0]
                .as_str()
                .expect("text")
                .chars()
                .count(),
            513
        );
        assert!(cut[0].get("image_base64").is_none());
        assert_eq!(cut[1]["text"], "short");
        assert_eq!(cut_payload("nonsense".into()), "nonsense");
    }
}
