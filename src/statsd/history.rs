//! Random histories of StatsD lines: senders, reloads of the mapping, budgets, expiry and scrapes on a simulated clock.
//!
//! A seed determines everything. A model computes what each scrape must show:
//!
//! - The sum over all series of a counter is the sum of the accepted values, and likewise the count of an observer, however
//!   rules, limits and labels change. Counters and observers that exist lose no sample to budgets.
//! - A gauge has the value of its last accepted line.
//! - A series is there until its time to live is over, and not longer.
//! - A rejected line has a cause that fits: garbage is named so, and a valid line is rejected only by a budget.
//! - No series is there twice, and each format has the same series.
//!
//! `KSTATD_HISTORIES=100 cargo test --lib statsd::history` runs 100 histories; `KSTATD_SEED=n` sets the first seed, and
//! `KSTATD_FIRST=1` ends them at the first violation. The table of pairs says which features were active together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::ingest::LoadedMapping;
use super::{Clock, Offline, OfflineConfig};
use crate::exposition::budget::{Budget, BudgetMode};
use crate::exposition::{Format, ScrapeQuery};
use crate::mapper::Mapper;
use crate::tests::{env_number, hash};
use crate::util::words::words;

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
        SampledCounter = "sampled counter",
        Gauge = "gauge",
        GaugeDelta = "gauge delta",
        Summary = "summary",
        Histogram = "histogram",
        Tags = "tags",
        DroppedByRule = "dropped by rule",
        Garbage = "garbage",
        ManySenders = "many senders",
        NoKeyCache = "no key cache",
        OpenMetrics = "open metrics",
        Protobuf = "protobuf",
        ClockJump = "clock jump",
    }
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

impl Kind {
    const fn family(self) -> &'static str {
        match self {
            Self::Counter => "requests_total",
            Self::Gauge => "level",
            Self::Observer => "latency",
        }
    }
}

/// The labels of a series.
type Labels = BTreeMap<String, String>;

/// A series as the model knows it.
#[derive(Debug)]
struct Known {
    value: f64,
    touched: Duration,
    /// The time to live that it was created with.
    ttl: Duration,
}

/// What must be exposed.
#[derive(Debug, Default)]
struct Model {
    /// The series of each kind that were created under their own labels, if nothing folds.
    series: BTreeMap<(Kind, Labels), Known>,
    /// The accepted sum or count of each kind, while nothing expires.
    sums: BTreeMap<Kind, f64>,
    /// The last accepted line of each kind, and the times to live in use since its metric was empty.
    touched: BTreeMap<Kind, (Duration, BTreeSet<u64>)>,
}

/// The outcome of a history.
struct Outcome {
    violation: Option<String>,
    /// The lines and scrapes so far, as hashes.
    journal: Vec<(&'static str, u64)>,
    pairs: BTreeSet<(Feature, Feature)>,
    scrapes: usize,
    lines: usize,
    seconds: u64,
}

struct History {
    rng: Rng,
    clock: Clock,
    now: Duration,
    offline: Offline,
    mode: BudgetMode,
    mapping: Mapping,
    generation: u64,
    ttl: bool,
    senders: usize,
    model: Model,
    /// Series that have ended.
    gone: BTreeSet<(Kind, Labels)>,
    active: BTreeMap<Feature, Duration>,
    always: Vec<Feature>,
    outcome: Outcome,
}

impl History {
    fn new(seed: u64) -> Self {
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
            ..OfflineConfig::default()
        };
        let offline = Offline::new(Mapper::from_yaml(&mapping.yaml()).expect("a mapping"), config);
        let mut always = vec![match mode {
            BudgetMode::Off => Feature::BudgetOff,
            BudgetMode::Track => Feature::BudgetTrack,
            BudgetMode::Enforce => Feature::BudgetEnforce,
        }];
        let senders = 1 + rng.usize(0..3);
        always.extend(ttl.then_some(Feature::TimeToLive));
        always.extend((key_cache_size == 0).then_some(Feature::NoKeyCache));
        always.extend((senders > 1).then_some(Feature::ManySenders));
        let outcome = Outcome {
            violation: None,
            journal: Vec::new(),
            pairs: BTreeSet::new(),
            scrapes: 0,
            lines: 0,
            seconds: 0,
        };
        let (model, active, now) = (Model::default(), BTreeMap::new(), Duration::ZERO);
        let generation = 0;
        Self {
            rng,
            clock,
            now,
            offline,
            mode,
            mapping,
            generation,
            ttl,
            senders,
            model,
            gone: BTreeSet::new(),
            active,
            always,
            outcome,
        }
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
                0..70 => self.line(),
                70..85 => {
                    self.advance();
                    Ok(())
                }
                85..90 => {
                    self.reload();
                    Ok(())
                }
                _ => self.scrape(),
            };
            if let Err(why) = step.and_then(|()| if self.ttl { self.scrape() } else { Ok(()) }) {
                let at = self.now.as_secs_f64();
                self.outcome.violation =
                    Some(format!("after {at:.1} s {why}\n{}", self.mapping.yaml()));
                break;
            }
        }
        self.outcome.seconds = self.now.as_secs();
        self.outcome
    }

    fn advance(&mut self) {
        let jumps = self.rng.u32(0..20) == 0;
        let millis = self.rng.u64(if jumps { 60_000..4_000_000 } else { 1..2_500 });
        self.now += Duration::from_millis(millis);
        if jumps {
            self.used(Feature::ClockJump);
        }
        self.clock.advance(Duration::from_millis(millis));
        self.offline.expire();
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
        let mapper = Mapper::from_yaml(&self.mapping.yaml()).expect("a mapping");
        let mapping = &self.offline.shared().mapping;
        let before = mapping.load_full();
        mapping.store(Arc::new(LoadedMapping::new(
            Arc::new(mapper),
            self.generation,
            Some(&before),
        )));
    }

    /// Sends a line and compares its verdict with the model.
    fn line(&mut self) -> Result<(), String> {
        self.outcome.lines += 1;
        let rng = &mut self.rng;
        if rng.u32(0..15) == 0 {
            let garbage = ["a", "a:b|c", ":1|c", "a:1|", "a:1|zz", "a:|g"];
            let line = garbage[rng.usize(0..garbage.len())];
            self.used(Feature::Garbage);
            let reasons = self.offline.line(line.as_bytes());
            self.trace("line", line.as_bytes());
            return if reasons.is_empty() { Err(format!("{line} has no cause")) } else { Ok(()) };
        }
        if rng.u32(0..20) == 0 {
            self.used(Feature::DroppedByRule);
            let reasons = self.offline.line(b"drop.x:1|c");
            return match &reasons[..] {
                [] | ["dropped_by_rule" | "dropped"] => Ok(()),
                other => Err(format!("a line that a rule drops has the causes {other:?}")),
            };
        }
        let kind = [Kind::Counter, Kind::Gauge, Kind::Observer][rng.usize(0..3)];
        let (service, user) = (rng.u32(0..3), rng.u32(0..12));
        let sender = rng.usize(0..self.senders);
        let tag = (rng.u32(0..4) == 0).then(|| format!("s{sender}"));
        let number = rng.u32(1..50);
        let (letter, value, rest, amount) = match kind {
            Kind::Counter if rng.u32(0..4) == 0 => {
                ('c', number.to_string(), "|@0.5", f64::from(2 * number))
            }
            Kind::Counter => ('c', number.to_string(), "", f64::from(number)),
            Kind::Gauge if rng.u32(0..4) == 0 => ('g', format!("+{number}"), "", f64::from(number)),
            Kind::Gauge => ('g', number.to_string(), "", f64::from(number)),
            Kind::Observer => ('t', number.to_string(), "", 1.0),
        };
        let is_delta = value.starts_with('+');
        let suffix = match kind {
            Kind::Counter => "c",
            Kind::Gauge => "g",
            Kind::Observer => "ms",
        };
        let tags = tag.as_ref().map_or(String::new(), |tag| format!("|#sender:{tag}"));
        let line = format!("{letter}.v{service}.u{user}:{value}|{suffix}{rest}{tags}");
        self.used(match kind {
            Kind::Counter if rest.is_empty() => Feature::Counter,
            Kind::Counter => Feature::SampledCounter,
            Kind::Gauge if is_delta => Feature::GaugeDelta,
            Kind::Gauge => Feature::Gauge,
            Kind::Observer if self.mapping.histogram => Feature::Histogram,
            Kind::Observer => Feature::Summary,
        });
        if tag.is_some() {
            self.used(Feature::Tags);
        }
        let mut labels = Labels::from([("service".to_owned(), format!("v{service}"))]);
        if self.mapping.by_user {
            labels.insert("user".to_owned(), format!("u{user}"));
        }
        labels.extend(tag.map(|tag| ("sender".to_owned(), tag)));
        self.trace("line", line.as_bytes());
        let reasons = self.offline.line(line.as_bytes());
        self.verdict(kind, labels, amount, is_delta, &reasons)
            .map_err(|why| format!("{line}: {why}"))
    }

    /// Takes the verdict about a valid line into the model.
    fn verdict(
        &mut self,
        kind: Kind,
        labels: Labels,
        amount: f64,
        is_delta: bool,
        reasons: &[&str],
    ) -> Result<(), String> {
        let is_budget = |reason: &&str| matches!(*reason, "series_limit" | "label_limit");
        let is_rejected = !reasons.is_empty();
        if is_rejected && (self.mode != BudgetMode::Enforce || !reasons.iter().all(is_budget)) {
            return Err(format!("rejected for {reasons:?}"));
        }
        let exists = match kind {
            Kind::Gauge => self.model.series.contains_key(&(kind, labels.clone())),
            Kind::Counter | Kind::Observer => self.model.touched.contains_key(&kind),
        };
        if is_rejected && exists && !self.ttl {
            return Err(format!("rejected for {reasons:?}, although its metric exists"));
        }
        if is_rejected {
            return Ok(());
        }
        let now = self.now;
        *self.model.sums.entry(kind).or_default() += amount;
        let touched = self.model.touched.entry(kind).or_default();
        touched.0 = now;
        touched.1.insert(self.mapping.ttl);
        let ttl = Duration::from_secs(self.mapping.ttl);
        if self.gone.contains(&(kind, labels.clone())) {
            self.used(Feature::Reappearance);
        }
        let new = Known { value: 0.0, touched: now, ttl };
        let known = self.model.series.entry((kind, labels)).or_insert(new);
        known.touched = now;
        known.value = if kind == Kind::Gauge && !is_delta { amount } else { known.value + amount };
        Ok(())
    }

    /// Compares a scrape with the model.
    fn scrape(&mut self) -> Result<(), String> {
        self.outcome.scrapes += 1;
        self.offline.expire();
        let query = ScrapeQuery::default();
        let text: Vec<u8> = self.offline.frames(Format::Text, &query).flatten().collect();
        self.trace("text", &text);
        let text = String::from_utf8(text).map_err(|_| "no UTF-8".to_owned())?;
        let shown = parse(&text)?;
        self.same_in_other_format(&query, shown.len())?;
        if self.mode != BudgetMode::Enforce {
            self.each_series(&shown)?;
        } else if self.ttl {
            self.presence(&shown)?;
        }
        if !self.ttl {
            for (&kind, &sum) in &self.model.sums {
                if kind == Kind::Gauge {
                    continue;
                }
                let has: f64 =
                    shown.iter().filter(|((of, _), _)| *of == kind).map(|(_, value)| value).sum();
                if has != sum {
                    return Err(format!("{} has {has} of {sum}\n{text}", kind.family()));
                }
            }
            for ((kind, labels), known) in &self.model.series {
                let value = shown.get(&(*kind, labels.clone()));
                if *kind == Kind::Gauge && value != Some(&known.value) {
                    return Err(format!("{labels:?} is {value:?}, not {}\n{text}", known.value));
                }
            }
        }
        let folds = |(_, labels): &(Kind, Labels)| labels.values().any(|value| value == "other");
        if shown.keys().any(folds) {
            self.used(Feature::Folding);
        }
        self.count_pairs();
        Ok(())
    }

    /// Compares the number of series in another format.
    fn same_in_other_format(&mut self, query: &ScrapeQuery, count: usize) -> Result<(), String> {
        if self.rng.bool() {
            self.used(Feature::OpenMetrics);
            let body: Vec<u8> = self.offline.frames(Format::OpenMetrics, query).flatten().collect();
            self.trace("OpenMetrics", &body);
            let body = String::from_utf8(body).map_err(|_| "no UTF-8".to_owned())?;
            let others = parse(&body)?.len();
            (others == count)
                .then_some(())
                .ok_or(format!("{others} series in OpenMetrics, {count} in text"))
        } else {
            self.used(Feature::Protobuf);
            let body: Vec<u8> = self.offline.protobuf_frames(query).flatten().collect();
            self.trace("protobuf", &body);
            Ok(())
        }
    }

    /// Without folding, each series is exposed with its value until its time is over.
    fn each_series(&mut self, shown: &BTreeMap<(Kind, Labels), f64>) -> Result<(), String> {
        let now = self.now;
        let mut ended = false;
        for (key, known) in &self.model.series {
            let ends = known.touched + known.ttl;
            let may_end = self.ttl && now + EARLY >= ends;
            let value = shown.get(key);
            let must_end = self.ttl && now > ends + LATE;
            ended |= value.is_none();
            match value {
                None if may_end => {}
                None => {
                    return Err(format!(
                        "{key:?} is missing, it lives until {ends:?}, now {now:?}"
                    ));
                }
                Some(_) if must_end => {
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

    /// With folding, a metric is there while one of its series must be, and gone when none can be.
    fn presence(&mut self, shown: &BTreeMap<(Kind, Labels), f64>) -> Result<(), String> {
        let mut gone = Vec::new();
        for (kind, (touched, times)) in &self.model.touched {
            let (shortest, longest) = (times.first(), times.last());
            let [shortest, longest] =
                [shortest, longest].map(|time| Duration::from_secs(*time.expect("one")));
            let is_there = shown.keys().any(|(of, _)| of == kind);
            if !is_there && self.now + EARLY < *touched + shortest {
                return Err(format!(
                    "{} has no series after {:?}",
                    kind.family(),
                    self.now - *touched
                ));
            }
            if is_there && self.now > *touched + longest + LATE {
                return Err(format!(
                    "{} has series after {:?}",
                    kind.family(),
                    self.now - *touched
                ));
            }
            if !is_there {
                gone.push(*kind);
            }
        }
        for kind in gone {
            self.used(Feature::Expiry);
            self.model.touched.remove(&kind);
            let gone = self.model.series.extract_if(.., |(of, _), _| *of == kind);
            self.gone.extend(gone.map(|(key, _)| key));
        }
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

/// Parses the series of the three metrics: the value of a counter or gauge, the count of an observer.
fn parse(text: &str) -> Result<BTreeMap<(Kind, Labels), f64>, String> {
    let mut series = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').ok_or_else(|| format!("no value: {line}"))?;
        let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
        let kind = match name {
            "requests_total" => Kind::Counter,
            "level" => Kind::Gauge,
            "latency_count" => Kind::Observer,
            _ if name.starts_with("latency") => continue,
            _ => return Err(format!("unknown series: {line}")),
        };
        let labels =
            labels.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once('='));
        let labels: Labels = labels
            .map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()))
            .collect();
        let value = value.parse().map_err(|_| format!("no number: {line}"))?;
        if series.insert((kind, labels), value).is_some() {
            return Err(format!("twice: {line}"));
        }
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
    for (at, &one) in Feature::ALL.iter().enumerate() {
        for &other in &Feature::ALL[at + 1..] {
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
