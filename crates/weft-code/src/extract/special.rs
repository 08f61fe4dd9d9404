//! What a table of node kinds cannot say: each language's own ways to define things.

use tree_sitter::Node;
use weft_core::code::Kind;

use super::{Found, Frame, Scope, Walk, body_of, doc};
use crate::language::Language;

impl<'t> Walk<'t, '_> {
    /// Reads export lists before the walk, where they close a module.
    pub(super) fn prepare(&mut self, root: Node<'t>) {
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

    /// A node that needs code of its own.
    pub(super) fn special(&mut self, f: Frame<'t>) {
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

    fn field(&self, node: Node<'t>, name: &str) -> Option<Node<'t>> {
        node.child_by_field_name(name)
    }

    fn field_text(&self, node: Node<'t>, name: &str) -> String {
        self.field(node, name)
            .map(|n| self.text(n).to_owned())
            .unwrap_or_default()
    }

    fn child(&self, node: Node<'t>, kind: &str) -> Option<Node<'t>> {
        let mut cursor = node.walk();
        node.named_children(&mut cursor).find(|c| c.kind() == kind)
    }

    fn descend(&mut self, f: Frame<'t>) {
        self.push_children(Frame { outer: None, ..f });
    }

    fn leaf(&mut self, f: Frame<'t>, name: impl Into<String>, kind: Kind) {
        let mut found = Found::new(f.node, name, kind);
        found.body = body_of(f.node);
        self.emit(f, found);
    }

    fn rust(&mut self, f: Frame<'t>) {
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
        self.push_in(f, f.node, inside);
    }

    fn python(&mut self, f: Frame<'t>) {
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

    fn script(&mut self, f: Frame<'t>) {
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
                self.push_in(f, node, scope);
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

    /// A function or class that is the value of a name.
    fn value(&mut self, f: Frame<'t>, value: Node<'t>, name: String, kind: Kind) {
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

    fn go(&mut self, f: Frame<'t>) {
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

    fn java(&mut self, f: Frame<'t>) {
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

    /// The name inside nested declarators: `*(*f)(int)` is f.
    fn declarator_name(&self, node: Node<'t>) -> Option<(Node<'t>, bool)> {
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

    fn c(&mut self, f: Frame<'t>) {
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
                self.push_in(f, node, inside);
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

    fn c_function(&mut self, f: Frame<'t>, name: Node<'t>, definition: bool) {
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

    fn csharp(&mut self, f: Frame<'t>) {
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

    fn ruby(&mut self, f: Frame<'t>) {
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

    fn php(&mut self, f: Frame<'t>) {
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

    fn kotlin(&mut self, f: Frame<'t>) {
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

    fn swift(&mut self, f: Frame<'t>) {
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
                        return self.push_in(f, node, inside);
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

    fn scala(&mut self, f: Frame<'t>) {
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

    fn elixir(&mut self, f: Frame<'t>) {
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

    /// `@doc` above a function, `@moduledoc` inside a module.
    pub(super) fn elixir_doc(&self, found: &Found<'_>, outer: Node<'_>) -> Option<String> {
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

    fn haskell(&mut self, f: Frame<'t>) {
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
            return self.push_in(f, node, scope);
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

    fn lua(&mut self, f: Frame<'t>) {
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

    fn zig(&mut self, f: Frame<'t>) {
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

    fn bash(&mut self, f: Frame<'t>) {
        let text = self.text(f.node);
        if let Some(rest) = text.strip_prefix("alias ")
            && let Some((name, _)) = rest.split_once('=')
            && f.scope == 0
        {
            let name = name.trim().to_owned();
            self.leaf(f, name, Kind::Function);
        }
    }

    fn sql(&mut self, f: Frame<'t>) {
        let node = f.node;
        let index = (node.kind() == "create_index")
            .then(|| self.child(node, "identifier"))
            .flatten();
        let name = index
            .or_else(|| self.child(node, "object_reference"))
            .or_else(|| self.field(node, "name"))
            .or_else(|| self.child(node, "identifier"))
            .map(|n| self.text(n).replace(['"', '`'], ""))
            .unwrap_or_default();
        let kind = match node.kind() {
            "create_function" | "create_trigger" => Kind::Function,
            "create_type" => Kind::Type,
            "create_schema" => Kind::Module,
            "create_index" => Kind::Constant,
            _ => Kind::Struct,
        };
        let mut found = Found::new(node, name, kind);
        found.exported = Some(true);
        found.body = self
            .child(node, "column_definitions")
            .or_else(|| self.child(node, "create_query"))
            .or_else(|| self.child(node, "function_body"));
        self.emit(f, found);
    }

    fn html(&mut self, f: Frame<'t>) {
        let node = f.node;
        let tag = self.child(node, "start_tag");
        let name = tag
            .and_then(|t| self.child(t, "tag_name"))
            .map(|n| self.text(n))
            .unwrap_or_default();
        let heading = matches!(name, "h1" | "h2" | "h3" | "title");
        let id = tag.and_then(|t| {
            let mut cursor = t.walk();
            t.named_children(&mut cursor).find_map(|a| {
                let text = self.text(a);
                text.strip_prefix("id=")
                    .map(|v| v.trim_matches(['"', '\'']).to_owned())
            })
        });
        let title = if heading {
            let text = self.text(node);
            let inner = text.split_once('>').map_or("", |p| p.1);
            doc::fold(inner.split('<').next().unwrap_or_default())
        } else {
            id.map(|i| format!("#{i}")).unwrap_or_default()
        };
        if title.is_empty() {
            return self.descend(f);
        }
        let mut found = Found::new(
            node,
            title.chars().take(120).collect::<String>(),
            Kind::Section,
        );
        found.signature = tag.map(|t| doc::fold(self.text(t)));
        let scope = self.scope(f).name.clone();
        self.emit(f, found);
        let _ = scope;
        self.descend(f);
    }

    fn css(&mut self, f: Frame<'t>) {
        let node = f.node;
        let name = if node.kind() == "keyframes_statement" {
            self.child(node, "keyframes_name")
                .map(|n| format!("@keyframes {}", self.text(n)))
        } else {
            self.child(node, "selectors")
                .map(|n| self.text(n).to_owned())
        };
        let name: String = doc::fold(&name.unwrap_or_default())
            .chars()
            .take(120)
            .collect();
        self.leaf(f, name, Kind::Section);
    }

    fn markdown(&mut self, f: Frame<'t>) {
        let node = f.node;
        if node.kind() == "setext_heading" {
            let title = node
                .child_by_field_name("heading_content")
                .map(|n| doc::fold(self.text(n)));
            return self.leaf(f, title.unwrap_or_default(), Kind::Section);
        }
        let heading = node.named_child(0).filter(|h| h.kind() == "atx_heading");
        let Some(heading) = heading else {
            return self.descend(f);
        };
        let title = heading
            .child_by_field_name("heading_content")
            .map(|n| doc::fold(self.text(n)))
            .unwrap_or_default();
        let mut found = Found::new(
            node,
            title.chars().take(150).collect::<String>(),
            Kind::Section,
        );
        found.signature = Some(doc::fold(self.text(heading)));
        let text = self.text(node);
        let after = text.get(heading.byte_range().len()..).unwrap_or_default();
        let paragraph = after.trim_start().split("\n\n").next().unwrap_or_default();
        found.doc = Some(if paragraph.starts_with(['#', '`', '|', '<']) {
            String::new()
        } else {
            paragraph.to_owned()
        });
        self.emit(f, found);
        // Headings are not qualified by those above them: nobody writes them so.
        self.descend(f);
    }

    /// Tables and keys of configuration, two levels deep.
    fn data(&mut self, f: Frame<'t>) {
        let node = f.node;
        let scope = self.scope(f);
        let depth = if scope.name.is_empty() {
            0
        } else {
            scope.name.matches('\u{1}').count() + 1
        };
        let key = match self.language {
            Language::Toml => node.named_child(0).map(|n| self.text(n)),
            _ => self.field(node, "key").map(|n| self.text(n)),
        };
        let key: String = doc::fold(key.unwrap_or_default().trim_matches(['"', '\'']))
            .chars()
            .take(120)
            .collect();
        if key.is_empty() || depth > 1 {
            return;
        }
        let top = matches!(node.kind(), "table" | "table_array_element") || depth == 0;
        let big = node.end_position().row > node.start_position().row;
        // A scalar below the top is a word of its parent, not an answer.
        if !top && !big {
            return;
        }
        let mut found = Found::new(node, key, Kind::Section);
        let line = self.text(node).lines().next().unwrap_or_default();
        found.signature = Some(doc::fold(line));
        found.inside = big && self.language != Language::Toml && depth == 0;
        self.emit(f, found);
    }
}

fn join(scope: &str, name: &str) -> String {
    if scope.is_empty() {
        name.to_owned()
    } else {
        format!("{scope}.{name}")
    }
}

/// Whether a value is a function or a class.
fn function_kind(value: Node<'_>) -> Option<Kind> {
    Some(match value.kind() {
        "arrow_function" | "function_expression" | "function" | "generator_function" => {
            Kind::Function
        }
        "class" => Kind::Class,
        _ => return None,
    })
}

/// The text of an Elixir string or heredoc; `None` for `false`.
fn elixir_string(text: &str) -> Option<String> {
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
