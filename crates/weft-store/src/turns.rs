//! Raw turns, the derive queue and import marks: the truth as it comes in.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Map, Value};
use weft_core::time::Micros;

use crate::pack::{pack, unpack_json};
use crate::sessions::{self, NewSession, SessionKey};
use crate::{Result, Store};

/// Raw turns to be stored; what it holds is already redacted.
#[derive(Clone, Debug, Default)]
pub struct NewTurn {
    /// `wire`, `transcript` or `import`.
    pub source: &'static str,
    /// `anthropic`, `openai`, `ollama`; "" for transcripts.
    pub provider: String,
    /// Name that the producer gave the agent.
    pub agent_name: String,
    /// Harness; "" where the turn has no session block.
    pub harness_id: String,
    /// Session of the harness; "" = never derived.
    pub harness_session_id: String,
    /// Dedupe key; "" = every turn is stored.
    pub request_id: String,
    /// Request body or transcript records, JSON.
    pub raw_request: Option<String>,
    /// Reduced response, JSON.
    pub response: Option<String>,
    /// Facts about the exchange, JSON object.
    pub meta: String,
    /// Session block as received, JSON.
    pub session_envelope: Option<String>,
    /// Now.
    pub received_at: Micros,
    /// Verbatim response bytes, still encoded.
    pub raw_response: Option<Vec<u8>>,
    /// Their content encoding.
    pub raw_response_encoding: String,
    /// Whether bytes existed and were not kept.
    pub raw_response_dropped: bool,
    /// The session row to create or update with it.
    pub session: Option<NewSession>,
}

/// What a read of the session's turns starts with: enough to order them.
#[derive(Clone, Debug)]
pub struct TurnIndex {
    /// Row id.
    pub id: i64,
    /// `wire`, `transcript` or `import`.
    pub source: String,
    /// Facts about the exchange.
    pub meta: Map<String, Value>,
    /// When it was stored.
    pub received_at: Micros,
}

/// One stored turn, whole.
#[derive(Clone, Debug, Default)]
pub struct StoredTurn {
    /// Row id.
    pub id: i64,
    /// `wire`, `transcript` or `import`.
    pub source: String,
    /// Provider.
    pub provider: String,
    /// Dedupe key.
    pub request_id: String,
    /// Request body or transcript records.
    pub raw_request: Value,
    /// Reduced response.
    pub response: Value,
    /// Facts about the exchange.
    pub meta: Map<String, Value>,
    /// Session block.
    pub session_envelope: Map<String, Value>,
    /// When it was stored.
    pub received_at: Micros,
    /// Verbatim response bytes, still encoded.
    pub raw_response: Option<Vec<u8>>,
    /// Their content encoding.
    pub raw_response_encoding: String,
    /// Whether bytes existed and were not kept.
    pub raw_response_dropped: bool,
}

/// One row of the raw-turn listing.
#[derive(Clone, Debug)]
pub struct RawTurnInfo {
    /// Row id.
    pub id: i64,
    /// `wire`, `transcript` or `import`.
    pub source: String,
    /// Provider.
    pub provider: String,
    /// Agent name.
    pub agent_name: String,
    /// Dedupe key.
    pub request_id: String,
    /// When it was stored.
    pub received_at: Micros,
    /// Facts about the exchange.
    pub meta: Value,
    /// Characters of the request's JSON.
    pub request_chars: i64,
    /// Characters of the reduced response's JSON.
    pub response_chars: i64,
}

/// A session that waits for derivation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// The session.
    pub key: SessionKey,
    /// When it last became dirty.
    pub dirtied_at: Micros,
}

/// How a transcript file looked when it was last imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportMark {
    /// Bytes.
    pub size: u64,
    /// Modification time, nanoseconds since the epoch.
    pub modified_ns: i64,
}

fn object(v: Value) -> Map<String, Value> {
    match v {
        Value::Object(o) => o,
        _ => Map::new(),
    }
}

fn mark_dirty(c: &Connection, key: &SessionKey, now: Micros) -> Result<()> {
    if !key.harness_session_id.is_empty() {
        c.prepare_cached(
            "INSERT INTO derive_queue VALUES (?1, ?2, ?3, ?3)
             ON CONFLICT DO UPDATE SET dirtied_at = max(excluded.dirtied_at, dirtied_at + 1)",
        )?
        .execute(params![key.harness_id, key.harness_session_id, now])?;
    }
    Ok(())
}

/// Inserts a turn, its session row and its queue mark; false where the request id is known.
fn insert(c: &Connection, t: &NewTurn) -> Result<bool> {
    let packed = |s: &Option<String>| s.as_ref().map(|s| pack(s.as_bytes()));
    let inserted =
        c.prepare_cached(
            "INSERT INTO raw_turns (source, provider, agent_name, harness_id, harness_session_id,
               request_id, raw_request, response, meta, session_envelope, received_at,
               raw_response, raw_response_encoding, raw_response_dropped)
             VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14) ON CONFLICT DO NOTHING",
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

impl Store {
    /// Stores a turn durably; false where its request id is known already.
    ///
    /// # Errors
    /// [`crate::StoreError::QueueFull`] where too many writes wait.
    pub fn insert_turn(&self, turn: NewTurn) -> Result<bool> {
        self.truth.try_run(move |c| insert(c, &turn))
    }

    /// Stores several turns in one transaction; returns how many were new.
    pub fn insert_turns(&self, turns: Vec<NewTurn>) -> Result<usize> {
        self.truth.run(move |c| {
            let mut new = 0;
            for t in &turns {
                new += usize::from(insert(c, t)?);
            }
            Ok(new)
        })
    }

    /// Turns of a session in the order of their ids, without their payloads.
    pub fn turn_index(&self, key: &SessionKey) -> Result<Vec<TurnIndex>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT id, source, meta, received_at FROM truth.raw_turns
                 WHERE harness_session_id = ?1 AND harness_id = ?2 ORDER BY id",
            )?;
            let mut rows = q.query(params![key.harness_session_id, key.harness_id])?;
            let mut out = Vec::new();
            while let Some(r) = rows.next()? {
                out.push(TurnIndex {
                    id: r.get(0)?,
                    source: r.get(1)?,
                    meta: object(json(r, 2)?),
                    received_at: r.get(3)?,
                });
            }
            Ok(out)
        })
    }

    /// One turn, whole; `None` where there is none.
    pub fn turn(&self, id: i64) -> Result<Option<StoredTurn>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT id, source, provider, request_id, raw_request, response, meta,
                   session_envelope, received_at, raw_response, raw_response_encoding,
                   raw_response_dropped
                 FROM truth.raw_turns WHERE id = ?1",
            )?;
            let mut rows = q.query([id])?;
            let Some(r) = rows.next()? else {
                return Ok(None);
            };
            Ok(Some(StoredTurn {
                id: r.get(0)?,
                source: r.get(1)?,
                provider: r.get(2)?,
                request_id: r.get(3)?,
                raw_request: json(r, 4)?,
                response: json(r, 5)?,
                meta: object(json(r, 6)?),
                session_envelope: object(json(r, 7)?),
                received_at: r.get(8)?,
                raw_response: r.get(9)?,
                raw_response_encoding: r.get(10)?,
                raw_response_dropped: r.get(11)?,
            }))
        })
    }

    /// The raw turns of a session, for listing.
    pub fn raw_turns(&self, key: &SessionKey) -> Result<Vec<RawTurnInfo>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT id, source, provider, agent_name, request_id, received_at, meta,
                   raw_request, response
                 FROM truth.raw_turns WHERE harness_session_id = ?1 AND harness_id = ?2 ORDER BY id",
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
                out.push(RawTurnInfo {
                    id: r.get(0)?,
                    source: r.get(1)?,
                    provider: r.get(2)?,
                    agent_name: r.get(3)?,
                    request_id: r.get(4)?,
                    received_at: r.get(5)?,
                    meta: json(r, 6)?,
                    request_chars: chars(7)?,
                    response_chars: chars(8)?,
                });
            }
            Ok(out)
        })
    }

    /// Number of stored turns.
    pub fn count_turns(&self) -> Result<u64> {
        self.readers
            .with(|c| Ok(c.query_row("SELECT count(*) FROM truth.raw_turns", [], |r| r.get(0))?))
    }

    /// Sessions that are ready to be derived, oldest first: quiet since `quiet_before`, or dirty
    /// since `dirty_before` however busy.
    pub fn derive_candidates(
        &self,
        quiet_before: Micros,
        dirty_before: Micros,
        limit: usize,
    ) -> Result<Vec<QueueEntry>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT harness_id, harness_session_id, dirtied_at FROM truth.derive_queue
                 WHERE dirtied_at <= ?1 OR first_dirtied_at <= ?2 ORDER BY dirtied_at LIMIT ?3",
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

    /// Number of sessions that wait for derivation.
    pub fn queue_depth(&self) -> Result<u64> {
        self.readers
            .with(|c| Ok(c.query_row("SELECT count(*) FROM truth.derive_queue", [], |r| r.get(0))?))
    }

    /// Takes a session off the queue unless it became dirty again; true where it was taken off.
    pub fn dequeue(&self, entry: &QueueEntry) -> Result<bool> {
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

    /// Puts a session that could not be derived behind the others.
    pub fn put_back(&self, entry: &QueueEntry, now: Micros) -> Result<()> {
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

    /// Queues every session with a turn stored at or after `since`; returns how many were added.
    pub fn sweep_queue(&self, since: Micros, now: Micros) -> Result<u64> {
        self.truth.run(move |c| {
            Ok(c.execute(
                "INSERT INTO derive_queue
                 SELECT DISTINCT harness_id, harness_session_id, ?2, ?2 FROM raw_turns
                 WHERE received_at >= ?1 AND harness_session_id <> '' ON CONFLICT DO NOTHING",
                params![since, now],
            )? as u64)
        })
    }

    /// How a transcript file looked when it was last imported.
    pub fn import_mark(&self, path: &str) -> Result<Option<ImportMark>> {
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

    /// Remembers how a transcript file looked when it was imported.
    pub fn set_import_mark(&self, path: &str, mark: ImportMark, now: Micros) -> Result<()> {
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

fn json(r: &Row<'_>, column: usize) -> Result<Value> {
    let bytes: Option<Vec<u8>> = r.get(column)?;
    unpack_json(bytes.as_deref())
}
