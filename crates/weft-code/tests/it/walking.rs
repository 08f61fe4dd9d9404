//! What a walk enters, and what it compares afterwards.

use std::fs;

use weft_code::walk::{changed, walk};

#[test]
fn ignored_folders_are_never_entered() {
    // C14: the filter stands before the walk, not behind it.
    let tmp = tempfile::tempdir().expect("dir");
    let root = tmp.path().canonicalize().expect("path");
    fs::create_dir(root.join(".git")).expect("git");
    fs::write(root.join(".gitignore"), "node_modules/\n").expect("rules");
    for i in 0..50 {
        let deep = root.join(format!("node_modules/p{i}/lib"));
        fs::create_dir_all(&deep).expect("folder");
        fs::write(deep.join("x.js"), "x").expect("file");
    }
    fs::create_dir(root.join("src")).expect("src");
    fs::write(root.join("src/a.js"), "a").expect("file");
    let w = walk(&root, &mut std::iter::empty());
    let paths: Vec<&str> = w.files.iter().map(|f| f.path.as_str()).collect();
    assert_eq!(paths, [".gitignore", "src/a.js"]);
    assert!(
        w.folders
            .iter()
            .all(|(f, _)| !f.starts_with(root.join("node_modules")))
    );
    assert!(w.warnings.is_empty(), "{:?}", w.warnings);
}

#[test]
fn a_comparison_tells_what_changed_or_that_a_walk_is_due() {
    let tmp = tempfile::tempdir().expect("dir");
    let root = tmp.path().canonicalize().expect("path");
    fs::create_dir_all(root.join("src")).expect("src");
    for name in ["a", "b", "c"] {
        fs::write(root.join("src").join(name), name).expect("file");
    }
    let w = walk(&root, &mut std::iter::empty());
    let files: Vec<_> = w.files.iter().map(|f| (f.path.as_str(), f.stat)).collect();
    assert_eq!(changed(&root, &w.folders, &files), Some(vec![]));
    fs::write(root.join("src/b"), "longer").expect("write");
    assert_eq!(changed(&root, &w.folders, &files), Some(vec![1]));
    fs::write(root.join("src/new"), "new").expect("write");
    assert_eq!(changed(&root, &w.folders, &files), None);
}

#[test]
fn a_hundred_thousand_empty_files_are_listed() {
    let tmp = tempfile::tempdir().expect("dir");
    let root = tmp.path().canonicalize().expect("path");
    for d in 0..100 {
        let dir = root.join(format!("d{d}"));
        fs::create_dir(&dir).expect("dir");
        for f in 0..1_000 {
            fs::File::create(dir.join(format!("f{f}.py"))).expect("file");
        }
    }
    let w = walk(&root, &mut std::iter::empty());
    assert_eq!((w.files.len(), w.folders.len() > 100), (100_000, true));
}
