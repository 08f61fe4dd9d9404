//! JSON-RPC messages of the revisions with a handshake: which are calls, which are refused, and how.

use serde_json::Value;

/// Messages of a batch at most.
const MAX_BATCH: usize = 100;

/// Requests that are answered; everything else is refused before it reaches the SDK.
const METHODS: [&str; 11] = [
    "initialize",
    "ping",
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "logging/setLevel",
    "completion/complete",
];

/// Whether a message says itself that it is of the revision that has no handshake, or a later one.
pub(crate) fn is_modern(message: &Value) -> bool {
    message["method"] == "server/discover"
        || message["params"]["_meta"]
            .get("io.modelcontextprotocol/protocolVersion")
            .is_some()
}

/// The calls of a payload that want an answer.
///
/// # Errors
/// Why it is refused.
pub(crate) fn calls(payload: Value, version: Option<&str>) -> Result<Vec<Value>, String> {
    let messages = match payload {
        Value::Array(batch) => {
            if version.is_some_and(|v| v >= "2025-06-18") {
                return Err("JSON-RPC batching is not supported in 2025-06-18 and later".into());
            }
            if batch.is_empty() {
                return Err("malformed payload: empty batch".into());
            }
            if batch.len() > MAX_BATCH {
                return Err(format!("malformed payload: more than {MAX_BATCH} messages"));
            }
            batch
        }
        one => vec![one],
    };
    let mut calls = Vec::new();
    for m in messages {
        if check(&m)? {
            calls.push(m);
        }
    }
    Ok(calls)
}

/// Checks one message; true where it is a call that wants an answer.
fn check(m: &Value) -> Result<bool, String> {
    let o = m
        .as_object()
        .ok_or("malformed payload: not a JSON-RPC message")?;
    if o.get("jsonrpc") != Some(&Value::from("2.0")) {
        return Err("malformed payload: invalid message version tag; expected \"2.0\"".into());
    }
    let Some(method) = o.get("method") else {
        // A response to something that this server never asked.
        return if o.contains_key("result") || o.contains_key("error") {
            Ok(false)
        } else {
            Err("malformed payload: neither a method nor a result".into())
        };
    };
    let method = method
        .as_str()
        .ok_or("malformed payload: method is not a string")?;
    let has_id = matches!(o.get("id"), Some(Value::String(_) | Value::Number(_)));
    if method.starts_with("notifications/") {
        return if has_id {
            Err(format!("invalid request: unexpected id for {method:?}"))
        } else {
            Ok(false)
        };
    }
    if !METHODS.contains(&method) {
        return Err(format!("JSON RPC not handled: {method:?} unsupported"));
    }
    if !has_id {
        return Err(format!("invalid request: missing id for {method:?}"));
    }
    let needs_params = matches!(
        method,
        "initialize"
            | "tools/call"
            | "prompts/get"
            | "resources/read"
            | "completion/complete"
            | "logging/setLevel"
    );
    if needs_params && !o.get("params").is_some_and(Value::is_object) {
        return Err(format!(
            "invalid request: missing required \"params\" for {method:?}"
        ));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_are_told_apart() {
        let m = |v: Value| check(&v);
        assert_eq!(
            m(json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})),
            Ok(true)
        );
        assert_eq!(
            m(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
            Ok(false)
        );
        assert_eq!(
            m(json!({"jsonrpc": "2.0", "id": 1, "method": "foo"})),
            Err("JSON RPC not handled: \"foo\" unsupported".into())
        );
        assert_eq!(
            m(json!({"jsonrpc": "2.0", "method": "tools/list"})),
            Err("invalid request: missing id for \"tools/list\"".into())
        );
        assert!(m(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call"})).is_err());
        assert!(m(json!({"id": 1, "method": "ping"})).is_err());
        assert!(m(json!([])).is_err());
    }

    #[test]
    fn a_batch_is_bounded_and_of_old_revisions_only() {
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        let batch = |n: usize| Value::Array(vec![ping.clone(); n]);
        assert_eq!(calls(batch(2), None).map(|c| c.len()), Ok(2));
        assert_eq!(calls(batch(2), Some("2025-03-26")).map(|c| c.len()), Ok(2));
        assert!(calls(batch(2), Some("2025-06-18")).is_err());
        assert!(calls(batch(0), None).is_err() && calls(batch(101), None).is_err());
    }
}
