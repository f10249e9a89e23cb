//! Random mappings and lines for statsd_exporter.

mod compare;
pub mod deviations;
mod lines;
mod mapping;
mod protobuf;

use std::fmt;
use std::io::Write as _;
use std::net::{Ipv4Addr, Shutdown, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kstatd_endurance::process::{Server, free_port};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::program::{Binaries, Side, start};
use crate::shrink::{Shrink, lists};
use crate::{Case, Comparison};

use lines::Lines;
use mapping::{BROKEN, Mapping, Style};

/// The time to live of series in cases with expiry. Much longer than a step takes.
pub const TTL: Duration = Duration::from_secs(3);
/// Additional time in which both programs remove expired series.
const EXPIRY: Duration = Duration::from_millis(1_500);
/// Time in which both programs process what they got.
const PATIENCE: Duration = Duration::from_secs(10);
/// A difference that lasts this long, after all lines were counted, is one.
const LASTING: Duration = Duration::from_millis(1_500);
/// Pause between two looks.
const POLL: Duration = Duration::from_millis(10);

/// A mapping, and what happens to a process that has it.
#[derive(Clone, Debug)]
pub struct Scenario {
    flags: Vec<String>,
    mapping: Option<Mapping>,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
enum Transport {
    Udp,
    Unixgram,
    Tcp,
}

#[derive(Clone, Copy, Debug)]
enum Trigger {
    Hangup,
    Http,
}

#[derive(Clone, Debug)]
enum Step {
    Send(Transport, Vec<Vec<u8>>),
    Reload(Trigger, Mapping),
    BrokenReload(Trigger, &'static str),
    /// Nothing for as long as series live.
    Expire,
}

impl Case for Scenario {
    fn random(rng: &mut StdRng) -> Self {
        let style = Style {
            unordered: rng.random_bool(0.25),
            regexes: rng.random_bool(0.5),
            histograms: rng.random_bool(0.3),
            native: rng.random_bool(0.3),
            ttl: rng.random_bool(0.12),
        };
        let mut flags = Vec::new();
        for format in ["dogstatsd", "influxdb", "librato", "signalfx"] {
            if rng.random_bool(0.07) {
                flags.push(format!("--no-statsd.parse-{format}-tags"));
            }
        }
        let mapping = (style.ttl || rng.random_bool(0.9)).then(|| Mapping::random(rng, style));
        // A name whose series have all expired keeps its type in the original.
        let kinds: &[&str] = match style.ttl {
            true => [&["c"][..], &["g"], &["ms"]].choose(rng).copied().unwrap_or_default(),
            false => &["c", "c", "c", "g", "g", "ms", "h", "d"],
        };
        let (mut steps, mut current) = (Vec::new(), mapping.clone());
        for _ in 0..rng.random_range(1..10) {
            let trigger = if rng.random() { Trigger::Hangup } else { Trigger::Http };
            steps.push(match (rng.random_range(0..10), &current) {
                (0 | 1, Some(mapping)) => {
                    let edited = mapping.edited(rng, style);
                    current = Some(edited.clone());
                    Step::Reload(trigger, edited)
                }
                (2, Some(_)) => {
                    Step::BrokenReload(trigger, BROKEN.choose(rng).copied().unwrap_or_default())
                }
                (3, _) if style.ttl => Step::Expire,
                _ => {
                    let transport =
                        [Transport::Udp, Transport::Unixgram, Transport::Tcp].choose(rng);
                    let count = rng.random_range(1..40);
                    let mut lines = Lines { rng, kinds };
                    let lines = (0..count).map(|_| lines.line()).collect();
                    Step::Send(transport.copied().unwrap_or(Transport::Udp), lines)
                }
            });
        }
        if style.ttl {
            steps.push(Step::Expire);
        }
        Self { flags, mapping, steps }
    }

    fn run(&self, binaries: &Binaries) -> Result<Comparison> {
        let directory = tempfile::tempdir()?;
        let [original, kstatd] =
            Side::BOTH.map(|side| Exporter::start(binaries, side, self, directory.path()));
        let sides = match (original?, kstatd?) {
            (Some(original), Some(kstatd)) => [original, kstatd],
            (None, None) => return Ok(Comparison { difference: None, lines: 1 }),
            (original, _) => {
                let ended = if original.is_none() { Side::Original } else { Side::Kstatd };
                let difference = Some(format!("  {} does not start", ended.name()));
                return Ok(Comparison { difference, lines: 1 });
            }
        };
        let mut mapping = self.mapping.as_ref();
        let (mut sent, mut reloads, mut lines) = (0, 0, 0);
        for (at, step) in self.steps.iter().enumerate() {
            match step {
                Step::Send(transport, all) => {
                    let both = all.iter().filter_map(|line| {
                        Some((deviations::for_original(line, mapping, &self.flags)?, line))
                    });
                    let (theirs, ours): (Vec<_>, Vec<_>) =
                        both.map(|(one, other)| (one, other.clone())).unzip();
                    sent += ours.len();
                    for (side, lines) in sides.iter().zip([theirs, ours]) {
                        side.send(*transport, &lines)?;
                    }
                }
                Step::Reload(trigger, edited) => {
                    reloads += 1;
                    mapping = Some(edited);
                    for side in &sides {
                        side.reload(*trigger, &edited.yaml())?;
                    }
                }
                Step::BrokenReload(trigger, text) => {
                    reloads += 1;
                    for side in &sides {
                        side.reload(*trigger, text)?;
                    }
                }
                Step::Expire => std::thread::sleep(TTL + EXPIRY),
            }
            for side in &sides {
                if let Some(difference) = side.wait(sent, reloads)? {
                    let difference = Some(format!(" after step {}:\n  {difference}", at + 1));
                    return Ok(Comparison { difference, lines });
                }
            }
            let (difference, compared) = compare::lasting_difference(&sides, LASTING)?;
            lines += compared;
            if let Some(difference) = difference {
                let difference = Some(format!(" after step {}:\n{difference}", at + 1));
                return Ok(Comparison { difference, lines });
            }
        }
        Ok(Comparison { difference: None, lines })
    }
}

impl Shrink for Scenario {
    fn smaller(&self) -> Vec<Self> {
        let with_steps = |steps| Self { steps, ..self.clone() };
        let mut out: Vec<Self> = lists(&self.steps).into_iter().map(with_steps).collect();
        out.extend(lists(&self.flags).into_iter().map(|flags| Self { flags, ..self.clone() }));
        for (at, step) in self.steps.iter().enumerate() {
            let steps: Vec<Step> = match step {
                Step::Send(transport, lines) => lists(lines)
                    .into_iter()
                    .filter(|lines| !lines.is_empty())
                    .map(|lines| Step::Send(*transport, lines))
                    .collect(),
                Step::Reload(trigger, mapping) => mapping
                    .smaller()
                    .into_iter()
                    .map(|mapping| Step::Reload(*trigger, mapping))
                    .collect(),
                Step::BrokenReload(..) | Step::Expire => Vec::new(),
            };
            for step in steps {
                let mut all = self.steps.clone();
                if let Some(place) = all.get_mut(at) {
                    *place = step;
                    out.push(with_steps(all));
                }
            }
        }
        if let Some(mapping) = &self.mapping {
            let smaller = mapping.smaller().into_iter().map(Some);
            out.extend(smaller.map(|mapping| Self { mapping, ..self.clone() }));
        }
        out
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "flags: {:?}", self.flags)?;
        if let Some(mapping) = &self.mapping {
            writeln!(f, "mapping:\n{}", mapping.yaml())?;
        }
        for (at, step) in self.steps.iter().enumerate() {
            write!(f, "step {}: ", at + 1)?;
            match step {
                Step::Send(transport, lines) => {
                    writeln!(f, "send over {transport:?}")?;
                    for line in lines {
                        writeln!(f, "  {}", line.escape_ascii())?;
                    }
                }
                Step::Reload(trigger, mapping) => {
                    writeln!(f, "reload by {trigger:?}:\n{}", mapping.yaml())?;
                }
                Step::BrokenReload(trigger, text) => writeln!(f, "reload by {trigger:?}:\n{text}")?,
                Step::Expire => writeln!(f, "nothing for {:?}", TTL + EXPIRY)?,
            }
        }
        Ok(())
    }
}

/// A running statsd_exporter, kstatd's or the original.
struct Exporter {
    server: Server,
    port: u16,
    statsd: u16,
    socket: PathBuf,
    mapping: PathBuf,
}

impl Exporter {
    fn start(
        binaries: &Binaries,
        side: Side,
        case: &Scenario,
        directory: &Path,
    ) -> Result<Option<Self>> {
        let directory = directory.join(side.name());
        std::fs::create_dir(&directory)?;
        let (port, statsd) = (free_port()?, free_port()?);
        let (socket, mapping) = (directory.join("socket"), directory.join("mapping.yaml"));
        let mut arguments = vec![
            format!("--web.listen-address=127.0.0.1:{port}"),
            format!("--statsd.listen-udp=127.0.0.1:{statsd}"),
            format!("--statsd.listen-tcp=127.0.0.1:{statsd}"),
            format!("--statsd.listen-unixgram={}", socket.display()),
            "--statsd.event-flush-interval=5ms".to_owned(),
            "--web.enable-lifecycle".to_owned(),
        ];
        if let Some(text) = &case.mapping {
            std::fs::write(&mapping, text.yaml())?;
            arguments.push(format!("--statsd.mapping-config={}", mapping.display()));
        }
        arguments.extend(case.flags.iter().cloned());
        let ready = (port, "/-/ready");
        let server = start(binaries, (side, "statsd_exporter"), &arguments, ready, &directory)?;
        Ok(server.map(|server| Self { server, port, statsd, socket, mapping }))
    }

    fn send(&self, transport: Transport, lines: &[Vec<u8>]) -> Result<()> {
        let address = (Ipv4Addr::LOCALHOST, self.statsd);
        match transport {
            Transport::Udp => {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
                for packet in lines.chunks(3) {
                    socket.send_to(&packet.join(&b'\n'), address)?;
                }
            }
            Transport::Unixgram => {
                let socket = UnixDatagram::unbound()?;
                for packet in lines.chunks(3) {
                    socket.send_to(&packet.join(&b'\n'), &self.socket)?;
                }
            }
            // Nothing is no line.
            Transport::Tcp if lines.is_empty() => {}
            Transport::Tcp => {
                let mut stream = TcpStream::connect(address)?;
                let mut text = lines.join(&b'\n');
                text.push(b'\n');
                stream.write_all(&text)?;
                stream.shutdown(Shutdown::Write)?;
            }
        }
        Ok(())
    }

    fn reload(&self, trigger: Trigger, text: &str) -> Result<()> {
        std::fs::write(&self.mapping, text)?;
        match trigger {
            Trigger::Hangup => self.server.signal("HUP"),
            Trigger::Http => {
                let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
                let request = "POST /-/reload HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
                stream.write_all(request.as_bytes())?;
                let mut answer = Vec::new();
                std::io::Read::read_to_end(&mut stream, &mut answer).context("the reload")?;
                Ok(())
            }
        }
    }

    /// Waits until so many lines and reloads are counted. Returns the counts if they are others.
    fn wait(&self, lines: usize, reloads: usize) -> Result<Option<String>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = compare::text(self.port)?;
            let count = |name: &str| -> usize {
                let values = text.lines().filter(|line| line.starts_with(name));
                let values = values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
                values.sum::<f64>() as usize
            };
            let now = (
                count("statsd_exporter_lines_total"),
                count("statsd_exporter_config_reloads_total"),
            );
            if now == (lines, reloads) {
                return Ok(None);
            }
            if Instant::now() > deadline || now.0 > lines || now.1 > reloads {
                return Ok(Some(format!(
                    "{} counts {now:?} lines and reloads, not {lines} and {reloads}",
                    self.server.name()
                )));
            }
            std::thread::sleep(POLL);
        }
    }
}
