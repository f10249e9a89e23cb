//! The family of an IP address, by the rules of Go's `netip.ParseAddr`.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Returns the family of `address` (`4` also for IPv4-mapped IPv6 addresses, or `6`), `None` if it is not an address. An
/// IPv6 address may have a zone (`fe80::1%eth0`).
pub fn family(address: &str) -> Option<&'static str> {
    let (address, zone) = match address.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (address, None),
    };
    if zone.is_none() && address.parse::<Ipv4Addr>().is_ok() {
        return Some("4");
    }
    let wide: Ipv6Addr = address.parse().ok().filter(|_| zone != Some(""))?;
    Some(if wide.to_ipv4_mapped().is_some() { "4" } else { "6" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for text in ["0.0.0.0", "10.1.2.3", "255.255.255.255", "::ffff:1.2.3.4", "::FFFF:102:304%a"]
        {
            assert_eq!(family(text), Some("4"), "{text}");
        }
        for text in ["::", "::1", "fd00:10::7", "::1.2.3.4", "fe80::1%eth0", "1::8%%", "A:b::"] {
            assert_eq!(family(text), Some("6"), "{text}");
        }
        for text in [
            "",
            "1.2.3",
            "1.2.3.4.5",
            "01.2.3.4",
            "1.2.3.256",
            "1.2.3.4%eth0",
            "10.0.0.1/8",
            "::1%",
            ":",
            ":::",
            "1:2:3:4::5:6:7:8",
            "12345::",
            "::1 ",
            "[::1]",
            "host",
            "１.2.3.4",
        ] {
            assert_eq!(family(text), None, "{text}");
        }
    }
}
