//! Command lines: output forms, exit codes, hints, several processes.

use std::process::Stdio;

use serde_json::json;

use crate::support::{Home, Server, post, turn};

fn transcript(home: &Home, session: &str, pairs: &[(&str, &str)]) {
    let dir = home.path().join(".claude/projects/-no-such-kite");
    std::fs::create_dir_all(&dir).unwrap();
    let mut text = String::new();
    for (i, (user, answer)) in pairs.iter().enumerate() {
        let at = |n: usize| format!("2026-01-01T00:{:02}:{n:02}Z", i);
        text.push_str(&json!({"type": "user", "sessionId": session, "uuid": format!("u{i}"), "cwd": "/no/such/kite", "timestamp": at(1),
            "message": {"role": "user", "content": user}}).to_string());
        text.push('\n');
        text.push_str(&json!({"type": "assistant", "sessionId": session, "uuid": format!("a{i}"), "cwd": "/no/such/kite", "timestamp": at(2),
            "message": {"role": "assistant", "id": format!("{session}-m{i}"), "model": "claude-x", "content": [{"type": "text", "text": answer}]}}).to_string());
        text.push('\n');
    }
    std::fs::write(dir.join(format!("{session}.jsonl")), text).unwrap();
}

#[test]
fn on_an_empty_machine_the_first_search_answers_from_a_sample() {
    let home = Home::new();
    let o = home.run(&[
        "spans",
        "search",
        "--yes",
        "why",
        "do",
        "connections",
        "drop?",
    ]);
    assert!(o.status.success());
    let text = String::from_utf8(o.stdout).unwrap();
    assert!(text.contains("lantern daemon drop connections"), "{text}");
    assert!(String::from_utf8_lossy(&o.stderr).contains("invented sample"));
    // The sample stays out of the store.
    assert_eq!(home.json(&["status", "--json"])["raw_turns"], 0);
    let o = home.run(&["spans", "search", "anything"]);
    assert_eq!(String::from_utf8_lossy(&o.stdout), "No results found.\n");
    assert!(String::from_utf8_lossy(&o.stderr).contains("weft import"));
}

#[test]
fn import_search_and_open() {
    let home = Home::new();
    transcript(
        &home,
        "s1",
        &[
            ("how is logging set up?", "one function in main"),
            ("and tokens?", "they are redacted"),
        ],
    );
    assert!(
        home.ok(&["import"])
            .starts_with("2 new turn(s) in 1 session(s) from 1 file(s)")
    );
    assert_eq!(home.json(&["import", "--json"])["unchanged"], 1);
    let found = home.json(&["spans", "search", "logging", "--json"]);
    assert_eq!(found["results"][0]["user_prompt"], "how is logging set up?");
    let id = found["results"][0]["session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        home.ok(&["spans", "search", "logging", "--quiet"]),
        format!("{id}\n")
    );
    let text = home.ok(&["spans", "search", "logging", "-C", "1", "--repo", "kite"]);
    assert!(
        text.contains("they are redacted") && !text.contains('\u{1b}'),
        "{text}"
    );
    assert!(home.ok(&["sessions", "list"]).contains(&id));
    assert_eq!(
        home.json(&["sessions", "get", &id[..13]])["session"]["id"],
        id.as_str()
    );
    assert!(
        home.ok(&["sessions", "traces", &id])
            .contains("they are redacted")
    );
    assert_eq!(
        home.json(&["sessions", "traces", &id, "--json"])["traces"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        home.json(&["sessions", "raw-turns", &id])["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let (trace, span) = (
        &found["results"][0]["trace_id"],
        &found["results"][0]["span_id"],
    );
    assert_eq!(
        home.json(&[
            "spans",
            "get",
            trace.as_str().unwrap(),
            span.as_str().unwrap()
        ])["kind"],
        "llm"
    );
    assert_eq!(
        home.ok(&["spans", "search", "logging", "--agent", "codex"]),
        "No results found.\n"
    );
    assert!(home.ok(&["doctor"]).contains("ok  truth"));
    let before = home.ok(&["sessions", "traces", &id, "--json"]);
    assert!(home.ok(&["doctor", "--rebuild"]).contains("ok  index"));
    assert_eq!(home.ok(&["sessions", "traces", &id, "--json"]), before);
    assert_eq!(home.json(&["dev", "embed-spans"])["up_to_date"], 2);
}

#[test]
fn wrong_use_exits_with_2_and_failures_with_1_each_with_a_hint() {
    let home = Home::new();
    for (args, code, text) in [
        (&["nonsense"][..], 2, "unrecognized subcommand"),
        (&["spans", "search"], 2, "required arguments"),
        (&["spans", "search", "x", "--top", "0"], 2, "--top"),
        (
            &["spans", "search", "x", "--since", "whenever"],
            2,
            "want a day",
        ),
        (&["spans", "search", "  "], 2, "hint: "),
        (
            &["spans", "search", "x", "--session", "nope"],
            1,
            "hint: `weft sessions list`",
        ),
        (&["sessions", "get", "nope"], 1, "session not found"),
        (&["spans", "get", "a", "b"], 1, "span not found"),
        (&["import", "/no/such/file"], 1, "no such file"),
        (&["import", "--repo", "/"], 1, "no git repository"),
        (&["config", "get", "nope"], 2, "hint: valid keys: "),
        (
            &["config", "set", "embedding.dimensions", "many"],
            2,
            "wants a number",
        ),
        (&["auth", "cohere"], 2, "unsupported provider: \"cohere\""),
        (
            &["serve", "derive-worker", "--debounce", "5"],
            2,
            "want a duration",
        ),
        (
            &[
                "serve",
                "api",
                "--postgres",
                "postgres://u@127.0.0.1:1/x?sslmode=disable",
            ],
            1,
            "postgres unreachable at startup (pass --wait-for-db to retry instead): ",
        ),
        (
            &["status", "--postgres", "nonsense"],
            1,
            "invalid PostgreSQL DSN",
        ),
        (&["serve", "embed-worker", "--org", "x"], 2, "parse org id"),
        (
            &["--log-level", "loud", "status"],
            2,
            "invalid logging config",
        ),
        (
            &["dev", "embed-spans", "--embedding-provider", "cohere"],
            1,
            "unsupported embedding provider: cohere",
        ),
        (
            &["dev", "embed-spans", "--embedding-dimensions", "768"],
            1,
            "256",
        ),
    ] {
        let (got, stderr) = home.fails(args);
        assert_eq!(got, code, "{args:?}: {stderr}");
        assert!(stderr.contains(text), "{args:?}: {stderr}");
    }
}

#[test]
fn settings_come_from_flag_environment_file_and_default() {
    let home = Home::new();
    assert_eq!(home.ok(&["config", "get", "api.listen"]), ":8081\n");
    home.ok(&["config", "set", "api.listen", ":9001"]);
    home.ok(&["config", "set", "embedding.dimensions", "256"]);
    assert_eq!(home.ok(&["config", "get", "api.listen"]), ":9001\n");
    let o = home
        .command(&["config", "get", "api.listen"])
        .env("TAPES_API_LISTEN", ":9002")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&o.stdout), ":9002\n");
    let list = home.ok(&["config", "list"]);
    assert!(
        list.contains("(file)") && list.contains("<not set>"),
        "{list}"
    );
    let path = home.ok(&["config", "path"]);
    let file = std::fs::read_to_string(path.trim()).unwrap();
    assert!(file.contains("dimensions = 256"), "{file}");
    let mut child = home
        .command(&["auth", "openai"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"sk-test-key\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert!(
        home.ok(&["auth", "--list"])
            .contains("openai     key stored")
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let credentials = std::path::Path::new(path.trim()).with_file_name("credentials.toml");
        assert_eq!(
            std::fs::metadata(&credentials)
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
    }
    home.ok(&["auth", "--remove", "openai"]);
    assert!(home.ok(&["auth", "--list"]).contains("openai     no key"));
    std::fs::write(path.trim(), "not toml [").unwrap();
    assert_eq!(home.fails(&["status"]).0, 2);
}

#[test]
fn m22_eight_processes_write_at_once() {
    let home = Home::new();
    for s in 0..8 {
        let pairs: Vec<(String, String)> = (0..50)
            .map(|i| (format!("question {s} {i}"), format!("answer {s} {i}")))
            .collect();
        let pairs: Vec<(&str, &str)> = pairs
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        transcript(&home, &format!("s{s}"), &pairs);
    }
    let children: Vec<_> = (0..8)
        .map(|s| {
            let file = format!(".claude/projects/-no-such-kite/s{s}.jsonl");
            home.command(&["import", &file])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for c in children {
        let o = c.wait_with_output().unwrap();
        assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    }
    home.ok(&["spans", "search", "question"]);
    let status = home.json(&["status", "--json"]);
    assert_eq!(status["raw_turns"], 400);
    assert_eq!(status["coverage"]["documents"], 400);
    assert_eq!(status["coverage"]["embedded"], 400);
    assert!(home.ok(&["doctor"]).contains("ok  words"));
}

#[test]
fn tapesctl_speaks_its_documents_forms() {
    let home = Home::new();
    transcript(
        &home,
        "s1",
        &[("fix the retry backoff", "set max-poll-backoff to 30s")],
    );
    home.ok(&["import"]);
    let bin = home.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    home.ok(&["alias", "install", bin.to_str().unwrap()]);
    let tapesctl = |args: &[&str]| {
        let template = home.command(args);
        let mut c = std::process::Command::new(bin.join("tapesctl"));
        c.args(args)
            .env_clear()
            .current_dir(home.path())
            .stdin(Stdio::null());
        for (k, v) in template.get_envs() {
            if let Some(v) = v {
                c.env(k, v);
            }
        }
        let o = c.output().unwrap();
        assert!(
            o.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&o.stderr)
        );
        String::from_utf8(o.stdout).unwrap()
    };
    let text = tapesctl(&["search", "retry backoff", "--top", "10"]);
    assert!(
        text.starts_with("\nSpan Search Results for: \"retry backoff\"\n\n  #1  score: 0."),
        "{text}"
    );
    assert!(text.contains("\n  turn: fix the retry backoff\n   ├─ fix the retry backoff set max-poll-backoff to 30s\n  2026-01-01T00:00:01Z  session "), "{text}");
    let id = tapesctl(&["search", "retry", "--quiet", "--top", "3"]);
    assert_eq!(id.trim().len(), 36);
    assert_eq!(tapesctl(&["search", "***", "--quiet"]), "");
    assert_eq!(tapesctl(&["search", "***"]), "No results found.\n");
    // With a server named, the server answers.
    let mut s = Server::start(&home, &[]);
    let seeded = tapesctl(&["seed", "--tapes-url", &s.api]);
    assert!(
        seeded.starts_with("tapesctl: seeded 2 session(s) ("),
        "{seeded}"
    );
    post(
        &format!("{}/v1/ingest", s.ingest),
        &turn("e2e", "req1", "an aardvark question", "answered"),
    );
    let url = format!("{}/v1/search/spans?query=aardvark", s.api);
    s.wait("embedding", |_| {
        crate::support::get(&url)
            .body
            .contains("llm_req1")
            .then_some(())
    });
    tapesctl(&["config", "set", "tapes-url", &s.api]);
    assert!(tapesctl(&["search", "aardvark"]).contains("trc_req1/llm_req1"));
    assert!(tapesctl(&["sessions", "list"]).contains("e2e"));
    // What a server has open is not thrown away under it.
    let (code, text) = home.fails(&["doctor", "--rebuild"]);
    assert!(
        code == 1 && text.contains("open in another process"),
        "{text}"
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let home = Home::new();
    let line = format!(
        "'{}' completions bash | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}",
        crate::support::WEFT
    );
    let o = std::process::Command::new("bash")
        .args(["-c", &line])
        .env("HOME", home.path())
        .output()
        .unwrap();
    let code = String::from_utf8_lossy(&o.stdout).trim().to_owned();
    assert!(
        code == "0" || code == "141",
        "{code} {}",
        String::from_utf8_lossy(&o.stderr)
    );
    assert!(home.ok(&["completions", "zsh"]).contains("#compdef weft"));
    home.ok(&["man", home.path().join("man").to_str().unwrap()]);
    assert!(home.path().join("man/weft.1").exists());
}
