//! TCP connections, with lines of up to 4095 bytes.
//!
//! Limits and counters are those of statsd_exporter: a longer line closes its connection, and the lines
//! before it count. An idle connection costs its descriptor and a few words: all connections share one read
//! buffer, and a connection stores only its unfinished line. Descriptors come from the share of the senders.
//! When it is used up, a connection that has been silent for long is closed; if there is none, new
//! connections wait and their data waits with them. [`super::receiver`] decides when to read.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use super::net::unread;
use crate::statsd::ingest::Worker;
use crate::statsd::metrics::{Listener, Metrics, bump};
use crate::util::descriptors::{Descriptors, Permit, Share};
use crate::util::log_limit::LogLimit;

mod lines;

use lines::{LineBuffer, MAX_LINE, TooLong};

/// The size of the read buffer.
const BUFFER: usize = 64 << 10;
/// The maximum number of connections accepted in a row. The backlog holds no more.
const ACCEPTED_AT_ONCE: usize = 1_024;
/// The maximum number of connections that are examined in a row before one is closed.
const EXAMINED_AT_ONCE: usize = 1_024;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// The minimum silence before a connection is closed in favour of another. Its next line would be lost,
/// whereas a new connection can wait.
const MIN_SILENCE: Duration = Duration::from_secs(3);

/// The reason why a connection ended.
#[derive(Debug)]
enum EndReason {
    /// End of stream, or closed from this side.
    Done,
    TooLong,
    Failed(io::Error),
}

#[derive(Debug)]
struct Connection {
    /// `None` once it has ended.
    open: Option<(TcpStream, Permit<'static>)>,
    /// The address of the peer.
    address: IpAddr,
    lines: LineBuffer,
    /// The number of bytes to read before it is closed; `None` while it stays open.
    remaining: Option<usize>,
    end: Option<EndReason>,
    /// True if it is in the list of ready sockets.
    is_ready: bool,
    /// Its key in `by_silence`.
    sequence: u64,
    /// The time of the last data: when it was read, or found unread.
    since: Instant,
}

impl Connection {
    /// Lets only what it has received by now be read. Returns `None` if it is not open.
    fn limit(&mut self) -> Option<()> {
        let (stream, _) = self.open.as_ref()?;
        // After a panic the first number remains valid.
        self.remaining.get_or_insert_with(|| unread(stream).unwrap_or_default());
        Some(())
    }

    /// Returns true if the connection is to be read, or has received data that no event has reported yet.
    fn has_data(&self) -> bool {
        let is_unread = |(stream, _): &(TcpStream, _)| unread(stream).is_ok_and(|bytes| bytes > 0);
        self.is_ready || self.open.as_ref().is_some_and(is_unread)
    }
}

/// The token of the listener.
pub(crate) const TCP: Token = Token(1);
/// The number of the first connection's token. Those of others follow by slot.
pub(crate) const CONNECTIONS: usize = 16;

/// The listener and its connections in the receiving thread.
pub(crate) struct TcpSource {
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// The slots of open connections, the longest silent one first.
    by_silence: BTreeMap<u64, usize>,
    last_sequence: u64,
    buffer: Vec<u8>,
    /// Ended connections, closed once their lines are visible to scrapes.
    ended: Vec<usize>,
    idle: Option<Duration>,
    descriptors: &'static Descriptors,
    accept_at: Option<Instant>,
    /// An accepted connection without a descriptor permit, and its client. While there is one, no other is accepted.
    waiting: Option<(TcpStream, IpAddr)>,
    pause: Duration,
    /// True if no further connections are accepted.
    is_shutting_down: bool,
    /// Limits log lines about displaced connections.
    displaced: LogLimit,
}

impl TcpSource {
    /// Registers a listener.
    ///
    /// # Errors
    /// Fails if the listener cannot be registered.
    pub(crate) fn new(
        listener: std::net::TcpListener,
        idle: Option<Duration>,
        descriptors: &'static Descriptors,
        registry: &Registry,
    ) -> io::Result<Self> {
        let mut listener = TcpListener::from_std(listener);
        registry.register(&mut listener, TCP, Interest::READABLE)?;
        Ok(Self {
            listener,
            connections: Vec::new(),
            free: Vec::new(),
            by_silence: BTreeMap::new(),
            last_sequence: 0,
            buffer: vec![0; BUFFER],
            ended: Vec::new(),
            idle,
            descriptors,
            accept_at: None,
            waiting: None,
            pause: FIRST_PAUSE,
            is_shutting_down: false,
            displaced: LogLimit::default(),
        })
    }

    /// Returns the next time at which something is due that causes no event: accepting again, or the end of
    /// an idle connection.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let idle = self.idle.and_then(|idle| {
            let slot = *self.by_silence.first_key_value()?.1;
            Some(self.connection(slot)?.since + idle)
        });
        self.accept_at.into_iter().chain(idle).min()
    }

    /// Performs what is due.
    pub(crate) fn run_due(&mut self, metrics: &Metrics, registry: &Registry, worker: &mut Worker) {
        let now = Instant::now();
        while let Some(idle) = self.idle
            && let Some(slot) = self.take_silent(idle)
        {
            bump(&metrics.tcp_idle);
            self.close(slot, worker);
        }
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept(metrics, registry, worker);
        }
    }

    /// Accepts the waiting connections.
    pub(crate) fn accept(&mut self, metrics: &Metrics, registry: &Registry, worker: &mut Worker) {
        self.accept_at = None;
        if self.is_shutting_down {
            return;
        }
        if let Some(accepted) = self.waiting.take()
            && !self.admit(accepted, metrics, registry, worker)
        {
            return;
        }
        let mut may_displace = true;
        for _ in 0..ACCEPTED_AT_ONCE {
            match self.listener.accept() {
                Ok((stream, client)) => {
                    (self.pause, may_displace) = (FIRST_PAUSE, true);
                    bump(&metrics.tcp_connections);
                    // Once the client has reset the connection, the socket does not tell its address any more.
                    let accepted = (stream, client.ip().to_canonical());
                    if !self.admit(accepted, metrics, registry, worker) {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_transient(&error) => bump(&metrics.accept_errors),
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
                        && may_displace
                        && self.displace(metrics, worker) =>
                {
                    may_displace = false;
                }
                Err(error) => {
                    // Descriptors and memory become available when other connections end.
                    bump(&metrics.accept_errors);
                    tracing::warn!(%error, "Cannot accept a TCP connection, retrying in {:?}", self.pause);
                    self.accept_at = Some(Instant::now() + self.pause);
                    self.pause = (self.pause * 2).min(LAST_PAUSE);
                    return;
                }
            }
        }
        self.accept_at = Some(Instant::now());
    }

    /// Gives a connection a slot. Returns false if it has to wait for a descriptor permit.
    fn admit(
        &mut self,
        (mut stream, address): (TcpStream, IpAddr),
        metrics: &Metrics,
        registry: &Registry,
        worker: &mut Worker,
    ) -> bool {
        let mut permit = self.descriptors.take(Share::Senders);
        if permit.is_none() && self.displace(metrics, worker) {
            permit = self.descriptors.take(Share::Senders);
        }
        let Some(permit) = permit else {
            self.waiting = Some((stream, address));
            let longest =
                self.by_silence.first_key_value().and_then(|(_, slot)| self.connection(*slot));
            let latest = Instant::now() + LAST_PAUSE;
            self.accept_at = Some(longest.map_or(latest, |longest| longest.since + MIN_SILENCE));
            self.log_limit(0);
            return false;
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        if let Err(error) =
            registry.register(&mut stream, Token(CONNECTIONS + slot), Interest::READABLE)
        {
            bump(&metrics.accept_errors);
            tracing::warn!(%error, "Cannot poll a TCP connection, closing it");
            self.free.push(slot);
            return true;
        }
        metrics.tcp_open.fetch_add(1, Ordering::Relaxed);
        self.last_sequence += 1;
        self.by_silence.insert(self.last_sequence, slot);
        self.connections[slot] = Some(Connection {
            address,
            open: Some((stream, permit)),
            lines: LineBuffer::default(),
            remaining: None,
            end: None,
            is_ready: false,
            sequence: self.last_sequence,
            since: Instant::now(),
        });
        true
    }

    /// Closes the longest silent connection. Returns false if none has been silent for long enough.
    fn displace(&mut self, metrics: &Metrics, worker: &mut Worker) -> bool {
        let Some(slot) = self.take_silent(MIN_SILENCE) else { return false };
        bump(&metrics.tcp_displaced);
        self.close(slot, worker);
        self.log_limit(1);
        true
    }

    /// Takes the longest silent connection out of the order by silence, if it has been silent for this time. One with
    /// unread data goes to the end of the order instead: its sender was not silent, this process did not read, for
    /// instance because it was stopped. Returns `None` after [`EXAMINED_AT_ONCE`] such connections.
    fn take_silent(&mut self, time: Duration) -> Option<usize> {
        let now = Instant::now();
        for _ in 0..EXAMINED_AT_ONCE {
            let (&sequence, &slot) = self.by_silence.first_key_value()?;
            if self.connection(slot).is_some_and(|longest| longest.since + time > now) {
                return None;
            }
            self.by_silence.remove(&sequence);
            let next = self.last_sequence + 1;
            let Some(connection) = self.connection_mut(slot).filter(|of| of.has_data()) else {
                return Some(slot);
            };
            (connection.sequence, connection.since) = (next, now);
            self.by_silence.insert(next, slot);
            self.last_sequence = next;
        }
        None
    }

    /// Logs, at most once a minute, that the limit closes connections or makes one wait.
    fn log_limit(&mut self, closed: u64) {
        if let Some(closed) = self.displaced.add(closed, Instant::now()) {
            tracing::warn!(
                closed,
                limit = self.descriptors.limit,
                "Too many TCP senders for the limit of open files; new connections wait until others end or are idle for {MIN_SILENCE:?}"
            );
        }
    }

    /// Reads what a connection has received by now and closes it.
    fn close(&mut self, slot: usize, worker: &mut Worker) {
        if let Some(connection) = self.connection_mut(slot) {
            connection.limit();
        }
        while self.read(slot, worker).is_some() {
            // The copies for the relay and for other replicas are passed on in parts.
            worker.end();
        }
        self.end(slot, EndReason::Done, worker);
        // Its descriptor is needed immediately.
        if let Some(connection) = self.connection_mut(slot) {
            connection.open = None;
        }
    }

    fn connection(&self, slot: usize) -> Option<&Connection> {
        self.connections.get(slot)?.as_ref()
    }

    fn connection_mut(&mut self, slot: usize) -> Option<&mut Connection> {
        self.connections.get_mut(slot)?.as_mut()
    }

    /// Marks a connection as ready. Returns false if it was marked already.
    pub(crate) fn mark_ready(&mut self, slot: usize) -> bool {
        let connection = self.connection_mut(slot);
        connection.is_some_and(|connection| !std::mem::replace(&mut connection.is_ready, true))
    }

    /// Reads once from a connection and applies its lines. Returns the number of bytes if there may be more.
    pub(crate) fn read(&mut self, slot: usize, worker: &mut Worker) -> Option<usize> {
        let Self { connections, buffer, by_silence, last_sequence, .. } = self;
        let connection = connections.get_mut(slot).and_then(Option::as_mut)?;
        let (stream, _) = connection.open.as_mut().filter(|_| connection.end.is_none())?;
        if connection.remaining == Some(0) {
            if stream.peek(&mut [0]).is_ok_and(|more| more > 0) {
                // The rest of the unfinished line came later. A part of it could have another value.
                connection.lines.take_rest();
            }
            self.end(slot, EndReason::Done, worker);
            return None;
        }
        let limit = connection.remaining.unwrap_or(BUFFER).min(BUFFER);
        let end = match stream.read(buffer.get_mut(..limit).unwrap_or_default()) {
            Ok(0) => EndReason::Done,
            Ok(length) => {
                connection.remaining =
                    connection.remaining.map(|count| count.saturating_sub(length));
                *last_sequence += 1;
                by_silence.remove(&connection.sequence);
                by_silence.insert(*last_sequence, slot);
                (connection.sequence, connection.since) = (*last_sequence, Instant::now());
                worker.begin();
                worker.set_listener(Listener::Tcp);
                worker.set_sender(Some(connection.address));
                let bytes = buffer.get(..length).unwrap_or_default();
                let apply =
                    |line: &[u8]| worker.stream_line(line.strip_suffix(b"\r").unwrap_or(line));
                match connection.lines.feed(bytes, apply) {
                    Ok(()) => return Some(length),
                    Err(TooLong) => EndReason::TooLong,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Some(0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                connection.is_ready = false;
                return None;
            }
            Err(error) => EndReason::Failed(error),
        };
        self.end(slot, end, worker);
        None
    }

    /// Ends a connection unless it has ended, and applies its unfinished line.
    fn end(&mut self, slot: usize, end: EndReason, worker: &mut Worker) {
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        if connection.end.is_some() {
            return;
        }
        self.by_silence.remove(&connection.sequence);
        self.ended.push(slot);
        let rest = connection.lines.take_rest();
        if rest.is_empty() || matches!(end, EndReason::TooLong) {
            connection.end = Some(end);
            return;
        }
        // A trailing carriage return belongs to the line, because there is no line feed. As in
        // statsd_exporter, data before a reset is the last line and no error is counted.
        connection.end = Some(EndReason::Done);
        worker.begin();
        worker.set_listener(Listener::Tcp);
        worker.set_sender(Some(connection.address));
        worker.stream_line(&rest);
    }

    /// Closes the connections that have ended. Their lines have been counted by now, so a peer that sees the
    /// close also sees the counts.
    pub(crate) fn close_ended(&mut self, metrics: &Metrics) {
        for slot in self.ended.drain(..) {
            let Some(connection) = self.connections.get_mut(slot).and_then(Option::take) else {
                continue;
            };
            self.free.push(slot);
            if self.waiting.is_some() {
                self.accept_at = Some(Instant::now());
            }
            metrics.tcp_open.fetch_sub(1, Ordering::Relaxed);
            match connection.end {
                None | Some(EndReason::Done) => {}
                Some(EndReason::TooLong) => {
                    bump(&metrics.tcp_too_long_lines);
                    tracing::debug!(
                        "A TCP line is longer than {} bytes, closing its connection",
                        MAX_LINE - 1
                    );
                }
                Some(EndReason::Failed(error)) => {
                    bump(&metrics.tcp_connection_errors);
                    tracing::debug!(%error, "A TCP connection failed");
                }
            }
        }
    }

    /// Accepts the waiting connections at shutdown. Returns whether there may be others, for which those that are open have to end.
    pub(crate) fn accept_last(
        &mut self,
        metrics: &Metrics,
        registry: &Registry,
        worker: &mut Worker,
    ) -> bool {
        self.is_shutting_down = false;
        self.accept(metrics, registry, worker);
        // If no connection is open, another round could free no descriptor.
        self.accept_at.is_some() && self.connections.iter().any(Option::is_some)
    }

    /// Accepts no further connections, and reads from each one only what it has received by now: a sender that never
    /// pauses would delay the end of the process otherwise. Returns the slots of the open connections.
    pub(crate) fn begin_shutdown(&mut self) -> impl Iterator<Item = usize> {
        self.is_shutting_down = true;
        let connections = self.connections.iter_mut().enumerate();
        connections.filter_map(|(slot, connection)| {
            let connection = connection.as_mut().filter(|connection| connection.end.is_none())?;
            connection.limit()?;
            connection.is_ready = true;
            Some(slot)
        })
    }

    /// Ends every connection as if its peer had closed it.
    pub(crate) fn end_all(&mut self, worker: &mut Worker) {
        for slot in 0..self.connections.len() {
            self.end(slot, EndReason::Done, worker);
        }
    }
}

/// Returns true if the error only concerns a connection that is already gone.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use super::*;
    use crate::exposition::{Format, ScrapeQuery};
    use crate::mapper::Mapper;
    use crate::statsd::receive::net::bind_tcp;
    use crate::statsd::{Offline, OfflineConfig};
    use crate::util::descriptors;

    /// After a pause of this process, every connection was read long ago.
    #[test]
    fn connections_with_unread_data_are_not_silent() {
        let offline = Offline::new(Mapper::default(), OfflineConfig::default());
        let shared = Arc::clone(offline.shared());
        let (metrics, mut worker) = (&shared.metrics, Worker::new(&shared, Listener::Tcp));
        let poll = mio::Poll::new().expect("a poll");
        let listener = bind_tcp("127.0.0.1:0".parse().expect("address")).expect("bind");
        let address = listener.local_addr().expect("address");
        let idle = Duration::from_secs(60);
        let (descriptors, registry) = (descriptors::of_process(), poll.registry());
        let mut source = TcpSource::new(listener, Some(idle), descriptors, registry).expect("made");
        let connect = |source: &mut TcpSource, worker: &mut Worker, open| {
            let stream = std::net::TcpStream::connect(address).expect("connect");
            while metrics.tcp_open.load(Ordering::Relaxed) < open {
                source.accept(metrics, poll.registry(), worker);
            }
            stream
        };
        let mut sender = connect(&mut source, &mut worker, 1);
        let _ready = connect(&mut source, &mut worker, 2);
        let _silent = connect(&mut source, &mut worker, 3);
        sender.write_all(b"a:1|c\n").expect("sent");
        let has_data = |source: &TcpSource| source.connection(0).expect("open").has_data();
        let end = Instant::now() + Duration::from_secs(60);
        while !has_data(&source) {
            assert!(Instant::now() < end, "nothing received");
        }
        assert!(source.mark_ready(1));
        let pause = |source: &mut TcpSource| {
            for connection in source.connections.iter_mut().flatten() {
                connection.since = Instant::now().checked_sub(idle).expect("a time");
            }
        };
        let closed = |metrics: &Metrics| {
            [&metrics.tcp_displaced, &metrics.tcp_idle].map(|count| count.load(Ordering::Relaxed))
        };
        pause(&mut source);
        assert!(source.displace(metrics, &mut worker));
        assert!(!source.displace(metrics, &mut worker), "the others are not silent");
        let is_open = |source: &TcpSource, slot| {
            source.connection(slot).is_some_and(|connection| connection.end.is_none())
        };
        assert_eq!([0, 1, 2].map(|slot| is_open(&source, slot)), [true, true, false]);
        pause(&mut source);
        source.run_due(metrics, poll.registry(), &mut worker);
        assert_eq!(closed(metrics), [1, 0]);
        // Once they are read, the order and the time start from there.
        assert!(source.read(0, &mut worker).is_some());
        assert!(source.read(0, &mut worker).is_none() && source.read(1, &mut worker).is_none());
        pause(&mut source);
        source.run_due(metrics, poll.registry(), &mut worker);
        assert_eq!(closed(metrics), [1, 2]);
        worker.end();
    }

    /// A connection that has not been read for a while may contain more than one read returns, and some of it may come
    /// after the decision to close it.
    #[test]
    fn a_displaced_connection_is_read_up_to_what_it_had_received() {
        const LINE: &[u8] = b"requests:10|c|#service:checkout\n";
        let offline = Offline::new(Mapper::default(), OfflineConfig::default());
        let shared = Arc::clone(offline.shared());
        let (metrics, mut worker) = (&shared.metrics, Worker::new(&shared, Listener::Tcp));
        let poll = mio::Poll::new().expect("a poll");
        let listener = bind_tcp("127.0.0.1:0".parse().expect("address")).expect("bind");
        // Connections inherit the size.
        socket2::SockRef::from(&listener).set_recv_buffer_size(1 << 20).expect("a larger buffer");
        let address = listener.local_addr().expect("address");
        let mut source = TcpSource::new(listener, None, descriptors::of_process(), poll.registry())
            .expect("made");
        let mut stream = std::net::TcpStream::connect(address).expect("connect");
        stream.set_nonblocking(true).expect("set");
        while metrics.tcp_open.load(Ordering::Relaxed) == 0 {
            source.accept(metrics, poll.registry(), &mut worker);
        }
        let received = |source: &TcpSource| {
            let stream = source.connection(0).and_then(|connection| connection.open.as_ref());
            unread(&stream.expect("open").0).expect("a number")
        };
        let (text, mut sent, mut before) = (LINE.repeat(10_000), 0, 0);
        let end = Instant::now() + Duration::from_secs(60);
        while before <= 3 * BUFFER / 2 {
            assert!(Instant::now() < end, "{before} of {sent} bytes");
            while let Ok(count) = stream.write(&text[sent % LINE.len()..]) {
                sent += count;
            }
            before = received(&source);
        }
        source.close(0, &mut worker);
        worker.end();
        source.close_ended(metrics);
        let lines = metrics.lines(Some(Listener::Tcp)) as usize;
        assert!(lines >= before / LINE.len(), "{lines} lines of {before} bytes");
        // No line is read in part.
        let frames = offline.frames(Format::Text, &ScrapeQuery::default());
        let body: Vec<u8> = frames.flatten().collect();
        let series = format!("requests{{service=\"checkout\"}} {}", 10 * lines);
        let body = String::from_utf8(body).expect("text");
        assert_eq!(
            body.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>(),
            [series]
        );
    }
}
