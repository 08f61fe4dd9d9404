//! `weft code`: search, find, index, status, repos.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;
use weft_engine::code::{CodeQuery, CodeSync, Kind, SyncOptions, paths};
use weft_engine::{CodeRepo, Engine};
use weft_server::code_text::{self, Shape};

use super::open;
use crate::out::{self, Out};
use crate::progress::Bar;
use crate::report::usage;
use crate::settings::Settings;

#[derive(Debug, Subcommand)]
pub(crate) enum Code {
    /// Find code by what it does, within a token budget, drafts included
    Search(Search),
    /// Find symbols by name, signature and first doc line; no index of vectors, no server
    Find(Find),
    /// Bring the index of a repository up to date
    Index(Index),
    /// Show how much of a repository is indexed, and what was left out
    Status(RepoArg),
    /// List the repositories that were seen here, with their ids
    Repos {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// What a search is narrowed to.
#[derive(Debug, Args)]
pub(crate) struct Narrow {
    /// Only under these path prefixes; repeat or separate with commas
    #[arg(long, value_name = "P[,P...]")]
    paths: Vec<String>,
    /// Only these kinds: function, method, class, struct, enum, trait, interface, type, constant,
    /// property, constructor, module, macro, test, section, file
    #[arg(long, value_name = "K[,K...]", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Folder of the repository [default: where you are]
    #[arg(short = 'C', long, value_name = "DIR")]
    repo: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft code search \"where do we handle refunds?\"
  weft code search \"the function that formats prices for the cart\" --limit 5 --budget 600
  weft code search \"rate limiting\" --paths src/api/,lib/http
  weft code search \"retry with backoff\" --kinds function,method --json")]
pub(crate) struct Search {
    /// What to look for, in words or as a question
    #[arg(required = true, num_args = 1..)]
    pub(crate) query: Vec<String>,
    /// Number of hits
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=50))]
    limit: u8,
    /// Tokens that the answer may cost: snippets go first, then the last hits
    #[arg(long, default_value_t = 800, value_name = "TOKENS")]
    budget: usize,
    /// Branch, tag or commit [default: what is checked out]
    #[arg(long, value_name = "W")]
    workstream: Option<String>,
    /// Wait this long for an index that is behind [default: 1.5, and until it is there for a first one]
    #[arg(long, value_name = "SECONDS")]
    wait: Option<f64>,
    /// Print the best line of each hit under it
    #[arg(short, long)]
    snippets: bool,
    #[command(flatten)]
    pub(crate) narrow: Narrow,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft code find add to cart          # finds addToCart, add_to_cart and AddToCart
  weft code find refund --limit 50
  weft code find parse --kinds function --paths src/")]
pub(crate) struct Find {
    /// Words of the name, the signature or the first doc line
    #[arg(required = true, num_args = 1..)]
    pub(crate) words: Vec<String>,
    /// Number of hits
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    #[command(flatten)]
    pub(crate) narrow: Narrow,
}

#[derive(Debug, Args)]
pub(crate) struct RepoArg {
    /// Folder of the repository [default: where you are]
    dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Index {
    #[command(flatten)]
    repo: RepoArg,
    /// Read every file again
    #[arg(long)]
    full: bool,
    /// Branch, tag or commit [default: what is checked out]
    #[arg(long, value_name = "W")]
    workstream: Option<String>,
}

impl Narrow {
    /// What the global `--json` of `weave` sets.
    pub(crate) fn force_json(&mut self, json: bool) {
        self.json |= json;
    }

    fn apply(&self, q: &mut CodeQuery) -> Result<()> {
        q.paths = paths::prefixes(&self.paths).map_err(|e| {
            usage(
                e,
                "path prefixes are relative to the top of the repository, such as src/api/",
            )
        })?;
        for k in &self.kinds {
            let kind = Kind::parse(k).ok_or_else(|| {
                let names: Vec<&str> = Kind::ALL.iter().map(|k| k.0).collect();
                usage(
                    format!("unknown kind {k:?}"),
                    format!("kinds are {}", names.join(", ")),
                )
            })?;
            q.kinds.push(kind);
        }
        Ok(())
    }
}

/// The repository of a folder, or of where the command runs.
pub(crate) fn repository(engine: &Engine, dir: Option<&PathBuf>) -> Result<CodeRepo> {
    let here = match dir {
        Some(d) => d.clone(),
        None => std::env::current_dir()?,
    };
    Ok(engine.code_repository(&here)?)
}

pub(crate) fn run(c: Code, settings: &Settings, out: Out) -> Result<u8> {
    match c {
        Code::Search(s) => search(&s, settings, out),
        Code::Find(f) => find(&f, settings, out),
        Code::Index(i) => index(&i, settings, out),
        Code::Status(r) => status(&r, settings, out),
        Code::Repos { json } => repos(json, settings, out),
    }
}

pub(crate) fn search(s: &Search, settings: &Settings, out: Out) -> Result<u8> {
    let query = s.query.join(" ");
    if query.trim().is_empty() {
        return Err(usage("the query is empty", "give a question or some words"));
    }
    if query.chars().count() > weft_engine::code::MAX_QUERY {
        return Err(usage(
            "the query is longer than 2,000 characters",
            "ask in fewer words",
        ));
    }
    let wait = match s.wait {
        Some(w) if (0.0..=86_400.0).contains(&w) => Some(Duration::from_secs_f64(w)),
        Some(_) => {
            return Err(usage(
                "--wait wants seconds from 0 to 86400",
                "for example --wait 0.5",
            ));
        }
        None => None,
    };
    let mut q = CodeQuery {
        query,
        limit: s.limit.into(),
        workstream: s.workstream.clone(),
        wait,
        snippets: s.snippets || s.narrow.json,
        ..CodeQuery::default()
    };
    s.narrow.apply(&mut q)?;
    let engine = open(settings)?;
    let repo = repository(&engine, s.narrow.repo.as_ref())?;
    let mut bar = Bar::new(s.narrow.json);
    let answer = engine.code_search(&repo, &q, &mut |what, done, total| {
        bar.tell(what, done as u64, total as u64);
    })?;
    bar.clear();
    let shape = Shape {
        budget: s.budget,
        snippets: s.snippets,
        json: s.narrow.json,
    };
    out.line(&code_text::search(&answer, shape))?;
    if let Some(sync) = &answer.sync {
        warn(sync, s.narrow.json);
    }
    Ok(0)
}

/// What an index run has to say, on standard error.
fn warn(sync: &CodeSync, quiet: bool) {
    if quiet {
        return;
    }
    for w in sync.warnings.iter().take(5) {
        out::note(&format!("warning: {w}"));
    }
    if sync.warnings.len() > 5 {
        out::note(&format!(
            "warning: and {} more; `weft code status` lists them",
            sync.warnings.len() - 5
        ));
    }
    if !sync.no_vectors.is_empty() {
        out::note(&format!("note: no vectors were made: {}", sync.no_vectors));
    }
}

pub(crate) fn find(f: &Find, settings: &Settings, out: Out) -> Result<u8> {
    let query = f.words.join(" ");
    if query.trim().is_empty() {
        return Err(usage(
            "there are no words to find",
            "give a name or some words of it",
        ));
    }
    let mut q = CodeQuery {
        query: query.clone(),
        limit: f.limit.into(),
        snippets: false,
        ..CodeQuery::default()
    };
    f.narrow.apply(&mut q)?;
    let engine = open(settings)?;
    let repo = repository(&engine, f.narrow.repo.as_ref())?;
    let mut bar = Bar::new(f.narrow.json);
    let answer = engine.code_find(&repo, &q, &mut |what, done, total| {
        bar.tell(what, done as u64, total as u64);
    })?;
    bar.clear();
    let shape = Shape {
        budget: usize::MAX,
        snippets: false,
        json: f.narrow.json,
    };
    out.line(&code_text::find(&query, &answer, shape))?;
    Ok(0)
}

fn index(i: &Index, settings: &Settings, out: Out) -> Result<u8> {
    let engine = open(settings)?;
    let repo = repository(&engine, i.repo.dir.as_ref())?;
    let mut bar = Bar::new(i.repo.json);
    let started = std::time::Instant::now();
    let sync = engine.code_sync(
        &repo,
        SyncOptions {
            workstream: i.workstream.clone(),
            full: i.full,
            ..SyncOptions::new(&mut |what, done, total| bar.tell(what, done as u64, total as u64))
        },
    )?;
    bar.clear();
    let seconds = started.elapsed().as_secs_f64();
    if i.repo.json {
        let skipped: Vec<_> = sync
            .skipped
            .iter()
            .map(|(p, r)| json!({"path": p, "reason": r}))
            .collect();
        out.json(&json!({
            "repo_id": repo.id, "files": sync.files, "read": sync.read, "symbols": sync.symbols,
            "embedded": sync.embedded, "skipped": skipped, "not_parsed": sync.failed,
            "warnings": sync.warnings, "complete": sync.complete, "seconds": seconds,
        }))?;
        return Ok(0);
    }
    out.line(&format!(
        "{} files in view, {} read now: {} symbols, {} embedded, in {seconds:.1} s",
        sync.files, sync.read, sync.symbols, sync.embedded
    ))?;
    if sync.files == 0 {
        out::note("warning: no source files were found: is everything ignored?");
    }
    if !sync.skipped.is_empty() {
        out.line(&format!(
            "{} files left out; `weft code status` names them with their reasons",
            sync.skipped.len()
        ))?;
    }
    if !sync.complete {
        out::note(
            "note: another process is indexing this repository, or the store cannot be written; run it again",
        );
    }
    warn(&sync, false);
    Ok(0)
}

fn status(r: &RepoArg, settings: &Settings, out: Out) -> Result<u8> {
    let engine = open(settings)?;
    let repo = repository(&engine, r.dir.as_ref())?;
    let rows = engine.code_status(&repo)?;
    let (skipped, failed) = engine.code_left_out(&repo)?;
    if r.json {
        out.json(&weft_server::wire::code_index(
            &repo.id, &rows, &skipped, failed,
        ))?;
        return Ok(0);
    }
    out.line(&format!("repository {}  {}", repo.name(), repo.id))?;
    for w in &rows {
        let short = |h: &Option<String>| {
            h.as_deref()
                .map_or("-".to_owned(), |h| h.chars().take(8).collect())
        };
        out.line(&format!(
            "{}  {}  indexed {} of {}  {} files  {} symbols  {} with vectors",
            w.workstream,
            w.state,
            short(&w.indexed_head),
            short(&w.head),
            w.files,
            w.symbols,
            w.vectors
        ))?;
        if !w.last_error.is_empty() {
            out.line(&format!("  last error: {}", w.last_error))?;
        }
    }
    if failed > 0 {
        out.line(&format!(
            "{failed} files did not parse and are indexed as text"
        ))?;
    }
    for (path, reason) in &skipped {
        out.line(&format!("left out: {path}: {reason}"))?;
    }
    Ok(0)
}

fn repos(as_json: bool, settings: &Settings, out: Out) -> Result<u8> {
    let engine = open(settings)?;
    let rows = engine.store().repositories(None)?;
    if as_json {
        let all: Vec<_> = rows
            .iter()
            .map(|r| json!({"repo_id": r.repo_id, "root": r.root, "origin": r.origin}))
            .collect();
        out.json(&json!(all))?;
        return Ok(0);
    }
    for r in rows {
        out.line(&format!("{}  {}  {}", r.repo_id, r.root, r.origin))?;
    }
    Ok(0)
}
