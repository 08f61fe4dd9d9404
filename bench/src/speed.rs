//! Speed: ingest, derive, embed, search, cold start, sizes — each beside the bare library call.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use tantivy::collector::TopDocs;
use tantivy::query::{BooleanQuery, Occur, Query, TermQuery};
use tantivy::schema::IndexRecordOption;
use tantivy::{Index, Term};
use weft_engine::{Engine, Filter, Mode, SpanQuery};

use crate::fixture::{self, Turn, percentiles};

pub(crate) const WORDS: &str = "retry socket parser cache token schema thread queue index cursor lease shard \
    connection pool timeout backoff jitter daemon listener config logging redaction header request \
    response stream buffer decoder encoder segment vector keyword query ranking fusion snippet \
    session trace span turn prompt answer agent tool shell commit branch merge rebase conflict test \
    fixture mock assertion failure panic error warning migration rollback transaction savepoint \
    checkpoint snapshot replica leader follower election heartbeat quorum consensus clock deadline \
    budget limit memory allocator arena pointer borrow lifetime trait generic macro closure iterator \
    future executor waker channel mutex atomic fence barrier latency throughput percentile histogram \
    counter gauge metric dashboard alert incident postmortem rotation secret key certificate issuer \
    audience scope permission role policy tenant organisation billing invoice payment refund customer \
    order cart checkout shipment warehouse inventory price discount tax currency locale translation \
    glossary search filter facet sort page cursor offset bookmark share export import archive restore \
    delete purge retention backup disk volume mount partition network proxy gateway router balancer \
    dns resolver certificate handshake cipher compression gzip zstd checksum digest signature verify";

/// A small generator: the same rows in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

pub(crate) fn text(r: &mut Random, words: &[&str], n: usize) -> String {
    let mut out = String::new();
    for _ in 0..n {
        // Squaring makes some words common and most of them rare.
        let u = (r.next() % 10_000) as f64 / 10_000.0;
        let at = (u * u * words.len() as f64) as usize;
        out.push_str(words[at.min(words.len() - 1)]);
        out.push(' ');
    }
    out.push_str(&format!("case {}", r.next() % 1_000_000));
    out
}

fn weft() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let weft = exe.with_file_name("weft");
    if !weft.exists() {
        bail!(
            "{} is missing: cargo build --release -p weft",
            weft.display()
        );
    }
    Ok(weft)
}

/// A `weft serve …` process with its address.
pub(crate) struct Server {
    child: Child,
    url: String,
}

impl Server {
    pub(crate) fn start(dir: &Path, service: &str, dsn: &str) -> Result<Self> {
        Self::run(dir, service, &[("WEFT_STORAGE_POSTGRES_DSN", dsn)])
    }

    /// A capture proxy in front of an upstream.
    pub(crate) fn proxy(dir: &Path, upstream: &str) -> Result<Self> {
        let anthropic = [("WEFT_PROXY_ANTHROPIC_UPSTREAM", upstream)];
        Self::run(dir, "proxy", &anthropic)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    fn run(dir: &Path, service: &str, environment: &[(&str, &str)]) -> Result<Self> {
        let mut child = Command::new(weft()?)
            .args(["serve", service, "--listen", "127.0.0.1:0"])
            .env("WEFT_DATA_DIR", dir)
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().context("stderr")?;
        let mut lines = BufReader::new(stderr).lines();
        let url = loop {
            let line = lines.next().context("the server ended")??;
            if let Some(at) = line.find("http://") {
                break line[at..].trim().to_owned();
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self { child, url })
    }

    /// Largest resident memory so far, and the part of it that is not mapped files, MiB.
    pub(crate) fn memory(&self) -> (f64, f64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .unwrap_or_default();
        let of = |name: &str| {
            status
                .lines()
                .find_map(|l| {
                    l.strip_prefix(name)?
                        .trim()
                        .strip_suffix(" kB")?
                        .trim()
                        .parse::<f64>()
                        .ok()
                })
                .unwrap_or(0.0)
                / 1024.0
        };
        (of("VmHWM:"), of("RssAnon:"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn turn(i: usize, answer: &str) -> String {
    json!({
        "provider": "anthropic",
        "request": {"model": "claude-sonnet-4-5", "stream": true, "max_tokens": 100, "tools": [{"name": "Bash"}],
            "messages": [{"role": "user", "content": format!("question {i}: {answer}")}]},
        "response": {"model": "claude-sonnet-4-5", "done": true, "stop_reason": "end_turn",
            "message": {"role": "assistant", "content": [{"type": "text", "text": answer}]}},
        "meta": {"request_id": format!("r{i}")},
        "session": {"harness_id": "claude", "harness_session_id": format!("s{}", i % 50)}
    })
    .to_string()
}

pub(crate) const INGEST_TIME: Duration = Duration::from_secs(4);

/// Turns a second that a server acknowledges to some clients.
pub(crate) fn ingest(clients: usize, bodies: &[String], dsn: &str) -> Result<f64> {
    let dir = tempfile::tempdir()?;
    let server = Server::start(dir.path(), "ingest", dsn)?;
    let url = format!("{}/v1/ingest", server.url);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Instant::now();
    std::thread::scope(|s| {
        for _ in 0..clients {
            s.spawn(|| {
                let agent = ureq::Agent::new_with_defaults();
                while start.elapsed() < INGEST_TIME {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(body) = bodies.get(i) else { return };
                    let sent = agent
                        .post(&url)
                        .header("content-type", "application/json")
                        .send(body);
                    if sent.is_ok_and(|r| r.status() == 202) {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    Ok(done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64())
}

/// The same bodies straight into SQLite, `group` of them in a durable commit.
fn bare_inserts(group: usize, bodies: &[String]) -> Result<f64> {
    let dir = tempfile::tempdir()?;
    let mut c = rusqlite::Connection::open(dir.path().join("bare.db"))?;
    c.pragma_update(None, "journal_mode", "wal")?;
    c.pragma_update(None, "synchronous", "full")?;
    c.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, request_id TEXT UNIQUE, body BLOB)")?;
    let start = Instant::now();
    let mut n = 0;
    for chunk in bodies.chunks(group) {
        if start.elapsed() > INGEST_TIME {
            break;
        }
        let tx = c.transaction()?;
        for b in chunk {
            n += 1;
            tx.execute(
                "INSERT INTO t (request_id, body) VALUES (?1, ?2)",
                rusqlite::params![format!("r{n}"), b.as_bytes()],
            )?;
        }
        tx.commit()?;
    }
    Ok(f64::from(n) / start.elapsed().as_secs_f64())
}

fn capture_table(r: &mut Random, words: &[&str]) -> Result<()> {
    let bodies: Vec<String> = (0..60_000).map(|i| turn(i, &text(r, words, 60))).collect();
    println!(
        "\nIngest over HTTP, every turn durable ({} bytes a body)",
        bodies[0].len()
    );
    println!("| clients | weft turns/s | bare SQLite, synchronous=FULL, rows/s | ratio |");
    println!("| --- | --- | --- | --- |");
    for clients in [1, 8] {
        let (w, b) = (
            ingest(clients, &bodies, "")?,
            bare_inserts(clients, &bodies)?,
        );
        println!(
            "| {clients} | {w:.0} | {b:.0} ({clients} a commit) | {:.2} |",
            w / b
        );
    }
    let dir = tempfile::tempdir()?;
    let engine = fixture::engine(dir.path())?;
    let n = 5_000;
    for b in &bodies[..n] {
        engine.ingest_turn(b.as_bytes())?;
    }
    let start = Instant::now();
    while engine.derive_queued(0, 0)? > 0 {}
    let derive = n as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    for b in &bodies[..n] {
        let v: serde_json::Value = serde_json::from_str(b)?;
        std::hint::black_box(v);
    }
    let parse = n as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    let report = engine.embed_pass(weft_engine::EmbedOptions::default())?;
    let embed = report.embedded as f64 / start.elapsed().as_secs_f64();
    let embedder = engine
        .embedder()
        .map_err(|e| anyhow::anyhow!("{e}"))?
        .clone();
    let texts: Vec<String> = (0..n).map(|_| text(r, words, 120)).collect();
    let start = Instant::now();
    for t in &texts {
        std::hint::black_box(embedder.embed(t)?);
    }
    let bare = n as f64 / start.elapsed().as_secs_f64();
    println!("\n| step | weft | bare | what is bare |");
    println!("| --- | --- | --- | --- |");
    println!("| derive, turns/s | {derive:.0} | {parse:.0} | serde_json reading the bodies |");
    println!(
        "| embed pass, texts/s | {embed:.0} | {bare:.0} | the builtin model alone, one thread |"
    );
    Ok(())
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// The tenth best exact score, and the time of the scan, ms.
pub(crate) fn exact(matrix: &[f32], q: &[f32]) -> (f32, f64) {
    let start = Instant::now();
    let mut best: Vec<f32> = Vec::with_capacity(12);
    for row in matrix.chunks_exact(q.len()) {
        let s = dot(row, q);
        if best.len() < 10 || s > best[9] {
            let at = best.partition_point(|b| *b >= s);
            best.insert(at, s);
            best.truncate(10);
        }
    }
    (best[best.len() - 1], start.elapsed().as_secs_f64() * 1e3)
}

/// The words of a query as a bare OR over the committed index, ms.
fn bare_tantivy(dir: &Path, queries: &[String]) -> Result<Vec<f64>> {
    let index = Index::open_in_dir(dir.join("words"))?;
    let searcher = index.reader()?.searcher();
    let schema = index.schema();
    let fields: Vec<_> = ["user", "assistant", "asked", "context", "tool"]
        .iter()
        .filter_map(|f| schema.get_field(f).ok())
        .collect();
    let mut ms = Vec::new();
    for q in queries {
        let clauses: Vec<(Occur, Box<dyn Query>)> = weft_core::words::query_words(q)
            .iter()
            .flat_map(|w| fields.iter().map(move |f| Term::from_field_text(*f, w)))
            .map(|t| {
                (
                    Occur::Should,
                    Box::new(TermQuery::new(t, IndexRecordOption::WithFreqs)) as Box<dyn Query>,
                )
            })
            .collect();
        let start = Instant::now();
        searcher.search(
            &BooleanQuery::new(clauses),
            &TopDocs::with_limit(120).order_by_score(),
        )?;
        ms.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(ms)
}

pub(crate) fn fill(
    engine: &Engine,
    r: &mut Random,
    words: &[&str],
    rows: usize,
) -> Result<Vec<f32>> {
    const SESSION: usize = 10_000;
    let embedder = engine
        .embedder()
        .map_err(|e| anyhow::anyhow!("{e}"))?
        .clone();
    let mut matrix = Vec::with_capacity(rows * embedder.dimensions());
    for first in (0..rows).step_by(SESSION) {
        let turns: Vec<Turn> = (first..(first + SESSION).min(rows))
            .map(|i| {
                let n = 8 + (r.next() % 16) as usize;
                Turn {
                    id: format!("t{i}"),
                    user: text(r, words, n),
                    at: i as i64,
                    ..Turn::default()
                }
            })
            .collect();
        for t in &turns {
            matrix.extend(embedder.embed(&t.user)?.context("a vector")?);
        }
        fixture::write(engine, &format!("s{}", first / SESSION), &turns)?;
    }
    Ok(matrix)
}

fn size(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else {
        return std::fs::metadata(path).map_or(0, |m| m.len());
    };
    entries.flatten().map(|e| size(&e.path())).sum()
}

fn search_table(r: &mut Random, words: &[&str], rows: usize) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let engine = fixture::engine(dir.path())?;
    let matrix = fill(&engine, r, words, rows)?;
    let start = Instant::now();
    engine.embed_pass(weft_engine::EmbedOptions::default())?;
    let embed = rows as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    engine.store().index_words(1)?;
    let index = rows as f64 / start.elapsed().as_secs_f64();
    let queries: Vec<String> = (0..200).map(|_| text(r, words, 4)).collect();
    let embedder = engine
        .embedder()
        .map_err(|e| anyhow::anyhow!("{e}"))?
        .clone();
    let model = engine
        .store()
        .model(embedder.identity(), embedder.dimensions())?
        .context("the model")?;
    println!(
        "\n{rows} spans, 256 dimensions, one thread (embedding pass {embed:.0} texts/s, keyword commit {index:.0} documents/s)"
    );
    println!("| what | p50 ms | p99 ms | recall@10 |");
    println!("| --- | --- | --- | --- |");
    let row = |name: &str, ms: Vec<f64>, recall: &str| {
        let (p50, p99) = percentiles(ms);
        println!("| {name} | {p50:.2} | {p99:.2} | {recall} |");
    };
    let (mut found, mut scan, mut near) = (0, Vec::new(), Vec::new());
    for q in &queries {
        let v = embedder.embed(q)?.context("a vector")?;
        let (tenth, ms) = exact(&matrix, &v);
        scan.push(ms);
        let start = Instant::now();
        let hits = engine.store().nearest(&model, &v, &Filter::default(), 10)?;
        near.push(start.elapsed().as_secs_f64() * 1e3);
        found += hits.iter().take(10).filter(|h| h.1 >= tenth - 1e-5).count();
    }
    let recall = format!("{:.4}", found as f64 / (queries.len() * 10) as f64);
    row("weft, nearest 10 with documents", near, &recall);
    row("bare: exact f32 scan in memory", scan, "1");
    for (name, mode, scoped) in [
        ("weft, words", Mode::Lexical, false),
        ("weft, hybrid", Mode::Hybrid, false),
        (
            "weft, hybrid within one session (10,000 spans)",
            Mode::Hybrid,
            true,
        ),
    ] {
        let mut ms = Vec::new();
        for q in &queries {
            let mut query = SpanQuery {
                query: q.clone(),
                limit: 10,
                mode,
                ..SpanQuery::default()
            };
            if scoped {
                query.filter.sessions = vec![fixture::session_id("s0")];
            }
            let start = Instant::now();
            engine.search_spans(&query)?;
            ms.push(start.elapsed().as_secs_f64() * 1e3);
        }
        row(name, ms, "");
    }
    row(
        "bare: tantivy, the same words as OR",
        bare_tantivy(dir.path(), &queries)?,
        "",
    );
    let mut cold = Vec::new();
    for q in queries.iter().take(20) {
        let start = Instant::now();
        let out = Command::new(weft()?)
            .args(["spans", "search", q, "--json"])
            .env("WEFT_DATA_DIR", dir.path())
            .current_dir(dir.path())
            .stderr(Stdio::null())
            .output()?;
        cold.push(start.elapsed().as_secs_f64() * 1e3);
        if !out.status.success() {
            bail!("weft spans search failed");
        }
    }
    row("cold `weft spans search`, start to exit", cold, "");
    let server = Server::start(dir.path(), "api", "")?;
    for q in queries.iter().take(50) {
        let url = format!(
            "{}/v1/search/spans?mode=hybrid&query={}",
            server.url,
            q.replace(' ', "+")
        );
        ureq::get(&url).call()?;
    }
    let (peak, own) = server.memory();
    let mb = |p: &str| size(&dir.path().join(p)) as f64 / 1e6;
    println!(
        "\nOn disk: index.db {:.0} MB, vectors/ {:.0} MB, words/ {:.0} MB. Server after 50 searches: {peak:.0} MiB resident at most, {own:.0} MiB of it not mapped files.",
        mb("index.db"),
        mb("vectors"),
        mb("words")
    );
    Ok(())
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let sizes: Vec<usize> = if args.is_empty() {
        vec![10_000, 100_000]
    } else {
        args.iter().map(|a| a.parse()).collect::<Result<_, _>>()?
    };
    let mut r = Random(0x9E37_79B9_7F4A_7C15);
    capture_table(&mut r, &words)?;
    for rows in sizes {
        search_table(&mut r, &words, rows)?;
    }
    Ok(())
}
