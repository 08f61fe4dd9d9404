//! Counters of both APIs, by the names that existing dashboards read.

use std::sync::LazyLock;

use prometheus::{
    Encoder as _, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder, exponential_buckets,
};
use weft_engine::{DropReason, Engine};

/// Which surface a request came in on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surface {
    pub(crate) requests: Option<&'static ApiMetrics>,
}

pub(crate) fn api() -> Surface {
    Surface {
        requests: Some(&API),
    }
}

pub(crate) fn ingest() -> Surface {
    Surface { requests: None }
}

#[derive(Debug)]
pub(crate) struct ApiMetrics {
    registry: Registry,
    pub(crate) requests: IntCounterVec,
    pub(crate) duration: HistogramVec,
    pub(crate) inflight: IntGauge,
}

#[derive(Debug)]
pub(crate) struct IngestMetrics {
    registry: Registry,
    pub(crate) writes: IntCounterVec,
    pub(crate) seconds: HistogramVec,
    pub(crate) body_bytes: HistogramVec,
}

/// Registers a collector; the names below are distinct, so registering cannot fail.
fn add<T: prometheus::core::Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<T>,
) -> T {
    let collector = made.unwrap_or_else(|e| unreachable!("constant metric: {e}"));
    if let Err(e) = registry.register(Box::new(collector.clone())) {
        tracing::error!(error = %e, "metric not registered");
    }
    collector
}

pub(crate) static API: LazyLock<ApiMetrics> = LazyLock::new(|| {
    let registry = Registry::new();
    ApiMetrics {
        requests: add(
            &registry,
            IntCounterVec::new(
                Opts::new(
                    "tapes_apiserver_requests_total",
                    "Requests by route, method and status.",
                ),
                &["route", "method", "status"],
            ),
        ),
        duration: add(
            &registry,
            HistogramVec::new(
                HistogramOpts::new(
                    "tapes_apiserver_request_duration_seconds",
                    "Time to answer.",
                ),
                &["route", "method"],
            ),
        ),
        inflight: add(
            &registry,
            IntGauge::new(
                "tapes_apiserver_inflight_requests",
                "Requests being answered.",
            ),
        ),
        registry,
    }
});

pub(crate) static INGEST: LazyLock<IngestMetrics> = LazyLock::new(|| {
    let registry = Registry::new();
    let buckets = exponential_buckets(256.0, 2.62, 14).unwrap_or_default();
    IngestMetrics {
        writes: add(
            &registry,
            IntCounterVec::new(
                Opts::new(
                    "tapes_ingest_writes_total",
                    "Ingested turns by provider and outcome.",
                ),
                &["provider", "status"],
            ),
        ),
        seconds: add(
            &registry,
            HistogramVec::new(
                HistogramOpts::new(
                    "tapes_ingest_dag_write_seconds",
                    "Time to store an accepted turn.",
                ),
                &["provider"],
            ),
        ),
        body_bytes: add(
            &registry,
            HistogramVec::new(
                HistogramOpts::new("tapes_ingest_body_bytes", "Bodies of accepted turns.")
                    .buckets(buckets),
                &["provider"],
            ),
        ),
        registry,
    }
});

#[derive(Debug)]
pub(crate) struct CaptureMetrics {
    registry: Registry,
    pub(crate) turns: IntCounterVec,
    pub(crate) dropped: IntCounterVec,
    pub(crate) held: IntGauge,
    pub(crate) open: IntGauge,
}

pub(crate) static CAPTURE: LazyLock<CaptureMetrics> = LazyLock::new(|| {
    let registry = Registry::new();
    let counter = |name: &str, help: &str, label: &str| {
        add(
            &registry,
            IntCounterVec::new(Opts::new(name, help), &[label]),
        )
    };
    let turns = counter(
        "weft_capture_turns_total",
        "Turns that the proxy stored, by the provider's format.",
        "provider",
    );
    let dropped = counter(
        "weft_capture_dropped_total",
        "Exchanges that the proxy passed on and did not store, by reason.",
        "reason",
    );
    for reason in DropReason::ALL {
        dropped.with_label_values(&[reason.name()]);
    }
    let gauge = |name: &str, help: &str| add(&registry, IntGauge::new(name, help));
    CaptureMetrics {
        turns,
        dropped,
        held: gauge(
            "weft_capture_held_bytes",
            "Bytes of exchanges in flight and of turns that wait to be stored.",
        ),
        open: gauge("weft_capture_open_turns", "Turns in flight."),
        registry,
    }
});

/// The text exposition of a registry.
fn text(registry: &Registry) -> String {
    let mut out = Vec::new();
    if let Err(e) = TextEncoder::new().encode(&registry.gather(), &mut out) {
        tracing::error!(error = %e, "metrics not encoded");
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Counters of this process's workers, and how much waits for them at this moment.
pub(crate) fn worker_text(engine: &Engine) -> String {
    let mut out = engine.counters().text();
    // Only where a proxy runs.
    if let Some(capture) = LazyLock::get(&CAPTURE) {
        out.push_str(&text(&capture.registry));
    }
    if let Ok(depth) = engine.store().queue_depth() {
        out.push_str(&format!("tapes_derive_worker_queue_depth {depth}\n"));
    }
    out
}

pub(crate) fn api_text() -> String {
    text(&API.registry)
}

pub(crate) fn ingest_text() -> String {
    text(&INGEST.registry)
}
