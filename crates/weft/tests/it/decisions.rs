//! Decisions and the search over everything from the command line, over HTTP and over MCP.

use serde_json::{Value, json};

use crate::code::{git, ok, run, shop, with_token, write};
use crate::support::{Home, Server, get, post, send, talk};

/// The decisions of the document of enagrams.
fn seed(home: &Home, root: &std::path::Path) {
    for args in [
        &[
            "decide",
            "Use JWT for authentication",
            "--rationale",
            "Stateless tokens work with our edge deployment. No session store needed.",
            "--files",
            "src/auth/login.ts,src/auth/middleware.ts",
            "--by",
            "Developer A",
            "--accept",
        ][..],
        &[
            "decide",
            "Rejected: cookie-based sessions",
            "--rationale",
            "Adds Redis infrastructure complexity.",
            "--type",
            "rejection",
            "--accept",
        ],
        &[
            "decide",
            "Prisma is the database ORM",
            "--rationale",
            "One query layer for every service.",
            "--alternative",
            "Knex: no types",
            "--accept",
        ],
        &[
            "decide",
            "Error handling of API responses",
            "--rationale",
            "Problem details, RFC 9457.",
            "--accept",
        ],
    ] {
        ok(home, root, args);
    }
}

#[test]
fn the_document_of_enagrams_over_mcp() {
    let home = Home::new();
    let root = shop(&home);
    seed(&home, &root);
    let call = |id: i64, name: &str, arguments: Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
    let answers = talk(
        &home,
        &root,
        "decisions",
        &[
            hello.clone(),
            ready.clone(),
            list.clone(),
            call(
                3,
                "search",
                json!({"query": "authentication and session management", "limit": 5}),
            ),
            call(
                4,
                "search",
                json!({"query": "database ORM query layer", "limit": 3}),
            ),
            call(
                5,
                "search",
                json!({"query": "error handling API responses"}),
            ),
            call(
                6,
                "decide",
                json!({"title": "Validate input with Zod", "rationale": "Types from one place.", "decision_type": "convention", "files": ["src/api/a.ts"]}),
            ),
            call(
                7,
                "decide",
                json!({"title": "Validate the input with Zod", "rationale": "again", "files": "src/api/a.ts, src/api/b.ts"}),
            ),
            call(
                8,
                "decisions_for_file",
                json!({"path": "src/auth/login.ts"}),
            ),
            call(9, "search", json!({"query": "x", "top": 3})),
            call(10, "decide", json!({"title": "x"})),
            call(11, "decisions_stale", json!({})),
            call(
                12,
                "decision_reaffirm",
                json!({"id": "1", "made_by": "bob"}),
            ),
            call(13, "decision_reaffirm", json!({"id": "99"})),
        ],
    );
    let names: Vec<&str> = answers[1]["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "search",
            "decide",
            "decisions_stale",
            "decision_reaffirm",
            "decisions_for_file"
        ]
    );
    let body = |i: usize| -> Value {
        let a = &answers[i]["result"];
        let v: Value = serde_json::from_str(
            a["content"][0]["text"]
                .as_str()
                .unwrap_or_else(|| panic!("{}", answers[i])),
        )
        .unwrap();
        assert_eq!(v, a["structuredContent"]);
        v
    };
    let first = &body(2)["results"][0];
    assert!(first["id"].as_str().unwrap().starts_with("dec_"));
    assert_eq!(first["title"], "Use JWT for authentication");
    assert_eq!(
        first["rationale"],
        "Stateless tokens work with our edge deployment. No session store needed."
    );
    assert_eq!(
        (&first["type"], &first["made_by"]),
        (&json!("architecture"), &json!("Developer A"))
    );
    assert_eq!(
        first["files"],
        json!(["src/auth/login.ts", "src/auth/middleware.ts"])
    );
    assert!(first["created_at"].as_str().unwrap().ends_with('Z'));
    let similarity = first["similarity"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&similarity) && (similarity * 1e4).fract().abs() < 1e-6);
    let all: Vec<Value> = body(2)["results"].as_array().unwrap().clone();
    assert!(
        all.iter()
            .any(|r| r["type"] == "rejection" && r.get("files").is_none()),
        "{all:#?}"
    );
    assert_eq!(body(3)["results"][0]["title"], "Prisma is the database ORM");
    assert_eq!(
        body(4)["results"][0]["title"],
        "Error handling of API responses"
    );
    let recorded = body(5);
    assert_eq!(
        (&recorded["status"], &recorded["workspace"]),
        (&json!("recorded"), &json!("shop"))
    );
    assert_eq!(recorded["decision_status"], "proposed");
    let near = body(6);
    assert_eq!(
        (&near["status"], &near["id"]),
        (&json!("exists"), &recorded["id"])
    );
    assert_eq!(body(7)["results"][0]["title"], "Use JWT for authentication");
    let error = |i: usize| {
        assert_eq!(answers[i]["result"]["isError"], true);
        let text = answers[i]["result"]["content"][0]["text"].as_str();
        text.unwrap_or_default().to_owned()
    };
    assert!(error(8).contains("limit"), "{}", answers[8]);
    assert!(error(9).contains("rationale"), "{}", answers[9]);
    assert_eq!(body(10)["results"], json!([]));
    assert_eq!(body(11)["status"], "reaffirmed");
    assert_eq!(answers[12]["result"]["isError"], true);
    // With every corpus the tool has another name, and `search` goes over all of them.
    let answers = talk(
        &home,
        &root,
        "all",
        &[
            hello,
            ready,
            list,
            call(
                3,
                "search_decisions",
                json!({"query": "database ORM query layer"}),
            ),
            call(
                4,
                "search",
                json!({"query": "refunds through the payment provider", "budget": 300}),
            ),
            call(
                5,
                "why",
                json!({"target": "src/billing/refunds.ts::processRefund"}),
            ),
            call(
                6,
                "show",
                json!({"reference": "src/billing/refunds.ts::processRefund"}),
            ),
            call(7, "search", json!({"query": "x", "paths": "src"})),
            call(8, "why", json!({"target": "src/nothing.ts"})),
        ],
    );
    let names: Vec<&str> = answers[1]["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["name"].as_str().unwrap())
        .collect();
    for n in [
        "search",
        "why",
        "show",
        "search_spans",
        "search_code",
        "find_symbols",
        "search_decisions",
        "decide",
    ] {
        assert!(names.contains(&n), "{names:?}");
        // M29: clients join server and tool names and cut at 64.
        assert!(n.len() <= 24);
    }
    let text = |i: usize| {
        answers[i]["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{}", answers[i]))
            .to_owned()
    };
    assert!(text(2).contains("Prisma"));
    assert!(
        text(3)
            .lines()
            .next()
            .unwrap()
            .contains("src/billing/refunds.ts"),
        "{}",
        text(3)
    );
    assert!(weft_core::code::tokens::count(&text(3)) <= 300);
    assert!(
        text(4).contains("commits")
            && text(4).contains("billing and cart")
            && text(4).contains("no captured agent call"),
        "{}",
        text(4)
    );
    assert!(text(5).contains("await payments.refund"));
    assert_eq!(answers[6]["result"]["isError"], true);
    assert!(text(6).contains("file"), "{}", text(6));
    assert_eq!(answers[7]["result"]["isError"], true);
}

#[test]
fn decisions_over_http() {
    let home = Home::new();
    let root = shop(&home);
    write(
        &root,
        "src/auth/login.ts",
        "export function login() { return 1; }\n",
    );
    seed(&home, &root);
    let mut server = Server::start_with(&home, &["api"], |c| {
        c.current_dir(&root);
    });
    let api = server.api.clone();
    let at = |path: &str| format!("{api}{path}");
    let found = get(&at(
        "/v1/decisions/search?query=authentication%20and%20session%20management&limit=5",
    ))
    .json();
    assert_eq!(found["results"][0]["title"], "Use JWT for authentication");
    assert_eq!(
        found["verdict"],
        "decided: Use JWT for authentication (0001-use-jwt-for-authentication.md)"
    );
    let new = json!({"title": "Log as JSON", "rationale": "One shape.", "alternatives": ["Text: hard to search"], "accept": true, "made_by": "bob"});
    let r = post(&at("/v1/decisions"), &new);
    assert_eq!(r.status, 201, "{}", r.body);
    let id = r.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(post(&at("/v1/decisions"), &new).status, 200, "the near one");
    let one = get(&at(&format!("/v1/workspaces/shop/decisions/{id}"))).json();
    assert_eq!(
        (&one["status"], &one["events"][0]["kind"]),
        (&json!("accepted"), &json!("recorded"))
    );
    let page = get(&at("/v1/decisions?limit=2")).json();
    let next = page["next_cursor"].as_str().unwrap().to_owned();
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    let rest = get(&at(&format!("/v1/decisions?limit=50&cursor={next}"))).json();
    assert_eq!(rest["items"].as_array().unwrap().len(), 3);
    assert_eq!(
        get(&at("/v1/decisions?type=rejection")).json()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        get(&at("/v1/decisions?file=src/auth/login.ts")).json()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        get(&at("/v1/decisions?stale=true")).json()["items"],
        json!([])
    );
    write(
        &root,
        "src/auth/login.ts",
        "export function login() { return 2; }\n",
    );
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-q", "-m", "login differs"]);
    let stale = get(&at("/v1/decisions?stale=true")).json();
    assert!(
        stale["items"][0]["stale"]["reason"]
            .as_str()
            .unwrap()
            .contains("login differs"),
        "{stale}"
    );
    let jwt = stale["items"][0]["id"].as_str().unwrap().to_owned();
    let r = post(
        &at(&format!("/v1/decisions/{jwt}/reaffirm")),
        &json!({"note": "fine"}),
    );
    assert!(r.json().get("stale").is_none(), "{}", r.body);
    let r = post(
        &at(&format!("/v1/decisions/{jwt}/supersede")),
        &json!({"by": id}),
    );
    assert_eq!(r.status, 201, "{}", r.body);
    assert_eq!(
        get(&at(&format!("/v1/decisions/{jwt}"))).json()["superseded_by"],
        json!([id])
    );
    for (path, status) in [
        ("/v1/decisions/search", 400),
        ("/v1/decisions/search?query=x&limit=0", 400),
        ("/v1/decisions/search?query=x&type=poem", 400),
        ("/v1/decisions?status=maybe", 400),
        ("/v1/decisions?cursor=dec_x", 400),
        ("/v1/decisions/dec_00000000", 404),
        ("/v1/workspaces/nothing/decisions", 404),
        ("/v1/search", 404),
        ("/v1/search/all", 400),
        ("/v1/search/all?query=x&in=poems", 400),
        ("/v1/search/all?query=x&since=whenever", 400),
        ("/v1/search/all?query=%22", 200),
    ] {
        let r = get(&at(path));
        assert_eq!(r.status, status, "{path}: {}", r.body);
    }
    for bad in [
        json!({}),
        json!([]),
        json!({"title": "x"}),
        json!({"title": 1, "rationale": "y"}),
        json!({"title": "x", "rationale": "y", "poem": 1}),
    ] {
        assert_eq!(post(&at("/v1/decisions"), &bad).status, 400, "{bad}");
    }
    let torn = send("POST", &at("/v1/decisions"), &[], Some(b"{"));
    assert_eq!(torn.status, 400);
    let all = get(&at("/v1/search/all?query=refunds%20through%20the%20payment%20provider&in=code,decisions&limit=3&budget=2000")).json();
    assert_eq!(all["in"], json!(["code", "decisions"]));
    assert!(
        all["hits"][0]["reference"]
            .as_str()
            .unwrap()
            .starts_with("src/billing/refunds.ts"),
        "{all:#}"
    );
    assert_eq!(
        get(&at("/v1/workspaces")).json()["items"][0]["slug"],
        "shop"
    );
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_session_with_decisions_on_the_command_line() {
    let home = Home::new();
    let root = shop(&home);
    write(
        &root,
        "docs/decisions/0001-use-postgres.md",
        "---\nstatus: accepted\ndate: 2020-01-31\n---\n# Use Postgres\n\nIt is there.\n",
    );
    let (code, out, err) = run(
        &home,
        &root,
        &[
            "decide",
            "Cache in memory",
            "--rationale",
            "Fast.",
            "--alternative",
            "Redis: one more thing",
            "--files",
            "src/cart/add.ts",
        ],
    );
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("proposed  docs/decisions/0002-cache-in-memory.md"),
        "{out}"
    );
    assert!(err.contains("weft decisions accept"), "{err}");
    ok(&home, &root, &["decisions", "accept", "2"]);
    let text = ok(
        &home,
        &root,
        &["decisions", "search", "why", "not", "redis"],
    );
    assert!(
        text.starts_with("rejected before: Redis, rejected in Cache in memory"),
        "{text}"
    );
    assert!(
        text.contains("[rejected here: Redis: one more thing]"),
        "{text}"
    );
    let (code, out, _) = run(
        &home,
        &root,
        &["decide", "Cache in the memory", "--rationale", "again"],
    );
    assert_eq!(
        (code, out.contains("says nearly the same")),
        (1, true),
        "{out}"
    );
    assert!(
        ok(
            &home,
            &root.join("src/cart"),
            &["decisions", "for-file", "add.ts"]
        )
        .contains("Cache in memory")
    );
    assert!(
        ok(&home, &root, &["decisions", "for-diff"])
            .contains("no decision governs any of these 2 files")
    );
    write(
        &root,
        "src/cart/add.ts",
        "export function addToCart(item: Item) { cache(item); }\n",
    );
    assert!(ok(&home, &root, &["decisions", "for-diff"]).contains("Cache in memory"));
    assert!(ok(&home, &root, &["decisions", "stale"]).contains("no decision is stale"));
    ok(
        &home,
        &root,
        &[
            "decisions",
            "supersede",
            "1",
            "--title",
            "Use SQLite",
            "--rationale",
            "Smaller.",
            "--accept",
        ],
    );
    assert!(
        std::fs::read_to_string(root.join("docs/decisions/0001-use-postgres.md"))
            .unwrap()
            .contains("status: superseded by 0003-use-sqlite")
    );
    assert!(ok(&home, &root, &["decisions", "check"]).contains("3 decisions, nothing wrong"));
    std::fs::remove_file(root.join("docs/decisions/0003-use-sqlite.md")).unwrap();
    let (code, out, _) = run(&home, &root, &["decisions", "check"]);
    assert_eq!(
        (
            code,
            out.contains("dangling: docs/decisions/0001-use-postgres.md is superseded by")
        ),
        (1, true),
        "{out}"
    );
    let list: Value =
        serde_json::from_str(&ok(&home, &root, &["decisions", "list", "--json"])).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let why = ok(&home, &root, &["why", "src/cart/add.ts:1"]);
    assert!(
        why.contains("Cache in memory") && why.contains("billing and cart"),
        "{why}"
    );
    let all = ok(&home, &root, &["search", "cache", "in", "memory"]);
    assert!(
        all.starts_with("decision  decision:docs/decisions/0002-cache-in-memory.md"),
        "{all}"
    );
    let explained = ok(
        &home,
        &root,
        &["search", "cart", "--in", "code", "--explain", "-n", "1"],
    );
    assert!(explained.contains("evidence"), "{explained}");
    for (args, code, says) in [
        (&["decide", "x"][..], 2, "needs a reason"),
        (
            &["decide", "x", "--rationale", "y", "--type", "poem"],
            2,
            "unknown type",
        ),
        (&["decisions", "show", "77"], 1, "decision not found"),
        (&["decisions", "reaffirm", "1"], 1, "nothing to reaffirm"),
        (&["decisions", "search", "  "], 2, "empty"),
        (&["decisions", "import", "/no/such"], 1, "No such file"),
        (&["decisions", "purge", "1"], 1, "--yes"),
        (
            &["decisions", "list", "--workspace", "none"],
            1,
            "workspace not found",
        ),
        (&["search", "x", "--in", "poems"], 2, "unknown corpus"),
        (&["search", "x", "--on", "someday"], 2, "want a day"),
        (&["why", "src/none.ts"], 1, "no such file"),
        (&["show", "nothing-at-all"], 1, "nothing is called"),
    ] {
        let (got, _, err) = run(&home, &root, args);
        assert_eq!(got, code, "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
    }
}

#[test]
fn what_a_token_may_do_with_decisions() {
    let home = Home::new();
    let root = shop(&home);
    seed(&home, &root);
    let token = |args: &[&str]| {
        ok(&home, &root, &[&["token", "create"], args].concat())
            .lines()
            .last()
            .unwrap()
            .trim()
            .to_owned()
    };
    let (read, writes) = (token(&["--scope", "read"]), token(&["--scope", "write"]));
    let repos: Value =
        serde_json::from_str(&ok(&home, &root, &["code", "repos", "--json"])).unwrap();
    let own = token(&[
        "--scope",
        "read",
        "--repo",
        repos[0]["repo_id"].as_str().unwrap(),
    ]);
    let other = shop_of_another_name(&home);
    ok(
        &home,
        &other,
        &["decide", "Somebody else's", "--rationale", "x"],
    );
    let s = Server::start_with(&home, &["api"], |c| {
        c.current_dir(&root);
    });
    let at = |path: &str| format!("{}{path}", s.api);
    let new = json!({"title": "Log as JSON", "rationale": "One shape."});
    assert_eq!(
        with_token("GET", &at("/v1/decisions"), &read, None).status,
        200
    );
    assert_eq!(
        with_token("POST", &at("/v1/decisions"), &read, Some(&new)).status,
        403
    );
    assert_eq!(
        with_token("POST", &at("/v1/decisions"), &writes, Some(&new)).status,
        201
    );
    // A token for one repository sees its decisions and no others.
    assert_eq!(
        with_token("GET", &at("/v1/decisions"), &own, None).status,
        200
    );
    assert_eq!(
        with_token("GET", &at("/v1/workspaces/other/decisions"), &own, None).status,
        404
    );
    assert_eq!(
        with_token("GET", &at("/v1/workspaces/other/decisions"), &read, None).status,
        200
    );
    let all = with_token(
        "GET",
        &at("/v1/search/all?query=somebody&all_repos=true"),
        &own,
        None,
    );
    assert_eq!(
        (all.status, all.json()["in"].clone()),
        (200, json!(["code", "decisions"]))
    );
    assert!(!all.body.contains("Somebody"), "{}", all.body);
    // MCP writes need the scope as well.
    let call = |token: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "decide", "arguments": {"title": "Trace every request", "rationale": "x"}}});
        let bearer = format!("Bearer {token}");
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("authorization", bearer.as_str()),
        ];
        send(
            "POST",
            &at("/mcp/decisions"),
            &headers,
            Some(body.to_string().as_bytes()),
        )
        .body
    };
    assert!(
        call(&read).contains("needs a token of scope write"),
        "{}",
        call(&read)
    );
    let done = call(&writes);
    assert!(done.contains("recorded"), "{done}");
}

fn shop_of_another_name(home: &Home) -> std::path::PathBuf {
    let root = home.path().join("other");
    std::fs::create_dir(&root).unwrap();
    git(&root, &["init", "-q", "-b", "main"]);
    write(&root, "a.ts", "export const somebody = 1;\n");
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-q", "-m", "other"]);
    root
}
