//! Look-ups of the relay's target, which run beside the relay.
//!
//! If no name server answers, the system's resolver occupies its thread for up to a minute. So each look-up has its
//! own thread, of which there is at most one, and the relay uses the last known address meanwhile.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

pub(in crate::statsd) const MIN_PAUSE: Duration = Duration::from_millis(100);
pub(in crate::statsd) const MAX_PAUSE: Duration = Duration::from_secs(30);
/// The time after which a look-up without an answer is reported as failed.
const LIMIT: Duration = Duration::from_secs(15);

pub(in crate::statsd) type Found = io::Result<SocketAddr>;
/// Starts a look-up of a target, whose result it sends.
type Resolver = dyn Fn(&str, Sender<Found>) -> io::Result<()> + Send;

/// The look-ups of a target.
pub(in crate::statsd) struct TargetLookup {
    target: String,
    resolver: Box<Resolver>,
    running: Option<RunningLookup>,
    /// The pause after the next look-up.
    pause: Duration,
    not_before: Instant,
}

struct RunningLookup {
    found: Receiver<Found>,
    /// `None` once it has been reported as failed.
    fails_at: Option<Instant>,
}

impl TargetLookup {
    pub(super) fn new(target: &str) -> Self {
        Self {
            target: target.to_owned(),
            resolver: Box::new(|target, found| resolve_in_thread(target, found, resolve)),
            running: None,
            pause: MIN_PAUSE,
            not_before: Instant::now(),
        }
    }

    /// Waits for the first address.
    ///
    /// # Errors
    /// Fails if the target cannot be resolved, or no name server answers in time.
    pub(super) fn first(&mut self) -> Found {
        if let Some(address) = self.address() {
            return Ok(address);
        }
        self.begin()?.recv_timeout(LIMIT).map_err(|_| no_answer())?
    }

    /// Starts a look-up unless one is running, the last one was a moment ago, or the target is an address.
    ///
    /// # Errors
    /// Fails if there is no thread for it.
    pub(super) fn start_if_due(&mut self, now: Instant) -> io::Result<()> {
        if self.running.is_some() || now < self.not_before || self.address().is_some() {
            return Ok(());
        }
        self.not_before = now + self.pause;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        self.running = Some(RunningLookup { found: self.begin()?, fails_at: Some(now + LIMIT) });
        Ok(())
    }

    /// Returns the target if it is an address.
    fn address(&self) -> Option<SocketAddr> {
        self.target.parse().ok()
    }

    fn begin(&self) -> io::Result<Receiver<Found>> {
        let (answer, found) = channel();
        (self.resolver)(&self.target, answer)?;
        Ok(found)
    }

    /// Returns the result of the look-up that is running, if it has ended or has exceeded its time limit. One that has
    /// exceeded it may still return an address later.
    pub(super) fn answer(&mut self, now: Instant) -> Option<Found> {
        let running = self.running.as_mut()?;
        match running.found.try_recv() {
            Err(TryRecvError::Empty) => {
                running.fails_at.take_if(|at| *at <= now).map(|_| Err(no_answer()))
            }
            ended => {
                let is_reported = running.fails_at.is_none();
                self.running = None;
                let found = ended.unwrap_or_else(|error| Err(io::Error::other(error)));
                (found.is_ok() || !is_reported).then_some(found)
            }
        }
    }

    /// Returns the pause before the look-up after the next one.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    /// Lets the next look-up start soon, because the target has recovered.
    pub(super) fn reset_pause(&mut self, now: Instant) {
        self.pause = MIN_PAUSE;
        self.not_before = self.not_before.min(now + MIN_PAUSE);
    }
}

fn no_answer() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("no answer from a name server within {LIMIT:?}"),
    )
}

/// Resolves a target in a separate thread.
fn resolve_in_thread(
    target: &str,
    found: Sender<Found>,
    resolve: impl FnOnce(&str) -> Found + Send + 'static,
) -> io::Result<()> {
    let target = target.to_owned();
    let thread = std::thread::Builder::new().name("relay-lookup".to_owned());
    // A failed send means that the relay has ended.
    thread.spawn(move || drop(found.send(resolve(&target)))).map(drop)
}

/// Resolves a target.
fn resolve(target: &str) -> Found {
    // A missing host means the local host, as in Go's resolver.
    let named = if target.starts_with(':') { format!("localhost{target}") } else { target.into() };
    let found: Vec<SocketAddr> = named.to_socket_addrs()?.collect();
    // IPv4 is preferred, as in Go's resolver.
    let chosen = found.iter().find(|address| address.is_ipv4()).or(found.first());
    chosen
        .copied()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{target} has no address")))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use super::super::{Relay, RelayBatch, RelayConfig, RelaySender};
    use super::*;

    impl TargetLookup {
        /// Looks a name up with this resolver from now on.
        pub(in crate::statsd) fn resolve_with(
            &mut self,
            resolver: impl Fn(&str, Sender<Found>) -> io::Result<()> + Send + 'static,
        ) {
            (self.target, self.resolver) = ("relay.example:8125".to_owned(), Box::new(resolver));
        }
    }

    /// A relay whose target is a name, and the name server, which answers when told to.
    struct Fixture {
        relay: Relay,
        sender: RelaySender,
        old: UdpSocket,
        answers: Sender<Found>,
        asked: Arc<AtomicUsize>,
    }

    fn receiver() -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
        socket.set_read_timeout(Some(Duration::from_secs(120))).expect("timeout");
        let address = socket.local_addr().expect("address");
        (socket, address)
    }

    impl Fixture {
        fn new() -> Self {
            let (old, address) = receiver();
            let target = address.to_string();
            let config = RelayConfig { address: target.clone(), target, packet_length: 0 };
            let (relay, mut sender) = Relay::new(&config).expect("made");
            let (answers, next) = channel();
            let (next, asked) = (Arc::new(Mutex::new(next)), Arc::new(AtomicUsize::new(0)));
            let count = Arc::clone(&asked);
            sender.lookup.resolve_with(move |target, found| {
                let (next, count) = (Arc::clone(&next), Arc::clone(&count));
                resolve_in_thread(target, found, move |_| {
                    count.fetch_add(1, Ordering::SeqCst);
                    next.lock().expect("lock").recv().map_err(io::Error::other)?
                })
            });
            Self { relay, sender, old, answers, asked }
        }

        /// Sends a line in a datagram of its own.
        fn send(&mut self, line: &str) {
            self.sender.batch = RelayBatch::default();
            self.sender.batch.push(line.as_bytes());
            self.sender.pack();
        }

        fn errors(&self) -> u64 {
            self.relay.counts.errors.load(Ordering::Relaxed)
        }
    }

    fn next(socket: &UdpSocket) -> String {
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).expect("a datagram");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn lines_go_to_the_old_address_while_no_name_server_answers() {
        let mut fixture = Fixture::new();
        fixture.sender.record_failure(&io::Error::other("refused"));
        for number in 0..100 {
            // Another look-up would be due.
            fixture.sender.lookup.not_before = fixture.sender.now;
            fixture.send(&format!("a{number}:1|c"));
            assert_eq!(next(&fixture.old), format!("a{number}:1|c\n"));
        }
        assert_eq!(fixture.errors(), 1, "the failure");
        // The time limit of the look-up is over.
        let running = fixture.sender.lookup.running.as_mut().expect("a look-up");
        running.fails_at = Some(fixture.sender.now);
        for _ in 0..10 {
            fixture.send("b:1|c");
            assert_eq!(next(&fixture.old), "b:1|c\n");
        }
        assert_eq!(fixture.errors(), 2, "the look-up fails once");
        // A late answer counts, without a further look-up.
        let (new, address) = receiver();
        new.set_nonblocking(true).expect("set");
        fixture.answers.send(Ok(address)).expect("asked");
        let end = Instant::now() + Duration::from_secs(120);
        while new.recv(&mut [0; 64]).is_err() {
            assert!(Instant::now() < end, "no line arrives at the new address");
            fixture.send("c:1|c");
        }
        assert_eq!(fixture.asked.load(Ordering::SeqCst), 1, "look-ups");
        assert_eq!(fixture.errors(), 2);
    }

    #[test]
    fn the_end_does_not_wait_for_a_name_server() {
        let mut fixture = Fixture::new();
        fixture.sender.record_failure(&io::Error::other("refused"));
        fixture.send("a:1|c");
        fixture.relay.shutdown();
        fixture.sender.run();
        assert_eq!(next(&fixture.old), "a:1|c\n");
        assert_eq!(fixture.relay.counts.relayed_lines.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_error_of_the_resolver_is_counted_once() {
        let mut fixture = Fixture::new();
        fixture.sender.record_failure(&io::Error::other("refused"));
        fixture.send("a:1|c");
        fixture.answers.send(Err(io::ErrorKind::NotFound.into())).expect("asked");
        let end = Instant::now() + Duration::from_secs(120);
        while fixture.errors() < 2 {
            assert!(Instant::now() < end, "the error is not counted");
            fixture.sender.lookup.not_before = end;
            fixture.send("b:1|c");
        }
        fixture.send("c:1|c");
        assert_eq!((fixture.errors(), fixture.asked.load(Ordering::SeqCst)), (2, 1));
        assert!(fixture.sender.lookup.running.is_none());
    }

    #[test]
    fn an_address_is_not_looked_up() {
        let mut lookup = TargetLookup::new("127.0.0.1:9");
        lookup.start_if_due(Instant::now()).expect("nothing to do");
        assert!(lookup.running.is_none());
        assert_eq!(lookup.first().expect("an address"), SocketAddr::from(([127, 0, 0, 1], 9)));
    }
}
