//! A session is the same in whatever order its turns arrive, and however often it is derived between them.

use serde_json::{Value, json};

use crate::support::{Home, dump, home};

/// The turns of a session with tools, a subagent, a title call and a compaction, each later than the last.
fn turns() -> Vec<Value> {
    let mut all = Vec::new();
    let mut minute = 0;
    let mut turn = |id: &str, thread: &str, request: Value, blocks: Value| {
        minute += 1;
        let mut meta = json!({"request_id": id, "ts_request": format!("2026-06-01T12:{minute:02}:00Z"), "elapsed_seconds": 2.5});
        if !thread.is_empty() {
            meta["thread_id"] = json!(thread);
        }
        all.push(json!({"provider": "anthropic", "request": request,
            "response": {"model": "claude-x", "done": true, "stop_reason": "end_turn",
                "message": {"role": "assistant", "content": blocks},
                "usage": {"prompt_tokens": 10, "completion_tokens": 3}},
            "meta": meta, "session": {"harness_id": "claude", "harness_session_id": "s1", "cwd": "/w"}}));
    };
    let text = |t: &str| json!([{"type": "text", "text": t}]);
    let main = |messages: Value| json!({"model": "claude-x", "max_tokens": 100, "stream": true, "tools": [{"name": "Bash"}], "messages": messages});
    let call = |id: &str, name: &str, input: Value| json!([{"type": "text", "text": "I do."}, {"type": "tool_use", "tool_use_id": id, "tool_name": name, "tool_input": input}]);
    let asked = |id: &str, name: &str, input: Value| json!({"role": "assistant", "content": [{"type": "text", "text": "I do."}, {"type": "tool_use", "id": id, "name": name, "input": input}]});
    let result = |id: &str, output: &str| json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": output}]});
    let title = json!({"model": "claude-x", "max_tokens": 100, "system": "Reply with {\"title\": …}",
        "messages": [{"role": "user", "content": "first question"}]});
    turn("t0", "", title, text("{\"title\":\"A session\"}"));
    let mut history = vec![json!({"role": "user", "content": "first question"})];
    turn(
        "t1",
        "",
        main(json!(history)),
        call("c1", "Bash", json!({"command": "ls"})),
    );
    history.push(asked("c1", "Bash", json!({"command": "ls"})));
    history.push(result("c1", "a.txt"));
    turn(
        "t2",
        "",
        main(json!(history)),
        call("c2", "Task", json!({"prompt": "dig deeper"})),
    );
    history.push(asked("c2", "Task", json!({"prompt": "dig deeper"})));
    let deep = json!([{"role": "user", "content": "dig deeper"}]);
    turn(
        "u1",
        "sub",
        main(deep),
        call("c3", "Read", json!({"file_path": "/w/a.txt"})),
    );
    let deep = json!([{"role": "user", "content": "dig deeper"}, asked("c3", "Read", json!({"file_path": "/w/a.txt"})), result("c3", "x")]);
    turn("u2", "sub", main(deep), text("found x"));
    history.push(result("c2", "found x"));
    turn("t3", "", main(json!(history)), text("It is x."));
    history.push(json!({"role": "assistant", "content": "It is x."}));
    history.push(json!({"role": "user", "content": "second question"}));
    turn("t4", "", main(json!(history)), text("Yes."));
    let compacted = json!([{"role": "user", "content": "This session is being continued from a previous conversation. x was found."},
        {"role": "user", "content": "third question"}]);
    turn("t5", "", main(compacted), text("Again yes."));
    all
}

/// What is stored, without the numbers of rows.
fn told(h: &Home) -> String {
    let text = dump(&h.engine);
    let mut out = String::with_capacity(text.len());
    for (i, part) in text.split("raw_turn_id: ").enumerate() {
        let rest = match i {
            0 => part,
            _ => &part[part.find(", ").unwrap_or(0)..],
        };
        out.push_str(rest);
    }
    // Ids of sessions are their stores' own.
    let id = h
        .engine
        .store()
        .sessions_by_key(Some("claude"), "s1")
        .unwrap()[0]
        .row
        .id
        .clone();
    out.replace(&id, "ID")
}

#[test]
fn any_order_of_arrival_gives_the_same_session() {
    let turns = turns();
    let whole = home();
    for t in &turns {
        whole.engine.ingest_turn(t.to_string().as_bytes()).unwrap();
    }
    whole.derive();
    let want = told(&whole);
    assert!(
        want.contains("It is x.") && want.matches("SpanRow").count() > 10,
        "{want}"
    );
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |n: usize| {
        seed ^= seed >> 12;
        seed ^= seed << 25;
        seed ^= seed >> 27;
        (seed.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    };
    for round in 0..12 {
        let mut order: Vec<usize> = (0..turns.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, next(i + 1));
        }
        let h = home();
        for &i in &order {
            h.engine
                .ingest_turn(turns[i].to_string().as_bytes())
                .unwrap();
            // Some arrive twice, and some times everything is derived in between.
            if next(3) == 0 {
                h.engine
                    .ingest_turn(turns[i].to_string().as_bytes())
                    .unwrap();
            }
            if next(2) == 0 {
                h.derive();
            }
        }
        h.derive();
        let got = told(&h);
        let differs = want.lines().zip(got.lines()).find(|(a, b)| a != b);
        assert!(
            differs.is_none() && want.len() == got.len(),
            "round {round}, {order:?}: {differs:#?}"
        );
        // And a rebuild of everything changes nothing.
        h.engine.derive_all().unwrap();
        assert_eq!(told(&h), got, "round {round}");
    }
}
