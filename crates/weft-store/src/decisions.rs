//! Decisions: the records that the store keeps (truth), and what was read of every record (projection).
//!
//! **Invariant.** A record that was stored is never lost: a change writes the new body and an event in
//! one transaction, and only a purge removes one.

use weft_core::time::Micros;

use crate::{ModelInfo, Result};

/// A set of decisions, bound to a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Its name in addresses.
    pub slug: String,
    /// Its repository; "" = none.
    pub repo_id: String,
}

/// A record of the truth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionTruth {
    /// Path of the record.
    pub path: String,
    /// Id.
    pub id: String,
    /// When it was made.
    pub created_at: Micros,
    /// Its text; `None` = it is a file of the repository.
    pub body: Option<Vec<u8>>,
    /// SHA-256 of the body; `None` where there is none.
    pub body_hash: Option<Vec<u8>>,
    /// What its files looked like when it was made or reaffirmed, JSON; "" = not known.
    pub baseline: String,
}

/// Something that happened to a decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionEvent {
    /// Decision.
    pub id: String,
    /// `recorded`, `imported`, `accepted`, `superseded`, `deprecated`, `reaffirmed`, `purged`, …
    pub kind: String,
    /// Who.
    pub made_by: String,
    /// More, for people.
    pub note: String,
    /// When.
    pub at: Micros,
}

/// A record as it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionRow {
    /// Path of the record.
    pub path: String,
    /// Id.
    pub id: String,
    /// When it was made.
    pub created_at: Micros,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change, nanoseconds since 1970.
    pub modified_ns: i64,
    /// Hash of path and bytes.
    pub hash: Vec<u8>,
    /// Why the newest text could not be read; "" = it could.
    pub problem: String,
}

/// What was read of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionText {
    /// Hash of path and bytes.
    pub hash: Vec<u8>,
    /// The record without its text, JSON.
    pub card: String,
    /// Its text.
    pub rationale: String,
    /// Its words, packed.
    pub words: Vec<u8>,
    /// Hash of the texts that are embedded.
    pub pieces_hash: Vec<u8>,
}

/// A record for searching.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecisionEntry {
    /// Where it was seen.
    pub row: DecisionRow,
    /// The record without its text, JSON.
    pub card: String,
    /// Its words, packed.
    pub words: Vec<u8>,
    /// Vectors of its pieces, one behind the other; empty where there are none yet.
    pub vectors: Vec<f32>,
}

/// The records of decisions.
pub trait DecisionRecords {
    /// All workspaces by name.
    fn workspaces(&self) -> Result<Vec<Workspace>>;

    /// The workspace of a repository (or, without one, of a name), made where there is none. A name that
    /// another repository has gets a number.
    fn put_workspace(&self, slug: &str, repo_id: &str, now: Micros) -> Result<Workspace>;

    /// Folders that were named as folders of decisions.
    fn decision_folders(&self, workspace: &str) -> Result<Vec<String>>;

    /// Names a folder as one of decisions.
    fn add_decision_folder(&self, workspace: &str, folder: &str) -> Result<()>;

    /// The records of the truth, without their bodies.
    fn decisions(&self, workspace: &str) -> Result<Vec<DecisionTruth>>;

    /// The text of a record that the store keeps.
    fn decision_body(&self, workspace: &str, path: &str) -> Result<Option<Vec<u8>>>;

    /// Writes records and what happened, in one durable transaction. An existing record keeps its id.
    fn put_decisions(
        &self,
        workspace: &str,
        records: Vec<DecisionTruth>,
        events: Vec<DecisionEvent>,
    ) -> Result<()>;

    /// Writes a new record of which no path like it is there; `false` = there is one.
    fn create_decision(
        &self,
        workspace: &str,
        r: &DecisionTruth,
        e: &DecisionEvent,
    ) -> Result<bool>;

    /// Gives a record another path: the file was renamed. What had that path goes; without a record at
    /// `from` nothing happens.
    fn move_decision(&self, workspace: &str, from: &str, to: &str) -> Result<()>;

    /// Removes a record for good; only the event stays.
    fn purge_decision(&self, workspace: &str, path: &str, e: &DecisionEvent) -> Result<()>;

    /// What happened to a decision, oldest first.
    fn decision_events(&self, workspace: &str, id: &str) -> Result<Vec<DecisionEvent>>;

    /// Number of decisions that the store knows of, in all workspaces.
    fn count_decisions(&self) -> Result<u64>;
}

/// What this machine read of the records: a projection of the store and of the checkouts that are
/// seen here.
pub trait DecisionIndex {
    /// Records as they were seen last in a checkout ("" = in the store), and whether this reader read
    /// them.
    fn decision_rows(
        &self,
        workspace: &str,
        checkout: &str,
        reader: u32,
    ) -> Result<Vec<(DecisionRow, bool)>>;

    /// Replaces rows of a checkout, removes others and writes what was read; texts that no row has any
    /// more go.
    fn write_decision_rows(
        &self,
        workspace: &str,
        checkout: &str,
        rows: Vec<DecisionRow>,
        gone: Vec<String>,
        texts: Vec<DecisionText>,
        reader: u32,
    ) -> Result<()>;

    /// Every record in view of a checkout: those of the store and those of its files. With a model, its
    /// vectors too.
    fn decision_entries(
        &self,
        workspace: &str,
        checkout: &str,
        model: Option<&ModelInfo>,
    ) -> Result<Vec<DecisionEntry>>;

    /// The text of a record by the hash of its path and bytes.
    fn decision_rationale(&self, hash: &[u8]) -> Result<String>;

    /// Records of a workspace that have no vectors of a model: card and text of each, with the hash that
    /// its vectors go under.
    fn decisions_to_embed(&self, model: &ModelInfo, limit: usize) -> Result<Vec<DecisionText>>;

    /// Stores the vectors of records, by the hash of their pieces. No vectors = there is nothing in them
    /// that the model reads.
    fn put_decision_vectors(&self, model: &ModelInfo, all: Vec<(Vec<u8>, Vec<f32>)>) -> Result<()>;
}
