//! A model that writes: one question and one answer, for summaries that somebody asked for.

use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Uri;

use crate::{OLLAMA_TARGET, OPENAI_TARGET};

/// A summary is waited for; a model on this machine may be slow.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Tokens of an answer at most.
const MAX_TOKENS: u32 = 4_000;
/// Bytes of an answer at most.
const MAX_ANSWER: u64 = 4 << 20;

/// Which provider writes, and how to reach it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ChatConfig {
    /// `anthropic`, `openai` or `ollama`; "" = nobody.
    pub provider: String,
    /// Base URL; "" = the provider's default.
    pub target: String,
    /// Model; "" = the provider's default.
    pub model: String,
    /// Key of the provider.
    pub api_key: String,
}

impl std::fmt::Debug for ChatConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must not reach a log.
        f.debug_struct("ChatConfig")
            .field("provider", &self.provider)
            .field("target", &self.target)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// Why nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// The configuration does not do.
    #[error("{0}")]
    Config(String),
    /// The provider did not answer, or answered an error.
    #[error("the model did not answer: {0}")]
    Failed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Anthropic,
    OpenAi,
    Ollama,
}

/// A model that writes.
pub struct Chat {
    agent: Agent,
    kind: Kind,
    url: String,
    model: String,
    key: String,
}

impl std::fmt::Debug for Chat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chat")
            .field("url", &self.url)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl Chat {
    /// The configured model; `None` where nobody is configured.
    ///
    /// # Errors
    /// An unknown provider, a missing key, an address that is none.
    pub fn new(c: &ChatConfig) -> Result<Option<Self>, ChatError> {
        let (kind, target, path, model) = match c.provider.to_ascii_lowercase().as_str() {
            "" => return Ok(None),
            "anthropic" => (
                Kind::Anthropic,
                "https://api.anthropic.com",
                "/v1/messages",
                "claude-sonnet-4-5",
            ),
            "openai" => (
                Kind::OpenAi,
                OPENAI_TARGET,
                "/v1/chat/completions",
                "gpt-5-mini",
            ),
            "ollama" => (Kind::Ollama, OLLAMA_TARGET, "/api/chat", "llama3.2"),
            other => {
                return Err(ChatError::Config(format!(
                    "unknown provider {other:?} for skills (anthropic, openai or ollama)"
                )));
            }
        };
        if kind != Kind::Ollama && c.api_key.is_empty() {
            return Err(ChatError::Config(format!("{} needs a key", c.provider)));
        }
        let or = |v: &str, default: &str| {
            if v.is_empty() {
                default.to_owned()
            } else {
                v.to_owned()
            }
        };
        let base = or(&c.target, target);
        let base = base.trim_end_matches('/');
        let uri: Option<Uri> = base.parse().ok();
        if !uri.is_some_and(|u| matches!(u.scheme_str(), Some("http" | "https"))) {
            return Err(ChatError::Config(format!(
                "{base:?} is not an http or https address"
            )));
        }
        // The version may be named already.
        let path = match base.ends_with("/v1") {
            true => path.trim_start_matches("/v1"),
            false => path,
        };
        Ok(Some(Self {
            agent: Agent::config_builder()
                .timeout_global(Some(TIMEOUT))
                .http_status_as_error(false)
                .max_redirects(0)
                .build()
                .new_agent(),
            kind,
            url: format!("{base}{path}"),
            model: or(&c.model, model),
            key: c.api_key.clone(),
        }))
    }

    /// The model.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// What the model answers to a question under some rules.
    ///
    /// # Errors
    /// Where it does not answer, or without a text.
    pub fn ask(&self, rules: &str, question: &str) -> Result<String, ChatError> {
        let failed = |e: String| ChatError::Failed(e);
        let turns =
            json!([{"role": "system", "content": rules}, {"role": "user", "content": question}]);
        let (body, at) = match self.kind {
            Kind::Anthropic => (
                json!({"model": self.model, "max_tokens": MAX_TOKENS, "system": rules,
                    "messages": [{"role": "user", "content": question}]}),
                "/content",
            ),
            Kind::OpenAi => (
                json!({"model": self.model, "messages": turns}),
                "/choices/0/message/content",
            ),
            Kind::Ollama => (
                json!({"model": self.model, "messages": turns, "stream": false}),
                "/message/content",
            ),
        };
        let mut request = self.agent.post(&self.url);
        request = match self.kind {
            Kind::Anthropic => request
                .header("x-api-key", &self.key)
                .header("anthropic-version", "2023-06-01"),
            Kind::OpenAi => request.header("Authorization", format!("Bearer {}", self.key)),
            Kind::Ollama => request,
        };
        let mut answer = request.send_json(body).map_err(|e| failed(e.to_string()))?;
        let status = answer.status().as_u16();
        let bytes = answer
            .body_mut()
            .with_config()
            .limit(MAX_ANSWER)
            .read_to_vec()
            .map_err(|e| failed(e.to_string()))?;
        let v: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if status != 200 {
            let told = v["error"]["message"].as_str().or(v["error"].as_str());
            let text = told.map_or_else(
                || String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned(),
                str::to_owned,
            );
            return Err(failed(format!(
                "{} returned {status}: {}",
                self.url,
                text.trim()
            )));
        }
        let text = match v.pointer(at) {
            Some(Value::String(s)) => s.clone(),
            // Anthropic's answer is a list of blocks.
            Some(Value::Array(blocks)) => blocks
                .iter()
                .filter_map(|b| b["text"].as_str())
                .collect::<Vec<_>>()
                .join("\n"),
            _ => String::new(),
        };
        if text.trim().is_empty() {
            return Err(failed(format!("{} returned no text", self.url)));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(provider: &str, target: &str, key: &str) -> ChatConfig {
        ChatConfig {
            provider: provider.into(),
            target: target.into(),
            model: String::new(),
            api_key: key.into(),
        }
    }

    #[test]
    fn addresses_and_keys_are_checked() {
        let url = |p: &str, t: &str| Chat::new(&config(p, t, "k")).map(|c| c.map(|c| c.url));
        assert_eq!(url("", ""), Ok(None));
        assert_eq!(
            url("anthropic", "http://h/"),
            Ok(Some("http://h/v1/messages".into()))
        );
        assert_eq!(
            url("OpenAI", "http://h/v1"),
            Ok(Some("http://h/chat/completions".replace("h/", "h/v1/")))
        );
        assert_eq!(
            url("ollama", ""),
            Ok(Some("http://localhost:11434/api/chat".into()))
        );
        assert!(url("other", "").is_err() && url("openai", "ftp://x").is_err());
        assert!(Chat::new(&config("anthropic", "", "")).is_err());
        let shown = format!("{:?}", config("openai", "", "secret-key"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
