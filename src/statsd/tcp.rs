//! The TCP listener: a task for each connection, lines up to 4095 bytes.
//!
//! Limits and counters are those of the original: a longer line closes its connection, lines before it count. All
//! connections share one [`Worker`]; a task holds it only while it takes the lines of one read.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ingest::{Shared, Worker};
use super::metrics::{Listener, bump};

/// Longest line with its line feed.
const MAX_LINE: usize = 4_096;
/// Bytes read at once; what is left of a line stays in front.
const BUFFER: usize = 4 * MAX_LINE;
/// Reads of a connection after the stop: more than a receive buffer holds.
const LAST_READS: usize = 1_000;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// Accepts connections until `stop` changes, then lets each take what it has received.
pub(crate) async fn run(
    shared: Arc<Shared>,
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
) {
    let worker = Arc::new(Mutex::new(Worker::new(&shared, Listener::Tcp)));
    let mut connections = JoinSet::new();
    let mut pause = FIRST_PAUSE;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
            // Reaps tasks that have ended, so that the set holds open connections only.
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                pause = FIRST_PAUSE;
                bump(&shared.metrics.tcp_connections);
                connections.spawn(serve(
                    Arc::clone(&shared),
                    Arc::clone(&worker),
                    stream,
                    stop.clone(),
                ));
            }
            Err(error) if is_momentary(&error) => bump(&shared.metrics.accept_errors),
            Err(error) => {
                // Out of descriptors or memory: connections that end give some back.
                bump(&shared.metrics.accept_errors);
                tracing::warn!(%error, "a TCP connection cannot be accepted, trying again in {pause:?}");
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = stop.wait_for(|stop| *stop) => break,
                }
                pause = (pause * 2).min(LAST_PAUSE);
            }
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Whether an error concerns one connection that is gone already.
fn is_momentary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// How a connection ended.
enum End {
    /// End of stream, or shutdown.
    Done,
    TooLong,
    Failed(io::Error),
}

async fn serve(
    shared: Arc<Shared>,
    worker: Arc<Mutex<Worker>>,
    mut stream: TcpStream,
    stop: watch::Receiver<bool>,
) {
    shared.metrics.tcp_open.fetch_add(1, Ordering::Relaxed);
    // The stream outlives the counting: who sees it closed also sees how it ended.
    let end = read(&worker, &mut stream, stop).await;
    shared.metrics.tcp_open.fetch_sub(1, Ordering::Relaxed);
    match end {
        End::Done => {}
        End::TooLong => {
            bump(&shared.metrics.tcp_too_long_lines);
            tracing::debug!(
                "a TCP line is longer than {} bytes, closing its connection",
                MAX_LINE - 1
            );
        }
        End::Failed(error) => {
            bump(&shared.metrics.tcp_connection_errors);
            tracing::debug!(%error, "a TCP connection failed");
        }
    }
}

async fn read(
    worker: &Mutex<Worker>,
    stream: &mut TcpStream,
    mut stop: watch::Receiver<bool>,
) -> End {
    let mut lines = LineBuffer::default();
    let mut last_reads = LAST_READS;
    loop {
        let space = lines.space();
        let read = tokio::select! {
            read = stream.read(&mut *space) => read,
            _ = stop.wait_for(|stop| *stop) => {
                last_reads -= 1;
                match stream.try_read(space) {
                    _ if last_reads == 0 => Ok(0),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                    read => read,
                }
            }
        };
        match read {
            Ok(0) => {
                last_line(worker, lines.rest());
                return End::Done;
            }
            Ok(length) => {
                lines.filled(length);
                let mut too_long = false;
                feed(worker, |worker| {
                    too_long = lines.take(|line| worker.stream_line(strip_return(line))).is_err();
                });
                if too_long {
                    return End::TooLong;
                }
            }
            // The original takes what came before a reset for the last line and counts no error.
            Err(_) if !lines.rest().is_empty() => {
                last_line(worker, lines.rest());
                return End::Done;
            }
            Err(error) => return End::Failed(error),
        }
    }
}

/// What stood behind the last line feed. A carriage return at its end belongs to it: there is no line end.
fn last_line(worker: &Mutex<Worker>, rest: &[u8]) {
    if !rest.is_empty() {
        feed(worker, |worker| worker.stream_line(rest));
    }
}

fn feed(worker: &Mutex<Worker>, lines: impl FnOnce(&mut Worker)) {
    let mut worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
    worker.begin();
    lines(&mut worker);
    worker.end();
}

fn strip_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A line does not fit.
struct TooLong;

/// Bytes of a stream on their way to being lines.
#[derive(Default)]
struct LineBuffer {
    bytes: Vec<u8>,
    length: usize,
}

impl LineBuffer {
    /// Where the next bytes go; never empty.
    fn space(&mut self) -> &mut [u8] {
        if self.bytes.is_empty() {
            self.bytes = vec![0; BUFFER];
        }
        self.bytes.get_mut(self.length..).unwrap_or_default()
    }

    fn filled(&mut self, length: usize) {
        self.length = (self.length + length).min(self.bytes.len());
    }

    /// What has no line feed yet.
    fn rest(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Takes the complete lines out.
    fn take(&mut self, mut each: impl FnMut(&[u8])) -> Result<(), TooLong> {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', self.rest()) {
            let line = self.rest().get(start..end).unwrap_or_default();
            if line.len() >= MAX_LINE {
                return Err(TooLong);
            }
            each(line);
            start = end + 1;
        }
        self.bytes.copy_within(start..self.length, 0);
        self.length -= start;
        if self.length >= MAX_LINE { Err(TooLong) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `stream` in pieces of `size` and returns the lines and whether one was too long.
    fn lines(stream: &[u8], size: usize) -> (Vec<Vec<u8>>, Vec<u8>, bool) {
        let mut buffer = LineBuffer::default();
        let mut out = Vec::new();
        let mut rest = stream;
        while !rest.is_empty() {
            let space = buffer.space();
            let length = rest.len().min(size).min(space.len());
            assert!(length > 0);
            space[..length].copy_from_slice(&rest[..length]);
            rest = &rest[length..];
            buffer.filled(length);
            if buffer.take(|line| out.push(line.to_vec())).is_err() {
                return (out, Vec::new(), true);
            }
        }
        (out, buffer.rest().to_vec(), false)
    }

    #[test]
    fn lines_do_not_depend_on_how_they_arrive() {
        let longest = vec![b'n'; MAX_LINE - 1];
        let stream = [b"a\n\nb\r\n", &longest[..], b"\nrest"].concat();
        for size in [1, 2, 7, 4_095, 4_096, 4_097, 100_000] {
            let (out, rest, too_long) = lines(&stream, size);
            assert_eq!(out, [&b"a"[..], b"", b"b\r", &longest], "pieces of {size}");
            assert_eq!(rest, b"rest");
            assert!(!too_long);
        }
    }

    #[test]
    fn a_line_of_4096_bytes_is_too_long() {
        for tail in [&b"\n"[..], b"", b"\nmore\n"] {
            let stream = [b"before\n", &vec![b'n'; MAX_LINE][..], tail].concat();
            for size in [1, 4_096, 100_000] {
                let (out, _, too_long) = lines(&stream, size);
                assert_eq!(out, [b"before"]);
                assert!(too_long);
            }
        }
    }
}
