//! Budgets: what happens to a label set that would be one too many.
//!
//! A series that exists never comes here, so that budgets cost the short way of a line nothing. When a new one would go
//! beyond the budget of a label, that label alone folds: its value becomes the fold value. When it would go beyond the
//! budget of its metric, or of everything, it joins the one series `{otel_metric_overflow="true"}` of its metric, for
//! which there always is a place kept. Gauges and sets do not sum up and are refused. A label set that was folded stays
//! where it is as long as the series lives that it was folded into, whatever room there is by then.

use std::hash::{BuildHasher, Hasher};

use super::{Absent, Found, Members, NewSeries, Registry, Rejection, Resolved, Spec, names_hash};
use crate::exposition::budget::{Action, BudgetMode, Limit, RuleBudget};
use crate::exposition::labels;
use crate::statsd::series::account::{
    Account, Gone, MAX_FOLDED, OVERFLOW, cost, family_cost, folds, kept_bytes,
};
use crate::statsd::series::cell::Handle;
use crate::statsd::series::family::Family;
use crate::statsd::series::landing::Beyond;
use crate::statsd::series::senders::Outcome;
use crate::statsd::series::tree::Key;
use crate::statsd::series::values::LabelValues;

/// What one metric is allowed.
pub(super) struct Allowed {
    pub(super) series: u64,
    pub(super) values_per_label: u64,
    value_bytes: u64,
}

/// What becomes of a label set that nothing is known of yet.
pub(super) struct Plan {
    /// The budgets that it goes beyond.
    pub(super) beyond: Vec<Beyond>,
    /// Where it lands.
    pub(super) end: Result<End, Rejection>,
}

/// The series in which a label set lands.
pub(super) enum End {
    /// A new one of its own.
    Makes(Absent),
    /// One that is there, with these labels.
    Joins(Resolved, Vec<u8>),
    /// A new one with these labels.
    MakesAnother(Absent, Vec<u8>),
}

impl Registry {
    /// Whether anything is counted for budgets.
    pub(super) fn has_budget(&self) -> bool {
        self.budget.mode != BudgetMode::Off
    }

    fn enforces(&self) -> bool {
        self.budget.mode == BudgetMode::Enforce
    }

    pub(super) fn allowed(&self, rule: RuleBudget) -> Allowed {
        Allowed {
            series: rule.series.unwrap_or(self.budget.series_per_metric),
            values_per_label: rule.values_per_label.unwrap_or(self.budget.values_per_label),
            value_bytes: rule.value_bytes.unwrap_or(self.budget.value_bytes),
        }
    }

    /// Where a label set was folded into, if that lives.
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

    /// Makes the series, or the one into which it folds.
    ///
    /// # Errors
    /// The budget that it would go beyond.
    pub(super) fn within(
        &self,
        members: &mut Members,
        series: &NewSeries<'_>,
        absent: Absent,
    ) -> Result<Resolved, Rejection> {
        if !self.has_budget() {
            return Ok(self.make(members, series, absent));
        }
        if let Some(family) = absent.family.as_deref()
            && let Some(threshold) = self.looks_at_values(series, family)
        {
            self.gather_values(members, family, threshold);
        }
        let values =
            absent.family.as_ref().and_then(|family| members.account.values.get(&family.id));
        let Plan { beyond, end } = self.plan(members, series, absent, values);
        if !beyond.is_empty() {
            let now = self.clock.now();
            for Beyond { label, limit, action } in &beyond {
                self.over.note(series.key.name, label, *limit, *action, now);
            }
            self.senders.note(series.origin, series.key.name, Outcome::Beyond, now);
        }
        match end? {
            End::Makes(absent) => Ok(self.make(members, series, absent)),
            End::Joins(resolved, _) => Ok(self.remember(members, series, resolved)),
            End::MakesAnother(absent, labels) => {
                let mut other = *series;
                let own_count = labels != OVERFLOW;
                let label_count = if own_count { series.key.label_count } else { 1 };
                other.key = Key { labels: &labels, label_count, ..series.key };
                let resolved = self.make(members, &other, absent);
                Ok(self.remember(members, series, resolved))
            }
        }
    }

    /// What becomes of a label set that nothing is known of. `values` are those of the labels of its family, where a
    /// budget of values is to be held against them. Nothing is changed.
    pub(super) fn plan(
        &self,
        members: &Members,
        series: &NewSeries<'_>,
        mut absent: Absent,
        values: Option<&LabelValues>,
    ) -> Plan {
        let allowed = self.allowed(series.budget);
        let folds = folds(series.aggregation.kind());
        let action = if folds { Action::Folded } else { Action::Refused };
        let mut beyond = Vec::new();
        let mut note = |label: &str, limit, action| {
            let action = if self.enforces() { action } else { Action::Tracked };
            beyond.push(Beyond { label: label.to_owned(), limit, action });
        };
        let end = 'end: {
            if let Some(label) = self.long_name(&series.key) {
                note(label, Limit::NameBytes, Action::Refused);
                if self.enforces() {
                    break 'end Err(Rejection::NameLimit);
                }
            }
            let mut wanted = *series;
            let mut folded = None;
            let over = self.labels_beyond(series, absent.family.as_deref(), values, &allowed);
            if !over.is_empty() {
                for ((name, _), limit) in labels::iter(series.key.labels).zip(&over) {
                    if let Some(limit) = limit {
                        note(&String::from_utf8_lossy(name), *limit, action);
                    }
                }
                if self.enforces() {
                    if !folds {
                        break 'end Err(Rejection::LabelLimit);
                    }
                    let text = &*folded.insert(self.fold_labels(series.key.labels, &over));
                    wanted.key.labels = text;
                    match self.find(members, &wanted) {
                        Err(rejection) => break 'end Err(rejection),
                        Ok(Found::Alive(resolved)) => {
                            break 'end Ok(End::Joins(resolved, text.clone()));
                        }
                        Ok(Found::Absent(other)) => absent = other,
                    }
                }
            }
            if let Some(limit) = self.is_full(members, &wanted, absent.family.as_deref(), &allowed)
            {
                wanted.key = Key { labels: OVERFLOW, label_count: 1, ..series.key };
                if self.enforces() && folds {
                    match self.find(members, &wanted) {
                        Err(rejection) => break 'end Err(rejection),
                        Ok(Found::Alive(resolved)) => {
                            note("", limit, action);
                            break 'end Ok(End::Joins(resolved, OVERFLOW.to_vec()));
                        }
                        Ok(Found::Absent(other)) => {
                            let family = other.family.as_deref();
                            if self.is_full(members, &wanted, family, &allowed).is_none() {
                                note("", limit, action);
                                break 'end Ok(End::MakesAnother(other, OVERFLOW.to_vec()));
                            }
                        }
                    }
                }
                note("", limit, Action::Refused);
                if self.enforces() {
                    break 'end Err(match limit {
                        Limit::Memory => Rejection::MemoryLimit,
                        _ => Rejection::SeriesLimit,
                    });
                }
            }
            Ok(match folded {
                Some(labels) => End::MakesAnother(absent, labels),
                None => End::Makes(absent),
            })
        };
        Plan { beyond, end }
    }

    fn make(&self, members: &mut Members, series: &NewSeries<'_>, absent: Absent) -> Resolved {
        let handle = self.create(members, series, absent);
        Resolved { handle, ttl: series.ttl }
    }

    /// The label whose name is too long, or nothing in place of the metric's own.
    fn long_name<'a>(&self, key: &Key<'a>) -> Option<&'a str> {
        let most = usize::try_from(self.budget.name_bytes).ok().filter(|most| *most > 0)?;
        if key.name.len() > most {
            return Some("");
        }
        let mut names = labels::iter(key.labels).map(|(name, _)| name);
        names.find(|name| name.len() > most).map(|name| str::from_utf8(name).unwrap_or_default())
    }

    /// How many values a label of the family may have, if it has so many label sets that this may be too few.
    pub(super) fn looks_at_values(&self, series: &NewSeries<'_>, family: &Family) -> Option<u64> {
        let many = self.allowed(series.budget).values_per_label;
        (many > 0 && u64::from(family.live()) >= many).then_some(many)
    }

    /// For each label the budget that its value goes beyond; nothing if none does.
    fn labels_beyond(
        &self,
        series: &NewSeries<'_>,
        family: Option<&Family>,
        values: Option<&LabelValues>,
        allowed: &Allowed,
    ) -> Vec<Option<Limit>> {
        let many = family.and_then(|family| self.looks_at_values(series, family));
        let limit = |name: &[u8], value: &[u8]| {
            let long = allowed.value_bytes > 0
                && value.len() as u64 > allowed.value_bytes
                && labels::plain(value).len() as u64 > allowed.value_bytes;
            if value == &*self.fold {
                None
            } else if long {
                Some(Limit::ValueBytes)
            } else {
                let many = many.zip(values);
                let beyond = many.is_some_and(|(many, values)| values.is_beyond(name, value, many));
                beyond.then_some(Limit::ValuesPerLabel)
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

    /// Makes sure that the values of the labels of a family are there.
    fn gather_values(&self, members: &mut Members, family: &Family, threshold: u64) {
        if !members.account.values.contains_key(&family.id) {
            let values = self.values_of(members, family, threshold);
            members.account.values.insert(family.id, values);
        }
    }

    /// The values of the labels of a family; looks at all of its series.
    pub(super) fn values_of(
        &self,
        members: &Members,
        family: &Family,
        threshold: u64,
    ) -> LabelValues {
        let most = if self.enforces() { 0 } else { threshold };
        let mut values = LabelValues::new(threshold, most);
        members.tree.each_of(family, |text| values.join(text, &self.fold));
        values
    }

    /// The labels with the fold value in place of those that go beyond a budget.
    fn fold_labels(&self, text: &[u8], over: &[Option<Limit>]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len().min(4 << 10));
        for (at, (name, value)) in labels::iter(text).enumerate() {
            let folds = over.get(at).is_some_and(Option::is_some);
            labels::push_rendered(&mut out, name, if folds { &self.fold } else { value });
        }
        out
    }

    /// The budget that the series would go beyond by being one more.
    fn is_full(
        &self,
        members: &Members,
        series: &NewSeries<'_>,
        family: Option<&Family>,
        allowed: &Allowed,
    ) -> Option<Limit> {
        let (account, budget) = (&members.account, &self.budget);
        let kind = series.aggregation.kind();
        let width = self.width(members, series, family);
        let keeps = self.enforces()
            && folds(kind)
            && series.key.labels != OVERFLOW
            && !family.is_some_and(Family::has_overflow);
        let (present, kept) = family.map_or((0, 0), |family| (family.samples(), family.kept()));
        let keep = if keeps { family.map_or(0, Family::widest).max(width) } else { 0 };
        let beyond = |sum: u64, most: u64| most > 0 && sum > most;
        if beyond(present + width + keep, allowed.series) {
            return Some(Limit::SeriesPerMetric);
        }
        if beyond(account.samples + account.reserved - kept + width + keep, budget.series) {
            return Some(Limit::Series);
        }
        let (keep, kept) = (kept_bytes(kind, keep), kept_bytes(kind, kept));
        let new = if family.is_none() { family_cost(series.key.name) } else { 0 };
        let bytes = new + cost(series.key.labels.len(), kind, width) + keep;
        beyond(account.bytes + account.reserved_bytes - kept + bytes, budget.memory)
            .then_some(Limit::Memory)
    }

    /// Lines of the text format that the series will have.
    fn width(&self, members: &Members, series: &NewSeries<'_>, family: Option<&Family>) -> u64 {
        let sets = family.and_then(|family| members.sets.get(&family.id));
        let set = sets
            .and_then(|sets| sets.get(&names_hash(series.key.labels)))
            .filter(|set| set.generation == series.generation);
        set.map_or_else(|| series.aggregation.samples(), |set| set.spec.samples())
    }

    /// Notes that the label set is where `resolved` is.
    fn remember(
        &self,
        members: &mut Members,
        series: &NewSeries<'_>,
        resolved: Resolved,
    ) -> Resolved {
        let account = &mut members.account;
        if account.folded.len() >= MAX_FOLDED {
            account.unremembered += 1;
            if account.left && account.unremembered > MAX_FOLDED / 16 {
                (account.left, account.unremembered) = (false, 0);
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

    /// Enters a series that was made. Its family counts it already.
    pub(super) fn enter(
        &self,
        members: &mut Members,
        family: &Family,
        labels: &[u8],
        handle: Handle,
        spec: &Spec,
    ) {
        let width = spec.samples();
        members.set_width(handle.slot, width);
        let account = &mut members.account;
        if family.live() == 1 {
            account.bytes += family_cost(&family.name);
        }
        family.widen(width, labels == OVERFLOW);
        account.samples += width;
        account.bytes += cost(labels.len(), family.kind, width);
        if let Some(values) = account.values.get_mut(&family.id) {
            values.join(labels, &self.fold);
        }
        self.keep_place(account, family);
    }

    /// Takes a series out that its family does not count any more.
    pub(super) fn exit(&self, members: &mut Members, family: &Family, gone: &Gone) {
        let width = members.width_of(gone.slot);
        let account = &mut members.account;
        account.left = true;
        account.samples -= width;
        account.bytes -= cost(gone.label_bytes, family.kind, width);
        family.narrow(width, gone.is_overflow);
        if family.live() == 0 {
            account.bytes -= family_cost(&family.name);
        }
        let few = |values: &LabelValues| u64::from(family.live()) < values.threshold.div_ceil(2);
        if account.values.get(&family.id).is_some_and(few) {
            account.values.remove(&family.id);
        }
        self.keep_place(account, family);
    }

    /// Keeps a place for the overflow series of a family, if it may need one.
    fn keep_place(&self, account: &mut Account, family: &Family) {
        let keeps =
            self.enforces() && folds(family.kind) && !family.has_overflow() && family.live() > 0;
        let (before, width) = (family.kept(), if keeps { family.widest() } else { 0 });
        if before != width {
            account.reserved = account.reserved + width - before;
            account.reserved_bytes = account.reserved_bytes + kept_bytes(family.kind, width)
                - kept_bytes(family.kind, before);
            family.keep(width);
        }
    }
}
