//! What a call cost, by a price table that is part of the program.

use crate::block::Usage;

/// US dollars per million tokens: input, output, cache read, cache write.
type Price = (f64, f64, f64, f64);

const PRICES: [(&[&str], Price); 26] = [
    (
        &[
            "claude-opus-5",
            "claude-opus-4.8",
            "claude-opus-4.7",
            "claude-opus-4.6",
            "claude-opus-4.5",
        ],
        (5.0, 25.0, 0.5, 6.25),
    ),
    (&["claude-fable-5"], (10.0, 50.0, 1.0, 12.5)),
    (
        &["claude-opus-4.1", "claude-opus-4", "claude-3-opus"],
        (15.0, 75.0, 1.5, 18.75),
    ),
    (
        &[
            "claude-sonnet-5",
            "claude-sonnet-4.6",
            "claude-sonnet-4.5",
            "claude-sonnet-4",
            "claude-sonnet-3.7",
            "claude-3.5-sonnet",
        ],
        (3.0, 15.0, 0.3, 3.75),
    ),
    (
        &["claude-haiku-4.5", "claude-haiku-4.6"],
        (1.0, 5.0, 0.1, 1.25),
    ),
    (&["claude-3.5-haiku"], (0.8, 4.0, 0.08, 1.0)),
    (&["claude-3-haiku"], (0.25, 1.25, 0.03, 0.3)),
    (&["gpt-4o"], (2.5, 10.0, 1.25, 2.5)),
    (&["gpt-4o-mini"], (0.15, 0.6, 0.075, 0.15)),
    (&["gpt-4.1"], (2.0, 8.0, 0.5, 2.0)),
    (&["gpt-4.1-mini"], (0.4, 1.6, 0.1, 0.4)),
    (&["gpt-4.1-nano"], (0.1, 0.4, 0.025, 0.1)),
    (&["o3"], (2.0, 8.0, 0.5, 2.0)),
    (&["o3-mini"], (1.1, 4.4, 0.55, 1.1)),
    (&["o4-mini"], (1.1, 4.4, 0.275, 1.1)),
    (&["o1"], (15.0, 60.0, 7.5, 15.0)),
    (&["gpt-5.6-sol"], (5.0, 30.0, 0.5, 6.25)),
    (&["gpt-5.6-terra"], (2.5, 15.0, 0.25, 3.125)),
    (&["gpt-5.6-luna"], (1.0, 6.0, 0.1, 1.25)),
    (&["gpt-5.5"], (5.0, 30.0, 0.5, 5.0)),
    (&["gpt-5.4"], (2.5, 15.0, 0.25, 2.5)),
    (
        &["gpt-5.3-codex", "gpt-5.2-codex"],
        (1.75, 14.0, 0.175, 1.75),
    ),
    (&["gpt-5.1-codex", "gpt-5-codex"], (1.25, 10.0, 0.125, 1.25)),
    (&["codex-mini-latest"], (1.5, 6.0, 0.375, 1.5)),
    (&["deepseek-r1"], (0.55, 2.19, 0.14, 0.0)),
    (&[], (0.0, 0.0, 0.0, 0.0)),
];

const DASHED: [&str; 13] = [
    "-5-6", "-5-5", "-5-4", "-5-3", "-5-2", "-5-1", "-4-8", "-4-7", "-4-6", "-4-5", "-4-1", "-3-7",
    "-3-5",
];

/// A model name without date and variant, versions with a dot: the key of the price table.
pub fn normalize_model(model: &str) -> String {
    let mut m = model.trim().to_lowercase();
    if let Some(s) = m.strip_suffix("[1m]") {
        m = s.to_owned();
    }
    if let Some(s) = strip_date(&m, "dddddddd") {
        m = s;
    }
    if let Some(s) = strip_date(&m, "dddd-dd-dd") {
        m = s;
    }
    for dashed in DASHED {
        let dotted = format!("{}.{}", &dashed[..2], &dashed[3..]);
        m = m.replace(dashed, &dotted);
    }
    m
}

/// Drops `-` and a date of the given shape from the end (`d` stands for a digit).
fn strip_date(model: &str, shape: &str) -> Option<String> {
    let at = model.len().checked_sub(shape.len() + 1)?;
    let tail = model.get(at..)?.strip_prefix('-')?;
    let fits = tail.bytes().zip(shape.bytes()).all(|(c, s)| {
        if s == b'd' {
            c.is_ascii_digit()
        } else {
            c == s
        }
    });
    fits.then(|| model[..at].to_owned())
}

fn price(model: &str) -> Option<Price> {
    let find = |name: &str| {
        PRICES
            .iter()
            .find(|(names, _)| names.contains(&name))
            .map(|(_, p)| *p)
    };
    find(&normalize_model(model)).or_else(|| find(model))
}

/// Cost of one call, US dollars; 0 for a model that is not in the table.
pub fn cost_usd(model: &str, usage: &Usage) -> f64 {
    let Some((input, output, read, write)) = price(model) else {
        return 0.0;
    };
    let (cc, cr) = (
        usage.cache_creation_input_tokens as f64,
        usage.cache_read_input_tokens as f64,
    );
    let fresh = (usage.prompt_tokens as f64 - cc - cr).max(0.0);
    (fresh * input + cc * write + cr * read + usage.completion_tokens as f64 * output) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_names_are_normalized_before_they_are_priced() {
        assert_eq!(normalize_model("Claude-Opus-4-6[1m]"), "claude-opus-4.6");
        assert_eq!(
            normalize_model("claude-3-5-haiku-20241022"),
            "claude-3.5-haiku"
        );
        assert_eq!(normalize_model("gpt-4o-2024-08-06"), "gpt-4o");
        let u = Usage {
            prompt_tokens: 1_000_000,
            completion_tokens: 100_000,
            cache_read_input_tokens: 400_000,
            cache_creation_input_tokens: 100_000,
            ..Usage::default()
        };
        let want = 0.5 * 3.0 + 0.1 * 3.75 + 0.4 * 0.3 + 0.1 * 15.0;
        assert!((cost_usd("claude-sonnet-4-5-20250929", &u) - want).abs() < 1e-9);
        assert_eq!(cost_usd("claude-3-7-sonnet-20250219", &u), 0.0);
        assert_eq!(cost_usd("llama", &u), 0.0);
    }
}
