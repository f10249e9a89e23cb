//! Changes of the faults that a [mix](super::fault_mix) has chosen for a history, and of its pace, in some histories.

use std::time::Duration;

use fastrand::Rng;

use super::faults::Fault;
use super::responses::PAGE;
use super::scenario::{MIN_TAIL, Pace, SILENCE_INTERVAL, Scenario, ScheduledFault};

impl Scenario {
    /// Lets rejected tokens of some histories be rejected for longer than objects may be stale. Most of these rejections begin with the
    /// ends of all connections, so that each list/watch notices.
    pub(super) fn with_long_rejections(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0xcbbb_9d5d_c105_9ed8);
        if rng.u32(0..4) > 0 {
            return self;
        }
        let (mut until, mut resets) = (Duration::ZERO, Vec::new());
        for event in &mut self.events {
            let is_rejection =
                matches!(event.fault, Fault::TokenReplaced | Fault::Status { code: 401, .. });
            if is_rejection && event.begin >= until {
                if let Fault::Status { share, .. } = &mut event.fault {
                    *share = 1.0;
                }
                event.duration = Duration::from_millis(rng.u64(70_000..110_000));
                until = event.begin + event.duration + MIN_TAIL;
                self.length = self.length.max(until);
                resets.push(event.begin);
            }
        }
        let mut rng = Rng::with_seed(seed ^ 0x647f_9d1f_5d0e_a1b3);
        for begin in resets {
            let begin = begin + Duration::from_millis(rng.u64(1..5_000));
            if rng.u32(0..4) > 0 {
                let (fault, duration) = (Fault::Reset, Duration::ZERO);
                self.events.push(ScheduledFault { fault, begin, duration, is_secondary: true });
            }
        }
        self
    }

    /// Lets no fault interrupt the first watches for a while, in some histories.
    #[cfg(test)]
    pub(super) fn with_calm_beginning(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x1f1d_36f1_5be0_cd19);
        if rng.u32(0..4) == 0 {
            let calm = Duration::from_secs(rng.u64(40..150));
            self.events.iter_mut().for_each(|event| event.begin += calm);
            self.length += calm;
        }
        self
    }

    /// Lets the watches of some histories fall silent several times, far apart, without any other fault.
    #[cfg(test)]
    pub(super) fn with_repeated_silences(mut self, seed: u64) -> Self {
        /// More than are tolerated without bookmarks in between.
        const SILENCES: u32 = 5;
        let mut rng = Rng::with_seed(seed ^ 0x5be0_cd19_137e_2179);
        let is_plain = !self.has_checked_features() && self.object_limit.is_none();
        if rng.u32(0..6) > 0
            || !is_plain
            || !self.http2
            || self.ends_calmly
            || self.has_uncached_events
        {
            return self;
        }
        self.events.clear();
        self.server_changes.clear();
        let mut begin = Duration::from_millis(rng.u64(20_000..90_000));
        for _ in 0..SILENCES {
            let (fault, duration) = (Fault::WatchesSilent, Duration::ZERO);
            self.events.push(ScheduledFault { fault, begin, duration, is_secondary: false });
            // The first watch after a silence is short, and ends before a bookmark.
            begin += SILENCE_INTERVAL + Duration::from_millis(rng.u64(60_000..110_000));
        }
        self.length = begin;
        self
    }

    /// Lets few objects change in some histories with an object limit, so that no event shows those that lists have left out, until
    /// many objects are deleted at once.
    pub(super) fn thin_out(&mut self, seed: u64) {
        let mut rng = Rng::with_seed(seed ^ 0x8cc7_0208_1a64_39ec);
        if rng.bool() {
            return;
        }
        (self.pace, self.counts_rest) = (Pace::Quiet, false);
        // Lists end with a page.
        self.object_limit = Some(PAGE * rng.u64(1..3));
        if !self.lacks.contains(&Fault::NoStreaming) {
            self.lacks.push(Fault::NoStreaming);
        }
        let mut at = Duration::from_millis(rng.u64(12_000..40_000));
        while at < self.length {
            self.deletions.push((at, rng.u64(..)));
            at += Duration::from_millis(rng.u64(80_000..130_000));
        }
    }

    /// Lets the token of some histories be replaced while many requests are on their way.
    #[cfg(test)]
    pub(super) fn with_rotated_tokens(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x9159_015a_3070_dd17);
        if rng.u32(0..4) > 0 || self.ends_calmly {
            return self;
        }
        let mut at = Duration::from_millis(rng.u64(20_000..60_000));
        while at < self.length.saturating_sub(MIN_TAIL) {
            let late = Duration::from_millis(rng.u64(2_000..6_000));
            for (fault, begin, duration, is_secondary) in [
                (Fault::Delayed(late), at, late * 2, false),
                (Fault::Reset, at + Duration::from_millis(10), Duration::ZERO, true),
                (Fault::TokenRotated, at + late.mul_f64(rng.f64()), Duration::ZERO, true),
            ] {
                self.events.push(ScheduledFault { fault, begin, duration, is_secondary });
            }
            at += Duration::from_millis(rng.u64(30_000..120_000));
        }
        self
    }

    /// Lets nothing but changes of objects happen for minutes at the end. Over HTTP/2, the last connections before were those of
    /// HTTP/1.1, until they are cut.
    pub(super) fn end_calmly(&mut self, seed: u64) {
        /// The time after the last fault, in which requests are counted.
        const CALM: Duration = Duration::from_secs(330);
        let mut rng = Rng::with_seed(seed ^ 0x3956_c25b_f348_b538);
        let begin = Duration::from_millis(rng.u64(20_000..100_000));
        let duration = Duration::from_millis(rng.u64(1_000..60_000));
        self.events.retain(|event| event.begin < begin);
        let last = self.events.iter().map(|event| event.begin + event.fault.grace(event.duration));
        let begin = last.max().unwrap_or_default().max(begin);
        if self.http2 {
            for (fault, begin, duration, is_secondary) in [
                (Fault::OldProtocol, begin, duration, false),
                (Fault::Reset, begin + duration.mul_f64(rng.f64()), Duration::ZERO, true),
                (Fault::Reset, begin + duration + Duration::from_secs(1), Duration::ZERO, false),
            ] {
                self.events.push(ScheduledFault { fault, begin, duration, is_secondary });
            }
        }
        (self.ends_calmly, self.length) = (true, begin + duration + CALM);
    }
}
