//! Fixtures and fakes for tests; never part of the product.

mod fake;
mod node;
mod postgres;
mod python;
mod upstream;

use std::path::PathBuf;

pub use fake::{Answer, CUT, DIES, FakeProvider};
pub use node::{Node, node};
pub use postgres::{Postgres, own_postgres, postgres, shared_store};
pub use python::{Python, python};
pub use upstream::{Heard, Upstream, Wire, coded};

/// A file or folder of `../shared` (reference data that is not in the repository), or `None` with a
/// line on stderr where it is absent: the test that asked then skips.
pub fn shared(path: &str) -> Option<PathBuf> {
    let full = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared")
        .join(path);
    if full.exists() {
        return Some(full);
    }
    skipped(&format!("../shared/{path} is not on this machine"));
    None
}

#[cfg(unix)]
fn own_id() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").map_or(1, |m| m.uid())
}

#[cfg(not(unix))]
fn own_id() -> u32 {
    1
}

/// A folder of this machine that stays between runs, in which everybody may read and only we write.
fn private_folder(name: &str) -> Result<PathBuf, String> {
    let home = std::env::temp_dir().join(format!("{name}-{}", own_id()));
    std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        // Somebody else's folder of this name would hold somebody else's programs.
        let owner = std::fs::symlink_metadata(&home).map_err(|e| e.to_string())?;
        if !owner.is_dir() || owner.uid() != own_id() {
            return Err(format!("{} is not ours", home.display()));
        }
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&home, open).map_err(|e| e.to_string())?;
    }
    Ok(home)
}

/// What a test needs, or `None` with a line on stderr where it cannot be had: in CI that is a failure.
fn unless_in_ci<'a, T>(what: &str, got: Result<&'a T, &String>) -> Option<&'a T> {
    match got {
        Ok(t) => Some(t),
        Err(e) => {
            assert!(std::env::var_os("CI").is_none(), "no {what}: {e}");
            skipped(&format!("no {what} could be had: {e}"));
            None
        }
    }
}

/// Says that a test does not run here, and why.
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
pub fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}
