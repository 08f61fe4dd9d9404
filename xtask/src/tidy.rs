//! The rules of the house, checked: who depends on whom, what stands where, how large a file may be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// What each crate may depend on inside of the workspace; development dependencies are free.
const ALLOWED: [(&str, &[&str]); 11] = [
    ("weft-core", &[]),
    ("weft-store", &["weft-core"]),
    ("weft-capture", &["weft-core"]),
    ("weft-embed", &["weft-core"]),
    ("weft-code", &["weft-core"]),
    (
        "weft-engine",
        &[
            "weft-core",
            "weft-store",
            "weft-capture",
            "weft-embed",
            "weft-code",
        ],
    ),
    ("weft-server", &["weft-core", "weft-engine"]),
    ("weft", &["weft-core", "weft-engine", "weft-server"]),
    ("weft-testkit", &[]),
    (
        "weft-bench",
        &[
            "weft-core",
            "weft-store",
            "weft-embed",
            "weft-engine",
            "weft-server",
            "weft-testkit",
        ],
    ),
    ("xtask", &[]),
];

/// Outside crates that only some rooms may know.
const CONFINED: [(&str, &[&str]); 13] = [
    ("rusqlite", &["weft-store", "weft-bench"]),
    ("postgres", &["weft-store", "weft-bench"]),
    ("pgvector", &["weft-store", "weft-bench"]),
    ("tantivy", &["weft-store", "weft-bench"]),
    ("gix", &["weft-code"]),
    ("tree-sitter", &["weft-code"]),
    ("notify", &["weft-code"]),
    ("axum", &["weft-server"]),
    ("rmcp", &["weft-server"]),
    ("clap", &["weft", "weft-bench"]),
    ("tokio", &["weft-server", "weft", "weft-bench"]),
    ("ureq", &["weft-embed", "weft", "weft-bench"]),
    ("indicatif", &["weft"]),
];

/// Files and folders that may stand at the root.
const ROOT: [&str; 20] = [
    ".cargo",
    ".ci",
    ".git",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "bench",
    "crates",
    "docs",
    "fuzz",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "target",
    "xtask",
];

/// Lines of a source file, at most.
const MAX_LINES: usize = 800;

/// Words that only SQL has, where no SQL may stand.
const SQL: [&str; 5] = [
    "SELECT ",
    "INSERT INTO ",
    "DELETE FROM ",
    "CREATE TABLE ",
    "PRAGMA ",
];

/// Checks every rule and tells all that is broken.
pub(crate) fn tidy(root: &Path) -> Result<()> {
    let mut broken = Vec::new();
    dependencies(root, &mut broken)?;
    for entry in std::fs::read_dir(root)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !ROOT.contains(&name.as_str()) {
            broken.push(format!("{name}: unknown at the root of the repository"));
        }
    }
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "bench"] {
        sources(&root.join(folder), &mut files)?;
    }
    for path in files {
        let text = std::fs::read_to_string(&path)?;
        let shown = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .display()
            .to_string();
        source(&shown, &text, &mut broken);
    }
    if broken.is_empty() {
        println!("tidy: ok");
        return Ok(());
    }
    for b in &broken {
        eprintln!("tidy: {b}");
    }
    bail!("{} rule(s) broken", broken.len());
}

fn sources(dir: &Path, out: &mut Vec<PathBuf>) -> Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        // The recipe of the model is kept as it was run.
        if path.is_dir() && name != "target" && name != "model" {
            sources(&path, out)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
    Ok(())
}

fn source(shown: &str, text: &str, broken: &mut Vec<String>) {
    if !text.starts_with("//! ") {
        broken.push(format!(
            "{shown}: does not begin with a line saying what it is for"
        ));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        broken.push(format!("{shown}: {lines} lines, at most {MAX_LINES}"));
    }
    // These tests ask the database itself what arrived there.
    let in_store =
        shown.starts_with("crates/weft-store/") || shown.ends_with("tests/it/postgres.rs");
    let checks_rules = shown.starts_with("xtask/");
    let measures = shown.starts_with("bench/");
    for (n, line) in text.lines().enumerate() {
        let at = format!("{shown}:{}", n + 1);
        if !(in_store || checks_rules || measures) && SQL.iter().any(|w| line.contains(w)) {
            broken.push(format!("{at}: SQL outside of weft-store"));
        }
        let prints = ["println!", "print!(", "eprintln!", "eprint!("];
        let may_print = checks_rules || measures || shown.starts_with("crates/weft-testkit/");
        if !may_print && prints.iter().any(|p| line.contains(p)) {
            broken.push(format!(
                "{at}: printing is the business of crates/weft/src/out.rs"
            ));
        }
        if !checks_rules
            && line.contains("http")
            && ["crates.io", "pypi.org", "npmjs", "debian.org"]
                .iter()
                .any(|h| line.contains(h))
        {
            broken.push(format!("{at}: names the host of a registry"));
        }
    }
}

fn dependencies(root: &Path, broken: &mut Vec<String>) -> Result<()> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.into_iter().collect();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(may) = allowed.get(name) else {
            broken.push(format!(
                "{name}: not in the list of crates (xtask/src/tidy.rs)"
            ));
            continue;
        };
        for d in package["dependencies"].as_array().into_iter().flatten() {
            if d["kind"] == "dev" {
                continue;
            }
            let dep = d["name"].as_str().unwrap_or_default();
            if dep.starts_with("weft") && !may.contains(&dep) {
                broken.push(format!("{name} may not depend on {dep}"));
            }
            let confined = CONFINED.iter().find(|c| c.0 == dep);
            if confined.is_some_and(|c| !c.1.contains(&name)) {
                broken.push(format!("{name} may not depend on {dep}"));
            }
        }
    }
    Ok(())
}
