//! The official conformance suite of MCP and the inspector's command line against the program.
//!
//! Most scenarios call tools, prompts and resources of the suite's own example server. They are named here with
//! the reason that they do not apply; that they fail is demanded too, so that the list stays true.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use weft_testkit::{Node, node};

use crate::code::git;
use crate::support::{Home, Server};

/// Scenarios that do not apply, by the reason.
const INAPPLICABLE: [(&str, &[&str]); 4] = [
    (
        "calls tools of the suite's example server (test_simple_text, test_error_handling, …)",
        &[
            "tools-call-simple-text",
            "tools-call-image",
            "tools-call-audio",
            "tools-call-embedded-resource",
            "tools-call-mixed-content",
            "tools-call-with-logging",
            "tools-call-error",
            "tools-call-with-progress",
            "tools-call-sampling",
            "tools-call-elicitation",
            "json-schema-2020-12",
            "elicitation-sep1034-defaults",
            "elicitation-sep1330-enums",
            "http-custom-header-server-validation",
            "input-required-result-basic-elicitation",
            "input-required-result-basic-sampling",
            "input-required-result-basic-list-roots",
            "input-required-result-request-state",
            "input-required-result-multiple-input-requests",
            "input-required-result-multi-round",
            "input-required-result-non-tool-request",
            "input-required-result-result-type",
            "input-required-result-tampered-state",
            "input-required-result-capability-check",
        ],
    ),
    (
        "reads resources and prompts of the suite's example server (test://static-text, …)",
        &[
            "resources-read-text",
            "resources-read-binary",
            "resources-templates-read",
            "prompts-get-simple",
            "prompts-get-with-args",
            "prompts-get-embedded-resource",
            "prompts-get-with-image",
        ],
    ),
    (
        "a stateless server has nobody to push an update to: resources.subscribe is not offered",
        &["resources-subscribe", "resources-unsubscribe"],
    ),
    ("completions are not offered", &["completion-complete"]),
];

/// What tapes' endpoint is not asked in the revision in which a server must not answer what it does not offer.
const TOOLS_ONLY: [&str; 3] = ["prompts-list", "resources-list", "caching"];

fn reason(what: &str, scenario: &str) -> Option<&'static str> {
    if what == "v1/mcp, next, 2026-07-28" && TOOLS_ONLY.contains(&scenario) {
        return Some("tapes' endpoint offers tools, and says so");
    }
    INAPPLICABLE
        .iter()
        .find(|(_, all)| all.contains(&scenario))
        .map(|(why, _)| *why)
}

/// Runs a suite; the checks of each scenario.
fn run(node: &Node, home: &Path, suite: &str, args: &[&str]) -> BTreeMap<String, Vec<Value>> {
    let out = home.join("conformance");
    let _ = std::fs::remove_dir_all(&out);
    let mut all = vec!["server", "--suite", "all", "-o", out.to_str().unwrap()];
    all.extend(args);
    let o = node
        .command(&format!("{suite}/dist/index.js"), &all)
        .env("HOME", home)
        .current_dir(home)
        .output()
        .unwrap();
    let mut found = BTreeMap::new();
    for e in std::fs::read_dir(&out).unwrap_or_else(|e| {
        panic!(
            "{e}: {}{}",
            String::from_utf8_lossy(&o.stdout),
            String::from_utf8_lossy(&o.stderr)
        )
    }) {
        let e = e.unwrap();
        // server-<scenario>-<time>
        let name = e.file_name().into_string().unwrap();
        let name = name.strip_prefix("server-").unwrap();
        let end = name.len() - "-2026-12-01T15-43-53-751Z".len();
        let checks = std::fs::read(e.path().join("checks.json")).unwrap();
        found.insert(
            name[..end].to_owned(),
            serde_json::from_slice(&checks).unwrap(),
        );
    }
    found
}

/// Demands that everything applicable passes, and that all of `wanted` was run.
fn passes(what: &str, found: &BTreeMap<String, Vec<Value>>, wanted: &[&str]) {
    for w in wanted {
        assert!(found.contains_key(*w), "{what}: {w} did not run");
    }
    for (scenario, checks) in found {
        let failed: Vec<&Value> = checks
            .iter()
            .filter(|c| c["status"] == "FAILURE")
            // The suite says itself which checks need a tool of its example server.
            .filter(|c| c["details"]["untestable"] != true)
            .collect();
        match reason(what, scenario) {
            None => assert!(failed.is_empty(), "{what}: {scenario}: {failed:#?}"),
            Some(why) => assert!(
                !failed.is_empty() || checks.iter().any(|c| c["details"]["untestable"] == true),
                "{what}: {scenario} passes, although it should not apply: {why}"
            ),
        }
    }
}

#[test]
fn the_conformance_suite_passes() {
    let Some(node) = node() else { return };
    let home = Home::new();
    let s = Server::start(&home, &["api"]);
    for path in ["v1/mcp", "mcp", "mcp/decisions"] {
        let url = format!("{}/{path}", s.api);
        let found = run(node, home.path(), "conformance", &["--url", &url]);
        assert_eq!(found.len(), 32, "{:?}", found.keys());
        passes(
            &format!("{path}, released"),
            &found,
            &[
                "server-initialize",
                "ping",
                "logging-set-level",
                "tools-list",
                "resources-list",
                "prompts-list",
                "server-sse-polling",
                "server-sse-multiple-streams",
                "dns-rebinding-protection",
            ],
        );
    }
    for (path, version) in [
        ("v1/mcp", "2026-07-28"),
        ("mcp", "2026-07-28"),
        ("mcp", "2025-11-25"),
    ] {
        let url = format!("{}/{path}", s.api);
        let args = ["--url", &url, "--spec-version", version];
        let found = run(node, home.path(), "conformance-next", &args);
        let wanted: &[&str] = match version {
            "2026-07-28" => &[
                "server-stateless",
                "tools-list",
                "resources-list",
                "prompts-list",
                "sep-2164-resource-not-found",
                "caching",
                "http-header-validation",
                "server-sse-multiple-streams",
                "dns-rebinding-protection",
                "input-required-result-missing-input-response",
                "input-required-result-unsupported-methods",
                "input-required-result-ignore-extra-params",
                "input-required-result-validate-input",
            ],
            _ => &[
                "server-initialize",
                "server-session-lifecycle",
                "ping",
                "tools-list",
            ],
        };
        passes(&format!("{path}, next, {version}"), &found, wanted);
    }
}

/// What the inspector prints for a method, over HTTP or over stdio.
fn inspect(node: &Node, home: &Home, server: &[&str], args: &[&str]) -> Value {
    let mut all = vec!["--cli"];
    all.extend(server);
    all.extend(args);
    let o = node
        .command("inspector/clients/launcher/build/index.js", &all)
        .env("HOME", home.path())
        .current_dir(home.path())
        .output()
        .unwrap();
    serde_json::from_slice(&o.stdout).unwrap_or_else(|e| {
        panic!(
            "{e}: {}{}",
            String::from_utf8_lossy(&o.stdout),
            String::from_utf8_lossy(&o.stderr)
        )
    })
}

#[test]
fn the_inspector_lists_and_calls() {
    let Some(node) = node() else { return };
    let home = Home::new();
    git(home.path(), &["init", "-q"]);
    home.ok(&[
        "decide",
        "Use one binary",
        "--rationale",
        "people install it once",
    ]);
    let s = Server::start(&home, &["api"]);
    let url = format!("{}/mcp", s.api);
    let http = [url.as_str(), "--transport", "http"];
    // The inspector starts servers with none of its environment but what it is told.
    let data = format!("WEFT_DATA_DIR={}", home.data().display());
    let stdio = ["-e", data.as_str(), crate::support::WEFT, "mcp"];
    for server in [&http[..], &stdio[..]] {
        let tools = inspect(node, &home, server, &["--method", "tools/list"]);
        let names: Vec<&str> = tools["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t["name"].as_str().unwrap())
            .collect();
        assert_eq!(names[..3], ["search", "why", "show"]);
        let call = [
            "--method",
            "tools/call",
            "--tool-name",
            "search_decisions",
            "--tool-arg",
            "query=how many binaries",
        ];
        let found = inspect(node, &home, server, &call);
        assert_eq!(
            found["structuredContent"]["results"][0]["title"], "Use one binary",
            "{found}"
        );
        let prompts = inspect(node, &home, server, &["--method", "prompts/list"]);
        assert_eq!(prompts["prompts"][0]["name"], "brief");
        let templates = inspect(
            node,
            &home,
            server,
            &["--method", "resources/templates/list"],
        );
        assert_eq!(
            templates["resourceTemplates"][0]["uriTemplate"],
            json!("weft://session/{id}")
        );
    }
}
