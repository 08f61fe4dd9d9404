//! Provider formats, requests and answers, into neutral blocks.

pub mod anthropic;
pub mod ollama;
pub mod openai;
pub mod responses;

use serde_json::{Map, Value};

use crate::block::{ChatRequest, ChatResponse};

/// The providers whose requests can be read, in the order in which errors list them.
pub const PROVIDERS: [&str; 3] = ["anthropic", "openai", "ollama"];

/// Why a provider's JSON could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProviderError {
    /// The provider is not one of [`PROVIDERS`].
    #[error("unsupported provider {0:?} (supported: [anthropic openai ollama])")]
    Unsupported(String),
    /// The request is not what the provider's API takes.
    #[error("cannot parse request: {0}")]
    Request(String),
    /// The answer cannot be reduced to one message.
    #[error("{0}")]
    Response(String),
}

/// Reads a provider's request.
pub fn parse_request(provider: &str, request: &Value) -> Result<ChatRequest, ProviderError> {
    match provider {
        "anthropic" => anthropic::parse_request(request),
        "openai" => openai::parse_request(request),
        "ollama" => ollama::parse_request(request),
        other => Err(ProviderError::Unsupported(other.to_owned())),
    }
}

/// Whether answers of this provider can be reduced from their verbatim bytes.
pub fn has_reducer(provider: &str) -> bool {
    matches!(provider, "anthropic" | "openai")
}

/// Reduces a provider's verbatim, already decoded answer.
pub fn reduce(
    provider: &str,
    body: &[u8],
    content_type: &str,
) -> Result<ChatResponse, ProviderError> {
    match provider {
        "anthropic" => anthropic::reduce(body, content_type),
        "openai" => responses::reduce(body, content_type),
        other => Err(ProviderError::Response(format!(
            "no reducer for provider {other:?}"
        ))),
    }
}

/// Checks that a reduced response has what derivation needs.
pub fn validate_response(response: &ChatResponse) -> Result<(), String> {
    if response.message.role.is_empty() {
        return Err("missing response.message.role".into());
    }
    if response.message.content.is_empty() {
        return Err("missing response.message.content".into());
    }
    for (i, block) in response.message.content.iter().enumerate() {
        if block.kind.is_empty() {
            return Err(format!("missing response.message.content[{i}].type"));
        }
    }
    Ok(())
}

/// Reduces the verbatim, already decoded answer of a call of a provider's endpoint, one-shot or streamed.
///
/// `path` is the path as the provider saw it. It tells Chat Completions from Responses.
///
/// # Errors
/// [`ProviderError::Response`] where the answer is none of the endpoint's.
pub fn reduce_at(
    provider: &str,
    path: &str,
    body: &[u8],
    content_type: &str,
) -> Result<ChatResponse, ProviderError> {
    match provider {
        "ollama" => ollama::reduce(body),
        "openai" if path.contains("/chat/completions") => openai::reduce(body, content_type),
        _ => reduce(provider, body, content_type),
    }
}

pub(crate) fn object(v: &Value) -> Result<&Map<String, Value>, ProviderError> {
    v.as_object()
        .ok_or_else(|| ProviderError::Request("the request is not a JSON object".into()))
}

pub(crate) fn str_of<'a>(o: &'a Map<String, Value>, key: &str) -> &'a str {
    o.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn string_of(o: &Map<String, Value>, key: &str) -> String {
    str_of(o, key).to_owned()
}

pub(crate) fn int_of(o: &Map<String, Value>, key: &str) -> i64 {
    o.get(key)
        .and_then(|v| v.as_i64().or_else(|| v.as_f64().map(|f| f as i64)))
        .unwrap_or_default()
}

pub(crate) fn map_of(o: &Map<String, Value>, key: &str) -> Map<String, Value> {
    o.get(key)
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

/// The objects of a member that is a list.
pub(crate) fn objects<'a>(
    o: &'a Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a Map<String, Value>> {
    let list = o.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_object)
}

/// A member that must be an array of objects when it is there.
pub(crate) fn messages_of(o: &Map<String, Value>) -> Result<&[Value], ProviderError> {
    match o.get("messages") {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(a)) => Ok(a),
        Some(_) => Err(ProviderError::Request("messages is not an array".into())),
    }
}

pub(crate) fn bool_opt(o: &Map<String, Value>, key: &str) -> Result<Option<bool>, ProviderError> {
    match o.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(b)) => Ok(Some(*b)),
        Some(_) => Err(ProviderError::Request(format!("{key} is not a boolean"))),
    }
}

pub(crate) fn count_of(o: &Map<String, Value>, key: &str) -> usize {
    o.get(key).and_then(Value::as_array).map_or(0, Vec::len)
}

/// Content that some writer stored as an object with the keys "0", "1", … read as the array it was.
pub(crate) fn content_items(content: &Value) -> Vec<&Value> {
    match content {
        Value::Array(a) => a.iter().collect(),
        Value::Object(o) if o.keys().all(|k| k.parse::<usize>().is_ok()) => {
            let mut items: Vec<(usize, &Value)> = o
                .iter()
                .filter_map(|(k, v)| Some((k.parse().ok()?, v)))
                .collect();
            items.sort_by_key(|(i, _)| *i);
            items.into_iter().map(|(_, v)| v).collect()
        }
        Value::Object(_) => vec![content],
        _ => Vec::new(),
    }
}
