//! Embedding models, the vectors they gave, and what could not be embedded.
//!
//! Vectors are content-addressed: the key is the model and the hash of the text, so one text is
//! embedded once however many spans hold it. **Invariant.** A vector always stands under the
//! identity of its model, and a search reads one model's vectors only.

use weft_core::time::Micros;

use crate::{Filter, Lease, Result, StoreError};

/// A model whose vectors the store holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Row id.
    pub id: i64,
    /// Provider and name.
    pub identity: String,
    /// Length of its vectors.
    pub dimensions: usize,
}

impl ModelInfo {
    /// Refuses vectors that are not of this model's length.
    pub(crate) fn check(&self, vectors: &[StoredVectors]) -> Result<()> {
        match vectors
            .iter()
            .flat_map(|v| &v.chunks)
            .find(|v| v.len() != self.dimensions)
        {
            Some(v) => Err(StoreError::Dimensions {
                have: v.len(),
                want: self.dimensions,
            }),
            None => Ok(()),
        }
    }

    /// Refuses a query that is not of this model's length.
    pub(crate) fn check_query(&self, query: &[f32]) -> Result<()> {
        if query.len() == self.dimensions {
            return Ok(());
        }
        Err(StoreError::QueryDimensions {
            have: self.dimensions,
            want: query.len(),
        })
    }
}

/// A text that waits to be embedded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingText {
    /// Document.
    pub id: i64,
    /// Its text.
    pub text: String,
    /// SHA-256 of the text.
    pub hash: [u8; 32],
    /// Whether vectors of this text exist already.
    pub has_vectors: bool,
    /// Whether embedding this text failed for good.
    pub has_failed: bool,
}

/// What an embed pass did; the members of `tapes dev embed-spans`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct EmbedReport {
    /// Eligible spans.
    pub scanned: u64,
    /// Spans whose vectors were written.
    pub embedded: u64,
    /// Spans that had vectors of this model already.
    pub up_to_date: u64,
    /// Spans without text.
    pub empty: u64,
    /// Spans that failed for good before.
    pub poisoned: u64,
    /// Spans that were split.
    pub chunked: u64,
    /// Vectors written.
    pub chunk_rows: u64,
    /// Texts that the provider found too long.
    pub oversized: u64,
    /// Spans that could not be embedded in this pass.
    pub failed: u64,
    /// Vectors and failures removed because nothing refers to them.
    pub pruned: u64,
}

/// A text's vectors, in the order of its pieces.
#[derive(Clone, Debug)]
pub struct StoredVectors {
    /// SHA-256 of the text.
    pub hash: [u8; 32],
    /// One vector a piece.
    pub chunks: Vec<Vec<f32>>,
}

/// Why a text cannot be embedded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureRow {
    /// SHA-256 of the text.
    pub hash: [u8; 32],
    /// `too_large`, `oversize`, `api_400`, …
    pub reason: String,
    /// The provider's words.
    pub detail: String,
    /// Estimated or reported tokens; 0 = unknown.
    pub tokens: u64,
}

/// Models, vectors and failures.
pub trait Vectors {
    /// Prepares the store for a model's vectors.
    ///
    /// # Errors
    /// [`StoreError::Dimensions`] where vectors of another size are stored.
    fn ensure_schema(&self, identity: &str, dimensions: usize) -> Result<ModelInfo>;

    /// A model that [`Self::ensure_schema`] has prepared with this size.
    fn model(&self, identity: &str, dimensions: usize) -> Result<Option<ModelInfo>>;

    /// Size of the stored vectors; `None` where [`Self::ensure_schema`] has never run.
    fn embedding_dimensions(&self) -> Result<Option<usize>>;

    /// Documents after `after` that this model has not settled, by id, and where the page ends:
    /// `None` = there is no further one. In a shared store the texts are leased to the caller, and
    /// what another embeds at this moment is left out.
    fn claim_texts(
        &self,
        model: &ModelInfo,
        after: i64,
        limit: usize,
        lease: &Lease<'_>,
    ) -> Result<(Vec<PendingText>, Option<i64>)>;

    /// Whether an embed pass with this model has anything to do.
    fn embed_waiting(&self, model: &ModelInfo) -> Result<bool>;

    /// Counts of eligible documents before a pass: scanned, empty, settled with vectors, settled by failure.
    fn embed_counts(&self, model: &ModelInfo) -> Result<EmbedReport>;

    /// Stores vectors and failures, and marks the documents as settled, in one transaction.
    fn store_vectors(
        &self,
        model: &ModelInfo,
        vectors: Vec<StoredVectors>,
        failures: Vec<FailureRow>,
        settled: Vec<i64>,
        now: Micros,
    ) -> Result<()>;

    /// Removes vectors and failures that no document refers to, and those of other models once this
    /// one has settled everything; returns how many rows went.
    fn prune_vectors(&self, model: &ModelInfo) -> Result<u64>;

    /// Documents nearest to a query vector: document and cosine similarity of its best piece, best
    /// first. `chunks` nearest pieces are looked at. A filter decides which rows are scanned, so
    /// it never costs hits.
    ///
    /// # Errors
    /// [`StoreError::QueryDimensions`] where the vector has another size than the stored ones.
    fn nearest(
        &self,
        model: &ModelInfo,
        query: &[f32],
        filter: &Filter,
        chunks: usize,
    ) -> Result<Vec<(i64, f32)>>;

    /// Brings the index over a model's vectors up to date where they have grown; one process at a
    /// time. Returns the number of rows that went in.
    fn pack_vectors(&self, model: &ModelInfo) -> Result<usize>;
}
