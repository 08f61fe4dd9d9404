//! `weft doctor`.

use anyhow::Result;
use clap::Args;
use serde_json::json;
use weft_engine::{DoctorReport, Engine};

use super::{catch_up, open};
use crate::out::{self, Out};
use crate::progress::Bar;
use crate::settings::Settings;

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Rebuild damaged packed vectors and the keyword index
    #[arg(long)]
    fix: bool,
    /// Throw away everything that is derived and build it again from the captured turns
    #[arg(long)]
    rebuild: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(c: &Doctor, settings: &Settings, out: Out) -> Result<u8> {
    if c.rebuild {
        let shared = !settings.text("storage.postgres_dsn")?.is_empty();
        if !shared {
            Engine::remove_index(settings.data_dir())?;
        }
        let engine = open(settings)?;
        if shared {
            // What is derived is in the database and is replaced where it differs.
            engine.store().reset_packed()?;
        }
        engine.sweep(i64::MIN)?;
        catch_up(&engine, c.json)?;
    }
    let engine = open(settings)?;
    let mut bar = Bar::new(c.json);
    let found = engine.doctor(c.fix, &mut |what, done, total| bar.tell(what, done, total))?;
    bar.clear();
    let last = found.repaired.as_ref().unwrap_or(&found.report);
    if c.json {
        out.json(&json!({"checks": last.checks, "repaired": found.repaired.is_some(), "healthy": last.healthy()}))?;
    } else {
        print(out, &found.report)?;
        if let Some(r) = &found.repaired {
            out.line("repaired:")?;
            print(out, r)?;
        }
        if !last.healthy() {
            out::note(if last.rebuildable() {
                "hint: `weft doctor --fix` rebuilds the packed parts, `--rebuild` everything that is derived"
            } else {
                "hint: the captured turns themselves are damaged: restore weft.db from a backup"
            });
        }
    }
    Ok(u8::from(!last.healthy()))
}

fn print(out: Out, r: &DoctorReport) -> Result<()> {
    for c in &r.checks {
        let sign = if c.ok {
            out.style("32", "ok ")
        } else {
            out.style("31", "bad")
        };
        out.line(&format!("{sign} {:<8} {}", c.name, c.detail))?;
    }
    Ok(())
}
