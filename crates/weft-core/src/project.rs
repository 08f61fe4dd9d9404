//! Text without a harness's own framing: tag stripping, whitespace, prompt previews.
//!
//! Three readings of one text exist: [`project_text`] (identity and embedding), [`preview_text`]
//! (what a person sees as the prompt) and the original, which is what is stored.

/// Tags that agent programs put around text of their own, in processing order.
pub const HARNESS_TAGS: [&str; 19] = [
    "system-reminder",
    "command-name",
    "command-message",
    "command-args",
    "local-command-stdout",
    "local-command-stderr",
    "local-command-caveat",
    "session",
    "conversation",
    "new-diagnostics",
    "task-notification",
    "status",
    "summary",
    "transcript",
    "event",
    "tool-use-id",
    "output-file",
    "task-id",
    "environment_context",
];

/// Tags whose content a prompt preview keeps.
const UNWRAPPED: [&str; 3] = ["session", "conversation", "command-args"];

/// Removes every `<tag>…</tag>`; an opener without a closer takes the rest of the text.
fn strip_tag(text: &str, tag: &str) -> String {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // What precedes an opener holds no opener, so a removal can only make a new one where the two
    // sides meet; the outer loop in `strip` looks again.
    while let Some(at) = rest.find(&open) {
        out.push_str(&rest[..at]);
        match rest[at..].find(&close) {
            Some(end) => rest = &rest[at + end + close.len()..],
            None => return out,
        }
    }
    out.push_str(rest);
    out
}

fn strip(text: &str, tag: &str) -> String {
    let open = format!("<{tag}>");
    let mut text = strip_tag(text, tag);
    while text.contains(&open) {
        text = strip_tag(&text, tag);
    }
    text
}

/// Deletes the tag itself and keeps what stands inside.
fn unwrap(text: &str, tag: &str) -> String {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let mut text = text.to_owned();
    while let Some(at) = text.find(&open) {
        text.replace_range(at..at + open.len(), "");
        if let Some(end) = text[at..].find(&close) {
            text.replace_range(at + end..at + end + close.len(), "");
        }
    }
    text
}

/// CRLF to LF, no blanks before a line end, no empty lines, no white space at either end.
pub fn normalize_whitespace(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let mut out = String::with_capacity(text.len());
    for (i, line) in text.split('\n').enumerate() {
        let last = i > 0 && out.ends_with('\n');
        // The last piece has no line end after it, so its trailing blanks are trimmed below.
        let line = line.trim_end_matches([' ', '\t']);
        if line.is_empty() && last {
            continue;
        }
        out.push_str(line);
        out.push('\n');
    }
    out.trim_matches(is_white_space).to_owned()
}

/// Unicode's White_Space property.
fn is_white_space(c: char) -> bool {
    c.is_whitespace()
}

/// The text that counts for identity and embedding: no harness tags, normal white space.
pub fn project_text(text: &str) -> String {
    if !text.contains('<') {
        return normalize_whitespace(text);
    }
    let mut text = text.to_owned();
    for tag in HARNESS_TAGS {
        if text.contains('<') {
            text = strip(&text, tag);
        }
    }
    normalize_whitespace(&text)
}

/// The text that is shown as a prompt: as [`project_text`], but command arguments and quoted
/// sessions are unwrapped, and leading plugin mentions are removed.
pub fn preview_text(text: &str) -> String {
    let mut text = text.to_owned();
    for tag in HARNESS_TAGS {
        if UNWRAPPED.contains(&tag) {
            text = unwrap(&text, tag);
        } else {
            text = strip(&text, tag);
        }
    }
    let mut rest = text.as_str();
    while let Some(after) = plugin_mention(rest) {
        rest = after;
    }
    normalize_whitespace(rest)
}

/// What follows a leading `[@name](plugin://…)`, or `None` where the text does not start with one.
fn plugin_mention(text: &str) -> Option<&str> {
    const BLANK: [char; 4] = [' ', '\t', '\r', '\n'];
    let rest = text.trim_start_matches(BLANK).strip_prefix("[@")?;
    let name = rest.find([']', '\r', '\n'])?;
    let rest = rest[name..].strip_prefix("](plugin://")?;
    let target = rest.find([')', '\r', '\n'])?;
    if name == 0 || target == 0 {
        return None;
    }
    Some(rest[target..].strip_prefix(')')?.trim_start_matches(BLANK))
}

/// At most `max` bytes of `text`, cut where a character ends.
pub fn cut_bytes(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// At most `max` code points, with `…` behind where something was cut.
pub fn cut_chars(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_stripped_to_the_first_closer_and_unterminated_ones_to_the_end() {
        let cases = [
            ("a<summary>b</summary>c", "ac"),
            ("a<summary>b", "a"),
            ("<status>x<status>y</status>z</status>", "z</status>"),
            ("</status>orphan", "</status>orphan"),
            ("<Status>kept</Status>", "<Status>kept</Status>"),
            ("<status a=1>kept</status>", "<status a=1>kept</status>"),
            ("<sta<status>x</status>tus>gone", ""),
        ];
        for (text, want) in cases {
            assert_eq!(project_text(text), want, "{text:?}");
        }
    }

    #[test]
    fn white_space_is_normalized() {
        assert_eq!(normalize_whitespace("a \t\r\n\r\n\n b\u{a0}\n"), "a\n b");
        assert_eq!(normalize_whitespace("\u{2028} x \u{3000}"), "x");
        assert_eq!(normalize_whitespace("a  b"), "a  b");
        assert_eq!(normalize_whitespace("a\n \nb"), "a\nb");
    }

    #[test]
    fn previews_unwrap_three_tags_and_drop_plugin_mentions() {
        assert_eq!(
            preview_text("<command-name>/x</command-name><command-args>do it</command-args>"),
            "do it"
        );
        assert_eq!(preview_text("<session>open only"), "open only");
        assert_eq!(
            preview_text(" [@a](plugin://b) [@c](plugin://d)\nhello"),
            "hello"
        );
        assert_eq!(preview_text("[@](plugin://b) x"), "[@](plugin://b) x");
    }

    #[test]
    fn cuts_keep_characters_whole() {
        assert_eq!(cut_bytes("aé", 2), "a");
        assert_eq!(cut_chars("aéb", 2), "aé…");
        assert_eq!(cut_chars("aé", 2), "aé");
    }
}
