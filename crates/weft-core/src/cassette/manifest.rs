//! The manifest of a cassette: the root extension `x-tapes-cassette` of its OpenAPI document.

use std::collections::BTreeSet;

use super::{CONTRACT, is_name};
use crate::hash::sha256_hex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A setting that a cassette takes from its deployment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Dotted snake-case name.
    #[serde(default)]
    pub key: String,
    /// Type, as written.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// Whether it has to be given.
    #[serde(default)]
    pub required: bool,
    /// Value where none is given.
    #[serde(default)]
    pub default: Option<Value>,
    /// Whether it must not be shown.
    #[serde(default)]
    pub secret: bool,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// Values that a string may have.
    #[serde(default, rename = "enum")]
    pub one_of: Vec<String>,
    /// Least value of a whole number.
    #[serde(default)]
    pub min: Option<i64>,
    /// Largest value of a whole number.
    #[serde(default)]
    pub max: Option<i64>,
}

/// The type of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigKind {
    /// Text.
    String,
    /// A whole number.
    Int,
    /// Yes or no.
    Bool,
    /// A Go duration such as `1m30s`.
    Duration,
    /// Text that holds JSON.
    Json,
}

impl ConfigKind {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Self::String,
            "int" => Self::Int,
            "bool" => Self::Bool,
            "duration" => Self::Duration,
            "json" => Self::Json,
            _ => return None,
        })
    }

    /// Whether a default is one of this type.
    fn fits(self, v: &Value) -> bool {
        match self {
            Self::String => v.is_string(),
            Self::Int => v.as_i64().is_some(),
            Self::Bool => v.is_boolean(),
            Self::Duration => v.as_str().is_some_and(is_go_duration),
            Self::Json => v
                .as_str()
                .is_some_and(|s| serde_json::from_str::<serde::de::IgnoredAny>(s).is_ok()),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Identity {
    name: String,
    version: String,
    display_name: String,
    description: String,
    license: String,
    homepage: String,
    image: String,
    port: Option<i64>,
    audience: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Depends {
    core: String,
    views: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Api {
    health: Option<String>,
    openapi: Option<String>,
    prefix_path: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    kind: String,
    cassette: Identity,
    depends: Option<Depends>,
    api: Api,
    tables: Vec<Table>,
    config: Vec<Config>,
    #[serde(rename = "x-source-digest")]
    source_digest: Option<String>,
}

/// A manifest that was admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Name: the path segment under which it is published.
    pub name: String,
    /// Release.
    pub version: String,
    /// Name for people; "" = none.
    pub display_name: String,
    /// What it is; "" = none.
    pub description: String,
    /// Clients that should offer it; empty = all.
    pub audience: Vec<String>,
    /// The contract that it needs and the views that it reads; `None` = it says nothing.
    pub depends: Option<(String, Vec<String>)>,
    /// Path before the name on the cassette's own listener, without slashes around it; "" = none.
    pub prefix_path: String,
    /// Tables of its own schema.
    pub tables: Vec<String>,
    /// Its settings.
    pub config: Vec<Config>,
    /// The manifest with its defaults, members and sets in order: what the digest is made of.
    canonical: String,
}

impl Manifest {
    /// Reads a manifest. Unknown members and members that are there twice are errors.
    ///
    /// # Errors
    /// All that is wrong with it, in one text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let raw: Raw = serde_json::from_str(text).map_err(|e| format!("manifest: {e}"))?;
        let problems = problems(&raw);
        if !problems.is_empty() {
            return Err(format!("manifest: {}", problems.join("; ")));
        }
        let canonical = canonical(&raw);
        let prefix = raw.api.prefix_path.as_deref().unwrap_or("api");
        Ok(Self {
            name: raw.cassette.name,
            version: raw.cassette.version,
            display_name: raw.cassette.display_name,
            description: raw.cassette.description,
            audience: raw.cassette.audience,
            depends: raw.depends.map(|d| (d.core, sorted(d.views))),
            prefix_path: prefix.trim_matches('/').to_owned(),
            tables: sorted(raw.tables.into_iter().map(|t| t.name).collect()),
            config: {
                let mut config = raw.config;
                config.sort_by(|a, b| a.key.cmp(&b.key));
                config
            },
            canonical,
        })
    }

    /// `sha256:` and the hash of the canonical form.
    pub fn digest(&self) -> String {
        format!("sha256:{}", sha256_hex(self.canonical.as_bytes()))
    }

    /// The canonical form, JSON (RFC 8785).
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// The path of the cassette on its own listener: `/api/<name>`, or `/<name>` without a prefix.
    pub fn local_prefix(&self) -> String {
        if self.prefix_path.is_empty() {
            format!("/{}", self.name)
        } else {
            format!("/{}/{}", self.prefix_path, self.name)
        }
    }
}

fn sorted(mut all: Vec<String>) -> Vec<String> {
    all.sort();
    all
}

/// A name of PostgreSQL that needs no quotes.
fn is_identifier(s: &str) -> bool {
    s.len() <= 63
        && s.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
        && s.bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
}

/// `v1`, `v2`, …
fn is_contract(s: &str) -> bool {
    s.strip_prefix('v').is_some_and(|n| {
        n.as_bytes()
            .first()
            .is_some_and(|c| (b'1'..=b'9').contains(c))
            && n.bytes().all(|c| c.is_ascii_digit())
    })
}

fn is_anchor(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("//")
        && !path.contains(['?', '#', '\\'])
        && !path.chars().any(|c| c.is_whitespace() || c.is_control())
        && !path.split('/').any(|s| matches!(s, "." | ".."))
}

fn is_prefix(text: &str) -> bool {
    text == "/"
        || text.trim_matches('/').split('/').all(|s| {
            let b = s.as_bytes();
            b.first()
                .is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
                && b.iter().all(|c| {
                    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'_')
                })
        })
}

/// `llm.api_key`: segments of lower snake case.
fn is_key(key: &str) -> bool {
    !key.is_empty()
        && key.split('.').all(|s| {
            let b = s.as_bytes();
            b.first().is_some_and(u8::is_ascii_lowercase)
                && b.iter()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == b'_')
        })
}

/// What Go's `time.ParseDuration` takes.
fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        let digits = number.bytes().filter(u8::is_ascii_digit).count();
        if digits == 0 || number.len() - digits > 1 {
            return false;
        }
        let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
        let Some(unit) = units
            .iter()
            .filter(|u| tail.starts_with(**u))
            .max_by_key(|u| u.len())
        else {
            return false;
        };
        rest = &tail[unit.len()..];
    }
    true
}

/// An absolute http or https address with a host.
fn is_web_address(text: &str) -> bool {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|r| {
        let host = r.split(['/', '?', '#']).next().unwrap_or_default();
        !host.is_empty() && !text.chars().any(|c| c.is_whitespace() || c.is_control())
    })
}

fn problems(m: &Raw) -> Vec<String> {
    let mut out = Vec::new();
    let mut say = |text: String| out.push(text);
    if m.kind != "cassette/v1alpha1" {
        say(format!(
            "kind {:?} is not supported, want \"cassette/v1alpha1\"",
            m.kind
        ));
    }
    let c = &m.cassette;
    if !is_name(&c.name) {
        say(format!(
            "cassette.name {:?} must be 2 to 32 lower-case letters, digits or inner dashes, and not public, tapes or pg_…",
            c.name
        ));
    }
    if c.version.trim().is_empty() {
        say("cassette.version is required".into());
    }
    if !c.homepage.is_empty() && !is_web_address(&c.homepage) {
        say(format!(
            "cassette.homepage {:?} must be an absolute http or https URL",
            c.homepage
        ));
    }
    if c.image.trim() != c.image {
        say("cassette.image must not have blanks around it".into());
    }
    match c.port {
        None if !c.image.is_empty() => say("cassette.image needs cassette.port".into()),
        Some(_) if c.image.is_empty() => say("cassette.port needs cassette.image".into()),
        Some(p) if !(1..=65_535).contains(&p) => {
            say(format!("cassette.port {p} must be 1 to 65535"))
        }
        _ => {}
    }
    for a in &c.audience {
        if a.len() > 63 || !is_key(&a.replace('-', "_")) {
            say(format!("cassette.audience {a:?} must be a lower-case name"));
        }
    }
    if let Some(d) = &m.depends {
        if !is_contract(&d.core) {
            say(format!(
                "depends.core {:?} must be a contract such as v1",
                d.core
            ));
        } else if d.core != CONTRACT {
            say(format!(
                "depends.core {:?} is not served here, only {CONTRACT}",
                d.core
            ));
        }
        let mut seen = BTreeSet::new();
        for v in &d.views {
            if v == "raw_turns" {
                say("depends.views must not name raw_turns".into());
            } else if !is_identifier(v) {
                say(format!("depends.views {v:?} must be an identifier"));
            }
            if !seen.insert(v) {
                say(format!("depends.views names {v:?} twice"));
            }
        }
    } else {
        say("depends.core is required".into());
    }
    for (name, path) in [("health", &m.api.health), ("openapi", &m.api.openapi)] {
        if let Some(p) = path
            && !is_anchor(p)
        {
            say(format!(
                "api.{name} {p:?} must be an absolute path without query, fragment and dot segments"
            ));
        }
    }
    if let Some(p) = &m.api.prefix_path
        && !is_prefix(p)
    {
        say(format!(
            "api.prefix_path {p:?} must be lower-case segments, or /"
        ));
    }
    let mut seen = BTreeSet::new();
    for t in &m.tables {
        if !is_identifier(&t.name) {
            say(format!("tables: {:?} must be an identifier", t.name));
        }
        if !seen.insert(&t.name) {
            say(format!("tables names {:?} twice", t.name));
        }
    }
    config_problems(&m.config, &mut out);
    if let Some(d) = &m.source_digest
        && !d.strip_prefix("sha256:").is_some_and(|h| {
            h.len() == 64
                && h.bytes()
                    .all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
        })
    {
        out.push("x-source-digest must be sha256: and 64 lower-case hexadecimal digits".into());
    }
    out
}

fn config_problems(config: &[Config], out: &mut Vec<String>) {
    let (mut keys, mut variables) = (BTreeSet::new(), BTreeSet::new());
    for c in config {
        let mut say = |text: &str| out.push(format!("config {:?}: {text}", c.key));
        if !is_key(&c.key) {
            say("the key must be dotted lower snake case");
        }
        let variable = c.key.to_uppercase().replace(['.', '-'], "_");
        if !keys.insert(&c.key) {
            say("is there twice");
        } else if !variables.insert(variable) {
            say("has the environment variable of another key");
        }
        let Some(kind) = ConfigKind::of(&c.kind) else {
            say("type must be string, int, bool, duration or json");
            continue;
        };
        if !c.one_of.is_empty() && kind != ConfigKind::String {
            say("enum is for strings only");
        }
        if c.one_of.iter().collect::<BTreeSet<_>>().len() != c.one_of.len() {
            say("enum names a value twice");
        }
        if (c.min.is_some() || c.max.is_some()) && kind != ConfigKind::Int {
            say("min and max are for int only");
        }
        if let (Some(min), Some(max)) = (c.min, c.max)
            && min > max
        {
            say("min is larger than max");
        }
        let Some(default) = &c.default else { continue };
        if c.secret {
            say("a secret must not have a default");
        }
        if !kind.fits(default) {
            say("the default does not fit the type");
            continue;
        }
        if let Some(s) = default.as_str()
            && !c.one_of.is_empty()
            && !c.one_of.iter().any(|o| o == s)
        {
            say("the default is not one of enum");
        }
        if let Some(n) = default.as_i64()
            && (c.min.is_some_and(|m| n < m) || c.max.is_some_and(|m| n > m))
        {
            say("the default is outside of min and max");
        }
    }
}

/// Puts a member where it says something.
fn put(o: &mut Map<String, Value>, name: &str, v: Value) {
    let empty = match &v {
        Value::Null | Value::Bool(false) => true,
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        _ => false,
    };
    if !empty {
        o.insert(name.into(), v);
    }
}

fn canonical(m: &Raw) -> String {
    let c = &m.cassette;
    let mut identity = Map::new();
    for (name, v) in [
        ("name", &c.name),
        ("version", &c.version),
        ("display_name", &c.display_name),
        ("description", &c.description),
        ("license", &c.license),
        ("homepage", &c.homepage),
        ("image", &c.image),
    ] {
        put(&mut identity, name, json!(v));
    }
    put(&mut identity, "port", json!(c.port));
    put(&mut identity, "audience", json!(sorted(c.audience.clone())));
    let prefix = m.api.prefix_path.as_deref().unwrap_or("api");
    let prefix = match prefix.trim_matches('/') {
        "" => "/",
        p => p,
    };
    let mut out = Map::new();
    put(&mut out, "kind", json!(m.kind));
    put(&mut out, "cassette", Value::Object(identity));
    put(
        &mut out,
        "api",
        json!({
            "health": m.api.health.as_deref().unwrap_or("/ping"),
            "openapi": m.api.openapi.as_deref().unwrap_or("/openapi"),
            "prefix_path": prefix,
        }),
    );
    if let Some(d) = &m.depends {
        let mut depends = Map::new();
        put(&mut depends, "core", json!(d.core));
        put(&mut depends, "views", json!(sorted(d.views.clone())));
        out.insert("depends".into(), Value::Object(depends));
    }
    let tables = sorted(m.tables.iter().map(|t| t.name.clone()).collect());
    let tables: Vec<Value> = tables.iter().map(|t| json!({"name": t})).collect();
    put(&mut out, "tables", json!(tables));
    let mut config: Vec<&Config> = m.config.iter().collect();
    config.sort_by(|a, b| a.key.cmp(&b.key));
    let config: Vec<Value> = config
        .iter()
        .map(|c| {
            let mut o = Map::new();
            put(&mut o, "key", json!(c.key));
            put(&mut o, "type", json!(c.kind));
            put(&mut o, "required", json!(c.required));
            if let Some(d) = &c.default {
                o.insert("default".into(), d.clone());
            }
            put(&mut o, "secret", json!(c.secret));
            put(&mut o, "description", json!(c.description));
            put(&mut o, "enum", json!(sorted(c.one_of.clone())));
            put(&mut o, "min", json!(c.min));
            put(&mut o, "max", json!(c.max));
            Value::Object(o)
        })
        .collect();
    put(&mut out, "config", json!(config));
    put(&mut out, "x-source-digest", json!(m.source_digest));
    serde_json_canonicalizer::to_string(&out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"{"kind":"cassette/v1alpha1","cassette":{"name":"summary","version":"1"},"depends":{"core":"v1"}}"#;

    fn with(change: impl FnOnce(&mut Value)) -> Result<Manifest, String> {
        let mut v: Value = serde_json::from_str(SMALL).expect("JSON");
        change(&mut v);
        Manifest::parse(&v.to_string())
    }

    #[test]
    fn defaults_are_part_of_the_canonical_form() {
        let m = Manifest::parse(SMALL).expect("manifest");
        assert_eq!(
            m.canonical(),
            r#"{"api":{"health":"/ping","openapi":"/openapi","prefix_path":"api"},"cassette":{"name":"summary","version":"1"},"depends":{"core":"v1"},"kind":"cassette/v1alpha1"}"#
        );
        let told = with(|v| v["api"] = json!({"prefix_path": "/api/"})).expect("manifest");
        assert_eq!(m.digest(), told.digest());
        assert_eq!(m.local_prefix(), "/api/summary");
        let bare = with(|v| v["api"] = json!({"prefix_path": "/"})).expect("manifest");
        assert_eq!(bare.local_prefix(), "/summary");
        let views = |a: &[&str]| {
            with(|v| v["depends"]["views"] = json!(a))
                .expect("manifest")
                .digest()
        };
        assert_eq!(views(&["a", "b"]), views(&["b", "a"]));
    }

    #[test]
    fn what_is_wrong_is_told_at_once() {
        for (change, says) in [
            (json!({"kind": "cassette/v1"}), "kind"),
            (json!({"extra": 1}), "unknown field"),
            (
                json!({"cassette": {"name": "x", "version": "1"}}),
                "cassette.name",
            ),
            (
                json!({"cassette": {"name": "pg_x", "version": "1"}}),
                "cassette.name",
            ),
            (
                json!({"cassette": {"name": "tapes", "version": "1"}}),
                "cassette.name",
            ),
            (
                json!({"cassette": {"name": "ab", "version": ""}}),
                "version",
            ),
            (
                json!({"cassette": {"name": "ab", "version": "1", "port": 80}}),
                "image",
            ),
            (
                json!({"cassette": {"name": "ab", "version": "1", "image": "x"}}),
                "port",
            ),
            (
                json!({"cassette": {"name": "ab", "version": "1", "image": "x", "port": 65_536}}),
                "65535",
            ),
            (
                json!({"cassette": {"name": "ab", "version": "1", "homepage": "ftp://x"}}),
                "homepage",
            ),
            (json!({"depends": {"core": "v2"}}), "not served"),
            (json!({"depends": {"core": "v01"}}), "contract"),
            (
                json!({"depends": {"core": "v1", "views": ["raw_turns"]}}),
                "raw_turns",
            ),
            (
                json!({"depends": {"core": "v1", "views": ["a", "a"]}}),
                "twice",
            ),
            (json!({"api": {"health": "/a/../b"}}), "api.health"),
            (json!({"api": {"openapi": "openapi"}}), "api.openapi"),
            (json!({"api": {"prefix_path": "A"}}), "prefix_path"),
            (json!({"tables": [{"name": "A"}]}), "identifier"),
            (
                json!({"config": [{"key": "A", "type": "string"}]}),
                "snake case",
            ),
            (
                json!({"config": [{"key": "a.b", "type": "int"}, {"key": "a_b", "type": "int"}]}),
                "environment",
            ),
            (
                json!({"config": [{"key": "a", "type": "float"}]}),
                "type must be",
            ),
            (
                json!({"config": [{"key": "a", "type": "int", "enum": ["x"]}]}),
                "enum",
            ),
            (
                json!({"config": [{"key": "a", "type": "int", "min": 2, "max": 1}]}),
                "larger",
            ),
            (
                json!({"config": [{"key": "a", "type": "string", "secret": true, "default": "x"}]}),
                "secret",
            ),
            (
                json!({"config": [{"key": "a", "type": "duration", "default": "5"}]}),
                "fit",
            ),
            (
                json!({"config": [{"key": "a", "type": "json", "default": "{"}]}),
                "fit",
            ),
            (json!({"x-source-digest": "sha256:AB"}), "x-source-digest"),
        ] {
            let e = with(|v| {
                for (k, c) in change.as_object().expect("object") {
                    v[k] = c.clone();
                }
            })
            .expect_err("refused");
            assert!(e.contains(says), "{change}: {e}");
        }
        let twice = SMALL.replace(r#""version":"1""#, r#""version":"1","version":"2""#);
        assert!(
            Manifest::parse(&twice)
                .expect_err("twice")
                .contains("duplicate")
        );
        let both = with(|v| {
            v["kind"] = json!("x");
            v["cassette"]["name"] = json!("X");
        });
        assert!(both.expect_err("two").contains("; "));
    }

    #[test]
    fn durations_are_those_of_go() {
        for good in ["0", "30s", "1h2m", "-1.5h", "+5ms", ".5s", "1µs"] {
            assert!(is_go_duration(good), "{good}");
        }
        for bad in ["", "5", "s", "1 s", "1d", "1..5s", "-"] {
            assert!(!is_go_duration(bad), "{bad}");
        }
    }
}
