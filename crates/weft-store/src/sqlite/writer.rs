//! One thread per file that writes: it groups waiting writes into one commit.
//!
//! Grouping is what makes durable ingest fast: the cost of a commit is the disk's, and eight
//! clients that wait share one.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use rusqlite::{Connection, TransactionBehavior};

use super::db::{self, Sync};
use crate::{Result, StoreError};

/// Writes that may wait.
const QUEUE: usize = 256;
/// Most writes in one commit.
const GROUP: usize = 512;

/// Tells a waiting caller how the commit went.
type Done = Box<dyn FnOnce(Result<()>) + Send>;
type Job = Box<dyn FnOnce(Result<&Connection>) -> Done + Send>;

/// Handle of a writing thread, which starts with the first write.
#[derive(Debug)]
pub(crate) struct Writer {
    name: &'static str,
    path: PathBuf,
    sync: Sync,
    thread: OnceLock<(SyncSender<Job>, Option<JoinHandle<()>>)>,
}

impl Writer {
    pub(crate) fn new(name: &'static str, path: PathBuf, sync: Sync) -> Self {
        Self {
            name,
            path,
            sync,
            thread: OnceLock::new(),
        }
    }

    fn queue(&self) -> Result<&SyncSender<Job>> {
        if let Some((q, _)) = self.thread.get() {
            return Ok(q);
        }
        let (tx, rx) = sync_channel(QUEUE);
        let (path, sync) = (self.path.clone(), self.sync);
        // A thread that loses the race to be the first ends at once: nobody has its queue.
        let handle = std::thread::Builder::new()
            .name(self.name.into())
            .spawn(move || run(&path, sync, &rx))?;
        Ok(&self.thread.get_or_init(|| (tx, Some(handle))).0)
    }

    /// Runs `f` in a transaction and returns when it is committed; waits where the queue is full.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        f: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.submit(f, |q, job| q.send(job).map_err(|_| gone()))
    }

    /// As [`Self::run`], but fails with [`StoreError::QueueFull`] instead of waiting for a place.
    pub(crate) fn try_run<T: Send + 'static>(
        &self,
        f: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.submit(f, |q, job| {
            q.try_send(job).map_err(|e| match e {
                TrySendError::Full(_) => StoreError::QueueFull,
                TrySendError::Disconnected(_) => gone(),
            })
        })
    }

    fn submit<T: Send + 'static>(
        &self,
        f: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
        send: impl FnOnce(&SyncSender<Job>, Job) -> Result<()>,
    ) -> Result<T> {
        let (reply, answer) = sync_channel::<Result<T>>(1);
        let job: Job = Box::new(move |c| {
            let result = c.and_then(|c| in_savepoint(c, f));
            Box::new(move |committed| {
                // A caller that no longer waits needs no answer.
                let _ = reply.send(result.and_then(|v| committed.map(|()| v)));
            })
        });
        send(self.queue()?, job)?;
        answer.recv().map_err(|_| gone())?
    }
}

impl Drop for Writer {
    /// Waits for the thread, which leaves a small log behind for whoever opens the file next.
    fn drop(&mut self) {
        if let Some((queue, handle)) = self.thread.take() {
            drop(queue);
            let _ = handle.map(JoinHandle::join);
        }
    }
}

fn gone() -> StoreError {
    StoreError::Other("the writing thread has ended".into())
}

/// One caller's failure must not undo what the others of its group wrote.
fn in_savepoint<T>(c: &Connection, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
    c.execute_batch("SAVEPOINT job")?;
    match f(c) {
        Ok(v) => {
            c.execute_batch("RELEASE job")?;
            Ok(v)
        }
        Err(e) => {
            // SQLite may already have rolled back the whole transaction (disk full, I/O error).
            if !c.is_autocommit() {
                c.execute_batch("ROLLBACK TO job; RELEASE job")?;
            }
            Err(e)
        }
    }
}

fn run(path: &std::path::Path, sync: Sync, queue: &Receiver<Job>) {
    let mut connection: Option<Connection> = None;
    while let Ok(first) = queue.recv() {
        if connection.is_none() {
            match db::open_writer(path, sync) {
                Ok(c) => connection = Some(c),
                Err(e) => {
                    first(Err(e.clone()))(Err(e));
                    continue;
                }
            }
        }
        let Some(c) = connection.as_mut() else {
            continue;
        };
        if let Err(lost) = group(c, first, queue) {
            tracing::warn!(error = %lost, "reopening {} after a failed commit", path.display());
            connection = None;
        }
    }
    if let Some(c) = connection {
        let _ = c.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
    }
}

fn group(c: &mut Connection, first: Job, queue: &Receiver<Job>) -> Result<()> {
    let tx = match c.transaction_with_behavior(TransactionBehavior::Immediate) {
        Ok(tx) => tx,
        Err(e) => {
            let e = StoreError::from(e);
            first(Err(e.clone()))(Err(e.clone()));
            // A busy file is worth another try with the same connection.
            return if matches!(e, StoreError::Busy(_)) {
                Ok(())
            } else {
                Err(e)
            };
        }
    };
    let mut done = vec![first(Ok(&tx))];
    while done.len() < GROUP && !tx.is_autocommit() {
        match queue.try_recv() {
            Ok(job) => done.push(job(Ok(&tx))),
            Err(_) => break,
        }
    }
    let lost = tx.is_autocommit();
    let committed = if lost {
        drop(tx);
        Err(StoreError::Full(
            "the transaction was rolled back by the database".into(),
        ))
    } else {
        tx.commit().map_err(StoreError::from)
    };
    for d in done {
        d(committed.clone());
    }
    committed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn writer(dir: &std::path::Path) -> (Arc<Writer>, PathBuf) {
        let path = dir.join("w.db");
        let w = Writer::new("test", path.clone(), Sync::Full);
        w.run(|c| Ok(c.execute_batch("CREATE TABLE t (n INTEGER UNIQUE)")?))
            .expect("table");
        (Arc::new(w), path)
    }

    fn insert(w: &Writer, n: i64) -> Result<usize> {
        w.run(move |c| Ok(c.execute("INSERT INTO t VALUES (?1)", [n])?))
    }

    #[test]
    fn a_file_locked_by_another_process_is_busy_and_then_works() {
        let dir = tempfile::tempdir().expect("dir");
        let (w, path) = writer(dir.path());
        let other = Connection::open(path).expect("other");
        other.execute_batch("BEGIN IMMEDIATE").expect("lock");
        assert!(matches!(insert(&w, 1), Err(StoreError::Busy(_))));
        other.execute_batch("ROLLBACK").expect("unlock");
        assert_eq!(insert(&w, 1).expect("insert"), 1);
    }

    #[test]
    fn one_failure_in_a_group_does_not_undo_the_others() {
        let dir = tempfile::tempdir().expect("dir");
        let (w, path) = writer(dir.path());
        let threads: Vec<_> = (0..64)
            .map(|i| {
                let w = w.clone();
                std::thread::spawn(move || insert(&w, i % 32).is_ok())
            })
            .collect();
        let done = threads
            .into_iter()
            .filter_map(|t| t.join().ok())
            .filter(|ok| *ok)
            .count();
        assert_eq!(done, 32);
        drop(w);
        let rows: i64 = Connection::open(path)
            .expect("open")
            .query_row("SELECT count(*) FROM t", [], |r| r.get(0))
            .expect("count");
        assert_eq!(rows, 32);
    }
}
