//! What the importers read, by cases of the specification and by formats.

use super::*;

fn all(format: Format, text: &str) -> (Vec<ImportedTurn>, FileStats) {
    let mut turns = Vec::new();
    let stats = read_text(text, format, &mut |t| {
        turns.push(t);
        Ok(())
    })
    .expect("read");
    (turns, stats)
}

fn user(session: &str, text: &str, at: u32) -> String {
    json!({"type": "user", "sessionId": session, "uuid": format!("u{at}"), "cwd": "/w",
        "timestamp": format!("2026-01-01T00:00:{at:02}Z"), "message": {"role": "user", "content": text}})
    .to_string()
}

fn assistant(session: &str, id: &str, block: Value, at: u32) -> String {
    json!({"type": "assistant", "sessionId": session, "uuid": format!("a{at}"),
        "timestamp": format!("2026-01-01T00:00:{at:02}Z"), "message": {"role": "assistant", "id": id,
        "model": "claude-x", "content": [block], "usage": {"input_tokens": 3, "output_tokens": at}}})
    .to_string()
}

fn text(t: &str) -> Value {
    json!({"type": "text", "text": t})
}

#[test]
fn m1_a_truncated_line_is_skipped_and_the_rest_read() {
    let lines = [
        user("s", "one", 1),
        assistant("s", "m1", text("a"), 2),
        user("s", "two", 3)[..40].to_owned(),
        assistant("s", "m2", text("b"), 4),
        "[]".into(),
    ];
    let (turns, stats) = all(Format::Claude, &lines.join("\n"));
    assert_eq!(turns.len(), 2);
    assert_eq!((stats.lines, stats.skipped), (5, 2));
    assert_eq!(stats.samples[0].line, 3);
}

#[test]
fn m2_m3_line_separators_and_numeric_keys() {
    let odd = json!({"type": "user", "sessionId": "s", "uuid": "u", "message": {"role": "user",
        "content": {"0": {"type": "text", "text": "x"}}}});
    let raw = format!(
        "{}\n{}\n{odd}\n{}",
        user("s", "a\u{2028}b", 1),
        assistant("s", "m1", text("ok"), 2),
        assistant("s", "m2", text("ok2"), 4)
    );
    assert!(raw.contains('\u{2028}'));
    let (turns, stats) = all(Format::Claude, &raw);
    assert_eq!((turns.len(), stats.skipped), (2, 0));
    assert_eq!(turns[0].request["messages"][0]["content"], "a\u{2028}b");
    let q = weft_core::provider::parse_request("anthropic", &turns[1].request).expect("request");
    assert_eq!(q.messages[0].content[0].text, "x");
}

#[test]
fn m4_one_message_written_once_for_each_block() {
    let tool = json!({"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}});
    let lines = [
        user("s", "go", 1),
        assistant("s", "m1", text("look"), 2),
        assistant("s", "m1", tool, 3),
        assistant("s", "m1", text("look"), 3),
    ];
    let (turns, _) = all(Format::Claude, &lines.join("\n"));
    assert_eq!(turns.len(), 1);
    let r = &turns[0].response;
    assert_eq!(r.message.content.len(), 2);
    assert_eq!(r.stop_reason, "tool_use");
    let u = r.usage.as_ref().expect("usage");
    assert_eq!((u.prompt_tokens, u.completion_tokens), (3, 3));
    assert_eq!(turns[0].meta["elapsed_seconds"], 2.0);
}

#[test]
fn m15_two_sessions_in_one_file_stay_apart() {
    let lines = [
        user("s1", "one", 1),
        user("s2", "two", 2),
        assistant("s2", "m2", text("b"), 3),
        assistant("s1", "m1", text("a"), 4),
    ];
    let (turns, _) = all(Format::Claude, &lines.join("\n"));
    let of = |s: &str| turns.iter().find(|t| t.harness_session_id == s).expect(s);
    assert_eq!(of("s1").request["messages"][0]["content"], "one");
    assert_eq!(of("s2").request["messages"][0]["content"], "two");
}

#[test]
fn m7_codex_events_repeat_items_and_count_once() {
    let line = |kind: &str, p: Value, at: u32| {
        json!({"timestamp": format!("2026-01-01T00:00:{at:02}Z"), "type": kind, "payload": p})
            .to_string()
    };
    let lines = [
        line(
            "session_meta",
            json!({"id": "c1", "cwd": "/w", "cli_version": "1", "git": {"repository_url": "git@h:a/k.git"}}),
            0,
        ),
        line("turn_context", json!({"model": "gpt-5", "cwd": "/w"}), 0),
        line(
            "response_item",
            json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}),
            1,
        ),
        line(
            "event_msg",
            json!({"type": "user_message", "message": "hi"}),
            1,
        ),
        line(
            "event_msg",
            json!({"type": "agent_message", "message": "ho"}),
            2,
        ),
        line(
            "event_msg",
            json!({"type": "token_count", "info": {"last_token_usage": {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}}}),
            2,
        ),
        line(
            "response_item",
            json!({"type": "reasoning", "summary": []}),
            2,
        ),
        line(
            "response_item",
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ho"}]}),
            2,
        ),
        line(
            "response_item",
            json!({"type": "function_call", "name": "shell", "arguments": "{\"command\":[\"ls\"]}", "call_id": "c"}),
            3,
        ),
        line(
            "response_item",
            json!({"type": "function_call_output", "call_id": "c", "output": "x"}),
            4,
        ),
        line(
            "response_item",
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}),
            5,
        ),
    ];
    let (turns, stats) = all(Format::Codex, &lines.join("\n"));
    assert_eq!((turns.len(), stats.skipped), (2, 0));
    assert_eq!(turns[0].response.message.content.len(), 3);
    assert_eq!(
        turns[0]
            .response
            .usage
            .as_ref()
            .expect("usage")
            .prompt_tokens,
        7
    );
    assert_eq!(turns[0].remote, "git@h:a/k.git");
    assert_eq!(turns[1].response.message.content[0].text, "done");
    assert_ne!(turns[0].request_id, turns[1].request_id);
    let (again, _) = all(Format::Codex, &lines.join("\n"));
    assert_eq!(turns, again);
}

/// Reads a file of a name in a folder of its own.
fn file(at: &str, text: &str) -> (Vec<ImportedTurn>, FileStats, PathBuf) {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join(at);
    std::fs::create_dir_all(path.parent().expect("parent")).expect("folders");
    std::fs::write(&path, text).expect("file");
    let format = Format::sniff(&path).expect("format");
    let mut turns = Vec::new();
    let stats = read_file(&path, format, &mut |t| {
        turns.push(t);
        Ok(())
    })
    .expect("read");
    let found = find(dir.path(), format);
    assert_eq!(found.len(), 1, "{at} is found");
    (turns, stats, dir.path().to_owned())
}

#[test]
fn gemini_messages_hold_their_calls_and_results() {
    let messages = json!([
        {"id": "u1", "timestamp": "2026-01-01T00:00:00Z", "type": "user", "content": [{"text": "list files"}]},
        {"id": "i1", "timestamp": "2026-01-01T00:00:01Z", "type": "info", "content": "update available"},
        {"id": "g1", "timestamp": "2026-01-01T00:00:02Z", "type": "gemini", "content": "I look.", "model": "gemini-x",
         "thoughts": [{"subject": "Plan", "description": "ls", "timestamp": "2026-01-01T00:00:01Z"}],
         "tokens": {"input": 7, "output": 2, "cached": 1, "thoughts": 3, "total": 12},
         "toolCalls": [{"id": "c1", "name": "run_shell_command", "args": {"command": "ls"}, "status": "success",
            "timestamp": "2026-01-01T00:00:03Z",
            "result": [{"functionResponse": {"id": "c1", "response": {"output": "a.txt"}}}]}]},
        {"id": "g2", "timestamp": "2026-01-01T00:00:04Z", "type": "gemini", "content": "One file."}
    ]);
    let whole = json!({"sessionId": "s1", "projectHash": "h", "startTime": "2026-01-01T00:00:00Z",
        "messages": messages, "summary": "Listing"});
    let pretty = serde_json::to_string_pretty(&whole).expect("json");
    let (turns, stats, _) = file("p/chats/session-1.json", &pretty);
    assert_eq!((turns.len(), stats.skipped), (2, 0));
    assert_eq!(turns[0].harness_session_id, "s1");
    assert_eq!(turns[0].name, "Listing");
    assert_eq!(turns[0].response.message.content.len(), 3);
    assert_eq!(
        turns[0]
            .response
            .usage
            .as_ref()
            .expect("usage")
            .completion_tokens,
        5
    );
    assert_eq!(
        turns[1].request["messages"][0]["content"][0]["content"],
        "a.txt"
    );
    // The same, a record a line, with a message that is written twice.
    let mut lines =
        vec![json!({"sessionId": "s1", "projectHash": "h", "kind": "main"}).to_string()];
    let half =
        json!({"id": "g1", "timestamp": "2026-01-01T00:00:02Z", "type": "gemini", "content": "I"});
    lines.push(half.to_string());
    lines.extend(
        messages
            .as_array()
            .expect("list")
            .iter()
            .map(Value::to_string),
    );
    lines.push(json!({"$set": {"summary": "Listing"}}).to_string());
    lines.push(json!({"$rewindTo": "u1"}).to_string());
    // The message that came first keeps its place, so it is asked after.
    lines.swap(1, 2);
    let (again, _, _) = file("p/chats/session-1.jsonl", &lines.join("\n"));
    assert_eq!(
        again.iter().map(|t| &t.request_id).collect::<Vec<_>>(),
        turns.iter().map(|t| &t.request_id).collect::<Vec<_>>()
    );
}

#[test]
fn copilot_events_become_calls_and_subagents_threads() {
    let e = |kind: &str, at: u8, data: Value| {
        json!({"type": kind, "id": format!("e{at}"), "timestamp": format!("2026-01-01T00:00:0{at}Z"), "data": data})
            .to_string()
    };
    let lines = [
        e(
            "session.start",
            0,
            json!({"sessionId": "c1", "copilotVersion": "0.1", "context": {"cwd": "/w"}}),
        ),
        e("session.model_change", 0, json!({"newModel": "gpt-x"})),
        e("user.message", 1, json!({"content": "go"})),
        e(
            "assistant.message",
            2,
            json!({"messageId": "m1", "content": "", "toolRequests":
            [{"toolCallId": "t1", "name": "bash", "arguments": {"command": "ls"}}]}),
        ),
        e(
            "assistant.message",
            3,
            json!({"messageId": "m2", "content": "inside", "parentToolCallId": "t9"}),
        ),
        e(
            "tool.execution_complete",
            4,
            json!({"toolCallId": "t1", "success": false, "error": {"message": "no"}}),
        ),
        e(
            "assistant.message",
            5,
            json!({"messageId": "m3", "content": "done", "outputTokens": 4}),
        ),
    ];
    let (turns, stats, dir) = file("session-state/c1/events.jsonl", &lines.join("\n"));
    assert_eq!((turns.len(), stats.skipped), (3, 0));
    assert_eq!(
        (turns[0].cwd.as_str(), turns[0].response.model.as_str()),
        ("/w", "gpt-x")
    );
    assert_eq!(turns[1].meta["thread_id"], "t9");
    let result = &turns[2].request["messages"][0]["content"][0];
    assert_eq!(
        (&result["content"], &result["is_error"]),
        (&json!("no"), &json!(true))
    );
    assert!(!dir.exists());
}

#[test]
fn cline_tasks_are_the_messages_of_the_api() {
    let text = json!([
        {"role": "user", "content": [{"type": "text", "text": "<task>fix it</task>"},
            {"type": "text", "text": "# Current Working Directory (/home/ann/shop) Files"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Looking."}]},
        {"role": "user", "ts": 1_767_225_700_000_i64, "content": "go on"},
        {"role": "assistant", "ts": 1_767_225_701_000_i64, "content": "Done."}
    ])
    .to_string();
    let (turns, _, _) = file("tasks/1767225600000/api_conversation_history.json", &text);
    assert_eq!(turns.len(), 2);
    assert_eq!(turns[0].cwd, "/home/ann/shop");
    assert_eq!(turns[0].harness_session_id, "1767225600000");
    assert!(turns[0].started_at < turns[1].started_at);
    let cut = read_whole(
        &text.as_bytes()[..text.len() - 30],
        &mut cline::Cline::new(String::new()),
        &mut FileStats::default(),
        &mut |_| Ok(()),
    );
    assert!(cut.is_err_and(|e| e.starts_with("not JSON")));
}

#[test]
fn aider_chats_are_cut_at_what_was_asked() {
    let text = "\n# aider chat started at 2026-01-01 10:00:00\n\n> Main model: gpt-x with diff edit format\n\n#### add a test\n#### for refunds\n\nHere is one:\n\n```py\nassert 1\n```\n\n> Applied edit to t.py\n\n#### thanks\n\nWelcome.\n\n# aider chat started at 2026-01-02 10:00:00\n\n#### hello\n\nHi.\n";
    let (turns, _, dir) = file(".aider.chat.history.md", text);
    assert_eq!(turns.len(), 3);
    assert_eq!(
        turns[0].request["messages"][0]["content"],
        "add a test\nfor refunds"
    );
    assert_eq!(turns[0].response.model, "gpt-x");
    assert!(turns[0].response.message.content[0].text.ends_with("```"));
    assert_ne!(turns[1].harness_session_id, turns[2].harness_session_id);
    assert!(
        turns[0]
            .harness_session_id
            .contains(&*dir.to_string_lossy())
    );
}

#[test]
fn side_chains_without_an_agent_id_are_threads_of_their_own() {
    let side = |uuid: &str, parent: Value, kind: &str, content: Value| {
        json!({"type": kind, "sessionId": "s", "uuid": uuid, "parentUuid": parent, "isSidechain": true,
            "message": {"role": kind, "id": "x1", "content": content}})
        .to_string()
    };
    let lines = [
        user("s", "go", 1),
        side("x", Value::Null, "user", json!("dig")),
        side("y", json!("x"), "assistant", json!([text("dug")])),
        assistant("s", "m1", text("done"), 5),
    ];
    let (turns, _) = all(Format::Claude, &lines.join("\n"));
    let side = turns
        .iter()
        .find(|t| t.meta.contains_key("thread_id"))
        .expect("side chain");
    assert!(
        side.meta["thread_id"]
            .as_str()
            .expect("id")
            .starts_with("side-")
    );
    assert_eq!(side.request["messages"][0]["content"], "dig");
}

#[test]
fn opencode_sessions_are_calls_with_results_and_parents() {
    let at = 1_767_225_600_000_i64;
    let session = json!({
    "session": {"id": "ses_2", "parent_id": "ses_1", "directory": "/home/ann/shop", "title": "Refunds", "version": "1.18"},
    "messages": [
        {"id": "m1", "data": {"role": "user", "time": {"created": at}}, "parts": [
            {"type": "text", "text": "where?"}, {"type": "text", "text": "noise", "synthetic": true}]},
        {"id": "m2", "data": {"role": "assistant", "modelID": "claude-x", "time": {"created": at + 1000, "completed": at + 2000},
            "tokens": {"input": 5, "output": 2, "reasoning": 1, "cache": {"read": 10, "write": 0}}}, "parts": [
            {"type": "step-start"}, {"type": "reasoning", "text": "hm"}, {"type": "text", "text": "I look."},
            {"type": "tool", "tool": "grep", "callID": "c1", "state": {"status": "completed", "input": {"pattern": "x"},
                "output": "a.ts", "time": {"end": at + 2500}}}]},
        {"id": "m3", "data": {"role": "assistant", "time": {"created": at + 3000}}, "parts": [{"type": "text", "text": "In a.ts."}]},
    ]});
    let mut turns = Vec::new();
    let stats = read_records(
        Format::OpenCode,
        |each| {
            each(&session)?;
            each(&json!({"session": {}}))
        },
        &mut |t| {
            turns.push(t);
            Ok(())
        },
    )
    .expect("read");
    assert_eq!((turns.len(), stats.turns, stats.skipped), (2, 2, 1));
    let first = &turns[0];
    assert_eq!(
        (first.parent.as_str(), first.cwd.as_str()),
        ("ses_1", "/home/ann/shop")
    );
    assert_eq!(first.request["messages"][0]["content"], "where?");
    assert_eq!(first.response.message.content.len(), 3);
    assert_eq!(
        first
            .response
            .usage
            .as_ref()
            .map(|u| (u.prompt_tokens, u.completion_tokens)),
        Some((15, 3))
    );
    assert_eq!(
        turns[1].request["messages"][0]["content"][0]["content"],
        "a.ts"
    );
}
