//! Which span wrote which file: rows beside the spans, written with them.

use weft_core::edits::Edit;
use weft_core::time::Micros;

use crate::Result;

/// A span that wrote a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileEdit {
    /// Path as the call gave it.
    pub path: String,
    /// Session.
    pub session_id: String,
    /// Trace.
    pub trace_id: String,
    /// Span.
    pub span_id: String,
    /// Start.
    pub started_at: Micros,
    /// Name of the tool.
    pub tool: String,
    /// What it wrote in this file.
    pub edits: Vec<Edit>,
    /// Prompt of the trace.
    pub prompt: String,
}

/// Which span wrote which file.
pub trait Edits {
    /// Reads the spans that were there before their edits were noted; once for a store.
    fn fill_file_edits(&self) -> Result<()>;

    /// Calls that wrote a file whose path ends like this one, newest first.
    fn edits_of(&self, path: &str, limit: usize) -> Result<Vec<FileEdit>>;
}

/// The last part of a path, whatever the separator.
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}
