//! Java, C#, PHP, Kotlin, Swift and Scala.

use tree_sitter::Node;
use weft_core::code::Kind;

use super::join;
use crate::extract::{Found, Frame, Scope, Walk, body_of, doc};

impl<'t> Walk<'t, '_> {
    pub(in crate::extract) fn java(&mut self, f: Frame<'t>) {
        let text = self.text(f.node);
        let head = text.split('=').next().unwrap_or_default();
        let constant = f.node.kind() == "constant_declaration"
            || (head.contains("static") && head.contains("final"))
            || self.scope(f).kind == Kind::Interface;
        if !constant {
            return;
        }
        if let Some(d) = self.field(f.node, "declarator") {
            let name = self.field_text(d, "name");
            self.leaf(f, name, Kind::Constant);
        }
    }

    pub(in crate::extract) fn csharp(&mut self, f: Frame<'t>) {
        let node = f.node;
        match node.kind() {
            "field_declaration" => {
                let head = self.text(node);
                let head = head.split('=').next().unwrap_or_default();
                if head.contains("const ") || (head.contains("static") && head.contains("readonly"))
                {
                    let name = self
                        .child(node, "variable_declaration")
                        .and_then(|d| self.child(d, "variable_declarator"))
                        .map(|d| self.name_of(d))
                        .unwrap_or_default();
                    self.leaf(f, name, Kind::Constant);
                }
            }
            "indexer_declaration" => self.leaf(f, "this[]", Kind::Property),
            "destructor_declaration" => {
                let name = format!("~{}", self.field_text(node, "name"));
                self.leaf(f, name, Kind::Method);
            }
            "operator_declaration" => {
                let name = format!("operator {}", self.field_text(node, "operator"));
                self.leaf(f, name, Kind::Method);
            }
            _ => {
                let name = format!("operator {}", self.field_text(node, "type"));
                self.leaf(f, name, Kind::Method);
            }
        }
    }

    pub(in crate::extract) fn php(&mut self, f: Frame<'t>) {
        let node = f.node;
        if node.kind() == "method_declaration" {
            let name = self.field_text(node, "name");
            let kind = if name == "__construct" {
                Kind::Constructor
            } else {
                Kind::Method
            };
            return self.leaf(f, name, kind);
        }
        let mut cursor = node.walk();
        let elements: Vec<Node<'t>> = node
            .named_children(&mut cursor)
            .filter(|c| c.kind() == "const_element")
            .collect();
        for e in elements {
            let name = self.name_of(e);
            self.leaf(f, name, Kind::Constant);
        }
    }

    pub(in crate::extract) fn kotlin(&mut self, f: Frame<'t>) {
        let node = f.node;
        match node.kind() {
            "class_declaration" => {
                let head = self
                    .source
                    .get(
                        node.start_byte()
                            ..self
                                .field(node, "name")
                                .map_or(node.end_byte(), |n| n.start_byte()),
                    )
                    .unwrap_or_default();
                let has = |w: &str| head.split_whitespace().any(|x| x == w);
                let kind = if has("interface") {
                    Kind::Interface
                } else if has("enum") {
                    Kind::Enum
                } else {
                    Kind::Class
                };
                let mut found = Found::new(node, self.field_text(node, "name"), kind);
                found.body = body_of(node);
                found.inside = true;
                self.emit(f, found);
            }
            "companion_object" => self.descend(f),
            "secondary_constructor" => self.leaf(f, "constructor", Kind::Constructor),
            "type_alias" => {
                let name = self.field_text(node, "type");
                self.leaf(f, name, Kind::Type);
            }
            _ => {
                let name = self
                    .child(node, "variable_declaration")
                    .map(|v| self.name_of(v))
                    .unwrap_or_default();
                let accessor = self.child(node, "getter").is_some();
                let kind = if accessor {
                    Kind::Property
                } else {
                    Kind::Constant
                };
                if accessor
                    || self.scope(f).name.is_empty()
                    || self.text(node).contains("const val")
                {
                    self.leaf(f, name, kind);
                }
            }
        }
    }

    pub(in crate::extract) fn swift(&mut self, f: Frame<'t>) {
        let node = f.node;
        match node.kind() {
            "class_declaration" => {
                let kind = match self.field_text(node, "declaration_kind").as_str() {
                    "struct" => Kind::Struct,
                    "enum" => Kind::Enum,
                    "extension" => {
                        let name = self.field_text(node, "name");
                        let name = name.split('<').next().unwrap_or_default().trim().to_owned();
                        let scope = self.scope(f).name.clone();
                        let head = self
                            .source
                            .get(
                                node.start_byte()
                                    ..body_of(node).map_or(node.end_byte(), |b| b.start_byte()),
                            )
                            .unwrap_or_default();
                        let inside = Scope {
                            name: join(&scope, &name),
                            kind: Kind::Class,
                            exported: true,
                            in_function: false,
                            public_members: head.contains("public extension"),
                        };
                        return self.push_in(node, inside);
                    }
                    _ => Kind::Class,
                };
                let mut found = Found::new(node, self.field_text(node, "name"), kind);
                found.body = body_of(node);
                found.inside = true;
                self.emit(f, found);
            }
            "init_declaration" => self.leaf(f, "init", Kind::Constructor),
            "deinit_declaration" => self.leaf(f, "deinit", Kind::Method),
            "subscript_declaration" => self.leaf(f, "subscript", Kind::Method),
            _ => {
                let name = self.field_text(node, "name");
                let computed = self.field(node, "computed_value");
                let scope = self.scope(f);
                let in_type = !scope.name.is_empty() && !scope.in_function;
                let is_static = self
                    .text(node)
                    .split('=')
                    .next()
                    .is_some_and(|h| h.contains("static "));
                if computed.is_some() || !in_type || is_static {
                    let mut found = Found::new(
                        node,
                        name,
                        if computed.is_some() {
                            Kind::Property
                        } else {
                            Kind::Constant
                        },
                    );
                    found.body = computed;
                    self.emit(f, found);
                }
            }
        }
    }

    pub(in crate::extract) fn scala(&mut self, f: Frame<'t>) {
        let node = f.node;
        if node.kind() == "given_definition" {
            let name = self.field_text(node, "name");
            let name = if name.is_empty() {
                format!("given {}", doc::fold(&self.field_text(node, "return_type")))
            } else {
                name
            };
            let mut found = Found::new(node, name, Kind::Constant);
            found.body = body_of(node);
            found.inside = true;
            return self.emit(f, found);
        }
        let Some(pattern) = self
            .field(node, "pattern")
            .filter(|p| p.kind() == "identifier")
        else {
            return;
        };
        let name = self.text(pattern).to_owned();
        let mut found = Found::new(node, name, Kind::Constant);
        found.body = self.field(node, "value");
        // An anonymous instance holds methods.
        found.inside = self.text(node).contains("new ");
        self.emit(f, found);
    }
}
