//! A limit for the CPU time of a repeated activity.

use std::time::{Duration, Instant};

/// The share of one core that readings may use, and that scans may use.
const SHARE: f64 = 0.000_5;

/// Limits an activity to [`SHARE`] of a core by a pause after each run, in proportion to its cost.
#[derive(Debug, Default)]
pub(super) struct CpuBudget {
    /// The end of the pause.
    next: Option<Instant>,
}

impl CpuBudget {
    /// Returns whether the pause is over.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// Begins the pause after a run that took so many CPU seconds.
    pub(super) fn pause(&mut self, now: Instant, cost: f64) {
        let pause = Duration::try_from_secs_f64(cost.max(0.0) / SHARE).unwrap_or_default();
        self.next = now.checked_add(pause);
    }

    /// Allows the next run immediately.
    pub(super) const fn reset(&mut self) {
        self.next = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_is_two_thousand_times_the_cost() {
        let (mut budget, now) = (CpuBudget::default(), Instant::now());
        assert!(budget.is_due(now));
        budget.pause(now, 0.005);
        assert!(!budget.is_due(now + Duration::from_millis(9_990)));
        assert!(budget.is_due(now + Duration::from_millis(10_010)));
        budget.pause(now, 0.0);
        assert!(budget.is_due(now), "the cost of a run is charged once");
    }
}
