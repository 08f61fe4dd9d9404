//! The MCP tools of code: `search_code` and `find_symbols`.

use std::path::Path;
use std::sync::Arc;

use rmcp::model::{CallToolResult, JsonObject, Tool};
use serde_json::{Value, json};
use weft_engine::code::{CodeQuery, MAX_LIMIT, MAX_QUERY, paths};
use weft_engine::{CodeError, CodeRepo, Engine};

use super::tool::{self, Given, answers, arguments, hinted, reads};
use crate::answer::Answer;
use crate::code_text::{self, Shape};

/// Tokens of an answer, unless asked for otherwise.
const BUDGET: i64 = 800;

/// The schema of an answer: hits with `hit`'s members, more with `json`.
fn output() -> Value {
    let text = json!({"type": "string"});
    let hit = answers(
        json!({
            "target": {"type": "string", "description": "path::symbol, which `show` opens"},
            "line": {"type": "integer"}, "signature": text, "doc": text,
            "tags": {"type": "string", "description": "Whose it is, and whether it is still being written"},
        }),
        &["target", "line", "signature"],
    );
    let flag = json!({"type": "boolean"});
    answers(
        json!({
            "query": text, "workstream": text, "hits": {"type": "array", "items": hit},
            "stale": flag, "indexing": flag, "notes": {"type": "array", "items": text},
        }),
        &["query", "workstream", "hits"],
    )
}

pub(super) fn tools() -> [Tool; 2] {
    let paths = json!({
        "type": "array", "items": {"type": "string"},
        "description": "Only under these path prefixes, such as src/api/",
    });
    let json_flag =
        json!({"type": "boolean", "description": "Answer with all that is known, as JSON"});
    let repository = json!({
        "type": "string",
        "description": "Folder or id of a repository that is known here; by default the one the server runs in",
    });
    let search = arguments(
        json!({
            "query": {"type": "string", "description": "What the code does, in words or as a question; names work too"},
            "limit": {"type": "integer", "description": "Number of hits, 1 to 50 (default 10)"},
            "budget_tokens": {"type": "integer", "description": "Tokens that the answer may cost (default 800)"},
            "paths": paths, "json": json_flag, "repository": repository,
        }),
        &["query"],
    );
    let find = arguments(
        json!({
            "query": {"type": "string", "description": "A name, or words of a name, signature or first doc line"},
            "limit": {"type": "integer", "description": "Number of hits, 1 to 50 (default 20)"},
            "paths": paths, "json": json_flag, "repository": repository,
        }),
        &["query"],
    );
    [
        reads(
            [
                "search_code",
                "Search code",
                "Find code by what it does, in one call, within a token budget: functions, types and files of \
                 this repository, what other agents are still writing included. Use it before grep where you do \
                 not know the name. Each line is path:line, signature, what it does.",
            ],
            search,
            output(),
        ),
        reads(
            [
                "find_symbols",
                "Find symbols",
                "Find symbols by name, signature or first doc line in the files on disk: `add to cart` finds \
                 addToCart, add_to_cart and AddToCart. Use it where you know a name or a part of one.",
            ],
            find,
            output(),
        ),
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
    /// Whether one of these tools is called this.
    pub(super) fn knows(tool: &str) -> bool {
        matches!(tool, "search_code" | "find_symbols")
    }

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
        let given = Given::new(given, known)?;
        let query = given.required("query")?;
        if query.chars().count() > MAX_QUERY {
            return Err(format!("query: longer than {MAX_QUERY} characters"));
        }
        let mut prefixes = Vec::new();
        let wrong =
            |v: &Value, want: &str| format!("paths: {v} has the wrong type, want \"{want}\"");
        match given.get("paths") {
            None => {}
            Some(Value::String(s)) => prefixes.push(s.clone()),
            Some(Value::Array(a)) => {
                for v in a {
                    prefixes.push(v.as_str().ok_or_else(|| wrong(v, "string"))?.to_owned());
                }
            }
            Some(v) => return Err(wrong(v, "array")),
        }
        Ok(Self {
            find,
            query,
            limit: given.limit("limit", if find { 20 } else { 10 }, MAX_LIMIT)?,
            budget: given.budget("budget_tokens", BUDGET)?,
            paths: paths::prefixes(&prefixes).map_err(|e| format!("paths: {e}"))?,
            json: given.flag("json")?,
            repository: given.text("repository")?,
        })
    }
}

/// The repository that a call is about: the one that is named, the one where the server runs, or the only
/// one that is known. One that nobody made known is not read.
fn repository(engine: &Engine, named: Option<&str>) -> Result<CodeRepo, CodeError> {
    if let Some(name) = named {
        let Ok(folder) = Path::new(name).canonicalize() else {
            return engine.code_repository_by_id(name);
        };
        let known = engine.store().repositories(None)?;
        return if known.iter().any(|r| folder.starts_with(&r.root)) {
            engine.code_repository(&folder)
        } else {
            Err(CodeError::Bad(format!(
                "no repository that is known here holds {name}; a search inside of it, `weft search code`, makes it known"
            )))
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

fn found(engine: &Engine, asked: &Asked) -> Result<Answer, CodeError> {
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
        return Ok(code_text::find_answer(&asked.query, &found, shape));
    }
    let found = engine.code_search(&repo, &q, &mut |_, _, _| {})?;
    Ok(code_text::search_answer(&found, shape))
}

pub(super) async fn answer(engine: Arc<Engine>, asked: Asked) -> CallToolResult {
    tool::run(move || {
        found(&engine, &asked).map_err(|e| format!("Search failed: {}", hinted(&e, e.hint())))
    })
    .await
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
