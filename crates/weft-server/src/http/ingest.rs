//! The ingest API: one turn, one transcript.

use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;
use serde_json::json;
use weft_engine::IngestError;

use super::{ApiError, App, blocking};
use crate::metrics::INGEST;

/// Largest body, decompressed: the request, the verbatim response in base64, and an allowance.
pub(crate) const MAX_BODY: usize = 48_933_546;
/// What is read and thrown away of a larger one before it is refused.
const MAX_DRAINED: usize = 4 * MAX_BODY;

fn count(provider: &str, status: &str) {
    let provider = match provider {
        "" => "unknown",
        // Label values come from a closed set, so that a caller cannot grow the registry.
        "anthropic" | "openai" | "ollama" | "transcript" | "unknown" => provider,
        _ => "unknown",
    };
    INGEST.writes.with_label_values(&[provider, status]).inc();
}

/// The body, if it is JSON and within the limit.
async fn read(headers: &HeaderMap, mut body: Body) -> Result<Vec<u8>, ApiError> {
    let oversize = || {
        count("unknown", "reject_oversize");
        tracing::warn!(limit = MAX_BODY, "ingest body over the limit");
        ApiError(
            StatusCode::PAYLOAD_TOO_LARGE,
            "request body exceeds the ingest size limit".into(),
        )
    };
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|n| n > MAX_DRAINED) {
        return Err(oversize());
    }
    let media = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.split(';').next())
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let mut bytes = Vec::with_capacity(declared.unwrap_or(0).min(MAX_BODY));
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| {
            count("unknown", "reject_envelope");
            ApiError::bad(format!("invalid envelope: {e}"))
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        total += data.len();
        if total > MAX_DRAINED {
            break;
        }
        if total > MAX_BODY {
            // Read on without keeping anything: a client that is cut off while it sends does not
            // see the answer.
            bytes = Vec::new();
        } else {
            bytes.extend_from_slice(&data);
        }
    }
    if total > MAX_BODY {
        return Err(oversize());
    }
    if !media.ends_with("json") {
        count("unknown", "reject_envelope");
        return Err(ApiError::bad("invalid envelope: Unprocessable Entity"));
    }
    Ok(bytes)
}

/// Seconds after which a turn that was not stored may be sent again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

fn refused(e: IngestError, provider: &str) -> Response {
    let text = e.to_string();
    let (status, outcome) = match e {
        IngestError::Envelope(_) => (StatusCode::BAD_REQUEST, "reject_envelope"),
        IngestError::UnknownProvider(_) => (StatusCode::UNPROCESSABLE_ENTITY, "unknown_provider"),
        IngestError::Unprocessable(_) => (StatusCode::UNPROCESSABLE_ENTITY, "reject_parse"),
        IngestError::QueueFull => (StatusCode::BAD_GATEWAY, "downstream_error"),
        IngestError::Store(ref e) => {
            tracing::error!(error = %e, hint = e.hint(), "turn not stored");
            (StatusCode::SERVICE_UNAVAILABLE, "internal_error")
        }
    };
    count(
        if status == StatusCode::BAD_REQUEST {
            "unknown"
        } else {
            provider
        },
        outcome,
    );
    let busy = matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE
    );
    let mut response = ApiError(status, text).into_response();
    if busy {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

/// `POST /v1/ingest`.
pub(super) async fn turn(
    axum::extract::State(engine): App,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let start = Instant::now();
    let bytes = read(&headers, body)
        .await
        .map_err(IntoResponse::into_response)?;
    let size = bytes.len() as f64;
    let provider = blocking(move || engine.ingest_turn(&bytes))
        .await
        .map_err(IntoResponse::into_response)?
        .map_err(|e| refused(e, ""))?;
    count(&provider, "accepted");
    INGEST
        .seconds
        .with_label_values(&[&provider])
        .observe(start.elapsed().as_secs_f64());
    INGEST
        .body_bytes
        .with_label_values(&[&provider])
        .observe(size);
    Ok((StatusCode::ACCEPTED, Json(json!({"status": "accepted"}))).into_response())
}

/// `POST /v1/ingest/transcript`.
pub(super) async fn transcript(
    axum::extract::State(engine): App,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let bytes = read(&headers, body)
        .await
        .map_err(IntoResponse::into_response)?;
    let subject = headers
        .get("x-paper-auth-subject")
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let ack = blocking(move || engine.ingest_transcript(&bytes, &subject))
        .await
        .map_err(IntoResponse::into_response)?
        .map_err(|e| refused(e, "transcript"))?;
    count("transcript", "accepted");
    let mut answer = json!({"status": "accepted", "deduped": ack.deduped, "records": ack.records});
    if !ack.agent_id.is_empty() {
        answer["agent_id"] = json!(ack.agent_id);
    }
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}
