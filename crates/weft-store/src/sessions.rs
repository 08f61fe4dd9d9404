//! Session identities (truth) and their lists joined with what derivation found.

use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use serde_json::{Map, Value};
use weft_core::span::Rollup;
use weft_core::time::Micros;

use crate::{Result, Store, StoreError};

/// A session as its harness names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// The agent program.
    pub harness_id: String,
    /// Its id of the session.
    pub harness_session_id: String,
}

/// What a turn says about its session.
#[derive(Clone, Debug, Default)]
pub struct NewSession {
    /// Id to use where the session is new.
    pub new_id: String,
    /// Id to use where a parent has to be created.
    pub new_parent_id: String,
    /// The session.
    pub key: SessionKey,
    /// Who runs the agent.
    pub auth_subject: String,
    /// Name of the session.
    pub name: String,
    /// Working directory.
    pub cwd: String,
    /// Version of the harness.
    pub harness_version: String,
    /// The parent's id of the same harness; "" = none.
    pub parent: String,
    /// Further facts; merged with what is known.
    pub metadata: Map<String, Value>,
    /// The repository that `cwd` belongs to.
    pub repository: String,
    /// Transcript file that it was imported from.
    pub source_path: String,
    /// First sign of life.
    pub started_at: Micros,
    /// Last sign of life.
    pub last_seen_at: Micros,
}

/// One session, as stored.
#[derive(Clone, Debug, Default)]
pub struct SessionRow {
    /// UUID.
    pub id: String,
    /// As its harness names it.
    pub key: SessionKey,
    /// Who runs the agent.
    pub auth_subject: String,
    /// Name.
    pub name: String,
    /// Working directory.
    pub cwd: String,
    /// Version of the harness.
    pub harness_version: String,
    /// Parent session's UUID; "" = none.
    pub parent_session_id: String,
    /// First sign of life.
    pub started_at: Micros,
    /// Last sign of life.
    pub last_seen_at: Micros,
    /// End, where somebody said so.
    pub ended_at: Option<Micros>,
    /// Further facts.
    pub harness_metadata: Map<String, Value>,
    /// Name that a user gave it.
    pub display_name: String,
    /// The repository that it worked in.
    pub repository: String,
    /// Transcript file that it was imported from.
    pub source_path: String,
}

/// A session with what derivation found.
#[derive(Clone, Debug, Default)]
pub struct SessionFull {
    /// Identity.
    pub row: SessionRow,
    /// Sums and facts; the default where the session is not derived yet.
    pub rollup: Rollup,
    /// Whole prompt of the first real turn.
    pub preview: String,
}

/// Columns that a list can be sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortField {
    /// Last sign of life.
    #[default]
    LastActive,
    /// First sign of life.
    StartedAt,
    /// Number of turns.
    TurnCount,
    /// Cost.
    TotalCostUsd,
    /// Tokens.
    TotalTokens,
    /// Time between the first and the last sign of life.
    DurationNs,
    /// Status.
    DerivedStatus,
    /// Who runs the agent.
    AuthSubject,
}

impl SortField {
    /// All of them with their names.
    pub const ALL: [(&'static str, Self); 8] = [
        ("last_active", Self::LastActive),
        ("started_at", Self::StartedAt),
        ("turn_count", Self::TurnCount),
        ("total_cost_usd", Self::TotalCostUsd),
        ("total_tokens", Self::TotalTokens),
        ("duration_ns", Self::DurationNs),
        ("derived_status", Self::DerivedStatus),
        ("auth_subject", Self::AuthSubject),
    ];

    /// Whether the column holds text.
    pub fn is_text(self) -> bool {
        matches!(self, Self::DerivedStatus | Self::AuthSubject)
    }

    fn sql(self) -> &'static str {
        match self {
            Self::LastActive => "s.last_seen_at",
            Self::StartedAt => "s.started_at",
            Self::TurnCount => "coalesce(r.turn_count, 0)",
            Self::TotalCostUsd => "coalesce(r.total_cost_usd, 0.0)",
            Self::TotalTokens => "coalesce(r.total_tokens, 0)",
            Self::DurationNs => "(s.last_seen_at - s.started_at) * 1000",
            Self::DerivedStatus => "coalesce(r.derived_status, 'unknown')",
            Self::AuthSubject => "s.auth_subject",
        }
    }
}

/// A page of the session list.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// Column to sort by.
    pub sort: SortField,
    /// Smallest first.
    pub ascending: bool,
    /// Boundary of the page before: the sort column's value and the id.
    pub after: Option<Boundary>,
    /// Only sessions with a trace started at or after this.
    pub since: Option<Micros>,
    /// Only sessions with a trace started before this.
    pub until: Option<Micros>,
    /// Only sessions of this subject.
    pub auth_subject: Option<String>,
    /// Only sessions of this repository (identity or its last part).
    pub repository: Option<String>,
    /// Only sessions of this harness.
    pub harness_id: Option<String>,
    /// Rows to return.
    pub limit: usize,
}

/// Where a page of the list ends: the sort column's value and the id.
pub type Boundary = (String, String);

/// Sums over traces.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StatsRow {
    /// Distinct sessions.
    pub session_count: i64,
    /// Traces.
    pub turn_count: i64,
    /// Distinct completed sessions.
    pub completed_count: i64,
    /// Cost, US dollars.
    pub total_cost: f64,
    /// Input tokens.
    pub input_tokens: i64,
    /// Output tokens.
    pub output_tokens: i64,
    /// Duration of all traces, nanoseconds.
    pub total_duration_ns: i64,
    /// Tool spans.
    pub tool_calls: i64,
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

impl Store {
    /// Creates a session or merges what is new into it; returns its id.
    pub fn upsert_session(&self, session: NewSession) -> Result<String> {
        self.truth.run(move |c| upsert(c, &session))
    }

    /// One session by id.
    pub fn session(&self, id: &str) -> Result<Option<SessionFull>> {
        self.readers.with(|c| {
            Ok(
                c.prepare_cached(&format!("SELECT {COLUMNS} {FROM} WHERE s.id = ?1"))?
                    .query_row([id], read)
                    .optional()?,
            )
        })
    }

    /// Sessions with this harness session id, of one harness or of all, by harness.
    pub fn sessions_by_key(
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

    /// Sessions whose id, or harness session id, starts with `prefix`; at most `limit`.
    pub fn sessions_by_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<SessionFull>> {
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

    /// A page of sessions; the second value is the boundary of the page after it, where there is one.
    pub fn list_sessions(&self, q: &ListQuery) -> Result<(Vec<SessionFull>, Option<Boundary>)> {
        let column = q.sort.sql();
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

    /// Gives a session a name of the user's own, or takes it away; false where there is no such session.
    pub fn rename_session(&self, id: &str, name: Option<&str>) -> Result<bool> {
        let (id, name) = (id.to_owned(), name.map(str::to_owned));
        self.truth.run(move |c| {
            Ok(c.execute(
                "UPDATE sessions SET display_name = ?2 WHERE id = ?1",
                params![id, name],
            )? > 0)
        })
    }

    /// Removes a session, its children and everything derived from them; raw turns stay. False
    /// where there is no such session.
    pub fn delete_session(&self, id: &str) -> Result<bool> {
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

    /// Sums over the traces that started in a window, of one subject or of all.
    pub fn stats(
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

fn parse<T: std::str::FromStr>(value: &str) -> Result<T> {
    value
        .parse()
        .map_err(|_| StoreError::BadCursor(format!("not a boundary value: {value}")))
}
