//! `weft config` and `weft auth`.

use std::io::BufRead as _;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::out::{self, Out};
use crate::report::usage;
use crate::settings::{KEYS, Settings};

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the value of a key
    Get {
        /// Key
        key: String,
    },
    /// Write a key to config.toml
    Set {
        /// Key
        key: String,
        /// Value
        value: String,
    },
    /// Print every key with its value and where it came from
    List,
    /// Print the path of config.toml
    Path,
}

#[derive(Debug, Args)]
pub(crate) struct Auth {
    /// openai or anthropic
    provider: Option<String>,
    /// List the providers that have a key
    #[arg(long)]
    list: bool,
    /// Remove the key of a provider
    #[arg(long, value_name = "PROVIDER")]
    remove: Option<String>,
}

pub(crate) fn run(c: ConfigCommand, settings: &mut Settings, out: Out) -> Result<u8> {
    match c {
        ConfigCommand::Get { key } => out.line(&settings.get(&key)?.0)?,
        ConfigCommand::Set { key, value } => settings.set(&key, &value)?,
        ConfigCommand::Path => out.line(&settings.config_path().display().to_string())?,
        ConfigCommand::List => {
            for k in &KEYS {
                let (value, source) = settings.get(k.name)?;
                let value = if value.is_empty() {
                    "<not set>".to_owned()
                } else {
                    // A list ends up in reports of errors; `get` shows the password of a DSN.
                    weft_engine::redacted(&value)
                };
                out.line(&format!(
                    "{:<28} {:<24} {}",
                    k.name,
                    value,
                    out.dim(&format!("({}) {}", source.name(), k.help))
                ))?;
            }
        }
    }
    Ok(0)
}

fn known(provider: &str) -> Result<()> {
    if matches!(provider, "openai" | "anthropic") {
        return Ok(());
    }
    Err(usage(
        format!("unsupported provider: {provider:?}"),
        "providers are openai and anthropic",
    ))
}

pub(crate) fn auth(c: &Auth, settings: &Settings, out: Out) -> Result<u8> {
    if c.list {
        for provider in ["openai", "anthropic"] {
            let state = if settings.api_key(provider).is_empty() {
                "no key"
            } else {
                "key stored"
            };
            out.line(&format!("{provider:<10} {state}"))?;
        }
        return Ok(0);
    }
    if let Some(provider) = &c.remove {
        known(provider)?;
        settings.set_api_key(provider, None)?;
        return Ok(0);
    }
    let Some(provider) = &c.provider else {
        return Err(usage(
            "provider argument required",
            "weft auth openai < key.txt",
        ));
    };
    known(provider)?;
    let mut line = String::new();
    if out::interactive() {
        line = rpassword::prompt_password(format!("Key of {provider} (not shown): "))?;
    } else if std::io::stdin().lock().read_line(&mut line)? == 0 {
        return Err(usage(
            "no input received on stdin",
            "weft auth openai < key.txt",
        ));
    }
    let key = line.trim();
    if key.is_empty() {
        return Err(usage("API key cannot be empty", ""));
    }
    settings.set_api_key(provider, Some(key))?;
    Ok(0)
}
