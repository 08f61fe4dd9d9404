//! The capture proxy: between an agent and its provider, it passes every byte on as it comes, and keeps a
//! copy of the turns.

mod dispatch;
mod record;
mod route;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use weft_engine::exchange::is_turn;
use weft_engine::{DropReason, Ended, Engine, Exchange, attribution, now};

use crate::Options;
use crate::client::{HttpClient, causes, client, passed_on};
use crate::http::{Access, ApiError, FOREIGN, Scope, is_foreign, same};
use dispatch::{Dispatch, dropped};
use record::{Record, Side, Tee};
use route::Asked;
pub use route::{UpstreamConfig, Upstreams};

/// How long a connection to a provider may take. There is no other limit of time: the client's counts.
const CONNECT: std::time::Duration = std::time::Duration::from_secs(30);
/// Who may use a proxy that other machines can reach.
const TOKEN: HeaderName = HeaderName::from_static("x-weft-token");

struct Proxy {
    engine: Arc<Engine>,
    token: Option<String>,
    loopback: bool,
    upstreams: Upstreams,
    client: HttpClient<Tee<Body>>,
    dispatch: Arc<Dispatch>,
}

/// Serves the capture proxy until `stop`, then lets streams in flight end and stores what waits.
///
/// # Errors
/// Where accepting connections fails.
pub async fn serve_proxy(
    listener: TcpListener,
    options: Options,
    upstreams: Upstreams,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let address: SocketAddr = listener.local_addr()?;
    // The rule of the other listeners: what other machines reach wants a token.
    crate::guard(&listener, &options)?;
    let (dispatch, worker) = Dispatch::new(options.engine.clone());
    let proxy = Arc::new(Proxy {
        engine: options.engine,
        token: options.token,
        loopback: crate::is_loopback(&address),
        upstreams,
        client: client(CONNECT)?,
        dispatch: dispatch.clone(),
    });
    let router = Router::new().fallback(forward).with_state(proxy);
    let listener = listener.tap_io(|tcp| {
        if let Err(e) = tcp.set_nodelay(true) {
            tracing::debug!(error = %e, "TCP_NODELAY not set");
        }
    });
    let served = axum::serve(listener, router)
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await;
    dispatch::drain(dispatch, worker).await;
    served
}

/// A header as text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| v.to_str().ok())
}

impl Proxy {
    /// Whether the caller may use the proxy: a page in a browser may not, and from another machine only
    /// who has a token.
    fn admits(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), ApiError> {
        if self.loopback {
            return match is_foreign(headers, uri) {
                true => Err(ApiError(StatusCode::FORBIDDEN, FOREIGN.into())),
                false => Ok(()),
            };
        }
        let given = headers.get(TOKEN).and_then(|v| v.to_str().ok());
        let known = given.is_some_and(|g| {
            self.token
                .as_deref()
                .is_some_and(|t| same(g.as_bytes(), t.as_bytes()))
                || crate::http::off_the_loop(|| Access::of(&self.engine, g))
                    .is_some_and(|a| a.scope >= Scope::Write)
        });
        if known {
            return Ok(());
        }
        Err(ApiError(
            StatusCode::UNAUTHORIZED,
            "a token is required in the header X-Weft-Token".into(),
        ))
    }
}

/// What is known of an exchange when its request has come.
fn exchange(route: &route::Route, headers: &HeaderMap) -> Exchange {
    let header = |name: &str| text(headers, name);
    let ours = headers.keys().any(|n| n.as_str().starts_with("x-tapes-"));
    let named = ours
        .then(|| attribution::from_tapes_headers(header))
        .filter(|e| !e.harness_session_id.is_empty() || e.harness_id != "unknown");
    Exchange {
        agent_name: route.agent.clone(),
        session: named.or_else(|| attribution::from_agent_headers(header)),
        thread_id: attribution::thread_id(header),
        path: route.path.clone(),
        request: (
            Vec::new(),
            header("content-encoding").unwrap_or_default().to_owned(),
        ),
        response: (Vec::new(), String::new()),
        content_type: String::new(),
        upstream_request_id: String::new(),
        started: now(),
        elapsed: 0.0,
        ended: Ended::Whole,
    }
}

async fn forward(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    if let Err(e) = proxy.admits(request.headers(), request.uri()) {
        return e.into_response();
    }
    let (parts, body) = request.into_parts();
    let asked = Asked {
        path: parts.uri.path(),
        query: parts.uri.query(),
        agent: text(&parts.headers, "x-tapes-agent-name"),
        anthropic_headers: parts.headers.contains_key("anthropic-version"),
    };
    let Some(route) = proxy.upstreams.route(&asked) else {
        dropped(DropReason::NonTurnRequest, "");
        return no_route(&parts.method, asked.path);
    };
    let turn = is_turn(parts.method.as_str(), &route.path);
    let record = turn.then(|| {
        let x = exchange(&route, &parts.headers);
        Record::new(x, proxy.dispatch.clone())
    });
    if !turn {
        dropped(DropReason::NonTurnRequest, "");
    }
    let mut out = Request::new(Tee::new(body, Side::Request, record.clone()));
    *out.method_mut() = parts.method;
    *out.uri_mut() = match route.url.parse() {
        Ok(uri) => uri,
        Err(e) => {
            tracing::error!(error = %e, "upstream address");
            return failed(
                record.as_deref(),
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal error",
            );
        }
    };
    *out.headers_mut() = passed_on(&parts.headers, |name| {
        *name == header::HOST || attribution::is_ours(name.as_str())
    });
    let answer = match proxy.client.request(out).await {
        Ok(answer) => answer,
        Err(e) => {
            tracing::warn!(error = %causes(&e), upstream = %route.url.split('?').next().unwrap_or_default(), "upstream request failed");
            return failed(
                record.as_deref(),
                StatusCode::BAD_GATEWAY,
                "upstream request failed",
            );
        }
    };
    let (head, body) = answer.into_parts();
    let mut response = Response::builder()
        .status(head.status)
        .body(Body::empty())
        .unwrap_or_default();
    *response.headers_mut() = passed_on(&head.headers, |_| false);
    if let Some(r) = &record {
        if head.status == StatusCode::OK {
            let of = |name: &str| text(&head.headers, name).unwrap_or_default().to_owned();
            r.head(|x| {
                x.content_type = of("content-type");
                x.response.1 = of("content-encoding");
                x.upstream_request_id = match of("request-id") {
                    id if id.is_empty() => of("x-request-id"),
                    id => id,
                };
            });
        } else {
            r.drop_as(DropReason::UpstreamStatus, head.status.as_str());
        }
    }
    *response.body_mut() = Body::new(Tee::new(body, Side::Response, record));
    response
}

/// An answer of our own, where the provider gave none.
fn failed(record: Option<&Record>, status: StatusCode, text: &'static str) -> Response {
    if let Some(r) = record {
        r.drop_as(DropReason::UpstreamNoResponse, text);
    }
    ApiError(status, text.into()).into_response()
}

/// A path that no provider has, and no provider is configured for all.
fn no_route(method: &Method, path: &str) -> Response {
    if path == "/" && (method == Method::GET || method == Method::HEAD) {
        let page = "This is weft's capture proxy. Point an agent at it, for example\nANTHROPIC_BASE_URL=http://localhost:8080 claude\n";
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        return ([(header::CONTENT_TYPE, plain)], page).into_response();
    }
    ApiError::not_found(format!(
        "no provider is known for {path}: set proxy.provider and proxy.upstream, or ask under /agents/NAME/providers/anthropic, openai or ollama"
    ))
    .into_response()
}
