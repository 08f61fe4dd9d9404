//! The order of `weft code find`: how well a query names a symbol.

use super::text::normalised;
use super::{Symbol, own_name};
use crate::words;

/// How a symbol answers a query, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Its name is the query, in any spelling.
    Exact,
    /// Its name begins with the query.
    Prefix,
    /// Every word of the query is in the name.
    Name,
    /// Every word is in name and signature.
    Signature,
    /// Every word is in name, signature and the first doc line.
    Doc,
    /// At least half of several words are there.
    Some,
}

/// A query as `find` reads it.
#[derive(Clone, Debug)]
pub struct FindQuery {
    /// The whole query as a name.
    pub name: String,
    /// Its words; stop words left out unless there are no others.
    pub words: Vec<String>,
    /// Whether it is more than one name: then some of its words are better than nothing.
    several: bool,
}

impl FindQuery {
    /// Reads a query.
    pub fn new(query: &str) -> Self {
        let query = query.trim();
        // `path::Name`, `Type::method` and `Type#method` are written too.
        let name = query
            .rsplit_once("::")
            .map_or(query, |(a, b)| if a.contains('/') { b } else { query });
        Self {
            name: normalised(&name.replace("::", ".").replace('#', ".").replace("()", "")),
            words: words::query_words(query),
            several: query.split_whitespace().nth(1).is_some(),
        }
    }

    /// How a symbol answers, and how many of the words it has; `None` = not at all.
    pub fn judge(&self, s: &Symbol) -> Option<(Tier, usize)> {
        let own = normalised(own_name(&s.name));
        let all = self.words.len();
        if !self.name.is_empty() {
            if own == self.name || normalised(&s.name) == self.name {
                return Some((Tier::Exact, all));
            }
            if own.starts_with(&self.name) {
                return Some((Tier::Prefix, all));
            }
        }
        if all == 0 {
            return None;
        }
        let mut found = vec![false; all];
        let mut look = |text: &str| {
            words::for_each(text, |w| {
                if let Some(i) = self.words.iter().position(|q| q == w) {
                    found[i] = true;
                }
            });
            found.iter().filter(|f| **f).count()
        };
        if look(&s.name) == all {
            return Some((Tier::Name, all));
        }
        if look(&s.signature) == all {
            return Some((Tier::Signature, all));
        }
        match look(&s.doc) {
            n if n == all => Some((Tier::Doc, all)),
            n if self.several && n * 2 >= all && n > 0 => Some((Tier::Some, n)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Kind;

    fn symbol(name: &str, signature: &str, doc: &str) -> Symbol {
        Symbol {
            name: name.into(),
            kind: Kind::Function,
            line: 1,
            end_line: 1,
            start: 0,
            end: 0,
            signature: signature.into(),
            doc: doc.into(),
            more_doc: String::new(),
            exported: true,
        }
    }

    #[test]
    fn tiers() {
        let q = FindQuery::new("add to cart");
        let tier = |n, s, d| q.judge(&symbol(n, s, d)).map(|t| t.0);
        assert_eq!(tier("addToCart", "", ""), Some(Tier::Exact));
        assert_eq!(tier("Shop.add_to_cart", "", ""), Some(Tier::Exact));
        assert_eq!(tier("addToCartNow", "", ""), Some(Tier::Prefix));
        assert_eq!(tier("cartAdder.add", "", ""), Some(Tier::Name));
        assert_eq!(tier("add", "fn add(c: Cart)", ""), Some(Tier::Signature));
        assert_eq!(tier("add", "", "Adds to the cart."), Some(Tier::Doc));
        assert_eq!(tier("add", "", ""), Some(Tier::Some));
        assert_eq!(tier("x", "", ""), None);
        // The parts of one name are no words of their own.
        assert!(
            FindQuery::new("ignoredHere")
                .judge(&symbol("notIgnored", "", ""))
                .is_none()
        );
        assert!(
            FindQuery::new("Cart::add()")
                .judge(&symbol("Cart.add", "", ""))
                .is_some_and(|t| t.0 == Tier::Exact)
        );
        assert!(FindQuery::new("").judge(&symbol("x", "", "")).is_none());
    }
}
