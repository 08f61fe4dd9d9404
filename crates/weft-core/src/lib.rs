//! What weft's data means: values in, values out.
//!
//! **Invariant.** Nothing here reads a file, a socket, a clock or a random source, and nothing is
//! asynchronous. The same input gives the same output on every machine.

pub mod block;
pub mod derive;
pub mod hash;
pub mod project;
pub mod provider;
pub mod render;
pub mod span;
pub mod sse;
pub mod time;
