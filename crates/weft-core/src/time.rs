//! Instants as microseconds since the Unix epoch, and their RFC 3339 spelling.

use jiff::Timestamp;

/// Microseconds since 1970-01-01T00:00:00Z.
pub type Micros = i64;

/// Reads an RFC 3339 instant; white space around it is ignored.
pub fn parse_micros(text: &str) -> Option<Micros> {
    let text = text.trim();
    // `Timestamp` also reads spellings that RFC 3339 does not have.
    if text.len() < 20 || !matches!(text.as_bytes()[10], b'T' | b't') {
        return None;
    }
    Some(text.parse::<Timestamp>().ok()?.as_microsecond())
}

/// Writes an instant in UTC, with as many fraction digits as it needs.
pub fn format_micros(micros: Micros) -> String {
    Timestamp::from_microsecond(micros).map_or_else(|_| String::new(), |t| t.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_both_ways() {
        let t = parse_micros("2026-06-01T14:00:04.250+02:00").expect("time");
        assert_eq!(format_micros(t), "2026-06-01T12:00:04.25Z");
        assert_eq!(
            format_micros(parse_micros("2026-06-01T12:00:00Z").expect("time")),
            "2026-06-01T12:00:00Z"
        );
        for bad in [
            "",
            "2026-06-01",
            "2026-06-01 12:00:00Z",
            "nonsense",
            "2026-06-0é12:00:00.000000Z",
            "ééééééééééééééé",
        ] {
            assert_eq!(parse_micros(bad), None, "{bad}");
        }
    }
}
