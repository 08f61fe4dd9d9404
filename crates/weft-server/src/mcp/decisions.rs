//! The MCP tools of decisions: `search`, `decide`, `decisions_stale`, `decision_reaffirm`,
//! `decisions_for_file`.

use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};
use weft_engine::decisions::DecisionQuery;
use weft_engine::{DecisionError, Decisions, Engine};

use super::object;
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

pub(super) fn tools(search_name: &'static str) -> Vec<Tool> {
    let schema = |properties: Value, required: &[&str]| {
        let mut properties = properties;
        properties["workspace"] = json!({
            "type": "string",
            "description": "Name of the workspace; by default the repository that the server runs in",
        });
        object(
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false}),
        )
    };
    let reads = || ToolAnnotations::new().read_only(true);
    vec![
        Tool::new(
            search_name,
            "Semantic search over past architectural decisions. Ask before implementing something, before \
             picking a library, and when a part of the codebase looks odd: \"did we already decide on this?\"",
            schema(
                json!({
                    "query": {"type": "string", "description": "Natural language search query"},
                    "limit": {"type": "number", "description": "Max results to return (default: 10)"},
                }),
                &["query"],
            ),
        )
        .with_annotations(reads()),
        Tool::new(
            "decide",
            "Record a decision and why it was made, so that nobody has to find it out again. It is proposed \
             until somebody accepts it. One that says nearly the same as another is not recorded twice.",
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
        ),
        Tool::new(
            "decisions_stale",
            "Decisions whose files or symbols changed since they were made, with the commit that changed them.",
            schema(json!({}), &[]),
        )
        .with_annotations(reads()),
        Tool::new(
            "decision_reaffirm",
            "Say that a decision still holds although its files changed.",
            schema(
                json!({
                    "id": {"type": "string", "description": "Id, path, slug or number"},
                    "note": {"type": "string", "description": "Why it still holds"},
                    "made_by": {"type": "string", "description": "Who says so"},
                }),
                &["id"],
            ),
        ),
        Tool::new(
            "decisions_for_file",
            "Decisions that govern a file: read them before you change it.",
            schema(json!({"path": {"type": "string", "description": "Path from the top of the repository"}}), &["path"]),
        )
        .with_annotations(reads()),
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
        let given = given.unwrap_or_default();
        let known = kind.members();
        if let Some(k) = given.keys().find(|k| !known.contains(&k.as_str())) {
            return Err(format!(
                "unexpected additional properties [\"{k}\"]; the arguments are {}",
                known.join(", ")
            ));
        }
        let required: &[&str] = match kind {
            Kind::Search => &["query"],
            Kind::Decide => &["title", "rationale"],
            Kind::Stale => &[],
            Kind::Reaffirm => &["id"],
            Kind::ForFile => &["path"],
        };
        for r in required {
            match given.get(*r) {
                Some(Value::String(s)) if !s.trim().is_empty() => {}
                Some(Value::String(_)) => return Err(format!("{r}: must not be empty")),
                Some(v) => return Err(format!("{r}: {v} has the wrong type, want \"string\"")),
                None => return Err(format!("required: missing properties: [\"{r}\"]")),
            }
        }
        Ok(Self { kind, given })
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

fn run(engine: &Engine, asked: &Asked) -> Result<Value, String> {
    let told = |e: DecisionError| match e.hint() {
        Some(h) => format!("{e}; {h}"),
        None => e.to_string(),
    };
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
    let failed = |e: String| CallToolResult::error(vec![ContentBlock::text(e)]);
    match tokio::task::spawn_blocking(move || run(&engine, &asked)).await {
        Ok(Ok(v)) => {
            let mut result = CallToolResult::success(vec![ContentBlock::text(v.to_string())]);
            result.structured_content = Some(v);
            result.is_error = None;
            result
        }
        Ok(Err(e)) => failed(e),
        Err(e) => failed(e.to_string()),
    }
}
