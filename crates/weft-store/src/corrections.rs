//! Whose turn a raw turn is, where that was corrected later. The turn itself never changes.

use serde_json::{Map, Value};
use weft_core::time::Micros;

use crate::{NewSession, Result, SessionKey};

/// Whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// The raw turn.
    pub raw_turn_id: i64,
    /// Its session.
    pub key: SessionKey,
    /// Its thread; "" = main.
    pub thread_id: String,
    /// The session that its session belongs to.
    pub parent: Option<String>,
}

/// A correction: of several of one turn the last counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    /// Whose turn it is from now on.
    pub to: Attribution,
    /// Why.
    pub reason: String,
    /// When it was made.
    pub at: Micros,
}

/// Corrections of attribution: an append-only overlay over the raw turns, under which all reads of turns
/// by their session look.
pub trait Corrections {
    /// Whose turn it is now; `None` where there is no such turn.
    fn attribution(&self, turn: i64) -> Result<Option<Attribution>>;

    /// The turns whose session block names this exchange of a gateway
    /// (`harness_metadata.paperProxyRequestId`), two at most. Reads all session blocks.
    fn turns_of_exchange(&self, id: &str) -> Result<Vec<i64>>;

    /// The turn with this request id.
    fn turn_of_request(&self, request_id: &str) -> Result<Option<i64>>;

    /// Notes a correction, makes its session where that is missing, and marks both sessions dirty, all
    /// in one transaction.
    fn correct(
        &self,
        correction: Correction,
        session: Option<NewSession>,
        before: &SessionKey,
    ) -> Result<()>;

    /// All corrections in their order, each with the request id of its turn.
    fn corrections(&self) -> Result<Vec<(Correction, String)>>;
}

/// The columns of a correction, in the order in which the stores read an [`Overlay`].
pub(crate) const COLUMNS: &str =
    "c.harness_id, c.harness_session_id, c.thread_id, c.parent_harness_session_id";

/// What a correction says of the facts and the session block of its turn.
pub(crate) struct Overlay {
    pub(crate) key: SessionKey,
    pub(crate) thread_id: String,
    pub(crate) parent: Option<String>,
}

/// Puts a value in, or takes the member out where it is empty.
fn put(o: &mut Map<String, Value>, key: &str, value: &str) {
    if value.is_empty() {
        o.shift_remove(key);
    } else {
        o.insert(key.into(), value.into());
    }
}

/// Replaces the thread in the facts of a turn.
pub(crate) fn overlay_meta(meta: &mut Map<String, Value>, thread_id: &str) {
    put(meta, "thread_id", thread_id);
}

impl Overlay {
    /// Replaces what a corrected turn says of itself.
    pub(crate) fn apply(&self, meta: &mut Map<String, Value>, envelope: &mut Map<String, Value>) {
        overlay_meta(meta, &self.thread_id);
        put(envelope, "harness_id", &self.key.harness_id);
        put(envelope, "harness_session_id", &self.key.harness_session_id);
        let parent = self.parent.as_deref().unwrap_or_default();
        put(envelope, "parent_harness_session_id", parent);
    }
}

/// A member of an object that is a text; "" = none.
pub(crate) fn member(o: &Map<String, Value>, key: &str) -> String {
    o.get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Whose turn it is by itself, or by its correction.
pub(crate) fn effective(
    id: i64,
    own: SessionKey,
    meta: &Map<String, Value>,
    envelope: &Map<String, Value>,
    corrected: Option<Overlay>,
) -> Attribution {
    match corrected {
        Some(c) => Attribution {
            raw_turn_id: id,
            key: c.key,
            thread_id: c.thread_id,
            parent: c.parent,
        },
        None => Attribution {
            raw_turn_id: id,
            key: own,
            thread_id: member(meta, "thread_id"),
            parent: Some(member(envelope, "parent_harness_session_id")).filter(|p| !p.is_empty()),
        },
    }
}
