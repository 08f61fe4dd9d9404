//! The OpenAPI documents of both surfaces.

use axum::Json;
use serde_json::{Map, Value, json};

/// Method, path, operation id, tag, summary, query parameters.
type Operation = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

const API: [Operation; 32] = [
    ("get", "/ping", "ping", "health", "Liveness", &[]),
    (
        "get",
        "/api/weave/{repo_id}/search",
        "searchCode",
        "code",
        "Code by what it does",
        &["q", "workstream", "limit", "paths", "kinds"],
    ),
    (
        "post",
        "/api/weave/{repo_id}/search",
        "searchCodeBody",
        "code",
        "Code by what it does; query, workstream, limit, paths and kinds in the body",
        &[],
    ),
    (
        "get",
        "/api/weave/{repo_id}/search/index",
        "getCodeIndex",
        "code",
        "Indexed head against head, a branch at a time, and what was left out",
        &[],
    ),
    (
        "post",
        "/api/weave/{repo_id}/search/reindex",
        "reindexCode",
        "code",
        "Bring the index up to date (admin); workstream, full and wait in the body",
        &[],
    ),
    (
        "post",
        "/api/weave/{repo_id}/purge",
        "purgeCode",
        "code",
        "Remove paths from every branch for good (admin)",
        &[],
    ),
    (
        "post",
        "/api/index",
        "sendIndex",
        "code",
        "410 Gone: nothing on a device is sent for indexing",
        &[],
    ),
    (
        "get",
        "/v1/workspaces",
        "listWorkspaces",
        "decisions",
        "Workspaces; every route of decisions is also under /v1/workspaces/{slug}",
        &[],
    ),
    (
        "get",
        "/v1/decisions/search",
        "searchDecisions",
        "decisions",
        "Decisions by meaning and words",
        &["query", "limit", "type", "status", "file"],
    ),
    (
        "get",
        "/v1/decisions",
        "listDecisions",
        "decisions",
        "Decisions, the newest first, a page at a time",
        &["limit", "cursor", "type", "status", "file", "stale"],
    ),
    (
        "post",
        "/v1/decisions",
        "recordDecision",
        "decisions",
        "Record a decision (write); 201, or 200 with the one that says nearly the same",
        &[],
    ),
    (
        "get",
        "/v1/decisions/{id}",
        "getDecision",
        "decisions",
        "One decision by id, path, slug or number, with what happened to it",
        &[],
    ),
    (
        "post",
        "/v1/decisions/{id}/supersede",
        "supersedeDecision",
        "decisions",
        "Put another decision in its place (write); by, or a new decision in the body",
        &[],
    ),
    (
        "post",
        "/v1/decisions/{id}/reaffirm",
        "reaffirmDecision",
        "decisions",
        "Say that it still holds (write); made_by and note in the body",
        &[],
    ),
    (
        "get",
        "/v1/search/all",
        "searchAll",
        "search",
        "Conversations, code and decisions in one list and one budget",
        &[
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
        ],
    ),
    (
        "get",
        "/v1/stats",
        "getStats",
        "stats",
        "Figures about traces in a window",
        &["since", "until", "auth_subject"],
    ),
    (
        "get",
        "/v1/sessions",
        "listSessions",
        "sessions",
        "Sessions, a page at a time",
        &[
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
        ],
    ),
    (
        "get",
        "/v1/sessions/{id}",
        "getSession",
        "sessions",
        "One session",
        &[],
    ),
    (
        "patch",
        "/v1/sessions/{id}",
        "updateSession",
        "sessions",
        "Give a session a name",
        &[],
    ),
    (
        "delete",
        "/v1/sessions/{id}",
        "deleteSession",
        "sessions",
        "Remove a session and what was derived from it",
        &[],
    ),
    (
        "get",
        "/v1/sessions/{id}/traces",
        "getSessionTraces",
        "sessions",
        "Traces, spans and links of a session",
        &["payload"],
    ),
    (
        "get",
        "/v1/sessions/{id}/raw_turns",
        "listRawTurns",
        "sessions",
        "Raw turns of a session",
        &[],
    ),
    (
        "get",
        "/v1/traces",
        "listTraces",
        "traces",
        "Traces of a session",
        &["session_id"],
    ),
    (
        "get",
        "/v1/traces/{trace_id}",
        "getTrace",
        "traces",
        "One trace with its spans",
        &["payload"],
    ),
    (
        "get",
        "/v1/traces/{trace_id}/spans/{span_id}",
        "getSpan",
        "traces",
        "One span",
        &[],
    ),
    (
        "get",
        "/v1/search/spans",
        "searchSpans",
        "search",
        "Embed the query and return the nearest main LLM spans",
        &[
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
        ],
    ),
    (
        "post",
        "/v1/admin/derive/run",
        "runDerive",
        "admin",
        "Derive every session again",
        &[],
    ),
    (
        "post",
        "/v1/admin/seed/demo",
        "seedDemo",
        "admin",
        "Add two invented sessions",
        &[],
    ),
    (
        "post",
        "/v1/mcp",
        "invokeMcp",
        "mcp",
        "MCP over streamable HTTP",
        &[],
    ),
    (
        "get",
        "/v1/mcp",
        "openMcpStream",
        "mcp",
        "Stateless: answers 405",
        &[],
    ),
    (
        "delete",
        "/v1/mcp",
        "closeMcpSession",
        "mcp",
        "Ends a session",
        &[],
    ),
    (
        "get",
        "/v1/cassettes/search/spans",
        "searchSpansCassette",
        "search",
        "The spelling of newer clients",
        &["query", "top_k"],
    ),
];

const INGEST: [Operation; 3] = [
    ("get", "/ping", "ingestPing", "health", "Liveness", &[]),
    (
        "post",
        "/v1/ingest",
        "ingestTurn",
        "ingest",
        "Store one completed turn",
        &[],
    ),
    (
        "post",
        "/v1/ingest/transcript",
        "ingestTranscript",
        "ingest",
        "Store one transcript file",
        &[],
    ),
];

fn schema(name: &str) -> Value {
    match name {
        "top_k" => json!({"type": "integer", "minimum": 1, "default": 5}),
        "limit" => json!({"type": "integer", "minimum": 1, "maximum": 200, "default": 50}),
        "since" | "until" => json!({"type": "string", "format": "date-time"}),
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
    for (method, path, id, tag, summary, query) in operations {
        let mut parameters: Vec<Value> = path
            .split('/')
            .filter_map(|s| s.strip_prefix('{')?.strip_suffix('}'))
            .map(|n| json!({"name": n, "in": "path", "required": true, "schema": {"type": "string"}}))
            .collect();
        parameters.extend(query.iter().map(|n| {
            json!({"name": n, "in": "query", "required": matches!((*id, *n), ("searchSpans", "query") | ("listTraces", "session_id")), "schema": schema(n)})
        }));
        let error = json!({"description": "Error", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}});
        let success = match *method {
            "delete" => "204",
            _ if *tag == "ingest" => "202",
            _ => "200",
        };
        let operation = json!({"operationId": id, "tags": [tag], "summary": summary,
            "parameters": parameters,
            "responses": {success: {"description": "Success"}, "default": error}});
        paths
            .entry((*path).to_owned())
            .or_insert_with(|| json!({}))
            .as_object_mut()
            .map(|o| o.insert((*method).to_owned(), operation));
    }
    json!({
        "openapi": "3.0.3",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": {"Error": {"type": "object", "required": ["error"],
            "properties": {"error": {"type": "string"}}}}},
    })
}

pub(super) async fn api() -> Json<Value> {
    Json(document("tapes", "v1", &API))
}

pub(super) async fn ingest() -> Json<Value> {
    Json(document("Tapes Ingest API", "1.0", &INGEST))
}
