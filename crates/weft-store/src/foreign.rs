//! Databases of other programs, read and never written.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use crate::{Result, StoreError};

/// Largest session that is read, bytes of its messages and parts.
const MAX_SESSION: usize = 256 << 20;

/// Reads OpenCode's `opencode.db`, a session at a time: `{session: {id, parent_id, directory, title,
/// version}, messages: [{id, data, parts: […]}]}`, the older sessions and messages first.
///
/// # Errors
/// Where it is no such database, or `each` fails.
pub fn opencode(path: &Path, each: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    let c = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    c.busy_timeout(std::time::Duration::from_secs(5))?;
    let mut sessions = c.prepare(
        "SELECT id, coalesce(parent_id, ''), coalesce(directory, ''), coalesce(title, ''), coalesce(version, '')
         FROM session ORDER BY time_created, id",
    )?;
    let mut messages =
        c.prepare("SELECT id, data FROM message WHERE session_id = ?1 ORDER BY time_created, id")?;
    let mut parts = c.prepare("SELECT data FROM part WHERE message_id = ?1 ORDER BY id")?;
    let json = |text: String| serde_json::from_str::<Value>(&text).unwrap_or_default();
    let mut rows = sessions.query([])?;
    while let Some(r) = rows.next()? {
        let id: String = r.get(0)?;
        let mut size = 0;
        let mut said = Vec::new();
        let mut of_session = messages.query([&id])?;
        while let Some(m) = of_session.next()? {
            let (message, data): (String, String) = (m.get(0)?, m.get(1)?);
            size += data.len();
            let texts = parts.query_map([&message], |p| p.get::<_, String>(0))?;
            let texts = texts.collect::<Result<Vec<_>, _>>()?;
            size += texts.iter().map(String::len).sum::<usize>();
            if size > MAX_SESSION {
                return Err(StoreError::Other(format!(
                    "session {id} is larger than {MAX_SESSION} bytes"
                )));
            }
            let texts: Vec<Value> = texts.into_iter().map(json).collect();
            said.push(json!({"id": message, "data": json(data), "parts": texts}));
        }
        let (parent, directory, title, version): (String, String, String, String) =
            (r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?);
        each(json!({
            "session": {"id": id, "parent_id": parent, "directory": directory, "title": title, "version": version},
            "messages": said,
        }))?;
    }
    Ok(())
}
