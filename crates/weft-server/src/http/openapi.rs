//! The OpenAPI documents of both surfaces.

use axum::Json;
use serde_json::{Map, Value, json};

use super::schemas::{components, reference};

/// One operation.
#[derive(Clone, Copy)]
struct Operation {
    method: &'static str,
    path: &'static str,
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
    query: &'static [&'static str],
    body: &'static str,
    status: u16,
    /// Name of the answer's shape; `@lines` = JSON lines, `@pong` = the text of `/ping`, "" = JSON.
    answer: &'static str,
    errors: &'static [u16],
}

const fn op(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
) -> Operation {
    Operation {
        method,
        path,
        id,
        tag,
        summary,
        query: &[],
        body: "",
        status: 200,
        answer: "",
        errors: &[],
    }
}

impl Operation {
    const fn query(self, query: &'static [&'static str]) -> Self {
        Self { query, ..self }
    }

    const fn body(self, body: &'static str) -> Self {
        Self { body, ..self }
    }

    const fn gives(self, status: u16, answer: &'static str) -> Self {
        Self {
            status,
            answer,
            ..self
        }
    }

    const fn fails(self, errors: &'static [u16]) -> Self {
        Self { errors, ..self }
    }
}

const API: &[Operation] = &[
    op("get", "/ping", "ping", "health", "Liveness").gives(200, "@pong"),
    op(
        "get",
        "/api/weave/{repo_id}/search",
        "searchCode",
        "code",
        "Code by what it does",
    )
    .query(&["q", "workstream", "limit", "paths", "kinds"]),
    op(
        "post",
        "/api/weave/{repo_id}/search",
        "searchCodeBody",
        "code",
        "Code by what it does; query, workstream, limit, paths and kinds in the body",
    ),
    op(
        "get",
        "/api/weave/{repo_id}/search/index",
        "getCodeIndex",
        "code",
        "Indexed head against head, a branch at a time, and what was left out",
    ),
    op(
        "post",
        "/api/weave/{repo_id}/search/reindex",
        "reindexCode",
        "code",
        "Bring the index up to date (admin); workstream, full and wait in the body",
    ),
    op(
        "post",
        "/api/weave/{repo_id}/purge",
        "purgeCode",
        "code",
        "Remove paths from every branch for good (admin)",
    ),
    op(
        "post",
        "/api/index",
        "sendIndex",
        "code",
        "410 Gone: nothing on a device is sent for indexing",
    ),
    op(
        "get",
        "/v1/workspaces",
        "listWorkspaces",
        "decisions",
        "Workspaces; every route of decisions is also under /v1/workspaces/{slug}",
    ),
    op(
        "get",
        "/v1/decisions/search",
        "searchDecisions",
        "decisions",
        "Decisions by meaning and words",
    )
    .query(&["query", "limit", "type", "status", "file"]),
    op(
        "get",
        "/v1/decisions",
        "listDecisions",
        "decisions",
        "Decisions, the newest first, a page at a time",
    )
    .query(&["limit", "cursor", "type", "status", "file", "stale"]),
    op(
        "post",
        "/v1/decisions",
        "recordDecision",
        "decisions",
        "Record a decision (write); 201, or 200 with the one that says nearly the same",
    )
    .gives(201, ""),
    op(
        "get",
        "/v1/decisions/{id}",
        "getDecision",
        "decisions",
        "One decision by id, path, slug or number, with what happened to it",
    ),
    op(
        "post",
        "/v1/decisions/{id}/supersede",
        "supersedeDecision",
        "decisions",
        "Put another decision in its place (write); by, or a new decision in the body",
    ),
    op(
        "post",
        "/v1/decisions/{id}/reaffirm",
        "reaffirmDecision",
        "decisions",
        "Say that it still holds (write); made_by and note in the body",
    ),
    op(
        "get",
        "/v1/search/all",
        "searchAll",
        "search",
        "Conversations, code and decisions in one list and one budget",
    )
    .query(&[
        "query",
        "in",
        "limit",
        "budget",
        "repository",
        "agent",
        "role",
        "model",
        "tool",
        "file",
        "branch",
        "session_id",
        "since",
        "until",
    ]),
    op(
        "get",
        "/v1/stats",
        "getStats",
        "stats",
        "Figures about traces in a window",
    )
    .query(&["since", "until", "auth_subject"])
    .gives(200, "StatsResponse")
    .fails(&[400, 500]),
    op(
        "get",
        "/v1/sessions",
        "listSessions",
        "sessions",
        "Sessions, a page at a time",
    )
    .query(&[
        "limit",
        "sort",
        "direction",
        "cursor",
        "since",
        "until",
        "auth_subject",
        "harness_id",
        "harness_session_id",
        "repository",
    ])
    .gives(200, "SessionListResponse")
    .fails(&[400, 500]),
    op(
        "get",
        "/v1/sessions/{id}",
        "getSession",
        "sessions",
        "One session",
    )
    .gives(200, "SessionDetailResponse")
    .fails(&[400, 404, 500]),
    op(
        "patch",
        "/v1/sessions/{id}",
        "updateSession",
        "sessions",
        "Give a session a name",
    )
    .body("sessionUpdateRequest")
    .gives(200, "SessionDetailResponse")
    .fails(&[400, 404, 500]),
    op(
        "delete",
        "/v1/sessions/{id}",
        "deleteSession",
        "sessions",
        "Remove a session and what was derived from it",
    )
    .gives(204, "")
    .fails(&[400, 404, 500]),
    op(
        "get",
        "/v1/sessions/{id}/traces",
        "getSessionTraces",
        "sessions",
        "Traces, spans and links of a session",
    )
    .query(&["payload"])
    .gives(200, "SessionTracesResponse")
    .fails(&[400, 404, 500]),
    op(
        "get",
        "/v1/sessions/{id}/raw_turns",
        "listRawTurns",
        "sessions",
        "Raw turns of a session",
    )
    .gives(200, "RawTurnListResponse")
    .fails(&[400, 404, 500]),
    op(
        "get",
        "/v1/traces",
        "listTraces",
        "traces",
        "Traces of a session",
    )
    .query(&["session_id"])
    .gives(200, "TraceListResponse")
    .fails(&[400, 404, 500]),
    op(
        "get",
        "/v1/traces/{trace_id}",
        "getTrace",
        "traces",
        "One trace with its spans",
    )
    .query(&["payload"])
    .gives(200, "TraceDetail")
    .fails(&[404, 500]),
    op(
        "get",
        "/v1/traces/{trace_id}/spans/{span_id}",
        "getSpan",
        "traces",
        "One span",
    )
    .gives(200, "SpanItem")
    .fails(&[404, 500]),
    op(
        "get",
        "/v1/search/spans",
        "searchSpans",
        "search",
        "Embed the query and return the nearest main LLM spans",
    )
    .query(&[
        "query",
        "top_k",
        "mode",
        "session_id",
        "agent",
        "model",
        "role",
        "repository",
        "since",
        "until",
        "subagents",
    ])
    .gives(200, "SpanSearchOutput")
    .fails(&[400, 500, 503]),
    op(
        "post",
        "/v1/admin/derive/run",
        "runDerive",
        "admin",
        "Derive every session again",
    )
    .gives(200, "deriveRunResponse")
    .fails(&[500]),
    op(
        "post",
        "/v1/admin/seed/demo",
        "seedDemo",
        "admin",
        "Add two invented sessions",
    )
    .body("seedDemoRequest")
    .gives(200, "SeedResult")
    .fails(&[400, 500]),
    op(
        "post",
        "/v1/mcp",
        "invokeMcp",
        "mcp",
        "MCP over streamable HTTP",
    )
    .body("MCPRequest")
    .gives(200, "MCPResponse")
    .fails(&[400]),
    op(
        "get",
        "/v1/mcp",
        "openMcpStream",
        "mcp",
        "Stateless: answers 405",
    ),
    op(
        "delete",
        "/v1/mcp",
        "closeMcpSession",
        "mcp",
        "Ends a session",
    )
    .gives(200, "MCPResponse"),
    op(
        "get",
        "/v1/cassettes/search/spans",
        "searchSpansCassette",
        "search",
        "The spelling of newer clients",
    )
    .query(&["query", "top_k"])
    .gives(200, "SpanSearchOutput")
    .fails(&[400, 500, 503]),
    op(
        "post",
        "/v1/cassettes/search/spans",
        "searchSpansCassetteBody",
        "search",
        "The same with the arguments in the body",
    )
    .body("SpanSearchArguments")
    .gives(200, "SpanSearchOutput")
    .fails(&[400, 500, 503]),
    op(
        "get",
        "/v1/cassettes",
        "listCassettes",
        "cassettes",
        "The cassettes that are served; none in this version",
    )
    .gives(200, "Discovery"),
    op(
        "get",
        "/v1/sessions/export",
        "exportSessions",
        "sessions",
        "Sessions of a window as JSON lines, the newest first",
    )
    .query(&["since", "until", "detail"])
    .gives(200, "@lines")
    .fails(&[400, 500]),
    op(
        "get",
        "/v1/sessions/{id}/export",
        "exportSession",
        "sessions",
        "One session as a JSON line",
    )
    .query(&["detail"])
    .gives(200, "@lines")
    .fails(&[400, 404, 500]),
    op(
        "get",
        "/v1/cassettes/export/sessions/{id}",
        "exportSessionCassette",
        "sessions",
        "The spelling of newer clients",
    )
    .query(&["detail"])
    .gives(200, "@lines")
    .fails(&[400, 404, 500]),
    op(
        "post",
        "/v1/admin/raw-turns/attribution-repair",
        "repairRawTurnAttribution",
        "admin",
        "Correct whose turn a captured turn is",
    )
    .body("RawTurnAttributionRepairRequest")
    .gives(200, "RawTurnAttributionRepairResult")
    .fails(&[400, 404, 409, 500]),
];

const INGEST: &[Operation] = &[
    op("get", "/ping", "ingestPing", "health", "Liveness"),
    op(
        "post",
        "/v1/ingest",
        "ingestTurn",
        "ingest",
        "Store one completed turn",
    )
    .body("IngestTurn")
    .gives(202, "IngestAck")
    .fails(&[400, 413, 422, 502, 503]),
    op(
        "post",
        "/v1/ingest/transcript",
        "ingestTranscript",
        "ingest",
        "Store one transcript file",
    )
    .body("IngestTranscript")
    .gives(202, "TranscriptAck")
    .fails(&[400, 413, 503]),
];

fn schema(name: &str) -> Value {
    match name {
        "top_k" => json!({"type": "integer", "minimum": 1, "default": 5}),
        "limit" => json!({"type": "integer", "minimum": 1, "maximum": 200, "default": 50}),
        "since" | "until" => json!({"type": "string", "format": "date-time"}),
        "detail" => json!({"type": "string", "enum": ["spans", "traces"], "default": "spans"}),
        "session_id" => json!({"type": "string", "format": "uuid"}),
        "mode" => {
            json!({"type": "string", "enum": ["vector", "hybrid", "lexical"], "default": "vector"})
        }
        "role" => json!({"type": "string", "enum": ["user", "assistant", "tool"]}),
        "subagents" => {
            json!({"type": "string", "enum": ["include", "exclude", "only"], "default": "include"})
        }
        "direction" => json!({"type": "string", "enum": ["asc", "desc"], "default": "desc"}),
        "payload" => json!({"type": "string", "enum": ["full", "preview"], "default": "full"}),
        "sort" => json!({"type": "string", "default": "last_active", "enum":
            weft_engine::SortField::ALL.iter().map(|s| s.0).collect::<Vec<_>>()}),
        _ => json!({"type": "string"}),
    }
}

fn document(title: &str, version: &str, operations: &[Operation]) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for o in operations {
        let mut parameters: Vec<Value> = o
            .path
            .split('/')
            .filter_map(|s| s.strip_prefix('{')?.strip_suffix('}'))
            .map(|n| json!({"name": n, "in": "path", "required": true, "schema": {"type": "string"}}))
            .collect();
        parameters.extend(o.query.iter().map(|n| {
            json!({"name": n, "in": "query", "required": matches!((o.id, *n), ("searchSpans" | "searchSpansCassette", "query") | ("listTraces", "session_id")), "schema": schema(n)})
        }));
        let content = |name: &str| match name {
            "@lines" => json!({"application/x-ndjson": {"schema": {"type": "string"}}}),
            "@pong" => json!({"application/json": {"schema": {"type": "string"}}}),
            "" => json!({"application/json": {"schema": {}}}),
            name => json!({"application/json": {"schema": reference(name)}}),
        };
        let mut responses = Map::new();
        let success = match o.status {
            204 => json!({"description": "Done"}),
            _ => json!({"description": "Success", "content": content(o.answer)}),
        };
        responses.insert(o.status.to_string(), success);
        let error = json!({"description": "Error", "content": content("ErrorResponse")});
        for status in o.errors {
            responses.insert(status.to_string(), error.clone());
        }
        responses.insert("default".into(), error);
        let mut operation = json!({"operationId": o.id, "tags": [o.tag], "summary": o.summary,
            "parameters": parameters, "responses": responses});
        if !o.body.is_empty() {
            operation["requestBody"] =
                json!({"required": o.body != "seedDemoRequest", "content": content(o.body)});
        }
        paths
            .entry(o.path.to_owned())
            .or_insert_with(|| json!({}))
            .as_object_mut()
            .map(|methods| methods.insert(o.method.to_owned(), operation));
    }
    json!({
        "openapi": "3.0.3",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": components()},
    })
}

/// The document of the read API without its cassettes.
pub(super) fn api() -> Value {
    document("tapes", "v1", API)
}

pub(super) async fn ingest() -> Json<Value> {
    Json(document("Tapes Ingest API", "1.0", INGEST))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_document_has_the_routes_of_the_routers() {
        let sources = [include_str!("mod.rs"), include_str!("cassettes.rs")].concat();
        let routed: BTreeSet<String> = sources
            .split(".route(")
            .skip(1)
            .filter_map(|t| t.split('"').nth(1).map(str::to_owned))
            // What is behind a cassette's name is the business of its own document.
            .filter(|p| !p.starts_with("/v1/cassettes/{name}"))
            .filter(|p| p == "/ping" || p.starts_with("/v1/") || p.starts_with("/api/"))
            .collect();
        let all = API.iter().chain(INGEST);
        let told: BTreeSet<String> = all.map(|o| o.path.to_owned()).collect();
        let missing: Vec<_> = routed.difference(&told).collect();
        assert!(
            missing.is_empty(),
            "routes without a description: {missing:?}"
        );
        let stale: Vec<_> = told
            .difference(&routed)
            // Routes of their own modules.
            .filter(|p| !p.starts_with("/v1/decisions") && *p != "/v1/mcp")
            .collect();
        assert!(stale.is_empty(), "descriptions without a route: {stale:?}");
    }
}
