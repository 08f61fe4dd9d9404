//! Doc comments: found above a definition by its lines, reduced to prose.

use crate::language::Language;

/// How a language writes comments that can stand above a definition.
struct Style {
    /// Prefixes of line comments, longest first.
    line: &'static [&'static str],
    /// Beginning and end of a block comment.
    block: Option<(&'static str, &'static str)>,
    /// Whether a line above a definition is an attribute, which stands between it and its comment.
    attribute: fn(&str) -> bool,
}

fn no_attribute(_: &str) -> bool {
    false
}

fn hash_attribute(line: &str) -> bool {
    line.starts_with("#[") || line.starts_with("#![")
}

fn at_attribute(line: &str) -> bool {
    line.starts_with('@') && line.len() > 1
}

fn bracket_attribute(line: &str) -> bool {
    line.starts_with('[') && line.ends_with(']')
}

fn template_line(line: &str) -> bool {
    line.starts_with("template") || (line.starts_with("[[") && line.ends_with("]]"))
}

fn style(language: Language) -> Option<Style> {
    use Language as L;
    let c_block = Some(("/*", "*/"));
    let slashes: &[&str] = &["///<", "///", "//!", "//"];
    Some(match language {
        L::Rust | L::Php => Style {
            line: if language == L::Php {
                &["//", "#"]
            } else {
                slashes
            },
            block: c_block,
            attribute: hash_attribute,
        },
        L::JavaScript | L::TypeScript | L::Tsx | L::Java | L::Kotlin | L::Swift | L::Scala => {
            Style {
                line: slashes,
                block: c_block,
                attribute: at_attribute,
            }
        }
        L::CSharp => Style {
            line: slashes,
            block: c_block,
            attribute: bracket_attribute,
        },
        L::C | L::Cpp => Style {
            line: slashes,
            block: c_block,
            attribute: template_line,
        },
        L::Go | L::Css => Style {
            line: slashes,
            block: c_block,
            attribute: no_attribute,
        },
        L::Zig => Style {
            line: slashes,
            block: None,
            attribute: no_attribute,
        },
        L::Python => Style {
            line: &["#:", "#"],
            block: None,
            attribute: at_attribute,
        },
        L::Ruby | L::Bash | L::Toml | L::Yaml => Style {
            line: &["#"],
            block: None,
            attribute: no_attribute,
        },
        L::Elixir => Style {
            line: &["#"],
            block: None,
            attribute: at_attribute,
        },
        L::Haskell => Style {
            line: &["-- |", "-- ^", "--"],
            block: Some(("{-", "-}")),
            attribute: no_attribute,
        },
        L::Lua => Style {
            line: &["---", "--"],
            block: Some(("--[[", "]]")),
            attribute: no_attribute,
        },
        L::Sql => Style {
            line: &["--"],
            block: c_block,
            attribute: no_attribute,
        },
        L::Html | L::Json | L::Markdown => return None,
    })
}

/// Most lines of a comment that are read.
const MAX_LINES: usize = 60;

/// The comment right above byte `start`, markers removed; "" where there is none.
pub(super) fn above(language: Language, text: &str, start: usize) -> String {
    let Some(style) = style(language) else {
        return String::new();
    };
    let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
    let mut lines: Vec<&str> = Vec::new();
    let script = matches!(
        language,
        Language::JavaScript | Language::TypeScript | Language::Tsx
    );
    let mut in_block = false;
    let mut kind_of_line: Option<bool> = None;
    let mut rest = &text[..line_start];
    for _ in 0..MAX_LINES {
        let Some(without_end) = rest.strip_suffix('\n') else {
            break;
        };
        let at = without_end.rfind('\n').map_or(0, |i| i + 1);
        let line = without_end[at..].trim();
        rest = &rest[..at];
        if in_block {
            let (open, _) = style.block.unwrap_or(("", ""));
            lines.push(line);
            if line.starts_with(open) {
                break;
            }
            continue;
        }
        if line.is_empty() {
            // JSDoc is often set off by one blank line.
            let above = rest.trim_end_matches([' ', '\t', '\r', '\n']);
            if lines.is_empty() && script && rest.len() - above.len() <= 2 && above.ends_with("*/")
            {
                continue;
            }
            break;
        }
        if kind_of_line.is_none()
            && let Some((open, close)) = style.block
            && line.ends_with(close)
        {
            if line.starts_with(open) {
                lines.push(line);
                break;
            }
            // Code before the comment on its line: not a comment above.
            lines.push(line);
            in_block = true;
            continue;
        }
        if (style.attribute)(line) && lines.is_empty() {
            continue;
        }
        if line.starts_with("#!") || !style.line.iter().any(|p| line.starts_with(p)) {
            break;
        }
        kind_of_line = Some(true);
        lines.push(line);
    }
    if in_block {
        let (open, _) = style.block.unwrap_or(("", ""));
        if !lines.last().is_some_and(|l| l.starts_with(open)) {
            return String::new();
        }
    }
    lines.reverse();
    clean(&lines, &style)
}

/// The comment at the very top of a file.
pub(super) fn of_file(language: Language, text: &str) -> String {
    if language == Language::Python {
        let t = text.trim_start();
        let mut body = t;
        while body.starts_with('#') {
            body = body.split_once('\n').map_or("", |p| p.1).trim_start();
        }
        for quote in ["\"\"\"", "'''"] {
            if let Some(inner) = body
                .strip_prefix(quote)
                .or_else(|| body.strip_prefix('r').and_then(|b| b.strip_prefix(quote)))
                && let Some((doc, _)) = inner.split_once(quote)
            {
                return doc.trim().to_owned();
            }
        }
    }
    let Some(style) = style(language) else {
        return String::new();
    };
    let mut best = String::new();
    let mut lines: Vec<&str> = Vec::new();
    let mut in_block = false;
    for line in text.lines().take(120).map(str::trim) {
        if in_block {
            lines.push(line);
            if style.block.is_some_and(|b| line.ends_with(b.1)) {
                in_block = false;
            }
            continue;
        }
        let is_block = style.block.is_some_and(|b| line.starts_with(b.0));
        let is_line = !line.starts_with("#!") && style.line.iter().any(|p| line.starts_with(p));
        if is_block {
            lines.push(line);
            in_block = !style
                .block
                .is_some_and(|b| line[b.0.len()..].ends_with(b.1));
        } else if is_line {
            lines.push(line);
        } else if !lines.is_empty() {
            let doc = clean(&lines, &style);
            lines.clear();
            // A licence or a message to a tool says nothing about the file.
            if best.is_empty() && !is_licence(&doc) {
                best = doc;
            }
        }
        if !best.is_empty()
            || !(is_block
                || is_line
                || line.is_empty()
                || line.starts_with("#!")
                || line.starts_with("<?php")
                || line.starts_with("package ")
                || line.starts_with("declare(")
                || line.starts_with("#ifndef")
                || line.starts_with("#define"))
        {
            break;
        }
    }
    if best.is_empty() && !lines.is_empty() {
        let doc = clean(&lines, &style);
        if !is_licence(&doc) {
            best = doc;
        }
    }
    best
}

fn is_licence(doc: &str) -> bool {
    let head: String = doc.chars().take(600).collect::<String>().to_lowercase();
    [
        "copyright",
        "licensed",
        "license",
        "spdx",
        "all rights reserved",
        "frozen_string_literal",
        "shellcheck",
        "coding:",
        "eslint",
        "jshint",
    ]
    .iter()
    .any(|w| head.contains(w))
}

fn clean(lines: &[&str], style: &Style) -> String {
    let mut out = String::new();
    for line in lines {
        let mut l = *line;
        if let Some((open, close)) = style.block {
            l = l.strip_suffix(close).unwrap_or(l);
            l = l.strip_prefix(open).unwrap_or(l);
            l = l.trim_start_matches(['*', '!']).trim_start_matches('<');
        }
        for prefix in style.line {
            if let Some(r) = l.strip_prefix(prefix) {
                l = r;
                break;
            }
        }
        let l = l
            .trim()
            .trim_end_matches("*/")
            .trim_start_matches("| ")
            .trim();
        // Rulers say nothing.
        if l.chars()
            .all(|c| matches!(c, '-' | '=' | '*' | '#' | '/' | '~'))
        {
            out.push('\n');
            continue;
        }
        out.push_str(l);
        out.push('\n');
    }
    strip_tags(out.trim())
}

/// Removes XML documentation tags (`<summary>`, `<see cref="X"/>`) and keeps what they name.
fn strip_tags(text: &str) -> String {
    if !text.contains('<') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..at]);
        let inner = &rest[at + 1..];
        let is_tag = inner.starts_with(|c: char| c.is_ascii_lowercase() || c == '/');
        match inner.find('>') {
            Some(end) if is_tag && end < 80 => {
                if let Some(name) = inner[..end].split('"').nth(1) {
                    out.push_str(name);
                }
                rest = &inner[end + 1..];
            }
            _ => {
                out.push('<');
                rest = inner;
            }
        }
    }
    out.push_str(rest);
    out.trim().to_owned()
}

/// The first sentence of a comment, and what follows it (at most `more` characters).
pub(super) fn split(doc: &str, more: usize) -> (String, String) {
    let mut first = String::new();
    let mut rest_at = doc.len();
    let mut at = 0;
    for line in doc.split_inclusive('\n') {
        let text = line.trim();
        let stop = text.is_empty()
            || text.starts_with('@')
            || text.starts_with(":param")
            || text.starts_with("\\param")
            || text.starts_with("```")
            || text.starts_with("{{{")
            || text == "Example:";
        if stop {
            if !first.is_empty() {
                rest_at = at;
                break;
            }
            at += line.len();
            continue;
        }
        if !first.is_empty() {
            first.push(' ');
        }
        let text = text.trim_start_matches("# ").trim_start_matches("\\brief ");
        if let Some(end) = sentence_end(text) {
            first.push_str(&text[..end]);
            rest_at = at + line.find(text).unwrap_or(0) + end;
            break;
        }
        first.push_str(text);
        at += line.len();
    }
    if rest_at > doc.len() {
        rest_at = doc.len();
    }
    let rest: String = fold(&doc[rest_at..]).chars().take(more).collect();
    (weft_core::project::cut_chars(&fold(&first), 200), rest)
}

/// Where the first sentence ends, after its mark.
fn sentence_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    for (i, b) in bytes.iter().enumerate() {
        match b {
            b'.' | b'!' | b'?' => {}
            _ => continue,
        }
        let next_is_space = bytes.get(i + 1).is_none_or(|n| n.is_ascii_whitespace());
        let abbreviation = text[..i].ends_with("e.g")
            || text[..i].ends_with("i.e")
            || text[..i].ends_with("etc")
            || text[..i].ends_with("vs");
        if next_is_space && !abbreviation {
            return Some(i + 1);
        }
    }
    text.char_indices()
        .find(|(_, c)| matches!(c, '。' | '！' | '？'))
        .map(|(i, c)| i + c.len_utf8())
}

/// Folds white space to single blanks.
pub(super) fn fold(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_sentences() {
        assert_eq!(
            split("Adds. Then more.\nAnd", 400),
            ("Adds.".into(), "Then more. And".into())
        );
        assert_eq!(
            split("Adds e.g. two\nnumbers.", 400).0,
            "Adds e.g. two numbers."
        );
        assert_eq!(split("\n  Adds\n\n@param x y", 400).0, "Adds");
        assert_eq!(split("", 400), (String::new(), String::new()));
    }

    #[test]
    fn comments_above() {
        let t = "/// Adds.\n/// Well.\n#[inline]\nfn f() {}";
        assert_eq!(
            above(Language::Rust, t, t.find("fn").expect("fn")),
            "Adds.\nWell."
        );
        let t = "/**\n * Adds.\n */\n@Deco()\nclass A {}";
        assert_eq!(
            above(Language::TypeScript, t, t.find("class").expect("class")),
            "Adds."
        );
        let t = "// far\n\nfunc f() {}";
        assert_eq!(above(Language::Go, t, t.find("func").expect("func")), "");
        let t = "/// <summary>Adds <see cref=\"X\"/>.</summary>\n[Attr]\nvoid F() {}";
        assert_eq!(
            above(Language::CSharp, t, t.find("void").expect("void")),
            "Adds X."
        );
        let t = "int x; /* no\n block */\nint f();";
        assert_eq!(above(Language::C, t, t.find("int f").expect("f")), "");
    }

    #[test]
    fn comments_of_files() {
        assert_eq!(of_file(Language::Rust, "//! Tells.\nuse x;"), "Tells.");
        assert_eq!(
            of_file(
                Language::Python,
                "#!/usr/bin/env python\n\"\"\"Tells.\n\"\"\"\n"
            ),
            "Tells."
        );
        assert_eq!(
            of_file(
                Language::Go,
                "// Copyright 2020 X. License Y.\n\n// Package a tells.\npackage a\n"
            ),
            "Package a tells."
        );
    }
}
