//! MCP over streamable HTTP and over stdio: `search` at `/v1/mcp` as tapes has it, and the tools of a
//! profile at `/mcp/{profile}` and over stdio (all of them at `/mcp`).
//!
//! The protocol is the official SDK's. In front of it stand the checks that the reference's
//! stateless transport makes, with its texts.

mod all;
mod code;
mod decisions;
mod transport;

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, JsonObject, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer, ServiceExt as _};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use weft_engine::{Engine, Filter, Mode, SearchError, SpanQuery};

use crate::Options;
use crate::http::{Access, Scope, search_output};

/// Versions of the protocol that are spoken, newest first.
pub(crate) const VERSIONS: [ProtocolVersion; 4] = [
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2024_11_05,
];

const DEFAULT_TOP_K: i64 = 5;

/// A set of tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// `search`: the tool of tapes.
    Spans,
    /// `search_code` and `find_symbols`: the tools of weave.
    Code,
    /// `search`, `decide` and what else there is about decisions: the tools of enagrams.
    Decisions,
    /// All of them: `search` goes over everything, and the searches of one corpus are called
    /// `search_spans`, `search_code` and `search_decisions`.
    #[default]
    All,
}

impl Profile {
    /// All profiles with their names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("spans", Self::Spans),
        ("code", Self::Code),
        ("decisions", Self::Decisions),
        ("all", Self::All),
    ];
}

/// The routes of MCP.
pub(crate) fn router(options: &Options, stop: &CancellationToken) -> Router {
    let server = |profile| Server {
        engine: options.engine.clone(),
        version: options.version,
        profile,
    };
    let mut router = transport::router("/v1/mcp", server(Profile::Spans), stop)
        .merge(transport::router("/mcp", server(Profile::All), stop));
    for (name, profile) in Profile::ALL {
        router = router.merge(transport::router(
            &format!("/mcp/{name}"),
            server(profile),
            stop,
        ));
    }
    router
}

/// Speaks MCP over standard input and output until the client closes it.
///
/// # Errors
/// Where the handshake or the transport fails.
pub async fn serve_stdio(
    engine: Arc<Engine>,
    version: &'static str,
    profile: Profile,
) -> std::io::Result<()> {
    let server = Server {
        engine,
        version,
        profile,
    };
    let service = server
        .serve(rmcp::transport::stdio())
        .await
        .map_err(std::io::Error::other)?;
    service.waiting().await.map_err(std::io::Error::other)?;
    Ok(())
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    engine: Arc<Engine>,
    version: &'static str,
    profile: Profile,
}

fn object(v: Value) -> Arc<JsonObject> {
    Arc::new(match v {
        Value::Object(o) => o,
        _ => JsonObject::new(),
    })
}

fn search_tool(name: &'static str) -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for, in words or as a question"},
            "top_k": {"type": "integer", "description": "Number of results to return (default 5)"},
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    let result = json!({
        "type": "object",
        "properties": {
            "session_id": {"type": "string"}, "trace_id": {"type": "string"},
            "span_id": {"type": "string"}, "score": {"type": "number"},
            "user_prompt": {"type": "string"}, "snippet": {"type": "string"},
            "model": {"type": "string"}, "started_at": {"type": "string"},
        },
        "required": ["trace_id", "span_id", "score", "started_at"],
    });
    let output = json!({
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "results": {"type": ["array", "null"], "items": result},
            "count": {"type": "integer"},
        },
        "required": ["query", "results", "count"],
    });
    Tool::new(
        name,
        "Semantic search over stored LLM sessions. Results are individual main-conversation spans, \
         each with its session, trace and span id, the turn's prompt and a snippet.",
        object(input),
    )
    .with_raw_output_schema(object(output))
    .with_annotations(ToolAnnotations::new().read_only(true))
}

/// The arguments of `search`, checked against its schema.
fn arguments(given: Option<JsonObject>) -> Result<(String, usize), String> {
    let given = given.unwrap_or_default();
    if let Some(unknown) = given
        .keys()
        .find(|k| !matches!(k.as_str(), "query" | "top_k"))
    {
        return Err(format!(
            "unexpected additional properties [\"{unknown}\"]; the arguments are query and top_k"
        ));
    }
    let query = match given.get("query") {
        Some(Value::String(s)) => s.clone(),
        Some(v) => return Err(format!("query: {v} has the wrong type, want \"string\"")),
        None => return Err("required: missing properties: [\"query\"]".into()),
    };
    let top_k = match given.get("top_k") {
        None => DEFAULT_TOP_K,
        Some(v) => v
            .as_i64()
            .or_else(|| v.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64))
            .ok_or_else(|| format!("top_k: {v} has the wrong type, want \"integer\""))?,
    };
    let top_k = if top_k <= 0 { DEFAULT_TOP_K } else { top_k };
    Ok((
        query,
        usize::try_from(top_k).unwrap_or(usize::MAX).min(1_000),
    ))
}

impl Server {
    fn tools(&self) -> Vec<Tool> {
        let mut tools = Vec::new();
        let spans = matches!(self.profile, Profile::Spans | Profile::All);
        if self.profile == Profile::All {
            tools.extend(all::tools());
        }
        if spans && self.engine.vectors_configured() {
            tools.push(search_tool(match self.profile {
                Profile::Spans => "search",
                _ => "search_spans",
            }));
        }
        if matches!(self.profile, Profile::Code | Profile::All) {
            tools.extend(code::tools());
        }
        match self.profile {
            Profile::Decisions => tools.extend(decisions::tools("search")),
            Profile::All => tools.extend(decisions::tools("search_decisions")),
            _ => {}
        }
        tools
    }

    async fn search(&self, query: String, limit: usize) -> CallToolResult {
        let engine = self.engine.clone();
        let q = SpanQuery {
            query: query.clone(),
            limit,
            mode: Mode::Vector,
            filter: Filter::default(),
            context: 0,
        };
        let found = tokio::task::spawn_blocking(move || engine.search_spans(&q)).await;
        let text = match found {
            Ok(Ok(a)) => {
                let output = search_output(&query, &a.hits, false);
                let mut result =
                    CallToolResult::success(vec![ContentBlock::text(output.to_string())]);
                result.structured_content = Some(output);
                result.is_error = None;
                return result;
            }
            Ok(Err(
                e @ (SearchError::Embed(_)
                | SearchError::NotInitialized
                | SearchError::NotConfigured),
            )) => e.to_string(),
            Ok(Err(e)) => format!("failed to search spans: {e}"),
            Err(e) => format!("failed to search spans: {e}"),
        };
        CallToolResult::error(vec![ContentBlock::text(format!("Search failed: {text}"))])
    }
}

/// Whether a caller may write: over HTTP its token says so, over stdio it is whoever started the program.
fn may_write(context: &RequestContext<RoleServer>) -> bool {
    let parts = context.extensions.get::<axum::http::request::Parts>();
    parts.is_none_or(|p| {
        p.extensions
            .get::<Access>()
            .is_some_and(|a| a.scope >= Scope::Write)
    })
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.protocol_version = ProtocolVersion::V_2025_11_25;
        info.server_info = Implementation::new(
            if self.profile == Profile::Spans {
                "tapes"
            } else {
                "weft"
            },
            self.version,
        );
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&VERSIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().into_iter().find(|t| t.name == name)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if self.get_tool(&request.name).is_none() {
            return Err(ErrorData::invalid_params(
                format!("unknown tool \"{}\"", request.name),
                None,
            ));
        }
        let invalid = |e: String| {
            ErrorData::invalid_params(
                format!("invalid params: validating \"arguments\": {e}"),
                None,
            )
        };
        let (engine, name) = (self.engine.clone(), request.name.as_ref());
        if self.profile == Profile::All && all::Asked::knows(name) {
            let asked = all::Asked::read(name, request.arguments).map_err(invalid)?;
            return Ok(all::answer(engine, asked).await.into());
        }
        if matches!(name, "search_code" | "find_symbols") {
            let asked = code::Asked::read(name, request.arguments).map_err(invalid)?;
            return Ok(code::answer(engine, asked).await.into());
        }
        if self.profile != Profile::Spans
            && let Some(kind) = decisions::Kind::of(name)
        {
            let asked = decisions::Asked::read(kind, request.arguments).map_err(invalid)?;
            if kind.writes() && !may_write(&context) {
                return Err(ErrorData::invalid_request(
                    format!("{name} needs a token of scope write"),
                    None,
                ));
            }
            return Ok(decisions::answer(engine, asked).await.into());
        }
        let (query, top_k) = arguments(request.arguments).map_err(invalid)?;
        Ok(self.search(query, top_k).await.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(v: Value) -> Result<(String, usize), String> {
        arguments(v.as_object().cloned())
    }

    #[test]
    fn arguments_are_checked_against_the_schema() {
        assert_eq!(args(json!({"query": ""})), Ok((String::new(), 5)));
        assert_eq!(
            args(json!({"query": "x", "top_k": -3})),
            Ok(("x".into(), 5))
        );
        assert_eq!(args(json!({"query": "x", "top_k": 3})), Ok(("x".into(), 3)));
        assert!(
            args(json!({"query": "x", "paths": "src/"}))
                .expect_err("unknown")
                .contains("paths")
        );
        assert!(args(json!({})).is_err());
        assert!(args(json!({"query": 1})).is_err());
        assert!(args(json!({"query": "x", "top_k": 1.5})).is_err());
    }
}
