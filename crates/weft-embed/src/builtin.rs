//! The builtin model: word vectors in the program, no download and no server.
//!
//! 28,045 words and 2,048 hash buckets × 256 dimensions in int8; encoding rules, training and
//! measurements stand in `model/README.md`.

use std::collections::HashMap;
use std::sync::LazyLock;

use half::f16;

/// Name and version of the table; a changed table needs a changed name.
pub(crate) const NAME: &str = "weft-s256d-1";
/// Length of its vectors.
pub(crate) const DIMENSIONS: usize = 256;

const TABLE: &[u8] = include_bytes!("../model/table.i8");
const SCALES: &[u8] = include_bytes!("../model/scales.f16");
const VOCABULARY: &str = include_str!("../model/vocab.txt");

const BUCKETS: u32 = 2_048;
const MAX_WORDS: usize = 256;
const MIN_CUT_WORD: usize = 6;
const MIN_PIECE: usize = 3;
const MAX_PIECES: usize = 3;

struct Words {
    rows: HashMap<&'static str, u32>,
    count: u32,
    longest: usize,
}

static WORDS: LazyLock<Words> = LazyLock::new(|| {
    let rows: HashMap<&str, u32> = VOCABULARY.lines().zip(0..).collect();
    Words {
        count: VOCABULARY.lines().count() as u32,
        longest: rows.keys().map(|w| w.len()).max().unwrap_or(0),
        rows,
    }
});

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Other,
    NonAscii,
}

fn class(c: char) -> Class {
    match c {
        'a'..='z' | 'A'..='Z' => Class::Letter,
        '0'..='9' => Class::Digit,
        c if c.is_ascii() => Class::Other,
        _ => Class::NonAscii,
    }
}

/// Calls `f` with the words of a text until it returns false.
fn for_each_word(text: &str, mut f: impl FnMut(&str) -> bool) {
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let this = class(c);
        let end = rest.find(|c| class(c) != this).unwrap_or(rest.len());
        let run = &rest[..end];
        rest = &rest[end..];
        let go_on = match this {
            Class::Other => true,
            Class::Digit if run.len() <= 2 => f(run),
            Class::Digit => f("#num"),
            Class::NonAscii => f(&run.to_lowercase()),
            Class::Letter => letters(run, &mut f),
        };
        if !go_on {
            return;
        }
    }
}

/// Splits a run of letters where the case changes.
fn letters(run: &str, f: &mut impl FnMut(&str) -> bool) -> bool {
    let b = run.as_bytes();
    let mut start = 0;
    for i in 1..=b.len() {
        let cut = i == b.len()
            || (b[i].is_ascii_uppercase()
                && (b[i - 1].is_ascii_lowercase()
                    || b.get(i + 1).is_some_and(u8::is_ascii_lowercase)));
        if cut {
            if !f(&run[start..i].to_ascii_lowercase()) {
                return false;
            }
            start = i;
        }
    }
    true
}

fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |h, b| {
        (h ^ u32::from(*b)).wrapping_mul(0x0100_0193)
    })
}

/// The rows that stand for a word.
fn rows_of(word: &str, mut f: impl FnMut(u32)) {
    let w = &*WORDS;
    if let Some(&row) = w.rows.get(word) {
        return f(row);
    }
    if word.len() >= MIN_CUT_WORD && word.bytes().all(|b| b.is_ascii_lowercase()) {
        let mut pieces = Vec::new();
        let mut rest = word;
        while pieces.len() < MAX_PIECES && !rest.is_empty() {
            let longest = rest.len().min(w.longest);
            let found = (MIN_PIECE..=longest)
                .rev()
                .find_map(|n| Some((n, *w.rows.get(rest.get(..n)?)?)));
            let Some((n, row)) = found else { break };
            pieces.push(row);
            rest = &rest[n..];
        }
        if rest.is_empty() {
            return pieces.into_iter().for_each(f);
        }
    }
    f(w.count + fnv1a(word.as_bytes()) % BUCKETS);
}

/// The unit vector of a text; `None` where it has no word.
pub(crate) fn embed(text: &str) -> Option<Vec<f32>> {
    let mut counts: HashMap<u32, u32> = HashMap::new();
    let mut order = Vec::new();
    let mut words = 0;
    for_each_word(text, |word| {
        rows_of(word, |row| {
            let n = counts.entry(row).or_default();
            if *n == 0 {
                order.push(row);
            }
            *n += 1;
        });
        words += 1;
        words < MAX_WORDS
    });
    let mut sum = vec![0.0_f32; DIMENSIONS];
    for row in order {
        let at = row as usize;
        let scale = f16::from_le_bytes([SCALES[at * 2], SCALES[at * 2 + 1]]).to_f32();
        let weight = (counts[&row] as f32).sqrt() * scale;
        for (s, v) in sum.iter_mut().zip(&TABLE[at * DIMENSIONS..][..DIMENSIONS]) {
            *s += weight * f32::from(v.cast_signed());
        }
    }
    let norm = sum.iter().map(|x| x * x).sum::<f32>().sqrt();
    if norm <= 0.0 {
        return None;
    }
    sum.iter_mut().for_each(|x| *x /= norm);
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn reference_vectors() {
        let reference: Vec<Value> =
            serde_json::from_str(include_str!("../model/reference.json")).expect("reference");
        assert!(!reference.is_empty());
        for r in reference {
            let text = r["text"].as_str().expect("text");
            let (mut words, mut ids) = (Vec::new(), Vec::new());
            for_each_word(text, |w| {
                words.push(w.to_owned());
                rows_of(w, |row| ids.push(row));
                words.len() < MAX_WORDS
            });
            let strings: Vec<&str> = r["words"]
                .as_array()
                .expect("words")
                .iter()
                .filter_map(Value::as_str)
                .collect();
            assert_eq!(words, strings, "{text}");
            let want: Vec<u64> = r["ids"]
                .as_array()
                .expect("ids")
                .iter()
                .filter_map(Value::as_u64)
                .collect();
            assert_eq!(
                ids.iter().map(|i| u64::from(*i)).collect::<Vec<_>>(),
                want,
                "{text}"
            );
            if want.is_empty() {
                assert_eq!(embed(text), None);
                continue;
            }
            let v = embed(text).expect("vector");
            for (got, want) in v.iter().zip(r["vector_head"].as_array().expect("head")) {
                assert!(
                    (f64::from(*got) - want.as_f64().expect("number")).abs() < 1e-4,
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn files_fit_together() {
        let rows = VOCABULARY.lines().count() + BUCKETS as usize;
        assert_eq!(TABLE.len(), rows * DIMENSIONS);
        assert_eq!(SCALES.len(), rows * 2);
    }

    #[test]
    fn a_text_without_words_has_no_vector() {
        assert_eq!(embed(""), None);
        assert_eq!(embed("  --- \u{0}!"), None);
        assert!(embed("数据库").is_some());
    }
}
