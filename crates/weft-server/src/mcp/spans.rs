//! `search` as tapes has it: the tool over spans.

use std::sync::Arc;

use rmcp::model::{CallToolResult, JsonObject, Tool};
use serde_json::{Value, json};
use weft_engine::{Engine, Filter, Mode, SearchError, SpanQuery};

use super::tool::{answers, arguments, failed, found, object, reads};
use crate::answer::Answer;
use crate::http::search_output;

const DEFAULT_TOP_K: i64 = 5;
const DESCRIPTION: &str = "Semantic search over stored LLM sessions. Results are individual main-conversation \
     spans, each with its session, trace and span id, the turn's prompt and a snippet.";

fn input() -> Value {
    arguments(
        json!({
            "query": {"type": "string", "description": "What to look for, in words or as a question"},
            "top_k": {"type": "integer", "description": "Number of results to return (default 5)"},
        }),
        &["query"],
    )
}

fn output() -> Value {
    let text = json!({"type": "string"});
    let result = answers(
        json!({
            "session_id": text, "trace_id": text, "span_id": text, "score": {"type": "number"},
            "user_prompt": text, "snippet": text, "model": text, "started_at": text,
        }),
        &["trace_id", "span_id", "score", "started_at"],
    );
    answers(
        json!({
            "query": text,
            "results": {"type": ["array", "null"], "items": result},
            "count": {"type": "integer"},
        }),
        &["query", "results", "count"],
    )
}

/// The tool as tapes describes it: without title and hints.
pub(super) fn plain() -> Tool {
    Tool::new("search", DESCRIPTION, object(input())).with_raw_output_schema(object(output()))
}

/// The tool under a name of a profile.
pub(super) fn tool(name: &'static str) -> Tool {
    reads(
        [
            name,
            "Search conversations",
            "Semantic search over stored LLM sessions: what was said to agents and what they did, in this and \
             other repositories. Ask before you solve something that may have been solved. Results are individual \
             main-conversation spans, each with its session, trace and span id, the turn's prompt and a snippet.",
        ],
        input(),
        output(),
    )
}

/// The arguments, checked against the schema.
pub(super) fn read(given: Option<JsonObject>) -> Result<(String, usize), String> {
    let given = super::tool::Given::new(given, &["query", "top_k"])?;
    // An empty query is no error here.
    let query = match given.get("query") {
        Some(Value::String(s)) => s.clone(),
        _ => given.required("query")?,
    };
    let top_k = match given.integer("top_k", DEFAULT_TOP_K)? {
        n if n <= 0 => DEFAULT_TOP_K,
        n => n,
    };
    Ok((
        query,
        usize::try_from(top_k).unwrap_or(usize::MAX).min(1_000),
    ))
}

pub(super) async fn answer(engine: Arc<Engine>, query: String, limit: usize) -> CallToolResult {
    let q = SpanQuery {
        query: query.clone(),
        limit,
        mode: Mode::Vector,
        filter: Filter::default(),
        context: 0,
    };
    let searched = tokio::task::spawn_blocking(move || engine.search_spans(&q)).await;
    let text = match searched {
        Ok(Ok(a)) => return found(Answer::of(search_output(&query, &a.hits, false))),
        Ok(Err(
            e @ (SearchError::Embed(_) | SearchError::NotInitialized | SearchError::NotConfigured),
        )) => e.to_string(),
        Ok(Err(e)) => format!("failed to search spans: {e}"),
        Err(e) => format!("failed to search spans: {e}"),
    };
    failed(format!("Search failed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(v: Value) -> Result<(String, usize), String> {
        read(v.as_object().cloned())
    }

    #[test]
    fn arguments_are_checked_against_the_schema() {
        assert_eq!(args(json!({"query": ""})), Ok((String::new(), 5)));
        assert_eq!(
            args(json!({"query": "x", "top_k": -3})),
            Ok(("x".into(), 5))
        );
        assert_eq!(args(json!({"query": "x", "top_k": 3})), Ok(("x".into(), 3)));
        assert!(
            args(json!({"query": "x", "paths": "src/"}))
                .expect_err("unknown")
                .contains("paths")
        );
        assert!(args(json!({})).is_err());
        assert!(args(json!({"query": 1})).is_err());
        assert!(args(json!({"query": "x", "top_k": 1.5})).is_err());
    }
}
