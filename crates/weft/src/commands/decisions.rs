//! `weft decisions`: finding and keeping.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use weft_engine::decisions::decision::{Status, Type};
use weft_engine::decisions::{DecisionQuery, ImportRecords, Loaded, Replacement};
use weft_engine::{Decisions, Engine};
use weft_server::decision_text::{self as text, symbols_of};

use super::decide::{Fields, new_decision, recorded, who};
use super::open;
use crate::out::{self, Out};
use crate::report::{hinted, usage};
use crate::settings::Settings;

/// Which decisions are meant.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Workspace [default: that of the repository where you are]
    #[arg(long, value_name = "SLUG")]
    workspace: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn kind(name: &str) -> Result<Type, String> {
    Type::parse(name).ok_or_else(|| text::unknown_type(name))
}

fn status(name: &str) -> Result<Status, String> {
    Status::parse(name).ok_or_else(|| text::unknown_status(name))
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  weft decisions search \"why not kafka\"
  weft decisions list --stale
  weft decisions for-file src/auth/login.ts
  weft decisions import ../old-adrs")]
pub(crate) enum DecisionsCommand {
    /// Find decisions by meaning and words, with a verdict first
    Search(Search),
    /// List decisions, the newest first
    List(List),
    /// Show one decision in full
    Show {
        /// Id (or the beginning of one), path, slug or number
        id: String,
        #[command(flatten)]
        place: Place,
    },
    /// Put a decision in the place of another one, on both ends
    Supersede(Supersede),
    /// Accept a proposed decision; what it supersedes is retired
    Accept(Change),
    /// Turn a proposed decision down
    Reject(Change),
    /// Say that a decision holds no more, with nothing in its place
    Deprecate(Change),
    /// Say that a decision still holds although its files changed
    Reaffirm(Change),
    /// List decisions whose files or symbols changed since
    Stale {
        #[command(flatten)]
        place: Place,
    },
    /// Which decisions govern these files
    ForFile {
        /// Files
        #[arg(required = true)]
        paths: Vec<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Which decisions govern what changed: on disk, and since a revision
    ForDiff {
        /// Revision to compare with [default: only what is not committed]
        revision: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Check what does not fit together; exit code 1 where something does not
    Check {
        #[command(flatten)]
        place: Place,
    },
    /// Take over records: adr-tools, MADR, log4brains, AsciiDoc, RFC folders
    Import(Import),
    /// Write every record into a folder, byte for byte
    Export {
        /// Folder
        dir: PathBuf,
        /// Replace files that are there with another text
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Remove a record that the store keeps, for good: there is a secret in it
    Purge {
        #[command(flatten)]
        change: Change,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// List the workspaces that are known here
    Workspaces {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Search {
    /// What to look for, in words or as a question
    #[arg(required = true, num_args = 1..)]
    query: Vec<String>,
    /// Number of hits
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=200))]
    limit: u8,
    #[command(flatten)]
    narrow: Narrow,
    /// Only decisions made at or after this
    #[arg(long, value_parser = super::instant)]
    since: Option<i64>,
    #[command(flatten)]
    place: Place,
}

/// What a list is narrowed to.
#[derive(Debug, Args)]
struct Narrow {
    /// Only this type
    #[arg(long = "type", value_name = "T", value_parser = kind)]
    kind: Option<Type>,
    /// Only this status: proposed, accepted, rejected, deprecated or superseded
    #[arg(long, value_name = "S", value_parser = status)]
    status: Option<Status>,
    /// Only what governs this file
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Number of decisions
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10000))]
    limit: u16,
    #[command(flatten)]
    narrow: Narrow,
    /// Only stale ones
    #[arg(long)]
    stale: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft decisions supersede 3 12
  weft decisions supersede 3 --title \"Use sessions\" --rationale \"Tokens cannot be revoked\" --accept")]
pub(crate) struct Supersede {
    /// What is replaced
    old: String,
    /// What replaces it: a decision that is there
    #[arg(conflicts_with = "title", required_unless_present = "title")]
    new: Option<String>,
    /// What replaces it: a new decision with this title
    #[arg(long)]
    title: Option<String>,
    #[command(flatten)]
    fields: Fields,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct Change {
    /// Id (or the beginning of one), path, slug or number
    id: String,
    /// Who says so [default: $WEFT_AGENT, else the user's name]
    #[arg(long, value_name = "NAME", env = "WEFT_AGENT")]
    by: Option<String>,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft decisions import                   # the folders of this repository
  weft decisions import docs/design/adr   # a folder of it that weft does not know
  weft decisions import ../old-adrs --workspace archive")]
pub(crate) struct Import {
    /// Folder or file [default: the folders of decisions of this repository]
    path: Option<PathBuf>,
    /// Say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Replace what looks like a secret in the records that the store keeps
    #[arg(long)]
    redact: bool,
    #[command(flatten)]
    place: Place,
}

fn decisions<'a>(engine: &'a Engine, place: &Place) -> Result<Decisions<'a>> {
    Ok(match &place.workspace {
        Some(w) => engine.decisions_of(w)?,
        None => engine.decisions_here(&std::env::current_dir()?)?,
    })
}

/// As [`decisions`], for commands that write: a workspace that is named is made where there is none.
pub(super) fn decisions_for_writing<'a>(
    engine: &'a Engine,
    place: &Place,
) -> Result<Decisions<'a>> {
    Ok(match &place.workspace {
        Some(w) => engine.decisions_named(w)?,
        None => engine.decisions_here(&std::env::current_dir()?)?,
    })
}

/// A path as it is typed here, from the top of the repository; what is not there stays as it is.
pub(super) fn from_top(d: &Decisions<'_>, given: &str) -> String {
    let root = d.repo.as_ref().and_then(|r| r.root.as_deref());
    let (path, rest) = match given.split_once("::") {
        Some((p, s)) => (p, format!("::{s}")),
        None => (given, String::new()),
    };
    let full = std::env::current_dir()
        .ok()
        .map(|h| h.join(path))
        .filter(|p| p.exists());
    let inside = full
        .and_then(|f| f.canonicalize().ok())
        .and_then(|f| f.strip_prefix(root?).map(Path::to_owned).ok());
    match inside.filter(|p| !p.as_os_str().is_empty()) {
        Some(p) => p.to_string_lossy().replace('\\', "/") + &rest,
        None => given.to_owned(),
    }
}

pub(crate) fn run(c: DecisionsCommand, settings: &Settings, out: Out) -> Result<u8> {
    let engine = open(settings)?;
    match c {
        DecisionsCommand::Search(s) => search(&engine, &s, out),
        DecisionsCommand::List(l) => list(&engine, &l, out),
        DecisionsCommand::Show { id, place } => {
            let d = decisions(&engine, &place)?;
            let (loaded, _) = d.current()?;
            let i = loaded.find(&id)?;
            print(&d, &loaded, &[i], Form::Full, place.json, out)
        }
        DecisionsCommand::Supersede(s) => {
            let d = decisions(&engine, &s.place)?;
            let by = who(s.fields.by.as_ref());
            let with = match (&s.new, &s.title) {
                (Some(new), _) => Replacement::Existing(new.clone()),
                (None, title) => Replacement::New(new_decision(
                    &d,
                    title.as_deref().unwrap_or_default(),
                    &s.fields,
                    true,
                )?),
            };
            let r = d.supersede(&s.old, with, &by)?;
            recorded(&d, &r, out, s.place.json)
        }
        DecisionsCommand::Accept(c) => set_status(&engine, &c, Status::Accepted, out),
        DecisionsCommand::Reject(c) => set_status(&engine, &c, Status::Rejected, out),
        DecisionsCommand::Deprecate(c) => set_status(&engine, &c, Status::Deprecated, out),
        DecisionsCommand::Reaffirm(c) => {
            let d = decisions(&engine, &c.place)?;
            let done = d.reaffirm(&c.id, &who(c.by.as_ref()), &c.note)?;
            changed(&d, &done.id, c.place.json, out)
        }
        DecisionsCommand::Stale { place } => {
            let d = decisions(&engine, &place)?;
            let (loaded, sync) = d.current()?;
            let all: Vec<usize> = (0..loaded.all.len()).collect();
            let stale = d.stale(&loaded, &all)?;
            let places: Vec<usize> = all
                .into_iter()
                .filter(|i| stale.contains_key(&loaded.all[*i].id))
                .collect();
            if places.is_empty() && !place.json {
                out.line(&format!(
                    "no decision is stale ({} looked at)",
                    loaded.all.len()
                ))?;
            }
            warn(&sync.problems, place.json);
            print(&d, &loaded, &places, Form::Line, place.json, out)
        }
        DecisionsCommand::ForFile { paths, place } => {
            let d = decisions(&engine, &place)?;
            let paths: Vec<String> = paths.iter().map(|p| from_top(&d, p)).collect();
            govern(&d, &paths, place.json, out)
        }
        DecisionsCommand::ForDiff { revision, place } => {
            let d = decisions(&engine, &place)?;
            let paths = d.changed_files(revision.as_deref())?;
            if paths.is_empty() && !place.json {
                out.line("nothing changed")?;
                return Ok(0);
            }
            govern(&d, &paths, place.json, out)
        }
        DecisionsCommand::Check { place } => check(&engine, &place, out),
        DecisionsCommand::Import(i) => import(&engine, &i, out),
        DecisionsCommand::Export { dir, force, place } => {
            let d = decisions(&engine, &place)?;
            let done = d.export(&dir, force)?;
            if place.json {
                out.json(&json!({"written": done.written, "unchanged": done.unchanged}))?;
            } else {
                out.line(&format!(
                    "{} record(s) written to {}, {} the same already",
                    done.written,
                    dir.display(),
                    done.unchanged
                ))?;
            }
            Ok(0)
        }
        DecisionsCommand::Purge { change, yes } => purge(&engine, &change, yes, out),
        DecisionsCommand::Workspaces { json } => workspaces(&engine, json, out),
    }
}

fn workspaces(engine: &Engine, as_json: bool, out: Out) -> Result<u8> {
    let all = engine.store().workspaces()?;
    if as_json {
        out.json(&json!(
            all.iter()
                .map(|w| json!({"slug": w.slug, "repo_id": w.repo_id}))
                .collect::<Vec<_>>()
        ))?;
        return Ok(0);
    }
    for w in all {
        out.line(&format!(
            "{}  {}",
            w.slug,
            if w.repo_id.is_empty() {
                "-"
            } else {
                &w.repo_id
            }
        ))?;
    }
    Ok(0)
}

fn warn(problems: &[(String, String)], quiet: bool) {
    if quiet {
        return;
    }
    for (p, r) in problems.iter().take(5) {
        out::note(&format!("warning: {p}: {r}"));
    }
    if problems.len() > 5 {
        out::note(&format!(
            "warning: and {} more; `weft decisions check` lists them",
            problems.len() - 5
        ));
    }
}

fn search(engine: &Engine, s: &Search, out: Out) -> Result<u8> {
    let query = s.query.join(" ");
    if query.trim().is_empty() {
        return Err(usage("the query is empty", "give a question or some words"));
    }
    let d = decisions(engine, &s.place)?;
    let a = d.search(&DecisionQuery {
        query,
        limit: s.limit.into(),
        kind: s.narrow.kind,
        status: s.narrow.status,
        file: s.narrow.file.as_deref().map(|f| from_top(&d, f)),
        since: s.since,
        ..DecisionQuery::default()
    })?;
    if s.place.json {
        out.json(&text::search_json(&a))?;
    } else {
        out.line(&text::search_text(&a))?;
    }
    Ok(0)
}

/// How decisions are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Line,
    Full,
}

fn print(
    d: &Decisions<'_>,
    loaded: &Loaded,
    places: &[usize],
    form: Form,
    as_json: bool,
    out: Out,
) -> Result<u8> {
    let stale = d.stale(loaded, places)?;
    let symbols = d.symbols()?;
    let mut all: Vec<Value> = Vec::new();
    for i in places {
        let id = &loaded.all[*i].id;
        if as_json || form == Form::Full {
            let full = d.with_text(loaded, *i)?;
            if as_json {
                all.push(Value::Object(text::object(
                    &full,
                    None,
                    symbols_of(&symbols, id),
                    stale.get(id),
                )));
            } else {
                out.line(&text::full(
                    &full,
                    symbols_of(&symbols, id),
                    stale.get(id),
                    loaded,
                ))?;
            }
        } else {
            out.line(&text::line(&loaded.all[*i], stale.get(id), loaded))?;
        }
    }
    if as_json {
        match (form, all.pop()) {
            (Form::Full, Some(one)) => out.json(&one)?,
            (_, last) => {
                all.extend(last);
                out.json(&json!({"items": all}))?;
            }
        }
    }
    Ok(0)
}

fn list(engine: &Engine, l: &List, out: Out) -> Result<u8> {
    let d = decisions(engine, &l.place)?;
    let (loaded, sync) = d.current()?;
    let file = l
        .narrow
        .file
        .as_deref()
        .map(|f| d.for_file(&loaded, &from_top(&d, f)));
    let mut places: Vec<usize> = (0..loaded.all.len())
        .filter(|i| l.narrow.kind.is_none_or(|k| loaded.all[*i].kind() == k))
        .filter(|i| l.narrow.status.is_none_or(|s| loaded.all[*i].status == s))
        .filter(|i| file.as_ref().is_none_or(|f| f.contains(i)))
        .collect();
    places.sort_by(|a, b| {
        let (a, b) = (&loaded.all[*a], &loaded.all[*b]);
        (b.created_at, &b.path).cmp(&(a.created_at, &a.path))
    });
    if l.stale {
        let stale = d.stale(&loaded, &places)?;
        places.retain(|i| stale.contains_key(&loaded.all[*i].id));
    }
    let total = places.len();
    places.truncate(l.limit.into());
    warn(&sync.problems, l.place.json);
    if total == 0 && !l.place.json {
        out.line("no decisions")?;
        if loaded.all.is_empty() {
            out::note(
                "hint: `weft decide` records one, `weft decisions import` takes over a folder of records",
            );
        }
    }
    print(&d, &loaded, &places, Form::Line, l.place.json, out)?;
    if total > places.len() && !l.place.json {
        out::note(&format!(
            "note: {} more; --limit {total} lists them",
            total - places.len()
        ));
    }
    Ok(0)
}

fn changed(d: &Decisions<'_>, id: &str, as_json: bool, out: Out) -> Result<u8> {
    let (loaded, _) = d.current()?;
    let i = loaded.find(id)?;
    print(
        d,
        &loaded,
        &[i],
        if as_json { Form::Full } else { Form::Line },
        as_json,
        out,
    )
}

fn set_status(engine: &Engine, c: &Change, status: Status, out: Out) -> Result<u8> {
    let d = decisions(engine, &c.place)?;
    let done = d.set_status(&c.id, status, &who(c.by.as_ref()), &c.note)?;
    changed(&d, &done.id, c.place.json, out)
}

fn govern(d: &Decisions<'_>, paths: &[String], as_json: bool, out: Out) -> Result<u8> {
    let (loaded, sync) = d.current()?;
    let mut all: Vec<Value> = Vec::new();
    let governing = d.for_files(&loaded, paths);
    let mut every = governing.concat();
    every.sort_unstable();
    every.dedup();
    let stale = d.stale(&loaded, &every)?;
    for (p, places) in paths.iter().zip(&governing) {
        if as_json {
            let found: Vec<Value> = places
                .iter()
                .map(|i| {
                    let x = &loaded.all[*i];
                    let mut o = text::object(x, None, &[], stale.get(&x.id));
                    o.remove("rationale");
                    o.insert("mentioned".into(), json!(d.only_mentions(x, p)));
                    Value::Object(o)
                })
                .collect();
            all.push(json!({"path": p, "decisions": found}));
            continue;
        }
        if places.is_empty() && paths.len() > 1 {
            continue;
        }
        out.line(&out.bold(p))?;
        for i in places {
            let x = &loaded.all[*i];
            let how = if d.only_mentions(x, p) {
                "  [names it]"
            } else {
                ""
            };
            out.line(&format!(
                "  {}{how}",
                text::line(x, stale.get(&x.id), &loaded)
            ))?;
        }
        if places.is_empty() {
            out.line(&format!(
                "  no decision governs it ({} looked at)",
                loaded.all.len()
            ))?;
        }
    }
    if every.is_empty() && paths.len() > 1 && !as_json {
        out.line(&format!(
            "no decision governs any of these {} files ({} looked at)",
            paths.len(),
            loaded.all.len()
        ))?;
    }
    warn(&sync.problems, as_json);
    if as_json {
        out.json(&json!({"files": all}))?;
    }
    Ok(0)
}

fn check(engine: &Engine, place: &Place, out: Out) -> Result<u8> {
    let d = decisions(engine, place)?;
    let (loaded, sync) = d.current()?;
    let found = d.check(&loaded);
    if place.json {
        let all: Vec<Value> = found
            .iter()
            .map(|f| json!({"rule": f.rule.name(), "ids": f.ids, "text": f.text}))
            .collect();
        out.json(&json!({"findings": all, "unreadable": text::problems(&sync.problems), "checked": loaded.all.len()}))?;
    } else {
        for f in &found {
            out.line(&format!("{}: {}", f.rule.name(), f.text))?;
        }
        for (p, r) in &sync.problems {
            out.line(&format!("unreadable: {p}: {r}"))?;
        }
        if found.is_empty() && sync.problems.is_empty() {
            out.line(&format!("{} decisions, nothing wrong", loaded.all.len()))?;
        }
    }
    Ok(u8::from(!found.is_empty() || !sync.problems.is_empty()))
}

fn import(engine: &Engine, i: &Import, out: Out) -> Result<u8> {
    let d = decisions_for_writing(engine, &i.place)?;
    let places: Vec<PathBuf> = match (&i.path, d.repo.as_ref().and_then(|r| r.root.clone())) {
        (Some(p), _) => vec![p.clone()],
        (None, Some(root)) if !d.folders.is_empty() => {
            d.folders.iter().map(|f| root.join(f)).collect()
        }
        _ => {
            return Err(usage(
                "this repository has no folder of decisions that weft knows",
                "name the folder: `weft decisions import docs/design/adr`",
            ));
        }
    };
    let how = ImportRecords {
        dry_run: i.dry_run,
        redact: i.redact,
    };
    let mut all = Vec::new();
    for p in &places {
        let r = d.import(p, how)?;
        if i.place.json {
            all.push(json!({
                "path": p.display().to_string(), "new": r.new, "changed": r.changed, "unchanged": r.unchanged,
                "renamed": r.renamed, "formats": r.formats, "statuses": r.statuses, "with_secrets": r.with_secrets,
                "skipped": text::problems(&r.skipped), "followed": r.folder,
            }));
            continue;
        }
        let count = |m: &std::collections::BTreeMap<&str, usize>| {
            m.iter()
                .map(|(k, n)| format!("{k} {n}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let total = r.new + r.changed + r.unchanged + r.renamed;
        out.line(&format!(
            "{}: {total} record(s): {} new, {} changed, {} unchanged, {} renamed, {} skipped",
            p.display(),
            r.new,
            r.changed,
            r.unchanged,
            r.renamed,
            r.skipped.len()
        ))?;
        if total > 0 {
            out.line(&format!("  formats: {}", count(&r.formats)))?;
            out.line(&format!("  statuses: {}", count(&r.statuses)))?;
        }
        if r.with_secrets > 0 {
            out.line(&format!(
                "  {} record(s) hold what looks like a secret: search and show never print it{}",
                r.with_secrets,
                if i.redact {
                    ", and it was taken out"
                } else {
                    "; --redact takes it out of the store"
                }
            ))?;
        }
        if let Some(f) = r.folder.filter(|_| !i.dry_run) {
            out.line(&format!(
                "  the files in {f} stay the truth and are followed from now on"
            ))?;
        }
        warn(&r.skipped, false);
    }
    if i.place.json {
        out.json(&json!(all))?;
    }
    Ok(0)
}

fn purge(engine: &Engine, c: &Change, yes: bool, out: Out) -> Result<u8> {
    let d = decisions(engine, &c.place)?;
    if !yes {
        if !out::interactive() {
            return Err(hinted(
                "purging cannot be undone and nobody can be asked here",
                "give --yes to purge without being asked",
            ));
        }
        out::note(&format!("Remove {} for good? [y/N]", c.id));
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        if !line.trim().to_lowercase().starts_with('y') {
            return Ok(1);
        }
    }
    let gone = d.purge(&c.id, &who(c.by.as_ref()), &c.note)?;
    out.line(&format!("purged {}  {}", gone.id, gone.path))?;
    Ok(0)
}
