//! Content codings of captured bodies, peeled with limits.

use std::cell::Cell;
use std::io::{self, Read};

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

/// Decodes what a producer posted, under its `Content-Encoding` header: gzip and zstd.
///
/// # Errors
/// A text that names the header or the layer that failed.
pub fn decode(body: &[u8], encoding: &str) -> Result<Decoded, String> {
    peel(body, encoding, &["gzip", "x-gzip", "zstd"])
}

/// Decodes what went over the wire between a client and a provider: gzip, zstd, br and deflate.
///
/// # Errors
/// As [`decode`].
pub fn decode_wire(body: &[u8], encoding: &str) -> Result<Decoded, String> {
    peel(body, encoding, &["gzip", "x-gzip", "zstd", "br", "deflate"])
}

fn peel(body: &[u8], encoding: &str, known: &[&str]) -> Result<Decoded, String> {
    let header = encoding.trim().to_ascii_lowercase();
    let layers: Vec<&str> = header
        .split(',')
        .map(str::trim)
        .filter(|l| !l.is_empty() && *l != "identity")
        .collect();
    if let Some(unknown) = layers.iter().find(|l| !known.contains(l)) {
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
            "br" => brotli_layer(&decoded.bytes)?,
            // RFC 9110 means the zlib format; some servers send the bare stream.
            "deflate" if is_zlib(&decoded.bytes) => {
                read_layer(layer, flate2::read::ZlibDecoder::new(&decoded.bytes[..]))?
            }
            "deflate" => read_layer(layer, flate2::read::DeflateDecoder::new(&decoded.bytes[..]))?,
            _ => read_layer(layer, flate2::read::MultiGzDecoder::new(&decoded.bytes[..]))?,
        };
        decoded.bytes = bytes;
        decoded.salvaged |= cut;
    }
    Ok(decoded)
}

/// Whether bytes begin as RFC 1950 has it: method 8, and a header that is a multiple of 31.
fn is_zlib(b: &[u8]) -> bool {
    matches!(b, [cmf, flg, ..] if cmf & 0x0f == 8 && (u16::from(*cmf) << 8 | u16::from(*flg)) % 31 == 0)
}

/// The decoder calls a body that ends early invalid, so whether it asked for more is watched here.
fn brotli_layer(body: &[u8]) -> Result<(Vec<u8>, bool), String> {
    struct Source<'a> {
        left: &'a [u8],
        wanted_more: &'a Cell<bool>,
    }
    impl Read for Source<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.left.read(buffer)?;
            self.wanted_more.set(n == 0);
            Ok(n)
        }
    }
    struct Salvaging<'a, R>(R, &'a Cell<bool>);
    impl<R: Read> Read for Salvaging<'_, R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer).map_err(|e| match self.1.get() {
                true => io::ErrorKind::UnexpectedEof.into(),
                false => e,
            })
        }
    }
    let wanted_more = Cell::new(false);
    let source = Source {
        left: body,
        wanted_more: &wanted_more,
    };
    let decoder = brotli_decompressor::Decompressor::new(source, 64 * 1024);
    read_layer("br", Salvaging(decoder, &wanted_more))
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
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && !out.is_empty() => {
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

    fn brotli(b: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let params = brotli::enc::BrotliEncoderParams {
            quality: 1,
            ..Default::default()
        };
        brotli::BrotliCompress(&mut &b[..], &mut out, &params).expect("brotli");
        out
    }

    #[test]
    fn the_codings_of_the_wire() {
        let text = b"hello, hello, hello".repeat(2000);
        let zlib = {
            let mut e = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            e.write_all(&text).expect("zlib");
            e.finish().expect("zlib")
        };
        let bare = {
            let mut e = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
            e.write_all(&text).expect("deflate");
            e.finish().expect("deflate")
        };
        for (body, coding) in [
            (brotli(&text), "br"),
            (zlib, "deflate"),
            (bare, "deflate"),
            (brotli(&gzip(&text)), "gzip, br"),
        ] {
            let d = decode_wire(&body, coding).expect(coding);
            assert!(d.bytes == text && !d.salvaged, "{coding}");
            assert!(decode(&body, coding).is_err(), "{coding} is not posted");
        }
        let long: Vec<u8> = (0..400_000u32)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        let body = brotli(&long);
        let cut = decode_wire(&body[..body.len() / 2], "br").expect("cut");
        assert!(cut.salvaged && !cut.bytes.is_empty());
        assert!(decode_wire(b"\xff\xff\xff\xff\xff", "br").is_err());
        let bomb = brotli(&vec![0; MAX_DECODED + 1]);
        assert!(decode_wire(&bomb, "br").is_err());
    }

    #[test]
    fn bombs_are_refused() {
        let bomb = gzip(&vec![0; MAX_DECODED + 1]);
        assert!(decode(&bomb, "gzip").expect_err("bomb").contains("exceeds"));
    }
}
