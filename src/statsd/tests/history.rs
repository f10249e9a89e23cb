//! Random histories of StatsD lines: senders over each kind of socket, reloads of the mapping, budgets, expiry and scrapes on
//! a simulated clock.
//!
//! A seed determines everything. A model computes what each scrape must show:
//!
//! - The sum over all series of a counter is the sum of the accepted values, and likewise the count of an observer, however
//!   rules, limits and labels change. Counters and observers that exist lose no sample to budgets.
//! - A gauge has the value of its last accepted line, a set the number of its members within its window ([`sets`]).
//! - Between two scrapes, accepted lines change the series that has their labels, or the one they are folded into, and no
//!   other one.
//! - A series is there until its time to live is over, and not longer. Then its budget is free.
//! - A rejected line has a cause that fits: garbage is named so, also [among other lines](spoiled), and a valid line is rejected
//!   only by a budget.
//! - No series is there twice, and each format has the same samples, and the same [start times](start_times).
//! - A quantile is that of the values in the window ([`many_values`]), also in a registry of many series ([`many_series`]).
//! - A metric is hidden while another side has its name, and counts on ([`taken_name`]).
//! - Messages have the native buckets of the values ([`native_buckets`]).
//! - A family has a HELP text of its own metric ([`helps`]).
//! - Each option of the rules and of the tags has its effect ([`options`]), and each line the rule that [`random_rules`] give it.
//! - The target of the relay gets each line in time, unchanged and once, unless it refuses datagrams or the line is too long, and
//!   each line counts once as relayed, dropped or too long, also while the target moves ([`relay_target`]).
//! - A scrape has no more samples than the budget of all metrics. A new series is within all limits of its metric, or it is counted
//!   as beyond one.
//!
//! Lines may come from [`Senders`], such as the pods of a simulated cluster. Then each line is also relayed, and passed to
//! another replica, which must show the same. Series end with their sender, unless rules change the labels of senders.
//!
//! `KSTATD_HISTORIES=100 cargo test --lib statsd::tests::history` runs 100 histories; `KSTATD_SEED=n` sets the first seed, and
//! `KSTATD_FIRST=1` ends them at the first violation. The table of pairs says which features were active together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use derived_names::DerivedNames;
use expiry_timer::{ExpiryTimer, Wakeups};
use features::{Feature, are_exclusive, is_of_lines};
use lifetime::Lifetime;
use many_series::ManySeries;
use many_values::ManyValues;
pub(crate) use model::Labels;
use model::{Burst, FOREVER, Key, Kind, Mapping, Model, Observed, Shape, Value};
use options::{Options, TagStyle};
use random_rules::RandomRules;
use relay_target::RelayTarget;
use senders::{Copies, DROPPED, SeriesSource};
pub(crate) use senders::{Origin, Senders, SeriesEnd};
use sets::Sets;
use spoiled::Spoiled;
use start_times::StartTimes;
use taken_name::TakenNames;
use transport::{Transport, Way};

use crate::exposition::budget::{Budget, BudgetMode};
use crate::mapper::Mapper;
use crate::statsd::ingest::{LoadedMapping, Shared};
use crate::statsd::{Clock, Offline, OfflineConfig};
use crate::tests::replay::{Journal, assert_same_in_another_process};
use crate::tests::seeds::run_all;
use crate::tests::{env_number, hash};

mod changing_type;
mod checker;
mod derived_names;
mod expiry_timer;
mod features;
mod helps;
mod known_series;
mod lifetime;
mod many_series;
mod many_values;
mod metric_count;
mod model;
mod native_buckets;
mod options;
mod pod_connections;
mod random_rules;
mod relay_target;
mod senders;
mod sets;
mod spoiled;
mod start_times;
mod taken_name;
mod transport;
mod unreadable;
mod verdict;

/// The number of steps of a history.
const STEPS: usize = 300;
/// The time in which features count as active together.
const TOGETHER: Duration = Duration::from_secs(20);
/// The value of a folded label.
const FOLDED: &str = "other";
/// The metric whose lines have several types.
const CHANGING: &str = "changing";
/// The beginnings of the names of all metrics.
pub(crate) const FAMILIES: [&str; 9] = [
    "requests_total",
    "level",
    "latency",
    sets::METRIC,
    taken_name::PREFIX,
    options::PREFIXES[0],
    options::PREFIXES[1],
    random_rules::PREFIXES[0],
    random_rules::PREFIXES[1],
];
/// The label of overflow series.
const OVERFLOW: &str = "otel_metric_overflow";

/// The outcome of a history.
pub(crate) struct Outcome {
    violation: Option<String>,
    /// The lines and scrapes so far, as hashes.
    pub(crate) journal: Vec<(&'static str, u64)>,
    pairs: BTreeSet<(Feature, Feature)>,
    scrapes: usize,
    pub(crate) lines: usize,
    seconds: u64,
}

pub(crate) struct History {
    rng: Rng,
    clock: Clock,
    now: Duration,
    offline: Offline,
    mode: BudgetMode,
    mapping: Mapping,
    /// Determines what not all mappings have, in some histories.
    variants: Option<Rng>,
    generation: u64,
    ttl: bool,
    /// The thread that removes expired series.
    timer: ExpiryTimer,
    /// A scrape follows each step.
    scrapes_each: bool,
    transport: Transport,
    /// The way of each sender.
    senders: Vec<Way>,
    model: Model,
    /// Series that have ended.
    gone: BTreeSet<Key>,
    active: BTreeMap<Feature, Duration>,
    always: Vec<Feature>,
    /// The pods that lines come from, and the receivers of copies of these.
    pods: Option<(Rc<dyn Senders>, Copies)>,
    pub(crate) outcome: Outcome,
    /// The budgets of all metrics.
    budget: Budget,
    /// The type of the metric whose lines change their type, and its life.
    changing: Option<(&'static str, Lifetime)>,
    /// Determines its lines.
    changes: Rng,
    /// Determines which values of observers are zero or negative, if any are.
    signs: Option<Rng>,
    sets: Sets,
    start_times: StartTimes,
    taken_names: TakenNames,
    derived_names: DerivedNames,
    /// The target of the relay, if there is one and lines come from no pods.
    relay: Option<RelayTarget>,
    options: Options,
    random_rules: RandomRules,
    many_values: ManyValues,
    many_series: ManySeries,
    /// The next lines have few keys.
    is_focused: bool,
    /// Determines the lines with origins that are no text, if pods send lines.
    unreadable: Option<Rng>,
    /// The malformed lines among others.
    spoiled: Spoiled,
    /// The metrics that scrapes have shown.
    metrics_seen: metric_count::Seen,
}

impl History {
    fn new(seed: u64) -> Self {
        Self::with_senders(seed, None)
    }

    /// Returns a history whose lines come from these senders.
    pub(crate) fn with_senders(seed: u64, pods: Option<Rc<dyn Senders>>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let clock = Clock::manual();
        let (ttl, histogram) = (rng.bool(), rng.bool());
        let mode = BudgetMode::ALL[rng.usize(0..3)];
        let budget = Budget {
            mode,
            series: if rng.bool() { rng.u64(25..300) } else { 0 },
            series_per_metric: if rng.bool() { rng.u64(10..120) } else { 0 },
            values_per_label: if rng.bool() { rng.u64(2..20) } else { 0 },
            ..Budget::default()
        };
        let mut mapping = Mapping::random(&mut rng, ttl, histogram);
        let mut variants = Rng::with_seed(seed ^ 0x5b9c_ca4f_7763_e373);
        let mut variants = (variants.u32(0..3) == 0).then_some(variants);
        if let Some(rng) = &mut variants {
            mapping.vary(rng);
        }
        let (sets, start_times) = (Sets::new(seed, &mapping), StartTimes::new(seed));
        let taken_names = TakenNames::new(seed, &mapping);
        let derived_names = DerivedNames::new(seed, &mapping);
        let options = Options::new(seed, &mapping, pods.is_some());
        let random_rules = RandomRules::new(seed, &mapping);
        let many_values = ManyValues::new(seed, &mapping);
        let many_series =
            ManySeries::new(seed, &mapping, mode == BudgetMode::Enforce || pods.is_some());
        let key_cache_size = if rng.u32(0..3) == 0 { 0 } else { 1 << 10 };
        let config = OfflineConfig {
            key_cache_size,
            budget: budget.clone(),
            clock: clock.clone(),
            pods: pods.as_ref().map(|pods| Arc::clone(pods.index())),
            flags: options.flags,
            keep_empty_labels: options.keep_empty_labels,
            ..OfflineConfig::default()
        };
        let names = (&taken_names, &derived_names);
        let rules = (&options, &random_rules);
        let yaml = yaml(&mapping, &sets, names, rules, (&many_values, &many_series));
        let mapper = Mapper::from_yaml(&yaml).expect("a mapping");
        let exposes_start_times = start_times.are_counted;
        let wakeups = Wakeups::default();
        let change = |shared: &mut Shared| {
            shared.registry.exposes_start_times = exposes_start_times;
            wakeups.attach(shared);
        };
        let (relay, relay_end) = match pods {
            None => RelayTarget::start(seed).unzip(),
            Some(_) => (None, None),
        };
        let (offline, pods) = match pods {
            None => {
                let with_relay = |shared: &mut Shared| {
                    change(shared);
                    shared.relay = relay_end;
                };
                (Offline::with(mapper, config, with_relay), None)
            }
            Some(pods) => {
                wakeups.attach_pods(pods.index());
                let (offline, copies) = Copies::start(mapper, config, change);
                (offline, Some((pods, copies)))
            }
        };
        let mut always = vec![match mode {
            BudgetMode::Off => Feature::BudgetOff,
            BudgetMode::Track => Feature::BudgetTrack,
            BudgetMode::Enforce => Feature::BudgetEnforce,
        }];
        let senders: Vec<Way> =
            (0..rng.usize(1..5)).map(|_| Way::ALL[rng.usize(0..Way::ALL.len())]).collect();
        let scrapes_each = ttl || pods.is_some() || rng.bool();
        always.extend(ttl.then_some(Feature::TimeToLive));
        always.extend((key_cache_size == 0).then_some(Feature::NoKeyCache));
        always.extend((senders.len() > 1).then_some(Feature::ManySenders));
        let outcome = Outcome {
            violation: None,
            journal: Vec::new(),
            pairs: BTreeSet::new(),
            scrapes: 0,
            lines: 0,
            seconds: 0,
        };
        let (model, active, now) = (Model::default(), BTreeMap::new(), Duration::ZERO);
        let (generation, transport) = (0, Transport::new(offline.shared()));
        let unreadable = Rng::with_seed(seed ^ 0x682e_6ff3_d6b2_b8a3);
        let unreadable = pods.is_some().then_some(unreadable);
        let mut signs = Rng::with_seed(seed ^ 0xab1c_5ed5_da6d_8118);
        Self {
            rng,
            clock,
            now,
            offline,
            mode,
            mapping,
            variants,
            generation,
            ttl,
            timer: ExpiryTimer::new(&wakeups),
            scrapes_each,
            transport,
            senders,
            model,
            gone: BTreeSet::new(),
            active,
            always,
            pods,
            outcome,
            budget,
            changing: None,
            changes: Rng::with_seed(seed ^ 0x5be0_cd19_137e_2179),
            signs: signs.bool().then_some(signs),
            sets,
            start_times,
            taken_names,
            derived_names,
            relay,
            options,
            random_rules,
            many_values,
            many_series,
            is_focused: false,
            unreadable,
            spoiled: Spoiled::new(seed),
            metrics_seen: metric_count::Seen::new(),
        }
    }

    /// Returns the file with the rules of all lines.
    fn yaml(&self) -> String {
        let many = (&self.many_values, &self.many_series);
        let names = (&self.taken_names, &self.derived_names);
        yaml(&self.mapping, &self.sets, names, (&self.options, &self.random_rules), many)
    }

    /// Returns the source of its series.
    pub(crate) fn source(&self) -> SeriesSource {
        SeriesSource(Arc::clone(self.offline.shared()))
    }

    /// Adds a line or a scrape to the journal.
    fn trace(&mut self, what: &'static str, bytes: &[u8]) {
        self.outcome.journal.push((what, hash(bytes)));
    }

    fn run(mut self) -> Outcome {
        for _ in 0..self.many_series.steps(STEPS) {
            let step = match self.rng.u32(0..100) {
                70..85 => self.advance(),
                choice => self.act(choice),
            };
            let step = step.and_then(|()| if self.scrapes_each { self.scrape() } else { Ok(()) });
            if let Err(why) = step {
                let at = self.now.as_secs_f64();
                self.outcome.violation = Some(format!("after {at:.1} s {why}\n{}", self.yaml()));
                break;
            }
        }
        if let (Some(target), Some(relay)) = (&mut self.relay, &self.offline.shared().relay)
            && self.outcome.violation.is_none()
        {
            self.outcome.violation = target.end(relay).err();
        }
        self.outcome.seconds = self.now.as_secs();
        self.outcome
    }

    /// Sends lines, reloads or scrapes.
    fn act(&mut self, choice: u32) -> Result<(), String> {
        if self.taken_names.changes() {
            self.take_names();
        }
        match choice {
            0..85 => self.line(),
            85..90 => {
                self.reload();
                Ok(())
            }
            _ => self.scrape(),
        }
    }

    /// Performs a step at this time, after a check of what has ended since the last one. The usual lines are those of one service and
    /// one user, with a tag, if it `is_focused`, so that they have few keys.
    pub(crate) fn step(&mut self, now: Duration, is_focused: bool) -> Result<(), String> {
        self.is_focused = is_focused;
        self.advance_to(now)?;
        self.compare()?;
        let choice = self.rng.u32(0..100);
        self.act(choice)
    }

    fn advance(&mut self) -> Result<(), String> {
        let jumps = self.rng.u32(0..8) == 0;
        let millis = self.rng.u64(if jumps { 60_000..4_000_000 } else { 1..2_500 });
        self.advance_to(self.now + Duration::from_millis(millis))?;
        if jumps {
            self.used(Feature::ClockJump);
        }
        Ok(())
    }

    /// Lets time pass.
    fn advance_to(&mut self, now: Duration) -> Result<(), String> {
        self.clock.advance(now - self.now);
        self.now = now;
        self.expire();
        self.relay.as_mut().map_or(Ok(()), |relay| relay.advance_to(now))
    }

    /// Removes series that have expired, and those that end with their sender. The replica, which has the same series, does so at the
    /// same time.
    fn expire(&mut self) {
        let has_run = self.timer.run(self.offline.shared());
        if let Some((_, copies)) = self.pods.as_ref().filter(|_| has_run) {
            copies.expire(&self.offline);
        }
    }

    fn reload(&mut self) {
        if self.rng.u32(0..6) == 0 {
            self.used(Feature::BrokenReload);
            assert!(
                Mapper::from_yaml("mappings: [{match: '*', name: 'a', limits: {series: x}}]")
                    .is_err()
            );
            return;
        }
        let mut next = Mapping::random(&mut self.rng, self.ttl, self.mapping.histogram);
        if let Some(rng) = &mut self.variants {
            next.vary(rng);
        }
        let lower = |next: Option<u64>, before: Option<u64>| {
            next.is_some_and(|next| before.is_none_or(|before| next < before))
        };
        self.used(Feature::Reload);
        if lower(next.series, self.mapping.series) || lower(next.values, self.mapping.values) {
            self.used(Feature::ReloadLowersLimits);
        }
        if next.by_user != self.mapping.by_user {
            self.used(Feature::ReloadChangesLabels);
        }
        self.mapping = next;
        self.sets.reload(&self.mapping);
        self.taken_names.reload(&self.mapping);
        self.derived_names.reload(&self.mapping);
        self.options.reload(&self.mapping);
        self.random_rules.reload(&self.mapping);
        self.many_values.reload(&self.mapping);
        self.many_series.reload(&self.mapping);
        self.generation += 1;
        let mapper = Arc::new(Mapper::from_yaml(&self.yaml()).expect("a mapping"));
        let replica = self.pods.as_ref().map(|(_, copies)| copies.replica());
        for offline in [&self.offline].into_iter().chain(replica) {
            let mapping = &offline.shared().mapping;
            let before = mapping.load_full();
            let loaded = LoadedMapping::new(Arc::clone(&mapper), self.generation, Some(&before));
            mapping.store(Arc::new(loaded));
        }
    }

    /// Sends lines this way, or from one of the pods if there are any. Returns the reasons for rejections and the labels of
    /// the pod.
    fn send(
        &mut self,
        way: Option<Way>,
        lines: &[String],
    ) -> Result<(Vec<&'static str>, Labels), String> {
        if self.pods.is_some() {
            return self.send_with(way.is_none().then(String::new), lines);
        }
        let spoiled = if way.is_some() { self.spoiled.among(lines) } else { Vec::new() };
        let lines = if spoiled.is_empty() { lines } else { &spoiled };
        let before = self.offline.shared().metrics.rejections();
        let mut is_preceded = false;
        if let Some(way) = way {
            self.used(match way {
                Way::Worker(_) => Feature::Workers,
                Way::Udp => Feature::Udp,
                Way::Unixgram => Feature::Unixgram,
                Way::Tcp => Feature::Tcp,
            });
            let may_be_preceded = self.relay.is_none() && spoiled.is_empty();
            is_preceded = self.transport.send(way, lines, may_be_preceded, &mut self.rng)?;
        } else {
            lines.iter().for_each(|line| drop(self.offline.line(line.as_bytes())));
        }
        if let Some(relay) = &mut self.relay {
            relay.sent(lines)?;
        }
        self.trace("lines", lines.join("\n").as_bytes());
        let mut reasons = self.offline.reasons_since(&before);
        if is_preceded {
            senders::leave_out_dropped(&mut reasons);
        }
        if !spoiled.is_empty() {
            self.used(Feature::Garbage);
            let after = self.offline.shared().metrics.rejections();
            self.spoiled.check(&before, &after).map_err(|why| format!("{lines:?}: {why}"))?;
            reasons.retain(|reason| !self.spoiled.explains(reason));
        }
        Ok((reasons, Labels::new()))
    }

    /// Sends a line and compares its verdict with the model.
    fn line(&mut self) -> Result<(), String> {
        let rng = &mut self.rng;
        if rng.u32(0..15) == 0 {
            return self.line_of_garbage();
        }
        if rng.u32(0..20) == 0 {
            self.used(Feature::DroppedByRule);
            let (reasons, _) = self.send(None, &[DROPPED.to_owned()])?;
            return match &reasons[..] {
                [] | ["dropped_by_rule" | "dropped"] => Ok(()),
                other => Err(format!("a line that a rule drops has the causes {other:?}")),
            };
        }
        // The series of pods end with these.
        if self.pods.is_none() && self.changes.u32(0..12) == 0 {
            return self.line_of_changing_type();
        }
        if self.pods.is_none() && self.many_values.is_next() {
            return self.lines_of_many_values();
        }
        if self.relay.as_mut().is_some_and(RelayTarget::overflows) {
            return self.lines_beyond_queue();
        }
        if self.pods.is_none() && self.derived_names.is_next() {
            return self.line_with_derived_name();
        }
        if self.many_series.are_next() {
            return self.lines_of_many_series();
        }
        if self.unreadable.as_mut().is_some_and(|rng| rng.u32(0..15) == 0) {
            return self.line_with_unreadable_origin();
        }
        if self.sets.is_next() {
            return self.line_of_set();
        }
        if self.taken_names.is_next() {
            return self.line_with_taken_name();
        }
        if self.options.is_next() {
            return self.line_with_options();
        }
        if self.random_rules.are_next() {
            return self.line_of_random_rules();
        }
        let rng = &mut self.rng;
        let kind = Kind::ALL[rng.usize(0..3)];
        // Pods multiply the series.
        let users = if self.pods.is_some() { 4 } else { 12 };
        let (service, user) = match self.is_focused {
            true => (0, 0),
            false => (rng.u32(0..3), rng.u32(0..users)),
        };
        let sender = if self.is_focused { 0 } else { rng.usize(0..self.senders.len()) };
        let way = self.senders[sender];
        // Only with tags such a line is known by its key although it states the UID of its pod.
        let tag = (self.is_focused || rng.u32(0..4) == 0).then(|| format!("s{sender}"));
        let is_sampled = kind != Kind::Gauge && rng.u32(0..4) == 0;
        let count = if rng.u32(0..3) == 0 { rng.usize(2..7) } else { 1 };
        let (weight, rate) = match is_sampled {
            false => (1.0, ""),
            true => [(2.0, "|@0.5"), (8.0, "|@0.125")][self.outcome.lines % 2],
        };
        let style = match self.is_focused {
            true => TagStyle::DogStatsd,
            false => TagStyle::ALL[rng.usize(0..TagStyle::ALL.len())],
        };
        let tag = tag.filter(|_| self.options.reads(style));
        let (of_name, of_line) = tag.as_ref().map_or_else(Default::default, |tag| style.texts(tag));
        let (suffix, unit) = match (kind, rng.u32(0..3)) {
            (Kind::Counter, _) => ("c", 1.0),
            (Kind::Gauge, _) => ("g", 1.0),
            (Kind::Observer, 0) => ("h", 1.0),
            (Kind::Observer, 1) => ("d", 1.0),
            (Kind::Observer, _) => ("ms", 1_000.0),
        };
        let name = format!("{}.v{service}.u{user}{of_name}", kind.letter());
        // Distributions of DogStatsD have several values with one type; others have several samples, without fields of
        // DogStatsD such as those that pods state.
        let separator = match kind {
            Kind::Observer => Some(":".to_owned()),
            _ if self.pods.is_some() => None,
            _ => of_line.is_empty().then(|| format!("|{suffix}{rate}:")),
        };
        let separator = separator.filter(|_| count > 1 && rng.u32(0..3) == 0);
        let scale = self.mapping.scale(kind);
        let (mut numbers, mut values) = (Vec::new(), Vec::new());
        let (mut observed, mut sum) = (Vec::new(), 0.0);
        let mut has_delta = false;
        for _ in 0..count {
            let mut number = f64::from(rng.u32(1..50));
            if let Some(signs) = self.signs.as_mut().filter(|_| kind == Kind::Observer) {
                number *= [1.0, 1.0, 1.0, -1.0, -1.0, 0.0][signs.usize(0..6)];
            }
            let sign = match kind {
                Kind::Gauge => ["", "", "", "+", "-"][rng.usize(0..5)],
                _ => "",
            };
            has_delta |= !sign.is_empty();
            numbers.push(format!("{sign}{number}"));
            let number = scale * number;
            sum += weight * number / unit;
            if kind == Kind::Observer {
                observed.push(Observed { value: number / unit, weight, at: self.now });
            }
            values.push(match (kind, sign) {
                (Kind::Counter, _) => Value::Add(weight * number),
                (Kind::Observer, _) => Value::Add(weight),
                (_, "") => Value::Set(number),
                (_, "+") => Value::Add(number),
                _ => Value::Add(-number),
            });
        }
        if let Some(separator) = &separator {
            numbers = vec![numbers.join(separator)];
        }
        let lines = numbers.iter().map(|number| format!("{name}:{number}|{suffix}{rate}{of_line}"));
        let lines: Vec<String> = lines.collect();
        self.outcome.lines += lines.len();
        self.used(match kind {
            Kind::Counter => Feature::Counter,
            Kind::Gauge if has_delta => Feature::GaugeDelta,
            Kind::Gauge => Feature::Gauge,
            Kind::Observer if self.mapping.histogram => Feature::Histogram,
            Kind::Observer => Feature::Summary,
        });
        let others = [
            (self.mapping.is_by_specificity(), Feature::Specificity),
            (tag.is_some(), Feature::Tags),
            (is_sampled, Feature::Sampled),
            (count > 1, Feature::Burst),
            (separator.is_some(), Feature::Packed),
            (scale != 1.0, Feature::Scale),
        ];
        others.iter().filter(|(is_used, _)| *is_used).for_each(|(_, each)| self.used(*each));
        let mut labels = self.mapping.labels(kind, service, user);
        labels.extend(tag.map(|tag| ("sender".to_owned(), tag)));
        let (reasons, own) = self.send(Some(way), &lines)?;
        self.mapping.add_labels_of_sender(&mut labels, own);
        let ttl = Duration::from_secs(self.mapping.ttl);
        let shape = if kind == Kind::Observer { self.mapping.shape() } else { Shape::default() };
        let burst = Burst { kind, labels, values, at: self.now, ttl, shape, observed };
        self.verdict(burst, sum, &reasons).map_err(|why| format!("{lines:?} over {way:?}: {why}"))
    }
}

/// Returns the file with the rules of all lines.
fn yaml(
    mapping: &Mapping,
    sets: &Sets,
    (names, derived): (&TakenNames, &DerivedNames),
    (options, random): (&Options, &RandomRules),
    (values, series): (&ManyValues, &ManySeries),
) -> String {
    let rules = [
        mapping.yaml(),
        sets.yaml(),
        names.yaml(),
        derived.yaml(),
        options.yaml(),
        random.yaml(),
        values.yaml(),
        series.yaml(),
    ];
    let yaml = options.defaults() + mapping.defaults() + &rules.concat();
    yaml.replace(&format!("ttl: {FOREVER}s"), "ttl: 0s")
}

/// Returns true if a number is within a budget.
fn fits(count: usize, limit: u64) -> bool {
    limit == 0 || count as u64 <= limit
}

/// In any history each scrape is what the accepted lines make it, and each pair of features was active together.
#[test]
fn random_histories() {
    let (first, count) = (env_number("KSTATD_SEED").unwrap_or(1), env_number("KSTATD_HISTORIES"));
    let count = count.unwrap_or(100);
    let (mut wrong, mut pairs) = (String::new(), BTreeSet::new());
    let (mut scrapes, mut lines, mut seconds) = (0, 0, 0);
    let run = |seed| History::new(seed).run();
    for (seed, outcome) in run_all(first..first + count, run, |one| one.violation.is_some()) {
        pairs.extend(outcome.pairs);
        scrapes += outcome.scrapes;
        lines += outcome.lines;
        seconds += outcome.seconds;
        if let Some(violation) = outcome.violation {
            let _ = writeln!(wrong, "KSTATD_SEED={seed}: {violation}");
        }
    }
    println!(
        "{count} histories, {seconds} s of simulated time, {lines} lines, {scrapes} scrapes, {} pairs of features",
        pairs.len()
    );
    assert!(wrong.is_empty(), "\n{wrong}");
    if count < 100 {
        return;
    }
    let mut missing = Vec::new();
    let features: Vec<Feature> = Feature::ALL.into_iter().filter(|one| is_of_lines(*one)).collect();
    for (at, &one) in features.iter().enumerate() {
        for &other in &features[at + 1..] {
            if !pairs.contains(&(one, other)) && !are_exclusive(one, other) {
                missing.push((one, other));
            }
        }
    }
    assert!(missing.is_empty(), "never active together: {missing:?}");
}

/// A seed determines each line and each scrape: two processes do the same to the byte.
#[test]
fn a_seed_determines_the_history() {
    let journal = |seed| {
        let history = History::new(seed);
        let steps = history.many_series.steps(STEPS);
        let journal = history.run().journal;
        assert!(journal.len() > steps / 2, "seed {seed}");
        Journal { seed, lines: journal.iter().map(|line| format!("{line:?}")).collect() }
    };
    assert_same_in_another_process(
        concat!(module_path!(), "::a_seed_determines_the_history"),
        || (1..=20).map(journal).collect(),
    );
}
