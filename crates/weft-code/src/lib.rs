//! What a repository contains: git, the files on disk, symbols.
//!
//! Reads git and never writes it; runs nothing that a repository holds; follows no symbolic link.

pub mod extract;
pub mod git;
pub mod language;
pub mod owners;
pub mod walk;
pub mod watch;

pub use language::Language;
