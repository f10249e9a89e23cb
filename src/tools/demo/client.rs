//! The smallest HTTP client that can ask ourselves: one request on one connection.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The status of an answer whose body is not wanted.
///
/// # Errors
/// There is no answer.
pub(super) async fn status(address: SocketAddr, path: &str) -> io::Result<u16> {
    get(address, path, |_| {}).await
}

/// Sends a request and hands over the body piece by piece; returns the status.
///
/// # Errors
/// There is no answer, or it breaks off.
pub(super) async fn get(
    address: SocketAddr,
    path: &str,
    mut body: impl FnMut(&[u8]),
) -> io::Result<u16> {
    let stream = TcpStream::connect(address).await?;
    let (mut requests, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let request = Request::get(path).header(header::HOST, address.to_string());
    let request = request.body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
    let answer = async {
        let mut answer = requests.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status().as_u16();
        while let Some(frame) = answer.frame().await {
            if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                body(&data);
            }
        }
        drop(requests);
        Ok(status)
    };
    // The connection has to be driven while the answer is read; its own errors come out there.
    let (answer, _) = tokio::join!(answer, connection);
    answer
}
