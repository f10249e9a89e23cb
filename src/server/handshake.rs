//! The beginning of a connection that is to be encrypted.
//!
//! Who speaks plain HTTP is told so in plain HTTP. What cannot be served now is refused with an alert, so that the
//! client can say why.

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

/// What somebody gets who speaks plain HTTP.
const NOT_ENCRYPTED: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// The first bytes of requests.
const METHODS: [&[u8; 5]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];

/// Record header, handshake header, and the newest version that a client of old has.
const VERSION_AT: usize = 5 + 4;
const HANDSHAKE: u8 = 22;
const TLS12: [u8; 2] = [3, 3];

/// How long somebody who was refused may take to see it, and what is read of them meanwhile.
const LINGER: (Duration, u64) = (Duration::from_millis(500), 64 << 10);

/// Makes an encrypted connection; `None` for a client that was refused.
///
/// # Errors
///
/// When the client cannot be talked to, or not agreed with.
pub(super) async fn accept(
    mut socket: Socket,
    config: &Arc<WebConfig>,
) -> io::Result<Option<TlsStream<Socket>>> {
    let begin = socket.look(VERSION_AT + 2).await?;
    if METHODS.iter().any(|method| begin.starts_with(*method)) {
        refuse(socket, NOT_ENCRYPTED).await?;
        return Ok(None);
    }
    if let (Some(&HANDSHAKE), Some(version)) =
        (begin.first(), begin.get(VERSION_AT..VERSION_AT + 2))
        && version < &TLS12[..]
    {
        // Such a client does not send what rustls asks for before it looks at the version.
        tracing::debug!("a client offers only versions before TLS 1.2");
        alert(socket, AlertDescription::ProtocolVersion).await?;
        return Ok(None);
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
            tracing::debug!(error, "no handshake is possible now");
            alert(begun.io, AlertDescription::InternalError).await?;
            return Ok(None);
        }
    };
    let chosen = match settings.choose(&begun.client_hello()) {
        Ok(chosen) => chosen,
        Err(description) => {
            alert(begun.io, description).await?;
            return Ok(None);
        }
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
    if settings.names_wanted && session.peer_certificates().is_none() {
        tracing::debug!("a client without certificate has none of the allowed names");
        return Ok(None);
    }
    Ok(Some(stream))
}

/// Sends a fatal alert.
async fn alert(socket: Socket, description: AlertDescription) -> io::Result<()> {
    refuse(socket, &[21, 3, 3, 0, 2, 2, description.into()]).await
}

/// Sends the last that this client gets.
async fn refuse(mut socket: Socket, answer: &[u8]) -> io::Result<()> {
    socket.write_all(answer).await?;
    leave(socket).await
}

/// Ends a connection after its last word. What the client still sends is read, for the system throws away what is on
/// its way to somebody whose bytes nobody wants.
async fn leave(mut socket: Socket) -> io::Result<()> {
    socket.shutdown().await?;
    let mut rest = socket.take(LINGER.1);
    let mut nowhere = tokio::io::sink();
    // Gone or not, that was all.
    let _ = timeout(LINGER.0, tokio::io::copy(&mut rest, &mut nowhere)).await;
    Ok(())
}
