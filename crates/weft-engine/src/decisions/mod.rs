//! Decisions of a workspace: where their records are, what was read of them, what is in view.
//!
//! Where a repository has a folder of decisions, the files in it are the truth and the index follows
//! them at every question; the store keeps all others. [`Decisions::sync`] compares, [`Decisions::load`] gives
//! everything in view, settled.

mod audit;
mod folder;
mod record;
mod search;
mod stale;
mod transfer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use weft_code::git::Added;
use weft_core::decision::link::{self, Found, Names};
use weft_core::decision::read::{self, MAX_BYTES};
use weft_core::decision::{Decision, Record, rank, slug};
use weft_core::redact;
use weft_core::time::{Micros, parse_micros};
use weft_store::{DecisionEntry, DecisionRow, DecisionText, DecisionTruth, StoreError, Workspace};

use crate::{CodeError, CodeRepo, Engine, now};
pub use audit::NearPair;
pub use record::{NewDecision, Recorded, Replacement};
pub use search::{DecisionAnswer, DecisionHit, DecisionQuery};
pub use stale::{Change, Stale};
pub(crate) use stale::{covers, masked, named};
pub use transfer::{Exported, ImportRecords, Imported};
pub use weft_core::decision;
pub use weft_store::DecisionEvent;

/// Version of what is read of a record; another one reads all of them again.
const READER: u32 = 1;
/// Time for looking at the history when a folder is seen first.
const HISTORY_TIME: Duration = Duration::from_millis(1_500);

/// Why there is no answer about decisions.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DecisionError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The repository.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// No decision is called this.
    #[error("decision not found: {0}")]
    NotFound(String),
    /// More than one is called this.
    #[error("{name} may be any of {}", .ids.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// Ids and paths.
        ids: Vec<String>,
    },
    /// No workspace is called this.
    #[error("workspace not found: {0}")]
    NoWorkspace(String),
    /// It has to be said which.
    #[error("several workspaces are known here: {}", .0.join(", "))]
    WhichWorkspace(Vec<String>),
    /// It cannot be done.
    #[error("{0}")]
    Bad(String),
    /// It does not fit what is there.
    #[error("{0}")]
    Conflict(String),
    /// A file of the repository could not be read or written.
    #[error("{path}: {reason}")]
    File {
        /// Path.
        path: String,
        /// Why.
        reason: String,
    },
}

impl DecisionError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Store(e) => e.hint(),
            Self::Code(e) => e.hint(),
            Self::NotFound(_) => Some("`weft decisions list` shows ids and paths"),
            Self::Ambiguous { .. } => Some("give the id or the path"),
            Self::NoWorkspace(_) | Self::WhichWorkspace(_) => Some(
                "run it inside the repository, or name one with --workspace (HTTP: /v1/workspaces/{slug})",
            ),
            _ => None,
        }
    }

    pub(crate) fn file(path: impl Into<String>, e: &std::io::Error) -> Self {
        Self::File {
            path: path.into(),
            reason: e.to_string(),
        }
    }
}

/// The decisions of one workspace.
#[derive(Clone, Debug)]
pub struct Decisions<'a> {
    engine: &'a Engine,
    /// The workspace.
    pub workspace: Workspace,
    /// The repository, where it is on this machine.
    pub repo: Option<CodeRepo>,
    /// Folders of the checkout that hold records, relative to its top.
    pub folders: Vec<String>,
}

/// What a look at the records found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionSync {
    /// Records in view.
    pub records: usize,
    /// Records read anew.
    pub read: usize,
    /// Records that are gone.
    pub gone: usize,
    /// Records that were renamed.
    pub renamed: usize,
    /// Files that are no records, with the reason.
    pub problems: Vec<(String, String)>,
}

/// Everything in view.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The decisions, settled; their texts are not loaded.
    pub all: Vec<Decision>,
    pub(crate) entries: Vec<DecisionEntry>,
    /// Length of the entries' vectors; 0 = there is no model.
    pub(crate) dimensions: usize,
}

impl Loaded {
    /// The decision that somebody names.
    ///
    /// # Errors
    /// Where there is none or more than one.
    pub fn find(&self, name: &str) -> Result<usize, DecisionError> {
        let of = |i: &usize| format!("{} ({})", self.all[*i].path, self.all[*i].id);
        match Names::new(&self.all).named(name) {
            Found::One(i) => Ok(i),
            Found::Nothing => Err(DecisionError::NotFound(name.to_owned())),
            Found::Many(m) => Err(DecisionError::Ambiguous {
                name: name.to_owned(),
                ids: m.iter().take(10).map(of).collect(),
            }),
        }
    }

    /// The decision of an id.
    pub fn by_id(&self, id: &str) -> Option<&Decision> {
        self.all.iter().find(|d| d.id == id)
    }
}

/// SHA-256 over the parts, each with its length.
fn digest(parts: &[&[u8]]) -> Vec<u8> {
    let mut h = Sha256::new();
    for p in parts {
        h.update((p.len() as u64).to_le_bytes());
        h.update(p);
    }
    h.finalize().to_vec()
}

/// A sortable id: 48 bits of time, then bits that the caller chooses.
fn decision_id(at: Micros, rest: &[u8]) -> String {
    let mut bits = [0; 10];
    let n = rest.len().min(10);
    bits[..n].copy_from_slice(&rest[..n]);
    let millis = u64::try_from(at / 1_000).unwrap_or(0);
    let id = uuid::Builder::from_unix_timestamp_millis(millis, &bits).into_uuid();
    format!("dec_{}", id.simple())
}

/// Midnight UTC of a `YYYY-MM-DD`.
fn midnight(date: &str) -> Option<Micros> {
    parse_micros(&format!("{date}T00:00:00Z"))
}

/// Reads the text of a record for the index: secrets are taken out before anything is kept.
fn read_text(
    path: &str,
    bytes: &[u8],
    hash: Vec<u8>,
) -> Result<(Record, DecisionText), read::RecordError> {
    let mut r = read::read(path, bytes)?;
    let clean = |t: &mut String| {
        if let Some(safe) = redact::redact_lines(t) {
            *t = safe;
        }
    };
    clean(&mut r.rationale);
    clean(&mut r.title);
    for a in &mut r.alternatives {
        clean(&mut a.name);
        clean(&mut a.why_not);
    }
    let pieces = rank::pieces(&r);
    let views: Vec<&[u8]> = pieces.iter().map(|p| p.as_bytes()).collect();
    let text = DecisionText {
        hash,
        card: serde_json::to_string(&r).unwrap_or_default(),
        rationale: r.rationale.clone(),
        words: rank::pack(&r),
        pieces_hash: digest(&views),
    };
    Ok((r, text))
}

impl Engine {
    /// The decisions of the repository that holds a folder.
    ///
    /// # Errors
    /// Where there is no repository, or the store cannot be read.
    pub fn decisions_at(&self, folder: &Path) -> Result<Decisions<'_>, DecisionError> {
        let repo = self.code_repository(folder)?;
        let known = self.store.workspaces()?;
        let workspace = match known.into_iter().find(|w| w.repo_id == repo.id) {
            Some(w) => w,
            None => {
                let name = slug(&repo.name());
                match self.store.put_workspace(&name, &repo.id, now()) {
                    // A store that cannot be written still answers.
                    Err(e) if e.is_write_only() => Workspace {
                        slug: name,
                        repo_id: repo.id.clone(),
                    },
                    other => other?,
                }
            }
        };
        self.decisions(workspace, Some(repo))
    }

    /// The decisions of a workspace by its name.
    ///
    /// # Errors
    /// Where there is none.
    pub fn decisions_of(&self, slug: &str) -> Result<Decisions<'_>, DecisionError> {
        let found = self
            .store
            .workspaces()?
            .into_iter()
            .find(|w| w.slug == slug);
        let workspace = found.ok_or_else(|| DecisionError::NoWorkspace(slug.to_owned()))?;
        let repo = match workspace.repo_id.as_str() {
            "" => None,
            // A repository that is not on this machine any more still has its decisions.
            id => self.code_repository_by_id(id).ok(),
        };
        self.decisions(workspace, repo)
    }

    /// The decisions of a workspace that needs no repository, made where there is none.
    ///
    /// # Errors
    /// Where the store cannot be written.
    pub fn decisions_named(&self, name: &str) -> Result<Decisions<'_>, DecisionError> {
        match self.decisions_of(name) {
            Err(DecisionError::NoWorkspace(_)) => {
                if name.is_empty() || slug(name) != name {
                    return Err(DecisionError::Bad(format!(
                        "{name:?} is no name for a workspace: letters, digits and dashes"
                    )));
                }
                let w = self.store.put_workspace(name, "", now())?;
                self.decisions(w, None)
            }
            other => other,
        }
    }

    /// The workspace that is meant where nobody says which: that of the folder, else the only one.
    ///
    /// # Errors
    /// Where there are none or several.
    pub fn decisions_here(&self, folder: &Path) -> Result<Decisions<'_>, DecisionError> {
        match self.decisions_at(folder) {
            Err(DecisionError::Code(CodeError::Git(e))) => {
                let known = self.store.workspaces()?;
                match known.as_slice() {
                    [one] => self.decisions_of(&one.slug),
                    [] => Err(DecisionError::Code(CodeError::Git(e))),
                    many => Err(DecisionError::WhichWorkspace(
                        many.iter().map(|w| w.slug.clone()).collect(),
                    )),
                }
            }
            other => other,
        }
    }

    fn decisions(
        &self,
        workspace: Workspace,
        repo: Option<CodeRepo>,
    ) -> Result<Decisions<'_>, DecisionError> {
        let named = self.store.decision_folders(&workspace.slug)?;
        let folders = match repo.as_ref().and_then(|r| r.root.as_deref()) {
            Some(root) => folder::find(root, named),
            None => Vec::new(),
        };
        Ok(Decisions {
            engine: self,
            workspace,
            repo,
            folders,
        })
    }

    /// Embeds what was read of decisions and has no vectors of the current model.
    ///
    /// # Errors
    /// A failure of the store; a failing provider ends the pass, and the next one goes on.
    pub fn embed_decisions(&self) -> Result<usize, StoreError> {
        let Ok(embedder) = self.embedder() else {
            return Ok(0);
        };
        let model = match self
            .store
            .model(embedder.identity(), embedder.dimensions())?
        {
            Some(m) => m,
            None => self
                .store
                .ensure_schema(embedder.identity(), embedder.dimensions())?,
        };
        let mut total = 0;
        loop {
            let waiting = self.store.decisions_to_embed(&model, 200)?;
            if waiting.is_empty() {
                return Ok(total);
            }
            let mut done = Vec::with_capacity(waiting.len());
            let mut failed = false;
            'records: for t in waiting {
                let mut r: Record = serde_json::from_str(&t.card).unwrap_or_default();
                r.rationale = t.rationale;
                let mut vectors = Vec::new();
                for piece in rank::pieces(&r) {
                    match embedder.embed(&piece) {
                        Ok(v) => vectors.extend(v.into_iter().flatten()),
                        Err(e) if e.deterministic_reason().is_some() => {}
                        Err(e) => {
                            tracing::warn!(error = %e, "decisions are not embedded; words are searched only");
                            failed = true;
                            break 'records;
                        }
                    }
                }
                done.push((t.pieces_hash, vectors));
            }
            total += done.len();
            self.store.put_decision_vectors(&model, done)?;
            if failed {
                return Ok(total);
            }
        }
    }
}

/// A record that was found and has to be read.
struct Seen {
    path: String,
    size: u64,
    modified_ns: i64,
}

impl<'a> Decisions<'a> {
    /// Top of the checkout; "" = none.
    pub(crate) fn checkout(&self) -> String {
        let root = self.repo.as_ref().and_then(|r| r.root.as_deref());
        root.map(|r| r.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    fn root(&self) -> Option<&Path> {
        self.repo.as_ref().and_then(|r| r.root.as_deref())
    }

    /// Brings what is known of the records up to date: reads what is new or changed, in the store and in
    /// the folders, and embeds it where that needs no other process. A file that cannot be read keeps
    /// what was read of it before.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn sync(&self) -> Result<DecisionSync, DecisionError> {
        let mut report = DecisionSync::default();
        let result = self
            .sync_store(&mut report)
            .and_then(|()| self.sync_folders(&mut report));
        match result {
            Err(DecisionError::Store(e)) if e.is_write_only() => {
                tracing::warn!(error = %e, "the index of decisions was not brought up to date");
            }
            other => other?,
        }
        // A provider of another process is asked by the embed worker only.
        if self.engine.embedder().is_ok_and(|e| e.is_local()) {
            match self.engine.embed_decisions() {
                Err(e) if !e.is_write_only() => return Err(e.into()),
                _ => {}
            }
        }
        Ok(report)
    }

    /// Records that the store keeps.
    fn sync_store(&self, report: &mut DecisionSync) -> Result<(), DecisionError> {
        let ws = &self.workspace.slug;
        let kept: Vec<DecisionTruth> = self
            .engine
            .store
            .decisions(ws)?
            .into_iter()
            .filter(|t| t.body_hash.is_some())
            .collect();
        let known = self.engine.store.decision_rows(ws, "", READER)?;
        let by_path: HashMap<&str, (&DecisionRow, bool)> = known
            .iter()
            .map(|(r, current)| (r.path.as_str(), (r, *current)))
            .collect();
        report.records += kept.len();
        let (mut rows, mut texts) = (Vec::new(), Vec::new());
        for t in &kept {
            let hash = digest(&[
                t.path.as_bytes(),
                t.body_hash.as_deref().unwrap_or_default(),
            ]);
            if by_path
                .get(t.path.as_str())
                .is_some_and(|(r, current)| r.hash == hash && *current)
            {
                continue;
            }
            let body = self
                .engine
                .store
                .decision_body(ws, &t.path)?
                .unwrap_or_default();
            match read_text(&t.path, &body, hash.clone()) {
                Ok((_, text)) => {
                    texts.push(text);
                    rows.push(DecisionRow {
                        path: t.path.clone(),
                        id: t.id.clone(),
                        created_at: t.created_at,
                        size: body.len() as u64,
                        modified_ns: 0,
                        hash,
                        problem: String::new(),
                    });
                }
                Err(e) => report.problems.push((t.path.clone(), e.to_string())),
            }
        }
        let here: std::collections::HashSet<&str> = kept.iter().map(|t| t.path.as_str()).collect();
        let gone: Vec<String> = known
            .iter()
            .filter(|(r, _)| !here.contains(r.path.as_str()))
            .map(|(r, _)| r.path.clone())
            .collect();
        report.read += rows.len();
        report.gone += gone.len();
        if !rows.is_empty() || !gone.is_empty() {
            self.engine
                .store
                .write_decision_rows(ws, "", rows, gone, texts, READER)?;
        }
        Ok(())
    }

    /// Records that are files of the checkout.
    fn sync_folders(&self, report: &mut DecisionSync) -> Result<(), DecisionError> {
        let Some(root) = self.root() else {
            return Ok(());
        };
        let (ws, checkout) = (&self.workspace.slug, self.checkout());
        let known = self.engine.store.decision_rows(ws, &checkout, READER)?;
        let mut seen: Vec<Seen> = Vec::new();
        for f in &self.folders {
            folder::list(root, f, &mut seen);
        }
        seen.sort_by(|a, b| a.path.cmp(&b.path));
        seen.dedup_by(|a, b| a.path == b.path);
        let by_path: HashMap<&str, (&DecisionRow, bool)> = known
            .iter()
            .map(|(r, current)| (r.path.as_str(), (r, *current)))
            .collect();
        let mut fresh: Vec<(Seen, Vec<u8>, Vec<u8>)> = Vec::new();
        let mut rows: Vec<DecisionRow> = Vec::new();
        let mut here: std::collections::HashSet<String> = std::collections::HashSet::new();
        for s in seen {
            let old = by_path.get(s.path.as_str());
            let same = old.is_some_and(|(r, current)| {
                *current && r.size == s.size && r.modified_ns == s.modified_ns
            });
            if same && let Some((r, _)) = old {
                here.insert(s.path);
                if !r.problem.is_empty() {
                    report.problems.push((r.path.clone(), r.problem.clone()));
                }
                continue;
            }
            let bytes = match folder::read(&root.join(&s.path), MAX_BYTES) {
                Ok(b) => b,
                Err(e) => {
                    report.problems.push((s.path.clone(), e.to_string()));
                    if old.is_some() {
                        here.insert(s.path);
                    }
                    continue;
                }
            };
            let hash = digest(&[s.path.as_bytes(), &Sha256::digest(&bytes)]);
            fresh.push((s, bytes, hash));
        }
        let mut texts = Vec::new();
        let mut read: Vec<(DecisionRow, Record)> = Vec::new();
        for (s, bytes, hash) in fresh {
            let old = by_path.get(s.path.as_str()).map(|o| o.0);
            let mut row = DecisionRow {
                path: s.path.clone(),
                size: s.size,
                modified_ns: s.modified_ns,
                hash: hash.clone(),
                ..old.cloned().unwrap_or_default()
            };
            match read_text(&s.path, &bytes, hash) {
                Ok((record, text)) => {
                    row.hash = text.hash.clone();
                    row.problem.clear();
                    texts.push(text);
                    here.insert(s.path);
                    read.push((row, record));
                }
                // A template is no fault; an import names it.
                Err(read::RecordError::Template) => {}
                Err(e) => {
                    report.problems.push((s.path.clone(), e.to_string()));
                    // What was read before holds until the file can be read again.
                    if let Some(o) = old {
                        row.hash = o.hash.clone();
                        row.problem = e.to_string();
                        here.insert(s.path);
                        rows.push(row);
                    }
                }
            }
        }
        let gone: Vec<&DecisionRow> = known
            .iter()
            .map(|(r, _)| r)
            .filter(|r| !here.contains(&r.path))
            .collect();
        let before = known.len();
        if read.is_empty() && gone.is_empty() && rows.is_empty() {
            report.records += before;
            return Ok(());
        }
        report.read += read.len();
        report.renamed += self.identify(&mut read, &gone)?;
        report.gone += gone.len().saturating_sub(report.renamed);
        rows.extend(read.into_iter().map(|(row, _)| row));
        let gone: Vec<String> = gone.iter().map(|r| r.path.clone()).collect();
        report.records += here.len();
        self.engine
            .store
            .write_decision_rows(ws, &checkout, rows, gone, texts, READER)?;
        Ok(())
    }

    /// Gives records that were read an id and a time: those they had, those of the file that they were
    /// before a rename, else new ones, which every clone finds alike. Returns the number of renames.
    fn identify(
        &self,
        read: &mut [(DecisionRow, Record)],
        gone: &[&DecisionRow],
    ) -> Result<usize, DecisionError> {
        let ws = &self.workspace.slug;
        let truth: HashMap<String, DecisionTruth> = self
            .engine
            .store
            .decisions(ws)?
            .into_iter()
            .map(|t| (t.path.clone(), t))
            .collect();
        let mut taken: Vec<&str> = Vec::new();
        let mut renamed = 0;
        let mut pinned = Vec::new();
        let mut history: Option<HashMap<String, Added>> = None;
        for (row, record) in read.iter_mut() {
            if let Some(t) = truth.get(&row.path) {
                row.id = t.id.clone();
                row.created_at = t.created_at;
                continue;
            }
            let from = gone.iter().find(|g| {
                !taken.contains(&g.path.as_str())
                    && same_record(self.engine.store(), g, &row.path, record)
            });
            if let Some(old) = from {
                taken.push(&old.path);
                renamed += 1;
                row.id = old.id.clone();
                row.created_at = old.created_at;
                self.engine.store.move_decision(ws, &old.path, &row.path)?;
                continue;
            }
            let told = record.date.as_deref().and_then(midnight);
            let links = !record.files.is_empty();
            let added = if told.is_none() || links {
                history
                    .get_or_insert_with(|| self.added())
                    .get(&row.path)
                    .cloned()
            } else {
                None
            };
            row.created_at = told
                .or_else(|| added.as_ref().map(Added::at_micros))
                .unwrap_or(row.modified_ns / 1_000);
            row.id = decision_id(
                row.created_at,
                &digest(&[self.workspace.repo_id.as_bytes(), row.path.as_bytes()]),
            );
            pinned.push(DecisionTruth {
                path: row.path.clone(),
                id: row.id.clone(),
                created_at: row.created_at,
                baseline: if links {
                    self.baseline_of(record, added.as_ref())
                } else {
                    String::new()
                },
                ..DecisionTruth::default()
            });
        }
        if !pinned.is_empty() {
            self.engine.store.put_decisions(ws, pinned, Vec::new())?;
        }
        Ok(renamed)
    }

    /// When the files of the folders came.
    fn added(&self) -> HashMap<String, Added> {
        let mut out = HashMap::new();
        let Some(repo) = &self.repo else {
            return out;
        };
        let deadline = Instant::now() + HISTORY_TIME;
        if let Ok(git) = repo.git()
            && let Ok(head) = git.head()
            && let Some(commit) = head.commit
        {
            for f in &self.folders {
                out.extend(git.added(&commit, f, deadline));
            }
        }
        out
    }

    /// Everything in view.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn load(&self) -> Result<Loaded, DecisionError> {
        let model = match self.engine.embedder() {
            Ok(e) => self.engine.store.model(e.identity(), e.dimensions())?,
            Err(_) => None,
        };
        let entries = self.engine.store.decision_entries(
            &self.workspace.slug,
            &self.checkout(),
            model.as_ref(),
        )?;
        let mut all: Vec<Decision> = entries
            .iter()
            .map(|e| Decision {
                id: e.row.id.clone(),
                path: e.row.path.clone(),
                record: serde_json::from_str(&e.card).unwrap_or_default(),
                created_at: e.row.created_at,
                ..Decision::default()
            })
            .collect();
        link::settle(&mut all);
        Ok(Loaded {
            all,
            entries,
            dimensions: model.map_or(0, |m| m.dimensions),
        })
    }

    /// Up to date and in view.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn current(&self) -> Result<(Loaded, DecisionSync), DecisionError> {
        let report = self.sync()?;
        Ok((self.load()?, report))
    }

    /// Loads the text of a decision.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn with_text(&self, loaded: &Loaded, at: usize) -> Result<Decision, DecisionError> {
        let mut d = loaded.all[at].clone();
        d.record.rationale = self
            .engine
            .store
            .decision_rationale(&loaded.entries[at].row.hash)?;
        Ok(d)
    }

    /// The record of a decision as it stands, byte for byte.
    ///
    /// # Errors
    /// Where it is gone.
    pub fn text_of(&self, d: &Decision) -> Result<Vec<u8>, DecisionError> {
        if let Some(body) = self
            .engine
            .store
            .decision_body(&self.workspace.slug, &d.path)?
        {
            return Ok(body);
        }
        let root = self
            .root()
            .ok_or_else(|| DecisionError::NotFound(d.path.clone()))?;
        folder::read(&root.join(&d.path), MAX_BYTES).map_err(|e| DecisionError::file(&d.path, &e))
    }

    /// What happened to a decision, oldest first.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn events(&self, id: &str) -> Result<Vec<DecisionEvent>, DecisionError> {
        Ok(self
            .engine
            .store
            .decision_events(&self.workspace.slug, id)?)
    }

    /// The absolute path of a folder of records, for people.
    pub fn folder_path(&self) -> Option<PathBuf> {
        Some(self.root()?.join(self.folders.first()?))
    }
}

/// Whether a record is one that was elsewhere: by its text, else by its name and title.
fn same_record(store: &dyn weft_store::Store, old: &DecisionRow, path: &str, new: &Record) -> bool {
    let (a, b) = (
        decision::slug_of_path(&old.path),
        decision::slug_of_path(path),
    );
    let same_name = a == b || decision::split_number(a).1 == decision::split_number(b).1;
    let rationale = store.decision_rationale(&old.hash).unwrap_or_default();
    rationale == new.rationale || (same_name && !rationale.is_empty())
}
