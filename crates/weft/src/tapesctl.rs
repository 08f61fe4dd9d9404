//! weft under the names `tapes` and `tapesctl`: their command lines as their documents show them.
//!
//! Where a server is named (`--api-url`, `TAPES_API_URL`, `config set tapes-url`), it is asked;
//! else the same read API answers from the local store in this process, so that nothing has to run.

mod sync;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use serde_json::{Value, json};
use weft_core::project::cut_chars;
use weft_core::time::{format_micros, parse_micros};

use crate::args::{self, Cli};
use crate::commands::{self, start};
use crate::out::{self, Out};
use crate::report::{hinted, usage};
use crate::settings::Settings;

/// The last line of `tapesctl version`, by which tools know that the program is whole.
const CANARY: &str = "All in all, just another tape in the stereo";

#[derive(Debug, Parser)]
#[command(name = "tapesctl", version)]
struct Tapesctl {
    /// Read API to ask [env: TAPES_API_URL]
    #[arg(long, visible_alias = "tapes-url", global = true, value_name = "URL")]
    api_url: Option<String>,
    /// Say more on standard error
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

impl commands::skill::Sessions for Api<'_> {
    fn search(&self, query: &str, limit: usize) -> Result<Vec<String>> {
        let limit = limit.to_string();
        let body = self.search(&[("query", query), ("top_k", &limit)], true)?;
        let hits = body["results"].as_array().into_iter().flatten();
        Ok(hits
            .filter_map(|h| h["session_id"].as_str().map(str::to_owned))
            .collect())
    }

    fn traces(&self, id: &str) -> Result<Value> {
        self.get(&format!("/v1/sessions/{}/traces", segment(id)), &[])
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Search spans
    Search(Search),
    /// Sessions
    #[command(subcommand)]
    Sessions(Sessions),
    /// Traces
    #[command(subcommand)]
    Traces(Traces),
    /// Spans
    #[command(subcommand)]
    Spans(Spans),
    /// Make skills of sessions, for agents to follow
    #[command(subcommand)]
    Skill(commands::skill::Skill),
    /// Figures about everything captured, as JSON
    Stats {
        /// From this time on, RFC 3339
        #[arg(long)]
        since: Option<String>,
        /// Before this time, RFC 3339
        #[arg(long)]
        until: Option<String>,
        /// Of this user
        #[arg(long)]
        auth_subject: Option<String>,
    },
    /// Write a session as a JSON line
    Export {
        /// Session
        id: String,
        /// spans or traces
        #[arg(long, value_parser = ["spans", "traces"])]
        detail: Option<String>,
        /// File to write instead of standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Add two invented sessions
    Seed,
    /// Take in the transcripts of this machine
    Sync(sync::Sync),
    /// Run an agent behind a proxy of its own and keep what is said
    Start(start::Start),
    /// Settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the version
    Version,
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

#[derive(Debug, Default, Args)]
struct List {
    /// Number of sessions
    #[arg(long)]
    limit: Option<u64>,
    /// Where the last page ended
    #[arg(long)]
    cursor: Option<String>,
    /// Field to sort by
    #[arg(long)]
    sort: Option<String>,
    /// asc or desc
    #[arg(long)]
    direction: Option<String>,
    /// Active from this time on, RFC 3339
    #[arg(long)]
    since: Option<String>,
    /// Active before this time, RFC 3339
    #[arg(long)]
    until: Option<String>,
    /// Id that the agent gave
    #[arg(long, requires = "harness_id")]
    harness_session_id: Option<String>,
    /// Agent program
    #[arg(long, requires = "harness_session_id")]
    harness_id: Option<String>,
    /// User
    #[arg(long)]
    auth_subject: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Sessions {
    /// List sessions as JSON
    List(List),
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
    /// Print the raw turns of a session as JSON
    RawTurns {
        /// Id
        id: String,
    },
}

#[derive(Debug, Subcommand)]
enum Traces {
    /// List the traces of a session as JSON
    List {
        /// Session
        session: String,
    },
    /// Print a trace as JSON
    Get {
        /// Trace
        id: String,
        /// full or preview
        #[arg(long)]
        payload: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
enum Spans {
    /// List the spans of a trace as JSON
    List {
        /// Trace
        trace: String,
        /// full or preview
        #[arg(long)]
        payload: Option<String>,
    },
    /// Print a span as JSON
    Get {
        /// Trace
        trace: String,
        /// Span
        span: String,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Set a key: api-url (or tapes-url), ingest-url
    Set {
        /// Key
        key: String,
        /// Value
        value: String,
    },
    /// Print a key, or all
    Get {
        /// Key
        key: Option<String>,
    },
    /// Print where the settings are
    Path,
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
    let settings = Settings::load(None, None)?;
    if let Command::Start(s) = cli.command {
        return start::run(s, &settings, "tapesctl");
    }
    commands::log(&settings, if cli.verbose > 0 { "info" } else { "warn" })?;
    let url = cli
        .api_url
        .or_else(|| std::env::var("TAPES_API_URL").ok())
        .filter(|u| !u.is_empty())
        .map_or_else(|| settings.text("client.api_target"), Ok)?;
    let api = Api {
        url,
        settings: &settings,
    };
    let out = Out::new();
    match cli.command {
        Command::Search(s) => {
            let top = s.top.to_string();
            let query = [("query", s.query.as_str()), ("top_k", &top)];
            let body = api.search(&query, s.quiet)?;
            print_search(out, &s, &body)?;
        }
        Command::Sessions(s) => sessions(s, &api, out)?,
        Command::Traces(Traces::List { session }) => {
            api.print(out, "/v1/traces", &[("session_id", Some(session))])?;
        }
        Command::Traces(Traces::Get { id, payload }) => {
            api.print(
                out,
                &format!("/v1/traces/{}", segment(&id)),
                &[("payload", payload)],
            )?;
        }
        Command::Spans(Spans::List { trace, payload }) => {
            let path = format!("/v1/traces/{}", segment(&trace));
            let body = api.get(&path, &[("payload", payload)])?;
            let spans = body.get("spans").cloned().unwrap_or_else(|| json!([]));
            out.json(&sorted(spans))?;
        }
        Command::Spans(Spans::Get { trace, span }) => {
            let path = format!("/v1/traces/{}/spans/{}", segment(&trace), segment(&span));
            api.print(out, &path, &[])?;
        }
        Command::Stats {
            since,
            until,
            auth_subject,
        } => api.print(
            out,
            "/v1/stats",
            &[
                ("since", since),
                ("until", until),
                ("auth_subject", auth_subject),
            ],
        )?,
        Command::Export { id, detail, output } => export(&api, &id, detail, output)?,
        Command::Seed => seed(&api, out)?,
        Command::Sync(s) => return sync::run(s, &settings, out),
        Command::Skill(c) => {
            let mut settings = settings.clone();
            return match api.url.is_empty() {
                true => commands::skill::run(c, &mut settings, out),
                false => commands::skill::run_with(c, &mut settings, out, Some(&api)),
            };
        }
        // Answered above, before logging to the terminal that the agent has.
        Command::Start(_) => {}
        Command::Config(c) => config(c, settings.clone(), out)?,
        Command::Version => {
            out.line(&format!("tapesctl {}", env!("CARGO_PKG_VERSION")))?;
            out.line(CANARY)?;
        }
    }
    Ok(0)
}

/// Where tapes has its configuration: `./.tapes`, else `~/.tapes`. `create` = where it would make one.
fn tapes_dir(create: bool) -> Option<PathBuf> {
    let here = PathBuf::from(".tapes");
    let home = std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".tapes"));
    if here.is_dir() || (create && !home.as_ref().is_some_and(|h| h.is_dir())) {
        return Some(here);
    }
    home.filter(|h| h.is_dir())
}

/// The keys of tapesctl and ours for them.
const CONFIG_KEYS: [(&str, &str); 3] = [
    ("api-url", "client.api_target"),
    ("ingest-url", "client.ingest_target"),
    ("tapes-url", "client.api_target"),
];

fn config_key(key: &str) -> &str {
    CONFIG_KEYS.iter().find(|k| k.0 == key).map_or(key, |k| k.1)
}

fn config(c: ConfigCommand, mut settings: Settings, out: Out) -> Result<()> {
    match c {
        ConfigCommand::Set { key, value } => {
            let is_url = CONFIG_KEYS.iter().any(|k| k.0 == key);
            if is_url && !value.starts_with("http://") && !value.starts_with("https://") {
                return Err(usage(
                    format!("{key}: {value:?} is no http or https address"),
                    "",
                ));
            }
            settings.set(config_key(&key), &value)
        }
        ConfigCommand::Get { key: Some(key) } => out.line(&settings.text(config_key(&key))?),
        ConfigCommand::Get { key: None } => {
            for (key, ours) in &CONFIG_KEYS[..2] {
                out.line(&format!("{key} = {}", settings.text(ours)?))?;
            }
            Ok(())
        }
        ConfigCommand::Path => out.line(&settings.config_path().display().to_string()),
    }
}

/// A value in a path.
fn segment(text: &str) -> String {
    text.bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

/// Objects with their members by name, as the reference prints them.
fn sorted(v: Value) -> Value {
    match v {
        Value::Object(o) => {
            let mut members: Vec<(String, Value)> = o.into_iter().collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(members.into_iter().map(|(k, v)| (k, sorted(v))).collect())
        }
        Value::Array(a) => Value::Array(a.into_iter().map(sorted).collect()),
        v => v,
    }
}

/// The read API: of a server, or of the local store.
struct Api<'a> {
    url: String,
    settings: &'a Settings,
}

impl Api<'_> {
    /// The answer to a GET; parameters without a value are left out.
    fn get(&self, path: &str, query: &[(&str, Option<String>)]) -> Result<Value> {
        let given: Vec<(&str, &str)> = query
            .iter()
            .filter_map(|(k, v)| Some((*k, v.as_deref()?)))
            .collect();
        read(&self.ask("GET", path, &given)?)
    }

    fn print(&self, out: Out, path: &str, query: &[(&str, Option<String>)]) -> Result<()> {
        out.json(&sorted(self.get(path, query)?))
    }

    fn search(&self, query: &[(&str, &str)], quiet: bool) -> Result<Value> {
        if self.url.is_empty() {
            let engine = commands::open(self.settings)?;
            commands::catch_up(&engine, quiet)?;
        }
        read(&self.ask("GET", "/v1/search/spans", query)?)
    }

    fn ask(&self, method: &str, path: &str, query: &[(&str, &str)]) -> Result<Vec<u8>> {
        if !self.url.is_empty() {
            return ask(&self.url, path, query, method == "POST");
        }
        let engine = commands::open(self.settings)?;
        let mut target = path.to_owned();
        for (i, (k, v)) in query.iter().enumerate() {
            target.push(if i == 0 { '?' } else { '&' });
            target.push_str(&format!("{k}={}", segment(v)));
        }
        let body = if method == "POST" { "{}" } else { "" };
        let (status, text) = commands::block_on(weft_server::ask(engine, method, &target, body))??;
        told(status, &target, text)
    }
}

/// The body of an answer that is no refusal.
fn told(status: u16, at: &str, body: Vec<u8>) -> Result<Vec<u8>> {
    if (200..300).contains(&status) {
        return Ok(body);
    }
    let text = String::from_utf8_lossy(&body);
    Err(hinted(
        format!("tapes API returned {status} for {at}: {text}"),
        "",
    ))
}

/// A body as JSON; an empty one is null.
fn read(body: &[u8]) -> Result<Value> {
    if body.trim_ascii().is_empty() {
        return Ok(Value::Null);
    }
    Ok(serde_json::from_slice(body)?)
}

fn seed(api: &Api<'_>, out: Out) -> Result<()> {
    let report = read(&api.ask("POST", "/v1/admin/seed/demo", &[])?)?;
    let place = match api.url.as_str() {
        "" => api.settings.data_dir().display().to_string(),
        url => url.to_owned(),
    };
    out.line(&format!(
        "tapesctl: seeded {} session(s) ({} raw turns: {} inserted, {} deduped) into {place}",
        report["sessions"],
        report["raw_turns"],
        report["raw_turns_inserted"],
        report["raw_turns_deduped"]
    ))
}

fn export(api: &Api<'_>, id: &str, detail: Option<String>, output: Option<PathBuf>) -> Result<()> {
    let path = format!("/v1/cassettes/export/sessions/{}", segment(id));
    let query: Vec<(&str, &str)> = detail.iter().map(|d| ("detail", d.as_str())).collect();
    let body = api.ask("GET", &path, &query)?;
    match output {
        Some(file) => {
            std::fs::write(&file, &body).with_context(|| format!("writing {}", file.display()))?;
            out::note(&format!(
                "tapesctl: wrote {} bytes to {}",
                body.len(),
                file.display()
            ));
        }
        None => std::io::stdout().lock().write_all(&body)?,
    }
    Ok(())
}

/// Asks a read API for JSON.
pub(crate) fn get(url: &str, path: &str, query: &[(&str, &str)]) -> Result<Value> {
    read(&ask(url, path, query, false)?)
}

/// A request with the token of the environment, where there is one.
fn authorized<B>(request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
    match std::env::var("WEFT_TOKEN") {
        Ok(t) => request.header("Authorization", format!("Bearer {t}")),
        Err(_) => request,
    }
}

/// Asks a read API; a refusal is shown with its own words.
fn ask(url: &str, path: &str, query: &[(&str, &str)], post: bool) -> Result<Vec<u8>> {
    let url = format!("{}{path}", url.trim_end_matches('/'));
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .build()
        .new_agent();
    let sent = if post {
        let request = agent.post(&url).header("content-type", "application/json");
        authorized(request).send("{}")
    } else {
        let request = query
            .iter()
            .fold(agent.get(&url), |r, (k, v)| r.query(*k, *v));
        authorized(request).call()
    };
    let mut answer = sent.map_err(|e| {
        hinted(
            format!("cannot reach {url}: {e}"),
            "is `weft serve` running? without --api-url the local store is asked",
        )
    })?;
    let status = answer.status().as_u16();
    let body = answer
        .body_mut()
        .with_config()
        .limit(u64::MAX)
        .read_to_vec()
        .context("reading the answer")?;
    told(status, &url, body)
}

fn sessions(s: Sessions, api: &Api<'_>, out: Out) -> Result<()> {
    match s {
        Sessions::List(l) => api.print(
            out,
            "/v1/sessions",
            &[
                ("limit", l.limit.map(|n| n.to_string())),
                ("cursor", l.cursor),
                ("sort", l.sort),
                ("direction", l.direction),
                ("since", l.since),
                ("until", l.until),
                ("harness_id", l.harness_id),
                ("harness_session_id", l.harness_session_id),
                ("auth_subject", l.auth_subject),
            ],
        ),
        Sessions::Get { id } => api.print(out, &format!("/v1/sessions/{}", segment(&id)), &[]),
        Sessions::Traces { id, payload } => api.print(
            out,
            &format!("/v1/sessions/{}/traces", segment(&id)),
            &[("payload", payload)],
        ),
        Sessions::RawTurns { id } => api.print(
            out,
            &format!("/v1/sessions/{}/raw_turns", segment(&id)),
            &[],
        ),
    }
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
