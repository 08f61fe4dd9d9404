//! Nearest vectors of one model: packed segments, a tail in memory, exact scores at the end.
//!
//! The rows of `index.db` are the truth of this index. Segments hold most of them packed; rows
//! younger than the last segment are the tail, read from the database and scored exactly. Both are
//! published together behind an atomic pointer, so a search never waits for a writer.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::documents::conditions;
use super::models::from_blob;
use crate::codes::{Query, Segment, dot};
use crate::documents::merge_nearest;
use crate::{Filter, ModelInfo, Result, StoreError};

/// Rows of a full segment.
const SEGMENT_ROWS: usize = 65_536;

/// A tail of this many rows is packed.
const TAIL_ROWS: usize = 4_096;

/// Candidates taken by Hamming distance, at least.
const MIN_CANDIDATES: usize = 2_000;

/// Candidates a wanted hit, taken by Hamming distance.
const CANDIDATES_PER_HIT: usize = 200;

/// Candidates rescored exactly beyond the wanted hits: some may have lost their document.
const EXACT_EXTRA: usize = 40;

#[derive(Debug, Default)]
struct Snapshot {
    segments: Vec<(String, Arc<Segment>)>,
    /// Vectors behind the last segment, by id.
    tail: Vec<(i64, Arc<[f32]>)>,
    /// Last row of the segments.
    packed_to: i64,
    /// Newest row of all.
    last_id: i64,
}

#[derive(Debug, Default)]
struct ModelIndex {
    current: ArcSwap<Snapshot>,
    refreshing: Mutex<()>,
}

/// The vector indexes of a store, by model.
#[derive(Debug)]
pub(crate) struct VectorIndexes {
    dir: PathBuf,
    models: Mutex<HashMap<i64, Arc<ModelIndex>>>,
}

impl VectorIndexes {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            models: Mutex::new(HashMap::new()),
        }
    }

    fn of(&self, model: i64) -> Arc<ModelIndex> {
        self.models
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .entry(model)
            .or_default()
            .clone()
    }

    pub(crate) fn forget(&self) {
        self.models
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .clear();
    }
}

fn segment_rows(c: &Connection, model: i64) -> Result<Vec<(String, i64)>> {
    let mut q = c.prepare_cached(
        "SELECT file, last_id FROM vector_segments WHERE model_id = ?1 ORDER BY first_id",
    )?;
    let rows = q.query_map([model], |r| Ok((r.get(0)?, r.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn tail_rows(c: &Connection, model: i64, after: i64) -> Result<Vec<(i64, Arc<[f32]>)>> {
    let mut q = c.prepare_cached(
        "SELECT id, vector FROM vectors WHERE id > ?1 AND +model_id = ?2 ORDER BY id",
    )?;
    let mut rows = q.query(params![after, model])?;
    let mut out = Vec::new();
    while let Some(r) = rows.next()? {
        let v = from_blob(r.get_ref(1)?.as_blob().map_err(StoreError::other)?);
        out.push((r.get(0)?, v.into()));
    }
    Ok(out)
}

impl VectorIndexes {
    /// The index as the database has it now.
    fn snapshot(&self, c: &Connection, model: &ModelInfo) -> Result<Arc<Snapshot>> {
        let index = self.of(model.id);
        let now = index.current.load_full();
        let newest: i64 = c
            .prepare_cached("SELECT coalesce(max(id), 0) FROM vectors")?
            .query_row([], |r| r.get(0))?;
        let wanted = segment_rows(c, model.id)?;
        let same = |s: &Snapshot| {
            s.last_id >= newest
                && s.segments.len() == wanted.len()
                && s.segments.iter().zip(&wanted).all(|(a, b)| a.0 == b.0)
        };
        if same(&now) {
            return Ok(now);
        }
        let _one = index.refreshing.lock().unwrap_or_else(|e| e.into_inner());
        let now = index.current.load_full();
        if same(&now) {
            return Ok(now);
        }
        let mut segments = Vec::new();
        let mut packed_to = 0;
        for (file, last) in wanted {
            let known = now.segments.iter().find(|s| s.0 == file);
            let segment = match known {
                Some((_, s)) => s.clone(),
                None => match Segment::open(&self.dir.join(&file)) {
                    Ok(s) => Arc::new(s),
                    Err(e) => {
                        // The rows themselves are in the database: scan them from there.
                        tracing::warn!(error = %e, "vector segment unusable; run `weft doctor --fix`");
                        break;
                    }
                },
            };
            segments.push((file, segment));
            packed_to = last;
        }
        // The known tail is whole from where the known segments end to the newest known row.
        let reusable = now.packed_to <= packed_to && now.last_id >= packed_to;
        let (mut tail, after) = if reusable {
            let kept = now
                .tail
                .iter()
                .filter(|t| t.0 > packed_to)
                .cloned()
                .collect();
            (kept, now.last_id)
        } else {
            (Vec::new(), packed_to)
        };
        tail.extend(tail_rows(c, model.id, after)?);
        let snapshot = Arc::new(Snapshot {
            segments,
            tail,
            packed_to,
            last_id: newest,
        });
        index.current.store(snapshot.clone());
        Ok(snapshot)
    }
}

impl Snapshot {
    /// Ids of the rows nearest to the query, by approximate score, within `allowed` where given.
    ///
    /// `allowed` ascends.
    fn candidates(&self, query: &[f32], allowed: Option<&[i64]>, n: usize) -> Vec<i64> {
        let q = Query::new(query);
        let mut hits: Vec<(i64, f32)> = match allowed {
            Some(ids) => self.scan_allowed(&q, ids),
            None => self.scan_all(&q, n, query.len()),
        };
        for (id, v) in &self.tail {
            if allowed.is_none_or(|a| a.binary_search(id).is_ok()) {
                hits.push((*id, dot(query, v)));
            }
        }
        merge_nearest(vec![hits], n)
            .into_iter()
            .map(|h| h.0)
            .collect()
    }

    fn scan_allowed(&self, q: &Query, ids: &[i64]) -> Vec<(i64, f32)> {
        let mut hits = Vec::with_capacity(ids.len());
        for (_, s) in self.segments.iter().filter(|s| s.1.rows() > 0) {
            let from = ids.partition_point(|id| *id < s.id(0));
            let to = ids.partition_point(|id| *id <= s.id(s.rows() - 1));
            for &id in &ids[from..to] {
                if let Some(row) = s.row_of(id) {
                    hits.push((id, s.approximate(row, q)));
                }
            }
        }
        hits
    }

    fn scan_all(&self, q: &Query, n: usize, dims: usize) -> Vec<(i64, f32)> {
        let rows: usize = self.segments.iter().map(|s| s.1.rows()).sum();
        let wanted = (n * CANDIDATES_PER_HIT / 4).max(MIN_CANDIDATES);
        let mut distances = Vec::with_capacity(rows);
        let mut histogram = vec![0_u32; dims.div_ceil(64) * 64 + 1];
        for (_, s) in &self.segments {
            s.distances(q, &mut distances, &mut histogram);
        }
        let mut sum = 0;
        let limit = histogram
            .iter()
            .position(|count| {
                sum += *count as usize;
                sum >= wanted
            })
            .unwrap_or(histogram.len());
        let mut hits = Vec::with_capacity(wanted * 2);
        let mut at = 0;
        for (_, s) in &self.segments {
            for (row, d) in distances[at..at + s.rows()].iter().enumerate() {
                if usize::from(*d) <= limit {
                    hits.push((s.id(row), s.approximate(row, q)));
                }
            }
            at += s.rows();
        }
        hits
    }
}

/// The vectors of the documents that a filter lets through, ascending.
fn allowed_ids(c: &Connection, model: i64, filter: &Filter) -> Result<Vec<i64>> {
    let (clause, values) = conditions(filter);
    let mut q = c.prepare_cached(&format!(
        "SELECT v.id FROM documents d JOIN vectors v ON v.model_id = ? AND v.hash = d.hash
         WHERE {clause}"
    ))?;
    let bound = std::iter::once(&model as &dyn rusqlite::ToSql).chain(values.iter().map(|v| &**v));
    let rows = q.query_map(rusqlite::params_from_iter(bound), |r| r.get(0))?;
    let mut ids: Vec<i64> = rows.collect::<Result<_, _>>()?;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

impl SqliteStore {
    pub(super) fn nearest_rows(
        &self,
        model: &ModelInfo,
        query: &[f32],
        filter: &Filter,
        chunks: usize,
    ) -> Result<Vec<(i64, f32)>> {
        model.check_query(query)?;
        let norm = dot(query, query).sqrt();
        self.readers.with(|c| {
            let snapshot = self.vectors.snapshot(c, model)?;
            let allowed = if filter.is_empty() {
                None
            } else {
                Some(allowed_ids(c, model.id, filter)?)
            };
            let ids = snapshot.candidates(query, allowed.as_deref(), chunks + EXACT_EXTRA);
            let (clause, values) = conditions(filter);
            let mut vector = c.prepare_cached("SELECT vector, hash FROM vectors WHERE id = ?1")?;
            let mut docs = c.prepare_cached(&format!(
                "SELECT d.id FROM documents d WHERE d.hash = ? AND {clause}"
            ))?;
            let mut pieces: Vec<(i64, f32, Vec<u8>)> = Vec::new();
            for id in ids {
                let mut rows = vector.query([id])?;
                let Some(r) = rows.next()? else { continue };
                let v = from_blob(r.get_ref(0)?.as_blob().map_err(StoreError::other)?);
                let length = norm * dot(&v, &v).sqrt();
                let score = if length > 0.0 {
                    dot(query, &v) / length
                } else {
                    0.0
                };
                pieces.push((id, score, r.get(1)?));
            }
            pieces.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            pieces.truncate(chunks);
            let mut seen = HashSet::new();
            let mut hits = Vec::new();
            for (_, score, hash) in pieces {
                let bound = std::iter::once(&hash as &dyn rusqlite::ToSql)
                    .chain(values.iter().map(|v| &**v));
                let mut rows = docs.query(rusqlite::params_from_iter(bound))?;
                while let Some(r) = rows.next()? {
                    let doc: i64 = r.get(0)?;
                    if seen.insert(doc) {
                        hits.push((doc, score));
                    }
                }
            }
            Ok(hits)
        })
    }

    pub(super) fn pack_rows(&self, model: &ModelInfo) -> Result<usize> {
        let dir = self.vectors.dir.clone();
        std::fs::create_dir_all(&dir)?;
        let lock = std::fs::File::create(dir.join("lock"))?;
        if lock.try_lock().is_err() {
            return Ok(0);
        }
        let mut packed = 0;
        while let Some(n) = self.pack_once(model, &dir)? {
            packed += n;
        }
        if packed > 0 {
            self.remove_unlisted(&dir)?;
        }
        Ok(packed)
    }
}

impl SqliteStore {
    fn pack_once(&self, model: &ModelInfo, dir: &Path) -> Result<Option<usize>> {
        let id = model.id;
        let plan = self.readers.with(|c| {
            let last: Option<(i64, i64, i64)> = {
                let mut q = c.prepare_cached(
                    "SELECT first_id, last_id, rows FROM vector_segments WHERE model_id = ?1
                     ORDER BY first_id DESC LIMIT 1",
                )?;
                let mut rows = q.query([id])?;
                match rows.next()? {
                    Some(r) => Some((r.get(0)?, r.get(1)?, r.get(2)?)),
                    None => None,
                }
            };
            let after = last.map_or(0, |l| l.1);
            let tail: i64 = c
                .prepare_cached("SELECT count(*) FROM vectors WHERE id > ?1 AND +model_id = ?2")?
                .query_row([after, id], |r| r.get(0))?;
            if (tail as usize) < TAIL_ROWS {
                return Ok(None);
            }
            // A segment that is not full is written anew with the tail behind it.
            let grow = last.filter(|l| (l.2 as usize) < SEGMENT_ROWS);
            let from = grow.map_or(after, |l| l.0 - 1);
            let mut q = c.prepare_cached(
                "SELECT id, vector FROM vectors WHERE id > ?1 AND +model_id = ?2 ORDER BY id LIMIT ?3",
            )?;
            let mut rows = q.query(params![from, id, SEGMENT_ROWS as i64])?;
            let (mut ids, mut vectors) = (Vec::new(), Vec::new());
            while let Some(r) = rows.next()? {
                ids.push(r.get::<_, i64>(0)?);
                vectors.push(from_blob(r.get_ref(1)?.as_blob().map_err(StoreError::other)?));
            }
            Ok(Some((grow.map(|g| g.0), after, ids, vectors)))
        })?;
        let Some((replaces, after, ids, vectors)) = plan else {
            return Ok(None);
        };
        let (Some(&first), Some(&last)) = (ids.first(), ids.last()) else {
            return Ok(None);
        };
        let file = format!("{id}-{first}-{last}.codes");
        Segment::write(&dir.join(&file), &ids, &vectors)?;
        let rows = ids.len();
        let new = ids.iter().filter(|i| **i > after).count();
        self.index.run(move |c| {
            if let Some(old) = replaces {
                c.execute(
                    "DELETE FROM vector_segments WHERE model_id = ?1 AND first_id = ?2",
                    [id, old],
                )?;
            }
            c.execute(
                "INSERT INTO vector_segments VALUES (?1, ?2, ?3, ?4, ?5)",
                params![id, first, last, rows as i64, file],
            )?;
            Ok(())
        })?;
        Ok((new > 0).then_some(new))
    }

    fn remove_unlisted(&self, dir: &Path) -> Result<()> {
        let listed: HashSet<String> = self.readers.with(|c| {
            let mut q = c.prepare("SELECT file FROM vector_segments")?;
            let rows = q.query_map([], |r| r.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })?;
        for entry in std::fs::read_dir(dir)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "lock" && !listed.contains(&name) {
                // Whoever has it mapped keeps it until the next refresh.
                let _ = std::fs::remove_file(dir.join(name));
            }
        }
        Ok(())
    }
}
