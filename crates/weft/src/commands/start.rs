//! `weft start`: an agent behind a proxy of its own, and its transcript at the end.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use weft_engine::{Engine, ListQuery, SortField, now};
use weft_server::{Cassettes, Options, UpstreamConfig, Upstreams};

use super::import::usual_places;
use super::{VERSION, block_on, log_to, open};
use crate::out;
use crate::report::{hinted, usage};
use crate::settings::Settings;

/// Sessions that are named at the end.
const NAMED: usize = 5;

/// An agent that can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Harness {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft start claude
  weft start claude -- --model opus -p \"fix the flaky test\"
  weft start codex -- exec \"explain this repository\"")]
pub(crate) struct Start {
    /// The agent
    #[arg(value_enum)]
    harness: Harness,
    /// Where its provider is [default: what its own settings in the environment say]
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Leave the transcript that it writes alone
    #[arg(long)]
    no_transcripts: bool,
    /// Of tapesctl: everything is stored where weft stores
    #[arg(long, hide = true, value_name = "URL")]
    ingest_url: Option<String>,
    #[arg(long, hide = true, value_name = "URL")]
    web_url: Option<String>,
    #[arg(long, hide = true, value_name = "UUID")]
    org_id: Option<String>,
    #[arg(long, hide = true, value_name = "SUBJECT")]
    auth_subject: Option<String>,
    /// Arguments of the agent, behind `--`
    #[arg(last = true)]
    args: Vec<String>,
}

/// How an agent is told of the proxy.
struct Plan {
    program: &'static str,
    args: Vec<String>,
    environment: Vec<(&'static str, String)>,
    upstream: String,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

fn plan(c: &Start, proxy: &str) -> Plan {
    let base = |provider: &str, name: &str| format!("{proxy}/agents/{name}/providers/{provider}");
    match c.harness {
        Harness::Claude => Plan {
            program: "claude",
            args: c.args.clone(),
            environment: vec![("ANTHROPIC_BASE_URL", base("anthropic", "claude"))],
            upstream: c
                .upstream
                .clone()
                .or_else(|| variable("ANTHROPIC_BASE_URL"))
                .unwrap_or_default(),
        },
        Harness::Codex => {
            // With a key it speaks to the API, else to the service that its user has signed in to.
            let key = variable("OPENAI_API_KEY").is_some();
            let credentials = match key {
                true => "env_key=\"OPENAI_API_KEY\"",
                false => "requires_openai_auth=true",
            };
            let own = match key {
                true => variable("OPENAI_BASE_URL").unwrap_or_default(),
                false => "https://chatgpt.com/backend-api/codex".into(),
            };
            let provider = format!(
                "model_providers.weft={{name=\"weft\",base_url=\"{}\",{credentials},wire_api=\"responses\"}}",
                base("openai", "codex")
            );
            let mut args = vec![
                "-c".into(),
                "model_provider=weft".into(),
                "-c".into(),
                provider,
            ];
            args.extend(c.args.iter().cloned());
            Plan {
                program: "codex",
                args,
                environment: Vec::new(),
                upstream: c.upstream.clone().unwrap_or(own),
            }
        }
    }
}

/// Runs an agent; `name` is the program's own in what it says.
pub(crate) fn run(c: Start, settings: &Settings, name: &str) -> Result<u8> {
    let log = log_file(settings)?;
    log_to(settings, &log)?;
    for (flag, given) in [
        ("--ingest-url", c.ingest_url.is_some()),
        ("--web-url", c.web_url.is_some()),
        ("--org-id", c.org_id.is_some()),
        ("--auth-subject", c.auth_subject.is_some()),
    ] {
        if given {
            out::note(&format!(
                "{name}: {flag} is ignored: what is said is stored in weft's own store"
            ));
        }
    }
    let engine = open(settings)?;
    let began = now();
    let since = SystemTime::now();
    let code = block_on(beside_proxy(&c, engine.clone(), settings, name, &log))??;
    if !c.no_transcripts {
        let mut options = usual_places();
        options.paths = weft_engine::transcripts_since(&options.roots, since);
        if !options.paths.is_empty() {
            let report = engine.import(&options, &mut |_, _, _| {})?;
            tracing::info!(turns = report.new_turns, "transcripts imported");
        }
    }
    engine.catch_up(None, &mut |_, _, _| {})?;
    say(&engine, c.harness, began, name)?;
    // As the reference: capturing went well, whatever the agent did.
    Ok(if name == "tapesctl" { 0 } else { code })
}

/// A file of its own for each run: an agent has the terminal for itself.
fn log_file(settings: &Settings) -> Result<PathBuf> {
    let folder = settings.data_dir().join("logs");
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder.join(format!(
        "start-{}-{}.log",
        now() / 1_000_000,
        std::process::id()
    )))
}

async fn beside_proxy(
    c: &Start,
    engine: std::sync::Arc<Engine>,
    settings: &Settings,
    name: &str,
    log: &std::path::Path,
) -> Result<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = format!("http://{}", listener.local_addr()?);
    let plan = plan(c, &proxy);
    let own = settings.text(match c.harness {
        Harness::Claude => "proxy.anthropic_upstream",
        Harness::Codex => "proxy.openai_upstream",
    })?;
    let upstream = if plan.upstream.is_empty() {
        own
    } else {
        plan.upstream
    };
    let mut config = UpstreamConfig::default();
    match c.harness {
        Harness::Claude => config.anthropic = &upstream,
        Harness::Codex => config.openai = &upstream,
    }
    let upstreams = Upstreams::new(config).map_err(|e| usage(e, ""))?;
    let stop = CancellationToken::new();
    let options = Options {
        engine,
        token: None,
        version: VERSION,
        cassettes: Cassettes::default(),
    };
    let serving = tokio::spawn(weft_server::serve_proxy(
        listener,
        options,
        upstreams,
        stop.clone(),
    ));
    out::note(&format!("{name}: capturing; logs at {}", log.display()));
    let mut command = Command::new(plan.program);
    command
        .args(&plan.args)
        .envs(plan.environment)
        .stdin(Stdio::inherit());
    let mut child = command.spawn().map_err(|e| {
        hinted(
            format!("cannot start {}: {e}", plan.program),
            "is it installed, and on the PATH?",
        )
    })?;
    // Ctrl-C is for the agent, which shares the terminal; we stay until it has ended.
    let ignoring = tokio::spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });
    let status = tokio::task::spawn_blocking(move || child.wait()).await??;
    ignoring.abort();
    stop.cancel();
    serving.await??;
    Ok(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1))
}

/// Tells what was captured.
fn say(engine: &Engine, harness: Harness, began: i64, name: &str) -> Result<()> {
    let harness = match harness {
        Harness::Claude => "claude",
        Harness::Codex => "codex",
    };
    let (found, _) = engine.store().list_sessions(&ListQuery {
        sort: SortField::LastActive,
        since: Some(began),
        harness_id: Some(harness.into()),
        limit: NAMED,
        ..ListQuery::default()
    })?;
    for s in &found {
        out::note(&format!(
            "{name}: captured session {}",
            s.row.key.harness_session_id
        ));
    }
    if found.is_empty() {
        out::note(&format!("{name}: no turns were captured"));
    }
    Ok(())
}
