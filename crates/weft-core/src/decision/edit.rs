//! Writing records: a new one, and changes that leave every other byte alone.

use super::read::{Place, Record};
use super::{Alternative, Status, Type, slug_of_path};

/// A new decision, as it is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    /// Title.
    pub title: String,
    /// Why.
    pub rationale: String,
    /// What it is about.
    pub kind: Type,
    /// Where it stands.
    pub status: Status,
    /// Who decided.
    pub made_by: String,
    /// `YYYY-MM-DD`.
    pub date: String,
    /// Files, globs and `file::symbol` targets.
    pub files: Vec<String>,
    /// What was turned down.
    pub alternatives: Vec<Alternative>,
    /// File names of the records that it replaces.
    pub supersedes: Vec<String>,
}

/// A YAML scalar: plain where that is safe, else in double quotes.
fn scalar(text: &str) -> String {
    let plain = !text.is_empty()
        && text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_'))
        && !text.contains([':', '#', ',', '[', ']', '{', '}', '"', '\'', '\n', '\\'])
        && text.trim() == text;
    if plain {
        text.to_owned()
    } else {
        format!("\"{}\"", one_line(text).replace('"', "'"))
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn flow(items: &[String]) -> String {
    format!(
        "[{}]",
        items
            .iter()
            .map(|i| scalar(i))
            .collect::<Vec<_>>()
            .join(", ")
    )
}

/// The text of a new record: MADR 4, with front matter for what MADR has no place for.
pub fn madr(d: &Draft) -> String {
    let mut t = format!("---\nstatus: {}\ndate: {}\n", d.status.name(), d.date);
    if !d.made_by.is_empty() {
        t.push_str(&format!(
            "decision-makers: {}\n",
            flow(std::slice::from_ref(&d.made_by))
        ));
    }
    t.push_str(&format!("type: {}\n", d.kind.name()));
    if !d.files.is_empty() {
        t.push_str(&format!("files: {}\n", flow(&d.files)));
    }
    if !d.supersedes.is_empty() {
        t.push_str(&format!("supersedes: {}\n", flow(&d.supersedes)));
    }
    let title = one_line(&d.title);
    t.push_str(&format!("---\n\n# {title}\n"));
    if !d.alternatives.is_empty() {
        t.push_str(&format!("\n## Considered Options\n\n* {title}\n"));
        for a in &d.alternatives {
            t.push_str(&format!("* {}\n", one_line(&a.name)));
        }
    }
    t.push_str("\n## Decision Outcome\n\n");
    if !d.alternatives.is_empty() {
        t.push_str(&format!("Chosen option: \"{title}\".\n\n"));
    }
    t.push_str(d.rationale.trim());
    t.push('\n');
    let reasons: Vec<&Alternative> = d
        .alternatives
        .iter()
        .filter(|a| !a.why_not.is_empty())
        .collect();
    if !reasons.is_empty() {
        t.push_str("\n## Pros and Cons of the Options\n");
        for a in reasons {
            t.push_str(&format!(
                "\n### {}\n\n* Bad, because {}\n",
                one_line(&a.name),
                one_line(&a.why_not)
            ));
        }
    }
    t
}

/// The line end that a text uses.
fn line_end(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// What replaces a state: the word itself, and by which record.
fn state_text(
    status: Status,
    by: Option<(&str, &str)>,
    place: Option<&Place>,
    had: &str,
) -> String {
    let capital = had.starts_with(|c: char| c.is_uppercase()) || had.is_empty();
    let name = status.name();
    let word = if capital {
        let (first, rest) = name.split_at(1);
        first.to_ascii_uppercase() + rest
    } else {
        name.to_owned()
    };
    match by {
        // YAML would read a link's bracket as text too, but MADR 4 names the record there.
        Some((path, _)) if matches!(place, Some(Place::Front(_))) => {
            format!("{word} by {}", slug_of_path(path))
        }
        Some((path, title)) => format!("{word} by [{title}]({path})"),
        None => word,
    }
}

/// The text with another status. `by` is the record that replaces it: its path from here and its
/// title. Only the state changes; what else stands in the status section stays.
pub fn set_status(text: &str, record: &Record, status: Status, by: Option<(&str, &str)>) -> String {
    let end = line_end(text);
    match &record.place {
        Some(p @ (Place::Front(at) | Place::Line(at) | Place::Section(at))) => {
            let had = &text[at.clone()];
            let mut to = at.end;
            // `Superseded by [x](y)` gives way as a whole, since it names the record before.
            if record.status == Some(Status::Superseded) {
                let rest = text[to..]
                    .split(['\n', '\r', '|'])
                    .next()
                    .unwrap_or_default();
                if rest.trim_start().starts_with("by") {
                    to += rest.trim_end().len();
                }
            }
            let new = state_text(status, by, Some(p), had);
            format!("{}{new}{}", &text[..at.start], &text[to..])
        }
        None if record.front.is_some() => {
            let at = record.front.clone().map_or(0, |f| f.end);
            let new = state_text(status, by, Some(&Place::Front(0..0)), "x");
            format!("{}status: {new}{end}{}", &text[..at], &text[at..])
        }
        None => {
            let at = record.after_title;
            let new = state_text(status, by, None, "x");
            let gap = if at == 0 { "" } else { end };
            let line = format!(
                "{gap}{}* Status: {new}{end}",
                if at == 0 { "" } else { end }
            );
            format!("{}{line}{}", &text[..at], &text[at..])
        }
    }
}

/// The text with a line that says which record it replaces: its path from here and its title.
pub fn add_supersedes(text: &str, record: &Record, path: &str, title: &str) -> String {
    let end = line_end(text);
    let line = format!("Supersedes [{title}]({path})");
    if let (Some(Place::Section(_)), Some(at)) = (&record.place, record.status_end) {
        return format!("{}{end}{end}{line}{}", &text[..at], &text[at..]);
    }
    if let Some(front) = &record.front {
        return set_front(text, front.end, "supersedes", &flow(&[path.to_owned()]));
    }
    let at = match &record.place {
        Some(Place::Line(at)) => {
            at.end
                + text[at.end..]
                    .find(['\n', '\r'])
                    .unwrap_or(text.len() - at.end)
        }
        _ => record.after_title,
    };
    format!(
        "{}{end}* Supersedes: [{title}]({path}){}",
        &text[..at],
        &text[at..]
    )
}

/// The text with the day and the commit at which somebody found that it still holds; `None` where the
/// record has no front matter to say so in.
pub fn reaffirm(text: &str, record: &Record, when: &str) -> Option<String> {
    let front = record.front.as_ref()?;
    let lines = text[front.clone()].split_inclusive('\n');
    let mut at = front.start;
    for raw in lines {
        if raw.starts_with("reaffirmed:") {
            let end = &raw[raw.trim_end_matches(['\n', '\r']).len()..];
            return Some(format!(
                "{}reaffirmed: {when}{end}{}",
                &text[..at],
                &text[at + raw.len()..]
            ));
        }
        at += raw.len();
    }
    Some(set_front(text, front.end, "reaffirmed", when))
}

fn set_front(text: &str, at: usize, key: &str, value: &str) -> String {
    format!(
        "{}{key}: {value}{}{}",
        &text[..at],
        line_end(text),
        &text[at..]
    )
}

#[cfg(test)]
mod tests {
    use super::super::read::read;
    use super::*;

    fn superseded(path: &str, text: &str) -> String {
        let r = read(path, text.as_bytes()).expect("record");
        set_status(
            text,
            &r,
            Status::Superseded,
            Some(("0012-title.md", "12. Title")),
        )
    }

    #[test]
    fn only_the_state_changes() {
        let adr = "# 3. X\r\n\r\n## Status\r\n\r\nAccepted\r\n\r\nAmended by [9. H](0009-h.md), see <https://x>\r\n\r\n## Context\r\n\r\nAccepted.\r\n";
        assert_eq!(
            superseded("doc/adr/0003-x.md", adr),
            adr.replacen("Accepted", "Superseded by [12. Title](0012-title.md)", 1)
        );
        let madr = "---\nstatus: accepted # by all\ndate: 2024-01-01\n---\n# X\n";
        assert_eq!(
            superseded("d/1-x.md", madr),
            madr.replace("accepted", "superseded by 0012-title")
        );
        let list = "# X\n\n* Status: accepted\n* Date: 2024-01-01\n";
        assert_eq!(
            superseded("d/1-x.md", list),
            list.replace("accepted", "superseded by [12. Title](0012-title.md)")
        );
        let table = "# X\n\n| Status | Approved |\n| Date | 2024-01-01 |\n";
        assert_eq!(
            superseded("d/1-x.md", table),
            table.replace("Approved", "Superseded by [12. Title](0012-title.md)")
        );
        let again = superseded("doc/adr/0003-x.md", &superseded("doc/adr/0003-x.md", adr));
        assert_eq!(again.matches("Superseded by").count(), 1);
    }

    #[test]
    fn a_record_without_a_status_gets_one() {
        for text in [
            "# X\n\nBody\n",
            "---\ntags: [a]\n---\n# X\n\nBody\n",
            "Body only\n",
        ] {
            let new = superseded("d/1-x.md", text);
            let r = read("d/1-x.md", new.as_bytes()).expect("record");
            assert_eq!(r.status, Some(Status::Superseded), "{new}");
            assert!(split_at_insert(text, &new), "{new}");
        }
    }

    /// Whether `new` is `old` with one piece put in.
    fn split_at_insert(old: &str, new: &str) -> bool {
        (0..=old.len())
            .filter(|i| old.is_char_boundary(*i))
            .any(|i| new.starts_with(&old[..i]) && new.ends_with(&old[i..]))
    }

    #[test]
    fn a_new_record_says_what_was_told() {
        let d = Draft {
            title: "Use \"JWT\": for auth".into(),
            rationale: "Stateless.\n\n## Status\n\nnot this one".into(),
            kind: Type::Tradeoff,
            status: Status::Proposed,
            made_by: "Ann, of: Ops".into(),
            date: "2026-04-13".into(),
            files: vec!["src/a,b.ts".into(), "src/x.rs::f".into()],
            alternatives: vec![
                Alternative::parse("Cookies: need Redis"),
                Alternative::parse("SAML"),
            ],
            supersedes: vec!["0003-x.md".into()],
        };
        let r = read("d/0004-use-jwt.md", madr(&d).as_bytes()).expect("record");
        assert_eq!(r.title, d.title);
        assert_eq!((r.kind, r.status), (Some(d.kind), Some(d.status)));
        assert_eq!(r.made_by, [d.made_by]);
        assert_eq!(r.files, d.files);
        assert_eq!(r.alternatives, d.alternatives);
        assert_eq!(r.supersedes[0].to, "0003-x.md");
        assert!(r.rationale.starts_with("Stateless."), "{}", r.rationale);
        let plain = Draft {
            title: "T".into(),
            rationale: "Because.\n\nTwo parts.".into(),
            ..Draft::default()
        };
        let r = read("d/1-x.md", madr(&plain).as_bytes()).expect("record");
        assert_eq!(r.rationale, plain.rationale);
    }

    #[test]
    fn the_other_end_and_a_reaffirmation() {
        let adr = "# 12. T\n\n## Status\n\nAccepted\n\n## Context\n";
        let r = read("a/12-t.md", adr.as_bytes()).expect("record");
        let new = add_supersedes(adr, &r, "0003-x.md", "3. X");
        assert_eq!(
            new,
            adr.replace("Accepted\n", "Accepted\n\nSupersedes [3. X](0003-x.md)\n")
        );
        assert_eq!(reaffirm(adr, &r, "2026-01-01"), None);
        let madr = "---\nstatus: accepted\n---\n# T\n";
        let r = read("a/12-t.md", madr.as_bytes()).expect("record");
        let once = reaffirm(madr, &r, "2026-01-01").expect("front matter");
        let r = read("a/12-t.md", once.as_bytes()).expect("record");
        assert_eq!(r.reaffirmed.as_deref(), Some("2026-01-01"));
        let twice = reaffirm(&once, &r, "2026-02-02").expect("front matter");
        assert_eq!(twice.matches("reaffirmed").count(), 1);
    }
}
