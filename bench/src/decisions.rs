//! Quality of the search for decisions: real records of 45 repositories, labelled questions.
//!
//! Two settings: over the whole pool, and among the records of the repository that the answer is in. The
//! peers are our own legs and BM25 as a textbook has it (one field with the title three times, Porter
//! stems), in the same run.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use weft_core::decision::rank::{self, Weights};
use weft_core::words;
use weft_engine::decisions::{ImportRecords, Loaded};

use crate::code::interval;
use crate::fixture;
use crate::quality::{lines, s, shared};

struct Question {
    query: String,
    kind: String,
    relevant: Vec<String>,
}

/// Scores of one list of found ids: nDCG@10, recall@5, recall@10, reciprocal rank.
fn scores(found: &[&str], relevant: &[String]) -> [f64; 4] {
    let hit = |id: &&str| relevant.iter().any(|r| r == id);
    let gain = |i: usize| 1.0 / ((i + 2) as f64).log2();
    let dcg: f64 = found
        .iter()
        .take(10)
        .enumerate()
        .filter(|(_, f)| hit(f))
        .map(|(i, _)| gain(i))
        .sum();
    let ideal: f64 = (0..relevant.len().min(10)).map(gain).sum();
    let recall =
        |n: usize| found.iter().take(n).filter(|f| hit(f)).count() as f64 / relevant.len() as f64;
    let first = found.iter().position(hit);
    [
        dcg / ideal,
        recall(5),
        recall(10),
        first.map_or(0.0, |i| 1.0 / (i + 1) as f64),
    ]
}

/// What is compared.
#[derive(Clone)]
enum System {
    Weft(Weights),
    Words,
    Vectors,
    Bm25,
}

struct Pool {
    loaded: Loaded,
    /// Ids as the labels have them, by place.
    ids: Vec<String>,
    /// Words of title (three times) and text, for the textbook's BM25.
    plain: Vec<Vec<String>>,
    vectors: BTreeMap<String, Vec<f32>>,
}

impl Pool {
    fn ask<'a>(&'a self, q: &Question, system: &System, keep: &[usize]) -> Vec<&'a str> {
        let query = rank::query_words(&q.query);
        let vector = self.vectors.get(&q.query).map(Vec::as_slice);
        let found: Vec<usize> = match system {
            System::Weft(w) => self
                .loaded
                .rank(&query, vector, keep, w)
                .iter()
                .map(|r| r.at)
                .collect(),
            System::Words => self
                .loaded
                .rank(&query, None, keep, &Weights::CHOSEN)
                .iter()
                .map(|r| r.at)
                .collect(),
            System::Vectors => self
                .loaded
                .rank(&[], vector, keep, &Weights::CHOSEN)
                .iter()
                .map(|r| r.at)
                .collect(),
            System::Bm25 => self.bm25(&q.query, keep),
        };
        found
            .into_iter()
            .take(10)
            .map(|i| self.ids[i].as_str())
            .collect()
    }

    fn bm25(&self, query: &str, keep: &[usize]) -> Vec<usize> {
        let (k1, b) = (1.5, 0.75);
        let n = keep.len() as f64;
        let average = keep.iter().map(|i| self.plain[*i].len()).sum::<usize>() as f64 / n;
        let mut score: BTreeMap<usize, f64> = BTreeMap::new();
        for w in words::query_words(query) {
            let tf: Vec<(usize, f64)> = keep
                .iter()
                .map(|i| {
                    (
                        *i,
                        self.plain[*i].iter().filter(|x| **x == w).count() as f64,
                    )
                })
                .filter(|(_, c)| *c > 0.0)
                .collect();
            let df = tf.len() as f64;
            let idf = (1.0 + (n - df + 0.5) / (df + 0.5)).ln();
            for (i, c) in tf {
                let length = self.plain[i].len() as f64;
                *score.entry(i).or_default() +=
                    idf * c * (k1 + 1.0) / (c + k1 * (1.0 - b + b * length / average));
            }
        }
        let mut all: Vec<(usize, f64)> = score.into_iter().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.into_iter().map(|x| x.0).collect()
    }

    /// Records of the repositories in which the answers are.
    fn own(&self, q: &Question) -> Vec<usize> {
        let repo = |id: &str| id.split('/').next().unwrap_or_default().to_owned();
        let wanted: Vec<String> = q.relevant.iter().map(|r| repo(r)).collect();
        (0..self.ids.len())
            .filter(|i| wanted.contains(&repo(&self.ids[*i])))
            .collect()
    }
}

/// Mean and interval of each score, over all questions and by kind.
fn table(pool: &Pool, name: &str, questions: &[Question], system: &System, own: bool) {
    let all: Vec<usize> = (0..pool.ids.len()).collect();
    let mut by_kind: BTreeMap<&str, Vec<[f64; 4]>> = BTreeMap::new();
    for q in questions {
        let keep = if own { pool.own(q) } else { all.clone() };
        let s = scores(&pool.ask(q, system, &keep), &q.relevant);
        by_kind.entry("all").or_default().push(s);
        by_kind.entry(&q.kind).or_default().push(s);
    }
    let mean =
        |v: &[[f64; 4]], i: usize| v.iter().map(|x| x[i]).sum::<f64>() / v.len().max(1) as f64;
    if let Some(v) = by_kind.get("all") {
        let (low, high) = interval(&v.iter().map(|x| x[0]).collect::<Vec<_>>());
        let kinds: Vec<String> = by_kind
            .iter()
            .filter(|(k, _)| **k != "all")
            .map(|(k, v)| format!("{k} {:.3}", mean(v, 0)))
            .collect();
        println!(
            "{name:<24} nDCG@10 {:.3} [{low:.3}, {high:.3}]  R@5 {:.3}  R@10 {:.3}  MRR {:.3}   {}",
            mean(v, 0),
            mean(v, 1),
            mean(v, 2),
            mean(v, 3),
            kinds.join("  ")
        );
    }
}

fn ndcg(pool: &Pool, questions: &[&Question], w: &Weights) -> f64 {
    let all: Vec<usize> = (0..pool.ids.len()).collect();
    let system = System::Weft(w.clone());
    let of = |q: &&Question| {
        let pool_score = scores(&pool.ask(q, &system, &all), &q.relevant)[0];
        let own = scores(&pool.ask(q, &system, &pool.own(q)), &q.relevant)[0];
        pool_score + 0.5 * own
    };
    questions.iter().map(of).sum::<f64>() / questions.len().max(1) as f64
}

/// Coordinate search on the development half.
fn tune(pool: &Pool, development: &[&Question]) -> Weights {
    let mut best = Weights::CHOSEN;
    let mut score = ndcg(pool, development, &best);
    type Knob = (&'static str, fn(&mut Weights) -> &mut f32, &'static [f32]);
    let knobs: [Knob; 10] = [
        (
            "title field",
            |w| &mut w.fields[0],
            &[1.5, 2.0, 3.0, 4.0, 6.0],
        ),
        (
            "options field",
            |w| &mut w.fields[1],
            &[0.0, 0.3, 0.6, 1.0, 1.5],
        ),
        ("k1", |w| &mut w.k1, &[0.6, 0.9, 1.2, 1.6, 2.0, 3.0]),
        ("b", |w| &mut w.b, &[0.2, 0.4, 0.6, 0.75, 0.9]),
        (
            "vectors",
            |w| &mut w.vectors,
            &[0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9, 1.2],
        ),
        ("title", |w| &mut w.title, &[0.0, 0.1, 0.2, 0.3, 0.5]),
        (
            "words floor",
            |w| &mut w.words_floor,
            &[0.2, 0.4, 0.6, 0.8, 1.0],
        ),
        (
            "covered low",
            |w| &mut w.covered.0,
            &[0.1, 0.2, 0.3, 0.4, 0.5],
        ),
        (
            "covered full",
            |w| &mut w.covered.1,
            &[0.6, 0.7, 0.8, 0.9, 1.0],
        ),
        ("power", |w| &mut w.power, &[0.7, 1.0, 1.3, 1.6]),
    ];
    for round in 0..3 {
        let before = score;
        for (name, knob, values) in &knobs {
            for v in *values {
                let mut w = best.clone();
                *knob(&mut w) = *v;
                let s = ndcg(pool, development, &w);
                if s > score + 1e-6 {
                    println!("round {round}: {name} = {v}: {score:.4} -> {s:.4}");
                    (best, score) = (w, s);
                }
            }
        }
        if score - before < 1e-4 {
            break;
        }
    }
    best
}

/// How often a question is said to be decided: in the repository that answers it, and in one that does not.
fn verdicts(pool: &Pool, questions: &[Question]) {
    let repo = |id: &str| id.split('/').next().unwrap_or_default().to_owned();
    let repos: Vec<String> = {
        let mut all: Vec<String> = pool.ids.iter().map(|i| repo(i)).collect();
        all.dedup();
        all
    };
    let decided = |q: &Question, keep: &[usize]| {
        let query = rank::query_words(&q.query);
        let vector = pool.vectors.get(&q.query).map(Vec::as_slice);
        let ranked = pool.loaded.rank(&query, vector, keep, &Weights::CHOSEN);
        rank::verdict(&query, &pool.loaded.all, &ranked) != rank::Verdict::Nothing
    };
    let own = questions
        .iter()
        .filter(|q| decided(q, &pool.own(q)))
        .count();
    let (mut foreign, mut asked) = (0, 0);
    for (n, q) in questions.iter().enumerate() {
        let home: Vec<String> = q.relevant.iter().map(|r| repo(r)).collect();
        for other in repos
            .iter()
            .filter(|r| !home.contains(r))
            .skip(n % 7)
            .step_by(7)
        {
            let keep: Vec<usize> = (0..pool.ids.len())
                .filter(|i| repo(&pool.ids[*i]) == *other)
                .collect();
            foreign += usize::from(decided(q, &keep));
            asked += 1;
        }
    }
    println!(
        "\nverdict \"decided\" (or replaced, rejected, ...): {own} of {} where it is; {foreign} of {asked} in repositories where it is not",
        questions.len()
    );
}

/// Pairs of titles of one repository that the guard against recording twice would stop.
fn near_titles(pool: &Pool) {
    let repo = |id: &str| id.split('/').next().unwrap_or_default().to_owned();
    let (mut by_words, mut by_meaning, mut pairs) = (0, 0, 0);
    for a in 0..pool.ids.len() {
        for b in a + 1..pool.ids.len() {
            if repo(&pool.ids[a]) != repo(&pool.ids[b]) {
                continue;
            }
            pairs += 1;
            let (words, meaning) = pool.loaded.near(a, b);
            by_words += usize::from(words);
            if meaning && !words {
                by_meaning += 1;
                if by_meaning <= 12 {
                    let t = |i: usize| pool.loaded.all[i].record.title.as_str();
                    println!("  near by meaning: {:?} / {:?}", t(a), t(b));
                }
            }
        }
    }
    println!(
        "titles that say nearly the same: {by_words} pairs by words, {by_meaning} more by meaning, of {pairs} pairs in one repository"
    );
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let tar = shared("adr_docs.tar.gz");
    if !tar.exists() {
        bail!(
            "{} is not there: the records are evaluation data and no part of the project",
            tar.display()
        );
    }
    let dir = tempfile::tempdir()?;
    let unpacked = Command::new("tar")
        .arg("xzf")
        .arg(&tar)
        .arg("-C")
        .arg(dir.path())
        .status()?;
    if !unpacked.success() {
        bail!("tar does not unpack {}", tar.display());
    }
    let engine = fixture::engine(&dir.path().join("store"))?;
    let decisions = engine.decisions_named("pool")?;
    let t = Instant::now();
    let report = decisions.import(&dir.path().join("adr"), ImportRecords::default())?;
    println!(
        "{} records imported, read and embedded in {:.2} s; skipped {:?}\nby format {:?}\nby status {:?}",
        report.new,
        t.elapsed().as_secs_f64(),
        report.skipped,
        report.formats,
        report.statuses
    );
    let t = Instant::now();
    let again = decisions.import(&dir.path().join("adr"), ImportRecords::default())?;
    println!(
        "again: {} new, {} changed, {:.2} s",
        again.new,
        again.changed,
        t.elapsed().as_secs_f64()
    );

    let questions: Vec<Question> = lines(&shared("adr_queries.jsonl"))?
        .iter()
        .map(|v| Question {
            query: s(v, "query"),
            kind: s(v, "kind"),
            relevant: v["relevant"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|r| r.as_str())
                .map(str::to_owned)
                .collect(),
        })
        .collect();
    let (loaded, _) = decisions.current()?;
    let embedder = engine.embedder().map_err(|e| anyhow::anyhow!("{e}"))?;
    let mut vectors = BTreeMap::new();
    for q in &questions {
        vectors.insert(
            q.query.clone(),
            embedder.embed(&q.query)?.unwrap_or_default(),
        );
    }
    let ids: Vec<String> = loaded
        .all
        .iter()
        .map(|d| d.path.trim_end_matches(".md").to_owned())
        .collect();
    let plain = (0..loaded.all.len())
        .map(|i| {
            let d = decisions
                .with_text(&loaded, i)
                .map_err(anyhow::Error::from)?;
            let t = &d.record.title;
            Ok(words::words(&format!("{t} {t} {t} {}", d.record.rationale)))
        })
        .collect::<Result<_>>()?;
    let pool = Pool {
        loaded,
        ids,
        plain,
        vectors,
    };
    let missing = questions
        .iter()
        .flat_map(|q| &q.relevant)
        .find(|r| !pool.ids.contains(r));
    if let Some(m) = missing {
        return Err(anyhow::anyhow!("{m} is not among the records"))
            .context("labels and records do not fit");
    }
    // Every second question of a kind chooses weights; the others only judge them.
    let development: Vec<&Question> = questions.iter().step_by(2).collect();
    let held: Vec<&Question> = questions.iter().skip(1).step_by(2).collect();
    let weights = if args.iter().any(|a| a == "--tune") {
        let w = tune(&pool, &development);
        println!("{w:#?}");
        w
    } else {
        Weights::CHOSEN
    };
    for own in [false, true] {
        println!(
            "\n{} ({} questions)",
            if own {
                "in one's own repository"
            } else {
                "over the whole pool"
            },
            questions.len()
        );
        table(
            &pool,
            "weft",
            &questions,
            &System::Weft(weights.clone()),
            own,
        );
        table(&pool, "its words alone", &questions, &System::Words, own);
        table(
            &pool,
            "its vectors alone",
            &questions,
            &System::Vectors,
            own,
        );
        table(&pool, "BM25, title x3", &questions, &System::Bm25, own);
    }
    let both = |qs: &[&Question]| ndcg(&pool, qs, &weights);
    println!(
        "\npool + half of own: development half {:.3}, held-out half {:.3}",
        both(&development),
        both(&held)
    );
    verdicts(&pool, &questions);
    near_titles(&pool);
    let t = Instant::now();
    for q in &questions {
        let _ = decisions.search(&weft_engine::decisions::DecisionQuery {
            query: q.query.clone(),
            ..Default::default()
        })?;
    }
    println!(
        "one search of {} records: {:.1} ms",
        pool.ids.len(),
        t.elapsed().as_secs_f64() * 1e3 / questions.len() as f64
    );
    Ok(())
}
