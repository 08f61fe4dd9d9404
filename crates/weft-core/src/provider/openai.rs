//! OpenAI requests: Chat Completions, or Responses where `input` stands instead of `messages`; and the
//! answers of Chat Completions, one-shot and streamed.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    ProviderError, bool_opt, content_items, count_of, int_of, map_of, messages_of, object, objects,
    responses, str_of, string_of,
};
use crate::block::{ChatRequest, ChatResponse, ContentBlock, Message, Usage};
use crate::sse;

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
    let mut content = content_of(m);
    for call in objects(m, "tool_calls") {
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

/// The content of a message: a string or parts.
fn content_of(m: &Map<String, Value>) -> Vec<ContentBlock> {
    match m.get("content") {
        Some(Value::String(s)) => vec![ContentBlock::text(s.as_str())],
        Some(other) => content_items(other)
            .into_iter()
            .filter_map(Value::as_object)
            .map(part)
            .collect(),
        None => Vec::new(),
    }
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

/// Reduces a verbatim Chat Completions answer, streamed or not. Of several choices the first counts.
///
/// Reasoning that some servers add (`reasoning_content`, `reasoning`) is kept in `extra.reasoning`:
/// clients do not send it back, so as a block it would part the conversation.
pub fn reduce(body: &[u8], content_type: &str) -> Result<ChatResponse, ProviderError> {
    if responses::is_stream(body, content_type) {
        return Ok(reduce_stream(body));
    }
    let v: Value =
        serde_json::from_slice(body).map_err(|e| ProviderError::Response(e.to_string()))?;
    let o = v
        .as_object()
        .ok_or_else(|| ProviderError::Response("the answer is not a JSON object".into()))?;
    let choice = o
        .get("choices")
        .and_then(|c| c.get(0))
        .and_then(Value::as_object);
    let mut extra = extra_of(o);
    Ok(ChatResponse {
        model: string_of(o, "model"),
        created_at: created(o),
        message: choice.map_or_else(Message::default, |c| {
            answer(&map_of(c, "message"), &mut extra)
        }),
        done: true,
        stop_reason: choice
            .map(|c| string_of(c, "finish_reason"))
            .unwrap_or_default(),
        usage: o.get("usage").and_then(Value::as_object).map(usage),
        extra,
        ..ChatResponse::default()
    })
}

fn extra_of(o: &Map<String, Value>) -> Map<String, Value> {
    ["id", "object"]
        .into_iter()
        .map(|k| (k.to_owned(), json!(str_of(o, k))))
        .collect()
}

fn created(o: &Map<String, Value>) -> String {
    match int_of(o, "created") {
        s if s > 0 => crate::time::format_micros(s.saturating_mul(1_000_000)),
        _ => String::new(),
    }
}

/// OpenAI's counters of Chat Completions; `prompt_tokens` already includes what was cached.
fn usage(u: &Map<String, Value>) -> Usage {
    let (prompt, completion) = (int_of(u, "prompt_tokens"), int_of(u, "completion_tokens"));
    Usage {
        prompt_tokens: prompt,
        completion_tokens: completion,
        total_tokens: match int_of(u, "total_tokens") {
            0 => prompt + completion,
            n => n,
        },
        cache_read_input_tokens: int_of(&map_of(u, "prompt_tokens_details"), "cached_tokens"),
        ..Usage::default()
    }
}

/// The message of an answer; what has no block of its own goes to `extra`.
fn answer(m: &Map<String, Value>, extra: &mut Map<String, Value>) -> Message {
    let mut content = match m.get("content") {
        // Beside tool calls, no text is often an empty one.
        Some(Value::String(s)) if s.is_empty() => Vec::new(),
        _ => content_of(m),
    };
    let refusal = str_of(m, "refusal");
    if !refusal.is_empty() {
        content.push(ContentBlock {
            text: refusal.into(),
            ..ContentBlock::of("refusal")
        });
    }
    let mut errors = Vec::new();
    for call in objects(m, "tool_calls") {
        content.push(tool_call(call, &mut errors));
    }
    if !errors.is_empty() {
        extra.insert("tool_input_parse_errors".into(), errors.into());
    }
    let reasoning = ["reasoning_content", "reasoning"]
        .into_iter()
        .map(|k| str_of(m, k))
        .find(|r| !r.is_empty());
    if let Some(r) = reasoning {
        extra.insert("reasoning".into(), r.into());
    }
    let role = match str_of(m, "role") {
        "" => "assistant",
        role => role,
    };
    Message {
        role: role.into(),
        content,
    }
}

/// One call; arguments that are no JSON object leave the input unset and are noted.
fn tool_call(call: &Map<String, Value>, errors: &mut Vec<Value>) -> ContentBlock {
    let mut b = ContentBlock {
        tool_use_id: string_of(call, "id"),
        ..ContentBlock::of("tool_use")
    };
    let custom = map_of(call, "custom");
    if !custom.is_empty() {
        b.tool_name = string_of(&custom, "name");
        b.tool_input
            .insert("input".into(), json!(str_of(&custom, "input")));
        return b;
    }
    let function = map_of(call, "function");
    b.tool_name = string_of(&function, "name");
    let arguments = str_of(&function, "arguments");
    if !arguments.trim().is_empty() {
        match serde_json::from_str(arguments) {
            Ok(input) => b.tool_input = input,
            Err(e) => errors.push(json!({
                "tool_use_id": b.tool_use_id, "raw": arguments, "error": e.to_string(),
            })),
        }
    }
    b
}

/// A streamed choice: the strings of its deltas joined, its tool calls by their index.
#[derive(Default)]
struct Choice {
    message: Map<String, Value>,
    calls: BTreeMap<i64, Value>,
    finish_reason: String,
}

/// Appends a string member of a delta to what is there.
fn append(to: &mut Value, key: &str, piece: &str) {
    match to.get_mut(key) {
        Some(Value::String(s)) => s.push_str(piece),
        _ => to[key] = piece.into(),
    }
}

impl Choice {
    fn apply(&mut self, choice: &Value) {
        let delta = &choice["delta"];
        if let Some(role) = delta["role"].as_str().filter(|r| !r.is_empty()) {
            self.message.insert("role".into(), role.into());
        }
        for key in ["content", "refusal", "reasoning_content", "reasoning"] {
            if let Some(piece) = delta[key].as_str().filter(|p| !p.is_empty()) {
                match self.message.get_mut(key) {
                    Some(Value::String(s)) => s.push_str(piece),
                    _ => drop(self.message.insert(key.into(), piece.into())),
                }
            }
        }
        for (at, call) in delta["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
        {
            let index = call["index"].as_i64().unwrap_or(at as i64);
            let known = self.calls.entry(index).or_insert_with(|| json!({}));
            if let Some(id) = call["id"].as_str().filter(|i| !i.is_empty()) {
                known["id"] = id.into();
            }
            for (kind, keys) in [
                ("function", ["name", "arguments"]),
                ("custom", ["name", "input"]),
            ] {
                for key in keys {
                    if let Some(piece) = call[kind][key].as_str().filter(|p| !p.is_empty()) {
                        if !known[kind].is_object() {
                            known[kind] = json!({});
                        }
                        append(&mut known[kind], key, piece);
                    }
                }
            }
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish_reason = reason.into();
        }
    }
}

fn reduce_stream(body: &[u8]) -> ChatResponse {
    let (events, read_error) = sse::events(body);
    let mut head = Map::new();
    let mut choice = Choice::default();
    let mut tokens = None;
    let mut done = false;
    let mut error = None;
    for event in events {
        if event.data.trim() == "[DONE]" {
            done = true;
            continue;
        }
        let Ok(Value::Object(chunk)) = serde_json::from_str(&event.data) else {
            continue;
        };
        if let Some(e) = chunk.get("error").filter(|e| !e.is_null()) {
            error = Some(e.clone());
        }
        if let Some(u) = chunk.get("usage").and_then(Value::as_object) {
            tokens = Some(usage(u));
        }
        for c in chunk
            .get("choices")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter(|c| c["index"].as_i64().unwrap_or_default() == 0)
        {
            choice.apply(c);
        }
        if head.is_empty() {
            head = chunk;
        }
    }
    choice.message.insert(
        "tool_calls".into(),
        choice.calls.into_values().collect::<Vec<_>>().into(),
    );
    let mut extra = extra_of(&head);
    let message = answer(&choice.message, &mut extra);
    // Some servers end without a reason, some without the last line.
    let done = (done || !choice.finish_reason.is_empty()) && error.is_none();
    if !done {
        extra.insert("incomplete".into(), true.into());
    }
    for (key, value) in [
        ("error", error),
        ("reducer_error", read_error.map(Value::from)),
    ] {
        if let Some(v) = value {
            extra.insert(key.into(), v);
        }
    }
    ChatResponse {
        model: string_of(&head, "model"),
        created_at: created(&head),
        message,
        done,
        stop_reason: choice.finish_reason,
        usage: tokens,
        extra,
        ..ChatResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_deltas_become_one_message() {
        let chunks = [
            json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}}]}),
            json!({"choices": [{"index": 0, "delta": {"content": "lo", "reasoning_content": "hm"}},
                {"index": 1, "delta": {"content": "other"}}]}),
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [
                {"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}},
                {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":"}}]}}]}),
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [
                {"index": 0, "function": {"arguments": "1}"}}]}, "finish_reason": "tool_calls"}]}),
            json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 3}}}),
        ];
        let mut body: String = chunks.iter().map(|c| format!("data: {c}\n\n")).collect();
        let cut = reduce(&body.as_bytes()[..body.len() / 2], "text/event-stream").expect("cut");
        assert!(!cut.done && cut.extra["incomplete"] == true);
        body.push_str("data: [DONE]\n\n");
        let r = reduce(body.as_bytes(), "text/event-stream").expect("whole");
        assert!(r.done && r.stop_reason == "tool_calls" && r.model == "m");
        let blocks = &r.message.content;
        assert_eq!(blocks[0], ContentBlock::text("Hello"));
        assert_eq!(blocks[1].tool_input["x"], 1);
        assert_eq!((blocks[2].tool_name.as_str(), blocks.len()), ("g", 3));
        assert_eq!(r.extra["reasoning"], "hm");
        let u = r.usage.expect("usage");
        assert_eq!((u.total_tokens, u.cache_read_input_tokens), (7, 3));
    }

    #[test]
    fn one_shot_answers() {
        let body = json!({"id": "c", "object": "chat.completion", "model": "m", "created": 1_700_000_000,
            "choices": [{"message": {"role": "assistant", "content": null, "refusal": "no",
                "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{bad"}}]},
                "finish_reason": "stop"}]});
        let r = reduce(body.to_string().as_bytes(), "application/json").expect("reduced");
        assert_eq!(r.message.content[0].text, "no");
        assert_eq!(r.extra["tool_input_parse_errors"][0]["raw"], "{bad");
        assert_eq!(r.created_at, "2023-11-14T22:13:20Z");
        let none = reduce(br#"{"model": "m", "choices": []}"#, "").expect("no choices");
        assert!(!none.is_usable() && none.done);
        assert!(reduce(b"[1]", "application/json").is_err());
    }
}
