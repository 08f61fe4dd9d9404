//! Changing a client's file: text in, text out.

use std::path::Path;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstObject, CstRootNode};
use serde_json::{Value, json};
use toml_edit::{DocumentMut, Item, Table};

use super::{NAME, Place};

/// What a file says before and after; `None` = it is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
}

impl Change {
    pub(crate) fn is_one(&self) -> bool {
        self.before != self.after
    }

    /// The lines that differ, with `-` or `+` before each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = |t: &Option<String>| -> Vec<String> {
            t.iter()
                .flat_map(|t| t.lines())
                .map(str::to_owned)
                .collect()
        };
        let (old, new) = (lines(&self.before), lines(&self.after));
        let same = |(a, b): &(&String, &String)| a == b;
        let head = old.iter().zip(&new).take_while(same).count();
        let most = old.len().min(new.len()) - head;
        let tail = old
            .iter()
            .rev()
            .zip(new.iter().rev())
            .take(most)
            .take_while(same)
            .count();
        let gone = old[head..old.len() - tail].iter().map(|l| format!("- {l}"));
        let added = new[head..new.len() - tail].iter().map(|l| format!("+ {l}"));
        gone.chain(added).collect()
    }
}

/// What becomes of a file where something of ours is put in, or taken out.
///
/// # Errors
/// Where it cannot be read as what it should be.
pub(crate) fn plan(
    before: Option<String>,
    places: &[&Place],
    install: bool,
    keep: bool,
) -> Result<Change, String> {
    let mut text = before.clone().unwrap_or_default();
    for place in places {
        text = match place {
            Place::Toml { members } => toml(&text, members, install)?,
            Place::Server { under, value } => json_file(&text, |root| {
                server(root, under, install.then_some(value));
                Ok(())
            })?,
            Place::Hooks { beside, events } => {
                json_file(&text, |root| hooks(root, beside, events, install))?
            }
        };
    }
    let nothing = matches!(text.trim(), "" | "{}") || (!install && is_only(&text, places));
    // A file that holds nothing but us is ours.
    let after = match nothing && !install && !keep {
        true => None,
        false => Some(text),
    };
    let after = if before.is_none() && !install {
        None
    } else {
        after
    };
    Ok(Change { before, after })
}

/// Whether a file holds nothing but what ours needs beside it.
fn is_only(text: &str, places: &[&Place]) -> bool {
    let Ok(Value::Object(o)) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    places.iter().any(|p| match p {
        Place::Hooks { beside, .. } => {
            !beside.is_empty()
                && o.len() == beside.len()
                && beside.iter().all(|(k, v)| o.get(*k) == Some(v))
        }
        _ => false,
    })
}

fn input(v: &Value) -> CstInputValue {
    match v {
        Value::Null => CstInputValue::Null,
        Value::Bool(b) => CstInputValue::Bool(*b),
        Value::Number(n) => CstInputValue::Number(n.to_string()),
        Value::String(s) => CstInputValue::String(s.clone()),
        Value::Array(a) => CstInputValue::Array(a.iter().map(input).collect()),
        Value::Object(o) => {
            CstInputValue::Object(o.iter().map(|(k, v)| (k.clone(), input(v))).collect())
        }
    }
}

fn json_file(
    text: &str,
    change: impl FnOnce(&CstObject) -> Result<(), String>,
) -> Result<String, String> {
    let source = if text.trim().is_empty() { "{}\n" } else { text };
    let root = CstRootNode::parse(source, &ParseOptions::default())
        .map_err(|e| format!("it is no JSON: {e}"))?;
    let object = root
        .object_value_or_create()
        .ok_or("it holds no JSON object")?;
    change(&object)?;
    let mut out = root.to_string();
    if !out.ends_with('\n') && (text.is_empty() || text.ends_with('\n')) {
        out.push('\n');
    }
    Ok(out)
}

/// Sets or removes `weft` in an object of the root.
fn server(root: &CstObject, under: &str, value: Option<&Value>) {
    match value {
        Some(v) => {
            let servers = root.object_value_or_set(under);
            match servers.get(NAME) {
                // The same entry, written otherwise, stays as it is.
                Some(p) if p.value().and_then(|n| n.to_serde_value()).as_ref() == Some(v) => {}
                Some(p) => p.set_value(input(v)),
                None => drop(servers.append(NAME, input(v))),
            }
        }
        None => {
            let Some(servers) = root.object_value(under) else {
                return;
            };
            let Some(p) = servers.get(NAME) else { return };
            p.remove();
            if servers.properties().is_empty()
                && let Some(p) = root.get(under)
            {
                p.remove();
            }
        }
    }
}

/// Whether a value holds a command of ours.
fn is_ours(v: &Value) -> bool {
    match v {
        Value::String(s) => s.contains(" hook session-start") || s.contains(" hook before-edit"),
        Value::Array(a) => a.iter().any(is_ours),
        Value::Object(o) => o
            .iter()
            .any(|(k, v)| matches!(k.as_str(), "command" | "hooks") && is_ours(v)),
        _ => false,
    }
}

fn hooks(
    root: &CstObject,
    beside: &[(&'static str, Value)],
    events: &[(&'static str, Value)],
    install: bool,
) -> Result<(), String> {
    if !install {
        let Some(all) = root.object_value("hooks") else {
            return Ok(());
        };
        for p in all.properties() {
            let Some(list) = p.value().and_then(|v| v.as_array()) else {
                continue;
            };
            let had = list.elements().len();
            take_out(&list);
            if had > 0 && list.elements().is_empty() {
                p.remove();
            }
        }
        if all.properties().is_empty()
            && let Some(p) = root.get("hooks")
        {
            p.remove();
        }
        return Ok(());
    }
    for (k, v) in beside {
        if root.get(k).is_none() {
            root.append(k, input(v));
        }
    }
    let all = root
        .object_value_or_create("hooks")
        .ok_or("its hooks are no object")?;
    for (event, v) in events {
        let list = all
            .array_value_or_create(event)
            .ok_or_else(|| format!("its hooks.{event} is no list"))?;
        let same = list
            .elements()
            .iter()
            .any(|e| e.to_serde_value().as_ref() == Some(v));
        if !same {
            take_out(&list);
            list.append(input(v));
        }
    }
    Ok(())
}

/// Takes what is ours out of a list; what else stands in the same group stays.
fn take_out(list: &CstArray) {
    for e in list.elements() {
        let Some(v) = e.to_serde_value() else {
            continue;
        };
        if !is_ours(&v) {
            continue;
        }
        let inner = e.as_object().and_then(|o| o.array_value("hooks"));
        let others = v["hooks"]
            .as_array()
            .is_some_and(|h| h.iter().any(|h| !is_ours(h)));
        match inner {
            Some(inner) if others => {
                for h in inner.elements() {
                    if h.to_serde_value().is_some_and(|v| is_ours(&v)) {
                        h.remove();
                    }
                }
            }
            _ => e.remove(),
        }
    }
}

fn toml(text: &str, members: &[(&'static str, Value)], install: bool) -> Result<String, String> {
    const UNDER: &str = "mcp_servers";
    let mut doc: DocumentMut = text.parse().map_err(|e| format!("it is no TOML: {e}"))?;
    if !install {
        if let Some(t) = doc.get_mut(UNDER).and_then(Item::as_table_like_mut) {
            t.remove(NAME);
            if t.is_empty() {
                doc.remove(UNDER);
            }
        }
        return Ok(doc.to_string());
    }
    let servers = doc.entry(UNDER).or_insert_with(|| {
        let mut t = Table::new();
        t.set_implicit(true);
        Item::Table(t)
    });
    let servers = servers
        .as_table_like_mut()
        .ok_or("its mcp_servers is no table")?;
    let item = |v: &Value| -> toml_edit::Value {
        match v {
            Value::Array(a) => a.iter().map(|v| v.as_str().unwrap_or_default()).collect(),
            v => v.as_str().unwrap_or_default().into(),
        }
    };
    let said = |t: &dyn toml_edit::TableLike| -> Vec<(String, Value)> {
        t.iter()
            .map(|(k, v)| {
                let v = match v.as_array() {
                    Some(a) => json!(a.iter().filter_map(|v| v.as_str()).collect::<Vec<_>>()),
                    None => json!(v.as_str()),
                };
                (k.to_owned(), v)
            })
            .collect()
    };
    let wanted: Vec<(String, Value)> = members
        .iter()
        .map(|(k, v)| ((*k).to_owned(), v.clone()))
        .collect();
    if servers
        .get(NAME)
        .and_then(Item::as_table_like)
        .map(said)
        .as_ref()
        != Some(&wanted)
    {
        let mut table = Table::new();
        for (k, v) in members {
            table.insert(k, Item::Value(item(v)));
        }
        servers.insert(NAME, Item::Table(table));
    }
    Ok(doc.to_string())
}

/// Replaces a file as a whole; where it is a link, what the link leads to. Who may read it stays.
pub(crate) fn write(path: &Path, text: Option<&str>) -> std::io::Result<()> {
    use std::io::Write as _;
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let Some(text) = text else {
        return std::fs::remove_file(path);
    };
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let partial = path.with_extension(format!("weft-{}", std::process::id()));
    let written = (|| {
        let mut f = std::fs::File::create(&partial)?;
        if let Ok(meta) = path.metadata() {
            f.set_permissions(meta.permissions())?;
        }
        f.write_all(text.as_bytes())?;
        f.sync_all()?;
        std::fs::rename(&partial, &path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::super::{Client, Places, Scope, Server, Wanted, targets};
    use super::*;

    fn wanted() -> Wanted {
        Wanted {
            server: Server::Program {
                command: "weft".into(),
                args: vec!["mcp".into()],
            },
            hooks: Some("weft".into()),
        }
    }

    fn places() -> Places {
        let home = std::path::PathBuf::from("/h");
        Places {
            config: home.join(".config"),
            vscode: home.join(".config/Code/User"),
            project: "/p".into(),
            claude: None,
            codex: None,
            home,
        }
    }

    /// Texts that clients have, with what must survive.
    const FILES: [&str; 6] = [
        "",
        "{}\n",
        "{\n  // mine\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" } // stays\n  },\n  \"n\": 1.50\n}\n",
        "{\"hooks\":{\"PreToolUse\":[{\"matcher\":\"Bash\",\"hooks\":[{\"type\":\"command\",\"command\":\"mine.sh\"}]}]}}",
        "{\n\t\"theme\": \"dark\",\n\t\"mcp\": {\"a\": {\"type\": \"local\", \"command\": [\"b\"]}},\n}\n",
        "{\"servers\":{}, \"inputs\":[]}",
    ];

    #[test]
    fn what_is_put_in_is_taken_out_again_and_nothing_else() {
        let (at, w) = (places(), wanted());
        for (_, client) in Client::ALL {
            for scope in [Scope::User, Scope::Project] {
                for t in targets(client, scope, &at, &w) {
                    if matches!(t.place, Place::Toml { .. }) {
                        continue;
                    }
                    for text in FILES {
                        let before = (!text.is_empty()).then(|| text.to_owned());
                        let put = plan(before.clone(), &[&t.place], true, false).expect("JSON");
                        assert!(put.is_one(), "{client:?} {text}");
                        let again =
                            plan(put.after.clone(), &[&t.place], true, false).expect("JSON");
                        assert!(!again.is_one(), "{client:?}: {:?}", again.lines());
                        let taken = plan(put.after, &[&t.place], false, false).expect("JSON");
                        let value = |t: &Option<String>| {
                            let v = t.as_deref().map(|t| {
                                let root = CstRootNode::parse(t, &ParseOptions::default());
                                root.expect("JSON").to_serde_value().expect("value")
                            });
                            v.unwrap_or_else(|| json!({}))
                        };
                        let mut left = value(&taken.after);
                        let mut was = value(&before);
                        for v in [&mut left, &mut was] {
                            // An object or list that was empty before may be gone, `version` may stay.
                            if let Some(o) = v.as_object_mut() {
                                o.retain(|k, v| k != "version" && *v != json!({}));
                            }
                        }
                        assert_eq!(left, was, "{client:?} {text}");
                        let comments = |t: &str| t.matches("//").count();
                        assert_eq!(taken.after.as_deref().map_or(0, comments), comments(text));
                    }
                }
            }
        }
    }

    #[test]
    fn a_toml_file_keeps_what_is_there() {
        let (at, w) = (places(), wanted());
        let t = &targets(Client::Codex, Scope::User, &at, &w)[0];
        let mine = "# mine\nmodel = \"gpt-5\" # this one\n\n[mcp_servers.other]\ncommand = \"x\"\n";
        let put = plan(Some(mine.into()), &[&t.place], true, false).expect("TOML");
        let text = put.after.clone().expect("text");
        assert!(text.starts_with(mine), "{text}");
        assert!(
            text.contains("[mcp_servers.weft]\ncommand = \"weft\"\nargs = [\"mcp\"]\n"),
            "{text}"
        );
        assert!(
            !plan(put.after.clone(), &[&t.place], true, false)
                .expect("TOML")
                .is_one()
        );
        let taken = plan(put.after, &[&t.place], false, false).expect("TOML");
        assert_eq!(taken.after.as_deref(), Some(mine));
        let new = plan(None, &[&t.place], true, false).expect("TOML");
        assert_eq!(
            plan(new.after, &[&t.place], false, false)
                .expect("TOML")
                .after,
            None
        );
        assert!(plan(Some("a = = b".into()), &[&t.place], true, false).is_err());
    }

    #[test]
    fn hooks_of_others_in_our_group_stay() {
        let text = r#"{"hooks":{"SessionStart":[{"hooks":[{"type":"command","command":"/x/weft hook session-start"},{"type":"command","command":"mine"}]}]}}"#;
        let at = places();
        let t = &targets(Client::Claude, Scope::User, &at, &wanted())[1];
        let taken = plan(Some(text.into()), &[&t.place], false, false).expect("JSON");
        let v: Value = serde_json::from_str(taken.after.as_deref().expect("text")).expect("JSON");
        assert_eq!(
            v,
            json!({"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "mine"}]}]}})
        );
        for bad in [
            "[1]",
            "{",
            "nonsense",
            "{\"hooks\": []}",
            "{\"hooks\": {\"PreToolUse\": {}}}",
        ] {
            assert!(
                plan(Some(bad.into()), &[&t.place], true, false).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_change_is_shown_as_lines() {
        let c = Change {
            before: Some("a\nb\nc\n".into()),
            after: Some("a\nx\ny\nc\n".into()),
        };
        assert_eq!(c.lines(), ["- b", "+ x", "+ y"]);
    }
}
