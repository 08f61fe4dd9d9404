//! Bringing a repository's index up to date: what changed on disk, what the branch holds now.
//!
//! Files are read by several threads and written by one. Every batch is durable when it is written,
//! and what a killed run left is found again by path and blob, so nothing is read into symbols twice.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use weft_code::extract::{self, Decoded};
use weft_code::git::{BlobId, Git};
use weft_code::walk::{self, DiskFile, Generated, Stat};
use weft_core::code::text;
use weft_store::StoreError;
use weft_store::code::{CodeWriter, HASH, SeenFile, SeenFolder, Workstream, pack_vector};

use super::read::{Context, Done, Job, order_jobs, own_texts, read_file, read_one};
use super::{Branch, CodeError, CodeRepo, view_of};
use crate::{Engine, now};

/// Symbols of one batch, roughly.
const BATCH_SYMBOLS: usize = 16_000;
/// Text of one batch, bytes, roughly.
const BATCH_BYTES: usize = 24 << 20;
/// A file that was written this shortly before a scan is read again at the next one: its time may
/// not tell a second write.
const RACY_NS: i64 = 20_000_000;

/// What a run shall do.
pub struct SyncOptions<'a> {
    /// The branch; `None` = what is checked out.
    pub workstream: Option<String>,
    /// Give up waiting for another process, or stop reading, at this instant.
    pub until: Option<Instant>,
    /// Read everything again.
    pub full: bool,
    /// Words of a question: files whose path has them are read first.
    pub first: Vec<String>,
    /// Told: what is being done, how many are done, how many there are.
    pub progress: &'a mut dyn FnMut(&str, usize, usize),
    /// Set to end the run early; what is done stays.
    pub stop: Option<Arc<AtomicBool>>,
    /// Compute vectors too.
    pub vectors: bool,
}

impl<'a> SyncOptions<'a> {
    /// A run of what is checked out, vectors included, to its end.
    pub fn new(progress: &'a mut dyn FnMut(&str, usize, usize)) -> Self {
        Self {
            workstream: None,
            until: None,
            full: false,
            first: Vec::new(),
            progress,
            stop: None,
            vectors: true,
        }
    }
}

impl std::fmt::Debug for SyncOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SyncOptions")
            .field("workstream", &self.workstream)
            .field("full", &self.full)
            .finish_non_exhaustive()
    }
}

/// How a run went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeSync {
    /// Files in view.
    pub files: usize,
    /// Files that were read into symbols now.
    pub read: usize,
    /// Symbols that came of them.
    pub symbols: usize,
    /// Texts that were embedded now.
    pub embedded: usize,
    /// Files that were left out, with why.
    pub skipped: Vec<(String, String)>,
    /// Files that did not parse and became text chunks.
    pub failed: u64,
    /// What could not be read.
    pub warnings: Vec<String>,
    /// Whether everything that should be indexed is.
    pub complete: bool,
    /// Why vectors are missing; "" = they are not.
    pub no_vectors: String,
}

/// What is known of a checkout.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Files, sorted by path.
    pub files: Vec<SeenFile>,
    /// Whether every file on disk is among them.
    pub complete: bool,
    /// Folders, for a watcher.
    pub folders: Vec<PathBuf>,
}

impl Seen {
    /// The version of a path on disk.
    pub(crate) fn version(&self, path: &str) -> Option<u32> {
        let at = self
            .files
            .binary_search_by(|f| f.path.as_str().cmp(path))
            .ok()?;
        Some(self.files[at].file)
    }
}

/// What a scan of a checkout gave.
#[derive(Default)]
struct Scan {
    /// Files that are as they were.
    seen: Vec<SeenFile>,
    /// Files to read.
    changed: Vec<DiskFile>,
    /// Ignored files that may be tracked.
    tracked: Vec<DiskFile>,
    folders: Vec<SeenFolder>,
    warnings: Vec<String>,
}

fn stat_of(size: u64, modified: i64, inode: u64) -> Stat {
    Stat {
        size,
        modified,
        inode,
    }
}

fn same_stat(k: &SeenFile, s: &Stat) -> bool {
    stat_of(k.size, k.modified, k.inode) == *s
}

fn folders_of(folders: &[SeenFolder]) -> Vec<PathBuf> {
    folders.iter().map(|f| PathBuf::from(&f.path)).collect()
}

/// Stores what was read, and tells how far the run is.
type StoreBatch<'a> = dyn FnMut(Vec<Done>, &mut SyncOptions<'_>) -> Result<(), CodeError> + 'a;

impl Engine {
    fn code_threads(&self) -> usize {
        match self.config.code_threads {
            0 => std::thread::available_parallelism().map_or(2, |n| n.get().min(4)),
            n => n.min(64),
        }
    }

    fn max_file_bytes(&self) -> u64 {
        match self.config.max_file_bytes {
            0 => walk::MAX_FILE_BYTES,
            n => n.min(64 << 20),
        }
    }

    /// What is seen of a checkout without reading any file: the last scan where nothing moved since.
    pub(crate) fn seen(&self, repo: &CodeRepo) -> Result<Option<Arc<Seen>>, CodeError> {
        if let Some(s) = &*repo.live.seen.read().unwrap_or_else(|e| e.into_inner()) {
            return Ok(Some(s.clone()));
        }
        let Some(root) = &repo.root else {
            return Ok(None);
        };
        let stored = repo.store.checkout(&root.to_string_lossy())?;
        Ok(stored.map(|(_, files)| {
            Arc::new(Seen {
                files,
                complete: false,
                folders: Vec::new(),
            })
        }))
    }

    /// Brings the index up to date.
    ///
    /// # Errors
    /// Where git or the index cannot be read. An index that cannot be written, or that another
    /// process writes, is no error: `complete` is false then.
    pub fn code_sync(
        &self,
        repo: &CodeRepo,
        mut o: SyncOptions<'_>,
    ) -> Result<CodeSync, CodeError> {
        let result = self.sync(repo, &mut o);
        if let Err(e) = &result
            && let Ok(head) = repo.git().and_then(|g| Ok(g.head()?))
        {
            // The status says what went wrong last.
            let name = o.workstream.clone().unwrap_or(head.workstream);
            if let (Ok(mut w), Ok(old)) = (repo.store.writer(false), repo.store.workstream(&name)) {
                let mut row = old.unwrap_or_default();
                row.name = name;
                row.error = e.to_string();
                let _ = w.set_workstream(&row);
            }
        }
        result
    }

    fn sync(&self, repo: &CodeRepo, o: &mut SyncOptions<'_>) -> Result<CodeSync, CodeError> {
        let git = repo.git()?;
        let Branch {
            name: workstream,
            is_active,
            head,
        } = repo.branch(&git, o.workstream.as_deref())?;
        let mut report = CodeSync {
            complete: true,
            ..CodeSync::default()
        };
        let indexed = repo.store.workstream(&workstream)?;
        let head_moved = o.full || indexed.as_ref().map(|w| w.head.as_str()) != head.as_deref();
        let clean = repo.live.watched.load(Ordering::Acquire)
            && repo.live.clean.load(Ordering::Acquire)
            && !head_moved;
        if clean
            && is_active
            && let Some(seen) = &*repo.live.seen.read().unwrap_or_else(|e| e.into_inner())
        {
            // A watcher says that nothing moved: nothing is read, not even what was seen.
            report.files = seen.files.len();
            return Ok(report);
        }
        let purged = self.store.purged(&repo.id)?;
        let is_purged = |path: &str| {
            purged.iter().any(|p| {
                path == p
                    || path
                        .strip_prefix(p.as_str())
                        .is_some_and(|r| p.ends_with('/') || r.starts_with('/'))
            })
        };

        // The disk.
        let before = match &repo.root {
            Some(root) if is_active => repo.store.checkout(&root.to_string_lossy())?,
            _ => None,
        };
        let known: HashMap<&str, &SeenFile> = before
            .iter()
            .flat_map(|(_, files)| files)
            .map(|f| (f.path.as_str(), f))
            .collect();
        repo.live.clean.store(true, Ordering::Release);
        let started = now() * 1_000;
        let load_tree = || -> Result<HashMap<String, BlobId>, CodeError> {
            let files = match &head {
                Some(c) => git.files(c)?,
                None => Vec::new(),
            };
            Ok(files.into_iter().map(|f| (f.path, f.blob)).collect())
        };
        let mut tree: Option<HashMap<String, BlobId>> =
            if head_moved { Some(load_tree()?) } else { None };
        let disk_root = repo.root.as_deref().filter(|_| is_active);
        let scan = match disk_root {
            Some(root) => {
                (o.progress)("scanning", 0, 0);
                self.scan(repo, root, &before, tree.as_ref(), o.full)?
            }
            None => Scan::default(),
        };
        let Scan {
            mut seen,
            changed,
            tracked,
            folders,
            warnings,
        } = scan;
        seen.retain(|f| !is_purged(&f.path));
        let mut jobs: Vec<Job> = changed
            .into_iter()
            .filter(|f| !is_purged(&f.path))
            .map(|f| Job::Disk(f, None))
            .collect();
        if tree.is_none() && !(jobs.is_empty() && tracked.is_empty()) {
            tree = Some(load_tree()?);
        }
        // What is ignored counts where the branch has it.
        for f in tracked {
            if tree.as_ref().is_some_and(|t| t.contains_key(&f.path)) && !is_purged(&f.path) {
                match known.get(f.path.as_str()) {
                    Some(k) if !o.full && same_stat(k, &f.stat) => seen.push((*k).clone()),
                    _ => jobs.push(Job::Disk(f, None)),
                }
            }
        }
        seen.sort_by(|a, b| a.path.cmp(&b.path));
        let unchanged = jobs.is_empty() && before.as_ref().is_some_and(|b| b.1.len() == seen.len());
        if unchanged && !head_moved {
            let seen = Arc::new(Seen {
                files: seen,
                complete: true,
                folders: folders_of(&folders),
            });
            report.files = seen.files.len();
            if is_active {
                *repo.live.seen.write().unwrap_or_else(|e| e.into_inner()) = Some(seen);
            }
            report.warnings = warnings;
            self.finish_report(repo, &workstream, &mut report)?;
            self.embed_rest(repo, &git, &workstream, o, &mut report)?;
            return Ok(report);
        }
        let tree_ref = tree.as_ref();
        for j in &mut jobs {
            if let Job::Disk(f, blob) = j {
                *blob = tree_ref.and_then(|t| t.get(&f.path)).copied();
            }
        }
        // The branch: what is neither known nor on disk with the same content is read from git.
        let mut head_ids: Vec<(String, BlobId, Option<u32>)> = Vec::new();
        if head_moved && let Some(t) = tree_ref {
            let pending: HashSet<&str> = jobs.iter().map(Job::path).collect();
            let mut from_git = Vec::new();
            let versions = repo.store.all_versions()?;
            for (path, blob) in t {
                if is_purged(path) {
                    continue;
                }
                let id = versions.get(&(path.clone(), blob.to_vec())).copied();
                // Most files of a first run are read from the disk with this very content.
                if id.is_none() && !pending.contains(path.as_str()) {
                    from_git.push(Job::Git(path.clone(), *blob));
                }
                head_ids.push((path.clone(), *blob, id));
            }
            jobs.extend(from_git);
        }
        order_jobs(&mut jobs, &o.first);

        let mut writer = match self.code_writer(repo, o.until)? {
            Some(w) => w,
            None => {
                // Another process is at it, or the store is read-only: answer from what is there.
                repo.live.clean.store(false, Ordering::Release);
                report.complete = false;
                report.files = known.len();
                self.finish_report(repo, &workstream, &mut report)?;
                return Ok(report);
            }
        };
        let local = self
            .embedder
            .as_ref()
            .ok()
            .filter(|e| e.is_local() && o.vectors);
        let model = match local {
            Some(e) => Some(writer.model(e.identity(), e.dimensions())?),
            None => None,
        };
        let generated = {
            let root = repo.root.clone();
            let listed: Vec<&str> = seen
                .iter()
                .map(|s| s.path.as_str())
                .chain(jobs.iter().map(Job::path))
                .collect();
            Generated::read(listed.into_iter(), |p| match (&root, tree_ref) {
                (Some(r), _) if is_active => read_file(&r.join(p), 1 << 20).ok(),
                (_, Some(t)) => t.get(p).and_then(|b| git.blob(b, 1 << 20)),
                _ => None,
            })
        };
        let context = Context {
            root: repo.root.as_deref().filter(|_| is_active),
            place: &repo.place,
            store: &repo.store,
            generated,
            max_bytes: self.max_file_bytes(),
            embedder: local.map(Arc::as_ref),
            model,
            words: writer.words()?,
        };
        let root_text = context.root.map(|r| r.to_string_lossy().into_owned());
        let head_text = head.clone().unwrap_or_default();
        let total = jobs.len();
        let done_count = AtomicUsize::new(0);
        let complete = self.run_jobs(jobs, &context, o, &done_count, total, &mut |batch, o| {
            let mut new = Vec::new();
            let mut places = Vec::new();
            for d in batch {
                let at = match d.what {
                    Ok(id) => Err(id),
                    Err(f) => {
                        report.read += 1;
                        report.symbols += f.symbols.len();
                        report.embedded += d.embedded;
                        new.push(*f);
                        Ok(new.len() - 1)
                    }
                };
                places.push((d.path, d.stat, at));
            }
            let ids = writer.add(new, model)?;
            for (path, stat, at) in places {
                let id = match at {
                    Ok(i) => ids.get(i).copied().unwrap_or_default(),
                    Err(id) => id,
                };
                if let Some(s) = stat {
                    let racy = started - s.modified < RACY_NS;
                    seen.push(SeenFile {
                        path,
                        size: s.size,
                        modified: if racy { -1 } else { s.modified },
                        inode: s.inode,
                        file: id,
                    });
                }
            }
            if let Some(root) = &root_text {
                seen.sort_by(|a, b| a.path.cmp(&b.path));
                writer.set_checkout(root, &head_text, &seen, &[], now())?;
            }
            (o.progress)("indexing", done_count.load(Ordering::Relaxed), total);
            Ok(())
        })?;
        report.complete = complete;
        seen.sort_by(|a, b| a.path.cmp(&b.path));
        if let Some(root) = &root_text {
            let whole: &[SeenFolder] = if complete { &folders } else { &[] };
            writer.set_checkout(root, &head_text, &seen, whole, now())?;
        }
        if complete && head_moved {
            let mut files = Vec::with_capacity(head_ids.len());
            for (path, blob, id) in head_ids {
                let id = match id {
                    Some(id) => Some(id),
                    None => repo.store.version_id(&path, &blob)?,
                };
                match id {
                    Some(id) => files.push(id),
                    // On disk with another content: the one of the branch has to be read too.
                    None => {
                        let done = read_one(&Job::Git(path, blob), &context, &git);
                        if let Some(Done {
                            what: Err(f),
                            embedded,
                            ..
                        }) = done
                        {
                            report.read += 1;
                            report.symbols += f.symbols.len();
                            report.embedded += embedded;
                            files.extend(writer.add(vec![*f], model)?);
                        }
                    }
                }
            }
            files.sort_unstable();
            if let Some(c) = &head {
                let symbols = repo.store.count_symbols(&view_of(&files))?;
                writer.set_workstream(&Workstream {
                    name: workstream.clone(),
                    head: c.clone(),
                    files,
                    symbols,
                    indexed_at: now(),
                    error: String::new(),
                })?;
            }
        }
        drop(context);
        if let Some(m) = model {
            writer.compact(m)?;
        }
        if complete {
            (o.progress)("finishing", total, total);
        }
        writer.finish()?;
        if is_active {
            let seen = Arc::new(Seen {
                files: seen,
                complete,
                folders: folders_of(&folders),
            });
            report.files = seen.files.len();
            *repo.live.seen.write().unwrap_or_else(|e| e.into_inner()) = Some(seen);
        }
        if !complete {
            repo.live.clean.store(false, Ordering::Release);
        }
        report.warnings = warnings;
        self.finish_report(repo, &workstream, &mut report)?;
        if complete {
            self.embed_rest(repo, &git, &workstream, o, &mut report)?;
        }
        Ok(report)
    }

    /// Compares a checkout with what was seen of it; walks it only where a name came or went.
    fn scan(
        &self,
        repo: &CodeRepo,
        root: &Path,
        before: &Option<(String, Vec<SeenFile>)>,
        tree: Option<&HashMap<String, BlobId>>,
        full: bool,
    ) -> Result<Scan, CodeError> {
        let from = Instant::now();
        let mut out = Scan::default();
        if let Some((_, files)) = before.as_ref().filter(|_| !full) {
            let stored = repo.store.checkout_folders(&root.to_string_lossy())?;
            let folders: Vec<(PathBuf, Stat)> = stored
                .iter()
                .map(|f| (PathBuf::from(&f.path), stat_of(f.size, f.modified, f.inode)))
                .collect();
            let stats: Vec<(&str, Stat)> = files
                .iter()
                .map(|f| (f.path.as_str(), stat_of(f.size, f.modified, f.inode)))
                .collect();
            if !folders.is_empty()
                && let Some(changed) = walk::changed(root, &folders, &stats)
            {
                let changed: HashSet<usize> = changed.into_iter().collect();
                for (i, f) in files.iter().enumerate() {
                    if !changed.contains(&i) {
                        out.seen.push(f.clone());
                    } else if let Ok(meta) = root.join(&f.path).symlink_metadata()
                        && meta.is_file()
                    {
                        out.changed.push(DiskFile {
                            path: f.path.clone(),
                            stat: walk::stat(&meta),
                        });
                    }
                }
                out.folders = stored;
                tracing::debug!("compared {} files in {:?}", files.len(), from.elapsed());
                return Ok(out);
            }
        }
        let started = now() * 1_000;
        let known: HashMap<&str, &SeenFile> = before
            .iter()
            .flat_map(|(_, files)| files)
            .map(|f| (f.path.as_str(), f))
            .collect();
        let walked = match tree {
            Some(t) => walk::walk(root, &mut t.keys().map(String::as_str)),
            None => walk::walk(root, &mut known.keys().copied()),
        };
        for f in walked.files {
            match known.get(f.path.as_str()) {
                Some(k) if !full && same_stat(k, &f.stat) => out.seen.push((*k).clone()),
                _ => out.changed.push(f),
            }
        }
        out.tracked = walked.tracked;
        out.warnings = walked.warnings;
        out.folders = walked
            .folders
            .into_iter()
            .map(|(p, s)| SeenFolder {
                path: p.to_string_lossy().into_owned(),
                size: s.size,
                // A name may have come in the same instant.
                modified: if started - s.modified < RACY_NS {
                    -1
                } else {
                    s.modified
                },
                inode: s.inode,
            })
            .collect();
        tracing::debug!(
            "walked {} files in {:?}",
            out.seen.len() + out.changed.len(),
            from.elapsed()
        );
        Ok(out)
    }

    /// Becomes the writer; `None` where another process is, or where nothing can be written.
    fn code_writer(
        &self,
        repo: &CodeRepo,
        until: Option<Instant>,
    ) -> Result<Option<CodeWriter>, CodeError> {
        loop {
            match repo.store.writer(false) {
                Ok(w) => return Ok(Some(w)),
                Err(StoreError::Busy(_)) => {
                    if until.is_some_and(|u| Instant::now() >= u) {
                        return Ok(None);
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(e) if e.is_write_only() => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Reads files with several threads and hands them over in batches. False = it ended early.
    fn run_jobs(
        &self,
        jobs: Vec<Job>,
        context: &Context<'_>,
        o: &mut SyncOptions<'_>,
        done_count: &AtomicUsize,
        total: usize,
        store: &mut StoreBatch<'_>,
    ) -> Result<bool, CodeError> {
        let stop_asked = o.stop.clone();
        let until = o.until;
        let stop = AtomicBool::new(false);
        let asked = || {
            stop_asked
                .as_ref()
                .is_some_and(|s| s.load(Ordering::Relaxed))
                || until.is_some_and(|u| Instant::now() > u)
        };
        let next = AtomicUsize::new(0);
        let threads = self.code_threads().min(jobs.len().max(1));
        let (tx, rx): (SyncSender<Done>, Receiver<Done>) = sync_channel(256);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let tx = tx.clone();
                let (jobs, next, stop) = (&jobs, &next, &stop);
                scope.spawn(move || {
                    let Ok(git) = Git::open(context.place) else {
                        return;
                    };
                    while !stop.load(Ordering::Relaxed) {
                        let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) else {
                            return;
                        };
                        if let Some(done) = read_one(job, context, &git)
                            && tx.send(done).is_err()
                        {
                            return;
                        }
                    }
                });
            }
            drop(tx);
            let mut batch = Vec::new();
            let (mut symbols, mut bytes) = (0, 0);
            let mut early = false;
            for done in &rx {
                done_count.fetch_add(1, Ordering::Relaxed);
                symbols += done.what.as_ref().err().map_or(0, |f| f.symbols.len());
                bytes += done.bytes;
                batch.push(done);
                let n = done_count.load(Ordering::Relaxed);
                if n.is_multiple_of(64) {
                    (o.progress)("indexing", n, total);
                }
                if !early && asked() {
                    early = true;
                    stop.store(true, Ordering::Relaxed);
                }
                if symbols >= BATCH_SYMBOLS || bytes >= BATCH_BYTES {
                    if let Err(e) = store(std::mem::take(&mut batch), o) {
                        stop.store(true, Ordering::Relaxed);
                        // The threads end when nobody takes what they read.
                        drop(rx);
                        return Err(e);
                    }
                    (symbols, bytes) = (0, 0);
                }
            }
            store(batch, o)?;
            Ok(!early)
        })
    }

    /// Vectors of versions that have none: those of a provider that is asked over HTTP.
    fn embed_rest(
        &self,
        repo: &CodeRepo,
        git: &Git,
        workstream: &str,
        o: &mut SyncOptions<'_>,
        report: &mut CodeSync,
    ) -> Result<(), CodeError> {
        let embedder = match &self.embedder {
            Ok(e) => e,
            Err(why) => {
                report.no_vectors = why.clone();
                return Ok(());
            }
        };
        let Some(w) = repo.store.workstream(workstream)?.filter(|_| o.vectors) else {
            return Ok(());
        };
        if let Some(m) = repo.store.model(embedder.identity())?
            && repo.store.not_embedded(m, &w.files)?.is_empty()
        {
            return Ok(());
        }
        let Some(mut writer) = self.code_writer(repo, o.until)? else {
            report.complete = false;
            return Ok(());
        };
        let model = writer.model(embedder.identity(), embedder.dimensions())?;
        let missing = repo.store.not_embedded(model, &w.files)?;
        let total = missing.len();
        for (n, chunk) in missing.chunks(64).enumerate() {
            (o.progress)("embedding", n * 64, total);
            let asked = o.stop.as_ref().is_some_and(|s| s.load(Ordering::Relaxed))
                || o.until.is_some_and(|u| Instant::now() > u);
            if asked {
                report.complete = false;
                break;
            }
            let mut vectors = Vec::new();
            for id in chunk {
                let Some(file) = repo.store.file(*id)? else {
                    continue;
                };
                let hashes: Vec<[u8; HASH]> = file.symbols.iter().map(|s| s.hash).collect();
                let wanted = repo.store.without_vector(model, &hashes)?;
                if !wanted.contains(&true) {
                    continue;
                }
                let mut blob = [0; 20];
                blob.copy_from_slice(file.blob.get(..20).unwrap_or(&[0; 20]));
                let Some(bytes) = git.blob(&blob, self.max_file_bytes()) else {
                    continue;
                };
                let Decoded::Text(source) = extract::decode(&bytes) else {
                    continue;
                };
                let mut symbols: Vec<_> = file.symbols.iter().map(|s| s.symbol.clone()).collect();
                let own = own_texts(&source, &mut symbols);
                for ((s, body), _) in file
                    .symbols
                    .iter()
                    .zip(&own)
                    .zip(&wanted)
                    .filter(|(_, w)| **w)
                {
                    let rendered = text::embedding_text(&file.path, &s.symbol, body);
                    match embedder.embed(&rendered) {
                        Ok(Some(v)) => vectors.push((s.hash, pack_vector(&v))),
                        Ok(None) => {}
                        Err(e) => {
                            report.no_vectors = e.to_string();
                            report.complete = false;
                            writer.finish()?;
                            return Ok(());
                        }
                    }
                }
            }
            report.embedded += vectors.len();
            writer.add_vectors(model, chunk, &vectors)?;
        }
        writer.compact(model)?;
        writer.finish()?;
        Ok(())
    }

    fn finish_report(
        &self,
        repo: &CodeRepo,
        workstream: &str,
        report: &mut CodeSync,
    ) -> Result<(), CodeError> {
        if report.read == 0 {
            return Ok(());
        }
        let mut ids: Vec<u32> = repo
            .store
            .workstream(workstream)?
            .map(|w| w.files)
            .unwrap_or_default();
        if let Some(s) = self.seen(repo)? {
            ids.extend(s.files.iter().map(|f| f.file));
        }
        (report.skipped, report.failed) = repo.store.left_out(&view_of(&ids))?;
        Ok(())
    }
}
