//! Ollama chat: requests.

use serde_json::{Map, Value};

use super::{ProviderError, bool_opt, count_of, map_of, messages_of, object, string_of};
use crate::block::{ChatRequest, ContentBlock, Message};

/// Reads a chat request. A `format` that is not a string is refused, as the reference does.
pub fn parse_request(request: &Value) -> Result<ChatRequest, ProviderError> {
    let o = object(request)?;
    for key in ["format", "keep_alive"] {
        if !matches!(o.get(key), None | Some(Value::Null | Value::String(_))) {
            return Err(ProviderError::Request(format!("{key} is not a string")));
        }
    }
    let options = map_of(o, "options");
    Ok(ChatRequest {
        messages: messages_of(o)?
            .iter()
            .filter_map(Value::as_object)
            .map(message)
            .collect(),
        tools: count_of(o, "tools"),
        max_tokens: options.get("num_predict").and_then(Value::as_i64),
        stream: bool_opt(o, "stream")?,
        model: string_of(o, "model"),
        ..ChatRequest::default()
    })
}

fn message(m: &Map<String, Value>) -> Message {
    let mut content = Vec::new();
    let text = string_of(m, "content");
    if !text.is_empty() {
        content.push(ContentBlock::text(text));
    }
    for image in m
        .get("images")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        content.push(ContentBlock {
            image_base64: image.as_str().unwrap_or_default().into(),
            ..ContentBlock::of("image")
        });
    }
    for call in m
        .get("tool_calls")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
    {
        let function = map_of(call, "function");
        content.push(ContentBlock {
            tool_use_id: string_of(call, "id"),
            tool_name: string_of(&function, "name"),
            tool_input: map_of(&function, "arguments"),
            ..ContentBlock::of("tool_use")
        });
    }
    Message {
        role: string_of(m, "role"),
        content,
    }
}
