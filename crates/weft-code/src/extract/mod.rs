//! Source text to symbols: a walk over the syntax tree that never fails and never recurses.
//!
//! What does not parse becomes text chunks. One record stands for each file itself.

mod doc;
mod rules;
mod special;
mod text;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use regex::Regex;
use tree_sitter::{Node, ParseOptions, ParseState, Parser, Tree};
use weft_core::code::{Kind, Symbol};
use weft_core::project::cut_chars;

use crate::language::Language;
use rules::Rule;
pub use text::{Decoded, decode};

/// Version of what this module makes of a text; a change makes stored symbols stale.
pub const VERSION: u32 = 1;
/// Longest signature, characters.
pub const MAX_SIGNATURE: usize = 300;
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

/// What surrounds a node.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// Qualified name; "" at the top.
    name: String,
    /// Kind of the symbol that is the scope; `Module` at the top.
    kind: Kind,
    /// Whether the scope is visible outside.
    exported: bool,
    /// Whether this is the inside of a function.
    in_function: bool,
    /// Whether members need no modifier to be visible (interfaces, trait implementations).
    public_members: bool,
}

/// A node waiting to be walked.
#[derive(Clone, Copy)]
pub(super) struct Frame<'t> {
    node: Node<'t>,
    scope: u32,
    /// Outermost wrapper: export statement, decorators, template header.
    outer: Option<Node<'t>>,
    /// Under `export`.
    export: bool,
    /// In a private part of a class.
    private: bool,
}

/// A definition that was found.
pub(super) struct Found<'t> {
    /// The node that is the definition.
    node: Node<'t>,
    name: String,
    kind: Kind,
    /// Its body, where the signature ends.
    body: Option<Node<'t>>,
    /// What decides visibility, where the language's code knows better.
    exported: Option<bool>,
    /// Walk what is inside.
    inside: bool,
    /// A range that is wider than the node.
    start: Option<usize>,
    end: Option<usize>,
    /// Documentation that is not a comment above.
    doc: Option<String>,
    /// A signature that the source does not show on one line.
    signature: Option<String>,
    /// Whether members need no modifier to be visible.
    public_members: bool,
}

impl<'t> Found<'t> {
    pub(super) fn new(node: Node<'t>, name: impl Into<String>, kind: Kind) -> Self {
        Self {
            node,
            name: name.into(),
            kind,
            body: None,
            exported: None,
            inside: false,
            start: None,
            end: None,
            doc: None,
            signature: None,
            public_members: false,
        }
    }
}

pub(super) struct Walk<'t, 's> {
    language: Language,
    source: &'s str,
    scopes: Vec<Scope>,
    stack: Vec<Frame<'t>>,
    symbols: Vec<Symbol>,
    /// Names that an export list names (JavaScript, Python's `__all__`, Haskell's header).
    exports: HashSet<String>,
    /// Whether there is such a list, so that what it does not name is not exported.
    closed_exports: bool,
    /// Names that a later statement hides (Ruby's `private :x`).
    hidden: HashSet<String>,
}

fn walk(language: Language, tree: &Tree, source: &str) -> Vec<Symbol> {
    let rules = PARSERS.with_borrow(|p| p.get(&language).map(|(_, r)| r.clone()));
    let Some(rules) = rules else {
        return Vec::new();
    };
    let mut w = Walk {
        language,
        source,
        scopes: vec![Scope {
            name: String::new(),
            kind: Kind::Module,
            exported: true,
            in_function: false,
            public_members: false,
        }],
        stack: Vec::new(),
        symbols: Vec::new(),
        exports: HashSet::new(),
        closed_exports: false,
        hidden: HashSet::new(),
    };
    w.prepare(tree.root_node());
    w.push_children(Frame {
        node: tree.root_node(),
        scope: 0,
        outer: None,
        export: false,
        private: false,
    });
    while let Some(frame) = w.stack.pop() {
        if w.symbols.len() > MAX_SYMBOLS {
            break;
        }
        let rule = rules
            .get(usize::from(frame.node.kind_id()))
            .copied()
            .unwrap_or(Rule::Descend);
        match rule {
            Rule::Skip => {}
            Rule::Descend => w.push_children(Frame {
                outer: None,
                ..frame
            }),
            Rule::Wrap => w.push_children(Frame {
                outer: Some(frame.outer.unwrap_or(frame.node)),
                ..frame
            }),
            Rule::Def(kind) => {
                let name = w.name_of(frame.node);
                w.define(frame, kind, name, true);
            }
            Rule::Leaf(kind) => {
                let name = w.name_of(frame.node);
                w.define(frame, kind, name, false);
            }
            Rule::Special => w.special(frame),
        }
    }
    if tree.root_node().has_error() {
        text::rescue(tree, source, &mut w.symbols);
    }
    w.finish()
}

impl<'t, 's> Walk<'t, 's> {
    pub(super) fn text(&self, node: Node<'_>) -> &'s str {
        self.source.get(node.byte_range()).unwrap_or_default()
    }

    pub(super) fn scope(&self, frame: Frame<'_>) -> &Scope {
        &self.scopes[frame.scope as usize]
    }

    /// The text of the `name` field.
    pub(super) fn name_of(&self, node: Node<'_>) -> String {
        if let Some(n) = node
            .child_by_field_name("name")
            .or_else(|| node.child_by_field_name("type"))
        {
            return self.text(n).to_owned();
        }
        let mut cursor = node.walk();
        node.named_children(&mut cursor)
            .find(|c| c.kind().contains("identifier") || matches!(c.kind(), "name" | "word"))
            .map(|n| self.text(n).to_owned())
            .unwrap_or_default()
    }

    fn define(&mut self, frame: Frame<'t>, kind: Kind, name: String, inside: bool) {
        let mut found = Found::new(frame.node, name, kind);
        found.body = body_of(frame.node);
        found.inside = inside;
        self.emit(frame, found);
    }

    /// Walks the children of a node in its scope.
    pub(super) fn push_children(&mut self, frame: Frame<'t>) {
        let first = self.stack.len();
        let mut cursor = frame.node.walk();
        let mut private = frame.private;
        let sections = matches!(self.language, Language::Cpp | Language::Ruby);
        if sections && frame.node.kind() == "field_declaration_list" {
            private = frame
                .node
                .parent()
                .is_some_and(|p| p.kind() == "class_specifier");
        }
        for child in frame.node.named_children(&mut cursor) {
            if sections {
                match (child.kind(), self.text(child)) {
                    ("access_specifier", "public") | ("identifier", "public") => private = false,
                    ("access_specifier", _) | ("identifier", "private" | "protected") => {
                        private = true;
                    }
                    _ => {}
                }
            }
            self.stack.push(Frame {
                node: child,
                private,
                ..frame
            });
        }
        self.stack[first..].reverse();
    }

    /// Records a definition and walks what is inside of it.
    pub(super) fn emit(&mut self, frame: Frame<'t>, mut found: Found<'t>) {
        let outer = frame.outer.unwrap_or(found.node);
        let scope = self.scope(frame).clone();
        found.name = doc::fold(found.name.trim());
        if found.name.is_empty() || found.name.len() > MAX_NAME {
            if found.inside {
                self.push_children(Frame {
                    outer: None,
                    ..frame
                });
            }
            return;
        }
        // Locals of a function are no symbols; functions and types in it are.
        if scope.in_function && matches!(found.kind, Kind::Constant | Kind::Property) {
            if found.inside {
                self.push_children(Frame {
                    outer: None,
                    ..frame
                });
            }
            return;
        }
        if found.kind == Kind::Function && found.name.contains('.') {
            found.kind = Kind::Method;
        }
        let in_type = !scope.name.is_empty()
            && !scope.in_function
            && !matches!(scope.kind, Kind::Module | Kind::Constant);
        if found.kind == Kind::Function && in_type {
            found.kind = Kind::Method;
        }
        if found.kind == Kind::Method
            && matches!(
                found.name.as_str(),
                "constructor" | "__init__" | "initialize"
            )
        {
            found.kind = Kind::Constructor;
        }
        let start = found.start.unwrap_or_else(|| outer.start_byte());
        let end = found
            .end
            .unwrap_or_else(|| outer.end_byte().max(found.node.end_byte()));
        let start = start.min(self.source.len());
        let end = self.trimmed_end(start, end.min(self.source.len()));
        let comment = match found.doc.take() {
            Some(d) => d,
            None => self.doc_of(&found, outer),
        };
        // A comment that opens with the bare name says nothing in its first line.
        let own = found.name.rsplit('.').next().unwrap_or_default();
        let comment = match comment.split_once('\n') {
            Some((line, rest)) if line.trim().trim_end_matches("()") == own => rest.to_owned(),
            _ => comment,
        };
        let (first, more_doc) = doc::split(&comment, MORE_DOC);
        let declared = self.declared_start(outer, found.node);
        let signature = match found.signature.take() {
            Some(s) => s,
            None => self.signature(declared, &found, end),
        };
        if found.kind != Kind::Test && self.is_test(outer, &found, declared) {
            found.kind = Kind::Test;
        }
        let exported = found
            .exported
            .unwrap_or_else(|| self.exported(frame, &scope, &found, declared));
        let name = if scope.name.is_empty() {
            found.name.clone()
        } else {
            format!("{}.{}", scope.name, found.name)
        };
        let line = self.line_at(declared.max(start), outer);
        self.symbols.push(Symbol {
            name: name.clone(),
            kind: found.kind,
            line,
            end_line: self.line_at(end, outer).max(line),
            start: start as u32,
            end: end as u32,
            signature: cut_chars(&signature, MAX_SIGNATURE),
            doc: first,
            more_doc,
            exported,
        });
        if found.inside {
            let inside = Scope {
                name,
                kind: found.kind,
                exported,
                in_function: !found.kind.is_container()
                    && found.kind != Kind::Constant
                    && found.kind != Kind::Section,
                public_members: found.public_members
                    || found.kind == Kind::Interface
                    || (found.kind == Kind::Trait && self.language == Language::Rust),
            };
            self.push_in(frame, found.node, inside);
        }
    }

    /// Walks the children of `node` in a new scope.
    pub(super) fn push_in(&mut self, frame: Frame<'t>, node: Node<'t>, scope: Scope) {
        self.scopes.push(scope);
        let scope = self.scopes.len() as u32 - 1;
        self.push_children(Frame {
            node,
            scope,
            outer: None,
            export: false,
            private: false,
        });
        let _ = frame;
    }

    /// Some grammars let a definition reach over the comment of the next one.
    fn trimmed_end(&self, start: usize, end: usize) -> usize {
        let mut text = self.source.get(start..end).unwrap_or_default();
        if self.language != Language::Scala {
            return start + text.trim_end().len();
        }
        loop {
            text = text.trim_end();
            let comment = text.ends_with("*/").then(|| text.rfind("/*")).flatten();
            let line = text.rfind('\n').map_or(0, |i| i + 1);
            if let Some(at) = comment.filter(|at| *at > 0) {
                text = &text[..at];
            } else if line > 0 && text[line..].trim_start().starts_with("//") {
                text = &text[..line];
            } else {
                return start + text.len();
            }
        }
    }

    fn line_at(&self, byte: usize, near: Node<'_>) -> u32 {
        let row = near.start_position().row;
        let from = near.start_byte().min(byte);
        let newlines = self.source.as_bytes()[from..byte.min(self.source.len())]
            .iter()
            .filter(|b| **b == b'\n')
            .count();
        (row + newlines) as u32 + 1
    }

    /// Where the declaration itself begins, after decorators, attributes and annotations.
    fn declared_start(&self, outer: Node<'_>, node: Node<'_>) -> usize {
        let mut at = outer;
        loop {
            let mut cursor = at.walk();
            let mut moved = None;
            let mut skipped = false;
            for child in at.children(&mut cursor) {
                if is_annotation(child) {
                    skipped = true;
                    continue;
                }
                if matches!(child.kind(), "modifiers")
                    && child.start_byte() == at.start_byte().max(child.start_byte())
                {
                    // Annotations may stand among the modifiers.
                    moved = Some(child);
                    break;
                }
                if skipped {
                    return child.start_byte();
                }
                break;
            }
            match moved {
                Some(modifiers) => {
                    let mut cursor = modifiers.walk();
                    let plain = modifiers
                        .children(&mut cursor)
                        .find(|c| !is_annotation(*c))
                        .map(|c| c.start_byte());
                    return plain
                        .or_else(|| modifiers.next_sibling().map(|n| n.start_byte()))
                        .unwrap_or_else(|| at.start_byte());
                }
                None if at.kind() == "export_statement" || at.kind() == "decorated_definition" => {
                    // The decorators of an exported class stand in the statement.
                    if at.id() == node.id() {
                        return at.start_byte();
                    }
                    return at.start_byte();
                }
                None => {
                    if skipped {
                        at = node;
                        if at.id() == outer.id() {
                            return at.start_byte();
                        }
                        continue;
                    }
                    return at.start_byte();
                }
            }
        }
    }

    fn signature(&self, declared: usize, found: &Found<'_>, end: usize) -> String {
        let stop = found.body.map_or(end, |b| b.start_byte());
        let stop = stop.clamp(declared.min(self.source.len()), self.source.len());
        let raw = self.source.get(declared..stop).unwrap_or_default();
        // Bodies without a node of their own, and long values.
        let raw = if found.body.is_none() {
            let cut = raw
                .find("{\n")
                .or_else(|| raw.find("{\r\n"))
                .unwrap_or(raw.len());
            let cut = raw[..cut].find("\n\n").unwrap_or(cut);
            &raw[..cut]
        } else {
            raw
        };
        let raw: String = raw.chars().take(MAX_SIGNATURE * 4).collect();
        let folded = doc::fold(&without_comments(self.language, &raw));
        folded
            .trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '{' | ';' | ','))
            .trim_end_matches("=>")
            .trim_end_matches(|c: char| c.is_whitespace() || matches!(c, ':' | '='))
            .trim_end_matches(" do")
            .trim_end_matches(" end")
            .trim_end_matches(" where")
            .trim_end_matches(" &")
            .to_owned()
    }

    fn doc_of(&self, found: &Found<'_>, outer: Node<'_>) -> String {
        let above = doc::above(
            self.language,
            self.source,
            found.start.unwrap_or_else(|| outer.start_byte()),
        );
        match self.language {
            Language::Python => {
                let inner = found
                    .node
                    .child_by_field_name("body")
                    .and_then(|b| b.named_child(0))
                    .and_then(|s| {
                        if s.kind() == "expression_statement" {
                            s.named_child(0)
                        } else {
                            Some(s)
                        }
                    })
                    .filter(|s| s.kind() == "string")
                    .map(|s| python_string(self.text(s)));
                inner.unwrap_or(above)
            }
            Language::Elixir => self.elixir_doc(found, outer).unwrap_or(above),
            _ => above,
        }
    }

    fn is_test(&self, outer: Node<'_>, found: &Found<'_>, declared: usize) -> bool {
        if !matches!(found.kind, Kind::Function | Kind::Method) {
            return false;
        }
        let before = self
            .source
            .get(outer.start_byte()..declared)
            .unwrap_or_default();
        match self.language {
            Language::Rust => {
                let from = floor_boundary(self.source, outer.start_byte().saturating_sub(200));
                let above = &self.source[from..outer.start_byte()];
                let attributes: Vec<&str> = above
                    .lines()
                    .rev()
                    .map(str::trim)
                    .skip_while(|l| l.is_empty())
                    .take_while(|l| l.starts_with("#[") || l.starts_with("//"))
                    .collect();
                attributes.iter().any(|l| {
                    l.starts_with("#[test")
                        || l.contains("::test]")
                        || l.contains("::test(")
                        || l.starts_with("#[rstest")
                })
            }
            Language::Python => found.name.starts_with("test_"),
            Language::Go => {
                ["Test", "Benchmark", "Fuzz", "Example"].iter().any(|p| {
                    found
                        .name
                        .strip_prefix(p)
                        .is_some_and(|r| !r.starts_with(|c: char| c.is_lowercase()))
                }) && self
                    .text(found.node)
                    .get(..200.min(self.text(found.node).len()))
                    .is_some_and(|t| t.contains("*testing.") || found.name.starts_with("Example"))
            }
            Language::Java | Language::Kotlin => {
                before.contains("@Test") || before.contains("@ParameterizedTest")
            }
            Language::CSharp => ["[Test", "[Fact", "[Theory"]
                .iter()
                .any(|a| before.contains(a)),
            Language::Swift => {
                found.name.starts_with("test")
                    && found.name.len() > 4
                    && self.source.contains("XCTest")
            }
            Language::Php => {
                found.name.starts_with("test")
                    && found.kind == Kind::Method
                    && self.source.contains("TestCase")
            }
            Language::Ruby => found.name.starts_with("test_"),
            _ => false,
        }
    }

    fn exported(
        &self,
        frame: Frame<'_>,
        scope: &Scope,
        found: &Found<'_>,
        declared: usize,
    ) -> bool {
        use Language as L;
        // What stands before the name; where the name has no field, what stands before its value.
        let named = found
            .node
            .child_by_field_name("name")
            .map(|n| n.start_byte());
        let prefix = match named.filter(|at| *at > declared) {
            Some(at) => self.source.get(declared..at).unwrap_or_default(),
            None => {
                let text = self
                    .source
                    .get(declared..found.node.end_byte())
                    .unwrap_or_default();
                text.split(['=', '(', '{', '\n']).next().unwrap_or_default()
            }
        };
        let has = |word: &str| {
            prefix
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|w| w == word)
        };
        let name = found.name.rsplit(['.', ':']).next().unwrap_or(&found.name);
        let top = scope.name.is_empty();
        if scope.in_function && self.language != L::Zig {
            return false;
        }
        match self.language {
            L::Rust => {
                has("pub")
                    || (scope.public_members && scope.exported)
                    || (found.kind == Kind::Macro && self.macro_exported(frame))
            }
            L::Python => {
                let hidden =
                    name.starts_with('_') && !(name.starts_with("__") && name.ends_with("__"));
                let listed = !self.closed_exports || !top || self.exports.contains(name);
                scope.exported && !hidden && listed
            }
            L::JavaScript | L::TypeScript | L::Tsx => {
                if top || scope.kind == Kind::Module {
                    frame.export || self.exports.contains(&found.name)
                } else {
                    scope.exported && !has("private") && !has("protected") && !name.starts_with('#')
                }
            }
            L::Go => found
                .name
                .rsplit('.')
                .next()
                .is_some_and(|n| n.starts_with(char::is_uppercase)),
            L::Java | L::CSharp => {
                scope.exported && (has("public") || has("protected") || scope.public_members)
            }
            L::Kotlin => scope.exported && !has("private") && !has("internal"),
            L::Swift => has("public") || has("open") || (scope.public_members && scope.exported),
            L::Scala => scope.exported && !has("private") && !has("protected"),
            L::Php => !has("private") && !has("protected"),
            L::C | L::Cpp => !has("static") && !frame.private && scope.exported,
            L::Ruby => !frame.private,
            L::Haskell => !self.closed_exports || self.exports.contains(name) || !top,
            L::Lua => !has("local") && scope.exported,
            L::Zig => has("pub"),
            L::Bash => !name.starts_with('_'),
            L::Elixir | L::Sql | L::Html | L::Css | L::Markdown | L::Toml | L::Yaml | L::Json => {
                true
            }
        }
    }

    fn macro_exported(&self, frame: Frame<'_>) -> bool {
        let mut at = frame.node.prev_named_sibling();
        while let Some(n) = at {
            if n.kind() != "attribute_item" {
                return false;
            }
            if self.text(n).contains("macro_export") {
                return true;
            }
            at = n.prev_named_sibling();
        }
        false
    }

    /// What export lists say is applied at the end: they often stand below.
    fn finish(mut self) -> Vec<Symbol> {
        if matches!(
            self.language,
            Language::JavaScript | Language::TypeScript | Language::Tsx
        ) {
            for s in &mut self.symbols {
                let root = s.name.split('.').next().unwrap_or_default();
                if !s.exported && self.exports.contains(root) {
                    s.exported = s.name.len() == root.len() || !s.own_name().starts_with('#');
                }
            }
        }
        for s in &mut self.symbols {
            if self.hidden.contains(&s.name) {
                s.exported = false;
            }
        }
        self.symbols
    }
}

fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn is_annotation(node: Node<'_>) -> bool {
    matches!(
        node.kind(),
        "annotation"
            | "marker_annotation"
            | "attribute_list"
            | "attribute_item"
            | "attribute"
            | "decorator"
            | "attribute_declaration"
            | "attribute_specifier"
            | "template_parameter_list_dummy"
            | "line_comment"
            | "block_comment"
            | "comment"
    )
}

/// The body of a definition: where its signature ends.
pub(super) fn body_of(node: Node<'_>) -> Option<Node<'_>> {
    if let Some(b) = node
        .child_by_field_name("body")
        .or_else(|| node.child_by_field_name("accessors"))
    {
        return Some(b);
    }
    let mut cursor = node.walk();
    node.named_children(&mut cursor)
        .find(|c| rules::BODIES.contains(&c.kind()))
}

fn python_string(literal: &str) -> String {
    let l = literal.trim_start_matches(['r', 'R', 'b', 'B', 'u', 'U', 'f', 'F']);
    for quote in ["\"\"\"", "'''", "\"", "'"] {
        if let Some(inner) = l.strip_prefix(quote) {
            return inner.strip_suffix(quote).unwrap_or(inner).trim().to_owned();
        }
    }
    l.to_owned()
}

/// Removes comments from a signature.
fn without_comments(language: Language, text: &str) -> String {
    use Language as L;
    let line = match language {
        L::Python | L::Ruby | L::Bash | L::Elixir => "#",
        L::Lua | L::Haskell | L::Sql => "--",
        L::Markdown | L::Html | L::Css | L::Toml | L::Yaml | L::Json => return text.to_owned(),
        _ => "//",
    };
    let mut out = String::with_capacity(text.len());
    for l in text.lines() {
        let cut = l
            .find(line)
            .filter(|at| *at == 0 || l[..*at].ends_with([' ', '\t']));
        out.push_str(&l[..cut.unwrap_or(l.len())]);
        out.push('\n');
    }
    while let (Some(a), true) = (out.find("/*"), line == "//") {
        let Some(b) = out[a..].find("*/") else { break };
        out.replace_range(a..a + b + 2, " ");
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
