//! Symbols: named definitions of source code, and what search reads of them.

pub mod budget;
pub mod find;
pub mod paths;
pub mod rank;
pub mod text;
pub mod tokens;

/// What a symbol is. One vocabulary for all languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A source file itself, or a piece of a file without definitions.
    File,
    /// A free function.
    Function,
    /// A function of a type.
    Method,
    /// A constructor.
    Constructor,
    /// A class, object, actor or mixin.
    Class,
    /// A struct, union or record.
    Struct,
    /// An enumeration.
    Enum,
    /// A trait.
    Trait,
    /// An interface, protocol or type class.
    Interface,
    /// A type alias or other named type.
    Type,
    /// A constant or module variable.
    Constant,
    /// A property with accessors.
    Property,
    /// A module, namespace or package.
    Module,
    /// A macro.
    Macro,
    /// A test.
    Test,
    /// A named part of a document or of configuration: heading, table, top-level key, rule.
    Section,
}

impl Kind {
    /// All kinds with their names.
    pub const ALL: [(&'static str, Self); 16] = [
        ("file", Self::File),
        ("function", Self::Function),
        ("method", Self::Method),
        ("constructor", Self::Constructor),
        ("class", Self::Class),
        ("struct", Self::Struct),
        ("enum", Self::Enum),
        ("trait", Self::Trait),
        ("interface", Self::Interface),
        ("type", Self::Type),
        ("constant", Self::Constant),
        ("property", Self::Property),
        ("module", Self::Module),
        ("macro", Self::Macro),
        ("test", Self::Test),
        ("section", Self::Section),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// The kind of a name; `type alias`, `type_alias` and `const` are understood too.
    pub fn parse(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "type alias" | "type_alias" | "type-alias" => Some(Self::Type),
            "const" | "variable" => Some(Self::Constant),
            "namespace" => Some(Self::Module),
            "fn" => Some(Self::Function),
            name => Self::ALL.iter().find(|k| k.0 == name).map(|k| k.1),
        }
    }

    /// The kind of a stored byte.
    pub fn from_byte(byte: u8) -> Self {
        Self::ALL.get(usize::from(byte)).map_or(Self::File, |k| k.1)
    }

    /// Whether symbols of this kind hold other symbols.
    pub fn is_container(self) -> bool {
        matches!(
            self,
            Self::Class | Self::Struct | Self::Enum | Self::Trait | Self::Interface | Self::Module
        )
    }
}

/// A named definition in a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Name, qualified by its parents with `.`.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// First line, from 1.
    pub line: u32,
    /// Last line, from 1.
    pub end_line: u32,
    /// Byte range in the decoded text of the file.
    pub start: u32,
    /// End of that range.
    pub end: u32,
    /// The declaration on one line, body removed.
    pub signature: String,
    /// First sentence of the doc comment.
    pub doc: String,
    /// What the doc comment says beyond its first sentence, cut at 400 characters.
    pub more_doc: String,
    /// Whether it is visible outside its module by the language's own rule.
    pub exported: bool,
}

impl Symbol {
    /// The name without its parents.
    pub fn own_name(&self) -> &str {
        own_name(&self.name)
    }
}

/// The last part of a qualified name. Names of files and sections are not qualified.
pub fn own_name(name: &str) -> &str {
    match name.rfind('.') {
        Some(at) if at + 1 < name.len() && !name[at..].contains(' ') => &name[at + 1..],
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_one_name_each() {
        for (i, (name, kind)) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, i);
            assert_eq!(Kind::parse(name), Some(kind));
            assert_eq!(Kind::from_byte(kind as u8), kind);
        }
        assert_eq!(Kind::parse("Type alias"), Some(Kind::Type));
        assert_eq!(Kind::parse("nonsense"), None);
    }

    #[test]
    fn own_names() {
        assert_eq!(own_name("Cart.addItem"), "addItem");
        assert_eq!(own_name("add"), "add");
        assert_eq!(own_name("odd."), "odd.");
    }
}
