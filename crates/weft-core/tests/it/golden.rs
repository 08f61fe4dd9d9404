//! The reference's own derivations as oracles.

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;

use serde_json::Value;
use weft_core::block::{ChatResponse, ContentBlock};
use weft_core::derive::{Deriver, Projection, TranscriptFile, TurnRow, captured_at};
use weft_core::hash::{node_hash, sha256_hex};
use weft_core::provider;
use weft_core::time::{format_micros, parse_micros};
use weft_testkit::shared;

fn gunzip(path: &str) -> Option<String> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(shared(path)?).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    Some(text)
}

/// Derives a corpus of raw rows as the store would feed them.
pub(crate) fn derive_corpus(text: &str) -> Projection {
    let rows: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let object = |v: &Value| v.as_object().cloned().unwrap_or_default();
    let mut wire: Vec<TurnRow> = rows
        .iter()
        .filter(|r| r["source"] != "transcript")
        .map(|r| TurnRow {
            id: r["id"].as_i64().unwrap(),
            source: "wire".into(),
            provider: r["provider"].as_str().unwrap().into(),
            request_id: r["request_id"].as_str().unwrap().into(),
            request: r["raw_request"].clone(),
            response: serde_json::from_value::<ChatResponse>(r["response"].clone()).ok(),
            meta: object(&r["meta"]),
            envelope: object(&r["session_envelope"]),
            received_at: parse_micros(r["received_at"].as_str().unwrap()).unwrap_or_default(),
            fidelity: "reduced",
        })
        .collect();
    wire.sort_by_key(|r| captured_at(&r.meta, r.received_at));
    let mut d = Deriver::new(rows[0]["harness_id"].as_str().unwrap());
    for r in wire {
        d.add_turn(r);
    }
    for r in rows.iter().filter(|r| r["source"] == "transcript") {
        d.add_transcript(TranscriptFile::read(
            &object(&r["meta"]),
            r["raw_request"].as_array().unwrap(),
        ));
    }
    d.finish()
}

fn count<'a>(items: impl Iterator<Item = &'a str>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for i in items {
        *counts.entry(i.to_owned()).or_default() += 1;
    }
    counts
}

#[test]
fn the_codex_corpus_derives_as_pinned() {
    let Some(text) = gunzip("data/tapes/derive/corpus-codex-delta.jsonl.gz") else {
        return;
    };
    let p = derive_corpus(&text);
    assert_eq!(p.report.nodes, 67);
    assert_eq!(p.report.call_kinds, BTreeMap::from([("main".into(), 13)]));
    assert_eq!(p.traces.len(), 1);
    assert_eq!(
        p.traces[0].trace_id,
        "trc_turn-01784781652356739000-00000021"
    );
    let kinds = count(p.traces[0].spans.iter().map(|s| s.kind));
    assert_eq!(
        kinds,
        BTreeMap::from([("agent".into(), 3), ("llm".into(), 13), ("tool".into(), 10)])
    );
    let links = count(p.links.iter().map(|l| l.kind.as_str()));
    assert_eq!(
        links,
        BTreeMap::from([
            ("emits".into(), 10),
            ("feeds".into(), 10),
            ("rejoin".into(), 2)
        ])
    );
    assert_eq!(p.rollup.status, "completed");
    assert_eq!(p.rollup.model, "gpt-5.6-sol");

    let path = shared("data/tapes/derive/session-traces-019f8d46.json").unwrap();
    let want: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let t = &p.traces[0];
    let wt = &want["traces"][0]["trace"];
    assert_eq!(t.user_prompt, wt["user_prompt"]);
    assert_eq!(t.response_preview, wt["response_preview"]);
    assert_eq!(format_micros(t.ended_at), wt["ended_at"]);
    assert_eq!(t.cache_read_tokens, wt["usage"]["cache_read_tokens"]);
    assert!((t.cost_usd - wt["usage"]["cost_usd"].as_f64().unwrap()).abs() < 1e-9);
    for (s, w) in t
        .spans
        .iter()
        .zip(want["traces"][0]["spans"].as_array().unwrap())
    {
        let got = serde_json::json!({
            "span_id": s.span_id, "seq": s.seq, "kind": s.kind, "name": s.name, "status": s.status,
            "started_at": format_micros(s.started_at), "duration_ns": s.duration_ns,
            "call_kind": s.call_kind, "model": s.model, "stop_reason": s.stop_reason,
            "thread_id": s.thread_id, "input": s.input, "output": s.output,
            "usage": s.usage.clone().map_or(serde_json::json!({}), |u| serde_json::to_value(u).unwrap()),
        });
        for (k, v) in got.as_object().unwrap() {
            assert_eq!(v, &w[k], "{} {k}", s.span_id);
        }
        assert_eq!(
            s.parent_span_id,
            w["parent_span_id"].as_str().unwrap_or_default()
        );
        assert_eq!(s.raw_turn_id, w["raw_turn_id"].as_i64().unwrap_or_default());
    }
    let mut got = p.links.clone();
    let mut links: Vec<weft_core::span::Link> =
        serde_json::from_value(want["links"].clone()).unwrap();
    got.sort();
    links.sort();
    assert_eq!(got, links);
}

#[test]
fn derivation_is_deterministic() {
    let Some(text) = gunzip("data/tapes/derive/corpus-codex-delta.jsonl.gz") else {
        return;
    };
    assert_eq!(derive_corpus(&text), derive_corpus(&text));
}

/// Node hashes and rendered texts of the two golden derivations.
#[test]
fn golden_node_hashes_and_rendered_texts() {
    let digests = [
        (
            "cb9a87e5",
            56,
            4,
            "21797b2dcb45b5b52be3453d8939b583f92b04364192ab0094b10bf6a0111ae1",
        ),
        (
            "9fec0da7",
            79,
            17,
            "8c725d57d223a77abdbc68efce81f2e9d59f5b058a3f7401720c81724bd18e71",
        ),
    ];
    for (name, main, empty, digest) in digests {
        let Some(text) = gunzip(&format!("data/tapes/derive/golden-derive-{name}.txt.gz")) else {
            return;
        };
        let mut parents: HashMap<String, String> = HashMap::new();
        let mut lines = Vec::new();
        let (mut mains, mut empties, mut hashed) = (0, 0, 0);
        for line in text.lines() {
            let (key, json) = line.split_once(' ').unwrap();
            let v: Value = serde_json::from_str(json).unwrap();
            let s = |k: &str| v[k].as_str().unwrap_or_default();
            if key.starts_with("node[") {
                parents.insert(s("hash").into(), s("parent_hash").into());
                continue;
            }
            let is_span = key.contains(".span[");
            if !is_span || !matches!(s("kind"), "llm" | "event") {
                continue;
            }
            let blocks = |k: &str| {
                serde_json::from_value::<Vec<ContentBlock>>(v[k].clone()).unwrap_or_default()
            };
            let (input, output) = (blocks("input"), blocks("output"));
            let parent = &parents[s("node_hash")];
            let found = if s("kind") == "llm" {
                node_hash(parent, "assistant", &output) == s("node_hash")
            } else {
                ["user", "system"]
                    .iter()
                    .any(|r| node_hash(parent, r, &input) == s("node_hash"))
            };
            assert!(found, "{name} {key}");
            hashed += 1;
            if s("kind") == "llm" && s("call_kind") == "main" {
                mains += 1;
                let text = weft_core::render::span_text(&input, &output);
                if text.is_empty() {
                    empties += 1;
                } else {
                    lines.push(format!(
                        "{} {}\n",
                        s("span_id"),
                        sha256_hex(text.as_bytes())
                    ));
                }
            }
        }
        lines.sort();
        assert!(hashed > 90);
        assert_eq!((mains, empties), (main, empty), "{name}");
        assert_eq!(sha256_hex(lines.concat().as_bytes()), digest, "{name}");
    }
}

#[test]
fn recorded_answers_reduce_alike_streamed_or_not() {
    let Some(dir) = shared("data/tapes/reducers") else {
        return;
    };
    let read = |f: &str| std::fs::read(dir.join(f)).unwrap();
    for turn in [
        "turn_01",
        "turn_02_tool_use",
        "turn_03_thinking",
        "turn_04_server_tool",
    ] {
        let base = format!("anthropic/canonical_equivalence/{turn}");
        let one = provider::reduce(
            "anthropic",
            &read(&format!("{base}_oneshot.json")),
            "application/json",
        )
        .unwrap();
        let many = provider::reduce(
            "anthropic",
            &read(&format!("{base}_stream.sse")),
            "text/event-stream",
        )
        .unwrap();
        assert_eq!(
            (one.message, one.stop_reason, one.usage),
            (many.message, many.stop_reason, many.usage),
            "{turn}"
        );
    }
    let sse = |f: &str| provider::reduce("anthropic", &read(f), "text/event-stream").unwrap();
    assert_eq!(
        sse("anthropic/messages_error_mid_stream.sse").stop_reason,
        "error"
    );
    let cut = sse("anthropic/messages_truncated_stream.sse");
    assert_eq!(cut.extra["incomplete"], true);
    assert!(!cut.done);
    let tool = sse("anthropic/messages_tool_use.sse");
    assert!(
        tool.message
            .content
            .iter()
            .any(|b| b.is_tool_use() && !b.tool_input.is_empty())
    );

    let responses = |f: &str, ct: &str| {
        provider::reduce("openai", &read(&format!("openai_responses/{f}")), ct).unwrap()
    };
    for r in [
        responses("stream.sse", "text/event-stream"),
        responses("chatgpt_stream.sse", ""),
        responses("oneshot.json", "application/json"),
    ] {
        assert!(r.is_usable());
        assert_eq!(r.stop_reason, "stop");
        assert!(r.usage.unwrap().prompt_tokens > 0);
    }
    let chat = br#"{"object":"chat.completion","choices":[]}"#;
    assert!(provider::reduce("openai", chat, "application/json").is_err());
}
