//! The engine over a real store: ingest, derive, embed, search, import, repair.
#![allow(clippy::unwrap_used, reason = "tests")]

mod arrival;
mod code;
mod decisions;
mod embed;
mod everything;
mod import;
mod ingest;
mod search;
mod store;
mod support;
