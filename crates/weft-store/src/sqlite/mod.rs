//! The embedded store: two SQLite files, packed vectors and the keyword index in one folder.

mod corrections;
pub(crate) mod db;
mod decisions;
mod doctor;
mod documents;
mod edits;
pub(crate) mod models;
mod projection;
mod repositories;
mod schema;
mod sessions;
mod tokens;
mod transfer;
mod turns;
mod vector_index;
mod words;
mod writer;

use std::path::{Path, PathBuf};

pub(crate) use transfer::source_name;

use rusqlite::ErrorCode;

use crate::words::WordIndex;
use crate::{Result, StoreError};

/// The embedded store.
#[derive(Debug)]
pub struct SqliteStore {
    dir: PathBuf,
    readers: db::Readers,
    truth: writer::Writer,
    index: writer::Writer,
    words: WordIndex,
    vectors: vector_index::VectorIndexes,
    /// Tells others that the store is open; the lock goes with the file.
    _in_use: Option<std::fs::File>,
}

impl SqliteStore {
    /// Opens the store in `dir`, creating and migrating it where necessary.
    ///
    /// # Errors
    /// [`StoreError::Newer`] where a newer weft wrote it, [`StoreError::ReadOnly`],
    /// [`StoreError::Full`], [`StoreError::Busy`] and [`StoreError::Corrupt`] as found.
    pub fn open(dir: &Path) -> Result<Self> {
        db::prepare(dir)?;
        let truth = dir.join(db::TRUTH_FILE);
        let index = dir.join(db::INDEX_FILE);
        Ok(Self {
            _in_use: db::mark_in_use(dir),
            readers: db::Readers::new(&index, &truth),
            truth: writer::Writer::new("weft-truth", truth, db::Sync::Full),
            index: writer::Writer::new("weft-index", index, db::Sync::Normal),
            words: WordIndex::new(&dir.join("words")),
            vectors: vector_index::VectorIndexes::new(&dir.join("vectors")),
            dir: dir.to_owned(),
        })
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(e: rusqlite::Error) -> Self {
        let text = e.to_string();
        match e.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(text),
            Some(ErrorCode::DiskFull) => Self::Full(text),
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Self::ReadOnly(text)
            }
            Some(ErrorCode::SystemIoFailure) => Self::Io(text),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt(text),
            _ => Self::Other(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart_by_what_can_be_done() {
        let of = |code: i32| {
            StoreError::from(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(code),
                None,
            ))
        };
        // Codes of https://www.sqlite.org/rescode.html
        assert!(matches!(of(5), StoreError::Busy(_)));
        assert!(matches!(of(8), StoreError::ReadOnly(_)));
        assert!(matches!(of(10), StoreError::Io(_)));
        assert!(matches!(of(11), StoreError::Corrupt(_)));
        assert!(matches!(of(13), StoreError::Full(_)));
        for code in [5, 8, 10, 11, 13] {
            assert!(of(code).hint().is_some(), "{code}");
        }
    }
}
