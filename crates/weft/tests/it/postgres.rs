//! The shared store as its operators run it: split processes on a real PostgreSQL.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_testkit::{FakeProvider, own_postgres, postgres, shared};

use crate::support::{EVERYWHERE, Home, address, collect, get, post, quoted, turn};

/// A process of `weft serve`, with the address that it told.
struct Process {
    child: Child,
    url: String,
    log: Arc<Mutex<String>>,
}

impl Process {
    /// Starts `weft serve SERVICE …` and waits until `told` stands in its log.
    fn start(home: &Home, args: &[&str], told: &str) -> Self {
        let mut all = vec!["serve"];
        all.extend(args);
        let mut child = home
            .command(&all)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let log = collect(&mut child);
        let mut p = Self {
            child,
            url: String::new(),
            log,
        };
        if !told.is_empty() {
            p.url = until("a process to listen", || {
                address(&p.log.lock().unwrap(), told)
            });
        }
        p
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn until<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(v) = ready() {
            return v;
        }
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A home whose configuration names a database.
fn home_on(dsn: &str) -> Home {
    let home = Home::new();
    home.ok(&["config", "set", "storage.postgres_dsn", dsn]);
    home
}

fn search(api: &str, query: &str) -> crate::support::Reply {
    get(&format!("{api}/v1/search/spans?query={}", quoted(query)))
}

#[test]
fn a_split_deployment_works_as_the_documents_say() {
    let Some(server) = postgres() else { return };
    let dsn = server.database().unwrap();
    // Each process with a home of its own: only the database is shared.
    let homes: Vec<Home> = (0..4).map(|_| Home::new()).collect();
    let api = Process::start(
        &homes[0],
        &["api", "-l", "127.0.0.1:0", "--postgres", &dsn],
        "read API listens",
    );
    // Nothing was embedded yet: the order of the checks, and the seed's words.
    let r = get(&format!("{}/v1/search/spans?query=", api.url));
    assert_eq!(
        (r.status, r.error().as_str()),
        (400, "query parameter is required")
    );
    let r = search(&api.url, "anything");
    assert_eq!(
        (r.status, r.error().as_str()),
        (
            503,
            "span embeddings not initialized: run the embed pass (tapes serve embed-worker or tapes dev embed-spans)"
        )
    );
    let _derive = Process::start(
        &homes[1],
        &[
            "derive-worker",
            "--postgres",
            &dsn,
            "--poll-interval",
            "200ms",
            "--debounce",
            "200ms",
        ],
        "",
    );
    let embed = Process::start(
        &homes[2],
        &[
            "embed-worker",
            "--postgres",
            &dsn,
            "--interval",
            "500ms",
            "--metrics-listen",
            "127.0.0.1:0",
        ],
        "worker metrics listens",
    );
    // The table is there and empty: that is an answer.
    until("the first pass", || {
        (search(&api.url, "anything").status == 200).then_some(())
    });
    assert_eq!(search(&api.url, "anything").json()["count"], 0);
    assert_eq!(get(&format!("{}/readyz", embed.url)).status, 200);
    let ingest = Process::start(
        &homes[3],
        &["ingest", "-l", "127.0.0.1:0", "--postgres", &dsn],
        "ingest API listens",
    );
    for n in 0..5 {
        let t = turn(
            "s",
            &format!("r{n}"),
            &format!("fix the retry backoff {n}"),
            "set max-poll-backoff to 30s",
        );
        assert_eq!(post(&format!("{}/v1/ingest", ingest.url), &t).status, 202);
    }
    let found = until("the spans", || {
        let r = search(&api.url, "retry backoff 3").json();
        (r["count"] == 5).then_some(r)
    });
    assert_eq!(found["results"][0]["trace_id"], "trc_r3");
    // The other machines' searches by words follow the change feed.
    for home in &homes {
        let r = home.json(&[
            "--postgres",
            &dsn,
            "spans",
            "search",
            "max-poll-backoff",
            "--json",
            "--mode",
            "lexical",
        ]);
        assert_eq!(r["count"], 5, "{r}");
    }
    let text = get(&format!("{}/metrics", embed.url)).body;
    let counted = |name: &str| {
        text.lines()
            .any(|l| l.starts_with(name) && !l.ends_with(" 0"))
    };
    assert!(counted("tapes_embed_worker_spans_embedded_total"), "{text}");
    let status = homes[0].ok(&["--postgres", &dsn, "status"]);
    assert!(status.contains("postgres://weft@127.0.0.1"), "{status}");
}

#[test]
fn without_a_database_a_service_ends_or_waits_as_it_is_told() {
    let Some(mut server) = own_postgres(&[]) else {
        return;
    };
    let dsn = server
        .database()
        .unwrap()
        .replace("weft@", "weft:s3cret-word@");
    server.stop(false);
    let home = home_on(&dsn);
    for service in ["proxy", "api", "ingest", "derive-worker", "embed-worker"] {
        let (code, text) = home.fails(&["serve", service]);
        assert_eq!(code, 1, "{text}");
        assert!(
            text.contains(
                "postgres unreachable at startup (pass --wait-for-db to retry instead): "
            ) && text.contains("hint:"),
            "{text}"
        );
        assert!(!text.contains("s3cret-word"), "{text}");
    }
    let (_, text) = home.fails(&["status"]);
    assert!(
        text.contains("does not answer") && !text.contains("s3cret-word"),
        "{text}"
    );
    let waiting = Process::start(
        &home,
        &[
            "derive-worker",
            "--wait-for-db",
            "--metrics-listen",
            "127.0.0.1:0",
        ],
        "worker metrics listens",
    );
    let ready = || get(&format!("{}/readyz", waiting.url));
    let r = ready();
    assert_eq!(
        (r.status, r.body.as_str()),
        (503, "initializing: database not connected")
    );
    assert_eq!(get(&format!("{}/healthz", waiting.url)).body, "ok");
    server.start_again().unwrap();
    until("the worker to be ready", || {
        (ready().status == 200).then_some(())
    });
    server.stop(false);
    let r = until("the worker to notice", || {
        Some(ready()).filter(|r| r.status == 503)
    });
    assert!(r.body.starts_with("not ready: "), "{}", r.body);
    assert!(!waiting.log.lock().unwrap().contains("s3cret-word"));
}

#[test]
fn embedding_can_be_left_to_another_process() {
    let Some(server) = postgres() else { return };
    let home = home_on(&server.database().unwrap());
    let all = Process::start(
        &home,
        &[&["--embed-spans=false"][..], &EVERYWHERE].concat(),
        "read API listens",
    );
    assert!(
        search(&all.url, "x")
            .error()
            .starts_with("span embeddings not initialized")
    );
    let report = home.json(&["dev", "embed-spans"]);
    assert_eq!(report["embedded"], 0);
    assert_eq!(search(&all.url, "x").status, 200);
    // Another size than the table's: told with both, and the rest runs.
    let (_, text) = home.fails(&[
        "dev",
        "embed-spans",
        "--embedding-provider",
        "ollama",
        "--embedding-dimensions",
        "77",
    ]);
    assert!(
        text.contains("stores vector(256) embeddings but 77 dimensions are configured"),
        "{text}"
    );
}

/// Everything that is true in a store, in a form that both kinds share.
fn truth(home: &Home, place: &[&str]) -> Value {
    let run = |args: &[&str]| {
        let mut all = place.to_vec();
        all.extend(args);
        home.json(&all)
    };
    let mut sessions = run(&["sessions", "list", "--json"]);
    let mut all = Vec::new();
    for s in sessions["items"].as_array_mut().unwrap() {
        let id = s["id"].as_str().unwrap().to_owned();
        all.push(run(&["sessions", "traces", &id, "--json"]));
    }
    let decisions = run(&["decisions", "list", "--workspace", "shop", "--json"]);
    let mut all = json!([sessions, all, decisions]);
    without_zero(&mut all);
    all
}

/// U+0000 cannot be text in PostgreSQL.
fn without_zero(v: &mut Value) {
    match v {
        Value::Object(o) => o.values_mut().for_each(without_zero),
        Value::Array(a) => a.iter_mut().for_each(without_zero),
        Value::String(s) => *s = s.replace('\0', "\u{fffd}"),
        _ => {}
    }
}

/// Fails with the first place where two values differ.
fn same(a: &Value, b: &Value, at: &str) {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys: BTreeSet<&String> = x.keys().chain(y.keys()).collect();
            for k in keys {
                same(&a[k.as_str()], &b[k.as_str()], &format!("{at}.{k}"));
            }
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            for (i, (x, y)) in x.iter().zip(y).enumerate() {
                same(x, y, &format!("{at}[{i}]"));
            }
        }
        _ => assert!(a == b, "{at}: {a} is not {b}"),
    }
}

#[test]
fn a_store_moves_to_postgresql_and_back_unchanged() {
    let Some(server) = postgres() else { return };
    let dsn = server.database().unwrap();
    let home = Home::new();
    home.ok(&["import", "--help"]);
    let transcripts = shared("data/transcripts");
    match &transcripts {
        Some(path) => {
            home.ok(&["import", &path.to_string_lossy()]);
        }
        None => {
            home.command(&["status"]).output().unwrap();
        }
    }
    let serve = crate::support::Server::start(&home, &[]);
    let mut nul = turn("nul", "r-nul", "what is \u{0} here?", "a zero byte");
    nul["request"]["x"] = json!([1.0, 1e300, 12345678901234567890_u64, "\u{0}"]);
    for t in [
        nul,
        turn("plain", "r-plain", "why?", "because"),
        turn("noid", "", "no id", "at all"),
    ] {
        assert_eq!(post(&format!("{}/v1/ingest", serve.ingest), &t).status, 202);
    }
    // A turn whose session was corrected: the correction goes along.
    assert_eq!(
        post(
            &format!("{}/v1/ingest", serve.ingest),
            &turn("lost", "r-lost", "mine?", "yours")
        )
        .status,
        202
    );
    let all = get(&format!(
        "{}/v1/sessions?harness_session_id=lost",
        serve.api
    ))
    .json();
    let lost = all["items"][0]["id"].as_str().unwrap();
    let raw = get(&format!("{}/v1/sessions/{lost}/raw_turns", serve.api)).json();
    let repair = json!({"raw_turn_id": raw["items"][0]["id"], "harness_id": "e2e-harness",
        "harness_session_id": "plain", "reason": "test"});
    let url = format!("{}/v1/admin/raw-turns/attribution-repair", serve.api);
    assert_eq!(post(&url, &repair).json()["recorded"], true);
    drop(serve);
    home.ok(&[
        "decide",
        "Use JWT",
        "--workspace",
        "shop",
        "--rationale",
        "Stateless tokens work.",
        "--by",
        "A",
    ]);
    home.ok(&["token", "create", "--scope", "read", "--name", "ci"]);
    home.ok(&["spans", "search", "anything"]);
    let before = truth(&home, &[]);
    let data = home.data();
    let data = data.to_string_lossy();
    // Killed in the middle, some times; then it goes on.
    for pause in [30, 120, 250] {
        let mut child = home
            .command(&["migrate", "--from", &data, "--to", &dsn])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        let _ = child.kill();
        let _ = child.wait();
    }
    let report = home.json(&["migrate", "--from", &data, "--to", &dsn, "--json"]);
    assert!(report["turns"].as_u64().unwrap() >= 3, "{report}");
    assert_eq!(
        (
            &report["decisions"],
            &report["tokens"],
            &report["corrections"]
        ),
        (&json!(1), &json!(1), &json!(1))
    );
    same(&truth(&home, &["--postgres", &dsn]), &before, "");
    let again = home.json(&["migrate", "--from", &data, "--to", &dsn, "--json"]);
    assert_eq!(
        (&again["turns_copied"], &again["vectors"]),
        (&json!(0), &json!(0)),
        "{again}"
    );
    assert_eq!(
        server
            .psql(
                &dsn,
                "SELECT count(*), count(DISTINCT (request_id, received_at)) FROM raw_turns"
            )
            .unwrap(),
        format!("{0}|{0}", report["turns"])
    );
    // And back, into an empty folder.
    let back = home.path().join("back");
    let back = back.to_string_lossy();
    let r = home.json(&["migrate", "--from", &dsn, "--to", &back, "--json"]);
    assert_eq!(r["turns"], report["turns"]);
    same(&truth(&home, &["--data-dir", &back]), &before, "");
    let embedded = home.json(&["--data-dir", &back, "dev", "embed-spans"]);
    assert_eq!(
        embedded["embedded"], 0,
        "vectors were taken over: {embedded}"
    );
    let (code, text) = home.fails(&["migrate", "--from", "/nowhere", "--to", &dsn]);
    assert!(
        code == 2 && text.contains("there is no store in /nowhere"),
        "{text}"
    );
}

#[test]
fn local_up_writes_the_documented_settings() {
    let home = Home::new();
    let bin = home.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let fake = FakeProvider::start(|_, _| (200, json!({})));
    let port = fake.url().rsplit(':').next().unwrap().to_owned();
    // A docker that notes what it is asked and knows no container.
    let script = bin.join("docker");
    let made = |text: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let run = |args: &[&str]| {
        home.command(args)
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .output()
            .unwrap()
    };
    made("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2; exit 1\n");
    let o = run(&["local", "up"]);
    let text = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(
        o.status.code() == Some(1)
            && text.contains("docker is required for 'weft local'")
            && text.contains("hint:"),
        "{text}"
    );
    made(
        "#!/bin/sh\necho \"$*\" >> \"$HOME/asked\"\ncase $1 in network|volume) [ \"$2\" != inspect ];; esac\n",
    );
    let o = run(&[
        "local",
        "up",
        "--ollama-port",
        &port,
        "--postgres-port",
        "6543",
    ]);
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    let asked = std::fs::read_to_string(home.path().join("asked")).unwrap();
    assert!(
        asked.contains("run -d --name tapes-local-postgres"),
        "{asked}"
    );
    assert!(
        asked.contains("CREATE EXTENSION IF NOT EXISTS vector"),
        "{asked}"
    );
    assert!(!asked.contains("--name tapes-local-ollama"), "{asked}");
    for (key, value) in [
        (
            "storage.postgres_dsn",
            "postgres://tapes:tapes@localhost:6543/tapes?sslmode=disable",
        ),
        ("embedding.provider", "ollama"),
        ("embedding.model", "embeddinggemma"),
        ("embedding.dimensions", "768"),
    ] {
        assert_eq!(home.ok(&["config", "get", key]).trim(), value);
    }
    assert!(run(&["local", "status"]).status.success());
    assert!(run(&["local", "down", "--wipe"]).status.success());
    assert_eq!(
        home.ok(&["config", "get", "storage.postgres_dsn"]).trim(),
        ""
    );
}

/// How long the soak runs; `WEFT_SOAK_SECONDS=600` for the ten minutes of an operator.
fn soak_time() -> Duration {
    let seconds = std::env::var("WEFT_SOAK_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(20))
}

#[test]
fn a_cluster_with_kills_stores_derives_and_embeds_everything_once() {
    let Some(server) = postgres() else { return };
    let dsn = server.database().unwrap();
    let home = home_on(&dsn);
    let paid: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let counted = paid.clone();
    let provider = FakeProvider::start(move |_, body| {
        let text = body["input"].as_str().unwrap_or_default().to_owned();
        let seed = text.bytes().map(f32::from).sum::<f32>();
        *counted.lock().unwrap().entry(text).or_default() += 1;
        (
            200,
            json!({"embeddings": [(0..8).map(|i| (seed * (i + 1) as f32).sin()).collect::<Vec<f32>>()]}),
        )
    });
    let target = provider.url();
    for (key, value) in [
        ("embedding.provider", "ollama"),
        ("embedding.target", target.as_str()),
        ("embedding.model", "m"),
        ("embedding.dimensions", "8"),
    ] {
        home.ok(&["config", "set", key, value]);
    }
    let api: &[&str] = &["api", "-l", "127.0.0.1:0"];
    let ingest: &[&str] = &["ingest", "-l", "127.0.0.1:0"];
    let derive: &[&str] = &[
        "derive-worker",
        "--poll-interval",
        "200ms",
        "--debounce",
        "100ms",
        "--max-derive-lag",
        "2s",
    ];
    let embed: &[&str] = &["embed-worker", "--interval", "300ms"];
    let kinds: [(&[&str], &str); 8] = [
        (api, "read API listens"),
        (api, "read API listens"),
        (ingest, "ingest API listens"),
        (ingest, "ingest API listens"),
        (derive, ""),
        (derive, ""),
        (embed, ""),
        (embed, ""),
    ];
    let mut processes: Vec<Process> = kinds
        .iter()
        .map(|(args, told)| Process::start(&home, args, told))
        .collect();
    let doors: Arc<Mutex<Vec<String>>> = Arc::new(Mutex::new(vec![
        processes[2].url.clone(),
        processes[3].url.clone(),
    ]));
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..3)
        .map(|c| {
            let (doors, stop) = (doors.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut acknowledged = Vec::new();
                let agent = ureq::Agent::config_builder()
                    .http_status_as_error(false)
                    .timeout_global(Some(Duration::from_secs(30)))
                    .build()
                    .new_agent();
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return acknowledged;
                    }
                    let id = format!("c{c}-{n}");
                    let t = turn(
                        &format!("s{c}-{}", n / 20),
                        &id,
                        &format!("question {c} {n}"),
                        &format!("answer {c} {n}"),
                    );
                    // A client that gets no answer sends it again, to another door.
                    for door in 0.. {
                        let url = doors.lock().unwrap()[(c + n + door) % 2].clone();
                        match agent.post(format!("{url}/v1/ingest")).send_json(&t) {
                            Ok(r) if r.status() == 202 => break,
                            _ if stop.load(Ordering::Relaxed) => return acknowledged,
                            _ => std::thread::sleep(Duration::from_millis(50)),
                        }
                    }
                    acknowledged.push(id);
                    std::thread::sleep(Duration::from_millis(40));
                }
                acknowledged
            })
        })
        .collect();
    let began = Instant::now();
    let mut kills = 0;
    while began.elapsed() < soak_time() {
        std::thread::sleep(Duration::from_millis(2_300));
        let victim = (kills * 5 + 2) % kinds.len();
        processes[victim].kill();
        kills += 1;
        let (args, told) = kinds[victim];
        processes[victim] = Process::start(&home, args, told);
        if (2..4).contains(&victim) {
            doors.lock().unwrap()[victim - 2] = processes[victim].url.clone();
        }
        // Whoever is left answers.
        let alive = &processes[usize::from(victim == 0)].url;
        let r = search(alive, "question 1 1");
        assert!(
            r.status == 200 || r.error().contains("not initialized"),
            "{} {}",
            r.status,
            r.body
        );
    }
    stop.store(true, Ordering::Relaxed);
    let acknowledged: BTreeSet<String> = clients
        .into_iter()
        .flat_map(|c| c.join().unwrap())
        .collect();
    let one = |sql: &str| server.psql(&dsn, sql).unwrap();
    // However much is left: it has to become less.
    let left = || -> u64 {
        one(
            "SELECT (SELECT count(*) FROM derive_queue) + (SELECT count(*) FROM span_documents WHERE hash IS NOT NULL AND embed_model = 0)",
        )
        .parse()
        .unwrap()
    };
    let (mut best, mut since) = (left(), Instant::now());
    while best > 0 {
        std::thread::sleep(Duration::from_millis(200));
        let now = left();
        if now < best {
            (best, since) = (now, Instant::now());
        }
        let logs = || {
            processes
                .iter()
                .map(|p| p.log.lock().unwrap().clone())
                .collect::<String>()
        };
        assert!(
            since.elapsed() < Duration::from_secs(120),
            "{now} are left:\n{}",
            logs()
        );
    }
    let stored: Vec<String> = one("SELECT request_id FROM raw_turns")
        .lines()
        .map(str::to_owned)
        .collect();
    let distinct: BTreeSet<String> = stored.iter().cloned().collect();
    assert_eq!(stored.len(), distinct.len(), "a turn is stored twice");
    let lost: Vec<&String> = acknowledged.difference(&distinct).collect();
    assert!(
        lost.is_empty(),
        "{} of {} lost: {lost:?}",
        lost.len(),
        acknowledged.len()
    );
    // Every turn is one span, and every span has one vector of its present text.
    let n = distinct.len();
    assert_eq!(
        one("SELECT count(*), count(DISTINCT raw_turn_id) FROM spans WHERE kind = 'llm'"),
        format!("{n}|{n}")
    );
    assert_eq!(
        one(
            "SELECT count(*) FROM span_embeddings e JOIN span_documents d USING (org_id, trace_id, span_id) WHERE d.hash = e.content_hash"
        ),
        n.to_string()
    );
    assert_eq!(one("SELECT count(*) FROM span_embeddings"), n.to_string());
    // What was paid for twice is at most what a killed worker had in its hands.
    let paid = paid.lock().unwrap();
    let calls: u32 = paid.values().sum();
    let twice = calls as usize - paid.len();
    assert!(
        twice <= kills * 9,
        "{twice} texts were embedded again after {kills} kills"
    );
    assert!(n > 100, "{n} turns only");
    drop(processes);
}
