//! `POST /v1/admin/raw-turns/attribution-repair`: whose turn a captured turn is.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use weft_engine::{Attribution, Repair, RepairError, Selector, SessionKey};

use super::{ApiError, App, blocking};

/// Reads the body in the order in which its faults are told.
fn read(body: &[u8]) -> Result<Repair, ApiError> {
    let Ok(Value::Object(o)) = serde_json::from_slice::<Value>(body) else {
        return Err(ApiError::bad("invalid request body"));
    };
    let text = |key: &str| match o.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(s)) => Ok(Some(s.clone())),
        Some(_) => Err(ApiError::bad(format!("{key} must be a string"))),
    };
    let id = match o.get("raw_turn_id") {
        None | Some(Value::Null) => None,
        Some(v) => match v.as_i64() {
            Some(0) => None,
            Some(n) => Some(n),
            None => return Err(ApiError::bad("raw_turn_id must be an integer")),
        },
    };
    let exchange = text("paper_proxy_request_id")?.filter(|s| !s.is_empty());
    let turn = match (id, exchange) {
        (Some(id), None) => Selector::Id(id),
        (None, Some(x)) => Selector::Exchange(x),
        _ => {
            return Err(ApiError::bad(
                "exactly one of raw_turn_id or paper_proxy_request_id is required",
            ));
        }
    };
    let required = |key: &str| {
        text(key)?
            .filter(|s| !s.is_empty())
            .ok_or_else(|| ApiError::bad(format!("{key} is required")))
    };
    let key = SessionKey {
        harness_id: required("harness_id")?,
        harness_session_id: required("harness_session_id")?,
    };
    let parent = text("parent_harness_session_id")?;
    if parent.as_deref() == Some("") {
        return Err(ApiError::bad(
            "parent_harness_session_id must be omitted instead of empty",
        ));
    }
    if parent.as_ref() == Some(&key.harness_session_id) {
        return Err(ApiError::bad("a session cannot parent itself"));
    }
    Ok(Repair {
        turn,
        key,
        thread_id: text("thread_id")?.unwrap_or_default(),
        parent,
        reason: required("reason")?,
    })
}

fn attribution(a: &Attribution) -> Value {
    let mut o = Map::new();
    o.insert("raw_turn_id".into(), json!(a.raw_turn_id));
    o.insert("harness_id".into(), json!(a.key.harness_id));
    o.insert("harness_session_id".into(), json!(a.key.harness_session_id));
    o.insert("thread_id".into(), json!(a.thread_id));
    if let Some(p) = &a.parent {
        o.insert("parent_harness_session_id".into(), json!(p));
    }
    Value::Object(o)
}

/// Handles the request: 200, or 202 where a session is left to the workers.
pub(super) async fn post(State(engine): App, body: Bytes) -> Result<Response, ApiError> {
    let repair = read(&body)?;
    let done = blocking(move || engine.repair(repair))
        .await?
        .map_err(|e| {
            let status = match e {
                RepairError::Store(e) => {
                    return ApiError::failed("failed to repair attribution")(e);
                }
                RepairError::NotFound => StatusCode::NOT_FOUND,
                RepairError::Ambiguous => StatusCode::CONFLICT,
            };
            ApiError(status, e.to_string())
        })?;
    let mut answer = json!({
        "recorded": done.recorded,
        "previous": attribution(&done.previous),
        "effective": attribution(&done.effective),
    });
    let mut status = StatusCode::OK;
    if !done.pending.is_empty() {
        status = StatusCode::ACCEPTED;
        let pending = done.pending.iter().map(
            |k| json!({"harness_id": k.harness_id, "harness_session_id": k.harness_session_id}),
        );
        answer["projections_pending"] = pending.collect();
    }
    Ok((status, Json(answer)).into_response())
}
