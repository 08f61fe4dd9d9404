//! The bodies of the ingest API, decoded leniently and checked in the order that clients see.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use weft_core::block::ChatResponse;

use crate::json::{RawObject, get, scrub};

/// Verbatim response bytes that are kept at most.
pub const MAX_RAW_RESPONSE_BYTES: usize = 8_388_608;

/// A session as a producer describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Envelope {
    /// Who runs the agent.
    pub auth_subject: String,
    /// The agent program; `unknown` where the producer did not say.
    pub harness_id: String,
    /// Its id of the session.
    pub harness_session_id: String,
    /// Its version.
    pub harness_version: String,
    /// Working directory.
    pub cwd: String,
    /// Name of the session.
    pub name: String,
    /// The session that this one belongs to; `Some("")` is refused.
    pub parent_harness_session_id: Option<String>,
    /// Further facts.
    pub harness_metadata: Map<String, Value>,
    /// The block as it was sent, scrubbed.
    pub text: String,
}

/// One turn as it was posted.
#[derive(Clone, Debug, Default)]
pub struct IngestTurn {
    /// `anthropic`, `openai`, `ollama`, or something unknown.
    pub provider: String,
    /// Name of the agent.
    pub agent_name: String,
    /// Request body, scrubbed; `None` where it was not sent.
    pub request: Option<String>,
    /// Reduced response, decoded.
    pub response: ChatResponse,
    /// Reduced response as it was sent, scrubbed.
    pub response_text: Option<String>,
    /// Upstream bytes, still encoded.
    pub raw_response: Vec<u8>,
    /// Their content encoding.
    pub raw_response_encoding: String,
    /// Whether the producer kept bytes back.
    pub raw_response_withheld: bool,
    /// Facts about the exchange.
    pub meta: Map<String, Value>,
    /// The same as it was sent, scrubbed.
    pub meta_text: String,
    /// Session block.
    pub session: Option<Envelope>,
}

/// A transcript file as it was posted.
#[derive(Clone, Debug, Default)]
pub struct IngestTranscript {
    /// Session block.
    pub session: Envelope,
    /// The subagent; "" = main.
    pub agent_id: String,
    /// Kind of subagent.
    pub agent_type: String,
    /// What it was asked.
    pub description: String,
    /// Spawning call.
    pub tool_use_id: String,
    /// `interacted` marks an inert re-entry.
    pub kind: String,
    /// The records, scrubbed.
    pub records: String,
    /// Number of records.
    pub count: usize,
    /// Dedupe key.
    pub request_id: String,
}

fn wrong(name: &str, want: &str, v: &Value) -> String {
    let got = match v {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("cannot read {got} into {name} of type {want}")
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(&scrub(text)).map_err(|e| e.to_string())
}

fn string(o: &RawObject<'_>, name: &str) -> Result<String, String> {
    match o.get(name) {
        None => Ok(String::new()),
        Some(text) => match parse(text)? {
            Value::String(s) => Ok(s),
            v => Err(wrong(name, "string", &v)),
        },
    }
}

fn member(o: &Map<String, Value>, scope: &str, name: &str) -> Result<String, String> {
    match get(o, name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(s)) => Ok(s.clone()),
        Some(v) => Err(wrong(&format!("{scope}.{name}"), "string", v)),
    }
}

/// Spells the member names of a reduced response as the format has them.
fn fold_names(v: Value) -> Value {
    const NAMES: [&str; 30] = [
        "model",
        "created_at",
        "message",
        "done",
        "stop_reason",
        "usage",
        "extra",
        "raw_response",
        "role",
        "content",
        "type",
        "text",
        "image_url",
        "image_base64",
        "media_type",
        "tool_use_id",
        "tool_name",
        "tool_input",
        "tool_result_id",
        "tool_output",
        "is_error",
        "thinking",
        "thinking_signature",
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "total_duration_ns",
        "prompt_duration_ns",
    ];
    match v {
        Value::Object(o) => {
            let mut out = Map::new();
            for (k, v) in o {
                let keep = matches!(k.as_str(), "extra" | "raw_response" | "tool_input");
                let name = NAMES
                    .iter()
                    .find(|n| n.eq_ignore_ascii_case(&k))
                    .map_or(k.clone(), |n| (*n).to_owned());
                out.insert(name, if keep { v } else { fold_names(v) });
            }
            Value::Object(out)
        }
        Value::Array(a) => Value::Array(a.into_iter().map(fold_names).collect()),
        v => v,
    }
}

fn response(text: &str) -> Result<ChatResponse, String> {
    let v = parse(text)?;
    if !v.is_object() {
        return Err(wrong("response", "object", &v));
    }
    // A block of the wrong type is refused whatever the case of its names.
    match serde_json::from_value::<ChatResponse>(v.clone()) {
        Ok(r) if r.is_absent() => serde_json::from_value(fold_names(v)).map_err(|e| e.to_string()),
        Ok(r) => Ok(r),
        Err(e) => Err(e.to_string()),
    }
}

const META_STRINGS: [&str; 13] = [
    "request_id",
    "upstream_request_id",
    "content_type",
    "thread_id",
    "method",
    "path",
    "endpoint",
    "model",
    "model_family",
    "stream",
    "content_encoding",
    "upstream_status_class",
    "ts_request",
];

fn meta(text: Option<&str>) -> Result<(Map<String, Value>, String), String> {
    let Some(text) = text else {
        return Ok((Map::new(), "{}".into()));
    };
    let text = scrub(text).into_owned();
    let mut o = match parse(&text)? {
        Value::Object(o) => o,
        v => return Err(wrong("meta", "object", &v)),
    };
    for name in META_STRINGS.into_iter().chain(["captured_at"]) {
        let value = member(&o, "meta", name)?;
        if !value.is_empty() {
            o.insert(name.into(), value.into());
        }
    }
    for name in ["upstream_status", "request_bytes", "response_bytes"] {
        match get(&o, name) {
            None | Some(Value::Null) => {}
            Some(v) if v.as_i64().is_some() => {}
            Some(v) => return Err(wrong(&format!("meta.{name}"), "int", v)),
        }
    }
    match get(&o, "elapsed_seconds").cloned() {
        None | Some(Value::Null) => {}
        Some(v) if v.is_number() => {
            o.insert("elapsed_seconds".into(), v);
        }
        Some(v) => return Err(wrong("meta.elapsed_seconds", "float", &v)),
    }
    Ok((o, text))
}

fn envelope(text: &str) -> Result<Envelope, String> {
    let text = scrub(text).into_owned();
    let o = match parse(&text)? {
        Value::Object(o) => o,
        v => return Err(wrong("session", "object", &v)),
    };
    let s = |name| member(&o, "session", name);
    s("org_id")?;
    let parent = match get(&o, "parent_harness_session_id") {
        None | Some(Value::Null) => None,
        Some(Value::String(p)) => Some(p.clone()),
        Some(v) => return Err(wrong("session.parent_harness_session_id", "string", v)),
    };
    let mut harness_id = s("harness_id")?;
    if harness_id.is_empty() {
        harness_id = "unknown".into();
    }
    let e = Envelope {
        auth_subject: s("auth_subject")?,
        harness_id,
        harness_session_id: s("harness_session_id")?,
        harness_version: s("harness_version")?,
        cwd: s("cwd")?,
        name: s("name")?,
        parent_harness_session_id: parent,
        harness_metadata: match get(&o, "harness_metadata") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(m)) => m.clone(),
            Some(_) => Map::new(),
        },
        text,
    };
    if e.parent_harness_session_id.as_deref() == Some("") {
        return Err(
            "parent_harness_session_id is present but empty; omit the field instead".into(),
        );
    }
    match get(&o, "harness_metadata") {
        None | Some(Value::Null | Value::Object(_)) => Ok(e),
        Some(v) => Err(format!(
            "harness_metadata is not a JSON object: {}",
            wrong("harness_metadata", "object", v)
        )),
    }
}

/// Decodes the body of `POST /v1/ingest`.
///
/// # Errors
/// The reason that follows `invalid envelope: `.
pub fn turn(body: &[u8]) -> Result<IngestTurn, String> {
    let body = String::from_utf8_lossy(body);
    let o = RawObject::read(&body).map_err(|e| e.to_string())?;
    let raw_response = match o.get("raw_response") {
        None => Vec::new(),
        Some(_) => STANDARD
            .decode(string(&o, "raw_response")?.replace(['\r', '\n'], ""))
            .map_err(|e| format!("raw_response is not base64: {e}"))?,
    };
    let withheld = match o.get("raw_response_withheld") {
        None => false,
        Some(t) => match parse(t)? {
            Value::Bool(b) => b,
            v => return Err(wrong("raw_response_withheld", "bool", &v)),
        },
    };
    let (meta, meta_text) = meta(o.get("meta"))?;
    Ok(IngestTurn {
        provider: string(&o, "provider")?,
        agent_name: string(&o, "agent_name")?,
        request: o.get("request").map(|t| scrub(t).into_owned()),
        response: o
            .get("response")
            .map(response)
            .transpose()?
            .unwrap_or_default(),
        response_text: o.get("response").map(|t| scrub(t).into_owned()),
        raw_response,
        raw_response_encoding: string(&o, "raw_response_encoding")?,
        raw_response_withheld: withheld,
        meta,
        meta_text,
        session: o.get("session").map(envelope).transpose()?,
    })
}

/// Decodes the body of `POST /v1/ingest/transcript`; a non-empty `auth_subject` replaces the body's.
///
/// # Errors
/// The reason that follows `invalid envelope: `.
pub fn transcript(body: &[u8], auth_subject: &str) -> Result<IngestTranscript, String> {
    let text = String::from_utf8_lossy(body);
    let o = RawObject::read(&text).map_err(|e| e.to_string())?;
    let mut t = IngestTranscript {
        agent_id: string(&o, "agent_id")?,
        agent_type: string(&o, "agent_type")?,
        description: string(&o, "description")?,
        tool_use_id: string(&o, "tool_use_id")?,
        kind: string(&o, "kind")?,
        session: o
            .get("session")
            .map(envelope)
            .transpose()?
            .unwrap_or_default(),
        ..IngestTranscript::default()
    };
    if !auth_subject.is_empty() {
        t.session.auth_subject = auth_subject.into();
    }
    if t.session.harness_session_id.is_empty() {
        return Err("transcript ingest requires session.harness_session_id".into());
    }
    let records = o.get("records").unwrap_or("null");
    let list: Vec<Value> = match serde_json::from_str(&scrub(records)) {
        Ok(Value::Array(a)) => a,
        Ok(v) => {
            return Err(format!(
                "records must be a JSON array: {}",
                wrong("records", "array", &v)
            ));
        }
        Err(e) => return Err(format!("records must be a JSON array: {e}")),
    };
    t.count = list.len();
    let agent = if t.agent_id.is_empty() {
        "main"
    } else {
        &t.agent_id
    };
    let hash = weft_core::hash::sha256_hex(records.as_bytes());
    t.request_id = format!(
        "transcript:{}:{agent}:{}",
        t.session.harness_session_id,
        &hash[..16]
    );
    t.records = scrub(records).into_owned();
    Ok(t)
}

/// Hex of the first bytes of a SHA-256, for ids made out of content.
pub(crate) fn short_hash(parts: &[&str]) -> String {
    let mut bytes = Vec::new();
    for p in parts {
        bytes.extend_from_slice(p.as_bytes());
        bytes.push(0);
    }
    weft_core::hash::sha256_hex(&bytes)[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lenient_in_names_strict_in_types() {
        let t = turn(
            br#"{"Provider":"openai","REQUEST":{"a":1},"session":{"Harness_Session_Id":"s"},"x":1,
            "response":{"Message":{"Role":"assistant","content":[{"Type":"text","text":"hi"}]}}}"#,
        )
        .expect("turn");
        assert_eq!(t.provider, "openai");
        assert_eq!(t.request.as_deref(), Some("{\"a\":1}"));
        let s = t.session.expect("session");
        assert_eq!(
            (s.harness_id.as_str(), s.harness_session_id.as_str()),
            ("unknown", "s")
        );
        assert_eq!(t.response.message.content[0].text, "hi");
        for bad in [
            r#"{"provider":1}"#,
            r#"{"meta":{"stream":true}}"#,
            r#"{"meta":{"elapsed_seconds":"1"}}"#,
            r#"{"meta":[]}"#,
            r#"{"session":3}"#,
            r#"{"response":{"message":3}}"#,
            r#"{"raw_response":"%%%"}"#,
            r#"{"raw_response_withheld":"x"}"#,
            r#"[]"#,
            r#""#,
            r#"{"a":1"#,
        ] {
            assert!(turn(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn envelope_rules_have_their_texts() {
        let e = |s: &str| turn(format!(r#"{{"session":{s}}}"#).as_bytes()).expect_err("refused");
        assert_eq!(
            e(r#"{"parent_harness_session_id":""}"#),
            "parent_harness_session_id is present but empty; omit the field instead"
        );
        assert!(
            e(r#"{"harness_metadata":[1]}"#).starts_with("harness_metadata is not a JSON object: ")
        );
        assert!(turn(br#"{"session":{"harness_metadata":null,"org_id":"nonsense"}}"#).is_ok());
    }

    #[test]
    fn a_transcript_is_named_by_the_exact_bytes_of_its_records() {
        let t = transcript(
            br#"{"session":{"harness_session_id":"s"},"records":[ {"a":"\u0000"} ]}"#,
            "me",
        )
        .expect("transcript");
        let want = &weft_core::hash::sha256_hex(br#"[ {"a":"\u0000"} ]"#)[..16];
        assert_eq!(t.request_id, format!("transcript:s:main:{want}"));
        assert_eq!((t.count, t.session.auth_subject.as_str()), (1, "me"));
        assert_eq!(
            transcript(b"{}", "").expect_err("no session"),
            "transcript ingest requires session.harness_session_id"
        );
        assert!(
            transcript(
                br#"{"session":{"harness_session_id":"s"},"records":{}}"#,
                ""
            )
            .expect_err("object")
            .starts_with("records must be a JSON array: ")
        );
    }
}
