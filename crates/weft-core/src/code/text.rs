//! What of a symbol is embedded and what is indexed by words.

use super::{Symbol, own_name};
use crate::project::cut_chars;

/// Characters of a body that are embedded.
pub const BODY_HEAD: usize = 700;

/// A name as it is looked up exactly: lower case, without `_`, `-` and blanks, so that
/// `add to cart`, `addToCart`, `add_to_cart` and `AddToCart` are one.
pub fn normalised(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-' | ' ' | '\t'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// The forms of a symbol's name that can be looked up.
pub fn exact_names(symbol: &Symbol) -> Vec<String> {
    let own = normalised(own_name(&symbol.name));
    let whole = normalised(&symbol.name);
    if own == whole {
        vec![own]
    } else {
        vec![own, whole]
    }
}

/// The path's words that say something: the file's stem and its folders.
fn path_words(path: &str) -> String {
    let stem = path.rsplit_once('.').map_or(path, |p| p.0);
    stem.replace(['/', '-', '_', '.'], " ")
}

/// The text that is embedded for a symbol: where it is, its name, how it is declared, what its
/// documentation says, and how its body begins.
pub fn embedding_text(path: &str, symbol: &Symbol, own_text: &str) -> String {
    let mut out = String::with_capacity(1_200);
    let place = path_words(path);
    // The last folders say more than the first.
    let words: Vec<&str> = place.split_whitespace().collect();
    for w in words.iter().skip(words.len().saturating_sub(4)) {
        out.push_str(w);
        out.push(' ');
    }
    out.push_str(&symbol.name.replace('.', " "));
    out.push('\n');
    if !symbol.doc.is_empty() {
        out.push_str(&symbol.doc);
        out.push(' ');
        out.push_str(&symbol.more_doc);
        out.push('\n');
    }
    out.push_str(&symbol.signature);
    out.push('\n');
    out.push_str(&cut_chars(own_text, BODY_HEAD));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Kind;

    #[test]
    fn names_in_all_spellings_are_one() {
        for n in [
            "add to cart",
            "addToCart",
            "add_to_cart",
            "AddToCart",
            "ADD_TO_CART",
            "add-to-cart",
        ] {
            assert_eq!(normalised(n), "addtocart");
        }
    }

    #[test]
    fn the_embedded_text_holds_what_a_question_may_name() {
        let s = Symbol {
            name: "Cart.addItem".into(),
            kind: Kind::Method,
            line: 1,
            end_line: 2,
            start: 0,
            end: 9,
            signature: "addItem(x)".into(),
            doc: "Puts it in.".into(),
            more_doc: String::new(),
            exported: true,
        };
        let t = embedding_text("src/shop/cart.ts", &s, "body();");
        for word in ["shop", "cart", "addItem", "Puts", "body"] {
            assert!(t.contains(word), "{word}");
        }
        assert_eq!(exact_names(&s), ["additem", "cart.additem"]);
    }
}
