//! The MCP tools of code: `search_code` and `find_symbols`.

use std::path::Path;
use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use weft_engine::code::{CodeQuery, MAX_LIMIT, MAX_QUERY, paths};
use weft_engine::{CodeError, CodeRepo, Engine};

use super::object;
use crate::code_text::{self, Shape};

/// Tokens of an answer, unless asked for otherwise.
const BUDGET: i64 = 800;

pub(super) fn tools() -> [Tool; 2] {
    let paths = json!({
        "type": "array", "items": {"type": "string"},
        "description": "Only under these path prefixes, such as src/api/",
    });
    let json_flag = json!({"type": "boolean", "description": "Answer with JSON instead of text"});
    let repository = json!({
        "type": "string",
        "description": "Folder or id of the repository; by default the one the server runs in",
    });
    let search = json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What the code does, in words or as a question; names work too"},
            "limit": {"type": "integer", "description": "Number of hits, 1 to 50 (default 10)"},
            "budget_tokens": {"type": "integer", "description": "Tokens that the answer may cost (default 800)"},
            "paths": paths, "json": json_flag, "repository": repository,
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    let find = json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "A name, or words of a name, signature or first doc line"},
            "limit": {"type": "integer", "description": "Number of hits, 1 to 50 (default 20)"},
            "paths": paths, "json": json_flag, "repository": repository,
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    [
        Tool::new(
            "search_code",
            "Find code by what it does, in one call, within a token budget: functions, types and files of \
             this repository, what other agents are still writing included. Each line is path:line, \
             signature, what it does.",
            object(search),
        )
        .with_annotations(ToolAnnotations::new().read_only(true)),
        Tool::new(
            "find_symbols",
            "Find symbols by name, signature or first doc line in the files on disk: `add to cart` finds \
             addToCart, add_to_cart and AddToCart.",
            object(find),
        )
        .with_annotations(ToolAnnotations::new().read_only(true)),
    ]
}

/// Checked arguments of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    find: bool,
    query: String,
    limit: usize,
    budget: usize,
    paths: Vec<String>,
    json: bool,
    repository: Option<String>,
}

impl Asked {
    pub(super) fn read(tool: &str, given: Option<JsonObject>) -> Result<Self, String> {
        let find = tool == "find_symbols";
        let known: &[&str] = if find {
            &["query", "limit", "paths", "json", "repository"]
        } else {
            &[
                "query",
                "limit",
                "budget_tokens",
                "paths",
                "json",
                "repository",
            ]
        };
        let given = given.unwrap_or_default();
        if let Some(k) = given.keys().find(|k| !known.contains(&k.as_str())) {
            return Err(format!(
                "unexpected additional properties [\"{k}\"]; the arguments are {}",
                known.join(", ")
            ));
        }
        let integer = |name: &str, default: i64| match given.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(v) => v
                .as_i64()
                .or_else(|| v.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64))
                .ok_or_else(|| format!("{name}: {v} has the wrong type, want \"integer\"")),
        };
        let query = match given.get("query") {
            Some(Value::String(s)) if !s.trim().is_empty() => s.clone(),
            Some(Value::String(_)) => return Err("query: must not be empty".into()),
            Some(v) => return Err(format!("query: {v} has the wrong type, want \"string\"")),
            None => return Err("required: missing properties: [\"query\"]".into()),
        };
        if query.chars().count() > MAX_QUERY {
            return Err(format!("query: longer than {MAX_QUERY} characters"));
        }
        let limit = integer("limit", if find { 20 } else { 10 })?;
        if !(1..=MAX_LIMIT as i64).contains(&limit) {
            return Err("limit: must be between 1 and 50".into());
        }
        let budget = integer("budget_tokens", BUDGET)?;
        if budget < 1 {
            return Err("budget_tokens: must be positive".into());
        }
        let mut prefixes = Vec::new();
        match given.get("paths") {
            None | Some(Value::Null) => {}
            Some(Value::String(s)) => prefixes.push(s.clone()),
            Some(Value::Array(a)) => {
                for v in a {
                    let s = v
                        .as_str()
                        .ok_or_else(|| format!("paths: {v} has the wrong type, want \"string\""))?;
                    prefixes.push(s.to_owned());
                }
            }
            Some(v) => return Err(format!("paths: {v} has the wrong type, want \"array\"")),
        }
        let json = match given.get("json") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(b)) => *b,
            Some(v) => return Err(format!("json: {v} has the wrong type, want \"boolean\"")),
        };
        let repository = match given.get("repository") {
            None | Some(Value::Null) => None,
            Some(Value::String(s)) => Some(s.clone()),
            Some(v) => {
                return Err(format!(
                    "repository: {v} has the wrong type, want \"string\""
                ));
            }
        };
        Ok(Self {
            find,
            query,
            limit: limit as usize,
            budget: usize::try_from(budget).unwrap_or(usize::MAX),
            paths: paths::prefixes(&prefixes).map_err(|e| format!("paths: {e}"))?,
            json,
            repository,
        })
    }
}

/// The repository that a call is about: the one that is named, the one where the server runs, or the only
/// one that is known.
fn repository(engine: &Engine, named: Option<&str>) -> Result<CodeRepo, CodeError> {
    if let Some(name) = named {
        return match engine.code_repository_by_id(name) {
            Err(CodeError::NoSuchRepository(_)) if Path::new(name).exists() => {
                engine.code_repository(Path::new(name))
            }
            other => other,
        };
    }
    let here = std::env::current_dir().map_err(|e| CodeError::Bad(e.to_string()))?;
    match engine.code_repository(&here) {
        Err(CodeError::Git(e)) => {
            let known = engine.store().repositories(None)?;
            match known.as_slice() {
                [one] => engine.code_repository(Path::new(&one.root)),
                [] => Err(CodeError::Git(e)),
                _ => Err(CodeError::Bad(
                    "several repositories are known here: name one with the argument repository (a folder or an id)".into(),
                )),
            }
        }
        other => other,
    }
}

fn run(engine: &Engine, asked: &Asked) -> Result<String, CodeError> {
    let repo = repository(engine, asked.repository.as_deref())?;
    let q = CodeQuery {
        query: asked.query.clone(),
        limit: asked.limit,
        paths: asked.paths.clone(),
        background: true,
        snippets: asked.json && !asked.find,
        ..CodeQuery::default()
    };
    let shape = Shape {
        budget: asked.budget,
        snippets: false,
        json: asked.json,
    };
    if asked.find {
        let found = engine.code_find(&repo, &q, &mut |_, _, _| {})?;
        return Ok(code_text::find(&asked.query, &found, shape));
    }
    let found = engine.code_search(&repo, &q, &mut |_, _, _| {})?;
    Ok(code_text::search(&found, shape))
}

pub(super) async fn answer(engine: Arc<Engine>, asked: Asked) -> CallToolResult {
    let failed =
        |e: String| CallToolResult::error(vec![ContentBlock::text(format!("Search failed: {e}"))]);
    match tokio::task::spawn_blocking(move || run(&engine, &asked)).await {
        Ok(Ok(text)) => CallToolResult::success(vec![ContentBlock::text(text)]),
        Ok(Err(e)) => failed(match e.hint() {
            Some(h) => format!("{e}; {h}"),
            None => e.to_string(),
        }),
        Err(e) => failed(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tool: &str, v: Value) -> Result<Asked, String> {
        Asked::read(tool, v.as_object().cloned())
    }

    #[test]
    fn arguments_are_checked_by_name_and_type() {
        let a = read(
            "search_code",
            json!({"query": "x", "paths": ["src\\api\\", "b,c"]}),
        )
        .expect("asked");
        assert_eq!(
            (a.limit, a.budget, a.paths),
            (10, 800, vec!["src/api/".into(), "b".into(), "c".into()])
        );
        assert_eq!(
            read("find_symbols", json!({"query": "x"}))
                .expect("asked")
                .limit,
            20
        );
        for (tool, bad, says) in [
            (
                "search_code",
                json!({"query": "x", "path": "src/"}),
                "paths",
            ),
            (
                "find_symbols",
                json!({"query": "x", "budget_tokens": 5}),
                "budget_tokens",
            ),
            ("search_code", json!({"query": " "}), "empty"),
            (
                "search_code",
                json!({"query": "x", "limit": 51}),
                "between 1 and 50",
            ),
            (
                "search_code",
                json!({"query": "x", "limit": 0}),
                "between 1 and 50",
            ),
            (
                "search_code",
                json!({"query": "x", "paths": "../y"}),
                "leaves the repository",
            ),
            (
                "search_code",
                json!({"query": "x", "json": "yes"}),
                "boolean",
            ),
            ("search_code", json!({}), "missing"),
        ] {
            let e = read(tool, bad.clone()).expect_err("refused");
            assert!(e.contains(says), "{bad}: {e}");
        }
    }
}
