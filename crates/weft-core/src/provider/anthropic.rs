//! Anthropic Messages: requests, one-shot answers and streams.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    ProviderError, bool_opt, content_items, count_of, int_of, map_of, messages_of, object, str_of,
    string_of,
};
use crate::block::{ChatRequest, ChatResponse, ContentBlock, Message, Usage};
use crate::sse;

/// Reads a Messages request.
pub fn parse_request(request: &Value) -> Result<ChatRequest, ProviderError> {
    let o = object(request)?;
    let system = match o.get("system") {
        Some(Value::String(s)) => s.clone(),
        Some(Value::Array(blocks)) => join_text(blocks.iter().filter(|b| b["type"] == "text")),
        _ => String::new(),
    };
    Ok(ChatRequest {
        messages: messages_of(o)?.iter().map(message).collect(),
        system,
        tools: count_of(o, "tools"),
        max_tokens: Some(int_of(o, "max_tokens")),
        stream: bool_opt(o, "stream")?,
        model: string_of(o, "model"),
        ..ChatRequest::default()
    })
}

fn join_text<'a>(blocks: impl Iterator<Item = &'a Value>) -> String {
    blocks
        .filter_map(|b| b["text"].as_str())
        .filter(|t| !t.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// One message of a request or of a transcript record.
pub fn message(m: &Value) -> Message {
    Message {
        role: m["role"].as_str().unwrap_or_default().to_owned(),
        content: content(&m["content"]),
    }
}

/// A content member: a string or blocks.
pub fn content(content: &Value) -> Vec<ContentBlock> {
    match content {
        Value::String(s) => vec![ContentBlock::text(s.as_str())],
        other => content_items(other)
            .into_iter()
            .filter_map(Value::as_object)
            .map(block)
            .collect(),
    }
}

/// The text of a tool result: a string, or its text parts.
pub fn tool_output(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(s)) => s.clone(),
        Some(other) => join_text(
            content_items(other)
                .into_iter()
                .filter(|b| b["type"] == "text"),
        ),
        None => String::new(),
    }
}

fn block(o: &Map<String, Value>) -> ContentBlock {
    let mut b = ContentBlock::of(str_of(o, "type"));
    match b.kind.as_str() {
        "image" => {
            let source = map_of(o, "source");
            b.media_type = string_of(&source, "media_type");
            b.image_base64 = string_of(&source, "data");
        }
        "thinking" => {
            b.thinking = string_of(o, "thinking");
            b.thinking_signature = string_of(o, "signature");
        }
        "tool_use" | "server_tool_use" => {
            b.tool_use_id = string_of(o, "id");
            b.tool_name = string_of(o, "name");
            b.tool_input = map_of(o, "input");
        }
        "tool_result" => {
            b.tool_result_id = string_of(o, "tool_use_id");
            b.is_error = o.get("is_error").and_then(Value::as_bool).unwrap_or(false);
            b.tool_output = tool_output(o.get("content"));
        }
        "web_search_tool_result" => {
            b.tool_result_id = string_of(o, "tool_use_id");
            b.content = o.get("content").cloned();
        }
        _ => b.text = string_of(o, "text"),
    }
    b
}

/// Anthropic's counters; `prompt_tokens` includes both cache counters.
pub fn usage(u: &Map<String, Value>) -> Usage {
    let creation = int_of(u, "cache_creation_input_tokens");
    let read = int_of(u, "cache_read_input_tokens");
    let prompt = int_of(u, "input_tokens") + creation + read;
    let completion = int_of(u, "output_tokens");
    Usage {
        prompt_tokens: prompt,
        completion_tokens: completion,
        total_tokens: prompt + completion,
        cache_creation_input_tokens: creation,
        cache_read_input_tokens: read,
        ..Usage::default()
    }
}

/// Reduces a verbatim answer, streamed or not.
pub fn reduce(body: &[u8], content_type: &str) -> Result<ChatResponse, ProviderError> {
    let ct = content_type.to_ascii_lowercase();
    if ct.contains("event-stream") || ct.contains("ndjson") {
        Ok(reduce_stream(body))
    } else {
        reduce_one_shot(body)
    }
}

fn reduce_one_shot(body: &[u8]) -> Result<ChatResponse, ProviderError> {
    let v: Value =
        serde_json::from_slice(body).map_err(|e| ProviderError::Response(e.to_string()))?;
    let o = v
        .as_object()
        .ok_or_else(|| ProviderError::Response("the answer is not a JSON object".into()))?;
    let mut extra = Map::new();
    extra.insert("id".into(), json!(str_of(o, "id")));
    let kind = str_of(o, "type");
    let is_error = kind == "error";
    extra.insert(
        "type".into(),
        json!(if kind.is_empty() { "message" } else { kind }),
    );
    let message = if is_error {
        Message::default()
    } else {
        Message {
            role: string_of(o, "role"),
            content: content(o.get("content").unwrap_or(&Value::Null)),
        }
    };
    Ok(ChatResponse {
        model: string_of(o, "model"),
        message,
        done: true,
        stop_reason: string_of(o, "stop_reason"),
        usage: Some(usage(&map_of(o, "usage"))),
        extra,
        raw_response: Some(v),
        ..ChatResponse::default()
    })
}

#[derive(Default)]
struct Stream {
    id: String,
    model: String,
    role: String,
    stop_reason: String,
    stop_sequence: Option<String>,
    blocks: BTreeMap<i64, (ContentBlock, String)>,
    usage: Usage,
    done: bool,
    error: Option<Value>,
    input_errors: Vec<Value>,
}

impl Stream {
    fn apply(&mut self, kind: &str, v: &Value) {
        let index = v["index"].as_i64().unwrap_or_default();
        match kind {
            "message_start" => {
                let m = &v["message"];
                self.id = m["id"].as_str().unwrap_or_default().into();
                self.model = m["model"].as_str().unwrap_or_default().into();
                self.role = m["role"].as_str().unwrap_or_default().into();
                if let Some(u) = m["usage"].as_object() {
                    self.usage = Usage {
                        completion_tokens: self.usage.completion_tokens,
                        ..usage(u)
                    };
                }
            }
            "content_block_start" => {
                let mut b = v["content_block"]
                    .as_object()
                    .map(start_block)
                    .unwrap_or_default();
                if b.kind.is_empty() {
                    b.kind = "text".into();
                }
                self.blocks.insert(index, (b, String::new()));
            }
            "content_block_delta" => {
                let (b, json) = self
                    .blocks
                    .entry(index)
                    .or_insert_with(|| (ContentBlock::of("text"), String::new()));
                let d = &v["delta"];
                let piece = |key: &str| d[key].as_str().unwrap_or_default().to_owned();
                match d["type"].as_str().unwrap_or_default() {
                    "text_delta" => b.text.push_str(&piece("text")),
                    "thinking_delta" => b.thinking.push_str(&piece("thinking")),
                    "signature_delta" => b.thinking_signature.push_str(&piece("signature")),
                    "input_json_delta" => json.push_str(&piece("partial_json")),
                    _ => {}
                }
            }
            "content_block_stop" => self.stop_block(index),
            "message_delta" => {
                let d = &v["delta"];
                if let Some(reason) = d["stop_reason"].as_str().filter(|r| !r.is_empty()) {
                    self.stop_reason = reason.into();
                }
                if let Some(sequence) = d["stop_sequence"].as_str() {
                    self.stop_sequence = Some(sequence.into());
                }
                if let Some(n) = v["usage"]["output_tokens"].as_i64() {
                    self.usage.completion_tokens = n;
                }
            }
            "message_stop" => self.done = true,
            "error" => {
                let e = &v["error"];
                self.error = Some(json!({"type": e["type"], "message": e["message"]}));
                if self.stop_reason.is_empty() {
                    self.stop_reason = "error".into();
                }
            }
            _ => {}
        }
    }

    fn stop_block(&mut self, index: i64) {
        let Some((b, json)) = self.blocks.get_mut(&index) else {
            return;
        };
        if !b.is_tool_use() || json.is_empty() {
            return;
        }
        match serde_json::from_str::<Map<String, Value>>(json) {
            Ok(input) => b.tool_input = input,
            Err(e) => self.input_errors.push(json!({
                "tool_use_id": b.tool_use_id, "raw": json, "error": e.to_string(),
            })),
        }
    }

    fn finish(mut self, read_error: Option<String>) -> ChatResponse {
        let mut extra = Map::new();
        extra.insert("id".into(), json!(self.id));
        extra.insert("type".into(), json!("message"));
        if let Some(s) = self.stop_sequence {
            extra.insert("stop_sequence".into(), json!(s));
        }
        if !self.input_errors.is_empty() {
            extra.insert("tool_input_parse_errors".into(), json!(self.input_errors));
        }
        if !self.done && self.error.is_none() {
            extra.insert("incomplete".into(), json!(true));
            if self.stop_reason.is_empty() {
                self.stop_reason = "incomplete".into();
            }
        }
        if let Some(e) = self.error {
            extra.insert("error".into(), e);
        }
        if let Some(e) = read_error {
            extra.insert("reducer_error".into(), json!(e));
        }
        self.usage.total_tokens = self.usage.prompt_tokens + self.usage.completion_tokens;
        ChatResponse {
            model: self.model,
            message: Message {
                role: if self.role.is_empty() {
                    "assistant".into()
                } else {
                    self.role
                },
                content: self.blocks.into_values().map(|(b, _)| b).collect(),
            },
            done: self.done,
            stop_reason: self.stop_reason,
            usage: Some(self.usage),
            extra,
            ..ChatResponse::default()
        }
    }
}

/// The opening of a streamed block; an unknown type keeps its type only.
fn start_block(o: &Map<String, Value>) -> ContentBlock {
    let b = block(o);
    match b.kind.as_str() {
        "text" | "thinking" | "tool_use" | "server_tool_use" | "web_search_tool_result" => b,
        _ => ContentBlock::of(&b.kind),
    }
}

fn reduce_stream(body: &[u8]) -> ChatResponse {
    let (events, read_error) = sse::events(body);
    let mut stream = Stream::default();
    for event in events {
        match serde_json::from_str::<Value>(&event.data) {
            Ok(v) => {
                let kind = if event.name.is_empty() {
                    v["type"].as_str().unwrap_or_default().to_owned()
                } else {
                    event.name
                };
                stream.apply(&kind, &v);
            }
            Err(e) if stream.error.is_none() => {
                stream.error =
                    Some(json!({"type": "reducer_parse_error", "message": e.to_string()}));
            }
            Err(_) => {}
        }
    }
    stream.finish(read_error)
}
