//! Corrections of attribution in the shared store.

use postgres::Row;

use super::PgStore;
use super::sessions;
use super::turns::mark_dirty;
use super::types::{At, object, text};
use crate::corrections::{COLUMNS, Overlay, effective};
use crate::{Attribution, Correction, Corrections, NewSession, Result, SessionKey};

/// Joins the correction that counts, as `c`, to the turns `r`.
pub(super) const JOIN: &str =
    "LEFT JOIN raw_turn_attribution_corrections c ON c.org_id = r.org_id AND c.raw_turn_id = r.id AND c.id =
       (SELECT max(l.id) FROM raw_turn_attribution_corrections l
        WHERE l.org_id = r.org_id AND l.raw_turn_id = r.id)";

/// The turns `r` of the organisation `$1` that belong to the session `$3`, `$2` now, in the order of their
/// ids.
pub(super) const OF_SESSION: &str = "r.id IN (
       SELECT id FROM raw_turns WHERE org_id = $1 AND harness_session_id = $2 AND harness_id = $3
       UNION SELECT raw_turn_id FROM raw_turn_attribution_corrections
         WHERE org_id = $1 AND harness_session_id = $2 AND harness_id = $3)
     AND coalesce(c.harness_session_id, r.harness_session_id) = $2
     AND coalesce(c.harness_id, r.harness_id) = $3
   ORDER BY r.id";

/// The correction that [`COLUMNS`] hold, from a column on.
pub(super) fn overlay(r: &Row, at: usize) -> Option<Overlay> {
    Some(Overlay {
        key: SessionKey {
            harness_id: r.get::<_, Option<String>>(at)?,
            harness_session_id: r.get(at + 1),
        },
        thread_id: r.get(at + 2),
        parent: r.get(at + 3),
    })
}

impl Corrections for PgStore {
    fn attribution(&self, turn: i64) -> Result<Option<Attribution>> {
        self.pool.read(|c| {
            let row = c.row(
                &format!(
                    "SELECT r.harness_id, r.harness_session_id, r.meta, r.session_envelope, {COLUMNS}
                     FROM raw_turns r {JOIN} WHERE r.org_id = $1 AND r.id = $2"
                ),
                &[&self.org, &turn],
            )?;
            Ok(row.map(|r| {
                let own = SessionKey {
                    harness_id: r.get(0),
                    harness_session_id: r.get(1),
                };
                let (meta, envelope) = (object(r.get(2)), object(r.get(3)));
                effective(turn, own, &meta, &envelope, overlay(&r, 4))
            }))
        })
    }

    fn turns_of_exchange(&self, id: &str) -> Result<Vec<i64>> {
        self.pool.read(|c| {
            let rows = c.rows(
                "SELECT id FROM raw_turns WHERE org_id = $1
                   AND session_envelope -> 'harness_metadata' ->> 'paperProxyRequestId' = $2
                 ORDER BY id LIMIT 2",
                &[&self.org, &text(id)],
            )?;
            Ok(rows.iter().map(|r| r.get(0)).collect())
        })
    }

    fn turn_of_request(&self, request_id: &str) -> Result<Option<i64>> {
        self.pool.read(|c| {
            let row = c.row(
                "SELECT id FROM raw_turns WHERE org_id = $1 AND request_id = $2 AND request_id <> ''",
                &[&self.org, &text(request_id)],
            )?;
            Ok(row.map(|r| r.get(0)))
        })
    }

    fn correct(
        &self,
        correction: Correction,
        session: Option<NewSession>,
        before: &SessionKey,
    ) -> Result<()> {
        let to = &correction.to;
        let parent = to.parent.as_deref().map(text);
        self.pool.write(|c| {
            c.run(
                "INSERT INTO raw_turn_attribution_corrections (org_id, raw_turn_id, harness_id,
                   harness_session_id, thread_id, parent_harness_session_id, reason, created_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                &[
                    &self.org,
                    &to.raw_turn_id,
                    &text(&to.key.harness_id),
                    &text(&to.key.harness_session_id),
                    &text(&to.thread_id),
                    &parent,
                    &text(&correction.reason),
                    &At(correction.at),
                ],
            )?;
            if let Some(s) = &session {
                sessions::upsert(c, self.org, s)?;
            }
            mark_dirty(c, self.org, before, correction.at)?;
            mark_dirty(c, self.org, &to.key, correction.at)
        })
    }

    fn corrections(&self) -> Result<Vec<(Correction, String)>> {
        self.pool.read(|c| {
            let rows = c.rows(
                &format!(
                    "SELECT {COLUMNS}, c.raw_turn_id, c.reason, c.created_at, r.request_id
                     FROM raw_turn_attribution_corrections c
                     JOIN raw_turns r ON r.org_id = c.org_id AND r.id = c.raw_turn_id
                     WHERE c.org_id = $1 ORDER BY c.id"
                ),
                &[&self.org],
            )?;
            Ok(rows
                .iter()
                .filter_map(|r| {
                    let o = overlay(r, 0)?;
                    let correction = Correction {
                        to: Attribution {
                            raw_turn_id: r.get(4),
                            key: o.key,
                            thread_id: o.thread_id,
                            parent: o.parent,
                        },
                        reason: r.get(5),
                        at: r.get::<_, At>(6).0,
                    };
                    Some((correction, r.get(7)))
                })
                .collect())
        })
    }
}
