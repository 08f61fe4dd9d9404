//! Secrets out of text before anything is written or embedded.
//!
//! A table of patterns, each with a value of its own that a test finds. A secret is replaced by
//! `[REDACTED:<name>]`, which says what stood there and nothing else.

use std::sync::LazyLock;

use regex::{Captures, Regex, RegexSet};
use serde_json::Value;

/// One kind of secret. Where the pattern has a group, only the group is the secret.
struct Rule {
    name: &'static str,
    pattern: &'static str,
    /// A made-up value in two halves, so that no scanner takes this file for a leak.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "each rule is tested by its own sample")
    )]
    sample: (&'static str, &'static str),
}

const fn rule(name: &'static str, pattern: &'static str, a: &'static str, b: &'static str) -> Rule {
    Rule {
        name,
        pattern,
        sample: (a, b),
    }
}

const RULES: [Rule; 27] = [
    rule(
        "private-key",
        r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\z)",
        "-----BEGIN RSA PRIV",
        "ATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    ),
    rule(
        "aws-access-key-id",
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b",
        "AKIA",
        "QYLPMN5HFIQR7XYA",
    ),
    rule(
        "aws-secret-key",
        r#"(?i:aws.{0,20}secret.{0,20}?[=:]\s*["']?)([A-Za-z0-9/+]{40})\b"#,
        "aws_secret_access_key = wJalrXUtnF",
        "EMI/K7MDENG/bPxRfiCYzEXAMPLEKE",
    ),
    rule(
        "anthropic-key",
        r"\bsk-ant-[A-Za-z0-9_-]{16,}",
        "sk-ant-",
        "api03-abcdefghijklmnop1234",
    ),
    rule(
        "openai-key",
        r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}",
        "sk-",
        "proj-abcdefghijklmnopqrst1234",
    ),
    rule(
        "github-token",
        r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{40,})",
        "ghp_",
        "abcdefghijklmnopqrstuvwxyz0123456789",
    ),
    rule(
        "gitlab-token",
        r"\bgl(?:pat|ptt|dt|rt|cbt)-[A-Za-z0-9_-]{20,}",
        "glpat-",
        "abcdefghij0123456789",
    ),
    rule(
        "slack-token",
        r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
        "xoxb-",
        "123456789012-abcdefghijkl",
    ),
    rule(
        "slack-webhook",
        r"\bhooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{20,}",
        "hooks.slack.com/serv",
        "ices/T00000000/B00000000/XXXXXXXXXXXX",
    ),
    rule(
        "stripe-key",
        r"\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}",
        "sk_live_",
        "abcdefghijklmnop1234",
    ),
    rule(
        "google-api-key",
        r"\bAIza[A-Za-z0-9_-]{35}",
        "AIza",
        "SyA1234567890abcdefghijklmnopqrstuv",
    ),
    rule(
        "google-oauth-token",
        r"\bya29\.[A-Za-z0-9_-]{20,}",
        "ya29.",
        "a0AfH6SMBxxxxxxxxxxxxxxx",
    ),
    rule(
        "npm-token",
        r"\bnpm_[A-Za-z0-9]{36}\b",
        "npm_",
        "abcdefghijklmnopqrstuvwxyz0123456789",
    ),
    rule(
        "pypi-token",
        r"\bpypi-[A-Za-z0-9_-]{50,}",
        "pypi-",
        "AgEIcHlwaS5vcmcCJGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6",
    ),
    rule(
        "crates-token",
        r"\bcio[A-Za-z0-9]{32}\b",
        "cio",
        "abcdefghijklmnopqrstuvwxyz012345",
    ),
    rule(
        "huggingface-token",
        r"\bhf_[A-Za-z0-9]{30,}",
        "hf_",
        "abcdefghijklmnopqrstuvwxyz012345",
    ),
    rule(
        "sendgrid-key",
        r"\bSG\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}",
        "SG.",
        "abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuv0123",
    ),
    rule(
        "digitalocean-token",
        r"\bdo[opr]_v1_[a-f0-9]{64}\b",
        "dop_v1_",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    ),
    rule(
        "telegram-token",
        r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}\b",
        "123456789:AA",
        "abcdefghijklmnopqrstuvwxyz0123456",
    ),
    rule(
        "azure-key",
        r"(?i:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{40,}=*)",
        "AccountKey=",
        "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ==",
    ),
    rule(
        "jwt",
        r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
        "eyJhbGciOiJIUzI1NiJ9.",
        "eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w",
    ),
    rule(
        "weft-token",
        r"\bweft_[a-z]+_[A-Za-z0-9]{32,}",
        "weft_read_",
        "abcdefghijklmnopqrstuvwxyz0123456789",
    ),
    rule(
        "authorization",
        r"(?i:authorization:\s*(?:bearer|basic|token)\s+)([A-Za-z0-9._~+/=-]{8,})",
        "Authorization: Bearer ",
        "abcdef0123456789",
    ),
    rule(
        "url-password",
        r#"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@"']{0,64}:([^\s/@"']{3,128})@"#,
        "postgres://app:hun",
        "ter2pass@db.internal/app",
    ),
    rule(
        "api-key-header",
        r"(?i:x-api-key|api-key|x-auth-token):\s*([A-Za-z0-9._~+/=-]{8,})",
        "x-api-key: ",
        "abcdef0123456789",
    ),
    rule(
        "env-secret",
        r#"\b[A-Z0-9_]*(?:PASSWORD|PASSWD|SECRET|TOKEN|API_KEY|APIKEY|PRIVATE_KEY)[A-Z0-9_]*=["']?([^\s"'$<>(){}\[\];|&]{6,})"#,
        "DB_PASSWORD=",
        "correct-horse",
    ),
    rule(
        "assigned-secret",
        r#"(?i:\b(?:password|passwd|secret|client_secret|api_?key|access_?token|auth_?token|refresh_?token|private_?key)["']?\s*[:=]\s*)["']([^\s"'$<>{}]{8,})["']"#,
        "password: \"corr",
        "ect-horse\"",
    ),
];

/// Object members whose string value is a secret whatever it looks like.
const SECRET_KEYS: [&str; 11] = [
    "password",
    "passwd",
    "secret",
    "client_secret",
    "api_key",
    "apikey",
    "access_token",
    "refresh_token",
    "auth_token",
    "private_key",
    "authorization",
];

/// Members that hold opaque provider bytes, which must come back as they are.
const OPAQUE_KEYS: [&str; 3] = ["signature", "thinking_signature", "encrypted_content"];

struct Compiled {
    set: RegexSet,
    rules: Vec<(Regex, &'static str)>,
}

static COMPILED: LazyLock<Compiled> = LazyLock::new(|| {
    // The patterns are constants; `every_rule_finds_its_sample` compiles each of them.
    let build = |p: &str| Regex::new(p).unwrap_or_else(|e| unreachable!("{e}"));
    Compiled {
        set: RegexSet::new(RULES.iter().map(|r| r.pattern)).unwrap_or_else(|e| unreachable!("{e}")),
        rules: RULES.iter().map(|r| (build(r.pattern), r.name)).collect(),
    }
});

/// The text without secrets, or `None` where it holds none.
pub fn redact(text: &str) -> Option<String> {
    let compiled = &*COMPILED;
    if text.len() < 8 {
        return None;
    }
    let hits = compiled.set.matches(text);
    if !hits.matched_any() {
        return None;
    }
    let mut out = text.to_owned();
    for i in hits.iter() {
        let (regex, name) = &compiled.rules[i];
        let mark = format!("[REDACTED:{name}]");
        let replaced = regex.replace_all(&out, |c: &Captures<'_>| {
            let all = c.get(0).map_or("", |m| m.as_str());
            match (c.get(0), c.get(1)) {
                (_, Some(secret)) if secret.as_str().starts_with("[REDACTED") => all.to_owned(),
                (Some(whole), Some(secret)) => {
                    let (from, to) = (secret.start() - whole.start(), secret.end() - whole.start());
                    format!("{}{mark}{}", &all[..from], &all[to..])
                }
                _ => mark.clone(),
            }
        });
        out = replaced.into_owned();
    }
    (out != text).then_some(out)
}

/// Whether a short text could hold a secret: a cheap look that saves building the patterns. Never false
/// where [`redact`] would find something.
pub fn may_hold_secret(text: &str) -> bool {
    let mut run = 0;
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'/' | b'=' | b'.') {
            run += 1;
            if run >= 16 {
                return true;
            }
        } else {
            run = 0;
        }
    }
    let lower = text.to_ascii_lowercase();
    ["pass", "secret", "token", "key", "auth", "://"]
        .iter()
        .any(|w| lower.contains(w))
}

/// As [`redact`], for a document of many lines: only lines that could hold a secret are looked at, each with
/// the one behind it, and the whole where a key is written over many lines.
pub fn redact_lines(text: &str) -> Option<String> {
    if text.contains("-----BEGIN") {
        return redact(text);
    }
    let mut out = String::with_capacity(text.len());
    let (mut chunk, mut changed, mut open) = (String::new(), false, false);
    let mut close = |chunk: &mut String, out: &mut String| {
        match redact(chunk) {
            Some(clean) => {
                changed = true;
                out.push_str(&clean);
            }
            None => out.push_str(chunk),
        }
        chunk.clear();
    };
    for line in text.split_inclusive('\n') {
        let suspect = may_hold_secret(line);
        if suspect || open {
            chunk.push_str(line);
        } else {
            close(&mut chunk, &mut out);
            out.push_str(line);
        }
        open = suspect;
    }
    close(&mut chunk, &mut out);
    changed.then_some(out)
}

/// Redacts every string of a JSON value in place; returns how many were changed.
pub fn redact_value(value: &mut Value) -> usize {
    match value {
        Value::String(s) => match redact(s) {
            Some(clean) => {
                *s = clean;
                1
            }
            None => 0,
        },
        Value::Array(items) => items.iter_mut().map(redact_value).sum(),
        Value::Object(o) => {
            let mut changed = 0;
            for (key, v) in o.iter_mut() {
                if OPAQUE_KEYS.contains(&key.as_str()) {
                    continue;
                }
                match v {
                    Value::String(s)
                        if !s.is_empty()
                            && !s.starts_with("[REDACTED")
                            && SECRET_KEYS.iter().any(|k| key.eq_ignore_ascii_case(k)) =>
                    {
                        *s = format!("[REDACTED:{}]", key.to_ascii_lowercase());
                        changed += 1;
                    }
                    v => changed += redact_value(v),
                }
            }
            changed
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_redacted_as_the_whole_is() {
        let key = format!("sk-ant-api03-{}", "a1B2".repeat(24));
        let text =
            format!("# Title\n\nUse {key} here.\nNothing.\npassword:\n  hunter2hunter2\nEnd\n");
        assert_eq!(redact_lines(&text), redact(&text));
        assert!(!redact_lines(&text).expect("changed").contains(&key));
        assert_eq!(
            redact_lines("# Title\n\nWords only, of a usual length.\n"),
            None
        );
    }
    use serde_json::json;

    #[test]
    fn every_rule_finds_its_sample() {
        for r in &RULES {
            let secret = format!("{}{}", r.sample.0, r.sample.1);
            let text = format!("before {secret} after");
            assert!(may_hold_secret(&text), "{}", r.name);
            let clean = redact(&text).unwrap_or_else(|| panic!("{} finds nothing", r.name));
            assert!(
                clean.contains(&format!("[REDACTED:{}]", r.name)),
                "{}: {clean}",
                r.name
            );
            assert!(!clean.contains(r.sample.1), "{}: {clean}", r.name);
            assert!(
                clean.starts_with("before ") && clean.ends_with(" after"),
                "{clean}"
            );
            assert_eq!(redact(&clean), None, "{} is not idempotent", r.name);
        }
    }

    #[test]
    fn code_and_prose_stay() {
        for text in [
            "let password = read_password()?;",
            "the secret is to rest",
            "max_tokens: 4096, token_count = 12",
            "https://example.com:8080/a@b",
            "sk-learn and sk_test are names",
            "TOKEN=$(cat file)",
            "fn api_key(&self) -> &str",
            "password: ''",
        ] {
            assert_eq!(redact(text), None, "{text}");
        }
    }

    #[test]
    fn values_are_redacted_by_member_name_too() {
        let mut v = json!({"input": {"Password": "hunter2", "cmd": ["x", "API_TOKEN=abcdefgh"]},
            "signature": format!("ghp_{}", "a".repeat(36)), "password": "", "n": 1});
        assert_eq!(redact_value(&mut v), 2);
        assert_eq!(v["input"]["Password"], "[REDACTED:password]");
        assert_eq!(v["input"]["cmd"][1], "API_TOKEN=[REDACTED:env-secret]");
        assert!(v["signature"].as_str().expect("kept").starts_with("ghp_"));
        assert_eq!(redact_value(&mut v), 0);
    }
}
