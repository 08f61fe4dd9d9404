//! Search: freshness, odd queries, scopes, subagents.

use serde_json::json;
use weft_engine::{Config, Engine, Filter, Mode, Role, SpanQuery, Subagents};

use crate::support::{home, question, turn};

#[test]
fn what_was_stored_is_found_at_once_by_every_process() {
    let h = home();
    let other = crate::support::open(h.dir.path(), Config::default()).unwrap();
    h.turn("s1", "r1", "where is the zebra", "in the stable");
    h.settle();
    let find = |e: &Engine| {
        e.search_spans(&question("zebra", Mode::Lexical))
            .unwrap()
            .hits
            .len()
    };
    assert_eq!(find(&other), 1, "from the tail");
    assert!(h.engine.store().index_words(1).unwrap() > 0);
    assert_eq!(find(&other), 1, "from the committed index");
    h.turn("s1", "r2", "and the other zebra", "on the meadow");
    h.settle();
    assert_eq!(find(&other), 2, "from both");
    let v = other
        .search_spans(&question("zebra on the meadow", Mode::Vector))
        .unwrap();
    assert_eq!(v.hits[0].span_id, "llm_r2");
}

#[test]
fn the_tail_scores_as_the_index_does() {
    let h = home();
    for i in 0..40 {
        let words = ["alpha", "beta", "gamma", "delta"];
        let text = format!(
            "{} {} number{i}",
            words[i % 4],
            words[(i / 4) % 4].repeat(1 + i % 2)
        );
        h.turn("s1", &format!("r{i}"), &text, "noted");
    }
    h.settle();
    let ask = || {
        let words = weft_core::words::query_words("alpha gamma noted");
        h.engine
            .store()
            .word_search(&words, &Filter::default(), 100)
            .unwrap()
    };
    let tail = ask();
    h.engine.store().index_words(1).unwrap();
    let index = ask();
    assert_eq!(tail.len(), index.len());
    for ((a, x), (b, y)) in tail.iter().zip(&index) {
        assert_eq!(a, b);
        assert!((x - y).abs() < 0.05 * y.abs(), "{x} {y}");
    }
}

#[test]
fn m17_cjk_phrases_are_found() {
    let h = home();
    h.turn("s1", "r1", "数据库连接池泄漏", "已修复");
    h.settle();
    assert_eq!(h.search("连接池", Mode::Lexical).hits.len(), 1);
}

#[test]
fn m18_no_query_is_an_error() {
    let h = home();
    h.turn("s1", "r1", "see src/main.rs", "use --no-verify");
    h.settle();
    for q in [
        "don't",
        "src/main.rs",
        "--no-verify",
        "foo-bar",
        "\"",
        "*",
        "AND",
        "()",
        "\u{0}",
        "a OR",
        "[x TO y]",
        " ",
        "𐀀",
    ] {
        for mode in [Mode::Hybrid, Mode::Lexical, Mode::Vector] {
            h.search(q, mode);
        }
    }
    assert_eq!(h.search("src/main.rs", Mode::Hybrid).hits.len(), 1);
    let long = "word ".repeat(20_000);
    h.search(&long, Mode::Hybrid);
}

#[test]
fn scopes_are_exact() {
    let h = home();
    for i in 0..30 {
        let mut t = turn(
            &format!("s{}", i % 3),
            &format!("r{i}"),
            &format!("shared words {i}"),
            "ok",
        );
        t["session"]["harness_id"] = json!(if i % 3 == 0 { "codex" } else { "claude" });
        t["session"]["cwd"] = json!(format!("/no/such/repo{}", i % 3));
        t["meta"]["ts_request"] = json!(format!("2026-06-{:02}T00:00:00Z", i + 1));
        h.engine.ingest_turn(t.to_string().as_bytes()).unwrap();
    }
    h.settle();
    let sid = h.engine.store().sessions_by_key(None, "s1").unwrap()[0]
        .row
        .id
        .clone();
    let at = |d: &str| weft_core::time::parse_micros(&format!("2026-06-{d}T00:00:00Z"));
    let filters = [
        (
            Filter {
                sessions: vec![sid],
                ..Filter::default()
            },
            10,
        ),
        (
            Filter {
                agent: Some("codex".into()),
                ..Filter::default()
            },
            10,
        ),
        (
            Filter {
                model: Some("claude-sonnet-4-5".into()),
                ..Filter::default()
            },
            30,
        ),
        (
            Filter {
                model: Some("other".into()),
                ..Filter::default()
            },
            0,
        ),
        (
            Filter {
                repository: Some("repo2".into()),
                ..Filter::default()
            },
            10,
        ),
        (
            Filter {
                repository: Some("/no/such/repo2".into()),
                ..Filter::default()
            },
            10,
        ),
        (
            Filter {
                since: at("11"),
                until: at("16"),
                ..Filter::default()
            },
            5,
        ),
        (
            Filter {
                role: Some(Role::User),
                ..Filter::default()
            },
            30,
        ),
        (
            Filter {
                role: Some(Role::Tool),
                ..Filter::default()
            },
            0,
        ),
        (
            Filter {
                subagents: Subagents::Only,
                ..Filter::default()
            },
            0,
        ),
    ];
    for committed in [false, true] {
        if committed {
            h.engine.store().index_words(1).unwrap();
        }
        for (filter, want) in &filters {
            for mode in [Mode::Lexical, Mode::Vector, Mode::Hybrid] {
                let a = h
                    .engine
                    .search_spans(&SpanQuery {
                        query: "shared words".into(),
                        limit: 40,
                        mode,
                        filter: filter.clone(),
                        context: 0,
                    })
                    .unwrap();
                assert_eq!(
                    a.hits.len(),
                    *want,
                    "{filter:?} {mode:?} committed={committed}"
                );
            }
        }
    }
}

#[test]
fn m10_the_main_conversation_comes_before_subagents_that_repeat_it() {
    let h = home();
    h.turn("s1", "r0", "how do tides work", "the moon pulls the sea");
    for i in 1..=3 {
        let mut t = turn(
            "s1",
            &format!("r{i}"),
            "how do tides work",
            &format!("the moon pulls the sea {i}"),
        );
        t["meta"]["thread_id"] = json!(format!("sub{i}"));
        h.engine.ingest_turn(t.to_string().as_bytes()).unwrap();
    }
    h.settle();
    let a = h.search("how do tides work", Mode::Hybrid);
    assert_eq!(a.hits[0].thread_id, "");
    assert!(a.hits.len() > 1);
    let mut only = question("how do tides work", Mode::Hybrid);
    only.filter.subagents = Subagents::Exclude;
    assert_eq!(h.engine.search_spans(&only).unwrap().hits.len(), 1);
}

#[test]
fn a_quotation_comes_first_and_context_is_shown() {
    let h = home();
    for (i, text) in [
        "retry retry retry backoff",
        "please set the poll interval to forty",
        "retry the poll interval backoff",
    ]
    .iter()
    .enumerate()
    {
        h.turn("s1", &format!("r{i}"), text, "ok");
    }
    h.settle();
    let mut q = question("set the poll interval", Mode::Hybrid);
    q.context = 1;
    let a = h.engine.search_spans(&q).unwrap();
    assert_eq!(a.hits[0].trace_id, "trc_r1");
    assert!(a.hits[0].exact);
    assert_eq!(a.hits[0].around.len(), 3);
    let marked: Vec<&str> = a.hits[0]
        .marks
        .iter()
        .map(|m| &a.hits[0].snippet[m.0..m.1])
        .collect();
    assert!(marked.contains(&"interval"), "{marked:?}");
}

#[test]
fn a_tool_call_without_prose_is_found_by_its_words() {
    let h = home();
    let mut t = turn("s1", "r1", "go", "");
    t["response"]["message"]["content"] = json!([{"type": "tool_use", "tool_use_id": "t1", "tool_name": "Bash", "tool_input": {"command": "systemctl restart lanternd"}}]);
    h.engine.ingest_turn(t.to_string().as_bytes()).unwrap();
    h.settle();
    let mut q = question("lanternd", Mode::Hybrid);
    q.filter.role = Some(Role::Tool);
    assert_eq!(h.engine.search_spans(&q).unwrap().hits.len(), 1);
}
