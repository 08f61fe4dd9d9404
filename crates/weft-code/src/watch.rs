//! Events of the file system for single folders, without what lies below them.

use std::path::Path;

use notify::event::{AccessKind, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

/// Watches folders; tells that something moved, not what.
#[derive(Debug)]
pub struct Watch {
    inner: RecommendedWatcher,
}

impl Watch {
    /// Calls `moved` from a thread of its own whenever something moves in a watched folder.
    ///
    /// # Errors
    /// Where the system gives no watcher.
    pub fn new(moved: impl Fn() + Send + 'static) -> Result<Self, String> {
        let inner = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let quiet = event.as_ref().is_ok_and(|e| {
                matches!(
                    e.kind,
                    EventKind::Access(
                        AccessKind::Read | AccessKind::Open(_) | AccessKind::Close(_)
                    ) | EventKind::Modify(ModifyKind::Metadata(_))
                ) || e
                    .paths
                    .iter()
                    .all(|p| p.extension().is_some_and(|x| x == "lock"))
                    && !e.paths.is_empty()
            });
            // An overflow is an event without paths: everything may have moved.
            if !quiet {
                moved();
            }
        })
        .map_err(|e| e.to_string())?;
        Ok(Self { inner })
    }

    /// Watches a folder.
    ///
    /// # Errors
    /// Where it is gone, or the system gives no more watches.
    pub fn add(&mut self, folder: &Path) -> Result<(), String> {
        self.inner
            .watch(folder, RecursiveMode::NonRecursive)
            .map_err(|e| e.to_string())
    }

    /// Watches a folder no more.
    pub fn remove(&mut self, folder: &Path) {
        let _ = self.inner.unwatch(folder);
    }
}
