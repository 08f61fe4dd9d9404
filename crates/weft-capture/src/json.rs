//! JSON as careless producers write it: escaped NULs, lone surrogates, any case of member names.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Replaces escaped NULs and unpaired surrogate escapes by U+FFFD.
pub fn scrub(text: &str) -> Cow<'_, str> {
    const REPLACEMENT: &str = "\\ufffd";
    if !text.contains("\\u") {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let escape = |at: usize| -> Option<u32> {
        if bytes.get(at..at + 2)? != b"\\u" {
            return None;
        }
        u32::from_str_radix(text.get(at + 2..at + 6)?, 16).ok()
    };
    let mut out = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(n) = bytes[at..].iter().position(|b| *b == b'\\') {
        at += n;
        let Some(code) = escape(at) else {
            // A two-character escape, or the end of a broken text.
            at = (at + 2).min(bytes.len());
            continue;
        };
        let low = || escape(at + 6).is_some_and(|c| (0xDC00..=0xDFFF).contains(&c));
        match code {
            0xD800..=0xDBFF if low() => at += 12,
            0 | 0xD800..=0xDFFF => {
                out.push_str(&text[copied..at]);
                out.push_str(REPLACEMENT);
                at += 6;
                copied = at;
            }
            _ => at += 6,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// A member of an object by its name: exactly, else in any case.
pub fn get<'a>(o: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    o.get(name).or_else(|| {
        o.iter()
            .find(|(k, _)| k.eq_ignore_ascii_case(name))
            .map(|(_, v)| v)
    })
}

/// The members of an object as the text they were; of equal names the last wins.
#[derive(Debug, Default)]
pub struct RawObject<'a> {
    members: Vec<(String, &'a RawValue)>,
}

impl<'a> RawObject<'a> {
    /// Reads an object without decoding its members.
    pub fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        let mut d = serde_json::Deserializer::from_str(text);
        let o = d.deserialize_map(RawVisitor)?;
        d.end()?;
        Ok(o)
    }

    /// A member's text; `None` where it is missing or `null`.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let found = self
            .members
            .iter()
            .rev()
            .find(|(k, _)| k == name)
            .or_else(|| {
                self.members
                    .iter()
                    .rev()
                    .find(|(k, _)| k.eq_ignore_ascii_case(name))
            });
        found.map(|(_, v)| v.get()).filter(|v| *v != "null")
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = RawObject<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
            members.push(member);
        }
        Ok(RawObject { members })
    }
}

/// Closes a JSON text that was cut inside a string value, so that what is there can be read.
pub fn close(cut: &str) -> Option<String> {
    let mut stack = Vec::new();
    let (mut in_string, mut escaped) = (false, false);
    for c in cut.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            '{' if !in_string => stack.push('}'),
            '[' if !in_string => stack.push(']'),
            '}' | ']' if !in_string => {
                stack.pop()?;
            }
            _ => {}
        }
    }
    if !in_string {
        return None;
    }
    // An escape that was cut in the middle goes.
    let tail = cut.len().saturating_sub(6);
    let keep = match cut.get(tail..).and_then(|t| t.rfind('\\')) {
        Some(n) if escaped || cut[tail + n..].starts_with("\\u") => tail + n,
        _ => cut.len(),
    };
    let mut out = cut[..keep].to_owned();
    out.push_str("…\"");
    out.extend(stack.into_iter().rev());
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nuls_and_lone_surrogates_become_replacement_characters() {
        let cases = [
            (r#"{"a":"x\u0000y"}"#, "x\u{fffd}y"),
            (r#"{"a":"\ud800"}"#, "\u{fffd}"),
            (r#"{"a":"\udc00\ud800x"}"#, "\u{fffd}\u{fffd}x"),
            (r#"{"a":"\ud83d\ude00"}"#, "😀"),
            (r#"{"a":"\\u0000"}"#, "\\u0000"),
            (r#"{"a":"\ud800\u0041"}"#, "\u{fffd}A"),
        ];
        for (json, want) in cases {
            let v: Value = serde_json::from_str(&scrub(json)).expect(json);
            assert_eq!(v["a"], want, "{json}");
        }
        assert!(matches!(scrub("{}"), Cow::Borrowed(_)));
        assert_eq!(scrub("\\u00"), "\\u00");
    }

    #[test]
    fn raw_members_keep_their_text() {
        let o = RawObject::read(r#" {"A": 1, "records": [ 1,2 ], "a":2, "n":null} "#).expect("o");
        assert_eq!(o.get("records"), Some("[ 1,2 ]"));
        assert_eq!(
            (o.get("a"), o.get("A"), o.get("n")),
            (Some("2"), Some("1"), None)
        );
        assert!(RawObject::read("[1]").is_err());
        assert!(RawObject::read("{} x").is_err());
    }

    #[test]
    fn cut_json_is_closed() {
        for cut in [
            r#"{"m":{"c":[{"t":"abc"#,
            r#"{"m":{"c":[{"t":"abc\"#,
            r#"{"m":{"c":[{"t":"abc\u00"#,
            r#"{"m":{"c":[{"t":"abc\\"#,
        ] {
            let v: Value = serde_json::from_str(&close(cut).expect(cut)).expect(cut);
            assert!(v["m"]["c"][0]["t"].as_str().expect("t").starts_with("abc"));
        }
        assert_eq!(close(r#"{"a":1"#), None);
    }
}
