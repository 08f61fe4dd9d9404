//! The tables, as migrations that are never edited after a release.
//!
//! The span tables are those of tapes (spec/tapes.md section 3), with the shard key in front of every
//! primary key: `org_id`, then the session, repository or workspace. `weft_meta` and
//! `derived_projection_schemas` hold a few rows that are the same on every shard.

use super::pool::{Conn, PgResult, Pool};
use crate::StoreError;

/// Tables without a shard key: a handful of rows that every shard has.
#[cfg(test)]
const REFERENCE: &[&str] = &["weft_meta", "derived_projection_schemas"];

/// Key of the advisory lock that migrations take.
const LOCK: i64 = 0x7765_6674_0001;

/// The n-th brings the schema to version n.
pub(crate) const MIGRATIONS: &[&str] = &[
    r#"
CREATE TABLE raw_turns (
  org_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
  id bigint GENERATED ALWAYS AS IDENTITY,
  source text NOT NULL DEFAULT 'wire',
  provider text NOT NULL DEFAULT '',
  agent_name text NOT NULL DEFAULT '',
  harness_id text NOT NULL DEFAULT '',
  harness_session_id text NOT NULL DEFAULT '',
  request_id text NOT NULL DEFAULT '',
  raw_request jsonb,
  response jsonb,
  meta jsonb NOT NULL DEFAULT '{}',
  session_envelope jsonb,
  received_at timestamptz NOT NULL DEFAULT now(),
  raw_response bytea,
  raw_response_encoding text NOT NULL DEFAULT '',
  raw_response_dropped boolean NOT NULL DEFAULT false,
  -- JSON that jsonb cannot hold (U+0000, half surrogates), as it came: raw_request, response, meta,
  -- session_envelope.
  verbatim text[],
  PRIMARY KEY (org_id, id)
);
CREATE UNIQUE INDEX raw_turns_org_request_uq ON raw_turns (org_id, request_id) WHERE request_id <> '';
CREATE INDEX raw_turns_org_session_idx ON raw_turns (org_id, harness_session_id, harness_id, id);
CREATE INDEX raw_turns_received_at_idx ON raw_turns (org_id, received_at);

CREATE TABLE raw_turn_attribution_corrections (
  org_id uuid NOT NULL,
  id bigint GENERATED ALWAYS AS IDENTITY,
  raw_turn_id bigint NOT NULL,
  harness_id text NOT NULL,
  harness_session_id text NOT NULL,
  thread_id text NOT NULL DEFAULT '',
  parent_harness_session_id text,
  reason text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (org_id, id)
);
CREATE INDEX raw_turn_attribution_corrections_idx
  ON raw_turn_attribution_corrections (org_id, raw_turn_id, id DESC);

CREATE TABLE sessions (
  org_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
  id uuid NOT NULL,
  auth_subject text NOT NULL,
  harness_id text NOT NULL,
  harness_session_id text NOT NULL,
  name text,
  cwd text,
  harness_version text,
  parent_session_id uuid,
  started_at timestamptz NOT NULL,
  last_seen_at timestamptz NOT NULL,
  ended_at timestamptz,
  harness_metadata jsonb NOT NULL DEFAULT '{}',
  total_input_tokens bigint NOT NULL DEFAULT 0,
  total_output_tokens bigint NOT NULL DEFAULT 0,
  total_cost_usd numeric(12,4) NOT NULL DEFAULT 0,
  turn_count int NOT NULL DEFAULT 0,
  derived_status text NOT NULL DEFAULT 'unknown',
  has_git_activity boolean NOT NULL DEFAULT false,
  tool_result_count int NOT NULL DEFAULT 0,
  tool_error_count int NOT NULL DEFAULT 0,
  derived_title text,
  derived_model text NOT NULL DEFAULT '',
  model_usage jsonb,
  total_tokens bigint GENERATED ALWAYS AS (total_input_tokens + total_output_tokens) STORED,
  duration_ns bigint GENERATED ALWAYS AS
    ((EXTRACT(EPOCH FROM last_seen_at - started_at) * 1000000000)::bigint) STORED,
  tasks jsonb,
  kind_counts jsonb,
  display_name text,
  -- Of weft: the repository and the file it came from, and what derivation found, as it reads it back.
  repository text NOT NULL DEFAULT '',
  source_path text NOT NULL DEFAULT '',
  rollup jsonb,
  preview text NOT NULL DEFAULT '',
  derived_rows bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (org_id, id),
  UNIQUE (org_id, harness_id, harness_session_id),
  FOREIGN KEY (org_id, parent_session_id) REFERENCES sessions (org_id, id) ON DELETE CASCADE
);
CREATE INDEX sessions_last_seen ON sessions (org_id, last_seen_at DESC, id DESC);
CREATE INDEX sessions_started ON sessions (org_id, started_at DESC, id DESC);
CREATE INDEX sessions_turns ON sessions (org_id, turn_count DESC, id DESC);
CREATE INDEX sessions_cost ON sessions (org_id, total_cost_usd DESC, id DESC);
CREATE INDEX sessions_tokens ON sessions (org_id, total_tokens DESC, id DESC);
CREATE INDEX sessions_duration ON sessions (org_id, duration_ns DESC, id DESC);
CREATE INDEX sessions_status ON sessions (org_id, derived_status, id DESC);
CREATE INDEX sessions_subject ON sessions (org_id, auth_subject, id DESC);
CREATE INDEX sessions_parent ON sessions (org_id, parent_session_id);
CREATE INDEX sessions_harness_session ON sessions (org_id, harness_session_id);

CREATE TABLE derive_queue (
  org_id uuid NOT NULL,
  harness_id text NOT NULL,
  harness_session_id text NOT NULL,
  dirtied_at timestamptz NOT NULL DEFAULT now(),
  first_dirtied_at timestamptz NOT NULL DEFAULT now(),
  lease_owner text NOT NULL DEFAULT '',
  lease_until timestamptz NOT NULL DEFAULT '-infinity',
  PRIMARY KEY (org_id, harness_id, harness_session_id)
);
CREATE INDEX derive_queue_dirtied ON derive_queue (org_id, dirtied_at);

CREATE TABLE derived_projection_schemas (
  compatibility_date date PRIMARY KEY,
  span_turns_table text NOT NULL,
  spans_table text NOT NULL,
  span_links_table text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO derived_projection_schemas
  VALUES ('2026-06-15', 'span_turns_20260615', 'spans_20260615', 'span_links_20260615');

CREATE TABLE span_turns_20260615 (
  org_id uuid NOT NULL,
  trace_id text NOT NULL,
  session_id uuid,
  user_prompt text NOT NULL DEFAULT '',
  response_preview text NOT NULL DEFAULT '',
  synthetic text NOT NULL DEFAULT '',
  status text NOT NULL DEFAULT 'ok',
  source text NOT NULL DEFAULT 'wire',
  started_at timestamptz NOT NULL,
  ended_at timestamptz,
  duration_ns bigint NOT NULL DEFAULT 0,
  total_input_tokens bigint NOT NULL DEFAULT 0,
  total_output_tokens bigint NOT NULL DEFAULT 0,
  main_input_tokens bigint NOT NULL DEFAULT 0,
  main_output_tokens bigint NOT NULL DEFAULT 0,
  cache_read_tokens bigint NOT NULL DEFAULT 0,
  cache_creation_tokens bigint NOT NULL DEFAULT 0,
  total_cost_usd numeric(12,4) NOT NULL DEFAULT 0,
  tool_calls bigint NOT NULL DEFAULT 0,
  content_hash text NOT NULL DEFAULT '',
  derive_seq bigint NOT NULL DEFAULT 0,
  fidelity text NOT NULL DEFAULT '',
  -- Of weft: the cost before rounding, and the number of spans.
  cost_exact double precision NOT NULL DEFAULT 0,
  span_count bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (org_id, trace_id),
  FOREIGN KEY (org_id, session_id) REFERENCES sessions (org_id, id) ON DELETE CASCADE
);
CREATE INDEX span_turns_session ON span_turns_20260615 (org_id, session_id, started_at);
CREATE INDEX span_turns_started ON span_turns_20260615 (org_id, started_at DESC, trace_id DESC);

CREATE TABLE spans_20260615 (
  org_id uuid NOT NULL,
  trace_id text NOT NULL,
  span_id text NOT NULL,
  parent_span_id text NOT NULL DEFAULT '',
  session_id uuid,
  kind text NOT NULL CHECK (kind IN ('agent', 'step', 'llm', 'tool', 'event')),
  name text NOT NULL DEFAULT '',
  status text NOT NULL DEFAULT 'ok',
  call_kind text NOT NULL DEFAULT '',
  thread_id text NOT NULL DEFAULT '',
  model text NOT NULL DEFAULT '',
  stop_reason text NOT NULL DEFAULT '',
  started_at timestamptz NOT NULL,
  duration_ns bigint NOT NULL DEFAULT 0,
  seq bigint NOT NULL DEFAULT 0,
  input jsonb,
  output jsonb,
  usage jsonb,
  raw_turn_id bigint,
  node_hash text NOT NULL DEFAULT '',
  verdict jsonb,
  content_hash text NOT NULL DEFAULT '',
  derive_seq bigint NOT NULL DEFAULT 0,
  fidelity text NOT NULL DEFAULT '',
  PRIMARY KEY (org_id, trace_id, span_id),
  FOREIGN KEY (org_id, trace_id) REFERENCES span_turns_20260615 (org_id, trace_id) ON DELETE CASCADE
);
CREATE INDEX spans_session ON spans_20260615 (org_id, session_id, started_at);
CREATE INDEX spans_call_kind ON spans_20260615 (org_id, call_kind);
CREATE INDEX spans_raw_turn ON spans_20260615 (org_id, raw_turn_id);
CREATE INDEX spans_id ON spans_20260615 (org_id, span_id);
CREATE INDEX spans_tools ON spans_20260615 (org_id, started_at) WHERE kind = 'tool';

CREATE TABLE span_links_20260615 (
  org_id uuid NOT NULL,
  from_trace_id text NOT NULL,
  from_span_id text NOT NULL,
  to_trace_id text NOT NULL,
  to_span_id text NOT NULL,
  from_io text NOT NULL DEFAULT '',
  to_io text NOT NULL DEFAULT '',
  kind text NOT NULL,
  session_id uuid,
  PRIMARY KEY (org_id, from_trace_id, from_span_id, to_trace_id, to_span_id, from_io, to_io),
  FOREIGN KEY (org_id, session_id) REFERENCES sessions (org_id, id) ON DELETE CASCADE
);
CREATE INDEX span_links_to ON span_links_20260615 (org_id, to_trace_id);
CREATE INDEX span_links_session ON span_links_20260615 (org_id, session_id);

CREATE TABLE file_edits (
  org_id uuid NOT NULL,
  name text NOT NULL,
  path text NOT NULL,
  session_id uuid NOT NULL,
  trace_id text NOT NULL,
  span_id text NOT NULL,
  started_at timestamptz NOT NULL,
  PRIMARY KEY (org_id, name, path, trace_id, span_id),
  FOREIGN KEY (org_id, session_id) REFERENCES sessions (org_id, id) ON DELETE CASCADE
);
CREATE INDEX file_edits_session ON file_edits (org_id, session_id);
CREATE INDEX file_edits_trace ON file_edits (org_id, trace_id);
CREATE INDEX file_edits_started ON file_edits (org_id, started_at);

-- What search reads of one span. An id is never used again: a changed text is a new document.
CREATE TABLE span_documents (
  org_id uuid NOT NULL,
  id bigint GENERATED ALWAYS AS IDENTITY,
  trace_id text NOT NULL,
  span_id text NOT NULL,
  session_id uuid NOT NULL,
  thread_id text NOT NULL,
  agent text NOT NULL,
  model text NOT NULL,
  repository text NOT NULL,
  started_at timestamptz NOT NULL,
  user_text text NOT NULL,
  assistant_text text NOT NULL,
  context_text text NOT NULL,
  tool_text text NOT NULL,
  hash text,
  content_hash text NOT NULL,
  embed_model bigint NOT NULL DEFAULT 0,
  derive_seq bigint NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
  PRIMARY KEY (org_id, id),
  UNIQUE (org_id, trace_id, span_id),
  FOREIGN KEY (org_id, session_id) REFERENCES sessions (org_id, id) ON DELETE CASCADE
);
CREATE INDEX span_documents_session ON span_documents (org_id, session_id);
CREATE INDEX span_documents_hash ON span_documents (org_id, hash);
CREATE INDEX span_documents_embed ON span_documents (org_id, embed_model, id) WHERE hash IS NOT NULL;
CREATE INDEX span_documents_feed ON span_documents (org_id, derive_seq, id);
CREATE INDEX span_documents_repository ON span_documents (org_id, repository, id);
CREATE INDEX span_documents_started ON span_documents (org_id, started_at);
-- What keyword indexes and vectors still have to forget.
CREATE TABLE removed_documents (
  org_id uuid NOT NULL,
  id bigint NOT NULL,
  trace_id text NOT NULL,
  span_id text NOT NULL,
  vectors_done boolean NOT NULL DEFAULT false,
  removed_at timestamptz NOT NULL DEFAULT now(),
  derive_seq bigint NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
  PRIMARY KEY (org_id, id)
);
CREATE INDEX removed_documents_feed ON removed_documents (org_id, derive_seq, id);
CREATE INDEX removed_documents_vectors ON removed_documents (org_id, id) WHERE NOT vectors_done;

CREATE TABLE embed_leases (
  org_id uuid NOT NULL,
  model text NOT NULL,
  content_hash text NOT NULL,
  owner text NOT NULL,
  until timestamptz NOT NULL,
  PRIMARY KEY (org_id, model, content_hash)
);
CREATE INDEX embed_leases_owner ON embed_leases (org_id, owner);

CREATE TABLE repositories (
  org_id uuid NOT NULL,
  repo_id text NOT NULL,
  common_dir text NOT NULL,
  root text NOT NULL,
  origin text NOT NULL,
  first_commit text NOT NULL,
  added_at timestamptz NOT NULL,
  PRIMARY KEY (org_id, repo_id, common_dir)
);
CREATE INDEX repositories_common_dir ON repositories (org_id, common_dir);
CREATE TABLE draft_claims (
  org_id uuid NOT NULL,
  repo_id text NOT NULL,
  checkout text NOT NULL,
  path text NOT NULL,
  agent text NOT NULL,
  claimed_at timestamptz NOT NULL,
  PRIMARY KEY (org_id, repo_id, checkout, path)
);
CREATE TABLE purged_paths (
  org_id uuid NOT NULL,
  repo_id text NOT NULL,
  path text NOT NULL,
  purged_at timestamptz NOT NULL,
  PRIMARY KEY (org_id, repo_id, path)
);
CREATE TABLE tokens (
  org_id uuid NOT NULL,
  id text NOT NULL,
  hash bytea NOT NULL,
  name text NOT NULL,
  scope text NOT NULL,
  repositories text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (org_id, id),
  UNIQUE (org_id, hash)
);

-- How far the turns of another store have arrived.
CREATE TABLE transfers (
  org_id uuid NOT NULL,
  source text NOT NULL,
  last_id bigint NOT NULL,
  PRIMARY KEY (org_id, source)
);

CREATE TABLE workspaces (
  org_id uuid NOT NULL,
  slug text NOT NULL,
  repo_id text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (org_id, slug)
);
CREATE UNIQUE INDEX workspaces_repository ON workspaces (org_id, repo_id) WHERE repo_id <> '';
CREATE TABLE decision_folders (
  org_id uuid NOT NULL,
  workspace text NOT NULL,
  folder text NOT NULL,
  PRIMARY KEY (org_id, workspace, folder)
);
-- A record without a body is a file of a repository; its id is kept here.
CREATE TABLE decisions (
  org_id uuid NOT NULL,
  workspace text NOT NULL,
  path text NOT NULL,
  id text NOT NULL,
  created_at timestamptz NOT NULL,
  body_hash bytea,
  baseline text NOT NULL DEFAULT '',
  body bytea,
  PRIMARY KEY (org_id, workspace, path)
);
CREATE INDEX decisions_id ON decisions (org_id, workspace, id);
CREATE TABLE decision_events (
  org_id uuid NOT NULL,
  workspace text NOT NULL,
  seq bigint GENERATED ALWAYS AS IDENTITY,
  id text NOT NULL,
  kind text NOT NULL,
  made_by text NOT NULL,
  note text NOT NULL,
  at timestamptz NOT NULL,
  PRIMARY KEY (org_id, workspace, seq)
);
CREATE INDEX decision_events_id ON decision_events (org_id, workspace, id);

-- How a person and a cassette read it.
CREATE VIEW span_turns AS SELECT * FROM span_turns_20260615;
CREATE VIEW spans AS SELECT * FROM spans_20260615;
CREATE VIEW span_links AS SELECT * FROM span_links_20260615;
CREATE SCHEMA IF NOT EXISTS tapes_v1;
CREATE VIEW tapes_v1.sessions AS SELECT id, org_id, auth_subject, harness_id, harness_session_id,
  name, cwd, harness_version, parent_session_id, started_at, last_seen_at, ended_at, harness_metadata,
  total_input_tokens, total_output_tokens, total_cost_usd, turn_count, derived_status,
  has_git_activity, tool_result_count, tool_error_count, derived_title, derived_model, model_usage,
  total_tokens, duration_ns, tasks, kind_counts, display_name FROM sessions;
CREATE VIEW tapes_v1.span_turns AS SELECT org_id, trace_id, session_id, user_prompt,
  response_preview, synthetic, status, source, started_at, ended_at, duration_ns, total_input_tokens,
  total_output_tokens, main_input_tokens, main_output_tokens, cache_read_tokens,
  cache_creation_tokens, total_cost_usd, content_hash, derive_seq, fidelity FROM span_turns_20260615;
CREATE VIEW tapes_v1.spans AS SELECT org_id, trace_id, span_id, parent_span_id, session_id, kind,
  name, status, call_kind, thread_id, model, stop_reason, started_at, duration_ns, seq, input, output,
  usage, raw_turn_id, node_hash, verdict, content_hash, derive_seq, fidelity FROM spans_20260615;
CREATE VIEW tapes_v1.span_links AS SELECT org_id, from_trace_id, from_span_id, to_trace_id,
  to_span_id, from_io, to_io, kind, session_id FROM span_links_20260615;
"#,
    r#"
CREATE INDEX raw_turn_attribution_corrections_session_idx
  ON raw_turn_attribution_corrections (org_id, harness_session_id, harness_id);
"#,
];

/// Version of the schema, 0 where there is none yet.
fn version(c: &mut Conn) -> PgResult<i64> {
    let there: bool = c
        .client
        .query_one("SELECT to_regclass('weft_meta') IS NOT NULL", &[])?
        .get(0);
    if !there {
        return Ok(0);
    }
    let v = c.client.query_opt(
        "SELECT value FROM weft_meta WHERE key = 'schema_version'",
        &[],
    )?;
    Ok(v.and_then(|r| r.get::<_, String>(0).parse().ok())
        .unwrap_or(0))
}

/// Version of the schema, which must be one that this program knows; `name` tells whose it is.
fn known_version(c: &mut Conn, name: &str) -> PgResult<usize> {
    let (found, known) = (version(c)?, MIGRATIONS.len() as i64);
    if found > known {
        return Err(StoreError::Newer {
            path: name.into(),
            found,
            known,
        }
        .into());
    }
    Ok(found.max(0) as usize)
}

/// Creates or migrates the schema; an up-to-date one is not touched. Several processes may do so at
/// once. Every migration only adds, so that servers of the version before go on working.
pub(crate) fn prepare(pool: &Pool, name: &str) -> Result<(), StoreError> {
    if pool.read(|c| known_version(c, name))? < MIGRATIONS.len() {
        pool.write(|c| migrate(c, name))?;
    }
    Ok(())
}

fn migrate(c: &mut Conn, name: &str) -> PgResult<()> {
    c.batch("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")?;
    c.client
        .execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
    let found = known_version(c, name)?;
    if found == 0 {
        let foreign: bool = c
            .client
            .query_one("SELECT to_regclass('raw_turns') IS NOT NULL", &[])?
            .get(0);
        if foreign {
            return Err(StoreError::Refused(
                "this database holds tables of another program (raw_turns without weft_meta)"
                    .into(),
            )
            .into());
        }
        c.batch(
            "CREATE TABLE IF NOT EXISTS weft_meta (key text PRIMARY KEY, value text NOT NULL);
             INSERT INTO weft_meta VALUES ('store_id', gen_random_uuid()::text) ON CONFLICT DO NOTHING",
        )?;
    }
    for sql in &MIGRATIONS[found..] {
        c.batch(sql)?;
    }
    c.client.execute(
        "INSERT INTO weft_meta VALUES ('schema_version', $1) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        &[&MIGRATIONS.len().to_string()],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables of the schema and of the vectors, by name.
    fn tables() -> Vec<String> {
        let vectors = include_str!("vectors.rs");
        let all = MIGRATIONS.concat() + vectors;
        let mut names: Vec<String> = all
            .split("CREATE TABLE ")
            .skip(1)
            .map(|rest| rest.trim_start_matches("IF NOT EXISTS "))
            .map(|rest| rest.split(['(', ' ']).next().unwrap_or_default().to_owned())
            .collect();
        names.extend(["spans", "span_turns", "span_links"].map(str::to_owned));
        names.retain(|n| !REFERENCE.contains(&n.as_str()));
        assert!(names.len() > 18, "{names:?}");
        names
    }

    /// The string literals of a Rust source, without its comments and its tests.
    fn literals(source: &str) -> Vec<String> {
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        let mut out = Vec::new();
        let mut rest = source;
        while let Some(i) = rest.find(['"', '/', '\'']) {
            let at = &rest[i..];
            if at.starts_with("//") {
                rest = at.split_once('\n').map_or("", |l| l.1);
            } else if let Some(after) = at.strip_prefix("'\"'") {
                rest = after;
            } else if let Some(body) = at.strip_prefix('"') {
                let mut end = 0;
                let bytes = body.as_bytes();
                while end < bytes.len() && bytes[end] != b'"' {
                    end += if bytes[end] == b'\\' { 2 } else { 1 };
                }
                out.push(body[..end].to_owned());
                rest = body.get(end + 1..).unwrap_or("");
            } else {
                rest = &at[1..];
            }
        }
        out
    }

    #[test]
    fn every_statement_names_the_shard() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/postgres");
        let tables = tables();
        let mut looked_at = 0;
        for entry in std::fs::read_dir(dir).expect("sources") {
            let path = entry.expect("entry").path();
            if path.ends_with("schema.rs") {
                continue;
            }
            let source = std::fs::read_to_string(&path).expect("source");
            for sql in literals(&source) {
                let words: Vec<&str> = sql
                    .split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.')))
                    .collect();
                let of_table = words.windows(2).any(|w| {
                    matches!(w[0], "FROM" | "JOIN" | "INTO" | "UPDATE" | "USING")
                        && tables.iter().any(|t| t == w[1])
                });
                if of_table {
                    looked_at += 1;
                    assert!(
                        sql.contains("org_id"),
                        "{}: a statement without its shard key:\n{sql}",
                        path.display()
                    );
                }
            }
        }
        assert!(looked_at > 80, "{looked_at}");
    }

    #[test]
    fn every_table_begins_with_the_shard_key() {
        let Some(server) = weft_testkit::postgres() else {
            return;
        };
        let dsn = server.database().expect("database");
        let dir = tempfile::tempdir().expect("dir");
        let store = crate::PgStore::open(&dsn, dir.path()).expect("open");
        crate::Vectors::ensure_schema(&store, "m", 8).expect("vectors");
        // Every unique index, primary keys included: PostgreSQL's own catalogue says what leads it.
        let rows = server
            .psql(
                &dsn,
                "SELECT t.relname || ' ' || (SELECT attname FROM pg_attribute a
                   WHERE a.attrelid = t.oid AND a.attnum = i.indkey[0])
                 FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
                 JOIN pg_namespace n ON n.oid = t.relnamespace
                 WHERE n.nspname = 'public'",
            )
            .expect("catalogue");
        assert!(rows.lines().count() > 50, "{rows}");
        let wrong: Vec<&str> = rows
            .lines()
            .filter(|l| !l.ends_with(" org_id"))
            .filter(|l| !REFERENCE.iter().any(|r| l.starts_with(&format!("{r} "))))
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        let without = server
            .psql(
                &dsn,
                "SELECT relname FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
                 WHERE n.nspname = 'public' AND t.relkind = 'r' AND NOT EXISTS
                   (SELECT 1 FROM pg_index i WHERE i.indrelid = t.oid AND i.indisprimary)",
            )
            .expect("catalogue");
        assert_eq!(without, "", "tables without a primary key");
    }

    #[test]
    fn a_newer_schema_and_a_foreign_one_are_refused() {
        let Some(server) = weft_testkit::postgres() else {
            return;
        };
        let dir = tempfile::tempdir().expect("dir");
        let open = |dsn: &str| crate::PgStore::open(dsn, dir.path());
        let dsn = server.database().expect("database");
        // Several at once: one migrates, the others find the work done.
        std::thread::scope(|s| {
            let all: Vec<_> = (0..6).map(|_| s.spawn(|| open(&dsn).map(drop))).collect();
            for t in all {
                t.join().expect("thread").expect("open");
            }
        });
        let bump = "UPDATE weft_meta SET value = '999' WHERE key = 'schema_version'";
        server.psql(&dsn, bump).expect("bump");
        let e = open(&dsn).expect_err("newer");
        assert!(
            matches!(&e, StoreError::Newer { found: 999, .. }) && e.hint().is_some(),
            "{e}"
        );
        assert!(e.to_string().contains("update weft"), "{e}");
        let dsn = server.database().expect("database");
        server
            .psql(&dsn, "CREATE TABLE raw_turns (id bigint)")
            .expect("foreign");
        let e = open(&dsn).expect_err("foreign");
        assert!(e.to_string().contains("another program"), "{e}");
    }
}
