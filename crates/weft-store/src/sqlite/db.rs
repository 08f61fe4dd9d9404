//! Opening SQLite: pragmas, migrations, and a pool of reading connections.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::schema;
use crate::{Result, StoreError};

pub(crate) const TRUTH_FILE: &str = "weft.db";
pub(crate) const INDEX_FILE: &str = "index.db";

/// How long a statement waits for another process.
const BUSY: Duration = if cfg!(test) {
    Duration::from_millis(200)
} else {
    Duration::from_secs(10)
};
const MAX_IDLE_READERS: usize = 8;
/// Size that a write-ahead log is cut back to.
const LOG_BYTES: i64 = 64 << 20;

/// How much a commit waits for the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sync {
    /// Every commit survives a power cut.
    Full,
    /// The last commits may be lost by a power cut, never by a killed process.
    Normal,
}

pub(crate) fn open_writer(path: &Path, sync: Sync) -> Result<Connection> {
    let c = Connection::open(path)?;
    c.busy_timeout(BUSY)?;
    write_ahead(&c)?;
    c.pragma_update(
        None,
        "synchronous",
        match sync {
            Sync::Full => "full",
            Sync::Normal => "normal",
        },
    )?;
    c.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    c.pragma_update(None, "foreign_keys", true)?;
    c.pragma_update(None, "temp_store", "memory")?;
    c.set_prepared_statement_cache_capacity(64);
    Ok(c)
}

/// Switches to a write-ahead log. SQLite does not wait for a process that switches the same new file
/// at this moment, whatever the busy timeout (<https://sqlite.org/wal.html>, section 9), so we do.
fn write_ahead(c: &Connection) -> Result<()> {
    let deadline = Instant::now() + BUSY;
    loop {
        match c
            .pragma_update(None, "journal_mode", "wal")
            .map_err(StoreError::from)
        {
            Err(StoreError::Busy(_)) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

fn version(c: &Connection) -> Result<i64> {
    Ok(c.query_row("PRAGMA user_version", [], |r| r.get(0))?)
}

/// Creates or migrates both files. A file that is up to date is not written.
pub(crate) fn prepare(dir: &Path) -> Result<()> {
    create_dir(dir)?;
    migrate(&dir.join(TRUTH_FILE), schema::TRUTH, Sync::Full)?;
    migrate(&dir.join(INDEX_FILE), schema::INDEX, Sync::Normal)
}

/// Creates the folder for its owner only: what agents said is private.
pub(crate) fn create_dir(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).map_err(|e| {
        let e = StoreError::from(e);
        match e {
            StoreError::Other(t) => StoreError::Other(format!("creating {}: {t}", dir.display())),
            StoreError::ReadOnly(t) => {
                StoreError::ReadOnly(format!("creating {}: {t}", dir.display()))
            }
            e => e,
        }
    })
}

/// Makes an empty file that only its owner reads, whatever the mode of its folder; SQLite gives its
/// side files the mode of the database. A file that is there already stays as it is.
pub(crate) fn create_private(path: &Path) -> Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(e.into()),
        _ => Ok(()),
    }
}

const IN_USE_FILE: &str = "in-use.lock";

/// Takes the lock that every process with the store open shares. A store on a read-only medium has
/// none, and needs none: nobody can replace its files.
pub(crate) fn mark_in_use(dir: &Path) -> Option<std::fs::File> {
    let path = dir.join(IN_USE_FILE);
    create_private(&path).ok()?;
    let file = std::fs::File::open(path).ok()?;
    file.lock_shared().ok()?;
    Some(file)
}

/// Takes the lock alone, which is possible only while no process has the store open.
pub(crate) fn lock_alone(dir: &Path) -> Result<std::fs::File> {
    let path = dir.join(IN_USE_FILE);
    create_private(&path)?;
    let file = std::fs::File::open(path)?;
    file.try_lock().map_err(|_| {
        StoreError::Busy("it is open in another process, which has to end first".into())
    })?;
    Ok(file)
}

fn migrate(path: &Path, migrations: &[&str], sync: Sync) -> Result<()> {
    let known = migrations.len() as i64;
    let check = |found: i64| {
        if found > known {
            Err(StoreError::Newer {
                path: path.to_owned(),
                found,
                known,
            })
        } else {
            Ok(found)
        }
    };
    if path.exists() {
        let c = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        c.busy_timeout(BUSY)?;
        if check(version(&c)?)? == known {
            return Ok(());
        }
    }
    create_private(path)?;
    let mut c = open_writer(path, sync)?;
    // One transaction: a process killed in the middle leaves the old version whole, and of two
    // processes that migrate at once the second finds the work done.
    let tx = c.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = check(version(&tx)?)?;
    for sql in &migrations[found as usize..] {
        tx.execute_batch(sql)?;
    }
    tx.pragma_update(None, "user_version", known)?;
    tx.commit()?;
    Ok(())
}

/// Reading connections; each has the index as its main database and the truth attached.
#[derive(Debug)]
pub(crate) struct Readers {
    index: PathBuf,
    truth: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(index: &Path, truth: &Path) -> Self {
        Self {
            index: index.to_owned(),
            truth: truth.to_owned(),
            idle: Mutex::new(Vec::new()),
        }
    }

    fn open(&self) -> Result<Connection> {
        let c = Connection::open_with_flags(
            &self.index,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        c.busy_timeout(BUSY)?;
        c.execute("ATTACH ?1 AS truth", [self.truth.to_string_lossy()])?;
        c.pragma_update(None, "query_only", true)?;
        c.pragma_update(None, "mmap_size", 1_i64 << 30)?;
        c.set_prepared_statement_cache_capacity(64);
        Ok(c)
    }

    /// Runs `f` with a connection of its own.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let idle = self.idle.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let c = match idle {
            Some(c) => c,
            None => self.open()?,
        };
        let result = f(&c);
        let mut idle = self.idle.lock().unwrap_or_else(|e| e.into_inner());
        if idle.len() < MAX_IDLE_READERS {
            idle.push(c);
        }
        result
    }

    /// Closes the idle connections, so that the files can be replaced.
    pub(crate) fn close(&self) {
        self.idle.lock().unwrap_or_else(|e| e.into_inner()).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_may_open_and_close_the_same_file_at_once() {
        let dir = tempfile::tempdir().expect("folder");
        for round in 0..4 {
            let path = dir.path().join(format!("{round}.db"));
            std::thread::scope(|s| {
                for _ in 0..8 {
                    s.spawn(|| {
                        for _ in 0..20 {
                            let c = open_writer(&path, Sync::Normal).expect("opens");
                            c.execute_batch("CREATE TABLE IF NOT EXISTS t (x)")
                                .expect("writes");
                        }
                    });
                }
            });
        }
    }
}
