//! The typed configuration. Reading files and the environment is the command line's business.

use std::time::Duration;

use weft_embed::EmbedConfig;

/// What the engine is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Provider of vectors.
    pub embedding: EmbedConfig,
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

impl Default for Config {
    fn default() -> Self {
        Self {
            embedding: EmbedConfig::default(),
            max_text_bytes: 0,
            batch_size: 0,
            search_deadline: Duration::from_secs(5),
            max_file_bytes: 0,
            code_threads: 0,
        }
    }
}
