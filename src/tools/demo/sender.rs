//! A StatsD client that simulates the services of a small shop.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use fastrand::Rng;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};

/// The maximum datagram size: fits an Ethernet frame, like that of common StatsD clients.
const DATAGRAM: usize = 1_400;
/// The interval between bursts.
const TICK: Duration = Duration::from_millis(50);
const SERVICES: [&str; 5] = ["cart", "checkout", "login", "search", "shipping"];

/// Sends `rate` lines per second to `target` forever.
///
/// # Errors
/// When no socket is available. A missing receiver is not an error, because UDP does not report it
/// reliably.
pub async fn run(target: SocketAddr, rate: f64) -> io::Result<()> {
    if rate <= 0.0 {
        return std::future::pending().await;
    }
    // A socket sends to addresses of its own family only.
    let own: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((own, 0)).await?;
    let mut random = Rng::with_seed(1);
    let start = Instant::now();
    let mut sent = 0_u64;
    let mut datagram = String::with_capacity(DATAGRAM * 2);
    loop {
        let due = (start.elapsed().as_secs_f64() * rate) as u64;
        while sent < due {
            write_line(&mut datagram, &mut random);
            sent += 1;
            if datagram.len() > DATAGRAM - 80 || sent == due {
                let _ = socket.send_to(datagram.as_bytes(), target).await;
                datagram.clear();
            } else {
                datagram.push('\n');
            }
        }
        sleep_until(Instant::now() + TICK).await;
    }
}

fn pick<'a, const N: usize>(random: &mut Rng, words: &[&'a str; N]) -> &'a str {
    words[random.usize(..N)]
}

fn write_line(out: &mut String, random: &mut Rng) {
    let service = pick(random, &SERVICES);
    let number = random.u32(..1_000);
    // Writing to a string cannot fail.
    let _ = match random.u32(..4) {
        0 => {
            let code = pick(random, &["200", "200", "200", "404", "500"]);
            let method = pick(random, &["get", "post"]);
            write!(out, "shop.{service}.requests:1|c|#code:{code},method:{method}")
        }
        1 => write!(out, "shop.{service}.latency:{}|ms", 5 + number / 4),
        2 => write!(out, "shop.{service}.sessions:{number}|g"),
        _ => write!(out, "shop.{service}.bytes:{}|h|@0.5", number * 32),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keeps_the_rate_in_whole_datagrams() {
        keeps_the_rate(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()).await;
    }

    /// On hosts that have IPv6.
    #[tokio::test]
    async fn sends_to_addresses_of_both_families() {
        if let Ok(receiver) = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).await {
            keeps_the_rate(receiver).await;
        }
    }

    async fn keeps_the_rate(receiver: UdpSocket) {
        let target = receiver.local_addr().unwrap();
        let count = async {
            let (mut lines, mut buffer) = (0, [0; 2 * DATAGRAM]);
            while lines < 500 {
                let len = receiver.recv(&mut buffer).await.unwrap();
                assert!(len <= DATAGRAM, "{len}");
                let text = std::str::from_utf8(&buffer[..len]).unwrap();
                assert!(text.lines().all(|line| line.starts_with("shop.") && line.contains('|')));
                assert!(!text.ends_with('\n'));
                lines += text.lines().count();
            }
            lines
        };
        let start = Instant::now();
        let lines = tokio::select! {
            lines = count => lines,
            ended = run(target, 1_000.0) => panic!("{ended:?}"),
        };
        let expected = start.elapsed().as_secs_f64() * 1_000.0;
        assert!(lines as f64 <= expected + 1.0, "{lines} of {expected}");
    }
}
