//! Standard output: the one place that writes to it.
//!
//! A reader that goes away (`weft … | head`) ends the command quietly, as with any Unix tool.

use std::io::{IsTerminal as _, Write as _};

use anyhow::Result;
use serde_json::Value;

/// Where a command writes, and in which form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    /// Whether escape sequences may be used.
    pub(crate) color: bool,
    /// Width to cut lines at; `None` = as long as they are.
    pub(crate) width: Option<usize>,
}

impl Out {
    pub(crate) fn new() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
        Self {
            color: terminal && !no_color && !dumb,
            width: terminal.then(|| columns.unwrap_or(100)),
        }
    }

    /// Writes a text and a line end.
    pub(crate) fn line(self, text: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.write_all(b"\n")?;
        Ok(())
    }

    /// Writes indented JSON.
    pub(crate) fn json(self, v: &Value) -> Result<()> {
        self.line(&serde_json::to_string_pretty(v)?)
    }

    /// Puts an SGR style around a text where colours are shown.
    pub(crate) fn style(self, sgr: &str, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("\x1b[{sgr}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.style("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.style("2", text)
    }
}

/// Writes a line to standard error; nothing can be done where that fails.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Whether a person sits in front of standard error and input.
pub(crate) fn interactive() -> bool {
    std::io::stderr().is_terminal() && std::io::stdin().is_terminal()
}
