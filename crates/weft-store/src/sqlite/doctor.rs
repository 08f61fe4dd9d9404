//! Checking a store, and rebuilding what can be rebuilt.

use std::path::Path;

use rusqlite::Connection;

use super::SqliteStore;
use super::db;
use crate::codes::Segment;
use crate::doctor::{check, remove_dir};
use crate::{DoctorReport, Result, StoreError, Upkeep};

fn integrity(path: &Path) -> Result<String> {
    let c = Connection::open(path)?;
    c.busy_timeout(std::time::Duration::from_secs(10))?;
    let answer: String = c.query_row("PRAGMA integrity_check", [], |r| r.get(0))?;
    if answer == "ok" {
        let size = std::fs::metadata(path).map_or(0, |m| m.len());
        Ok(format!("{} bytes", size))
    } else {
        Err(StoreError::Corrupt(answer))
    }
}

impl Upkeep for SqliteStore {
    fn dir(&self) -> &Path {
        &self.dir
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn ping(&self) -> Result<()> {
        self.readers
            .with(|c| Ok(c.query_row("SELECT 1 FROM truth.sqlite_master LIMIT 1", [], |_| Ok(()))?))
    }

    fn doctor(&self) -> DoctorReport {
        let checks = vec![
            check("truth", integrity(&self.dir.join(db::TRUTH_FILE))),
            check("index", integrity(&self.dir.join(db::INDEX_FILE))),
            check("vectors", self.check_vectors()),
            check("words", self.check_words()),
        ];
        DoctorReport { checks }
    }

    fn reset_packed(&self) -> Result<()> {
        self.index.run(|c| {
            c.execute_batch(
                "DELETE FROM vector_segments; UPDATE documents SET words_done = 0;
                 DELETE FROM removed_documents WHERE vectors_done = 1;
                 UPDATE removed_documents SET words_done = 1;",
            )?;
            Ok(())
        })?;
        self.vectors.forget();
        self.words.forget();
        remove_dir(&self.dir.join("vectors"))?;
        remove_dir(&self.dir.join("words"))
    }

    fn close_idle(&self) {
        self.readers.close();
        self.vectors.forget();
        self.words.forget();
    }
}

impl SqliteStore {
    /// Throws away everything but the truth. The store has to be opened again afterwards, and every
    /// session is queued for derivation.
    ///
    /// # Errors
    /// [`StoreError::Busy`] where another process has the store open.
    pub fn remove_index(dir: &Path) -> Result<()> {
        if !dir.is_dir() {
            return Ok(());
        }
        let _alone = db::lock_alone(dir)?;
        for file in [db::INDEX_FILE, "index.db-wal", "index.db-shm"] {
            match std::fs::remove_file(dir.join(file)) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
                _ => {}
            }
        }
        remove_dir(&dir.join("vectors"))?;
        remove_dir(&dir.join("words"))
    }

    fn check_vectors(&self) -> Result<String> {
        let (segments, stored): (Vec<(String, i64)>, i64) = self.readers.with(|c| {
            let mut q = c.prepare("SELECT file, rows FROM vector_segments")?;
            let rows = q.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?;
            let stored = c.query_row("SELECT count(*) FROM vectors", [], |r| r.get(0))?;
            Ok((rows.collect::<Result<_, _>>()?, stored))
        })?;
        let mut packed = 0;
        for (file, rows) in &segments {
            let s = Segment::open(&self.dir.join("vectors").join(file))?;
            if s.rows() as i64 != *rows {
                return Err(StoreError::Corrupt(format!(
                    "{file} has {} rows, {rows} are listed",
                    s.rows()
                )));
            }
            packed += rows;
        }
        Ok(format!(
            "{stored} vectors, {packed} packed in {} segments",
            segments.len()
        ))
    }

    fn check_words(&self) -> Result<String> {
        let damaged = self.words.damaged()?;
        if !damaged.is_empty() {
            return Err(StoreError::Corrupt(format!(
                "damaged files: {}",
                damaged.join(", ")
            )));
        }
        let done: i64 = self.readers.with(|c| {
            Ok(c.query_row(
                "SELECT count(*) FROM documents WHERE words_done = 1",
                [],
                |r| r.get(0),
            )?)
        })?;
        let indexed = self.words.count()? as i64;
        if indexed < done {
            return Err(StoreError::Corrupt(format!(
                "{done} documents are marked as indexed, the index holds {indexed}"
            )));
        }
        Ok(format!("{indexed} documents"))
    }
}
