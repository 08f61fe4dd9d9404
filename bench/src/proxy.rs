//! The capture proxy: time to the first and to the last byte beside a direct connection to the same
//! upstream, and memory for each stream that is open.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::json;
use weft_testkit::{Upstream, Wire};

use crate::speed::Server;

/// Events of a streamed answer, and the words of each.
const EVENTS: usize = 50;
const REQUESTS: usize = 2_000;
const OPEN: usize = 1_000;
const HEAD: &str = "Content-Type: text/event-stream\r\n";

fn event(v: &serde_json::Value) -> String {
    format!(
        "event: {}\ndata: {v}\n\n",
        v["type"].as_str().unwrap_or_default()
    )
}

fn events() -> Vec<String> {
    let mut all = vec![
        event(
            &json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "model": "claude-x",
            "usage": {"input_tokens": 7}}}),
        ),
        event(
            &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ),
    ];
    all.extend((0..EVENTS).map(|n| {
        event(&json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": format!("some words of event {n} ")}}))
    }));
    all.push(event(&json!({"type": "message_stop"})));
    all
}

fn answer(wire: &mut Wire, all: &[String]) -> std::io::Result<()> {
    wire.chunked(200, HEAD)?;
    for e in all {
        wire.chunk(e)?;
    }
    wire.chunk("")
}

/// A kept connection.
struct Client(TcpStream, String);

impl Client {
    fn new(url: &str) -> Result<Self> {
        let host = url.strip_prefix("http://").context("url")?.to_owned();
        let s = TcpStream::connect(&host)?;
        s.set_nodelay(true)?;
        Ok(Self(s, host))
    }

    fn send(&mut self, body: &str) -> Result<()> {
        let text = format!(
            "POST /v1/messages HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.1,
            body.len()
        );
        Ok(self.0.write_all(text.as_bytes())?)
    }

    /// Time to the first byte of the answer, and to its last.
    fn ask(&mut self, body: &str) -> Result<(Duration, Duration)> {
        let start = Instant::now();
        self.send(body)?;
        let mut buffer = [0; 64 * 1024];
        let mut tail = Vec::new();
        let mut first = None;
        loop {
            let n = self.0.read(&mut buffer)?;
            anyhow::ensure!(n > 0, "the answer broke off");
            first.get_or_insert_with(|| start.elapsed());
            tail.extend_from_slice(&buffer[..n]);
            if tail.ends_with(b"\r\n0\r\n\r\n") {
                return Ok((first.unwrap_or_default(), start.elapsed()));
            }
            tail.drain(..tail.len().saturating_sub(8));
        }
    }
}

fn body(i: usize) -> String {
    json!({"model": "claude-x", "max_tokens": 100, "stream": true, "tools": [{"name": "Bash"}],
        "messages": [{"role": "user", "content": format!("question {i} {}", "context ".repeat(500))}]})
    .to_string()
}

fn percentile(sorted: &[Duration], p: f64) -> f64 {
    let at = ((sorted.len() - 1) as f64 * p) as usize;
    sorted[at].as_secs_f64() * 1e6
}

/// Asks both in turn from some clients at once; first and last bytes of each, sorted.
fn compare(direct: &str, proxied: &str, clients: usize) -> Result<[[Vec<Duration>; 2]; 2]> {
    let all: Mutex<[[Vec<Duration>; 2]; 2]> = Mutex::default();
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..clients)
            .map(|c| {
                let all = &all;
                s.spawn(move || -> Result<()> {
                    let mut ways = [Client::new(direct)?, Client::new(proxied)?];
                    for i in 0..REQUESTS / clients {
                        let b = body(c * REQUESTS + i);
                        for (way, client) in ways.iter_mut().enumerate() {
                            let (first, last) = client.ask(&b)?;
                            // The first ones make connections.
                            if i >= 5
                                && let Ok(mut all) = all.lock()
                            {
                                all[way][0].push(first);
                                all[way][1].push(last);
                            }
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|t| t.join().map_err(|_| anyhow::anyhow!("a client panicked"))?)
    })?;
    let mut all = all
        .into_inner()
        .map_err(|_| anyhow::anyhow!("a client panicked"))?;
    all.iter_mut().flatten().for_each(|v| v.sort());
    Ok(all)
}

pub(crate) fn run() -> Result<()> {
    let script = events();
    let bytes: usize = script.iter().map(String::len).sum();
    println!(
        "Capture proxy: {} events, {bytes} bytes an answer, {} bytes a request",
        script.len(),
        body(1).len()
    );
    let upstream = Upstream::start({
        let script = script.clone();
        move |_, wire| answer(wire, &script)
    });
    let dir = tempfile::tempdir()?;
    let server = Server::proxy(dir.path(), &upstream.url())?;
    println!(
        "\n| clients | | direct p50 | proxied p50 | added | direct p99 | proxied p99 | added |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for clients in [1, 8] {
        let [direct, proxied] = compare(&upstream.url(), server.url(), clients)?;
        for (what, at) in [("first byte", 0), ("last byte", 1)] {
            let row: Vec<String> = [0.5, 0.99]
                .iter()
                .flat_map(|p| {
                    let (d, x) = (percentile(&direct[at], *p), percentile(&proxied[at], *p));
                    [
                        format!("{d:.0} µs"),
                        format!("{x:.0} µs"),
                        format!("{:.0} µs", x - d),
                    ]
                })
                .collect();
            println!("| {clients} | {what} | {} |", row.join(" | "));
        }
    }
    open_streams()
}

/// Opens many streams, each with half of its answer, and looks at the memory.
fn open_streams() -> Result<()> {
    let script = Arc::new(events());
    let held = Arc::new(RwLock::new(()));
    let lock = held.write().map_err(|_| anyhow::anyhow!("lock"))?;
    let upstream = Upstream::start({
        let (script, held) = (script.clone(), held.clone());
        move |_, wire| {
            wire.chunked(200, HEAD)?;
            for e in &script[..script.len() / 2] {
                wire.chunk(e)?;
            }
            // Until all are open.
            drop(held.read());
            for e in &script[script.len() / 2..] {
                wire.chunk(e)?;
            }
            wire.chunk("")
        }
    });
    let dir = tempfile::tempdir()?;
    let server = Server::proxy(dir.path(), &upstream.url())?;
    let mut clients = Vec::new();
    let before = server.memory().1;
    for i in 0..OPEN {
        let mut c = Client::new(server.url())?;
        c.send(&body(i))?;
        clients.push(c);
    }
    let half: usize = script[..script.len() / 2].iter().map(String::len).sum();
    for c in &mut clients {
        let mut seen = 0;
        let mut buffer = [0; 16 * 1024];
        while seen < half {
            seen += c.0.read(&mut buffer)?;
        }
    }
    let open = server.memory().1;
    println!(
        "\n{OPEN} streams open, each with a request of {} bytes and {half} bytes of its answer: {:.1} KiB a stream ({before:.1} → {open:.1} MiB)",
        body(1).len(),
        (open - before) * 1024.0 / OPEN as f64,
    );
    drop(lock);
    Ok(())
}
