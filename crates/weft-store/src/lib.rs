//! Where weft keeps what it knows: the only SQL, the only index files.
//!
//! A [`Store`] is a set of narrow traits, cut at operations of the product. Two implement them:
//!
//! - [`SqliteStore`], the embedded one: one folder, with nothing to set up.
//!
//! | file | what | if lost |
//! | --- | --- | --- |
//! | `weft.db` | **truth**: raw turns, session identities, the derive queue, import marks, decisions | gone for good |
//! | `index.db` | traces, spans, documents, what decisions say, vectors | rebuilt from the truth |
//! | `vectors/` | vectors packed for the scan | rebuilt from `index.db` |
//! | `words/` | the keyword index | rebuilt from `index.db` |
//! | `code/<repository>/` | the code index of a repository | rebuilt from the repository |
//!
//! - [`PgStore`], the shared one: PostgreSQL with pgvector, and under `shared/<database>/` what a machine
//!   keeps of it and can build again.
//!
//! **Invariant.** A function that stores something returns only when it is durable
//! (`synchronous=FULL` for the truth; the server's own commit). **Invariant.** Several processes may
//! have one store open; each sees what the others committed.

pub mod code;
mod codes;
mod corrections;
mod decisions;
mod doctor;
mod documents;
mod edits;
mod error;
pub mod foreign;
mod pack;
mod postgres;
mod projection;
mod repositories;
mod sessions;
mod sqlite;
mod tokens;
mod transfer;
mod turns;
mod vectors;
mod words;

use std::path::Path;
use std::sync::Arc;

pub use corrections::{Attribution, Correction, Corrections};
pub use decisions::{
    DecisionEntry, DecisionEvent, DecisionIndex, DecisionRecords, DecisionRow, DecisionText,
    DecisionTruth, Workspace,
};
pub use doctor::{Check, DoctorReport, Upkeep};
pub use documents::{
    Coverage, Document, Documents, Filter, Role, SpanHit, Subagents, merge_nearest,
};
pub use edits::{Edits, FileEdit};
pub use error::StoreError;
pub use postgres::{PgStore, redacted};
pub use projection::{LinkRow, PayloadRow, SpanRow, Spans, TraceRow};
pub use repositories::{Claim, Repositories, RepositoryRow, Write};
pub use sessions::{
    Boundary, ListQuery, NewSession, SessionFull, SessionKey, SessionRow, Sessions, SortField,
    StatsRow,
};
pub use sqlite::SqliteStore;
pub use tokens::{Scope, TokenRow, Tokens};
pub use transfer::Transfer;
pub use turns::{
    ImportMark, Imports, Lease, NewTurn, QueueEntry, RawTurnInfo, StoredTurn, TurnIndex, Turns,
};
pub use vectors::{EmbedReport, FailureRow, ModelInfo, PendingText, StoredVectors, Vectors};
pub use words::Words;

/// Result of a store operation.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// A store: the truth, and what is derived from it.
pub trait Store:
    Turns
    + Sessions
    + Spans
    + Documents
    + Vectors
    + Words
    + Edits
    + DecisionRecords
    + DecisionIndex
    + Imports
    + Repositories
    + Tokens
    + Corrections
    + Transfer
    + Upkeep
    + std::fmt::Debug
    + Send
    + Sync
{
}

impl Store for SqliteStore {}

/// Opens the shared store that `dsn` names, else (`dsn` is empty) the embedded one in `dir`; either
/// is created and migrated where necessary.
///
/// # Errors
/// As [`SqliteStore::open`] and [`PgStore::open`].
pub fn open(dir: &Path, dsn: &str) -> Result<Arc<dyn Store>> {
    Ok(if dsn.is_empty() {
        Arc::new(SqliteStore::open(dir)?)
    } else {
        Arc::new(PgStore::open(dsn, dir)?)
    })
}
