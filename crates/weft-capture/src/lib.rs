//! How turns come in: the ingest envelope, exchanges seen by a proxy, transcript importers, content
//! decoding.
//!
//! **Invariant.** What a producer sent is read leniently and never executed; a broken line, file or
//! turn is reported and skipped, and the rest goes on.

pub mod attribution;
pub mod decode;
pub mod envelope;
pub mod exchange;
pub mod import;
pub mod json;
pub mod repository;
