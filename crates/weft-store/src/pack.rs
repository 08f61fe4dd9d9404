//! JSON payloads as they stand in a column: small ones as they are, larger ones as zstd.
//!
//! The first byte tells which: 0 = plain, 1 = zstd.

use crate::{Result, StoreError};

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
/// Below this nothing is gained.
const MIN_COMPRESSED: usize = 512;
/// Largest payload that is unpacked, bytes.
const MAX_UNPACKED: usize = 256 << 20;

pub(crate) fn pack(bytes: &[u8]) -> Vec<u8> {
    if bytes.len() >= MIN_COMPRESSED
        && let Ok(mut z) = zstd::bulk::compress(bytes, 1)
        && z.len() < bytes.len()
    {
        z.insert(0, ZSTD);
        return z;
    }
    let mut plain = Vec::with_capacity(bytes.len() + 1);
    plain.push(PLAIN);
    plain.extend_from_slice(bytes);
    plain
}

pub(crate) fn unpack(column: &[u8]) -> Result<Vec<u8>> {
    match column.split_first() {
        Some((&PLAIN, rest)) => Ok(rest.to_vec()),
        Some((&ZSTD, rest)) => {
            let size = zstd::zstd_safe::get_frame_content_size(rest)
                .ok()
                .flatten()
                .unwrap_or(0) as usize;
            if size > MAX_UNPACKED {
                return Err(StoreError::Corrupt(format!("a payload of {size} bytes")));
            }
            zstd::bulk::decompress(rest, size)
                .map_err(|e| StoreError::Corrupt(format!("a payload does not unpack: {e}")))
        }
        None => Ok(Vec::new()),
        Some((b, _)) => Err(StoreError::Corrupt(format!("a payload of kind {b}"))),
    }
}

/// A packed JSON column as JSON; a missing or empty one as `Null`.
pub(crate) fn unpack_json(column: Option<&[u8]>) -> Result<serde_json::Value> {
    let Some(column) = column else {
        return Ok(serde_json::Value::Null);
    };
    let bytes = unpack(column)?;
    if bytes.is_empty() {
        return Ok(serde_json::Value::Null);
    }
    serde_json::from_slice(&bytes)
        .map_err(|e| StoreError::Corrupt(format!("a payload is not JSON: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_come_back_as_they_were() {
        for bytes in [&b""[..], b"{}", &[b'x'; 5000]] {
            assert_eq!(unpack(&pack(bytes)).expect("unpack"), bytes);
        }
        assert!(pack(&[b'x'; 5000]).len() < 100);
        assert!(unpack(&[7]).is_err());
        assert!(unpack(&[ZSTD, 1, 2, 3]).is_err());
    }
}
