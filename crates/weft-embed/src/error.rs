//! Why a text was not embedded, and whether trying again can help.

/// A failure of a provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// The configuration is not usable.
    #[error("{0}")]
    Config(String),
    /// A structured answer of an OpenAI-compatible service, or none at all (`status` 0).
    #[error("{}", api_text(*status, message))]
    Api {
        /// HTTP status; 0 = no response.
        status: u16,
        /// The service's error code.
        code: String,
        /// The service's words, or the transport's.
        message: String,
    },
    /// Everything else; it is tried again in the next pass.
    #[error("{0}")]
    Other(String),
}

fn api_text(status: u16, message: &str) -> String {
    if status == 0 {
        format!("embedding failed: embedding api request failed: {message}")
    } else {
        format!("embedding failed: embedding api returned status {status}: {message}")
    }
}

impl EmbedError {
    /// Whether the service refused the text as too long.
    pub fn is_oversize(&self) -> bool {
        match self {
            Self::Api {
                status: 400,
                code,
                message,
            } => {
                code == "context_length_exceeded"
                    || message.to_lowercase().contains("maximum context length")
            }
            _ => false,
        }
    }

    /// Tokens that the service counted, where it says so.
    pub fn requested_tokens(&self) -> Option<usize> {
        let Self::Api { message, .. } = self else {
            return None;
        };
        let after = &message[message.find("requested ")? + "requested ".len()..];
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let n = after[..digits].parse().ok()?;
        after[digits..].starts_with(" tokens").then_some(n)
    }

    /// The reason under which a failure is remembered; `None` where the next pass tries again.
    pub fn deterministic_reason(&self) -> Option<String> {
        match self {
            Self::Api {
                status: 0 | 429 | 500..,
                ..
            } => None,
            Self::Api { .. } if self.is_oversize() => Some("oversize".into()),
            Self::Api { status, .. } => Some(format!("api_{status}")),
            _ => None,
        }
    }

    /// Whether the whole configuration is at fault (a wrong key, address or model), so that every
    /// other text would fail alike.
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            Self::Config(_)
                | Self::Api {
                    status: 401 | 403 | 404,
                    ..
                }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(status: u16, code: &str, message: &str) -> EmbedError {
        EmbedError::Api {
            status,
            code: code.into(),
            message: message.into(),
        }
    }

    #[test]
    fn failure_classes() {
        let e = api(
            400,
            "",
            "This model's Maximum context length is 8192 tokens, however you requested 10021 tokens",
        );
        assert!(e.is_oversize());
        assert_eq!(e.requested_tokens(), Some(10021));
        assert_eq!(e.deterministic_reason().as_deref(), Some("oversize"));
        assert_eq!(
            api(400, "x", "bad").deterministic_reason().as_deref(),
            Some("api_400")
        );
        for retried in [
            api(0, "", "refused"),
            api(429, "", ""),
            api(503, "", ""),
            EmbedError::Other("x".into()),
        ] {
            assert_eq!(retried.deterministic_reason(), None, "{retried}");
        }
        assert!(api(401, "", "").is_configuration());
        assert_eq!(
            api(400, "context_length_exceeded", "x").requested_tokens(),
            None
        );
    }
}
