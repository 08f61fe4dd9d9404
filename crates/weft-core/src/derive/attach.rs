//! Joining a harness's own calls with the tool calls they are about: verdicts, web summaries, plans.

use serde_json::Value;

use super::{Deriver, MAX_SAMPLES, classify};
use crate::block::{ContentBlock, Message};
use crate::project::cut_bytes;

const WEB_TOOLS: [&str; 4] = ["WebFetch", "WebSearch", "web_search", "web_fetch"];

const RENDER_KEYS: [&str; 10] = [
    "command",
    "query",
    "file_path",
    "path",
    "pattern",
    "url",
    "prompt",
    "skill",
    "message",
    "subject",
];

const TOOL_HEADS: [&str; 23] = [
    "Bash",
    "Read",
    "Write",
    "Edit",
    "MultiEdit",
    "NotebookEdit",
    "Glob",
    "Grep",
    "WebSearch",
    "WebFetch",
    "Task",
    "TaskCreate",
    "TaskUpdate",
    "TaskGet",
    "Skill",
    "CronCreate",
    "CronList",
    "CronDelete",
    "Monitor",
    "EnterPlanMode",
    "ExitPlanMode",
    "AskUserQuestion",
    "PushNotification",
];

/// Bytes of one rendered call that must occur in the other.
const PROBE: usize = 22;
/// Fewer bytes than this match nothing.
const MIN_REMAINDER: usize = 6;

/// Lower case, without `$` and quotes, white space collapsed.
fn norm(text: &str) -> String {
    let text = text.to_lowercase();
    let text = text.trim();
    let text = text.strip_prefix("$ ").unwrap_or(text);
    let text: String = text.chars().filter(|c| !matches!(c, '$' | '"')).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A tool call as a permission check would quote it.
pub(super) fn render_call(block: &ContentBlock) -> String {
    let argument = RENDER_KEYS
        .iter()
        .filter_map(|k| block.tool_input.get(*k).and_then(Value::as_str))
        .find(|s| !s.is_empty())
        .unwrap_or_default();
    norm(&format!("{} {argument}", block.tool_name))
}

/// The tool head at the start of a line, by bytes; 0 = none.
fn head_len(line: &str, fold_case: bool) -> usize {
    let boundary = |at: usize| {
        line[at..]
            .chars()
            .next()
            .is_none_or(|c| !(c.is_alphanumeric() || c == '_'))
    };
    if line.starts_with("mcp__") {
        let at = line.find(char::is_whitespace).unwrap_or(line.len());
        return if at > "mcp__".len() { at } else { 0 };
    }
    TOOL_HEADS
        .iter()
        .filter(|head| {
            line.get(..head.len()).is_some_and(|start| {
                (if fold_case {
                    start.eq_ignore_ascii_case(head)
                } else {
                    start == **head
                }) && boundary(head.len())
            })
        })
        .map(|head| head.len())
        .max()
        .unwrap_or(0)
}

/// The action that a permission check judges.
pub(super) fn judged_action(messages: &[Message]) -> String {
    let blocks: Vec<&ContentBlock> = messages.iter().flat_map(|m| &m.content).collect();
    if let Some(i) = (1..blocks.len())
        .rev()
        .find(|&i| blocks[i].text.trim() == "</transcript>")
    {
        return norm(&blocks[i - 1].text);
    }
    let Some(body) = blocks.iter().rev().find_map(|b| {
        let at = b.text.find("<transcript>")?;
        let body = &b.text[at + "<transcript>".len()..];
        Some(body.find("</transcript>").map_or(body, |end| &body[..end]))
    }) else {
        return String::new();
    };
    let lines: Vec<&str> = body.lines().map(str::trim).collect();
    let tail = &lines[lines.len().saturating_sub(10)..];
    let line = tail
        .iter()
        .rev()
        .find(|l| head_len(l, false) > 0)
        .or_else(|| lines.iter().rev().find(|l| !l.is_empty()));
    line.map(|l| norm(l)).unwrap_or_default()
}

fn without_head(rendered: &str) -> &str {
    rendered[head_len(rendered, true)..].trim_start()
}

/// Whether a judged action is this tool call.
fn matches(action: &str, name: &str, rendered: &str) -> bool {
    if action.starts_with("mcp__") {
        let name = name.to_lowercase();
        return name.starts_with("mcp__") && action.starts_with(&name);
    }
    let (a, b) = (without_head(action), without_head(rendered));
    if a.len() < MIN_REMAINDER || b.len() < MIN_REMAINDER {
        return false;
    }
    b.contains(cut_bytes(a, PROBE)) || a.contains(cut_bytes(b, PROBE))
}

struct Group {
    action: String,
    thread: String,
    calls: Vec<usize>,
}

impl Deriver {
    pub(super) fn attach(&mut self) {
        self.attach_verdicts();
        let web = |name: &str| WEB_TOOLS.contains(&name);
        self.report.web_summary_attached = self.attach_latest(classify::WEB_SUMMARY, web);
        let plan = |name: &str| name.eq_ignore_ascii_case("ExitPlanMode");
        self.report.plans_attached = self.attach_latest(classify::PLAN_NAME_GEN, plan);
    }

    fn attach_verdicts(&mut self) {
        let mut groups: Vec<Group> = Vec::new();
        for (call, action) in std::mem::take(&mut self.judged) {
            let thread = self.calls[call].thread.clone();
            let fits = groups.iter_mut().find(|g| {
                g.action == action
                    && (g.thread == thread || g.thread.is_empty() || thread.is_empty())
            });
            match fits {
                Some(g) => {
                    if g.thread.is_empty() {
                        g.thread = thread;
                    }
                    g.calls.push(call);
                }
                None => groups.push(Group {
                    action,
                    thread,
                    calls: vec![call],
                }),
            }
        }
        self.report.judged_actions = groups.len() as u64;
        for g in groups {
            let find = |same_thread: bool| {
                self.tools.iter().position(|t| {
                    !t.consumed
                        && (!same_thread || t.thread == g.thread)
                        && matches(&g.action, &t.name, &t.rendered)
                })
            };
            match find(true).or_else(|| find(false)) {
                Some(t) => {
                    self.tools[t].consumed = true;
                    self.report.attached_verdicts += 1;
                    for call in g.calls {
                        self.calls[call].anchor = self.tools[t].id.clone();
                    }
                }
                None if self.report.unattached_actions.len() < MAX_SAMPLES => {
                    let cut = cut_bytes(&g.action, 120);
                    let more = if cut.len() < g.action.len() {
                        "…"
                    } else {
                        ""
                    };
                    self.report
                        .unattached_actions
                        .push(format!("thread={} action={cut}{more}", g.thread));
                }
                None => {}
            }
        }
    }

    /// Gives each call of a kind the latest unconsumed tool call before it.
    fn attach_latest(&mut self, kind: &str, wanted: impl Fn(&str) -> bool) -> u64 {
        let mut attached = 0;
        for call in 0..self.calls.len() {
            if self.calls[call].kind != kind {
                continue;
            }
            let found = self
                .tools
                .iter()
                .enumerate()
                .filter(|(_, t)| !t.consumed && t.call <= call && wanted(&t.name))
                .max_by_key(|(i, t)| (t.call, *i))
                .map(|(i, _)| i);
            if let Some(t) = found {
                self.tools[t].consumed = true;
                self.calls[call].anchor = self.tools[t].id.clone();
                attached += 1;
            }
        }
        attached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_match_calls_by_what_follows_the_tool_name() {
        assert!(matches(
            "bash cargo test --workspace",
            "Bash",
            "bash cargo test --workspace --quiet"
        ));
        assert!(!matches("bash ls", "Bash", "bash ls"));
        assert!(matches("mcp__x__do {a:1}", "mcp__x__do", "mcp__x__do"));
        assert!(!matches("bash rm -rf /tmp/x", "Read", "read /etc/passwd"));
        assert_eq!(norm("  $ Echo \"A\"\n  $B "), "echo a b");
    }

    #[test]
    fn the_judged_action_stands_before_the_end_of_the_transcript() {
        let m = |texts: &[&str]| Message {
            role: "user".into(),
            content: texts.iter().map(|t| ContentBlock::text(*t)).collect(),
        };
        assert_eq!(
            judged_action(&[m(&["<transcript>", "Bash rm x", "</transcript>\n"])]),
            "bash rm x"
        );
        assert_eq!(
            judged_action(&[m(&[
                "<transcript>\nuser: hi\nBash cargo fmt\nnoise\n</transcript>"
            ])]),
            "bash cargo fmt"
        );
        assert_eq!(
            judged_action(&[m(&["<transcript>\nBashful\nlast"])]),
            "last"
        );
        assert_eq!(judged_action(&[]), "");
    }
}
