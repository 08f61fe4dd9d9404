//! Which exchanges with a provider are turns, and why the others are not captured.

/// Why an exchange was not captured. The names are the reference's, and the values of the counter's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The provider's status was not 200.
    UpstreamStatus,
    /// Not a POST to an endpoint of conversations.
    NonTurnRequest,
    /// The request is not what the provider's API takes.
    RequestDecode,
    /// The answer holds no message.
    EmptyResponse,
    /// Nobody reads this provider's format.
    UnknownProvider,
    /// The answer's content coding cannot be undone.
    ResponseDecode,
    /// The answer cannot be reduced to a message.
    ReducerError,
    /// The client went away before anything of a message had come.
    ClientDisconnect,
    /// The provider could not be reached, or ended without an answer.
    UpstreamNoResponse,
    /// Too much waits to be stored.
    SemFull,
    /// A body is larger than what is captured.
    RequestOverBudget,
    /// The store refused the turn.
    IngestReject,
    /// The store did not take the turn in time.
    IngestTimeout,
}

impl DropReason {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::UpstreamStatus,
        Self::NonTurnRequest,
        Self::RequestDecode,
        Self::EmptyResponse,
        Self::UnknownProvider,
        Self::ResponseDecode,
        Self::ReducerError,
        Self::ClientDisconnect,
        Self::UpstreamNoResponse,
        Self::SemFull,
        Self::RequestOverBudget,
        Self::IngestReject,
        Self::IngestTimeout,
    ];

    /// The name in counters and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::UpstreamStatus => "upstream_status",
            Self::NonTurnRequest => "non_turn_request",
            Self::RequestDecode => "request_decode",
            Self::EmptyResponse => "empty_response",
            Self::UnknownProvider => "unknown_provider",
            Self::ResponseDecode => "response_decode",
            Self::ReducerError => "reducer_error",
            Self::ClientDisconnect => "client_disconnect",
            Self::UpstreamNoResponse => "upstream_no_response",
            Self::SemFull => "sem_full",
            Self::RequestOverBudget => "request_over_budget",
            Self::IngestReject => "ingest_reject",
            Self::IngestTimeout => "ingest_timeout",
        }
    }
}

/// A path without its query and the slashes at its end.
fn bare(path: &str) -> &str {
    path.split('?')
        .next()
        .unwrap_or_default()
        .trim_end_matches('/')
}

/// Whether a request is a turn: a POST (or no method told) to an endpoint of conversations. `path` is the
/// path as the provider sees it.
pub fn is_turn(method: &str, path: &str) -> bool {
    const ENDPOINTS: [&str; 5] = [
        "/v1/chat/completions",
        "/v1/responses",
        "/codex/responses",
        "/v1/messages",
        "/api/chat",
    ];
    (method.is_empty() || method.eq_ignore_ascii_case("POST"))
        && ENDPOINTS.iter().any(|e| bare(path).ends_with(e))
}

/// The provider whose format an endpoint speaks, whoever serves it.
pub fn provider_of(path: &str) -> &'static str {
    let path = bare(path);
    if path.ends_with("/chat/completions") || path.ends_with("/responses") {
        "openai"
    } else if path.ends_with("/api/chat") {
        "ollama"
    } else {
        "anthropic"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_tell_the_format() {
        assert_eq!(provider_of("/v1/messages?beta=true"), "anthropic");
        assert_eq!(provider_of("/v1/messages/count_tokens"), "anthropic");
        assert_eq!(provider_of("/gw/v1/responses/"), "openai");
        assert_eq!(provider_of("/api/chat"), "ollama");
        assert!(!is_turn("POST", "/v1/messages/count_tokens"));
        assert!(is_turn("", "/v1/messages/?x"));
    }
}
