//! `find`: symbols of the files on disk by name, signature and first doc line.

use std::collections::HashSet;
use std::sync::Arc;

use weft_core::code::Kind;
use weft_core::code::find::{FindQuery, Tier};
use weft_store::code::{CodeFilter, FieldWeights, SymbolKey};

use super::answer::{CodeQuery, FindAnswer};
use super::search::{CodeCandidate, FIELDS, check};
use super::{CodeError, CodeRepo, MAX_QUERY};
use crate::Engine;

impl Engine {
    /// Keyword search over the symbols of the files on disk: no vectors, no server.
    ///
    /// # Errors
    /// As [`Self::code_search`].
    pub fn code_find(
        &self,
        repo: &CodeRepo,
        q: &CodeQuery,
        progress: &mut dyn FnMut(&str, usize, usize),
    ) -> Result<FindAnswer, CodeError> {
        let mut q = CodeQuery {
            vectors: false,
            ..q.clone()
        };
        if q.query.trim().is_empty() || q.query.chars().count() > MAX_QUERY {
            check(&q.query, 1)?;
        }
        q.limit = q.limit.clamp(1, 1_000);
        self.bring_up(repo, &q, progress)?;
        let git = repo.git()?;
        let head = git.head()?;
        let indexed = repo.store.workstream(&head.workstream)?;
        let scope = self.scope(
            repo,
            indexed.as_ref().map_or(&[][..], |w| &w.files),
            true,
            true,
        )?;
        let under = if q.paths.is_empty() {
            None
        } else {
            Some(repo.store.under(&q.paths)?)
        };
        let view = match under {
            Some(u) => Arc::new(scope.disk.and(&u)),
            None => scope.disk.clone(),
        };
        let filter = CodeFilter {
            view,
            kinds: q.kinds.clone(),
        };
        let find = FindQuery::new(&q.query);
        // Tier by tier, until enough are there: each tier is a look-up of its own.
        let many = (q.limit * 4).max(200);
        let mut keys: HashSet<SymbolKey> = HashSet::new();
        keys.extend(repo.store.named(&find.name, false, &filter, many)?);
        if keys.len() < many && !find.name.is_empty() {
            keys.extend(repo.store.named(&find.name, true, &filter, many)?);
        }
        for fields in 1..=3 {
            if keys.len() < many {
                keys.extend(
                    repo.store
                        .with_all_words(&find.words, fields, &filter, many)?,
                );
            }
        }
        if keys.is_empty() {
            let any: Vec<(String, f32)> = find.words.iter().map(|w| (w.clone(), 1.0)).collect();
            let fields = FieldWeights {
                body: 0.0,
                path: 0.0,
                ..FIELDS
            };
            keys.extend(
                repo.store
                    .word_search(&any, &fields, &filter, many)?
                    .into_iter()
                    .map(|f| f.0),
            );
        }
        let mut found: Vec<(Tier, usize, CodeCandidate)> = Vec::new();
        for k in keys {
            let Some(file) = repo.store.file(k.file())? else {
                continue;
            };
            let Some(s) = file.symbols.get(k.at()) else {
                continue;
            };
            let Some((tier, n)) = find.judge(&s.symbol) else {
                continue;
            };
            // A file is no symbol, but its name may be all that is asked for.
            if s.symbol.kind == Kind::File && tier > Tier::Name {
                continue;
            }
            found.push((
                tier,
                n,
                CodeCandidate {
                    at: k.at(),
                    words: 0.0,
                    named: true,
                    similarity: None,
                    score: 0.0,
                    file,
                },
            ));
        }
        found.sort_by(|(ta, na, a), (tb, nb, b)| {
            let (x, y) = (&a.file.symbols[a.at].symbol, &b.file.symbols[b.at].symbol);
            ta.cmp(tb)
                .then(nb.cmp(na))
                .then((x.kind == Kind::File).cmp(&(y.kind == Kind::File)))
                .then(y.exported.cmp(&x.exported))
                .then_with(|| a.file.path.cmp(&b.file.path))
                .then(x.line.cmp(&y.line))
                .then(a.file.id.cmp(&b.file.id))
        });
        let total = found.len();
        let found: Vec<CodeCandidate> = found.into_iter().take(q.limit).map(|f| f.2).collect();
        let head_text = indexed.map(|w| w.head).unwrap_or_default();
        q.history = false;
        let hits = self.present(repo, &q, &git, &scope, found, &head_text)?;
        Ok(FindAnswer {
            workstream: head.workstream,
            hits,
            total,
            notes: Vec::new(),
        })
    }
}
