//! `weft init`: a configuration file to start from.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::out::Out;
use crate::report::{hinted, usage};
use crate::settings::Settings;

/// Largest configuration that is fetched, bytes.
const MAX_BYTES: u64 = 64 << 10;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft init                        the defaults: embedded store, builtin model
  weft init --preset ollama
  weft init --preset https://example.org/weft.toml")]
pub(crate) struct Init {
    /// openai, anthropic, ollama, or the address of a config.toml
    #[arg(long, value_name = "NAME|URL")]
    preset: Option<String>,
}

fn fetch(url: &str) -> Result<String> {
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(20)))
        .build()
        .new_agent();
    let failed = |what: String| hinted(format!("fetching remote config from {url:?}: {what}"), "");
    let mut answer = agent.get(url).call().map_err(|e| failed(e.to_string()))?;
    if !answer.status().is_success() {
        return Err(failed(format!("HTTP {}", answer.status().as_u16())));
    }
    let read = answer
        .body_mut()
        .with_config()
        .limit(MAX_BYTES)
        .read_to_string();
    read.map_err(|e| failed(e.to_string()))
}

pub(crate) fn run(c: &Init, settings: &mut Settings, out: Out) -> Result<u8> {
    let values: &[(&str, &str)] = match c.preset.as_deref() {
        None => &[],
        Some("openai") => &[
            ("proxy.provider", "openai"),
            ("proxy.upstream", "https://api.openai.com"),
            ("embedding.provider", "openai"),
            ("embedding.target", "https://api.openai.com"),
            ("embedding.model", "text-embedding-3-large"),
            ("embedding.dimensions", "1024"),
        ],
        Some("anthropic") => &[
            ("proxy.provider", "anthropic"),
            ("proxy.upstream", "https://api.anthropic.com"),
        ],
        Some("ollama") => &[
            ("proxy.provider", "ollama"),
            ("proxy.upstream", "http://localhost:11434"),
            ("embedding.provider", "ollama"),
            ("embedding.target", "http://localhost:11434"),
            ("embedding.model", "embeddinggemma"),
            ("embedding.dimensions", "768"),
        ],
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
            settings.replace(&fetch(url)?)?;
            return done(settings, out);
        }
        Some(other) => {
            return Err(usage(
                format!("unknown preset: {other:?} (available: openai, anthropic, ollama)"),
                "an address of a config.toml works too",
            ));
        }
    };
    settings.replace("version = 0\n")?;
    for (key, value) in values {
        settings.set(key, value)?;
    }
    done(settings, out)
}

fn done(settings: &Settings, out: Out) -> Result<u8> {
    out.line(&format!("wrote {}", settings.config_path().display()))?;
    Ok(0)
}
