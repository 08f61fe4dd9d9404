//! Words of the shared store: this machine's keyword index follows the database's change feed.
//!
//! A document and a removal carry the number of the transaction that wrote them (`derive_seq`). What
//! is below the oldest transaction that still runs is complete and is committed to the index, with
//! the number in the commit itself; what is above is the tail, read for each search.

use std::collections::{HashMap, HashSet};

use super::PgStore;
use super::documents::{COLUMNS, conditions, read};
use crate::words::{COMMIT_BYTES, TAIL_ROWS, WordWriter, Words};
use crate::{Document, Filter, Result};

/// Rows of one read of the feed.
const PAGE: i64 = 2_000;

impl PgStore {
    /// Transactions up to this one are in the index of this machine.
    pub(super) fn words_seen(&self) -> Result<i64> {
        Ok(self.words.note()?.and_then(|n| n.parse().ok()).unwrap_or(0))
    }

    fn tail(&self, filter: &Filter, seen: i64) -> Result<Vec<(i64, Document)>> {
        let mut cond = conditions(self.org, filter);
        let seen = cond.bind(seen);
        let limit = cond.bind(TAIL_ROWS as i64);
        self.pool.read(|c| {
            let rows = c.rows(
                &format!(
                    "SELECT {COLUMNS} FROM span_documents d WHERE d.org_id = $1 AND {} AND d.derive_seq > {seen}
                     ORDER BY d.id DESC LIMIT {limit}",
                    cond.sql
                ),
                &cond.params(),
            )?;
            Ok(rows.iter().map(read).collect())
        })
    }

    /// Drops hits that a filter does not let through.
    fn keep_matching(&self, hits: &mut HashMap<i64, f32>, filter: &Filter) -> Result<()> {
        let mut cond = conditions(self.org, filter);
        let ids: Vec<i64> = hits.keys().copied().collect();
        let ids = cond.bind(ids);
        let kept: HashSet<i64> = self.pool.read(|c| {
            let rows = c.rows(
                &format!(
                    "SELECT d.id FROM span_documents d WHERE d.org_id = $1 AND d.id = ANY({ids}) AND {}",
                    cond.sql
                ),
                &cond.params(),
            )?;
            Ok(rows.iter().map(|r| r.get(0)).collect())
        })?;
        hits.retain(|id, _| kept.contains(id));
        Ok(())
    }

    /// Writes what the feed has between two transactions; returns how many rows.
    fn follow(&self, writer: &mut WordWriter, seen: i64, upto: i64) -> Result<usize> {
        let mut done = 0;
        let (mut seq, mut id) = (seen, i64::MAX);
        let mut bytes = 0;
        loop {
            let page = self.pool.read(|c| {
                let rows = c.rows(
                    &format!(
                        "SELECT {COLUMNS}, d.derive_seq FROM span_documents d
                         WHERE d.org_id = $1 AND (d.derive_seq, d.id) > ($2, $3) AND d.derive_seq < $4
                         ORDER BY d.derive_seq, d.id LIMIT $5"
                    ),
                    &[&self.org, &seq, &id, &upto, &PAGE],
                )?;
                Ok(rows
                    .iter()
                    .map(|r| (read(r), r.get::<_, i64>(13)))
                    .collect::<Vec<_>>())
            })?;
            let Some(last) = page.last() else { break };
            (id, seq) = (last.0.0, last.1);
            for ((doc, d), _) in &page {
                writer.put(*doc, d)?;
                done += 1;
                bytes += d.user_text.len() + d.assistant_text.len() + d.tool_text.len();
            }
            if bytes > COMMIT_BYTES {
                // Only the memory is freed: the removals of this stretch come at its end.
                writer.commit(Some(&seen.to_string()))?;
                bytes = 0;
            }
        }
        let removed: Vec<i64> = self.pool.read(|c| {
            let rows = c.rows(
                "SELECT id FROM removed_documents WHERE org_id = $1 AND derive_seq > $2 AND derive_seq < $3",
                &[&self.org, &seen, &upto],
            )?;
            Ok(rows.iter().map(|r| r.get(0)).collect())
        })?;
        for id in &removed {
            writer.remove(*id);
        }
        done += removed.len();
        writer.commit(Some(&(upto - 1).to_string()))?;
        Ok(done)
    }
}

impl Words for PgStore {
    fn word_search(
        &self,
        words: &[String],
        filter: &Filter,
        limit: usize,
    ) -> Result<Vec<(i64, f32)>> {
        self.words.search(
            words,
            filter,
            limit,
            || self.tail(filter, self.words_seen()?),
            |hits| self.keep_matching(hits, filter),
        )
    }

    fn index_words(&self, at_least: usize) -> Result<usize> {
        let seen = self.words_seen()?;
        let (waiting, upto): (i64, i64) = self.pool.read(|c| {
            let r = c.row(
                "SELECT
                   (SELECT count(*) FROM (SELECT 1 FROM span_documents WHERE org_id = $1 AND derive_seq > $2 LIMIT $3) x) +
                   (SELECT count(*) FROM (SELECT 1 FROM removed_documents WHERE org_id = $1 AND derive_seq > $2 LIMIT $3) x),
                   pg_snapshot_xmin(pg_current_snapshot())::text::bigint",
                &[&self.org, &seen, &(at_least.max(1) as i64)],
            )?;
            Ok(r.map_or((0, 0), |r| (r.get(0), r.get(1))))
        })?;
        if waiting == 0 || (waiting as usize) < at_least {
            return Ok(0);
        }
        let Some(mut writer) = self.words.writer()? else {
            return Ok(0);
        };
        // Another process of this machine may have written it since.
        let seen = self.words_seen()?;
        let done = self.follow(&mut writer, seen, upto)?;
        writer.finish()?;
        Ok(done)
    }
}
