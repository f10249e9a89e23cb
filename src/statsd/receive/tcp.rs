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
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use super::net;
use super::stamp::Stamp;
use crate::descriptors::{Descriptors, Permit, Share};
use crate::statsd::ingest::Worker;
use crate::statsd::metrics::{Metrics, bump};

mod lines;
mod pieces;

use lines::{LineBuffer, MAX_LINE};

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
    /// All of it came when `stamp` says, as far as anybody can tell; otherwise some may have come before.
    pub(crate) is_exact: bool,
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
    /// Whence it comes.
    address: Option<IpAddr>,
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
    /// What a connection has got until then is the only thing that has come; [`Stamp::MIN`] if there may be more.
    pub(crate) alone: Stamp,
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
            alone: Stamp::MIN,
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
        net::keep_apart(&stream);
        metrics.tcp_open.fetch_add(1, Ordering::Relaxed);
        self.turns += 1;
        self.quiet.insert(self.turns, slot);
        let address = stream.peer_addr().ok().map(|peer| peer.ip().to_canonical());
        if let Some(place) = self.connections.get_mut(slot) {
            *place = Some(Connection {
                address,
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
        let first = arrivals.len();
        if let Some((stream, _)) = &connection.open {
            let (lines, waiting) = (&mut connection.lines, &mut connection.waiting);
            let taken = pieces::take(stream, &mut self.space, self.alone, |bytes, stamp| {
                lines.extend(bytes);
                *waiting += 1;
                arrivals.push(Arrival { slot, bytes: bytes.len(), stamp, is_exact: true });
            });
            let more = match taken {
                Ok(0) => Ok(0),
                Ok(_) => {
                    net::keep_apart(stream);
                    // The end may have been there, of which no other event tells.
                    self.space
                        .get_mut(..1)
                        .map_or(Ok(0), |byte| Ok(net::receive(stream, byte, net::Read::Peek)?.0))
                }
                Err(error) => Err(error),
            };
            match more {
                Ok(0) => connection.end(slot, End::Done, arrivals),
                // Others have their turn first.
                Ok(_) => self.unread.push(slot),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => connection.end(slot, End::Failed(error), arrivals),
            }
        }
        let fresh = arrivals.get_mut(first..).unwrap_or_default();
        // The kernel may have joined the first packets, or all of them: only the last line came with the last one then.
        let stamp = fresh.first().and_then(|arrival| arrival.stamp);
        let joined = fresh.iter().take_while(|each| each.bytes > 0 && each.stamp == stamp).count();
        for arrival in fresh.iter_mut().take(joined.saturating_sub(1)) {
            arrival.is_exact = false;
        }
        let heard = joined > 0;
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
        worker.come_from(connection.address);
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
        arrivals.push(Arrival { slot, bytes: 0, stamp: None, is_exact: false });
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
