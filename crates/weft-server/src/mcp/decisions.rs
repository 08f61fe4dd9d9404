//! The MCP tools of decisions: `search`, `decide`, `decisions_stale`, `decision_reaffirm`,
//! `decisions_for_file`.

use std::sync::Arc;

use rmcp::model::{CallToolResult, JsonObject, Tool};
use serde_json::{Map, Value, json};
use weft_engine::decisions::DecisionQuery;
use weft_engine::{DecisionError, Decisions, Engine};

use super::tool::{self, Given, answers, arguments, hinted, reads, writes};
use crate::answer::Answer;
use crate::decision_text::{self, symbols_of};

const MAX_LIMIT: i64 = 200;

/// What is asked of decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Search,
    Decide,
    Stale,
    Reaffirm,
    ForFile,
}

impl Kind {
    /// The tool of a name; the search has another name beside other searches.
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "search" | "search_decisions" => Self::Search,
            "decide" => Self::Decide,
            "decisions_stale" => Self::Stale,
            "decision_reaffirm" => Self::Reaffirm,
            "decisions_for_file" => Self::ForFile,
            _ => return None,
        })
    }

    /// Whether it changes something.
    pub(super) fn writes(self) -> bool {
        matches!(self, Self::Decide | Self::Reaffirm)
    }

    fn members(self) -> Vec<&'static str> {
        let own: &[&str] = match self {
            Self::Search => &["query", "limit"],
            Self::Decide => &decision_text::FIELDS,
            Self::Stale => &[],
            Self::Reaffirm => &["id", "note", "made_by"],
            Self::ForFile => &["path"],
        };
        [own, &["workspace"]].concat()
    }
}

/// The schema of a decision as the tools tell it.
fn decision() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": text});
    answers(
        json!({
            "id": text, "title": text, "rationale": text, "type": text, "status": text,
            "similarity": {"type": "number"}, "files": texts, "made_by": text, "created_at": text,
            "source": {"type": "string", "description": "Path of its record"}, "stale": {"type": "object"},
        }),
        &["id", "title"],
    )
}

fn many() -> Value {
    answers(
        json!({"results": {"type": "array", "items": decision()}}),
        &["results"],
    )
}

/// The schema of what a tool says that changed something.
fn done() -> Value {
    let text = json!({"type": "string"});
    answers(
        json!({"id": text, "status": text, "title": text, "workspace": text}),
        &["status"],
    )
}

pub(super) fn tools(search_name: &'static str) -> Vec<Tool> {
    let schema = |mut properties: Value, required: &[&str]| {
        properties["workspace"] = json!({
            "type": "string",
            "description": "Name of the workspace; by default the repository that the server runs in",
        });
        arguments(properties, required)
    };
    vec![
        reads(
            [
                search_name,
                "Search decisions",
                "Semantic search over past architectural decisions. Ask before implementing something, before \
                 picking a library, and when a part of the codebase looks odd: \"did we already decide on this?\"",
            ],
            schema(
                json!({
                    "query": {"type": "string", "description": "Natural language search query"},
                    "limit": {"type": "number", "description": "Max results to return (default: 10)"},
                }),
                &["query"],
            ),
            many(),
        ),
        writes(
            [
                "decide",
                "Record a decision",
                "Record a decision and why it was made, so that nobody has to find it out again. It is proposed \
                 until somebody accepts it. One that says nearly the same as another is not recorded twice.",
            ],
            schema(
                json!({
                    "title": {"type": "string", "description": "What was decided, in one line"},
                    "rationale": {"type": "string", "description": "Why"},
                    "type": {"type": "string", "description": "architecture, approach, implementation, tradeoff, convention, bugfix, rejection or other"},
                    "decision_type": {"type": "string", "description": "The same as type"},
                    "files": {"description": "Paths and globs that it governs, file::symbol too: a list, or a text with commas",
                        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
                    "alternatives": {"type": "array", "items": {"type": "string"}, "description": "What was turned down, each as \"X: why not\""},
                    "supersedes": {"description": "Id, path or number of what it replaces",
                        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
                    "made_by": {"type": "string", "description": "Who decided"},
                    "by": {"type": "string", "description": "The same as made_by"},
                    "accept": {"type": "boolean", "description": "It was agreed on; the rationale says by whom"},
                    "force": {"type": "boolean", "description": "Record it although one like it is there"},
                }),
                &["title", "rationale"],
            ),
            done(),
            false,
        ),
        reads(
            [
                "decisions_stale",
                "Stale decisions",
                "Decisions whose files or symbols changed since they were made, with the commit that changed them. \
                 Ask at the start of work on a part, and when a decision and the code disagree.",
            ],
            schema(json!({}), &[]),
            many(),
        ),
        writes(
            [
                "decision_reaffirm",
                "Reaffirm a decision",
                "Say that a decision still holds although its files changed.",
            ],
            schema(
                json!({
                    "id": {"type": "string", "description": "Id, path, slug or number"},
                    "note": {"type": "string", "description": "Why it still holds"},
                    "made_by": {"type": "string", "description": "Who says so"},
                }),
                &["id"],
            ),
            done(),
            true,
        ),
        reads(
            [
                "decisions_for_file",
                "Decisions for a file",
                "Decisions that govern a file: read them before you change it.",
            ],
            schema(
                json!({"path": {"type": "string", "description": "Path from the top of the repository"}}),
                &["path"],
            ),
            many(),
        ),
    ]
}

/// A call with its arguments checked by name.
#[derive(Debug)]
pub(super) struct Asked {
    kind: Kind,
    given: Map<String, Value>,
}

impl Asked {
    pub(super) fn read(kind: Kind, given: Option<JsonObject>) -> Result<Self, String> {
        let given = Given::new(given, &kind.members())?;
        let required: &[&str] = match kind {
            Kind::Search => &["query"],
            Kind::Decide => &["title", "rationale"],
            Kind::Stale => &[],
            Kind::Reaffirm => &["id"],
            Kind::ForFile => &["path"],
        };
        for r in required {
            given.required(r)?;
        }
        Ok(Self {
            kind,
            given: given.into_object(),
        })
    }

    fn text(&self, name: &str) -> &str {
        self.given
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

/// The workspace that a call is about.
pub(super) fn workspace<'a>(
    engine: &'a Engine,
    named: &str,
) -> Result<Decisions<'a>, DecisionError> {
    if !named.is_empty() {
        return engine.decisions_of(named);
    }
    let here = std::env::current_dir().map_err(|e| DecisionError::Bad(e.to_string()))?;
    engine.decisions_here(&here)
}

fn found(engine: &Engine, asked: &Asked) -> Result<Value, String> {
    let told = |e: DecisionError| hinted(&e, e.hint());
    let d = workspace(engine, asked.text("workspace")).map_err(told)?;
    match asked.kind {
        Kind::Search => {
            let limit = match asked.given.get("limit") {
                None | Some(Value::Null) => 10,
                Some(v) => v
                    .as_i64()
                    .or_else(|| v.as_f64().map(|f| f as i64))
                    .filter(|n| (1..=MAX_LIMIT).contains(n))
                    .ok_or_else(|| format!("limit must be between 1 and {MAX_LIMIT}"))?,
            };
            let q = DecisionQuery {
                query: asked.text("query").to_owned(),
                limit: limit as usize,
                ..DecisionQuery::default()
            };
            Ok(decision_text::search_json(&d.search(&q).map_err(told)?))
        }
        Kind::Decide => {
            let mut o = asked.given.clone();
            o.remove("workspace");
            let new = decision_text::new_decision(&o)?;
            let done = d.record(new).map_err(told)?;
            Ok(decision_text::recorded_json(&done, &d.workspace.slug))
        }
        Kind::Reaffirm => {
            let done = d
                .reaffirm(asked.text("id"), asked.text("made_by"), asked.text("note"))
                .map_err(told)?;
            Ok(
                json!({"id": done.id, "status": "reaffirmed", "title": done.record.title, "workspace": d.workspace.slug}),
            )
        }
        Kind::Stale | Kind::ForFile => {
            let (loaded, _) = d.current().map_err(told)?;
            let all: Vec<usize> = match asked.kind {
                Kind::ForFile => d.for_file(&loaded, asked.text("path").trim_start_matches("./")),
                _ => (0..loaded.all.len()).collect(),
            };
            let stale = d.stale(&loaded, &all).map_err(told)?;
            let symbols = d.symbols().map_err(told)?;
            let mut out = Vec::new();
            for i in all {
                let id = &loaded.all[i].id;
                if asked.kind == Kind::Stale && !stale.contains_key(id) {
                    continue;
                }
                let full = d.with_text(&loaded, i).map_err(told)?;
                let mut o =
                    decision_text::object(&full, None, symbols_of(&symbols, id), stale.get(id));
                if asked.kind == Kind::ForFile && d.only_mentions(&full, asked.text("path")) {
                    o.insert("matched".into(), json!(["mentioned"]));
                }
                out.push(Value::Object(o));
            }
            Ok(json!({"results": out}))
        }
    }
}

pub(super) async fn answer(engine: Arc<Engine>, asked: Asked) -> CallToolResult {
    tool::run(move || found(&engine, &asked).map(Answer::of)).await
}
