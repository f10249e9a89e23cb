//! Limits on label values: folds or rejects series whose user-defined labels have too many or too long values.
//!
//! An *open* family has labels chosen by users: Kubernetes labels and annotations, and all labels of custom resource metrics.
//! A [`Table`] counts the series of each open family and the values of each of its labels. It is built from the rendered text
//! in the store and updated with each change, so that decisions depend on the current objects only.
//!
//! A value over a limit is *folded*: replaced by a fixed value. If the series would then no longer identify its object,
//! it is rejected instead.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use hashbrown::HashSet;

use crate::cache::{ObjectView, Rendered, Schema};
use crate::exposition::budget::{Action, Budget, BudgetMode, Limit};
use crate::exposition::value_counts::ValueCounts;
use crate::exposition::{escape, labels};
use crate::resources::custom::template;
use crate::resources::{UserLabelFamily, UserLabels};

/// A budget that an object exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exceeded {
    /// The index of the family; `None` if the budget is that of the whole kind.
    pub(super) family: Option<usize>,
    /// The label; empty if the budget is not about one label.
    pub(super) label: String,
    pub(super) limit: Limit,
    pub(super) action: Action,
}

impl Exceeded {
    fn label(family: usize, (label, limit): (&Vec<u8>, &Limit), action: Action) -> Self {
        let label = String::from_utf8_lossy(label).into_owned();
        Self { family: Some(family), label, limit: *limit, action }
    }
}

/// Rejected series, which are rendered again by a relist when there is room.
#[derive(Clone, Debug, Default)]
pub(super) struct RejectedSeries {
    /// The families with rejected series, and the smallest number of them of one object.
    families: BTreeMap<usize, u64>,
    /// The hashes of labels with too many values, for which series were rejected.
    pub(super) labels: BTreeSet<u64>,
}

impl RejectedSeries {
    /// Adds the rejected series of an object.
    pub(super) fn merge(&mut self, object: Self) {
        for (family, series) in object.families {
            let least = self.families.entry(family).or_insert(series);
            *least = series.min(*least);
        }
        self.labels.extend(object.labels);
    }
}

/// A budget whose room rejected series wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Room {
    /// The series of the kind.
    Kind,
    /// The series of a family.
    Family(usize),
    /// The values of the label with this hash.
    Label(u64),
}

/// Room that rejected series wait for, in numbers of series or values.
pub(super) struct Wanted {
    pub(super) room: Room,
    /// The least that is needed.
    pub(super) least: u64,
    pub(super) used: u64,
    pub(super) limit: u64,
}

/// The open families of a kind, and their budgets.
#[derive(Debug)]
pub(super) struct Rules {
    budget: Budget,
    /// The escaped replacement of folded values.
    fold: Vec<u8>,
    families: Vec<Family>,
    names: Vec<String>,
    /// The kind is a custom resource: all labels, and the series of each family, are limited.
    all: bool,
    hasher: foldhash::quality::RandomState,
}

/// An open family.
#[derive(Debug)]
struct Family {
    open: UserLabelFamily,
    /// The index of the first open family of the same name, whose counts it shares.
    first: usize,
}

/// The series and label values of each open family.
#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Table {
    pub(super) values: ValueCounts,
    /// The number of series of each family, old and new state together during a relist.
    series: Vec<u64>,
    /// The number of series in both the old and the new state, which are counted twice in `series`.
    overlap: Vec<u64>,
}

/// The labels of a line whose values exceed a budget.
type OverLimit = BTreeMap<Vec<u8>, Limit>;

/// The decision about a line: the labels whose values are folded, if any; `None` if it is rejected.
type LineDecision = Option<OverLimit>;

/// The decisions about the lines of open families, by number of the family.
type Decisions<'f> = BTreeMap<usize, (&'f Family, Vec<LineDecision>)>;

/// The parts of a rendered line.
#[derive(Clone, Copy)]
struct LineParts<'t> {
    /// The labels that all lines of the object share.
    identity: &'t [u8],
    /// The other labels.
    own: &'t [u8],
    value: &'t [u8],
    /// The line as rendered, without the shared labels.
    text: &'t [u8],
}

impl<'t> LineParts<'t> {
    /// Splits the lines of one family of an object.
    fn each(identity: &'t [u8], lines: &'t [u8]) -> impl Iterator<Item = Self> {
        let identity = identity.strip_prefix(b"{").unwrap_or(identity);
        let lines = lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.map(move |line| {
            let at = memchr::memrchr(b' ', line).unwrap_or(line.len());
            let (own, value) = (&line[..at], line.get(at + 1..).unwrap_or_default());
            let own = own.strip_suffix(b"}").unwrap_or(own);
            let own = own.strip_prefix(b",").or_else(|| own.strip_prefix(b"{")).unwrap_or(own);
            Self { identity, own, value, text: line }
        })
    }

    fn labels(self) -> impl Iterator<Item = (&'t [u8], &'t [u8])> {
        labels::iter(self.identity).chain(labels::iter(self.own))
    }
}

impl Rules {
    /// Creates the rules of a kind; `None` if it has no open family.
    pub(super) fn new(
        budget: &Budget,
        schema: &Schema,
        open: Vec<UserLabelFamily>,
    ) -> Option<Self> {
        let names: Vec<String> = schema.families.iter().map(|family| family.name.clone()).collect();
        let all = matches!(open.first()?.labels, UserLabels::All(_));
        let name = |open: &UserLabelFamily| names.get(open.family);
        let first = |at: usize| open.iter().position(|other| name(other) == name(&open[at]));
        let firsts: Vec<usize> = (0..open.len()).map(|at| first(at).unwrap_or(at)).collect();
        let families = open.iter().cloned().zip(firsts);
        let families = families.map(|(open, first)| Family { open, first }).collect();
        let mut fold = Vec::new();
        escape::label_value(&mut fold, &budget.fold_value);
        let (budget, hasher) = (budget.clone(), foldhash::quality::RandomState::default());
        Some(Self { budget, fold, families, names, all, hasher })
    }

    fn enforces(&self) -> bool {
        self.budget.mode == BudgetMode::Enforce
    }

    /// Returns the [population](Self::population) up to which a kind is within all budgets but the length of values.
    pub(super) fn safe_population(&self) -> u64 {
        let most = [self.budget.values_per_label, self.budget.series_per_metric];
        let most = most.into_iter().take(if self.all { 2 } else { 1 });
        most.filter(|most| *most > 0).min().unwrap_or(u64::MAX)
    }

    /// Returns the number to compare with [`Rules::safe_population`]: series for custom resources, else objects.
    pub(super) fn population(&self, objects: u64, series: u64) -> u64 {
        if self.all { series } else { objects }
    }

    /// Returns whether the series of each family are limited.
    pub(super) fn counts_series(&self) -> bool {
        self.all && self.budget.series_per_metric > 0
    }

    /// Returns whether a label value of the object may be too long, judged by the length of its text.
    pub(super) fn may_be_long(&self, object: &Rendered) -> bool {
        let most = usize::try_from(self.budget.value_bytes).unwrap_or(usize::MAX);
        let longest = |lines: &[u8]| object.identity.len() + lines.len() > most;
        most > 0 && self.families.iter().any(|family| longest(object.family(family.open.family)))
    }

    fn is_open(&self, family: &Family, label: &[u8]) -> bool {
        match family.open.labels {
            UserLabels::Prefixed(prefix) => label.starts_with(prefix.as_bytes()),
            UserLabels::All(_) => true,
        }
    }

    fn label_hash(&self, family: &Family, label: &[u8]) -> u64 {
        self.hasher.hash_one((family.first, label))
    }

    /// Returns the hashes of a label and of its value.
    fn hashes(&self, family: &Family, label: &[u8], value: &[u8]) -> (u64, u64) {
        (self.label_hash(family, label), self.hasher.hash_one((family.first, label, value)))
    }

    /// Returns the user-defined labels of a line that are not folded.
    fn user_labels<'t>(
        &self,
        family: &Family,
        parts: LineParts<'t>,
    ) -> impl Iterator<Item = (&'t [u8], &'t [u8])> {
        // In built-in kinds, the shared labels are not user-defined.
        let identity = if self.all { parts.identity } else { b"" };
        let labels = labels::iter(identity).chain(labels::iter(parts.own));
        labels.filter(|(name, value)| self.is_open(family, name) && *value != self.fold)
    }

    /// Returns the labels of a line whose values are too long or too many.
    fn over_limit(
        &self,
        family: &Family,
        parts: LineParts<'_>,
        table: Option<&Table>,
    ) -> OverLimit {
        let Budget { values_per_label: many, value_bytes, .. } = self.budget;
        let is_new = |table: &Table, name: &[u8], value: &[u8]| {
            let (name, value) = self.hashes(family, name, value);
            many > 0 && table.values.is_over_limit(name, value, many)
        };
        let verdict = |name: &[u8], value: &[u8]| {
            if labels::is_long(value, value_bytes) {
                return Some(Limit::ValueBytes);
            }
            table.is_some_and(|table| is_new(table, name, value)).then_some(Limit::ValuesPerLabel)
        };
        let user_labels = self.user_labels(family, parts);
        user_labels
            .filter_map(|(name, value)| Some((name.to_vec(), verdict(name, value)?)))
            .collect()
    }

    /// Returns whether a line still identifies its object when the labels `over_limit` are folded.
    fn names_object(
        &self,
        family: &Family,
        parts: LineParts<'_>,
        over_limit: &OverLimit,
        object: &Rendered,
    ) -> bool {
        let UserLabels::All([namespace, name, uid]) = &family.open.labels else { return true };
        let value = |label: &Option<String>| {
            let label = label.as_ref()?.as_bytes();
            let is_over = over_limit.contains_key(label);
            let (_, value) = parts.labels().find(|(own, _)| *own == label)?;
            (!is_over && *value != *self.fold).then_some(value)
        };
        value(uid).is_some_and(|value| *value == *object.uid)
            || value(name).is_some_and(|name| !name.is_empty())
                && (object.namespace.is_empty()
                    || value(namespace).is_some_and(|value| *value == *object.namespace))
    }

    /// Applies the budgets to an object and counts its remaining lines. Adds exceeded budgets to `exceeded` and rejected
    /// lines to `rejected`.
    pub(super) fn apply_budgets(
        &self,
        object: &mut Rendered,
        mut table: Option<&mut Table>,
        rejected: &mut RejectedSeries,
        exceeded: &mut Vec<Exceeded>,
    ) {
        let mut decisions = Decisions::new();
        for family in &self.families {
            let own = self.decide(family, object, table.as_deref_mut(), rejected, exceeded);
            decisions.insert(family.open.family, (family, own));
        }
        let all = decisions.values().flat_map(|(_, decisions)| decisions);
        let mut changed =
            all.filter(|decision| !decision.as_ref().is_some_and(OverLimit::is_empty));
        if !self.enforces() || changed.next().is_none() {
            return;
        }
        if self.all {
            self.rewrite(object, &decisions, table, exceeded);
        } else {
            self.fold(object, &decisions);
        }
    }

    /// Decides about each line of a family, and counts those that are kept.
    fn decide(
        &self,
        family: &Family,
        object: &Rendered,
        mut table: Option<&mut Table>,
        rejected: &mut RejectedSeries,
        exceeded: &mut Vec<Exceeded>,
    ) -> Vec<LineDecision> {
        let number = family.open.family;
        let lines = || LineParts::each(&object.identity, object.family(number));
        let (mut decisions, mut full_labels) = (Vec::new(), Vec::new());
        for parts in lines() {
            let over_limit = self.over_limit(family, parts, table.as_deref());
            let folds =
                over_limit.is_empty() || self.names_object(family, parts, &over_limit, object);
            let action = if folds { Action::Folded } else { Action::Refused };
            exceeded.extend(over_limit.iter().map(|over| Exceeded::label(number, over, action)));
            if !folds && self.enforces() {
                let many = over_limit.iter().filter(|(_, limit)| **limit == Limit::ValuesPerLabel);
                full_labels.extend(many.map(|(label, _)| self.label_hash(family, label)));
                decisions.push(None);
                continue;
            }
            // Values that are only tracked stay in the object, so they are counted.
            let folded = if self.enforces() { &over_limit } else { &OverLimit::new() };
            if let Some(table) = table.as_deref_mut() {
                self.count_line(family, parts, folded, true, table);
            }
            decisions.push(Some(over_limit));
        }
        let most = self.budget.series_per_metric;
        let kept = decisions.iter().flatten().count() as u64;
        let table = table.filter(|table| {
            self.all && most > 0 && kept > 0 && table.series_of(family.first) > most
        });
        let Some(table) = table else {
            rejected.labels.extend(full_labels);
            return decisions;
        };
        let (limit, action) = (Limit::SeriesPerMetric, Action::Refused);
        exceeded.push(Exceeded { family: Some(number), label: String::new(), limit, action });
        if self.enforces() {
            let least = rejected.families.entry(family.first).or_insert(kept);
            *least = kept.min(*least);
            for (parts, decision) in lines().zip(&mut decisions) {
                if let Some(over_limit) = decision.take() {
                    self.count_line(family, parts, &over_limit, false, table);
                }
            }
        }
        decisions
    }

    /// Rewrites the open families of a built-in kind, which have one line per object, with folded labels.
    fn fold(&self, object: &mut Rendered, decisions: &Decisions<'_>) {
        let mut lines = Vec::with_capacity(object.lines.len());
        let mut ends = Vec::with_capacity(object.ends.len());
        for number in 0..object.ends.len() {
            let text = object.family(number);
            match decisions.get(&number) {
                Some((_, decisions)) => {
                    for (parts, decision) in LineParts::each(b"", text).zip(decisions) {
                        let Some(over_limit) = decision else { continue };
                        if over_limit.is_empty() {
                            lines.extend_from_slice(parts.text);
                        } else {
                            lines.push(b',');
                            lines.extend_from_slice(&self.folded(parts, over_limit));
                            lines.extend_from_slice(b"} ");
                            lines.extend_from_slice(parts.value);
                        }
                        lines.push(b'\n');
                    }
                }
                None => lines.extend_from_slice(text),
            }
            ends.push(u32::try_from(lines.len()).unwrap_or(u32::MAX));
        }
        (object.lines, object.ends) = (lines, ends);
    }

    /// Rewrites the lines of a custom resource with folded labels and without rejected lines. A folded line that duplicates
    /// another line of the object is rejected too.
    fn rewrite(
        &self,
        object: &mut Rendered,
        decisions: &Decisions<'_>,
        mut table: Option<&mut Table>,
        exceeded: &mut Vec<Exceeded>,
    ) {
        let mut seen: HashSet<(usize, Vec<u8>)> = HashSet::new();
        for (number, (family, decisions)) in decisions {
            let lines = LineParts::each(&object.identity, object.family(*number));
            for (parts, decision) in lines.zip(decisions) {
                if decision.as_ref().is_some_and(OverLimit::is_empty) {
                    seen.insert((family.first, self.folded_key(parts, &OverLimit::new())));
                }
            }
        }
        let mut lines: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut ends = Vec::with_capacity(object.ends.len());
        for number in 0..object.ends.len() {
            if let Some((family, decisions)) = decisions.get(&number) {
                let all = LineParts::each(&object.identity, object.family(number));
                for (parts, decision) in all.zip(decisions) {
                    let Some(over_limit) = decision else { continue };
                    let labels = self.folded(parts, over_limit);
                    let key = || (family.first, self.folded_key(parts, over_limit));
                    if !over_limit.is_empty() && !seen.insert(key()) {
                        if let Some(table) = table.as_deref_mut() {
                            self.count_line(family, parts, over_limit, false, table);
                        }
                        let refused = |over| Exceeded::label(number, over, Action::Refused);
                        exceeded.extend(over_limit.iter().map(refused));
                        continue;
                    }
                    lines.push((labels, parts.value.to_vec()));
                }
            }
            ends.push(lines.len());
        }
        object.identity.clear();
        object.lines.clear();
        object.ends.clear();
        let line = |at: usize| lines.get(at).map(|(labels, value)| (&labels[..], &value[..]));
        template(line, &ends, object);
    }

    /// Returns the labels of a line, with the labels `over_limit` folded.
    fn folded(&self, parts: LineParts<'_>, over_limit: &OverLimit) -> Vec<u8> {
        let mut out = Vec::with_capacity(parts.identity.len() + parts.own.len() + 1);
        for (name, value) in parts.labels() {
            let folds = over_limit.contains_key(name);
            labels::push_rendered(&mut out, name, if folds { &self.fold } else { value });
        }
        out
    }

    /// Returns the folded labels without empty ones, which identify the series.
    fn folded_key(&self, parts: LineParts<'_>, over_limit: &OverLimit) -> Vec<u8> {
        labels::without_empty(&self.folded(parts, over_limit)).into_owned()
    }

    /// Adds a line, with its label values within the budgets, to the counts if it `is_there`, else subtracts it.
    fn count_line(
        &self,
        family: &Family,
        parts: LineParts<'_>,
        over_limit: &OverLimit,
        is_there: bool,
        table: &mut Table,
    ) {
        if let Some(series) = table.series.get_mut(family.first) {
            *series = if is_there { *series + 1 } else { series.saturating_sub(1) };
        }
        for (name, value) in self.user_labels(family, parts) {
            if over_limit.contains_key(name) {
                continue;
            }
            let (name, value) = self.hashes(family, name, value);
            if is_there {
                table.values.add(name, value);
            } else {
                table.values.remove(name, value);
            }
        }
    }

    /// Creates an empty table.
    pub(super) fn table(&self) -> Table {
        let series = vec![0; self.families.len()];
        Table { values: ValueCounts::default(), overlap: series.clone(), series }
    }

    /// Adds a stored object to the counts if it `is_there`, else subtracts it.
    pub(super) fn count(&self, object: ObjectView<'_>, is_there: bool, table: &mut Table) {
        let none = OverLimit::new();
        for family in &self.families {
            for parts in LineParts::each(object.identity(), object.family(family.open.family)) {
                self.count_line(family, parts, &none, is_there, table);
            }
        }
    }

    /// Returns the number of lines of an object by family.
    pub(super) fn counts(&self, object: ObjectView<'_>) -> Vec<u64> {
        let lines = self.families.iter().map(|family| object.family(family.open.family));
        lines.map(|lines| memchr::memchr_iter(b'\n', lines).count() as u64).collect()
    }

    /// Updates the counts of lines in both the old and the new state of a relist (`overlap` for this list, by family).
    ///
    /// `before` and `now` are the numbers of lines of one object by family in the old and in the new state. They are added
    /// if `is_there`, else subtracted.
    pub(super) fn update_overlap(
        &self,
        (before, now): (&[u64], &[u64]),
        is_there: bool,
        overlap: &mut Vec<u64>,
        table: &mut Table,
    ) {
        overlap.resize(self.families.len(), 0);
        for (family, (before, now)) in self.families.iter().zip(before.iter().zip(now)) {
            let both = *before.min(now);
            for overlap in [&mut *overlap, &mut table.overlap] {
                if let Some(overlap) = overlap.get_mut(family.first) {
                    *overlap =
                        if is_there { *overlap + both } else { overlap.saturating_sub(both) };
                }
            }
        }
    }

    /// Resets the counts of lines in both states at the end of a list.
    pub(super) fn end_overlap(&self, overlap: &[u64], table: &mut Table) {
        for (all, own) in table.overlap.iter_mut().zip(overlap) {
            *all = all.saturating_sub(*own);
        }
    }

    /// Returns the room that would suffice for some of the rejected series. Without a table the kind is small, but one object alone
    /// may be too large.
    pub(super) fn wanted(
        &self,
        rejected: &RejectedSeries,
        table: Option<&Table>,
    ) -> impl Iterator<Item = Wanted> {
        let budget = &self.budget;
        let families = rejected.families.iter().map(move |(family, least)| Wanted {
            room: Room::Family(*family),
            least: *least,
            used: table.map_or(0, |table| table.series_of(*family)),
            limit: budget.series_per_metric,
        });
        let labels = rejected.labels.iter().map(move |label| Wanted {
            room: Room::Label(*label),
            least: 1,
            used: table.map_or(0, |table| table.values.values_of(*label)),
            limit: budget.values_per_label,
        });
        families.chain(labels)
    }

    /// Returns the name of a family.
    pub(super) fn name(&self, family: usize) -> &str {
        self.names.get(family).map_or("", String::as_str)
    }
}

impl Table {
    /// Returns the number of series of a family. Series in both states of a relist count once.
    fn series_of(&self, family: usize) -> u64 {
        let count = |series: &[u64]| series.get(family).copied().unwrap_or(0);
        count(&self.series).saturating_sub(count(&self.overlap))
    }
}
