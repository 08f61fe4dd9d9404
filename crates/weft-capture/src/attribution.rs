//! Whose turn a captured exchange is: session, thread and agent, out of request headers.
//!
//! Three kinds of evidence, the first that speaks wins: the `x-tapes-*` headers that a launcher sets, the
//! headers that agents send of themselves, and what an agent wrote into its request.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use crate::envelope::Envelope;

/// Largest metadata header, bytes of decoded JSON.
const MAX_METADATA: usize = 4096;
/// How much of a system prompt is looked through for a working directory, bytes.
const MAX_PROMPT: usize = 256 * 1024;

/// Headers that are for us and go no further. Names are in lower case.
pub fn is_ours(name: &str) -> bool {
    name.starts_with("x-tapes-") || name.starts_with("x-paper-auth-") || name == "x-weft-token"
}

/// The session that `x-tapes-*` headers describe. `header` looks a header up by its name in lower case.
pub fn from_tapes_headers<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Envelope {
    let text = |name| header(name).unwrap_or_default().to_owned();
    let harness_id = match text("x-tapes-harness-id") {
        id if id.is_empty() => "unknown".into(),
        id => id,
    };
    let metadata = header("x-tapes-harness-metadata")
        .and_then(|v| URL_SAFE_NO_PAD.decode(v).ok())
        .filter(|b| b.len() <= MAX_METADATA)
        .and_then(|b| serde_json::from_slice(&b).ok())
        .and_then(|v| match v {
            Value::Object(o) => Some(o),
            _ => None,
        });
    Envelope {
        auth_subject: text("x-paper-auth-subject"),
        harness_id,
        harness_session_id: text("x-tapes-harness-session-id"),
        harness_version: text("x-tapes-harness-version"),
        cwd: unescaped(&text("x-tapes-cwd")),
        name: unescaped(&text("x-tapes-session-name")),
        parent_harness_session_id: header("x-tapes-parent-harness-session-id")
            .filter(|p| !p.is_empty())
            .map(str::to_owned),
        harness_metadata: metadata.unwrap_or_default(),
        text: String::new(),
    }
}

/// The session that an agent names of itself, in headers of its own.
pub fn from_agent_headers<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Option<Envelope> {
    let given = |name: &str| header(name).map(str::trim).filter(|v| !v.is_empty());
    let user_agent = given("user-agent").unwrap_or_default();
    let named = |harness: &str, session: &str| Envelope {
        harness_id: harness.into(),
        harness_session_id: session.into(),
        harness_version: version(user_agent),
        ..Envelope::default()
    };
    if let Some(session) = given("x-claude-code-session-id") {
        return Some(named("claude", session));
    }
    if let Some(session) = given("session-id").or_else(|| given("session_id")) {
        let codex = user_agent.starts_with("codex")
            || given("originator").is_some_and(|o| o.starts_with("codex"))
            || given("x-codex-turn-metadata").is_some();
        if codex {
            return Some(named("codex", session));
        }
    }
    given("x-session-id")
        .filter(|_| user_agent.contains("opencode"))
        .map(|session| named("opencode", session))
}

/// The session that Claude Code writes into `metadata.user_id` of its requests: a JSON object with a
/// `session_id`, or, in older versions, a text that ends in `_session_<id>`.
pub fn from_request(request: &Value) -> Option<Envelope> {
    let user = request["metadata"]["user_id"].as_str()?;
    let session = match serde_json::from_str::<Value>(user) {
        Ok(v) => v["session_id"].as_str()?.to_owned(),
        Err(_) => user.rsplit_once("_session_")?.1.to_owned(),
    };
    (!session.is_empty()).then(|| Envelope {
        harness_id: "claude".into(),
        harness_session_id: session,
        ..Envelope::default()
    })
}

/// The working directory that an agent tells its model; "" where it tells none. Claude Code writes a line
/// `Working directory: …` into its system prompt, Codex a `<cwd>` element into its first message.
pub fn working_directory(harness: &str, request: &Value) -> String {
    let (members, before, after): (&[&str], &str, char) = match harness {
        "claude" => (&["system", "messages"], "orking directory: ", '\n'),
        "codex" => (&["input"], "<cwd>", '<'),
        _ => return String::new(),
    };
    let mut left = MAX_PROMPT;
    members
        .iter()
        .find_map(|m| find_text(&request[*m], before, after, &mut left))
        .filter(|d| d.starts_with('/') || d.get(1..3) == Some(":\\"))
        .map(|d| without_controls(d.trim()))
        .unwrap_or_default()
}

/// The text between `before` and `after` in the first string that holds it.
fn find_text(v: &Value, before: &str, after: char, left: &mut usize) -> Option<String> {
    match v {
        Value::String(s) => {
            let s = weft_core::project::cut_bytes(s, *left);
            *left -= s.len();
            let rest = &s[s.find(before)? + before.len()..];
            Some(rest[..rest.find(after).unwrap_or(rest.len())].to_owned())
        }
        Value::Array(a) => a.iter().find_map(|v| find_text(v, before, after, left)),
        Value::Object(o) => ["text", "content"]
            .iter()
            .filter_map(|k| o.get(*k))
            .find_map(|v| find_text(v, before, after, left)),
        _ => None,
    }
}

/// The thread of a subagent: Claude Code's agent id, or Codex' thread where it is not the session's own;
/// "" = the main thread.
pub fn thread_id<'a>(header: impl Fn(&str) -> Option<&'a str>) -> String {
    let given = |name: &str| header(name).map(str::trim).unwrap_or_default();
    let agent = given("x-claude-code-agent-id");
    if !agent.is_empty() {
        return agent.into();
    }
    let (thread, session) = (given("thread-id"), given("session-id"));
    if thread.is_empty() || session.is_empty() || thread == session {
        return String::new();
    }
    thread.into()
}

/// The session block as a producer would have sent it.
pub fn block_text(e: &Envelope) -> String {
    let mut o = Map::new();
    for (key, value) in [
        ("org_id", ""),
        ("auth_subject", &e.auth_subject),
        ("harness_id", &e.harness_id),
        ("harness_session_id", &e.harness_session_id),
    ] {
        o.insert(key.into(), json!(value));
    }
    let parent = e.parent_harness_session_id.as_deref().unwrap_or_default();
    for (key, value) in [
        ("harness_version", e.harness_version.as_str()),
        ("cwd", &e.cwd),
        ("name", &e.name),
        ("parent_harness_session_id", parent),
    ] {
        if !value.is_empty() {
            o.insert(key.into(), json!(value));
        }
    }
    if !e.harness_metadata.is_empty() {
        o.insert("harness_metadata".into(), json!(e.harness_metadata));
    }
    Value::Object(o).to_string()
}

/// Undoes percent-encoding as of a path (`+` stays). What is not well-formed stays as it is; what would
/// hold control characters is dropped.
fn unescaped(text: &str) -> String {
    without_controls(&decoded(text).unwrap_or_else(|| text.to_owned()))
}

fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        out.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(out).ok()
}

fn without_controls(text: &str) -> String {
    if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return String::new();
    }
    text.to_owned()
}

/// The version in a user agent such as `claude-cli/2.1.197 (external, cli)`.
fn version(user_agent: &str) -> String {
    let first = user_agent.split(' ').next().unwrap_or_default();
    first
        .split_once('/')
        .map(|(_, v)| v.to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<&'a str> {
        |name| pairs.iter().find(|p| p.0 == name).map(|p| p.1)
    }

    #[test]
    fn agents_name_themselves() {
        let claude = from_agent_headers(of(&[
            ("x-claude-code-session-id", "s1"),
            ("user-agent", "claude-cli/2.1.197 (external, cli)"),
        ]))
        .expect("claude");
        assert_eq!(
            (claude.harness_id.as_str(), claude.harness_version.as_str()),
            ("claude", "2.1.197")
        );
        let codex = [("session-id", "s2"), ("originator", "codex_exec")];
        assert_eq!(
            from_agent_headers(of(&codex)).map(|e| e.harness_id),
            Some("codex".into())
        );
        // Somebody else's header of that name means nothing.
        assert_eq!(from_agent_headers(of(&[("session-id", "s2")])), None);
        let user = json!({"metadata": {"user_id": "{\"device_id\":\"d\",\"session_id\":\"s3\"}"}});
        assert_eq!(
            from_request(&user).map(|e| e.harness_session_id),
            Some("s3".into())
        );
        let old = json!({"metadata": {"user_id": "user_ab_account_cd_session_s4"}});
        assert_eq!(
            from_request(&old).map(|e| e.harness_session_id),
            Some("s4".into())
        );
        assert_eq!(from_request(&json!({"metadata": {"user_id": "ann"}})), None);
    }

    #[test]
    fn working_directories_are_read_from_prompts() {
        let claude = json!({"system": [{"type": "text", "text": "x"},
            {"type": "text", "text": "<env>\nWorking directory: /home/ann/shop\nIs git"}]});
        assert_eq!(working_directory("claude", &claude), "/home/ann/shop");
        let codex = json!({"input": [{"role": "user", "content": [
            {"type": "input_text", "text": "<environment_context>\n  <cwd>/srv/shop</cwd>"}]}]});
        assert_eq!(working_directory("codex", &codex), "/srv/shop");
        assert_eq!(working_directory("unknown", &codex), "");
        assert_eq!(
            working_directory("claude", &json!({"system": "Working directory: none"})),
            ""
        );
    }

    #[test]
    fn percent_encoding_is_undone_or_left() {
        assert_eq!(unescaped("/a%20b+c%C3%A9"), "/a b+cé");
        assert_eq!(unescaped("/a%zz"), "/a%zz");
        assert_eq!(unescaped("/a%"), "/a%");
        assert_eq!(unescaped("/a%0Ab"), "");
    }
}
