//! MCP over HTTP and over stdio.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::code::{git, shop};
use crate::support::{Home, Reply, Server, get, post, send, talk, turn};

const BOTH: (&str, &str) = ("Accept", "application/json, text/event-stream");

fn rpc(url: &str, body: &Value) -> Reply {
    send(
        "POST",
        url,
        &[BOTH, ("Content-Type", "application/json")],
        Some(body.to_string().as_bytes()),
    )
}

/// The JSON-RPC message of an event stream with one event.
fn message(r: &Reply) -> Value {
    assert_eq!(r.status, 200, "{}", r.body);
    assert_eq!(r.header("content-type"), "text/event-stream");
    let data = r
        .body
        .strip_prefix("event: message\ndata: ")
        .unwrap_or_else(|| panic!("{}", r.body));
    assert!(data.ends_with("\n\n"));
    serde_json::from_str(data.trim_end()).unwrap()
}

fn call(id: i64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn filled() -> (Home, Server) {
    let home = Home::new();
    let mut s = Server::start(&home, &[]);
    post(
        &format!("{}/v1/ingest", s.ingest),
        &turn(
            "e2e",
            "req1",
            "how was logging configured?",
            "one function sets it up",
        ),
    );
    let url = format!("{}/v1/search/spans?query=logging", s.api);
    s.wait("embedding", |_| {
        (get(&url).status == 200 && get(&url).json()["count"] == 1).then_some(())
    });
    (home, s)
}

#[test]
fn the_transport_behaves_as_the_reference() {
    let home = Home::new();
    let s = Server::start(&home, &["api"]);
    let url = format!("{}/v1/mcp", s.api);
    let plain = |r: Reply| (r.status, r.body.trim().to_owned());
    let json = send("GET", &url, &[("Accept", "application/json")], None);
    assert_eq!(
        plain(json),
        (
            400,
            "Accept must contain 'text/event-stream' for GET requests".into()
        )
    );
    assert_eq!(
        plain(send("GET", &url, &[("Accept", "text/event-stream")], None)),
        (405, "GET requires an active session".into())
    );
    assert_eq!(
        plain(send("DELETE", &url, &[], None)),
        (
            400,
            "Bad Request: DELETE requires an Mcp-Session-Id header".into()
        )
    );
    assert_eq!(
        send("DELETE", &url, &[("Mcp-Session-Id", "x")], None).status,
        204
    );
    assert_eq!(
        send("PUT", &url, &[BOTH], None).header("allow"),
        "GET, POST, DELETE"
    );
    let only_json = send("POST", &url, &[("Accept", "application/json")], Some(b"{}"));
    assert_eq!(
        plain(only_json),
        (
            400,
            "Accept must contain both 'application/json' and 'text/event-stream'".into()
        )
    );
    let old = send(
        "POST",
        &url,
        &[BOTH, ("Mcp-Protocol-Version", "1999-01-01")],
        Some(b"{}"),
    );
    assert!(
        plain(old)
            .1
            .starts_with("Bad Request: Unsupported protocol version (supported versions: ")
    );
    assert_eq!(
        plain(send("POST", &url, &[BOTH], None)),
        (400, "POST requires a non-empty body".into())
    );
    assert_eq!(
        plain(rpc(&url, &call(1, "foo", json!({})))),
        (400, "JSON RPC not handled: \"foo\" unsupported".into())
    );
    assert_eq!(
        plain(rpc(
            &url,
            &json!({"jsonrpc": "2.0", "method": "tools/list"})
        )),
        (400, "invalid request: missing id for \"tools/list\"".into())
    );
    let r = rpc(
        &url,
        &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    );
    assert_eq!((r.status, r.body.as_str()), (202, ""));
    let r = rpc(
        &url,
        &call(
            1,
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
        ),
    );
    assert!(!r.header("mcp-session-id").is_empty());
    let m = message(&r);
    assert_eq!(m["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(m["result"]["serverInfo"]["name"], "tapes");
    assert_eq!(m["result"]["capabilities"], json!({"tools": {}}));
    let unknown = message(&rpc(
        &url,
        &call(
            1,
            "initialize",
            json!({"protocolVersion": "1999-01-01", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
        ),
    ));
    assert_eq!(unknown["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(
        message(&rpc(&url, &call(2, "ping", json!({}))))["result"],
        json!({})
    );
    assert_eq!(
        message(&rpc(&url, &call(2, "prompts/list", json!({}))))["result"],
        json!({"prompts": []})
    );
    // The search tool before any embed pass: a failure that the model can read.
    let m = message(&rpc(
        &url,
        &call(
            3,
            "tools/call",
            json!({"name": "search", "arguments": {"query": "x"}}),
        ),
    ));
    assert_eq!(m["result"]["isError"], true);
    assert!(
        m["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("Search failed: span embeddings not initialized")
    );
}

#[test]
fn the_search_tool_over_http() {
    let (_home, s) = filled();
    let url = format!("{}/v1/mcp", s.api);
    // tools/list works cold.
    let list = message(&rpc(&url, &call(1, "tools/list", json!({}))));
    let tool = &list["result"]["tools"][0];
    assert_eq!(tool["name"], "search");
    assert_eq!(tool["inputSchema"]["required"], json!(["query"]));
    assert_eq!(tool["inputSchema"]["additionalProperties"], false);
    let m = message(&rpc(
        &url,
        &call(
            7,
            "tools/call",
            json!({"name": "search", "arguments": {"query": "how was logging configured?", "top_k": 3}}),
        ),
    ));
    assert_eq!(m["id"], 7);
    let output = &m["result"]["structuredContent"];
    assert_eq!(output["results"][0]["span_id"], "llm_req1");
    assert_eq!(output["count"], 1);
    let text: Value =
        serde_json::from_str(m["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(&text, output);
    // An empty query is no error; an unknown argument and an unknown tool are.
    assert!(
        message(&rpc(
            &url,
            &call(
                8,
                "tools/call",
                json!({"name": "search", "arguments": {"query": ""}})
            )
        ))["result"]["structuredContent"]
            .is_object()
    );
    let e = message(&rpc(
        &url,
        &call(
            9,
            "tools/call",
            json!({"name": "search", "arguments": {"query": "x", "paths": "src/"}}),
        ),
    ));
    assert_eq!(e["error"]["code"], -32602);
    assert!(
        e["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("invalid params: validating \"arguments\": "),
        "{e}"
    );
    let e = message(&rpc(
        &url,
        &call(9, "tools/call", json!({"name": "nope", "arguments": {}})),
    ));
    assert_eq!(
        e["error"],
        json!({"code": -32602, "message": "unknown tool \"nope\""})
    );
    let batch = json!([call(1, "ping", json!({})), call(2, "ping", json!({}))]);
    assert_eq!(rpc(&url, &batch).body.matches("event: message").count(), 2);
}

#[test]
fn the_search_tool_over_stdio_and_m23_clients_that_vanish() {
    let (home, s) = filled();
    drop(s);
    let talk = |lines: &[Value]| talk(&home, home.path(), "spans", lines);
    let hello = call(
        1,
        "initialize",
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
    );
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let ask = call(
        2,
        "tools/call",
        json!({"name": "search", "arguments": {"query": "logging"}}),
    );
    let answers = talk(&[hello, ready, call(3, "tools/list", json!({})), ask]);
    assert_eq!(answers[1]["result"]["tools"][0]["name"], "search");
    assert_eq!(
        answers[2]["result"]["structuredContent"]["results"][0]["span_id"],
        "llm_req1"
    );
    for _ in 0..20 {
        let mut child = home
            .command(&["mcp", "--profile", "spans"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        drop(child.stdin.take());
        // The client goes away before it has said anything: the process ends by itself.
        child.wait().unwrap();
    }
}

/// Every tool that may be listed says what it is for, what it takes and what it gives, and answers as it says.
#[test]
fn tools_keep_to_their_schemas() {
    let (home, s) = filled();
    drop(s);
    let root = shop(&home);
    let hello = call(
        1,
        "initialize",
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
    );
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    for profile in ["spans", "code", "decisions", "all"] {
        let calls = [
            (
                "decide",
                json!({"title": "Keep carts in memory", "rationale": "they are small", "files": "src/cart/add.ts"}),
            ),
            ("search", json!({"query": "logging"})),
            ("search", json!({"query": "cart", "json": true})),
            (
                "search",
                json!({"query": "how are carts kept", "budget": 60}),
            ),
            ("search_spans", json!({"query": "logging", "top_k": 1})),
            ("search_code", json!({"query": "add to cart"})),
            ("search_code", json!({"query": "add to cart", "json": true})),
            ("find_symbols", json!({"query": "add to cart"})),
            (
                "find_symbols",
                json!({"query": "add to cart", "json": true}),
            ),
            ("search_decisions", json!({"query": "carts"})),
            ("decisions_for_file", json!({"path": "src/cart/add.ts"})),
            ("decisions_stale", json!({})),
            ("decision_reaffirm", json!({"id": "keep-carts-in-memory"})),
            ("why", json!({"target": "src/cart/add.ts::addToCart"})),
            ("why", json!({"target": "src/cart/add.ts", "json": true})),
            ("show", json!({"reference": "src/cart/add.ts::addToCart"})),
            (
                "show",
                json!({"reference": "src/cart/add.ts", "json": true}),
            ),
        ];
        let mut lines = vec![
            hello.clone(),
            ready.clone(),
            call(2, "tools/list", json!({})),
        ];
        lines.extend(calls.iter().map(|(name, arguments)| {
            call(
                3,
                "tools/call",
                json!({"name": name, "arguments": arguments}),
            )
        }));
        let answers = talk(&home, &root, profile, &lines);
        let tools = answers[1]["result"]["tools"].as_array().unwrap();
        let mut called = std::collections::BTreeSet::new();
        for t in tools {
            let name = t["name"].as_str().unwrap();
            // Clients put the server's name before it and have 64 characters, of which we use 48.
            assert!("mcp__weft__".len() + name.len() <= 48, "{name}");
            for k in [
                "title",
                "description",
                "inputSchema",
                "outputSchema",
                "annotations",
            ] {
                assert!(!t[k].is_null(), "{name}: {k}");
            }
            assert!(t["annotations"]["readOnlyHint"].is_boolean(), "{name}");
            assert_eq!(t["annotations"]["openWorldHint"], false, "{name}");
            jsonschema::meta::validate(&t["inputSchema"]).unwrap();
        }
        for ((name, arguments), a) in calls.iter().zip(&answers[2..]) {
            let Some(t) = tools.iter().find(|t| t["name"] == *name) else {
                assert_eq!(a["error"]["code"], -32602, "{profile} {name}");
                continue;
            };
            let takes = jsonschema::validator_for(&t["inputSchema"]).unwrap();
            let r = &a["result"];
            if !takes.is_valid(arguments) {
                assert_eq!(r["isError"], true, "{profile} {name} {arguments}: {r}");
                continue;
            }
            assert!(r["isError"].is_null(), "{profile} {name} {arguments}: {r}");
            let gives = jsonschema::validator_for(&t["outputSchema"]).unwrap();
            let structured = &r["structuredContent"];
            if let Err(e) = gives.validate(structured) {
                panic!("{profile} {name} {arguments}: {e}: {structured}");
            }
            called.insert(name.to_owned());
            // What a client shows of both says the same.
            let text = r["content"][0]["text"].as_str().unwrap();
            if let Ok(v) = serde_json::from_str::<Value>(text) {
                assert_eq!(&v, structured, "{name}");
            } else {
                let hits = structured["hits"].as_array().cloned().unwrap_or_default();
                for h in hits {
                    let said = [&h["text"], &h["signature"]]
                        .into_iter()
                        .find_map(Value::as_str)
                        .unwrap();
                    assert!(text.contains(said), "{name}: {said}: {text}");
                }
            }
        }
        let all: std::collections::BTreeSet<&str> =
            tools.iter().map(|t| t["name"].as_str().unwrap()).collect();
        assert_eq!(called, all, "{profile}: not every tool answered");
    }
}

#[test]
fn prompts_and_resources_bring_what_is_known() {
    let (home, s) = filled();
    git(home.path(), &["init", "-q"]);
    home.ok(&[
        "decide",
        "Log to standard error",
        "--rationale",
        "pipes stay clean",
        "--accept",
    ]);
    let url = format!("{}/mcp", s.api);
    let ask = |method: &str, params: Value| message(&rpc(&url, &call(1, method, params)));
    let info = ask(
        "initialize",
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
    );
    assert_eq!(
        info["result"]["capabilities"],
        json!({"prompts": {}, "resources": {}, "tools": {}})
    );
    assert!(
        info["result"]["instructions"]
            .as_str()
            .unwrap()
            .contains("`search`")
    );
    let list = ask("resources/list", json!({}));
    let resources = list["result"]["resources"].as_array().unwrap();
    let session = resources
        .iter()
        .find(|r| r["uri"].as_str().unwrap().starts_with("weft://session/"))
        .unwrap();
    assert_eq!(session["title"], "how was logging configured?");
    let read = ask("resources/read", json!({"uri": session["uri"]}));
    let text = read["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("> how was logging configured?\none function sets it up"),
        "{text}"
    );
    let span = ask("resources/read", json!({"uri": "weft://span/llm_req1"}));
    assert!(
        span["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .contains("one function sets it up")
    );
    let decision = resources
        .iter()
        .find(|r| r["title"] == "Log to standard error")
        .unwrap();
    let read = ask("resources/read", json!({"uri": decision["uri"]}));
    let content = &read["result"]["contents"][0];
    assert!(
        content["text"]
            .as_str()
            .unwrap()
            .contains("pipes stay clean")
    );
    assert_eq!(content["mimeType"], "text/markdown");
    for bad in [
        "weft://session/none",
        "file:///etc/passwd",
        "weft://symbol/../../etc/passwd",
        "weft://symbol//etc/passwd",
    ] {
        let e = ask("resources/read", json!({"uri": bad}));
        assert!(e["error"]["code"].as_i64().unwrap() < 0, "{bad}: {e}");
    }
    let prompts = ask("prompts/list", json!({}));
    let names: Vec<&str> = prompts["result"]["prompts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["brief", "why", "recall", "record"]);
    let said = |name: &str, arguments: Value| {
        let r = ask("prompts/get", json!({"name": name, "arguments": arguments}));
        r["result"]["messages"][0]["content"]["text"]
            .as_str()
            .map(str::to_owned)
            .ok_or(r)
    };
    assert!(
        said("recall", json!({"topic": "where do we log"}))
            .unwrap()
            .contains("Log to standard error")
    );
    assert!(said("record", json!({})).unwrap().contains("`decide`"));
    assert!(
        said("why", json!({})).unwrap_err()["error"]["message"]
            .as_str()
            .unwrap()
            .contains("target")
    );
    assert!(said("nope", json!({})).is_err());
}
