//! What a session comes to: title, status, tasks, tokens, cost.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::{classify, model_usage};
use crate::block::ContentBlock;
use crate::project::cut_bytes;
use crate::span::{Rollup, Span, Task, Trace};

/// The title in a title-generation answer, at most 255 bytes.
pub(super) fn title(blocks: &[ContentBlock]) -> Option<String> {
    let text = classify::text_of(blocks);
    let json = text.get(text.find('{')?..=text.rfind('}')?)?;
    let v: Value = serde_json::from_str(json).ok()?;
    let title = cut_bytes(v["title"].as_str()?.trim(), 255);
    (!title.is_empty()).then(|| title.to_owned())
}

pub(super) fn fold(traces: &[Trace], titles: &[String]) -> Rollup {
    let tools = || spans(traces).filter(|s| s.kind == "tool");
    let mut kind_counts = BTreeMap::new();
    for span in spans(traces).filter(|s| !s.call_kind.is_empty()) {
        *kind_counts.entry(span.call_kind.clone()).or_insert(0) += 1;
    }
    let sum = |f: fn(&Trace) -> i64| traces.iter().map(f).sum();
    let mut rollup = Rollup {
        title: titles.last().cloned().unwrap_or_default(),
        model: most_frequent_model(traces),
        turn_count: traces.len() as i64,
        input_tokens: sum(|t| t.input_tokens),
        output_tokens: sum(|t| t.output_tokens),
        cost_usd: traces.iter().map(|t| t.cost_usd).sum(),
        has_git_activity: tools().any(is_git_activity),
        tool_result_count: tools().filter(|s| !s.output.is_empty()).count() as i64,
        tool_error_count: tools().filter(|s| s.status == "error").count() as i64,
        model_usage: model_usage(traces),
        tasks: tasks(traces),
        kind_counts,
        status: String::new(),
    };
    rollup.status = status(traces, &rollup).to_owned();
    rollup
}

fn spans(traces: &[Trace]) -> impl Iterator<Item = &Span> {
    traces.iter().flat_map(|t| &t.spans)
}

fn is_main(span: &Span) -> bool {
    span.kind == "llm" && span.call_kind == classify::MAIN && span.thread_id.is_empty()
}

fn most_frequent_model(traces: &[Trace]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for s in spans(traces).filter(|s| is_main(s) && !s.model.is_empty()) {
        *counts.entry(&s.model).or_default() += 1;
    }
    // The last maximum of the reversed order is the smallest name.
    counts
        .into_iter()
        .rev()
        .max_by_key(|(_, n)| *n)
        .map(|(m, _)| m.to_owned())
        .unwrap_or_default()
}

fn is_git_activity(span: &Span) -> bool {
    span.input.iter().any(|b| {
        b.tool_name == "Bash"
            && b.tool_input
                .get("command")
                .and_then(Value::as_str)
                .map(str::to_lowercase)
                .is_some_and(|c| c.contains("git commit") || c.contains("git push"))
    })
}

fn status(traces: &[Trace], rollup: &Rollup) -> &'static str {
    let terminal = traces
        .iter()
        .rev()
        .find_map(|t| t.spans.iter().rev().find(|s| is_main(s)));
    let Some(terminal) = terminal else {
        return "unknown";
    };
    let reason = terminal.stop_reason.trim().to_lowercase();
    if matches!(reason.as_str(), "length" | "max_tokens" | "content_filter")
        || reason.contains("error")
    {
        "failed"
    } else if rollup.has_git_activity {
        "completed"
    } else if rollup.tool_result_count > 0 && rollup.tool_error_count * 2 > rollup.tool_result_count
    {
        "failed"
    } else if matches!(
        reason.as_str(),
        "stop" | "end_turn" | "end-turn" | "eos" | "tool_use" | "tool_use_response"
    ) {
        "completed"
    } else {
        "unknown"
    }
}

fn input_str(span: &Span, key: &str) -> String {
    match span.input.first().and_then(|b| b.tool_input.get(key)) {
        Some(Value::String(s)) => s.clone(),
        Some(Value::Number(n)) => n
            .as_f64()
            .map_or_else(String::new, |f| (f as i64).to_string()),
        _ => String::new(),
    }
}

fn tasks(traces: &[Trace]) -> Vec<Task> {
    let mut tools: Vec<&Span> = spans(traces)
        .filter(|s| s.kind == "tool" && s.name.starts_with("Task"))
        .collect();
    tools.sort_by_key(|s| (s.started_at, s.seq));
    let mut tasks: Vec<Task> = Vec::new();
    let mut by_id: HashMap<String, usize> = HashMap::new();
    for span in tools {
        match span.name.as_str() {
            "TaskCreate" => {
                let result: String = span.output.iter().map(|b| b.tool_output.as_str()).collect();
                let id = first_number(&result);
                if !id.is_empty() {
                    if by_id.contains_key(&id) {
                        continue;
                    }
                    by_id.insert(id.clone(), tasks.len());
                }
                tasks.push(Task {
                    id,
                    subject: input_str(span, "subject"),
                    description: input_str(span, "description"),
                    status: "pending".into(),
                    updates: 0,
                });
            }
            "TaskUpdate" => {
                let Some(&at) = by_id.get(&input_str(span, "taskId")) else {
                    continue;
                };
                let task = &mut tasks[at];
                task.updates += 1;
                for (value, slot) in [
                    (input_str(span, "status"), &mut task.status),
                    (input_str(span, "subject"), &mut task.subject),
                ] {
                    if !value.is_empty() {
                        *slot = value;
                    }
                }
            }
            _ => {}
        }
    }
    tasks.retain(|t| t.status != "deleted");
    tasks
}

/// The digits behind the first `#` that has any.
fn first_number(text: &str) -> String {
    text.split('#')
        .skip(1)
        .map(|piece| {
            piece
                .chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        })
        .find(|digits| !digits.is_empty())
        .unwrap_or_default()
}

/// What a list shows as a session's name; never empty.
///
/// `prompt` is the whole prompt of the session's first real turn; it is skipped where it is JSON.
pub fn display_title(
    display_name: &str,
    title: &str,
    prompt: &str,
    name: &str,
    harness_session_id: &str,
    id: &str,
) -> String {
    let preview: String = prompt.trim().chars().take(120).collect();
    let is_json = |s: &str| serde_json::from_str::<serde::de::IgnoredAny>(s).is_ok();
    let preview = if is_json(prompt.trim()) || is_json(&preview) {
        ""
    } else {
        preview.as_str()
    };
    [
        display_name,
        title,
        preview,
        name,
        cut_bytes(harness_session_id, 12),
        id,
    ]
    .into_iter()
    .map(str::trim)
    .find(|s| !s.is_empty())
    .unwrap_or_default()
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_come_out_of_the_json_in_the_answer() {
        let t = |s: &str| title(&[ContentBlock::text(s)]);
        assert_eq!(
            t("ok {\"title\": \" Fix it \"} done").as_deref(),
            Some("Fix it")
        );
        assert_eq!(t("{\"title\": \"\"}"), None);
        assert_eq!(t("} {"), None);
        assert_eq!(t("none"), None);
    }

    #[test]
    fn display_titles_fall_back_in_order() {
        assert_eq!(display_title("", "", "{\"a\":1}", "n", "h", "i"), "n");
        assert_eq!(
            display_title("", "", "42", "", "0123456789abcdef", "i"),
            "0123456789ab"
        );
        assert_eq!(display_title(" ", "t", "p", "n", "h", "i"), "t");
        assert_eq!(display_title("", "", " hello ", "n", "h", "i"), "hello");
        assert_eq!(first_number("Task #x then #12 and #3"), "12");
    }
}
