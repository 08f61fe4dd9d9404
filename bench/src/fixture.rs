//! Documents put straight into a store, without going through capture and derivation.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use sha2::{Digest as _, Sha256};
use weft_core::derive::Projection;
use weft_core::span::Trace;
use weft_engine::{Config, Document, EmbedOptions, Engine, SessionKey, SessionRow};
use weft_store::NewSession;

/// One text with its role and what came before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turn {
    pub(crate) id: String,
    pub(crate) user: String,
    pub(crate) assistant: String,
    pub(crate) context: String,
    pub(crate) at: i64,
}

/// The id of a session of this name.
pub(crate) fn session_id(name: &str) -> String {
    let hash = weft_core::hash::sha256_hex(name.as_bytes());
    format!(
        "{}-{}-4{}-8{}-{}",
        &hash[..8],
        &hash[8..12],
        &hash[12..15],
        &hash[15..18],
        &hash[18..30]
    )
}

/// Opens an engine on an empty folder.
pub(crate) fn engine(dir: &Path) -> Result<Arc<Engine>> {
    Ok(Engine::open(dir, Config::default())?)
}

/// Writes the turns of one session, each as a trace of its own.
pub(crate) fn write(engine: &Engine, session: &str, turns: &[Turn]) -> Result<()> {
    let id = session_id(session);
    let repository = format!("bench/{session}");
    engine.store().upsert_session(NewSession {
        new_id: id.clone(),
        key: SessionKey {
            harness_id: "bench".into(),
            harness_session_id: session.into(),
        },
        repository: repository.clone(),
        ..NewSession::default()
    })?;
    let row = SessionRow {
        id,
        repository,
        ..SessionRow::default()
    };
    let traces = turns
        .iter()
        .map(|t| Trace {
            trace_id: format!("{session}/{}", t.id),
            started_at: t.at,
            ended_at: t.at,
            ..Trace::default()
        })
        .collect();
    let docs = turns
        .iter()
        .map(|t| {
            let mut d = Document {
                trace_id: format!("{session}/{}", t.id),
                span_id: t.id.clone(),
                session_id: row.id.clone(),
                agent: "bench".into(),
                repository: row.repository.clone(),
                started_at: t.at,
                user_text: t.user.clone(),
                assistant_text: t.assistant.clone(),
                context_text: t.context.clone(),
                ..Document::default()
            };
            let text = d.text();
            d.hash = (!text.is_empty()).then(|| Sha256::digest(text.as_bytes()).into());
            d.content_hash = Sha256::digest(format!("{}\0{}", t.id, text).as_bytes()).into();
            d
        })
        .collect();
    let projection = Projection {
        traces,
        ..Projection::default()
    };
    engine.store().write_projection(&row, projection, docs, 1)?;
    Ok(())
}

/// Embeds and indexes what was written.
pub(crate) fn finish(engine: &Engine) -> Result<()> {
    engine.embed_pass(EmbedOptions::default())?;
    engine.store().index_words(1)?;
    Ok(())
}

/// Figures with their percentiles, milliseconds.
pub(crate) fn percentiles(mut ms: Vec<f64>) -> (f64, f64) {
    ms.sort_by(f64::total_cmp);
    let at = |p: f64| ms[((ms.len() - 1) as f64 * p) as usize];
    if ms.is_empty() {
        (0.0, 0.0)
    } else {
        (at(0.5), at(0.99))
    }
}
