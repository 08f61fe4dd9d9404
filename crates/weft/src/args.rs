//! The command line: what can be said, with examples.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use crate::commands;
use crate::out::Out;
use crate::settings::Settings;
use crate::tapesctl;
use crate::weave;

/// The memory of a codebase that coding agents and people share.
///
/// weft finds what was said, what was built and what was decided, and tells why code is as it is.
#[derive(Debug, Parser)]
#[command(name = "weft", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Examples:
  weft search \"how do we handle refunds?\"
  weft why src/refunds.ts::processRefund
  weft decide \"Use JWT\" --rationale \"Stateless tokens work at the edge\" --files src/auth/
  weft code search \"where do we handle refunds?\"
  weft spans search \"how was authentication fixed?\"
  weft import
  weft serve
  weft sessions list")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Folder of the store [default: the platform's data directory] [env: WEFT_DATA_DIR]
    #[arg(long, global = true, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Folder of config.toml [default: ~/.config/weft] [env: WEFT_CONFIG_DIR]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) config_dir: Option<PathBuf>,
    /// The shared store: postgres://USER@HOST/DATABASE, with pgvector [env: WEFT_STORAGE_POSTGRES_DSN]
    #[arg(long, global = true, value_name = "DSN")]
    postgres: Option<String>,
    /// error, warn, info, debug or trace [env: WEFT_LOGGING_LEVEL]
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<String>,
    /// auto, text or json [env: WEFT_LOGGING_FORMAT]
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Search everything: what was said, what was built, what was decided
    Search(Box<commands::search::Search>),
    /// Open what a search found
    Show(commands::search::Show),
    /// Tell why code is as it is: commits, the agent calls that wrote it, decisions
    Why(commands::search::Why),
    /// Record a decision and why it was made
    Decide(Box<commands::decide::Decide>),
    /// Find and keep decisions
    #[command(subcommand)]
    Decisions(commands::decisions::DecisionsCommand),
    /// Find code by what it does or by its names
    #[command(subcommand)]
    Code(commands::code::Code),
    /// Search and read spans: single exchanges with a model
    #[command(subcommand)]
    Spans(commands::spans::Spans),
    /// List sessions and open them
    #[command(subcommand)]
    Sessions(commands::sessions::Sessions),
    /// Make skills of sessions, for agents to follow
    #[command(subcommand)]
    Skill(commands::skill::Skill),
    /// Import transcripts of Claude Code, Codex, Gemini CLI, Copilot CLI, OpenCode, Cline and Aider
    #[command(visible_alias = "sync")]
    Import(commands::import::Import),
    /// Run an agent behind a proxy of its own and keep what is said
    Start(commands::start::Start),
    /// Run the servers: capture proxy, read API and MCP, ingest API, workers
    Serve(Box<commands::serve::Serve>),
    /// Say who is writing what, and list what is not in its branch yet
    #[command(subcommand)]
    Draft(commands::draft::Draft),
    /// Remove paths from the code index for good
    Purge(commands::draft::Purge),
    /// Tokens of the HTTP API
    #[command(subcommand)]
    Token(commands::token::Token),
    /// Speak MCP over standard input and output; put weft into the clients that do
    Mcp(commands::mcp::Mcp),
    /// What agents are told when a session starts, and before they edit a file
    Hook(commands::hook::Hook),
    /// Show what is stored and how fresh the index is
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Also ask this read API
        #[arg(short, long, value_name = "URL")]
        api_target: Option<String>,
    },
    /// Check the store; repair or rebuild what can be rebuilt
    Doctor(commands::doctor::Doctor),
    /// Read and change settings
    #[command(subcommand)]
    Config(commands::config::ConfigCommand),
    /// Store the key of a provider (read from standard input)
    Auth(commands::config::Auth),
    /// Maintenance of the derived parts
    #[command(subcommand)]
    Dev(commands::dev::Dev),
    /// Move a store: embedded to PostgreSQL, or back
    Migrate(commands::migrate::Migrate),
    /// Write a configuration file to start from
    Init(commands::init::Init),
    /// PostgreSQL with pgvector and Ollama in Docker, and the settings to use them
    Local(commands::local::Local),
    /// Links under which weft takes the command lines of other tools
    #[command(subcommand)]
    Alias(commands::alias::Alias),
    /// Print a shell completion script
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Write man pages to a folder
    #[command(hide = true)]
    Man {
        /// Folder
        dir: PathBuf,
    },
}

/// A set of MCP tools.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ProfileArg {
    /// search
    Spans,
    /// search_code and find_symbols
    Code,
    /// search, decide, decisions_stale, decision_reaffirm and decisions_for_file
    Decisions,
    /// All of them, and search over everything
    #[default]
    All,
}

/// What a search does with subagents.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum SubagentsArg {
    /// They count, behind the main conversation
    #[default]
    Include,
    /// They are left out
    Exclude,
    /// Nothing else is searched
    Only,
}

/// Runs the command line and gives the exit code.
pub(crate) fn run(argv: Vec<OsString>) -> Result<u8> {
    let name = argv
        .first()
        .map(PathBuf::from)
        .and_then(|p| Some(p.file_stem()?.to_string_lossy().into_owned()))
        .unwrap_or_default();
    if matches!(name.as_str(), "tapesctl" | "tapes") {
        return tapesctl::run(&name, argv);
    }
    if name == "weave" {
        return weave::run(argv);
    }
    // A client takes 2 from a hook for a veto: wrong use is 1 there.
    let hook = argv.get(1).is_some_and(|a| a == "hook");
    let cli = match parse(Cli::command(), argv) {
        Ok(cli) => cli,
        Err(code) => return Ok(if hook { code.min(1) } else { code }),
    };
    dispatch(cli)
}

/// Parses, or prints what clap has to say and gives the code to exit with.
pub(crate) fn parse<T: clap::FromArgMatches>(
    command: clap::Command,
    argv: Vec<OsString>,
) -> Result<T, u8> {
    let parsed = command
        .try_get_matches_from(argv)
        .and_then(|m| T::from_arg_matches(&m));
    parsed.map_err(|e| {
        // Nothing is left to do where even this cannot be printed.
        let _ = e.print();
        u8::try_from(e.exit_code()).unwrap_or(2)
    })
}

impl Cli {
    pub(crate) fn from(argv: Vec<OsString>) -> Result<Self, u8> {
        let matches = Self::command().try_get_matches_from(argv);
        matches
            .and_then(|m| Self::from_arg_matches(&m))
            .map_err(|e| {
                let _ = e.print();
                u8::try_from(e.exit_code()).unwrap_or(2)
            })
    }
}

impl Global {
    /// Settings under these flags.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let mut s = Settings::load(self.config_dir.clone(), self.data_dir.clone())?;
        s.flag("storage.postgres_dsn", self.postgres.clone());
        s.flag("logging.level", self.log_level.clone());
        s.flag("logging.format", self.log_format.clone());
        Ok(s)
    }
}

pub(crate) fn dispatch(cli: Cli) -> Result<u8> {
    let began = Instant::now();
    let mut settings = match cli.global.settings() {
        // To clients 2 would mean that the edit is refused.
        Err(_) if matches!(cli.command, Command::Hook(_)) => return Ok(0),
        s => s?,
    };
    let out = Out::new();
    match cli.command {
        Command::Search(c) => {
            commands::log(&settings, "warn")?;
            commands::search::run(&c, &mut settings, out)
        }
        Command::Show(c) => {
            commands::log(&settings, "warn")?;
            commands::search::show(&c, &settings, out)
        }
        Command::Why(c) => {
            commands::log(&settings, "warn")?;
            commands::search::why(&c, &settings, out)
        }
        Command::Decide(c) => {
            commands::log(&settings, "warn")?;
            commands::decide::decide(&c, &settings, out)
        }
        Command::Decisions(c) => {
            commands::log(&settings, "warn")?;
            commands::decisions::run(c, &settings, out)
        }
        Command::Code(c) => {
            commands::log(&settings, "warn")?;
            commands::code::run(c, &settings, out)
        }
        Command::Spans(c) => {
            commands::log(&settings, "warn")?;
            commands::spans::run(c, &mut settings, out)
        }
        Command::Sessions(c) => {
            commands::log(&settings, "warn")?;
            commands::sessions::run(c, &settings, out)
        }
        Command::Import(c) => {
            commands::log(&settings, "warn")?;
            commands::import::run(c, &settings, out)
        }
        Command::Start(c) => commands::start::run(c, &settings, "weft"),
        Command::Serve(c) => commands::serve::run(*c, settings),
        Command::Draft(c) => {
            commands::log(&settings, "warn")?;
            commands::draft::run(c, &settings, out)
        }
        Command::Purge(c) => {
            commands::log(&settings, "warn")?;
            commands::draft::purge(&c, &settings, out)
        }
        Command::Token(c) => {
            commands::log(&settings, "warn")?;
            commands::token::run(c, &settings, out)
        }
        Command::Skill(c) => {
            commands::log(&settings, "warn")?;
            commands::skill::run(c, &mut settings, out)
        }
        Command::Mcp(c) => {
            commands::log(&settings, "warn")?;
            commands::mcp::run(c, &settings, out)
        }
        Command::Hook(c) => commands::hook::run(c, &settings, out, began),
        Command::Status { json, api_target } => {
            commands::log(&settings, "warn")?;
            commands::status::run(&settings, out, json, api_target.as_deref())
        }
        Command::Doctor(c) => {
            commands::log(&settings, "warn")?;
            commands::doctor::run(&c, &settings, out)
        }
        Command::Config(c) => commands::config::run(c, &mut settings, out),
        Command::Auth(c) => commands::config::auth(&c, &settings, out),
        Command::Dev(c) => {
            commands::log(&settings, "warn")?;
            commands::dev::run(c, settings, out)
        }
        Command::Migrate(c) => {
            commands::log(&settings, "warn")?;
            commands::migrate::run(&c, &settings, out)
        }
        Command::Init(c) => commands::init::run(&c, &mut settings, out),
        Command::Local(c) => commands::local::run(&c, &mut settings, out),
        Command::Alias(c) => commands::alias::run(&c, out),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "weft", &mut script);
            out.line(String::from_utf8_lossy(&script).trim_end())?;
            Ok(0)
        }
        Command::Man { dir } => {
            std::fs::create_dir_all(&dir)?;
            clap_mangen::generate_to(Cli::command(), dir)?;
            Ok(0)
        }
    }
}
