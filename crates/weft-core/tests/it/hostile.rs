//! No input panics: texts and JSON made of awkward pieces go through everything that reads them.

use serde_json::{Map, Value, json};
use weft_core::block::ContentBlock;
use weft_core::derive::{Deriver, TranscriptFile, TurnRow};
use weft_core::{project, provider, redact, render, snippet, sse, time, words};

const PIECES: [&str; 40] = [
    "",
    " ",
    "\n",
    "\r\n",
    "\u{0}",
    "é",
    "\u{2028}",
    "\u{3000}",
    "数据",
    "😀",
    "a",
    "Ab",
    "_",
    "-",
    "/",
    ".",
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    "</",
    "<summary>",
    "</summary>",
    "<session>",
    "<command-args>",
    "[@x](plugin://y)",
    "<transcript>",
    "</transcript>",
    "Bash ",
    "mcp__a__b ",
    "#1",
    "{\"title\":",
    "2026-06-01T00:00:00Z",
    "ghp_",
    "data: ",
    "event: ",
];

struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }

    fn text(&mut self) -> String {
        (0..self.next(12))
            .map(|_| PIECES[self.next(PIECES.len())])
            .collect()
    }

    fn value(&mut self, depth: usize) -> Value {
        const NAMES: [&str; 24] = [
            "type",
            "text",
            "content",
            "role",
            "messages",
            "input",
            "system",
            "id",
            "name",
            "tools",
            "tool_calls",
            "function",
            "arguments",
            "call_id",
            "output",
            "source",
            "message",
            "usage",
            "index",
            "delta",
            "0",
            "summary",
            "stream",
            "thinking",
        ];
        const KINDS: [&str; 14] = [
            "text",
            "tool_use",
            "tool_result",
            "image",
            "thinking",
            "message",
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "reasoning",
            "user",
            "assistant",
            "tool",
            "system",
        ];
        match self.next(if depth == 0 { 5 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.next(2) == 0),
            2 => json!(self.next(1000) as i64 - 500),
            3 => json!(KINDS[self.next(KINDS.len())]),
            4 => json!(self.text()),
            5 => Value::Array((0..self.next(4)).map(|_| self.value(depth - 1)).collect()),
            _ => Value::Object(
                (0..self.next(6))
                    .map(|_| {
                        (
                            NAMES[self.next(NAMES.len())].to_owned(),
                            self.value(depth - 1),
                        )
                    })
                    .collect(),
            ),
        }
    }
}

#[test]
fn texts() {
    let mut r = Random(88_172_645_463_325_252);
    for _ in 0..20_000 {
        let t = r.text();
        let query = words::query_words(&r.text());
        project::project_text(&t);
        project::preview_text(&t);
        project::cut_bytes(&t, r.next(8));
        project::cut_chars(&t, r.next(8));
        redact::redact(&t);
        time::parse_micros(&t);
        time::parse_micros(&format!("{t}2026-06-01T00:00:00Z"));
        snippet::excerpt(&t.repeat(20), &query, 1 + r.next(40));
        sse::events(t.as_bytes());
        weft_core::derive::price::normalize_model(&t);
        weft_core::derive::display_title(&t, "", &t, &t, &t, "id");
        let pieces = render::split(&t, r.next(100_000));
        assert_eq!(pieces.map_or(t.clone(), |p| p.concat()), t);
    }
}

#[test]
fn values() {
    let mut r = Random(0x2545_F491_4F6C_DD1D);
    let object = |v: Value| v.as_object().cloned().unwrap_or_else(Map::new);
    for round in 0..400 {
        let mut d = Deriver::new(["claude", "codex"][round % 2]);
        for id in 0..6 {
            let request = match r.next(3) {
                0 => r.value(5),
                1 => json!({"messages": r.value(4), "stream": true, "tools": [1]}),
                _ => {
                    json!({"input": [r.value(4), r.value(4)], "stream": true, "tool_choice": "auto"})
                }
            };
            let body = r.value(5).to_string();
            let kind = provider::PROVIDERS[r.next(3)];
            let reduced = provider::reduce(
                kind,
                format!("data: {body}\n\n").as_bytes(),
                "text/event-stream",
            );
            let content: Vec<ContentBlock> = (0..r.next(4))
                .filter_map(|_| serde_json::from_value(r.value(2)).ok())
                .collect();
            let mut response = reduced.unwrap_or_default();
            response.message.content.extend(content);
            response.message.content.push(ContentBlock::text(r.text()));
            response.message.role = "assistant".into();
            d.add_turn(TurnRow {
                id,
                source: ["wire", "import"][r.next(2)].into(),
                provider: kind.into(),
                request_id: r.text(),
                request,
                response: Some(response),
                meta: object(json!({"thread_id": r.text(), "ts_request": r.text(), "elapsed_seconds": r.value(0), "identity": r.text()})),
                envelope: object(json!({"harness_metadata": {"source": r.value(4)}})),
                ..TurnRow::default()
            });
        }
        let records: Vec<Value> = (0..3).map(|_| r.value(4)).collect();
        d.add_transcript(TranscriptFile::read(&object(r.value(2)), &records));
        let p = d.finish();
        for t in &p.traces {
            assert_eq!(t.spans[0].kind, "agent");
        }
    }
}
