//! What does not fit together among decisions: a lint, not a gate.

use std::collections::{HashMap, HashSet};

use super::link::{Found, Names};
use super::{Decision, Status};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// It names a record that is not there.
    Dangling,
    /// Only one of the two records says so.
    OneSided,
    /// They replace each other in a circle.
    Cyclic,
    /// A proposed decision is said to have replaced one that holds.
    ProposedRetires,
    /// Two records of one folder have one number.
    DuplicateNumber,
    /// Two decisions that hold say nearly the same.
    NearDuplicate,
    /// Two decisions that hold govern the same files, and one turned down what the other chose.
    Conflict,
}

impl Rule {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dangling => "dangling",
            Self::OneSided => "one-sided",
            Self::Cyclic => "cyclic",
            Self::ProposedRetires => "proposed-retires-accepted",
            Self::DuplicateNumber => "duplicate-number",
            Self::NearDuplicate => "near-duplicate",
            Self::Conflict => "conflict",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub rule: Rule,
    /// Ids of the decisions concerned.
    pub ids: Vec<String>,
    /// In words.
    pub text: String,
}

fn name(d: &Decision) -> &str {
    if d.path.is_empty() { &d.id } else { &d.path }
}

/// Looks at all decisions (settled, [`super::link::settle`]). `near` are pairs whose texts are nearly
/// the same, by place.
pub fn check(all: &[Decision], near: &[(usize, usize)]) -> Vec<Finding> {
    let mut out = Vec::new();
    let names = Names::new(all);
    let by_id: HashMap<&str, usize> = all
        .iter()
        .enumerate()
        .map(|(i, d)| (d.id.as_str(), i))
        .collect();
    let mut say = |rule, ids: &[usize], text: String| {
        out.push(Finding {
            rule,
            ids: ids.iter().map(|i| all[*i].id.clone()).collect(),
            text,
        });
    };
    for (i, d) in all.iter().enumerate() {
        let both = [
            ("supersedes", &d.record.supersedes),
            ("is superseded by", &d.record.superseded_by),
        ];
        for (verb, refs) in both {
            for r in refs {
                let unclear = match names.referred(i, r) {
                    Found::One(_) => continue,
                    Found::Nothing => "which is not there",
                    Found::Many(_) => "and more than one record has that number or name",
                };
                say(
                    Rule::Dangling,
                    &[i],
                    format!("{} {verb} {}, {unclear}", name(d), r.to),
                );
            }
        }
        for r in &d.record.supersedes {
            let Found::One(old) = names.referred(i, r) else {
                continue;
            };
            let o = &all[old];
            let told = o
                .record
                .superseded_by
                .iter()
                .any(|r| names.referred(old, r) == Found::One(i));
            if !told && d.status == Status::Accepted {
                say(
                    Rule::OneSided,
                    &[i, old],
                    format!("{} supersedes {}, which does not say so", name(d), name(o)),
                );
            }
        }
        for r in &d.record.superseded_by {
            let Found::One(new) = names.referred(i, r) else {
                continue;
            };
            let n = &all[new];
            if n.record.status == Some(Status::Proposed) {
                say(
                    Rule::ProposedRetires,
                    &[new, i],
                    format!(
                        "{} is only proposed, and {} is said to be superseded by it",
                        name(n),
                        name(d)
                    ),
                );
            }
            if !n
                .record
                .supersedes
                .iter()
                .any(|r| names.referred(new, r) == Found::One(i))
            {
                say(
                    Rule::OneSided,
                    &[i, new],
                    format!(
                        "{} is superseded by {}, which does not say so",
                        name(d),
                        name(n)
                    ),
                );
            }
        }
    }
    for cycle in cycles(all, &by_id) {
        let path: Vec<&str> = cycle.iter().map(|i| name(&all[*i])).collect();
        say(
            Rule::Cyclic,
            &cycle,
            format!("{} supersede each other in a circle", path.join(", ")),
        );
    }
    let mut numbers: HashMap<(&str, u32), Vec<usize>> = HashMap::new();
    for (i, d) in all.iter().enumerate() {
        let folder = d.path.rsplit_once('/').map_or("", |(f, _)| f);
        if let Some(n) = d.record.number {
            numbers.entry((folder, n)).or_default().push(i);
        }
    }
    let mut repeated: Vec<_> = numbers.into_iter().filter(|(_, v)| v.len() > 1).collect();
    repeated.sort();
    for ((_, n), v) in repeated {
        let who: Vec<&str> = v.iter().map(|i| name(&all[*i])).collect();
        say(
            Rule::DuplicateNumber,
            &v,
            format!("number {n} is used by {}", who.join(" and ")),
        );
    }
    for &(a, b) in near {
        let linked =
            all[a].supersedes.contains(&all[b].id) || all[b].supersedes.contains(&all[a].id);
        if all[a].status == Status::Accepted && all[b].status == Status::Accepted && !linked {
            let text = format!(
                "{} and {} say nearly the same",
                name(&all[a]),
                name(&all[b])
            );
            say(Rule::NearDuplicate, &[a, b], text);
        }
    }
    for (a, b, file, what) in conflicts(all) {
        say(
            Rule::Conflict,
            &[a, b],
            format!(
                "{} chose {what} for {file}, which {} turned down",
                name(&all[a]),
                name(&all[b])
            ),
        );
    }
    out
}

/// Circles of supersession, each once.
fn cycles(all: &[Decision], by_id: &HashMap<&str, usize>) -> Vec<Vec<usize>> {
    let mut out = Vec::new();
    let mut done: HashSet<usize> = HashSet::new();
    for start in 0..all.len() {
        let mut path: Vec<usize> = Vec::new();
        let mut stack = vec![(start, 0)];
        while let Some((at, next)) = stack.pop() {
            if next == 0 {
                if let Some(p) = path.iter().position(|x| *x == at) {
                    out.push(path[p..].to_vec());
                    continue;
                }
                if !done.insert(at) {
                    continue;
                }
                path.push(at);
            }
            match all[at]
                .supersedes
                .get(next)
                .and_then(|id| by_id.get(id.as_str()))
            {
                Some(&to) => {
                    stack.push((at, next + 1));
                    stack.push((to, 0));
                }
                None if next < all[at].supersedes.len() => stack.push((at, next + 1)),
                None => drop(path.pop()),
            }
        }
    }
    out
}

/// Decisions in force on one file of which one chose what the other turned down.
fn conflicts(all: &[Decision]) -> Vec<(usize, usize, String, String)> {
    let mut by_file: HashMap<&str, Vec<usize>> = HashMap::new();
    for (i, d) in all.iter().enumerate() {
        if d.status == Status::Accepted {
            for f in &d.record.files {
                by_file.entry(f).or_default().push(i);
            }
        }
    }
    let mut out = Vec::new();
    let mut files: Vec<_> = by_file.into_iter().collect();
    files.sort();
    for (file, on) in files {
        for &a in &on {
            let title = crate::words::words(&all[a].record.title);
            for &b in on.iter().filter(|b| **b != a) {
                let turned_down = all[b].record.alternatives.iter().find(|x| {
                    let w = crate::words::query_words(&x.name);
                    !w.is_empty() && w.iter().all(|w| title.contains(w))
                });
                if let Some(x) = turned_down {
                    out.push((a, b, file.to_owned(), x.name.clone()));
                }
            }
        }
    }
    out
}
