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
mod opencode;

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
    /// OpenCode: `~/.local/share/opencode/opencode.db`, a database of all sessions: whoever can open it
    /// gives its sessions to [`read_records`].
    OpenCode,
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
            Self::OpenCode => "opencode",
        }
    }

    /// Whether a file of it holds sessions of many folders.
    pub fn is_database(self) -> bool {
        self == Self::OpenCode
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
            Self::OpenCode => name == "opencode.db",
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
        [
            Self::Aider,
            Self::Cline,
            Self::Copilot,
            Self::Gemini,
            Self::OpenCode,
        ]
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
        Format::OpenCode => Box::new(opencode::OpenCode),
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

/// Reads records that are no lines of a file. `records` calls what it is given with each.
///
/// # Errors
/// Where `records` or the sink fails; records that cannot be used are counted instead.
pub fn read_records(
    format: Format,
    records: impl FnOnce(&mut dyn FnMut(&Value) -> Result<(), String>) -> Result<(), String>,
    sink: Sink<'_>,
) -> Result<FileStats, String> {
    let mut stats = FileStats::default();
    let mut turns = 0;
    let mut importer = importer_of(format, Path::new(""));
    let mut counting = |t: ImportedTurn| {
        turns += 1;
        sink(t)
    };
    records(&mut |r| {
        stats.lines += 1;
        offer(&mut *importer, r, &mut stats, &mut counting)
    })?;
    importer.finish(&mut counting)?;
    stats.turns = turns;
    Ok(stats)
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

/// Gives an importer a record; one that it cannot use is counted.
fn offer(
    importer: &mut dyn Importer,
    record: &Value,
    stats: &mut FileStats,
    sink: Sink<'_>,
) -> Result<(), String> {
    match importer.record(record, sink) {
        Ok(()) => Ok(()),
        Err(Failure::Skip(reason)) => {
            stats.skip(stats.lines, reason);
            Ok(())
        }
        Err(Failure::Sink(e)) => Err(e),
    }
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
        offer(importer, &r, stats, sink)?;
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
            let record = Value::String(line.text);
            offer(&mut *importer, &record, &mut stats, &mut counting)?;
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
        offer(&mut *importer, &record, &mut stats, &mut counting)?;
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
mod tests;
