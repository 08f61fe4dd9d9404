//! Errors as a person reads them, and exit codes: 0 done, 1 failed or nothing wrong found, 2 wrong use.

use std::process::ExitCode;

use weft_engine::show::ShowError;
use weft_engine::{CodeError, DecisionError, StoreError};

use crate::out;

/// An error with what to do about it.
#[derive(Debug)]
pub(crate) struct Hinted {
    text: String,
    hint: String,
    code: u8,
}

impl std::fmt::Display for Hinted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Hinted {}

/// An error with a hint; exit code 1.
pub(crate) fn hinted(text: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Hinted {
        text: text.into(),
        hint: hint.into(),
        code: 1,
    }
    .into()
}

/// Wrong use of the command line; exit code 2.
pub(crate) fn usage(text: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Hinted {
        text: text.into(),
        hint: hint.into(),
        code: 2,
    }
    .into()
}

fn is_broken_pipe(e: &anyhow::Error) -> bool {
    e.chain().any(|c| {
        c.downcast_ref::<std::io::Error>()
            .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

/// Prints an error and gives the code to exit with.
pub(crate) fn exit_code(result: anyhow::Result<u8>) -> ExitCode {
    let e = match result {
        Ok(code) => return ExitCode::from(code),
        Err(e) if is_broken_pipe(&e) => return ExitCode::SUCCESS,
        Err(e) => e,
    };
    out::note(&format!("error: {e}"));
    for cause in e.chain().skip(1) {
        out::note(&format!("  caused by: {cause}"));
    }
    let mut code = 1;
    let hint = e.chain().find_map(|c| {
        if let Some(h) = c.downcast_ref::<Hinted>() {
            code = h.code;
            return Some(h.hint.clone()).filter(|h| !h.is_empty());
        }
        if let Some(e) = c.downcast_ref::<CodeError>() {
            return e.hint().map(str::to_owned);
        }
        if let Some(e) = c.downcast_ref::<DecisionError>() {
            return e.hint().map(str::to_owned);
        }
        if let Some(e) = c.downcast_ref::<ShowError>() {
            return e.hint().map(str::to_owned);
        }
        c.downcast_ref::<StoreError>()?.hint().map(str::to_owned)
    });
    if let Some(hint) = hint {
        out::note(&format!("hint: {hint}"));
    }
    ExitCode::from(code)
}
