//! The worked example of the specification (4.12) and the rules around it.

use serde_json::{Value, json};
use weft_core::block::ChatResponse;
use weft_core::derive::{Deriver, Projection, TurnRow};

pub(crate) fn row(id: i64, request_id: &str, at: &str, request: Value, response: Value) -> TurnRow {
    TurnRow {
        id,
        source: "wire".into(),
        provider: "anthropic".into(),
        request_id: request_id.into(),
        request,
        response: Some(serde_json::from_value::<ChatResponse>(response).unwrap()),
        meta: json!({"ts_request": at}).as_object().unwrap().clone(),
        fidelity: "reduced",
        ..TurnRow::default()
    }
}

fn request(messages: Value) -> Value {
    json!({"model": "claude-sonnet-4-5", "stream": true, "max_tokens": 100,
           "tools": [{"name": "Bash"}], "messages": messages})
}

fn first() -> TurnRow {
    row(
        1,
        "req1",
        "2026-06-01T12:00:00Z",
        request(json!([{"role": "user", "content": "fix the retry backoff"}])),
        json!({"model": "claude-sonnet-4-5", "done": true, "stop_reason": "tool_use", "message": {"role": "assistant", "content": [
            {"type": "text", "text": "looking"},
            {"type": "tool_use", "tool_use_id": "toolu_9", "tool_name": "Bash", "tool_input": {"command": "rg backoff"}}]}}),
    )
}

fn second(id: i64, request_id: &str) -> TurnRow {
    row(
        id,
        request_id,
        "2026-06-01T12:00:05Z",
        request(json!([
            {"role": "user", "content": "fix the retry backoff"},
            {"role": "assistant", "content": [
                {"type": "text", "text": "looking"},
                {"type": "tool_use", "id": "toolu_9", "name": "Bash", "input": {"command": "rg backoff"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_9", "content": "ok"}]}])),
        json!({"model": "claude-sonnet-4-5", "done": true, "stop_reason": "end_turn", "message": {"role": "assistant",
            "content": [{"type": "text", "text": "set max-poll-backoff to 30s"}]}}),
    )
}

fn derive(rows: Vec<TurnRow>) -> Projection {
    let mut d = Deriver::new("claude");
    for r in rows {
        d.add_turn(r);
    }
    d.finish()
}

#[test]
fn two_calls_of_one_turn() {
    let p = derive(vec![first(), second(2, "req2")]);
    assert_eq!(p.traces.len(), 1);
    let t = &p.traces[0];
    assert_eq!(t.trace_id, "trc_req1");
    assert_eq!(t.user_prompt, "fix the retry backoff");
    assert_eq!(t.response_preview, "set max-poll-backoff to 30s");
    let ids: Vec<&str> = t.spans.iter().map(|s| s.span_id.as_str()).collect();
    assert_eq!(ids, ["agent_main_req1", "llm_req1", "toolu_9", "llm_req2"]);
    assert_eq!(t.spans[1].input.len(), 1);
    assert_eq!(t.spans[2].parent_span_id, "agent_main_req1");
    assert_eq!(t.spans[2].output[0].tool_output, "ok");
    assert_eq!(t.spans[2].duration_ns, 5_000_000_000);
    assert!(t.spans[3].input.is_empty());
    let links: Vec<String> = p
        .links
        .iter()
        .map(|l| format!("{} {}->{}", l.kind, l.from_span_id, l.to_span_id))
        .collect();
    assert_eq!(
        links,
        ["emits llm_req1->toolu_9", "feeds toolu_9->llm_req2"]
    );
    assert_eq!(p.rollup.turn_count, 1);
    assert_eq!(p.rollup.status, "completed");
    assert_eq!(
        weft_core::render::span_text(&t.spans[1].input, &t.spans[1].output),
        "fix the retry backoff\nlooking"
    );
    assert_eq!(
        weft_core::render::span_text(&t.spans[3].input, &t.spans[3].output),
        "set max-poll-backoff to 30s"
    );
}

#[test]
fn a_call_sent_again_under_another_id_opens_no_trace() {
    let p = derive(vec![first(), second(2, "req2"), second(3, "req2b")]);
    assert_eq!(p.traces.len(), 1);
    let last = p.traces[0].spans.last().unwrap();
    assert_eq!(last.span_id, "llm_req2b");
    assert!(last.input.is_empty());
    assert_eq!(last.node_hash, p.traces[0].spans[3].node_hash);
}

#[test]
fn a_row_without_request_id_is_named_by_its_answer() {
    let mut r = first();
    r.request_id.clear();
    let p = derive(vec![r]);
    let hash = &p.traces[0].spans[1].node_hash[..16];
    assert_eq!(p.traces[0].trace_id, format!("trc_{hash}_1"));
}

#[test]
fn rows_that_cannot_be_read_are_counted_and_skipped() {
    let mut bad = first();
    bad.request = json!([1]);
    let mut unknown = first();
    unknown.provider = "x".into();
    let mut empty = first();
    empty.response = None;
    let p = derive(vec![bad, unknown, empty, second(2, "req2")]);
    assert_eq!(p.report.failed, 2);
    assert_eq!(p.report.raw_only_turns, 1);
    assert_eq!(p.traces.len(), 1);
}

#[test]
fn tool_less_calls_hang_under_a_synthetic_trace() {
    let mut r = first();
    r.request = json!({"stream": false, "messages": [{"role": "user", "content": "quorum?"}]});
    let p = derive(vec![r]);
    assert_eq!(p.traces[0].synthetic, "shadow-opener");
    assert_eq!(p.traces[0].user_prompt, "");
    assert_eq!(p.traces[0].spans[1].call_kind, "unknown");
}

#[test]
fn a_compaction_seams_two_traces() {
    let compact = row(
        2,
        "req2",
        "2026-06-01T12:00:05Z",
        request(json!([{"role": "user", "content": "write a summary of the conversation so far"}])),
        json!({"message": {"role": "assistant", "content": [{"type": "text", "text": "it was short"}]}}),
    );
    let after = row(
        3,
        "req3",
        "2026-06-01T12:00:09Z",
        request(json!([{"role": "user", "content": "go on"}])),
        json!({"message": {"role": "assistant", "content": [{"type": "text", "text": "going"}]}}),
    );
    let p = derive(vec![first(), compact, after]);
    assert_eq!(p.traces.len(), 2);
    assert_eq!(p.traces[1].synthetic, "post-compaction");
    let seam = p
        .links
        .iter()
        .find(|l| l.kind == "compaction-seam")
        .unwrap();
    assert_eq!(
        (seam.from_span_id.as_str(), seam.to_span_id.as_str()),
        ("llm_req2", "llm_req3")
    );
}

#[test]
fn imported_deltas_chain_and_subagents_hang_under_the_call_that_spawned_them() {
    let import = |id: i64, msg: &str, thread: &str, at: &str, messages: Value, content: Value| {
        let mut r = row(
            id,
            &format!("import:{msg}"),
            at,
            json!({"messages": messages}),
            json!({"message": {"role": "assistant", "content": content}}),
        );
        r.source = "import".into();
        r.meta.insert("identity".into(), json!(msg));
        r.meta.insert("thread_id".into(), json!(thread));
        r
    };
    let text = |t: &str| json!([{"type": "text", "text": t}]);
    let p = derive(vec![
        import(
            1,
            "m1",
            "",
            "2026-06-01T12:00:00Z",
            json!([{"role": "user", "content": "again"}]),
            json!([{"type": "tool_use", "tool_use_id": "t1", "tool_name": "Task", "tool_input": {"prompt": "dig"}}]),
        ),
        import(
            2,
            "s1",
            "a1",
            "2026-06-01T12:00:01Z",
            json!([{"role": "user", "content": "dig"}]),
            text("dug"),
        ),
        import(
            3,
            "m2",
            "",
            "2026-06-01T12:00:02Z",
            json!([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "dug"}]}]),
            text("done"),
        ),
        import(
            4,
            "m3",
            "",
            "2026-06-01T12:00:03Z",
            json!([{"role": "user", "content": "again"}]),
            text("same words, new turn"),
        ),
    ]);
    let prompts: Vec<&str> = p.traces.iter().map(|t| t.user_prompt.as_str()).collect();
    assert_eq!(prompts, ["again", "again"]);
    assert_eq!(p.traces[1].trace_id, "trc_m3");
    let agent = p.traces[0]
        .spans
        .iter()
        .find(|s| s.span_id == "agent_a1")
        .unwrap();
    assert_eq!(agent.parent_span_id, "t1");
    assert!(
        p.links
            .iter()
            .any(|l| l.kind == "rejoin" && l.to_span_id == "t1")
    );
    assert_eq!(
        p.traces[0]
            .spans
            .iter()
            .find(|s| s.span_id == "llm_s1")
            .unwrap()
            .parent_span_id,
        "agent_a1"
    );
}
