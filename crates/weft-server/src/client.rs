//! HTTP to other programs: one way to connect, without redirects.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, header};
use http_body::Body;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(60);

/// A client with its pool of connections. It follows no redirect.
pub(crate) type HttpClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// The certificates of this machine and those that come with weft.
fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    let own: Vec<CertificateDer<'static>> = rustls_native_certs::load_native_certs().certs;
    roots.add_parsable_certificates(own);
    roots
}

/// Makes a client; a connection may take `connect`.
pub(crate) fn client<B>(connect: Duration) -> std::io::Result<HttpClient<B>>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let tls =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(std::io::Error::other)?
            .with_root_certificates(roots())
            .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(connector))
}

/// Whether a header belongs to one connection only (RFC 9110, section 7.6.1).
fn is_hop_by_hop(name: &HeaderName, connection: &[String]) -> bool {
    const NAMES: [HeaderName; 6] = [
        header::CONNECTION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::PROXY_AUTHORIZATION,
    ];
    NAMES.contains(name)
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
        || connection.iter().any(|c| c == name.as_str())
}

/// The headers that a message names as those of its connection.
fn connection_names(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(|n| n.trim().to_ascii_lowercase())
        .collect()
}

/// The headers that go on, in their order.
pub(crate) fn passed_on(headers: &HeaderMap, also_not: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let connection = connection_names(headers);
    headers
        .iter()
        .filter(|(name, _)| !is_hop_by_hop(name, &connection) && !also_not(name))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect()
}

/// An error with what caused it.
pub(crate) fn causes(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut at = e.source();
    while let Some(e) = at {
        text.push_str(": ");
        text.push_str(&e.to_string());
        at = e.source();
    }
    text
}
