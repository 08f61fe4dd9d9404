//! Stores on temporary folders and databases, and rows to put into them.

use std::sync::Arc;

use tempfile::TempDir;
use weft_core::block::ContentBlock;
use weft_core::derive::Projection;
use weft_core::span::{Rollup, Span, Trace};
use weft_store::{Document, Lease, NewSession, NewTurn, SessionKey, Store};

/// A store with the folder that it lives in.
pub(crate) struct Home {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) dir: TempDir,
}

pub(crate) fn embedded() -> Home {
    let dir = tempfile::tempdir().unwrap();
    Home {
        store: weft_store::open(dir.path(), "").unwrap(),
        dir,
    }
}

/// A shared store on a database of its own; `None` = no server can be had, and it was said.
pub(crate) fn shared() -> Option<(Home, String)> {
    let dsn = weft_testkit::postgres()?.database().unwrap();
    Some((on(&dsn), dsn))
}

pub(crate) fn on(dsn: &str) -> Home {
    let dir = tempfile::tempdir().unwrap();
    Home {
        store: weft_store::open(dir.path(), dsn).unwrap(),
        dir,
    }
}

pub(crate) fn key(session: &str) -> SessionKey {
    SessionKey {
        harness_id: "claude".into(),
        harness_session_id: session.into(),
    }
}

/// An id that a session always gets in these tests, so that two stores agree.
pub(crate) fn id_of(session: &str) -> String {
    let n = session
        .bytes()
        .fold(17_u64, |h, b| h.wrapping_mul(131).wrapping_add(b.into()));
    format!("00000000-0000-4000-8000-{:012x}", n & 0xffff_ffff_ffff)
}

pub(crate) fn session(name: &str, parent: &str, at: i64) -> NewSession {
    NewSession {
        new_id: id_of(name),
        new_parent_id: id_of(parent),
        key: key(name),
        auth_subject: format!("user-{}", name.len() % 2),
        cwd: format!("/work/{name}"),
        parent: parent.into(),
        repository: "example.org/lantern".into(),
        started_at: at,
        last_seen_at: at,
        ..NewSession::default()
    }
}

pub(crate) fn turn(name: &str, request_id: &str, at: i64) -> NewTurn {
    NewTurn {
        source: "wire",
        provider: "anthropic".into(),
        harness_id: "claude".into(),
        harness_session_id: name.into(),
        request_id: request_id.into(),
        raw_request: Some(format!(r#"{{"n":1.50,"text":"{request_id}"}}"#)),
        response: Some(r#"{"done":true}"#.into()),
        meta: format!(r#"{{"request_id":"{request_id}"}}"#),
        received_at: at,
        session: Some(session(name, "", at)),
        ..NewTurn::default()
    }
}

/// A projection of one trace for each text, and its documents.
pub(crate) fn projection(
    name: &str,
    texts: &[(String, String)],
    at: i64,
) -> (Projection, Vec<Document>) {
    let mut p = Projection {
        rollup: Rollup {
            status: "completed".into(),
            model: "m".into(),
            turn_count: texts.len() as i64,
            input_tokens: 3 * texts.len() as i64,
            cost_usd: 0.25 * texts.len() as f64,
            ..Rollup::default()
        },
        ..Projection::default()
    };
    let mut docs = Vec::new();
    for (i, (user, answer)) in texts.iter().enumerate() {
        let trace_id = format!("trc_{name}_{i}");
        let span_id = format!("llm_{name}_{i}");
        let started_at = at + i as i64 * 1_000_000;
        let block = |text: &str| ContentBlock {
            kind: "text".into(),
            text: text.into(),
            ..ContentBlock::default()
        };
        p.traces.push(Trace {
            trace_id: trace_id.clone(),
            user_prompt: user.clone(),
            source: "wire".into(),
            started_at,
            ended_at: started_at + 5_000,
            input_tokens: 3,
            cost_usd: 0.25,
            spans: vec![Span {
                span_id: span_id.clone(),
                kind: "llm",
                status: "ok",
                call_kind: "main".into(),
                started_at,
                seq: 1,
                input: vec![block(user)],
                output: vec![block(answer)],
                fidelity: "raw",
                ..Span::default()
            }],
            ..Trace::default()
        });
        let hash = digest(&format!("{user}\n{answer}"));
        docs.push(Document {
            trace_id,
            span_id,
            session_id: id_of(name),
            agent: "claude".into(),
            model: "m".into(),
            repository: "example.org/lantern".into(),
            started_at,
            user_text: user.clone(),
            assistant_text: answer.clone(),
            hash: (!user.is_empty() || !answer.is_empty()).then_some(hash),
            content_hash: hash,
            ..Document::default()
        });
    }
    (p, docs)
}

/// 32 bytes that stand for a text.
pub(crate) fn digest(text: &str) -> [u8; 32] {
    let hex = weft_core::hash::sha256_hex(text.as_bytes());
    std::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
}

/// A unit vector that stands for a text: texts with the same words are near.
pub(crate) fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let mut v = vec![0.001_f32; dimensions];
    for w in text.split_whitespace() {
        let h = digest(w);
        v[usize::from(h[0]) % dimensions] += 1.0 + f32::from(h[1]) / 512.0;
        v[usize::from(h[2]) % dimensions] += 0.5;
    }
    let n = v.iter().map(|x| x * x).sum::<f32>().sqrt();
    v.iter().map(|x| x / n).collect()
}

/// A lease for a minute.
pub(crate) fn lease(owner: &str) -> Lease<'_> {
    Lease {
        owner,
        micros: 60_000_000,
    }
}
