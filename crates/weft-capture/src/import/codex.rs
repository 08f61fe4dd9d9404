//! Codex rollouts.
//!
//! The conversation stands in `response_item` records; `event_msg` records repeat it for the
//! user interface and count for nothing but tokens. One file is one thread: the session's own, or
//! a subagent's, which names the session it belongs to.

use serde_json::{Map, Value, json};
use weft_core::block::{ChatResponse, ContentBlock, Message, Usage};
use weft_core::provider::responses;
use weft_core::time::{Micros, parse_micros};

use super::{Failure, ImportedTurn, Importer, Sink, times};
use crate::envelope::short_hash;

#[derive(Debug, Default)]
pub(super) struct Codex {
    session: String,
    thread: String,
    parent: String,
    cwd: String,
    remote: String,
    version: String,
    model: String,
    metadata: Map<String, Value>,
    input: Vec<Value>,
    input_at: Option<Micros>,
    output: Vec<ContentBlock>,
    /// Time and text of the first output item: what names the call.
    first: Option<(String, String)>,
    first_at: Micros,
    last_at: Micros,
    usage: Option<Usage>,
    /// Tokens told before the items that they belong to.
    early_usage: Option<Usage>,
    last_time: Micros,
}

fn s(v: &Value) -> String {
    v.as_str().unwrap_or_default().to_owned()
}

fn usage(u: &Value) -> Option<Usage> {
    let n = |k: &str| u[k].as_i64().unwrap_or_default();
    u.is_object().then(|| Usage {
        prompt_tokens: n("input_tokens"),
        completion_tokens: n("output_tokens"),
        total_tokens: n("total_tokens"),
        cache_read_input_tokens: n("cached_input_tokens"),
        ..Usage::default()
    })
}

/// What the model wrote, as opposed to what it was given.
fn is_output(item: &Value) -> bool {
    match item["type"].as_str().unwrap_or_default() {
        "message" => item["role"] == "assistant",
        kind => !kind.ends_with("_output"),
    }
}

impl Codex {
    fn meta_record(&mut self, p: &Value) {
        let id = s(&p["id"]);
        // A forked rollout repeats its ancestors' headers; its own comes first.
        if !self.session.is_empty() {
            return;
        }
        let root = s(&p["session_id"]);
        if root.is_empty() || root == id {
            self.session = id;
        } else {
            (self.session, self.thread) = (root, id);
        }
        self.cwd = s(&p["cwd"]);
        self.remote = s(&p["git"]["repository_url"]);
        self.version = s(&p["cli_version"]);
        let spawn = &p["source"]["subagent"]["thread_spawn"];
        if self.thread.is_empty() {
            self.parent = s(&spawn["parent_thread_id"]);
        }
        for key in ["originator", "source", "model_provider"] {
            if !p[key].is_null() {
                self.metadata.insert(key.into(), p[key].clone());
            }
        }
        if let Some(branch) = p["git"]["branch"].as_str() {
            self.metadata.insert("gitBranch".into(), json!(branch));
        }
    }

    fn item(
        &mut self,
        item: &Value,
        stamp: &str,
        at: Micros,
        sink: Sink<'_>,
    ) -> Result<(), String> {
        if !is_output(item) {
            self.flush(sink)?;
            self.input.push(item.clone());
            self.input_at = Some(at);
            return Ok(());
        }
        if self.first.is_none() {
            self.first = Some((stamp.to_owned(), item.to_string()));
            self.first_at = at;
        }
        self.last_at = at;
        if item["type"] == "local_shell_call" {
            self.output.push(ContentBlock {
                tool_use_id: s(&item["call_id"]),
                tool_name: "shell".into(),
                tool_input: item["action"].as_object().cloned().unwrap_or_default(),
                ..ContentBlock::of("tool_use")
            });
        } else {
            self.output.extend(
                responses::output_item(item)
                    .iter()
                    .map(responses::normalize_custom),
            );
        }
        Ok(())
    }

    fn tokens(&mut self, u: Option<Usage>) {
        let Some(u) = u else { return };
        if self.output.is_empty() {
            self.early_usage = Some(u);
        } else if self.usage.is_none() && self.early_usage.is_none() {
            self.usage = Some(u);
        }
    }

    fn flush(&mut self, sink: Sink<'_>) -> Result<(), String> {
        let Some((stamp, first)) = self.first.take() else {
            return Ok(());
        };
        let output = std::mem::take(&mut self.output);
        let input = std::mem::take(&mut self.input);
        let started = self
            .input_at
            .take()
            .map_or(self.first_at, |t| t.min(self.first_at));
        let usage = self.usage.take().or(self.early_usage.take());
        self.early_usage = None;
        // Thoughts alone are no answer.
        if output
            .iter()
            .all(|b| b.kind == "thinking" && b.thinking.is_empty())
        {
            self.input = input;
            self.input_at = Some(started);
            return Ok(());
        }
        let id = format!(
            "cx_{}",
            short_hash(&[&self.session, &self.thread, &stamp, &first])
        );
        let body = serde_json::to_string(&output).unwrap_or_default();
        let mut meta = Map::new();
        meta.insert("message_id".into(), json!(id));
        meta.insert("identity".into(), json!(id));
        meta.insert("endpoint".into(), json!("responses"));
        for (k, v) in [("thread_id", &self.thread), ("model", &self.model)] {
            if !v.is_empty() {
                meta.insert(k.into(), json!(v));
            }
        }
        times(&mut meta, started, self.last_at);
        let usage = usage.map(|u| Usage {
            total_duration_ns: (self.last_at - started).max(0) * 1000,
            ..u
        });
        sink(ImportedTurn {
            harness_session_id: self.session.clone(),
            provider: "openai",
            request_id: format!("import:codex:{id}:{}", short_hash(&[&body])),
            request: json!({"model": self.model, "input": input}),
            response: ChatResponse {
                model: self.model.clone(),
                message: Message {
                    role: "assistant".into(),
                    content: output,
                },
                done: true,
                stop_reason: "stop".into(),
                usage,
                ..ChatResponse::default()
            },
            meta,
            cwd: self.cwd.clone(),
            remote: self.remote.clone(),
            version: self.version.clone(),
            name: String::new(),
            parent: self.parent.clone(),
            session_metadata: self.metadata.clone(),
            started_at: started,
            ended_at: self.last_at,
        })
    }
}

impl Importer for Codex {
    fn record(&mut self, r: &Value, sink: Sink<'_>) -> Result<(), Failure> {
        let stamp = r["timestamp"].as_str().unwrap_or_default();
        let at = parse_micros(stamp).unwrap_or(self.last_time);
        self.last_time = at;
        let p = &r["payload"];
        match r["type"].as_str().unwrap_or_default() {
            "session_meta" => self.meta_record(p),
            "turn_context" => {
                if let Some(m) = p["model"].as_str() {
                    m.clone_into(&mut self.model);
                }
                if let Some(c) = p["cwd"].as_str() {
                    c.clone_into(&mut self.cwd);
                }
            }
            "response_item" => {
                if self.session.is_empty() {
                    return Err(Failure::Skip("an item before any session_meta".into()));
                }
                if !p.is_object() {
                    return Err(Failure::Skip("a response_item without a payload".into()));
                }
                return self.item(p, stamp, at, sink).map_err(Failure::Sink);
            }
            "token_usage_record" => self.tokens(usage(&p["usage"])),
            "event_msg" if p["type"] == "token_count" => {
                self.tokens(usage(&p["info"]["last_token_usage"]));
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, sink: Sink<'_>) -> Result<(), String> {
        self.flush(sink)
    }
}
