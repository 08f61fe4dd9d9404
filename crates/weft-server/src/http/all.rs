//! `GET /v1/search/all`: what was said, built and decided, in one list and one budget.

use axum::Json;
use axum::extract::{Extension, State};
use serde_json::Value;
use weft_engine::everything::{AllQuery, Corpus, MAX_LIMIT};
use weft_engine::{Filter, now};

use super::access::Access;
use super::{ApiError, App, Params, blocking};
use crate::all_text::{self, AllShape};

/// Tokens of an answer, unless asked for otherwise.
pub(crate) const BUDGET: usize = 4_000;

fn time(p: &Params, name: &str) -> Result<Option<i64>, ApiError> {
    let bad = || {
        ApiError::bad(format!(
            "{name}: want an RFC 3339 time, a day or an age such as 7d"
        ))
    };
    p.get(name)
        .map(|t| weft_engine::time_words(t).and_then(|r| r.0).ok_or_else(bad))
        .transpose()
}

pub(crate) async fn search(
    State(engine): App,
    Extension(access): Extension<Access>,
    p: Params,
) -> Result<Json<Value>, ApiError> {
    let query = p.query()?;
    let mut corpora = Corpus::parse_list(&p.all("in").join(",")).map_err(ApiError::bad)?;
    if access.is_narrow() {
        // Conversations belong to no repository surely.
        corpora.retain(|c| *c != Corpus::Spans);
    }
    let limit = p.number("limit", 10, MAX_LIMIT)?;
    let shape = AllShape {
        budget: p.number("budget", BUDGET, 1_000_000)?,
        json: true,
        explain: matches!(p.get("explain"), Some("true" | "1")),
        now: now(),
    };
    let q = AllQuery {
        query,
        corpora,
        limit,
        all_repos: matches!(p.get("all_repos"), Some("true" | "1")),
        folder: std::env::current_dir().ok(),
        background: true,
        visible: access.repositories.to_vec(),
        filter: Filter {
            since: time(&p, "since")?,
            until: time(&p, "until")?,
            ..super::search::scope(&p)?
        },
    };
    blocking(move || {
        let a = engine
            .search_everything(&q, &mut |_, _, _| {})
            .map_err(|e| {
                tracing::error!(error = %e, "search failed");
                ApiError(
                    axum::http::StatusCode::INTERNAL_SERVER_ERROR,
                    "search failed".into(),
                )
            })?;
        Ok(Json(all_text::value(&q.query, &a, shape)))
    })
    .await?
}
