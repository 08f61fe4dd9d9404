//! Code search: a repository is found, indexed and asked.

mod answer;
mod drafts;
mod find;
mod history;
mod index;
mod read;
mod search;
mod status;
mod watch;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use uuid::Uuid;
use weft_code::extract;
use weft_code::git::Git;
use weft_store::code::{CodeStore, View};
use weft_store::{RepositoryRow, StoreError};

use crate::{Engine, now, repository};
pub use answer::{CodeAnswer, CodeHit, CodeQuery, Draft, DraftState, FindAnswer, HitStitch};
pub use drafts::DraftRow;
pub use index::{CodeSync, SyncOptions};
pub(crate) use read::{decoded, open_no_follow, read_file, text_at};
pub use search::{CodeCandidate, FIELDS};
pub use status::{Purged, WorkstreamStatus};
pub use weft_code::Language;
pub use weft_code::git::GitError;
pub use weft_core::code::{Kind, paths, rank};
pub use weft_store::code::FieldWeights;

/// Longest query, characters.
pub const MAX_QUERY: usize = 2_000;
/// Largest limit.
pub const MAX_LIMIT: usize = 50;

/// Why there is no answer about code.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CodeError {
    /// The repository.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No repository has this id.
    #[error("repository not found: {0}")]
    NoSuchRepository(String),
    /// A question that cannot be answered.
    #[error("{0}")]
    Bad(String),
}

impl CodeError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Git(GitError::NotFound(_)) => {
                Some("run it inside a git repository, or make one with `git init`")
            }
            Self::Git(GitError::Open { .. }) => Some("does `git status` work there?"),
            Self::Git(GitError::NoSuchRef(_)) => Some("`git branch -a` lists the branches"),
            Self::Store(e) => e.hint(),
            Self::NoSuchRepository(_) => {
                Some("`weft code repos` lists the ids that are known here")
            }
            _ => None,
        }
    }
}

/// What is in view of a checkout, kept while nothing changes.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Files on disk as they were seen last, with the head then.
    seen: RwLock<Option<Arc<index::Seen>>>,
    /// Nothing on disk moved since the last scan; means something only while it is watched.
    clean: AtomicBool,
    /// A watcher clears `clean` when something moves.
    watched: AtomicBool,
    /// An index run of this process is under way.
    running: AtomicBool,
}

/// An index run of this process; it is over when this goes, whatever happened.
pub(crate) struct Running(Arc<Live>);

impl Live {
    /// Begins an index run; `None` where one is under way.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<Running> {
        (!self.running.swap(true, Ordering::AcqRel)).then(|| Running(self.clone()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
    }
}

/// A repository that is open in this process.
#[derive(Clone)]
pub struct CodeRepo {
    /// Id: equal for every clone and worktree.
    pub id: String,
    /// Top of the checkout; `None` = bare.
    pub root: Option<PathBuf>,
    /// What to open for git.
    place: PathBuf,
    store: Arc<CodeStore>,
    live: Arc<Live>,
}

impl std::fmt::Debug for CodeRepo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeRepo")
            .field("id", &self.id)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl CodeRepo {
    /// The repository, for reading.
    pub(crate) fn git(&self) -> Result<Git, CodeError> {
        Ok(Git::open(&self.place)?)
    }

    /// The branch that a question is about: its name, whether it is checked out, its commit.
    pub(crate) fn branch(&self, git: &Git, asked: Option<&str>) -> Result<Branch, CodeError> {
        let head = git.head()?;
        match asked.filter(|a| *a != head.workstream) {
            None => Ok(Branch {
                name: head.workstream,
                is_active: true,
                head: head.commit,
            }),
            Some(name) => Ok(Branch {
                name: name.to_owned(),
                is_active: false,
                head: Some(git.tip(name)?),
            }),
        }
    }

    /// The index.
    pub fn store(&self) -> &Arc<CodeStore> {
        &self.store
    }

    /// A name for people.
    pub fn name(&self) -> String {
        self.place
            .file_name()
            .map_or_else(|| self.id.clone(), |n| n.to_string_lossy().into_owned())
    }
}

/// A branch as git has it now.
pub(crate) struct Branch {
    pub(crate) name: String,
    /// Whether it is checked out here.
    pub(crate) is_active: bool,
    /// Commit at its tip; `None` where there is none yet.
    pub(crate) head: Option<String>,
}

/// What is open: indexes by repository, checkouts by their top.
#[derive(Debug, Default)]
pub(crate) struct Open {
    stores: Mutex<HashMap<String, Arc<CodeStore>>>,
    lives: Mutex<HashMap<PathBuf, Arc<Live>>>,
}

/// Namespace of repository ids.
const NAMESPACE: Uuid = Uuid::from_bytes([
    0x6a, 0x1f, 0x5c, 0x1e, 0x70, 0x2b, 0x4c, 0x0e, 0x9b, 0x0a, 0x77, 0x65, 0x66, 0x74, 0x63, 0x64,
]);

/// The id of a repository: of its normalised origin and its first commit; of the first commit alone
/// without a remote; of its place without commits.
pub fn repository_id(origin: Option<&str>, first_commit: &str, place: &Path) -> String {
    let origin =
        origin.and_then(|o| repository::normalize_remote(o).or_else(|| Some(o.to_owned())));
    let name = match (origin, first_commit) {
        (Some(o), "") => o,
        (Some(o), first) => format!("{o}\n{first}"),
        (None, "") => place.to_string_lossy().into_owned(),
        (None, first) => first.to_owned(),
    };
    Uuid::new_v5(&NAMESPACE, name.as_bytes()).to_string()
}

impl Engine {
    /// The repository that holds a folder.
    ///
    /// # Errors
    /// Where there is none, where it cannot be read, or where the index cannot be opened.
    pub fn code_repository(&self, folder: &Path) -> Result<CodeRepo, CodeError> {
        let place = weft_code::git::locate(folder)?;
        let git = Git::open(&place)?;
        let common = git.common_dir().to_owned();
        let shown = common.to_string_lossy().into_owned();
        let origin = git.origin().unwrap_or_default();
        let known = self.store.repository_at(&shown)?;
        let root = git.root().map(Path::to_owned);
        let here = root.clone().unwrap_or_else(|| place.clone());
        let row = match known {
            // A repository gets its lasting id with its first commit.
            Some(r)
                if r.origin == origin
                    && (!r.first_commit.is_empty() || git.head()?.commit.is_none()) =>
            {
                r
            }
            _ => {
                let first = match git.head()?.commit {
                    Some(c) => git.root_commit(&c)?,
                    None => String::new(),
                };
                let row = RepositoryRow {
                    repo_id: repository_id(
                        Some(&origin).filter(|o| !o.is_empty()).map(|o| o.as_str()),
                        &first,
                        &common,
                    ),
                    common_dir: shown,
                    root: here.to_string_lossy().into_owned(),
                    origin,
                    first_commit: first,
                };
                // A store that cannot be written still answers.
                match self.store.put_repository(&row, now()) {
                    Err(e) if !e.is_write_only() => return Err(e.into()),
                    _ => {}
                }
                row
            }
        };
        self.open_code(row.repo_id, root, place)
    }

    /// A repository by its id, at the place where it was seen last.
    ///
    /// # Errors
    /// [`CodeError::NoSuchRepository`], or as [`Self::code_repository`].
    pub fn code_repository_by_id(&self, id: &str) -> Result<CodeRepo, CodeError> {
        let rows = self.store.repositories(Some(id))?;
        let row = rows
            .iter()
            .find(|r| Path::new(&r.root).exists())
            .ok_or_else(|| CodeError::NoSuchRepository(id.to_owned()))?;
        let repo = self.code_repository(Path::new(&row.root))?;
        if repo.id == id {
            Ok(repo)
        } else {
            Err(CodeError::NoSuchRepository(id.to_owned()))
        }
    }

    fn open_code(
        &self,
        id: String,
        root: Option<PathBuf>,
        place: PathBuf,
    ) -> Result<CodeRepo, CodeError> {
        let mut stores = self.code.stores.lock().unwrap_or_else(|e| e.into_inner());
        let store = match stores.get(&id) {
            Some(s) => s.clone(),
            None => {
                let dir = self.store.dir().join("code").join(&id);
                let s = CodeStore::open(&dir, extract::VERSION)?;
                stores.insert(id.clone(), s.clone());
                s
            }
        };
        let mut lives = self.code.lives.lock().unwrap_or_else(|e| e.into_inner());
        let live = lives
            .entry(root.clone().unwrap_or_else(|| place.clone()))
            .or_default()
            .clone();
        Ok(CodeRepo {
            id,
            root,
            place,
            store,
            live,
        })
    }

    /// The commit at the tip of a branch.
    ///
    /// # Errors
    /// Where there is no such branch.
    pub fn code_tip(&self, repo: &CodeRepo, workstream: &str) -> Result<String, CodeError> {
        Ok(repo.git()?.tip(workstream)?)
    }

    pub(crate) fn code_model(
        &self,
        repo: &CodeRepo,
    ) -> Result<Option<weft_store::code::CodeModel>, CodeError> {
        match &self.embedder {
            Ok(e) => Ok(repo.store.model(e.identity())?),
            Err(_) => Ok(None),
        }
    }
}

/// Symbols of file versions, for counting.
pub(crate) fn view_of(ids: &[u32]) -> View {
    View::new(ids.iter().copied())
}
