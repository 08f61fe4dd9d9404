//! Python, Ruby, Elixir, Haskell, Lua and Bash.

use tree_sitter::Node;
use weft_core::code::Kind;

use super::{elixir_string, join};
use crate::extract::{Found, Frame, Scope, Walk, doc};

impl<'t> Walk<'t, '_> {
    pub(in crate::extract) fn python(&mut self, f: Frame<'t>) {
        if f.node.kind() == "type_alias_statement" {
            let name = self.field_text(f.node, "left");
            let name = name.split('[').next().unwrap_or_default().to_owned();
            return self.leaf(f, name, Kind::Type);
        }
        let Some(left) = self
            .field(f.node, "left")
            .filter(|l| l.kind() == "identifier")
        else {
            return self.descend(f);
        };
        let name = self.text(left).to_owned();
        let right = self.field(f.node, "right");
        if right.is_some_and(|r| r.kind() == "lambda") {
            return self.leaf(f, name, Kind::Function);
        }
        let upper = name.chars().any(char::is_uppercase) && !name.chars().any(char::is_lowercase);
        let makes_type = right.is_some_and(|r| {
            ["TypeVar(", "NewType(", "namedtuple(", "Union[", "Callable["]
                .iter()
                .any(|w| self.text(r).starts_with(w))
        });
        if makes_type {
            self.leaf(f, name, Kind::Type);
        } else if upper {
            self.leaf(f, name, Kind::Constant);
        } else {
            self.descend(f);
        }
    }

    pub(in crate::extract) fn ruby(&mut self, f: Frame<'t>) {
        let node = f.node;
        match node.kind() {
            "assignment" => {
                let constant = self.field(node, "left").filter(|l| l.kind() == "constant");
                match constant {
                    Some(name) => {
                        let name = self.text(name).to_owned();
                        let right = self.field(node, "right");
                        let makes_class = right.is_some_and(|r| {
                            let t = self.text(r);
                            t.starts_with("Struct.new")
                                || t.starts_with("Class.new")
                                || t.starts_with("Data.define")
                        });
                        let mut found = Found::new(
                            node,
                            name,
                            if makes_class {
                                Kind::Class
                            } else {
                                Kind::Constant
                            },
                        );
                        found.inside = makes_class;
                        self.emit(f, found);
                    }
                    None => self.descend(f),
                }
            }
            "alias" => {
                let name = self.field_text(node, "name");
                self.leaf(f, name.trim_start_matches(':').to_owned(), Kind::Method);
            }
            _ => {
                let method = self.field_text(node, "method");
                let arguments = self.field(node, "arguments");
                let first = arguments.and_then(|a| a.named_child(0));
                let symbol = |w: &Self, n: Node<'t>| {
                    matches!(n.kind(), "simple_symbol" | "string")
                        .then(|| w.text(n).trim_matches([':', '"', '\'']).to_owned())
                };
                match method.as_str() {
                    "private" | "protected" | "private_class_method" => {
                        if let Some(args) = arguments {
                            let scope = self.scope(f).name.clone();
                            let mut cursor = args.walk();
                            let all: Vec<Node<'t>> = args.named_children(&mut cursor).collect();
                            for a in all {
                                if let Some(name) = symbol(self, a) {
                                    self.hidden.insert(join(&scope, &name));
                                }
                            }
                            self.push_children(Frame {
                                node: args,
                                private: true,
                                outer: None,
                                ..f
                            });
                        }
                    }
                    "define_method" | "alias_method" | "scope" => {
                        if let Some(name) = first.and_then(|n| symbol(self, n)) {
                            let mut found = Found::new(node, name, Kind::Method);
                            found.body = self.field(node, "block");
                            self.emit(f, found);
                        }
                    }
                    "attr_accessor" | "attr_reader" | "attr_writer" => {
                        if let Some(args) = arguments {
                            let mut cursor = args.walk();
                            let all: Vec<Node<'t>> = args.named_children(&mut cursor).collect();
                            for a in all {
                                if let Some(name) = symbol(self, a) {
                                    self.emit(f, Found::new(node, name, Kind::Property));
                                }
                            }
                        }
                    }
                    "describe" | "context" | "it" | "test" | "specify" => {
                        let block = self.field(node, "block");
                        match (first.and_then(|n| symbol(self, n)), block) {
                            (Some(name), Some(b)) => {
                                let mut found = Found::new(node, name, Kind::Test);
                                found.body = Some(b);
                                found.exported = Some(false);
                                found.inside = matches!(method.as_str(), "describe" | "context");
                                self.emit(f, found);
                            }
                            _ => self.descend(f),
                        }
                    }
                    _ => self.descend(f),
                }
            }
        }
    }

    pub(in crate::extract) fn elixir(&mut self, f: Frame<'t>) {
        let node = f.node;
        if node.kind() == "unary_operator" {
            return;
        }
        let target = self.field_text(node, "target");
        let arguments = self.child(node, "arguments");
        let body = self.child(node, "do_block");
        let Some(first) = arguments.and_then(|a| a.named_child(0)) else {
            return self.descend(f);
        };
        match target.as_str() {
            "defmodule" | "defprotocol" | "defimpl" => {
                let kind = if target == "defprotocol" {
                    Kind::Interface
                } else {
                    Kind::Module
                };
                let mut found = Found::new(node, self.text(first).to_owned(), kind);
                found.body = body;
                found.inside = true;
                self.emit(f, found);
            }
            "def" | "defp" | "defmacro" | "defmacrop" | "defguard" | "defguardp"
            | "defdelegate" => {
                let head = self.text(first);
                let head = head.split(" when ").next().unwrap_or_default();
                let name = head
                    .split(['(', ' ', '\n', ','])
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                let kind = if target.starts_with("defmacro") {
                    Kind::Macro
                } else {
                    Kind::Function
                };
                let mut found = Found::new(node, name, kind);
                found.body = body;
                found.exported = Some(!target.ends_with('p'));
                let whole = self.text(node);
                if let (None, Some(at)) = (body, whole.find(", do:")) {
                    found.signature = Some(doc::fold(&whole[..at]));
                }
                self.emit(f, found);
            }
            "defstruct" | "defexception" => {
                let scope = self.scope(f).name.clone();
                let name = if scope.is_empty() {
                    String::new()
                } else {
                    "__struct__".to_owned()
                };
                self.leaf(f, name, Kind::Struct);
            }
            "test" | "describe" => {
                let name = self.text(first).trim_matches('"').to_owned();
                let mut found = Found::new(node, name, Kind::Test);
                found.body = body;
                found.exported = Some(false);
                found.inside = target == "describe";
                self.emit(f, found);
            }
            "quote" => {}
            _ => self.descend(f),
        }
    }

    pub(in crate::extract) fn elixir_doc(
        &self,
        found: &Found<'_>,
        outer: Node<'_>,
    ) -> Option<String> {
        if matches!(found.kind, Kind::Module | Kind::Interface) {
            let body = found.body?;
            let text = self.source.get(body.byte_range())?;
            let at = text.find("@moduledoc")?;
            return elixir_string(&text[at + "@moduledoc".len()..]);
        }
        let mut at = outer.prev_named_sibling();
        for _ in 0..6 {
            let n = at?;
            let text = self.text(n);
            if let Some(rest) = text.strip_prefix("@doc") {
                return elixir_string(rest);
            }
            if !text.starts_with('@') && n.kind() != "comment" {
                return None;
            }
            at = n.prev_named_sibling();
        }
        None
    }

    pub(in crate::extract) fn haskell(&mut self, f: Frame<'t>) {
        let node = f.node;
        if node.kind() == "instance" {
            let text = self.text(node);
            let head = text.split(" where").next().unwrap_or_default();
            let name = doc::fold(
                head.trim_start_matches("instance")
                    .rsplit("=>")
                    .next()
                    .unwrap_or_default(),
            );
            let scope = Scope {
                name,
                kind: Kind::Struct,
                exported: true,
                in_function: false,
                public_members: true,
            };
            return self.push_in(node, scope);
        }
        let name = self.field_text(node, "name");
        if name.is_empty() {
            return;
        }
        let qualified = join(&self.scope(f).name, &name);
        // A signature and the equations of one name are one definition.
        if let Some(last) = self.symbols.last_mut()
            && last.name == qualified
            && self
                .source
                .get(last.end as usize..node.start_byte())
                .is_some_and(|between| {
                    between.trim().is_empty() || between.trim_start().starts_with("--")
                })
        {
            last.end = node.end_byte() as u32;
            let end = node.end_position();
            last.end_line = (end.row + usize::from(end.column > 0)) as u32;
            return;
        }
        let in_class = !self.scope(f).name.is_empty();
        let is_signature = node.kind() == "signature";
        let mut found = Found::new(
            node,
            name,
            if in_class {
                Kind::Method
            } else {
                Kind::Function
            },
        );
        if !is_signature {
            let text = self.text(node);
            let head = text.split(['=', '|', '\n']).next().unwrap_or_default();
            found.signature = Some(doc::fold(head));
        }
        self.emit(f, found);
    }

    pub(in crate::extract) fn lua(&mut self, f: Frame<'t>) {
        let node = f.node;
        match node.kind() {
            "function_declaration" => {
                let name = self.field_text(node, "name").replace(':', ".");
                let kind = if name.contains('.') {
                    Kind::Method
                } else {
                    Kind::Function
                };
                let mut found = Found::new(node, name, kind);
                found.body = self.field(node, "body");
                found.inside = true;
                self.emit(f, found);
            }
            "assignment_statement" => {
                let left = self
                    .child(node, "variable_list")
                    .map(|l| self.text(l).to_owned())
                    .unwrap_or_default();
                let right = self
                    .child(node, "expression_list")
                    .and_then(|l| l.named_child(0));
                match right {
                    Some(r) if r.kind() == "function_definition" && !left.contains(',') => {
                        let mut found = Found::new(node, left.replace(':', "."), Kind::Function);
                        found.body = self.field(r, "body");
                        found.inside = true;
                        let outer = node.parent().filter(|p| p.kind() == "variable_declaration");
                        self.emit(
                            Frame {
                                outer: f.outer.or(outer),
                                ..f
                            },
                            found,
                        );
                    }
                    Some(r)
                        if r.kind() == "table_constructor"
                            && r.named_child_count() > 0
                            && self.scope(f).name.is_empty()
                            && !left.contains(',') =>
                    {
                        let outer = node.parent().filter(|p| p.kind() == "variable_declaration");
                        let mut found = Found::new(node, left, Kind::Constant);
                        found.body = Some(r);
                        found.inside = true;
                        self.emit(
                            Frame {
                                outer: f.outer.or(outer),
                                ..f
                            },
                            found,
                        );
                    }
                    _ => self.descend(f),
                }
            }
            _ => {
                let value = self.field(node, "value");
                let name = self.field_text(node, "name");
                match value {
                    Some(v) if v.kind() == "function_definition" && !name.is_empty() => {
                        let mut found = Found::new(node, name, Kind::Function);
                        found.body = self.field(v, "body");
                        self.emit(f, found);
                    }
                    _ => self.descend(f),
                }
            }
        }
    }

    pub(in crate::extract) fn bash(&mut self, f: Frame<'t>) {
        let text = self.text(f.node);
        if let Some(rest) = text.strip_prefix("alias ")
            && let Some((name, _)) = rest.split_once('=')
            && f.scope == 0
        {
            let name = name.trim().to_owned();
            self.leaf(f, name, Kind::Function);
        }
    }
}
