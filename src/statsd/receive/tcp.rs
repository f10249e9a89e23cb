//! TCP connections and their lines, up to 4095 bytes each.
//!
//! Limits and counters are those of the original: a longer line closes its connection, lines before it count. An idle
//! connection costs its descriptor and a few words: bytes are read into one buffer for all, and a connection keeps those
//! alone of which no line has been made yet. Descriptors come out of the senders' share; when that is used up, a
//! connection that has been silent for long makes room, and until there is one new ones wait: what they send waits with
//! them. When to read and in which order lines take effect is the business
//! of [`super::intake`].

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use super::net::{self, Stamp};
use crate::descriptors::{Descriptors, Permit, Share};
use crate::statsd::ingest::Worker;
use crate::statsd::metrics::{Metrics, bump};

/// Longest line with its line feed.
const MAX_LINE: usize = 4_096;
/// Bytes read at once.
const BUFFER: usize = 64 << 10;
/// Connections accepted before others have their turn; the backlog holds no more.
const ACCEPTED_AT_ONCE: usize = 1_024;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// A connection that spoke more recently than this makes no room for others: its next line would be lost, while a new
/// one can wait.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two lines of the log about the limit.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Something that a connection gave and that has not taken effect yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The connection.
    pub(crate) slot: usize,
    /// How many bytes; 0 for its end.
    pub(crate) bytes: usize,
    /// When the last of them came.
    pub(crate) stamp: Option<Stamp>,
    /// There is one line at most, which came when `stamp` says; the others of more may have come before.
    pub(crate) is_one: bool,
}

/// How a connection ended.
#[derive(Debug)]
enum End {
    /// End of stream, or it had to go.
    Done,
    TooLong,
    Failed(io::Error),
}

#[derive(Debug)]
struct Connection {
    /// None once it has ended.
    open: Option<(TcpStream, Permit<'static>)>,
    lines: LineBuffer,
    end: Option<End>,
    /// Arrivals that have not taken effect yet.
    waiting: usize,
    /// Its place among the quiet ones.
    turn: u64,
    /// When it said something last.
    since: Instant,
}

/// Why a connection is closed from this side.
#[derive(Clone, Copy, Debug)]
enum Reason {
    /// Its descriptor is needed for another.
    Displaced,
    /// It was silent for as long as the flag allows.
    Idle,
}

/// The listener and its connections, as the thread sees them that reads from them.
pub(crate) struct TcpSource {
    listener: TcpListener,
    /// Token of the first connection; the others follow by slot.
    first: usize,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Slots of open connections, the one that has been silent longest first.
    quiet: BTreeMap<u64, usize>,
    turns: u64,
    space: Vec<u8>,
    /// Connections that may hold more than has been read.
    pub(crate) unread: Vec<usize>,
    /// Ended; they are closed when what they gave can be scraped.
    ended: Vec<usize>,
    idle: Option<Duration>,
    descriptors: &'static Descriptors,
    accept_at: Option<Instant>,
    /// Accepted, but without a place so far. While there is one, no other is accepted.
    door: Option<TcpStream>,
    pause: Duration,
    /// Connections displaced since the log said so, and when it did.
    displaced: (u64, Option<Instant>),
}

impl std::fmt::Debug for TcpSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpSource").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl TcpSource {
    /// Takes a listener that is known to the poll by `token` from here on, its connections by `first` and those after.
    ///
    /// # Errors
    /// When the poll refuses it.
    pub(crate) fn new(
        listener: std::net::TcpListener,
        idle: Option<Duration>,
        descriptors: &'static Descriptors,
        registry: &Registry,
        (token, first): (Token, usize),
    ) -> io::Result<Self> {
        let mut listener = TcpListener::from_std(listener);
        registry.register(&mut listener, token, Interest::READABLE)?;
        Ok(Self {
            listener,
            first,
            connections: Vec::new(),
            free: Vec::new(),
            quiet: BTreeMap::new(),
            turns: 0,
            space: Vec::new(),
            unread: Vec::new(),
            ended: Vec::new(),
            idle,
            descriptors,
            accept_at: None,
            door: None,
            pause: FIRST_PAUSE,
            displaced: (0, None),
        })
    }

    /// When something is due that no event tells of: accepting again, or the end of an idle connection.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let idle = self.idle.and_then(|idle| {
            let slot = *self.quiet.first_key_value()?.1;
            Some(self.connection(slot)?.since + idle)
        });
        self.accept_at.into_iter().chain(idle).min()
    }

    /// Does what is due.
    pub(crate) fn tick(
        &mut self,
        metrics: &Metrics,
        registry: &Registry,
        arrivals: &mut Vec<Arrival>,
    ) {
        let now = Instant::now();
        while let Some(idle) = self.idle
            && let Some((&turn, &slot)) = self.quiet.first_key_value()
            && self.connection(slot).is_none_or(|connection| connection.since + idle <= now)
        {
            self.quiet.remove(&turn);
            self.close(slot, Reason::Idle, metrics, arrivals);
        }
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept(metrics, registry, arrivals);
        }
    }

    /// Accepts the connections that wait and reads from each; `arrivals` says what they gave.
    pub(crate) fn accept(
        &mut self,
        metrics: &Metrics,
        registry: &Registry,
        arrivals: &mut Vec<Arrival>,
    ) {
        self.accept_at = None;
        if let Some(stream) = self.door.take()
            && !self.admit(stream, metrics, registry, arrivals)
        {
            return;
        }
        let mut may_displace = true;
        for _ in 0..ACCEPTED_AT_ONCE {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    (self.pause, may_displace) = (FIRST_PAUSE, true);
                    bump(&metrics.tcp_connections);
                    if !self.admit(stream, metrics, registry, arrivals) {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_momentary(&error) => bump(&metrics.accept_errors),
                Err(error)
                    if is_full(&error) && may_displace && self.displace(metrics, arrivals) =>
                {
                    may_displace = false;
                }
                Err(error) => {
                    // Connections that end give descriptors and memory back.
                    bump(&metrics.accept_errors);
                    tracing::warn!(%error, "a TCP connection cannot be accepted, trying again in {:?}", self.pause);
                    self.accept_at = Some(Instant::now() + self.pause);
                    self.pause = (self.pause * 2).min(LAST_PAUSE);
                    return;
                }
            }
        }
        self.accept_at = Some(Instant::now());
    }

    /// Gives a connection a place and reads from it; `false` if it has to wait for one.
    fn admit(
        &mut self,
        mut stream: TcpStream,
        metrics: &Metrics,
        registry: &Registry,
        arrivals: &mut Vec<Arrival>,
    ) -> bool {
        let mut permit = self.descriptors.take(Share::Senders);
        if permit.is_none() && self.displace(metrics, arrivals) {
            permit = self.descriptors.take(Share::Senders);
        }
        let Some(permit) = permit else {
            self.door = Some(stream);
            let longest = self.quiet.first_key_value().and_then(|(_, slot)| self.connection(*slot));
            let latest = Instant::now() + LAST_PAUSE;
            self.accept_at = Some(longest.map_or(latest, |longest| longest.since + PATIENCE));
            self.say_limit(0);
            return false;
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        if let Err(error) =
            registry.register(&mut stream, Token(self.first + slot), Interest::READABLE)
        {
            bump(&metrics.accept_errors);
            tracing::warn!(%error, "a TCP connection cannot be watched, closing it");
            self.free.push(slot);
            return true;
        }
        metrics.tcp_open.fetch_add(1, Ordering::Relaxed);
        self.turns += 1;
        self.quiet.insert(self.turns, slot);
        if let Some(place) = self.connections.get_mut(slot) {
            *place = Some(Connection {
                open: Some((stream, permit)),
                lines: LineBuffer::default(),
                end: None,
                waiting: 0,
                turn: self.turns,
                since: Instant::now(),
            });
        }
        self.read(slot, arrivals);
        true
    }

    /// Closes the connection that has been silent longest; `false` if none has been for long enough.
    fn displace(&mut self, metrics: &Metrics, arrivals: &mut Vec<Arrival>) -> bool {
        let Some((&turn, &slot)) = self.quiet.first_key_value() else { return false };
        if self.connection(slot).is_some_and(|longest| longest.since.elapsed() < PATIENCE) {
            return false;
        }
        self.quiet.remove(&turn);
        self.close(slot, Reason::Displaced, metrics, arrivals);
        self.say_limit(1);
        true
    }

    /// Says that the limit acts, by closing so many connections or by letting one wait.
    fn say_limit(&mut self, closed: u64) {
        let (count, said) = &mut self.displaced;
        *count += closed;
        if said.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            tracing::warn!(
                closed = *count,
                limit = self.descriptors.limit(),
                "the limit of open files has no room for more TCP senders: new ones wait until others end or have been silent for {PATIENCE:?}"
            );
            self.displaced = (0, Some(Instant::now()));
        }
    }

    /// Takes what a connection holds and closes it at once.
    fn close(
        &mut self,
        slot: usize,
        reason: Reason,
        metrics: &Metrics,
        arrivals: &mut Vec<Arrival>,
    ) {
        bump(match reason {
            Reason::Displaced => &metrics.tcp_displaced,
            Reason::Idle => &metrics.tcp_idle,
        });
        self.read(slot, arrivals);
        if let Some(connection) = self.connection_mut(slot)
            && connection.end.is_none()
        {
            connection.end(slot, End::Done, arrivals);
        }
        self.let_go(slot);
    }

    fn connection(&self, slot: usize) -> Option<&Connection> {
        self.connections.get(slot)?.as_ref()
    }

    fn connection_mut(&mut self, slot: usize) -> Option<&mut Connection> {
        self.connections.get_mut(slot)?.as_mut()
    }

    /// Gives the descriptor of a connection back.
    fn let_go(&mut self, slot: usize) {
        if let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) {
            connection.open = None;
            self.quiet.remove(&connection.turn);
        }
    }

    /// Reads what a connection holds; `arrivals` says what it gave.
    pub(crate) fn read(&mut self, slot: usize, arrivals: &mut Vec<Arrival>) {
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        if connection.end.is_some() {
            return;
        }
        if self.space.is_empty() {
            self.space = vec![0; BUFFER];
        }
        let mut heard = false;
        while let Some((stream, _)) = &connection.open {
            match net::receive(stream, &mut self.space) {
                Ok((0, _)) => connection.end(slot, End::Done, arrivals),
                Ok((length, stamp)) => {
                    let bytes = self.space.get(..length).unwrap_or_default();
                    let is_one = memchr::memchr_iter(b'\n', bytes).nth(1).is_none();
                    connection.lines.bytes.extend_from_slice(bytes);
                    connection.waiting += 1;
                    arrivals.push(Arrival { slot, bytes: length, stamp, is_one });
                    heard = true;
                    if length < BUFFER {
                        continue;
                    }
                    // Others have their turn first.
                    self.unread.push(slot);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => connection.end(slot, End::Failed(error), arrivals),
            }
            break;
        }
        if heard {
            self.turns += 1;
            self.quiet.remove(&connection.turn);
            self.quiet.insert(self.turns, slot);
            (connection.turn, connection.since) = (self.turns, Instant::now());
        }
        if connection.end.is_some() {
            self.quiet.remove(&connection.turn);
        }
    }

    /// Has an arrival take effect.
    pub(crate) fn apply(&mut self, arrival: &Arrival, worker: &mut Worker) {
        let Some(connection) = self.connections.get_mut(arrival.slot).and_then(Option::as_mut)
        else {
            return;
        };
        connection.waiting = connection.waiting.saturating_sub(1);
        let mut lines = std::mem::take(&mut connection.lines);
        // Nothing behind a line that is too long counts.
        if !matches!(connection.end, Some(End::TooLong))
            && lines.take(arrival.bytes, |line| worker.stream_line(strip_return(line))).is_err()
        {
            connection.end = Some(End::TooLong);
        }
        if connection.end.is_some() && connection.waiting == 0 {
            self.quiet.remove(&connection.turn);
            self.ended.push(arrival.slot);
            // What stands behind the last line feed. A carriage return at its end belongs to it: there is no line end.
            // The original takes what came before a reset for the last line too and counts no error.
            if !matches!(connection.end, Some(End::TooLong)) && !lines.rest().is_empty() {
                connection.end = Some(End::Done);
                worker.stream_line(lines.rest());
            }
        }
        connection.lines = lines;
    }

    /// Puts the connections in order after a panic while one of them was applied: its lines are gone.
    pub(crate) fn recover(&mut self) {
        for (slot, connection) in self.connections.iter().enumerate() {
            if let Some(connection) = connection
                && connection.end.is_some()
                && connection.waiting == 0
                && !self.ended.contains(&slot)
            {
                self.ended.push(slot);
            }
        }
    }

    /// Closes the connections that have ended. What they gave has been counted: who sees one closed also sees how it
    /// ended.
    pub(crate) fn close_ended(&mut self, metrics: &Metrics) {
        for slot in self.ended.drain(..) {
            let Some(connection) = self.connections.get_mut(slot).and_then(Option::take) else {
                continue;
            };
            self.free.push(slot);
            if self.door.is_some() {
                self.accept_at = Some(Instant::now());
            }
            metrics.tcp_open.fetch_sub(1, Ordering::Relaxed);
            match connection.end {
                None | Some(End::Done) => {}
                Some(End::TooLong) => {
                    bump(&metrics.tcp_too_long_lines);
                    tracing::debug!(
                        "a TCP line is longer than {} bytes, closing its connection",
                        MAX_LINE - 1
                    );
                }
                Some(End::Failed(error)) => {
                    bump(&metrics.tcp_connection_errors);
                    tracing::debug!(%error, "a TCP connection failed");
                }
            }
        }
    }

    /// Ends every connection, as if its peer had.
    pub(crate) fn end_all(&mut self, arrivals: &mut Vec<Arrival>) {
        for (slot, connection) in self.connections.iter_mut().enumerate() {
            if let Some(connection) = connection
                && connection.end.is_none()
            {
                connection.end(slot, End::Done, arrivals);
            }
        }
    }
}

impl Connection {
    fn end(&mut self, slot: usize, end: End, arrivals: &mut Vec<Arrival>) {
        self.end = Some(end);
        self.waiting += 1;
        arrivals.push(Arrival { slot, bytes: 0, stamp: None, is_one: false });
    }
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

/// Whether the process, or the system, has no descriptor left.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn strip_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A line does not fit.
struct TooLong;

/// Bytes of a stream on their way to being lines.
#[derive(Debug, Default)]
struct LineBuffer {
    bytes: Vec<u8>,
    /// How many of them may take effect.
    released: usize,
}

impl LineBuffer {
    /// What may take effect and has no line feed yet.
    fn rest(&self) -> &[u8] {
        self.bytes.get(..self.released).unwrap_or_default()
    }

    /// Releases so many bytes and takes the complete lines out.
    fn take(&mut self, bytes: usize, mut each: impl FnMut(&[u8])) -> Result<(), TooLong> {
        // No line feed was in what had been released before.
        let fresh = self.released;
        self.released = (self.released + bytes).min(self.bytes.len());
        let mut start = 0;
        let ends = memchr::memchr_iter(b'\n', self.rest().get(fresh..).unwrap_or_default());
        for end in ends.map(|end| end + fresh) {
            let line = self.rest().get(start..end).unwrap_or_default();
            if line.len() >= MAX_LINE {
                return Err(TooLong);
            }
            each(line);
            start = end + 1;
        }
        self.released -= start;
        if start > 0 {
            self.bytes.drain(..start);
            // A quiet connection keeps no more than its unfinished line.
            self.bytes.shrink_to_fit();
        }
        if self.released >= MAX_LINE { Err(TooLong) } else { Ok(()) }
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
            let length = rest.len().min(size);
            buffer.bytes.extend_from_slice(&rest[..length]);
            rest = &rest[length..];
            if buffer.take(length, |line| out.push(line.to_vec())).is_err() {
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
