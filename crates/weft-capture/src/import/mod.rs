//! Agents' transcript files as turns: streaming, tolerant, and the same however often it is read.
//!
//! An imported turn holds one call of the model: its request is what was new since the call before
//! it in the same thread, its response is what the transcript recorded. Its dedupe key comes from
//! the message itself, so reading a file again, a copy of it, or a file that was rewritten adds
//! only what is new.

mod claude;
mod codex;
mod lines;

use std::io::BufRead;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use weft_core::block::ChatResponse;
use weft_core::time::{Micros, format_micros};

pub use lines::{LINE_PREFIX, MAX_LINE};

/// Whose transcripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Claude Code: `~/.claude/projects/<folder>/<session>.jsonl`.
    Claude,
    /// Codex: `~/.codex/sessions/<year>/<month>/<day>/rollout-….jsonl`.
    Codex,
}

impl Format {
    /// The harness id under which captured turns of the same agent stand.
    pub fn harness_id(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }

    /// Tells a transcript by its first readable records.
    pub fn sniff(path: &Path) -> Option<Self> {
        let mut lines = lines::Lines::new(std::io::BufReader::new(std::fs::File::open(path).ok()?));
        for _ in 0..20 {
            let line = lines.next_line().ok()??;
            let Ok(v) = serde_json::from_str::<Value>(&line.text) else {
                continue;
            };
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
    let agent = match format {
        Format::Claude => claude::agent_of(path),
        Format::Codex => claude::Agent::default(),
    };
    read(reader, format, agent, sink)
}

/// Reads a transcript that is in memory.
///
/// # Errors
/// Where the sink fails.
pub fn read_text(text: &str, format: Format, sink: Sink<'_>) -> Result<FileStats, String> {
    read(text.as_bytes(), format, claude::Agent::default(), sink)
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

fn read(
    reader: impl BufRead,
    format: Format,
    agent: claude::Agent,
    sink: Sink<'_>,
) -> Result<FileStats, String> {
    let mut stats = FileStats::default();
    let mut turns = 0;
    let mut importer: Box<dyn Importer> = match format {
        Format::Claude => Box::new(claude::Claude::new(agent)),
        Format::Codex => Box::new(codex::Codex::default()),
    };
    let mut counting = |t: ImportedTurn| {
        turns += 1;
        sink(t)
    };
    let mut lines = lines::Lines::new(reader);
    while let Some(line) = lines.next_line().map_err(|e| e.to_string())? {
        stats.lines += 1;
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

/// The transcript files below a folder, by path; links are not followed.
pub fn find(root: &Path, format: Format) -> Vec<Found> {
    const MAX_DEPTH: usize = 8;
    let mut found = Vec::new();
    let mut folders = vec![(root.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(t) if t.is_dir() && depth < MAX_DEPTH => folders.push((path, depth + 1)),
                Ok(t) if t.is_file() && path.extension().is_some_and(|e| e == "jsonl") => {
                    found.push(Found { path, format });
                }
                _ => {}
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The working directory and the remote that a transcript names in its first records.
pub fn peek_place(path: &Path) -> Option<(String, String)> {
    let mut lines = lines::Lines::new(std::io::BufReader::new(std::fs::File::open(path).ok()?));
    for _ in 0..50 {
        let line = lines.next_line().ok()??;
        let Ok(v) = serde_json::from_str::<Value>(&line.text) else {
            continue;
        };
        for place in [&v, &v["payload"]] {
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
        let stats = read(
            text.as_bytes(),
            format,
            claude::Agent::default(),
            &mut |t| {
                turns.push(t);
                Ok(())
            },
        )
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
