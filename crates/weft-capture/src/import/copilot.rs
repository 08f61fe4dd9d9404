//! Transcripts of Copilot CLI: `~/.copilot/session-state/<session>/events.jsonl`.

use std::collections::HashMap;

use serde_json::Value;
use weft_core::block::{ContentBlock, Usage};
use weft_core::time::{Micros, parse_micros};

use super::dialogue::{Answer, Dialogue, call, thought};
use super::{Failure, Importer, Sink};

#[derive(Debug)]
pub(super) struct Copilot {
    main: Dialogue,
    /// Subagents by the call that started them.
    agents: HashMap<String, Dialogue>,
    model: String,
    last: Micros,
}

impl Default for Copilot {
    fn default() -> Self {
        Self {
            main: Dialogue::new("copilot", "", ""),
            agents: HashMap::new(),
            model: String::new(),
            last: 0,
        }
    }
}

impl Copilot {
    fn of(&mut self, data: &Value) -> &mut Dialogue {
        match data["parentToolCallId"].as_str() {
            Some(parent) if !parent.is_empty() => {
                let main = &self.main;
                self.agents.entry(parent.to_owned()).or_insert_with(|| {
                    let mut d = Dialogue::new("copilot", &main.session, &main.cwd);
                    parent.clone_into(&mut d.thread);
                    d
                })
            }
            _ => &mut self.main,
        }
    }
}

impl Importer for Copilot {
    fn record(&mut self, r: &Value, sink: Sink<'_>) -> Result<(), Failure> {
        let at = r["timestamp"]
            .as_str()
            .and_then(parse_micros)
            .unwrap_or(self.last);
        self.last = at;
        let d = &r["data"];
        let s = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        match r["type"].as_str().unwrap_or_default() {
            "session.start" | "session.resume" => {
                if let Some(id) = d["sessionId"].as_str() {
                    self.main.session = id.to_owned();
                }
                if let Some(v) = d["copilotVersion"].as_str() {
                    self.main.version = v.to_owned();
                }
                if let Some(cwd) = d["context"]["cwd"].as_str() {
                    self.main.cwd = cwd.to_owned();
                }
                if let Some(m) = d["selectedModel"].as_str() {
                    self.model = m.to_owned();
                }
            }
            "session.model_change" => self.model = s(&d["newModel"]),
            kind if self.main.session.is_empty() && kind.contains("message") => {
                return Err(Failure::Skip("a message before any session.start".into()));
            }
            "user.message" => self.main.user(&s(&d["content"]), at),
            "assistant.message" => {
                let mut blocks: Vec<ContentBlock> = Vec::new();
                let thinking = s(&d["reasoningText"]);
                if !thinking.is_empty() {
                    blocks.push(thought(&thinking));
                }
                let said = s(&d["content"]);
                if !said.is_empty() {
                    blocks.push(ContentBlock::text(said));
                }
                let calls = d["toolRequests"].as_array().into_iter().flatten();
                blocks.extend(
                    calls.map(|c| call(&s(&c["toolCallId"]), &s(&c["name"]), &c["arguments"])),
                );
                let model = match s(&d["model"]) {
                    m if m.is_empty() => self.model.clone(),
                    m => m,
                };
                let usage = d["outputTokens"].as_i64().map(|n| Usage {
                    completion_tokens: n,
                    total_tokens: n,
                    ..Usage::default()
                });
                let answer = Answer {
                    id: s(&d["messageId"]),
                    blocks,
                    model,
                    usage,
                    at,
                };
                self.of(d).answer(answer, sink).map_err(Failure::Sink)?;
            }
            "tool.execution_complete" => {
                let failed = d["success"] == false;
                let output = match d["result"]["content"].as_str() {
                    Some(text) => text.to_owned(),
                    None => s(&d["error"]["message"]),
                };
                let id = s(&d["toolCallId"]);
                self.of(d).result(&id, &output, failed, at);
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _: Sink<'_>) -> Result<(), String> {
        Ok(())
    }
}
