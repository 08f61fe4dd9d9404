//! Code search over HTTP: `/api/weave/{repo_id}/…`, as the weave document shows it.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use weft_engine::code::{CodeQuery, Kind, MAX_LIMIT, MAX_QUERY, SyncOptions, paths};
use weft_engine::{CodeError, CodeRepo, Engine};

use super::access::{Access, Scope};
use super::{ApiError, App, Params, blocking};
use crate::code_text;

const SEARCH_FIELDS: [&str; 5] = ["query", "workstream", "limit", "paths", "kinds"];

impl From<CodeError> for ApiError {
    fn from(e: CodeError) -> Self {
        let text = e.to_string();
        match e {
            CodeError::NoSuchRepository(_) => Self::not_found("repository not found"),
            CodeError::Git(weft_engine::code::GitError::NoSuchRef(_)) => Self::not_found(text),
            CodeError::Bad(_) => Self::bad(text),
            e => {
                tracing::error!(error = %e, "code search failed");
                Self(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "code search failed".into(),
                )
            }
        }
    }
}

/// The repository of an id, for a caller who may see it. Whether it exists is not told to others.
fn repository(engine: &Engine, access: &Access, id: &str) -> Result<CodeRepo, ApiError> {
    if !access.sees(id) {
        return Err(ApiError::not_found("repository not found"));
    }
    Ok(engine.code_repository_by_id(id)?)
}

fn admin(access: &Access) -> Result<(), ApiError> {
    if access.scope < Scope::Admin {
        return Err(ApiError(
            StatusCode::FORBIDDEN,
            "this needs a token of scope admin".into(),
        ));
    }
    Ok(())
}

/// A question from query parameters or from a body.
#[derive(Debug, Default)]
struct Asked {
    query: String,
    workstream: Option<String>,
    limit: Option<i64>,
    paths: Vec<String>,
    kinds: Vec<String>,
}

impl Asked {
    fn question(self) -> Result<CodeQuery, ApiError> {
        if self.query.trim().is_empty() {
            return Err(ApiError::bad("query is required"));
        }
        if self.query.chars().count() > MAX_QUERY {
            return Err(ApiError::bad("query must be at most 2000 characters"));
        }
        let limit = self.limit.unwrap_or(10);
        if !(1..=MAX_LIMIT as i64).contains(&limit) {
            return Err(ApiError::bad("limit must be between 1 and 50"));
        }
        let mut kinds = Vec::new();
        for k in self
            .kinds
            .iter()
            .flat_map(|k| k.split(','))
            .filter(|k| !k.trim().is_empty())
        {
            kinds.push(Kind::parse(k).ok_or_else(|| ApiError::bad(format!("unknown kind {k:?}")))?);
        }
        Ok(CodeQuery {
            query: self.query,
            limit: limit as usize,
            paths: paths::prefixes(&self.paths).map_err(ApiError::bad)?,
            kinds,
            workstream: self.workstream,
            background: true,
            // The API answers for the branch; what is on disk is the client's half.
            drafts: false,
            ..CodeQuery::default()
        })
    }
}

async fn search(
    engine: std::sync::Arc<Engine>,
    access: Access,
    id: String,
    asked: Asked,
) -> Result<Json<Value>, ApiError> {
    blocking(move || {
        let repo = repository(&engine, &access, &id)?;
        let q = asked.question()?;
        if let Err(why) = engine.embedder() {
            return Err(ApiError(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("unavailable: {why}"),
            ));
        }
        let mut a = engine.code_search(&repo, &q, &mut |_, _, _| {})?;
        if let Some(why) = a
            .notes
            .iter()
            .find(|n| n.starts_with("semantic search is not available"))
        {
            return Err(ApiError(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("unavailable: {why}"),
            ));
        }
        // The best hits by all evidence, in the order of their score.
        a.hits.sort_by(|x, y| {
            y.similarity
                .unwrap_or_default()
                .total_cmp(&x.similarity.unwrap_or_default())
        });
        Ok(Json(code_text::api(&a)))
    })
    .await?
}

/// `GET /api/weave/{repo_id}/search`.
pub(crate) async fn get(
    State(engine): App,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
    params: Params,
) -> Result<Json<Value>, ApiError> {
    let limit = match params.get("limit") {
        None => None,
        Some(l) => Some(
            l.parse()
                .map_err(|_| ApiError::bad("limit must be between 1 and 50"))?,
        ),
    };
    let asked = Asked {
        query: params
            .get("q")
            .or_else(|| params.get("query"))
            .unwrap_or_default()
            .to_owned(),
        workstream: params.get("workstream").map(str::to_owned),
        limit,
        paths: params.all("paths"),
        kinds: params.all("kinds"),
    };
    search(engine, access, id, asked).await
}

fn texts(v: &Value, name: &str) -> Result<Vec<String>, ApiError> {
    match v {
        Value::Null => Ok(Vec::new()),
        Value::String(s) => Ok(vec![s.clone()]),
        Value::Array(a) => a
            .iter()
            .map(|x| {
                x.as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| ApiError::bad(format!("{name} must be a list of strings")))
            })
            .collect(),
        _ => Err(ApiError::bad(format!("{name} must be a list of strings"))),
    }
}

/// A JSON object with known members only; an empty body is an empty object.
fn body(bytes: &Bytes, known: &[&str]) -> Result<Value, ApiError> {
    let v: Value = if bytes.is_empty() {
        json!({})
    } else {
        serde_json::from_slice(bytes).map_err(|e| ApiError::bad(format!("invalid JSON: {e}")))?
    };
    let Some(o) = v.as_object() else {
        return Err(ApiError::bad("the body must be a JSON object"));
    };
    if let Some(k) = o.keys().find(|k| !known.contains(&k.as_str())) {
        return Err(ApiError::bad(format!(
            "unknown field {k:?}; the fields are {}",
            known.join(", ")
        )));
    }
    Ok(v)
}

fn text(v: &Value, name: &str) -> Result<Option<String>, ApiError> {
    match v {
        Value::Null => Ok(None),
        Value::String(s) if s.is_empty() => Ok(None),
        Value::String(s) => Ok(Some(s.clone())),
        _ => Err(ApiError::bad(format!("{name} must be a string"))),
    }
}

fn flag(v: &Value, name: &str) -> Result<bool, ApiError> {
    match v {
        Value::Null => Ok(false),
        Value::Bool(b) => Ok(*b),
        _ => Err(ApiError::bad(format!("{name} must be true or false"))),
    }
}

/// `POST /api/weave/{repo_id}/search`.
pub(crate) async fn post(
    State(engine): App,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
    bytes: Bytes,
) -> Result<Json<Value>, ApiError> {
    let v = body(&bytes, &SEARCH_FIELDS)?;
    let limit = match &v["limit"] {
        Value::Null => None,
        l => Some(
            l.as_i64()
                .ok_or_else(|| ApiError::bad("limit must be between 1 and 50"))?,
        ),
    };
    let asked = Asked {
        query: text(&v["query"], "query")?.unwrap_or_default(),
        workstream: text(&v["workstream"], "workstream")?,
        limit,
        paths: texts(&v["paths"], "paths")?,
        kinds: texts(&v["kinds"], "kinds")?,
    };
    search(engine, access, id, asked).await
}

/// `GET /api/weave/{repo_id}/search/index`.
pub(crate) async fn index(
    State(engine): App,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    blocking(move || {
        let repo = repository(&engine, &access, &id)?;
        let rows = engine.code_status(&repo)?;
        let (skipped, failed) = engine.code_left_out(&repo)?;
        Ok(Json(crate::wire::code_index(
            &repo.id, &rows, &skipped, failed,
        )))
    })
    .await?
}

/// `POST /api/weave/{repo_id}/search/reindex`.
pub(crate) async fn reindex(
    State(engine): App,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let v = body(&bytes, &["workstream", "full", "wait"])?;
    let (workstream, full, wait) = (
        text(&v["workstream"], "workstream")?,
        flag(&v["full"], "full")?,
        flag(&v["wait"], "wait")?,
    );
    blocking(move || {
        let repo = repository(&engine, &access, &id)?;
        admin(&access)?;
        let work = {
            let (engine, repo, workstream) = (engine.clone(), repo.clone(), workstream.clone());
            move || {
                engine.code_sync(
                    &repo,
                    SyncOptions {
workstream,
full,
..SyncOptions::new(&mut |_, _, _| {})
},
                )
            }
        };
        if !wait {
            // An unknown branch is told now, not in a log.
            if let Some(w) = &workstream {
                engine.code_tip(&repo, w)?;
            }
            std::thread::spawn(move || {
                if let Err(e) = work() {
                    tracing::warn!(error = %e, "reindexing failed");
                }
            });
            let started = json!({"type": "code_reindex", "repo_id": id, "state": "started"});
            return Ok((StatusCode::ACCEPTED, Json(started)).into_response());
        }
        let r = work()?;
        let done = json!({
            "type": "code_reindex", "repo_id": id, "state": if r.complete { "done" } else { "incomplete" },
            "files": r.files, "read": r.read, "symbols": r.symbols, "embedded": r.embedded,
        });
        Ok((StatusCode::OK, Json(done)).into_response())
    })
    .await?
}

/// `POST /api/weave/{repo_id}/purge`.
pub(crate) async fn purge(
    State(engine): App,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
    bytes: Bytes,
) -> Result<Json<Value>, ApiError> {
    let v = body(&bytes, &["paths"])?;
    let given = texts(&v["paths"], "paths")?;
    blocking(move || {
        let repo = repository(&engine, &access, &id)?;
        admin(&access)?;
        let paths = paths::prefixes(&given).map_err(ApiError::bad)?;
        if paths.is_empty() {
            return Err(ApiError::bad(
                "paths is required: a list of paths inside of the repository",
            ));
        }
        let p = engine.code_purge(&repo, &paths)?;
        Ok(Json(json!({
            "type": "code_purge", "repo_id": repo.id, "paths": paths,
            "removed": {"file_versions": p.files, "symbols": p.symbols, "vectors": p.vectors},
        })))
    })
    .await?
}

/// `POST /api/index`: nothing on a device is ever sent for indexing.
pub(crate) async fn gone() -> Response {
    ApiError(
        StatusCode::GONE,
        "gone: nothing on a device is sent for indexing; repositories are indexed where they are"
            .into(),
    )
    .into_response()
}
