//! How fast the walk may go, and what it has cost so far.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::cost::{Call, Cost};
use super::plan::Plan;
use crate::node::sys;

/// The walk was told to end.
#[derive(Debug)]
pub(super) struct Ended;

/// The least time that is waited for: below it a pause costs more than it saves.
const LEAST: Duration = Duration::from_millis(100);

/// How often the pressure is looked at while it walks, and while it rests.
const LOOK: Duration = Duration::from_secs(1);

/// Keeps the walk to its budget.
pub(super) struct Pace {
    pub(super) cost: Cost,
    ended: Arc<AtomicBool>,
    /// Seconds for a call and for a byte.
    per_call: f64,
    per_byte: f64,
    /// When the calls, and the bytes, of so far will have had their time.
    calls_due: Instant,
    bytes_due: Instant,
    pressure: f64,
    pressure_file: PathBuf,
    looked: Instant,
}

impl Pace {
    pub(super) fn new(plan: &Plan, cost: Cost, ended: Arc<AtomicBool>) -> Self {
        let now = Instant::now();
        Self {
            cost,
            ended,
            per_call: 1.0 / plan.calls,
            per_byte: 1.0 / plan.bytes,
            calls_due: now,
            bytes_due: now,
            pressure: plan.pressure,
            pressure_file: plan.pressure_file.clone(),
            // The first call looks.
            looked: now.checked_sub(LOOK).unwrap_or(now),
        }
    }

    /// Counts a call that the budget is about, before it is made, and waits until there is room for it.
    ///
    /// # Errors
    ///
    /// The walk is to end.
    pub(super) fn call(&mut self, call: Call) -> Result<(), Ended> {
        self.cost.count(call);
        let now = Instant::now();
        // What a pause was too long is made up for.
        let earliest = now.checked_sub(LEAST).unwrap_or(now);
        self.calls_due = self.calls_due.max(earliest) + Duration::from_secs_f64(self.per_call);
        if now.duration_since(self.looked) >= LOOK {
            self.note_cpu();
            self.heed_pressure()?;
        }
        self.wait(self.calls_due.max(self.bytes_due).saturating_duration_since(now))
    }

    /// Counts bytes of a directory, which the next call waits for.
    pub(super) fn bytes(&mut self, count: usize) {
        self.cost.bytes.inc_by(count as u64);
        let time = Duration::from_secs_f64(self.per_byte * count as f64);
        self.bytes_due = self.bytes_due.max(Instant::now()) + time;
    }

    fn wait(&self, time: Duration) -> Result<(), Ended> {
        if self.ended.load(Ordering::Relaxed) {
            return Err(Ended);
        }
        if time < LEAST { Ok(()) } else { self.rest(time) }
    }

    /// Waits for so long.
    ///
    /// # Errors
    ///
    /// The walk is to end.
    pub(super) fn rest(&self, time: Duration) -> Result<(), Ended> {
        let end = Instant::now() + time;
        loop {
            if self.ended.load(Ordering::Relaxed) {
                return Err(Ended);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::park_timeout(left);
        }
    }

    /// Rests while the host's IO is under pressure. Where the host does not tell, it is not.
    fn heed_pressure(&mut self) -> Result<(), Ended> {
        let mut since = None;
        loop {
            self.looked = Instant::now();
            let text = fs::read_to_string(&self.pressure_file).unwrap_or_default();
            let (before, now) = (since, Instant::now());
            if waiting(&text).is_none_or(|share| share <= self.pressure) {
                return Ok(());
            }
            if before.is_none() {
                self.cost.pauses.inc();
            }
            since = Some(now);
            let rested = self.rest(LOOK);
            self.cost.paused.add(now.elapsed().as_secs_f64());
            rested?;
        }
    }

    /// Notes what the thread has cost.
    pub(super) fn note_cpu(&self) {
        self.cost.cpu.set(sys::cpu());
    }
}

/// The share of the last 10 s, in percent, in which something waited: `some avg10` of `/proc/pressure/io`.
fn waiting(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split(' ').find_map(|part| part.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pressure_is_read() {
        let text = "some avg10=12.34 avg60=0.06 avg300=0.57 total=1\nfull avg10=99.0 avg60=0 avg300=0 total=2\n";
        assert_eq!(waiting(text), Some(12.34));
        assert_eq!(waiting(""), None);
    }
}
