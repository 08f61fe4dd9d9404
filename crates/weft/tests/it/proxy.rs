//! The capture proxy between real sockets: what passes, what is kept, what is counted.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use weft_testkit::{Heard, Upstream, Wire, coded};

use crate::support::{Home, Server, get, post, send};

const JSON: &str = "Content-Type: application/json\r\n";
const EVENTS: &str = "Content-Type: text/event-stream\r\n";

/// A server whose proxy passes everything on to `upstream`, in the place of all three providers.
pub(crate) fn proxy_to(home: &Home, upstream: &str) -> Server {
    Server::start_with(home, &[], |c| {
        c.env("WEFT_PROXY_ANTHROPIC_UPSTREAM", upstream)
            .env("WEFT_PROXY_OPENAI_UPSTREAM", format!("{upstream}/v1"))
            .env("WEFT_PROXY_OLLAMA_UPSTREAM", upstream);
    })
}

fn request(text: &str) -> Value {
    json!({"model": "claude-x", "max_tokens": 100, "stream": true, "tools": [{"name": "Bash"}],
        "messages": [{"role": "user", "content": text}]})
}

/// A Messages stream of some words, event by event.
pub(crate) fn events(words: &[&str]) -> Vec<String> {
    let mut all = vec![
        json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant",
            "model": "claude-x", "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 7, "output_tokens": 0}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    ];
    all.extend(words.iter().map(|w| {
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": w}})
    }));
    all.extend([
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ]);
    all.iter()
        .map(|e| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap()))
        .collect()
}

fn stream(wire: &mut Wire, words: &[&str]) -> std::io::Result<()> {
    wire.chunked(200, EVENTS)?;
    for e in events(words) {
        wire.chunk(e)?;
    }
    wire.chunk("")
}

/// A connection on which a request was sent.
fn ask(proxy: &str, target: &str, headers: &str, body: &[u8]) -> TcpStream {
    let host = proxy.strip_prefix("http://").unwrap();
    let mut s = TcpStream::connect(host).unwrap();
    s.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    s.write_all(head.as_bytes()).unwrap();
    s.write_all(body).unwrap();
    s
}

/// Reads until what was read holds `wanted`.
fn read_until(s: &mut TcpStream, wanted: &str) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if text.contains(wanted) {
            return text;
        }
        let n = s.read(&mut buffer).unwrap();
        assert!(n > 0, "ended without {wanted:?}:\n{text}");
        all.extend_from_slice(&buffer[..n]);
    }
}

/// The value of a counter of the proxy.
fn counted(server: &Server, name: &str) -> u64 {
    let text = get(&format!("{}/metrics", server.api)).body;
    text.lines()
        .find_map(|l| l.strip_prefix(name)?.trim().parse().ok())
        .unwrap_or(0)
}

fn dropped(server: &Server, reason: &str) -> u64 {
    counted(
        server,
        &format!("weft_capture_dropped_total{{reason=\"{reason}\"}}"),
    )
}

fn wait_dropped(server: &mut Server, reason: &str, n: u64) {
    server.wait(&format!("{n} dropped as {reason}"), |s| {
        (dropped(s, reason) == n).then_some(())
    });
}

/// All sessions, once there are `n` with turns of their own.
pub(crate) fn sessions(server: &mut Server, n: usize) -> Vec<Value> {
    server.wait(&format!("{n} sessions"), |s| {
        let list = get(&format!("{}/v1/sessions?limit=100", s.api)).json();
        let items = list["items"].as_array()?.clone();
        let derived = items
            .iter()
            .filter(|i| i["rollup"]["turn_count"].as_u64() > Some(0))
            .count();
        (items.len() == n && derived == n).then_some(items)
    })
}

/// Text of the only llm span of a session's first trace, and its span.
fn answer_of(server: &Server, session: &Value) -> (String, Value) {
    let id = session["id"].as_str().unwrap();
    let traces = get(&format!(
        "{}/v1/sessions/{id}/traces?payload=full",
        server.api
    ))
    .json();
    let span = traces["traces"][0]["spans"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["kind"] == "llm")
        .unwrap_or_else(|| panic!("no llm span: {traces}"))
        .clone();
    let text = span["output"].to_string();
    (text, span)
}

#[test]
fn bytes_pass_unchanged_in_every_coding_and_the_turn_reads_right() {
    let codings: [&[&str]; 6] = [
        &[],
        &["gzip"],
        &["br"],
        &["zstd"],
        &["deflate"],
        &["gzip", "br"],
    ];
    let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
    let copy = heard.clone();
    let upstream = Upstream::start(move |h, wire| {
        let n: usize = h.header("x-case").parse().unwrap();
        let body = coded(
            events(&["answer ", &format!("number{n}")])
                .concat()
                .as_bytes(),
            codings[n],
        );
        let coding = match codings[n] {
            [] => String::new(),
            c => format!("Content-Encoding: {}\r\n", c.join(", ")),
        };
        copy.lock().unwrap().push(h);
        wire.answer(
            200,
            &format!("{EVENTS}{coding}X-Own: kept\r\nRequest-Id: up-{n}\r\n"),
            body,
        )
    });
    let home = Home::new();
    let mut server = proxy_to(&home, &upstream.url());
    for (n, codings) in codings.iter().enumerate() {
        let sent = coded(
            request(&format!("question number{n}"))
                .to_string()
                .as_bytes(),
            codings,
        );
        let mut headers = format!(
            "X-Case: {n}\r\nX-Api-Key: sk-secret\r\nAccept-Encoding: gzip, br\r\nX-Tapes-Harness-Id: mine\r\nX-Tapes-Harness-Session-Id: s{n}\r\nX-Tapes-Cwd: /home/ann%20b\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n"
        );
        if !codings.is_empty() {
            headers.push_str(&format!("Content-Encoding: {}\r\n", codings.join(", ")));
        }
        let mut s = ask(&server.proxy, "/v1/messages?beta=true", &headers, &sent);
        let mut reply = Vec::new();
        s.read_to_end(&mut reply).unwrap();
        let whole = coded(
            events(&["answer ", &format!("number{n}")])
                .concat()
                .as_bytes(),
            codings,
        );
        assert!(reply.ends_with(&whole), "answer {n} is what upstream sent");
        let head = String::from_utf8_lossy(&reply[..reply.len() - whole.len()]).to_lowercase();
        assert!(
            head.starts_with("http/1.1 200") && head.contains("x-own: kept\r\n"),
            "{head}"
        );
        assert!(
            head.contains(&format!("content-length: {}\r\n", whole.len())),
            "{head}"
        );
        assert_eq!(
            head.contains("content-encoding"),
            !codings.is_empty(),
            "{head}"
        );

        let h = heard.lock().unwrap().last().cloned().unwrap();
        assert_eq!(h.body, sent, "request {n} is what the client sent");
        assert_eq!(h.target, "/v1/messages?beta=true");
        assert_eq!(h.header("x-api-key"), "sk-secret");
        assert_eq!(h.header("accept-encoding"), "gzip, br");
        assert!(!h.headers.iter().any(|(n, _)| {
            let n = n.to_lowercase();
            n.starts_with("x-tapes") || n == "x-hop"
        }));
        assert!(upstream.url().ends_with(h.header("host")));
    }
    for item in sessions(&mut server, codings.len()) {
        assert_eq!(
            (&item["harness_id"], &item["cwd"]),
            (&json!("mine"), &json!("/home/ann b"))
        );
        let n = item["harness_session_id"].as_str().unwrap()[1..].to_owned();
        let (text, span) = answer_of(&server, &item);
        assert!(text.contains(&format!("answer number{n}")), "{text}");
        assert_eq!(span["usage"]["prompt_tokens"], 7, "{span}");
        let raw = get(&format!(
            "{}/v1/sessions/{}/raw_turns",
            server.api,
            item["id"].as_str().unwrap()
        ));
        assert!(!raw.body.contains("sk-secret"));
    }
    let all = std::fs::read(home.data().join("weft.db")).unwrap_or_default();
    assert!(
        !all.windows(9).any(|w| w == b"sk-secret"),
        "no credential is stored"
    );
}

#[test]
fn every_event_is_there_before_the_next_is_sent() {
    let (go, went) = channel::<()>();
    let went = Mutex::new(went);
    let upstream = Upstream::start(move |_, wire| {
        wire.chunked(200, EVENTS)?;
        for e in events(&["one ", "two ", "three"]) {
            wire.chunk(e)?;
            // The next only when the client has this one.
            went.lock().unwrap().recv().map_err(std::io::Error::other)?;
        }
        wire.chunk("")
    });
    let home = Home::new();
    let mut server = proxy_to(&home, &upstream.url());
    let mut s = ask(
        &server.proxy,
        "/v1/messages",
        "",
        request("go").to_string().as_bytes(),
    );
    for kind in [
        "message_start\"",
        "content_block_start\"",
        "one ",
        "two ",
        "three",
        "content_block_stop\"",
        "message_delta\"",
        "message_stop\"",
    ] {
        read_until(&mut s, kind);
        go.send(()).unwrap();
    }
    read_until(&mut s, "0\r\n\r\n");
    let items = sessions(&mut server, 1);
    assert_eq!(items[0]["harness_id"], "unknown");
    let (text, span) = answer_of(&server, &items[0]);
    assert!(text.contains("one two three"), "{text}");
    assert!(span["duration_ns"].as_i64() != Some(0), "{span}");
}

#[test]
fn what_is_cut_off_is_kept_as_far_as_it_came() {
    let (gone, left) = channel::<()>();
    let gone = Mutex::new(gone);
    let upstream = Upstream::start(move |h, wire| {
        let all = events(&["partial ", "words"]).concat();
        match h.header("x-case") {
            // The client leaves: the provider is to see it.
            "client" => {
                wire.chunked(200, EVENTS)?;
                wire.chunk(&all[..all.find("words").unwrap()])?;
                wire.chunk(" \n\n")?;
                wire.until_closed();
                gone.lock().unwrap().send(()).map_err(std::io::Error::other)
            }
            // The provider breaks off in the middle of a chunk.
            "provider" => {
                wire.chunked(200, EVENTS)?;
                wire.send("fff\r\n")?;
                wire.send(&all[..all.find("words").unwrap()])?;
                Err(std::io::Error::other("over"))
            }
            // Nothing comes before the client leaves.
            "silent" => {
                wire.until_closed();
                gone.lock().unwrap().send(()).map_err(std::io::Error::other)
            }
            _ => Err(std::io::Error::other("hangs up")),
        }
    });
    let home = Home::new();
    let mut server = proxy_to(&home, &upstream.url());
    let ask_as = |server: &Server, case: &str| {
        let headers = format!(
            "X-Case: {case}\r\nX-Tapes-Harness-Session-Id: {case}\r\nX-Tapes-Harness-Id: h\r\n"
        );
        ask(
            &server.proxy,
            "/v1/messages",
            &headers,
            request(case).to_string().as_bytes(),
        )
    };
    let mut s = ask_as(&server, "client");
    read_until(&mut s, "partial ");
    drop(s);
    left.recv_timeout(Duration::from_secs(30))
        .expect("the provider sees that the client left");
    let mut s = ask_as(&server, "provider");
    let mut seen = Vec::new();
    // Cut off for the client, too: an error or an early end.
    let _ = s.read_to_end(&mut seen);
    assert!(String::from_utf8_lossy(&seen).contains("partial "));
    assert!(
        !seen.ends_with(b"0\r\n\r\n"),
        "a cut answer does not look whole"
    );
    let s = ask_as(&server, "silent");
    std::thread::sleep(Duration::from_millis(200));
    drop(s);
    left.recv_timeout(Duration::from_secs(30))
        .expect("and before the answer, too");
    wait_dropped(&mut server, "client_disconnect", 1);
    let r = send(
        "POST",
        &format!("{}/v1/messages", server.proxy),
        &[],
        Some(b"{}"),
    );
    assert_eq!(
        (r.status, r.error().as_str()),
        (502, "upstream request failed")
    );
    wait_dropped(&mut server, "upstream_no_response", 1);
    for item in sessions(&mut server, 2) {
        let (text, _) = answer_of(&server, &item);
        assert!(text.contains("partial "), "{text}");
        assert_ne!(item["harness_session_id"], "silent");
    }
}

#[test]
fn what_is_no_turn_passes_and_is_counted() {
    let upstream = Upstream::start(|h, wire| match h.target.as_str() {
        "/v1/messages/count_tokens" => wire.answer(200, JSON, r#"{"input_tokens": 3}"#),
        "/v1/models?limit=2" => wire.answer(200, JSON, r#"{"data": []}"#),
        "/v1/messages" if h.method == "HEAD" => {
            wire.send("HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\n")
        }
        "/v1/messages" if h.body == b"limited" => wire.answer(
            429,
            &format!("{JSON}Retry-After: 7\r\n"),
            r#"{"type":"error"}"#,
        ),
        "/v1/messages" if h.body == b"[1]" => wire.answer(200, JSON, "{}"),
        "/v1/messages" if h.body == b"{}" => wire.answer(200, JSON, "{}"),
        "/v1/chat/completions" => wire.answer(200, JSON, "not json"),
        "/v1/responses" => {
            wire.answer(200, &format!("{JSON}Content-Encoding: gzip\r\n"), "no gzip")
        }
        _ => wire.answer(404, JSON, "{}"),
    });
    let home = Home::new();
    let mut server = proxy_to(&home, &upstream.url());
    let at = |path: &str| format!("{}{path}", server.proxy);
    let with = |path: &str, body: &str| send("POST", &at(path), &[], Some(body.as_bytes()));
    assert_eq!(
        with("/v1/messages/count_tokens", "{}").body,
        r#"{"input_tokens": 3}"#
    );
    let models = send(
        "GET",
        &at("/v1/models?limit=2"),
        &[("anthropic-version", "x")],
        None,
    );
    assert_eq!(models.body, r#"{"data": []}"#);
    let head = send("HEAD", &at("/v1/messages"), &[], None);
    assert_eq!((head.status, head.header("content-length")), (200, "5"));
    let limited = with("/v1/messages", "limited");
    assert_eq!((limited.status, limited.header("retry-after")), (429, "7"));
    assert_eq!(limited.body, r#"{"type":"error"}"#);
    assert_eq!(with("/v1/messages", "[1]").status, 200);
    assert_eq!(with("/v1/messages", "{}").status, 200);
    assert_eq!(with("/v1/chat/completions", "{}").body, "not json");
    assert_eq!(with("/v1/responses", r#"{"input": "x"}"#).status, 200);
    let nowhere = with("/nowhere", "{}");
    assert!(nowhere.status == 404 && nowhere.error().contains("proxy.provider"));
    for (reason, n) in [
        ("non_turn_request", 4),
        ("upstream_status", 1),
        ("request_decode", 1),
        ("empty_response", 1),
        ("reducer_error", 1),
        ("response_decode", 1),
    ] {
        wait_dropped(&mut server, reason, n);
    }
    assert_eq!(
        get(&format!("{}/v1/sessions", server.api)).json()["items"],
        json!([])
    );
    let root = get(&format!("{}/", server.proxy));
    assert!(root.body.contains("capture proxy"));
}

#[test]
fn the_formats_of_all_providers_are_read() {
    let upstream = Upstream::start(|h, wire| match h.target.as_str() {
        "/v1/chat/completions" => {
            wire.chunked(200, EVENTS)?;
            for c in [
                json!({"model": "gpt-x", "choices": [{"delta": {"role": "assistant", "content": "Let me "}}]}),
                json!({"choices": [{"delta": {"content": "look", "tool_calls": [{"index": 0, "id": "c1",
                    "function": {"name": "shell", "arguments": "{\"cmd\": "}}]}}]}),
                json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "\"ls\"}"}}]},
                    "finish_reason": "tool_calls"}]}),
                json!({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 4}}),
            ] {
                wire.chunk(format!("data: {c}\n\n"))?;
            }
            wire.chunk("data: [DONE]\n\n")?;
            wire.chunk("")
        }
        "/v1/responses" => {
            let done = json!({"type": "response.completed", "response": {"id": "r", "object": "response",
                "status": "completed", "model": "gpt-x", "created_at": 1_700_000_000,
                "output": [{"type": "message", "role": "assistant",
                    "content": [{"type": "output_text", "text": "from responses"}]}],
                "usage": {"input_tokens": 11, "output_tokens": 4, "total_tokens": 15}}});
            wire.answer(
                200,
                EVENTS,
                format!("event: response.completed\ndata: {done}\n\n"),
            )
        }
        "/api/chat" => {
            wire.chunked(200, "Content-Type: application/x-ndjson\r\n")?;
            for c in [
                json!({"model": "gemma", "message": {"role": "assistant", "content": "from "}, "done": false}),
                json!({"model": "gemma", "message": {"role": "assistant", "content": "ollama"}, "done": false}),
                json!({"model": "gemma", "message": {"role": "assistant", "content": ""}, "done": true,
                    "done_reason": "stop", "prompt_eval_count": 11, "eval_count": 4}),
            ] {
                wire.chunk(format!("{c}\n"))?;
            }
            wire.chunk("")
        }
        other => panic!("asked for {other}"),
    });
    let home = Home::new();
    let mut server = proxy_to(&home, &upstream.url());
    let tools = json!([{"type": "function", "function": {"name": "shell"}}]);
    // Without headers a conversation is known by how it begins.
    let messages = |n: u8| json!([{"role": "user", "content": format!("what is here, {n}?")}]);
    for (path, body) in [
        (
            "/agents/a1/v1/chat/completions",
            json!({"model": "gpt-x", "stream": true, "tools": tools, "messages": messages(1)}),
        ),
        (
            "/agents/a2/providers/openai/responses",
            json!({"model": "gpt-x", "stream": true, "tools": [{"type": "function", "name": "shell"}],
                "input": "what is here, 2?"}),
        ),
        (
            "/agents/a3/providers/ollama/api/chat",
            json!({"model": "gemma", "stream": true, "tools": tools, "messages": messages(3)}),
        ),
    ] {
        assert_eq!(
            post(&format!("{}{path}", server.proxy), &body).status,
            200,
            "{path}"
        );
    }
    let mut texts: Vec<String> = sessions(&mut server, 3)
        .iter()
        .map(|i| {
            let (text, span) = answer_of(&server, i);
            assert_eq!(span["usage"]["prompt_tokens"], 11, "{span}");
            let title = i["display_title"].as_str().unwrap();
            assert!(title.starts_with("what is here, "), "{title}");
            text
        })
        .collect();
    texts.sort();
    assert!(
        texts
            .iter()
            .any(|t| t.contains("Let me look") && t.contains("shell")),
        "{texts:?}"
    );
    assert!(
        texts.iter().any(|t| t.contains("from responses")),
        "{texts:?}"
    );
    assert!(texts.iter().any(|t| t.contains("from ollama")), "{texts:?}");
}

#[test]
fn agents_are_told_apart_by_what_they_send() {
    let upstream = Upstream::start(|h, wire| match h.target.as_str() {
        "/v1/responses" => {
            let done = json!({"type": "response.completed", "response": {"object": "response", "status": "completed",
                "output": [{"type": "message", "content": [{"type": "output_text", "text": "ok"}]}]}});
            wire.answer(200, EVENTS, format!("data: {done}\n\n"))
        }
        _ => stream(wire, &["ok"]),
    });
    let home = Home::new();
    let mut server = proxy_to(&home, &upstream.url());
    let claude =
        "X-Claude-Code-Session-Id: c-1\r\nUser-Agent: claude-cli/2.1.197 (external, cli)\r\n";
    let mut main = request("the main question");
    main["system"] = json!("You are it.\nWorking directory: /home/ann/shop\nPlatform: linux");
    let send_as = |server: &Server, target: &str, headers: &str, body: &Value| {
        let mut s = ask(
            &server.proxy,
            target,
            &format!("{headers}Connection: close\r\n"),
            body.to_string().as_bytes(),
        );
        let mut all = Vec::new();
        s.read_to_end(&mut all).unwrap();
    };
    send_as(&server, "/v1/messages", claude, &main);
    let sub = format!("{claude}X-Claude-Code-Agent-Id: sub-7\r\n");
    send_as(
        &server,
        "/v1/messages",
        &sub,
        &request("the subagent's task"),
    );
    let mut old = request("an older client");
    old["metadata"] = json!({"user_id": "{\"session_id\":\"c-2\"}"});
    send_as(&server, "/v1/messages", "", &old);
    let codex = "session-id: x-1\r\nthread-id: x-1\r\noriginator: codex_exec\r\n";
    let asked = json!({"model": "gpt", "stream": true, "tools": [{"type": "function", "name": "f"}], "input": "codex asks"});
    send_as(&server, "/v1/responses", codex, &asked);
    let items = sessions(&mut server, 3);
    let of = |id: &str| {
        items
            .iter()
            .find(|i| i["harness_session_id"] == id)
            .unwrap()
    };
    assert_eq!(of("c-1")["harness_id"], "claude");
    assert_eq!(of("c-1")["harness_version"], "2.1.197");
    assert_eq!(of("c-1")["cwd"], "/home/ann/shop");
    assert_eq!(of("c-2")["harness_id"], "claude");
    assert_eq!(of("x-1")["harness_id"], "codex");
    let id = of("c-1")["id"].as_str().unwrap();
    let traces = get(&format!("{}/v1/sessions/{id}/traces", server.api)).body;
    assert!(
        traces.contains("sub-7"),
        "the subagent has a thread: {traces}"
    );
}

#[test]
fn two_hundred_streams_at_once() {
    const STREAMS: usize = 200;
    let all_here = Arc::new(Barrier::new(STREAMS));
    let upstream = Upstream::start(move |_, wire| {
        wire.chunked(200, EVENTS)?;
        let mut all = events(&["many"]).into_iter();
        wire.chunk(all.next().unwrap())?;
        all_here.wait();
        for e in all {
            wire.chunk(e)?;
        }
        wire.chunk("")
    });
    let home = Home::new();
    let mut server = proxy_to(&home, &upstream.url());
    std::thread::scope(|scope| {
        for n in 0..STREAMS {
            let proxy = server.proxy.clone();
            scope.spawn(move || {
                let headers = format!(
                    "X-Tapes-Harness-Id: h\r\nX-Tapes-Harness-Session-Id: s{}\r\n",
                    n % 4
                );
                let body = request(&format!("question {n}")).to_string();
                let mut s = ask(&proxy, "/v1/messages", &headers, body.as_bytes());
                read_until(&mut s, "0\r\n\r\n");
            });
        }
    });
    server.wait("all turns", |s| {
        (counted(s, "weft_capture_turns_total{provider=\"anthropic\"}") == STREAMS as u64)
            .then_some(())
    });
    assert_eq!(counted(&server, "weft_capture_held_bytes"), 0);
    assert_eq!(counted(&server, "weft_capture_open_turns"), 0);
}

#[test]
fn large_bodies_pass_and_are_not_held() {
    const SIZE: usize = 100 << 20;
    let upstream = Upstream::start(|h, wire| {
        let n = if h.header("x-case") == "answer" {
            SIZE
        } else {
            2
        };
        assert!(h.body.len() == SIZE || n == SIZE);
        wire.answer(200, JSON, vec![b' '; n])
    });
    let home = Home::new();
    let mut server = proxy_to(&home, &upstream.url());
    let url = format!("{}/v1/messages", server.proxy);
    assert_eq!(
        send("POST", &url, &[], Some(&vec![b' '; SIZE])).body.len(),
        2
    );
    assert_eq!(
        send("POST", &url, &[("x-case", "answer")], Some(b"{}"))
            .body
            .len(),
        SIZE
    );
    wait_dropped(&mut server, "request_over_budget", 2);
    assert_eq!(counted(&server, "weft_capture_held_bytes"), 0);
}

#[test]
fn a_locked_store_delays_no_answer_and_loses_no_turn() {
    let upstream = Upstream::start(|_, wire| stream(wire, &["ok"]));
    let home = Home::new();
    let mut server = proxy_to(&home, &upstream.url());
    if weft_testkit::shared_store() {
        // What a database that is away means for a turn is tested where the store is.
        return;
    }
    let lock = rusqlite::Connection::open(home.data().join("weft.db")).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    for n in 0..20 {
        let headers = [
            ("x-tapes-harness-id", "h"),
            ("x-tapes-harness-session-id", "s"),
        ];
        let body = request(&format!("question {n}")).to_string();
        let r = send(
            "POST",
            &format!("{}/v1/messages", server.proxy),
            &headers,
            Some(body.as_bytes()),
        );
        assert_eq!(r.status, 200);
    }
    assert_eq!(
        counted(&server, "weft_capture_turns_total{provider=\"anthropic\"}"),
        0
    );
    assert!(counted(&server, "weft_capture_held_bytes") > 0);
    lock.execute_batch("ROLLBACK").unwrap();
    server.wait("the turns", |s| {
        (counted(s, "weft_capture_turns_total{provider=\"anthropic\"}") == 20).then_some(())
    });
    assert_eq!(counted(&server, "weft_capture_held_bytes"), 0);
}

#[test]
fn who_may_use_it() {
    let upstream = Upstream::start(|h, wire| {
        assert_eq!(h.header("x-weft-token"), "");
        wire.answer(200, JSON, "{}")
    });
    let home = Home::new();
    let server = proxy_to(&home, &upstream.url());
    let url = format!("{}/v1/models", server.proxy);
    for (name, value, status) in [
        ("host", "evil.example", 403),
        ("origin", "https://evil.example", 403),
        ("origin", "http://localhost:3000", 200),
        ("authorization", "Bearer sk-of-the-provider", 200),
    ] {
        assert_eq!(
            send("GET", &url, &[(name, value)], None).status,
            status,
            "{name}: {value}"
        );
    }
    drop(server);
    // Other machines reach it: a token.
    let (code, text) = home.fails(&["serve", "proxy", "--listen", "0.0.0.0:0"]);
    assert!(code == 2 || code == 1);
    assert!(text.contains("WEFT_TOKEN"), "{text}");
    let mut server = Server::start_with(&home, &["proxy", "-l", "0.0.0.0:0"], |c| {
        c.env("WEFT_TOKEN", "open sesame")
            .env("WEFT_PROXY_PROVIDER", "openai")
            .env("WEFT_PROXY_UPSTREAM", upstream.url());
    });
    let url = format!("{}/v1/models", server.proxy.replace("0.0.0.0", "127.0.0.1"));
    assert_eq!(get(&url).status, 401);
    assert_eq!(
        send("GET", &url, &[("x-weft-token", "wrong")], None).status,
        401
    );
    assert_eq!(
        send("GET", &url, &[("x-weft-token", "open sesame")], None).status,
        200
    );
    assert_eq!(server.terminate(), 0);
}

#[test]
fn bad_settings_are_told() {
    let home = Home::new();
    for (args, want) in [
        (&["--upstream", "http://x"][..], "provider type is required"),
        (&["--provider", "bard"], "unknown provider type"),
        (
            &["--provider", "ollama", "--upstream", "localhost:1"],
            "http://",
        ),
    ] {
        let (code, text) = home.fails(&[&["serve", "proxy"], args].concat());
        assert!(code == 2 && text.contains(want), "{args:?}: {code} {text}");
    }
}
