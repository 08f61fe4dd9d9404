//! Searching spans: words and vectors, fused; or vectors alone, as the tapes API does.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use weft_core::fuse::{Leg, fuse};
use weft_core::project::cut_chars;
use weft_core::snippet;
use weft_core::time::Micros;
use weft_core::words;
use weft_store::{Coverage, Filter, ModelInfo, SpanHit, StoreError, Subagents};

use crate::Engine;

/// Candidates that each leg gives to the fusion, at least.
const LEG: usize = 120;
/// Fused candidates that are read and looked at.
const READ: usize = 60;
/// Share of the vector leg. Chosen on the development halves of the labelled sets.
const VECTOR_WEIGHT: f32 = 0.35;
/// Share of the keyword leg.
const WORD_WEIGHT: f32 = 0.65;
/// Factor on hits in subagents, which repeat what the main conversation says.
const SUBAGENT: f32 = 0.8;
/// What the better of the two turns beside a hit adds to it, and the better of those beyond: what is talked about
/// goes over several turns. Round numbers, the best of six pairs on one half of LoCoMo's conversations or near it
/// (recall@10 .708 to .746; the other half .676 to .703); on BEAM it changes nothing that can be told from noise.
const BESIDE: [f32; 2] = [0.2, 0.1];
/// Factor on every further hit in one trace.
const SAME_TRACE: f32 = 0.85;
/// Shortest query that counts as an exact quotation.
const MIN_EXACT: usize = 3;
/// Code points of a snippet.
const SNIPPET: usize = 280;

/// Which legs run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Words and vectors.
    #[default]
    Hybrid,
    /// Vectors only: the order and the score of the tapes API.
    Vector,
    /// Words only.
    Lexical,
}

impl Mode {
    /// All of them with their names.
    pub const ALL: [(&'static str, Self); 3] = [
        ("hybrid", Self::Hybrid),
        ("vector", Self::Vector),
        ("lexical", Self::Lexical),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hybrid => "hybrid",
            Self::Vector => "vector",
            Self::Lexical => "lexical",
        }
    }
}

/// A question.
#[derive(Clone, Debug, Default)]
pub struct SpanQuery {
    /// What is asked.
    pub query: String,
    /// Most hits.
    pub limit: usize,
    /// Which legs run.
    pub mode: Mode,
    /// Scope.
    pub filter: Filter,
    /// Spans to show on each side of a hit.
    pub context: usize,
}

/// A leg that did not run, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Degraded {
    /// `vectors` or `words`.
    pub leg: &'static str,
    /// Why.
    pub reason: String,
}

/// One found span.
#[derive(Clone, Debug, Default)]
pub struct Hit {
    /// Trace.
    pub trace_id: String,
    /// Span.
    pub span_id: String,
    /// Session.
    pub session_id: String,
    /// Cosine similarity in vector mode, else the fused score (0…1; above 1 = exact quotation).
    pub score: f32,
    /// Prompt of the trace.
    pub user_prompt: String,
    /// Excerpt.
    pub snippet: String,
    /// Byte ranges of the query's words in it.
    pub marks: Vec<(usize, usize)>,
    /// Model that answered.
    pub model: String,
    /// Start.
    pub started_at: Micros,
    /// Harness.
    pub agent: String,
    /// Subagent's thread; "" = main.
    pub thread_id: String,
    /// Repository.
    pub repository: String,
    /// Which legs found it: name, rank from 1, own score.
    pub legs: Vec<(&'static str, usize, f32)>,
    /// Whether the query stands in it word for word.
    pub exact: bool,
    /// Spans around it, itself included; empty unless asked for.
    pub around: Vec<SpanHit>,
    /// Whether the file that it was imported from is gone.
    pub source_gone: bool,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Hits, best first.
    pub hits: Vec<Hit>,
    /// The mode that really ran.
    pub mode: Mode,
    /// Legs that did not run.
    pub degraded: Vec<Degraded>,
    /// How much of the store the answer could see.
    pub coverage: Coverage,
}

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SearchError {
    /// There is no embedder.
    #[error("span search is not configured: embedder and span embedding store are required")]
    NotConfigured,
    /// The query could not be embedded.
    #[error("failed to embed query: {0}")]
    Embed(String),
    /// No embed pass has run yet.
    #[error(
        "span embeddings not initialized: run the embed pass (tapes serve embed-worker or tapes dev embed-spans)"
    )]
    NotInitialized,
    /// The store failed.
    #[error("{0}")]
    Store(StoreError),
}

impl From<StoreError> for SearchError {
    fn from(e: StoreError) -> Self {
        match e {
            StoreError::NotInitialized => Self::NotInitialized,
            e => Self::Store(e),
        }
    }
}

impl Engine {
    /// Whether vectors of the current model can be searched at all.
    pub fn vectors_configured(&self) -> bool {
        self.embedder.is_ok()
    }

    /// Searches spans.
    ///
    /// # Errors
    /// In vector mode every failure; else only where no leg could run.
    pub fn search_spans(&self, q: &SpanQuery) -> Result<Answer, SearchError> {
        match q.mode {
            Mode::Vector => self.by_vectors(q),
            _ => self.by_words_and_vectors(q),
        }
    }

    fn current_model(&self) -> Result<ModelInfo, SearchError> {
        let embedder = self.embedder().map_err(|_| SearchError::NotConfigured)?;
        match self
            .store
            .model(embedder.identity(), embedder.dimensions())?
        {
            Some(m) => Ok(m),
            None => match self.store.embedding_dimensions()? {
                Some(have) if have != embedder.dimensions() => Err(StoreError::QueryDimensions {
                    have,
                    want: embedder.dimensions(),
                }
                .into()),
                _ => Err(SearchError::NotInitialized),
            },
        }
    }

    /// The nearest documents; the embedding comes first, as in the reference.
    fn nearest(&self, q: &SpanQuery, chunks: usize) -> Result<Vec<(i64, f32)>, SearchError> {
        let embedder = self.embedder().map_err(|_| SearchError::NotConfigured)?;
        let deadline = Instant::now() + self.config.search_deadline;
        let vector = embedder
            .embed_within(&q.query, Some(deadline))
            .map_err(|e| SearchError::Embed(e.to_string()))?;
        let model = self.current_model()?;
        match vector {
            Some(v) => Ok(self.store.nearest(&model, &v, &q.filter, chunks)?),
            None => Ok(Vec::new()),
        }
    }

    fn by_vectors(&self, q: &SpanQuery) -> Result<Answer, SearchError> {
        let found = self.nearest(q, q.limit.saturating_mul(4))?;
        let ids: Vec<i64> = found.iter().map(|f| f.0).collect();
        let scores: HashMap<i64, f32> = found.into_iter().collect();
        let mut hits: Vec<(f32, SpanHit)> = self
            .store
            .hydrate(&ids)?
            .into_iter()
            .map(|h| (scores.get(&h.id).copied().unwrap_or_default(), h))
            .collect();
        hits.sort_by(|(a_score, a), (b_score, b)| {
            let (a, b) = (&a.document, &b.document);
            b_score
                .total_cmp(a_score)
                .then_with(|| a.trace_id.cmp(&b.trace_id))
                .then_with(|| a.span_id.cmp(&b.span_id))
        });
        hits.truncate(q.limit);
        let hits = hits
            .into_iter()
            .enumerate()
            .map(|(i, (score, h))| Hit {
                snippet: cut_chars(&h.document.text(), SNIPPET),
                legs: vec![("vectors", i + 1, score)],
                score,
                ..hit_of(h)
            })
            .collect();
        Ok(Answer {
            hits,
            mode: Mode::Vector,
            ..Answer::default()
        })
    }

    fn by_words_and_vectors(&self, q: &SpanQuery) -> Result<Answer, SearchError> {
        let query_words = words::query_words(&q.query);
        let candidates = LEG.max(q.limit);
        let mut degraded = Vec::new();
        let by_words = match self.store.word_search(&query_words, &q.filter, candidates) {
            Ok(hits) => hits,
            Err(e) => {
                degraded.push(Degraded {
                    leg: "words",
                    reason: e.to_string(),
                });
                Vec::new()
            }
        };
        let by_vectors = if q.mode == Mode::Lexical {
            Vec::new()
        } else {
            match self.nearest(q, candidates) {
                Ok(hits) => hits,
                Err(e) => {
                    degraded.push(Degraded {
                        leg: "vectors",
                        reason: e.to_string(),
                    });
                    Vec::new()
                }
            }
        };
        if let [words, _] = degraded.as_slice() {
            return Err(SearchError::Store(StoreError::Other(words.reason.clone())));
        }
        let ran_vectors = q.mode == Mode::Hybrid && !degraded.iter().any(|d| d.leg == "vectors");
        let fused = fuse(&[
            Leg {
                name: "words",
                weight: WORD_WEIGHT,
                hits: by_words,
            },
            Leg {
                name: "vectors",
                weight: VECTOR_WEIGHT,
                hits: by_vectors,
            },
        ]);
        let ids: Vec<i64> = fused
            .iter()
            .take(READ.max(q.limit * 2))
            .map(|f| f.key)
            .collect();
        let quotation = q.query.trim().trim_matches('"').to_lowercase();
        let mut found: Vec<Found> = Vec::new();
        let read = self.store.hydrate(&ids)?;
        let scores: HashMap<i64, f32> = fused.iter().map(|f| (f.key, f.score)).collect();
        let beside = beside(&read, &scores);
        for h in read {
            let Some(f) = fused.iter().find(|f| f.key == h.id) else {
                continue;
            };
            let text = shown_text(&h);
            let exact = quotation.len() >= MIN_EXACT && contains_ignoring_case(&text, &quotation);
            let mut score = beside.get(&h.id).copied().unwrap_or(f.score);
            if !h.document.thread_id.is_empty() && q.filter.subagents == Subagents::Include {
                score *= SUBAGENT;
            }
            if exact {
                score += 1.0;
            }
            found.push(Found {
                id: h.id,
                text,
                hit: Hit {
                    score,
                    legs: f.legs.clone(),
                    exact,
                    ..hit_of(h)
                },
            });
        }
        best_first(&mut found);
        spread_over_traces(&mut found);
        // The same words said twice in a session are one answer.
        let mut seen = HashSet::new();
        found.retain(|f| seen.insert((f.hit.session_id.clone(), f.text.clone())));
        found.truncate(q.limit);
        let mut hits = Vec::with_capacity(found.len());
        // Hits often share a session; each is looked up once.
        let mut gone: HashMap<String, bool> = HashMap::new();
        for Found { id, text, mut hit } in found {
            let s = snippet::excerpt(&text, &query_words, SNIPPET);
            (hit.snippet, hit.marks) = (s.text, s.marks);
            if q.context > 0 {
                hit.around = self.store.around(&hit.session_id, id, q.context)?;
            }
            hit.source_gone = match gone.get(&hit.session_id) {
                Some(known) => *known,
                None => {
                    let is_gone = self.source_gone(&hit.session_id)?;
                    gone.insert(hit.session_id.clone(), is_gone);
                    is_gone
                }
            };
            hits.push(hit);
        }
        let model = self.current_model().ok();
        Ok(Answer {
            hits,
            mode: if ran_vectors {
                Mode::Hybrid
            } else {
                Mode::Lexical
            },
            degraded,
            coverage: self.store.coverage(model.map(|m| m.id))?,
        })
    }

    fn source_gone(&self, session_id: &str) -> Result<bool, StoreError> {
        // Its file may be on another machine.
        if self.store.is_shared() {
            return Ok(false);
        }
        Ok(self.store.session(session_id)?.is_some_and(|s| {
            !s.row.source_path.is_empty() && !std::path::Path::new(&s.row.source_path).exists()
        }))
    }
}

/// A hit before its excerpt is cut.
struct Found {
    id: i64,
    text: String,
    hit: Hit,
}

/// The scores of hits with what the turns beside them add, 0…1 again. Documents of a session are written in the
/// order of its turns, so their ids tell which stand beside each other; where others were written between
/// them, nothing is added. Spans of one trace do not count for each other: a long turn says one thing often.
fn beside(read: &[SpanHit], scores: &HashMap<i64, f32>) -> HashMap<i64, f32> {
    let by_id: HashMap<i64, &SpanHit> = read.iter().map(|h| (h.id, h)).collect();
    let score = |h: &SpanHit| scores.get(&h.id).copied().unwrap_or_default();
    let whole: f32 = 1.0 + BESIDE.iter().sum::<f32>();
    let of = |h: &SpanHit| {
        let d = &h.document;
        let mut sum = score(h);
        for (share, away) in BESIDE.iter().zip(1..) {
            let best = [h.id - away, h.id + away]
                .iter()
                .filter_map(|id| by_id.get(id))
                .filter(|n| {
                    let n = &n.document;
                    n.session_id == d.session_id
                        && n.thread_id == d.thread_id
                        && n.trace_id != d.trace_id
                })
                .map(|n| score(n))
                .fold(0.0, f32::max);
            sum += share * best;
        }
        sum / whole
    };
    read.iter().map(|h| (h.id, of(h))).collect()
}

/// The best score first, then the older document.
fn best_first(found: &mut [Found]) {
    found.sort_by(|a, b| b.hit.score.total_cmp(&a.hit.score).then(a.id.cmp(&b.id)));
}

/// Puts further spans of a trace behind: a long turn must not fill the answer. The list is sorted
/// before and after; what makes a quotation exact is left alone.
fn spread_over_traces(found: &mut [Found]) {
    let mut seen: HashMap<String, i32> = HashMap::new();
    for f in found.iter_mut() {
        let before = seen.entry(f.hit.trace_id.clone()).or_default();
        let base = if f.hit.exact { 1.0 } else { 0.0 };
        f.hit.score = base + (f.hit.score - base) * SAME_TRACE.powi(*before);
        *before += 1;
    }
    best_first(found);
}

/// Whether `text` holds `lower`, which is in lower case.
fn contains_ignoring_case(text: &str, lower: &str) -> bool {
    if text.is_ascii() && lower.is_ascii() {
        let (t, l) = (text.as_bytes(), lower.as_bytes());
        return t.windows(l.len()).any(|w| w.eq_ignore_ascii_case(l));
    }
    text.to_lowercase().contains(lower)
}

/// The text that a hit is shown with: the conversation, else the tools that it called.
fn shown_text(h: &SpanHit) -> String {
    let text = h.document.text();
    if h.document.tool_text.is_empty() {
        return text;
    }
    if text.is_empty() {
        return h.document.tool_text.clone();
    }
    format!("{text}\n{}", h.document.tool_text)
}

fn hit_of(h: SpanHit) -> Hit {
    Hit {
        trace_id: h.document.trace_id,
        span_id: h.document.span_id,
        session_id: h.document.session_id,
        user_prompt: h.user_prompt,
        model: h.document.model,
        started_at: h.document.started_at,
        agent: h.document.agent,
        thread_id: h.document.thread_id,
        repository: h.document.repository,
        ..Hit::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(id: i64, session: &str, trace: &str) -> SpanHit {
        let mut h = SpanHit {
            id,
            ..SpanHit::default()
        };
        h.document.session_id = session.into();
        h.document.trace_id = trace.into();
        h
    }

    #[test]
    fn turns_beside_a_hit_count_where_they_are_of_its_conversation() {
        let read = [
            hit(1, "a", "t1"),
            hit(2, "a", "t2"),
            hit(3, "a", "t2"),
            hit(4, "b", "t3"),
            hit(9, "a", "t9"),
        ];
        let scores: HashMap<i64, f32> = [(1, 0.5), (2, 0.5), (3, 0.5), (4, 1.0), (9, 0.5)].into();
        let s = beside(&read, &scores);
        // One has two beside it and three beyond; two has one beside it and, of its own trace, nothing more.
        assert!((s[&1] * 1.3 - 0.65).abs() < 1e-6, "{s:?}");
        assert!((s[&2] * 1.3 - 0.6).abs() < 1e-6, "{s:?}");
        assert!((s[&9] * 1.3 - 0.5).abs() < 1e-6, "{s:?}");
        assert!((s[&4] * 1.3 - 1.0).abs() < 1e-6, "{s:?}");
    }
}
