//! Timeouts of a connection and of each response on it.
//!
//! hyper's own header timeout also runs while a kept-alive connection is idle, and hyper has no
//! write timeout. The originals distinguish three phases: waiting for a request, reading its head,
//! and answering. [`Deadlines`] tracks the phase. [`TimedStream`] fails reads and writes that
//! exceed it, and passes on one head at a time, so that bytes of the next request do not hide in
//! hyper's buffer where no timeout applies. An HTTP/2 connection is in use while any of its
//! requests is being answered, and idle after the last.
//!
//! A response also has an absolute deadline and ends when its client accepts no body frame for
//! 10 s. Neither depends on the socket, because an HTTP/2 client with a closed window blocks
//! no write. [`Peer`] tells a slow handler whether its client is still connected.

mod deadlines;
mod exchange;
mod peer;
mod request_head;
mod timed_stream;
mod timer;

pub use deadlines::{Answer, Deadlines, Limits};
pub use exchange::{Exchange, scrape_timeout};
pub use peer::Peer;
pub use timed_stream::TimedStream;
