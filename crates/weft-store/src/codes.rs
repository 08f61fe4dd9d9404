//! Vectors packed for scanning: one sign bit and one signed byte a component, in immutable files.
//!
//! A query takes its candidates by Hamming distance on the bits, chosen with a counting histogram,
//! and rescores them on the bytes. Figures behind this: `shared/spec/storage.md`, sections 2 and 3.
//!
//! File: a header of 64 bytes (`WEFTVEC1`, dimensions, rows), then bits, ids, mean, scales, bytes;
//! everything little-endian.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use memmap2::Mmap;

use crate::{Result, StoreError};

const MAGIC: &[u8; 8] = b"WEFTVEC1";
const HEADER: usize = 64;

/// A query in the forms that a scan needs.
#[derive(Debug)]
pub(crate) struct Query {
    f32s: Vec<f32>,
    i8s: Vec<i8>,
    scale: f32,
}

/// Bytes and the factor that brings them back.
pub(crate) fn quantize(v: &[f32]) -> (Vec<i8>, f32) {
    let max = v.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
    if max <= 0.0 || !max.is_finite() {
        return (vec![0; v.len()], 0.0);
    }
    let scale = max / 127.0;
    let bytes = v.iter().map(|x| (x / scale).round() as i8).collect();
    (bytes, scale)
}

/// Signs of the components around a mean, 64 to a word.
fn signs(v: &[f32], mean: &[f32]) -> Vec<u64> {
    let mut bits = vec![0_u64; v.len().div_ceil(64)];
    for (i, (x, m)) in v.iter().zip(mean).enumerate() {
        if x > m {
            bits[i / 64] |= 1 << (i % 64);
        }
    }
    bits
}

impl Query {
    pub(crate) fn new(v: &[f32]) -> Self {
        let (i8s, scale) = quantize(v);
        Self {
            f32s: v.to_vec(),
            i8s,
            scale,
        }
    }
}

/// An immutable block of packed vectors, mapped into memory.
#[derive(Debug)]
pub(crate) struct Segment {
    map: Mmap,
    dims: usize,
    rows: usize,
    mean: Vec<f32>,
}

impl Segment {
    /// Writes a segment; it appears under its name only when it is whole and on the disk.
    pub(crate) fn write(path: &Path, ids: &[i64], vectors: &[Vec<f32>]) -> Result<()> {
        let quantized: Vec<(Vec<i8>, f32)> = vectors.iter().map(|v| quantize(v)).collect();
        let dims = vectors.first().map_or(0, Vec::len);
        Self::write_rows(
            path,
            dims,
            ids,
            &|row, out| out.copy_from_slice(&vectors[row]),
            &|row, out: &mut Vec<u8>| {
                out.extend(quantized[row].0.iter().map(|b| b.cast_unsigned()));
                quantized[row].1
            },
        )
    }

    /// As [`Self::write`], from rows that are bytes already: a factor (`f32`) and the bytes of each.
    pub(crate) fn write_packed(
        path: &Path,
        dims: usize,
        ids: &[i64],
        rows: &[&[u8]],
    ) -> Result<()> {
        let split = |row: usize| {
            let (scale, bytes) = rows[row].split_at(4);
            (
                f32::from_le_bytes([scale[0], scale[1], scale[2], scale[3]]),
                bytes,
            )
        };
        Self::write_rows(
            path,
            dims,
            ids,
            &|row, out| {
                let (scale, bytes) = split(row);
                for (o, b) in out.iter_mut().zip(bytes) {
                    *o = f32::from(b.cast_signed()) * scale;
                }
            },
            &|row, out: &mut Vec<u8>| {
                let (scale, bytes) = split(row);
                out.extend_from_slice(bytes);
                scale
            },
        )
    }

    /// As [`Self::write`], from rows of other segments: `places` gives segment and row of each. Nothing
    /// but the places is held in memory.
    pub(crate) fn write_from(
        path: &Path,
        ids: &[i64],
        parts: &[Self],
        places: &[(u32, u32)],
    ) -> Result<()> {
        let dims = parts.first().map_or(0, |p| p.dims);
        let at = |row: usize| (&parts[places[row].0 as usize], places[row].1 as usize);
        Self::write_rows(
            path,
            dims,
            ids,
            &|row, out| {
                let (part, r) = at(row);
                let (scale, bytes) = (part.scale(r), part.bytes(r));
                for (o, b) in out.iter_mut().zip(bytes) {
                    *o = f32::from(b.cast_signed()) * scale;
                }
            },
            &|row, out: &mut Vec<u8>| {
                let (part, r) = at(row);
                out.extend_from_slice(part.bytes(r));
                part.scale(r)
            },
        )
    }

    /// Writes one row at a time: `f32s` gives its components, `bytes` its bytes and their factor.
    fn write_rows(
        path: &Path,
        dims: usize,
        ids: &[i64],
        f32s: &dyn Fn(usize, &mut [f32]),
        bytes: &dyn Fn(usize, &mut Vec<u8>) -> f32,
    ) -> Result<()> {
        let mut v = vec![0.0_f32; dims];
        let mut mean = vec![0.0_f32; dims];
        for row in 0..ids.len() {
            f32s(row, &mut v);
            for (m, x) in mean.iter_mut().zip(&v) {
                *m += x / ids.len() as f32;
            }
        }
        let partial = path.with_extension("partial");
        let mut out = BufWriter::new(File::create(&partial)?);
        let mut header = [0_u8; HEADER];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&(dims as u32).to_le_bytes());
        header[12..16].copy_from_slice(&(ids.len() as u32).to_le_bytes());
        out.write_all(&header)?;
        for row in 0..ids.len() {
            f32s(row, &mut v);
            for word in signs(&v, &mean) {
                out.write_all(&word.to_le_bytes())?;
            }
        }
        for id in ids {
            out.write_all(&id.to_le_bytes())?;
        }
        for m in &mean {
            out.write_all(&m.to_le_bytes())?;
        }
        let mut packed = Vec::with_capacity(dims);
        for row in 0..ids.len() {
            packed.clear();
            out.write_all(&bytes(row, &mut packed).to_le_bytes())?;
        }
        for row in 0..ids.len() {
            packed.clear();
            bytes(row, &mut packed);
            out.write_all(&packed)?;
        }
        let file = out
            .into_inner()
            .map_err(|e| StoreError::from(e.into_error()))?;
        file.sync_all()?;
        std::fs::rename(&partial, path)?;
        if let Some(dir) = path.parent() {
            File::open(dir)?.sync_all()?;
        }
        Ok(())
    }

    pub(crate) fn open(path: &Path) -> Result<Self> {
        let bad = |what: &str| StoreError::Corrupt(format!("{}: {what}", path.display()));
        let file = File::open(path)?;
        #[allow(unsafe_code, reason = "mapping a file is unsafe in itself")]
        // SAFETY: segment files are never changed after the rename that publishes them; a removed
        // file stays mapped. A file truncated by somebody else would fault, as for every mmap user.
        let map = unsafe { Mmap::map(&file)? };
        if map.len() < HEADER || &map[..8] != MAGIC {
            return Err(bad("not a vector segment"));
        }
        let word = |at: usize| u32::from_le_bytes([map[at], map[at + 1], map[at + 2], map[at + 3]]);
        let (dims, rows) = (word(8) as usize, word(12) as usize);
        let size = HEADER + rows * (dims.div_ceil(64) * 8 + 8 + 4 + dims) + dims * 4;
        if map.len() != size {
            return Err(bad("wrong size"));
        }
        let mut s = Self {
            map,
            dims,
            rows,
            mean: Vec::new(),
        };
        s.mean = crate::sqlite::models::from_blob(&s.map[s.mean_at()..s.scales_at()]);
        Ok(s)
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    fn words(&self) -> usize {
        self.dims.div_ceil(64)
    }

    fn ids_at(&self) -> usize {
        HEADER + self.rows * self.words() * 8
    }

    fn mean_at(&self) -> usize {
        self.ids_at() + self.rows * 8
    }

    fn scales_at(&self) -> usize {
        self.mean_at() + self.dims * 4
    }

    fn bytes_at(&self) -> usize {
        self.scales_at() + self.rows * 4
    }

    /// The vector id of a row; ids ascend.
    pub(crate) fn id(&self, row: usize) -> i64 {
        let at = self.ids_at() + row * 8;
        let mut b = [0; 8];
        b.copy_from_slice(&self.map[at..at + 8]);
        i64::from_le_bytes(b)
    }

    /// The row of a vector id.
    pub(crate) fn row_of(&self, id: i64) -> Option<usize> {
        let (mut low, mut high) = (0, self.rows);
        while low < high {
            let mid = usize::midpoint(low, high);
            match self.id(mid).cmp(&id) {
                std::cmp::Ordering::Less => low = mid + 1,
                std::cmp::Ordering::Greater => high = mid,
                std::cmp::Ordering::Equal => return Some(mid),
            }
        }
        None
    }

    fn bytes(&self, row: usize) -> &[u8] {
        let at = self.bytes_at() + row * self.dims;
        &self.map[at..at + self.dims]
    }

    fn scale(&self, row: usize) -> f32 {
        let s = self.scales_at() + row * 4;
        f32::from_le_bytes([
            self.map[s],
            self.map[s + 1],
            self.map[s + 2],
            self.map[s + 3],
        ])
    }

    /// Hamming distance of every row, appended to `out`; counts them in `histogram`.
    pub(crate) fn distances(&self, q: &Query, out: &mut Vec<u16>, histogram: &mut [u32]) {
        let bits = signs(&q.f32s, &self.mean);
        hamming(&self.map[HEADER..self.ids_at()], &bits, out, histogram);
    }

    /// Approximate dot product of a row with the query.
    pub(crate) fn approximate(&self, row: usize, q: &Query) -> f32 {
        let at = self.bytes_at() + row * self.dims;
        let scale = self.scale(row);
        dot_i8(&self.map[at..at + self.dims], &q.i8s) as f32 * scale * q.scale
    }
}

#[inline(always)]
fn hamming_body(rows: &[u8], query: &[u64], out: &mut Vec<u16>, histogram: &mut [u32]) {
    let width = query.len() * 8;
    if width == 0 {
        return;
    }
    out.reserve(rows.len() / width);
    for row in rows.chunks_exact(width) {
        let mut d = 0;
        for (word, q) in row.chunks_exact(8).zip(query) {
            let mut b = [0; 8];
            b.copy_from_slice(word);
            d += (u64::from_le_bytes(b) ^ q).count_ones();
        }
        out.push(d as u16);
        histogram[d as usize] += 1;
    }
}

#[inline(always)]
fn dot_body(row: &[u8], query: &[i8]) -> i32 {
    row.iter()
        .zip(query)
        .map(|(a, b)| i32::from(i16::from(a.cast_signed()) * i16::from(*b)))
        .sum()
}

/// The kernels compiled for the instructions that this machine has.
#[cfg(target_arch = "x86_64")]
mod simd {
    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn hamming(rows: &[u8], query: &[u64], out: &mut Vec<u16>, histogram: &mut [u32]) {
        super::hamming_body(rows, query, out, histogram);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn dot(row: &[u8], query: &[i8]) -> i32 {
        super::dot_body(row, query)
    }

    pub(super) fn available() -> bool {
        std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("popcnt")
    }
}

fn hamming(rows: &[u8], query: &[u64], out: &mut Vec<u16>, histogram: &mut [u32]) {
    #[cfg(target_arch = "x86_64")]
    if simd::available() {
        #[allow(unsafe_code, reason = "calling a function with target features")]
        // SAFETY: the features were found on this machine on the line above.
        return unsafe { simd::hamming(rows, query, out, histogram) };
    }
    hamming_body(rows, query, out, histogram);
}

fn dot_i8(row: &[u8], query: &[i8]) -> i32 {
    #[cfg(target_arch = "x86_64")]
    if simd::available() {
        #[allow(unsafe_code, reason = "calling a function with target features")]
        // SAFETY: the features were found on this machine on the line above.
        return unsafe { simd::dot(row, query) };
    }
    dot_body(row, query)
}

/// Exact dot product.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    // Eight sums at once, so that the compiler may use vector registers.
    let mut sums = [0.0_f32; 8];
    let (ac, bc) = (a.chunks_exact(8), b.chunks_exact(8));
    let tail: f32 = ac
        .remainder()
        .iter()
        .zip(bc.remainder())
        .map(|(x, y)| x * y)
        .sum();
    for (x, y) in ac.zip(bc) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    sums.iter().sum::<f32>() + tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_finds_its_own_rows() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("a.codes");
        // Deterministic, well spread directions.
        let vectors: Vec<Vec<f32>> = (0..300_u32)
            .map(|i| {
                let mut x = i.wrapping_mul(2_654_435_761) | 1;
                let v: Vec<f32> = (0..100)
                    .map(|_| {
                        x ^= x << 13;
                        x ^= x >> 17;
                        x ^= x << 5;
                        (x as f32 / u32::MAX as f32) - 0.5
                    })
                    .collect();
                let n = dot(&v, &v).sqrt();
                v.iter().map(|c| c / n).collect()
            })
            .collect();
        let ids: Vec<i64> = (0..300).map(|i| i * 3 + 1).collect();
        Segment::write(&path, &ids, &vectors).expect("write");
        let s = Segment::open(&path).expect("open");
        assert_eq!((s.rows(), s.row_of(7), s.row_of(8)), (300, Some(2), None));
        for (row, v) in vectors.iter().enumerate() {
            let q = Query::new(v);
            let (mut d, mut h) = (Vec::new(), vec![0; 129]);
            s.distances(&q, &mut d, &mut h);
            assert_eq!(d[row], 0);
            assert!(d.iter().enumerate().all(|(i, x)| i == row || *x > 0));
            assert_eq!(h.iter().sum::<u32>(), 300);
            assert!((s.approximate(row, &q) - 1.0).abs() < 0.02);
        }
        std::fs::write(&path, b"WEFTVEC1 cut").expect("write");
        assert!(matches!(Segment::open(&path), Err(StoreError::Corrupt(_))));
    }

    #[test]
    fn kernels_agree_with_their_portable_form() {
        let row: Vec<u8> = (0..=255).collect();
        let q: Vec<i8> = (0..256).map(|i| (i * 7 % 251) as u8 as i8).collect();
        assert_eq!(dot_i8(&row, &q), dot_body(&row, &q));
        let bits = [0x1234_5678_9abc_def0_u64, u64::MAX];
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let (mut ha, mut hb) = (vec![0; 129], vec![0; 129]);
        hamming(&row, &bits, &mut a, &mut ha);
        hamming_body(&row, &bits, &mut b, &mut hb);
        assert_eq!((a, ha), (b, hb));
    }
}
