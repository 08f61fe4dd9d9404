//! OpenAI requests: Chat Completions, or Responses where `input` stands instead of `messages`.

use serde_json::{Map, Value};

use super::{
    ProviderError, bool_opt, content_items, count_of, map_of, messages_of, object, responses,
    str_of, string_of,
};
use crate::block::{ChatRequest, ContentBlock, Message};

/// Reads a request of either API.
pub fn parse_request(request: &Value) -> Result<ChatRequest, ProviderError> {
    let o = object(request)?;
    let given = |key| !matches!(o.get(key), None | Some(Value::Null));
    if given("input") && !given("messages") {
        return responses::parse_request(o);
    }
    Ok(ChatRequest {
        messages: messages_of(o)?
            .iter()
            .filter_map(Value::as_object)
            .map(message)
            .collect(),
        tools: count_of(o, "tools"),
        max_tokens: o.get("max_tokens").and_then(Value::as_i64),
        stream: bool_opt(o, "stream")?,
        model: string_of(o, "model"),
        ..ChatRequest::default()
    })
}

fn message(m: &Map<String, Value>) -> Message {
    let role = string_of(m, "role");
    let call_id = str_of(m, "tool_call_id");
    if role == "tool" && !call_id.is_empty() {
        return Message {
            role,
            content: vec![ContentBlock {
                tool_result_id: call_id.into(),
                tool_output: string_of(m, "content"),
                ..ContentBlock::of("tool_result")
            }],
        };
    }
    let mut content = match m.get("content") {
        Some(Value::String(s)) => vec![ContentBlock::text(s.as_str())],
        Some(other) => content_items(other)
            .into_iter()
            .filter_map(Value::as_object)
            .map(part)
            .collect(),
        None => Vec::new(),
    };
    for call in m
        .get("tool_calls")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
    {
        let function = map_of(call, "function");
        if let Ok(input) = serde_json::from_str(str_of(&function, "arguments")) {
            content.push(ContentBlock {
                tool_use_id: string_of(call, "id"),
                tool_name: string_of(&function, "name"),
                tool_input: input,
                ..ContentBlock::of("tool_use")
            });
        }
    }
    Message { role, content }
}

fn part(p: &Map<String, Value>) -> ContentBlock {
    match str_of(p, "type") {
        "image_url" => ContentBlock {
            image_url: string_of(&map_of(p, "image_url"), "url"),
            ..ContentBlock::of("image")
        },
        other => ContentBlock {
            text: string_of(p, "text"),
            ..ContentBlock::of(other)
        },
    }
}
