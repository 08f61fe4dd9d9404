//! Text to vectors: the builtin table, Ollama, or an OpenAI-compatible service. And a model that writes,
//! where one is configured.
//!
//! **Invariant.** Every vector comes with the identity of its model ([`Embedder::identity`]); the
//! store keeps models apart by it.

mod builtin;
mod chat;
mod error;
mod http;

use std::time::{Duration, Instant};

pub use chat::{Chat, ChatConfig, ChatError};
pub use error::EmbedError;

/// Which provider, and how to reach it.
#[derive(Clone, PartialEq, Eq)]
pub struct EmbedConfig {
    /// `builtin`, `ollama` or `openai`, in any case.
    pub provider: String,
    /// Base URL; "" = the provider's default.
    pub target: String,
    /// Model; "" = the provider's default.
    pub model: String,
    /// Length of the vectors; 0 = the provider's default.
    pub dimensions: usize,
    /// Key of the OpenAI-compatible service.
    pub api_key: String,
}

impl std::fmt::Debug for EmbedConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must not reach a log.
        f.debug_struct("EmbedConfig")
            .field("provider", &self.provider)
            .field("target", &self.target)
            .field("model", &self.model)
            .field("dimensions", &self.dimensions)
            .finish_non_exhaustive()
    }
}

impl Default for EmbedConfig {
    fn default() -> Self {
        Self {
            provider: "builtin".into(),
            target: String::new(),
            model: String::new(),
            dimensions: 0,
            api_key: String::new(),
        }
    }
}

/// Default address of Ollama.
pub const OLLAMA_TARGET: &str = "http://localhost:11434";
/// Default model of Ollama.
pub const OLLAMA_MODEL: &str = "embeddinggemma";
/// Length of that model's vectors.
pub const OLLAMA_DIMENSIONS: usize = 768;
/// Default address of the OpenAI API.
pub const OPENAI_TARGET: &str = "https://api.openai.com";
/// Default model of the OpenAI API.
pub const OPENAI_MODEL: &str = "text-embedding-3-large";
/// Length of that model's vectors.
pub const OPENAI_DIMENSIONS: usize = 1024;

#[derive(Debug)]
enum Provider {
    Builtin,
    Ollama(http::Ollama),
    OpenAi(http::OpenAi),
}

/// A provider that is ready to embed.
#[derive(Debug)]
pub struct Embedder {
    provider: Provider,
    identity: String,
    model: String,
    dimensions: usize,
}

impl Embedder {
    /// Prepares a provider; nothing is sent yet.
    ///
    /// # Errors
    /// An unknown provider, a missing key, or an address that is none.
    pub fn new(config: &EmbedConfig) -> Result<Self, EmbedError> {
        let or = |value: &str, default: &str| {
            if value.is_empty() {
                default.to_owned()
            } else {
                value.to_owned()
            }
        };
        let size = |default| {
            if config.dimensions == 0 {
                default
            } else {
                config.dimensions
            }
        };
        match config.provider.to_ascii_lowercase().as_str() {
            "" | "builtin" => {
                if !matches!(config.dimensions, 0 | builtin::DIMENSIONS) {
                    return Err(EmbedError::Config(format!(
                        "the builtin model has {} dimensions, {} are configured",
                        builtin::DIMENSIONS,
                        config.dimensions
                    )));
                }
                Ok(Self {
                    provider: Provider::Builtin,
                    identity: format!("builtin/{}", builtin::NAME),
                    model: builtin::NAME.into(),
                    dimensions: builtin::DIMENSIONS,
                })
            }
            "ollama" => {
                let model = or(&config.model, OLLAMA_MODEL);
                let dimensions = size(OLLAMA_DIMENSIONS);
                Ok(Self {
                    provider: Provider::Ollama(http::Ollama::new(
                        &or(&config.target, OLLAMA_TARGET),
                        &model,
                    )),
                    identity: format!("ollama/{model}@{dimensions}"),
                    model,
                    dimensions,
                })
            }
            "openai" => {
                // Values that still equal the local defaults were never chosen for this provider.
                let unset = |v: &str, local: &str| v.is_empty() || v == local;
                let target = if unset(&config.target, OLLAMA_TARGET) {
                    OPENAI_TARGET
                } else {
                    &config.target
                };
                let model = if unset(&config.model, OLLAMA_MODEL) {
                    OPENAI_MODEL
                } else {
                    &config.model
                };
                let dimensions = size(OPENAI_DIMENSIONS);
                if config.api_key.is_empty() {
                    return Err(EmbedError::Config(
                        "OPENAI_API_KEY is required for openai embeddings".into(),
                    ));
                }
                Ok(Self {
                    provider: Provider::OpenAi(http::OpenAi::new(
                        target,
                        model,
                        dimensions,
                        &config.api_key,
                    )?),
                    identity: format!("openai/{model}@{dimensions}"),
                    model: model.into(),
                    dimensions,
                })
            }
            _ => Err(EmbedError::Config(format!(
                "unsupported embedding provider: {}",
                config.provider
            ))),
        }
    }

    /// Provider, model and size: two vectors may be compared only where this is equal.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Name of the model.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Length of the vectors that are expected.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Whether embedding needs no other process.
    pub fn is_local(&self) -> bool {
        matches!(self.provider, Provider::Builtin)
    }

    /// The vector of a text; `None` where the text holds no word that the model could read.
    ///
    /// # Errors
    /// As the provider answers; see [`EmbedError`] for what may be tried again.
    pub fn embed(&self, text: &str) -> Result<Option<Vec<f32>>, EmbedError> {
        self.embed_within(text, None)
    }

    /// As [`Self::embed`], but gives up at `deadline`.
    pub fn embed_within(
        &self,
        text: &str,
        deadline: Option<Instant>,
    ) -> Result<Option<Vec<f32>>, EmbedError> {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(EmbedError::Other(
                "embedding failed: deadline exceeded".into(),
            ));
        }
        match &self.provider {
            Provider::Builtin => Ok(builtin::embed(text)),
            Provider::Ollama(p) => p.embed(text, left).map(Some),
            Provider::OpenAi(p) => p.embed(text, left).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(provider: &str) -> EmbedConfig {
        EmbedConfig {
            provider: provider.into(),
            ..EmbedConfig::default()
        }
    }

    #[test]
    fn defaults_and_refusals() {
        let e = Embedder::new(&config("Builtin")).expect("builtin");
        assert_eq!((e.dimensions(), e.is_local()), (256, true));
        let e = Embedder::new(&config("ollama")).expect("ollama");
        assert_eq!(e.identity(), "ollama/embeddinggemma@768");
        let e = Embedder::new(&config("openai")).expect_err("no key");
        assert_eq!(
            e.to_string(),
            "OPENAI_API_KEY is required for openai embeddings"
        );
        let e = Embedder::new(&config("cohere")).expect_err("unknown");
        assert_eq!(e.to_string(), "unsupported embedding provider: cohere");
        let key = EmbedConfig {
            api_key: "k".into(),
            target: OLLAMA_TARGET.into(),
            model: OLLAMA_MODEL.into(),
            ..config("OpenAI")
        };
        assert_eq!(
            Embedder::new(&key).expect("openai").identity(),
            "openai/text-embedding-3-large@1024"
        );
        let wrong = EmbedConfig {
            dimensions: 768,
            ..config("builtin")
        };
        assert!(
            Embedder::new(&wrong)
                .expect_err("size")
                .to_string()
                .contains("256")
        );
    }
}
