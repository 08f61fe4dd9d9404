//! `weft token`: tokens of the HTTP API.

use anyhow::Result;
use clap::{Subcommand, ValueEnum};
use serde_json::json;
use weft_engine::{Scope, TokenRow};

use super::open;
use crate::out::{self, Out};
use crate::report::hinted;
use crate::settings::Settings;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  weft token create --scope read --name ci
  weft token create --scope admin --repo 6f1c2f0e-0000-5000-8000-000000000000
  weft token list
  weft token revoke 3f2a")]
pub(crate) enum Token {
    /// Make a token; it is shown once and only its hash is kept
    Create {
        /// What it allows; each scope includes the ones before it
        #[arg(long, value_enum, default_value_t)]
        scope: ScopeArg,
        /// What it is for
        #[arg(long, default_value = "")]
        name: String,
        /// Only code of this repository (`weft code repos` shows the ids); can be repeated
        #[arg(long, value_name = "ID")]
        repo: Vec<String>,
    },
    /// List tokens
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a token worthless
    Revoke {
        /// Its id, or the beginning of it
        id: String,
    },
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ScopeArg {
    /// Reading and searching
    #[default]
    Read,
    /// Also sending turns
    Write,
    /// Also changing, reindexing and purging
    Admin,
}

pub(crate) fn run(c: Token, settings: &Settings, out: Out) -> Result<u8> {
    let engine = open(settings)?;
    match c {
        Token::Create { scope, name, repo } => {
            let known = engine.store().repositories(None)?;
            if let Some(bad) = repo
                .iter()
                .find(|r| !known.iter().any(|k| k.repo_id == **r))
            {
                return Err(hinted(
                    format!("repository not found: {bad}"),
                    "`weft code repos` lists the ids that are known here",
                ));
            }
            let scope = match scope {
                ScopeArg::Read => Scope::Read,
                ScopeArg::Write => Scope::Write,
                ScopeArg::Admin => Scope::Admin,
            };
            let (id, token) = engine.create_token(scope, &name, repo)?;
            out.line(&token)?;
            out::note(&format!(
                "note: id {id}, scope {}; it is not shown again",
                scope.name()
            ));
        }
        Token::List { json } => {
            let rows: Vec<TokenRow> = engine.store().tokens()?;
            if json {
                let all: Vec<_> = rows
                    .iter()
                    .map(|t| {
                        json!({
                            "id": t.id, "name": t.name, "scope": t.scope.name(), "repositories": t.repositories,
                            "created_at": weft_core::time::format_micros(t.created_at),
                        })
                    })
                    .collect();
                out.json(&json!(all))?;
            } else {
                for t in rows {
                    let repos = if t.repositories.is_empty() {
                        "all".to_owned()
                    } else {
                        t.repositories.join(",")
                    };
                    out.line(&format!(
                        "{}  {:<5}  {}  {}",
                        t.id,
                        t.scope.name(),
                        repos,
                        t.name
                    ))?;
                }
            }
        }
        Token::Revoke { id } => {
            let n = if id.is_empty() {
                0
            } else {
                engine.store().remove_token(&id)?
            };
            if n == 0 {
                return Err(hinted(
                    format!("no token has the id {id}"),
                    "`weft token list` shows the ids",
                ));
            }
            out.line(&format!("{n} token(s) revoked"))?;
        }
    }
    Ok(0)
}
