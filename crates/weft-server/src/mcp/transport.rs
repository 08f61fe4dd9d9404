//! The stateless streamable-HTTP transport as the reference behaves on the wire.
//!
//! Its refusals are plain text, its answers are server-sent events named `message`, and there is
//! nothing to stream with GET.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Server, VERSIONS, jsonrpc};

/// Largest JSON-RPC body.
const MAX_BODY: usize = 4 << 20;
const SESSION: &str = "mcp-session-id";
const PROTOCOL: &str = "mcp-protocol-version";
/// The revision without a handshake.
const STATELESS: &str = "2026-07-28";

type Service = StreamableHttpService<Server, NeverSessionManager>;

pub(super) fn router(path: &str, server: Server, stop: &CancellationToken) -> Router {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(false)
        .with_sse_keep_alive(None)
        .with_sse_retry(None)
        .with_max_request_body_bytes(MAX_BODY)
        .with_cancellation_token(stop.child_token())
        // The guard in front of every route has checked Host and Origin already.
        .disable_allowed_hosts();
    let tapes = server.tapes;
    let service: Service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    Router::new()
        .route(path, any(handle))
        .with_state((Arc::new(service), tapes))
}

fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    (status, text.into()).into_response()
}

fn accepts(headers: &HeaderMap) -> (bool, bool) {
    let (mut json, mut stream) = (false, false);
    for value in headers.get_all(header::ACCEPT) {
        for token in value.to_str().unwrap_or_default().split(',') {
            match token.trim() {
                "application/json" | "application/*" => json = true,
                "text/event-stream" | "text/*" => stream = true,
                "*/*" => (json, stream) = (true, true),
                _ => {}
            }
        }
    }
    (json, stream)
}

/// Whether a request says that it is of the revision that has no handshake, or a later one.
fn is_modern_version(headers: &HeaderMap) -> bool {
    let is_date = |v: &str| v.len() == 10 && v.as_bytes()[4] == b'-' && v.as_bytes()[7] == b'-';
    headers
        .get(PROTOCOL)
        .and_then(|v| v.to_str().ok())
        .is_some_and(|v| is_date(v) && v >= STATELESS)
}

/// What is wrong with a request before its body is read.
fn refusal(method: &Method, headers: &HeaderMap) -> Option<Response> {
    let bad = |text: &str| Some(plain(StatusCode::BAD_REQUEST, text));
    let (json, stream) = accepts(headers);
    if method == Method::GET {
        if !stream {
            return bad("Accept must contain 'text/event-stream' for GET requests");
        }
        return Some(plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "GET requires an active session",
        ));
    }
    if method == Method::DELETE {
        return if headers.contains_key(SESSION) {
            Some(StatusCode::NO_CONTENT.into_response())
        } else {
            bad("Bad Request: DELETE requires an Mcp-Session-Id header")
        };
    }
    if !(json && stream) {
        return bad("Accept must contain both 'application/json' and 'text/event-stream'");
    }
    if method != Method::POST {
        let mut r = plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
        r.headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
        return Some(r);
    }
    if headers.contains_key("last-event-id") {
        return bad("can't send Last-Event-ID for POST request");
    }
    None
}

async fn handle(
    State((service, tapes)): State<(Arc<Service>, bool)>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    if let Some(r) = refusal(&parts.method, &parts.headers) {
        return r;
    }
    let Ok(bytes) = to_bytes(body, MAX_BODY).await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "failed to read body");
    };
    if bytes.is_empty() {
        return plain(StatusCode::BAD_REQUEST, "POST requires a non-empty body\n");
    }
    let message: Value = match serde_json::from_slice(&bytes) {
        Ok(v) => v,
        Err(e) => return plain(StatusCode::BAD_REQUEST, format!("malformed payload: {e}\n")),
    };
    if is_modern_version(&parts.headers) || jsonrpc::is_modern(&message) {
        // The SDK knows the rules of this revision, and how to refuse one that is not spoken.
        let request = Request::from_parts(parts, Body::from(bytes));
        return service.handle(request).await.map(Body::new).into_response();
    }
    if let Some(v) = parts.headers.get(PROTOCOL)
        && !VERSIONS.iter().any(|k| Some(k.as_str()) == v.to_str().ok())
    {
        let known: Vec<&str> = VERSIONS.iter().map(|v| v.as_str()).collect();
        return plain(
            StatusCode::BAD_REQUEST,
            format!(
                "Bad Request: Unsupported protocol version (supported versions: {})",
                known.join(",")
            ),
        );
    }
    let version = parts.headers.get(PROTOCOL).and_then(|v| v.to_str().ok());
    let calls = match jsonrpc::calls(message, version) {
        Ok(calls) => calls,
        Err(e) => return plain(StatusCode::BAD_REQUEST, format!("{e}\n")),
    };
    if calls.is_empty() {
        return StatusCode::ACCEPTED.into_response();
    }
    // tapes gives a session's id, which means nothing; ours gives none.
    let named = tapes && calls.iter().any(|c| c["method"] == "initialize");
    let mut events = String::new();
    for call in calls {
        match one(&service, tapes, &parts, call).await {
            Ok(answer) => {
                events.push_str("event: message\ndata: ");
                events.push_str(&answer);
                events.push_str("\n\n");
            }
            Err(r) => return r,
        }
    }
    let mut response = events.into_response();
    let h = response.headers_mut();
    h.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    h.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
    if named && let Ok(id) = HeaderValue::from_str(&uuid::Uuid::new_v4().simple().to_string()) {
        h.insert(SESSION, id);
    }
    response
}

/// Lets the SDK answer one call; its answer as compact JSON.
async fn one(
    service: &Service,
    tapes: bool,
    from: &Parts,
    call: Value,
) -> Result<String, Response> {
    if let Some(answer) = quiet(&call, tapes) {
        return Ok(answer);
    }
    let mut parts = from.clone();
    // The SDK reads the message again: its own length, and types that it insists on.
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::TRANSFER_ENCODING);
    for (name, v) in [
        (header::CONTENT_TYPE, "application/json"),
        (header::ACCEPT, "application/json, text/event-stream"),
    ] {
        parts.headers.insert(name, HeaderValue::from_static(v));
    }
    let request = Request::from_parts(parts, Body::from(call.to_string()));
    let response = service.handle(request).await;
    let status = response.status();
    let bytes = to_bytes(Body::new(response.into_body()), usize::MAX)
        .await
        .map_err(|e| plain(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
    let text = String::from_utf8_lossy(&bytes);
    let data = text
        .lines()
        .filter_map(|l| l.strip_prefix("data:"))
        .map(str::trim)
        .find(|d| !d.is_empty())
        .unwrap_or(text.trim());
    match serde_json::from_str::<Value>(data) {
        Ok(v) if v.is_object() => Ok(v.to_string()),
        _ => Err(plain(status, text.into_owned())),
    }
}

/// What clients of older revisions ask although nothing advertises it: they get nothing and no error.
fn quiet(call: &Value, tapes: bool) -> Option<String> {
    let result = match call["method"].as_str()? {
        "logging/setLevel" => serde_json::json!({}),
        "prompts/list" if tapes => serde_json::json!({"prompts": []}),
        "resources/list" if tapes => serde_json::json!({"resources": []}),
        "resources/templates/list" if tapes => serde_json::json!({"resourceTemplates": []}),
        _ => return None,
    };
    Some(serde_json::json!({"jsonrpc": "2.0", "id": call["id"], "result": result}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_tokens_are_exact() {
        let with = |v: &'static str| {
            let mut h = HeaderMap::new();
            h.insert(header::ACCEPT, HeaderValue::from_static(v));
            accepts(&h)
        };
        assert_eq!(with("application/json, text/event-stream"), (true, true));
        assert_eq!(with("application/json;q=0.9, text/*"), (false, true));
        assert_eq!(with("*/*"), (true, true));
    }
}
