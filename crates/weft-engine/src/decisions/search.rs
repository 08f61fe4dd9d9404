//! Searching decisions: words and vectors over every record in view, a verdict, and hits.

use std::time::Instant;

use weft_core::decision::rank::{self, Ranked, Verdict, Weights};
use weft_core::decision::{Alternative, Decision, Status, Type};
use weft_core::snippet;
use weft_core::time::Micros;

use super::record::cosine;
use super::stale::covers;
use super::{DecisionError, DecisionSync, Decisions, Loaded, Stale};

/// Code points of a snippet.
const SNIPPET: usize = 200;
/// Cosine similarity below which a decision without any of the words is not shown.
const UNRELATED: f32 = 0.2;
/// Longest query, characters; the rest is not read.
const MAX_QUERY: usize = 2_000;

/// A question about decisions.
#[derive(Clone, Debug)]
pub struct DecisionQuery {
    /// What is asked.
    pub query: String,
    /// Most hits.
    pub limit: usize,
    /// Only this type.
    pub kind: Option<Type>,
    /// Only this status.
    pub status: Option<Status>,
    /// Only what governs this file.
    pub file: Option<String>,
    /// Only what was made at or after.
    pub since: Option<Micros>,
    /// Only what was made before.
    pub until: Option<Micros>,
    /// Legs: words.
    pub words: bool,
    /// Legs: vectors.
    pub vectors: bool,
}

impl Default for DecisionQuery {
    fn default() -> Self {
        Self {
            query: String::new(),
            limit: 10,
            kind: None,
            status: None,
            file: None,
            since: None,
            until: None,
            words: true,
            vectors: true,
        }
    }
}

/// One found decision.
#[derive(Clone, Debug, Default)]
pub struct DecisionHit {
    /// The decision with its text.
    pub decision: Decision,
    /// Fused score; only the order means something.
    pub score: f32,
    /// Cosine similarity of its nearest part, 0..1; `None` = it has no vectors, or none were asked.
    pub similarity: Option<f32>,
    /// Share of the query's words that it has, by their weight, 0..1.
    pub covered: f32,
    /// `title`, `text`, `option` and `meaning`, as they apply.
    pub matched: Vec<&'static str>,
    /// The option that the query is about and that was turned down.
    pub rejected: Option<Alternative>,
    /// Excerpt.
    pub snippet: String,
    /// Why it is stale; `None` = it is not.
    pub stale: Option<Stale>,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct DecisionAnswer {
    /// In one word, before the hits.
    pub verdict: Verdict,
    /// Hits, best first; a superseded one behind what replaced it.
    pub hits: Vec<DecisionHit>,
    /// Decisions that were searched.
    pub searched: usize,
    /// Why vectors did not take part, or not for all; "" = they did.
    pub no_vectors: String,
    /// What the look at the records found.
    pub sync: DecisionSync,
    /// All decisions in view, for naming what hits refer to.
    pub loaded: Loaded,
}

impl Loaded {
    /// Ranks some of the decisions, by place, for the words and the vector of a query.
    pub fn rank(
        &self,
        words: &[String],
        vector: Option<&[f32]>,
        keep: &[usize],
        w: &Weights,
    ) -> Vec<Ranked> {
        let similar = |i: &usize| -> Option<f32> {
            let v = vector?;
            let all = self.entries[*i].vectors.chunks_exact(v.len().max(1));
            all.map(|w| cosine(v, w)).reduce(f32::max)
        };
        let packed: Vec<&[u8]> = keep
            .iter()
            .map(|i| self.entries[*i].words.as_slice())
            .collect();
        let similarities: Vec<Option<f32>> = keep.iter().map(similar).collect();
        let mut ranked = rank::rank(words, &packed, &similarities, w);
        for r in &mut ranked {
            r.at = keep[r.at];
        }
        ranked
    }
}

impl Decisions<'_> {
    /// Searches the decisions in view.
    ///
    /// # Errors
    /// A failure of the store. A provider that does not answer costs the vectors only.
    pub fn search(&self, q: &DecisionQuery) -> Result<DecisionAnswer, DecisionError> {
        let (loaded, sync) = self.current()?;
        let query: String = q.query.chars().take(MAX_QUERY).collect();
        let words = if q.words {
            rank::query_words(&query)
        } else {
            Vec::new()
        };
        let (vector, mut no_vectors) = self.vector(&query, q.vectors);
        let keep: Vec<usize> = (0..loaded.all.len())
            .filter(|i| passes(q, &loaded.all[*i]))
            .collect();
        let mut ranked = loaded.rank(&words, vector.as_deref(), &keep, &Weights::CHOSEN);
        let missing = keep
            .iter()
            .filter(|i| loaded.entries[**i].vectors.is_empty())
            .count();
        if missing > 0 && no_vectors.is_empty() {
            no_vectors = format!("{missing} of {} decisions have no vector yet", keep.len());
        }
        let whole = ranked.clone();
        // Something is always nearest; what shares no word and is not near either is no answer.
        ranked.retain(|r| r.covered > 0.0 || r.similarity >= UNRELATED);
        let verdict = rank::verdict(&words, &loaded.all, &ranked);
        ranked.truncate(q.limit);
        rank::with_successors(&loaded.all, &mut ranked, &whole);
        let places: Vec<usize> = ranked.iter().map(|r| r.at).collect();
        let stale = self.stale(&loaded, &places)?;
        let mut hits = Vec::with_capacity(ranked.len());
        for r in &ranked {
            let decision = self.with_text(&loaded, r.at)?;
            hits.push(DecisionHit {
                stale: stale.get(&decision.id).cloned(),
                ..hit(&words, decision, r, vector.is_some())
            });
        }
        Ok(DecisionAnswer {
            verdict,
            hits,
            searched: keep.len(),
            no_vectors,
            sync,
            loaded,
        })
    }

    /// The vector of a query, or why there is none.
    fn vector(&self, query: &str, wanted: bool) -> (Option<Vec<f32>>, String) {
        if !wanted {
            return (None, "not asked for".into());
        }
        let embedder = match self.engine.embedder() {
            Ok(e) => e,
            Err(e) => return (None, e.to_owned()),
        };
        let deadline = Instant::now() + self.engine.config.search_deadline;
        match embedder.embed_within(query, Some(deadline)) {
            Ok(v) => (v, String::new()),
            Err(e) => (None, e.to_string()),
        }
    }
}

/// Whether a decision is in the scope of a query.
fn passes(q: &DecisionQuery, d: &Decision) -> bool {
    q.kind.is_none_or(|k| d.kind() == k)
        && q.status.is_none_or(|s| d.status == s)
        && q.since.is_none_or(|t| d.created_at >= t)
        && q.until.is_none_or(|t| d.created_at < t)
        && q.file.as_ref().is_none_or(|f| governs(d, f))
}

/// Whether a decision governs a file: it is linked to it, or its text names it.
pub(super) fn governs(d: &Decision, file: &str) -> bool {
    d.record.files.iter().any(|l| covers(l, file)) || mentions(d, file)
}

/// Whether the text of a decision names a file by its path.
pub(super) fn mentions(d: &Decision, file: &str) -> bool {
    d.record.mentions.iter().any(|m| {
        m == file
            || (m.contains('/') && file.ends_with(&format!("/{m}")))
            || (m.contains('/') && covers(m, file))
    })
}

fn hit(words: &[String], decision: Decision, r: &Ranked, has_vectors: bool) -> DecisionHit {
    let has = |text: &str| {
        let all = weft_core::words::words(text);
        words.iter().any(|w| all.contains(w))
    };
    let mut matched = Vec::new();
    if has(&decision.record.title) {
        matched.push("title");
    }
    let rejected = rank::rejected(words, &decision).cloned();
    if rejected.is_some() {
        matched.push("option");
    }
    if has(&decision.record.rationale) {
        matched.push("text");
    }
    if r.similarity > 0.0 {
        matched.push("meaning");
    }
    let s = snippet::excerpt(&decision.record.rationale, words, SNIPPET);
    DecisionHit {
        score: r.score,
        similarity: has_vectors.then_some(r.similarity),
        covered: r.covered,
        matched,
        rejected,
        snippet: s.text.split_whitespace().collect::<Vec<_>>().join(" "),
        stale: None,
        decision,
    }
}
