//! Documents: what search reads of one span, and how a query's scope chooses among them.

use weft_core::time::Micros;

use crate::Result;

/// The searchable side of one span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Trace of the span.
    pub trace_id: String,
    /// The span.
    pub span_id: String,
    /// Its session.
    pub session_id: String,
    /// Subagent thread; "" = main.
    pub thread_id: String,
    /// Harness.
    pub agent: String,
    /// Model that answered.
    pub model: String,
    /// Repository of the session.
    pub repository: String,
    /// Start of the span.
    pub started_at: Micros,
    /// What the user said, projected.
    pub user_text: String,
    /// What the assistant answered, projected.
    pub assistant_text: String,
    /// What came right before, cut.
    pub context_text: String,
    /// Tool calls and their output, cut.
    pub tool_text: String,
    /// SHA-256 of the embedded text; `None` where nothing is embedded.
    pub hash: Option<[u8; 32]>,
    /// Hash of everything above: equal means that nothing has to be written.
    pub content_hash: [u8; 32],
}

impl Document {
    /// The text that is embedded: the user's words, then the assistant's.
    pub fn text(&self) -> String {
        join_text(&self.user_text, &self.assistant_text)
    }
}

fn join_text(user: &str, assistant: &str) -> String {
    match (user, assistant) {
        ("", a) => a.to_owned(),
        (u, "") => u.to_owned(),
        (u, a) => format!("{u}\n{a}"),
    }
}

/// Whose words a search looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What the user said.
    User,
    /// What the assistant answered.
    Assistant,
    /// Tool calls and their output.
    Tool,
}

/// What a search does with subagents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Subagents {
    /// They count, behind the main conversation.
    #[default]
    Include,
    /// They are left out.
    Exclude,
    /// Nothing else is searched.
    Only,
}

/// The scope of a search; an empty one covers everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Session UUIDs; empty = all.
    pub sessions: Vec<String>,
    /// Harness.
    pub agent: Option<String>,
    /// Model, exactly.
    pub model: Option<String>,
    /// Repository: its identity or the last part of it.
    pub repository: Option<String>,
    /// Whose words.
    pub role: Option<Role>,
    /// Started at or after.
    pub since: Option<Micros>,
    /// Started before.
    pub until: Option<Micros>,
    /// Subagents.
    pub subagents: Subagents,
    /// Name of a tool that the turn called, in any case.
    pub tool: Option<String>,
    /// Path of a file that the turn wrote or names; the end of it is enough.
    pub file: Option<String>,
    /// Branch that the session was on.
    pub branch: Option<String>,
}

impl Filter {
    /// Whether it lets everything through.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it asks for something that the keyword index does not know.
    pub(crate) fn needs_rows(&self) -> bool {
        self.tool.is_some() || self.file.is_some() || self.branch.is_some()
    }
}

/// A found document with what a hit shows.
#[derive(Clone, Debug, Default)]
pub struct SpanHit {
    /// Document id.
    pub id: i64,
    /// The document.
    pub document: Document,
    /// Prompt of its trace.
    pub user_prompt: String,
}

/// How much of the store a search can see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Documents of main-conversation spans.
    pub documents: u64,
    /// Of those, documents with text to embed.
    pub embeddable: u64,
    /// Of those, documents with a vector of the model.
    pub embedded: u64,
    /// Documents that the keyword index has not committed yet; they are found from the tail.
    pub words_pending: u64,
    /// Sessions that wait for derivation.
    pub underived_sessions: u64,
}

/// What search reads.
pub trait Documents {
    /// The documents with these ids that still exist, in the order of the ids.
    fn hydrate(&self, ids: &[i64]) -> Result<Vec<SpanHit>>;

    /// The document of a span.
    fn document_of(&self, trace_id: &str, span_id: &str) -> Result<Option<i64>>;

    /// The documents of a session around one of its spans, by time: up to `each` on both sides and
    /// the span itself.
    fn around(&self, session_id: &str, id: i64, each: usize) -> Result<Vec<SpanHit>>;

    /// How much a search with this model can see. Costs what is pending, not what there is.
    fn coverage(&self, model_id: Option<i64>) -> Result<Coverage>;
}

/// The nearest of several lists of nearest things, best first: of every shard's own list, or of an
/// index and what is not in it yet. Where each list holds the best `n` of its part, the result
/// holds the best `n` of the whole.
pub fn merge_nearest<K: Ord>(lists: Vec<Vec<(K, f32)>>, n: usize) -> Vec<(K, f32)> {
    let mut all: Vec<(K, f32)> = lists.into_iter().flatten().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all.truncate(n);
    all
}
