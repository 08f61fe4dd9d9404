//! `kill -9` in the middle of ingest, import, derive and embed: nothing acknowledged is lost, and
//! what is left goes on.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use crate::support::{Home, Server, turn};

fn try_post(url: &str, body: &str) -> bool {
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(5)))
        .build()
        .new_agent();
    agent
        .post(url)
        .header("content-type", "application/json")
        .send(body)
        .is_ok_and(|r| r.status() == 202)
}

#[test]
fn killed_while_ingesting_deriving_and_embedding() {
    let home = Home::new();
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    for round in 0..5_u64 {
        let mut s = Server::start(&home, &[]);
        let stop = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..4)
            .map(|c| {
                let (stop, acked, url) = (
                    stop.clone(),
                    acknowledged.clone(),
                    format!("{}/v1/ingest", s.ingest),
                );
                std::thread::spawn(move || {
                    for i in 0.. {
                        if stop.load(Ordering::SeqCst) {
                            return;
                        }
                        let id = format!("r{round}-{c}-{i}");
                        let body = turn(
                            &format!("s{c}"),
                            &id,
                            &format!("question {id}"),
                            &format!("answer {id}"),
                        );
                        if try_post(&url, &body.to_string()) {
                            acked.lock().unwrap().push(id);
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300 + 700 * round));
        s.kill();
        stop.store(true, Ordering::SeqCst);
        for c in clients {
            c.join().unwrap();
        }
    }
    let acknowledged = acknowledged.lock().unwrap();
    assert!(acknowledged.len() > 50, "only {} turns", acknowledged.len());
    assert!(home.ok(&["doctor"]).contains("ok  truth"));
    home.ok(&["spans", "search", "question"]);
    let mut stored = std::collections::HashSet::new();
    let list = home.json(&["sessions", "list", "--json"]);
    for s in list["items"].as_array().unwrap() {
        for t in home.json(&["sessions", "raw-turns", s["id"].as_str().unwrap()])["items"]
            .as_array()
            .unwrap()
        {
            stored.insert(t["request_id"].as_str().unwrap().to_owned());
        }
    }
    for id in acknowledged.iter() {
        assert!(stored.contains(id), "{id} was acknowledged and is lost");
    }
    let status = home.json(&["status", "--json"]);
    assert_eq!(
        status["coverage"]["documents"].as_u64().unwrap() as usize,
        stored.len()
    );
    assert_eq!(
        status["coverage"]["embedded"],
        status["coverage"]["embeddable"]
    );
    assert_eq!(status["coverage"]["underived_sessions"], 0);
}

#[test]
fn killed_while_importing_and_migrating() {
    let home = Home::new();
    let dir = home.path().join("transcripts");
    std::fs::create_dir(&dir).unwrap();
    for s in 0..30 {
        let mut text = String::new();
        for i in 0..40 {
            text.push_str(&json!({"type": "user", "sessionId": format!("s{s}"), "uuid": format!("u{i}"), "timestamp": format!("2026-01-01T00:{i:02}:01Z"),
                "message": {"role": "user", "content": format!("question {s} {i}")}}).to_string());
            text.push('\n');
            text.push_str(&json!({"type": "assistant", "sessionId": format!("s{s}"), "uuid": format!("a{i}"), "timestamp": format!("2026-01-01T00:{i:02}:02Z"),
                "message": {"role": "assistant", "id": format!("m{s}-{i}"), "model": "x", "content": [{"type": "text", "text": format!("answer {s} {i}")}]}}).to_string());
            text.push('\n');
        }
        std::fs::write(dir.join(format!("s{s}.jsonl")), text).unwrap();
    }
    // From the very first moment on, when the tables are made, to the end of the indexing.
    for ms in [2, 5, 10, 20, 40, 80, 160, 320, 640, 1280] {
        let mut c = home
            .command(&["import", "transcripts", "--again"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(ms));
        let _ = c.kill();
        c.wait().unwrap();
        home.ok(&["status"]);
    }
    home.ok(&["import", "transcripts"]);
    let status = home.json(&["status", "--json"]);
    assert_eq!(status["raw_turns"], 1200);
    assert_eq!(status["coverage"]["documents"], 1200);
    assert_eq!(status["coverage"]["embedded"], 1200);
    let doctor = home.run(&["doctor"]);
    assert!(
        doctor.status.success(),
        "{}",
        String::from_utf8_lossy(&doctor.stdout)
    );
    assert_eq!(
        home.json(&["spans", "search", "question 17 23", "--json"])["results"][0]["user_prompt"],
        "question 17 23"
    );
    // An unchanged corpus does no work.
    assert_eq!(
        home.json(&["import", "transcripts", "--json"])["unchanged"],
        30
    );
    assert_eq!(home.json(&["dev", "embed-spans"])["embedded"], 0);
}
