//! Vectors in pgvector: exact where that is fast, HNSW above, and never too few hits.
//!
//! Rows are kept by span, as tapes keeps them, and found by the hash of the text: a text that has
//! vectors anywhere is not embedded again. **Invariant.** A search reads one model's rows, and only
//! those whose text is the document's present one.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use pgvector::Vector;
use uuid::Uuid;
use weft_core::time::Micros;

use super::PgStore;
use super::documents::conditions;
use super::pool::{Conn, EF_SEARCH, Fail, PgResult, no_table};
use super::types::{At, from_hex, hex, text};
use crate::{
    Document, EmbedReport, FailureRow, Filter, Lease, ModelInfo, PendingText, Result, StoreError,
    StoredVectors, Vectors,
};

/// Rows in scope up to which every one is compared. The planner's own choice of HNSW for a narrow
/// filter is several times slower and loses hits (spec/storage.md section 5).
const EXACT_ROWS: f64 = 100_000.0;
/// Rows from which the HNSW index is worth what it costs every insert.
const INDEX_ROWS: f64 = EXACT_ROWS / 2.0;
/// Largest vectors that `halfvec` can index.
const MAX_INDEXED: usize = 4_000;
/// Largest vectors that stay in the row: a page holds 8 kB.
const MAX_PLAIN: usize = 1_900;
/// Largest vectors of pgvector.
const MAX_DIMENSIONS: usize = 16_000;
/// How long the size of a table is believed.
const SIZE_AGE: Duration = Duration::from_secs(30);
/// Documents that are counted each time.
const COUNTED: i64 = 20_000;
/// Key of the advisory lock that building an index takes.
const LOCK: i64 = 0x7765_6674_0002;

/// A row of a piece that is there already is replaced.
const TAKES_OVER: &str = "ON CONFLICT (org_id, trace_id, span_id, chunk_idx) DO UPDATE SET
  session_id = excluded.session_id, model = excluded.model, content_hash = excluded.content_hash,
  embedded_at = excluded.embedded_at, embedding = excluded.embedding";

const INDEX: &str = "span_embeddings_embedding_idx";

/// Sizes that are asked now and then.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    documents: Mutex<Option<(Instant, u64, u64)>>,
    vectors: Mutex<Option<(Instant, Ann)>>,
}

/// What there is to search in.
#[derive(Clone, Copy, Debug)]
struct Ann {
    rows: f64,
    /// Whether a usable HNSW index is there.
    indexed: bool,
}

impl Sizes {
    /// Documents, and those with text to embed.
    pub(super) fn documents(&self, c: &mut Conn, org: Uuid) -> PgResult<(u64, u64)> {
        let mut known = self.documents.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((at, d, e)) = *known
            && at.elapsed() < SIZE_AGE
        {
            return Ok((d, e));
        }
        let mut count = |limit: i64| -> PgResult<(i64, i64)> {
            let r = c.row(
                "SELECT count(*), count(hash) FROM
                   (SELECT hash FROM span_documents WHERE org_id = $1 LIMIT $2) x",
                &[&org, &limit],
            )?;
            Ok(r.map_or((0, 0), |r| (r.get(0), r.get(1))))
        };
        let (mut d, mut e) = count(COUNTED + 1)?;
        if d > COUNTED {
            (d, e) = count(i64::MAX)?;
            *known = Some((Instant::now(), d as u64, e as u64));
        }
        Ok((d as u64, e as u64))
    }

    fn vectors(&self, c: &mut Conn) -> PgResult<Ann> {
        let mut known = self.vectors.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((at, ann)) = *known
            && at.elapsed() < SIZE_AGE
        {
            return Ok(ann);
        }
        let ann = sizes(c)?;
        // A small table may be large in a moment; asking costs little beside scanning it.
        if ann.rows > INDEX_ROWS {
            *known = Some((Instant::now(), ann));
        }
        Ok(ann)
    }

    fn forget(&self) {
        *self.vectors.lock().unwrap_or_else(|e| e.into_inner()) = None;
    }
}

fn sizes(c: &mut Conn) -> PgResult<Ann> {
    let r = c.row(
        "SELECT greatest(coalesce((SELECT n_live_tup FROM pg_stat_user_tables WHERE relid = t.oid), 0), t.reltuples)::float8,
           EXISTS (SELECT 1 FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
             JOIN pg_am a ON a.oid = x.relam WHERE i.indrelid = t.oid AND a.amname = 'hnsw' AND i.indisvalid)
         FROM pg_class t WHERE t.oid = to_regclass('span_embeddings')",
        &[],
    )?;
    Ok(r.map_or(
        Ann {
            rows: 0.0,
            indexed: false,
        },
        |r| Ann {
            rows: r.get(0),
            indexed: r.get(1),
        },
    ))
}

/// The model's name as the tables have it: without provider and length, as tapes writes it.
pub(super) fn model_name(identity: &str) -> &str {
    for provider in ["ollama/", "openai/"] {
        if let Some(name) = identity.strip_prefix(provider) {
            return name.rsplit_once('@').map_or(name, |(name, _)| name);
        }
    }
    identity
}

/// A model, with a number that stands for it in every process.
fn model_info(identity: &str, dimensions: usize) -> ModelInfo {
    let hash = weft_core::hash::sha256_hex(identity.as_bytes());
    ModelInfo {
        id: i64::from_str_radix(&hash[..15], 16).unwrap_or(0) | 1,
        identity: identity.to_owned(),
        dimensions,
    }
}

/// Length of the vectors of the table; `None` where there is no table.
fn stored_dimensions(c: &mut Conn) -> PgResult<Option<usize>> {
    let r = c.row(
        "SELECT atttypmod FROM pg_attribute
         WHERE attrelid = to_regclass('span_embeddings') AND attname = 'embedding' AND NOT attisdropped",
        &[],
    )?;
    Ok(r.and_then(|r| usize::try_from(r.get::<_, i32>(0)).ok()))
}

fn create_tables(c: &mut Conn, dimensions: usize) -> PgResult<()> {
    let plain = if dimensions <= MAX_PLAIN {
        "ALTER TABLE span_embeddings ALTER COLUMN embedding SET STORAGE PLAIN;"
    } else {
        ""
    };
    c.client
        .execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
    c.batch(&format!(
        "CREATE TABLE IF NOT EXISTS span_embeddings (
           org_id uuid NOT NULL,
           trace_id text NOT NULL,
           span_id text NOT NULL,
           chunk_idx int NOT NULL DEFAULT 0,
           session_id uuid,
           model text NOT NULL,
           content_hash text NOT NULL,
           embedded_at timestamptz NOT NULL DEFAULT now(),
           embedding vector({dimensions}) NOT NULL,
           PRIMARY KEY (org_id, trace_id, span_id, chunk_idx));
         {plain}
         CREATE INDEX IF NOT EXISTS span_embeddings_hash_idx ON span_embeddings (org_id, content_hash);
         CREATE TABLE IF NOT EXISTS span_embeddings_failures (
           org_id uuid NOT NULL,
           trace_id text NOT NULL,
           span_id text NOT NULL,
           session_id uuid,
           model text NOT NULL,
           content_hash text NOT NULL,
           reason text NOT NULL,
           error_detail text,
           token_count int,
           attempts int NOT NULL DEFAULT 1,
           first_failed_at timestamptz NOT NULL DEFAULT now(),
           last_failed_at timestamptz NOT NULL DEFAULT now(),
           PRIMARY KEY (org_id, trace_id, span_id));
         CREATE INDEX IF NOT EXISTS span_embeddings_failures_hash_idx
           ON span_embeddings_failures (org_id, content_hash)"
    ))?;
    Ok(())
}

/// Runs what needs the tables; without them it is "not initialized".
pub(super) fn with_tables<T>(r: std::result::Result<T, postgres::Error>) -> PgResult<T> {
    r.map_err(|e| {
        if no_table(&e) {
            Fail::Store(StoreError::NotInitialized)
        } else {
            e.into()
        }
    })
}

/// How the nearest rows are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// All rows, sorted by distance.
    Exact,
    /// The HNSW index, with as many more rows as it takes.
    Index,
}

impl PgStore {
    /// Rows that a filter lets through, as the planner thinks.
    fn scope(&self, c: &mut Conn, filter: &Filter) -> PgResult<f64> {
        let cond = conditions(self.org, filter);
        let plan = c.client.query(
            &format!(
                "EXPLAIN (FORMAT JSON) SELECT 1 FROM span_documents d WHERE d.org_id = $1 AND {}",
                cond.sql
            ),
            &cond.params(),
        )?;
        let rows = plan
            .first()
            .and_then(|r| r.try_get::<_, serde_json::Value>(0).ok())
            .and_then(|v| v.pointer("/0/Plan/Plan Rows")?.as_f64());
        Ok(rows.unwrap_or(0.0))
    }

    /// The nearest rows in scope: document and similarity of each piece, best first.
    fn rows_near(
        &self,
        c: &mut Conn,
        model: &ModelInfo,
        query: &Vector,
        filter: &Filter,
        chunks: usize,
        plan: Plan,
    ) -> PgResult<Vec<(i64, f32)>> {
        let mut cond = conditions(self.org, filter);
        let m = cond.bind(model_name(&model.identity).to_owned());
        let q = cond.bind(query.clone());
        let limit = cond.bind(chunks as i64);
        let d = model.dimensions;
        let scope = &cond.sql;
        let joined = "span_documents d ON d.org_id = $1 AND d.trace_id = e.trace_id
                       AND d.span_id = e.span_id AND d.hash = e.content_hash";
        // `+ 0` keeps the planner from an index scan.
        let (distance, order) = match plan {
            Plan::Exact => (format!("(e.embedding <=> {q}) + 0"), "distance".to_owned()),
            Plan::Index => (
                format!("e.embedding <=> {q}"),
                format!("e.embedding::halfvec({d}) <=> {q}::vector({d})::halfvec({d})"),
            ),
        };
        let sql = if filter.is_empty() {
            // Nothing is asked of the documents: they are joined behind the nearest rows.
            format!(
                "WITH near AS MATERIALIZED (SELECT e.trace_id, e.span_id, e.content_hash, {distance} AS distance
                   FROM span_embeddings e WHERE e.org_id = $1 AND e.model = {m} ORDER BY {order} LIMIT {limit})
                 SELECT d.id, (1 - e.distance)::float4 FROM near e JOIN {joined} ORDER BY e.distance, d.id"
            )
        } else {
            format!(
                "WITH near AS MATERIALIZED (SELECT d.id, {distance} AS distance
                   FROM span_embeddings e JOIN {joined}
                   WHERE e.org_id = $1 AND e.model = {m} AND {scope} ORDER BY {order} LIMIT {limit})
                 SELECT id, (1 - distance)::float4 FROM near ORDER BY distance, id"
            )
        };
        let params = cond.params();
        let rows = if plan == Plan::Exact || chunks <= EF_SEARCH {
            c.rows(&sql, &params)
        } else {
            let ef = chunks.min(1_000);
            c.batch(&format!("BEGIN READ ONLY; SET LOCAL hnsw.ef_search = {ef}"))?;
            let rows = c.rows(&sql, &params);
            c.batch(if rows.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
            rows
        };
        let rows = with_tables(rows)?;
        Ok(rows.iter().map(|r| (r.get(0), r.get(1))).collect())
    }

    fn find_near(
        &self,
        c: &mut Conn,
        model: &ModelInfo,
        query: &Vector,
        filter: &Filter,
        chunks: usize,
    ) -> PgResult<Vec<(i64, f32)>> {
        let ann = self.sizes.vectors(c)?;
        let mut scope = ann.rows;
        if ann.indexed && scope > EXACT_ROWS && !filter.is_empty() {
            scope = self.scope(c, filter)?.min(scope);
        }
        let mut plan = Plan::Exact;
        if ann.indexed && scope > EXACT_ROWS {
            plan = Plan::Index;
        }
        let mut found = self.rows_near(c, model, query, filter, chunks, plan)?;
        // More than that are in scope: the scan gave up, or the estimate was wrong. Behind an unfiltered
        // one a few rows may have lost their document.
        let wanted = if filter.is_empty() {
            chunks / 2
        } else {
            chunks
        };
        if plan == Plan::Index && found.len() < wanted {
            found = self.rows_near(c, model, query, filter, chunks, Plan::Exact)?;
        }
        // Several pieces of one span are one hit, with the best of their scores.
        let mut seen = HashSet::new();
        found.retain(|h| seen.insert(h.0));
        Ok(found)
    }

    /// Documents after `after` that the model has not settled: id and hash.
    fn unsettled(
        &self,
        c: &mut Conn,
        model: &ModelInfo,
        after: i64,
        limit: usize,
    ) -> PgResult<Vec<(i64, String)>> {
        let rows = c.rows(
            "SELECT id, hash FROM span_documents
             WHERE org_id = $1 AND hash IS NOT NULL AND id > $2 AND embed_model <> $3 ORDER BY id LIMIT $4",
            &[&self.org, &after, &model.id, &(limit as i64)],
        )?;
        Ok(rows.iter().map(|r| (r.get(0), r.get(1))).collect())
    }
}

impl Vectors for PgStore {
    fn ensure_schema(&self, identity: &str, dimensions: usize) -> Result<ModelInfo> {
        if dimensions == 0 {
            return Err(StoreError::Other(
                "span embedding dimensions cannot be 0, must be configured".into(),
            ));
        }
        if dimensions > MAX_DIMENSIONS {
            return Err(StoreError::Other(format!(
                "span embedding dimensions cannot exceed {MAX_DIMENSIONS}"
            )));
        }
        let have = self.pool.read(|c| {
            let there = c.row("SELECT 1 FROM pg_extension WHERE extname = 'vector'", &[])?;
            if there.is_none() {
                return Err(StoreError::Other(
                    "vector extension is not installed in this database".into(),
                )
                .into());
            }
            super::check_pgvector(c)?;
            stored_dimensions(c)
        })?;
        let have = match have {
            Some(have) => Some(have),
            None => self.pool.write(|c| {
                create_tables(c, dimensions)?;
                stored_dimensions(c)
            })?,
        };
        match have {
            Some(have) if have != dimensions => Err(StoreError::Dimensions {
                have,
                want: dimensions,
            }),
            _ => Ok(model_info(identity, dimensions)),
        }
    }

    fn model(&self, identity: &str, dimensions: usize) -> Result<Option<ModelInfo>> {
        let have = self.pool.read(stored_dimensions)?;
        Ok((have == Some(dimensions)).then(|| model_info(identity, dimensions)))
    }

    fn embedding_dimensions(&self) -> Result<Option<usize>> {
        self.pool.read(stored_dimensions)
    }

    fn claim_texts(
        &self,
        model: &ModelInfo,
        after: i64,
        limit: usize,
        lease: &Lease<'_>,
    ) -> Result<(Vec<PendingText>, Option<i64>)> {
        let name = model_name(&model.identity);
        self.pool.write(|c| {
            let page = self.unsettled(c, model, after, limit)?;
            let Some(last) = page.last().map(|p| p.0) else {
                return Ok((Vec::new(), None));
            };
            let mut hashes: Vec<&str> = page.iter().map(|p| p.1.as_str()).collect();
            hashes.sort_unstable();
            hashes.dedup();
            c.run(
                "DELETE FROM embed_leases WHERE org_id = $1 AND model = $2 AND content_hash = ANY($3) AND until <= now()",
                &[&self.org, &name, &hashes],
            )?;
            // Whoever holds the lease of a text embeds it; what is leased to another is his.
            let mine: HashSet<String> = with_tables(c.rows(
                "INSERT INTO embed_leases (org_id, model, content_hash, owner, until)
                 SELECT $1, $2, h, $4, now() + $5 * interval '1 microsecond' FROM unnest($3::text[]) h
                 WHERE NOT EXISTS (SELECT 1 FROM span_embeddings e WHERE e.org_id = $1 AND e.content_hash = h AND e.model = $2)
                   AND NOT EXISTS (SELECT 1 FROM span_embeddings_failures f WHERE f.org_id = $1 AND f.content_hash = h AND f.model = $2)
                 ON CONFLICT (org_id, model, content_hash) DO UPDATE SET owner = excluded.owner, until = excluded.until
                   WHERE embed_leases.owner = excluded.owner
                 RETURNING content_hash",
                &[&self.org, &name, &hashes, &lease.owner, &(lease.micros as f64)],
            ))?
            .iter()
            .map(|r| r.get(0))
            .collect();
            // Asked after the leases are ours: what another has just stored is seen.
            let ids: Vec<i64> = page.iter().map(|p| p.0).collect();
            let rows = c.rows(
                "SELECT d.id, d.user_text, d.assistant_text, d.hash,
                   EXISTS (SELECT 1 FROM span_embeddings e WHERE e.org_id = $1 AND e.content_hash = d.hash AND e.model = $3),
                   EXISTS (SELECT 1 FROM span_embeddings_failures f WHERE f.org_id = $1 AND f.content_hash = d.hash AND f.model = $3)
                 FROM span_documents d WHERE d.org_id = $1 AND d.id = ANY($2) ORDER BY d.id",
                &[&self.org, &ids, &name],
            )?;
            let texts = rows
                .iter()
                .filter_map(|r| {
                    let hash: String = r.get(3);
                    let (has_vectors, has_failed): (bool, bool) = (r.get(4), r.get(5));
                    if !has_vectors && !has_failed && !mine.contains(&hash) {
                        return None;
                    }
                    Some(PendingText {
                        id: r.get(0),
                        text: Document {
                            user_text: r.get(1),
                            assistant_text: r.get(2),
                            ..Document::default()
                        }
                        .text(),
                        hash: from_hex(&hash)?,
                        has_vectors,
                        has_failed,
                    })
                })
                .collect();
            Ok((texts, Some(last)))
        })
    }

    fn embed_waiting(&self, model: &ModelInfo) -> Result<bool> {
        self.pool.read(|c| {
            let r = c.row(
                "SELECT EXISTS (SELECT 1 FROM span_documents WHERE org_id = $1 AND hash IS NOT NULL AND embed_model < $2)
                   OR EXISTS (SELECT 1 FROM span_documents WHERE org_id = $1 AND hash IS NOT NULL AND embed_model > $2)
                   OR EXISTS (SELECT 1 FROM removed_documents WHERE org_id = $1 AND NOT vectors_done)",
                &[&self.org, &model.id],
            )?;
            Ok(r.is_some_and(|r| r.get(0)))
        })
    }

    fn embed_counts(&self, model: &ModelInfo) -> Result<EmbedReport> {
        self.pool.read(|c| {
            let r = with_tables(c.row(
                "SELECT count(*), count(*) FILTER (WHERE hash IS NULL),
                   count(*) FILTER (WHERE hash IS NOT NULL AND embed_model = $2),
                   (SELECT count(*) FROM span_embeddings_failures f JOIN span_documents d
                      ON d.org_id = f.org_id AND d.trace_id = f.trace_id AND d.span_id = f.span_id AND d.hash = f.content_hash
                    WHERE f.org_id = $1 AND f.model = $3 AND d.embed_model = $2)
                 FROM span_documents WHERE org_id = $1",
                &[&self.org, &model.id, &model_name(&model.identity)],
            ))?;
            let n = |i: usize| r.as_ref().map_or(0, |r| r.get::<_, i64>(i)) as u64;
            let (settled, poisoned) = (n(2), n(3));
            Ok(EmbedReport {
                scanned: n(0),
                empty: n(1),
                up_to_date: settled - poisoned.min(settled),
                poisoned,
                ..EmbedReport::default()
            })
        })
    }

    fn store_vectors(
        &self,
        model: &ModelInfo,
        vectors: Vec<StoredVectors>,
        failures: Vec<FailureRow>,
        settled: Vec<i64>,
        now: Micros,
    ) -> Result<()> {
        model.check(&vectors)?;
        let name = model_name(&model.identity);
        let (mut hashes, mut chunks, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for v in &vectors {
            for (i, chunk) in v.chunks.iter().enumerate() {
                hashes.push(hex(&v.hash));
                chunks.push(i as i32);
                rows.push(Vector::from(chunk.clone()));
            }
        }
        let failed: Vec<String> = failures.iter().map(|f| hex(&f.hash)).collect();
        let done: Vec<String> = {
            let mut all: Vec<String> = vectors.iter().map(|v| hex(&v.hash)).collect();
            all.extend(failed.iter().cloned());
            all
        };
        self.pool.write(|c| {
            // A text that has vectors elsewhere: the rows of one span that has it. This comes first, since
            // what follows may put another text in the place of that span's.
            with_tables(c.run(
                &format!(
                "INSERT INTO span_embeddings (org_id, trace_id, span_id, chunk_idx, session_id, model, content_hash, embedded_at, embedding)
                 SELECT d.org_id, d.trace_id, d.span_id, e.chunk_idx, d.session_id, e.model, e.content_hash, e.embedded_at, e.embedding
                 FROM span_documents d
                 CROSS JOIN LATERAL (SELECT trace_id, span_id FROM span_embeddings s
                   WHERE s.org_id = $1 AND s.content_hash = d.hash AND s.model = $3 LIMIT 1) one
                 JOIN span_embeddings e ON e.org_id = $1 AND e.trace_id = one.trace_id AND e.span_id = one.span_id
                   AND e.content_hash = d.hash AND e.model = $3
                 WHERE d.org_id = $1 AND d.id = ANY($2) AND NOT EXISTS
                   (SELECT 1 FROM span_embeddings h WHERE h.org_id = $1 AND h.trace_id = d.trace_id
                      AND h.span_id = d.span_id AND h.content_hash = d.hash AND h.model = $3)
                 {TAKES_OVER}"
                ),
                &[&self.org, &settled, &name],
            ))?;
            // The documents as they are now: one that has changed keeps waiting.
            c.run(
                &format!(
                    "INSERT INTO span_embeddings (org_id, trace_id, span_id, chunk_idx, session_id, model, content_hash, embedded_at, embedding)
                     SELECT d.org_id, d.trace_id, d.span_id, x.chunk, d.session_id, $3, x.hash, $7, x.embedding
                     FROM unnest($4::text[], $5::int[], $6::vector[]) AS x(hash, chunk, embedding)
                     JOIN span_documents d ON d.org_id = $1 AND d.id = ANY($2) AND d.hash = x.hash
                     {TAKES_OVER}"
                ),
                &[&self.org, &settled, &name, &hashes, &chunks, &rows, &At(now)],
            )?;
            // What is left of a longer text, or of one that now fails.
            c.run(
                "DELETE FROM span_embeddings e USING span_documents d
                 WHERE d.org_id = $1 AND d.id = ANY($2) AND e.org_id = $1 AND e.trace_id = d.trace_id
                   AND e.span_id = d.span_id AND (e.content_hash <> d.hash OR e.model <> $3)",
                &[&self.org, &settled, &name],
            )?;
            for f in &failures {
                c.run(
                    "INSERT INTO span_embeddings_failures (org_id, trace_id, span_id, session_id, model, content_hash,
                       reason, error_detail, token_count, first_failed_at, last_failed_at)
                     SELECT d.org_id, d.trace_id, d.span_id, d.session_id, $3, d.hash, $5, $6, nullif($7, 0), $8, $8
                     FROM span_documents d WHERE d.org_id = $1 AND d.id = ANY($2) AND d.hash = $4
                     ON CONFLICT (org_id, trace_id, span_id) DO UPDATE SET session_id = excluded.session_id,
                       model = excluded.model, content_hash = excluded.content_hash, reason = excluded.reason,
                       error_detail = excluded.error_detail, token_count = excluded.token_count,
                       attempts = span_embeddings_failures.attempts + 1, last_failed_at = excluded.last_failed_at",
                    &[
                        &self.org,
                        &settled,
                        &name,
                        &hex(&f.hash),
                        &text(&f.reason),
                        &text(&f.detail),
                        &i32::try_from(f.tokens).unwrap_or(i32::MAX),
                        &At(now),
                    ],
                )?;
            }
            c.run(
                "DELETE FROM span_embeddings_failures f USING span_documents d
                 WHERE d.org_id = $1 AND d.id = ANY($2) AND NOT d.hash = ANY($3) AND f.org_id = $1
                   AND f.trace_id = d.trace_id AND f.span_id = d.span_id
                   AND (f.model <> $4 OR f.content_hash <> d.hash OR EXISTS (SELECT 1 FROM span_embeddings e
                     WHERE e.org_id = $1 AND e.trace_id = d.trace_id AND e.span_id = d.span_id))",
                &[&self.org, &settled, &failed, &name],
            )?;
            // Another worker may have replaced the rows that one was to have its vectors from: it waits.
            c.run(
                "UPDATE span_documents d SET embed_model = $3 WHERE d.org_id = $1 AND d.id = ANY($2) AND (
                   EXISTS (SELECT 1 FROM span_embeddings e WHERE e.org_id = $1 AND e.trace_id = d.trace_id
                     AND e.span_id = d.span_id AND e.content_hash = d.hash AND e.model = $4)
                   OR EXISTS (SELECT 1 FROM span_embeddings_failures f WHERE f.org_id = $1
                     AND f.content_hash = d.hash AND f.model = $4))",
                &[&self.org, &settled, &model.id, &name],
            )?;
            c.run(
                "DELETE FROM embed_leases WHERE org_id = $1 AND model = $2 AND content_hash = ANY($3)",
                &[&self.org, &name, &done],
            )?;
            Ok(())
        })?;
        self.sizes.forget();
        Ok(())
    }

    fn prune_vectors(&self, _: &ModelInfo) -> Result<u64> {
        self.pool.write(|c| {
            let mut gone = 0;
            for table in ["span_embeddings", "span_embeddings_failures"] {
                gone += with_tables(c.run(
                    &format!(
                        "DELETE FROM {table} e USING removed_documents r
                         WHERE r.org_id = $1 AND NOT r.vectors_done AND e.org_id = $1
                           AND e.trace_id = r.trace_id AND e.span_id = r.span_id AND NOT EXISTS
                             (SELECT 1 FROM span_documents d WHERE d.org_id = $1 AND d.trace_id = r.trace_id
                                AND d.span_id = r.span_id AND d.hash IS NOT NULL)"
                    ),
                    &[&self.org],
                ))?;
            }
            // A machine that was away for longer finds documents that are gone when it reads them.
            c.run(
                "UPDATE removed_documents SET vectors_done = true WHERE org_id = $1 AND NOT vectors_done",
                &[&self.org],
            )?;
            c.run(
                "DELETE FROM removed_documents WHERE org_id = $1 AND vectors_done AND removed_at < now() - interval '30 days'",
                &[&self.org],
            )?;
            c.run(
                "DELETE FROM embed_leases WHERE org_id = $1 AND until < now() - interval '1 day'",
                &[&self.org],
            )?;
            Ok(gone)
        })
    }

    fn nearest(
        &self,
        model: &ModelInfo,
        query: &[f32],
        filter: &Filter,
        chunks: usize,
    ) -> Result<Vec<(i64, f32)>> {
        model.check_query(query)?;
        let query = Vector::from(query.to_vec());
        self.pool
            .read(|c| self.find_near(c, model, &query, filter, chunks.max(1)))
    }

    fn pack_vectors(&self, model: &ModelInfo) -> Result<usize> {
        if model.dimensions > MAX_INDEXED {
            return Ok(0);
        }
        let d = model.dimensions;
        self.pool.read(|c| {
            let ann = sizes(c)?;
            if ann.indexed || ann.rows < INDEX_ROWS {
                return Ok(0);
            }
            let r = c.row("SELECT pg_try_advisory_lock($1)", &[&LOCK])?;
            if !r.is_some_and(|r| r.get(0)) {
                return Ok(0);
            }
            let built = (|| -> PgResult<()> {
                c.batch("SET statement_timeout = 0; SET lock_timeout = 0")?;
                // One that was broken off is there and is not used.
                c.batch(&format!("DROP INDEX CONCURRENTLY IF EXISTS {INDEX}"))?;
                c.batch(&format!(
                    "CREATE INDEX CONCURRENTLY {INDEX} ON span_embeddings
                       USING hnsw ((embedding::halfvec({d})) halfvec_cosine_ops)"
                ))?;
                Ok(())
            })();
            c.batch(&self.pool.limits())?;
            c.row("SELECT pg_advisory_unlock($1)", &[&LOCK])?;
            built?;
            self.sizes.forget();
            Ok(ann.rows as usize)
        })
    }
}
