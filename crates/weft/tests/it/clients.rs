//! Putting weft into clients, the hooks that they call, and skills.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Instant;

use serde_json::{Value, json};
use weft_testkit::{Upstream, shared};

use crate::code::{git, shop};
use crate::support::{Home, Server, WEFT, get, post, turn};

fn read(home: &Home, path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(home.path().join(path)).unwrap()).unwrap()
}

#[test]
fn weft_is_put_into_clients_and_taken_out_again() {
    let home = Home::new();
    // Without any client there is nothing to do, and it is said.
    let (code, e) = home.fails(&["mcp", "install"]);
    assert!(
        code == 2 && e.contains("no client is used on this machine"),
        "{e}"
    );
    let claude = "{\n  \"numStartups\": 3,\n  \"mcpServers\": {\n    \"other\": {\"command\": \"x\"}\n  }\n}\n";
    std::fs::write(home.path().join(".claude.json"), claude).unwrap();
    std::fs::create_dir(home.path().join(".codex")).unwrap();
    let codex = "# mine\nmodel = \"gpt-5\"\n";
    std::fs::write(home.path().join(".codex/config.toml"), codex).unwrap();
    let shown = home.ok(&["mcp", "install", "--dry-run"]);
    assert!(
        shown.contains("would be changed") && shown.contains("+     \"weft\": {"),
        "{shown}"
    );
    assert_eq!(
        std::fs::read_to_string(home.path().join(".claude.json")).unwrap(),
        claude
    );
    // Only the clients that are used here.
    home.ok(&["mcp", "install"]);
    assert!(!home.path().join(".cursor").exists());
    let c = read(&home, ".claude.json");
    assert_eq!(
        c["mcpServers"]["weft"],
        json!({"type": "stdio", "command": WEFT, "args": ["mcp"]})
    );
    assert_eq!(
        (&c["numStartups"], &c["mcpServers"]["other"]["command"]),
        (&json!(3), &json!("x"))
    );
    let hooks = read(&home, ".claude/settings.json");
    assert_eq!(
        hooks["hooks"]["SessionStart"][0]["hooks"][0]["command"],
        format!("{WEFT} hook session-start --client claude")
    );
    assert_eq!(
        hooks["hooks"]["PreToolUse"][0]["matcher"],
        "Edit|Write|MultiEdit|NotebookEdit"
    );
    let text = std::fs::read_to_string(home.path().join(".codex/config.toml")).unwrap();
    assert!(
        text.starts_with(codex) && text.contains("[mcp_servers.weft]"),
        "{text}"
    );
    // A second time changes nothing; all clients, another server, a token in the environment.
    let again = home.ok(&["mcp", "install"]);
    assert!(
        again.contains("as wanted already") && !again.contains('+'),
        "{again}"
    );
    home.ok(&[
        "mcp",
        "install",
        "all",
        "--url",
        "https://weft.example.com/mcp",
        "--token-env",
        "TOKEN",
        "--no-hooks",
    ]);
    let header = |v: &Value| {
        v["headers"]["Authorization"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(
        header(&read(&home, ".cursor/mcp.json")["mcpServers"]["weft"]),
        "Bearer ${env:TOKEN}"
    );
    assert_eq!(
        header(&read(&home, ".claude.json")["mcpServers"]["weft"]),
        "Bearer ${TOKEN}"
    );
    assert_eq!(
        read(&home, ".config/opencode/opencode.json")["mcp"]["weft"]["type"],
        "remote"
    );
    assert_eq!(
        read(&home, ".gemini/settings.json")["mcpServers"]["weft"]["httpUrl"],
        "https://weft.example.com/mcp"
    );
    assert_eq!(
        read(&home, ".config/Code/User/mcp.json")["servers"]["weft"]["type"],
        "http"
    );
    // A file that cannot be read is left, the others go on.
    std::fs::write(home.path().join(".cursor/mcp.json"), "{ broken").unwrap();
    let o = home.run(&["mcp", "uninstall", "all"]);
    assert_eq!(o.status.code(), Some(1));
    let e = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(
        e.contains("mcp.json: it is no JSON") && e.contains("left as it is"),
        "{e}"
    );
    assert_eq!(
        std::fs::read_to_string(home.path().join(".cursor/mcp.json")).unwrap(),
        "{ broken"
    );
    assert_eq!(
        std::fs::read_to_string(home.path().join(".claude.json")).unwrap(),
        claude
    );
    assert_eq!(
        std::fs::read_to_string(home.path().join(".codex/config.toml")).unwrap(),
        codex
    );
    for gone in [
        ".claude/settings.json",
        ".codex/hooks.json",
        ".gemini/settings.json",
        ".config/Code/User/mcp.json",
    ] {
        assert!(!home.path().join(gone).exists(), "{gone}");
    }
    // A project's files, from a folder inside of it, by the program's name.
    let root = shop(&home);
    let o = home
        .command(&[
            "mcp", "install", "claude", "vscode", "--scope", "project", "--json",
        ])
        .current_dir(root.join("src"))
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(told["files"].as_array().unwrap().len(), 3);
    assert_eq!(
        read(&home, "shop/.mcp.json")["mcpServers"]["weft"]["command"],
        "weft"
    );
    assert_eq!(
        read(&home, "shop/.vscode/mcp.json")["servers"]["weft"]["args"],
        json!(["mcp"])
    );
    let (code, e) = home.fails(&["mcp", "install", "claude", "--url", "nonsense"]);
    assert!(code == 2 && e.contains("is no address"), "{e}");
}

/// What a hook answers to what a client says.
fn hook(home: &Home, args: &[&str], said: &str) -> (Option<i32>, String) {
    let mut child = home
        .command(&[&["hook"], args].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that has ended already needs no more.
    let _ = child.stdin.take().unwrap().write_all(said.as_bytes());
    let o = child.wait_with_output().unwrap();
    (o.status.code(), String::from_utf8(o.stdout).unwrap())
}

#[test]
fn hooks_tell_what_was_decided_and_never_stand_in_the_way() {
    let home = Home::new();
    let root = shop(&home);
    let here = |args: &[&str]| {
        let o = home.command(args).current_dir(&root).output().unwrap();
        assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    };
    here(&[
        "decide",
        "Refunds are idempotent",
        "--rationale",
        "the provider retries",
        "--files",
        "src/billing/refunds.ts",
        "--accept",
    ]);
    here(&["code", "search", "refund"]);
    let file = root.join("src/billing/refunds.ts");
    let said = |session: &str, file: &std::path::Path| {
        json!({"session_id": session, "cwd": root, "hook_event_name": "PreToolUse", "tool_name": "Edit", "tool_input": {"file_path": file}}).to_string()
    };
    // A debug build on a busy machine may be too slow for the deadline, and is silent then.
    let patient = |args: &[&str], said: &str| {
        (0..20)
            .map(|_| hook(&home, args, said))
            .find(|(_, t)| !t.is_empty())
    };
    let (code, text) = patient(&["before-edit", "--again"], &said("s1", &file)).expect("an answer");
    assert_eq!(code, Some(0));
    let v: Value = serde_json::from_str(&text).unwrap();
    let context = v["hookSpecificOutput"]["additionalContext"]
        .as_str()
        .unwrap();
    assert!(
        context.contains("Refunds are idempotent") && context.contains("the provider retries"),
        "{context}"
    );
    assert_eq!(v["hookSpecificOutput"]["hookEventName"], "PreToolUse");
    assert!(v["hookSpecificOutput"].get("permissionDecision").is_none());
    // Once a session and file.
    assert!(patient(&["before-edit"], &said("s2", &file)).is_some());
    for _ in 0..3 {
        assert_eq!(
            hook(&home, &["before-edit"], &said("s2", &file)),
            (Some(0), String::new())
        );
    }
    // Another file: nothing. A changed one at the start of a session: the decision, and that it is stale.
    assert_eq!(
        hook(
            &home,
            &["before-edit"],
            &said("s3", &root.join("src/cart/add.ts"))
        )
        .1,
        ""
    );
    std::fs::write(
        &file,
        "export async function processRefund() { return 1 }\n",
    )
    .unwrap();
    git(&root, &["commit", "-qam", "refunds return one"]);
    let start =
        json!({"cwd": root, "hook_event_name": "SessionStart", "source": "startup"}).to_string();
    let (_, text) = patient(&["session-start"], &start).expect("an answer");
    assert!(
        text.contains("Refunds are idempotent") && text.contains("refunds return one"),
        "{text}"
    );
    let (_, text) = patient(&["session-start", "--client", "cursor"], &start).expect("an answer");
    assert!(serde_json::from_str::<Value>(&text).unwrap()["additional_context"].is_string());
    // Nonsense, no repository, a broken configuration: silence and success.
    std::fs::create_dir_all(home.path().join("bad")).unwrap();
    std::fs::write(home.path().join("bad/config.toml"), "= =").unwrap();
    for (args, said) in [
        (&["before-edit"][..], "{ nonsense"),
        (&["before-edit"], ""),
        (&["before-edit"], "[]"),
        (&["session-start"], "{\"cwd\": \"/nowhere\"}"),
        (&["session-start", "--config-dir", "bad"], "{}"),
    ] {
        let began = Instant::now();
        assert_eq!(hook(&home, args, said), (Some(0), String::new()), "{said}");
        assert!(began.elapsed().as_secs() < 5, "{said}");
    }
    // Wrong use is told, but not with the code that clients take for a veto.
    assert_eq!(hook(&home, &["nope"], "").0, Some(1));
}

#[test]
fn a_skill_is_made_of_sessions() {
    let home = Home::new();
    let Some(transcripts) = shared("data/transcripts/claude") else {
        return;
    };
    home.ok(&["import", transcripts.to_str().unwrap()]);
    let sessions = home.json(&["sessions", "list", "--json"]);
    let items = sessions["items"].as_array().unwrap();
    let id = items
        .iter()
        .max_by_key(|s| s["rollup"]["turn_count"].as_i64())
        .unwrap()["id"]
        .as_str()
        .unwrap();
    let printed = home.ok(&["skill", "generate", id, "--name", "thai-curry", "--preview"]);
    assert!(
        printed.starts_with("---\nname: thai-curry\ndescription: \""),
        "{printed}"
    );
    assert!(
        printed.contains("## Goal") && printed.contains(id),
        "{printed}"
    );
    assert_eq!(home.json(&["skill", "list", "--json"])["skills"], json!([]));
}

fn captured(home: &Home) -> (Server, String) {
    let mut s = Server::start(home, &[]);
    let mut one = turn("skill", "req1", "make the tests green", "");
    one["response"]["message"]["content"] = json!([{"type": "tool_use", "tool_use_id": "t1", "tool_name": "Bash", "tool_input": {"command": "make check"}}]);
    post(&format!("{}/v1/ingest", s.ingest), &one);
    let mut two = turn("skill", "req2", "", "they are green now");
    two["request"]["messages"] = json!([
        {"role": "user", "content": "make the tests green"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make check"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]},
    ]);
    post(&format!("{}/v1/ingest", s.ingest), &two);
    let id = s.wait("the session", |s| {
        let v = get(&format!("{}/v1/sessions", s.api)).json();
        let id = v["items"][0]["id"].as_str()?.to_owned();
        let traces = get(&format!("{}/v1/sessions/{id}/traces", s.api)).json();
        traces
            .to_string()
            .contains("they are green now")
            .then_some(id)
    });
    (s, id)
}

#[test]
fn skills_are_kept_listed_and_copied_to_agents() {
    let home = Home::new();
    let (s, id) = captured(&home);
    let short = &id[..13];
    home.ok(&["skill", "generate", short, "--name", "green-tests"]);
    let text = home.ok(&["skill", "show", "green-tests"]);
    for said in [
        "# green tests",
        "make the tests green",
        "```sh\nmake check\n```",
        "they are green now",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let (code, e) = home.fails(&["skill", "generate", short, "--name", "green-tests"]);
    assert!(code == 1 && e.contains("--force"), "{e}");
    for (args, code) in [
        (&["skill", "generate", short, "--name", "../x"][..], 2),
        (&["skill", "generate", "--name", "x"], 2),
        (&["skill", "generate", "ffffffff", "--name", "x"], 1),
        (
            &[
                "skill",
                "generate",
                "--name",
                "x",
                "--search",
                "nothing of this kind",
                "--since",
                "2035-01-01",
            ],
            1,
        ),
        (&["skill", "show", "nope"], 1),
        (&["skill", "sync"], 2),
    ] {
        assert_eq!(home.fails(args).0, code, "{args:?}");
    }
    let list = home.json(&["skill", "list", "--json"]);
    assert_eq!(list["skills"][0]["name"], "green-tests");
    assert!(
        list["skills"][0]["description"]
            .as_str()
            .unwrap()
            .contains("make the tests green")
    );
    let theirs = home.path().join(".claude/skills/green-tests/SKILL.md");
    home.ok(&["skill", "sync", "--claude", "--dry-run"]);
    assert!(!theirs.exists());
    home.ok(&["skill", "sync", "green-tests", "--claude"]);
    assert_eq!(
        std::fs::read_to_string(&theirs).unwrap().trim(),
        text.trim()
    );
    // What somebody wrote is not replaced unasked.
    std::fs::write(&theirs, "---\nname: green-tests\n---\nmine\n").unwrap();
    let (code, e) = home.fails(&["skill", "sync", "--claude"]);
    assert!(code == 1 && e.contains("--force"), "{e}");
    home.ok(&["skill", "sync", "--claude", "--force"]);
    // tapesctl, its quiet search in front, asks the server that it is told.
    let elsewhere = Home::new();
    let tapesctl = |args: &[&str]| {
        let link = elsewhere.path().join("tapesctl");
        if !link.exists() {
            std::os::unix::fs::symlink(WEFT, &link).unwrap();
        }
        let o = std::process::Command::new(&link)
            .args(args)
            .env_clear()
            .env("HOME", elsewhere.path())
            .env("WEFT_DATA_DIR", elsewhere.data())
            .env("TAPES_API_URL", &s.api)
            .current_dir(elsewhere.path())
            .output()
            .unwrap();
        assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
        String::from_utf8(o.stdout).unwrap()
    };
    let found = tapesctl(&["search", "make the tests green", "--quiet", "--top", "1"]);
    assert_eq!(found.trim(), id);
    tapesctl(&[
        "skill",
        "generate",
        found.trim(),
        "--name",
        "green-patterns",
    ]);
    assert!(tapesctl(&["skill", "show", "green-patterns"]).contains("make check"));
}

#[test]
fn a_model_writes_a_skill_where_one_is_configured() {
    let home = Home::new();
    let (s, id) = captured(&home);
    drop(s);
    let model = Upstream::start(|_, wire| {
        let text = "DESCRIPTION: When tests are red.\n\n## Goal\nGreen tests.";
        let body = json!({"content": [{"type": "text", "text": text}]});
        wire.answer(200, "Content-Type: application/json\r\n", body.to_string())
    });
    let run = |target: &str| {
        let o = home
            .command(&[
                "skill",
                "generate",
                &id,
                "--name",
                "written",
                "--force",
                "--provider",
                "anthropic",
            ])
            .env("WEFT_SKILL_TARGET", target)
            .env("ANTHROPIC_API_KEY", "sk-ant-test")
            .output()
            .unwrap();
        assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
        String::from_utf8_lossy(&o.stderr).into_owned()
    };
    run(&model.url());
    let text = home.ok(&["skill", "show", "written"]);
    assert!(
        text.contains("description: \"When tests are red.\"") && text.contains("Green tests."),
        "{text}"
    );
    // A model that does not answer costs its words, not the skill.
    let told = run("http://127.0.0.1:9");
    assert!(
        told.contains("taken from the sessions as they are"),
        "{told}"
    );
    assert!(
        home.ok(&["skill", "show", "written"])
            .contains("make check")
    );
    // Nobody's key goes to nobody.
    let o = home.run(&[
        "skill",
        "generate",
        &id,
        "--name",
        "x",
        "--provider",
        "anthropic",
    ]);
    assert_eq!(o.status.code(), Some(1));
}
