//! Rate limiting and cost accounting of the walk.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::config::WalkConfig;
use super::metrics::{Call, WalkMetrics};
use crate::node::sys;

/// The walk was asked to stop.
#[derive(Debug)]
pub(super) struct Stopped;

/// The minimum pause; shorter ones cost more than they save.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// The interval between checks of the IO pressure.
const PRESSURE_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of bytes of directories read per second.
const BYTES_PER_SECOND: f64 = 1e6;

/// The IO pressure above which the walk pauses, in percent over 10 s.
const MAX_PRESSURE: f64 = 10.0;

/// Limits the walk to its budget.
pub(super) struct RateLimiter {
    pub(super) metrics: WalkMetrics,
    ended: Arc<AtomicBool>,
    /// Seconds per call.
    per_call: f64,
    /// The times at which the calls and the bytes so far are within budget.
    calls_due: Instant,
    bytes_due: Instant,
    pressure_file: PathBuf,
    pressure_checked: Instant,
}

impl RateLimiter {
    pub(super) fn new(config: &WalkConfig, metrics: WalkMetrics, ended: Arc<AtomicBool>) -> Self {
        let now = Instant::now();
        Self {
            metrics,
            ended,
            per_call: 1.0 / config.calls,
            calls_due: now,
            bytes_due: now,
            pressure_file: config.pressure_file.clone(),
            // Makes the first call check the pressure.
            pressure_checked: now.checked_sub(PRESSURE_INTERVAL).unwrap_or(now),
        }
    }

    /// Counts a call against the budget before it is made, and waits until the budget allows it.
    ///
    /// # Errors
    ///
    /// When the walk was asked to stop.
    pub(super) fn call(&mut self, call: Call) -> Result<(), Stopped> {
        self.metrics.count(call);
        let now = Instant::now();
        // A pause that lasted too long is compensated, up to this limit.
        let earliest = now.checked_sub(MIN_PAUSE).unwrap_or(now);
        self.calls_due = self.calls_due.max(earliest) + Duration::from_secs_f64(self.per_call);
        if now.duration_since(self.pressure_checked) >= PRESSURE_INTERVAL {
            self.record_cpu();
            self.wait_for_low_pressure()?;
        }
        self.wait(self.calls_due.max(self.bytes_due).saturating_duration_since(now))
    }

    /// Counts the bytes of a directory; the next call waits for them.
    pub(super) fn bytes(&mut self, count: usize) {
        self.metrics.bytes.inc_by(count as u64);
        let time = Duration::from_secs_f64(count as f64 / BYTES_PER_SECOND);
        self.bytes_due = self.bytes_due.max(Instant::now()) + time;
    }

    fn wait(&self, time: Duration) -> Result<(), Stopped> {
        if self.ended.load(Ordering::Relaxed) {
            return Err(Stopped);
        }
        if time < MIN_PAUSE { Ok(()) } else { self.sleep(time) }
    }

    /// Sleeps.
    ///
    /// # Errors
    ///
    /// When the walk was asked to stop.
    pub(super) fn sleep(&self, time: Duration) -> Result<(), Stopped> {
        let end = Instant::now() + time;
        loop {
            if self.ended.load(Ordering::Relaxed) {
                return Err(Stopped);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::park_timeout(left);
        }
    }

    /// Waits while the host is under IO pressure. An unreadable pressure file means no pressure.
    fn wait_for_low_pressure(&mut self) -> Result<(), Stopped> {
        let mut has_paused = false;
        loop {
            self.pressure_checked = Instant::now();
            let text = fs::read_to_string(&self.pressure_file).unwrap_or_default();
            if parse_pressure(&text).is_none_or(|share| share <= MAX_PRESSURE) {
                return Ok(());
            }
            if !std::mem::replace(&mut has_paused, true) {
                self.metrics.pauses.inc();
            }
            let begun = Instant::now();
            let slept = self.sleep(PRESSURE_INTERVAL);
            self.metrics.paused.add(begun.elapsed().as_secs_f64());
            slept?;
        }
    }

    /// Records the CPU time of the thread.
    pub(super) fn record_cpu(&self) {
        self.metrics.cpu.set(sys::thread_cpu_seconds());
    }
}

/// Parses `some avg10` of `/proc/pressure/io`: the percentage of the last 10 s in which a task
/// waited for IO.
fn parse_pressure(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split(' ').find_map(|part| part.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pressure_is_read() {
        let text = "some avg10=12.34 avg60=0.06 avg300=0.57 total=1\nfull avg10=99.0 avg60=0 avg300=0 total=2\n";
        assert_eq!(parse_pressure(text), Some(12.34));
        assert_eq!(parse_pressure(""), None);
    }
}
