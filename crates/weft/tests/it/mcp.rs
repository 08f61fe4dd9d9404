//! MCP over HTTP and over stdio.

use std::process::Stdio;

use serde_json::{Value, json};

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
        &[BOTH, ("Mcp-Protocol-Version", "2026-07-28")],
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
