//! Lines of a file in bounded memory. Only LF ends a line: U+2028 in a text is not a line end.

use std::io::BufRead;

/// Longest line that is read whole, bytes.
pub const MAX_LINE: usize = 32 << 20;
/// What is kept of a longer line, bytes.
pub const LINE_PREFIX: usize = 256 << 10;

/// One line without its end.
#[derive(Debug)]
pub(super) struct Line {
    /// Its text; invalid UTF-8 is replaced.
    pub(super) text: String,
    /// Whether only the beginning is here.
    pub(super) truncated: bool,
}

/// Reads lines one at a time.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: R,
    max: usize,
    prefix: usize,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            reader,
            max: MAX_LINE,
            prefix: LINE_PREFIX,
        }
    }

    pub(super) fn next_line(&mut self) -> std::io::Result<Option<Line>> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut truncated = false;
        let mut any = false;
        loop {
            let available = match self.reader.fill_buf() {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if available.is_empty() {
                break;
            }
            any = true;
            let end = available.iter().position(|b| *b == b'\n');
            let piece = &available[..end.unwrap_or(available.len())];
            if !truncated {
                if bytes.len() + piece.len() > self.max {
                    truncated = true;
                    let room = self.prefix.saturating_sub(bytes.len()).min(piece.len());
                    bytes.extend_from_slice(&piece[..room]);
                    bytes.truncate(self.prefix);
                    bytes.shrink_to_fit();
                } else {
                    bytes.extend_from_slice(piece);
                }
            }
            let used = piece.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                break;
            }
        }
        if !any {
            return Ok(None);
        }
        if truncated {
            // The cut may stand inside a character.
            while bytes.last().is_some_and(|b| b & 0xC0 == 0x80) {
                bytes.pop();
            }
            if bytes.last().is_some_and(|b| *b >= 0xC0) {
                bytes.pop();
            }
        }
        let text = match String::from_utf8(bytes) {
            Ok(t) => t,
            Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
        };
        Ok(Some(Line { text, truncated }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_line_feeds_end_lines_and_long_ones_are_cut() {
        let text = format!("a\u{2028}b\r\n\n{}é\nlast", "x".repeat(50));
        let mut l = Lines {
            reader: std::io::BufReader::with_capacity(7, text.as_bytes()),
            max: 40,
            prefix: 10,
        };
        let mut all = Vec::new();
        while let Some(line) = l.next_line().expect("line") {
            all.push((line.text, line.truncated));
        }
        assert_eq!(
            all,
            [
                ("a\u{2028}b\r".to_owned(), false),
                (String::new(), false),
                ("x".repeat(10), true),
                ("last".to_owned(), false)
            ]
        );
    }
}
