//! Answers about everything as text and as JSON, within a budget: one form for the command line, HTTP and
//! MCP.

use serde_json::{Map, Value, json};
use weft_core::code::budget;
use weft_core::project::cut_chars;
use weft_core::time::{Micros, format_micros};
use weft_engine::everything::{AllAnswer, AllHit, Found};
use weft_engine::show::{Shown, Source};
use weft_engine::why::{Why, resume_command};

use crate::answer::Answer;
use crate::code_text::{printable, safe};
use crate::decision_text;

/// Code points of what a hit shows of its text.
const TEXT: usize = 110;
/// Lines of a symbol that `show` prints.
const SOURCE_LINES: usize = 400;

fn flat(text: &str, max: usize) -> String {
    safe(&cut_chars(
        &text.split_whitespace().collect::<Vec<_>>().join(" "),
        max,
    ))
}

/// How long ago: `5m`, `3h`, `2d`, `6w`, `8mo`, `3y`.
pub fn age(at: Micros, now: Micros) -> String {
    let s = (now - at).max(0) / 1_000_000;
    let (n, unit) = match s {
        0..3_600 => (s / 60, "m"),
        3_600..86_400 => (s / 3_600, "h"),
        86_400..1_209_600 => (s / 86_400, "d"),
        1_209_600..5_184_000 => (s / 604_800, "w"),
        5_184_000..63_072_000 => (s / 2_592_000, "mo"),
        _ => (s / 31_536_000, "y"),
    };
    format!("{n}{unit}")
}

fn day(at: Micros) -> String {
    format_micros(at).chars().take(10).collect()
}

/// What a hit says, on one line.
fn says(h: &AllHit) -> String {
    match &h.found {
        Found::Span(s) => {
            let prompt = flat(&s.user_prompt, 60);
            let text = flat(&s.snippet, TEXT);
            if prompt.is_empty() || text.starts_with(&prompt) {
                format!("{}: {text}", safe(&s.agent))
            } else {
                format!("{}: {prompt} → {text}", safe(&s.agent))
            }
        }
        Found::Code(c) => {
            let doc = if c.doc.is_empty() {
                String::new()
            } else {
                format!("  — {}", flat(&c.doc, TEXT))
            };
            let draft = match &c.draft {
                Some(d) if d.agent.is_empty() => format!("  [{}-on-disk]", d.state.name()),
                Some(d) => format!("  [{}-in-draft-of {}]", d.state.name(), safe(&d.agent)),
                None => String::new(),
            };
            format!("line {}  {}{doc}{draft}", c.line, flat(&c.signature, TEXT))
        }
        Found::Commit(c) => format!("{}  by {}", flat(&c.intent, TEXT), flat(&c.author, 40)),
        Found::Decision(d) => {
            let mut out = format!(
                "{}  {}",
                d.decision.status.name(),
                flat(&d.decision.record.title, TEXT)
            );
            if let Some(r) = &d.rejected {
                out.push_str(&format!("  [rejected here: {}]", flat(&r.name, 60)));
            }
            if !d.decision.superseded_by.is_empty() {
                out.push_str("  [superseded]");
            }
            if let Some(s) = &d.stale {
                out.push_str(&format!("  [stale: {}]", flat(&s.text(), TEXT)));
            }
            out
        }
    }
}

/// A hit on one line: corpus, reference, what it says, its age, why it matched.
fn line(h: &AllHit, now: Micros) -> String {
    let corpus = h.corpus.name().trim_end_matches('s');
    let place = if h.repository.is_empty() {
        String::new()
    } else {
        format!(" [{}]", safe(&h.repository))
    };
    let old =
        h.at.map(|t| format!("  {} ago", age(t, now)))
            .unwrap_or_default();
    format!(
        "{corpus}{place}  {}  {}{old}  ({})",
        safe(&h.reference),
        says(h),
        h.why.join(", ")
    )
}

fn snippet(h: &AllHit) -> String {
    match &h.found {
        Found::Code(c) => flat(&c.snippet, 160),
        Found::Decision(d) => flat(&d.snippet, 160),
        _ => String::new(),
    }
}

fn hit_json(h: &AllHit, explain: bool) -> Value {
    let mut m = Map::new();
    m.insert("corpus".into(), json!(h.corpus.name()));
    m.insert("reference".into(), json!(h.reference));
    let mut put = |k: &str, v: Value| {
        if !(v.is_null() || v.as_str().is_some_and(str::is_empty)) {
            m.insert(k.into(), v);
        }
    };
    put("repository", json!(h.repository));
    put("text", json!(says(h)));
    put("snippet", json!(snippet(h)));
    put("at", h.at.map_or(Value::Null, |t| json!(format_micros(t))));
    put("matched", json!(h.why));
    put("exact", json!(h.exact));
    put("score", json!((f64::from(h.evidence) * 1e4).round() / 1e4));
    match &h.found {
        Found::Span(s) => {
            put("session_id", json!(s.session_id));
            put("trace_id", json!(s.trace_id));
            put("span_id", json!(s.span_id));
            put("agent", json!(s.agent));
            put("model", json!(s.model));
            put("user_prompt", json!(cut_chars(&s.user_prompt, 280)));
            if explain {
                put(
                    "legs",
                    json!(
                        s.legs
                            .iter()
                            .map(|(l, r, v)| json!({"leg": l, "rank": r, "score": v}))
                            .collect::<Vec<_>>()
                    ),
                );
            }
        }
        Found::Code(c) => {
            put("file", json!(c.file));
            put("symbol", json!(c.symbol));
            put("kind", json!(c.kind.name()));
            put("line", json!(c.line));
            put("signature", json!(c.signature));
            if explain {
                put("similarity", json!(c.similarity));
                put("corpus_score", json!(c.score));
            }
        }
        Found::Commit(c) => {
            put("changeset", json!(c.changeset));
            put("author", json!(c.author));
        }
        Found::Decision(d) => {
            put("id", json!(d.decision.id));
            put("title", json!(d.decision.record.title));
            put("status", json!(d.decision.status.name()));
            put("rejected", json!(d.rejected));
            if let Some(s) = &d.stale {
                put("stale", json!(s.text()));
            }
            if explain {
                put("similarity", json!(d.similarity));
                put("covered", json!(d.covered));
                put("corpus_score", json!(d.score));
            }
        }
    }
    Value::Object(m)
}

/// What an answer is printed for.
#[derive(Clone, Copy, Debug)]
pub struct AllShape {
    /// Tokens that the printed text may cost.
    pub budget: usize,
    /// Print JSON.
    pub json: bool,
    /// Print what each hit scored.
    pub explain: bool,
    /// Now.
    pub now: Micros,
}

/// The answer as JSON with its first hits, each made by `hit`.
fn object(query: &str, a: &AllAnswer, shown: usize, hit: impl Fn(&AllHit) -> Value) -> Value {
    let coverage: Vec<Value> = a
        .coverage
        .iter()
        .map(|(c, n)| json!({"corpus": c.name(), "note": n}))
        .collect();
    let mut v = json!({
        "query": query,
        "in": a.asked.iter().map(|c| c.name()).collect::<Vec<_>>(),
        "hits": a.hits[..shown].iter().map(hit).collect::<Vec<_>>(),
        "coverage": coverage,
    });
    if shown < a.hits.len() {
        v["left_out"] = json!(a.hits.len() - shown);
    }
    v
}

/// The answer as JSON; only as many hits as the budget holds.
pub fn value(query: &str, a: &AllAnswer, shape: AllShape) -> Value {
    let make = |shown: usize| object(query, a, shown, |h| hit_json(h, shape.explain));
    let (shown, _) = budget::fit(&|n, _| make(n).to_string(), a.hits.len(), shape.budget);
    make(shown)
}

/// A hit with what its line says and no more: a model may be shown this instead of the line.
fn brief_json(h: &AllHit, now: Micros) -> Value {
    let mut v = json!({"corpus": h.corpus.name(), "reference": h.reference, "text": says(h)});
    if !h.repository.is_empty() {
        v["repository"] = json!(h.repository);
    }
    if let Some(t) = h.at {
        v["age"] = json!(age(t, now));
    }
    v["matched"] = json!(h.why);
    v
}

/// The answer of the tool `search`: lines, and an object with the same hits; both within the budget.
pub(crate) fn search_answer(query: &str, a: &AllAnswer, shape: AllShape) -> Answer {
    let make = |shown: usize, _: usize| {
        object(query, a, shown, |h| match shape.json {
            true => hit_json(h, false),
            false => brief_json(h, shape.now),
        })
    };
    Answer::fitted(a.hits.len(), shape.budget, make, |shown, _| {
        (!shape.json).then(|| lines(a, shape, shown, 0))
    })
}

/// The answer as lines with its first hits.
fn lines(a: &AllAnswer, shape: AllShape, shown: usize, snippets: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (i, h) in a.hits[..shown].iter().enumerate() {
        let mut l = line(h, shape.now);
        if shape.explain {
            l.push_str(&format!("  evidence {:.2}", h.evidence));
        }
        lines.push(l);
        let s = snippet(h);
        if shape.explain && i < snippets && !s.is_empty() {
            lines.push(format!("    {s}"));
        }
    }
    if a.hits.is_empty() {
        let names: Vec<&str> = a.asked.iter().map(|c| c.name()).collect();
        lines.push(match names.as_slice() {
            [] => "nothing was asked".to_owned(),
            names => format!("nothing found in {}", names.join(", ")),
        });
    } else if shown < a.hits.len() {
        lines.push(format!(
            "{} more hits do not fit the budget of {} tokens",
            a.hits.len() - shown,
            shape.budget
        ));
    }
    for (c, n) in &a.coverage {
        lines.push(format!("note: {}: {}", c.name(), safe(n)));
    }
    lines.join("\n")
}

/// The answer as text: a hit a line, within the budget, coverage at the end where something is missing.
pub fn search(query: &str, a: &AllAnswer, shape: AllShape) -> String {
    if shape.json {
        return serde_json::to_string_pretty(&value(query, a, shape)).unwrap_or_default();
    }
    let render = |shown: usize, snippets: usize| lines(a, shape, shown, snippets);
    let (shown, snippets) = budget::fit(&render, a.hits.len(), shape.budget);
    render(shown, snippets)
}

fn source_text(s: &Source) -> String {
    let mut out = match s.symbol.as_str() {
        "" => format!("{}  lines 1-{}\n", safe(&s.path), s.end_line),
        name => format!(
            "{}::{}  lines {}-{}\n",
            safe(&s.path),
            safe(name),
            s.line,
            s.end_line
        ),
    };
    for (i, l) in s.text.lines().take(SOURCE_LINES).enumerate() {
        out.push_str(&format!("{:>5}  {}\n", s.line as usize + i, printable(l)));
    }
    let total = s.text.lines().count();
    if total > SOURCE_LINES {
        out.push_str(&format!("… {} more lines\n", total - SOURCE_LINES));
    }
    out.trim_end().to_owned()
}

/// A thing that a reference led to, as text.
pub fn shown(s: &Shown) -> String {
    match s {
        Shown::Code(c) => source_text(c),
        Shown::Decision {
            decision,
            symbols,
            stale,
            loaded,
        } => decision_text::full(decision, symbols, stale.as_ref(), loaded),
        Shown::Commit(c, files) => format!(
            "commit {}\n{}  by {}\n{}\n{}",
            c.changeset,
            day(c.at_micros()),
            safe(&c.author),
            safe(&c.intent),
            files
                .iter()
                .map(|f| format!("  {}", safe(f)))
                .collect::<Vec<_>>()
                .join("\n")
        ),
        Shown::Session(full) => session_text(full),
        Shown::Span {
            span,
            prompt,
            around,
            session,
        } => {
            let mut out = format!(
                "span {}  {} {}  {}\nprompt: {}\n",
                safe(&span.span_id),
                safe(&span.kind),
                safe(&span.name),
                format_micros(span.started_at),
                flat(prompt, 300)
            );
            if let Some(s) = session {
                out.push_str(&session_text(s));
                out.push('\n');
            }
            for h in around {
                let here =
                    h.document.span_id == span.span_id && h.document.trace_id == span.trace_id;
                let sign = if here { "▶" } else { " " };
                let max = if here { 4_000 } else { 240 };
                for (who, text) in [
                    ("user", &h.document.user_text),
                    ("assistant", &h.document.assistant_text),
                    ("tools", &h.document.tool_text),
                ] {
                    if !text.is_empty() {
                        out.push_str(&format!(
                            "\n{sign} {who}: {}",
                            printable(&cut_chars(text, max))
                        ));
                    }
                }
            }
            if around.is_empty() {
                for (name, payload) in [("input", &span.input), ("output", &span.output)] {
                    if let Some(p) = payload {
                        out.push_str(&format!("\n{name}: {}", printable(&cut_chars(p, 4_000))));
                    }
                }
            }
            out.trim_end().to_owned()
        }
    }
}

fn session_text(s: &weft_engine::SessionFull) -> String {
    let mut out = format!(
        "session {}  {}  {} turns  {}",
        s.row.id,
        safe(&s.row.key.harness_id),
        s.rollup.turn_count,
        day(s.row.started_at)
    );
    if !s.row.repository.is_empty() {
        out.push_str(&format!("  {}", safe(&s.row.repository)));
    }
    if !s.preview.is_empty() {
        out.push_str(&format!("\n  {}", flat(&s.preview, 200)));
    }
    let resume = resume_command(&s.row);
    if !resume.is_empty() {
        out.push_str(&format!("\n  resume: {resume}"));
    }
    out
}

/// A thing that a reference led to, as JSON.
pub fn shown_json(s: &Shown) -> Value {
    match s {
        Shown::Code(c) => source_json(c),
        Shown::Decision {
            decision,
            symbols,
            stale,
            ..
        } => Value::Object(decision_text::object(
            decision,
            None,
            symbols,
            stale.as_ref(),
        )),
        Shown::Commit(c, files) => json!({
            "commit": c.changeset, "subject": c.intent, "author": c.author,
            "at": format_micros(c.at_micros()), "files": files,
        }),
        Shown::Session(full) => json!({"session": crate::wire::session((**full).clone())}),
        Shown::Span {
            span,
            prompt,
            around,
            session,
        } => {
            let parse = |p: &Option<String>| {
                p.as_deref()
                    .and_then(|p| serde_json::from_str::<Value>(p).ok())
            };
            let around: Vec<Value> = around
                .iter()
                .map(|h| json!({"span_id": h.document.span_id, "user": h.document.user_text, "assistant": h.document.assistant_text}))
                .collect();
            json!({
                "span_id": span.span_id, "trace_id": span.trace_id, "session_id": span.session_id,
                "kind": span.kind, "name": span.name, "started_at": format_micros(span.started_at),
                "user_prompt": prompt, "input": parse(&span.input), "output": parse(&span.output),
                "around": around,
                "resume": session.as_ref().map(|s| resume_command(&s.row)).filter(|r| !r.is_empty()),
            })
        }
    }
}

fn source_json(s: &Source) -> Value {
    let mut v = json!({"file": s.path, "line": s.line, "end_line": s.end_line, "text": s.text});
    if !s.symbol.is_empty() {
        v["symbol"] = json!(s.symbol);
        v["kind"] = json!(s.kind.map(|k| k.name()));
        v["signature"] = json!(s.signature);
        v["doc"] = json!(s.doc);
    }
    v
}

/// Why something is so, as text.
pub fn why(w: &Why, now: Micros) -> String {
    let s = &w.source;
    let mut out = match s.symbol.as_str() {
        "" => format!("{}  {} lines", safe(&s.path), s.end_line),
        name => format!(
            "{}::{}  lines {}-{}\n  {}",
            safe(&s.path),
            safe(name),
            s.line,
            s.end_line,
            flat(&s.signature, 160)
        ),
    };
    if !s.doc.is_empty() {
        out.push_str(&format!("\n  {}", flat(&s.doc, 160)));
    }
    if !w.decisions.is_empty() {
        out.push_str("\n\ndecisions");
    }
    for d in &w.decisions {
        let x = &d.decision;
        let how = if d.mentioned { "  [names it]" } else { "" };
        let stale = d
            .stale
            .as_ref()
            .map(|s| format!("  [stale: {}]", flat(&s.text(), 200)))
            .unwrap_or_default();
        out.push_str(&format!(
            "\n  {}  {}  {}  {}{how}{stale}",
            safe(&x.path),
            x.status.name(),
            day(x.created_at),
            safe(&x.record.title)
        ));
    }
    if !w.commits.is_empty() {
        out.push_str("\n\ncommits");
    }
    for c in &w.commits {
        let path = if c.path == s.path {
            String::new()
        } else {
            format!("  (then {})", safe(&c.path))
        };
        out.push_str(&format!(
            "\n  {}  {}  {}  {}{path}",
            &c.id[..c.id.len().min(10)],
            day(c.at),
            flat(&c.author, 40),
            flat(&c.subject, 120)
        ));
    }
    if w.more_commits {
        out.push_str("\n  … and older ones");
    }
    if !w.spans.is_empty() {
        out.push_str("\n\nwritten by");
    }
    for p in &w.spans {
        let commit = if p.commit.is_empty() {
            String::new()
        } else {
            format!("  in commit {}", &p.commit[..p.commit.len().min(10)])
        };
        out.push_str(&format!(
            "\n  {} {}  {} ago  \"{}\"  {} line(s){commit}\n    span:{}  session:{}",
            safe(&p.agent),
            safe(&p.tool),
            age(p.at, now),
            flat(&p.prompt, 100),
            p.lines,
            safe(&p.span_id),
            p.session_id
        ));
        if !p.resume.is_empty() {
            out.push_str(&format!("\n    resume: {}", p.resume));
        }
    }
    if !w.notes.is_empty() {
        out.push('\n');
    }
    for n in &w.notes {
        out.push_str(&format!("\nnote: {}", safe(n)));
    }
    out
}

/// Why something is so, as JSON.
pub fn why_json(w: &Why) -> Value {
    let decisions: Vec<Value> = w
        .decisions
        .iter()
        .map(|d| {
            let mut o = decision_text::object(&d.decision, None, &[], d.stale.as_ref());
            o.remove("rationale");
            o.insert("mentioned".into(), json!(d.mentioned));
            Value::Object(o)
        })
        .collect();
    let commits: Vec<Value> = w
        .commits
        .iter()
        .map(|c| json!({"id": c.id, "subject": c.subject, "author": c.author, "at": format_micros(c.at), "path": c.path}))
        .collect();
    let spans: Vec<Value> = w
        .spans
        .iter()
        .map(|p| {
            let mut v = json!({
                "span_id": p.span_id, "trace_id": p.trace_id, "session_id": p.session_id, "agent": p.agent,
                "tool": p.tool, "user_prompt": p.prompt, "at": format_micros(p.at), "lines": p.lines,
            });
            for (k, t) in [("commit", &p.commit), ("resume", &p.resume), ("session", &p.session)] {
                if !t.is_empty() {
                    v[k] = json!(t);
                }
            }
            v
        })
        .collect();
    json!({
        "target": source_json(&w.source), "decisions": decisions, "commits": commits,
        "more_commits": w.more_commits, "spans": spans, "notes": w.notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        let of = |s: i64| age(0, s * 1_000_000);
        assert_eq!(
            [
                of(59),
                of(3_700),
                of(90_000),
                of(1_300_000),
                of(6_000_000),
                of(70_000_000)
            ],
            ["0m", "1h", "1d", "2w", "2mo", "2y"]
        );
        assert_eq!(age(10, 0), "0m");
    }
}
