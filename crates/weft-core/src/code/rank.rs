//! Ranking of code: two lists of candidates and the evidence of names, paths and files, into one.
//!
//! Weights were chosen on the development half of the labelled questions (`cargo xtask bench code`;
//! `docs/benchmarks.md` tells how far the other half can be trusted).

use std::collections::HashMap;

use super::find::{FindQuery, Tier};
use super::paths::{Role, role};
use super::{Kind, Symbol};
use crate::words;

/// What the legs say of a symbol.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// Path of its file.
    pub path: &'a str,
    /// The symbol.
    pub symbol: &'a Symbol,
    /// BM25 over its words; 0 = not among the best.
    pub words: f32,
    /// Cosine similarity; `None` = not among the nearest.
    pub similarity: Option<f32>,
}

/// A ranked candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// Its place among the candidates given.
    pub at: usize,
    /// Score; only the order means something.
    pub score: f32,
    /// How it answers the query by name.
    pub tier: Option<Tier>,
}

/// The weights of [`rank`].
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// Of BM25, brought to 0…1.
    pub words: f32,
    /// Of the cosine similarity, brought to 0…1.
    pub vectors: f32,
    /// Of the share of the query's words in the symbol's own name.
    pub name: f32,
    /// Of the share of the name's words that the query has.
    pub name_precision: f32,
    /// Of the share of the query's words in the file's stem and folder.
    pub stem: f32,
    /// Of the share of the stem's words that the query has.
    pub stem_precision: f32,
    /// Of the best other candidates in the same file.
    pub file: f32,
    /// For a symbol that the query names among other words.
    pub named: f32,
    /// For exported symbols.
    pub exported: f32,
    /// Factor on tests where none were asked for.
    pub test: f32,
    /// Factor on examples and benchmarks.
    pub example: f32,
    /// Factor on generated and vendored files.
    pub generated: f32,
    /// Factor on compatibility and deprecated code.
    pub compat: f32,
    /// Factor on prose and configuration.
    pub prose: f32,
    /// Factor on type stubs.
    pub stub: f32,
    /// Factor on the record of a file.
    pub file_record: f32,
    /// Factor on constants and properties.
    pub small: f32,
    /// Factor on containers: their members are the nearer answer.
    pub container: f32,
    /// Factor on every further hit of one file.
    pub same_file: f32,
    /// Exponent that flattens BM25.
    pub words_power: f32,
    /// How much of the words' weight is kept where even the best candidate has few of the query's words
    /// (0 = all of it goes, 1 = none): a paraphrase shares no words, and its best match says little.
    pub words_floor: f32,
    /// BM25 of the best candidate, as a multiple of the sum of the words' rarities, up to which the words
    /// count as not matched. Measured: 0.3 to 2.5 for paraphrases, 1.4 to 10 for questions that share
    /// words with the code.
    pub words_low: f32,
    /// Smallest difference in cosine similarity that counts as all of the vectors' weight: in a small
    /// repository all candidates are about equally far.
    pub vector_span: f32,
    /// The multiple from which they count as fully matched.
    pub words_full: f32,
}

impl Weights {
    /// The chosen ones.
    pub const CHOSEN: Self = Self {
        words: 0.9,
        vectors: 1.1,
        name: 0.3,
        name_precision: 0.1,
        stem: 0.5,
        stem_precision: 0.15,
        file: 0.35,
        named: 0.6,
        exported: 0.1,
        test: 0.5,
        example: 0.7,
        generated: 0.6,
        compat: 0.8,
        prose: 0.6,
        stub: 0.8,
        file_record: 0.9,
        small: 0.9,
        container: 1.0,
        same_file: 0.95,
        words_power: 1.5,
        words_floor: 0.05,
        words_low: 1.2,
        words_full: 3.0,
        vector_span: 0.3,
    };
}

/// What a query asks for besides its words.
#[derive(Clone, Debug)]
pub struct Question {
    /// The query as a name.
    pub find: FindQuery,
    /// Words with their weights: rare ones say more. In step with `find.words`.
    pub weights: Vec<f32>,
    /// Names in the query that are written like identifiers, lower case.
    identifiers: Vec<String>,
    wants_tests: bool,
    wants_examples: bool,
    wants_prose: bool,
}

impl Question {
    /// Reads a query. `weights` gives each word's inverse document frequency; empty = all equal.
    pub fn new(query: &str, weights: &[f32]) -> Self {
        let find = FindQuery::new(query);
        let has = |all: &[&str]| find.words.iter().any(|w| all.contains(&w.as_str()));
        let identifiers = query
            .split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '$')))
            .map(|w| w.trim_matches(['.', ':']))
            .filter(|w| looks_like_identifier(w))
            .map(|w| super::text::normalised(&w.replace("::", ".")))
            .collect();
        let weights = if weights.len() == find.words.len() {
            weights.to_vec()
        } else {
            vec![1.0; find.words.len()]
        };
        Self {
            wants_tests: has(&["test", "spec", "fixtur", "mock", "assert"]),
            wants_examples: has(&["exampl", "sampl", "demo", "benchmark", "bench", "tutori"]),
            wants_prose: has(&[
                "readm",
                "document",
                "doc",
                "changelog",
                "config",
                "configur",
                "licens",
                "css",
                "html",
                "yaml",
                "json",
                "toml",
            ]),
            find,
            weights,
            identifiers,
        }
    }

    /// Names in the query that are written like identifiers, normalised.
    pub fn identifiers(&self) -> &[String] {
        &self.identifiers
    }

    /// The weighted share of the query's words in a text, and the share of the text's words that the
    /// query has.
    fn overlap(&self, text: &str) -> (f32, f32) {
        let mut found = vec![false; self.find.words.len()];
        let (mut hits, mut all) = (0, 0);
        words::for_each(text, |w| {
            all += 1;
            let at = self.find.words.iter().position(|q| q == w || alike(q, w));
            if let Some(i) = at {
                found[i] = true;
                hits += 1;
            }
        });
        let total: f32 = self.weights.iter().sum();
        let share: f32 = found
            .iter()
            .zip(&self.weights)
            .filter(|(f, _)| **f)
            .map(|(_, w)| w)
            .sum();
        (
            if total > 0.0 { share / total } else { 0.0 },
            if all > 0 {
                hits as f32 / all as f32
            } else {
                0.0
            },
        )
    }
}

/// Whether one word is an abbreviation of the other: `config` and `configur`, `auth` and `authent`.
fn alike(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    short.len() >= 4 && long.starts_with(short)
}

fn looks_like_identifier(word: &str) -> bool {
    let inner = word.get(1..).unwrap_or_default();
    word.len() > 2
        && (inner.contains('_')
            || inner.contains('.')
            || inner.contains("::")
            || (inner.chars().any(char::is_uppercase) && word.chars().any(char::is_lowercase)))
}

/// The factor that a file's role puts on its hits.
fn role_factor(r: Role, q: &Question, w: &Weights) -> f32 {
    let mut f = 1.0;
    if r.test && !q.wants_tests {
        f *= w.test;
    }
    if r.example && !q.wants_examples {
        f *= w.example;
    }
    if r.generated {
        f *= w.generated;
    }
    if r.compat {
        f *= w.compat;
    }
    if r.prose && !q.wants_prose {
        f *= w.prose;
    }
    if r.stub {
        f *= w.stub;
    }
    f
}

/// Ranks candidates, best first. An exact name always comes first.
pub fn rank(q: &Question, candidates: &[Candidate<'_>], w: &Weights) -> Vec<Ranked> {
    let best_words = candidates.iter().map(|c| c.words).fold(0.0_f32, f32::max);
    let rarity: f32 = q.weights.iter().sum();
    let share = best_words / rarity.max(f32::MIN_POSITIVE);
    let span = (w.words_full - w.words_low).max(f32::MIN_POSITIVE);
    let match_share = ((share - w.words_low) / span).clamp(0.0, 1.0);
    let trust = w.words_floor + (1.0 - w.words_floor) * match_share;
    let similarities = || candidates.iter().filter_map(|c| c.similarity);
    let high = similarities().fold(f32::MIN, f32::max);
    let low = similarities().fold(f32::MAX, f32::min);
    // What a file's path says is the same for all of its symbols.
    let mut files: HashMap<&str, (Role, f32, f32)> = HashMap::new();
    let mut out: Vec<Ranked> = Vec::with_capacity(candidates.len());
    for (at, c) in candidates.iter().enumerate() {
        let (role, stem, stem_precision) = *files.entry(c.path).or_insert_with(|| {
            let (folder, name) = c.path.rsplit_once('/').unwrap_or(("", c.path));
            let stem = name.split('.').find(|s| !s.is_empty()).unwrap_or(name);
            let parent = folder.rsplit('/').next().unwrap_or_default();
            let (own, precision) = q.overlap(stem);
            let (both, _) = q.overlap(&format!("{parent} {stem}"));
            (role(c.path), 0.7 * own + 0.3 * both, precision)
        });
        let mut score = 0.0;
        if best_words > 0.0 {
            score += trust * w.words * (c.words / best_words).powf(w.words_power);
        }
        if let Some(s) = c.similarity {
            let norm = (s - low) / (high - low).max(w.vector_span);
            score += w.vectors * (0.05 + 0.95 * norm);
        }
        let (name, name_precision) = if c.symbol.kind == Kind::File {
            (0.0, 0.0)
        } else {
            q.overlap(c.symbol.own_name())
        };
        score += w.name * name + w.name_precision * name_precision * name.min(0.5) * 2.0;
        score += w.stem * stem + w.stem_precision * stem_precision * stem.min(0.5) * 2.0;
        let judged = q
            .find
            .judge(c.symbol)
            .filter(|_| c.symbol.kind != Kind::File);
        let tier = judged.map(|j| j.0);
        let own = super::text::normalised(c.symbol.own_name());
        let named = c.symbol.kind != Kind::File
            && q.identifiers
                .iter()
                .any(|i| *i == own || i.rsplit('.').next() == Some(&own));
        if named {
            score += w.named;
        }
        if c.symbol.exported {
            score += w.exported;
        }
        let mut factor = role_factor(role, q, w);
        factor *= match c.symbol.kind {
            Kind::File => w.file_record,
            Kind::Constant | Kind::Property => w.small,
            Kind::Test if !q.wants_tests && !role.test => w.test,
            k if k.is_container() => w.container,
            _ => 1.0,
        };
        score *= factor;
        if tier == Some(Tier::Exact) {
            score += 100.0;
        }
        out.push(Ranked { at, score, tier });
    }
    order(&mut out, candidates);
    // A file with several good candidates is more likely the one.
    let mut by_file: HashMap<&str, Vec<f32>> = HashMap::new();
    for r in out.iter().filter(|r| r.score < 100.0).take(60) {
        by_file
            .entry(candidates[r.at].path)
            .or_default()
            .push(r.score);
    }
    for r in &mut out {
        if let Some(scores) = by_file.get(candidates[r.at].path) {
            let others: f32 = scores.iter().skip(1).take(3).sum();
            r.score += w.file * others / 3.0;
        }
    }
    order(&mut out, candidates);
    // Each further hit of a file steps back.
    let mut seen: HashMap<&str, i32> = HashMap::new();
    for r in &mut out {
        let n = seen.entry(candidates[r.at].path).or_default();
        if r.score < 100.0 {
            r.score *= w.same_file.powi(*n);
        }
        *n += 1;
    }
    order(&mut out, candidates);
    out
}

fn order(out: &mut [Ranked], candidates: &[Candidate<'_>]) {
    out.sort_by(|a, b| {
        let (x, y) = (&candidates[a.at], &candidates[b.at]);
        b.score
            .total_cmp(&a.score)
            .then_with(|| x.path.cmp(y.path))
            .then_with(|| x.symbol.start.cmp(&y.symbol.start))
            .then_with(|| a.at.cmp(&b.at))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str, kind: Kind) -> Symbol {
        Symbol {
            name: name.into(),
            kind,
            line: 1,
            end_line: 2,
            start: 0,
            end: 1,
            signature: format!("fn {name}()"),
            doc: String::new(),
            more_doc: String::new(),
            exported: true,
        }
    }

    fn ranked(query: &str, all: &[(&str, Symbol, f32)]) -> Vec<usize> {
        let c: Vec<Candidate<'_>> = all
            .iter()
            .map(|(path, symbol, words)| Candidate {
                path,
                symbol,
                words: *words,
                similarity: None,
            })
            .collect();
        rank(&Question::new(query, &[]), &c, &Weights::CHOSEN)
            .iter()
            .map(|r| r.at)
            .collect()
    }

    #[test]
    fn an_exact_name_is_always_first() {
        let all = [
            ("a/refunds.rs", symbol("process", Kind::Function), 9.0),
            ("tests/z.rs", symbol("process_refund", Kind::Function), 0.1),
        ];
        assert_eq!(ranked("process refund", &all)[0], 1);
        assert_eq!(ranked("processRefund", &all)[0], 1);
    }

    #[test]
    fn tests_stand_behind_unless_asked_for() {
        let all = [
            ("tests/cart.rs", symbol("cart_adds", Kind::Function), 1.0),
            ("src/cart.rs", symbol("cart_add", Kind::Function), 0.9),
        ];
        assert_eq!(ranked("adding to a cart", &all)[0], 1);
        assert_eq!(ranked("tests of adding to a cart", &all)[0], 0);
    }

    #[test]
    fn exported_comes_first_among_equals_and_order_is_stable() {
        let mut hidden = symbol("cart_add", Kind::Function);
        hidden.exported = false;
        let all = [
            ("src/a.rs", hidden, 1.0),
            ("src/b.rs", symbol("cart_add", Kind::Function), 1.0),
        ];
        assert_eq!(ranked("adds something to carts", &all), [1, 0]);
        assert!(ranked("x", &[]).is_empty());
    }
}
