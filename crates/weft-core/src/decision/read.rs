//! Reading a record: what a Markdown or AsciiDoc text says was decided.
//!
//! Nothing is required but a text: of 1,366 real records a third has no status and a quarter no date.
//! Front matter is read by line and not through a YAML library, since [`super::edit`] has to know the
//! bytes of what it changes and must leave all others alone.

mod front;
mod lines;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use front::{entries, front_matter, list, unquoted};
pub(crate) use lines::plain;
use lines::{Line, heading, is_placeholder, lines, meta_line, says_nothing, without_number};

use super::state::{self, Status};
use super::{Alternative, Reference, Type, leading_date, slug_of_path, split_number};

/// Largest record, bytes.
pub const MAX_BYTES: usize = 2 << 20;
/// Most paths, names and references taken from one record.
const MAX_ITEMS: usize = 100;

/// How a record is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// `## Status`, `## Context`, `## Decision`, `## Consequences`.
    AdrTools,
    /// MADR with front matter.
    Madr4,
    /// MADR 2 or 3: `* Status:` lines, or no status at all.
    Madr2,
    /// MADR 2 with a date for a number and tags.
    Log4brains,
    /// AsciiDoc.
    Asciidoc,
    /// A request for comments.
    Rfc,
    /// Any other text.
    #[default]
    Other,
}

impl Format {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::AdrTools => "adr-tools",
            Self::Madr4 => "madr-4",
            Self::Madr2 => "madr-2/3",
            Self::Log4brains => "log4brains",
            Self::Asciidoc => "asciidoc",
            Self::Rfc => "rfc",
            Self::Other => "other",
        }
    }
}

/// Why a text is no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Larger than [`MAX_BYTES`].
    #[error("{0} bytes are more than a record may have (2 MiB)")]
    TooLarge(usize),
    /// Not UTF-8, or with NUL bytes.
    #[error("it is not UTF-8 text")]
    NotText,
    /// Nothing in it.
    #[error("it is empty")]
    Empty,
    /// `<<<<<<<` and `>>>>>>>` lines.
    #[error("it is in the middle of a merge conflict (line {0})")]
    Conflict(usize),
    /// Nobody filled it in.
    #[error("it is an untouched template")]
    Template,
}

/// Where the status of a record stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// `status:` of the front matter: the bytes of its value.
    Front(Range<usize>),
    /// A `* Status:` line or a table row: the bytes of the state's word (or of the whole value).
    Line(Range<usize>),
    /// In a `## Status` section: the bytes of the state's word.
    Section(Range<usize>),
}

/// What a text says. Its serialized form is what is known of it without its text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// How it is written.
    pub format: Format,
    /// Number of its name or title; never its identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// Title without number.
    pub title: String,
    /// Where it stands; `None` = it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// `YYYY-MM-DD`; `None` = it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Who decided.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made_by: Vec<String>,
    /// What it is about, where it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Type>,
    /// Files, globs and `file::symbol` targets that it says it governs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// What was turned down.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    /// Records that it replaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub supersedes: Vec<Reference>,
    /// Records that replaced it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub superseded_by: Vec<Reference>,
    /// When it was last looked at and found to hold, as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reaffirmed: Option<String>,
    /// Names in code spans of the text: paths and identifiers that may exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<String>,
    /// The text without title, front matter and status.
    #[serde(skip)]
    pub rationale: String,
    #[serde(skip)]
    pub(crate) place: Option<Place>,
    /// Bytes of the front matter between its fences.
    #[serde(skip)]
    pub(crate) front: Option<Range<usize>>,
    /// End of the title's line.
    #[serde(skip)]
    pub(crate) after_title: usize,
    /// End of the text of the status section.
    #[serde(skip)]
    pub(crate) status_end: Option<usize>,
}

/// References in the text behind `superseded by`: links, else numbers, ids and file names.
pub(crate) fn references(text: &str) -> Vec<Reference> {
    let mut out: Vec<Reference> = Vec::new();
    let mut rest = text;
    while let Some(i) = rest.find("](") {
        let label = rest[..i].rfind('[').map_or("", |b| &rest[b + 1..i]);
        let target = rest[i + 2..].split([')', ' ']).next().unwrap_or_default();
        out.push(Reference {
            to: target.to_owned(),
            text: plain(label),
        });
        rest = &rest[i + 2..];
    }
    if out.is_empty() {
        for word in text.split([',', ' ', ';', '(', ')', '"', '\'', '[', ']', '*', '`']) {
            let w = word.trim_matches(['.', ':', '#']);
            let tail = w.rsplit(['-', '_']).next().unwrap_or(w);
            let number =
                !tail.is_empty() && tail.len() <= 5 && tail.bytes().all(|b| b.is_ascii_digit());
            let file = w.ends_with(".md") || w.ends_with(".adoc") || split_number(w).0.is_some();
            if (number || file || w.starts_with("dec_") || leading_date(w).is_some())
                && !w.is_empty()
            {
                out.push(Reference {
                    to: w.to_owned(),
                    text: String::new(),
                });
            }
        }
    }
    out.truncate(MAX_ITEMS);
    out
}

/// Adds what a line of the status says about other records.
fn relations(line: &str, r: &mut Record) {
    let lower = line.to_ascii_lowercase();
    let at = |words: &[&str]| {
        words
            .iter()
            .find_map(|w| lower.find(w).map(|i| i + w.len()))
    };
    let by = at(&[
        "superseded by",
        "superceded by",
        "replaced by",
        "superseded [",
        "superceded [",
    ]);
    if let Some(i) = by {
        let from = if lower[..i].ends_with('[') { i - 1 } else { i };
        r.superseded_by.extend(references(&line[from..]));
    } else if let Some(i) = at(&["supersedes", "supercedes", "replaces "]) {
        r.supersedes.extend(references(&line[i..]));
    }
}

/// Reads what a key says.
fn meta(key: &str, items: &[String], raw: &str, r: &mut Record) {
    let people = || items.iter().map(|i| plain(i)).filter(|i| !i.is_empty());
    match key {
        "date" | "decided" | "decision date" | "last updated" | "created" | "started"
        | "date created" | "creation date" | "start date" | "date decided" => {
            // What was decided on is closer to the point than what was begun.
            let closer = r.date.is_none() || key.starts_with("decided");
            r.date = closer
                .then(|| state::date(raw))
                .flatten()
                .or_else(|| r.date.take());
        }
        "deciders" | "decision makers" | "decider" | "author" | "authors" | "made by" | "owner"
        | "owners" | "proposed by" | "proposer" | "approvers" => {
            let room = if r.made_by.is_empty() { 20 } else { 0 };
            r.made_by.extend(people().take(room));
        }
        "type" | "decision type" => r.kind = items.first().and_then(|i| Type::parse(i)),
        "files" | "affected files" | "affects" | "paths" => r.files.extend(items.iter().cloned()),
        "supersedes" | "replaces" => r.supersedes.extend(references(raw)),
        "superseded by" | "replaced by" => r.superseded_by.extend(references(raw)),
        "reaffirmed" => r.reaffirmed = Some(raw.to_owned()).filter(|v| !v.is_empty()),
        _ => {}
    }
}

fn set_status(
    text: &str,
    at: usize,
    value: &str,
    place: fn(Range<usize>) -> Place,
    r: &mut Record,
) -> bool {
    relations(value, r);
    let Some(f) = state::find(value) else {
        return false;
    };
    debug_assert_eq!(&text[at..at + value.len()], value);
    r.status = Some(f.status);
    r.place = Some(place(at + f.at.0..at + f.at.1));
    if f.status == Status::Superseded && f.by && r.superseded_by.is_empty() {
        r.superseded_by = references(&value[f.at.1..]);
    }
    true
}

/// Reads a record; `path` gives what the text leaves out.
///
/// # Errors
/// Where it is no text, nothing, a conflict or a template.
pub fn read(path: &str, bytes: &[u8]) -> Result<Record, RecordError> {
    if bytes.len() > MAX_BYTES {
        return Err(RecordError::TooLarge(bytes.len()));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| RecordError::NotText)?;
    if text.contains('\0') {
        return Err(RecordError::NotText);
    }
    if text.trim().is_empty() {
        return Err(RecordError::Empty);
    }
    let marks = |m: &str| {
        text.lines()
            .position(|l| l.starts_with(m) && l[7..].trim_start().len() < 200)
    };
    if let (Some(open), Some(_)) = (marks("<<<<<<< "), marks(">>>>>>> ")) {
        return Err(RecordError::Conflict(open + 1));
    }
    let mut r = Record::default();
    let slug = slug_of_path(path);
    let ascii_doc = path.ends_with(".adoc") || path.ends_with(".asciidoc");
    let (front, body_at) = front_matter(text).map_or((None, 0), |(f, b)| (Some(f), b));
    let mut title = String::new();
    let mut tags = false;
    if let Some(front) = &front {
        for e in entries(text, front) {
            let raw = e.items.join(", ");
            match e.key.as_str() {
                "title" => title = raw,
                "status" | "state" => {
                    let written = &text[e.value.clone()];
                    let value = unquoted(written);
                    // With escapes in it, a value does not stand in the text as it is meant.
                    let (from, value) = match written.find(&value) {
                        Some(lead) => (e.value.start + lead, value.as_str()),
                        None => (e.value.start, written),
                    };
                    set_status(text, from, value, Place::Front, &mut r);
                    r.place.get_or_insert(Place::Front(e.value.clone()));
                }
                key => {
                    tags |= key == "tags";
                    meta(key, &e.items, &raw, &mut r);
                }
            }
        }
    }
    r.front = front;
    scan(text, body_at, ascii_doc, &mut r, &mut title, &mut tags);

    let (number, name) = split_number(slug);
    let (in_title, bare) = without_number(&title);
    r.number = number.or(in_title);
    r.title = if bare.is_empty() || says_nothing(bare) {
        name.replace(['-', '_'], " ").trim().to_owned()
    } else {
        plain(bare)
    };
    let folder_date = path.rsplit('/').nth(1).and_then(|f| leading_date(f));
    r.date = r
        .date
        .take()
        .or_else(|| leading_date(slug).map(|d| d.0))
        .or_else(|| folder_date.map(|d| d.0));
    if r.superseded_by.iter().any(|s| !s.to.is_empty()) && r.status.is_none() {
        r.status = Some(Status::Superseded);
    }
    for refs in [&mut r.supersedes, &mut r.superseded_by] {
        let mut seen = Vec::new();
        refs.retain(|x| {
            !x.to.is_empty() && !seen.contains(&x.to) && {
                seen.push(x.to.clone());
                true
            }
        });
    }
    r.files.truncate(MAX_ITEMS);
    let named_so = slug.to_ascii_lowercase().ends_with("template");
    if named_so || (is_placeholder(&title) && r.status.is_none()) {
        return Err(RecordError::Template);
    }
    r.format = format(path, slug, ascii_doc, tags, text, &r);
    told(&mut r);
    Ok(r)
}

/// A record of ours (only those have a type) says why in one section: the reason as it was told.
fn told(r: &mut Record) {
    const OUTCOME: &str = "## Decision Outcome\n\n";
    let Some(at) = r
        .rationale
        .find(OUTCOME)
        .filter(|_| r.kind.is_some() && r.front.is_some())
    else {
        return;
    };
    let from = &r.rationale[at + OUTCOME.len()..];
    let to = from
        .find("\n## Pros and Cons of the Options\n")
        .unwrap_or(from.len());
    let mut why = &from[..to];
    if why.starts_with("Chosen option: \"")
        && let Some((_, rest)) = why.split_once("\n\n")
    {
        why = rest;
    }
    r.rationale = why.trim().to_owned();
}

fn format(path: &str, slug: &str, ascii_doc: bool, tags: bool, text: &str, r: &Record) -> Format {
    let has = |t: &str| text.contains(t);
    let madr = has("## Decision Outcome")
        || has("## Considered Options")
        || has("## Context and Problem Statement");
    let in_line = matches!(r.place, Some(Place::Line(_)));
    if ascii_doc {
        Format::Asciidoc
    } else if madr && in_line && (leading_date(slug).is_some() || tags) {
        Format::Log4brains
    } else if madr && r.front.is_some() && !in_line {
        Format::Madr4
    } else if madr {
        Format::Madr2
    } else if (has("# Status") || has("Status\n---"))
        && (has("# Decision") || has("# Context") || has("Context\n---"))
    {
        Format::AdrTools
    } else if path.to_ascii_lowercase().contains("rfc")
        || path.starts_with("text/")
        || path.contains("/text/")
    {
        Format::Rfc
    } else {
        Format::Other
    }
}

/// What a section is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Head,
    Status,
    Date,
    People,
    Files,
    Options,
    ProsAndCons,
    Text,
}

fn part(heading: &str) -> Part {
    let h = plain(heading).to_ascii_lowercase();
    let h = without_number(&h).1.trim_end_matches(':').trim().to_owned();
    match h.as_str() {
        "status" | "state" | "decision status" | "adr status" => Part::Status,
        "date" => Part::Date,
        "metadata" | "meta" | "document control" => Part::Head,
        "deciders" | "decision makers" | "authors" | "author" => Part::People,
        "files" | "affected files" | "related code" => Part::Files,
        h if h.starts_with("considered option")
            || h.starts_with("alternative")
            || h.starts_with("rejected")
            || h.starts_with("options considered")
            || h == "options"
            || h.ends_with("alternatives considered")
            || h.ends_with("alternatives") =>
        {
            Part::Options
        }
        h if h.starts_with("pros and cons") => Part::ProsAndCons,
        _ => Part::Text,
    }
}

/// Walks through the text once: title, meta lines, sections, options, names.
fn scan(
    text: &str,
    from: usize,
    ascii_doc: bool,
    r: &mut Record,
    title: &mut String,
    tags: &mut bool,
) {
    let all = lines(text, from);
    let (mut now, mut level) = (Part::Head, 0);
    let mut kept = String::new();
    let mut options: Vec<Alternative> = Vec::new();
    let mut chosen = String::new();
    let mut option_at: Option<usize> = None;
    let mut titled = false;
    let mut underline = false;
    for (i, line) in all.iter().enumerate() {
        if std::mem::take(&mut underline) {
            continue;
        }
        if let Some((l, h)) = heading(line, all.get(i + 1), ascii_doc) {
            underline = !line.text.starts_with(['#', '=']);
            if !titled && (l == 1 || title.is_empty()) && now == Part::Head && part(h) == Part::Text
            {
                titled = true;
                if title.is_empty() || says_nothing(title) {
                    *title = h.to_owned();
                }
                let end = if underline { &all[i + 1] } else { line };
                r.after_title = end.at + end.text.len();
                level = l;
                continue;
            }
            let inline = h.split_once(':').map(|(k, v)| (part(k), v.trim()));
            if let Some((Part::Status, v)) = inline
                && r.status.is_none()
                && !v.is_empty()
            {
                let at = line.at + line.text.rfind(v).unwrap_or(0);
                set_status(text, at, v, Place::Line, r);
                continue;
            }
            if matches!(now, Part::Options | Part::ProsAndCons) && l > level {
                // A heading inside of the options is an option.
                let name = plain(without_number(h).1);
                let name = option_name(&name);
                option_at = options
                    .iter()
                    .position(|o| alike(&o.name, name))
                    .or_else(|| {
                        (now == Part::Options && options.len() < MAX_ITEMS).then(|| {
                            options.push(Alternative {
                                name: name.to_owned(),
                                why_not: String::new(),
                            });
                            options.len() - 1
                        })
                    });
            } else {
                now = part(h);
                level = l;
                option_at = None;
            }
            if !matches!(now, Part::Status | Part::Date | Part::People | Part::Files) {
                keep(&mut kept, line.text);
            }
            continue;
        }
        let meta_here = matches!(now, Part::Head | Part::Status) && kept.len() < 1_500;
        if meta_here && let Some((key, value, at)) = meta_line(line) {
            let known = match key.as_str() {
                "status" | "state" | "decision status" => {
                    if r.status.is_none() {
                        set_status(text, at, value, Place::Line, r);
                        r.place.get_or_insert(Place::Line(at..at + value.len()));
                    }
                    true
                }
                "tags" => {
                    *tags = true;
                    true
                }
                "technical story" | "informed" | "consulted" | "scope" | "tickets"
                | "other docs" => true,
                k => {
                    let before = (
                        r.date.is_some(),
                        r.made_by.len(),
                        r.files.len(),
                        r.supersedes.len(),
                    );
                    meta(k, &list(value), value, r);
                    before
                        != (
                            r.date.is_some(),
                            r.made_by.len(),
                            r.files.len(),
                            r.supersedes.len(),
                        )
                        || matches!(k, "date" | "deciders" | "superseded by" | "supersedes")
                }
            };
            if known {
                continue;
            }
        }
        match now {
            Part::Status => {
                let t = line.text.trim();
                if !line.quoted && !t.is_empty() {
                    let at = line.at + (line.text.len() - line.text.trim_start().len());
                    let first = r.place.is_none() && r.status_end.is_none();
                    let replaced = state::find(t).is_some_and(|f| f.status == Status::Superseded);
                    // Further lines only add who replaced it.
                    if (first && r.status.is_none())
                        || (replaced && matches!(r.place, Some(Place::Section(_))))
                    {
                        set_status(text, at, t, Place::Section, r);
                    } else {
                        relations(t, r);
                    }
                    if r.date.is_none() && t.len() < 80 {
                        r.date = state::date(t);
                    }
                    r.status_end = Some(line.at + line.text.len());
                }
                continue;
            }
            Part::Date => {
                r.date = r.date.take().or_else(|| state::date(line.text));
                continue;
            }
            Part::People => {
                let who = plain(line.text.trim().trim_start_matches(['*', '-', ' ']));
                if !who.is_empty() && r.made_by.len() < 20 {
                    r.made_by.extend(list(&who));
                }
                continue;
            }
            Part::Files => {
                let f = plain(line.text.trim().trim_start_matches(['*', '-', ' ']));
                if !f.is_empty() && !f.contains(' ') {
                    r.files.push(f);
                }
                continue;
            }
            Part::Head if r.date.is_none() && line.text.len() < 40 && titled => {
                r.date = state::date(line.text);
            }
            Part::Options | Part::ProsAndCons => {
                option_line(line, now, &mut options, &mut option_at);
            }
            _ => {}
        }
        let t = line.text.trim_start_matches(['*', ' ', '_']);
        if let Some(rest) = t.strip_prefix("Chosen option") {
            chosen = plain(rest.trim_start_matches([':', ' ']));
        }
        keep(&mut kept, line.text);
    }
    r.alternatives = options
        .into_iter()
        .filter(|o| !o.name.is_empty() && !is_chosen(&chosen, &o.name) && o.name.len() <= 200)
        .collect();
    mentions(&kept, r);
    r.rationale = kept.trim().to_owned();
}

fn keep(kept: &mut String, line: &str) {
    kept.push_str(line);
    kept.push('\n');
}

fn is_chosen(chosen: &str, option: &str) -> bool {
    let quoted = chosen.trim_start_matches(['"', '“', '\'', '[', ' ']);
    !quoted.is_empty() && {
        let n = option.chars().count();
        let head: String = quoted.chars().take(n).collect();
        alike(&head, option)
    }
}

fn alike(a: &str, b: &str) -> bool {
    let clean = |t: &str| {
        t.trim()
            .trim_end_matches(['.', ',', ':', '"', '”'])
            .to_lowercase()
    };
    clean(a) == clean(b)
}

/// An option's name without `Option 1:`.
fn option_name(name: &str) -> &str {
    let lower = name.to_ascii_lowercase();
    for word in ["option", "alternative", "solution"] {
        if lower.starts_with(word)
            && let Some((head, rest)) = name.split_once([':', '-', '–', '.'])
            && head.len() <= word.len() + 4
            && !rest.trim().is_empty()
        {
            return rest.trim();
        }
    }
    name.trim()
}

/// A line among the options: a new option, or why not.
fn option_line(line: &Line<'_>, now: Part, options: &mut Vec<Alternative>, at: &mut Option<usize>) {
    let t = line.text.trim();
    if line.quoted || t.is_empty() {
        return;
    }
    let numbered = t.split_once(['.', ')']).is_some_and(|(n, r)| {
        n.len() <= 2 && n.bytes().all(|b| b.is_ascii_digit()) && r.starts_with(' ')
    });
    let bullet = t
        .strip_prefix(['*', '-', '+'])
        .filter(|r| r.starts_with(' '));
    let item = bullet.or_else(|| numbered.then(|| t.split_once([' ']).map_or(t, |x| x.1)));
    let top = !line.text.starts_with([' ', '\t']);
    if let Some(i) = *at
        && let Some(o) = options.get_mut(i)
    {
        let text = plain(item.unwrap_or(t));
        let bad = text
            .strip_prefix("Bad, because")
            .or_else(|| text.strip_prefix("Bad because"));
        let good = text.starts_with("Good") || text.starts_with("Neutral");
        let why = match (now, bad) {
            (_, Some(b)) => Some(b.trim().to_owned()),
            (Part::Options, None) if !good => Some(text),
            _ => None,
        };
        if let Some(w) = why
            && o.why_not.len() < 600
        {
            if !o.why_not.is_empty() {
                o.why_not.push_str("; ");
            }
            o.why_not.push_str(&w);
        }
        // An item below an option that a list began starts the next one.
        if !(now == Part::Options && item.is_some() && top && o.why_not.is_empty()) {
            return;
        }
    }
    if now == Part::Options
        && let Some(item) = item.filter(|_| top)
        && options.len() < MAX_ITEMS
    {
        let a = Alternative::parse(&plain(item));
        options.push(Alternative {
            name: option_name(&a.name).to_owned(),
            why_not: a.why_not,
        });
    }
}

/// Names in code spans and link targets that look like paths or identifiers.
fn mentions(text: &str, r: &mut Record) {
    let mut push = |m: &str| {
        let m = m.trim().trim_end_matches("()").trim_start_matches("./");
        let fine = (3..=200).contains(&m.len())
            && !m.contains(char::is_whitespace)
            && !m.contains("://")
            && m.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.'))
            && m.chars()
                .all(|c| c.is_alphanumeric() || "_-./:#@*".contains(c));
        if fine && r.mentions.len() < MAX_ITEMS && !r.mentions.iter().any(|x| x == m) {
            r.mentions.push(m.to_owned());
        }
    };
    let mut in_fence = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
            continue;
        }
        if in_fence {
            continue;
        }
        for (i, span) in line.split('`').enumerate() {
            if i % 2 == 1 {
                push(span);
            }
        }
        let mut rest = line;
        while let Some(i) = rest.find("](") {
            rest = &rest[i + 2..];
            let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
            push(target.trim_start_matches("../"));
        }
    }
}

#[cfg(test)]
mod tests;
