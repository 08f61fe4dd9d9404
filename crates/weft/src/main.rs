//! weft on the command line: parse, run, map to an exit code.

mod args;
mod clients;
mod commands;
mod out;
mod progress;
mod render;
mod report;
mod settings;
mod tapesctl;
mod weave;

use std::process::ExitCode;

fn main() -> ExitCode {
    report::exit_code(args::run(std::env::args_os().collect()))
}
