//! OpenAI Responses: requests, one-shot answers and streams.

use serde_json::{Map, Value, json};

use super::{ProviderError, bool_opt, count_of, int_of, map_of, str_of, string_of};
use crate::block::{ChatRequest, ChatResponse, ContentBlock, Message, Usage};
use crate::sse;

pub(super) fn parse_request(o: &Map<String, Value>) -> Result<ChatRequest, ProviderError> {
    let messages = match o.get("input") {
        Some(Value::String(s)) => vec![Message {
            role: "user".into(),
            content: vec![ContentBlock::text(s.as_str())],
        }],
        Some(Value::Array(items)) => items.iter().filter_map(item_message).collect(),
        _ => {
            return Err(ProviderError::Request(
                "responses input is neither string nor item array".into(),
            ));
        }
    };
    Ok(ChatRequest {
        messages,
        system: string_of(o, "instructions"),
        tools: count_of(o, "tools"),
        max_tokens: o.get("max_output_tokens").and_then(Value::as_i64),
        stream: bool_opt(o, "stream")?,
        tool_choice: o.get("tool_choice").cloned(),
        responses_endpoint: true,
        model: string_of(o, "model"),
    })
}

/// One input item as a message; `None` where it is not an object.
pub fn item_message(item: &Value) -> Option<Message> {
    let o = item.as_object()?;
    let role = str_of(o, "role");
    let kind = str_of(o, "type");
    let message = |role: &str, block: ContentBlock| Message {
        role: role.into(),
        content: vec![block],
    };
    Some(match kind {
        "message" => Message {
            role: role.into(),
            content: parts(o.get("content")),
        },
        "" if !role.is_empty() => Message {
            role: role.into(),
            content: parts(o.get("content")),
        },
        "function_call" => message("assistant", function_call(o, item)),
        "function_call_output" => message("tool", call_output(o, false)),
        "custom_tool_call" => message("assistant", custom_call(o)),
        "custom_tool_call_output" => message("tool", call_output(o, true)),
        "reasoning" => message("assistant", reasoning(o)),
        other => message("assistant", preserved(other, item)),
    })
}

fn preserved(kind: &str, item: &Value) -> ContentBlock {
    ContentBlock {
        content: Some(item.clone()),
        ..ContentBlock::of(kind)
    }
}

fn parts(content: Option<&Value>) -> Vec<ContentBlock> {
    match content {
        Some(Value::String(s)) => vec![ContentBlock::text(s.as_str())],
        Some(Value::Array(a)) => a.iter().filter_map(Value::as_object).map(part).collect(),
        _ => Vec::new(),
    }
}

fn part(p: &Map<String, Value>) -> ContentBlock {
    let kind = str_of(p, "type");
    match kind {
        "input_text" | "output_text" | "summary_text" => ContentBlock::text(string_of(p, "text")),
        "refusal" => ContentBlock {
            text: string_of(p, "refusal"),
            ..ContentBlock::of("refusal")
        },
        "input_image" => ContentBlock {
            image_url: string_of(p, "image_url"),
            ..ContentBlock::of("image")
        },
        other => ContentBlock {
            text: string_of(p, "text"),
            ..ContentBlock::of(other)
        },
    }
}

fn function_call(o: &Map<String, Value>, item: &Value) -> ContentBlock {
    let mut b = ContentBlock {
        tool_use_id: string_of(o, "call_id"),
        tool_name: string_of(o, "name"),
        ..ContentBlock::of("tool_use")
    };
    match serde_json::from_str::<Value>(str_of(o, "arguments")) {
        Ok(Value::Object(input)) => b.tool_input = input,
        Ok(Value::Null) => {}
        _ => b.content = Some(item.clone()),
    }
    b
}

fn custom_call(o: &Map<String, Value>) -> ContentBlock {
    let mut b = ContentBlock {
        tool_use_id: string_of(o, "call_id"),
        tool_name: string_of(o, "name"),
        ..ContentBlock::of("tool_use")
    };
    let input = str_of(o, "input");
    if !input.is_empty() {
        b.tool_input.insert("input".into(), json!(input));
    }
    b
}

fn call_output(o: &Map<String, Value>, custom: bool) -> ContentBlock {
    let output = match o.get("output") {
        Some(Value::String(s)) => s.clone(),
        Some(Value::Array(a)) if custom => a.iter().filter_map(|p| p["text"].as_str()).collect(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    ContentBlock {
        tool_result_id: string_of(o, "call_id"),
        tool_output: output,
        ..ContentBlock::of("tool_result")
    }
}

fn reasoning(o: &Map<String, Value>) -> ContentBlock {
    let thinking = o
        .get("summary")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|s| s["text"].as_str())
        .collect::<Vec<_>>()
        .join("\n");
    ContentBlock {
        thinking,
        thinking_signature: string_of(o, "encrypted_content"),
        ..ContentBlock::of("thinking")
    }
}

/// Rewrites custom tool items that an answer keeps verbatim into calls and results.
pub fn normalize_custom(block: &ContentBlock) -> ContentBlock {
    let Some(o) = block.content.as_ref().and_then(Value::as_object) else {
        return block.clone();
    };
    if str_of(o, "call_id").is_empty() {
        return block.clone();
    }
    match block.kind.as_str() {
        "custom_tool_call" => custom_call(o),
        "custom_tool_call_output" => call_output(o, true),
        _ => block.clone(),
    }
}

/// The blocks of one output item of an answer.
pub fn output_item(item: &Value) -> Vec<ContentBlock> {
    let Some(o) = item.as_object() else {
        return vec![preserved("unparsed", item)];
    };
    match str_of(o, "type") {
        "message" => parts(o.get("content")),
        "function_call" => vec![function_call(o, item)],
        "reasoning" => vec![reasoning(o)],
        other => vec![preserved(other, item)],
    }
}

/// OpenAI's counters; `prompt_tokens` already includes what was cached.
pub fn usage(u: &Map<String, Value>) -> Usage {
    let prompt = int_of(u, "input_tokens");
    let completion = int_of(u, "output_tokens");
    let total = int_of(u, "total_tokens");
    Usage {
        prompt_tokens: prompt,
        completion_tokens: completion,
        total_tokens: if total == 0 {
            prompt + completion
        } else {
            total
        },
        cache_read_input_tokens: int_of(&map_of(u, "input_tokens_details"), "cached_tokens"),
        ..Usage::default()
    }
}

fn created_at(o: &Map<String, Value>) -> String {
    let seconds = int_of(o, "created_at");
    if seconds <= 0 {
        return String::new();
    }
    crate::time::format_micros(seconds.saturating_mul(1_000_000))
}

fn response_object(o: &Map<String, Value>, items: &[Value]) -> ChatResponse {
    let own = o.get("output").and_then(Value::as_array);
    let output: Vec<&Value> = match own {
        Some(a) if !a.is_empty() => a.iter().collect(),
        _ => items.iter().collect(),
    };
    let status = str_of(o, "status");
    let stop_reason = match status {
        "completed" => "stop".to_owned(),
        "incomplete" => {
            let reason = string_of(&map_of(o, "incomplete_details"), "reason");
            if reason.is_empty() {
                "incomplete".into()
            } else {
                reason
            }
        }
        other => other.to_owned(),
    };
    let mut extra = Map::new();
    for key in ["id", "object", "status"] {
        extra.insert(key.into(), json!(str_of(o, key)));
    }
    ChatResponse {
        model: string_of(o, "model"),
        created_at: created_at(o),
        message: Message {
            role: "assistant".into(),
            content: output.into_iter().flat_map(output_item).collect(),
        },
        done: true,
        stop_reason,
        usage: o.get("usage").and_then(Value::as_object).map(usage),
        extra,
        ..ChatResponse::default()
    }
}

/// Whether an answer is a stream: by its content type, else by how it begins.
pub(super) fn is_stream(body: &[u8], content_type: &str) -> bool {
    let ct = content_type.to_ascii_lowercase();
    if ct.contains("event-stream") || ct.contains("ndjson") {
        return true;
    }
    if ct.contains("json") {
        return false;
    }
    let head = body[..body.len().min(16)].trim_ascii_start();
    head.starts_with(b"event:") || head.starts_with(b"data:")
}

/// Reduces a verbatim answer, streamed or not.
pub fn reduce(body: &[u8], content_type: &str) -> Result<ChatResponse, ProviderError> {
    if is_stream(body, content_type) {
        return Ok(reduce_stream(body));
    }
    let v: Value =
        serde_json::from_slice(body).map_err(|e| ProviderError::Response(e.to_string()))?;
    match v.as_object() {
        Some(o) if str_of(o, "object") == "response" => Ok(response_object(o, &[])),
        _ => Err(ProviderError::Response(
            "the answer is not a Responses object".into(),
        )),
    }
}

fn reduce_stream(body: &[u8]) -> ChatResponse {
    let (events, read_error) = sse::events(body);
    let mut items = Vec::new();
    let mut text = String::new();
    let mut created = Map::new();
    let mut reason = "stream ended without a terminal event".to_owned();
    for event in events {
        let Ok(v) = serde_json::from_str::<Value>(&event.data) else {
            continue;
        };
        let kind = if event.name.is_empty() {
            v["type"].as_str().unwrap_or_default()
        } else {
            event.name.as_str()
        };
        match kind {
            "response.output_item.done" => items.push(v["item"].clone()),
            "response.output_text.delta" => {
                text.push_str(v["delta"].as_str().unwrap_or_default());
            }
            "response.created" => {
                created = v["response"].as_object().cloned().unwrap_or_default();
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                match v["response"].as_object() {
                    Some(o) => return response_object(o, &items),
                    None => {
                        reason = format!("{kind} without a response object");
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    let mut content: Vec<ContentBlock> = items.iter().flat_map(output_item).collect();
    if items.is_empty() && !text.is_empty() {
        content.push(ContentBlock::text(text));
    }
    let mut extra = Map::new();
    extra.insert("partial".into(), json!(true));
    extra.insert("reducer_error".into(), json!(read_error.unwrap_or(reason)));
    ChatResponse {
        model: string_of(&created, "model"),
        created_at: created_at(&created),
        message: Message {
            role: "assistant".into(),
            content,
        },
        extra,
        ..ChatResponse::default()
    }
}
