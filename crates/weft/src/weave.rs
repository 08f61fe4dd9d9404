//! weft under the name `weave`: `weave search` and `weave find` as their document shows them.

use std::ffi::OsString;

use anyhow::Result;
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::args::{self, Global};
use crate::commands;
use crate::out::Out;

#[derive(Debug, Parser)]
#[command(name = "weave", version)]
struct Weave {
    #[command(flatten)]
    global: Global,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Find code by what it does, in one call, within a token budget
    Search(commands::code::Search),
    /// Find symbols of the files on disk by name, signature or first doc line
    Find(commands::code::Find),
}

pub(crate) fn run(argv: Vec<OsString>) -> Result<u8> {
    let mut command = Weave::command();
    // `--json` stands before and behind the command; the command's own would clash with the global one.
    for name in ["search", "find"] {
        command = command.mut_subcommand(name, |c| c.mut_arg("json", |a| a.hide(true)));
    }
    let weave: Weave = match args::parse(command, argv) {
        Ok(w) => w,
        Err(code) => return Ok(code),
    };
    let settings = weave.global.settings()?;
    commands::log(&settings, "warn")?;
    let out = Out::new();
    match weave.command {
        Command::Search(mut s) => {
            s.narrow.force_json(weave.json);
            commands::code::search(&s, &settings, out)
        }
        Command::Find(mut f) => {
            f.narrow.force_json(weave.json);
            commands::code::find(&f, &settings, out)
        }
    }
}
