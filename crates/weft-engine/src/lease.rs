//! Work that is taken from a shared store stays taken while this process lives.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use weft_store::{Lease, Store};

use crate::Engine;

/// How long work of a process that died stays taken.
const LEASE: Duration = Duration::from_secs(30);
/// How often a living process says so.
const RENEW: Duration = Duration::from_secs(10);

fn lease(owner: &str) -> Lease<'_> {
    Lease {
        owner,
        micros: LEASE.as_micros() as i64,
    }
}

/// Renews the leases of this process until it is dropped.
#[derive(Debug)]
pub(crate) struct Renewal {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Renewal {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

impl Engine {
    /// Under what name, and for how long, this process takes work.
    pub(crate) fn lease(&self) -> Lease<'_> {
        lease(&self.owner)
    }

    /// Keeps what this process has taken for as long as the result lives.
    pub(crate) fn keep_leases(&self) -> Renewal {
        if !self.store.is_shared() {
            return Renewal {
                stop: None,
                thread: None,
            };
        }
        let (stop, stopped) = channel::<()>();
        let (store, owner): (Arc<dyn Store>, String) = (self.store.clone(), self.owner.clone());
        let thread = std::thread::Builder::new()
            .name("weft-leases".into())
            .spawn(move || {
                while stopped.recv_timeout(RENEW) == Err(RecvTimeoutError::Timeout) {
                    if let Err(e) = store.renew_leases(&lease(&owner)) {
                        tracing::warn!(error = %e, "leases not renewed; another worker may take over");
                    }
                }
            });
        Renewal {
            stop: Some(stop),
            thread: thread.ok(),
        }
    }
}
