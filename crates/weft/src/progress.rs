//! Progress of long work: a bar on a terminal, silence in pipes.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Work shorter than this shows nothing.
const PATIENCE: Duration = Duration::from_millis(300);

/// A bar that appears when work takes long enough to be noticed.
#[derive(Debug)]
pub(crate) struct Bar {
    enabled: bool,
    start: Instant,
    what: String,
    bar: Option<ProgressBar>,
}

impl Bar {
    pub(crate) fn new(quiet: bool) -> Self {
        Self {
            enabled: !quiet && std::io::stderr().is_terminal(),
            start: Instant::now(),
            what: String::new(),
            bar: None,
        }
    }

    /// Tells how far the work is; `total` 0 = unknown.
    pub(crate) fn tell(&mut self, what: &str, done: u64, total: u64) {
        if !self.enabled || self.start.elapsed() < PATIENCE {
            return;
        }
        if self.what != what {
            self.clear();
            self.what = what.to_owned();
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = if total > 0 {
                ProgressBar::new(total)
            } else {
                ProgressBar::new_spinner()
            };
            let template = if total > 0 {
                "{msg} {bar:30} {pos}/{len}  {per_sec}  {eta} left"
            } else {
                "{msg} {spinner} {pos}"
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_message(what.to_owned());
            bar
        });
        bar.set_position(done);
    }

    /// Takes the bar away.
    pub(crate) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}
