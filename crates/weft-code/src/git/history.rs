//! Walks through the history: what changed a text, when files came, what a commit touched.

use std::collections::HashMap;
use std::time::Instant;

use gix::ObjectId;

use super::{BlobId, Git, GitError, Stitch, blob_id, read};

/// Longest history that is walked, commits.
const MAX_COMMITS: usize = 200_000;
/// Most files of a commit that are listed.
const MAX_TOUCHED: usize = 500;

/// One commit that changed a text, and the file in which it did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The commit.
    pub stitch: Stitch,
    /// Path of the file in it.
    pub path: String,
    /// The file's bytes in it.
    pub blob: BlobId,
}

/// How far a walk came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Latest first.
    pub steps: Vec<Step>,
    /// Whether the walk ended before the beginning of the history: by its limit or its time.
    pub cut: bool,
}

/// Where and when a file came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Commit.
    pub commit: String,
    /// Its author's date, seconds since 1970.
    pub at: i64,
}

impl Added {
    /// Author's date, microseconds since 1970.
    pub fn at_micros(&self) -> i64 {
        self.at.saturating_mul(1_000_000)
    }
}

/// What of a file's bytes (and its path) a walk looks at; `None` = it is not there.
pub type Print<'a> = &'a mut dyn FnMut(&[u8], &str) -> Option<Vec<u8>>;

impl Git {
    /// A file's content in a commit.
    pub fn blob_at(&self, commit: &str, path: &str) -> Option<BlobId> {
        let at = ObjectId::from_hex(commit.as_bytes()).ok()?;
        self.chain(at, path, None)?.last().map(|b| blob_id(b))
    }

    /// The commits, at or before `from`, that changed what `print` makes of a file: latest first, at most
    /// `limit`. `print` gives `None` where the text of interest is not in a content. A file that the walk
    /// loses is looked for under other names in the commit before.
    pub fn steps(
        &self,
        from: &str,
        path: &str,
        limit: usize,
        deadline: Instant,
        print: Print<'_>,
    ) -> Result<Steps, GitError> {
        let mut out = Steps::default();
        let mut at = self.id(from)?;
        let mut path = path.to_owned();
        let Some(mut chain) = self.chain(at, &path, None) else {
            return Ok(out);
        };
        let mut seen: HashMap<(ObjectId, String), Option<Vec<u8>>> = HashMap::new();
        let mut of = |git: &Self, blob: ObjectId, path: &str| {
            seen.entry((blob, path.to_owned()))
                .or_insert_with(|| {
                    let bytes = git.blob(&blob_id(&blob), crate::walk::MAX_FILE_BYTES)?;
                    print(&bytes, path)
                })
                .clone()
        };
        loop {
            if Instant::now() > deadline {
                out.cut = true;
                return Ok(out);
            }
            let Some((_, parents)) = self.commit_parts(at) else {
                // A shallow clone ends where its objects end.
                out.cut = true;
                return Ok(out);
            };
            let Some(blob) = chain.last().copied() else {
                return Ok(out);
            };
            let olds: Vec<(ObjectId, Vec<ObjectId>)> = parents
                .iter()
                .filter_map(|p| Some((*p, self.chain(*p, &path, Some(&chain))?)))
                .collect();
            let equal = olds.iter().find(|(_, c)| c.last() == Some(&blob)).cloned();
            if let Some((parent, c)) = equal {
                (at, chain) = (parent, c);
                continue;
            }
            let now = of(self, blob, &path);
            let same = olds
                .iter()
                .find(|(_, c)| c.last().is_some_and(|b| of(self, *b, &path) == now))
                .cloned();
            if let Some((parent, c)) = same {
                (at, chain) = (parent, c);
                continue;
            }
            // This commit changed it, or brought it from another file.
            let before = olds
                .iter()
                .find(|(_, c)| c.last().is_some_and(|b| of(self, *b, &path).is_some()))
                .cloned()
                .map(|(p, c)| (p, c, path.clone()))
                .or_else(|| {
                    self.moved_from(at, &parents, &path, blob, &mut |b, p| of(self, b, p) == now)
                });
            let moved = before.as_ref().is_some_and(|(_, c, p)| {
                *p != path && c.last().is_some_and(|b| of(self, *b, p) == now)
            });
            if !moved {
                out.steps.push(Step {
                    stitch: self.stitch(at)?,
                    path: path.clone(),
                    blob: blob_id(&blob),
                });
            }
            match before {
                Some(_) if out.steps.len() >= limit => {
                    out.cut = true;
                    return Ok(out);
                }
                Some((parent, c, p)) => (at, chain, path) = (parent, c, p),
                None => return Ok(out),
            }
        }
    }

    /// Where a text that a commit brought to a file was in its parent: in a file that is gone since and has
    /// the same bytes, or in one of which `same` says that it held the text.
    fn moved_from(
        &self,
        commit: ObjectId,
        parents: &[ObjectId],
        path: &str,
        blob: ObjectId,
        same: &mut dyn FnMut(ObjectId, &str) -> bool,
    ) -> Option<(ObjectId, Vec<ObjectId>, String)> {
        let parent = *parents.first()?;
        // Files that went first, then files from which something may have been taken.
        let gone: Vec<(String, ObjectId, bool)> = self
            .difference(parent, commit)
            .into_iter()
            .filter(|t| t.path != path)
            .filter_map(|t| Some((t.path, t.before?, t.after.is_some())))
            .collect();
        let name = |p: &str| p.rsplit('/').next().unwrap_or(p).to_owned();
        let ext = |p: &str| p.rsplit_once('.').map(|x| x.1.to_owned());
        let mut near: Vec<&(String, ObjectId, bool)> =
            gone.iter().filter(|g| ext(&g.0) == ext(path)).collect();
        near.sort_by_key(|(p, b, kept)| (*kept, *b != blob, name(p) != name(path), p.clone()));
        let found = near
            .into_iter()
            .take(50)
            .find(|(p, b, kept)| (*b == blob && !kept) || same(*b, p))?;
        let chain = self.chain(parent, &found.0, None)?;
        Some((parent, chain, found.0.clone()))
    }

    /// When each file of a folder came, by first parents, as far back as time allows.
    pub fn added(&self, head: &str, folder: &str, deadline: Instant) -> HashMap<String, Added> {
        let mut out: HashMap<String, Added> = HashMap::new();
        let Ok(mut at) = self.id(head) else {
            return out;
        };
        let tree = |at| match folder {
            "" => self.commit_parts(at).map(|p| p.0),
            _ => self.chain(at, folder, None).and_then(|c| c.last().copied()),
        };
        let mut now = tree(at);
        for _ in 0..MAX_COMMITS {
            let parent = self.commit_parts(at).and_then(|p| p.1.first().copied());
            let before = parent.and_then(tree);
            if now != before
                && let Some(n) = now
            {
                let mut touched = Vec::new();
                self.compare(before, Some(n), folder, &mut touched, usize::MAX);
                let stitch = self.stitch(at).unwrap_or_default();
                for t in touched.into_iter().filter(|t| t.before.is_none()) {
                    // Walking back, the last one seen is the first one that happened.
                    out.insert(
                        t.path,
                        Added {
                            commit: stitch.changeset.clone(),
                            at: stitch.at,
                        },
                    );
                }
            }
            match parent {
                Some(p) if Instant::now() < deadline => (at, now) = (p, before),
                _ => break,
            }
        }
        out
    }

    /// The commit that a full or abbreviated id (seven digits or more) means, with the files that it
    /// touched.
    pub fn commit(&self, id: &str) -> Option<(Stitch, Vec<String>)> {
        if !(7..=40).contains(&id.len()) || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let found = self.repo.rev_parse_single(id.as_bytes()).ok()?.detach();
        let stitch = self.stitch(found).ok()?;
        let parent = self.commit_parts(found)?.1.first().copied();
        let touched = match parent {
            Some(p) => self.difference(p, found),
            None => {
                let mut all = Vec::new();
                let tree = self.commit_parts(found)?.0;
                self.compare(None, Some(tree), "", &mut all, MAX_TOUCHED);
                all
            }
        };
        Some((stitch, touched.into_iter().map(|t| t.path).collect()))
    }

    /// Files that differ between a commit and the one before it.
    pub fn changed_since(&self, old: &str, new: &str) -> Result<Vec<String>, GitError> {
        let touched = self.difference(self.id(old)?, self.id(new)?);
        Ok(touched.into_iter().map(|t| t.path).collect())
    }

    /// The last commit of a branch at or before an instant, seconds since 1970.
    pub fn commit_before(&self, head: &str, at: i64) -> Result<Option<String>, GitError> {
        let walk = self
            .repo
            .rev_walk([self.id(head)?])
            .first_parent_only()
            .all()
            .map_err(read)?;
        for info in walk.flatten().take(MAX_COMMITS) {
            let id = info.id.to_hex().to_string();
            if self.commit_time(&id)? <= at {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    fn difference(&self, old: ObjectId, new: ObjectId) -> Vec<Touched> {
        let mut out = Vec::new();
        let (Some(a), Some(b)) = (self.commit_parts(old), self.commit_parts(new)) else {
            return out;
        };
        self.compare(Some(a.0), Some(b.0), "", &mut out, MAX_TOUCHED * 10);
        out
    }

    /// Compares two trees; only what differs is read.
    fn compare(
        &self,
        old: Option<ObjectId>,
        new: Option<ObjectId>,
        at: &str,
        out: &mut Vec<Touched>,
        max: usize,
    ) {
        if old == new || out.len() >= max {
            return;
        }
        let list = |id: Option<ObjectId>| -> HashMap<String, (bool, ObjectId)> {
            let Some(tree) = id.and_then(|i| self.repo.find_tree(i).ok()) else {
                return HashMap::new();
            };
            tree.iter()
                .filter_map(Result::ok)
                .filter(|e| e.mode().is_tree() || e.mode().is_blob())
                .map(|e| {
                    (
                        e.filename().to_string(),
                        (e.mode().is_tree(), e.object_id()),
                    )
                })
                .collect()
        };
        let (a, b) = (list(old), list(new));
        let mut names: Vec<&String> = a
            .keys()
            .chain(b.keys().filter(|k| !a.contains_key(*k)))
            .collect();
        names.sort();
        for name in names {
            let (x, y) = (a.get(name), b.get(name));
            if x == y {
                continue;
            }
            let path = if at.is_empty() {
                name.clone()
            } else {
                format!("{at}/{name}")
            };
            let tree = |e: Option<&(bool, ObjectId)>| e.filter(|e| e.0).map(|e| e.1);
            let blob = |e: Option<&(bool, ObjectId)>| e.filter(|e| !e.0).map(|e| e.1);
            if tree(x).is_some() || tree(y).is_some() {
                self.compare(tree(x), tree(y), &path, out, max);
            }
            if (blob(x).is_some() || blob(y).is_some()) && out.len() < max {
                out.push(Touched {
                    path,
                    before: blob(x),
                    after: blob(y),
                });
            }
        }
    }
}

/// A file that differs between two trees.
struct Touched {
    path: String,
    before: Option<ObjectId>,
    after: Option<ObjectId>,
}
