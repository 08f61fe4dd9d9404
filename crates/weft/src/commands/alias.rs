//! `weft alias`: links under which weft takes other tools' command lines.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Subcommand;

use crate::out::Out;
use crate::report::hinted;

const NAMES: [&str; 3] = ["tapes", "tapesctl", "weave"];

#[derive(Debug, Subcommand)]
pub(crate) enum Alias {
    /// Make the links `tapes`, `tapesctl` and `weave` in a folder of your PATH
    Install {
        /// Folder
        dir: PathBuf,
    },
}

pub(crate) fn run(c: &Alias, out: Out) -> Result<u8> {
    let Alias::Install { dir } = c;
    let exe = std::env::current_exe().context("finding this program")?;
    for name in NAMES {
        let link = dir.join(name);
        match std::fs::read_link(&link) {
            Ok(target) if target == exe => continue,
            _ if link.symlink_metadata().is_ok() => {
                return Err(hinted(
                    format!("{} exists and is not a link to weft", link.display()),
                    "remove it first, or choose another folder",
                ));
            }
            _ => {}
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(&exe, &link)
            .with_context(|| format!("linking {}", link.display()))?;
        #[cfg(not(unix))]
        std::fs::copy(&exe, &link).with_context(|| format!("copying to {}", link.display()))?;
        out.line(&format!("{} -> {}", link.display(), exe.display()))?;
    }
    Ok(0)
}
