//! Raw turns and the derive queue: the truth as it comes in, and who works on what.

use postgres::Row;
use postgres::types::ToSql;
use weft_core::time::Micros;

use super::PgStore;
use super::corrections::{JOIN, OF_SESSION, overlay};
use super::pool::{Conn, PgResult};
use super::sessions;
use super::types::{At, Json, json, object, text, value};
use crate::corrections::{COLUMNS, overlay_meta};
use crate::{
    ImportMark, Imports, Lease, NewTurn, QueueEntry, RawTurnInfo, Result, SessionKey, StoredTurn,
    TurnIndex, Turns,
};

/// A microsecond behind the mark of a row. Adding an interval would do, but depends on the time zone for
/// PostgreSQL, and a distributed engine (Citus) takes no such expression.
const AFTER: &str = "to_timestamp((extract(epoch FROM derive_queue.dirtied_at - to_timestamp(0)) + 0.000001)::float8)";

/// Inserts a turn, its session row and its queue mark in one statement, so that a turn costs one round
/// trip; false where the request id is known. Without an `id` it gets the next one.
pub(super) fn insert(
    c: &mut Conn,
    org: uuid::Uuid,
    t: &NewTurn,
    id: Option<i64>,
) -> PgResult<bool> {
    let request = t.raw_request.as_deref().map(json);
    let response = t.response.as_deref().map(json);
    let meta = json(&t.meta);
    let envelope = t.session_envelope.as_deref().map(json);
    let verbatim: Vec<Option<&str>> = vec![
        request.as_ref().and_then(|j| j.1),
        response.as_ref().and_then(|j| j.1),
        meta.1,
        envelope.as_ref().and_then(|j| j.1),
    ];
    let verbatim = verbatim.iter().any(Option::is_some).then_some(verbatim);
    let (provider, agent) = (text(&t.provider), text(&t.agent_name));
    let (harness, session_key) = (text(&t.harness_id), text(&t.harness_session_id));
    let (request_id, encoding) = (text(&t.request_id), text(&t.raw_response_encoding));
    let (request, response) = (request.map(|j| j.0), response.map(|j| j.0));
    let (envelope, received_at) = (envelope.map(|j| j.0), At(t.received_at));
    let session = t
        .session
        .as_ref()
        .map(|s| sessions::Row::of(c, org, s))
        .transpose()?;
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![
        &org,
        &t.source,
        &provider,
        &agent,
        &harness,
        &session_key,
        &request_id,
        &request,
        &response,
        &meta.0,
        &envelope,
        &received_at,
        &t.raw_response,
        &encoding,
        &t.raw_response_dropped,
        &verbatim,
    ];
    let (id_column, id_value) = match &id {
        Some(id) => {
            params.push(id);
            (", id) OVERRIDING SYSTEM VALUE", ", $17")
        }
        None => (")", ""),
    };
    let mut sql = format!(
        "WITH t AS (INSERT INTO raw_turns (org_id, source, provider, agent_name, harness_id, harness_session_id,
           request_id, raw_request, response, meta, session_envelope, received_at, raw_response,
           raw_response_encoding, raw_response_dropped, verbatim{id_column}
         VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16{id_value})
         ON CONFLICT (org_id, request_id) WHERE request_id <> '' DO NOTHING RETURNING id)"
    );
    if let Some(row) = &session {
        sql.push_str(&format!(", s AS ({})", row.sql(&mut params)));
    }
    if !t.harness_session_id.is_empty() {
        // An import that brings nothing new leaves nothing to derive; a turn sent twice may be a
        // repair and is derived again, as clients expect. A later mark is always another one, however
        // short the time between them: whoever derives the session meanwhile sees it.
        let only_new = if t.source == "import" { "FROM t" } else { "" };
        sql.push_str(&format!(
            ", q AS (INSERT INTO derive_queue (org_id, harness_id, harness_session_id, dirtied_at, first_dirtied_at)
               SELECT $1::uuid, $5::text, $6::text, $12::timestamptz, $12::timestamptz {only_new}
               ON CONFLICT (org_id, harness_id, harness_session_id) DO UPDATE SET
                 dirtied_at = greatest(excluded.dirtied_at, {AFTER}))"
        ));
    }
    sql.push_str(" SELECT count(*) FROM t");
    Ok(c.number(&sql, &params)? > 0)
}

/// Marks a session as one to derive.
pub(super) fn mark_dirty(
    c: &mut Conn,
    org: uuid::Uuid,
    key: &SessionKey,
    now: Micros,
) -> PgResult<()> {
    c.run(
        &format!(
            "INSERT INTO derive_queue (org_id, harness_id, harness_session_id, dirtied_at, first_dirtied_at)
             VALUES ($1, $2, $3, $4, $4)
             ON CONFLICT (org_id, harness_id, harness_session_id) DO UPDATE SET
               dirtied_at = greatest(excluded.dirtied_at, {AFTER})"
        ),
        &[&org, &text(&key.harness_id), &text(&key.harness_session_id), &At(now)],
    )?;
    Ok(())
}

/// A payload: the text as it came where `jsonb` could not hold it.
fn payload(
    r: &Row,
    column: usize,
    verbatim: &Option<Vec<Option<String>>>,
    at: usize,
) -> serde_json::Value {
    match verbatim.as_ref().and_then(|v| v.get(at)?.as_deref()) {
        Some(text) => serde_json::from_str(text).unwrap_or_default(),
        None => value(r.get::<_, Option<Json<'static>>>(column)),
    }
}

fn entry(r: &Row) -> QueueEntry {
    QueueEntry {
        key: SessionKey {
            harness_id: r.get(0),
            harness_session_id: r.get(1),
        },
        dirtied_at: r.get::<_, At>(2).0,
    }
}

impl Turns for PgStore {
    fn insert_turn(&self, turn: NewTurn) -> Result<bool> {
        let repeatable = !turn.request_id.is_empty();
        self.pool
            .statement(repeatable, |c| insert(c, self.org, &turn, None))
    }

    fn insert_turns(&self, turns: Vec<NewTurn>) -> Result<usize> {
        let repeatable = turns.iter().all(|t| !t.request_id.is_empty());
        self.pool.transaction(repeatable, |c| {
            let mut new = 0;
            for t in &turns {
                new += usize::from(insert(c, self.org, t, None)?);
            }
            Ok(new)
        })
    }

    fn turn_index(&self, key: &SessionKey) -> Result<Vec<TurnIndex>> {
        self.pool.read(|c| {
            let rows = c.rows(
                &format!(
                    "SELECT r.id, r.source, r.meta, r.received_at, c.thread_id
                 FROM raw_turns r {JOIN} WHERE r.org_id = $1 AND {OF_SESSION}"
                ),
                &[&self.org, &key.harness_session_id, &key.harness_id],
            )?;
            Ok(rows
                .into_iter()
                .map(|r| {
                    let mut meta = object(r.get(2));
                    if let Some(thread) = r.get::<_, Option<String>>(4) {
                        overlay_meta(&mut meta, &thread);
                    }
                    TurnIndex {
                        id: r.get(0),
                        source: r.get(1),
                        meta,
                        received_at: r.get::<_, At>(3).0,
                    }
                })
                .collect())
        })
    }

    fn turn(&self, id: i64) -> Result<Option<StoredTurn>> {
        self.pool.read(|c| {
            let row = c.row(
                &format!("SELECT r.id, r.source, r.provider, r.request_id, r.raw_request, r.response, r.meta,
                   r.session_envelope, r.received_at, r.raw_response, r.raw_response_encoding,
                   r.raw_response_dropped, r.verbatim, {COLUMNS}
                 FROM raw_turns r {JOIN} WHERE r.org_id = $1 AND r.id = $2"),
                &[&self.org, &id],
            )?;
            Ok(row.map(|r| {
                let verbatim: Option<Vec<Option<String>>> = r.get(12);
                let as_object = |v: serde_json::Value| match v {
                    serde_json::Value::Object(o) => o,
                    _ => serde_json::Map::new(),
                };
                let mut meta = as_object(payload(&r, 6, &verbatim, 2));
                let mut envelope = as_object(payload(&r, 7, &verbatim, 3));
                if let Some(o) = overlay(&r, 13) {
                    o.apply(&mut meta, &mut envelope);
                }
                StoredTurn {
                    id: r.get(0),
                    source: r.get(1),
                    provider: r.get(2),
                    request_id: r.get(3),
                    raw_request: payload(&r, 4, &verbatim, 0),
                    response: payload(&r, 5, &verbatim, 1),
                    meta,
                    session_envelope: envelope,
                    received_at: r.get::<_, At>(8).0,
                    raw_response: r.get(9),
                    raw_response_encoding: r.get(10),
                    raw_response_dropped: r.get(11),
                }
            }))
        })
    }

    fn raw_turns(&self, key: &SessionKey) -> Result<Vec<RawTurnInfo>> {
        self.pool.read(|c| {
            let rows = c.rows(
                &format!("SELECT r.id, r.source, r.provider, r.agent_name, r.request_id, r.received_at, r.meta,
                   coalesce(length(r.raw_request::text), 0)::bigint,
                   coalesce(length(r.response::text), 0)::bigint, c.thread_id
                 FROM raw_turns r {JOIN} WHERE r.org_id = $1 AND {OF_SESSION}"),
                &[&self.org, &key.harness_session_id, &key.harness_id],
            )?;
            Ok(rows
                .into_iter()
                .map(|r| {
                    let mut meta = value(r.get(6));
                    if let (Some(m), Some(thread)) =
                        (meta.as_object_mut(), r.get::<_, Option<String>>(9))
                    {
                        overlay_meta(m, &thread);
                    }
                    RawTurnInfo {
                        id: r.get(0),
                        source: r.get(1),
                        provider: r.get(2),
                        agent_name: r.get(3),
                        request_id: r.get(4),
                        received_at: r.get::<_, At>(5).0,
                        meta,
                        request_chars: r.get(7),
                        response_chars: r.get(8),
                    }
                })
                .collect())
        })
    }

    fn count_turns(&self) -> Result<u64> {
        self.pool.read(|c| {
            Ok(c.number(
                "SELECT count(*) FROM raw_turns WHERE org_id = $1",
                &[&self.org],
            )? as u64)
        })
    }

    fn claim_derivations(
        &self,
        quiet_before: Micros,
        dirty_before: Micros,
        limit: usize,
        lease: &Lease<'_>,
    ) -> Result<Vec<QueueEntry>> {
        let pages =
            "FROM derive_queue WHERE org_id = $1 AND (dirtied_at <= $2 OR first_dirtied_at <= $3)
             AND lease_until <= now() ORDER BY dirtied_at, harness_id COLLATE \"C\", harness_session_id COLLATE \"C\" LIMIT $4";
        self.pool.write(|c| {
            let rows = c.rows(
                &format!(
                    "WITH free AS (SELECT harness_id, harness_session_id {pages} FOR UPDATE SKIP LOCKED)
                     UPDATE derive_queue q SET lease_owner = $5,
                       lease_until = now() + $6 * interval '1 microsecond'
                     FROM free WHERE q.org_id = $1 AND q.harness_id = free.harness_id
                       AND q.harness_session_id = free.harness_session_id
                     RETURNING q.harness_id, q.harness_session_id, q.dirtied_at"
                ),
                &[
                    &self.org,
                    &At(quiet_before),
                    &At(dirty_before),
                    &(limit as i64),
                    &lease.owner,
                    &(lease.micros as f64),
                ],
            )?;
            let mut claimed: Vec<QueueEntry> = rows.iter().map(entry).collect();
            claimed.sort_by(|a, b| {
                (a.dirtied_at, &a.key.harness_id, &a.key.harness_session_id)
                    .cmp(&(b.dirtied_at, &b.key.harness_id, &b.key.harness_session_id))
            });
            Ok(claimed)
        })
    }

    fn queue_depth(&self) -> Result<u64> {
        self.pool.read(|c| {
            Ok(c.number(
                "SELECT count(*) FROM derive_queue WHERE org_id = $1",
                &[&self.org],
            )? as u64)
        })
    }

    fn dequeue(&self, e: &QueueEntry) -> Result<bool> {
        let key: super::pool::Params<'_> = &[
            &self.org,
            &e.key.harness_id,
            &e.key.harness_session_id,
            &At(e.dirtied_at),
        ];
        self.pool.write(|c| {
            let gone = c.run(
                "DELETE FROM derive_queue WHERE org_id = $1 AND harness_id = $2
                   AND harness_session_id = $3 AND dirtied_at = $4",
                key,
            )? > 0;
            if !gone {
                c.run(
                    "UPDATE derive_queue SET lease_until = '-infinity', lease_owner = ''
                     WHERE org_id = $1 AND harness_id = $2 AND harness_session_id = $3 AND dirtied_at <> $4",
                    key,
                )?;
            }
            Ok(gone)
        })
    }

    fn put_back(&self, e: &QueueEntry, now: Micros) -> Result<()> {
        self.pool.write(|c| {
            c.run(
                &format!(
                    "UPDATE derive_queue SET lease_until = '-infinity', lease_owner = '',
                       dirtied_at = greatest($4, {AFTER})
                     WHERE org_id = $1 AND harness_id = $2 AND harness_session_id = $3"
                ),
                &[
                    &self.org,
                    &e.key.harness_id,
                    &e.key.harness_session_id,
                    &At(now),
                ],
            )?;
            Ok(())
        })
    }

    fn sweep_queue(&self, since: Micros, now: Micros) -> Result<u64> {
        self.pool.write(|c| {
            Ok(c.run(
                "INSERT INTO derive_queue (org_id, harness_id, harness_session_id, dirtied_at, first_dirtied_at)
                 SELECT org_id, harness_id, harness_session_id, $3::timestamptz, $3::timestamptz FROM
                   (SELECT org_id, harness_id, harness_session_id FROM raw_turns
                    WHERE org_id = $1 AND received_at >= $2 AND harness_session_id <> ''
                    UNION SELECT org_id, harness_id, harness_session_id FROM raw_turn_attribution_corrections
                    WHERE org_id = $1 AND created_at >= $2) touched
                 ON CONFLICT DO NOTHING",
                &[&self.org, &At(since), &At(now)],
            )?)
        })
    }

    fn renew_leases(&self, lease: &Lease<'_>) -> Result<()> {
        self.pool.write(|c| {
            let until = "now() + $3 * interval '1 microsecond'";
            for sql in [
                format!("UPDATE derive_queue SET lease_until = {until} WHERE org_id = $1 AND lease_owner = $2"),
                format!("UPDATE embed_leases SET until = {until} WHERE org_id = $1 AND owner = $2"),
            ] {
                c.run(&sql, &[&self.org, &lease.owner, &(lease.micros as f64)])?;
            }
            Ok(())
        })
    }
}

impl Imports for PgStore {
    fn import_mark(&self, path: &str) -> Result<Option<ImportMark>> {
        self.local.import_mark(path)
    }

    fn set_import_mark(&self, path: &str, mark: ImportMark, now: Micros) -> Result<()> {
        self.local.set_import_mark(path, mark, now)
    }
}
