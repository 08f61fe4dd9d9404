//! Decisions: what was decided, why, and what was turned down.
//!
//! A decision is a text record (MADR, adr-tools, log4brains, AsciiDoc, …) wherever it is kept: in a
//! folder of the repository or in the store. [`read`] says what a record means, [`edit`] writes one
//! and changes nothing in it but what was asked for, [`link`] says which record is meant, [`check`]
//! finds what does not fit together and [`rank`] orders the answers to a question.

pub mod check;
pub mod edit;
pub mod link;
pub mod rank;
pub mod read;
pub mod state;

use serde::{Deserialize, Serialize};

pub use read::{Format, Record, RecordError};
pub use state::Status;

/// What a decision is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    /// How the system is cut.
    #[default]
    Architecture,
    /// How something is gone about.
    Approach,
    /// How something is built.
    Implementation,
    /// What was given up for what.
    Tradeoff,
    /// What everybody does alike.
    Convention,
    /// Why a fault was mended in this way.
    Bugfix,
    /// What is not done.
    Rejection,
    /// Anything else.
    Other,
}

impl Type {
    /// All of them with their names.
    pub const ALL: [(&'static str, Self); 8] = [
        ("architecture", Self::Architecture),
        ("approach", Self::Approach),
        ("implementation", Self::Implementation),
        ("tradeoff", Self::Tradeoff),
        ("convention", Self::Convention),
        ("bugfix", Self::Bugfix),
        ("rejection", Self::Rejection),
        ("other", Self::Other),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// The type of this name, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.trim();
        let of = |t: &&(&str, Self)| t.0.eq_ignore_ascii_case(name);
        Self::ALL.iter().find(of).map(|t| t.1)
    }
}

/// Something that was turned down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alternative {
    /// What.
    pub name: String,
    /// Why not; "" = not said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why_not: String,
}

impl Alternative {
    /// Reads `X: why not`. A colon inside of a word (`a::b`, `http://x`) separates nothing.
    pub fn parse(text: &str) -> Self {
        let cut = text
            .match_indices(':')
            .find(|(i, _)| text[i + 1..].starts_with(char::is_whitespace));
        match cut {
            Some((i, _)) => Self {
                name: text[..i].trim().to_owned(),
                why_not: text[i + 1..].trim().to_owned(),
            },
            None => Self {
                name: text.trim().to_owned(),
                why_not: String::new(),
            },
        }
    }
}

/// A decision of a workspace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// `dec_` and 32 hexadecimal digits that sort by time.
    pub id: String,
    /// Path of its record; in the store, the file name that it would have.
    pub path: String,
    /// What the record says.
    pub record: Record,
    /// Where it stands, the others considered.
    pub status: Status,
    /// When it was made.
    pub created_at: crate::time::Micros,
    /// Ids of what it replaces.
    pub supersedes: Vec<String>,
    /// Ids of what replaced it.
    pub superseded_by: Vec<String>,
}

impl Decision {
    /// What it is about: as it says, else a rejection where it was turned down.
    pub fn kind(&self) -> Type {
        self.record.kind.unwrap_or(match self.status {
            Status::Rejected => Type::Rejection,
            _ => Type::Architecture,
        })
    }

    /// Who made it, for people.
    pub fn made_by(&self) -> String {
        self.record.made_by.join(", ")
    }
}

/// How a record names another one: a link's target, a number, an id or a slug.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// As written: `0012-title.md`, `12`, `ADR-0012`, `dec_…`.
    pub to: String,
    /// What stands around it, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// The slug of a title: lower case, dashes, at most 60 bytes.
pub fn slug(title: &str) -> String {
    let mut out = String::new();
    for c in title.chars().flat_map(char::to_lowercase) {
        if out.len() > 56 {
            break;
        }
        if c.is_alphanumeric() {
            out.push(c);
        } else if !out.ends_with('-') && !out.is_empty() && c != '\'' {
            out.push('-');
        }
    }
    let out = out.trim_end_matches('-');
    if out.is_empty() {
        "decision".into()
    } else {
        out.to_owned()
    }
}

/// The name of a record from its path: the file's stem, or the folder's name of `x/README.md`.
pub fn slug_of_path(path: &str) -> &str {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.rsplit_once('.').map_or(file, |(s, _)| s);
    if (stem.eq_ignore_ascii_case("readme") || stem.eq_ignore_ascii_case("index"))
        && !folder.is_empty()
    {
        folder.rsplit('/').next().unwrap_or(folder)
    } else {
        stem
    }
}

/// Splits the leading date, number or `ADR-12` off a slug: the number where there is one, and the rest. A
/// date is no number.
pub fn split_number(slug: &str) -> (Option<u32>, &str) {
    let mut rest = slug;
    let lower = slug.to_ascii_lowercase();
    for prefix in ["adr", "rfc", "ofep"] {
        if lower.starts_with(prefix) && rest[prefix.len()..].starts_with(['-', '_', ' ']) {
            rest = &rest[prefix.len() + 1..];
            break;
        }
    }
    if let Some((_, after)) = leading_date(rest) {
        let after = after.trim_start_matches(['-', '_', ' ', '.']);
        // `2023-06-19_024-event-sourced`: a number behind the date.
        return match split_digits(after) {
            Some((n, name)) if !name.is_empty() => (Some(n), name),
            _ => (None, after),
        };
    }
    match split_digits(rest) {
        Some((n, name)) => (Some(n), name),
        None => (None, rest),
    }
}

fn split_digits(text: &str) -> Option<(u32, &str)> {
    let n = text.bytes().take_while(u8::is_ascii_digit).count();
    let after = &text[n..];
    if !(1..=5).contains(&n) || !(after.is_empty() || after.starts_with(['-', '_', '.', ' '])) {
        return None;
    }
    Some((
        text[..n].parse().ok()?,
        after.trim_start_matches(['-', '_', '.', ' ']),
    ))
}

/// A date at the beginning of a slug, `20210503-` or `2021-05-03-`, and what follows.
pub fn leading_date(slug: &str) -> Option<(String, &str)> {
    let digits = |r: std::ops::Range<usize>| {
        slug.get(r)
            .filter(|s| s.bytes().all(|b| b.is_ascii_digit()))
    };
    let (y, m, d, end) = if let Some(all) = digits(0..8) {
        (&all[..4], &all[4..6], &all[6..], 8)
    } else {
        let dash = |i| matches!(slug.as_bytes().get(i), Some(b'-' | b'_'));
        if !(dash(4) && dash(7)) {
            return None;
        }
        (digits(0..4)?, digits(5..7)?, digits(8..10)?, 10)
    };
    let rest = &slug[end..];
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (month, day): (u8, u8) = (m.parse().ok()?, d.parse().ok()?);
    ((1..=12).contains(&month) && (1..=31).contains(&day) && y.starts_with(['1', '2']))
        .then(|| (format!("{y}-{m}-{d}"), rest))
}

#[cfg(test)]
mod tests;
