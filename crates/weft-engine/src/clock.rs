//! The clock, in one place.

use std::time::{SystemTime, UNIX_EPOCH};

use weft_core::time::Micros;

/// Microseconds since the Unix epoch.
pub fn now() -> Micros {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_micros() as Micros)
}

/// A new time-ordered id.
pub(crate) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}
