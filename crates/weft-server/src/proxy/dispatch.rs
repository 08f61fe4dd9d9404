//! Storing captured exchanges beside the traffic: a reply never waits for the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};
use weft_engine::{CaptureError, DropReason, Engine, Exchange};

use super::record::{Budget, Held};
use crate::metrics::CAPTURE;

/// Turns that are stored at the same time.
const AT_ONCE: usize = 4;
/// How long a turn that the store does not take is tried again.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time to the second try, doubled for each further one up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// How long turns that wait may still be stored after the proxy was told to end.
const LAST_CALL: Duration = Duration::from_secs(5);

struct Job {
    exchange: Exchange,
    /// Its share of the budget, given back when the job ends.
    _held: Held,
}

/// The way from the traffic to the store.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) budget: Arc<Budget>,
    queue: mpsc::UnboundedSender<Job>,
}

impl Dispatch {
    /// The dispatch, and what stores until every handle of it is gone.
    pub(crate) fn new(engine: Arc<Engine>) -> (Arc<Self>, tokio::task::JoinHandle<()>) {
        // What waits is bounded by its bytes.
        let (queue, jobs) = mpsc::unbounded_channel();
        let dispatch = Arc::new(Self {
            budget: Arc::new(Budget::default()),
            queue,
        });
        (dispatch, tokio::spawn(work(engine, jobs)))
    }

    /// Queues an exchange for the store.
    pub(crate) fn store(&self, exchange: Exchange, held: Held) {
        let job = Job {
            exchange,
            _held: held,
        };
        if self.queue.send(job).is_err() {
            dropped(DropReason::IngestTimeout, "the proxy is ending");
        }
    }
}

/// Counts an exchange that is not stored.
pub(super) fn dropped(reason: DropReason, why: &str) {
    CAPTURE.dropped.with_label_values(&[reason.name()]).inc();
    match reason {
        DropReason::NonTurnRequest | DropReason::UpstreamStatus | DropReason::ClientDisconnect => {
            tracing::debug!(reason = reason.name(), why, "not captured");
        }
        _ => tracing::warn!(reason = reason.name(), why, "not captured"),
    }
}

async fn work(engine: Arc<Engine>, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut storing = tokio::task::JoinSet::new();
    while let Some(job) = jobs.recv().await {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            break;
        };
        let engine = engine.clone();
        storing.spawn(async move {
            keep(engine, job).await;
            drop(slot);
        });
        while storing.try_join_next().is_some() {}
    }
    while storing.join_next().await.is_some() {}
}

/// Stores one exchange, again and again where the store is busy or away.
async fn keep(engine: Arc<Engine>, job: Job) {
    let job = Arc::new(job);
    let deadline = Instant::now() + PATIENCE;
    let mut pause = FIRST_PAUSE;
    loop {
        let (e, j) = (engine.clone(), job.clone());
        let stored = tokio::task::spawn_blocking(move || e.capture(&j.exchange)).await;
        match stored {
            Ok(Ok(provider)) => {
                CAPTURE.turns.with_label_values(&[provider]).inc();
                return;
            }
            Ok(Err(CaptureError::Dropped(reason, why))) => return dropped(reason, &why),
            Ok(Err(CaptureError::Store(e))) if Instant::now() + pause > deadline => {
                return dropped(DropReason::IngestReject, &e.to_string());
            }
            Ok(Err(CaptureError::Store(e))) => {
                tracing::debug!(error = %e, "turn not stored yet");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(e) => return dropped(DropReason::IngestReject, &e.to_string()),
        }
    }
}

/// Waits for what is still being stored, for a while.
pub(crate) async fn drain(dispatch: Arc<Dispatch>, worker: tokio::task::JoinHandle<()>) {
    drop(dispatch);
    if tokio::time::timeout(LAST_CALL, worker).await.is_err() {
        dropped(
            DropReason::IngestTimeout,
            "the proxy ended before the store took all turns",
        );
    }
}
