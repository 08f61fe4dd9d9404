//! Joining calls with transcript files: which chain is which subagent's, and who spawned it.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

use super::{Deriver, SOURCE_IMPORT, classify, meta_str};
use crate::block::ContentBlock;
use crate::hash::block_signature;
use crate::provider::anthropic;

/// One transcript row of a session.
#[derive(Clone, Debug, Default)]
pub struct TranscriptFile {
    /// The subagent; "" = the main transcript.
    pub agent_id: String,
    /// Kind of subagent.
    pub agent_type: String,
    /// What it was asked, in short.
    pub description: String,
    /// The tool call that spawned it.
    pub tool_use_id: String,
    /// "", `started`, `interacted`, …
    pub kind: String,
    /// Signatures of the blocks in its records.
    pub signatures: HashSet<String>,
}

impl TranscriptFile {
    /// Reads a row's meta and records. Records without a message count for nothing.
    pub fn read(meta: &Map<String, Value>, records: &[Value]) -> Self {
        let mut kind = meta_str(meta, "kind").to_owned();
        if kind.is_empty() {
            kind = records
                .iter()
                .find(|r| r["type"] == "event_msg" && r["payload"]["type"] == "sub_agent_activity")
                .and_then(|r| r["payload"]["kind"].as_str())
                .unwrap_or_default()
                .to_owned();
        }
        let signatures = records
            .iter()
            .filter(|r| r["message"].is_object())
            .flat_map(|r| anthropic::content(&r["message"]["content"]))
            .filter_map(|b| block_signature(&b))
            .collect();
        Self {
            agent_id: meta_str(meta, "agent_id").to_owned(),
            agent_type: meta_str(meta, "agent_type").to_owned(),
            description: meta_str(meta, "description").to_owned(),
            tool_use_id: meta_str(meta, "tool_use_id").to_owned(),
            kind,
            signatures,
        }
    }

    /// Whether the file shows that an agent was spawned, not merely spoken to.
    pub fn is_spawn_evidence(&self) -> bool {
        matches!(self.kind.as_str(), "" | "started")
    }
}

/// Counters of the reconcile pass.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Stats {
    /// Transcript files read.
    pub transcript_files: u64,
    /// Distinct spawning tool calls.
    pub subagent_forks: u64,
    /// Chains that got a spawning tool call.
    pub forked_chains: u64,
    /// Chains found in the main transcript.
    pub main_chains_joined: u64,
    /// Chain blocks found in their file.
    pub conversation_joined: u64,
    /// Chain blocks looked for.
    pub conversation_total: u64,
    /// Codex threads with a spawning tool call.
    #[serde(skip_serializing_if = "is_zero")]
    pub codex_threads_anchored: u64,
    /// Codex threads without one.
    #[serde(skip_serializing_if = "is_zero")]
    pub codex_threads_unanchored: u64,
    /// Files that are no spawn evidence.
    #[serde(skip_serializing_if = "is_zero")]
    pub codex_interacted_rows: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The agent path and nickname that a Codex subagent's envelope carries.
pub(super) fn spawn_path(envelope: &Map<String, Value>) -> Option<(String, String)> {
    let source = envelope.get("harness_metadata")?.get("source")?;
    let parsed;
    let source = match source {
        Value::String(s) => {
            parsed = serde_json::from_str::<Value>(s).ok()?;
            &parsed
        }
        other => other,
    };
    let spawn = source.get("subagent")?.get("thread_spawn")?;
    let text = |key: &str| spawn[key].as_str().unwrap_or_default().to_owned();
    let path = text("agent_path");
    (!path.is_empty()).then(|| (path, text("agent_nickname")))
}

impl Deriver {
    pub(super) fn reconcile(&mut self) {
        self.join_chains();
        self.anchor_imported_threads();
        if self.harness_id == "codex" {
            self.anchor_codex_threads();
        }
    }

    fn stats(&mut self) -> &mut Stats {
        self.report.reconcile.get_or_insert_default()
    }

    fn join_chains(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let files = std::mem::take(&mut self.files);
        let evidence: Vec<&TranscriptFile> =
            files.iter().filter(|f| f.is_spawn_evidence()).collect();
        let forks: BTreeSet<&str> = evidence
            .iter()
            .filter(|f| !f.agent_id.is_empty() && !f.tool_use_id.is_empty())
            .map(|f| f.tool_use_id.as_str())
            .collect();
        let stats = self.stats();
        stats.transcript_files = files.len() as u64;
        stats.subagent_forks = forks.len() as u64;
        stats.codex_interacted_rows = (files.len() - evidence.len()) as u64;

        // Nodes come parents first, so one pass finds each node's root.
        let mut root_of: Vec<Option<usize>> = Vec::with_capacity(self.nodes.len());
        let mut chains: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (i, n) in self.nodes.iter().enumerate() {
            let root = match n.parent {
                _ if n.kind != classify::MAIN => None,
                None => Some(i),
                Some(p) => root_of[p],
            };
            root_of.push(root);
            if let Some(r) = root {
                chains[r].push(i);
            }
        }
        for (root, members) in chains.iter().enumerate().filter(|(_, m)| !m.is_empty()) {
            let signatures: Vec<String> = members
                .iter()
                .flat_map(|&n| &self.nodes[n].blocks)
                .filter_map(block_signature)
                .collect();
            let score = |f: &TranscriptFile| {
                signatures
                    .iter()
                    .filter(|s| f.signatures.contains(*s))
                    .count()
            };
            let thread = self.nodes[root].thread.clone();
            let by_thread = evidence
                .iter()
                .find(|f| !thread.is_empty() && f.agent_id == thread);
            let best = by_thread.copied().or_else(|| {
                let mut best: Option<(&TranscriptFile, usize)> = None;
                for f in &evidence {
                    let s = score(f);
                    if s > best.map_or(0, |(_, b)| b) {
                        best = Some((f, s));
                    }
                }
                best.map(|(f, _)| f)
            });
            let total = signatures.len() as u64;
            let joined = best.map_or(0, score) as u64;
            let stats = self.stats();
            stats.conversation_total += total;
            stats.conversation_joined += joined;
            match best {
                Some(f) if f.agent_id.is_empty() => stats.main_chains_joined += 1,
                Some(f) if !f.tool_use_id.is_empty() => {
                    stats.forked_chains += 1;
                    for &n in members {
                        self.nodes[n].parent_tool_use_id = f.tool_use_id.clone();
                    }
                }
                _ => {}
            }
        }
        self.files = files;
    }

    /// Subagents of imported transcripts whose file named no spawning call: the call whose result
    /// names the agent, else the one whose prompt is the thread's first message.
    fn anchor_imported_threads(&mut self) {
        let mut anchors: HashMap<String, String> = HashMap::new();
        for i in 0..self.calls.len() {
            let c = &self.calls[i];
            if c.source != SOURCE_IMPORT || c.thread.is_empty() || !c.anchor.is_empty() {
                continue;
            }
            let thread = c.thread.clone();
            let anchor = match anchors.get(&thread) {
                Some(a) => a.clone(),
                None => {
                    let a = self.spawning_call(i).unwrap_or_default();
                    anchors.insert(thread, a.clone());
                    a
                }
            };
            self.calls[i].anchor = anchor;
        }
    }

    fn spawning_call(&self, call: usize) -> Option<String> {
        let thread = &self.calls[call].thread;
        let blocks = || {
            self.nodes
                .iter()
                .filter(|n| n.thread != *thread)
                .flat_map(|n| &n.blocks)
        };
        let mark = format!("agentId: {thread}");
        let by_result = blocks().find(|b| {
            b.is_tool_result()
                && b.tool_output
                    .split(&mark)
                    .nth(1)
                    .is_some_and(|after| !after.starts_with(|c: char| c.is_ascii_alphanumeric()))
        });
        if let Some(b) = by_result {
            return Some(b.tool_result_id.clone());
        }
        let first = self.calls[call].request.first()?.0;
        let prompt = classify::text_of(&self.nodes[first].blocks);
        let prompt = prompt.trim();
        blocks()
            .find(|b| {
                b.is_tool_use()
                    && !prompt.is_empty()
                    && b.tool_input
                        .get("prompt")
                        .and_then(Value::as_str)
                        .map(str::trim)
                        == Some(prompt)
            })
            .map(|b| b.tool_use_id.clone())
    }

    fn anchor_codex_threads(&mut self) {
        let by_path = self.codex_paths();
        let mut first_path: HashMap<String, (String, String)> = HashMap::new();
        for c in &self.calls {
            if let (false, Some(p)) = (c.thread.is_empty(), &c.codex_path) {
                first_path
                    .entry(c.thread.clone())
                    .or_insert_with(|| p.clone());
            }
        }
        let (mut anchored, mut unanchored) = (HashSet::new(), HashSet::new());
        for i in 0..self.calls.len() {
            let thread = self.calls[i].thread.clone();
            if thread.is_empty() {
                continue;
            }
            let file = self.files.iter().find(|f| {
                f.is_spawn_evidence() && f.agent_id == thread && !f.tool_use_id.is_empty()
            });
            let path = first_path.get(&thread);
            let found = match (file, path) {
                (Some(f), _) => Some((
                    f.tool_use_id.clone(),
                    f.agent_type.clone(),
                    f.description.clone(),
                )),
                (None, Some((p, _))) => by_path
                    .get(p)
                    .cloned()
                    .flatten()
                    .map(|id| (id, String::new(), String::new())),
                (None, None) => None,
            };
            let Some((anchor, mut subagent_type, mut description)) = found else {
                unanchored.insert(thread);
                continue;
            };
            if let Some((path, nickname)) = path {
                if !nickname.is_empty() {
                    subagent_type.clone_from(nickname);
                }
                if description.is_empty() {
                    description.clone_from(path);
                }
                if subagent_type.is_empty() {
                    let last = path.trim_matches('/').rsplit('/').next();
                    subagent_type = last.unwrap_or_default().to_owned();
                }
            }
            let c = &mut self.calls[i];
            (c.anchor, c.subagent_type, c.description) = (anchor, subagent_type, description);
            anchored.insert(thread);
        }
        let stats = self.stats();
        stats.codex_threads_anchored = anchored.len() as u64;
        stats.codex_threads_unanchored = unanchored.len() as u64;
    }

    /// Agent path to the spawning call's id; `None` where two calls claim one path.
    fn codex_paths(&self) -> HashMap<String, Option<String>> {
        let mut paths: HashMap<String, Option<String>> = HashMap::new();
        let results = self
            .nodes
            .iter()
            .flat_map(|n| &n.blocks)
            .filter(|b: &&ContentBlock| b.is_tool_result());
        for b in results {
            let Ok(v) = serde_json::from_str::<Value>(&b.tool_output) else {
                continue;
            };
            if let Some(path) = v.get("task_name").and_then(Value::as_str) {
                paths
                    .entry(path.to_owned())
                    .and_modify(|id| {
                        if id.as_deref() != Some(&b.tool_result_id) {
                            *id = None;
                        }
                    })
                    .or_insert_with(|| Some(b.tool_result_id.clone()));
            }
        }
        paths
    }
}
