//! Decisions over HTTP: `/v1/decisions…`, and the same under `/v1/workspaces/{slug}`.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use weft_engine::decisions::decision::{Status, Type};
use weft_engine::decisions::{DecisionQuery, Recorded, Replacement};
use weft_engine::{CodeError, DecisionError, Decisions, Engine};

use super::access::Access;
use super::{ApiError, App, Params, blocking};
use crate::decision_text::{self, symbols_of, unknown_status, unknown_type};

const MAX_LIMIT: usize = 200;

impl From<DecisionError> for ApiError {
    fn from(e: DecisionError) -> Self {
        let text = match e.hint() {
            Some(h) => format!("{e}; {h}"),
            None => e.to_string(),
        };
        match e {
            DecisionError::NotFound(_) => Self::not_found("decision not found"),
            DecisionError::NoWorkspace(_) => Self::not_found("workspace not found"),
            DecisionError::Code(CodeError::NoSuchRepository(_)) => {
                Self::not_found("workspace not found")
            }
            DecisionError::Ambiguous { .. }
            | DecisionError::Bad(_)
            | DecisionError::WhichWorkspace(_) => Self::bad(text),
            DecisionError::Code(CodeError::Git(_)) => Self::bad(text),
            DecisionError::Conflict(_) => Self(StatusCode::CONFLICT, text),
            e => {
                tracing::error!(error = %e, "decisions failed");
                Self(StatusCode::INTERNAL_SERVER_ERROR, "decisions failed".into())
            }
        }
    }
}

/// The workspace of a request, for a caller who may see it.
pub(crate) fn workspace<'a>(
    engine: &'a Engine,
    access: &Access,
    slug: Option<&str>,
) -> Result<Decisions<'a>, ApiError> {
    let hidden = || ApiError::not_found("workspace not found");
    if let Some(s) = slug {
        let d = engine.decisions_of(s)?;
        return if access.sees(&d.workspace.repo_id) {
            Ok(d)
        } else {
            Err(hidden())
        };
    }
    let here = std::env::current_dir().map_err(|e| ApiError::bad(e.to_string()))?;
    let known = engine
        .store()
        .workspaces()
        .map_err(ApiError::failed("failed to read workspaces"))?;
    let seen: Vec<_> = known.iter().filter(|w| access.sees(&w.repo_id)).collect();
    match engine.decisions_at(&here) {
        Ok(d) if access.sees(&d.workspace.repo_id) => Ok(d),
        // A server that runs nowhere in particular keeps what it is told.
        Err(DecisionError::Code(CodeError::Git(_))) if known.is_empty() => {
            Ok(engine.decisions_named("default")?)
        }
        _ => match seen.as_slice() {
            [one] => Ok(engine.decisions_of(&one.slug)?),
            [] => Err(hidden()),
            many => Err(DecisionError::WhichWorkspace(
                many.iter().map(|w| w.slug.clone()).collect(),
            )
            .into()),
        },
    }
}

/// The slug and the id that a path holds; either may be missing.
#[derive(Debug, Default, serde::Deserialize)]
pub(crate) struct Place {
    slug: Option<String>,
    id: Option<String>,
}

fn kind(p: &Params) -> Result<Option<Type>, ApiError> {
    let given = p.get("type").or_else(|| p.get("decision_type"));
    given
        .map(|t| Type::parse(t).ok_or_else(|| ApiError::bad(unknown_type(t))))
        .transpose()
}

fn status(p: &Params) -> Result<Option<Status>, ApiError> {
    p.get("status")
        .map(|s| Status::parse(s).ok_or_else(|| ApiError::bad(unknown_status(s))))
        .transpose()
}

/// `GET …/decisions/search`.
pub(crate) async fn search(
    State(engine): App,
    Extension(access): Extension<Access>,
    Path(place): Path<Place>,
    p: Params,
) -> Result<Json<Value>, ApiError> {
    let query = p.query()?;
    let q = DecisionQuery {
        query,
        limit: p.number("limit", 10, MAX_LIMIT)?,
        kind: kind(&p)?,
        status: status(&p)?,
        file: p.get("file").map(str::to_owned),
        ..DecisionQuery::default()
    };
    blocking(move || {
        let d = workspace(&engine, &access, place.slug.as_deref())?;
        Ok(Json(decision_text::search_json(&d.search(&q)?)))
    })
    .await?
}

/// `GET …/decisions`: the newest first, a page at a time.
pub(crate) async fn list(
    State(engine): App,
    Extension(access): Extension<Access>,
    Path(place): Path<Place>,
    p: Params,
) -> Result<Json<Value>, ApiError> {
    let (limit, kind, status) = (p.number("limit", 50, MAX_LIMIT)?, kind(&p)?, status(&p)?);
    let only_stale = match p.get("stale") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(ApiError::bad("stale must be true or false")),
    };
    blocking(move || {
        let d = workspace(&engine, &access, place.slug.as_deref())?;
        let (loaded, sync) = d.current()?;
        let governing = p.get("file").map(|f| d.for_file(&loaded, f));
        let mut places: Vec<usize> = (0..loaded.all.len())
            .filter(|i| kind.is_none_or(|k| loaded.all[*i].kind() == k))
            .filter(|i| status.is_none_or(|s| loaded.all[*i].status == s))
            .filter(|i| governing.as_ref().is_none_or(|g| g.contains(i)))
            .collect();
        places.sort_by(|a, b| {
            let (a, b) = (&loaded.all[*a], &loaded.all[*b]);
            (b.created_at, &b.id).cmp(&(a.created_at, &a.id))
        });
        if let Some(after) = p.get("cursor") {
            let at = places
                .iter()
                .position(|i| loaded.all[*i].id == after)
                .ok_or_else(|| {
                    ApiError::bad("invalid cursor: no decision of this list has this id")
                })?;
            places.drain(..=at);
        }
        let mut stale = Default::default();
        if only_stale {
            stale = d.stale(&loaded, &places)?;
            places.retain(|i| stale.contains_key(&loaded.all[*i].id));
        }
        let more = places.len() > limit;
        places.truncate(limit);
        if !only_stale {
            stale = d.stale(&loaded, &places)?;
        }
        let symbols = d.symbols()?;
        let mut items = Vec::with_capacity(places.len());
        for i in &places {
            let full = d.with_text(&loaded, *i)?;
            items.push(decision_text::object(
                &full,
                None,
                symbols_of(&symbols, &full.id),
                stale.get(&full.id),
            ));
        }
        let mut v = json!({"items": items});
        if more && let Some(last) = places.last() {
            v["next_cursor"] = json!(loaded.all[*last].id);
        }
        if !sync.problems.is_empty() {
            v["unreadable"] = decision_text::problems(&sync.problems);
        }
        Ok(Json(v))
    })
    .await?
}

/// One decision as JSON.
fn shown(d: &Decisions<'_>, name: &str) -> Result<Value, ApiError> {
    let (loaded, _) = d.current()?;
    let i = loaded.find(name)?;
    let full = d.with_text(&loaded, i)?;
    let stale = d.stale(&loaded, &[i])?;
    let symbols = d.symbols()?;
    let mut o = decision_text::object(
        &full,
        None,
        symbols_of(&symbols, &full.id),
        stale.get(&full.id),
    );
    let events: Vec<Value> = d
        .events(&full.id)?
        .iter()
        .map(|e| json!({"kind": e.kind, "made_by": e.made_by, "note": e.note, "at": weft_core::time::format_micros(e.at)}))
        .collect();
    o.insert("events".into(), json!(events));
    Ok(Value::Object(o))
}

/// `GET …/decisions/{id}`.
pub(crate) async fn get(
    State(engine): App,
    Extension(access): Extension<Access>,
    Path(place): Path<Place>,
) -> Result<Json<Value>, ApiError> {
    blocking(move || {
        let d = workspace(&engine, &access, place.slug.as_deref())?;
        Ok(Json(shown(&d, &place.id.unwrap_or_default())?))
    })
    .await?
}

fn body(bytes: &Bytes) -> Result<Map<String, Value>, ApiError> {
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(o)) => Ok(o),
        Ok(_) => Err(ApiError::bad("the body must be a JSON object")),
        Err(e) => Err(ApiError::bad(format!("invalid JSON: {e}"))),
    }
}

/// Refuses members that nothing would be done with.
fn known(o: &Map<String, Value>, names: &[&str]) -> Result<(), ApiError> {
    match o.keys().find(|k| !names.contains(&k.as_str())) {
        Some(k) => Err(ApiError::bad(format!(
            "unknown field {k:?}; the fields are {}",
            names.join(", ")
        ))),
        None => Ok(()),
    }
}

fn answer(r: &Recorded, workspace: &str) -> Response {
    let status = match r {
        Recorded::New(_) => StatusCode::CREATED,
        Recorded::Near(_) => StatusCode::OK,
    };
    (status, Json(decision_text::recorded_json(r, workspace))).into_response()
}

/// `POST …/decisions`.
pub(crate) async fn post(
    State(engine): App,
    Extension(access): Extension<Access>,
    Path(place): Path<Place>,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let new = decision_text::new_decision(&body(&bytes)?).map_err(ApiError::bad)?;
    blocking(move || {
        let d = workspace(&engine, &access, place.slug.as_deref())?;
        Ok(answer(&d.record(new)?, &d.workspace.slug))
    })
    .await?
}

/// `POST …/decisions/{id}/supersede`: `{"by": …}` names one that is there, a new decision records one.
pub(crate) async fn supersede(
    State(engine): App,
    Extension(access): Extension<Access>,
    Path(place): Path<Place>,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let o = body(&bytes)?;
    let with = match (o.get("by").and_then(Value::as_str), o.contains_key("title")) {
        (Some(by), false) => {
            known(&o, &["by", "made_by"])?;
            Replacement::Existing(by.to_owned())
        }
        (_, true) => Replacement::New(decision_text::new_decision(&o).map_err(ApiError::bad)?),
        _ => {
            return Err(ApiError::bad(
                "give by (the id of the decision that replaces it), or a new decision with title and rationale",
            ));
        }
    };
    let who = o
        .get("made_by")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    blocking(move || {
        let d = workspace(&engine, &access, place.slug.as_deref())?;
        let r = d.supersede(&place.id.unwrap_or_default(), with, &who)?;
        Ok(answer(&r, &d.workspace.slug))
    })
    .await?
}

/// `POST …/decisions/{id}/reaffirm`.
pub(crate) async fn reaffirm(
    State(engine): App,
    Extension(access): Extension<Access>,
    Path(place): Path<Place>,
    bytes: Bytes,
) -> Result<Json<Value>, ApiError> {
    let o = body(&bytes)?;
    known(&o, &["made_by", "note"])?;
    let text = |n: &str| {
        o.get(n)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (by, note) = (text("made_by"), text("note"));
    blocking(move || {
        let d = workspace(&engine, &access, place.slug.as_deref())?;
        let done = d.reaffirm(&place.id.unwrap_or_default(), &by, &note)?;
        Ok(Json(shown(&d, &done.id)?))
    })
    .await?
}

/// `GET /v1/workspaces`.
pub(crate) async fn workspaces(
    State(engine): App,
    Extension(access): Extension<Access>,
) -> Result<Json<Value>, ApiError> {
    blocking(move || {
        let all = engine
            .store()
            .workspaces()
            .map_err(ApiError::failed("failed to list workspaces"))?;
        let items: Vec<Value> = all
            .iter()
            .filter(|w| access.sees(&w.repo_id))
            .map(|w| json!({"slug": w.slug, "repo_id": w.repo_id}))
            .collect();
        Ok(Json(json!({"items": items})))
    })
    .await?
}
