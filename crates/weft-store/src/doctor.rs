//! Checking a store, and rebuilding what can be rebuilt.

use std::path::Path;

use crate::Result;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// Whether it is in order.
    pub ok: bool,
    /// What was found.
    pub detail: String,
}

/// What [`Store::doctor`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DoctorReport {
    /// Everything that was looked at.
    pub checks: Vec<Check>,
}

impl DoctorReport {
    /// Whether everything is in order.
    pub fn healthy(&self) -> bool {
        self.checks.iter().all(|c| c.ok)
    }

    /// Whether every damage is in parts that are rebuilt.
    pub fn rebuildable(&self) -> bool {
        self.checks.iter().all(|c| c.ok || c.name != "truth")
    }
}

/// Checking and repairing a store.
pub trait Upkeep {
    /// The folder on this machine that holds what of the store is kept here.
    fn dir(&self) -> &Path;

    /// Whether processes on several machines share it.
    fn is_shared(&self) -> bool;

    /// Whether the truth can be read at this moment.
    fn ping(&self) -> Result<()>;

    /// Checks both databases, the packed vectors and the keyword index against each other.
    fn doctor(&self) -> DoctorReport;

    /// Throws away the packed vectors and the keyword index and marks everything to be indexed
    /// again from `index.db`.
    fn reset_packed(&self) -> Result<()>;

    /// Lets go of files, so that they can be replaced.
    fn close_idle(&self);
}

pub(crate) fn check(name: &'static str, result: Result<String>) -> Check {
    match result {
        Ok(detail) => Check {
            name,
            ok: true,
            detail,
        },
        Err(e) => Check {
            name,
            ok: false,
            detail: e.to_string(),
        },
    }
}

pub(crate) fn remove_dir(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
        _ => Ok(()),
    }
}
