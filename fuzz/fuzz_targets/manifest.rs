//! Documents and manifests of cassettes: anything is refused or admitted, nothing panics, and what was admitted
//! is admitted again as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_core::cassette::{Document, Manifest, aggregate};

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(m) = Manifest::parse(text)
    {
        let again = Manifest::parse(m.canonical()).expect("a canonical manifest is one");
        assert_eq!(m.digest(), again.digest());
    }
    if let Ok(d) = Document::read(data) {
        let prefix = format!("/v1/cassettes/{}", d.manifest.name);
        for path in d.public["paths"].as_object().expect("paths").keys() {
            assert!(path.starts_with(&prefix));
        }
        let core = serde_json::json!({"openapi": "3.0.3", "paths": {}});
        let all = aggregate(core, [&d]).expect("one document alone");
        assert!(all.is_object());
    }
});
