//! Opens streams for HTTP: name resolution, proxies and TLS, all within one timeout.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use ::kube::client::ConfigExt as _;
use http::Uri;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tower::{Service as _, service_fn};

use super::socket::{self, Activity, Socket};
use crate::kube::client::error::{TransportError, causes};
use crate::kube::client::proxy::Proxy;
use crate::util::name_lookup::NameLookup;

/// The timeout for name resolution, TCP, proxy and TLS together.
const LIMIT: Duration = Duration::from_secs(15);
/// The minimum time for each of several addresses.
const EACH: Duration = Duration::from_secs(2);

/// A byte stream that carries HTTP.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The address of a server, and the proxy to reach it through.
pub(crate) struct Dialer {
    /// Name or address of the server.
    pub host: String,
    pub port: u16,
    /// The server's name in its certificate, if it differs from `host`.
    pub server_name: Option<String>,
    pub proxy: Option<Proxy>,
    /// The addresses of the server or, with a proxy, of the proxy.
    pub lookup: NameLookup,
    /// A replacement for name resolution and sockets.
    #[cfg(any(test, fuzzing))]
    pub network: Option<Arc<dyn Network>>,
}

/// A simulated network for tests in simulated time.
#[cfg(any(test, fuzzing))]
pub(crate) trait Network: Send + Sync {
    /// Opens a stream to this server.
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a>;

    /// Returns the addresses that a name has now; `None` if it is to be looked up outside the simulation.
    #[cfg(test)]
    fn addresses(
        &self,
        _name: &str,
    ) -> Option<Result<std::collections::BTreeSet<std::net::SocketAddr>, String>> {
        None
    }
}

/// The future of a simulated connection.
#[cfg(any(test, fuzzing))]
pub(crate) type Connecting<'a> =
    std::pin::Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, TransportError>> + Send + 'a>>;

/// An open stream to the server.
pub(crate) struct Dialed {
    pub stream: Box<dyn Stream>,
    /// TLS negotiated HTTP/2 (ALPN).
    pub http2: bool,
    pub activity: Arc<Activity>,
}

impl Dialer {
    /// Connects, over TLS if there is a configuration for it.
    ///
    /// # Errors
    /// The connection, the proxy or TLS fails, or the timeout expires.
    pub(crate) async fn dial(
        &self,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Dialed, TransportError> {
        let end = Instant::now() + LIMIT;
        let late = |_| format!("not connected within {} s", LIMIT.as_secs());
        timeout_at(end, self.connect(tls, end)).await.map_err(late)?
    }

    async fn connect(
        &self,
        tls: Option<&Arc<ClientConfig>>,
        end: Instant,
    ) -> Result<Dialed, TransportError> {
        let activity = Arc::new(Activity::new());
        let stream: Box<dyn Stream> = match &self.proxy {
            #[cfg(any(test, fuzzing))]
            None if self.network.is_some() => self.simulated(&activity).await?,
            None => Box::new(connect(&self.lookup, &self.host, end, &activity).await?),
            Some(proxy) => {
                let fault =
                    |error: TransportError| TransportError::from(format!("proxy {proxy}: {error}"));
                let socket = connect(&self.lookup, proxy.host(), end, &activity);
                let socket = socket.await.map_err(fault)?;
                self.through(proxy, socket, tls).await.map_err(fault)?
            }
        };
        let Some(config) = tls else {
            return Ok(Dialed { stream, http2: false, activity });
        };
        let name = self.server_name.as_deref().unwrap_or(&self.host);
        let stream = shake_hands(stream, Arc::clone(config), name).await?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Dialed { stream: Box::new(stream), http2, activity })
    }

    #[cfg(any(test, fuzzing))]
    async fn simulated(&self, activity: &Arc<Activity>) -> Result<Box<dyn Stream>, TransportError> {
        let network = self.network.as_ref().ok_or("no network")?;
        let stream = network.connect(&self.host, self.port).await?;
        Ok(Box::new(socket::over(stream, Arc::clone(activity))))
    }

    /// Returns a stream to the server through a proxy. For plain HTTP through an HTTP proxy, the stream ends at the
    /// proxy, which forwards the requests.
    async fn through(
        &self,
        proxy: &Proxy,
        socket: Socket,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Box<dyn Stream>, TransportError> {
        let stream: Box<dyn Stream> = if proxy.is_https() {
            let mut own = match tls {
                Some(config) => ClientConfig::clone(config),
                None => {
                    let own = ::kube::Config::new(proxy.uri().clone()).rustls_client_config();
                    own.map_err(|error| causes(&error))?
                }
            };
            own.alpn_protocols = vec![b"http/1.1".to_vec()];
            Box::new(shake_hands(socket, Arc::new(own), proxy.host()).await?)
        } else {
            Box::new(socket)
        };
        if tls.is_none() && !proxy.is_socks() {
            return Ok(stream);
        }
        let target = place(&self.host, self.port);
        let server: Uri = format!("https://{target}").parse().map_err(|error| causes(&error))?;
        // The connection to the proxy is already open.
        let mut stream = Some(TokioIo::new(stream));
        let connected = service_fn(|_| ready(stream.take().ok_or("connected once")));
        let stream = if proxy.is_socks() {
            let mut socks = SocksV5::new(proxy.uri().clone(), connected);
            if let Some((user, password)) = proxy.user() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            socks.call(server).await.map_err(|error| causes(&error))?
        } else {
            let mut tunnel = Tunnel::new(proxy.uri().clone(), connected);
            if let Some(authorization) = proxy.authorization() {
                tunnel = tunnel.with_auth(authorization);
            }
            let connected = tunnel.call(server).await;
            connected.map_err(|error| format!("CONNECT {target}: {}", causes(&error)))?
        };
        Ok(stream.into_inner())
    }
}

/// Formats `host:port`, with brackets for an IPv6 address.
pub(crate) fn place(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Tries the addresses of a host in order, and returns the first connection.
async fn connect(
    lookup: &NameLookup,
    host: &str,
    end: Instant,
    activity: &Arc<Activity>,
) -> Result<Socket, TransportError> {
    let addresses = timeout(LIMIT - EACH, lookup.addresses())
        .await
        .map_err(|_| format!("no address of {host} found within {} s", (LIMIT - EACH).as_secs()))?
        .map_err(|error| format!("no address of {host}: {error}"))?;
    let mut fault = format!("{host} has no address");
    for (at, address) in addresses.iter().enumerate() {
        let permit = socket::permit()?;
        let left = u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
        let share = (end.saturating_duration_since(Instant::now()) / left).max(EACH);
        match timeout(share, socket::connect(*address, permit, Arc::clone(activity))).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => fault = format!("{address}: {error}"),
            Err(_) => fault = format!("{address}: not connected within {} s", share.as_secs()),
        }
    }
    Err(fault.into())
}

async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    config: Arc<ClientConfig>,
    name: &str,
) -> Result<tokio_rustls::client::TlsStream<S>, TransportError> {
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| format!("{name:?} cannot be the name of a TLS server"))?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    stream.map_err(|error| format!("TLS: {}", causes(&error)).into())
}
