//! The MCP clients that weft can put itself into: which files they read, and what stands there.
//!
//! Only what is ours is written and taken out; everything else in a file stays as it is, comments included.

mod edit;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

pub(crate) use edit::{Change, plan, write};

/// Name of the server in every client.
pub(crate) const NAME: &str = "weft";
/// Seconds after which a client gives a hook up; ours ends by itself long before.
const HOOK_TIMEOUT: u64 = 5;

/// A program that speaks MCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    Claude,
    Codex,
    Cursor,
    Vscode,
    Gemini,
    Opencode,
}

impl Client {
    pub(crate) const ALL: [(&'static str, Self); 6] = [
        ("claude", Self::Claude),
        ("codex", Self::Codex),
        ("cursor", Self::Cursor),
        ("vscode", Self::Vscode),
        ("gemini", Self::Gemini),
        ("opencode", Self::Opencode),
    ];

    /// As people call it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Claude => "Claude Code",
            Self::Codex => "Codex",
            Self::Cursor => "Cursor",
            Self::Vscode => "VS Code",
            Self::Gemini => "Gemini CLI",
            Self::Opencode => "OpenCode",
        }
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|c| c.1 == self).map_or("", |c| c.0)
    }
}

/// For whom a client is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Everything that this user does.
    User,
    /// One repository, for everybody who works in it.
    Project,
}

/// Folders of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) home: PathBuf,
    /// `CLAUDE_CONFIG_DIR`.
    pub(crate) claude: Option<PathBuf>,
    /// `CODEX_HOME`.
    pub(crate) codex: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`, or where it is by default.
    pub(crate) config: PathBuf,
    /// Where VS Code keeps a user's files.
    pub(crate) vscode: PathBuf,
    /// Top of the project.
    pub(crate) project: PathBuf,
}

impl Places {
    fn codex_home(&self) -> PathBuf {
        self.codex
            .clone()
            .unwrap_or_else(|| self.home.join(".codex"))
    }

    /// Whether a client was ever used here.
    pub(crate) fn has(&self, c: Client) -> bool {
        match c {
            Client::Claude => {
                self.claude.is_some()
                    || self.home.join(".claude").is_dir()
                    || self.home.join(".claude.json").is_file()
            }
            Client::Codex => self.codex_home().is_dir(),
            Client::Cursor => self.home.join(".cursor").is_dir(),
            Client::Vscode => self.vscode.is_dir(),
            Client::Gemini => self.home.join(".gemini").is_dir(),
            Client::Opencode => self.config.join("opencode").is_dir(),
        }
    }
}

/// How a client reaches weft.
#[derive(Clone, Debug)]
pub(crate) enum Server {
    /// It starts a program.
    Program { command: String, args: Vec<String> },
    /// It asks an address; the token is in an environment variable.
    Address { url: String, token: Option<String> },
}

/// What is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) server: Server,
    /// The program that hooks start; `None` = no hooks.
    pub(crate) hooks: Option<String>,
}

/// What stands at one place of a file.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// A JSON file: the value of `weft` in an object of this name.
    Server { under: &'static str, value: Value },
    /// A TOML file: `[mcp_servers.weft]`.
    Toml { members: Vec<(&'static str, Value)> },
    /// A JSON file with `hooks`: for each event what is appended.
    Hooks {
        /// Members that the file needs beside `hooks`.
        beside: Vec<(&'static str, Value)>,
        events: Vec<(&'static str, Value)>,
    },
}

/// A file and what weft puts into it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    pub(crate) place: Place,
}

/// The files of a client, with what goes there.
pub(crate) fn targets(c: Client, scope: Scope, at: &Places, wanted: &Wanted) -> Vec<Target> {
    let user = scope == Scope::User;
    let file = |of_user: PathBuf, of_project: &str| match user {
        true => of_user,
        false => at.project.join(of_project),
    };
    let home = |p: &str| at.home.join(p);
    let server = |path: PathBuf, under| Target {
        path,
        place: Place::Server {
            under,
            value: server_value(c, &wanted.server),
        },
    };
    let mut out = vec![match c {
        Client::Claude => {
            let own = at
                .claude
                .as_ref()
                .map_or_else(|| home(".claude.json"), |d| d.join(".claude.json"));
            server(file(own, ".mcp.json"), "mcpServers")
        }
        Client::Codex => Target {
            path: file(at.codex_home().join("config.toml"), ".codex/config.toml"),
            place: Place::Toml {
                members: codex_members(&wanted.server),
            },
        },
        Client::Cursor => server(
            file(home(".cursor/mcp.json"), ".cursor/mcp.json"),
            "mcpServers",
        ),
        Client::Vscode => server(
            file(at.vscode.join("mcp.json"), ".vscode/mcp.json"),
            "servers",
        ),
        Client::Gemini => server(
            file(home(".gemini/settings.json"), ".gemini/settings.json"),
            "mcpServers",
        ),
        Client::Opencode => server(opencode(&file(at.config.join("opencode"), "")), "mcp"),
    }];
    if let Some(program) = &wanted.hooks {
        let path = match c {
            Client::Claude => {
                let own = at.claude.clone().unwrap_or_else(|| home(".claude"));
                Some(file(own.join("settings.json"), ".claude/settings.json"))
            }
            Client::Codex => Some(file(
                at.codex_home().join("hooks.json"),
                ".codex/hooks.json",
            )),
            Client::Cursor => Some(file(home(".cursor/hooks.json"), ".cursor/hooks.json")),
            Client::Gemini => Some(file(home(".gemini/settings.json"), ".gemini/settings.json")),
            // VS Code has none yet; OpenCode's are programs in JavaScript.
            Client::Vscode | Client::Opencode => None,
        };
        out.extend(path.map(|path| Target {
            path,
            place: hooks(c, program),
        }));
    }
    out
}

/// The file of OpenCode in a folder: the one that is there, with comments or without.
fn opencode(folder: &Path) -> PathBuf {
    let with_comments = folder.join("opencode.jsonc");
    if with_comments.is_file() {
        with_comments
    } else {
        folder.join("opencode.json")
    }
}

fn server_value(c: Client, s: &Server) -> Value {
    match s {
        Server::Program { command, args } => match c {
            Client::Opencode => {
                let all: Vec<&String> = std::iter::once(command).chain(args).collect();
                json!({"type": "local", "command": all, "enabled": true})
            }
            Client::Claude | Client::Vscode => {
                json!({"type": "stdio", "command": command, "args": args})
            }
            _ => json!({"command": command, "args": args}),
        },
        Server::Address { url, token } => {
            let mut v = match c {
                Client::Opencode => json!({"type": "remote", "url": url, "enabled": true}),
                Client::Claude | Client::Vscode => json!({"type": "http", "url": url}),
                Client::Gemini => json!({"httpUrl": url}),
                _ => json!({"url": url}),
            };
            if let Some(t) = token {
                // Each client has its own way to name a variable of the environment.
                let named = match c {
                    Client::Opencode => format!("{{env:{t}}}"),
                    Client::Cursor | Client::Vscode => format!("${{env:{t}}}"),
                    _ => format!("${{{t}}}"),
                };
                v["headers"] = json!({"Authorization": format!("Bearer {named}")});
            }
            v
        }
    }
}

fn codex_members(s: &Server) -> Vec<(&'static str, Value)> {
    match s {
        Server::Program { command, args } => {
            vec![("command", json!(command)), ("args", json!(args))]
        }
        Server::Address { url, token } => {
            let mut out = vec![("url", json!(url))];
            if let Some(t) = token {
                out.push(("bearer_token_env_var", json!(t)));
            }
            out
        }
    }
}

/// A program as a shell takes it.
fn quoted(program: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:\\".contains(c);
    if program.chars().all(plain) {
        program.to_owned()
    } else {
        format!("\"{}\"", program.replace('"', "\\\""))
    }
}

fn hooks(c: Client, program: &str) -> Place {
    let line = |event: &str| format!("{} hook {event} --client {}", quoted(program), c.name());
    let (start, edit) = (line("session-start"), line("before-edit"));
    let command = |line: &str| json!({"type": "command", "command": line, "timeout": HOOK_TIMEOUT});
    let group = |matcher: &str, line: &str| json!({"matcher": matcher, "hooks": [command(line)]});
    let (beside, events) = match c {
        Client::Cursor => (
            vec![("version", json!(1))],
            vec![("sessionStart", json!({"command": start}))],
        ),
        Client::Gemini => {
            // Milliseconds; before a tool nothing can be told, after it can.
            let group = |matcher: &str, line: &str| json!({"matcher": matcher, "hooks": [{"name": NAME, "type": "command", "command": line, "timeout": HOOK_TIMEOUT * 1_000}]});
            (
                vec![],
                vec![
                    ("SessionStart", group("startup", &start)),
                    ("AfterTool", group("read_file|write_file|replace", &edit)),
                ],
            )
        }
        Client::Codex => (
            vec![],
            vec![
                ("SessionStart", group("startup|resume", &start)),
                ("PreToolUse", group("apply_patch|Edit|Write", &edit)),
            ],
        ),
        _ => (
            vec![],
            vec![
                (
                    "SessionStart",
                    group("startup|resume|clear|compact", &start),
                ),
                (
                    "PreToolUse",
                    group("Edit|Write|MultiEdit|NotebookEdit", &edit),
                ),
            ],
        ),
    };
    Place::Hooks { beside, events }
}
