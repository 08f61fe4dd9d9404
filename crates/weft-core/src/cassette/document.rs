//! The OpenAPI document of a cassette: what is admitted, how its paths are published, which operations are
//! tools.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::manifest::Manifest;
use super::{MAX_DOCUMENT, MAX_TOOLS, public_prefix, schema};
use crate::hash::sha256_hex;

/// Methods that an OpenAPI path item may have.
const METHODS: [&str; 8] = [
    "get", "put", "post", "delete", "options", "head", "patch", "trace",
];
const MANIFEST: &str = "x-tapes-cassette";
const TOOL: &str = "x-tapes-mcp";
/// Bytes of the name of a tool at most.
const MAX_TOOL_NAME: usize = 128;

/// An operation that is an MCP tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// `<cassette>.<tool>`.
    pub name: String,
    /// Summary of the operation; "" = none.
    pub title: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments; the root is an object.
    pub input_schema: Map<String, Value>,
    /// Hints as declared.
    pub annotations: Map<String, Value>,
    /// Path on the cassette's own listener.
    pub path: String,
}

/// A document that was admitted.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its manifest.
    pub manifest: Manifest,
    /// The document under the public paths.
    pub public: Value,
    /// The bytes of it that are served.
    pub bytes: Vec<u8>,
    /// `sha256:` and the hash of these bytes.
    pub digest: String,
    /// Its tools.
    pub tools: Vec<Tool>,
}

#[derive(Deserialize)]
struct Root<'a> {
    #[serde(borrow, rename = "x-tapes-cassette")]
    manifest: Option<&'a RawValue>,
}

impl Document {
    /// Reads a document as its cassette serves it.
    ///
    /// # Errors
    /// Why it is refused as a whole.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > MAX_DOCUMENT {
            return Err(format!("the document is larger than {MAX_DOCUMENT} bytes"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "the document is not UTF-8")?;
        let root: Root<'_> = serde_json::from_str(text)
            .map_err(|e| format!("the document is no JSON object: {e}"))?;
        let manifest = root
            .manifest
            .ok_or_else(|| format!("missing root extension {MANIFEST:?}"))?;
        let manifest = Manifest::parse(manifest.get())?;
        let mut doc: Value =
            serde_json::from_str(text).map_err(|e| format!("the document is no JSON: {e}"))?;
        let tools = publish(&mut doc, &manifest)?;
        let bytes = doc.to_string().into_bytes();
        Ok(Self {
            digest: format!("sha256:{}", sha256_hex(&bytes)),
            manifest,
            public: doc,
            bytes,
            tools,
        })
    }
}

/// Checks a document and rewrites its paths; its tools.
fn publish(doc: &mut Value, manifest: &Manifest) -> Result<Vec<Tool>, String> {
    let Some(root) = doc.as_object_mut() else {
        return Err("the document is no JSON object".into());
    };
    let version = root
        .get("openapi")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if !version.starts_with("3.") {
        return Err(format!("openapi {version:?} is not supported, want 3.x"));
    }
    if root.contains_key(TOOL) {
        return Err(format!(
            "{TOOL} belongs to an operation, not to the document"
        ));
    }
    // Requests go to the origin that was configured; an address in the document means nothing.
    root.remove("servers");
    let components = match root.get("components").and_then(|c| c.get("schemas")) {
        None => Map::new(),
        Some(Value::Object(o)) => o.clone(),
        Some(_) => return Err("components.schemas is no object".into()),
    };
    let paths = match root.remove("paths") {
        None => Map::new(),
        Some(Value::Object(o)) => o,
        Some(_) => return Err("paths is no object".into()),
    };
    let (local, public) = (manifest.local_prefix(), public_prefix(&manifest.name));
    let mut published = Map::new();
    let mut tools: Vec<Tool> = Vec::new();
    let mut ids = BTreeSet::new();
    for (path, mut item) in paths {
        let rest = path
            .strip_prefix(&local)
            .filter(|r| r.is_empty() || r.starts_with('/'))
            .ok_or_else(|| format!("path {path:?} is not under {local}"))?;
        if rest.split('/').any(|s| matches!(s, "." | "..")) || rest.contains(['?', '#', '\\']) {
            return Err(format!(
                "path {path:?} has dot segments, a query or a fragment"
            ));
        }
        let Some(o) = item.as_object_mut() else {
            return Err(format!("path {path:?} is no object"));
        };
        if o.contains_key(TOOL) {
            return Err(format!(
                "{TOOL} belongs to an operation, not to the path {path:?}"
            ));
        }
        o.remove("servers");
        for method in METHODS {
            let shared = o.get("parameters").cloned();
            let Some(op) = o.get_mut(method) else {
                continue;
            };
            let at = format!("{} {path}", method.to_uppercase());
            let Some(op) = op.as_object_mut() else {
                return Err(format!("{at} is no object"));
            };
            op.remove("servers");
            if op
                .get("responses")
                .and_then(Value::as_object)
                .is_none_or(Map::is_empty)
            {
                return Err(format!("{at} declares no response"));
            }
            match op.get("operationId").map(Value::as_str) {
                None => {}
                Some(None | Some("")) => return Err(format!("{at}: operationId is no text")),
                Some(Some(id)) if !ids.insert(id.to_owned()) => {
                    return Err(format!("operationId {id:?} is there twice"));
                }
                Some(Some(_)) => {}
            }
            if let Some(declared) = op.get(TOOL) {
                let t = tool(
                    declared,
                    op,
                    method,
                    &path,
                    &version,
                    shared.as_ref(),
                    manifest,
                    &components,
                )
                .map_err(|e| format!("{at}: {TOOL}: {e}"))?;
                if tools.iter().any(|k| k.name == t.name) {
                    return Err(format!(
                        "{at}: {TOOL}: the tool {:?} is there twice",
                        t.name
                    ));
                }
                tools.push(t);
                if tools.len() > MAX_TOOLS {
                    return Err(format!("the document declares more than {MAX_TOOLS} tools"));
                }
            }
        }
        published.insert(format!("{public}{rest}"), item);
    }
    root.insert("paths".into(), Value::Object(published));
    Ok(tools)
}

#[expect(
    clippy::too_many_arguments,
    reason = "the rules of a tool look at all of its surroundings"
)]
fn tool(
    declared: &Value,
    op: &Map<String, Value>,
    method: &str,
    path: &str,
    version: &str,
    shared_parameters: Option<&Value>,
    manifest: &Manifest,
    components: &Map<String, Value>,
) -> Result<Tool, String> {
    let declared = declared.as_object().ok_or("is no object")?;
    if version != "3.1" && !version.starts_with("3.1.") {
        return Err(format!("tools need OpenAPI 3.1, not {version:?}"));
    }
    if method != "post" {
        return Err("only POST operations can be tools".into());
    }
    let empty = |v: Option<&Value>| v.is_none_or(|v| v.as_array().is_some_and(Vec::is_empty));
    if path.contains('{') || !empty(shared_parameters) || !empty(op.get("parameters")) {
        return Err("a tool must not have parameters: put them into the JSON body".into());
    }
    let name = declared
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.is_empty() || !name.chars().all(allowed) {
        return Err(format!("name {name:?} must be letters, digits, _, . and -"));
    }
    let full = format!("{}.{name}", manifest.name);
    if full.len() > MAX_TOOL_NAME {
        return Err(format!(
            "the name {full:?} is longer than {MAX_TOOL_NAME} bytes"
        ));
    }
    let body = op
        .get("requestBody")
        .and_then(Value::as_object)
        .ok_or("a required JSON request body is needed")?;
    if body.contains_key("$ref") {
        return Err("the request body must be written out, not a $ref".into());
    }
    if body.get("required") != Some(&json!(true)) {
        return Err("the request body must be required".into());
    }
    let schema = json_schema(body.get("content"))
        .ok_or("the request body needs application/json with a schema")?;
    if !schema::is_object(schema, components) {
        return Err("the schema of the request body must be of type object".into());
    }
    answers(op, components)?;
    let input_schema = schema::bundle(schema, components)?;
    let text = |k: &str| {
        op.get(k)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (title, long) = (text("summary"), text("description"));
    Ok(Tool {
        name: full,
        description: if long.is_empty() { title.clone() } else { long },
        title,
        input_schema,
        annotations: annotations(declared.get("annotations"))?,
        path: path.to_owned(),
    })
}

/// The hints of a tool; unknown ones are left out.
fn annotations(declared: Option<&Value>) -> Result<Map<String, Value>, String> {
    let Some(declared) = declared else {
        return Ok(Map::new());
    };
    let declared = declared.as_object().ok_or("annotations is no object")?;
    let mut out = Map::new();
    for k in [
        "destructiveHint",
        "idempotentHint",
        "openWorldHint",
        "readOnlyHint",
    ] {
        match declared.get(k) {
            None => {}
            Some(v @ Value::Bool(_)) => {
                out.insert(k.into(), v.clone());
            }
            Some(_) => return Err(format!("annotations.{k} must be true or false")),
        }
    }
    Ok(out)
}

/// The schema of the media type `application/json`, with parameters or without.
fn json_schema(content: Option<&Value>) -> Option<&Value> {
    content?.as_object()?.iter().find_map(|(media, v)| {
        let essence = media.split(';').next().unwrap_or_default().trim();
        essence
            .eq_ignore_ascii_case("application/json")
            .then(|| v.get("schema"))
            .flatten()
    })
}

/// Whether at least one success is declared, and each is a JSON object.
fn answers(op: &Map<String, Value>, components: &Map<String, Value>) -> Result<(), String> {
    let mut good = 0;
    for (status, r) in op
        .get("responses")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let success = status.len() == 3
            && status.starts_with('2')
            && (status[1..].eq_ignore_ascii_case("xx")
                || status[1..].bytes().all(|c| c.is_ascii_digit()));
        if !success {
            continue;
        }
        if r.get("$ref").is_some() {
            return Err(format!(
                "the response {status} must be written out, not a $ref"
            ));
        }
        let schema = json_schema(r.get("content"))
            .ok_or_else(|| format!("the response {status} needs application/json with a schema"))?;
        if !schema::is_object(schema, components) {
            return Err(format!(
                "the schema of the response {status} must be of type object"
            ));
        }
        good += 1;
    }
    if good == 0 {
        return Err("a response 2xx must be declared".into());
    }
    Ok(())
}
