//! Fetching a cassette's document, within limits.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use weft_core::cassette::{Document, MAX_DOCUMENT};

use super::Source;
use crate::client::{HttpClient, causes};

/// How long a document may take, connection and body included.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What a source answered.
#[derive(Debug)]
pub(super) enum Fetched {
    /// The document that is known.
    Same,
    /// Another one.
    New {
        document: Box<Document>,
        etag: Option<String>,
    },
}

/// Asks for a document; one that is known by its ETag is not sent again.
pub(super) async fn document(
    client: &HttpClient<Body>,
    source: &Source,
    etag: Option<&str>,
) -> Result<Fetched, String> {
    let all = async {
        let (etag, bytes) = match answer(client, source, etag).await? {
            None => return Ok(Fetched::Same),
            Some(found) => found,
        };
        // Reading a large document is work; the server's threads have others.
        let document = tokio::task::spawn_blocking(move || Document::read(&bytes))
            .await
            .map_err(|e| format!("the document was not read: {e}"))??;
        Ok(Fetched::New {
            document: Box::new(document),
            etag,
        })
    };
    match tokio::time::timeout(TIMEOUT, all).await {
        Ok(r) => r,
        Err(_) => Err(format!("no document within {} s", TIMEOUT.as_secs())),
    }
}

/// ETag and bytes; `None` = unchanged.
async fn answer(
    client: &HttpClient<Body>,
    source: &Source,
    etag: Option<&str>,
) -> Result<Option<(Option<String>, Bytes)>, String> {
    let mut request = Request::get(source.uri.clone())
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, "weft");
    if let Some(v) = etag.and_then(|e| HeaderValue::from_str(e).ok()) {
        request = request.header(header::IF_NONE_MATCH, v);
    }
    let request = request.body(Body::empty()).map_err(|e| e.to_string())?;
    let response = client.request(request).await.map_err(|e| causes(&e))?;
    let status = response.status();
    if status == StatusCode::NOT_MODIFIED && etag.is_some() {
        return Ok(None);
    }
    if status.is_redirection() {
        return Err(format!(
            "the source redirects ({status}), which is not followed"
        ));
    }
    if status != StatusCode::OK {
        return Err(format!("the source answered {status}"));
    }
    let etag = response
        .headers()
        .get(header::ETAG)
        .and_then(|v| v.to_str().ok())
        .map(str::to_owned);
    let bytes = Limited::new(response.into_body(), MAX_DOCUMENT)
        .collect()
        .await
        .map_err(
            |e| match e.downcast_ref::<http_body_util::LengthLimitError>() {
                Some(_) => format!("the document is larger than {MAX_DOCUMENT} bytes"),
                None => causes(&*e),
            },
        )?
        .to_bytes();
    Ok(Some((etag, bytes)))
}
