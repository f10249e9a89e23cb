//! HTTP/2 connections, which carry many requests at once. A task on the event loop that opened the connection drives
//! it.
//!
//! The list/watches of a cluster share a socket, so one wake-up delivers the events of many. The task sends a PING
//! when the peer has been silent, and closes the connection if nothing arrives.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::{Request, Response};
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::dial::{Dialed, Stream};
use super::socket::Activity;
use crate::kube::client::error::TransportError;
use crate::util::lock::Lock;

/// The flow-control window of a stream, in bytes.
const STREAM_WINDOW: u32 = 4 * 1024 * 1024;
/// The flow-control window of a connection, in bytes.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// The maximum size of a frame that the server may send, in bytes.
const MAX_FRAME: u32 = 64 * 1024;
/// h2's budget for the overhead of small DATA frames, in bytes. Watch events arrive in small frames.
const SMALL_FRAMES: usize = 64 * 1024 * 1024;
/// The maximum number of cancelled streams that h2 remembers in order to ignore their late frames.
const GIVEN_UP: usize = 4096;
/// The time for which h2 remembers them, by the wall clock.
#[cfg(not(any(test, fuzzing)))]
const REMEMBERED: Duration = Duration::from_secs(1);
/// In simulated time they are never forgotten. Otherwise the order in which h2 reports a broken connection to its requests
/// would depend on the speed of the machine.
#[cfg(any(test, fuzzing))]
const REMEMBERED: Duration = Duration::MAX;
/// The maximum number of bytes to read before the tasks that read the bodies run.
const TURN: usize = 512 * 1024;
/// A PING is sent after this much silence.
const SILENCE: Duration = Duration::from_secs(30);
/// The timeout of a PING, and of the peer's first SETTINGS.
const ANSWER: Duration = Duration::from_secs(15);
/// A connection without requests is closed after this time.
const UNUSED: Duration = Duration::from_secs(90);
/// No stream is reserved for probes if the peer allows only this many concurrent streams.
const FEW_PLACES: usize = 2;

/// The number of connections opened so far.
static LINKS: AtomicU64 = AtomicU64::new(0);

/// An HTTP/2 connection; clones refer to the same one.
#[derive(Clone)]
pub(crate) struct Link {
    /// The event loop that drives the connection. Response bodies are best read there too.
    pub home: Id,
    pub generation: u64,
    /// A number that is unique in the process.
    pub number: u64,
    sender: SendRequest<Bytes>,
    shared: Arc<Shared>,
}

/// The state that the senders of requests share with the task that drives the connection.
struct Shared {
    opened: Instant,
    usage: Lock<Usage>,
    /// Notified when the peer's SETTINGS have arrived or the connection has ended.
    settled: Notify,
    /// Set when the connection has ended.
    end: OnceLock<End>,
    /// The task that drives the connection.
    driver: OnceLock<AbortHandle>,
}

/// The end of a connection.
struct End {
    reason: String,
    /// The connection was closed because the peer was silent.
    is_silent: bool,
}

struct Usage {
    requests: usize,
    /// When the last request ended.
    unused: Instant,
    /// When data of a response last arrived, or the first of the open requests was started.
    active: Instant,
    /// No new request may be sent.
    closed: bool,
}

/// A stream reserved for one request.
pub(crate) struct Place {
    link: Link,
}

/// The result of [`Link::probe`].
pub(crate) enum Probe {
    /// No probe is due, or no stream is free for it: try again at this instant.
    At(Instant),
    /// A probe is due, on this stream.
    Now(Place),
    /// A probe is due, but the connection no longer accepts requests.
    Impossible,
}

impl Link {
    /// Starts HTTP/2 on a stream, and waits for the peer's SETTINGS.
    ///
    /// # Errors
    /// The handshake fails or takes too long.
    pub(crate) async fn open(dialed: Dialed, generation: u64) -> Result<Self, TransportError> {
        let Dialed { stream, activity, .. } = dialed;
        let opened = Instant::now();
        activity.read_ahead();
        let handshake = Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(MAX_FRAME)
            .data_frame_budget(SMALL_FRAMES)
            .max_concurrent_reset_streams(GIVEN_UP)
            .reset_stream_duration(REMEMBERED)
            .enable_push(false)
            // Send nothing before the peer's SETTINGS have set the limit.
            .initial_max_send_streams(0)
            .handshake(stream);
        let (sender, mut connection) = handshake.await.map_err(|error| error.to_string())?;
        let usage = Usage { requests: 0, unused: opened, active: opened, closed: false };
        let shared = Arc::new(Shared {
            opened,
            usage: Lock::new(usage),
            settled: Notify::new(),
            end: OnceLock::new(),
            driver: OnceLock::new(),
        });
        let pings = connection.ping_pong().ok_or("no pings")?;
        // Aborts the task if this fails or is dropped.
        let mut task = JoinSet::new();
        let driver = task.spawn(drive(connection, pings, activity, Arc::clone(&shared)));
        let _ = shared.driver.set(driver);
        let late = tokio::time::timeout(ANSWER, shared.settled.notified()).await;
        if late.is_err() {
            return Err(format!("no HTTP/2 settings within {} s", ANSWER.as_secs()).into());
        }
        if let Some(end) = shared.end.get() {
            return Err(end.reason.clone().into());
        }
        task.detach_all();
        let number = LINKS.fetch_add(1, Ordering::Relaxed);
        Ok(Self { home: Handle::current().id(), generation, number, sender, shared })
    }

    /// Returns when the connection was opened.
    pub(crate) fn opened(&self) -> Instant {
        self.shared.opened
    }

    /// Returns whether the connection accepts no new requests.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.is_broken() || self.is_ended() || self.shared.usage.lock().closed
    }

    /// Returns whether h2 no longer accepts requests, as after a GOAWAY.
    fn is_broken(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        // Never pending, because no request of this sender is queued.
        matches!(self.sender.poll_ready(&mut context), Poll::Ready(Err(_)))
    }

    /// Returns whether the connection accepts new requests or still has open ones.
    pub(crate) fn is_in_use(&mut self) -> bool {
        !self.is_ended() && (!self.is_closed() || self.shared.usage.lock().requests > 0)
    }

    /// Returns whether the connection has ended, with all its requests.
    pub(crate) fn is_ended(&self) -> bool {
        self.shared.end.get().is_some()
    }

    /// Reserves a stream for a request, or returns `None` at the peer's limit. Keeps one stream free for probes,
    /// unless the limit is very low.
    pub(crate) fn place(&self) -> Option<Place> {
        let most = self.sender.current_max_send_streams();
        if self.shared.usage.lock().closed {
            return None;
        }
        self.place_below(most - usize::from(most > FEW_PLACES))
    }

    fn place_below(&self, most: usize) -> Option<Place> {
        let mut usage = self.shared.usage.lock();
        if usage.requests >= most {
            return None;
        }
        if usage.requests == 0 {
            usage.active = Instant::now();
        }
        usage.requests += 1;
        drop(usage);
        Some(Place { link: self.clone() })
    }

    /// Reserves a stream for a probe if requests are open and no response data has arrived for `silence`.
    pub(crate) fn probe(&mut self, silence: Duration) -> Probe {
        let now = Instant::now();
        let due = {
            let usage = self.shared.usage.lock();
            if usage.requests == 0 { now + silence } else { usage.active + silence }
        };
        if due > now {
            return Probe::At(due);
        }
        if self.is_broken() {
            return Probe::Impossible;
        }
        let place = self.place_below(self.sender.current_max_send_streams());
        place.map_or(Probe::At(now + silence), Probe::Now)
    }

    /// Closes the connection if no response data has arrived since `sent`. Its requests fail with `reason`.
    pub(crate) fn close_if_silent_since(&self, sent: Instant, reason: String) {
        if self.shared.usage.lock().active > sent {
            return;
        }
        self.shared.ended(End { reason, is_silent: true });
        if let Some(driver) = self.shared.driver.get() {
            driver.abort();
        }
    }

    /// Rejects new requests; open requests continue.
    pub(crate) fn retire(&self) {
        self.shared.usage.lock().closed = true;
    }
}

impl Shared {
    fn ended(&self, end: End) {
        self.usage.lock().closed = true;
        // Keeps the first reason.
        let _ = self.end.set(end);
        self.settled.notify_one();
    }

    /// Describes an error. Unless it concerns a single stream, prefers the reason why the connection ended.
    fn explain(&self, error: &h2::Error) -> String {
        match self.end.get() {
            Some(end) if !error.is_reset() => end.reason.clone(),
            _ => describe(error),
        }
    }

    /// Returns whether the connection was closed because the peer was silent.
    fn is_silent(&self) -> bool {
        self.end.get().is_some_and(|end| end.is_silent)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut usage = self.link.shared.usage.lock();
        usage.requests = usage.requests.saturating_sub(1);
        usage.unused = Instant::now();
    }
}

/// The reason why a request failed, and whether it may be repeated.
pub(crate) struct Failed {
    pub reason: String,
    /// The server reports that it did not process the request.
    pub untouched: bool,
    /// It refused the request alone, and keeps the connection.
    pub refused: bool,
    /// The connection may already have been closing.
    pub stale: bool,
}

impl Place {
    /// Sends a request and waits for the head of the response.
    pub(crate) async fn send(
        mut self,
        request: Request<Bytes>,
    ) -> Result<Response<Streamed>, Failed> {
        let (head, body) = request.into_parts();
        let sent = self.link.sender.send_request(Request::from_parts(head, ()), body.is_empty());
        let answer = async {
            let (answer, mut stream) = sent?;
            if !body.is_empty() {
                stream.send_data(body, true)?;
            }
            answer.await
        };
        match answer.await {
            Ok(response) => {
                self.link.shared.usage.lock().active = Instant::now();
                Ok(response.map(|stream| Streamed { stream, place: self }))
            }
            Err(error) => {
                let refused = error.reason() == Some(Reason::REFUSED_STREAM);
                Err(Failed {
                    reason: self.link.shared.explain(&error),
                    untouched: refused
                        || (error.is_go_away()
                            && error.is_remote()
                            && error.reason() == Some(Reason::NO_ERROR)),
                    refused: refused && error.is_reset(),
                    stale: !error.is_reset() && !self.link.shared.is_silent(),
                })
            }
        }
    }
}

impl From<String> for End {
    fn from(reason: String) -> Self {
        Self { reason, is_silent: false }
    }
}

/// The body of a response.
pub(crate) struct Streamed {
    stream: RecvStream,
    place: Place,
}

impl Streamed {
    pub(crate) fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, TransportError>>> {
        let Some(data) = ready!(self.stream.poll_data(context)) else { return Poll::Ready(None) };
        self.place.link.shared.usage.lock().active = Instant::now();
        let data = data.and_then(|data| {
            self.stream.flow_control().release_capacity(data.len())?;
            Ok(data)
        });
        Poll::Ready(Some(data.map_err(|error| self.place.link.shared.explain(&error).into())))
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    /// Returns whether the connection was closed because the peer was silent.
    pub(crate) fn is_silent(&self) -> bool {
        self.place.link.shared.is_silent()
    }
}

/// Drives a connection until it ends, and closes it if the peer is silent or nobody uses it.
async fn drive(
    mut connection: Connection<Box<dyn Stream>, Bytes>,
    mut pings: PingPong,
    activity: Arc<Activity>,
    shared: Arc<Shared>,
) {
    // Dropped before the connection.
    let _end = EndOnDrop(Arc::clone(&shared));
    let mut settled = false;
    let driven = poll_fn(|context| {
        activity.allow(TURN);
        let driven = Pin::new(&mut connection).poll(context);
        if driven.is_pending() && !settled && connection.max_concurrent_send_streams() > 0 {
            settled = true;
            shared.settled.notify_one();
        }
        driven
    });
    let end = match select(driven, pin!(watch(&mut pings, &activity, &shared))).await {
        Either::Left((Ok(()), _)) => "server closed the connection".to_owned().into(),
        Either::Left((Err(error), _)) => describe(&error).into(),
        Either::Right((end, _)) => end,
    };
    shared.ended(end);
}

/// Sends a PING whenever the peer has been silent. Completes when the peer does not answer or nobody uses the connection.
async fn watch(pings: &mut PingPong, activity: &Activity, shared: &Shared) -> End {
    let mut asked: Option<Instant> = None;
    loop {
        sleep_until(asked.map_or(activity.heard() + SILENCE, |asked| asked + ANSWER)).await;
        let (now, heard) = (Instant::now(), activity.heard());
        // Any received byte proves that the peer is alive.
        if asked.take().is_some_and(|asked| heard <= asked) {
            let seconds = (SILENCE + ANSWER).as_secs();
            let reason = format!("no sign of life from the server for {seconds} s");
            return End { reason, is_silent: true };
        }
        let mut usage = shared.usage.lock();
        if usage.requests == 0 && now >= usage.unused + UNUSED {
            usage.closed = true;
            return "the connection was closed because nobody used it".to_owned().into();
        }
        drop(usage);
        if now >= heard + SILENCE {
            // h2 requires the last PONG to be consumed. If that PING is unanswered, it serves instead.
            let _ = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
            let _ = pings.send_ping(Ping::opaque());
            asked = Some(now);
        }
    }
}

/// Marks a connection as ended, also when the event loop shuts down.
struct EndOnDrop(Arc<Shared>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.ended("the connection was closed".to_owned().into());
    }
}

/// Describes an HTTP/2 error. A GOAWAY from the server is described as the end of the connection.
fn describe(error: &h2::Error) -> String {
    if error.is_go_away() && error.is_remote() {
        return match error.reason() {
            Some(h2::Reason::NO_ERROR) | None => "the server is closing the connection".to_owned(),
            Some(reason) => format!("the server closes the connection: {reason}"),
        };
    }
    error.to_string()
}
