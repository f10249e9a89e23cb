//! The walk of `kstatd node` in a large changing tree, compared with walks that read every file each minute: `du`,
//! and the function with which cAdvisor measures container layers.
//!
//! All of them use the same page cache. Calls of full walks are counted by `strace` in a separate run, because it
//! slows them down; `kstatd` counts its own calls.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::changing::{Changes, Tree, Writer, du};
use super::process::{Server, free_port};
use super::programs::Programs;
use super::rows::Size;
use super::scrape;
use super::table::{bytes, count, percent, plain, seconds};

/// Interval between full walks.
const FULL_WALK_INTERVAL: Duration = Duration::from_secs(60);
/// Interval between comparisons of a figure with the true size.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The walk's default: within this many passes it finds files written in place.
const REREAD_PASSES: f64 = 16.0;
/// Calls that stat a file, and calls that read a directory.
const STAT: [&str; 5] = ["statx", "newfstatat", "fstat", "lstat", "stat"];
const READ: &str = "getdents64";

/// The settings of the walk, with their names.
const SETTINGS: [(&str, &[&str]); 2] = [
    ("kstatd, default budget", &[]),
    (
        "kstatd, a pass each 4 minutes, no budget for calls",
        &["--walk-interval=4m", "--walk-entries-per-second=1000000"],
    ),
];

/// The cost of a walk.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    stat: f64,
    read: f64,
    all: f64,
}

impl Calls {
    fn both(self) -> f64 {
        self.stat + self.read
    }
}

/// The measurements of a walk, per minute.
struct Measured {
    name: &'static str,
    calls: Calls,
    cpu: f64,
    directory_bytes: f64,
    memory: f64,
    /// Maximum age in seconds.
    age: f64,
    /// Median and maximum relative error.
    error: [f64; 2],
    /// Maximum possible error.
    bound: Option<f64>,
}

/// The true size: that of the initial tree plus the recorded changes.
struct Truth<'a> {
    first: f64,
    writer: &'a Writer,
}

impl Truth<'_> {
    fn now(&self) -> f64 {
        self.first + self.writer.changes().grown as f64
    }

    fn error(&self, figure: f64) -> f64 {
        (figure - self.now()).abs() / self.now()
    }
}

fn median_and_max(mut of: Vec<f64>) -> [f64; 2] {
    of.sort_by(f64::total_cmp);
    [of.get(of.len() / 2), of.last()].map(|of| of.copied().unwrap_or(f64::NAN))
}

/// A program that performs a full walk on request.
struct FullWalk<'a> {
    name: &'static str,
    program: &'a Path,
    arguments: &'a [&'a str],
}

impl FullWalk<'_> {
    fn command(&self, root: &Path) -> Command {
        let mut command = Command::new(self.program);
        command.args(self.arguments).arg(root);
        command
    }

    /// Walks once and returns the bytes and the CPU seconds.
    fn walk(&self, root: &Path) -> Result<(f64, f64)> {
        let mut command = self.command(root);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let reply = read_reply(&mut child)?;
        let cpu = wait(child)?;
        let text = reply.split(['\t', ' ']).next().unwrap_or_default();
        Ok((text.trim().parse().with_context(|| format!("{} says {reply:?}", self.name))?, cpu))
    }

    /// Returns its system calls.
    fn calls(&self, root: &Path, scratch: &Path) -> Result<Calls> {
        let counted = scratch.join("calls");
        let plain = self.command(root);
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-U", "calls,name", "-o"]).arg(&counted);
        command.arg(plain.get_program()).args(plain.get_args());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.context("strace, by which calls are counted")?;
        read_reply(&mut child)?;
        ensure!(child.wait()?.success(), "strace has failed");
        let text = std::fs::read_to_string(&counted)?;
        let mut calls = Calls::default();
        for line in text.lines() {
            let Some((number, name)) = line.trim().split_once(' ') else { continue };
            let (Ok(number), name) = (number.parse::<f64>(), name.trim()) else { continue };
            match name {
                "total" => calls.all = number,
                READ => calls.read += number,
                name if STAT.contains(&name) => calls.stat += number,
                _ => {}
            }
        }
        ensure!(calls.both() > 0.0, "strace says: {text}");
        Ok(calls)
    }

    fn measure(&self, tree: &Tree, truth: &Truth<'_>, programs: &Programs) -> Result<Measured> {
        eprintln!("  {}", self.name);
        let (mut cpu, mut errors, mut walked) = (0.0, Vec::new(), 0.0);
        let start = Instant::now();
        while walked < 3.0 {
            let (figure, cost) = self.walk(&tree.root)?;
            (cpu, walked) = (cpu + cost, walked + 1.0);
            // The figure is used until the next walk.
            while start.elapsed() < FULL_WALK_INTERVAL.mul_f64(walked) {
                errors.push(truth.error(figure));
                std::thread::sleep(SAMPLE_INTERVAL);
            }
        }
        Ok(Measured {
            name: self.name,
            calls: self.calls(&tree.root, &programs.scratch)?,
            cpu: cpu / walked,
            directory_bytes: f64::NAN,
            memory: f64::NAN,
            age: FULL_WALK_INTERVAL.as_secs_f64(),
            error: median_and_max(errors),
            bound: None,
        })
    }
}

/// Reads one line from the program.
fn read_reply(child: &mut Child) -> Result<String> {
    let mut line = String::new();
    // `du` does not read its input.
    let _ = child.stdin.take().context("its input")?.write_all(b"\n");
    BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
    Ok(line)
}

/// Waits for the process to end and returns its CPU seconds.
fn wait(child: Child) -> Result<f64> {
    // SAFETY: all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    // SAFETY: both results are written to local variables, and nothing else waits for this child.
    let waited =
        unsafe { libc::wait4(child.id().cast_signed(), &raw mut status, 0, &raw mut usage) };
    ensure!(waited > 0 && status == 0, "it has failed with {status}");
    let time = |of: libc::timeval| of.tv_sec as f64 + of.tv_usec as f64 / 1e6;
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

/// A `kstatd node` with the walk enabled.
struct NodeWalk {
    name: &'static str,
    server: Server,
    web: u16,
    telemetry: u16,
    /// The state at the end of the first pass, once it is complete.
    first: Option<Sample>,
    /// Bytes of all directories.
    directory_bytes: f64,
    last: Option<Sample>,
    errors: Vec<f64>,
    bounds: Vec<f64>,
    age: f64,
    /// The history of the true size: times, and the changes until then.
    history: Vec<(Instant, Changes)>,
}

/// The counters at the end of a pass.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    passes: f64,
    calls: Calls,
    cpu: f64,
    bytes: f64,
}

impl NodeWalk {
    fn start(name: &'static str, flags: &[&str], tree: &Tree, programs: &Programs) -> Result<Self> {
        let (web, telemetry) = (free_port()?, free_port()?);
        let mut arguments = vec![
            "node".to_owned(),
            "--kubelet=".to_owned(),
            format!("--walk-path=tree={}", tree.root.display()),
            // Without the pressure file the load of other processes does not matter.
            "--host-proc=/no/such".to_owned(),
            format!("--listen=127.0.0.1:{web}"),
            format!("--telemetry-listen=127.0.0.1:{telemetry}"),
        ];
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        let log = name.split(',').next_back().unwrap_or(name).trim().replace(' ', "-");
        let server = Server::start(&log, &programs.kstatd, &arguments, &programs.scratch)?;
        scrape::wait_for(telemetry, "/metrics", Duration::from_secs(60))?;
        Ok(Self {
            name,
            server,
            web,
            telemetry,
            first: None,
            directory_bytes: 0.0,
            last: None,
            errors: Vec::new(),
            bounds: Vec::new(),
            age: 0.0,
            history: Vec::new(),
        })
    }

    fn sample(&self) -> Result<Sample> {
        let text = String::from_utf8(scrape::body(self.telemetry, "/metrics")?)?;
        let of = |start: &str| -> f64 {
            let values = text.lines().filter(|line| line.starts_with(start));
            values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
        };
        let call = |name| of(&format!("kstatd_node_walk_system_calls_total{{call=\"{name}\"}}"));
        Ok(Sample {
            at: Instant::now(),
            passes: of("kstatd_node_walk_passes_total"),
            calls: Calls {
                stat: call("fstatat"),
                read: call("getdents64"),
                all: of("kstatd_node_walk_system_calls_total"),
            },
            cpu: self.server.cpu()?,
            bytes: of("kstatd_node_walk_directory_bytes_total"),
        })
    }

    /// Returns the exposed bytes and their age.
    fn figure(&self) -> Result<(f64, f64)> {
        let text = String::from_utf8(scrape::body(self.web, "/metrics")?)?;
        let of = |family: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("{family}{{")))?;
            line.rsplit_once(' ')?.1.parse::<f64>().ok()
        };
        let bytes = of("kstatd_node_storage_used_bytes").context("there is no figure")?;
        Ok((bytes, of("kstatd_node_storage_age_seconds").context("there is no age")?))
    }

    /// Samples the process once; true if it has completed this many passes after its first one.
    fn look(&mut self, truth: &Truth<'_>, passes: f64) -> Result<bool> {
        let sample = self.sample()?;
        let changes = truth.writer.changes();
        self.history.push((sample.at, changes));
        if sample.passes < 1.0 {
            return Ok(false);
        }
        let Some(first) = self.first else {
            eprintln!("  {}: the first pass is over", self.name);
            (self.first, self.directory_bytes) = (Some(sample), sample.bytes);
            return Ok(false);
        };
        // From the end of one pass to the end of another.
        let before = self.last.map_or(first.passes, |last| last.passes);
        if sample.passes > before {
            eprintln!("  {}: pass {}", self.name, sample.passes);
            self.last = Some(sample);
        }
        let (figure, age) = self.figure()?;
        self.age = self.age.max(age);
        self.errors.push(truth.error(figure));
        let since = |seconds: f64| {
            let from = sample.at.checked_sub(Duration::from_secs_f64(seconds));
            let before = self.history.iter().find(|(at, _)| from.is_some_and(|from| *at >= from));
            before.map_or(Changes::default(), |(_, before)| *before)
        };
        let named = changes.named - since(age).named;
        self.bounds.push(named as f64 / truth.now());
        Ok(self.last.is_some_and(|last| last.passes >= first.passes + passes))
    }

    fn measured(self, truth: &Truth<'_>) -> Result<Measured> {
        let (Some(first), Some(last)) = (self.first, self.last) else { bail!("no pass has ended") };
        let minutes = last.at.duration_since(first.at).as_secs_f64() / 60.0;
        let each = |of: fn(&Sample) -> f64| (of(&last) - of(&first)) / minutes;
        let pass = minutes * 60.0 / (last.passes - first.passes);
        let (Some((from, before)), Some((to, after))) = (self.history.first(), self.history.last())
        else {
            bail!("it was never looked at")
        };
        let in_place = (after.in_place - before.in_place) as f64
            / to.duration_since(*from).as_secs_f64()
            * pass
            * REREAD_PASSES
            / truth.now();
        let [_, named] = median_and_max(self.bounds);
        Ok(Measured {
            name: self.name,
            calls: Calls {
                stat: each(|of| of.calls.stat),
                read: each(|of| of.calls.read),
                all: each(|of| of.calls.all),
            },
            cpu: each(|of| of.cpu),
            directory_bytes: each(|of| of.bytes),
            memory: self.server.memory()?.resident,
            age: self.age,
            error: median_and_max(self.errors),
            bound: Some(named + in_place),
        })
    }
}

/// Compares the walks of one tree, run concurrently.
pub fn walks(programs: &Programs, size: Size) -> Result<String> {
    let files = size.files;
    eprintln!("  {} files", count(files as f64));
    let tree = Arc::new(Tree::make(programs.scratch.join("tree"), files)?);
    let first = du(&tree.root)?;
    let per_second = files as f64 / 10_000.0;
    let writer = Writer::start(&tree, per_second);
    let truth = Truth { first, writer: &writer };
    let full = [
        FullWalk {
            name: "`du`, each minute",
            program: Path::new("du"),
            arguments: &["-s", "-x", "--block-size=1"],
        },
        FullWalk {
            name: "cAdvisor's `fs.GetDirUsage`, each minute",
            program: &programs.cadvisor,
            arguments: &[],
        },
    ];
    let mut rows = Vec::new();
    for full in &full {
        rows.push(full.measure(&tree, &truth, programs)?);
    }
    let (mut walking, mut done) = (Vec::new(), Vec::new());
    for (name, flags) in SETTINGS {
        walking.push(NodeWalk::start(name, flags, &tree, programs)?);
    }
    while !walking.is_empty() {
        std::thread::sleep(SAMPLE_INTERVAL);
        let mut rest = Vec::new();
        for mut one in walking {
            match one.look(&truth, f64::from(size.passes))? {
                true => done.push(one),
                false => rest.push(one),
            }
        }
        walking = rest;
    }
    let directory_bytes = done.first().map_or(f64::NAN, |of| of.directory_bytes);
    for row in &mut rows {
        row.directory_bytes = directory_bytes;
    }
    for one in done {
        rows.push(one.measured(&truth)?);
    }
    let changes = writer.stop()?;
    let (noted, measured) = (first + changes.grown as f64, du(&tree.root)?);
    ensure!(noted == measured, "the writer has noted {noted} bytes, du says {measured}");
    Ok(format!(
        "{} files in {} directories, {}; {} of {} changes, {per_second} a second.\n\n{}",
        count(files as f64),
        count(tree.directories as f64),
        bytes(measured),
        bytes((changes.named + changes.in_place) as f64),
        count(changes.count as f64),
        table(&rows)
    ))
}

fn table(rows: &[Measured]) -> String {
    let full = rows.first().map_or(f64::NAN, |row| row.calls.both());
    let of = |row: &Measured| {
        vec![
            row.name.to_owned(),
            format!(
                "{} + {}, 1/{:.1}",
                count(row.calls.stat),
                count(row.calls.read),
                full / row.calls.both()
            ),
            count(row.calls.all),
            seconds(row.cpu),
            bytes(row.directory_bytes),
            if row.memory.is_nan() { String::new() } else { bytes(row.memory) },
            seconds(row.age),
            row.error.map(percent).join(" / "),
            row.bound.map_or(String::new(), percent),
        ]
    };
    let head = [
        "Walk",
        "stat + getdents a minute",
        "All calls a minute",
        "CPU a minute",
        "Directories read a minute",
        "Memory",
        "Maximum age",
        "Error, median / maximum",
        "Bound",
    ];
    plain(&head, &rows.iter().map(of).collect::<Vec<_>>())
}
