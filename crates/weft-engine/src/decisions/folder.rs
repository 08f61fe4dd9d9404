//! Folders of records in a checkout: which they are, and what is in them.

use std::path::Path;

use super::Seen;
use crate::code;

/// Folders that hold decisions by their name.
const NAMES: [&str; 26] = [
    "doc/adr",
    "docs/adr",
    "doc/adrs",
    "docs/adrs",
    "docs/ADR",
    "adr",
    "adrs",
    "ADR",
    "docs/decisions",
    "doc/decisions",
    "decisions",
    "docs/architecture/decisions",
    "doc/architecture/decisions",
    "docs/architecture/adr",
    "docs/architecture/adrs",
    "docs/architecture-decisions",
    "docs/architecture_decisions",
    "docs/design/adr",
    "docs/decision-records",
    "docs/decision_records",
    "docs/developer/decision-records",
    "docs/reference/adr",
    "architecture/decisions",
    "architecture-decision-record",
    "architecture-decision-records",
    ".adr",
];

/// Deepest folder below one of records.
const MAX_DEPTH: usize = 6;
/// Most records of a folder.
const MAX_FILES: usize = 50_000;

/// The folders of a checkout that hold records, relative to its top: those that its tools are set to, those
/// that were named to weft, and those with a well-known name.
pub(super) fn find(root: &Path, named: Vec<String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut add = |f: &str| {
        let clean = f
            .trim()
            .trim_start_matches("./")
            .trim_matches('/')
            .replace('\\', "/");
        let outside = clean.split('/').any(|p| p == "..") || Path::new(&clean).is_absolute();
        let there = !clean.is_empty()
            && !outside
            && root
                .join(&clean)
                .symlink_metadata()
                .is_ok_and(|m| m.is_dir());
        if there && !out.contains(&clean) {
            out.push(clean);
        }
    };
    if let Ok(text) = read(&root.join(".adr-dir"), 4_096) {
        add(String::from_utf8_lossy(&text)
            .lines()
            .next()
            .unwrap_or_default());
    }
    if let Ok(text) = read(&root.join(".log4brains.yml"), 64 << 10) {
        for line in String::from_utf8_lossy(&text).lines() {
            let l = line.trim_start().trim_start_matches("- ");
            if let Some(folder) = l.strip_prefix("adrFolder:") {
                add(folder.trim().trim_matches(['"', '\'']));
            }
        }
    }
    for f in &named {
        add(f);
    }
    for f in NAMES {
        if holds_records(root, f) {
            add(f);
        }
    }
    // Two spellings of one folder, on a file system that does not tell them apart.
    let mut places = Vec::new();
    out.retain(|f| {
        let place = root.join(f).canonicalize().ok();
        let new = place.is_none() || !places.contains(&place);
        places.push(place);
        new
    });
    // A folder inside of another one is read with it.
    let all = out.clone();
    out.retain(|f| {
        !all.iter()
            .any(|o| o != f && f.starts_with(&format!("{o}/")))
    });
    out
}

/// Whether a folder that only its name speaks for holds records, or nothing yet: source code may be in a
/// folder of that name, too.
fn holds_records(root: &Path, folder: &str) -> bool {
    let mut records = Vec::new();
    walk(root, folder, 0, &mut records);
    let others = || {
        let entries = std::fs::read_dir(root.join(folder))
            .into_iter()
            .flatten()
            .flatten();
        let mut names = entries.filter_map(|e| e.file_name().into_string().ok());
        names.any(|n| !n.starts_with('.') && !is_record_name(&n))
    };
    !records.is_empty() || !others()
}

/// Whether a file may be a record by its name.
pub(super) fn is_record_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let Some((stem, ext)) = lower.rsplit_once('.') else {
        return false;
    };
    matches!(ext, "md" | "markdown" | "adoc" | "asciidoc")
        && !matches!(stem, "summary" | "changelog" | "contributing")
        && !stem.starts_with('.')
}

fn is_index_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    matches!(
        lower.rsplit_once('.').map_or("", |x| x.0),
        "readme" | "index"
    )
}

/// The files of a folder that may be records. A README counts where it is alone in a folder of its own.
pub(super) fn list(root: &Path, folder: &str, out: &mut Vec<Seen>) {
    walk(root, folder, 0, out);
}

fn walk(root: &Path, folder: &str, depth: usize, out: &mut Vec<Seen>) {
    let dir = if folder.is_empty() {
        root.to_owned()
    } else {
        root.join(folder)
    };
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    let mut names: Vec<(String, std::fs::FileType)> = entries
        .flatten()
        .filter_map(|e| Some((e.file_name().into_string().ok()?, e.file_type().ok()?)))
        .filter(|(n, _)| !n.starts_with('.'))
        .collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    let records: Vec<&String> = names
        .iter()
        .filter(|(n, t)| t.is_file() && is_record_name(n))
        .map(|(n, _)| n)
        .collect();
    let alone = depth > 0 && records.len() == 1;
    for name in &records {
        if out.len() >= MAX_FILES {
            return;
        }
        let path = if folder.is_empty() {
            (*name).clone()
        } else {
            format!("{folder}/{name}")
        };
        if is_index_name(name) && !alone {
            continue;
        }
        if let Ok(meta) = root.join(&path).symlink_metadata() {
            let stat = weft_code::walk::stat(&meta);
            out.push(Seen {
                path,
                size: stat.size,
                modified_ns: stat.modified,
            });
        }
    }
    for (name, kind) in &names {
        let skipped = matches!(
            name.as_str(),
            "node_modules" | "templates" | "assets" | "images" | "img"
        );
        if kind.is_dir() && depth < MAX_DEPTH && !skipped {
            let path = if folder.is_empty() {
                name.clone()
            } else {
                format!("{folder}/{name}")
            };
            walk(root, &path, depth + 1, out);
        }
    }
}

/// Reads a file; one that is longer than `max` bytes gives one byte more. Links are not followed.
pub(super) fn read(path: &Path, max: usize) -> std::io::Result<Vec<u8>> {
    code::read_file(path, max as u64)
}

/// Writes a file whole or not at all, durably. `new`: a file that is there already is not replaced.
pub(super) fn write(path: &Path, bytes: &[u8], new: bool) -> std::io::Result<()> {
    let name = path
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let next = path.with_file_name(format!(".{name}.weft-{}", uuid::Uuid::now_v7().simple()));
    let done = std::fs::write(&next, bytes)
        .and_then(|()| std::fs::File::open(&next)?.sync_all())
        .and_then(|()| {
            if new {
                // Unlike a rename, a link never takes the place of a file.
                return std::fs::hard_link(&next, path);
            }
            if let Ok(meta) = path.metadata() {
                std::fs::set_permissions(&next, meta.permissions())?;
            }
            std::fs::rename(&next, path)
        });
    if new || done.is_err() {
        // It has its name by now, or nothing of it shall stay.
        let _ = std::fs::remove_file(&next);
    }
    done
}
