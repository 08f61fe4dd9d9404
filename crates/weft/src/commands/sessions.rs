//! `weft sessions`: list, get, traces, raw-turns.

use anyhow::Result;
use clap::Subcommand;
use serde_json::{Value, json};
use weft_core::project::cut_chars;
use weft_core::time::format_micros;
use weft_engine::ListQuery;

use super::{catch_up, open, session_id};
use crate::out::Out;
use crate::render;
use crate::report::hinted;
use crate::settings::Settings;

#[derive(Debug, Subcommand)]
pub(crate) enum Sessions {
    /// List sessions, the last active first
    List {
        /// Number of sessions
        #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        /// Only sessions with a turn at or after this: a date, a time, or an age such as 7d
        #[arg(long, value_parser = super::instant)]
        since: Option<i64>,
        /// Only sessions with a turn before this
        #[arg(long, value_parser = super::instant)]
        until: Option<i64>,
        /// Only this agent program: claude, codex, …
        #[arg(long)]
        agent: Option<String>,
        /// Only this repository
        #[arg(long, value_name = "REPO")]
        repo: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print one session as JSON
    Get {
        /// Id, or the beginning of one
        id: String,
    },
    /// Show the turns of a session
    Traces {
        /// Id, or the beginning of one
        id: String,
        /// Print JSON with all spans and links
        #[arg(long)]
        json: bool,
        /// Cut long payloads in JSON
        #[arg(long, requires = "json")]
        preview: bool,
    },
    /// Print the raw turns of a session as JSON
    RawTurns {
        /// Id, or the beginning of one
        id: String,
    },
}

pub(crate) fn run(c: Sessions, settings: &Settings, out: Out) -> Result<u8> {
    let engine = open(settings)?;
    catch_up(&engine, true)?;
    match c {
        Sessions::List {
            limit,
            since,
            until,
            agent,
            repo,
            json,
        } => {
            let (items, _) = engine.store().list_sessions(&ListQuery {
                since,
                until,
                harness_id: agent,
                repository: repo,
                limit: limit.into(),
                ..ListQuery::default()
            })?;
            if json {
                let items: Vec<Value> = items.into_iter().map(weft_server::wire::session).collect();
                out.json(&json!({"items": items}))?;
            } else {
                for s in &items {
                    out.line(&render::session_line(out, s))?;
                }
            }
        }
        Sessions::Get { id } => {
            let id = session_id(&engine, &id)?;
            if let Some(s) = engine.store().session(&id)? {
                out.json(&json!({"session": weft_server::wire::session(s)}))?;
            }
        }
        Sessions::Traces { id, json, preview } => {
            let id = session_id(&engine, &id)?;
            let body = weft_server::wire::session_traces(&engine, &id, preview)
                .map_err(|r| hinted(r.text, ""))?;
            if json {
                out.json(&body)?;
            } else {
                print_traces(out, &body)?;
            }
        }
        Sessions::RawTurns { id } => {
            let id = session_id(&engine, &id)?;
            if let Some(s) = engine.store().session(&id)? {
                let turns = engine.store().raw_turns(&s.row.key)?;
                let items: Vec<Value> = turns
                    .iter()
                    .map(|t| {
                        json!({"id": t.id, "source": t.source, "provider": t.provider,
                        "request_id": t.request_id, "received_at": format_micros(t.received_at),
                        "request_bytes": t.request_chars, "response_bytes": t.response_chars})
                    })
                    .collect();
                out.json(&json!({"items": items}))?;
            }
        }
    }
    Ok(0)
}

fn print_traces(out: Out, body: &Value) -> Result<()> {
    let text = |v: &Value, max: usize| {
        let flat = v
            .as_str()
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        cut_chars(&flat, max)
    };
    out.line(&out.bold(&text(&body["session"]["display_title"], 100)))?;
    for t in body["traces"].as_array().into_iter().flatten() {
        let trace = &t["trace"];
        let prompt = text(&trace["user_prompt"], 100);
        let prompt = if prompt.is_empty() {
            "(synthetic turn)".into()
        } else {
            prompt
        };
        out.line(&format!(
            "\n{}  {}",
            out.bold(&prompt),
            out.dim(&format!(
                "{}  {}",
                text(&trace["started_at"], 20),
                trace["trace_id"].as_str().unwrap_or_default()
            ))
        ))?;
        for s in t["spans"].as_array().into_iter().flatten() {
            let shown = match s["kind"].as_str() {
                Some("llm") => blocks_text(&s["output"], "text"),
                Some("tool") => s["input"][0]["tool_input"].to_string(),
                _ => continue,
            };
            if shown.trim().is_empty() {
                continue;
            }
            out.line(&format!(
                "  {} {}",
                out.dim(&format!("{:<9}", text(&s["name"], 24))),
                cut_chars(&shown.split_whitespace().collect::<Vec<_>>().join(" "), 160)
            ))?;
        }
    }
    Ok(())
}

fn blocks_text(blocks: &Value, member: &str) -> String {
    blocks
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|b| b[member].as_str())
        .collect::<Vec<_>>()
        .join(" ")
}
