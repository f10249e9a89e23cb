//! A minimal HTTP client for local requests, one per connection.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Requests a path and returns the status.
///
/// # Errors
/// When there is no response.
pub(super) async fn status(address: SocketAddr, path: &str) -> io::Result<u16> {
    get(address, path, |_| {}).await
}

/// Requests a path, passes the body on in chunks and returns the status.
///
/// # Errors
/// When there is no response, or it is incomplete.
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
    // The connection must be polled while the response is read; its errors surface in the response.
    let (answer, _) = tokio::join!(answer, connection);
    answer
}
