//! Settings from flags, environment, file and defaults, each value with where it came from.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use toml_edit::{DocumentMut, Item, Table, value};
use weft_engine::Config;

use crate::report::usage;

/// One key: name, default, what it is for.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
    number: bool,
}

const fn key(name: &'static str, default: &'static str, help: &'static str) -> Key {
    Key {
        name,
        default,
        help,
        number: false,
    }
}

/// Every key that there is.
pub(crate) const KEYS: [Key; 34] = [
    key("api.listen", ":8081", "address of the read API and MCP"),
    key("ingest.listen", ":8082", "address of the ingest API"),
    key(
        "storage.postgres_dsn",
        "",
        "the shared store: PostgreSQL with pgvector; empty = the embedded store",
    ),
    key(
        "client.api_target",
        "",
        "read API that `tapesctl` commands ask instead of the local store",
    ),
    key("embedding.provider", "builtin", "builtin, ollama or openai"),
    key(
        "embedding.target",
        "",
        "base URL of the provider; empty = the provider's default",
    ),
    key(
        "embedding.model",
        "",
        "model; empty = the provider's default",
    ),
    Key {
        name: "embedding.dimensions",
        default: "0",
        help: "length of the vectors; 0 = the provider's default",
        number: true,
    },
    key(
        "code.max_file_bytes",
        "0",
        "largest source file that is read; 0 = 2 MiB, at most 64 MiB",
    ),
    key(
        "code.threads",
        "0",
        "threads that read source files; 0 = one a processor, at most 4",
    ),
    Key {
        name: "embed_worker.batch_size",
        default: "0",
        help: "documents of one page of the embed pass; 0 = 100, or 2,000 with the builtin model",
        number: true,
    },
    Key {
        name: "embed_worker.max_text_bytes",
        default: "0",
        help: "largest text that is embedded; 0 = 1 MiB, negative = no limit",
        number: true,
    },
    key(
        "import.auto",
        "ask",
        "import this repository's transcripts before a search: ask, always or never",
    ),
    key(
        "skill.provider",
        "",
        "who writes skills: anthropic, openai or ollama; empty = they are taken from the sessions as they are",
    ),
    key(
        "skill.target",
        "",
        "base URL of that provider; empty = the provider's own",
    ),
    key(
        "skill.model",
        "",
        "its model; empty = the provider's default",
    ),
    key("logging.level", "info", "error, warn, info, debug or trace"),
    key("logging.format", "auto", "auto, text or json"),
    key("logging.color", "auto", "of tapes; NO_COLOR decides"),
    key(
        "proxy.listen",
        ":8080",
        "address of the capture proxy, or off",
    ),
    key(
        "proxy.provider",
        "",
        "provider of requests that name no other: anthropic, openai or ollama; empty = the path decides",
    ),
    key(
        "proxy.upstream",
        "",
        "address of that provider; empty = the provider's own",
    ),
    key(
        "proxy.anthropic_upstream",
        "",
        "address for Anthropic's API; empty = https://api.anthropic.com",
    ),
    key(
        "proxy.openai_upstream",
        "",
        "address for OpenAI's API; empty = https://api.openai.com/v1",
    ),
    key(
        "proxy.ollama_upstream",
        "",
        "address for Ollama's API; empty = http://localhost:11434",
    ),
    key(
        "proxy.project",
        "",
        "of tapes; sessions carry their repository instead",
    ),
    key("client.proxy_target", "", "of tapes"),
    key(
        "client.ingest_target",
        "",
        "ingest API that `tapesctl sync` sends to; empty = the local store",
    ),
    key("api.web_ui", "false", "of tapes"),
    key(
        "vector_store.provider",
        "",
        "of tapes; vectors live in the store",
    ),
    key(
        "vector_store.target",
        "",
        "of tapes; vectors live in the store",
    ),
    key("opencode.provider", "", "of tapes"),
    key("opencode.model", "", "of tapes"),
    key(
        "telemetry.disabled",
        "true",
        "of tapes; there is no telemetry",
    ),
];

/// Variables that name cassettes, with commas.
const CASSETTES: [&str; 2] = ["WEFT_CASSETTES", "TAPES_CASSETTES"];

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Flag,
    Env,
    File,
    Default,
}

impl Source {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Env => "environment",
            Self::File => "file",
            Self::Default => "default",
        }
    }
}

/// The settings of one invocation.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    config_dir: PathBuf,
    data_dir: PathBuf,
    file: DocumentMut,
    flags: Vec<(&'static str, String)>,
}

fn home() -> PathBuf {
    std::env::var_os("HOME")
        .filter(|h| !h.is_empty())
        .map_or_else(|| PathBuf::from("."), PathBuf::from)
}

fn dir_from(given: Option<PathBuf>, weft: &str, xdg: &str, fallback: &str) -> PathBuf {
    let env = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    given
        .or_else(|| env(weft))
        .or_else(|| env(xdg).filter(|p| p.is_absolute()).map(|p| p.join("weft")))
        .unwrap_or_else(|| home().join(fallback).join("weft"))
}

impl Settings {
    /// Reads the configuration file, where there is one.
    pub(crate) fn load(config_dir: Option<PathBuf>, data_dir: Option<PathBuf>) -> Result<Self> {
        let config_dir = dir_from(config_dir, "WEFT_CONFIG_DIR", "XDG_CONFIG_HOME", ".config");
        let data = if cfg!(target_os = "macos") {
            "Library/Application Support"
        } else {
            ".local/share"
        };
        let data_dir = dir_from(data_dir, "WEFT_DATA_DIR", "XDG_DATA_HOME", data);
        let path = config_dir.join("config.toml");
        let text = match std::fs::read_to_string(&path) {
            Ok(t) => t,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e).with_context(|| format!("reading {}", path.display())),
        };
        let file: DocumentMut = text.parse().map_err(|e| {
            usage(
                format!("{} is not valid TOML: {e}", path.display()),
                "correct the file, or remove it to start from the defaults",
            )
        })?;
        if let Some(v) = file.get("version").and_then(Item::as_integer)
            && v != 0
        {
            return Err(usage(
                format!("unsupported config version {v} (expected 0)"),
                "",
            ));
        }
        Ok(Self {
            config_dir,
            data_dir,
            file,
            flags: Vec::new(),
        })
    }

    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    pub(crate) fn config_path(&self) -> PathBuf {
        self.config_dir.join("config.toml")
    }

    /// Remembers a flag that stands for a key.
    pub(crate) fn flag(&mut self, name: &'static str, value: Option<String>) {
        if let Some(v) = value {
            self.flags.push((name, v));
        }
    }

    /// The value of a key, and where it came from.
    pub(crate) fn get(&self, name: &str) -> Result<(String, Source)> {
        let key = find(name)?;
        if let Some((_, v)) = self.flags.iter().find(|f| f.0 == name) {
            return Ok((v.clone(), Source::Flag));
        }
        let suffix = name.to_uppercase().replace('.', "_");
        // The names that users of tapes have in their environment work too.
        for prefix in ["WEFT_", "TAPES_"] {
            if let Ok(v) = std::env::var(format!("{prefix}{suffix}"))
                && !v.is_empty()
            {
                return Ok((v, Source::Env));
            }
        }
        if let Some(v) = self.in_file(name) {
            return Ok((v, Source::File));
        }
        Ok((key.default.to_owned(), Source::Default))
    }

    fn in_file(&self, name: &str) -> Option<String> {
        let mut item = self.file.as_item();
        for part in name.split('.') {
            item = item.as_table_like()?.get(part)?;
        }
        match item.as_value()? {
            toml_edit::Value::String(s) => Some(s.value().clone()),
            toml_edit::Value::Integer(n) => Some(n.value().to_string()),
            toml_edit::Value::Boolean(b) => Some(b.value().to_string()),
            _ => None,
        }
    }

    /// The settings as their file has them now.
    pub(crate) fn again(&self) -> Result<Self> {
        let now = Self::load(Some(self.config_dir.clone()), Some(self.data_dir.clone()))?;
        Ok(Self {
            flags: self.flags.clone(),
            ..now
        })
    }

    /// Whether the configuration file says which cassettes there are: the environment does not.
    pub(crate) fn cassettes_by_file(&self) -> bool {
        CASSETTES
            .iter()
            .all(|n| std::env::var(n).map_or(true, |v| v.trim().is_empty()))
    }

    /// Addresses of cassettes: from the environment, with commas, else from the file, an array.
    pub(crate) fn cassettes(&self) -> Result<Vec<String>> {
        for name in CASSETTES {
            if let Ok(v) = std::env::var(name)
                && !v.trim().is_empty()
            {
                let all = v.split(',').map(|u| u.trim().to_owned());
                return Ok(all.filter(|u| !u.is_empty()).collect());
            }
        }
        let bad = || {
            usage(
                format!(
                    "cassettes in {} is no list of addresses",
                    self.config_path().display()
                ),
                "write cassettes = [\"http://127.0.0.1:9999/openapi\"] at the top of the file",
            )
        };
        let Some(item) = self.file.get("cassettes") else {
            return Ok(Vec::new());
        };
        let all = item.as_array().ok_or_else(bad)?;
        all.iter()
            .map(|v| v.as_str().map(str::to_owned).ok_or_else(bad))
            .collect()
    }

    pub(crate) fn text(&self, name: &str) -> Result<String> {
        Ok(self.get(name)?.0)
    }

    fn number(&self, name: &str) -> Result<i64> {
        let (v, source) = self.get(name)?;
        v.trim().parse().map_err(|_| {
            usage(
                format!("{name} is {v:?} ({}), which is not a number", source.name()),
                "",
            )
        })
    }

    /// Writes one key to the file; what else stands there stays.
    pub(crate) fn set(&mut self, name: &str, text: &str) -> Result<()> {
        let key = find(name)?;
        let item = if key.number {
            let n: i64 = text
                .parse()
                .map_err(|_| usage(format!("{name} wants a number, not {text:?}"), ""))?;
            value(n)
        } else {
            value(text)
        };
        let (table, last) = name.split_once('.').unwrap_or(("", name));
        let entry = self.file.entry(table).or_insert(Item::Table(Table::new()));
        let Some(table) = entry.as_table_like_mut() else {
            return Err(usage(
                format!("{table} is not a table in {}", self.config_path().display()),
                "",
            ));
        };
        table.insert(last, item);
        std::fs::create_dir_all(&self.config_dir)
            .with_context(|| format!("creating {}", self.config_dir.display()))?;
        write_private(&self.config_path(), &self.file.to_string())
    }

    /// Replaces the file as a whole by a text that has to be a configuration.
    pub(crate) fn replace(&mut self, text: &str) -> Result<()> {
        self.file = text
            .parse()
            .map_err(|e| usage(format!("that is not a configuration: {e}"), ""))?;
        std::fs::create_dir_all(&self.config_dir)
            .with_context(|| format!("creating {}", self.config_dir.display()))?;
        write_private(&self.config_path(), text)
    }

    /// What the engine is told.
    pub(crate) fn engine(&self) -> Result<Config> {
        let mut c = Config {
            postgres_dsn: self.text("storage.postgres_dsn")?,
            ..Config::default()
        };
        c.embedding.provider = self.text("embedding.provider")?;
        c.embedding.target = self.text("embedding.target")?;
        c.embedding.model = self.text("embedding.model")?;
        c.embedding.dimensions = usize::try_from(self.number("embedding.dimensions")?)
            .map_err(|_| usage("embedding.dimensions cannot be negative", ""))?;
        c.embedding.api_key = self.api_key("openai");
        c.chat.provider = self.text("skill.provider")?;
        c.chat.target = self.text("skill.target")?;
        c.chat.model = self.text("skill.model")?;
        c.chat.api_key = self.api_key(&c.chat.provider.to_ascii_lowercase());
        c.batch_size = usize::try_from(self.number("embed_worker.batch_size")?).unwrap_or_default();
        c.max_file_bytes = u64::try_from(self.number("code.max_file_bytes")?).unwrap_or_default();
        c.code_threads = usize::try_from(self.number("code.threads")?).unwrap_or_default();
        c.max_text_bytes = self.number("embed_worker.max_text_bytes")?;
        Ok(c)
    }

    fn credentials_path(&self) -> PathBuf {
        self.config_dir.join("credentials.toml")
    }

    /// The key of a provider: from the environment, else from the credentials file.
    pub(crate) fn api_key(&self, provider: &str) -> String {
        let env = std::env::var(format!("{}_API_KEY", provider.to_uppercase())).unwrap_or_default();
        if !env.is_empty() {
            return env;
        }
        let text = std::fs::read_to_string(self.credentials_path()).unwrap_or_default();
        let file: DocumentMut = text.parse().unwrap_or_default();
        file.get("providers")
            .and_then(|p| p.get(provider)?.get("api_key")?.as_str())
            .unwrap_or_default()
            .to_owned()
    }

    /// Stores or removes the key of a provider, readable by its owner only.
    pub(crate) fn set_api_key(&self, provider: &str, key: Option<&str>) -> Result<()> {
        let path = self.credentials_path();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut file: DocumentMut = text.parse().context("reading credentials.toml")?;
        file["version"] = value(0);
        match key {
            Some(k) => file["providers"][provider]["api_key"] = value(k),
            None => {
                if let Some(p) = file.get_mut("providers").and_then(Item::as_table_like_mut) {
                    p.remove(provider);
                }
            }
        }
        std::fs::create_dir_all(&self.config_dir)?;
        write_private(&path, &file.to_string())
    }
}

/// Replaces a file as a whole; only its owner can read it.
fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    let partial = path.with_extension("partial");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut f = options
        .open(&partial)
        .with_context(|| format!("writing {}", partial.display()))?;
    f.write_all(text.as_bytes())?;
    f.sync_all()?;
    std::fs::rename(&partial, path)?;
    Ok(())
}

fn find(name: &str) -> Result<&'static Key> {
    KEYS.iter().find(|k| k.name == name).ok_or_else(|| {
        let names: Vec<&str> = KEYS.iter().map(|k| k.name).collect();
        usage(
            format!("unknown config key: {name:?}"),
            format!("valid keys: {}", names.join(", ")),
        )
    })
}
