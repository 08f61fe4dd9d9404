//! `weft migrate`: the embedded store to PostgreSQL, and back.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use weft_engine::{Engine, redacted};

use crate::out::Out;
use crate::progress::Bar;
use crate::report::usage;
use crate::settings::Settings;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft migrate --from ~/.local/share/weft --to postgres://weft@db.example/weft
  weft migrate --from postgres://weft@db.example/weft --to ./backup

Copies turns, sessions, decisions, tokens, repositories and claims, derives what is derived, takes over
the vectors of the configured model, and compares the two stores. Run again after an interruption it
goes on where it was. The source is only read; stop whoever writes to it first. A password may stand in
PGPASSWORD instead of the DSN.")]
pub(crate) struct Migrate {
    /// Folder of an embedded store, or the DSN of a shared one
    #[arg(long, value_name = "DIR|DSN")]
    from: String,
    /// Folder of an embedded store, or the DSN of a shared one
    #[arg(long, value_name = "DIR|DSN")]
    to: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Whether a place is a DSN and not a folder.
fn is_dsn(place: &str) -> bool {
    place.contains("://") || (place.contains('=') && !Path::new(place).exists())
}

fn open(settings: &Settings, place: &str) -> Result<Arc<Engine>> {
    let mut config = settings.engine()?;
    let dir = if is_dsn(place) {
        config.postgres_dsn = place.to_owned();
        settings.data_dir()
    } else {
        config.postgres_dsn = String::new();
        Path::new(place)
    };
    Engine::open(dir, config).with_context(|| format!("opening {}", redacted(place)))
}

pub(crate) fn run(c: &Migrate, settings: &Settings, out: Out) -> Result<u8> {
    if c.from == c.to {
        return Err(usage("--from and --to are the same store", ""));
    }
    if !is_dsn(&c.from) && !Path::new(&c.from).join("weft.db").is_file() {
        return Err(usage(
            format!("there is no store in {}", c.from),
            "`weft status` shows where the store is",
        ));
    }
    let from = open(settings, &c.from)?;
    let to = open(settings, &c.to)?;
    // The same name for the same source, however it is spelled.
    let source = std::fs::canonicalize(from.store().dir())?;
    let mut bar = Bar::new(c.json);
    let report = from.migrate_to(&to, &source.to_string_lossy(), &mut |what, done, total| {
        bar.tell(what, done, total);
    });
    bar.clear();
    let r = report.with_context(|| {
        format!(
            "moving {} to {} (run it again to go on)",
            redacted(&c.from),
            redacted(&c.to)
        )
    })?;
    if c.json {
        out.json(&serde_json::to_value(r)?)?;
        return Ok(0);
    }
    out.line(&format!(
        "{} turn(s), {} of them copied now, in {} session(s); {} derived",
        r.turns, r.turns_copied, r.sessions, r.derived
    ))?;
    out.line(&format!(
        "{} decision(s) with {} event(s) in {} workspace(s); {} token(s); {} repository row(s)",
        r.decisions, r.events, r.workspaces, r.tokens, r.repositories
    ))?;
    out.line(&format!("{} text(s) with their vectors", r.vectors))?;
    out.line("compared: every turn, session, decision and token is there as it was")?;
    Ok(0)
}
