//! `GET /v1/search/spans`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use weft_core::time::format_micros;
use weft_engine::{Answer, Filter, Hit, Mode, Role, SearchError, SpanQuery, Subagents};

use super::{ApiError, App, Params, blocking};

/// Hits of one answer at most.
pub(crate) const MAX_TOP_K: usize = 1_000;
/// The cassette's limit.
const MAX_CASSETTE_TOP_K: usize = 100;

fn status(e: &SearchError) -> StatusCode {
    match e {
        SearchError::NotConfigured | SearchError::NotInitialized => StatusCode::SERVICE_UNAVAILABLE,
        SearchError::Embed(_) | SearchError::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A positive decimal number; a sign is allowed, blanks and fractions are not.
fn top_k(value: Option<&str>) -> Option<usize> {
    let Some(v) = value else { return Some(5) };
    let digits = v.strip_prefix('+').unwrap_or(v);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Beyond the machine's range is still a positive integer.
    Some(digits.parse().unwrap_or(usize::MAX)).filter(|n| *n > 0)
}

/// One hit as the tapes API shows it.
pub(crate) fn hit(h: &Hit, always_prompt: bool) -> Map<String, Value> {
    let mut o = Map::new();
    o.insert("trace_id".into(), json!(h.trace_id));
    o.insert("span_id".into(), json!(h.span_id));
    if !h.session_id.is_empty() {
        o.insert("session_id".into(), json!(h.session_id));
    }
    o.insert("score".into(), shortest(h.score));
    if always_prompt || !h.user_prompt.is_empty() {
        o.insert("user_prompt".into(), json!(h.user_prompt));
    }
    for (name, value) in [("snippet", &h.snippet), ("model", &h.model)] {
        if !value.is_empty() {
            o.insert(name.into(), json!(value));
        }
    }
    o.insert("started_at".into(), json!(format_micros(h.started_at)));
    o
}

/// A 32-bit number in its shortest form.
fn shortest(score: f32) -> Value {
    score
        .to_string()
        .parse::<f64>()
        .ok()
        .and_then(serde_json::Number::from_f64)
        .map_or(json!(0), Value::Number)
}

/// The answer of the tapes API, and of the MCP tool.
pub(crate) fn search_output(query: &str, hits: &[Hit], always_prompt: bool) -> Value {
    let results: Vec<Value> = hits
        .iter()
        .map(|h| Value::Object(hit(h, always_prompt)))
        .collect();
    json!({"query": query, "count": results.len(), "results": results})
}

/// The answer of the other modes: the same members, and what fused search adds.
pub(crate) fn hybrid_output(query: &str, a: &Answer) -> Value {
    let results: Vec<Value> = a
        .hits
        .iter()
        .map(|h| {
            let mut o = hit(h, true);
            o.insert("agent".into(), json!(h.agent));
            for (name, value) in [("thread_id", &h.thread_id), ("repository", &h.repository)] {
                if !value.is_empty() {
                    o.insert(name.into(), json!(value));
                }
            }
            o.insert("exact".into(), json!(h.exact));
            let legs: Vec<Value> = h
                .legs
                .iter()
                .map(|(leg, rank, score)| json!({"leg": leg, "rank": rank, "score": shortest(*score)}))
                .collect();
            o.insert("legs".into(), json!(legs));
            if h.source_gone {
                o.insert("source_gone".into(), json!(true));
            }
            Value::Object(o)
        })
        .collect();
    let c = &a.coverage;
    json!({
        "query": query,
        "mode": a.mode.name(),
        "count": results.len(),
        "results": results,
        "degraded": a.degraded.iter().map(|d| json!({"leg": d.leg, "reason": d.reason})).collect::<Vec<_>>(),
        "coverage": {"documents": c.documents, "embeddable": c.embeddable, "embedded": c.embedded,
            "underived_sessions": c.underived_sessions},
    })
}

fn filter(p: &Params) -> Result<Filter, ApiError> {
    Ok(Filter {
        since: p.time("since")?,
        until: p.time("until")?,
        ..scope(p)?
    })
}

/// The scope of a search but for its time.
pub(super) fn scope(p: &Params) -> Result<Filter, ApiError> {
    let text = |name: &str| p.get(name).map(str::to_owned);
    Ok(Filter {
        sessions: p
            .get("session_id")
            .map(|v| {
                uuid::Uuid::parse_str(v)
                    .map(|u| vec![u.hyphenated().to_string()])
                    .map_err(|_| ApiError::bad("session_id must be a valid UUID"))
            })
            .transpose()?
            .unwrap_or_default(),
        agent: text("agent"),
        model: text("model"),
        repository: text("repository"),
        role: match p.get("role") {
            None => None,
            Some("user") => Some(Role::User),
            Some("assistant") => Some(Role::Assistant),
            Some("tool") => Some(Role::Tool),
            Some(_) => return Err(ApiError::bad("role must be one of user, assistant, tool")),
        },
        tool: text("tool"),
        file: text("file"),
        branch: text("branch"),
        subagents: match p.get("subagents") {
            None | Some("include") => Subagents::Include,
            Some("exclude") => Subagents::Exclude,
            Some("only") => Subagents::Only,
            Some(_) => {
                return Err(ApiError::bad(
                    "subagents must be one of include, exclude, only",
                ));
            }
        },
        ..Filter::default()
    })
}

/// `GET /v1/search/spans`.
pub(super) async fn spans(app: App, p: Params) -> Result<Response, ApiError> {
    answer(app, p, None).await
}

/// `GET /v1/cassettes/search/spans`: the spelling of newer clients.
pub(super) async fn cassette_spans(app: App, p: Params) -> Result<Response, ApiError> {
    answer(app, p, Some(MAX_CASSETTE_TOP_K)).await
}

/// Bytes of the body of `POST /v1/cassettes/search/spans`, at most.
const MAX_BODY: usize = 1 << 20;

/// The arguments of `POST /v1/cassettes/search/spans`.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SpanArguments {
    query: String,
    top_k: Option<i64>,
}

/// `POST /v1/cassettes/search/spans`: the same with the arguments in the body, as tools send them.
pub(super) async fn cassette_spans_body(
    State(engine): App,
    request: axum::extract::Request,
) -> Result<Response, ApiError> {
    let invalid =
        |e: &dyn std::fmt::Display| ApiError::bad(format!("invalid search arguments: {e}"));
    let bytes = axum::body::to_bytes(request.into_body(), MAX_BODY)
        .await
        .map_err(|_| invalid(&"the body is larger than 1 MiB"))?;
    let mut stream = serde_json::Deserializer::from_slice(&bytes).into_iter::<SpanArguments>();
    let given = match stream.next() {
        Some(Ok(a)) => a,
        Some(Err(e)) => return Err(invalid(&e)),
        None => return Err(invalid(&"EOF")),
    };
    let end = stream.byte_offset();
    if bytes[end..].iter().any(|b| !b.is_ascii_whitespace()) {
        return Err(ApiError::bad("body must contain one JSON object"));
    }
    if given.query.is_empty() {
        return Err(ApiError::bad("query is required"));
    }
    let limit = match given.top_k {
        None => 5,
        Some(n) if n <= 0 => 5,
        Some(n) => usize::try_from(n)
            .ok()
            .filter(|n| *n <= MAX_CASSETTE_TOP_K)
            .ok_or_else(|| {
                ApiError::bad(format!(
                    "top_k must be an integer no greater than {MAX_CASSETTE_TOP_K}"
                ))
            })?,
    };
    let q = SpanQuery {
        query: given.query.clone(),
        limit,
        mode: Mode::Vector,
        filter: Filter::default(),
        context: 0,
    };
    match blocking(move || engine.search_spans(&q)).await? {
        Ok(a) => Ok(Json(search_output(&given.query, &a.hits, true)).into_response()),
        Err(e) => Err(ApiError(status(&e), e.to_string())),
    }
}

async fn answer(State(engine): App, p: Params, max: Option<usize>) -> Result<Response, ApiError> {
    let mode = match p.get("mode") {
        None => Mode::Vector,
        Some(name) => Mode::ALL
            .iter()
            .find(|m| m.0 == name)
            .map(|m| m.1)
            .ok_or_else(|| ApiError::bad("mode must be one of hybrid, vector, lexical"))?,
    };
    if mode == Mode::Vector && !engine.vectors_configured() {
        let e = SearchError::NotConfigured;
        return Err(ApiError(status(&e), e.to_string()));
    }
    let query = p
        .get("query")
        .ok_or_else(|| ApiError::bad("query parameter is required"))?
        .to_owned();
    let limit = match max {
        None => top_k(p.get("top_k"))
            .ok_or_else(|| ApiError::bad("top_k must be a positive integer"))?,
        Some(max) => top_k(p.get("top_k")).filter(|n| *n <= max).ok_or_else(|| {
            ApiError::bad(format!(
                "top_k must be a positive integer no greater than {max}"
            ))
        })?,
    };
    let q = SpanQuery {
        query: query.clone(),
        limit: limit.min(MAX_TOP_K),
        mode,
        // The tapes API knows no filter, and unknown parameters are ignored there.
        filter: filter(&p)?,
        context: 0,
    };
    let found = blocking(move || engine.search_spans(&q)).await?;
    match found {
        Ok(a) if mode == Mode::Vector => {
            Ok(Json(search_output(&query, &a.hits, true)).into_response())
        }
        Ok(a) => Ok(Json(hybrid_output(&query, &a)).into_response()),
        Err(e) => Err(ApiError(status(&e), e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_k_is_a_positive_decimal_integer() {
        assert_eq!(top_k(None), Some(5));
        assert_eq!((top_k(Some("+7")), top_k(Some("007"))), (Some(7), Some(7)));
        for bad in ["0", "-1", "1.5", "abc", " 5", "+", "٣"] {
            assert_eq!(top_k(Some(bad)), None, "{bad}");
        }
        assert_eq!(top_k(Some("99999999999999999999999")), Some(usize::MAX));
    }

    #[test]
    fn scores_are_written_in_their_shortest_form() {
        assert_eq!(shortest(0.91).to_string(), "0.91");
        assert_eq!(shortest(f32::NAN).to_string(), "0");
    }
}
