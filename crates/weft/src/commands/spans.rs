//! `weft spans`: search, get.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use weft_engine::{
    Answer, Engine, Filter, ImportOptions, Mode, Role, SpanQuery, Subagents, repository,
};

use super::{catch_up, import, open, session_id};
use crate::args::SubagentsArg;
use crate::out::{self, Out};
use crate::progress::Bar;
use crate::render;
use crate::report::{hinted, usage};
use crate::settings::Settings;

#[derive(Debug, Subcommand)]
pub(crate) enum Spans {
    /// Find what was said, by meaning and by words
    Search(Box<Search>),
    /// Print one span as JSON
    Get {
        /// Trace id
        trace_id: String,
        /// Span id
        span_id: String,
    },
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ModeArg {
    /// Words and vectors, fused
    #[default]
    Hybrid,
    /// Vectors only, as the HTTP API answers by default
    Vector,
    /// Words only
    Lexical,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum RoleArg {
    /// What the user said
    User,
    /// What the assistant answered
    Assistant,
    /// Tool calls and their output
    Tool,
}

impl From<RoleArg> for Role {
    fn from(r: RoleArg) -> Self {
        match r {
            RoleArg::User => Self::User,
            RoleArg::Assistant => Self::Assistant,
            RoleArg::Tool => Self::Tool,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft spans search \"how was authentication fixed?\"
  weft spans search \"retry backoff\" --repo . --since 7d --top 10
  weft spans search \"connection pool\" --role tool --json
  weft spans search \"logging\" --quiet | xargs -n1 weft sessions get")]
pub(crate) struct Search {
    /// What to look for, in words or as a question
    #[arg(required = true, num_args = 1..)]
    query: Vec<String>,
    /// Number of hits
    #[arg(short = 'k', long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    top: u16,
    /// Print session ids only, one a line, best first
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Print JSON, as the HTTP API answers
    #[arg(long)]
    json: bool,
    /// Which legs run
    #[arg(long, value_enum, default_value_t)]
    mode: ModeArg,
    /// Only this session (id, or the beginning of one); can be repeated
    #[arg(long, value_name = "ID")]
    session: Vec<String>,
    /// Only this agent program: claude, codex, …
    #[arg(long)]
    agent: Option<String>,
    /// Only answers of this model
    #[arg(long)]
    model: Option<String>,
    /// Only this side of the conversation
    #[arg(long, value_enum)]
    role: Option<RoleArg>,
    /// Only this repository: its name, or a path inside of it
    #[arg(long, value_name = "REPO")]
    repo: Option<String>,
    /// Only spans started at or after this: a date, a time, or an age such as 7d
    #[arg(long, value_parser = super::instant)]
    since: Option<i64>,
    /// Only spans started before this
    #[arg(long, value_parser = super::instant)]
    until: Option<i64>,
    /// Only turns that called this tool: Bash, Edit, …
    #[arg(long)]
    tool: Option<String>,
    /// Only turns that wrote or name this file
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
    /// Only sessions on this branch
    #[arg(long)]
    branch: Option<String>,
    /// What to do with subagents
    #[arg(long, value_enum, default_value_t)]
    subagents: SubagentsArg,
    /// Show this many spans before and after each hit
    #[arg(short = 'C', long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=50))]
    context: u8,
    /// Import this repository's transcripts first without asking; with none at all, search an
    /// invented sample
    #[arg(short, long)]
    yes: bool,
}

pub(crate) fn run(c: Spans, settings: &mut Settings, out: Out) -> Result<u8> {
    match c {
        Spans::Search(s) => search(&s, settings, out),
        Spans::Get { trace_id, span_id } => {
            let engine = open(settings)?;
            catch_up(&engine, true)?;
            let span = weft_server::wire::span(&engine, &trace_id, &span_id)
                .map_err(|r| hinted(r.text, "`weft spans search` prints trace and span ids"))?;
            out.json(&span)?;
            Ok(0)
        }
    }
}

/// A repository by name, or by a path inside of it.
pub(super) fn repository_filter(given: &str) -> String {
    let path = PathBuf::from(given);
    if (given == "." || given.contains('/'))
        && let Ok(path) = path.canonicalize()
        && let Some(r) = repository::find(&path)
    {
        return r.identity;
    }
    given.trim_end_matches('/').to_owned()
}

fn search(s: &Search, settings: &mut Settings, out: Out) -> Result<u8> {
    let query = s.query.join(" ");
    if query.trim().is_empty() {
        return Err(usage("the query is empty", "give a question or some words"));
    }
    let engine = open(settings)?;
    let engine = prepare(engine, s, settings)?;
    let sessions = s
        .session
        .iter()
        .map(|id| session_id(&engine, id))
        .collect::<Result<Vec<_>>>()?;
    let q = SpanQuery {
        query: query.clone(),
        limit: s.top.into(),
        mode: match s.mode {
            ModeArg::Hybrid => Mode::Hybrid,
            ModeArg::Vector => Mode::Vector,
            ModeArg::Lexical => Mode::Lexical,
        },
        filter: Filter {
            sessions,
            agent: s.agent.clone(),
            model: s.model.clone(),
            repository: s.repo.as_deref().map(repository_filter),
            role: s.role.map(Role::from),
            since: s.since,
            until: s.until,
            tool: s.tool.clone(),
            file: s.file.clone(),
            branch: s.branch.clone(),
            subagents: match s.subagents {
                SubagentsArg::Include => Subagents::Include,
                SubagentsArg::Exclude => Subagents::Exclude,
                SubagentsArg::Only => Subagents::Only,
            },
        },
        context: s.context.into(),
    };
    let answer = engine.search_spans(&q)?;
    print(out, s, &query, &answer)?;
    Ok(0)
}

fn print(out: Out, s: &Search, query: &str, a: &Answer) -> Result<()> {
    if s.json {
        return out.json(&weft_server::wire::answer(query, a));
    }
    if s.quiet {
        let mut seen = std::collections::HashSet::new();
        for h in &a.hits {
            if !h.session_id.is_empty() && seen.insert(&h.session_id) {
                out.line(&h.session_id)?;
            }
        }
        return Ok(());
    }
    if a.hits.is_empty() {
        out.line("No results found.")?;
    }
    for (i, h) in a.hits.iter().enumerate() {
        out.line(&render::hit(out, i + 1, h))?;
    }
    for line in render::coverage(a) {
        out::note(&format!("note: {line}"));
    }
    Ok(())
}

/// Imports what belongs to this repository where the user wants that, and brings the index up to
/// date.
pub(super) fn bring_in(
    engine: &Engine,
    quiet: bool,
    yes: bool,
    settings: &mut Settings,
) -> Result<()> {
    let options = ImportOptions {
        repository: std::env::current_dir()
            .ok()
            .and_then(|d| repository::find(&d)),
        ..import::usual_places()
    };
    let auto = settings.text("import.auto")?;
    let waiting = if auto == "never" || options.repository.is_none() {
        0
    } else {
        engine.count_new_transcripts(&options)?
    };
    if waiting > 0 && (yes || auto == "always" || ask(settings, waiting)?) {
        let mut bar = Bar::new(quiet);
        engine.import(&options, &mut |what, done, total| {
            bar.tell(what, done, total)
        })?;
    }
    catch_up(engine, quiet)?;
    Ok(())
}

/// As [`bring_in`]; falls back to the sample where there is nothing at all and `--yes` was given.
fn prepare(
    engine: std::sync::Arc<Engine>,
    s: &Search,
    settings: &mut Settings,
) -> Result<std::sync::Arc<Engine>> {
    let quiet = s.quiet || s.json;
    bring_in(&engine, quiet, s.yes, settings)?;
    if engine.store().count_turns()? > 0 {
        return Ok(engine);
    }
    if !s.yes {
        out::note("note: nothing is stored yet");
        out::note(
            "hint: `weft import` reads the transcripts of Claude Code and Codex; `--yes` tries an invented sample",
        );
        return Ok(engine);
    }
    out::note(
        "note: no transcripts of this repository were found; this is an invented sample, kept apart from your store",
    );
    let sample = Engine::open(&settings.data_dir().join("sample"), settings.engine()?)?;
    sample.import_sample()?;
    catch_up(&sample, quiet)?;
    Ok(sample)
}

/// Asks once whether this repository's transcripts shall be imported; the answer is remembered.
fn ask(settings: &mut Settings, waiting: usize) -> Result<bool> {
    if !out::interactive() {
        out::note(&format!(
            "hint: {waiting} transcript(s) of this repository are not imported; `weft import --repo .` does it, `weft config set import.auto always` does it from now on"
        ));
        return Ok(false);
    }
    out::note(&format!(
        "{waiting} transcript(s) of this repository can be imported into {}.",
        settings.data_dir().display()
    ));
    out::note("Import them now, and new ones before each search? [Y/n]");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let yes = !line.trim().to_lowercase().starts_with('n');
    settings.set("import.auto", if yes { "always" } else { "never" })?;
    Ok(yes)
}
