//! Providers behind HTTP: Ollama and OpenAI-compatible services.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use ureq::Agent;
use ureq::http::Uri;

use crate::EmbedError;

const OLLAMA_TIMEOUT: Duration = Duration::from_secs(120);
const OPENAI_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of an error body that are read.
const MAX_ERROR: u64 = 4 << 10;
/// Bytes of an answer that are read: 16,000 dimensions in text fit many times.
const MAX_ANSWER: u64 = 16 << 20;

fn agent(timeout: Duration) -> Agent {
    Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .build()
        .new_agent()
}

/// Status and body of an answer.
fn post(
    agent: &Agent,
    url: &str,
    key: Option<&str>,
    body: &serde_json::Value,
    left: Option<Duration>,
) -> Result<(u16, Vec<u8>), ureq::Error> {
    let mut request = agent.post(url);
    if let Some(left) = left {
        request = request.config().timeout_global(Some(left)).build();
    }
    if let Some(key) = key {
        request = request.header("Authorization", format!("Bearer {key}"));
    }
    let mut answer = request.send_json(body)?;
    let status = answer.status().as_u16();
    let limit = if status == 200 { MAX_ANSWER } else { MAX_ERROR };
    let body = answer.body_mut().with_config().limit(limit).read_to_vec();
    match body {
        // What was read of an over-long error is lost with ureq; its status is not.
        Err(ureq::Error::BodyExceedsLimit(_)) if status != 200 => Ok((status, Vec::new())),
        other => Ok((status, other?)),
    }
}

/// Ollama's `/api/embed`.
#[derive(Debug)]
pub(crate) struct Ollama {
    agent: Agent,
    url: String,
    model: String,
}

#[derive(Deserialize)]
struct OllamaAnswer {
    #[serde(default)]
    embeddings: Vec<Vec<f32>>,
}

impl Ollama {
    pub(crate) fn new(target: &str, model: &str) -> Self {
        Self {
            agent: agent(OLLAMA_TIMEOUT),
            url: format!("{target}/api/embed"),
            model: model.into(),
        }
    }

    pub(crate) fn embed(&self, text: &str, left: Option<Duration>) -> Result<Vec<f32>, EmbedError> {
        let fail = |e: String| EmbedError::Other(format!("embedding failed: {e}"));
        let body = json!({"model": self.model, "input": text});
        let (status, answer) =
            post(&self.agent, &self.url, None, &body, left).map_err(|e| fail(e.to_string()))?;
        if status != 200 {
            let text = String::from_utf8_lossy(&answer);
            return Err(fail(format!(
                "ollama returned status {status}: {}",
                text.trim()
            )));
        }
        let answer: OllamaAnswer =
            serde_json::from_slice(&answer).map_err(|e| fail(e.to_string()))?;
        answer
            .embeddings
            .into_iter()
            .next()
            .ok_or_else(|| fail("no embeddings returned".into()))
    }
}

/// An OpenAI-compatible `/v1/embeddings`.
pub(crate) struct OpenAi {
    agent: Agent,
    url: String,
    model: String,
    dimensions: usize,
    key: String,
}

impl std::fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAi")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct OpenAiAnswer {
    #[serde(default)]
    data: Vec<OpenAiVector>,
}

#[derive(Deserialize)]
struct OpenAiVector {
    embedding: Vec<f32>,
}

#[derive(Deserialize)]
struct OpenAiError {
    error: OpenAiErrorBody,
}

#[derive(Deserialize)]
struct OpenAiErrorBody {
    #[serde(default)]
    message: String,
    #[serde(default)]
    code: Option<serde_json::Value>,
}

/// `<base>/v1/embeddings`, where `base` may name the version already.
fn embeddings_url(target: &str) -> Result<String, EmbedError> {
    let base = target.trim_end_matches('/');
    let bad = |why: &str| EmbedError::Config(format!("invalid OpenAI embedding base URL: {why}"));
    let uri: Uri = base.parse().map_err(|e| bad(&format!("{e}")))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(bad(&format!("{target:?} is not an http or https address")));
    }
    let versioned = uri.path().split('/').any(|s| s == "v1");
    Ok(format!(
        "{base}{}/embeddings",
        if versioned { "" } else { "/v1" }
    ))
}

impl OpenAi {
    pub(crate) fn new(
        target: &str,
        model: &str,
        dimensions: usize,
        key: &str,
    ) -> Result<Self, EmbedError> {
        Ok(Self {
            agent: agent(OPENAI_TIMEOUT),
            url: embeddings_url(target)?,
            model: model.into(),
            dimensions,
            key: key.into(),
        })
    }

    pub(crate) fn embed(&self, text: &str, left: Option<Duration>) -> Result<Vec<f32>, EmbedError> {
        let mut body = json!({"model": self.model, "input": text, "encoding_format": "float"});
        if self.dimensions > 0 {
            body["dimensions"] = json!(self.dimensions);
        }
        let (status, answer) =
            post(&self.agent, &self.url, Some(&self.key), &body, left).map_err(|e| {
                EmbedError::Api {
                    status: 0,
                    code: String::new(),
                    message: e.to_string(),
                }
            })?;
        if status != 200 {
            let text = String::from_utf8_lossy(&answer).trim().to_owned();
            let told = serde_json::from_slice::<OpenAiError>(&answer)
                .ok()
                .filter(|e| !e.error.message.is_empty());
            let code = told
                .as_ref()
                .and_then(|e| e.error.code.as_ref())
                .and_then(|c| c.as_str())
                .unwrap_or_default()
                .to_owned();
            return Err(EmbedError::Api {
                status,
                code,
                message: told.map_or(text, |e| e.error.message),
            });
        }
        let answer: OpenAiAnswer = serde_json::from_slice(&answer)
            .map_err(|e| EmbedError::Other(format!("embedding failed: {e}")))?;
        answer
            .data
            .into_iter()
            .next()
            .map(|v| v.embedding)
            .ok_or_else(|| EmbedError::Other("embedding failed: no embeddings returned".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_added_where_it_is_missing() {
        let url = |t| embeddings_url(t).expect("url");
        assert_eq!(
            url("https://api.example.org/"),
            "https://api.example.org/v1/embeddings"
        );
        assert_eq!(
            url("http://h:1/proxy/v1//"),
            "http://h:1/proxy/v1/embeddings"
        );
        assert!(embeddings_url("ftp://h").is_err());
        assert!(embeddings_url("not a url").is_err());
    }
}
