//! A listener for datagrams (UDP or Unix): one thread, one socket, one [`Worker`].
//!
//! There is no queue: datagrams are parsed where the kernel put them. A read error costs the socket, not the listener:
//! it is counted and the socket is opened again.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::Socket;

use super::ingest::{Shared, Worker};
use super::metrics::{KernelDrops, Listener, bump};
use super::net::{Batch, kernel_drops};

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

    fn run(&self, shared: &Shared, mut worker: Worker, open: &Open) {
        let mut batch = Batch::new();
        let mut socket = self.socket();
        while !self.stopping.load(Ordering::Acquire) {
            match batch.receive(&socket, true) {
                Ok(_) => self.process(shared, &batch, &mut worker),
                Err(error) => {
                    if let Some(counter) = shared.metrics.read_errors.get(self.listener as usize) {
                        bump(counter);
                    }
                    tracing::error!(listener = self.listener.as_str(), %error, "reading failed, opening the socket again");
                    match self.reopen(open) {
                        Some(opened) => socket = opened,
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
