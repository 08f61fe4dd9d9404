//! Sessions as JSON lines to take away: one, or all of a window.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use http_body::Frame;
use tokio::sync::mpsc;
use weft_engine::{Engine, ListQuery, SortField, now};

use super::sessions::uuid;
use super::traces::{SessionTraces, session_traces};
use super::{ApiError, App, Params, blocking};

/// Time that an export goes back where it is told no beginning, microseconds.
const WINDOW: i64 = 30 * 24 * 3600 * 1_000_000;
/// Sessions of one read while an export goes on.
const PAGE: usize = 50;

/// Whether spans are wanted, or the headers of turns alone.
fn spans_wanted(p: &Params) -> Result<bool, ApiError> {
    match p.get("detail") {
        None | Some("spans") => Ok(true),
        Some("traces") => Ok(false),
        Some(_) => Err(ApiError::bad("detail must be spans or traces")),
    }
}

fn line(engine: &Engine, id: &str, spans: bool) -> Result<Vec<u8>, ApiError> {
    let mut session: SessionTraces = session_traces(engine, id, false)?;
    if !spans {
        session.drop_spans();
    }
    let mut text = serde_json::to_vec(&session).map_err(|e| {
        tracing::error!(error = %e, "failed to export session");
        ApiError(
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed to export session".into(),
        )
    })?;
    text.push(b'\n');
    Ok(text)
}

fn attachment(body: Body, name: &str) -> Response {
    let mut r = Response::new(body);
    let kind = HeaderValue::from_static("application/x-ndjson");
    r.headers_mut().insert(header::CONTENT_TYPE, kind);
    if let Ok(v) = HeaderValue::from_str(&format!("attachment; filename=\"{name}.jsonl\"")) {
        r.headers_mut().insert(header::CONTENT_DISPOSITION, v);
    }
    r
}

/// `GET /v1/sessions/{id}/export`, and `GET /v1/cassettes/export/sessions/{id}`.
pub(super) async fn one(
    State(engine): App,
    Path(id): Path<String>,
    p: Params,
) -> Result<Response, ApiError> {
    let id = uuid(&id, "id must be a valid UUID")?;
    let spans = spans_wanted(&p)?;
    let name = format!("session-{id}");
    let text = blocking(move || line(&engine, &id, spans)).await??;
    Ok(attachment(Body::from(text), &name))
}

/// `GET /v1/sessions/export`: the newest first, a page in memory at a time.
pub(super) async fn all(State(engine): App, p: Params) -> Result<Response, ApiError> {
    let spans = spans_wanted(&p)?;
    let until = p.time("until")?;
    let since = p.time("since")?.unwrap_or_else(|| now() - WINDOW);
    let (sender, lines) = mpsc::channel(4);
    tokio::task::spawn_blocking(move || {
        let result = each(&engine, since, until, |id| {
            let text = match line(&engine, id, spans) {
                // Removed since its page was read.
                Err(ApiError(StatusCode::NOT_FOUND, _)) => return Ok(()),
                text => text.map_err(|e| e.1)?,
            };
            sender
                .blocking_send(Ok(Bytes::from(text)))
                // The reader went away.
                .map_err(|_| String::new())
        });
        if let Err(e) = result.as_ref()
            && !e.is_empty()
        {
            tracing::error!(error = %e, "export broken off");
            let _ = sender.blocking_send(Err(std::io::Error::other(e.clone())));
        }
    });
    Ok(attachment(Body::new(Lines(lines)), "sessions"))
}

/// Lines as they come from a thread that reads them.
struct Lines(mpsc::Receiver<std::io::Result<Bytes>>);

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        self.0
            .poll_recv(cx)
            .map(|line| Some(line?.map(Frame::data)))
    }
}

/// Calls `f` with each session of a window, the newest first.
fn each(
    engine: &Arc<Engine>,
    since: i64,
    until: Option<i64>,
    mut f: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), String> {
    let mut after = None;
    loop {
        let (page, next) = engine
            .store()
            .list_sessions(&ListQuery {
                sort: SortField::LastActive,
                since: Some(since),
                until,
                after: after.take(),
                limit: PAGE,
                ..ListQuery::default()
            })
            .map_err(|e| e.to_string())?;
        for s in &page {
            f(&s.row.id)?;
        }
        match next {
            Some(n) => after = Some(n),
            None => return Ok(()),
        }
    }
}
