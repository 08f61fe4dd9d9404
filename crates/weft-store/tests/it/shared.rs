//! What only the shared store has: its schema's refusals, leases, the change feed of several machines,
//! HNSW, replicas, and data over several servers.

use std::collections::HashSet;

use weft_store::{Filter, PgStore, Store, StoreError, StoredVectors, merge_nearest};

use crate::support::{Home, id_of, key, lease, on, projection, shared, turn, vector};

const D: usize = 8;

/// Stores turns and projections of some sessions, and embeds them.
fn fill(s: &dyn Store, sessions: &[(&str, usize)]) {
    for (name, n) in sessions {
        s.insert_turn(turn(name, &format!("r-{name}"), 1)).unwrap();
        let texts: Vec<(String, String)> = (0..*n)
            .map(|i| (format!("question {name} {i}"), format!("answer {}", i % 7)))
            .collect();
        let row = s.session(&id_of(name)).unwrap().unwrap().row;
        let (p, docs) = projection(name, &texts, 1_000);
        s.write_projection(&row, p, docs, 1).unwrap();
    }
    embed(s);
}

fn embed(s: &dyn Store) -> usize {
    let model = s.ensure_schema("ollama/m@8", D).unwrap();
    let mut done = 0;
    let mut after = 0;
    loop {
        let (pending, last) = s.claim_texts(&model, after, 500, &lease("w")).unwrap();
        let Some(last) = last else { return done };
        after = last;
        let mut seen = HashSet::new();
        let vectors: Vec<StoredVectors> = pending
            .iter()
            .filter(|p| !p.has_vectors && seen.insert(p.hash))
            .map(|p| StoredVectors {
                hash: p.hash,
                chunks: vec![vector(&p.text, D)],
            })
            .collect();
        done += vectors.len();
        let settled = pending.iter().map(|p| p.id).collect();
        s.store_vectors(&model, vectors, Vec::new(), settled, 5)
            .unwrap();
    }
}

fn spans(s: &dyn Store, query: &str, filter: &Filter, n: usize) -> Vec<String> {
    let model = s.model("ollama/m@8", D).unwrap().unwrap();
    let near = s.nearest(&model, &vector(query, D), filter, n).unwrap();
    let ids: Vec<i64> = near.iter().map(|h| h.0).collect();
    let found = s.hydrate(&ids).unwrap();
    found.into_iter().map(|h| h.document.span_id).collect()
}

#[test]
fn the_schema_of_vectors_refuses_as_it_is_written() {
    let Some((h, dsn)) = shared() else { return };
    let s = &h.store;
    let text = |r: weft_store::Result<_>| {
        r.map(|_: weft_store::ModelInfo| ())
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(s.embedding_dimensions().unwrap(), None);
    assert!(s.model("ollama/m@8", D).unwrap().is_none());
    assert_eq!(
        text(s.ensure_schema("ollama/m@0", 0)),
        "span embedding dimensions cannot be 0, must be configured"
    );
    assert_eq!(
        text(s.ensure_schema("ollama/m@16001", 16_001)),
        "span embedding dimensions cannot exceed 16000"
    );
    s.ensure_schema("ollama/m@8", D).unwrap();
    assert_eq!(
        text(s.ensure_schema("ollama/m@16", 16)),
        "existing table \"span_embeddings\" stores vector(8) embeddings but 16 dimensions are configured; re-embed into a new table or drop the old one"
    );
    // Empty, but there: nothing is found, and that is no error.
    assert!(spans(&**s, "anything", &Filter::default(), 5).is_empty());
    let server = weft_testkit::postgres().unwrap();
    // Older pgvector: refused when connecting and when the schema is made.
    server
        .psql(
            &dsn,
            "UPDATE pg_extension SET extversion = '0.8.3' WHERE extname = 'vector'",
        )
        .unwrap();
    for e in [
        text(s.ensure_schema("ollama/m@8", D)),
        PgStore::open(&dsn, h.dir.path())
            .expect_err("old")
            .to_string(),
    ] {
        assert!(
            e.contains("pgvector 0.8.3") && e.contains("0.8.4 or newer"),
            "{e}"
        );
    }
    // None at all: the store opens, only vectors are missing.
    server
        .psql(
            &dsn,
            "DROP TABLE span_embeddings, span_embeddings_failures; DROP EXTENSION vector",
        )
        .unwrap();
    let other = on(&dsn);
    assert_eq!(
        text(other.store.ensure_schema("ollama/m@8", D)),
        "vector extension is not installed in this database"
    );
    let e = other.store.embed_counts(&weft_store::ModelInfo {
        id: 1,
        identity: "m".into(),
        dimensions: D,
    });
    assert!(matches!(e, Err(StoreError::NotInitialized)));
}

#[test]
fn tables_and_views_are_those_of_tapes() {
    let Some((h, dsn)) = shared() else { return };
    fill(&*h.store, &[("a", 2)]);
    let server = weft_testkit::postgres().unwrap();
    let ask = |sql: &str| server.psql(&dsn, sql).unwrap();
    assert_eq!(
        ask("SELECT count(*) FROM raw_turns WHERE raw_request->>'text' = 'r-a'"),
        "1"
    );
    assert_eq!(
        ask(
            "SELECT kind, call_kind, input->0->>'text', output->0->>'text' FROM tapes_v1.spans ORDER BY span_id"
        ),
        "llm|main|question a 0|answer 0\nllm|main|question a 1|answer 1"
    );
    assert_eq!(
        ask(
            "SELECT user_prompt, total_cost_usd, fidelity FROM tapes_v1.span_turns ORDER BY trace_id LIMIT 1"
        ),
        "question a 0|0.2500|raw"
    );
    assert_eq!(
        ask(
            "SELECT turn_count, total_tokens, derived_status, derived_model FROM tapes_v1.sessions"
        ),
        "2|6|completed|m"
    );
    assert_eq!(
        ask("SELECT count(*), min(model) FROM span_embeddings"),
        "2|m"
    );
    assert_eq!(
        ask("SELECT count(*) FROM tapes_v1.span_links, derived_projection_schemas"),
        "0"
    );
    // The number of a change grows only where something changed.
    let before = ask("SELECT string_agg(derive_seq::text, ',' ORDER BY trace_id) FROM spans");
    let row = h.store.session(&id_of("a")).unwrap().unwrap().row;
    let texts = |last: &str| {
        vec![
            ("question a 0".to_owned(), "answer 0".to_owned()),
            ("question a 1".to_owned(), last.to_owned()),
        ]
    };
    let (p, docs) = projection("a", &texts("answer 1"), 1_000);
    h.store.write_projection(&row, p, docs, 2).unwrap();
    let after = |_| ask("SELECT string_agg(derive_seq::text, ',' ORDER BY trace_id) FROM spans");
    assert_eq!(after(()), before);
    let (p, docs) = projection("a", &texts("another answer"), 1_000);
    h.store.write_projection(&row, p, docs, 3).unwrap();
    let changed = after(());
    assert_ne!(changed, before);
    assert_eq!(changed.split(',').next(), before.split(',').next());
}

#[test]
fn work_is_leased_to_one_worker_and_taken_over_from_a_dead_one() {
    let Some((h, dsn)) = shared() else { return };
    let (a, b) = (&h.store, on(&dsn));
    for n in 0..20 {
        a.insert_turn(turn(&format!("s{n}"), &format!("r{n}"), 1))
            .unwrap();
    }
    let short = weft_store::Lease {
        owner: "dead",
        micros: 2_000_000,
    };
    let first = a.claim_derivations(10, 10, 12, &short).unwrap();
    let second = b
        .store
        .claim_derivations(10, 10, 50, &lease("alive"))
        .unwrap();
    assert_eq!((first.len(), second.len()), (12, 8));
    assert!(second.iter().all(|e| !first.contains(e)));
    assert!(
        b.store
            .claim_derivations(10, 10, 50, &lease("alive"))
            .unwrap()
            .is_empty()
    );
    // Renewed, it stays taken.
    a.renew_leases(&lease("dead")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2_200));
    assert!(
        b.store
            .claim_derivations(10, 10, 50, &lease("alive"))
            .unwrap()
            .is_empty()
    );
    a.renew_leases(&short).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2_200));
    assert_eq!(
        b.store
            .claim_derivations(10, 10, 50, &lease("alive"))
            .unwrap()
            .len(),
        12
    );
    // A session that became dirty meanwhile is derived again, by anybody.
    a.insert_turn(turn("s0", "later", 5)).unwrap();
    let e = first
        .iter()
        .chain(&second)
        .find(|e| e.key == key("s0"))
        .unwrap();
    assert!(!a.dequeue(e).unwrap());
    assert_eq!(
        b.store
            .claim_derivations(10, 10, 50, &lease("other"))
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_text_is_embedded_by_one_worker_and_once() {
    let Some((h, dsn)) = shared() else { return };
    let (a, b) = (&h.store, on(&dsn));
    for name in ["a", "b"] {
        a.insert_turn(turn(name, &format!("r-{name}"), 1)).unwrap();
        let texts: Vec<(String, String)> = (0..30)
            .map(|i| ("same question".into(), format!("answer {i}")))
            .collect();
        let row = a.session(&id_of(name)).unwrap().unwrap().row;
        let (p, docs) = projection(name, &texts, 1_000);
        a.write_projection(&row, p, docs, 1).unwrap();
    }
    let model = a.ensure_schema("ollama/m@8", D).unwrap();
    let short = weft_store::Lease {
        owner: "dead",
        micros: 2_000_000,
    };
    let (mine, _) = a.claim_texts(&model, 0, 40, &short).unwrap();
    assert_eq!(mine.len(), 40);
    let (theirs, last) = b
        .store
        .claim_texts(&model, 0, 100, &lease("alive"))
        .unwrap();
    assert!(
        last.is_some() && theirs.is_empty(),
        "all 30 texts are leased: {}",
        theirs.len()
    );
    // The worker dies: its texts go to the other one.
    std::thread::sleep(std::time::Duration::from_millis(2_200));
    let (theirs, _) = b
        .store
        .claim_texts(&model, 0, 100, &lease("alive"))
        .unwrap();
    assert_eq!(theirs.len(), 60);
    let texts: HashSet<[u8; 32]> = theirs.iter().map(|p| p.hash).collect();
    assert_eq!(texts.len(), 30);
    let half: Vec<StoredVectors> = texts
        .iter()
        .map(|h| StoredVectors {
            hash: *h,
            chunks: vec![vector("x", D), vector("y", D)],
        })
        .collect();
    // Settled for the documents of one session only; those of the other one need no provider.
    let settled: Vec<i64> = theirs.iter().take(30).map(|p| p.id).collect();
    b.store
        .store_vectors(&model, half, Vec::new(), settled, 5)
        .unwrap();
    let (rest, _) = a.claim_texts(&model, 0, 100, &lease("third")).unwrap();
    assert_eq!(rest.len(), 30);
    assert!(rest.iter().all(|p| p.has_vectors));
    let settled = rest.iter().map(|p| p.id).collect();
    a.store_vectors(&model, Vec::new(), Vec::new(), settled, 6)
        .unwrap();
    let server = weft_testkit::postgres().unwrap();
    assert_eq!(
        server.psql(&dsn, "SELECT count(*), count(DISTINCT (trace_id, span_id)), (SELECT count(*) FROM embed_leases) FROM span_embeddings").unwrap(),
        "120|60|0"
    );
}

/// Follows the change feed until so many rows went in. Transactions of other tests hold it up, as
/// those of other databases of one server do.
fn follow(s: &dyn Store, rows: usize) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let mut done = 0;
    while done < rows {
        assert!(std::time::Instant::now() < end, "{done} of {rows}");
        done += s.index_words(1).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(done, rows);
}

#[test]
fn every_machine_finds_what_another_derived() {
    let Some((h, dsn)) = shared() else { return };
    let other = on(&dsn);
    let words = |s: &dyn Store, q: &str| {
        s.word_search(&[q.to_owned()], &Filter::default(), 10)
            .unwrap()
            .len()
    };
    fill(&*h.store, &[("alpha", 3)]);
    // In the tail first, then from each machine's own index.
    assert_eq!(
        (words(&*h.store, "alpha"), words(&*other.store, "alpha")),
        (3, 3)
    );
    follow(&*other.store, 3);
    follow(&*h.store, 3);
    assert_eq!(
        (words(&*h.store, "alpha"), words(&*other.store, "alpha")),
        (3, 3)
    );
    // A transaction that is still open hides nothing of what comes after it for ever.
    fill(&*h.store, &[("beta", 2)]);
    assert_eq!(words(&*other.store, "beta"), 2);
    h.store.delete_session(&id_of("alpha")).unwrap();
    follow(&*other.store, 2 + 3);
    assert_eq!(
        (words(&*other.store, "alpha"), words(&*other.store, "beta")),
        (0, 2)
    );
    // A folder that was lost is built again.
    let fresh = on(&dsn);
    assert_eq!(words(&*fresh.store, "beta"), 2);
    follow(&*fresh.store, 2 + 3);
    assert!(fresh.store.doctor().healthy(), "{:?}", fresh.store.doctor());
    fresh.store.reset_packed().unwrap();
    assert_eq!(words(&*fresh.store, "beta"), 2);
}

/// 110,000 vectors, straight into the tables: above this a filter is answered by the HNSW index.
#[test]
fn a_filter_over_the_index_is_never_answered_by_too_few() {
    let Some((h, dsn)) = shared() else { return };
    fill(&*h.store, &[("seed", 1)]);
    let server = weft_testkit::postgres().unwrap();
    let org = "'00000000-0000-0000-0000-000000000000'::uuid";
    server
        .psql(
            &dsn,
            &format!(
                "INSERT INTO span_turns (org_id, trace_id, session_id, started_at) SELECT {org}, 'x' || i, id, now() FROM generate_series(1, 110000) i, sessions;
                 INSERT INTO span_documents (org_id, trace_id, span_id, session_id, thread_id, agent, model, repository, started_at,
                   user_text, assistant_text, context_text, tool_text, hash, content_hash)
                 SELECT {org}, 'x' || i, 'y' || i, s.id, '', CASE WHEN i % 100 = 0 THEN 'rare' WHEN i % 2 = 0 THEN 'half' ELSE 'other' END,
                   'm', 'r', now(), 't', '', '', '', md5(i::text), '' FROM generate_series(1, 110000) i, sessions s;
                 SELECT setseed(0.5);
                 INSERT INTO span_embeddings (org_id, trace_id, span_id, model, content_hash, embedding)
                 SELECT {org}, 'x' || i, 'y' || i, 'm', md5(i::text),
                   ARRAY[random()-.5, random()-.5, random()-.5, random()-.5, random()-.5, random()-.5, random()-.5, random()-.5]::real[]::vector
                 FROM generate_series(1, 110000) i;
                 ANALYZE"
            ),
        )
        .unwrap();
    let s = &h.store;
    let of = |agent: &str| Filter {
        agent: Some(agent.into()),
        ..Filter::default()
    };
    let scopes = [Filter::default(), of("rare"), of("half"), of("none")];
    let all = |s: &dyn Store| -> Vec<Vec<String>> {
        scopes.iter().map(|f| spans(s, "question", f, 40)).collect()
    };
    let exact = all(&**s);
    let model = s.model("ollama/m@8", D).unwrap().unwrap();
    assert!(s.pack_vectors(&model).unwrap() > 100_000);
    assert_eq!(s.pack_vectors(&model).unwrap(), 0);
    let indexed = all(&*on(&dsn).store);
    for (e, i) in exact.iter().zip(&indexed) {
        assert_eq!(e.len(), i.len());
        let same = i.iter().filter(|x| e.contains(x)).count();
        assert!(same * 10 >= e.len() * 9, "{same} of {}", e.len());
    }
    assert_eq!(
        indexed.iter().map(Vec::len).collect::<Vec<_>>(),
        [40, 40, 40, 0]
    );
}

#[test]
fn a_read_replica_answers_and_refuses_to_write() {
    let Some(primary) =
        weft_testkit::own_postgres(&[("wal_level", "replica"), ("max_wal_senders", "4")])
    else {
        return;
    };
    let dsn = primary.database().unwrap();
    let h = on(&dsn);
    fill(&*h.store, &[("alpha", 3)]);
    let standby = primary.standby().unwrap();
    let there = standby.dsn(dsn.rsplit('/').next().unwrap().split('?').next().unwrap());
    let replica = on(&there);
    let found = |s: &dyn Store| spans(s, "question alpha 1", &Filter::default(), 3);
    assert_eq!(found(&*replica.store), found(&*h.store));
    assert_eq!(
        replica
            .store
            .word_search(&["alpha".into()], &Filter::default(), 9)
            .unwrap()
            .len(),
        3
    );
    let e = replica
        .store
        .insert_turn(turn("x", "rx", 1))
        .expect_err("read-only");
    assert!(matches!(e, StoreError::ReadOnly(_)), "{e}");
    // What is written on the primary arrives.
    fill(&*h.store, &[("beta", 2)]);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while replica
        .store
        .word_search(&["beta".into()], &Filter::default(), 9)
        .unwrap()
        .len()
        < 2
    {
        assert!(
            std::time::Instant::now() < end,
            "the standby does not follow"
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn sessions_over_three_servers_answer_as_one() {
    let Some((one, _)) = shared() else { return };
    let servers: Vec<weft_testkit::Postgres> = (0..3)
        .filter_map(|_| weft_testkit::own_postgres(&[]))
        .collect();
    let shards: Vec<Home> = servers.iter().map(|s| on(&s.database().unwrap())).collect();
    assert_eq!(shards.len(), 3);
    for n in 0..30_usize {
        let name = format!("s{n}");
        fill(&*one.store, &[(&name, 9)]);
        // The shard key of a turn: its session.
        fill(&*shards[n % 3].store, &[(&name, 9)]);
    }
    let model = one.store.model("ollama/m@8", D).unwrap().unwrap();
    for query in ["question s7 3", "answer 5", "s1 s2 s3 question 8"] {
        let q = vector(query, D);
        let scored = |s: &dyn Store| -> Vec<(String, f32)> {
            let near = s.nearest(&model, &q, &Filter::default(), 25).unwrap();
            let ids: Vec<i64> = near.iter().map(|h| h.0).collect();
            let found = s.hydrate(&ids).unwrap();
            found
                .into_iter()
                .zip(near)
                .map(|(h, n)| (h.document.span_id, n.1))
                .collect()
        };
        // Each shard gives its own nearest; the merge of exact lists is exact.
        let merged = merge_nearest(shards.iter().map(|s| scored(&*s.store)).collect(), 25);
        let whole = scored(&*one.store);
        assert_eq!(merged.len(), 25);
        for (m, w) in merged.iter().zip(&whole) {
            assert!((m.1 - w.1).abs() < 1e-6, "{query}: {m:?} {w:?}");
        }
    }
}

#[test]
fn a_running_server_survives_the_migration_of_a_newer_one() {
    let Some((h, dsn)) = shared() else { return };
    let server = weft_testkit::postgres().unwrap();
    fill(&*h.store, &[("before", 3)]);
    // What a migration may do: add. It runs while turns come in.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..200 {
                h.store
                    .insert_turn(turn("busy", &format!("r{n}"), n))
                    .unwrap();
            }
        });
        server
            .psql(
                &dsn,
                "BEGIN; ALTER TABLE raw_turns ADD COLUMN later text; ALTER TABLE sessions ADD COLUMN later text NOT NULL DEFAULT 'x';
                 CREATE INDEX later ON spans_20260615 (org_id, model);
                 UPDATE weft_meta SET value = (value::int + 1)::text WHERE key = 'schema_version'; COMMIT",
            )
            .unwrap();
        writer.join().unwrap();
    });
    assert_eq!(h.store.count_turns().unwrap(), 201);
    assert_eq!(
        spans(&*h.store, "question before 1", &Filter::default(), 3).len(),
        3
    );
    fill(&*h.store, &[("after", 2)]);
    // Whoever starts now has to be newer.
    let e = PgStore::open(&dsn, h.dir.path()).expect_err("older than the schema");
    assert!(
        matches!(
            e,
            StoreError::Newer {
                found,
                known,
                ..
            } if found == known + 1
        ),
        "{e}"
    );
}

#[test]
fn a_session_of_a_hundred_megabytes_is_stored_and_read() {
    let Some((h, _)) = shared() else { return };
    let s = &h.store;
    let text = |n: usize| format!("{n} ").repeat(2_500_000 / format!("{n} ").len());
    for n in 0..40 {
        let mut t = turn("large", &format!("r{n}"), n as i64);
        t.raw_request = Some(format!("{{\"text\":\"{}\"}}", text(n)));
        s.insert_turn(t).unwrap();
    }
    let row = s.session(&id_of("large")).unwrap().unwrap().row;
    let texts: Vec<(String, String)> = (0..40)
        .map(|n| (format!("question {n}"), text(n)))
        .collect();
    let (p, mut docs) = projection("large", &texts, 1_000);
    for d in &mut docs {
        d.assistant_text.truncate(1_000);
    }
    s.write_projection(&row, p, docs, 40).unwrap();
    let listed = s.raw_turns(&key("large")).unwrap();
    assert!(listed.iter().map(|t| t.request_chars).sum::<i64>() > 99_000_000);
    assert_eq!(s.session_spans(&row.id).unwrap().len(), 40);
    let last = s.span("trc_large_39", "llm_large_39").unwrap().unwrap();
    assert!(last.output.unwrap().len() > 2_400_000);
}
