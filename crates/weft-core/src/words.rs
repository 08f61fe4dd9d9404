//! Text to the words of the keyword index: one function for documents and queries.
//!
//! An identifier counts whole *and* by its parts (camelCase, snake_case, digits); English words
//! count by their stem; CJK runs count by their bigrams, since nothing marks their words.

use std::cell::RefCell;
use std::collections::HashMap;

use rust_stemmers::{Algorithm, Stemmer};

/// Longest word that is indexed, bytes; a longer one counts only by its parts.
pub const MAX_WORD: usize = 64;
/// Most distinct words of a query.
pub const MAX_QUERY_WORDS: usize = 64;

/// Words that carry no meaning in a question.
const STOP_WORDS: [&str; 62] = [
    "a", "about", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "could",
    "did", "do", "does", "for", "from", "had", "has", "have", "how", "i", "if", "in", "into", "is",
    "it", "its", "me", "my", "of", "on", "or", "our", "should", "so", "some", "that", "the",
    "their", "them", "then", "there", "these", "they", "this", "to", "us", "was", "we", "were",
    "what", "when", "which", "who", "why", "will", "with", "you", "your",
];

fn is_cjk(c: char) -> bool {
    matches!(u32::from(c),
        0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF
        | 0x20000..=0x323AF)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Other,
    Lower,
    Upper,
    Digit,
    Joiner,
    Cjk,
}

fn class(c: char) -> Class {
    // Most of what is read is ASCII.
    match c {
        'a'..='z' => return Class::Lower,
        'A'..='Z' => return Class::Upper,
        '0'..='9' => return Class::Digit,
        '_' => return Class::Joiner,
        c if c.is_ascii() => return Class::Other,
        _ => {}
    }
    if is_cjk(c) {
        Class::Cjk
    } else if c.is_uppercase() {
        Class::Upper
    } else if c.is_alphanumeric() {
        Class::Lower
    } else {
        Class::Other
    }
}

/// Calls `f` with each part of an identifier: `HTTPServer2_go` gives HTTP, Server, 2, go.
fn parts<'a>(identifier: &'a str, mut f: impl FnMut(&'a str)) {
    let mut start: Option<usize> = None;
    let mut before = Class::Joiner;
    let mut rest = identifier.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let this = class(c);
        if this == Class::Joiner {
            if let Some(s) = start.take() {
                f(&identifier[s..at]);
            }
        } else if let Some(s) = start {
            let cut = match (before, this) {
                (Class::Lower, Class::Upper) => true,
                // The last capital of a run belongs to the word that follows it.
                (Class::Upper, Class::Upper) => {
                    rest.peek().is_some_and(|n| class(n.1) == Class::Lower)
                }
                (Class::Digit, Class::Digit) => false,
                (Class::Digit, _) | (_, Class::Digit) => true,
                _ => false,
            };
            if cut {
                f(&identifier[s..at]);
                start = Some(at);
            }
        } else {
            start = Some(at);
        }
        before = this;
    }
    if let Some(s) = start {
        f(&identifier[s..]);
    }
}

thread_local! {
    static STEMS: RefCell<(Stemmer, HashMap<String, String>)> =
        RefCell::new((Stemmer::create(Algorithm::English), HashMap::new()));
}

/// The stem of a lower-case word. Stems are remembered: text repeats its words.
fn stem(word: &str, f: &mut impl FnMut(&str)) {
    if word.len() < 4 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return f(word);
    }
    STEMS.with_borrow_mut(|(stemmer, memory)| {
        if memory.len() > 50_000 {
            memory.clear();
        }
        if let Some(s) = memory.get(word) {
            return f(s);
        }
        let s = stemmer.stem(word).into_owned();
        f(&s);
        memory.insert(word.to_owned(), s);
    });
}

/// Calls `f` with every word of a text, in order, repetitions included.
pub fn for_each(text: &str, mut f: impl FnMut(&str)) {
    let mut lower = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match class(first) {
            Class::Other => rest = &rest[first.len_utf8()..],
            Class::Cjk => {
                let end = rest.find(|c| !is_cjk(c)).unwrap_or(rest.len());
                bigrams(&rest[..end], &mut f);
                rest = &rest[end..];
            }
            _ => {
                let end = rest
                    .find(|c| matches!(class(c), Class::Other | Class::Cjk))
                    .unwrap_or(rest.len());
                identifier(&rest[..end], &mut lower, &mut f);
                rest = &rest[end..];
            }
        }
    }
}

fn identifier(run: &str, lower: &mut String, f: &mut impl FnMut(&str)) {
    let mut count = 0;
    parts(run, |_| count += 1);
    if count > 1 {
        let whole = run.trim_matches('_');
        if whole.len() <= MAX_WORD {
            set_lower(lower, whole);
            f(lower);
        }
    }
    parts(run, |part| {
        if part.len() <= MAX_WORD {
            set_lower(lower, part);
            stem(lower, f);
        }
    });
}

fn set_lower(lower: &mut String, text: &str) {
    lower.clear();
    if text.is_ascii() {
        lower.extend(text.bytes().map(|b| char::from(b.to_ascii_lowercase())));
    } else {
        lower.extend(text.chars().flat_map(char::to_lowercase));
    }
}

fn bigrams(run: &str, f: &mut impl FnMut(&str)) {
    let starts: Vec<usize> = run
        .char_indices()
        .map(|(i, _)| i)
        .chain([run.len()])
        .collect();
    if starts.len() == 2 {
        return f(run);
    }
    for w in starts.windows(3) {
        f(&run[w[0]..w[2]]);
    }
}

/// Every word of a text.
pub fn words(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for_each(text, |w| out.push(w.to_owned()));
    out
}

/// The distinct words of a query, without stop words unless it has no others.
pub fn query_words(query: &str) -> Vec<String> {
    let mut all = Vec::new();
    for_each(query, |w| {
        if all.len() < MAX_QUERY_WORDS && !all.iter().any(|x: &String| x == w) {
            all.push(w.to_owned());
        }
    });
    let kept: Vec<String> = all.iter().filter(|w| !is_stop_word(w)).cloned().collect();
    if kept.is_empty() { all } else { kept }
}

/// Whether a word (as [`for_each`] gives it) carries no meaning in a question.
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_count_whole_and_by_their_parts() {
        assert_eq!(
            words("parseHTTPRequest"),
            ["parsehttprequest", "pars", "http", "request"]
        );
        assert_eq!(
            words("max_poll-backoff"),
            ["max_poll", "max", "poll", "backoff"]
        );
        assert_eq!(words("sha256 _x_"), ["sha256", "sha", "256", "x"]);
        assert_eq!(
            words("src/main.rs --no-verify"),
            ["src", "main", "rs", "no", "verifi"]
        );
        assert_eq!(words("don't"), ["don", "t"]);
    }

    #[test]
    fn words_count_by_their_stem() {
        assert_eq!(words("Connections connected"), ["connect", "connect"]);
        assert_eq!(words("Größe ÉTÉ"), ["größe", "été"]);
    }

    #[test]
    fn cjk_counts_by_bigrams() {
        let doc = words("数据库连接池泄漏");
        for w in words("连接池") {
            assert!(doc.contains(&w), "{w}");
        }
        assert_eq!(words("池"), ["池"]);
        assert_eq!(words("go版本"), ["go", "版本"]);
    }

    #[test]
    fn queries_drop_stop_words_and_repetitions() {
        assert_eq!(
            query_words("How was the authentication fixed, and fixed how?"),
            ["authent", "fix"]
        );
        assert_eq!(query_words("to be or to be"), ["to", "be", "or"]);
        assert!(STOP_WORDS.is_sorted());
        for odd in ["", "\"", "*", "()", "\u{0}"] {
            assert!(query_words(odd).is_empty(), "{odd:?}");
        }
        assert_eq!(query_words("AND"), ["and"]);
    }

    #[test]
    fn overlong_words_count_by_their_parts_only() {
        let long = format!("{}_x", "a".repeat(100));
        assert_eq!(words(&long), ["x"]);
    }
}
