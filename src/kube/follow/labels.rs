//! Which values there are of labels that people choose, and what becomes of those that are too many.
//!
//! A [`Table`] counts, for each open family of a kind, the values of each label and the series. It is made of the text
//! that is kept, and told of what comes and goes; what it folds or leaves out is decided by what there is at that moment.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use hashbrown::{HashMap, HashSet};

use crate::cache::{Kept, Rendered, Schema};
use crate::exposition::budget::{Action, Budget, BudgetMode, Limit};
use crate::exposition::{escape, labels};
use crate::resources::custom::template;
use crate::resources::{Open, OpenLabels};

/// Something of one object that is beyond a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Beyond {
    /// The number of the family; `None` where it is about all of them.
    pub(super) family: Option<usize>,
    /// Empty where it is not about one label.
    pub(super) label: String,
    pub(super) limit: Limit,
    pub(super) action: Action,
}

/// What was left out, which there may be room for later.
#[derive(Clone, Debug, Default)]
pub(super) struct Missed {
    /// Of which families series were left out, and how few of an object.
    families: BTreeMap<usize, u64>,
    /// Labels because of whose values series were.
    labels: BTreeSet<u64>,
}

/// The open families of a kind, and their budgets.
#[derive(Debug)]
pub(super) struct Rules {
    budget: Budget,
    /// The fold value, rendered.
    fold: Vec<u8>,
    families: Vec<Family>,
    names: Vec<String>,
    /// Whether all labels are open, and there is a budget for the series of each family.
    all: bool,
    hasher: foldhash::quality::RandomState,
}

#[derive(Debug)]
struct Family {
    open: Open,
    /// The first open family of the same name.
    first: usize,
}

/// What there is of each open family.
#[derive(Debug)]
pub(super) struct Table {
    /// How often each value is there.
    values: HashMap<u64, u32, foldhash::fast::FixedState>,
    /// How many values a label has.
    labels: HashMap<u64, u64, foldhash::fast::FixedState>,
    /// Series of each family.
    series: Vec<u64>,
    /// Those of them that are both in an old state and in the new one, which are counted twice.
    again: Vec<u64>,
}

/// A label with the budget that its value is beyond.
type Over = (Vec<u8>, Limit);

/// What becomes of a line.
#[derive(Clone, Debug)]
enum Fate {
    /// The values of these labels fold, if there are any.
    Stays(Vec<Over>),
    Goes,
}

/// A line as it is kept, taken apart.
#[derive(Clone, Copy)]
struct Parts<'t> {
    /// What it shares with the other lines of the object.
    identity: &'t [u8],
    /// Its own labels.
    own: &'t [u8],
    value: &'t [u8],
    /// All that is kept of it.
    text: &'t [u8],
}

impl<'t> Parts<'t> {
    /// The lines of a family of an object.
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
    /// `None` where no family of the kind is open.
    pub(super) fn new(budget: &Budget, schema: &Schema, open: Vec<Open>) -> Option<Self> {
        let names: Vec<String> = schema.families.iter().map(|family| family.name.clone()).collect();
        let all = matches!(open.first()?.labels, OpenLabels::All(_));
        let name = |open: &Open| names.get(open.family);
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

    /// As many objects, or series where all labels are open, are within all budgets for sure, but that of bytes.
    pub(super) fn harmless(&self) -> u64 {
        let most = [self.budget.values_per_label, self.budget.series_per_metric];
        let most = most.into_iter().take(if self.all { 2 } else { 1 });
        most.filter(|most| *most > 0).min().unwrap_or(u64::MAX)
    }

    /// What of a kind with so many objects and series is held against [`Rules::harmless`].
    pub(super) fn population(&self, objects: u64, series: u64) -> u64 {
        if self.all { series } else { objects }
    }

    /// Whether a value of the object may be too long.
    pub(super) fn may_be_long(&self, object: &Rendered) -> bool {
        let most = usize::try_from(self.budget.value_bytes).unwrap_or(usize::MAX);
        let longest = |lines: &[u8]| object.identity.len() + lines.len() > most;
        most > 0 && self.families.iter().any(|family| longest(object.family(family.open.family)))
    }

    fn is_open(&self, family: &Family, label: &[u8]) -> bool {
        match family.open.labels {
            OpenLabels::Prefixed(prefix) => label.starts_with(prefix.as_bytes()),
            OpenLabels::All(_) => true,
        }
    }

    fn label_hash(&self, family: &Family, label: &[u8]) -> u64 {
        self.hasher.hash_one((family.first, label))
    }

    fn value_hash(&self, family: &Family, label: &[u8], value: &[u8]) -> u64 {
        self.hasher.hash_one((family.first, label, value))
    }

    /// The open labels of a line that have a value of their own.
    fn chosen<'t>(
        &self,
        family: &Family,
        parts: Parts<'t>,
    ) -> impl Iterator<Item = (&'t [u8], &'t [u8])> {
        // The labels that are not open are those of the identity where not all are.
        let identity = if self.all { parts.identity } else { b"" };
        let labels = labels::iter(identity).chain(labels::iter(parts.own));
        labels.filter(|(name, value)| self.is_open(family, name) && *value != self.fold)
    }

    /// The labels of a line whose values are too long or too many.
    fn over(&self, family: &Family, parts: Parts<'_>, table: Option<&Table>) -> Vec<Over> {
        let Budget { values_per_label: many, value_bytes, .. } = self.budget;
        let is_long = |value: &[u8]| {
            value_bytes > 0
                && value.len() as u64 > value_bytes
                && labels::plain(value).len() as u64 > value_bytes
        };
        let is_new = |table: &Table, name: &[u8], value: &[u8]| {
            many > 0
                && !table.values.contains_key(&self.value_hash(family, name, value))
                && table.values_of(self.label_hash(family, name)) >= many
        };
        let verdict = |name: &[u8], value: &[u8]| {
            if is_long(value) {
                return Some(Limit::ValueBytes);
            }
            table.is_some_and(|table| is_new(table, name, value)).then_some(Limit::ValuesPerLabel)
        };
        let chosen = self.chosen(family, parts);
        chosen.filter_map(|(name, value)| Some((name.to_vec(), verdict(name, value)?))).collect()
    }

    /// Whether a line says which object it is of, by labels that are not over.
    fn names_object(
        &self,
        family: &Family,
        parts: Parts<'_>,
        over: &[Over],
        object: &Rendered,
    ) -> bool {
        let OpenLabels::All([namespace, name, uid]) = &family.open.labels else { return true };
        let value = |label: &Option<String>| {
            let label = label.as_ref()?.as_bytes();
            let is_over = over.iter().any(|(other, _)| other == label);
            let (_, value) = parts.labels().find(|(own, _)| *own == label)?;
            (!is_over && *value != *self.fold).then_some(value)
        };
        value(uid).is_some_and(|value| *value == *object.uid)
            || value(name).is_some_and(|name| !name.is_empty())
                && (object.namespace.is_empty()
                    || value(namespace).is_some_and(|value| *value == *object.namespace))
    }

    /// Brings an object within the budgets, and enters what is left of it. What is beyond them is told, what is left out
    /// is missed.
    pub(super) fn contain(
        &self,
        object: &mut Rendered,
        mut table: Option<&mut Table>,
        missed: &mut Missed,
        beyond: &mut Vec<Beyond>,
    ) {
        let mut fates: Vec<Vec<Fate>> = Vec::with_capacity(self.families.len());
        for family in &self.families {
            fates.push(self.judge(family, object, table.as_deref_mut(), missed, beyond));
        }
        let stays = |fate: &Fate| matches!(fate, Fate::Stays(over) if over.is_empty());
        if !self.enforces() || fates.iter().flatten().all(stays) {
            return;
        }
        if self.all {
            self.rewrite(object, &fates, table, beyond);
        } else {
            self.fold(object, &fates);
        }
    }

    /// Decides about the lines of a family, and enters them.
    fn judge(
        &self,
        family: &Family,
        object: &Rendered,
        mut table: Option<&mut Table>,
        missed: &mut Missed,
        beyond: &mut Vec<Beyond>,
    ) -> Vec<Fate> {
        let number = family.open.family;
        let lines = || Parts::each(&object.identity, object.family(number));
        let mut fates = Vec::new();
        for parts in lines() {
            let over = self.over(family, parts, table.as_deref());
            let folds = over.is_empty() || self.names_object(family, parts, &over, object);
            for (label, limit) in &over {
                let action = if folds { Action::Folded } else { Action::Refused };
                let label = String::from_utf8_lossy(label).into_owned();
                beyond.push(Beyond { family: Some(number), label, limit: *limit, action });
            }
            if !folds && self.enforces() {
                let many = over.iter().filter(|(_, limit)| *limit == Limit::ValuesPerLabel);
                missed.labels.extend(many.map(|(label, _)| self.label_hash(family, label)));
                fates.push(Fate::Goes);
                continue;
            }
            if let Some(table) = table.as_deref_mut() {
                self.enter(family, parts, &over, table);
            }
            fates.push(Fate::Stays(over));
        }
        let Some(table) = table.filter(|_| self.all) else { return fates };
        let most = self.budget.series_per_metric;
        let stays = fates.iter().filter(|fate| matches!(fate, Fate::Stays(_))).count() as u64;
        if most == 0 || stays == 0 || table.series_of(family.first) <= most {
            return fates;
        }
        let (limit, action) = (Limit::SeriesPerMetric, Action::Refused);
        beyond.push(Beyond { family: Some(number), label: String::new(), limit, action });
        if self.enforces() {
            let least = missed.families.entry(family.first).or_insert(stays);
            *least = stays.min(*least);
            for (parts, fate) in lines().zip(&mut fates) {
                if let Fate::Stays(over) = std::mem::replace(fate, Fate::Goes) {
                    self.leave(family, parts, &over, table);
                }
            }
        }
        fates
    }

    /// Folds the labels of built-in families, of which each object has one line.
    fn fold(&self, object: &mut Rendered, fates: &[Vec<Fate>]) {
        let mut lines = Vec::with_capacity(object.lines.len());
        let mut ends = Vec::with_capacity(object.ends.len());
        for number in 0..object.ends.len() {
            let text = object.family(number);
            let open = self.families.iter().position(|family| family.open.family == number);
            match open.and_then(|open| fates.get(open)) {
                Some(fates) => {
                    for (parts, fate) in Parts::each(b"", text).zip(fates) {
                        let Fate::Stays(over) = fate else { continue };
                        if over.is_empty() {
                            lines.extend_from_slice(parts.text);
                        } else {
                            lines.push(b',');
                            lines.extend_from_slice(&self.folded(parts, over));
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

    /// Folds or leaves out lines of a custom resource. A line that folds into one that is there already goes.
    fn rewrite(
        &self,
        object: &mut Rendered,
        fates: &[Vec<Fate>],
        mut table: Option<&mut Table>,
        beyond: &mut Vec<Beyond>,
    ) {
        let mut seen: HashSet<(usize, Vec<u8>)> = HashSet::new();
        for (family, fates) in self.families.iter().zip(fates) {
            let lines = Parts::each(&object.identity, object.family(family.open.family));
            for (parts, fate) in lines.zip(fates) {
                if matches!(fate, Fate::Stays(over) if over.is_empty()) {
                    seen.insert((family.first, self.folded(parts, &[])));
                }
            }
        }
        let mut lines: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut ends = Vec::with_capacity(object.ends.len());
        for number in 0..object.ends.len() {
            let open = self.families.iter().position(|family| family.open.family == number);
            let open = open.and_then(|open| Some((self.families.get(open)?, fates.get(open)?)));
            if let Some((family, fates)) = open {
                for (parts, fate) in Parts::each(&object.identity, object.family(number)).zip(fates)
                {
                    let Fate::Stays(over) = fate else { continue };
                    let labels = self.folded(parts, over);
                    if !over.is_empty() && !seen.insert((family.first, labels.clone())) {
                        if let Some(table) = table.as_deref_mut() {
                            self.leave(family, parts, over, table);
                        }
                        for (label, limit) in over {
                            let label = String::from_utf8_lossy(label).into_owned();
                            let (limit, action) = (*limit, Action::Refused);
                            beyond.push(Beyond { family: Some(number), label, limit, action });
                        }
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

    /// The labels of a line, those that are over with the fold value.
    fn folded(&self, parts: Parts<'_>, over: &[Over]) -> Vec<u8> {
        let mut out = Vec::with_capacity(parts.identity.len() + parts.own.len() + 1);
        for (name, value) in parts.labels() {
            let folds = over.iter().any(|(other, _)| other == name);
            labels::push_rendered(&mut out, name, if folds { &self.fold } else { value });
        }
        out
    }

    /// Counts a line; values that are over are not.
    fn enter(&self, family: &Family, parts: Parts<'_>, over: &[Over], table: &mut Table) {
        if let Some(series) = table.series.get_mut(family.first) {
            *series += 1;
        }
        for (name, value) in self.chosen(family, parts) {
            if over.iter().any(|(other, _)| other == name) {
                continue;
            }
            let count = table.values.entry(self.value_hash(family, name, value)).or_insert(0);
            *count += 1;
            if *count == 1 {
                *table.labels.entry(self.label_hash(family, name)).or_insert(0) += 1;
            }
        }
    }

    /// Takes a line back that was entered.
    fn leave(&self, family: &Family, parts: Parts<'_>, over: &[Over], table: &mut Table) {
        if let Some(series) = table.series.get_mut(family.first) {
            *series = series.saturating_sub(1);
        }
        for (name, value) in self.chosen(family, parts) {
            if over.iter().any(|(other, _)| other == name) {
                continue;
            }
            let hash = self.value_hash(family, name, value);
            let Some(count) = table.values.get_mut(&hash) else { continue };
            *count -= 1;
            if *count == 0 {
                table.values.remove(&hash);
                let label = self.label_hash(family, name);
                if let Some(values) = table.labels.get_mut(&label) {
                    *values = values.saturating_sub(1);
                    if *values == 0 {
                        table.labels.remove(&label);
                    }
                }
            }
        }
    }

    /// Nothing yet.
    pub(super) fn table(&self) -> Table {
        let (values, labels) = (HashMap::default(), HashMap::default());
        let series = vec![0; self.families.len()];
        Table { values, labels, again: series.clone(), series }
    }

    /// Counts an object that is within the budgets.
    pub(super) fn join(&self, object: Kept<'_>, table: &mut Table) {
        self.lines_of(object, |family, parts| self.enter(family, parts, &[], table));
    }

    /// How many lines an object has of each family.
    pub(super) fn counts(&self, object: Kept<'_>) -> Vec<u64> {
        let lines = self.families.iter().map(|family| object.family(family.open.family));
        lines.map(|lines| memchr::memchr_iter(b'\n', lines).count() as u64).collect()
    }

    /// An object of an old state, where it has so many lines, has come again with so many, or it has gone since. Those that
    /// are in both states are in `again`, by family.
    pub(super) fn came(
        &self,
        (before, now): (&[u64], &[u64]),
        is_there: bool,
        again: &mut Vec<u64>,
        table: &mut Table,
    ) {
        again.resize(self.families.len(), 0);
        for (family, (before, now)) in self.families.iter().zip(before.iter().zip(now)) {
            let both = *before.min(now);
            for again in [&mut *again, &mut table.again] {
                if let Some(again) = again.get_mut(family.first) {
                    *again = if is_there { *again + both } else { again.saturating_sub(both) };
                }
            }
        }
    }

    /// The old state of which so much has come again is about to be taken back.
    pub(super) fn replaced(&self, again: &[u64], table: &mut Table) {
        for (all, own) in table.again.iter_mut().zip(again) {
            *all = all.saturating_sub(*own);
        }
    }

    /// Takes an object back.
    pub(super) fn part(&self, object: Kept<'_>, table: &mut Table) {
        self.lines_of(object, |family, parts| self.leave(family, parts, &[], table));
    }

    fn lines_of(&self, object: Kept<'_>, mut see: impl FnMut(&Family, Parts<'_>)) {
        for family in &self.families {
            let lines = object.family(family.open.family);
            Parts::each(object.identity(), lines).for_each(|parts| see(family, parts));
        }
    }

    /// Whether there is room for something that is missed.
    pub(super) fn has_room(&self, missed: &Missed, table: Option<&Table>) -> bool {
        let Missed { families, labels } = missed;
        let Some(table) = table else { return !(families.is_empty() && labels.is_empty()) };
        let most = &self.budget;
        families
            .iter()
            .any(|(family, least)| table.series_of(*family) + least <= most.series_per_metric)
            || labels.iter().any(|label| table.values_of(*label) < most.values_per_label)
    }

    /// The name of a family.
    pub(super) fn name(&self, family: usize) -> &str {
        self.names.get(family).map_or("", String::as_str)
    }
}

impl Table {
    fn values_of(&self, label: u64) -> u64 {
        self.labels.get(&label).copied().unwrap_or(0)
    }

    /// Series of a family; of one that came again those of one state.
    fn series_of(&self, family: usize) -> u64 {
        let count = |series: &[u64]| series.get(family).copied().unwrap_or(0);
        count(&self.series).saturating_sub(count(&self.again))
    }
}
