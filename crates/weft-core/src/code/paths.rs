//! Path prefixes as users write them, and what a path says about its file.

/// Path prefixes from arguments: comma lists, repeats, `./`, trailing slashes, Windows separators.
///
/// # Errors
/// A prefix that is absolute or leaves the repository.
pub fn prefixes<S: AsRef<str>>(given: &[S]) -> Result<Vec<String>, String> {
    let mut out: Vec<String> = Vec::new();
    for part in given.iter().flat_map(|g| g.as_ref().split(',')) {
        let part = part.trim().replace('\\', "/");
        if part.is_empty() {
            continue;
        }
        let drive =
            part.as_bytes().get(1) == Some(&b':') && part.as_bytes()[0].is_ascii_alphabetic();
        if part.starts_with('/') || part.starts_with('~') || drive {
            return Err(format!(
                "path prefix {part:?} is not relative to the repository"
            ));
        }
        if part.contains('\0') {
            return Err("a path prefix holds a NUL".into());
        }
        let folder = part.ends_with('/');
        let mut names: Vec<&str> = Vec::new();
        for name in part.split('/') {
            match name {
                "" | "." => {}
                ".." => {
                    if names.pop().is_none() {
                        return Err(format!("path prefix {part:?} leaves the repository"));
                    }
                }
                n => names.push(n),
            }
        }
        let mut clean = names.join("/");
        // The whole repository is no filter.
        if clean.is_empty() {
            return Ok(Vec::new());
        }
        if folder {
            clean.push('/');
        }
        if !out.contains(&clean) {
            out.push(clean);
        }
    }
    Ok(out)
}

/// Whether a path lies under one of the prefixes; no prefix means all.
pub fn under(path: &str, prefixes: &[String]) -> bool {
    prefixes.is_empty() || prefixes.iter().any(|p| path.starts_with(p.as_str()))
}

/// What a file is for, as its path tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// Tests and fixtures.
    pub test: bool,
    /// Examples, samples, demonstrations, benchmarks.
    pub example: bool,
    /// Vendored, generated or built.
    pub generated: bool,
    /// Compatibility and deprecated code.
    pub compat: bool,
    /// Documentation, change logs, configuration.
    pub prose: bool,
    /// Types without code (`.d.ts`, `.pyi`).
    pub stub: bool,
}

/// The role of a file.
pub fn role(path: &str) -> Role {
    let lower = path.to_ascii_lowercase();
    let mut r = Role::default();
    let (folders, name) = lower.rsplit_once('/').unwrap_or(("", &lower));
    for f in folders.split('/') {
        match f {
            "test" | "tests" | "__tests__" | "spec" | "specs" | "testing" | "testdata"
            | "fixtures" | "e2e" | "__mocks__" | "mocks" => {
                r.test = true;
            }
            "example" | "examples" | "sample" | "samples" | "demo" | "demos" | "bench"
            | "benches" | "benchmark" | "benchmarks" | "playground" | "tutorial" | "tutorials" => {
                r.example = true;
            }
            "vendor" | "third_party" | "third-party" | "node_modules" | "dist" | "generated"
            | "gen" | "__generated__" | "_generated" => {
                r.generated = true;
            }
            "compat" | "legacy" | "deprecated" | "_compat" => r.compat = true,
            "docs" | "doc" | "website" => r.prose = true,
            _ => {}
        }
        if f.ends_with("test") && f.len() > 5 || f.ends_with("tests") {
            r.test = true;
        }
    }
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    r.test |= stem.starts_with("test_")
        || stem.ends_with("_test")
        || stem.ends_with(".test")
        || stem.ends_with(".spec")
        || stem.ends_with("_spec")
        || stem.ends_with("-test")
        || stem == "conftest"
        || (path_stem_ends(path, &["Test", "Tests", "Spec", "IT", "TestCase"])
            && !folders.is_empty());
    r.example |=
        stem.ends_with("_bench") || stem.ends_with("benchmark") || stem.starts_with("example");
    r.generated |= stem.ends_with(".pb")
        || stem.ends_with("_pb2")
        || stem.ends_with(".g")
        || stem.ends_with("_generated")
        || stem.ends_with(".gen")
        || stem.ends_with(".min");
    r.compat |= stem == "compat"
        || stem == "_compat"
        || stem.ends_with("_compat")
        || stem.contains("deprecated")
        || stem.contains("legacy");
    r.prose |= matches!(
        extension,
        "md" | "rst"
            | "txt"
            | "adoc"
            | "html"
            | "css"
            | "json"
            | "toml"
            | "yaml"
            | "yml"
            | "xml"
            | "lock"
            | "csv"
            | "svg"
            | "ini"
            | "cfg"
            | ""
    );
    r.stub = name.ends_with(".d.ts") || extension == "pyi";
    r
}

fn path_stem_ends(path: &str, ends: &[&str]) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.split('.').next().unwrap_or(name);
    ends.iter().any(|e| {
        stem.strip_suffix(e)
            .is_some_and(|s| s.ends_with(|c: char| c.is_lowercase() || c.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_as_people_write_them() {
        let p = |a: &[&str]| prefixes(a);
        assert_eq!(
            p(&["src/api/,lib/http", "./src/api/"]),
            Ok(vec!["src/api/".into(), "lib/http".into()])
        );
        assert_eq!(p(&["src\\api\\"]), Ok(vec!["src/api/".into()]));
        assert_eq!(p(&["a/../b//c"]), Ok(vec!["b/c".into()]));
        assert_eq!(p(&[".", "x"]), Ok(vec![]));
        assert_eq!(p(&["", " , "]), Ok(vec![]));
        for bad in ["/etc", "../x", "a/../../x", "C:\\x", "~/x", "a\0b"] {
            assert!(p(&[bad]).is_err(), "{bad}");
        }
        assert!(under("src/api/a.rs", &["src/a".into()]));
        assert!(!under("src/b.rs", &["src/a".into()]));
    }

    #[test]
    fn roles() {
        assert!(
            role("src/foo_test.go").test && role("tests/a.py").test && role("a/FooTest.java").test
        );
        assert!(
            role("a.spec.ts").test && !role("src/latest.rs").test && !role("src/contest.py").test
        );
        assert!(role("examples/a.rs").example && role("vendor/x.c").generated);
        assert!(role("README.md").prose && role("types/x.d.ts").stub);
        assert_eq!(role("src/main.rs"), Role::default());
    }
}
