//! Sessions: lists, single reads, renaming, deleting, raw turns; and the figures about them.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use weft_core::time::format_micros;
use weft_engine::{Engine, ListQuery, SessionFull, SortField, StoreError, now};

use super::{ApiError, App, Params, blocking, dto};

const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 200;
const MAX_NAME_CHARS: usize = 200;

/// A UUID in any of its spellings, as the canonical one.
pub(super) fn uuid(text: &str, error: &str) -> Result<String, ApiError> {
    uuid::Uuid::parse_str(text)
        .map(|u| u.hyphenated().to_string())
        .map_err(|_| ApiError::bad(error))
}

/// `GET /v1/stats`.
pub(super) async fn stats(State(engine): App, p: Params) -> Result<Json<Value>, ApiError> {
    let (since, until) = (p.time("since")?, p.time("until")?);
    let subject = p.get("auth_subject").map(str::to_owned);
    let s = blocking(move || engine.store().stats(since, until, subject.as_deref()))
        .await?
        .map_err(ApiError::failed("failed to compute stats"))?;
    Ok(Json(json!({
        "session_count": s.session_count,
        "turn_count": s.turn_count,
        "completed_count": s.completed_count,
        "total_cost": s.total_cost,
        "input_tokens": s.input_tokens,
        "output_tokens": s.output_tokens,
        "total_duration_ms": s.total_duration_ns / 1_000_000,
        "tool_calls": s.tool_calls,
    })))
}

/// `GET /v1/sessions`.
pub(super) async fn list(State(engine): App, p: Params) -> Result<Json<Value>, ApiError> {
    let (harness, sid) = (p.get("harness_id"), p.get("harness_session_id"));
    if harness.is_some() || sid.is_some() {
        return by_key(engine, &p, harness, sid).await;
    }
    let query = list_query(&p)?;
    let (sort, direction) = (
        p.get("sort").unwrap_or("last_active").to_owned(),
        p.get("direction").unwrap_or("desc").to_owned(),
    );
    let (items, next) = blocking(move || engine.store().list_sessions(&query))
        .await?
        .map_err(|e| match e {
            StoreError::BadCursor(_) => ApiError(
                StatusCode::INTERNAL_SERVER_ERROR,
                "failed to list sessions".into(),
            ),
            e => ApiError::failed("failed to list sessions")(e),
        })?;
    let mut body = Map::new();
    body.insert("items".into(), items_json(items));
    if let Some((val, id)) = next {
        body.insert(
            "next_cursor".into(),
            json!(cursor(&sort, &direction, &val, &id)),
        );
    }
    Ok(Json(Value::Object(body)))
}

fn items_json(items: Vec<SessionFull>) -> Value {
    let now = now();
    let items: Vec<_> = items.into_iter().map(|s| dto::session(s, now)).collect();
    serde_json::to_value(items).unwrap_or_default()
}

async fn by_key(
    engine: std::sync::Arc<Engine>,
    p: &Params,
    harness: Option<&str>,
    sid: Option<&str>,
) -> Result<Json<Value>, ApiError> {
    let sid = sid.ok_or_else(|| ApiError::bad("harness_id requires harness_session_id"))?;
    if p.get("cursor").is_some() {
        return Err(ApiError::bad(
            "cursor cannot be combined with the harness filter",
        ));
    }
    let extra: Vec<&str> = ["sort", "direction", "since", "until"]
        .into_iter()
        .filter(|n| p.get(n).is_some())
        .collect();
    if !extra.is_empty() {
        return Err(ApiError::bad(format!(
            "{} cannot be combined with the harness filter",
            extra.join(", ")
        )));
    }
    let (harness, sid) = (harness.map(str::to_owned), sid.to_owned());
    let items = blocking(move || engine.store().sessions_by_key(harness.as_deref(), &sid))
        .await?
        .map_err(ApiError::failed("failed to list sessions"))?;
    Ok(Json(json!({"items": items_json(items)})))
}

fn list_query(p: &Params) -> Result<ListQuery, ApiError> {
    let limit = match p.get("limit") {
        None => DEFAULT_LIMIT,
        Some(v) => v
            .parse::<usize>()
            .ok()
            .filter(|n| *n > 0)
            .ok_or_else(|| ApiError::bad("limit must be a positive integer"))?
            .min(MAX_LIMIT),
    };
    let name = p.get("sort").unwrap_or("last_active");
    let sort = SortField::ALL
        .iter()
        .find(|s| s.0 == name)
        .map(|s| s.1)
        .ok_or_else(|| ApiError::bad("invalid sort field"))?;
    let direction = p.get("direction").unwrap_or("desc");
    let ascending = match direction {
        "asc" => true,
        "desc" => false,
        _ => return Err(ApiError::bad("invalid direction")),
    };
    let after = p
        .get("cursor")
        .map(|c| read_cursor(c, name, direction, sort))
        .transpose()?;
    Ok(ListQuery {
        sort,
        ascending,
        after,
        since: p.time("since")?,
        until: p.time("until")?,
        auth_subject: p.get("auth_subject").map(str::to_owned),
        repository: p.get("repository").map(str::to_owned),
        harness_id: None,
        limit,
    })
}

fn cursor(sort: &str, dir: &str, val: &str, id: &str) -> String {
    let mut o = Map::new();
    for (k, v) in [("sort", sort), ("dir", dir), ("val", val)] {
        if !v.is_empty() {
            o.insert(k.into(), json!(v));
        }
    }
    o.insert("id".into(), json!(id));
    URL_SAFE_NO_PAD.encode(Value::Object(o).to_string())
}

fn read_cursor(
    text: &str,
    sort: &str,
    dir: &str,
    field: SortField,
) -> Result<(String, String), ApiError> {
    let bad = |why: &str| ApiError::bad(format!("invalid cursor: {why}"));
    let bytes = URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|e| bad(&e.to_string()))?;
    let v: Value = serde_json::from_slice(&bytes).map_err(|e| bad(&e.to_string()))?;
    let s = |k: &str| v[k].as_str().unwrap_or_default().to_owned();
    let (csort, cdir, val, id) = (s("sort"), s("dir"), s("val"), s("id"));
    if csort.is_empty() || cdir.is_empty() || id.is_empty() {
        return Err(bad("missing sort context"));
    }
    if csort != sort || cdir != dir {
        return Err(ApiError::bad("cursor does not match sort/direction"));
    }
    if val.is_empty() && !field.is_text() {
        return Err(bad("empty boundary value"));
    }
    Ok((val, id))
}

/// Reads a session that must exist.
pub(super) fn load(engine: &Engine, id: &str) -> Result<SessionFull, ApiError> {
    engine
        .store()
        .session(id)
        .map_err(ApiError::failed("failed to load session"))?
        .ok_or_else(|| ApiError::not_found("session not found"))
}

fn session_body(s: SessionFull) -> Json<Value> {
    let item = serde_json::to_value(dto::session(s, now())).unwrap_or_default();
    Json(json!({"session": item}))
}

const BAD_ID: &str = "id must be a valid UUID";

/// `GET /v1/sessions/{id}`.
pub(super) async fn get(
    State(engine): App,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let id = uuid(&id, BAD_ID)?;
    Ok(session_body(blocking(move || load(&engine, &id)).await??))
}

/// `DELETE /v1/sessions/{id}`.
pub(super) async fn delete(
    State(engine): App,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let id = uuid(&id, BAD_ID)?;
    let found = blocking(move || engine.store().delete_session(&id))
        .await?
        .map_err(ApiError::failed("failed to delete session"))?;
    if found {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(ApiError::not_found("session not found"))
    }
}

/// `PATCH /v1/sessions/{id}`.
pub(super) async fn patch(
    State(engine): App,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let id = uuid(&id, BAD_ID)?;
    let Ok(Value::Object(o)) = serde_json::from_slice::<Value>(&body) else {
        return Err(ApiError::bad("invalid request body"));
    };
    let name = match o.get("display_name") {
        None => return Err(ApiError::bad("display_name is required")),
        Some(Value::Null) => String::new(),
        Some(Value::String(s)) => s.trim().to_owned(),
        Some(_) => return Err(ApiError::bad("display_name must be a string or null")),
    };
    if name.chars().count() > MAX_NAME_CHARS {
        return Err(ApiError::bad("display_name must be at most 200 characters"));
    }
    let session = blocking(move || {
        let found = engine
            .store()
            .rename_session(&id, (!name.is_empty()).then_some(name.as_str()))
            .map_err(ApiError::failed("failed to update session"))?;
        if !found {
            return Err(ApiError::not_found("session not found"));
        }
        load(&engine, &id)
    })
    .await??;
    Ok(session_body(session))
}

/// `GET /v1/sessions/{id}/raw_turns`.
pub(super) async fn raw_turns(
    State(engine): App,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let id = uuid(&id, BAD_ID)?;
    let turns = blocking(move || {
        let s = load(&engine, &id)?;
        engine
            .store()
            .raw_turns(&s.row.key)
            .map_err(ApiError::failed("failed to list raw turns"))
    })
    .await??;
    let items: Vec<Value> = turns
        .into_iter()
        .map(|t| {
            let mut o = Map::new();
            o.insert("id".into(), json!(t.id));
            o.insert("source".into(), json!(t.source));
            for (k, v) in [
                ("provider", t.provider),
                ("agent_name", t.agent_name),
                ("request_id", t.request_id),
            ] {
                if !v.is_empty() {
                    o.insert(k.into(), json!(v));
                }
            }
            o.insert("received_at".into(), json!(format_micros(t.received_at)));
            if t.meta.as_object().is_some_and(|m| !m.is_empty()) {
                o.insert("meta".into(), t.meta);
            }
            o.insert("request_bytes".into(), json!(t.request_chars));
            o.insert("response_bytes".into(), json!(t.response_chars));
            Value::Object(o)
        })
        .collect();
    Ok(Json(json!({"items": items})))
}

/// `POST /v1/admin/derive/run`.
pub(super) async fn derive_run(State(engine): App) -> Result<Response, ApiError> {
    let run = blocking(move || engine.derive_all())
        .await?
        .map_err(|e| ApiError(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
    if run.sessions == 0 {
        return Ok(Json(json!({"orgs": {}})).into_response());
    }
    Ok(Json(json!({"orgs": {"default": run.report}})).into_response())
}

/// `POST /v1/admin/seed/demo`.
pub(super) async fn seed_demo(State(engine): App, body: Bytes) -> Result<Json<Value>, ApiError> {
    if !body.is_empty() {
        let body: Value = serde_json::from_slice(&body)
            .map_err(|e| ApiError::bad(format!("invalid payload: {e}")))?;
        if body["overwrite"] == true {
            return Err(ApiError::bad(
                "overwrite is no longer supported; seeding is idempotent against the raw layer",
            ));
        }
    }
    let r = blocking(move || engine.import_sample())
        .await?
        .map_err(|e| ApiError(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
    Ok(Json(json!({
        "sessions": r.sessions,
        "raw_turns": r.raw_turns,
        "raw_turns_inserted": r.inserted,
        "raw_turns_deduped": r.raw_turns - r.inserted,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_come_back_as_they_were() {
        let c = cursor("last_active", "desc", "17", "x");
        let back = read_cursor(&c, "last_active", "desc", SortField::LastActive).expect("cursor");
        assert_eq!(back, ("17".into(), "x".into()));
        let text = |r: Result<(String, String), ApiError>| r.expect_err("refused").1;
        assert!(
            text(read_cursor("%", "a", "b", SortField::LastActive)).starts_with("invalid cursor: ")
        );
        assert_eq!(
            text(read_cursor(&c, "started_at", "desc", SortField::StartedAt)),
            "cursor does not match sort/direction"
        );
        let empty = cursor("last_active", "desc", "", "x");
        assert_eq!(
            text(read_cursor(
                &empty,
                "last_active",
                "desc",
                SortField::LastActive
            )),
            "invalid cursor: empty boundary value"
        );
    }
}
