//! What a table of node kinds cannot say: each language's own ways to define things.

mod data;
mod dynamic;
mod managed;
mod native;
mod script;

use tree_sitter::Node;
use weft_core::code::Kind;

use super::{Found, Frame, Walk, body_of};
use crate::language::Language;

impl<'t> Walk<'t, '_> {
    pub(in crate::extract) fn prepare(&mut self, root: Node<'t>) {
        let mut cursor = root.walk();
        let top: Vec<Node<'t>> = root.named_children(&mut cursor).collect();
        match self.language {
            Language::Python => {
                for node in top {
                    let text = self.text(node);
                    if node.kind() == "expression_statement" && text.starts_with("__all__") {
                        self.closed_exports = true;
                        for name in text.split(['"', '\'']).skip(1).step_by(2) {
                            self.exports.insert(name.to_owned());
                        }
                    }
                }
            }
            Language::Haskell => {
                let header = top.into_iter().find(|n| n.kind() == "header");
                if let Some(list) = header.and_then(|h| h.child_by_field_name("exports")) {
                    let text = self.text(list).to_owned();
                    // `module X (module X)` re-exports everything.
                    self.closed_exports = !text.contains("module ");
                    for name in text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'')
                    {
                        self.exports.insert(name.to_owned());
                    }
                }
            }
            _ => {}
        }
    }

    pub(in crate::extract) fn special(&mut self, f: Frame<'t>) {
        use Language as L;
        match self.language {
            L::Rust => self.rust(f),
            L::Python => self.python(f),
            L::JavaScript | L::TypeScript | L::Tsx => self.script(f),
            L::Go => self.go(f),
            L::Java => self.java(f),
            L::C | L::Cpp => self.c(f),
            L::CSharp => self.csharp(f),
            L::Ruby => self.ruby(f),
            L::Php => self.php(f),
            L::Kotlin => self.kotlin(f),
            L::Swift => self.swift(f),
            L::Scala => self.scala(f),
            L::Elixir => self.elixir(f),
            L::Haskell => self.haskell(f),
            L::Lua => self.lua(f),
            L::Zig => self.zig(f),
            L::Bash => self.bash(f),
            L::Sql => self.sql(f),
            L::Html => self.html(f),
            L::Css => self.css(f),
            L::Markdown => self.markdown(f),
            L::Toml | L::Yaml | L::Json => self.data(f),
        }
    }

    pub(in crate::extract) fn field(&self, node: Node<'t>, name: &str) -> Option<Node<'t>> {
        node.child_by_field_name(name)
    }

    pub(in crate::extract) fn field_text(&self, node: Node<'t>, name: &str) -> String {
        self.field(node, name)
            .map(|n| self.text(n).to_owned())
            .unwrap_or_default()
    }

    pub(in crate::extract) fn child(&self, node: Node<'t>, kind: &str) -> Option<Node<'t>> {
        let mut cursor = node.walk();
        node.named_children(&mut cursor).find(|c| c.kind() == kind)
    }

    pub(in crate::extract) fn descend(&mut self, f: Frame<'t>) {
        self.push_children(Frame { outer: None, ..f });
    }

    pub(in crate::extract) fn leaf(&mut self, f: Frame<'t>, name: impl Into<String>, kind: Kind) {
        let mut found = Found::new(f.node, name, kind);
        found.body = body_of(f.node);
        self.emit(f, found);
    }
}

pub(super) fn join(scope: &str, name: &str) -> String {
    if scope.is_empty() {
        name.to_owned()
    } else {
        format!("{scope}.{name}")
    }
}

/// Whether a value is a function or a class.
pub(super) fn function_kind(value: Node<'_>) -> Option<Kind> {
    Some(match value.kind() {
        "arrow_function" | "function_expression" | "function" | "generator_function" => {
            Kind::Function
        }
        "class" => Kind::Class,
        _ => return None,
    })
}

/// The text of an Elixir string or heredoc; `None` for `false`.
pub(super) fn elixir_string(text: &str) -> Option<String> {
    let text = text
        .trim_start()
        .trim_start_matches("~S")
        .trim_start_matches("~s");
    for quote in ["\"\"\"", "\""] {
        if let Some(inner) = text.strip_prefix(quote) {
            return Some(
                inner
                    .split(quote)
                    .next()
                    .unwrap_or_default()
                    .trim()
                    .to_owned(),
            );
        }
    }
    None
}
