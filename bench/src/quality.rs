//! Recall on labelled conversations: LoCoMo and BEAM, with bootstrap intervals.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;
use weft_engine::{Engine, Filter, Mode, SpanQuery};

use crate::fixture::{self, Turn};

const TOP: usize = 10;

struct Question {
    conversation: String,
    query: String,
    evidence: HashSet<String>,
}

pub(crate) fn shared(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data/quality")
        .join(name)
}

pub(crate) fn lines(path: &Path) -> Result<Vec<Value>> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let mut text = String::new();
    if path.extension().is_some_and(|e| e == "gz") {
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text)?;
    } else {
        text = String::from_utf8(bytes)?;
    }
    Ok(text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?)
}

pub(crate) fn s(v: &Value, k: &str) -> String {
    match &v[k] {
        Value::String(s) => s.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Conversations as turns, each with the turn before it as context.
fn turns(rows: &[Value], locomo: bool) -> BTreeMap<String, Vec<Turn>> {
    let mut out: BTreeMap<String, Vec<Turn>> = BTreeMap::new();
    for (n, r) in rows.iter().enumerate() {
        let conversation = out.entry(s(r, "conv")).or_default();
        let mut text = s(r, "text");
        if locomo {
            text = format!("{}: {text}", s(r, "speaker"));
            let caption = s(r, "caption");
            if !caption.is_empty() {
                text = format!("{text}\n[{caption}]");
            }
        }
        let context = conversation
            .last()
            .map(|t| format!("{}{}", t.user, t.assistant))
            .unwrap_or_default();
        // As the engine cuts it.
        let context: String = context.chars().take(150).collect();
        let assistant = r["speaker"] == "assistant";
        conversation.push(Turn {
            id: s(r, "turn_id"),
            user: if assistant {
                String::new()
            } else {
                text.clone()
            },
            assistant: if assistant { text } else { String::new() },
            context,
            at: n as i64,
        });
    }
    out
}

fn questions(rows: &[Value]) -> Vec<Question> {
    rows.iter()
        .filter(|r| r["cat"].as_i64() != Some(5))
        .map(|r| Question {
            conversation: s(r, "conv"),
            query: s(r, "query"),
            evidence: r["evidence"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|e| e.as_str().map_or_else(|| e.to_string(), str::to_owned))
                .collect(),
        })
        .filter(|q| !q.evidence.is_empty())
        .collect()
}

/// Mean and 95 % bootstrap interval.
fn interval(values: &[f64]) -> String {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len().max(1) as f64;
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    let mut means: Vec<f64> = (0..1_000)
        .map(|_| {
            let sample: Vec<f64> = values
                .iter()
                .map(|_| {
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    values[(x % values.len() as u64) as usize]
                })
                .collect();
            mean(&sample)
        })
        .collect();
    means.sort_by(f64::total_cmp);
    format!("{:.3} [{:.3}, {:.3}]", mean(values), means[25], means[974])
}

fn recall(found: &[String], evidence: &HashSet<String>) -> f64 {
    let hit = evidence.iter().filter(|e| found.contains(e)).count();
    hit as f64 / evidence.len() as f64
}

fn score(engine: &Engine, name: &str, questions: &[Question], sessions: bool) -> Result<()> {
    println!(
        "\n{name}: {} questions, within their conversation",
        questions.len()
    );
    let first = if sessions { "session hit@1" } else { "hit@1" };
    println!("| mode | recall@5 | recall@10 | {first} |");
    println!("| --- | --- | --- | --- |");
    for (label, mode) in [
        ("words alone (BM25)", Mode::Lexical),
        ("vectors alone", Mode::Vector),
        ("hybrid", Mode::Hybrid),
    ] {
        let (mut r5, mut r10, mut session) = (Vec::new(), Vec::new(), Vec::new());
        for q in questions {
            let answer = engine.search_spans(&SpanQuery {
                query: q.query.clone(),
                limit: TOP,
                mode,
                filter: Filter {
                    sessions: vec![fixture::session_id(&q.conversation)],
                    ..Filter::default()
                },
                context: 0,
            })?;
            let found: Vec<String> = answer.hits.iter().map(|h| h.span_id.clone()).collect();
            r5.push(recall(&found[..found.len().min(5)], &q.evidence));
            r10.push(recall(&found, &q.evidence));
            // "D3:12" is turn 12 of the third session; BEAM's ids name no session.
            let of = |id: &str| {
                let end = if sessions {
                    id.find(':').unwrap_or(id.len())
                } else {
                    id.len()
                };
                id[..end].to_owned()
            };
            let wanted: HashSet<String> = q.evidence.iter().map(|e| of(e)).collect();
            session.push(f64::from(u8::from(
                found.first().is_some_and(|f| wanted.contains(&of(f))),
            )));
        }
        println!(
            "| {label} | {} | {} | {} |",
            interval(&r5),
            interval(&r10),
            interval(&session)
        );
    }
    Ok(())
}

pub(crate) fn run() -> Result<()> {
    let mut sets: HashMap<&str, (&str, &str, bool)> = HashMap::new();
    sets.insert(
        "LoCoMo",
        ("locomo_turns.jsonl", "locomo_queries.jsonl", true),
    );
    sets.insert("BEAM", ("beam_turns.jsonl.gz", "beam_queries.jsonl", false));
    for name in ["LoCoMo", "BEAM"] {
        let (t, q, locomo) = sets[name];
        if !shared(t).exists() {
            println!("{name}: skipped, ../shared is not on this machine");
            continue;
        }
        let dir = tempfile::tempdir()?;
        let engine = fixture::engine(dir.path())?;
        for (conversation, turns) in turns(&lines(&shared(t))?, locomo) {
            fixture::write(&engine, &conversation, &turns)?;
        }
        fixture::finish(&engine)?;
        score(&engine, name, &questions(&lines(&shared(q))?), locomo)?;
    }
    Ok(())
}
