//! The read API without a socket: what a command line asks of its own store is answered by the same code.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;
use weft_engine::Engine;

use crate::Cassettes;
use crate::http::{self, Access};

/// Answers a request of the read API as the owner of the store: status and body.
///
/// # Errors
/// Where the request is none, or the answer breaks off.
pub async fn ask(
    engine: std::sync::Arc<Engine>,
    method: &str,
    path_and_query: &str,
    body: &str,
) -> std::io::Result<(u16, Vec<u8>)> {
    let mut request = Request::builder()
        .method(method)
        .uri(path_and_query)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_owned()))
        .map_err(std::io::Error::other)?;
    request.extensions_mut().insert(Access::all());
    let answer = match http::api(engine, &Cassettes::default(), Router::new())
        .oneshot(request)
        .await
    {
        Ok(answer) => answer,
        Err(never) => match never {},
    };
    let status = answer.status().as_u16();
    let bytes = answer
        .into_body()
        .collect()
        .await
        .map_err(std::io::Error::other)?
        .to_bytes();
    Ok((status, bytes.to_vec()))
}
