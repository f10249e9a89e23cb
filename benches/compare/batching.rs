//! What a line costs by the number of lines in its datagram, over UDP and over a Unix socket: docs/senders.md.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use super::programs::Programs;
use super::rows::Size;
use super::statsd::{self, Load, Subject, Target};
use super::table::{percent, plain, seconds};

/// Lines per second, however many a datagram has.
const RATE: f64 = 200_000.0;

/// CPU of a line over both transports.
pub fn batching(programs: &Programs, size: Size) -> Result<String> {
    let socket = programs.scratch.join("batching.sock");
    let mut rows = Vec::new();
    let mut single = None;
    for lines in [1, 2, 5, 10, 20, 50] {
        let load = Load { datagrams: RATE / lines as f64, lines, window: size.window };
        let udp = statsd::run_load(&Target::start(Subject::Ours, programs)?, load)?;
        let unix = over_unix_socket(programs, &socket, load)?;
        let single = *single.get_or_insert(udp.cpu_per_line);
        rows.push(vec![
            lines.to_string(),
            seconds(udp.cpu_per_line),
            percent(udp.cpu_per_line / single),
            seconds(unix),
            percent(unix / single),
            percent(udp.lost),
        ]);
    }
    let head = [
        "Lines per datagram",
        "UDP, CPU of a line",
        "share",
        "Unix socket",
        "share",
        "lost over UDP",
    ];
    Ok(plain(&head, &rows))
}

/// CPU of a line over a Unix socket, whose senders wait while its queue is full.
fn over_unix_socket(programs: &Programs, path: &Path, load: Load) -> Result<f64> {
    // A server leaves the file behind when it is killed.
    let _ = std::fs::remove_file(path);
    let flag = format!("--statsd.listen-unixgram={}", path.display());
    let target = Target::start_with(Subject::Ours, programs, &[flag])?;
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    let datagrams = statsd::datagrams(load.lines);
    // Once before: each series is made.
    for datagram in &datagrams {
        socket.send(datagram)?;
    }
    target.server.settle(statsd::DRAIN)?;
    let (lines, cpu) = (target.lines()?, target.server.cpu()?);
    let (start, mut sent) = (Instant::now(), 0_u64);
    let mut next = datagrams.iter().cycle();
    while start.elapsed() < load.window {
        let due = (start.elapsed().as_secs_f64() * load.datagrams) as u64;
        if due <= sent {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        for datagram in next.by_ref().take(due.saturating_sub(sent) as usize) {
            socket.send(datagram)?;
        }
        sent = sent.max(due);
    }
    target.server.settle(statsd::DRAIN)?;
    let cpu = target.server.cpu()? - cpu;
    Ok(cpu / (target.lines()? - lines) as f64)
}
