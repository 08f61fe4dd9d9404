//! Raw turns, the derive queue and import marks: the truth as it comes in.

use serde_json::{Map, Value};
use weft_core::time::Micros;

use crate::Result;
use crate::sessions::{NewSession, SessionKey};

/// Raw turns to be stored; what it holds is already redacted.
#[derive(Clone, Debug, Default)]
pub struct NewTurn {
    /// `wire`, `transcript` or `import`.
    pub source: &'static str,
    /// `anthropic`, `openai`, `ollama`; "" for transcripts.
    pub provider: String,
    /// Name that the producer gave the agent.
    pub agent_name: String,
    /// Harness; "" where the turn has no session block.
    pub harness_id: String,
    /// Session of the harness; "" = never derived.
    pub harness_session_id: String,
    /// Dedupe key; "" = every turn is stored.
    pub request_id: String,
    /// Request body or transcript records, JSON.
    pub raw_request: Option<String>,
    /// Reduced response, JSON.
    pub response: Option<String>,
    /// Facts about the exchange, JSON object.
    pub meta: String,
    /// Session block as received, JSON.
    pub session_envelope: Option<String>,
    /// Now.
    pub received_at: Micros,
    /// Verbatim response bytes, still encoded.
    pub raw_response: Option<Vec<u8>>,
    /// Their content encoding.
    pub raw_response_encoding: String,
    /// Whether bytes existed and were not kept.
    pub raw_response_dropped: bool,
    /// The session row to create or update with it.
    pub session: Option<NewSession>,
}

/// What a read of the session's turns starts with: enough to order them.
#[derive(Clone, Debug)]
pub struct TurnIndex {
    /// Row id.
    pub id: i64,
    /// `wire`, `transcript` or `import`.
    pub source: String,
    /// Facts about the exchange.
    pub meta: Map<String, Value>,
    /// When it was stored.
    pub received_at: Micros,
}

/// One stored turn, whole.
#[derive(Clone, Debug, Default)]
pub struct StoredTurn {
    /// Row id.
    pub id: i64,
    /// `wire`, `transcript` or `import`.
    pub source: String,
    /// Provider.
    pub provider: String,
    /// Dedupe key.
    pub request_id: String,
    /// Request body or transcript records.
    pub raw_request: Value,
    /// Reduced response.
    pub response: Value,
    /// Facts about the exchange.
    pub meta: Map<String, Value>,
    /// Session block.
    pub session_envelope: Map<String, Value>,
    /// When it was stored.
    pub received_at: Micros,
    /// Verbatim response bytes, still encoded.
    pub raw_response: Option<Vec<u8>>,
    /// Their content encoding.
    pub raw_response_encoding: String,
    /// Whether bytes existed and were not kept.
    pub raw_response_dropped: bool,
}

/// One row of the raw-turn listing.
#[derive(Clone, Debug)]
pub struct RawTurnInfo {
    /// Row id.
    pub id: i64,
    /// `wire`, `transcript` or `import`.
    pub source: String,
    /// Provider.
    pub provider: String,
    /// Agent name.
    pub agent_name: String,
    /// Dedupe key.
    pub request_id: String,
    /// When it was stored.
    pub received_at: Micros,
    /// Facts about the exchange.
    pub meta: Value,
    /// Characters of the request's JSON.
    pub request_chars: i64,
    /// Characters of the reduced response's JSON.
    pub response_chars: i64,
}

/// A session that waits for derivation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// The session.
    pub key: SessionKey,
    /// When it last became dirty.
    pub dirtied_at: Micros,
}

/// Work that is taken for a while, so that no other worker of a shared store takes it too. Work of a
/// worker that died is free again when its lease ends; a living one renews it.
#[derive(Clone, Copy, Debug)]
pub struct Lease<'a> {
    /// Who takes it: another name for each process.
    pub owner: &'a str,
    /// For how long, microseconds.
    pub micros: Micros,
}

/// How a transcript file looked when it was last imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportMark {
    /// Bytes.
    pub size: u64,
    /// Modification time, nanoseconds since the epoch.
    pub modified_ns: i64,
}

/// Raw turns, and the queue of sessions that wait for derivation.
pub trait Turns {
    /// Stores a turn durably; false where its request id is known already.
    ///
    /// # Errors
    /// [`crate::StoreError::QueueFull`] where too many writes wait.
    fn insert_turn(&self, turn: NewTurn) -> Result<bool>;

    /// Stores several turns in one transaction; returns how many were new.
    fn insert_turns(&self, turns: Vec<NewTurn>) -> Result<usize>;

    /// Turns of a session in the order of their ids, without their payloads.
    fn turn_index(&self, key: &SessionKey) -> Result<Vec<TurnIndex>>;

    /// One turn, whole; `None` where there is none.
    fn turn(&self, id: i64) -> Result<Option<StoredTurn>>;

    /// The raw turns of a session, for listing.
    fn raw_turns(&self, key: &SessionKey) -> Result<Vec<RawTurnInfo>>;

    /// Number of stored turns.
    fn count_turns(&self) -> Result<u64>;

    /// Sessions that are ready to be derived, oldest first: quiet since `quiet_before`, or dirty
    /// since `dirty_before` however busy. In a shared store they are leased to the caller; in the
    /// embedded one deriving a session twice costs little and changes nothing.
    fn claim_derivations(
        &self,
        quiet_before: Micros,
        dirty_before: Micros,
        limit: usize,
        lease: &Lease<'_>,
    ) -> Result<Vec<QueueEntry>>;

    /// Number of sessions that wait for derivation.
    fn queue_depth(&self) -> Result<u64>;

    /// Takes a session off the queue unless it became dirty again; true where it was taken off.
    fn dequeue(&self, entry: &QueueEntry) -> Result<bool>;

    /// Puts a session that could not be derived behind the others.
    fn put_back(&self, entry: &QueueEntry, now: Micros) -> Result<()>;

    /// Queues every session with a turn stored at or after `since`; returns how many were added.
    fn sweep_queue(&self, since: Micros, now: Micros) -> Result<u64>;

    /// Keeps everything that is leased to an owner for longer, texts to embed included.
    fn renew_leases(&self, lease: &Lease<'_>) -> Result<()>;
}

/// Which transcript files of this machine were imported.
pub trait Imports {
    /// How a transcript file looked when it was last imported.
    fn import_mark(&self, path: &str) -> Result<Option<ImportMark>>;

    /// Remembers how a transcript file looked when it was imported.
    fn set_import_mark(&self, path: &str, mark: ImportMark, now: Micros) -> Result<()>;
}
