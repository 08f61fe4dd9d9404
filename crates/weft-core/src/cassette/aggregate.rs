//! One OpenAPI document of the read API and of all cassettes.

use serde_json::{Map, Value};

use super::Document;

/// Merges the documents of cassettes, each under the name of its own, into the read API's. The same
/// documents give the same bytes.
///
/// # Errors
/// Two documents that declare one path.
pub fn aggregate<'a>(
    core: Value,
    cassettes: impl IntoIterator<Item = &'a Document>,
) -> Result<Value, String> {
    let mut all = core;
    let mut sorted: Vec<&Document> = cassettes.into_iter().collect();
    sorted.sort_by(|a, b| a.manifest.name.cmp(&b.manifest.name));
    for d in sorted {
        let prefix = format!("{}_", d.manifest.name.replace('-', "_"));
        // A whole with parts of 3.1 is one of 3.1.
        let version = d.public["openapi"].as_str().unwrap_or_default();
        if all["openapi"].as_str().unwrap_or_default() < version {
            all["openapi"] = Value::String(version.to_owned());
        }
        let mut doc = d.public.clone();
        rename(&mut doc, &prefix);
        if let Some(paths) = doc.get_mut("paths").and_then(Value::as_object_mut) {
            for (path, item) in paths.iter_mut() {
                operations(path, item, &prefix);
            }
            let to = member(&mut all, "paths");
            for (path, item) in std::mem::take(paths) {
                if to.contains_key(&path) {
                    return Err(format!("path {path:?} is declared twice"));
                }
                to.insert(path, item);
            }
        }
        if let Some(Value::Object(components)) = doc.get_mut("components").map(Value::take) {
            for (kind, named) in components {
                let Value::Object(named) = named else {
                    continue;
                };
                let to = member(member_value(&mut all, "components"), &kind);
                for (name, c) in named {
                    to.insert(format!("{prefix}{name}"), c);
                }
            }
        }
    }
    Ok(all)
}

fn member_value<'a>(v: &'a mut Value, name: &str) -> &'a mut Value {
    if !v.is_object() {
        *v = Value::Object(Map::new());
    }
    &mut v[name]
}

/// A member that is an object, made where it is not there.
fn member<'a>(v: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    let m = member_value(v, name);
    if !m.is_object() {
        *m = Value::Object(Map::new());
    }
    match m {
        Value::Object(o) => o,
        _ => unreachable!("made an object above"),
    }
}

/// Puts the prefix before the names that references to components have.
fn rename(v: &mut Value, prefix: &str) {
    const COMPONENTS: &str = "#/components/";
    match v {
        Value::Object(o) => {
            for (k, v) in o.iter_mut() {
                if k == "$ref"
                    && let Some(rest) = v.as_str().and_then(|r| r.strip_prefix(COMPONENTS))
                    && let Some((kind, name)) = rest.split_once('/')
                {
                    *v = Value::String(format!("{COMPONENTS}{kind}/{prefix}{name}"));
                } else if k == "mapping" {
                    // The mapping of a discriminator: values are references or bare names.
                    for target in v.as_object_mut().into_iter().flat_map(Map::values_mut) {
                        let Some(t) = target.as_str() else { continue };
                        let renamed = match t.strip_prefix("#/components/schemas/") {
                            Some(name) => format!("#/components/schemas/{prefix}{name}"),
                            None if t.contains(['/', '#', ':']) => continue,
                            None => format!("{prefix}{t}"),
                        };
                        *target = Value::String(renamed);
                    }
                } else if !matches!(
                    k.as_str(),
                    "example" | "examples" | "default" | "enum" | "const"
                ) {
                    rename(v, prefix);
                }
            }
        }
        Value::Array(a) => a.iter_mut().for_each(|v| rename(v, prefix)),
        _ => {}
    }
}

/// Puts the prefix before operation ids, and the names of security schemes; an operation without an id
/// gets one of its method and path.
fn operations(path: &str, item: &mut Value, prefix: &str) {
    for (method, op) in item.as_object_mut().into_iter().flatten() {
        let Some(op) = op.as_object_mut() else {
            continue;
        };
        if !op.contains_key("responses") {
            continue;
        }
        let id = match op.get("operationId").and_then(Value::as_str) {
            Some(id) => id.to_owned(),
            None => {
                let words = path
                    .split(|c: char| !c.is_ascii_alphanumeric())
                    .filter(|w| !w.is_empty());
                // `/v1/cassettes/<name>` says nothing here: the prefix has the name.
                let skipped = 2 + prefix.trim_end_matches('_').split('_').count();
                std::iter::once(method.as_str())
                    .chain(words.skip(skipped))
                    .collect::<Vec<_>>()
                    .join("_")
            }
        };
        op.insert("operationId".into(), Value::String(format!("{prefix}{id}")));
        for requirement in op
            .get_mut("security")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Value::Object(o) = requirement {
                *o = std::mem::take(o)
                    .into_iter()
                    .map(|(name, scopes)| (format!("{prefix}{name}"), scopes))
                    .collect();
            }
        }
    }
}
