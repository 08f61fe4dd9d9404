//! A conversation that is read message by message, cut into calls of the model.

use serde_json::{Map, Value, json};
use weft_core::block::{ChatResponse, ContentBlock, Message, Usage};
use weft_core::time::Micros;

use super::{ImportedTurn, Sink, short_hash, times};

/// One answer of the model.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Its id in the transcript; "" = made from its place and content.
    pub(super) id: String,
    /// What was said and called.
    pub(super) blocks: Vec<ContentBlock>,
    /// The model, where the transcript names it.
    pub(super) model: String,
    /// Tokens, where the transcript has them.
    pub(super) usage: Option<Usage>,
    /// When it was complete.
    pub(super) at: Micros,
}

/// A conversation of one session and thread.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    /// The harness id.
    pub(super) harness: &'static str,
    /// Id of the session.
    pub(super) session: String,
    /// Working directory.
    pub(super) cwd: String,
    /// Version of the harness.
    pub(super) version: String,
    /// Title.
    pub(super) name: String,
    /// The session that spawned this one.
    pub(super) parent: String,
    /// The subagent; "" = main.
    pub(super) thread: String,
    input: Vec<Value>,
    input_at: Option<Micros>,
    calls: usize,
}

impl Dialogue {
    /// A conversation of an agent's session in a folder.
    pub(super) fn new(harness: &'static str, session: &str, cwd: &str) -> Self {
        Self {
            harness,
            session: session.to_owned(),
            cwd: cwd.to_owned(),
            ..Self::default()
        }
    }

    /// Takes what a user said.
    pub(super) fn user(&mut self, text: &str, at: Micros) {
        if !text.trim().is_empty() {
            self.message(json!(text), at);
        }
    }

    /// Takes a user message in Anthropic's shape: a text or blocks.
    pub(super) fn message(&mut self, content: Value, at: Micros) {
        self.input_at.get_or_insert(at);
        self.input.push(json!({"role": "user", "content": content}));
    }

    /// Takes the result of a call.
    pub(super) fn result(&mut self, id: &str, output: &str, is_error: bool, at: Micros) {
        let block = json!({"type": "tool_result", "tool_use_id": id, "content": output, "is_error": is_error});
        let last = self
            .input
            .last_mut()
            .and_then(|m| m["content"].as_array_mut());
        match last {
            Some(blocks) => blocks.push(block),
            None => self.message(json!([block]), at),
        }
    }

    /// Takes an answer, and gives the call that it ends. An empty one is left out.
    pub(super) fn answer(&mut self, a: Answer, sink: Sink<'_>) -> Result<(), String> {
        if a.blocks.is_empty() {
            return Ok(());
        }
        self.calls += 1;
        let input = std::mem::take(&mut self.input);
        let started = self.input_at.take().map_or(a.at, |t| t.min(a.at));
        let body = serde_json::to_string(&a.blocks).unwrap_or_default();
        let id = if a.id.is_empty() {
            let place = self.calls.to_string();
            format!(
                "{}_{}",
                self.harness,
                short_hash(&[&self.session, &self.thread, &place, &body])
            )
        } else {
            a.id
        };
        let mut meta = Map::new();
        let place = short_hash(&[&self.session, &self.thread]);
        let identity = format!("{id}-{}", &place[..6]);
        for (k, v) in [
            ("message_id", id.as_str()),
            ("identity", &identity),
            ("thread_id", &self.thread),
            ("model", &a.model),
        ] {
            if !v.is_empty() {
                meta.insert(k.into(), json!(v));
            }
        }
        // The id is the transcript's own: on the wire the answer had another one.
        meta.insert("local_id".into(), json!(true));
        times(&mut meta, started, a.at);
        let stop_reason = match a.blocks.iter().any(ContentBlock::is_tool_use) {
            true => "tool_use",
            false => "end_turn",
        };
        let mut usage = a.usage.unwrap_or_default();
        usage.total_duration_ns = (a.at - started).max(0) * 1000;
        sink(ImportedTurn {
            harness_session_id: self.session.clone(),
            provider: "anthropic",
            request_id: format!(
                "import:{}:{id}:{}",
                self.harness,
                short_hash(&[&self.session, &self.thread, &body])
            ),
            request: json!({"model": a.model, "messages": input}),
            response: ChatResponse {
                model: a.model,
                message: Message {
                    role: "assistant".into(),
                    content: a.blocks,
                },
                done: true,
                stop_reason: stop_reason.into(),
                usage: Some(usage),
                ..ChatResponse::default()
            },
            meta,
            cwd: self.cwd.clone(),
            version: self.version.clone(),
            name: self.name.clone(),
            parent: self.parent.clone(),
            started_at: started,
            ended_at: a.at,
            ..ImportedTurn::default()
        })
    }
}

/// A call of a tool.
pub(super) fn call(id: &str, name: &str, input: &Value) -> ContentBlock {
    ContentBlock {
        tool_use_id: id.into(),
        tool_name: name.into(),
        tool_input: match input {
            Value::Object(o) => o.clone(),
            Value::String(s) => serde_json::from_str(s).unwrap_or_default(),
            _ => Map::new(),
        },
        ..ContentBlock::of("tool_use")
    }
}

/// A thought.
pub(super) fn thought(text: &str) -> ContentBlock {
    ContentBlock {
        thinking: text.into(),
        ..ContentBlock::of("thinking")
    }
}
