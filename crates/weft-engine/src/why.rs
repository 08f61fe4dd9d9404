//! Why a piece of code is as it is: the commits that shaped it, the calls in which an agent wrote it, the
//! decisions that govern it. What is not known is said to be not known.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use weft_code::extract;
use weft_code::git::{Git, Step};
use weft_core::code::Kind;
use weft_core::decision::Decision;
use weft_core::time::Micros;
use weft_store::{FileEdit, SessionRow};

use crate::code::decoded;
use crate::decisions::{Stale, covers, masked, named};
use crate::show::{ShowError, Source, choose, from_top, source, split_target, text_on_disk};
use crate::{CodeError, CodeRepo, Engine, repository};

/// Time for walking through the history.
const HISTORY_TIME: Duration = Duration::from_secs(3);
/// Calls that are looked at for one file.
const MAX_EDITS: usize = 400;
/// Shorter lines say nothing about where a text came from.
const MIN_LINE: usize = 8;

/// A commit that shaped it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhyCommit {
    /// Commit id.
    pub id: String,
    /// Subject.
    pub subject: String,
    /// Author.
    pub author: String,
    /// When.
    pub at: Micros,
    /// Path of the file then.
    pub path: String,
}

/// A call in which an agent wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhySpan {
    /// Span.
    pub span_id: String,
    /// Trace.
    pub trace_id: String,
    /// Session.
    pub session_id: String,
    /// Agent program.
    pub agent: String,
    /// Name of the session, for people.
    pub session: String,
    /// Name of the tool.
    pub tool: String,
    /// Prompt of the turn.
    pub prompt: String,
    /// When.
    pub at: Micros,
    /// Lines of it that are in the piece, now or in one of its commits.
    pub lines: usize,
    /// Commit that first had them; "" = none that is known.
    pub commit: String,
    /// Command that opens the session again; "" = the agent has none.
    pub resume: String,
}

/// A decision that governs it.
#[derive(Clone, Debug)]
pub struct WhyDecision {
    /// The decision, without its text.
    pub decision: Decision,
    /// Why it is stale.
    pub stale: Option<Stale>,
    /// Whether it only names the file or symbol in its text.
    pub mentioned: bool,
}

/// Why it is so.
#[derive(Clone, Debug, Default)]
pub struct Why {
    /// The piece as it is.
    pub source: Source,
    /// Commits, latest first.
    pub commits: Vec<WhyCommit>,
    /// Whether there are older ones.
    pub more_commits: bool,
    /// Calls, latest first.
    pub spans: Vec<WhySpan>,
    /// Decisions, those in force first.
    pub decisions: Vec<WhyDecision>,
    /// What is not known.
    pub notes: Vec<String>,
}

/// How much is shown.
#[derive(Clone, Copy, Debug)]
pub struct WhyOptions {
    /// Most commits.
    pub commits: usize,
    /// Most calls.
    pub spans: usize,
}

impl Default for WhyOptions {
    fn default() -> Self {
        Self {
            commits: 5,
            spans: 5,
        }
    }
}

fn line_set(text: &str) -> HashSet<String> {
    let says = |l: &&str| l.len() >= MIN_LINE && l.chars().any(char::is_alphanumeric);
    text.lines()
        .map(str::trim)
        .filter(says)
        .map(str::to_owned)
        .collect()
}

/// The command that opens a session again.
pub fn resume_command(s: &SessionRow) -> String {
    let id = &s.key.harness_session_id;
    let safe = !id.is_empty()
        && id
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let command = match s.key.harness_id.as_str() {
        h if h.starts_with("claude") => "claude --resume",
        h if h.starts_with("codex") => "codex resume",
        _ => return String::new(),
    };
    if safe {
        format!("{command} {id}")
    } else {
        String::new()
    }
}

impl Engine {
    /// Why a file, a symbol (`path::symbol`) or the symbol at a line (`path:12`) is as it is.
    ///
    /// # Errors
    /// Where the path or the symbol is unknown, or the repository cannot be read.
    pub fn why(&self, target: &str, folder: &Path, options: WhyOptions) -> Result<Why, ShowError> {
        let repo = self.code_repository(folder)?;
        let (path, name, line) = split_target(target.trim());
        let unknown = || ShowError::NoFile(path.to_owned());
        let path = from_top(&repo, folder, path)
            .filter(|p| !p.is_empty())
            .ok_or_else(unknown)?;
        let git = repo.git()?;
        let head = git.head().map_err(CodeError::Git)?.commit;
        let on_disk = text_on_disk(&repo, &path);
        let in_head = head
            .as_deref()
            .and_then(|h| git.blob_at(h, &path))
            .and_then(|b| decoded(&git.blob(&b, weft_code::walk::MAX_FILE_BYTES)?));
        let mut why = Why::default();
        let text = match (&on_disk, &in_head) {
            (Some(t), _) => t.clone(),
            (None, Some(t)) => {
                why.notes
                    .push("the file is not on disk; this is the branch".into());
                t.clone()
            }
            (None, None) => return Err(unknown()),
        };
        let all = extract::extract(&path, &text).symbols;
        let symbol = choose(&path, &all, name, line)?;
        if line.is_some() && symbol.is_none() {
            why.notes
                .push("no symbol is at this line: this is about the whole file".into());
        }
        why.source = source(&path, &text, symbol);
        let symbol_name = symbol.map(|s| s.name.clone());
        let mut versions: Vec<(Option<usize>, String)> = vec![(None, why.source.text.clone())];
        let mut paths = vec![path.clone()];
        match &head {
            Some(h) if in_head.is_some() => {
                let steps = self.steps(
                    &git,
                    h,
                    &path,
                    symbol_name.as_deref(),
                    options.commits.max(1) * 4,
                )?;
                for (i, (s, text)) in steps.0.iter().enumerate() {
                    if !paths.contains(&s.path) {
                        paths.push(s.path.clone());
                    }
                    versions.push((Some(i), text.clone()));
                }
                why.more_commits = steps.1 || steps.0.len() > options.commits;
                why.commits = steps.0.into_iter().map(|(s, _)| commit(s)).collect();
            }
            _ => why.notes.push("no commit has it yet".into()),
        }
        self.add_spans(
            &mut why,
            &repo,
            &paths,
            &versions,
            symbol_name.as_deref(),
            options,
        )?;
        why.commits.truncate(options.commits);
        if on_disk.is_some() && in_head.is_some() && on_disk != in_head {
            let changed = match (&symbol_name, &in_head) {
                (Some(n), Some(old)) => {
                    let then = extract::extract(&path, old).symbols;
                    named(&then, n)
                        .is_none_or(|s| source(&path, old, Some(s)).text != why.source.text)
                }
                _ => true,
            };
            if changed {
                why.notes.push(
                    "it differs on disk from the branch: there is work that is not committed"
                        .into(),
                );
            }
        }
        self.add_decisions(&mut why, &repo, &paths, symbol_name.as_deref())?;
        Ok(why)
    }

    /// The commits that shaped a symbol (or a file), with its text in each; whether there are more.
    fn steps(
        &self,
        git: &Git,
        head: &str,
        path: &str,
        symbol: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<(Step, String)>, bool), ShowError> {
        // Texts without their names, so that a symbol is found under the name that it had before.
        let mut known: Vec<String> = Vec::new();
        let mut texts: HashMap<([u8; 20], String), String> = HashMap::new();
        let mut print = |bytes: &[u8], path: &str| -> Option<Vec<u8>> {
            let key = (weft_code::git::hash_blob(bytes), path.to_owned());
            let text = decoded(bytes)?;
            let Some(name) = symbol else {
                texts.insert(key, text.clone());
                return Some(text.into_bytes());
            };
            let all: Vec<_> = extract::extract(path, &text)
                .symbols
                .into_iter()
                .filter(|s| s.kind != Kind::File)
                .collect();
            let s = named(&all, name)
                .or_else(|| all.iter().find(|s| known.contains(&masked(&text, s))))?;
            let hash = masked(&text, s);
            if !known.contains(&hash) {
                known.push(hash);
            }
            let own = text.get(s.start as usize..s.end as usize)?.to_owned();
            let print = own.split_whitespace().collect::<Vec<_>>().join(" ");
            texts.insert(key, own);
            Some(print.into_bytes())
        };
        let deadline = Instant::now() + HISTORY_TIME;
        let walked = git
            .steps(head, path, limit, deadline, &mut print)
            .map_err(CodeError::Git)?;
        let with_text = walked
            .steps
            .into_iter()
            .map(|s| {
                let text = texts
                    .get(&(s.blob, s.path.clone()))
                    .cloned()
                    .unwrap_or_default();
                (s, text)
            })
            .collect();
        Ok((with_text, walked.cut))
    }

    /// Calls in which an agent wrote lines of the piece.
    fn add_spans(
        &self,
        why: &mut Why,
        repo: &CodeRepo,
        paths: &[String],
        versions: &[(Option<usize>, String)],
        symbol: Option<&str>,
        options: WhyOptions,
    ) -> Result<(), ShowError> {
        let identity = repo
            .root
            .as_deref()
            .and_then(repository::find)
            .map(|r| r.identity)
            .unwrap_or_default();
        let sets: Vec<(Option<usize>, HashSet<String>)> =
            versions.iter().map(|(i, t)| (*i, line_set(t))).collect();
        let mut sessions: HashMap<String, Option<SessionRow>> = HashMap::new();
        let mut elsewhere = 0;
        for path in paths {
            for e in self.store.edits_of(path, MAX_EDITS)? {
                if !sessions.contains_key(&e.session_id) {
                    let row = self.store.session(&e.session_id)?.map(|s| s.row);
                    sessions.insert(e.session_id.clone(), row);
                }
                let Some(Some(session)) = sessions.get(&e.session_id) else {
                    continue;
                };
                if !belongs(&e, session, repo, &identity) {
                    continue;
                }
                let (lines, commit) = evidence(&e, &sets, &why.commits);
                if symbol.is_some() && lines == 0 {
                    elsewhere += 1;
                    continue;
                }
                if why
                    .spans
                    .iter()
                    .any(|s| s.span_id == e.span_id && s.trace_id == e.trace_id)
                {
                    continue;
                }
                let title = [&session.display_name, &session.name]
                    .into_iter()
                    .find(|n| !n.is_empty());
                why.spans.push(WhySpan {
                    agent: session.key.harness_id.clone(),
                    session: title.cloned().unwrap_or_default(),
                    resume: resume_command(session),
                    span_id: e.span_id,
                    trace_id: e.trace_id,
                    session_id: e.session_id,
                    tool: e.tool,
                    prompt: e.prompt,
                    at: e.started_at,
                    lines,
                    commit,
                });
            }
        }
        why.spans
            .sort_by(|a, b| b.at.cmp(&a.at).then(a.span_id.cmp(&b.span_id)));
        if why.spans.is_empty() {
            why.notes.push(match elsewhere {
                0 => "no captured agent call wrote this file".into(),
                n => format!("{n} captured call(s) wrote this file, none of them this symbol"),
            });
        } else if why.spans.len() > options.spans {
            why.notes.push(format!(
                "{} earlier call(s) are not shown",
                why.spans.len() - options.spans
            ));
        }
        why.spans.truncate(options.spans);
        Ok(())
    }

    fn add_decisions(
        &self,
        why: &mut Why,
        repo: &CodeRepo,
        paths: &[String],
        symbol: Option<&str>,
    ) -> Result<(), ShowError> {
        let Some(root) = repo.root.as_deref() else {
            return Ok(());
        };
        let d = self.decisions_at(root)?;
        let (loaded, sync) = d.current()?;
        let path = why.source.path.clone();
        let mut places = d.for_file(&loaded, &path);
        let own = symbol.map(|s| s.rsplit(['.', ':']).next().unwrap_or(s));
        // A decision that is linked to other symbols of the file only is about those.
        let here = |link: &str| paths.iter().any(|p| link == p || covers(link, p));
        places.retain(|i| {
            let links = loaded.all[*i]
                .record
                .files
                .iter()
                .filter(|l| here(l.as_str()));
            let symbols: Vec<Option<&str>> =
                links.map(|l| l.split_once("::").map(|x| x.1)).collect();
            symbol.is_none()
                || symbols.is_empty()
                || symbols
                    .iter()
                    .any(|s| s.is_none_or(|s| Some(s) == symbol || Some(s) == own))
        });
        if let Some(own) = own.filter(|o| o.len() >= 4) {
            let names = |m: &String| m == own || m.rsplit(['.', ':']).next() == Some(own);
            for (i, x) in loaded.all.iter().enumerate() {
                if !places.contains(&i) && x.record.mentions.iter().any(names) {
                    places.push(i);
                }
            }
        }
        let stale = d.stale(&loaded, &places)?;
        for i in places {
            let decision = loaded.all[i].clone();
            let linked = decision.record.files.iter().any(|f| here(f));
            why.decisions.push(WhyDecision {
                stale: stale.get(&decision.id).cloned(),
                mentioned: !linked,
                decision,
            });
        }
        if why.decisions.is_empty() {
            why.notes.push(format!(
                "no decision governs it ({} decisions looked at)",
                loaded.all.len()
            ));
        }
        for (p, r) in sync.problems.iter().take(3) {
            why.notes.push(format!("{p} cannot be read: {r}"));
        }
        Ok(())
    }
}

fn commit(s: Step) -> WhyCommit {
    WhyCommit {
        at: s.stitch.at_micros(),
        id: s.stitch.changeset,
        subject: s.stitch.intent,
        author: s.stitch.author,
        path: s.path,
    }
}

/// Whether a call was made in this repository.
fn belongs(e: &FileEdit, session: &SessionRow, repo: &CodeRepo, identity: &str) -> bool {
    let path = Path::new(&e.path);
    // Where the file still is tells more than where the agent ran.
    if path.is_absolute()
        && let Some(there) = path.parent().and_then(repository::find)
    {
        return there.identity == identity;
    }
    let under = |root: &Path| path.starts_with(root);
    (!identity.is_empty() && session.repository == identity)
        || repo.root.as_deref().is_some_and(under)
}

/// How many lines of a call are in one of the versions, and the oldest commit after the call that has
/// most of them.
fn evidence(
    e: &FileEdit,
    sets: &[(Option<usize>, HashSet<String>)],
    commits: &[WhyCommit],
) -> (usize, String) {
    let lines = |of: fn(&weft_core::edits::Edit) -> &Vec<String>| -> HashSet<String> {
        e.edits
            .iter()
            .flat_map(|x| line_set(&of(x).join("\n")))
            .collect()
    };
    let (added, removed) = (lines(|x| &x.added), lines(|x| &x.removed));
    // What a call repeats to find its place was not written by it.
    let wrote: HashSet<String> = added.difference(&removed).cloned().collect();
    let took: HashSet<String> = removed.difference(&added).cloned().collect();
    let in_set = |s: &HashSet<String>, lines: &HashSet<String>| {
        lines.iter().filter(|l| s.contains(*l)).count()
    };
    let best = sets
        .iter()
        .map(|(_, s)| in_set(s, &wrote))
        .max()
        .unwrap_or(0);
    let taken = sets
        .iter()
        .map(|(_, s)| in_set(s, &took))
        .max()
        .unwrap_or(0);
    let mut commit = String::new();
    for (i, s) in sets {
        let Some(c) = i.and_then(|i| commits.get(i)) else {
            continue;
        };
        // Latest first: the last one that fits is the oldest.
        if c.at >= e.started_at - 1_000_000 && best > 0 && in_set(s, &wrote) * 2 >= best {
            commit.clone_from(&c.id);
        }
    }
    (best.max(taken), commit)
}
