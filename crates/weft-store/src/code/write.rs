//! Writing the code index: one process at a time, batch by batch.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::{OptionalExtension as _, params};
use weft_core::code::{Kind, Symbol};

use super::codec::{self, CodeSymbol, SeenFile, SeenFolder};
use super::words::{CodeWordsWriter, SymbolWords, key};
use super::{CodeModel, CodeStore, HASH, View, Workstream, lock};
use crate::codes::Segment;
use crate::{Result, pack};

/// More segments than this are merged.
const MAX_SEGMENTS: usize = 8;

/// A symbol to store.
#[derive(Clone, Debug)]
pub struct NewSymbol {
    /// The symbol.
    pub symbol: Symbol,
    /// Hash of its rendered text.
    pub hash: [u8; HASH],
    /// Its vector as [`super::pack_vector`] makes it, where one was computed now.
    pub vector: Option<Vec<u8>>,
}

/// A file version to store.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// Id, from [`FileWords::next_id`]; its words were given to [`FileWords::add`] under it.
    pub id: u32,
    /// Path.
    pub path: String,
    /// Blob id.
    pub blob: Vec<u8>,
    /// Language; "" = none.
    pub language: String,
    /// Why it was not read; "" = it was.
    pub skipped: String,
    /// Whether it did not parse.
    pub failed: bool,
    /// Symbols in source order.
    pub symbols: Vec<NewSymbol>,
    /// Whether vectors belong to it: the model was at hand.
    pub embedded: bool,
}

/// The one writer of a repository's index, while it lives.
pub struct CodeWriter {
    store: Arc<CodeStore>,
    words: Option<Arc<FileWords>>,
    _lock: File,
}

/// Takes the words of file versions from any number of threads, before the versions are stored.
pub struct FileWords {
    words: CodeWordsWriter,
    last: AtomicU32,
}

impl std::fmt::Debug for FileWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileWords").finish_non_exhaustive()
    }
}

impl FileWords {
    /// An id that no version had before. One that is never stored is never shown.
    pub fn next_id(&self) -> u32 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds the words of a symbol.
    pub fn add(&self, file: u32, at: usize, kind: Kind, words: SymbolWords) -> Result<()> {
        match u16::try_from(at) {
            Ok(at) => self.words.add(file, at, kind, words),
            Err(_) => Ok(()),
        }
    }

    fn commit(&self) -> Result<()> {
        self.words.commit(self.last.load(Ordering::Relaxed))
    }
}

impl std::fmt::Debug for CodeWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeWriter").finish_non_exhaustive()
    }
}

impl CodeStore {
    /// Becomes the writer. Waits for another one, or fails with `Busy`.
    pub fn writer(self: &Arc<Self>, wait: bool) -> Result<CodeWriter> {
        Ok(CodeWriter {
            _lock: lock(&self.dir, wait)?,
            words: None,
            store: self.clone(),
        })
    }
}

impl CodeWriter {
    fn last_id(&self) -> Result<u32> {
        self.store
            .with(|c| Ok(c.query_row("SELECT coalesce(max(id), 0) FROM files", [], |r| r.get(0))?))
    }

    /// The keyword writer, which starts with the first need.
    pub fn words(&mut self) -> Result<Arc<FileWords>> {
        if let Some(w) = &self.words {
            return Ok(w.clone());
        }
        let words = self.store.words.writer()?;
        // What a killed run left in the keyword index without recording it keeps its ids.
        let last = self.last_id()?.max(self.store.words.committed()?);
        let new = Arc::new(FileWords {
            words,
            last: AtomicU32::new(last),
        });
        self.words = Some(new.clone());
        Ok(new)
    }

    /// The row of a model.
    pub fn model(&self, identity: &str, dimensions: usize) -> Result<CodeModel> {
        self.store.with(|c| {
            c.execute(
                "INSERT INTO models (identity, dimensions) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                params![identity, dimensions],
            )?;
            Ok(())
        })?;
        self.store
            .model(identity)?
            .ok_or_else(|| crate::StoreError::Other("a model vanished".into()))
    }

    /// Stores file versions whose words were added; returns their ids in order, which differ from the
    /// given ones where a version is known already. Durable on return.
    pub fn add(&mut self, files: Vec<NewFile>, model: Option<CodeModel>) -> Result<Vec<u32>> {
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let mut ids = Vec::with_capacity(files.len());
        let mut stored: Vec<(u32, NewFile, Vec<CodeSymbol>)> = Vec::with_capacity(files.len());
        let mut here: HashMap<(String, Vec<u8>), u32> = HashMap::new();
        for mut f in files {
            // Read twice in one run: as a file on disk and as a file of the head.
            let known = match here.get(&(f.path.clone(), f.blob.clone())) {
                Some(id) => Some(*id),
                None => self.store.version_id(&f.path, &f.blob)?,
            };
            if let Some(id) = known {
                ids.push(id);
                continue;
            }
            ids.push(f.id);
            here.insert((f.path.clone(), f.blob.clone()), f.id);
            f.symbols.truncate(usize::from(u16::MAX));
            let symbols = f
                .symbols
                .iter()
                .map(|s| CodeSymbol {
                    symbol: s.symbol.clone(),
                    hash: s.hash,
                })
                .collect();
            stored.push((f.id, f, symbols));
        }
        self.words()?.commit()?;
        let segment = match model {
            Some(m) => self.write_segment(m, &stored)?,
            None => None,
        };
        self.store.with(|c| {
            let tx = c.unchecked_transaction()?;
            for (id, f, symbols) in &stored {
                tx.prepare_cached(
                    "INSERT INTO files (id, path, blob, language, skipped, failed, count, symbols)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                )?
                .execute(params![
                    id,
                    f.path,
                    f.blob,
                    f.language,
                    f.skipped,
                    f.failed,
                    symbols.len(),
                    pack::pack(&codec::encode_symbols(symbols))
                ])?;
                let Some(m) = model.filter(|_| f.embedded) else {
                    continue;
                };
                for s in &f.symbols {
                    if let Some(v) = &s.vector {
                        tx.prepare_cached("INSERT INTO vectors (model, hash, vector) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")?
                            .execute(params![m.id, s.hash.as_slice(), v])?;
                    }
                }
                tx.prepare_cached("INSERT INTO embedded (model, file) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
                    .execute(params![m.id, id])?;
            }
            if let (Some(m), Some((name, rows))) = (model, &segment) {
                tx.execute(
                    "INSERT INTO segments (name, model, rows) VALUES (?1, ?2, ?3)",
                    params![name, m.id, rows],
                )?;
            }
            tx.commit()?;
            Ok(())
        })?;
        self.store.refresh()?;
        Ok(ids)
    }

    /// Stores vectors of versions that are there already: by version, the vectors computed now.
    pub fn add_vectors(
        &mut self,
        model: CodeModel,
        files: &[u32],
        vectors: &[([u8; HASH], Vec<u8>)],
    ) -> Result<()> {
        self.store.with(|c| {
            let tx = c.unchecked_transaction()?;
            for (hash, v) in vectors {
                tx.prepare_cached("INSERT INTO vectors (model, hash, vector) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")?
                    .execute(params![model.id, hash.as_slice(), v])?;
            }
            tx.commit()?;
            Ok(())
        })?;
        let mut rows = Vec::new();
        for id in files {
            if let Some(f) = self.store.file(*id)? {
                self.rows_of(model, *id, f.symbols.iter().map(|s| &s.hash), &mut rows)?;
            }
        }
        let segment = self.segment_of(model, rows)?;
        self.store.with(|c| {
            let tx = c.unchecked_transaction()?;
            for id in files {
                tx.prepare_cached(
                    "INSERT INTO embedded (model, file) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                )?
                .execute(params![model.id, id])?;
            }
            if let Some((name, n)) = &segment {
                tx.execute(
                    "INSERT INTO segments (name, model, rows) VALUES (?1, ?2, ?3)",
                    params![name, model.id, n],
                )?;
            }
            tx.commit()?;
            Ok(())
        })
    }

    /// The vectors that the database has for the symbols of a version.
    fn rows_of<'a>(
        &self,
        model: CodeModel,
        id: u32,
        hashes: impl Iterator<Item = &'a [u8; HASH]>,
        rows: &mut Vec<(i64, Vec<u8>)>,
    ) -> Result<()> {
        self.store.with(|c| {
            let mut s =
                c.prepare_cached("SELECT vector FROM vectors WHERE model = ?1 AND hash = ?2")?;
            for (at, h) in hashes.enumerate() {
                let blob: Option<Vec<u8>> = s
                    .query_row(params![model.id, h.as_slice()], |r| r.get(0))
                    .optional()?;
                if let Some(v) = blob {
                    rows.push((key(id, at as u16).cast_signed(), v));
                }
            }
            Ok(())
        })
    }

    fn write_segment(
        &self,
        model: CodeModel,
        files: &[(u32, NewFile, Vec<CodeSymbol>)],
    ) -> Result<Option<(String, usize)>> {
        let mut rows: Vec<(i64, Vec<u8>)> = Vec::new();
        let now: HashMap<[u8; HASH], &Vec<u8>> = files
            .iter()
            .flat_map(|(_, f, _)| &f.symbols)
            .filter_map(|s| Some((s.hash, s.vector.as_ref()?)))
            .collect();
        for (id, f, _) in files.iter().filter(|(_, f, _)| f.embedded) {
            for (at, s) in f.symbols.iter().enumerate() {
                if let Some(v) = now.get(&s.hash) {
                    rows.push((key(*id, at as u16).cast_signed(), (*v).clone()));
                    continue;
                }
                let blob: Option<Vec<u8>> = self.store.with(|c| {
                    Ok(c.prepare_cached(
                        "SELECT vector FROM vectors WHERE model = ?1 AND hash = ?2",
                    )?
                    .query_row(params![model.id, s.hash.as_slice()], |r| r.get(0))
                    .optional()?)
                })?;
                if let Some(v) = blob {
                    rows.push((key(*id, at as u16).cast_signed(), v));
                }
            }
        }
        self.segment_of(model, rows)
    }

    fn segment_of(
        &self,
        model: CodeModel,
        mut rows: Vec<(i64, Vec<u8>)>,
    ) -> Result<Option<(String, usize)>> {
        rows.retain(|r| r.1.len() == model.dimensions + 4);
        if rows.is_empty() {
            return Ok(None);
        }
        rows.sort_by_key(|r| r.0);
        let ids: Vec<i64> = rows.iter().map(|r| r.0).collect();
        let name = format!(
            "{}-{:010}-{:x}.codes",
            model.id,
            ids[0] >> 16,
            std::process::id()
        );
        let packed: Vec<&[u8]> = rows.iter().map(|r| r.1.as_slice()).collect();
        Segment::write_packed(&self.store.dir.join(&name), model.dimensions, &ids, &packed)?;
        Ok(Some((name, ids.len())))
    }

    /// Merges segments where there are many, and leaves out versions that nothing shows any more.
    pub fn compact(&mut self, model: CodeModel) -> Result<()> {
        let segments: Vec<(String, u64)> = self.store.with(|c| {
            let mut s =
                c.prepare_cached("SELECT name, rows FROM segments WHERE model = ?1 ORDER BY rows")?;
            let rows = s.query_map([model.id], |r| Ok((r.get(0)?, r.get(1)?)))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })?;
        if segments.len() <= MAX_SEGMENTS {
            return Ok(());
        }
        // The small ones become one: a large segment is merged seldom, so the work stays linear.
        let mut sum = 0;
        let mut few: Vec<&(String, u64)> = Vec::new();
        for s in &segments {
            if few.len() > MAX_SEGMENTS / 2 && s.1 > sum * 2 {
                break;
            }
            sum += s.1;
            few.push(s);
        }
        let mut parts = Vec::with_capacity(few.len());
        for (name, _) in &few {
            parts.push(Segment::open(&self.store.dir.join(name))?);
        }
        let mut rows: Vec<(i64, (u32, u32))> = Vec::new();
        for (p, s) in (0_u32..).zip(&parts) {
            rows.extend((0..s.rows()).map(|row| (s.id(row), (p, row as u32))));
        }
        rows.sort_unstable();
        rows.dedup_by_key(|r| r.0);
        let n = rows.len();
        let (ids, places): (Vec<i64>, Vec<(u32, u32)>) = rows.into_iter().unzip();
        let name = format!(
            "{}-{:010}-{:x}-m{}.codes",
            model.id,
            ids.first().map_or(0, |i| i >> 16),
            std::process::id(),
            few.len()
        );
        Segment::write_from(&self.store.dir.join(&name), &ids, &parts, &places)?;
        let old: Vec<String> = few.iter().map(|f| f.0.clone()).collect();
        self.store.with(|c| {
            let tx = c.unchecked_transaction()?;
            for o in &old {
                tx.execute("DELETE FROM segments WHERE name = ?1", [o])?;
            }
            tx.execute(
                "INSERT INTO segments (name, model, rows) VALUES (?1, ?2, ?3)",
                params![name, model.id, n],
            )?;
            tx.commit()?;
            Ok(())
        })?;
        for o in old {
            super::remove_if_there(&self.store.dir.join(o))?;
        }
        Ok(())
    }

    /// Records a branch.
    pub fn set_workstream(&mut self, w: &Workstream) -> Result<()> {
        let mut ids = w.files.clone();
        ids.sort_unstable();
        self.store.with(|c| {
            c.execute(
                "INSERT INTO workstreams (name, head, files, symbols, indexed_at, error) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT DO UPDATE SET head = excluded.head, files = excluded.files, symbols = excluded.symbols,
                   indexed_at = excluded.indexed_at, error = excluded.error",
                params![w.name, w.head, codec::encode_ids(&ids), w.symbols, w.indexed_at, w.error],
            )?;
            Ok(())
        })
    }

    /// Records what was seen of a checkout. `folders` is empty while the scan is not whole.
    pub fn set_checkout(
        &mut self,
        root: &str,
        head: &str,
        files: &[SeenFile],
        folders: &[SeenFolder],
        now: i64,
    ) -> Result<()> {
        let folders: Vec<SeenFile> = folders
            .iter()
            .map(|f| SeenFile {
                path: f.path.clone(),
                size: f.size,
                modified: f.modified,
                inode: f.inode,
                file: 0,
            })
            .collect();
        self.store.with(|c| {
            c.execute(
                "INSERT INTO checkouts (root, head, files, folders, scanned_at) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET head = excluded.head, files = excluded.files,
                   folders = excluded.folders, scanned_at = excluded.scanned_at",
                params![root, head, codec::encode_seen(files), codec::encode_seen(&folders), now],
            )?;
            Ok(())
        })
    }

    /// Removes file versions with all that was made of them. Returns how many versions, symbols and
    /// vectors went.
    pub fn remove(&mut self, drop: &View) -> Result<(u64, u64, u64)> {
        let ids: Vec<(u32, Vec<u8>)> = self.store.with(|c| {
            let mut s = c.prepare("SELECT id, symbols FROM files")?;
            let mut rows = s.query([])?;
            let mut out = Vec::new();
            while let Some(r) = rows.next()? {
                let id: u32 = r.get(0)?;
                if drop.contains(id) {
                    out.push((id, r.get(1)?));
                }
            }
            Ok(out)
        })?;
        if ids.is_empty() {
            return Ok((0, 0, 0));
        }
        let last = self.last_id()?;
        let words = self.words()?;
        for (id, _) in &ids {
            words.words.remove(*id);
        }
        words.commit()?;
        words.words.expunge(&self.store.words)?;
        let mut symbols = 0;
        let mut hashes = Vec::new();
        for (_, blob) in &ids {
            for s in codec::decode_symbols(&pack::unpack(blob)?)? {
                symbols += 1;
                hashes.push(s.hash);
            }
        }
        // A text that other versions have too keeps its vector.
        let kept: std::collections::HashSet<[u8; HASH]> = self.hashes_outside(drop)?;
        let segments: Vec<(String, i64)> = self.store.with(|c| {
            let mut s = c.prepare("SELECT name, model FROM segments")?;
            let rows = s.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })?;
        // Name, model, and what comes in its place: name and rows.
        type Rewritten = (String, i64, Option<(String, usize)>);
        let mut changed: Vec<Rewritten> = Vec::new();
        for (name, model) in segments {
            let s = Segment::open(&self.store.dir.join(&name))?;
            let keep: Vec<usize> = (0..s.rows())
                .filter(|r| !drop.contains((s.id(*r).cast_unsigned() >> 16) as u32))
                .collect();
            if keep.len() == s.rows() {
                continue;
            }
            let new = if keep.is_empty() {
                None
            } else {
                let ids: Vec<i64> = keep.iter().map(|r| s.id(*r)).collect();
                let places: Vec<(u32, u32)> = keep.iter().map(|r| (0, *r as u32)).collect();
                let new = format!("{}-p.codes", name.trim_end_matches(".codes"));
                Segment::write_from(&self.store.dir.join(&new), &ids, &[s], &places)?;
                Some((new, ids.len()))
            };
            changed.push((name, model, new));
        }
        let mut vectors = 0;
        self.store.with(|c| {
            let tx = c.unchecked_transaction()?;
            for (id, _) in &ids {
                // The highest id stays taken, so that no later version gets it.
                if *id == last {
                    tx.execute(
                        "UPDATE files SET path = '', blob = x'', symbols = x'000000', count = 0, skipped = 'purged' WHERE id = ?1",
                        [id],
                    )?;
                } else {
                    tx.execute("DELETE FROM files WHERE id = ?1", [id])?;
                }
                tx.execute("DELETE FROM embedded WHERE file = ?1", [id])?;
            }
            for h in &hashes {
                if !kept.contains(h) {
                    vectors += tx.execute("DELETE FROM vectors WHERE hash = ?1", [h.as_slice()])? as u64;
                }
            }
            for (name, model, new) in &changed {
                tx.execute("DELETE FROM segments WHERE name = ?1", [name])?;
                if let Some((new, n)) = new {
                    tx.execute(
                        "INSERT INTO segments (name, model, rows) VALUES (?1, ?2, ?3)",
                        params![new, model, n],
                    )?;
                }
            }
            tx.commit()?;
            // What is deleted must not stay readable in free pages.
            c.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")?;
            Ok(())
        })?;
        for (name, _, _) in changed {
            super::remove_if_there(&self.store.dir.join(name))?;
        }
        self.store
            .cache
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .files
            .clear();
        self.store.refresh()?;
        Ok((ids.len() as u64, symbols, vectors))
    }

    fn hashes_outside(&self, drop: &View) -> Result<std::collections::HashSet<[u8; HASH]>> {
        self.store.with(|c| {
            let mut s = c.prepare("SELECT id, symbols FROM files")?;
            let mut rows = s.query([])?;
            let mut out = std::collections::HashSet::new();
            while let Some(r) = rows.next()? {
                if !drop.contains(r.get(0)?) {
                    let blob: Vec<u8> = r.get(1)?;
                    out.extend(
                        codec::decode_symbols(&pack::unpack(&blob)?)?
                            .into_iter()
                            .map(|s| s.hash),
                    );
                }
            }
            Ok(out)
        })
    }

    /// Forgets every last change of some paths.
    pub fn forget_changes(&mut self, paths: &[String]) -> Result<()> {
        self.store.with(|c| {
            for p in paths {
                c.execute(
                    "DELETE FROM changes WHERE path = ?1 OR substr(path, 1, length(?1) + 1) = ?1 || '/'",
                    [p],
                )?;
            }
            Ok(())
        })
    }

    /// Ends the run: waits for merges of the keyword index.
    pub fn finish(mut self) -> Result<()> {
        // A thread that still holds the words ends the writer itself.
        if let Some(w) = self.words.take().and_then(Arc::into_inner) {
            w.words.finish()?;
        }
        self.store.refresh()
    }
}
