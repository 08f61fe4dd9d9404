//! Checking the shared store, and rebuilding what this machine keeps of it.

use std::path::Path;

use super::PgStore;
use crate::doctor::{check, remove_dir};
use crate::{DoctorReport, Result, StoreError, Upkeep};

impl PgStore {
    fn check_database(&self) -> Result<String> {
        self.pool.read(|c| {
            let r = c.row(
                "SELECT current_database(), current_setting('server_version'),
                   coalesce((SELECT extversion FROM pg_extension WHERE extname = 'vector'), 'not installed'),
                   pg_size_pretty(pg_database_size(current_database()))",
                &[],
            )?;
            let n = |i: usize| r.as_ref().map_or_else(String::new, |r| r.get::<_, String>(i));
            Ok(format!(
                "database {}, PostgreSQL {}, pgvector {}, {}",
                n(0),
                n(1),
                n(2),
                n(3)
            ))
        })
    }

    fn check_words(&self) -> Result<String> {
        let damaged = self.words.damaged()?;
        if !damaged.is_empty() {
            return Err(StoreError::Corrupt(format!(
                "damaged files: {}",
                damaged.join(", ")
            )));
        }
        let seen = self.words_seen()?;
        let expected: i64 = self.pool.read(|c| {
            Ok(c.number(
                "SELECT count(*) FROM span_documents WHERE org_id = $1 AND derive_seq <= $2",
                &[&self.org, &seen],
            )?)
        })?;
        let indexed = self.words.count()? as i64;
        if indexed < expected {
            return Err(StoreError::Corrupt(format!(
                "{expected} documents were taken from the database, the index holds {indexed}"
            )));
        }
        Ok(format!("{indexed} documents"))
    }
}

impl Upkeep for PgStore {
    fn dir(&self) -> &Path {
        &self.dir
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn ping(&self) -> Result<()> {
        self.pool.read(|c| {
            c.row("SELECT 1", &[])?;
            Ok(())
        })
    }

    fn doctor(&self) -> DoctorReport {
        let mut checks = vec![
            check("truth", self.check_database()),
            check("words", self.check_words()),
        ];
        for mut c in self.local.doctor().checks {
            if c.name == "index" || c.name == "truth" {
                // Of this machine: nothing in it is lost for good.
                c.name = "local";
                checks.push(c);
            }
        }
        DoctorReport { checks }
    }

    fn reset_packed(&self) -> Result<()> {
        self.words.forget();
        remove_dir(&self.dir.join("shared-words"))
    }

    fn close_idle(&self) {
        self.pool.close_idle();
        self.words.forget();
        self.local.close_idle();
    }
}
