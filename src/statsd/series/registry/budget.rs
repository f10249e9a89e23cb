//! Enforces budgets when a series is created.
//!
//! Existing series are never checked, so budgets cost the fast path nothing. If a new series would exceed the
//! budget of a label, only that label is folded: its value becomes the fold value. If it would exceed the
//! budget of its metric or of the whole registry, it is folded into the series
//! `{otel_metric_overflow="true"}` of its metric, for which room is always reserved. Gauges and sets cannot
//! be added up and are rejected. A folded label set stays folded as long as the series it was folded into
//! exists, even if there is room again.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use super::{Absent, Found, Members, NewSeries, Registry, Rejection, Resolved, Spec};
use crate::exposition::budget::{Action, BudgetMode, Limit, RuleBudget};
use crate::exposition::labels::{self, ParsedLabels};
use crate::pods::PodLabel;
use crate::statsd::series::account::{
    Account, MAX_FOLDED, OVERFLOW, RemovedSeries, affordable, cost, family_cost, folds, kept_bytes,
};
use crate::statsd::series::cell::Handle;
use crate::statsd::series::family::{Family, Kind};
use crate::statsd::series::placement::{ExceededBudget, RejectedSeries};
use crate::statsd::series::senders::Outcome;
use crate::statsd::series::tree::{Key, Snapshot};
use crate::statsd::series::values::LabelValues;

/// The number of series up to which the label values of a family are counted at once, while lines wait (about 3 ms), as are those
/// of a family that has just reached its limit. Those of a larger one, to which a reload adds a limit, are counted by the thread
/// that removes expired series.
const MAX_COUNTED_AT_ONCE: u64 = 8_192;
/// The number of changes meanwhile that are applied at once, while lines wait.
const CHANGES_AT_ONCE: usize = 1_024;

/// The limits of one metric.
pub(super) struct MetricLimits {
    pub(super) series: u64,
    pub(super) values_per_label: u64,
    value_bytes: u64,
}

/// The series that a label set updates.
pub(super) enum PlannedSeries {
    /// A new series with the label set itself.
    Create(Absent),
    /// An existing series with these labels.
    Existing(Resolved, Vec<u8>),
    /// A new series with these labels.
    CreateFolded(Absent, Vec<u8>),
}

/// Returns the rest of a budget. 0 means no limit.
fn remaining(most: u64, used: u64) -> u64 {
    if most == 0 { u64::MAX } else { most.saturating_sub(used) }
}

/// Returns whether folding changes a label that describes the sender.
fn folds_pod(labels: &[u8], folded: &[u8]) -> bool {
    let is_of_pod = |name: &[u8]| PodLabel::ALL.iter().any(|own| own.as_str().as_bytes() == name);
    let mut pairs = labels::iter(labels).zip(labels::iter(folded));
    pairs.any(|((name, value), (_, folded))| value != folded && is_of_pod(name))
}

impl Registry {
    /// Returns true if budgets are tracked or enforced.
    pub(super) fn has_budget(&self) -> bool {
        self.budget.mode != BudgetMode::Off
    }

    fn enforces(&self) -> bool {
        self.budget.mode == BudgetMode::Enforce
    }

    pub(super) fn limits_of(&self, rule: RuleBudget) -> MetricLimits {
        MetricLimits {
            series: rule.series.unwrap_or(self.budget.series_per_metric),
            values_per_label: rule.values_per_label.unwrap_or(self.budget.values_per_label),
            value_bytes: rule.value_bytes.unwrap_or(self.budget.value_bytes),
        }
    }

    /// Returns the series into which a label set was folded, if it still exists.
    pub(super) fn folded(&self, members: &Members, key: &Key<'_>) -> Option<Resolved> {
        if members.account.folded.is_empty() {
            return None;
        }
        let (handle, ttl) = *members.account.folded.get(&self.set_hash(key))?;
        let alive = handle.is_alive(&self.scalars.view(), &self.observers.view());
        alive.then_some(Resolved { handle, ttl })
    }

    fn set_hash(&self, key: &Key<'_>) -> u64 {
        let mut hasher = self.set_hasher.build_hasher();
        hasher.write(key.name.as_bytes());
        hasher.write_u8(0xff);
        hasher.write(key.labels);
        hasher.finish()
    }

    /// Creates the series, or finds or creates the one into which it is folded.
    ///
    /// # Errors
    /// Returns the budget that the series would exceed.
    pub(super) fn create_within_budget(
        &self,
        members: &mut Members,
        series: &NewSeries<'_>,
        absent: Absent,
    ) -> Result<Resolved, RejectedSeries> {
        if !self.has_budget() {
            return Ok(self.make(members, series, absent));
        }
        if let Some(family) = &absent.family
            && let Some(threshold) = self.value_threshold(series, family)
            && !members.account.values.contains_key(&family.id)
        {
            let at_once = MAX_COUNTED_AT_ONCE.max(threshold);
            let values = if u64::from(family.live()) <= at_once {
                self.count_values(&members.tree.snapshot(), family, threshold)
            } else {
                members
                    .account
                    .uncounted
                    .push(Arc::new((Arc::clone(family), members.tree.snapshot())));
                (self.on_earlier_deadline)();
                LabelValues::awaited(threshold)
            };
            members.account.values.insert(family.id, values);
        }
        let values =
            absent.family.as_ref().and_then(|family| members.account.values.get(&family.id));
        let mut exceeded = Vec::new();
        let planned = self.plan(members, series, absent, values, &mut exceeded);
        if !exceeded.is_empty() {
            self.record_violations(series.key.name, &exceeded, 1);
            self.senders.record(
                series.origin,
                series.key.name,
                Outcome::OverBudget,
                self.clock.now(),
            );
        }
        match planned.map_err(|rejection| RejectedSeries { rejection, exceeded })? {
            PlannedSeries::Create(absent) => Ok(self.make(members, series, absent)),
            PlannedSeries::Existing(resolved, labels) => {
                if labels != OVERFLOW && folds_pod(series.key.labels, &labels) {
                    // It may be that of a sender which has the value into which those of others are folded.
                    members.account.shared.insert(resolved.handle.slot);
                }
                Ok(self.remember_folded(members, series, resolved))
            }
            PlannedSeries::CreateFolded(absent, labels) => {
                let mut other = *series;
                let own_count = labels != OVERFLOW;
                let label_count = if own_count { series.key.label_count } else { 1 };
                other.key = Key { labels: &labels, label_count, ..series.key };
                if !own_count || folds_pod(series.key.labels, &labels) {
                    // Several senders share it.
                    other.sender = 0;
                }
                let resolved = self.make(members, &other, absent);
                Ok(self.remember_folded(members, series, resolved))
            }
        }
    }

    /// Adds `times` violations of these budgets.
    pub(crate) fn record_violations(&self, name: &str, exceeded: &[ExceededBudget], times: u64) {
        let now = self.clock.now();
        for exceeded in exceeded {
            if self.violations.record(name, exceeded, times, now) {
                (self.on_earlier_deadline)();
            }
        }
    }

    /// Decides about a label set without a series, without changing anything. `values` are the label values
    /// of its family, if a budget applies to them. Adds the budgets that it exceeds to `exceeded`.
    pub(super) fn plan(
        &self,
        members: &Members,
        series: &NewSeries<'_>,
        mut absent: Absent,
        values: Option<&LabelValues>,
        exceeded: &mut Vec<ExceededBudget>,
    ) -> Result<PlannedSeries, Rejection> {
        let limits = self.limits_of(series.budget);
        let folds = folds(series.aggregation.kind());
        let action = if folds { Action::Folded } else { Action::Refused };
        let mut note = |label: &str, limit, action| {
            let action = if self.enforces() { action } else { Action::Tracked };
            exceeded.push(ExceededBudget { label: label.to_owned(), limit, action });
        };

        if let Some(label) = self.long_name(&series.key) {
            note(label, Limit::NameBytes, Action::Refused);
            if self.enforces() {
                return Err(Rejection::NameLimit);
            }
        }
        let mut wanted = *series;
        let mut folded = None;
        let over = self.labels_over_budget(series, absent.family.as_deref(), values, &limits);
        if !over.is_empty() {
            for ((name, _), limit) in labels::iter(series.key.labels).zip(&over) {
                if let Some(limit) = limit {
                    note(&String::from_utf8_lossy(name), *limit, action);
                }
            }
            if self.enforces() {
                if !folds {
                    return Err(Rejection::LabelLimit);
                }
                let text = &*folded.insert(self.fold_labels(series.key.labels, &over));
                wanted.key.labels = text;
                match self.find(members, &wanted)? {
                    Found::Alive(resolved) => {
                        return Ok(PlannedSeries::Existing(resolved, text.clone()));
                    }
                    Found::Absent(other) => absent = other,
                }
            }
        }
        if let Some(limit) =
            self.exceeded_limit(members, &wanted, absent.family.as_deref(), &limits)
        {
            wanted.key = Key { labels: OVERFLOW, label_count: 1, ..series.key };
            if self.enforces() && folds {
                match self.find(members, &wanted)? {
                    Found::Alive(resolved) => {
                        note("", limit, action);
                        return Ok(PlannedSeries::Existing(resolved, OVERFLOW.to_vec()));
                    }
                    Found::Absent(mut other) => {
                        let family = other.family.as_deref();
                        other.room = self.room_for_overflow(members, &wanted, family, &limits);
                        if other.room >= series.aggregation.fewest_samples() {
                            note("", limit, action);
                            return Ok(PlannedSeries::CreateFolded(other, OVERFLOW.to_vec()));
                        }
                    }
                }
            }
            note("", limit, Action::Refused);
            if self.enforces() {
                return Err(match limit {
                    Limit::Memory => Rejection::MemoryLimit,
                    _ => Rejection::SeriesLimit,
                });
            }
        }
        Ok(match folded {
            Some(labels) => PlannedSeries::CreateFolded(absent, labels),
            None => PlannedSeries::Create(absent),
        })
    }

    fn make(&self, members: &mut Members, series: &NewSeries<'_>, absent: Absent) -> Resolved {
        let handle = self.create(members, series, absent);
        Resolved { handle, ttl: series.ttl }
    }

    /// Returns the label whose name is too long; the empty string stands for the metric name.
    fn long_name<'a>(&self, key: &Key<'a>) -> Option<&'a str> {
        let most = usize::try_from(self.budget.name_bytes).ok().filter(|most| *most > 0)?;
        if key.name.len() > most {
            return Some("");
        }
        let mut names = labels::iter(key.labels).map(|(name, _)| name);
        names.find(|name| name.len() > most).map(|name| str::from_utf8(name).unwrap_or_default())
    }

    /// Returns the maximum number of values of a label, if the family has enough label sets to exceed it.
    pub(super) fn value_threshold(&self, series: &NewSeries<'_>, family: &Family) -> Option<u64> {
        let many = self.limits_of(series.budget).values_per_label;
        (many > 0 && u64::from(family.live()) >= many).then_some(many)
    }

    /// Returns for each label the budget that its value exceeds; empty if none does.
    fn labels_over_budget(
        &self,
        series: &NewSeries<'_>,
        family: Option<&Family>,
        values: Option<&LabelValues>,
        limits: &MetricLimits,
    ) -> Vec<Option<Limit>> {
        let many = family.and_then(|family| self.value_threshold(series, family));
        let limit = |name: &[u8], value: &[u8]| {
            if value == &*self.fold {
                None
            } else if labels::is_long(value, limits.value_bytes) {
                Some(Limit::ValueBytes)
            } else {
                let many = many.zip(values);
                let exceeded = many.is_some_and(|(many, values)| values.exceeds(name, value, many));
                exceeded.then_some(Limit::ValuesPerLabel)
            }
        };
        let mut over: Vec<Option<Limit>> = Vec::new();
        for (at, (name, value)) in labels::iter(series.key.labels).enumerate() {
            if let Some(limit) = limit(name, value) {
                over.resize(at, None);
                over.push(Some(limit));
            }
        }
        over
    }

    /// Collects the label values of a family from all of its series.
    pub(super) fn count_values(
        &self,
        pages: &Snapshot,
        family: &Family,
        threshold: u64,
    ) -> LabelValues {
        let mut values = LabelValues::new(threshold);
        pages.find_series(&family.name, |_, labels| {
            values.add(labels, &self.fold);
            None::<()>
        });
        values
    }

    /// Counts the label values of large families, whose lines go on meanwhile.
    pub(super) fn count_large_families(&self) {
        loop {
            let Some(next) = self.read().account.uncounted.last().cloned() else { return };
            let (family, pages) = &*next;
            let mut values = self.count_values(pages, family, 0);
            loop {
                let mut members = self.write();
                let Account { uncounted, values: all, .. } = &mut members.account;
                // The family may have shrunk since then, and grown again.
                let at = uncounted.iter().position(|awaited| Arc::ptr_eq(awaited, &next));
                let Some((at, awaited)) = at.zip(all.get_mut(&family.id)) else { break };
                let changes = awaited.take_changes();
                if changes.len() <= CHANGES_AT_ONCE {
                    values.apply(changes, &self.fold);
                    awaited.complete(values);
                    uncounted.swap_remove(at);
                    break;
                }
                drop(members);
                values.apply(changes, &self.fold);
            }
        }
    }

    /// Replaces the values over budget by the fold value.
    fn fold_labels(&self, text: &[u8], over: &[Option<Limit>]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len().min(4 << 10));
        for (at, (name, value)) in labels::iter(text).enumerate() {
            let folds = over.get(at).is_some_and(Option::is_some);
            labels::push_rendered(&mut out, name, if folds { &self.fold } else { value });
        }
        out
    }

    /// Returns the budget that one more series would exceed.
    fn exceeded_limit(
        &self,
        members: &Members,
        series: &NewSeries<'_>,
        family: Option<&Family>,
        limits: &MetricLimits,
    ) -> Option<Limit> {
        let (account, budget) = (&members.account, &self.budget);
        let kind = series.aggregation.kind();
        let samples = self.samples(members, series, family);
        let keeps = self.enforces()
            && folds(kind)
            && series.key.labels != OVERFLOW
            && !family.is_some_and(Family::has_overflow);
        let (present, kept) = family.map_or((0, 0), |family| (family.samples(), family.reserved()));
        let keep = if keeps { family.map_or(0, Family::max_samples).max(samples) } else { 0 };
        let exceeded = |sum: u64, most: u64| most > 0 && sum > most;
        if exceeded(present + samples + keep, limits.series) {
            return Some(Limit::SeriesPerMetric);
        }
        if exceeded(account.samples + account.reserved - kept + samples + keep, budget.series) {
            return Some(Limit::Series);
        }
        let (keep, kept) = (kept_bytes(kind, keep), kept_bytes(kind, kept));
        let new = if family.is_none() { family_cost(series.key.name) } else { 0 };
        let bytes = new + cost(series.key.labels.len(), kind, samples) + keep;
        exceeded(account.bytes + account.reserved_bytes - kept + bytes, budget.memory)
            .then_some(Limit::Memory)
    }

    /// Returns the maximum number of samples of the overflow series of a metric under all budgets, without its start
    /// time. For an existing metric this is at least the number reserved for it, even if its rule has changed.
    fn room_for_overflow(
        &self,
        members: &Members,
        series: &NewSeries<'_>,
        family: Option<&Family>,
        limits: &MetricLimits,
    ) -> u64 {
        let (present, kept) = family.map_or((0, 0), |family| (family.samples(), family.reserved()));
        let new = if family.is_none() { family_cost(series.key.name) } else { 0 };
        let kind = series.aggregation.kind();
        let of_metric = remaining(limits.series, present).max(kept);
        let room = of_metric.min(self.room(&members.account, kind, kept, new));
        room.saturating_sub(self.start_times(series.key.name, kind))
    }

    /// Returns the number of samples that fit into the budgets of the whole registry, for an overflow series
    /// with `kept` reserved samples. `bytes` are needed in addition.
    fn room(&self, account: &Account, kind: Kind, kept: u64, bytes: u64) -> u64 {
        let lines = remaining(self.budget.series, account.samples + account.reserved - kept);
        let used = account.bytes + account.reserved_bytes - kept_bytes(kind, kept) + bytes;
        lines.min(affordable(kind, remaining(self.budget.memory, used)))
    }

    /// Returns the number of samples with the start time of a series: 0 or 1. It counts also while the family is
    /// of unknown type in OpenMetrics, which has no start times, because the type depends on the names of other
    /// families.
    fn start_times(&self, name: &str, kind: Kind) -> u64 {
        let has_one = match kind {
            Kind::Counter => name.ends_with("_total"),
            kind => kind.is_observer(),
        };
        u64::from(self.exposes_start_times && has_one)
    }

    /// Returns the number of samples that the series will have.
    fn samples(&self, members: &Members, series: &NewSeries<'_>, family: Option<&Family>) -> u64 {
        let sets = family.and_then(|family| members.sets.get(&family.id));
        let names = || self.names_hash(&ParsedLabels::new(series.key.labels));
        let set = sets
            .and_then(|sets| sets.get(&names()))
            .filter(|set| set.generation == series.generation);
        let samples = set.map_or_else(|| series.aggregation.samples(), |set| set.spec.samples());
        samples + self.start_times(series.key.name, series.aggregation.kind())
    }

    /// Remembers that the label set is folded into `resolved`.
    fn remember_folded(
        &self,
        members: &mut Members,
        series: &NewSeries<'_>,
        resolved: Resolved,
    ) -> Resolved {
        let account = &mut members.account;
        if account.folded.len() >= MAX_FOLDED {
            account.missed_folds += 1;
            if account.has_removed && account.missed_folds > MAX_FOLDED / 16 {
                (account.has_removed, account.missed_folds) = (false, 0);
                let (scalars, observers) = (self.scalars.view(), self.observers.view());
                account.folded.retain(|_, (handle, _)| handle.is_alive(&scalars, &observers));
            }
        }
        let hash = self.set_hash(&series.key);
        if account.folded.len() < MAX_FOLDED || account.folded.contains_key(&hash) {
            account.folded.insert(hash, (resolved.handle, resolved.ttl));
        }
        resolved
    }

    /// Adds a new series to the budgets. Its family already counts it.
    pub(super) fn add_to_budgets(
        &self,
        members: &mut Members,
        family: &Family,
        labels: &[u8],
        handle: Handle,
        spec: &Spec,
    ) {
        members.set_samples(handle.slot, spec.samples());
        let samples = spec.samples() + self.start_times(&family.name, family.kind);
        let account = &mut members.account;
        if family.live() == 1 {
            account.bytes += family_cost(&family.name);
        }
        family.add_samples(samples, labels == OVERFLOW);
        account.widths.add(family, samples);
        account.samples += samples;
        account.bytes += cost(labels.len(), family.kind, samples);
        if let Some(values) = account.values.get_mut(&family.id) {
            values.add(labels, &self.fold);
        }
        self.reserve_overflow(account, family);
    }

    /// Subtracts a removed series from the budgets. Its family no longer counts it.
    pub(super) fn remove_from_budgets(
        &self,
        members: &mut Members,
        family: &Family,
        gone: &RemovedSeries,
    ) {
        let start_times = self.start_times(&family.name, family.kind);
        let samples = members.samples_of(gone.slot) + start_times;
        let account = &mut members.account;
        account.has_removed = true;
        account.samples -= samples;
        account.bytes -= cost(gone.label_bytes, family.kind, samples);
        family.remove_samples(samples, gone.is_overflow);
        account.widths.remove(family, samples);
        if family.live() == 0 {
            account.bytes -= family_cost(&family.name);
        }
        let few = |values: &LabelValues| u64::from(family.live()) < values.threshold.div_ceil(2);
        if account.values.get(&family.id).is_some_and(few) {
            account.values.remove(&family.id);
            account.uncounted.retain(|awaited| awaited.0.id != family.id);
        }
        self.reserve_overflow(account, family);
    }

    /// Reserves samples for the overflow series of a family if it may need one: as many as its widest live series
    /// has, as far as there is room. There is always room for what was reserved before.
    fn reserve_overflow(&self, account: &mut Account, family: &Family) {
        let keeps =
            self.enforces() && folds(family.kind) && !family.has_overflow() && family.live() > 0;
        let before = family.reserved();
        let samples = if keeps {
            family.max_samples().min(self.room(account, family.kind, before, 0))
        } else {
            0
        };
        if before != samples {
            account.reserved = account.reserved + samples - before;
            account.reserved_bytes = account.reserved_bytes + kept_bytes(family.kind, samples)
                - kept_bytes(family.kind, before);
            family.set_reserved(samples);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::exposition::budget::Budget;
    use crate::statsd::clock::Clock;
    use crate::statsd::series::registry::Aggregation;
    use crate::statsd::series::senders::Origin;

    fn registry() -> Registry {
        let budget = Budget { mode: BudgetMode::Enforce, ..Budget::default() };
        Registry::new(Clock::manual(), Arc::new(|_| false), budget, Box::new(|| {}))
    }

    /// Adds series of these senders, each with its number as a label, and returns how many are live.
    fn add(registry: &Registry, senders: Range<u64>, values_per_label: Option<u64>) -> u64 {
        for sender in senders {
            let labels = labels::rendered(&[("n", &sender.to_string())]);
            let series = NewSeries {
                key: Key { name: "m", labels: &labels, label_count: 1 },
                aggregation: Aggregation::Counter,
                help: "",
                ttl: 0,
                generation: 1,
                budget: RuleBudget { values_per_label, ..RuleBudget::default() },
                origin: &Origin::default(),
                sender,
            };
            registry.resolve(&series).expect("a series");
        }
        registry.read().live
    }

    fn end(registry: &Registry, senders: Range<u64>) {
        registry.end_senders(&senders.collect::<Vec<_>>());
    }

    /// Returns the number of values of the label.
    fn counted(registry: &Registry) -> Option<u64> {
        let members = registry.read();
        members.account.values.values().next().map(|values| values.count(b"n"))
    }

    /// A limit that a reload adds to a metric of many series holds once they are counted, for which no line waits.
    #[test]
    fn values_of_a_large_metric_are_counted_while_lines_go_on() {
        const GONE: u64 = CHANGES_AT_ONCE as u64 + 1;
        let registry = registry();
        let count = MAX_COUNTED_AT_ONCE + 1;
        add(&registry, 1..count + 1, None);
        assert_eq!(add(&registry, 0..1, Some(10)), count + 1, "not counted yet");
        end(&registry, 1..GONE + 1);
        registry.count_large_families();
        let left = count + 1 - GONE;
        assert_eq!(counted(&registry), Some(left));
        assert_eq!(add(&registry, count + 2..count + 9, Some(10)), left + 1, "a folded series");
        assert_eq!(counted(&registry), Some(left));
    }

    /// A metric that shrinks before its values are counted, and reaches its limit again.
    #[test]
    fn values_that_are_gone_are_not_counted() {
        let registry = registry();
        let count = MAX_COUNTED_AT_ONCE + 1;
        add(&registry, 1..count + 1, None);
        add(&registry, 0..1, Some(10));
        end(&registry, 3..count + 1);
        assert_eq!(counted(&registry), None);
        add(&registry, 3..11, Some(10));
        registry.count_large_families();
        assert_eq!(counted(&registry), Some(10));
    }

    /// A limit that a metric reaches in the ordinary way holds exactly, however large it is.
    #[test]
    fn values_of_a_metric_that_reaches_its_limit_are_counted_at_once() {
        let registry = registry();
        let limit = MAX_COUNTED_AT_ONCE + 1;
        assert_eq!(add(&registry, 1..limit + 9, Some(limit)), limit + 1, "with the folded series");
    }
}
