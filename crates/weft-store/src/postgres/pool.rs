//! Connections: a bounded pool, statements prepared once each, and what is tried again.
//!
//! A read whose connection was lost is tried once more on a new one. A write runs in a transaction
//! and is tried again where the database says that it was undone (deadlock, serialization) and where
//! the connection was lost before the commit was sent. A lost answer to the commit itself is tried
//! again only where doing it twice is the same as doing it once.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use postgres::error::SqlState;
use postgres::types::ToSql;
use postgres::{Client, Config, Row, Statement};

use super::tls::Tls;
use crate::StoreError;

/// Connections of one process, at most.
const MAX_CONNECTIONS: usize = 16;
/// How long a caller waits for a connection, and the server for a lock.
const WAIT: Duration = Duration::from_secs(10);
/// Idle connections that are kept.
const MAX_IDLE: usize = 8;
/// Statements prepared on one connection, at most.
const MAX_STATEMENTS: usize = 256;
/// How often a transaction that the database undid is run.
const ATTEMPTS: u32 = 10;

/// Candidates that a search of the HNSW index keeps: five times what a search for ten hits asks for. Fewer
/// are faster and miss too much (`cargo xtask bench postgres`).
pub(crate) const EF_SEARCH: usize = 200;
/// Rows that an HNSW scan may visit while a filter leaves too few.
const MAX_SCAN: usize = 200_000;

/// Limits of a session, where the DSN's `options` set no other: a statement that takes longer is
/// stopped by the server.
const LIMITS: [(&str, &str); 3] = [
    ("statement_timeout", "60s"),
    ("lock_timeout", "10s"),
    ("idle_in_transaction_session_timeout", "5min"),
];

/// Why something inside the pool failed.
#[derive(Debug)]
pub(crate) enum Fail {
    /// The connection is gone.
    Lost(String),
    /// The database undid the transaction and it can be run again.
    Undone(String),
    /// Anything else.
    Store(StoreError),
}

pub(crate) type PgResult<T> = Result<T, Fail>;

impl From<StoreError> for Fail {
    fn from(e: StoreError) -> Self {
        Self::Store(e)
    }
}

impl From<Fail> for StoreError {
    fn from(f: Fail) -> Self {
        match f {
            Fail::Lost(e) => Self::Unavailable(e),
            Fail::Undone(e) => Self::Busy(e),
            Fail::Store(e) => e,
        }
    }
}

impl From<postgres::Error> for Fail {
    fn from(e: postgres::Error) -> Self {
        let Some(db) = e.as_db_error() else {
            let mut text = e.to_string();
            if let Some(cause) = std::error::Error::source(&e) {
                text = format!("{text}: {cause}");
            }
            return if e.is_closed() || connection_failed(&e) {
                Self::Lost(text)
            } else {
                Self::Store(StoreError::Other(text))
            };
        };
        let text = match db.detail() {
            Some(d) => format!("{} ({d})", db.message()),
            None => db.message().to_owned(),
        };
        let code = db.code();
        if [
            &SqlState::ADMIN_SHUTDOWN,
            &SqlState::CRASH_SHUTDOWN,
            &SqlState::CANNOT_CONNECT_NOW,
            &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ]
        .contains(&code)
            || code.code().starts_with("08")
        {
            return Self::Lost(text);
        }
        if [
            &SqlState::T_R_SERIALIZATION_FAILURE,
            &SqlState::T_R_DEADLOCK_DETECTED,
        ]
        .contains(&code)
        {
            return Self::Undone(text);
        }
        Self::Store(match code {
            c if *c == SqlState::TOO_MANY_CONNECTIONS => StoreError::Busy(format!(
                "the connection limit of the database is reached: {text}"
            )),
            c if *c == SqlState::QUERY_CANCELED || *c == SqlState::LOCK_NOT_AVAILABLE => {
                StoreError::Busy(text)
            }
            c if *c == SqlState::DISK_FULL || *c == SqlState::OUT_OF_MEMORY => {
                StoreError::Full(text)
            }
            c if *c == SqlState::READ_ONLY_SQL_TRANSACTION
                || *c == SqlState::INSUFFICIENT_PRIVILEGE =>
            {
                StoreError::ReadOnly(text)
            }
            c if *c == SqlState::IO_ERROR => StoreError::Io(text),
            c if *c == SqlState::DATA_CORRUPTED || *c == SqlState::INDEX_CORRUPTED => {
                StoreError::Corrupt(text)
            }
            c if c.code().starts_with("28") || *c == SqlState::INVALID_CATALOG_NAME => {
                StoreError::Refused(text)
            }
            c => StoreError::Other(format!("{text} (SQLSTATE {})", c.code())),
        })
    }
}

fn connection_failed(e: &postgres::Error) -> bool {
    let mut cause = std::error::Error::source(e);
    while let Some(c) = cause {
        if c.downcast_ref::<std::io::Error>().is_some() {
            return true;
        }
        cause = c.source();
    }
    false
}

/// Whether the database has no such table.
pub(crate) fn no_table(e: &postgres::Error) -> bool {
    e.code() == Some(&SqlState::UNDEFINED_TABLE)
}

/// One connection with its statements.
pub(crate) struct Conn {
    pub(crate) client: Client,
    statements: HashMap<String, Statement>,
}

pub(crate) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Conn {
    fn statement(&mut self, sql: &str) -> Result<Statement, postgres::Error> {
        if let Some(s) = self.statements.get(sql) {
            return Ok(s.clone());
        }
        if self.statements.len() >= MAX_STATEMENTS {
            self.statements.clear();
        }
        let s = self.client.prepare(sql)?;
        self.statements.insert(sql.to_owned(), s.clone());
        Ok(s)
    }

    pub(crate) fn rows(
        &mut self,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, postgres::Error> {
        let s = self.statement(sql)?;
        self.client.query(&s, params)
    }

    pub(crate) fn row(
        &mut self,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Option<Row>, postgres::Error> {
        Ok(self.rows(sql, params)?.into_iter().next())
    }

    pub(crate) fn run(&mut self, sql: &str, params: Params<'_>) -> Result<u64, postgres::Error> {
        let s = self.statement(sql)?;
        self.client.execute(&s, params)
    }

    /// The number that a statement answers with; 0 where it has no row.
    pub(crate) fn number(&mut self, sql: &str, params: Params<'_>) -> Result<i64, postgres::Error> {
        Ok(self.row(sql, params)?.map_or(0, |r| r.get(0)))
    }

    /// Several statements without values.
    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), postgres::Error> {
        self.client.batch_execute(sql)
    }
}

#[derive(Default)]
struct State {
    idle: Vec<Conn>,
    open: usize,
}

/// The connections of this process.
pub(crate) struct Pool {
    config: Config,
    tls: Tls,
    state: Mutex<State>,
    freed: Condvar,
}

/// A connection in use. One that is not given back, because its user panicked, is closed and counts no more.
struct Loan<'a> {
    conn: Option<Conn>,
    pool: &'a Pool,
}

impl Loan<'_> {
    fn with<T>(&mut self, f: impl FnOnce(&mut Conn) -> PgResult<T>) -> PgResult<T> {
        match &mut self.conn {
            Some(c) => f(c),
            None => Err(Fail::Lost("the connection was given back".into())),
        }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        if self.conn.take().is_some() {
            self.pool.state().open -= 1;
            self.pool.freed.notify_one();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    pub(crate) fn new(config: Config, tls: Tls) -> Self {
        Self {
            config,
            tls,
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Statements that set the limits of a new session, or set them back.
    pub(crate) fn limits(&self) -> String {
        let given = self.config.get_options().unwrap_or_default();
        let mut sql = String::from("SET timezone = 'UTC'");
        for (name, value) in LIMITS {
            if !given.contains(name) {
                sql.push_str(&format!("; SET {name} = '{value}'"));
            }
        }
        sql
    }

    fn connect(&self) -> PgResult<Conn> {
        let mut client = self.tls.connect(&self.config)?;
        client.batch_execute(&self.limits())?;
        // How HNSW is searched. An engine that has no such settings (YugabyteDB) goes on with its own.
        let hnsw = format!(
            "SET hnsw.ef_search = {EF_SEARCH}; SET hnsw.iterative_scan = strict_order;
             SET hnsw.max_scan_tuples = {MAX_SCAN}"
        );
        if let Err(e) = client.batch_execute(&hnsw) {
            tracing::debug!(error = %e, "no settings for HNSW");
        }
        Ok(Conn {
            client,
            statements: HashMap::new(),
        })
    }

    /// A connection, new or idle; waits while all are used, or while the server has none to give.
    fn take(&self) -> PgResult<Loan<'_>> {
        Ok(Loan {
            conn: Some(self.free_or_new()?),
            pool: self,
        })
    }

    fn free_or_new(&self) -> PgResult<Conn> {
        let end = Instant::now() + WAIT;
        let mut state = self.state();
        loop {
            if let Some(c) = state.idle.pop() {
                if !c.client.is_closed() {
                    return Ok(c);
                }
                state.open -= 1;
                continue;
            }
            if state.open < MAX_CONNECTIONS {
                state.open += 1;
                drop(state);
                let refused = match self.connect() {
                    Ok(c) => return Ok(c),
                    Err(e) => e,
                };
                state = self.state();
                state.open -= 1;
                let full = matches!(&refused, Fail::Store(StoreError::Busy(_)));
                if !full || Instant::now() >= end {
                    return Err(refused);
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Fail::Store(StoreError::Busy(format!(
                    "all {MAX_CONNECTIONS} connections to the database are in use"
                ))));
            }
            state = self
                .freed
                .wait_timeout(state, left.min(Duration::from_millis(100)))
                .map_or_else(|e| e.into_inner().0, |w| w.0);
        }
    }

    fn give_back(&self, mut loan: Loan<'_>, broken: bool) {
        let Some(c) = loan.conn.take() else { return };
        let mut state = self.state();
        if broken || c.client.is_closed() || state.idle.len() >= MAX_IDLE {
            state.open -= 1;
            drop(state);
            drop(c);
        } else {
            state.idle.push(c);
            drop(state);
        }
        self.freed.notify_one();
    }

    /// Closes the idle connections.
    pub(crate) fn close_idle(&self) {
        let idle = {
            let mut state = self.state();
            state.open -= state.idle.len();
            std::mem::take(&mut state.idle)
        };
        drop(idle);
    }

    fn once<T>(&self, f: impl FnOnce(&mut Conn) -> PgResult<T>) -> PgResult<T> {
        let mut loan = self.take()?;
        let result = loan.with(f);
        let broken = matches!(&result, Err(Fail::Lost(_)));
        self.give_back(loan, broken);
        if broken {
            // The others were opened to the same server.
            self.close_idle();
        }
        result
    }

    /// Runs something until it went through or failed for good. `run` also says whether it may have been
    /// done although its connection was lost; it is then run again only where it is `repeatable`.
    fn until_done<T>(
        &self,
        repeatable: bool,
        mut run: impl FnMut() -> (PgResult<T>, bool),
    ) -> crate::Result<T> {
        let mut lost = false;
        let mut attempt = 0;
        loop {
            attempt += 1;
            match run() {
                (Err(Fail::Undone(_)), _) if attempt < ATTEMPTS => {
                    std::thread::sleep(pause(attempt));
                }
                (Err(Fail::Lost(_)), maybe_done) if !lost && (!maybe_done || repeatable) => {
                    lost = true;
                }
                (r, _) => return Ok(r?),
            }
        }
    }

    /// Runs a read.
    pub(crate) fn read<T>(&self, f: impl Fn(&mut Conn) -> PgResult<T>) -> crate::Result<T> {
        match self.once(&f) {
            Err(Fail::Lost(_)) => Ok(self.once(&f)?),
            r => Ok(r?),
        }
    }

    /// Runs what ends with one statement that is a transaction of its own. Where it is not
    /// `repeatable`, a lost answer is an error.
    pub(crate) fn statement<T>(
        &self,
        repeatable: bool,
        f: impl Fn(&mut Conn) -> PgResult<T>,
    ) -> crate::Result<T> {
        self.until_done(repeatable, || (self.once(&f), true))
    }

    /// Runs a transaction that may be run twice.
    pub(crate) fn write<T>(&self, f: impl Fn(&mut Conn) -> PgResult<T>) -> crate::Result<T> {
        self.transaction(true, f)
    }

    /// Runs a transaction. Where it is not `repeatable`, a lost answer to the commit is an error.
    pub(crate) fn transaction<T>(
        &self,
        repeatable: bool,
        f: impl Fn(&mut Conn) -> PgResult<T>,
    ) -> crate::Result<T> {
        self.until_done(repeatable, || {
            let mut sent = false;
            let result = self.once(|c| Self::attempt(c, &f, &mut sent));
            (result, sent)
        })
    }

    fn attempt<T>(
        c: &mut Conn,
        f: &impl Fn(&mut Conn) -> PgResult<T>,
        sent: &mut bool,
    ) -> PgResult<T> {
        c.batch("BEGIN")?;
        match f(c) {
            Ok(v) => {
                *sent = true;
                c.batch("COMMIT")?;
                Ok(v)
            }
            Err(e) => {
                if !matches!(e, Fail::Lost(_)) && c.batch("ROLLBACK").is_err() {
                    return Err(Fail::Lost(
                        "the transaction could not be rolled back".into(),
                    ));
                }
                Err(e)
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let idle = std::mem::take(&mut self.state().idle);
        // Closing a connection runs a little loop of its own, which must not stand inside of an
        // asynchronous caller.
        if !idle.is_empty() {
            let closing = std::thread::spawn(move || drop(idle));
            let _ = closing.join();
        }
    }
}

/// Longer with each attempt, and not the same for two threads.
fn pause(attempt: u32) -> Duration {
    let most = 10 * 2_u32.pow(attempt.min(5));
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.subsec_nanos());
    Duration::from_millis(u64::from(5 + (now / 1_000) % most))
}
