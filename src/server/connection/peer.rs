//! The peer of a connection.

use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use tokio::io::Interest;
use tokio::net::TcpStream;

/// The peer of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    stream: Weak<TcpStream>,
    /// True if the handshake verified a client certificate.
    pub is_verified: bool,
}

impl Peer {
    /// Returns its address while it is connected.
    pub fn address(&self) -> Option<IpAddr> {
        Some(self.stream.upgrade()?.peer_addr().ok()?.ip())
    }

    /// Returns true if the client has disconnected. A half-closed connection counts too, as in Go's server, so use it
    /// only for slow responses to a single client.
    pub fn has_left(&self) -> bool {
        let Some(stream) = self.stream.upgrade() else { return true };
        let ready = pin!(stream.ready(Interest::READABLE));
        match ready.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(ready)) => ready.is_read_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }

    /// Returns the peer of `stream`, which may have a verified certificate.
    pub(crate) fn of(stream: &Arc<TcpStream>, is_verified: bool) -> Self {
        Self { stream: Arc::downgrade(stream), is_verified }
    }
}
