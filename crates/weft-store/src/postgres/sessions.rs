//! Session identities (truth) and their lists with what derivation found.

use std::borrow::Cow;

use postgres::types::ToSql;
use serde_json::Value;
use uuid::Uuid;
use weft_core::span::Rollup;
use weft_core::time::Micros;

use super::PgStore;
use super::pool::{Conn, PgResult};
use super::types::{At, Json, id_text, json, object, text, uuid, value};
use crate::{
    Boundary, ListQuery, NewSession, Result, SessionFull, SessionKey, SessionRow, Sessions,
    SortField, StatsRow, StoreError,
};

fn none_if_blank(s: &str) -> Option<Cow<'_, str>> {
    (!s.trim().is_empty()).then(|| text(s))
}

fn new_id(s: &str) -> PgResult<Uuid> {
    uuid(s).ok_or_else(|| StoreError::Other(format!("{s:?} is not a UUID")).into())
}

/// A session row to be created or merged, in the form that the table has.
pub(super) struct Row<'a> {
    id: Uuid,
    harness: Cow<'a, str>,
    key: Cow<'a, str>,
    subject: Cow<'a, str>,
    name: Option<Cow<'a, str>>,
    cwd: Option<Cow<'a, str>>,
    version: Option<Cow<'a, str>>,
    parent: Option<Uuid>,
    started_at: At,
    last_seen_at: At,
    metadata: Json<'static>,
    repository: Cow<'a, str>,
    source_path: Cow<'a, str>,
}

impl<'a> Row<'a> {
    /// The row of a session; its parent is made where there is none yet.
    pub(super) fn of(c: &mut Conn, org: Uuid, s: &'a NewSession) -> PgResult<Self> {
        let metadata = Value::Object(s.metadata.clone()).to_string();
        Ok(Self {
            id: new_id(&s.new_id)?,
            harness: text(&s.key.harness_id),
            key: text(&s.key.harness_session_id),
            subject: text(&s.auth_subject),
            name: none_if_blank(&s.name),
            cwd: none_if_blank(&s.cwd),
            version: none_if_blank(&s.harness_version),
            parent: parent(c, org, s)?,
            started_at: At(s.started_at),
            last_seen_at: At(s.last_seen_at),
            metadata: Json(Cow::Owned(json(&metadata).0.0.into_owned())),
            repository: text(&s.repository),
            source_path: text(&s.source_path),
        })
    }

    /// The statement that creates it or merges what is new; `$1` is the organisation, its own values are
    /// added to `params`.
    pub(super) fn sql<'p>(&'p self, params: &mut Vec<&'p (dyn ToSql + Sync)>) -> String {
        let own: [&(dyn ToSql + Sync); 13] = [
            &self.id,
            &self.harness,
            &self.key,
            &self.subject,
            &self.name,
            &self.cwd,
            &self.version,
            &self.parent,
            &self.started_at,
            &self.last_seen_at,
            &self.metadata,
            &self.repository,
            &self.source_path,
        ];
        let first = params.len() + 1;
        params.extend(own);
        let places: Vec<String> = (first..first + 13).map(|n| format!("${n}")).collect();
        format!(
            "INSERT INTO sessions (org_id, id, harness_id, harness_session_id, auth_subject, name, cwd,
               harness_version, parent_session_id, started_at, last_seen_at, harness_metadata,
               repository, source_path)
             VALUES ($1,{})
             ON CONFLICT (org_id, harness_id, harness_session_id) DO UPDATE SET
               auth_subject = excluded.auth_subject, name = coalesce(excluded.name, sessions.name),
               cwd = coalesce(excluded.cwd, sessions.cwd),
               harness_version = coalesce(excluded.harness_version, sessions.harness_version),
               parent_session_id = coalesce(excluded.parent_session_id, sessions.parent_session_id),
               started_at = least(sessions.started_at, excluded.started_at),
               last_seen_at = greatest(sessions.last_seen_at, excluded.last_seen_at),
               harness_metadata = sessions.harness_metadata || excluded.harness_metadata,
               repository = CASE WHEN excluded.repository = '' THEN sessions.repository ELSE excluded.repository END,
               source_path = CASE WHEN excluded.source_path = '' THEN sessions.source_path ELSE excluded.source_path END
             RETURNING id",
            places.join(",")
        )
    }
}

/// The parent of a session, made where it is not known yet.
fn parent(c: &mut Conn, org: Uuid, s: &NewSession) -> PgResult<Option<Uuid>> {
    let p = s.parent.as_str();
    if p.is_empty() || p == s.key.harness_session_id {
        return Ok(None);
    }
    let harness = text(&s.key.harness_id);
    c.run(
        "INSERT INTO sessions (org_id, id, harness_id, harness_session_id, auth_subject,
           started_at, last_seen_at) VALUES ($1, $2, $3, $4, $5, $6, $6)
         ON CONFLICT (org_id, harness_id, harness_session_id) DO NOTHING",
        &[
            &org,
            &new_id(&s.new_parent_id)?,
            &harness,
            &text(p),
            &text(&s.auth_subject),
            &At(s.started_at),
        ],
    )?;
    let row = c.row(
        "SELECT id FROM sessions WHERE org_id = $1 AND harness_id = $2 AND harness_session_id = $3",
        &[&org, &harness, &text(p)],
    )?;
    Ok(row.map(|r| r.get(0)))
}

/// Creates a session or merges what is new into it; returns its id.
pub(super) fn upsert(c: &mut Conn, org: Uuid, s: &NewSession) -> PgResult<String> {
    let row = Row::of(c, org, s)?;
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&org];
    let sql = row.sql(&mut params);
    let id = c.row(&sql, &params)?;
    Ok(id_text(id.map(|r| r.get(0))))
}

const COLUMNS: &str = "s.id, s.harness_id, s.harness_session_id, s.auth_subject, s.name, s.cwd,
  s.harness_version, s.parent_session_id, s.started_at, s.last_seen_at, s.ended_at,
  s.harness_metadata, s.display_name, s.repository, s.source_path, s.rollup, s.preview";

fn read(r: &postgres::Row) -> SessionFull {
    let text = |i: usize| r.get::<_, Option<String>>(i).unwrap_or_default();
    let rollup: Option<Json<'static>> = r.get(15);
    SessionFull {
        row: SessionRow {
            id: id_text(r.get(0)),
            key: SessionKey {
                harness_id: r.get(1),
                harness_session_id: r.get(2),
            },
            auth_subject: r.get(3),
            name: text(4),
            cwd: text(5),
            harness_version: text(6),
            parent_session_id: id_text(r.get(7)),
            started_at: r.get::<_, At>(8).0,
            last_seen_at: r.get::<_, At>(9).0,
            ended_at: r.get::<_, Option<At>>(10).map(|t| t.0),
            harness_metadata: object(r.get(11)),
            display_name: text(12),
            repository: r.get(13),
            source_path: r.get(14),
        },
        rollup: rollup
            .and_then(|_| serde_json::from_value(value(r.get(15))).ok())
            .unwrap_or_else(|| Rollup {
                status: "unknown".into(),
                ..Rollup::default()
            }),
        preview: r.get(16),
    }
}

/// The column that a list is sorted by, and the type of its boundary.
fn column(field: SortField) -> (&'static str, &'static str) {
    match field {
        SortField::LastActive => ("s.last_seen_at", "timestamptz"),
        SortField::StartedAt => ("s.started_at", "timestamptz"),
        SortField::TurnCount => ("s.turn_count", "int"),
        SortField::TotalCostUsd => ("s.total_cost_usd", "numeric"),
        SortField::TotalTokens => ("s.total_tokens", "bigint"),
        SortField::DurationNs => ("s.duration_ns", "bigint"),
        SortField::DerivedStatus => ("s.derived_status COLLATE \"C\"", "text"),
        SortField::AuthSubject => ("s.auth_subject COLLATE \"C\"", "text"),
    }
}

fn bad_boundary(value: &str) -> StoreError {
    StoreError::BadCursor(format!("not a boundary value: {value}"))
}

impl Sessions for PgStore {
    fn upsert_session(&self, session: NewSession) -> Result<String> {
        self.pool.write(|c| upsert(c, self.org, &session))
    }

    fn session(&self, id: &str) -> Result<Option<SessionFull>> {
        let Some(id) = uuid(id) else { return Ok(None) };
        self.pool.read(|c| {
            let r = c.row(
                &format!("SELECT {COLUMNS} FROM sessions s WHERE s.org_id = $1 AND s.id = $2"),
                &[&self.org, &id],
            )?;
            Ok(r.as_ref().map(read))
        })
    }

    fn sessions_by_key(
        &self,
        harness_id: Option<&str>,
        harness_session_id: &str,
    ) -> Result<Vec<SessionFull>> {
        self.pool.read(|c| {
            let rows = c.rows(
                &format!(
                    "SELECT {COLUMNS} FROM sessions s WHERE s.org_id = $1 AND s.harness_session_id = $2
                       AND ($3::text IS NULL OR s.harness_id = $3) ORDER BY s.harness_id COLLATE \"C\""
                ),
                &[&self.org, &text(harness_session_id), &harness_id],
            )?;
            Ok(rows.iter().map(read).collect())
        })
    }

    fn sessions_by_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<SessionFull>> {
        self.pool.read(|c| {
            let rows = c.rows(
                &format!(
                    "SELECT {COLUMNS} FROM sessions s WHERE s.org_id = $1
                       AND (starts_with(s.id::text, $2) OR starts_with(s.harness_session_id, $2))
                     ORDER BY s.last_seen_at DESC LIMIT $3"
                ),
                &[&self.org, &text(prefix), &(limit as i64)],
            )?;
            Ok(rows.iter().map(read).collect())
        })
    }

    fn list_sessions(&self, q: &ListQuery) -> Result<(Vec<SessionFull>, Option<Boundary>)> {
        let (column, kind) = column(q.sort);
        let (order, compare) = if q.ascending {
            ("ASC", ">")
        } else {
            ("DESC", "<")
        };
        let mut wheres = vec!["true".to_owned()];
        let mut values: Vec<Box<dyn ToSql + Sync>> = vec![Box::new(self.org)];
        let mut bind = |v: Box<dyn ToSql + Sync>| {
            values.push(v);
            format!("${}", values.len())
        };
        for (name, value) in [
            ("auth_subject", &q.auth_subject),
            ("harness_id", &q.harness_id),
        ] {
            if let Some(v) = value {
                wheres.push(format!(
                    "s.{name} = {}",
                    bind(Box::new(text(v).into_owned()))
                ));
            }
        }
        if let Some(r) = &q.repository {
            let b = bind(Box::new(text(r).into_owned()));
            wheres.push(format!(
                "(s.repository = {b} OR right(s.repository, length({b}) + 1) = '/' || {b})"
            ));
        }
        if q.since.is_some() || q.until.is_some() {
            let since = bind(Box::new(At(q.since.unwrap_or(Micros::MIN))));
            let until = bind(Box::new(At(q.until.unwrap_or(Micros::MAX))));
            wheres.push(format!(
                "EXISTS (SELECT 1 FROM span_turns_20260615 t WHERE t.org_id = s.org_id
                   AND t.session_id = s.id AND t.started_at >= {since} AND t.started_at < {until})"
            ));
        }
        if let Some((boundary, id)) = &q.after {
            let id = uuid(id).ok_or_else(|| bad_boundary(id))?;
            let value: Box<dyn ToSql + Sync> = match kind {
                "text" => Box::new(text(boundary).into_owned()),
                "timestamptz" => {
                    Box::new(At(boundary.parse().map_err(|_| bad_boundary(boundary))?))
                }
                "numeric" => {
                    boundary
                        .parse::<f64>()
                        .map_err(|_| bad_boundary(boundary))?;
                    Box::new(boundary.clone())
                }
                "int" => Box::new(
                    boundary
                        .parse::<i32>()
                        .map_err(|_| bad_boundary(boundary))?,
                ),
                _ => Box::new(
                    boundary
                        .parse::<i64>()
                        .map_err(|_| bad_boundary(boundary))?,
                ),
            };
            let v = bind(value);
            let v = if kind == "numeric" {
                format!("{v}::text::numeric")
            } else {
                v
            };
            let i = bind(Box::new(id));
            wheres.push(format!("({column}, s.id) {compare} ({v}, {i})"));
        }
        let limit = bind(Box::new(q.limit as i64 + 1));
        let shown = match kind {
            "timestamptz" => format!("((EXTRACT(EPOCH FROM {column}) * 1000000)::bigint)::text"),
            _ => format!("({column})::text"),
        };
        let sql = format!(
            "SELECT {COLUMNS}, {shown} FROM sessions s WHERE s.org_id = $1 AND {}
             ORDER BY {column} {order}, s.id {order} LIMIT {limit}",
            wheres.join(" AND ")
        );
        self.pool.read(|c| {
            let params: Vec<&(dyn ToSql + Sync)> = values.iter().map(|v| &**v).collect();
            let rows = c.rows(&sql, &params)?;
            let more = rows.len() > q.limit;
            let items: Vec<(SessionFull, String)> = rows
                .iter()
                .take(q.limit)
                .map(|r| (read(r), r.get(17)))
                .collect();
            let next = items
                .last()
                .filter(|_| more)
                .map(|(s, v)| (v.clone(), s.row.id.clone()));
            Ok((items.into_iter().map(|i| i.0).collect(), next))
        })
    }

    fn rename_session(&self, id: &str, name: Option<&str>) -> Result<bool> {
        let Some(id) = uuid(id) else { return Ok(false) };
        self.pool.write(|c| {
            Ok(c.run(
                "UPDATE sessions SET display_name = $3 WHERE org_id = $1 AND id = $2",
                &[&self.org, &id, &name.map(text)],
            )? > 0)
        })
    }

    fn delete_session(&self, id: &str) -> Result<bool> {
        let Some(id) = uuid(id) else { return Ok(false) };
        self.pool.write(|c| {
            let rows = c.rows(
                "WITH RECURSIVE t(id) AS (SELECT id FROM sessions WHERE org_id = $1 AND id = $2
                   UNION SELECT s.id FROM sessions s JOIN t ON s.parent_session_id = t.id WHERE s.org_id = $1)
                 SELECT id FROM t",
                &[&self.org, &id],
            )?;
            let ids: Vec<Uuid> = rows.iter().map(|r| r.get(0)).collect();
            c.run(
                "INSERT INTO removed_documents (org_id, id, trace_id, span_id)
                 SELECT org_id, id, trace_id, span_id FROM span_documents
                 WHERE org_id = $1 AND session_id = ANY($2) ON CONFLICT DO NOTHING",
                &[&self.org, &ids],
            )?;
            Ok(c.run(
                "DELETE FROM sessions WHERE org_id = $1 AND id = $2",
                &[&self.org, &id],
            )? > 0)
        })
    }

    fn stats(
        &self,
        since: Option<Micros>,
        until: Option<Micros>,
        auth_subject: Option<&str>,
    ) -> Result<StatsRow> {
        self.pool.read(|c| {
            let r = c.row(
                "SELECT count(DISTINCT t.session_id), count(*),
                   count(DISTINCT CASE WHEN s.derived_status = 'completed' THEN t.session_id END),
                   coalesce(sum(t.cost_exact), 0.0), coalesce(sum(t.total_input_tokens), 0)::bigint,
                   coalesce(sum(t.total_output_tokens), 0)::bigint,
                   coalesce(sum(t.duration_ns), 0)::bigint, coalesce(sum(t.tool_calls), 0)::bigint
                 FROM span_turns_20260615 t
                   LEFT JOIN sessions s ON s.org_id = t.org_id AND s.id = t.session_id
                 WHERE t.org_id = $1 AND t.started_at >= $2 AND t.started_at < $3
                   AND ($4::text IS NULL OR s.auth_subject = $4)",
                &[
                    &self.org,
                    &At(since.unwrap_or(Micros::MIN)),
                    &At(until.unwrap_or(Micros::MAX)),
                    &auth_subject,
                ],
            )?;
            Ok(r.map_or_else(StatsRow::default, |r| StatsRow {
                session_count: r.get(0),
                turn_count: r.get(1),
                completed_count: r.get(2),
                total_cost: r.get(3),
                input_tokens: r.get(4),
                output_tokens: r.get(5),
                total_duration_ns: r.get(6),
                tool_calls: r.get(7),
            }))
        })
    }
}
