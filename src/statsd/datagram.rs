//! A listener for datagrams (UDP or Unix): one thread, one socket, one [`Worker`].
//!
//! There is no queue: datagrams are parsed where the kernel put them. Under load the thread gathers them by naps (see
//! [`super::pace`]). A read error costs the socket, not the listener: it is counted and the socket is opened again.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::Socket;

use super::ingest::{Shared, Worker};
use super::metrics::{KernelDrops, Listener, bump};
use super::net::{Batch, kernel_drops};
use super::pace::Pace;

const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// Opens the socket again after a read error.
pub(crate) type Open = Box<dyn Fn() -> io::Result<Socket> + Send>;

/// A running listener.
#[derive(Debug)]
pub(crate) struct DatagramListener {
    state: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct State {
    listener: Listener,
    /// Number among the sockets of this listener.
    number: usize,
    socket: Mutex<Arc<Socket>>,
    stopping: AtomicBool,
    drops: Mutex<Drops>,
}

/// The kernel's 32-bit counter of the present socket, and the sum over all sockets so far.
#[derive(Debug, Default)]
struct Drops {
    seen: u32,
    total: u64,
}

impl Drops {
    /// Takes a counter value; one that is older than the last is ignored.
    fn update(&mut self, counter: u32) {
        let more = counter.wrapping_sub(self.seen);
        if more < 1 << 31 {
            self.seen = counter;
            self.total += u64::from(more);
        }
    }
}

impl DatagramListener {
    /// Starts the thread on an open socket.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        listener: Listener,
        number: usize,
        socket: Socket,
        open: Open,
    ) -> io::Result<Self> {
        let state = Arc::new(State {
            listener,
            number,
            socket: Mutex::new(Arc::new(socket)),
            stopping: AtomicBool::new(false),
            drops: Mutex::default(),
        });
        let worker = Worker::new(shared, listener);
        let (shared, mine) = (Arc::clone(shared), Arc::clone(&state));
        let thread = std::thread::Builder::new()
            .name(format!("statsd-{}-{number}", listener.as_str()))
            .spawn(move || mine.run(&shared, worker, &open))?;
        Ok(Self { state, thread: Mutex::new(Some(thread)) })
    }

    /// What the kernel dropped for this listener so far.
    pub(crate) fn kernel_drops(&self) -> KernelDrops {
        self.state.kernel_drops()
    }

    /// Takes what the socket still holds and ends the thread.
    pub(crate) fn shutdown(&self) {
        self.state.stopping.store(true, Ordering::Release);
        // Wakes the reader; that an unconnected socket is not connected is no news.
        let _ = self.state.socket().shutdown(std::net::Shutdown::Read);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!(
                listener = self.state.listener.as_str(),
                "the listener thread panicked"
            );
        }
    }
}

impl State {
    fn socket(&self) -> Arc<Socket> {
        Arc::clone(&self.socket.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn kernel_drops(&self) -> KernelDrops {
        let counter = kernel_drops(&self.socket());
        let mut drops = self.drops.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = counter {
            drops.update(counter);
        }
        KernelDrops { listener: self.listener, socket: self.number, dropped: drops.total }
    }

    /// None for a Unix socket: its queue is a few datagrams, and its senders wait or fail while it is full.
    fn pace(&self, socket: &Socket) -> Option<Pace> {
        let buffer = socket.recv_buffer_size().ok().filter(|_| self.listener == Listener::Udp)?;
        Some(Pace::new(buffer, Instant::now()))
    }

    fn run(&self, shared: &Shared, mut worker: Worker, open: &Open) {
        let mut batch = Batch::new();
        let mut socket = self.socket();
        let mut pace = self.pace(&socket);
        while !self.stopping.load(Ordering::Acquire) {
            match batch.receive(&socket, true) {
                Ok(count) => {
                    self.process(shared, &batch, &mut worker);
                    if let Some(pace) = &mut pace
                        && let Some(nap) =
                            pace.after(count, batch.bytes(), batch.is_full(), Instant::now())
                    {
                        std::thread::sleep(nap);
                    }
                }
                Err(error) => {
                    if let Some(counter) = shared.metrics.read_errors.get(self.listener as usize) {
                        bump(counter);
                    }
                    tracing::error!(listener = self.listener.as_str(), %error, "reading failed, opening the socket again");
                    match self.reopen(open) {
                        Some(opened) => {
                            pace = self.pace(&opened);
                            socket = opened;
                        }
                        None => return,
                    }
                }
            }
        }
        // What has been received so far is not lost. More may keep coming; one receive buffer is enough.
        for _ in 0..1_000 {
            match batch.receive(&socket, false) {
                Ok(count) if count > 0 => self.process(shared, &batch, &mut worker),
                _ => return,
            }
        }
    }

    fn process(&self, shared: &Shared, batch: &Batch, worker: &mut Worker) {
        worker.begin();
        for datagram in batch.datagrams() {
            // Shutting down looks like an empty datagram.
            if datagram.is_empty() && self.stopping.load(Ordering::Acquire) {
                continue;
            }
            worker.datagram(datagram);
        }
        worker.end();
        if let Some(counter) = batch.drops() {
            self.drops.lock().unwrap_or_else(PoisonError::into_inner).update(counter);
        }
        let truncated = batch.truncated() as u64;
        if truncated > 0
            && let Some(counter) = shared.metrics.truncated.get(self.listener as usize)
        {
            counter.fetch_add(truncated, Ordering::Relaxed);
        }
    }

    /// Opens the socket again, as often as it takes; `None` if the listener is being shut down meanwhile.
    fn reopen(&self, open: &Open) -> Option<Arc<Socket>> {
        // The last count of the old socket.
        self.kernel_drops();
        let mut pause = FIRST_RETRY;
        loop {
            if self.stopping.load(Ordering::Acquire) {
                return None;
            }
            // A socket that fails at once must not make the thread spin.
            std::thread::sleep(pause);
            match open() {
                Ok(socket) => {
                    let socket = Arc::new(socket);
                    self.drops.lock().unwrap_or_else(PoisonError::into_inner).seen = 0;
                    *self.socket.lock().unwrap_or_else(PoisonError::into_inner) =
                        Arc::clone(&socket);
                    return Some(socket);
                }
                Err(error) => {
                    tracing::error!(listener = self.listener.as_str(), %error, "the socket cannot be opened, trying again");
                    pause = (pause * 2).min(LAST_RETRY);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arc_swap::ArcSwap;
    use socket2::{Domain, Type};
    use std::net::UdpSocket;
    use std::sync::atomic::AtomicUsize;

    use crate::statsd::clock::Clock;
    use crate::statsd::ingest::Loaded;
    use crate::statsd::line::ParserFlags;
    use crate::statsd::mapcache::CacheKind;
    use crate::statsd::mapper::Mapper;
    use crate::statsd::metrics::Metrics;
    use crate::statsd::net::bind_udp;
    use crate::statsd::registry::Registry;

    fn shared() -> Arc<Shared> {
        let reserved = Arc::new(|_: &str| false);
        Arc::new(Shared {
            registry: Registry::new(Clock::system(), reserved, 0, Box::new(|| {})),
            metrics: Metrics::default(),
            mapping: ArcSwap::from_pointee(Loaded { mapper: Mapper::default(), generation: 0 }),
            flags: ParserFlags::default(),
            cache_size: 0,
            cache_kind: CacheKind::Lru,
            key_cache_size: 16,
            relay: None,
        })
    }

    fn until(what: &str, mut probe: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !probe() {
            assert!(Instant::now() < end, "waited in vain: {what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_listener_comes_back_after_read_errors() {
        let shared = shared();
        // Reading from a stream socket without a peer fails, whatever reads.
        let broken = || Socket::new(Domain::IPV4, Type::STREAM, None);
        let good = bind_udp("127.0.0.1:0".parse().expect("address"), 0, false).expect("bind");
        let address = good.local_addr().ok().and_then(|address| address.as_socket());
        let address = address.expect("address");
        let good = Mutex::new(Some(good));
        let opened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&opened);
        let open = move || match count.fetch_add(1, Ordering::Relaxed) {
            0 => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            1 => broken(),
            _ => good.lock().expect("good").take().ok_or_else(|| io::Error::other("opened twice")),
        };
        let first = broken().expect("socket");
        let listener = DatagramListener::start(&shared, Listener::Udp, 0, first, Box::new(open))
            .expect("started");
        // What comes while there is no reader waits in the socket.
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        sender.send_to(b"a:1|c\nb:1|c", address).expect("sent");
        until("the lines are counted", || shared.metrics.lines(Some(Listener::Udp)) == 2);
        let errors = shared.metrics.read_errors.get(Listener::Udp as usize).expect("counter");
        assert_eq!(errors.load(Ordering::Relaxed), 2);
        assert_eq!(opened.load(Ordering::Relaxed), 3);
        assert_eq!(listener.kernel_drops().dropped, 0);
        listener.shutdown();
    }

    #[test]
    fn what_gathers_during_naps_is_not_lost() {
        const DATAGRAMS: u64 = 20_000;
        let shared = shared();
        let socket = bind_udp("127.0.0.1:0".parse().expect("address"), 0, false).expect("bind");
        let address = socket.local_addr().ok().and_then(|address| address.as_socket());
        let listener = DatagramListener::start(
            &shared,
            Listener::Udp,
            0,
            socket,
            Box::new(|| Err(io::Error::other("never closed"))),
        )
        .expect("started");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        for _ in 0..DATAGRAMS {
            sender.send_to(b"a:1|c", address.expect("address")).expect("sent");
        }
        // What the buffer could not hold, where the system allows but a small one, the kernel has counted.
        until("each datagram is accounted for", || {
            shared.metrics.lines(Some(Listener::Udp)) + listener.kernel_drops().dropped == DATAGRAMS
        });
        listener.shutdown();
        let received = shared.metrics.lines(Some(Listener::Udp));
        assert_eq!(received + listener.kernel_drops().dropped, DATAGRAMS);
        assert!(received > 0);
    }

    #[test]
    fn the_kernels_counter_may_wrap_and_may_come_late() {
        let mut drops = Drops::default();
        drops.update(5);
        drops.update(3);
        assert_eq!(drops.total, 5);
        drops.update(u32::MAX / 2);
        drops.update(u32::MAX - 1);
        drops.update(4);
        assert_eq!(drops.total, u64::from(u32::MAX) + 5);
    }
}
