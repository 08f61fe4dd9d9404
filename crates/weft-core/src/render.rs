//! The text of a span that search reads, and how an oversize text is split.

use crate::block::ContentBlock;
use crate::project::project_text;

/// Largest rendered text that is embedded, UTF-8 bytes.
pub const MAX_TEXT_BYTES: usize = 1_048_576;
/// Deepest splitting of an oversize text.
pub const MAX_SPLIT_DEPTH: u32 = 4;
/// Tokens a piece should have at most.
const PIECE_TOKENS: usize = 8000;

/// Joins the projected text blocks with single line feeds.
pub fn block_text<'a>(blocks: impl IntoIterator<Item = &'a ContentBlock>) -> String {
    let mut out = String::new();
    for b in blocks {
        if b.kind != "text" || b.text.is_empty() {
            continue;
        }
        let text = project_text(&b.text);
        if text.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&text);
    }
    out
}

/// The text of an llm span: what was new in the input, then the answer; text blocks only.
pub fn span_text(input: &[ContentBlock], output: &[ContentBlock]) -> String {
    block_text(input.iter().chain(output))
}

/// Estimated tokens of a text: a quarter of its code points, rounded up.
pub fn estimated_tokens(text: &str) -> usize {
    text.chars().count().div_ceil(4)
}

/// Splits a text that a provider found too long, near line ends, into pieces that concatenate to it.
///
/// `None` where it cannot be split.
pub fn split(text: &str, tokens: usize) -> Option<Vec<String>> {
    let chars: Vec<char> = text.chars().collect();
    let total = chars.len();
    if total < 2 {
        return None;
    }
    let n = if tokens > PIECE_TOKENS {
        tokens.div_ceil(PIECE_TOKENS)
    } else {
        2
    }
    .clamp(2, total);
    let window = total / n / 8;
    let mut cuts = vec![0];
    for i in 1..n {
        let target = i * total / n;
        let previous = cuts[cuts.len() - 1];
        let low = (target.saturating_sub(window)).max(previous + 1);
        let high = (target + window).min(total);
        let line_end = (low..high)
            .filter(|&p| window > 0 && chars[p] == '\n')
            .min_by_key(|&p| p.abs_diff(target));
        let cut = line_end.map_or(target, |p| p + 1).max(previous + 1);
        if cut < total {
            cuts.push(cut);
        }
    }
    cuts.push(total);
    Some(
        cuts.windows(2)
            .filter(|w| w[0] < w[1])
            .map(|w| chars[w[0]..w[1]].iter().collect())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_vector_of_the_specification() {
        let text = span_text(
            &[ContentBlock::text("how do I fix it?")],
            &[ContentBlock::text("<status>x</status>use the flag")],
        );
        assert_eq!(
            crate::hash::sha256_hex(text.as_bytes()),
            "739a86c0bf1f340a6883f1b0ca4ba3eacd756feb5ddcad7fbe709f99843e90e9"
        );
    }

    #[test]
    fn pieces_concatenate_to_the_text_and_prefer_line_ends() {
        let text = format!("{}\n{}", "a".repeat(48), "b".repeat(51));
        let pieces = split(&text, 10).expect("pieces");
        assert_eq!(pieces.concat(), text);
        assert_eq!(pieces, [format!("{}\n", "a".repeat(48)), "b".repeat(51)]);
        assert_eq!(split("é✓", 1).expect("two"), ["é", "✓"]);
        assert_eq!(split("x", 1), None);
        let long = "word ".repeat(20_000);
        let pieces = split(&long, 25_000).expect("pieces");
        assert_eq!(pieces.len(), 4);
        assert_eq!(pieces.concat(), long);
        let lines = "\n".repeat(64);
        assert_eq!(split(&lines, 100_000_000).expect("pieces").concat(), lines);
    }
}
