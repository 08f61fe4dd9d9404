//! Cassettes: our two examples, and services that misbehave.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_testkit::{Heard, Upstream};

use crate::support::{Home, Server, get, post, send, turn};

/// A process that is ended with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an example; the address of its document is the first line that it prints.
fn start(mut command: Command) -> (Process, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    (Process(child), line.trim().to_owned())
}

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../weft-server/examples")
        .join(name)
}

/// The example in Rust, as cargo builds it beside the tests.
fn notes(address: &str) -> (Process, String) {
    let exe = std::env::current_exe().unwrap();
    let built = exe.parent().unwrap().join("../examples/notes");
    if !built.exists() {
        let done = Command::new(env!("CARGO"))
            .args(["build", "-p", "weft-server", "--example", "notes"])
            .status()
            .unwrap();
        assert!(done.success());
    }
    let mut c = Command::new(built);
    c.arg(address);
    start(c)
}

fn recap(weft: &str) -> (Process, String) {
    let mut c = Command::new("python3");
    c.arg(example("recap.py")).args(["0", weft]);
    start(c)
}

fn rpc(url: &str, method: &str, params: Value, headers: &[(&str, &str)]) -> Value {
    let mut all = vec![
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
    ];
    all.extend(headers);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let r = send("POST", url, &all, Some(body.to_string().as_bytes()));
    let data = r.body.trim().strip_prefix("event: message\ndata: ");
    serde_json::from_str(data.unwrap_or_else(|| panic!("{} {}", r.status, r.body))).unwrap()
}

fn tool_names(api: &str) -> Vec<String> {
    let list = rpc(&format!("{api}/v1/mcp"), "tools/list", json!({}), &[]);
    list["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["name"].as_str().unwrap().to_owned())
        .collect()
}

fn call(api: &str, name: &str, arguments: Value) -> Value {
    let params = json!({"name": name, "arguments": arguments});
    rpc(&format!("{api}/v1/mcp"), "tools/call", params, &[])["result"].clone()
}

/// Waits until discovery says something.
fn discovered(s: &mut Server, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let url = format!("{}/v1/cassettes", s.api);
    s.wait(what, |_| Some(get(&url).json()).filter(|v| is(v)))
}

#[test]
fn the_examples_extend_the_read_api() {
    let home = Home::new();
    let (first, notes_url) = notes("127.0.0.1:0");
    // A server for the second example to ask, in the same store.
    let asked = Server::start(&home, &[]);
    post(
        &format!("{}/v1/ingest", asked.ingest),
        &turn("cassette", "req1", "how do cassettes work?", "as services"),
    );
    let (_second, recap_url) = recap(&asked.api);
    let mut s = Server::start(
        &home,
        &[
            "api",
            "--cassettes",
            &format!("{notes_url},{recap_url}"),
            "--cassette-refresh",
            "200ms",
        ],
    );
    let found = discovered(&mut s, "both cassettes", |v| {
        v["cassettes"].as_array().unwrap().len() == 2
    });
    assert_eq!(found["contract_version"], "v1");
    assert_eq!(found["problems"], json!([]));
    let entry = &found["cassettes"][0];
    assert_eq!(
        (
            &entry["name"],
            &entry["openapi_status"],
            &entry["route_prefix"],
            &entry["openapi_path"]
        ),
        (
            &json!("notes"),
            &json!("fresh"),
            &json!("/v1/cassettes/notes"),
            &json!("/v1/cassettes/notes/openapi.json")
        )
    );
    assert_eq!(entry["depends"], json!({"core": "v1", "views": []}));
    assert!(
        entry["manifest_digest"]
            .as_str()
            .unwrap()
            .starts_with("sha256:")
    );
    // The tools, beside our own.
    assert_eq!(
        tool_names(&s.api),
        ["notes.add", "notes.list", "recap.session", "search"]
    );
    let list = rpc(&format!("{}/v1/mcp", s.api), "tools/list", json!({}), &[]);
    let add = &list["result"]["tools"][0];
    assert_eq!(add["title"], "Leave a note");
    assert_eq!(add["inputSchema"]["type"], "object");
    assert_eq!(
        add["inputSchema"]["$defs"]["Note"]["required"],
        json!(["text"])
    );
    assert_eq!(
        add["annotations"],
        json!({"readOnlyHint": false, "destructiveHint": false})
    );
    assert!(add.get("outputSchema").is_none());
    let r = call(
        &s.api,
        "notes.add",
        json!({"text": "I am moving the parser", "by": "claude"}),
    );
    assert_eq!(r["structuredContent"], json!({"count": 1}));
    assert_eq!(r["content"][0]["text"], "{\"count\":1}");
    let r = call(&s.api, "notes.add", json!({}));
    assert_eq!(r["isError"], true);
    assert_eq!(
        r["content"][0]["text"],
        "cassette \"notes\" tool \"notes.add\" returned 400 Bad Request: text is required"
    );
    // The same through the proxy, and the second cassette asks the first server.
    let all = get(&format!("{}/v1/cassettes/notes/all", s.api));
    assert_eq!(all.json()["notes"][0]["by"], "claude");
    let sessions = s.wait("the session", |s| {
        let items = get(&format!("{}/v1/sessions", s.api)).json()["items"].clone();
        Some(items).filter(|i| i[0]["rollup"]["turn_count"] == 1)
    });
    let id = sessions[0]["id"].as_str().unwrap();
    let r = call(&s.api, "recap.session", json!({"session_id": id}));
    assert_eq!(
        r["structuredContent"]["asked"],
        json!(["how do cassettes work?"])
    );
    let r = get(&format!("{}/v1/cassettes/recap/sessions/{id}?x=1", s.api));
    assert_eq!(r.json()["asked"], json!(["how do cassettes work?"]));
    // The documents, one by one and all in one.
    let one = get(&format!("{}/v1/cassettes/notes/openapi.json", s.api));
    assert!(one.json()["paths"]["/v1/cassettes/notes/add"].is_object());
    let tag = one.header("etag").to_owned();
    let again = send(
        "GET",
        &format!("{}/v1/cassettes/notes/openapi.json", s.api),
        &[("If-None-Match", &tag)],
        None,
    );
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    let whole = get(&format!("{}/openapi", s.api)).json();
    assert_eq!(whole["info"]["title"], "tapes");
    assert_eq!(
        whole["paths"]["/v1/cassettes/notes/add"]["post"]["operationId"],
        "notes_add"
    );
    assert!(whole["components"]["schemas"]["notes_Note"].is_object());
    assert!(whole["paths"]["/v1/sessions"].is_object());
    // A cassette that is gone: its document stays and is stale, its calls fail.
    drop(first);
    let gone = discovered(&mut s, "the loss to be seen", |v| {
        v["cassettes"][0]["openapi_status"] == "stale"
    });
    assert_eq!(gone["problems"][0]["subject"], json!(notes_url));
    assert!(tool_names(&s.api).contains(&"notes.add".to_owned()));
    let r = get(&format!("{}/v1/cassettes/notes/all", s.api));
    assert_eq!(
        (r.status, r.error().as_str()),
        (502, "cassette_unavailable")
    );
    let r = call(&s.api, "notes.list", json!({}));
    assert!(
        r["content"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("cassette \"notes\" tool \"notes.list\" failed: ")
    );
    // It comes back without a restart of ours.
    let address = notes_url
        .trim_start_matches("http://")
        .trim_end_matches("/openapi");
    let _back = notes(address);
    discovered(&mut s, "the return", |v| v["problems"] == json!([]));
    assert_eq!(
        call(&s.api, "notes.list", json!({}))["structuredContent"],
        json!({"notes": []})
    );
    // What nobody serves.
    let r = get(&format!("{}/v1/cassettes/nobody/x", s.api));
    assert_eq!(
        r.json(),
        json!({"error": "unknown_cassette", "message": "no cassette serves /v1/cassettes/nobody/x"})
    );
    assert_eq!(
        get(&format!("{}/v1/cassettes/nobody/openapi.json", s.api)).status,
        404
    );
}

/// A service that answers as a test wants, and keeps what it heard.
struct Service {
    upstream: Upstream,
    heard: Arc<Mutex<Vec<Heard>>>,
}

/// Status, headers and body of an answer.
type Reply = (u16, &'static str, Vec<u8>);

/// `answer` gets the request's path.
fn service(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Service {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let kept = heard.clone();
    let upstream = Upstream::start(move |request, wire| {
        let (status, headers, body) = answer(&request.target);
        kept.lock().unwrap().push(request);
        wire.answer(status, headers, body)
    });
    Service { upstream, heard }
}

impl Service {
    fn document(&self) -> String {
        format!("{}/openapi", self.upstream.url())
    }

    /// The last request of a path: its first line, headers and body in lower case.
    fn last(&self, path: &str) -> String {
        let heard = self.heard.lock().unwrap();
        let r = heard
            .iter()
            .rev()
            .find(|r| r.target.contains(path))
            .unwrap();
        let mut out = format!("{} {}\n", r.method, r.target);
        for (k, v) in &r.headers {
            out.push_str(&format!("{k}: {v}\n"));
        }
        out.push_str(&String::from_utf8_lossy(&r.body));
        out.to_lowercase()
    }
}

fn document(name: &str) -> Vec<u8> {
    let object = json!({"description": "it", "content": {"application/json": {"schema": {"type": "object"}}}});
    let tool = |name: &str| json!({"post": {"x-tapes-mcp": {"name": name}, "requestBody": {"required": true, "content": {"application/json": {"schema": {"type": "object"}}}}, "responses": {"200": object}}});
    let mut paths = serde_json::Map::new();
    for t in [
        "redirects",
        "null",
        "array",
        "trailing",
        "nothing",
        "large",
        "echo",
        "long",
    ] {
        paths.insert(format!("/api/{name}/{t}"), tool(t));
    }
    json!({
        "openapi": "3.1.0", "servers": [{"url": "http://169.254.169.254/latest"}],
        "x-tapes-cassette": {"kind": "cassette/v1alpha1", "cassette": {"name": name, "version": "1"}, "depends": {"core": "v1"}},
        "paths": paths,
    })
    .to_string()
    .into_bytes()
}

fn ok(body: impl Into<Vec<u8>>) -> Reply {
    (200, "Content-Type: application/json\r\n", body.into())
}

#[test]
fn services_that_misbehave_are_bounded() {
    let odd = service(|path| match path.rsplit('/').next().unwrap_or_default() {
        "openapi" => ok(document("odd")),
        "redirects" => (302, "Location: http://127.0.0.1:1/\r\n", Vec::new()),
        "null" => ok("null"),
        "array" => ok("[1]"),
        "trailing" => ok("{} {}"),
        "nothing" => ok(""),
        "large" => ok(format!("{{\"x\":\"{}\"}}", "a".repeat(9 << 20))),
        "long" => (500, "", "é".repeat(4_000).into_bytes()),
        _ => ok("{\"big\":18446744073709551615,\"small\":0.1}"),
    });
    let redirecting = service(|_| (301, "Location: http://169.254.169.254/\r\n", Vec::new()));
    let large = service(|_| ok(vec![b' '; 9 << 20]));
    let html = service(|_| ok("<html>"));
    let own = service(|_| ok(document("search")));
    let same = service(|_| ok(document("odd")));
    let stuck = Upstream::start(|_, wire| {
        wire.send("HTTP/1.1 200 OK\r\n\r\n{")?;
        wire.until_closed();
        Ok(())
    });
    let home = Home::new();
    let urls = [&odd, &redirecting, &large, &html, &own, &same].map(Service::document);
    let stuck_url = format!("{}/openapi", stuck.url());
    let all = [&urls[..], std::slice::from_ref(&stuck_url)]
        .concat()
        .join(",");
    let began = Instant::now();
    let mut s = Server::start(&home, &["api", "--cassettes", &all]);
    // One that does not end its answer keeps no other waiting.
    let found = discovered(&mut s, "all sources", |v| {
        v["problems"].as_array().unwrap().len() == 5 && v["cassettes"][0]["name"] == "odd"
    });
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    let why = |s: &Service| {
        found["problems"]
            .as_array()
            .unwrap()
            .iter()
            .find(|p| {
                p["subject"]
                    .as_str()
                    .unwrap()
                    .starts_with(&s.upstream.url())
            })
            .map(|p| p["reason"].as_str().unwrap().to_owned())
            .unwrap()
    };
    assert!(
        why(&redirecting).contains("redirects"),
        "{}",
        why(&redirecting)
    );
    assert!(why(&large).contains("larger than"), "{}", why(&large));
    assert!(why(&html).contains("no JSON"), "{}", why(&html));
    assert!(why(&own).contains("weft itself"), "{}", why(&own));
    assert!(why(&same).contains("already"), "{}", why(&same));
    let told = |tool: &str| {
        let r = call(&s.api, &format!("odd.{tool}"), json!({"a": 1}));
        assert_eq!(r["isError"], true, "{tool}");
        r["content"][0]["text"].as_str().unwrap().to_owned()
    };
    assert!(told("redirects").contains("returned 302 Found"));
    assert!(told("null").ends_with("returned null instead of a JSON object"));
    assert!(told("array").contains("did not return a JSON object"));
    assert!(told("trailing").ends_with("returned trailing JSON"));
    assert!(told("nothing").contains("did not return a JSON object"));
    assert!(told("large").ends_with("response exceeds 8388608 bytes"));
    let long = told("long");
    assert!(
        long.ends_with("… (truncated)") && long.len() < 4_300,
        "{}",
        long.len()
    );
    // Numbers stay as they are; headers of the caller go on, those of the connection do not.
    let params = json!({"name": "odd.echo", "arguments": {"a": [1]}});
    let headers = [
        ("Authorization", "Bearer theirs"),
        ("X-User", "ann"),
        ("X-Forwarded-For", "6.6.6.6"),
        ("Range", "bytes=0-1"),
        ("If-Match", "x"),
    ];
    let r = rpc(&format!("{}/v1/mcp", s.api), "tools/call", params, &headers);
    assert_eq!(
        r["result"]["content"][0]["text"],
        "{\"big\":18446744073709551615,\"small\":0.1}"
    );
    assert_eq!(r["result"]["structuredContent"]["big"], json!(u64::MAX));
    let sent = odd.last("/api/odd/echo");
    assert!(sent.ends_with("{\"a\":[1]}"), "{sent}");
    for there in [
        "authorization: bearer theirs",
        "x-user: ann",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-proto: http",
        "x-tapes-cassette: odd",
        "accept: application/json\n",
    ] {
        assert!(sent.contains(there), "{there}: {sent}");
    }
    for gone in ["6.6.6.6", "range:", "if-match", "mcp-", "text/event-stream"] {
        assert!(!sent.contains(gone), "{gone}: {sent}");
    }
    // The proxy takes any method and keeps paths inside of the cassette.
    let r = send(
        "PUT",
        &format!("{}/v1/cassettes/odd/a%20b?c=d%26", s.api),
        &[("X-Forwarded-Host", "evil")],
        Some(b"body"),
    );
    assert_eq!(r.status, 200);
    let sent = odd.last("/api/odd/a%20b");
    assert!(
        sent.starts_with("put /api/odd/a%20b?c=d%26\n") && sent.ends_with("body"),
        "{sent}"
    );
    assert!(!sent.contains("evil"), "{sent}");
    for (end, there) in [("", "/api/odd\n"), ("/", "/api/odd/\n")] {
        assert_eq!(get(&format!("{}/v1/cassettes/odd{end}", s.api)).status, 200);
        let sent = odd.last("/api/odd");
        assert!(sent.starts_with(&format!("get {there}")), "{sent}");
    }
    let r = get(&format!("{}/v1/cassettes/odd/%2e%2e/admin", s.api));
    assert_eq!((r.status, r.error().as_str()), (502, "bad_target"));
    let r = send(
        "POST",
        &format!("{}/v1/cassettes/odd/x", s.api),
        &[],
        Some(&vec![0; 33 << 20]),
    );
    assert_eq!(r.status, 413);
    discovered(&mut s, "the stuck source to be given up", |v| {
        v["problems"]
            .to_string()
            .contains("no document within 10 s")
    });
}

#[test]
fn tokens_of_ours_reach_no_cassette() {
    let echo = service(|path| match path {
        "/openapi" => ok(document("echo")),
        _ => ok("{}"),
    });
    let home = Home::new();
    let reader = home.ok(&["token", "create", "--name", "r", "--scope", "read"]);
    let reader = format!("Bearer {}", reader.trim());
    let urls = echo.document();
    let mut s = Server::start_with(&home, &["api", "--cassettes", &urls], |c| {
        c.env("WEFT_TOKEN", "our-own-token");
    });
    let own = ("Authorization", "Bearer our-own-token");
    let url = format!("{}/v1/cassettes", s.api);
    s.wait("the cassette", |_| {
        let v = send("GET", &url, &[own], None).json();
        (v["cassettes"][0]["name"] == "echo").then_some(())
    });
    assert_eq!(get(&url).status, 401);
    let path = format!("{}/v1/cassettes/echo/echo", s.api);
    assert_eq!(send("POST", &path, &[own], Some(b"{}")).status, 200);
    let heard = echo.last("/echo/echo");
    assert!(!heard.contains("our-own-token"), "{heard}");
    // Who may only read calls no tool of a cassette, whatever its hints say.
    let mcp = format!("{}/v1/mcp", s.api);
    let read = ("Authorization", reader.as_str());
    assert_eq!(send("POST", &path, &[read], Some(b"{}")).status, 403);
    let params = json!({"name": "echo.echo", "arguments": {}});
    let r = rpc(&mcp, "tools/call", params.clone(), &[read]);
    assert_eq!(
        r["result"]["content"][0]["text"],
        "echo.echo needs a token of scope write"
    );
    let r = rpc(&mcp, "tools/call", params, &[own]);
    assert_eq!(r["result"]["structuredContent"], json!({}));
}

#[test]
fn sources_are_checked_at_the_start() {
    let home = Home::new();
    for (bad, says) in [
        ("ftp://x/openapi", "http://"),
        ("http://u:p@x/openapi", "name and password"),
        ("http://x/openapi#a", "fragment"),
        ("http://x/o,http://x/o", "there twice"),
    ] {
        let (code, e) = home.fails(&["serve", "api", "-l", "127.0.0.1:0", "--cassettes", bad]);
        assert_eq!(code, 2, "{e}");
        assert!(e.contains(says), "{bad}: {e}");
    }
    let (code, e) = home.fails(&[
        "serve",
        "api",
        "-l",
        "127.0.0.1:0",
        "--cassette-refresh",
        "x",
    ]);
    assert!(
        code == 2 && e.contains("invalid --cassette-refresh \"x\""),
        "{e}"
    );
}

#[test]
fn the_configuration_file_is_followed() {
    let one = service(|path| match path {
        "/openapi" => ok(document("one")),
        _ => ok("{}"),
    });
    let two = service(|path| match path {
        "/openapi" => ok(document("two")),
        _ => ok("{}"),
    });
    let home = Home::new();
    let file = home.path().join("config.toml");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write(&format!("cassettes = [{:?}]\n", one.document()));
    let dir = home.path().to_str().unwrap().to_owned();
    let mut s = Server::start(&home, &["api", "--config-dir", &dir]);
    let names = |v: &Value| -> Vec<String> {
        let all = v["cassettes"].as_array().unwrap();
        all.iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect()
    };
    discovered(&mut s, "the first", |v| names(v) == ["one"]);
    assert!(tool_names(&s.api).contains(&"one.echo".to_owned()));
    write(&format!(
        "cassettes = [{:?}, {:?}]\n",
        one.document(),
        two.document()
    ));
    discovered(&mut s, "the second", |v| names(v) == ["one", "two"]);
    // Nonsense changes nothing; what is taken out is gone, with its tools and routes.
    write("cassettes = 5\n");
    s.wait("the warning", |s| {
        s.log
            .lock()
            .unwrap()
            .contains("cassettes stay as they were")
            .then_some(())
    });
    assert_eq!(
        names(&get(&format!("{}/v1/cassettes", s.api)).json()),
        ["one", "two"]
    );
    write(&format!("cassettes = [{:?}]\n", two.document()));
    discovered(&mut s, "the first to be gone", |v| names(v) == ["two"]);
    assert!(!tool_names(&s.api).contains(&"one.echo".to_owned()));
    assert_eq!(get(&format!("{}/v1/cassettes/one/echo", s.api)).status, 404);
}
