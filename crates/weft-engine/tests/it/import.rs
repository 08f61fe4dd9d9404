//! Importing transcripts: once each, whatever happens to the files.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use weft_engine::{Format, ImportOptions, ImportReport, Mode, Roots};
use weft_testkit::shared;

use crate::support::{Home, dump, home};

fn user(session: &str, text: &str, at: u32) -> Value {
    json!({"type": "user", "sessionId": session, "uuid": format!("u{at}"), "cwd": "/no/such/kite",
        "timestamp": format!("2026-01-01T00:00:{at:02}Z"), "message": {"role": "user", "content": text}})
}

fn assistant(session: &str, id: &str, text: &str, at: u32) -> Value {
    json!({"type": "assistant", "sessionId": session, "uuid": format!("a{at}"), "requestId": "q",
        "timestamp": format!("2026-01-01T00:00:{at:02}Z"), "message": {"role": "assistant", "id": id,
        "model": "claude-x", "content": [{"type": "text", "text": text}], "usage": {"input_tokens": 3, "output_tokens": 4}}})
}

fn write(path: &Path, records: &[Value]) {
    let text: String = records.iter().map(|r| format!("{r}\n")).collect();
    fs::write(path, text).unwrap();
}

fn import(h: &Home, path: &Path) -> ImportReport {
    import_as(h, path, Format::Claude)
}

fn import_as(h: &Home, path: &Path, format: Format) -> ImportReport {
    let options = ImportOptions {
        paths: vec![path.to_owned()],
        format: Some(format),
        ..ImportOptions::default()
    };
    let report = h.engine.import(&options, &mut |_, _, _| {}).unwrap();
    h.settle();
    report
}

#[test]
fn a_file_is_imported_once_and_what_is_added_later() {
    let (h, tmp) = (home(), tempfile::tempdir().unwrap());
    let file = tmp.path().join("s1.jsonl");
    let mut records = vec![
        user("s1", "first question", 1),
        assistant("s1", "m1", "first answer", 2),
    ];
    write(&file, &records);
    assert_eq!(import(&h, &file).new_turns, 1);
    assert_eq!(import(&h, &file).unchanged, 1);
    records.extend([
        user("s1", "second question", 3),
        assistant("s1", "m2", "second answer", 4),
    ]);
    write(&file, &records);
    let r = import(&h, &file);
    assert_eq!((r.turns, r.new_turns), (2, 1));
    let s = &h
        .engine
        .store()
        .sessions_by_key(Some("claude"), "s1")
        .unwrap()[0];
    assert_eq!(s.rollup.turn_count, 2);
    assert_eq!(s.row.repository, "/no/such/kite");
    assert_eq!(
        h.search("second question", Mode::Hybrid).hits[0].user_prompt,
        "second question"
    );
}

#[test]
fn an_answer_that_grew_counts_once() {
    let (h, tmp) = (home(), tempfile::tempdir().unwrap());
    let file = tmp.path().join("s1.jsonl");
    let mut records = vec![user("s1", "go", 1), assistant("s1", "m1", "part one", 2)];
    write(&file, &records);
    import(&h, &file);
    records.push(assistant("s1", "m1", "part two", 3));
    write(&file, &records);
    import(&h, &file);
    let s = &h.engine.store().sessions_by_key(None, "s1").unwrap()[0];
    let spans = h.engine.store().session_spans(&s.row.id).unwrap();
    let llm: Vec<_> = spans.iter().filter(|s| s.kind == "llm").collect();
    assert_eq!(llm.len(), 1);
    assert!(llm[0].output.as_ref().unwrap().contains("part two"));
    assert_eq!(s.rollup.output_tokens, 4);
}

#[test]
fn m6_a_rewritten_file_keeps_the_turns_that_it_lost() {
    let (h, tmp) = (home(), tempfile::tempdir().unwrap());
    let file = tmp.path().join("s1.jsonl");
    write(
        &file,
        &[
            user("s1", "one", 1),
            assistant("s1", "m1", "a", 2),
            user("s1", "two", 3),
            assistant("s1", "m2", "b", 4),
        ],
    );
    import(&h, &file);
    write(
        &file,
        &[
            user("s1", "two", 3),
            assistant("s1", "m2", "b", 4),
            user("s1", "three", 5),
            assistant("s1", "m3", "c", 6),
        ],
    );
    assert_eq!(import(&h, &file).new_turns, 1);
    assert_eq!(
        h.engine.store().sessions_by_key(None, "s1").unwrap()[0]
            .rollup
            .turn_count,
        3
    );
}

#[test]
fn a_copy_in_a_resumed_session_is_not_a_second_turn() {
    let (h, tmp) = (home(), tempfile::tempdir().unwrap());
    let (a, b) = (tmp.path().join("s1.jsonl"), tmp.path().join("s2.jsonl"));
    write(&a, &[user("s1", "one", 1), assistant("s1", "m1", "a", 2)]);
    write(
        &b,
        &[
            user("s2", "one", 1),
            assistant("s2", "m1", "a", 2),
            user("s2", "two", 3),
            assistant("s2", "m2", "b", 4),
        ],
    );
    import(&h, &a);
    assert_eq!(import(&h, &b).new_turns, 1);
}

#[test]
fn a_message_that_was_captured_on_the_wire_is_not_imported_again() {
    let (h, tmp) = (home(), tempfile::tempdir().unwrap());
    let mut wire = crate::support::turn("s1", "req1", "one", "a");
    wire["response"]["extra"] = json!({"id": "m1"});
    h.engine.ingest_turn(wire.to_string().as_bytes()).unwrap();
    let file = tmp.path().join("s1.jsonl");
    write(
        &file,
        &[
            user("s1", "one", 1),
            assistant("s1", "m1", "a", 2),
            user("s1", "two", 3),
            assistant("s1", "m2", "b", 4),
        ],
    );
    import(&h, &file);
    let s = &h
        .engine
        .store()
        .sessions_by_key(Some("claude"), "s1")
        .unwrap()[0];
    let spans = h.engine.store().session_spans(&s.row.id).unwrap();
    assert_eq!(spans.iter().filter(|s| s.kind == "llm").count(), 2);
}

#[test]
fn an_answer_of_codex_that_was_captured_on_the_wire_is_not_imported_again() {
    let (h, tmp) = (home(), tempfile::tempdir().unwrap());
    let answer = |at: &str, text: &str| {
        json!({"timestamp": at, "type": "response_item", "payload": {"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": text}]}})
    };
    let ask = |at: &str, text: &str| {
        json!({"timestamp": at, "type": "response_item", "payload": {"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": text}]}})
    };
    let mut wire = json!({"provider": "openai",
        "request": {"model": "gpt", "stream": true, "tools": [{"type": "function", "name": "f"}], "input": "two"},
        "response": {"model": "gpt", "done": true,
            "message": {"role": "assistant", "content": [{"type": "text", "text": "same"}]}},
        "meta": {"request_id": "w1", "captured_at": "2026-06-01T12:10:01Z"},
        "session": {"harness_id": "codex", "harness_session_id": "c1"}});
    h.engine.ingest_turn(wire.to_string().as_bytes()).unwrap();
    wire["meta"]["request_id"] = json!("w2");
    wire["meta"]["captured_at"] = json!("2026-06-01T12:20:00Z");
    wire["request"]["input"] = json!("three");
    wire["response"]["message"]["content"][0]["text"] = json!("on the wire only");
    h.engine.ingest_turn(wire.to_string().as_bytes()).unwrap();
    let file = tmp.path().join("rollout-c1.jsonl");
    write(
        &file,
        &[
            json!({"timestamp": "2026-06-01T12:00:00Z", "type": "session_meta",
                "payload": {"id": "c1", "cwd": "/x", "originator": "codex_exec"}}),
            // Before the proxy ran: the same words, another answer.
            ask("2026-06-01T12:00:00Z", "one"),
            answer("2026-06-01T12:00:01Z", "same"),
            ask("2026-06-01T12:10:00Z", "two"),
            answer("2026-06-01T12:10:02Z", "same"),
        ],
    );
    let r = import_as(&h, &file, Format::Codex);
    assert_eq!(r.new_turns, 2, "{r:?}");
    let s = &h
        .engine
        .store()
        .sessions_by_key(Some("codex"), "c1")
        .unwrap()[0];
    let spans = h.engine.store().session_spans(&s.row.id).unwrap();
    let said: Vec<_> = spans
        .iter()
        .filter(|s| s.kind == "llm")
        .map(|s| &s.output)
        .collect();
    assert_eq!(said.len(), 3, "{said:?}");
}

#[test]
fn m11_a_line_beyond_the_limit_is_cut_and_counted() {
    let (h, tmp) = (home(), tempfile::tempdir().unwrap());
    let file = tmp.path().join("s1.jsonl");
    let long = format!("needle {}", "x".repeat(40 << 20));
    write(
        &file,
        &[user("s1", &long, 1), assistant("s1", "m1", "found it", 2)],
    );
    let r = import(&h, &file);
    assert_eq!((r.new_turns, r.truncated, r.skipped), (1, 1, 0));
    assert_eq!(h.search("needle", Mode::Lexical).hits.len(), 1);
}

#[test]
fn m12_a_hit_outlives_its_file_and_says_so() {
    let (h, tmp) = (home(), tempfile::tempdir().unwrap());
    let file = tmp.path().join("s1.jsonl");
    write(
        &file,
        &[
            user("s1", "the lost question", 1),
            assistant("s1", "m1", "kept", 2),
        ],
    );
    import(&h, &file);
    assert!(!h.search("lost question", Mode::Hybrid).hits[0].source_gone);
    fs::remove_file(&file).unwrap();
    let a = h.search("lost question", Mode::Hybrid);
    // Of a shared store the file may be on another machine: nothing is said of it.
    assert_eq!(a.hits[0].source_gone, !weft_testkit::shared_store());
}

#[test]
fn broken_and_unreadable_files_stop_nothing() {
    let (h, tmp) = (home(), tempfile::tempdir().unwrap());
    write(
        &tmp.path().join("good.jsonl"),
        &[user("s1", "one", 1), assistant("s1", "m1", "a", 2)],
    );
    fs::write(
        tmp.path().join("bad.jsonl"),
        b"\xff\xfe{}\n{\"type\":\"user\"\n\n[1]\nnull\n",
    )
    .unwrap();
    fs::write(tmp.path().join("empty.jsonl"), b"").unwrap();
    let r = import(&h, tmp.path());
    assert_eq!((r.files, r.new_turns, r.failed), (3, 1, 0));
    assert_eq!(r.skipped, 4);
}

#[test]
fn real_trees_import_idempotently_and_answer() {
    let Some(root) = shared("data/transcripts") else {
        return;
    };
    let h = home();
    let options = ImportOptions {
        roots: Roots(vec![
            (Format::Claude, root.join("claude/projects")),
            (Format::Codex, root.join("codex/sessions")),
        ]),
        ..ImportOptions::default()
    };
    let first = h.engine.import(&options, &mut |_, _, _| {}).unwrap();
    assert_eq!((first.files, first.failed, first.skipped), (15, 0, 0));
    h.settle();
    let before = dump(&h.engine);
    let again = ImportOptions {
        again: true,
        ..options
    };
    let second = h.engine.import(&again, &mut |_, _, _| {}).unwrap();
    assert_eq!((second.turns, second.new_turns), (first.turns, 0));
    h.settle();
    assert_eq!(dump(&h.engine), before);
    assert!(before.contains("agent_a2018e5"), "subagents are linked");
    let a = h.search("most popular color of thai curry", Mode::Hybrid);
    assert!(
        a.hits[0].user_prompt.contains("thai curry"),
        "{:?}",
        a.hits[0]
    );
}
