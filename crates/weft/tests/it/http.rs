//! The HTTP surfaces: order of checks, error texts, shapes, limits, security.

use serde_json::{Value, json};

use crate::support::{Home, Server, get, post, quoted, send, turn};

/// Asks until the answer fits; derivation and embedding run behind the ingest.
fn until(s: &mut Server, what: &str, url: &str, fits: impl Fn(&Value) -> bool) -> Value {
    s.wait(what, |_| {
        let r = get(url);
        (r.status == 200).then(|| r.json()).filter(&fits)
    })
}

#[test]
fn from_ingest_to_search_over_http() {
    let home = Home::new();
    let mut s = Server::start(&home, &[]);
    assert_eq!(get(&format!("{}/ping", s.api)).body, "\"pong\"");
    assert_eq!(
        get(&format!("{}/ping", s.ingest)).json(),
        json!({"status": "ok"})
    );
    let r = post(
        &format!("{}/v1/ingest", s.ingest),
        &turn(
            "e2e",
            "req1",
            "fix the retry backoff",
            "set max-poll-backoff to 30s",
        ),
    );
    assert_eq!(
        (r.status, r.body.as_str()),
        (202, "{\"status\":\"accepted\"}")
    );
    let api = s.api.clone();
    let list = until(&mut s, "derivation", &format!("{api}/v1/sessions"), |v| {
        v["items"][0]["rollup"]["turn_count"] == 1
    });
    let item = &list["items"][0];
    assert_eq!(item["rollup"]["usage"]["input_tokens"], 25);
    assert_eq!(item["rollup"]["model"], "claude-sonnet-4-5");
    assert_eq!(item["display_title"], "fix the retry backoff");
    assert_eq!(item["live"], true);
    let url = format!(
        "{api}/v1/search/spans?query={}&top_k=3",
        quoted("retry backoff configuration")
    );
    let found = until(&mut s, "embedding", &url, |v| v["count"] == 1);
    let hit = &found["results"][0];
    assert_eq!(found["query"], "retry backoff configuration");
    assert_eq!(
        (&hit["trace_id"], &hit["span_id"]),
        (&json!("trc_req1"), &json!("llm_req1"))
    );
    assert_eq!(hit["user_prompt"], "fix the retry backoff");
    assert_eq!(
        hit["snippet"],
        "fix the retry backoff\nset max-poll-backoff to 30s"
    );
    assert_eq!(hit["started_at"], "2026-06-01T12:00:00Z");
    assert!(hit["score"].as_f64().unwrap() > 0.2);
    let names: Vec<&String> = hit.as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        [
            "trace_id",
            "span_id",
            "session_id",
            "score",
            "user_prompt",
            "snippet",
            "model",
            "started_at"
        ]
    );
    // The same handler under the spelling of newer clients, and the tenant header changes nothing.
    let twin = get(&url.replace("/v1/search/spans", "/v1/cassettes/search/spans"));
    assert_eq!(twin.json(), found);
    let other = send(
        "GET",
        &url,
        &[("X-Tapes-Org-Id", "11111111-1111-1111-1111-111111111111")],
        None,
    );
    assert_eq!(other.json(), found);
    let hybrid = get(&format!("{url}&mode=hybrid")).json();
    assert_eq!(hybrid["mode"], "hybrid");
    assert_eq!(hybrid["results"][0]["legs"].as_array().unwrap().len(), 2);
    // A hit can be opened.
    let id = hit["session_id"].as_str().unwrap();
    let traces = get(&format!("{api}/v1/sessions/{id}/traces")).json();
    assert_eq!(traces["schema"], "2026-06-15");
    assert_eq!(traces["traces"][0]["spans"][1]["span_id"], "llm_req1");
    assert_eq!(traces["traces"][0]["spans"][0]["input"], json!([]));
    assert_eq!(
        get(&format!("{api}/v1/traces/trc_req1")).json()["trace"]["span_count"],
        2
    );
    assert_eq!(
        get(&format!("{api}/v1/traces/trc_req1/spans/llm_req1")).json()["call_kind"],
        "main"
    );
    assert_eq!(
        get(&format!("{api}/v1/traces?session_id={id}")).json()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let raw = get(&format!("{api}/v1/sessions/{id}/raw_turns")).json();
    assert_eq!(raw["items"][0]["request_id"], "req1");
    let stats = get(&format!("{api}/v1/stats")).json();
    assert_eq!(
        (
            &stats["session_count"],
            &stats["turn_count"],
            &stats["completed_count"]
        ),
        (&json!(1), &json!(1), &json!(1))
    );
    let renamed = send(
        "PATCH",
        &format!("{api}/v1/sessions/{id}"),
        &[],
        Some(br#"{"display_name":" My session "}"#),
    );
    assert_eq!(renamed.json()["session"]["display_title"], "My session");
    assert!(
        get(&format!("{api}/metrics"))
            .body
            .contains("tapes_apiserver_requests_total")
    );
    assert!(
        get(&format!("{}/metrics", s.ingest))
            .body
            .contains("tapes_ingest_writes_total{provider=\"anthropic\",status=\"accepted\"} 1")
    );
    assert!(
        get(&format!("{api}/openapi")).json()["paths"]["/v1/search/spans"]["get"]["operationId"]
            == "searchSpans"
    );
    let run = post(&format!("{api}/v1/admin/derive/run"), &json!({}));
    assert_eq!(run.json()["orgs"]["default"]["parsed_turns"], 1);
    assert_eq!(
        send("DELETE", &format!("{api}/v1/sessions/{id}"), &[], None).status,
        204
    );
    assert_eq!(
        get(&format!("{api}/v1/sessions/{id}")).error(),
        "session not found"
    );
    assert_eq!(s.terminate(), 0, "{}", s.log.lock().unwrap());
}

#[test]
fn search_checks_in_the_documented_order() {
    let home = Home::new();
    let s = Server::start(&home, &["api"]);
    let ask = |q: &str| {
        let r = get(&format!("{}/v1/search/spans{q}", s.api));
        (r.status, r.error())
    };
    assert_eq!(ask(""), (400, "query parameter is required".into()));
    assert_eq!(ask("?query="), (400, "query parameter is required".into()));
    for bad in ["0", "-1", "1.5", "abc", "%205"] {
        assert_eq!(
            ask(&format!("?query=x&top_k={bad}")),
            (400, "top_k must be a positive integer".into()),
            "{bad}"
        );
    }
    let not_yet = "span embeddings not initialized: run the embed pass (tapes serve embed-worker or tapes dev embed-spans)";
    for good in [
        "?query=x",
        "?query=%20",
        "?query=x&top_k=",
        "?query=x&top_k=%2B7",
        "?query=x&top_k=007",
    ] {
        assert_eq!(ask(good), (503, not_yet.into()), "{good}");
    }
    home.ok(&["dev", "embed-spans"]);
    let r = get(&format!("{}/v1/search/spans?query=x", s.api));
    assert_eq!(
        (r.status, r.body.as_str()),
        (200, "{\"query\":\"x\",\"count\":0,\"results\":[]}")
    );
    assert_eq!(get(&format!("{}/v1/search", s.api)).status, 404);
    assert_eq!(
        send(
            "HEAD",
            &format!("{}/v1/search/spans?query=x", s.api),
            &[],
            None
        )
        .status,
        200
    );
    assert_eq!(
        send("POST", &format!("{}/v1/search/spans", s.api), &[], None).status,
        405
    );
    let cassette = get(&format!(
        "{}/v1/cassettes/search/spans?query=x&top_k=101",
        s.api
    ));
    assert_eq!(
        cassette.error(),
        "top_k must be a positive integer no greater than 100"
    );
}

#[test]
fn without_an_embedder_search_is_not_configured_and_the_rest_runs() {
    let home = Home::new();
    let s = Server::start(&home, &["--embedding-provider", "openai"]);
    let r = get(&format!("{}/v1/search/spans", s.api));
    assert_eq!(
        (r.status, r.error().as_str()),
        (
            503,
            "span search is not configured: embedder and span embedding store are required"
        )
    );
    assert_eq!(
        get(&format!("{}/v1/sessions", s.api)).json(),
        json!({"items": []})
    );
    assert!(s.log.lock().unwrap().contains("OPENAI_API_KEY is required"));
}

#[test]
fn ingest_refuses_what_it_cannot_read() {
    let home = Home::new();
    let s = Server::start(&home, &["ingest"]);
    let url = format!("{}/v1/ingest", s.ingest);
    let json_type = [("content-type", "application/json")];
    let r = send("POST", &url, &json_type, Some(b"{"));
    assert_eq!(r.status, 400);
    assert!(r.error().starts_with("invalid envelope: "));
    for headers in [&[("content-type", "text/plain")][..], &[]] {
        let r = send("POST", &url, headers, Some(b"{}"));
        assert_eq!(
            (r.status, r.error().as_str()),
            (400, "invalid envelope: Unprocessable Entity")
        );
    }
    let r = send(
        "POST",
        &url,
        &[("content-type", "Application/vnd.x+JSON; charset=utf-8")],
        Some(turn("s", "r", "a", "b").to_string().as_bytes()),
    );
    assert_eq!(r.status, 202);
    let mut unknown = turn("s", "r2", "a", "b");
    unknown["provider"] = json!("x");
    let r = post(&url, &unknown);
    assert_eq!(
        (r.status, r.error().as_str()),
        (
            422,
            "unprocessable turn: unsupported provider \"x\" (supported: [anthropic openai ollama])"
        )
    );
    let big = vec![b' '; 48_933_547];
    let r = send("POST", &url, &json_type, Some(&big));
    assert_eq!(
        (r.status, r.error().as_str()),
        (413, "request body exceeds the ingest size limit")
    );
    let transcripts = format!("{url}/transcript");
    let r = post(&transcripts, &json!({"records": []}));
    assert_eq!(
        r.error(),
        "invalid envelope: transcript ingest requires session.harness_session_id"
    );
    let r = post(
        &transcripts,
        &json!({"session": {"harness_session_id": "s"}, "records": 3}),
    );
    assert!(
        r.error()
            .starts_with("invalid envelope: records must be a JSON array: "),
        "{}",
        r.body
    );
    let body =
        json!({"session": {"harness_session_id": "s"}, "agent_id": "a", "records": [{}, {}]});
    assert_eq!(
        post(&transcripts, &body).json(),
        json!({"status": "accepted", "deduped": false, "records": 2, "agent_id": "a"})
    );
    assert_eq!(post(&transcripts, &body).json()["deduped"], true);
    assert_eq!(send("GET", &url, &[], None).status, 405);
    assert_eq!(get(&format!("{}/v1/ingest/batch", s.ingest)).status, 404);
    let metrics = get(&format!("{}/metrics", s.ingest)).body;
    for line in [
        "provider=\"unknown\",status=\"reject_oversize\"} 1",
        "provider=\"unknown\",status=\"reject_envelope\"",
        "provider=\"transcript\",status=\"accepted\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[test]
fn split_services_share_one_store_and_show_their_counters() {
    let home = Home::new();
    let s = Server::start(&home, &["ingest"]);
    post(
        &format!("{}/v1/ingest", s.ingest),
        &turn("e2e", "req1", "split question", "split answer"),
    );
    let worker = |args: &[&str]| {
        let mut all = vec!["serve"];
        all.extend(args);
        all.extend(["--metrics-listen", "127.0.0.1:0", "--log-format", "json"]);
        let mut child = home
            .command(&all)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines =
            std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let url = loop {
            let line = lines.next().unwrap().unwrap();
            // Structured logs are one JSON object a line.
            let v: Value = serde_json::from_str(&line).unwrap();
            let text = v["fields"]["message"].as_str().unwrap().to_owned();
            if let Some(at) = text.find("http://") {
                break text[at..].to_owned();
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        (child, url)
    };
    let (mut derive, derive_url) = worker(&[
        "derive-worker",
        "--debounce",
        "0s",
        "--poll-interval",
        "100ms",
    ]);
    let (mut embed, embed_url) = worker(&["embed-worker", "--interval", "200ms"]);
    let mut api = Server::start(&home, &["api", "--project", "shop", "--api-web-ui"]);
    let url = format!("{}/v1/search/spans?query=split", api.api);
    until(&mut api, "both workers", &url, |v| v["count"] == 1);
    assert!(api.log.lock().unwrap().contains("--project is ignored"));
    for base in [&derive_url, &embed_url] {
        assert_eq!(get(&format!("{base}/ping")).body, "pong");
        assert_eq!(get(&format!("{base}/healthz")).body, "ok");
        assert_eq!(get(&format!("{base}/readyz")).status, 200);
    }
    // A worker counts what it has done a moment after others can see it.
    for (base, counter) in [
        (
            &derive_url,
            "tapes_derive_worker_derives_total{result=\"ok\"} 1",
        ),
        (&embed_url, "tapes_embed_worker_spans_embedded_total 1"),
    ] {
        api.wait(counter, |_| {
            let text = get(&format!("{base}/metrics")).body;
            text.contains(counter).then_some(())
        });
    }
    for child in [&mut derive, &mut embed] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn seeding_is_idempotent_and_marked() {
    let home = Home::new();
    let s = Server::start(&home, &["api"]);
    let url = format!("{}/v1/admin/seed/demo", s.api);
    let first = post(&url, &json!({})).json();
    assert_eq!(
        (&first["sessions"], &first["raw_turns_deduped"]),
        (&json!(2), &json!(0))
    );
    assert_eq!(first["raw_turns"], first["raw_turns_inserted"]);
    let second = send("POST", &url, &[], None).json();
    assert_eq!(
        (&second["raw_turns_inserted"], &second["raw_turns_deduped"]),
        (&json!(0), &first["raw_turns"])
    );
    let list = get(&format!("{}/v1/sessions", s.api)).json();
    for item in list["items"].as_array().unwrap() {
        assert_eq!(item["harness_metadata"]["demo"], true);
        assert!(item["rollup"]["turn_count"].as_i64().unwrap() >= 4);
    }
    assert_eq!(
        post(&url, &json!({"overwrite": true})).error(),
        "overwrite is no longer supported; seeding is idempotent against the raw layer"
    );
}

#[test]
fn lists_validate_sort_and_page() {
    let home = Home::new();
    let mut s = Server::start(&home, &[]);
    for i in 0..5 {
        post(
            &format!("{}/v1/ingest", s.ingest),
            &turn(&format!("s{i}"), &format!("r{i}"), "a", "b"),
        );
    }
    let api = s.api.clone();
    until(&mut s, "derivation", &format!("{api}/v1/stats"), |v| {
        v["turn_count"] == 5
    });
    let error = |q: &str| get(&format!("{api}/v1/sessions?{q}")).error();
    for (q, want) in [
        ("limit=0", "limit must be a positive integer"),
        ("sort=x", "invalid sort field"),
        ("direction=x", "invalid direction"),
        ("cursor=%25", "invalid cursor"),
        ("since=yesterday", "since must be an RFC3339 timestamp"),
        ("until=x", "until must be an RFC3339 timestamp"),
        ("harness_id=x", "harness_id requires harness_session_id"),
        (
            "harness_session_id=x&cursor=y",
            "cursor cannot be combined with the harness filter",
        ),
        (
            "harness_session_id=x&sort=y&until=z",
            "sort, until cannot be combined with the harness filter",
        ),
    ] {
        assert!(error(q).starts_with(want), "{q}: {}", error(q));
    }
    for sort in [
        "last_active",
        "started_at",
        "turn_count",
        "total_cost_usd",
        "total_tokens",
        "duration_ns",
        "derived_status",
        "auth_subject",
    ] {
        for direction in ["asc", "desc"] {
            let (mut seen, mut cursor) = (Vec::new(), String::new());
            loop {
                let page = get(&format!(
                    "{api}/v1/sessions?limit=2&sort={sort}&direction={direction}&cursor={cursor}"
                ))
                .json();
                for i in page["items"].as_array().unwrap() {
                    seen.push(i["id"].as_str().unwrap().to_owned());
                }
                match page["next_cursor"].as_str() {
                    Some(c) => cursor = c.to_owned(),
                    None => break,
                }
            }
            let distinct: std::collections::HashSet<_> = seen.iter().collect();
            assert_eq!((seen.len(), distinct.len()), (5, 5), "{sort} {direction}");
        }
    }
    let one = get(&format!("{api}/v1/sessions?harness_session_id=s3")).json();
    assert_eq!(one["items"][0]["harness_session_id"], "s3");
    assert_eq!(
        get(&format!("{api}/v1/sessions/x")).error(),
        "id must be a valid UUID"
    );
    let missing = "00000000-0000-4000-8000-000000000000";
    assert_eq!(get(&format!("{api}/v1/sessions/{missing}")).status, 404);
    assert_eq!(
        get(&format!("{api}/v1/traces")).error(),
        "session_id parameter required"
    );
    assert_eq!(
        get(&format!("{api}/v1/traces/nope")).error(),
        "trace not found"
    );
    assert_eq!(
        get(&format!("{api}/v1/traces/trc_r1/spans/nope")).error(),
        "span not found"
    );
    let id = one["items"][0]["id"].as_str().unwrap();
    let patch = |body: &str| {
        send(
            "PATCH",
            &format!("{api}/v1/sessions/{id}"),
            &[],
            Some(body.as_bytes()),
        )
        .error()
    };
    assert_eq!(patch("nonsense"), "invalid request body");
    assert_eq!(patch("{}"), "display_name is required");
    assert_eq!(
        patch("{\"display_name\":3}"),
        "display_name must be a string or null"
    );
    assert_eq!(
        patch(&json!({"display_name": "x".repeat(201)}).to_string()),
        "display_name must be at most 200 characters"
    );
    // UUIDs are read in any spelling.
    let upper = id.replace('-', "").to_uppercase();
    assert_eq!(get(&format!("{api}/v1/sessions/{upper}")).status, 200);
}

#[test]
fn hosts_origins_and_request_ids_are_checked() {
    let home = Home::new();
    let s = Server::start(&home, &["api"]);
    let url = format!("{}/v1/sessions", s.api);
    assert_eq!(
        send("GET", &url, &[("Host", "evil.example")], None).status,
        403
    );
    assert_eq!(
        send("GET", &url, &[("Origin", "https://evil.example")], None).status,
        403
    );
    assert_eq!(
        send("GET", &url, &[("Origin", "http://localhost:3000")], None).status,
        200
    );
    let id = "936da01f-9abd-4d9d-80c7-02af85c822a8";
    assert_eq!(
        send("GET", &url, &[("X-Request-Id", id)], None).header("x-request-id"),
        id
    );
    assert_ne!(
        send("GET", &url, &[("X-Request-Id", "mine")], None).header("x-request-id"),
        "mine"
    );
    let r = get(&format!("{}/nowhere", s.api));
    assert_eq!((r.status, r.body.as_str()), (404, "Cannot GET /nowhere"));
    let r = post(&format!("{}/v1/ingest", s.api), &json!({}));
    assert!(r.status == 404 && r.body.contains(":8082"), "{}", r.body);
}

#[test]
fn other_machines_need_a_token() {
    let home = Home::new();
    let o = home.run(&["serve", "api", "--listen", "0.0.0.0:0"]);
    assert!(!o.status.success());
    assert!(String::from_utf8_lossy(&o.stderr).contains("WEFT_TOKEN"));
    let s = Server::start_with(&home, &["api"], |c| {
        c.env("WEFT_TOKEN", "s3cret-token");
    });
    let url = format!("{}/v1/sessions", s.api);
    assert_eq!(get(&url).status, 401);
    assert_eq!(
        send("GET", &url, &[("Authorization", "Bearer wrong")], None).status,
        401
    );
    assert_eq!(
        send(
            "GET",
            &url,
            &[("Authorization", "Bearer s3cret-token")],
            None
        )
        .status,
        200
    );
    assert!(!s.log.lock().unwrap().contains("s3cret"));
}

#[test]
fn a_store_that_cannot_be_written_is_a_503_and_nothing_is_acknowledged() {
    // The limit is one on files of this process; a full disk of the database has its own test.
    if weft_testkit::shared_store() {
        return;
    }
    let home = Home::new();
    home.ok(&["status"]);
    // A limit on the size of files stands for a full disk.
    let mut s = Server::start_with(&home, &["ingest"], |c| {
        let inner = std::mem::replace(c, std::process::Command::new("bash"));
        let mut line = String::from("trap '' XFSZ; ulimit -f 400; exec");
        for a in std::iter::once(inner.get_program()).chain(inner.get_args()) {
            line.push_str(&format!(" '{}'", a.to_string_lossy()));
        }
        c.arg("-c").arg(line).env_clear();
        for (k, v) in inner.get_envs() {
            if let Some(v) = v {
                c.env(k, v);
            }
        }
        c.current_dir(home.path())
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped());
    });
    let url = format!("{}/v1/ingest", s.ingest);
    let (mut accepted, mut refused) = (0, 0);
    for i in 0..60 {
        // Texts that do not compress.
        let noise: String = (0..20_000_u64)
            .map(|n| char::from(b'a' + ((n * n + n / 7 + i * 31) % 26) as u8))
            .collect();
        let hash = weft_core::hash::sha256_hex(format!("{i}").as_bytes());
        let r = post(
            &url,
            &turn(
                "s",
                &format!("r{i}"),
                &format!("{hash}{noise}"),
                &hash.repeat(200),
            ),
        );
        match r.status {
            202 => accepted += 1,
            503 => {
                refused += 1;
                assert_eq!(r.header("retry-after"), "1");
                assert!(r.error().starts_with("storage failure: "), "{}", r.body);
            }
            other => panic!("{other}: {}", r.body),
        }
    }
    assert!(refused > 0, "the limit was never reached");
    s.terminate();
    let stored = home.json(&["status", "--json"])["raw_turns"]
        .as_u64()
        .unwrap();
    assert!(
        stored >= accepted,
        "{stored} stored, {accepted} acknowledged"
    );
}

#[test]
fn attribution_is_repaired_over_the_raw_turns() {
    let home = Home::new();
    let mut s = Server::start(&home, &[]);
    let (api, ingest) = (s.api.clone(), format!("{}/v1/ingest", s.ingest));
    let mut one = turn("wrong", "r1", "first question", "first answer");
    one["session"]["harness_metadata"] = json!({"paperProxyRequestId": "px-1"});
    one["session"]["cwd"] = json!("/home/ann");
    for body in [
        &one,
        &turn("wrong", "r2", "second question", "second answer"),
    ] {
        assert_eq!(post(&ingest, body).status, 202);
    }
    until(&mut s, "derivation", &format!("{api}/v1/sessions"), |v| {
        v["items"][0]["rollup"]["turn_count"] == 2
    });
    let url = format!("{api}/v1/admin/raw-turns/attribution-repair");
    let target = json!({"harness_id": "e2e-harness", "harness_session_id": "right", "thread_id": "", "reason": "proxy restarted"});
    let with = |more: Value| {
        let mut b = target.clone();
        for (k, v) in more.as_object().unwrap() {
            b[k] = v.clone();
        }
        post(&url, &b)
    };
    let faults = [
        (
            json!({}),
            400,
            "exactly one of raw_turn_id or paper_proxy_request_id is required",
        ),
        (
            json!({"raw_turn_id": 1, "paper_proxy_request_id": "x"}),
            400,
            "exactly one of raw_turn_id or paper_proxy_request_id is required",
        ),
        (
            json!({"raw_turn_id": 1, "harness_id": ""}),
            400,
            "harness_id is required",
        ),
        (
            json!({"raw_turn_id": 1, "harness_session_id": null}),
            400,
            "harness_session_id is required",
        ),
        (
            json!({"raw_turn_id": 1, "parent_harness_session_id": ""}),
            400,
            "parent_harness_session_id must be omitted instead of empty",
        ),
        (
            json!({"raw_turn_id": 1, "parent_harness_session_id": "right"}),
            400,
            "a session cannot parent itself",
        ),
        (
            json!({"raw_turn_id": 1, "reason": ""}),
            400,
            "reason is required",
        ),
        (json!({"raw_turn_id": 999_999}), 404, "raw turn not found"),
        (
            json!({"paper_proxy_request_id": "nobody"}),
            404,
            "raw turn not found",
        ),
    ];
    for (body, status, text) in faults {
        let r = with(body.clone());
        assert_eq!((r.status, r.error().as_str()), (status, text), "{body}");
    }
    let r = with(json!({"paper_proxy_request_id": "px-1"}));
    assert_eq!(r.status, 200, "{}", r.body);
    let done = r.json();
    let id = done["effective"]["raw_turn_id"].clone();
    assert_eq!(done["recorded"], true);
    assert_eq!(done["previous"]["harness_session_id"], "wrong");
    assert_eq!(done["effective"]["harness_session_id"], "right");
    let list = get(&format!("{api}/v1/sessions?sort=started_at&direction=asc")).json();
    let of = |list: &Value, key: &str| {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|i| i["harness_session_id"] == key)
            .cloned()
    };
    let right = of(&list, "right").expect("the target session");
    assert_eq!(
        (&right["rollup"]["turn_count"], &right["cwd"]),
        (&json!(1), &json!("/home/ann"))
    );
    assert_eq!(of(&list, "wrong").unwrap()["rollup"]["turn_count"], 1);
    let raw = get(&format!(
        "{api}/v1/sessions/{}/raw_turns",
        right["id"].as_str().unwrap()
    ))
    .json();
    assert_eq!(raw["items"].as_array().unwrap().len(), 1);
    // Again: it is so already. A thread of its own: recorded, and shown.
    assert_eq!(with(json!({"raw_turn_id": id})).json()["recorded"], false);
    assert_eq!(
        with(json!({"raw_turn_id": id, "thread_id": "t7"})).json()["recorded"],
        true
    );
    let raw = get(&format!(
        "{api}/v1/sessions/{}/raw_turns",
        right["id"].as_str().unwrap()
    ))
    .json();
    assert_eq!(raw["items"][0]["meta"]["thread_id"], "t7");
    assert_eq!(with(json!({"raw_turn_id": id})).json()["recorded"], true);
    // The last turn moves, too: nothing is left of the source.
    let list = get(&format!("{api}/v1/sessions")).json();
    let wrong = of(&list, "wrong").unwrap();
    let left = get(&format!(
        "{api}/v1/sessions/{}/raw_turns",
        wrong["id"].as_str().unwrap()
    ))
    .json();
    let last = left["items"][0]["id"].clone();
    assert_eq!(
        with(json!({"raw_turn_id": last, "parent_harness_session_id": "root"})).status,
        200
    );
    let list = get(&format!("{api}/v1/sessions")).json();
    assert_eq!(of(&list, "wrong"), None);
    assert_eq!(of(&list, "right").unwrap()["rollup"]["turn_count"], 2);
    // Rebuilding everything changes nothing, and neither does the turn sent again.
    assert_eq!(
        post(&format!("{api}/v1/admin/derive/run"), &json!({})).status,
        200
    );
    let again = get(&format!("{api}/v1/sessions")).json();
    assert_eq!(
        of(&again, "right").unwrap()["rollup"],
        of(&list, "right").unwrap()["rollup"]
    );
}
