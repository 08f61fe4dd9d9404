//! Correcting whose turn a captured turn is.

use std::collections::BTreeSet;

use weft_store::{Attribution, Correction, NewSession, SessionKey, StoreError};

use crate::Engine;
use crate::clock::{new_id, now};

/// Which turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// By its row.
    Id(i64),
    /// By the gateway's id of the exchange, in its session block.
    Exchange(String),
}

/// A wanted attribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Which turn.
    pub turn: Selector,
    /// Its session.
    pub key: SessionKey,
    /// Its thread; "" = main.
    pub thread_id: String,
    /// The session that its session belongs to.
    pub parent: Option<String>,
    /// Why.
    pub reason: String,
}

/// Why a turn was not repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// There is no such turn.
    #[error("raw turn not found")]
    NotFound,
    /// Several turns are of that exchange.
    #[error("raw turn selector is ambiguous")]
    Ambiguous,
    /// The store failed; nothing was recorded.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a repair did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// False where the turn was attributed so already.
    pub recorded: bool,
    /// Whose turn it was.
    pub previous: Attribution,
    /// Whose turn it is.
    pub effective: Attribution,
    /// Sessions that could not be derived at once; a worker does it.
    pub pending: Vec<SessionKey>,
}

impl Engine {
    /// Records whose turn a turn is and derives both sessions; a session that no turn is left of is removed.
    ///
    /// # Errors
    /// See [`RepairError`].
    pub fn repair(&self, r: Repair) -> Result<Repaired, RepairError> {
        let id = match &r.turn {
            Selector::Id(id) => *id,
            Selector::Exchange(x) => match self.store.turns_of_exchange(x)?.as_slice() {
                [] => return Err(RepairError::NotFound),
                [id] => *id,
                _ => return Err(RepairError::Ambiguous),
            },
        };
        let previous = self.store.attribution(id)?.ok_or(RepairError::NotFound)?;
        let effective = Attribution {
            raw_turn_id: id,
            key: r.key,
            thread_id: r.thread_id,
            parent: r.parent,
        };
        let mut done = Repaired {
            recorded: previous != effective,
            previous,
            effective,
            pending: Vec::new(),
        };
        if !done.recorded {
            return Ok(done);
        }
        let session = self.session_like(&done.previous, &done.effective)?;
        self.store.correct(
            Correction {
                to: done.effective.clone(),
                reason: r.reason,
                at: now(),
            },
            Some(session),
            &done.previous.key,
        )?;
        let keys = BTreeSet::from([&done.previous.key, &done.effective.key]);
        done.pending = keys
            .into_iter()
            .filter(|key| {
                self.project_or_remove(key)
                    .inspect_err(
                        |e| tracing::warn!(error = %e, "a repaired session is left to the workers"),
                    )
                    .is_err()
            })
            .cloned()
            .collect();
        Ok(done)
    }

    /// The session that a repaired turn gets where there is none: as the one that it had.
    fn session_like(
        &self,
        before: &Attribution,
        after: &Attribution,
    ) -> Result<NewSession, StoreError> {
        let key = &before.key;
        let old = self
            .store
            .sessions_by_key(Some(&key.harness_id), &key.harness_session_id)?
            .into_iter()
            .next()
            .map(|s| s.row);
        let (started, seen) = old
            .as_ref()
            .map_or_else(|| (now(), now()), |s| (s.started_at, s.last_seen_at));
        let of = |f: fn(&weft_store::SessionRow) -> &String| old.as_ref().map(f).cloned();
        Ok(NewSession {
            new_id: new_id(),
            new_parent_id: new_id(),
            key: after.key.clone(),
            auth_subject: of(|s| &s.auth_subject).unwrap_or_default(),
            name: String::new(),
            cwd: of(|s| &s.cwd).unwrap_or_default(),
            harness_version: of(|s| &s.harness_version).unwrap_or_default(),
            parent: after.parent.clone().unwrap_or_default(),
            metadata: serde_json::Map::new(),
            repository: of(|s| &s.repository).unwrap_or_default(),
            source_path: String::new(),
            started_at: started,
            last_seen_at: seen,
        })
    }

    /// Derives a session, or removes it where no turn is left of it.
    fn project_or_remove(&self, key: &SessionKey) -> Result<(), StoreError> {
        if self.store.turn_index(key)?.is_empty() {
            let there = self
                .store
                .sessions_by_key(Some(&key.harness_id), &key.harness_session_id)?;
            for s in there {
                self.store.delete_session(&s.row.id)?;
            }
            return Ok(());
        }
        self.derive_session(key).map(drop)
    }
}
