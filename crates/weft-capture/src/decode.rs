//! Content codings of captured bodies, peeled with limits.

use std::io::Read;

/// Most bytes that one layer may give.
pub const MAX_DECODED: usize = 50_331_648;

/// A decoded body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether the stream ended early and only its beginning is here.
    pub salvaged: bool,
}

/// Decodes a body under a `Content-Encoding` header.
///
/// # Errors
/// A text that names the header or the layer that failed.
pub fn decode(body: &[u8], encoding: &str) -> Result<Decoded, String> {
    let header = encoding.trim().to_ascii_lowercase();
    let layers: Vec<&str> = header
        .split(',')
        .map(str::trim)
        .filter(|l| !l.is_empty() && *l != "identity")
        .collect();
    if let Some(unknown) = layers
        .iter()
        .find(|l| !matches!(**l, "gzip" | "x-gzip" | "zstd"))
    {
        return Err(format!(
            "unsupported content-encoding {header:?} ({unknown})"
        ));
    }
    let mut decoded = Decoded {
        bytes: body.to_vec(),
        salvaged: false,
    };
    for layer in layers.into_iter().rev() {
        if decoded.bytes.is_empty() {
            return Err(format!(
                "{layer}: empty body under a claimed content-coding"
            ));
        }
        let (bytes, cut) = match layer {
            "zstd" => zstd_layer(&decoded.bytes)?,
            _ => read_layer(layer, flate2::read::MultiGzDecoder::new(&decoded.bytes[..]))?,
        };
        decoded.bytes = bytes;
        decoded.salvaged |= cut;
    }
    Ok(decoded)
}

fn zstd_layer(body: &[u8]) -> Result<(Vec<u8>, bool), String> {
    let mut decoder = zstd::stream::read::Decoder::new(body).map_err(|e| format!("zstd: {e}"))?;
    // 2^25 is the largest power of two within the cap.
    decoder
        .window_log_max(25)
        .map_err(|e| format!("zstd: {e}"))?;
    read_layer("zstd", decoder)
}

fn read_layer(name: &str, mut reader: impl Read) -> Result<(Vec<u8>, bool), String> {
    let mut out = Vec::new();
    let mut buffer = [0; 64 * 1024];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok((out, false)),
            Ok(n) => {
                if out.len() + n > MAX_DECODED {
                    return Err(format!("{name}: decoded body exceeds {MAX_DECODED} bytes"));
                }
                out.extend_from_slice(&buffer[..n]);
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof && !out.is_empty() => {
                return Ok((out, true));
            }
            Err(e) => return Err(format!("{name}: {e}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(b: &[u8]) -> Vec<u8> {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        e.write_all(b).expect("gzip");
        e.finish().expect("gzip")
    }

    #[test]
    fn layers_are_peeled_from_the_right() {
        let body = zstd::bulk::compress(&gzip(b"hello"), 1).expect("zstd");
        let d = decode(&body, " Gzip, identity, ZSTD ").expect("decode");
        assert_eq!(d.bytes, b"hello");
        assert!(!d.salvaged);
        assert_eq!(decode(b"x", "").expect("identity").bytes, b"x");
        assert!(decode(b"x", "br").expect_err("br").contains("\"br\""));
        assert!(
            decode(b"", "gzip")
                .expect_err("empty")
                .contains("empty body")
        );
        assert!(decode(b"nonsense", "gzip").is_err());
    }

    #[test]
    fn members_are_joined_and_a_cut_stream_is_salvaged() {
        let two = [gzip(b"a"), gzip(b"b")].concat();
        assert_eq!(decode(&two, "x-gzip").expect("two").bytes, b"ab");
        let long = gzip(&vec![b'x'; 500_000]);
        let d = decode(&long[..long.len() - 9], "gzip").expect("cut");
        assert!(d.salvaged && !d.bytes.is_empty());
    }

    #[test]
    fn bombs_are_refused() {
        let bomb = gzip(&vec![0; MAX_DECODED + 1]);
        assert!(decode(&bomb, "gzip").expect_err("bomb").contains("exceeds"));
    }
}
