//! `weft mcp`: speak MCP, and put weft into the clients that do.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use weft_server::{Cassettes, Options, Profile};

use super::{VERSION, block_on, open};
use crate::args::ProfileArg;
use crate::clients::{self, Client, Place, Places, Scope, Server, Wanted};
use crate::out::{self, Out};
use crate::report::usage;
use crate::settings::Settings;

/// Time between two looks at the documents of cassettes.
const CASSETTE_REFRESH: std::time::Duration = std::time::Duration::from_secs(30);

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  weft mcp                              what a client starts
  weft mcp install                      in every client that is used on this machine
  weft mcp install claude codex --scope project
  weft mcp install all --url https://weft.example.com/mcp --token-env WEFT_TOKEN
  weft mcp uninstall all")]
pub(crate) struct Mcp {
    #[command(subcommand)]
    command: Option<McpCommand>,
    /// Which tools
    #[arg(long, value_enum, default_value_t)]
    profile: ProfileArg,
}

#[derive(Debug, Subcommand)]
enum McpCommand {
    /// Put weft into the configuration of clients, hooks included; shows what changes
    Install(Install),
    /// Take weft out of the configuration of clients
    Uninstall(Uninstall),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClientArg {
    Claude,
    Codex,
    Cursor,
    Vscode,
    Gemini,
    Opencode,
    /// Each of them
    All,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ScopeArg {
    /// Everything that you do
    #[default]
    User,
    /// This repository, for everybody who works in it
    Project,
}

#[derive(Debug, Args)]
struct Which {
    /// Clients [default: those that are used on this machine]
    #[arg(value_enum)]
    clients: Vec<ClientArg>,
    /// For whom
    #[arg(long, value_enum, default_value_t)]
    scope: ScopeArg,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Install {
    #[command(flatten)]
    which: Which,
    /// Which tools
    #[arg(long, value_enum, default_value_t)]
    profile: ProfileArg,
    /// Ask a server at this address instead of starting a program, such as http://localhost:8081/mcp
    #[arg(long, value_name = "URL", conflicts_with = "profile")]
    url: Option<String>,
    /// Environment variable that holds the server's token
    #[arg(long, value_name = "NAME", requires = "url")]
    token_env: Option<String>,
    /// Leave the hooks out: the briefing at the start of a session, and decisions before an edit
    #[arg(long)]
    no_hooks: bool,
}

#[derive(Debug, Args)]
struct Uninstall {
    #[command(flatten)]
    which: Which,
}

pub(crate) fn run(c: Mcp, settings: &Settings, out: Out) -> Result<u8> {
    match c.command {
        None => speak(settings, c.profile),
        Some(McpCommand::Install(i)) => {
            let wanted = wanted(&i)?;
            change(&i.which, &wanted, true, out)
        }
        Some(McpCommand::Uninstall(u)) => {
            // What is taken out is known by its name, not by what it says.
            let anything = Wanted {
                server: Server::Program {
                    command: String::new(),
                    args: Vec::new(),
                },
                hooks: Some(String::new()),
            };
            change(&u.which, &anything, false, out)
        }
    }
}

fn speak(settings: &Settings, profile: ProfileArg) -> Result<u8> {
    let profile = match profile {
        ProfileArg::Spans => Profile::Spans,
        ProfileArg::Code => Profile::Code,
        ProfileArg::Decisions => Profile::Decisions,
        ProfileArg::All => Profile::All,
    };
    let engine = open(settings)?;
    // Answers come at once; what is not indexed yet is brought in behind them.
    let background = engine.clone();
    std::thread::spawn(move || {
        if let Err(e) = background.catch_up(None, &mut |_, _, _| {}) {
            tracing::warn!(error = %e, "the index was not brought up to date");
        }
    });
    let cassettes = Cassettes::new(&settings.cassettes()?, Some(CASSETTE_REFRESH))
        .map_err(|e| usage(e, "see cassettes in the configuration file"))?;
    let options = Options {
        engine,
        token: None,
        version: VERSION,
        cassettes,
    };
    block_on(weft_server::serve_stdio(options, profile))??;
    Ok(0)
}

/// This program as another one starts it: by its name where it is shared, else where it is.
fn program(scope: ScopeArg) -> Result<String> {
    if scope == ScopeArg::Project {
        return Ok(clients::NAME.to_owned());
    }
    let exe = std::env::current_exe().context("finding this program")?;
    // The name under which it is found stays when an update moves the file that it leads to.
    let real = exe.canonicalize().ok();
    let named = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path)
            .map(|d| d.join(clients::NAME))
            .find(|p| p.is_absolute() && real.is_some() && p.canonicalize().ok() == real)
    });
    Ok(named.unwrap_or(exe).to_string_lossy().into_owned())
}

fn wanted(i: &Install) -> Result<Wanted> {
    let program = program(i.which.scope)?;
    let server = match &i.url {
        Some(url) => {
            let rest = url
                .strip_prefix("https://")
                .or_else(|| url.strip_prefix("http://"));
            if rest.is_none_or(|r| {
                r.is_empty() || r.starts_with('/') || r.contains(char::is_whitespace)
            }) {
                return Err(usage(
                    format!("{url:?} is no address"),
                    "give one such as http://localhost:8081/mcp",
                ));
            }
            Server::Address {
                url: url.clone(),
                token: i.token_env.clone(),
            }
        }
        None => {
            let mut args = vec!["mcp".to_owned()];
            let name = i
                .profile
                .to_possible_value()
                .map(|v| v.get_name().to_owned());
            if let Some(name) = name.filter(|n| n != "all") {
                args.extend(["--profile".to_owned(), name]);
            }
            Server::Program {
                command: program.clone(),
                args,
            }
        }
    };
    Ok(Wanted {
        server,
        hooks: (!i.no_hooks).then_some(program),
    })
}

fn folder(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|v| !v.is_empty())
        .map(PathBuf::from)
}

fn places() -> Result<Places> {
    let home = folder("HOME")
        .or_else(|| folder("USERPROFILE"))
        .ok_or_else(|| usage("HOME is not set", "set it to your home folder"))?;
    let config = folder("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
    let vscode = if cfg!(target_os = "macos") {
        home.join("Library/Application Support/Code/User")
    } else if cfg!(windows) {
        folder("APPDATA")
            .unwrap_or_else(|| home.clone())
            .join("Code")
            .join("User")
    } else {
        config.join("Code/User")
    };
    let here = std::env::current_dir().context("reading the current folder")?;
    let project = here
        .ancestors()
        .find(|f| f.join(".git").exists())
        .unwrap_or(&here)
        .to_owned();
    Ok(Places {
        claude: folder("CLAUDE_CONFIG_DIR"),
        codex: folder("CODEX_HOME"),
        home,
        config,
        vscode,
        project,
    })
}

/// The clients that are meant, each once.
fn chosen(which: &Which, at: &Places) -> Result<Vec<Client>> {
    let mut all: Vec<Client> = match which.clients.as_slice() {
        [] => Client::ALL
            .map(|c| c.1)
            .into_iter()
            .filter(|c| at.has(*c))
            .collect(),
        given if given.contains(&ClientArg::All) => Client::ALL.map(|c| c.1).to_vec(),
        given => given
            .iter()
            .map(|c| match c {
                ClientArg::Claude | ClientArg::All => Client::Claude,
                ClientArg::Codex => Client::Codex,
                ClientArg::Cursor => Client::Cursor,
                ClientArg::Vscode => Client::Vscode,
                ClientArg::Gemini => Client::Gemini,
                ClientArg::Opencode => Client::Opencode,
            })
            .collect(),
    };
    all.sort_unstable();
    all.dedup();
    if all.is_empty() {
        return Err(usage(
            "no client is used on this machine",
            "name them: `weft mcp install claude codex cursor vscode gemini opencode`, or `all`",
        ));
    }
    Ok(all)
}

/// Puts weft into clients, or takes it out.
fn change(which: &Which, wanted: &Wanted, install: bool, out: Out) -> Result<u8> {
    let at = places()?;
    let scope = match which.scope {
        ScopeArg::User => Scope::User,
        ScopeArg::Project => Scope::Project,
    };
    // A file that holds both a server and hooks is changed once.
    let mut files: BTreeMap<(Client, PathBuf), Vec<Place>> = BTreeMap::new();
    for c in chosen(which, &at)? {
        for t in clients::targets(c, scope, &at, wanted) {
            files.entry((c, t.path)).or_default().push(t.place);
        }
    }
    let mut failed = 0;
    let mut told: Vec<Value> = Vec::new();
    for ((client, path), places) in &files {
        let done = one(client, path, places, install, which.dry_run);
        match &done {
            Ok(change) if !which.json => show(*client, path, change, install, which.dry_run, out)?,
            Err(e) if !which.json => {
                out::note(&format!(
                    "error: {}: {e:#}; it is left as it is",
                    path.display()
                ));
            }
            _ => {}
        }
        let mut v = json!({"client": client.title(), "path": path});
        match done {
            Ok(c) => {
                v["changed"] = json!(c.is_one());
                v["lines"] = json!(c.lines());
            }
            Err(e) => {
                failed += 1;
                v["error"] = json!(format!("{e:#}"));
            }
        }
        told.push(v);
    }
    if which.json {
        out.json(&json!({"files": told, "dry_run": which.dry_run}))?;
    } else if install && failed == 0 && !which.dry_run {
        out.line("Restart the clients, or start a new session; `weft mcp uninstall` undoes this.")?;
    }
    Ok(u8::from(failed > 0))
}

fn one(
    client: &Client,
    path: &std::path::Path,
    places: &[Place],
    install: bool,
    dry_run: bool,
) -> Result<clients::Change> {
    let before = match std::fs::read_to_string(path) {
        Ok(t) => Some(t),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(e.into()),
    };
    let all: Vec<&Place> = places.iter().collect();
    // Claude Code keeps much else in this file: it is never removed.
    let keep = *client == Client::Claude && path.ends_with(".claude.json");
    let change = clients::plan(before, &all, install, keep).map_err(anyhow::Error::msg)?;
    if change.is_one() && !dry_run {
        clients::write(path, change.after.as_deref())?;
    }
    Ok(change)
}

fn show(
    client: Client,
    path: &std::path::Path,
    change: &clients::Change,
    install: bool,
    dry_run: bool,
    out: Out,
) -> Result<()> {
    let what = match (change.is_one(), &change.after, install, dry_run) {
        (false, _, true, _) => "as wanted already",
        (false, _, false, _) => "holds nothing of weft",
        (true, None, _, true) => "would be removed",
        (true, None, _, false) => "removed",
        (true, Some(_), _, true) => "would be changed",
        (true, Some(_), _, false) if change.before.is_none() => "written",
        (true, Some(_), _, false) => "changed",
    };
    out.line(&format!(
        "{}  {}  {what}",
        out.bold(client.title()),
        path.display()
    ))?;
    for l in change.lines() {
        let colored = match l.starts_with('+') {
            true => out.style("32", &l),
            false => out.style("31", &l),
        };
        out.line(&format!("  {colored}"))?;
    }
    Ok(())
}
