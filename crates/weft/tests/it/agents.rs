//! Agents started and followed, and tapesctl whole.

use serde_json::{Value, json};

use crate::support::{Home, Server};

#[test]
fn an_agent_is_started_behind_a_proxy_of_its_own() {
    let home = Home::new();
    let upstream = weft_testkit::Upstream::start(|h, wire| {
        assert_eq!(h.header("x-api-key"), "k");
        wire.chunked(200, "Content-Type: text/event-stream\r\n")?;
        for e in crate::proxy::events(&["the ", "answer"]) {
            wire.chunk(e)?;
        }
        wire.chunk("")
    });
    // An agent that asks once, and leaves a transcript with one more turn.
    let bin = home.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let agent = bin.join("claude");
    std::fs::write(
        &agent,
        r#"#!/bin/sh
exec python3 - "$@" <<'P'
import json, os, sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
body = {"model": "claude-x", "max_tokens": 9, "stream": True, "tools": [{"name": "Bash"}],
        "messages": [{"role": "user", "content": "started with " + " ".join(sys.argv[1:])}]}
r = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(),
    {"x-api-key": "k", "x-claude-code-session-id": "st-1", "content-type": "application/json"})
opener.open(r).read()
d = os.path.expanduser("~/.claude/projects/-x")
os.makedirs(d)
with open(d + "/st-1.jsonl", "w") as f:
    for i, (t, m) in enumerate([("user", {"role": "user", "content": "only in the transcript"}),
            ("assistant", {"role": "assistant", "id": "m9", "model": "claude-x", "content": [{"type": "text", "text": "kept"}]})]):
        f.write(json.dumps({"type": t, "sessionId": "st-1", "uuid": str(i), "timestamp": "2026-06-01T12:00:0%dZ" % i, "message": m}) + "\n")
sys.exit(3)
P
"#,
    )
    .unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let start = |args: &[&str]| {
        home.command(args)
            .env("PATH", &path)
            .env("ANTHROPIC_BASE_URL", upstream.url())
            .output()
            .unwrap()
    };
    let o = start(&["start", "claude", "--", "--model", "opus"]);
    let said = String::from_utf8_lossy(&o.stderr);
    assert_eq!(o.status.code(), Some(3), "the agent's own code: {said}");
    assert!(said.contains("weft: capturing; logs at "), "{said}");
    assert!(said.contains("weft: captured session st-1"), "{said}");
    let list = home.json(&["sessions", "list", "--json"]);
    let session = &list["items"][0];
    assert_eq!(session["harness_session_id"], "st-1");
    assert_eq!(
        session["rollup"]["turn_count"], 2,
        "wire and transcript: {list}"
    );
    let id = session["id"].as_str().unwrap();
    let traces = home.ok(&["sessions", "traces", id]);
    assert!(traces.contains("started with --model opus"), "{traces}");
    assert!(traces.contains("only in the transcript"), "{traces}");
    let (code, text) = home.fails(&["start", "codex"]);
    assert!(code == 1 && text.contains("cannot start codex"), "{text}");
}

#[test]
fn transcripts_are_followed_while_serving() {
    let home = Home::new();
    let mut s = Server::start(&home, &["--transcripts"]);
    let folder = home.path().join(".claude/projects/-x");
    std::fs::create_dir_all(&folder).unwrap();
    let line = |kind: &str, n: u8, message: Value| {
        json!({"type": kind, "sessionId": "w1", "uuid": format!("u{n}"), "timestamp": format!("2026-06-01T12:00:0{n}Z"),
            "message": message}).to_string() + "\n"
    };
    let ask = |n: u8| {
        line(
            "user",
            n,
            json!({"role": "user", "content": format!("question {n}")}),
        )
    };
    let answer = |n: u8| {
        line(
            "assistant",
            n,
            json!({"role": "assistant", "id": format!("m{n}"), "model": "claude-x",
            "content": [{"type": "text", "text": "noted"}]}),
        )
    };
    let file = folder.join("w1.jsonl");
    let mut text = String::new();
    for n in 1..=2_u8 {
        text.push_str(&ask(n * 2));
        text.push_str(&answer(n * 2 + 1));
        std::fs::write(&file, &text).unwrap();
        s.wait(&format!("turn {n}"), |s| {
            let list = crate::support::get(&format!("{}/v1/sessions", s.api)).json();
            (list["items"][0]["rollup"]["turn_count"] == n).then_some(())
        });
    }
}

#[test]
fn tapesctl_reads_everything_from_a_server_and_from_the_store() {
    let home = Home::new();
    let bin = home.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::os::unix::fs::symlink(crate::support::WEFT, bin.join("tapesctl")).unwrap();
    let run = |args: &[&str]| {
        let mut c = std::process::Command::new(bin.join("tapesctl"));
        let o = c
            .args(args)
            .env_clear()
            .envs(
                home.command(&[])
                    .get_envs()
                    .filter_map(|(k, v)| Some((k, v?))),
            )
            .current_dir(home.path())
            .output()
            .unwrap();
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        (o.status.code().unwrap(), text(&o.stdout), text(&o.stderr))
    };
    assert!(
        run(&["seed"])
            .1
            .starts_with("tapesctl: seeded 2 session(s) (")
    );
    assert!(run(&["search", "retry"]).1.contains("Span Search Results"));
    let server = Server::start(&home, &["api"]);
    let both = |args: &[&str]| -> Value {
        let local = run(args);
        assert_eq!(local.0, 0, "{args:?}: {}", local.2);
        let mut remote = args.to_vec();
        remote.extend(["--api-url", &server.api]);
        let remote = run(&remote);
        assert_eq!(local.1, remote.1, "{args:?}");
        serde_json::from_str(&local.1).unwrap()
    };
    let list = both(&[
        "sessions",
        "list",
        "--limit",
        "1",
        "--sort",
        "started_at",
        "--direction",
        "asc",
    ]);
    let keys: Vec<&String> = list["items"][0].as_object().unwrap().keys().collect();
    assert!(keys.is_sorted(), "{keys:?}");
    assert!(list["next_cursor"].is_string());
    let id = list["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(both(&["sessions", "get", &id])["session"]["id"], id);
    assert!(
        both(&["sessions", "raw-turns", &id])["items"]
            .as_array()
            .unwrap()
            .len()
            > 1
    );
    assert!(both(&["sessions", "traces", &id, "--payload", "preview"])["traces"].is_array());
    let traces = both(&["traces", "list", &id]);
    let trace = traces["items"][0]["trace_id"].as_str().unwrap().to_owned();
    assert_eq!(both(&["traces", "get", &trace])["trace"]["trace_id"], trace);
    let spans = both(&["spans", "list", &trace]);
    let span = spans[0]["span_id"].as_str().unwrap().to_owned();
    assert_eq!(both(&["spans", "get", &trace, &span])["span_id"], span);
    assert_eq!(both(&["stats"])["session_count"], 2);
    let file = home.path().join("s.jsonl");
    let (code, out, said) = run(&["export", &id, "-o", &file.to_string_lossy()]);
    assert_eq!((code, out.as_str()), (0, ""));
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(
        said.starts_with(&format!("tapesctl: wrote {} bytes to ", written.len())),
        "{said}"
    );
    assert_eq!(run(&["export", &id, "--api-url", &server.api]).1, written);
    let (code, _, said) = run(&["sessions", "get", "00000000-0000-4000-8000-000000000000"]);
    assert!(
        code == 1 && said.contains("tapes API returned 404") && said.contains("session not found"),
        "{said}"
    );
    assert_eq!(
        run(&["sessions", "list", "--harness-id", "claude"]).0,
        2,
        "they require each other"
    );
    assert!(
        run(&["version"])
            .1
            .ends_with("All in all, just another tape in the stereo\n")
    );
    assert_eq!(run(&["config", "set", "api-url", "ftp://x"]).0, 2);

    // Transcripts, into the store and to an ingest API.
    let projects = home.path().join("projects/-x/s9/subagents");
    std::fs::create_dir_all(&projects).unwrap();
    let turn = |sid: &str, id: &str| {
        format!(
            "{}\nnot json\n{}\n",
            json!({"type": "user", "sessionId": sid, "uuid": format!("u{id}"), "cwd": "/w", "version": "2.1",
                "timestamp": "2026-06-01T12:00:00Z", "message": {"role": "user", "content": format!("swept {id}")}}),
            json!({"type": "assistant", "sessionId": sid, "uuid": format!("a{id}"), "timestamp": "2026-06-01T12:00:01Z",
                "message": {"role": "assistant", "id": id, "model": "m", "content": [{"type": "text", "text": "ok"}]}})
        )
    };
    std::fs::write(home.path().join("projects/-x/s9.jsonl"), turn("s9", "m1")).unwrap();
    std::fs::write(projects.join("agent-a7.jsonl"), turn("s9", "m2")).unwrap();
    std::fs::write(
        projects.join("agent-a7.meta.json"),
        r#"{"agentType":"explorer","toolUseId":"toolu_1"}"#,
    )
    .unwrap();
    let root = home.path().join("projects");
    let root = root.to_string_lossy();
    let swept = |args: &[&str]| run(&[&["sync", "--projects-root", &root], args].concat()).1;
    assert_eq!(
        swept(&[]),
        "tapesctl: swept 1 session(s), 2 file(s): 2 stored, 0 deduped, 0 failed\n"
    );
    assert_eq!(
        swept(&[]),
        "tapesctl: swept 1 session(s), 2 file(s): 0 stored, 2 deduped, 0 failed\n"
    );
    let other = Home::new();
    let ingest = Server::start(&other, &["ingest"]);
    let to = ["--ingest-url", &ingest.ingest];
    assert_eq!(
        swept(&to),
        "tapesctl: swept 1 session(s), 2 file(s): 2 stored, 0 deduped, 0 failed\n"
    );
    assert_eq!(
        swept(&to),
        "tapesctl: swept 1 session(s), 2 file(s): 0 stored, 2 deduped, 0 failed\n"
    );
    let (code, out, _) = run(&[
        "sync",
        "--projects-root",
        &root,
        "--ingest-url",
        "http://127.0.0.1:9",
    ]);
    assert!(code == 1 && out.ends_with("2 failed\n"), "{out}");
}
