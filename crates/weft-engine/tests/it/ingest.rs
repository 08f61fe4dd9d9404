//! Ingest: what is stored, what is refused, what is redacted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use weft_engine::{IngestError, Mode, SessionKey};

use crate::support::{home, turn};

fn key(session: &str) -> SessionKey {
    SessionKey {
        harness_id: "claude".into(),
        harness_session_id: session.into(),
    }
}

#[test]
fn a_turn_becomes_a_session_with_a_trace() {
    let h = home();
    h.turn(
        "s1",
        "req1",
        "fix the retry backoff",
        "set max-poll-backoff to 30s",
    );
    h.derive();
    let s = &h.engine.store().sessions_by_key(None, "s1").unwrap()[0];
    assert_eq!(s.rollup.turn_count, 1);
    assert_eq!((s.rollup.input_tokens, s.rollup.output_tokens), (10, 5));
    assert_eq!(s.rollup.status, "completed");
    let t = &h.engine.store().traces(&s.row.id).unwrap()[0];
    assert_eq!(t.trace.trace_id, "trc_req1");
    assert_eq!(t.trace.user_prompt, "fix the retry backoff");
}

#[test]
fn a_request_id_is_stored_once_and_an_empty_one_always() {
    let h = home();
    for _ in 0..3 {
        h.turn("s1", "req1", "a", "b");
        h.turn("s1", "", "a", "b");
    }
    assert_eq!(h.engine.store().count_turns().unwrap(), 4);
}

#[test]
fn unprocessable_turns_are_stored_and_refused() {
    let h = home();
    let refused = |v: serde_json::Value| {
        h.engine
            .ingest_turn(v.to_string().as_bytes())
            .expect_err("refused")
            .to_string()
    };
    let mut unknown = turn("s1", "r1", "a", "b");
    unknown["provider"] = json!("x");
    assert_eq!(
        refused(unknown),
        "unprocessable turn: unsupported provider \"x\" (supported: [anthropic openai ollama])"
    );
    let mut empty = turn("s1", "r2", "a", "b");
    empty["response"] = json!(null);
    assert_eq!(
        refused(empty),
        "unprocessable turn: invalid reduced response: missing response.message.role"
    );
    let mut untyped = turn("s1", "r3", "a", "b");
    untyped["response"]["message"]["content"] = json!([{"text": "x"}]);
    assert_eq!(
        refused(untyped),
        "unprocessable turn: invalid reduced response: missing response.message.content[0].type"
    );
    let mut bad = turn("s1", "r4", "a", "b");
    bad["request"] = json!({"messages": "x"});
    assert!(refused(bad).starts_with("unprocessable turn: cannot parse request: "));
    let stored = h.engine.store().count_turns().unwrap();
    assert_eq!(stored, 4);
    let e = h.engine.ingest_turn(b"{").expect_err("refused");
    assert!(matches!(e, IngestError::Envelope(_)));
    assert_eq!(h.engine.store().count_turns().unwrap(), stored);
    // None of them made a session.
    assert!(
        h.engine
            .store()
            .sessions_by_key(None, "s1")
            .unwrap()
            .is_empty()
    );
}

#[test]
fn without_a_session_block_nothing_is_derived() {
    let h = home();
    let mut t = turn("s1", "r1", "a", "b");
    t.as_object_mut().unwrap().remove("session");
    h.engine.ingest_turn(t.to_string().as_bytes()).unwrap();
    assert_eq!(h.engine.store().count_turns().unwrap(), 1);
    assert_eq!(h.engine.store().queue_depth().unwrap(), 0);
}

#[test]
fn a_session_without_an_id_is_named_by_its_root() {
    let h = home();
    let mut t = turn("", "r1", "a", "b");
    t["session"] = json!({"harness_id": "scratch"});
    h.engine.ingest_turn(t.to_string().as_bytes()).unwrap();
    h.derive();
    let (all, _) = h
        .engine
        .store()
        .list_sessions(&weft_engine::ListQuery {
            limit: 5,
            ..Default::default()
        })
        .unwrap();
    assert_eq!(all[0].row.key.harness_session_id.len(), 16);
    assert_eq!(all[0].rollup.turn_count, 1);
}

#[test]
fn raw_only_turns_are_reduced_stamped_and_derived() {
    let h = home();
    let sse = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m1\",\"model\":\"claude-x\",\"role\":\"assistant\",\"usage\":{\"input_tokens\":3,\"cache_read_input_tokens\":4}}}\n\n\
        event: content_block_start\ndata: {\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
        event: content_block_delta\ndata: {\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"the key set was stale\"}}\n\n\
        event: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}\n\n\
        event: message_stop\ndata: {}\n\n";
    let mut t = turn("s1", "r1", "why?", "");
    t["response"] = json!(null);
    t["raw_response"] = json!(STANDARD.encode(sse));
    t["meta"] = json!({"request_id": "r1", "content_type": "text/event-stream", "elapsed_seconds": 2.5,
        "captured_at": "2026-06-01T12:00:10Z"});
    h.engine.ingest_turn(t.to_string().as_bytes()).unwrap();
    h.derive();
    let s = &h.engine.store().sessions_by_key(None, "s1").unwrap()[0];
    let spans = h.engine.store().session_spans(&s.row.id).unwrap();
    let llm = spans.iter().find(|s| s.kind == "llm").unwrap();
    assert!(
        llm.output
            .as_ref()
            .unwrap()
            .contains("the key set was stale")
    );
    assert_eq!(llm.duration_ns, 2_500_000_000);
    assert_eq!(
        weft_core::time::format_micros(llm.started_at),
        "2026-06-01T12:00:07.5Z"
    );
    let usage: serde_json::Value = serde_json::from_str(llm.usage.as_ref().unwrap()).unwrap();
    assert_eq!(usage["prompt_tokens"], 7);
}

#[test]
fn bytes_that_no_reducer_reads_are_kept_and_refused() {
    let h = home();
    let mut t = turn("s1", "r1", "why?", "");
    t["response"] = json!({});
    t["raw_response"] = json!(STANDARD.encode("not json"));
    let e = h
        .engine
        .ingest_turn(t.to_string().as_bytes())
        .expect_err("refused");
    assert!(e.to_string().contains("missing response.message.role"));
    let row = h.engine.store().turn(1).unwrap().unwrap();
    assert_eq!(row.raw_response.as_deref(), Some(&b"not json"[..]));
}

#[test]
fn secrets_are_gone_before_anything_is_written() {
    let h = home();
    let secret = format!("ghp_{}", "a1".repeat(18));
    let mut t = turn(
        "s1",
        "r1",
        &format!("use {secret} please"),
        &format!("used {secret}"),
    );
    t["request"]["messages"]
        .as_array_mut()
        .unwrap()
        .push(json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": format!("TOKEN={secret}")}]}));
    t["raw_response"] = json!(STANDARD.encode(format!("data: {secret}")));
    t["session"]["harness_metadata"] = json!({"note": secret});
    h.engine.ingest_turn(t.to_string().as_bytes()).unwrap();
    h.settle();
    let row = h.engine.store().turn(1).unwrap().unwrap();
    assert_eq!(row.raw_response, None);
    assert!(row.raw_response_dropped);
    drop(h.engine);
    for file in ["weft.db", "weft.db-wal", "index.db", "index.db-wal"] {
        if let Ok(bytes) = std::fs::read(h.dir.path().join(file)) {
            let found = bytes.windows(secret.len()).any(|w| w == secret.as_bytes());
            assert!(!found, "{file}");
        }
    }
}

#[test]
fn odd_unicode_is_stored() {
    let h = home();
    let body = turn("s1", "r1", "PLACE", "fine")
        .to_string()
        .replace("PLACE", "a\\u0000b\\ud800c");
    h.engine.ingest_turn(body.as_bytes()).unwrap();
    h.settle();
    let a = h.search("fine", Mode::Lexical);
    assert_eq!(a.hits[0].user_prompt, "a\u{fffd}b\u{fffd}c");
}

#[test]
fn transcripts_dedupe_by_their_bytes_and_say_so() {
    let h = home();
    let body = br#"{"session":{"harness_session_id":"s1","harness_id":"claude"},"agent_id":"a1","records":[{"x":1}]}"#;
    let first = h.engine.ingest_transcript(body, "").unwrap();
    assert_eq!(
        (first.deduped, first.records, first.agent_id.as_str()),
        (false, 1, "a1")
    );
    assert!(h.engine.ingest_transcript(body, "").unwrap().deduped);
    // A transcript alone makes no session, and a row that is odd stops nothing.
    h.turn("s1", "r1", "a", "b");
    h.engine
        .ingest_transcript(br#"{"session":{"harness_session_id":"s1","harness_id":"claude"},"records":[{"message":3}, 7]}"#, "")
        .unwrap();
    h.derive();
    assert_eq!(h.engine.store().turn_index(&key("s1")).unwrap().len(), 3);
    assert_eq!(
        h.engine.store().sessions_by_key(None, "s1").unwrap()[0]
            .rollup
            .turn_count,
        1
    );
}

#[test]
fn m28_a_session_of_many_spans_is_listed_and_searched() {
    let h = home();
    for i in 0..300 {
        h.turn(
            "s1",
            &format!("r{i}"),
            &format!("question number {i}"),
            &format!("answer number {i}"),
        );
    }
    h.settle();
    let s = &h.engine.store().sessions_by_key(None, "s1").unwrap()[0];
    assert_eq!(s.rollup.turn_count, 300);
    assert_eq!(
        h.engine.store().session_spans(&s.row.id).unwrap().len(),
        600
    );
    assert_eq!(
        h.search("question number 177", Mode::Hybrid).hits[0].trace_id,
        "trc_r177"
    );
}
