//! The embed pass: what is new in any document becomes vectors.

use weft_core::render::{MAX_SPLIT_DEPTH, MAX_TEXT_BYTES, estimated_tokens, split};
use weft_embed::{EmbedError, Embedder};
use weft_store::{EmbedReport, FailureRow, ModelInfo, PendingText, StoreError, StoredVectors};

use crate::Engine;
use crate::clock::now;
use crate::counters::Counters;

/// Documents of a page where vectors come from another process.
const PAGE: usize = 100;
/// Documents of a page with the builtin model, which costs less than the commit.
const LOCAL_PAGE: usize = 2_000;

/// Texts that are embedded by another process between two commits: what a killed worker has paid for
/// in vain, at most.
const PAID: usize = 8;

/// Reason under which a text without a readable word is remembered.
const NO_WORDS: &str = "no_words";

/// Why a pass ended early.
#[derive(Debug, thiserror::Error)]
pub enum EmbedPassError {
    /// There is no embedder.
    #[error("could not create embedder: {0}")]
    NoEmbedder(String),
    /// The store failed, or holds vectors of another size.
    #[error("span embedding schema: {0}")]
    Schema(StoreError),
    /// The store failed in the middle.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The model answers with another size than configured.
    #[error(
        "embedding model {model:?} returned {got} dimensions but {want} are configured; fix --embedding-model/--embedding-dimensions so the vector table matches"
    )]
    Dimensions {
        /// Model.
        model: String,
        /// Size that came.
        got: usize,
        /// Size that is configured.
        want: usize,
    },
    /// Key, address or model are wrong: every text would fail.
    #[error("{0}")]
    Provider(EmbedError),
}

/// What a pass may do.
#[derive(Default)]
pub struct EmbedOptions<'a> {
    /// Called with the number of documents settled so far.
    pub progress: Option<&'a mut dyn FnMut(u64)>,
    /// Asked before each page; true ends the pass.
    pub stop: Option<&'a dyn Fn() -> bool>,
}

impl std::fmt::Debug for EmbedOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EmbedOptions")
    }
}

enum Outcome {
    Vectors(Vec<Vec<f32>>),
    /// Remembered; not tried again until the text or the model changes.
    Failed(FailureRow),
    /// Nothing to remember; the next pass tries again.
    Later,
}

/// What waits to be stored.
#[derive(Default)]
struct Results {
    vectors: Vec<StoredVectors>,
    failures: Vec<FailureRow>,
    settled: Vec<i64>,
}

struct Pass<'a> {
    counters: &'a Counters,
    embedder: &'a Embedder,
    model: &'a ModelInfo,
    max_bytes: Option<usize>,
    report: EmbedReport,
}

impl Pass<'_> {
    fn one(&mut self, p: &PendingText) -> Result<Outcome, EmbedPassError> {
        if let Some(max) = self.max_bytes.filter(|max| p.text.len() > *max) {
            return Ok(Outcome::Failed(FailureRow {
                hash: p.hash,
                reason: "too_large".into(),
                detail: format!("rendered text {} bytes exceeds max {max}", p.text.len()),
                tokens: estimated_tokens(&p.text) as u64,
            }));
        }
        match self.pieces(&p.text) {
            Ok(Some(vectors)) => {
                if let Some(v) = vectors.iter().find(|v| v.len() != self.model.dimensions) {
                    return Err(EmbedPassError::Dimensions {
                        model: self.embedder.model().into(),
                        got: v.len(),
                        want: self.model.dimensions,
                    });
                }
                Ok(Outcome::Vectors(vectors))
            }
            Ok(None) => Ok(Outcome::Failed(FailureRow {
                hash: p.hash,
                reason: NO_WORDS.into(),
                detail: "the text holds no word that the model reads".into(),
                tokens: 0,
            })),
            Err(e) if e.is_configuration() => Err(EmbedPassError::Provider(e)),
            Err(e) => Ok(match e.deterministic_reason() {
                Some(reason) => Outcome::Failed(FailureRow {
                    hash: p.hash,
                    reason,
                    detail: e.to_string(),
                    tokens: e
                        .requested_tokens()
                        .unwrap_or_else(|| estimated_tokens(&p.text))
                        as u64,
                }),
                None => {
                    tracing::warn!(error = %e, document = p.id, "not embedded, tried again in the next pass");
                    Outcome::Later
                }
            }),
        }
    }

    /// The vectors of a text, split where the provider finds it too long.
    fn pieces(&mut self, text: &str) -> Result<Option<Vec<Vec<f32>>>, EmbedError> {
        match self.embedder.embed(text) {
            Ok(v) => Ok(v.map(|v| vec![v])),
            Err(e) if e.is_oversize() => {
                self.report.oversized += 1;
                let tokens = e
                    .requested_tokens()
                    .unwrap_or_else(|| estimated_tokens(text));
                self.counters.oversize_tokens.observe(tokens as f64);
                let mut out = Vec::new();
                self.split(text, tokens, 1, &mut out)?;
                Ok(Some(out))
            }
            Err(e) => Err(e),
        }
    }

    fn split(
        &self,
        text: &str,
        tokens: usize,
        depth: u32,
        out: &mut Vec<Vec<f32>>,
    ) -> Result<(), EmbedError> {
        let pieces = split(text, tokens).ok_or_else(|| {
            EmbedError::Other("oversized embedding input cannot be split further".into())
        })?;
        for piece in pieces {
            match self.embedder.embed(&piece) {
                Ok(v) => out.extend(v),
                Err(e) if !e.is_oversize() => return Err(e),
                Err(EmbedError::Api {
                    status,
                    code,
                    message,
                }) if depth >= MAX_SPLIT_DEPTH => {
                    return Err(EmbedError::Api {
                        status,
                        code,
                        message: format!(
                            "embedding input still oversize after {MAX_SPLIT_DEPTH} splits: {message}"
                        ),
                    });
                }
                Err(e) => {
                    let n = e
                        .requested_tokens()
                        .unwrap_or_else(|| estimated_tokens(&piece));
                    self.split(&piece, n, depth + 1, out)?;
                }
            }
        }
        Ok(())
    }
}

impl Engine {
    /// One pass over every document that the current model has not settled, and over what decisions say.
    ///
    /// # Errors
    /// Where every further text would fail as well; single texts are counted instead.
    pub fn embed_pass(&self, mut options: EmbedOptions<'_>) -> Result<EmbedReport, EmbedPassError> {
        let embedder = self
            .embedder()
            .map_err(|e| EmbedPassError::NoEmbedder(e.to_owned()))?;
        let model = self
            .store
            .ensure_schema(embedder.identity(), embedder.dimensions())
            .map_err(EmbedPassError::Schema)?;
        let pruned = self.store.prune_vectors(&model)?;
        let page = match self.config.batch_size {
            0 if embedder.is_local() => LOCAL_PAGE,
            0 => PAGE,
            n => n,
        };
        let mut pass = Pass {
            counters: &self.counters,
            embedder,
            model: &model,
            max_bytes: match self.config.max_text_bytes {
                0 => Some(MAX_TEXT_BYTES),
                n => usize::try_from(n).ok(),
            },
            report: EmbedReport {
                pruned,
                ..self.store.embed_counts(&model)?
            },
        };
        let (mut after, mut settled_total) = (0, 0);
        let mut renewal = None;
        loop {
            if options.stop.is_some_and(|stop| stop()) {
                break;
            }
            let (pending, last) = self.store.claim_texts(&model, after, page, &self.lease())?;
            let Some(last) = last else { break };
            after = last;
            renewal.get_or_insert_with(|| self.keep_leases());
            let mut results = Results::default();
            let mut in_page = std::collections::HashSet::new();
            for p in &pending {
                if p.has_vectors || in_page.contains(&p.hash) {
                    pass.report.up_to_date += 1;
                    results.settled.push(p.id);
                    continue;
                }
                if p.has_failed {
                    pass.report.poisoned += 1;
                    results.settled.push(p.id);
                    continue;
                }
                match pass.one(p) {
                    Ok(Outcome::Vectors(chunks)) => {
                        pass.report.embedded += 1;
                        pass.report.chunk_rows += chunks.len() as u64;
                        pass.report.chunked += u64::from(chunks.len() > 1);
                        results.settled.push(p.id);
                        in_page.insert(p.hash);
                        results.vectors.push(StoredVectors {
                            hash: p.hash,
                            chunks,
                        });
                    }
                    Ok(Outcome::Failed(f)) => {
                        if f.reason == NO_WORDS {
                            pass.report.empty += 1;
                        } else {
                            pass.report.failed += 1;
                            self.counters.failure(&f.reason);
                        }
                        results.settled.push(p.id);
                        results.failures.push(f);
                    }
                    Ok(Outcome::Later) => pass.report.failed += 1,
                    Err(e) => {
                        // What was paid for is kept.
                        self.settle(&model, &mut results)?;
                        return Err(e);
                    }
                }
                if !embedder.is_local() && results.vectors.len() >= PAID {
                    settled_total += self.settle(&model, &mut results)?;
                    if let Some(progress) = options.progress.as_mut() {
                        progress(settled_total);
                    }
                }
            }
            settled_total += self.settle(&model, &mut results)?;
            if let Some(progress) = options.progress.as_mut() {
                progress(settled_total);
            }
        }
        self.store.pack_vectors(&model)?;
        self.embed_decisions()?;
        Ok(pass.report)
    }

    /// Stores what a pass has so far; returns the number of documents that it settles.
    fn settle(&self, model: &ModelInfo, results: &mut Results) -> Result<u64, StoreError> {
        let Results {
            vectors,
            failures,
            settled,
        } = std::mem::take(results);
        let n = settled.len() as u64;
        if n > 0 {
            self.store
                .store_vectors(model, vectors, failures, settled, now())?;
        }
        Ok(n)
    }
}
