//! Quality of code search on labelled questions: files (set A) and functions (set B).
//!
//! Repositories are not part of the project: `--repos DIR` names a folder with one checkout each,
//! named as in `code_repos.jsonl`, at the commits that it lists.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use weft_core::words;
use weft_engine::code::rank::{Question, Weights, rank};
use weft_engine::code::{CodeCandidate, CodeQuery, FIELDS, FieldWeights, SyncOptions};
use weft_engine::{CodeRepo, Config, Engine};

use crate::quality::{lines, s, shared};

/// Hits that are scored.
const TOP: usize = 10;

struct Target {
    path: String,
    span: Option<(u64, u64)>,
}

struct Labelled {
    repo: String,
    language: String,
    category: String,
    query: String,
    relevant: Vec<Target>,
    is_b: bool,
}

#[derive(Clone)]
struct Shown {
    path: String,
    start: u64,
    end: u64,
    tokens: usize,
}

struct Asked {
    q: Labelled,
    question: Question,
    candidates: Vec<CodeCandidate>,
}

fn questions(path: &Path, is_b: bool) -> Result<Vec<Labelled>> {
    Ok(lines(path)?
        .iter()
        .map(|r| Labelled {
            repo: s(r, "repo"),
            language: s(r, "language"),
            category: s(r, "category"),
            query: s(r, "query"),
            relevant: r["relevant"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|t| Target {
                    path: s(t, "path"),
                    span: t["start"].as_u64().zip(t["end"].as_u64()),
                })
                .collect(),
            is_b,
        })
        .collect())
}

/// Whether two paths are one, seen from different folders.
fn same_path(a: &str, b: &str) -> bool {
    a == b || a.ends_with(&format!("/{b}")) || b.ends_with(&format!("/{a}"))
}

fn hits(r: &Shown, t: &Target) -> bool {
    same_path(&r.path, &t.path) && t.span.is_none_or(|(a, b)| !(r.end < a || r.start > b))
}

/// NDCG@10, recall@10, reciprocal rank, hit@1, and recall at token budgets.
#[derive(Clone, Copy, Default)]
struct Score {
    ndcg: f64,
    recall: f64,
    mrr: f64,
    first: f64,
    at_tokens: [f64; 3],
}

/// Budgets of the token columns.
const TOKENS: [usize; 3] = [500, 1_000, 2_000];

/// As `shared/tools/score_code.py`: set A over distinct files, set B as listed.
fn score(q: &Labelled, results: &[Shown]) -> Score {
    let mut units: Vec<Vec<&Shown>> = Vec::new();
    for r in results {
        match units.iter_mut().find(|u| !q.is_b && u[0].path == r.path) {
            Some(u) => u.push(r),
            None => units.push(vec![r]),
        }
    }
    units.truncate(TOP);
    let ranks: Vec<usize> = q
        .relevant
        .iter()
        .filter_map(|t| units.iter().position(|u| u.iter().any(|r| hits(r, t))))
        .collect();
    let distinct: HashSet<usize> = ranks.iter().copied().collect();
    let gain = |i: usize| 1.0 / ((i + 2) as f64).log2();
    let ideal: f64 = (0..q.relevant.len().min(TOP)).map(gain).sum();
    let mut at_tokens = [0.0; 3];
    for (i, budget) in TOKENS.iter().enumerate() {
        let mut left = *budget;
        let shown: Vec<&Shown> = results
            .iter()
            .take_while(|r| {
                let fits = r.tokens <= left;
                left = left.saturating_sub(r.tokens);
                fits
            })
            .collect();
        let found = q
            .relevant
            .iter()
            .filter(|t| shown.iter().any(|r| hits(r, t)))
            .count();
        at_tokens[i] = found as f64 / q.relevant.len().max(1) as f64;
    }
    Score {
        ndcg: distinct.iter().map(|r| gain(*r)).sum::<f64>() / ideal.max(f64::MIN_POSITIVE),
        recall: ranks.len() as f64 / q.relevant.len().max(1) as f64,
        mrr: ranks.iter().min().map_or(0.0, |r| 1.0 / (*r as f64 + 1.0)),
        first: f64::from(u8::from(ranks.contains(&0))),
        at_tokens,
    }
}

fn mean(scores: &[Score]) -> Score {
    let n = scores.len().max(1) as f64;
    let sum = |f: &dyn Fn(&Score) -> f64| scores.iter().map(f).sum::<f64>() / n;
    Score {
        ndcg: sum(&|s| s.ndcg),
        recall: sum(&|s| s.recall),
        mrr: sum(&|s| s.mrr),
        first: sum(&|s| s.first),
        at_tokens: [
            sum(&|s| s.at_tokens[0]),
            sum(&|s| s.at_tokens[1]),
            sum(&|s| s.at_tokens[2]),
        ],
    }
}

/// 95 % interval of a mean by bootstrap, with a fixed generator.
pub(crate) fn interval(values: &[f64]) -> (f64, f64) {
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    let mut means: Vec<f64> = (0..1_000)
        .map(|_| {
            let sum: f64 = (0..values.len())
                .map(|_| {
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    values[(x % values.len() as u64) as usize]
                })
                .sum();
            sum / values.len() as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    (means[25], means[974])
}

/// Whether a question belongs to the half on which weights are chosen.
fn is_development(q: &Labelled) -> bool {
    let sum: u32 = q
        .query
        .bytes()
        .chain(q.repo.bytes())
        .fold(17, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b)));
    (sum >> 4).is_multiple_of(2)
}

fn shown(c: &CodeCandidate) -> Shown {
    let y = &c.file.symbols[c.at].symbol;
    let line = format!("{}:{}  {}  — {}", c.file.path, y.line, y.signature, y.doc);
    Shown {
        path: c.file.path.clone(),
        start: y.line.into(),
        // The record of a whole file is no answer to a question for a function in it.
        end: if y.kind == weft_engine::code::Kind::File {
            y.line
        } else {
            y.end_line
        }
        .into(),
        tokens: weft_core::code::tokens::count(&line),
    }
}

fn by_weights(a: &Asked, w: &Weights) -> Vec<Shown> {
    let c: Vec<_> = a
        .candidates
        .iter()
        .map(CodeCandidate::as_candidate)
        .collect();
    rank(&a.question, &c, w)
        .iter()
        .take(50)
        .map(|r| shown(&a.candidates[r.at]))
        .collect()
}

fn by(a: &Asked, key: impl Fn(&CodeCandidate) -> f32) -> Vec<Shown> {
    let mut all: Vec<(f32, &CodeCandidate)> = a
        .candidates
        .iter()
        .map(|c| (key(c), c))
        .filter(|c| c.0 > 0.0)
        .collect();
    all.sort_by(|x, y| {
        y.0.total_cmp(&x.0)
            .then_with(|| x.1.file.path.cmp(&y.1.file.path))
    });
    all.into_iter().take(50).map(|c| shown(c.1)).collect()
}

/// File names only: the share of the question's words in the path, weighted by rarity.
fn by_file_names(a: &Asked, paths: &[String]) -> Vec<Shown> {
    let query = words::query_words(&a.q.query);
    let mut frequency: HashMap<&str, f32> = HashMap::new();
    let split: Vec<HashSet<String>> = paths
        .iter()
        .map(|p| words::words(p).into_iter().collect())
        .collect();
    for w in &query {
        let n = split.iter().filter(|s| s.contains(w)).count() as f32;
        frequency.insert(w, (1.0 + (paths.len() as f32 - n + 0.5) / (n + 0.5)).ln());
    }
    let mut all: Vec<(f32, &String)> = paths
        .iter()
        .zip(&split)
        .map(|(p, s)| {
            let sum: f32 = query
                .iter()
                .filter(|w| s.contains(*w))
                .map(|w| frequency[w.as_str()])
                .sum();
            (sum / (s.len() as f32).sqrt(), p)
        })
        .filter(|x| x.0 > 0.0)
        .collect();
    all.sort_by(|x, y| y.0.total_cmp(&x.0).then_with(|| x.1.cmp(y.1)));
    all.into_iter()
        .take(50)
        .map(|(_, p)| Shown {
            path: p.clone(),
            start: 1,
            end: 1,
            tokens: weft_core::code::tokens::count(p),
        })
        .collect()
}

/// ripgrep on the question's words: files by the number of distinct words, then of matching lines.
fn by_ripgrep(a: &Asked, root: &Path) -> Vec<Shown> {
    let query = words::query_words(&a.q.query);
    let mut files: BTreeMap<String, (usize, usize, u64)> = BTreeMap::new();
    for w in &query {
        let out = std::process::Command::new("rg")
            .args(["-i", "--no-heading", "-n", "-F", "--", w, "."])
            .current_dir(root)
            .output();
        let Ok(out) = out else { return Vec::new() };
        let text = String::from_utf8_lossy(&out.stdout);
        let mut seen = HashSet::new();
        for line in text.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(path), Some(n)) = (parts.next(), parts.next().and_then(|n| n.parse().ok()))
            else {
                continue;
            };
            let e = files
                .entry(path.trim_start_matches("./").to_owned())
                .or_insert((0, 0, n));
            e.1 += 1;
            if seen.insert(path.to_owned()) {
                e.0 += 1;
            }
        }
    }
    let mut all: Vec<_> = files.into_iter().collect();
    all.sort_by(|x, y| {
        (y.1.0, y.1.1)
            .cmp(&(x.1.0, x.1.1))
            .then_with(|| x.0.cmp(&y.0))
    });
    all.into_iter()
        .take(50)
        .map(|(path, (_, _, line))| Shown {
            path,
            start: line,
            end: line,
            tokens: 30,
        })
        .collect()
}

fn row(name: &str, scores: &[Score]) {
    let m = mean(scores);
    let (low, high) = interval(&scores.iter().map(|s| s.ndcg).collect::<Vec<_>>());
    println!(
        "{name:<28} {:>4}  {:.3} [{low:.3}, {high:.3}]  {:.3}  {:.3}  {:.3}   {:.3} {:.3} {:.3}",
        scores.len(),
        m.ndcg,
        m.recall,
        m.mrr,
        m.first,
        m.at_tokens[0],
        m.at_tokens[1],
        m.at_tokens[2]
    );
}

type Get = fn(&mut Weights) -> &mut f32;

/// The weights by name.
const KNOBS: [(&str, Get); 24] = [
    ("words", |w| &mut w.words),
    ("vectors", |w| &mut w.vectors),
    ("name", |w| &mut w.name),
    ("name_precision", |w| &mut w.name_precision),
    ("stem", |w| &mut w.stem),
    ("stem_precision", |w| &mut w.stem_precision),
    ("file", |w| &mut w.file),
    ("named", |w| &mut w.named),
    ("exported", |w| &mut w.exported),
    ("test", |w| &mut w.test),
    ("example", |w| &mut w.example),
    ("generated", |w| &mut w.generated),
    ("compat", |w| &mut w.compat),
    ("prose", |w| &mut w.prose),
    ("stub", |w| &mut w.stub),
    ("file_record", |w| &mut w.file_record),
    ("small", |w| &mut w.small),
    ("container", |w| &mut w.container),
    ("same_file", |w| &mut w.same_file),
    ("words_power", |w| &mut w.words_power),
    ("words_floor", |w| &mut w.words_floor),
    ("vector_span", |w| &mut w.vector_span),
    ("words_low", |w| &mut w.words_low),
    ("words_full", |w| &mut w.words_full),
];

/// Changes one weight at a time, as long as the development half gets better.
fn tune(asked: &[Asked]) -> Weights {
    let development: Vec<&Asked> = asked.iter().filter(|a| is_development(&a.q)).collect();
    let value = |w: &Weights| {
        let of = |b: bool| {
            let all: Vec<Score> = development
                .iter()
                .filter(|a| a.q.is_b == b)
                .map(|a| score(&a.q, &by_weights(a, w)))
                .collect();
            mean(&all).ndcg
        };
        0.5 * of(false) + 0.5 * of(true)
    };
    let mut best = Weights::CHOSEN;
    let mut best_value = value(&best);
    println!("development, mean of A and B: {best_value:.4}");
    for round in 0..3 {
        let before = best_value;
        for (name, get) in KNOBS {
            for factor in [0.5, 0.75, 1.25, 1.7] {
                let mut w = best.clone();
                let v = get(&mut w);
                // Factors on whole groups stay mild: halves of this size cannot justify extremes.
                let low = if matches!(
                    name,
                    "test"
                        | "prose"
                        | "small"
                        | "container"
                        | "same_file"
                        | "file_record"
                        | "generated"
                        | "example"
                        | "compat"
                        | "stub"
                ) {
                    0.4
                } else {
                    0.0
                };
                *v = (*v * factor).clamp(low, 3.0);
                let got = value(&w);
                if got > best_value + 1e-4 {
                    (best, best_value) = (w, got);
                    println!("  {name} × {factor}: {got:.4}");
                }
            }
        }
        println!("round {round}: {best_value:.4}");
        if best_value - before < 5e-4 {
            break;
        }
    }
    best
}

fn index(engine: &Engine, dir: &Path) -> Result<CodeRepo> {
    let repo = engine.code_repository(dir)?;
    let report = engine.code_sync(&repo, SyncOptions::new(&mut |_, _, _| {}))?;
    eprintln!(
        "{}: {} files, {} read now, {} symbols",
        dir.display(),
        report.files,
        report.read,
        report.symbols
    );
    Ok(repo)
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut repos_dir = None;
    let mut out_dir = None;
    let mut data_dir = None;
    let mut more_b = Vec::new();
    let mut sets: Vec<String> = Vec::new();
    let (mut tuning, mut by_rg, mut verbose) = (false, true, false);
    let mut fields: Option<FieldWeights> = None;
    let mut it = args.iter();
    while let Some(a) = it.next() {
        match a.as_str() {
            "--repos" => repos_dir = it.next().map(PathBuf::from),
            "--out" => out_dir = it.next().map(PathBuf::from),
            "--data" => data_dir = it.next().map(PathBuf::from),
            "--questions" => more_b.extend(it.next().map(PathBuf::from)),
            "--tune" => tuning = true,
            "--set" => sets.extend(it.next().cloned()),
            "--no-rg" => by_rg = false,
            "--verbose" => verbose = true,
            "--fields" => {
                let v: Vec<f32> = it
                    .next()
                    .map(String::as_str)
                    .unwrap_or_default()
                    .split(',')
                    .filter_map(|x| x.parse().ok())
                    .collect();
                if let [name, path, signature, doc, body] = v[..] {
                    fields = Some(FieldWeights {
                        name,
                        path,
                        signature,
                        doc,
                        body,
                    });
                }
            }
            other => bail!("unknown argument {other}"),
        }
    }
    let repos_dir = repos_dir
        .context("--repos DIR is needed: a folder with the checkouts of code_repos.jsonl")?;
    let own = tempfile::tempdir()?;
    let engine = Engine::open(
        &data_dir.unwrap_or_else(|| own.path().to_owned()),
        Config::default(),
    )?;
    let mut all = questions(&shared("code_queries.jsonl"), false)?;
    all.extend(questions(&shared("code_span_queries.jsonl"), true)?);
    for q in more_b {
        all.extend(questions(&q, true)?);
    }
    let roots: HashMap<String, String> = lines(&shared("code_repos.jsonl"))?
        .iter()
        .map(|r| (s(r, "repo"), s(r, "root")))
        .collect();
    let mut open: HashMap<String, CodeRepo> = HashMap::new();
    let mut asked = Vec::new();
    for q in all {
        let dir = repos_dir.join(&q.repo);
        if !dir.exists() {
            eprintln!("{}: not there, its questions are left out", dir.display());
            continue;
        }
        let repo = match open.get(&q.repo) {
            Some(r) => r.clone(),
            None => {
                let r = index(&engine, &dir)?;
                open.insert(q.repo.clone(), r.clone());
                r
            }
        };
        let root = roots.get(&q.repo).filter(|r| !r.is_empty());
        let query = CodeQuery {
            query: q.query.clone(),
            paths: root.map(|r| format!("{r}/")).into_iter().collect(),
            history: false,
            ..CodeQuery::default()
        };
        let (question, candidates) =
            engine.code_candidates(&repo, &query, fields.as_ref().unwrap_or(&FIELDS))?;
        asked.push(Asked {
            q,
            question,
            candidates,
        });
    }
    if verbose {
        for is_b in [false, true] {
            let mut shares: Vec<f32> = asked
                .iter()
                .filter(|a| a.q.is_b == is_b)
                .map(|a| {
                    let best = a.candidates.iter().map(|c| c.words).fold(0.0, f32::max);
                    best / a.question.weights.iter().sum::<f32>().max(1e-6)
                })
                .collect();
            shares.sort_by(f32::total_cmp);
            let at = |p: usize| {
                shares
                    .get(shares.len() * p / 100)
                    .copied()
                    .unwrap_or_default()
            };
            println!(
                "best BM25 per rarity, set {}: {:.2} {:.2} {:.2} {:.2} {:.2}",
                if is_b { "B" } else { "A" },
                at(5),
                at(25),
                at(50),
                at(75),
                at(95)
            );
        }
    }
    let weights = if tuning {
        tune(&asked)
    } else {
        Weights::CHOSEN
    };
    if tuning {
        println!("{weights:#?}");
    }
    for set in &sets {
        let mut w = Weights::CHOSEN;
        for part in set.split(',') {
            let (name, value) = part.split_once('=').context("--set wants NAME=VALUE,…")?;
            let (_, get) = KNOBS
                .iter()
                .find(|k| k.0 == name)
                .with_context(|| format!("no weight {name}"))?;
            *get(&mut w) = value.parse()?;
        }
        let of = |b: bool, half: bool| {
            let all: Vec<Score> = asked
                .iter()
                .filter(|a| a.q.is_b == b && is_development(&a.q) == half)
                .map(|a| score(&a.q, &by_weights(a, &w)))
                .collect();
            mean(&all).ndcg
        };
        println!(
            "A {:.3} {:.3}  B {:.3} {:.3}  {set}",
            of(false, true),
            of(false, false),
            of(true, true),
            of(true, false)
        );
    }
    type Method<'a> = (&'a str, Box<dyn Fn(&Asked) -> Vec<Shown> + 'a>);
    let mut paths: HashMap<String, Vec<String>> = HashMap::new();
    for (name, repo) in &open {
        let git = weft_code_files(repo, roots.get(name).map_or("", String::as_str))?;
        paths.insert(name.clone(), git);
    }
    let mut methods: Vec<Method<'_>> = vec![
        ("weft", Box::new(|a| by_weights(a, &weights))),
        ("BM25 alone", Box::new(|a| by(a, |c| c.words))),
        (
            "vectors alone",
            Box::new(|a| by(a, |c| c.similarity.unwrap_or_default())),
        ),
        (
            "file names only",
            Box::new(|a| by_file_names(a, &paths[&a.q.repo])),
        ),
    ];
    let (dirs, all_roots) = (&repos_dir, &roots);
    if by_rg {
        methods.push((
            "ripgrep",
            Box::new(move |a| {
                by_ripgrep(
                    a,
                    &dirs
                        .join(&a.q.repo)
                        .join(all_roots.get(&a.q.repo).map_or("", String::as_str)),
                )
            }),
        ));
    }
    for (set, is_b) in [
        ("A (labels are files, distinct files)", false),
        ("B (labels are functions, as listed)", true),
    ] {
        println!(
            "\n{set}\n{:<28} {:>4}  NDCG@10 [95 %]        R@10   MRR    hit@1  recall at 500/1000/2000 tokens",
            "", "n"
        );
        for (name, method) in &methods {
            let results: Vec<(&Asked, Vec<Shown>)> = asked
                .iter()
                .filter(|a| a.q.is_b == is_b)
                .map(|a| (a, method(a)))
                .collect();
            let scores: Vec<Score> = results.iter().map(|(a, r)| score(&a.q, r)).collect();
            if scores.is_empty() {
                continue;
            }
            row(name, &scores);
            if *name == "weft" {
                for half in [true, false] {
                    let part: Vec<Score> = results
                        .iter()
                        .zip(&scores)
                        .filter(|((a, _), _)| is_development(&a.q) == half)
                        .map(|(_, s)| *s)
                        .collect();
                    if !part.is_empty() {
                        row(
                            if half {
                                "  development half"
                            } else {
                                "  held-out half"
                            },
                            &part,
                        );
                    }
                }
                let mut groups: BTreeMap<String, Vec<Score>> = BTreeMap::new();
                for ((a, _), sc) in results.iter().zip(&scores) {
                    groups
                        .entry(format!("  {}", a.q.language))
                        .or_default()
                        .push(*sc);
                    groups
                        .entry(format!("  = {}", a.q.category))
                        .or_default()
                        .push(*sc);
                }
                for (g, part) in groups {
                    row(&g, &part);
                }
                if verbose {
                    for ((a, r), sc) in results.iter().zip(&scores).filter(|x| x.1.ndcg < 0.6) {
                        println!("\n? {:.2} {} {:?}", sc.ndcg, a.q.repo, a.q.query);
                        for t in &a.q.relevant {
                            let there = a.candidates.iter().any(|c| hits(&shown(c), t));
                            println!(
                                "    want {} {:?}{}",
                                t.path,
                                t.span,
                                if there { "" } else { " (no candidate)" }
                            );
                        }
                        for x in r.iter().take(6) {
                            println!("    got  {}:{}-{}", x.path, x.start, x.end);
                        }
                    }
                }
            }
            if let Some(dir) = &out_dir {
                write_results(dir, name, is_b, &results)?;
            }
        }
    }
    Ok(())
}

/// Paths of the files in view under a root.
fn weft_code_files(repo: &CodeRepo, root: &str) -> Result<Vec<String>> {
    let mut out = Vec::new();
    for w in repo.store().workstreams()? {
        for id in w.files {
            if let Some(f) = repo.store().file(id)?
                && f.path.starts_with(root)
                && f.skipped.is_empty()
            {
                out.push(f.path.clone());
            }
        }
    }
    out.sort();
    out.dedup();
    Ok(out)
}

/// Writes results as `shared/tools/score_code.py` reads them.
fn write_results(
    dir: &Path,
    name: &str,
    is_b: bool,
    results: &[(&Asked, Vec<Shown>)],
) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    let file = dir.join(format!(
        "{}-{}.jsonl",
        name.replace(' ', "-"),
        if is_b { "B" } else { "A" }
    ));
    let mut text = String::new();
    for (a, r) in results {
        let hits: Vec<Value> = r
            .iter()
            .map(|x| json!({"path": x.path, "start": x.start, "end": x.end, "tokens": x.tokens}))
            .collect();
        text.push_str(&json!({"repo": a.q.repo, "query": a.q.query, "results": hits}).to_string());
        text.push('\n');
    }
    std::fs::write(file, text)?;
    Ok(())
}
