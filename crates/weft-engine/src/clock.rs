//! The clock, in one place.

use std::time::{SystemTime, UNIX_EPOCH};

use weft_core::time::Micros;

/// Microseconds since the Unix epoch.
pub fn now() -> Micros {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_micros() as Micros)
}

/// What people call a time (`last week`, `3 days ago`, `2026-11-03`), in the time zone of this machine.
pub fn time_words(text: &str) -> Option<weft_core::time::Range> {
    weft_core::time::parse_words(text, &jiff::ZonedDateTime::now())
}

/// A new time-ordered id.
pub(crate) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}
