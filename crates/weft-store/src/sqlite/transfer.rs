//! Reading the embedded store whole, and filling it from another one.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension as _, params};

use super::SqliteStore;
use super::models::from_blob;
use super::tokens;
use super::turns::insert;
use crate::pack::unpack;
use crate::{ModelInfo, NewTurn, Result, StoredVectors, TokenRow, Transfer};

/// The sources that a turn can have, as constants.
pub(crate) fn source_name(s: &str) -> &'static str {
    match s {
        "transcript" => "transcript",
        "import" => "import",
        _ => "wire",
    }
}

impl Transfer for SqliteStore {
    fn turns_after(&self, after: i64, limit: usize) -> Result<Vec<(i64, NewTurn)>> {
        let text = |column: Option<Vec<u8>>| -> Result<Option<String>> {
            column
                .map(|c| Ok(String::from_utf8_lossy(&unpack(&c)?).into_owned()))
                .transpose()
        };
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT id, source, provider, agent_name, harness_id, harness_session_id, request_id,
                   raw_request, response, meta, session_envelope, received_at, raw_response,
                   raw_response_encoding, raw_response_dropped
                 FROM truth.raw_turns WHERE id > ?1 ORDER BY id LIMIT ?2",
            )?;
            let mut rows = q.query(params![after, limit as i64])?;
            let mut out = Vec::new();
            while let Some(r) = rows.next()? {
                let source: String = r.get(1)?;
                out.push((
                    r.get(0)?,
                    NewTurn {
                        source: source_name(&source),
                        provider: r.get(2)?,
                        agent_name: r.get(3)?,
                        harness_id: r.get(4)?,
                        harness_session_id: r.get(5)?,
                        request_id: r.get(6)?,
                        raw_request: text(r.get(7)?)?,
                        response: text(r.get(8)?)?,
                        meta: text(r.get(9)?)?.unwrap_or_else(|| "{}".into()),
                        session_envelope: text(r.get(10)?)?,
                        received_at: r.get(11)?,
                        raw_response: r.get(12)?,
                        raw_response_encoding: r.get(13)?,
                        raw_response_dropped: r.get(14)?,
                        session: None,
                    },
                ));
            }
            Ok(out)
        })
    }

    fn put_transferred(&self, from: &str, turns: Vec<(i64, NewTurn)>) -> Result<usize> {
        let from = from.to_owned();
        self.truth.run(move |c| {
            let mut new = 0;
            for (id, t) in &turns {
                // Ids stay where they can: spans of turns without a request id are named by them.
                let last: i64 = c
                    .prepare_cached("SELECT coalesce(max(id), 0) FROM raw_turns")?
                    .query_row([], |r| r.get(0))?;
                new += usize::from(insert(c, t, (*id > last).then_some(*id))?);
                c.prepare_cached(
                    "INSERT INTO transfers (source, last_id) VALUES (?1, ?2)
                     ON CONFLICT DO UPDATE SET last_id = max(last_id, excluded.last_id)",
                )?
                .execute(params![from, id])?;
            }
            Ok(new)
        })
    }

    fn transferred(&self, from: &str) -> Result<i64> {
        self.readers.with(|c| {
            Ok(c.query_row(
                "SELECT last_id FROM truth.transfers WHERE source = ?1",
                [from],
                |r| r.get(0),
            )
            .optional()?
            .unwrap_or(0))
        })
    }

    fn token_hashes(&self) -> Result<Vec<([u8; 32], TokenRow)>> {
        self.readers.with(|c| {
            let mut q = c.prepare(
                "SELECT id, name, scope, repositories, created_at, hash FROM truth.tokens ORDER BY created_at, id",
            )?;
            let rows = q.query_map([], |r| Ok((r.get(5)?, tokens::row(r)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    fn repository_ids(&self) -> Result<Vec<String>> {
        self.readers.with(|c| {
            let mut q = c.prepare(
                "SELECT repo_id FROM truth.repositories UNION SELECT repo_id FROM truth.draft_claims
                 UNION SELECT repo_id FROM truth.purged_paths ORDER BY 1",
            )?;
            let rows = q.query_map([], |r| r.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    fn vectors_of(&self, model: &ModelInfo, hashes: &[[u8; 32]]) -> Result<Vec<StoredVectors>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(
                "SELECT vector FROM vectors WHERE model_id = ?1 AND hash = ?2 ORDER BY chunk",
            )?;
            let mut out: BTreeMap<[u8; 32], Vec<Vec<f32>>> = BTreeMap::new();
            for h in hashes {
                let rows = q.query_map(params![model.id, h], |r| r.get::<_, Vec<u8>>(0))?;
                for blob in rows {
                    out.entry(*h).or_default().push(from_blob(&blob?));
                }
            }
            Ok(out
                .into_iter()
                .map(|(hash, chunks)| StoredVectors { hash, chunks })
                .collect())
        })
    }
}
