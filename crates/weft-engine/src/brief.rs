//! A briefing: what was decided about the files at hand, and which decisions no longer fit their files.

use std::path::Path;

use weft_core::decision::{Decision, Status};

use crate::Decisions;
use crate::decisions::{DecisionError, Stale};
use crate::show::from_top;

/// Files that are looked at, at most: an answer about all of a repository is about nothing.
const MAX_FILES: usize = 200;

/// A decision that governs files at hand.
#[derive(Clone, Debug)]
pub struct Governing {
    /// It, with its text.
    pub decision: Decision,
    /// Which of the files, in the order asked.
    pub files: Vec<String>,
    /// Why it is stale.
    pub stale: Option<Stale>,
    /// Whether it only names the files.
    pub mentioned: bool,
}

/// What somebody should know before they start.
#[derive(Clone, Debug, Default)]
pub struct Briefing {
    /// The files that were looked at.
    pub files: Vec<String>,
    /// Decisions in force that govern them: those that govern most files first.
    pub governing: Vec<Governing>,
    /// Other decisions that are stale.
    pub stale: Vec<(Decision, Stale)>,
    /// Decisions in force in all.
    pub in_force: usize,
}

impl Decisions<'_> {
    /// The briefing for some files, as paths from a folder of the repository or from its top; `None` = for those
    /// that are being changed, which may have to be found out.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn briefing(
        &self,
        folder: &Path,
        files: Option<&[String]>,
    ) -> Result<Briefing, DecisionError> {
        let mut files = match files {
            None => self.changed_files(None).unwrap_or_default(),
            Some(given) => given
                .iter()
                .map(|f| {
                    let repo = self.repo.as_ref();
                    repo.and_then(|r| from_top(r, folder, f))
                        .unwrap_or_else(|| f.clone())
                })
                .collect(),
        };
        files.truncate(MAX_FILES);
        let (loaded, _) = self.current()?;
        let in_force: Vec<usize> = (0..loaded.all.len())
            .filter(|i| matches!(loaded.all[*i].status, Status::Accepted | Status::Proposed))
            .collect();
        let mut stale = self.stale(&loaded, &in_force)?;
        let mut governing: Vec<(usize, Vec<String>)> = Vec::new();
        for (file, found) in files.iter().zip(self.for_files(&loaded, &files)) {
            for i in found.into_iter().filter(|i| in_force.contains(i)) {
                match governing.iter_mut().find(|(k, _)| *k == i) {
                    Some((_, of)) => of.push(file.clone()),
                    None => governing.push((i, vec![file.clone()])),
                }
            }
        }
        governing.sort_by_key(|(_, of)| std::cmp::Reverse(of.len()));
        let governing = governing
            .into_iter()
            .map(|(i, of)| {
                let decision = self.with_text(&loaded, i)?;
                Ok(Governing {
                    mentioned: of.iter().all(|f| self.only_mentions(&decision, f)),
                    stale: stale.remove(&decision.id),
                    files: of,
                    decision,
                })
            })
            .collect::<Result<Vec<_>, DecisionError>>()?;
        let stale = in_force
            .iter()
            .filter_map(|i| {
                let d = &loaded.all[*i];
                Some((d.clone(), stale.remove(&d.id)?))
            })
            .collect();
        Ok(Briefing {
            files,
            governing,
            stale,
            in_force: in_force.len(),
        })
    }
}
