//! `weft hook`: what agents are told at the start of a session and before they edit a file.
//!
//! A client waits for it, so it ends after 300 ms whatever happens, and what fails says nothing: a hook that
//! fails would stand in the way of the work.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use weft_core::edits;
use weft_engine::brief::Briefing;
use weft_server::brief_text;

use super::open;
use crate::out::Out;
use crate::settings::Settings;

/// From the start of the program to its end.
const DEADLINE: Duration = Duration::from_millis(300);
/// Bytes of what a client says, at most.
const MAX_INPUT: u64 = 4 << 20;
/// Sessions are forgotten after this time.
const FORGET: Duration = Duration::from_secs(7 * 86_400);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  echo '{\"cwd\": \".\"}' | weft hook session-start
  echo '{\"tool_input\": {\"file_path\": \"src/main.rs\"}}' | weft hook before-edit

`weft mcp install` puts them into the clients that have hooks. They end within 300 ms and are silent where
nothing is to be told or something fails.")]
pub(crate) struct Hook {
    #[command(subcommand)]
    event: Event,
}

#[derive(Debug, Subcommand)]
enum Event {
    /// A session starts: decisions for the files that are being changed, and stale ones
    SessionStart(Told),
    /// A file is about to be edited: decisions that govern it
    BeforeEdit(Told),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum For {
    #[default]
    Claude,
    Codex,
    Cursor,
    Gemini,
}

#[derive(Debug, Args)]
struct Told {
    /// Client that asks: how the answer is written
    #[arg(long, value_enum, default_value_t)]
    client: For,
    /// Tokens that the answer may cost
    #[arg(long, value_name = "N", default_value_t = 600)]
    budget: usize,
    /// Answer a file again in the same session
    #[arg(long)]
    again: bool,
}

/// What the client said.
struct Said {
    cwd: PathBuf,
    session: String,
    event: String,
    files: Vec<String>,
}

pub(crate) fn run(c: Hook, settings: &Settings, out: Out, began: Instant) -> Result<u8> {
    let (told, edit) = match c.event {
        Event::SessionStart(t) => (t, false),
        Event::BeforeEdit(t) => (t, true),
    };
    let (done, answer) = mpsc::channel();
    let settings = settings.clone();
    let (client, budget, again) = (told.client, told.budget, told.again);
    std::thread::spawn(move || {
        // Without a listener the time was over.
        work(&settings, edit, again, &mut |event, b| {
            let _ = done.send((event.to_owned(), brief_text::briefing(b, budget)));
        })
    });
    let mut best = (String::new(), String::new());
    while let Ok(better) = answer.recv_timeout(DEADLINE.saturating_sub(began.elapsed())) {
        best = better;
    }
    let (event, text) = best;
    if !text.is_empty() {
        out.line(&wire(client, edit, &event, &text).to_string())?;
    }
    // The work may still be at it; it is not waited for.
    std::process::exit(0)
}

/// The answer as a client reads it.
fn wire(client: For, edit: bool, event: &str, text: &str) -> Value {
    let text = format!("From weft, the memory of this codebase:\n{text}");
    if client == For::Cursor {
        return json!({"additional_context": text});
    }
    let event = match (event, edit) {
        ("", false) => "SessionStart",
        ("", true) => "PreToolUse",
        (e, _) => e,
    };
    json!({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}})
}

/// Gives what is to be told, and something better where there is time; `None` = something failed, or there is
/// nothing.
fn work(
    settings: &Settings,
    edit: bool,
    again: bool,
    tell: &mut dyn FnMut(&str, &Briefing),
) -> Option<()> {
    let said = said()?;
    if edit && said.files.is_empty() {
        return None;
    }
    let engine = open(settings).ok()?;
    // Where the client stands in no repository, the file may.
    let near = said.files.first().and_then(|f| Path::new(f).parent());
    let d = engine
        .decisions_at(&said.cwd)
        .or_else(|e| near.map_or(Err(e), |n| engine.decisions_at(n)))
        .ok()?;
    if !edit {
        // Which files are being changed may take long to find out where nothing is indexed yet.
        tell(&said.event, &d.briefing(&said.cwd, Some(&[])).ok()?);
        tell(&said.event, &d.briefing(&said.cwd, None).ok()?);
        return Some(());
    }
    let mut b = d.briefing(&said.cwd, Some(&said.files)).ok()?;
    b.stale.clear();
    let ids: Vec<&str> = b.governing.iter().map(|g| g.decision.id.as_str()).collect();
    if !ids.is_empty() && (again || first(settings.data_dir(), &said, &ids)) {
        tell(&said.event, &b);
    }
    Some(())
}

fn said() -> Option<Said> {
    let mut text = String::new();
    if !std::io::stdin().is_terminal() {
        std::io::stdin()
            .lock()
            .take(MAX_INPUT)
            .read_to_string(&mut text)
            .ok()?;
    }
    let v: Value = match text.trim() {
        "" => json!({}),
        t => serde_json::from_str(t).ok()?,
    };
    let text = |names: &[&str]| {
        let found = names.iter().find_map(|n| v[*n].as_str());
        found.unwrap_or_default().to_owned()
    };
    let cwd = match text(&["cwd"]) {
        c if c.is_empty() => {
            let root = v["workspace_roots"][0].as_str().map(PathBuf::from);
            root.or_else(|| std::env::current_dir().ok())?
        }
        c => PathBuf::from(c),
    };
    Some(Said {
        session: text(&["session_id", "conversation_id"]),
        event: text(&["hook_event_name"]),
        files: files(&v["tool_input"]),
        cwd,
    })
}

/// The files that a call is about.
fn files(input: &Value) -> Vec<String> {
    let mut out: Vec<String> = match input {
        Value::Object(o) => edits::edits(o).into_iter().map(|e| e.path).collect(),
        // A patch alone, as Codex sends it.
        Value::String(_) => return files(&json!({"patch": input})),
        _ => Vec::new(),
    };
    out.extend(input["absolute_path"].as_str().map(str::to_owned));
    out.retain(|p| !p.is_empty());
    out.dedup();
    out.truncate(50);
    out
}

/// Whether this was not told in this session yet; from now on it was.
fn first(data: &Path, said: &Said, ids: &[&str]) -> bool {
    if said.session.is_empty() {
        return true;
    }
    let folder = data.join("hooks");
    let name: String = said
        .session
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(80)
        .collect();
    let file = folder.join(name);
    let key = format!("{}\t{}", said.files.join("\u{1f}"), ids.join(","));
    let told = std::fs::read_to_string(&file).unwrap_or_default();
    if told.lines().any(|l| l == key) {
        return false;
    }
    if std::fs::create_dir_all(&folder).is_ok() {
        if told.is_empty() {
            forget(&folder);
        }
        // Where this cannot be kept, a file is told of again.
        let _ = std::fs::write(&file, format!("{told}{}\n", key.replace('\n', " ")));
    }
    true
}

/// Removes what was kept of sessions long ago.
fn forget(folder: &Path) {
    let old = SystemTime::now().checked_sub(FORGET);
    for e in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let at = e.metadata().and_then(|m| m.modified()).ok();
        if at.zip(old).is_some_and(|(at, old)| at < old) {
            let _ = std::fs::remove_file(e.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_call_are_found() {
        assert_eq!(
            files(&json!({"file_path": "/a/b.rs", "old_string": "x"})),
            ["/a/b.rs"]
        );
        assert_eq!(files(&json!({"notebook_path": "n.ipynb"})), ["n.ipynb"]);
        let patch = "*** Begin Patch\n*** Update File: src/a.rs\n@@\n-x\n*** Add File: b c.rs\n*** End Patch";
        assert_eq!(files(&json!({"command": patch})), ["src/a.rs", "b c.rs"]);
        assert_eq!(
            files(&json!({"command": ["apply_patch", patch]})),
            ["src/a.rs", "b c.rs"]
        );
        assert_eq!(files(&json!(patch)), ["src/a.rs", "b c.rs"]);
        assert!(files(&json!({"command": "ls", "n": 1})).is_empty());
        assert!(files(&Value::Null).is_empty());
    }

    #[test]
    fn answers_are_written_as_each_client_reads_them() {
        let v = wire(For::Claude, true, "", "x");
        assert_eq!(v["hookSpecificOutput"]["hookEventName"], "PreToolUse");
        let v = wire(For::Gemini, true, "AfterTool", "x");
        assert_eq!(v["hookSpecificOutput"]["hookEventName"], "AfterTool");
        assert!(wire(For::Cursor, false, "sessionStart", "x")["additional_context"].is_string());
    }
}
