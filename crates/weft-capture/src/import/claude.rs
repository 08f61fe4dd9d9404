//! Claude Code transcripts.
//!
//! One record a line; a message of the model is written once for each of its blocks, all with one
//! `message.id`. Subagents have files of their own (`<session>/subagents/agent-<id>.jsonl`, with
//! what spawned them in `agent-<id>.meta.json`), or stand in the main file as side chains.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use weft_core::block::{ChatResponse, ContentBlock, Message, Usage};
use weft_core::provider::anthropic;
use weft_core::time::{Micros, parse_micros};

use super::{Failure, ImportedTurn, Importer, Sink, times};
use crate::envelope::short_hash;

/// What is known of the subagent that a file belongs to.
#[derive(Clone, Debug, Default)]
pub(super) struct Agent {
    tool_use_id: String,
    agent_type: String,
    description: String,
}

/// Reads `agent-<id>.meta.json` beside a subagent's file.
pub(super) fn agent_of(path: &Path) -> Agent {
    let meta = path.with_extension("meta.json");
    let v: Value = std::fs::read(meta)
        .ok()
        .and_then(|b| serde_json::from_slice(&b).ok())
        .unwrap_or_default();
    let s = |k: &str| v[k].as_str().unwrap_or_default().to_owned();
    Agent {
        tool_use_id: s("toolUseId"),
        agent_type: s("agentType"),
        description: s("description"),
    }
}

/// An answer that is being put together.
#[derive(Debug, Default)]
struct Answer {
    id: String,
    request_id: String,
    model: String,
    stop_reason: String,
    blocks: Vec<ContentBlock>,
    usage: Option<Usage>,
    first: Micros,
    last: Micros,
}

/// One thread of one session.
#[derive(Debug, Default)]
struct Thread {
    input: Vec<Value>,
    input_at: Option<Micros>,
    answer: Option<Answer>,
}

#[derive(Debug, Default)]
struct Facts {
    cwd: String,
    version: String,
    branch: String,
    title: String,
}

#[derive(Debug, Default)]
pub(super) struct Claude {
    agent: Agent,
    threads: HashMap<(String, String), Thread>,
    /// Threads in the order in which they appeared.
    order: Vec<(String, String)>,
    sessions: HashMap<String, Facts>,
    /// Side chains without an agent id: record to thread.
    side_chains: HashMap<String, String>,
    last_time: Micros,
}

impl Claude {
    pub(super) fn new(agent: Agent) -> Self {
        Self {
            agent,
            ..Self::default()
        }
    }

    fn thread_id(&mut self, r: &Value) -> String {
        if let Some(id) = r["agentId"].as_str() {
            return id.to_owned();
        }
        if r["isSidechain"] != true {
            return String::new();
        }
        let uuid = r["uuid"].as_str().unwrap_or_default();
        let known = r["parentUuid"]
            .as_str()
            .and_then(|p| self.side_chains.get(p));
        let thread = match known {
            Some(t) => t.clone(),
            None => format!("side-{}", &short_hash(&[uuid])[..8]),
        };
        self.side_chains.insert(uuid.to_owned(), thread.clone());
        thread
    }

    fn flush(&mut self, key: &(String, String), sink: Sink<'_>) -> Result<(), String> {
        let Some(thread) = self.threads.get_mut(key) else {
            return Ok(());
        };
        let Some(a) = thread.answer.take() else {
            return Ok(());
        };
        let input = std::mem::take(&mut thread.input);
        let started = thread.input_at.take().map_or(a.first, |t| t.min(a.first));
        if a.blocks.is_empty() {
            return Ok(());
        }
        let (session, thread_id) = key;
        let facts = self.sessions.entry(session.clone()).or_default();
        let body = serde_json::to_string(&a.blocks).unwrap_or_default();
        let mut meta = Map::new();
        let mut put = |k: &str, v: &str| {
            if !v.is_empty() {
                meta.insert(k.into(), json!(v));
            }
        };
        put("message_id", &a.id);
        // Ids of messages are unique where a real provider gives them; a test double repeats them.
        let place = short_hash(&[session, thread_id]);
        put("identity", &format!("{}-{}", a.id, &place[..6]));
        put("thread_id", thread_id);
        put("upstream_request_id", &a.request_id);
        put("model", &a.model);
        if !thread_id.is_empty() {
            put("tool_use_id", &self.agent.tool_use_id);
            put("agent_type", &self.agent.agent_type);
            put("description", &self.agent.description);
        }
        times(&mut meta, started, a.last);
        let mut session_metadata = Map::new();
        if !facts.branch.is_empty() {
            session_metadata.insert("gitBranch".into(), json!(facts.branch));
        }
        let stop_reason = match a.stop_reason.as_str() {
            "" if a.blocks.iter().any(ContentBlock::is_tool_use) => "tool_use".to_owned(),
            "" => "end_turn".to_owned(),
            r => r.to_owned(),
        };
        let mut usage = a.usage.unwrap_or_default();
        usage.total_duration_ns = (a.last - started).max(0) * 1000;
        let mut extra = Map::new();
        extra.insert("id".into(), json!(a.id));
        sink(ImportedTurn {
            harness_session_id: session.clone(),
            provider: "anthropic",
            // A copy of a message in a resumed session keeps id and time; it is not a second turn.
            request_id: format!(
                "import:claude:{}:{}",
                a.id,
                short_hash(&[&a.request_id, &a.first.to_string(), &body])
            ),
            request: json!({"model": a.model, "messages": input}),
            response: ChatResponse {
                model: a.model,
                message: Message {
                    role: "assistant".into(),
                    content: a.blocks,
                },
                done: true,
                stop_reason,
                usage: Some(usage),
                extra,
                ..ChatResponse::default()
            },
            meta,
            cwd: facts.cwd.clone(),
            version: facts.version.clone(),
            name: facts.title.clone(),
            session_metadata,
            started_at: started,
            ended_at: a.last,
            ..ImportedTurn::default()
        })
    }

    fn user(
        &mut self,
        key: (String, String),
        message: Value,
        at: Micros,
        sink: Sink<'_>,
    ) -> Result<(), String> {
        self.flush(&key, sink)?;
        let thread = self.thread(&key);
        thread.input.push(message);
        thread.input_at = Some(at);
        Ok(())
    }

    fn thread(&mut self, key: &(String, String)) -> &mut Thread {
        if !self.threads.contains_key(key) {
            self.order.push(key.clone());
        }
        self.threads.entry(key.clone()).or_default()
    }

    fn assistant(
        &mut self,
        key: &(String, String),
        r: &Value,
        at: Micros,
        sink: Sink<'_>,
    ) -> Result<(), Failure> {
        let m = &r["message"];
        let s = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        if m["model"] == "<synthetic>" {
            // Written by the harness itself: an error text, not an answer.
            return Ok(());
        }
        let mut id = s(&m["id"]);
        if id.is_empty() {
            id = s(&r["uuid"]);
        }
        if id.is_empty() {
            return Err(Failure::Skip("an assistant record without an id".into()));
        }
        let same = self.thread(key).answer.as_ref().is_some_and(|a| a.id == id);
        if !same {
            self.flush(key, sink).map_err(Failure::Sink)?;
        }
        let thread = self.thread(key);
        let a = thread.answer.get_or_insert_with(|| Answer {
            id,
            request_id: s(&r["requestId"]),
            model: s(&m["model"]),
            first: at,
            ..Answer::default()
        });
        for block in anthropic::content(&m["content"]) {
            // Some versions write the whole message again with each block.
            if !a.blocks.contains(&block) {
                a.blocks.push(block);
            }
        }
        if let Some(reason) = m["stop_reason"].as_str() {
            a.stop_reason = reason.to_owned();
        }
        if let Some(u) = m["usage"].as_object() {
            let new = anthropic::usage(u);
            let most = a.usage.as_ref().map_or(0, |o| o.completion_tokens);
            a.usage = Some(Usage {
                completion_tokens: new.completion_tokens.max(most),
                ..new
            });
        }
        a.last = a.last.max(at);
        Ok(())
    }
}

impl Importer for Claude {
    fn record(&mut self, r: &Value, sink: Sink<'_>) -> Result<(), Failure> {
        let kind = r["type"].as_str().unwrap_or_default();
        let session = r["sessionId"].as_str().unwrap_or_default();
        if session.is_empty() {
            return match kind {
                "user" | "assistant" => Err(Failure::Skip("a message without a sessionId".into())),
                _ => Ok(()),
            };
        }
        let facts = self.sessions.entry(session.to_owned()).or_default();
        let set = |member: &str, slot: &mut String| {
            if let Some(v) = r[member].as_str().filter(|v| !v.is_empty()) {
                v.clone_into(slot);
            }
        };
        set("cwd", &mut facts.cwd);
        set("version", &mut facts.version);
        set("gitBranch", &mut facts.branch);
        set("aiTitle", &mut facts.title);
        set("customTitle", &mut facts.title);
        let at = r["timestamp"]
            .as_str()
            .and_then(parse_micros)
            .unwrap_or(self.last_time);
        self.last_time = at;
        match kind {
            "user" => {
                let m = &r["message"];
                if !m.is_object() {
                    return Err(Failure::Skip("a user record without a message".into()));
                }
                let key = (session.to_owned(), self.thread_id(r));
                // What a compaction leaves behind is context, not somebody's question.
                let role = if r["isCompactSummary"] == true {
                    "system"
                } else {
                    "user"
                };
                let message = json!({"role": role, "content": m["content"]});
                self.user(key, message, at, sink).map_err(Failure::Sink)
            }
            "attachment" if r["attachment"]["type"] == "queued_command" => {
                let prompt = &r["attachment"]["prompt"];
                let key = (session.to_owned(), self.thread_id(r));
                let message = json!({"role": "user", "content": prompt});
                self.user(key, message, at, sink).map_err(Failure::Sink)
            }
            "assistant" => {
                if !r["message"].is_object() {
                    return Err(Failure::Skip(
                        "an assistant record without a message".into(),
                    ));
                }
                let key = (session.to_owned(), self.thread_id(r));
                self.assistant(&key, r, at, sink)
            }
            _ => {
                // Side chains may run through records of other kinds.
                self.thread_id(r);
                Ok(())
            }
        }
    }

    fn finish(&mut self, sink: Sink<'_>) -> Result<(), String> {
        for key in std::mem::take(&mut self.order) {
            self.flush(&key, sink)?;
        }
        Ok(())
    }
}
