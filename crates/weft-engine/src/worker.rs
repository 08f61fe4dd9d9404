//! Background work of a server: deriving and embedding, each in its own thread.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::catch_up::WORDS_AT_LEAST;
use crate::clock::now;
use crate::counters::Counter;
use crate::{EmbedOptions, Engine, ImportOptions};

/// Longest pause after failures of the embed worker.
const MAX_EMBED_BACKOFF: Duration = Duration::from_secs(300);
/// Longest pause after failures of the derive worker.
const MAX_DERIVE_BACKOFF: Duration = Duration::from_secs(30);
/// A tail of the keyword index older than this is committed however small it is.
const WORDS_MAX_AGE: Duration = Duration::from_secs(60);

/// Time between two looks at the change feed of a shared store.
const FOLLOW: Duration = Duration::from_secs(2);

/// Time between two looks at the transcripts of this machine.
const TRANSCRIPTS: Duration = Duration::from_secs(5);

/// Lets one part of the process tell a worker that there is something to do.
#[derive(Debug, Default)]
pub struct Wake {
    flags: Mutex<Flags>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Flags {
    derive: bool,
    embed: bool,
    stop: bool,
}

impl Wake {
    fn set(&self, f: impl FnOnce(&mut Flags)) {
        f(&mut self.flags.lock().unwrap_or_else(|e| e.into_inner()));
        self.changed.notify_all();
    }

    pub(crate) fn derive(&self) {
        self.set(|f| f.derive = true);
    }

    /// Sleeps until `take` finds its flag, the worker shall stop, or time is up; true = stop.
    fn wait(&self, timeout: Duration, take: impl Fn(&mut Flags) -> bool) -> bool {
        let end = Instant::now() + timeout;
        let mut flags = self.flags.lock().unwrap_or_else(|e| e.into_inner());
        loop {
            if flags.stop {
                return true;
            }
            if take(&mut flags) {
                return false;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            flags = self
                .changed
                .wait_timeout(flags, left)
                .map_or_else(|e| e.into_inner().0, |w| w.0);
        }
    }

    fn stopping(&self) -> bool {
        self.flags.lock().unwrap_or_else(|e| e.into_inner()).stop
    }
}

/// How the derive worker goes about it.
#[derive(Clone, Copy, Debug)]
pub struct DeriveKnobs {
    /// Time between two looks at the queue.
    pub poll: Duration,
    /// Quiet time after which a session is derived.
    pub debounce: Duration,
    /// Longest time that a busy session waits.
    pub max_lag: Duration,
    /// Time between two sweeps.
    pub sweep: Duration,
    /// Age of the turns that a sweep looks at; `None` = all.
    pub sweep_window: Option<Duration>,
}

impl DeriveKnobs {
    /// As `serve derive-worker` has it.
    pub const STANDALONE: Self = Self {
        poll: Duration::from_secs(5),
        debounce: Duration::from_secs(20),
        max_lag: Duration::from_secs(45),
        sweep: Duration::from_secs(3600),
        sweep_window: Some(Duration::from_secs(24 * 3600)),
    };
    /// As `serve` has it: there is one process, and somebody is waiting.
    pub const IN_PROCESS: Self = Self {
        poll: Duration::from_secs(1),
        debounce: Duration::from_secs(2),
        ..Self::STANDALONE
    };
}

/// Running workers.
#[derive(Debug)]
pub struct Workers {
    engine: Arc<Engine>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// No worker yet.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            threads: Vec::new(),
        }
    }

    fn spawn(&mut self, name: &str, f: impl FnOnce(&Engine) + Send + 'static) {
        let engine = self.engine.clone();
        match std::thread::Builder::new()
            .name(name.into())
            .spawn(move || f(&engine))
        {
            Ok(t) => self.threads.push(t),
            Err(e) => tracing::error!(error = %e, "{name} does not start"),
        }
    }

    /// Starts deriving.
    pub fn derive(&mut self, knobs: DeriveKnobs) {
        self.spawn("weft-derive", move |e| derive_loop(e, knobs));
    }

    /// Starts embedding, with a pass at once.
    pub fn embed(&mut self, interval: Duration) {
        self.spawn("weft-embed", move |e| embed_loop(e, interval));
    }

    /// Starts following the change feed of a shared store, so that searches by words in this process
    /// find what other processes derive. Nothing to do for the embedded store.
    pub fn follow_words(&mut self) {
        if self.engine.store.is_shared() {
            self.spawn("weft-words", words_loop);
        }
    }

    /// Takes in what agents write to their transcripts, a moment after they wrote it.
    pub fn follow_transcripts(&mut self, options: ImportOptions) {
        self.spawn("weft-transcripts", move |e| transcripts_loop(e, &options));
    }

    /// Ends the workers; a pass in flight finishes its page.
    pub fn stop(self) {
        self.engine.wake.set(|f| f.stop = true);
        for t in self.threads {
            let _ = t.join();
        }
    }
}

fn micros(d: Duration) -> i64 {
    i64::try_from(d.as_micros()).unwrap_or(i64::MAX / 4)
}

fn backoff(base: Duration, failures: u32, max: Duration) -> Duration {
    let full = base
        .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(16)))
        .min(max);
    // Between half and all of it, so that many workers do not come back at once.
    let part = 50 + (now() / 7 % 51) as u32;
    full * part / 100
}

fn derive_loop(engine: &Engine, knobs: DeriveKnobs) {
    if let Err(e) = engine.store.fill_file_edits() {
        tracing::warn!(error = %e, "the files that older spans wrote are not noted yet");
    }
    let mut swept: Option<Instant> = None;
    let mut failures = 0;
    loop {
        if swept.is_none_or(|t| t.elapsed() >= knobs.sweep) {
            let since = knobs.sweep_window.map_or(i64::MIN, |w| now() - micros(w));
            match engine.sweep(since) {
                Ok(n) => {
                    engine.counters.add(Counter::SweepsOk, 1);
                    engine.counters.add(Counter::SweepEnqueued, n);
                    tracing::debug!(sessions = n, "sweep");
                }
                Err(e) => {
                    engine.counters.add(Counter::SweepsError, 1);
                    tracing::warn!(error = %e, "sweep failed");
                }
            }
            swept = Some(Instant::now());
        }
        let pause = match engine.derive_queued(micros(knobs.debounce), micros(knobs.max_lag)) {
            Ok(n) => {
                if failures > 0 {
                    tracing::info!("derive worker recovered");
                }
                failures = 0;
                engine.counters.set(Counter::PollFailures, 0);
                if n > 0 {
                    engine.wake.set(|f| f.embed = true);
                }
                knobs.poll
            }
            Err(e) => {
                failures += 1;
                engine.counters.add(Counter::PollErrors, 1);
                engine.counters.set(Counter::PollFailures, failures.into());
                tracing::warn!(error = %e, failures, "derive queue cannot be read");
                backoff(knobs.poll, failures, MAX_DERIVE_BACKOFF)
            }
        };
        // A turn that has just come in is derived after its debounce, not after a whole poll.
        let pause = pause.min(knobs.debounce.max(Duration::from_millis(200)));
        if engine.wake.wait(pause, |_| false) {
            return;
        }
    }
}

fn words_loop(engine: &Engine) {
    let mut failed = false;
    loop {
        match engine.store.index_words(WORDS_AT_LEAST) {
            Ok(_) => failed = false,
            Err(e) if failed => tracing::debug!(error = %e, "change feed not followed"),
            Err(e) => {
                failed = true;
                tracing::warn!(error = %e, "change feed not followed; trying again");
            }
        }
        if engine.wake.wait(FOLLOW, |_| false) {
            return;
        }
    }
}

fn transcripts_loop(engine: &Engine, options: &ImportOptions) {
    let mut failed = false;
    loop {
        // A file that did not change since it was imported is not opened.
        match engine.import(options, &mut |_, _, _| {}) {
            Ok(r) => {
                failed = false;
                if r.new_turns > 0 {
                    tracing::info!(
                        turns = r.new_turns,
                        sessions = r.sessions,
                        "transcripts imported"
                    );
                    engine.wake.derive();
                }
            }
            Err(e) if failed => tracing::debug!(error = %e, "transcripts not imported"),
            Err(e) => {
                failed = true;
                tracing::warn!(error = %e, "transcripts not imported; trying again");
            }
        }
        if engine.wake.wait(TRANSCRIPTS, |_| false) {
            return;
        }
    }
}

fn embed_loop(engine: &Engine, interval: Duration) {
    let mut failures = 0;
    let mut words_committed = Instant::now();
    loop {
        let stop = || engine.wake.stopping();
        let began = Instant::now();
        let pause = match engine.embed_pass(EmbedOptions {
            progress: None,
            stop: Some(&stop),
        }) {
            Ok(r) => {
                if failures > 0 {
                    tracing::info!("embed worker recovered");
                }
                failures = 0;
                engine.counters.pass(&r, now());
                engine
                    .counters
                    .pass_seconds
                    .observe(began.elapsed().as_secs_f64());
                if r.embedded + r.failed + r.pruned > 0 {
                    tracing::info!(
                        embedded = r.embedded,
                        failed = r.failed,
                        pruned = r.pruned,
                        "embed pass"
                    );
                }
                interval
            }
            Err(e) => {
                failures += 1;
                engine.counters.add(Counter::PassesError, 1);
                engine.counters.set(Counter::PassFailures, failures.into());
                tracing::warn!(error = %e, failures, "embed pass failed");
                backoff(interval, failures, MAX_EMBED_BACKOFF)
            }
        };
        let old = words_committed.elapsed() >= WORDS_MAX_AGE;
        match engine
            .store
            .index_words(if old { 1 } else { WORDS_AT_LEAST })
        {
            Ok(n) if n > 0 || old => words_committed = Instant::now(),
            Ok(_) => {}
            Err(e) => tracing::warn!(error = %e, "keyword index not committed"),
        }
        let take = |f: &mut Flags| std::mem::take(&mut f.embed);
        if engine.wake.wait(pause, take) {
            return;
        }
    }
}
