//! Transcripts of Cline and of Roo Code: `tasks/<task>/api_conversation_history.json`, the messages of
//! Anthropic's API as they were sent. Times stand only in newer files; the task's id is when it began.

use serde_json::Value;
use weft_core::provider::anthropic;
use weft_core::time::Micros;

use super::dialogue::{Answer, Dialogue};
use super::{Failure, Importer, Sink};

#[derive(Debug)]
pub(super) struct Cline {
    dialogue: Dialogue,
    last: Micros,
}

impl Cline {
    /// `task` is the folder's name: milliseconds since the epoch.
    pub(super) fn new(task: String) -> Self {
        Self {
            last: task.parse::<i64>().unwrap_or(0).saturating_mul(1000),
            dialogue: Dialogue::new("cline", &task, ""),
        }
    }
}

/// The folder that the first message names.
pub(super) fn folder(text: &str) -> Option<String> {
    let rest = text.split("Current Working Directory (").nth(1)?;
    Some(rest.split(')').next()?.to_owned())
}

impl Importer for Cline {
    fn record(&mut self, r: &Value, sink: Sink<'_>) -> Result<(), Failure> {
        // Without times of their own, messages keep their order.
        let at = r["ts"]
            .as_i64()
            .map_or(self.last + 1_000_000, |ms| ms.saturating_mul(1000));
        self.last = at;
        let m = anthropic::message(r);
        match m.role.as_str() {
            "user" => {
                if self.dialogue.cwd.is_empty() {
                    let found = m.content.iter().find_map(|b| folder(&b.text));
                    self.dialogue.cwd = found.unwrap_or_default();
                }
                self.dialogue.message(r["content"].clone(), at);
                Ok(())
            }
            "assistant" => {
                let answer = Answer {
                    blocks: m.content,
                    model: r["modelInfo"]["modelId"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned(),
                    at,
                    ..Answer::default()
                };
                self.dialogue.answer(answer, sink).map_err(Failure::Sink)
            }
            _ => Err(Failure::Skip(
                "neither a user's nor an assistant's message".into(),
            )),
        }
    }

    fn finish(&mut self, _: Sink<'_>) -> Result<(), String> {
        Ok(())
    }
}
