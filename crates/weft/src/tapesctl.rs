//! weft under the names `tapes` and `tapesctl`: their command lines as their documents show them.
//!
//! Where a server is named (`--api-url`, `TAPES_API_URL`, `config set tapes-url`), it is asked;
//! else the local store answers, so that nothing has to run.

use std::ffi::OsString;

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use serde_json::Value;
use weft_core::project::cut_chars;
use weft_core::time::{format_micros, parse_micros};
use weft_engine::{Mode, SpanQuery};

use crate::args::{self, Cli};
use crate::commands;
use crate::out::Out;
use crate::report::hinted;
use crate::settings::Settings;

#[derive(Debug, Parser)]
#[command(name = "tapesctl", version)]
struct Tapesctl {
    /// Read API to ask [env: TAPES_API_URL]
    #[arg(long, visible_alias = "tapes-url", global = true, value_name = "URL")]
    api_url: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Search spans
    Search(Search),
    /// Sessions
    #[command(subcommand)]
    Sessions(Sessions),
    /// Add two invented sessions
    Seed,
    /// Settings
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Args)]
struct Search {
    /// What to look for
    query: String,
    /// Number of hits
    #[arg(short = 'k', long, default_value_t = 5)]
    top: u64,
    /// Print unique session ids only
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Sessions {
    /// List sessions as JSON
    List {
        /// Number of sessions
        #[arg(long)]
        limit: Option<u64>,
    },
    /// Print a session as JSON
    Get {
        /// Id
        id: String,
    },
    /// Print the traces of a session as JSON
    Traces {
        /// Id
        id: String,
        /// full or preview
        #[arg(long)]
        payload: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Set a key: tapes-url
    Set {
        /// Key
        key: String,
        /// Value
        value: String,
    },
    /// Print a key
    Get {
        /// Key
        key: String,
    },
}

/// Runs a command line of `tapes` or `tapesctl`.
pub(crate) fn run(name: &str, argv: Vec<OsString>) -> Result<u8> {
    if name == "tapes" {
        // The server binary's commands have weft's names.
        return match Cli::from(argv) {
            Ok(mut cli) => {
                let init = matches!(
                    cli.command,
                    args::Command::Init(_) | args::Command::Local(_)
                );
                if cli.global.config_dir.is_none() {
                    cli.global.config_dir = tapes_dir(init);
                }
                args::dispatch(cli)
            }
            Err(code) => Ok(code),
        };
    }
    let cli: Tapesctl = match args::parse(Tapesctl::command(), argv) {
        Ok(cli) => cli,
        Err(code) => return Ok(code),
    };
    let mut settings = Settings::load(None, None)?;
    commands::log(&settings, "warn")?;
    let url = cli
        .api_url
        .or_else(|| std::env::var("TAPES_API_URL").ok())
        .filter(|u| !u.is_empty())
        .map_or_else(|| settings.text("client.api_target"), Ok)?;
    let out = Out::new();
    match cli.command {
        Command::Search(s) => {
            let body = if url.is_empty() {
                local_search(&settings, &s)?
            } else {
                let top = s.top.to_string();
                get(
                    &url,
                    "/v1/search/spans",
                    &[("query", &s.query), ("top_k", &top)],
                )?
            };
            print_search(out, &s, &body)?;
        }
        Command::Sessions(s) => sessions(s, &url, &settings, out)?,
        Command::Seed => seed(&url, &settings, out)?,
        Command::Config(ConfigCommand::Set { key, value }) => {
            settings.set(&config_key(&key), &value)?
        }
        Command::Config(ConfigCommand::Get { key }) => {
            out.line(&settings.text(&config_key(&key))?)?
        }
    }
    Ok(0)
}

/// Where tapes has its configuration: `./.tapes`, else `~/.tapes`. `create` = where it would make one.
fn tapes_dir(create: bool) -> Option<std::path::PathBuf> {
    let here = std::path::PathBuf::from(".tapes");
    let home = std::env::var_os("HOME").map(|h| std::path::PathBuf::from(h).join(".tapes"));
    if here.is_dir() || (create && !home.as_ref().is_some_and(|h| h.is_dir())) {
        return Some(here);
    }
    home.filter(|h| h.is_dir())
}

fn config_key(key: &str) -> String {
    match key {
        "tapes-url" | "api-url" => "client.api_target".into(),
        other => other.into(),
    }
}

fn seed(url: &str, settings: &Settings, out: Out) -> Result<()> {
    let (place, report) = if url.is_empty() {
        let engine = commands::open(settings)?;
        let r = engine.import_sample()?;
        let report = serde_json::json!({"sessions": r.sessions, "raw_turns": r.raw_turns,
            "raw_turns_inserted": r.inserted, "raw_turns_deduped": r.raw_turns - r.inserted});
        (settings.data_dir().display().to_string(), report)
    } else {
        (url.to_owned(), ask(url, "/v1/admin/seed/demo", &[], true)?)
    };
    out.line(&format!(
        "tapesctl: seeded {} session(s) ({} raw turns: {} inserted, {} deduped) into {place}",
        report["sessions"],
        report["raw_turns"],
        report["raw_turns_inserted"],
        report["raw_turns_deduped"]
    ))
}

/// Asks a read API.
pub(crate) fn get(url: &str, path: &str, query: &[(&str, &str)]) -> Result<Value> {
    ask(url, path, query, false)
}

/// Asks a read API; a refusal is shown with its own words.
fn ask(url: &str, path: &str, query: &[(&str, &str)], post: bool) -> Result<Value> {
    let url = format!("{}{path}", url.trim_end_matches('/'));
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .build()
        .new_agent();
    let bearer = std::env::var("WEFT_TOKEN").map(|t| format!("Bearer {t}"));
    let sent = if post {
        let mut request = agent.post(&url).header("content-type", "application/json");
        if let Ok(b) = &bearer {
            request = request.header("Authorization", b);
        }
        request.send("{}")
    } else {
        let mut request = agent.get(&url);
        for (k, v) in query {
            request = request.query(*k, *v);
        }
        if let Ok(b) = &bearer {
            request = request.header("Authorization", b);
        }
        request.call()
    };
    let mut answer = sent.map_err(|e| {
        hinted(
            format!("cannot reach {url}: {e}"),
            "is `weft serve` running? without --api-url the local store is asked",
        )
    })?;
    let status = answer.status();
    let text = answer
        .body_mut()
        .read_to_string()
        .context("reading the answer")?;
    if !status.is_success() {
        return Err(hinted(
            format!("tapes API returned {} for {url}: {text}", status.as_u16()),
            "",
        ));
    }
    Ok(serde_json::from_str(&text)?)
}

fn local_search(settings: &Settings, s: &Search) -> Result<Value> {
    let engine = commands::open(settings)?;
    commands::catch_up(&engine, s.quiet)?;
    let answer = engine.search_spans(&SpanQuery {
        query: s.query.clone(),
        limit: usize::try_from(s.top).unwrap_or(usize::MAX).clamp(1, 1_000),
        mode: Mode::Vector,
        ..SpanQuery::default()
    })?;
    Ok(weft_server::wire::answer(&s.query, &answer))
}

fn sessions(s: Sessions, url: &str, settings: &Settings, out: Out) -> Result<()> {
    let (path, query) = match &s {
        Sessions::List { limit } => (
            "/v1/sessions".to_owned(),
            limit.map(|n| ("limit", n.to_string())),
        ),
        Sessions::Get { id } => (format!("/v1/sessions/{id}"), None),
        Sessions::Traces { id, payload } => (
            format!("/v1/sessions/{id}/traces"),
            payload.clone().map(|p| ("payload", p)),
        ),
    };
    if !url.is_empty() {
        let query: Vec<(&str, &str)> = query.iter().map(|(k, v)| (*k, v.as_str())).collect();
        return out.json(&get(url, &path, &query)?);
    }
    use commands::sessions::Sessions as Local;
    let local = match s {
        Sessions::List { limit } => Local::List {
            limit: limit.map_or(50, |n| u16::try_from(n).unwrap_or(1000).clamp(1, 1000)),
            since: None,
            until: None,
            agent: None,
            repo: None,
            json: true,
        },
        Sessions::Get { id } => Local::Get { id },
        Sessions::Traces { id, payload } => Local::Traces {
            id,
            json: true,
            preview: payload.as_deref() == Some("preview"),
        },
    };
    commands::sessions::run(local, settings, out)?;
    Ok(())
}

fn elide(text: &str, max: usize) -> String {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if flat.chars().count() <= max {
        return flat;
    }
    let cut = cut_chars(&flat, max.saturating_sub(3));
    format!("{}...", cut.trim_end_matches('…'))
}

fn print_search(out: Out, s: &Search, body: &Value) -> Result<()> {
    let hits: Vec<&Value> = body["results"].as_array().into_iter().flatten().collect();
    let text = |v: &Value, k: &str| v[k].as_str().unwrap_or_default().to_owned();
    if s.quiet {
        let mut seen = std::collections::HashSet::new();
        for h in hits {
            let id = text(h, "session_id");
            if !id.is_empty() && seen.insert(id.clone()) {
                out.line(&id)?;
            }
        }
        return Ok(());
    }
    if hits.is_empty() {
        return out.line("No results found.");
    }
    out.line(&format!("\nSpan Search Results for: \"{}\"\n", s.query))?;
    for (i, h) in hits.iter().enumerate() {
        out.line(&format!(
            "  #{}  score: {:.4}  {}/{}",
            i + 1,
            h["score"].as_f64().unwrap_or_default(),
            text(h, "trace_id"),
            text(h, "span_id")
        ))?;
        let prompt = elide(&text(h, "user_prompt"), 80);
        let prompt = if prompt.is_empty() {
            "(synthetic turn)".into()
        } else {
            prompt
        };
        out.line(&format!("  turn: {prompt}"))?;
        let snippet = elide(&text(h, "snippet"), 100);
        if !snippet.is_empty() {
            out.line(&format!("   ├─ {snippet}"))?;
        }
        let started = text(h, "started_at");
        let started =
            parse_micros(&started).map_or(started, |t| format_micros(t - t.rem_euclid(1_000_000)));
        out.line(&format!("  {started}  session {}\n", text(h, "session_id")))?;
    }
    Ok(())
}
