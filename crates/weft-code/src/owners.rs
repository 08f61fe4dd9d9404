//! CODEOWNERS: who owns a path. GitHub's places and its rule that the last match wins.

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Where GitHub looks, in this order; the first that exists counts.
pub const PLACES: [&str; 3] = [".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS"];

/// Parsed owners.
#[derive(Debug, Default)]
pub struct Owners {
    /// One matcher a line, in order, with the owners of it.
    rules: Vec<(Gitignore, String)>,
}

impl Owners {
    /// Parses a CODEOWNERS file. A line that cannot be understood is left out.
    pub fn parse(text: &str) -> Self {
        let mut rules = Vec::new();
        for line in text.lines() {
            let line = line.split(" #").next().unwrap_or_default().trim();
            if line.is_empty() || line.starts_with(['#', '!', '[', '^']) {
                continue;
            }
            let mut words = line.split_whitespace();
            let Some(pattern) = words.next() else {
                continue;
            };
            let owners: Vec<&str> = words.collect();
            let mut builder = GitignoreBuilder::new("");
            if builder.add_line(None, pattern).is_ok()
                && let Ok(matcher) = builder.build()
            {
                rules.push((matcher, owners.join(" ")));
            }
        }
        Self { rules }
    }

    /// The owners of a path as the file writes them, without `@`; `None` where no line says.
    pub fn of(&self, path: &str) -> Option<String> {
        let (_, owners) = self
            .rules
            .iter()
            .rev()
            .find(|(m, _)| m.matched_path_or_any_parents(path, false).is_ignore())?;
        let names: Vec<&str> = owners
            .split(' ')
            .map(|o| o.trim_start_matches('@'))
            .collect();
        Some(names.join(", ")).filter(|o| !o.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_match_wins() {
        let o = Owners::parse(
            "# comment\n* @everyone\n*.rs @rusty # trailing\n/docs/ @writers doc@example.org\napps/ @apps\n/secret/\n",
        );
        assert_eq!(o.of("README").as_deref(), Some("everyone"));
        assert_eq!(o.of("src/a.rs").as_deref(), Some("rusty"));
        assert_eq!(
            o.of("docs/a/b.md").as_deref(),
            Some("writers, doc@example.org")
        );
        assert_eq!(o.of("x/docs/b.md").as_deref(), Some("everyone"));
        assert_eq!(o.of("x/apps/y.js").as_deref(), Some("apps"));
        assert_eq!(o.of("secret/key"), None);
        assert_eq!(Owners::parse("").of("a"), None);
    }
}
