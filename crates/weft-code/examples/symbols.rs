//! Prints the symbols of files, and how long it took: `cargo run --example symbols -- FILE...`

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use weft_code::extract::{Decoded, decode, extract};

fn main() {
    let started = std::time::Instant::now();
    let (mut symbols, mut bytes) = (0, 0);
    for path in std::env::args().skip(1) {
        let Ok(raw) = std::fs::read(&path) else {
            continue;
        };
        let Decoded::Text(text) = decode(&raw) else {
            continue;
        };
        let found = extract(&path, &text);
        symbols += found.symbols.len();
        bytes += text.len();
        for s in &found.symbols {
            println!(
                "{path}:{}-{} {} {} | {} | {}",
                s.line,
                s.end_line,
                s.kind.name(),
                s.name,
                s.signature,
                s.doc
            );
        }
    }
    println!(
        "{symbols} symbols of {bytes} bytes in {:?}",
        started.elapsed()
    );
}
