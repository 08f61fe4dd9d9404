//! Transcripts of Aider: `.aider.chat.history.md` in a repository. A line `# aider chat started at …` begins
//! a session, `#### ` is what a user said, `> ` what aider itself says, and the rest is the model's.

use serde_json::Value;
use weft_core::block::ContentBlock;
use weft_core::time::{Micros, parse_micros};

use super::dialogue::{Answer, Dialogue};
use super::{Failure, Importer, Sink};

const START: &str = "# aider chat started at ";

#[derive(Debug, Default)]
pub(super) struct Aider {
    cwd: String,
    dialogue: Option<Dialogue>,
    user: String,
    said: String,
    model: String,
    at: Micros,
}

impl Aider {
    pub(super) fn new(cwd: String) -> Self {
        Self {
            cwd,
            ..Self::default()
        }
    }

    /// Ends the answer that is being read.
    fn flush(&mut self, sink: Sink<'_>) -> Result<(), String> {
        let said = std::mem::take(&mut self.said);
        let Some(d) = self.dialogue.as_mut().filter(|_| !said.trim().is_empty()) else {
            return Ok(());
        };
        // The file has no other times than that of its beginning.
        self.at += 1_000_000;
        d.answer(
            Answer {
                blocks: vec![ContentBlock::text(said.trim())],
                model: self.model.clone(),
                at: self.at,
                ..Answer::default()
            },
            sink,
        )
    }

    fn ask(&mut self) {
        let user = std::mem::take(&mut self.user);
        if let Some(d) = self.dialogue.as_mut() {
            self.at += 1_000_000;
            d.user(user.trim(), self.at);
        }
    }

    fn line(&mut self, line: &str, sink: Sink<'_>) -> Result<(), String> {
        if let Some(stamp) = line.strip_prefix(START) {
            self.ask();
            self.flush(sink)?;
            // Local time without a zone: read as UTC, so that every machine reads the same.
            let stamp = stamp.trim();
            self.at = parse_micros(&format!("{}Z", stamp.replacen(' ', "T", 1))).unwrap_or(0);
            self.dialogue = Some(Dialogue::new(
                "aider",
                &format!("{} {stamp}", self.cwd),
                &self.cwd,
            ));
        } else if let Some(text) = line.strip_prefix("#### ") {
            if self.user.is_empty() {
                self.flush(sink)?;
            }
            self.user.push_str(text.trim_end());
            self.user.push('\n');
        } else if let Some(own) = line.strip_prefix('>') {
            if let Some(model) = own
                .trim()
                .strip_prefix("Main model: ")
                .or_else(|| own.trim().strip_prefix("Model: "))
            {
                self.model = model.split(' ').next().unwrap_or_default().to_owned();
            }
        } else {
            if !self.user.is_empty() && !line.trim().is_empty() {
                self.ask();
            }
            self.said.push_str(line);
            self.said.push('\n');
        }
        Ok(())
    }
}

impl Importer for Aider {
    fn record(&mut self, r: &Value, sink: Sink<'_>) -> Result<(), Failure> {
        let line = r.as_str().unwrap_or_default();
        self.line(line, sink).map_err(Failure::Sink)
    }

    fn finish(&mut self, sink: Sink<'_>) -> Result<(), String> {
        self.ask();
        self.flush(sink)
    }
}
