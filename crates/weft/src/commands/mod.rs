//! The commands, one file each.

pub(crate) mod alias;
pub(crate) mod code;
pub(crate) mod config;
pub(crate) mod decide;
pub(crate) mod decisions;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod draft;
pub(crate) mod hook;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod local;
pub(crate) mod mcp;
pub(crate) mod migrate;
pub(crate) mod search;
pub(crate) mod serve;
pub(crate) mod sessions;
pub(crate) mod skill;
pub(crate) mod spans;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod token;

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use weft_engine::{CatchUp, Engine};

use crate::out;
use crate::progress::Bar;
use crate::report::{hinted, usage};
use crate::settings::{Settings, Source};

/// Version that is told to clients.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Starts logging to standard error. `default` is the level of commands that a person waits for.
pub(crate) fn log(settings: &Settings, default: &str) -> Result<()> {
    let colors = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    log_with(settings, default, colors, std::io::stderr)
}

/// Starts logging to a file.
pub(crate) fn log_to(settings: &Settings, path: &Path) -> Result<()> {
    let file =
        std::fs::File::create(path).with_context(|| format!("creating {}", path.display()))?;
    log_with(settings, "info", false, std::sync::Mutex::new(file))
}

fn log_with(
    settings: &Settings,
    default: &str,
    colors: bool,
    writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
) -> Result<()> {
    let (level, source) = settings.get("logging.level")?;
    let level = if source == Source::Default {
        default.to_owned()
    } else {
        level
    };
    if !matches!(
        level.as_str(),
        "error" | "warn" | "info" | "debug" | "trace"
    ) {
        return Err(usage(
            format!("invalid logging config: level {level:?}"),
            "levels are error, warn, info, debug and trace",
        ));
    }
    let format = settings.text("logging.format")?;
    // tantivy tells every commit, rmcp every error that a client is told; that is their business.
    let filter = EnvFilter::try_new(format!("{level},tantivy=warn,rmcp=error"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(colors);
    // A second call in one process (tests) changes nothing.
    let _ = match format.as_str() {
        "json" => builder.json().try_init(),
        "text" | "auto" | "console" => builder.with_target(false).try_init(),
        other => {
            return Err(usage(
                format!("invalid logging config: format {other:?}"),
                "formats are auto, text and json",
            ));
        }
    };
    Ok(())
}

/// Opens the engine on the configured store.
pub(crate) fn open(settings: &Settings) -> Result<Arc<Engine>> {
    let config = settings.engine()?;
    let place = if config.postgres_dsn.is_empty() {
        format!("the store in {}", settings.data_dir().display())
    } else {
        weft_engine::redacted(&config.postgres_dsn)
    };
    Engine::open(settings.data_dir(), config).with_context(|| format!("opening {place}"))
}

/// Brings the projection up to date, with a bar where it takes long. A store that cannot be written
/// still answers from what it has.
pub(crate) fn catch_up(engine: &Engine, quiet: bool) -> Result<CatchUp> {
    let mut bar = Bar::new(quiet);
    match engine.catch_up(None, &mut |what, done, total| bar.tell(what, done, total)) {
        Ok(done) => Ok(done),
        Err(e) if e.is_write_only() => {
            bar.clear();
            out::note(&format!("note: the index was not brought up to date: {e}"));
            Ok(CatchUp::default())
        }
        Err(e) => Err(e.into()),
    }
}

/// Runs async work to its end.
pub(crate) fn block_on<T>(f: impl Future<Output = T>) -> Result<T> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(f))
}

/// A session by its id, or by the beginning of it.
pub(crate) fn session_id(engine: &Engine, given: &str) -> Result<String> {
    let found = engine.store().sessions_by_prefix(given, 2)?;
    match found.as_slice() {
        [one] => Ok(one.row.id.clone()),
        [first, ..] if first.row.id == given => Ok(given.to_owned()),
        [] => Err(hinted(
            format!("session not found: {given}"),
            "`weft sessions list` shows the ids",
        )),
        _ => Err(hinted(
            format!("more than one session begins with {given}"),
            "give more of the id",
        )),
    }
}

/// Reads an instant: what [`weft_engine::time_words`] reads, and of that the beginning.
pub(crate) fn instant(text: &str) -> Result<i64, String> {
    period(text).map(|p| p.0)
}

/// Reads a day, a week, a month: its beginning, and its end where it has one.
pub(crate) fn period(text: &str) -> Result<(i64, Option<i64>), String> {
    match weft_engine::time_words(text) {
        Some((Some(from), to)) => Ok((from, to)),
        _ => Err(
            "want a day (2026-06-01, yesterday, monday, last week), an RFC 3339 time, or an age (7d, 12h, \"3 days ago\")".into(),
        ),
    }
}
