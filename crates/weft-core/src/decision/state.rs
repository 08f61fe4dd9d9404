//! The state of a decision and its date, as people write them.

use serde::{Deserialize, Serialize};

/// Where a decision stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Not agreed on yet.
    Proposed,
    /// It holds. A record that does not say where it stands was written because it holds.
    #[default]
    Accepted,
    /// It was turned down.
    Rejected,
    /// It holds no more and nothing replaced it.
    Deprecated,
    /// Another one took its place.
    Superseded,
}

impl Status {
    /// All of them with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("proposed", Self::Proposed),
        ("accepted", Self::Accepted),
        ("rejected", Self::Rejected),
        ("deprecated", Self::Deprecated),
        ("superseded", Self::Superseded),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// The status of this name, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.trim();
        let of = |t: &&(&str, Self)| t.0.eq_ignore_ascii_case(name);
        Self::ALL.iter().find(of).map(|t| t.1)
    }
}

/// Words that begin a state, longest first where one begins another.
const WORDS: [(&str, Status); 44] = [
    ("partially implemented", Status::Accepted),
    ("partially accepted", Status::Accepted),
    ("partially superseded", Status::Accepted),
    ("partly superseded", Status::Accepted),
    ("not implemented", Status::Proposed),
    ("not started", Status::Proposed),
    ("not accepted", Status::Rejected),
    ("accepted", Status::Accepted),
    ("accept", Status::Accepted),
    ("approved", Status::Accepted),
    ("implemented", Status::Accepted),
    ("implementable", Status::Accepted),
    ("decided", Status::Accepted),
    ("adopted", Status::Accepted),
    ("completed", Status::Accepted),
    ("complete", Status::Accepted),
    ("agreed", Status::Accepted),
    ("active", Status::Accepted),
    ("final", Status::Accepted),
    ("done", Status::Accepted),
    ("proposed", Status::Proposed),
    ("proposal", Status::Proposed),
    ("propose", Status::Proposed),
    ("draft", Status::Proposed),
    ("pending", Status::Proposed),
    ("in review", Status::Proposed),
    ("in consideration", Status::Proposed),
    ("in progress", Status::Proposed),
    ("in-progress", Status::Proposed),
    ("under review", Status::Proposed),
    ("under discussion", Status::Proposed),
    ("review", Status::Proposed),
    ("provisional", Status::Proposed),
    ("incomplete", Status::Proposed),
    ("experimental", Status::Proposed),
    ("on hold", Status::Proposed),
    ("rejected", Status::Rejected),
    ("withdrawn", Status::Rejected),
    ("declined", Status::Rejected),
    ("abandoned", Status::Rejected),
    ("deprecated", Status::Deprecated),
    ("reverted", Status::Deprecated),
    ("obsolete", Status::Deprecated),
    ("retired", Status::Deprecated),
];

/// Spellings of being replaced; adr-tools writes the second.
const REPLACED: [&str; 4] = ["superseded", "superceded", "replaced", "supersceded"];

/// A state found in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) status: Status,
    /// Bytes of the word that says so.
    pub(crate) at: (usize, usize),
    /// Whether `by …` follows a replaced one.
    pub(crate) by: bool,
}

fn word_at(text: &str, at: usize, word: &str) -> bool {
    text.get(at..at + word.len())
        .is_some_and(|t| t.eq_ignore_ascii_case(word))
        && !text[at + word.len()..].starts_with(char::is_alphanumeric)
}

/// The state that a status line names. It has to begin with one, behind emoji and markup: a status
/// word inside of prose is not a status. A list to choose from (`proposed | accepted`) is none.
pub(crate) fn find(text: &str) -> Option<Found> {
    let names = |t: &str| {
        Status::ALL
            .iter()
            .filter(|(n, _)| t.to_ascii_lowercase().contains(n))
            .count()
    };
    if text.contains('|') && text.split('|').filter(|p| names(p) > 0).count() > 1 {
        return None;
    }
    let begin = text.find(|c: char| c.is_alphanumeric())?;
    // Text that begins with a number or a word of another alphabet is no state.
    let begin = if text[begin..].starts_with(|c: char| c.is_ascii_alphabetic()) {
        begin
    } else {
        return None;
    };
    // A replacement that is named anywhere on the line wins, unless only parts were replaced.
    let lower = text.to_ascii_lowercase();
    for word in REPLACED {
        for (i, _) in lower.match_indices(word) {
            let partly = ["parts", "partly", "partially", "some "]
                .iter()
                .any(|p| lower[..i].contains(p));
            let by = lower[i + word.len()..].trim_start().starts_with("by");
            let inner = i > 0 && lower[..i].ends_with(char::is_alphanumeric);
            let end = i + word.len();
            if partly || inner || lower[end..].starts_with(char::is_alphanumeric) {
                continue;
            }
            if i == begin || (by && (lower.len() < 200 || lower[..i].ends_with(". "))) {
                return Some(Found {
                    status: Status::Superseded,
                    at: (i, end),
                    by,
                });
            }
        }
    }
    let (word, status) = WORDS.iter().find(|(w, _)| word_at(text, begin, w))?;
    // `Review the options and …` is a sentence, `Review` a state.
    let rest = text[begin + word.len()..].trim_start();
    let prose = matches!(
        *word,
        "review" | "complete" | "final" | "active" | "accept" | "propose"
    ) && !rest.is_empty()
        && !rest.starts_with(|c: char| c.is_ascii_punctuation());
    (!prose).then_some(Found {
        status: *status,
        at: (begin, begin + word.len()),
        by: false,
    })
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// A date in a short text as `YYYY-MM-DD`: ISO, day first with `/` or `.`, or with a month's name. A
/// month without a day is its first day.
pub fn date(text: &str) -> Option<String> {
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
        .take(8)
        .map(str::to_ascii_lowercase)
        .collect();
    let number = |w: &str| {
        let digits = w.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        digits.parse::<u32>().ok().filter(|_| digits.len() <= 4)
    };
    let year = |w: &str| {
        number(w).and_then(|n| match w.len() {
            4 if (1970..2200).contains(&n) => Some(n),
            2 => Some(2000 + n),
            _ => None,
        })
    };
    let write = |y: u32, m: u32, d: u32| {
        ((1..=12).contains(&m) && (1..=31).contains(&d)).then(|| format!("{y:04}-{m:02}-{d:02}"))
    };
    let month = |w: &str| {
        let of = |m: &str| w.len() >= 3 && m.starts_with(w);
        MONTHS.iter().position(|m| of(m)).map(|i| i as u32 + 1)
    };
    for (i, w) in words.iter().enumerate() {
        let next = |n: usize| words.get(i + n).map_or("", String::as_str);
        if w.len() == 4
            && let Some(y) = year(w)
        {
            let m = month(next(1)).or_else(|| number(next(1)));
            let day = number(next(2)).unwrap_or(1);
            // Some write the day in front of the month here too.
            if let Some(found) = m.and_then(|m| write(y, m, day).or_else(|| write(y, day, m))) {
                return Some(found);
            }
        }
        if w.len() == 8 && w.bytes().all(|b| b.is_ascii_digit()) {
            let part = |r: std::ops::Range<usize>| w[r].parse().unwrap_or(0);
            if let Some(found) = write(part(0..4), part(4..6), part(6..8)) {
                return Some(found);
            }
        }
        if let Some(m) = month(w) {
            if let Some(y) = year(next(1)).filter(|_| next(1).len() == 4) {
                let day = i.checked_sub(1).and_then(|b| number(&words[b]));
                return write(y, m, day.filter(|d| *d <= 31).unwrap_or(1));
            }
            if let (Some(d), Some(y)) = (number(next(1)), year(next(2))) {
                return write(y, m, d);
            }
        }
        if let (Some(d), Some(m), Some(y)) = (number(w), number(next(1)), year(next(2)))
            && w.len() <= 2
            && next(1).len() <= 2
        {
            return write(y, m, d).or_else(|| write(y, d, m));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_as_people_write_them() {
        let of = |t: &str| find(t).map(|f| f.status);
        for (text, want) in [
            ("Accepted", Status::Accepted),
            ("✅ Accepted (documenting)", Status::Accepted),
            ("❌ Rejected (see [019](019-x.md))", Status::Rejected),
            ("⌛️ Superseded by [036. M](036-m.md)", Status::Superseded),
            ("Superceded by [12. E2E](./0012-e.md)", Status::Superseded),
            ("**Approved**", Status::Accepted),
            ("[Accepted 2021-01-01](x)", Status::Accepted),
            ("[accepted ]", Status::Accepted),
            (
                "Implemented. Superseded by [ADR-013](./a.md)",
                Status::Superseded,
            ),
            (
                "Implemented. Parts of this ADR were superseded by [ADR-020](x)",
                Status::Accepted,
            ),
            ("Accepted (Partially Superseded)", Status::Accepted),
            ("Accepted (supersedes [11. x](./0011.md))", Status::Accepted),
            ("implementable", Status::Accepted),
            ("🤔 Proposed", Status::Proposed),
            ("Draft", Status::Proposed),
            ("deprecated, no-longer-relevant", Status::Deprecated),
            ("Replaced", Status::Superseded),
        ] {
            assert_eq!(of(text), Some(want), "{text}");
        }
        for none in [
            "",
            "This is the status of the KV as a whole, accepted by many",
            "The accepted way is unclear",
            "{proposed | rejected | accepted | deprecated | … | superseded by ADR-0123}",
            "[proposed | rejected | accepted]",
            "Review the options with the team",
            "Acceptedly",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn dates_as_people_write_them() {
        for (text, want) in [
            ("2020-01-31", "2020-01-31"),
            ("27/06/24", "2024-06-27"),
            ("09.03.2021", "2021-03-09"),
            ("September 12, 2021", "2021-09-12"),
            ("Sep 9th, 2021", "2021-09-09"),
            ("9 Jun 2021", "2021-06-09"),
            ("27 July 2022", "2022-07-27"),
            ("May, 2021", "2021-05-01"),
            ("2019 Oct 22: Initial draft", "2019-10-22"),
            ("2021-Nov-05", "2021-11-05"),
            ("20201016", "2020-10-16"),
            ("13-April-2021", "2021-04-13"),
            ("12/31/2020", "2020-12-31"),
            ("2023-13-10", "2023-10-13"),
        ] {
            assert_eq!(date(text).as_deref(), Some(want), "{text}");
        }
        for none in [
            "",
            "insert date",
            "YYYY-MM-DD",
            "Status",
            "---",
            "99/99/9999",
        ] {
            assert_eq!(date(none), None, "{none}");
        }
    }
}
