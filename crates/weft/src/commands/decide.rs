//! `weft decide`: a new decision from flags, from standard input or from an editor.

use std::io::IsTerminal as _;

use anyhow::{Context as _, Result};
use clap::Args;
use weft_engine::Decisions;
use weft_engine::decisions::decision::{Alternative, Status, Type};
use weft_engine::decisions::{NewDecision, Recorded};
use weft_server::decision_text as text;

use super::decisions::{Place, decisions_for_writing, from_top, kind};
use super::open;
use crate::out::{self, Out};
use crate::report::{hinted, usage};
use crate::settings::Settings;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weft decide \"Use JWT for authentication\" --rationale \"Stateless tokens work with our edge deployment\" \\
    --files src/auth/login.ts,src/auth/middleware.ts --alternative \"Cookies: need a session store\" --accept
  weft decide \"Sessions in Redis\" --supersedes 3
  weft decide \"No ORM\" --type rejection --rationale - < why.txt

Where the repository has a folder of decisions (docs/decisions, doc/adr, …) a MADR file is written there;
elsewhere the decision is kept in the store.")]
pub(crate) struct Decide {
    /// What was decided, in one line
    title: String,
    #[command(flatten)]
    fields: Fields,
    /// Record it although one like it is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    place: Place,
}

/// What a new decision says beside its title.
#[derive(Debug, Args)]
pub(super) struct Fields {
    /// Why; - reads standard input; without it $EDITOR opens on a terminal
    #[arg(long, value_name = "TEXT")]
    rationale: Option<String>,
    /// architecture, approach, implementation, tradeoff, convention, bugfix, rejection or other
    #[arg(long = "type", value_name = "T", default_value = "architecture", value_parser = kind)]
    kind: Type,
    /// Files, globs and file::symbol targets that it governs; repeat or separate with commas
    #[arg(long, value_name = "A[,B...]", value_delimiter = ',')]
    files: Vec<String>,
    /// What was turned down: "X: why not"; can be repeated
    #[arg(long, value_name = "X: WHY NOT")]
    alternative: Vec<String>,
    /// What it replaces: id, path, slug or number; can be repeated
    #[arg(long, value_name = "ID")]
    supersedes: Vec<String>,
    /// Who decided [default: $WEFT_AGENT, else the user's name]
    #[arg(long, value_name = "NAME", env = "WEFT_AGENT")]
    pub(super) by: Option<String>,
    /// It was agreed on; else it is proposed
    #[arg(long)]
    accept: bool,
}

/// Who runs the command.
pub(super) fn who(given: Option<&String>) -> String {
    let name = |k: &str| std::env::var(k).ok().filter(|v| !v.is_empty());
    given
        .cloned()
        .filter(|g| !g.is_empty())
        .or_else(|| name("USER"))
        .or_else(|| name("USERNAME"))
        .unwrap_or_default()
}

/// The rationale: given, from standard input, or written in an editor.
fn rationale(given: Option<&String>, title: &str) -> Result<String> {
    use std::io::Read as _;
    match given.map(String::as_str) {
        Some("-") => {
            let mut all = String::new();
            std::io::stdin().take(1 << 20).read_to_string(&mut all)?;
            Ok(all)
        }
        Some(t) => Ok(t.to_owned()),
        None if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() => edit(title),
        None => Err(usage(
            "a decision needs a reason",
            "give --rationale TEXT, or --rationale - to read it from standard input",
        )),
    }
}

/// Lets the user write the rationale in an editor.
fn edit(title: &str) -> Result<String> {
    let editor = ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|k| std::env::var(k).ok().filter(|v| !v.trim().is_empty()))
        .ok_or_else(|| usage("no editor is set", "set EDITOR, or give --rationale TEXT"))?;
    let file = std::env::temp_dir().join(format!("weft-decision-{}.md", std::process::id()));
    std::fs::write(
        &file,
        format!(
            "\n# Why: {title}\n# Lines that begin with # are left out; an empty text records nothing.\n"
        ),
    )?;
    let mut words = editor.split_whitespace();
    let status = std::process::Command::new(words.next().unwrap_or_default())
        .args(words)
        .arg(&file)
        .status();
    let written = std::fs::read_to_string(&file);
    // It may hold what nobody else shall read.
    let _ = std::fs::remove_file(&file);
    if !status
        .with_context(|| format!("starting {editor}"))?
        .success()
    {
        return Err(hinted(format!("{editor} failed"), "nothing was recorded"));
    }
    Ok(written?
        .lines()
        .filter(|l| !l.starts_with("# "))
        .collect::<Vec<_>>()
        .join("\n"))
}

pub(super) fn new_decision(
    d: &Decisions<'_>,
    title: &str,
    f: &Fields,
    force: bool,
) -> Result<NewDecision> {
    Ok(NewDecision {
        title: title.to_owned(),
        rationale: rationale(f.rationale.as_ref(), title)?,
        kind: f.kind,
        files: f.files.iter().map(|p| from_top(d, p)).collect(),
        alternatives: f
            .alternative
            .iter()
            .map(|a| Alternative::parse(a))
            .collect(),
        supersedes: f.supersedes.clone(),
        made_by: who(f.by.as_ref()),
        accept: f.accept,
        force,
    })
}

pub(super) fn recorded(d: &Decisions<'_>, r: &Recorded, out: Out, as_json: bool) -> Result<u8> {
    if as_json {
        out.json(&text::recorded_json(r, &d.workspace.slug))?;
        return Ok(if matches!(r, Recorded::New(_)) { 0 } else { 1 });
    }
    match r {
        Recorded::New(x) => {
            out.line(&format!(
                "recorded {}  {}  {}",
                x.id,
                x.status.name(),
                x.path
            ))?;
            if x.status == Status::Proposed {
                out::note(&format!(
                    "hint: it is proposed; `weft decisions accept {}` when it is agreed on",
                    x.path
                ));
            }
            Ok(0)
        }
        Recorded::Near(x) => {
            out.line(&format!(
                "not recorded: {} says nearly the same: {} ({})",
                x.path,
                x.record.title,
                x.status.name()
            ))?;
            out::note("hint: --force records it anyway, --supersedes replaces the other one");
            Ok(1)
        }
    }
}

pub(crate) fn decide(c: &Decide, settings: &Settings, out: Out) -> Result<u8> {
    let engine = open(settings)?;
    let d = decisions_for_writing(&engine, &c.place)?;
    let r = d.record(new_decision(&d, &c.title, &c.fields, c.force)?)?;
    recorded(&d, &r, out, c.place.json)
}
