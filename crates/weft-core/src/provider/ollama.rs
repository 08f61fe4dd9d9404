//! Ollama chat: requests, and answers, one-shot and streamed.

use serde_json::{Map, Value};

use super::{
    ProviderError, bool_opt, count_of, int_of, map_of, messages_of, object, objects, str_of,
    string_of,
};
use crate::block::{ChatRequest, ChatResponse, ContentBlock, Message, Usage};
use crate::sse::MAX_LINE;

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
    for call in objects(m, "tool_calls") {
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

/// Reduces a verbatim answer: one JSON object, or one a line.
///
/// Thinking is kept in `extra.reasoning`: clients do not send it back, so as a block it would part
/// the conversation.
pub fn reduce(body: &[u8]) -> Result<ChatResponse, ProviderError> {
    if let Ok(Value::Object(whole)) = serde_json::from_slice(body) {
        let mut stream = Stream::default();
        stream.apply(&whole);
        return Ok(stream.finish(None));
    }
    let mut stream = Stream::default();
    let mut error = None;
    let mut read = false;
    for line in body.split(|b| *b == b'\n').map(<[u8]>::trim_ascii) {
        if line.is_empty() {
            continue;
        }
        if line.len() > MAX_LINE {
            error = Some(format!("line exceeds {MAX_LINE} bytes"));
            break;
        }
        match serde_json::from_slice(line) {
            Ok(Value::Object(chunk)) => {
                stream.apply(&chunk);
                read = true;
            }
            Ok(_) => error = Some("a line is not a JSON object".into()),
            Err(e) => error = Some(e.to_string()),
        }
    }
    match error {
        Some(e) if !read => Err(ProviderError::Response(e)),
        error => Ok(stream.finish(error)),
    }
}

#[derive(Default)]
struct Stream {
    message: Message,
    text: String,
    thinking: String,
    calls: Vec<ContentBlock>,
    images: Vec<ContentBlock>,
    model: String,
    created_at: String,
    done: bool,
    stop_reason: String,
    usage: Option<Usage>,
    error: String,
}

impl Stream {
    fn apply(&mut self, chunk: &Map<String, Value>) {
        let m = map_of(chunk, "message");
        self.text.push_str(str_of(&m, "content"));
        self.thinking.push_str(str_of(&m, "thinking"));
        let whole = message(&m);
        if !whole.role.is_empty() {
            self.message.role = whole.role;
        }
        for block in whole.content {
            match block.kind.as_str() {
                "tool_use" => self.calls.push(block),
                "image" => self.images.push(block),
                _ => {}
            }
        }
        for (to, key) in [
            (&mut self.model, "model"),
            (&mut self.created_at, "created_at"),
            (&mut self.error, "error"),
        ] {
            let value = str_of(chunk, key);
            if !value.is_empty() {
                *to = value.into();
            }
        }
        if chunk.get("done").and_then(Value::as_bool) == Some(true) {
            self.done = true;
            self.stop_reason = match str_of(chunk, "done_reason") {
                "" => "stop".into(),
                reason => reason.into(),
            };
            let (prompt, completion) = (
                int_of(chunk, "prompt_eval_count"),
                int_of(chunk, "eval_count"),
            );
            if prompt > 0 || completion > 0 {
                self.usage = Some(Usage {
                    prompt_tokens: prompt,
                    completion_tokens: completion,
                    total_tokens: prompt + completion,
                    total_duration_ns: int_of(chunk, "total_duration"),
                    prompt_duration_ns: int_of(chunk, "prompt_eval_duration"),
                    ..Usage::default()
                });
            }
        }
    }

    fn finish(mut self, read_error: Option<String>) -> ChatResponse {
        let mut extra = Map::new();
        if !self.done {
            extra.insert("incomplete".into(), true.into());
        }
        for (key, value) in [
            ("reasoning", self.thinking),
            ("error", self.error),
            ("reducer_error", read_error.unwrap_or_default()),
        ] {
            if !value.is_empty() {
                extra.insert(key.into(), value.into());
            }
        }
        if self.message.role.is_empty() {
            self.message.role = "assistant".into();
        }
        if !self.text.is_empty() {
            self.message.content.push(ContentBlock::text(self.text));
        }
        self.message.content.extend(self.images);
        self.message.content.extend(self.calls);
        ChatResponse {
            model: self.model,
            created_at: self.created_at,
            message: self.message,
            done: self.done,
            stop_reason: self.stop_reason,
            usage: self.usage,
            extra,
            ..ChatResponse::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_one_message() {
        let body = concat!(
            r#"{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"Hel","thinking":"hm"},"done":false}"#,
            "\r\n\n",
            r#"{"model":"m","message":{"role":"assistant","content":"lo","tool_calls":[{"function":{"name":"f","arguments":{"x":1}}}]},"done":false}"#,
            "\n",
            r#"{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"length","prompt_eval_count":5,"eval_count":2,"total_duration":9}"#,
        );
        let r = reduce(body.as_bytes()).expect("reduced");
        assert!(r.done && r.stop_reason == "length");
        assert_eq!(r.message.content[0], ContentBlock::text("Hello"));
        assert_eq!(r.message.content[1].tool_input["x"], 1);
        assert_eq!(r.extra["reasoning"], "hm");
        assert_eq!(r.usage.map(|u| u.total_tokens), Some(7));
        let cut = reduce(&body.as_bytes()[..body.len() - 30]).expect("cut");
        assert!(!cut.done && cut.extra.contains_key("reducer_error"));
        assert!(reduce(b"nonsense").is_err());
    }
}
