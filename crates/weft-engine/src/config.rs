//! The typed configuration. Reading files and the environment is the command line's business.

use std::time::Duration;

use weft_embed::{ChatConfig, EmbedConfig};

/// What the engine is told.
#[derive(Clone, PartialEq)]
pub struct Config {
    /// Address of the shared store, as libpq takes it; "" = the embedded one. May hold a password.
    pub postgres_dsn: String,
    /// Provider of vectors.
    pub embedding: EmbedConfig,
    /// Model that writes skills.
    pub chat: ChatConfig,
    /// Largest text that is embedded, bytes; negative = no limit, 0 = the default.
    pub max_text_bytes: i64,
    /// Documents of one page of the embed pass; 0 = the default.
    pub batch_size: usize,
    /// How long a search waits for the query's vector.
    pub search_deadline: Duration,
    /// Largest source file that is read, bytes; 0 = the default (2 MiB).
    pub max_file_bytes: u64,
    /// Threads that read source files; 0 = as many as there are processors, at most 4.
    pub code_threads: usize,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("postgres_dsn", &weft_store::redacted(&self.postgres_dsn))
            .field("embedding", &self.embedding)
            .finish_non_exhaustive()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            postgres_dsn: String::new(),
            embedding: EmbedConfig::default(),
            chat: ChatConfig::default(),
            max_text_bytes: 0,
            batch_size: 0,
            search_deadline: Duration::from_secs(5),
            max_file_bytes: 0,
            code_threads: 0,
        }
    }
}
