//! MCP over streamable HTTP and over stdio: `search` and the tools of cassettes at `/v1/mcp` as tapes has
//! them, and the tools of a profile at `/mcp/{profile}` and over stdio (all of them at `/mcp`).
//!
//! The protocol is the official SDK's. In front of it stand the checks that the reference's
//! stateless transport makes, with its texts; requests of revision 2026-07-28 and later go to the SDK as they
//! are.

mod all;
mod code;
mod decisions;
mod jsonrpc;
mod prompts;
mod resources;
mod spans;
mod tool;
mod transport;

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::http::request::Parts;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, GetPromptRequestMethod,
    GetPromptRequestParams, GetPromptResponse, Implementation, JsonObject,
    ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod,
    ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestMethod, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer, ServiceExt as _};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use weft_engine::Engine;

use crate::Options;
use crate::answer::Answer;
use crate::cassettes::{self, Cassettes};
use crate::http::{Access, Scope};

/// Versions of the protocol that are spoken, newest first.
pub(crate) const VERSIONS: [ProtocolVersion; 5] = [
    ProtocolVersion::V_2026_07_28,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2024_11_05,
];

/// What a client may tell its model about the server.
const INSTRUCTIONS: &str = "weft is the memory of this codebase: what was said to agents, what was built, what was \
     decided. Ask `search` before grep and before you change or decide something; `show` opens a hit, `why` \
     explains a file or symbol, `decisions_for_file` says what governs one. Record what you decide with `decide`.";

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
    let server = |profile, tapes| Server {
        engine: options.engine.clone(),
        cassettes: options.cassettes.clone(),
        version: options.version,
        profile,
        tapes,
    };
    let mut router = transport::router("/v1/mcp", server(Profile::Spans, true), stop)
        .merge(transport::router("/mcp", server(Profile::All, false), stop));
    for (name, profile) in Profile::ALL {
        router = router.merge(transport::router(
            &format!("/mcp/{name}"),
            server(profile, false),
            stop,
        ));
    }
    router
}

/// Speaks MCP over standard input and output until the client closes it.
///
/// # Errors
/// Where the handshake or the transport fails.
pub async fn serve_stdio(options: Options, profile: Profile) -> std::io::Result<()> {
    let stop = CancellationToken::new();
    let _ended = stop.clone().drop_guard();
    options.cassettes.follow(stop);
    let server = Server {
        engine: options.engine,
        cassettes: options.cassettes,
        version: options.version,
        profile,
        tapes: false,
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
    cassettes: Cassettes,
    version: &'static str,
    profile: Profile,
    /// Whether it is tapes' endpoint: its tool and those of cassettes, and nothing else.
    tapes: bool,
}

/// The tool of a cassette as clients see it.
fn cassette_tool(t: &weft_core::cassette::Tool) -> Tool {
    let mut out = Tool::new(
        t.name.clone(),
        t.description.clone(),
        Arc::new(t.input_schema.clone()),
    );
    if !t.title.is_empty() {
        out = out.with_title(t.title.clone());
    }
    if !t.annotations.is_empty()
        && let Ok(a) =
            serde_json::from_value::<ToolAnnotations>(Value::Object(t.annotations.clone()))
    {
        out = out.with_annotations(a);
    }
    out
}

impl Server {
    /// Whether the tools of cassettes are here too.
    fn has_cassettes(&self) -> bool {
        self.tapes || self.profile == Profile::All
    }

    fn has_prompts(&self) -> bool {
        !self.tapes && prompts::any(self.profile)
    }

    fn tools(&self) -> Vec<Tool> {
        let mut tools = Vec::new();
        if self.profile == Profile::All {
            tools.extend(all::tools());
        }
        let spans = matches!(self.profile, Profile::Spans | Profile::All);
        if spans && self.engine.vectors_configured() {
            tools.push(match (self.tapes, self.profile) {
                (true, _) => spans::plain(),
                (_, Profile::Spans) => spans::tool("search"),
                _ => spans::tool("search_spans"),
            });
        }
        if matches!(self.profile, Profile::Code | Profile::All) {
            tools.extend(code::tools());
        }
        match self.profile {
            Profile::Decisions => tools.extend(decisions::tools("search")),
            Profile::All => tools.extend(decisions::tools("search_decisions")),
            _ => {}
        }
        if self.has_cassettes() {
            let fleet = self.cassettes.fleet();
            let all = fleet.installed.iter().flat_map(|c| &c.document.tools);
            tools.extend(all.map(cassette_tool));
        }
        if self.tapes {
            tools.sort_by(|a, b| a.name.cmp(&b.name));
        }
        tools
    }

    /// Calls a tool of ours.
    async fn call(
        &self,
        name: &str,
        arguments: Option<JsonObject>,
        writer: bool,
    ) -> Result<CallToolResponse, ErrorData> {
        // As the reference has it; elsewhere a model can read what is wrong and try again.
        let invalid = |e: String| match self.tapes {
            true => Err(ErrorData::invalid_params(
                format!("invalid params: validating \"arguments\": {e}"),
                None,
            )),
            false => Ok(tool::failed(format!("invalid arguments: {e}")).into()),
        };
        let engine = self.engine.clone();
        if self.profile == Profile::All && all::Asked::knows(name) {
            return match all::Asked::read(name, arguments) {
                Ok(asked) => Ok(all::answer(engine, asked).await.into()),
                Err(e) => invalid(e),
            };
        }
        if code::Asked::knows(name) {
            return match code::Asked::read(name, arguments) {
                Ok(asked) => Ok(code::answer(engine, asked).await.into()),
                Err(e) => invalid(e),
            };
        }
        if self.profile != Profile::Spans
            && let Some(kind) = decisions::Kind::of(name)
        {
            if kind.writes() && !writer {
                return Ok(tool::failed(format!("{name} needs a token of scope write")).into());
            }
            return match decisions::Asked::read(kind, arguments) {
                Ok(asked) => Ok(decisions::answer(engine, asked).await.into()),
                Err(e) => invalid(e),
            };
        }
        match spans::read(arguments) {
            Ok((query, top_k)) => Ok(spans::answer(engine, query, top_k).await.into()),
            Err(e) => invalid(e),
        }
    }
}

/// What is known of the HTTP request behind a call; `None` over stdio.
fn caller(context: &RequestContext<RoleServer>) -> Option<&Parts> {
    context.extensions.get::<Parts>()
}

/// Whether a caller may write: over HTTP its token says so, over stdio it is whoever started the program.
fn may_write(caller: Option<&Parts>) -> bool {
    caller.is_none_or(|p| {
        p.extensions
            .get::<Access>()
            .is_some_and(|a| a.scope >= Scope::Write)
    })
}

/// Runs blocking work of a request.
async fn blocking<T: Send + 'static>(
    f: impl FnOnce() -> Result<T, ErrorData> + Send + 'static,
) -> Result<T, ErrorData> {
    tokio::task::spawn_blocking(f)
        .await
        .map_err(|e| ErrorData::internal_error(e.to_string(), None))?
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let b = ServerCapabilities::builder().enable_tools();
        let capabilities = match (self.tapes, self.has_prompts()) {
            (true, _) => b.build(),
            (_, true) => b.enable_resources().enable_prompts().build(),
            _ => b.enable_resources().build(),
        };
        let mut info = ServerConfig::new(capabilities);
        info.protocol_version = ProtocolVersion::V_2025_11_25;
        info.server_info = if self.profile == Profile::Spans {
            Implementation::new("tapes", self.version)
        } else {
            Implementation::new("weft", self.version)
        };
        if self.profile == Profile::All {
            info.instructions = Some(INSTRUCTIONS.to_owned());
        }
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
        let name = request.name.as_ref();
        let caller = caller(&context);
        if self.has_cassettes()
            && let fleet = self.cassettes.fleet()
            && let Some((to, found)) = fleet.tool(name)
        {
            // Hints of a cassette are no permission: it may do anything.
            if !may_write(caller) {
                return Ok(tool::failed(format!("{name} needs a token of scope write")).into());
            }
            let arguments = Value::Object(request.arguments.unwrap_or_default());
            let done = cassettes::tool(&self.cassettes, to, found, caller, arguments).await;
            return Ok(match done {
                Ok((text, structured)) => tool::answered(Answer { text, structured }),
                Err(e) => tool::failed(e),
            }
            .into());
        }
        if self.get_tool(name).is_none() {
            return Err(ErrorData::invalid_params(
                format!("unknown tool \"{name}\""),
                None,
            ));
        }
        self.call(name, request.arguments, may_write(caller)).await
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        if !self.has_prompts() {
            return Err(ErrorData::method_not_found::<ListPromptsRequestMethod>());
        }
        Ok(prompts::list(self.profile))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if !self.has_prompts() {
            return Err(ErrorData::method_not_found::<GetPromptRequestMethod>());
        }
        let (engine, profile) = (self.engine.clone(), self.profile);
        blocking(move || prompts::get(&engine, profile, &request))
            .await
            .map(Into::into)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        if self.tapes {
            return Err(ErrorData::method_not_found::<ListResourcesRequestMethod>());
        }
        let (engine, profile) = (self.engine.clone(), self.profile);
        blocking(move || Ok(resources::list(&engine, profile))).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        if self.tapes {
            return Err(ErrorData::method_not_found::<
                ListResourceTemplatesRequestMethod,
            >());
        }
        Ok(resources::templates(self.profile))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if self.tapes {
            return Err(ErrorData::method_not_found::<ReadResourceRequestMethod>());
        }
        let (engine, profile) = (self.engine.clone(), self.profile);
        blocking(move || resources::read(&engine, profile, &request.uri))
            .await
            .map(Into::into)
    }
}
