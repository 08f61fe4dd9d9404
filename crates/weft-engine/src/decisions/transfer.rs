//! Import and export: records go in as they are and come out as they went in.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Instant;

use weft_code::git::{Added, Git};
use weft_core::decision::read::{self, MAX_BYTES};
use weft_core::redact;
use weft_store::{DecisionEvent, DecisionTruth};

use super::{DecisionError, Decisions, HISTORY_TIME, Seen, decision_id, digest, folder, midnight};
use crate::clock::now;

/// When the files below a folder came, where it is part of a git repository; paths are from the folder.
fn history_of(folder: &Path) -> HashMap<String, Added> {
    let find = || {
        let git = Git::discover(folder).ok()?;
        let inside = folder
            .strip_prefix(git.root()?)
            .ok()?
            .to_string_lossy()
            .replace('\\', "/");
        let head = git.head().ok()?.commit?;
        let added = git.added(&head, &inside, Instant::now() + HISTORY_TIME);
        let cut = if inside.is_empty() {
            0
        } else {
            inside.len() + 1
        };
        Some(
            added
                .into_iter()
                .map(|(p, a)| (p[cut..].to_owned(), a))
                .collect(),
        )
    };
    find().unwrap_or_default()
}

/// How an import goes about it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImportRecords {
    /// Only say what would be done.
    pub dry_run: bool,
    /// Replace what looks like a secret in the records that are kept.
    pub redact: bool,
}

/// What an import did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Records that were new.
    pub new: usize,
    /// Records whose text was another one.
    pub changed: usize,
    /// Records that were there already.
    pub unchanged: usize,
    /// Records that were renamed.
    pub renamed: usize,
    /// Records by format.
    pub formats: BTreeMap<&'static str, usize>,
    /// Records by status; `none` = they do not say.
    pub statuses: BTreeMap<&'static str, usize>,
    /// Records that hold what looks like a secret. The index never sees it; the record itself is kept as it
    /// is unless the import was told to take it out.
    pub with_secrets: usize,
    /// Files that are no records, with the reason.
    pub skipped: Vec<(String, String)>,
    /// The folder, where it is one of the repository and its files stay the truth.
    pub folder: Option<String>,
}

/// What an export did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Files that were written.
    pub written: usize,
    /// Files that were the same already.
    pub unchanged: usize,
}

impl Decisions<'_> {
    /// Takes over the records of a folder or a file. A folder of the repository stays the truth and is
    /// followed from now on; anything else is copied into the store, byte for byte. What was imported
    /// before is found again by its path, or by its text where the file was renamed.
    ///
    /// # Errors
    /// Where nothing can be read there, or the store cannot be written. A file that is no record is
    /// reported and skipped.
    pub fn import(&self, place: &Path, how: ImportRecords) -> Result<Imported, DecisionError> {
        let full = place
            .canonicalize()
            .map_err(|e| DecisionError::file(place.to_string_lossy(), &e))?;
        let root = self.repo.as_ref().and_then(|r| r.root.as_deref());
        if let Some(inside) = root.and_then(|r| full.strip_prefix(r).ok())
            && full.is_dir()
        {
            let inside = inside.to_string_lossy().replace('\\', "/");
            return self.follow(&inside, how.dry_run);
        }
        let mut seen: Vec<Seen> = Vec::new();
        let base: PathBuf = if full.is_dir() {
            folder::list(&full, "", &mut seen);
            full
        } else {
            let name = full
                .file_name()
                .map(|n| n.to_string_lossy().into_owned())
                .unwrap_or_default();
            seen.push(Seen {
                path: name,
                size: 0,
                modified_ns: 0,
            });
            full.parent().map(Path::to_owned).unwrap_or_default()
        };
        let ws = &self.workspace.slug;
        let known: Vec<DecisionTruth> = self.engine.store.decisions(ws)?;
        let by_path: HashMap<&str, &DecisionTruth> =
            known.iter().map(|t| (t.path.as_str(), t)).collect();
        let here: std::collections::HashSet<&str> = seen.iter().map(|s| s.path.as_str()).collect();
        let mut out = Imported::default();
        let (mut records, mut events, mut moves) = (Vec::new(), Vec::new(), Vec::new());
        let mut taken: Vec<&str> = Vec::new();
        let mut history: Option<HashMap<String, Added>> = None;
        for s in &seen {
            let bytes = match folder::read(&base.join(&s.path), MAX_BYTES) {
                Ok(b) => b,
                Err(e) => {
                    out.skipped.push((s.path.clone(), e.to_string()));
                    continue;
                }
            };
            let record = match read::read(&s.path, &bytes) {
                Ok(r) => r,
                Err(e) => {
                    out.skipped.push((s.path.clone(), e.to_string()));
                    continue;
                }
            };
            *out.formats.entry(record.format.name()).or_default() += 1;
            *out.statuses
                .entry(record.status.map_or("none", |s| s.name()))
                .or_default() += 1;
            let text = String::from_utf8_lossy(&bytes);
            let safe = redact::redact_lines(&text);
            out.with_secrets += usize::from(safe.is_some());
            let body = match safe.filter(|_| how.redact) {
                Some(safe) => safe.into_bytes(),
                None => bytes,
            };
            let hash = digest(&[&body]);
            let told = record.date.as_deref().and_then(midnight);
            let at = told.unwrap_or_else(|| {
                let added = history
                    .get_or_insert_with(|| history_of(&base))
                    .get(&s.path);
                added.map_or_else(now, Added::at_micros)
            });
            let event = |id: &str, note: &str| DecisionEvent {
                id: id.to_owned(),
                kind: "imported".into(),
                made_by: String::new(),
                note: note.to_owned(),
                at: now(),
            };
            let truth = |id: String, at| DecisionTruth {
                path: s.path.clone(),
                id,
                created_at: at,
                body: Some(body.clone()),
                body_hash: Some(hash.clone()),
                baseline: String::new(),
            };
            if let Some(t) = by_path.get(s.path.as_str()) {
                if t.body_hash.as_deref() == Some(&hash) {
                    out.unchanged += 1;
                } else {
                    out.changed += 1;
                    events.push(event(&t.id, "changed"));
                    records.push(truth(t.id.clone(), t.created_at));
                }
                continue;
            }
            let from = known.iter().find(|t| {
                t.body_hash.as_deref() == Some(&hash)
                    && !here.contains(t.path.as_str())
                    && !taken.contains(&t.path.as_str())
                    && !base.join(&t.path).exists()
            });
            if let Some(t) = from {
                taken.push(&t.path);
                out.renamed += 1;
                moves.push((t.path.clone(), s.path.clone()));
                continue;
            }
            let id = decision_id(
                at,
                &digest(&[self.workspace.repo_id.as_bytes(), s.path.as_bytes()]),
            );
            out.new += 1;
            events.push(event(&id, ""));
            records.push(truth(id, at));
        }
        if !how.dry_run {
            for (from, to) in moves {
                self.engine.store.move_decision(ws, &from, &to)?;
            }
            if !records.is_empty() {
                self.engine.store.put_decisions(ws, records, events)?;
            }
            self.sync()?;
        }
        Ok(out)
    }

    /// Follows a folder of the repository from now on.
    fn follow(&self, inside: &str, dry_run: bool) -> Result<Imported, DecisionError> {
        let mut out = Imported {
            folder: Some(inside.to_owned()),
            ..Imported::default()
        };
        let root = self
            .repo
            .as_ref()
            .and_then(|r| r.root.clone())
            .unwrap_or_default();
        let mut seen = Vec::new();
        folder::list(&root, inside, &mut seen);
        let followed = |p: &str| {
            self.folders
                .iter()
                .any(|f| p == f || p.starts_with(&format!("{f}/")))
        };
        let known: HashMap<String, String> = self
            .engine
            .store
            .decisions(&self.workspace.slug)?
            .into_iter()
            .map(|t| (t.path, t.id))
            .collect();
        for s in seen {
            let read = folder::read(&root.join(&s.path), MAX_BYTES)
                .map_err(|e| e.to_string())
                .and_then(|b| read::read(&s.path, &b).map_err(|e| e.to_string()));
            match read {
                Ok(r) => {
                    *out.formats.entry(r.format.name()).or_default() += 1;
                    *out.statuses
                        .entry(r.status.map_or("none", |s| s.name()))
                        .or_default() += 1;
                    if known.contains_key(&s.path) {
                        out.unchanged += 1;
                    } else {
                        out.new += 1;
                    }
                }
                Err(e) => out.skipped.push((s.path, e)),
            }
        }
        if dry_run {
            return Ok(out);
        }
        let mut now = self.clone();
        if !followed(inside) && !inside.is_empty() {
            self.engine
                .store
                .add_decision_folder(&self.workspace.slug, inside)?;
            now.folders.push(inside.to_owned());
        }
        now.sync()?;
        Ok(out)
    }

    /// Writes every record into a folder, each under its own path and byte for byte as it is kept.
    ///
    /// # Errors
    /// Where the folder cannot be written, or holds another file of that name.
    pub fn export(&self, place: &Path, force: bool) -> Result<Exported, DecisionError> {
        let (loaded, _) = self.current()?;
        let mut out = Exported::default();
        for d in &loaded.all {
            let bytes = self.text_of(d)?;
            let to = place.join(&d.path);
            // Paths come from imported trees: none of them may lead out of the folder.
            if Path::new(&d.path)
                .components()
                .any(|c| !matches!(c, std::path::Component::Normal(_)))
            {
                return Err(DecisionError::Bad(format!(
                    "{} is not a path inside of the folder",
                    d.path
                )));
            }
            match std::fs::read(&to) {
                Ok(b) if b == bytes => {
                    out.unchanged += 1;
                    continue;
                }
                Ok(_) if !force => {
                    return Err(DecisionError::Conflict(format!(
                        "{} is there with another text; --force replaces it",
                        to.display()
                    )));
                }
                _ => {}
            }
            let failed = |e: std::io::Error| DecisionError::file(to.to_string_lossy(), &e);
            if let Some(parent) = to.parent() {
                std::fs::create_dir_all(parent).map_err(failed)?;
            }
            folder::write(&to, &bytes, false).map_err(failed)?;
            out.written += 1;
        }
        Ok(out)
    }
}
