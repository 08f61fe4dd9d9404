//! Bringing the projection up to date inside one command: derive, embed, index.

use std::time::{Duration, Instant};

use weft_store::StoreError;

use crate::{EmbedOptions, Engine};

/// Tells how far a long piece of work is: what, done, of.
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64, u64);

/// What is still behind after [`Engine::catch_up`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatchUp {
    /// Sessions derived.
    pub derived: usize,
    /// Documents embedded.
    pub embedded: u64,
    /// Whether the time ran out first.
    pub unfinished: bool,
}

impl Engine {
    /// Derives what waits, embeds it where that needs no other process, and commits the keyword
    /// index where its tail has grown. Stops after `budget` where one is given.
    ///
    /// # Errors
    /// A failure of the store; failing texts are left for the next pass.
    pub fn catch_up(
        &self,
        budget: Option<Duration>,
        progress: Progress<'_>,
    ) -> Result<CatchUp, StoreError> {
        let end = budget.map(|b| Instant::now() + b);
        let late = || end.is_some_and(|e| Instant::now() >= e);
        let mut done = CatchUp::default();
        let waiting = self.store.queue_depth()?;
        while !late() {
            let n = self.derive_queued(0, 0)?;
            done.derived += n;
            progress("deriving sessions", done.derived as u64, waiting);
            if n == 0 {
                break;
            }
        }
        self.store.fill_file_edits()?;
        if self.embed_waiting()? {
            let stop = || late();
            let pass = self.embed_pass(EmbedOptions {
                progress: Some(&mut |n| progress("embedding", n, 0)),
                stop: Some(&stop),
            });
            match pass {
                Ok(r) => done.embedded = r.embedded,
                Err(e) => tracing::warn!(error = %e, "embed pass failed; words are searched only"),
            }
        }
        done.unfinished = late();
        if !done.unfinished {
            self.store.index_words(WORDS_AT_LEAST)?;
        }
        Ok(done)
    }

    /// Whether there is something to embed that needs no other process.
    fn embed_waiting(&self) -> Result<bool, StoreError> {
        let Ok(e) = self.embedder() else {
            return Ok(false);
        };
        if !e.is_local() {
            return Ok(false);
        }
        match self.store.model(e.identity(), e.dimensions())? {
            Some(model) => self.store.embed_waiting(&model),
            None => Ok(true),
        }
    }
}

/// Fewer waiting documents than this are searched from the tail.
pub(crate) const WORDS_AT_LEAST: usize = 256;
