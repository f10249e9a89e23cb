//! Starts an encrypted connection.
//!
//! A client that speaks plain HTTP receives an explanation in plain HTTP. A client that cannot be
//! served receives a TLS alert, so that it can report the reason.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::AlertDescription;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;

use super::socket::Socket;
use super::web_config::WebConfig;

/// The response to a plain HTTP request.
const NOT_ENCRYPTED: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// The first bytes of HTTP requests.
const METHODS: [&[u8; 5]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];

/// The offset of the version in a ClientHello, after the record and handshake headers.
const VERSION_AT: usize = 5 + 4;
const HANDSHAKE: u8 = 22;
const TLS12: [u8; 2] = [3, 3];

/// The time for a refused client to read the answer, and the maximum number of bytes read from it
/// meanwhile.
const CLOSE_TIMEOUT: (Duration, u64) = (Duration::from_millis(500), 64 << 10);

/// An encrypted connection.
pub(super) struct Encrypted {
    pub(super) stream: TlsStream<Socket>,
    /// True if the client presented a verified certificate.
    pub(super) is_client_verified: bool,
}

/// Performs the handshake; `None` for a client that was refused.
///
/// # Errors
///
/// When the connection or the handshake fails.
pub(super) async fn accept(
    mut socket: Socket,
    config: &Arc<WebConfig>,
) -> io::Result<Option<Encrypted>> {
    let begin = socket.look(VERSION_AT + 2).await?;
    if METHODS.iter().any(|method| begin.starts_with(*method)) {
        return refuse(socket, NOT_ENCRYPTED).await;
    }
    if let (Some(&HANDSHAKE), Some(version)) =
        (begin.first(), begin.get(VERSION_AT..VERSION_AT + 2))
        && version < &TLS12[..]
    {
        // Such a client does not send the extensions that rustls requires before it checks the
        // version.
        tracing::debug!("A client supports only TLS versions before 1.2");
        return alert(socket, AlertDescription::ProtocolVersion).await;
    }
    let mut acceptor = LazyConfigAcceptor::new(Acceptor::default(), socket);
    let begun = match (&mut acceptor).await {
        Ok(begun) => begun,
        Err(error) => {
            if let Some(socket) = acceptor.take_io() {
                leave(socket).await?;
            }
            return Err(error);
        }
    };
    let settings = match config.settings().await {
        Ok(settings) => settings,
        Err(error) => {
            tracing::debug!(%error, "No handshake is possible now");
            return alert(begun.io, AlertDescription::InternalError).await;
        }
    };
    let chosen = match settings.choose(&begun.client_hello()) {
        Ok(chosen) => chosen,
        Err(description) => return alert(begun.io, description).await,
    };
    let mut begun = begun;
    begun.io.translate_alerts(settings.alerts());
    let mut stream = match begun.into_stream(chosen).into_fallible().await {
        Ok(stream) => stream,
        Err((error, socket)) => {
            leave(socket).await?;
            return Err(error);
        }
    };
    let (socket, session) = stream.get_mut();
    socket.translate_alerts(Vec::new());
    let has_certificate = session.peer_certificates().is_some();
    if settings.names_wanted && !has_certificate {
        tracing::debug!("A client without certificate has none of the allowed names");
        return Ok(None);
    }
    let is_client_verified = has_certificate && settings.verifies_clients;
    Ok(Some(Encrypted { stream, is_client_verified }))
}

/// Sends a fatal alert.
async fn alert(socket: Socket, description: AlertDescription) -> io::Result<Option<Encrypted>> {
    refuse(socket, &[21, 3, 3, 0, 2, 2, description.into()]).await
}

/// Sends the final bytes to a client.
async fn refuse(mut socket: Socket, answer: &[u8]) -> io::Result<Option<Encrypted>> {
    socket.write_all(answer).await?;
    leave(socket).await?;
    Ok(None)
}

/// Closes a connection gracefully. Input is drained, because closing a socket with unread input
/// discards data in flight to the client.
async fn leave(mut socket: Socket) -> io::Result<()> {
    socket.shutdown().await?;
    let mut rest = socket.take(CLOSE_TIMEOUT.1);
    let mut nowhere = tokio::io::sink();
    // The connection ends in any case.
    let _ = timeout(CLOSE_TIMEOUT.0, tokio::io::copy(&mut rest, &mut nowhere)).await;
    Ok(())
}
