//! Embedding models, the vectors they gave, and what could not be embedded.
//!
//! Vectors are content-addressed: the key is the model and the hash of the text, so one text is
//! embedded once however many spans hold it. **Invariant.** A vector always stands under the
//! identity of its model, and a search reads one model's vectors only.

use rusqlite::{Connection, OptionalExtension, params};
use weft_core::time::Micros;

use super::SqliteStore;
use crate::{
    Document, EmbedReport, FailureRow, Filter, Lease, ModelInfo, PendingText, Result, StoreError,
    StoredVectors, Vectors,
};

const META_DIMENSIONS: &str = "span_embeddings.dimensions";

pub(crate) fn to_blob(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

pub(crate) fn from_blob(b: &[u8]) -> Vec<f32> {
    b.chunks_exact(4)
        .map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]]))
        .collect()
}

/// Size of the vectors that the store was prepared for.
fn stored_dimensions(c: &Connection) -> Result<Option<usize>> {
    let have: Option<String> = c
        .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([META_DIMENSIONS], |r| r.get(0))
        .optional()?;
    Ok(have.and_then(|h| h.parse().ok()))
}

impl Vectors for SqliteStore {
    fn ensure_schema(&self, identity: &str, dimensions: usize) -> Result<ModelInfo> {
        let identity = identity.to_owned();
        if let Some(m) = self.model(&identity, dimensions)? {
            return Ok(m);
        }
        self.index.run(move |c| {
            if let Some(have) = stored_dimensions(c)?
                && have != dimensions
            {
                return Err(StoreError::Dimensions {
                    have,
                    want: dimensions,
                });
            }
            c.execute(
                "INSERT OR REPLACE INTO meta VALUES (?1, ?2)",
                params![META_DIMENSIONS, dimensions.to_string()],
            )?;
            c.execute(
                "INSERT INTO models (identity, dimensions) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                params![identity, dimensions as i64],
            )?;
            Ok(c.query_row(
                "SELECT id FROM models WHERE identity = ?1",
                [&identity],
                |r| {
                    Ok(ModelInfo {
                        id: r.get(0)?,
                        identity: identity.clone(),
                        dimensions,
                    })
                },
            )?)
        })
    }

    fn model(&self, identity: &str, dimensions: usize) -> Result<Option<ModelInfo>> {
        self.readers.with(|c| {
            Ok(c.prepare_cached(
                "SELECT id FROM models WHERE identity = ?1 AND dimensions = ?2
                 AND (SELECT value FROM meta WHERE key = ?3) = CAST(?2 AS TEXT)",
            )?
            .query_row(params![identity, dimensions as i64, META_DIMENSIONS], |r| {
                Ok(ModelInfo {
                    id: r.get(0)?,
                    identity: identity.to_owned(),
                    dimensions,
                })
            })
            .optional()?)
        })
    }

    fn embedding_dimensions(&self) -> Result<Option<usize>> {
        self.readers.with(stored_dimensions)
    }

    fn claim_texts(
        &self,
        model: &ModelInfo,
        after: i64,
        limit: usize,
        _: &Lease<'_>,
    ) -> Result<(Vec<PendingText>, Option<i64>)> {
        let page: Vec<PendingText> = self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT d.id, d.user_text, d.assistant_text, d.hash,
                   EXISTS (SELECT 1 FROM vectors v WHERE v.model_id = ?1 AND v.hash = d.hash),
                   EXISTS (SELECT 1 FROM embed_failures f WHERE f.model_id = ?1 AND f.hash = d.hash)
                 FROM documents d
                 WHERE d.hash IS NOT NULL AND d.id > ?2 AND d.embed_model <> ?1
                 ORDER BY d.id LIMIT ?3",
            )?;
            let rows = q.query_map(params![model.id, after, limit as i64], |r| {
                Ok(PendingText {
                    id: r.get(0)?,
                    text: Document {
                        user_text: r.get(1)?,
                        assistant_text: r.get(2)?,
                        ..Default::default()
                    }
                    .text(),
                    hash: r.get(3)?,
                    has_vectors: r.get(4)?,
                    has_failed: r.get(5)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })?;
        let last = page.last().map(|p| p.id);
        Ok((page, last))
    }

    fn embed_waiting(&self, model: &ModelInfo) -> Result<bool> {
        self.readers.with(|c| {
            Ok(c.prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM documents WHERE hash IS NOT NULL AND embed_model < ?1)
                   OR EXISTS (SELECT 1 FROM documents WHERE hash IS NOT NULL AND embed_model > ?1)
                   OR EXISTS (SELECT 1 FROM removed_documents WHERE vectors_done = 0)
                   OR EXISTS (SELECT 1 FROM models WHERE id <> ?1)",
            )?
            .query_row([model.id], |r| r.get(0))?)
        })
    }

    fn embed_counts(&self, model: &ModelInfo) -> Result<EmbedReport> {
        self.readers.with(|c| {
            let one = |sql: &str| -> Result<u64> {
                Ok(c.prepare_cached(sql)?.query_row([model.id], |r| r.get(0))?)
            };
            let settled =
                one("SELECT count(*) FROM documents WHERE hash IS NOT NULL AND embed_model = ?1")?;
            let poisoned = one(
                "SELECT count(*) FROM embed_failures f JOIN documents d ON d.hash = f.hash
                 WHERE f.model_id = ?1 AND d.embed_model = ?1",
            )?;
            Ok(EmbedReport {
                scanned: one("SELECT count(*) FROM documents WHERE ?1 = ?1")?,
                empty: one("SELECT count(*) FROM documents WHERE hash IS NULL AND ?1 = ?1")?,
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
        let model = model.clone();
        self.index.run(move |c| {
            let mut insert = c.prepare_cached(
                "INSERT INTO vectors (model_id, hash, chunk, vector) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO NOTHING",
            )?;
            for v in &vectors {
                for (chunk, vector) in v.chunks.iter().enumerate() {
                    insert.execute(params![model.id, v.hash, chunk as i64, to_blob(vector)])?;
                }
                c.prepare_cached("DELETE FROM embed_failures WHERE model_id = ?1 AND hash = ?2")?
                    .execute(params![model.id, v.hash])?;
            }
            for f in &failures {
                c.prepare_cached(
                    "INSERT INTO embed_failures VALUES (?1, ?2, ?3, ?4, nullif(?5, 0), 1, ?6, ?6)
                     ON CONFLICT DO UPDATE SET reason = excluded.reason,
                       error_detail = excluded.error_detail, token_count = excluded.token_count,
                       attempts = attempts + 1, last_failed_at = excluded.last_failed_at",
                )?
                .execute(params![
                    model.id,
                    f.hash,
                    f.reason,
                    f.detail,
                    f.tokens as i64,
                    now
                ])?;
            }
            let mut settle =
                c.prepare_cached("UPDATE documents SET embed_model = ?2 WHERE id = ?1")?;
            for id in &settled {
                settle.execute(params![id, model.id])?;
            }
            Ok(())
        })
    }

    fn prune_vectors(&self, model: &ModelInfo) -> Result<u64> {
        let waiting: bool = self.readers.with(|c| {
            Ok(c.query_row(
                "SELECT EXISTS (SELECT 1 FROM removed_documents WHERE vectors_done = 0)
                   OR EXISTS (SELECT 1 FROM models WHERE id <> ?1)",
                [model.id],
                |r| r.get(0),
            )?)
        })?;
        if !waiting {
            return Ok(0);
        }
        let id = model.id;
        self.index.run(move |c| {
            let mut gone = 0;
            for table in ["vectors", "embed_failures"] {
                gone += c.execute(
                    &format!(
                        "DELETE FROM {table} WHERE hash IN
                           (SELECT r.hash FROM removed_documents r
                            WHERE r.vectors_done = 0 AND r.hash IS NOT NULL AND NOT EXISTS
                              (SELECT 1 FROM documents d WHERE d.hash = r.hash))"
                    ),
                    [],
                )?;
            }
            c.execute("UPDATE removed_documents SET vectors_done = 1", [])?;
            c.execute("DELETE FROM removed_documents WHERE words_done = 1", [])?;
            let unsettled: bool = c.query_row(
                "SELECT EXISTS (SELECT 1 FROM documents WHERE hash IS NOT NULL AND embed_model <> ?1)",
                [id],
                |r| r.get(0),
            )?;
            if !unsettled {
                gone += c.execute("DELETE FROM vectors WHERE model_id <> ?1", [id])?;
                c.execute("DELETE FROM embed_failures WHERE model_id <> ?1", [id])?;
                c.execute("DELETE FROM vector_segments WHERE model_id <> ?1", [id])?;
                c.execute("DELETE FROM models WHERE id <> ?1", [id])?;
            }
            Ok(gone as u64)
        })
    }

    fn nearest(
        &self,
        model: &ModelInfo,
        query: &[f32],
        filter: &Filter,
        chunks: usize,
    ) -> Result<Vec<(i64, f32)>> {
        self.nearest_rows(model, query, filter, chunks)
    }

    fn pack_vectors(&self, model: &ModelInfo) -> Result<usize> {
        self.pack_rows(model)
    }
}
