//! Recording, and what may happen to a decision afterwards. Nothing is edited away: a change of status is
//! written into the record, everything else of it stays, and an event says who did it.

use std::path::Path;

use weft_core::decision::edit::{self, Draft};
use weft_core::decision::{Alternative, Decision, Format, Record, Status, Type, rank, slug};
use weft_core::redact;
use weft_core::time::{Micros, format_micros};
use weft_store::{DecisionEvent, DecisionTruth};

use super::{DecisionError, Decisions, Loaded, decision_id, digest, folder, read};
use crate::clock::now;

/// Longest title, characters.
const MAX_TITLE: usize = 300;
/// Longest rationale, bytes.
const MAX_RATIONALE: usize = 512 << 10;
/// Most files and alternatives.
const MAX_LIST: usize = 200;

/// A decision to be recorded.
#[derive(Clone, Debug, Default)]
pub struct NewDecision {
    /// Title.
    pub title: String,
    /// Why.
    pub rationale: String,
    /// What it is about.
    pub kind: Type,
    /// Files, globs and `file::symbol` targets, from the top of the repository.
    pub files: Vec<String>,
    /// What was turned down.
    pub alternatives: Vec<Alternative>,
    /// What it replaces: ids, paths, slugs or numbers.
    pub supersedes: Vec<String>,
    /// Who decided.
    pub made_by: String,
    /// Whether it holds from now on; else it is proposed.
    pub accept: bool,
    /// Record it although one very like it is there.
    pub force: bool,
}

/// How recording ended.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// It was written.
    New(Box<Decision>),
    /// One that is very close is there already; nothing was written.
    Near(Box<Decision>),
}

/// What takes the place of a decision.
#[derive(Clone, Debug)]
pub enum Replacement {
    /// A decision that is there.
    Existing(String),
    /// One that is recorded now.
    New(NewDecision),
}

fn bad(text: impl Into<String>) -> DecisionError {
    DecisionError::Bad(text.into())
}

/// Checks a new decision and takes secrets out of it.
fn clean(new: &mut NewDecision) -> Result<(), DecisionError> {
    new.title = new.title.split_whitespace().collect::<Vec<_>>().join(" ");
    if new.title.is_empty() {
        return Err(bad("title is required"));
    }
    if new.title.chars().count() > MAX_TITLE {
        return Err(bad(format!("title: longer than {MAX_TITLE} characters")));
    }
    if new.rationale.trim().is_empty() {
        return Err(bad("rationale is required"));
    }
    if new.rationale.len() > MAX_RATIONALE {
        return Err(bad(format!("rationale: longer than {MAX_RATIONALE} bytes")));
    }
    if new.files.len() > MAX_LIST
        || new.alternatives.len() > MAX_LIST
        || new.supersedes.len() > MAX_LIST
    {
        return Err(bad(format!(
            "more than {MAX_LIST} files, alternatives or superseded decisions"
        )));
    }
    let mut files: Vec<String> = Vec::new();
    for f in new.files.iter().map(|f| f.trim().replace('\\', "/")) {
        let f = f.trim_start_matches("./").to_owned();
        if f.starts_with('/') || f.split('/').any(|p| p == "..") {
            return Err(bad(format!("files: {f} is not inside of the repository")));
        }
        if !f.is_empty() && !files.contains(&f) {
            files.push(f);
        }
    }
    new.files = files;
    new.alternatives.retain(|a| !a.name.is_empty());
    let safe = |t: &mut String| {
        t.retain(|c| c != '\0');
        if let Some(clean) = redact::redact_lines(t) {
            *t = clean;
        }
    };
    safe(&mut new.title);
    safe(&mut new.rationale);
    safe(&mut new.made_by);
    for a in &mut new.alternatives {
        safe(&mut a.name);
        safe(&mut a.why_not);
    }
    Ok(())
}

/// Words of a title that say something.
fn title_words(title: &str) -> Vec<String> {
    rank::query_words(title)
}

/// Whether two titles say nearly the same, by their words.
pub(super) fn near_titles(a: &[String], b: &[String]) -> bool {
    let common = a.iter().filter(|w| b.contains(w)).count();
    let all = a.len() + b.len() - common;
    common > 0 && common * 4 >= all * 3
}

/// Cosine similarity of two titles from which they say nearly the same. With the builtin model 1 of 35,386
/// pairs of titles within one real repository lies above it without sharing its words (`cargo xtask bench
/// decisions`).
const NEAR: f32 = 0.93;

impl Loaded {
    /// Whether two titles say nearly the same: by their words, by their vectors.
    pub fn near(&self, a: usize, b: usize) -> (bool, bool) {
        let title = |i: usize| title_words(&self.all[i].record.title);
        // The first piece of a record is its title.
        let vector = |i: usize| self.entries[i].vectors.get(..self.dimensions);
        let meaning = match (vector(a), vector(b)) {
            (Some(x), Some(y)) if self.dimensions > 0 => cosine(x, y) >= NEAR,
            _ => false,
        };
        (near_titles(&title(a), &title(b)), meaning)
    }
}

impl Decisions<'_> {
    /// A decision in force that is very close to a new one.
    fn near(&self, loaded: &Loaded, new: &NewDecision, except: &[usize]) -> Option<usize> {
        let words = title_words(&new.title);
        let vector = self.engine.embedder().ok().and_then(|e| {
            let deadline = std::time::Instant::now() + self.engine.config.search_deadline;
            e.embed_within(&new.title, Some(deadline)).ok().flatten()
        });
        (0..loaded.all.len()).find(|i| {
            let d = &loaded.all[*i];
            let in_force = matches!(d.status, Status::Accepted | Status::Proposed);
            in_force
                && !except.contains(i)
                && (near_titles(&words, &title_words(&d.record.title))
                    || vector.as_ref().is_some_and(|v| {
                        let first = loaded.entries[*i].vectors.get(..v.len());
                        first.is_some_and(|w| cosine(v, w) >= NEAR)
                    }))
        })
    }

    /// Holds the lock under which records are numbered and edited; it goes with the value.
    fn lock(&self) -> Result<std::fs::File, DecisionError> {
        let path = self.engine.store.dir().join("decisions.lock");
        let failed = |e: &std::io::Error| DecisionError::file(path.to_string_lossy(), e);
        let file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| failed(&e))?;
        file.lock().map_err(|e| failed(&e))?;
        Ok(file)
    }

    /// Records a decision: as a MADR file where the repository has a folder of decisions, else in the store.
    /// One that is very close to another is not recorded unless `force` says so.
    ///
    /// # Errors
    /// Where something required is missing, or it cannot be written.
    pub fn record(&self, mut new: NewDecision) -> Result<Recorded, DecisionError> {
        clean(&mut new)?;
        let _alone = self.lock()?;
        let (loaded, _) = self.current()?;
        let mut olds = Vec::new();
        for name in &new.supersedes {
            let i = loaded.find(name)?;
            if !olds.contains(&i) {
                olds.push(i);
            }
        }
        if !new.force
            && let Some(i) = self.near(&loaded, &new, &olds)
        {
            return Ok(Recorded::Near(Box::new(self.with_text(&loaded, i)?)));
        }
        let old_ids: Vec<String> = olds.iter().map(|i| loaded.all[*i].id.clone()).collect();
        let path = self.write_new(&loaded, &new, &olds, now())?;
        let (mut loaded, _) = self.current()?;
        if new.accept {
            for old in old_ids {
                self.retire(
                    &loaded,
                    loaded.find(&old)?,
                    loaded.find(&path)?,
                    &new.made_by,
                )?;
                loaded = self.current()?.0;
            }
        }
        let i = loaded.find(&path)?;
        Ok(Recorded::New(Box::new(self.with_text(&loaded, i)?)))
    }

    /// Writes a new record and its row in the truth; the path that it has now.
    fn write_new(
        &self,
        loaded: &Loaded,
        new: &NewDecision,
        olds: &[usize],
        at: Micros,
    ) -> Result<String, DecisionError> {
        let date = format_micros(at).chars().take(10).collect::<String>();
        let mut draft = Draft {
            title: new.title.clone(),
            rationale: new.rationale.clone(),
            kind: new.kind,
            status: if new.accept {
                Status::Accepted
            } else {
                Status::Proposed
            },
            made_by: new.made_by.clone(),
            date: date.clone(),
            files: new.files.clone(),
            alternatives: new.alternatives.clone(),
            supersedes: Vec::new(),
        };
        let id = decision_id(at, uuid::Uuid::new_v4().as_bytes());
        let event = DecisionEvent {
            id: id.clone(),
            kind: "recorded".into(),
            made_by: new.made_by.clone(),
            note: String::new(),
            at,
        };
        let mut truth = DecisionTruth {
            id,
            created_at: at,
            baseline: self.baseline_now(&new.files, &format!("{}\n{}", new.title, new.rationale)),
            ..DecisionTruth::default()
        };
        let root = self.repo.as_ref().and_then(|r| r.root.as_deref());
        let in_folder = self.folders.first().and_then(|f| Some((root?, f)));
        for n in 0..1_000 {
            let stem = self.stem(
                loaded,
                in_folder.map(|x| x.1.as_str()),
                &new.title,
                &date,
                n,
            );
            let path = match in_folder {
                Some((_, f)) => format!("{f}/{stem}.md"),
                None => format!("{stem}.md"),
            };
            draft.supersedes = olds
                .iter()
                .map(|i| relative(&path, &loaded.all[*i].path))
                .collect();
            let text = edit::madr(&draft);
            truth.path = path.clone();
            let written = match in_folder {
                Some((root, _)) => match folder::write(&root.join(&path), text.as_bytes(), true) {
                    Ok(()) => {
                        self.engine
                            .store
                            .create_decision(&self.workspace.slug, &truth, &event)?;
                        true
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => false,
                    Err(e) => return Err(DecisionError::file(&path, &e)),
                },
                None => {
                    truth.body_hash = Some(digest(&[text.as_bytes()]));
                    truth.body = Some(text.into_bytes());
                    self.engine
                        .store
                        .create_decision(&self.workspace.slug, &truth, &event)?
                }
            };
            if written {
                return Ok(path);
            }
        }
        Err(bad("no file name is left for this title"))
    }

    /// The file name of a new record without its ending; `n` names are taken already.
    fn stem(
        &self,
        loaded: &Loaded,
        folder: Option<&str>,
        title: &str,
        date: &str,
        n: u32,
    ) -> String {
        let here = |d: &&Decision| folder.is_none_or(|f| d.path.starts_with(&format!("{f}/")));
        let all: Vec<&Decision> = loaded.all.iter().filter(here).collect();
        let by_date = all
            .iter()
            .filter(|d| d.record.format == Format::Log4brains)
            .count()
            * 2
            > all.len().max(1);
        let slug = slug(title);
        if by_date {
            let tail = if n == 0 {
                String::new()
            } else {
                format!("-{}", n + 1)
            };
            return format!("{}-{slug}{tail}", date.replace('-', ""));
        }
        let highest = all
            .iter()
            .filter_map(|d| d.record.number)
            .max()
            .unwrap_or(0);
        format!("{:04}-{slug}", highest + 1 + n)
    }

    /// Changes the text of a record where it is kept.
    fn change(
        &self,
        d: &Decision,
        event: DecisionEvent,
        baseline: String,
        make: &dyn Fn(&str, &Record) -> Option<String>,
    ) -> Result<(), DecisionError> {
        let bytes = self.text_of(d)?;
        let record = read::read(&d.path, &bytes)
            .map_err(|e| DecisionError::Conflict(format!("{}: {e}", d.path)))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut truth = DecisionTruth {
            path: d.path.clone(),
            id: d.id.clone(),
            created_at: d.created_at,
            baseline,
            ..DecisionTruth::default()
        };
        let new = make(&text, &record).filter(|n| *n != text);
        let kept = self
            .engine
            .store
            .decision_body(&self.workspace.slug, &d.path)?
            .is_some();
        match (new, self.repo.as_ref().and_then(|r| r.root.as_deref())) {
            (Some(new), _) if kept => {
                truth.body_hash = Some(digest(&[new.as_bytes()]));
                truth.body = Some(new.into_bytes());
            }
            (Some(new), Some(root)) => {
                folder::write(&root.join(&d.path), new.as_bytes(), false)
                    .map_err(|e| DecisionError::file(&d.path, &e))?;
            }
            _ => {}
        }
        Ok(self
            .engine
            .store
            .put_decisions(&self.workspace.slug, vec![truth], vec![event])?)
    }

    fn event(&self, d: &Decision, kind: &str, by: &str, note: &str) -> DecisionEvent {
        DecisionEvent {
            id: d.id.clone(),
            kind: kind.into(),
            made_by: by.into(),
            note: note.into(),
            at: now(),
        }
    }

    /// Writes on both ends that `new` took the place of `old`.
    fn retire(
        &self,
        loaded: &Loaded,
        old: usize,
        new: usize,
        by: &str,
    ) -> Result<(), DecisionError> {
        let (o, n) = (&loaded.all[old], &loaded.all[new]);
        if old == new {
            return Err(DecisionError::Conflict(
                "a decision cannot supersede itself".into(),
            ));
        }
        // Whatever replaced `new` stands above it: closing that circle would leave nothing in force.
        let mut above = vec![new];
        let mut at = 0;
        while let Some(&i) = above.get(at) {
            at += 1;
            for id in &loaded.all[i].superseded_by {
                if let Some(j) = loaded.all.iter().position(|d| d.id == *id)
                    && !above.contains(&j)
                {
                    above.push(j);
                }
            }
        }
        if above.contains(&old) {
            return Err(DecisionError::Conflict(format!(
                "{} was superseded by {}: it cannot supersede it",
                n.path, o.path
            )));
        }
        let forward = relative(&o.path, &n.path);
        let backward = relative(&n.path, &o.path);
        let told = o.superseded_by.contains(&n.id) && o.record.status == Some(Status::Superseded);
        if !told {
            let title = label(n);
            self.change(
                o,
                self.event(o, "superseded", by, &n.id),
                String::new(),
                &|text, r| {
                    Some(edit::set_status(
                        text,
                        r,
                        Status::Superseded,
                        Some((&forward, &title)),
                    ))
                },
            )?;
        }
        if !n.supersedes.contains(&o.id) {
            let title = label(o);
            self.change(
                n,
                self.event(n, "supersedes", by, &o.id),
                String::new(),
                &|text, r| Some(edit::add_supersedes(text, r, &backward, &title)),
            )?;
        }
        Ok(())
    }

    /// Puts a decision in the place of another one, on both ends. The new one has to be accepted.
    ///
    /// # Errors
    /// Where one is unknown or only proposed, or a circle would come of it.
    pub fn supersede(
        &self,
        old: &str,
        with: Replacement,
        by: &str,
    ) -> Result<Recorded, DecisionError> {
        match with {
            Replacement::New(mut new) => {
                let (loaded, _) = self.current()?;
                let id = loaded.all[loaded.find(old)?].id.clone();
                if !new.supersedes.contains(&id) {
                    new.supersedes.push(id);
                }
                self.record(new)
            }
            Replacement::Existing(name) => {
                let _alone = self.lock()?;
                let (loaded, _) = self.current()?;
                let (old, new) = (loaded.find(old)?, loaded.find(&name)?);
                if loaded.all[new].status == Status::Proposed {
                    return Err(DecisionError::Conflict(format!(
                        "{} is only proposed: it supersedes nothing until it is accepted",
                        loaded.all[new].path
                    )));
                }
                self.retire(&loaded, old, new, by)?;
                let (id, loaded) = (loaded.all[new].id.clone(), self.current()?.0);
                Ok(Recorded::New(Box::new(
                    self.with_text(&loaded, loaded.find(&id)?)?,
                )))
            }
        }
    }

    /// Gives a decision another status. What an accepted one says that it replaces is retired.
    ///
    /// # Errors
    /// Where it is unknown, or the status cannot follow on the one that it has.
    pub fn set_status(
        &self,
        name: &str,
        status: Status,
        by: &str,
        note: &str,
    ) -> Result<Decision, DecisionError> {
        let _alone = self.lock()?;
        let (loaded, _) = self.current()?;
        let at = loaded.find(name)?;
        let d = &loaded.all[at];
        if d.status == Status::Superseded {
            return Err(DecisionError::Conflict(format!(
                "{} was superseded; record a new decision instead",
                d.path
            )));
        }
        self.change(
            d,
            self.event(d, status.name(), by, note),
            String::new(),
            &|text, r| Some(edit::set_status(text, r, status, None)),
        )?;
        let (id, olds) = (d.id.clone(), d.supersedes.clone());
        let (loaded, _) = self.current()?;
        let at = loaded.find(&id)?;
        if status == Status::Accepted {
            for old in olds {
                self.retire(&loaded, loaded.find(&old)?, at, by)?;
            }
        }
        let (loaded, _) = self.current()?;
        self.with_text(&loaded, loaded.find(&id)?)
    }

    /// Says that a decision still holds although its files changed.
    ///
    /// # Errors
    /// Where it is unknown or holds no more.
    pub fn reaffirm(&self, name: &str, by: &str, note: &str) -> Result<Decision, DecisionError> {
        let _alone = self.lock()?;
        let (loaded, _) = self.current()?;
        let at = loaded.find(name)?;
        let d = self.with_text(&loaded, at)?;
        if matches!(
            d.status,
            Status::Superseded | Status::Deprecated | Status::Rejected
        ) {
            return Err(DecisionError::Conflict(format!(
                "{} is {}: there is nothing to reaffirm",
                d.path,
                d.status.name()
            )));
        }
        let text = format!("{}\n{}", d.record.title, d.record.rationale);
        let baseline = self.baseline_now(&d.record.files, &text);
        let date: String = format_micros(now()).chars().take(10).collect();
        let when = match self.head() {
            Some(c) => format!("{date} at {}", &c[..c.len().min(12)]),
            None => date,
        };
        self.change(
            &d,
            self.event(&d, "reaffirmed", by, note),
            baseline,
            &|text, r| edit::reaffirm(text, r, &when),
        )?;
        let (loaded, _) = self.current()?;
        self.with_text(&loaded, loaded.find(&d.id)?)
    }

    /// Removes a record that the store keeps, for good: there is a secret in it.
    ///
    /// # Errors
    /// Where it is unknown, or a file of the repository.
    pub fn purge(&self, name: &str, by: &str, note: &str) -> Result<Decision, DecisionError> {
        let _alone = self.lock()?;
        let (loaded, _) = self.current()?;
        let d = loaded.all[loaded.find(name)?].clone();
        if self
            .engine
            .store
            .decision_body(&self.workspace.slug, &d.path)?
            .is_none()
        {
            return Err(DecisionError::Conflict(format!(
                "{} is a file of the repository: remove it there, and from its history",
                d.path
            )));
        }
        let event = self.event(&d, "purged", by, note);
        self.engine
            .store
            .purge_decision(&self.workspace.slug, &d.path, &event)?;
        Ok(d)
    }

    /// Commit that is checked out.
    pub(super) fn head(&self) -> Option<String> {
        self.repo.as_ref()?.git().ok()?.head().ok()?.commit
    }
}

/// `12. Title`, as adr-tools writes it.
fn label(d: &Decision) -> String {
    match d.record.number {
        Some(n) => format!("{n}. {}", d.record.title),
        None => d.record.title.clone(),
    }
}

/// The path of a record as another one refers to it.
fn relative(from: &str, to: &str) -> String {
    let folder = |p: &str| p.rsplit_once('/').map_or(String::new(), |x| x.0.to_owned());
    let (a, b) = (folder(from), folder(to));
    let name = Path::new(to)
        .file_name()
        .map_or(to.to_owned(), |n| n.to_string_lossy().into_owned());
    if a == b {
        return name;
    }
    let (x, y): (Vec<&str>, Vec<&str>) = (parts(&a), parts(&b));
    let common = x.iter().zip(&y).take_while(|(p, q)| p == q).count();
    let mut out = "../".repeat(x.len() - common);
    for p in &y[common..] {
        out.push_str(p);
        out.push('/');
    }
    out + &name
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|p| !p.is_empty()).collect()
}

/// Cosine similarity; 0 where one is empty.
pub(super) fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
    let length = (dot(a, a) * dot(b, b)).sqrt();
    if length > 0.0 {
        dot(a, b) / length
    } else {
        0.0
    }
}
