//! Which proxy a connection goes through, by the rules of Go's clients.
//!
//! The environment or a kubeconfig flows in as text, a [`Proxy`] or none flows out. Its user and password
//! are shown nowhere.

use std::net::IpAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderValue, Uri};

/// A proxy.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub kind: Kind,
    pub host: String,
    pub port: u16,
    /// User and password.
    user: Option<(String, String)>,
}

/// How a proxy is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// HTTP, over TLS or not.
    Http {
        /// Whether the proxy itself is spoken to over TLS.
        tls: bool,
    },
    /// SOCKS 5; the proxy resolves names.
    Socks5,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// Without user and password.
impl std::fmt::Display for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = match self.kind {
            Kind::Http { tls: false } => "http",
            Kind::Http { tls: true } => "https",
            Kind::Socks5 => "socks5",
        };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}", self.host, self.port)
    }
}

impl Proxy {
    /// Reads the URL of a proxy. `lenient` takes one without a scheme for HTTP, as the variables may have.
    ///
    /// # Errors
    /// It is none. The message does not show it.
    pub(crate) fn parse(text: &str, lenient: bool) -> Result<Self, String> {
        let text = text.trim();
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            None if lenient => ("http".to_owned(), text),
            None => return Err("a URL with a scheme is needed".to_owned()),
        };
        let (kind, port) = match scheme.as_str() {
            "http" => (Kind::Http { tls: false }, 80),
            "https" => (Kind::Http { tls: true }, 443),
            "socks5" | "socks5h" => (Kind::Socks5, 1080),
            other => {
                return Err(format!(
                    "unsupported scheme {other:?}, must be http, https, or socks5"
                ));
            }
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                (Some((decode(name)?, decode(password)?)), place)
            }
            None => (None, authority),
        };
        let (host, port) = host_port(place, port).ok_or("no host, or a port that is none")?;
        Ok(Self { kind, host, port, user })
    }

    /// The header that proves who we are to an HTTP proxy.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        let (name, password) = self.user.as_ref()?;
        basic(name, password)
    }

    /// User and password.
    pub(crate) fn user(&self) -> Option<(&str, &str)> {
        self.user.as_ref().map(|(name, password)| (name.as_str(), password.as_str()))
    }
}

/// A header for basic authentication.
pub(crate) fn basic(name: &str, password: &str) -> Option<HeaderValue> {
    let text = format!("Basic {}", BASE64_STANDARD.encode(format!("{name}:{password}")));
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Host and port of `host`, `host:port` or `[address]:port`.
fn host_port(text: &str, default: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':').or(rest.is_empty().then_some(""))?)
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let port = if port.is_empty() { default } else { port.parse().ok()? };
    let clean = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c.is_control());
    clean.then(|| (host.to_owned(), port))
}

/// Percent-decodes the name or password of a URL.
pub(crate) fn decode(text: &str) -> Result<String, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (Some(high), Some(low)) = (digit(), digit()) else {
                return Err("its user or password has a bad escape".to_owned());
            };
            out.push((high * 16 + low) as u8);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).map_err(|_| "its user or password is not UTF-8".to_owned())
}

/// The proxy that the environment has for a server.
///
/// # Errors
/// The variable, and what is wrong with it.
pub(crate) fn of_environment(server: &Uri) -> Result<Option<Proxy>, String> {
    choose(server, |name| std::env::var(name).ok())
}

fn choose(
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, String> {
    let any = |names: [&'static str; 2]| {
        names.into_iter().find_map(|name| {
            variable(name).filter(|value| !value.is_empty()).map(|value| (name, value))
        })
    };
    let https = server.scheme_str() == Some("https");
    let names = if https { ["HTTPS_PROXY", "https_proxy"] } else { ["HTTP_PROXY", "http_proxy"] };
    let Some((name, value)) = any(names) else {
        return Ok(None);
    };
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = server.port_u16().unwrap_or(if https { 443 } else { 80 });
    let exceptions = any(["NO_PROXY", "no_proxy"]).map(|(_, value)| value).unwrap_or_default();
    if is_direct(host, port, &exceptions) {
        return Ok(None);
    }
    Proxy::parse(&value, true).map(Some).map_err(|reason| format!("{name}: {reason}"))
}

/// Whether a server is reached without a proxy.
fn is_direct(host: &str, port: u16, exceptions: &str) -> bool {
    let host = host.trim().to_ascii_lowercase();
    let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    exceptions.split(',').map(|entry| entry.trim().to_ascii_lowercase()).any(|entry| {
        if entry == "*" {
            return true;
        }
        if let Some((network, bits)) = entry.split_once('/')
            && let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>())
        {
            return address.is_some_and(|address| contains(network, bits, address));
        }
        let (name, only) = split_port(&entry);
        if only.is_some_and(|only| only.parse() != Ok(port)) || name.is_empty() {
            return false;
        }
        if let Ok(exception) = name.parse::<IpAddr>() {
            return address == Some(exception.to_canonical());
        }
        let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
        match name.strip_prefix('.') {
            // Only what lies below.
            Some(_) => host.ends_with(name),
            None => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
        }
    })
}

/// A name or address, and a port where one stands behind it.
fn split_port(entry: &str) -> (&str, Option<&str>) {
    if let Some(rest) = entry.strip_prefix('[')
        && let Some((host, port)) = rest.split_once(']')
    {
        return (host, port.strip_prefix(':'));
    }
    match entry.split_once(':') {
        // More than one colon: an address of IPv6 without a port.
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        _ => (entry, None),
    }
}

fn contains(network: IpAddr, bits: u32, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) if bits <= 32 => {
            let shift = 32 - bits;
            let of = |address: u32| address.checked_shr(shift).unwrap_or(0);
            of(network.into()) == of(address.into())
        }
        (IpAddr::V6(network), IpAddr::V6(address)) if bits <= 128 => {
            let shift = 128 - bits;
            let of = |address: u128| address.checked_shr(shift).unwrap_or(0);
            of(network.into()) == of(address.into())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let parsed = |text| Proxy::parse(text, true).expect(text);
        assert_eq!(parsed("http://p:3128").to_string(), "http://p:3128");
        assert_eq!(parsed("p").to_string(), "http://p:80");
        assert_eq!(parsed("p:8080").to_string(), "http://p:8080");
        assert_eq!(parsed("HTTPS://[::1]/x").to_string(), "https://[::1]:443");
        assert_eq!(parsed("socks5://p").to_string(), "socks5://p:1080");
        let proxy = parsed("http://us%40er:pa:ss%25@p:1");
        assert_eq!(proxy.user(), Some(("us@er", "pa:ss%")));
        assert_eq!(proxy.authorization().expect("one"), "Basic dXNAZXI6cGE6c3Ml");
        assert_eq!(format!("{proxy} {proxy:?}"), "http://p:1 Proxy(http://p:1)");
        for bad in
            ["ftp://u:secret@p", "http://u:secret@", "http://u:secret@p:x", "http://u:%secret@p"]
        {
            let error = Proxy::parse(bad, true).expect_err(bad);
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(Proxy::parse("p:8080", false).is_err());
    }

    #[test]
    fn the_environment_decides() {
        let chosen = |server: &str, variables: &[(&str, &str)]| {
            let server: Uri = server.parse().expect("a URL");
            let variable = |name: &str| {
                let mut all = variables.iter();
                all.find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            };
            choose(&server, variable).expect("well-formed").map(|proxy| proxy.host)
        };
        let both = [("HTTPS_PROXY", "http://s"), ("HTTP_PROXY", "http://h")];
        assert_eq!(chosen("https://a", &both).as_deref(), Some("s"));
        assert_eq!(chosen("http://a", &both).as_deref(), Some("h"));
        assert_eq!(chosen("https://a", &[("https_proxy", "p")]).as_deref(), Some("p"));
        assert_eq!(
            chosen("https://a", &[("HTTPS_PROXY", ""), ("https_proxy", "p")]).as_deref(),
            Some("p")
        );
        assert_eq!(chosen("https://a", &[("ALL_PROXY", "p"), ("HTTP_PROXY", "p")]), None);
        assert_eq!(chosen("https://a", &[("HTTPS_PROXY", "p"), ("no_proxy", "a")]), None);
        // What is not used is not looked at.
        assert_eq!(chosen("https://a", &[("HTTPS_PROXY", "ftp://p"), ("NO_PROXY", "*")]), None);
    }

    #[test]
    fn exceptions() {
        for (host, port, exceptions, direct) in [
            ("localhost", 1, "", true),
            ("127.3.2.1", 1, "", true),
            ("::1", 1, "", true),
            ("a.example", 443, "", false),
            ("a.example", 443, "*", true),
            ("a.example", 443, "x, EXAMPLE", true),
            ("a.example", 443, ".example", true),
            ("a.example", 443, "*.example", true),
            ("example", 443, ".example", false),
            ("example", 443, "*.example", false),
            ("example", 443, "example", true),
            ("anexample", 443, "example", false),
            ("a.example", 443, "example:443", true),
            ("a.example", 443, "example:444", false),
            ("a.example", 443, ",,", false),
            ("10.1.2.3", 443, "10.1.0.0/16", true),
            ("10.2.2.3", 443, "10.1.0.0/16", false),
            ("10.2.2.3", 443, "0.0.0.0/0", true),
            ("10.2.2.3", 443, "10.2.2.3", true),
            ("10.2.2.3", 443, "10.2.2.3:443", true),
            ("10.2.2.3", 443, "10.2.2.3:1", false),
            ("2001:db8::1", 443, "2001:db8::/32", true),
            ("2001:db8::1", 443, "2001:db8::1", true),
            ("2001:db8::1", 443, "[2001:db8::1]:443", true),
            ("2001:db8::1", 443, "[2001:db8::1]:1", false),
        ] {
            assert_eq!(is_direct(host, port, exceptions), direct, "{host}:{port} {exceptions:?}");
        }
    }
}
