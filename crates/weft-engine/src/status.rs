//! What there is, how fresh it is, and whether it is whole.

use weft_store::{Coverage, DoctorReport, SqliteStore, StoreError};

use crate::{Engine, Progress};

/// Figures about a store.
#[derive(Clone, Debug)]
pub struct Status {
    /// Sessions with traces.
    pub sessions: i64,
    /// Traces.
    pub turns: i64,
    /// Raw turns.
    pub raw_turns: u64,
    /// Cost of everything, US dollars.
    pub cost_usd: f64,
    /// Decisions that are known, in how many workspaces.
    pub decisions: (u64, usize),
    /// How much search can see.
    pub coverage: Coverage,
    /// Identity of the embedding model, or why there is none.
    pub embedder: Result<String, String>,
}

/// What `doctor` found and did.
#[derive(Clone, Debug)]
pub struct Doctor {
    /// Checks before anything was done.
    pub report: DoctorReport,
    /// Checks after a repair, where one was made.
    pub repaired: Option<DoctorReport>,
}

impl Engine {
    /// Figures about the store.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn status(&self) -> Result<Status, StoreError> {
        let stats = self.store.stats(None, None, None)?;
        let model = match self.embedder() {
            Ok(e) => self.store.model(e.identity(), e.dimensions())?,
            Err(_) => None,
        };
        Ok(Status {
            sessions: stats.session_count,
            turns: stats.turn_count,
            raw_turns: self.store.count_turns()?,
            cost_usd: stats.total_cost,
            decisions: (
                self.store.count_decisions()?,
                self.store.workspaces()?.len(),
            ),
            coverage: self.store.coverage(model.map(|m| m.id))?,
            embedder: match self.embedder() {
                Ok(e) => Ok(e.identity().to_owned()),
                Err(e) => Err(e.to_owned()),
            },
        })
    }

    /// Checks the store; with `fix`, rebuilds the packed parts where they are damaged.
    ///
    /// # Errors
    /// A failure of the store while repairing.
    pub fn doctor(&self, fix: bool, progress: Progress<'_>) -> Result<Doctor, StoreError> {
        let report = self.store.doctor();
        let mut repaired = None;
        if fix && !report.healthy() && report.rebuildable() {
            self.store.reset_packed()?;
            self.catch_up(None, progress)?;
            repaired = Some(self.store.doctor());
        }
        Ok(Doctor { report, repaired })
    }

    /// Throws away everything derived in a data directory, so that opening it again starts from the
    /// truth alone.
    ///
    /// # Errors
    /// Where a file cannot be removed.
    pub fn remove_index(data_dir: &std::path::Path) -> Result<(), StoreError> {
        SqliteStore::remove_index(data_dir)
    }
}
