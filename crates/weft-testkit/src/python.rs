//! Packages of PyPI for tests, at pinned versions, installed once a machine into a folder of their own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The clients and tools that tests run, all in one folder.
const PACKAGES: [&str; 4] = [
    "anthropic==2.15.0",
    "ollama==0.6.3",
    "openai==3.57.0",
    "schemathesis==4.32.5",
];

/// A Python with the packages.
#[derive(Debug)]
pub struct Python(PathBuf);

impl Python {
    /// A command `python3 …` that finds them.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new("python3");
        c.args(args)
            .env("PYTHONPATH", &self.0)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            // A proxy of the machine is for the registries, not for loopback.
            .env("NO_PROXY", "*");
        c
    }
}

/// The packages, or `None` with a line on stderr where they cannot be had: the test that asked then skips.
/// With `CI` in the environment there is no skipping.
///
/// # Panics
/// In CI, where they cannot be had.
pub fn python() -> Option<&'static Python> {
    static INSTALLED: OnceLock<Result<Python, String>> = OnceLock::new();
    crate::unless_in_ci("Python packages", INSTALLED.get_or_init(install).as_ref())
}

fn install() -> Result<Python, String> {
    let home = crate::private_folder("weft-python-1")?;
    let lock = std::fs::File::create(home.join("lock")).map_err(|e| e.to_string())?;
    lock.lock().map_err(|e| e.to_string())?;
    let (packages, done) = (home.join("packages"), home.join("complete"));
    if !done.exists() {
        pip(&packages, &PACKAGES)?;
        std::fs::write(done, "").map_err(|e| e.to_string())?;
    }
    Ok(Python(packages))
}

/// Installs packages into a folder.
pub(crate) fn pip(into: &Path, packages: &[&str]) -> Result<(), String> {
    let o = Command::new("python3")
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .arg("--target")
        .arg(into)
        .args(packages)
        .output()
        .map_err(|e| format!("python3: {e}"))?;
    if o.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&o.stderr).into_owned())
}
