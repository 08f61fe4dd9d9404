//! Staleness: what a decision is linked to changed after it was made or last reaffirmed.
//!
//! A baseline says what the linked files and symbols looked like then: the commit, and the hashes of what
//! stood on disk beside it, so that work which was written first and committed later is no change. What is
//! compared with it is the commit that is checked out. A move, a new name and other white space alone are
//! no change.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use weft_code::extract;
use weft_code::git::{Added, BlobId, Git, LastChange, hash_blob};
use weft_core::code::{Kind, Symbol};
use weft_core::decision::{Decision, Record, Status, state};
use weft_core::hash::{hex, sha256_hex};

use super::{DecisionError, Decisions, Loaded, folder, midnight};
use crate::clock::now;
use crate::code::{HitStitch, decoded};

/// Time for naming the commits that changed something, over one answer.
const NAMING_TIME: Duration = Duration::from_millis(1_500);
/// Most symbols that are watched for one decision.
const MAX_SYMBOLS: usize = 30;
/// Most changes that are named for one decision.
const MAX_CHANGES: usize = 10;
/// Share of the lines that a file has to share with another one to be taken for it after a move.
const SIMILAR: f32 = 0.6;

/// One thing that changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// File, or `file::symbol`.
    pub target: String,
    /// In words: `changed`, `removed`, `moved to … and changed`; with the symbols concerned.
    pub what: String,
    /// The commit, where it was found in time.
    pub by: Option<HitStitch>,
}

/// Why a decision is stale.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// What changed.
    pub changes: Vec<Change>,
}

impl Stale {
    /// In one line.
    pub fn text(&self) -> String {
        let one = |c: &Change| match &c.by {
            Some(s) => {
                let id: String = s.changeset.chars().take(9).collect();
                format!("{} {} in {id} \"{}\"", c.target, c.what, s.intent)
            }
            None => format!("{} {}", c.target, c.what),
        };
        let shown: Vec<String> = self.changes.iter().take(3).map(one).collect();
        let more = match self.changes.len().saturating_sub(3) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        shown.join("; ") + &more
    }
}

/// What linked files and symbols looked like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Baseline {
    /// Commit that was checked out; "" = none.
    commit: String,
    /// When, microseconds since 1970.
    at: i64,
    /// Blob ids of files as they were on disk.
    files: BTreeMap<String, String>,
    /// Hashes of symbols' texts without their names, by `file::symbol`.
    symbols: BTreeMap<String, String>,
}

/// Splits `file::symbol`.
fn target(text: &str) -> (&str, Option<&str>) {
    match text.split_once("::") {
        Some((f, s)) if !s.is_empty() => (f, Some(s)),
        _ => (text, None),
    }
}

fn is_glob(path: &str) -> bool {
    path.contains(['*', '?', '[', '{'])
}

/// A matcher for a glob or a folder.
fn matcher(path: &str) -> Option<GlobSet> {
    let mut b = GlobSetBuilder::new();
    let p = path.trim_end_matches('/');
    if is_glob(p) {
        b.add(Glob::new(p).ok()?);
    }
    b.add(Glob::new(&format!("{p}/**")).ok()?);
    b.build().ok()
}

/// Whether what a decision governs covers a path.
pub(crate) fn covers(link: &str, path: &str) -> bool {
    let (file, _) = target(link);
    file == path
        || ((is_glob(file) || path.starts_with(&format!("{}/", file.trim_end_matches('/'))))
            && matcher(file).is_some_and(|m| m.is_match(path)))
}

/// Text with every run of white space as one blank.
fn collapsed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text in which a word is replaced wherever it stands alone.
fn renamed(text: &str, from: &str, to: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let word = |c: char| c.is_alphanumeric() || c == '_';
    while let Some(i) = rest.find(from).filter(|_| !from.is_empty()) {
        let alone = !rest[..i].ends_with(word) && !rest[i + from.len()..].starts_with(word);
        out.push_str(&rest[..i]);
        out.push_str(if alone { to } else { from });
        rest = &rest[i + from.len()..];
    }
    out.push_str(rest);
    out
}

fn text_of<'a>(source: &'a str, s: &Symbol) -> &'a str {
    source
        .get(s.start as usize..s.end as usize)
        .unwrap_or_default()
}

/// Hash of a symbol's text without its name and its white space.
pub(crate) fn masked(source: &str, s: &Symbol) -> String {
    sha256_hex(collapsed(&renamed(text_of(source, s), s.own_name(), "\u{1}")).as_bytes())
}

/// The symbols of a text, without the record of the file.
fn symbols(path: &str, source: &str) -> Vec<Symbol> {
    let mut all = extract::extract(path, source).symbols;
    all.retain(|s| s.kind != Kind::File);
    all
}

/// The symbol of a name: as it is qualified, else the only one of that last part.
pub(crate) fn named<'a>(all: &'a [Symbol], name: &str) -> Option<&'a Symbol> {
    let name = name.replace("::", ".");
    all.iter()
        .find(|s| s.name.replace("::", ".") == name)
        .or_else(|| {
            let mut of = all.iter().filter(|s| s.own_name() == name);
            of.next().filter(|_| of.next().is_none())
        })
}

/// How one text became the other: `None` = only by white space and new names; else the symbols that
/// changed.
fn differ(path: &str, old: &str, new: &str) -> Option<Vec<String>> {
    if collapsed(old) == collapsed(new) {
        return None;
    }
    let (a, b) = (symbols(path, old), symbols(path, new));
    let lost: Vec<&Symbol> = a.iter().filter(|s| named(&b, &s.name).is_none()).collect();
    let come: Vec<&Symbol> = b.iter().filter(|s| named(&a, &s.name).is_none()).collect();
    let mut text = old.to_owned();
    for s in &lost {
        let hash = masked(old, s);
        if let Some(n) = come.iter().find(|n| masked(new, n) == hash) {
            text = renamed(&text, s.own_name(), n.own_name());
        }
    }
    if collapsed(&text) == collapsed(new) {
        return None;
    }
    let mut out: Vec<String> = Vec::new();
    for s in &a {
        let now = named(&b, &s.name);
        let same = now.is_some_and(|n| collapsed(text_of(old, s)) == collapsed(text_of(new, n)));
        // A container that changed only in a member is told by the member.
        let inner = out.iter().any(|o| o.starts_with(&format!("{}.", s.name)));
        if !same && !inner && !s.kind.is_container() {
            out.push(s.name.clone());
        }
    }
    out.extend(
        come.iter()
            .filter(|s| !s.kind.is_container())
            .map(|s| s.name.clone()),
    );
    out.dedup();
    Some(out)
}

/// Share of the lines of `a` that `b` has too.
fn similarity(a: &str, b: &str) -> f32 {
    let lines = |t: &str| -> HashMap<String, usize> {
        let mut m = HashMap::new();
        for l in t.lines().map(str::trim).filter(|l| l.len() > 2) {
            *m.entry(l.to_owned()).or_default() += 1;
        }
        m
    };
    let (x, y) = (lines(a), lines(b));
    let total: usize = x.values().sum::<usize>().max(y.values().sum());
    let common: usize = x
        .iter()
        .map(|(l, n)| (*n).min(y.get(l).copied().unwrap_or(0)))
        .sum();
    if total == 0 {
        0.0
    } else {
        common as f32 / total as f32
    }
}

/// One look at a repository, for many decisions.
struct Look<'a> {
    git: Git,
    head: String,
    root: Option<&'a std::path::Path>,
    /// Paths and contents of the commit that is checked out; read when something moved.
    files: OnceCell<Vec<(String, BlobId)>>,
    deadline: Instant,
    /// Baselines of decisions by id.
    bases: HashMap<String, Baseline>,
}

impl Look<'_> {
    fn text(&self, blob: &BlobId) -> Option<String> {
        decoded(&self.git.blob(blob, weft_code::walk::MAX_FILE_BYTES)?)
    }

    fn all(&self) -> &[(String, BlobId)] {
        self.files.get_or_init(|| {
            let files = self.git.files(&self.head).unwrap_or_default();
            files.into_iter().map(|f| (f.path, f.blob)).collect()
        })
    }

    /// Where a file went: to a place with the same bytes, else to one that is mostly the same.
    fn moved(&self, path: &str, then: &[BlobId], base: &str) -> Option<(String, BlobId)> {
        if let Some(found) = self.all().iter().find(|(_, b)| then.contains(b)) {
            return Some(found.clone());
        }
        let old = then.iter().find_map(|b| self.text(b))?;
        let name = path.rsplit('/').next();
        let ext = path.rsplit_once('.').map(|x| x.1);
        let new_here = |p: &str| base.is_empty() || self.git.blob_at(base, p).is_none();
        let mut near: Vec<&(String, BlobId)> = self
            .all()
            .iter()
            .filter(|(p, _)| p.rsplit_once('.').map(|x| x.1) == ext)
            .collect();
        near.sort_by_key(|(p, _)| p.rsplit('/').next() != name);
        near.into_iter()
            .filter(|(p, _)| new_here(p))
            .take(200)
            .filter_map(|(p, b)| Some((similarity(&old, &self.text(b)?), p, b)))
            .filter(|(s, ..)| *s >= SIMILAR)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, p, b)| (p.clone(), *b))
    }

    /// The last commit that changed what `same` looks at.
    fn by(&self, path: &str, same: &mut dyn FnMut(&[u8]) -> bool) -> Option<HitStitch> {
        match self
            .git
            .last_change(&self.head, path, None, self.deadline, same)
        {
            Ok(LastChange::Found(s)) => Some(s.into()),
            _ => None,
        }
    }

    /// What a file was: as it stood on disk, and as the commit has it.
    fn then(&self, path: &str, base: &Baseline) -> Vec<BlobId> {
        let told = base.files.get(path).and_then(|h| blob_of(h));
        let committed = self.git.blob_at(&base.commit, path);
        told.into_iter().chain(committed).collect()
    }

    fn file(&self, path: &str, base: &Baseline) -> Option<Change> {
        let then = self.then(path, base);
        // A file that a decision brought about was not there then.
        if then.is_empty() {
            return None;
        }
        let change = |target: &str, what: String, by| Change {
            target: target.to_owned(),
            what,
            by,
        };
        let Some(now) = self.git.blob_at(&self.head, path) else {
            // Written and not committed yet.
            if self.root.is_some_and(|r| r.join(path).is_file()) {
                return None;
            }
            return match self.moved(path, &then, &base.commit) {
                None => Some(change(path, "was removed".into(), None)),
                Some((_, b)) if then.contains(&b) => None,
                Some((to, b)) => {
                    let new = self.text(&b).unwrap_or_default();
                    let old = then.iter().find_map(|b| self.text(b)).unwrap_or_default();
                    let changed = differ(&to, &old, &new)?;
                    let what = format!("moved to {to} and changed{}", list(&changed));
                    Some(change(path, what, self.by(&to, &mut |_| false)))
                }
            };
        };
        if then.contains(&now) {
            return None;
        }
        let new = self.text(&now);
        let mut changed = Vec::new();
        for old in then.iter().filter_map(|b| self.text(b)) {
            changed = differ(path, &old, new.as_deref().unwrap_or_default())?;
        }
        Some(change(
            path,
            format!("changed{}", list(&changed)),
            self.by(path, &mut |_| false),
        ))
    }

    fn symbol(&self, path: &str, name: &str, base: &Baseline) -> Option<Change> {
        let key = format!("{path}::{name}");
        let committed = self.git.blob_at(&base.commit, path);
        let of_commit = committed.and_then(|b| {
            let text = self.text(&b)?;
            let all = symbols(path, &text);
            named(&all, name).map(|s| masked(&text, s))
        });
        let then: Vec<String> = base
            .symbols
            .get(&key)
            .cloned()
            .into_iter()
            .chain(of_commit)
            .collect();
        if then.is_empty() {
            return None;
        }
        let blobs: Vec<BlobId> = committed.into_iter().collect();
        let place = match self.git.blob_at(&self.head, path) {
            Some(b) => Some((path.to_owned(), b)),
            None if self.root.is_some_and(|r| r.join(path).is_file()) => return None,
            None => self.moved(path, &blobs, &base.commit),
        };
        let removed = || Change {
            target: key.clone(),
            what: "was removed".into(),
            by: self.by(path, &mut |_| false),
        };
        let Some((at, blob)) = place else {
            return Some(removed());
        };
        let text = self.text(&blob)?;
        let all = symbols(&at, &text);
        if all.iter().any(|s| then.contains(&masked(&text, s))) {
            return None;
        }
        let Some(s) = named(&all, name) else {
            return Some(removed());
        };
        let now = masked(&text, s);
        let by = self.by(&at, &mut |old| {
            decoded(old).is_some_and(|o| symbols(&at, &o).iter().any(|x| masked(&o, x) == now))
        });
        Some(Change {
            target: key,
            what: "changed".into(),
            by,
        })
    }

    /// Files under a folder or a glob.
    fn many(&self, pattern: &str, base: &Baseline) -> Vec<Change> {
        let Some(m) = matcher(pattern) else {
            return Vec::new();
        };
        let then = match base.commit.as_str() {
            "" => Vec::new(),
            c => self.git.files(c).unwrap_or_default(),
        };
        then.iter()
            .filter(|f| m.is_match(&f.path))
            .filter(|f| self.git.blob_at(&self.head, &f.path) != Some(f.blob))
            .filter_map(|f| self.file(&f.path, base))
            .take(MAX_CHANGES)
            .collect()
    }
}

fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        n if n.len() <= 3 => format!(" ({})", n.join(", ")),
        n => format!(" ({} and {} more)", n[..3].join(", "), n.len() - 3),
    }
}

fn blob_of(text: &str) -> Option<BlobId> {
    let mut out = [0; 20];
    if text.len() != 40 {
        return None;
    }
    for (i, b) in out.iter_mut().enumerate() {
        *b = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(out)
}

impl Decisions<'_> {
    /// The baseline of a decision that is made now, as JSON: `text` says which symbols it is about.
    pub(super) fn baseline_now(&self, files: &[String], text: &str) -> String {
        let Some(root) = self.repo.as_ref().and_then(|r| r.root.as_deref()) else {
            return String::new();
        };
        let mut b = Baseline {
            commit: self.head().unwrap_or_default(),
            at: now(),
            ..Baseline::default()
        };
        let words: Vec<&str> = text
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter(|w| w.len() >= 4)
            .collect();
        for link in files {
            let (path, symbol) = target(link);
            let Ok(bytes) =
                folder::read(&root.join(path), weft_code::walk::MAX_FILE_BYTES as usize)
            else {
                continue;
            };
            if symbol.is_none() {
                b.files.insert(path.to_owned(), hex(&hash_blob(&bytes)));
            }
            let Some(source) = decoded(&bytes) else {
                continue;
            };
            let all = symbols(path, &source);
            let wanted: Vec<&Symbol> = match symbol {
                Some(name) => named(&all, name).into_iter().collect(),
                None => all
                    .iter()
                    .filter(|s| words.contains(&s.own_name()) && s.own_name().len() >= 4)
                    .collect(),
            };
            for s in wanted {
                let key = match symbol {
                    Some(_) => link.clone(),
                    None => format!("{path}::{}", s.name),
                };
                if b.symbols.len() < MAX_SYMBOLS {
                    b.symbols.insert(key, masked(&source, s));
                }
            }
        }
        serde_json::to_string(&b).unwrap_or_default()
    }

    /// The baseline of a record that was found: the commit that brought it, else what is there now.
    pub(super) fn baseline_of(&self, record: &Record, added: Option<&Added>) -> String {
        match added {
            Some(a) => serde_json::to_string(&Baseline {
                commit: a.commit.clone(),
                at: a.at_micros(),
                ..Baseline::default()
            })
            .unwrap_or_default(),
            None => self.baseline_now(&record.files, ""),
        }
    }

    /// `file::symbol` targets that decisions are linked to, by decision.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn symbols(&self) -> Result<HashMap<String, Vec<String>>, DecisionError> {
        let truth = self.engine.store.decisions(&self.workspace.slug)?;
        Ok(truth
            .into_iter()
            .filter_map(|t| {
                let b: Baseline = serde_json::from_str(&t.baseline).ok()?;
                Some((t.id, b.symbols.into_keys().collect()))
            })
            .collect())
    }

    /// Decisions that are linked to a file which is gone and was moved, by place, with where it is now.
    pub(super) fn moved_links(&self, loaded: &Loaded) -> Vec<(usize, String)> {
        let Some(look) = self.look().ok().flatten() else {
            return Vec::new();
        };
        let gone = |file: &&str| {
            !is_glob(file) && !file.ends_with('/') && look.git.blob_at(&look.head, file).is_none()
        };
        let mut out = Vec::new();
        for (i, d) in loaded.all.iter().enumerate() {
            let Some(base) = look.bases.get(&d.id) else {
                continue;
            };
            let files = d.record.files.iter().map(|l| target(l).0);
            for f in files.filter(gone).take(MAX_CHANGES) {
                let then = look.then(f, base);
                if !then.is_empty()
                    && let Some((to, _)) = look.moved(f, &then, &base.commit)
                {
                    out.push((i, to));
                }
            }
        }
        out
    }

    /// The repository as it is checked out, and the baselines of all decisions by id; `None` where there
    /// is no commit or no repository.
    fn look(&self) -> Result<Option<Look<'_>>, DecisionError> {
        let Some(repo) = &self.repo else {
            return Ok(None);
        };
        let git = repo.git()?;
        let Some(head) = git.head().map_err(crate::CodeError::Git)?.commit else {
            return Ok(None);
        };
        let bases = self
            .engine
            .store
            .decisions(&self.workspace.slug)?
            .into_iter()
            .filter_map(|t| Some((t.id, serde_json::from_str(&t.baseline).ok()?)))
            .collect();
        Ok(Some(Look {
            git,
            head,
            root: repo.root.as_deref(),
            files: OnceCell::new(),
            deadline: Instant::now() + NAMING_TIME,
            bases,
        }))
    }

    /// Which of some decisions are stale, and why, by id. Only what is in force can be.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn stale(
        &self,
        loaded: &Loaded,
        of: &[usize],
    ) -> Result<HashMap<String, Stale>, DecisionError> {
        let mut out = HashMap::new();
        let linked = |d: &Decision| {
            !d.record.files.is_empty() && matches!(d.status, Status::Accepted | Status::Proposed)
        };
        let of: Vec<&Decision> = of
            .iter()
            .filter_map(|i| loaded.all.get(*i))
            .filter(|d| linked(d))
            .collect();
        if of.is_empty() {
            return Ok(out);
        }
        let Some(look) = self.look()? else {
            return Ok(out);
        };
        for d in of {
            let base = look.bases.get(&d.id).cloned().unwrap_or_default();
            let base = newest(&look, d, base);
            let mut changes: Vec<Change> = Vec::new();
            let mut push = |c: Change| {
                if changes.len() < MAX_CHANGES && !changes.iter().any(|x| x.target == c.target) {
                    changes.push(c);
                }
            };
            for link in &d.record.files {
                let (path, symbol) = target(link);
                match symbol {
                    Some(s) => look.symbol(path, s, &base).into_iter().for_each(&mut push),
                    None if is_glob(path) || path.ends_with('/') => {
                        look.many(path, &base).into_iter().for_each(&mut push);
                    }
                    None => {
                        let is_folder = !base.files.contains_key(path)
                            && look.root.is_some_and(|r| r.join(path).is_dir());
                        if is_folder {
                            look.many(path, &base).into_iter().for_each(&mut push);
                        } else {
                            look.file(path, &base).into_iter().for_each(&mut push);
                        }
                    }
                }
            }
            if !changes.is_empty() {
                out.insert(d.id.clone(), Stale { changes });
            }
        }
        Ok(out)
    }
}

/// The baseline that counts: a reaffirmation that somebody wrote into the record later wins.
fn newest(look: &Look<'_>, d: &Decision, base: Baseline) -> Baseline {
    let Some(told) = &d.record.reaffirmed else {
        return base;
    };
    let named = told
        .rsplit(' ')
        .next()
        .and_then(|c| look.git.commit(c))
        .map(|c| c.0.changeset);
    let time = |c: &str| look.git.commit_time(c).unwrap_or(i64::MIN);
    let commit = match named {
        Some(c) if c == base.commit || time(&c) < time(&base.commit) => return base,
        Some(c) => Some(c),
        // A record that names no commit names a day: the end of it counts.
        None => {
            let day = state::date(told).and_then(|d| midnight(&d));
            let Some(at) = day.filter(|at| *at > base.at) else {
                return base;
            };
            look.git
                .commit_before(&look.head, at / 1_000_000 + 86_399)
                .ok()
                .flatten()
        }
    };
    Baseline {
        commit: commit.unwrap_or_default(),
        ..Baseline::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_cover_files_folders_and_globs() {
        for (link, path, want) in [
            ("src/a.rs", "src/a.rs", true),
            ("src/a.rs::f", "src/a.rs", true),
            ("src", "src/a/b.rs", true),
            ("src/", "src/a.rs", true),
            ("src/**/*.rs", "src/x/y.rs", true),
            ("*.rs", "a.rs", true),
            ("src/a", "src/ab.rs", false),
            ("[", "[", true),
            ("[", "x", false),
        ] {
            assert_eq!(covers(link, path), want, "{link} {path}");
        }
    }

    #[test]
    fn names_and_white_space_are_no_change() {
        let old = "fn charge(a: u32) -> u32 {\n    a + 1\n}\n\nfn main() { charge(1); }\n";
        assert_eq!(differ("a.rs", old, &old.replace("    ", "\t")), None);
        assert_eq!(differ("a.rs", old, &old.replace("charge", "bill")), None);
        assert_eq!(
            differ("a.rs", old, &old.replace("a + 1", "a + 2")),
            Some(vec!["charge".into()])
        );
    }
}
