//! `weft status`.

use anyhow::Result;
use serde_json::json;

use super::open;
use crate::out::Out;
use crate::settings::Settings;

pub(crate) fn run(
    settings: &Settings,
    out: Out,
    as_json: bool,
    api_target: Option<&str>,
) -> Result<u8> {
    let engine = open(settings)?;
    let s = engine.status()?;
    let c = s.coverage;
    let dsn = settings.text("storage.postgres_dsn")?;
    let store = if dsn.is_empty() {
        settings.data_dir().display().to_string()
    } else {
        weft_engine::redacted(&dsn)
    };
    if as_json {
        out.json(&json!({
            "store": store,
            "data_dir": settings.data_dir(),
            "config": settings.config_path(),
            "sessions": s.sessions,
            "turns": s.turns,
            "raw_turns": s.raw_turns,
            "cost_usd": s.cost_usd,
            "decisions": s.decisions.0,
            "workspaces": s.decisions.1,
            "embedding": s.embedder.as_ref().ok(),
            "embedding_error": s.embedder.as_ref().err(),
            "coverage": {"documents": c.documents, "embeddable": c.embeddable, "embedded": c.embedded,
                "words_pending": c.words_pending, "underived_sessions": c.underived_sessions},
        }))?;
        return Ok(0);
    }
    out.line(&format!("store      {store}"))?;
    out.line(&format!("config     {}", settings.config_path().display()))?;
    out.line(&format!(
        "captured   {} sessions · {} turns · ${:.4} ({} raw turns)",
        s.sessions, s.turns, s.cost_usd, s.raw_turns
    ))?;
    out.line(&format!(
        "decided    {} decision(s) in {} workspace(s)",
        s.decisions.0, s.decisions.1
    ))?;
    match &s.embedder {
        Ok(model) => out.line(&format!(
            "embedding  {model}: {} of {} spans",
            c.embedded, c.embeddable
        ))?,
        Err(e) => out.line(&format!("embedding  off: {e}"))?,
    }
    let fresh = if c.underived_sessions == 0 && c.embedded == c.embeddable {
        "up to date".to_owned()
    } else {
        format!(
            "{} session(s) to derive, {} span(s) to embed",
            c.underived_sessions,
            c.embeddable.saturating_sub(c.embedded)
        )
    };
    out.line(&format!("index      {fresh}"))?;
    if let Some(url) = api_target {
        let told = match crate::tapesctl::get(url, "/v1/stats", &[]) {
            Ok(v) => format!(
                "{} sessions · {} turns · ${:.4} captured",
                v["session_count"],
                v["turn_count"],
                v["total_cost"].as_f64().unwrap_or_default()
            ),
            Err(e) => format!("unreachable: {e:#}"),
        };
        out.line(&format!("api        {url}: {told}"))?;
    }
    Ok(0)
}
