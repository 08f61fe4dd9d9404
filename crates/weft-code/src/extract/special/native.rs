//! C, C++, Rust, Go and Zig.

use tree_sitter::Node;
use weft_core::code::Kind;

use super::join;
use crate::extract::{Found, Frame, Scope, Walk, doc};

impl<'t> Walk<'t, '_> {
    pub(in crate::extract) fn declarator_name(&self, node: Node<'t>) -> Option<(Node<'t>, bool)> {
        let mut at = node;
        let mut is_function = false;
        for _ in 0..32 {
            match at.kind() {
                "identifier"
                | "field_identifier"
                | "type_identifier"
                | "qualified_identifier"
                | "destructor_name"
                | "operator_name"
                | "template_function"
                | "operator_cast" => {
                    return Some((at, is_function));
                }
                "function_declarator" => is_function = true,
                // A pointer to a function is a variable.
                "parenthesized_declarator" if is_function => is_function = false,
                _ => {}
            }
            at = at.child_by_field_name("declarator").or_else(|| {
                let mut cursor = at.walk();
                at.named_children(&mut cursor).find(|c| {
                    c.kind().ends_with("declarator")
                        || c.kind().ends_with("identifier")
                        || c.kind() == "operator_name"
                        || c.kind() == "destructor_name"
                })
            })?;
        }
        None
    }

    pub(in crate::extract) fn c(&mut self, f: Frame<'t>) {
        let node = f.node;
        match node.kind() {
            "struct_specifier" | "union_specifier" | "class_specifier" | "enum_specifier" => {
                let Some(body) = self.field(node, "body") else {
                    return;
                };
                let kind = match node.kind() {
                    "class_specifier" => Kind::Class,
                    "enum_specifier" => Kind::Enum,
                    _ => Kind::Struct,
                };
                let name = self.field_text(node, "name");
                let name = name
                    .split('<')
                    .next()
                    .unwrap_or_default()
                    .replace("::", ".");
                let mut found = Found::new(node, name, kind);
                found.body = Some(body);
                found.inside = kind != Kind::Enum;
                self.emit(f, found);
            }
            "namespace_definition" => {
                let name = self.field_text(node, "name").replace("::", ".");
                // Namespaces hold nearly everything; they qualify, but are no answers.
                let scope = self.scope(f).clone();
                let inside = Scope {
                    name: scope.name,
                    kind: Kind::Module,
                    exported: scope.exported && !name.is_empty(),
                    in_function: false,
                    public_members: false,
                };
                self.push_in(node, inside);
            }
            "preproc_def" => {
                if self.field(node, "value").is_some() {
                    self.leaf(f, self.field_text(node, "name"), Kind::Macro);
                }
            }
            "type_definition" => {
                let mut cursor = node.walk();
                let names: Vec<Node<'t>> = node
                    .children_by_field_name("declarator", &mut cursor)
                    .collect();
                let of = self.field(node, "type");
                let has_body = of.and_then(|t| t.child_by_field_name("body"));
                for n in names {
                    if let Some((name, _)) = self.declarator_name(n) {
                        let kind = match of.map(|t| t.kind()) {
                            Some("struct_specifier" | "union_specifier") if has_body.is_some() => {
                                Kind::Struct
                            }
                            Some("enum_specifier") if has_body.is_some() => Kind::Enum,
                            _ => Kind::Type,
                        };
                        let mut found = Found::new(node, self.text(name), kind);
                        found.body = has_body;
                        self.emit(f, found);
                    }
                }
            }
            "function_definition" => {
                let Some((name, _)) = self
                    .field(node, "declarator")
                    .and_then(|d| self.declarator_name(d))
                else {
                    return self.descend(f);
                };
                let text = self.text(name);
                // TEST(Suite, Name) { … } of GoogleTest and its kin.
                if matches!(
                    text,
                    "TEST"
                        | "TEST_F"
                        | "TEST_P"
                        | "TYPED_TEST"
                        | "TEST_CASE"
                        | "SCENARIO"
                        | "BENCHMARK"
                ) {
                    let all = self.text(node);
                    let inner = all
                        .split_once('(')
                        .and_then(|(_, r)| r.split_once(')'))
                        .map_or("", |p| p.0);
                    let title = inner
                        .split(',')
                        .map(|p| p.trim().trim_matches('"'))
                        .collect::<Vec<_>>()
                        .join(".");
                    let mut found = Found::new(node, title, Kind::Test);
                    found.body = self.field(node, "body");
                    found.exported = Some(false);
                    return self.emit(f, found);
                }
                self.c_function(f, name, true);
            }
            "declaration" | "field_declaration" => {
                let mut cursor = node.walk();
                let declarators: Vec<Node<'t>> = node
                    .children_by_field_name("declarator", &mut cursor)
                    .collect();
                for d in declarators {
                    let Some((name, is_function)) = self.declarator_name(d) else {
                        continue;
                    };
                    if is_function {
                        self.c_function(f, name, false);
                    } else if node.kind() == "declaration" && self.scope(f).kind == Kind::Module {
                        let head = self.text(node).split('=').next().unwrap_or_default();
                        if head.contains("const") {
                            let name = self.text(name).to_owned();
                            self.leaf(f, name.replace("::", "."), Kind::Constant);
                        }
                    }
                }
                if let Some(of) = self
                    .field(node, "type")
                    .filter(|t| t.child_by_field_name("body").is_some())
                {
                    self.special(Frame { node: of, ..f });
                }
            }
            _ => self.descend(f),
        }
    }

    pub(in crate::extract) fn c_function(
        &mut self,
        f: Frame<'t>,
        name: Node<'t>,
        definition: bool,
    ) {
        let text = doc::fold(self.text(name));
        let mut parts: Vec<&str> = text
            .split("::")
            .map(|p| p.split('<').next().unwrap_or(p).trim())
            .filter(|p| !p.is_empty())
            .collect();
        if text.contains("operator") {
            parts = text.split("::").filter(|p| !p.is_empty()).collect();
        }
        let own = parts.last().copied().unwrap_or_default();
        let scope = self.scope(f);
        let of = if parts.len() > 1 {
            parts[parts.len() - 2]
        } else {
            scope.name.rsplit('.').next().unwrap_or_default()
        };
        let in_type = parts.len() > 1 || !matches!(scope.kind, Kind::Module);
        let kind = if in_type && own == of {
            Kind::Constructor
        } else if in_type {
            Kind::Method
        } else {
            Kind::Function
        };
        let mut found = Found::new(f.node, parts.join("."), kind);
        found.body = if definition {
            self.field(f.node, "body")
        } else {
            None
        };
        self.emit(f, found);
    }

    pub(in crate::extract) fn rust(&mut self, f: Frame<'t>) {
        if f.node.kind() == "macro_definition" {
            let name = self.field_text(f.node, "name");
            let mut found = Found::new(f.node, name.clone(), Kind::Macro);
            found.signature = Some(format!("macro_rules! {name}"));
            return self.emit(f, found);
        }
        if f.node.kind() == "mod_item" {
            let Some(body) = self.field(f.node, "body") else {
                return;
            };
            let mut found = Found::new(f.node, self.field_text(f.node, "name"), Kind::Module);
            found.body = Some(body);
            found.inside = true;
            return self.emit(f, found);
        }
        let of = self.field_text(f.node, "type");
        let name = of
            .split(['<', ' '])
            .find(|w| !w.is_empty() && !w.starts_with(['&', '\'']) && *w != "dyn" && *w != "mut")
            .unwrap_or_default();
        let name = name.rsplit("::").next().unwrap_or(name).to_owned();
        let scope = self.scope(f).clone();
        let inside = Scope {
            name: join(&scope.name, &name),
            kind: Kind::Struct,
            exported: true,
            in_function: false,
            public_members: self.field(f.node, "trait").is_some(),
        };
        self.push_in(f.node, inside);
    }

    pub(in crate::extract) fn zig(&mut self, f: Frame<'t>) {
        let node = f.node;
        if node.kind() == "test_declaration" {
            let title = node
                .named_child(0)
                .filter(|n| n.kind() != "block")
                .map_or("test", |n| self.text(n));
            let mut found = Found::new(node, title.trim_matches('"').to_owned(), Kind::Test);
            found.body = self.child(node, "block");
            found.exported = Some(false);
            return self.emit(f, found);
        }
        let name = self
            .child(node, "identifier")
            .map(|n| self.text(n).to_owned())
            .unwrap_or_default();
        let mut cursor = node.walk();
        let container = node.named_children(&mut cursor).find(|c| {
            matches!(
                c.kind(),
                "struct_declaration"
                    | "enum_declaration"
                    | "union_declaration"
                    | "opaque_declaration"
                    | "error_set_declaration"
            )
        });
        match container {
            Some(c) => {
                let kind = match c.kind() {
                    "enum_declaration" | "error_set_declaration" => Kind::Enum,
                    _ => Kind::Struct,
                };
                let mut found = Found::new(node, name, kind);
                let head = self
                    .source
                    .get(node.start_byte()..c.start_byte())
                    .unwrap_or_default();
                let word = self.text(c).split(['{', '\n']).next().unwrap_or_default();
                found.signature = Some(doc::fold(&format!("{head}{word}")));
                found.inside = true;
                self.emit(f, found);
            }
            None => {
                let text = self.text(node);
                if text.contains("const ") && !text.contains("@import(") {
                    self.leaf(f, name, Kind::Constant);
                }
            }
        }
    }

    pub(in crate::extract) fn go(&mut self, f: Frame<'t>) {
        let node = f.node;
        match node.kind() {
            "method_declaration" => {
                let receiver = self.field_text(node, "receiver");
                let inner = receiver.trim_matches(['(', ')']);
                let of = inner.split_whitespace().last().unwrap_or_default();
                let of = inner
                    .rsplit([' ', '*'])
                    .find(|w| !w.is_empty() && !w.ends_with(']'))
                    .unwrap_or(of);
                let of = inner
                    .split('[')
                    .next()
                    .map_or(of, |head| head.rsplit([' ', '*']).next().unwrap_or(of));
                let name = join(of, &self.field_text(node, "name"));
                self.leaf(f, name, Kind::Method);
            }
            "type_spec" | "type_alias" => {
                let (kind, of) = match self.field(node, "type") {
                    Some(t) if t.kind() == "struct_type" => (Kind::Struct, Some(t)),
                    Some(t) if t.kind() == "interface_type" => (Kind::Interface, Some(t)),
                    t => (Kind::Type, t),
                };
                let outer = node.parent().filter(|p| p.named_child_count() == 1);
                let mut found = Found::new(node, self.field_text(node, "name"), kind);
                if kind != Kind::Type
                    && let Some(t) = of
                {
                    let head = self
                        .source
                        .get(node.start_byte()..t.start_byte())
                        .unwrap_or_default();
                    let word = if kind == Kind::Struct {
                        "struct"
                    } else {
                        "interface"
                    };
                    found.signature = Some(format!("type {} {word}", doc::fold(head)));
                } else {
                    found.signature = Some(format!("type {}", doc::fold(self.text(node))));
                }
                self.emit(
                    Frame {
                        outer: f.outer.or(outer),
                        ..f
                    },
                    found,
                );
            }
            _ => {
                let word = if node.kind() == "const_spec" {
                    "const"
                } else {
                    "var"
                };
                let text = doc::fold(self.text(node));
                let mut cursor = node.walk();
                let names: Vec<Node<'t>> = node
                    .children_by_field_name("name", &mut cursor)
                    .filter(|n| n.kind() == "identifier")
                    .collect();
                let parent = node.parent();
                let alone =
                    parent.filter(|p| p.named_child_count() == 1 && p.kind() != "var_spec_list");
                for name in names {
                    let mut found = Found::new(node, self.text(name), Kind::Constant);
                    if found.name == "_" {
                        continue;
                    }
                    found.signature = Some(format!("{word} {text}"));
                    self.emit(
                        Frame {
                            outer: f.outer.or(alone),
                            ..f
                        },
                        found,
                    );
                }
            }
        }
    }
}
