//! What can go wrong in the store, by what a caller can do about it.

use std::path::PathBuf;

/// A failure of the store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another process held the store for longer than the time-out.
    #[error("the store is locked by another process: {0}")]
    Busy(String),
    /// The queue of waiting writes is full.
    #[error("worker queue full")]
    QueueFull,
    /// No space is left.
    #[error("no space left for the store: {0}")]
    Full(String),
    /// The store cannot be written.
    #[error("the store is read-only: {0}")]
    ReadOnly(String),
    /// The operating system refused to read or write.
    #[error("reading or writing the store failed: {0}")]
    Io(String),
    /// A file of the store is damaged.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// The database server does not answer.
    #[error("the database does not answer: {0}")]
    Unavailable(String),
    /// The address of the database cannot be read.
    #[error("invalid PostgreSQL DSN: {0}")]
    BadDsn(String),
    /// The database refuses this program.
    #[error("the database refuses: {0}")]
    Refused(String),
    /// A newer version wrote the store.
    #[error("{path} has schema version {found}, this weft knows {known}: update weft")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Version found in the file.
        found: i64,
        /// Newest version that this program knows.
        known: i64,
    },
    /// The embedding tables do not exist yet.
    #[error("span embeddings not initialized")]
    NotInitialized,
    /// Vectors of another size are stored.
    #[error(
        "existing table \"span_embeddings\" stores vector({have}) embeddings but {want} dimensions are configured; re-embed into a new table or drop the old one"
    )]
    Dimensions {
        /// Stored size.
        have: usize,
        /// Configured size.
        want: usize,
    },
    /// A query vector does not fit the stored ones.
    #[error("querying span embeddings: different vector dimensions {have} and {want}")]
    QueryDimensions {
        /// Stored size.
        have: usize,
        /// Size of the query vector.
        want: usize,
    },
    /// A cursor of a list does not fit.
    #[error("{0}")]
    BadCursor(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl StoreError {
    /// What a person can do about it, where something can be done.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Busy(_) => "another weft process is writing; try again, or stop it",
            Self::Full(_) => "free some space, or move the store with --data-dir",
            Self::ReadOnly(_) => {
                "check the owner and mode of the data directory, or use --data-dir"
            }
            Self::Io(_) => "is the disk full or failing? free some space, or use --data-dir",
            Self::Corrupt(_) => "run `weft doctor`; what can be rebuilt is rebuilt with `--fix`",
            Self::Unavailable(_) => {
                "is the server running, and is the DSN right? `weft config get storage.postgres_dsn`"
            }
            Self::BadDsn(_) => {
                "write postgres://USER@HOST:5432/DATABASE, or host=HOST user=USER dbname=DATABASE"
            }
            Self::Refused(t) if t.contains("TLS") => {
                "sslmode=disable, require or verify-full, sslrootcert=FILE for a private authority"
            }
            Self::Refused(_) => "check user, password, database and extensions of the DSN",
            Self::Newer { .. } => "the store was written by a newer weft",
            Self::NotInitialized => "run the embed pass: `weft dev embed-spans`, or `weft serve`",
            Self::Dimensions { .. } => {
                "set embedding.dimensions back, or run `weft doctor --rebuild` to embed again"
            }
            _ => return None,
        })
    }

    /// Whether reading may still work while writing does not.
    pub fn is_write_only(&self) -> bool {
        matches!(
            self,
            Self::Busy(_) | Self::Full(_) | Self::ReadOnly(_) | Self::Io(_) | Self::Unavailable(_)
        )
    }

    pub(crate) fn other(e: impl std::fmt::Display) -> Self {
        Self::Other(e.to_string())
    }
}

impl From<std::io::Error> for StoreError {
    fn from(e: std::io::Error) -> Self {
        let text = e.to_string();
        match e.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::Full(text),
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly(text)
            }
            _ => Self::Other(text),
        }
    }
}
