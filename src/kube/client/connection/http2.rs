//! HTTP/2: many requests at once over one connection, which a task on the event loop of its opener moves.
//!
//! All list/watches of a cluster share one socket, and one wake-up brings the events of them all. The task
//! asks the peer for a sign of life when it has been silent, and ends the connection without one.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::{Request, Response};
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};

use super::dial::{Dialed, Stream};
use super::socket::Activity;

/// Bytes of one answer that may be on their way.
const STREAM_WINDOW: u32 = 4 * 1024 * 1024;
/// Bytes of all answers of a connection that may be on their way.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// The largest piece that a server may send at once.
const MAX_FRAME: u32 = 64 * 1024;
/// Memory for pieces much smaller than what noting them takes, in bytes: events come in such.
const SMALL_FRAMES: usize = 64 * 1024 * 1024;
/// Answers given up that are remembered, for what is still on its way to them.
const GIVEN_UP: usize = 4096;
/// Bytes read before the readers have their turn.
const TURN: usize = 512 * 1024;
/// After so much silence the peer is asked for a sign of life.
const SILENCE: Duration = Duration::from_secs(30);
/// How long it may take to give one.
const ANSWER: Duration = Duration::from_secs(15);
/// A connection without a request for so long is closed.
const UNUSED: Duration = Duration::from_secs(90);

/// A connection that requests can be sent over.
#[derive(Clone)]
pub(crate) struct Link {
    /// The event loop that moves it. What is read over it is best read there too.
    pub home: Id,
    pub generation: u64,
    sender: SendRequest<Bytes>,
    shared: Arc<Shared>,
}

/// What those who send over a connection and the task that moves it know of each other.
struct Shared {
    opened: Instant,
    usage: Mutex<Usage>,
    /// The peer has said what it allows, or the connection has ended.
    settled: Notify,
    /// Why it has ended.
    end: OnceLock<String>,
}

struct Usage {
    requests: usize,
    /// Since when there are none.
    unused: Instant,
    /// Nothing new may be sent over it.
    closed: bool,
}

/// A request's place on a connection.
pub(crate) struct Place {
    link: Link,
}

impl Link {
    /// Begins HTTP/2 on a stream.
    ///
    /// # Errors
    /// The peer does not speak it, or not in time.
    pub(crate) async fn open(dialed: Dialed, generation: u64) -> Result<Self, String> {
        let Dialed { stream, activity, .. } = dialed;
        let opened = Instant::now();
        activity.read_ahead();
        let handshake = Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(MAX_FRAME)
            .data_frame_budget(SMALL_FRAMES)
            .max_concurrent_reset_streams(GIVEN_UP)
            .enable_push(false)
            // The peer says how many it takes; before that, none.
            .initial_max_send_streams(0)
            .handshake(stream);
        let (sender, mut connection) = handshake.await.map_err(|error| error.to_string())?;
        let usage = Usage { requests: 0, unused: Instant::now(), closed: false };
        let shared = Arc::new(Shared {
            opened,
            usage: Mutex::new(usage),
            settled: Notify::new(),
            end: OnceLock::new(),
        });
        let pings = connection.ping_pong().ok_or("no pings")?;
        let alarm = Box::pin(sleep_until(activity.heard() + SILENCE));
        let shared_too = Arc::clone(&shared);
        let task = tokio::spawn(Driver {
            connection,
            pings,
            asked: None,
            activity,
            alarm,
            settled: false,
            shared: shared_too,
        });
        let guard = Abort(Some(task.abort_handle()));
        let late = tokio::time::timeout(ANSWER, shared.settled.notified()).await;
        if late.is_err() {
            return Err(format!("no HTTP/2 settings within {} s", ANSWER.as_secs()));
        }
        if let Some(end) = shared.end.get() {
            return Err(end.clone());
        }
        guard.disarm();
        Ok(Self { home: Handle::current().id(), generation, sender, shared })
    }

    /// When it was opened.
    pub(crate) fn opened(&self) -> Instant {
        self.shared.opened
    }

    /// Whether nothing new can be sent over it any more.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut context = Context::from_waker(std::task::Waker::noop());
        // It is ready or broken, as no request of this sender waits.
        matches!(self.sender.poll_ready(&mut context), Poll::Ready(Err(_)))
            || self.shared.end.get().is_some()
            || self.shared.usage().closed
    }

    /// A place for a request, if the peer takes one more.
    pub(crate) fn place(&self) -> Option<Place> {
        let most = self.sender.current_max_send_streams();
        let mut usage = self.shared.usage();
        if usage.closed || usage.requests >= most {
            return None;
        }
        usage.requests += 1;
        drop(usage);
        Some(Place { link: self.clone() })
    }

    /// Lets it end with the requests that it has.
    pub(crate) fn retire(&self) {
        self.shared.usage().closed = true;
    }
}

impl Shared {
    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, why: String) {
        self.usage().closed = true;
        // The first reason is the one.
        let _ = self.end.set(why);
        self.settled.notify_one();
    }

    /// An error in words, with what is known of the connection's end.
    fn explain(&self, error: &h2::Error) -> String {
        match self.end.get() {
            Some(end) if !error.is_reset() => end.clone(),
            _ => describe(error),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut usage = self.link.shared.usage();
        usage.requests = usage.requests.saturating_sub(1);
        usage.unused = Instant::now();
    }
}

/// Why a request has no answer.
pub(crate) struct Failed {
    pub reason: String,
    /// The server has said that it has done nothing about it.
    pub untouched: bool,
    /// It may have gone into a connection that was ending.
    pub stale: bool,
}

impl Place {
    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn send(
        mut self,
        request: Request<Bytes>,
    ) -> Result<Response<Streamed>, Failed> {
        let (head, body) = request.into_parts();
        let sent = self.link.sender.send_request(Request::from_parts(head, ()), body.is_empty());
        let answer = match sent {
            Ok((answer, mut stream)) => {
                let rest = if body.is_empty() { Ok(()) } else { stream.send_data(body, true) };
                match rest {
                    Ok(()) => answer.await,
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        match answer {
            Ok(response) => Ok(response.map(|stream| Streamed { stream, place: self })),
            Err(error) => Err(Failed {
                reason: self.link.shared.explain(&error),
                untouched: error.reason() == Some(Reason::REFUSED_STREAM)
                    || (error.is_go_away()
                        && error.is_remote()
                        && error.reason() == Some(Reason::NO_ERROR)),
                stale: !error.is_reset() && !self.link.shared.is_silent(),
            }),
        }
    }
}

impl Shared {
    /// Whether the peer gave no sign of life.
    fn is_silent(&self) -> bool {
        self.end.get().is_some_and(|end| *end == silent())
    }
}

fn silent() -> String {
    format!("no sign of life from the server for {} s", (SILENCE + ANSWER).as_secs())
}

/// The body of an answer.
pub(crate) struct Streamed {
    stream: RecvStream,
    place: Place,
}

impl Streamed {
    pub(crate) fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, String>>> {
        let data = match self.stream.poll_data(context) {
            Poll::Ready(Some(data)) => data,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => return Poll::Pending,
        };
        let data = data.and_then(|data| {
            self.stream.flow_control().release_capacity(data.len())?;
            Ok(data)
        });
        Poll::Ready(Some(data.map_err(|error| self.place.link.shared.explain(&error))))
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}

/// Moves a connection, and ends it when the peer gives no sign of life.
struct Driver {
    connection: Connection<Box<dyn Stream>, Bytes>,
    pings: PingPong,
    /// When the peer was asked for a sign of life.
    asked: Option<Instant>,
    activity: Arc<Activity>,
    alarm: Pin<Box<Sleep>>,
    settled: bool,
    shared: Arc<Shared>,
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.activity.allow(TURN);
        if let Poll::Ready(end) = Pin::new(&mut this.connection).poll(context) {
            let why = match end {
                Ok(()) => "server closed the connection".to_owned(),
                Err(error) => describe(&error),
            };
            this.shared.ended(why);
            return Poll::Ready(());
        }
        if !this.settled && this.connection.max_concurrent_send_streams() > 0 {
            this.settled = true;
            this.shared.settled.notify_one();
        }
        if this.asked.is_some() {
            // Any byte is a sign of life; the answer itself has to be taken out of the way.
            let _ = this.pings.poll_pong(context);
        }
        while this.alarm.as_mut().poll(context).is_ready() {
            match this.next_alarm() {
                Some(next) => this.alarm.as_mut().reset(next),
                None => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }
}

impl Driver {
    /// Asks for a sign of life if it is time; when to look again, `None` at the connection's end.
    fn next_alarm(&mut self) -> Option<Instant> {
        let (now, heard) = (Instant::now(), self.activity.heard());
        if let Some(asked) = self.asked {
            if heard <= asked && now >= asked + ANSWER {
                self.shared.ended(silent());
                return None;
            }
            if heard > asked {
                self.asked = None;
            }
        }
        let mut usage = self.shared.usage();
        if usage.requests == 0 && now >= usage.unused + UNUSED {
            usage.closed = true;
            drop(usage);
            self.shared.ended("the connection was closed because nobody used it".to_owned());
            return None;
        }
        drop(usage);
        if self.asked.is_none() && now >= heard + SILENCE {
            // It may still wait for the answer to the last one; then that is what it is asked for.
            let _ = self.pings.send_ping(Ping::opaque());
            self.asked = Some(now);
        }
        Some(self.asked.map_or(heard + SILENCE, |asked| asked + ANSWER))
    }
}

impl Drop for Driver {
    /// Also when the event loop ends.
    fn drop(&mut self) {
        self.shared.ended("the connection was closed".to_owned());
    }
}

/// Ends a task unless told otherwise.
struct Abort(Option<tokio::task::AbortHandle>);

impl Abort {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Abort {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// An error of HTTP/2 in words that do not presume to know its terms.
fn describe(error: &h2::Error) -> String {
    if error.is_go_away() && error.is_remote() {
        return match error.reason() {
            Some(h2::Reason::NO_ERROR) | None => "the server is closing the connection".to_owned(),
            Some(reason) => format!("the server closes the connection: {reason}"),
        };
    }
    error.to_string()
}
