//! The MCP tools over everything: `search` and `why`, and `show` to open what they found.

use std::sync::Arc;

use rmcp::model::{CallToolResult, JsonObject, Tool};
use serde_json::{Value, json};
use weft_engine::everything::{AllQuery, Corpus, MAX_LIMIT};
use weft_engine::why::WhyOptions;
use weft_engine::{Engine, Filter, now};

use super::tool::{self, Given, answers, arguments, hinted, reads};
use crate::all_text::{self, AllShape};
use crate::answer::Answer;

/// Tokens of an answer, unless asked for otherwise.
const BUDGET: i64 = 1_200;

pub(super) fn tools() -> [Tool; 3] {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let json_flag =
        json!({"type": "boolean", "description": "Answer with all that is known, as JSON"});
    let search = arguments(
        json!({
            "query": {"type": "string", "description": "What to look for: words, a question, a name, an error message, a ticket, a commit id"},
            "in": {"type": "string", "description": "Only these, with commas: spans (what was said), code, decisions"},
            "limit": {"type": "integer", "description": "Number of hits (default 10)"},
            "top_k": {"type": "integer", "description": "The same as limit"},
            "budget": {"type": "integer", "description": "Tokens that the answer may cost (default 1200)"},
            "all_repos": {"type": "boolean", "description": "Ask every repository that is known here, not only this one"},
            "file": {"type": "string", "description": "Only what is about this file"},
            "session": {"type": "string", "description": "Only this session"},
            "agent": {"type": "string", "description": "Only this agent program: claude, codex, …"},
            "since": {"type": "string", "description": "A day, `last week`, `3 days ago`, an RFC 3339 time"},
            "json": json_flag,
        }),
        &["query"],
    );
    let hit = answers(
        json!({
            "corpus": text, "reference": text, "text": text, "repository": text,
            "age": {"type": "string", "description": "How long ago: 5m, 3h, 2d, 6w, 8mo, 3y"},
            "matched": texts,
        }),
        &["corpus", "reference", "text", "matched"],
    );
    let found = answers(
        json!({
            "query": text,
            "in": texts,
            "hits": {"type": "array", "items": hit},
            "coverage": {"type": "array", "items": answers(json!({"corpus": text, "note": text}), &["corpus", "note"])},
            "left_out": {"type": "integer", "description": "Hits that did not fit the budget"},
        }),
        &["query", "in", "hits", "coverage"],
    );
    let objects = json!({"type": "array", "items": {"type": "object"}});
    let because = answers(
        json!({
            "target": {"type": "object"}, "decisions": objects, "commits": objects,
            "more_commits": {"type": "boolean"}, "spans": objects, "notes": texts,
        }),
        &["target", "decisions", "commits", "spans"],
    );
    let shown = answers(
        json!({"reference": text, "text": {"type": "string", "description": "What it says; not with json"}}),
        &[],
    );
    [
        reads(
            [
                "search",
                "Search everything",
                "One search over what was said to agents, what is in the code and what was decided. Ask it first, \
                 before grep and before you change or decide something. A hit a line: corpus, reference, what it \
                 says, age, why it matched. `show` opens a reference.",
            ],
            search,
            found,
        ),
        reads(
            [
                "why",
                "Why is it so",
                "Why a file, line or symbol is as it is: the commits that shaped it, the agent calls that wrote it \
                 with their prompts, and the decisions that govern it. Ask before you change something odd.",
            ],
            arguments(
                json!({
                    "target": {"type": "string", "description": "path, path:line or path::symbol"},
                    "json": json_flag,
                }),
                &["target"],
            ),
            because,
        ),
        reads(
            [
                "show",
                "Open a hit",
                "Open what a search found: a span with its neighbours, a symbol with its source, a decision in full.",
            ],
            arguments(
                json!({
                    "reference": {"type": "string", "description": "As a search prints it: span:ID, session:ID, path::symbol, decision:PATH, commit:ID"},
                    "json": json_flag,
                }),
                &["reference"],
            ),
            shown,
        ),
    ]
}

/// A call of one of these tools.
#[derive(Debug)]
pub(super) enum Asked {
    Search(Box<AllQuery>, AllShape),
    Why(String, bool),
    Show(String, bool),
}

impl Asked {
    /// Whether one of these tools is called this.
    pub(super) fn knows(tool: &str) -> bool {
        matches!(tool, "search" | "why" | "show")
    }

    pub(super) fn read(tool: &str, given: Option<JsonObject>) -> Result<Self, String> {
        let known: &[&str] = match tool {
            "search" => &[
                "query",
                "in",
                "limit",
                "top_k",
                "budget",
                "all_repos",
                "file",
                "session",
                "agent",
                "since",
                "json",
            ],
            "why" => &["target", "json"],
            _ => &["reference", "json"],
        };
        let o = Given::new(given, known)?;
        let first = o.required(known[0])?;
        let json = o.flag("json")?;
        match tool {
            "why" => return Ok(Self::Why(first, json)),
            "show" => return Ok(Self::Show(first, json)),
            _ => {}
        }
        let limit = o.limit("limit", o.integer("top_k", 10)?, MAX_LIMIT)?;
        let since =
            match o.text("since")? {
                None => None,
                Some(t) => Some(weft_engine::time_words(&t).and_then(|r| r.0).ok_or_else(
                    || {
                        format!(
                            "since: {t:?} is no time; try `last week`, `3 days ago` or 2026-11-03"
                        )
                    },
                )?),
            };
        let shape = AllShape {
            budget: o.budget("budget", BUDGET)?,
            json,
            explain: false,
            now: now(),
        };
        let q = AllQuery {
            query: first,
            corpora: Corpus::parse_list(&o.text("in")?.unwrap_or_default())?,
            limit,
            all_repos: o.flag("all_repos")?,
            folder: std::env::current_dir().ok(),
            background: true,
            filter: Filter {
                sessions: o.text("session")?.into_iter().collect(),
                agent: o.text("agent")?,
                file: o.text("file")?,
                since,
                ..Filter::default()
            },
            ..AllQuery::default()
        };
        Ok(Self::Search(Box::new(q), shape))
    }
}

/// What `why` tells, as text and without the source that the caller can read itself.
pub(super) fn why(engine: &Engine, target: &str, json: bool) -> Result<Answer, String> {
    let here = std::env::current_dir().map_err(|e| e.to_string())?;
    let w = engine
        .why(target, &here, WhyOptions::default())
        .map_err(|e| hinted(&e, e.hint()))?;
    let mut structured = all_text::why_json(&w);
    if json {
        return Ok(Answer::of(structured));
    }
    if let Some(o) = structured["target"].as_object_mut() {
        o.remove("text");
    }
    Ok(Answer {
        text: all_text::why(&w, now()),
        structured,
    })
}

/// What a reference leads to.
pub(super) fn show(engine: &Engine, reference: &str, json: bool) -> Result<Answer, String> {
    let here = std::env::current_dir().map_err(|e| e.to_string())?;
    let s = engine
        .show(reference, &here)
        .map_err(|e| hinted(&e, e.hint()))?;
    if json {
        return Ok(Answer::of(all_text::shown_json(&s)));
    }
    let text = all_text::shown(&s);
    let structured: Value = json!({"reference": reference, "text": text});
    Ok(Answer { text, structured })
}

pub(super) async fn answer(engine: Arc<Engine>, asked: Asked) -> CallToolResult {
    tool::run(move || match asked {
        Asked::Search(q, shape) => {
            let a = engine
                .search_everything(&q, &mut |_, _, _| {})
                .map_err(|e| e.to_string())?;
            Ok(all_text::search_answer(&q.query, &a, shape))
        }
        Asked::Why(target, json) => why(&engine, &target, json),
        Asked::Show(reference, json) => show(&engine, &reference, json),
    })
    .await
}
