//! `weft search`, `weft show` and `weft why`: everything in one list, and what stands behind it.

use anyhow::Result;
use clap::Args;
use weft_engine::everything::{AllQuery, Corpus};
use weft_engine::why::WhyOptions;
use weft_engine::{Filter, Role, now};
use weft_server::all_text::{self, AllShape};

use super::spans::{RoleArg, bring_in, repository_filter};
use super::{catch_up, open, session_id};
use crate::out::Out;
use crate::progress::Bar;
use crate::report::usage;
use crate::settings::Settings;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft search \"how do we handle refunds?\"
  weft search why not kafka --in decisions
  weft search \"connection reset by peer\" --since \"last week\"
  weft search parse_header --all-repos --limit 5
  weft search \"rate limit\" --file src/api/limit.rs --json
  weft search -- --no-verify

Queries are plain words: quotes, slashes and AND mean nothing special.
Open a hit with `weft show REFERENCE`.")]
pub(crate) struct Search {
    /// What to look for: words, a question, a name, an error message, a ticket, a commit id
    #[arg(required = true, num_args = 1..)]
    query: Vec<String>,
    /// Only these, with commas: spans (what was said), code, decisions
    #[arg(
        long = "in",
        value_name = "CORPORA",
        default_value = "spans,code,decisions"
    )]
    corpora: String,
    /// Number of hits
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    limit: u8,
    /// Tokens that the answer may cost
    #[arg(long, default_value_t = 4000, value_name = "TOKENS")]
    budget: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print what each hit scored, and an excerpt
    #[arg(long)]
    explain: bool,
    /// Ask every repository that is known here, not only this one
    #[arg(long)]
    all_repos: bool,
    /// Only conversations of this repository: its name, or a path inside of it [default: this one]
    #[arg(long, value_name = "REPO", conflicts_with = "all_repos")]
    repo: Option<String>,
    /// Only conversations with this agent program: claude, codex, …
    #[arg(long)]
    agent: Option<String>,
    /// Only this side of the conversation
    #[arg(long, value_enum)]
    role: Option<RoleArg>,
    /// Only answers of this model
    #[arg(long)]
    model: Option<String>,
    /// Only turns that called this tool: Bash, Edit, …
    #[arg(long)]
    tool: Option<String>,
    /// Only what is about this file: code in it, turns that wrote or name it, decisions that govern it
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
    /// Only this branch
    #[arg(long)]
    branch: Option<String>,
    /// Only this session (id, or the beginning of one); can be repeated
    #[arg(long, value_name = "ID")]
    session: Vec<String>,
    /// Only what happened at or after this, in local time: a day, "last week", "3 days ago", 7d
    #[arg(long, value_parser = super::instant)]
    since: Option<i64>,
    /// Only what happened before this
    #[arg(long, value_parser = super::instant)]
    until: Option<i64>,
    /// Only what happened on this day (or week, month): 2026-11-03, yesterday, "last week"
    #[arg(long, value_parser = super::period, conflicts_with_all = ["since", "until"], value_name = "DAY")]
    on: Option<(i64, Option<i64>)>,
    /// Import this repository's transcripts first without asking
    #[arg(short, long)]
    yes: bool,
}

pub(crate) fn run(s: &Search, settings: &mut Settings, out: Out) -> Result<u8> {
    let query = s.query.join(" ");
    if query.trim().is_empty() {
        return Err(usage("the query is empty", "give a question or some words"));
    }
    let corpora =
        Corpus::parse_list(&s.corpora).map_err(|e| usage(e, "for example --in code,decisions"))?;
    let engine = open(settings)?;
    if corpora.contains(&Corpus::Spans) {
        bring_in(&engine, s.json, s.yes, settings)?;
    }
    let sessions = s
        .session
        .iter()
        .map(|id| session_id(&engine, id))
        .collect::<Result<_>>()?;
    let (since, until) = match s.on {
        Some((from, to)) => (Some(from), to),
        None => (s.since, s.until),
    };
    let q = AllQuery {
        query,
        corpora,
        limit: s.limit.into(),
        all_repos: s.all_repos,
        folder: std::env::current_dir().ok(),
        filter: Filter {
            sessions,
            agent: s.agent.clone(),
            model: s.model.clone(),
            repository: s.repo.as_deref().map(repository_filter),
            role: s.role.map(Role::from),
            since,
            until,
            tool: s.tool.clone(),
            file: s.file.clone(),
            branch: s.branch.clone(),
            ..Filter::default()
        },
        ..AllQuery::default()
    };
    let mut bar = Bar::new(s.json);
    let answer = engine.search_everything(&q, &mut |what, done, total| {
        bar.tell(what, done as u64, total as u64);
    })?;
    bar.clear();
    let shape = AllShape {
        budget: s.budget,
        json: s.json,
        explain: s.explain,
        now: now(),
    };
    out.line(&all_text::search(&q.query, &answer, shape))?;
    Ok(0)
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft show src/refunds.ts::processRefund
  weft show src/refunds.ts:42
  weft show decision:docs/decisions/0003-use-jwt.md
  weft show span:llm_msg_01Q6BnD6WsdUhkbDmCcjiUHq-20c0bc
  weft show commit:1a2b3c4")]
pub(crate) struct Show {
    /// A reference as a search prints it
    reference: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn show(s: &Show, settings: &Settings, out: Out) -> Result<u8> {
    let engine = open(settings)?;
    let shown = engine.show(&s.reference, &std::env::current_dir()?)?;
    if s.json {
        out.json(&all_text::shown_json(&shown))?;
    } else {
        out.line(&all_text::shown(&shown))?;
    }
    Ok(0)
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft why src/refunds.ts::processRefund
  weft why src/refunds.ts:42
  weft why src/refunds.ts --commits 20 --json")]
pub(crate) struct Why {
    /// PATH, PATH:LINE or PATH::SYMBOL
    target: String,
    /// Most commits
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=500))]
    commits: u16,
    /// Most agent calls
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=500))]
    spans: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn why(w: &Why, settings: &Settings, out: Out) -> Result<u8> {
    let engine = open(settings)?;
    catch_up(&engine, w.json)?;
    let options = WhyOptions {
        commits: w.commits.into(),
        spans: w.spans.into(),
    };
    let why = engine.why(&w.target, &std::env::current_dir()?, options)?;
    if w.json {
        out.json(&all_text::why_json(&why))?;
    } else {
        out.line(&all_text::why(&why, now()))?;
    }
    Ok(0)
}
