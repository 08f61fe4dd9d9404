//! Ranking of decisions: words in title, options and text, nearness of meaning, and a verdict.
//!
//! Weights were chosen on half of the labelled questions (`cargo xtask bench decisions`).

use std::collections::HashMap;

use super::{Decision, Record, Status};
use crate::words;

/// Text of a record whose words are counted, bytes.
const MAX_TEXT: usize = 400 << 10;
/// Fields: title, options, text.
const FIELDS: usize = 3;

/// The words of a record with their counts by field, packed: word by word in alphabetical order,
/// `length, bytes, count of title, of options, of text`; in front the lengths of the fields.
pub fn pack(r: &Record) -> Vec<u8> {
    let mut counts: HashMap<String, [u32; FIELDS]> = HashMap::new();
    let mut lengths = [0_u32; FIELDS];
    let options: Vec<String> = r
        .alternatives
        .iter()
        .map(|a| format!("{} {}", a.name, a.why_not))
        .collect();
    let text = crate::project::cut_bytes(&r.rationale, MAX_TEXT);
    for (field, text) in [(0, r.title.as_str()), (1, &options.join("\n")), (2, text)] {
        words::for_each(text, |w| {
            lengths[field] += 1;
            match counts.get_mut(w) {
                Some(c) => c[field] += 1,
                None => {
                    let mut c = [0; FIELDS];
                    c[field] = 1;
                    counts.insert(w.to_owned(), c);
                }
            }
        });
    }
    let mut all: Vec<_> = counts.into_iter().collect();
    all.sort();
    let mut out = Vec::with_capacity(all.len() * 10);
    for l in lengths {
        out.extend(l.to_le_bytes());
    }
    for (word, c) in all {
        // A word has at most `words::MAX_WORD` bytes.
        out.push(word.len() as u8);
        out.extend(word.as_bytes());
        for n in c {
            out.extend(u16::try_from(n).unwrap_or(u16::MAX).to_le_bytes());
        }
    }
    out
}

/// Counts of some words in a packed record.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counts {
    lengths: [f32; FIELDS],
    /// By word, in the order asked for.
    found: Vec<[f32; FIELDS]>,
    /// The same for longer words that begin with it: `authent` for `auth`.
    longer: Vec<[f32; FIELDS]>,
}

fn unpack(bytes: &[u8], wanted: &[String]) -> Counts {
    let mut out = Counts {
        found: vec![[0.0; FIELDS]; wanted.len()],
        longer: vec![[0.0; FIELDS]; wanted.len()],
        ..Counts::default()
    };
    for (i, l) in bytes.chunks_exact(4).take(FIELDS).enumerate() {
        out.lengths[i] = u32::from_le_bytes([l[0], l[1], l[2], l[3]]) as f32;
    }
    let mut at = 4 * FIELDS;
    while let Some(&n) = bytes.get(at) {
        let end = at + 1 + usize::from(n);
        let Some(counts) = bytes.get(end..end + 2 * FIELDS) else {
            break;
        };
        let word = &bytes[at + 1..end];
        for (i, wanted) in wanted.iter().enumerate() {
            let wanted = wanted.as_bytes();
            // The first byte tells nearly always.
            if word.first() != wanted.first() || !word.starts_with(wanted) {
                continue;
            }
            let to = match word.len() == wanted.len() {
                true => &mut out.found[i],
                false if wanted.len() >= MIN_BEGINNING => &mut out.longer[i],
                false => continue,
            };
            for (f, c) in to.iter_mut().zip(counts.chunks_exact(2)) {
                *f += f32::from(u16::from_le_bytes([c[0], c[1]]));
            }
        }
        at = end + 2 * FIELDS;
    }
    out
}

/// A query word of at least this many bytes that no record has stands for words that begin with it.
const MIN_BEGINNING: usize = 4;

/// Words of questions about decisions that say nothing about which.
const ASKING: [&str; 22] = [
    "adopt",
    "adr",
    "against",
    "choos",
    "chose",
    "decid",
    "decis",
    "did",
    "handl",
    "implement",
    "instead",
    "make",
    "manag",
    "need",
    "not",
    "pick",
    "prefer",
    "reject",
    "select",
    "use",
    "want",
    "work",
];

/// The words of a question, without those that any question about decisions has.
pub fn query_words(query: &str) -> Vec<String> {
    let all = words::query_words(query);
    let told: Vec<String> = all
        .iter()
        .filter(|w| !ASKING.contains(&w.as_str()))
        .cloned()
        .collect();
    if told.is_empty() { all } else { told }
}

/// Texts of a record that are embedded: its title with its beginning, then its parts. Each is
/// short, since a small model blurs long texts.
pub fn pieces(r: &Record) -> Vec<String> {
    let mut out = vec![r.title.clone()];
    let mut part = String::new();
    let push = |part: &mut String, out: &mut Vec<String>| {
        let text = part.trim();
        if text.len() > 20 && out.len() < MAX_PIECES {
            out.push(format!("{}\n{text}", r.title));
        }
        part.clear();
    };
    for block in r.rationale.split("\n\n") {
        let heading = block.trim_start().starts_with('#');
        if (heading && part.len() > PIECE / 2) || part.len() + block.len() > PIECE {
            push(&mut part, &mut out);
        }
        part.push_str(crate::project::cut_bytes(block, PIECE * 2));
        part.push('\n');
    }
    push(&mut part, &mut out);
    for a in r.alternatives.iter().take(8) {
        if !a.why_not.is_empty() {
            let text = crate::project::cut_bytes(&a.why_not, PIECE);
            out.push(format!("{}: {} rejected: {text}", r.title, a.name));
        }
    }
    out
}

/// Bytes of a piece, about.
const PIECE: usize = 700;
/// Pieces of one record.
const MAX_PIECES: usize = 12;

/// The weights of [`rank`].
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// Of a word in the title, the options, the text.
    pub fields: [f32; FIELDS],
    /// BM25's saturation.
    pub k1: f32,
    /// BM25's length normalisation.
    pub b: f32,
    /// Share of the vectors.
    pub vectors: f32,
    /// Share of the words.
    pub words: f32,
    /// Share of the weighted part of the query's words that a title has.
    pub title: f32,
    /// Exponent that flattens BM25.
    pub power: f32,
    /// How much of the words' share is kept where the best record has few of the query's words.
    pub words_floor: f32,
    /// Covered share of the query up to which the words count as not matched, and from which fully.
    pub covered: (f32, f32),
}

impl Weights {
    /// The chosen ones.
    pub const CHOSEN: Self = Self {
        fields: [3.0, 1.0, 1.0],
        k1: 1.2,
        b: 0.75,
        vectors: 0.5,
        words: 0.5,
        title: 0.2,
        power: 1.0,
        words_floor: 0.5,
        covered: (0.3, 0.9),
    };
}

/// A ranked record.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ranked {
    /// Its place in the list given.
    pub at: usize,
    /// Fused score; only the order means something.
    pub score: f32,
    /// BM25; 0 = none of the words.
    pub words: f32,
    /// Cosine similarity of its nearest piece, 0 where it has no vector.
    pub similarity: f32,
    /// Weighted share of the query's words that it has, 0..1.
    pub covered: f32,
}

/// Ranks records by the query's words and by similarity, best first. Only records with evidence come
/// back: one of the words, or a similarity.
pub fn rank(
    query: &[String],
    packed: &[&[u8]],
    similarities: &[Option<f32>],
    w: &Weights,
) -> Vec<Ranked> {
    let mut counts: Vec<Counts> = packed.iter().map(|p| unpack(p, query)).collect();
    let has = |f: &[f32; FIELDS]| f.iter().any(|x| *x > 0.0);
    for i in 0..query.len() {
        let nowhere = !counts.iter().any(|c| has(&c.found[i]));
        let in_no_title = !counts.iter().any(|c| c.found[i][0] > 0.0);
        for c in &mut counts {
            if nowhere {
                c.found[i] = c.longer[i];
            } else if in_no_title {
                c.found[i][0] = c.longer[i][0];
            }
        }
    }
    let n = counts.len().max(1) as f32;
    let mut average = [1.0_f32; FIELDS];
    for (f, a) in average.iter_mut().enumerate() {
        *a = (counts.iter().map(|c| c.lengths[f]).sum::<f32>() / n).max(1.0);
    }
    let idf: Vec<f32> = (0..query.len())
        .map(|i| {
            let df = counts.iter().filter(|c| has(&c.found[i])).count() as f32;
            (1.0 + (n - df + 0.5) / (df + 0.5)).ln()
        })
        .collect();
    let total: f32 = idf.iter().sum::<f32>().max(f32::MIN_POSITIVE);
    let mut out: Vec<Ranked> = Vec::new();
    let mut titles: Vec<f32> = Vec::new();
    for (at, c) in counts.iter().enumerate() {
        let (mut words, mut covered, mut title) = (0.0, 0.0, 0.0);
        for (i, found) in c.found.iter().enumerate() {
            // BM25F: fields are weighed before they saturate.
            let tf: f32 = (0..FIELDS)
                .map(|f| w.fields[f] * found[f] / (1.0 - w.b + w.b * c.lengths[f] / average[f]))
                .sum();
            if tf > 0.0 {
                words += idf[i] * (w.k1 + 1.0) * tf / (w.k1 + tf);
                covered += idf[i] / total;
            }
            if found[0] > 0.0 {
                title += idf[i] / total;
            }
        }
        let similarity = similarities.get(at).copied().flatten();
        if words > 0.0 || similarity.is_some() {
            out.push(Ranked {
                at,
                score: 0.0,
                words,
                similarity: similarity.unwrap_or_default().clamp(0.0, 1.0),
                covered,
            });
            titles.push(title);
        }
    }
    let best = out.iter().map(|r| r.words).fold(0.0_f32, f32::max);
    let cover = out.iter().map(|r| r.covered).fold(0.0_f32, f32::max);
    let high = out.iter().map(|r| r.similarity).fold(f32::MIN, f32::max);
    let low = out.iter().map(|r| r.similarity).fold(f32::MAX, f32::min);
    let share = ((cover - w.covered.0) / (w.covered.1 - w.covered.0)).clamp(0.0, 1.0);
    let trust = w.words_floor + (1.0 - w.words_floor) * share;
    for (r, title) in out.iter_mut().zip(titles) {
        let by_words = if best > 0.0 {
            (r.words / best).powf(w.power)
        } else {
            0.0
        };
        let by_vectors = (r.similarity - low) / (high - low).max(0.05);
        r.score = trust * (w.words * by_words + w.title * title) + w.vectors * by_vectors;
    }
    out.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.at.cmp(&b.at)));
    out
}

/// What a question is answered with before the hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is decided, by this decision.
    Decided(String),
    /// It was decided and then replaced: the old one and what holds now.
    Replaced(String, String),
    /// It was turned down, in this decision.
    Rejected(String),
    /// Somebody proposed it.
    Proposed(String),
    /// It was decided and holds no more.
    Deprecated(String),
    /// Nothing.
    Nothing,
}

/// Share of the query's words that a hit must have, or its similarity, to count as an answer. On the labelled
/// questions this says "decided" for two thirds of those that the repository answers, and for one in twelve
/// that it does not (`cargo xtask bench decisions`).
const ANSWERS: (f32, f32) = (0.6, 0.55);

/// Whether a hit is about the question at all.
pub fn answers(r: &Ranked) -> bool {
    r.covered >= ANSWERS.0
        || r.similarity >= ANSWERS.1
        || (r.covered >= 0.35 && r.similarity >= 0.4)
}

/// The option of a decision that a query names and that it turned down.
pub fn rejected<'a>(query: &[String], d: &'a Decision) -> Option<&'a super::Alternative> {
    let title = words::words(&d.record.title);
    d.record.alternatives.iter().find(|a| {
        let name = words::query_words(&a.name);
        let fresh = |w: &&String| !title.contains(w);
        name.iter().filter(fresh).any(|w| query.contains(w))
            && name
                .iter()
                .filter(fresh)
                .filter(|w| query.contains(w))
                .count()
                * 2
                > name.iter().filter(fresh).count()
    })
}

/// The verdict on a query: of the first hit that is about it.
pub fn verdict(query: &[String], all: &[Decision], ranked: &[Ranked]) -> Verdict {
    let Some(first) = ranked.first().filter(|r| answers(r)) else {
        return Verdict::Nothing;
    };
    let d = &all[first.at];
    let id = d.id.clone();
    if rejected(query, d).is_some()
        || d.status == Status::Rejected
        || d.kind() == super::Type::Rejection
    {
        return Verdict::Rejected(id);
    }
    match d.status {
        Status::Superseded => match last_of(all, d) {
            Some(now) => Verdict::Replaced(id, now),
            None => Verdict::Deprecated(id),
        },
        Status::Deprecated => Verdict::Deprecated(id),
        Status::Proposed => Verdict::Proposed(id),
        _ => Verdict::Decided(id),
    }
}

/// What holds in the place of a superseded decision; a circle ends where it began.
fn last_of(all: &[Decision], d: &Decision) -> Option<String> {
    let mut seen = vec![d.id.as_str()];
    let mut now = d.superseded_by.first()?;
    while !seen.contains(&now.as_str()) {
        seen.push(now);
        match all
            .iter()
            .find(|x| x.id == *now)
            .and_then(|x| x.superseded_by.first())
        {
            Some(next) if !seen.contains(&next.as_str()) => now = next,
            _ => break,
        }
    }
    Some(now.clone())
}

/// Puts every superseded hit behind what holds in its place, which is brought in from the whole ranking where
/// it is no hit itself.
pub fn with_successors(all: &[Decision], ranked: &mut Vec<Ranked>, whole: &[Ranked]) {
    let at: HashMap<&str, usize> = all
        .iter()
        .enumerate()
        .map(|(i, d)| (d.id.as_str(), i))
        .collect();
    let successor = |i: usize| {
        let d = &all[i];
        let last = last_of(all, d).filter(|_| d.status == Status::Superseded)?;
        at.get(last.as_str()).copied()
    };
    let mut out: Vec<Ranked> = Vec::with_capacity(ranked.len());
    for r in ranked.iter() {
        if let Some(new) = successor(r.at)
            && !out.iter().any(|o| o.at == new)
        {
            let own = whole.iter().find(|o| o.at == new).copied();
            out.push(own.unwrap_or(Ranked {
                at: new,
                score: r.score,
                ..Ranked::default()
            }));
        }
        if !out.iter().any(|o| o.at == r.at) {
            out.push(*r);
        }
    }
    *ranked = out;
}
