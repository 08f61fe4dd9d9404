//! The shared store: PostgreSQL with pgvector, for as many processes and machines as there are.
//!
//! The truth, what is derived of it and the vectors are in the database. A machine keeps what it can
//! build again: the keyword index, fed by the database's change feed, the code indexes of the
//! repositories that it has, and what it read of decision records. It stands in a folder named
//! after the database.

mod corrections;
mod decisions;
mod documents;
mod edits;
mod pool;
mod repositories;
mod schema;
mod sessions;
mod spans;
mod tls;
mod tokens;
mod transfer;
mod turns;
mod types;
mod upkeep;
mod vectors;
mod words;

use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::words::WordIndex;
use crate::{Result, SqliteStore, Store, StoreError};

pub use tls::redacted;

/// Oldest pgvector that is used: the ones before can return wrong rows, or leak (CVE-2026-3172,
/// pgvector issues 959 and 993).
const PGVECTOR: [u32; 3] = [0, 8, 4];

/// The shared store.
#[derive(Debug)]
pub struct PgStore {
    pool: pool::Pool,
    /// Every row's first key.
    org: Uuid,
    /// The folder of this machine.
    dir: PathBuf,
    /// What this machine read of decision records, and which transcripts it imported.
    local: SqliteStore,
    words: WordIndex,
    /// Sizes of tables, asked now and then.
    sizes: vectors::Sizes,
}

impl PgStore {
    /// Connects, creates or migrates the schema, and opens this machine's folder under `data_dir`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] where nothing answers, [`StoreError::Refused`] where the database
    /// or the login is refused or pgvector is too old, [`StoreError::Newer`] as found.
    pub fn open(dsn: &str, data_dir: &Path) -> Result<Self> {
        let (config, tls) = tls::read(dsn)?;
        let name = format!(
            "PostgreSQL database {}",
            config.get_dbname().unwrap_or("(the user's own)")
        );
        let pool = pool::Pool::new(config, tls);
        schema::prepare(&pool, &name)?;
        let store_id = pool.read(|c| {
            check_pgvector(c)?;
            let r = c.row("SELECT value FROM weft_meta WHERE key = 'store_id'", &[])?;
            Ok(r.map(|r| r.get::<_, String>(0)).unwrap_or_default())
        })?;
        let dir = data_dir.join("shared").join(store_id);
        Ok(Self {
            local: SqliteStore::open(&dir)?,
            words: WordIndex::new(&dir.join("shared-words")),
            dir,
            pool,
            org: Uuid::nil(),
            sizes: vectors::Sizes::default(),
        })
    }
}

impl Store for PgStore {}

fn check_pgvector(c: &mut pool::Conn) -> pool::PgResult<()> {
    let Some(r) = c.row(
        "SELECT extversion FROM pg_extension WHERE extname = 'vector'",
        &[],
    )?
    else {
        return Ok(());
    };
    let found: String = r.get(0);
    let mut parts = found.split('.').map(|p| p.parse::<u32>().unwrap_or(0));
    let have: [u32; 3] = std::array::from_fn(|_| parts.next().unwrap_or(0));
    if have < PGVECTOR {
        let [a, b, d] = PGVECTOR;
        return Err(StoreError::Refused(format!(
            "pgvector {found} is installed in this database, {a}.{b}.{d} or newer is needed: older ones can lose rows and leak memory of other sessions"
        ))
        .into());
    }
    Ok(())
}
