//! The code index of one repository: a folder that can be deleted at any time.
//!
//! | part | what |
//! | --- | --- |
//! | `code.db` | file versions with their symbols, vectors by text hash, branches, checkouts, last changes |
//! | `words/` | the keyword index (tantivy) |
//! | `*.codes` | vectors packed for the scan |
//!
//! A *file version* is a path with one content. It never changes, so all that an index run does is
//! add versions; a branch or a checkout is a set of them (a [`View`]), and switching between two is
//! choosing another set. **Invariant.** A version is in `code.db` only after its words and vectors
//! are durable, so a killed run leaves an index that misses some versions and has no others.

mod codec;
mod vectors;
mod words;
mod write;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use weft_core::code::Symbol;

use crate::sqlite::db;
use crate::{Result, StoreError, pack};
pub use codec::{CodeSymbol, HASH, SeenFile, SeenFolder};
pub use vectors::pack_vector;
pub use words::{CodeFilter, FieldWeights, SymbolWords};
pub use write::{CodeWriter, FileWords, NewFile, NewSymbol};

/// Version of the layout; another one is deleted and made anew.
const VERSION: i64 = 1;

const SCHEMA: &str = r#"
CREATE TABLE files (
  id INTEGER PRIMARY KEY,
  path TEXT NOT NULL,
  blob BLOB NOT NULL,
  language TEXT NOT NULL,
  skipped TEXT NOT NULL,
  failed INTEGER NOT NULL,
  count INTEGER NOT NULL,
  symbols BLOB NOT NULL,
  UNIQUE (path, blob)
) STRICT;
CREATE TABLE models (id INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE, dimensions INTEGER NOT NULL) STRICT;
CREATE TABLE vectors (
  model INTEGER NOT NULL,
  hash BLOB NOT NULL,
  vector BLOB NOT NULL,
  PRIMARY KEY (model, hash)
) STRICT, WITHOUT ROWID;
CREATE TABLE embedded (model INTEGER NOT NULL, file INTEGER NOT NULL, PRIMARY KEY (model, file)) STRICT, WITHOUT ROWID;
CREATE TABLE segments (name TEXT PRIMARY KEY, model INTEGER NOT NULL, rows INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE workstreams (
  name TEXT PRIMARY KEY,
  head TEXT NOT NULL,
  files BLOB NOT NULL,
  symbols INTEGER NOT NULL,
  indexed_at INTEGER NOT NULL,
  error TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE checkouts (
  root TEXT PRIMARY KEY,
  head TEXT NOT NULL,
  files BLOB NOT NULL,
  folders BLOB NOT NULL,
  scanned_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE changes (
  path TEXT NOT NULL,
  symbol TEXT NOT NULL,
  hash BLOB NOT NULL,
  head TEXT NOT NULL,
  reached TEXT NOT NULL,
  changeset TEXT NOT NULL,
  intent TEXT NOT NULL,
  author TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (path, symbol, hash)
) STRICT, WITHOUT ROWID;
"#;

/// A set of file versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    bits: Vec<u64>,
    count: usize,
}

impl View {
    /// The set of some ids.
    pub fn new(ids: impl IntoIterator<Item = u32>) -> Self {
        let mut v = Self::default();
        for id in ids {
            v.insert(id);
        }
        v
    }

    /// Adds a version.
    pub fn insert(&mut self, id: u32) {
        let word = id as usize / 64;
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        let bit = 1 << (id % 64);
        if self.bits[word] & bit == 0 {
            self.bits[word] |= bit;
            self.count += 1;
        }
    }

    /// Whether a version is in it.
    pub fn contains(&self, id: u32) -> bool {
        self.bits
            .get(id as usize / 64)
            .is_some_and(|w| w & (1 << (id % 64)) != 0)
    }

    /// How many versions are in it.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none is in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Ids, ascending.
    pub fn ids(&self) -> Vec<u32> {
        let mut out = Vec::with_capacity(self.count);
        for (i, word) in self.bits.iter().enumerate() {
            let mut w = *word;
            while w != 0 {
                out.push(i as u32 * 64 + w.trailing_zeros());
                w &= w - 1;
            }
        }
        out
    }

    /// Versions that are in both.
    pub fn and(&self, other: &Self) -> Self {
        Self::new(self.ids().into_iter().filter(|id| other.contains(*id)))
    }
}

/// A file version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVersion {
    /// Id.
    pub id: u32,
    /// Path.
    pub path: String,
    /// Id of its blob.
    pub blob: Vec<u8>,
    /// Language; "" = none.
    pub language: String,
    /// Why it was not read; "" = it was.
    pub skipped: String,
    /// Symbols in source order.
    pub symbols: Vec<CodeSymbol>,
}

impl FileVersion {
    /// The target of a symbol: `path::name`, with `#2`, `#3` where a name stands again.
    pub fn target(&self, at: usize) -> String {
        let Some(s) = self.symbols.get(at) else {
            return self.path.clone();
        };
        let name = &s.symbol.name;
        let before = self.symbols[..at]
            .iter()
            .filter(|o| o.symbol.name == *name)
            .count();
        if before == 0 {
            format!("{}::{name}", self.path)
        } else {
            format!("{}::{name}#{}", self.path, before + 1)
        }
    }

    /// The symbol of a target's part after `::`.
    pub fn find(&self, symbol: &str) -> Option<&Symbol> {
        let (name, n) = match symbol.rsplit_once('#') {
            Some((name, n)) if n.parse::<usize>().is_ok() && !name.is_empty() => {
                (name, n.parse().unwrap_or(1))
            }
            _ => (symbol, 1),
        };
        self.symbols
            .iter()
            .map(|s| &s.symbol)
            .filter(|s| s.name == name)
            .nth(usize::max(n, 1) - 1)
            .or_else(|| {
                self.symbols
                    .iter()
                    .map(|s| &s.symbol)
                    .find(|s| s.name == symbol)
            })
    }
}

/// A branch as it was indexed last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workstream {
    /// Name.
    pub name: String,
    /// Commit; "" = never.
    pub head: String,
    /// Its files.
    pub files: Vec<u32>,
    /// Symbols of it.
    pub symbols: u64,
    /// Microseconds since 1970.
    pub indexed_at: i64,
    /// What went wrong last; "" = nothing.
    pub error: String,
}

/// A remembered last change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Head for which it was found.
    pub head: String,
    /// Commit that the search reached without an answer; "" = it has one.
    pub reached: String,
    /// Commit that changed the text.
    pub changeset: String,
    /// Its subject.
    pub intent: String,
    /// Its author.
    pub author: String,
    /// Seconds since 1970.
    pub at: i64,
}

/// An embedding model in this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeModel {
    pub(crate) id: i64,
    /// Length of its vectors.
    pub dimensions: usize,
}

/// Decoded file versions, kept while the process runs.
#[derive(Default)]
struct Cache {
    files: HashMap<u32, Arc<FileVersion>>,
    symbols: usize,
}

/// Symbols that the cache of decoded files holds at most.
const CACHE_SYMBOLS: usize = 60_000;

/// The open code index of a repository.
pub struct CodeStore {
    dir: PathBuf,
    connection: Mutex<Connection>,
    words: words::CodeWords,
    segments: RwLock<HashMap<String, Arc<vectors::Packed>>>,
    cache: Mutex<Cache>,
}

impl std::fmt::Debug for CodeStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeStore")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

fn open_database(path: &Path) -> Result<Connection> {
    let c = db::open_writer(path, db::Sync::Normal)?;
    c.pragma_update(None, "mmap_size", 1_i64 << 30)?;
    Ok(c)
}

impl CodeStore {
    /// Opens the index in `dir`, creating it where necessary; one that another layout or another
    /// version of the extractor wrote is made anew.
    ///
    /// # Errors
    /// As the store: locked, read-only, full, damaged.
    pub fn open(dir: &Path, extractor: u32) -> Result<Arc<Self>> {
        let wanted = VERSION * 1_000 + i64::from(extractor);
        db::create_dir(dir)?;
        let path = dir.join("code.db");
        db::create_private(&path)?;
        let mut c = open_database(&path)?;
        let mut version: i64 = c.query_row("PRAGMA user_version", [], |r| r.get(0))?;
        if version != wanted {
            // Two processes may come here at once; the lock lets one of them do the work.
            let _lock = lock(dir, true)?;
            version = c.query_row("PRAGMA user_version", [], |r| r.get(0))?;
            if version != wanted {
                if version != 0 {
                    drop(c);
                    for name in ["code.db", "code.db-wal", "code.db-shm"] {
                        remove_if_there(&dir.join(name))?;
                    }
                    let _ = std::fs::remove_dir_all(dir.join("words"));
                    db::create_private(&path)?;
                    c = open_database(&path)?;
                }
                let tx = c.transaction_with_behavior(TransactionBehavior::Immediate)?;
                tx.execute_batch(SCHEMA)?;
                tx.pragma_update(None, "user_version", wanted)?;
                tx.commit()?;
            }
        }
        Ok(Arc::new(Self {
            words: words::CodeWords::open(&dir.join("words"))?,
            dir: dir.to_owned(),
            connection: Mutex::new(c),
            segments: RwLock::default(),
            cache: Mutex::default(),
        }))
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let c = self.connection.lock().unwrap_or_else(|e| e.into_inner());
        f(&c)
    }

    /// The id of a file version.
    pub fn version_id(&self, path: &str, blob: &[u8]) -> Result<Option<u32>> {
        self.with(|c| {
            Ok(
                c.prepare_cached("SELECT id FROM files WHERE path = ?1 AND blob = ?2")?
                    .query_row(params![path, blob], |r| r.get(0))
                    .optional()?,
            )
        })
    }

    /// Every file version by path and blob: one pass over an index, for whole branches.
    pub fn all_versions(&self) -> Result<HashMap<(String, Vec<u8>), u32>> {
        self.with(|c| {
            let mut s = c.prepare_cached("SELECT path, blob, id FROM files ORDER BY path, blob")?;
            let rows = s.query_map([], |r| Ok(((r.get(0)?, r.get(1)?), r.get(2)?)))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// All versions of a path: id and blob.
    pub fn versions_of(&self, path: &str) -> Result<Vec<(u32, Vec<u8>)>> {
        self.with(|c| {
            let mut s =
                c.prepare_cached("SELECT id, blob FROM files WHERE path = ?1 ORDER BY id")?;
            let rows = s.query_map([path], |r| Ok((r.get(0)?, r.get(1)?)))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// A file version, decoded.
    pub fn file(&self, id: u32) -> Result<Option<Arc<FileVersion>>> {
        if let Some(f) = self.cached(id) {
            return Ok(Some(f));
        }
        let row = self.with(|c| {
            Ok(c.prepare_cached(
                "SELECT path, blob, language, skipped, symbols FROM files WHERE id = ?1",
            )?
            .query_row([id], |r| {
                Ok((
                    r.get::<_, String>(0)?,
                    r.get::<_, Vec<u8>>(1)?,
                    r.get::<_, String>(2)?,
                    r.get::<_, String>(3)?,
                    r.get::<_, Vec<u8>>(4)?,
                ))
            })
            .optional()?)
        })?;
        let Some((path, blob, language, skipped, symbols)) = row else {
            return Ok(None);
        };
        let file = Arc::new(FileVersion {
            id,
            path,
            blob,
            language,
            skipped,
            symbols: codec::decode_symbols(&pack::unpack(&symbols)?)?,
        });
        let mut cache = self.cache.lock().unwrap_or_else(|e| e.into_inner());
        if cache.symbols > CACHE_SYMBOLS {
            *cache = Cache::default();
        }
        cache.symbols += file.symbols.len() + 1;
        cache.files.insert(id, file.clone());
        Ok(Some(file))
    }

    fn cached(&self, id: u32) -> Option<Arc<FileVersion>> {
        self.cache
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .files
            .get(&id)
            .cloned()
    }

    /// Versions whose path begins with one of the prefixes, as a set.
    pub fn under(&self, prefixes: &[String]) -> Result<View> {
        self.with(|c| {
            let mut view = View::default();
            for p in prefixes {
                // A prefix is a folder or the beginning of a name, as the seed writes `lib/http`.
                let mut end = p.clone().into_bytes();
                end.push(0xFF);
                let mut s = c.prepare_cached(
                    "SELECT id FROM files WHERE path >= ?1 AND CAST(path AS BLOB) < ?2",
                )?;
                let rows = s.query_map(params![p, end], |r| r.get::<_, u32>(0))?;
                for id in rows {
                    view.insert(id?);
                }
            }
            Ok(view)
        })
    }

    /// Files in view that were not read: path and reason; and how many did not parse.
    pub fn left_out(&self, view: &View) -> Result<(Vec<(String, String)>, u64)> {
        self.with(|c| {
            let mut s = c.prepare_cached(
                "SELECT id, path, skipped, failed FROM files WHERE skipped <> '' OR failed <> 0 ORDER BY path",
            )?;
            let mut rows = s.query([])?;
            let (mut skipped, mut failed) = (Vec::new(), 0);
            while let Some(r) = rows.next()? {
                if !view.contains(r.get(0)?) {
                    continue;
                }
                let reason: String = r.get(2)?;
                if reason.is_empty() {
                    failed += 1;
                } else {
                    skipped.push((r.get(1)?, reason));
                }
            }
            Ok((skipped, failed))
        })
    }

    /// Symbols in view.
    pub fn count_symbols(&self, view: &View) -> Result<u64> {
        self.with(|c| {
            let mut s = c.prepare_cached("SELECT id, count FROM files")?;
            let mut rows = s.query([])?;
            let mut n = 0;
            while let Some(r) = rows.next()? {
                if view.contains(r.get(0)?) {
                    n += r.get::<_, u64>(1)?;
                }
            }
            Ok(n)
        })
    }

    /// A branch as it was indexed.
    pub fn workstream(&self, name: &str) -> Result<Option<Workstream>> {
        Ok(self.workstreams_where(Some(name))?.pop())
    }

    /// All branches that were indexed.
    pub fn workstreams(&self) -> Result<Vec<Workstream>> {
        self.workstreams_where(None)
    }

    fn workstreams_where(&self, name: Option<&str>) -> Result<Vec<Workstream>> {
        self.with(|c| {
            let mut s = c.prepare_cached(
                "SELECT name, head, files, symbols, indexed_at, error FROM workstreams
                 WHERE ?1 IS NULL OR name = ?1 ORDER BY name",
            )?;
            let mut rows = s.query([name])?;
            let mut out = Vec::new();
            while let Some(r) = rows.next()? {
                out.push(Workstream {
                    name: r.get(0)?,
                    head: r.get(1)?,
                    files: codec::decode_ids(&r.get::<_, Vec<u8>>(2)?)?,
                    symbols: r.get(3)?,
                    indexed_at: r.get(4)?,
                    error: r.get(5)?,
                });
            }
            Ok(out)
        })
    }

    /// What was seen of a checkout, and the head then.
    pub fn checkout(&self, root: &str) -> Result<Option<(String, Vec<SeenFile>)>> {
        let row = self.with(|c| {
            Ok(
                c.prepare_cached("SELECT head, files FROM checkouts WHERE root = ?1")?
                    .query_row([root], |r| {
                        Ok((r.get::<_, String>(0)?, r.get::<_, Vec<u8>>(1)?))
                    })
                    .optional()?,
            )
        })?;
        row.map(|(head, files)| Ok((head, codec::decode_seen(&files)?)))
            .transpose()
    }

    /// The folders of a checkout as they were at its last whole scan; empty where there was none.
    pub fn checkout_folders(&self, root: &str) -> Result<Vec<SeenFolder>> {
        let row: Option<Vec<u8>> = self.with(|c| {
            Ok(
                c.prepare_cached("SELECT folders FROM checkouts WHERE root = ?1")?
                    .query_row([root], |r| r.get(0))
                    .optional()?,
            )
        })?;
        let files = codec::decode_seen(&row.unwrap_or_default())?;
        Ok(files
            .into_iter()
            .map(|f| SeenFolder {
                path: f.path,
                size: f.size,
                modified: f.modified,
                inode: f.inode,
            })
            .collect())
    }

    /// Roots of all checkouts that were seen.
    pub fn checkout_roots(&self) -> Result<Vec<String>> {
        self.with(|c| {
            let mut s = c.prepare_cached("SELECT root FROM checkouts ORDER BY root")?;
            let rows = s.query_map([], |r| r.get(0))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// A remembered last change.
    pub fn change(&self, path: &str, symbol: &str, hash: &[u8]) -> Result<Option<Change>> {
        self.with(|c| {
            Ok(c.prepare_cached(
                "SELECT head, reached, changeset, intent, author, at FROM changes
                 WHERE path = ?1 AND symbol = ?2 AND hash = ?3",
            )?
            .query_row(params![path, symbol, hash], |r| {
                Ok(Change {
                    head: r.get(0)?,
                    reached: r.get(1)?,
                    changeset: r.get(2)?,
                    intent: r.get(3)?,
                    author: r.get(4)?,
                    at: r.get(5)?,
                })
            })
            .optional()?)
        })
    }

    /// Remembers a last change.
    pub fn remember_change(
        &self,
        path: &str,
        symbol: &str,
        hash: &[u8],
        change: &Change,
    ) -> Result<()> {
        self.with(|c| {
            c.prepare_cached(
                "INSERT INTO changes (path, symbol, hash, head, reached, changeset, intent, author, at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 ON CONFLICT DO UPDATE SET head = excluded.head, reached = excluded.reached,
                   changeset = excluded.changeset, intent = excluded.intent, author = excluded.author, at = excluded.at",
            )?
            .execute(params![
                path, symbol, hash, change.head, change.reached, change.changeset, change.intent,
                change.author, change.at
            ])?;
            Ok(())
        })
    }

    /// Documents with any of the words, best first; words carry weights.
    pub fn word_search(
        &self,
        words: &[(String, f32)],
        weights: &FieldWeights,
        filter: &CodeFilter,
        limit: usize,
    ) -> Result<Vec<(SymbolKey, f32)>> {
        let found = self.words.search(words, weights, filter, limit)?;
        Ok(found.into_iter().map(|(k, s)| (SymbolKey(k), s)).collect())
    }

    /// Documents with all words in name (1), name and signature (2), or these and doc (3).
    pub fn with_all_words(
        &self,
        words: &[String],
        fields: usize,
        filter: &CodeFilter,
        limit: usize,
    ) -> Result<Vec<SymbolKey>> {
        let found = self.words.with_all(words, fields, filter, limit)?;
        Ok(found.into_iter().map(|(k, _)| SymbolKey(k)).collect())
    }

    /// Documents by normalised name, exactly or by its beginning.
    pub fn named(
        &self,
        name: &str,
        prefix: bool,
        filter: &CodeFilter,
        limit: usize,
    ) -> Result<Vec<SymbolKey>> {
        let found = self.words.named(name, prefix, filter, limit)?;
        Ok(found.into_iter().map(SymbolKey).collect())
    }

    /// Number of documents, and of those with each word.
    pub fn word_frequencies(&self, words: &[String]) -> Result<(u64, Vec<u64>)> {
        self.words.frequencies(words)
    }

    /// Takes note of what other processes committed.
    pub fn refresh(&self) -> Result<()> {
        self.words.reload()
    }
}

/// A symbol of a file version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SymbolKey(pub(crate) u64);

impl SymbolKey {
    /// The key of a symbol's place.
    pub fn new(file: u32, at: usize) -> Self {
        Self(words::key(file, at.min(usize::from(u16::MAX)) as u16))
    }

    /// File version.
    pub fn file(self) -> u32 {
        (self.0 >> 16) as u32
    }

    /// Place of the symbol in it.
    pub fn at(self) -> usize {
        (self.0 & 0xFFFF) as usize
    }
}

fn remove_if_there(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
        _ => Ok(()),
    }
}

/// The lock of whoever writes the index of a repository; it goes with the file.
pub(crate) fn lock(dir: &Path, wait: bool) -> Result<File> {
    let path = dir.join("write.lock");
    db::create_private(&path)?;
    let file = File::open(&path)?;
    if wait {
        file.lock()?;
    } else {
        file.try_lock()
            .map_err(|_| StoreError::Busy("another process is indexing this repository".into()))?;
    }
    Ok(file)
}
