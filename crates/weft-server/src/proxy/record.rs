//! What is kept of an exchange while it passes, within limits, and the body that keeps it.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::body::Bytes;
use http_body::{Body, Frame, SizeHint};
use weft_engine::{DropReason, Ended, Exchange};

use super::dispatch::{Dispatch, dropped};

/// Largest request or answer that is captured, bytes as they went over the wire.
pub(crate) const MAX_CAPTURED: usize = 48 << 20;
/// Bytes that all exchanges in flight and all turns that wait to be stored may hold.
pub(crate) const MAX_HELD: usize = 256 << 20;

/// What an exchange holds without its bodies, so that any number of empty ones is bounded, too.
const OVERHEAD: usize = 2 << 10;

/// Bytes held by captures, of all exchanges together.
#[derive(Debug, Default)]
pub(crate) struct Budget(AtomicUsize);

impl Budget {
    fn take(&self, n: usize) -> bool {
        let before = self.0.fetch_add(n, Ordering::Relaxed);
        if before + n > MAX_HELD {
            self.give(n);
            return false;
        }
        crate::metrics::CAPTURE.held.add(n as i64);
        true
    }

    fn give(&self, n: usize) {
        self.0.fetch_sub(n, Ordering::Relaxed);
        crate::metrics::CAPTURE.held.sub(n as i64);
    }
}

/// Which body of an exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Request,
    Response,
}

#[derive(Debug)]
struct Kept {
    exchange: Exchange,
    held: usize,
    /// Why nothing is kept any more.
    given_up: Option<DropReason>,
}

/// An exchange in flight. It is finished once: with the end of the answer, with a failure, or, where
/// neither was told, when it is dropped, which means that the client went away.
#[derive(Debug)]
pub(crate) struct Record {
    kept: Mutex<Kept>,
    clock: Instant,
    finished: AtomicBool,
    dispatch: Arc<Dispatch>,
}

impl Record {
    pub(crate) fn new(exchange: Exchange, dispatch: Arc<Dispatch>) -> Arc<Self> {
        crate::metrics::CAPTURE.open.inc();
        let fits = dispatch.budget.take(OVERHEAD);
        Arc::new(Self {
            kept: Mutex::new(Kept {
                exchange,
                held: if fits { OVERHEAD } else { 0 },
                given_up: (!fits).then_some(DropReason::SemFull),
            }),
            clock: Instant::now(),
            finished: AtomicBool::new(false),
            dispatch,
        })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Notes what the answer's head says.
    pub(crate) fn head(&self, f: impl FnOnce(&mut Exchange)) {
        f(&mut self.kept().exchange);
    }

    fn keep(&self, side: Side, data: &[u8]) {
        let mut kept = self.kept();
        if kept.given_up.is_some() {
            return;
        }
        let body = match side {
            Side::Request => &mut kept.exchange.request.0,
            Side::Response => &mut kept.exchange.response.0,
        };
        let reason = if body.len() + data.len() > MAX_CAPTURED {
            DropReason::RequestOverBudget
        } else if !self.dispatch.budget.take(data.len()) {
            DropReason::SemFull
        } else {
            body.extend_from_slice(data);
            kept.held += data.len();
            return;
        };
        kept.given_up = Some(reason);
        kept.exchange.request.0 = Vec::new();
        kept.exchange.response.0 = Vec::new();
        self.dispatch.budget.give(std::mem::take(&mut kept.held));
    }

    /// Ends an exchange that is no turn to store.
    pub(crate) fn drop_as(&self, reason: DropReason, why: &str) {
        if !self.finished.swap(true, Ordering::AcqRel) {
            dropped(reason, why);
        }
    }

    /// Ends an exchange whose answer ended.
    pub(crate) fn finish(&self, ended: Ended) {
        if self.finished.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut kept = self.kept();
        if let Some(reason) = kept.given_up {
            dropped(reason, "");
            return;
        }
        let mut exchange = Exchange {
            ended,
            elapsed: self.clock.elapsed().as_secs_f64(),
            request: std::mem::take(&mut kept.exchange.request),
            response: std::mem::take(&mut kept.exchange.response),
            ..kept.exchange.clone()
        };
        exchange.request.0.shrink_to_fit();
        let held = std::mem::take(&mut kept.held);
        drop(kept);
        self.dispatch.store(
            exchange,
            Held {
                n: held,
                budget: self.dispatch.budget.clone(),
            },
        );
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.finish(Ended::ClientGone);
        let held = self.kept().held;
        self.dispatch.budget.give(held);
        crate::metrics::CAPTURE.open.dec();
    }
}

/// A share of the budget, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    n: usize,
    budget: Arc<Budget>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.give(self.n);
    }
}

/// A body that passes through unchanged while a record keeps what it can of it.
#[derive(Debug)]
pub(crate) struct Tee<B> {
    inner: B,
    side: Side,
    record: Option<Arc<Record>>,
}

impl<B> Tee<B> {
    pub(crate) fn new(inner: B, side: Side, record: Option<Arc<Record>>) -> Self {
        Self {
            inner,
            side,
            record,
        }
    }
}

impl<B: Body> Tee<B> {
    /// The whole body went through.
    fn ended(&mut self, ended: Ended) {
        if let (Side::Response, Some(r)) = (self.side, self.record.take()) {
            r.finish(ended);
        }
    }
}

impl<B> Body for Tee<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        match &frame {
            Some(Ok(f)) => {
                if let (Some(data), Some(r)) = (f.data_ref(), &self.record) {
                    r.keep(self.side, data);
                }
                // The server does not ask for the end of a body whose length it knows.
                if self.inner.is_end_stream() {
                    self.ended(Ended::Whole);
                }
            }
            Some(Err(e)) => {
                let why = e.to_string();
                self.ended(Ended::Broken(why));
            }
            None => self.ended(Ended::Whole),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
