//! Keeping indexes fresh while a server runs: events of the file system, never a poll of the tree.
//!
//! Only folders that a walk entered are watched, so ignored ones cost nothing. Where the system gives no
//! more watches, the repository goes on without: each search compares the disk again.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use weft_code::watch::Watch;

use super::index::SyncOptions;
use super::{CodeRepo, Live};
use crate::Engine;

/// Events within this time are one change.
const DEBOUNCE: Duration = Duration::from_millis(150);
/// A change that never ends is indexed all the same after this time.
const LONGEST: Duration = Duration::from_secs(2);
/// How often the list of repositories (not their files) is looked at.
const NEWCOMERS: Duration = Duration::from_secs(5);

/// The thread that watches; dropping it ends it.
#[derive(Debug)]
pub struct Watcher {
    stop: Arc<AtomicBool>,
    wake: Sender<PathBuf>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.wake.send(PathBuf::new());
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

struct Watched {
    repo: CodeRepo,
    watch: Watch,
    folders: HashSet<PathBuf>,
}

impl Engine {
    /// Watches the repositories that were seen on this machine and indexes what moves in them.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub fn watch_code(self: &Arc<Self>) -> std::io::Result<Watcher> {
        let (tx, rx) = channel::<PathBuf>();
        let stop = Arc::new(AtomicBool::new(false));
        let (engine, asked, wake) = (self.clone(), stop.clone(), tx.clone());
        let thread = std::thread::Builder::new()
            .name("weft-watch".into())
            .spawn(move || {
                let mut watched: HashMap<PathBuf, Watched> = HashMap::new();
                let mut dirty: HashSet<PathBuf> = HashSet::new();
                let mut first_event: Option<Instant> = None;
                let mut last_look: Option<Instant> = None;
                while !asked.load(Ordering::Acquire) {
                    if last_look.is_none_or(|l| l.elapsed() > NEWCOMERS) {
                        last_look = Some(Instant::now());
                        engine.find_newcomers(&mut watched, &mut dirty, &tx);
                    }
                    let wait = if dirty.is_empty() {
                        NEWCOMERS
                    } else {
                        DEBOUNCE
                    };
                    match rx.recv_timeout(wait) {
                        Ok(root) if root.as_os_str().is_empty() => continue,
                        Ok(root) => {
                            dirty.insert(root);
                            let since = *first_event.get_or_insert_with(Instant::now);
                            if since.elapsed() < LONGEST {
                                continue;
                            }
                        }
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                    first_event = None;
                    for root in std::mem::take(&mut dirty) {
                        if asked.load(Ordering::Acquire) {
                            return;
                        }
                        if !root.exists() {
                            // A checkout that was removed is forgotten, not tried again.
                            watched.remove(&root);
                            continue;
                        }
                        // A run of a search may have begun before the change: it is looked at again.
                        if let Some(w) = watched.get_mut(&root)
                            && !engine.reindex_watched(w, &asked)
                        {
                            dirty.insert(root);
                        }
                    }
                }
            })?;
        Ok(Watcher {
            stop,
            wake,
            thread: Some(thread),
        })
    }

    fn find_newcomers(
        &self,
        watched: &mut HashMap<PathBuf, Watched>,
        dirty: &mut HashSet<PathBuf>,
        tx: &Sender<PathBuf>,
    ) {
        let rows = self.store.repositories(None).unwrap_or_default();
        for row in rows {
            let root = PathBuf::from(&row.root);
            if watched.contains_key(&root) || !root.is_dir() {
                continue;
            }
            let Ok(repo) = self.code_repository(&root) else {
                continue;
            };
            let live: Arc<Live> = repo.live.clone();
            let (events, name) = (tx.clone(), root.clone());
            let watch = Watch::new(move || {
                live.clean.store(false, Ordering::Release);
                // A watcher that ends takes no more events.
                let _ = events.send(name.clone());
            });
            match watch {
                Ok(watch) => {
                    dirty.insert(root.clone());
                    watched.insert(
                        root,
                        Watched {
                            repo,
                            watch,
                            folders: HashSet::new(),
                        },
                    );
                }
                Err(e) => tracing::warn!(error = %e, "{} is not watched", root.display()),
            }
        }
    }

    /// Indexes a repository and watches its folders; false where another run is under way.
    fn reindex_watched(&self, w: &mut Watched, stop: &Arc<AtomicBool>) -> bool {
        let Some(running) = w.repo.live.begin() else {
            return false;
        };
        let result = self.code_sync(
            &w.repo,
            SyncOptions {
                stop: Some(stop.clone()),
                ..SyncOptions::new(&mut |_, _, _| {})
            },
        );
        drop(running);
        match result {
            Ok(r) if r.read > 0 => {
                tracing::info!(repository = %w.repo.name(), files = r.read, symbols = r.symbols, "indexed")
            }
            Ok(_) => {}
            Err(e) => tracing::warn!(error = %e, repository = %w.repo.name(), "indexing failed"),
        }
        let Ok(Some(seen)) = self.seen(&w.repo) else {
            return true;
        };
        let mut wanted: HashSet<PathBuf> = seen
            .folders
            .iter()
            .filter(|f| f.is_dir())
            .cloned()
            .collect();
        if let Ok(git) = w.repo.git() {
            wanted.extend(reference_folders(&git.git_dir()));
            wanted.extend(reference_folders(git.common_dir()));
        }
        for gone in w.folders.difference(&wanted) {
            w.watch.remove(gone);
        }
        let mut all = true;
        for new in wanted.difference(&w.folders) {
            if let Err(e) = w.watch.add(new) {
                if all && new.exists() {
                    tracing::warn!(error = %e, "{} is watched in part only", w.repo.name());
                }
                all &= !new.exists();
            }
        }
        // Something may have moved between the scan and the watch.
        if wanted != w.folders {
            w.repo.live.clean.store(false, Ordering::Release);
        }
        w.folders = wanted;
        w.repo.live.watched.store(all, Ordering::Release);
        true
    }
}

/// The folders of a git folder in which branches move.
fn reference_folders(git: &Path) -> Vec<PathBuf> {
    let mut out = vec![git.to_owned()];
    let mut stack = vec![git.join("refs/heads")];
    while let Some(dir) = stack.pop() {
        if out.len() > 1_000 {
            break;
        }
        if let Ok(entries) = std::fs::read_dir(&dir) {
            stack.extend(
                entries
                    .flatten()
                    .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
                    .map(|e| e.path()),
            );
            out.push(dir);
        }
    }
    out
}
