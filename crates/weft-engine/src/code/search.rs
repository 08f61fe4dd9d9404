//! Asking a repository: the branch by meaning, the files on disk by words, in one order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use weft_core::code::find::FindQuery;
use weft_core::code::rank::{Candidate, Question, Weights, rank};
use weft_core::code::{Kind, Symbol};
use weft_core::{redact, snippet, words};
use weft_store::code::{CodeFilter, FieldWeights, FileVersion, SymbolKey, View};

use super::answer::{CodeAnswer, CodeHit, CodeQuery, Draft, DraftState};
use super::index::{Seen, SyncOptions};
use super::{Branch, CodeError, CodeRepo, MAX_LIMIT, MAX_QUERY, view_of};
use crate::{CodeSync, Engine};

/// Candidates that each leg gives.
const LEG: usize = 160;
/// Field weights of the keyword leg.
pub const FIELDS: FieldWeights = FieldWeights {
    name: 2.0,
    path: 1.0,
    signature: 1.0,
    doc: 1.0,
    body: 1.0,
};
/// Characters of a snippet.
const SNIPPET: usize = 160;
/// How long the last changes of the hits shown may be looked for.
pub(crate) const HISTORY_TIME: Duration = Duration::from_millis(20);

/// A version of a file that an answer looks at, and where it stands.
#[derive(Clone, Debug)]
struct Place {
    /// Top of the checkout; "" = this one, or none.
    checkout: String,
}

/// What an answer looks at.
pub(super) struct Scope {
    pub(super) head: Arc<View>,
    pub(super) disk: Arc<View>,
    /// This checkout's files.
    seen: Option<Arc<Seen>>,
    /// Versions that other checkouts are writing.
    others: HashMap<u32, Place>,
}

impl Engine {
    /// Searches a repository.
    ///
    /// # Errors
    /// A bad question, an unknown branch, a repository or index that cannot be read. A missing
    /// provider of vectors is none: the answer says so.
    pub fn code_search(
        &self,
        repo: &CodeRepo,
        q: &CodeQuery,
        progress: &mut dyn FnMut(&str, usize, usize),
    ) -> Result<CodeAnswer, CodeError> {
        check(&q.query, q.limit)?;
        let from = Instant::now();
        let sync = self.bring_up(repo, q, progress)?;
        tracing::debug!("brought up in {:?}", from.elapsed());
        let git = repo.git()?;
        let Branch {
            name: workstream,
            is_active,
            head,
        } = repo.branch(&git, q.workstream.as_deref())?;
        let indexed = repo
            .store
            .workstream(&workstream)?
            .filter(|w| !w.head.is_empty());
        let scope = self.scope(
            repo,
            indexed.as_ref().map_or(&[][..], |w| &w.files),
            is_active && q.drafts,
            true,
        )?;
        let mut answer = CodeAnswer {
            query: q.query.clone(),
            workstream,
            indexing: indexed.is_none() && head.is_some(),
            stale: indexed
                .as_ref()
                .is_some_and(|w| Some(&w.head) != head.as_ref()),
            head: indexed
                .as_ref()
                .map(|w| w.head.clone())
                .or(head)
                .unwrap_or_default(),
            files: scope.disk.len().max(scope.head.len()),
            ..CodeAnswer::default()
        };
        if let Some(s) = &sync
            && s.files == 0
            && answer.files == 0
        {
            answer
                .notes
                .push("no source files were found here: is everything ignored?".into());
        }
        tracing::debug!("scope at {:?}", from.elapsed());
        let hits = self.ranked(repo, q, &scope, &mut answer)?;
        tracing::debug!("ranked at {:?}", from.elapsed());
        answer.hits = self.present(repo, q, &git, &scope, hits, &answer.head)?;
        tracing::debug!("presented at {:?}", from.elapsed());
        answer.sync = sync;
        Ok(answer)
    }

    /// Indexes what is missing, as long as the question allows.
    pub(super) fn bring_up(
        &self,
        repo: &CodeRepo,
        q: &CodeQuery,
        progress: &mut dyn FnMut(&str, usize, usize),
    ) -> Result<Option<CodeSync>, CodeError> {
        let first: Vec<String> = q
            .query
            .to_lowercase()
            .split(|c: char| !c.is_alphanumeric())
            .filter(|w| w.len() > 2 && !words::is_stop_word(w))
            .map(str::to_owned)
            .collect();
        let git = repo.git()?;
        let head = git.head()?;
        let workstream = q
            .workstream
            .clone()
            .unwrap_or_else(|| head.workstream.clone());
        let known = repo
            .store
            .workstream(&workstream)?
            .is_some_and(|w| !w.head.is_empty());
        let wait = match q.wait {
            Some(w) => Some(w),
            // A first index is worth waiting for; one that is behind is good for an answer.
            None if known || q.background => Some(Duration::from_millis(1_500)),
            None => None,
        };
        if !q.background {
            let options = SyncOptions {
                workstream: q.workstream.clone(),
                until: wait.map(|w| Instant::now() + w),
                first,
                vectors: q.vectors,
                ..SyncOptions::new(progress)
            };
            return Ok(Some(self.code_sync(repo, options)?));
        }
        let (done, wait_for) = sync_channel(1);
        let Some(running) = repo.live.begin() else {
            // A run of this process is under way; what it has stored so far is searched.
            let until = Instant::now() + wait.unwrap_or_default();
            while repo.live.running.load(Ordering::Acquire) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            return Ok(None);
        };
        let engine = self.handle();
        let (repo2, asked) = (repo.clone(), q.workstream.clone());
        let vectors = q.vectors;
        std::thread::spawn(move || {
            let result = engine.as_ref().map(|e| {
                e.code_sync(
                    &repo2,
                    SyncOptions {
                        workstream: asked,
                        first,
                        vectors,
                        ..SyncOptions::new(&mut |_, _, _| {})
                    },
                )
            });
            drop(running);
            let _ = done.send(result);
        });
        match wait_for.recv_timeout(wait.unwrap_or_default()) {
            Ok(Some(r)) => Ok(Some(r?)),
            _ => Ok(None),
        }
    }

    /// The versions that an answer looks at.
    pub(super) fn scope(
        &self,
        repo: &CodeRepo,
        head: &[u32],
        with_disk: bool,
        with_others: bool,
    ) -> Result<Scope, CodeError> {
        let head = Arc::new(view_of(head));
        let seen = if with_disk { self.seen(repo)? } else { None };
        let mut others = HashMap::new();
        let disk = match &seen {
            Some(s) => {
                let mut view = View::new(s.files.iter().map(|f| f.file));
                if with_others {
                    for (id, checkout) in self.drafts_of_others(repo)? {
                        if !view.contains(id) && !head.contains(id) {
                            view.insert(id);
                            others.insert(id, Place { checkout });
                        }
                    }
                }
                Arc::new(view)
            }
            None => head.clone(),
        };
        Ok(Scope {
            head,
            disk,
            seen,
            others,
        })
    }

    /// What both legs find, before it is ranked: for measuring the ranking by itself.
    ///
    /// # Errors
    /// As [`Self::code_search`].
    pub fn code_candidates(
        &self,
        repo: &CodeRepo,
        q: &CodeQuery,
        fields: &FieldWeights,
    ) -> Result<(Question, Vec<CodeCandidate>), CodeError> {
        let head = repo.git()?.head()?;
        let workstream = q.workstream.clone().unwrap_or(head.workstream);
        let files = repo
            .store
            .workstream(&workstream)?
            .map(|w| w.files)
            .unwrap_or_default();
        let scope = self.scope(repo, &files, q.drafts, false)?;
        self.candidates(repo, q, &scope, fields, &mut CodeAnswer::default())
    }

    /// Candidates of all legs in their final order.
    fn ranked(
        &self,
        repo: &CodeRepo,
        q: &CodeQuery,
        scope: &Scope,
        answer: &mut CodeAnswer,
    ) -> Result<Vec<CodeCandidate>, CodeError> {
        let (question, found) = self.candidates(repo, q, scope, &FIELDS, answer)?;
        let candidates: Vec<Candidate<'_>> =
            found.iter().map(CodeCandidate::as_candidate).collect();
        let order = rank(&question, &candidates, &Weights::CHOSEN);
        let mut out = Vec::with_capacity(q.limit);
        for r in order.into_iter().take(q.limit) {
            let mut f = found[r.at].clone();
            f.score = r.score;
            out.push(f);
        }
        Ok(out)
    }

    fn candidates(
        &self,
        repo: &CodeRepo,
        q: &CodeQuery,
        scope: &Scope,
        fields: &FieldWeights,
        answer: &mut CodeAnswer,
    ) -> Result<(Question, Vec<CodeCandidate>), CodeError> {
        let under = if q.paths.is_empty() {
            None
        } else {
            Some(repo.store.under(&q.paths)?)
        };
        let narrow = |v: &Arc<View>| match &under {
            Some(u) => Arc::new(v.and(u)),
            None => v.clone(),
        };
        let filter = CodeFilter {
            view: narrow(&scope.disk),
            kinds: q.kinds.clone(),
        };
        let find = FindQuery::new(&q.query);
        let (total, frequencies) = repo.store.word_frequencies(&find.words)?;
        // A word that stands nowhere can be found nowhere: it tells nothing of how well others match.
        let idf: Vec<f32> = frequencies
            .iter()
            .map(|n| match *n {
                0 => 0.0,
                n => (1.0 + (total as f32 - n as f32 + 0.5).max(0.0) / (n as f32 + 0.5)).ln(),
            })
            .collect();
        let question = Question::new(&q.query, &idf);
        let mut by_key: HashMap<SymbolKey, Legs> = HashMap::new();
        let weighted: Vec<(String, f32)> = find.words.iter().map(|w| (w.clone(), 1.0)).collect();
        for (k, s) in repo.store.word_search(&weighted, fields, &filter, LEG)? {
            by_key.entry(k).or_default().words = s;
        }
        for k in repo.store.named(&find.name, false, &filter, 60)? {
            by_key.entry(k).or_default().named = true;
        }
        // Names that the question mentions are candidates whatever their words score.
        for name in question.identifiers() {
            for k in repo.store.named(name, false, &filter, 20)? {
                by_key.entry(k).or_default().named = true;
            }
        }
        if find.name.len() >= 3 {
            for k in repo.store.named(&find.name, true, &filter, 40)? {
                by_key.entry(k).or_default().named = true;
            }
        }
        match self.nearest_code(repo, q, narrow(&scope.head)) {
            Ok(Some(found)) => {
                answer.semantic = true;
                for (k, s) in found {
                    by_key.entry(k).or_default().similarity = Some(s);
                }
            }
            Ok(None) => {}
            Err(why) => answer.notes.push(format!(
                "semantic search is not available ({why}): keyword hits only"
            )),
        }
        let mut keys: Vec<SymbolKey> = by_key.keys().copied().collect();
        keys.sort_unstable();
        let mut found: Vec<CodeCandidate> = Vec::with_capacity(keys.len());
        let mut at_target: HashMap<String, usize> = HashMap::new();
        for k in keys {
            let Some(file) = repo.store.file(k.file())? else {
                continue;
            };
            let Some(s) = file.symbols.get(k.at()) else {
                continue;
            };
            if !q.kinds.is_empty() && !q.kinds.contains(&s.symbol.kind) {
                continue;
            }
            let legs = by_key.remove(&k).unwrap_or_default();
            let target = file.target(k.at());
            let on_disk = scope.disk.contains(k.file());
            // One target is one hit: shown as it is on disk.
            if let Some(i) = at_target.get(&target) {
                let other: &mut CodeCandidate = &mut found[*i];
                other.words = other.words.max(legs.words);
                other.named |= legs.named;
                other.similarity = max_option(other.similarity, legs.similarity);
                if on_disk && !scope.disk.contains(other.file.id) {
                    (other.file, other.at) = (file, k.at());
                }
                continue;
            }
            at_target.insert(target, found.len());
            found.push(CodeCandidate {
                file,
                at: k.at(),
                words: legs.words,
                named: legs.named,
                similarity: legs.similarity,
                score: 0.0,
            });
        }
        Ok((question, found))
    }

    /// The nearest symbols of the branch; `None` where it has no vectors and needs none.
    fn nearest_code(
        &self,
        repo: &CodeRepo,
        q: &CodeQuery,
        view: Arc<View>,
    ) -> Result<Option<Vec<(SymbolKey, f32)>>, String> {
        if !q.vectors || view.is_empty() {
            return Ok(None);
        }
        let embedder = self.embedder.as_ref().map_err(Clone::clone)?;
        let Some(model) = repo
            .store
            .model(embedder.identity())
            .map_err(|e| e.to_string())?
        else {
            return Ok(None);
        };
        let deadline = Instant::now() + self.config.search_deadline;
        let vector = embedder
            .embed_within(&q.query, Some(deadline))
            .map_err(|e| e.to_string())?;
        let Some(vector) = vector else {
            return Ok(None);
        };
        let filter = CodeFilter {
            view,
            kinds: Vec::new(),
        };
        // Kinds are looked at later, so more are taken where there are some.
        let limit = if q.kinds.is_empty() { LEG } else { LEG * 4 };
        let found = repo
            .store
            .nearest(model, &vector, &filter, limit)
            .map_err(|e| e.to_string())?;
        Ok(Some(found))
    }

    /// Ranked candidates as hits: drafts, snippets, owners, last changes.
    pub(super) fn present(
        &self,
        repo: &CodeRepo,
        q: &CodeQuery,
        git: &weft_code::git::Git,
        scope: &Scope,
        found: Vec<CodeCandidate>,
        head: &str,
    ) -> Result<Vec<CodeHit>, CodeError> {
        let query_words = words::query_words(&q.query);
        let mut hits = Vec::with_capacity(found.len());
        let mut bases = Vec::with_capacity(found.len());
        for f in found {
            let s = &f.file.symbols[f.at];
            let base = self.head_version(repo, scope, &f.file)?;
            let target = f.file.target(f.at);
            let name = target.split_once("::").map_or("", |t| t.1).to_owned();
            let draft = self.draft(repo, git, scope, &f, base.as_deref(), &name, head)?;
            let mut found_by = Vec::new();
            if f.similarity.is_some() {
                found_by.push("semantic");
            }
            if f.words > 0.0 || f.named || found_by.is_empty() {
                found_by.push("keyword");
            }
            let y = &s.symbol;
            hits.push(CodeHit {
                target,
                file: f.file.path.clone(),
                symbol: y.name.clone(),
                kind: y.kind,
                line: y.line,
                end_line: y.end_line,
                signature: y.signature.clone(),
                doc: y.doc.clone(),
                exported: y.exported,
                score: f.score,
                found_by,
                similarity: f.similarity,
                snippet: if q.snippets {
                    self.snippet(repo, git, scope, &f.file, y, &query_words)
                } else {
                    String::new()
                },
                owner: String::new(),
                stitch: None,
                draft,
            });
            bases.push((base, name));
        }
        if q.history {
            self.add_history(repo, git, head, &mut hits, &bases)?;
        }
        Ok(hits)
    }

    /// The version that the branch has of a file's path.
    fn head_version(
        &self,
        repo: &CodeRepo,
        scope: &Scope,
        file: &Arc<FileVersion>,
    ) -> Result<Option<Arc<FileVersion>>, CodeError> {
        if scope.head.contains(file.id) {
            return Ok(Some(file.clone()));
        }
        for (id, _) in repo.store.versions_of(&file.path)? {
            if scope.head.contains(id) {
                return Ok(repo.store.file(id)?);
            }
        }
        Ok(None)
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one question with all that it needs"
    )]
    fn draft(
        &self,
        repo: &CodeRepo,
        git: &weft_code::git::Git,
        scope: &Scope,
        f: &CodeCandidate,
        base: Option<&FileVersion>,
        name: &str,
        head: &str,
    ) -> Result<Option<Draft>, CodeError> {
        if scope.seen.is_none()
            || (scope.head.contains(f.file.id) && scope.disk.contains(f.file.id))
        {
            return Ok(None);
        }
        let checkout = scope.others.get(&f.file.id).map(|p| p.checkout.as_str());
        if !scope.disk.contains(f.file.id) {
            // Only the branch has this text: the file changed or went.
            let seen = scope.seen.as_ref();
            let now_there = match seen.and_then(|s| s.version(&f.file.path)) {
                Some(id) => repo.store.file(id)?,
                None => None,
            };
            if now_there.as_ref().is_some_and(|v| v.find(name).is_some()) {
                return Ok(None);
            }
            let agent = self.holder(repo, git, checkout, &f.file.path, head)?;
            return Ok(Some(Draft {
                state: DraftState::Removed,
                agent,
                head_signature: String::new(),
            }));
        }
        let here = &f.file.symbols[f.at];
        let old = base.and_then(|b| {
            let s = b.find(name)?;
            b.symbols.iter().find(|x| std::ptr::eq(&x.symbol, s))
        });
        let state = match old {
            Some(o) if o.hash == here.hash && same_length(&o.symbol, &here.symbol) => {
                return Ok(None);
            }
            Some(_) => DraftState::Changed,
            None => DraftState::Added,
        };
        let agent = self.holder(repo, git, checkout, &f.file.path, head)?;
        let head_signature = match (state, old) {
            (DraftState::Changed, Some(o)) => o.symbol.signature.clone(),
            _ => String::new(),
        };
        Ok(Some(Draft {
            state,
            agent,
            head_signature,
        }))
    }

    /// The text of a file version: from the disk where it is there, else from git.
    pub(crate) fn source_of(
        &self,
        repo: &CodeRepo,
        git: &weft_code::git::Git,
        scope_root: Option<&str>,
        file: &FileVersion,
        on_disk: bool,
    ) -> Option<String> {
        if on_disk {
            let root = scope_root
                .map(std::path::PathBuf::from)
                .or_else(|| repo.root.clone())?;
            return super::text_at(&root.join(&file.path));
        }
        let mut blob = [0; 20];
        blob.copy_from_slice(file.blob.get(..20)?);
        super::decoded(&git.blob(&blob, weft_code::walk::MAX_FILE_BYTES)?)
    }

    fn snippet(
        &self,
        repo: &CodeRepo,
        git: &weft_code::git::Git,
        scope: &Scope,
        file: &FileVersion,
        s: &Symbol,
        query: &[String],
    ) -> String {
        let on_disk = scope.seen.is_some() && scope.disk.contains(file.id);
        let checkout = scope.others.get(&file.id).map(|p| p.checkout.as_str());
        let Some(source) = self.source_of(repo, git, checkout, file, on_disk) else {
            return String::new();
        };
        // The file may have been written since the scan.
        let text = source
            .get(s.start as usize..s.end as usize)
            .unwrap_or_default();
        let line = best_line(text, query, s.kind);
        if redact::may_hold_secret(&line) {
            redact::redact(&line).unwrap_or(line)
        } else {
            line
        }
    }
}

fn same_length(a: &Symbol, b: &Symbol) -> bool {
    a.end - a.start == b.end - b.start
}

fn max_option(a: Option<f32>, b: Option<f32>) -> Option<f32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

/// What the legs say of a symbol.
#[derive(Clone, Debug, Default)]
struct Legs {
    words: f32,
    named: bool,
    similarity: Option<f32>,
}

/// A symbol that a leg found.
#[derive(Clone, Debug)]
pub struct CodeCandidate {
    /// Version of its file.
    pub file: Arc<FileVersion>,
    /// Its place in the file.
    pub at: usize,
    /// BM25; 0 = not among the best.
    pub words: f32,
    /// Whether its name was looked up.
    pub named: bool,
    /// Cosine similarity; `None` = not among the nearest.
    pub similarity: Option<f32>,
    pub(super) score: f32,
}

impl CodeCandidate {
    /// As the ranking takes it.
    pub fn as_candidate(&self) -> Candidate<'_> {
        Candidate {
            path: &self.file.path,
            symbol: &self.file.symbols[self.at].symbol,
            words: self.words,
            similarity: self.similarity,
        }
    }
}

/// Whether a question can be answered at all.
pub(super) fn check(query: &str, limit: usize) -> Result<(), CodeError> {
    if query.trim().is_empty() {
        return Err(CodeError::Bad("query is required".into()));
    }
    if query.chars().count() > MAX_QUERY {
        return Err(CodeError::Bad(format!(
            "query is longer than {MAX_QUERY} characters"
        )));
    }
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(CodeError::Bad(format!(
            "limit must be between 1 and {MAX_LIMIT}"
        )));
    }
    Ok(())
}

/// The line of a text that has most of the query's words; not the declaration itself.
fn best_line(text: &str, query: &[String], kind: Kind) -> String {
    let mut best: Option<(usize, &str)> = None;
    let skip = usize::from(kind != Kind::File);
    for line in text.lines().skip(skip).take(400) {
        let line = line.trim();
        if line.len() < 4 || !line.chars().any(char::is_alphanumeric) {
            continue;
        }
        let mut found = HashSet::new();
        words::for_each(line, |w| {
            if let Some(i) = query.iter().position(|q| q == w) {
                found.insert(i);
            }
        });
        if best.is_none_or(|(n, _)| found.len() > n) {
            best = Some((found.len(), line));
        }
    }
    best.map(|(_, l)| snippet::excerpt(l, query, SNIPPET).text)
        .unwrap_or_default()
}
