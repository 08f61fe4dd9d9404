//! Answers as a person reads them.

use weft_core::derive::display_title;
use weft_core::project::cut_chars;
use weft_core::time::format_micros;
use weft_engine::{Answer, Coverage, Hit, SessionFull, SpanHit};

use weft_server::code_text::printable;

use crate::out::Out;

/// Code points of a hit's prompt on its first line.
const PROMPT_CHARS: usize = 72;
/// Code points of a neighbouring span.
const AROUND_CHARS: usize = 160;

/// Text on one line.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The snippet with the query's words marked.
fn marked(out: Out, hit: &Hit) -> String {
    if !out.color {
        return printable(&hit.snippet);
    }
    let (mut text, mut at) = (String::new(), 0);
    for &(from, to) in &hit.marks {
        if from < at || to > hit.snippet.len() {
            continue;
        }
        text.push_str(&printable(&hit.snippet[at..from]));
        text.push_str(&out.style("1;33", &printable(&hit.snippet[from..to])));
        at = to;
    }
    text.push_str(&printable(&hit.snippet[at..]));
    text
}

fn indented(text: &str, by: &str) -> String {
    text.lines()
        .filter(|l| !l.trim().is_empty())
        .map(|l| format!("{by}{l}"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn day(micros: i64) -> String {
    format_micros(micros)
        .chars()
        .take(16)
        .collect::<String>()
        .replace('T', " ")
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// One hit: what was asked, why it matched, where to open it.
pub(crate) fn hit(out: Out, rank: usize, h: &Hit) -> String {
    let prompt = if h.user_prompt.trim().is_empty() {
        "(no prompt)".to_owned()
    } else {
        printable(&cut_chars(&flat(&h.user_prompt), PROMPT_CHARS))
    };
    let mut facts = vec![h.agent.clone()];
    if !h.repository.is_empty() {
        facts.push(last_part(&h.repository).to_owned());
    }
    facts.push(day(h.started_at));
    if !h.thread_id.is_empty() {
        facts.push("subagent".into());
    }
    if h.source_gone {
        facts.push("source gone".into());
    }
    let legs: Vec<String> = h
        .legs
        .iter()
        .map(|(leg, rank, _)| format!("{leg} #{rank}"))
        .chain(h.exact.then(|| "exact".to_owned()))
        .collect();
    let mut text = format!(
        "{} {}  {}\n",
        out.style("36", &format!("{rank}.")),
        out.bold(&prompt),
        out.dim(&format!("{:.2} ({})", h.score, legs.join(", "))),
    );
    if h.around.is_empty() {
        text.push_str(&indented(&marked(out, h), "   "));
        text.push('\n');
    } else {
        for s in &h.around {
            text.push_str(&around(out, s, s.document.span_id == h.span_id));
        }
    }
    text.push_str("   ");
    text.push_str(&out.dim(&format!(
        "{}\n   weft sessions traces {}   trace {}  span {}",
        facts.join(" · "),
        h.session_id,
        h.trace_id,
        h.span_id
    )));
    text.push('\n');
    text
}

fn around(out: Out, s: &SpanHit, is_hit: bool) -> String {
    let sign = if is_hit { "▶" } else { " " };
    let mut text = String::new();
    for (who, words) in [
        ("user", &s.document.user_text),
        ("assistant", &s.document.assistant_text),
    ] {
        if !words.is_empty() {
            let limit = if is_hit {
                AROUND_CHARS * 4
            } else {
                AROUND_CHARS
            };
            let words = printable(&cut_chars(&flat(words), limit));
            text.push_str(&format!("  {sign} {} {words}\n", out.dim(who)));
        }
    }
    text
}

/// What an answer could not see.
pub(crate) fn coverage(a: &Answer) -> Vec<String> {
    let mut lines: Vec<String> = a
        .degraded
        .iter()
        .map(|d| format!("{} were not searched: {}", d.leg, d.reason))
        .collect();
    let Coverage {
        embeddable,
        embedded,
        underived_sessions,
        ..
    } = a.coverage;
    if underived_sessions > 0 {
        lines.push(format!(
            "{underived_sessions} session(s) are not derived yet and cannot be found"
        ));
    }
    if embedded < embeddable && a.degraded.is_empty() && a.mode != weft_engine::Mode::Lexical {
        lines.push(format!(
            "{embedded} of {embeddable} spans are embedded; the others are found by their words only"
        ));
    }
    lines
}

/// One line of the session list.
pub(crate) fn session_line(out: Out, s: &SessionFull) -> String {
    let r = &s.row;
    let title = display_title(
        &r.display_name,
        &s.rollup.title,
        &s.preview,
        &r.name,
        &r.key.harness_session_id,
        &r.id,
    );
    let line = format!(
        "{}  {}  {:<7} {:>3} turns  {:<16}  {}",
        r.id,
        day(r.last_seen_at),
        cut_chars(&r.key.harness_id, 7),
        s.rollup.turn_count,
        cut_chars(last_part(&r.repository), 15),
        printable(&flat(&title)),
    );
    match out.width {
        Some(w) => cut_chars(&line, w.max(40) - 1),
        None => line,
    }
}
