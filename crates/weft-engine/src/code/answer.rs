//! A question about code and what answers it.

use std::time::Duration;

use weft_code::git::Stitch;
use weft_core::code::Kind;

use super::index::CodeSync;

/// A question about code.
#[derive(Clone, Debug)]
pub struct CodeQuery {
    /// What is asked.
    pub query: String,
    /// Most hits, 1..=50.
    pub limit: usize,
    /// Path prefixes, clean.
    pub paths: Vec<String>,
    /// Kinds; empty = all.
    pub kinds: Vec<Kind>,
    /// Branch; `None` = what is checked out.
    pub workstream: Option<String>,
    /// How long to wait for an index that is behind; `None` = until a first index is there, and
    /// 1.5 s for one that is behind.
    pub wait: Option<Duration>,
    /// Index behind the answer instead of in front of it: there is a process that lives on.
    pub background: bool,
    /// Show what is on disk and not in the branch yet.
    pub drafts: bool,
    /// Look for owner and last change of the hits.
    pub history: bool,
    /// Read the best line of each hit.
    pub snippets: bool,
    /// Legs: vectors.
    pub vectors: bool,
}

impl Default for CodeQuery {
    fn default() -> Self {
        Self {
            query: String::new(),
            limit: 10,
            paths: Vec::new(),
            kinds: Vec::new(),
            workstream: None,
            wait: None,
            background: false,
            drafts: true,
            history: true,
            snippets: true,
            vectors: true,
        }
    }
}

/// How a symbol on disk differs from the branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftState {
    /// Its text is another one.
    Changed,
    /// It is not in the branch.
    Added,
    /// It is not on disk.
    Removed,
}

impl DraftState {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Added => "added",
            Self::Removed => "removed",
        }
    }
}

/// A draft that a hit is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// How it differs.
    pub state: DraftState,
    /// Who holds it; "" = nobody said so.
    pub agent: String,
    /// Signature in the branch, of a changed one.
    pub head_signature: String,
}

/// The last commit that changed a symbol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HitStitch {
    /// Commit id.
    pub changeset: String,
    /// Subject.
    pub intent: String,
    /// Author.
    pub author: String,
    /// RFC 3339, UTC.
    pub at: String,
}

impl From<Stitch> for HitStitch {
    fn from(s: Stitch) -> Self {
        Self {
            at: weft_core::time::format_micros(s.at_micros()),
            changeset: s.changeset,
            intent: s.intent,
            author: s.author,
        }
    }
}

/// One found symbol.
#[derive(Clone, Debug)]
pub struct CodeHit {
    /// `file::symbol`.
    pub target: String,
    /// Path.
    pub file: String,
    /// Qualified name.
    pub symbol: String,
    /// Kind.
    pub kind: Kind,
    /// First line.
    pub line: u32,
    /// Last line.
    pub end_line: u32,
    /// Declaration on one line.
    pub signature: String,
    /// First sentence of its documentation.
    pub doc: String,
    /// Visible outside its module.
    pub exported: bool,
    /// Fused score; only the order means something.
    pub score: f32,
    /// `semantic`, `keyword` or both.
    pub found_by: Vec<&'static str>,
    /// Cosine similarity, where it has a vector.
    pub similarity: Option<f32>,
    /// The line of its body that answers best; "" = none.
    pub snippet: String,
    /// Owner; "" = nobody.
    pub owner: String,
    /// Last change.
    pub stitch: Option<HitStitch>,
    /// Draft.
    pub draft: Option<Draft>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct CodeAnswer {
    /// The query.
    pub query: String,
    /// Branch.
    pub workstream: String,
    /// Commit that the answer is about; "" = none.
    pub head: String,
    /// Whether vectors took part.
    pub semantic: bool,
    /// Whether the branch has moved on since.
    pub stale: bool,
    /// Whether nothing of the branch is indexed yet.
    pub indexing: bool,
    /// Hits, best first.
    pub hits: Vec<CodeHit>,
    /// What the reader should know.
    pub notes: Vec<String>,
    /// Files in view.
    pub files: usize,
    /// What the index run in front of the answer did.
    pub sync: Option<CodeSync>,
}

/// What `find` found.
#[derive(Clone, Debug, Default)]
pub struct FindAnswer {
    /// Branch that is checked out.
    pub workstream: String,
    /// Hits in the order of `find`.
    pub hits: Vec<CodeHit>,
    /// How many there were before the limit, at least.
    pub total: usize,
    /// What the reader should know.
    pub notes: Vec<String>,
}
