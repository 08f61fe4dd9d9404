//! JavaScript and TypeScript.

use tree_sitter::Node;
use weft_core::code::Kind;

use super::function_kind;
use crate::extract::{Found, Frame, Scope, Walk, body_of};

impl<'t> Walk<'t, '_> {
    pub(in crate::extract) fn script(&mut self, f: Frame<'t>) {
        let node = f.node;
        match node.kind() {
            "export_statement" => {
                if let Some(clause) = self.child(node, "export_clause") {
                    let mut cursor = clause.walk();
                    for spec in clause.named_children(&mut cursor) {
                        let name = self.field_text(spec, "name");
                        self.exports.insert(name);
                    }
                    return;
                }
                let inner = Frame {
                    outer: Some(f.outer.unwrap_or(node)),
                    export: true,
                    ..f
                };
                if let Some(value) = self.field(node, "value") {
                    if value.kind() == "identifier" {
                        let name = self.text(value).to_owned();
                        self.exports.insert(name);
                        return;
                    }
                    if let Some(kind) = function_kind(value) {
                        let own = self.field_text(value, "name");
                        let name = if own.is_empty() {
                            "default".to_owned()
                        } else {
                            own
                        };
                        return self.value(
                            Frame {
                                node: value,
                                ..inner
                            },
                            value,
                            name,
                            kind,
                        );
                    }
                }
                self.push_children(inner);
            }
            "variable_declarator" => {
                let name_node = self.field(node, "name");
                let value = self.field(node, "value");
                let Some(name) = name_node.filter(|n| n.kind() == "identifier") else {
                    return self.descend(f);
                };
                let name = self.text(name).to_owned();
                // The declaration is the wrapper: `const` belongs to the signature.
                let outer = f.outer.or_else(|| {
                    node.parent().filter(|p| {
                        matches!(p.kind(), "lexical_declaration" | "variable_declaration")
                            && p.named_child_count() == 1
                    })
                });
                let f = Frame { outer, ..f };
                match value.and_then(function_kind) {
                    Some(kind) => {
                        if let Some(v) = value {
                            self.value(f, v, name, kind);
                        }
                    }
                    None if self.scope(f).in_function => self.descend(f),
                    // An import under another name.
                    None if value.is_some_and(|v| self.text(v).starts_with("require(")) => {}
                    None => {
                        let mut found = Found::new(node, name, Kind::Constant);
                        found.body =
                            value.filter(|v| v.kind() == "object" || v.byte_range().len() > 120);
                        found.inside = true;
                        self.emit(f, found);
                    }
                }
            }
            // A function without a name: what is inside are its locals.
            "arrow_function" | "function_expression" => {
                let scope = Scope {
                    in_function: true,
                    ..self.scope(f).clone()
                };
                self.push_in(node, scope);
            }
            "public_field_definition" | "field_definition" => {
                let value = self.field(node, "value");
                let name = {
                    let n = self.field_text(node, "name");
                    if n.is_empty() {
                        self.field_text(node, "property")
                    } else {
                        n
                    }
                };
                match value.and_then(function_kind) {
                    Some(_) => {
                        if let Some(v) = value {
                            self.value(f, v, name, Kind::Method);
                        }
                    }
                    None => self.descend(f),
                }
            }
            "assignment_expression" => {
                let left = self.field_text(node, "left");
                let right = self.field(node, "right");
                let is_module = left == "module.exports" || left == "exports";
                if is_module && let Some(r) = right {
                    match r.kind() {
                        "identifier" => {
                            let name = self.text(r).to_owned();
                            self.exports.insert(name);
                            return;
                        }
                        "object" => {
                            let mut cursor = r.walk();
                            for pair in r.named_children(&mut cursor) {
                                let name = if pair.kind() == "pair" {
                                    self.field_text(pair, "key")
                                } else {
                                    self.text(pair).to_owned()
                                };
                                self.exports.insert(name);
                            }
                            return self.push_children(Frame {
                                node: r,
                                outer: None,
                                ..f
                            });
                        }
                        _ => {}
                    }
                }
                let exported = left.starts_with("exports.") || left.starts_with("module.exports");
                let name = left
                    .trim_start_matches("module.exports")
                    .trim_start_matches("exports")
                    .trim_start_matches('.')
                    .replace(".prototype.", ".");
                let simple = name
                    .chars()
                    .all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '.'));
                match (right.and_then(function_kind), right) {
                    (Some(kind), Some(r)) if simple && !name.starts_with("this.") => {
                        let own = self.field_text(r, "name");
                        let name = if name.is_empty() {
                            if own.is_empty() {
                                "default".into()
                            } else {
                                own
                            }
                        } else {
                            name
                        };
                        let statement =
                            node.parent().filter(|p| p.kind() == "expression_statement");
                        let f = Frame {
                            outer: f.outer.or(statement),
                            export: exported || name.contains('.') || f.export,
                            ..f
                        };
                        self.value(f, r, name, kind);
                    }
                    _ => self.descend(f),
                }
            }
            "pair" => {
                let value = self.field(node, "value");
                let key = self.field_text(node, "key");
                let key = key.trim_matches(['"', '\'']).to_owned();
                match value.and_then(function_kind) {
                    Some(_) if !self.scope(f).in_function => {
                        if let Some(v) = value {
                            self.value(f, v, key, Kind::Method);
                        }
                    }
                    _ => self.descend(f),
                }
            }
            // describe("…", () => …), it("…", …), test("…", …)
            "call_expression" => {
                let target = self.field_text(node, "function");
                let base = target.split('.').next().unwrap_or_default();
                let arguments = self.field(node, "arguments");
                let title = arguments
                    .and_then(|a| a.named_child(0))
                    .filter(|t| matches!(t.kind(), "string" | "template_string"));
                if let (Some(t), true) =
                    (title, matches!(base, "describe" | "it" | "test" | "suite"))
                {
                    let name = self.text(t).trim_matches(['"', '\'', '`']).to_owned();
                    let name: String = name.chars().take(100).collect();
                    let mut found = Found::new(node, name, Kind::Test);
                    found.body = arguments.and_then(|a| a.named_child(1));
                    found.exported = Some(false);
                    found.signature = Some(format!("{target}({})", self.text(t)));
                    let is_suite = matches!(base, "describe" | "suite");
                    found.inside = is_suite;
                    return self.emit(f, found);
                }
                self.descend(f);
            }
            _ => self.descend(f),
        }
    }

    pub(in crate::extract) fn value(
        &mut self,
        f: Frame<'t>,
        value: Node<'t>,
        name: String,
        kind: Kind,
    ) {
        let node = f.node;
        let mut found = Found::new(value, name, kind);
        found.body = self.field(value, "body").or_else(|| body_of(value));
        found.inside = true;
        let f = Frame {
            outer: f.outer.or(Some(node)),
            ..f
        };
        self.emit(f, found);
    }
}
