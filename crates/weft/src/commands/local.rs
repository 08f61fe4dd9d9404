//! `weft local`: PostgreSQL with pgvector and Ollama in Docker, and the settings to use them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};

use crate::out::{self, Out};
use crate::report::hinted;
use crate::settings::Settings;

const POSTGRES: &str = "tapes-local-postgres";
const OLLAMA: &str = "tapes-local-ollama";
const NETWORK: &str = "tapes-local";
const VOLUME: &str = "tapes-local-postgres";
/// Name of user, password and database.
const NAME: &str = "tapes";
const MODEL: &str = "embeddinggemma";
const DIMENSIONS: &str = "768";
/// How long the database may take to answer for the first time.
const READY: Duration = Duration::from_secs(90);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft local up                    PostgreSQL on :5432, Ollama on :11434, and the settings for both
  weft local status
  weft local down --wipe           stop them and remove the data

Nothing of this is needed for the embedded store, which is the default: `weft search` works as it is.")]
pub(crate) struct Local {
    #[command(subcommand)]
    action: Option<Action>,
    /// Port of PostgreSQL
    #[arg(long, global = true, default_value_t = 5432, value_name = "PORT")]
    postgres_port: u16,
    /// Port of Ollama
    #[arg(long, global = true, default_value_t = 11434, value_name = "PORT")]
    ollama_port: u16,
    /// Image of PostgreSQL with pgvector 0.8.4 or newer
    #[arg(
        long,
        global = true,
        default_value = "pgvector/pgvector:pg17",
        value_name = "IMAGE"
    )]
    postgres_image: String,
    /// Image of Ollama
    #[arg(
        long,
        global = true,
        default_value = "ollama/ollama:latest",
        value_name = "IMAGE"
    )]
    ollama_image: String,
    /// Run Ollama in Docker even where one runs here
    #[arg(long, global = true)]
    docker_ollama: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start them, create what is missing, and write the settings
    Up,
    /// Show what runs
    Status,
    /// Stop and remove the containers
    Down {
        /// Remove the data as well, and the settings that point at them
        #[arg(long)]
        wipe: bool,
    },
}

/// Runs docker and gives its standard output.
fn docker(args: &[&str]) -> Result<String> {
    let o = Command::new("docker")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .context("starting docker")?;
    if !o.status.success() {
        let text = String::from_utf8_lossy(&o.stderr);
        anyhow::bail!("docker {}: {}", args.first().unwrap_or(&""), text.trim());
    }
    Ok(String::from_utf8_lossy(&o.stdout).trim().to_owned())
}

fn need_docker() -> Result<()> {
    docker(&["info", "--format", "{{.ServerVersion}}"]).map_err(|e| {
        hinted(
            format!("docker is required for 'weft local': {e:#}"),
            "start Docker, or give a database of your own with `weft config set storage.postgres_dsn`; \
             the embedded store needs neither",
        )
    })?;
    Ok(())
}

fn exists(name: &str) -> Result<bool> {
    let filter = format!("name=^/{name}$");
    let found = docker(&["ps", "-a", "--filter", &filter, "--format", "{{.Names}}"])?;
    Ok(!found.is_empty())
}

/// Starts a container, made with `args` where there is none.
fn start(name: &str, image: &str, args: &[&str]) -> Result<()> {
    if exists(name)? {
        docker(&["start", name])?;
        return Ok(());
    }
    let mut run = vec!["run", "-d", "--name", name, "--network", NETWORK];
    run.extend(args);
    run.push(image);
    docker(&run)?;
    Ok(())
}

fn agent(timeout: Duration) -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .build()
        .new_agent()
}

fn ollama_answers(url: &str) -> bool {
    agent(Duration::from_secs(2))
        .get(format!("{url}/api/tags"))
        .call()
        .is_ok()
}

pub(crate) fn run(c: &Local, settings: &mut Settings, out: Out) -> Result<u8> {
    need_docker()?;
    match c.action {
        None | Some(Action::Up) => up(c, settings, out),
        Some(Action::Status) => status(out),
        Some(Action::Down { wipe }) => down(wipe, settings, out),
    }
}

fn up(c: &Local, settings: &mut Settings, out: Out) -> Result<u8> {
    let (pg_port, ollama_port) = (c.postgres_port, c.ollama_port);
    let dsn = format!("postgres://{NAME}:{NAME}@localhost:{pg_port}/{NAME}?sslmode=disable");
    let ollama = format!("http://localhost:{ollama_port}");
    if docker(&["network", "inspect", NETWORK]).is_err() {
        docker(&["network", "create", NETWORK])?;
    }
    // Only this machine reaches them: the password is no secret.
    let publish = format!("127.0.0.1:{pg_port}:5432");
    let user = format!("POSTGRES_USER={NAME}");
    let password = format!("POSTGRES_PASSWORD={NAME}");
    let database = format!("POSTGRES_DB={NAME}");
    let volume = format!("{VOLUME}:/var/lib/postgresql/data");
    let args = [
        "-p", &publish, "-e", &user, "-e", &password, "-e", &database, "-v", &volume,
    ];
    start(POSTGRES, &c.postgres_image, &args)?;
    let end = Instant::now() + READY;
    while docker(&[
        "exec",
        POSTGRES,
        "pg_isready",
        "-h",
        "127.0.0.1",
        "-U",
        NAME,
    ])
    .is_err()
    {
        if Instant::now() >= end {
            return Err(hinted(
                format!("{POSTGRES} does not answer"),
                "`docker logs tapes-local-postgres` tells why",
            ));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    let extension = "CREATE EXTENSION IF NOT EXISTS vector";
    docker(&[
        "exec", POSTGRES, "psql", "-U", NAME, "-d", NAME, "-c", extension,
    ])?;
    out.line(&format!("PostgreSQL with pgvector   localhost:{pg_port}"))?;
    if c.docker_ollama || !ollama_answers(&ollama) {
        let publish = format!("127.0.0.1:{ollama_port}:11434");
        let args = ["-p", &publish, "-v", "tapes-local-ollama:/root/.ollama"];
        start(OLLAMA, &c.ollama_image, &args)?;
        let end = Instant::now() + READY;
        while !ollama_answers(&ollama) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(500));
        }
    }
    out::note(&format!("pulling {MODEL}, where it is not there yet"));
    agent(Duration::from_secs(3600))
        .post(format!("{ollama}/api/pull"))
        .send_json(serde_json::json!({"model": MODEL, "stream": false}))
        .map_err(|e| {
            hinted(
                format!("{MODEL} was not pulled: {e}"),
                "is Ollama running? `ollama pull embeddinggemma` does the same",
            )
        })?;
    out.line(&format!("Ollama with {MODEL}   localhost:{ollama_port}"))?;
    for (key, value) in [
        ("storage.postgres_dsn", dsn.as_str()),
        ("vector_store.target", dsn.as_str()),
        ("proxy.upstream", ollama.as_str()),
        ("embedding.provider", "ollama"),
        ("embedding.target", ollama.as_str()),
        ("embedding.model", MODEL),
        ("embedding.dimensions", DIMENSIONS),
    ] {
        settings.set(key, value)?;
    }
    out.line(&format!(
        "settings written to {}",
        settings.config_path().display()
    ))?;
    Ok(0)
}

fn status(out: Out) -> Result<u8> {
    for name in [POSTGRES, OLLAMA] {
        let filter = format!("name=^/{name}$");
        let state = docker(&["ps", "-a", "--filter", &filter, "--format", "{{.Status}}"])?;
        let state = if state.is_empty() {
            "not there"
        } else {
            &state
        };
        out.line(&format!("{name:<24} {state}"))?;
    }
    Ok(0)
}

fn down(wipe: bool, settings: &mut Settings, out: Out) -> Result<u8> {
    for name in [POSTGRES, OLLAMA] {
        if exists(name)? {
            docker(&["rm", "-f", name])?;
            out.line(&format!("{name} stopped"))?;
        }
    }
    if docker(&["network", "inspect", NETWORK]).is_ok() {
        docker(&["network", "rm", NETWORK])?;
    }
    if wipe {
        for volume in [VOLUME, OLLAMA] {
            if docker(&["volume", "inspect", volume]).is_ok() {
                docker(&["volume", "rm", volume])?;
            }
        }
        for key in ["storage.postgres_dsn", "vector_store.target"] {
            settings.set(key, "")?;
        }
        out.line("the data are gone, and the embedded store is used again")?;
    }
    Ok(0)
}
