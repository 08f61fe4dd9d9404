//! Reading the shared store whole, and filling it from another one.

use std::collections::BTreeMap;

use pgvector::Vector;

use super::PgStore;
use super::tokens;
use super::turns::insert;
use super::types::{At, Json, from_hex, hex, text};
use super::vectors::{model_name, with_tables};
use crate::{ModelInfo, NewTurn, Result, StoredVectors, TokenRow, Transfer};

impl Transfer for PgStore {
    fn turns_after(&self, after: i64, limit: usize) -> Result<Vec<(i64, NewTurn)>> {
        self.pool.read(|c| {
            let rows = c.rows(
                "SELECT id, source, provider, agent_name, harness_id, harness_session_id, request_id,
                   raw_request, response, meta, session_envelope, received_at, raw_response,
                   raw_response_encoding, raw_response_dropped, verbatim
                 FROM raw_turns WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT $3",
                &[&self.org, &after, &(limit as i64)],
            )?;
            Ok(rows
                .iter()
                .map(|r| {
                    let verbatim: Option<Vec<Option<String>>> = r.get(15);
                    let payload = |column: usize| -> Option<String> {
                        let own = verbatim.as_ref().and_then(|v| v.get(column - 7)?.clone());
                        own.or_else(|| {
                            r.get::<_, Option<Json<'static>>>(column)
                                .map(|j| j.0.into_owned())
                        })
                    };
                    let source: String = r.get(1);
                    (
                        r.get(0),
                        NewTurn {
                            source: crate::sqlite::source_name(&source),
                            provider: r.get(2),
                            agent_name: r.get(3),
                            harness_id: r.get(4),
                            harness_session_id: r.get(5),
                            request_id: r.get(6),
                            raw_request: payload(7),
                            response: payload(8),
                            meta: payload(9).unwrap_or_else(|| "{}".into()),
                            session_envelope: payload(10),
                            received_at: r.get::<_, At>(11).0,
                            raw_response: r.get(12),
                            raw_response_encoding: r.get(13),
                            raw_response_dropped: r.get(14),
                            session: None,
                        },
                    )
                })
                .collect())
        })
    }

    fn put_transferred(&self, from: &str, turns: Vec<(i64, NewTurn)>) -> Result<usize> {
        self.pool.write(|c| {
            // Two runs at once would both find a turn missing that has no request id.
            c.run(
                "INSERT INTO transfers (org_id, source, last_id) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING",
                &[&self.org, &text(from)],
            )?;
            let known = c.number(
                "SELECT last_id FROM transfers WHERE org_id = $1 AND source = $2 FOR UPDATE",
                &[&self.org, &text(from)],
            )?;
            let mut last = c.number(
                "SELECT coalesce(max(id), 0) FROM raw_turns WHERE org_id = $1",
                &[&self.org],
            )?;
            let mut new = 0;
            for (id, t) in turns.iter().filter(|t| t.0 > known) {
                // Ids stay where they can: spans of turns without a request id are named by them.
                let kept = (*id > last).then_some(*id);
                new += usize::from(insert(c, self.org, t, kept)?);
                last = last.max(kept.unwrap_or(last));
                c.run(
                    "UPDATE transfers SET last_id = $3 WHERE org_id = $1 AND source = $2",
                    &[&self.org, &text(from), id],
                )?;
            }
            c.row(
                "SELECT setval(s, greatest($1, (SELECT last_value FROM pg_sequences
                   WHERE format('%I.%I', schemaname, sequencename)::regclass = s::regclass)))
                 FROM pg_get_serial_sequence('raw_turns', 'id') s",
                &[&last.max(1)],
            )?;
            Ok(new)
        })
    }

    fn transferred(&self, from: &str) -> Result<i64> {
        self.pool.read(|c| {
            Ok(c.number(
                "SELECT last_id FROM transfers WHERE org_id = $1 AND source = $2",
                &[&self.org, &text(from)],
            )?)
        })
    }

    fn token_hashes(&self) -> Result<Vec<([u8; 32], TokenRow)>> {
        self.pool.read(|c| {
            let rows = c.rows(
                "SELECT id, name, scope, repositories, created_at, hash FROM tokens WHERE org_id = $1
                 ORDER BY created_at, id COLLATE \"C\"",
                &[&self.org],
            )?;
            Ok(rows
                .iter()
                .filter_map(|r| {
                    let hash: Vec<u8> = r.get(5);
                    Some((hash.try_into().ok()?, tokens::row(r)))
                })
                .collect())
        })
    }

    fn repository_ids(&self) -> Result<Vec<String>> {
        self.pool.read(|c| {
            let rows = c.rows(
                "SELECT repo_id FROM repositories WHERE org_id = $1 UNION SELECT repo_id FROM draft_claims WHERE org_id = $1
                 UNION SELECT repo_id FROM purged_paths WHERE org_id = $1",
                &[&self.org],
            )?;
            let mut ids: Vec<String> = rows.iter().map(|r| r.get(0)).collect();
            ids.sort();
            Ok(ids)
        })
    }

    fn vectors_of(&self, model: &ModelInfo, hashes: &[[u8; 32]]) -> Result<Vec<StoredVectors>> {
        let hashes: Vec<String> = hashes.iter().map(|h| hex(h)).collect();
        self.pool.read(|c| {
            let rows = with_tables(c.rows(
                "SELECT DISTINCT ON (content_hash, chunk_idx) content_hash, embedding FROM span_embeddings
                 WHERE org_id = $1 AND model = $2 AND content_hash = ANY($3) ORDER BY content_hash, chunk_idx",
                &[&self.org, &model_name(&model.identity), &hashes],
            ))?;
            let mut out: BTreeMap<[u8; 32], Vec<Vec<f32>>> = BTreeMap::new();
            for r in &rows {
                let hash: String = r.get(0);
                if let Some(h) = from_hex(&hash) {
                    out.entry(h)
                        .or_default()
                        .push(r.get::<_, Vector>(1).to_vec());
                }
            }
            Ok(out
                .into_iter()
                .map(|(hash, chunks)| StoredVectors { hash, chunks })
                .collect())
        })
    }
}
