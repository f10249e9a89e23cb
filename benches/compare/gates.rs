//! The limits of memory that Datadog publishes for its agent's data plane (saluki) with DogStatsD lines over a Unix
//! socket, and the peaks of both exporters under such loads.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::explosion::Random;
use super::programs::Programs;
use super::rows::Size;
use super::statsd::{DRAIN, Subject, Target};
use super::table::{count, percent, plain, seconds};

const MIB: f64 = (1 << 20) as f64;
/// Size of a message.
const MESSAGE: usize = 2_000;
/// Size of a line.
const LINE: usize = 190;
/// Contexts with one metric name.
const PER_NAME: usize = 10;
/// The types of twenty names: nine counters, six gauges, three distributions, a timer and a histogram.
const TYPES: &[u8; 20] = b"cgcgcdcgcdcgcmcgcdgh";

/// A published limit.
struct Gate {
    rate: f64,
    contexts: usize,
    limit: f64,
}

const GATES: [Gate; 5] = [
    Gate { rate: 1.0, contexts: 3_000, limit: 50.0 },
    Gate { rate: 10.0, contexts: 10_000, limit: 75.0 },
    Gate { rate: 50.0, contexts: 50_000, limit: 140.0 },
    Gate { rate: 100.0, contexts: 100_000, limit: 200.0 },
    Gate { rate: 100.0, contexts: 250_000, limit: 200.0 },
];

/// Measures the peak of memory at each gate.
pub fn gates(programs: &Programs, size: Size) -> Result<String> {
    let mut rows = Vec::new();
    for gate in &GATES {
        let ours = measure(Subject::Ours, programs, gate, size.window * 2)?;
        let peer = measure(Subject::Peer, programs, gate, size.window * 2)?;
        let share = ours.peak / gate.limit;
        rows.push(vec![
            format!("{:.1} MiB/s", ours.rate),
            count(gate.contexts as f64),
            format!("{:.0} MiB", gate.limit),
            format!("{:.1} MiB", ours.peak),
            format!("{share:.2}"),
            if share <= 0.5 { "met".to_owned() } else { "**not met**".to_owned() },
            format!("{}, {} lost", seconds(ours.cpu_per_line), percent(ours.lost)),
            format!("{:.1} MiB at {:.1} MiB/s", peer.peak, peer.rate),
        ]);
    }
    let head = [
        "Sent",
        "Contexts",
        "Limit",
        "Peak of kstatd",
        "Share of the limit",
        "Goal (half)",
        "CPU of a line",
        "Peak of statsd_exporter",
    ];
    Ok(plain(&head, &rows))
}

struct Measured {
    /// MiB.
    peak: f64,
    /// MiB per second.
    rate: f64,
    cpu_per_line: f64,
    lost: f64,
}

/// Sends each context once and then random ones.
fn measure(who: Subject, programs: &Programs, gate: &Gate, window: Duration) -> Result<Measured> {
    let path = programs.scratch.join("gates.sock");
    // A server leaves the file behind when it is killed.
    let _ = std::fs::remove_file(&path);
    let flag = format!("--statsd.listen-unixgram={}", path.display());
    let target = Target::start_with(who, programs, &[flag])?;
    let socket = UnixDatagram::unbound()?;
    socket.connect(&path)?;
    let lines: Vec<String> = (0..gate.contexts).map(line).collect();
    let (mut random, mut next) = (Random(1), 0_usize);
    let (mut message, mut sent, mut sent_lines) = (Vec::with_capacity(MESSAGE), 0_f64, 0_u64);
    let start = Instant::now();
    while start.elapsed() < window {
        let due = start.elapsed().as_secs_f64() * gate.rate * MIB;
        if due <= sent {
            std::thread::sleep(Duration::from_micros(200));
        }
        while sent < due && start.elapsed() < window {
            message.clear();
            while message.len() + LINE < MESSAGE {
                let at =
                    if next < lines.len() { next } else { random.next() as usize % lines.len() };
                // A line break at the end would count as another, empty line.
                if !message.is_empty() {
                    message.push(b'\n');
                }
                message.extend_from_slice(lines[at].as_bytes());
                next += 1;
                sent_lines += 1;
            }
            socket.send(&message)?;
            sent += message.len() as f64;
        }
    }
    let rate = sent / MIB / start.elapsed().as_secs_f64();
    target.server.settle(DRAIN)?;
    let (peak, cpu) = (target.server.memory()?.peak / MIB, target.server.cpu()?);
    ensure!(next >= lines.len(), "only {next} of {} contexts were sent", lines.len());
    let lost = 1.0 - target.lines()? as f64 / sent_lines as f64;
    Ok(Measured { peak, rate, cpu_per_line: cpu / sent_lines as f64, lost })
}

/// The line of a context: its name is shared by ten contexts, which differ in the values of their tags.
fn line(context: usize) -> String {
    let name = context / PER_NAME;
    let kind = match TYPES[name % TYPES.len()] {
        b'm' => "ms",
        b'g' => "g",
        b'd' => "d",
        b'h' => "h",
        _ => "c",
    };
    let mut line = format!("service.component{name}.operation:{}|{kind}|#", 1 + context % 100);
    let tags = 2 + name % 9;
    // The last tag makes lines equally long.
    for tag in 1..tags {
        line.push_str(&format!("tag{tag}:v{:x},", context * 31 + tag));
    }
    line.push_str("last:");
    let id = format!("{context:x}");
    while line.len() + id.len() < LINE {
        line.push('x');
    }
    line.push_str(&id);
    line
}
