//! Emission: calls become traces, spans and links, in three phases.
//!
//! Main-thread calls first, in capture order; then subagent calls, as soon as what spawned them
//! exists; then the harness's own calls.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{Call, Deriver, Node, classify, price};
use crate::block::ContentBlock;
use crate::project::{cut_bytes, preview_text};
use crate::span::{Link, Span, Trace};
use crate::time::Micros;

const PREVIEW_BYTES: usize = 280;

/// Where a span stands: trace and position in it.
type At = (usize, usize);

#[derive(Default)]
struct Emitter<'a> {
    nodes: &'a [Node],
    traces: Vec<Trace>,
    links: Vec<Link>,
    seen_links: HashSet<Link>,
    current: Option<usize>,
    tools: HashMap<String, At>,
    agents: HashMap<String, At>,
    /// The llm span of the compaction that the next trace goes on from.
    seam: Option<At>,
    /// Label (subagent type, description) by spawning tool call.
    labels: HashMap<String, (String, String)>,
}

pub(super) fn emit(d: &Deriver) -> (Vec<Trace>, Vec<Link>) {
    let mut e = Emitter {
        nodes: &d.nodes,
        ..Emitter::default()
    };
    for c in d
        .calls
        .iter()
        .filter(|c| !c.thread.is_empty() && !c.anchor.is_empty())
    {
        e.labels
            .entry(c.anchor.clone())
            .or_insert_with(|| (c.subagent_type.clone(), c.description.clone()));
    }
    let (mut threads, mut shadows) = (Vec::new(), Vec::new());
    for call in &d.calls {
        match call.kind {
            classify::MAIN if call.thread.is_empty() => e.spine_call(call),
            classify::MAIN => threads.push(call),
            classify::COMPACTION if call.thread.is_empty() => e.compaction(call),
            classify::COMPACTION => threads.push(call),
            _ => shadows.push(call),
        }
    }
    while !threads.is_empty() {
        let before = threads.len();
        threads.retain(|call| {
            let ready =
                e.agents.contains_key(&call.thread) || e.tools.contains_key(&e.thread_anchor(call));
            if ready {
                e.thread_call(call);
            }
            !ready
        });
        if threads.len() == before {
            for call in std::mem::take(&mut threads) {
                e.thread_call(call);
            }
        }
    }
    for call in shadows {
        e.shadow_call(call);
    }
    for trace in &mut e.traces {
        finish(trace);
    }
    (e.traces, e.links)
}

impl Emitter<'_> {
    /// Index of the last request message that is new and the assistant's: what stands up to it is
    /// replayed history.
    fn boundary(&self, call: &Call) -> Option<usize> {
        (0..call.request.len()).rev().find(|&i| {
            let (node, new) = call.request[i];
            new && self.nodes[node].role == "assistant"
        })
    }

    /// Positions of the request that are new, behind the boundary and the user's own.
    fn fresh_user<'b>(&'b self, call: &'b Call) -> impl DoubleEndedIterator<Item = &'b Node> + 'b {
        let after = self.boundary(call).map_or(0, |b| b + 1);
        call.request[after..]
            .iter()
            .filter(|(_, new)| *new)
            .map(|(node, _)| &self.nodes[*node])
            .filter(|n| n.role == "user" && !n.kind.starts_with("injected:"))
    }

    fn fresh_prompt(&self, call: &Call) -> Option<String> {
        let node = self
            .fresh_user(call)
            .rev()
            .find(|n| !n.blocks.iter().any(ContentBlock::is_tool_result))?;
        let mut prompt = String::new();
        for text in node
            .blocks
            .iter()
            .filter(|b| b.kind == "text" && !b.text.is_empty())
        {
            let text = preview_text(&text.text);
            if text.is_empty() {
                continue;
            }
            if !prompt.is_empty() {
                prompt.push('\n');
            }
            prompt.push_str(&text);
            if prompt.len() >= PREVIEW_BYTES {
                break;
            }
        }
        Some(cut_bytes(&prompt, PREVIEW_BYTES).to_owned())
    }

    fn fresh_input(&self, call: &Call) -> Vec<ContentBlock> {
        self.fresh_user(call)
            .flat_map(|n| &n.blocks)
            .filter(|b| !b.is_tool_result())
            .cloned()
            .collect()
    }

    fn open_trace(&mut self, call: &Call, prompt: String, synthetic: &'static str) -> usize {
        let at = self.traces.len();
        self.traces.push(Trace {
            trace_id: format!("trc_{}", call.identity),
            user_prompt: prompt,
            synthetic,
            source: call.source.clone(),
            started_at: call.captured,
            ended_at: call.captured,
            spans: vec![Span {
                span_id: format!("agent_main_{}", call.identity),
                kind: "agent",
                name: "main".into(),
                status: "ok",
                started_at: call.captured,
                ..Span::default()
            }],
            ..Trace::default()
        });
        self.current = Some(at);
        if let Some(seam) = self.seam.take() {
            self.traces[at].synthetic = "post-compaction";
            let (from_trace, from_span) = self.ids(seam);
            let to = (
                self.traces[at].trace_id.clone(),
                format!("llm_{}", call.identity),
            );
            self.link(
                "compaction-seam",
                (from_trace, from_span),
                "output",
                to,
                "input",
            );
        }
        at
    }

    fn ensure_trace(&mut self, call: &Call) -> usize {
        match self.current {
            Some(at) => at,
            None => self.open_trace(call, String::new(), "shadow-opener"),
        }
    }

    fn ids(&self, (trace, span): At) -> (String, String) {
        let t = &self.traces[trace];
        (t.trace_id.clone(), t.spans[span].span_id.clone())
    }

    fn link(
        &mut self,
        kind: &str,
        from: (String, String),
        from_io: &str,
        to: (String, String),
        to_io: &str,
    ) {
        let link = Link {
            kind: kind.into(),
            from_trace_id: from.0,
            from_span_id: from.1,
            from_io: from_io.into(),
            to_trace_id: to.0,
            to_span_id: to.1,
            to_io: to_io.into(),
        };
        if self.seen_links.insert(link.clone()) {
            self.links.push(link);
        }
    }

    fn push(&mut self, trace: usize, span: Span) -> At {
        self.traces[trace].spans.push(span);
        (trace, self.traces[trace].spans.len() - 1)
    }

    fn parent_id(&self, at: At) -> String {
        self.traces[at.0].spans[at.1].span_id.clone()
    }

    fn spine_call(&mut self, call: &Call) {
        let prompt = self.fresh_prompt(call);
        let trace = match (self.current, prompt) {
            (Some(at), None) => at,
            (_, prompt) => self.open_trace(call, prompt.unwrap_or_default(), ""),
        };
        self.conversation(call, (trace, 0), classify::MAIN);
    }

    fn compaction(&mut self, call: &Call) {
        let trace = self.ensure_trace(call);
        let span = self.llm_span(call, (trace, 0), Vec::new(), call.kind);
        self.seam = Some(self.push(trace, span));
    }

    fn llm_span(&self, call: &Call, parent: At, input: Vec<ContentBlock>, kind: &str) -> Span {
        let node = &self.nodes[call.response];
        let answer = node.answer.clone().unwrap_or_default();
        Span {
            span_id: format!("llm_{}", call.identity),
            parent_span_id: self.parent_id(parent),
            kind: "llm",
            name: if answer.model.is_empty() {
                "llm".into()
            } else {
                answer.model.clone()
            },
            status: "ok",
            call_kind: kind.into(),
            thread_id: call.thread.clone(),
            model: answer.model,
            stop_reason: answer.stop_reason,
            started_at: call.captured,
            duration_ns: answer.usage.as_ref().map_or(0, |u| u.total_duration_ns),
            verdict: verdict(kind, &node.blocks),
            input,
            output: node.blocks.clone(),
            usage: answer.usage,
            raw_turn_id: call.row_id,
            node_hash: node.hash.clone(),
            fidelity: call.fidelity,
            seq: 0,
        }
    }

    fn conversation(&mut self, call: &Call, agent: At, kind: &str) {
        let trace = agent.0;
        let boundary = self.boundary(call);
        let mut feeds = Vec::new();
        for (i, &(node, new)) in call.request.iter().enumerate() {
            if !new {
                continue;
            }
            let n = &self.nodes[node];
            let fresh = boundary.is_none_or(|b| i > b);
            if n.kind.starts_with("injected:") || n.role == "system" {
                if fresh {
                    let name = if n.kind.starts_with("injected:") {
                        n.kind.clone()
                    } else {
                        "injected:system-insert".into()
                    };
                    let span = Span {
                        span_id: format!("evt_{}", &n.hash[..16]),
                        parent_span_id: self.parent_id(agent),
                        kind: "event",
                        name: name.clone(),
                        status: "ok",
                        call_kind: name,
                        thread_id: call.thread.clone(),
                        started_at: call.captured,
                        input: n.blocks.clone(),
                        node_hash: n.hash.clone(),
                        ..Span::default()
                    };
                    self.push(trace, span);
                }
            } else if matches!(n.role.as_str(), "user" | "tool") {
                for block in n.blocks.iter().filter(|b| b.is_tool_result()) {
                    feeds.extend(self.fill_tool(block, call.captured));
                }
            }
        }
        let input = self.fresh_input(call);
        let span = self.llm_span(call, agent, input, kind);
        let llm = self.push(trace, span);
        for tool in feeds {
            let (from, to) = (self.ids(tool), self.ids(llm));
            self.link("feeds", from, "output", to, "input");
        }
        let nodes = self.nodes;
        for block in &nodes[call.response].blocks {
            if !block.is_tool_use() || block.tool_use_id.is_empty() {
                continue;
            }
            let tool = match self.tools.get(&block.tool_use_id) {
                Some(&at) => at,
                None => {
                    let at = self.push(
                        trace,
                        tool_span(call, block, self.parent_id(agent), &self.labels),
                    );
                    self.tools.insert(block.tool_use_id.clone(), at);
                    at
                }
            };
            let (from, to) = (self.ids(llm), self.ids(tool));
            self.link("emits", from, "output", to, "input");
        }
    }

    /// Gives a tool span its result; `None` where there is no such span or it has one already.
    fn fill_tool(&mut self, block: &ContentBlock, captured: Micros) -> Option<At> {
        let id = if block.tool_result_id.is_empty() {
            &block.tool_use_id
        } else {
            &block.tool_result_id
        };
        let &at = self.tools.get(id)?;
        let span = &mut self.traces[at.0].spans[at.1];
        if !span.output.is_empty() {
            return None;
        }
        span.output = vec![block.clone()];
        if block.is_error {
            span.status = "error";
        }
        span.duration_ns = (captured - span.started_at).max(0) * 1000;
        Some(at)
    }

    fn thread_anchor(&self, call: &Call) -> String {
        if !call.anchor.is_empty() {
            return call.anchor.clone();
        }
        call.request
            .iter()
            .map(|(n, _)| *n)
            .chain([call.response])
            .map(|n| &self.nodes[n])
            .find(|n| n.parent.is_none() && !n.parent_tool_use_id.is_empty())
            .map(|n| n.parent_tool_use_id.clone())
            .unwrap_or_default()
    }

    fn thread_call(&mut self, call: &Call) {
        let agent = match self.agents.get(&call.thread) {
            Some(&at) => at,
            None => {
                let anchor = self.tools.get(&self.thread_anchor(call)).copied();
                let parent = match anchor {
                    Some(at) => at,
                    None => (self.ensure_trace(call), 0),
                };
                let span = Span {
                    span_id: format!("agent_{}", call.thread),
                    parent_span_id: self.parent_id(parent),
                    kind: "agent",
                    name: "subagent".into(),
                    status: "ok",
                    thread_id: call.thread.clone(),
                    started_at: call.captured,
                    ..Span::default()
                };
                let at = self.push(parent.0, span);
                if let Some(tool) = anchor {
                    let (from, to) = (self.ids(at), self.ids(tool));
                    self.link("rejoin", from, "output", to, "output");
                }
                self.agents.insert(call.thread.clone(), at);
                at
            }
        };
        self.conversation(call, agent, classify::MAIN);
        let span = &mut self.traces[agent.0].spans[agent.1];
        let ns = (call.captured - span.started_at) * 1000;
        if ns > 0 {
            span.duration_ns = ns;
        }
    }

    fn shadow_call(&mut self, call: &Call) {
        let input = self.fresh_input(call);
        if let Some(&tool) = self.tools.get(&call.anchor) {
            let span = self.llm_span(call, tool, input, call.kind);
            let llm = self.push(tool.0, span);
            let (from, to) = (self.ids(llm), self.ids(tool));
            self.link("verdict", from, "output", to, "verdict");
            return;
        }
        let trace = if self.traces.is_empty() {
            self.ensure_trace(call)
        } else {
            self.traces
                .iter()
                .rposition(|t| t.started_at <= call.captured)
                .unwrap_or(0)
        };
        let span = self.llm_span(call, (trace, 0), input, call.kind);
        self.push(trace, span);
    }
}

fn tool_span(
    call: &Call,
    block: &ContentBlock,
    parent: String,
    labels: &HashMap<String, (String, String)>,
) -> Span {
    let mut input = block.clone();
    if block.tool_name == "spawn_agent" {
        label_spawn(&mut input, labels.get(&block.tool_use_id));
    }
    Span {
        span_id: block.tool_use_id.clone(),
        parent_span_id: parent,
        kind: "tool",
        name: tool_name(block),
        status: "ok",
        thread_id: call.thread.clone(),
        started_at: call.captured,
        input: vec![input],
        ..Span::default()
    }
}

fn label_spawn(block: &mut ContentBlock, label: Option<&(String, String)>) {
    let task = block
        .tool_input
        .get("task_name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let (kind, description) = label.cloned().unwrap_or_default();
    let or_task = |s: String| if s.is_empty() { task.clone() } else { s };
    let (kind, description) = (or_task(kind), or_task(description));
    if kind.is_empty() && description.is_empty() {
        return;
    }
    block.tool_input.insert("subagent_type".into(), kind.into());
    block
        .tool_input
        .insert("description".into(), description.into());
}

fn tool_name(block: &ContentBlock) -> String {
    let name = block.tool_name.trim().to_lowercase();
    if matches!(
        name.as_str(),
        "exec" | "exec_command" | "shell" | "shell_command"
    ) {
        let given = ["command", "cmd"]
            .iter()
            .any(|k| match block.tool_input.get(*k) {
                Some(Value::String(s)) => !s.trim().is_empty(),
                Some(Value::Array(a)) => !a.is_empty(),
                _ => false,
            });
        if given {
            return "Bash".into();
        }
    }
    if block.tool_name.is_empty() {
        "tool".into()
    } else {
        block.tool_name.clone()
    }
}

fn verdict(kind: &str, blocks: &[ContentBlock]) -> Option<Value> {
    if !kind.starts_with(classify::PERMISSION_CHECK) {
        return None;
    }
    let text: String = blocks.iter().map(|b| b.text.as_str()).collect();
    let lower = text.to_lowercase();
    let answer = lower.match_indices("<block>").find_map(|(at, tag)| {
        let rest = lower[at + tag.len()..].trim_start();
        if rest.starts_with("yes") {
            Some("BLOCK")
        } else if rest.starts_with("no") {
            Some("ALLOW")
        } else {
            None
        }
    })?;
    Some(serde_json::json!({
        "disposition": answer,
        "stage": if kind.ends_with("stage2") { 2 } else { 1 },
        "reasoned": text.contains("<thinking>"),
    }))
}

/// Orders a trace's spans and sums it up.
fn finish(trace: &mut Trace) {
    trace.spans[1..].sort_by_key(|s| s.started_at);
    let mut ended = trace.started_at;
    for (seq, span) in trace.spans.iter_mut().enumerate() {
        span.seq = seq as i64;
        if seq > 0 {
            ended = ended.max(span.started_at + span.duration_ns / 1000);
        }
        if span.kind == "tool" {
            trace.tool_calls += 1;
        }
        let Some(u) = &span.usage else { continue };
        trace.input_tokens += u.prompt_tokens;
        trace.output_tokens += u.completion_tokens;
        trace.cache_read_tokens += u.cache_read_input_tokens;
        trace.cache_creation_tokens += u.cache_creation_input_tokens;
        trace.cost_usd += price::cost_usd(&span.model, u);
        if span.call_kind == classify::MAIN {
            trace.main_input_tokens += u.prompt_tokens;
            trace.main_output_tokens += u.completion_tokens;
        }
    }
    trace.ended_at = ended;
    trace.spans[0].duration_ns = (ended - trace.started_at) * 1000;
    trace.response_preview = response_preview(trace);
}

fn response_preview(trace: &Trace) -> String {
    trace
        .spans
        .iter()
        .rev()
        .filter(|s| s.kind == "llm" && s.call_kind == classify::MAIN && s.thread_id.is_empty())
        .map(|s| {
            let texts: Vec<&str> = s
                .output
                .iter()
                .filter(|b| b.kind == "text" && !b.text.is_empty())
                .map(|b| b.text.as_str())
                .collect();
            cut_bytes(&texts.join("\n"), PREVIEW_BYTES).to_owned()
        })
        .find(|t| !t.is_empty())
        .unwrap_or_default()
}
