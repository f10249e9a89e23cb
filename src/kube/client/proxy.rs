//! The proxy of a connection, selected by the rules of Go's HTTP clients.
//!
//! hyper-util parses proxy URLs. `NO_PROXY` is evaluated here, because hyper-util follows curl's rules and kube 5.0
//! compares the entries with the host of the proxy instead of the server's. The user and password of a proxy are
//! never printed.

use std::net::IpAddr;

use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use ipnet::IpNet;

use super::error::TransportError;

/// A proxy server, with the credentials for it.
#[derive(Clone)]
pub(crate) struct Proxy(Intercept);

/// Formats the address of the proxy, without user and password.
impl std::fmt::Display for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = self.uri().host().unwrap_or_default();
        write!(f, "{}://{host}:{}", self.scheme(), self.port())
    }
}

/// Splits a URL into its beginning up to `://`, user and host, and the rest.
pub(super) fn split_authority(text: &str) -> (&str, &str, &str) {
    let (head, rest) = text.split_at(text.find("://").map_or(0, |at| at + 3));
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    (head, authority, path)
}

/// Encodes each `@` of user and password: as in Go, the last one separates them from the host, but hyper-util takes the first one.
fn with_encoded_user(text: &str) -> String {
    let (head, authority, path) = split_authority(text);
    match authority.rsplit_once('@') {
        Some((user, host)) => format!("{head}{}@{host}{path}", user.replace('@', "%40")),
        None => text.to_owned(),
    }
}

impl Proxy {
    /// Parses the URL of a proxy. With `lenient`, a URL without a scheme means `http`, as in environment variables.
    ///
    /// # Errors
    /// The URL is invalid. The message does not contain it, because it may include a password.
    pub(crate) fn parse(text: &str, lenient: bool) -> Result<Self, TransportError> {
        let text = text.trim();
        if !lenient && !text.contains("://") {
            return Err("a URL with a scheme is needed".into());
        }
        let any = Uri::from_static("http://any");
        let proxy =
            Matcher::builder().all(with_encoded_user(text)).build().intercept(&any).map(Self);
        proxy
            .filter(|proxy| !proxy.scheme().starts_with("socks4"))
            .filter(|proxy| !proxy.host().is_empty())
            // hyper-util ignores an invalid port.
            .filter(|proxy| {
                let host = proxy.uri().host().map_or(0, str::len);
                let authority = proxy.uri().authority().map_or(0, |all| all.as_str().len());
                authority == host || proxy.uri().port_u16().is_some()
            })
            .ok_or_else(|| {
                "not the URL of a proxy; the scheme must be http, https, or socks5".into()
            })
    }

    /// Returns the URL without user and password.
    pub(crate) fn uri(&self) -> &Uri {
        self.0.uri()
    }

    /// Returns the name or address of the proxy.
    pub(crate) fn host(&self) -> &str {
        self.uri().host().unwrap_or_default().trim_matches(['[', ']'])
    }

    /// Returns the port of the proxy, by default that of its protocol.
    pub(crate) fn port(&self) -> u16 {
        self.uri().port_u16().unwrap_or(match self.scheme() {
            "http" => 80,
            "https" => 443,
            _ => 1080,
        })
    }

    fn scheme(&self) -> &str {
        self.uri().scheme_str().unwrap_or_default()
    }

    /// Returns whether the connection to the proxy itself uses TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.scheme() == "https"
    }

    /// Returns whether it is a SOCKS 5 proxy, which also resolves host names, instead of an HTTP proxy.
    pub(crate) fn is_socks(&self) -> bool {
        !matches!(self.scheme(), "http" | "https")
    }

    /// Returns the `Proxy-Authorization` header for an HTTP proxy.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        self.0.basic_auth().cloned()
    }

    /// Returns the user and password for a SOCKS proxy.
    pub(crate) fn user(&self) -> Option<(&str, &str)> {
        self.0.raw_auth()
    }
}

/// Returns the proxy that the environment variables select for a server.
///
/// # Errors
/// The variable has an invalid value; the message names the variable.
pub(crate) fn of_environment(server: &Uri) -> Result<Option<Proxy>, TransportError> {
    choose(server, |name| std::env::var(name).ok())
}

fn choose(
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, TransportError> {
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
    Proxy::parse(&value, true).map(Some).map_err(|reason| format!("{name}: {reason}").into())
}

/// Returns whether `exceptions` excludes a server from proxying, by the rules of Go's HTTP clients. Loopback is
/// always excluded, a domain name includes its subdomains, and an entry with a port matches only that port.
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
        if let Ok(network) = entry.parse::<IpNet>() {
            return address.is_some_and(|address| network.contains(&address));
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
            // Matches only subdomains.
            Some(_) => host.ends_with(name),
            None => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
        }
    })
}

/// Splits an entry into a name or address and its port, if it has one.
fn split_port(entry: &str) -> (&str, Option<&str>) {
    if let Some(rest) = entry.strip_prefix('[')
        && let Some((host, port)) = rest.split_once(']')
    {
        return (host, port.strip_prefix(':'));
    }
    match entry.split_once(':') {
        // More than one colon: an IPv6 address without a port.
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        _ => (entry, None),
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
        assert_eq!(parsed("socks5://us%40er:pa:ss%25@p:1").user(), Some(("us@er", "pa:ss%")));
        let proxy = parsed("http://us%40er:pa:ss%25@p:1");
        assert_eq!(proxy.authorization().expect("one"), "Basic dXNAZXI6cGE6c3Ml");
        assert_eq!(proxy.to_string(), "http://p:1");
        // As in Go, the last one is the end of the password.
        assert_eq!(parsed("socks5://u@s:p@s@s@p:1/@").user(), Some(("u@s", "p@s@s")));
        assert_eq!(parsed("http://us:p@ss@p").to_string(), "http://p:80");
        for bad in
            ["ftp://u:secret@p", "http://u:secret@", "http://u:secret@p:x", "socks4://u:secret@p"]
        {
            let error = Proxy::parse(bad, true).err().expect(bad);
            assert!(!error.to_string().contains("secret"), "{error}");
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
            choose(&server, variable).expect("well-formed").map(|proxy| proxy.host().to_owned())
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
        // An unused variable is not validated.
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
