//! Decisions as text and as JSON: one form for the command line, HTTP and MCP, and one way to read a
//! new one.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use weft_core::time::format_micros;
use weft_engine::decisions::decision::rank::Verdict;
use weft_engine::decisions::decision::{Alternative, Decision, Status, Type};
use weft_engine::decisions::{DecisionAnswer, DecisionHit, Loaded, NewDecision, Recorded, Stale};

use crate::code_text::{printable, safe};

/// Members of a new decision.
pub const FIELDS: [&str; 11] = [
    "title",
    "rationale",
    "type",
    "decision_type",
    "files",
    "alternatives",
    "supersedes",
    "made_by",
    "by",
    "accept",
    "force",
];

/// Four digits, as scores are shown.
fn rounded(x: f32) -> Value {
    json!((f64::from(x) * 1e4).round() / 1e4)
}

fn stale_json(s: &Stale) -> Value {
    let changes: Vec<Value> = s
        .changes
        .iter()
        .map(|c| {
            let mut v = json!({"target": c.target, "what": c.what});
            if let Some(b) = &c.by {
                v["commit"] =
                    json!({"id": b.changeset, "subject": b.intent, "author": b.author, "at": b.at});
            }
            v
        })
        .collect();
    json!({"reason": s.text(), "changes": changes})
}

/// A decision as JSON. The members of the seed come first; what is absent is left out.
pub fn object(
    d: &Decision,
    similarity: Option<f32>,
    symbols: &[String],
    stale: Option<&Stale>,
) -> Map<String, Value> {
    let mut o = Map::new();
    o.insert("id".into(), json!(d.id));
    o.insert("title".into(), json!(d.record.title));
    o.insert("rationale".into(), json!(d.record.rationale));
    o.insert("type".into(), json!(d.kind().name()));
    let mut put = |name: &str, v: Value| {
        let empty =
            v.as_str().is_some_and(str::is_empty) || v.as_array().is_some_and(Vec::is_empty);
        if !empty {
            o.insert(name.into(), v);
        }
    };
    put("made_by", json!(d.made_by()));
    put("created_at", json!(format_micros(d.created_at)));
    put("files", json!(d.record.files));
    if let Some(s) = similarity {
        put("similarity", rounded(s.clamp(0.0, 1.0)));
    }
    put("status", json!(d.status.name()));
    put("symbols", json!(symbols));
    put("alternatives", json!(d.record.alternatives));
    put("supersedes", json!(d.supersedes));
    put("superseded_by", json!(d.superseded_by));
    put("source", json!(d.path));
    if let Some(s) = stale {
        put("stale", stale_json(s));
    }
    o
}

/// What a search found, as the seed shows it.
pub fn search_json(a: &DecisionAnswer) -> Value {
    let results: Vec<Value> = a
        .hits
        .iter()
        .map(|h| {
            let mut o = object(&h.decision, h.similarity, &[], h.stale.as_ref());
            o.insert("matched".into(), json!(h.matched));
            if let Some(r) = &h.rejected {
                o.insert("rejected".into(), json!(r));
            }
            Value::Object(o)
        })
        .collect();
    let mut v = json!({"results": results, "verdict": verdict(a), "searched": a.searched});
    if !a.no_vectors.is_empty() {
        v["degraded"] = json!([{"leg": "vectors", "reason": a.no_vectors}]);
    }
    if !a.sync.problems.is_empty() {
        v["unreadable"] = problems(&a.sync.problems);
    }
    v
}

/// Files that are no records, with the reason.
pub fn problems(all: &[(String, String)]) -> Value {
    let all = all.iter().map(|(p, r)| json!({"path": p, "reason": r}));
    json!(all.collect::<Vec<_>>())
}

/// What recording answers: `recorded`, or `exists` with the one that is very close.
pub fn recorded_json(r: &Recorded, workspace: &str) -> Value {
    let (d, status) = match r {
        Recorded::New(d) => (d, "recorded"),
        Recorded::Near(d) => (d, "exists"),
    };
    let mut v = json!({
        "id": d.id, "status": status, "title": d.record.title, "workspace": workspace,
        "decision_status": d.status.name(), "source": d.path,
    });
    if status == "exists" {
        v["hint"] =
            json!("a decision that says nearly the same is there already; force records it anyway");
    }
    v
}

fn day(d: &Decision) -> String {
    format_micros(d.created_at).chars().take(10).collect()
}

fn named(loaded: &Loaded, id: &str) -> String {
    loaded.by_id(id).map_or_else(
        || id.to_owned(),
        |d| format!("{} ({})", safe(&d.record.title), safe(&d.path)),
    )
}

/// The verdict in one line.
pub fn verdict(a: &DecisionAnswer) -> String {
    let of = |id: &str| named(&a.loaded, id);
    match &a.verdict {
        Verdict::Decided(id) => format!("decided: {}", of(id)),
        Verdict::Replaced(old, new) => {
            format!("decided and later replaced: {} by {}", of(old), of(new))
        }
        Verdict::Rejected(id) => {
            let option = a
                .hits
                .iter()
                .find(|h| h.decision.id == *id)
                .and_then(|h| h.rejected.as_ref());
            match option {
                Some(o) => format!("rejected before: {}, rejected in {}", safe(&o.name), of(id)),
                None => format!("rejected before: {}", of(id)),
            }
        }
        Verdict::Proposed(id) => format!("proposed, not decided: {}", of(id)),
        Verdict::Deprecated(id) => format!("decided and given up since: {}", of(id)),
        Verdict::Nothing => {
            let state = match a.sync.problems.len() {
                0 => "index current".to_owned(),
                n => format!("{n} records cannot be read"),
            };
            format!("nothing found ({} decisions searched, {state})", a.searched)
        }
    }
}

/// A decision on one line.
pub fn line(d: &Decision, stale: Option<&Stale>, loaded: &Loaded) -> String {
    let mut out = format!(
        "{}  {}  {}  {}",
        safe(&d.path),
        d.status.name(),
        day(d),
        safe(&d.record.title)
    );
    for id in &d.superseded_by {
        let path = loaded.by_id(id).map_or(id.as_str(), |d| d.path.as_str());
        out.push_str(&format!("  [superseded by {}]", safe(path)));
    }
    if let Some(s) = stale {
        out.push_str(&format!("  [stale: {}]", safe(&s.text())));
    }
    out
}

/// A hit on one line: with what it turned down, and why it matched.
pub fn hit_line(h: &DecisionHit, loaded: &Loaded) -> String {
    let mut out = line(&h.decision, h.stale.as_ref(), loaded);
    if let Some(r) = &h.rejected {
        let why = if r.why_not.is_empty() {
            String::new()
        } else {
            format!(": {}", r.why_not)
        };
        out.push_str(&format!(
            "  [rejected here: {}{}]",
            safe(&r.name),
            safe(&why)
        ));
    }
    out.push_str(&format!("  ({})", h.matched.join(", ")));
    out
}

/// What a search found, as text: the verdict, then a line a hit.
pub fn search_text(a: &DecisionAnswer) -> String {
    let mut out = verdict(a);
    for h in &a.hits {
        out.push('\n');
        out.push_str(&hit_line(h, &a.loaded));
    }
    if !a.no_vectors.is_empty() {
        out.push_str(&format!("\nnote: vectors: {}", safe(&a.no_vectors)));
    }
    for (p, r) in a.sync.problems.iter().take(5) {
        out.push_str(&format!("\nnote: {} cannot be read: {}", safe(p), safe(r)));
    }
    out
}

/// A decision in full.
pub fn full(d: &Decision, symbols: &[String], stale: Option<&Stale>, loaded: &Loaded) -> String {
    let mut out = format!(
        "{}\n{}  {}  {}  {}\n",
        safe(&d.record.title),
        d.id,
        d.status.name(),
        d.kind().name(),
        day(d)
    );
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            out.push_str(&format!("{name}: {value}\n"));
        }
    };
    fact("record", safe(&d.path));
    fact("by", safe(&d.made_by()));
    fact("files", safe(&d.record.files.join(", ")));
    fact("symbols", safe(&symbols.join(", ")));
    for id in &d.supersedes {
        fact("supersedes", named(loaded, id));
    }
    for id in &d.superseded_by {
        fact("superseded by", named(loaded, id));
    }
    for a in &d.record.alternatives {
        let why = if a.why_not.is_empty() {
            String::new()
        } else {
            format!(": {}", a.why_not)
        };
        fact("rejected", safe(&format!("{}{why}", a.name)));
    }
    if let Some(s) = stale {
        fact("stale", safe(&s.text()));
    }
    format!("{out}\n{}", printable(&d.record.rationale).trim_end())
}

fn strings(v: &Value, name: &str) -> Result<Vec<String>, String> {
    match v {
        Value::Null => Ok(Vec::new()),
        // Some pages of the original show a comma-separated text, some a list.
        Value::String(s) => Ok(s
            .split(',')
            .map(|p| p.trim().to_owned())
            .filter(|p| !p.is_empty())
            .collect()),
        Value::Array(a) => a
            .iter()
            .map(|x| {
                x.as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| format!("{name} must be a list of strings"))
            })
            .collect(),
        _ => Err(format!(
            "{name} must be a list of strings, or one with commas"
        )),
    }
}

fn text(o: &Map<String, Value>, name: &str) -> Result<String, String> {
    match o.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(s)) => Ok(s.clone()),
        Some(_) => Err(format!("{name} must be a string")),
    }
}

fn flag(o: &Map<String, Value>, name: &str) -> Result<bool, String> {
    match o.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(b)) => Ok(*b),
        Some(_) => Err(format!("{name} must be true or false")),
    }
}

/// Reads a new decision.
///
/// # Errors
/// Where a member is unknown or of the wrong type.
pub fn new_decision(o: &Map<String, Value>) -> Result<NewDecision, String> {
    if let Some(k) = o.keys().find(|k| !FIELDS.contains(&k.as_str())) {
        return Err(format!(
            "unknown field {k:?}; the fields are {}",
            FIELDS.join(", ")
        ));
    }
    let null = Value::Null;
    let get = |n: &str| o.get(n).unwrap_or(&null);
    let mut kind = text(o, "type")?;
    if kind.is_empty() {
        kind = text(o, "decision_type")?;
    }
    let mut made_by = text(o, "made_by")?;
    if made_by.is_empty() {
        made_by = text(o, "by")?;
    }
    let alternatives = match get("alternatives") {
        Value::Null => Vec::new(),
        Value::String(s) => vec![Alternative::parse(s)],
        Value::Array(a) => a.iter().map(alternative).collect::<Result<_, _>>()?,
        _ => return Err("alternatives must be a list".into()),
    };
    Ok(NewDecision {
        title: text(o, "title")?,
        rationale: text(o, "rationale")?,
        kind: match kind.as_str() {
            "" => Type::default(),
            k => Type::parse(k).ok_or_else(|| unknown_type(k))?,
        },
        files: strings(get("files"), "files")?,
        alternatives,
        supersedes: strings(get("supersedes"), "supersedes")?,
        made_by,
        accept: flag(o, "accept")?,
        force: flag(o, "force")?,
    })
}

fn alternative(v: &Value) -> Result<Alternative, String> {
    match v {
        Value::String(s) => Ok(Alternative::parse(s)),
        Value::Object(o) => Ok(Alternative {
            name: text(o, "name")?,
            why_not: text(o, "why_not")?,
        }),
        _ => Err("alternatives must be texts such as \"X: why not\"".into()),
    }
}

/// What to say of a type that there is not.
pub fn unknown_type(name: &str) -> String {
    let all: Vec<&str> = Type::ALL.iter().map(|t| t.0).collect();
    format!("unknown type {name:?}; the types are {}", all.join(", "))
}

/// What to say of a status that there is not.
pub fn unknown_status(name: &str) -> String {
    let all: Vec<&str> = Status::ALL.iter().map(|t| t.0).collect();
    format!("unknown status {name:?}; they are {}", all.join(", "))
}

/// Symbols of one decision.
pub fn symbols_of<'a>(all: &'a HashMap<String, Vec<String>>, id: &str) -> &'a [String] {
    all.get(id).map_or(&[], Vec::as_slice)
}
