//! How values go into columns: times, JSON as text, ids, and text that PostgreSQL can hold.

use std::borrow::Cow;
use std::error::Error;

use postgres::types::private::BytesMut;
use postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use serde_json::{Map, Value};
use uuid::Uuid;
use weft_core::time::Micros;

pub(crate) use weft_core::hash::hex;

/// Microseconds between 1970 and 2000, where PostgreSQL begins to count.
const EPOCH: i64 = 946_684_800_000_000;

type Fault = Box<dyn Error + Sync + Send>;

/// An instant in a `timestamptz` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At(pub(crate) Micros);

impl ToSql for At {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        // The ends of our range are PostgreSQL's infinities.
        let micros = match self.0 {
            Micros::MIN | Micros::MAX => self.0,
            t => t.saturating_sub(EPOCH),
        };
        out.extend_from_slice(&micros.to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for At {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Fault> {
        Ok(Self(match i64::from_be_bytes(raw.try_into()?) {
            t @ (i64::MIN | i64::MAX) => t,
            t => t.saturating_add(EPOCH),
        }))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

/// JSON text in a `jsonb` column, neither parsed nor built here.
#[derive(Clone, Debug)]
pub(crate) struct Json<'a>(pub(crate) Cow<'a, str>);

impl ToSql for Json<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        // Version of the binary form.
        out.extend_from_slice(&[1]);
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Json<'static> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Fault> {
        match raw.split_first() {
            Some((1, text)) => Ok(Self(Cow::Owned(std::str::from_utf8(text)?.to_owned()))),
            _ => Err("unknown version of jsonb".into()),
        }
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }
}

/// Where in JSON text an escape stands that `jsonb` refuses: U+0000, or half of a surrogate pair.
fn refused_escape(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut i = 0;
    let code = |i: usize| {
        bytes
            .get(i + 2..i + 6)
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u16::from_str_radix(h, 16).ok())
    };
    while let Some(n) = text[i..].find('\\') {
        i += n;
        if bytes.get(i + 1) != Some(&b'u') {
            // Whatever is escaped is one byte: `\\`, `\n`, `\"`.
            i += 2;
            if i >= bytes.len() {
                break;
            }
            continue;
        }
        match code(i) {
            Some(0) | None => return true,
            Some(0xD800..=0xDBFF) => {
                let low = (bytes.get(i + 6..i + 8) == Some(b"\\u"))
                    .then(|| code(i + 6))
                    .flatten();
                if !low.is_some_and(|c| (0xDC00..=0xDFFF).contains(&c)) {
                    return true;
                }
                i += 12;
            }
            Some(0xDC00..=0xDFFF) => return true,
            Some(_) => i += 6,
        }
        if i >= bytes.len() {
            break;
        }
    }
    false
}

/// Whether a number stands in JSON text that `numeric`, and so `jsonb`, may refuse. What merely looks like
/// one inside of a string (a hash) is read to tell.
fn refused_number(text: &str) -> bool {
    let b = text.as_bytes();
    let looks = b.iter().enumerate().any(|(i, c)| {
        let rest = &b[(i + 1).min(b.len())..];
        let rest = rest
            .strip_prefix(b"+")
            .or_else(|| rest.strip_prefix(b"-"))
            .unwrap_or(rest);
        matches!(c, b'e' | b'E')
            && i > 0
            && b[i - 1].is_ascii_digit()
            && rest.len() >= 4
            && rest[..4].iter().all(u8::is_ascii_digit)
    });
    looks && serde_json::from_str::<Value>(text).is_err()
}

/// JSON text for a `jsonb` column. What that type cannot hold is replaced; the second value is then
/// the text as it was, for a column beside it.
pub(crate) fn json(text: &str) -> (Json<'_>, Option<&str>) {
    if !refused_escape(text) && !refused_number(text) {
        return (Json(Cow::Borrowed(text)), None);
    }
    let clean = match serde_json::from_str::<Value>(text) {
        Ok(mut v) => {
            clean_value(&mut v);
            v.to_string()
        }
        Err(_) => "null".to_owned(),
    };
    (Json(Cow::Owned(clean)), Some(text))
}

fn clean_value(v: &mut Value) {
    match v {
        Value::String(s) if s.contains('\0') => *s = s.replace('\0', "\u{fffd}"),
        Value::Array(a) => a.iter_mut().for_each(clean_value),
        Value::Object(o) => {
            if o.keys().any(|k| k.contains('\0')) {
                *o = std::mem::take(o)
                    .into_iter()
                    .map(|(k, v)| (k.replace('\0', "\u{fffd}"), v))
                    .collect();
            }
            o.values_mut().for_each(clean_value);
        }
        _ => {}
    }
}

/// Text for a `text` column, which cannot hold U+0000.
pub(crate) fn text(s: &str) -> Cow<'_, str> {
    if s.contains('\0') {
        Cow::Owned(s.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(s)
    }
}

/// JSON of a column as a value; NULL is `null`.
pub(crate) fn value(j: Option<Json<'static>>) -> Value {
    j.and_then(|j| serde_json::from_str(&j.0).ok())
        .unwrap_or_default()
}

/// JSON of a column as an object.
pub(crate) fn object(j: Option<Json<'static>>) -> Map<String, Value> {
    match value(j) {
        Value::Object(o) => o,
        _ => Map::new(),
    }
}

/// The UUID that a text is; `None` = no row can have it.
pub(crate) fn uuid(s: &str) -> Option<Uuid> {
    Uuid::try_parse(s).ok()
}

/// A UUID column as the text that the product shows; "" = NULL.
pub(crate) fn id_text(u: Option<Uuid>) -> String {
    u.map(|u| u.to_string()).unwrap_or_default()
}

pub(crate) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (i, o) in out.iter_mut().enumerate() {
        *o = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_jsonb_refuses_is_replaced() {
        for fine in [
            r#"{"a":"\\u0000"}"#,
            r#"["\ud83d\ude00","\n\""]"#,
            "{}",
            r#""\\""#,
            r#"["3e881234", 1e300]"#,
        ] {
            assert!(json(fine).1.is_none(), "{fine}");
        }
        for (bad, clean) in [
            (r#"{"a":"x\u0000y"}"#, "{\"a\":\"x\u{fffd}y\"}"),
            (r#"["\\\u0000"]"#, "[\"\\\\\u{fffd}\"]"),
            (r#"["\ud83d"]"#, "null"),
            ("[1e999999]", "null"),
        ] {
            let (j, verbatim) = json(bad);
            assert_eq!((&*j.0, verbatim), (clean, Some(bad)));
        }
    }

    #[test]
    fn hashes_come_back() {
        let h: [u8; 32] = std::array::from_fn(|i| i as u8 * 7);
        assert_eq!(from_hex(&hex(&h)), Some(h));
        assert_eq!(from_hex("zz"), None);
    }
}
