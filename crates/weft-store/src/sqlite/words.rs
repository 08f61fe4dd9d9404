//! Words of the embedded store: which documents the keyword index has, and the tail that it has not.
//!
//! **Invariant.** A document is marked as indexed only after tantivy's commit, so a crash can only
//! lead to indexing it again.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::SqliteStore;
use super::documents::{self, conditions};
use crate::Result;
use crate::documents::{Document, Filter};
use crate::words::{COMMIT_BYTES, COMMIT_ROWS, TAIL_ROWS, WordWriter, Words};

fn tail(c: &Connection, filter: &Filter) -> Result<Vec<(i64, Document)>> {
    let (clause, values) = conditions(filter);
    let mut q = c.prepare_cached(&format!(
        "SELECT {} FROM documents d WHERE d.words_done = 0 AND {clause}
         ORDER BY d.id DESC LIMIT {TAIL_ROWS}",
        documents::COLUMNS
    ))?;
    let bound = values.iter().map(|v| &**v);
    let rows = q.query_map(rusqlite::params_from_iter(bound), documents::read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

impl Words for SqliteStore {
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
            || self.readers.with(|c| tail(c, filter)),
            |hits| self.keep_matching(hits, filter),
        )
    }

    fn index_words(&self, at_least: usize) -> Result<usize> {
        let waiting: i64 = self.readers.with(|c| {
            Ok(c.query_row(
                "SELECT (SELECT count(*) FROM documents WHERE words_done = 0) +
                        (SELECT count(*) FROM removed_documents WHERE words_done = 0)",
                [],
                |r| r.get(0),
            )?)
        })?;
        if waiting == 0 || (waiting as usize) < at_least {
            return Ok(0);
        }
        let Some(mut writer) = self.words.writer()? else {
            return Ok(0);
        };
        let mut done = 0;
        loop {
            let n = self.index_batch(&mut writer)?;
            if n == 0 {
                break;
            }
            done += n;
        }
        writer.finish()?;
        Ok(done)
    }
}

impl SqliteStore {
    /// Drops hits that a filter does not let through.
    fn keep_matching(&self, hits: &mut HashMap<i64, f32>, filter: &Filter) -> Result<()> {
        let (clause, values) = conditions(filter);
        self.readers.with(|c| {
            let mut q = c.prepare_cached(&format!(
                "SELECT 1 FROM documents d WHERE d.id = ? AND {clause}"
            ))?;
            let mut gone = Vec::new();
            for id in hits.keys() {
                let bound =
                    std::iter::once(id as &dyn rusqlite::ToSql).chain(values.iter().map(|v| &**v));
                if !q.exists(rusqlite::params_from_iter(bound))? {
                    gone.push(*id);
                }
            }
            for id in gone {
                hits.remove(&id);
            }
            Ok(())
        })
    }

    fn index_batch(&self, writer: &mut WordWriter) -> Result<usize> {
        let (added, removed) = self.readers.with(|c| {
            let mut q = c.prepare_cached(&format!(
                "SELECT {} FROM documents d WHERE d.words_done = 0 ORDER BY d.id LIMIT ?1",
                documents::COLUMNS
            ))?;
            let mut rows = q.query(params![COMMIT_ROWS as i64])?;
            let (mut added, mut bytes) = (Vec::new(), 0);
            while let Some(r) = rows.next()? {
                let (id, d) = documents::read(r)?;
                writer.put(id, &d)?;
                added.push(id);
                bytes += d.user_text.len() + d.assistant_text.len() + d.tool_text.len();
                if bytes > COMMIT_BYTES {
                    break;
                }
            }
            let mut q =
                c.prepare_cached("SELECT id FROM removed_documents WHERE words_done = 0")?;
            let removed: Vec<i64> = q.query_map([], |r| r.get(0))?.collect::<Result<_, _>>()?;
            for id in &removed {
                writer.remove(*id);
            }
            Ok((added, removed))
        })?;
        let n = added.len() + removed.len();
        if n == 0 {
            return Ok(0);
        }
        writer.commit(None)?;
        self.index.run(move |c| {
            let mut mark = c.prepare_cached("UPDATE documents SET words_done = 1 WHERE id = ?1")?;
            for id in &added {
                mark.execute([id])?;
            }
            let mut forget =
                c.prepare_cached("UPDATE removed_documents SET words_done = 1 WHERE id = ?1")?;
            for id in &removed {
                forget.execute([id])?;
            }
            c.execute(
                "DELETE FROM removed_documents WHERE words_done = 1 AND vectors_done = 1",
                [],
            )?;
            Ok(())
        })?;
        Ok(n)
    }
}
