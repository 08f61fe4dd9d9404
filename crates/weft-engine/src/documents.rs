//! A projection's searchable side: one document for each main llm span.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use weft_core::block::ContentBlock;
use weft_core::derive::Projection;
use weft_core::derive::classify::MAIN;
use weft_core::project::{cut_bytes, project_text};
use weft_core::render::block_text;
use weft_core::span::{Span, Trace};
use weft_store::{Document, SessionRow};

/// Code points of the turn before that a document carries as context. More of it costs recall where
/// answers are long (BEAM), less where they are short (LoCoMo).
const CONTEXT_CHARS: usize = 150;
/// Bytes of one tool call's arguments, and of its output.
const TOOL_BYTES: usize = 4_000;
/// Bytes of all tool text of one document.
const TOOLS_BYTES: usize = 16_000;

/// The documents of a session, in the order of its traces and spans.
pub(crate) fn of(session: &SessionRow, p: &Projection) -> Vec<Document> {
    let outputs: HashMap<&str, &Span> = p
        .traces
        .iter()
        .flat_map(|t| &t.spans)
        .filter(|s| s.kind == "tool")
        .map(|s| (s.span_id.as_str(), s))
        .collect();
    let mut before: HashMap<&str, String> = HashMap::new();
    let mut docs = Vec::new();
    for t in &p.traces {
        for s in &t.spans {
            if s.kind != "llm" || s.call_kind != MAIN {
                continue;
            }
            let mut d = document(session, t, s, &outputs);
            let last = before.entry(s.thread_id.as_str()).or_default();
            d.context_text = context(t, &d, last);
            let text = d.text();
            if !text.is_empty() {
                *last = text.chars().take(CONTEXT_CHARS).collect();
                d.hash = Some(Sha256::digest(text.as_bytes()).into());
            }
            d.content_hash = content_hash(&d);
            docs.push(d);
        }
    }
    docs
}

fn document(
    session: &SessionRow,
    trace: &Trace,
    span: &Span,
    outputs: &HashMap<&str, &Span>,
) -> Document {
    Document {
        trace_id: trace.trace_id.clone(),
        span_id: span.span_id.clone(),
        session_id: session.id.clone(),
        thread_id: span.thread_id.clone(),
        agent: session.key.harness_id.clone(),
        model: span.model.clone(),
        repository: session.repository.clone(),
        started_at: span.started_at,
        user_text: block_text(&span.input),
        assistant_text: block_text(&span.output),
        context_text: String::new(),
        tool_text: tool_text(&span.output, outputs),
        hash: None,
        content_hash: [0; 32],
    }
}

/// The prompt that an answer belongs to, where the span itself does not hold it, and the turn before.
fn context(trace: &Trace, d: &Document, before: &str) -> String {
    if !d.user_text.is_empty() || trace.user_prompt.is_empty() {
        return before.to_owned();
    }
    if before.contains(&trace.user_prompt) {
        return before.to_owned();
    }
    format!("{}\n{before}", trace.user_prompt)
}

/// The calls that a span made and what they answered, cut.
fn tool_text(output: &[ContentBlock], outputs: &HashMap<&str, &Span>) -> String {
    let mut text = String::new();
    for call in output.iter().filter(|b| b.is_tool_use()) {
        if text.len() >= TOOLS_BYTES {
            break;
        }
        text.push_str(&call.tool_name);
        let mut arguments = String::new();
        for v in call.tool_input.values() {
            strings(v, &mut arguments);
        }
        text.push_str(cut_bytes(&arguments, TOOL_BYTES));
        text.push('\n');
        if let Some(span) = outputs.get(call.tool_use_id.as_str()) {
            for b in &span.output {
                text.push_str(cut_bytes(&project_text(&b.tool_output), TOOL_BYTES));
                text.push('\n');
            }
        }
    }
    cut_bytes(&text, TOOLS_BYTES).trim_end().to_owned()
}

fn strings(v: &serde_json::Value, out: &mut String) {
    match v {
        serde_json::Value::String(s) => {
            out.push(' ');
            out.push_str(cut_bytes(s, TOOL_BYTES));
        }
        serde_json::Value::Array(a) => a.iter().for_each(|v| strings(v, out)),
        serde_json::Value::Object(o) => o.values().for_each(|v| strings(v, out)),
        _ => {}
    }
}

fn content_hash(d: &Document) -> [u8; 32] {
    let mut h = Sha256::new();
    for f in [
        &d.session_id,
        &d.thread_id,
        &d.agent,
        &d.model,
        &d.repository,
        &d.user_text,
        &d.assistant_text,
        &d.context_text,
        &d.tool_text,
    ] {
        h.update((f.len() as u64).to_be_bytes());
        h.update(f.as_bytes());
    }
    h.update(d.started_at.to_be_bytes());
    h.finalize().into()
}
