//! In-memory connections with faults: delays, resets, silence and low bandwidth.
//!
//! They use the clock of the event loop, so results do not depend on the speed of the machine.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// The time per byte on a slow connection.
const TIME_PER_BYTE: Duration = Duration::from_secs(1);

/// The data in one direction.
#[derive(Default)]
struct Direction {
    /// The chunks with their arrival times.
    pieces: VecDeque<(Instant, Bytes)>,
    /// True after the last chunk.
    ended: bool,
    reader: Option<Waker>,
    /// The arrival time of the next byte on a slow connection.
    next: Option<Instant>,
}

/// The state of a connection.
struct Connection {
    /// The directions to the server and to the client.
    directions: [Direction; 2],
    latency: Duration,
    reset: bool,
    frozen: bool,
    slow: bool,
}

/// Injects faults into a connection.
#[derive(Clone)]
pub struct ConnectionHandle(Arc<Mutex<Connection>>);

/// One endpoint of a connection.
pub struct Endpoint {
    connection: ConnectionHandle,
    /// The index of the lane to read.
    from: usize,
    timer: Pin<Box<Sleep>>,
}

/// The two ends of a new connection.
pub struct Pair {
    pub server: Endpoint,
    pub client: Endpoint,
    pub handle: ConnectionHandle,
}

/// Returns the endpoints of the server and the client, and a handle to inject faults.
pub fn pair(latency: Duration) -> Pair {
    let directions = [Direction::default(), Direction::default()];
    let connection = Connection { directions, latency, reset: false, frozen: false, slow: false };
    let connection = ConnectionHandle(Arc::new(Mutex::new(connection)));
    let end = |from| {
        let timer = Box::pin(sleep_until(Instant::now()));
        Endpoint { connection: connection.clone(), from, timer }
    };
    Pair { server: end(0), client: end(1), handle: connection }
}

impl ConnectionHandle {
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Connection)) {
        let mut connection = self.connection();
        change(&mut connection);
        let wakers: Vec<Waker> = connection
            .directions
            .iter_mut()
            .filter_map(|direction| direction.reader.take())
            .collect();
        drop(connection);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Resets the connection (RST): the next read or write fails, unless the connection is frozen.
    pub fn reset(&self) {
        self.change(|connection| connection.reset = true);
    }

    /// Closes both directions (FIN) after the data in flight.
    pub fn end(&self) {
        self.change(|connection| {
            connection.directions.iter_mut().for_each(|direction| direction.ended = true)
        });
    }

    /// Freezes or unfreezes the connection: a frozen one is silent, without an error.
    pub fn freeze(&self, frozen: bool) {
        self.change(|connection| connection.frozen = frozen);
    }

    /// Limits the direction to the client to one byte per second, or lifts the limit.
    pub fn slow(&self, slow: bool) {
        self.change(|connection| connection.slow = slow);
    }
}

impl AsyncRead for Endpoint {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let now = Instant::now();
        let handle = this.connection.clone();
        let mut connection = handle.connection();
        let slow = connection.slow && this.from == 1;
        let (frozen, reset) = (connection.frozen, connection.reset);
        let direction = &mut connection.directions[this.from];
        direction.reader = Some(context.waker().clone());
        if frozen {
            return Poll::Pending;
        }
        if reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let mut most = usize::MAX;
        let due = match direction.pieces.front() {
            None if direction.ended => return Poll::Ready(Ok(())),
            None => return Poll::Pending,
            Some((due, _)) if slow => {
                most = 1;
                (*due).max(*direction.next.get_or_insert(now + TIME_PER_BYTE))
            }
            Some((due, _)) => *due,
        };
        if due > now {
            this.timer.as_mut().reset(due);
            // Polled only to register the waker; nothing is readable before.
            let _ = this.timer.as_mut().poll(context);
            return Poll::Pending;
        }
        direction.next = slow.then_some(now + TIME_PER_BYTE);
        while let Some((due, piece)) = direction.pieces.front_mut() {
            let length = piece.len().min(out.remaining()).min(most);
            if length == 0 || *due > now {
                break;
            }
            out.put_slice(&piece[..length]);
            piece.advance(length);
            most -= length;
            if piece.is_empty() {
                direction.pieces.pop_front();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Endpoint {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut connection = self.connection.connection();
        let due = Instant::now() + connection.latency;
        if connection.reset && !connection.frozen {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let direction = &mut connection.directions[1 - self.from];
        if direction.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        direction.pieces.push_back((due, Bytes::copy_from_slice(bytes)));
        let reader = direction.reader.take();
        drop(connection);
        if let Some(reader) = reader {
            reader.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let to = 1 - self.from;
        self.connection.change(|connection| connection.directions[to].ended = true);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.connection.end();
    }
}
