//! The state of an index, what was left out of it, and purging.

use std::sync::atomic::Ordering;

use weft_store::StoreError;
use weft_store::code::{View, Workstream};

use super::{CodeError, CodeRepo, view_of};
use crate::{Engine, now};

/// State of a branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkstreamStatus {
    /// Name.
    pub workstream: String,
    /// Commit that is indexed; `None` = none.
    pub indexed_head: Option<String>,
    /// Commit at its tip; `None` = the branch is gone.
    pub head: Option<String>,
    /// Symbols indexed.
    pub symbols: u64,
    /// Symbols with vectors.
    pub vectors: u64,
    /// Files indexed.
    pub files: usize,
    /// `indexed`, `behind`, `indexing`, `not_indexed`, `failed` or `gone`.
    pub state: &'static str,
    /// What went wrong last; "" = nothing.
    pub last_error: String,
    /// Microseconds since 1970; 0 = never.
    pub indexed_at: i64,
}

/// What a purge removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// File versions.
    pub files: u64,
    /// Symbols.
    pub symbols: u64,
    /// Vectors.
    pub vectors: u64,
}

impl Engine {
    /// State of every branch that was indexed, and of the one that is checked out.
    pub fn code_status(&self, repo: &CodeRepo) -> Result<Vec<WorkstreamStatus>, CodeError> {
        let git = repo.git()?;
        let head = git.head()?;
        let mut rows = repo.store.workstreams()?;
        if !rows.iter().any(|w| w.name == head.workstream) {
            rows.push(Workstream {
                name: head.workstream.clone(),
                ..Workstream::default()
            });
        }
        let model = self.code_model(repo)?;
        let running = repo.live.running.load(Ordering::Relaxed)
            || matches!(repo.store.writer(false), Err(StoreError::Busy(_)));
        let mut out = Vec::new();
        for w in rows {
            let tip = if w.name == head.workstream {
                head.commit.clone()
            } else {
                git.tip(&w.name).ok()
            };
            let indexed = Some(w.head.clone()).filter(|h| !h.is_empty());
            let state = if !w.error.is_empty() {
                "failed"
            } else if running && indexed != tip {
                "indexing"
            } else if indexed.is_none() {
                "not_indexed"
            } else if tip.is_none() {
                "gone"
            } else if indexed != tip {
                "behind"
            } else {
                "indexed"
            };
            let vectors = match model {
                Some(m) => {
                    let missing = view_of(&repo.store.not_embedded(m, &w.files)?);
                    w.symbols - repo.store.count_symbols(&missing)?.min(w.symbols)
                }
                None => 0,
            };
            out.push(WorkstreamStatus {
                workstream: w.name,
                indexed_head: indexed,
                head: tip,
                symbols: w.symbols,
                vectors,
                files: w.files.len(),
                state,
                last_error: w.error,
                indexed_at: w.indexed_at,
            });
        }
        Ok(out)
    }

    /// Files of a branch and of the checkout that were left out, with why; and how many did not parse.
    pub fn code_left_out(
        &self,
        repo: &CodeRepo,
    ) -> Result<(Vec<(String, String)>, u64), CodeError> {
        let mut ids: Vec<u32> = repo
            .store
            .workstreams()?
            .into_iter()
            .flat_map(|w| w.files)
            .collect();
        if let Some(s) = self.seen(repo)? {
            ids.extend(s.files.iter().map(|f| f.file));
        }
        Ok(repo.store.left_out(&view_of(&ids))?)
    }

    /// Removes paths from every branch and keeps them out from now on.
    pub fn code_purge(&self, repo: &CodeRepo, paths: &[String]) -> Result<Purged, CodeError> {
        if paths.is_empty() {
            return Err(CodeError::Bad("no paths to purge".into()));
        }
        // Truth first: whoever indexes from now on leaves them out.
        self.store.put_purged(&repo.id, paths, now())?;
        let mut writer = repo.store.writer(true)?;
        let mut drop = View::default();
        for p in paths {
            let folder = format!("{}/", p.trim_end_matches('/'));
            for id in repo.store.under(&[folder])?.ids() {
                drop.insert(id);
            }
            for (id, _) in repo.store.versions_of(p.trim_end_matches('/'))? {
                drop.insert(id);
            }
        }
        let (files, symbols, vectors) = writer.remove(&drop)?;
        writer.forget_changes(paths)?;
        for mut w in repo.store.workstreams()? {
            w.files.retain(|f| !drop.contains(*f));
            w.symbols = repo.store.count_symbols(&view_of(&w.files))?;
            writer.set_workstream(&w)?;
        }
        for root in repo.store.checkout_roots()? {
            if let Some((head, mut seen)) = repo.store.checkout(&root)? {
                seen.retain(|f| !drop.contains(f.file));
                writer.set_checkout(&root, &head, &seen, &[], now())?;
            }
        }
        writer.finish()?;
        *repo.live.seen.write().unwrap_or_else(|e| e.into_inner()) = None;
        repo.live.clean.store(false, Ordering::Release);
        Ok(Purged {
            files,
            symbols,
            vectors,
        })
    }
}
