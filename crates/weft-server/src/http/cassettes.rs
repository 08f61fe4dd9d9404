//! `/v1/cassettes`: discovery, the documents of cassettes, requests to them; and `/openapi`, which has them
//! all.

use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use serde_json::{Map, Value, json};
use weft_core::cassette::{CONTRACT, aggregate, public_prefix};

use super::openapi;
use crate::cassettes::{Cassettes, Failure, Installed, forward};
use crate::client::passed_on;

/// Bytes of a request that is passed on, at most.
const MAX_BODY: usize = 32 << 20;

type Fleet = State<Cassettes>;

pub(super) fn routes(cassettes: Cassettes) -> Router {
    Router::new()
        .route("/openapi", get(whole))
        .route("/v1/cassettes", get(list))
        .route("/v1/cassettes/{name}/openapi.json", get(document))
        .route("/v1/cassettes/{name}", any(pass))
        .route("/v1/cassettes/{name}/", any(pass))
        .route("/v1/cassettes/{name}/{*rest}", any(pass))
        .with_state(cassettes)
}

/// An error of this surface: a stable code and a text.
fn failed(status: StatusCode, code: &str, message: impl Into<String>) -> Response {
    (
        status,
        Json(json!({"error": code, "message": message.into()})),
    )
        .into_response()
}

fn unknown(path: &str) -> Response {
    failed(
        StatusCode::NOT_FOUND,
        "unknown_cassette",
        format!("no cassette serves {path}"),
    )
}

/// `GET /openapi`.
async fn whole(State(cassettes): Fleet) -> Response {
    let fleet = cassettes.fleet();
    match aggregate(openapi::api(), fleet.installed.iter().map(|c| &*c.document)) {
        Ok(v) => Json(v).into_response(),
        Err(e) => failed(StatusCode::INTERNAL_SERVER_ERROR, "aggregate_failed", e),
    }
}

fn entry(c: &Installed) -> Value {
    let m = &c.document.manifest;
    let mut o = Map::new();
    let mut put = |k: &str, v: Value| o.insert(k.to_owned(), v);
    put("name", json!(m.name));
    for (k, v) in [
        ("version", &m.version),
        ("display_name", &m.display_name),
        ("description", &m.description),
    ] {
        if !v.is_empty() {
            put(k, json!(v));
        }
    }
    put("route_prefix", json!(public_prefix(&m.name)));
    if !m.audience.is_empty() {
        put("audience", json!(m.audience));
    }
    if let Some((core, views)) = &m.depends {
        put("depends", json!({"core": core, "views": views}));
    }
    let tables: Vec<String> = m.tables.iter().map(|t| format!("{}.{t}", m.name)).collect();
    put("tables", json!(tables));
    let config: Vec<Value> = m
        .config
        .iter()
        .map(|c| {
            let mut o =
                json!({"key": c.key, "type": c.kind, "required": c.required, "secret": c.secret});
            if let Some(d) = &c.default
                && !c.secret
            {
                o["default"] = d.clone();
            }
            if !c.description.is_empty() {
                o["description"] = json!(c.description);
            }
            o
        })
        .collect();
    put("config", json!(config));
    put(
        "openapi_path",
        json!(format!("{}/openapi.json", public_prefix(&m.name))),
    );
    put(
        "openapi_status",
        json!(if c.stale { "stale" } else { "fresh" }),
    );
    put("manifest_digest", json!(m.digest()));
    Value::Object(o)
}

/// `GET /v1/cassettes`.
async fn list(State(cassettes): Fleet) -> Json<Value> {
    let fleet = cassettes.fleet();
    let problems: Vec<Value> = fleet
        .problems
        .iter()
        .map(|(subject, reason)| json!({"subject": subject, "reason": reason}))
        .collect();
    Json(json!({
        "contract_version": CONTRACT,
        "cassettes": fleet.installed.iter().map(entry).collect::<Vec<_>>(),
        "problems": problems,
    }))
}

/// `GET /v1/cassettes/{name}/openapi.json`: there while the cassette is down.
async fn document(State(cassettes): Fleet, Path(name): Path<String>, request: Request) -> Response {
    let fleet = cassettes.fleet();
    let Some(c) = fleet.get(&name) else {
        return unknown(request.uri().path());
    };
    let tag = format!("\"{}\"", c.document.digest);
    let same = request
        .headers()
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|v| {
            matches!(v.trim().trim_start_matches("W/"), "*")
                || v.trim().trim_start_matches("W/") == tag
        });
    let etag = HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static(""));
    if same {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response();
    }
    let json = HeaderValue::from_static("application/json");
    (
        [(header::CONTENT_TYPE, json), (header::ETAG, etag)],
        c.document.bytes.clone(),
    )
        .into_response()
}

/// Any request under a cassette's name goes to the cassette.
async fn pass(State(cassettes): Fleet, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let behind = path.strip_prefix("/v1/cassettes/").unwrap_or_default();
    let name = behind.split('/').next().unwrap_or_default();
    let fleet = cassettes.fleet();
    let Some(to) = fleet.get(name) else {
        return unknown(path);
    };
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return failed(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            format!("a request to a cassette has at most {MAX_BODY} bytes"),
        );
    };
    let mut rest = behind[name.len()..].to_owned();
    if let Some(q) = parts.uri.query() {
        rest.push('?');
        rest.push_str(q);
    }
    match forward(&cassettes, to, &parts, &rest, body).await {
        Ok(response) => {
            let (head, body) = response.into_parts();
            let mut out = Response::new(Body::new(body));
            *out.status_mut() = head.status;
            *out.headers_mut() = passed_on(&head.headers, |_| false);
            out
        }
        Err(Failure::BadTarget(e)) => failed(StatusCode::BAD_GATEWAY, "bad_target", e),
        Err(Failure::Unavailable(e)) => failed(StatusCode::BAD_GATEWAY, "cassette_unavailable", e),
    }
}
