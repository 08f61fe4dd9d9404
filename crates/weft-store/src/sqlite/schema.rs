//! The tables, as migrations that are never edited after a release.

/// Migrations of `weft.db`; the n-th brings the schema to version n.
pub(crate) const TRUTH: &[&str] = &[
    r#"
CREATE TABLE raw_turns (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  source TEXT NOT NULL DEFAULT 'wire',
  provider TEXT NOT NULL DEFAULT '',
  agent_name TEXT NOT NULL DEFAULT '',
  harness_id TEXT NOT NULL DEFAULT '',
  harness_session_id TEXT NOT NULL DEFAULT '',
  request_id TEXT NOT NULL DEFAULT '',
  raw_request BLOB,
  response BLOB,
  meta BLOB NOT NULL,
  session_envelope BLOB,
  received_at INTEGER NOT NULL,
  raw_response BLOB,
  raw_response_encoding TEXT NOT NULL DEFAULT '',
  raw_response_dropped INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX raw_turns_request ON raw_turns (request_id) WHERE request_id <> '';
CREATE INDEX raw_turns_session ON raw_turns (harness_session_id, harness_id);
CREATE INDEX raw_turns_received ON raw_turns (received_at);

CREATE TABLE sessions (
  id TEXT PRIMARY KEY,
  harness_id TEXT NOT NULL,
  harness_session_id TEXT NOT NULL,
  auth_subject TEXT NOT NULL DEFAULT '',
  name TEXT,
  cwd TEXT,
  harness_version TEXT,
  parent_session_id TEXT REFERENCES sessions (id) ON DELETE CASCADE,
  started_at INTEGER NOT NULL,
  last_seen_at INTEGER NOT NULL,
  ended_at INTEGER,
  harness_metadata TEXT NOT NULL DEFAULT '{}',
  display_name TEXT,
  repository TEXT NOT NULL DEFAULT '',
  source_path TEXT NOT NULL DEFAULT '',
  UNIQUE (harness_id, harness_session_id)
) STRICT;
CREATE INDEX sessions_harness_session ON sessions (harness_session_id);
CREATE INDEX sessions_last_seen ON sessions (last_seen_at DESC, id DESC);
CREATE INDEX sessions_parent ON sessions (parent_session_id);

CREATE TABLE derive_queue (
  harness_id TEXT NOT NULL,
  harness_session_id TEXT NOT NULL,
  dirtied_at INTEGER NOT NULL,
  first_dirtied_at INTEGER NOT NULL,
  PRIMARY KEY (harness_id, harness_session_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX derive_queue_dirtied ON derive_queue (dirtied_at);

CREATE TABLE imports (
  path TEXT PRIMARY KEY,
  size INTEGER NOT NULL,
  modified_ns INTEGER NOT NULL,
  imported_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"#,
    r#"
CREATE TABLE repositories (
  common_dir TEXT PRIMARY KEY,
  repo_id TEXT NOT NULL,
  root TEXT NOT NULL,
  origin TEXT NOT NULL,
  first_commit TEXT NOT NULL,
  added_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX repositories_id ON repositories (repo_id);

CREATE TABLE draft_claims (
  repo_id TEXT NOT NULL,
  checkout TEXT NOT NULL,
  path TEXT NOT NULL,
  agent TEXT NOT NULL,
  claimed_at INTEGER NOT NULL,
  PRIMARY KEY (repo_id, checkout, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE purged_paths (
  repo_id TEXT NOT NULL,
  path TEXT NOT NULL,
  purged_at INTEGER NOT NULL,
  PRIMARY KEY (repo_id, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
  id TEXT PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE,
  name TEXT NOT NULL,
  scope TEXT NOT NULL,
  repositories TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"#,
    r#"
CREATE TABLE workspaces (
  slug TEXT PRIMARY KEY,
  repo_id TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX workspaces_repository ON workspaces (repo_id) WHERE repo_id <> '';

-- Folders of a repository whose records are decisions, beside those that are found by their name.
CREATE TABLE decision_folders (
  workspace TEXT NOT NULL,
  folder TEXT NOT NULL,
  PRIMARY KEY (workspace, folder)
) STRICT, WITHOUT ROWID;

-- A record without a body is a file of the repository; its id is kept here.
CREATE TABLE decisions (
  workspace TEXT NOT NULL,
  path TEXT NOT NULL,
  id TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  body_hash BLOB,
  baseline TEXT NOT NULL DEFAULT '',
  body BLOB,
  PRIMARY KEY (workspace, path)
) STRICT;
CREATE INDEX decisions_id ON decisions (workspace, id);

CREATE TABLE decision_events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  workspace TEXT NOT NULL,
  id TEXT NOT NULL,
  kind TEXT NOT NULL,
  made_by TEXT NOT NULL,
  note TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE INDEX decision_events_id ON decision_events (workspace, id);
"#,
    r#"
-- How far the turns of another store have arrived.
CREATE TABLE transfers (
  source TEXT PRIMARY KEY,
  last_id INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"#,
    r#"
-- Whose turn a raw turn is, where that was corrected: of several rows of a turn the last counts.
CREATE TABLE attribution_corrections (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  raw_turn_id INTEGER NOT NULL,
  harness_id TEXT NOT NULL,
  harness_session_id TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  parent_harness_session_id TEXT,
  reason TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX attribution_corrections_turn ON attribution_corrections (raw_turn_id, id);
CREATE INDEX attribution_corrections_session ON attribution_corrections (harness_session_id, harness_id);
"#,
];

/// Migrations of `index.db`.
pub(crate) const INDEX: &[&str] = &[
    r#"
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE rollups (
  session_id TEXT PRIMARY KEY,
  turn_count INTEGER NOT NULL,
  total_cost_usd REAL NOT NULL,
  total_tokens INTEGER NOT NULL,
  derived_status TEXT NOT NULL,
  preview TEXT NOT NULL,
  rollup TEXT NOT NULL,
  derived_rows INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE traces (
  trace_id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL,
  user_prompt TEXT NOT NULL,
  response_preview TEXT NOT NULL,
  synthetic TEXT NOT NULL,
  source TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at INTEGER NOT NULL,
  input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  main_input_tokens INTEGER NOT NULL,
  main_output_tokens INTEGER NOT NULL,
  cache_read_tokens INTEGER NOT NULL,
  cache_creation_tokens INTEGER NOT NULL,
  cost_usd REAL NOT NULL,
  tool_calls INTEGER NOT NULL,
  span_count INTEGER NOT NULL,
  content_hash TEXT NOT NULL
) STRICT;
CREATE INDEX traces_session ON traces (session_id, started_at);
CREATE INDEX traces_started ON traces (started_at);

CREATE TABLE spans (
  trace_id TEXT NOT NULL,
  span_id TEXT NOT NULL,
  parent_span_id TEXT NOT NULL,
  session_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  status TEXT NOT NULL,
  call_kind TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  model TEXT NOT NULL,
  stop_reason TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  input BLOB,
  output BLOB,
  usage TEXT,
  raw_turn_id INTEGER,
  node_hash TEXT NOT NULL,
  verdict TEXT,
  fidelity TEXT NOT NULL,
  content_hash TEXT NOT NULL,
  PRIMARY KEY (trace_id, span_id)
) STRICT;
CREATE INDEX spans_session ON spans (session_id, started_at);

CREATE TABLE links (
  from_trace_id TEXT NOT NULL,
  from_span_id TEXT NOT NULL,
  to_trace_id TEXT NOT NULL,
  to_span_id TEXT NOT NULL,
  from_io TEXT NOT NULL,
  to_io TEXT NOT NULL,
  kind TEXT NOT NULL,
  session_id TEXT NOT NULL,
  PRIMARY KEY (from_trace_id, from_span_id, to_trace_id, to_span_id, from_io, to_io)
) STRICT, WITHOUT ROWID;
CREATE INDEX links_session ON links (session_id);
CREATE INDEX links_to ON links (to_trace_id);

-- What search reads of one span. An id is never used again: a changed text is a new document.
CREATE TABLE documents (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  trace_id TEXT NOT NULL,
  span_id TEXT NOT NULL,
  session_id TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  agent TEXT NOT NULL,
  model TEXT NOT NULL,
  repository TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  user_text TEXT NOT NULL,
  assistant_text TEXT NOT NULL,
  context_text TEXT NOT NULL,
  tool_text TEXT NOT NULL,
  hash BLOB,
  content_hash BLOB NOT NULL,
  embed_model INTEGER NOT NULL DEFAULT 0,
  words_done INTEGER NOT NULL DEFAULT 0,
  UNIQUE (trace_id, span_id)
) STRICT;
CREATE INDEX documents_session ON documents (session_id);
CREATE INDEX documents_hash ON documents (hash);
CREATE INDEX documents_embed ON documents (embed_model, id) WHERE hash IS NOT NULL;
CREATE INDEX documents_words ON documents (id) WHERE words_done = 0;
CREATE INDEX documents_repository ON documents (repository, id);
-- What the keyword index and the vectors still have to forget.
CREATE TABLE removed_documents (
  id INTEGER PRIMARY KEY,
  hash BLOB,
  words_done INTEGER NOT NULL DEFAULT 0,
  vectors_done INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE models (
  id INTEGER PRIMARY KEY,
  identity TEXT NOT NULL UNIQUE,
  dimensions INTEGER NOT NULL
) STRICT;
CREATE TABLE vectors (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  model_id INTEGER NOT NULL,
  hash BLOB NOT NULL,
  chunk INTEGER NOT NULL,
  vector BLOB NOT NULL,
  UNIQUE (model_id, hash, chunk)
) STRICT;
CREATE TABLE embed_failures (
  model_id INTEGER NOT NULL,
  hash BLOB NOT NULL,
  reason TEXT NOT NULL,
  error_detail TEXT,
  token_count INTEGER,
  attempts INTEGER NOT NULL DEFAULT 1,
  first_failed_at INTEGER NOT NULL,
  last_failed_at INTEGER NOT NULL,
  PRIMARY KEY (model_id, hash)
) STRICT, WITHOUT ROWID;
CREATE TABLE vector_segments (
  model_id INTEGER NOT NULL,
  first_id INTEGER NOT NULL,
  last_id INTEGER NOT NULL,
  rows INTEGER NOT NULL,
  file TEXT NOT NULL,
  PRIMARY KEY (model_id, first_id)
) STRICT, WITHOUT ROWID;
"#,
    r#"
CREATE INDEX spans_id ON spans (span_id);
-- Which span wrote which file; the name is the last part of the path.
CREATE TABLE file_edits (
  name TEXT NOT NULL,
  path TEXT NOT NULL,
  session_id TEXT NOT NULL,
  trace_id TEXT NOT NULL,
  span_id TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  PRIMARY KEY (name, path, trace_id, span_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX file_edits_session ON file_edits (session_id);
CREATE INDEX file_edits_started ON file_edits (started_at);
-- Spans of before this table are read once.
INSERT INTO meta VALUES ('file_edits.waiting', '1');

-- Where a record was seen: '' = in the store, else the top of a checkout.
CREATE TABLE decision_rows (
  workspace TEXT NOT NULL,
  checkout TEXT NOT NULL,
  path TEXT NOT NULL,
  id TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  size INTEGER NOT NULL,
  modified_ns INTEGER NOT NULL,
  hash BLOB NOT NULL,
  problem TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (workspace, checkout, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX decision_rows_hash ON decision_rows (hash);
-- What a record says, by the hash of its path and bytes.
CREATE TABLE decision_texts (
  hash BLOB PRIMARY KEY,
  reader INTEGER NOT NULL,
  pieces_hash BLOB NOT NULL,
  card TEXT NOT NULL,
  words BLOB NOT NULL,
  rationale BLOB NOT NULL
) STRICT;
CREATE INDEX decision_texts_pieces ON decision_texts (pieces_hash);
-- The vectors of a record's pieces, one behind the other.
CREATE TABLE decision_vectors (
  model_id INTEGER NOT NULL,
  pieces_hash BLOB NOT NULL,
  vectors BLOB NOT NULL,
  PRIMARY KEY (model_id, pieces_hash)
) STRICT;
"#,
];
