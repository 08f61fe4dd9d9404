//! Which decision a reference means, and what became of a decision once the others are considered.

use std::collections::HashMap;

use super::{Decision, Reference, Status, slug_of_path, split_number};

/// What a reference leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Places in the list of decisions.
    One(usize),
    /// More than one has this number or name.
    Many(Vec<usize>),
    /// None.
    Nothing,
}

/// A path relative to the folder of `from`, without `.` and `..`.
fn joined(from: &str, to: &str) -> String {
    let mut parts: Vec<&str> = match to.starts_with('/') {
        true => Vec::new(),
        false => from
            .rsplit_once('/')
            .map_or(Vec::new(), |(f, _)| f.split('/').collect()),
    };
    for p in to.split('/') {
        match p {
            "" | "." => {}
            ".." => drop(parts.pop()),
            p => parts.push(p),
        }
    }
    parts.join("/")
}

/// Finds decisions by what people call them.
#[derive(Debug)]
pub struct Names<'a> {
    all: &'a [Decision],
    by_path: HashMap<&'a str, usize>,
    by_slug: HashMap<String, Vec<usize>>,
    by_number: HashMap<u32, Vec<usize>>,
}

impl<'a> Names<'a> {
    /// Looks at the decisions once.
    pub fn new(all: &'a [Decision]) -> Self {
        let mut n = Self {
            all,
            by_path: HashMap::new(),
            by_slug: HashMap::new(),
            by_number: HashMap::new(),
        };
        for (i, d) in all.iter().enumerate() {
            n.by_path.insert(&d.path, i);
            let slug = slug_of_path(&d.path).to_lowercase();
            let bare = split_number(&slug).1.to_owned();
            if bare != slug {
                n.by_slug.entry(bare).or_default().push(i);
            }
            n.by_slug.entry(slug).or_default().push(i);
            if let Some(number) = d.record.number {
                n.by_number.entry(number).or_default().push(i);
            }
        }
        n
    }

    fn of(&self, found: Option<&Vec<usize>>) -> Found {
        match found.map(Vec::as_slice) {
            None | Some([]) => Found::Nothing,
            Some([one]) => Found::One(*one),
            Some(many) => Found::Many(many.to_vec()),
        }
    }

    /// The decision that somebody names: an id or the beginning of one, a path, a slug, a number.
    pub fn named(&self, name: &str) -> Found {
        let name = name.trim().trim_start_matches("decision:");
        if name.len() >= 8 && name.starts_with("dec_") {
            let hits: Vec<usize> = (0..self.all.len())
                .filter(|i| self.all[*i].id.starts_with(name))
                .collect();
            return self.of(Some(&hits));
        }
        if let Some(i) = self.by_path.get(name) {
            return Found::One(*i);
        }
        let clean = name.trim_start_matches("./");
        let end = format!("/{clean}");
        let tail: Vec<usize> = match clean.contains(['/', '.']) {
            true => (0..self.all.len())
                .filter(|i| self.all[*i].path.ends_with(&end))
                .collect(),
            false => Vec::new(),
        };
        if !tail.is_empty() {
            return self.of(Some(&tail));
        }
        let slug = slug_of_path(clean).to_lowercase();
        match self.of(self.by_slug.get(&slug)) {
            Found::Nothing => {}
            found => return found,
        }
        let (number, rest) = split_number(&slug);
        let digits = slug
            .rsplit(['-', ' ', '_', '#'])
            .next()
            .and_then(|d| d.parse().ok());
        match number.filter(|_| rest.is_empty()).or(digits) {
            Some(n) => self.of(self.by_number.get(&n)),
            None => Found::Nothing,
        }
    }

    /// The decision that a record of `from` refers to. A number means a record of the same folder, and
    /// among several the one whose title stands beside it.
    pub fn referred(&self, from: usize, r: &Reference) -> Found {
        let here = self.all.get(from).map_or("", |d| d.path.as_str());
        let target = r.to.split('#').next().unwrap_or_default();
        if let Some(i) = self.by_path.get(joined(here, target).as_str()) {
            return Found::One(*i);
        }
        if target.contains("://") && !target.ends_with(".md") {
            return Found::Nothing;
        }
        // A record that moved keeps its name.
        let name = if target.contains('/') {
            slug_of_path(target)
        } else {
            target
        };
        let found = self.named(name);
        let Found::Many(many) = found else {
            return found;
        };
        let folder = |p: &str| p.rsplit_once('/').map(|x| x.0.to_owned());
        let mut near: Vec<usize> = many
            .iter()
            .copied()
            .filter(|i| *i != from && folder(&self.all[*i].path) == folder(here))
            .collect();
        if near.len() > 1 && !r.text.is_empty() {
            let text = r.text.to_lowercase();
            near.retain(|i| text.contains(&self.all[*i].record.title.to_lowercase()));
        }
        match near.as_slice() {
            [one] => Found::One(*one),
            _ => Found::Many(many),
        }
    }
}

/// Fills in what the decisions are to each other: ids on both ends, and the status that follows. A
/// proposed decision never retires another one; an accepted one does, even where the other record was
/// forgotten.
pub fn settle(all: &mut [Decision]) {
    let mut pairs: Vec<(usize, usize, bool)> = Vec::new();
    {
        let names = Names::new(all);
        for (i, d) in all.iter().enumerate() {
            for r in &d.record.supersedes {
                if let Found::One(old) = names.referred(i, r) {
                    pairs.push((i, old, false));
                }
            }
            for r in &d.record.superseded_by {
                if let Found::One(new) = names.referred(i, r) {
                    pairs.push((new, i, true));
                }
            }
        }
    }
    for d in all.iter_mut() {
        d.status = d.record.status.unwrap_or_default();
        d.supersedes.clear();
        d.superseded_by.clear();
    }
    for (new, old, told_by_old) in pairs {
        if new == old {
            continue;
        }
        let (new_id, old_id) = (all[new].id.clone(), all[old].id.clone());
        let in_force = matches!(
            all[new].status,
            Status::Accepted | Status::Superseded | Status::Deprecated
        );
        if !all[new].supersedes.contains(&old_id) {
            all[new].supersedes.push(old_id);
        }
        if told_by_old || in_force {
            if !all[old].superseded_by.contains(&new_id) {
                all[old].superseded_by.push(new_id);
            }
            if in_force && matches!(all[old].status, Status::Accepted | Status::Proposed) {
                all[old].status = Status::Superseded;
            }
        }
    }
}
