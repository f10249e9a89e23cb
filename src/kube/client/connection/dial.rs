//! From a name to a stream that HTTP can go over: addresses, proxies, TLS, all within one time limit.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::socket::{Activity, Socket};
use crate::kube::client::error::causes;
use crate::kube::client::proxy::{Kind, Proxy};

/// How long everything together may take.
const LIMIT: Duration = Duration::from_secs(15);
/// The least time for each of several addresses.
const EACH: Duration = Duration::from_secs(2);
/// The longest head of a proxy's answer, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// What HTTP goes over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Where connections lead.
pub(crate) struct Dialer {
    /// Name or address of the server.
    pub host: String,
    pub port: u16,
    /// What the server is called in its certificate, if not as `host`.
    pub server_name: Option<String>,
    pub proxy: Option<Proxy>,
    /// What takes the place of names and sockets.
    #[cfg(any(test, fuzzing))]
    pub network: Option<Arc<dyn Network>>,
}

/// What leads to servers in a test that has its own time, in which sockets have no part.
#[cfg(any(test, fuzzing))]
pub(crate) trait Network: Send + Sync {
    /// A stream to this server, or why there is none.
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a>;
}

/// What comes of it.
#[cfg(any(test, fuzzing))]
pub(crate) type Connecting<'a> =
    std::pin::Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, String>> + Send + 'a>>;

/// A stream to the server.
pub(crate) struct Dialed {
    pub stream: Box<dyn Stream>,
    /// Whether both sides want HTTP/2.
    pub http2: bool,
    pub activity: Arc<Activity>,
}

impl Dialer {
    /// Connects, over TLS if there is a configuration for it.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub(crate) async fn dial(&self, tls: Option<&Arc<ClientConfig>>) -> Result<Dialed, String> {
        let end = Instant::now() + LIMIT;
        let late = |_| format!("not connected within {} s", LIMIT.as_secs());
        timeout_at(end, self.connect(tls, end)).await.map_err(late)?
    }

    async fn connect(
        &self,
        tls: Option<&Arc<ClientConfig>>,
        end: Instant,
    ) -> Result<Dialed, String> {
        let activity = Arc::new(Activity::new());
        let stream: Box<dyn Stream> = match &self.proxy {
            #[cfg(any(test, fuzzing))]
            None if self.network.is_some() => self.simulated(&activity).await?,
            None => Box::new(connect(&self.host, self.port, end, &activity).await?),
            Some(proxy) => {
                let fault = |error: String| format!("proxy {proxy}: {error}");
                let socket =
                    connect(&proxy.host, proxy.port, end, &activity).await.map_err(fault)?;
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
    async fn simulated(&self, activity: &Arc<Activity>) -> Result<Box<dyn Stream>, String> {
        let network = self.network.as_ref().ok_or("no network")?;
        let stream = network.connect(&self.host, self.port).await?;
        Ok(Box::new(Socket::over(stream, Arc::clone(activity))))
    }

    /// What leads through a proxy to the server; for plain HTTP, to the proxy alone.
    async fn through(
        &self,
        proxy: &Proxy,
        socket: Socket,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Box<dyn Stream>, String> {
        match proxy.kind {
            Kind::Socks5 => {
                let mut socket = socket;
                let user = proxy.user();
                socks(&mut socket, &self.host, self.port, user).await?;
                Ok(Box::new(socket))
            }
            Kind::Http { tls: false } => {
                let mut stream = socket;
                if tls.is_some() {
                    self.tunnel(&mut stream, proxy.authorization()).await?;
                }
                Ok(Box::new(stream))
            }
            Kind::Http { tls: true } => {
                let mut own = match tls {
                    Some(config) => ClientConfig::clone(config),
                    None => crate::kube::client::tls::of_system()?,
                };
                own.alpn_protocols = vec![b"http/1.1".to_vec()];
                let mut stream = shake_hands(socket, Arc::new(own), &proxy.host).await?;
                if tls.is_some() {
                    self.tunnel(&mut stream, proxy.authorization()).await?;
                }
                Ok(Box::new(stream))
            }
        }
    }

    /// Asks an HTTP proxy for a connection to the server.
    async fn tunnel(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        authorization: Option<HeaderValue>,
    ) -> Result<(), String> {
        let place = place(&self.host, self.port);
        let mut request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n").into_bytes();
        if let Some(authorization) = authorization {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(authorization.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        let fault = |error: io::Error| error.to_string();
        stream.write_all(&request).await.map_err(fault)?;
        stream.flush().await.map_err(fault)?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            // What follows the head is not ours to read.
            let byte = stream.read_u8().await.map_err(fault)?;
            head.push(byte);
            if head.len() > MAX_HEAD {
                return Err("the head of its answer does not end".to_owned());
            }
        }
        let head = String::from_utf8_lossy(&head);
        let line = head.lines().next().unwrap_or_default();
        let mut words = line.splitn(3, ' ');
        let version = words.next().unwrap_or_default();
        let code = words.next().unwrap_or_default();
        match (version.starts_with("HTTP/1."), code) {
            (true, "200") => Ok(()),
            (true, _) => {
                let reason = words.next().unwrap_or_default();
                Err(format!("it answers {code} {reason}").trim_end().to_owned())
            }
            (false, _) => Err("it does not speak HTTP".to_owned()),
        }
    }
}

/// `host:port`, with brackets where they are needed.
pub(crate) fn place(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Connects to one of the addresses of a host.
async fn connect(
    host: &str,
    port: u16,
    end: Instant,
    activity: &Arc<Activity>,
) -> Result<Socket, String> {
    let addresses = timeout(LIMIT - EACH, tokio::net::lookup_host((host, port)));
    let addresses: Vec<SocketAddr> = addresses
        .await
        .map_err(|_| format!("no address of {host} found within {} s", (LIMIT - EACH).as_secs()))?
        .map_err(|error| format!("no address of {host}: {error}"))?
        .collect();
    let mut fault = format!("{host} has no address");
    for (at, address) in addresses.iter().enumerate() {
        let permit = Socket::permit()?;
        let left = u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
        let share = (end.saturating_duration_since(Instant::now()) / left).max(EACH);
        match timeout(share, Socket::connect(*address, permit, Arc::clone(activity))).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => fault = format!("{address}: {error}"),
            Err(_) => fault = format!("{address}: not connected within {} s", share.as_secs()),
        }
    }
    Err(fault)
}

async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    config: Arc<ClientConfig>,
    name: &str,
) -> Result<tokio_rustls::client::TlsStream<S>, String> {
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| format!("{name:?} cannot be the name of a TLS server"))?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    stream.map_err(|error| format!("TLS: {}", causes(&error)))
}

/// Asks a SOCKS 5 proxy (RFC 1928, RFC 1929) for a connection to a name, which it resolves, or an address.
async fn socks(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    host: &str,
    port: u16,
    user: Option<(&str, &str)>,
) -> Result<(), String> {
    const VERSION: u8 = 5;
    const OPEN: u8 = 0;
    const PASSWORD: u8 = 2;
    let fault = |error: io::Error| error.to_string();
    let short = |text: &str| u8::try_from(text.len()).map_err(|_| "a name is too long".to_owned());
    let hello: &[u8] =
        if user.is_some() { &[VERSION, 2, OPEN, PASSWORD] } else { &[VERSION, 1, OPEN] };
    stream.write_all(hello).await.map_err(fault)?;
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).await.map_err(fault)?;
    match (answer, user) {
        ([VERSION, OPEN], _) => {}
        ([VERSION, PASSWORD], Some((name, password))) => {
            let mut request = vec![1, short(name)?];
            request.extend_from_slice(name.as_bytes());
            request.push(short(password)?);
            request.extend_from_slice(password.as_bytes());
            stream.write_all(&request).await.map_err(fault)?;
            stream.read_exact(&mut answer).await.map_err(fault)?;
            if answer[1] != 0 {
                return Err("it refuses user and password".to_owned());
            }
        }
        ([VERSION, _], _) => return Err("it asks for another way to log in".to_owned()),
        _ => return Err("it does not speak SOCKS 5".to_owned()),
    }
    let mut request = vec![VERSION, 1, 0];
    match host.parse() {
        Ok(std::net::IpAddr::V4(address)) => {
            request.push(1);
            request.extend_from_slice(&address.octets());
        }
        Ok(std::net::IpAddr::V6(address)) => {
            request.push(4);
            request.extend_from_slice(&address.octets());
        }
        Err(_) => {
            request.extend_from_slice(&[3, short(host)?]);
            request.extend_from_slice(host.as_bytes());
        }
    }
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request).await.map_err(fault)?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await.map_err(fault)?;
    let reason = match head[1] {
        0 => None,
        1 => Some("general failure"),
        2 => Some("not allowed"),
        3 => Some("network unreachable"),
        4 => Some("host unreachable"),
        5 => Some("connection refused"),
        6 => Some("expired on the way"),
        _ => Some("not supported"),
    };
    if let Some(reason) = reason {
        return Err(format!("it cannot connect: {reason}"));
    }
    let rest = match head[3] {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await.map_err(fault)?),
        _ => return Err("it does not speak SOCKS 5".to_owned()),
    };
    let mut bound = vec![0; rest + 2];
    stream.read_exact(&mut bound).await.map_err(fault)?;
    Ok(())
}
