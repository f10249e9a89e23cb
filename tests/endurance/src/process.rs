//! A server under measurement: a child process, and what `/proc` says about it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// `USER_HZ`: the unit of times in `/proc`, 100 on every architecture that servers have.
const TICKS_PER_SECOND: f64 = 100.0;
/// How long a process has to use next to no CPU before it counts as settled.
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
    /// Resident now.
    pub resident: f64,
    /// Most that was resident since the start or [`Server::forget_peak`].
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

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// CPU time of all its threads so far in seconds, user and system.
    pub fn cpu(&self) -> Result<f64> {
        let stat = self.proc("stat")?;
        // The second field is the program's name in parentheses and may hold anything.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default().split(' ').collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
        match (ticks(12), ticks(13)) {
            (Some(user), Some(system)) => Ok((user + system) / TICKS_PER_SECOND),
            _ => bail!("{}: unexpected /proc/PID/stat: {stat}", self.name),
        }
    }

    /// CPU time of its present threads in nanoseconds, exactly: unlike [`Self::cpu`], what threads used that have
    /// ended is missing.
    ///
    /// # Errors
    /// It has ended.
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

    /// Its memory.
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

    /// How many descriptors it has open.
    ///
    /// # Errors
    /// It has ended.
    pub fn descriptors(&self) -> Result<usize> {
        let path = format!("/proc/{}/fd", self.child.id());
        Ok(fs::read_dir(&path).with_context(|| path)?.count())
    }

    /// How many threads it has.
    ///
    /// # Errors
    /// It has ended.
    pub fn threads(&self) -> Result<usize> {
        let path = format!("/proc/{}/task", self.child.id());
        Ok(fs::read_dir(&path).with_context(|| path)?.count())
    }

    /// Everything that it has printed.
    ///
    /// # Errors
    /// The file of its output is gone.
    pub fn output(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| self.log.display().to_string())
    }

    /// Sends it a signal by its name (`HUP`).
    ///
    /// # Errors
    /// It has ended, or there is no `kill`.
    pub fn signal(&self, name: &str) -> Result<()> {
        let arguments = [format!("-{name}"), self.child.id().to_string()];
        if !Command::new("kill").args(arguments).status()?.success() {
            bail!("{} cannot be sent {name}", self.name);
        }
        Ok(())
    }

    /// Makes the peak start again from what is resident now.
    pub fn forget_peak(&self) -> Result<()> {
        let path = format!("/proc/{}/clear_refs", self.child.id());
        fs::write(&path, "5").with_context(|| path)
    }

    /// How often its threads have gone to sleep by themselves, which is how often they were woken.
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

    /// Waits until it has used next to no CPU for half a second; returns when that began.
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
        // Already ended is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port on loopback that nobody has at the moment, for TCP and UDP.
pub fn free_port() -> io::Result<u16> {
    loop {
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        if std::net::UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
}
