//! Connections in memory that can misbehave: late, cut, silent, slow.
//!
//! Time is that of the event loop, so that nothing depends on how fast the machine is.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a byte takes on a slow connection.
const SLOW: Duration = Duration::from_secs(1);

/// What flows in one direction.
#[derive(Default)]
struct Lane {
    /// With the time at which each piece is there.
    pieces: VecDeque<(Instant, Bytes)>,
    /// Whether nothing follows.
    ended: bool,
    reader: Option<Waker>,
    /// When the next byte of a slow connection is there.
    next: Option<Instant>,
}

/// A connection.
struct Line {
    /// To the server, to the client.
    lanes: [Lane; 2],
    latency: Duration,
    reset: bool,
    frozen: bool,
    slow: bool,
}

/// Does to a connection what networks do.
#[derive(Clone)]
pub struct Handle(Arc<Mutex<Line>>);

/// One end of a connection.
pub struct End {
    line: Handle,
    /// The lane that it reads.
    from: usize,
    alarm: Pin<Box<Sleep>>,
}

/// The ends of the server and of the client.
pub fn pair(latency: Duration) -> (End, End, Handle) {
    let lanes = [Lane::default(), Lane::default()];
    let line = Line { lanes, latency, reset: false, frozen: false, slow: false };
    let line = Handle(Arc::new(Mutex::new(line)));
    let end = |from| {
        let alarm = Box::pin(sleep_until(Instant::now()));
        End { line: line.clone(), from, alarm }
    };
    (end(0), end(1), line)
}

impl Handle {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Line)) {
        let mut line = self.line();
        change(&mut line);
        let wakers: Vec<Waker> =
            line.lanes.iter_mut().filter_map(|lane| lane.reader.take()).collect();
        drop(line);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// RST: whoever reads or writes next is told that it is broken, unless nothing passes any more.
    pub fn reset(&self) {
        self.change(|line| line.reset = true);
    }

    /// FIN in both directions, behind what is on its way.
    pub fn end(&self) {
        self.change(|line| line.lanes.iter_mut().for_each(|lane| lane.ended = true));
    }

    /// From here on nothing passes, and nobody is told; or it passes again.
    pub fn freeze(&self, frozen: bool) {
        self.change(|line| line.frozen = frozen);
    }

    /// One byte a second to the client, or as fast as ever.
    pub fn slow(&self, slow: bool) {
        self.change(|line| line.slow = slow);
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let now = Instant::now();
        let handle = this.line.clone();
        let mut line = handle.line();
        let slow = line.slow && this.from == 1;
        let (frozen, reset) = (line.frozen, line.reset);
        let lane = &mut line.lanes[this.from];
        lane.reader = Some(context.waker().clone());
        if frozen {
            return Poll::Pending;
        }
        if reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let mut most = usize::MAX;
        let due = match lane.pieces.front() {
            None if lane.ended => return Poll::Ready(Ok(())),
            None => return Poll::Pending,
            Some((due, _)) if slow => {
                most = 1;
                (*due).max(*lane.next.get_or_insert(now + SLOW))
            }
            Some((due, _)) => *due,
        };
        if due > now {
            this.alarm.as_mut().reset(due);
            // It wakes the task; there is nothing to be had before.
            let _ = this.alarm.as_mut().poll(context);
            return Poll::Pending;
        }
        lane.next = slow.then_some(now + SLOW);
        while let Some((due, piece)) = lane.pieces.front_mut() {
            let length = piece.len().min(out.remaining()).min(most);
            if length == 0 || *due > now {
                break;
            }
            out.put_slice(&piece[..length]);
            piece.advance(length);
            most -= length;
            if piece.is_empty() {
                lane.pieces.pop_front();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut line = self.line.line();
        let due = Instant::now() + line.latency;
        if line.reset && !line.frozen {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let lane = &mut line.lanes[1 - self.from];
        if lane.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        lane.pieces.push_back((due, Bytes::copy_from_slice(bytes)));
        let reader = lane.reader.take();
        drop(line);
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
        self.line.change(|line| line.lanes[to].ended = true);
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.line.end();
    }
}
