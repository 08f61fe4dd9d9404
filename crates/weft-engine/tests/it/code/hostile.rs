//! Repositories that want to do harm, and files that are odd.

use super::*;

#[test]
fn what_is_ignored_is_not_read_and_what_is_tracked_is() {
    let p = place();
    // C9 and C10.
    write(&p.root, ".gitignore", "/Library/\nbuild/\n\\[\n");
    write(&p.root, ".prettierignore", "*\n");
    write(&p.root, ".dockerignore", "*\n");
    write(
        &p.root,
        "Library/a.ts",
        "export function ignoredHere() {}\n",
    );
    write(
        &p.root,
        "src/Library/b.ts",
        "export function notIgnoredThere() {}\n",
    );
    write(
        &p.root,
        "build/kept.ts",
        "export function trackedAllTheSame() {}\n",
    );
    git(&p.root, &["add", "-f", "build/kept.ts"]);
    commit(&p.root, "rules");
    write(
        &p.root,
        "build/other.ts",
        "export function builtOnly() {}\n",
    );
    assert!(p.find("ignoredHere").is_empty());
    assert!(p.find("builtOnly").is_empty());
    assert_eq!(p.find("notIgnoredThere").len(), 1);
    assert_eq!(
        p.find("trackedAllTheSame"),
        ["build/kept.ts::trackedAllTheSame"]
    );
    // C7: rules that are no text are named in a warning and the rest goes on.
    std::fs::write(p.root.join("src/.gitignore"), b"\xff\xfe\x00\xd8[\x80\n").expect("write");
    write(&p.root, "src/after.ts", "export function stillThere() {}\n");
    p.sync();
    assert_eq!(p.find("stillThere").len(), 1);
    // An index of nothing says so.
    let empty = p.root.with_file_name("empty");
    std::fs::create_dir(&empty).expect("dir");
    git(&empty, &["init", "-q"]);
    let repo = p.engine.code_repository(&empty).expect("no commits yet");
    let q = CodeQuery {
        query: "anything".into(),
        ..CodeQuery::default()
    };
    let a = p
        .engine
        .code_search(&repo, &q, &mut |_, _, _| {})
        .expect("answer");
    assert!(
        a.notes.iter().any(|n| n.contains("no source files")),
        "{:?}",
        a.notes
    );
}

#[test]
fn files_over_a_limit_are_named_with_their_reason() {
    let p = place();
    // C21: 600 KB by hand is code.
    let mut long = String::new();
    for i in 0..15_000 {
        long.push_str(&format!("export const value{i} = compute({i});\n"));
    }
    long.push_str("export function uniqueNeedle() {}\n");
    write(&p.root, "src/long.ts", &long);
    write(&p.root, "big.sql", &"x".repeat(3 << 20));
    write(
        &p.root,
        "bundle.js",
        &format!("var a={};", "b,".repeat(200_000)),
    );
    std::fs::write(p.root.join("image.png"), b"\x89PNG\0\0\0").expect("write");
    write(&p.root, ".gitattributes", "*.pb.go linguist-generated\n");
    write(
        &p.root,
        "api.pb.go",
        "package api\nfunc GeneratedThing() {}\n",
    );
    let r = p.sync();
    assert_eq!(p.find("uniqueNeedle"), ["src/long.ts::uniqueNeedle"]);
    let reason = |path: &str| {
        r.skipped
            .iter()
            .find(|s| s.0 == path)
            .map(|s| s.1.as_str())
            .unwrap_or_default()
    };
    assert!(reason("big.sql").contains("too large"), "{:?}", r.skipped);
    assert!(reason("bundle.js").contains("minified"));
    assert_eq!(reason("image.png"), "binary");
    assert!(reason("api.pb.go").contains("generated"));
    assert!(p.find("GeneratedThing").is_empty());
    // C22: a reason is never a hit.
    let a = p.search("binary content too large minified");
    assert!(
        a.hits
            .iter()
            .all(|h| !h.file.ends_with(".png") && !h.file.ends_with(".sql")),
        "{:?}",
        a.hits
    );
}

#[test]
fn hostile_repositories_answer_and_run_nothing() {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    let p = place();
    let trap = p.root.with_file_name("ran");
    // Everything that git would run.
    git(
        &p.root,
        &[
            "config",
            "core.fsmonitor",
            &format!("touch {}", trap.display()),
        ],
    );
    git(
        &p.root,
        &[
            "config",
            "filter.evil.clean",
            &format!("touch {}", trap.display()),
        ],
    );
    git(
        &p.root,
        &[
            "config",
            "filter.evil.smudge",
            &format!("touch {}", trap.display()),
        ],
    );
    git(
        &p.root,
        &[
            "config",
            "diff.evil.textconv",
            &format!("touch {}", trap.display()),
        ],
    );
    git(
        &p.root,
        &[
            "config",
            "core.hooksPath",
            p.root.join("hooks").to_str().expect("path"),
        ],
    );
    let _ = std::fs::remove_file(&trap);
    write(&p.root, ".gitattributes", "*.ts filter=evil diff=evil\n");
    write(
        &p.root,
        "hooks/post-checkout",
        &format!("#!/bin/sh\ntouch {}\n", trap.display()),
    );
    // Links: a loop, out of the tree, to a folder.
    let outside = p.root.with_file_name("outside.ts");
    std::fs::write(&outside, "export function outsideOfTheTree() {}\n").expect("write");
    symlink(&outside, p.root.join("src/link.ts")).expect("link");
    symlink(&p.root, p.root.join("src/loop")).expect("link");
    symlink("/", p.root.join("src/root")).expect("link");
    // Names.
    write(
        &p.root,
        "src/new\nline.ts",
        "export function inNewLine() {}\n",
    );
    write(
        &p.root,
        "src/qu\"ote'.ts",
        "export function inQuotes() {}\n",
    );
    std::fs::write(
        p.root
            .join(std::ffi::OsStr::from_bytes(b"src/inv\xff\xfealid.ts")),
        "export function inInvalid() {}\n",
    )
    .expect("write");
    // Depth.
    let mut deep = p.root.clone();
    for _ in 0..300 {
        deep.push("d");
    }
    std::fs::create_dir_all(&deep).expect("deep");
    std::fs::write(deep.join("deep.ts"), "export function veryDeep() {}\n").expect("write");
    // Encodings.
    std::fs::write(
        p.root.join("src/latin.py"),
        b"def gr\xfcssen():\n    pass\ndef after_latin(): pass\n",
    )
    .expect("write");
    let wide: Vec<u8> = [0xFF, 0xFE]
        .into_iter()
        .chain(
            "def in_utf16():\n    pass\n"
                .encode_utf16()
                .flat_map(u16::to_le_bytes),
        )
        .collect();
    std::fs::write(p.root.join("src/wide.py"), wide).expect("write");
    // Sparse: 2 GB that nobody reads.
    std::fs::File::create(p.root.join("huge.bin"))
        .and_then(|f| f.set_len(2 << 30))
        .expect("huge");
    std::fs::write(
        p.root.join("line.json"),
        format!("[{}]", "1,".repeat(25 << 20)),
    )
    .expect("line");
    // A file that cannot be read is reported (root reads everything, so nothing is asserted of it).
    let r = p.sync();
    assert!(r.complete);
    for (name, wanted) in [
        ("inNewLine", 1),
        ("inQuotes", 1),
        ("veryDeep", 1),
        ("after_latin", 1),
        ("in_utf16", 1),
        ("outsideOfTheTree", 0),
    ] {
        assert_eq!(p.find(name).len(), wanted, "{name}");
    }
    assert!(
        r.skipped.iter().any(|s| s.0 == "huge.bin") && r.skipped.iter().any(|s| s.0 == "line.json")
    );
    p.search("what is in a new line?");
    assert!(!trap.exists(), "something was executed");
}

#[test]
fn odd_repositories() {
    let p = place();
    let q = CodeQuery {
        query: "process refund".into(),
        ..CodeQuery::default()
    };
    let ask = |dir: &Path| {
        let repo = p.engine.code_repository(dir).expect("repository");
        p.engine
            .code_search(&repo, &q, &mut |_, _, _| {})
            .expect("answer")
    };
    // Bare.
    let bare = p.root.with_file_name("bare.git");
    git(
        &p.root,
        &["clone", "-q", "--bare", ".", bare.to_str().expect("path")],
    );
    let a = ask(&bare);
    assert_eq!(a.hits[0].symbol, "processRefund");
    // Shallow.
    commit(&p.root, "second");
    let shallow = p.root.with_file_name("shallow");
    let url = format!("file://{}", p.root.display());
    git(
        &p.root,
        &[
            "clone",
            "-q",
            "--depth",
            "1",
            &url,
            shallow.to_str().expect("path"),
        ],
    );
    assert_eq!(ask(&shallow).hits[0].symbol, "processRefund");
    // Detached.
    let head = git(&p.root, &["rev-parse", "HEAD"]);
    git(&p.root, &["checkout", "-q", "--detach"]);
    let a = ask(&p.root);
    assert_eq!(
        (a.workstream.as_str(), a.head.as_str()),
        (head.as_str(), head.as_str())
    );
    // A submodule is another repository.
    let sub = p.root.join("sub");
    git(
        &p.root,
        &[
            "-c",
            "protocol.file.allow=always",
            "clone",
            "-q",
            &url,
            sub.to_str().expect("path"),
        ],
    );
    assert!(
        p.find("processRefund")
            .iter()
            .all(|t| !t.starts_with("sub/"))
    );
    assert_eq!(ask(&sub).hits[0].symbol, "processRefund");
    // A `.git` that points nowhere, and no repository at all.
    let broken = p.root.with_file_name("broken");
    std::fs::create_dir(&broken).expect("dir");
    std::fs::write(broken.join(".git"), "gitdir: /nowhere/at/all\n").expect("write");
    let e = p.engine.code_repository(&broken).expect_err("broken");
    assert!(
        e.to_string().contains("cannot open the git repository") && e.hint().is_some(),
        "{e}"
    );
    let none = p.root.with_file_name("none");
    std::fs::create_dir(&none).expect("dir");
    let e = p.engine.code_repository(&none).expect_err("none");
    assert!(
        e.to_string().contains("not inside a git repository") && e.hint().is_some(),
        "{e}"
    );
    // C34: one folder under several spellings is one index.
    let ids: HashSet<String> = [
        p.root.join("src"),
        p.root.join("./src"),
        p.root.join("src/../src"),
    ]
    .iter()
    .map(|d| p.engine.code_repository(d).expect("repository").id)
    .collect();
    assert_eq!(ids.len(), 1);
    // Unknown branches and bad questions.
    let bad = |q: CodeQuery| {
        p.engine
            .code_search(&p.repo(), &q, &mut |_, _, _| {})
            .expect_err("refused")
            .to_string()
    };
    assert!(
        bad(CodeQuery {
            workstream: Some("nope".into()),
            ..q.clone()
        })
        .contains("no such workstream: nope")
    );
    assert!(
        bad(CodeQuery {
            workstream: Some("--upload-pack=x".into()),
            ..q.clone()
        })
        .contains("no such workstream")
    );
    assert!(
        bad(CodeQuery {
            query: " ".into(),
            ..q.clone()
        })
        .contains("required")
    );
    assert!(
        bad(CodeQuery {
            query: "x".repeat(2_001),
            ..q.clone()
        })
        .contains("2000")
    );
    assert!(
        bad(CodeQuery {
            limit: 51,
            ..q.clone()
        })
        .contains("between 1 and 50")
    );
}

#[test]
fn many_symbols_of_one_name_are_bounded() {
    // C23.
    let p = place();
    for i in 0..50 {
        let text: String = (0..1_000)
            .map(|n| format!("class C{i}_{n}:\n    def get(self): return {n}\n"))
            .collect();
        write(&p.root, &format!("src/many{i}.py"), &text);
    }
    p.sync();
    let q = CodeQuery {
        query: "get".into(),
        limit: 50,
        ..CodeQuery::default()
    };
    let a = p
        .engine
        .code_search(&p.repo(), &q, &mut |_, _, _| {})
        .expect("answer");
    assert_eq!(a.hits.len(), 50);
    assert!(a.hits.iter().all(|h| h.symbol.ends_with(".get")));
}
