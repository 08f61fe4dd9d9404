//! The store itself: damage, repair, other processes, other versions, recall.

use std::fs;

use weft_engine::{Config, Engine, Filter, Mode, StoreError};

use crate::support::{dump, home, question};

fn fill(h: &crate::support::Home) {
    for i in 0..20 {
        h.turn(
            &format!("s{}", i % 4),
            &format!("r{i}"),
            &format!("question about topic {i}"),
            &format!("answer {i}"),
        );
    }
    h.settle();
    h.engine.store().index_words(1).unwrap();
}

#[test]
fn the_index_is_rebuilt_from_the_truth_to_the_same_state() {
    if weft_testkit::shared_store() {
        return;
    }
    let h = home();
    fill(&h);
    let before = dump(&h.engine);
    let dir = h.dir.path().to_owned();
    drop(h.engine);
    Engine::remove_index(&dir).unwrap();
    let e = Engine::open(&dir, Config::default()).unwrap();
    e.sweep(i64::MIN).unwrap();
    e.catch_up(None, &mut |_, _, _| {}).unwrap();
    assert_eq!(dump(&e), before);
    assert!(e.doctor(false, &mut |_, _, _| {}).unwrap().report.healthy());
    assert_eq!(
        e.search_spans(&question("topic 7", Mode::Hybrid))
            .unwrap()
            .hits[0]
            .trace_id,
        "trc_r7"
    );
}

#[test]
fn damaged_packed_parts_are_noticed_and_rebuilt() {
    if weft_testkit::shared_store() {
        return;
    }
    let h = home();
    fill(&h);
    let dir = h.dir.path().to_owned();
    drop(h.engine);
    let mut damaged = 0;
    for entry in fs::read_dir(dir.join("words")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "idx" || e == "term") {
            let mut bytes = fs::read(&path).unwrap();
            let middle = bytes.len() / 3;
            bytes[middle] ^= 0xFF;
            fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    let e = Engine::open(&dir, Config::default()).unwrap();
    let found = e.doctor(false, &mut |_, _, _| {}).unwrap();
    assert!(
        !found.report.healthy() && found.report.rebuildable(),
        "{found:?}"
    );
    drop(e);
    // Removed altogether: what is marked as indexed is missing.
    fs::remove_dir_all(dir.join("words")).unwrap();
    let e = Engine::open(&dir, Config::default()).unwrap();
    let found = e.doctor(true, &mut |_, _, _| {}).unwrap();
    assert!(!found.report.healthy());
    assert!(found.repaired.unwrap().healthy());
    drop(e);
    let e = Engine::open(&dir, Config::default()).unwrap();
    assert!(
        !e.search_spans(&question("topic 7", Mode::Lexical))
            .unwrap()
            .hits
            .is_empty()
    );
}

#[test]
fn a_newer_store_is_refused_with_a_hint() {
    if weft_testkit::shared_store() {
        return;
    }
    let h = home();
    let dir = h.dir.path().to_owned();
    drop(h.engine);
    // user_version stands at offset 60 of a SQLite file, big-endian.
    let mut bytes = fs::read(dir.join("weft.db")).unwrap();
    bytes[60..64].copy_from_slice(&999_u32.to_be_bytes());
    fs::write(dir.join("weft.db"), &bytes).unwrap();
    for wal in ["weft.db-wal", "weft.db-shm"] {
        let _ = fs::remove_file(dir.join(wal));
    }
    let e = Engine::open(&dir, Config::default()).expect_err("newer");
    assert!(matches!(e, StoreError::Newer { found: 999, .. }), "{e}");
    assert!(e.hint().is_some());
}

#[test]
fn a_file_that_is_no_store_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(
        tmp.path().join("weft.db"),
        b"this is not a database, not even a small one",
    )
    .unwrap();
    let e = Engine::open(tmp.path(), Config::default()).expect_err("not a store");
    assert!(matches!(e, StoreError::Corrupt(_)), "{e}");
}

#[test]
fn a_folder_that_cannot_be_made_is_told() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("file"), b"x").unwrap();
    let e = Engine::open(&tmp.path().join("file/below"), Config::default()).expect_err("no folder");
    assert!(e.to_string().contains("below"), "{e}");
}

#[test]
fn two_engines_write_at_once() {
    let h = home();
    let dir = h.dir.path().to_owned();
    let threads: Vec<_> = (0..4)
        .map(|t| {
            let dir = dir.clone();
            std::thread::spawn(move || {
                let e = crate::support::open(&dir, Config::default()).unwrap();
                for i in 0..50 {
                    let body = crate::support::turn(
                        &format!("s{t}"),
                        &format!("r{t}-{i}"),
                        "q",
                        &format!("a{t}-{i}"),
                    );
                    e.ingest_turn(body.to_string().as_bytes()).unwrap();
                }
                e.catch_up(None, &mut |_, _, _| {}).unwrap();
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    h.settle();
    assert_eq!(h.engine.store().count_turns().unwrap(), 200);
    let c = h.engine.store().coverage(None).unwrap();
    assert_eq!(c.documents, 200);
    assert_eq!(c.underived_sessions, 0);
}

#[test]
fn packed_vectors_are_searched_with_the_recall_of_an_exact_scan() {
    if weft_testkit::shared_store() {
        return;
    }
    let h = home();
    // Texts that share words, so that neighbours are near; enough of them to fill a segment.
    let nouns = [
        "retry", "socket", "parser", "cache", "token", "schema", "thread", "queue", "index",
        "cursor", "lease", "shard",
    ];
    let verbs = [
        "drops",
        "refreshes",
        "splits",
        "merges",
        "encodes",
        "locks",
        "rotates",
        "flushes",
        "drains",
        "hashes",
    ];
    let model = h
        .engine
        .store()
        .ensure_schema("builtin/weft-s256d-1", 256)
        .unwrap();
    let embedder = h.engine.embedder().unwrap().clone();
    let mut vectors = Vec::new();
    for i in 0..6_000_usize {
        let text = format!(
            "{} {} {} {} row {i}",
            nouns[i % 12],
            verbs[i / 12 % 10],
            nouns[i / 120 % 12],
            verbs[i / 1440 % 10]
        );
        vectors.push((text.clone(), embedder.embed(&text).unwrap().unwrap()));
    }
    for chunk in vectors.chunks(500) {
        let rows = chunk
            .iter()
            .map(|(t, v)| weft_store::StoredVectors {
                hash: weft_core_hash(t),
                chunks: vec![v.clone()],
            })
            .collect();
        h.engine
            .store()
            .store_vectors(&model, rows, vec![], vec![], 1)
            .unwrap();
    }
    write_documents(&h, &vectors);
    let ask = |e: &Engine, q: &[f32]| -> Vec<i64> {
        e.store()
            .nearest(&model, q, &Filter::default(), 10)
            .unwrap()
            .into_iter()
            .map(|h| h.0)
            .collect()
    };
    let queries: Vec<Vec<f32>> = (0..40)
        .map(|i| {
            embedder
                .embed(&format!("{} when it {}", nouns[i % 12], verbs[i % 10]))
                .unwrap()
                .unwrap()
        })
        .collect();
    let exact: Vec<Vec<i64>> = queries.iter().map(|q| ask(&h.engine, q)).collect();
    assert!(h.engine.store().pack_vectors(&model).unwrap() >= 4_096);
    let other = crate::support::open(h.dir.path(), Config::default()).unwrap();
    let mut found = 0;
    for (q, want) in queries.iter().zip(&exact) {
        let got = ask(&other, q);
        found += want.iter().filter(|w| got.contains(w)).count();
    }
    assert!(found >= 396, "recall@10 {}", found as f64 / 400.0);
    // Rows behind the segment are found from the tail.
    h.turn("s9", "late", "an entirely different walrus", "swims");
    h.settle();
    assert_eq!(
        other
            .search_spans(&question("walrus swims", Mode::Vector))
            .unwrap()
            .hits[0]
            .span_id,
        "llm_late"
    );
}

fn weft_core_hash(text: &str) -> [u8; 32] {
    let hex = weft_core::hash::sha256_hex(text.as_bytes());
    let mut out = [0; 32];
    for (i, b) in out.iter_mut().enumerate() {
        *b = u8::from_str_radix(&hex[i * 2..i * 2 + 2], 16).unwrap();
    }
    out
}

fn write_documents(h: &crate::support::Home, texts: &[(String, Vec<f32>)]) {
    let row = weft_engine::SessionRow {
        id: "bulk".into(),
        ..Default::default()
    };
    let docs = texts
        .iter()
        .enumerate()
        .map(|(i, (t, _))| weft_engine::Document {
            trace_id: format!("t{i}"),
            span_id: "s".into(),
            session_id: "bulk".into(),
            user_text: t.clone(),
            hash: Some(weft_core_hash(t)),
            content_hash: weft_core_hash(t),
            ..Default::default()
        })
        .collect();
    h.engine
        .store()
        .write_projection(&row, Default::default(), docs, 1)
        .unwrap();
}

#[test]
fn a_store_can_be_opened_twice_and_read_while_written() {
    if weft_testkit::shared_store() {
        return;
    }
    let h = home();
    let s = weft_store::open(h.dir.path(), "").unwrap();
    h.turn("s1", "r1", "a", "b");
    assert_eq!(s.count_turns().unwrap(), 1);
    s.ping().unwrap();
}
