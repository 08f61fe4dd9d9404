//! A provider of models on loopback that a test scripts down to the bytes and the moments.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request as it came.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// `POST`, …
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Headers in their order; names as they came.
    pub headers: Vec<(String, String)>,
    /// Body, without the framing of chunks.
    pub body: Vec<u8>,
}

impl Heard {
    /// A header; "" = none.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map_or("", |(_, v)| v)
    }
}

/// The connection on which a script answers.
#[derive(Debug)]
pub struct Wire(TcpStream);

impl Wire {
    /// Sends bytes at once.
    ///
    /// # Errors
    /// Where the other side is gone.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.0.write_all(bytes.as_ref())?;
        self.0.flush()
    }

    /// Sends one chunk of a chunked body; an empty one ends it.
    ///
    /// # Errors
    /// Where the other side is gone.
    pub fn chunk(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let b = bytes.as_ref();
        let mut out = format!("{:x}\r\n", b.len()).into_bytes();
        out.extend_from_slice(b);
        out.extend_from_slice(b"\r\n");
        self.send(out)
    }

    /// Sends the head of an answer with a chunked body.
    ///
    /// # Errors
    /// Where the other side is gone.
    pub fn chunked(&mut self, status: u16, headers: &str) -> io::Result<()> {
        self.send(format!(
            "HTTP/1.1 {status} X\r\n{headers}Transfer-Encoding: chunked\r\n\r\n"
        ))
    }

    /// Sends a whole answer.
    ///
    /// # Errors
    /// Where the other side is gone.
    pub fn answer(&mut self, status: u16, headers: &str, body: impl AsRef<[u8]>) -> io::Result<()> {
        let b = body.as_ref();
        let head = format!(
            "HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n",
            b.len()
        );
        self.send([head.as_bytes(), b].concat())
    }

    /// Waits until the other side closes.
    pub fn until_closed(&mut self) {
        let mut left = Vec::new();
        // An error means the same: nobody is there.
        let _ = self.0.read_to_end(&mut left);
    }
}

/// A running upstream; it ends with the value.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Upstream {
    /// Starts one. `script` answers each request on its connection, on a thread of its own; after an
    /// error the connection is closed.
    ///
    /// # Panics
    /// Where no loopback port can be had.
    pub fn start(
        script: impl Fn(Heard, &mut Wire) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = listener.local_addr().expect("its address");
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, script) = (stop.clone(), Arc::new(script));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let script = script.clone();
                std::thread::spawn(move || {
                    // What is sent is to be there, not to wait for more.
                    let _ = stream.set_nodelay(true);
                    let mut wire = Wire(stream);
                    let Ok(clone) = wire.0.try_clone() else {
                        return;
                    };
                    let mut reader = BufReader::new(clone);
                    while let Ok(Some(heard)) = hear(&mut reader) {
                        if script(heard, &mut wire).is_err() {
                            break;
                        }
                    }
                    let _ = wire.0.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, stop }
    }

    /// Base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The accepting thread wakes, sees the flag and ends.
        let _ = TcpStream::connect(self.address);
    }
}

/// Reads a request; `None` at the end of the connection.
fn hear(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Heard>> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut words = first.split(' ');
    let mut heard = Heard {
        method: words.next().unwrap_or_default().to_owned(),
        target: words.next().unwrap_or_default().to_owned(),
        ..Heard::default()
    };
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            heard
                .headers
                .push((name.to_owned(), value.trim().to_owned()));
        }
    }
    if heard
        .header("transfer-encoding")
        .eq_ignore_ascii_case("chunked")
    {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk)?;
            if size == 0 {
                break;
            }
            heard.body.extend_from_slice(&chunk[..size]);
        }
    } else if let Ok(n) = heard.header("content-length").parse() {
        heard.body = vec![0; n];
        reader.read_exact(&mut heard.body)?;
    }
    Ok(Some(heard))
}

/// Puts content codings on a body, the first first: `gzip`, `deflate`, `zstd`, `br`.
///
/// # Panics
/// For another coding.
pub fn coded(body: &[u8], codings: &[&str]) -> Vec<u8> {
    codings
        .iter()
        .fold(body.to_vec(), |b, coding| match *coding {
            "gzip" => {
                let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                e.write_all(&b).and_then(|()| e.finish()).expect("gzip")
            }
            "deflate" => {
                let mut e =
                    flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                e.write_all(&b).and_then(|()| e.finish()).expect("deflate")
            }
            "zstd" => zstd::bulk::compress(&b, 1).expect("zstd"),
            "br" => {
                let mut out = Vec::new();
                brotli::BrotliCompress(
                    &mut &b[..],
                    &mut out,
                    &brotli::enc::BrotliEncoderParams::default(),
                )
                .expect("br");
                out
            }
            other => unreachable!("coding {other}"),
        })
}
