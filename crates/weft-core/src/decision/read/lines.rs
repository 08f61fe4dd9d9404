//! Lines of a record: headings, keys with values, text without markup.

/// One line: its bytes without the line end.
pub(super) struct Line<'a> {
    pub(super) at: usize,
    pub(super) text: &'a str,
    /// Inside of a code fence or a comment.
    pub(super) quoted: bool,
}

pub(super) fn lines(text: &str, from: usize) -> Vec<Line<'_>> {
    let mut out = Vec::new();
    let (mut at, mut fence, mut comment) = (from, None::<&str>, false);
    for raw in text[from..].split_inclusive('\n') {
        let body = raw.trim_end_matches(['\n', '\r']);
        let trimmed = body.trim_start();
        let mut quoted = fence.is_some() || comment;
        if comment {
            comment = !trimmed.contains("-->");
        } else if let Some(f) = fence {
            if trimmed.starts_with(f) {
                fence = None;
            }
        } else if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            fence = Some(&trimmed[..3]);
            quoted = true;
        } else if trimmed.starts_with("<!--") {
            comment = !trimmed.contains("-->");
            quoted = true;
        }
        out.push(Line {
            at,
            text: body,
            quoted,
        });
        at += raw.len();
    }
    out
}

/// Level and text of a heading line.
pub(super) fn heading<'a>(
    line: &Line<'a>,
    next: Option<&Line<'_>>,
    ascii_doc: bool,
) -> Option<(usize, &'a str)> {
    if line.quoted {
        return None;
    }
    let sign = if ascii_doc { '=' } else { '#' };
    let level = line.text.chars().take_while(|c| *c == sign).count();
    if (1..=6).contains(&level) {
        let rest = &line.text[level..];
        let text = rest.trim().trim_end_matches(sign).trim();
        return (rest.starts_with([' ', '\t']) && !text.is_empty()).then_some((level, text));
    }
    let under = next?.text.trim_end();
    let plain =
        !line.text.trim().is_empty() && !line.text.starts_with([' ', '-', '*', '|', '>', '<']);
    if plain && under.len() >= 3 && under.bytes().all(|b| b == b'=') {
        return Some((1, line.text.trim()));
    }
    if plain && under.len() >= 3 && under.bytes().all(|b| b == b'-') && !line.text.contains(':') {
        return Some((2, line.text.trim()));
    }
    None
}

/// Text without Markdown's emphasis, code and link marks.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        if c == '['
            && let Some((label, tail)) = after.split_once("](")
            && !label.contains('[')
            && let Some((_, tail)) = tail.split_once(')')
        {
            out.push_str(&plain(label));
            rest = tail;
            continue;
        }
        let lone = c == '_'
            && out.ends_with(char::is_alphanumeric)
            && after.starts_with(char::is_alphanumeric);
        if !matches!(c, '*' | '`') && (c != '_' || lone) {
            out.push(c);
        }
        rest = after;
    }
    out.trim().to_owned()
}

/// Whether a heading says nothing about the decision.
pub(super) fn says_nothing(title: &str) -> bool {
    const GENERIC: [&str; 24] = [
        "summary",
        "decision",
        "context",
        "overview",
        "introduction",
        "background",
        "abstract",
        "motivation",
        "architecture decision record",
        "architectural decision record",
        "decision record",
        "adr",
        "rfc",
        "title",
        "proposal",
        "status",
        "metadata",
        "decisions",
        "problem statement",
        "table of contents",
        "context and problem statement",
        "title of the decision record",
        "stakeholders",
        "summary / motivation",
    ];
    let t = title.trim().trim_end_matches(':').to_ascii_lowercase();
    GENERIC.contains(&t.as_str()) || is_placeholder(title)
}

/// Whether a title is one of a template that nobody filled in.
pub(super) fn is_placeholder(title: &str) -> bool {
    [
        "{short title",
        "[short title",
        "{title of",
        "NUMBER. TITLE",
        "{short, informative",
    ]
    .iter()
    .any(|t| title.contains(t))
}

/// A title without its number: `3. Use X`, `ADR-012: Use X`, `[RFC 3] Use X`.
pub(crate) fn without_number(title: &str) -> (Option<u32>, &str) {
    let mut rest = title.trim_start_matches(['[', '#', ' ']);
    let before = rest;
    let lower = rest.to_ascii_lowercase();
    for word in [
        "adr", "rfc", "decision", "api", "sdk", "arc", "eng", "cli", "ofep", "pdr", "dr",
    ] {
        if lower.starts_with(word) && rest[word.len()..].starts_with([' ', '-', '_', '#', ':']) {
            rest = rest[word.len()..].trim_start_matches([' ', '-', '_', '#', ':']);
            break;
        }
    }
    let named = rest.len() < before.len();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let after = &rest[digits..];
    let sep = after.starts_with([':', '.', ')', ']', '-', '–', '—'])
        || (after.starts_with(' ')
            && (named || after.trim_start().starts_with(['-', '–', '—', ':'])));
    // `3.0 is …` and `2 phases …` are titles.
    if !(1..=5).contains(&digits)
        || !sep
        || after.chars().nth(1).is_some_and(|c| c.is_ascii_digit())
    {
        return (None, title.trim());
    }
    let name = after
        .trim_start_matches([':', '.', ')', ']', '-', '–', '—', ' '])
        .trim();
    if name.is_empty() {
        (rest[..digits].parse().ok(), title.trim())
    } else {
        (rest[..digits].parse().ok(), name)
    }
}

/// `* **Status:** accepted`, `Date: …`, `| Status | Approved |`: the key and the bytes of the value.
pub(super) fn meta_line<'a>(line: &Line<'a>) -> Option<(String, &'a str, usize)> {
    let t = line.text;
    if line.quoted {
        return None;
    }
    if let Some(row) = t.trim().strip_prefix('|') {
        let mut cells = row.split('|');
        let (key, value) = (cells.next()?, cells.next()?);
        let lead = t.len() - t.trim_start().len() + 1 + key.len() + 1;
        let key = key_of(key);
        return (!key.is_empty() && key.len() <= 30).then(|| {
            (
                key,
                value.trim(),
                line.at + lead + (value.len() - value.trim_start().len()),
            )
        });
    }
    let (key, value) = t.split_once(':')?;
    let name = key.trim().trim_start_matches(['*', '-', '+', ' ', '_']);
    if name.len() > 30 || name.contains(['`', '(', '[']) || t.starts_with("    ") {
        return None;
    }
    let value_at = key.len() + 1;
    // `**Status:** accepted` closes its emphasis behind the colon.
    let skipped = value.len() - value.trim_start_matches(['*', '_', ' ', '\t']).len();
    Some((
        key_of(name),
        value[skipped..].trim_end(),
        line.at + value_at + skipped,
    ))
}

/// A key in lower case without markup.
pub(super) fn key_of(key: &str) -> String {
    plain(key)
        .trim_matches([':', ' ', '-', '*'])
        .to_ascii_lowercase()
        .replace(['-', '_'], " ")
}
