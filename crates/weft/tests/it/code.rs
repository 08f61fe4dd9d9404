//! Code search from the command line, over HTTP and over MCP.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use weft_core::code::tokens;

use crate::support::{Home, Reply, Server, get, post, send, talk};

pub(crate) fn git(dir: &Path, args: &[&str]) {
    let out = Command::new("git")
        .args([
            "-c",
            "user.name=alice",
            "-c",
            "user.email=a@b",
            "-c",
            "commit.gpgsign=false",
        ])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

pub(crate) fn write(root: &Path, path: &str, text: &str) {
    let full = root.join(path);
    std::fs::create_dir_all(full.parent().unwrap()).unwrap();
    std::fs::write(full, text).unwrap();
}

const REFUNDS: &str = "/** Issue a refund through the payment provider. */
export async function processRefund(order: Order, cents: number) {
  await payments.refund(order.id, cents);
}
function auditRefund(order: Order) {}
";

pub(crate) fn shop(home: &Home) -> PathBuf {
    let root = home.path().join("shop");
    std::fs::create_dir(&root).unwrap();
    git(&root, &["init", "-q", "-b", "main"]);
    write(&root, "src/billing/refunds.ts", REFUNDS);
    write(
        &root,
        "src/cart/add.ts",
        "export function addToCart(item: Item) {}\nexport function add_to_cart_later() {}\n",
    );
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-q", "-m", "billing and cart"]);
    root
}

/// Runs weft in the repository.
pub(crate) fn run(home: &Home, root: &Path, args: &[&str]) -> (i32, String, String) {
    let o = home.command(args).current_dir(root).output().unwrap();
    (
        o.status.code().unwrap_or(-1),
        String::from_utf8(o.stdout).unwrap(),
        String::from_utf8_lossy(&o.stderr).into_owned(),
    )
}

pub(crate) fn ok(home: &Home, root: &Path, args: &[&str]) -> String {
    let (code, out, err) = run(home, root, args);
    assert_eq!(code, 0, "{args:?}: {err}");
    out
}

#[test]
fn the_document_of_weave_on_the_command_line() {
    let home = Home::new();
    let root = shop(&home);
    ok(
        &home,
        &root,
        &["alias", "install", home.path().to_str().unwrap()],
    );
    let weave = |args: &[&str]| {
        let mut c = home.command(args);
        let mut real = Command::new(home.path().join("weave"));
        real.args(args)
            .env_clear()
            .env("HOME", home.path())
            .env("WEFT_DATA_DIR", home.data())
            .current_dir(root.join("src/cart"));
        c.stdin(Stdio::null());
        let o = real.output().unwrap();
        assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
        String::from_utf8(o.stdout).unwrap()
    };
    let text = weave(&["search", "where do we handle refunds?"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("# ")
            && lines[0].ends_with(
                "hit(s) for \"where do we handle refunds?\" in main (semantic + keyword)"
            ),
        "{text}"
    );
    assert_eq!(
        lines[1],
        "src/billing/refunds.ts:2  export async function processRefund(order: Order, cents: number)  — Issue a refund through the payment provider.  [owner alice]"
    );
    let v: Value = serde_json::from_str(&weave(&["--json", "search", "refunds"])).unwrap();
    assert_eq!(
        (
            &v["type"],
            &v["workstream"],
            &v["semantic"],
            &v["stale"],
            &v["indexing"]
        ),
        (
            &json!("code_search"),
            &json!("main"),
            &json!(true),
            &json!(false),
            &json!(false)
        )
    );
    let h = &v["hits"][0];
    for field in [
        "target",
        "file",
        "symbol",
        "kind",
        "line",
        "end_line",
        "signature",
        "exported",
        "score",
        "found_by",
        "similarity",
        "owner",
        "stitch",
    ] {
        assert!(!h[field].is_null(), "{field}: {h}");
    }
    assert!(
        v["hits"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|h| h.as_object().unwrap().values())
            .all(|x| !x.is_null())
    );
    assert!(
        weave(&["search", "rate limiting", "--paths", "src/api/,lib/http"]).contains("# 0 hit(s)")
    );
    let found = weave(&["find", "add", "to", "cart"]);
    let lines: Vec<&str> = found.lines().collect();
    assert!(
        lines[1].starts_with("src/cart/add.ts:1  export function addToCart"),
        "{found}"
    );
    assert!(lines[2].contains("add_to_cart_later"), "{found}");
    assert!(weave(&["find", "refund", "--limit", "50"]).contains("processRefund"));
}

#[test]
fn bad_use_is_told_with_a_hint() {
    let home = Home::new();
    let root = shop(&home);
    for (args, code, says) in [
        (&["code", "search", " "][..], 2, "query is empty"),
        (&["code", "search", "x", "--limit", "0"], 2, "1..=50"),
        (&["code", "search", "x", "--limit", "51"], 2, "1..=50"),
        (
            &["code", "search", "x", "--paths", "../y"],
            2,
            "leaves the repository",
        ),
        (
            &["code", "search", "x", "--paths", "/etc"],
            2,
            "not relative",
        ),
        (
            &["code", "search", "x", "--kinds", "wizard"],
            2,
            "unknown kind",
        ),
        (
            &["code", "search", "x", "--workstream", "nope"],
            1,
            "no such workstream: nope",
        ),
        (
            &["code", "search", "x", "-C", "/"],
            1,
            "not inside a git repository",
        ),
        (&["purge", "src/"], 1, "--yes"),
        (&["purge", "--yes", "."], 2, "whole repository"),
        (
            &["draft", "claim", "src/", "--agent", "a\nb"],
            1,
            "on one line",
        ),
        (
            &["token", "create", "--repo", "nope"],
            1,
            "repository not found",
        ),
        (&["token", "revoke", "nope"], 1, "no token"),
    ] {
        let (got, _, err) = run(&home, &root, args);
        assert_eq!(got, code, "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
    }
    let (_, _, err) = run(&home, home.path(), &["code", "find", "x"]);
    assert!(
        err.contains("not inside a git repository") && err.contains("hint:"),
        "{err}"
    );
}

#[test]
fn a_budget_is_kept_whatever_is_asked() {
    // C25: the answer as printed never costs more tokens than the budget, but for its first hit.
    let home = Home::new();
    let root = shop(&home);
    for i in 0..40 {
        write(
            &root,
            &format!("src/pay/provider_{i}/refundHandlerImplementation.ts"),
            &format!(
                "/** Handles refunds for provider {i}: größe, 数据, émigré, and sends a very long sentence about them to everybody. */\nexport function refundHandlerForProvider{i}(order: Order, cents: number, reason: string): Promise<RefundResult> {{\n  return refund(order);\n}}\n"
            ),
        );
    }
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-q", "-m", "more"]);
    let mut seen = std::collections::BTreeSet::new();
    for (i, budget) in [
        1, 50, 51, 75, 100, 137, 200, 333, 500, 800, 1_200, 2_000, 5_000,
    ]
    .into_iter()
    .enumerate()
    {
        for (limit, form) in [
            (1 + i * 3 % 50, ""),
            (50, ""),
            (50, "--snippets"),
            (10, "--json"),
        ] {
            let (b, l) = (budget.to_string(), limit.to_string());
            let mut args = vec![
                "code",
                "search",
                "where do we handle refunds?",
                "--budget",
                &b,
                "--limit",
                &l,
            ];
            args.extend(Some(form).filter(|f| !f.is_empty()));
            let text = ok(&home, &root, &args);
            let cost = tokens::count(text.trim_end());
            let hits = if form == "--json" {
                serde_json::from_str::<Value>(&text).unwrap()["hits"]
                    .as_array()
                    .unwrap()
                    .len()
            } else {
                text.lines().filter(|l| l.starts_with("src/")).count()
            };
            assert!(hits >= 1, "the first hit is always there: {text}");
            assert!(
                cost <= budget || hits == 1,
                "{cost} tokens for a budget of {budget}, {hits} hits:\n{text}"
            );
            seen.insert(hits);
        }
    }
    assert!(seen.len() > 4, "budgets make a difference: {seen:?}");
}

#[test]
fn killed_while_indexing_it_goes_on_and_answers() {
    let home = Home::new();
    let root = shop(&home);
    for i in 0..3_000 {
        write(
            &root,
            &format!("src/m{}/f{i}.py", i % 50),
            &format!(
                "def handler_{i}(x):\n    \"\"\"Handles case {i}.\"\"\"\n    return x + {i}\n"
            ),
        );
    }
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-q", "-m", "many"]);
    for round in 0..4_u64 {
        let mut child = home
            .command(&["code", "index"])
            .current_dir(&root)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(60 + 150 * round));
        let _ = child.kill();
        child.wait().unwrap();
        // Whatever was left answers.
        let (code, _, err) = run(
            &home,
            &root,
            &["code", "search", "handler_7", "--wait", "0.01"],
        );
        assert_eq!(code, 0, "{err}");
    }
    let v: Value = serde_json::from_str(&ok(&home, &root, &["code", "index", "--json"])).unwrap();
    assert_eq!((&v["files"], &v["complete"]), (&json!(3_002), &json!(true)));
    let v: Value = serde_json::from_str(&ok(&home, &root, &["code", "index", "--json"])).unwrap();
    assert_eq!(v["read"], 0);
    for i in [0, 1_500, 2_999] {
        let text = ok(&home, &root, &["code", "find", &format!("handler_{i}")]);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.contains(&format!("f{i}.py:1  def handler_{i}(x)")),
            "{text}"
        );
    }
    let v: Value = serde_json::from_str(&ok(&home, &root, &["code", "status", "--json"])).unwrap();
    let w = &v["workstreams"][0];
    assert_eq!(
        (&w["state"], &w["symbols"]),
        (&json!("indexed"), &w["vectors"])
    );
}

pub(crate) fn with_token(method: &str, url: &str, token: &str, body: Option<&Value>) -> Reply {
    let bearer = format!("Bearer {token}");
    let text = body.map(Value::to_string);
    send(
        method,
        url,
        &[
            ("Authorization", &bearer),
            ("Content-Type", "application/json"),
        ],
        text.as_deref().map(str::as_bytes),
    )
}

#[test]
fn routes_scopes_and_purging_over_http() {
    let home = Home::new();
    let root = shop(&home);
    ok(&home, &root, &["code", "index"]);
    let repos: Value =
        serde_json::from_str(&ok(&home, &root, &["code", "repos", "--json"])).unwrap();
    let id = repos[0]["repo_id"].as_str().unwrap().to_owned();
    let s = Server::start(&home, &["api"]);
    let base = format!("{}/api/weave/{id}", s.api);
    let r = get(&format!("{base}/search?q=refunds&workstream=main&limit=5"));
    assert_eq!(r.status, 200, "{}", r.body);
    let v = r.json();
    assert_eq!(
        (&v["type"], &v["workstream"]),
        (&json!("code_search"), &json!("main"))
    );
    assert!(v.get("stale").is_none() && v.get("indexing").is_none());
    let body = json!({"query": "where do we handle refunds?", "workstream": "main", "limit": 5, "paths": ["src/billing/"], "kinds": ["function"]});
    let v = post(&format!("{base}/search"), &body).json();
    let hits = v["hits"].as_array().unwrap();
    let h = hits
        .iter()
        .find(|h| h["symbol"] == "processRefund")
        .unwrap();
    assert_eq!(h["target"], "src/billing/refunds.ts::processRefund");
    assert_eq!(h["snippet"], "await payments.refund(order.id, cents);");
    assert_eq!(
        h["score"], h["similarity"],
        "the score is the cosine similarity"
    );
    assert!(hits.iter().all(|h| h["kind"] == "function"));
    for (what, status) in [
        ("search", 400),
        ("search?q=x&limit=0", 400),
        ("search?q=x&limit=51", 400),
        ("search?q=x&limit=many", 400),
        ("search?q=x&paths=../y", 400),
        ("search?q=x&kinds=wizard", 400),
        ("search?q=x&workstream=nope", 404),
        ("search/index", 200),
    ] {
        let r = get(&format!("{base}/{what}"));
        assert_eq!(r.status, status, "{what}: {}", r.body);
        assert!(status == 200 || r.json()["error"].is_string());
    }
    let long = "x".repeat(2_001);
    assert_eq!(get(&format!("{base}/search?q={long}")).status, 400);
    assert_eq!(get(&format!("{base}/search?q={}", &long[1..])).status, 200);
    assert_eq!(
        post(
            &format!("{base}/search"),
            &json!({"query": "x", "path": "src/"})
        )
        .status,
        400
    );
    assert_eq!(
        get(&format!(
            "{}/api/weave/00000000-0000-5000-8000-000000000000/search?q=x",
            s.api
        ))
        .status,
        404
    );
    assert_eq!(
        post(&format!("{}/api/index", s.api), &json!({})).status,
        410
    );
    let w = get(&format!("{base}/search/index")).json()["workstreams"][0].clone();
    assert_eq!(
        (&w["behind"], &w["state"], &w["indexed_head"]),
        (&json!(false), &json!("indexed"), &w["head"])
    );
    // Scopes.
    let token = |args: &[&str]| {
        let mut all = vec!["token", "create"];
        all.extend(args);
        ok(&home, &root, &all).trim().to_owned()
    };
    let (read, admin) = (
        token(&["--scope", "read", "--repo", &id]),
        token(&["--scope", "admin"]),
    );
    assert_eq!(
        with_token("GET", &format!("{base}/search?q=x"), &read, None).status,
        200
    );
    assert_eq!(
        with_token("GET", &format!("{base}/search?q=x"), "weft_wrong", None).status,
        401
    );
    assert_eq!(
        with_token(
            "POST",
            &format!("{base}/search/reindex"),
            &read,
            Some(&json!({}))
        )
        .status,
        403
    );
    assert_eq!(
        with_token("GET", &format!("{}/v1/sessions", s.api), &read, None).status,
        403
    );
    assert_eq!(
        with_token(
            "POST",
            &format!("{base}/search/reindex"),
            &admin,
            Some(&json!({"wait": true}))
        )
        .status,
        200
    );
    assert_eq!(
        with_token(
            "POST",
            &format!("{base}/search/reindex"),
            &admin,
            Some(&json!({"full": true}))
        )
        .status,
        202
    );
    // A repository that a token cannot see does not exist for it.
    let other = home.path().join("other");
    std::fs::create_dir(&other).unwrap();
    git(&other, &["init", "-q"]);
    write(&other, "a.py", "def a(): pass\n");
    git(&other, &["add", "-A"]);
    git(&other, &["commit", "-q", "-m", "a"]);
    ok(&home, &other, &["code", "index"]);
    let repos: Value =
        serde_json::from_str(&ok(&home, &root, &["code", "repos", "--json"])).unwrap();
    let hidden = repos
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["repo_id"].as_str().unwrap())
        .find(|r| *r != id)
        .unwrap();
    let r = with_token(
        "GET",
        &format!("{}/api/weave/{hidden}/search?q=x", s.api),
        &read,
        None,
    );
    assert_eq!(
        (r.status, r.json()["error"].clone()),
        (404, json!("repository not found"))
    );
    assert_eq!(
        with_token(
            "POST",
            &format!("{}/api/weave/{hidden}/purge", s.api),
            &read,
            Some(&json!({"paths": ["a.py"]}))
        )
        .status,
        404
    );
    let r = with_token(
        "POST",
        &format!("{base}/purge"),
        &admin,
        Some(&json!({"paths": ["src/billing/"]})),
    );
    assert_eq!(r.status, 200, "{}", r.body);
    assert!(r.json()["removed"]["symbols"].as_u64().unwrap() >= 3);
    assert!(
        !get(&format!("{base}/search?q=processRefund"))
            .body
            .contains("processRefund")
    );
    assert_eq!(ok(&home, &root, &["token", "list"]).lines().count(), 2);
    let first = ok(&home, &root, &["token", "list"])
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned();
    ok(&home, &root, &["token", "revoke", &first]);
}

#[test]
fn a_server_keeps_the_index_fresh_by_itself() {
    let home = Home::new();
    let root = shop(&home);
    ok(&home, &root, &["code", "index"]);
    let repos: Value =
        serde_json::from_str(&ok(&home, &root, &["code", "repos", "--json"])).unwrap();
    let url = format!(
        "/api/weave/{}/search/index",
        repos[0]["repo_id"].as_str().unwrap()
    );
    let mut s = Server::start(&home, &["api"]);
    for i in 0..5 {
        write(
            &root,
            &format!("src/new{i}/file.ts"),
            &format!("export function newThing{i}() {{}}\n"),
        );
        git(&root, &["add", "-A"]);
        git(&root, &["commit", "-q", "-m", "new"]);
        let index = format!("{}{url}", s.api);
        s.wait("the watcher", |_| {
            let w = get(&index).json()["workstreams"][0].clone();
            (w["behind"] == json!(false) && w["files"] == json!(3 + i)).then_some(())
        });
    }
}

#[test]
fn the_tools_of_code_over_mcp() {
    let home = Home::new();
    let root = shop(&home);
    let talk = |lines: &[Value]| talk(&home, &root, "code", lines);
    let call = |id: i64, name: &str, arguments: Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
    let answers = talk(&[
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}),
        call(
            3,
            "search_code",
            json!({"query": "where do we handle refunds?", "limit": 5, "budget_tokens": 300}),
        ),
        call(
            4,
            "find_symbols",
            json!({"query": "add to cart", "json": true}),
        ),
        call(5, "search_code", json!({"query": "refund", "path": "src/"})),
    ]);
    let names: Vec<&Value> = answers[1]["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["name"])
        .collect();
    assert_eq!(names, [&json!("search_code"), &json!("find_symbols")]);
    let text = answers[2]["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("src/billing/refunds.ts:2  export async function processRefund"),
        "{text}"
    );
    let found: Value =
        serde_json::from_str(answers[3]["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(found["hits"][0]["target"], "src/cart/add.ts::addToCart");
    // C27: a wrong name is an error that names the right ones, not a global answer.
    let wrong = &answers[4]["result"];
    assert_eq!(wrong["isError"], true);
    let text = wrong["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("the arguments are query, limit, budget_tokens, paths"),
        "{text}"
    );
}
