//! Resources: a session, a span, a decision, a symbol or file, a commit, as a person puts them into a
//! conversation.
//!
//! A URI is `weft://` and a reference as a search prints it: `weft://session/ID`, `weft://span/ID`,
//! `weft://decision/PATH`, `weft://commit/ID`, `weft://symbol/PATH::NAME`.

use rmcp::model::{
    ErrorData, ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate,
};
use weft_core::project::cut_chars;
use weft_engine::show::{ShowError, Shown};
use weft_engine::{Engine, ListQuery};

use super::Profile;
use super::tool::hinted;
use crate::all_text;
use crate::code_text::safe;

/// The scheme and what stands between it and a reference.
const SCHEME: &str = "weft://";
/// Sessions and decisions that are listed, each.
const LISTED: usize = 30;
/// Turns of a session that are shown.
const TURNS: usize = 200;

/// Kinds of a URI, with how a reference of it begins.
const KINDS: [(&str, &str); 5] = [
    ("session", "session:"),
    ("span", "span:"),
    ("decision", "decision:"),
    ("commit", "commit:"),
    ("symbol", ""),
];

fn has(profile: Profile, kind: &str) -> bool {
    match profile {
        Profile::All => true,
        Profile::Spans => matches!(kind, "session" | "span"),
        Profile::Code => matches!(kind, "symbol" | "commit"),
        Profile::Decisions => kind == "decision",
    }
}

/// A reference in a URI: what is no letter, digit or plain sign is escaped (RFC 3986).
fn uri(kind: &str, name: &str) -> String {
    let mut out = format!("{SCHEME}{kind}/");
    for b in name.bytes() {
        if b.is_ascii_alphanumeric() || b"-._~/:@!$&'()*+,;=".contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

/// The reference that a URI stands for.
fn reference(uri: &str) -> Option<(&'static str, String)> {
    let (kind, name) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    let (kind, prefix) = KINDS.iter().find(|k| k.0 == kind)?;
    let mut bytes = Vec::new();
    let mut rest = name.bytes();
    while let Some(b) = rest.next() {
        if b != b'%' {
            bytes.push(b);
            continue;
        }
        let hex = [rest.next()?, rest.next()?];
        bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
    }
    let name = String::from_utf8(bytes).ok().filter(|n| !n.is_empty())?;
    Some((kind, format!("{prefix}{name}")))
}

pub(super) fn templates(profile: Profile) -> ListResourceTemplatesResult {
    let all = [
        (
            "session",
            "weft://session/{id}",
            "Session",
            "A conversation with an agent: its turns, and how to resume it",
        ),
        (
            "span",
            "weft://span/{id}",
            "Span",
            "One call of a conversation with its neighbours",
        ),
        (
            "decision",
            "weft://decision/{+path}",
            "Decision",
            "A decision in full, with why, and whether it is stale",
        ),
        (
            "commit",
            "weft://commit/{id}",
            "Commit",
            "A commit and the files that it touched",
        ),
        (
            "symbol",
            "weft://symbol/{+path}",
            "Symbol or file",
            "Source: path::symbol, path:line or path",
        ),
    ];
    let templates = all
        .into_iter()
        .filter(|t| has(profile, t.0))
        .map(|(kind, template, title, description)| {
            ResourceTemplate::new(template, kind)
                .with_title(title)
                .with_description(description)
                .with_mime_type(mime(kind))
        })
        .collect();
    ListResourceTemplatesResult::with_all_items(templates)
}

fn mime(kind: &str) -> &'static str {
    if kind == "decision" {
        "text/markdown"
    } else {
        "text/plain"
    }
}

/// The newest sessions, and the decisions in force of this repository.
pub(super) fn list(engine: &Engine, profile: Profile) -> ListResourcesResult {
    let mut out = Vec::new();
    let flat = |t: &str, max| {
        safe(&cut_chars(
            &t.split_whitespace().collect::<Vec<_>>().join(" "),
            max,
        ))
    };
    if has(profile, "session") {
        let q = ListQuery {
            limit: LISTED,
            ..ListQuery::default()
        };
        // What cannot be listed is not there: a list is no place for errors.
        let (sessions, _) = engine.store().list_sessions(&q).unwrap_or_default();
        out.extend(sessions.iter().map(|s| {
            let title = [&s.row.display_name, &s.row.name, &s.preview]
                .into_iter()
                .find(|t| !t.is_empty())
                .map_or_else(|| s.row.id.clone(), |t| flat(t, 80));
            Resource::new(uri("session", &s.row.id), s.row.id.clone())
                .with_title(title)
                .with_description(format!(
                    "{} in {}, {} turns",
                    s.row.key.harness_id,
                    if s.row.repository.is_empty() {
                        "no repository"
                    } else {
                        &s.row.repository
                    },
                    s.rollup.turn_count
                ))
                .with_mime_type("text/plain")
        }));
    }
    if has(profile, "decision") {
        let loaded = std::env::current_dir()
            .ok()
            .and_then(|here| engine.decisions_here(&here).ok()?.load().ok())
            .unwrap_or_default();
        out.extend(
            loaded
                .all
                .iter()
                .filter(|d| matches!(d.status.name(), "accepted" | "proposed"))
                .rev()
                .take(LISTED)
                .map(|d| {
                    Resource::new(uri("decision", &d.path), d.path.clone())
                        .with_title(flat(&d.record.title, 120))
                        .with_description(format!("{} decision", d.status.name()))
                        .with_mime_type("text/markdown")
                }),
        );
    }
    ListResourcesResult::with_all_items(out)
}

/// A session's turns, a line for what was asked and one for what was answered.
fn turns(engine: &Engine, session: &str) -> String {
    let mut out = String::new();
    let traces = engine.store().traces(session).unwrap_or_default();
    let all = traces.len();
    for t in traces.iter().take(TURNS) {
        let one = |t: &str| safe(&t.split_whitespace().collect::<Vec<_>>().join(" "));
        out.push_str(&format!(
            "\n\n> {}\n{}\n({} tool calls, trace {})",
            one(&t.trace.user_prompt),
            one(&t.trace.response_preview),
            t.trace.tool_calls,
            t.trace.trace_id
        ));
    }
    if all > TURNS {
        out.push_str(&format!("\n\n… {} more turns", all - TURNS));
    }
    out
}

pub(super) fn read(
    engine: &Engine,
    profile: Profile,
    asked: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let missing =
        |why: String| ErrorData::resource_not_found(why, Some(serde_json::json!({"uri": asked})));
    let (kind, reference) = reference(asked)
        .filter(|(kind, _)| has(profile, kind))
        .ok_or_else(|| missing(format!("Resource not found: {asked}")))?;
    let here =
        std::env::current_dir().map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
    let shown = engine.show(&reference, &here).map_err(|e| match e {
        ShowError::Store(e) => ErrorData::internal_error(e.to_string(), None),
        e => missing(hinted(&e, e.hint())),
    })?;
    let mut text = all_text::shown(&shown);
    if let Shown::Session(s) = &shown {
        text.push_str(&turns(engine, &s.row.id));
    }
    Ok(ReadResourceResult::new(vec![
        ResourceContents::text(text, asked).with_mime_type(mime(kind)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_and_references_are_the_same_things() {
        for (kind, name, r) in [
            ("session", "a-b", "session:a-b"),
            ("symbol", "src/a b.rs::X<T>", "src/a b.rs::X<T>"),
            (
                "decision",
                "docs/adr/0001-日.md",
                "decision:docs/adr/0001-日.md",
            ),
        ] {
            assert_eq!(reference(&uri(kind, name)), Some((kind, r.to_owned())));
        }
        for bad in [
            "",
            "weft://",
            "weft://session/",
            "weft://x/y",
            "file:///etc/passwd",
            "weft://span/%",
            "weft://span/%ff",
        ] {
            assert_eq!(reference(bad), None, "{bad}");
        }
    }
}
