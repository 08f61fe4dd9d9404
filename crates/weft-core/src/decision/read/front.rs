//! The front matter of a record: its keys, their items and the bytes of their values.

use std::ops::Range;

use super::MAX_ITEMS;
use super::lines::key_of;

/// The bytes of the front matter between its fences, and where the text behind it begins.
pub(super) fn front_matter(text: &str) -> Option<(Range<usize>, usize)> {
    let start = text.find("---")?;
    if !text[..start]
        .trim_matches(['\u{feff}', '\n', '\r', ' '])
        .is_empty()
    {
        return None;
    }
    let first = start + text[start..].find('\n')? + 1;
    if !text[start..first].trim_end().bytes().all(|b| b == b'-') {
        return None;
    }
    let mut at = first;
    for raw in text[first..].split_inclusive('\n').take(200) {
        let t = raw.trim_end();
        if t == "---" || t == "..." {
            return Some((first..at, at + raw.len()));
        }
        // A rule above a text is no front matter.
        if at == first && !t.contains(':') && !t.starts_with('#') && !t.is_empty() {
            return None;
        }
        at += raw.len();
    }
    None
}

/// A value of the front matter: its key, its items, the bytes of what stands behind the colon.
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) items: Vec<String>,
    pub(super) value: Range<usize>,
}

pub(super) fn unquoted(value: &str) -> String {
    let v = value.trim();
    for q in ['"', '\''] {
        if let Some(inner) = v.strip_prefix(q).and_then(|v| v.strip_suffix(q))
            && v.len() > 1
        {
            return inner.replace("\\\"", "\"").replace("''", "'");
        }
    }
    match v.find(" #") {
        Some(i) => v[..i].trim_end().to_owned(),
        None => v.to_owned(),
    }
}

/// Splits at commas outside of quotes and brackets.
pub(super) fn list(value: &str) -> Vec<String> {
    let inner = value.trim();
    let inner = inner
        .strip_prefix('[')
        .and_then(|v| v.strip_suffix(']'))
        .unwrap_or(inner);
    let (mut out, mut word, mut quote, mut depth) = (Vec::new(), String::new(), None, 0);
    for c in inner.chars() {
        match (c, quote) {
            ('"' | '\'', None) if word.trim().is_empty() => quote = Some(c),
            (c, Some(q)) if c == q => quote = None,
            ('[' | '{' | '(', None) => depth += 1,
            (']' | '}' | ')', None) => depth -= 1,
            _ => {}
        }
        if c == ',' && quote.is_none() && depth == 0 {
            out.push(unquoted(&word));
            word.clear();
        } else {
            word.push(c);
        }
    }
    out.push(unquoted(&word));
    out.retain(|w| !w.is_empty());
    out.truncate(MAX_ITEMS);
    out
}

pub(super) fn entries(text: &str, front: &Range<usize>) -> Vec<Entry> {
    let mut out: Vec<Entry> = Vec::new();
    let mut block = false;
    let mut at = front.start;
    for raw in text[front.clone()].split_inclusive('\n') {
        let body = raw.trim_end_matches(['\n', '\r']);
        let indented = body.starts_with([' ', '\t', '-']);
        if indented && let Some(last) = out.last_mut() {
            let item = body.trim();
            if block {
                last.items = vec![format!("{} {item}", last.items.concat()).trim().to_owned()];
            } else if let Some(item) = item.strip_prefix("- ") {
                last.items.push(unquoted(item));
            }
        } else if let Some((key, value)) = body.split_once(':')
            && !key.starts_with('#')
            && key.len() <= 40
        {
            let v = value.trim();
            block = matches!(v, "|" | ">" | "|-" | ">-" | "|+" | ">+");
            let start = at + key.len() + 1 + (value.len() - value.trim_start().len());
            let items = if block || v.is_empty() {
                Vec::new()
            } else if v.starts_with('[') && v.ends_with(']') {
                list(v)
            } else {
                vec![unquoted(v)]
            };
            out.push(Entry {
                key: key_of(key),
                items,
                value: start..start + v.len(),
            });
        }
        at += raw.len();
    }
    out
}
