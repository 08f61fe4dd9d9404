//! Owner and last change of the hits shown: looked up late, remembered, bounded in time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use weft_code::extract::{self, Decoded};
use weft_code::git::{Git, LastChange};
use weft_code::owners::{Owners, PLACES};
use weft_core::time;
use weft_store::code::{Change, FileVersion};

use super::search::HISTORY_TIME;
use super::{CodeError, CodeHit, CodeRepo, HitStitch};
use crate::Engine;

impl Engine {
    /// Adds owners and last changes. `bases` are the versions that the branch has of the hits' files,
    /// with the symbol's name there.
    pub(super) fn add_history(
        &self,
        repo: &CodeRepo,
        git: &Git,
        head: &str,
        hits: &mut [CodeHit],
        bases: &[(Option<Arc<FileVersion>>, String)],
    ) -> Result<(), CodeError> {
        let owners = self.owners(repo, git, head);
        let deadline = Instant::now() + HISTORY_TIME;
        let mut sources: HashMap<u32, Option<String>> = HashMap::new();
        for (hit, (base, name)) in hits.iter_mut().zip(bases) {
            if let Some(b) = base
                && !head.is_empty()
            {
                hit.stitch = self.stitch(repo, git, head, b, name, deadline, &mut sources)?;
            }
            hit.owner = owners
                .of(&hit.file)
                .or_else(|| hit.stitch.as_ref().map(|s| s.author.clone()))
                .unwrap_or_default();
        }
        Ok(())
    }

    fn owners(&self, repo: &CodeRepo, git: &Git, head: &str) -> Owners {
        for place in PLACES {
            let on_disk = repo.root.as_ref().and_then(|r| {
                use std::io::Read as _;
                let mut out = Vec::new();
                let file = super::open_no_follow(&r.join(place)).ok()?;
                file.take(3 << 20).read_to_end(&mut out).ok()?;
                Some(out)
            });
            let bytes = match on_disk {
                Some(b) => Some(b),
                None if repo.root.is_none() && !head.is_empty() => git
                    .files(head)
                    .ok()
                    .and_then(|all| all.into_iter().find(|f| f.path == place))
                    .and_then(|f| git.blob(&f.blob, 3 << 20)),
                None => None,
            };
            if let Some(b) = bytes {
                return Owners::parse(&String::from_utf8_lossy(&b));
            }
        }
        Owners::default()
    }

    /// The last commit that changed a symbol's text.
    #[allow(
        clippy::too_many_arguments,
        reason = "one question with all that it needs"
    )]
    fn stitch(
        &self,
        repo: &CodeRepo,
        git: &Git,
        head: &str,
        base: &FileVersion,
        name: &str,
        deadline: Instant,
        sources: &mut HashMap<u32, Option<String>>,
    ) -> Result<Option<HitStitch>, CodeError> {
        let Some(symbol) = base.find(name) else {
            return Ok(None);
        };
        let Some(hash) = base
            .symbols
            .iter()
            .find(|s| std::ptr::eq(&s.symbol, symbol))
            .map(|s| s.hash)
        else {
            return Ok(None);
        };
        let known = repo.store.change(&base.path, name, &hash)?;
        if let Some(c) = known
            .as_ref()
            .filter(|c| c.head == head && c.reached.is_empty())
        {
            return Ok(shown(c));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        let source = sources
            .entry(base.id)
            .or_insert_with(|| self.source_of(repo, git, None, base, false))
            .clone();
        let Some(text) = source
            .as_deref()
            .and_then(|s| s.get(symbol.start as usize..symbol.end as usize))
        else {
            return Ok(None);
        };
        let whole_file = symbol.kind == super::Kind::File;
        let mut same = |old: &[u8]| {
            let Decoded::Text(old) = extract::decode(old) else {
                return false;
            };
            if whole_file || !old.contains(text) {
                return false;
            }
            // The same text under another name would be another symbol.
            extract::extract(&base.path, &old).symbols.iter().any(|s| {
                s.name == symbol.name && old.get(s.start as usize..s.end as usize) == Some(text)
            })
        };
        // Go on where the last search ended, or stop where an older answer still holds.
        let (from, stop) = match &known {
            Some(c) if c.head == head => (c.reached.as_str(), None),
            Some(c) if c.reached.is_empty() => (head, Some(c.head.as_str())),
            _ => (head, None),
        };
        let found = git.last_change(from, &base.path, stop, deadline, &mut same)?;
        let change = match found {
            LastChange::Unknown => return Ok(None),
            LastChange::StoppedAt(at) => match known
                .as_ref()
                .filter(|c| stop == Some(at.as_str()) && c.head == at)
            {
                Some(c) => Change {
                    head: head.to_owned(),
                    ..c.clone()
                },
                None => Change {
                    head: head.to_owned(),
                    reached: at,
                    ..Change::default()
                },
            },
            LastChange::Found(s) => Change {
                head: head.to_owned(),
                reached: String::new(),
                changeset: s.changeset,
                intent: s.intent,
                author: s.author,
                at: s.at,
            },
        };
        match repo.store.remember_change(&base.path, name, &hash, &change) {
            Err(e) if !e.is_write_only() => return Err(e.into()),
            _ => {}
        }
        Ok(shown(&change))
    }
}

fn shown(c: &Change) -> Option<HitStitch> {
    c.reached.is_empty().then(|| HitStitch {
        changeset: c.changeset.clone(),
        intent: c.intent.clone(),
        author: c.author.clone(),
        at: time::format_micros(c.at.saturating_mul(1_000_000)),
    })
}
