//! A client of HTTP/1.1 that is as plain as can be, and can do everything wrong.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// A peer that takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// A reply to a request.
#[derive(Clone, Debug)]
pub struct Reply {
    /// 200, say.
    pub status: u16,
    /// By their names in small letters.
    pub headers: BTreeMap<String, String>,
    /// The body of the reply.
    pub body: String,
}

impl Reply {
    /// The body, which is JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Connects to a port of this machine.
#[track_caller]
pub fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&at, LIMIT).expect("somebody listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    stream.set_write_timeout(Some(LIMIT)).expect("a socket");
    stream
}

/// A request as a well-behaved client sends it.
pub fn request(method: &str, path: &str, host: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    text + "\r\n" + body
}

/// Sends that, and hears the answer.
#[track_caller]
pub fn exchange(at: SocketAddr, text: &str) -> Reply {
    let mut stream = connect(at);
    stream.write_all(text.as_bytes()).expect("it reads");
    heard(&mut stream).expect("an answer")
}

/// The header of a reader of metrics that takes OpenMetrics.
const OPENMETRICS: (&str, &str) = ("Accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5,*/*;q=0.1");

/// Asks for a path with a token.
#[track_caller]
pub fn get(at: SocketAddr, path: &str, token: &str) -> Reply {
    let said = format!("Bearer {token}");
    exchange(at, &request("GET", path, &at.to_string(), &[("Authorization", &said), OPENMETRICS], ""))
}

/// Asks at a Unix socket.
#[track_caller]
pub fn get_unix(at: &Path, path: &str) -> Reply {
    let mut stream = UnixStream::connect(at).expect("somebody listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    stream.write_all(request("GET", path, "localhost", &[OPENMETRICS], "").as_bytes()).expect("it reads");
    heard(&mut stream).expect("an answer")
}

/// The answer, up to the end of the connection.
///
/// # Errors
///
/// When none comes.
pub fn heard(stream: &mut impl Read) -> io::Result<Reply> {
    let mut bytes = Vec::new();
    let ended = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Err(ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
    };
    let mut lines = head.lines();
    let status =
        lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let is_chunked = headers.get("transfer-encoding").is_some_and(|value| value == "chunked");
    let body = if is_chunked { unchunked(body) } else { body.to_owned() };
    Ok(Reply { status, headers, body })
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, more)) = rest.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size, 16) else { break };
        let Some(piece) = more.get(..size) else { break };
        body += piece;
        rest = more.get(size + 2..).unwrap_or_default();
    }
    body
}

/// Server-sent events, as they come.
pub struct Events {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Events {
    /// Listens there.
    ///
    /// # Errors
    ///
    /// The reply that came instead.
    #[track_caller]
    pub fn listen(at: SocketAddr, token: &str) -> Result<Self, Reply> {
        let mut stream = connect(at);
        let said = format!("Bearer {token}");
        let text = request("GET", "/events", &at.to_string(), &[("Authorization", &said)], "");
        stream.write_all(text.as_bytes()).expect("it reads");
        let mut this = Self { stream, bytes: Vec::new() };
        let head = this.until(b"\r\n\r\n").expect("an answer");
        if head.starts_with("HTTP/1.1 200") {
            return Ok(this);
        }
        let mut all = head.into_bytes();
        let _ = this.stream.read_to_end(&mut this.bytes);
        all.extend(this.bytes);
        Err(heard(&mut all.as_slice()).expect("an answer"))
    }

    /// The next one.
    #[track_caller]
    pub fn next_event(&mut self) -> Value {
        loop {
            // Pieces of the connection are events, each with its length before it.
            let size = self.until(b"\r\n").expect("the stream goes on");
            let size = usize::from_str_radix(size.trim(), 16).expect("a length");
            while self.bytes.len() < size + 2 {
                self.more().expect("the stream goes on");
            }
            let piece: Vec<u8> = self.bytes.drain(..size + 2).collect();
            let text = String::from_utf8_lossy(&piece[..size]).into_owned();
            if let Some(data) = text.strip_prefix("data: ") {
                return serde_json::from_str(data.trim()).unwrap_or_else(|error| panic!("{error}: {text}"));
            }
        }
    }

    fn more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        let got = self.stream.read(&mut buffer)?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.bytes.extend(&buffer[..got]);
        Ok(())
    }

    fn until(&mut self, end: &[u8]) -> io::Result<String> {
        loop {
            if let Some(at) = self.bytes.windows(end.len()).position(|window| window == end) {
                let bytes: Vec<u8> = self.bytes.drain(..at + end.len()).collect();
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
            self.more()?;
        }
    }
}
