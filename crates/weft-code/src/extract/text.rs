//! Bytes to text, and text without a grammar to chunks.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;
use tree_sitter::Tree;
use weft_core::code::{Kind, Symbol};
use weft_core::project::cut_chars;

/// Largest chunk of a file without a grammar, bytes.
const CHUNK_BYTES: usize = 1_500;
/// Most lines of a chunk.
const CHUNK_LINES: usize = 60;
/// Most chunks of a file; what is beyond them is not searched.
const MAX_CHUNKS: usize = 400;
/// Bytes that are looked at for telling binary files.
const SNIFF: usize = 8 << 10;
/// A file with a longer line is minified or generated.
pub(crate) const MAX_LINE: usize = 10_000;

/// What the bytes of a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// Text; what is not UTF-8 was replaced.
    Text(Cow<'a, str>),
    /// Not text.
    Binary,
    /// Text with a line that no person wrote.
    Minified,
}

/// Bytes to text: UTF-8, UTF-16 with a byte order mark, else UTF-8 with replacement.
pub fn decode(bytes: &[u8]) -> Decoded<'_> {
    let text = match bytes {
        [0xFF, 0xFE, rest @ ..] => Cow::Owned(utf16(rest, u16::from_le_bytes)),
        [0xFE, 0xFF, rest @ ..] => Cow::Owned(utf16(rest, u16::from_be_bytes)),
        _ => {
            if bytes[..bytes.len().min(SNIFF)].contains(&0) {
                return Decoded::Binary;
            }
            let bytes = bytes.strip_prefix(&[0xEF, 0xBB, 0xBF]).unwrap_or(bytes);
            String::from_utf8_lossy(bytes)
        }
    };
    if text.contains('\0') {
        return Decoded::Binary;
    }
    let mut longest = 0;
    let mut last = 0;
    for (i, b) in text.bytes().enumerate() {
        if b == b'\n' {
            longest = longest.max(i - last);
            last = i + 1;
        }
    }
    if longest.max(text.len() - last) > MAX_LINE {
        return Decoded::Minified;
    }
    Decoded::Text(text)
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let units = bytes.chunks_exact(2).map(|c| unit([c[0], c[1]]));
    char::decode_utf16(units)
        .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

/// A file without a grammar, or one that did not parse, in pieces of whole lines.
pub(super) fn chunks(path: &str, source: &str) -> Vec<Symbol> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut out = Vec::new();
    let (mut start, mut line, mut lines, mut at) = (0_usize, 1_u32, 0_u32, 0_usize);
    let mut push = |start: usize, end: usize, line: u32, lines: u32| {
        let text = &source[start..end];
        let first = text
            .lines()
            .map(str::trim)
            .find(|l| !l.is_empty())
            .unwrap_or(name);
        if out.len() < MAX_CHUNKS && (!text.trim().is_empty() || out.is_empty()) {
            out.push(Symbol {
                name: name.to_owned(),
                kind: Kind::File,
                line,
                end_line: line + lines.max(1) - 1,
                start: start as u32,
                end: end as u32,
                signature: cut_chars(&super::doc::fold(first), 120),
                doc: String::new(),
                more_doc: String::new(),
                exported: true,
            });
        }
    };
    for l in source.split_inclusive('\n') {
        if lines > 0 && (at + l.len() - start > CHUNK_BYTES || lines as usize >= CHUNK_LINES) {
            push(start, at, line, lines);
            line += lines;
            start = at;
            lines = 0;
        }
        at += l.len();
        lines += 1;
    }
    push(start, at, line, lines);
    out
}

/// Most lines of a definition that was found by its line alone.
const RESCUED_LINES: usize = 30;

/// Definitions on lines that the parser gave up on: code that somebody is still writing.
pub(super) fn rescue(tree: &Tree, source: &str, symbols: &mut Vec<Symbol>) {
    static LINE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"^\s*(?:@\w+\s+)?(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([a-z]+\))?|open|override|suspend|local)\s+)*(fun|func|fn|def|defp|function|class|struct|interface|trait|enum|module)\s+(?:[A-Z]\w*\.)?([\p{Alphabetic}_$][\w$]*)",
        )
        .unwrap_or_else(|e| unreachable!("{e}"))
    });
    let mut errors: Vec<std::ops::Range<usize>> = Vec::new();
    let mut cursor = tree.walk();
    let mut stack = vec![tree.root_node()];
    while let Some(node) = stack.pop() {
        if node.is_error() {
            errors.push(node.byte_range());
        } else if node.has_error() {
            stack.extend(node.children(&mut cursor));
        }
        if errors.len() > 1_000 {
            break;
        }
    }
    let known: HashSet<u32> = symbols.iter().map(|s| s.line).collect();
    let mut at = 0;
    for (i, line) in source.split_inclusive('\n').enumerate() {
        let number = i as u32 + 1;
        let broken = errors
            .iter()
            .any(|e| e.contains(&at) || e.contains(&(at + line.len() - 1)));
        if broken
            && !known.contains(&number)
            && let Some(c) = LINE.captures(line)
            && let (Some(word), Some(name)) = (c.get(1), c.get(2))
        {
            let kind = match word.as_str() {
                "class" => Kind::Class,
                "struct" => Kind::Struct,
                "interface" => Kind::Interface,
                "trait" => Kind::Trait,
                "enum" => Kind::Enum,
                "module" => Kind::Module,
                _ => Kind::Function,
            };
            let rest = &source[at..];
            let mut lines = 0;
            let mut end = at;
            for l in rest.split_inclusive('\n').take(RESCUED_LINES) {
                if lines > 0 && (l.trim().is_empty() || LINE.is_match(l)) {
                    break;
                }
                lines += 1;
                end += l.len();
            }
            let head = super::doc::fold(line);
            symbols.push(Symbol {
                name: name.as_str().to_owned(),
                kind,
                line: number,
                end_line: number + lines.max(1) - 1,
                start: at as u32,
                end: (at + source[at..end].trim_end().len()) as u32,
                signature: cut_chars(head.trim_end_matches(['{', ' ', ':']), 120),
                doc: String::new(),
                more_doc: String::new(),
                exported: !head.contains("private ") && !head.contains("local "),
            });
        }
        at += line.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings() {
        assert_eq!(decode(b"a\xe9b"), Decoded::Text("a\u{fffd}b".into()));
        assert_eq!(decode(b"\xff\xfea\0b\0"), Decoded::Text("ab".into()));
        assert_eq!(decode(b"\xfe\xff\0a"), Decoded::Text("a".into()));
        assert_eq!(decode(b"\xef\xbb\xbfa"), Decoded::Text("a".into()));
        assert_eq!(decode(b"a\0b"), Decoded::Binary);
        assert_eq!(decode(&[b'x'; MAX_LINE + 1]), Decoded::Minified);
        assert_eq!(decode(b""), Decoded::Text("".into()));
    }

    #[test]
    fn chunks_cover_every_line_once() {
        let source: String = (0..500).map(|i| format!("line number {i}\n")).collect();
        let all = chunks("a/notes.txt", &source);
        assert!(all.len() > 3);
        let mut next = (0, 1);
        for c in &all {
            assert_eq!((c.start, c.line), next);
            next = (c.end, c.end_line + 1);
        }
        assert_eq!(next, (source.len() as u32, 501));
        assert_eq!(chunks("empty", "").len(), 1);
    }
}
