//! Which repository a folder belongs to, read from git's own files; nothing is executed.
//!
//! A clone and all its worktrees are one repository: its identity is the `origin` remote
//! (`host/owner/name`), else the folder that holds the common git directory.

use std::path::{Path, PathBuf};

/// A git repository found from a folder inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// `host/owner/name`, or an absolute path.
    pub identity: String,
    /// Top folder of the worktree.
    pub root: PathBuf,
}

/// Folders under which agents keep worktrees of a repository.
const WORKTREE_FOLDERS: [&str; 2] = ["/.claude/worktrees/", "/.worktrees/"];

/// The repository that holds `folder`; `None` where there is none.
pub fn find(folder: &Path) -> Option<Repository> {
    for dir in folder.ancestors() {
        let dot_git = dir.join(".git");
        let git_dir = if dot_git.is_dir() {
            dot_git
        } else if dot_git.is_file() {
            let text = std::fs::read_to_string(&dot_git).ok()?;
            let target = text.strip_prefix("gitdir:")?.trim();
            dir.join(target)
        } else {
            continue;
        };
        let common = match std::fs::read_to_string(git_dir.join("commondir")) {
            Ok(rest) => git_dir.join(rest.trim()),
            Err(_) => git_dir,
        };
        let common = common.canonicalize().unwrap_or(common);
        let identity = origin(&common).unwrap_or_else(|| {
            let main = if common.ends_with(".git") {
                common.parent().unwrap_or(&common)
            } else {
                &common
            };
            main.to_string_lossy().into_owned()
        });
        return Some(Repository {
            identity,
            root: dir.to_owned(),
        });
    }
    None
}

/// The identity of the repository that a session worked in, from what its transcript says: the
/// remote where it names one, git's files where the folder still exists, else the folder's name.
pub fn identity(cwd: &str, remote: &str) -> String {
    if let Some(r) = normalize_remote(remote) {
        return r;
    }
    if cwd.is_empty() {
        return String::new();
    }
    if let Some(r) = find(Path::new(cwd)) {
        return r.identity;
    }
    let end = WORKTREE_FOLDERS
        .iter()
        .filter_map(|w| cwd.find(w))
        .min()
        .unwrap_or(cwd.len());
    cwd[..end].trim_end_matches('/').to_owned()
}

fn origin(common: &Path) -> Option<String> {
    let config = std::fs::read_to_string(common.join("config")).ok()?;
    let mut in_origin = false;
    for line in config.lines().map(str::trim) {
        if line.starts_with('[') {
            in_origin = line.replace(' ', "") == "[remote\"origin\"]";
        } else if let (true, Some((key, value))) = (in_origin, line.split_once('='))
            && key.trim().eq_ignore_ascii_case("url")
        {
            return normalize_remote(value.trim());
        }
    }
    None
}

/// `https://user@host/owner/name.git` and `git@host:owner/name` as `host/owner/name`.
pub fn normalize_remote(url: &str) -> Option<String> {
    let url = url.trim().trim_end_matches('/');
    let url = url.strip_suffix(".git").unwrap_or(url);
    let rest = match url.split_once("://") {
        Some(("file", _)) => return None,
        Some((_, rest)) => rest.to_owned(),
        None => {
            let (host, path) = url.split_once(':')?;
            if host.contains('/') {
                return None;
            }
            format!("{host}/{}", path.trim_start_matches('/'))
        }
    };
    let rest = rest.rsplit_once('@').map_or(rest.as_str(), |(_, r)| r);
    let (host, path) = rest.split_once('/')?;
    let host = host.split(':').next()?.to_ascii_lowercase();
    (!host.is_empty() && !path.is_empty()).then(|| format!("{host}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn remotes_have_one_spelling() {
        for url in [
            "https://github.com/acme/kite.git",
            "https://token@github.com/acme/kite/",
            "git@github.com:acme/kite.git",
            "ssh://git@GitHub.com:22/acme/kite",
        ] {
            assert_eq!(
                normalize_remote(url).as_deref(),
                Some("github.com/acme/kite"),
                "{url}"
            );
        }
        for url in ["", "/srv/kite.git", "file:///srv/kite", "../kite"] {
            assert_eq!(normalize_remote(url), None, "{url}");
        }
    }

    #[test]
    fn a_worktree_is_its_main_clone() {
        let tmp = tempfile::tempdir().expect("dir");
        let top = tmp.path().canonicalize().expect("path");
        let main = top.join("kite");
        fs::create_dir_all(main.join(".git/worktrees/wt")).expect("git");
        fs::create_dir_all(main.join("src/deep")).expect("src");
        fs::write(main.join(".git/worktrees/wt/commondir"), "../..\n").expect("commondir");
        let wt = top.join("wt");
        fs::create_dir(&wt).expect("wt");
        let target = main.join(".git/worktrees/wt");
        fs::write(wt.join(".git"), format!("gitdir: {}\n", target.display())).expect(".git");
        let here = find(&main.join("src/deep")).expect("main");
        assert_eq!(here.root, main);
        assert_eq!(here.identity, main.to_string_lossy());
        assert_eq!(find(&wt).expect("worktree").identity, here.identity);
        fs::write(
            main.join(".git/config"),
            "[remote \"origin\"]\n\turl = git@h.org:a/kite\n",
        )
        .expect("config");
        assert_eq!(find(&wt).expect("worktree").identity, "h.org/a/kite");
        assert_eq!(find(&top), None);
    }

    #[test]
    fn a_folder_that_is_gone_keeps_its_name() {
        assert_eq!(
            identity("/no/such/kite/.claude/worktrees/x/src", ""),
            "/no/such/kite"
        );
        assert_eq!(
            identity("/no/such/kite", "git@h.org:a/kite.git"),
            "h.org/a/kite"
        );
        assert_eq!(identity("", ""), "");
    }
}
