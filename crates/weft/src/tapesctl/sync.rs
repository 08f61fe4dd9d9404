//! `tapesctl sync`: Claude Code's transcripts of this machine, into the local store or to an ingest API.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::{Map, Value, json};
use weft_engine::{Format, ImportOptions, Roots};

use crate::commands::import::usual_places;
use crate::commands::{catch_up, open};
use crate::out::{self, Out};
use crate::settings::Settings;

#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// Ingest API to send to [env: TAPES_INGEST_URL] [default: the local store]
    #[arg(long, value_name = "URL")]
    ingest_url: Option<String>,
    /// Claude Code's folder of projects [default: ~/.claude/projects]
    #[arg(long, value_name = "DIR")]
    projects_root: Option<PathBuf>,
    /// Whose sessions they are
    #[arg(long, value_name = "SUBJECT")]
    auth_subject: Option<String>,
    /// Only files changed in so many days; 0 = all
    #[arg(long, default_value_t = 7)]
    since_days: u64,
}

#[derive(Debug, Default)]
struct Swept {
    sessions: BTreeSet<String>,
    files: u64,
    stored: u64,
    deduped: u64,
    failed: u64,
}

pub(crate) fn run(c: Sync, settings: &Settings, out: Out) -> Result<u8> {
    let mut usual = usual_places();
    if let Some(s) = c.auth_subject {
        usual.auth_subject = s;
    }
    let mut roots = Roots(usual.roots.0.clone());
    roots.0.retain(|r| r.0 == Format::Claude);
    if let Some(root) = c.projects_root {
        roots.0 = vec![(Format::Claude, root)];
    }
    let since = match c.since_days {
        0 => SystemTime::UNIX_EPOCH,
        days => SystemTime::now()
            .checked_sub(Duration::from_secs(days.saturating_mul(86_400)))
            .unwrap_or(SystemTime::UNIX_EPOCH),
    };
    let files = weft_engine::transcripts_since(&roots, since);
    let url = c
        .ingest_url
        .or_else(|| std::env::var("TAPES_INGEST_URL").ok())
        .filter(|u| !u.is_empty())
        .map_or_else(|| settings.text("client.ingest_target"), Ok)?;
    let mut swept = Swept::default();
    if url.is_empty() {
        into_store(&files, usual, settings, &mut swept)?;
    } else {
        for f in &files {
            swept.files += 1;
            match send(f, &url, &usual.auth_subject) {
                Ok((session, deduped)) => {
                    swept.sessions.insert(session);
                    swept.deduped += u64::from(deduped);
                    swept.stored += u64::from(!deduped);
                }
                Err(e) => {
                    swept.failed += 1;
                    out::note(&format!("warning: {}: {e:#}", f.display()));
                }
            }
        }
    }
    out.line(&format!(
        "tapesctl: swept {} session(s), {} file(s): {} stored, {} deduped, {} failed",
        swept.sessions.len(),
        swept.files,
        swept.stored,
        swept.deduped,
        swept.failed
    ))?;
    Ok(u8::from(swept.failed > 0))
}

fn into_store(
    files: &[PathBuf],
    usual: ImportOptions,
    settings: &Settings,
    swept: &mut Swept,
) -> Result<()> {
    swept.files = files.len() as u64;
    if files.is_empty() {
        return Ok(());
    }
    swept.sessions = files.iter().map(|f| place(f).0).collect();
    let engine = open(settings)?;
    let options = ImportOptions {
        paths: files.to_vec(),
        format: Some(Format::Claude),
        ..usual
    };
    let r = engine.import(&options, &mut |_, _, _| {})?;
    swept.failed = r.failed as u64;
    swept.deduped = r.unchanged as u64;
    swept.stored = swept.files.saturating_sub(swept.deduped + swept.failed);
    catch_up(&engine, true)?;
    Ok(())
}

/// The session that a file is of, and the subagent: `<session>.jsonl`, or
/// `<session>/subagents/agent-<id>.jsonl`.
fn place(file: &Path) -> (String, String) {
    let name = |p: &Path| p.file_stem().map(|s| s.to_string_lossy().into_owned());
    let own = name(file).unwrap_or_default();
    let folder = file.parent();
    if folder.is_some_and(|f| f.ends_with("subagents")) {
        let session = folder.and_then(Path::parent).and_then(name);
        let agent = own.strip_prefix("agent-").unwrap_or(&own).to_owned();
        return (session.unwrap_or_default(), agent);
    }
    (own, String::new())
}

/// Sends a file; its session, and whether it was known.
fn send(file: &Path, url: &str, subject: &str) -> Result<(String, bool)> {
    let (session, agent) = place(file);
    let mut envelope = json!({"org_id": "", "auth_subject": subject, "harness_id": "claude",
        "harness_session_id": session});
    let mut records = String::new();
    for line in BufReader::new(std::fs::File::open(file)?).lines() {
        let line = line?;
        let Ok(Value::Object(r)) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        for (key, member) in [("harness_version", "version"), ("cwd", "cwd")] {
            if let (None, Some(Value::String(v))) = (envelope.get(key), r.get(member)) {
                envelope[key] = json!(v);
            }
        }
        if !records.is_empty() {
            records.push(',');
        }
        // As it stands: the receiver knows a file by its bytes.
        records.push_str(line.trim());
    }
    let mut body = Map::new();
    body.insert("session".into(), envelope);
    if !agent.is_empty() {
        body.insert("agent_id".into(), json!(agent));
        for (key, value) in subagent(file) {
            body.insert(key.into(), value);
        }
    }
    let mut text = Value::Object(body).to_string();
    text.pop();
    let text = format!("{text},\"records\":[{records}]}}");
    let answer = post(url, &text)?;
    Ok((session, answer["deduped"] == true))
}

/// What stands beside a subagent's transcript.
fn subagent(file: &Path) -> Vec<(&'static str, Value)> {
    let meta = std::fs::read_to_string(file.with_extension("meta.json"))
        .ok()
        .and_then(|t| serde_json::from_str::<Value>(&t).ok())
        .unwrap_or_default();
    [
        ("agent_type", "agentType"),
        ("description", "description"),
        ("tool_use_id", "toolUseId"),
    ]
    .into_iter()
    .filter(|(_, m)| meta[*m].is_string())
    .map(|(k, m)| (k, meta[m].clone()))
    .collect()
}

fn post(url: &str, body: &str) -> Result<Value> {
    let url = format!("{}/v1/ingest/transcript", url.trim_end_matches('/'));
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_global(Some(Duration::from_secs(60)))
        .build()
        .new_agent();
    let request = agent.post(&url).header("content-type", "application/json");
    let mut answer = super::authorized(request)
        .send(body)
        .with_context(|| format!("cannot reach {url}"))?;
    let status = answer.status();
    let text = answer.body_mut().read_to_string()?;
    anyhow::ensure!(
        status.is_success(),
        "{url} returned {}: {text}",
        status.as_u16()
    );
    Ok(serde_json::from_str(&text).unwrap_or_default())
}
