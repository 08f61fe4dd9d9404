//! Taking in one exchange that the capture proxy saw: decode, reduce, attribute, store.

use serde_json::{Map, Value, json};
use weft_capture::attribution;
use weft_capture::decode::decode_wire;
use weft_capture::envelope::{Envelope, IngestTurn, MAX_RAW_RESPONSE_BYTES};
use weft_capture::exchange::{DropReason, provider_of};
use weft_capture::json::scrub;
use weft_core::derive::Deriver;
use weft_core::provider;
use weft_core::time::{Micros, format_micros};

use weft_store::StoreError;

use crate::Engine;
use crate::ingest::conversation_id;

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The provider sent all of it.
    Whole,
    /// The client went away before.
    ClientGone,
    /// The provider's connection broke.
    Broken(String),
}

/// One exchange between a client and a provider, as the bytes went over the wire.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Name of the agent, "" = not told.
    pub agent_name: String,
    /// The session that headers named.
    pub session: Option<Envelope>,
    /// The subagent's thread; "" = main.
    pub thread_id: String,
    /// Path as the provider saw it, without its query.
    pub path: String,
    /// Request body and its content coding.
    pub request: (Vec<u8>, String),
    /// Answer and its content coding.
    pub response: (Vec<u8>, String),
    /// Content type of the answer.
    pub content_type: String,
    /// The provider's id of the exchange; "" = none.
    pub upstream_request_id: String,
    /// When the request came.
    pub started: Micros,
    /// From the request to the end of the answer, seconds.
    pub elapsed: f64,
    /// How the answer ended.
    pub ended: Ended,
}

/// Why an exchange was not stored.
#[derive(Clone, Debug)]
pub enum CaptureError {
    /// It is no turn that could be stored; what was wrong with it.
    Dropped(DropReason, String),
    /// The store did not take it; it may later.
    Store(StoreError),
}

impl Engine {
    /// Stores an exchange as a turn; returns the provider whose format it speaks.
    ///
    /// # Errors
    /// See [`CaptureError`]. A turn that the store did not take may be tried again.
    pub fn capture(&self, x: &Exchange) -> Result<&'static str, CaptureError> {
        let provider = provider_of(&x.path);
        let dropped = |reason, why: String| CaptureError::Dropped(reason, why);
        let decoded = decode_wire(&x.request.0, &x.request.1)
            .map_err(|e| dropped(DropReason::RequestDecode, e))?;
        let text = String::from_utf8_lossy(&decoded.bytes);
        let text = scrub(&text).into_owned();
        let request: Value = serde_json::from_str(&text)
            .map_err(|e| dropped(DropReason::RequestDecode, e.to_string()))?;
        let asked = provider::parse_request(provider, &request)
            .map_err(|e| dropped(DropReason::RequestDecode, e.to_string()))?;
        if x.response.0.is_empty() {
            return Err(match &x.ended {
                Ended::Whole => dropped(DropReason::EmptyResponse, "no bytes".into()),
                Ended::ClientGone => dropped(DropReason::ClientDisconnect, String::new()),
                Ended::Broken(e) => dropped(DropReason::UpstreamNoResponse, e.clone()),
            });
        }
        let body = decode_wire(&x.response.0, &x.response.1)
            .map_err(|e| dropped(DropReason::ResponseDecode, e))?;
        let mut response = provider::reduce_at(provider, &x.path, &body.bytes, &x.content_type)
            .map_err(|e| match &x.ended {
                Ended::ClientGone => dropped(DropReason::ClientDisconnect, e.to_string()),
                _ => dropped(DropReason::ReducerError, e.to_string()),
            })?;
        if !response.is_usable() {
            return Err(match &x.ended {
                Ended::ClientGone => dropped(DropReason::ClientDisconnect, String::new()),
                _ => dropped(DropReason::EmptyResponse, "no message in it".into()),
            });
        }
        if response.model.is_empty() {
            response.model = asked.model.clone();
        }
        let usage = response.usage.get_or_insert_default();
        usage.total_duration_ns = (x.elapsed * 1e9) as i64;
        let end = x.started + (x.elapsed * 1e6) as i64;
        response.created_at = format_micros(end);
        let problem = match &x.ended {
            Ended::Whole if body.salvaged => Some("the answer's coding ended early".to_owned()),
            Ended::Whole => None,
            Ended::ClientGone => Some("the client went away".to_owned()),
            Ended::Broken(e) => Some(e.clone()),
        };
        if let Some(p) = problem {
            response.extra.insert("reducer_error".into(), p.into());
        }

        let mut session = x
            .session
            .clone()
            .or_else(|| attribution::from_request(&request))
            .unwrap_or_else(|| Envelope {
                harness_id: "unknown".into(),
                ..Envelope::default()
            });
        if session.cwd.is_empty() {
            session.cwd = attribution::working_directory(&session.harness_id, &request);
        }
        if session.harness_session_id.is_empty() {
            // The row shows the id that the session gets.
            let own = conversation_id(provider, &request, &response);
            session.harness_session_id = own.unwrap_or_default();
        }
        session.text = attribution::block_text(&session);
        let meta = meta_of(x, Deriver::leaf_hash(&asked, &response));
        let response_text = serde_json::to_string(&response).ok();
        let withheld = x.response.0.len() > MAX_RAW_RESPONSE_BYTES;
        let turn = IngestTurn {
            provider: provider.into(),
            agent_name: x.agent_name.clone(),
            request: Some(text),
            raw_response: if withheld {
                Vec::new()
            } else {
                x.response.0.clone()
            },
            raw_response_encoding: x.response.1.clone(),
            raw_response_withheld: withheld,
            meta_text: Value::Object(meta.clone()).to_string(),
            meta,
            session: Some(session),
            ..IngestTurn::default()
        };
        // As at the ingest API: one that cannot be processed is kept, and makes no session.
        let valid = provider::validate_response(&response);
        self.keep_turn(
            turn,
            Some(&request),
            &response,
            response_text,
            valid.is_ok(),
        )
        .map_err(CaptureError::Store)?;
        valid.map_err(|e| dropped(DropReason::ReducerError, e))?;
        Ok(provider)
    }
}

/// Facts about the exchange, under the names of the ingest API.
fn meta_of(x: &Exchange, request_id: String) -> Map<String, Value> {
    let mut meta = Map::new();
    for (key, value) in [
        ("request_id", request_id.as_str()),
        ("upstream_request_id", &x.upstream_request_id),
        ("thread_id", &x.thread_id),
        ("method", "POST"),
        ("path", &x.path),
        ("content_type", &x.content_type),
        ("content_encoding", &x.response.1),
        ("upstream_status_class", "2xx"),
        ("ts_request", &format_micros(x.started)),
    ] {
        if !value.is_empty() {
            meta.insert(key.into(), value.into());
        }
    }
    meta.insert("upstream_status".into(), json!(200));
    meta.insert("request_bytes".into(), json!(x.request.0.len()));
    meta.insert("response_bytes".into(), json!(x.response.0.len()));
    meta.insert("elapsed_seconds".into(), json!(x.elapsed));
    meta
}
