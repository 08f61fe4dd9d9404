//! Source text to symbols: a walk over the syntax tree that never fails and never recurses.
//!
//! What does not parse becomes text chunks. One record stands for each file itself.

mod doc;
mod rules;
mod special;
mod text;
mod walker;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use regex::Regex;
use tree_sitter::{ParseOptions, ParseState, Parser, Tree};
use weft_core::code::{Kind, Symbol};
use weft_core::project::cut_chars;

use crate::language::Language;
use rules::Rule;
pub use text::{Decoded, decode};
use walker::walk;
use walker::{Found, Frame, Scope, Walk, body_of};

/// Version of what this module makes of a text; a change makes stored symbols stale.
pub const VERSION: u32 = 2;
/// Longest signature, characters.
pub const MAX_SIGNATURE: usize = 300;
/// Longest signature of a constant, its value included, characters.
const MAX_VALUE: usize = 120;
/// Most characters kept of a doc comment beyond its first sentence.
const MORE_DOC: usize = 400;
/// Longest time that one file may be parsed.
const PARSE_TIME: Duration = Duration::from_secs(3);
/// Data files above this are cut into text chunks: their trees cost much and tell little.
const MAX_DATA_BYTES: usize = 256 << 10;
/// Most symbols of a file.
const MAX_SYMBOLS: usize = 60_000;
/// Longest name, bytes.
const MAX_NAME: usize = 200;

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extracted {
    /// Symbols in source order; the first is the file itself unless it was cut into chunks.
    pub symbols: Vec<Symbol>,
    /// Language, where there is a grammar.
    pub language: Option<Language>,
    /// Whether a grammar exists and its parse gave nothing that could be used.
    pub failed: bool,
}

/// The symbols of a file. `path` decides the language and names the file record.
pub fn extract(path: &str, source: &str) -> Extracted {
    let language = Language::of(path, source);
    let Some(lang) = language else {
        return Extracted {
            symbols: text::chunks(path, source),
            ..Extracted::default()
        };
    };
    let too_large = (lang.is_data() || lang == Language::Sql) && source.len() > MAX_DATA_BYTES;
    let walked = if too_large {
        None
    } else {
        parse(lang, source).map(|tree| walk(lang, &tree, source))
    };
    match walked {
        Some(mut symbols) => {
            symbols.sort_by_key(|s| (s.start, std::cmp::Reverse(s.end)));
            symbols.dedup_by(|b, a| a.start == b.start && a.end == b.end && a.name == b.name);
            symbols.truncate(MAX_SYMBOLS);
            symbols.insert(0, file_record(lang, path, source, &symbols));
            Extracted {
                symbols,
                language,
                failed: false,
            }
        }
        None => Extracted {
            symbols: text::chunks(path, source),
            language,
            failed: !too_large,
        },
    }
}

thread_local! {
    static PARSERS: RefCell<HashMap<Language, (Parser, Vec<Rule>)>> = RefCell::new(HashMap::new());
}

fn parse(language: Language, source: &str) -> Option<Tree> {
    PARSERS.with_borrow_mut(|parsers| {
        let (parser, _) = match parsers.entry(language) {
            std::collections::hash_map::Entry::Occupied(e) => e.into_mut(),
            std::collections::hash_map::Entry::Vacant(e) => {
                let grammar = language.grammar();
                let mut parser = Parser::new();
                parser.set_language(&grammar).ok()?;
                let rules = rules::by_id(language, &grammar);
                e.insert((parser, rules))
            }
        };
        let end = Instant::now() + PARSE_TIME;
        let mut stop = |_: &ParseState| {
            if Instant::now() > end {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let blanked =
            matches!(language, Language::C | Language::Cpp).then(|| without_macros(source));
        let bytes = blanked.as_deref().unwrap_or(source).as_bytes();
        let tree = parser.parse_with_options(
            &mut |at, _| bytes.get(at..).unwrap_or_default(),
            None,
            Some(ParseOptions::new().progress_callback(&mut stop)),
        );
        if tree.is_none() {
            parser.reset();
        }
        // A tree that is one error holds nothing that its text does not say better.
        tree.filter(|t| {
            !(t.root_node().is_error()
                && t.root_node().named_child_count() == 0
                && !source.trim().is_empty())
        })
    })
}

/// C and C++ with macros that the grammar cannot know blanked out, byte for byte: an upper-case word
/// alone on its line (`API_BEGIN`), before a declaration (`API_INLINE int f()`), or between `class` and the name (`class API_EXPORT Name`).
fn without_macros(source: &str) -> String {
    static MACROS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?m)^[ \t]*([A-Z][A-Z0-9_]{3,}(?:\([^()\n]*\))?)[ \t]*$|^[ \t]*(?:template[ \t]*<[^\n]*>[ \t]*)?([A-Z][A-Z0-9]*_[A-Z0-9_]+)[ \t]+[A-Za-z_:]|\b(?:class|struct|union|enum)\s+([A-Z][A-Z0-9_]{3,}(?:\([^()\n]*\))?)\s+[A-Za-z_]",
        )
        .unwrap_or_else(|e| unreachable!("{e}"))
    });
    let mut out = source.to_owned();
    for c in MACROS.captures_iter(source) {
        if let Some(m) = c.get(1).or_else(|| c.get(2)).or_else(|| c.get(3)) {
            out.replace_range(m.range(), &" ".repeat(m.len()));
        }
    }
    out
}

/// The record of the file itself: its doc, what it exports.
fn file_record(language: Language, path: &str, source: &str, symbols: &[Symbol]) -> Symbol {
    let (first, more_doc) = doc::split(&doc::of_file(language, source), MORE_DOC);
    let name = path.rsplit('/').next().unwrap_or(path).to_owned();
    let mut signature = String::new();
    let mut seen = HashSet::new();
    let tops = symbols.iter().filter(|s| {
        s.exported && !s.name.contains('.') && s.kind != Kind::Test && seen.insert(&s.name)
    });
    for s in tops.take(40) {
        if !signature.is_empty() {
            signature.push_str(", ");
        }
        signature.push_str(&s.name);
        if signature.len() > 160 {
            break;
        }
    }
    let signature = if signature.is_empty() {
        name.clone()
    } else {
        format!("{name}: {signature}")
    };
    Symbol {
        name,
        kind: Kind::File,
        line: 1,
        end_line: source.lines().count().max(1) as u32,
        start: 0,
        end: source.len() as u32,
        signature: cut_chars(&signature, 200),
        doc: first,
        more_doc,
        exported: true,
    }
}

/// The text of each symbol without that of the symbols inside of it, each cut at `max` bytes.
pub fn own_texts(source: &str, symbols: &[Symbol], max: usize) -> Vec<String> {
    let mut out = vec![String::new(); symbols.len()];
    // Symbols come sorted by start; a stack of open ones gives each byte to the innermost.
    let mut open: Vec<usize> = Vec::new();
    let mut at = 0_usize;
    let give = |out: &mut Vec<String>, owner: Option<&usize>, from: usize, to: usize| {
        let Some(owner) = owner else { return };
        let room = max.saturating_sub(out[*owner].len());
        if to <= from || room == 0 {
            return;
        }
        let mut to = to.min(from + room).min(source.len());
        let mut from = from.min(source.len());
        while !source.is_char_boundary(to) {
            to -= 1;
        }
        while !source.is_char_boundary(from) {
            from += 1;
        }
        if from < to {
            out[*owner].push_str(&source[from..to]);
            out[*owner].push('\n');
        }
    };
    for (i, s) in symbols.iter().enumerate() {
        let start = s.start as usize;
        while let Some(top) = open.last().copied() {
            let end = symbols[top].end as usize;
            if end > start {
                break;
            }
            give(&mut out, Some(&top), at, end);
            at = at.max(end);
            open.pop();
        }
        give(&mut out, open.last(), at, start);
        at = at.max(start);
        open.push(i);
    }
    while let Some(top) = open.pop() {
        let end = symbols[top].end as usize;
        give(&mut out, Some(&top), at, end);
        at = at.max(end);
    }
    out
}
