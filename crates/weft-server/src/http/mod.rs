//! Routers of both APIs and what every request passes through.

mod access;
mod all;
mod cassettes;
mod decisions;
pub(crate) mod dto;
mod export;
mod ingest;
mod openapi;
mod repair;
mod schemas;
pub(crate) mod search;
mod sessions;
pub(crate) mod traces;
mod weave;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tower_http::compression::CompressionLayer;
use tower_http::decompression::RequestDecompressionLayer;
use weft_engine::{Engine, StoreError};

use crate::Cassettes;
use crate::metrics::{self, Surface};
use crate::{host_of, is_local_name};
pub(crate) use access::{Access, Scope};

pub(crate) use search::search_output;

/// The engine as handlers take it.
pub(crate) type App = State<Arc<Engine>>;

/// An answer `{"error": …}` with a status.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) StatusCode, pub(crate) String);

impl ApiError {
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, text.into())
    }

    pub(crate) fn not_found(text: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, text.into())
    }

    /// A failure of the store under a text that says what was tried; the cause goes to the log.
    pub(crate) fn failed(text: &'static str) -> impl Fn(StoreError) -> Self {
        move |e| {
            tracing::error!(error = %e, "{text}");
            Self(StatusCode::INTERNAL_SERVER_ERROR, text.into())
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"error": self.1}))).into_response()
    }
}

/// Runs blocking work off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(f).await.map_err(|e| {
        tracing::error!(error = %e, "a request panicked");
        ApiError(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal server error".into(),
        )
    })
}

/// The read API with the routes of cassettes; `mcp` brings the routes of MCP.
pub(crate) fn api(engine: Arc<Engine>, cassettes: &Cassettes, mcp: Router) -> Router {
    Router::new()
        .route("/ping", get(|| async { Json("pong") }))
        .route("/metrics", get(api_metrics))
        .route("/v1/stats", get(sessions::stats))
        .route("/v1/sessions", get(sessions::list))
        .route(
            "/v1/sessions/{id}",
            get(sessions::get)
                .patch(sessions::patch)
                .delete(sessions::delete),
        )
        .route("/v1/sessions/export", get(export::all))
        .route("/v1/sessions/{id}/export", get(export::one))
        .route("/v1/cassettes/export/sessions/{id}", get(export::one))
        .route("/v1/sessions/{id}/traces", get(traces::of_session))
        .route("/v1/sessions/{id}/raw_turns", get(sessions::raw_turns))
        .route("/v1/traces", get(traces::list))
        .route("/v1/traces/{trace_id}", get(traces::get))
        .route("/v1/traces/{trace_id}/spans/{span_id}", get(traces::span))
        .route("/v1/search/spans", get(search::spans))
        .route("/v1/search/all", get(all::search))
        .route(
            "/v1/cassettes/search/spans",
            get(search::cassette_spans).post(search::cassette_spans_body),
        )
        .route("/v1/admin/derive/run", post(sessions::derive_run))
        .route("/v1/admin/seed/demo", post(sessions::seed_demo))
        .route("/v1/admin/raw-turns/attribution-repair", post(repair::post))
        .route(
            "/api/weave/{repo_id}/search",
            get(weave::get).post(weave::post),
        )
        .route("/api/weave/{repo_id}/search/index", get(weave::index))
        .route("/api/weave/{repo_id}/search/reindex", post(weave::reindex))
        .route("/api/weave/{repo_id}/purge", post(weave::purge))
        .route("/v1/workspaces", get(decisions::workspaces))
        .merge(decision_routes("/v1"))
        .merge(decision_routes("/v1/workspaces/{slug}"))
        .route("/api/index", post(weave::gone))
        .route("/v1/ingest", post(ingest_elsewhere))
        .route("/v1/ingest/transcript", post(ingest_elsewhere))
        .with_state(engine)
        .merge(cassettes::routes(cassettes.clone()))
        .merge(mcp)
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(CompressionLayer::new())
}

/// The routes of decisions under a prefix.
fn decision_routes(prefix: &str) -> Router<Arc<Engine>> {
    let at = |path: &str| format!("{prefix}/decisions{path}");
    Router::new()
        .route(&at(""), get(decisions::list).post(decisions::post))
        .route(&at("/search"), get(decisions::search))
        .route(&at("/{id}"), get(decisions::get))
        .route(&at("/{id}/supersede"), post(decisions::supersede))
        .route(&at("/{id}/reaffirm"), post(decisions::reaffirm))
}

async fn api_metrics(State(engine): App) -> Result<String, ApiError> {
    let workers = blocking(move || metrics::worker_text(&engine)).await?;
    Ok(metrics::api_text() + &workers)
}

/// What a worker shows of itself as long as it runs.
fn alive<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/ping", get(|| async { "pong" }))
        .route("/healthz", get(|| async { "ok" }))
}

/// What a worker shows of itself before its database is connected.
pub(crate) fn starting() -> Router {
    let not_ready = (
        StatusCode::SERVICE_UNAVAILABLE,
        "initializing: database not connected",
    );
    alive()
        .route("/readyz", get(move || async move { not_ready }))
        .route("/metrics", get(|| async { "" }))
}

/// What a worker shows of itself: liveness, readiness, counters.
pub(crate) fn worker(engine: Arc<Engine>) -> Router {
    async fn ready(State(engine): App) -> Response {
        match blocking(move || engine.store().ping()).await {
            Ok(Ok(())) => (StatusCode::OK, "ok").into_response(),
            Ok(Err(e)) => {
                (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {e}")).into_response()
            }
            Err(e) => e.into_response(),
        }
    }
    async fn counters(State(engine): App) -> Result<String, ApiError> {
        blocking(move || metrics::worker_text(&engine)).await
    }
    alive()
        .route("/readyz", get(ready))
        .route("/metrics", get(counters))
        .with_state(engine)
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
}

/// The ingest API.
pub(crate) fn ingest(engine: Arc<Engine>) -> Router {
    Router::new()
        .route("/ping", get(|| async { Json(json!({"status": "ok"})) }))
        .route("/metrics", get(|| async { metrics::ingest_text() }))
        .route("/openapi", get(openapi::ingest))
        .route("/v1/ingest", post(ingest::turn))
        .route("/v1/ingest/transcript", post(ingest::transcript))
        .with_state(engine)
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(RequestDecompressionLayer::new().pass_through_unaccepted(true))
}

async fn no_route(request: Request) -> Response {
    let text = format!("Cannot {} {}", request.method(), request.uri().path());
    (StatusCode::NOT_FOUND, text).into_response()
}

async fn wrong_method() -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed").into_response()
}

/// Turns posted to the read port would vanish silently without this.
async fn ingest_elsewhere(request: Request) -> Response {
    let text = format!(
        "Cannot POST {}: turns are taken on the ingest port (:8082), this is the read API",
        request.uri().path()
    );
    (StatusCode::NOT_FOUND, text).into_response()
}

/// Who may talk to a listener.
#[derive(Clone)]
pub(crate) struct Guard {
    loopback: bool,
    token: Option<Arc<str>>,
    engine: Arc<Engine>,
}

impl Guard {
    pub(crate) fn new(address: SocketAddr, token: Option<String>, engine: Arc<Engine>) -> Self {
        Self {
            loopback: crate::is_loopback(&address),
            token: token.map(Into::into),
            engine,
        }
    }

    /// What the caller may do, or why nothing.
    fn admit(&self, request: &Request) -> Result<Access, Box<Response>> {
        let value = |name| {
            request
                .headers()
                .get(name)
                .and_then(|v: &HeaderValue| v.to_str().ok())
        };
        if self.loopback && is_foreign(request.headers(), request.uri()) {
            return Err(refused(StatusCode::FORBIDDEN, FOREIGN));
        }
        let given = value(header::AUTHORIZATION).and_then(|v| v.strip_prefix("Bearer "));
        let own = self.token.as_deref();
        let access = match (given, own) {
            (Some(g), Some(t)) if same(g.as_bytes(), t.as_bytes()) => Some(Access::owner()),
            (Some(g), _) => Access::of(&self.engine, g)
                // Without tokens there is nothing to check a header against.
                .or_else(|| {
                    (self.loopback && own.is_none() && !has_tokens(&self.engine)).then(Access::all)
                }),
            (None, None) if self.loopback => Some(Access::all()),
            (None, _) => None,
        };
        let Some(access) = access else {
            return Err(refused(
                StatusCode::UNAUTHORIZED,
                "a bearer token is required",
            ));
        };
        let path = request.uri().path();
        if access.scope < access::needed(request.method(), path) {
            return Err(refused(
                StatusCode::FORBIDDEN,
                "the token's scope does not allow this",
            ));
        }
        // A token for some repositories sees no conversations: they belong to none of them surely.
        let is_code = path.starts_with("/api/")
            || path.starts_with("/v1/decisions")
            || path.starts_with("/v1/workspaces")
            || path == "/v1/search/all"
            || matches!(path, "/ping" | "/openapi");
        if access.is_narrow() && !is_code {
            return Err(refused(
                StatusCode::FORBIDDEN,
                "the token is for code of some repositories only",
            ));
        }
        Ok(access)
    }
}

/// What a request is told that [`is_foreign`].
pub(crate) const FOREIGN: &str = "host or origin not allowed";

/// Whether a request to a loopback listener is not one to this machine: a page in a browser must not reach
/// a local server through a name of its own (DNS rebinding).
pub(crate) fn is_foreign(headers: &HeaderMap, uri: &Uri) -> bool {
    let value = |name| {
        headers
            .get(name)
            .and_then(|v: &HeaderValue| v.to_str().ok())
    };
    let host = value(header::HOST)
        .or_else(|| uri.authority().map(|a| a.as_str()))
        .unwrap_or_default();
    let foreign_origin = value(header::ORIGIN)
        .is_some_and(|o| !is_local_name(host_of(o)) && !o.starts_with("vscode-webview://"));
    (!host.is_empty() && !is_local_name(host_of(host))) || foreign_origin
}

/// Whether any token was created.
pub(crate) fn has_tokens(engine: &Engine) -> bool {
    off_the_loop(|| engine.store().tokens().is_ok_and(|t| !t.is_empty()))
}

/// Runs what may wait for the store where asynchronous code cannot go on without it.
pub(crate) fn off_the_loop<T>(f: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::try_current().map(|h| h.runtime_flavor()) {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(f),
        _ => f(),
    }
}

fn refused(status: StatusCode, text: &str) -> Box<Response> {
    let mut r = ApiError(status, text.into()).into_response();
    if status == StatusCode::UNAUTHORIZED {
        r.headers_mut()
            .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    Box::new(r)
}

/// Compares in a time that does not tell where two tokens differ.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y)) == 0
}

/// Puts request id, guard, metrics and panic recovery around a router.
pub(crate) fn layered(router: Router, guard: Guard, surface: Surface) -> Router {
    // The matched route is known inside of the router only, so metrics are taken there.
    let router = router.layer(from_fn_with_state(surface, measure));
    router.layer(from_fn_with_state(guard, outer))
}

async fn outer(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    const REQUEST_ID: &str = "x-request-id";
    let id = request
        .headers()
        .get(REQUEST_ID)
        .and_then(|v| v.to_str().ok())
        .filter(|v| is_canonical_v4(v))
        .map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned);
    let value = HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static(""));
    request.headers_mut().insert(REQUEST_ID, value.clone());
    let mut response = match off_the_loop(|| guard.admit(&request)) {
        Err(r) => *r,
        Ok(access) => {
            request.extensions_mut().insert(access);
            // A panic in a handler is a bug; it must cost one request, not the server.
            match tokio::spawn(next.run(request)).await {
                Ok(r) => r,
                Err(e) => {
                    tracing::error!(error = %e, request_id = %id, "a request panicked");
                    ApiError(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "internal server error".into(),
                    )
                    .into_response()
                }
            }
        }
    };
    response.headers_mut().insert(REQUEST_ID, value);
    response
}

fn is_canonical_v4(text: &str) -> bool {
    text.len() == 36
        && uuid::Uuid::parse_str(text)
            .is_ok_and(|u| u.get_version_num() == 4 && u.hyphenated().to_string() == text)
}

async fn measure(State(surface): State<Surface>, request: Request, next: Next) -> Response {
    let Some(m) = surface.requests else {
        return next.run(request).await;
    };
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("unmatched".into(), |p| {
            p.as_str().replace('{', ":").replace('}', "")
        });
    let method = match *request.method() {
        Method::GET | Method::HEAD | Method::POST | Method::PATCH | Method::DELETE => {
            request.method().to_string()
        }
        _ => "OTHER".into(),
    };
    m.inflight.inc();
    let start = Instant::now();
    let response: Response<Body> = next.run(request).await;
    m.inflight.dec();
    m.duration
        .with_label_values(&[&route, &method])
        .observe(start.elapsed().as_secs_f64());
    m.requests
        .with_label_values(&[route.as_str(), &method, response.status().as_str()])
        .inc();
    response
}

/// Query parameters; of a repeated one the first counts, an empty one counts as absent.
#[derive(Debug, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        _: &S,
    ) -> Result<Self, ApiError> {
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|axum::extract::Query(p)| Self(p))
            .map_err(|_| ApiError::bad("malformed query string"))
    }
}

impl Params {
    /// A parameter; `None` where it is absent or empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(k, _)| k == name)
            .map(|(_, v)| v.as_str())
            .filter(|v| !v.is_empty())
    }

    /// What is asked: `query`, or `q`.
    pub(crate) fn query(&self) -> Result<String, ApiError> {
        match self.get("query").or_else(|| self.get("q")) {
            Some(q) if !q.trim().is_empty() => Ok(q.to_owned()),
            _ => Err(ApiError::bad("query is required")),
        }
    }

    /// A number from 1 to `max`; `default` where it is absent.
    pub(crate) fn number(&self, name: &str, default: usize, max: usize) -> Result<usize, ApiError> {
        let bad = || ApiError::bad(format!("{name} must be between 1 and {max}"));
        match self.get(name) {
            None => Ok(default),
            Some(v) => v
                .parse()
                .ok()
                .filter(|n| (1..=max).contains(n))
                .ok_or_else(bad),
        }
    }

    /// All values of a repeated parameter.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        self.0
            .iter()
            .filter(|(k, v)| k == name && !v.is_empty())
            .map(|(_, v)| v.clone())
            .collect()
    }

    /// An RFC 3339 instant.
    pub(crate) fn time(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.get(name)
            .map(|v| {
                weft_core::time::parse_micros(v)
                    .ok_or_else(|| ApiError::bad(format!("{name} must be an RFC3339 timestamp")))
            })
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_v4_ids_are_kept() {
        assert!(is_canonical_v4("936da01f-9abd-4d9d-80c7-02af85c822a8"));
        for other in [
            "936DA01F-9ABD-4D9D-80C7-02AF85C822A8",
            "936da01f9abd4d9d80c702af85c822a8",
            "0197f2a0-0000-7000-8000-00000000beef",
            "",
        ] {
            assert!(!is_canonical_v4(other), "{other}");
        }
    }

    #[test]
    fn local_names() {
        for local in [
            "localhost:8081",
            "127.0.0.1",
            "[::1]:80",
            "http://localhost:3000/x",
            "a.localhost",
        ] {
            assert!(is_local_name(host_of(local)), "{local}");
        }
        for other in [
            "evil.example:8081",
            "http://localhost.evil.example",
            "null",
            "10.0.0.1",
        ] {
            assert!(!is_local_name(host_of(other)), "{other}");
        }
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same(b"abc", b"abc"));
        assert!(!same(b"abc", b"abd") && !same(b"ab", b"abc") && !same(b"", b"a"));
    }
}
