//! Server-sent events out of a whole body.
//!
//! Source: the event stream format of the WHATWG HTML standard, section 9.2, with a line limit.

/// The longest line that is read, bytes.
pub const MAX_LINE: usize = 1 << 20;

/// One event: its type ("" where the stream names none) and its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event` field.
    pub name: String,
    /// The `data` fields, joined by line feeds.
    pub data: String,
}

/// Splits a body into events. The second value tells why reading stopped early, if it did.
pub fn events(body: &[u8]) -> (Vec<Event>, Option<String>) {
    let mut out = Vec::new();
    let mut event = Event::default();
    let mut seen = false;
    let mut has_data = false;
    for line in body.split(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > MAX_LINE {
            return (
                out,
                Some(format!("event stream line exceeds {MAX_LINE} bytes")),
            );
        }
        if line.is_empty() {
            if seen {
                out.push(std::mem::take(&mut event));
            }
            (seen, has_data) = (false, false);
            continue;
        }
        let line = String::from_utf8_lossy(line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => {}
            "data" => {
                if has_data {
                    event.data.push('\n');
                }
                event.data.push_str(value);
                (seen, has_data) = (true, true);
            }
            "event" => {
                event.name = value.to_owned();
                seen = true;
            }
            "id" => seen = true,
            _ => {}
        }
    }
    if seen {
        out.push(event);
    }
    (out, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_joined_data_crlf_and_a_missing_last_blank_line() {
        let (e, err) = events(b":hi\r\nevent: a\r\ndata: 1\r\ndata:2\r\n\r\n\r\ndata: {\"x\":1}");
        assert_eq!(err, None);
        assert_eq!(e.len(), 2);
        assert_eq!((e[0].name.as_str(), e[0].data.as_str()), ("a", "1\n2"));
        assert_eq!(e[1].data, "{\"x\":1}");
    }

    #[test]
    fn an_endless_line_stops_the_reading() {
        let mut body = b"data: 1\n\n".to_vec();
        body.extend(vec![b'x'; MAX_LINE + 1]);
        let (e, err) = events(&body);
        assert_eq!(e.len(), 1);
        assert!(err.is_some());
    }
}
