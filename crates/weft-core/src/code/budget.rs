//! Token budgets: how many tokens a text costs, and what of an answer fits.

/// Default budget of an answer, tokens.
pub const DEFAULT: usize = 800;

/// One hit as it would be printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The hit without its snippet.
    pub line: String,
    /// Its snippet, printed right behind; "" = none.
    pub snippet: String,
}

/// What of an answer fits: `header`, then pieces, each with its snippet while all snippets fit. To
/// fit, snippets go first, the last one first; then the last hits; the first hit always stays.
/// Returns how many hits stay, and how many of them keep their snippets.
pub fn fit(render: &dyn Fn(usize, usize) -> String, hits: usize, budget: usize) -> (usize, usize) {
    let cost = |shown: usize, snippets: usize| crate::code::tokens::count(&render(shown, snippets));
    if cost(hits, hits) <= budget {
        return (hits, hits);
    }
    if cost(hits, 0) <= budget {
        let (mut low, mut high) = (0, hits);
        while low + 1 < high {
            let mid = usize::midpoint(low, high);
            if cost(hits, mid) <= budget {
                low = mid
            } else {
                high = mid
            }
        }
        return (hits, low);
    }
    let (mut low, mut high) = (usize::from(hits > 0), hits);
    while low + 1 < high {
        let mid = usize::midpoint(low, high);
        if cost(mid, 0) <= budget {
            low = mid
        } else {
            high = mid
        }
    }
    (low, 0)
}
