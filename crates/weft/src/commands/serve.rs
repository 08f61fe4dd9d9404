//! `weft serve`: all in one process, or one service of them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use weft_engine::worker::{DeriveKnobs, Workers};
use weft_engine::{Engine, StoreError};
use weft_server::{Cassettes, Options, UpstreamConfig, Upstreams};

use super::{VERSION, block_on, log, open};
use crate::report::{hinted, usage};
use crate::settings::Settings;

/// How long requests in flight may take after the first signal.
const DRAIN: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  weft serve                       capture proxy on :8080, read API and MCP on :8081, ingest on :8082,
                                   both workers
  weft serve --proxy-listen off    all but the capture proxy
  weft serve api -l 127.0.0.1:9000
  weft serve proxy --provider anthropic
  weft serve embed-worker --interval 1m
  weft serve --cassettes http://127.0.0.1:9999/openapi

An address without a host (:8081) is a loopback address. Any other address needs WEFT_TOKEN: every
request then has to carry it as a bearer token; at the proxy, where that header is the provider's, as
X-Weft-Token.

The proxy passes requests on to the provider whose API has the path (Anthropic, OpenAI, Ollama), or to the
one that --provider and --upstream name:
  ANTHROPIC_BASE_URL=http://localhost:8080 claude")]
pub(crate) struct Serve {
    #[command(subcommand)]
    service: Option<Service>,
    /// Address of the capture proxy, or `off` [default: :8080]
    #[arg(short, long)]
    proxy_listen: Option<String>,
    #[command(flatten)]
    proxying: Proxying,
    /// Address of the read API and MCP [default: :8081]
    #[arg(short = 'a', long)]
    api_listen: Option<String>,
    /// Address of the ingest API [default: :8082]
    #[arg(short = 'i', long)]
    ingest_listen: Option<String>,
    /// Embed new spans in this process
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    embed_spans: bool,
    /// Follow the transcripts of Claude Code and Codex on this machine [default: where import.auto is always]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    transcripts: Option<bool>,
    /// Wait for the database of a shared store instead of ending where it does not answer
    #[arg(long, global = true)]
    wait_for_db: bool,
    #[command(flatten)]
    embedding: Embedding,
    #[command(flatten)]
    extending: Extending,
    #[command(flatten)]
    compat: Compat,
}

#[derive(Debug, Default, Args)]
pub(crate) struct Embedding {
    /// builtin, ollama or openai
    #[arg(long, value_name = "NAME")]
    embedding_provider: Option<String>,
    /// Base URL of the provider
    #[arg(long, value_name = "URL")]
    embedding_target: Option<String>,
    /// Model
    #[arg(long, value_name = "MODEL")]
    embedding_model: Option<String>,
    /// Length of the vectors
    #[arg(long, value_name = "N")]
    embedding_dimensions: Option<u32>,
}

impl Embedding {
    /// Puts the flags above environment and file.
    pub(crate) fn apply(&self, s: &mut Settings) {
        s.flag("embedding.provider", self.embedding_provider.clone());
        s.flag("embedding.target", self.embedding_target.clone());
        s.flag("embedding.model", self.embedding_model.clone());
        s.flag(
            "embedding.dimensions",
            self.embedding_dimensions.map(|n| n.to_string()),
        );
    }
}

/// Services that extend the read API.
#[derive(Debug, Default, Args)]
struct Extending {
    /// Address of the OpenAPI document of a cassette; many, or with commas
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    cassettes: Vec<String>,
    /// Time between two looks at the documents; 0 = only at the start
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "30s",
        allow_hyphen_values = true
    )]
    cassette_refresh: String,
}

/// Time between two looks at the `cassettes` of the configuration file.
const FILE_LOOK: Duration = Duration::from_secs(2);

/// The cassettes of a server, and whether the configuration file says which.
#[derive(Default)]
struct Extended {
    cassettes: Cassettes,
    by_file: bool,
}

impl Extending {
    fn cassettes(&self, settings: &Settings) -> Result<Extended> {
        let (urls, by_file) = match self.cassettes.as_slice() {
            [] => (settings.cassettes()?, settings.cassettes_by_file()),
            given => (given.to_vec(), false),
        };
        let refresh = match self.cassette_refresh.as_str() {
            "0" => None,
            t if t.starts_with('-') => None,
            t => Some(
                duration(t)
                    .map_err(|e| usage(format!("invalid --cassette-refresh {t:?}: {e}"), ""))?,
            )
            .filter(|d| !d.is_zero()),
        };
        let cassettes = Cassettes::new(&urls, refresh).map_err(|e| {
            usage(
                e,
                "give the whole address of an OpenAPI document, such as http://127.0.0.1:9999/openapi",
            )
        })?;
        Ok(Extended { cassettes, by_file })
    }
}

/// Takes changes of the configuration file's `cassettes` while the server runs; a file that cannot be read, or
/// says nonsense, changes nothing.
async fn follow_file(settings: Settings, cassettes: Cassettes) {
    let mut known = settings.cassettes().ok();
    loop {
        tokio::time::sleep(FILE_LOOK).await;
        let now = settings.again().and_then(|s| s.cassettes());
        let told = match &now {
            Ok(urls) if known.as_ref() == Some(urls) => continue,
            Ok(urls) => cassettes.replace(urls).map_err(anyhow::Error::msg),
            // Told once, until it is well again.
            Err(_) if known.is_none() => continue,
            Err(e) => Err(anyhow::anyhow!("{e:#}")),
        };
        known = now.ok();
        match told {
            Ok(()) => tracing::info!("the cassettes of the configuration file are followed"),
            Err(e) => tracing::warn!("cassettes stay as they were: {e:#}"),
        }
    }
}

/// Where the capture proxy passes requests on to.
#[derive(Debug, Default, Args)]
struct Proxying {
    /// Provider that takes what names no other: anthropic, openai or ollama [default: the path decides]
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Its address [default: the provider's own]
    #[arg(short, long, value_name = "URL")]
    upstream: Option<String>,
}

impl Proxying {
    fn apply(self, s: &mut Settings) {
        s.flag("proxy.provider", self.provider);
        s.flag("proxy.upstream", self.upstream);
    }
}

/// Flags of the tapes server that mean nothing, or not yet anything, to the embedded store.
#[derive(Debug, Default, Args)]
struct Compat {
    /// There is one tenant
    #[arg(long, hide = true, global = true, value_name = "UUID")]
    org: Option<String>,
    #[arg(long, hide = true, global = true, value_name = "NAME")]
    project: Option<String>,
    #[arg(long, hide = true, global = true, value_name = "URL")]
    vector_store_target: Option<String>,
    #[arg(long, visible_alias = "web-ui", hide = true, global = true)]
    api_web_ui: bool,
}

impl Compat {
    /// Says what was asked for and is not there; the rest starts.
    fn warn(&self) {
        let given = [
            (
                "--project",
                self.project.is_some(),
                "sessions carry their repository instead",
            ),
            (
                "--vector-store-target",
                self.vector_store_target.is_some(),
                "vectors live in the store",
            ),
            ("--api-web-ui", self.api_web_ui, "there is no web page yet"),
        ];
        for (flag, _, why) in given.iter().filter(|g| g.1) {
            tracing::warn!("{flag} is ignored: {why}");
        }
    }

    fn check(&self) -> Result<()> {
        match &self.org {
            Some(o) if uuid_like(o) => Ok(()),
            Some(o) => Err(usage(format!("parse org id: {o:?} is not a UUID"), "")),
            None => Ok(()),
        }
    }
}

fn uuid_like(text: &str) -> bool {
    let hex: String = text.chars().filter(|c| *c != '-').collect();
    hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

#[derive(Debug, Subcommand)]
enum Service {
    /// The read API and MCP
    Api {
        /// Address [default: :8081]
        #[arg(short, long)]
        listen: Option<String>,
        #[command(flatten)]
        embedding: Embedding,
        #[command(flatten)]
        extending: Extending,
    },
    /// The capture proxy
    Proxy {
        /// Address [default: :8080]
        #[arg(short, long)]
        listen: Option<String>,
        #[command(flatten)]
        proxying: Proxying,
        /// Address of /metrics, /ping, /healthz and /readyz
        #[arg(long)]
        metrics_listen: Option<String>,
    },
    /// The ingest API
    Ingest {
        /// Address [default: :8082]
        #[arg(short, long)]
        listen: Option<String>,
    },
    /// Derives sessions from captured turns
    DeriveWorker {
        /// Time between two looks at the queue
        #[arg(long, value_parser = duration, default_value = "5s")]
        poll_interval: Duration,
        /// Quiet time after which a session is derived
        #[arg(long, value_parser = duration, default_value = "20s")]
        debounce: Duration,
        /// Longest time that a busy session waits
        #[arg(long, value_parser = duration, default_value = "45s")]
        max_derive_lag: Duration,
        /// Time between two sweeps
        #[arg(long, value_parser = duration, default_value = "1h")]
        sweep_interval: Duration,
        /// Age of the turns that a sweep looks at; negative = all
        #[arg(long, default_value = "24h", allow_hyphen_values = true)]
        sweep_window: String,
        /// Address of /metrics, /ping, /healthz and /readyz
        #[arg(long)]
        metrics_listen: Option<String>,
    },
    /// Embeds what was derived
    EmbedWorker {
        /// Time between two passes
        #[arg(long, value_parser = duration, default_value = "1m")]
        interval: Duration,
        /// Documents of a page
        #[arg(long)]
        batch_size: Option<u32>,
        /// Largest text, bytes; negative = no limit
        #[arg(long, allow_hyphen_values = true)]
        max_text_bytes: Option<i64>,
        /// Address of /metrics, /ping, /healthz and /readyz
        #[arg(long)]
        metrics_listen: Option<String>,
        #[command(flatten)]
        embedding: Embedding,
    },
}

/// A duration as Go writes it: `1m30s`, `500ms`, `2h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || "want a duration such as 500ms, 30s or 1m30s".to_owned();
    let mut rest = text;
    let mut total = 0.0;
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(bad)?;
        let unit = rest[number..]
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .map_or(rest.len(), |n| number + n);
        let n: f64 = rest[..number].parse().map_err(|_| bad())?;
        total += n * match &rest[number..unit] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(bad()),
        };
        rest = &rest[unit..];
    }
    Duration::try_from_secs_f64(total).map_err(|_| bad())
}

/// `:8081` means this machine; a host has to be written out to mean more.
fn address(text: &str) -> String {
    match text.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    }
}

async fn bind(what: &str, text: &str) -> Result<TcpListener> {
    let at = address(text);
    let listener = TcpListener::bind(&at).await.map_err(|e| {
        hinted(
            format!("{what}: cannot listen on {at}: {e}"),
            "is another weft running? choose another address with --listen, --proxy-listen, --api-listen or --ingest-listen",
        )
    })?;
    let bound = listener.local_addr()?;
    tracing::info!("{what} listens on http://{bound}");
    Ok(listener)
}

struct Plan {
    proxy: Option<(String, Upstreams)>,
    api: Option<String>,
    ingest: Option<String>,
    metrics: Option<String>,
    derive: Option<DeriveKnobs>,
    embed: Option<Duration>,
    transcripts: bool,
    cassettes: Extended,
    wait_for_db: bool,
}

pub(crate) fn run(c: Serve, mut settings: Settings) -> Result<u8> {
    c.compat.check()?;
    let mut plan = Plan {
        proxy: None,
        api: None,
        ingest: None,
        metrics: None,
        derive: None,
        embed: None,
        transcripts: false,
        cassettes: Extended::default(),
        wait_for_db: false,
    };
    match c.service {
        None => {
            settings.flag("proxy.listen", c.proxy_listen);
            c.proxying.apply(&mut settings);
            plan.proxy = proxy(&settings)?;
            settings.flag("api.listen", c.api_listen);
            settings.flag("ingest.listen", c.ingest_listen);
            c.embedding.apply(&mut settings);
            plan.cassettes = c.extending.cassettes(&settings)?;
            plan.api = Some(settings.text("api.listen")?);
            plan.ingest = Some(settings.text("ingest.listen")?);
            plan.derive = Some(DeriveKnobs::IN_PROCESS);
            plan.transcripts = match c.transcripts {
                Some(wanted) => wanted,
                None => settings.text("import.auto")? == "always",
            };
            plan.embed = c.embed_spans.then_some(Duration::from_secs(10));
        }
        Some(Service::Proxy {
            listen,
            proxying,
            metrics_listen,
        }) => {
            settings.flag("proxy.listen", listen);
            proxying.apply(&mut settings);
            plan.proxy = proxy(&settings)?;
            plan.metrics = metrics_listen;
        }
        Some(Service::Api {
            listen,
            embedding,
            extending,
        }) => {
            settings.flag("api.listen", listen);
            embedding.apply(&mut settings);
            plan.cassettes = extending.cassettes(&settings)?;
            plan.api = Some(settings.text("api.listen")?);
        }
        Some(Service::Ingest { listen }) => {
            settings.flag("ingest.listen", listen);
            plan.ingest = Some(settings.text("ingest.listen")?);
        }
        Some(Service::DeriveWorker {
            poll_interval,
            debounce,
            max_derive_lag,
            sweep_interval,
            sweep_window,
            metrics_listen,
        }) => {
            plan.metrics = metrics_listen;
            let window = match sweep_window.strip_prefix('-') {
                Some(_) => None,
                None => Some(duration(&sweep_window).map_err(|e| {
                    usage(format!("invalid --sweep-window {sweep_window:?}: {e}"), "")
                })?),
            };
            plan.derive = Some(DeriveKnobs {
                poll: poll_interval,
                debounce,
                max_lag: max_derive_lag,
                sweep: sweep_interval,
                sweep_window: window,
            });
        }
        Some(Service::EmbedWorker {
            interval,
            batch_size,
            max_text_bytes,
            metrics_listen,
            embedding,
        }) => {
            plan.metrics = metrics_listen;
            embedding.apply(&mut settings);
            settings.flag("embed_worker.batch_size", batch_size.map(|n| n.to_string()));
            settings.flag(
                "embed_worker.max_text_bytes",
                max_text_bytes.map(|n| n.to_string()),
            );
            plan.embed = Some(interval);
        }
    }
    log(&settings, "info")?;
    c.compat.warn();
    plan.wait_for_db = c.wait_for_db;
    block_on(serve(settings, plan))?
}

/// Where the proxy listens and passes on to; `None` where it is off.
fn proxy(settings: &Settings) -> Result<Option<(String, Upstreams)>> {
    let listen = settings.text("proxy.listen")?;
    if listen == "off" {
        return Ok(None);
    }
    let text = |key| settings.text(key);
    let upstreams = Upstreams::new(UpstreamConfig {
        provider: &text("proxy.provider")?,
        upstream: &text("proxy.upstream")?,
        anthropic: &text("proxy.anthropic_upstream")?,
        openai: &text("proxy.openai_upstream")?,
        ollama: &text("proxy.ollama_upstream")?,
    })
    .map_err(|e| {
        usage(
            e,
            "give --provider anthropic, openai or ollama and, where it is not the provider's own, --upstream URL",
        )
    })?;
    Ok(Some((listen, upstreams)))
}

/// Time between two tries to reach a database that does not answer.
const RETRY: Duration = Duration::from_secs(2);

/// Opens the store; a database that does not answer is waited for where that is wanted.
fn open_waiting(settings: &Settings, wait: bool, stop: &CancellationToken) -> Result<Arc<Engine>> {
    let mut told = false;
    loop {
        let e = match open(settings) {
            Ok(engine) => return Ok(engine),
            Err(e) => e,
        };
        let store = e.downcast_ref::<StoreError>();
        let unreachable = matches!(
            store,
            Some(StoreError::Unavailable(_) | StoreError::Busy(_))
        );
        let shared = !settings.text("storage.postgres_dsn")?.is_empty();
        if !unreachable || !shared || stop.is_cancelled() {
            return Err(e);
        }
        if !wait {
            return Err(hinted(
                format!(
                    "postgres unreachable at startup (pass --wait-for-db to retry instead): {e:#}"
                ),
                "`weft config get storage.postgres_dsn` shows where it is looked for",
            ));
        }
        if !told {
            tracing::warn!("waiting for the database: {e:#}");
            told = true;
        }
        std::thread::sleep(RETRY);
    }
}

/// A second handle of a listener, which takes over from the first.
fn again(l: TcpListener) -> Result<(TcpListener, TcpListener)> {
    let first = l.into_std()?;
    let second = first.try_clone()?;
    Ok((
        TcpListener::from_std(first)?,
        TcpListener::from_std(second)?,
    ))
}

/// Opens the engine; a worker's `/readyz` says meanwhile that it is not ready.
async fn start(settings: Settings, plan: &Plan) -> Result<(Arc<Engine>, Option<TcpListener>)> {
    let stop = CancellationToken::new();
    let (wait, giving_up) = (plan.wait_for_db, stop.clone());
    let mut metrics = None;
    let mut starting = None;
    if let Some(a) = &plan.metrics {
        let (first, second) = again(bind("worker metrics", a).await?)?;
        starting = Some(tokio::spawn(weft_server::serve_starting(
            first,
            stop.clone(),
        )));
        metrics = Some(second);
    }
    let opening = tokio::task::spawn_blocking(move || open_waiting(&settings, wait, &giving_up));
    let engine = tokio::select! {
        e = opening => e.context("opening the store panicked")??,
        () = signal() => {
            stop.cancel();
            anyhow::bail!("ended while waiting for the database");
        }
    };
    stop.cancel();
    if let Some(s) = starting {
        s.await.context("a service panicked")??;
    }
    Ok((engine, metrics))
}

async fn serve(settings: Settings, mut plan: Plan) -> Result<u8> {
    if plan.cassettes.by_file {
        // It ends with the server.
        tokio::spawn(follow_file(
            settings.clone(),
            plan.cassettes.cassettes.clone(),
        ));
    }
    let (engine, metrics) = start(settings, &plan).await?;
    if let Err(e) = engine.embedder() {
        if plan.api.is_none() && plan.embed.is_some() {
            return Err(hinted(
                format!("could not create embedder: {e}"),
                "see `weft config list`",
            ));
        }
        tracing::warn!(error = %e, "could not create embedder; semantic search is off");
        plan.embed = None;
    }
    let token = std::env::var("WEFT_TOKEN").ok().filter(|t| !t.is_empty());
    let options = Options {
        engine: engine.clone(),
        token,
        version: VERSION,
        cassettes: plan.cassettes.cassettes,
    };
    let stop = CancellationToken::new();
    // All addresses are taken before anything starts: a typing error shows at once.
    let proxy = match plan.proxy {
        Some((a, upstreams)) => {
            let l = bind("capture proxy", &a).await?;
            tracing::info!("the capture proxy passes on to {upstreams}");
            Some((l, upstreams))
        }
        None => None,
    };
    let api = match &plan.api {
        Some(a) => Some(bind("read API", a).await?),
        None => None,
    };
    let ingest = match &plan.ingest {
        Some(a) => Some(bind("ingest API", a).await?),
        None => None,
    };
    let watched = engine.clone();
    let mut workers = Workers::new(engine);
    if let Some(knobs) = plan.derive {
        workers.derive(knobs);
    }
    if let Some(interval) = plan.embed {
        workers.embed(interval);
    }
    if api.is_some() {
        workers.follow_words();
    }
    if plan.transcripts {
        workers.follow_transcripts(super::import::usual_places());
    }
    let mut services = tokio::task::JoinSet::new();
    // Code is kept fresh where it is searched.
    let watcher = if api.is_some() {
        match watched.watch_code() {
            Ok(w) => Some(w),
            Err(e) => {
                tracing::warn!(error = %e, "repositories are not watched");
                None
            }
        }
    } else {
        None
    };
    if let Some((l, upstreams)) = proxy {
        services.spawn(weft_server::serve_proxy(
            l,
            options.clone(),
            upstreams,
            stop.clone(),
        ));
    }
    if let Some(l) = api {
        services.spawn(weft_server::serve_api(l, options.clone(), stop.clone()));
    }
    if let Some(l) = ingest {
        services.spawn(weft_server::serve_ingest(l, options.clone(), stop.clone()));
    }
    if let Some(l) = metrics {
        services.spawn(weft_server::serve_worker(l, options, stop.clone()));
    }
    let mut failed = None;
    tokio::select! {
        () = signal() => tracing::info!("draining; a second signal ends at once"),
        Some(ended) = services.join_next(), if !services.is_empty() => {
            failed = Some(ended.context("a service panicked").and_then(|r| r.context("a service ended")));
        }
    }
    stop.cancel();
    let drained = async {
        while services.join_next().await.is_some() {}
        tokio::task::spawn_blocking(move || {
            drop(watcher);
            workers.stop()
        })
        .await
    };
    tokio::select! {
        _ = drained => {}
        () = signal() => tracing::warn!("ended at once"),
        () = tokio::time::sleep(DRAIN) => tracing::warn!("requests in flight did not end in time"),
    }
    match failed {
        Some(r) => r.map(|()| 0),
        None => Ok(0),
    }
}

/// SIGINT or SIGTERM.
async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut term) = signal(SignalKind::terminate()) else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = term.recv() => {}
        }
    }
    #[cfg(not(unix))]
    {
        let _ = tokio::signal::ctrl_c().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_go_writes_them() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5400)));
        for bad in ["", "5", "s", "1x", "1m 30s", "-5s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_address_without_a_host_is_this_machine() {
        assert_eq!(address(":8081"), "127.0.0.1:8081");
        assert_eq!(address("0.0.0.0:80"), "0.0.0.0:80");
    }
}
