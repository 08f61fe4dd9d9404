//! The MCP tools over everything: `search` and `why`, and `show` to open what they found.

use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};
use weft_engine::everything::{AllQuery, Corpus, MAX_LIMIT};
use weft_engine::why::WhyOptions;
use weft_engine::{Engine, Filter, now};

use super::object;
use crate::all_text::{self, AllShape};

/// Tokens of an answer, unless asked for otherwise.
const BUDGET: i64 = 1_200;

pub(super) fn tools() -> [Tool; 3] {
    let search = json!({
        "type": "object",
        "properties": {
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
            "json": {"type": "boolean", "description": "Answer with JSON instead of text"},
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    let why = json!({
        "type": "object",
        "properties": {
            "target": {"type": "string", "description": "path, path:line or path::symbol"},
            "json": {"type": "boolean", "description": "Answer with JSON instead of text"},
        },
        "required": ["target"],
        "additionalProperties": false,
    });
    let show = json!({
        "type": "object",
        "properties": {
            "reference": {"type": "string", "description": "As a search prints it: span:ID, session:ID, path::symbol, decision:PATH, commit:ID"},
            "json": {"type": "boolean", "description": "Answer with JSON instead of text"},
        },
        "required": ["reference"],
        "additionalProperties": false,
    });
    let reads = || ToolAnnotations::new().read_only(true);
    [
        Tool::new(
            "search",
            "One search over what was said to agents, what is in the code and what was decided. A hit a line: \
             corpus, reference, what it says, age, why it matched. `show` opens a reference.",
            object(search),
        )
        .with_annotations(reads()),
        Tool::new(
            "why",
            "Why a file, line or symbol is as it is: the commits that shaped it, the agent calls that wrote it \
             with their prompts, and the decisions that govern it. Ask before you change something odd.",
            object(why),
        )
        .with_annotations(reads()),
        Tool::new(
            "show",
            "Open what a search found: a span with its neighbours, a symbol with its source, a decision in full.",
            object(show),
        )
        .with_annotations(reads()),
    ]
}

/// A call of one of these tools.
#[derive(Debug)]
pub(super) enum Asked {
    Search(Box<AllQuery>, AllShape),
    Why(String, bool),
    Show(String, bool),
}

fn text(o: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match o.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(s)) if s.trim().is_empty() => Ok(None),
        Some(Value::String(s)) => Ok(Some(s.clone())),
        Some(v) => Err(format!("{name}: {v} has the wrong type, want \"string\"")),
    }
}

fn flag(o: &Map<String, Value>, name: &str) -> Result<bool, String> {
    match o.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(b)) => Ok(*b),
        Some(v) => Err(format!("{name}: {v} has the wrong type, want \"boolean\"")),
    }
}

impl Asked {
    /// Whether one of these tools is called this.
    pub(super) fn knows(tool: &str) -> bool {
        matches!(tool, "search" | "why" | "show")
    }

    pub(super) fn read(tool: &str, given: Option<JsonObject>) -> Result<Self, String> {
        let o = given.unwrap_or_default();
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
        if let Some(k) = o.keys().find(|k| !known.contains(&k.as_str())) {
            return Err(format!(
                "unexpected additional properties [\"{k}\"]; the arguments are {}",
                known.join(", ")
            ));
        }
        let required = known[0];
        let first = text(&o, required)?.ok_or_else(|| match o.contains_key(required) {
            true => format!("{required}: must not be empty"),
            false => format!("required: missing properties: [\"{required}\"]"),
        })?;
        let json = flag(&o, "json")?;
        match tool {
            "why" => return Ok(Self::Why(first, json)),
            "show" => return Ok(Self::Show(first, json)),
            _ => {}
        }
        let integer = |name: &str, default: i64| match o.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(v) => v
                .as_i64()
                .or_else(|| v.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64))
                .ok_or_else(|| format!("{name}: {v} has the wrong type, want \"integer\"")),
        };
        let limit = integer("limit", integer("top_k", 10)?)?;
        if !(1..=MAX_LIMIT as i64).contains(&limit) {
            return Err(format!("limit: must be between 1 and {MAX_LIMIT}"));
        }
        let budget = integer("budget", BUDGET)?;
        if budget < 1 {
            return Err("budget: must be positive".into());
        }
        let since =
            match text(&o, "since")? {
                None => None,
                Some(t) => Some(weft_engine::time_words(&t).and_then(|r| r.0).ok_or_else(
                    || {
                        format!(
                            "since: {t:?} is no time; try `last week`, `3 days ago` or 2026-11-03"
                        )
                    },
                )?),
            };
        let q = AllQuery {
            query: first,
            corpora: Corpus::parse_list(&text(&o, "in")?.unwrap_or_default())?,
            limit: limit as usize,
            all_repos: flag(&o, "all_repos")?,
            folder: std::env::current_dir().ok(),
            background: true,
            filter: Filter {
                sessions: text(&o, "session")?.into_iter().collect(),
                agent: text(&o, "agent")?,
                file: text(&o, "file")?,
                since,
                ..Filter::default()
            },
            ..AllQuery::default()
        };
        let shape = AllShape {
            budget: usize::try_from(budget).unwrap_or(usize::MAX),
            json,
            explain: false,
            now: now(),
        };
        Ok(Self::Search(Box::new(q), shape))
    }
}

fn run(engine: &Engine, asked: Asked) -> Result<String, String> {
    let hinted = |text: String, hint: Option<&str>| match hint {
        Some(h) => format!("{text}; {h}"),
        None => text,
    };
    let here = || std::env::current_dir().map_err(|e| e.to_string());
    match asked {
        Asked::Search(q, shape) => {
            let a = engine
                .search_everything(&q, &mut |_, _, _| {})
                .map_err(|e| e.to_string())?;
            Ok(all_text::search(&q.query, &a, shape))
        }
        Asked::Why(target, json) => {
            let w = engine
                .why(&target, &here()?, WhyOptions::default())
                .map_err(|e| hinted(e.to_string(), e.hint()))?;
            Ok(if json {
                all_text::why_json(&w).to_string()
            } else {
                all_text::why(&w, now())
            })
        }
        Asked::Show(reference, json) => {
            let s = engine
                .show(&reference, &here()?)
                .map_err(|e| hinted(e.to_string(), e.hint()))?;
            Ok(if json {
                all_text::shown_json(&s).to_string()
            } else {
                all_text::shown(&s)
            })
        }
    }
}

pub(super) async fn answer(engine: Arc<Engine>, asked: Asked) -> CallToolResult {
    let failed = |e: String| CallToolResult::error(vec![ContentBlock::text(e)]);
    match tokio::task::spawn_blocking(move || run(&engine, asked)).await {
        Ok(Ok(text)) => CallToolResult::success(vec![ContentBlock::text(text)]),
        Ok(Err(e)) => failed(e),
        Err(e) => failed(e.to_string()),
    }
}
