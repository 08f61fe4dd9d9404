//! Calls of a cassette: a request of a client that is passed on, and a tool that is called.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;
use weft_core::cassette::Tool;

use super::{Cassettes, Installed};
use crate::client::{causes, passed_on};
use crate::http::Access;

/// How long a tool may take.
const TOOL_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a tool's answer at most.
const TOOL_ANSWER: usize = 8 << 20;
/// Bytes of a failed answer that a model is shown.
const TOOL_FAILURE: usize = 4_096;

/// Why a cassette gave no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The path leads elsewhere than it says.
    BadTarget(String),
    /// It could not be asked.
    Unavailable(String),
}

/// The headers that a cassette gets from a caller's: those of the caller, and where they came from.
fn forwarded(parts: &Parts, name: &str, tool: bool) -> HeaderMap {
    // weft's own tokens are nobody else's business.
    let own = parts.extensions.get::<Access>().is_some_and(|a| a.by_token);
    let mut out = passed_on(&parts.headers, |n| {
        let s = n.as_str();
        let replaced =
            s.starts_with("x-forwarded-") || *n == header::HOST || s == "x-tapes-cassette";
        replaced || (own && *n == header::AUTHORIZATION) || (tool && not_for_tools(s))
    });
    let peer = parts
        .extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map(|c| c.0.ip().to_string());
    let host = parts
        .headers
        .get(header::HOST)
        .cloned()
        .or_else(|| HeaderValue::from_str(parts.uri.authority()?.as_str()).ok());
    let put = |out: &mut HeaderMap, n: &'static str, v: Option<HeaderValue>| {
        if let Some(v) = v {
            out.insert(HeaderName::from_static(n), v);
        }
    };
    put(
        &mut out,
        "x-forwarded-for",
        peer.and_then(|p| HeaderValue::from_str(&p).ok()),
    );
    put(&mut out, "x-forwarded-host", host);
    put(
        &mut out,
        "x-forwarded-proto",
        Some(HeaderValue::from_static("http")),
    );
    put(
        &mut out,
        "x-tapes-cassette",
        HeaderValue::from_str(name).ok(),
    );
    out
}

/// Headers of a call of MCP that say nothing about the call of a tool.
fn not_for_tools(name: &str) -> bool {
    const NAMES: [&str; 9] = [
        "accept-encoding",
        "content-encoding",
        "content-length",
        "content-md5",
        "digest",
        "expect",
        "forwarded",
        "range",
        "te",
    ];
    NAMES.contains(&name)
        || name.starts_with("if-")
        || name.starts_with("proxy-")
        || matches!(name, "accept" | "content-type")
        || name.starts_with("mcp-")
}

/// Whether a path has segments that lead upwards, however they are written.
fn leads_away(path: &str) -> bool {
    let plain = path
        .replace("%2e", ".")
        .replace("%2E", ".")
        .replace("%2f", "/")
        .replace("%2F", "/")
        .replace("%5c", "/")
        .replace("%5C", "/")
        .replace('\\', "/");
    plain.split('/').any(|s| matches!(s, "." | ".."))
}

/// Passes a request on; `rest` is the path behind the cassette's name, with its query.
pub(crate) async fn forward(
    cassettes: &Cassettes,
    to: &Installed,
    parts: &Parts,
    rest: &str,
    body: Bytes,
) -> Result<Response<Body>, Failure> {
    let path = rest.split('?').next().unwrap_or_default();
    if leads_away(path) {
        return Err(Failure::BadTarget(format!(
            "the path {path:?} has dot segments"
        )));
    }
    let url = format!("{}{}{rest}", to.origin, to.document.manifest.local_prefix());
    let mut request = Request::builder()
        .method(parts.method.clone())
        .uri(&url)
        .body(Body::from(body))
        .map_err(|e| Failure::BadTarget(e.to_string()))?;
    *request.headers_mut() = forwarded(parts, to.name(), false);
    request.headers_mut().remove(header::CONTENT_LENGTH);
    send(cassettes, to, request).await
}

async fn send(
    cassettes: &Cassettes,
    to: &Installed,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let unavailable = |why: String| {
        Failure::Unavailable(format!("cassette {:?} at {}: {why}", to.name(), to.origin))
    };
    let client = cassettes
        .client()
        .ok_or_else(|| unavailable("no cassette is configured".into()))?;
    client
        .request(request)
        .await
        .map(|r| r.map(Body::new))
        .map_err(|e| unavailable(causes(&e)))
}

/// Calls a tool: the object that it answers and its text, or what a model is told.
pub(crate) async fn tool(
    cassettes: &Cassettes,
    to: &Installed,
    tool: &Tool,
    caller: Option<&Parts>,
    arguments: Value,
) -> Result<(String, Value), String> {
    let who = format!("cassette {:?} tool {:?}", to.name(), tool.name);
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(format!("{}{}", to.origin, tool.path))
        .body(Body::from(arguments.to_string()))
        .map_err(|e| format!("{who} failed: {e}"))?;
    let headers = request.headers_mut();
    match caller {
        Some(parts) => *headers = forwarded(parts, to.name(), true),
        None => {
            if let Ok(name) = HeaderValue::from_str(to.name()) {
                headers.insert("x-tapes-cassette", name);
            }
        }
    }
    for name in [header::ACCEPT, header::CONTENT_TYPE] {
        headers.insert(name, HeaderValue::from_static("application/json"));
    }
    let call = async {
        let response = send(cassettes, to, request).await.map_err(|f| match f {
            Failure::BadTarget(e) | Failure::Unavailable(e) => format!("{who} failed: {e}"),
        })?;
        let status = response.status();
        let limit = if status.is_success() {
            TOOL_ANSWER
        } else {
            TOOL_FAILURE + 1
        };
        read(response, limit, status.is_success())
            .await
            .map(|bytes| (status, bytes))
            .map_err(|e| match e {
                Some(e) => format!("{who} failed: {e}"),
                None => format!("{who} response exceeds {TOOL_ANSWER} bytes"),
            })
    };
    let (status, bytes) = tokio::time::timeout(TOOL_TIMEOUT, call)
        .await
        .map_err(|_| {
            format!(
                "{who} failed: no answer within {} s",
                TOOL_TIMEOUT.as_secs()
            )
        })??;
    if !status.is_success() {
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        let shown = match (text.is_empty(), bytes.len() > TOOL_FAILURE) {
            (true, _) => status.canonical_reason().unwrap_or_default().to_owned(),
            (_, true) => {
                let end = text.floor_char_boundary(TOOL_FAILURE);
                format!("{}… (truncated)", &text[..end])
            }
            _ => text.to_owned(),
        };
        return Err(format!("{who} returned {status}: {shown}"));
    }
    let mut stream = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
    let value = match stream.next() {
        Some(Ok(v)) => v,
        Some(Err(e)) => return Err(format!("{who} did not return a JSON object: {e}")),
        None => {
            return Err(format!(
                "{who} did not return a JSON object: the body is empty"
            ));
        }
    };
    let end = stream.byte_offset();
    if bytes[end..].iter().any(|b| !b.is_ascii_whitespace()) {
        return Err(format!("{who} returned trailing JSON"));
    }
    match value {
        Value::Null => Err(format!("{who} returned null instead of a JSON object")),
        Value::Object(_) => {
            // The text is the cassette's own: numbers stay as it wrote them.
            let text = String::from_utf8_lossy(&bytes[..end]).trim().to_owned();
            Ok((text, value))
        }
        other => Err(format!(
            "{who} did not return a JSON object: {} was returned",
            match other {
                Value::Array(_) => "an array",
                Value::String(_) => "a string",
                Value::Number(_) => "a number",
                _ => "a boolean",
            }
        )),
    }
}

/// A body of at most `limit` bytes. `None` as the error = it has more, where that is one; else what came
/// first is given.
async fn read(
    response: Response<Body>,
    limit: usize,
    whole: bool,
) -> Result<Vec<u8>, Option<String>> {
    let mut body = response.into_body();
    let mut out = Vec::new();
    if whole {
        return match Limited::new(body, limit).collect().await {
            Ok(b) => Ok(b.to_bytes().to_vec()),
            Err(e) if e.is::<http_body_util::LengthLimitError>() => Err(None),
            Err(e) => Err(Some(causes(&*e))),
        };
    }
    while out.len() < limit {
        match body.frame().await {
            None => break,
            Some(Ok(f)) => {
                if let Some(data) = f.data_ref() {
                    out.extend_from_slice(&data[..data.len().min(limit - out.len())]);
                }
            }
            Some(Err(e)) => return Err(Some(causes(&e))),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_upwards_are_seen() {
        for bad in [
            "/..",
            "/a/../b",
            "/%2e%2e/x",
            "/a/%2E./b",
            "/a/..%2fb",
            "/a\\..\\b",
            "/./x",
        ] {
            assert!(leads_away(bad), "{bad}");
        }
        for good in ["", "/", "/a..b", "/...", "/a%2fb"] {
            assert!(!leads_away(good), "{good}");
        }
    }
}
