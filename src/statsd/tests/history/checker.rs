//! Compares scrapes with the model and with each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use super::features::Feature;
use super::model::{Key, Kind, Known, Labels};
use super::senders::SeriesEnd;
use super::{
    CHANGING, FOLDED, History, OVERFLOW, derived_names, fits, many_series, many_values, options,
    random_rules, sets, taken_name,
};
use crate::exposition::budget::BudgetMode;
use crate::exposition::message::{self, Delimited, ProtoText};
use crate::exposition::prototext::Layout;
use crate::exposition::tests::samples::{self, Samples};
use crate::exposition::{Format, ScrapeQuery};
use crate::tests::time_bound;

/// The time by which a series may end before its time to live is over: two ticks, because both ends are rounded.
pub(super) static EARLY: LazyLock<Duration> = LazyLock::new(|| time_bound("a series ends early"));
/// The time by which it may end later: series end in groups, one each second.
pub(super) static LATE: LazyLock<Duration> = LazyLock::new(|| time_bound("a series ends late"));

impl History {
    /// Compares a scrape, also in another format, and the copies of lines with the model.
    pub(super) fn scrape(&mut self) -> Result<(), String> {
        let (text, samples) = self.compare()?;
        if self.many_series.are_large() || self.rng.u32(0..3) == 0 {
            self.same_in_other_format(&ScrapeQuery::default(), &samples)?;
        }
        self.check_relay()?;
        match &mut self.pods {
            Some((_, copies)) => copies.check(&self.offline, &text),
            None => Ok(()),
        }
    }

    /// Compares a scrape as text with the model. Returns it with its samples.
    pub(super) fn compare(&mut self) -> Result<(Vec<u8>, Samples), String> {
        self.outcome.scrapes += 1;
        self.expire();
        let query = ScrapeQuery::default();
        let text: Vec<u8> = self.offline.frames(Format::Text, &query).flatten().collect();
        self.trace("text", &text);
        let samples = samples::of_text(&text)?;
        let shown = series(&samples)?;
        let distributions = distributions(&samples);
        if self.mode != BudgetMode::Enforce {
            self.each_series(&shown, &distributions)?;
        }
        self.check_sets(&samples)?;
        self.check_many_values(&samples)?;
        self.check_many_series(&samples)?;
        self.check_taken_names(&samples)?;
        self.check_derived_names(&samples)?;
        self.check_options(&samples)?;
        self.check_random_rules(&samples)?;
        self.check_metric_count(&text, &samples)?;
        super::helps::check(&text)?;
        self.model.samples = self.check_start_times(&samples)?;
        if self.scrapes_each {
            self.changes(&shown, &distributions)?;
        }
        if !self.ttl {
            for (family, &sum) in &self.model.sums {
                let values = samples.iter().filter(|((name, _), _)| name == family);
                let has: f64 = values.map(|(_, value)| value.0).sum();
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
        let folds = |(_, labels): &(Kind, Labels)| labels.values().any(|value| value == FOLDED);
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
    pub(super) fn may_end(&self, (_, labels): &Key, known: &Known) -> bool {
        self.may_have_ended(labels, known.touched + known.ttl)
    }

    /// Returns true if a series must have ended.
    fn must_end(&self, (_, labels): &Key, known: &Known) -> bool {
        self.must_have_ended(labels, known.touched + known.ttl)
    }

    /// Returns true if a series with these labels may have ended, given the end of its time to live.
    pub(super) fn may_have_ended(&self, labels: &Labels, end: Duration) -> bool {
        self.ttl && self.now + *EARLY >= end || self.sender_end(labels).may
    }

    /// Returns true if a series with these labels must have ended, given the end of its time to live.
    pub(super) fn must_have_ended(&self, labels: &Labels, end: Duration) -> bool {
        self.ttl && self.now > end + *LATE || self.sender_end(labels).must
    }

    /// Compares the samples in another format.
    fn same_in_other_format(
        &mut self,
        query: &ScrapeQuery,
        expected: &Samples,
    ) -> Result<(), String> {
        let (format, body, read): (_, Vec<u8>, samples::Reader) = match self.rng.u32(0..4) {
            0 | 1 => {
                self.used(Feature::OpenMetrics);
                let body = self.offline.frames(Format::OpenMetrics, query).flatten().collect();
                ("OpenMetrics", body, samples::of_text)
            }
            2 => {
                self.used(Feature::Protobuf);
                let bodies = vec![self.offline.typed(query)];
                let body: Vec<u8> =
                    message::frames(bodies, Delimited::default()).flatten().collect();
                self.same_start_times(&body)?;
                self.check_native_buckets(&body)?;
                ("protobuf", body, samples::of_messages)
            }
            _ => {
                self.used(Feature::ProtobufText);
                let layout = [Layout::Lines, Layout::Compact][self.rng.usize(0..2)];
                let bodies = vec![self.offline.typed(query)];
                let body: Vec<u8> =
                    message::frames(bodies, ProtoText::new(layout)).flatten().collect();
                self.same_start_times(&samples::messages_of_prototext(&body)?)?;
                ("protobuf text", body, samples::of_prototext)
            }
        };
        self.trace(format, &body);
        let mut other = read(&body).map_err(|why| format!("{format}: {why}"))?;
        // Text has no start times.
        other.retain(|(name, _), _| !name.ends_with("_created"));
        let differs =
            |(key, value): &(&samples::Key, &samples::Value)| other.get(key) != Some(value);
        match expected.iter().find(differs) {
            Some((key, value)) => {
                Err(format!("{key:?} is {value:?}, in {format} {:?}", other.get(key)))
            }
            None if other.len() > expected.len() => Err(format!("more samples in {format}")),
            None => Ok(()),
        }
    }

    /// Without folding, each series is exposed with its value until its time is over.
    fn each_series(
        &mut self,
        shown: &BTreeMap<Key, f64>,
        distributions: &BTreeMap<Labels, Distribution>,
    ) -> Result<(), String> {
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
                Some(value) if *value == known.value => {
                    same_distribution(key, known, distributions, now)?
                }
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
    fn changes(
        &mut self,
        shown: &BTreeMap<Key, f64>,
        distributions: &BTreeMap<Labels, Distribution>,
    ) -> Result<(), String> {
        let now = self.now;
        let before = &self.model.shown;
        let changed = match &self.model.burst {
            None => None,
            Some(burst) => {
                let folds = self.mode == BudgetMode::Enforce
                    && burst.kind != Kind::Gauge
                    && !self.has_room(&(burst.kind, burst.labels.clone()));
                let overflow = (OVERFLOW.to_owned(), "true".to_owned());
                let overflow = Labels::from([overflow]);
                let is_target = |(kind, labels): &Key| {
                    let is_own = labels.len() == burst.labels.len()
                        && labels.iter().zip(&burst.labels).all(|(pair, own)| {
                            pair == own || folds && pair.0 == own.0 && pair.1 == FOLDED
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
                Some(changed.ok_or_else(|| {
                    let of_kind = shown.iter().filter(|((kind, _), _)| *kind == burst.kind);
                    let of_kind: Vec<_> = of_kind.collect();
                    let (samples, budget) = (self.model.samples, &self.budget);
                    format!(
                        "{burst:?} had no effect: folds: {folds}, {of_kind:?}, {samples} samples, {budget:?}"
                    )
                })?)
            }
        };
        if let (Some(burst), Some((target, _))) = (&self.model.burst, &changed)
            && self.mode == BudgetMode::Enforce
            && target.1 == burst.labels
            && !before.contains_key(target)
        {
            let all = || before.keys().filter(|key| key.0 == target.0);
            let certain = all().filter(|key| shown.contains_key(*key));
            let certain: Vec<&Labels> = certain.map(|(_, labels)| labels).collect();
            let all: Vec<&Labels> = all().map(|(_, labels)| labels).collect();
            if let Some(why) = self.exceeded_limit(target, &certain, &all) {
                return Err(format!("{target:?} exceeds a budget: {why}"));
            }
            if target.0 == Kind::Observer {
                // Each has a sum and a count, too.
                let others = 2 + usize::from(self.start_times.are_counted);
                let of_series =
                    |labels: &Labels| distributions.get(labels).map_or(0, BTreeMap::len) + others;
                let samples = certain.iter().copied().chain([&target.1]).map(of_series).sum();
                let limit = self.mapping.series.unwrap_or(self.budget.series_per_metric);
                if !fits(samples, limit) {
                    return Err(format!("{target:?} is one of {samples} samples, not {limit}"));
                }
            }
        }
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
            same_distribution(key, &known, distributions, now)?;
            next.insert(key.clone(), known);
        }
        self.model.folded.retain(|_, target| next.contains_key(target));
        if let (Some(burst), Some((target, _))) = (&self.model.burst, &changed) {
            let key = (burst.kind, burst.labels.clone());
            if key != *target {
                self.model.folded.insert(key, target.clone());
            }
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
}

/// The values of the buckets or quantiles of an observer, by `le` or `quantile`.
type Distribution = BTreeMap<String, f64>;

/// Returns those of each observer.
fn distributions(samples: &Samples) -> BTreeMap<Labels, Distribution> {
    let mut all: BTreeMap<Labels, Distribution> = BTreeMap::new();
    for ((name, labels), value) in samples {
        let mut labels = labels.clone();
        if let "latency" | "latency_bucket" = name.as_str()
            && let Some(bound) = labels.remove("le").or_else(|| labels.remove("quantile"))
        {
            all.entry(labels).or_default().insert(bound, value.0);
        }
    }
    all
}

/// Compares the buckets or quantiles of a series with those that it was created with, and with its values. An overflow series
/// has those that fit into the room reserved for it.
fn same_distribution(
    key: &Key,
    known: &Known,
    all: &BTreeMap<Labels, Distribution>,
    now: Duration,
) -> Result<(), String> {
    let Some(shown) = all.get(&key.1).filter(|_| key.0 == Kind::Observer) else { return Ok(()) };
    let bounds: BTreeSet<String> = shown.keys().cloned().collect();
    let is_overflow = key.1.contains_key(OVERFLOW);
    if bounds != known.shape.bounds && !(is_overflow && bounds.is_subset(&known.shape.bounds)) {
        return Err(format!("{key:?} has {bounds:?}, not {:?}", known.shape));
    }
    known.check(shown, now).map_err(|why| format!("{key:?}: {why}"))
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
                    return Err(format!("{value:?} in all buckets, count {count:?}"));
                }
                continue;
            }
            _ if name.starts_with("latency") || name.starts_with(CHANGING) => continue,
            _ if options::PREFIXES.iter().any(|prefix| name.starts_with(prefix)) => continue,
            _ if random_rules::PREFIXES.iter().any(|prefix| name.starts_with(prefix)) => continue,
            _ if name.starts_with(many_values::METRIC) || name == many_series::METRIC => continue,
            _ if name.starts_with(derived_names::METRIC) => continue,
            _ if name == sets::METRIC || name.starts_with(taken_name::PREFIX) => continue,
            _ => return Err(format!("unknown series: {name}")),
        };
        series.insert((kind, labels.clone()), value.0);
    }
    Ok(series)
}
