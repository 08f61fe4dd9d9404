//! The compact forms of a file's symbols and of lists of files, as they stand in a column.

use weft_core::code::{Kind, Symbol};

use crate::{Result, StoreError};

/// Length of a text hash, bytes.
pub const HASH: usize = 16;

/// A symbol with the hash of the text that was embedded for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeSymbol {
    /// The symbol.
    pub symbol: Symbol,
    /// First bytes of the SHA-256 of its rendered text.
    pub hash: [u8; HASH],
}

pub(crate) fn put_number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push((n as u8 & 0x7f) | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Reads what the functions above wrote; every read is checked.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        let mut n = 0_u64;
        for shift in (0..64).step_by(7) {
            let b = *self.take(1)?.first().ok_or_else(cut)?;
            n |= u64::from(b & 0x7f) << shift;
            if b < 0x80 {
                return Ok(n);
            }
        }
        Err(cut())
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.bytes.len() {
            return Err(cut());
        }
        let (head, rest) = self.bytes.split_at(n);
        self.bytes = rest;
        Ok(head)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str> {
        let n = self.number()? as usize;
        std::str::from_utf8(self.take(n)?).map_err(|_| cut())
    }
}

fn cut() -> StoreError {
    StoreError::Corrupt("a list in the code index is cut short".into())
}

pub(crate) fn encode_symbols(symbols: &[CodeSymbol]) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(&mut out, symbols.len() as u64);
    for s in symbols {
        let y = &s.symbol;
        out.push(y.kind as u8);
        out.push(u8::from(y.exported));
        put_number(&mut out, y.line.into());
        put_number(&mut out, y.end_line.saturating_sub(y.line).into());
        put_number(&mut out, y.start.into());
        put_number(&mut out, y.end.saturating_sub(y.start).into());
        put_text(&mut out, &y.name);
        put_text(&mut out, &y.signature);
        put_text(&mut out, &y.doc);
        put_text(&mut out, &y.more_doc);
        out.extend_from_slice(&s.hash);
    }
    out
}

pub(crate) fn decode_symbols(bytes: &[u8]) -> Result<Vec<CodeSymbol>> {
    let mut r = Reader::new(bytes);
    let n = r.number()? as usize;
    let mut out = Vec::with_capacity(n.min(bytes.len()));
    for _ in 0..n {
        let flags = r.take(2)?;
        let (kind, exported) = (Kind::from_byte(flags[0]), flags[1] != 0);
        let line = r.number()? as u32;
        let end_line = line.saturating_add(r.number()? as u32);
        let start = r.number()? as u32;
        let end = start.saturating_add(r.number()? as u32);
        let symbol = Symbol {
            kind,
            exported,
            line,
            end_line,
            start,
            end,
            name: r.text()?.to_owned(),
            signature: r.text()?.to_owned(),
            doc: r.text()?.to_owned(),
            more_doc: r.text()?.to_owned(),
        };
        let mut hash = [0; HASH];
        hash.copy_from_slice(r.take(HASH)?);
        out.push(CodeSymbol { symbol, hash });
    }
    Ok(out)
}

/// Ascending ids as differences.
pub(crate) fn encode_ids(ids: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut last = 0;
    for id in ids {
        put_number(&mut out, u64::from(id.saturating_sub(last)));
        last = *id;
    }
    out
}

pub(crate) fn decode_ids(bytes: &[u8]) -> Result<Vec<u32>> {
    let mut r = Reader::new(bytes);
    let mut out = Vec::new();
    let mut last = 0_u32;
    while !r.is_empty() {
        last = last.saturating_add(r.number()? as u32);
        out.push(last);
    }
    Ok(out)
}

/// What is remembered of a file on disk, so that only what changed is read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenFile {
    /// Path, relative to the top of the checkout.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Nanoseconds since 1970.
    pub modified: i64,
    /// Inode.
    pub inode: u64,
    /// The file version that these bytes are.
    pub file: u32,
}

/// A folder of a checkout, or a file with rules: where it is equal no name came or went in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenFolder {
    /// Absolute path.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Nanoseconds since 1970.
    pub modified: i64,
    /// Inode.
    pub inode: u64,
}

/// Paths are sorted, so each shares its beginning with the one before.
pub(crate) fn encode_seen(files: &[SeenFile]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut last = "";
    for f in files {
        let shared = last
            .bytes()
            .zip(f.path.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        put_number(&mut out, shared as u64);
        let rest = &f.path.as_bytes()[shared..];
        put_number(&mut out, rest.len() as u64);
        out.extend_from_slice(rest);
        put_number(&mut out, f.size);
        put_number(&mut out, f.modified.cast_unsigned());
        put_number(&mut out, f.inode);
        put_number(&mut out, f.file.into());
        last = &f.path;
    }
    out
}

pub(crate) fn decode_seen(bytes: &[u8]) -> Result<Vec<SeenFile>> {
    let mut r = Reader::new(bytes);
    let mut out: Vec<SeenFile> = Vec::new();
    while !r.is_empty() {
        let shared = r.number()? as usize;
        let n = r.number()? as usize;
        let rest = r.take(n)?;
        let mut path = out
            .last()
            .map_or(&b""[..], |f| f.path.as_bytes())
            .get(..shared)
            .ok_or_else(cut)?
            .to_vec();
        path.extend_from_slice(rest);
        out.push(SeenFile {
            path: String::from_utf8(path).map_err(|_| cut())?,
            size: r.number()?,
            modified: r.number()?.cast_signed(),
            inode: r.number()?,
            file: r.number()? as u32,
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back_as_they_were() {
        let symbol = Symbol {
            name: "Größe.f".into(),
            kind: Kind::Method,
            line: 3,
            end_line: 9,
            start: 10,
            end: 400,
            signature: "fn f()".into(),
            doc: "Doc.".into(),
            more_doc: String::new(),
            exported: true,
        };
        let all = vec![
            CodeSymbol {
                symbol,
                hash: [7; HASH]
            };
            3
        ];
        let bytes = encode_symbols(&all);
        assert_eq!(decode_symbols(&bytes).expect("symbols"), all);
        for cut in 0..bytes.len() {
            assert!(decode_symbols(&bytes[..cut]).is_err(), "{cut}");
        }
        let ids = [1, 2, 300, 70_000];
        assert_eq!(decode_ids(&encode_ids(&ids)).expect("ids"), ids);
        let seen: Vec<SeenFile> = ["a/b.rs", "a/bc.rs", "é.rs", "z"]
            .iter()
            .zip(1..)
            .map(|(p, file)| SeenFile {
                path: (*p).into(),
                size: 5,
                modified: -7,
                inode: 9,
                file,
            })
            .collect();
        assert_eq!(decode_seen(&encode_seen(&seen)).expect("seen"), seen);
    }
}
