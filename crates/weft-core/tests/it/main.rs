//! Derivation against the worked example and the reference's golden files.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cassette;
mod golden;
mod hostile;
mod worked;
