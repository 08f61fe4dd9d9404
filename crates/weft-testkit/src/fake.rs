//! A provider of embeddings on loopback whose answers a test chooses.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// Status and JSON body of one answer.
pub type Answer = (u16, Value);

/// As status: the provider dies before it answers.
pub const DIES: u16 = 0;
/// As status: the provider dies in the middle of its answer.
pub const CUT: u16 = 1;

type Handler = Box<dyn FnMut(&str, &Value) -> Answer + Send>;

/// A running fake; it ends with the value.
pub struct FakeProvider {
    address: SocketAddr,
    calls: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl std::fmt::Debug for FakeProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeProvider")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl FakeProvider {
    /// Starts a fake; `handler` gets the path and the JSON body of each request.
    ///
    /// # Panics
    /// Where no loopback port can be had.
    pub fn start(handler: impl FnMut(&str, &Value) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = listener.local_addr().expect("its address");
        let calls = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let handler: Arc<Mutex<Handler>> = Arc::new(Mutex::new(Box::new(handler)));
        let (counted, stopped) = (calls.clone(), stop.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (handler, counted) = (handler.clone(), counted.clone());
                std::thread::spawn(move || serve(stream, &handler, &counted));
            }
        });
        Self {
            address,
            calls,
            stop,
        }
    }

    /// Base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests answered so far.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The accepting thread wakes, sees the flag and ends.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, handler: &Mutex<Handler>, calls: &AtomicUsize) {
    let Ok(clone) = stream.try_clone() else {
        return;
    };
    let mut reader = BufReader::new(clone);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(n) = line.strip_prefix("content-length:") {
                length = n.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let json = serde_json::from_slice(&body).unwrap_or_default();
        calls.fetch_add(1, Ordering::SeqCst);
        let (status, answer) = match handler.lock() {
            Ok(mut h) => h(&path, &json),
            Err(_) => return,
        };
        if status == DIES {
            return;
        }
        let text = answer.to_string();
        if status == CUT {
            let half = &text[..text.len() / 2];
            let head = "HTTP/1.1 200 X\r\nContent-Type: application/json\r\nContent-Length:";
            // It was to be cut off anyway.
            let _ = write!(stream, "{head} {}\r\n\r\n{half}", text.len());
            return;
        }
        let sent = write!(
            stream,
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        if sent.is_err() {
            return;
        }
    }
}
