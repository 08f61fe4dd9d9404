//! Skills from conversations: what was wanted, what worked, what did not, as a `SKILL.md` that another agent
//! can follow.
//!
//! The form is that of Agent Skills (a folder with a `SKILL.md`, front matter with `name` and `description`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::block::ContentBlock;
use crate::edits;
use crate::project::cut_chars;
use crate::redact::redact_lines;
use crate::time::{Micros, parse_micros};

/// Bytes of a name at most.
pub const MAX_NAME: usize = 64;
/// Code points of a description at most.
const MAX_DESCRIPTION: usize = 1_024;
const MAX_STEPS: usize = 12;
const MAX_DEEDS: usize = 6;
const MAX_COMMANDS: usize = 15;
const MAX_FILES: usize = 20;
const MAX_PITFALLS: usize = 8;
/// Code points of one command that is shown.
const MAX_COMMAND: usize = 400;

/// A call of a tool.
#[derive(Clone, Debug, Default)]
pub struct Act {
    /// Number of the turn that it belongs to.
    pub turn: usize,
    /// Tool.
    pub tool: String,
    /// Arguments.
    pub input: Map<String, Value>,
    /// What it answered.
    pub output: String,
    /// Whether it failed.
    pub failed: bool,
}

/// A session, as far as a skill is made of it.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// Id of the session.
    pub session: String,
    /// Agent program.
    pub agent: String,
    /// Repository; "" = none.
    pub repository: String,
    /// Folder that it worked in: paths are shown from there; "" = unknown.
    pub folder: String,
    /// What was asked, turn by turn.
    pub prompts: Vec<String>,
    /// What was done.
    pub acts: Vec<Act>,
    /// What was answered last.
    pub outcome: String,
}

impl Conversation {
    /// A conversation from its traces as the read API tells them (`GET /v1/sessions/{id}/traces`); only turns
    /// that began from `since` on and before `until`. `None` = that is no such answer.
    pub fn read(v: &Value, since: Option<Micros>, until: Option<Micros>) -> Option<Self> {
        let session = v.get("session")?;
        let text = |v: &Value, k: &str| v[k].as_str().unwrap_or_default().to_owned();
        let mut c = Self {
            session: text(session, "id"),
            agent: text(session, "harness_id"),
            folder: text(session, "cwd").trim_end_matches('/').to_owned(),
            ..Self::default()
        };
        for t in v.get("traces")?.as_array()? {
            let trace = &t["trace"];
            let at = parse_micros(&text(trace, "started_at")).unwrap_or_default();
            if since.is_some_and(|s| at < s) || until.is_some_and(|u| at >= u) {
                continue;
            }
            let turn = c.prompts.len();
            c.prompts.push(text(trace, "user_prompt"));
            for s in t["spans"].as_array().into_iter().flatten() {
                let blocks = |k: &str| -> Vec<ContentBlock> {
                    serde_json::from_value(s[k].clone()).unwrap_or_default()
                };
                match s["kind"].as_str() {
                    Some("tool") => {
                        c.acts.extend(Act::read(
                            turn,
                            &text(s, "name"),
                            s["status"] == "error",
                            &blocks("input"),
                            &blocks("output"),
                        ));
                    }
                    Some("llm") if s["call_kind"] == "main" && text(s, "thread_id").is_empty() => {
                        let said: Vec<String> = blocks("output")
                            .into_iter()
                            .filter(|b| b.kind == "text" && !b.text.trim().is_empty())
                            .map(|b| b.text)
                            .collect();
                        if !said.is_empty() {
                            c.outcome = said.join("\n");
                        }
                    }
                    _ => {}
                }
            }
        }
        Some(c)
    }

    /// Whether nothing was said and nothing done.
    pub fn is_empty(&self) -> bool {
        self.acts.is_empty()
            && self.outcome.is_empty()
            && self.prompts.iter().all(|p| p.trim().is_empty())
    }
}

impl Act {
    /// A call from the blocks of its span.
    fn read(
        turn: usize,
        name: &str,
        failed: bool,
        input: &[ContentBlock],
        output: &[ContentBlock],
    ) -> Option<Self> {
        let call = input
            .iter()
            .find(|b| !b.tool_input.is_empty() || !b.tool_name.is_empty())?;
        let said = |b: &ContentBlock| match b.tool_output.is_empty() {
            true => b.text.clone(),
            false => b.tool_output.clone(),
        };
        Some(Self {
            turn,
            tool: match call.tool_name.as_str() {
                "" => name.to_owned(),
                n => n.to_owned(),
            },
            input: call.tool_input.clone(),
            failed: failed || output.iter().any(|b| b.is_error),
            output: output.iter().map(said).collect::<Vec<_>>().join("\n"),
        })
    }
}

/// A turn in which something was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// What was asked.
    pub asked: String,
    /// What was done, in order.
    pub did: Vec<String>,
}

/// Something that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pitfall {
    /// What was tried.
    pub tried: String,
    /// What it said.
    pub said: String,
    /// What worked after it; "" = nothing of the kind.
    pub then: String,
}

/// What conversations hold of a skill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// What was wanted, each conversation's.
    pub goals: Vec<String>,
    /// What was done about it.
    pub steps: Vec<Step>,
    /// Commands that worked, with how often.
    pub commands: Vec<(String, usize)>,
    /// Files that were written, with how often; the most written first.
    pub files: Vec<(String, usize)>,
    /// What failed.
    pub pitfalls: Vec<Pitfall>,
    /// How it ended, each conversation's.
    pub outcomes: Vec<String>,
}

/// Whether a name is one: lower-case words with single dashes, at most 64 bytes.
pub fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.split('-').all(|w| {
            !w.is_empty()
                && w.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        })
}

fn flat(text: &str, max: usize) -> String {
    cut_chars(&text.split_whitespace().collect::<Vec<_>>().join(" "), max)
}

/// The command of a call that runs one.
fn command(a: &Act) -> Option<String> {
    let v = a.input.get("command").or_else(|| a.input.get("cmd"))?;
    let text = match v {
        Value::String(s) => s.clone(),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            // `bash -lc COMMAND`: the shell is no news.
            match words.as_slice() {
                [_, flag, script] if matches!(*flag, "-c" | "-lc") => (*script).to_owned(),
                words => words.join(" "),
            }
        }
        _ => return None,
    };
    let text = text.trim().to_owned();
    (!text.is_empty() && !text.contains("*** Begin Patch")).then_some(text)
}

/// Whether a command only looks: it says nothing about how something is done.
fn only_looks(command: &str) -> bool {
    const LOOKS: [&str; 24] = [
        "ls", "cat", "pwd", "cd", "echo", "head", "tail", "grep", "rg", "find", "which", "wc",
        "tree", "stat", "file", "type", "env", "printenv", "date", "whoami", "less", "sleep",
        "true", "test",
    ];
    const GIT: [&str; 7] = [
        "status",
        "log",
        "diff",
        "show",
        "branch",
        "blame",
        "rev-parse",
    ];
    let part_looks = |part: &str| {
        let mut words = part.split_whitespace().skip_while(|w| w.contains('='));
        match (words.next(), words.next()) {
            (None, _) => true,
            (Some("git"), Some(sub)) => GIT.contains(&sub),
            (Some("sed"), Some(flag)) => flag == "-n",
            (Some(w), _) => LOOKS.contains(&w),
        }
    };
    command
        .split(['|', ';', '\n', '&'])
        .all(|p| part_looks(p.trim()))
}

/// Whether a call failed: it says so, or the exit code in its answer does.
fn failed(a: &Act) -> bool {
    if a.failed {
        return true;
    }
    let code = |rest: &str| -> Option<i64> {
        let digits: String = rest
            .trim_start_matches([':', ' ', '"'])
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == '-')
            .collect();
        digits.parse().ok()
    };
    let start = &a.output[..a.output.floor_char_boundary(400)];
    let lower = start.to_ascii_lowercase();
    ["exit code", "exited with code", "\"exit_code\""]
        .iter()
        .filter_map(|m| lower.find(m).map(|i| &lower[i + m.len()..]))
        .filter_map(code)
        .any(|n| n != 0)
}

/// The line of an answer that says what went wrong.
fn complaint(output: &str) -> String {
    const WORDS: [&str; 8] = [
        "error",
        "failed",
        "fatal",
        "panicked",
        "cannot",
        "not found",
        "denied",
        "exception",
    ];
    let lines: Vec<&str> = output
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.to_ascii_lowercase().starts_with("exit code"))
        .collect();
    let telling = lines.iter().find(|l| {
        let lower = l.to_ascii_lowercase();
        WORDS.iter().any(|w| lower.contains(w))
    });
    flat(telling.or(lines.first()).copied().unwrap_or_default(), 200)
}

/// A path as seen from the folder.
fn inside<'a>(path: &'a str, folder: &str) -> &'a str {
    match path.strip_prefix(folder) {
        Some(rest) if !folder.is_empty() && rest.starts_with('/') => &rest[1..],
        _ => path,
    }
}

fn deed(a: &Act, folder: &str) -> Option<String> {
    if let Some(c) = command(a) {
        return (!only_looks(&c)).then(|| format!("Ran `{}`", flat(&c, 160).replace('`', "'")));
    }
    let files = written(a, folder);
    (!files.is_empty()).then(|| format!("Edited {}", files.join(", ")))
}

fn written(a: &Act, folder: &str) -> Vec<String> {
    let patches = |v: &Value| v.to_string().contains("*** Begin Patch");
    if !edits::writes(&a.tool) && !a.input.values().any(patches) {
        return Vec::new();
    }
    let mut out: Vec<String> = edits::edits(&a.input)
        .iter()
        .map(|e| inside(&e.path, folder).to_owned())
        .filter(|p| !p.is_empty())
        .collect();
    out.dedup();
    out
}

/// What conversations hold of a skill.
pub fn outline(all: &[Conversation]) -> Outline {
    let mut out = Outline::default();
    let mut files: BTreeMap<String, usize> = BTreeMap::new();
    for c in all {
        if let Some(p) = c.prompts.iter().find(|p| !p.trim().is_empty()) {
            out.goals.push(flat(p, 600));
        }
        if !c.outcome.trim().is_empty() {
            out.outcomes.push(flat(&c.outcome, 600));
        }
        let mut steps: Vec<(usize, Step)> = Vec::new();
        for (i, a) in c.acts.iter().enumerate() {
            if failed(a) {
                let after = &c.acts[i + 1..];
                pitfall(&mut out.pitfalls, a, after, &c.folder);
                continue;
            }
            for f in written(a, &c.folder) {
                *files.entry(f).or_default() += 1;
            }
            if let Some(text) = command(a).filter(|t| !only_looks(t)) {
                let text = cut_chars(&text, MAX_COMMAND);
                match out.commands.iter_mut().find(|k| k.0 == text) {
                    Some(known) => known.1 += 1,
                    None => out.commands.push((text, 1)),
                }
            }
            let Some(did) = deed(a, &c.folder) else {
                continue;
            };
            if steps.last().is_none_or(|(turn, _)| *turn != a.turn) {
                let asked = c.prompts.get(a.turn).map(|p| flat(p, 200));
                steps.push((
                    a.turn,
                    Step {
                        asked: asked.unwrap_or_default(),
                        did: Vec::new(),
                    },
                ));
            }
            if let Some((_, s)) = steps.last_mut()
                && s.did.last() != Some(&did)
            {
                s.did.push(did);
            }
        }
        out.steps.extend(steps.into_iter().map(|s| s.1));
    }
    for s in &mut out.steps {
        if s.did.len() > MAX_DEEDS {
            let left = s.did.len() - MAX_DEEDS + 1;
            s.did.truncate(MAX_DEEDS - 1);
            s.did.push(format!("and {left} more calls of this kind"));
        }
    }
    out.steps.truncate(MAX_STEPS);
    out.files = files.into_iter().collect();
    out.files.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    out.files.truncate(MAX_FILES);
    // What was run again and again comes first; else in the order of the work.
    out.commands.sort_by_key(|c| std::cmp::Reverse(c.1.min(3)));
    out.commands.truncate(MAX_COMMANDS);
    out.pitfalls.truncate(MAX_PITFALLS);
    out
}

fn pitfall(to: &mut Vec<Pitfall>, a: &Act, after: &[Act], folder: &str) {
    let first = |t: &str| t.split_whitespace().next().unwrap_or_default().to_owned();
    let (tried, then) = match command(a) {
        Some(c) => {
            let program = first(&c);
            let worked = after
                .iter()
                .filter(|x| !failed(x))
                .filter_map(command)
                .find(|x| first(x) == program && *x != c);
            (format!("`{}`", flat(&c, 160).replace('`', "'")), worked)
        }
        None => {
            let files = written(a, folder);
            let tried = match files.first() {
                Some(f) => format!("{} of {f}", a.tool),
                None => a.tool.clone(),
            };
            (tried, None)
        }
    };
    let said = complaint(&a.output);
    if said.is_empty() || to.iter().any(|p| p.said == said) {
        return;
    }
    to.push(Pitfall {
        tried,
        said,
        then: then.map(|t| flat(&t, 160)).unwrap_or_default(),
    });
}

/// A description where none was given: when the skill is of use.
pub fn description(o: &Outline) -> String {
    match o.goals.first() {
        Some(g) => format!("Use when asked for something like: {}", flat(g, 300)),
        None => "What worked in earlier sessions".to_owned(),
    }
}

/// A text in a fence that it does not end.
fn fenced(text: &str) -> String {
    let longest = text
        .split(|c| c != '`')
        .map(str::len)
        .max()
        .unwrap_or_default();
    let fence = "`".repeat((longest + 1).max(3));
    format!("{fence}sh\n{text}\n{fence}")
}

/// What the outline says, in Markdown.
pub fn body(name: &str, o: &Outline) -> String {
    let title: String = name.replace('-', " ");
    let mut out = format!("# {title}\n");
    let mut section = |heading: &str, text: String| {
        if !text.is_empty() {
            out.push_str(&format!("\n## {heading}\n\n{text}\n"));
        }
    };
    let list = |items: &[String]| {
        items
            .iter()
            .map(|i| format!("- {i}"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    section("Goal", list(&o.goals));
    let steps: Vec<String> = o
        .steps
        .iter()
        .enumerate()
        .map(|(i, s)| {
            let mut t = format!(
                "{}. {}",
                i + 1,
                if s.asked.is_empty() { "Then" } else { &s.asked }
            );
            for d in &s.did {
                t.push_str(&format!("\n   - {d}"));
            }
            t
        })
        .collect();
    section("Steps that worked", steps.join("\n"));
    let commands: Vec<String> = o.commands.iter().map(|c| c.0.clone()).collect();
    section(
        "Commands",
        if commands.is_empty() {
            String::new()
        } else {
            fenced(&commands.join("\n"))
        },
    );
    let files: Vec<String> = o
        .files
        .iter()
        .map(|(f, n)| {
            if *n > 1 {
                format!("`{f}` ({n} edits)")
            } else {
                format!("`{f}`")
            }
        })
        .collect();
    section("Files", list(&files));
    let pitfalls: Vec<String> = o
        .pitfalls
        .iter()
        .map(|p| {
            let then = if p.then.is_empty() {
                String::new()
            } else {
                format!("; what worked: `{}`", p.then.replace('`', "'"))
            };
            format!("{}: {}{then}", p.tried, p.said)
        })
        .collect();
    section("Pitfalls", list(&pitfalls));
    section("Outcome", list(&o.outcomes));
    out
}

/// A text as a value of front matter: on one line, in quotes.
fn quoted(text: &str) -> String {
    let text = flat(text, MAX_DESCRIPTION);
    let safe: String = text.chars().filter(|c| !c.is_control()).collect();
    format!("\"{}\"", safe.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The whole `SKILL.md`; secrets are taken out.
pub fn document(name: &str, description: &str, sessions: &[Conversation], body: &str) -> String {
    let mut out = format!(
        "---\nname: {name}\ndescription: {}\nmetadata:\n  generator: weft\n  sessions:\n",
        quoted(description)
    );
    for s in sessions {
        out.push_str(&format!("    - {}\n", quoted(&s.session)));
    }
    out.push_str("---\n\n");
    out.push_str(body.trim());
    out.push('\n');
    redact_lines(&out).unwrap_or(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn act(turn: usize, tool: &str, input: Value, output: &str) -> Act {
        Act {
            turn,
            tool: tool.into(),
            input: input.as_object().cloned().unwrap_or_default(),
            output: output.into(),
            failed: false,
        }
    }

    fn sample() -> Conversation {
        let mut broken = act(
            0,
            "Bash",
            json!({"command": "cargo test"}),
            "Exit code: 101\nerror: linker `cc` not found\n",
        );
        broken.failed = true;
        Conversation {
            session: "s-1".into(),
            agent: "claude".into(),
            folder: "/home/a/shop".into(),
            prompts: vec!["Add a refund   endpoint".into(), "and test it".into()],
            acts: vec![
                act(
                    0,
                    "Bash",
                    json!({"command": "ls -la | head && git status"}),
                    "",
                ),
                broken,
                act(
                    0,
                    "Bash",
                    json!({"command": "apt-get install -y gcc"}),
                    "done",
                ),
                act(
                    0,
                    "Write",
                    json!({"file_path": "/home/a/shop/src/refunds.rs", "content": "fn f() {}"}),
                    "ok",
                ),
                act(
                    1,
                    "Edit",
                    json!({"file_path": "/home/a/shop/src/refunds.rs", "old_string": "a", "new_string": "b"}),
                    "ok",
                ),
                act(
                    1,
                    "Bash",
                    json!({"command": "cargo test --workspace"}),
                    "ok",
                ),
                act(
                    1,
                    "shell",
                    json!({"command": ["bash", "-lc", "cargo test --workspace"]}),
                    "{\"output\":\"\",\"metadata\":{\"exit_code\":0}}",
                ),
                act(
                    1,
                    "shell",
                    json!({"command": ["make", "x"]}),
                    "{\"output\":\"make: *** No rule, cannot go on\",\"metadata\":{\"exit_code\":2}}",
                ),
            ],
            outcome: "The endpoint is there and tested.".into(),
            ..Conversation::default()
        }
    }

    #[test]
    fn what_worked_and_what_did_not_are_told_apart() {
        let o = outline(&[sample()]);
        assert_eq!(o.goals, ["Add a refund endpoint"]);
        assert_eq!(
            o.commands,
            [
                ("cargo test --workspace".to_owned(), 2),
                ("apt-get install -y gcc".to_owned(), 1)
            ]
        );
        assert_eq!(o.files, [("src/refunds.rs".to_owned(), 2)]);
        assert_eq!(o.steps.len(), 2);
        assert_eq!(
            o.steps[0].did,
            ["Ran `apt-get install -y gcc`", "Edited src/refunds.rs"]
        );
        assert_eq!(o.pitfalls[0].said, "error: linker `cc` not found");
        assert_eq!(o.pitfalls[0].then, "cargo test --workspace");
        assert_eq!(o.pitfalls.len(), 2);
    }

    #[test]
    fn a_document_is_front_matter_and_sections() {
        let mut c = sample();
        c.acts.push(act(
            1,
            "Bash",
            json!({"command": "echo '```' > x; deploy --key sk-ant-REDACTED"}),
            "",
        ));
        let o = outline(std::slice::from_ref(&c));
        let text = document(
            "refund-endpoint",
            "When \"refunds\": \n are asked",
            &[c],
            &body("refund-endpoint", &o),
        );
        assert!(
            text.starts_with(
                "---\nname: refund-endpoint\ndescription: \"When \\\"refunds\\\": are asked\"\n"
            ),
            "{text}"
        );
        for heading in [
            "# refund endpoint",
            "## Goal",
            "## Steps that worked",
            "## Commands",
            "## Files",
            "## Pitfalls",
            "## Outcome",
        ] {
            assert!(text.contains(heading), "{heading}: {text}");
        }
        assert!(text.contains("````sh\n"), "{text}");
        assert_eq!(outline(&[]), Outline::default());
        assert!(document("x", "", &[], &body("x", &Outline::default())).contains("# x"));
    }

    #[test]
    fn names_are_kebab_case() {
        for good in ["a", "debug-react-hooks", "v2"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "A", "a--b", "-a", "a-", "a b", "../x", "a/b", "é"] {
            assert!(!is_name(bad), "{bad}");
        }
        assert!(!is_name(&"a".repeat(65)));
    }
}
