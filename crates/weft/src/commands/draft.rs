//! `weft draft`: who is writing what, and `weft purge`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;
use weft_engine::code::paths;
use weft_engine::{CodeRepo, Engine};

use super::code::repository;
use super::open;
use crate::out::{self, Out};
use crate::report::{hinted, usage};
use crate::settings::Settings;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  weft draft claim src/cart.ts --agent b1
  weft draft list
  weft draft release --agent b1")]
pub(crate) enum Draft {
    /// Say that an agent is writing these files or folders
    Claim {
        /// Files or folders
        #[arg(required = true)]
        paths: Vec<String>,
        /// Name of the agent
        #[arg(long, env = "WEFT_AGENT")]
        agent: String,
    },
    /// Take claims back
    Release {
        /// Files or folders [default: all]
        paths: Vec<String>,
        /// Only those of this agent
        #[arg(long, env = "WEFT_AGENT")]
        agent: Option<String>,
    },
    /// List what is on disk and not in its branch yet, in every checkout, with who holds it
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft purge secrets/ config/keys.json
  weft purge --yes secrets/")]
pub(crate) struct Purge {
    /// Files or folders of the repository where you are
    #[arg(required = true)]
    paths: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Paths as they are typed in a folder of the checkout, relative to its top.
fn from_top(repo: &CodeRepo, given: &[String]) -> Result<Vec<String>> {
    let here = std::env::current_dir()?;
    let inside = repo
        .root
        .as_deref()
        .and_then(|r| here.strip_prefix(r).ok())
        .map(Path::to_string_lossy)
        .unwrap_or_default()
        .into_owned();
    let mut out = Vec::new();
    for g in given {
        let relative = match (Path::new(g).is_absolute(), &repo.root) {
            (true, Some(root)) => PathBuf::from(g)
                .strip_prefix(root)
                .map(|p| p.to_string_lossy().into_owned())
                .map_err(|_| {
                    usage(
                        format!("{g} is not inside of the repository"),
                        "give paths of this checkout",
                    )
                })?,
            _ if inside.is_empty() => g.clone(),
            _ => format!("{inside}/{g}"),
        };
        let clean =
            paths::prefixes(&[relative]).map_err(|e| usage(e, "give paths of this checkout"))?;
        match clean.into_iter().next() {
            Some(p) => out.push(p),
            None => {
                return Err(usage(
                    format!("{g:?} is the whole repository"),
                    "name files or folders of it",
                ));
            }
        }
    }
    Ok(out)
}

fn here(settings: &Settings) -> Result<(std::sync::Arc<Engine>, CodeRepo)> {
    let engine = open(settings)?;
    let repo = repository(&engine, None)?;
    Ok((engine, repo))
}

pub(crate) fn run(c: Draft, settings: &Settings, out: Out) -> Result<u8> {
    let (engine, repo) = here(settings)?;
    match c {
        Draft::Claim { paths, agent } => {
            let paths = from_top(&repo, &paths)?;
            engine.claim_drafts(&repo, &paths, &agent)?;
            for p in paths {
                out.line(&format!("{p}  held by {agent}"))?;
            }
        }
        Draft::Release { paths, agent } => {
            let paths = from_top(&repo, &paths)?;
            let n = engine.release_drafts(&repo, &paths, agent.as_deref())?;
            out.line(&format!("{n} claim(s) released"))?;
            if n == 0 {
                out::note("hint: `weft draft list` shows what is held");
            }
        }
        Draft::List { json } => {
            let rows = engine.list_drafts(&repo)?;
            if json {
                let all: Vec<_> = rows
                    .iter()
                    .map(|d| {
                        let mut v =
                            json!({"checkout": d.checkout, "path": d.path, "state": d.state});
                        if !d.agent.is_empty() {
                            v["agent"] = json!(d.agent);
                        }
                        v
                    })
                    .collect();
                out.json(&json!(all))?;
            } else {
                for d in rows {
                    let who = if d.agent.is_empty() { "-" } else { &d.agent };
                    out.line(&format!(
                        "{:<8} {:<16} {}  {}",
                        d.state, who, d.path, d.checkout
                    ))?;
                }
            }
        }
    }
    Ok(0)
}

pub(crate) fn purge(c: &Purge, settings: &Settings, out: Out) -> Result<u8> {
    let (engine, repo) = here(settings)?;
    let paths = from_top(&repo, &c.paths)?;
    if !c.yes {
        if !out::interactive() {
            return Err(hinted(
                "purging cannot be undone and nobody can be asked here",
                "give --yes to purge without being asked",
            ));
        }
        out::note(&format!(
            "Remove {} from the index of every branch and keep it out from now on? [y/N]",
            paths.join(", ")
        ));
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        if !line.trim().to_lowercase().starts_with('y') {
            return Ok(1);
        }
    }
    let p = engine.code_purge(&repo, &paths)?;
    out.line(&format!(
        "purged {}: {} file version(s), {} symbol(s), {} vector(s)",
        paths.join(", "),
        p.files,
        p.symbols,
        p.vectors
    ))?;
    Ok(0)
}
