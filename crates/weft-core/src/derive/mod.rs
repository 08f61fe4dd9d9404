//! From the raw turns of one session to its traces, spans and links.
//!
//! A pure function of the session's rows: the same rows give the same projection, byte for byte.
//! Rows are fed one at a time ([`Deriver::add_turn`]), so re-sent history costs a hash, not memory.

mod attach;
pub mod classify;
mod emit;
mod fold;
mod invariants;
pub mod price;
mod reconcile;

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use crate::block::{ChatRequest, ChatResponse, ContentBlock, Message, Usage};
use crate::hash::node_hash;
use crate::provider::{self, responses};
use crate::span::{Link, ModelUsage, Rollup, Trace};
use crate::time::{Micros, parse_micros};

pub use fold::display_title;
pub use invariants::violation;
pub use reconcile::TranscriptFile;

/// Source of a row that came over the ingest API.
pub const SOURCE_WIRE: &str = "wire";
/// Source of a row that holds a whole transcript file.
pub const SOURCE_TRANSCRIPT: &str = "transcript";
/// Source of a row that the importer read from a transcript: one call, its input a delta.
pub const SOURCE_IMPORT: &str = "import";

/// One captured call, as derivation reads it.
#[derive(Clone, Debug, Default)]
pub struct TurnRow {
    /// Row id in the store.
    pub id: i64,
    /// [`SOURCE_WIRE`] or [`SOURCE_IMPORT`].
    pub source: String,
    /// `anthropic`, `openai`, `ollama`.
    pub provider: String,
    /// Dedupe key and seed of span ids; may be empty.
    pub request_id: String,
    /// The provider's request body.
    pub request: Value,
    /// The reduced response, recovered from the verbatim bytes where it had to be.
    pub response: Option<ChatResponse>,
    /// Facts about the exchange.
    pub meta: Map<String, Value>,
    /// The session block as received.
    pub envelope: Map<String, Value>,
    /// When the row was stored.
    pub received_at: Micros,
    /// `raw`, `reduced` or `degraded`: what is left of the provider's bytes.
    pub fidelity: &'static str,
}

/// The instant at which a call began.
pub fn captured_at(meta: &Map<String, Value>, received_at: Micros) -> Micros {
    let time = |key: &str| meta.get(key).and_then(Value::as_str).and_then(parse_micros);
    let captured = time("captured_at");
    if let (Some(at), Some(elapsed)) = (captured, elapsed_seconds(meta)) {
        return at - (elapsed * 1e6) as i64;
    }
    time("ts_request").or(captured).unwrap_or(received_at)
}

/// `meta.elapsed_seconds` where it is usable: finite, positive, at most a week.
pub fn elapsed_seconds(meta: &Map<String, Value>) -> Option<f64> {
    meta.get("elapsed_seconds")
        .and_then(Value::as_f64)
        .filter(|s| *s > 0.0 && *s <= 604_800.0)
}

/// One message at its place in the conversation.
#[derive(Debug)]
struct Node {
    hash: String,
    parent: Option<usize>,
    role: String,
    blocks: Vec<ContentBlock>,
    kind: String,
    thread: String,
    parent_tool_use_id: String,
    answer: Option<Answer>,
}

/// What only response nodes have; the first capture of the node wins.
#[derive(Clone, Debug, Default)]
struct Answer {
    model: String,
    stop_reason: String,
    usage: Option<Usage>,
}

/// One parsed call.
#[derive(Debug)]
struct Call {
    row_id: i64,
    source: String,
    identity: String,
    captured: Micros,
    kind: &'static str,
    thread: String,
    /// Node and whether this call was the first to have it, for each request message.
    request: Vec<(usize, bool)>,
    response: usize,
    anchor: String,
    subagent_type: String,
    description: String,
    fidelity: &'static str,
    codex_path: Option<(String, String)>,
}

/// A tool call seen in any message of the session.
#[derive(Debug)]
struct Tool {
    id: String,
    name: String,
    thread: String,
    call: usize,
    rendered: String,
    consumed: bool,
}

/// Samples that a [`Report`] keeps of each kind of failure, at most.
pub const MAX_SAMPLES: usize = 20;

/// Counters of a derivation pass.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Report {
    /// Rows read, transcripts included.
    pub raw_turns: u64,
    /// Calls that became spans.
    pub parsed_turns: u64,
    /// Calls without a usable response.
    pub raw_only_turns: u64,
    /// Calls that could not be read, at most [`MAX_SAMPLES`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parse_failures: Vec<String>,
    /// How many rows could not be read.
    #[serde(skip)]
    pub failed: u64,
    /// Distinct messages.
    pub nodes: u64,
    /// Calls by kind.
    pub call_kinds: BTreeMap<String, u64>,
    /// Messages by kind.
    pub node_kinds: BTreeMap<String, u64>,
    /// Distinct actions that permission checks judged.
    pub judged_actions: u64,
    /// Actions whose tool call was found.
    pub attached_verdicts: u64,
    /// Actions whose tool call was not found, at most [`MAX_SAMPLES`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unattached_actions: Vec<String>,
    /// Web summaries joined with their tool call.
    pub web_summary_attached: u64,
    /// Plan names joined with their tool call.
    pub plans_attached: u64,
    /// Transcript counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconcile: Option<reconcile::Stats>,
}

/// Everything that one session's rows give.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Projection {
    /// Traces with their spans, in the order in which they were opened.
    pub traces: Vec<Trace>,
    /// Links between spans.
    pub links: Vec<Link>,
    /// Sums and facts about the session.
    pub rollup: Rollup,
    /// Counters of the pass.
    pub report: Report,
}

/// Collects the rows of one session and derives its projection.
#[derive(Debug, Default)]
pub struct Deriver {
    harness_id: String,
    nodes: Vec<Node>,
    by_hash: HashMap<String, usize>,
    calls: Vec<Call>,
    tools: Vec<Tool>,
    tool_index: HashMap<String, usize>,
    files: Vec<TranscriptFile>,
    last_leaf: HashMap<String, usize>,
    titles: Vec<String>,
    judged: Vec<(usize, String)>,
    report: Report,
}

impl Deriver {
    /// A deriver for a session of this harness.
    pub fn new(harness_id: &str) -> Self {
        Self {
            harness_id: harness_id.into(),
            ..Self::default()
        }
    }

    /// Adds a call; rows must come in the order of [`captured_at`]. A row that cannot be read is
    /// counted and skipped.
    pub fn add_turn(&mut self, row: TurnRow) {
        self.report.raw_turns += 1;
        let request = match provider::parse_request(&row.provider, &row.request) {
            Ok(request) => request,
            Err(e) => {
                self.report.failed += 1;
                if self.report.parse_failures.len() < MAX_SAMPLES {
                    self.report.parse_failures.push(format!(
                        "raw_turn id={} request_id={}: {e}",
                        row.id, row.request_id
                    ));
                }
                return;
            }
        };
        let Some(mut response) = row.response.clone().filter(ChatResponse::is_usable) else {
            self.report.raw_only_turns += 1;
            return;
        };
        if row.provider == "openai" {
            for b in &mut response.message.content {
                if b.kind.starts_with("custom_tool_call") {
                    *b = responses::normalize_custom(b);
                }
            }
        }
        self.add_call(&row, request, response);
    }

    /// Adds a transcript file.
    pub fn add_transcript(&mut self, file: TranscriptFile) {
        self.report.raw_turns += 1;
        self.files.push(file);
    }

    fn add_call(&mut self, row: &TurnRow, request: ChatRequest, response: ChatResponse) {
        let thread = meta_str(&row.meta, "thread_id").to_owned();
        let import = row.source == SOURCE_IMPORT;
        let kind = if import {
            imported_kind(&row.meta)
        } else {
            classify::classify_call(&request, &response.message.content)
        };
        let index = self.calls.len();
        if kind == classify::TITLE_GEN {
            self.titles.extend(fold::title(&response.message.content));
        }
        if kind.starts_with(classify::PERMISSION_CHECK) {
            self.judged
                .push((index, attach::judged_action(&request.messages)));
        }
        // An imported request holds only what is new, so its chain goes on where the thread's
        // last call ended.
        let mut parent = if import {
            self.last_leaf.get(&thread).copied()
        } else {
            None
        };
        let mut chain = Vec::with_capacity(request.messages.len());
        for message in request.messages {
            let injected = classify::classify_injected(&message);
            let (node, new) = self.node(
                parent,
                message,
                injected.unwrap_or(kind),
                &thread,
                index,
                None,
            );
            if injected.is_none() {
                parent = Some(node);
            }
            chain.push((node, new));
        }
        let answer = Answer {
            model: response.model,
            stop_reason: response.stop_reason,
            usage: response.usage,
        };
        let (leaf, _) = self.node(parent, response.message, kind, &thread, index, Some(answer));
        self.last_leaf.insert(thread.clone(), leaf);
        let identity = match meta_str(&row.meta, "identity") {
            id if import && !id.is_empty() => id.to_owned(),
            _ if row.request_id.is_empty() => {
                format!("{}_{}", &self.nodes[leaf].hash[..16], row.id)
            }
            _ => row.request_id.clone(),
        };
        self.report.parsed_turns += 1;
        *self.report.call_kinds.entry(kind.into()).or_default() += 1;
        self.calls.push(Call {
            row_id: row.id,
            source: row.source.clone(),
            identity,
            captured: captured_at(&row.meta, row.received_at),
            kind,
            thread,
            request: chain,
            response: leaf,
            anchor: meta_str(&row.meta, "tool_use_id").to_owned(),
            subagent_type: meta_str(&row.meta, "agent_type").to_owned(),
            description: meta_str(&row.meta, "description").to_owned(),
            fidelity: row.fidelity,
            codex_path: reconcile::spawn_path(&row.envelope),
        });
    }

    fn node(
        &mut self,
        parent: Option<usize>,
        message: Message,
        kind: &str,
        thread: &str,
        call: usize,
        answer: Option<Answer>,
    ) -> (usize, bool) {
        let parent_hash = parent.map_or("", |p| self.nodes[p].hash.as_str());
        let hash = node_hash(parent_hash, &message.role, &message.content);
        // The registry looks at every position, re-sent history included; the first capture wins.
        for b in message.content.iter().filter(|b| b.is_tool_use()) {
            if !b.tool_use_id.is_empty() && !self.tool_index.contains_key(&b.tool_use_id) {
                self.tool_index
                    .insert(b.tool_use_id.clone(), self.tools.len());
                self.tools.push(Tool {
                    id: b.tool_use_id.clone(),
                    name: b.tool_name.clone(),
                    thread: thread.into(),
                    call,
                    rendered: attach::render_call(b),
                    consumed: false,
                });
            }
        }
        if let Some(&at) = self.by_hash.get(&hash) {
            let node = &mut self.nodes[at];
            // A message first seen as history has no answer of its own.
            if node.answer.is_none() {
                node.answer = answer;
            }
            return (at, false);
        }
        let at = self.nodes.len();
        *self.report.node_kinds.entry(kind.into()).or_default() += 1;
        self.by_hash.insert(hash.clone(), at);
        self.nodes.push(Node {
            hash,
            parent,
            role: message.role,
            blocks: message.content,
            kind: kind.into(),
            thread: thread.into(),
            parent_tool_use_id: String::new(),
            answer,
        });
        (at, true)
    }

    /// Attaches, reconciles, emits and folds.
    pub fn finish(mut self) -> Projection {
        self.report.nodes = self.nodes.len() as u64;
        self.attach();
        self.reconcile();
        let (traces, links) = emit::emit(&self);
        let rollup = fold::fold(&traces, &self.titles);
        let projection = Projection {
            traces,
            links,
            rollup,
            report: self.report,
        };
        debug_assert_eq!(violation(&projection), None);
        projection
    }

    /// The hash of a call's answer after all its messages: equal calls with equal answers have the same.
    pub fn leaf_hash(request: &ChatRequest, response: &ChatResponse) -> String {
        request
            .messages
            .iter()
            .chain([&response.message])
            .fold(String::new(), |parent, m| {
                node_hash(&parent, &m.role, &m.content)
            })
    }

    /// The hash of the first message of a call: the session id of callers that give none.
    pub fn root_hash(provider: &str, request: &Value, response: &ChatResponse) -> Option<String> {
        let request = provider::parse_request(provider, request).ok()?;
        let first = request.messages.first().unwrap_or(&response.message);
        Some(node_hash("", &first.role, &first.content))
    }
}

fn meta_str<'a>(meta: &'a Map<String, Value>, key: &str) -> &'a str {
    meta.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Transcripts hold the conversation itself; a compaction's summary is marked by the importer.
fn imported_kind(meta: &Map<String, Value>) -> &'static str {
    match meta_str(meta, "call_kind") {
        classify::COMPACTION => classify::COMPACTION,
        _ => classify::MAIN,
    }
}

/// Usage of all llm spans by model, dearest first.
fn model_usage(traces: &[Trace]) -> Vec<ModelUsage> {
    let mut by_model: BTreeMap<&str, ModelUsage> = BTreeMap::new();
    for span in traces.iter().flat_map(|t| &t.spans) {
        if let (Some(u), false) = (&span.usage, span.model.is_empty()) {
            let m = by_model.entry(&span.model).or_default();
            m.calls += 1;
            m.input_tokens += u.prompt_tokens;
            m.output_tokens += u.completion_tokens;
            m.cost_usd += price::cost_usd(&span.model, u);
        }
    }
    let mut all: Vec<ModelUsage> = by_model
        .into_iter()
        .map(|(model, m)| ModelUsage {
            model: model.into(),
            ..m
        })
        .collect();
    // Stable: equal costs keep the order of the names.
    all.sort_by(|a, b| b.cost_usd.total_cmp(&a.cost_usd));
    all
}
