//! The excerpt of a document that shows why it was found.

use std::collections::HashSet;

use crate::words;

/// Longest excerpt, code points.
pub const MAX_CHARS: usize = 280;

/// An excerpt and where the query's words stand in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snippet {
    /// The excerpt, with `…` where text was left out.
    pub text: String,
    /// Byte ranges of matching words in `text`.
    pub marks: Vec<(usize, usize)>,
}

/// Runs of word characters with their byte ranges.
fn runs(text: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(is_word)?;
        let end = text[start..]
            .find(|c| !is_word(c))
            .map_or(text.len(), |n| start + n);
        at = end;
        Some((start, end))
    })
}

/// The window of at most `max` code points with the most distinct query words, from the start of
/// the document on ties.
pub fn excerpt(text: &str, query_words: &[String], max: usize) -> Snippet {
    let wanted: HashSet<&str> = query_words.iter().map(String::as_str).collect();
    // Matching runs: byte range, code point position, the query words in it.
    let mut hits: Vec<(usize, usize, usize, Vec<&str>)> = Vec::new();
    let (mut counted, mut chars) = (0, 0);
    for (start, end) in runs(text) {
        let mut found = Vec::new();
        words::for_each(&text[start..end], |w| {
            if let Some(w) = wanted.get(w) {
                found.push(*w);
            }
        });
        if !found.is_empty() {
            chars += text[counted..start].chars().count();
            counted = start;
            hits.push((start, end, chars, found));
        }
        if hits.len() > 10_000 {
            break;
        }
    }
    let total = text.chars().take(max + 1).count();
    let begin = if total <= max {
        0
    } else {
        best_start(&hits, max)
    };
    let byte_at = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(i, _)| i);
    let mut from = byte_at(begin);
    if begin > 0 {
        // Start at a word.
        from = text[from..]
            .find(char::is_whitespace)
            .filter(|n| *n < 40)
            .map_or(from, |n| from + n + 1);
        while !text.is_char_boundary(from) {
            from += 1;
        }
    }
    let to = text[from..]
        .char_indices()
        .nth(max)
        .map_or(text.len(), |(i, _)| from + i);
    let lead = if from > 0 { "…" } else { "" };
    let tail = if to < text.len() { "…" } else { "" };
    let marks = hits
        .iter()
        .filter(|h| h.0 >= from && h.1 <= to)
        .map(|h| (h.0 - from + lead.len(), h.1 - from + lead.len()))
        .collect();
    Snippet {
        text: format!("{lead}{}{tail}", &text[from..to]),
        marks,
    }
}

/// Code point at which the best window begins.
fn best_start(hits: &[(usize, usize, usize, Vec<&str>)], max: usize) -> usize {
    let mut best = (0, 0, 0);
    for (i, first) in hits.iter().enumerate() {
        let mut distinct = HashSet::new();
        let mut count = 0;
        for h in hits[i..].iter().take_while(|h| h.2 + 20 < first.2 + max) {
            distinct.extend(h.3.iter().copied());
            count += 1;
            if count > 200 {
                break;
            }
        }
        if (distinct.len(), count) > (best.0, best.1) {
            best = (distinct.len(), count, first.2);
        }
    }
    best.2.saturating_sub(40)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_with_most_words_is_shown() {
        let text = format!(
            "retry once. {} the retry backoff is thirty seconds {}",
            "x ".repeat(300),
            "y ".repeat(300)
        );
        let s = excerpt(&text, &words::query_words("retry backoff"), 80);
        assert!(s.text.contains("retry backoff"), "{}", s.text);
        assert!(s.text.starts_with('…') && s.text.ends_with('…'));
        let marked: Vec<&str> = s.marks.iter().map(|m| &s.text[m.0..m.1]).collect();
        assert_eq!(marked, ["retry", "backoff"]);
    }

    #[test]
    fn short_texts_and_texts_without_a_match_are_shown_from_the_start() {
        assert_eq!(excerpt("héllo", &[], 280).text, "héllo");
        let long = "é".repeat(300);
        assert_eq!(
            excerpt(&long, &["zz".into()], 280).text.chars().count(),
            281
        );
        assert_eq!(excerpt("", &["a".into()], 280), Snippet::default());
    }
}
