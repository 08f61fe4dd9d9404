//! The shared store: search, ingest and derivation on PostgreSQL, beside the bare SQL on the same server
//! and beside the embedded store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use pgvector::Vector;
use postgres::{Client, NoTls};
use weft_engine::{Config, EmbedOptions, Engine, Filter, Mode, SpanQuery};
use weft_testkit::Postgres;

use crate::fixture::{self, percentiles};
use crate::speed::{INGEST_TIME, Random, WORDS, exact, fill, ingest, text, turn};

const QUERIES: usize = 100;
/// Pieces that a search for ten hits asks for.
const CHUNKS: usize = 40;

fn server() -> Result<Postgres> {
    Postgres::start(&[
        ("shared_buffers", "4GB"),
        ("maintenance_work_mem", "3GB"),
        ("max_wal_size", "8GB"),
        ("fsync", "on"),
        ("max_parallel_maintenance_workers", "1"),
    ])
    .map_err(|e| anyhow!("{e}"))
}

fn engine(dir: &std::path::Path, dsn: &str) -> Result<Arc<Engine>> {
    let config = Config {
        postgres_dsn: dsn.to_owned(),
        ..Config::default()
    };
    Ok(Engine::open(dir, config)?)
}

/// One row a commit, over as many connections as there are clients.
fn bare_inserts(dsn: &str, clients: usize, bodies: &[String]) -> Result<f64> {
    let mut c = Client::connect(dsn, NoTls)?;
    c.batch_execute("CREATE TABLE IF NOT EXISTS bare (id bigserial PRIMARY KEY, request_id text UNIQUE, body jsonb); TRUNCATE bare")?;
    let (next, start) = (AtomicUsize::new(0), Instant::now());
    std::thread::scope(|s| -> Result<()> {
        let all: Vec<_> = (0..clients)
            .map(|_| {
                s.spawn(|| -> Result<()> {
                    let mut c = Client::connect(dsn, NoTls)?;
                    let insert = c.prepare(
                        "INSERT INTO bare (request_id, body) VALUES ($1, $2::text::jsonb)",
                    )?;
                    while start.elapsed() < INGEST_TIME {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        let Some(b) = bodies.get(i) else { break };
                        c.execute(&insert, &[&format!("r{i}"), b])?;
                    }
                    Ok(())
                })
            })
            .collect();
        for t in all {
            t.join().map_err(|_| anyhow!("a client panicked"))??;
        }
        Ok(())
    })?;
    Ok(next.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64())
}

fn capture_table(pg: &Postgres, r: &mut Random, words: &[&str]) -> Result<()> {
    let bodies: Vec<String> = (0..40_000).map(|i| turn(i, &text(r, words, 60))).collect();
    println!("\nIngest over HTTP into PostgreSQL (fsync on), every turn durable");
    println!(
        "| clients | weft turns/s | bare INSERT of the body, rows/s | ratio | embedded store, turns/s |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for clients in [1, 8] {
        let dsn = pg.database().map_err(|e| anyhow!("{e}"))?;
        let w = ingest(clients, &bodies, &dsn)?;
        let b = bare_inserts(&dsn, clients, &bodies)?;
        let e = ingest(clients, &bodies, "")?;
        println!("| {clients} | {w:.0} | {b:.0} | {:.2} | {e:.0} |", w / b);
    }
    println!("\n| step | PostgreSQL | embedded | ratio |");
    println!("| --- | --- | --- | --- |");
    let n = 3_000;
    let mut rates = Vec::new();
    for dsn in [pg.database().map_err(|e| anyhow!("{e}"))?, String::new()] {
        let dir = tempfile::tempdir()?;
        let engine = engine(dir.path(), &dsn)?;
        for b in &bodies[..n] {
            engine.ingest_turn(b.as_bytes())?;
        }
        let start = Instant::now();
        while engine.derive_queued(0, 0)? > 0 {}
        let derive = n as f64 / start.elapsed().as_secs_f64();
        let start = Instant::now();
        let report = engine.embed_pass(EmbedOptions::default())?;
        rates.push((
            derive,
            report.embedded as f64 / start.elapsed().as_secs_f64(),
        ));
    }
    let (p, e) = (rates[0], rates[1]);
    println!(
        "| derive, turns/s | {:.0} | {:.0} | {:.2} |",
        p.0,
        e.0,
        p.0 / e.0
    );
    println!(
        "| embed pass, texts/s | {:.0} | {:.0} | {:.2} |",
        p.1,
        e.1,
        p.1 / e.1
    );
    Ok(())
}

/// The statements that a person would write for the nearest rows.
fn bare_sql(indexed: bool, session: bool, dimensions: usize) -> String {
    let scope = if session {
        "AND session_id = $4"
    } else {
        "AND $4::uuid IS NOT NULL"
    };
    if indexed {
        format!(
            "SELECT trace_id, span_id, 1 - (embedding <=> $1) FROM span_embeddings
             WHERE org_id = '00000000-0000-0000-0000-000000000000' AND model = $2 {scope}
             ORDER BY embedding::halfvec({dimensions}) <=> $1::vector({dimensions})::halfvec({dimensions}) LIMIT $3"
        )
    } else {
        format!(
            "WITH s AS MATERIALIZED (SELECT trace_id, span_id, embedding <=> $1 AS d FROM span_embeddings
               WHERE org_id = '00000000-0000-0000-0000-000000000000' AND model = $2 {scope})
             SELECT trace_id, span_id, 1 - d FROM s ORDER BY d LIMIT $3"
        )
    }
}

fn search_table(pg: &Postgres, r: &mut Random, words: &[&str], rows: usize) -> Result<()> {
    let dsn = pg.database().map_err(|e| anyhow!("{e}"))?;
    let (shared_dir, own_dir) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let seed = r.0;
    let shared = engine(shared_dir.path(), &dsn)?;
    let start = Instant::now();
    let matrix = fill(&shared, r, words, rows)?;
    let write = rows as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    shared.embed_pass(EmbedOptions::default())?;
    let embed = start.elapsed().as_secs_f64();
    let start = Instant::now();
    shared.store().index_words(1)?;
    let follow = rows as f64 / start.elapsed().as_secs_f64();
    let own = engine(own_dir.path(), "")?;
    fill(&own, &mut Random(seed), words, rows)?;
    fixture::finish(&own)?;
    let mut sql = Client::connect(&dsn, NoTls)?;
    sql.batch_execute("VACUUM ANALYZE span_embeddings")?;
    sql.batch_execute("VACUUM ANALYZE span_documents")?;
    let indexed: bool = sql
        .query_one(
            "SELECT to_regclass('span_embeddings_embedding_idx') IS NOT NULL",
            &[],
        )?
        .get(0);
    let by_index = indexed && rows > 100_000;
    let sizes = sql.query_one(
        "SELECT pg_total_relation_size('span_embeddings')::float8 / 1e6, pg_total_relation_size('span_documents')::float8 / 1e6,
           coalesce(pg_relation_size(to_regclass('span_embeddings_embedding_idx')), 0)::float8 / 1e6",
        &[],
    )?;
    let queries: Vec<String> = (0..QUERIES).map(|_| text(r, words, 4)).collect();
    let embedder = shared.embedder().map_err(|e| anyhow!("{e}"))?.clone();
    let model = shared
        .store()
        .model(embedder.identity(), embedder.dimensions())?
        .context("the model")?;
    let own_model = own
        .store()
        .model(embedder.identity(), embedder.dimensions())?
        .context("the model")?;
    println!(
        "\n{rows} spans, {} dimensions ({write:.0} documents/s written, embed pass {embed:.0} s{}, change feed followed at {follow:.0} documents/s; vectors {:.0} MB of which HNSW {:.0}, documents {:.0} MB)",
        embedder.dimensions(),
        if indexed { " with the HNSW index" } else { "" },
        sizes.get::<_, f64>(0),
        sizes.get::<_, f64>(2),
        sizes.get::<_, f64>(1)
    );
    println!("| what | p50 ms | p99 ms | recall@10 | beside the bare SQL |");
    println!("| --- | --- | --- | --- | --- |");
    let session = uuid::Uuid::parse_str(&fixture::session_id("s0"))?;
    for scoped in [false, true] {
        if scoped && rows <= 10_000 {
            continue;
        }
        let scope = if scoped {
            ", one session of 10,000 spans"
        } else {
            ""
        };
        let filter = Filter {
            sessions: if scoped {
                vec![session.to_string()]
            } else {
                Vec::new()
            },
            ..Filter::default()
        };
        let wanted = if scoped {
            &matrix[..10_000 * embedder.dimensions()]
        } else {
            &matrix[..]
        };
        let statement = sql.prepare(&bare_sql(
            by_index && !scoped,
            scoped,
            embedder.dimensions(),
        ))?;
        sql.batch_execute("SET hnsw.ef_search = 200; SET hnsw.iterative_scan = strict_order")?;
        let mut figures: [(Vec<f64>, usize); 3] = Default::default();
        for (i, q) in queries.iter().enumerate() {
            let v = embedder.embed(q)?.context("a vector")?;
            let (tenth, _) = exact(wanted, &v);
            let vector = Vector::from(v.clone());
            // In turns, so that all see the same neighbours on this machine.
            for turn in 0..3 {
                let which = (turn + i) % 3;
                let start = Instant::now();
                let scores: Vec<f32> = match which {
                    0 => shared
                        .store()
                        .nearest(&model, &v, &filter, CHUNKS)?
                        .iter()
                        .map(|h| h.1)
                        .collect(),
                    1 => {
                        let rows = sql.query(
                            &statement,
                            &[&vector, &model.identity, &(CHUNKS as i64), &session],
                        )?;
                        rows.iter().map(|r| r.get::<_, f64>(2) as f32).collect()
                    }
                    _ => own
                        .store()
                        .nearest(&own_model, &v, &filter, CHUNKS)?
                        .iter()
                        .map(|h| h.1)
                        .collect(),
                };
                figures[which].0.push(start.elapsed().as_secs_f64() * 1e3);
                figures[which].1 += scores
                    .iter()
                    .take(10)
                    .filter(|s| **s >= tenth - 1e-5)
                    .count();
            }
        }
        let bare = percentiles(figures[1].0.clone()).0;
        for ((ms, found), name) in figures.into_iter().zip([
            "weft on PostgreSQL, nearest 40",
            "bare SQL, nearest 40",
            "weft embedded, nearest 40",
        ]) {
            let (p50, p99) = percentiles(ms);
            println!(
                "| {name}{scope} | {p50:.2} | {p99:.2} | {:.4} | {:.2} |",
                found as f64 / (QUERIES * 10) as f64,
                p50 / bare
            );
        }
    }
    for (name, e) in [("weft on PostgreSQL", &shared), ("weft embedded", &own)] {
        let mut ms = Vec::new();
        for q in &queries {
            let query = SpanQuery {
                query: q.clone(),
                limit: 10,
                mode: Mode::Hybrid,
                ..SpanQuery::default()
            };
            let start = Instant::now();
            e.search_spans(&query)?;
            ms.push(start.elapsed().as_secs_f64() * 1e3);
        }
        let (p50, p99) = percentiles(ms);
        println!("| {name}, a whole hybrid search | {p50:.2} | {p99:.2} | | |");
    }
    Ok(())
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let sizes: Vec<usize> = if args.is_empty() {
        vec![10_000, 100_000]
    } else {
        args.iter().map(|a| a.parse()).collect::<Result<_, _>>()?
    };
    let pg = server()?;
    let mut r = Random(0x9E37_79B9_7F4A_7C15);
    if args.len() != 1 {
        capture_table(&pg, &mut r, &words)?;
    }
    for rows in sizes {
        search_table(&pg, &mut r, &words, rows)?;
    }
    Ok(())
}
