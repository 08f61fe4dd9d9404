//! Where a request goes. Upstream addresses come from the configuration only; a request chooses among them.

use axum::http::Uri;
use axum::http::uri::Scheme;
use weft_engine::exchange::{is_turn, provider_of};

/// Where Codex signs in.
const CODEX_AUTH: &str = "https://auth.openai.com";
/// Paths that Codex uses to sign in, in lower case.
const CODEX_AUTH_PATHS: [&str; 8] = [
    "/oauth",
    "/v1/oauth",
    "/auth",
    "/v1/auth",
    "/api/oauth",
    "/api/auth",
    "/oauth2",
    "/v1/oauth2",
];

/// The providers that the proxy knows and where they are.
#[derive(Clone, Debug)]
pub struct Upstreams {
    /// Where everything goes that names no other provider; without one the path decides.
    default: Option<(Provider, String)>,
    anthropic: String,
    openai: String,
    ollama: String,
    codex_auth: String,
}

/// A provider of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    Anthropic,
    Openai,
    Ollama,
}

impl Provider {
    fn named(name: &str) -> Option<Self> {
        match name {
            "anthropic" => Some(Self::Anthropic),
            "openai" => Some(Self::Openai),
            "ollama" => Some(Self::Ollama),
            _ => None,
        }
    }
}

/// What the configuration says of upstreams; "" = the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpstreamConfig<'a> {
    /// Provider of everything that names no other; "" = the path decides.
    pub provider: &'a str,
    /// Its address.
    pub upstream: &'a str,
    /// Address for Anthropic's API.
    pub anthropic: &'a str,
    /// Address for OpenAI's API.
    pub openai: &'a str,
    /// Address for Ollama's API.
    pub ollama: &'a str,
}

/// A base address without slashes at its end.
fn base(text: &str, default: &str) -> Result<String, String> {
    let text = if text.is_empty() { default } else { text };
    let bad = |why: &str| format!("upstream {text:?}: {why}");
    let uri: Uri = text
        .parse()
        .map_err(|_| bad("want an address such as https://api.anthropic.com"))?;
    match uri.scheme() {
        Some(s) if *s == Scheme::HTTP || *s == Scheme::HTTPS => {}
        _ => return Err(bad("it has to begin with http:// or https://")),
    }
    if uri.authority().is_none_or(|a| a.as_str().contains('@')) {
        return Err(bad("a name and password in it are not taken"));
    }
    if uri.query().is_some() {
        return Err(bad("it must not have a query"));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

impl Upstreams {
    /// Reads the configuration.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(c: UpstreamConfig<'_>) -> Result<Self, String> {
        if c.provider.is_empty() && !c.upstream.is_empty() {
            return Err("provider type is required".into());
        }
        let mut all = Self {
            default: None,
            anthropic: base(c.anthropic, "https://api.anthropic.com")?,
            openai: base(c.openai, "https://api.openai.com/v1")?,
            ollama: base(c.ollama, "http://localhost:11434")?,
            codex_auth: CODEX_AUTH.into(),
        };
        if !c.provider.is_empty() {
            let provider = Provider::named(c.provider).ok_or_else(|| {
                format!(
                    "could not create new provider: unknown provider type: {:?} (anthropic, openai or ollama)",
                    c.provider
                )
            })?;
            let own = all.of(provider).to_owned();
            let upstream = base(c.upstream, &own)?;
            if provider == Provider::Ollama && c.ollama.is_empty() {
                all.ollama.clone_from(&upstream);
            }
            all.default = Some((provider, upstream));
        }
        Ok(all)
    }

    fn of(&self, provider: Provider) -> &str {
        match provider {
            Provider::Anthropic => &self.anthropic,
            Provider::Openai => &self.openai,
            Provider::Ollama => &self.ollama,
        }
    }
}

impl std::fmt::Display for Upstreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.default {
            Some((_, upstream)) => f.write_str(upstream),
            None => write!(f, "{}, {} and {}", self.anthropic, self.openai, self.ollama),
        }
    }
}

/// What of a request decides where it goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked<'a> {
    /// Path as it came.
    pub(crate) path: &'a str,
    /// Query as it came.
    pub(crate) query: Option<&'a str>,
    /// The header `x-tapes-agent-name`.
    pub(crate) agent: Option<&'a str>,
    /// Whether headers of Anthropic's API are there.
    pub(crate) anthropic_headers: bool,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Name of the agent; "" = not told.
    pub(crate) agent: String,
    /// The whole address.
    pub(crate) url: String,
    /// The path of that address.
    pub(crate) path: String,
}

impl Upstreams {
    /// Chooses the upstream; `None` where nothing tells which.
    pub(crate) fn route(&self, asked: &Asked<'_>) -> Option<Route> {
        let named = asked.agent.map(str::trim).filter(|a| !a.is_empty());
        let (agent, chosen, path) = match named {
            Some(agent) => (agent, None, asked.path),
            None => agent_path(asked.path),
        };
        let (provider, upstream) = match (chosen.and_then(Provider::named), &self.default) {
            (Some(p), _) => (p, self.of(p)),
            (None, Some((p, upstream))) => (*p, upstream.as_str()),
            (None, None) => {
                let p = by_path(path, asked.anthropic_headers)?;
                (p, self.of(p))
            }
        };
        let lower = path.to_ascii_lowercase();
        let signs_in = agent == "codex"
            && provider == Provider::Openai
            && CODEX_AUTH_PATHS.iter().any(|p| lower.starts_with(p));
        let upstream = if signs_in { &self.codex_auth } else { upstream };
        // A base that ends in /v1 and a path that begins with it mean one /v1.
        let path = match path.strip_prefix("/v1") {
            Some(rest)
                if upstream.ends_with("/v1") && (rest.is_empty() || rest.starts_with('/')) =>
            {
                rest
            }
            _ => path,
        };
        let mut url = format!("{upstream}{path}");
        let path = match url
            .split_once("://")
            .and_then(|(_, r)| r.find('/').map(|at| &r[at..]))
        {
            Some(p) => p.to_owned(),
            None => {
                url.push('/');
                "/".to_owned()
            }
        };
        if let Some(q) = asked.query {
            url.push('?');
            url.push_str(q);
        }
        Some(Route {
            agent: agent.to_owned(),
            url,
            path,
        })
    }
}

/// Agent, provider and the rest of a path `/agents/<name>[/providers/<p>]/…`.
fn agent_path(path: &str) -> (&str, Option<&str>, &str) {
    let Some((agent, rest)) = path.strip_prefix("/agents/").map(first_segment) else {
        return ("", None, path);
    };
    match rest.strip_prefix("/providers/").map(first_segment) {
        Some((provider, rest)) => (agent, Some(provider), rest),
        None => (agent, None, rest),
    }
}

/// The first segment and the path after it.
fn first_segment(path: &str) -> (&str, &str) {
    match path.find('/') {
        Some(at) => (&path[..at], &path[at..]),
        None => (path, "/"),
    }
}

/// The provider whose API has such a path.
fn by_path(path: &str, anthropic_headers: bool) -> Option<Provider> {
    if is_turn("POST", path) {
        Provider::named(provider_of(path))
    } else if path.starts_with("/api/") {
        Some(Provider::Ollama)
    } else if path.starts_with("/v1/messages") || path == "/v1/complete" || anthropic_headers {
        Some(Provider::Anthropic)
    } else if path.starts_with("/v1/") {
        Some(Provider::Openai)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(c: UpstreamConfig<'_>, path: &str) -> Option<String> {
        let asked = Asked {
            path,
            query: Some("beta=true"),
            ..Asked::default()
        };
        Upstreams::new(c)
            .expect("config")
            .route(&asked)
            .map(|r| r.url)
    }

    #[test]
    fn the_path_decides_where_no_provider_is_configured() {
        let auto = UpstreamConfig::default();
        for (path, want) in [
            (
                "/v1/messages",
                "https://api.anthropic.com/v1/messages?beta=true",
            ),
            (
                "/v1/responses",
                "https://api.openai.com/v1/responses?beta=true",
            ),
            ("/api/chat", "http://localhost:11434/api/chat?beta=true"),
            (
                "/agents/x/v1/messages",
                "https://api.anthropic.com/v1/messages?beta=true",
            ),
            (
                "/agents/x/providers/openai/responses",
                "https://api.openai.com/v1/responses?beta=true",
            ),
            (
                "/agents/codex/providers/openai/v1/OAuth/token",
                "https://auth.openai.com/v1/OAuth/token?beta=true",
            ),
        ] {
            assert_eq!(url(auto, path).as_deref(), Some(want), "{path}");
        }
        assert_eq!(url(auto, "/"), None);
    }

    #[test]
    fn a_configured_provider_takes_everything_else() {
        let c = UpstreamConfig {
            provider: "anthropic",
            upstream: "http://127.0.0.1:9/gw/",
            ..UpstreamConfig::default()
        };
        assert_eq!(
            url(c, "/anything").as_deref(),
            Some("http://127.0.0.1:9/gw/anything?beta=true")
        );
        assert_eq!(
            url(c, "/agents/a/providers/ollama").as_deref(),
            Some("http://localhost:11434/?beta=true")
        );
        // An unknown provider is no override.
        assert_eq!(
            url(c, "/agents/a/providers/evil.example/x").as_deref(),
            Some("http://127.0.0.1:9/gw/x?beta=true")
        );
        let route = Upstreams::new(c).expect("config").route(&Asked {
            path: "/agents/b/v1/messages",
            agent: Some(" me "),
            ..Asked::default()
        });
        let route = route.expect("route");
        assert_eq!(
            (route.agent.as_str(), route.path.as_str()),
            ("me", "/gw/agents/b/v1/messages")
        );
    }

    #[test]
    fn bad_configurations_are_told() {
        let of = |provider, upstream| {
            Upstreams::new(UpstreamConfig {
                provider,
                upstream,
                ..UpstreamConfig::default()
            })
            .expect_err("refused")
        };
        assert_eq!(of("", "http://x"), "provider type is required");
        assert!(of("bard", "").starts_with("could not create new provider: unknown provider type"));
        assert!(of("ollama", "localhost:1").contains("http://"));
        assert!(of("ollama", "ftp://x").contains("http://"));
        assert!(of("ollama", "http://u:p@x").contains("password"));
    }
}
