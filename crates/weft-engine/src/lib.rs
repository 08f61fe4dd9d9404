//! What weft does: use cases and background work over the store, the providers and the importers.
//!
//! The CLI, HTTP and MCP form of a use case call the same function here. Nothing in this crate
//! prints, parses a command line or knows a wire format.

pub mod brief;
mod capture;
mod catch_up;
mod clock;
pub mod code;
pub mod config;
mod counters;
pub mod decisions;
mod derive;
mod documents;
mod embed;
pub mod everything;
mod import;
mod ingest;
mod lease;
mod migrate;
mod repair;
mod search;
pub mod show;
pub mod skill;
mod status;
mod tokens;
pub mod why;
pub mod worker;

use std::path::Path;
use std::sync::{Arc, Weak};

use weft_embed::Embedder;
use weft_store::Store;

pub use capture::{CaptureError, Ended, Exchange};
pub use catch_up::{CatchUp, Progress};
pub use clock::{now, time_words};
pub use code::{CodeAnswer, CodeError, CodeHit, CodeQuery, CodeRepo, CodeSync};
pub use config::Config;
pub use counters::Counters;
pub use decisions::{DecisionError, Decisions};
pub use derive::{DeriveOutcome, RunReport};
pub use embed::{EmbedOptions, EmbedPassError};
pub use import::transcripts_since;
pub use import::{FileReport, ImportOptions, ImportReport, Roots, SampleReport};
pub use ingest::{IngestError, TranscriptAck};
pub use migrate::{MigrateError, MigrateReport};
pub use repair::{Repair, RepairError, Repaired, Selector};
pub use search::{Answer, Degraded, Hit, Mode, SearchError, SpanQuery};
pub use status::{Doctor, Status};
pub use weft_capture::attribution;
pub use weft_capture::exchange::{self, DropReason};
pub use weft_capture::import::{Format, Skip};
pub use weft_capture::repository;
pub use weft_core as core;
pub use weft_store::{
    Attribution, Check, Coverage, DoctorReport, Document, EmbedReport, Filter, LinkRow, ListQuery,
    RawTurnInfo, Role, Scope, SessionFull, SessionKey, SessionRow, SortField, SpanHit, SpanRow,
    StatsRow, StoreError, Subagents, TokenRow, TraceRow, redacted,
};

/// Everything that the doors need: a store, an embedder, a configuration.
#[derive(Debug)]
pub struct Engine {
    /// This engine, for threads that outlive a call.
    me: Weak<Self>,
    store: Arc<dyn Store>,
    /// Under this name work of a shared store is taken.
    owner: String,
    embedder: Result<Arc<Embedder>, String>,
    config: Config,
    wake: worker::Wake,
    counters: Counters,
    code: code::Open,
}

impl Engine {
    /// Opens the store of a data directory. An embedder that cannot be made is no error here: what
    /// needs it says why it is missing.
    ///
    /// # Errors
    /// As [`weft_store::open`].
    pub fn open(data_dir: &Path, config: Config) -> Result<Arc<Self>, StoreError> {
        let store = weft_store::open(data_dir, &config.postgres_dsn)?;
        let embedder = Embedder::new(&config.embedding)
            .map(Arc::new)
            .map_err(|e| e.to_string());
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            store,
            owner: format!("{}-{}", std::process::id(), clock::new_id()),
            embedder,
            config,
            wake: worker::Wake::default(),
            counters: Counters::default(),
            code: code::Open::default(),
        }))
    }

    /// The store: reads that need no more than a query go to it directly.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The embedder, or why there is none.
    pub fn embedder(&self) -> Result<&Arc<Embedder>, &str> {
        self.embedder.as_ref().map_err(String::as_str)
    }

    /// What the workers of this process have done.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// This engine for a thread of its own; `None` while it is being dropped.
    pub(crate) fn handle(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
