//! Questions about all decisions at once: what governs a file or a change, what does not fit together.

use std::collections::HashMap;

use weft_core::decision::check::{self, Finding};
use weft_core::decision::{Decision, Status, rank};

use super::record::near_titles;
use super::search::{governs, mentions};
use super::stale::covers;
use super::{DecisionError, Decisions, Loaded};
use crate::CodeError;

/// Places of two decisions whose titles say nearly the same.
pub type NearPair = (usize, usize);

/// A word that more decisions than this share pairs none of them.
const COMMON_WORD: usize = 200;

impl Decisions<'_> {
    /// Decisions that govern a file: those that are linked to it first, then those whose text names it; what
    /// is in force before what is not. A file that was moved is still governed by what named it before.
    pub fn for_file(&self, loaded: &Loaded, path: &str) -> Vec<usize> {
        self.for_files(loaded, &[path]).pop().unwrap_or_default()
    }

    /// As [`Self::for_file`], for many files with one look at the repository.
    pub fn for_files<S: AsRef<str>>(&self, loaded: &Loaded, paths: &[S]) -> Vec<Vec<usize>> {
        let moved = self.moved_links(loaded);
        let of = |path: &str| {
            let mut out: Vec<usize> = (0..loaded.all.len())
                .filter(|i| {
                    moved.iter().any(|(m, to)| m == i && to == path)
                        || governs(&loaded.all[*i], path)
                })
                .collect();
            let order = |d: &Decision| {
                let in_force = matches!(d.status, Status::Accepted | Status::Proposed);
                let linked = !mentions(d, path) || d.record.files.iter().any(|l| covers(l, path));
                (!in_force, !linked, std::cmp::Reverse(d.created_at))
            };
            out.sort_by_key(|i| order(&loaded.all[*i]));
            out
        };
        paths.iter().map(|p| of(p.as_ref())).collect()
    }

    /// Whether a decision only names a path in its text.
    pub fn only_mentions(&self, d: &Decision, path: &str) -> bool {
        mentions(d, path) && !d.record.files.iter().any(|l| covers(l, path))
    }

    /// Files that differ from a revision: of the commit that is checked out, and on disk.
    ///
    /// # Errors
    /// Where there is no repository or no such revision.
    pub fn changed_files(&self, revision: Option<&str>) -> Result<Vec<String>, DecisionError> {
        let repo = self
            .repo
            .as_ref()
            .ok_or_else(|| DecisionError::Bad("this workspace has no repository here".into()))?;
        let git = repo.git()?;
        let head = git.head().map_err(CodeError::Git)?.commit;
        let mut out = Vec::new();
        if let (Some(r), Some(head)) = (revision, &head) {
            let old = git.tip(r).map_err(CodeError::Git)?;
            out.extend(git.changed_since(&old, head).map_err(CodeError::Git)?);
        }
        for d in self.engine.list_drafts(repo)? {
            if d.state != "claimed" && d.checkout == self.checkout() {
                out.push(d.path);
            }
        }
        out.sort();
        out.dedup();
        Ok(out)
    }

    /// What does not fit together.
    pub fn check(&self, loaded: &Loaded) -> Vec<Finding> {
        check::check(&loaded.all, &near_pairs(&loaded.all))
    }
}

fn near_pairs(all: &[Decision]) -> Vec<NearPair> {
    let titles: Vec<Vec<String>> = all
        .iter()
        .map(|d| rank::query_words(&d.record.title))
        .collect();
    let mut by_word: HashMap<&str, Vec<usize>> = HashMap::new();
    for (i, t) in titles.iter().enumerate() {
        for w in t {
            by_word.entry(w).or_default().push(i);
        }
    }
    let mut out: Vec<NearPair> = by_word
        .values()
        .filter(|v| v.len() <= COMMON_WORD)
        .flat_map(|v| {
            v.iter()
                .enumerate()
                .flat_map(|(n, a)| v[n + 1..].iter().map(|b| (*a, *b)))
        })
        .collect();
    out.sort_unstable();
    out.dedup();
    out.retain(|(a, b)| near_titles(&titles[*a], &titles[*b]));
    out
}
