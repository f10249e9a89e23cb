//! The thread that takes lines: from every listener, in the order in which they reached this host.
//!
//! One thread reads from all sockets of the default configuration and applies what it reads with one [`Worker`], so that
//! a line never overtakes another one in the program. What arrived first takes effect first, whatever it came over:
//!
//! - Within a socket the kernel keeps the order.
//! - Between sockets the thread works in rounds. It notes the time (the horizon), asks which sockets have something, reads
//!   all of them, and applies by the kernel's stamps what came until the horizon; what came later waits for the next
//!   round. A line that was in its socket before another one was stamped is therefore read in the same round or an
//!   earlier one, and applied first.
//! - Datagrams and packets of a TCP connection have a stamp each. Where the kernel has joined packets of a connection
//!   that waited unread (from other hosts, or more than some 500 bytes of them; see [`super::net::keep_apart`]), they
//!   share the last one's. The last line came then. Those before take effect before everything of the sockets that became
//!   ready after theirs.
//!
//! It cannot be known whether something came between two packets that the kernel has joined, nor when a line came whose
//! connection was closed before it was accepted: the kernel puts the time of the last packet in the place of those
//! before. The same goes for the moment in which the wall clock is set, and for the first milliseconds, until the kernel
//! stamps. Sockets that share an address (`udp_sockets`) have a thread each, and no order between them.
//!
//! Under load the thread gathers datagrams by naps (see [`super::pace`]); at rest it waits and nothing is polled. A panic
//! costs the datagram, or the piece of a connection, that caused it (see [`crate::statsd::supervise`]).

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token, Waker};
use socket2::Socket;

use super::datagram::{DatagramSource, Open, Port};
use super::stamp::Stamp;
use super::tcp::{Arrival, TcpSource};
use crate::descriptors::Descriptors;
use crate::statsd::ingest::{Shared, Worker};
use crate::statsd::metrics::{Listener, SocketFacts, bump};
use crate::statsd::supervise;

mod order;

use order::Key;

const WAKER: Token = Token(0);
const TCP: Token = Token(1);
const DATAGRAMS: usize = 2;
const CONNECTIONS: usize = 16;
/// Sockets that one question to the kernel tells of; the others come with the next one.
const EVENTS: usize = 256;
/// Rounds after the stop: far more than what had come by then can take.
const LAST_ROUNDS: usize = 1_000;
/// So long after a line over TCP or a Unix socket there are no naps: the kernel joins packets of a connection that wait
/// for long, and senders to a Unix socket wait while its short queue is full.
const MIXED: Duration = Duration::from_millis(20);
/// Pause after a failed question to the kernel.
const PAUSE: Duration = Duration::from_millis(100);

/// A running thread.
#[derive(Debug)]
pub(crate) struct Intake {
    control: Arc<Control>,
    thread: Mutex<Option<JoinHandle<()>>>,
    ports: Vec<Arc<Port>>,
}

#[derive(Debug)]
struct Control {
    stopping: AtomicBool,
    waker: Waker,
}

/// A thread that has not been started yet.
#[derive(Debug)]
pub(crate) struct Preparation {
    reader: Reader,
    ports: Vec<Arc<Port>>,
}

impl Preparation {
    /// A thread without sockets.
    ///
    /// # Errors
    /// When the system gives no event queue.
    pub(crate) fn new(shared: &Arc<Shared>) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let control = Arc::new(Control { stopping: AtomicBool::new(false), waker });
        let reader = Reader {
            worker: Worker::new(shared, Listener::Udp),
            shared: Arc::clone(shared),
            control,
            poll,
            events: Events::with_capacity(EVENTS),
            ready: Vec::new(),
            behind: Vec::new(),
            datagrams: Vec::new(),
            tcp: None,
            arrivals: Vec::new(),
            fresh: Vec::new(),
            items: VecDeque::new(),
            mixed: None,
        };
        Ok(Self { reader, ports: Vec::new() })
    }

    /// Adds a datagram socket; `number` is its number among those of the listener, `open` opens it again.
    ///
    /// # Errors
    /// When the event queue refuses it.
    pub(crate) fn datagrams(
        &mut self,
        listener: Listener,
        number: usize,
        socket: Socket,
        open: Open,
    ) -> io::Result<()> {
        let token = Token(DATAGRAMS + self.reader.datagrams.len());
        let registry = self.reader.poll.registry();
        let source = DatagramSource::new(listener, number, socket, open, registry, token)?;
        self.ports.push(source.port());
        self.reader.datagrams.push(Datagrams { source, settled: false, last: Stamp::MIN });
        Ok(())
    }

    /// Adds the TCP listener. A connection that is silent for `idle` is closed.
    ///
    /// # Errors
    /// When the event queue refuses it.
    pub(crate) fn tcp(
        &mut self,
        listener: std::net::TcpListener,
        idle: Option<Duration>,
        descriptors: &'static Descriptors,
    ) -> io::Result<()> {
        let registry = self.reader.poll.registry();
        let tokens = (TCP, CONNECTIONS);
        self.reader.tcp = Some(TcpSource::new(listener, idle, descriptors, registry, tokens)?);
        Ok(())
    }

    /// Starts the thread with this number in its name.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(self, number: usize) -> io::Result<Intake> {
        let Self { mut reader, ports } = self;
        let (control, shared) = (Arc::clone(&reader.control), Arc::clone(&reader.shared));
        let thread = supervise::spawn(
            &format!("statsd-in-{number}"),
            move || bump(&shared.metrics.intake_restarts),
            move || reader.run(),
        )?;
        Ok(Intake { control, thread: Mutex::new(Some(thread)), ports })
    }
}

impl Intake {
    /// Its datagram sockets, and what the kernel dropped for each so far.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = SocketFacts> {
        self.ports.iter().map(|port| port.facts())
    }

    /// Takes what the sockets have received by now and ends the thread.
    pub(crate) fn shutdown(&self) {
        self.control.stopping.store(true, Ordering::Release);
        if let Err(error) = self.control.waker.wake() {
            tracing::error!(%error, "the thread that takes lines cannot be woken");
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread that takes lines panicked");
        }
    }
}

/// A datagram socket of the thread.
#[derive(Debug)]
struct Datagrams {
    source: DatagramSource,
    /// What is left of the batch was read in an earlier round and is older than the horizon, whatever its stamp says.
    settled: bool,
    /// Stamp of the last datagram that was taken; the next one came no earlier.
    last: Stamp,
}

impl Datagrams {
    /// When the next datagram came, as far as is known; `None` without one.
    fn next(&self, horizon: Stamp) -> Option<Stamp> {
        if self.source.is_done() {
            return None;
        }
        let mut stamp = self.source.next_stamp().unwrap_or(horizon).max(self.last);
        if self.settled {
            stamp = stamp.min(horizon);
        }
        Some(stamp)
    }
}

/// A piece of a connection that is to be applied.
#[derive(Debug)]
struct Item {
    key: Stamp,
    piece: Arrival,
}

/// What a socket gave.
#[derive(Clone, Copy, Debug)]
enum What {
    /// A piece of a connection.
    Piece(Arrival),
    /// The first datagram of a socket: a mark for the others, it is not applied itself.
    Mark(usize),
}

/// The state of the thread.
#[derive(Debug)]
struct Reader {
    shared: Arc<Shared>,
    control: Arc<Control>,
    poll: Poll,
    events: Events,
    /// What the kernel said to have something, in the order in which that came about.
    ready: Vec<Token>,
    /// What had something again when all had been read. It is read in the next round; nobody knows after what it came.
    behind: Vec<Token>,
    worker: Worker,
    datagrams: Vec<Datagrams>,
    tcp: Option<TcpSource>,
    arrivals: Vec<Arrival>,
    /// What this round found, in the order in which the sockets became ready.
    fresh: Vec<(Key, What)>,
    /// What is to be applied, in order. What is beyond the horizon stays for the next round.
    items: VecDeque<Item>,
    /// When something came that was no UDP datagram.
    mixed: Option<Instant>,
}

/// What a round came to.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Something was read or applied.
    was_busy: bool,
    /// How long to stay away.
    nap: Option<Duration>,
}

impl Reader {
    fn run(&mut self) {
        // After a panic this is where it goes on.
        self.worker.recover();
        if let Some(tcp) = &mut self.tcp {
            tcp.recover();
        }
        let mut nap = None;
        while !self.control.stopping.load(Ordering::Acquire) {
            let round = self.round();
            if round.was_busy {
                // Once more, so that the kernel's list begins anew: a socket that was read after it was listed would
                // keep its place there for what comes later.
                nap = round.nap;
            } else if let Some(nap) = nap.take()
                && self.mixed.is_none_or(|at| at.elapsed() > MIXED)
            {
                std::thread::sleep(nap);
            } else {
                let timeout = self.timeout();
                self.ask(timeout);
            }
        }
        self.finish();
    }

    /// What has come by now is not lost, and keeps its order.
    fn finish(&mut self) {
        for _ in 0..LAST_ROUNDS {
            if !self.round().was_busy {
                break;
            }
        }
        if let Some(tcp) = &mut self.tcp {
            let mut arrivals = Vec::new();
            tcp.end_all(&mut arrivals);
            self.worker.begin();
            self.worker.serve(Listener::Tcp);
            for arrival in &arrivals {
                tcp.apply(arrival, &mut self.worker);
            }
            self.worker.end();
            tcp.close_ended(&self.shared.metrics);
        }
    }

    /// How long nothing is due.
    fn timeout(&self) -> Option<Duration> {
        let retries = self.datagrams.iter().filter_map(|each| each.source.retry_at());
        let due = retries.chain(self.tcp.as_ref().and_then(TcpSource::deadline)).min()?;
        // A little later, as the kernel's timer may be a little early.
        Some(due.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }

    /// Asks the kernel which sockets have something.
    fn ask(&mut self, timeout: Option<Duration>) {
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {
                let tokens = self.events.iter().map(mio::event::Event::token);
                self.ready.extend(tokens.filter(|token| *token != WAKER));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::error!(%error, "the sockets cannot be watched, trying again");
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn round(&mut self) -> Round {
        let horizon = Stamp::now();
        self.ask(Some(Duration::ZERO));
        let mut round = Round { was_busy: !self.items.is_empty(), nap: None };
        self.read(horizon, &mut round);
        if round.was_busy {
            self.apply(horizon, &mut round);
        }
        round
    }

    /// Whether all that came until now came over one connection.
    fn is_alone(&self) -> bool {
        let connections = self.tcp.iter().flat_map(|tcp| &tcp.unread);
        let connections = connections.map(|slot| Token(CONNECTIONS + slot));
        let tokens = self.behind.iter().chain(&self.ready).copied();
        let mut tokens = connections.chain(tokens);
        let first = tokens.next();
        // The listener may have several.
        first.is_some_and(|Token(number)| number >= CONNECTIONS)
            && tokens.all(|token| Some(token) == first)
            && self.items.is_empty()
            && self.datagrams.iter().all(|each| each.source.is_done() && !each.source.unread)
    }

    /// Reads from every socket that has something, and finds the places of what was read.
    fn read(&mut self, horizon: Stamp, round: &mut Round) {
        let alone = if self.is_alone() { horizon } else { Stamp::MIN };
        // What is left from the last round came first.
        for number in 0..self.datagrams.len() {
            let Some(each) = self.datagrams.get_mut(number) else { continue };
            each.settled = !each.source.is_done();
            let is_due = each.source.retry_at().is_some_and(|at| at <= Instant::now());
            if each.settled || each.source.unread || is_due {
                self.prime(number, horizon, round);
            }
        }
        if let Some(tcp) = &mut self.tcp {
            tcp.alone = alone;
            for slot in std::mem::take(&mut tcp.unread) {
                tcp.read(slot, &mut self.arrivals);
            }
            tcp.tick(&self.shared.metrics, self.poll.registry(), &mut self.arrivals);
        }
        for token in std::mem::take(&mut self.behind) {
            self.read_from(token, horizon, round);
        }
        enter(&mut self.fresh, &mut self.arrivals, |stamp| Key::At(stamp.min(horizon)), horizon);
        let mut ready = std::mem::take(&mut self.ready);
        for token in ready.drain(..) {
            self.read_from(token, horizon, round);
            let until = |stamp: Stamp| Key::Until(stamp.min(horizon));
            enter(&mut self.fresh, &mut self.arrivals, until, horizon);
        }
        self.ready = ready;
        round.was_busy |= !self.fresh.is_empty();
        let is_mixed = |what: &What| match what {
            What::Piece(_) => true,
            What::Mark(number) => self
                .datagrams
                .get(*number)
                .is_some_and(|each| each.source.listener() != Listener::Udp),
        };
        if self.fresh.iter().any(|(_, what)| is_mixed(what)) {
            self.mixed = Some(Instant::now());
        }
        if self.fresh.iter().any(|(_, what)| matches!(what, What::Piece(_))) {
            // The kernel's list begins anew: a connection that has got something since it was listed would keep that
            // place for what comes later.
            self.ask(Some(Duration::ZERO));
            std::mem::swap(&mut self.ready, &mut self.behind);
        }
        self.place(horizon);
    }

    /// Finds the places of what was read.
    fn place(&mut self, horizon: Stamp) {
        // Those of the last round that wait came before the horizon by now.
        for item in &mut self.items {
            item.key = item.key.min(horizon);
        }
        let keys = order::places(self.fresh.iter().map(|(key, _)| *key));
        for ((_, what), key) in self.fresh.iter().zip(keys) {
            if let What::Piece(piece) = *what {
                self.items.push_back(Item { key, piece });
            }
        }
        self.fresh.clear();
        self.items.make_contiguous().sort_by_key(|item| item.key);
    }

    /// Reads from a socket that has something.
    fn read_from(&mut self, token: Token, horizon: Stamp, round: &mut Round) {
        if let Some(number) = self.datagrams.iter().position(|each| each.source.token() == token) {
            if let Some(each) = self.datagrams.get_mut(number) {
                each.source.unread = true;
            }
            let is_marked =
                |(_, what): &(Key, What)| matches!(what, What::Mark(marked) if *marked == number);
            if !self.fresh.iter().any(is_marked) {
                self.prime(number, horizon, round);
            }
        } else if let Some(tcp) = &mut self.tcp {
            match token {
                TCP => tcp.accept(&self.shared.metrics, self.poll.registry(), &mut self.arrivals),
                Token(number) => tcp.read(number - CONNECTIONS, &mut self.arrivals),
            }
        }
    }

    /// Reads the first batch of a datagram socket, unless there is some of one left, and marks its place.
    fn prime(&mut self, number: usize, horizon: Stamp, round: &mut Round) {
        self.fill(number, round);
        let Some(each) = self.datagrams.get(number) else { return };
        round.was_busy |= each.source.unread;
        if let Some(stamp) = each.next(horizon) {
            self.fresh.push((Key::At(stamp), What::Mark(number)));
        }
    }

    /// Reads the next batch of a datagram socket if there is one and the last one is done.
    fn fill(&mut self, number: usize, round: &mut Round) {
        let (metrics, registry) = (&self.shared.metrics, self.poll.registry());
        let Some(each) = self.datagrams.get_mut(number) else { return };
        let is_due = each.source.retry_at().is_some_and(|at| at <= Instant::now());
        if each.source.is_done() && (each.source.unread || is_due) {
            each.settled = false;
            // The last read, which finds the socket empty, says how long to stay away.
            round.nap = each.source.read(metrics, registry);
        }
    }

    /// Applies what came until the horizon.
    fn apply(&mut self, horizon: Stamp, round: &mut Round) {
        self.worker.begin();
        loop {
            let item = self.items.front().map_or(Stamp::MAX, |item| item.key);
            let datagrams = self.datagrams.iter().enumerate();
            let next = datagrams.filter_map(|(number, each)| Some((each.next(horizon)?, number)));
            match next.min() {
                Some((key, number)) if key < item => {
                    if key > horizon {
                        break;
                    }
                    self.apply_datagram(number, key, round);
                }
                _ if item > horizon => break,
                _ => {
                    let Some(Item { piece, .. }) = self.items.pop_front() else { break };
                    self.worker.serve(Listener::Tcp);
                    if let Some(tcp) = &mut self.tcp {
                        tcp.apply(&piece, &mut self.worker);
                    }
                }
            }
        }
        self.worker.end();
        if let Some(tcp) = &mut self.tcp {
            tcp.close_ended(&self.shared.metrics);
        }
    }

    /// Applies the next datagram, and reads the next batch behind the last one.
    fn apply_datagram(&mut self, number: usize, key: Stamp, round: &mut Round) {
        let Some(each) = self.datagrams.get_mut(number) else { return };
        each.last = key;
        self.worker.serve(each.source.listener());
        if let Some((datagram, address)) = each.source.take() {
            self.worker.come_from(address);
            self.worker.datagram(datagram);
        }
        if each.source.is_done() && each.source.unread {
            // What was read before is to be seen while this goes on.
            self.worker.end();
            self.fill(number, round);
            self.worker.begin();
        }
    }
}

/// Enters what connections gave; `not_exact` says what is known of something that came with the last byte or before.
fn enter(
    fresh: &mut Vec<(Key, What)>,
    arrivals: &mut Vec<Arrival>,
    not_exact: impl Fn(Stamp) -> Key,
    horizon: Stamp,
) {
    for arrival in arrivals.drain(..) {
        let key = match arrival.stamp {
            Some(stamp) if arrival.is_exact => Key::At(stamp),
            Some(stamp) => not_exact(stamp),
            None => not_exact(horizon),
        };
        fresh.push((key, What::Piece(arrival)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, SockAddr, Type};
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;

    use crate::exposition::budget::Budget;
    use crate::statsd::clock::Clock;
    use crate::statsd::line::ParserFlags;
    use crate::statsd::mapper::Mapper;
    use crate::statsd::receive::net::{bind_udp, bind_unixgram};
    use crate::statsd::series::registry::Registry;

    fn shared() -> Arc<Shared> {
        let reserved = Arc::new(|_: &str| false);
        let registry = Registry::new(Clock::system(), reserved, Budget::default(), Box::new(|| {}));
        let shared = Shared::new(registry, Mapper::default(), ParserFlags::default());
        Arc::new(Shared { cache_size: 0, key_cache_size: 16, ..shared })
    }

    fn until(what: &str, mut probe: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !probe() {
            assert!(Instant::now() < end, "waited in vain: {what}");
            std::thread::yield_now();
        }
    }

    fn start(shared: &Arc<Shared>, listener: Listener, socket: Socket, open: Open) -> Intake {
        let mut preparation = Preparation::new(shared).expect("prepared");
        preparation.datagrams(listener, 0, socket, open).expect("watched");
        preparation.start(0).expect("started")
    }

    fn dropped(intake: &Intake) -> u64 {
        intake.sockets().map(|socket| socket.dropped).sum()
    }

    fn read_errors(shared: &Shared, listener: Listener) -> u64 {
        let counter = shared.metrics.read_errors.get(listener as usize).expect("counter");
        counter.load(Ordering::Relaxed)
    }

    #[test]
    fn a_udp_socket_that_fails_is_opened_again_at_its_address() {
        let shared = shared();
        let socket = bind_udp("127.0.0.1:0".parse().expect("address"), 0, false).expect("bind");
        let address = socket.local_addr().ok().and_then(|address| address.as_socket());
        let address = address.expect("address");
        // A peer that refuses what is sent to it is an error of the next read.
        let closed = UdpSocket::bind("127.0.0.1:0").expect("bind");
        // It hears another one alone.
        closed.connect("127.0.0.1:9").expect("connected");
        socket.connect(&closed.local_addr().expect("address").into()).expect("connected");
        socket.send(b"refused").expect("sent");
        let open = Box::new(move || bind_udp(address, 0, false));
        let intake = start(&shared, Listener::Udp, socket, open);
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        until("lines are counted again", || {
            sender.send_to(b"a:1|c\nb:1|c", address).expect("sent");
            shared.metrics.lines(Some(Listener::Udp)) >= 2
        });
        assert_eq!(read_errors(&shared, Listener::Udp), 1);
        intake.shutdown();
    }

    #[test]
    fn a_socket_with_an_abstract_name_that_fails_is_opened_again() {
        let shared = shared();
        let name = format!("@kstatd-intake-{}", std::process::id());
        let socket = bind_unixgram(&name, 0).expect("bind");
        let address = socket.local_addr().expect("address");
        let directory = tempfile::tempdir().expect("directory");
        let path = |file: &str| directory.path().join(file);
        let peer = UnixDatagram::bind(path("peer")).expect("bind");
        let _other = UnixDatagram::bind(path("other")).expect("bind");
        // A peer that turns away from what it has not read is an error of the next read.
        socket.connect(&SockAddr::unix(path("peer")).expect("address")).expect("connected");
        socket2::SockRef::from(&peer).connect(&address).expect("connected");
        socket.send(b"unread").expect("sent");
        peer.connect(path("other")).expect("connected");
        let open = Box::new(move || bind_unixgram(&name, 0));
        let intake = start(&shared, Listener::Unixgram, socket, open);
        let sender = Socket::new(Domain::UNIX, Type::DGRAM, None).expect("socket");
        until("lines are counted again", || {
            // There is nobody between two sockets.
            let _ = sender.send_to(b"a:1|c", &address);
            shared.metrics.lines(Some(Listener::Unixgram)) >= 1
        });
        assert_eq!(read_errors(&shared, Listener::Unixgram), 1);
        intake.shutdown();
    }

    #[test]
    fn a_socket_that_cannot_be_opened_is_tried_again() {
        let shared = shared();
        // Reading from a stream socket without a peer fails, whatever reads.
        let broken = || Socket::new(Domain::IPV4, Type::STREAM, None);
        let good = bind_udp("127.0.0.1:0".parse().expect("address"), 0, false).expect("bind");
        let address = good.local_addr().ok().and_then(|address| address.as_socket());
        let address = address.expect("address");
        let mut sockets = vec![Some(good), None, broken().ok()];
        let sockets = Mutex::new(std::iter::from_fn(move || sockets.pop()));
        let open = move || {
            let next = sockets.lock().expect("sockets").next().flatten();
            next.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))
        };
        let intake = start(&shared, Listener::Udp, broken().expect("socket"), Box::new(open));
        // What comes while there is no reader waits in the socket.
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        sender.send_to(b"a:1|c\nb:1|c", address).expect("sent");
        until("the lines are counted", || shared.metrics.lines(Some(Listener::Udp)) == 2);
        assert!(read_errors(&shared, Listener::Udp) >= 2);
        intake.shutdown();
    }

    #[test]
    fn what_gathers_during_naps_is_not_lost() {
        const DATAGRAMS: u64 = 20_000;
        let shared = shared();
        let socket = bind_udp("127.0.0.1:0".parse().expect("address"), 0, false).expect("bind");
        let address = socket.local_addr().ok().and_then(|address| address.as_socket());
        let open = Box::new(|| Err(io::Error::other("never closed")));
        let intake = start(&shared, Listener::Udp, socket, open);
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        for _ in 0..DATAGRAMS {
            sender.send_to(b"a:1|c", address.expect("address")).expect("sent");
        }
        // What the buffer could not hold, where the system allows but a small one, the kernel has counted.
        until("each datagram is accounted for", || {
            shared.metrics.lines(Some(Listener::Udp)) + dropped(&intake) == DATAGRAMS
        });
        intake.shutdown();
        let received = shared.metrics.lines(Some(Listener::Udp));
        assert_eq!(received + dropped(&intake), DATAGRAMS);
        assert!(received > 0);
    }
}
