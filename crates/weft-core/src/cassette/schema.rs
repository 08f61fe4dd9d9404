//! Request schemas of tools, made to stand by themselves: what they refer to in the document's components
//! goes along, and everything else is refused.

use serde_json::{Map, Value, json};

/// Where the components of an OpenAPI document are.
const COMPONENTS: &str = "#/components/schemas/";
/// Bytes of a bundled schema at most: it is put into a model's context.
const MAX_BUNDLE: usize = 256 << 10;

/// Whether a schema, through references to components, says `type: object`.
pub(super) fn is_object(schema: &Value, components: &Map<String, Value>) -> bool {
    let mut at = schema;
    // A chain longer than the components is a circle.
    for _ in 0..=components.len() {
        if at
            .get("type")
            .is_some_and(|t| t == "object" || *t == json!(["object"]))
        {
            return true;
        }
        let Some(name) = at
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|r| r.strip_prefix(COMPONENTS))
        else {
            return false;
        };
        let Some(next) = components.get(&unescape(name)) else {
            return false;
        };
        at = next;
    }
    false
}

/// A name in a JSON pointer (RFC 6901) as it is in the object.
fn unescape(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}

/// The schema with all components that it refers to under `$defs`, its root an object.
///
/// # Errors
/// A reference that leads out of the document or nowhere, a schema that is none, a default that its schema
/// refuses.
pub(super) fn bundle(
    schema: &Value,
    components: &Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let mut root = schema.clone();
    let mut wanted: Vec<String> = Vec::new();
    rewrite(&mut root, &mut wanted, false)?;
    let mut defs = Map::new();
    let mut next = 0;
    while next < wanted.len() {
        let name = wanted[next].clone();
        next += 1;
        let mut c = components
            .get(&name)
            .ok_or_else(|| format!("the schema refers to {COMPONENTS}{name}, which is not there"))?
            .clone();
        rewrite(&mut c, &mut wanted, false)?;
        defs.insert(name, c);
    }
    let Value::Object(mut o) = root else {
        return Err("the schema is no object".into());
    };
    o.insert("type".into(), json!("object"));
    if !defs.is_empty() {
        if o.contains_key("$defs") {
            return Err("the schema has $defs of its own beside references to components".into());
        }
        o.insert("$defs".into(), Value::Object(defs));
    }
    let bundled = Value::Object(o);
    if bundled.to_string().len() > MAX_BUNDLE {
        return Err(format!("the schema is larger than {MAX_BUNDLE} bytes"));
    }
    check(&bundled)?;
    match bundled {
        Value::Object(o) => Ok(o),
        _ => Err("the schema is no object".into()),
    }
}

/// Whether the members of what stands under a key are names of the author's; `None` = it is data, no schema.
fn below(key: &str, named: bool) -> Option<bool> {
    match key {
        _ if named => Some(false),
        "default" | "const" | "enum" | "example" | "examples" => None,
        "properties" | "patternProperties" | "$defs" | "dependentSchemas" => Some(true),
        _ => Some(false),
    }
}

/// Turns references to components into references to `$defs` and notes their names. `named` = the members
/// are names of the author's and no keywords.
fn rewrite(v: &mut Value, wanted: &mut Vec<String>, named: bool) -> Result<(), String> {
    match v {
        Value::Object(o) => {
            for (k, v) in o.iter_mut() {
                if !named && matches!(k.as_str(), "$ref" | "$dynamicRef") {
                    let Some(r) = v.as_str() else {
                        return Err(format!("{k} is no text"));
                    };
                    if let Some(name) = r.strip_prefix(COMPONENTS) {
                        let name = unescape(name);
                        if name.contains('/') {
                            return Err(format!("the reference {r:?} leads into a component"));
                        }
                        *v = json!(format!("#/$defs/{}", name.replace('~', "~0")));
                        if !wanted.contains(&name) {
                            wanted.push(name);
                        }
                    } else if !r.starts_with("#/$defs/") && r != "#" {
                        return Err(format!(
                            "the reference {r:?} is not to a component of the document"
                        ));
                    }
                    continue;
                }
                let Some(names) = below(k, named) else {
                    continue;
                };
                rewrite(v, wanted, names)?;
            }
        }
        Value::Array(a) => {
            for v in a {
                rewrite(v, wanted, false)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Whether the whole is a schema, and each default one that its schema takes.
fn check(bundled: &Value) -> Result<(), String> {
    let build = |s: &Value| {
        jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .build(s)
            .map_err(|e| format!("the schema is none: {e}"))
    };
    build(bundled)?;
    let mut defaults = Vec::new();
    collect(bundled, false, &mut defaults);
    for (schema, default) in defaults {
        let mut s = schema.clone();
        if let (Some(defs), Value::Object(o)) = (bundled.get("$defs"), &mut s) {
            o.entry("$defs").or_insert_with(|| defs.clone());
        }
        build(&s)?
            .validate(default)
            .map_err(|e| format!("a default is not what its schema takes: {e}"))?;
    }
    Ok(())
}

/// All schemas with a default.
fn collect<'a>(v: &'a Value, named: bool, out: &mut Vec<(&'a Value, &'a Value)>) {
    match v {
        Value::Object(o) => {
            if !named && let Some(d) = o.get("default") {
                out.push((v, d));
            }
            for (k, v) in o {
                let Some(names) = below(k, named) else {
                    continue;
                };
                collect(v, names, out);
            }
        }
        Value::Array(a) => a.iter().for_each(|v| collect(v, false, out)),
        _ => {}
    }
}
