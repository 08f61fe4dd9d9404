//! The files on disk that git tracks or would track, with what tells whether they changed.
//!
//! Only git's own rules count: `.gitignore`, `.git/info/exclude` and the user's global excludes.
//! Ignored folders are never opened; symbolic links are never followed; a folder with a `.git` of
//! its own (submodule, nested worktree) is another repository.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{WalkBuilder, WalkState};

/// Default of the largest file that is read, bytes.
pub const MAX_FILE_BYTES: u64 = 2 << 20;
/// Deepest folder that is entered.
pub const MAX_DEPTH: usize = 512;

/// What the file system says of a file; where it is equal the content is taken to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Bytes.
    pub size: u64,
    /// Nanoseconds since 1970.
    pub modified: i64,
    /// Inode.
    pub inode: u64,
}

/// A file on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFile {
    /// Path with `/`, relative to the top; what is not UTF-8 was replaced.
    pub path: String,
    /// Size, time, inode.
    pub stat: Stat,
}

/// What a walk found.
#[derive(Clone, Debug, Default)]
pub struct Walked {
    /// Files, sorted by path.
    pub files: Vec<DiskFile>,
    /// Files that rules ignore and git tracks all the same.
    pub tracked: Vec<DiskFile>,
    /// Folders that were entered, with what tells whether a name came or went in them.
    pub folders: Vec<(PathBuf, Stat)>,
    /// What could not be read, with why.
    pub warnings: Vec<String>,
}

/// What a file system says.
pub fn stat(meta: &std::fs::Metadata) -> Stat {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        Stat {
            size: meta.size(),
            modified: meta
                .mtime()
                .saturating_mul(1_000_000_000)
                .saturating_add(meta.mtime_nsec()),
            inode: meta.ino(),
        }
    }
    #[cfg(not(unix))]
    {
        let modified = meta
            .modified()
            .ok()
            .and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok())
            .map_or(0, |d| d.as_nanos() as i64);
        Stat {
            size: meta.len(),
            modified,
            inode: 0,
        }
    }
}

/// Walks a checkout. `tracked` are paths that may be tracked: those that exist and that the walk does
/// not find are told apart.
pub fn walk(root: &Path, tracked: &mut dyn Iterator<Item = &str>) -> Walked {
    let found = Mutex::new(Walked::default());
    let top = root.to_owned();
    let mut builder = WalkBuilder::new(root);
    builder
        .standard_filters(false)
        .git_ignore(true)
        .git_exclude(true)
        .git_global(true)
        .require_git(false)
        .hidden(false)
        .follow_links(false)
        .max_depth(Some(MAX_DEPTH))
        .threads(std::thread::available_parallelism().map_or(2, |n| n.get().min(4)))
        .filter_entry(move |e| {
            let is_dir = e.file_type().is_some_and(|t| t.is_dir());
            if e.file_name() == ".git" {
                return false;
            }
            !(is_dir && e.path() != top && e.path().join(".git").symlink_metadata().is_ok())
        });
    builder.build_parallel().run(|| {
        let found = &found;
        let mut mine = Mine {
            walked: Walked::default(),
            found,
        };
        Box::new(move |entry| {
            match entry {
                Ok(e) => {
                    if let Some(error) = e.error() {
                        mine.walked.warnings.push(error.to_string());
                    }
                    let kind = e.file_type();
                    if kind.is_some_and(|t| t.is_dir()) {
                        if let Ok(meta) = e.path().symlink_metadata() {
                            mine.walked.folders.push((e.into_path(), stat(&meta)));
                        }
                    } else if kind.is_some_and(|t| t.is_file())
                        && let Ok(meta) = e.path().symlink_metadata()
                        && let Some(path) = relative(root, e.path())
                    {
                        mine.walked.files.push(DiskFile {
                            path,
                            stat: stat(&meta),
                        });
                    }
                }
                Err(e) => mine.walked.warnings.push(e.to_string()),
            }
            WalkState::Continue
        })
    });
    let mut all = found.into_inner().unwrap_or_else(|e| e.into_inner());
    {
        let seen: HashSet<&str> = all.files.iter().map(|f| f.path.as_str()).collect();
        let mut more = Vec::new();
        for path in tracked.filter(|p| !seen.contains(p)) {
            if let Ok(meta) = root.join(path).symlink_metadata()
                && meta.is_file()
            {
                more.push(DiskFile {
                    path: path.to_owned(),
                    stat: stat(&meta),
                });
            }
        }
        drop(seen);
        all.tracked = more;
    }
    all.files.sort_by(|a, b| a.path.cmp(&b.path));
    all.files.dedup_by(|a, b| a.path == b.path);
    all.warnings.sort();
    all.warnings.dedup();
    // Files outside of the checkout that say what is ignored.
    for path in rule_files(root) {
        let found = path
            .symlink_metadata()
            .map(|m| stat(&m))
            .unwrap_or_default();
        all.folders.push((path, found));
    }
    all
}

/// The files with rules that a walk of `root` reads besides its `.gitignore` files.
fn rule_files(root: &Path) -> Vec<PathBuf> {
    let mut out = vec![root.join(".git/info/exclude")];
    out.extend(ignore::gitignore::gitconfig_excludes_path());
    out
}

/// Which of the known files changed, by their places in `files`; `None` where a name came or went, or
/// a rule changed, and the checkout has to be walked. Much cheaper than a walk.
pub fn changed(
    root: &Path,
    folders: &[(PathBuf, Stat)],
    files: &[(&str, Stat)],
) -> Option<Vec<usize>> {
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get().min(4));
    let same = |path: &Path, known: &Stat| {
        path.symlink_metadata()
            .map(|m| stat(&m))
            .unwrap_or_default()
            == *known
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|t| {
                scope.spawn(move || {
                    let part = |n: usize| (n * t / threads)..(n * (t + 1) / threads);
                    if !folders[part(folders.len())].iter().all(|(p, s)| same(p, s)) {
                        return None;
                    }
                    let mut out = Vec::new();
                    let mut full = root.to_owned();
                    for i in part(files.len()) {
                        full.push(files[i].0);
                        if !same(&full, &files[i].1) {
                            out.push(i);
                        }
                        full.clear();
                        full.push(root);
                    }
                    Some(out)
                })
            })
            .collect();
        let mut all = Vec::new();
        let mut moved = false;
        for w in workers {
            match w.join() {
                Ok(Some(part)) => all.extend(part),
                _ => moved = true,
            }
        }
        (!moved).then_some(all)
    })
}

/// What one thread found; it is handed over when the thread ends.
struct Mine<'a> {
    walked: Walked,
    found: &'a Mutex<Walked>,
}

impl Drop for Mine<'_> {
    fn drop(&mut self) {
        let mut all = self.found.lock().unwrap_or_else(|e| e.into_inner());
        all.files.append(&mut self.walked.files);
        all.folders.append(&mut self.walked.folders);
        all.warnings.append(&mut self.walked.warnings);
    }
}

fn relative(root: &Path, path: &Path) -> Option<String> {
    let rest = path.strip_prefix(root).ok()?;
    let text = rest.to_string_lossy();
    Some(if std::path::MAIN_SEPARATOR == '/' {
        text.into_owned()
    } else {
        text.replace(std::path::MAIN_SEPARATOR, "/")
    })
}

/// Which files `.gitattributes` calls generated.
#[derive(Debug, Default)]
pub struct Generated {
    rules: Vec<(String, Gitignore)>,
}

impl Generated {
    /// Reads the `.gitattributes` files of a checkout among `files`.
    pub fn read<'a>(
        files: impl Iterator<Item = &'a str>,
        read: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Self {
        let mut rules = Vec::new();
        for path in files.filter(|p| *p == ".gitattributes" || p.ends_with("/.gitattributes")) {
            let Some(bytes) = read(path) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            let folder = path
                .trim_end_matches(".gitattributes")
                .trim_end_matches('/')
                .to_owned();
            let mut builder = GitignoreBuilder::new("");
            let mut any = false;
            for line in text.lines() {
                let mut words = line.split_whitespace();
                let Some(pattern) = words.next().filter(|p| !p.starts_with(['#', '!'])) else {
                    continue;
                };
                for attribute in words {
                    match attribute {
                        "linguist-generated" | "linguist-generated=true" => {
                            any |= builder.add_line(None, pattern).is_ok();
                        }
                        "-linguist-generated" | "linguist-generated=false" => {
                            let _ = builder.add_line(None, &format!("!{pattern}"));
                        }
                        _ => {}
                    }
                }
            }
            if any && let Ok(matcher) = builder.build() {
                rules.push((folder, matcher));
            }
        }
        Self { rules }
    }

    /// Whether a file is called generated.
    pub fn is_generated(&self, path: &str) -> bool {
        self.rules.iter().any(|(folder, m)| {
            let inside = if folder.is_empty() {
                Some(path)
            } else {
                path.strip_prefix(folder.as_str())
                    .and_then(|p| p.strip_prefix('/'))
            };
            inside.is_some_and(|p| m.matched_path_or_any_parents(p, false).is_ignore())
        })
    }
}
