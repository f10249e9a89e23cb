//! A measured server: a child process and its figures in `/proc`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// `USER_HZ`: the unit of times in `/proc`, which is 100 on all common architectures.
const TICKS_PER_SECOND: f64 = 100.0;
/// The interval of nearly no CPU use after which a process counts as settled.
const QUIET: Duration = Duration::from_millis(500);
/// CPU that a settled process may use in that time (timers, garbage collection).
const QUIET_CPU: f64 = 0.02;

/// A running server; dropping it ends it.
pub struct Server {
    child: Child,
    name: String,
    started: Instant,
    log: PathBuf,
}

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Currently resident.
    pub resident: f64,
    /// Peak of the resident memory since the start or [`Server::reset_peak`].
    pub peak: f64,
}

impl Server {
    /// Starts a program with these arguments; its output goes to a file in `directory`.
    pub fn start(
        name: &str,
        program: &Path,
        arguments: &[String],
        directory: &Path,
    ) -> Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let output = fs::File::create(&log).with_context(|| log.display().to_string())?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, name: name.to_owned(), started: Instant::now(), log })
    }

    fn proc(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        fs::read_to_string(&path).with_context(|| {
            format!("{} has ended, its output is in {}", self.name, self.log.display())
        })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its start time.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Returns the CPU seconds of all its threads so far, user and system.
    pub fn cpu(&self) -> Result<f64> {
        let stat = self.proc("stat")?;
        // The second field is the program's name in parentheses and may contain any character.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default().split(' ').collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
        match (ticks(12), ticks(13)) {
            (Some(user), Some(system)) => Ok((user + system) / TICKS_PER_SECOND),
            _ => bail!("{}: unexpected /proc/PID/stat: {stat}", self.name),
        }
    }

    /// Returns the exact CPU time of its current threads in nanoseconds. Unlike [`Self::cpu`], it excludes threads
    /// that have ended.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn nanoseconds(&self) -> Result<f64> {
        let tasks = format!("/proc/{}/task", self.child.id());
        let mut sum = 0.0;
        for task in fs::read_dir(&tasks).with_context(|| tasks)? {
            // A thread may end between being listed and being read.
            let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else {
                continue;
            };
            let first = text.split(' ').next().and_then(|first| first.parse::<f64>().ok());
            sum += first.unwrap_or_default();
        }
        Ok(sum)
    }

    /// Returns its memory.
    pub fn memory(&self) -> Result<Memory> {
        let status = self.proc("status")?;
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse().ok())
                .map(|kib: f64| kib * 1024.0)
                .with_context(|| format!("no {name} in /proc/PID/status"))
        };
        Ok(Memory { resident: field("VmRSS:")?, peak: field("VmHWM:")? })
    }

    /// Returns the number of its open descriptors.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn descriptors(&self) -> Result<usize> {
        let path = format!("/proc/{}/fd", self.child.id());
        Ok(fs::read_dir(&path).with_context(|| path)?.count())
    }

    /// Returns the number of its threads.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn threads(&self) -> Result<usize> {
        let path = format!("/proc/{}/task", self.child.id());
        Ok(fs::read_dir(&path).with_context(|| path)?.count())
    }

    /// Returns its output.
    ///
    /// # Errors
    ///
    /// The output file is gone.
    pub fn output(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| self.log.display().to_string())
    }

    /// Sends a signal by name (`HUP`).
    ///
    /// # Errors
    ///
    /// The process has ended, or there is no `kill`.
    pub fn signal(&self, name: &str) -> Result<()> {
        let arguments = [format!("-{name}"), self.child.id().to_string()];
        if !Command::new("kill").args(arguments).status()?.success() {
            bail!("{} cannot be sent {name}", self.name);
        }
        Ok(())
    }

    /// Resets the peak to the current resident memory.
    pub fn reset_peak(&self) -> Result<()> {
        let path = format!("/proc/{}/clear_refs", self.child.id());
        fs::write(&path, "5").with_context(|| path)
    }

    /// Returns the voluntary context switches of its threads, which equal their wake-ups.
    pub fn wake_ups(&self) -> Result<f64> {
        let tasks = format!("/proc/{}/task", self.child.id());
        let mut sum = 0.0;
        for task in fs::read_dir(&tasks).with_context(|| tasks)? {
            // A thread may end between being listed and being read.
            let Ok(status) = fs::read_to_string(task?.path().join("status")) else {
                continue;
            };
            let count = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
                .and_then(|count| count.trim().parse::<f64>().ok());
            sum += count.unwrap_or(0.0);
        }
        Ok(sum)
    }

    /// HealthTimes until it has used nearly no CPU for half a second, and returns when that interval began.
    pub fn settle(&self, limit: Duration) -> Result<Instant> {
        let deadline = Instant::now() + limit;
        let mut since = Instant::now();
        let mut before = self.cpu()?;
        while since.elapsed() < QUIET {
            if Instant::now() > deadline {
                bail!("{} is still busy after {} s", self.name, limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
            let now = self.cpu()?;
            if now - before > QUIET_CPU {
                before = now;
                since = Instant::now();
            }
        }
        Ok(since)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a loopback port that is currently free for TCP and UDP.
pub fn free_port() -> io::Result<u16> {
    loop {
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        if std::net::UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
}
