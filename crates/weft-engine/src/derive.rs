//! Deriving sessions from their raw turns, driven by the durable queue.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use serde_json::Value;
use weft_capture::decode::decode;
use weft_core::block::ChatResponse;
use weft_core::derive::{
    Deriver, MAX_SAMPLES, Report, SOURCE_IMPORT, SOURCE_TRANSCRIPT, TranscriptFile, TurnRow,
    captured_at,
};
use weft_core::hash::block_signature;
use weft_core::provider;
use weft_core::time::Micros;
use weft_store::{QueueEntry, SessionKey, StoreError, StoredTurn, TurnIndex};

use crate::clock::now;
use crate::counters::Counter;
use crate::{Engine, documents};

/// Most sessions that one look at the queue derives.
const PAGE: usize = 50;
/// Sessions that are taken at once: the rest is for other workers.
const CLAIM: usize = 8;

/// What happened to one session.
#[derive(Clone, Debug, PartialEq)]
pub enum DeriveOutcome {
    /// Derived and stored.
    Done(Box<Report>),
    /// There is no session row, so nothing is projected.
    NoSession,
}

/// What [`Engine::derive_all`] reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunReport {
    /// Sessions that were derived.
    pub sessions: u64,
    /// Their counters together.
    pub report: Report,
}

fn meta_str<'a>(t: &'a TurnIndex, key: &str) -> &'a str {
    t.meta.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn response_id(r: &ChatResponse) -> Option<&str> {
    r.extra
        .get("id")
        .and_then(Value::as_str)
        .filter(|s| !s.is_empty())
}

/// The reduced response of a row; reduced again from the verbatim bytes where it is unusable.
fn response_of(t: &StoredTurn) -> Option<ChatResponse> {
    let stored = serde_json::from_value::<ChatResponse>(t.response.clone()).ok();
    if stored.as_ref().is_some_and(ChatResponse::is_usable) {
        return stored;
    }
    let bytes = t.raw_response.as_ref()?;
    if !provider::has_reducer(&t.provider) {
        return stored;
    }
    let content_type = t.meta.get("content_type").and_then(Value::as_str);
    let decoded = decode(bytes, &t.raw_response_encoding).ok()?;
    provider::reduce(
        &t.provider,
        &decoded.bytes,
        content_type.unwrap_or_default(),
    )
    .ok()
    .filter(ChatResponse::is_usable)
    .or(stored)
}

/// Beginning of the ids that the importer of Codex makes.
const NAMELESS: &str = "cx_";
/// How far the times of one answer on the wire and in a transcript may lie apart.
const SAME_ANSWER: Micros = 5 * 60 * 1_000_000;

/// Answers on the wire, by thread and content, with their times.
#[derive(Default)]
struct Answers(HashMap<(String, Vec<String>), Vec<Micros>>);

impl Answers {
    fn key(thread: &str, r: &ChatResponse) -> Option<(String, Vec<String>)> {
        let said: Vec<String> = r
            .message
            .content
            .iter()
            .filter_map(block_signature)
            .collect();
        (!said.is_empty()).then(|| (thread.to_owned(), said))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, thread: &str, r: &ChatResponse, at: Micros) {
        if let Some(key) = Self::key(thread, r) {
            self.0.entry(key).or_default().push(at);
        }
    }

    /// Whether such an answer was on the wire about then; each counts once.
    fn take(&mut self, thread: &str, r: &ChatResponse, at: Micros) -> bool {
        let Some(times) = Self::key(thread, r).and_then(|k| self.0.get_mut(&k)) else {
            return false;
        };
        let nearest = times
            .iter()
            .enumerate()
            .map(|(i, t)| ((t - at).abs(), i))
            .filter(|(apart, _)| *apart <= SAME_ANSWER)
            .min();
        nearest.map(|(_, i)| times.swap_remove(i)).is_some()
    }
}

fn fidelity(t: &StoredTurn) -> &'static str {
    if t.raw_response.is_some() {
        "raw"
    } else if t.raw_response_dropped {
        "degraded"
    } else {
        "reduced"
    }
}

impl Engine {
    /// Derives one session from everything that is stored of it.
    ///
    /// # Errors
    /// A failure of the store; rows that cannot be read are counted instead.
    pub fn derive_session(&self, key: &SessionKey) -> Result<DeriveOutcome, StoreError> {
        let found = self
            .store
            .sessions_by_key(Some(&key.harness_id), &key.harness_session_id)?;
        let Some(session) = found.into_iter().next() else {
            return Ok(DeriveOutcome::NoSession);
        };
        let rows = self.store.turn_index(key)?;
        let newest = rows.iter().map(|r| r.id).max().unwrap_or(0);
        let mut deriver = Deriver::new(&key.harness_id);
        for id in self.calls(&rows)? {
            if let Some(t) = self.store.turn(id)? {
                let response = response_of(&t);
                deriver.add_turn(TurnRow {
                    id: t.id,
                    response,
                    fidelity: fidelity(&t),
                    source: t.source,
                    provider: t.provider,
                    request_id: t.request_id,
                    request: t.raw_request,
                    meta: t.meta,
                    envelope: t.session_envelope,
                    received_at: t.received_at,
                });
            }
        }
        for file in self.transcripts(&rows)? {
            deriver.add_transcript(file);
        }
        let projection = deriver.finish();
        let report = projection.report.clone();
        if report.failed > 0 {
            tracing::warn!(session = %session.row.id, rows = report.failed, "turns that cannot be read were skipped");
        }
        let docs = documents::of(&session.row, &projection);
        self.store
            .write_projection(&session.row, projection, docs, newest as u64)?;
        Ok(DeriveOutcome::Done(Box::new(report)))
    }

    /// Ids of the rows that are calls, in the order in which the calls began.
    fn calls(&self, rows: &[TurnIndex]) -> Result<Vec<i64>, StoreError> {
        let imported = |r: &&TurnIndex| r.source == SOURCE_IMPORT;
        let has_imports = rows.iter().any(|r| imported(&r));
        // A message that was captured on the wire is not taken from a transcript again; of several
        // readings of one message the last one counts, since an answer grows while it is written.
        let mut on_wire: HashSet<String> = HashSet::new();
        let mut answers = Answers::default();
        let mut latest: HashMap<(&str, &str), i64> = HashMap::new();
        if has_imports {
            for r in rows.iter().filter(|r| r.source == "wire") {
                if let Some(t) = self.store.turn(r.id)?
                    && let Some(response) = response_of(&t)
                {
                    on_wire.extend(response_id(&response).map(str::to_owned));
                    answers.add(
                        meta_str(r, "thread_id"),
                        &response,
                        captured_at(&r.meta, r.received_at),
                    );
                }
            }
            for r in rows.iter().filter(imported) {
                latest.insert((meta_str(r, "thread_id"), meta_str(r, "message_id")), r.id);
            }
        }
        // Where a transcript does not have the provider's ids, an answer is known by what it says and when.
        let mut copies: HashSet<i64> = HashSet::new();
        for r in rows.iter().filter(imported) {
            if !answers.is_empty()
                && (r.meta.contains_key("local_id")
                    || meta_str(r, "message_id").starts_with(NAMELESS))
                && let Some(t) = self.store.turn(r.id)?
                && let Some(response) = response_of(&t)
                && answers.take(
                    meta_str(r, "thread_id"),
                    &response,
                    captured_at(&r.meta, r.received_at),
                )
            {
                copies.insert(r.id);
            }
        }
        let mut calls: Vec<(Micros, i64)> = rows
            .iter()
            .filter(|r| r.source != SOURCE_TRANSCRIPT)
            .filter(|r| {
                if r.source != SOURCE_IMPORT {
                    return true;
                }
                let message = meta_str(r, "message_id");
                !on_wire.contains(message)
                    && !copies.contains(&r.id)
                    && latest.get(&(meta_str(r, "thread_id"), message)) == Some(&r.id)
            })
            .map(|r| (captured_at(&r.meta, r.received_at), r.id))
            .collect();
        calls.sort_by_key(|c| c.0);
        Ok(calls.into_iter().map(|c| c.1).collect())
    }

    /// The transcript rows that count: of each file the newest spawn evidence, the newest row that
    /// is none, and the newest row of every other kind.
    fn transcripts(&self, rows: &[TurnIndex]) -> Result<Vec<TranscriptFile>, StoreError> {
        let mut groups: BTreeMap<(String, String), Vec<i64>> = BTreeMap::new();
        for r in rows.iter().filter(|r| r.source == SOURCE_TRANSCRIPT) {
            let agent = match meta_str(r, "agent_id") {
                "" => "main",
                a => a,
            };
            let kind = match meta_str(r, "kind") {
                "started" => "",
                k => k,
            };
            groups
                .entry((agent.to_owned(), kind.to_owned()))
                .or_default()
                .push(r.id);
        }
        let mut kept: Vec<(i64, TranscriptFile)> = Vec::new();
        for ((_, kind), ids) in groups {
            let mut inert = false;
            for id in ids.into_iter().rev() {
                let Some(t) = self.store.turn(id)? else {
                    continue;
                };
                let Value::Array(records) = &t.raw_request else {
                    tracing::warn!(row = id, "transcript row is not an array, skipped");
                    continue;
                };
                let file = TranscriptFile::read(&t.meta, records);
                if !kind.is_empty() || file.is_spawn_evidence() {
                    kept.push((id, file));
                    break;
                }
                if !inert {
                    inert = true;
                    kept.push((id, file));
                }
            }
        }
        kept.sort_by_key(|k| k.0);
        Ok(kept.into_iter().map(|k| k.1).collect())
    }

    /// Derives the sessions of the queue that have been quiet for `debounce`, or dirty for
    /// `max_lag` (microseconds). Returns how many were derived; a session that fails stays queued.
    ///
    /// # Errors
    /// Where the queue itself cannot be read.
    pub fn derive_queued(&self, debounce: Micros, max_lag: Micros) -> Result<usize, StoreError> {
        let at = now();
        let (mut done, mut taken) = (0, 0);
        let mut renewal = None;
        while taken < PAGE {
            let claimed =
                self.store
                    .claim_derivations(at - debounce, at - max_lag, CLAIM, &self.lease())?;
            if claimed.is_empty() {
                break;
            }
            renewal.get_or_insert_with(|| self.keep_leases());
            taken += claimed.len();
            for entry in claimed {
                done += usize::from(self.derive_claimed(&entry)?);
            }
        }
        Ok(done)
    }

    /// Derives a session that was taken from the queue; true where it was derived.
    fn derive_claimed(&self, entry: &QueueEntry) -> Result<bool, StoreError> {
        let began = Instant::now();
        let lag = (now() - entry.dirtied_at).max(0) / 1_000_000;
        self.counters.set(Counter::DeriveLag, lag.unsigned_abs());
        match self.derive_session(&entry.key) {
            Ok(outcome) => {
                self.counters
                    .derive_seconds
                    .observe(began.elapsed().as_secs_f64());
                match outcome {
                    DeriveOutcome::Done(r) => {
                        self.counters.add(Counter::Derives, 1);
                        self.counters.add(Counter::ParseFailures, r.failed);
                        let unknown = r.call_kinds.get("unknown").copied().unwrap_or_default();
                        self.counters.add(Counter::UnknownCallKinds, unknown);
                    }
                    DeriveOutcome::NoSession => self.counters.add(Counter::DerivesSkipped, 1),
                }
                if !self.store.dequeue(entry)? {
                    self.counters.add(Counter::Requeued, 1);
                }
                Ok(true)
            }
            Err(e) => {
                self.counters.add(Counter::DeriveErrors, 1);
                tracing::warn!(error = %e, harness = %entry.key.harness_id, session = %entry.key.harness_session_id, "session stays queued");
                self.store.put_back(entry, now())?;
                Ok(false)
            }
        }
    }

    /// Queues every session with a turn since `since`: repairs lost marks, applies new rules.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn sweep(&self, since: Micros) -> Result<u64, StoreError> {
        self.store.sweep_queue(since, now())
    }

    /// Derives every session that has a session row.
    ///
    /// # Errors
    /// The first failure of the store.
    pub fn derive_all(&self) -> Result<RunReport, StoreError> {
        let mut run = RunReport::default();
        let mut after = None;
        loop {
            let (page, next) = self.store.list_sessions(&weft_store::ListQuery {
                sort: weft_store::SortField::StartedAt,
                ascending: true,
                after: after.take(),
                limit: 200,
                ..weft_store::ListQuery::default()
            })?;
            for s in page {
                if let DeriveOutcome::Done(r) = self.derive_session(&s.row.key)? {
                    run.sessions += 1;
                    add(&mut run.report, *r);
                }
            }
            match next {
                Some(n) => after = Some(n),
                None => return Ok(run),
            }
        }
    }
}

fn add(total: &mut Report, r: Report) {
    total.raw_turns += r.raw_turns;
    total.parsed_turns += r.parsed_turns;
    total.raw_only_turns += r.raw_only_turns;
    total.failed += r.failed;
    total.nodes += r.nodes;
    total.judged_actions += r.judged_actions;
    total.attached_verdicts += r.attached_verdicts;
    total.web_summary_attached += r.web_summary_attached;
    total.plans_attached += r.plans_attached;
    total.parse_failures.extend(r.parse_failures);
    total.parse_failures.truncate(MAX_SAMPLES);
    total.unattached_actions.extend(r.unattached_actions);
    total.unattached_actions.truncate(MAX_SAMPLES);
    for (k, n) in r.call_kinds {
        *total.call_kinds.entry(k).or_default() += n;
    }
    for (k, n) in r.node_kinds {
        *total.node_kinds.entry(k).or_default() += n;
    }
    if let Some(r) = r.reconcile {
        let t = total.reconcile.get_or_insert_default();
        t.transcript_files += r.transcript_files;
        t.subagent_forks += r.subagent_forks;
        t.forked_chains += r.forked_chains;
        t.main_chains_joined += r.main_chains_joined;
        t.conversation_joined += r.conversation_joined;
        t.conversation_total += r.conversation_total;
        t.codex_threads_anchored += r.codex_threads_anchored;
        t.codex_threads_unanchored += r.codex_threads_unanchored;
        t.codex_interacted_rows += r.codex_interacted_rows;
    }
}
