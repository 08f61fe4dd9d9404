//! Vectors of symbols: by text hash in the database, packed in segments for the scan.

use std::collections::HashSet;
use std::sync::Arc;

use rusqlite::params;

use super::words::CodeFilter;
use super::{CodeModel, CodeStore, SymbolKey};
use crate::codes::{Query, Segment};
use crate::{Result, StoreError};

/// Rows above which candidates are taken by their bits first.
const BITS_FROM: usize = 20_000;
/// Candidates by bits for each wanted hit.
const OVERSAMPLE: usize = 100;

/// A segment with the kinds of its rows, which a filter needs.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) segment: Segment,
}

/// A vector as bytes with their factor; what is stored and scanned.
pub fn pack_vector(v: &[f32]) -> Vec<u8> {
    let (bytes, scale) = crate::codes::quantize(v);
    let mut out = scale.to_le_bytes().to_vec();
    out.extend(bytes.iter().map(|b| b.cast_unsigned()));
    out
}

impl CodeStore {
    /// The model of an identity, if it has vectors here.
    pub fn model(&self, identity: &str) -> Result<Option<CodeModel>> {
        self.with(|c| {
            let mut s =
                c.prepare_cached("SELECT id, dimensions FROM models WHERE identity = ?1")?;
            let mut rows = s.query([identity])?;
            Ok(match rows.next()? {
                Some(r) => Some(CodeModel {
                    id: r.get(0)?,
                    dimensions: r.get(1)?,
                }),
                None => None,
            })
        })
    }

    /// Which of the hashes have no vector yet.
    pub fn without_vector(
        &self,
        model: CodeModel,
        hashes: &[[u8; super::HASH]],
    ) -> Result<Vec<bool>> {
        self.with(|c| {
            let mut s = c.prepare_cached("SELECT 1 FROM vectors WHERE model = ?1 AND hash = ?2")?;
            let mut out = Vec::with_capacity(hashes.len());
            for h in hashes {
                out.push(!s.exists(params![model.id, h.as_slice()])?);
            }
            Ok(out)
        })
    }

    /// Versions in the list that have no vectors of this model.
    pub fn not_embedded(&self, model: CodeModel, files: &[u32]) -> Result<Vec<u32>> {
        self.with(|c| {
            let mut s = c.prepare_cached("SELECT file FROM embedded WHERE model = ?1")?;
            let rows = s.query_map([model.id], |r| r.get::<_, u32>(0))?;
            let done: HashSet<u32> = rows.collect::<rusqlite::Result<_>>()?;
            Ok(files
                .iter()
                .copied()
                .filter(|f| !done.contains(f))
                .collect())
        })
    }

    fn packed(&self, model: CodeModel) -> Result<Vec<Arc<Packed>>> {
        let names: Vec<String> = self.with(|c| {
            let mut s =
                c.prepare_cached("SELECT name FROM segments WHERE model = ?1 ORDER BY name")?;
            let rows = s.query_map([model.id], |r| r.get(0))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })?;
        let mut out = Vec::with_capacity(names.len());
        for name in &names {
            let known = self
                .segments
                .read()
                .unwrap_or_else(|e| e.into_inner())
                .get(name)
                .cloned();
            let packed = match known {
                Some(p) => p,
                None => match Segment::open(&self.dir.join(name)) {
                    Ok(segment) => Arc::new(Packed { segment }),
                    // Merged away between the two reads; the next search has its successor.
                    Err(StoreError::Io(_) | StoreError::Other(_)) => continue,
                    Err(e) => return Err(e),
                },
            };
            out.push(packed.clone());
            self.segments
                .write()
                .unwrap_or_else(|e| e.into_inner())
                .entry(name.clone())
                .or_insert(packed);
        }
        self.segments
            .write()
            .unwrap_or_else(|e| e.into_inner())
            .retain(|n, _| names.contains(n));
        Ok(out)
    }

    /// The nearest symbols of the versions in view, by cosine similarity; kinds are not looked at.
    pub fn nearest(
        &self,
        model: CodeModel,
        vector: &[f32],
        filter: &CodeFilter,
        limit: usize,
    ) -> Result<Vec<(SymbolKey, f32)>> {
        if vector.len() != model.dimensions {
            return Err(StoreError::QueryDimensions {
                have: model.dimensions,
                want: vector.len(),
            });
        }
        let query = Query::new(vector);
        let mut best: Vec<(u64, f32)> = Vec::new();
        for p in self.packed(model)? {
            let s = &p.segment;
            let allowed = |row: usize| {
                filter
                    .view
                    .contains((s.id(row).cast_unsigned() >> 16) as u32)
            };
            let mut scored: Vec<(u64, f32)> = if s.rows() <= BITS_FROM {
                (0..s.rows())
                    .filter(|row| allowed(*row))
                    .map(|row| (s.id(row).cast_unsigned(), s.approximate(row, &query)))
                    .collect()
            } else {
                let mut distances = Vec::new();
                let mut histogram = vec![0_u32; model.dimensions.div_ceil(64) * 64 + 1];
                s.distances(&query, &mut distances, &mut histogram);
                histogram.fill(0);
                let rows: Vec<usize> = (0..s.rows()).filter(|row| allowed(*row)).collect();
                for row in &rows {
                    histogram[usize::from(distances[*row])] += 1;
                }
                let mut left = (limit * OVERSAMPLE) as u32;
                let mut cut = 0;
                for (d, n) in histogram.iter().enumerate() {
                    cut = d as u16;
                    if *n >= left {
                        break;
                    }
                    left -= n;
                }
                rows.into_iter()
                    .filter(|row| distances[*row] <= cut)
                    .map(|row| (s.id(row).cast_unsigned(), s.approximate(row, &query)))
                    .collect()
            };
            if scored.len() > limit {
                scored
                    .select_nth_unstable_by(limit, |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
                scored.truncate(limit);
            }
            best.extend(scored);
        }
        best.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        best.dedup_by_key(|b| b.0);
        best.truncate(limit);
        Ok(best.into_iter().map(|(k, s)| (SymbolKey(k), s)).collect())
    }
}
