//! `weft dev`: one embed pass, one full derivation.

use anyhow::Result;
use clap::Subcommand;
use weft_engine::EmbedOptions;

use super::open;
use super::serve::Embedding;
use crate::out::Out;
use crate::progress::Bar;
use crate::report::hinted;
use crate::settings::Settings;

#[derive(Debug, Subcommand)]
pub(crate) enum Dev {
    /// Embed every span that has no vector of the configured model, and print the counts
    EmbedSpans {
        #[command(flatten)]
        embedding: Embedding,
    },
    /// Derive every session again, and print the counts
    Rederive,
}

pub(crate) fn run(c: Dev, mut settings: Settings, out: Out) -> Result<u8> {
    match c {
        Dev::EmbedSpans { embedding } => {
            embedding.apply(&mut settings);
            let engine = open(&settings)?;
            // What is captured but not derived yet would be missed silently.
            while engine.derive_queued(0, 0)? > 0 {}
            let mut bar = Bar::new(false);
            let report = engine.embed_pass(EmbedOptions {
                progress: Some(&mut |n| bar.tell("embedding", n, 0)),
                stop: None,
            })?;
            bar.clear();
            out.json(&serde_json::to_value(report)?)?;
            if report.failed > 0 && report.embedded == 0 {
                return Err(hinted(
                    format!(
                        "every eligible span failed to embed ({} failures): the embedding target/model is likely misconfigured",
                        report.failed
                    ),
                    "`weft config list` shows the embedding settings",
                ));
            }
        }
        Dev::Rederive => {
            let engine = open(&settings)?;
            let run = engine.derive_all()?;
            out.json(&serde_json::to_value(run.report)?)?;
        }
    }
    Ok(0)
}
