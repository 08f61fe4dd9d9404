//! The languages that are parsed, by file name.

use tree_sitter_language::LanguageFn;

/// A language with a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Language {
    Bash,
    C,
    CSharp,
    Cpp,
    Css,
    Elixir,
    Go,
    Haskell,
    Html,
    Java,
    JavaScript,
    Json,
    Kotlin,
    Lua,
    Markdown,
    Php,
    Python,
    Ruby,
    Rust,
    Scala,
    Sql,
    Swift,
    Toml,
    Tsx,
    TypeScript,
    Yaml,
    Zig,
}

use Language as L;

/// Name, language, grammar, extensions. JSX is JavaScript with the same grammar.
const TABLE: [(&str, Language, LanguageFn, &[&str]); 27] = [
    (
        "bash",
        L::Bash,
        tree_sitter_bash::LANGUAGE,
        &["sh", "bash", "zsh", "bats", "ksh"],
    ),
    ("c", L::C, tree_sitter_c::LANGUAGE, &["c", "h"]),
    (
        "csharp",
        L::CSharp,
        tree_sitter_c_sharp::LANGUAGE,
        &["cs", "csx"],
    ),
    (
        "cpp",
        L::Cpp,
        tree_sitter_cpp::LANGUAGE,
        &[
            "cc", "cpp", "cxx", "c++", "hh", "hpp", "hxx", "h++", "inl", "ipp", "tpp", "cu", "cuh",
            "inc",
        ],
    ),
    (
        "css",
        L::Css,
        tree_sitter_css::LANGUAGE,
        &["css", "scss", "less"],
    ),
    (
        "elixir",
        L::Elixir,
        tree_sitter_elixir::LANGUAGE,
        &["ex", "exs"],
    ),
    ("go", L::Go, tree_sitter_go::LANGUAGE, &["go"]),
    (
        "haskell",
        L::Haskell,
        tree_sitter_haskell::LANGUAGE,
        &["hs"],
    ),
    (
        "html",
        L::Html,
        tree_sitter_html::LANGUAGE,
        &["html", "htm", "xhtml"],
    ),
    ("java", L::Java, tree_sitter_java::LANGUAGE, &["java"]),
    (
        "javascript",
        L::JavaScript,
        tree_sitter_javascript::LANGUAGE,
        &["js", "jsx", "mjs", "cjs"],
    ),
    (
        "json",
        L::Json,
        tree_sitter_json::LANGUAGE,
        &["json", "jsonc", "json5"],
    ),
    (
        "kotlin",
        L::Kotlin,
        tree_sitter_kotlin_ng::LANGUAGE,
        &["kt", "kts"],
    ),
    ("lua", L::Lua, tree_sitter_lua::LANGUAGE, &["lua"]),
    (
        "markdown",
        L::Markdown,
        tree_sitter_md::LANGUAGE,
        &["md", "markdown", "mdx"],
    ),
    (
        "php",
        L::Php,
        tree_sitter_php::LANGUAGE_PHP,
        &["php", "phtml"],
    ),
    (
        "python",
        L::Python,
        tree_sitter_python::LANGUAGE,
        &["py", "pyi", "pyw"],
    ),
    (
        "ruby",
        L::Ruby,
        tree_sitter_ruby::LANGUAGE,
        &["rb", "rake", "gemspec", "ru"],
    ),
    ("rust", L::Rust, tree_sitter_rust::LANGUAGE, &["rs"]),
    (
        "scala",
        L::Scala,
        tree_sitter_scala::LANGUAGE,
        &["scala", "sc", "sbt"],
    ),
    ("sql", L::Sql, tree_sitter_sequel::LANGUAGE, &["sql"]),
    ("swift", L::Swift, tree_sitter_swift::LANGUAGE, &["swift"]),
    ("toml", L::Toml, tree_sitter_toml_ng::LANGUAGE, &["toml"]),
    (
        "tsx",
        L::Tsx,
        tree_sitter_typescript::LANGUAGE_TSX,
        &["tsx"],
    ),
    (
        "typescript",
        L::TypeScript,
        tree_sitter_typescript::LANGUAGE_TYPESCRIPT,
        &["ts", "mts", "cts"],
    ),
    (
        "yaml",
        L::Yaml,
        tree_sitter_yaml::LANGUAGE,
        &["yaml", "yml"],
    ),
    ("zig", L::Zig, tree_sitter_zig::LANGUAGE, &["zig", "zon"]),
];

impl Language {
    /// Every language.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|t| t.1)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].0
    }

    /// The grammar.
    pub(crate) fn grammar(self) -> tree_sitter::Language {
        TABLE[self as usize].2.into()
    }

    /// The language of a file, by its name.
    pub fn of_path(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        match name {
            "Rakefile" | "Gemfile" | "Vagrantfile" | "Podfile" | "Fastfile" => {
                return Some(L::Ruby);
            }
            ".bashrc" | ".bash_profile" | ".profile" | ".zshrc" | "PKGBUILD" => {
                return Some(L::Bash);
            }
            "Cargo.lock" | "poetry.lock" | "Pipfile" => return Some(L::Toml),
            _ => {}
        }
        let extension = name.rsplit_once('.')?.1.to_ascii_lowercase();
        TABLE
            .iter()
            .find(|t| t.3.contains(&extension.as_str()))
            .map(|t| t.1)
    }

    /// The language of a file by its name, or by its `#!` line.
    pub fn of(path: &str, text: &str) -> Option<Self> {
        if let Some(l) = Self::of_path(path) {
            // A header is C++ where it says so.
            if l == L::C && path.ends_with(".h") && looks_like_cpp(text) {
                return Some(L::Cpp);
            }
            return Some(l);
        }
        let line = text.strip_prefix("#!")?.lines().next()?;
        let interpreter = line
            .split(|c: char| c == '/' || c.is_whitespace())
            .rfind(|w| !w.is_empty() && !w.starts_with('-') && *w != "env")?;
        let word = interpreter.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        Some(match word {
            "sh" | "bash" | "zsh" | "ksh" | "dash" => L::Bash,
            "python" => L::Python,
            "ruby" => L::Ruby,
            "node" | "deno" | "bun" => L::JavaScript,
            "php" => L::Php,
            "lua" | "luajit" => L::Lua,
            "elixir" => L::Elixir,
            "runghc" | "runhaskell" => L::Haskell,
            _ => return None,
        })
    }

    /// Whether its files hold data or prose rather than code.
    pub fn is_data(self) -> bool {
        matches!(
            self,
            L::Css | L::Html | L::Json | L::Markdown | L::Toml | L::Yaml
        )
    }
}

fn looks_like_cpp(text: &str) -> bool {
    text.lines().take(2_000).any(|line| {
        let line = line.trim_start();
        [
            "class ",
            "namespace ",
            "template <",
            "template<",
            "using ",
            "public:",
            "private:",
            "constexpr ",
        ]
        .iter()
        .any(|w| line.starts_with(w))
            || line.contains("std::")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_grammar_loads() {
        for (i, language) in Language::all().enumerate() {
            assert_eq!(language as usize, i);
            let mut parser = tree_sitter::Parser::new();
            parser
                .set_language(&language.grammar())
                .unwrap_or_else(|e| panic!("{}: {e}", language.name()));
        }
    }

    #[test]
    fn languages_by_name_shebang_and_content() {
        assert_eq!(Language::of_path("src/a.TS"), Some(L::TypeScript));
        assert_eq!(Language::of_path("Makefile"), None);
        assert_eq!(
            Language::of("bin/run", "#!/usr/bin/env python3\n"),
            Some(L::Python)
        );
        assert_eq!(Language::of("bin/run", "#!/bin/bash -e\n"), Some(L::Bash));
        assert_eq!(Language::of("bin/run", "hello"), None);
        assert_eq!(Language::of("a.h", "int f(void);\n"), Some(L::C));
        assert_eq!(Language::of("a.h", "namespace x {\n"), Some(L::Cpp));
    }
}
