//! Drafts: what is on disk and not in the branch, and who holds it.

use std::path::Path;
use std::time::{Duration, Instant};

use weft_code::git::Git;
use weft_store::{Claim, Write};

use super::index::SyncOptions;
use super::{CodeError, CodeRepo, view_of};
use crate::{Engine, now};

/// Other checkouts of a repository that an answer looks at, at most.
const MAX_CHECKOUTS: usize = 16;
/// How long all of them may take together.
const OTHERS_TIME: Duration = Duration::from_millis(400);
/// Captured writes that are looked through.
const MAX_WRITES: usize = 2_000;

/// A file of a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftRow {
    /// Top of the checkout.
    pub checkout: String,
    /// Path, or a claimed folder.
    pub path: String,
    /// Who holds it; "" = nobody said so.
    pub agent: String,
    /// `changed`, `added`, `removed`, or `claimed` where the disk is as the branch.
    pub state: &'static str,
}

impl Engine {
    /// Versions that other checkouts hold and their branches do not, with the top of each checkout.
    pub(super) fn drafts_of_others(
        &self,
        repo: &CodeRepo,
    ) -> Result<Vec<(u32, String)>, CodeError> {
        let Some(root) = &repo.root else {
            return Ok(Vec::new());
        };
        let until = Instant::now() + OTHERS_TIME;
        let mut out = Vec::new();
        for w in repo
            .git()?
            .worktrees()
            .into_iter()
            .filter(|w| w.root != *root)
            .take(MAX_CHECKOUTS)
        {
            if Instant::now() > until {
                break;
            }
            // A checkout that cannot be read is somebody else's trouble.
            let Ok(other) = self.code_repository(&w.root) else {
                continue;
            };
            if other.id != repo.id {
                continue;
            }
            if self.sync_quietly(&other, until).is_err() {
                continue;
            }
            for (id, _) in self.dirty(&other)? {
                out.push((id, w.root.to_string_lossy().into_owned()));
            }
        }
        Ok(out)
    }

    fn sync_quietly(&self, repo: &CodeRepo, until: Instant) -> Result<(), CodeError> {
        self.code_sync(
            repo,
            SyncOptions {
                until: Some(until),
                ..SyncOptions::new(&mut |_, _, _| {})
            },
        )?;
        Ok(())
    }

    /// Files of a checkout whose content its branch does not have.
    fn dirty(&self, repo: &CodeRepo) -> Result<Vec<(u32, String)>, CodeError> {
        let Some(seen) = self.seen(repo)? else {
            return Ok(Vec::new());
        };
        let head = repo.git()?.head()?;
        let files = match repo.store.workstream(&head.workstream)? {
            Some(w) if !w.head.is_empty() => w.files,
            // Without a branch to compare with, everything would be a draft.
            _ if head.commit.is_some() => return Ok(Vec::new()),
            _ => Vec::new(),
        };
        let view = view_of(&files);
        Ok(seen
            .files
            .iter()
            .filter(|f| !view.contains(f.file))
            .map(|f| (f.file, f.path.clone()))
            .collect())
    }

    /// Who holds a path of a checkout: by a claim, by the name of a linked worktree, or by the newest
    /// captured write that is newer than the head.
    pub(super) fn holder(
        &self,
        repo: &CodeRepo,
        git: &Git,
        checkout: Option<&str>,
        path: &str,
        head: &str,
    ) -> Result<String, CodeError> {
        let own = repo
            .root
            .as_deref()
            .map(|r| r.to_string_lossy().into_owned())
            .unwrap_or_default();
        let checkout = checkout.unwrap_or(&own);
        let claims = self.store.draft_claims(&repo.id)?;
        let claim = claims
            .iter()
            .filter(|c| c.checkout == checkout && covers(&c.path, path))
            .max_by_key(|c| c.path.len());
        if let Some(c) = claim {
            return Ok(c.agent.clone());
        }
        let linked = git
            .worktrees()
            .into_iter()
            .find(|w| w.root == Path::new(checkout));
        if let Some(name) = linked.and_then(|w| w.name) {
            return Ok(name);
        }
        let since = if head.is_empty() {
            0
        } else {
            git.commit_time(head).unwrap_or(0).saturating_mul(1_000_000)
        };
        let writes = self.store.writes_since(since, MAX_WRITES)?;
        let full = Path::new(checkout).join(path);
        Ok(writes
            .iter()
            .find(|w| writes_path(w, &full, path))
            .map(|w| w.agent.clone())
            .unwrap_or_default())
    }

    /// Claims paths of a checkout for an agent.
    ///
    /// # Errors
    /// Where a path leaves the checkout, or the store cannot be written.
    pub fn claim_drafts(
        &self,
        repo: &CodeRepo,
        paths: &[String],
        agent: &str,
    ) -> Result<(), CodeError> {
        let checkout = checkout_of(repo)?;
        if agent.trim().is_empty() || agent.len() > 200 || agent.chars().any(char::is_control) {
            return Err(CodeError::Bad(
                "an agent has a name of 1 to 200 characters on one line".into(),
            ));
        }
        for p in paths {
            let claim = Claim {
                checkout: checkout.clone(),
                path: p.clone(),
                agent: agent.trim().to_owned(),
                claimed_at: now(),
            };
            self.store.claim_draft(&repo.id, &claim)?;
        }
        Ok(())
    }

    /// Releases claims; returns how many went.
    ///
    /// # Errors
    /// Where the store cannot be written.
    pub fn release_drafts(
        &self,
        repo: &CodeRepo,
        paths: &[String],
        agent: Option<&str>,
    ) -> Result<usize, CodeError> {
        Ok(self
            .store
            .release_drafts(&repo.id, &checkout_of(repo)?, paths, agent)?)
    }

    /// Drafts of every checkout, and claims of paths that are as in the branch.
    ///
    /// # Errors
    /// Where git or the index cannot be read.
    pub fn list_drafts(&self, repo: &CodeRepo) -> Result<Vec<DraftRow>, CodeError> {
        let mut out: Vec<DraftRow> = Vec::new();
        let until = Instant::now() + Duration::from_secs(60);
        for w in repo.git()?.worktrees() {
            let Ok(other) = self.code_repository(&w.root) else {
                continue;
            };
            self.sync_quietly(&other, until)?;
            let git = other.git()?;
            let head = git.head()?;
            let commit = head.commit.clone().unwrap_or_default();
            let root = w.root.to_string_lossy().into_owned();
            let indexed = repo.store.workstream(&head.workstream)?.unwrap_or_default();
            let view = view_of(&indexed.files);
            let dirty = self.dirty(&other)?;
            let seen = self.seen(&other)?;
            for (_, path) in dirty {
                let known = repo
                    .store
                    .versions_of(&path)?
                    .iter()
                    .any(|(id, _)| view.contains(*id));
                out.push(DraftRow {
                    agent: self.holder(&other, &git, Some(&root), &path, &commit)?,
                    checkout: root.clone(),
                    state: if known { "changed" } else { "added" },
                    path,
                });
            }
            if let Some(seen) = seen.filter(|s| s.complete) {
                for id in &indexed.files {
                    let Some(f) = repo.store.file(*id)? else {
                        continue;
                    };
                    if seen.version(&f.path).is_none() {
                        out.push(DraftRow {
                            agent: self.holder(&other, &git, Some(&root), &f.path, &commit)?,
                            checkout: root.clone(),
                            path: f.path.clone(),
                            state: "removed",
                        });
                    }
                }
            }
            for c in self
                .store
                .draft_claims(&repo.id)?
                .into_iter()
                .filter(|c| c.checkout == root)
            {
                if !out
                    .iter()
                    .any(|d| d.checkout == root && covers(&c.path, &d.path))
                {
                    out.push(DraftRow {
                        checkout: c.checkout,
                        path: c.path,
                        agent: c.agent,
                        state: "claimed",
                    });
                }
            }
        }
        out.sort_by(|a, b| (&a.checkout, &a.path).cmp(&(&b.checkout, &b.path)));
        Ok(out)
    }
}

fn checkout_of(repo: &CodeRepo) -> Result<String, CodeError> {
    repo.root
        .as_deref()
        .map(|r: &Path| r.to_string_lossy().into_owned())
        .ok_or_else(|| CodeError::Bad("a bare repository has no drafts".into()))
}

/// Whether a claim of a file or folder covers a path.
fn covers(claim: &str, path: &str) -> bool {
    claim == path
        || path
            .strip_prefix(claim.trim_end_matches('/'))
            .is_some_and(|r| r.starts_with('/'))
}

/// Whether a captured tool call wrote a file.
fn writes_path(w: &Write, full: &Path, relative: &str) -> bool {
    let p = Path::new(&w.path);
    p == full || (p.is_relative() && p == Path::new(relative))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_cover_files_and_folders() {
        assert!(
            covers("src/a.rs", "src/a.rs")
                && covers("src/", "src/a.rs")
                && covers("src", "src/a.rs")
        );
        assert!(!covers("src/a", "src/a.rs") && !covers("lib", "src/a.rs"));
    }
}
