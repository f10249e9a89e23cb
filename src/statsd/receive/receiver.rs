//! The thread that receives lines from all listeners.
//!
//! In the default configuration one thread reads from all sockets and applies the lines with one [`Worker`].
//! Each round reads the datagram sockets first, usually until they are empty, and then a limited part of what the
//! connections contain: the kernel drops datagrams that find a full buffer, but senders of a connection wait.
//! Lines take effect in the order of the kernel within a datagram socket and within a connection; there is no
//! order between sockets. Each additional socket of `udp_sockets` has its own thread.
//!
//! Under load the thread pauses between reads so that datagrams accumulate (see [`super::wakeup_batcher`]). When idle
//! it blocks without polling. A panic loses the datagram or the part of a connection that caused it (see
//! [`crate::statsd::supervise`]).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token, Waker};
use socket2::Socket;

use super::datagram::{DatagramSource, OpenSocket, SocketState};
use super::tcp::{CONNECTIONS, TCP, TcpSource};
use crate::statsd::ingest::{Shared, Worker};
use crate::statsd::metrics::{Listener, SocketStats, bump};
use crate::statsd::supervise::SupervisedThread;
use crate::util::descriptors::Descriptors;

const WAKER: Token = Token(0);
const DATAGRAMS: usize = 2;
/// The maximum number of sockets reported per epoll call.
const EVENTS: usize = 256;
/// The maximum number of batches of a datagram socket in a round.
const BATCHES: usize = 16;
/// The bytes of all connections in a round, exceeded by at most one read. They take about as long as a pause.
const STREAM_BYTES: usize = 64 << 10;
/// The bytes that a read from a connection counts for in addition to those that it returns.
const READ_COST: usize = 256;
/// The maximum number of rounds at shutdown; far more than the datagrams received by then can need.
const MAX_SHUTDOWN_ROUNDS: usize = 1_000;
/// The time for which further connections are accepted at shutdown after those that have descriptors.
const ACCEPT_TIME: Duration = Duration::from_secs(1);
/// The time without pausing after data from TCP or a Unix socket, because senders to a Unix socket block
/// while its short queue is full.
const NO_PAUSE_AFTER: Duration = Duration::from_millis(20);
/// The pause after an epoll error.
const POLL_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A running receiving thread.
#[derive(Debug)]
pub(crate) struct Receiver {
    control: Arc<Control>,
    thread: SupervisedThread,
    sockets: Vec<Arc<SocketState>>,
}

#[derive(Debug)]
struct Control {
    stopping: AtomicBool,
    waker: Waker,
}

impl Control {
    /// Lets the thread end as soon as it has read what the sockets contain.
    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "Cannot wake the receiving thread");
        }
    }
}

impl Receiver {
    /// Returns the state of its datagram sockets.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = SocketStats> {
        self.sockets.iter().map(|socket| socket.facts())
    }

    /// Processes what the sockets have received so far and ends the thread.
    pub(crate) fn shutdown(&self) {
        self.control.stop();
        self.thread.join();
    }
}

/// The state of a receiving thread.
pub(crate) struct ReceiveLoop {
    shared: Arc<Shared>,
    control: Arc<Control>,
    poll: Poll,
    events: Events,
    /// The TCP listener and connections that may contain data, in order. One stays in front until it has been
    /// read, so a panic does not lose it: events are edge-triggered.
    ready: VecDeque<Token>,
    worker: Worker,
    datagrams: Vec<DatagramSource>,
    tcp: Option<TcpSource>,
    /// The time of the last data that was not a UDP datagram.
    last_other: Option<Instant>,
    /// Runs before the next poll.
    #[cfg(test)]
    before_poll: Option<fn(&Control)>,
}

impl ReceiveLoop {
    /// Creates a thread without sockets, which has not been started.
    ///
    /// # Errors
    /// Fails if the epoll instance cannot be created.
    pub(crate) fn new(shared: &Arc<Shared>) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        Ok(Self {
            worker: Worker::new(shared, Listener::Udp),
            shared: Arc::clone(shared),
            control: Arc::new(Control { stopping: AtomicBool::new(false), waker }),
            poll,
            events: Events::with_capacity(EVENTS),
            ready: VecDeque::new(),
            datagrams: Vec::new(),
            tcp: None,
            last_other: None,
            #[cfg(test)]
            before_poll: None,
        })
    }

    /// Adds a datagram socket. `number` is its index among the sockets of the listener; `open` opens a
    /// replacement.
    ///
    /// # Errors
    /// Fails if the socket cannot be registered.
    pub(crate) fn add_datagrams(
        &mut self,
        listener: Listener,
        number: usize,
        socket: Socket,
        open: OpenSocket,
    ) -> io::Result<()> {
        let (token, registry) = (Token(DATAGRAMS + self.datagrams.len()), self.poll.registry());
        let source = DatagramSource::new(listener, number, socket, open, registry, token)?;
        self.datagrams.push(source);
        Ok(())
    }

    /// Adds the TCP listener. Connections are closed after `idle` without data.
    ///
    /// # Errors
    /// Fails if the listener cannot be registered.
    pub(crate) fn add_tcp(
        &mut self,
        listener: std::net::TcpListener,
        idle: Option<Duration>,
        descriptors: &'static Descriptors,
    ) -> io::Result<()> {
        self.tcp = Some(TcpSource::new(listener, idle, descriptors, self.poll.registry())?);
        Ok(())
    }

    /// Starts the thread. `number` becomes part of its name.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(crate) fn start(mut self, number: usize) -> io::Result<Receiver> {
        let (control, shared) = (Arc::clone(&self.control), Arc::clone(&self.shared));
        let sockets = self.datagrams.iter().map(DatagramSource::state).collect();
        let thread = SupervisedThread::spawn(
            &format!("statsd-in-{number}"),
            move || bump(&shared.metrics.receiver_restarts),
            move || self.run(),
        )?;
        Ok(Receiver { control, thread, sockets })
    }

    fn run(&mut self) {
        // Needed when the thread continues after a panic.
        self.worker.recover();
        let mut pause = None;
        loop {
            self.poll_events(Some(Duration::ZERO));
            // After this poll, because it may take the wake-up of `Control::stop`: the next one would wait for ever.
            if self.control.stopping.load(Ordering::Acquire) {
                break;
            }
            if self.is_idle() {
                if let Some(pause) = pause.take()
                    && self.last_other.is_none_or(|at: Instant| at.elapsed() > NO_PAUSE_AFTER)
                {
                    std::thread::sleep(pause);
                    continue;
                }
                let timeout = self.deadline().map(|due| {
                    // Adds a margin, because the kernel's timer may fire slightly early.
                    due.saturating_duration_since(Instant::now()) + Duration::from_millis(1)
                });
                self.poll_events(timeout);
            }
            pause = self.read_ready(false);
        }
        self.drain();
    }

    /// Reads the sockets until they are empty.
    fn read_all(&mut self) {
        for _ in 0..MAX_SHUTDOWN_ROUNDS {
            self.poll_events(Some(Duration::ZERO));
            if self.is_idle() {
                break;
            }
            self.read_ready(true);
        }
    }

    /// Processes everything received so far.
    fn drain(&mut self) {
        // Connections that wait to be accepted, and for descriptors, may have sent lines, too. Those that are closed may connect again.
        let end = Instant::now() + ACCEPT_TIME;
        loop {
            let mut has_others = false;
            if let Some(tcp) = &mut self.tcp {
                has_others =
                    tcp.accept_last(&self.shared.metrics, self.poll.registry(), &mut self.worker);
                self.ready = tcp.begin_shutdown().map(|slot| Token(CONNECTIONS + slot)).collect();
            }
            self.read_all();
            let Some(tcp) = &mut self.tcp else { return };
            tcp.end_all(&mut self.worker);
            self.worker.end();
            tcp.close_ended(&self.shared.metrics);
            if !has_others || Instant::now() >= end {
                return;
            }
        }
    }

    /// Returns true if no socket may contain data and nothing is due.
    fn is_idle(&self) -> bool {
        self.ready.is_empty()
            && !self.datagrams.iter().any(DatagramSource::is_ready)
            && self.deadline().is_none_or(|due| due > Instant::now())
    }

    /// Returns the next time at which something is due that epoll does not report.
    fn deadline(&self) -> Option<Instant> {
        let retries = self.datagrams.iter().filter_map(|source| source.retry_at);
        retries.chain(self.tcp.as_ref().and_then(TcpSource::deadline)).min()
    }

    /// Waits for events and marks the ready sockets.
    fn poll_events(&mut self, timeout: Option<Duration>) {
        #[cfg(test)]
        if let Some(act) = self.before_poll.take() {
            act(&self.control);
        }
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            Err(error) => {
                tracing::error!(%error, "Cannot poll the sockets, retrying");
                std::thread::sleep(POLL_RETRY_PAUSE);
                return;
            }
        }
        let mut count = 0;
        for token in self.events.iter().map(mio::event::Event::token) {
            count += 1;
            let is_new = match (token, &mut self.tcp) {
                (WAKER, _) => false,
                (TCP, _) => !self.ready.contains(&token),
                (Token(number @ CONNECTIONS..), Some(tcp)) => tcp.mark_ready(number - CONNECTIONS),
                (Token(number), _) => {
                    self.datagrams[number - DATAGRAMS].has_more = true;
                    false
                }
            };
            if is_new {
                self.ready.push_back(token);
            }
        }
        if count >= EVENTS {
            // Events of datagram sockets may be behind those of many connections.
            self.datagrams.iter_mut().for_each(|source| source.has_more = true);
        }
    }

    /// Reads from the ready sockets: up to [`BATCHES`] from each datagram socket, then once from each connection
    /// until these have given [`STREAM_BYTES`]; with `all` from each connection. Returns the pause.
    fn read_ready(&mut self, all: bool) -> Option<Duration> {
        let pause = self.read_datagrams();
        let mut room = STREAM_BYTES;
        for _ in 0..self.ready.len() {
            let Some(&token) = self.ready.front() else { break };
            let read = self.read_stream(token);
            self.ready.pop_front();
            if read.is_some() {
                self.ready.push_back(token);
            }
            room = room.saturating_sub(READ_COST + read.unwrap_or_default());
            if room == 0 {
                if !all {
                    break;
                }
                // The copies for the relay and for other replicas are passed on in parts as large as those of a round.
                self.worker.end();
                room = STREAM_BYTES;
            }
        }
        if let Some(tcp) = &mut self.tcp {
            tcp.run_due(&self.shared.metrics, self.poll.registry(), &mut self.worker);
        }
        self.worker.end();
        if let Some(tcp) = &mut self.tcp {
            tcp.close_ended(&self.shared.metrics);
        }
        pause
    }

    /// Reads from the ready datagram sockets and applies the data. Returns the pause.
    fn read_datagrams(&mut self) -> Option<Duration> {
        let (metrics, registry) = (&self.shared.metrics, self.poll.registry());
        let now = Instant::now();
        let mut pause = None;
        for source in &mut self.datagrams {
            source.has_more |= source.retry_at.is_some_and(|at| at <= now);
            for _ in 0..BATCHES {
                if !source.is_ready() {
                    break;
                }
                if source.batch.is_done() {
                    pause = source.read(metrics, registry);
                }
                self.worker.begin();
                self.worker.set_listener(source.listener());
                if source.listener() != Listener::Udp && !source.batch.is_done() {
                    self.last_other = Some(Instant::now());
                }
                let is_unix = source.listener() == Listener::Unixgram;
                loop {
                    let process = if is_unix { source.batch.process() } else { None };
                    let Some((datagram, address)) = source.batch.take() else { break };
                    match process {
                        Some(process) => self.worker.set_process(process),
                        None => self.worker.set_sender(address),
                    }
                    self.worker.datagram(datagram);
                }
                if source.has_more {
                    self.worker.end();
                }
            }
        }
        pause
    }

    /// Accepts connections, or reads once from a connection and applies the data. Returns the number of bytes if
    /// there may be more.
    fn read_stream(&mut self, token: Token) -> Option<usize> {
        let tcp = self.tcp.as_mut()?;
        let Token(number) = token;
        if token == TCP {
            tcp.accept(&self.shared.metrics, self.poll.registry(), &mut self.worker);
            return None;
        }
        let read = tcp.read(number.saturating_sub(CONNECTIONS), &mut self.worker)?;
        self.last_other = Some(Instant::now());
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, SockAddr, Type};
    use std::io::Write as _;
    use std::net::{TcpStream, UdpSocket};
    use std::os::unix::net::UnixDatagram;
    use std::sync::Mutex;

    use crate::mapper::Mapper;
    use crate::statsd::PipelineConfig;
    use crate::statsd::receive::net::{bind_tcp, bind_udp, bind_unixgram};
    use crate::util::descriptors;

    impl ReceiveLoop {
        /// Applies what the sockets have received so far, on this thread.
        pub(crate) fn apply_received(&mut self) {
            self.read_all();
        }
    }

    fn shared() -> Arc<Shared> {
        let config = PipelineConfig { key_cache_size: 16, ..PipelineConfig::default() };
        Arc::new(config.shared(Mapper::default(), Arc::new(|_| false), Box::new(|| {})))
    }

    fn until(what: &str, mut probe: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !probe() {
            assert!(Instant::now() < end, "waited in vain: {what}");
            std::thread::yield_now();
        }
    }

    fn start(
        shared: &Arc<Shared>,
        listener: Listener,
        socket: Socket,
        open: OpenSocket,
    ) -> Receiver {
        let mut builder = ReceiveLoop::new(shared).expect("prepared");
        builder.add_datagrams(listener, 0, socket, open).expect("watched");
        builder.start(0).expect("started")
    }

    fn dropped(receiver: &Receiver) -> u64 {
        receiver.sockets().map(|socket| socket.dropped).sum()
    }

    fn read_errors(shared: &Shared, listener: Listener) -> u64 {
        let counter = shared.metrics.read_errors.get(listener as usize).expect("counter");
        counter.load(Ordering::Relaxed)
    }

    /// Senders of streams wait until they are read, but the kernel drops datagrams.
    #[test]
    fn a_round_reads_all_datagrams_and_a_part_of_the_streams() {
        const LINE: &[u8] = b"a:1|c\n";
        let shared = shared();
        let lines = |listener| shared.metrics.lines(Some(listener));
        let mut builder = ReceiveLoop::new(&shared).expect("prepared");
        let local = "127.0.0.1:0".parse().expect("address");
        let socket = bind_udp(local, 0, false).expect("bind");
        let udp = socket.local_addr().ok().and_then(|address| address.as_socket());
        let open = Box::new(move || bind_udp(local, 0, false));
        builder.add_datagrams(Listener::Udp, 0, socket, open).expect("watched");
        let listener = bind_tcp(local).expect("bind");
        let tcp = listener.local_addr().expect("address");
        builder.add_tcp(listener, None, descriptors::of_process()).expect("watched");
        let mut streams =
            Vec::from_iter((0..20).map(|_| TcpStream::connect(tcp).expect("connect")));
        until("the connections are accepted", || {
            builder.apply_received();
            shared.metrics.tcp_open.load(Ordering::Relaxed) == streams.len() as i64
        });
        let mut sent = 0;
        for stream in &mut streams {
            stream.set_nonblocking(true).expect("set");
            sent += stream.write(&LINE.repeat(10_000)).expect("sent") / LINE.len();
        }
        let receive_loop = &mut builder;
        until("each connection has data", || {
            receive_loop.poll_events(Some(Duration::ZERO));
            receive_loop.ready.len() == streams.len()
        });
        let sender = UdpSocket::bind(local).expect("bind");
        for _ in 0..300 {
            sender.send_to(b"b:1|c", udp.expect("address")).expect("sent");
        }
        until("the datagrams are applied", || {
            let before = lines(Listener::Tcp);
            receive_loop.poll_events(Some(Duration::ZERO));
            receive_loop.read_ready(false);
            let read = (lines(Listener::Tcp) - before) as usize * LINE.len();
            assert!(read < 2 * STREAM_BYTES, "{read} bytes of streams in a round");
            assert!(!receive_loop.datagrams.iter().any(|source| source.has_more));
            lines(Listener::Udp) == 300
        });
        until("the streams are applied", || {
            builder.apply_received();
            lines(Listener::Tcp) == sent as u64
        });
    }

    /// The remaining bytes of each connection are fixed when the shutdown begins: as they are read, the kernel lets the
    /// sender continue.
    #[test]
    fn busy_senders_do_not_delay_the_shutdown() {
        const LINE: &[u8] = b"requests:1000000|c|#service:checkout\n";
        let shared = shared();
        let lines = || shared.metrics.lines(Some(Listener::Tcp)) as usize;
        let mut builder = ReceiveLoop::new(&shared).expect("prepared");
        let listener = bind_tcp("127.0.0.1:0".parse().expect("address")).expect("bind");
        let tcp = listener.local_addr().expect("address");
        builder.add_tcp(listener, None, descriptors::of_process()).expect("watched");
        let fill = |stream: &mut TcpStream| {
            stream.set_nonblocking(true).expect("set");
            let mut sent = 0;
            let stream_of_lines = LINE.repeat(10_000);
            while let Ok(count) = stream.write(&stream_of_lines[sent % LINE.len()..]) {
                sent += count;
            }
            sent
        };
        // One connection is known, one has sent its last line without a line feed, and one has not been accepted.
        let mut known = TcpStream::connect(tcp).expect("connect");
        let mut finished = TcpStream::connect(tcp).expect("connect");
        finished.write_all(b"requests:1000000|c|#service:checkout").expect("sent");
        until("the connections are accepted", || {
            builder.apply_received();
            shared.metrics.tcp_open.load(Ordering::Relaxed) == 2
        });
        let mut waiting = TcpStream::connect(tcp).expect("connect");
        let sent = fill(&mut known) + fill(&mut waiting);
        builder.drain();
        let read = lines() * LINE.len();
        assert!(read > 0 && read < sent / 2, "{read} of {sent} bytes");
        assert_eq!(shared.metrics.tcp_open.load(Ordering::Relaxed), 0);
        // Nothing is read twice or in part.
        assert_eq!(shared.registry.counts.live[0].load(Ordering::Relaxed), 1);
        let pages = shared.registry.view().pages;
        let (entry, _) = pages.page(0).and_then(|page| page.get(0)).expect("a series");
        let value = shared
            .registry
            .scalars()
            .get(entry.handle.slot)
            .and_then(|cell| cell.read(entry.handle.generation));
        assert_eq!(value, Some(1_000_000.0 * lines() as f64));
    }

    /// There are more senders than descriptors.
    #[test]
    fn connections_that_wait_for_descriptors_lose_nothing_at_the_end() {
        let shared = shared();
        let mut builder = ReceiveLoop::new(&shared).expect("prepared");
        let listener = bind_tcp("127.0.0.1:0".parse().expect("address")).expect("bind");
        let tcp = listener.local_addr().expect("address");
        let few: &'static Descriptors = Box::leak(Box::new(Descriptors::new(16)));
        builder.add_tcp(listener, None, few).expect("watched");
        let senders: Vec<TcpStream> = (0..40)
            .map(|_| {
                let mut sender = TcpStream::connect(tcp).expect("connect");
                sender.write_all(b"a:1|c\n").expect("sent");
                sender
            })
            .collect();
        builder.apply_received();
        let lines = || shared.metrics.lines(Some(Listener::Tcp));
        assert!(lines() < 40, "all have descriptors");
        builder.drain();
        assert_eq!(lines(), 40);
        drop(senders);
    }

    /// The poll takes the wake-up, so the thread has to look for the request after it.
    #[test]
    fn a_thread_that_is_about_to_poll_ends_too() {
        let mut builder = ReceiveLoop::new(&shared()).expect("prepared");
        builder.before_poll = Some(Control::stop);
        let receiver = builder.start(0).expect("started");
        let thread = receiver.thread.0.lock().take().expect("running");
        until("the thread ends", || thread.is_finished());
        thread.join().expect("no panic");
    }

    #[test]
    fn a_failed_udp_socket_is_reopened_at_its_address() {
        let shared = shared();
        let socket = bind_udp("127.0.0.1:0".parse().expect("address"), 0, false).expect("bind");
        let address = socket.local_addr().ok().and_then(|address| address.as_socket());
        let address = address.expect("address");
        // Sending to a peer that refuses makes the next read fail.
        let closed = UdpSocket::bind("127.0.0.1:0").expect("bind");
        // A connected socket accepts one peer only.
        closed.connect("127.0.0.1:9").expect("connected");
        socket.connect(&closed.local_addr().expect("address").into()).expect("connected");
        socket.send(b"refused").expect("sent");
        let open = Box::new(move || bind_udp(address, 0, false));
        let receiver = start(&shared, Listener::Udp, socket, open);
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        until("lines are counted again", || {
            sender.send_to(b"a:1|c\nb:1|c", address).expect("sent");
            shared.metrics.lines(Some(Listener::Udp)) >= 2
        });
        assert_eq!(read_errors(&shared, Listener::Udp), 1);
        receiver.shutdown();
    }

    #[test]
    fn a_failed_abstract_unix_socket_is_reopened() {
        let shared = shared();
        let name = format!("@kstatd-intake-{}", std::process::id());
        let socket = bind_unixgram(&name, 0).expect("bind");
        let address = socket.local_addr().expect("address");
        let directory = tempfile::tempdir().expect("directory");
        let path = |file: &str| directory.path().join(file);
        let peer = UnixDatagram::bind(path("peer")).expect("bind");
        let _other = UnixDatagram::bind(path("other")).expect("bind");
        // A peer that disconnects with unread data makes the next read fail.
        socket.connect(&SockAddr::unix(path("peer")).expect("address")).expect("connected");
        socket2::SockRef::from(&peer).connect(&address).expect("connected");
        socket.send(b"unread").expect("sent");
        peer.connect(path("other")).expect("connected");
        let open = Box::new(move || bind_unixgram(&name, 0));
        let receiver = start(&shared, Listener::Unixgram, socket, open);
        let sender = Socket::new(Domain::UNIX, Type::DGRAM, None).expect("socket");
        until("lines are counted again", || {
            // Fails while the socket is being reopened.
            let _ = sender.send_to(b"a:1|c", &address);
            shared.metrics.lines(Some(Listener::Unixgram)) >= 1
        });
        assert_eq!(read_errors(&shared, Listener::Unixgram), 1);
        receiver.shutdown();
    }

    #[test]
    fn opening_a_socket_is_retried() {
        let shared = shared();
        // Reading from a stream socket without a peer fails.
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
        let receiver = start(&shared, Listener::Udp, broken().expect("socket"), Box::new(open));
        // Datagrams that arrive without a reader stay in the socket.
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        sender.send_to(b"a:1|c\nb:1|c", address).expect("sent");
        until("the lines are counted", || shared.metrics.lines(Some(Listener::Udp)) == 2);
        assert!(read_errors(&shared, Listener::Udp) >= 2);
        receiver.shutdown();
    }

    #[test]
    fn datagrams_that_accumulate_during_a_pause_are_not_lost() {
        const DATAGRAMS: u64 = 20_000;
        let shared = shared();
        let socket = bind_udp("127.0.0.1:0".parse().expect("address"), 0, false).expect("bind");
        let address = socket.local_addr().ok().and_then(|address| address.as_socket());
        let open = Box::new(|| Err(io::Error::other("never closed")));
        let receiver = start(&shared, Listener::Udp, socket, open);
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        for _ in 0..DATAGRAMS {
            sender.send_to(b"a:1|c", address.expect("address")).expect("sent");
        }
        // If the system allows only a small buffer, the kernel counts the drops.
        until("each datagram is accounted for", || {
            shared.metrics.lines(Some(Listener::Udp)) + dropped(&receiver) == DATAGRAMS
        });
        receiver.shutdown();
        let received = shared.metrics.lines(Some(Listener::Udp));
        assert_eq!(received + dropped(&receiver), DATAGRAMS);
        assert!(received > 0);
    }
}
