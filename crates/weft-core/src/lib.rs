//! What weft's data means: values in, values out.
//!
//! **Invariant.** Nothing here reads a file, a socket, a clock or a random source, and nothing is
//! asynchronous. The same input gives the same output on every machine.

pub mod block;
pub mod cassette;
pub mod code;
pub mod decision;
pub mod derive;
pub mod edits;
pub mod fuse;
pub mod hash;
pub mod project;
pub mod provider;
pub mod redact;
pub mod render;
pub mod skill;
pub mod snippet;
pub mod span;
pub mod sse;
pub mod time;
pub mod words;
