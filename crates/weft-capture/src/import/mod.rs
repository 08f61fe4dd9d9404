//! Agents' transcript files as turns: streaming, tolerant, and the same however often it is read.
//!
//! An imported turn holds one call of the model: its request is what was new since the call before
//! it in the same thread, its response is what the transcript recorded. Its dedupe key comes from
//! the message itself, so reading a file again, a copy of it, or a file that was rewritten adds
//! only what is new.

mod aider;
mod claude;
mod cline;
mod codex;
mod copilot;
mod dialogue;
mod gemini;
mod lines;

use std::io::{BufRead, Read as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use weft_core::block::ChatResponse;
use weft_core::time::{Micros, format_micros};

use crate::envelope::short_hash;
pub use lines::{LINE_PREFIX, MAX_LINE};

/// Whose transcripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Claude Code: `~/.claude/projects/<folder>/<session>.jsonl`.
    Claude,
    /// Codex: `~/.codex/sessions/<year>/<month>/<day>/rollout-….jsonl`.
    Codex,
    /// Gemini CLI: `~/.gemini/tmp/<project>/chats/session-….json` or `….jsonl`.
    Gemini,
    /// Copilot CLI: `~/.copilot/session-state/<session>/events.jsonl`.
    Copilot,
    /// Cline and Roo Code: `tasks/<task>/api_conversation_history.json`.
    Cline,
    /// Aider: `.aider.chat.history.md` in a repository.
    Aider,
}

/// How a file is cut into records.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// One JSON object a line.
    Lines,
    /// One JSON value: an object is a record, a list is one of records.
    Whole,
    /// Lines of text.
    Text,
}

impl Format {
    /// The harness id under which captured turns of the same agent stand.
    pub fn harness_id(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Copilot => "copilot",
            Self::Cline => "cline",
            Self::Aider => "aider",
        }
    }

    /// Whether a file of this name is a transcript.
    fn is_named(self, path: &Path) -> bool {
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        match self {
            Self::Claude | Self::Codex => name.ends_with(".jsonl"),
            Self::Gemini => {
                name.starts_with("session-")
                    && (name.ends_with(".json") || name.ends_with(".jsonl"))
            }
            Self::Copilot => name == "events.jsonl",
            Self::Cline => name == "api_conversation_history.json",
            Self::Aider => name == ".aider.chat.history.md",
        }
    }

    fn shape(self, path: &Path) -> Shape {
        match self {
            Self::Aider => Shape::Text,
            Self::Cline => Shape::Whole,
            Self::Gemini if path.extension().is_some_and(|e| e == "json") => Shape::Whole,
            _ => Shape::Lines,
        }
    }

    /// The format of a file whose name alone tells it.
    fn by_name(path: &Path) -> Option<Self> {
        [Self::Aider, Self::Cline, Self::Copilot, Self::Gemini]
            .into_iter()
            .find(|f| f.is_named(path))
    }

    /// Tells a transcript by its first readable records.
    pub fn sniff(path: &Path) -> Option<Self> {
        if let Some(format) = Self::by_name(path) {
            return Some(format);
        }
        let mut lines = lines::Lines::new(std::io::BufReader::new(std::fs::File::open(path).ok()?));
        for _ in 0..20 {
            let line = lines.next_line().ok()??;
            let Ok(v) = serde_json::from_str::<Value>(&line.text) else {
                continue;
            };
            if v["type"] == "session.start" {
                return Some(Self::Copilot);
            }
            if v["sessionId"].is_string() && v["projectHash"].is_string() {
                return Some(Self::Gemini);
            }
            if v["type"] == "session_meta" || v["payload"].is_object() {
                return Some(Self::Codex);
            }
            if v["sessionId"].is_string() || v["uuid"].is_string() || v["leafUuid"].is_string() {
                return Some(Self::Claude);
            }
        }
        None
    }
}

/// One call of a model, read from a transcript.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportedTurn {
    /// The session, as its harness names it.
    pub harness_session_id: String,
    /// `anthropic` or `openai`: whose shapes the request has.
    pub provider: &'static str,
    /// Dedupe key.
    pub request_id: String,
    /// What was new since the last call of the thread, in the provider's shape.
    pub request: Value,
    /// What was answered.
    pub response: ChatResponse,
    /// Thread, message id, times and the rest of what derivation reads.
    pub meta: Map<String, Value>,
    /// Working directory.
    pub cwd: String,
    /// Address of the remote repository, where the transcript has it.
    pub remote: String,
    /// Version of the harness.
    pub version: String,
    /// Title of the session.
    pub name: String,
    /// The session that spawned this one.
    pub parent: String,
    /// Further facts about the session.
    pub session_metadata: Map<String, Value>,
    /// When the call began.
    pub started_at: Micros,
    /// When the answer was complete.
    pub ended_at: Micros,
}

/// A line that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Line number from 1.
    pub line: u64,
    /// Why.
    pub reason: String,
}

/// What was found in one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStats {
    /// Lines read.
    pub lines: u64,
    /// Turns given to the sink.
    pub turns: u64,
    /// Lines that could not be used.
    pub skipped: u64,
    /// Lines that were cut at [`LINE_PREFIX`] because they exceed [`MAX_LINE`].
    pub truncated: u64,
    /// Samples of skipped lines, at most [`MAX_SAMPLES`].
    pub samples: Vec<Skip>,
}

/// Skipped lines that are told one by one.
pub const MAX_SAMPLES: usize = 5;

impl FileStats {
    fn skip(&mut self, line: u64, reason: impl Into<String>) {
        self.skipped += 1;
        if self.samples.len() < MAX_SAMPLES {
            self.samples.push(Skip {
                line,
                reason: reason.into(),
            });
        }
    }
}

/// Takes imported turns; an error ends the reading.
pub type Sink<'a> = &'a mut dyn FnMut(ImportedTurn) -> Result<(), String>;

/// Reads a transcript file and gives its turns to `sink`.
///
/// # Errors
/// Where the file cannot be read or the sink fails; broken lines are counted instead.
pub fn read_file(path: &Path, format: Format, sink: Sink<'_>) -> Result<FileStats, String> {
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    let reader = std::io::BufReader::with_capacity(256 * 1024, file);
    read(reader, importer_of(format, path), format.shape(path), sink)
}

/// What reads a file of a format; some of what a transcript does not say stands in its path.
fn importer_of(format: Format, path: &Path) -> Box<dyn Importer> {
    let folder = || path.parent().unwrap_or(Path::new(""));
    match format {
        Format::Claude => Box::new(claude::Claude::new(claude::agent_of(path))),
        Format::Codex => Box::new(codex::Codex::default()),
        Format::Gemini => Box::new(gemini::Gemini::new(gemini_root(path).unwrap_or_default())),
        Format::Copilot => Box::new(copilot::Copilot::default()),
        Format::Cline => {
            let task = folder()
                .file_name()
                .map(|n| n.to_string_lossy().into_owned());
            Box::new(cline::Cline::new(task.unwrap_or_default()))
        }
        Format::Aider => {
            let place = folder()
                .canonicalize()
                .unwrap_or_else(|_| folder().to_owned());
            Box::new(aider::Aider::new(place.to_string_lossy().into_owned()))
        }
    }
}

/// The folder that Gemini CLI notes beside a project's chats.
fn gemini_root(path: &Path) -> Option<String> {
    let project = path.parent()?.parent()?;
    let text = std::fs::read_to_string(project.join(".project_root")).ok()?;
    Some(text.trim().to_owned())
}

/// Reads a transcript that is in memory.
///
/// # Errors
/// Where the sink fails.
pub fn read_text(text: &str, format: Format, sink: Sink<'_>) -> Result<FileStats, String> {
    let nowhere = Path::new("");
    read(
        text.as_bytes(),
        importer_of(format, nowhere),
        format.shape(nowhere),
        sink,
    )
}

trait Importer {
    /// Takes one record; an error is a reason to skip it.
    fn record(&mut self, record: &Value, sink: Sink<'_>) -> Result<(), Failure>;
    /// Gives what is left.
    fn finish(&mut self, sink: Sink<'_>) -> Result<(), String>;
}

enum Failure {
    Skip(String),
    Sink(String),
}

/// Largest transcript that is one JSON value, bytes: it is held in memory.
pub const MAX_WHOLE: u64 = 256 << 20;

/// Gives each record of one JSON value.
fn read_whole(
    reader: impl BufRead,
    importer: &mut dyn Importer,
    stats: &mut FileStats,
    sink: Sink<'_>,
) -> Result<(), String> {
    let mut bytes = Vec::new();
    let mut limited = reader.take(MAX_WHOLE + 1);
    limited.read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() as u64 > MAX_WHOLE {
        return Err(format!("larger than {MAX_WHOLE} bytes"));
    }
    let text = String::from_utf8_lossy(&bytes);
    let text = crate::json::scrub(&text);
    let records = match serde_json::from_str::<Value>(&text) {
        Ok(Value::Array(a)) => a,
        Ok(v) => vec![v],
        // One that is being written is whole the next time.
        Err(e) => return Err(format!("not JSON: {e}")),
    };
    for r in records {
        stats.lines += 1;
        match importer.record(&r, sink) {
            Ok(()) => {}
            Err(Failure::Skip(reason)) => stats.skip(stats.lines, reason),
            Err(Failure::Sink(e)) => return Err(e),
        }
    }
    Ok(())
}

fn read(
    mut reader: impl BufRead,
    mut importer: Box<dyn Importer>,
    shape: Shape,
    sink: Sink<'_>,
) -> Result<FileStats, String> {
    let mut stats = FileStats::default();
    let mut turns = 0;
    let mut counting = |t: ImportedTurn| {
        turns += 1;
        sink(t)
    };
    if shape == Shape::Whole {
        read_whole(&mut reader, &mut *importer, &mut stats, &mut counting)?;
    }
    let mut lines = lines::Lines::new(reader);
    while let Some(line) = lines.next_line().map_err(|e| e.to_string())? {
        stats.lines += 1;
        if shape == Shape::Text {
            if let Err(Failure::Sink(e)) = importer.record(&Value::String(line.text), &mut counting)
            {
                return Err(e);
            }
            continue;
        }
        if line.text.trim().is_empty() {
            continue;
        }
        let text = crate::json::scrub(&line.text);
        let parsed = if line.truncated {
            stats.truncated += 1;
            crate::json::close(&text).and_then(|t| serde_json::from_str(&t).ok())
        } else {
            serde_json::from_str::<Value>(&text).ok()
        };
        let Some(record) = parsed.filter(Value::is_object) else {
            let reason = if line.truncated {
                "longer than the limit, and its beginning cannot be read"
            } else {
                "not a JSON object"
            };
            stats.skip(stats.lines, reason);
            continue;
        };
        match importer.record(&record, &mut counting) {
            Ok(()) => {}
            Err(Failure::Skip(reason)) => stats.skip(stats.lines, reason),
            Err(Failure::Sink(e)) => return Err(e),
        }
    }
    importer.finish(&mut counting)?;
    stats.turns = turns;
    Ok(stats)
}

/// Start, end and duration of a call as derivation reads them.
fn times(meta: &mut Map<String, Value>, started: Micros, ended: Micros) {
    meta.insert("ts_request".into(), json!(format_micros(started)));
    if ended > started {
        meta.insert("captured_at".into(), json!(format_micros(ended)));
        let seconds = (ended - started) as f64 / 1e6;
        meta.insert("elapsed_seconds".into(), json!(seconds));
    }
}

/// A transcript file that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where.
    pub path: PathBuf,
    /// Whose.
    pub format: Format,
}

/// The transcript files below a folder, by path; links are not followed. A file stands for itself.
pub fn find(root: &Path, format: Format) -> Vec<Found> {
    let mut found = Vec::new();
    walk(root, &mut |path| {
        if format.is_named(&path) {
            found.push(Found { path, format });
        }
    });
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The transcript files of all formats below a folder, by path.
pub fn find_any(root: &Path) -> Vec<Found> {
    let mut found = Vec::new();
    walk(root, &mut |path| {
        let may_be =
            path.extension().is_some_and(|e| e == "jsonl") || Format::by_name(&path).is_some();
        if let Some(format) = may_be.then(|| Format::sniff(&path)).flatten() {
            found.push(Found { path, format });
        }
    });
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn walk(root: &Path, each: &mut dyn FnMut(PathBuf)) {
    const MAX_DEPTH: usize = 8;
    if root.is_file() {
        return each(root.to_owned());
    }
    let mut folders = vec![(root.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(t) if t.is_dir() && depth < MAX_DEPTH => folders.push((path, depth + 1)),
                Ok(t) if t.is_file() => each(path),
                _ => {}
            }
        }
    }
}

/// The working directory and the remote that a transcript names in its first records.
pub fn peek_place(path: &Path) -> Option<(String, String)> {
    let nowhere_remote = |cwd: String| Some((cwd, String::new())).filter(|p| !p.0.is_empty());
    match Format::by_name(path) {
        Some(Format::Aider) => {
            let folder = path.parent()?.canonicalize().ok()?;
            return nowhere_remote(folder.to_string_lossy().into_owned());
        }
        Some(Format::Gemini) => return nowhere_remote(gemini_root(path)?),
        Some(Format::Cline) => {
            // The first message names the folder.
            let mut head = Vec::new();
            let file = std::fs::File::open(path).ok()?;
            file.take(256 * 1024).read_to_end(&mut head).ok()?;
            return nowhere_remote(cline::folder(&String::from_utf8_lossy(&head))?);
        }
        _ => {}
    }
    let mut lines = lines::Lines::new(std::io::BufReader::new(std::fs::File::open(path).ok()?));
    for _ in 0..50 {
        let line = lines.next_line().ok()??;
        let Ok(v) = serde_json::from_str::<Value>(&line.text) else {
            continue;
        };
        for place in [&v, &v["payload"], &v["data"]["context"]] {
            if let Some(cwd) = place["cwd"].as_str() {
                let remote = place["git"]["repository_url"].as_str().unwrap_or_default();
                return Some((cwd.to_owned(), remote.to_owned()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(format: Format, text: &str) -> (Vec<ImportedTurn>, FileStats) {
        let mut turns = Vec::new();
        let stats = read_text(text, format, &mut |t| {
            turns.push(t);
            Ok(())
        })
        .expect("read");
        (turns, stats)
    }

    fn user(session: &str, text: &str, at: u32) -> String {
        json!({"type": "user", "sessionId": session, "uuid": format!("u{at}"), "cwd": "/w",
            "timestamp": format!("2026-01-01T00:00:{at:02}Z"), "message": {"role": "user", "content": text}})
        .to_string()
    }

    fn assistant(session: &str, id: &str, block: Value, at: u32) -> String {
        json!({"type": "assistant", "sessionId": session, "uuid": format!("a{at}"),
            "timestamp": format!("2026-01-01T00:00:{at:02}Z"), "message": {"role": "assistant", "id": id,
            "model": "claude-x", "content": [block], "usage": {"input_tokens": 3, "output_tokens": at}}})
        .to_string()
    }

    fn text(t: &str) -> Value {
        json!({"type": "text", "text": t})
    }

    #[test]
    fn m1_a_truncated_line_is_skipped_and_the_rest_read() {
        let lines = [
            user("s", "one", 1),
            assistant("s", "m1", text("a"), 2),
            user("s", "two", 3)[..40].to_owned(),
            assistant("s", "m2", text("b"), 4),
            "[]".into(),
        ];
        let (turns, stats) = all(Format::Claude, &lines.join("\n"));
        assert_eq!(turns.len(), 2);
        assert_eq!((stats.lines, stats.skipped), (5, 2));
        assert_eq!(stats.samples[0].line, 3);
    }

    #[test]
    fn m2_m3_line_separators_and_numeric_keys() {
        let odd = json!({"type": "user", "sessionId": "s", "uuid": "u", "message": {"role": "user",
            "content": {"0": {"type": "text", "text": "x"}}}});
        let raw = format!(
            "{}\n{}\n{odd}\n{}",
            user("s", "a\u{2028}b", 1),
            assistant("s", "m1", text("ok"), 2),
            assistant("s", "m2", text("ok2"), 4)
        );
        assert!(raw.contains('\u{2028}'));
        let (turns, stats) = all(Format::Claude, &raw);
        assert_eq!((turns.len(), stats.skipped), (2, 0));
        assert_eq!(turns[0].request["messages"][0]["content"], "a\u{2028}b");
        let q =
            weft_core::provider::parse_request("anthropic", &turns[1].request).expect("request");
        assert_eq!(q.messages[0].content[0].text, "x");
    }

    #[test]
    fn m4_one_message_written_once_for_each_block() {
        let tool =
            json!({"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}});
        let lines = [
            user("s", "go", 1),
            assistant("s", "m1", text("look"), 2),
            assistant("s", "m1", tool, 3),
            assistant("s", "m1", text("look"), 3),
        ];
        let (turns, _) = all(Format::Claude, &lines.join("\n"));
        assert_eq!(turns.len(), 1);
        let r = &turns[0].response;
        assert_eq!(r.message.content.len(), 2);
        assert_eq!(r.stop_reason, "tool_use");
        let u = r.usage.as_ref().expect("usage");
        assert_eq!((u.prompt_tokens, u.completion_tokens), (3, 3));
        assert_eq!(turns[0].meta["elapsed_seconds"], 2.0);
    }

    #[test]
    fn m15_two_sessions_in_one_file_stay_apart() {
        let lines = [
            user("s1", "one", 1),
            user("s2", "two", 2),
            assistant("s2", "m2", text("b"), 3),
            assistant("s1", "m1", text("a"), 4),
        ];
        let (turns, _) = all(Format::Claude, &lines.join("\n"));
        let of = |s: &str| turns.iter().find(|t| t.harness_session_id == s).expect(s);
        assert_eq!(of("s1").request["messages"][0]["content"], "one");
        assert_eq!(of("s2").request["messages"][0]["content"], "two");
    }

    #[test]
    fn m7_codex_events_repeat_items_and_count_once() {
        let line = |kind: &str, p: Value, at: u32| {
            json!({"timestamp": format!("2026-01-01T00:00:{at:02}Z"), "type": kind, "payload": p})
                .to_string()
        };
        let lines = [
            line(
                "session_meta",
                json!({"id": "c1", "cwd": "/w", "cli_version": "1", "git": {"repository_url": "git@h:a/k.git"}}),
                0,
            ),
            line("turn_context", json!({"model": "gpt-5", "cwd": "/w"}), 0),
            line(
                "response_item",
                json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}),
                1,
            ),
            line(
                "event_msg",
                json!({"type": "user_message", "message": "hi"}),
                1,
            ),
            line(
                "event_msg",
                json!({"type": "agent_message", "message": "ho"}),
                2,
            ),
            line(
                "event_msg",
                json!({"type": "token_count", "info": {"last_token_usage": {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}}}),
                2,
            ),
            line(
                "response_item",
                json!({"type": "reasoning", "summary": []}),
                2,
            ),
            line(
                "response_item",
                json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ho"}]}),
                2,
            ),
            line(
                "response_item",
                json!({"type": "function_call", "name": "shell", "arguments": "{\"command\":[\"ls\"]}", "call_id": "c"}),
                3,
            ),
            line(
                "response_item",
                json!({"type": "function_call_output", "call_id": "c", "output": "x"}),
                4,
            ),
            line(
                "response_item",
                json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}),
                5,
            ),
        ];
        let (turns, stats) = all(Format::Codex, &lines.join("\n"));
        assert_eq!((turns.len(), stats.skipped), (2, 0));
        assert_eq!(turns[0].response.message.content.len(), 3);
        assert_eq!(
            turns[0]
                .response
                .usage
                .as_ref()
                .expect("usage")
                .prompt_tokens,
            7
        );
        assert_eq!(turns[0].remote, "git@h:a/k.git");
        assert_eq!(turns[1].response.message.content[0].text, "done");
        assert_ne!(turns[0].request_id, turns[1].request_id);
        let (again, _) = all(Format::Codex, &lines.join("\n"));
        assert_eq!(turns, again);
    }

    /// Reads a file of a name in a folder of its own.
    fn file(at: &str, text: &str) -> (Vec<ImportedTurn>, FileStats, PathBuf) {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join(at);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("folders");
        std::fs::write(&path, text).expect("file");
        let format = Format::sniff(&path).expect("format");
        let mut turns = Vec::new();
        let stats = read_file(&path, format, &mut |t| {
            turns.push(t);
            Ok(())
        })
        .expect("read");
        let found = find(dir.path(), format);
        assert_eq!(found.len(), 1, "{at} is found");
        (turns, stats, dir.path().to_owned())
    }

    #[test]
    fn gemini_messages_hold_their_calls_and_results() {
        let messages = json!([
            {"id": "u1", "timestamp": "2026-01-01T00:00:00Z", "type": "user", "content": [{"text": "list files"}]},
            {"id": "i1", "timestamp": "2026-01-01T00:00:01Z", "type": "info", "content": "update available"},
            {"id": "g1", "timestamp": "2026-01-01T00:00:02Z", "type": "gemini", "content": "I look.", "model": "gemini-x",
             "thoughts": [{"subject": "Plan", "description": "ls", "timestamp": "2026-01-01T00:00:01Z"}],
             "tokens": {"input": 7, "output": 2, "cached": 1, "thoughts": 3, "total": 12},
             "toolCalls": [{"id": "c1", "name": "run_shell_command", "args": {"command": "ls"}, "status": "success",
                "timestamp": "2026-01-01T00:00:03Z",
                "result": [{"functionResponse": {"id": "c1", "response": {"output": "a.txt"}}}]}]},
            {"id": "g2", "timestamp": "2026-01-01T00:00:04Z", "type": "gemini", "content": "One file."}
        ]);
        let whole = json!({"sessionId": "s1", "projectHash": "h", "startTime": "2026-01-01T00:00:00Z",
            "messages": messages, "summary": "Listing"});
        let pretty = serde_json::to_string_pretty(&whole).expect("json");
        let (turns, stats, _) = file("p/chats/session-1.json", &pretty);
        assert_eq!((turns.len(), stats.skipped), (2, 0));
        assert_eq!(turns[0].harness_session_id, "s1");
        assert_eq!(turns[0].name, "Listing");
        assert_eq!(turns[0].response.message.content.len(), 3);
        assert_eq!(
            turns[0]
                .response
                .usage
                .as_ref()
                .expect("usage")
                .completion_tokens,
            5
        );
        assert_eq!(
            turns[1].request["messages"][0]["content"][0]["content"],
            "a.txt"
        );
        // The same, a record a line, with a message that is written twice.
        let mut lines =
            vec![json!({"sessionId": "s1", "projectHash": "h", "kind": "main"}).to_string()];
        let half = json!({"id": "g1", "timestamp": "2026-01-01T00:00:02Z", "type": "gemini", "content": "I"});
        lines.push(half.to_string());
        lines.extend(
            messages
                .as_array()
                .expect("list")
                .iter()
                .map(Value::to_string),
        );
        lines.push(json!({"$set": {"summary": "Listing"}}).to_string());
        lines.push(json!({"$rewindTo": "u1"}).to_string());
        // The message that came first keeps its place, so it is asked after.
        lines.swap(1, 2);
        let (again, _, _) = file("p/chats/session-1.jsonl", &lines.join("\n"));
        assert_eq!(
            again.iter().map(|t| &t.request_id).collect::<Vec<_>>(),
            turns.iter().map(|t| &t.request_id).collect::<Vec<_>>()
        );
    }

    #[test]
    fn copilot_events_become_calls_and_subagents_threads() {
        let e = |kind: &str, at: u8, data: Value| {
            json!({"type": kind, "id": format!("e{at}"), "timestamp": format!("2026-01-01T00:00:0{at}Z"), "data": data})
                .to_string()
        };
        let lines = [
            e(
                "session.start",
                0,
                json!({"sessionId": "c1", "copilotVersion": "0.1", "context": {"cwd": "/w"}}),
            ),
            e("session.model_change", 0, json!({"newModel": "gpt-x"})),
            e("user.message", 1, json!({"content": "go"})),
            e(
                "assistant.message",
                2,
                json!({"messageId": "m1", "content": "", "toolRequests":
                [{"toolCallId": "t1", "name": "bash", "arguments": {"command": "ls"}}]}),
            ),
            e(
                "assistant.message",
                3,
                json!({"messageId": "m2", "content": "inside", "parentToolCallId": "t9"}),
            ),
            e(
                "tool.execution_complete",
                4,
                json!({"toolCallId": "t1", "success": false, "error": {"message": "no"}}),
            ),
            e(
                "assistant.message",
                5,
                json!({"messageId": "m3", "content": "done", "outputTokens": 4}),
            ),
        ];
        let (turns, stats, dir) = file("session-state/c1/events.jsonl", &lines.join("\n"));
        assert_eq!((turns.len(), stats.skipped), (3, 0));
        assert_eq!(
            (turns[0].cwd.as_str(), turns[0].response.model.as_str()),
            ("/w", "gpt-x")
        );
        assert_eq!(turns[1].meta["thread_id"], "t9");
        let result = &turns[2].request["messages"][0]["content"][0];
        assert_eq!(
            (&result["content"], &result["is_error"]),
            (&json!("no"), &json!(true))
        );
        assert!(!dir.exists());
    }

    #[test]
    fn cline_tasks_are_the_messages_of_the_api() {
        let text = json!([
            {"role": "user", "content": [{"type": "text", "text": "<task>fix it</task>"},
                {"type": "text", "text": "# Current Working Directory (/home/ann/shop) Files"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Looking."}]},
            {"role": "user", "ts": 1_767_225_700_000_i64, "content": "go on"},
            {"role": "assistant", "ts": 1_767_225_701_000_i64, "content": "Done."}
        ])
        .to_string();
        let (turns, _, _) = file("tasks/1767225600000/api_conversation_history.json", &text);
        assert_eq!(turns.len(), 2);
        assert_eq!(turns[0].cwd, "/home/ann/shop");
        assert_eq!(turns[0].harness_session_id, "1767225600000");
        assert!(turns[0].started_at < turns[1].started_at);
        let cut = read_whole(
            &text.as_bytes()[..text.len() - 30],
            &mut cline::Cline::new(String::new()),
            &mut FileStats::default(),
            &mut |_| Ok(()),
        );
        assert!(cut.is_err_and(|e| e.starts_with("not JSON")));
    }

    #[test]
    fn aider_chats_are_cut_at_what_was_asked() {
        let text = "\n# aider chat started at 2026-01-01 10:00:00\n\n> Main model: gpt-x with diff edit format\n\n#### add a test\n#### for refunds\n\nHere is one:\n\n```py\nassert 1\n```\n\n> Applied edit to t.py\n\n#### thanks\n\nWelcome.\n\n# aider chat started at 2026-01-02 10:00:00\n\n#### hello\n\nHi.\n";
        let (turns, _, dir) = file(".aider.chat.history.md", text);
        assert_eq!(turns.len(), 3);
        assert_eq!(
            turns[0].request["messages"][0]["content"],
            "add a test\nfor refunds"
        );
        assert_eq!(turns[0].response.model, "gpt-x");
        assert!(turns[0].response.message.content[0].text.ends_with("```"));
        assert_ne!(turns[1].harness_session_id, turns[2].harness_session_id);
        assert!(
            turns[0]
                .harness_session_id
                .contains(&*dir.to_string_lossy())
        );
    }

    #[test]
    fn side_chains_without_an_agent_id_are_threads_of_their_own() {
        let side = |uuid: &str, parent: Value, kind: &str, content: Value| {
            json!({"type": kind, "sessionId": "s", "uuid": uuid, "parentUuid": parent, "isSidechain": true,
                "message": {"role": kind, "id": "x1", "content": content}})
            .to_string()
        };
        let lines = [
            user("s", "go", 1),
            side("x", Value::Null, "user", json!("dig")),
            side("y", json!("x"), "assistant", json!([text("dug")])),
            assistant("s", "m1", text("done"), 5),
        ];
        let (turns, _) = all(Format::Claude, &lines.join("\n"));
        let side = turns
            .iter()
            .find(|t| t.meta.contains_key("thread_id"))
            .expect("side chain");
        assert!(
            side.meta["thread_id"]
                .as_str()
                .expect("id")
                .starts_with("side-")
        );
        assert_eq!(side.request["messages"][0]["content"], "dig");
    }
}
