//! Speed and size of code search beside ripgrep, on copies of a real checkout.
//!
//! Wall times of one noisy machine: trust the ratios within a run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use weft_engine::code::{CodeQuery, SyncOptions};
use weft_engine::{Config, Engine};

const QUERY: &str = "where are request headers parsed?";
const NAME: &str = "parse headers";

fn copy_files(from: &Path, to: &Path, wanted: usize) -> Result<usize> {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(from)
        .output()?;
    let names: Vec<String> = String::from_utf8_lossy(&listed.stdout)
        .split('\0')
        .filter(|n| !n.is_empty())
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        bail!("{}: git lists no files there", from.display());
    }
    let mut n = 0;
    for round in 0.. {
        for name in &names {
            if n == wanted {
                return Ok(n);
            }
            let target = to.join(format!("copy{round}")).join(name);
            let source = from.join(name);
            if !source.symlink_metadata().is_ok_and(|m| m.is_file()) {
                continue;
            }
            std::fs::create_dir_all(target.parent().context("parent")?)?;
            let mut text = std::fs::read(&source)?;
            // Each copy is other text, so that nothing is found to be embedded already.
            if round > 0
                && let Ok(t) = std::str::from_utf8(&text)
            {
                text = t
                    .replace("return", &format!("return /* {round} */"))
                    .into_bytes();
            }
            std::fs::write(target, text)?;
            n += 1;
        }
    }
    Ok(n)
}

fn git(dir: &Path, args: &[&str]) -> Result<()> {
    let status = Command::new("git")
        .args([
            "-c",
            "user.name=bench",
            "-c",
            "user.email=b@b",
            "-c",
            "gc.auto=0",
        ])
        .args(args)
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if !status.success() {
        bail!("git {args:?} failed");
    }
    Ok(())
}

/// Median of some runs, milliseconds.
fn median(runs: usize, mut f: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut all = Vec::new();
    for _ in 0..runs {
        let from = Instant::now();
        f()?;
        all.push(from.elapsed().as_secs_f64() * 1e3);
    }
    all.sort_by(f64::total_cmp);
    Ok(all[all.len() / 2])
}

fn size(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    entries
        .flatten()
        .map(|e| match e.metadata() {
            Ok(m) if m.is_dir() => size(&e.path()),
            Ok(m) => m.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Peak resident memory of a child that has ended, MiB, from its own report on standard error.
fn peak(weft: &Path, data: &Path, root: &Path, args: &[&str]) -> Result<(Duration, f64)> {
    let from = Instant::now();
    let mut child = Command::new(weft)
        .args(args)
        .current_dir(root)
        .env("WEFT_DATA_DIR", data)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut high = 0.0_f64;
    loop {
        if let Ok(text) = std::fs::read_to_string(format!("/proc/{}/status", child.id())) {
            let kib = text
                .lines()
                .find_map(|l| l.strip_prefix("VmHWM:"))
                .and_then(|l| l.trim().trim_end_matches(" kB").trim().parse::<f64>().ok());
            high = high.max(kib.unwrap_or_default() / 1024.0);
        }
        if child.try_wait()?.is_some() {
            return Ok((from.elapsed(), high));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut from = None;
    let mut sizes = Vec::new();
    let mut weft = PathBuf::from("target/release/weft");
    let mut it = args.iter();
    while let Some(a) = it.next() {
        match a.as_str() {
            "--from" => from = it.next().map(PathBuf::from),
            "--weft" => weft = it.next().map(PathBuf::from).unwrap_or_default(),
            n => sizes.push(
                n.parse::<usize>()
                    .with_context(|| format!("unknown argument {n}"))?,
            ),
        }
    }
    let from = from
        .context("--from DIR is needed: a checkout whose files are copied")?
        .canonicalize()?;
    let weft = weft
        .canonicalize()
        .context("the release binary: cargo build --release")?;
    if sizes.is_empty() {
        sizes = vec![1_000, 10_000];
    }
    let has_rg = Command::new("rg")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok();
    println!(
        "| files | symbols | first index | files/s | symbols/s | peak MiB | bytes/1,000 symbols | re-index 10 | cold search | cold find | warm search | warm find | rg -i |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for wanted in sizes {
        let tmp = tempfile::tempdir()?;
        let root = tmp.path().canonicalize()?.join("repo");
        let data = tmp.path().join("data");
        std::fs::create_dir(&root)?;
        let files = copy_files(&from, &root, wanted)?;
        git(&root, &["init", "-q"])?;
        git(&root, &["add", "-A"])?;
        git(&root, &["commit", "-q", "-m", "all"])?;
        let (took, high) = peak(&weft, &data, &root, &["code", "index"])?;
        let engine = Engine::open(&data, Config::default())?;
        let repo = engine.code_repository(&root)?;
        let status = engine.code_status(&repo)?;
        let symbols = status.first().map_or(0, |w| w.symbols);
        let bytes = size(&data.join("code"));
        // Ten files change and are committed.
        for (i, entry) in std::fs::read_dir(root.join("copy0"))?
            .flatten()
            .filter(|e| e.path().is_file())
            .take(10)
            .enumerate()
        {
            let mut text = std::fs::read(entry.path())?;
            text.extend_from_slice(format!("\n# change {i}\n").as_bytes());
            std::fs::write(entry.path(), text)?;
        }
        git(&root, &["commit", "-q", "-a", "-m", "ten"])?;
        let at = Instant::now();
        engine.code_sync(&repo, SyncOptions::new(&mut |_, _, _| {}))?;
        let again = at.elapsed().as_secs_f64() * 1e3;
        let cold = |args: &'static [&'static str]| {
            median(7, || {
                let s = Command::new(&weft)
                    .args(args)
                    .current_dir(&root)
                    .env("WEFT_DATA_DIR", &data)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()?;
                if s.success() {
                    Ok(())
                } else {
                    bail!("weft {args:?} failed")
                }
            })
        };
        let cold_search = cold(&["code", "search", QUERY])?;
        let cold_find = cold(&["code", "find", NAME])?;
        let q = CodeQuery {
            query: QUERY.into(),
            ..CodeQuery::default()
        };
        let warm_search = median(15, || {
            Ok(engine
                .code_search(&repo, &q, &mut |_, _, _| {})
                .map(|_| ())?)
        })?;
        let f = CodeQuery {
            query: NAME.into(),
            limit: 20,
            ..CodeQuery::default()
        };
        let warm_find = median(15, || {
            Ok(engine.code_find(&repo, &f, &mut |_, _, _| {}).map(|_| ())?)
        })?;
        let rg = if has_rg {
            format!(
                "{:.0} ms",
                median(5, || {
                    Command::new("rg")
                        .args(["-i", "-c", "headers"])
                        .current_dir(&root)
                        .stdout(Stdio::null())
                        .status()?;
                    Ok(())
                })?
            )
        } else {
            "not installed".into()
        };
        let s = took.as_secs_f64();
        println!(
            "| {files} | {symbols} | {s:.1} s | {:.0} | {:.0} | {high:.0} | {:.0} k | {again:.0} ms | {cold_search:.0} ms | {cold_find:.0} ms | {warm_search:.1} ms | {warm_find:.1} ms | {rg} |",
            files as f64 / s,
            symbols as f64 / s,
            bytes as f64 / symbols.max(1) as f64,
        );
    }
    Ok(())
}
