//! What a captured call is for: the conversation itself, or something its harness asked on its own.

use serde_json::Value;

use crate::block::{ChatRequest, ContentBlock, Message};

/// The call kind of the conversation itself; the only one that is embedded and searched.
pub const MAIN: &str = "main";
/// A call that compacts the conversation.
pub const COMPACTION: &str = "offshoot:compaction";
/// A call that asks for a session title.
pub const TITLE_GEN: &str = "offshoot:title-gen";
/// A call that names or summarizes a plan.
pub const PLAN_NAME_GEN: &str = "offshoot:plan-name-gen";
/// A call that summarizes a fetched page or a web search.
pub const WEB_SUMMARY: &str = "offshoot:web-summary";
/// Prefix of both stages of a permission check.
pub const PERMISSION_CHECK: &str = "offshoot:permission-check";
/// A call of which nothing is known.
pub const UNKNOWN: &str = "unknown";

const COMPACTION_ASKS: [&str; 3] = [
    "summary of the conversation so far",
    "context checkpoint compaction",
    "create a handoff summary for another llm",
];

const COMPACTION_HEADINGS: [&str; 8] = [
    "Key Technical Concepts",
    "Files and Code Sections",
    "Pending Tasks",
    "Current Work",
    "Errors and fixes",
    "Problem Solving",
    "All user messages",
    "Optional Next Step",
];

/// Context that a harness injects as a message of its own; `None` for what a person wrote.
pub fn classify_injected(message: &Message) -> Option<&'static str> {
    if !matches!(message.role.as_str(), "user" | "system") {
        return None;
    }
    if message
        .content
        .iter()
        .any(|b| !matches!(b.kind.as_str(), "text" | ""))
    {
        return None;
    }
    let text: String = message.content.iter().map(|b| b.text.as_str()).collect();
    let text = text.trim();
    const PREFIXES: [(&str, &str); 9] = [
        ("# MCP Server Instructions", "injected:mcp-instructions"),
        ("The following skills are available", "injected:skills-list"),
        ("Plan mode is active", "injected:mode-banner"),
        ("Exited Plan Mode", "injected:mode-banner"),
        ("## Exited Plan Mode", "injected:mode-banner"),
        ("## Exit Plan Mode", "injected:mode-banner"),
        ("## Plan Mode", "injected:mode-banner"),
        ("[SYSTEM NOTIFICATION", "injected:mode-banner"),
        ("<user_claude_md>", "injected:claude-md"),
    ];
    PREFIXES
        .iter()
        .find(|(prefix, _)| text.starts_with(prefix))
        .map(|(_, kind)| *kind)
}

/// Every block's text, each followed by a line feed.
pub(super) fn text_of(blocks: &[ContentBlock]) -> String {
    let mut out = String::new();
    for b in blocks.iter().filter(|b| !b.text.is_empty()) {
        out.push_str(&b.text);
        out.push('\n');
    }
    out
}

/// Classifies a call by its request and the blocks of its answer; the first rule that fits wins.
pub fn classify_call(request: &ChatRequest, response: &[ContentBlock]) -> &'static str {
    let text_at = |m: Option<&Message>| m.map(|m| text_of(&m.content)).unwrap_or_default();
    let first = text_at(request.messages.first());
    let last = text_at(request.messages.last());
    let lower_last = last.to_lowercase();
    let sys = request.system.to_lowercase();
    let resp = text_of(response);
    let no_tools = request.tools == 0;

    if sys.contains("you are a security monitor") {
        let first_stage = request.max_tokens.is_some_and(|n| n <= 64)
            || lower_last.contains("err on the side of blocking");
        return if first_stage {
            "offshoot:permission-check:stage1"
        } else {
            "offshoot:permission-check:stage2"
        };
    }
    if request.max_tokens == Some(1) && no_tools {
        return "offshoot:probe";
    }
    if last.trim().starts_with("[SUGGESTION MODE") {
        return "offshoot:suggestion";
    }
    if no_tools && sys.contains("{\"title\"") {
        return TITLE_GEN;
    }
    if no_tools && (sys.contains("<conversation>") || first.trim().starts_with("<conversation>")) {
        return PLAN_NAME_GEN;
    }
    if resp.trim().starts_with("{\"title\"") {
        return TITLE_GEN;
    }
    if resp.trim().starts_with("{\"name\"") {
        return PLAN_NAME_GEN;
    }
    let trimmed = first.trim();
    if trimmed.starts_with("Web page content:") || trimmed.starts_with("Perform a web search") {
        return WEB_SUMMARY;
    }
    if COMPACTION_ASKS.iter().any(|ask| lower_last.contains(ask))
        || (resp.contains("Primary Request and Intent")
            && COMPACTION_HEADINGS.iter().any(|h| resp.contains(h)))
    {
        return COMPACTION;
    }
    if request.stream == Some(true) {
        if request.tools > 0 {
            return MAIN;
        }
        let chosen = match &request.tool_choice {
            Some(Value::String(s)) => !s.is_empty() && s != "none",
            Some(Value::Object(o)) => !o.is_empty(),
            _ => false,
        };
        if request.responses_endpoint && chosen {
            return MAIN;
        }
    }
    UNKNOWN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(system: &str, texts: &[&str]) -> ChatRequest {
        ChatRequest {
            system: system.into(),
            messages: texts
                .iter()
                .map(|t| Message {
                    role: "user".into(),
                    content: vec![ContentBlock::text(*t)],
                })
                .collect(),
            ..ChatRequest::default()
        }
    }

    #[test]
    fn the_first_rule_that_fits_wins() {
        let r = |s, t: &[&str]| request(s, t);
        let with = |mut q: ChatRequest, tools, stream, max| {
            q.tools = tools;
            q.stream = stream;
            q.max_tokens = max;
            q
        };
        let cases = [
            (
                with(r("You are a SECURITY monitor", &["x"]), 0, None, Some(0)),
                "",
                "offshoot:permission-check:stage1",
            ),
            (
                with(r("you are a security monitor", &["x"]), 0, None, Some(4096)),
                "",
                "offshoot:permission-check:stage2",
            ),
            (
                with(
                    r(
                        "you are a security monitor",
                        &["Err on the side of blocking"],
                    ),
                    0,
                    None,
                    None,
                ),
                "",
                "offshoot:permission-check:stage1",
            ),
            (
                with(r("", &["quota"]), 0, None, Some(1)),
                "",
                "offshoot:probe",
            ),
            (
                with(r("", &["a", " [SUGGESTION MODE x"]), 3, Some(true), None),
                "",
                "offshoot:suggestion",
            ),
            (
                with(r("reply {\"title\": …}", &["a"]), 0, None, None),
                "",
                TITLE_GEN,
            ),
            (
                with(r("", &["<conversation>…"]), 0, None, None),
                "",
                PLAN_NAME_GEN,
            ),
            (
                with(r("", &["a"]), 2, Some(true), None),
                " {\"title\":\"x\"}",
                TITLE_GEN,
            ),
            (
                with(r("", &["a"]), 2, Some(true), None),
                "{\"name\":\"x\"}",
                PLAN_NAME_GEN,
            ),
            (
                with(r("", &["Web page content: x"]), 2, Some(true), None),
                "",
                WEB_SUMMARY,
            ),
            (
                with(
                    r(
                        "",
                        &["a", "Your task: a Summary of the conversation so far"],
                    ),
                    2,
                    Some(true),
                    None,
                ),
                "",
                COMPACTION,
            ),
            (
                with(r("", &["a"]), 2, Some(true), None),
                "Primary Request and Intent … Pending Tasks",
                COMPACTION,
            ),
            (
                with(r("", &["a"]), 2, Some(true), None),
                "Primary Request and Intent",
                MAIN,
            ),
            (with(r("", &["a"]), 2, None, None), "", UNKNOWN),
            (with(r("", &["a"]), 0, Some(true), None), "", UNKNOWN),
        ];
        for (i, (q, answer, want)) in cases.into_iter().enumerate() {
            assert_eq!(
                classify_call(&q, &[ContentBlock::text(answer)]),
                want,
                "case {i}"
            );
        }
        let mut q = r("", &["a"]);
        (q.stream, q.responses_endpoint) = (Some(true), true);
        q.tool_choice = Some("none".into());
        assert_eq!(classify_call(&q, &[]), UNKNOWN);
        q.tool_choice = Some("auto".into());
        assert_eq!(classify_call(&q, &[]), MAIN);
    }

    #[test]
    fn injected_context_is_told_from_prompts() {
        let m = |role: &str, t: &str| Message {
            role: role.into(),
            content: vec![ContentBlock::text(t)],
        };
        assert_eq!(
            classify_injected(&m("user", "\n## Plan Mode x")),
            Some("injected:mode-banner")
        );
        assert_eq!(classify_injected(&m("assistant", "## Plan Mode")), None);
        assert_eq!(classify_injected(&m("user", "hello")), None);
    }
}
