//! Moving a store: everything that is true is copied, what is derived is derived again, vectors are
//! taken over by the hash of their texts, and the two are compared at the end.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::json;
use sha2::{Digest as _, Sha256};
use weft_core::hash::canonical_json;
use weft_store::{Lease, ListQuery, NewSession, NewTurn, SortField, Store, StoreError};

use crate::catch_up::Progress;
use crate::clock::now;
use crate::{Engine, SessionRow};

/// Turns of one transaction, and of one read.
const PAGE: usize = 200;
/// Documents whose vectors are taken over at once.
const VECTORS: usize = 1_000;

/// How long nothing may be derived: twice as long as a process that died keeps what it has taken.
const STUCK: Duration = Duration::from_secs(60);

/// Why a move ended.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// A store failed; running it again goes on where it was.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Sessions that could not be derived.
    #[error("{0} session(s) are not derived; the log says why, and running it again tries again")]
    Underived(u64),
    /// Something is not there, or not as it was.
    #[error("the stores differ after copying: {0}")]
    Differs(String),
}

/// What was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MigrateReport {
    /// Raw turns of the source.
    pub turns: u64,
    /// Of those, turns that this run brought.
    pub turns_copied: u64,
    /// Sessions.
    pub sessions: u64,
    /// Corrections of attribution.
    pub corrections: u64,
    /// Sessions that were derived anew.
    pub derived: u64,
    /// Texts whose vectors were taken over.
    pub vectors: u64,
    /// Workspaces of decisions.
    pub workspaces: u64,
    /// Decisions.
    pub decisions: u64,
    /// Events of decisions.
    pub events: u64,
    /// Repositories, claims of drafts and purged paths.
    pub repositories: u64,
    /// Tokens.
    pub tokens: u64,
}

/// What a turn says, in a form that no store changes.
fn digest(t: &NewTurn) -> [u8; 32] {
    let payload = |p: &Option<String>| {
        p.as_deref().map(|text| {
            let value = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
            Sha256::digest(canonical_json(&value)).to_vec()
        })
    };
    let facts = json!([
        t.source,
        t.provider,
        t.agent_name,
        t.harness_id,
        t.harness_session_id,
        t.request_id,
        payload(&t.raw_request),
        payload(&t.response),
        payload(&Some(t.meta.clone())),
        payload(&t.session_envelope),
        t.received_at,
        t.raw_response.as_ref().map(|b| Sha256::digest(b).to_vec()),
        t.raw_response_encoding,
        t.raw_response_dropped,
    ]);
    Sha256::digest(canonical_json(&facts)).into()
}

/// How often each turn is there.
fn digests(s: &dyn Store, mut each: impl FnMut()) -> Result<HashMap<[u8; 32], u64>, StoreError> {
    let mut all = HashMap::new();
    let mut after = 0;
    loop {
        let page = s.turns_after(after, PAGE)?;
        let Some(last) = page.last() else {
            return Ok(all);
        };
        after = last.0;
        for (_, t) in &page {
            *all.entry(digest(t)).or_insert(0) += 1;
            each();
        }
    }
}

/// All sessions, the older first.
fn sessions(s: &dyn Store) -> Result<Vec<SessionRow>, StoreError> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let (page, next) = s.list_sessions(&ListQuery {
            sort: SortField::StartedAt,
            ascending: true,
            after,
            limit: 500,
            ..ListQuery::default()
        })?;
        all.extend(page.into_iter().map(|s| s.row));
        match next {
            Some(n) => after = Some(n),
            None => return Ok(all),
        }
    }
}

fn copy_sessions(from: &dyn Store, to: &dyn Store) -> Result<u64, StoreError> {
    let all = sessions(from)?;
    let keys: HashMap<&str, &SessionRow> = all.iter().map(|s| (s.id.as_str(), s)).collect();
    for s in &all {
        let parent = keys.get(s.parent_session_id.as_str());
        to.upsert_session(NewSession {
            new_id: s.id.clone(),
            new_parent_id: s.parent_session_id.clone(),
            key: s.key.clone(),
            auth_subject: s.auth_subject.clone(),
            name: s.name.clone(),
            cwd: s.cwd.clone(),
            harness_version: s.harness_version.clone(),
            parent: parent.map_or_else(String::new, |p| p.key.harness_session_id.clone()),
            metadata: s.harness_metadata.clone(),
            repository: s.repository.clone(),
            source_path: s.source_path.clone(),
            started_at: s.started_at,
            last_seen_at: s.last_seen_at,
        })?;
        if !s.display_name.is_empty() {
            to.rename_session(&s.id, Some(&s.display_name))?;
        }
    }
    Ok(all.len() as u64)
}

fn copy_decisions(
    from: &dyn Store,
    to: &dyn Store,
    report: &mut MigrateReport,
) -> Result<(), MigrateError> {
    for ws in from.workspaces()? {
        let there = to.put_workspace(&ws.slug, &ws.repo_id, now())?.slug;
        report.workspaces += 1;
        for folder in from.decision_folders(&ws.slug)? {
            to.add_decision_folder(&there, &folder)?;
        }
        let mut records = from.decisions(&ws.slug)?;
        let mut events = Vec::new();
        for r in &mut records {
            r.body = from.decision_body(&ws.slug, &r.path)?;
            let known = to.decision_events(&there, &r.id)?.len();
            let all = from.decision_events(&ws.slug, &r.id)?;
            report.events += all.len() as u64;
            events.extend(all.into_iter().skip(known));
        }
        report.decisions += records.len() as u64;
        let copied = records.clone();
        to.put_decisions(&there, records, events)?;
        for r in copied {
            if to.decision_body(&there, &r.path)? != r.body {
                return Err(MigrateError::Differs(format!("decision {}", r.path)));
            }
        }
    }
    Ok(())
}

fn copy_code_and_tokens(
    from: &dyn Store,
    to: &dyn Store,
    report: &mut MigrateReport,
) -> Result<(), MigrateError> {
    for r in from.repositories(None)? {
        to.put_repository(&r, now())?;
        report.repositories += 1;
    }
    for id in from.repository_ids()? {
        for claim in from.draft_claims(&id)? {
            to.claim_draft(&id, &claim)?;
            report.repositories += 1;
        }
        let purged = from.purged(&id)?;
        report.repositories += purged.len() as u64;
        to.put_purged(&id, &purged, now())?;
    }
    for (hash, t) in from.token_hashes()? {
        if to.token(hash)?.is_none() {
            to.put_token(hash, &t)?;
        }
        if to.token(hash)?.as_ref() != Some(&t) {
            return Err(MigrateError::Differs(format!("token {}", t.id)));
        }
        report.tokens += 1;
    }
    Ok(())
}

/// Copies corrections of attribution; the turns they are about have arrived.
fn copy_corrections(from: &dyn Store, to: &dyn Store) -> Result<u64, MigrateError> {
    let known = to.corrections()?;
    let all = from.corrections()?;
    for (mut c, request_id) in all.iter().cloned() {
        // A turn without a request id kept its id.
        if let Some(id) = to.turn_of_request(&request_id)? {
            c.to.raw_turn_id = id;
        }
        let before = to.attribution(c.to.raw_turn_id)?;
        let Some(before) = before.filter(|_| !known.iter().any(|k| k.0 == c)) else {
            continue;
        };
        to.correct(c, None, &before.key)?;
    }
    Ok(all.len() as u64)
}

impl Engine {
    /// Copies everything from this engine's store into another's. A run that was broken off goes on
    /// where it was; a finished one changes nothing more.
    ///
    /// # Errors
    /// A failure of either store, or a difference that is left at the end.
    pub fn migrate_to(
        &self,
        to: &Self,
        source: &str,
        progress: Progress<'_>,
    ) -> Result<MigrateReport, MigrateError> {
        let (old, new) = (self.store(), to.store());
        let mut report = MigrateReport {
            sessions: copy_sessions(old, new)?,
            turns: old.count_turns()?,
            ..MigrateReport::default()
        };
        let mut after = new.transferred(source)?;
        let mut done = 0;
        loop {
            let page = old.turns_after(after, PAGE)?;
            let Some(last) = page.last() else { break };
            after = last.0;
            done += page.len() as u64;
            report.turns_copied += new.put_transferred(source, page)? as u64;
            progress("copying turns", done, report.turns);
        }
        report.corrections = copy_corrections(old, new)?;
        copy_decisions(old, new, &mut report)?;
        copy_code_and_tokens(old, new, &mut report)?;
        report.derived = to.derive_everything(report.sessions, progress)?;
        report.vectors = self.copy_vectors(to, source, progress)?;
        let mut compared = 0;
        let mut theirs = digests(new, || ())?;
        for (d, n) in digests(old, || {
            compared += 1;
            progress("comparing turns", compared, report.turns);
        })? {
            if theirs.remove(&d).unwrap_or(0) < n {
                return Err(MigrateError::Differs("a raw turn is missing".into()));
            }
        }
        let here = sessions(new)?;
        for s in sessions(old)? {
            let same = here.iter().find(|h| h.key == s.key);
            if same.is_none_or(|h| {
                h.harness_metadata != s.harness_metadata || h.started_at > s.started_at
            }) {
                return Err(MigrateError::Differs(format!("session {}", s.id)));
            }
        }
        Ok(report)
    }

    /// Derives until nothing waits, also for what another process has taken and may not finish.
    fn derive_everything(&self, all: u64, progress: Progress<'_>) -> Result<u64, MigrateError> {
        let mut done = 0;
        let mut moved = Instant::now();
        loop {
            let n = self.derive_queued(0, 0)?;
            done += n as u64;
            progress("deriving sessions", done, all);
            let left = self.store.queue_depth()?;
            if left == 0 {
                return Ok(done);
            }
            if n > 0 {
                moved = Instant::now();
            } else if moved.elapsed() > STUCK {
                return Err(MigrateError::Underived(left));
            } else {
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }

    /// Takes over the vectors of the configured model: no provider is asked.
    fn copy_vectors(
        &self,
        to: &Self,
        source: &str,
        progress: Progress<'_>,
    ) -> Result<u64, StoreError> {
        // The same name in every run: what a killed one had taken is free at once.
        let owner = format!("migrate {source}");
        let lease = Lease {
            owner: &owner,
            ..to.lease()
        };
        let Ok(e) = self.embedder() else { return Ok(0) };
        let Some(theirs) = self.store.model(e.identity(), e.dimensions())? else {
            return Ok(0);
        };
        let model = to.store.ensure_schema(e.identity(), e.dimensions())?;
        let (mut after, mut copied) = (0, 0);
        loop {
            let (page, last) = to.store.claim_texts(&model, after, VECTORS, &lease)?;
            let Some(last) = last else { break };
            after = last;
            let mut hashes: Vec<[u8; 32]> = page
                .iter()
                .filter(|p| !p.has_vectors)
                .map(|p| p.hash)
                .collect();
            hashes.sort_unstable();
            hashes.dedup();
            let vectors = self.store.vectors_of(&theirs, &hashes)?;
            let settled = page
                .iter()
                .filter(|p| p.has_vectors || vectors.iter().any(|v| v.hash == p.hash))
                .map(|p| p.id)
                .collect();
            copied += vectors.len() as u64;
            to.store
                .store_vectors(&model, vectors, Vec::new(), settled, now())?;
            progress("taking over vectors", copied, 0);
        }
        to.store.pack_vectors(&model)?;
        Ok(copied)
    }
}
