//! Session identities (truth) and their lists joined with what derivation found.

use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use serde_json::{Map, Value};
use weft_core::span::Rollup;
use weft_core::time::Micros;

use super::SqliteStore;
use crate::{
    Boundary, ListQuery, NewSession, Result, SessionFull, SessionKey, SessionRow, Sessions,
    SortField, StatsRow, StoreError,
};

/// The column that a list is sorted by.
fn column(field: SortField) -> &'static str {
    match field {
        SortField::LastActive => "s.last_seen_at",
        SortField::StartedAt => "s.started_at",
        SortField::TurnCount => "coalesce(r.turn_count, 0)",
        SortField::TotalCostUsd => "coalesce(r.total_cost_usd, 0.0)",
        SortField::TotalTokens => "coalesce(r.total_tokens, 0)",
        SortField::DurationNs => "(s.last_seen_at - s.started_at) * 1000",
        SortField::DerivedStatus => "coalesce(r.derived_status, 'unknown')",
        SortField::AuthSubject => "s.auth_subject",
    }
}

fn none_if_blank(s: &str) -> Option<&str> {
    (!s.trim().is_empty()).then_some(s)
}

/// Creates a session or merges what is new into it; returns its id.
pub(crate) fn upsert(c: &Connection, s: &NewSession) -> Result<String> {
    let find = |harness_session_id: &str| -> Result<Option<(String, String)>> {
        Ok(c.prepare_cached(
            "SELECT id, harness_metadata FROM sessions
             WHERE harness_id = ?1 AND harness_session_id = ?2",
        )?
        .query_row(params![s.key.harness_id, harness_session_id], |r| {
            Ok((r.get(0)?, r.get(1)?))
        })
        .optional()?)
    };
    let parent = match s.parent.as_str() {
        "" => None,
        p if p == s.key.harness_session_id => None,
        p => Some(match find(p)? {
            Some((id, _)) => id,
            None => {
                c.prepare_cached(
                    "INSERT INTO sessions (id, harness_id, harness_session_id, auth_subject,
                       started_at, last_seen_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
                )?
                .execute(params![
                    s.new_parent_id,
                    s.key.harness_id,
                    p,
                    s.auth_subject,
                    s.started_at
                ])?;
                s.new_parent_id.clone()
            }
        }),
    };
    match find(&s.key.harness_session_id)? {
        None => {
            c.prepare_cached(
                "INSERT INTO sessions (id, harness_id, harness_session_id, auth_subject, name, cwd,
                   harness_version, parent_session_id, started_at, last_seen_at, harness_metadata,
                   repository, source_path)
                 VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)",
            )?
            .execute(params![
                s.new_id,
                s.key.harness_id,
                s.key.harness_session_id,
                s.auth_subject,
                none_if_blank(&s.name),
                none_if_blank(&s.cwd),
                none_if_blank(&s.harness_version),
                parent,
                s.started_at,
                s.last_seen_at,
                Value::Object(s.metadata.clone()).to_string(),
                s.repository,
                s.source_path,
            ])?;
            Ok(s.new_id.clone())
        }
        Some((id, metadata)) => {
            let mut merged: Map<String, Value> =
                serde_json::from_str(&metadata).unwrap_or_default();
            merged.extend(s.metadata.clone());
            c.prepare_cached(
                "UPDATE sessions SET auth_subject = ?2, name = coalesce(?3, name),
                   cwd = coalesce(?4, cwd), harness_version = coalesce(?5, harness_version),
                   parent_session_id = coalesce(?6, parent_session_id),
                   started_at = min(started_at, ?7), last_seen_at = max(last_seen_at, ?8),
                   harness_metadata = ?9,
                   repository = CASE WHEN ?10 = '' THEN repository ELSE ?10 END,
                   source_path = CASE WHEN ?11 = '' THEN source_path ELSE ?11 END
                 WHERE id = ?1",
            )?
            .execute(params![
                id,
                s.auth_subject,
                none_if_blank(&s.name),
                none_if_blank(&s.cwd),
                none_if_blank(&s.harness_version),
                parent,
                s.started_at,
                s.last_seen_at,
                Value::Object(merged).to_string(),
                s.repository,
                s.source_path,
            ])?;
            Ok(id)
        }
    }
}

const COLUMNS: &str = "s.id, s.harness_id, s.harness_session_id, s.auth_subject, s.name, s.cwd,
  s.harness_version, s.parent_session_id, s.started_at, s.last_seen_at, s.ended_at,
  s.harness_metadata, s.display_name, s.repository, s.source_path, r.rollup, r.preview";

const FROM: &str = "FROM truth.sessions s LEFT JOIN rollups r ON r.session_id = s.id";

fn read(r: &Row<'_>) -> rusqlite::Result<SessionFull> {
    let text =
        |i: usize| Ok::<_, rusqlite::Error>(r.get::<_, Option<String>>(i)?.unwrap_or_default());
    Ok(SessionFull {
        row: SessionRow {
            id: r.get(0)?,
            key: SessionKey {
                harness_id: r.get(1)?,
                harness_session_id: r.get(2)?,
            },
            auth_subject: r.get(3)?,
            name: text(4)?,
            cwd: text(5)?,
            harness_version: text(6)?,
            parent_session_id: text(7)?,
            started_at: r.get(8)?,
            last_seen_at: r.get(9)?,
            ended_at: r.get(10)?,
            harness_metadata: serde_json::from_str(&text(11)?).unwrap_or_default(),
            display_name: text(12)?,
            repository: r.get(13)?,
            source_path: r.get(14)?,
        },
        rollup: serde_json::from_str(&text(15)?).unwrap_or_else(|_| Rollup {
            status: "unknown".into(),
            ..Rollup::default()
        }),
        preview: text(16)?,
    })
}

fn parse<T: std::str::FromStr>(value: &str) -> Result<T> {
    value
        .parse()
        .map_err(|_| StoreError::BadCursor(format!("not a boundary value: {value}")))
}

impl Sessions for SqliteStore {
    fn upsert_session(&self, session: NewSession) -> Result<String> {
        self.truth.run(move |c| upsert(c, &session))
    }

    fn session(&self, id: &str) -> Result<Option<SessionFull>> {
        self.readers.with(|c| {
            Ok(
                c.prepare_cached(&format!("SELECT {COLUMNS} {FROM} WHERE s.id = ?1"))?
                    .query_row([id], read)
                    .optional()?,
            )
        })
    }

    fn sessions_by_key(
        &self,
        harness_id: Option<&str>,
        harness_session_id: &str,
    ) -> Result<Vec<SessionFull>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(&format!(
                "SELECT {COLUMNS} {FROM} WHERE s.harness_session_id = ?1
                   AND (?2 IS NULL OR s.harness_id = ?2) ORDER BY s.harness_id"
            ))?;
            let rows = q.query_map(params![harness_session_id, harness_id], read)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    fn sessions_by_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<SessionFull>> {
        self.readers.with(|c| {
            let mut q = c.prepare_cached(&format!(
                "SELECT {COLUMNS} {FROM}
                 WHERE substr(s.id, 1, length(?1)) = ?1
                    OR substr(s.harness_session_id, 1, length(?1)) = ?1
                 ORDER BY s.last_seen_at DESC LIMIT ?2"
            ))?;
            let rows = q.query_map(params![prefix, limit as i64], read)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    fn list_sessions(&self, q: &ListQuery) -> Result<(Vec<SessionFull>, Option<Boundary>)> {
        let column = column(q.sort);
        let (order, compare) = if q.ascending {
            ("ASC", ">")
        } else {
            ("DESC", "<")
        };
        let mut wheres = vec!["1".to_owned()];
        let mut values: Vec<Box<dyn ToSql>> = Vec::new();
        let mut bind = |v: Box<dyn ToSql>| {
            values.push(v);
            format!("?{}", values.len())
        };
        if let Some(subject) = &q.auth_subject {
            wheres.push(format!(
                "s.auth_subject = {}",
                bind(Box::new(subject.clone()))
            ));
        }
        if let Some(harness) = &q.harness_id {
            wheres.push(format!(
                "s.harness_id = {}",
                bind(Box::new(harness.clone()))
            ));
        }
        if let Some(repository) = &q.repository {
            let b = bind(Box::new(repository.clone()));
            wheres.push(format!(
                "(s.repository = {b} OR substr(s.repository, -length({b}) - 1) = '/' || {b})"
            ));
        }
        if q.since.is_some() || q.until.is_some() {
            let since = bind(Box::new(q.since.unwrap_or(Micros::MIN)));
            let until = bind(Box::new(q.until.unwrap_or(Micros::MAX)));
            wheres.push(format!(
                "EXISTS (SELECT 1 FROM traces t WHERE t.session_id = s.id
                   AND t.started_at >= {since} AND t.started_at < {until})"
            ));
        }
        if let Some((value, id)) = &q.after {
            let value: Box<dyn ToSql> = match q.sort {
                s if s.is_text() => Box::new(value.clone()),
                SortField::TotalCostUsd => Box::new(parse::<f64>(value)?),
                _ => Box::new(parse::<i64>(value)?),
            };
            let (v, i) = (bind(value), bind(Box::new(id.clone())));
            wheres.push(format!("({column}, s.id) {compare} ({v}, {i})"));
        }
        let limit = bind(Box::new(q.limit as i64 + 1));
        let sql = format!(
            "SELECT {COLUMNS}, CAST({column} AS TEXT) {FROM} WHERE {}
             ORDER BY {column} {order}, s.id {order} LIMIT {limit}",
            wheres.join(" AND ")
        );
        self.readers.with(|c| {
            let mut statement = c.prepare_cached(&sql)?;
            let rows = statement.query_map(
                rusqlite::params_from_iter(values.iter().map(|v| &**v)),
                |r| Ok((read(r)?, r.get::<_, String>(17)?)),
            )?;
            let mut items: Vec<(SessionFull, String)> = rows.collect::<Result<_, _>>()?;
            let more = items.len() > q.limit;
            items.truncate(q.limit);
            let next = items
                .last()
                .filter(|_| more)
                .map(|(s, v)| (v.clone(), s.row.id.clone()));
            Ok((items.into_iter().map(|(s, _)| s).collect(), next))
        })
    }

    fn rename_session(&self, id: &str, name: Option<&str>) -> Result<bool> {
        let (id, name) = (id.to_owned(), name.map(str::to_owned));
        self.truth.run(move |c| {
            Ok(c.execute(
                "UPDATE sessions SET display_name = ?2 WHERE id = ?1",
                params![id, name],
            )? > 0)
        })
    }

    fn delete_session(&self, id: &str) -> Result<bool> {
        let id = id.to_owned();
        let removed: Vec<String> = self.truth.run(move |c| {
            let mut q = c.prepare(
                "WITH RECURSIVE t(id) AS (SELECT id FROM sessions WHERE id = ?1
                   UNION SELECT s.id FROM sessions s JOIN t ON s.parent_session_id = t.id)
                 SELECT id FROM t",
            )?;
            let ids: Vec<String> = q
                .query_map([&id], |r| r.get(0))?
                .collect::<Result<_, _>>()?;
            c.execute("DELETE FROM sessions WHERE id = ?1", [&id])?;
            Ok(ids)
        })?;
        let found = !removed.is_empty();
        for id in removed {
            self.remove_projection(&id)?;
        }
        Ok(found)
    }

    fn stats(
        &self,
        since: Option<Micros>,
        until: Option<Micros>,
        auth_subject: Option<&str>,
    ) -> Result<StatsRow> {
        self.readers.with(|c| {
            Ok(c.query_row(
                "SELECT count(DISTINCT t.session_id), count(*),
                   count(DISTINCT CASE WHEN r.derived_status = 'completed' THEN t.session_id END),
                   coalesce(sum(t.cost_usd), 0.0), coalesce(sum(t.input_tokens), 0),
                   coalesce(sum(t.output_tokens), 0),
                   coalesce(sum((t.ended_at - t.started_at) * 1000), 0),
                   coalesce(sum(t.tool_calls), 0)
                 FROM traces t LEFT JOIN rollups r ON r.session_id = t.session_id
                   LEFT JOIN truth.sessions s ON s.id = t.session_id
                 WHERE t.started_at >= ?1 AND t.started_at < ?2
                   AND (?3 IS NULL OR s.auth_subject = ?3)",
                params![
                    since.unwrap_or(Micros::MIN),
                    until.unwrap_or(Micros::MAX),
                    auth_subject
                ],
                |r| {
                    Ok(StatsRow {
                        session_count: r.get(0)?,
                        turn_count: r.get(1)?,
                        completed_count: r.get(2)?,
                        total_cost: r.get(3)?,
                        input_tokens: r.get(4)?,
                        output_tokens: r.get(5)?,
                        total_duration_ns: r.get(6)?,
                        tool_calls: r.get(7)?,
                    })
                },
            )?)
        })
    }
}
