//! Taking in one captured turn or transcript: reduce, redact, store durably, then judge.

use serde_json::{Map, Value, json};
use weft_capture::decode::{decode, decode_wire};
use weft_capture::envelope::{self, Envelope, IngestTurn, MAX_RAW_RESPONSE_BYTES};
use weft_capture::repository;
use weft_core::block::{ChatResponse, Usage};
use weft_core::derive::{Deriver, elapsed_seconds};
use weft_core::provider;
use weft_core::redact::{redact, redact_value};
use weft_core::time::{format_micros, parse_micros};
use weft_store::{NewSession, NewTurn, SessionKey, StoreError};

use crate::Engine;
use crate::clock::{new_id, now};

/// Why a turn was not accepted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IngestError {
    /// The body is not an envelope; nothing was stored.
    #[error("invalid envelope: {0}")]
    Envelope(String),
    /// The turn cannot be processed; it is stored nevertheless.
    #[error("unprocessable turn: {0}")]
    Unprocessable(String),
    /// The provider is unknown; the turn is stored nevertheless.
    #[error("unprocessable turn: {0}")]
    UnknownProvider(String),
    /// Too many turns wait to be stored; nothing was stored.
    #[error("downstream failure: worker queue full")]
    QueueFull,
    /// The turn could not be stored.
    #[error("storage failure: {0}")]
    Store(StoreError),
}

impl From<StoreError> for IngestError {
    fn from(e: StoreError) -> Self {
        match e {
            StoreError::QueueFull => Self::QueueFull,
            e => Self::Store(e),
        }
    }
}

/// What the sender of a transcript is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptAck {
    /// Whether these very records were stored before.
    pub deduped: bool,
    /// Number of records.
    pub records: usize,
    /// The subagent; "" = main.
    pub agent_id: String,
}

/// Redacts JSON text; the text stays as it is where it holds no secret.
fn redact_json(text: String) -> (String, bool) {
    let Ok(mut v) = serde_json::from_str::<Value>(&text) else {
        return match redact(&text) {
            Some(clean) => (clean, true),
            None => (text, false),
        };
    };
    if redact_value(&mut v) == 0 {
        return (text, false);
    }
    (v.to_string(), true)
}

/// Reduces verbatim bytes where the producer sent nothing else; a failure is only logged.
fn reduce_raw(turn: &IngestTurn) -> Option<ChatResponse> {
    let reduced = decode(&turn.raw_response, &turn.raw_response_encoding).and_then(|d| {
        let content_type = turn.meta.get("content_type").and_then(Value::as_str);
        provider::reduce(&turn.provider, &d.bytes, content_type.unwrap_or_default())
            .map_err(|e| e.to_string())
    });
    let mut response = match reduced {
        Ok(r) => r,
        Err(e) => {
            tracing::warn!(error = %e, provider = %turn.provider, "raw response kept, not reduced");
            return None;
        }
    };
    let elapsed = elapsed_seconds(&turn.meta);
    if let Some(s) = elapsed {
        let usage = response.usage.get_or_insert_with(Usage::default);
        usage.total_duration_ns = (s * 1e9) as i64;
    }
    let time = |k: &str| {
        turn.meta
            .get(k)
            .and_then(Value::as_str)
            .and_then(parse_micros)
    };
    let created = time("captured_at")
        .or_else(|| time("ts_request").map(|t| t + (elapsed.unwrap_or_default() * 1e6) as i64));
    if let Some(t) = created {
        response.created_at = format_micros(t);
    }
    Some(response)
}

/// Whether the decoded bytes hold a secret, or cannot be looked at.
fn bytes_hold_secret(bytes: &[u8], encoding: &str) -> bool {
    match decode_wire(bytes, encoding) {
        Ok(d) => redact(&String::from_utf8_lossy(&d.bytes)).is_some(),
        Err(_) => true,
    }
}

impl Engine {
    /// Takes in the body of `POST /v1/ingest`; returns its provider when it is durably stored.
    ///
    /// # Errors
    /// See [`IngestError`]; an unprocessable turn is stored before it is refused.
    pub fn ingest_turn(&self, body: &[u8]) -> Result<String, IngestError> {
        let turn = envelope::turn(body).map_err(IngestError::Envelope)?;
        let mut response = turn.response.clone();
        let mut response_text = turn.response_text.clone();
        if response.is_absent()
            && !turn.raw_response.is_empty()
            && let Some(reduced) = reduce_raw(&turn)
        {
            response_text = serde_json::to_string(&reduced).ok();
            response = reduced;
        }

        let request: Option<Value> = turn
            .request
            .as_deref()
            .and_then(|r| serde_json::from_str(r).ok());
        let provider = turn.provider.clone();
        let problem = check(&provider, request.as_ref(), &response);
        // A turn that cannot be processed makes no session.
        let makes_session = problem.is_none();
        self.keep_turn(
            turn,
            request.as_ref(),
            &response,
            response_text,
            makes_session,
        )?;
        match problem {
            None => Ok(provider),
            Some(e) => Err(e),
        }
    }

    /// Takes the secrets out of a turn and stores it durably.
    pub(crate) fn keep_turn(
        &self,
        turn: IngestTurn,
        request: Option<&Value>,
        response: &ChatResponse,
        response_text: Option<String>,
        makes_session: bool,
    ) -> Result<(), StoreError> {
        let mut secrets = false;
        let mut clean = |text: Option<String>| {
            text.map(|t| {
                let (t, found) = redact_json(t);
                secrets |= found;
                t
            })
        };
        let raw_request = clean(turn.request.clone());
        let response_text = clean(response_text);
        let response_secrets = response_text
            .as_deref()
            .is_some_and(|t| t.contains("[REDACTED:"));
        let mut bytes = Some(turn.raw_response).filter(|b| !b.is_empty());
        let mut dropped = turn.raw_response_withheld && bytes.is_none();
        if bytes.as_ref().is_some_and(|b| {
            b.len() > MAX_RAW_RESPONSE_BYTES
                || response_secrets
                || bytes_hold_secret(b, &turn.raw_response_encoding)
        }) {
            // The verbatim bytes cannot be redacted without becoming something else.
            (bytes, dropped) = (None, true);
        }

        let session = turn
            .session
            .as_ref()
            .map(|s| session_of(s, || conversation_id(&turn.provider, request?, response)));
        let row = NewTurn {
            source: "wire",
            provider: turn.provider,
            agent_name: turn.agent_name,
            harness_id: session
                .as_ref()
                .map_or_else(String::new, |s| s.key.harness_id.clone()),
            harness_session_id: session
                .as_ref()
                .map_or_else(String::new, |s| s.key.harness_session_id.clone()),
            request_id: meta_str(&turn.meta, "request_id"),
            raw_request,
            response: response_text,
            meta: redact_json(turn.meta_text).0,
            session_envelope: turn.session.map(|s| redact_json(s.text).0),
            received_at: now(),
            raw_response: bytes,
            raw_response_encoding: turn.raw_response_encoding,
            raw_response_dropped: dropped,
            session: session.filter(|s| makes_session && !s.key.harness_session_id.is_empty()),
        };
        if secrets {
            tracing::info!(provider = %row.provider, "secrets redacted from a captured turn");
        }
        self.store.insert_turn(row)?;
        self.wake.derive();
        Ok(())
    }

    /// Takes in the body of `POST /v1/ingest/transcript`.
    ///
    /// # Errors
    /// See [`IngestError`].
    pub fn ingest_transcript(
        &self,
        body: &[u8],
        auth_subject: &str,
    ) -> Result<TranscriptAck, IngestError> {
        let t = envelope::transcript(body, auth_subject).map_err(IngestError::Envelope)?;
        let mut meta = Map::new();
        meta.insert("transcript".into(), json!(true));
        for (k, v) in [
            ("agent_id", &t.agent_id),
            ("agent_type", &t.agent_type),
            ("description", &t.description),
            ("tool_use_id", &t.tool_use_id),
            ("kind", &t.kind),
        ] {
            if !v.is_empty() {
                meta.insert(k.into(), json!(v));
            }
        }
        meta.insert("records".into(), json!(t.count));
        let s = &t.session;
        let mut envelope = json!({"org_id": "", "auth_subject": s.auth_subject,
            "harness_id": s.harness_id, "harness_session_id": s.harness_session_id});
        for (k, v) in [
            ("harness_version", &s.harness_version),
            ("cwd", &s.cwd),
            ("name", &s.name),
        ] {
            if !v.is_empty() {
                envelope[k] = json!(v);
            }
        }
        if let Some(p) = &s.parent_harness_session_id {
            envelope["parent_harness_session_id"] = json!(p);
        }
        if !s.harness_metadata.is_empty() {
            envelope["harness_metadata"] = Value::Object(s.harness_metadata.clone());
        }
        let inserted = self.store.insert_turn(NewTurn {
            source: "transcript",
            harness_id: s.harness_id.clone(),
            harness_session_id: s.harness_session_id.clone(),
            request_id: t.request_id,
            raw_request: Some(redact_json(t.records).0),
            meta: redact_json(Value::Object(meta).to_string()).0,
            session_envelope: Some(redact_json(envelope.to_string()).0),
            received_at: now(),
            ..NewTurn::default()
        })?;
        self.wake.derive();
        Ok(TranscriptAck {
            deduped: !inserted,
            records: t.count,
            agent_id: t.agent_id,
        })
    }
}

fn meta_str(meta: &Map<String, Value>, key: &str) -> String {
    meta.get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Why a turn cannot be processed, if it cannot.
fn check(provider: &str, request: Option<&Value>, response: &ChatResponse) -> Option<IngestError> {
    let null = Value::Null;
    match provider::parse_request(provider, request.unwrap_or(&null)) {
        Err(e @ provider::ProviderError::Unsupported(_)) => {
            return Some(IngestError::UnknownProvider(e.to_string()));
        }
        Err(e) => return Some(IngestError::Unprocessable(e.to_string())),
        Ok(_) => {}
    }
    provider::validate_response(response)
        .err()
        .map(|e| IngestError::Unprocessable(format!("invalid reduced response: {e}")))
}

/// The id of a session whose producer gives none: the beginning of its first message's hash.
pub(crate) fn conversation_id(
    provider: &str,
    request: &Value,
    response: &ChatResponse,
) -> Option<String> {
    Deriver::root_hash(provider, request, response).map(|h| h[..16].to_owned())
}

/// The session row of a turn; `own_id` is asked where its producer gives no id.
fn session_of(e: &Envelope, own_id: impl FnOnce() -> Option<String>) -> NewSession {
    let sid = if e.harness_session_id.is_empty() {
        own_id().unwrap_or_default()
    } else {
        e.harness_session_id.clone()
    };
    let mut metadata = Value::Object(e.harness_metadata.clone());
    redact_value(&mut metadata);
    let at = now();
    NewSession {
        new_id: new_id(),
        new_parent_id: new_id(),
        key: SessionKey {
            harness_id: e.harness_id.clone(),
            harness_session_id: sid,
        },
        auth_subject: e.auth_subject.clone(),
        name: redact(&e.name).unwrap_or_else(|| e.name.clone()),
        cwd: e.cwd.clone(),
        harness_version: e.harness_version.clone(),
        parent: e.parent_harness_session_id.clone().unwrap_or_default(),
        metadata: metadata.as_object().cloned().unwrap_or_default(),
        repository: repository::identity(&e.cwd, ""),
        source_path: String::new(),
        started_at: at,
        last_seen_at: at,
    }
}
