//! A briefing as text, within a budget: for the start of a session, before an edit, and as a prompt.

use weft_core::code::tokens;
use weft_core::project::cut_chars;
use weft_engine::brief::Briefing;

use crate::code_text::safe;

/// Code points of why, of one decision.
const WHY: usize = 240;
/// Files that one line names.
const FILES: usize = 3;

fn flat(text: &str, max: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    safe(&cut_chars(&words.join(" "), max))
}

/// What a briefing says, at most so many tokens; "" = there is nothing to say.
pub fn briefing(b: &Briefing, budget: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    if !b.governing.is_empty() {
        lines.push(
            "Decisions that govern these files (keep to them, or supersede them with a reason):"
                .into(),
        );
    }
    for g in &b.governing {
        let d = &g.decision;
        let mut files = g
            .files
            .iter()
            .take(FILES)
            .map(|f| safe(f))
            .collect::<Vec<_>>()
            .join(", ");
        if g.files.len() > FILES {
            files.push_str(&format!(" and {} more", g.files.len() - FILES));
        }
        let names = if g.mentioned { "names" } else { "for" };
        let mut line = format!(
            "- [{}] {} ({}; {names} {files})",
            d.status.name(),
            flat(&d.record.title, 160),
            safe(&d.path)
        );
        let why = flat(&d.record.rationale, WHY);
        if !why.is_empty() {
            line.push_str(&format!("\n  why: {why}"));
        }
        if let Some(s) = &g.stale {
            line.push_str(&format!(
                "\n  stale: {}; check that it still holds",
                flat(&s.text(), WHY)
            ));
        }
        lines.push(line);
    }
    if !b.stale.is_empty() {
        lines.push("Stale decisions: what they govern changed since they were made.".into());
    }
    for (d, s) in &b.stale {
        lines.push(format!(
            "- {} ({}): {}",
            flat(&d.record.title, 160),
            safe(&d.path),
            flat(&s.text(), WHY)
        ));
    }
    fit(lines, budget)
}

/// As many of the first lines as the budget holds; what is left out is counted.
fn fit(lines: Vec<String>, budget: usize) -> String {
    let all = lines.len();
    for shown in (0..=all).rev() {
        // A heading alone says nothing.
        if shown > 0 && shown < all && !lines[shown - 1].starts_with('-') {
            continue;
        }
        let mut text = lines[..shown].join("\n");
        let left = lines[shown..].iter().filter(|l| l.starts_with('-')).count();
        if left > 0 && shown > 0 {
            text.push_str(&format!(
                "\n… and {left} more: `weft decisions stale`, `weft decisions for-file PATH`"
            ));
        }
        if tokens::count(&text) <= budget {
            return text;
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let lines = |n: usize| {
            let mut all = vec!["Heading:".to_owned()];
            all.extend((0..n).map(|i| format!("- decision number {i} about something")));
            all
        };
        assert_eq!(fit(Vec::new(), 10), "");
        assert_eq!(fit(lines(2), 1_000).lines().count(), 3);
        let cut = fit(lines(50), 100);
        assert!(cut.starts_with("Heading:\n- decision number 0"), "{cut}");
        assert!(
            cut.contains("… and ") && tokens::count(&cut) <= 100,
            "{cut}"
        );
        assert_eq!(fit(lines(50), 3), "");
    }
}
