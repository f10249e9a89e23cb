//! The socket of a connection, below TLS and HTTP.
//!
//! It is shared with the check for disconnected clients, and it can return bytes that were read
//! ahead.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The content type of an alert, and the length of an unencrypted one.
const ALERT: u8 = 21;
const ALERT_LENGTH: usize = 7;

/// The socket of a connection.
#[derive(Debug)]
pub struct Socket {
    /// The underlying stream.
    pub(super) stream: Arc<TcpStream>,
    /// Bytes read ahead.
    ahead: Vec<u8>,
    /// Replacements of alerts, as long as nothing is encrypted.
    alerts: Vec<(u8, u8)>,
}

impl Socket {
    /// Wraps a stream.
    pub fn new(stream: TcpStream) -> Self {
        Self { stream: Arc::new(stream), ahead: Vec::new(), alerts: Vec::new() }
    }

    /// Peeks at `count` bytes, or fewer at the end of the stream; they remain available to the next
    /// read.
    ///
    /// # Errors
    ///
    /// When the socket fails.
    pub(super) async fn look(&mut self, count: usize) -> io::Result<&[u8]> {
        while self.ahead.len() < count {
            self.stream.readable().await?;
            let mut bytes = [0; 512];
            match self.stream.try_read(&mut bytes) {
                Ok(0) => break,
                Ok(read) => self.ahead.extend_from_slice(bytes.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(&self.ahead)
    }

    /// Replaces these unencrypted alerts from now on.
    pub(super) fn translate_alerts(&mut self, alerts: Vec<(u8, u8)>) {
        self.alerts = alerts;
    }

    /// Returns the replacement if `bytes` are an alert to replace.
    fn translated(&self, bytes: &[u8]) -> Option<[u8; ALERT_LENGTH]> {
        let mut record = <[u8; ALERT_LENGTH]>::try_from(bytes).ok()?;
        let [ALERT, _, _, 0, 2, _, alert] = &mut record else { return None };
        let (_, other) = self.alerts.iter().find(|(from, _)| from == alert)?;
        *alert = *other;
        Some(record)
    }

    fn poll_out(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buf.remaining());
            buf.put_slice(self.ahead.get(..count).unwrap_or_default());
            self.ahead.drain(..count);
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buf.initialize_unfilled()) {
                Ok(count) => {
                    buf.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.translated(buf) {
            Some(record) => self.poll_out(cx, |stream| stream.try_write(&record)),
            None => self.poll_out(cx, |stream| stream.try_write(buf)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A disconnected client only shows on a write, but a body without data only flushes.
        Poll::Ready(match self.stream.take_error()? {
            Some(error) => Err(error),
            None => Ok(()),
        })
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = socket2::SockRef::from(&*self.stream);
        Poll::Ready(socket.shutdown(std::net::Shutdown::Write))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.alerts.is_empty() {
            return self.poll_out(cx, |stream| stream.try_write_vectored(bufs));
        }
        let first = bufs.iter().find(|buf| !buf.is_empty());
        self.poll_write(cx, first.map_or(&[][..], |buf| buf))
    }
}
