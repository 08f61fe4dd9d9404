//! Instants as microseconds since the Unix epoch, and their RFC 3339 spelling.

use jiff::civil::{Date, DateTime};
use jiff::{Span, Timestamp, ToSpan as _, ZonedDateTime};

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

/// A span of time: at or after, and before.
pub type Range = (Option<Micros>, Option<Micros>);

/// Reads what people call a time, in the time zone of `now`: an RFC 3339 instant, a day (`2026-11-03`,
/// `today`, `yesterday`, `monday`), a week, month or year (`last week`, `this month`, `2026-11`), or an age (`7d`,
/// `3 days ago`, `2h`). The answer is the whole of it: a day begins and ends, an instant does not end.
pub fn parse_words(text: &str, now: &ZonedDateTime) -> Option<Range> {
    let text = text.trim().to_lowercase();
    if let Some(t) = parse_micros(&text) {
        return Some((Some(t), None));
    }
    let zone = now.time_zone();
    let start = |d: Date| -> Option<Micros> {
        Some(
            d.to_zoned_datetime(zone.clone())
                .ok()?
                .timestamp()
                .as_microsecond(),
        )
    };
    let days = |from: Date, to: Date| Some((Some(start(from)?), Some(start(to)?)));
    let today = now.date();
    let first_of_month = today.first_of_month();
    let monday = today
        .checked_sub((i64::from(today.weekday().to_monday_zero_offset())).days())
        .ok()?;
    match text.as_str() {
        "now" => return Some((Some(now.timestamp().as_microsecond()), None)),
        "today" => return days(today, today.tomorrow().ok()?),
        "yesterday" => return days(today.yesterday().ok()?, today),
        "this week" => return days(monday, monday.checked_add(7.days()).ok()?),
        "last week" => return days(monday.checked_sub(7.days()).ok()?, monday),
        "this month" => return days(first_of_month, first_of_month.checked_add(1.month()).ok()?),
        "last month" => return days(first_of_month.checked_sub(1.month()).ok()?, first_of_month),
        "this year" => {
            return days(
                today.first_of_year(),
                today.first_of_year().checked_add(1.year()).ok()?,
            );
        }
        "last year" => {
            return days(
                today.first_of_year().checked_sub(1.year()).ok()?,
                today.first_of_year(),
            );
        }
        _ => {}
    }
    let bare = text.trim_start_matches("last ").trim_start_matches("on ");
    const WEEK: [&str; 7] = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ];
    if let Some(n) = WEEK
        .iter()
        .position(|w| *w == bare || (bare.len() == 3 && w.starts_with(bare)))
    {
        let back = (i64::from(today.weekday().to_monday_zero_offset()) - n as i64).rem_euclid(7);
        let back = if back == 0 { 7 } else { back };
        let day = today.checked_sub(back.days()).ok()?;
        return days(day, day.tomorrow().ok()?);
    }
    if let Ok(day) = text.parse::<Date>()
        && text.len() == 10
    {
        return days(day, day.tomorrow().ok()?);
    }
    if text.len() == 7
        && let Ok(first) = format!("{text}-01").parse::<Date>()
    {
        return days(first, first.checked_add(1.month()).ok()?);
    }
    if let Ok(t) = text.replace(' ', "t").parse::<DateTime>()
        && text.len() > 10
    {
        return Some((
            Some(
                t.to_zoned_datetime(zone.clone())
                    .ok()?
                    .timestamp()
                    .as_microsecond(),
            ),
            None,
        ));
    }
    age(&text, now)
}

/// `7d`, `3 days ago`, `an hour ago`.
fn age(text: &str, now: &ZonedDateTime) -> Option<Range> {
    let text = text.trim_end_matches("ago").trim();
    let cut = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(cut);
    let (number, unit) = match number {
        "" => (
            1,
            text.strip_prefix("an ")
                .or_else(|| text.strip_prefix("a "))?
                .trim(),
        ),
        n => (n.parse::<i64>().ok()?, unit.trim()),
    };
    let span = match unit {
        "s" | "sec" | "second" | "seconds" => Span::new().try_seconds(number),
        "m" | "min" | "minute" | "minutes" => Span::new().try_minutes(number),
        "h" | "hour" | "hours" => Span::new().try_hours(number),
        "d" | "day" | "days" => Span::new().try_days(number),
        "w" | "week" | "weeks" => Span::new().try_weeks(number),
        "mo" | "month" | "months" => Span::new().try_months(number),
        "y" | "year" | "years" => Span::new().try_years(number),
        _ => return None,
    };
    let then = now.checked_sub(span.ok()?).ok()?;
    Some((Some(then.timestamp().as_microsecond()), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_people_say_them() {
        // A Wednesday, in a zone two hours ahead.
        let zone = jiff::tz::TimeZone::fixed(jiff::tz::offset(2));
        let now = "2026-11-04T10:30:00Z"
            .parse::<Timestamp>()
            .expect("time")
            .to_zoned_datetime(zone);
        let of = |t: &str| {
            let (a, b) = parse_words(t, &now).unwrap_or_else(|| panic!("{t}"));
            let show = |x: Option<Micros>| x.map(format_micros).unwrap_or_default();
            format!("{}..{}", show(a), show(b))
        };
        for (text, want) in [
            ("2026-11-03", "2026-11-02T22:00:00Z..2026-11-03T22:00:00Z"),
            ("yesterday", "2026-11-02T22:00:00Z..2026-11-03T22:00:00Z"),
            ("Today", "2026-11-03T22:00:00Z..2026-11-04T22:00:00Z"),
            ("last week", "2026-10-25T22:00:00Z..2026-11-01T22:00:00Z"),
            ("this week", "2026-11-01T22:00:00Z..2026-11-08T22:00:00Z"),
            ("last month", "2026-09-30T22:00:00Z..2026-10-31T22:00:00Z"),
            ("2026-10", "2026-09-30T22:00:00Z..2026-10-31T22:00:00Z"),
            ("monday", "2026-11-01T22:00:00Z..2026-11-02T22:00:00Z"),
            ("wednesday", "2026-10-27T22:00:00Z..2026-10-28T22:00:00Z"),
            ("3 days ago", "2026-11-01T10:30:00Z.."),
            ("7d", "2026-10-28T10:30:00Z.."),
            ("12h", "2026-11-03T22:30:00Z.."),
            ("an hour ago", "2026-11-04T09:30:00Z.."),
            ("2026-11-03T14:00:00+02:00", "2026-11-03T12:00:00Z.."),
            ("2026-11-03 14:00", "2026-11-03T12:00:00Z.."),
        ] {
            assert_eq!(of(text), want, "{text}");
        }
        for bad in [
            "",
            "soon",
            "d",
            "-3d",
            "99999999999999999999d",
            "2026-13-01",
            "9223372036854775807y",
            "é",
        ] {
            assert_eq!(parse_words(bad, &now), None, "{bad}");
        }
    }

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
