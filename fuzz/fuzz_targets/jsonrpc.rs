//! Messages of MCP clients: each payload is refused, or its calls have an id and a method.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;

#[path = "../../crates/weft-server/src/mcp/jsonrpc.rs"]
mod jsonrpc;

fuzz_target!(|data: &[u8]| {
    let Ok(v) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    if jsonrpc::is_modern(&v) {
        return;
    }
    for version in [None, Some("2025-03-26"), Some("2025-11-25")] {
        for c in jsonrpc::calls(v.clone(), version).unwrap_or_default() {
            assert!(c["method"].is_string() && !c["id"].is_null());
        }
    }
});
