//! Sessions of OpenCode, as its database has them: a record is a session with its messages and their parts.

use serde_json::Value;
use weft_core::block::{ContentBlock, Usage};

use super::dialogue::{Answer, Dialogue, call, thought};
use super::{Failure, Importer, Sink};

#[derive(Debug, Default)]
pub(super) struct OpenCode;

fn usage(t: &Value) -> Option<Usage> {
    let n = |v: &Value| v.as_i64().unwrap_or_default();
    let (read, write) = (n(&t["cache"]["read"]), n(&t["cache"]["write"]));
    let prompt = n(&t["input"]) + read + write;
    let completion = n(&t["output"]) + n(&t["reasoning"]);
    t.is_object().then(|| Usage {
        prompt_tokens: prompt,
        completion_tokens: completion,
        total_tokens: prompt + completion,
        cache_read_input_tokens: read,
        cache_creation_input_tokens: write,
        ..Usage::default()
    })
}

impl Importer for OpenCode {
    fn record(&mut self, r: &Value, sink: Sink<'_>) -> Result<(), Failure> {
        let s = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let session = &r["session"];
        let id = s(&session["id"]);
        if id.is_empty() {
            return Err(Failure::Skip("a session without an id".into()));
        }
        let mut d = Dialogue::new("opencode", &id, &s(&session["directory"]));
        d.version = s(&session["version"]);
        d.name = s(&session["title"]);
        d.parent = s(&session["parent_id"]);
        for m in r["messages"].as_array().into_iter().flatten() {
            let data = &m["data"];
            let time = |k: &str| data["time"][k].as_i64().map(|ms| ms.saturating_mul(1000));
            let created = time("created").unwrap_or(0);
            let at = time("completed").unwrap_or(created);
            let parts = m["parts"].as_array().cloned().unwrap_or_default();
            match data["role"].as_str().unwrap_or_default() {
                "user" => {
                    // What OpenCode itself puts beside a question is marked.
                    let own = |p: &&Value| p["type"] == "text" && p["synthetic"] != true;
                    let texts: Vec<String> =
                        parts.iter().filter(own).map(|p| s(&p["text"])).collect();
                    d.user(&texts.join("\n"), created);
                }
                "assistant" => {
                    let blocks: Vec<ContentBlock> = parts
                        .iter()
                        .filter_map(|p| match p["type"].as_str()? {
                            "text" if p["text"] != "" => Some(ContentBlock::text(s(&p["text"]))),
                            "reasoning" => Some(thought(p["text"].as_str()?)),
                            "tool" => {
                                Some(call(&s(&p["callID"]), &s(&p["tool"]), &p["state"]["input"]))
                            }
                            _ => None,
                        })
                        .collect();
                    let answer = Answer {
                        id: s(&m["id"]),
                        blocks,
                        model: s(&data["modelID"]),
                        usage: usage(&data["tokens"]),
                        at,
                    };
                    d.answer(answer, sink).map_err(Failure::Sink)?;
                    for p in parts.iter().filter(|p| p["type"] == "tool") {
                        let state = &p["state"];
                        let failed = state["status"] == "error";
                        let output = if failed {
                            &state["error"]
                        } else {
                            &state["output"]
                        };
                        let then = state["time"]["end"]
                            .as_i64()
                            .map_or(at, |ms| ms.saturating_mul(1000));
                        if state["status"] == "completed" || failed {
                            d.result(&s(&p["callID"]), &s(output), failed, then);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn finish(&mut self, _: Sink<'_>) -> Result<(), String> {
        Ok(())
    }
}
