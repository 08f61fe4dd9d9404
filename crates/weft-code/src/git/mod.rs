//! Reading a git repository: where it is, its branches, trees, blobs, worktrees and history.
//!
//! Through gix, which reads files and runs nothing: no hook, no filter, no text conversion. The
//! user's and the system's git configuration are not read.

mod history;

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use gix::ObjectId;
use gix::bstr::ByteSlice as _;

/// Why a repository could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum GitError {
    /// No repository holds the folder.
    #[error("not inside a git repository: {0}")]
    NotFound(PathBuf),
    /// A `.git` is there and cannot be used.
    #[error("cannot open the git repository at {path}: {reason}")]
    Open {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// No such branch, tag or commit.
    #[error("no such workstream: {0}")]
    NoSuchRef(String),
    /// Reading an object failed.
    #[error("reading the git repository failed: {0}")]
    Read(String),
}

fn read(e: impl std::fmt::Display) -> GitError {
    GitError::Read(e.to_string())
}

pub use history::{Added, Print, Step, Steps};

/// A blob's id.
pub type BlobId = [u8; 20];

/// A file of a commit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeFile {
    /// Path with `/`, relative to the top.
    pub path: String,
    /// Content.
    pub blob: BlobId,
}

/// What is checked out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Branch name, or the commit id where the head is detached.
    pub workstream: String,
    /// Commit id; `None` where there is no commit yet.
    pub commit: Option<String>,
}

/// A checkout of the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worktree {
    /// Name of a linked worktree; `None` = the main one.
    pub name: Option<String>,
    /// Its top folder.
    pub root: PathBuf,
}

/// The last commit that changed something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stitch {
    /// Commit id.
    pub changeset: String,
    /// Subject line.
    pub intent: String,
    /// Author's name.
    pub author: String,
    /// Author's date, seconds since 1970.
    pub at: i64,
}

impl Stitch {
    /// Author's date, microseconds since 1970; dates come from strangers and may be any number.
    pub fn at_micros(&self) -> i64 {
        self.at.saturating_mul(1_000_000)
    }
}

/// How a search for the last change ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastChange {
    /// Found.
    Found(Stitch),
    /// Time ran out at this commit, which still has the same text.
    StoppedAt(String),
    /// The path is not in the history.
    Unknown,
}

/// An open repository. Not shared between threads: opening one is cheap.
pub struct Git {
    repo: gix::Repository,
    root: Option<PathBuf>,
    common: PathBuf,
    /// Commits that a walk through the history has read: tree and parents.
    commits: RefCell<HashMap<ObjectId, (ObjectId, Vec<ObjectId>)>>,
    /// Entries of trees that it has looked up.
    entries: RefCell<HashMap<(ObjectId, String), Option<ObjectId>>>,
}

impl std::fmt::Debug for Git {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Git")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

/// The folder at or above `folder` that holds a `.git`, or that is a bare repository.
pub fn locate(folder: &Path) -> Result<PathBuf, GitError> {
    let start = folder.canonicalize().map_err(|e| GitError::Open {
        path: folder.to_owned(),
        reason: e.to_string(),
    })?;
    for dir in start.ancestors() {
        if dir.join(".git").exists() || dir.join(".git").is_symlink() {
            return Ok(dir.to_owned());
        }
        if dir.join("HEAD").is_file() && dir.join("objects").is_dir() && dir.join("refs").is_dir() {
            return Ok(dir.to_owned());
        }
    }
    Err(GitError::NotFound(start))
}

impl Git {
    /// Opens the repository that holds `folder`.
    ///
    /// # Errors
    /// Where there is none, or where it cannot be read.
    pub fn discover(folder: &Path) -> Result<Self, GitError> {
        Self::open(&locate(folder)?)
    }

    /// Opens the repository whose top (or bare folder) is `path`.
    pub fn open(path: &Path) -> Result<Self, GitError> {
        let failed = |e: gix::Error| GitError::Open {
            path: path.to_owned(),
            reason: e.to_string(),
        };
        let mut repo = gix::open::Options::isolated()
            .strict_config(false)
            .open(path)
            .map_err(failed)?
            .to_thread_local();
        repo.object_cache_size_if_unset(16 << 20);
        let root = repo
            .workdir()
            .map(|p| p.canonicalize().unwrap_or_else(|_| p.to_owned()));
        let common = repo
            .common_dir()
            .canonicalize()
            .unwrap_or_else(|_| repo.common_dir().to_owned());
        Ok(Self {
            repo,
            root,
            common,
            commits: RefCell::default(),
            entries: RefCell::default(),
        })
    }

    /// Top folder of the checkout; `None` for a bare repository.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// The folder that a clone and all its worktrees share.
    pub fn common_dir(&self) -> &Path {
        &self.common
    }

    /// The git folder of this checkout, where its HEAD and index are.
    pub fn git_dir(&self) -> PathBuf {
        self.repo.git_dir().to_owned()
    }

    /// URL of `origin`.
    pub fn origin(&self) -> Option<String> {
        let config = self.repo.config_snapshot();
        config
            .string("remote.origin.url")
            .map(|u| u.to_str_lossy().into_owned())
    }

    /// What is checked out.
    pub fn head(&self) -> Result<Head, GitError> {
        let head = self.repo.head().map_err(read)?;
        let name = head
            .referent_name()
            .map(|n| n.shorten().to_str_lossy().into_owned());
        let commit = if head.is_unborn() {
            None
        } else {
            Some(head.into_peeled_id().map_err(read)?.to_hex().to_string())
        };
        Ok(Head {
            workstream: name
                .or_else(|| commit.clone())
                .unwrap_or_else(|| "main".into()),
            commit,
        })
    }

    /// The commit at the tip of a branch, tag or any revision.
    pub fn tip(&self, workstream: &str) -> Result<String, GitError> {
        let unknown = || GitError::NoSuchRef(workstream.to_owned());
        if workstream.is_empty() || workstream.starts_with('-') || workstream.len() > 1_000 {
            return Err(unknown());
        }
        let id = match self.repo.find_reference(workstream) {
            Ok(mut r) => r.peel_to_id().map_err(|_| unknown())?.detach(),
            Err(_) => self
                .repo
                .rev_parse_single(workstream.as_bytes())
                .map_err(|_| unknown())?
                .detach(),
        };
        self.repo.find_commit(id).map_err(|_| unknown())?;
        Ok(id.to_hex().to_string())
    }

    fn id(&self, hex: &str) -> Result<ObjectId, GitError> {
        ObjectId::from_hex(hex.as_bytes()).map_err(read)
    }

    /// The files of a commit, sorted by path; symbolic links and submodules left out.
    pub fn files(&self, commit: &str) -> Result<Vec<TreeFile>, GitError> {
        let tree = self
            .repo
            .find_commit(self.id(commit)?)
            .map_err(read)?
            .tree()
            .map_err(read)?;
        let mut out = Vec::new();
        for e in tree.traverse().breadthfirst.files().map_err(read)? {
            if e.mode.is_blob() {
                out.push(TreeFile {
                    path: e.filepath.to_str_lossy().into_owned(),
                    blob: blob_id(&e.oid),
                });
            }
        }
        out.sort();
        Ok(out)
    }

    /// A blob's bytes; `None` where it is larger than `max` or missing (a partial clone).
    pub fn blob(&self, blob: &BlobId, max: u64) -> Option<Vec<u8>> {
        let id = ObjectId::from_bytes_or_panic(blob);
        let header = self.repo.find_header(id).ok()?;
        if header.size() > max {
            return None;
        }
        Some(self.repo.find_object(id).ok()?.detach().data)
    }

    /// A blob's size.
    pub fn blob_size(&self, blob: &BlobId) -> Option<u64> {
        let id = ObjectId::from_bytes_or_panic(blob);
        Some(self.repo.find_header(id).ok()?.size())
    }

    /// Seconds since 1970 of a commit.
    pub fn commit_time(&self, commit: &str) -> Result<i64, GitError> {
        let commit = self.repo.find_commit(self.id(commit)?).map_err(read)?;
        Ok(commit.time().map_err(read)?.seconds)
    }

    /// Every checkout that exists, this one and the main one included.
    pub fn worktrees(&self) -> Vec<Worktree> {
        let mut out = Vec::new();
        if let Ok(main) = self.repo.main_repo()
            && let Some(root) = main.workdir()
            && let Ok(root) = root.canonicalize()
        {
            out.push(Worktree { name: None, root });
        }
        for proxy in self.repo.worktrees().unwrap_or_default() {
            let name = proxy
                .id()
                .map(|i| i.to_str_lossy().into_owned())
                .unwrap_or_default();
            if let Ok(root) = proxy.base()
                && root.join(".git").exists()
                && let Ok(root) = root.canonicalize()
            {
                out.push(Worktree {
                    name: Some(name),
                    root,
                });
            }
        }
        out
    }

    /// The first commit of the history of a commit, by first parents.
    pub fn root_commit(&self, commit: &str) -> Result<String, GitError> {
        let walk = self
            .repo
            .rev_walk([self.id(commit)?])
            .first_parent_only()
            .all()
            .map_err(read)?;
        let mut last = commit.to_owned();
        for info in walk {
            match info {
                Ok(i) => last = i.id.to_hex().to_string(),
                // A shallow clone ends where its objects end.
                Err(_) => break,
            }
        }
        Ok(last)
    }

    /// All local branches with their commits.
    pub fn branches(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        if let Ok(refs) = self.repo.references()
            && let Ok(all) = refs.local_branches()
        {
            for mut r in all.flatten() {
                let name = r.name().shorten().to_str_lossy().into_owned();
                if let Ok(id) = r.peel_to_id() {
                    out.push((name, id.to_hex().to_string()));
                }
            }
        }
        out
    }

    fn commit_parts(&self, commit: ObjectId) -> Option<(ObjectId, Vec<ObjectId>)> {
        if let Some(known) = self.commits.borrow().get(&commit) {
            return Some(known.clone());
        }
        let c = self.repo.find_commit(commit).ok()?;
        let decoded = c.decode().ok()?;
        let parts = (decoded.tree(), decoded.parents().collect::<Vec<_>>());
        self.commits.borrow_mut().insert(commit, parts.clone());
        Some(parts)
    }

    fn entry(&self, tree: ObjectId, name: &str) -> Option<ObjectId> {
        let key = (tree, name.to_owned());
        if let Some(known) = self.entries.borrow().get(&key) {
            return *known;
        }
        let found = self.repo.find_tree(tree).ok().and_then(|t| {
            t.iter()
                .filter_map(Result::ok)
                .find(|e| e.filename() == name.as_bytes())
                .map(|e| e.object_id())
        });
        self.entries.borrow_mut().insert(key, found);
        found
    }

    /// The ids along a path in a commit: root tree, folders, blob. Ends early where an id equals the
    /// one of `like` at the same depth: the rest is equal then.
    fn chain(
        &self,
        commit: ObjectId,
        path: &str,
        like: Option<&[ObjectId]>,
    ) -> Option<Vec<ObjectId>> {
        let mut at = self.commit_parts(commit)?.0;
        let mut out = vec![at];
        for name in path.split('/') {
            if let Some(l) = like
                && l.get(out.len() - 1) == Some(&at)
            {
                out.extend_from_slice(&l[out.len()..]);
                return Some(out);
            }
            at = self.entry(at, name)?;
            out.push(at);
        }
        Some(out)
    }

    /// The last commit, at or before `from`, that changed what `same` looks at in a file. `same` is
    /// given an older content of the file and tells whether the text of interest is equal in it.
    /// `known` is a commit whose answer the caller knows: reaching it ends the walk as `StoppedAt`.
    pub fn last_change(
        &self,
        from: &str,
        path: &str,
        known: Option<&str>,
        deadline: Instant,
        same: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<LastChange, GitError> {
        let known = known.and_then(|k| ObjectId::from_hex(k.as_bytes()).ok());
        let mut at = self.id(from)?;
        let Some(mut chain) = self.chain(at, path, None) else {
            return Ok(LastChange::Unknown);
        };
        let mut judged: HashMap<ObjectId, bool> = HashMap::new();
        loop {
            if Some(at) == known || Instant::now() > deadline {
                return Ok(LastChange::StoppedAt(at.to_hex().to_string()));
            }
            let (_, parents) = self
                .commit_parts(at)
                .ok_or_else(|| GitError::Read(format!("commit {at} cannot be read")))?;
            let olds: Vec<(ObjectId, Vec<ObjectId>)> = parents
                .iter()
                .filter_map(|p| Some((*p, self.chain(*p, path, Some(&chain))?)))
                .collect();
            let blob = chain.last().copied();
            let next = olds
                .iter()
                .find(|(_, c)| c.last().copied() == blob)
                .or_else(|| {
                    olds.iter().find(|(_, c)| {
                        c.last().is_some_and(|b| {
                            *judged.entry(*b).or_insert_with(|| {
                                self.blob(&blob_id(b), crate::walk::MAX_FILE_BYTES)
                                    .is_some_and(|bytes| same(&bytes))
                            })
                        })
                    })
                })
                .cloned();
            match next {
                Some((parent, c)) => {
                    at = parent;
                    chain = c;
                }
                None => return self.stitch(at).map(LastChange::Found),
            }
        }
    }

    fn stitch(&self, id: ObjectId) -> Result<Stitch, GitError> {
        let commit = self.repo.find_commit(id).map_err(read)?;
        let decoded = commit.decode().map_err(read)?;
        let author = decoded.author().map_err(read)?;
        let subject = decoded.message.lines().next().unwrap_or_default();
        Ok(Stitch {
            changeset: id.to_hex().to_string(),
            intent: subject.to_str_lossy().into_owned(),
            author: author.name.to_str_lossy().into_owned(),
            at: author.time().map_err(read)?.seconds,
        })
    }
}

fn blob_id(id: &gix::oid) -> BlobId {
    let mut out = [0; 20];
    let bytes = id.as_bytes();
    let n = bytes.len().min(20);
    out[..n].copy_from_slice(&bytes[..n]);
    out
}

/// The id that git gives to a blob of these bytes.
pub fn hash_blob(bytes: &[u8]) -> BlobId {
    gix::objs::compute_hash(gix::hash::Kind::Sha1, gix::objs::Kind::Blob, bytes)
        .map(|id| blob_id(&id))
        .unwrap_or_default()
}
