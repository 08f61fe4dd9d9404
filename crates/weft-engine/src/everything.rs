//! One search over what was said, what was built and what was decided: one list, one budget.
//!
//! Scores of different corpora mean different things, so the lists are merged by evidence that does not:
//! the share of the question's words in what is shown, the cosine similarity (one model embeds all three),
//! and exact quotations. Each list keeps its own order; every further hit of one corpus needs more evidence
//! than the one before, so that none crowds out another's clearly right answer.

use std::path::PathBuf;
use std::time::Duration;

use weft_core::time::{Micros, parse_micros};
use weft_core::words;
use weft_store::{Filter, RepositoryRow};

use crate::code::{CodeHit, CodeQuery, HitStitch, Kind};
use crate::decisions::{DecisionHit, DecisionQuery};
use crate::{CodeError, CodeRepo, Engine, Hit, Mode, SearchError, SpanQuery, repository};

/// Longest query, characters; the rest is not read.
pub const MAX_QUERY: usize = 2_000;
/// Most hits.
pub const MAX_LIMIT: usize = 100;
/// Repositories that are asked where all are.
const MAX_REPOSITORIES: usize = 12;
/// Factor on the evidence of every further hit of one corpus.
const FURTHER: f32 = 0.9;

/// What is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Corpus {
    /// What was said.
    Spans,
    /// What was built.
    Code,
    /// What was decided.
    Decisions,
}

impl Corpus {
    /// All of them with their names.
    pub const ALL: [(&'static str, Self); 3] = [
        ("spans", Self::Spans),
        ("code", Self::Code),
        ("decisions", Self::Decisions),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// The corpora of a list such as `spans,code`; an empty one means all.
    ///
    /// # Errors
    /// The name that there is not.
    pub fn parse_list(list: &str) -> Result<Vec<Self>, String> {
        let mut out = Vec::new();
        for name in list.split(',').map(str::trim).filter(|n| !n.is_empty()) {
            let found = Self::ALL.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
            let c = found
                .ok_or_else(|| {
                    format!("unknown corpus {name:?}; they are spans, code and decisions")
                })?
                .1;
            if !out.contains(&c) {
                out.push(c);
            }
        }
        if out.is_empty() {
            out = Self::ALL.iter().map(|c| c.1).collect();
        }
        Ok(out)
    }
}

/// A question about everything.
#[derive(Clone, Debug, Default)]
pub struct AllQuery {
    /// What is asked.
    pub query: String,
    /// Where; empty = everywhere.
    pub corpora: Vec<Corpus>,
    /// Most hits.
    pub limit: usize,
    /// Scope of the spans; time, file and branch narrow the other corpora too.
    pub filter: Filter,
    /// A folder of the repository that is meant.
    pub folder: Option<PathBuf>,
    /// Ask all repositories that are known here.
    pub all_repos: bool,
    /// Index behind the answer: there is a process that lives on.
    pub background: bool,
    /// Repositories that the caller may see; empty = all.
    pub visible: Vec<String>,
}

/// What stands behind a hit.
#[derive(Clone, Debug)]
pub enum Found {
    /// A span.
    Span(Box<Hit>),
    /// A symbol.
    Code(Box<CodeHit>),
    /// A commit.
    Commit(Box<HitStitch>),
    /// A decision.
    Decision(Box<DecisionHit>),
}

/// One hit.
#[derive(Clone, Debug)]
pub struct AllHit {
    /// Where it was found.
    pub corpus: Corpus,
    /// What `show` takes.
    pub reference: String,
    /// Repository, where all are asked; "" = the one that is meant.
    pub repository: String,
    /// When: the start of a span, the last change of a symbol, the day of a decision.
    pub at: Option<Micros>,
    /// Why it matched: legs, `exact`.
    pub why: Vec<String>,
    /// Whether the query stands in it as it is.
    pub exact: bool,
    /// Evidence, 0..1; 1 more where it is exact.
    pub evidence: f32,
    /// What was found.
    pub found: Found,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct AllAnswer {
    /// Hits, best first.
    pub hits: Vec<AllHit>,
    /// What is missing or behind, by corpus.
    pub coverage: Vec<(Corpus, String)>,
    /// Corpora that were asked.
    pub asked: Vec<Corpus>,
}

/// What one corpus gives.
#[derive(Default)]
struct List {
    hits: Vec<AllHit>,
    notes: Vec<String>,
}

/// A question, looked at once.
struct Asked {
    words: Vec<String>,
    /// What each word says: rare ones say more. In step with `words`.
    weights: Vec<f32>,
    /// The query in lower case without quotes.
    quotation: String,
    /// Whether finding it word for word says something: an identifier, a ticket, a message.
    specific: bool,
}

impl Asked {
    fn new(query: &str) -> Self {
        let quotation = query
            .trim()
            .trim_matches(['"', '\'', '`'])
            .trim()
            .to_lowercase();
        let inner = query.trim().trim_matches(['"', '\'', '`']);
        let odd = inner.contains(['_', ':', '.', '/', '-', '(', '#', '=', '$'])
            || inner.chars().any(|c| c.is_ascii_digit())
            || inner.chars().skip(1).any(char::is_uppercase);
        let words = words::query_words(query);
        Self {
            weights: vec![1.0; words.len()],
            words,
            specific: quotation.chars().count() >= 3
                && (odd || quotation.split_whitespace().count() >= 3),
            quotation,
        }
    }

    fn quotes(&self, text: &str) -> bool {
        self.specific && text.to_lowercase().contains(&self.quotation)
    }

    /// Weighs the words by how rare they are in a repository.
    fn weigh(&mut self, repo: &CodeRepo) {
        let Ok((all, each)) = repo.store().word_frequencies(&self.words) else {
            return;
        };
        if all > 0 {
            let rarity = |n: &u64| (1.0 + all as f32 / (1.0 + *n as f32)).ln();
            self.weights = each.iter().map(rarity).collect();
        }
    }

    /// The weighted share of the query's words in a text, 0..1.
    fn covered(&self, text: &str) -> f32 {
        let has = words::words(text);
        let total: f32 = self.weights.iter().sum();
        let found = self
            .words
            .iter()
            .zip(&self.weights)
            .filter(|(w, _)| has.contains(w));
        let share: f32 = found.map(|(_, w)| w).sum();
        if total > 0.0 { share / total } else { 0.0 }
    }

    fn evidence(&self, text: &str, similarity: Option<f32>, exact: bool) -> f32 {
        // With the builtin model most texts about other things lie below 0.3 and most answers above 0.4; a
        // rough cut, not a fitted one.
        let near = ((similarity.unwrap_or(0.0) - 0.2) / 0.5).clamp(0.0, 1.0);
        0.55 * self.covered(text) + 0.45 * near + if exact { 1.0 } else { 0.0 }
    }
}

impl Engine {
    /// Searches everything. A corpus that fails is missing in the answer, which says so.
    ///
    /// # Errors
    /// Where the question is empty.
    pub fn search_everything(
        &self,
        q: &AllQuery,
        progress: &mut (dyn FnMut(&str, usize, usize) + Send),
    ) -> Result<AllAnswer, SearchError> {
        let mut q = q.clone();
        q.query = q.query.chars().take(MAX_QUERY).collect();
        if q.corpora.is_empty() {
            q.corpora = Corpus::ALL.iter().map(|c| c.1).collect();
        }
        let mut asked = Asked::new(&q.query);
        let here = q.folder.as_deref().and_then(repository::find);
        if !q.all_repos && q.filter.repository.is_none() {
            q.filter.repository = here.as_ref().map(|r| r.identity.clone());
        }
        let only_spans = q.filter.agent.is_some()
            || q.filter.role.is_some()
            || q.filter.model.is_some()
            || q.filter.tool.is_some()
            || !q.filter.sessions.is_empty();
        let wants = |c: Corpus| q.corpora.contains(&c) && (c == Corpus::Spans || !only_spans);
        let repos = self.repositories_of(&q);
        if let Some(first) = repos.first() {
            asked.weigh(first);
        }
        let (mut spans, mut code, mut decisions) =
            (List::default(), List::default(), List::default());
        std::thread::scope(|s| {
            let spans_thread = wants(Corpus::Spans).then(|| s.spawn(|| self.all_spans(&q, &asked)));
            let decisions_thread = wants(Corpus::Decisions)
                .then(|| s.spawn(|| self.all_decisions(&q, &asked, &repos)));
            if wants(Corpus::Code) {
                code = self.all_code(&q, &asked, &repos, progress);
            }
            let broken = || List {
                notes: vec!["the search failed".into()],
                ..List::default()
            };
            if let Some(t) = spans_thread {
                spans = t.join().unwrap_or_else(|_| broken());
            }
            if let Some(t) = decisions_thread {
                decisions = t.join().unwrap_or_else(|_| broken());
            }
        });
        let mut answer = AllAnswer::default();
        for (c, list) in [
            (Corpus::Spans, &mut spans),
            (Corpus::Code, &mut code),
            (Corpus::Decisions, &mut decisions),
        ] {
            if wants(c) {
                answer.asked.push(c);
                answer.coverage.extend(list.notes.drain(..).map(|n| (c, n)));
            }
        }
        if answer.asked.is_empty() {
            let why =
                "the filters agent, role, model, tool and session are about conversations only";
            answer
                .coverage
                .extend(q.corpora.iter().map(|c| (*c, why.to_owned())));
        }
        answer.hits = merge(
            vec![spans.hits, code.hits, decisions.hits],
            q.limit.clamp(1, MAX_LIMIT),
        );
        Ok(answer)
    }

    /// The repositories that a question is about.
    fn repositories_of(&self, q: &AllQuery) -> Vec<CodeRepo> {
        let sees = |id: &str| q.visible.is_empty() || q.visible.iter().any(|v| v == id);
        if !q.all_repos {
            let here = q.folder.as_ref().map(|f| self.code_repository(f));
            return here.into_iter().flatten().filter(|r| sees(&r.id)).collect();
        }
        let mut ids: Vec<String> = Vec::new();
        for RepositoryRow { repo_id, .. } in self.store.repositories(None).unwrap_or_default() {
            if sees(&repo_id) && !ids.contains(&repo_id) {
                ids.push(repo_id);
            }
        }
        ids.truncate(MAX_REPOSITORIES);
        ids.iter()
            .filter_map(|id| self.code_repository_by_id(id).ok())
            .collect()
    }

    fn all_spans(&self, q: &AllQuery, asked: &Asked) -> List {
        let mut out = List::default();
        let query = SpanQuery {
            query: q.query.clone(),
            limit: q.limit,
            mode: Mode::Hybrid,
            filter: q.filter.clone(),
            context: 0,
        };
        let a = match self.search_spans(&query) {
            Ok(a) => a,
            Err(e) => {
                out.notes.push(e.to_string());
                return out;
            }
        };
        for d in &a.degraded {
            if a.coverage.embeddable > 0 || d.leg != "vectors" {
                out.notes
                    .push(format!("{} did not take part: {}", d.leg, d.reason));
            }
        }
        if a.coverage.underived_sessions > 0 {
            out.notes.push(format!(
                "{} session(s) wait to be derived",
                a.coverage.underived_sessions
            ));
        }
        let behind = a.coverage.embeddable.saturating_sub(a.coverage.embedded);
        if behind > 0 && a.coverage.embedded > 0 {
            out.notes.push(format!(
                "{behind} of {} spans have no vector yet",
                a.coverage.embeddable
            ));
        }
        if a.coverage.documents == 0 {
            out.notes.push(
                "no conversation that can be searched is stored; `weft import` reads transcripts"
                    .into(),
            );
        }
        for h in a.hits {
            let exact = h.exact && asked.specific;
            let similarity = h.legs.iter().find(|l| l.0 == "vectors").map(|l| l.2);
            let text = format!("{} {}", h.user_prompt, h.snippet);
            let mut why: Vec<String> = h
                .legs
                .iter()
                .map(|(leg, rank, _)| format!("{leg} #{rank}"))
                .collect();
            if exact {
                why.insert(0, "exact".into());
            }
            out.hits.push(AllHit {
                corpus: Corpus::Spans,
                reference: format!("span:{}", h.span_id),
                repository: if q.all_repos {
                    h.repository.clone()
                } else {
                    String::new()
                },
                at: Some(h.started_at),
                why,
                exact,
                evidence: asked.evidence(&text, similarity, exact),
                found: Found::Span(Box::new(h)),
            });
        }
        out
    }

    fn all_code(
        &self,
        q: &AllQuery,
        asked: &Asked,
        repos: &[CodeRepo],
        progress: &mut (dyn FnMut(&str, usize, usize) + Send),
    ) -> List {
        let mut out = List::default();
        if repos.is_empty() {
            out.notes
                .push("no repository here; run it inside of one, or ask with --all-repos".into());
        }
        for repo in repos {
            let name = if q.all_repos {
                repo.name()
            } else {
                String::new()
            };
            self.commits(repo, q, &name, &mut out);
            let query = CodeQuery {
                query: q.query.clone(),
                limit: q.limit.clamp(1, crate::code::MAX_LIMIT),
                paths: q.filter.file.iter().cloned().collect(),
                workstream: q.filter.branch.clone(),
                background: q.background,
                // Another repository is asked as it is indexed: one question must not index them all.
                wait: (q.all_repos && repos.len() > 1).then_some(Duration::ZERO),
                ..CodeQuery::default()
            };
            let a = match self.code_search(repo, &query, progress) {
                Ok(a) => a,
                Err(CodeError::Bad(_)) => continue,
                Err(e) => {
                    out.notes.push(format!("{}: {e}", repo.name()));
                    continue;
                }
            };
            if a.indexing {
                out.notes.push(format!("{} is being indexed", repo.name()));
            } else if a.stale {
                out.notes
                    .push(format!("the index of {} is behind its branch", repo.name()));
            }
            out.notes.extend(a.notes);
            // Records of decisions are found as decisions.
            let records = match (q.corpora.contains(&Corpus::Decisions), &repo.root) {
                (true, Some(root)) => self
                    .decisions_at(root)
                    .map(|d| d.folders)
                    .unwrap_or_default(),
                _ => Vec::new(),
            };
            for h in a.hits {
                if weft_core::code::paths::under(&h.file, &records) && !records.is_empty() {
                    continue;
                }
                let at = h.stitch.as_ref().and_then(|s| parse_micros(&s.at));
                let timely = |t: Micros| {
                    q.filter.since.is_none_or(|s| t >= s) && q.filter.until.is_none_or(|u| t < u)
                };
                // Code has a time only by its last change.
                if (q.filter.since.is_some() || q.filter.until.is_some()) && !at.is_some_and(timely)
                {
                    continue;
                }
                let text = format!(
                    "{} {} {} {} {}",
                    h.file, h.symbol, h.signature, h.doc, h.snippet
                );
                let own = h
                    .symbol
                    .rsplit(['.', ':'])
                    .next()
                    .unwrap_or_default()
                    .to_lowercase();
                let exact = !own.is_empty()
                    && (asked.quotation == own || asked.quotation == h.symbol.to_lowercase())
                    || asked.quotes(&h.snippet)
                    || asked.quotes(&h.signature)
                    || asked.quotes(&h.target);
                let mut why: Vec<String> = h.found_by.iter().map(|f| (*f).to_owned()).collect();
                if exact {
                    why.insert(0, "exact".into());
                }
                out.hits.push(AllHit {
                    corpus: Corpus::Code,
                    reference: match h.kind {
                        Kind::File => h.file.clone(),
                        _ => h.target.clone(),
                    },
                    repository: name.clone(),
                    at,
                    why,
                    exact,
                    evidence: asked.evidence(&text, h.similarity, exact),
                    found: Found::Code(Box::new(h)),
                });
            }
        }
        if repos.len() > 1 {
            out.hits.sort_by(|a, b| b.evidence.total_cmp(&a.evidence));
        }
        out
    }

    /// Commits that the question names by their ids.
    fn commits(&self, repo: &CodeRepo, q: &AllQuery, name: &str, out: &mut List) {
        let ids = q
            .query
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|w| {
                (7..=40).contains(&w.len())
                    && w.bytes().all(|b| b.is_ascii_hexdigit())
                    && w.bytes().any(|b| b.is_ascii_digit())
            });
        for id in ids.take(3) {
            let Some((s, _)) = repo.git().ok().and_then(|g| g.commit(id)) else {
                continue;
            };
            out.hits.push(AllHit {
                corpus: Corpus::Code,
                reference: format!(
                    "commit:{}",
                    s.changeset.chars().take(12).collect::<String>()
                ),
                repository: name.to_owned(),
                at: Some(s.at_micros()),
                why: vec!["exact".into()],
                exact: true,
                evidence: 2.0,
                found: Found::Commit(Box::new(s.into())),
            });
        }
    }

    fn all_decisions(&self, q: &AllQuery, asked: &Asked, repos: &[CodeRepo]) -> List {
        let mut out = List::default();
        let known = self.store.workspaces().unwrap_or_default();
        let sees = |id: &str| q.visible.is_empty() || q.visible.iter().any(|v| v == id);
        let mut places = Vec::new();
        for repo in repos {
            let here = repo.root.clone().map(|r| self.decisions_at(&r));
            places.extend(here.into_iter().flatten());
        }
        if q.all_repos || repos.is_empty() {
            let others = known
                .iter()
                .filter(|w| repos.iter().all(|r| r.id != w.repo_id) && sees(&w.repo_id));
            // Outside of any repository the only workspace is meant.
            if q.all_repos || known.len() == 1 {
                places.extend(
                    others
                        .take(MAX_REPOSITORIES)
                        .filter_map(|w| self.decisions_of(&w.slug).ok()),
                );
            }
        }
        for d in &places {
            let query = DecisionQuery {
                query: q.query.clone(),
                limit: q.limit,
                file: q.filter.file.clone(),
                since: q.filter.since,
                until: q.filter.until,
                ..DecisionQuery::default()
            };
            let a = match d.search(&query) {
                Ok(a) => a,
                Err(e) => {
                    out.notes.push(e.to_string());
                    continue;
                }
            };
            if !a.no_vectors.is_empty() {
                out.notes.push(format!("vectors: {}", a.no_vectors));
            }
            if !a.sync.problems.is_empty() {
                out.notes.push(format!(
                    "{} record(s) cannot be read",
                    a.sync.problems.len()
                ));
            }
            for h in a.hits {
                let r = &h.decision.record;
                let exact = asked.quotes(&r.title) || asked.quotes(&r.rationale);
                let mut text = format!("{} {}", r.title, h.snippet);
                if let Some(x) = &h.rejected {
                    text.push_str(&format!(" {} {}", x.name, x.why_not));
                }
                let mut why: Vec<String> = h.matched.iter().map(|m| (*m).to_owned()).collect();
                if exact {
                    why.insert(0, "exact".into());
                }
                out.hits.push(AllHit {
                    corpus: Corpus::Decisions,
                    reference: format!("decision:{}", h.decision.path),
                    repository: if q.all_repos {
                        d.workspace.slug.clone()
                    } else {
                        String::new()
                    },
                    at: Some(h.decision.created_at),
                    why,
                    exact,
                    evidence: asked.evidence(&text, h.similarity, exact),
                    found: Found::Decision(Box::new(h)),
                });
            }
        }
        if places.len() > 1 {
            out.hits.sort_by(|a, b| b.evidence.total_cmp(&a.evidence));
        }
        out
    }
}

/// Hits with less of the best one's evidence than this say nothing.
const SHARE_OF_BEST: f32 = 0.3;
/// Hits with less evidence than this say nothing.
const LEAST: f32 = 0.05;

/// Merges lists that are each in their own order: the head with the most evidence comes next.
fn merge(lists: Vec<Vec<AllHit>>, limit: usize) -> Vec<AllHit> {
    let plain = |h: &AllHit| h.evidence - if h.exact { 1.0 } else { 0.0 };
    let best = lists
        .iter()
        .flatten()
        .map(plain)
        .fold(0.0_f32, f32::max)
        .min(1.0);
    let least = LEAST.max(best * SHARE_OF_BEST);
    let mut queues: Vec<std::collections::VecDeque<AllHit>> = lists
        .into_iter()
        .map(|mut l| {
            l.retain(|h| h.exact || h.evidence >= least);
            // What is exact comes first in its own list too.
            l.sort_by_key(|h| !h.exact);
            l.into()
        })
        .collect();
    let mut taken = vec![0_i32; queues.len()];
    let mut out = Vec::new();
    while out.len() < limit {
        let best = queues
            .iter()
            .enumerate()
            .filter_map(|(i, q)| {
                let h = q.front()?;
                let base = if h.exact { 1.0 } else { 0.0 };
                Some((i, base + (h.evidence - base) * FURTHER.powi(taken[i])))
            })
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        let Some((i, _)) = best else { break };
        taken[i] += 1;
        out.extend(queues[i].pop_front());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(corpus: Corpus, reference: &str, evidence: f32) -> AllHit {
        AllHit {
            corpus,
            reference: reference.into(),
            repository: String::new(),
            at: None,
            why: Vec::new(),
            exact: evidence > 1.0,
            evidence,
            found: Found::Commit(Box::default()),
        }
    }

    #[test]
    fn no_corpus_crowds_out_another_ones_answer() {
        let spans = (0..20)
            .map(|i| hit(Corpus::Spans, &format!("s{i}"), 0.8))
            .collect();
        let code = vec![hit(Corpus::Code, "c0", 0.75)];
        let decisions = vec![
            hit(Corpus::Decisions, "d0", 0.6),
            hit(Corpus::Decisions, "d1", 0.1),
        ];
        let merged = merge(vec![spans, code, decisions], 6);
        let order: Vec<&str> = merged.iter().map(|h| h.reference.as_str()).collect();
        assert_eq!(order, ["s0", "c0", "s1", "s2", "d0", "s3"]);
    }

    #[test]
    fn exact_evidence_comes_first_in_any_corpus() {
        let merged = merge(
            vec![
                vec![hit(Corpus::Spans, "s0", 0.9), hit(Corpus::Spans, "s1", 1.2)],
                vec![hit(Corpus::Code, "c0", 1.1)],
            ],
            10,
        );
        let order: Vec<&str> = merged.iter().map(|h| h.reference.as_str()).collect();
        assert_eq!(order, ["s1", "c0", "s0"]);
    }

    #[test]
    fn what_counts_as_specific() {
        for q in [
            "PROJ-123",
            "parse_header",
            "connection reset by peer",
            "a1b2c3d",
            "fooBar",
        ] {
            assert!(Asked::new(q).specific, "{q}");
        }
        for q in ["cart", "", "\"", "ab", "error handling"] {
            assert!(!Asked::new(q).specific, "{q}");
        }
    }
}
