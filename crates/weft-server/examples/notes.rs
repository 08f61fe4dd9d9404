//! A cassette in Rust: notes that agents leave for each other.
//!
//! ```text
//! cargo run --example notes -- 127.0.0.1:9999
//! weft serve --cassettes http://127.0.0.1:9999/openapi
//! curl http://localhost:8081/v1/cassettes/notes/all
//! ```
//!
//! It offers two MCP tools, `notes.add` and `notes.list`, beside weft's own `search`.
#![allow(clippy::unwrap_used, reason = "an example")]

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

/// Notes are kept as long as the process runs; the oldest go first.
const MAX_NOTES: usize = 1_000;

type Notes = Arc<Mutex<Vec<Value>>>;

/// The document: the manifest in `x-tapes-cassette`, a tool where an operation has `x-tapes-mcp`.
fn document() -> Value {
    let object = |schema: Value| json!({"description": "done", "content": {"application/json": {"schema": schema}}});
    let list = json!({"type": "object", "properties": {"notes": {"type": "array", "items": {"$ref": "#/components/schemas/Note"}}}});
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Notes", "version": "0.1.0"},
        "x-tapes-cassette": {
            "kind": "cassette/v1alpha1",
            "cassette": {"name": "notes", "version": "0.1.0", "display_name": "Notes", "description": "Notes that agents leave for each other"},
            "depends": {"core": "v1"},
        },
        "paths": {
            "/api/notes/all": {"get": {"operationId": "all", "responses": {"200": object(list.clone())}}},
            "/api/notes/add": {"post": {
                "operationId": "add",
                "summary": "Leave a note",
                "description": "Leave a note for other agents, such as what you are working on. It is no decision: use decide for those.",
                "x-tapes-mcp": {"name": "add", "annotations": {"readOnlyHint": false, "destructiveHint": false}},
                "requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Note"}}}},
                "responses": {"200": object(json!({"type": "object", "properties": {"count": {"type": "integer"}}}))},
            }},
            "/api/notes/list": {"post": {
                "operationId": "list",
                "summary": "Read the notes",
                "x-tapes-mcp": {"name": "list", "annotations": {"readOnlyHint": true}},
                "requestBody": {"required": true, "content": {"application/json": {"schema": {"type": "object", "additionalProperties": false}}}},
                "responses": {"200": object(list)},
            }},
        },
        "components": {"schemas": {"Note": {
            "type": "object",
            "properties": {"text": {"type": "string", "minLength": 1}, "by": {"type": "string", "default": "somebody"}},
            "required": ["text"],
        }}},
    })
}

async fn openapi(headers: HeaderMap) -> Response {
    // The document is always the same, so its version is a good tag.
    const TAG: &str = "\"notes-0.1.0\"";
    if headers.get(header::IF_NONE_MATCH).is_some_and(|v| v == TAG) {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    ([(header::ETAG, TAG)], Json(document())).into_response()
}

async fn add(State(notes): State<Notes>, Json(note): Json<Value>) -> Response {
    let Some(text) = note["text"].as_str().filter(|t| !t.is_empty()) else {
        return (StatusCode::BAD_REQUEST, "text is required").into_response();
    };
    let by = note["by"].as_str().unwrap_or("somebody");
    let mut all = notes.lock().unwrap();
    all.push(json!({"text": text, "by": by}));
    let excess = all.len().saturating_sub(MAX_NOTES);
    all.drain(..excess);
    Json(json!({"count": all.len()})).into_response()
}

async fn list(State(notes): State<Notes>) -> Json<Value> {
    Json(json!({"notes": *notes.lock().unwrap()}))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:9999");
    let listener = tokio::net::TcpListener::bind(address).await?;
    writeln!(
        std::io::stdout(),
        "http://{}/openapi",
        listener.local_addr()?
    )?;
    let router = Router::new()
        .route("/ping", get(|| async { "pong" }))
        .route("/openapi", get(openapi))
        .route("/api/notes/all", get(list))
        .route("/api/notes/add", post(add))
        .route("/api/notes/list", post(list))
        .with_state(Notes::default());
    axum::serve(listener, router).await
}
