//! Traces and spans: opening a hit in its context.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use weft_core::span::SCHEMA;
use weft_engine::Engine;

use super::sessions::{load, uuid};
use super::{ApiError, App, Params, blocking, dto};

fn to_value(v: impl Serialize) -> Value {
    serde_json::to_value(v).unwrap_or_default()
}

/// `GET /v1/sessions/{id}/traces`.
pub(super) async fn of_session(
    State(engine): App,
    Path(id): Path<String>,
    p: Params,
) -> Result<Response, ApiError> {
    let id = uuid(&id, "id must be a valid UUID")?;
    let preview = p.get("payload") == Some("preview");
    // A long session is large: it is written as text here, not on the threads that serve everybody.
    let body = blocking(move || {
        let traces = session_traces(&engine, &id, preview)?;
        serde_json::to_vec(&traces).map_err(|e| {
            tracing::error!(error = %e, "failed to write session traces");
            ApiError(
                StatusCode::INTERNAL_SERVER_ERROR,
                "failed to load session traces".into(),
            )
        })
    })
    .await??;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// A trace with its spans.
#[derive(Debug, Serialize)]
struct TraceWithSpans {
    trace: dto::TraceItem,
    spans: Vec<dto::SpanItem>,
}

/// A session with its traces, spans and links.
#[derive(Debug, Serialize)]
pub(crate) struct SessionTraces {
    schema: &'static str,
    session: dto::SessionItem,
    traces: Vec<TraceWithSpans>,
    links: Vec<dto::LinkItem>,
}

impl SessionTraces {
    /// Leaves the headers of the traces alone.
    pub(super) fn drop_spans(&mut self) {
        self.traces.iter_mut().for_each(|t| t.spans.clear());
        self.links.clear();
    }
}

/// A session with its traces, spans and links.
pub(crate) fn session_traces(
    engine: &Engine,
    id: &str,
    preview: bool,
) -> Result<SessionTraces, ApiError> {
    let session = load(engine, id)?;
    let failed = ApiError::failed("failed to load session traces");
    let traces = engine.store().traces(id).map_err(&failed)?;
    let mut spans: HashMap<String, Vec<dto::SpanItem>> = HashMap::new();
    for s in engine.store().session_spans(id).map_err(&failed)? {
        let item = dto::span(s, preview);
        spans.entry(item.trace_id.clone()).or_default().push(item);
    }
    let links = engine.store().session_links(id).map_err(&failed)?;
    Ok(SessionTraces {
        schema: SCHEMA,
        session: dto::session(session, weft_engine::now()),
        traces: traces
            .into_iter()
            .map(|t| TraceWithSpans {
                spans: spans.remove(&t.trace.trace_id).unwrap_or_default(),
                trace: dto::trace(t),
            })
            .collect(),
        links: links.into_iter().map(dto::link).collect(),
    })
}

/// `GET /v1/traces?session_id=`.
pub(super) async fn list(State(engine): App, p: Params) -> Result<Json<Value>, ApiError> {
    let id = p
        .get("session_id")
        .ok_or_else(|| ApiError::bad("session_id parameter required"))?;
    let id = uuid(id, "session_id must be a valid UUID")?;
    blocking(move || {
        load(&engine, &id)?;
        let traces = engine
            .store()
            .traces(&id)
            .map_err(ApiError::failed("failed to list traces"))?;
        let items: Vec<Value> = traces
            .into_iter()
            .map(|t| to_value(dto::trace(t)))
            .collect();
        Ok(Json(json!({"schema": SCHEMA, "items": items})))
    })
    .await?
}

/// `GET /v1/traces/{trace_id}`.
pub(super) async fn get(
    State(engine): App,
    Path(id): Path<String>,
    p: Params,
) -> Result<Json<Value>, ApiError> {
    let preview = p.get("payload") == Some("preview");
    blocking(move || trace_detail(&engine, &id, preview).map(Json)).await?
}

/// A trace with its spans and the links that touch it.
pub(crate) fn trace_detail(engine: &Engine, id: &str, preview: bool) -> Result<Value, ApiError> {
    let failed = ApiError::failed("failed to get trace");
    let trace = engine
        .store()
        .trace(id)
        .map_err(&failed)?
        .ok_or_else(|| ApiError::not_found("trace not found"))?;
    let spans = engine.store().spans(id).map_err(&failed)?;
    let links = engine.store().trace_links(id).map_err(&failed)?;
    let mut body = json!({
        "schema": SCHEMA,
        "trace": to_value(dto::trace(trace)),
        "spans": spans.into_iter().map(|s| to_value(dto::span(s, preview))).collect::<Vec<_>>(),
    });
    if !links.is_empty() {
        body["links"] = json!(
            links
                .into_iter()
                .map(|l| to_value(dto::link(l)))
                .collect::<Vec<_>>()
        );
    }
    Ok(body)
}

/// `GET /v1/traces/{trace_id}/spans/{span_id}`.
pub(super) async fn span(
    State(engine): App,
    Path((trace, span)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    blocking(move || span_detail(&engine, &trace, &span).map(Json)).await?
}

/// One span with its whole payload.
pub(crate) fn span_detail(engine: &Engine, trace: &str, span: &str) -> Result<Value, ApiError> {
    let span = engine
        .store()
        .span(trace, span)
        .map_err(ApiError::failed("failed to get span"))?
        .ok_or_else(|| ApiError::not_found("span not found"))?;
    Ok(to_value(dto::span(span, false)))
}
