//! What the workers of this process have done, in the Prometheus text form, under the names that existing
//! dashboards read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_core::time::Micros;

use crate::EmbedReport;

/// Names of the counters; the order is that of [`Counter`].
const NAMES: [&str; 26] = [
    "tapes_derive_worker_derives_total{result=\"ok\"}",
    "tapes_derive_worker_derives_total{result=\"error\"}",
    "tapes_derive_worker_derives_total{result=\"skipped\"}",
    "tapes_derive_worker_requeued_total",
    "tapes_derive_worker_unknown_call_kinds_total",
    "tapes_derive_worker_parse_failures_total",
    "tapes_derive_worker_derive_lag_seconds",
    "tapes_derive_worker_poll_errors_total",
    "tapes_derive_worker_consecutive_poll_failures",
    "tapes_derive_worker_sweeps_total{result=\"ok\"}",
    "tapes_derive_worker_sweeps_total{result=\"error\"}",
    "tapes_derive_worker_sweep_enqueued_total",
    "tapes_embed_worker_passes_total{result=\"ok\"}",
    "tapes_embed_worker_passes_total{result=\"error\"}",
    "tapes_embed_worker_consecutive_pass_failures",
    "tapes_embed_worker_last_success_timestamp_seconds",
    "tapes_embed_worker_spans_scanned_total",
    "tapes_embed_worker_spans_embedded_total",
    "tapes_embed_worker_spans_up_to_date_total",
    "tapes_embed_worker_spans_empty_total",
    "tapes_embed_worker_spans_poisoned_total",
    "tapes_embed_worker_spans_failed_total",
    "tapes_embed_worker_spans_chunked_total",
    "tapes_embed_worker_chunk_rows_total",
    "tapes_embed_worker_oversize_total",
    "tapes_embed_worker_orphans_pruned_total",
];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Counter {
    Derives,
    DeriveErrors,
    DerivesSkipped,
    Requeued,
    UnknownCallKinds,
    ParseFailures,
    DeriveLag,
    PollErrors,
    PollFailures,
    SweepsOk,
    SweepsError,
    SweepEnqueued,
    PassesOk,
    PassesError,
    PassFailures,
    LastSuccess,
    Scanned,
    Embedded,
    UpToDate,
    Empty,
    Poisoned,
    Failed,
    Chunked,
    ChunkRows,
    Oversized,
    Pruned,
}

/// Seconds of a derivation or of a pass.
const SECONDS: [f64; 10] = [0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0];
/// Tokens of a text that a provider found too long.
const TOKENS: [f64; 10] = [
    8_192.0, 10_000.0, 12_000.0, 16_000.0, 24_000.0, 32_000.0, 48_000.0, 64_000.0, 96_000.0,
    131_072.0,
];

/// Values in buckets, with their sum.
#[derive(Debug)]
pub(crate) struct Histogram {
    name: &'static str,
    bounds: &'static [f64],
    state: Mutex<(Vec<u64>, f64)>,
}

impl Histogram {
    fn new(name: &'static str, bounds: &'static [f64]) -> Self {
        Self {
            name,
            bounds,
            state: Mutex::new((vec![0; bounds.len() + 1], 0.0)),
        }
    }

    pub(crate) fn observe(&self, value: f64) {
        let mut s = self.state.lock().unwrap_or_else(|e| e.into_inner());
        let at = self.bounds.partition_point(|b| *b < value);
        s.0[at] += 1;
        s.1 += value;
    }

    fn text(&self, out: &mut String) {
        let s = self.state.lock().unwrap_or_else(|e| e.into_inner());
        let mut below = 0;
        for (i, n) in s.0.iter().enumerate() {
            below += n;
            let bound = self.bounds.get(i).map_or("+Inf".to_owned(), f64::to_string);
            // Writing to a string does not fail.
            let _ = writeln!(out, "{}_bucket{{le=\"{bound}\"}} {below}", self.name);
        }
        let _ = writeln!(
            out,
            "{}_sum {}\n{}_count {below}",
            self.name, s.1, self.name
        );
    }
}

/// What the workers of this process have done, for metrics.
#[derive(Debug)]
pub struct Counters {
    values: [AtomicU64; NAMES.len()],
    failures: Mutex<BTreeMap<String, u64>>,
    pub(crate) derive_seconds: Histogram,
    pub(crate) pass_seconds: Histogram,
    pub(crate) oversize_tokens: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            values: Default::default(),
            failures: Mutex::default(),
            derive_seconds: Histogram::new("tapes_derive_worker_derive_duration_seconds", &SECONDS),
            pass_seconds: Histogram::new("tapes_embed_worker_pass_duration_seconds", &SECONDS),
            oversize_tokens: Histogram::new("tapes_embed_worker_oversize_tokens", &TOKENS),
        }
    }
}

impl Counters {
    pub(crate) fn add(&self, c: Counter, n: u64) {
        self.values[c as usize].fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, c: Counter, n: u64) {
        self.values[c as usize].store(n, Ordering::Relaxed);
    }

    /// Counts a text that cannot be embedded, by its reason.
    pub(crate) fn failure(&self, reason: &str) {
        let mut all = self.failures.lock().unwrap_or_else(|e| e.into_inner());
        *all.entry(reason.to_owned()).or_default() += 1;
    }

    pub(crate) fn pass(&self, r: &EmbedReport, now: Micros) {
        self.add(Counter::PassesOk, 1);
        self.set(Counter::PassFailures, 0);
        self.set(Counter::LastSuccess, (now / 1_000_000).unsigned_abs());
        for (counter, n) in [
            (Counter::Scanned, r.scanned),
            (Counter::Embedded, r.embedded),
            (Counter::UpToDate, r.up_to_date),
            (Counter::Empty, r.empty),
            (Counter::Poisoned, r.poisoned),
            (Counter::Failed, r.failed),
            (Counter::Chunked, r.chunked),
            (Counter::ChunkRows, r.chunk_rows),
            (Counter::Oversized, r.oversized),
            (Counter::Pruned, r.pruned),
        ] {
            self.add(counter, n);
        }
    }

    /// Everything with its value, in the Prometheus text form.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, v) in NAMES.iter().zip(&self.values) {
            let _ = writeln!(out, "{name} {}", v.load(Ordering::Relaxed));
        }
        for (reason, n) in self
            .failures
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .iter()
        {
            let _ = writeln!(
                out,
                "tapes_embed_worker_span_failures_total{{reason=\"{reason}\"}} {n}"
            );
        }
        for h in [
            &self.derive_seconds,
            &self.pass_seconds,
            &self.oversize_tokens,
        ] {
            h.text(&mut out);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_what_is_not_above_a_bound() {
        let h = Histogram::new("x", &TOKENS);
        for v in [8_192.0, 8_193.0, 1e9] {
            h.observe(v);
        }
        let mut text = String::new();
        h.text(&mut text);
        assert!(text.contains("x_bucket{le=\"8192\"} 1\n"), "{text}");
        assert!(text.contains("x_bucket{le=\"10000\"} 2\n"), "{text}");
        assert!(
            text.contains("x_bucket{le=\"+Inf\"} 3\n") && text.contains("x_count 3\n"),
            "{text}"
        );
    }
}
