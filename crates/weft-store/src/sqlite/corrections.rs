//! Corrections of attribution in the embedded store.

use rusqlite::{OptionalExtension as _, Row, params};
use serde_json::Value;

use super::SqliteStore;
use super::sessions;
use super::turns::{json, mark_dirty, object};
use crate::corrections::{COLUMNS, Overlay, effective, member};
use crate::{Attribution, Correction, Corrections, NewSession, Result, SessionKey};

/// Joins the correction that counts, as `c`, to the turns `r`.
pub(super) const JOIN: &str =
    "LEFT JOIN truth.attribution_corrections c ON c.raw_turn_id = r.id AND c.id =
       (SELECT max(id) FROM truth.attribution_corrections WHERE raw_turn_id = r.id)";

/// The turns `r` that belong to the session `?2`, `?1` now, in the order of their ids.
pub(super) const OF_SESSION: &str = "WHERE r.id IN (
       SELECT id FROM truth.raw_turns WHERE harness_session_id = ?1 AND harness_id = ?2
       UNION SELECT raw_turn_id FROM truth.attribution_corrections
         WHERE harness_session_id = ?1 AND harness_id = ?2)
     AND coalesce(c.harness_session_id, r.harness_session_id) = ?1
     AND coalesce(c.harness_id, r.harness_id) = ?2
   ORDER BY r.id";

/// The correction that [`COLUMNS`] hold, from a column on.
pub(super) fn overlay(r: &Row<'_>, at: usize) -> Result<Option<Overlay>> {
    let Some(harness_id) = r.get::<_, Option<String>>(at)? else {
        return Ok(None);
    };
    Ok(Some(Overlay {
        key: SessionKey {
            harness_id,
            harness_session_id: r.get(at + 1)?,
        },
        thread_id: r.get(at + 2)?,
        parent: r.get(at + 3)?,
    }))
}

impl Corrections for SqliteStore {
    fn attribution(&self, turn: i64) -> Result<Option<Attribution>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(&format!(
                "SELECT r.harness_id, r.harness_session_id, r.meta, r.session_envelope, {COLUMNS}
                 FROM truth.raw_turns r {JOIN} WHERE r.id = ?1"
            ))?;
            let mut rows = q.query([turn])?;
            let Some(r) = rows.next()? else {
                return Ok(None);
            };
            let own = SessionKey {
                harness_id: r.get(0)?,
                harness_session_id: r.get(1)?,
            };
            let (meta, envelope) = (object(json(r, 2)?), object(json(r, 3)?));
            Ok(Some(effective(turn, own, &meta, &envelope, overlay(r, 4)?)))
        })
    }

    fn turns_of_exchange(&self, id: &str) -> Result<Vec<i64>> {
        self.readers.with(|c| {
            let mut q = c.prepare(
                "SELECT id, session_envelope FROM truth.raw_turns
                 WHERE session_envelope IS NOT NULL ORDER BY id",
            )?;
            let mut rows = q.query([])?;
            let mut found = Vec::new();
            while let Some(r) = rows.next()? {
                let envelope = object(json(r, 1)?);
                let metadata = envelope.get("harness_metadata").and_then(Value::as_object);
                if metadata.is_some_and(|m| member(m, "paperProxyRequestId") == id) {
                    found.push(r.get(0)?);
                    if found.len() == 2 {
                        break;
                    }
                }
            }
            Ok(found)
        })
    }

    fn turn_of_request(&self, request_id: &str) -> Result<Option<i64>> {
        self.readers.with(|c| {
            Ok(c.prepare_cached(
                "SELECT id FROM truth.raw_turns WHERE request_id = ?1 AND ?1 <> ''",
            )?
            .query_row([request_id], |r| r.get(0))
            .optional()?)
        })
    }

    fn correct(
        &self,
        correction: Correction,
        session: Option<NewSession>,
        before: &SessionKey,
    ) -> Result<()> {
        let before = before.clone();
        self.truth.run(move |c| {
            let to = &correction.to;
            c.execute(
                "INSERT INTO attribution_corrections (raw_turn_id, harness_id, harness_session_id,
                   thread_id, parent_harness_session_id, reason, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    to.raw_turn_id,
                    to.key.harness_id,
                    to.key.harness_session_id,
                    to.thread_id,
                    to.parent,
                    correction.reason,
                    correction.at,
                ],
            )?;
            if let Some(s) = &session {
                sessions::upsert(c, s)?;
            }
            mark_dirty(c, &before, correction.at)?;
            mark_dirty(c, &to.key, correction.at)
        })
    }

    fn corrections(&self) -> Result<Vec<(Correction, String)>> {
        self.readers.with(|c| {
            let mut q = c.prepare(&format!(
                "SELECT {COLUMNS}, c.raw_turn_id, c.reason, c.created_at, r.request_id
                 FROM truth.attribution_corrections c JOIN truth.raw_turns r ON r.id = c.raw_turn_id
                 ORDER BY c.id"
            ))?;
            let mut rows = q.query([])?;
            let mut all = Vec::new();
            while let Some(r) = rows.next()? {
                let Some(o) = overlay(r, 0)? else { continue };
                let correction = Correction {
                    to: Attribution {
                        raw_turn_id: r.get(4)?,
                        key: o.key,
                        thread_id: o.thread_id,
                        parent: o.parent,
                    },
                    reason: r.get(5)?,
                    at: r.get(6)?,
                };
                all.push((correction, r.get(7)?));
            }
            Ok(all)
        })
    }
}
