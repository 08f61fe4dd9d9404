//! Engines on temporary folders, and turns to feed them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;
use weft_engine::{Answer, Config, EmbedOptions, Engine, Mode, SpanQuery, StoreError};

pub(crate) struct Home {
    pub(crate) dir: TempDir,
    pub(crate) engine: Arc<Engine>,
}

pub(crate) fn home() -> Home {
    home_with(Config::default())
}

pub(crate) fn home_with(config: Config) -> Home {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), config).unwrap();
    Home { dir, engine }
}

/// Opens the engine of a folder. With `WEFT_TEST_STORE=postgres` in the environment, every folder has
/// a database of its own instead: the same tests then are the conformance tests of the shared store.
pub(crate) fn open(dir: &Path, mut config: Config) -> Result<Arc<Engine>, StoreError> {
    static DATABASES: Mutex<BTreeMap<PathBuf, String>> = Mutex::new(BTreeMap::new());
    if weft_testkit::shared_store()
        && let Some(server) = weft_testkit::postgres()
    {
        let mut databases = DATABASES.lock().unwrap();
        let dsn = databases
            .entry(dir.to_owned())
            .or_insert_with(|| server.database().unwrap());
        config.postgres_dsn = dsn.clone();
    }
    Engine::open(dir, config)
}

impl Home {
    pub(crate) fn derive(&self) {
        while self.engine.derive_queued(0, 0).unwrap() > 0 {}
    }

    /// Derives, embeds; the keyword index stays in its tail.
    pub(crate) fn settle(&self) {
        self.derive();
        self.engine.embed_pass(EmbedOptions::default()).unwrap();
    }

    pub(crate) fn search(&self, query: &str, mode: Mode) -> Answer {
        self.engine.search_spans(&question(query, mode)).unwrap()
    }

    pub(crate) fn turn(&self, session: &str, request_id: &str, user: &str, answer: &str) {
        self.engine
            .ingest_turn(
                turn(session, request_id, user, answer)
                    .to_string()
                    .as_bytes(),
            )
            .unwrap();
    }
}

pub(crate) fn question(query: &str, mode: Mode) -> SpanQuery {
    SpanQuery {
        query: query.into(),
        limit: 5,
        mode,
        ..SpanQuery::default()
    }
}

/// A main turn of one exchange.
pub(crate) fn turn(session: &str, request_id: &str, user: &str, answer: &str) -> Value {
    json!({
        "provider": "anthropic",
        "agent_name": "claude",
        "request": {"model": "claude-sonnet-4-5", "stream": true, "max_tokens": 100, "tools": [{"name": "Bash"}],
            "messages": [{"role": "user", "content": user}]},
        "response": {"model": "claude-sonnet-4-5", "done": true, "stop_reason": "end_turn",
            "message": {"role": "assistant", "content": [{"type": "text", "text": answer}]},
            "usage": {"prompt_tokens": 10, "completion_tokens": 5}},
        "meta": {"request_id": request_id, "ts_request": "2026-06-01T12:00:00Z"},
        "session": {"harness_id": "claude", "harness_session_id": session, "cwd": "/no/such/lantern"}
    })
}

/// Everything derived, as one text: equal stores give equal texts.
pub(crate) fn dump(engine: &Engine) -> String {
    let store = engine.store();
    let (sessions, _) = store
        .list_sessions(&weft_engine::ListQuery {
            limit: 1000,
            ..weft_engine::ListQuery::default()
        })
        .unwrap();
    let mut out = String::new();
    for s in sessions {
        out.push_str(&format!("{:?}\n{:?}\n", s.row.key, s.rollup));
        for t in store.traces(&s.row.id).unwrap() {
            out.push_str(&format!("{t:?}\n"));
        }
        for s in store.session_spans(&s.row.id).unwrap() {
            out.push_str(&format!("{s:?}\n"));
        }
        for l in store.session_links(&s.row.id).unwrap() {
            out.push_str(&format!("{l:?}\n"));
        }
    }
    out
}
