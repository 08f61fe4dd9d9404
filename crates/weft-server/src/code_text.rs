//! Answers about code as text and as JSON: one form for the command line and for MCP.

use serde_json::{Map, Value, json};
use weft_core::code::budget;
use weft_engine::code::{CodeAnswer, CodeHit, DraftState, FindAnswer};

use crate::answer::Answer;

/// What an answer is printed for.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Tokens that the printed text may cost.
    pub budget: usize,
    /// Print the best line of each hit under it.
    pub snippets: bool,
    /// Print JSON.
    pub json: bool,
}

/// Names come from strangers: nothing in them may break a line or reach a terminal.
pub(crate) fn safe(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => '\u{2424}',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Text of several lines: control characters would let stored text drive the terminal.
pub fn printable(text: &str) -> String {
    let shown = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars()
        .map(|c| if shown(c) { c } else { '\u{fffd}' })
        .collect()
}

fn tags(h: &CodeHit) -> String {
    let mut out = String::new();
    if let Some(d) = &h.draft {
        let name = d.state.name();
        if d.agent.is_empty() {
            out.push_str(&format!("  [{name}-on-disk]"));
        } else {
            out.push_str(&format!("  [{name}-in-draft-of {}]", safe(&d.agent)));
        }
    }
    if !h.owner.is_empty()
        && h.draft
            .as_ref()
            .is_none_or(|d| d.state == DraftState::Changed)
    {
        out.insert_str(0, &format!("  [owner {}]", safe(&h.owner)));
    }
    out
}

/// A hit on one line; the head's signature of a changed one follows on its own.
fn line(h: &CodeHit) -> String {
    let mut out = format!("{}:{}  {}", safe(&h.file), h.line, safe(&h.signature));
    if !h.doc.is_empty() {
        out.push_str("  — ");
        out.push_str(&safe(&h.doc));
    }
    out.push_str(&tags(h));
    if let Some(d) = &h.draft
        && d.state == DraftState::Changed
        && !d.head_signature.is_empty()
    {
        out.push_str("\n    head: ");
        out.push_str(&safe(&d.head_signature));
    }
    out
}

fn hit_json(h: &CodeHit, with_snippet: bool, score: f32) -> Value {
    let mut m = Map::new();
    let mut put = |k: &str, v: Value| {
        m.insert(k.to_owned(), v);
    };
    put("target", json!(h.target));
    put("file", json!(h.file));
    put("symbol", json!(h.symbol));
    put("kind", json!(h.kind.name()));
    put("signature", json!(h.signature));
    if !h.doc.is_empty() {
        put("doc", json!(h.doc));
    }
    put("line", json!(h.line));
    put("end_line", json!(h.end_line));
    put("exported", json!(h.exported));
    put("score", json!(round(score)));
    put("found_by", json!(h.found_by));
    if let Some(s) = h.similarity {
        put("similarity", json!(round(s)));
    }
    if with_snippet && !h.snippet.is_empty() {
        put("snippet", json!(h.snippet));
    }
    if !h.owner.is_empty() {
        put("owner", json!(h.owner));
    }
    if let Some(s) = &h.stitch {
        put(
            "stitch",
            json!({"changeset": s.changeset, "intent": s.intent, "author": s.author, "at": s.at}),
        );
    }
    if let Some(d) = &h.draft {
        let mut draft = Map::new();
        draft.insert("state".into(), json!(d.state.name()));
        if !d.agent.is_empty() {
            draft.insert("agent".into(), json!(d.agent));
        }
        if !d.head_signature.is_empty() {
            draft.insert("head_signature".into(), json!(d.head_signature));
        }
        put("draft", Value::Object(draft));
    }
    Value::Object(m)
}

fn round(x: f32) -> f64 {
    (f64::from(x) * 10_000.0).round() / 10_000.0
}

/// An answer as JSON with its first hits.
fn search_json(a: &CodeAnswer, shown: usize, snippets: usize) -> Value {
    let hits: Vec<Value> = a.hits[..shown]
        .iter()
        .enumerate()
        .map(|(i, h)| hit_json(h, i < snippets, h.score))
        .collect();
    let mut v = json!({
        "type": "code_search",
        "query": a.query,
        "workstream": a.workstream,
        "head": a.head,
        "semantic": a.semantic,
        "stale": a.stale,
        "indexing": a.indexing,
        "hits": hits,
    });
    if !a.notes.is_empty() {
        v["notes"] = json!(a.notes);
    }
    v
}

/// An answer as lines with its first hits.
fn search_lines(a: &CodeAnswer, shown: usize, snippets: usize) -> String {
    let legs = if a.semantic {
        "semantic + keyword"
    } else {
        "keyword"
    };
    let mut out = format!(
        "# {shown} hit(s) for \"{}\" in {} ({legs})",
        safe(&a.query),
        safe(&a.workstream)
    );
    if a.stale {
        out.push_str(" [stale]");
    }
    if a.indexing {
        out.push_str(" [indexing]");
    }
    for (i, h) in a.hits[..shown].iter().enumerate() {
        out.push('\n');
        out.push_str(&line(h));
        if i < snippets && !h.snippet.is_empty() {
            out.push_str("\n    ");
            out.push_str(&safe(&h.snippet));
        }
    }
    push_notes(&mut out, &a.notes);
    out
}

fn push_notes(out: &mut String, notes: &[String]) {
    for n in notes {
        out.push_str("\nnote: ");
        out.push_str(&safe(n));
    }
}

/// An answer as printed, within its budget.
pub fn search(a: &CodeAnswer, shape: Shape) -> String {
    let render = |shown: usize, snippets: usize| {
        if shape.json {
            return serde_json::to_string_pretty(&search_json(a, shown, snippets))
                .unwrap_or_default();
        }
        search_lines(a, shown, if shape.snippets { snippets } else { 0 })
    };
    let (shown, snippets) = budget::fit(&render, a.hits.len(), shape.budget);
    render(shown, snippets)
}

/// What `find` found as JSON, with its first hits.
fn find_json(query: &str, a: &FindAnswer, shown: usize) -> Value {
    let hits: Vec<Value> = a.hits[..shown].iter().map(find_hit_json).collect();
    let mut v =
        json!({"type": "code_find", "query": query, "workstream": a.workstream, "hits": hits});
    if !a.notes.is_empty() {
        v["notes"] = json!(a.notes);
    }
    v
}

fn find_lines(query: &str, a: &FindAnswer, shown: usize) -> String {
    let mut out = format!(
        "# {shown} hit(s) for \"{}\" in {} (keyword)",
        safe(query),
        safe(&a.workstream)
    );
    for h in &a.hits[..shown] {
        out.push('\n');
        out.push_str(&line(h));
    }
    push_notes(&mut out, &a.notes);
    out
}

/// What `find` found, as printed.
pub fn find(query: &str, a: &FindAnswer, shape: Shape) -> String {
    let render = |shown: usize, _: usize| {
        if shape.json {
            return serde_json::to_string_pretty(&find_json(query, a, shown)).unwrap_or_default();
        }
        find_lines(query, a, shown)
    };
    let (shown, _) = budget::fit(&render, a.hits.len(), shape.budget);
    render(shown, 0)
}

/// A hit with what its line says and no more: a model may be shown this instead of the line.
fn brief_json(h: &CodeHit) -> Value {
    let mut v = json!({"target": h.target, "line": h.line, "signature": h.signature});
    if !h.doc.is_empty() {
        v["doc"] = json!(h.doc);
    }
    let tags = tags(h);
    if !tags.is_empty() {
        v["tags"] = json!(tags.trim());
    }
    v
}

fn brief(query: &str, workstream: &str, hits: &[CodeHit], notes: &[String]) -> Value {
    let hits: Vec<Value> = hits.iter().map(brief_json).collect();
    let mut v = json!({"query": query, "workstream": workstream, "hits": hits});
    if !notes.is_empty() {
        v["notes"] = json!(notes);
    }
    v
}

/// The answer of the tool `search_code`: lines, and an object with the same hits; both within the budget.
pub(crate) fn search_answer(a: &CodeAnswer, shape: Shape) -> Answer {
    let object = |shown: usize, snippets: usize| {
        if shape.json {
            return search_json(a, shown, snippets);
        }
        let mut v = brief(&a.query, &a.workstream, &a.hits[..shown], &a.notes);
        for (name, is) in [("stale", a.stale), ("indexing", a.indexing)] {
            if is {
                v[name] = json!(true);
            }
        }
        v
    };
    Answer::fitted(a.hits.len(), shape.budget, object, |shown, _| {
        (!shape.json).then(|| search_lines(a, shown, 0))
    })
}

/// The answer of the tool `find_symbols`.
pub(crate) fn find_answer(query: &str, a: &FindAnswer, shape: Shape) -> Answer {
    let object = |shown: usize, _: usize| {
        if shape.json {
            find_json(query, a, shown)
        } else {
            brief(query, &a.workstream, &a.hits[..shown], &a.notes)
        }
    };
    Answer::fitted(a.hits.len(), shape.budget, object, |shown, _| {
        (!shape.json).then(|| find_lines(query, a, shown))
    })
}

fn find_hit_json(h: &CodeHit) -> Value {
    let mut v = hit_json(h, false, 0.0);
    if let Some(m) = v.as_object_mut() {
        m.remove("score");
    }
    v
}

/// An answer as `GET /api/weave/{repo_id}/search` gives it: the score is the cosine similarity.
pub(crate) fn api(a: &CodeAnswer) -> Value {
    let hits: Vec<Value> = a
        .hits
        .iter()
        .map(|h| hit_json(h, true, h.similarity.unwrap_or_default()))
        .collect();
    let mut v =
        json!({"type": "code_search", "workstream": a.workstream, "head": a.head, "hits": hits});
    if a.stale {
        v["stale"] = json!(true);
    }
    if a.indexing {
        v["indexing"] = json!(true);
    }
    v
}
