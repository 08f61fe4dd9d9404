//! An answer in both of its forms: for reading, and as an object that says the same.

use serde_json::Value;
use weft_core::code::budget;

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) structured: Value,
}

impl Answer {
    /// An answer that is read as the JSON of its object.
    pub(crate) fn of(structured: Value) -> Self {
        Self {
            text: structured.to_string(),
            structured,
        }
    }

    /// An answer of as many hits as the budget holds. `object` and `text` make it of so many hits and so many
    /// snippets; without a text it is read as JSON. Clients show a model the one or the other, so the
    /// dearer counts.
    pub(crate) fn fitted(
        hits: usize,
        tokens: usize,
        object: impl Fn(usize, usize) -> Value,
        text: impl Fn(usize, usize) -> Option<String>,
    ) -> Self {
        let dearer = |shown: usize, snippets: usize| {
            let json = object(shown, snippets).to_string();
            match text(shown, snippets) {
                Some(t) if t.len() > json.len() => t,
                _ => json,
            }
        };
        let (shown, snippets) = budget::fit(&dearer, hits, tokens);
        let structured = object(shown, snippets);
        match text(shown, snippets) {
            Some(text) => Self { text, structured },
            None => Self::of(structured),
        }
    }
}
