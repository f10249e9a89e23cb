//! Service names such as `localhost:http`, which the originals accept in all addresses.

use std::borrow::Cow;

/// The services that are known without `/etc/services`.
const WELL_KNOWN: &str = "http 80/tcp\nhttps 443/tcp\ndomain 53/tcp\ndomain 53/udp\n\
                          ssh 22/tcp\nsmtp 25/tcp\ntelnet 23/tcp\nftp 21/tcp\n";

/// Replaces a service name in `host:port` by its port number. Anything else, including an unknown
/// name, is returned unchanged.
pub fn numeric<'a>(address: &'a str, protocol: &str) -> Cow<'a, str> {
    let named = address
        .rsplit_once(':')
        .filter(|(_, port)| port.starts_with(|first: char| first.is_ascii_alphabetic()));
    let Some((host, name)) = named else { return Cow::Borrowed(address) };
    let table = std::fs::read_to_string("/etc/services").unwrap_or_default();
    match look_up(&table, name, protocol) {
        Some(port) => Cow::Owned(format!("{host}:{port}")),
        None => Cow::Borrowed(address),
    }
}

/// Looks up a service. `table` has the format of `/etc/services`: `name port/protocol alias… #
/// comment`.
fn look_up(table: &str, name: &str, protocol: &str) -> Option<u16> {
    table.lines().chain(WELL_KNOWN.lines()).find_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let (first, port) = (words.next()?, words.next()?);
        let (number, of) = port.split_once('/')?;
        let is_it = std::iter::once(first).chain(words).any(|word| word.eq_ignore_ascii_case(name));
        (is_it && of == protocol).then(|| number.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_names_become_port_numbers() {
        let table = "# names\nstatsd\t8125/udp\tmetrics # comment\nodd 7/tcp\n";
        assert_eq!(look_up(table, "statsd", "udp"), Some(8125));
        assert_eq!(look_up(table, "Metrics", "udp"), Some(8125));
        assert_eq!(look_up(table, "statsd", "tcp"), None);
        assert_eq!(look_up(table, "comment", "udp"), None);
        assert_eq!(look_up(table, "http", "tcp"), Some(80));
        assert_eq!(numeric("127.0.0.1:http", "tcp"), "127.0.0.1:80");
        assert_eq!(numeric("[::1]:domain", "udp"), "[::1]:53");
        for address in ["h:9102", "h:", "", "h", "h:no-such-service", "h:-1"] {
            assert_eq!(numeric(address, "tcp"), address);
        }
    }
}
