//! Fixtures and fakes for tests; never part of the product.

mod fake;
mod postgres;
mod upstream;

use std::path::PathBuf;

pub use fake::{Answer, CUT, DIES, FakeProvider};
pub use postgres::{Postgres, own_postgres, postgres, shared_store};
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

/// Says that a test does not run here, and why.
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
pub fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}
