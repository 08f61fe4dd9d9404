//! Content addressing: the hash of a message in its place in a conversation.
//!
//! A node's hash is SHA-256 over the RFC 8785 (JCS) form of the projected message and the hash of
//! the node before it, so the same history always gives the same hashes whoever sends it again.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::block::ContentBlock;
use crate::project::project_text;

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut s, b| {
            let _ = write!(s, "{b:02x}");
            s
        })
}

/// Lower-case hex SHA-256.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The RFC 8785 serialization of a value.
pub fn canonical_json(value: &Value) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(value).unwrap_or_else(|_| value.to_string().into_bytes())
}

/// Drops members that say nothing: null, false, "", 0, [] and objects that end up empty.
fn prune(object: &Map<String, Value>) -> Map<String, Value> {
    object
        .iter()
        .filter_map(|(k, v)| {
            let v = match v {
                Value::Null | Value::Bool(false) => return None,
                Value::String(s) if s.is_empty() => return None,
                Value::Array(a) if a.is_empty() => return None,
                Value::Number(n) if n.as_f64() == Some(0.0) => return None,
                Value::Object(o) => {
                    let o = prune(o);
                    if o.is_empty() {
                        return None;
                    }
                    Value::Object(o)
                }
                other => other.clone(),
            };
            Some((k.clone(), v))
        })
        .collect()
}

/// The identity-relevant form of a block; `None` where it is harness noise only.
pub fn project_block(block: &ContentBlock) -> Option<ContentBlock> {
    let mut b = block.clone();
    if !b.text.is_empty() {
        b.text = project_text(&b.text);
        if b.text.is_empty() {
            return None;
        }
    }
    b.tool_input = prune(&b.tool_input);
    b.thinking_signature.clear();
    if !b.tool_output.is_empty() {
        b.tool_output = project_text(&b.tool_output);
    }
    Some(b)
}

/// Hash of a message whose predecessor has the hash `parent` ("" for a root).
pub fn node_hash(parent: &str, role: &str, blocks: &[ContentBlock]) -> String {
    let blocks: Vec<Value> = blocks
        .iter()
        .filter_map(project_block)
        .map(|b| {
            let mut v = serde_json::to_value(&b).unwrap_or_default();
            if let Value::Object(o) = &mut v {
                o.insert("is_error".into(), Value::Bool(b.is_error));
            }
            v
        })
        .collect();
    let node = json!({
        "content": {"content": blocks, "role": role, "type": "message"},
        "parent": parent,
    });
    sha256_hex(&canonical_json(&node))
}

/// Signature of one block, for joining calls with transcript records; `None` for blocks that
/// identify nothing (thoughts and harness noise).
pub fn block_signature(block: &ContentBlock) -> Option<String> {
    if block.kind == "thinking" {
        return None;
    }
    let b = project_block(block)?;
    let v = serde_json::to_value(&b).ok()?;
    Some(sha256_hex(&canonical_json(&v)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(v: Value) -> ContentBlock {
        serde_json::from_value(v).expect("block")
    }

    #[test]
    fn vectors_of_the_specification() {
        let a = node_hash("", "user", &[ContentBlock::text("hello")]);
        assert_eq!(
            a,
            "af300c6bb7b341e43949236e3a34c210e868664b3c07a8287ca74a5943863bd5"
        );
        let a2 = node_hash(
            "",
            "user",
            &[ContentBlock::text(
                "<system-reminder>now 12:00</system-reminder>\r\n\r\nhello  \n",
            )],
        );
        assert_eq!(a2, a);
        let b = node_hash(&a, "assistant", &[ContentBlock::text("hi")]);
        assert_eq!(
            b,
            "dfa97096cbb93287ba93587a886ab3d30e383fa5dc01cbc5f0e9ea3c3ebdbc90"
        );
        let c = block(
            json!({"type": "tool_use", "tool_use_id": "toolu_1", "tool_name": "Edit",
            "tool_input": {"file_path": "/a", "replace_all": false, "n": 0, "opts": {"x": null}}}),
        );
        assert_eq!(
            node_hash(&a, "assistant", &[c]),
            "d52dbbc8f99a8aacea4410adb645836123890d300c5170274b643173e4d85901"
        );
        let d = block(json!({"type": "tool_result", "tool_result_id": "toolu_1",
            "tool_output": "boom<system-reminder>x</system-reminder>", "is_error": true}));
        assert_eq!(
            node_hash(&b, "user", &[d]),
            "59868c561fac4abdb3c35fce5ae94495f6cb299c025c31dda433d08ccc09c339"
        );
        let e = block(json!({"type": "thinking", "thinking": "hmm", "thinking_signature": "SIG"}));
        assert_eq!(
            node_hash(&a, "assistant", &[e]),
            "c9b89dbdbd05d6539077f6481737c2487627f66e58423a6fbbb67142323559d3"
        );
        let f = "613442d3481093478e32aaab30668596b839c250a01a4f5584bdd3cddb9d84c0";
        assert_eq!(node_hash("", "user", &[]), f);
        let noise = ContentBlock::text("<system-reminder>x</system-reminder>");
        assert_eq!(node_hash("", "user", &[noise]), f);
        assert_eq!(
            node_hash("", "user", &[ContentBlock::text("héllo ✓ \u{2028} <b>")]),
            "e0cda06006bddedef101d5b9d1241c98e08ff636760d2ff25534c5af11d76ec2"
        );
    }

    #[test]
    fn numbers_are_written_as_ecmascript_doubles() {
        let v: Value = serde_json::from_str(r#"{"n":10000000000000001,"f":1.0}"#).expect("json");
        assert_eq!(canonical_json(&v), br#"{"f":1,"n":10000000000000000}"#);
    }
}
