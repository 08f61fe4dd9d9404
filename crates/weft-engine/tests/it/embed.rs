//! The embed pass against a fake provider: counters, splitting, failures, switching models.

use serde_json::{Value, json};
use weft_engine::{Config, EmbedOptions, Mode, SearchError};
use weft_testkit::FakeProvider;

use crate::support::{Home, home, home_with, question};

fn vector(text: &str, dims: usize) -> Vec<f32> {
    let mut v = vec![0.01; dims];
    for (i, b) in text.bytes().enumerate() {
        v[(usize::from(b) + i) % dims] += 1.0;
    }
    v
}

fn openai_answer(body: &Value, dims: usize) -> (u16, Value) {
    (
        200,
        json!({"data": [{"embedding": vector(body["input"].as_str().unwrap(), dims)}]}),
    )
}

fn openai(fake: &FakeProvider, model: &str, dims: usize) -> Config {
    let mut c = Config::default();
    c.embedding.provider = "openai".into();
    c.embedding.target = fake.url();
    c.embedding.model = model.into();
    c.embedding.dimensions = dims;
    c.embedding.api_key = "test-key".into();
    c
}

fn three_turns(h: &Home) {
    for i in 0..3 {
        h.turn(
            "s1",
            &format!("r{i}"),
            &format!("question {i}"),
            &format!("answer {i}"),
        );
    }
    h.derive();
}

#[test]
fn a_second_pass_over_unchanged_data_asks_nothing() {
    let fake = FakeProvider::start(|path, body| {
        assert_eq!(path, "/v1/embeddings");
        assert_eq!(body["encoding_format"], "float");
        assert_eq!(body["dimensions"], 8);
        openai_answer(body, 8)
    });
    let h = home_with(openai(&fake, "m", 8));
    three_turns(&h);
    let r = h.engine.embed_pass(EmbedOptions::default()).unwrap();
    assert_eq!(
        (r.scanned, r.embedded, r.chunk_rows, r.failed),
        (3, 3, 3, 0)
    );
    let r = h.engine.embed_pass(EmbedOptions::default()).unwrap();
    assert_eq!((r.scanned, r.embedded, r.up_to_date), (3, 0, 3));
    assert_eq!(fake.calls(), 3);
    let a = h.search("question 1\nanswer 1", Mode::Vector);
    assert_eq!(a.hits[0].span_id, "llm_r1");
    assert!((a.hits[0].score - 1.0).abs() < 1e-5);
    assert_eq!(a.hits[0].snippet, "question 1\nanswer 1");
}

#[test]
fn ollama_is_asked_as_specified() {
    let fake = FakeProvider::start(|path, body| {
        assert_eq!((path, &body["model"]), ("/api/embed", &json!("nomic")));
        (
            200,
            json!({"embeddings": [vector(body["input"].as_str().unwrap(), 4)]}),
        )
    });
    let mut c = Config::default();
    c.embedding.provider = "ollama".into();
    c.embedding.target = fake.url();
    c.embedding.model = "nomic".into();
    c.embedding.dimensions = 4;
    let h = home_with(c);
    three_turns(&h);
    assert_eq!(
        h.engine
            .embed_pass(EmbedOptions::default())
            .unwrap()
            .embedded,
        3
    );
}

#[test]
fn oversize_texts_are_split_and_hit_once() {
    let fake = FakeProvider::start(|_, body| {
        let text = body["input"].as_str().unwrap();
        if text.len() > 400 {
            let n = text.len() / 4;
            return (
                400,
                json!({"error": {"code": "context_length_exceeded",
                "message": format!("maximum context length is 100 tokens, requested {n} tokens")}}),
            );
        }
        openai_answer(body, 8)
    });
    let h = home_with(openai(&fake, "m", 8));
    let long = "lorem ipsum\n".repeat(100);
    h.turn("s1", "r1", &long, "the last words");
    h.derive();
    let r = h.engine.embed_pass(EmbedOptions::default()).unwrap();
    assert_eq!((r.embedded, r.chunked, r.oversized, r.failed), (1, 1, 1, 0));
    assert!(r.chunk_rows >= 4, "{r:?}");
    let a = h.search("the last words", Mode::Vector);
    assert_eq!(a.hits.len(), 1);
    assert!(a.hits[0].snippet.starts_with("lorem ipsum"));
    assert_eq!(a.hits[0].snippet.chars().count(), 281);
}

#[test]
fn failures_are_transient_or_remembered() {
    use std::sync::atomic::{AtomicU16, Ordering};
    static STATUS: AtomicU16 = AtomicU16::new(503);
    let fake = FakeProvider::start(|_, body| match STATUS.load(Ordering::SeqCst) {
        200 => openai_answer(body, 8),
        status => (status, json!({"error": {"message": "no"}})),
    });
    let h = home_with(openai(&fake, "m", 8));
    three_turns(&h);
    let pass = || h.engine.embed_pass(EmbedOptions::default());
    assert_eq!(pass().unwrap().failed, 3);
    assert_eq!(
        pass().unwrap().failed,
        3,
        "transient failures are tried again"
    );
    STATUS.store(401, Ordering::SeqCst);
    let e = pass().expect_err("a wrong key ends the pass").to_string();
    assert_eq!(e, "embedding failed: embedding api returned status 401: no");
    STATUS.store(422, Ordering::SeqCst);
    assert_eq!(pass().unwrap().failed, 3);
    let calls = fake.calls();
    let r = pass().unwrap();
    assert_eq!(
        (r.failed, r.poisoned),
        (0, 3),
        "remembered failures are not tried again"
    );
    assert_eq!(fake.calls(), calls);
    STATUS.store(200, Ordering::SeqCst);
    h.turn("s1", "r9", "new text", "new answer");
    h.derive();
    assert_eq!(pass().unwrap().embedded, 1);
}

#[test]
fn a_provider_that_is_limited_cut_off_dead_or_slow_costs_only_time() {
    use std::sync::atomic::{AtomicU16, Ordering};
    static STATUS: AtomicU16 = AtomicU16::new(200);
    for ollama in [false, true] {
        let fake = FakeProvider::start(move |_, body| match STATUS.load(Ordering::SeqCst) {
            2 => {
                std::thread::sleep(std::time::Duration::from_secs(3));
                (200, json!({}))
            }
            429 => (429, json!({"error": {"message": "slow down"}})),
            status => {
                let v = vector(body["input"].as_str().unwrap(), 8);
                (
                    status,
                    json!({"data": [{"embedding": v}], "embeddings": [v]}),
                )
            }
        });
        let mut config = openai(&fake, "m", 8);
        if ollama {
            config.embedding.provider = "ollama".into();
        }
        config.search_deadline = std::time::Duration::from_millis(300);
        let h = home_with(config);
        three_turns(&h);
        let pass = || h.engine.embed_pass(EmbedOptions::default()).unwrap();
        for status in [429, weft_testkit::DIES, weft_testkit::CUT] {
            STATUS.store(status, Ordering::SeqCst);
            let r = pass();
            assert_eq!((r.failed, r.embedded, r.poisoned), (3, 0, 0), "{status}");
        }
        STATUS.store(200, Ordering::SeqCst);
        assert_eq!(pass().embedded, 3);
        assert_eq!(h.search("question 1", Mode::Hybrid).mode, Mode::Hybrid);
        // A search does not wait for a slow one.
        STATUS.store(2, Ordering::SeqCst);
        let began = std::time::Instant::now();
        let a = h.search("question 1", Mode::Hybrid);
        assert!(began.elapsed() < std::time::Duration::from_secs(2));
        assert_eq!((a.mode, a.degraded[0].leg), (Mode::Lexical, "vectors"));
        assert_eq!(a.hits[0].span_id, "llm_r1");
    }
}

#[test]
fn a_text_over_the_limit_is_not_sent() {
    let fake = FakeProvider::start(|_, body| openai_answer(body, 8));
    let mut c = openai(&fake, "m", 8);
    c.max_text_bytes = 20;
    let h = home_with(c);
    h.turn("s1", "r1", "short", "enough");
    h.turn("s1", "r2", "far too long for this", "limit");
    h.derive();
    let r = h.engine.embed_pass(EmbedOptions::default()).unwrap();
    assert_eq!((r.embedded, r.failed), (1, 1));
    assert_eq!(
        h.engine
            .embed_pass(EmbedOptions::default())
            .unwrap()
            .poisoned,
        1
    );
    assert_eq!(fake.calls(), 1);
}

#[test]
fn a_wrong_size_ends_the_pass_and_names_both() {
    let fake = FakeProvider::start(|_, body| openai_answer(body, 9));
    let h = home_with(openai(&fake, "m", 8));
    three_turns(&h);
    let e = h
        .engine
        .embed_pass(EmbedOptions::default())
        .expect_err("size")
        .to_string();
    assert_eq!(
        e,
        "embedding model \"m\" returned 9 dimensions but 8 are configured; fix --embedding-model/--embedding-dimensions so the vector table matches"
    );
}

#[test]
fn m25_models_are_never_mixed() {
    let fake = FakeProvider::start(|_, body| openai_answer(body, 8));
    let h = home_with(openai(&fake, "a", 8));
    three_turns(&h);
    h.engine.embed_pass(EmbedOptions::default()).unwrap();
    // Another model of the same size: embedded again, in place, and until then not searched.
    let b = crate::support::open(h.dir.path(), openai(&fake, "b", 8)).unwrap();
    match b.search_spans(&question("question 1", Mode::Vector)) {
        // The shared store's table is there, whatever the model.
        Ok(a) => assert!(weft_testkit::shared_store() && a.hits.is_empty()),
        Err(e) => assert!(matches!(e, SearchError::NotInitialized), "{e}"),
    }
    assert_eq!(b.embed_pass(EmbedOptions::default()).unwrap().embedded, 3);
    assert_eq!(b.embed_pass(EmbedOptions::default()).unwrap().up_to_date, 3);
    assert_eq!(
        b.search_spans(&question("question 1", Mode::Vector))
            .unwrap()
            .hits
            .len(),
        3
    );
    // Another size: refused, with both sizes.
    let c = crate::support::open(h.dir.path(), openai(&fake, "c", 16)).unwrap();
    let e = c
        .embed_pass(EmbedOptions::default())
        .expect_err("size")
        .to_string();
    assert!(
        e.contains("stores vector(8) embeddings but 16 dimensions are configured"),
        "{e}"
    );
    let e = c
        .search_spans(&question("x", Mode::Vector))
        .expect_err("size")
        .to_string();
    assert!(e.contains("different vector dimensions"), "{e}");
    // Words still answer, and the answer says what is missing.
    let a = c
        .search_spans(&question("question 1", Mode::Hybrid))
        .unwrap();
    assert_eq!(a.mode, Mode::Lexical);
    assert!(!a.hits.is_empty());
}

#[test]
fn m20_a_broken_vector_leg_is_told() {
    let dead = {
        let fake = FakeProvider::start(|_, body| openai_answer(body, 8));
        openai(&fake, "m", 8)
    };
    let h = home_with(dead);
    three_turns(&h);
    let a = h.search("question 1", Mode::Hybrid);
    assert_eq!(a.mode, Mode::Lexical);
    assert_eq!(a.degraded[0].leg, "vectors");
    assert!(
        a.degraded[0].reason.starts_with("failed to embed query: "),
        "{:?}",
        a.degraded
    );
    assert_eq!(a.hits[0].span_id, "llm_r1");
}

#[test]
fn orphans_are_pruned() {
    let h = home();
    three_turns(&h);
    h.engine.embed_pass(EmbedOptions::default()).unwrap();
    let s = h.engine.store().sessions_by_key(None, "s1").unwrap()[0]
        .row
        .id
        .clone();
    assert!(h.engine.store().delete_session(&s).unwrap());
    assert!(h.search("question 1", Mode::Hybrid).hits.is_empty());
    assert!(h.search("question 1", Mode::Vector).hits.is_empty());
    assert_eq!(
        h.engine.embed_pass(EmbedOptions::default()).unwrap().pruned,
        3
    );
    // A new turn brings the session back.
    h.turn("s1", "r7", "another", "one");
    h.settle();
    assert_eq!(
        h.engine.store().sessions_by_key(None, "s1").unwrap()[0]
            .rollup
            .turn_count,
        4
    );
}

#[test]
fn before_any_pass_vectors_are_not_initialized_and_after_an_empty_one_they_are() {
    let h = home();
    let e = h
        .engine
        .search_spans(&question("x", Mode::Vector))
        .expect_err("no pass yet");
    assert_eq!(
        e.to_string(),
        "span embeddings not initialized: run the embed pass (tapes serve embed-worker or tapes dev embed-spans)"
    );
    h.engine.embed_pass(EmbedOptions::default()).unwrap();
    assert!(h.search("x", Mode::Vector).hits.is_empty());
}
