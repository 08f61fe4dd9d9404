//! The benchmark: speed beside bare library calls, and quality on labelled questions.
//!
//! It prints tables and never fails on a figure; evaluation data is read from `../shared` and never
//! enters the repository.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints tables"
)]

mod code;
mod code_speed;
mod decisions;
mod fixture;
mod postgres;
mod proxy;
mod quality;
mod speed;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask bench <what>
  code --repos DIR [--questions FILE] [--out DIR] [--tune] [--no-rg] [--verbose]
                     code search on labelled questions, beside ripgrep and its own legs
  code-speed --from CHECKOUT [FILES …]
                     first index, re-index, cold and warm search [default: 1000 10000]
  decisions [--tune] the 1,366 records: nDCG, recall and MRR by kind of question, over the pool and in
                     one's own repository, beside BM25 alone and vectors alone
  postgres [ROWS …]  the shared store beside bare SQL and the embedded one [default: 10000 100000]
  proxy              the capture proxy beside a direct connection: first byte, last byte, memory a stream
  quality            LoCoMo and BEAM: hybrid beside words alone and vectors alone
  speed [ROWS …]     ingest, derive, embed, search, cold start, sizes [default: 10000 100000]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.first().map(String::as_str) {
        Some("code") => code::run(&args[1..]),
        Some("code-speed") => code_speed::run(&args[1..]),
        Some("decisions") => decisions::run(&args[1..]),
        Some("postgres") => postgres::run(&args[1..]),
        Some("proxy") => proxy::run(),
        Some("quality") => quality::run(),
        Some("speed") => speed::run(&args[1..]),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}
