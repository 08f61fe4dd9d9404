//! One table a language: fixtures with nested, generic, overloaded, decorated, macro-made,
//! unicode-named and broken code, and the symbols that must come out of them.
//!
//! `UPDATE_SYMBOLS=1` writes the tables anew; read the difference before you commit it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use weft_code::Language;
use weft_code::extract::{Decoded, decode, extract, own_texts};

fn fixtures() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut all: Vec<PathBuf> = std::fs::read_dir(dir)
        .expect("fixtures")
        .map(|e| e.expect("entry").path())
        .filter(|p| p.extension().is_some_and(|e| e != "symbols"))
        .collect();
    all.sort();
    all
}

fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn table(path: &Path, text: &str) -> String {
    let e = extract(&name(path), text);
    let mut out = String::new();
    for s in &e.symbols {
        let _ = write!(
            out,
            "{}-{} {} {}{} | {}",
            s.line,
            s.end_line,
            s.kind.name(),
            if s.exported { '+' } else { '-' },
            s.name,
            s.signature
        );
        if !s.doc.is_empty() {
            let _ = write!(out, " | {}", s.doc);
        }
        out.push('\n');
    }
    out
}

#[test]
fn each_language_gives_its_table() {
    let mut seen = std::collections::HashSet::new();
    for path in fixtures() {
        let text = std::fs::read_to_string(&path).expect("fixture");
        let language = extract(&name(&path), &text).language.expect("language");
        seen.insert(language);
        let found = table(&path, &text);
        let expected = path.with_file_name(format!("{}.symbols", name(&path)));
        if std::env::var_os("UPDATE_SYMBOLS").is_some() {
            std::fs::write(&expected, &found).expect("write");
        }
        let expected = std::fs::read_to_string(&expected).expect("table");
        assert_eq!(found, expected, "{}", path.display());
    }
    for l in Language::all() {
        assert!(seen.contains(&l), "no fixture for {}", l.name());
    }
}

#[test]
fn any_cut_of_any_fixture_is_survived() {
    for path in fixtures() {
        let text = std::fs::read_to_string(&path).expect("fixture");
        for at in (0..text.len())
            .step_by(17)
            .filter(|at| text.is_char_boundary(*at))
        {
            for piece in [&text[..at], &text[at..]] {
                let e = extract(&name(&path), piece);
                assert!(!e.symbols.is_empty());
                for s in &e.symbols {
                    assert!(s.start <= s.end && s.end as usize <= piece.len(), "{s:?}");
                    assert!(
                        piece.get(s.start as usize..s.end as usize).is_some(),
                        "{s:?}"
                    );
                    assert!(s.line >= 1 && s.line <= s.end_line, "{s:?}");
                }
                own_texts(piece, &e.symbols, 4096);
            }
        }
    }
}

#[test]
fn own_texts_give_each_byte_to_one_symbol() {
    let source = "class A {\n  int x;\n  void f() { g(); }\n};\nvoid h() {}\n";
    let e = extract("A.cpp", source);
    let texts = own_texts(source, &e.symbols, 1000);
    let of = |n: &str| {
        let at = e.symbols.iter().position(|s| s.name == n).expect("symbol");
        texts[at].as_str()
    };
    assert!(of("A").contains("int x") && !of("A").contains("g()"));
    assert!(of("A.f").contains("g()"));
    assert!(!of("A.cpp").contains("void"));
}

#[test]
fn odd_files() {
    let deep = format!("x = {}1{}", "(".repeat(20_000), ")".repeat(20_000));
    assert!(!extract("deep.py", &deep).symbols.is_empty());
    let json = "[".repeat(100_000);
    assert!(!extract("deep.json", &json).symbols.is_empty());
    // A class that names itself as its base and its trait.
    let php = "<?php class Test extends Test { use Test; }\ntrait Test { use Test; }\n";
    assert_eq!(extract("t.php", php).symbols.len(), 3);
    let many: String = (0..40_000)
        .map(|i| format!("function f{i}() {{}}\n"))
        .collect();
    assert_eq!(
        extract("many.php", &format!("<?php\n{many}")).symbols.len(),
        40_001
    );
    let latin = b"def gr\xf6\xdfe():\n    pass\n";
    let Decoded::Text(text) = decode(latin) else {
        panic!("text")
    };
    assert_eq!(extract("l.py", &text).symbols[0].name, "l.py");
    assert_eq!(
        extract("notes.unknown", "hello\n").symbols[0].signature,
        "hello"
    );
}
