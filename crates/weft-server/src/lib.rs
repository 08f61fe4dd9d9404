//! How weft is reached by machines: the read API, the ingest API, the capture proxy and MCP.
//!
//! The only crate with wire types. It takes listeners that are bound already, so tests use port 0.

pub mod all_text;
mod answer;
pub mod brief_text;
mod cassettes;
mod client;
pub mod code_text;
pub mod decision_text;
mod http;
mod inside;
mod mcp;
mod metrics;
mod proxy;
pub mod wire;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use weft_engine::Engine;

pub use cassettes::Cassettes;
pub use inside::ask;
pub use mcp::{Profile, serve_stdio};
pub use proxy::{UpstreamConfig, Upstreams, serve_proxy};

/// What both listeners share.
#[derive(Clone)]
pub struct Options {
    /// The engine.
    pub engine: Arc<Engine>,
    /// Bearer token that every request has to carry; `None` = none.
    pub token: Option<String>,
    /// Name and version that MCP clients are told.
    pub version: &'static str,
    /// The services that extend the read API.
    pub cassettes: Cassettes,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token must not reach a log.
        f.debug_struct("Options")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Whether a listener can be reached from this machine only.
pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().is_loopback()
}

/// Serves the read API and MCP until `stop`, then lets requests in flight finish.
///
/// # Errors
/// Where accepting connections fails.
pub async fn serve_api(
    listener: TcpListener,
    options: Options,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let guard = guard(&listener, &options)?;
    options.cassettes.follow(stop.clone());
    let router = http::api(
        options.engine.clone(),
        &options.cassettes,
        mcp::router(&options, &stop),
    );
    let service = http::layered(router, guard, metrics::api())
        .into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service)
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
}

/// Serves the ingest API until `stop`, then lets requests in flight finish.
///
/// # Errors
/// Where accepting connections fails.
pub async fn serve_ingest(
    listener: TcpListener,
    options: Options,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let guard = guard(&listener, &options)?;
    let router = http::ingest(options.engine.clone());
    axum::serve(listener, http::layered(router, guard, metrics::ingest()))
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
}

/// Serves a worker's liveness, readiness and counters until `stop`.
///
/// # Errors
/// Where accepting connections fails.
pub async fn serve_worker(
    listener: TcpListener,
    options: Options,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let guard = guard(&listener, &options)?;
    let router = http::worker(options.engine.clone());
    axum::serve(listener, http::layered(router, guard, metrics::ingest()))
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
}

/// Serves liveness of a worker whose database is not connected yet, until `stop`.
///
/// # Errors
/// Where accepting connections fails.
pub async fn serve_starting(listener: TcpListener, stop: CancellationToken) -> std::io::Result<()> {
    axum::serve(listener, http::starting())
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
}

fn guard(listener: &TcpListener, options: &Options) -> std::io::Result<http::Guard> {
    let address = listener.local_addr()?;
    if !is_loopback(&address) && options.token.is_none() && !http::has_tokens(&options.engine) {
        return Err(std::io::Error::new(
            std::io::ErrorKind::PermissionDenied,
            format!(
                "{address} can be reached from other machines: set WEFT_TOKEN, make a token with `weft token create`, or listen on a loopback address"
            ),
        ));
    }
    Ok(http::Guard::new(
        address,
        options.token.clone(),
        options.engine.clone(),
    ))
}

/// The host part of a `Host` or `Origin` value.
pub(crate) fn host_of(authority: &str) -> &str {
    let a = authority.rsplit_once("://").map_or(authority, |(_, a)| a);
    let a = a.split('/').next().unwrap_or_default();
    if let Some(rest) = a.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    a.split(':').next().unwrap_or_default()
}

/// Whether a host name means this machine.
pub(crate) fn is_local_name(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.to_ascii_lowercase().ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
