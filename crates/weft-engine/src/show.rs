//! Opening a hit: a span with its neighbours and its session, a symbol with its source, a decision in
//! full, a commit with its files.

use std::path::Path;

use weft_code::extract;
use weft_code::git::Stitch;
use weft_core::code::{Kind, Symbol};
use weft_core::decision::Decision;
use weft_core::redact::redact_lines;
use weft_store::{SessionFull, SpanHit, SpanRow, StoreError};

use crate::code::text_at;
use crate::decisions::{DecisionError, Loaded, Stale};
use crate::{CodeError, CodeRepo, Engine};

/// Neighbours on each side of a span.
const NEIGHBOURS: usize = 2;

/// What a reference leads to.
#[derive(Clone, Debug)]
pub enum Shown {
    /// A span.
    Span {
        /// It.
        span: Box<SpanRow>,
        /// Prompt of its trace.
        prompt: String,
        /// Spans around it, itself included.
        around: Vec<SpanHit>,
        /// Its session.
        session: Option<Box<SessionFull>>,
    },
    /// A session.
    Session(Box<SessionFull>),
    /// A symbol or a file.
    Code(Box<Source>),
    /// A decision.
    Decision {
        /// It, with its text.
        decision: Box<Decision>,
        /// Symbols that it is linked to.
        symbols: Vec<String>,
        /// Why it is stale.
        stale: Option<Stale>,
        /// All decisions in view, for naming others.
        loaded: Box<Loaded>,
    },
    /// A commit and the files that it touched.
    Commit(Stitch, Vec<String>),
}

/// A piece of source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Path from the top of the repository.
    pub path: String,
    /// Qualified name; "" = the whole file.
    pub symbol: String,
    /// Kind; `File` = the whole file.
    pub kind: Option<Kind>,
    /// First line.
    pub line: u32,
    /// Last line.
    pub end_line: u32,
    /// Declaration on one line.
    pub signature: String,
    /// First sentence of its documentation.
    pub doc: String,
    /// The text of these lines.
    pub text: String,
}

/// Why nothing is shown.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ShowError {
    /// Nothing is called this.
    #[error("nothing is called {0}")]
    Unknown(String),
    /// More than one is called this.
    #[error("{name} may be any of {}", .all.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// What it may be.
        all: Vec<String>,
    },
    /// A path that is not in the repository.
    #[error("no such file in the repository: {0}")]
    NoFile(String),
    /// A name that is not in a file.
    #[error("no symbol is called {name} in {path}")]
    NoSymbol {
        /// The file.
        path: String,
        /// The name.
        name: String,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The repository.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// The decisions.
    #[error(transparent)]
    Decision(#[from] DecisionError),
}

impl ShowError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unknown(_) => Some(
                "references are as a search prints them: span:ID, session:ID, path::symbol, path:line, decision:PATH, commit:ID",
            ),
            Self::Ambiguous { .. } => Some("give more of it"),
            Self::NoFile(_) => {
                Some("give a path from where you are, or from the top of the repository")
            }
            Self::NoSymbol { .. } => Some("`weft code find NAME` looks for it everywhere"),
            Self::Store(e) => e.hint(),
            Self::Code(e) => e.hint(),
            Self::Decision(e) => e.hint(),
        }
    }
}

/// `path`, `path::symbol` and `path:line` apart.
pub(crate) fn split_target(text: &str) -> (&str, Option<&str>, Option<u32>) {
    if let Some((path, symbol)) = text.split_once("::")
        && !symbol.is_empty()
    {
        return (path, Some(symbol), None);
    }
    if let Some((path, line)) = text.rsplit_once(':')
        && let Ok(line) = line.parse::<u32>()
    {
        return (path, None, Some(line));
    }
    (text, None, None)
}

/// A path as somebody gives it in `folder`, from the top of the repository.
pub(crate) fn from_top(repo: &CodeRepo, folder: &Path, path: &str) -> Option<String> {
    let root = repo.root.as_deref()?;
    let clean = |p: &Path| -> Option<String> {
        let mut parts: Vec<String> = Vec::new();
        for c in p.components() {
            match c {
                std::path::Component::Normal(n) => parts.push(n.to_string_lossy().into_owned()),
                std::path::Component::CurDir => {}
                std::path::Component::ParentDir => drop(parts.pop()?),
                _ => return None,
            }
        }
        Some(parts.join("/"))
    };
    let given = Path::new(path);
    if given.is_absolute() {
        return clean(given.strip_prefix(root).ok()?);
    }
    let here = folder.canonicalize().ok()?;
    let inside = here.strip_prefix(root).unwrap_or(Path::new("")).join(given);
    // Where people stand counts first, then the top: hits are printed from there.
    let near = clean(&inside).filter(|p| root.join(p).exists());
    near.or_else(|| clean(given))
}

/// The text of a file on disk: one of the repository's, which no link leads out of, and none of git's own.
pub(crate) fn text_on_disk(repo: &CodeRepo, path: &str) -> Option<String> {
    let root = repo.root.as_deref()?;
    let file = root.join(path);
    let real = file.parent()?.canonicalize().ok()?;
    let inside = real.strip_prefix(root.canonicalize().ok()?).ok()?;
    let of_git = inside.components().any(|c| c.as_os_str() == ".git");
    if of_git { None } else { text_at(&file) }
}

/// The symbol that a name or a line means: the innermost one at the line.
pub(crate) fn choose<'a>(
    path: &str,
    all: &'a [Symbol],
    name: Option<&str>,
    line: Option<u32>,
) -> Result<Option<&'a Symbol>, ShowError> {
    let symbols = || all.iter().filter(|s| s.kind != Kind::File);
    if let Some(name) = name {
        let wanted = name.replace("::", ".");
        let exact = symbols().find(|s| s.name.replace("::", ".") == wanted);
        if let Some(s) = exact {
            return Ok(Some(s));
        }
        let named: Vec<&Symbol> = symbols().filter(|s| s.own_name() == wanted).collect();
        return match named.as_slice() {
            [one] => Ok(Some(one)),
            [] => Err(ShowError::NoSymbol {
                path: path.to_owned(),
                name: name.to_owned(),
            }),
            many => Err(ShowError::Ambiguous {
                name: name.to_owned(),
                all: many
                    .iter()
                    .take(10)
                    .map(|s| format!("{} (line {})", s.name, s.line))
                    .collect(),
            }),
        };
    }
    let at = |l: u32| symbols().filter(move |s| s.line <= l && l <= s.end_line);
    Ok(line.and_then(|l| at(l).min_by_key(|s| s.end_line - s.line)))
}

/// The source of a symbol, or of a whole file; secrets in it are not shown.
pub(crate) fn source(path: &str, text: &str, symbol: Option<&Symbol>) -> Source {
    let clean = redact_lines(text);
    let text = clean.as_deref().unwrap_or(text);
    match symbol {
        Some(s) => Source {
            path: path.to_owned(),
            symbol: s.name.clone(),
            kind: Some(s.kind),
            line: s.line,
            end_line: s.end_line,
            signature: s.signature.clone(),
            doc: s.doc.clone(),
            text: text
                .lines()
                .skip(s.line.saturating_sub(1) as usize)
                .take((s.end_line + 1 - s.line.min(s.end_line)) as usize)
                .collect::<Vec<_>>()
                .join("\n"),
        },
        None => Source {
            path: path.to_owned(),
            kind: Some(Kind::File),
            line: 1,
            end_line: text.lines().count() as u32,
            text: text.to_owned(),
            ..Source::default()
        },
    }
}

impl Engine {
    /// Opens what a reference of a search leads to, seen from a folder.
    ///
    /// # Errors
    /// Where nothing, or more than one thing, is called this.
    pub fn show(&self, reference: &str, folder: &Path) -> Result<Shown, ShowError> {
        let r = reference.trim();
        if let Some(id) = r.strip_prefix("span:") {
            return self.show_span(id);
        }
        if let Some(id) = r.strip_prefix("session:") {
            return self
                .show_session(id)?
                .ok_or_else(|| ShowError::Unknown(r.to_owned()));
        }
        if let Some(name) = r.strip_prefix("decision:") {
            return self.show_decision(name, folder);
        }
        if let Some(id) = r.strip_prefix("commit:") {
            let git = self.code_repository(folder)?.git()?;
            let (s, files) = git
                .commit(id)
                .ok_or_else(|| ShowError::Unknown(r.to_owned()))?;
            return Ok(Shown::Commit(s, files));
        }
        if r.starts_with("dec_") {
            return self.show_decision(r, folder);
        }
        // Without a prefix: a file or symbol, a decision, a session, a span, a commit, in this order.
        let repo = self.code_repository(folder).ok();
        if let Some(repo) = &repo {
            match self.show_code(repo, r, folder) {
                Err(ShowError::Unknown(_)) => {}
                other => return other,
            }
        }
        match self.show_decision(r, folder) {
            Ok(d) => return Ok(d),
            Err(ShowError::Decision(e @ DecisionError::Ambiguous { .. })) => return Err(e.into()),
            Err(_) => {}
        }
        if r.len() >= 6
            && let Some(s) = self.show_session(r)?
        {
            return Ok(s);
        }
        if let Ok(s) = self.show_span(r) {
            return Ok(s);
        }
        if let Some((s, files)) = repo.and_then(|repo| repo.git().ok()?.commit(r)) {
            return Ok(Shown::Commit(s, files));
        }
        Err(ShowError::Unknown(r.to_owned()))
    }

    fn show_code(&self, repo: &CodeRepo, target: &str, folder: &Path) -> Result<Shown, ShowError> {
        let (path, name, line) = split_target(target);
        let unknown = || ShowError::Unknown(target.to_owned());
        let path = from_top(repo, folder, path).ok_or_else(unknown)?;
        let text = text_on_disk(repo, &path).ok_or_else(unknown)?;
        let all = extract::extract(&path, &text).symbols;
        let symbol = choose(&path, &all, name, line)?;
        Ok(Shown::Code(Box::new(source(&path, &text, symbol))))
    }

    fn show_decision(&self, name: &str, folder: &Path) -> Result<Shown, ShowError> {
        let d = self.decisions_here(folder)?;
        let (loaded, _) = d.current()?;
        let i = loaded.find(name)?;
        let decision = d.with_text(&loaded, i)?;
        let symbols = d.symbols()?.remove(&decision.id).unwrap_or_default();
        let stale = d.stale(&loaded, &[i])?.remove(&decision.id);
        Ok(Shown::Decision {
            decision: Box::new(decision),
            symbols,
            stale,
            loaded: Box::new(loaded),
        })
    }

    fn show_session(&self, id: &str) -> Result<Option<Shown>, ShowError> {
        let found = self.store.sessions_by_prefix(id, 3)?;
        match found.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(Shown::Session(Box::new(one.clone())))),
            [first, ..] if first.row.id == id => Ok(Some(Shown::Session(Box::new(first.clone())))),
            many => Err(ShowError::Ambiguous {
                name: id.to_owned(),
                all: many.iter().map(|s| s.row.id.clone()).collect(),
            }),
        }
    }

    fn show_span(&self, id: &str) -> Result<Shown, ShowError> {
        let (trace, span) = match id.split_once('/') {
            Some((t, s)) => (Some(t), s),
            None => (None, id),
        };
        let mut found = self.store.spans_by_id(span)?;
        found.retain(|s| trace.is_none_or(|t| s.trace_id == t));
        if found.len() > 1 {
            return Err(ShowError::Ambiguous {
                name: id.to_owned(),
                all: found
                    .iter()
                    .map(|s| format!("span:{}/{}", s.trace_id, s.span_id))
                    .collect(),
            });
        }
        let Some(span) = found.pop() else {
            return Err(ShowError::Unknown(format!("span:{id}")));
        };
        let session = self.store.session(&span.session_id)?;
        let document = self.store.document_of(&span.trace_id, &span.span_id)?;
        let around = match document {
            Some(doc) => self.store.around(&span.session_id, doc, NEIGHBOURS)?,
            None => Vec::new(),
        };
        Ok(Shown::Span {
            prompt: self
                .store
                .trace(&span.trace_id)?
                .map(|t| t.trace.user_prompt)
                .unwrap_or_default(),
            around,
            session: session.map(Box::new),
            span: Box::new(span),
        })
    }
}
