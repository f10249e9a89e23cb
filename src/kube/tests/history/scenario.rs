//! The definitions of histories: what happens in them, and when.

use std::time::Duration;

use fastrand::Rng;

use super::cluster::{ALL_KINDS, DEFINED_KINDS, KINDS, Kind};
use super::fault_mix::FaultMix;
use super::faults::Fault;
use super::kind_reloads;
use super::object_shards::{ShardChange, prolong_preparations, random_changes, shards};
use super::responses::PAGE;
use super::server::Server;
use crate::kube::shard::{Shard, Stage};

/// No fault starts this close to the end, so each has time to recover.
pub(super) const MIN_TAIL: Duration = Duration::from_secs(75);

/// The shortest time between two silences of all watches: the longest silence that is awaited, and the interval of bookmarks.
pub(super) const SILENCE_INTERVAL: Duration = Duration::from_secs(220);

/// The time that a history from bytes continues after its last event, so that the first lists and the last changes are
/// certainly exposed.
const TAIL: Duration = Duration::from_secs(12);

/// The usual retention of counters, which is longer than a history.
const RETENTION: Duration = Duration::from_secs(3600);
/// A retention after which the ledger forgets objects so early that a restored backup would show them as new ones.
const SHORT_RETENTION: Duration = Duration::from_secs(40);

/// A fault in a history.
pub struct ScheduledFault {
    pub fault: Fault,
    pub begin: Duration,
    pub duration: Duration,
    /// True if it belongs to another fault, whose recovery time covers it.
    pub is_secondary: bool,
}

/// A feature that not all histories have.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionalFeature {
    /// Budgets of objects, which are reloaded.
    Limits,
    /// A definition of the custom kind.
    Custom,
    /// The drop of completed pods.
    Completed,
}

/// The frequency of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A few times a second, with pauses of several seconds.
    Usual,
    /// Nothing changes for many seconds at a time.
    Quiet,
    /// About 30 times a second, so that objects often change several times between two scrapes or requests.
    Busy,
}

/// The definition of a history.
pub struct Scenario {
    pub seed: u64,
    pub length: Duration,
    pub http2: bool,
    pub each_namespace: bool,
    /// All kinds in the cluster, which are also the watched ones, except that Events are only counted.
    pub kinds: Vec<Kind>,
    pub events: Vec<ScheduledFault>,
    /// The times of changes of the shard whose workloads are counted. Objects of all shards are shown.
    pub shards: Vec<(Duration, Shard)>,
    /// The times of reloads of the custom resources, if the custom kind has a definition.
    pub custom: Option<Vec<Duration>>,
    /// The times of reloads of the budgets, if there are any.
    pub limits: Option<Vec<Duration>>,
    /// The times of reloads of the options of the counters of events.
    pub ledger_reloads: Vec<Duration>,
    /// The largest number of objects of a kind that is shown, if there is a limit.
    pub object_limit: Option<u64>,
    /// The times at which many objects are deleted, each with the seed that determines which.
    pub deletions: Vec<(Duration, u64)>,
    /// Pages of lists have the number of objects that follow. The server never sends it with selectors.
    pub counts_rest: bool,
    /// The server sends no bookmarks on watches of Kubernetes Events.
    pub has_uncached_events: bool,
    /// The times of reloads that change which kinds are watched, if there are any.
    pub kind_reloads: Option<Vec<Duration>>,
    /// Two such reloads always follow one another at once.
    pub reloads_twice: bool,
    /// Nothing but changes of objects happens for minutes at the end.
    pub ends_calmly: bool,
    /// The times of reloads that lead to another API server.
    pub server_changes: Vec<Duration>,
    /// The series of pods have labels of the pods and of their workloads.
    pub has_pod_labels: bool,
    /// Senders of lines get the workloads of the jobs that the cluster has.
    pub resolves_senders: bool,
    /// The seed of the exec plugin, if credentials come from one.
    pub plugin: Option<u64>,
    /// The time after which completed pods are dropped, if they are.
    pub drop_completed_after: Option<Duration>,
    /// Changes of the shard whose objects are shown, if objects of several shards are not shown.
    pub object_shards: Option<Vec<(Duration, ShardChange)>>,
    /// Determines when lists are on their way, slowly, while the shard changes whose objects are shown, if they are.
    pub slow_lists: Option<Rng>,
    /// The frequency of changes.
    pub pace: Pace,
    /// What the server never supports, as in these faults.
    pub lacks: Vec<Fault>,
    /// The server sends each event in several chunks.
    pub is_fragmented: bool,
    /// Lists from the server's cache are often old.
    pub is_lagging: bool,
    /// The time for which the counters of a workload outlive it.
    pub retention: Duration,
    /// The times of changes and scrapes; random if `None`.
    pub schedule: Option<Schedule>,
    /// Prints requests and faults.
    pub trace: bool,
}

/// The times of changes, with the seed that determines each change, and of scrapes.
#[derive(Default)]
pub struct Schedule {
    pub changes: Vec<(Duration, u64)>,
    pub scrapes: Vec<Duration>,
}

impl Scenario {
    /// These faults with random changes and scrapes, one shard and the usual retention.
    fn with_faults(
        seed: u64,
        length: Duration,
        (http2, each_namespace): (bool, bool),
        events: Vec<ScheduledFault>,
    ) -> Self {
        Self {
            seed,
            length,
            http2,
            each_namespace,
            kinds: ALL_KINDS.to_vec(),
            events,
            shards: Vec::new(),
            custom: None,
            limits: None,
            ledger_reloads: Vec::new(),
            object_limit: None,
            deletions: Vec::new(),
            counts_rest: false,
            has_uncached_events: false,
            kind_reloads: None,
            reloads_twice: false,
            ends_calmly: false,
            server_changes: Vec::new(),
            has_pod_labels: false,
            resolves_senders: false,
            plugin: None,
            drop_completed_after: None,
            object_shards: None,
            slow_lists: None,
            pace: Pace::Usual,
            lacks: Vec::new(),
            is_fragmented: false,
            is_lagging: false,
            retention: RETENTION,
            schedule: None,
            trace: false,
        }
    }

    /// Random faults of all kinds at random times.
    pub fn random(seed: u64, length: Duration) -> Self {
        Self::of_mix(seed, length, |_, has_restores| FaultMix::of_all(has_restores))
            .with_features(seed)
            .with_exclusive_features(seed)
            .with_plugin(seed)
            .with_long_rejections(seed)
    }

    /// A random [mix](FaultMix) of faults, with a server that may lack features, and with further features.
    #[cfg(test)]
    pub fn of_random_mix(seed: u64, length: Duration) -> Self {
        Self::of_mix(seed, length, FaultMix::random)
            .with_rare_features(seed)
            .with_combined_features(seed)
            .with_exclusive_features(seed)
            .with_server_changes(seed)
            .with_rotated_tokens(seed)
            .with_plugin(seed)
            .with_long_rejections(seed)
            .with_repeated_silences(seed)
            .with_overloads(seed)
            .with_slow_lists(seed)
            .with_lists_after_streams(seed)
            .with_rare_reloads(seed)
            .with_ledger_reloads(seed)
            .with_calm_beginning(seed)
    }

    /// One kind of fault again and again, if it is named, with budgets that are reloaded often, a defined custom kind, or
    /// neither.
    #[cfg(test)]
    pub fn of_fault_and_feature(
        seed: u64,
        length: Duration,
        fault: Option<&str>,
        feature: Option<OptionalFeature>,
    ) -> Self {
        let mut scenario = Self::of_mix(seed, length, |rng, has_restores| match fault {
            Some(name) => FaultMix::of_name(rng, has_restores, name),
            None => FaultMix::of_all(has_restores),
        });
        let mut rng = Rng::with_seed(seed ^ 0x3c6e_f372_fe94_f82b);
        match feature {
            Some(OptionalFeature::Limits) => {
                scenario.limits = Some(scenario.reloads(&mut rng, 40_000))
            }
            Some(OptionalFeature::Custom) => scenario.define_custom_kind(&mut rng),
            Some(OptionalFeature::Completed) => scenario.drop_completed(&mut rng),
            None => {}
        }
        scenario
    }

    fn of_mix(seed: u64, length: Duration, mix: impl FnOnce(&mut Rng, bool) -> FaultMix) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (http2, each_namespace) = (rng.bool(), rng.u32(0..4) == 0);
        let (retention, shards) = match rng.u32(0..4) {
            0 => (SHORT_RETENTION, Vec::new()),
            1 => (RETENTION, shards(random_changes(&mut rng, length, |_| false))),
            2 => (SHORT_RETENTION, shards(random_changes(&mut rng, length, |_| false))),
            _ => (RETENTION, Vec::new()),
        };
        let mix = mix(&mut rng, retention != SHORT_RETENTION);
        let mut events = Vec::new();
        let (mut at, mut end) = (Duration::from_millis(rng.u64(0..20_000)), length);
        let (mut silent, mut is_restored): (Option<Duration>, bool) = (None, false);
        while at < length.saturating_sub(MIN_TAIL) {
            let (fault, duration) = mix.fault(&mut rng);
            if mix.is_random
                && matches!(fault, Fault::Restored { .. })
                && std::mem::replace(&mut is_restored, true)
            {
                // After a second restore, what objects report for the third time cannot be told from what is new.
                at += mix.pause(&mut rng).max(Duration::from_secs(1));
                continue;
            }
            if mix.is_random && fault == Fault::WatchesSilent {
                // A server whose watches are silent twice without a bookmark in between is taken for one that sends none.
                if silent.is_some_and(|last| at < last + SILENCE_INTERVAL) {
                    at += mix.pause(&mut rng).max(Duration::from_secs(1));
                    continue;
                }
                silent = Some(at);
            }
            if rng.bool() && duration > Duration::ZERO {
                let fault =
                    [Fault::Reset, Fault::Compacted, Fault::Closed][rng.usize(0..3)].clone();
                let begin = at + duration.mul_f64(rng.f64() * 0.5);
                events.push(ScheduledFault {
                    fault,
                    begin,
                    duration: Duration::ZERO,
                    is_secondary: true,
                });
            }
            end = end.max(at + fault.grace(duration) + Duration::from_secs(5));
            events.push(ScheduledFault { fault, begin: at, duration, is_secondary: false });
            at += mix.pause(&mut rng);
        }
        Self { shards, retention, ..Self::with_faults(seed, end, (http2, each_namespace), events) }
    }

    /// Adds the features that this seed determines, with other numbers than those of the faults.
    fn with_features(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x6a09_e667_f3bc_c908);
        match rng.u32(0..3) {
            0 => self.limits = Some(self.reloads(&mut rng, 150_000)),
            1 => self.define_custom_kind(&mut rng),
            _ => {}
        }
        self
    }

    /// The same, with features of the server and those that make the checkers less strict.
    #[cfg(test)]
    fn with_rare_features(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0xbb67_ae85_84ca_a73b);
        let (is_quiet, is_fragmented) = (rng.u32(0..4) == 0, rng.u32(0..4) == 0);
        self.is_fragmented = is_fragmented;
        let refuses = rng.bool();
        for lack in [Fault::NoStreaming, Fault::NoProtobuf, Fault::NoRepresentations { refuses }] {
            if rng.u32(0..5) == 0 {
                self.lacks.push(lack);
            }
        }
        match rng.u32(0..5) {
            0 => self.limits = Some(self.reloads(&mut rng, 150_000)),
            1 => self.define_custom_kind(&mut rng),
            2 => {
                let mut others = Rng::with_seed(seed ^ 0x5be0_cd19_137e_2179);
                let mut prepared = Rng::with_seed(seed ^ 0x428a_2f98_d728_ae22);
                let is_overtaken = |stage| match stage {
                    Stage::Overlap => prepared.u32(0..4) == 0,
                    _ => others.bool(),
                };
                let mut changes = random_changes(&mut rng, self.length, is_overtaken);
                let mut labels = Rng::with_seed(seed ^ 0xab1c_5ed5_da6d_8118);
                self.has_pod_labels = labels.bool();
                if self.has_pod_labels {
                    // So that the labels of gained pods change before these are shown.
                    prolong_preparations(&mut changes, &mut labels);
                }
                self.object_shards = Some(changes);
            }
            3 => {
                // Where the ledger follows one of its other kinds, it follows all of them.
                self.kinds = vec![Kind::ConfigMap, Kind::Node, Kind::Secret, Kind::Widget];
                rng.shuffle(&mut self.kinds);
                self.kinds.truncate(rng.usize(1..4));
            }
            _ => {}
        }
        // A restored server that changes as often has passed the last known version before a kind is requested again.
        let is_restored = |event: &ScheduledFault| matches!(event.fault, Fault::Restored { .. });
        self.pace = match is_quiet {
            true => Pace::Quiet,
            false if rng.u32(0..4) == 0 && !self.events.iter().any(is_restored) => Pace::Busy,
            false => Pace::Usual,
        };
        let mut others = Rng::with_seed(seed ^ 0x3c6e_f372_fe94_f82b);
        let may_drop = self.limits.is_none() && self.kinds.contains(&Kind::Pod);
        if may_drop && (rng.u32(0..4) == 0 || others.u32(0..5) == 0) {
            self.drop_completed(&mut rng);
            if others.bool() {
                // Which pods are dropped is only certain without faults.
                let faulty = self.length.mul_f64(0.4);
                self.events.retain(|event| event.begin < faulty);
            }
        }
        if rng.u32(0..4) == 0 {
            // Only lists that are not streamed come from the cache.
            self.is_lagging = true;
            self.lacks.push(Fault::NoStreaming);
        }
        self
    }

    /// Adds a feature that no other one of the checker goes with.
    fn with_exclusive_features(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x9b05_688c_2b3e_6c1f);
        let is_plain = !self.has_checked_features();
        match rng.u32(0..8) {
            // Completed pods need no room once they are dropped.
            0 | 1 if is_plain || self.only_drops_completed() => {
                self.object_limit = Some(rng.u64(4..25));
                // Lists for left-out objects are only counted without faults.
                let faulty = self.length.mul_f64(0.4);
                self.events.retain(|event| event.begin < faulty);
                if Rng::with_seed(seed ^ 0x243f_6a88_85a3_08d3).u32(0..3) == 0 {
                    // Dozens of lists for room.
                    self.length *= 4;
                }
                let mut others = Rng::with_seed(seed ^ 0x629a_292a_367c_d507);
                if others.u32(0..3) > 0 {
                    // Only other lists have pages, the last ones of which are not requested.
                    self.lacks.push(Fault::NoStreaming);
                    // The limit is reached at the end of a page.
                    self.object_limit = self.object_limit.map(|limit| limit / PAGE * PAGE);
                }
                self.counts_rest = others.bool();
                self.thin_out(seed);
            }
            2 | 3 if is_plain => self.has_pod_labels = true,
            4..7 if is_plain => {
                let mut others = Rng::with_seed(seed ^ 0x7137_4491_23ef_65cd);
                self.kind_reloads = Some(self.reloads(&mut others, 40_000));
                self.is_lagging |= others.bool();
                if others.bool() {
                    // All kinds can leave at once.
                    self.kinds = kind_reloads::KINDS.to_vec();
                }
            }
            7 if is_plain => self.end_calmly(seed),
            _ => {}
        }
        self.has_uncached_events = rng.u32(0..4) == 0 && !self.ends_calmly;
        if self.has_uncached_events {
            // Without bookmarks, a silence of one watch after another is noticed later each time.
            self.events.retain(|event| event.fault != Fault::WatchesSilent);
        }
        self
    }

    /// Adds changes of the server, if the checker of no other feature forbids these.
    #[cfg(test)]
    fn with_server_changes(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x1f83_d9ab_5be0_cd19);
        let has_others = self.has_checked_features() || self.object_limit.is_some();
        if has_others || !self.shards.is_empty() || self.has_pod_labels || self.ends_calmly {
            return self;
        }
        let first = Duration::from_millis(rng.u64(20_000..80_000));
        let mut at = first;
        while at < self.length.saturating_sub(MIN_TAIL) {
            self.server_changes.push(at);
            at += Duration::from_millis(rng.u64(30_000..250_000));
        }
        if rng.bool() {
            // Nothing but disconnects, after which nothing has to be listed. Watches that were silent for long are resumed from a
            // version that is compared with that of the server.
            self.pace = Pace::Quiet;
            self.events.retain(|event| event.begin < first);
            let mut at = first + Duration::from_secs(100);
            while at < self.length.saturating_sub(Duration::from_secs(15)) {
                let fault =
                    [Fault::Reset, Fault::Closed, Fault::WatchesBroken][rng.usize(..3)].clone();
                let duration = Duration::ZERO;
                self.events.push(ScheduledFault {
                    fault,
                    begin: at,
                    duration,
                    is_secondary: false,
                });
                at += Duration::from_millis(rng.u64(15_000..40_000));
            }
            self.server_changes.truncate(1);
        }
        self
    }

    /// Watches all kinds all the time, as histories of senders need it, with the usual changes.
    #[cfg(test)]
    pub fn with_all_kinds(mut self) -> Self {
        if !std::mem::take(&mut self.deletions).is_empty() {
            self.pace = Pace::Usual;
        }
        if self.kind_reloads.take().is_some() {
            self.kinds = ALL_KINDS.to_vec();
        }
        self
    }

    /// Lets jobs of the cluster create pods, whose workloads are known from the jobs alone, in some histories of senders. Jobs are
    /// refused at times, so that pods are known before their jobs.
    #[cfg(test)]
    pub fn with_pods_of_jobs(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x3c6e_f372_a54f_f53a);
        if rng.bool() {
            return self;
        }
        self.resolves_senders = true;
        let mut begin = Duration::from_millis(rng.u64(15_000..40_000));
        while begin < self.length.saturating_sub(MIN_TAIL) {
            let duration = Duration::from_millis(rng.u64(5_000..30_000));
            // Open watches go on until they break.
            for (fault, after, duration, is_secondary) in [
                (Fault::Denied(Kind::Job), Duration::ZERO, duration, false),
                (Fault::WatchesBroken, Duration::from_millis(10), Duration::ZERO, true),
            ] {
                let begin = begin + after;
                self.events.push(ScheduledFault { fault, begin, duration, is_secondary });
            }
            begin += duration + Duration::from_millis(rng.u64(40_000..120_000));
        }
        self
    }

    /// Returns true if jobs of the cluster create pods.
    pub fn has_pods_of_jobs(&self) -> bool {
        self.has_pod_labels || self.resolves_senders
    }

    /// Returns true if nothing but ends of watches causes requests while there are no faults.
    pub fn has_plain_watches(&self) -> bool {
        !self.has_checked_features()
            && self.object_limit.is_none()
            && self.kind_reloads.is_none()
            && self.server_changes.is_empty()
            && !self.has_uncached_events
    }

    /// Returns true if there is a feature with a checker of its own.
    pub(super) fn has_checked_features(&self) -> bool {
        self.limits.is_some()
            || self.custom.is_some()
            || self.object_shards.is_some()
            || self.drop_completed_after.is_some()
    }

    /// Returns true if the only feature with a checker of its own is the drop of completed pods.
    fn only_drops_completed(&self) -> bool {
        self.limits.is_none() && self.custom.is_none() && self.object_shards.is_none()
    }

    /// Lets a server lack what it never supports.
    pub fn restrict(&self, server: &Server) {
        for (number, lack) in self.lacks.iter().enumerate() {
            server.begin_fault(usize::MAX - number, lack);
        }
    }

    /// Returns random times, with up to `interval` milliseconds between them.
    pub(super) fn reloads(&self, rng: &mut Rng, interval: u64) -> Vec<Duration> {
        let (mut at, mut reloads) = (Duration::ZERO, Vec::new());
        while at < self.length {
            at += Duration::from_millis(rng.u64(500..interval));
            reloads.push(at);
        }
        reloads
    }

    /// Gives the custom kind a definition, which may be forbidden, and a configuration.
    fn define_custom_kind(&mut self, rng: &mut Rng) {
        self.custom = Some(self.reloads(rng, 60_000));
        self.kinds.extend(DEFINED_KINDS);
        for event in &mut self.events {
            if let Fault::Denied(kind) = &mut event.fault
                && rng.bool()
            {
                *kind = Kind::Definition;
            }
        }
    }

    /// Decodes a history from bytes. The first byte selects transport and kinds. Then follow steps of three bytes: the
    /// type of the step (a change, a scrape or a fault), its variant, and the pause after it. The history is long
    /// enough to recover from all faults.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        /// The maximum number of steps.
        const MAX_STEPS: usize = 40;
        /// The longest interval between scrapes.
        const SCRAPE_INTERVAL: Duration = Duration::from_secs(3);
        let (&header, steps) = bytes.split_first().unwrap_or((&0, &[]));
        let (http2, each_namespace, seed) = (header & 1 == 1, header & 2 == 2, u64::from(header));
        let wanted = |(at, _): &(usize, Kind)| header >> 3 & 1 << at != 0;
        let kinds = KINDS.into_iter().enumerate().filter(wanted);
        let mut kinds: Vec<Kind> = kinds.map(|(_, kind)| kind).collect();
        if kinds.is_empty() {
            kinds = ALL_KINDS.to_vec();
        }
        let (mut schedule, mut events) = (Schedule::default(), Vec::new());
        // By then the first lists are complete, unless a fault starts immediately.
        let mut at = Duration::from_millis(if header & 4 == 4 { 1 } else { 500 });
        let mut length = at;
        for step in steps.chunks_exact(3).take(MAX_STEPS) {
            let &[operation, variant, pause] = step else { continue };
            match operation {
                0..96 => {
                    schedule.changes.push((at, u64::from(operation) << 8 | u64::from(variant)))
                }
                96..128 => schedule.scrapes.push(at),
                128.. => {
                    let choice = u32::from(operation & 127) % Fault::CHOICES;
                    let share = if variant & 1 == 0 { 1.0 } else { 0.5 };
                    let mut rng = Rng::with_seed(u64::from(variant));
                    let (fault, duration) = Fault::chosen(choice, share, &mut rng);
                    length = length.max(at + fault.grace(duration));
                    events.push(ScheduledFault { fault, begin: at, duration, is_secondary: false });
                }
            }
            let unit = [1, 30, 200, 1000][usize::from(pause >> 6)];
            at += Duration::from_millis(u64::from(pause & 63) * unit);
        }
        length = length.max(at) + TAIL;
        let mut at = Duration::from_millis(2);
        while at < length {
            schedule.scrapes.push(at);
            at += SCRAPE_INTERVAL;
        }
        // The last scrape must be current.
        schedule.scrapes.push(length);
        let schedule = Some(schedule);
        Self { kinds, schedule, ..Self::with_faults(seed, length, (http2, each_namespace), events) }
    }

    /// A history with a single fault.
    pub fn single_fault(seed: u64, http2: bool, fault: Fault, duration: Duration) -> Self {
        let begin = Duration::from_secs(20);
        let length = begin + fault.grace(duration) + Duration::from_secs(15);
        let events = vec![ScheduledFault { fault, begin, duration, is_secondary: false }];
        let each_namespace = seed.is_multiple_of(4);
        Self::with_faults(seed, length, (http2, each_namespace), events)
    }

    /// Two faults at once, of these choices: the second one begins while the first one lasts, or shortly after it.
    pub fn pair_of_faults(one: u32, other: u32) -> Self {
        let seed = u64::from(one * Fault::CHOICES + other);
        let mut rng = Rng::with_seed(seed);
        let chosen = [one, other].map(|choice| Fault::chosen(choice, 1.0, &mut rng));
        // A restore needs an old backup.
        let is_restored = |(fault, _): &(Fault, Duration)| matches!(fault, Fault::Restored { .. });
        let mut begin = Duration::from_secs(if chosen.iter().any(is_restored) { 150 } else { 20 });
        let (mut events, mut length) = (Vec::new(), begin);
        for (fault, duration) in chosen {
            length = length.max(begin + fault.grace(duration) + Duration::from_secs(15));
            events.push(ScheduledFault { fault, begin, duration, is_secondary: false });
            begin += (duration / 2).max(Duration::from_millis(rng.u64(0..2_000)));
        }
        let (http2, each_namespace) = (rng.bool(), rng.u32(0..4) == 0);
        Self::with_faults(seed, length, (http2, each_namespace), events)
    }

    /// A kind is missing until the server is replaced, without an outage.
    pub fn server_replaced(http2: bool) -> Self {
        let duration = Duration::from_secs(70);
        let other = Duration::from_millis(10);
        let absent = Fault::Absent(Kind::Widget);
        let events = vec![
            ScheduledFault { fault: absent, begin: Duration::ZERO, duration, is_secondary: false },
            ScheduledFault {
                fault: Fault::Reset,
                begin: duration + other,
                duration: Duration::ZERO,
                is_secondary: true,
            },
        ];
        let (seed, each_namespace) = (1, false);
        let length = duration + Duration::from_secs(15);
        Self::with_faults(seed, length, (http2, each_namespace), events)
    }

    /// Disconnects and overloads of a healthy server with 40 changes per second.
    pub fn disconnects(seed: u64, http2: bool) -> Self {
        let millis = Duration::from_millis;
        let mut rng = Rng::with_seed(seed);
        let (mut at, mut events) = (millis(15_000), Vec::new());
        for _ in 0..10 {
            let fault = match rng.u32(0..7) {
                0 => Fault::Reset,
                1 => Fault::Closed,
                2 => Fault::WatchesBroken,
                3 => Fault::Refused,
                4 => Fault::Delayed(millis(rng.u64(20..400))),
                _ => {
                    let share = [0.3, 0.7, 1.0][rng.usize(..3)];
                    Fault::Status { code: 503, retry_after: None, share }
                }
            };
            let duration = match fault {
                Fault::Reset | Fault::Closed | Fault::WatchesBroken => Duration::ZERO,
                _ => millis(rng.u64(500..6_000)),
            };
            // Connections are also cut during longer faults.
            if !duration.is_zero() {
                let begin = at + duration.mul_f64(rng.f64());
                let (fault, duration) = (Fault::Reset, Duration::ZERO);
                events.push(ScheduledFault { fault, begin, duration, is_secondary: true });
            }
            events.push(ScheduledFault { fault, begin: at, duration, is_secondary: false });
            at += duration + millis(rng.u64(500..15_000));
        }
        let length = at + Duration::from_secs(15);
        let mut schedule = Schedule::default();
        let mut time = Duration::ZERO;
        while time < length {
            schedule.changes.push((time, rng.u64(..)));
            if time.subsec_millis().is_multiple_of(500) {
                schedule.scrapes.push(time);
            }
            time += millis(25);
        }
        let each_namespace = rng.bool();
        let schedule = Some(schedule);
        Self { schedule, ..Self::with_faults(seed, length, (http2, each_namespace), events) }
    }

    /// One fault, combined with a reset of all connections and a compaction in the middle.
    pub fn isolated_fault(seed: u64, fault: Fault, duration: Duration) -> Self {
        // A restore needs an old backup.
        let begin =
            Duration::from_secs(if matches!(fault, Fault::Restored { .. }) { 150 } else { 20 });
        let mut events =
            vec![ScheduledFault { fault: fault.clone(), begin, duration, is_secondary: false }];
        for (fault, at) in [(Fault::Reset, 0.1), (Fault::Compacted, 0.2)] {
            if duration > Duration::ZERO && !seed.is_multiple_of(3) {
                let begin = begin + duration.mul_f64(at);
                events.push(ScheduledFault {
                    fault,
                    begin,
                    duration: Duration::ZERO,
                    is_secondary: true,
                });
            }
        }
        let (http2, each_namespace) = (seed.is_multiple_of(2), seed.is_multiple_of(5));
        let length = begin + fault.grace(duration) + Duration::from_secs(5);
        Self::with_faults(seed, length, (http2, each_namespace), events)
    }
}
