//! How many tokens a text costs: an upper bound that is close for code and prose.
//!
//! `tokens.txt` holds the 78,000 words, punctuation runs and single characters that are one token in
//! both the `o200k_base` and the `cl100k_base` vocabulary (OpenAI tiktoken, MIT), sorted. A text is cut
//! as `o200k_base` cuts it; a piece of the list costs 1. Any other word costs two thirds of its letters,
//! since two neighbouring letters whose pair is a token are always merged, and any other piece its
//! bytes. Words joined in one identifier cost one more each, as `cl100k_base` does not cut them.

const LIST: &[u8] = include_bytes!("tokens.txt");

/// Whether a piece is one token.
fn is_token(piece: &[u8]) -> bool {
    let (mut low, mut high) = (0, LIST.len());
    while low < high {
        let mid = usize::midpoint(low, high);
        // The line that holds `mid`.
        let start = LIST[..mid]
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |i| i + 1);
        let end = mid
            + LIST[mid..]
                .iter()
                .position(|b| *b == b'\n')
                .unwrap_or(LIST.len() - mid);
        match LIST[start..end].cmp(piece) {
            std::cmp::Ordering::Equal => return true,
            std::cmp::Ordering::Less => low = end + 1,
            std::cmp::Ordering::Greater => high = start,
        }
    }
    false
}

/// Tokens of a piece that begins with at most one character that is no letter.
fn word_cost(piece: &str) -> usize {
    let bytes = piece.as_bytes();
    if is_token(bytes) {
        return 1;
    }
    let lead = usize::from(!bytes[0].is_ascii_alphabetic());
    let letters = &bytes[lead..];
    if lead == 1 && is_token(letters) {
        return 2;
    }
    let pairs = letters.windows(2).all(|w| w.is_ascii() && is_token(w));
    if pairs {
        lead + letters.len() * 2 / 3 + 1
    } else {
        bytes.len()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Upper,
    Lower,
    Digit,
    Line,
    Space,
    Other,
}

fn class(c: char) -> Class {
    match c {
        '\n' | '\r' => Class::Line,
        c if c.is_whitespace() => Class::Space,
        c if c.is_numeric() => Class::Digit,
        c if c.is_uppercase() => Class::Upper,
        c if c.is_alphabetic() => Class::Lower,
        _ => Class::Other,
    }
}

/// The most tokens that a text costs in either vocabulary.
pub fn count(text: &str) -> usize {
    let chars: Vec<(usize, char, Class)> =
        text.char_indices().map(|(i, c)| (i, c, class(c))).collect();
    let at = |i: usize| chars.get(i).map_or(text.len(), |c| c.0);
    let class_at = |i: usize| chars.get(i).map(|c| c.2);
    let is_letter = |i: usize| matches!(class_at(i), Some(Class::Upper | Class::Lower));
    let mut total = 0;
    let mut i = 0;
    let mut after_letters = false;
    while i < chars.len() {
        let start = i;
        let c = chars[i].2;
        let lead = matches!(c, Class::Space | Class::Other) && is_letter(i + 1);
        if lead || is_letter(i) {
            let joined = after_letters && !lead;
            i += usize::from(lead);
            while class_at(i) == Some(Class::Upper) {
                i += 1;
            }
            while class_at(i) == Some(Class::Lower) {
                i += 1;
            }
            total += word_cost(&text[at(start)..at(i)]) + usize::from(joined);
            after_letters = true;
            continue;
        }
        after_letters = false;
        match c {
            Class::Digit => {
                let mut n = 0;
                while n < 3 && class_at(i) == Some(Class::Digit) {
                    n += 1;
                    i += 1;
                }
                let piece = &text[at(start)..at(i)];
                total += if piece.is_ascii() { 1 } else { piece.len() };
            }
            Class::Space | Class::Line
                if !(class_at(i + 1) == Some(Class::Other) && chars[i].1 == ' ') =>
            {
                while matches!(class_at(i), Some(Class::Space | Class::Line)) {
                    i += 1;
                }
                // The last blank belongs to what follows.
                if i - start > 1 && i < chars.len() && chars[i - 1].2 == Class::Space {
                    i -= 1;
                }
                let run = &text[at(start)..at(i)];
                total += if run.bytes().all(|b| b == b' ') && run.len() < 80 || run == "\n" {
                    1
                } else if run.is_ascii() {
                    // A run of line ends, then a run of blanks; mixed ones are cut into more.
                    run.len().min(
                        2 + run.bytes().filter(|b| !matches!(b, b' ' | b'\n')).count()
                            + run.len() / 64,
                    )
                } else {
                    run.len()
                };
            }
            _ => {
                if chars[i].2 == Class::Space {
                    i += 1;
                }
                while class_at(i) == Some(Class::Other) {
                    i += 1;
                }
                let piece = &text[at(start)..at(i)];
                total += if is_token(piece.as_bytes()) {
                    1
                } else {
                    piece.len()
                };
                // Line ends and slashes right behind belong to the piece; a piece of them costs one.
                let ends = i;
                while class_at(i) == Some(Class::Line) {
                    i += 1;
                }
                total += usize::from(i > ends);
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(text: &str) -> (usize, usize) {
        use std::sync::LazyLock;
        use tiktoken_rs::CoreBPE;
        static O: LazyLock<CoreBPE> = LazyLock::new(|| tiktoken_rs::o200k_base().expect("o200k"));
        static C: LazyLock<CoreBPE> = LazyLock::new(|| tiktoken_rs::cl100k_base().expect("cl100k"));
        (O.encode_ordinary(text).len(), C.encode_ordinary(text).len())
    }

    fn check(text: &str) -> (usize, usize) {
        let (o, c) = exact(text);
        let n = count(text);
        assert!(n >= o && n >= c, "{n} < {o} or {c}: {text:?}");
        (n, o)
    }

    #[test]
    fn the_list_is_sorted_and_holds_single_tokens() {
        let lines: Vec<&[u8]> = LIST
            .split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .collect();
        assert!(lines.is_sorted());
        for l in lines.iter().step_by(97) {
            assert!(is_token(l));
            assert_eq!(exact(std::str::from_utf8(l).expect("text")), (1, 1));
        }
        assert!(!is_token(b"notatokenatall") && !is_token(b""));
    }

    #[test]
    fn it_is_an_upper_bound_and_close() {
        let source = concat!(
            include_str!("rank.rs"),
            include_str!("tokens.rs"),
            include_str!("../derive/mod.rs")
        );
        let (mut bound, mut real) = (0, 0);
        for l in source.lines() {
            let (n, o) = check(l);
            bound += n;
            real += o;
        }
        check(source);
        assert!(bound < real * 3 / 2, "{bound} for {real}");
    }

    #[test]
    fn odd_texts_stay_under_the_bound() {
        let pieces = [
            "a",
            "Z",
            "xq",
            "HTTPServer",
            "processRefund",
            "don't",
            "I'LL",
            " ",
            "  ",
            "\n",
            "\r\n",
            "\t",
            "12345",
            "::",
            "->",
            "—",
            "é",
            "ß",
            "数据",
            "😀",
            "\u{301}",
            "_",
            "/*",
            "*/",
            "==========",
            "\"",
            "\\n",
            "[owner alice]",
            ".rs:12",
            "qzxj",
            "ABCDEF",
            "x1y2",
            "Ⅷ",
            "\u{a0}",
            "<|endoftext|>",
        ];
        let mut x = 0x2545_F491_4F6C_DD1D_u64;
        for _ in 0..3_000 {
            let mut text = String::new();
            for _ in 0..12 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                text.push_str(pieces[(x % pieces.len() as u64) as usize]);
            }
            check(&text);
        }
        check("");
    }
}
