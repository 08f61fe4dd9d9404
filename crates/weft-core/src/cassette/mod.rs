//! Cassettes: services that extend the read API by an OpenAPI document. What of such a document is
//! admitted, under which paths it is published, and which of its operations are MCP tools.
//!
//! The contract is tapes' `cassette/v1alpha1`. Documents come from other programs: nothing in them is
//! trusted, and no address in them is ever called.

mod aggregate;
mod document;
mod manifest;
mod schema;

pub use aggregate::aggregate;
pub use document::{Document, Tool};
pub use manifest::{Config, ConfigKind, Manifest};

/// Where the paths of a cassette are published.
pub const PREFIX: &str = "/v1/cassettes";
/// The version of the contract that the read API serves.
pub const CONTRACT: &str = "v1";
/// Bytes of a document at most.
pub const MAX_DOCUMENT: usize = 8 << 20;
/// Tools of a document at most.
pub const MAX_TOOLS: usize = 128;

/// Whether a name may be a cassette's: it is a path segment, a database schema and part of a role's name.
pub fn is_name(name: &str) -> bool {
    let b = name.as_bytes();
    (2..=32).contains(&b.len())
        && b[0].is_ascii_lowercase()
        && b[b.len() - 1] != b'-'
        && b.iter()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == b'-')
        && !matches!(name, "public" | "tapes")
        && !name.starts_with("pg_")
}

/// The path under which a cassette is published: `/v1/cassettes/<name>`.
pub fn public_prefix(name: &str) -> String {
    format!("{PREFIX}/{name}")
}
