//! Raw turns, the derive queue and import marks: the truth as it comes in.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Map, Value};
use weft_core::time::Micros;

use super::SqliteStore;
use super::corrections::{JOIN, OF_SESSION, overlay};
use super::sessions;
use crate::corrections::{COLUMNS, overlay_meta};
use crate::pack::{pack, unpack_json};
use crate::{
    ImportMark, Imports, Lease, NewTurn, QueueEntry, RawTurnInfo, Result, SessionKey, StoredTurn,
    TurnIndex, Turns,
};

pub(super) fn object(v: Value) -> Map<String, Value> {
    match v {
        Value::Object(o) => o,
        _ => Map::new(),
    }
}

pub(super) fn mark_dirty(c: &Connection, key: &SessionKey, now: Micros) -> Result<()> {
    if !key.harness_session_id.is_empty() {
        c.prepare_cached(
            "INSERT INTO derive_queue VALUES (?1, ?2, ?3, ?3)
             ON CONFLICT DO UPDATE SET dirtied_at = max(excluded.dirtied_at, dirtied_at + 1)",
        )?
        .execute(params![key.harness_id, key.harness_session_id, now])?;
    }
    Ok(())
}

/// Inserts a turn, its session row and its queue mark; false where the request id is known. Without an
/// `id` it gets the next one.
pub(super) fn insert(c: &Connection, t: &NewTurn, id: Option<i64>) -> Result<bool> {
    let packed = |s: &Option<String>| s.as_ref().map(|s| pack(s.as_bytes()));
    let inserted =
        c.prepare_cached(
            "INSERT INTO raw_turns (source, provider, agent_name, harness_id, harness_session_id,
               request_id, raw_request, response, meta, session_envelope, received_at,
               raw_response, raw_response_encoding, raw_response_dropped, id)
             VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            t.source,
            t.provider,
            t.agent_name,
            t.harness_id,
            t.harness_session_id,
            t.request_id,
            packed(&t.raw_request),
            packed(&t.response),
            pack(t.meta.as_bytes()),
            packed(&t.session_envelope),
            t.received_at,
            t.raw_response,
            t.raw_response_encoding,
            t.raw_response_dropped,
            id,
        ])? > 0;
    if let Some(s) = &t.session {
        sessions::upsert(c, s)?;
    }
    let key = SessionKey {
        harness_id: t.harness_id.clone(),
        harness_session_id: t.harness_session_id.clone(),
    };
    // An import that brings nothing new leaves nothing to derive; a turn sent twice may be a
    // repair and is derived again, as clients expect.
    if inserted || t.source != "import" {
        mark_dirty(c, &key, t.received_at)?;
    }
    Ok(inserted)
}

pub(super) fn json(r: &Row<'_>, column: usize) -> Result<Value> {
    let bytes: Option<Vec<u8>> = r.get(column)?;
    unpack_json(bytes.as_deref())
}

impl Turns for SqliteStore {
    fn insert_turn(&self, turn: NewTurn) -> Result<bool> {
        self.truth.try_run(move |c| insert(c, &turn, None))
    }

    fn insert_turns(&self, turns: Vec<NewTurn>) -> Result<usize> {
        self.truth.run(move |c| {
            let mut new = 0;
            for t in &turns {
                new += usize::from(insert(c, t, None)?);
            }
            Ok(new)
        })
    }

    fn turn_index(&self, key: &SessionKey) -> Result<Vec<TurnIndex>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(&format!(
                "SELECT r.id, r.source, r.meta, r.received_at, c.thread_id
                 FROM truth.raw_turns r {JOIN} {OF_SESSION}"
            ))?;
            let mut rows = q.query(params![key.harness_session_id, key.harness_id])?;
            let mut out = Vec::new();
            while let Some(r) = rows.next()? {
                let mut meta = object(json(r, 2)?);
                if let Some(thread) = r.get::<_, Option<String>>(4)? {
                    overlay_meta(&mut meta, &thread);
                }
                out.push(TurnIndex {
                    id: r.get(0)?,
                    source: r.get(1)?,
                    meta,
                    received_at: r.get(3)?,
                });
            }
            Ok(out)
        })
    }

    fn turn(&self, id: i64) -> Result<Option<StoredTurn>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                &format!("SELECT r.id, r.source, r.provider, r.request_id, r.raw_request, r.response, r.meta,
                   r.session_envelope, r.received_at, r.raw_response, r.raw_response_encoding,
                   r.raw_response_dropped, {COLUMNS}
                 FROM truth.raw_turns r {JOIN} WHERE r.id = ?1"),
            )?;
            let mut rows = q.query([id])?;
            let Some(r) = rows.next()? else {
                return Ok(None);
            };
            let (mut meta, mut envelope) = (object(json(r, 6)?), object(json(r, 7)?));
            if let Some(o) = overlay(r, 12)? {
                o.apply(&mut meta, &mut envelope);
            }
            Ok(Some(StoredTurn {
                id: r.get(0)?,
                source: r.get(1)?,
                provider: r.get(2)?,
                request_id: r.get(3)?,
                raw_request: json(r, 4)?,
                response: json(r, 5)?,
                meta,
                session_envelope: envelope,
                received_at: r.get(8)?,
                raw_response: r.get(9)?,
                raw_response_encoding: r.get(10)?,
                raw_response_dropped: r.get(11)?,
            }))
        })
    }

    fn raw_turns(&self, key: &SessionKey) -> Result<Vec<RawTurnInfo>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                &format!("SELECT r.id, r.source, r.provider, r.agent_name, r.request_id, r.received_at, r.meta,
                   r.raw_request, r.response, c.thread_id
                 FROM truth.raw_turns r {JOIN} {OF_SESSION}"),
            )?;
            let mut rows = q.query(params![key.harness_session_id, key.harness_id])?;
            let mut out = Vec::new();
            while let Some(r) = rows.next()? {
                let chars = |i: usize| -> Result<i64> {
                    let column: Option<Vec<u8>> = r.get(i)?;
                    let Some(column) = column else { return Ok(0) };
                    let text = crate::pack::unpack(&column)?;
                    Ok(String::from_utf8_lossy(&text).chars().count() as i64)
                };
                let mut meta = json(r, 6)?;
                if let (Some(m), Some(thread)) = (meta.as_object_mut(), r.get::<_, Option<String>>(9)?) {
                    overlay_meta(m, &thread);
                }
                out.push(RawTurnInfo {
                    id: r.get(0)?,
                    source: r.get(1)?,
                    provider: r.get(2)?,
                    agent_name: r.get(3)?,
                    request_id: r.get(4)?,
                    received_at: r.get(5)?,
                    meta,
                    request_chars: chars(7)?,
                    response_chars: chars(8)?,
                });
            }
            Ok(out)
        })
    }

    fn count_turns(&self) -> Result<u64> {
        self.readers
            .with(|c| Ok(c.query_row("SELECT count(*) FROM truth.raw_turns", [], |r| r.get(0))?))
    }

    fn claim_derivations(
        &self,
        quiet_before: Micros,
        dirty_before: Micros,
        limit: usize,
        _: &Lease<'_>,
    ) -> Result<Vec<QueueEntry>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT harness_id, harness_session_id, dirtied_at FROM truth.derive_queue
                 WHERE dirtied_at <= ?1 OR first_dirtied_at <= ?2 ORDER BY dirtied_at, harness_id, harness_session_id LIMIT ?3",
            )?;
            let rows = q.query_map(params![quiet_before, dirty_before, limit as i64], |r| {
                Ok(QueueEntry {
                    key: SessionKey {
                        harness_id: r.get(0)?,
                        harness_session_id: r.get(1)?,
                    },
                    dirtied_at: r.get(2)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    fn queue_depth(&self) -> Result<u64> {
        self.readers
            .with(|c| Ok(c.query_row("SELECT count(*) FROM truth.derive_queue", [], |r| r.get(0))?))
    }

    fn dequeue(&self, entry: &QueueEntry) -> Result<bool> {
        let e = entry.clone();
        self.truth.run(move |c| {
            Ok(c.prepare_cached(
                "DELETE FROM derive_queue
                 WHERE harness_id = ?1 AND harness_session_id = ?2 AND dirtied_at = ?3",
            )?
            .execute(params![
                e.key.harness_id,
                e.key.harness_session_id,
                e.dirtied_at
            ])? > 0)
        })
    }

    fn put_back(&self, entry: &QueueEntry, now: Micros) -> Result<()> {
        let e = entry.clone();
        self.truth.run(move |c| {
            c.prepare_cached(
                "UPDATE derive_queue SET dirtied_at = max(?3, dirtied_at + 1)
                 WHERE harness_id = ?1 AND harness_session_id = ?2",
            )?
            .execute(params![e.key.harness_id, e.key.harness_session_id, now])?;
            Ok(())
        })
    }

    fn sweep_queue(&self, since: Micros, now: Micros) -> Result<u64> {
        self.truth.run(move |c| {
            Ok(c.execute(
                "INSERT INTO derive_queue
                 SELECT harness_id, harness_session_id, ?2, ?2 FROM
                   (SELECT harness_id, harness_session_id FROM raw_turns
                    WHERE received_at >= ?1 AND harness_session_id <> ''
                    UNION SELECT harness_id, harness_session_id FROM attribution_corrections
                    WHERE created_at >= ?1)
                 WHERE true ON CONFLICT DO NOTHING",
                params![since, now],
            )? as u64)
        })
    }

    fn renew_leases(&self, _: &Lease<'_>) -> Result<()> {
        Ok(())
    }
}

impl Imports for SqliteStore {
    fn import_mark(&self, path: &str) -> Result<Option<ImportMark>> {
        self.readers.with(|c| {
            Ok(
                c.prepare_cached("SELECT size, modified_ns FROM truth.imports WHERE path = ?1")?
                    .query_row([path], |r| {
                        Ok(ImportMark {
                            size: r.get(0)?,
                            modified_ns: r.get(1)?,
                        })
                    })
                    .optional()?,
            )
        })
    }

    fn set_import_mark(&self, path: &str, mark: ImportMark, now: Micros) -> Result<()> {
        let path = path.to_owned();
        self.truth.run(move |c| {
            c.execute(
                "INSERT OR REPLACE INTO imports VALUES (?1, ?2, ?3, ?4)",
                params![path, mark.size, mark.modified_ns, now],
            )?;
            Ok(())
        })
    }
}
