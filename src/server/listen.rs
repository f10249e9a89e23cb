//! Parses listen addresses in the originals' syntax and binds sockets to them.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

use socket2::{Domain, Protocol, Socket, Type};

use crate::util::reasons::reason;

/// The backlog of pending connections; capped by `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// `host:port` before resolution. An empty or unspecified host means all addresses of both
/// families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// The host name or IP address, without brackets.
    pub host: String,
    /// The port, 0 for any free one.
    pub port: u16,
}

reason! {
    /// The reason why an address is invalid.
    pub struct AddressError;
}

impl ListenAddress {
    /// Parses `host:port`, `:port` or `[v6]:port`.
    ///
    /// # Errors
    ///
    /// When the port is missing or not a number up to 65535, or the host is an unbracketed IPv6
    /// address.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let missing = || format!("address {text}: missing port in address");
        let ambiguous =
            || format!("address {text}: too many colons in address, write IPv6 as [address]:port");
        let (host, port) = text.rsplit_once(':').ok_or_else(missing)?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner
                .strip_suffix(']')
                .ok_or_else(|| if text.ends_with(']') { missing() } else { ambiguous() })?,
            None if host.contains(':') || host.contains(']') => return Err(ambiguous().into()),
            None => host,
        };
        let digits = port.strip_prefix(['+', '-']).unwrap_or(port);
        if !port.is_empty() && (digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit())) {
            let advice = "write it as a number";
            return Err(format!("address {text}: unknown port {port:?}, {advice}").into());
        }
        // Like Go's resolver, which parses an empty port as 0.
        let number = if port.is_empty() { Ok(0) } else { port.parse::<u16>() };
        let port =
            number.map_err(|_| format!("address {text}: invalid port {port}, must be 0–65535"))?;
        Ok(Self { host: host.to_owned(), port })
    }

    /// Creates an address from a host and a port.
    pub fn new(host: &str, port: u16) -> Self {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        Self { host: inner.unwrap_or(host).to_owned(), port }
    }

    fn is_wildcard(&self) -> bool {
        self.host.is_empty() || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A failure to bind a socket.
#[derive(Debug, thiserror::Error)]
#[error("listen tcp {address}: bind: {source} (set by {flag})")]
pub struct BindError {
    /// The address as configured.
    pub address: String,
    /// The flag that configured it.
    pub flag: &'static str,
    /// The system error.
    pub source: io::Error,
}

/// Binds a socket and listens.
///
/// An unspecified host listens on both families, or on IPv4 alone if the host has no IPv6, like
/// Go's `net.Listen`.
///
/// # Errors
///
/// When the host does not resolve or the system refuses the address; the text contains `flag`.
pub fn bind(address: &ListenAddress, flag: &'static str) -> Result<TcpListener, BindError> {
    listen(address).map_err(|source| BindError { address: address.to_string(), flag, source })
}

fn listen(address: &ListenAddress) -> io::Result<TcpListener> {
    if address.is_wildcard() {
        let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port));
        return match open(both, true) {
            Err(error) if no_ipv6(&error) => {
                open(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port)), false)
            }
            result => result,
        };
    }
    open(resolve(&address.host, address.port)?, false)
}

/// Returns the address of a host that a listener takes: an IPv4 address, if there is one.
///
/// # Errors
/// The host does not resolve.
pub(crate) fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let resolved: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    let chosen = resolved.iter().find(|addr| addr.is_ipv4()).or(resolved.first());
    chosen.copied().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "host has no address"))
}

fn no_ipv6(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

fn open(addr: SocketAddr, both_families: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if addr.is_ipv6() {
        socket.set_only_v6(!both_families)?;
    }
    // A restart must not wait for connections in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let parse = |text: &str| ListenAddress::parse(text).map(|a| (a.host, a.port));
        assert_eq!(parse(":9102"), Ok((String::new(), 9102)));
        assert_eq!(parse("127.0.0.1:0"), Ok(("127.0.0.1".into(), 0)));
        assert_eq!(parse("[::1]:80"), Ok(("::1".into(), 80)));
        assert_eq!(parse("foo"), Err("address foo: missing port in address".into()));
        assert_eq!(parse("[::1]"), Err("address [::1]: missing port in address".into()));
        for (text, reason) in [
            ("::1:80", "too many colons in address"),
            ("[::1:80", "too many colons in address"),
            ("h:http", "unknown port"),
            ("h:99999", "invalid port"),
            ("h:-1", "invalid port"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("address {text}: {reason}")), "{error}");
        }
    }

    #[test]
    fn display_brackets_ipv6() {
        assert_eq!(ListenAddress::new("::", 8080).to_string(), "[::]:8080");
        assert_eq!(ListenAddress::new("[::1]", 1).to_string(), "[::1]:1");
        assert_eq!(ListenAddress::new("", 9102).to_string(), ":9102");
    }

    #[test]
    fn wildcards_cover_both_families_and_busy_ports_name_the_flag() {
        let listener = bind(&ListenAddress::new("::", 0), "--port").expect("bind");
        let port = listener.local_addr().expect("address").port();
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("IPv4");
        if listener.local_addr().is_ok_and(|addr| addr.is_ipv6()) {
            std::net::TcpStream::connect((Ipv6Addr::LOCALHOST, port)).expect("IPv6");
        }
        let error = bind(&ListenAddress::new("", port), "--port").expect_err("busy").to_string();
        assert!(error.contains(&format!(":{port}")) && error.contains("--port"), "{error}");
    }
}
