//! The scraper: a GET whose body is counted and discarded, at minimal cost.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Bytes read at once.
const BUFFER: usize = 256 * 1024;
/// Longest pause in a response. The originals need seconds for large bodies.
const PATIENCE: Duration = Duration::from_secs(120);

/// The result of a request.
pub struct Answer {
    /// Bytes of the body as sent.
    pub bytes: u64,
    /// Time from the request to the last byte.
    pub wall: Duration,
}

/// Scrapes `path`; `gzip` requests a compressed body.
pub fn scrape(port: u16, path: &str, gzip: bool) -> Result<Answer> {
    let start = Instant::now();
    let bytes = get(port, path, if gzip { GZIP } else { "" }, |_| {})?;
    Ok(Answer { bytes, wall: start.elapsed() })
}

/// A header that requests a compressed body.
pub const GZIP: &str = "Accept-Encoding: gzip\r\n";

/// Returns the whole body.
pub fn body(port: u16, path: &str) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    get(port, path, "", |part| body.extend_from_slice(part))?;
    Ok(body)
}

/// HealthTimes for a successful response.
pub fn wait_for(port: u16, path: &str, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        match get(port, path, "", |_| {}) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Sends a request with these header lines, each of which ends with a line break, and passes the decoded body in
/// parts to `part`. Returns its length.
///
/// # Errors
///
/// There is no response, it is unsuccessful or truncated, or it is not compressed although that was requested.
pub fn get(port: u16, path: &str, headers: &str, mut part: impl FnMut(&[u8])) -> Result<u64> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .with_context(|| format!("port {port} does not answer"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let gzip = headers.contains(GZIP);
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}Connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut buffer = vec![0; BUFFER];
    let mut head = Vec::new();
    let (mut body, mut bytes) = (None, 0);
    loop {
        let len = stream.read(&mut buffer)?;
        if len == 0 {
            break;
        }
        let read = &buffer[..len];
        let mut count = |data: &[u8]| {
            bytes += data.len() as u64;
            part(data);
        };
        match &mut body {
            Some(decoder) => Chunks::feed(decoder, read, &mut count)?,
            None => {
                head.extend_from_slice(read);
                let Some(end) = head.windows(4).position(|part| part == b"\r\n\r\n") else {
                    continue;
                };
                let (lines, rest) = head.split_at(end + 4);
                let lines = String::from_utf8_lossy(lines).to_ascii_lowercase();
                if !lines.starts_with("http/1.1 200") {
                    bail!("{path}: {}", lines.lines().next().unwrap_or_default());
                }
                if gzip && !lines.contains("content-encoding: gzip") {
                    bail!("{path}: the body is not compressed");
                }
                let chunked = lines.contains("transfer-encoding: chunked");
                let decoder = body.insert(Chunks { chunked, ..Chunks::default() });
                decoder.feed(rest, &mut count)?;
            }
        }
    }
    match body {
        None => bail!("{path}: the connection was closed without an answer"),
        Some(Chunks { chunked: true, is_complete: false, .. }) => {
            bail!("{path}: the answer is cut")
        }
        Some(_) => Ok(bytes),
    }
}

/// A decoder for chunked bodies.
#[derive(Default)]
struct Chunks {
    chunked: bool,
    /// Remaining bytes of the current chunk, including its line break.
    left: usize,
    /// The received part of the line with the next chunk's length.
    line: Vec<u8>,
    /// True after the last chunk.
    is_complete: bool,
}

impl Chunks {
    fn feed(&mut self, mut read: &[u8], data: &mut impl FnMut(&[u8])) -> Result<()> {
        if !self.chunked {
            data(read);
            return Ok(());
        }
        // The line break after the last chunk may arrive alone.
        while !read.is_empty() && !self.is_complete {
            if self.left > 0 {
                let (now, rest) = read.split_at(self.left.min(read.len()));
                // The last two bytes are the line break.
                data(&now[..now.len().min(self.left.saturating_sub(2))]);
                self.left -= now.len();
                read = rest;
                continue;
            }
            let end = read.iter().position(|byte| *byte == b'\n').map_or(read.len(), |at| at + 1);
            let (now, rest) = read.split_at(end);
            self.line.extend_from_slice(now);
            read = rest;
            if self.line.ends_with(b"\n") {
                let text = String::from_utf8_lossy(&self.line);
                let digits = text.trim().split(';').next().unwrap_or_default();
                let len = usize::from_str_radix(digits, 16)
                    .with_context(|| format!("chunk length {text:?}"))?;
                self.left = if len == 0 { 0 } else { len + 2 };
                self.line.clear();
                self.is_complete = len == 0;
            }
        }
        Ok(())
    }
}
