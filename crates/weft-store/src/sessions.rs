//! Session identities (truth) and their lists joined with what derivation found.

use serde_json::{Map, Value};
use weft_core::span::Rollup;
use weft_core::time::Micros;

use crate::Result;

/// A session as its harness names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// The agent program.
    pub harness_id: String,
    /// Its id of the session.
    pub harness_session_id: String,
}

/// What a turn says about its session.
#[derive(Clone, Debug, Default)]
pub struct NewSession {
    /// Id to use where the session is new.
    pub new_id: String,
    /// Id to use where a parent has to be created.
    pub new_parent_id: String,
    /// The session.
    pub key: SessionKey,
    /// Who runs the agent.
    pub auth_subject: String,
    /// Name of the session.
    pub name: String,
    /// Working directory.
    pub cwd: String,
    /// Version of the harness.
    pub harness_version: String,
    /// The parent's id of the same harness; "" = none.
    pub parent: String,
    /// Further facts; merged with what is known.
    pub metadata: Map<String, Value>,
    /// The repository that `cwd` belongs to.
    pub repository: String,
    /// Transcript file that it was imported from.
    pub source_path: String,
    /// First sign of life.
    pub started_at: Micros,
    /// Last sign of life.
    pub last_seen_at: Micros,
}

/// One session, as stored.
#[derive(Clone, Debug, Default)]
pub struct SessionRow {
    /// UUID.
    pub id: String,
    /// As its harness names it.
    pub key: SessionKey,
    /// Who runs the agent.
    pub auth_subject: String,
    /// Name.
    pub name: String,
    /// Working directory.
    pub cwd: String,
    /// Version of the harness.
    pub harness_version: String,
    /// Parent session's UUID; "" = none.
    pub parent_session_id: String,
    /// First sign of life.
    pub started_at: Micros,
    /// Last sign of life.
    pub last_seen_at: Micros,
    /// End, where somebody said so.
    pub ended_at: Option<Micros>,
    /// Further facts.
    pub harness_metadata: Map<String, Value>,
    /// Name that a user gave it.
    pub display_name: String,
    /// The repository that it worked in.
    pub repository: String,
    /// Transcript file that it was imported from.
    pub source_path: String,
}

/// A session with what derivation found.
#[derive(Clone, Debug, Default)]
pub struct SessionFull {
    /// Identity.
    pub row: SessionRow,
    /// Sums and facts; the default where the session is not derived yet.
    pub rollup: Rollup,
    /// Whole prompt of the first real turn.
    pub preview: String,
}

/// Columns that a list can be sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortField {
    /// Last sign of life.
    #[default]
    LastActive,
    /// First sign of life.
    StartedAt,
    /// Number of turns.
    TurnCount,
    /// Cost.
    TotalCostUsd,
    /// Tokens.
    TotalTokens,
    /// Time between the first and the last sign of life.
    DurationNs,
    /// Status.
    DerivedStatus,
    /// Who runs the agent.
    AuthSubject,
}

impl SortField {
    /// All of them with their names.
    pub const ALL: [(&'static str, Self); 8] = [
        ("last_active", Self::LastActive),
        ("started_at", Self::StartedAt),
        ("turn_count", Self::TurnCount),
        ("total_cost_usd", Self::TotalCostUsd),
        ("total_tokens", Self::TotalTokens),
        ("duration_ns", Self::DurationNs),
        ("derived_status", Self::DerivedStatus),
        ("auth_subject", Self::AuthSubject),
    ];

    /// Whether the column holds text.
    pub fn is_text(self) -> bool {
        matches!(self, Self::DerivedStatus | Self::AuthSubject)
    }
}

/// A page of the session list.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// Column to sort by.
    pub sort: SortField,
    /// Smallest first.
    pub ascending: bool,
    /// Boundary of the page before: the sort column's value and the id.
    pub after: Option<Boundary>,
    /// Only sessions with a trace started at or after this.
    pub since: Option<Micros>,
    /// Only sessions with a trace started before this.
    pub until: Option<Micros>,
    /// Only sessions of this subject.
    pub auth_subject: Option<String>,
    /// Only sessions of this repository (identity or its last part).
    pub repository: Option<String>,
    /// Only sessions of this harness.
    pub harness_id: Option<String>,
    /// Rows to return.
    pub limit: usize,
}

/// Where a page of the list ends: the sort column's value and the id.
pub type Boundary = (String, String);

/// Sums over traces.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StatsRow {
    /// Distinct sessions.
    pub session_count: i64,
    /// Traces.
    pub turn_count: i64,
    /// Distinct completed sessions.
    pub completed_count: i64,
    /// Cost, US dollars.
    pub total_cost: f64,
    /// Input tokens.
    pub input_tokens: i64,
    /// Output tokens.
    pub output_tokens: i64,
    /// Duration of all traces, nanoseconds.
    pub total_duration_ns: i64,
    /// Tool spans.
    pub tool_calls: i64,
}

/// Session identities, and their lists with what derivation found.
pub trait Sessions {
    /// Creates a session or merges what is new into it; returns its id.
    fn upsert_session(&self, session: NewSession) -> Result<String>;

    /// One session by id.
    fn session(&self, id: &str) -> Result<Option<SessionFull>>;

    /// Sessions with this harness session id, of one harness or of all, by harness.
    fn sessions_by_key(
        &self,
        harness_id: Option<&str>,
        harness_session_id: &str,
    ) -> Result<Vec<SessionFull>>;

    /// Sessions whose id, or harness session id, starts with `prefix`; at most `limit`.
    fn sessions_by_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<SessionFull>>;

    /// A page of sessions; the second value is the boundary of the page after it, where there is one.
    fn list_sessions(&self, q: &ListQuery) -> Result<(Vec<SessionFull>, Option<Boundary>)>;

    /// Gives a session a name of the user's own, or takes it away; false where there is no such session.
    fn rename_session(&self, id: &str, name: Option<&str>) -> Result<bool>;

    /// Removes a session, its children and everything derived from them; raw turns stay. False
    /// where there is no such session.
    fn delete_session(&self, id: &str) -> Result<bool>;

    /// Sums over the traces that started in a window, of one subject or of all.
    fn stats(
        &self,
        since: Option<Micros>,
        until: Option<Micros>,
        auth_subject: Option<&str>,
    ) -> Result<StatsRow>;
}
