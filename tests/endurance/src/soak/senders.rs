//! Senders of lines over UDP, TCP and a Unix socket, which know exactly what they have sent.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Lines of every datagram over UDP.
pub const LINES: u64 = 10;
/// Different datagrams.
pub const DATAGRAMS: u64 = 200;
/// Of so many datagrams one has a line that is none.
pub const MALFORMED: u64 = 50;
/// Lines over TCP and the Unix socket, each, per second.
const STREAMED: f64 = 2_000.0;
/// TCP connections, and how long each lives.
const CONNECTIONS: usize = 4;
const LIFE: Duration = Duration::from_secs(30);
/// A sender that was kept from sending for so long does not make up for it.
const LATE: Duration = Duration::from_millis(100);
/// Time between two looks at the clock.
const BEAT: Duration = Duration::from_millis(1);

/// What was sent.
#[derive(Default)]
pub struct Sent {
    /// Datagrams over UDP, each of them.
    pub udp: Vec<AtomicU64>,
    /// Lines over TCP, without those below.
    pub tcp: AtomicU64,
    /// Names over TCP that never come again.
    pub visitors: AtomicU64,
    /// Lines over TCP whose name a rule decides that is edited meanwhile.
    pub edited: AtomicU64,
    /// Datagrams of two lines over the Unix socket.
    pub unix: AtomicU64,
    /// Ends the senders.
    pub is_over: AtomicBool,
}

impl Sent {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { udp: (0..DATAGRAMS).map(|_| AtomicU64::new(0)).collect(), ..Self::default() }
    }

    /// Datagrams over UDP.
    pub fn datagrams(&self) -> u64 {
        self.udp.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Lines over TCP and the Unix socket.
    pub fn streamed(&self) -> u64 {
        let tcp =
            [&self.tcp, &self.visitors, &self.edited].map(|count| count.load(Ordering::Relaxed));
        tcp.iter().sum::<u64>() + 2 * self.unix.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Calls `one` so many times per second until `sent` is over. What a busy machine keeps from being sent for longer
/// than [`LATE`] is not sent.
fn at_pace(sent: &Sent, rate: f64, mut one: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let (mut start, mut done, mut number) = (Instant::now(), 0_u64, 0_u64);
    while !sent.is_over() {
        let due = (start.elapsed().as_secs_f64() * rate) as u64;
        if (due - done) as f64 > rate * LATE.as_secs_f64() {
            (start, done) = (Instant::now(), 0);
            continue;
        }
        while done < due {
            one(number)?;
            (done, number) = (done + 1, number + 1);
        }
        sleep(BEAT);
    }
    Ok(())
}

/// The lines of a datagram. All series of it have been sent as often as it has.
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
    at_pace(sent, lines_per_second / LINES as f64, |number| {
        let which = (number % DATAGRAMS) as usize;
        let (text, count) = datagrams.get(which).zip(sent.udp.get(which)).context("a datagram")?;
        socket.send(text.as_bytes()).context("UDP")?;
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// One more of the first datagram, behind which the kernel tells what it has dropped.
pub fn one_more(sent: &Sent, port: u16) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.send_to(datagram(0).as_bytes(), (Ipv4Addr::LOCALHOST, port))?;
    if let Some(count) = sent.udp.first() {
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Writes lines to connections, each of which is replaced when it has lived for half a minute.
pub fn tcp(sent: &Sent, port: u16) -> Result<()> {
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("TCP");
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        streams.push((connect()?, Instant::now()));
    }
    at_pace(sent, STREAMED, |number| {
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

/// Sends datagrams to the Unix socket, which makes the sender wait instead of dropping any.
pub fn unix(sent: &Sent, path: &Path) -> Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path).with_context(|| path.display().to_string())?;
    at_pace(sent, STREAMED / 2.0, |_| {
        socket.send(b"soak.unixgram:1|c\nsoak.unixgram.gauge:1|g").context("unixgram")?;
        sent.unix.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}
