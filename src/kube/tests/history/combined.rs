//! Features of histories that go together in some of them, and faults that meet these.

use std::time::Duration;

use fastrand::Rng;

use super::faults::Fault;
use super::object_shards::random_changes;
use super::scenario::{MIN_TAIL, Scenario, ScheduledFault};
use crate::kube::shard::Stage;

impl Scenario {
    /// Adds budgets to some histories with changes of the shard whose objects are shown, such changes to some with budgets or a custom
    /// kind with a definition, and the drop of completed pods to others with budgets.
    pub(super) fn with_combined_features(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0xa2bf_e8a1_4cf1_0364);
        if rng.bool() {
            return self;
        }
        let has_shards = self.object_shards.is_some();
        if self.limits.is_some() && rng.u32(0..3) == 0 {
            self.drop_completed(&mut rng);
        } else if has_shards && !self.has_pod_labels && self.drop_completed_after.is_none() {
            self.limits = Some(self.reloads(&mut rng, 150_000));
        } else if !has_shards && (self.limits.is_some() || self.custom.is_some()) {
            let mut others = rng.fork();
            let is_overtaken = |stage| match stage {
                Stage::Overlap => others.u32(0..4) == 0,
                _ => others.bool(),
            };
            self.object_shards = Some(random_changes(&mut rng, self.length, is_overtaken));
        }
        self
    }

    /// Adds outages to some histories in which the server asks each list/watch to wait for another time. After them, some work again
    /// while others have to wait.
    pub(super) fn with_overloads(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0xa81a_664b_bc42_3001);
        if rng.u32(0..4) > 0 || self.ends_calmly {
            return self;
        }
        let mut at = Duration::from_millis(rng.u64(20_000..60_000));
        while at < self.length.saturating_sub(MIN_TAIL) {
            let overload = Fault::Overloaded { longest: rng.u64(5..30) };
            let duration = Duration::from_millis(rng.u64(3_000..15_000));
            self.add_pair((at, duration), overload, Fault::Reset);
            at += duration + Duration::from_millis(rng.u64(40_000..120_000));
        }
        self
    }

    /// Lets lists be on their way, slowly, while the shard of some histories changes whose objects are shown.
    pub(super) fn with_slow_lists(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0xc24b_8b70_d0f8_9791);
        self.slow_lists = rng.bool().then_some(rng);
        self
    }

    /// Lets the server of some histories, whose cache is often old, refuse streaming lists at times, so that the lists of what was streamed
    /// before come in pages.
    pub(super) fn with_lists_after_streams(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x76f9_88da_8311_53b5);
        if rng.u32(0..4) > 0 || self.ends_calmly || self.lacks.contains(&Fault::NoStreaming) {
            return self;
        }
        self.is_lagging = true;
        let mut at = Duration::from_millis(rng.u64(20_000..60_000));
        while at < self.length.saturating_sub(MIN_TAIL) {
            let duration = Duration::from_millis(rng.u64(2_000..10_000));
            self.add_pair((at, duration), Fault::NoStreaming, Fault::WatchesExpired);
            at += duration + Duration::from_millis(rng.u64(20_000..100_000));
        }
        self
    }

    /// Lets so much time pass between the pairs of reloads of some histories, without a fault, that each has certainly taken effect. The lists
    /// of the new configuration are often old.
    pub(super) fn with_rare_reloads(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x983e_5152_ee66_dfab);
        if self.kind_reloads.is_none() || rng.bool() {
            return self;
        }
        let (mut at, mut reloads) = (Duration::from_millis(rng.u64(15_000..60_000)), Vec::new());
        self.events.retain(|event| event.begin < at);
        while at < self.length {
            reloads.push(at);
            at += Duration::from_millis(rng.u64(65_000..120_000));
        }
        (self.kind_reloads, self.reloads_twice, self.is_lagging) = (Some(reloads), true, true);
        self.lacks.push(Fault::NoStreaming);
        self
    }

    /// Adds a fault, and shortly after its beginning another one that lets each list/watch notice.
    fn add_pair(&mut self, (begin, duration): (Duration, Duration), fault: Fault, other: Fault) {
        self.events.push(ScheduledFault { fault, begin, duration, is_secondary: false });
        self.events.push(ScheduledFault {
            fault: other,
            begin: begin + Duration::from_millis(10),
            duration: Duration::ZERO,
            is_secondary: true,
        });
    }
}
