//! Reading one file into symbols, words and vectors.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use weft_code::extract::{self, Decoded};
use weft_code::git::{BlobId, Git, hash_blob};
use weft_code::walk::{DiskFile, Generated, Stat};
use weft_core::code::{Symbol, text};
use weft_core::redact::redact;
use weft_embed::Embedder;
use weft_store::code::{
    CodeModel, CodeStore, FileWords, HASH, NewFile, NewSymbol, SymbolWords, pack_vector,
};

/// Text of a symbol whose words are indexed, bytes.
const SYMBOL_BYTES: usize = 16 << 10;

/// A file to read.
pub(super) enum Job {
    /// On disk, with the ids of its blob at the head.
    Disk(DiskFile, Option<BlobId>),
    /// In git only.
    Git(String, BlobId),
}

impl Job {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Disk(f, _) => &f.path,
            Self::Git(p, _) => p,
        }
    }
}

/// A file that was read.
pub(super) struct Done {
    pub(super) path: String,
    pub(super) stat: Option<Stat>,
    /// The version that is known already, or the one to store.
    pub(super) what: Result<u32, Box<NewFile>>,
    pub(super) embedded: usize,
    pub(super) bytes: usize,
}

/// What reading needs; shared by the threads.
pub(super) struct Context<'a> {
    pub(super) root: Option<&'a Path>,
    pub(super) place: &'a Path,
    pub(super) store: &'a CodeStore,
    pub(super) generated: Generated,
    pub(super) max_bytes: u64,
    pub(super) embedder: Option<&'a Embedder>,
    pub(super) model: Option<CodeModel>,
    pub(super) words: Arc<FileWords>,
}

/// Files that a question names first, then code, then tests and the rest.
pub(super) fn order_jobs(jobs: &mut [Job], first: &[String]) {
    jobs.sort_by_cached_key(|j| {
        let path = j.path();
        let lower = path.to_lowercase();
        let named = first
            .iter()
            .filter(|w| w.len() > 2 && lower.contains(w.as_str()))
            .count();
        let r = weft_core::code::paths::role(path);
        (
            usize::MAX - named,
            r.test || r.prose || r.generated || r.example,
            path.to_owned(),
        )
    });
}

pub(crate) fn read_file(path: &Path, max: u64) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let file = open_no_follow(path)?;
    let mut out = Vec::new();
    file.take(max + 1).read_to_end(&mut out)?;
    Ok(out)
}

/// Bytes as text; `None` = they are none that a person wrote.
pub(crate) fn decoded(bytes: &[u8]) -> Option<String> {
    match extract::decode(bytes) {
        Decoded::Text(t) => Some(t.into_owned()),
        _ => None,
    }
}

/// The text of a file on disk, as far as files are read.
pub(crate) fn text_at(path: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut out = Vec::new();
    let file = open_no_follow(path).ok()?;
    file.take(weft_code::walk::MAX_FILE_BYTES)
        .read_to_end(&mut out)
        .ok()?;
    decoded(&out)
}

/// Opens a regular file; a symbolic link that took its place since the walk is not followed.
pub(crate) fn open_no_follow(path: &Path) -> std::io::Result<std::fs::File> {
    let meta = path.symlink_metadata()?;
    if !meta.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    std::fs::File::open(path)
}

/// Reads one file into symbols; `None` where it is gone.
pub(super) fn read_one(job: &Job, c: &Context<'_>, git: &Git) -> Option<Done> {
    let path = job.path().to_owned();
    let known = |blob: &[u8]| c.store.version_id(&path, blob).ok().flatten();
    let skip = |blob: Vec<u8>, reason: String, stat: Option<Stat>| {
        Some(Done {
            what: match known(&blob) {
                Some(id) => Ok(id),
                None => Err(Box::new(NewFile {
                    id: c.words.next_id(),
                    path: path.clone(),
                    blob,
                    language: String::new(),
                    skipped: reason,
                    failed: false,
                    symbols: Vec::new(),
                    embedded: c.model.is_some(),
                })),
            },
            path: path.clone(),
            stat,
            embedded: 0,
            bytes: 0,
        })
    };
    let (bytes, blob, stat) = match job {
        Job::Disk(f, at_head) => {
            if f.stat.size > c.max_bytes {
                // Never read; its size and time stand for its content.
                let id = hash_blob(format!("{} {}", f.stat.size, f.stat.modified).as_bytes());
                let id = at_head
                    .filter(|b| git.blob_size(b) == Some(f.stat.size))
                    .unwrap_or(id);
                return skip(
                    id.to_vec(),
                    too_large(f.stat.size, c.max_bytes),
                    Some(f.stat),
                );
            }
            let bytes = match read_file(&c.root?.join(&f.path), c.max_bytes) {
                Ok(b) => b,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
                Err(e) => {
                    let id = hash_blob(format!("{e} {}", f.stat.modified).as_bytes());
                    return skip(id.to_vec(), format!("cannot be read: {e}"), Some(f.stat));
                }
            };
            let mut id = hash_blob(&bytes);
            // Line ends that a checkout translated are no change.
            if let Some(h) = at_head.filter(|h| *h != id)
                && bytes.windows(2).any(|w| w == b"\r\n")
            {
                let mut unix = bytes.clone();
                let mut kept = 0;
                for i in 0..bytes.len() {
                    if !(bytes[i] == b'\r' && bytes.get(i + 1) == Some(&b'\n')) {
                        unix[kept] = bytes[i];
                        kept += 1;
                    }
                }
                if hash_blob(&unix[..kept]) == h {
                    id = h;
                }
            }
            (bytes, id, Some(f.stat))
        }
        Job::Git(_, blob) => {
            let size = git.blob_size(blob)?;
            if size > c.max_bytes {
                return skip(blob.to_vec(), too_large(size, c.max_bytes), None);
            }
            (git.blob(blob, c.max_bytes)?, *blob, None)
        }
    };
    if let Some(id) = known(&blob) {
        return Some(Done {
            path,
            stat,
            what: Ok(id),
            embedded: 0,
            bytes: 0,
        });
    }
    if c.generated.is_generated(&path) {
        return skip(blob.to_vec(), "generated (linguist-generated)".into(), stat);
    }
    let source = match extract::decode(&bytes) {
        Decoded::Binary => return skip(blob.to_vec(), "binary".into(), stat),
        Decoded::Minified => {
            return skip(
                blob.to_vec(),
                "minified (a line of more than 10,000 characters)".into(),
                stat,
            );
        }
        Decoded::Text(t) => t,
    };
    let mut found = extract::extract(&path, &source);
    let own = own_texts(&source, &mut found.symbols);
    let mut symbols: Vec<NewSymbol> = Vec::with_capacity(found.symbols.len());
    let mut texts = Vec::with_capacity(found.symbols.len());
    let mut bodies = Vec::with_capacity(found.symbols.len());
    for (symbol, body) in found.symbols.into_iter().zip(own) {
        let rendered = text::embedding_text(&path, &symbol, &body);
        let digest = Sha256::digest(rendered.as_bytes());
        let mut hash = [0; HASH];
        hash.copy_from_slice(&digest[..HASH]);
        symbols.push(NewSymbol {
            hash,
            vector: None,
            symbol,
        });
        bodies.push(body);
        texts.push(rendered);
    }
    let mut embedded = 0;
    if let (Some(e), Some(m)) = (c.embedder, c.model) {
        let hashes: Vec<[u8; HASH]> = symbols.iter().map(|s| s.hash).collect();
        let wanted = c
            .store
            .without_vector(m, &hashes)
            .unwrap_or_else(|_| vec![true; hashes.len()]);
        for ((s, rendered), _) in symbols
            .iter_mut()
            .zip(&texts)
            .zip(&wanted)
            .filter(|(_, w)| **w)
        {
            s.vector = e.embed(rendered).ok().flatten().map(|v| pack_vector(&v));
            embedded += 1;
        }
    }
    let id = c.words.next_id();
    for (at, (s, body)) in symbols.iter().zip(bodies).enumerate() {
        let y = &s.symbol;
        let words = SymbolWords {
            exact: text::exact_names(y),
            name: y.name.clone(),
            path: path.clone(),
            signature: y.signature.clone(),
            doc: format!("{} {}", y.doc, y.more_doc),
            body,
        };
        // A keyword index that takes no words fails at the commit, which says why.
        if c.words.add(id, at, y.kind, words).is_err() {
            break;
        }
    }
    Some(Done {
        bytes: source.len(),
        what: Err(Box::new(NewFile {
            id,
            path: path.clone(),
            blob: blob.to_vec(),
            language: found.language.map_or("", |l| l.name()).to_owned(),
            skipped: String::new(),
            failed: found.failed,
            symbols,
            embedded: c.model.is_some(),
        })),
        path,
        stat,
        embedded,
    })
}

/// The text of each symbol without what is inside of others; secrets are taken out of it, of the
/// signatures and of the documentation: they must not reach the index, a vector or an answer.
pub(super) fn own_texts(source: &str, symbols: &mut [Symbol]) -> Vec<String> {
    let mut own = extract::own_texts(source, symbols, SYMBOL_BYTES);
    if redact(source).is_none() {
        return own;
    }
    let clean = |text: &mut String| {
        if let Some(t) = redact(text) {
            *text = t;
        }
    };
    own.iter_mut().for_each(clean);
    for s in symbols {
        clean(&mut s.signature);
        clean(&mut s.doc);
        clean(&mut s.more_doc);
    }
    own
}

fn too_large(size: u64, max: u64) -> String {
    format!("too large ({size} bytes, at most {max} are read)")
}
