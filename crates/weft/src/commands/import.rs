//! `weft import`: agents' transcripts.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use weft_engine::{Format, ImportOptions, ImportReport, Roots, repository};

use super::{catch_up, open};
use crate::out::{self, Out};
use crate::progress::Bar;
use crate::report::hinted;
use crate::settings::Settings;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatArg {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// Copilot CLI
    Copilot,
    /// Cline and Roo Code
    Cline,
    /// Aider
    Aider,
    /// OpenCode
    Opencode,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft import                        everything of Claude Code, Codex, Gemini CLI, Copilot CLI, OpenCode,
                                     Cline and Roo Code, and Aider's history of this repository
  weft import --repo .               only sessions of this repository
  weft import backup/projects        files or folders anywhere")]
pub(crate) struct Import {
    /// Files or folders [default: where the agents keep them]
    paths: Vec<PathBuf>,
    /// Format of the given files [default: told by their content]
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Only sessions of the repository that holds this folder
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
    /// Read files again that did not change
    #[arg(long)]
    again: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Where agents keep their transcripts on this machine.
pub(crate) fn usual_places() -> ImportOptions {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let under = |env: &str, folder: &str, below: &str| {
        std::env::var_os(env)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
            .or_else(|| Some(home.as_ref()?.join(folder)))
            .map(|p| p.join(below))
    };
    let mut roots: Vec<(Format, PathBuf)> = [
        (
            Format::Claude,
            under("CLAUDE_CONFIG_DIR", ".claude", "projects"),
        ),
        (Format::Codex, under("CODEX_HOME", ".codex", "sessions")),
        (Format::Gemini, under("GEMINI_DIR", ".gemini", "tmp")),
        (
            Format::Copilot,
            under("COPILOT_HOME", ".copilot", "session-state"),
        ),
        (Format::Cline, under("CLINE_DIR", ".cline", "data/tasks")),
    ]
    .into_iter()
    .filter_map(|(format, root)| Some((format, root?)))
    .collect();
    roots.extend(editor_tasks(home.as_deref()).map(|root| (Format::Cline, root)));
    let data = under("XDG_DATA_HOME", ".local/share", "opencode/opencode.db");
    roots.extend(data.map(|root| (Format::OpenCode, root)));
    let here = std::env::current_dir().ok();
    if let Some(r) = here.and_then(|d| repository::find(&d)) {
        roots.push((Format::Aider, r.root.join(".aider.chat.history.md")));
    }
    let user = std::env::var("USER").or_else(|_| std::env::var("USERNAME"));
    ImportOptions {
        roots: Roots(roots),
        auth_subject: format!("local:{}", user.as_deref().unwrap_or("unknown")),
        ..ImportOptions::default()
    }
}

/// Where the editors that are made from VS Code keep the tasks of Cline and Roo Code.
fn editor_tasks(home: Option<&Path>) -> impl Iterator<Item = PathBuf> {
    const EDITORS: [&str; 4] = ["Code", "Code - Insiders", "VSCodium", "Cursor"];
    const EXTENSIONS: [&str; 2] = ["saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline"];
    let base = home.map(|h| match cfg!(target_os = "macos") {
        true => h.join("Library/Application Support"),
        false => h.join(".config"),
    });
    base.into_iter().flat_map(|b| {
        EDITORS.iter().flat_map(move |editor| {
            let storage = b.join(editor).join("User/globalStorage");
            EXTENSIONS
                .iter()
                .map(move |e| storage.join(e).join("tasks"))
        })
    })
}

pub(crate) fn run(c: Import, settings: &Settings, out: Out) -> Result<u8> {
    if let Some(missing) = c.paths.iter().find(|p| !p.exists()) {
        return Err(hinted(
            format!("no such file or folder: {}", missing.display()),
            "",
        ));
    }
    let repository = match &c.repo {
        None => None,
        Some(dir) => Some(
            dir.canonicalize()
                .ok()
                .and_then(|d| repository::find(&d))
                .ok_or_else(|| {
                    hinted(
                        format!("no git repository holds {}", dir.display()),
                        "leave --repo out to import everything",
                    )
                })?,
        ),
    };
    let engine = open(settings)?;
    let options = ImportOptions {
        paths: c.paths,
        format: c.format.map(|f| match f {
            FormatArg::Claude => Format::Claude,
            FormatArg::Codex => Format::Codex,
            FormatArg::Gemini => Format::Gemini,
            FormatArg::Copilot => Format::Copilot,
            FormatArg::Cline => Format::Cline,
            FormatArg::Aider => Format::Aider,
            FormatArg::Opencode => Format::OpenCode,
        }),
        repository,
        again: c.again,
        ..usual_places()
    };
    let mut bar = Bar::new(c.json);
    let report = engine.import(&options, &mut |what, done, total| {
        bar.tell(what, done, total)
    })?;
    bar.clear();
    catch_up(&engine, c.json)?;
    if c.json {
        out.json(&as_json(&report))?;
    } else {
        print(out, &report)?;
    }
    Ok(u8::from(report.failed > 0))
}

fn print(out: Out, r: &ImportReport) -> Result<()> {
    for f in &r.notable {
        if let Some(e) = &f.error {
            out::note(&format!("warning: {}: {e}", f.path.display()));
        }
        if f.skipped > 0 {
            out::note(&format!(
                "warning: {}: {} line(s) skipped",
                f.path.display(),
                f.skipped
            ));
        }
        for s in &f.samples {
            out::note(&format!("  line {}: {}", s.line, s.reason));
        }
        if f.truncated > 0 {
            out::note(&format!(
                "warning: {}: {} overlong line(s) cut",
                f.path.display(),
                f.truncated
            ));
        }
    }
    out.line(&format!(
        "{} new turn(s) in {} session(s) from {} file(s); {} file(s) unchanged, {} failed",
        r.new_turns,
        r.sessions,
        r.files - r.unchanged,
        r.unchanged,
        r.failed
    ))?;
    if r.files == 0 {
        out::note(
            "hint: no transcripts were found; give files or folders, or set CLAUDE_CONFIG_DIR, CODEX_HOME, …",
        );
    }
    Ok(())
}

fn as_json(r: &ImportReport) -> Value {
    let notable: Vec<Value> = r
        .notable
        .iter()
        .map(|f| {
            json!({"path": f.path, "turns": f.turns, "new_turns": f.new_turns, "skipped": f.skipped,
                "truncated": f.truncated, "error": f.error,
                "samples": f.samples.iter().map(|s| json!({"line": s.line, "reason": s.reason})).collect::<Vec<_>>()})
        })
        .collect();
    json!({"files": r.files, "unchanged": r.unchanged, "failed": r.failed, "turns": r.turns,
        "new_turns": r.new_turns, "sessions": r.sessions, "skipped": r.skipped,
        "truncated": r.truncated, "notable": notable})
}
