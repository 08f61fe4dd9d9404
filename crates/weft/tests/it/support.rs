//! Running the program in a home of its own, and talking to its servers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const WEFT: &str = env!("CARGO_BIN_EXE_weft");

/// An empty home directory; nothing of the machine's own settings reaches the program.
pub(crate) struct Home {
    pub(crate) dir: TempDir,
    /// Its own database, where the shared store is tested (`WEFT_TEST_STORE=postgres`).
    dsn: Option<String>,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            dsn: weft_testkit::shared_store()
                .then(weft_testkit::postgres)
                .flatten()
                .map(|server| server.database().unwrap()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new(WEFT);
        c.args(args)
            .env_clear()
            .env("HOME", self.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("WEFT_DATA_DIR", self.data())
            .current_dir(self.path())
            .stdin(Stdio::null());
        if let Some(dsn) = &self.dsn {
            c.env("WEFT_STORAGE_POSTGRES_DSN", dsn);
        }
        c
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Standard output of a command that must succeed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let o = self.run(args);
        assert!(
            o.status.success(),
            "weft {}: {}\n{}",
            args.join(" "),
            o.status,
            String::from_utf8_lossy(&o.stderr)
        );
        String::from_utf8(o.stdout).unwrap()
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(args)).unwrap()
    }

    /// Exit code and standard error of a command that must fail.
    pub(crate) fn fails(&self, args: &[&str]) -> (i32, String) {
        let o = self.run(args);
        assert!(!o.status.success(), "weft {} succeeded", args.join(" "));
        (
            o.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&o.stderr).into_owned(),
        )
    }
}

/// Collects what a process says on its standard error.
pub(crate) fn collect(child: &mut Child) -> Arc<Mutex<String>> {
    let log = Arc::new(Mutex::new(String::new()));
    let (copy, stderr) = (log.clone(), child.stderr.take().unwrap());
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let mut log = copy.lock().unwrap();
            log.push_str(&line);
            log.push('\n');
        }
    });
    log
}

/// The address in the line of a log that says `what`.
pub(crate) fn address(log: &str, what: &str) -> Option<String> {
    let line = log.lines().find(|l| l.contains(what))?;
    Some(line[line.find("http://")?..].trim().to_owned())
}

/// Free ports for all listeners of `weft serve`.
pub(crate) const EVERYWHERE: [&str; 6] = [
    "--proxy-listen",
    "127.0.0.1:0",
    "--api-listen",
    "127.0.0.1:0",
    "--ingest-listen",
    "127.0.0.1:0",
];

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) api: String,
    pub(crate) ingest: String,
    pub(crate) proxy: String,
    pub(crate) log: Arc<Mutex<String>>,
}

impl Server {
    /// Starts `weft serve …` on free ports and waits until it listens.
    pub(crate) fn start(home: &Home, args: &[&str]) -> Self {
        Self::start_with(home, args, |_| {})
    }

    pub(crate) fn start_with(
        home: &Home,
        args: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let mut all = vec!["serve"];
        all.extend(args);
        let (api, ingest, proxy) = match args.first() {
            Some(&"api") => (true, false, false),
            Some(&"ingest") => (false, true, false),
            Some(&"proxy") => (false, false, true),
            _ => (true, true, true),
        };
        match (api, ingest) {
            (true, true) => all.extend(EVERYWHERE),
            _ if args.contains(&"-l") => {}
            _ => all.extend(["--listen", "127.0.0.1:0"]),
        }
        let mut command = home.command(&all);
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let log = collect(&mut child);
        let mut server = Self {
            child,
            api: String::new(),
            ingest: String::new(),
            proxy: String::new(),
            log,
        };
        server.wait("the server to listen", |s| {
            let log = s.log.lock().unwrap().clone();
            if api {
                s.api = address(&log, "read API listens")?;
            }
            if proxy {
                s.proxy = address(&log, "capture proxy listens")?;
            }
            if ingest {
                s.ingest = address(&log, "ingest API listens")?;
            }
            Some(())
        });
        server
    }

    /// Waits until `ready` gives something; what is waited for stands in the failure.
    pub(crate) fn wait<T>(
        &mut self,
        what: &str,
        mut ready: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(v) = ready(self) {
                return v;
            }
            assert!(
                Instant::now() < end,
                "waited too long for {what}:\n{}",
                self.log.lock().unwrap()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the server as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the server as an operator would; its exit code.
    pub(crate) fn terminate(&mut self) -> i32 {
        Command::new("kill")
            .args(["-TERM", &self.pid().to_string()])
            .status()
            .unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status, headers as text, and body of an exchange.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .iter()
            .find(|(k, _)| k.eq_ignore_ascii_case(name))
            .map_or("", |(_, v)| v)
    }

    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_default().to_owned()
    }
}

/// Sends one request.
pub(crate) fn send(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: Option<&[u8]>,
) -> Reply {
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .allow_non_standard_methods(true)
        .timeout_global(Some(Duration::from_secs(60)))
        .build()
        .new_agent();
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    for (k, v) in headers {
        request = request.header(*k, *v);
    }
    let reply = agent
        .run(request.body(body.unwrap_or_default().to_vec()).unwrap())
        .unwrap();
    let status = reply.status().as_u16();
    let headers = reply
        .headers()
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_str().unwrap_or_default().to_owned()))
        .collect();
    let mut bytes = Vec::new();
    reply
        .into_body()
        .into_reader()
        .read_to_end(&mut bytes)
        .unwrap();
    Reply {
        status,
        headers,
        body: String::from_utf8_lossy(&bytes).into_owned(),
    }
}

pub(crate) fn get(url: &str) -> Reply {
    send("GET", url, &[], None)
}

pub(crate) fn post(url: &str, body: &Value) -> Reply {
    send(
        "POST",
        url,
        &[("content-type", "application/json")],
        Some(body.to_string().as_bytes()),
    )
}

/// A main turn of one exchange.
pub(crate) fn turn(session: &str, request_id: &str, user: &str, answer: &str) -> Value {
    json!({
        "provider": "anthropic",
        "request": {"model": "claude-sonnet-4-5", "stream": true, "max_tokens": 100, "tools": [{"name": "Bash"}],
            "messages": [{"role": "user", "content": user}]},
        "response": {"model": "claude-sonnet-4-5", "done": true, "stop_reason": "end_turn",
            "message": {"role": "assistant", "content": [{"type": "text", "text": answer}]},
            "usage": {"prompt_tokens": 25, "completion_tokens": 30}},
        "meta": {"request_id": request_id, "ts_request": "2026-06-01T12:00:00Z"},
        "session": {"harness_id": "e2e-harness", "harness_session_id": session}
    })
}

/// Percent-encodes a query value.
pub(crate) fn quoted(text: &str) -> String {
    text.bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

/// Says some lines to `weft mcp` in a folder; what it answers to those that want an answer.
pub(crate) fn talk(home: &Home, root: &Path, profile: &str, lines: &[Value]) -> Vec<Value> {
    let mut child = home
        .command(&["mcp", "--profile", profile])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut answers = Vec::new();
    for l in lines {
        writeln!(stdin, "{l}").unwrap();
        if l.get("id").is_some() {
            answers.push(serde_json::from_str::<Value>(&out.next().unwrap().unwrap()).unwrap());
        }
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
    answers
}
