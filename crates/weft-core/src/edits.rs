//! What a captured tool call wrote: which files, and which text.
//!
//! Agents name their tools and arguments differently; the shapes are those of Claude Code, Codex,
//! Gemini CLI, Copilot and the text-editor tools of the providers.

use serde_json::{Map, Value};

/// Names of tools that write files, lower case.
pub const TOOLS: [&str; 13] = [
    "edit",
    "write",
    "multiedit",
    "notebookedit",
    "apply_patch",
    "create_file",
    "str_replace_based_edit_tool",
    "str_replace_editor",
    "write_file",
    "edit_file",
    "replace",
    "insert_edit_into_file",
    "replace_string_in_file",
];

/// Most files of one call.
const MAX_FILES: usize = 200;
/// Most values of one call that are looked at.
const MAX_VALUES: usize = 5_000;

/// A file that a call wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Path as the call gives it.
    pub path: String,
    /// Lines that it put in.
    pub added: Vec<String>,
    /// Lines that it took out, where the call says so.
    pub removed: Vec<String>,
}

/// Whether a tool of this name writes files.
pub fn writes(tool: &str) -> bool {
    TOOLS.iter().any(|t| t.eq_ignore_ascii_case(tool))
}

fn lines(v: Option<&Value>) -> Vec<String> {
    v.and_then(Value::as_str)
        .map(|s| s.lines().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// The files that a call wrote, from its input; the same file may be named more than once.
pub fn edits(input: &Map<String, Value>) -> Vec<Edit> {
    let mut out = Vec::new();
    let mut stack = Vec::new();
    object(input, String::new(), &mut out, &mut stack);
    let mut looked = 0;
    while let Some((v, path)) = stack.pop() {
        looked += 1;
        if looked > MAX_VALUES || out.len() >= MAX_FILES {
            break;
        }
        match v {
            Value::Object(o) => object(o, path, &mut out, &mut stack),
            Value::Array(a) => stack.extend(a.iter().map(|v| (v, path.clone()))),
            Value::String(s) if s.contains("*** ") => out.extend(patch(s)),
            _ => {}
        }
    }
    out.truncate(MAX_FILES);
    out
}

/// What one object says: a file of its own, or an edit of the file that stands around it.
fn object<'a>(
    o: &'a Map<String, Value>,
    around: String,
    out: &mut Vec<Edit>,
    stack: &mut Vec<(&'a Value, String)>,
) {
    const PATHS: [&str; 7] = [
        "file_path",
        "path",
        "filename",
        "notebook_path",
        "file",
        "target_file",
        "filePath",
    ];
    const ADDED: [&str; 8] = [
        "new_string",
        "new_str",
        "content",
        "file_text",
        "new_source",
        "newString",
        "insert_text",
        "code",
    ];
    const REMOVED: [&str; 3] = ["old_string", "old_str", "oldString"];
    let named = PATHS.iter().find_map(|k| o.get(*k).and_then(Value::as_str));
    let path = named.map_or(around, str::to_owned);
    let text = |keys: &[&str]| lines(keys.iter().find_map(|k| o.get(*k)));
    let edit = Edit {
        added: text(&ADDED),
        removed: text(&REMOVED),
        path: path.clone(),
    };
    let nested = o.values().any(|v| v.is_array() || v.is_object());
    let told = !edit.added.is_empty() || (named.is_some() && !nested);
    if !path.is_empty() && told {
        out.push(edit);
    }
    for v in o.values() {
        match v {
            Value::String(s) if s.contains("*** ") => out.extend(patch(s)),
            Value::Array(_) | Value::Object(_) => stack.push((v, path.clone())),
            _ => {}
        }
    }
}

/// The files of a patch as `apply_patch` takes it.
fn patch(text: &str) -> Vec<Edit> {
    let mut out: Vec<Edit> = Vec::new();
    for line in text.lines() {
        let named = [
            "*** Update File: ",
            "*** Add File: ",
            "*** Delete File: ",
            "*** Move to: ",
        ]
        .iter()
        .find_map(|p| line.strip_prefix(p));
        if let Some(path) = named {
            out.push(Edit {
                path: path.trim().to_owned(),
                ..Edit::default()
            });
        } else if let Some(last) = out.last_mut() {
            if let Some(added) = line.strip_prefix('+') {
                last.added.push(added.to_owned());
            } else if let Some(removed) = line.strip_prefix('-') {
                last.removed.push(removed.to_owned());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn calls_name_their_files_and_texts_in_many_ways() {
        let of = |v: Value| edits(v.as_object().expect("object"));
        let one = |v: Value| {
            let e = of(v.clone());
            assert_eq!(e.len(), 1, "{v}: {e:?}");
            e[0].clone()
        };
        let e = one(json!({"file_path": "/r/a.rs", "old_string": "x", "new_string": "y\nz"}));
        assert_eq!(
            (e.path.as_str(), e.added.len(), e.removed.len()),
            ("/r/a.rs", 2, 1)
        );
        assert_eq!(one(json!({"file_path": "a", "content": "q"})).added, ["q"]);
        assert_eq!(one(json!({"path": "a", "command": "view"})).path, "a");
        let e = of(json!({"file_path": "a", "edits": [
            {"old_string": "1", "new_string": "2"}, {"old_string": "3", "new_string": "4"}]}));
        assert_eq!(e.len(), 2, "{e:?}");
        assert!(e.iter().all(|e| e.path == "a"));
        let e = of(
            json!({"input": "*** Begin Patch\n*** Update File: a.rs\n@@\n-x\n+y\n*** Add File: b.rs\n+z\n*** End Patch"}),
        );
        assert_eq!(e.len(), 2);
        assert_eq!(
            (e[0].added[0].as_str(), e[0].removed[0].as_str()),
            ("y", "x")
        );
        assert_eq!(e[1].added, ["z"]);
        assert!(of(json!({"command": "cat a"})).is_empty());
        assert!(writes("MultiEdit") && !writes("Bash"));
    }
}
