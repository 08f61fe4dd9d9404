//! The walk over a syntax tree: scopes, definitions, signatures, visibility.

use std::collections::HashSet;

use tree_sitter::{Node, Tree};
use weft_core::code::{Kind, Symbol};
use weft_core::project::cut_chars;

use super::rules::{self, Rule};
use super::{MAX_NAME, MAX_SIGNATURE, MAX_SYMBOLS, MAX_VALUE, MORE_DOC, PARSERS, doc, text};
use crate::language::Language;

/// What surrounds a node.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// Qualified name; "" at the top.
    pub(super) name: String,
    /// Kind of the symbol that is the scope; `Module` at the top.
    pub(super) kind: Kind,
    /// Whether the scope is visible outside.
    pub(super) exported: bool,
    /// Whether this is the inside of a function.
    pub(super) in_function: bool,
    /// Whether members need no modifier to be visible (interfaces, trait implementations).
    pub(super) public_members: bool,
}

/// A node waiting to be walked.
#[derive(Clone, Copy)]
pub(super) struct Frame<'t> {
    pub(super) node: Node<'t>,
    pub(super) scope: u32,
    /// Outermost wrapper: export statement, decorators, template header.
    pub(super) outer: Option<Node<'t>>,
    /// Under `export`.
    pub(super) export: bool,
    /// In a private part of a class.
    pub(super) private: bool,
}

/// A definition that was found.
pub(super) struct Found<'t> {
    /// The node that is the definition.
    pub(super) node: Node<'t>,
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Its body, where the signature ends.
    pub(super) body: Option<Node<'t>>,
    /// What decides visibility, where the language's code knows better.
    pub(super) exported: Option<bool>,
    /// Walk what is inside.
    pub(super) inside: bool,
    /// Documentation that is not a comment above.
    pub(super) doc: Option<String>,
    /// A signature that the source does not show on one line.
    pub(super) signature: Option<String>,
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
            doc: None,
            signature: None,
        }
    }
}

pub(super) struct Walk<'t, 's> {
    pub(super) language: Language,
    pub(super) source: &'s str,
    pub(super) scopes: Vec<Scope>,
    pub(super) stack: Vec<Frame<'t>>,
    pub(super) symbols: Vec<Symbol>,
    /// Names that an export list names (JavaScript, Python's `__all__`, Haskell's header).
    pub(super) exports: HashSet<String>,
    /// Whether there is such a list, so that what it does not name is not exported.
    pub(super) closed_exports: bool,
    /// Names that a later statement hides (Ruby's `private :x`).
    pub(super) hidden: HashSet<String>,
}

pub(super) fn walk(language: Language, tree: &Tree, source: &str) -> Vec<Symbol> {
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
        let start = outer.start_byte();
        let end = outer.end_byte().max(found.node.end_byte());
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
            signature: cut_chars(
                &signature,
                // The value of a constant may be a whole document.
                if found.kind == Kind::Constant {
                    MAX_VALUE
                } else {
                    MAX_SIGNATURE
                },
            ),
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
                public_members: found.kind == Kind::Interface
                    || (found.kind == Kind::Trait && self.language == Language::Rust),
            };
            self.push_in(found.node, inside);
        }
    }

    /// Walks the children of `node` in a new scope.
    pub(super) fn push_in(&mut self, node: Node<'t>, scope: Scope) {
        self.scopes.push(scope);
        let scope = self.scopes.len() as u32 - 1;
        self.push_children(Frame {
            node,
            scope,
            outer: None,
            export: false,
            private: false,
        });
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
        let above = doc::above(self.language, self.source, outer.start_byte());
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
