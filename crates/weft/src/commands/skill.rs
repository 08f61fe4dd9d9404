//! `weft skill`: skills from sessions, and where agents find them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use weft_engine::skill::{Conversation, MAX_SESSIONS, SkillError, SkillRequest, is_name};
use weft_engine::{Engine, Filter, Mode, SpanQuery};

use super::{block_on, catch_up, open, session_id};
use crate::out::{self, Out};
use crate::report::{hinted, usage};
use crate::settings::Settings;

/// The file of a skill.
const FILE: &str = "SKILL.md";
/// What tells a skill that weft made from one that somebody wrote.
const OURS: &str = "\n  generator: weft\n";

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  weft skill generate 01a23265 --name debug-react-hooks
  weft skill generate --search \"retry backoff\" --name retry-backoff --preview
  weft skill list
  weft skill sync debug-react-hooks --claude
  weft skill sync --claude --local

Without skill.provider a skill is taken from the sessions as they are: goal, steps that worked, commands, files,
pitfalls. With it (anthropic, openai or ollama) the model writes it from the same.")]
pub(crate) enum Skill {
    /// Make a skill of one or more sessions
    Generate(Generate),
    /// List the skills
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a skill
    Show {
        /// Its name
        name: String,
    },
    /// Copy skills to where an agent finds them
    Sync(Sync),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Type {
    #[default]
    Workflow,
    DomainKnowledge,
    PromptTemplate,
}

#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// Ids of sessions, or the beginnings of them
    sessions: Vec<String>,
    /// Name: lower-case words with dashes
    #[arg(long)]
    name: String,
    /// When it is of use [default: worked out]
    #[arg(long, default_value = "")]
    description: String,
    /// Take the sessions that a search finds, where none is named
    #[arg(long, value_name = "QUERY", conflicts_with = "sessions")]
    search: Option<String>,
    /// Number of sessions that a search may bring
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=20))]
    search_top: u8,
    /// Only turns at or after this: a date, a time, or an age such as 7d
    #[arg(long, value_parser = super::instant)]
    since: Option<i64>,
    /// Only turns before this
    #[arg(long, value_parser = super::instant)]
    until: Option<i64>,
    /// Print it and keep nothing
    #[arg(long)]
    preview: bool,
    /// Replace a skill of this name
    #[arg(long)]
    force: bool,
    /// Without the model, even where one is configured
    #[arg(long)]
    extract: bool,
    /// Of tapes; there is one kind
    #[arg(long = "type", value_enum, default_value_t, hide = true)]
    kind: Type,
    /// Who writes it: anthropic, openai or ollama [default: skill.provider]
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Its model [default: skill.model]
    #[arg(long)]
    model: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// Names [default: all]
    names: Vec<String>,
    /// To Claude Code: ~/.claude/skills
    #[arg(long)]
    claude: bool,
    /// To this project (.claude/skills) instead of to you
    #[arg(long, visible_alias = "project")]
    local: bool,
    /// To you (the default)
    #[arg(long, hide = true, conflicts_with = "local")]
    global: bool,
    /// Show what would be copied, and copy nothing
    #[arg(long)]
    dry_run: bool,
    /// Replace skills that somebody wrote or changed
    #[arg(long)]
    force: bool,
}

/// Where sessions come from: the local store, or a server that is asked.
pub(crate) trait Sessions {
    /// The ids of sessions that a search finds, best first.
    fn search(&self, query: &str, limit: usize) -> Result<Vec<String>>;

    /// A session with its traces, as the read API tells it.
    fn traces(&self, id: &str) -> Result<Value>;
}

struct Local {
    engine: Arc<Engine>,
}

impl Sessions for Local {
    fn search(&self, query: &str, limit: usize) -> Result<Vec<String>> {
        let found = self.engine.search_spans(&SpanQuery {
            query: query.to_owned(),
            limit,
            mode: Mode::Hybrid,
            filter: Filter::default(),
            context: 0,
        })?;
        Ok(found.hits.into_iter().map(|h| h.session_id).collect())
    }

    fn traces(&self, id: &str) -> Result<Value> {
        let id = session_id(&self.engine, id)?;
        let path = format!("/v1/sessions/{id}/traces");
        let (_, body) = block_on(weft_server::ask(self.engine.clone(), "GET", &path, ""))??;
        serde_json::from_slice(&body).context("reading the session")
    }
}

pub(crate) fn run(c: Skill, settings: &mut Settings, out: Out) -> Result<u8> {
    run_with(c, settings, out, None)
}

/// As [`run`], with sessions from elsewhere.
pub(crate) fn run_with(
    c: Skill,
    settings: &mut Settings,
    out: Out,
    from: Option<&dyn Sessions>,
) -> Result<u8> {
    match c {
        Skill::Generate(g) => generate(g, settings, out, from),
        Skill::List { json } => list(settings, json, out),
        Skill::Show { name } => {
            out.line(read(settings, &name)?.trim_end())?;
            Ok(0)
        }
        Skill::Sync(s) => sync(&s, settings, out),
    }
}

fn folder(settings: &Settings) -> PathBuf {
    settings.data_dir().join("skills")
}

fn told(e: &SkillError) -> anyhow::Error {
    let (text, hint) = (e.to_string(), e.hint().unwrap_or_default());
    match e {
        SkillError::Name(_) | SkillError::NoSession | SkillError::TooMany(_) => usage(text, hint),
        _ => hinted(text, hint),
    }
}

fn generate(
    g: Generate,
    settings: &mut Settings,
    out: Out,
    from: Option<&dyn Sessions>,
) -> Result<u8> {
    if !is_name(&g.name) {
        return Err(told(&SkillError::Name(g.name)));
    }
    let path = folder(settings).join(&g.name).join(FILE);
    if path.exists() && !g.preview && !g.force {
        return Err(hinted(
            format!("there is a skill called {}", g.name),
            "choose another name, or replace it with --force",
        ));
    }
    settings.flag("skill.provider", g.provider);
    settings.flag("skill.model", g.model);
    let engine = open(settings)?;
    let local = Local {
        engine: engine.clone(),
    };
    let from = match from {
        Some(f) => f,
        None => {
            catch_up(&engine, false)?;
            &local
        }
    };
    let mut ids = g.sessions;
    if let Some(query) = g.search {
        let top = usize::from(g.search_top);
        for id in from.search(&query, top * 5)? {
            if ids.len() < top && !ids.contains(&id) {
                ids.push(id);
            }
        }
        if ids.is_empty() {
            return Err(hinted(
                format!("no session is found for {query:?}"),
                "`weft spans search` shows what is there",
            ));
        }
        out::note(&format!("from {}", ids.join(", ")));
    }
    if ids.len() > MAX_SESSIONS {
        return Err(told(&SkillError::TooMany(ids.len())));
    }
    let mut all: Vec<Conversation> = Vec::new();
    for id in &ids {
        let c = Conversation::read(&from.traces(id)?, g.since, g.until)
            .with_context(|| format!("{id} is told as no session"))?;
        if all.iter().all(|k| k.session != c.session) {
            all.push(c);
        }
    }
    let made = engine
        .skill(
            &SkillRequest {
                name: g.name.clone(),
                description: g.description,
                extract_only: g.extract,
            },
            &all,
        )
        .map_err(|e| told(&e))?;
    if !made.not_written.is_empty() {
        out::note(&format!(
            "note: {}; the skill is taken from the sessions as they are",
            made.not_written
        ));
    }
    if g.preview {
        out.line(made.text.trim_end())?;
        return Ok(0);
    }
    replace(&path, &made.text)?;
    let by = match made.model.as_str() {
        "" => String::new(),
        m => format!(", written by {m}"),
    };
    out.line(&format!("{}{by}", path.display()))?;
    out::note(&format!(
        "read it before you use it; `weft skill sync {} --claude` puts it where Claude Code finds it",
        g.name
    ));
    Ok(0)
}

/// Writes a file as a whole.
fn replace(path: &Path, text: &str) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let partial = path.with_extension("partial");
    std::fs::write(&partial, text).with_context(|| format!("writing {}", partial.display()))?;
    std::fs::rename(&partial, path).with_context(|| format!("writing {}", path.display()))
}

fn read(settings: &Settings, name: &str) -> Result<String> {
    if !is_name(name) {
        return Err(told(&SkillError::Name(name.to_owned())));
    }
    std::fs::read_to_string(folder(settings).join(name).join(FILE)).map_err(|_| {
        hinted(
            format!("no skill is called {name}"),
            "`weft skill list` shows them",
        )
    })
}

/// Names and texts, by name.
fn all(settings: &Settings) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = std::fs::read_dir(folder(settings))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| {
            let name = e.file_name().into_string().ok()?;
            let text = std::fs::read_to_string(e.path().join(FILE)).ok()?;
            is_name(&name).then_some((name, text))
        })
        .collect();
    out.sort();
    out
}

/// The description in a skill's front matter.
fn description(text: &str) -> String {
    let line = text.lines().find_map(|l| l.strip_prefix("description: "));
    let line = line.unwrap_or_default().trim();
    serde_json::from_str::<String>(line).unwrap_or_else(|_| line.to_owned())
}

fn list(settings: &Settings, as_json: bool, out: Out) -> Result<u8> {
    let all = all(settings);
    if as_json {
        let skills: Vec<Value> = all
            .iter()
            .map(|(name, text)| {
                let path = folder(settings).join(name).join(FILE);
                json!({"name": name, "description": description(text), "path": path})
            })
            .collect();
        out.json(&json!({"skills": skills}))?;
        return Ok(0);
    }
    if all.is_empty() {
        out::note("no skills yet: `weft skill generate SESSION --name NAME` makes one");
    }
    let width = all.iter().map(|s| s.0.len()).max().unwrap_or_default();
    for (name, text) in &all {
        let said = weft_core::project::cut_chars(&description(text), 100);
        out.line(&format!("{}  {said}", out.bold(&format!("{name:width$}"))))?;
    }
    Ok(0)
}

fn sync(s: &Sync, settings: &Settings, out: Out) -> Result<u8> {
    if !s.claude && !s.local && !s.global && s.names.is_empty() {
        return Err(usage(
            "nowhere to copy to",
            "say --claude; with --local to .claude/skills of this project",
        ));
    }
    let target = if s.local {
        let here = std::env::current_dir().context("reading the current folder")?;
        let top = here.ancestors().find(|f| f.join(".git").exists());
        top.unwrap_or(&here).join(".claude/skills")
    } else {
        let own = std::env::var_os("CLAUDE_CONFIG_DIR").filter(|v| !v.is_empty());
        match (own, std::env::var_os("HOME")) {
            (Some(d), _) => PathBuf::from(d).join("skills"),
            (None, Some(h)) => PathBuf::from(h).join(".claude/skills"),
            (None, None) => return Err(usage("HOME is not set", "set it to your home folder")),
        }
    };
    let mut chosen: Vec<(String, String)> = Vec::new();
    match s.names.as_slice() {
        [] => chosen = all(settings),
        names => {
            for n in names {
                chosen.push((n.clone(), read(settings, n)?));
            }
        }
    }
    if chosen.is_empty() {
        out::note("no skills yet: `weft skill generate SESSION --name NAME` makes one");
    }
    let mut refused = 0;
    for (name, text) in &chosen {
        let to = target.join(name).join(FILE);
        let there = std::fs::read_to_string(&to).ok();
        let what = match &there {
            Some(t) if t == text => "as it is here already",
            Some(t) if !t.contains(OURS) && !s.force => {
                refused += 1;
                out::note(&format!(
                    "error: {}: somebody else wrote it; --force replaces it",
                    to.display()
                ));
                continue;
            }
            _ if s.dry_run => "would be written",
            _ => {
                replace(&to, text)?;
                "written"
            }
        };
        out.line(&format!("{}  {what}", to.display()))?;
    }
    Ok(u8::from(refused > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_out_of_front_matter() {
        assert_eq!(
            description("---\nname: a\ndescription: \"x \\\"y\\\"\"\n---"),
            "x \"y\""
        );
        assert_eq!(description("---\ndescription: plain\n---"), "plain");
        assert_eq!(description(""), "");
    }
}
