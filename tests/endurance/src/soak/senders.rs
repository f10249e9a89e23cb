//! Senders of lines over UDP, TCP and a Unix socket, which count exactly what they send.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Lines per UDP datagram.
pub const LINES: u64 = 10;
/// Number of distinct datagrams.
pub const DATAGRAMS: u64 = 200;
/// One in this many datagrams has a malformed line.
pub const MALFORMED: u64 = 50;
/// Lines per second over TCP and over the Unix socket, each.
const STREAMED: f64 = 2_000.0;
/// TCP connections, and their lifetime.
const CONNECTIONS: usize = 4;
const LIFE: Duration = Duration::from_secs(30);
/// A sender delayed by more than this does not catch up.
const MAX_DELAY: Duration = Duration::from_millis(100);
/// Interval between two checks of the clock.
const TICK: Duration = Duration::from_millis(1);

/// Counters of sent lines.
#[derive(Default)]
pub struct Sent {
    /// UDP datagrams, by datagram.
    pub udp: Vec<AtomicU64>,
    /// Lines over TCP, excluding the two below.
    pub tcp: AtomicU64,
    /// Names over TCP that never repeat.
    pub visitors: AtomicU64,
    /// Lines over TCP whose name depends on the edited rule.
    pub edited: AtomicU64,
    /// Datagrams of two lines over the Unix socket.
    pub unix: AtomicU64,
    /// Set to end the senders.
    pub is_over: AtomicBool,
}

impl Sent {
    /// Creates zeroed counters.
    pub fn new() -> Self {
        Self { udp: (0..DATAGRAMS).map(|_| AtomicU64::new(0)).collect(), ..Self::default() }
    }

    /// Returns the number of UDP datagrams.
    pub fn datagrams(&self) -> u64 {
        self.udp.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of lines over TCP and the Unix socket.
    pub fn streamed(&self) -> u64 {
        let tcp =
            [&self.tcp, &self.visitors, &self.edited].map(|count| count.load(Ordering::Relaxed));
        tcp.iter().sum::<u64>() + 2 * self.unix.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Calls `one` at `rate` per second until `sent` is over. Calls that are late by more than [`MAX_DELAY`] are skipped.
fn at_rate(sent: &Sent, rate: f64, mut one: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let (mut start, mut done, mut number) = (Instant::now(), 0_u64, 0_u64);
    while !sent.is_over() {
        let due = (start.elapsed().as_secs_f64() * rate) as u64;
        if (due - done) as f64 > rate * MAX_DELAY.as_secs_f64() {
            (start, done) = (Instant::now(), 0);
            continue;
        }
        while done < due {
            one(number)?;
            (done, number) = (done + 1, number + 1);
        }
        sleep(TICK);
    }
    Ok(())
}

/// Returns the lines of a datagram. Each of its series is sent as often as the datagram.
fn datagram(number: u64) -> String {
    let mut lines = vec![format!("soak.datagrams:1|c|#d:{number}")];
    lines.extend((0..4).map(|k| format!("soak.counter:1|c|#d:{number},k:{k}")));
    lines.extend((0..2).map(|k| format!("soak.gauge:{}|g|#d:{number},k:{k}", number + k)));
    lines.push(format!("soak.summary:{number}|ms|#d:{number}"));
    lines.push(format!("soak.histogram:0.05|h|#d:{number}"));
    lines.push(match number.is_multiple_of(MALFORMED) {
        true => "soak.malformed".to_owned(),
        false => format!("soak.distribution:{number}|d|#d:{number}"),
    });
    lines.join("\n")
}

/// Sends datagrams to this port.
pub fn udp(sent: &Sent, port: u16, lines_per_second: f64) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, port))?;
    let datagrams = Vec::from_iter((0..DATAGRAMS).map(datagram));
    at_rate(sent, lines_per_second / LINES as f64, |number| {
        let which = (number % DATAGRAMS) as usize;
        let (text, count) = datagrams.get(which).zip(sent.udp.get(which)).context("a datagram")?;
        socket.send(text.as_bytes()).context("UDP")?;
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// Sends the first datagram once more: with it the kernel reports earlier drops.
pub fn one_more(sent: &Sent, port: u16) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.send_to(datagram(0).as_bytes(), (Ipv4Addr::LOCALHOST, port))?;
    if let Some(count) = sent.udp.first() {
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Writes lines to connections that are replaced after half a minute.
pub fn tcp(sent: &Sent, port: u16) -> Result<()> {
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("TCP");
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        streams.push((connect()?, Instant::now()));
    }
    at_rate(sent, STREAMED, |number| {
        let at = (number % CONNECTIONS as u64) as usize;
        let (stream, since) = streams.get_mut(at).context("a stream")?;
        if since.elapsed() > LIFE {
            (*stream, *since) = (connect()?, Instant::now());
        }
        let (line, count) = match number % 100 {
            0 => (format!("visitor.{number}:1|c\n"), &sent.visitors),
            1 => ("edited.x:1|c\n".to_owned(), &sent.edited),
            _ => (format!("soak.tcp:1|c|#connection:{at}\n"), &sent.tcp),
        };
        stream.write_all(line.as_bytes()).context("TCP")?;
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// Sends datagrams to the Unix socket, which blocks the sender instead of dropping any.
pub fn unix(sent: &Sent, path: &Path) -> Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path).with_context(|| path.display().to_string())?;
    at_rate(sent, STREAMED / 2.0, |_| {
        socket.send(b"soak.unixgram:1|c\nsoak.unixgram.gauge:1|g").context("unixgram")?;
        sent.unix.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}
