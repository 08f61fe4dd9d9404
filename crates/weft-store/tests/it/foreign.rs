//! Databases of other programs.

use serde_json::{Value, json};
use weft_store::foreign::opencode;

#[test]
fn sessions_of_opencode_come_with_their_messages_and_parts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opencode.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(
        "PRAGMA journal_mode = wal;
         CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT, title TEXT, version TEXT, time_created INTEGER);
         CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);
         CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);
         INSERT INTO session VALUES ('ses_2', 'ses_1', '/home/ann/shop', 'Sub', NULL, 2), ('ses_1', NULL, '/home/ann/shop', 'Refunds', '1.18', 1);
         INSERT INTO message VALUES ('m2', 'ses_1', 2, '{\"role\":\"assistant\"}'), ('m1', 'ses_1', 1, '{\"role\":\"user\"}');
         INSERT INTO part VALUES ('p2', 'm1', 'ses_1', 'broken'), ('p1', 'm1', 'ses_1', '{\"type\":\"text\"}');",
    )
    .unwrap();
    let mut all: Vec<Value> = Vec::new();
    // The database stays open for its own program meanwhile.
    opencode(&path, &mut |s| {
        all.push(s);
        Ok(())
    })
    .unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(
        all[0],
        json!({"session": {"id": "ses_1", "parent_id": "", "directory": "/home/ann/shop", "title": "Refunds", "version": "1.18"},
        "messages": [
            {"id": "m1", "data": {"role": "user"}, "parts": [{"type": "text"}, null]},
            {"id": "m2", "data": {"role": "assistant"}, "parts": []},
        ]})
    );
    assert_eq!(all[1]["session"]["parent_id"], "ses_1");
    std::fs::write(dir.path().join("other.db"), "no database").unwrap();
    let e = opencode(&dir.path().join("other.db"), &mut |_| Ok(())).unwrap_err();
    assert!(e.to_string().contains("not a database"), "{e}");
    assert!(opencode(&dir.path().join("none.db"), &mut |_| Ok(())).is_err());
}
