//! Which node of a grammar is which symbol: one table a language.

use weft_core::code::Kind;

use crate::language::Language;

/// What the walk does at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Nothing of its own; its children are walked.
    Descend,
    /// Nothing below is of interest.
    Skip,
    /// A wrapper whose range, documentation and modifiers belong to the definition inside.
    Wrap,
    /// A definition; what is inside is walked too.
    Def(Kind),
    /// A definition; nothing inside is of interest.
    Leaf(Kind),
    /// The language's own code decides.
    Special,
}

use Kind as K;
use Rule::{Def, Leaf, Skip, Special, Wrap};

type Table = &'static [(&'static str, Rule)];

const RUST: Table = &[
    ("function_item", Def(K::Function)),
    ("function_signature_item", Leaf(K::Function)),
    ("macro_definition", Special),
    ("struct_item", Leaf(K::Struct)),
    ("union_item", Leaf(K::Struct)),
    ("enum_item", Leaf(K::Enum)),
    ("trait_item", Def(K::Trait)),
    ("impl_item", Special),
    ("type_item", Leaf(K::Type)),
    ("mod_item", Special),
    ("const_item", Leaf(K::Constant)),
    ("static_item", Leaf(K::Constant)),
    ("token_tree", Skip),
];

const PYTHON: Table = &[
    ("function_definition", Def(K::Function)),
    ("class_definition", Def(K::Class)),
    ("decorated_definition", Wrap),
    ("type_alias_statement", Special),
    ("assignment", Special),
];

const SCRIPT: Table = &[
    ("function_declaration", Def(K::Function)),
    ("generator_function_declaration", Def(K::Function)),
    ("function_signature", Leaf(K::Function)),
    ("class_declaration", Def(K::Class)),
    ("abstract_class_declaration", Def(K::Class)),
    ("interface_declaration", Leaf(K::Interface)),
    ("enum_declaration", Leaf(K::Enum)),
    ("type_alias_declaration", Leaf(K::Type)),
    ("internal_module", Def(K::Module)),
    ("module", Def(K::Module)),
    ("method_definition", Def(K::Method)),
    ("abstract_method_signature", Leaf(K::Method)),
    ("public_field_definition", Special),
    ("field_definition", Special),
    ("variable_declarator", Special),
    ("assignment_expression", Special),
    ("call_expression", Special),
    ("pair", Special),
    ("export_statement", Special),
    ("arrow_function", Special),
    ("function_expression", Special),
    ("ambient_declaration", Wrap),
];

const GO: Table = &[
    ("function_declaration", Leaf(K::Function)),
    ("method_declaration", Special),
    ("type_spec", Special),
    ("type_alias", Special),
    ("const_spec", Special),
    ("var_spec", Special),
    ("block", Skip),
];

const JAVA: Table = &[
    ("class_declaration", Def(K::Class)),
    ("interface_declaration", Def(K::Interface)),
    ("enum_declaration", Def(K::Enum)),
    ("record_declaration", Def(K::Struct)),
    ("annotation_type_declaration", Def(K::Interface)),
    ("method_declaration", Leaf(K::Method)),
    ("annotation_type_element_declaration", Leaf(K::Method)),
    ("constructor_declaration", Leaf(K::Constructor)),
    ("compact_constructor_declaration", Leaf(K::Constructor)),
    ("field_declaration", Special),
    ("constant_declaration", Special),
    ("block", Skip),
];

const C: Table = &[
    ("function_definition", Special),
    ("declaration", Special),
    ("field_declaration", Special),
    ("preproc_def", Special),
    ("preproc_function_def", Leaf(K::Macro)),
    ("struct_specifier", Special),
    ("union_specifier", Special),
    ("class_specifier", Special),
    ("enum_specifier", Special),
    ("type_definition", Special),
    ("namespace_definition", Special),
    ("template_declaration", Wrap),
    ("concept_definition", Leaf(K::Trait)),
    ("alias_declaration", Leaf(K::Type)),
    ("compound_statement", Skip),
    ("initializer_list", Skip),
];

const CSHARP: Table = &[
    ("namespace_declaration", Def(K::Module)),
    ("class_declaration", Def(K::Class)),
    ("struct_declaration", Def(K::Struct)),
    ("record_declaration", Def(K::Struct)),
    ("record_struct_declaration", Def(K::Struct)),
    ("interface_declaration", Def(K::Interface)),
    ("enum_declaration", Leaf(K::Enum)),
    ("delegate_declaration", Leaf(K::Type)),
    ("method_declaration", Leaf(K::Method)),
    ("constructor_declaration", Leaf(K::Constructor)),
    ("destructor_declaration", Special),
    ("property_declaration", Leaf(K::Property)),
    ("indexer_declaration", Special),
    ("operator_declaration", Special),
    ("conversion_operator_declaration", Special),
    ("field_declaration", Special),
    ("local_function_statement", Leaf(K::Function)),
    ("block", Skip),
];

const RUBY: Table = &[
    ("method", Def(K::Function)),
    ("singleton_method", Def(K::Method)),
    ("class", Def(K::Class)),
    ("module", Def(K::Module)),
    ("assignment", Special),
    ("alias", Special),
    ("call", Special),
];

const PHP: Table = &[
    ("namespace_definition", Rule::Descend),
    ("class_declaration", Def(K::Class)),
    ("interface_declaration", Def(K::Interface)),
    ("trait_declaration", Def(K::Trait)),
    ("enum_declaration", Def(K::Enum)),
    ("function_definition", Leaf(K::Function)),
    ("method_declaration", Special),
    ("const_declaration", Special),
    ("compound_statement", Rule::Descend),
];

const KOTLIN: Table = &[
    ("class_declaration", Special),
    ("object_declaration", Def(K::Class)),
    ("companion_object", Special),
    ("function_declaration", Leaf(K::Function)),
    ("secondary_constructor", Special),
    ("property_declaration", Special),
    ("type_alias", Special),
];

const SWIFT: Table = &[
    ("class_declaration", Special),
    ("protocol_declaration", Def(K::Interface)),
    ("function_declaration", Leaf(K::Function)),
    ("protocol_function_declaration", Leaf(K::Function)),
    ("init_declaration", Special),
    ("deinit_declaration", Special),
    ("subscript_declaration", Special),
    ("property_declaration", Special),
    ("typealias_declaration", Leaf(K::Type)),
];

const SCALA: Table = &[
    ("class_definition", Def(K::Class)),
    ("object_definition", Def(K::Class)),
    ("package_object", Def(K::Module)),
    ("trait_definition", Def(K::Trait)),
    ("enum_definition", Def(K::Enum)),
    ("function_definition", Leaf(K::Function)),
    ("function_declaration", Leaf(K::Function)),
    ("given_definition", Special),
    ("type_definition", Leaf(K::Type)),
    ("val_definition", Special),
    ("val_declaration", Leaf(K::Constant)),
];

const ELIXIR: Table = &[("call", Special), ("unary_operator", Special)];

const HASKELL: Table = &[
    ("signature", Special),
    ("function", Special),
    ("bind", Special),
    ("data_type", Leaf(K::Type)),
    ("newtype", Leaf(K::Type)),
    ("type_synonym", Leaf(K::Type)),
    ("type_synomym", Leaf(K::Type)),
    ("type_family", Leaf(K::Type)),
    ("class", Def(K::Interface)),
    ("instance", Special),
];

const LUA: Table = &[
    ("function_declaration", Special),
    ("assignment_statement", Special),
    ("field", Special),
];

const ZIG: Table = &[
    ("function_declaration", Def(K::Function)),
    ("test_declaration", Special),
    ("variable_declaration", Special),
];

const BASH: Table = &[
    ("function_definition", Leaf(K::Function)),
    ("command", Special),
];

const SQL: Table = &[
    ("create_table", Special),
    ("create_view", Special),
    ("create_materialized_view", Special),
    ("create_function", Special),
    ("create_index", Special),
    ("create_trigger", Special),
    ("create_type", Special),
    ("create_schema", Special),
];

const HTML: Table = &[
    ("element", Special),
    ("script_element", Skip),
    ("style_element", Skip),
];
const CSS: Table = &[("rule_set", Special), ("keyframes_statement", Special)];
const MARKDOWN: Table = &[("section", Special), ("setext_heading", Special)];
const TOML: Table = &[
    ("table", Special),
    ("table_array_element", Special),
    ("pair", Special),
];
const YAML: Table = &[("block_mapping_pair", Special), ("flow_node", Skip)];
const JSON: Table = &[("pair", Special), ("array", Skip)];

fn table(language: Language) -> Table {
    use Language as L;
    match language {
        L::Bash => BASH,
        L::C | L::Cpp => C,
        L::CSharp => CSHARP,
        L::Css => CSS,
        L::Elixir => ELIXIR,
        L::Go => GO,
        L::Haskell => HASKELL,
        L::Html => HTML,
        L::Java => JAVA,
        L::JavaScript | L::Tsx | L::TypeScript => SCRIPT,
        L::Json => JSON,
        L::Kotlin => KOTLIN,
        L::Lua => LUA,
        L::Markdown => MARKDOWN,
        L::Php => PHP,
        L::Python => PYTHON,
        L::Ruby => RUBY,
        L::Rust => RUST,
        L::Scala => SCALA,
        L::Sql => SQL,
        L::Swift => SWIFT,
        L::Toml => TOML,
        L::Yaml => YAML,
        L::Zig => ZIG,
    }
}

/// The table of a language by the grammar's node ids. A kind that the grammar does not know is left
/// out; tables serve several grammars.
pub(super) fn by_id(language: Language, grammar: &tree_sitter::Language) -> Vec<Rule> {
    let mut rules = vec![Rule::Descend; grammar.node_kind_count() + 1];
    for id in 0..grammar.node_kind_count() as u16 {
        let Some(kind) = grammar.node_kind_for_id(id) else {
            continue;
        };
        if !grammar.node_kind_is_named(id) {
            continue;
        }
        if let Some((_, rule)) = table(language).iter().find(|(k, _)| *k == kind) {
            rules[usize::from(id)] = *rule;
        }
    }
    rules
}

/// Fields and kinds of nodes that are a definition's body, for cutting the signature.
pub(super) const BODIES: [&str; 22] = [
    "block",
    "body_statement",
    "class_body",
    "compound_statement",
    "declaration_list",
    "enum_body",
    "enum_class_body",
    "enum_declaration_list",
    "enum_member_declaration_list",
    "enum_variant_list",
    "enumerator_list",
    "accessor_list",
    "field_declaration_list",
    "function_body",
    "interface_body",
    "object_type",
    "protocol_body",
    "statement_block",
    "template_body",
    "arrow_expression_clause",
    "do_block",
    "computed_property",
];
