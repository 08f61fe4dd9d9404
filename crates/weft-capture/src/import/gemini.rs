//! Transcripts of Gemini CLI: `~/.gemini/tmp/<project>/chats/session-….json`, one object, or since 2026
//! `….jsonl`, a record a line of which a later one with the same id replaces the earlier.

use serde_json::Value;
use weft_core::block::{ContentBlock, Usage};
use weft_core::time::parse_micros;

use super::dialogue::{Answer, Dialogue, call, thought};
use super::{Failure, Importer, Sink};

#[derive(Debug, Default)]
pub(super) struct Gemini {
    dialogue: Dialogue,
    messages: Vec<Value>,
}

impl Gemini {
    pub(super) fn new(cwd: String) -> Self {
        Self {
            dialogue: Dialogue::new("gemini", "", &cwd),
            messages: Vec::new(),
        }
    }

    fn head(&mut self, r: &Value) {
        let text = |k: &str| r[k].as_str().filter(|s| !s.is_empty()).map(str::to_owned);
        if let Some(id) = text("sessionId") {
            self.dialogue.session = id;
        }
        if let Some(title) = text("summary") {
            self.dialogue.name = title;
        }
        if let Some(folder) = r["directories"][0].as_str()
            && self.dialogue.cwd.is_empty()
        {
            self.dialogue.cwd = folder.to_owned();
        }
    }

    fn keep(&mut self, m: Value) {
        let known = m["id"].as_str().and_then(|id| {
            let same = |k: &Value| k["id"].as_str() == Some(id);
            self.messages.iter().rposition(same)
        });
        match known {
            Some(at) => self.messages[at] = m,
            None => self.messages.push(m),
        }
    }
}

/// Parts of Google's API as text: a text, a part, or a list of them.
fn text_of(v: &Value) -> String {
    match v {
        Value::String(s) => s.clone(),
        Value::Array(a) => a
            .iter()
            .map(text_of)
            .filter(|t| !t.is_empty())
            .collect::<Vec<_>>()
            .join("\n"),
        Value::Object(o) => match (o.get("text"), o.get("functionResponse")) {
            (Some(Value::String(s)), _) => s.clone(),
            (_, Some(f)) => {
                let r = &f["response"];
                match r["output"].as_str().or_else(|| r["error"].as_str()) {
                    Some(s) => s.to_owned(),
                    None if r.is_null() => String::new(),
                    None => r.to_string(),
                }
            }
            _ => String::new(),
        },
        _ => String::new(),
    }
}

fn usage(t: &Value) -> Option<Usage> {
    let n = |k: &str| t[k].as_i64().unwrap_or_default();
    t.is_object().then(|| Usage {
        prompt_tokens: n("input"),
        completion_tokens: n("output") + n("thoughts"),
        total_tokens: n("total"),
        cache_read_input_tokens: n("cached"),
        ..Usage::default()
    })
}

impl Importer for Gemini {
    fn record(&mut self, r: &Value, _: Sink<'_>) -> Result<(), Failure> {
        if r.get("$rewindTo").is_some() {
            // What was said before somebody went back was said all the same.
            return Ok(());
        }
        if let Some(set) = r.get("$set") {
            self.head(set);
            for m in set["messages"].as_array().into_iter().flatten() {
                self.keep(m.clone());
            }
            return Ok(());
        }
        if r["type"].is_string() {
            self.keep(r.clone());
            return Ok(());
        }
        if r["sessionId"].is_string() {
            self.head(r);
            for m in r["messages"].as_array().into_iter().flatten() {
                self.keep(m.clone());
            }
            return Ok(());
        }
        Err(Failure::Skip("neither a session nor a message".into()))
    }

    fn finish(&mut self, sink: Sink<'_>) -> Result<(), String> {
        let mut last = 0;
        for m in std::mem::take(&mut self.messages) {
            let at = m["timestamp"]
                .as_str()
                .and_then(parse_micros)
                .unwrap_or(last);
            last = at;
            match m["type"].as_str().unwrap_or_default() {
                "user" => self.dialogue.user(&text_of(&m["content"]), at),
                "gemini" => {
                    let mut blocks: Vec<ContentBlock> = Vec::new();
                    let thoughts: Vec<String> = m["thoughts"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(|t| {
                            let (s, d) = (t["subject"].as_str()?, t["description"].as_str()?);
                            Some(format!("{s}: {d}"))
                        })
                        .collect();
                    if !thoughts.is_empty() {
                        blocks.push(thought(&thoughts.join("\n")));
                    }
                    let said = text_of(&m["content"]);
                    if !said.is_empty() {
                        blocks.push(ContentBlock::text(said));
                    }
                    let calls = m["toolCalls"].as_array().cloned().unwrap_or_default();
                    let s = |v: &Value| v.as_str().unwrap_or_default().to_owned();
                    blocks.extend(
                        calls
                            .iter()
                            .map(|c| call(&s(&c["id"]), &s(&c["name"]), &c["args"])),
                    );
                    self.dialogue.answer(
                        Answer {
                            id: s(&m["id"]),
                            blocks,
                            model: s(&m["model"]),
                            usage: usage(&m["tokens"]),
                            at,
                        },
                        sink,
                    )?;
                    for c in &calls {
                        let failed = c["status"] == "error" || c["status"] == "cancelled";
                        let then = c["timestamp"].as_str().and_then(parse_micros).unwrap_or(at);
                        self.dialogue
                            .result(&s(&c["id"]), &text_of(&c["result"]), failed, then);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
