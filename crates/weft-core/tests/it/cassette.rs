//! Documents of cassettes: what is published, what is a tool, what is refused.

use serde_json::{Value, json};
use weft_core::cassette::{Document, Manifest, aggregate};
use weft_testkit::shared;

fn sample() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Summaries", "version": "1"},
        "servers": [{"url": "http://169.254.169.254/"}],
        "x-tapes-cassette": {
            "kind": "cassette/v1alpha1",
            "cassette": {"name": "sum-mary", "version": "0.3.1"},
            "depends": {"core": "v1", "views": ["spans", "sessions"]},
        },
        "paths": {
            "/api/sum-mary/reports/{id}": {"get": {"responses": {"200": {"description": "one"}}}},
            "/api/sum-mary/summarize": {"post": {
                "operationId": "summarize", "summary": "Summarize", "description": "In a few words",
                "x-tapes-mcp": {"name": "summarize_session", "annotations": {"readOnlyHint": true, "title": "x"}},
                "requestBody": {"required": true, "content": {"application/json; charset=utf-8": {"schema": {"$ref": "#/components/schemas/Ask"}}}},
                "responses": {
                    "200": {"description": "it", "content": {"application/json": {"schema": {"type": "object"}}}},
                    "404": {"description": "none"},
                },
            }},
        },
        "components": {"schemas": {
            "Ask": {"type": "object", "properties": {"session": {"$ref": "#/components/schemas/Id"}, "words": {"type": "integer", "default": 50}}, "required": ["session"]},
            "Id": {"type": "string", "minLength": 1},
            "Unused": {"type": "object"},
        }},
    })
}

fn read(doc: &Value) -> Result<Document, String> {
    Document::read(doc.to_string().as_bytes())
}

/// The sample with one thing changed, which must be refused with a text.
fn refused(says: &str, change: impl FnOnce(&mut Value)) {
    let mut doc = sample();
    change(&mut doc);
    let e = read(&doc).expect_err(says);
    assert!(e.contains(says), "{says}: {e}");
}

fn operation(doc: &mut Value) -> &mut Value {
    &mut doc["paths"]["/api/sum-mary/summarize"]["post"]
}

#[test]
fn a_document_is_published_under_its_name() {
    let d = read(&sample()).unwrap();
    let paths: Vec<&String> = d.public["paths"].as_object().unwrap().keys().collect();
    assert_eq!(
        paths,
        [
            "/v1/cassettes/sum-mary/reports/{id}",
            "/v1/cassettes/sum-mary/summarize"
        ]
    );
    assert!(d.public.get("servers").is_none());
    let t = &d.tools[0];
    assert_eq!(
        (
            t.name.as_str(),
            t.title.as_str(),
            t.description.as_str(),
            t.path.as_str()
        ),
        (
            "sum-mary.summarize_session",
            "Summarize",
            "In a few words",
            "/api/sum-mary/summarize"
        )
    );
    assert_eq!(json!(t.annotations), json!({"readOnlyHint": true}));
    assert_eq!(
        json!(t.input_schema),
        json!({"$ref": "#/$defs/Ask", "type": "object", "$defs": {
            "Ask": {"type": "object", "properties": {"session": {"$ref": "#/$defs/Id"}, "words": {"type": "integer", "default": 50}}, "required": ["session"]},
            "Id": {"type": "string", "minLength": 1},
        }})
    );
    assert_eq!(read(&sample()).unwrap().digest, d.digest);
}

#[test]
fn what_breaks_a_rule_refuses_the_whole_document() {
    refused("missing root extension \"x-tapes-cassette\"", |d| {
        d.as_object_mut().unwrap().remove("x-tapes-cassette");
    });
    refused("not under /api/sum-mary", |d| {
        d["paths"]["/ping"] = json!({})
    });
    refused("not under /api/sum-mary", |d| {
        d["paths"]["/api/sum-maryx"] = json!({})
    });
    refused("dot segments", |d| {
        d["paths"]["/api/sum-mary/../admin"] = json!({})
    });
    refused("no response", |d| operation(d)["responses"] = json!({}));
    refused("not to the document", |d| d["x-tapes-mcp"] = json!({}));
    refused("not to the path", |d| {
        d["paths"]["/api/sum-mary/summarize"]["x-tapes-mcp"] = json!({});
    });
    refused("OpenAPI 3.1", |d| d["openapi"] = json!("3.0.3"));
    refused("not supported", |d| d["openapi"] = json!("2.0"));
    refused("only POST", |d| {
        let op = operation(d).clone();
        d["paths"]["/api/sum-mary/summarize"] = json!({"put": op});
    });
    refused("parameters", |d| {
        d["paths"]["/api/sum-mary/summarize"]["parameters"] = json!([{"name": "a", "in": "query"}]);
    });
    refused("parameters", |d| {
        operation(d)["parameters"] = json!([{"name": "a", "in": "header"}])
    });
    refused("parameters", |d| {
        let op = operation(d).clone();
        d["paths"] = json!({"/api/sum-mary/{x}": {"post": op}});
    });
    refused("name \"a b\"", |d| {
        operation(d)["x-tapes-mcp"]["name"] = json!("a b")
    });
    refused("longer than 128", |d| {
        operation(d)["x-tapes-mcp"]["name"] = json!("a".repeat(120));
    });
    refused("there twice", |d| {
        let mut op = operation(d).clone();
        op["operationId"] = json!("other");
        d["paths"]["/api/sum-mary/again"] = json!({"post": op});
    });
    refused("operationId \"summarize\" is there twice", |d| {
        let mut op = operation(d).clone();
        op["x-tapes-mcp"]["name"] = json!("other");
        d["paths"]["/api/sum-mary/again"] = json!({"post": op});
    });
    refused("must be required", |d| {
        operation(d)["requestBody"]["required"] = json!(false)
    });
    refused("not a $ref", |d| {
        operation(d)["requestBody"] = json!({"$ref": "#/components/requestBodies/A"})
    });
    refused("needs application/json", |d| {
        operation(d)["requestBody"]["content"] =
            json!({"text/plain": {"schema": {"type": "object"}}});
    });
    refused("type object", |d| {
        d["components"]["schemas"]["Ask"] = json!({"type": "array"})
    });
    refused("type object", |d| {
        d["components"]["schemas"]["Ask"] = json!({"$ref": "#/components/schemas/Ask"});
    });
    refused("204", |d| {
        operation(d)["responses"]["204"] = json!({"description": "nothing"})
    });
    refused("2xx", |d| {
        operation(d)["responses"] = json!({"default": {"description": "x"}})
    });
    refused("which is not there", |d| {
        d["components"]["schemas"]["Ask"]["properties"]["session"] =
            json!({"$ref": "#/components/schemas/No"});
    });
    refused("not to a component", |d| {
        d["components"]["schemas"]["Ask"]["properties"]["session"] =
            json!({"$ref": "http://127.0.0.1/x"});
    });
    refused("the schema is none", |d| {
        d["components"]["schemas"]["Id"] = json!({"type": 5})
    });
    refused("default", |d| {
        d["components"]["schemas"]["Ask"]["properties"]["words"]["default"] = json!("many");
    });
    refused("true or false", |d| {
        operation(d)["x-tapes-mcp"]["annotations"] = json!({"readOnlyHint": "yes"});
    });
    refused("more than 128", |d| {
        for i in 0..130 {
            let mut op = operation(d).clone();
            op["operationId"] = json!(format!("op{i}"));
            op["x-tapes-mcp"]["name"] = json!(format!("t{i}"));
            d["paths"][format!("/api/sum-mary/t{i}")] = json!({"post": op});
        }
    });
    let mut deep = String::from("{\"x-tapes-cassette\":");
    deep.push_str(&"[".repeat(100_000));
    assert!(Document::read(deep.as_bytes()).is_err());
    assert!(
        Document::read(b"").is_err()
            && Document::read(b"[]").is_err()
            && Document::read(b"\xff").is_err()
    );
}

#[test]
fn documents_are_merged_under_their_names() {
    let core = json!({"openapi": "3.1.0", "paths": {"/ping": {}}, "components": {"schemas": {"Ask": {"type": "string"}}}});
    let d = read(&sample()).unwrap();
    let all = aggregate(core.clone(), [&d]).unwrap();
    let post = &all["paths"]["/v1/cassettes/sum-mary/summarize"]["post"];
    assert_eq!(post["operationId"], "sum_mary_summarize");
    assert_eq!(
        all["paths"]["/v1/cassettes/sum-mary/reports/{id}"]["get"]["operationId"],
        "sum_mary_get_reports_id"
    );
    assert_eq!(
        post["requestBody"]["content"]["application/json; charset=utf-8"]["schema"]["$ref"],
        "#/components/schemas/sum_mary_Ask"
    );
    assert_eq!(
        all["components"]["schemas"]["Ask"],
        json!({"type": "string"})
    );
    assert_eq!(
        all["components"]["schemas"]["sum_mary_Ask"]["properties"]["session"]["$ref"],
        "#/components/schemas/sum_mary_Id"
    );
    assert_eq!(all, aggregate(core, [&d]).unwrap());
}

#[test]
fn the_canonical_manifest_is_the_reference_s() {
    let Some(path) = shared("data/tapes/cassette-manifest/summary.json") else {
        return;
    };
    let golden = std::fs::read_to_string(path).unwrap();
    let golden = golden.trim_end();
    assert_eq!(Manifest::parse(golden).unwrap().canonical(), golden);
    // Sets in another order and defaults left out are the same manifest.
    let mut v: Value = serde_json::from_str(golden).unwrap();
    v.as_object_mut().unwrap().remove("api");
    v["depends"]["views"].as_array_mut().unwrap().reverse();
    v["config"].as_array_mut().unwrap().reverse();
    assert_eq!(Manifest::parse(&v.to_string()).unwrap().canonical(), golden);
}

/// Whatever is done to a document, it is admitted or refused.
#[test]
fn no_document_panics() {
    let text = sample().to_string();
    let pieces: Vec<&str> = text
        .split_inclusive(['"', ':', ',', '{', '}', '[', ']'])
        .collect();
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |below: usize| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x % below as u64) as usize
    };
    let (mut admitted, mut refused) = (0, 0);
    for _ in 0..3_000 {
        let mut some = pieces.clone();
        for _ in 0..=next(2) {
            let (at, from) = (next(some.len()), next(pieces.len()));
            match next(3) {
                0 => drop(some.remove(at)),
                1 => some[at] = pieces[from],
                _ => some.insert(at, pieces[from]),
            }
        }
        match Document::read(some.concat().as_bytes()) {
            Ok(d) => {
                aggregate(json!({}), [&d]).unwrap();
                admitted += 1;
            }
            Err(e) => {
                assert!(!e.is_empty());
                refused += 1;
            }
        }
    }
    assert!(admitted > 10 && refused > 1_000, "{admitted} {refused}");
}
