//! Importing agents' transcripts: finding them, reading them, storing what is new.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value, json};
use weft_capture::import::{self, FileStats, Format, Found, ImportedTurn, Skip};
use weft_capture::repository;
use weft_core::redact::{redact, redact_value};
use weft_store::{ImportMark, NewSession, NewTurn, SessionKey, StoreError};

use crate::clock::{new_id, now};
use crate::{Engine, Progress};

/// Turns of one transaction, at most.
const BATCH: usize = 256;
/// Bytes of one transaction, roughly at most.
const BATCH_BYTES: usize = 8 << 20;

/// Invented sessions for a machine that has none.
const SAMPLE: [&str; 2] = [
    include_str!("../sample/lantern.jsonl"),
    include_str!("../sample/kite.jsonl"),
];

/// Where agents keep their transcripts: folders, or files, each with its format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roots(pub Vec<(Format, PathBuf)>);

impl Roots {
    fn find(&self) -> Vec<Found> {
        let all = self.0.iter();
        all.flat_map(|(format, root)| import::find(root, *format))
            .collect()
    }
}

/// What to import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Files and folders; empty = `roots`.
    pub paths: Vec<PathBuf>,
    /// Format of `paths`; `None` = told by their content.
    pub format: Option<Format>,
    /// Usual places.
    pub roots: Roots,
    /// Only sessions of this repository.
    pub repository: Option<repository::Repository>,
    /// Read files again that did not change.
    pub again: bool,
    /// Whose sessions they are.
    pub auth_subject: String,
}

/// What one file gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileReport {
    /// Where.
    pub path: PathBuf,
    /// Turns read.
    pub turns: u64,
    /// Of those, turns that were not known.
    pub new_turns: u64,
    /// Lines that could not be used.
    pub skipped: u64,
    /// Lines that were cut.
    pub truncated: u64,
    /// Samples of skipped lines.
    pub samples: Vec<Skip>,
    /// Why the file could not be read.
    pub error: Option<String>,
}

/// What an import did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Files looked at.
    pub files: u64,
    /// Of those, files that did not change since they were imported.
    pub unchanged: u64,
    /// Of those, files that could not be read.
    pub failed: u64,
    /// Turns read.
    pub turns: u64,
    /// Turns that were not known.
    pub new_turns: u64,
    /// Lines that could not be used.
    pub skipped: u64,
    /// Lines that were cut.
    pub truncated: u64,
    /// Sessions that the turns belong to.
    pub sessions: u64,
    /// Files with skipped or cut lines, or that failed.
    pub notable: Vec<FileReport>,
}

/// What seeding the sample did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleReport {
    /// Sessions of the sample.
    pub sessions: u64,
    /// Turns of the sample.
    pub raw_turns: u64,
    /// Of those, turns that were not there yet.
    pub inserted: u64,
}

fn mark_of(path: &Path) -> Option<ImportMark> {
    let m = std::fs::metadata(path).ok()?;
    let modified = m
        .modified()
        .ok()?
        .duration_since(std::time::UNIX_EPOCH)
        .ok()?;
    Some(ImportMark {
        size: m.len(),
        modified_ns: i64::try_from(modified.as_nanos()).ok()?,
    })
}

/// Every transcript file that the options name, by path.
fn named(o: &ImportOptions) -> Vec<Found> {
    let mut found = Vec::new();
    for path in &o.paths {
        if path.is_dir() {
            found.extend(match o.format {
                Some(format) => import::find(path, format),
                None => import::find_any(path),
            });
        } else {
            let format = o
                .format
                .or_else(|| Format::sniff(path))
                .unwrap_or(Format::Claude);
            found.push(Found {
                path: path.clone(),
                format,
            });
        }
    }
    if o.paths.is_empty() {
        found.extend(o.roots.find());
    }
    found
}

struct Collector<'a> {
    engine: &'a Engine,
    format: Format,
    source_path: String,
    auth_subject: &'a str,
    demo: bool,
    batch: Vec<NewTurn>,
    bytes: usize,
    new_turns: u64,
    shared: &'a mut Shared,
}

/// What the files of one import share.
#[derive(Default)]
struct Shared {
    repositories: HashMap<(String, String), String>,
    sessions: BTreeSet<String>,
}

impl Collector<'_> {
    fn take(&mut self, t: ImportedTurn) -> Result<(), StoreError> {
        let repository = self
            .shared
            .repositories
            .entry((t.cwd.clone(), t.remote.clone()))
            .or_insert_with_key(|(cwd, remote)| repository::identity(cwd, remote))
            .clone();
        self.shared.sessions.insert(t.harness_session_id.clone());
        let key = SessionKey {
            harness_id: self.format.harness_id().into(),
            harness_session_id: t.harness_session_id,
        };
        let main = !t.meta.contains_key("thread_id");
        let mut request = t.request;
        redact_value(&mut request);
        let mut response = serde_json::to_value(&t.response).unwrap_or_default();
        redact_value(&mut response);
        let mut meta = Value::Object(t.meta);
        redact_value(&mut meta);
        let mut metadata = t.session_metadata;
        if self.demo {
            metadata.insert("demo".into(), json!(true));
        }
        let envelope = json!({"harness_id": key.harness_id, "harness_session_id": key.harness_session_id,
            "harness_metadata": metadata});
        let (request, response) = (request.to_string(), response.to_string());
        self.bytes += request.len() + response.len();
        self.batch.push(NewTurn {
            source: "import",
            provider: t.provider.into(),
            agent_name: key.harness_id.clone(),
            harness_id: key.harness_id.clone(),
            harness_session_id: key.harness_session_id.clone(),
            request_id: t.request_id,
            raw_request: Some(request),
            response: Some(response),
            meta: meta.to_string(),
            session_envelope: Some(envelope.to_string()),
            received_at: now(),
            session: Some(NewSession {
                new_id: new_id(),
                new_parent_id: new_id(),
                key,
                auth_subject: self.auth_subject.into(),
                name: redact(&t.name).unwrap_or(t.name),
                cwd: t.cwd,
                harness_version: t.version,
                parent: t.parent,
                metadata,
                repository,
                source_path: if main {
                    self.source_path.clone()
                } else {
                    String::new()
                },
                started_at: t.started_at,
                last_seen_at: t.ended_at,
            }),
            ..NewTurn::default()
        });
        if self.batch.len() >= BATCH || self.bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.bytes = 0;
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        self.new_turns += self.engine.store.insert_turns(batch)? as u64;
        Ok(())
    }
}

/// A file's full path, the name it is remembered under, and how it looks now.
fn look(path: &Path) -> (PathBuf, String, Option<ImportMark>) {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = path.to_string_lossy().into_owned();
    // A database is written beside itself first.
    let beside = mark_of(&path.with_extension("db-wal"));
    let mark = mark_of(&path).map(|m| match beside {
        Some(b) if path.extension().is_some_and(|e| e == "db") => ImportMark {
            size: m.size + b.size,
            modified_ns: m.modified_ns.max(b.modified_ns),
        },
        _ => m,
    });
    (path, name, mark)
}

/// Whether a session of a folder belongs to a repository.
fn is_of(wanted: &repository::Repository, cwd: &str, remote: &str) -> bool {
    Path::new(cwd).starts_with(&wanted.root) || repository::identity(cwd, remote) == wanted.identity
}

/// Reads a transcript, or all sessions of a database.
fn read(path: &Path, format: Format, sink: import::Sink<'_>) -> Result<FileStats, String> {
    match format {
        Format::OpenCode => import::read_records(
            format,
            |each| {
                weft_store::foreign::opencode(path, &mut |session| {
                    each(&session).map_err(StoreError::Other)
                })
                .map_err(|e| e.to_string())
            },
            sink,
        ),
        _ => import::read_file(path, format, sink),
    }
}

/// The transcript files below the usual places that changed since a time.
pub fn transcripts_since(roots: &Roots, since: SystemTime) -> Vec<PathBuf> {
    roots
        .find()
        .into_iter()
        .map(|found| found.path)
        .filter(|path| {
            let changed = std::fs::metadata(path).and_then(|m| m.modified());
            changed.is_ok_and(|t| t >= since)
        })
        .collect()
}

impl Engine {
    /// The files to read, by path, and how many need no reading since they did not change.
    fn files(&self, o: &ImportOptions) -> Result<(Vec<Found>, u64), StoreError> {
        let mut places: HashMap<(String, String), bool> = HashMap::new();
        let (mut files, mut unchanged) = (Vec::new(), 0);
        for f in named(o) {
            let (_, name, mark) = look(&f.path);
            if !o.again && mark.is_some() && self.store.import_mark(&name)? == mark {
                unchanged += 1;
                continue;
            }
            if let Some(wanted) = o.repository.as_ref().filter(|_| !f.format.is_database()) {
                let Some(place) = import::peek_place(&f.path) else {
                    continue;
                };
                let inside = places
                    .entry(place)
                    .or_insert_with_key(|(cwd, remote)| is_of(wanted, cwd, remote));
                if !*inside {
                    continue;
                }
            }
            files.push(f);
        }
        Ok((files, unchanged))
    }

    fn collector<'a>(
        &'a self,
        format: Format,
        auth_subject: &'a str,
        shared: &'a mut Shared,
    ) -> Collector<'a> {
        Collector {
            engine: self,
            format,
            source_path: String::new(),
            auth_subject,
            demo: false,
            batch: Vec::new(),
            bytes: 0,
            new_turns: 0,
            shared,
        }
    }

    /// Imports transcripts. A broken line or file is reported and skipped, and the rest goes on.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn import(
        &self,
        options: &ImportOptions,
        progress: Progress<'_>,
    ) -> Result<ImportReport, StoreError> {
        let (files, unchanged) = self.files(options)?;
        let mut report = ImportReport {
            files: unchanged,
            unchanged,
            ..ImportReport::default()
        };
        let mut shared = Shared::default();
        let total = files.len() as u64;
        for found in files {
            report.files += 1;
            progress("importing transcripts", report.files - unchanged, total);
            let (path, name, mark) = look(&found.path);
            let mut collector = self.collector(found.format, &options.auth_subject, &mut shared);
            collector.source_path.clone_from(&name);
            let mut store_error = None;
            // Of a database only a part may be wanted: then it is looked through again each time.
            let part = options
                .repository
                .as_ref()
                .filter(|_| found.format.is_database());
            let read = read(&path, found.format, &mut |t| {
                if part.is_some_and(|wanted| !is_of(wanted, &t.cwd, &t.remote)) {
                    return Ok(());
                }
                collector.take(t).map_err(|e| {
                    let text = e.to_string();
                    store_error = Some(e);
                    text
                })
            });
            if let Some(e) = store_error {
                return Err(e);
            }
            collector.flush()?;
            let new_turns = collector.new_turns;
            let one = file_report(found.path, read, new_turns);
            report.turns += one.turns;
            report.new_turns += one.new_turns;
            report.skipped += one.skipped;
            report.truncated += one.truncated;
            if one.error.is_some() {
                report.failed += 1;
            } else if let Some(mark) = mark.filter(|_| part.is_none()) {
                self.store.set_import_mark(&name, mark, now())?;
            }
            if one.error.is_some() || one.skipped + one.truncated > 0 {
                report.notable.push(one);
            }
        }
        report.sessions = shared.sessions.len() as u64;
        if report.new_turns > 0 {
            self.wake.derive();
        }
        Ok(report)
    }

    /// Imports the invented sample, marked as such, and derives it; a second time changes nothing.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn import_sample(&self) -> Result<SampleReport, StoreError> {
        let mut shared = Shared::default();
        let mut report = SampleReport::default();
        for text in SAMPLE {
            let mut collector = self.collector(Format::Claude, "sample", &mut shared);
            collector.demo = true;
            let mut failed = None;
            let _ = import::read_text(text, Format::Claude, &mut |t| {
                report.raw_turns += 1;
                collector.take(t).map_err(|e| {
                    let text = e.to_string();
                    failed = Some(e);
                    text
                })
            });
            if let Some(e) = failed {
                return Err(e);
            }
            collector.flush()?;
            report.inserted += collector.new_turns;
        }
        report.sessions = shared.sessions.len() as u64;
        for sid in shared.sessions {
            self.derive_session(&SessionKey {
                harness_id: Format::Claude.harness_id().into(),
                harness_session_id: sid,
            })?;
        }
        Ok(report)
    }

    /// How many transcript files an import would read: those that are new or changed.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn count_new_transcripts(&self, options: &ImportOptions) -> Result<usize, StoreError> {
        Ok(self.files(options)?.0.len())
    }
}

fn file_report(path: PathBuf, read: Result<FileStats, String>, new_turns: u64) -> FileReport {
    match read {
        Ok(s) => FileReport {
            path,
            turns: s.turns,
            new_turns,
            skipped: s.skipped,
            truncated: s.truncated,
            samples: s.samples,
            error: None,
        },
        Err(e) => FileReport {
            path,
            new_turns,
            error: Some(e),
            ..FileReport::default()
        },
    }
}
