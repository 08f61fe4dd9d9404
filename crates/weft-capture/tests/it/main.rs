//! Content decoding against the reference's cases, and importers against real transcripts.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write as _;

use base64::Engine as _;
use serde_json::{Value, json};
use weft_capture::attribution;
use weft_capture::decode::decode;
use weft_capture::exchange::{self, DropReason};
use weft_capture::import::{self, Format};
use weft_testkit::shared;

fn layer(name: &str, bytes: &[u8]) -> Vec<u8> {
    if name == "zstd" {
        return zstd::bulk::compress(bytes, 3).unwrap();
    }
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    e.write_all(bytes).unwrap();
    e.finish().unwrap()
}

fn plaintext(p: &Value) -> Vec<u8> {
    if let Some(t) = p.as_str() {
        return t.as_bytes().to_vec();
    }
    if let Some(t) = p["utf8"].as_str() {
        return t.as_bytes().to_vec();
    }
    let n = |v: &Value| usize::try_from(v["count"].as_u64().unwrap()).unwrap();
    if p["repeat_utf8"].is_object() {
        return p["repeat_utf8"]["text"]
            .as_str()
            .unwrap()
            .repeat(n(&p["repeat_utf8"]))
            .into_bytes();
    }
    vec![p["repeat_byte"]["byte"].as_u64().unwrap() as u8; n(&p["repeat_byte"])]
}

#[test]
fn content_encoding_cases_of_the_reference() {
    let Some(dir) = shared("data/tapes/content-encoding/cases") else {
        return;
    };
    let mut run = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let case: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let name = case["name"].as_str().unwrap().to_owned();
        let body = &case["body"];
        let (plain, mut bytes) = if let Some(b) = body["bytes_b64"].as_str() {
            (
                None,
                base64::engine::general_purpose::STANDARD.decode(b).unwrap(),
            )
        } else {
            let build = &body["build"];
            // Parts, where given, are encoded one by one and joined.
            let Some(layers) = build["layers"].as_array() else {
                continue;
            };
            if build["plaintext"].is_null() {
                continue;
            }
            let plain = plaintext(&build["plaintext"]);
            let mut bytes = plain.clone();
            for l in layers {
                bytes = layer(l.as_str().unwrap(), &bytes);
            }
            (Some(plain), bytes)
        };
        let cut = &body["build"]["truncate"];
        if let Some(r) = cut["keep_head_ratio"].as_array() {
            let n = |i: usize| r[i].as_u64().unwrap() as usize;
            bytes.truncate(bytes.len() * n(0) / n(1));
        } else if let Some(n) = cut["drop_tail_bytes"].as_u64() {
            bytes.truncate(bytes.len() - n as usize);
        } else if let Some(n) = cut["keep_head_bytes"].as_u64() {
            bytes.truncate(n as usize);
        } else if !cut.is_null() {
            continue;
        }
        let got = decode(&bytes, case["encoding"].as_str().unwrap_or_default());
        match case["expect"]["outcome"].as_str().unwrap() {
            "decoded" => {
                let d = got.unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(!d.salvaged, "{name}");
                if let Some(p) = plain {
                    assert!(d.bytes == p, "{name}");
                }
            }
            "salvaged" => {
                let d = got.unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(d.salvaged && !d.bytes.is_empty(), "{name}");
                assert!(plain.unwrap().starts_with(&d.bytes), "{name}");
            }
            _ => assert!(got.is_err(), "{name}: {:?}", got.map(|d| d.bytes.len())),
        }
        run += 1;
    }
    assert!(run >= 20, "only {run} cases were understood");
}

#[test]
fn real_transcripts_are_read_without_a_skipped_line() {
    for (folder, format, sessions) in [
        ("data/transcripts/claude", Format::Claude, 7),
        ("data/transcripts/codex", Format::Codex, 2),
    ] {
        let Some(root) = shared(folder) else { return };
        let mut ids = std::collections::BTreeSet::new();
        let mut turns = 0;
        for found in import::find(&root, format) {
            assert_eq!(
                Format::sniff(&found.path),
                Some(format),
                "{}",
                found.path.display()
            );
            let stats = import::read_file(&found.path, format, &mut |t| {
                assert!(t.response.is_usable());
                ids.insert(t.harness_session_id.clone());
                turns += 1;
                Ok(())
            })
            .unwrap();
            assert_eq!(
                stats.skipped,
                0,
                "{}: {:?}",
                found.path.display(),
                stats.samples
            );
        }
        assert_eq!(ids.len(), sessions, "{ids:?}");
        assert!(turns >= 10);
    }
}

/// The reference's cases of one kind, by their names.
fn cases(kind: &str) -> Option<Vec<(String, Value)>> {
    let dir = shared(&format!("data/tapes/{kind}/cases"))?;
    Some(
        std::fs::read_dir(dir)
            .unwrap()
            .map(|e| {
                let case: Value =
                    serde_json::from_slice(&std::fs::read(e.unwrap().path()).unwrap()).unwrap();
                (case["name"].as_str().unwrap().to_owned(), case)
            })
            .collect(),
    )
}

#[test]
fn sessions_in_headers_as_the_reference_reads_them() {
    let Some(cases) = cases("envelope") else {
        return;
    };
    let mut run = 0;
    for (name, case) in cases {
        // What an ingest API refuses, a proxy leaves out: the turn goes on.
        if case["error"]["disposition"] == "reject-400" {
            continue;
        }
        let headers = case["headers"].as_object().unwrap();
        let header = |name: &str| headers.get(name).and_then(Value::as_str);
        let read = attribution::from_tapes_headers(header);
        let mut got: Value = serde_json::from_str(&attribution::block_text(&read)).unwrap();
        let mut want = case["envelope"].clone();
        for v in [&mut got, &mut want] {
            if let Some(o) = v.as_object_mut() {
                o.remove("org_id");
                o.retain(|_, v| v != "" && *v != json!({}));
            }
        }
        assert_eq!(got, want, "{name}");
        run += 1;
    }
    assert!(run >= 20, "{run} cases");
}

#[test]
fn threads_in_headers_as_the_reference_reads_them() {
    let Some(cases) = cases("thread") else { return };
    assert_eq!(cases.len(), 8);
    for (name, case) in cases {
        let header = |name: &str| case["headers"][name].as_str();
        assert_eq!(attribution::thread_id(header), case["thread_id"], "{name}");
    }
}

#[test]
fn turns_and_other_requests_as_the_reference_tells_them_apart() {
    let Some(cases) = cases("drop-reason") else {
        return;
    };
    let known: Vec<&str> = DropReason::ALL.iter().map(|r| r.name()).collect();
    for (name, case) in cases {
        // What no proxy in one process can meet.
        if !matches!(name.as_str(), "marshal_error" | "missing_status") {
            assert!(known.contains(&name.as_str()), "{name}");
        }
        for example in case["examples"].as_array().into_iter().flatten() {
            let eligible = example["expect"] == "eligible";
            let request = &example["request"];
            if let Some(path) = request["path"].as_str() {
                let method = request["method"].as_str().unwrap_or_default();
                assert_eq!(
                    exchange::is_turn(method, path),
                    eligible,
                    "{name}: {method} {path}"
                );
            }
        }
    }
}
