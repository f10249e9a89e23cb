//! Random histories of StatsD lines: senders over each kind of socket, reloads of the mapping, budgets, expiry and scrapes on
//! a simulated clock.
//!
//! A seed determines everything. A model computes what each scrape must show:
//!
//! - The sum over all series of a counter is the sum of the accepted values, and likewise the count of an observer, however
//!   rules, limits and labels change. Counters and observers that exist lose no sample to budgets.
//! - A gauge has the value of its last accepted line.
//! - Between two scrapes, accepted lines change the series that has their labels, or the one they are folded into, and no
//!   other one.
//! - A series is there until its time to live is over, and not longer. Then its budget is free.
//! - A rejected line has a cause that fits: garbage is named so, and a valid line is rejected only by a budget.
//! - No series is there twice, and each format has the same samples.
//!
//! Lines may come from [`Senders`], such as the pods of a simulated cluster. Then each line is also relayed, and passed to
//! another replica, which must show the same.
//!
//! `KSTATD_HISTORIES=100 cargo test --lib statsd::history` runs 100 histories; `KSTATD_SEED=n` sets the first seed, and
//! `KSTATD_FIRST=1` ends them at the first violation. The table of pairs says which features were active together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use senders::{Copies, SeriesSource};
pub(crate) use senders::{Origin, Senders, SeriesEnd};
use transport::{Transport, Way};

use super::ingest::LoadedMapping;
use super::line::ParserFlags;
use super::{Clock, Offline, OfflineConfig};
use crate::exposition::budget::{Budget, BudgetMode};
use crate::exposition::tests::samples::{self, Samples};
use crate::exposition::{Format, ScrapeQuery};
use crate::mapper::Mapper;
use crate::tests::{env_number, hash};
use crate::util::words::words;

mod senders;
mod transport;

/// The number of steps of a history.
const STEPS: usize = 300;
/// The time in which features count as active together.
const TOGETHER: Duration = Duration::from_secs(20);
/// The time by which a series may end before its time to live is over: two ticks, because both ends are rounded.
const EARLY: Duration = Duration::from_millis(200);
/// The time by which it may end later: series end in groups, one each second.
const LATE: Duration = Duration::from_millis(1_200);

words! {
    /// What a history may use.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Feature {
        BudgetOff = "budget off",
        BudgetTrack = "budget track",
        BudgetEnforce = "budget enforce",
        RuleLimits = "rule limits",
        Folding = "folding",
        Reload = "reload",
        ReloadLowersLimits = "reload lowers limits",
        ReloadChangesLabels = "reload changes labels",
        BrokenReload = "broken reload",
        TimeToLive = "time to live",
        Expiry = "expiry",
        Reappearance = "reappearance",
        Counter = "counter",
        Sampled = "sampled",
        Gauge = "gauge",
        GaugeDelta = "gauge delta",
        Summary = "summary",
        Histogram = "histogram",
        Tags = "tags",
        DroppedByRule = "dropped by rule",
        Garbage = "garbage",
        ManySenders = "many senders",
        Burst = "burst",
        Udp = "UDP",
        Unixgram = "Unix socket",
        Tcp = "TCP",
        Workers = "several workers",
        NoKeyCache = "no key cache",
        OpenMetrics = "open metrics",
        Protobuf = "protobuf",
        ClockJump = "clock jump",
        Enriched = "enriched",
        UnknownSender = "unknown sender",
        SenderEnd = "end of a sender",
    }
}

/// Returns true if the histories without a cluster have the feature.
fn is_of_lines(feature: Feature) -> bool {
    !matches!(feature, Feature::Enriched | Feature::UnknownSender | Feature::SenderEnd)
}

/// Returns whether two features exclude each other.
fn are_exclusive(one: Feature, other: Feature) -> bool {
    use Feature::{BudgetEnforce, BudgetOff, BudgetTrack, Folding, Histogram, Summary};
    let modes = [BudgetOff, BudgetTrack, BudgetEnforce];
    let is_without = |feature| matches!(feature, BudgetOff | BudgetTrack);
    [Summary, Histogram] == [one, other]
        || modes.contains(&one) && modes.contains(&other)
        || is_without(one) && other == Folding
        || is_without(other) && one == Folding
}

/// One version of the mapping.
#[derive(Clone, Debug)]
struct Mapping {
    /// The label `user` is kept.
    by_user: bool,
    /// The limit of values of `user`, if any.
    values: Option<u64>,
    /// The limit of series of a metric, if any.
    series: Option<u64>,
    /// The time to live in seconds; 0 means for ever.
    ttl: u64,
    histogram: bool,
}

impl Mapping {
    fn random(rng: &mut Rng, ttl: bool, histogram: bool) -> Self {
        Self {
            by_user: rng.u32(0..4) > 0,
            values: rng.bool().then(|| rng.u64(1..6)),
            series: rng.bool().then(|| rng.u64(2..12)),
            ttl: if ttl { rng.u64(2..9) } else { 0 },
            histogram,
        }
    }

    fn yaml(&self) -> String {
        let user = if self.by_user { ", user: $2" } else { "" };
        let mut limits = String::new();
        if let Some(series) = self.series {
            let _ = write!(limits, " series: {series},");
        }
        if let Some(values) = self.values {
            let _ = write!(limits, " values_per_label: {values},");
        }
        let limits = match limits.trim_end_matches(',') {
            "" => String::new(),
            limits => format!("  limits: {{{limits} }}\n"),
        };
        let observer = if self.histogram { "histogram" } else { "summary" };
        let rule = |kind: &str, name: &str| {
            format!(
                "- match: {kind}.*.*\n  name: {name}\n  ttl: {}s\n  labels: {{service: $1{user}}}\n{limits}",
                self.ttl
            )
        };
        format!(
            "mappings:\n{}{}{}  observer_type: {observer}\n- match: drop.*\n  action: drop\n  name: d\n",
            rule("c", "requests_total"),
            rule("g", "level"),
            rule("t", "latency"),
        )
    }
}

/// The kinds of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Counter,
    Gauge,
    Observer,
}

/// The labels of a series.
pub(crate) type Labels = BTreeMap<String, String>;

/// The identity of a series.
type Key = (Kind, Labels);

/// A series as the model knows it.
#[derive(Clone, Debug)]
struct Known {
    value: f64,
    touched: Duration,
    /// The time to live that it was created with.
    ttl: Duration,
}

impl Known {
    /// Returns the series after a burst, which may have created it.
    fn after(before: Option<&Self>, burst: &Burst) -> Self {
        let (value, ttl) = before.map_or((0.0, burst.ttl), |before| (before.value, before.ttl));
        Self { value: burst.applied_to(value), touched: burst.at, ttl }
    }
}

/// Lines with one key that were sent at once.
#[derive(Debug)]
struct Burst {
    kind: Kind,
    labels: Labels,
    values: Vec<Value>,
    at: Duration,
    /// The time to live of the rule.
    ttl: Duration,
}

/// The effect of a line on the value of its series.
#[derive(Clone, Copy, Debug)]
enum Value {
    Set(f64),
    Add(f64),
}

impl Burst {
    fn applied_to(&self, value: f64) -> f64 {
        self.values.iter().fold(value, |value, change| match change {
            Value::Set(new) => *new,
            Value::Add(amount) => value + amount,
        })
    }
}

/// What must be exposed.
#[derive(Debug, Default)]
struct Model {
    /// The series that were created under their own labels, if nothing folds.
    series: BTreeMap<Key, Known>,
    /// The accepted sum of each family without the series that ended with their sender, while nothing expires.
    sums: BTreeMap<&'static str, f64>,
    /// A series has ended with its sender.
    has_ended: bool,
    /// The series of the last scrape.
    shown: BTreeMap<Key, Known>,
    /// The number of samples in the last scrape.
    samples: usize,
    /// The accepted lines since the last scrape.
    burst: Option<Burst>,
}

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
    generation: u64,
    ttl: bool,
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
            series: if rng.bool() { rng.u64(150..400) } else { 0 },
            series_per_metric: if rng.bool() { rng.u64(10..120) } else { 0 },
            values_per_label: if rng.bool() { rng.u64(2..20) } else { 0 },
            ..Budget::default()
        };
        let mapping = Mapping::random(&mut rng, ttl, histogram);
        let key_cache_size = if rng.u32(0..3) == 0 { 0 } else { 1 << 10 };
        let config = OfflineConfig {
            key_cache_size,
            budget,
            clock: clock.clone(),
            pods: pods.as_ref().map(|pods| Arc::clone(pods.index())),
            flags: ParserFlags { origins: pods.is_some(), ..ParserFlags::default() },
            ..OfflineConfig::default()
        };
        let mapper = Mapper::from_yaml(&mapping.yaml()).expect("a mapping");
        let (offline, pods) = match pods {
            None => (Offline::new(mapper, config), None),
            Some(pods) => {
                let (offline, copies) = Copies::start(mapper, config);
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
        Self {
            rng,
            clock,
            now,
            offline,
            mode,
            mapping,
            generation,
            ttl,
            scrapes_each,
            transport,
            senders,
            model,
            gone: BTreeSet::new(),
            active,
            always,
            pods,
            outcome,
        }
    }

    /// Returns the source of its series.
    pub(crate) fn source(&self) -> SeriesSource {
        SeriesSource(Arc::clone(self.offline.shared()))
    }

    fn used(&mut self, feature: Feature) {
        self.active.insert(feature, self.now);
    }

    /// Adds a line or a scrape to the journal.
    fn trace(&mut self, what: &'static str, bytes: &[u8]) {
        self.outcome.journal.push((what, hash(bytes)));
    }

    fn run(mut self) -> Outcome {
        for _ in 0..STEPS {
            let step = match self.rng.u32(0..100) {
                70..85 => {
                    self.advance();
                    Ok(())
                }
                choice => self.act(choice),
            };
            let step = step.and_then(|()| if self.scrapes_each { self.scrape() } else { Ok(()) });
            if let Err(why) = step {
                let at = self.now.as_secs_f64();
                self.outcome.violation =
                    Some(format!("after {at:.1} s {why}\n{}", self.mapping.yaml()));
                break;
            }
        }
        self.outcome.seconds = self.now.as_secs();
        self.outcome
    }

    /// Sends lines, reloads or scrapes.
    fn act(&mut self, choice: u32) -> Result<(), String> {
        match choice {
            0..85 => self.line(),
            85..90 => {
                self.reload();
                Ok(())
            }
            _ => self.scrape(),
        }
    }

    /// Performs a step at this time, after a check of what has ended since the last one.
    pub(crate) fn step(&mut self, now: Duration) -> Result<(), String> {
        self.advance_to(now);
        self.compare()?;
        let choice = self.rng.u32(0..100);
        self.act(choice)
    }

    /// Returns the features that have been in use lately.
    pub(crate) fn recent_features(&self) -> impl Iterator<Item = &'static str> {
        let recent = self.active.iter().filter(|(_, at)| self.now - **at <= TOGETHER);
        recent.map(|(feature, _)| feature).chain(&self.always).map(|feature| feature.as_str())
    }

    fn advance(&mut self) {
        let jumps = self.rng.u32(0..20) == 0;
        let millis = self.rng.u64(if jumps { 60_000..4_000_000 } else { 1..2_500 });
        self.advance_to(self.now + Duration::from_millis(millis));
        if jumps {
            self.used(Feature::ClockJump);
        }
    }

    /// Lets time pass.
    fn advance_to(&mut self, now: Duration) {
        self.clock.advance(now - self.now);
        self.now = now;
        self.expire();
    }

    /// Removes series that have expired, and those that end with their sender.
    fn expire(&self) {
        let Some((pods, copies)) = &self.pods else { return self.offline.expire() };
        // The index, which the replica shares, returns labels out of use once.
        let (unused, _) = pods.index().advance();
        for registry in [&self.offline, copies.replica()].map(|of| &of.shared().registry) {
            registry.expire();
            registry.end_senders(&unused);
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
        let next = Mapping::random(&mut self.rng, self.ttl, self.mapping.histogram);
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
        self.generation += 1;
        let mapper = Arc::new(Mapper::from_yaml(&self.mapping.yaml()).expect("a mapping"));
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
        let before = self.offline.shared().metrics.rejections();
        let (mut labels, mut about) = (Labels::new(), lines.join("\n"));
        if let Some((pods, copies)) = &mut self.pods {
            let mut origin = pods.next(&mut self.rng);
            if way.is_none() {
                origin.claim.clear();
            }
            (labels, about) = copies.send(&mut self.offline, &**pods, &origin, lines)?;
            self.used(if labels.is_empty() { Feature::UnknownSender } else { Feature::Enriched });
        } else if let Some(way) = way {
            self.used(match way {
                Way::Worker(_) => Feature::Workers,
                Way::Udp => Feature::Udp,
                Way::Unixgram => Feature::Unixgram,
                Way::Tcp => Feature::Tcp,
            });
            self.transport.send(way, lines, &mut self.rng);
        } else {
            lines.iter().for_each(|line| drop(self.offline.line(line.as_bytes())));
        }
        self.trace("lines", about.as_bytes());
        Ok((self.offline.reasons_since(&before), labels))
    }

    /// Sends a line and compares its verdict with the model.
    fn line(&mut self) -> Result<(), String> {
        let rng = &mut self.rng;
        if rng.u32(0..15) == 0 {
            let garbage = ["a", "a:b|c", ":1|c", "a:1|", "a:1|zz", "a:|g"];
            let line = garbage[rng.usize(0..garbage.len())];
            self.used(Feature::Garbage);
            let (reasons, _) = self.send(None, &[line.to_owned()])?;
            return if reasons.is_empty() { Err(format!("{line} has no cause")) } else { Ok(()) };
        }
        if rng.u32(0..20) == 0 {
            self.used(Feature::DroppedByRule);
            let (reasons, _) = self.send(None, &["drop.x:1|c".to_owned()])?;
            return match &reasons[..] {
                [] | ["dropped_by_rule" | "dropped"] => Ok(()),
                other => Err(format!("a line that a rule drops has the causes {other:?}")),
            };
        }
        let kind = [Kind::Counter, Kind::Gauge, Kind::Observer][rng.usize(0..3)];
        // Pods multiply the series.
        let users = if self.pods.is_some() { 4 } else { 12 };
        let (service, user) = (rng.u32(0..3), rng.u32(0..users));
        let sender = rng.usize(0..self.senders.len());
        let way = self.senders[sender];
        let tag = (rng.u32(0..4) == 0).then(|| format!("s{sender}"));
        let is_sampled = kind != Kind::Gauge && rng.u32(0..4) == 0;
        let count = if rng.u32(0..3) == 0 { rng.usize(2..7) } else { 1 };
        let tags = tag.as_ref().map_or(String::new(), |tag| format!("|#sender:{tag}"));
        let (letter, suffix) = match kind {
            Kind::Counter => ("c", "c"),
            Kind::Gauge => ("g", "g"),
            Kind::Observer => ("t", "ms"),
        };
        let (mut lines, mut values, mut sum) = (Vec::new(), Vec::new(), 0.0);
        let mut has_delta = false;
        for _ in 0..count {
            let number = f64::from(rng.u32(1..50));
            let weight = if is_sampled { 2.0 } else { 1.0 };
            let sign = match kind {
                Kind::Gauge => ["", "", "", "+", "-"][rng.usize(0..5)],
                _ => "",
            };
            has_delta |= !sign.is_empty();
            let rate = if is_sampled { "|@0.5" } else { "" };
            lines.push(format!("{letter}.v{service}.u{user}:{sign}{number}|{suffix}{rate}{tags}"));
            sum += weight * number;
            values.push(match (kind, sign) {
                (Kind::Counter, _) => Value::Add(weight * number),
                (Kind::Observer, _) => Value::Add(weight),
                (_, "") => Value::Set(number),
                (_, "+") => Value::Add(number),
                _ => Value::Add(-number),
            });
        }
        self.outcome.lines += count;
        self.used(match kind {
            Kind::Counter => Feature::Counter,
            Kind::Gauge if has_delta => Feature::GaugeDelta,
            Kind::Gauge => Feature::Gauge,
            Kind::Observer if self.mapping.histogram => Feature::Histogram,
            Kind::Observer => Feature::Summary,
        });
        let others = [
            (tag.is_some(), Feature::Tags),
            (is_sampled, Feature::Sampled),
            (count > 1, Feature::Burst),
        ];
        others.iter().filter(|(is_used, _)| *is_used).for_each(|(_, each)| self.used(*each));
        let mut labels = Labels::from([("service".to_owned(), format!("v{service}"))]);
        if self.mapping.by_user {
            labels.insert("user".to_owned(), format!("u{user}"));
        }
        labels.extend(tag.map(|tag| ("sender".to_owned(), tag)));
        let (reasons, own) = self.send(Some(way), &lines)?;
        labels.extend(own);
        let ttl = Duration::from_secs(self.mapping.ttl);
        let burst = Burst { kind, labels, values, at: self.now, ttl };
        self.verdict(burst, sum, &reasons).map_err(|why| format!("{lines:?} over {way:?}: {why}"))
    }

    /// Takes the verdict about valid lines into the model. `sum` is the sum of their numbers.
    fn verdict(&mut self, burst: Burst, sum: f64, reasons: &[&str]) -> Result<(), String> {
        let is_budget = |reason: &&str| matches!(*reason, "series_limit" | "label_limit");
        let is_rejected = !reasons.is_empty();
        if is_rejected && (self.mode != BudgetMode::Enforce || !reasons.iter().all(is_budget)) {
            return Err(format!("rejected for {reasons:?}"));
        }
        let (kind, key) = (burst.kind, (burst.kind, burst.labels.clone()));
        let sums: &[(&str, f64)] = match kind {
            Kind::Counter => &[("requests_total", burst.applied_to(0.0))],
            Kind::Gauge => &[],
            Kind::Observer => {
                &[("latency_count", burst.applied_to(0.0)), ("latency_sum", sum / 1_000.0)]
            }
        };
        let exists = match kind {
            Kind::Gauge => self.model.series.contains_key(&key),
            Kind::Counter | Kind::Observer => self.model.sums.contains_key(sums[0].0),
        };
        if is_rejected && exists && !self.ttl && !self.model.has_ended {
            return Err(format!("rejected for {reasons:?}, although its metric exists"));
        }
        if is_rejected && self.model.shown.contains_key(&key) {
            return Err(format!("rejected for {reasons:?}, although its series exists"));
        }
        if is_rejected && self.has_room(kind) {
            return Err(format!("rejected for {reasons:?}, although its metric has no series"));
        }
        if is_rejected {
            return Ok(());
        }
        for (family, amount) in sums {
            *self.model.sums.entry(family).or_default() += amount;
        }
        if self.gone.contains(&key) {
            self.used(Feature::Reappearance);
        }
        let known = Known::after(self.model.series.get(&key), &burst);
        self.model.series.insert(key, known);
        self.model.burst = Some(burst);
        Ok(())
    }

    /// Returns true if a series of this kind is certainly within the budgets, because there is no other one.
    fn has_room(&self, kind: Kind) -> bool {
        self.scrapes_each
            && kind != Kind::Observer
            && self.model.samples < 100
            && self.model.shown.keys().all(|(of, _)| *of != kind)
    }

    /// Compares a scrape, also in another format, and the copies of lines with the model.
    fn scrape(&mut self) -> Result<(), String> {
        let (text, samples) = self.compare()?;
        if self.rng.u32(0..3) == 0 {
            self.same_in_other_format(&ScrapeQuery::default(), &samples)?;
        }
        match &mut self.pods {
            Some((_, copies)) => copies.check(&self.offline, &text),
            None => Ok(()),
        }
    }

    /// Compares a scrape as text with the model. Returns it with its samples.
    fn compare(&mut self) -> Result<(Vec<u8>, Samples), String> {
        self.outcome.scrapes += 1;
        self.expire();
        let query = ScrapeQuery::default();
        let text: Vec<u8> = self.offline.frames(Format::Text, &query).flatten().collect();
        self.trace("text", &text);
        let samples = samples::of_text(&text)?;
        let shown = series(&samples)?;
        if self.mode != BudgetMode::Enforce {
            self.each_series(&shown)?;
        }
        if self.scrapes_each {
            self.changes(&shown)?;
            self.model.samples = samples.len();
        }
        if !self.ttl {
            for (family, &sum) in &self.model.sums {
                let values = samples.iter().filter(|((name, _), _)| name == family);
                let values = values.map(|(_, value)| value.parse().unwrap_or(f64::NAN));
                let has: f64 = values.sum();
                // The model does not know the sums of the observers that have ended.
                let is_known = !self.model.has_ended || *family != "latency_sum";
                if is_known && !((has - sum).abs() < 1e-6) {
                    let text = String::from_utf8_lossy(&text);
                    return Err(format!("{family} has {has} of {sum}\n{text}"));
                }
            }
            for ((kind, labels), known) in &self.model.series {
                let value = shown.get(&(*kind, labels.clone()));
                if *kind == Kind::Gauge && value != Some(&known.value) {
                    let (text, wanted) = (String::from_utf8_lossy(&text), known.value);
                    return Err(format!("{labels:?} is {value:?}, not {wanted}\n{text}"));
                }
            }
        }
        let folds = |(_, labels): &(Kind, Labels)| labels.values().any(|value| value == "other");
        if shown.keys().any(folds) {
            self.used(Feature::Folding);
        }
        self.count_pairs();
        Ok((text, samples))
    }

    /// Returns the end of a series with its sender.
    fn sender_end(&self, labels: &Labels) -> SeriesEnd {
        self.pods.as_ref().map_or(SeriesEnd::default(), |(pods, _)| pods.end(labels))
    }

    /// Returns true if a series may have ended.
    fn may_end(&self, (_, labels): &Key, known: &Known) -> bool {
        self.ttl && self.now + EARLY >= known.touched + known.ttl || self.sender_end(labels).may
    }

    /// Returns true if a series must have ended.
    fn must_end(&self, (_, labels): &Key, known: &Known) -> bool {
        self.ttl && self.now > known.touched + known.ttl + LATE || self.sender_end(labels).must
    }

    /// Compares the samples in another format.
    fn same_in_other_format(
        &mut self,
        query: &ScrapeQuery,
        expected: &Samples,
    ) -> Result<(), String> {
        let (format, body) = if self.rng.bool() {
            self.used(Feature::OpenMetrics);
            let body: Vec<u8> = self.offline.frames(Format::OpenMetrics, query).flatten().collect();
            ("OpenMetrics", body)
        } else {
            self.used(Feature::Protobuf);
            ("protobuf", self.offline.protobuf_frames(query).flatten().collect())
        };
        self.trace(format, &body);
        let is_text = format == "OpenMetrics";
        let other = if is_text { samples::of_text(&body) } else { samples::of_messages(&body) };
        let other = other.map_err(|why| format!("{format}: {why}"))?;
        let differs = |(key, value): &(&samples::Key, &String)| other.get(key) != Some(value);
        match expected.iter().find(differs) {
            Some((key, value)) => {
                Err(format!("{key:?} is {value}, in {format} {:?}", other.get(key)))
            }
            None if other.len() > expected.len() => Err(format!("more samples in {format}")),
            None => Ok(()),
        }
    }

    /// Without folding, each series is exposed with its value until its time is over.
    fn each_series(&mut self, shown: &BTreeMap<Key, f64>) -> Result<(), String> {
        let now = self.now;
        let mut ended = false;
        for (key, known) in &self.model.series {
            let ends = known.touched + known.ttl;
            let value = shown.get(key);
            ended |= value.is_none() && self.ttl;
            match value {
                None if self.may_end(key, known) => {}
                None => {
                    return Err(format!(
                        "{key:?} is missing, it lives until {ends:?}, now {now:?}"
                    ));
                }
                Some(_) if self.must_end(key, known) => {
                    return Err(format!("{key:?} should have ended at {ends:?}, now {now:?}"));
                }
                Some(value) if *value == known.value => {}
                Some(value) => return Err(format!("{key:?} is {value}, not {}", known.value)),
            }
        }
        if let Some(key) = shown.keys().find(|key| !self.model.series.contains_key(key)) {
            return Err(format!("{key:?} was never sent"));
        }
        if ended {
            self.used(Feature::Expiry);
        }
        // A series that left may come back as a new one.
        let gone = self.model.series.extract_if(.., |key, _| !shown.contains_key(key));
        self.gone.extend(gone.map(|(key, _)| key));
        Ok(())
    }

    /// Compares a scrape with the one before: the lines in between changed one series, and no other one, and each series is
    /// there until its time is over.
    fn changes(&mut self, shown: &BTreeMap<Key, f64>) -> Result<(), String> {
        let now = self.now;
        let before = &self.model.shown;
        let changed = match &self.model.burst {
            None => None,
            Some(burst) => {
                let folds = self.mode == BudgetMode::Enforce
                    && burst.kind != Kind::Gauge
                    && !self.has_room(burst.kind);
                let overflow = ("otel_metric_overflow".to_owned(), "true".to_owned());
                let overflow = Labels::from([overflow]);
                let is_target = |(kind, labels): &Key| {
                    let is_own = labels.len() == burst.labels.len()
                        && labels.iter().zip(&burst.labels).all(|(pair, own)| {
                            pair == own || folds && pair.0 == own.0 && pair.1 == "other"
                        });
                    *kind == burst.kind && (is_own || folds && *labels == overflow)
                };
                let new = |(key, value): (&Key, &f64)| {
                    let known = before.get(key);
                    // It may have ended and begun again.
                    let known = [known, None].map(|known| Known::after(known, burst));
                    let ended = before.get(key).is_none_or(|known| self.may_end(key, known));
                    let mut known = known.into_iter().enumerate();
                    let known =
                        known.find(|(at, known)| known.value == *value && (*at == 0 || ended));
                    Some((key.clone(), known?.1))
                };
                let fits = shown.iter().filter(|(key, _)| is_target(key)).filter_map(new);
                // A series that is about to end may have the value of a new one.
                let is_same = |(key, known): &(Key, Known)| {
                    before.get(key).is_some_and(|before| before.value == known.value)
                };
                let changed = fits.min_by_key(is_same);
                Some(changed.ok_or_else(|| format!("{burst:?} had no effect"))?)
            }
        };
        let mut next = BTreeMap::new();
        for (key, &value) in shown {
            let known = match (&changed, before.get(key)) {
                (Some((changed, known)), _) if changed == key => known.clone(),
                (_, Some(known)) if known.value == value && !self.must_end(key, known) => {
                    known.clone()
                }
                (_, known) => {
                    return Err(format!("{key:?} is {value}, was {known:?}, now {now:?}"));
                }
            };
            next.insert(key.clone(), known);
        }
        let gone = before.iter().filter(|(key, _)| !shown.contains_key(key));
        let gone: BTreeMap<Key, Known> =
            gone.map(|(key, known)| (key.clone(), known.clone())).collect();
        if let Some((key, known)) = gone.iter().find(|(key, known)| !self.may_end(key, known)) {
            return Err(format!("{key:?} is missing, was {known:?}, now {now:?}"));
        }
        for (key, known) in gone {
            if self.sender_end(&key.1).may {
                self.model.has_ended = true;
                self.used(Feature::SenderEnd);
            } else {
                self.used(Feature::Expiry);
            }
            let family = match key.0 {
                Kind::Counter => Some("requests_total"),
                Kind::Gauge => None,
                Kind::Observer => Some("latency_count"),
            };
            if let Some(sum) = family.and_then(|family| self.model.sums.get_mut(family)) {
                *sum -= known.value;
            }
            self.model.series.remove(&key);
            self.gone.insert(key);
        }
        (self.model.shown, self.model.burst) = (next, None);
        Ok(())
    }

    fn count_pairs(&mut self) {
        if self.mapping.values.is_some() || self.mapping.series.is_some() {
            self.used(Feature::RuleLimits);
        }
        let recent = self.active.iter().filter(|(_, at)| self.now - **at <= TOGETHER);
        let mut together: Vec<Feature> = recent.map(|(feature, _)| *feature).collect();
        together.extend(&self.always);
        together.sort_unstable();
        for (at, one) in together.iter().enumerate() {
            self.outcome.pairs.extend(together[at + 1..].iter().map(|other| (*one, *other)));
        }
    }
}

/// Returns the series of the three metrics: the value of a counter or gauge, the count of an observer.
fn series(samples: &Samples) -> Result<BTreeMap<Key, f64>, String> {
    let mut series = BTreeMap::new();
    for ((name, labels), value) in samples {
        let kind = match name.as_str() {
            "requests_total" => Kind::Counter,
            "level" => Kind::Gauge,
            "latency_count" => Kind::Observer,
            "latency_bucket" if labels["le"] == "inf" => {
                let mut labels = labels.clone();
                labels.remove("le");
                let count = samples.get(&("latency_count".to_owned(), labels));
                if count != Some(value) {
                    return Err(format!("{value} in all buckets, count {count:?}"));
                }
                continue;
            }
            _ if name.starts_with("latency") => continue,
            _ => return Err(format!("unknown series: {name}")),
        };
        let value = value.parse().map_err(|_| format!("no number: {value}"))?;
        series.insert((kind, labels.clone()), value);
    }
    Ok(series)
}

/// In any history each scrape is what the accepted lines make it, and each pair of features was active together.
#[test]
fn random_histories() {
    let (first, count) = (env_number("KSTATD_SEED").unwrap_or(1), env_number("KSTATD_HISTORIES"));
    let count = count.unwrap_or(100);
    let (mut wrong, mut pairs) = (String::new(), BTreeSet::new());
    let (mut scrapes, mut lines, mut seconds) = (0, 0, 0);
    for seed in first..first + count {
        let outcome = History::new(seed).run();
        pairs.extend(outcome.pairs);
        scrapes += outcome.scrapes;
        lines += outcome.lines;
        seconds += outcome.seconds;
        if let Some(violation) = outcome.violation {
            let _ = writeln!(wrong, "KSTATD_SEED={seed}: {violation}");
            if env_number("KSTATD_FIRST").is_some() {
                break;
            }
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

/// A seed determines each line and each scrape, to the byte.
#[test]
fn a_seed_determines_the_history() {
    for seed in 1..=20 {
        let [one, other] = [(); 2].map(|()| History::new(seed).run().journal);
        assert!(one.len() > STEPS / 2, "seed {seed}");
        let differs = one.iter().zip(&other).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.len(), other.len(), "seed {seed}");
    }
}
