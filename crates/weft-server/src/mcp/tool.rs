//! What all tools share: how they are described, how arguments are read, how they answer.

use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use crate::answer::Answer;

/// Bytes of an answer of ours at most.
const MAX_ANSWER: usize = 1 << 20;

/// A JSON object as the SDK takes it.
pub(super) fn object(v: Value) -> Arc<JsonObject> {
    Arc::new(match v {
        Value::Object(o) => o,
        _ => JsonObject::new(),
    })
}

/// The schema of a tool's arguments; none but these.
pub(super) fn arguments(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The schema of a tool's answer; what is not named here may be there too.
pub(super) fn answers(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

fn tool(
    [name, title, description]: [&'static str; 3],
    input: Value,
    output: Value,
    hints: ToolAnnotations,
) -> Tool {
    Tool::new(name, description, object(input))
        .with_title(title)
        .with_raw_output_schema(object(output))
        .with_annotations(hints.open_world(false))
}

/// A tool that changes nothing: its name, title and description, and what it takes and gives.
pub(super) fn reads(named: [&'static str; 3], input: Value, output: Value) -> Tool {
    tool(named, input, output, ToolAnnotations::new().read_only(true))
}

/// A tool that adds something and destroys nothing; `again` = a second call changes nothing more.
pub(super) fn writes(named: [&'static str; 3], input: Value, output: Value, again: bool) -> Tool {
    let hints = ToolAnnotations::new()
        .read_only(false)
        .destructive(false)
        .idempotent(again);
    tool(named, input, output, hints)
}

/// The arguments of a call, of which all names are known.
#[derive(Debug)]
pub(super) struct Given(Map<String, Value>);

impl Given {
    pub(super) fn new(given: Option<JsonObject>, known: &[&str]) -> Result<Self, String> {
        let given = given.unwrap_or_default();
        match given.keys().find(|k| !known.contains(&k.as_str())) {
            Some(k) => Err(format!(
                "unexpected additional properties [\"{k}\"]; the arguments are {}",
                known.join(", ")
            )),
            None => Ok(Self(given)),
        }
    }

    fn wrong(name: &str, v: &Value, want: &str) -> String {
        format!("{name}: {v} has the wrong type, want \"{want}\"")
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|v| !v.is_null())
    }

    /// A text that may be left out; blank is left out.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(s)) if s.trim().is_empty() => Ok(None),
            Some(Value::String(s)) => Ok(Some(s.clone())),
            Some(v) => Err(Self::wrong(name, v, "string")),
        }
    }

    /// A text that has to be there.
    pub(super) fn required(&self, name: &str) -> Result<String, String> {
        self.text(name)?.ok_or_else(|| match self.0.get(name) {
            Some(Value::String(_)) => format!("{name}: must not be empty"),
            _ => format!("required: missing properties: [\"{name}\"]"),
        })
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(b)) => Ok(*b),
            Some(v) => Err(Self::wrong(name, v, "boolean")),
        }
    }

    /// A whole number, written `3` or `3.0`.
    pub(super) fn integer(&self, name: &str, default: i64) -> Result<i64, String> {
        match self.get(name) {
            None => Ok(default),
            Some(v) => v
                .as_i64()
                .or_else(|| v.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64))
                .ok_or_else(|| Self::wrong(name, v, "integer")),
        }
    }

    /// A whole number from 1 to `max`.
    pub(super) fn limit(&self, name: &str, default: i64, max: usize) -> Result<usize, String> {
        usize::try_from(self.integer(name, default)?)
            .ok()
            .filter(|n| (1..=max).contains(n))
            .ok_or_else(|| format!("{name}: must be between 1 and {max}"))
    }

    /// Tokens that an answer may cost.
    pub(super) fn budget(&self, name: &str, default: i64) -> Result<usize, String> {
        usize::try_from(self.integer(name, default)?)
            .ok()
            .filter(|n| *n > 0)
            .ok_or_else(|| format!("{name}: must be positive"))
    }

    /// All of them.
    pub(super) fn into_object(self) -> Map<String, Value> {
        self.0
    }
}

/// A failure that the model reads and can act on.
pub(super) fn failed(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// An answer as the protocol has it.
pub(super) fn answered(a: Answer) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(a.text)]);
    result.structured_content = Some(a.structured);
    // What is no error needs no word about it.
    result.is_error = None;
    result
}

/// What a tool of ours found; an answer that is too large for anybody's context is refused.
pub(super) fn found(a: Answer) -> CallToolResult {
    match a.text.len() {
        n if n > MAX_ANSWER => failed(format!(
            "the answer has {n} bytes, at most {MAX_ANSWER} are given: ask for less, or without json"
        )),
        _ => answered(a),
    }
}

/// Runs a tool beside the asynchronous work.
pub(super) async fn run(
    f: impl FnOnce() -> Result<Answer, String> + Send + 'static,
) -> CallToolResult {
    match tokio::task::spawn_blocking(f).await {
        Ok(Ok(a)) => found(a),
        Ok(Err(e)) => failed(e),
        Err(e) => failed(e.to_string()),
    }
}

/// An error with what can be done about it.
pub(super) fn hinted(text: impl std::fmt::Display, hint: Option<&str>) -> String {
    match hint {
        Some(h) => format!("{text}; {h}"),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked_by_name_and_type() {
        let given = |v: Value| Given::new(v.as_object().cloned(), &["a", "n", "f"]);
        assert!(
            given(json!({"b": 1}))
                .expect_err("unknown")
                .contains("\"b\"")
        );
        let g = given(json!({"a": " ", "n": 3.0, "f": null})).expect("known");
        assert_eq!(g.text("a"), Ok(None));
        assert!(g.required("a").expect_err("blank").contains("empty"));
        assert_eq!(g.integer("n", 1), Ok(3));
        assert_eq!(
            g.limit("n", 1, 2).expect_err("large"),
            "n: must be between 1 and 2"
        );
        assert_eq!(g.flag("f"), Ok(false));
        let g = given(json!({"a": 1, "n": 1.5, "f": "yes"})).expect("known");
        assert!(g.text("a").is_err() && g.integer("n", 1).is_err() && g.flag("f").is_err());
        assert!(g.required("x").expect_err("missing").contains("missing"));
    }
}
