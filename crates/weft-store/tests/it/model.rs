//! The model test: the same random operations on both stores must give the same answers.

use std::collections::HashMap;

use serde_json::Value;
use weft_store::{
    Attribution, Correction, DecisionEvent, DecisionTruth, Filter, ListQuery, Role, SortField,
    Store, StoredVectors, Subagents,
};

use crate::support::{digest, embedded, id_of, key, lease, on, projection, session, turn, vector};

const DIMENSIONS: usize = 16;
const WORDS: [&str; 12] = [
    "refund",
    "token",
    "cents",
    "queue",
    "lease",
    "vector",
    "parser",
    "café",
    "größe",
    "日本語",
    "retry",
    "merge",
];

/// xorshift64*, so that a failing run can be repeated from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn text(&mut self) -> String {
        let n = self.below(5);
        (0..n)
            .map(|_| WORDS[self.below(WORDS.len() as u64) as usize])
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn session(&mut self) -> String {
        format!("s{}", self.below(6))
    }
}

/// Ids of rows are of one store only: documents are told by their spans.
fn spans_of(s: &dyn Store, hits: &[(i64, f32)]) -> Vec<(String, String)> {
    let ids: Vec<i64> = hits.iter().map(|h| h.0).collect();
    let scores: HashMap<i64, f32> = hits.iter().copied().collect();
    let mut found: Vec<(String, String)> = s
        .hydrate(&ids)
        .unwrap()
        .iter()
        .map(|h| (format!("{:.3}", scores[&h.id]), h.document.span_id.clone()))
        .collect();
    // Equal scores have no order that both stores could share.
    found.sort_by(|a, b| b.0.total_cmp_text(&a.0).then(a.1.cmp(&b.1)));
    found
}

trait ByNumber {
    fn total_cmp_text(&self, other: &Self) -> std::cmp::Ordering;
}

impl ByNumber for String {
    fn total_cmp_text(&self, other: &Self) -> std::cmp::Ordering {
        let n = |s: &String| s.parse::<f32>().unwrap_or(0.0);
        n(self).total_cmp(&n(other))
    }
}

/// JSON in the one form that both stores can share: how it is written differs.
fn json(text: &Option<String>) -> String {
    let v: Value = text
        .as_deref()
        .map(|t| serde_json::from_str(t).unwrap())
        .unwrap_or_default();
    String::from_utf8(weft_core::hash::canonical_json(&v)).unwrap()
}

fn filter(r: &mut Random) -> Filter {
    let mut f = Filter::default();
    match r.below(7) {
        0 => f.sessions = vec![id_of(&r.session()), id_of(&r.session())],
        1 => f.repository = Some("lantern".into()),
        2 => f.agent = Some(["claude", "codex"][r.below(2) as usize].into()),
        3 => f.role = Some([Role::User, Role::Assistant, Role::Tool][r.below(3) as usize]),
        4 => f.since = Some(r.below(40) as i64 * 1_000_000),
        5 => f.subagents = Subagents::Exclude,
        _ => {}
    }
    f
}

/// One operation on a store; what it answers, as text without ids of rows.
#[allow(clippy::too_many_lines, reason = "one arm an operation")]
fn step(s: &dyn Store, op: u64, r: &mut Random, at: i64) -> String {
    let name = r.session();
    match op {
        0..=2 => {
            let mut t = turn(&name, &format!("r{}", r.below(60)), at);
            if r.below(4) == 0 {
                t.raw_request =
                    Some(r#"{"a":"x\u0000y\\u0000","b":[1e3,0.10,12345678901234567890]}"#.into());
            }
            format!("{:?}", s.insert_turn(t).unwrap())
        }
        3 => {
            let parent = if r.below(2) == 0 {
                r.session()
            } else {
                String::new()
            };
            s.upsert_session(session(&name, &parent, at)).unwrap()
        }
        4 => {
            let label = (r.below(3) > 0).then(|| r.text());
            format!(
                "{:?}",
                s.rename_session(&id_of(&name), label.as_deref()).unwrap()
            )
        }
        5 if r.below(4) == 0 => format!("{:?}", s.delete_session(&id_of(&name)).unwrap()),
        5..=8 => {
            let Some(found) = s.session(&id_of(&name)).unwrap() else {
                return "no session".into();
            };
            let texts: Vec<(String, String)> =
                (0..r.below(5)).map(|_| (r.text(), r.text())).collect();
            let (p, docs) = projection(&name, &texts, at);
            s.write_projection(&found.row, p, docs, at as u64).unwrap();
            String::new()
        }
        9 => {
            let q = ListQuery {
                sort: SortField::ALL[r.below(8) as usize].1,
                ascending: r.below(2) == 0,
                since: (r.below(3) == 0).then_some(at / 2),
                auth_subject: (r.below(3) == 0).then(|| "user-0".into()),
                limit: 1 + r.below(4) as usize,
                ..ListQuery::default()
            };
            let (first, next) = s.list_sessions(&q).unwrap();
            let mut ids: Vec<String> = first.iter().map(|s| s.row.id.clone()).collect();
            if let Some(next) = next {
                let more = ListQuery {
                    after: Some(next),
                    limit: 50,
                    ..q
                };
                ids.extend(
                    s.list_sessions(&more)
                        .unwrap()
                        .0
                        .into_iter()
                        .map(|s| s.row.id),
                );
            }
            format!("{ids:?}")
        }
        10 => {
            let claimed = s.claim_derivations(at, at, 3, &lease("me")).unwrap();
            let mut said: Vec<String> = Vec::new();
            for e in claimed {
                said.push(e.key.harness_session_id.clone());
                match r.below(2) {
                    0 => said.push(format!("{}", s.dequeue(&e).unwrap())),
                    _ => s.put_back(&e, at + said.len() as i64).unwrap(),
                }
            }
            format!("{said:?} {}", s.queue_depth().unwrap())
        }
        11 => {
            let model = s.ensure_schema("openai/m@16", DIMENSIONS).unwrap();
            let (pending, _) = s.claim_texts(&model, 0, 100, &lease("me")).unwrap();
            let mut seen = std::collections::HashSet::new();
            let vectors: Vec<StoredVectors> = pending
                .iter()
                .filter(|p| !p.has_vectors && !p.has_failed && seen.insert(p.hash))
                .map(|p| StoredVectors {
                    hash: p.hash,
                    chunks: vec![vector(&p.text, DIMENSIONS); 1 + p.text.len() % 2],
                })
                .collect();
            let told = format!("{} of {}", vectors.len(), pending.len());
            let settled = pending.iter().map(|p| p.id).collect();
            s.store_vectors(&model, vectors, Vec::new(), settled, at)
                .unwrap();
            s.prune_vectors(&model).unwrap();
            let c = s.coverage(Some(model.id)).unwrap();
            format!("{told} {} {} {}", c.documents, c.embeddable, c.embedded)
        }
        12..=14 => {
            let Some(model) = s.model("openai/m@16", DIMENSIONS).unwrap() else {
                return "no model".into();
            };
            let (f, query) = (filter(r), r.text());
            let near = s
                .nearest(&model, &vector(&query, DIMENSIONS), &f, 1_000)
                .unwrap();
            format!("{:?}", spans_of(s, &near))
        }
        15..=17 => {
            let f = filter(r);
            let words = weft_core::words::query_words(&r.text());
            format!(
                "{:?}",
                spans_of(s, &s.word_search(&words, &f, 1_000).unwrap())
            )
        }
        18 => {
            s.index_words(1).unwrap();
            String::new()
        }
        19 => {
            let ws = s.put_workspace("shop", "", at).unwrap();
            let path = format!("d{}.md", r.below(4));
            let body = r.text().into_bytes();
            let truth = DecisionTruth {
                path: path.clone(),
                id: path.clone(),
                created_at: at,
                body_hash: Some(digest(&path).to_vec()),
                body: Some(body),
                baseline: r.text(),
            };
            let event = DecisionEvent {
                id: path.clone(),
                kind: "recorded".into(),
                at,
                ..DecisionEvent::default()
            };
            let said = match r.below(4) {
                0 => format!("{}", s.create_decision(&ws.slug, &truth, &event).unwrap()),
                1 => {
                    s.put_decisions(&ws.slug, vec![truth], vec![event]).unwrap();
                    String::new()
                }
                2 => {
                    s.move_decision(&ws.slug, &path, "d3.md").unwrap();
                    String::new()
                }
                _ => {
                    s.purge_decision(&ws.slug, &path, &event).unwrap();
                    String::new()
                }
            };
            format!(
                "{said} {:?} {:?} {:?} {}",
                s.decisions(&ws.slug).unwrap(),
                s.decision_body(&ws.slug, &path).unwrap(),
                s.decision_events(&ws.slug, &path).unwrap(),
                s.count_decisions().unwrap()
            )
        }
        20 => {
            let Some(id) = s.turn_of_request(&format!("r{}", r.below(60))).unwrap() else {
                return "no turn".into();
            };
            let before = s.attribution(id).unwrap().unwrap();
            let to = Attribution {
                raw_turn_id: id,
                key: key(&name),
                thread_id: ["", "t1"][r.below(2) as usize].into(),
                parent: (r.below(3) == 0).then(|| "p".into()),
            };
            let correction = Correction {
                to,
                reason: r.text(),
                at,
            };
            let made = session(&name, "", at);
            s.correct(correction, Some(made), &before.key).unwrap();
            let mut told = s.corrections().unwrap();
            told.iter_mut().for_each(|c| c.0.to.raw_turn_id = 0);
            let after = s.attribution(id).unwrap().unwrap();
            format!(
                "{:?} {:?} {told:?}",
                before.key,
                (after.key, after.thread_id, after.parent)
            )
        }
        _ => state(s, &name),
    }
}

/// Everything that can be read of a session.
fn state(s: &dyn Store, name: &str) -> String {
    let id = id_of(name);
    let spans: Vec<String> = s
        .session_spans(&id)
        .unwrap()
        .iter()
        .map(|s| {
            format!(
                "{} {} {} {} {}",
                s.trace_id,
                s.span_id,
                s.started_at,
                json(&s.input),
                json(&s.output)
            )
        })
        .collect();
    let turns: Vec<String> = s
        .turn_index(&key(name))
        .unwrap()
        .iter()
        .map(|t| {
            let whole = s.turn(t.id).unwrap().unwrap();
            let canonical =
                String::from_utf8(weft_core::hash::canonical_json(&whole.raw_request)).unwrap();
            format!("{} {:?} {}", t.source, t.meta, canonical)
        })
        .collect();
    let stats = s.stats(None, None, None).unwrap();
    format!(
        "{:?} {:?} {spans:?} {turns:?} {} {:?}",
        s.session(&id).unwrap(),
        s.traces(&id).unwrap(),
        s.count_turns().unwrap(),
        (
            stats.session_count,
            stats.turn_count,
            stats.input_tokens,
            stats.total_duration_ns
        )
    )
}

/// Fails with what stands around the first difference.
fn same(embedded: &str, shared: &str, at: &str) {
    if embedded == shared {
        return;
    }
    let n = embedded
        .chars()
        .zip(shared.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let around = |s: &str| {
        s.chars()
            .skip(n.saturating_sub(80))
            .take(200)
            .collect::<String>()
    };
    panic!(
        "{at}\nembedded …{}\n  shared …{}",
        around(embedded),
        around(shared)
    );
}

#[test]
fn random_operations_give_the_same_answers() {
    // A server of its own: transactions of other tests would hold up the change feed, and the statistics
    // of words depend on what is committed.
    let Some(server) = weft_testkit::own_postgres(&[]) else {
        return;
    };
    for seed in [1_u64, 7, 42, 2026] {
        let b = on(&server.database().unwrap());
        let a = embedded();
        let mut ops = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for n in 0..250 {
            let op = ops.below(22);
            let each = ops.next();
            let at = 1_000 + n * 1_000_000;
            let one = step(&*a.store, op, &mut Random(each), at);
            let two = step(&*b.store, op, &mut Random(each), at);
            same(
                &one,
                &two,
                &format!("seed {seed}, step {n}, operation {op}"),
            );
        }
        for n in 0..6 {
            let name = format!("s{n}");
            assert_eq!(
                state(&*a.store, &name),
                state(&*b.store, &name),
                "seed {seed}"
            );
        }
        drop((a.dir, b.dir));
    }
}
