//! Where weft keeps what it knows: the only SQL, the only index files.
//!
//! The embedded store is one folder:
//!
//! | file | what | if lost |
//! | --- | --- | --- |
//! | `weft.db` | **truth**: raw turns, session identities, the derive queue, import marks, decisions | gone for good |
//! | `index.db` | traces, spans, documents, what decisions say, vectors | rebuilt from the truth |
//! | `vectors/` | vectors packed for the scan | rebuilt from `index.db` |
//! | `words/` | the keyword index | rebuilt from `index.db` |
//! | `code/<repository>/` | the code index of a repository | rebuilt from the repository |
//!
//! **Invariant.** A function that stores something returns only when it is durable
//! (`synchronous=FULL` for the truth). **Invariant.** Several processes may have one store open;
//! each sees what the others committed.

pub mod code;
mod codes;
mod db;
mod decisions;
mod doctor;
mod documents;
mod edits;
mod error;
mod models;
mod pack;
mod projection;
mod repositories;
mod schema;
mod sessions;
mod tokens;
mod turns;
mod vector_index;
mod word_index;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use decisions::{
    DecisionEntry, DecisionEvent, DecisionRow, DecisionText, DecisionTruth, Workspace,
};
pub use doctor::{Check, DoctorReport};
pub use documents::{Coverage, Document, Filter, Role, SpanHit, Subagents};
pub use edits::FileEdit;
pub use error::StoreError;
pub use models::{EmbedReport, FailureRow, ModelInfo, PendingText, StoredVectors};
pub use projection::{LinkRow, PayloadRow, SpanRow, TraceRow};
pub use repositories::{Claim, RepositoryRow, Write};
pub use sessions::{
    Boundary, ListQuery, NewSession, SessionFull, SessionKey, SessionRow, SortField, StatsRow,
};
pub use tokens::{Scope, TokenRow};
pub use turns::{ImportMark, NewTurn, QueueEntry, RawTurnInfo, StoredTurn, TurnIndex};

/// Result of a store operation.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The embedded store.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    readers: db::Readers,
    truth: writer::Writer,
    index: writer::Writer,
    words: word_index::WordIndex,
    vectors: vector_index::VectorIndexes,
    /// Tells others that the store is open; the lock goes with the file.
    _in_use: Option<std::fs::File>,
}

impl Store {
    /// Opens the store in `dir`, creating and migrating it where necessary.
    ///
    /// # Errors
    /// [`StoreError::Newer`] where a newer weft wrote it, [`StoreError::ReadOnly`],
    /// [`StoreError::Full`], [`StoreError::Busy`] and [`StoreError::Corrupt`] as found.
    pub fn open(dir: &Path) -> Result<Arc<Self>> {
        db::prepare(dir)?;
        let truth = dir.join(db::TRUTH_FILE);
        let index = dir.join(db::INDEX_FILE);
        Ok(Arc::new(Self {
            _in_use: db::mark_in_use(dir),
            readers: db::Readers::new(&index, &truth),
            truth: writer::Writer::new("weft-truth", truth, db::Sync::Full),
            index: writer::Writer::new("weft-index", index, db::Sync::Normal),
            words: word_index::WordIndex::new(&dir.join("words")),
            vectors: vector_index::VectorIndexes::new(&dir.join("vectors")),
            dir: dir.to_owned(),
        }))
    }

    /// The folder of the store.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the truth can be read at this moment.
    pub fn ping(&self) -> Result<()> {
        self.readers
            .with(|c| Ok(c.query_row("SELECT 1 FROM truth.sqlite_master LIMIT 1", [], |_| Ok(()))?))
    }
}
