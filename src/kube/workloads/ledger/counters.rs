//! The counters of one resource of the ledger, rendered into a store whenever they change.
//!
//! An *owner* is what the counters are about: a pod, a workload, a node. Its labels begin each series.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use crate::cache::{self, MetricKind, Rendered, Schema, Store};
use crate::exposition::budget::{Action, Budget, BudgetMode, Limit};
use crate::exposition::{float, labels};
use crate::telemetry::KubeMetrics;
use crate::util::shrink::Shrink as _;

/// The largest number of series of an owner in one family; the values of [`FOLDED`] labels become [`OTHER`] beyond it, and those
/// of all labels beyond twice as many.
const MAX_SERIES: usize = if cfg!(test) { 12 } else { 500 };
/// The labels whose values come from the status of objects.
const FOLDED: [&str; 4] = ["reason", "exit_code", "involved_kind", "type"];
const OTHER: &str = "other";
/// The largest length of a label value that comes from the status of objects, in bytes.
const MAX_VALUE: usize = 256;

/// The label values that become [`OTHER`].
#[derive(Clone, Copy)]
enum Fold {
    /// Values from the status of objects, if they are too long.
    Long,
    /// All values from the status of objects.
    Status,
    /// All values.
    All,
}

/// The selection of the ledger's families, and their limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerOptions {
    /// The names of the families to serve.
    pub families: Vec<&'static str>,
    /// The budget of each resource.
    pub budget: Arc<Budget>,
    /// The time for which the counters of a workload outlive it.
    pub retention: Duration,
}

/// A family of the ledger.
#[derive(Debug)]
pub struct LedgerFamily {
    /// The name of the metric.
    pub name: &'static str,
    /// The labels after those of the owner.
    pub labels: &'static [&'static str],
    /// The HELP text.
    pub help: &'static str,
}

/// A resource of the ledger: its owners and families.
#[derive(Debug)]
pub struct LedgerResource {
    /// The name, as in `?resources=`.
    pub name: &'static str,
    /// The labels of an owner.
    pub owner: &'static [&'static str],
    /// The families, in exposition order.
    pub families: &'static [LedgerFamily],
}

/// The labels of an owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner(Arc<OwnerLabels>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct OwnerLabels {
    /// The beginning of each line: `{namespace="x",pod="y"`.
    identity: Vec<u8>,
    namespace: Vec<u8>,
}

/// The counts of an owner, by family and labels.
type Counts = BTreeMap<(usize, Box<[u8]>), u64>;

pub(super) struct Counters {
    resource: &'static LedgerResource,
    /// True for each family that is exposed.
    exposed: Vec<bool>,
    store: Arc<Store>,
    owners: HashMap<Owner, Counts>,
    budget: Arc<Budget>,
    metrics: KubeMetrics,
    rendered: Rendered,
}

impl Counters {
    /// Creates counters of a resource.
    pub(super) fn new(
        resource: &'static LedgerResource,
        options: &LedgerOptions,
        metrics: &KubeMetrics,
    ) -> Self {
        let is_exposed = |family: &&LedgerFamily| options.families.contains(&family.name);
        let exposed = resource.families.iter().map(|family| is_exposed(&family)).collect();
        let families = resource.families.iter().filter(is_exposed).map(|family| {
            let (name, help) = (family.name.to_owned(), family.help.to_owned());
            cache::Family { name, help, kind: MetricKind::Counter }
        });
        let schema = Schema { resource: resource.name.to_owned(), families: families.collect() };
        Self {
            resource,
            exposed,
            store: Arc::new(Store::new(Arc::new(schema))),
            owners: HashMap::new(),
            budget: Arc::clone(&options.budget),
            metrics: metrics.clone(),
            rendered: Rendered::default(),
        }
    }

    /// Takes over the counts of earlier counters of the same resource.
    pub(super) fn take_over(&mut self, earlier: &mut Self) {
        for (owner, mut counts) in std::mem::take(&mut earlier.owners) {
            counts.retain(|(family, _), _| self.exposed[*family]);
            let identity = &owner.0.identity;
            let shown =
                earlier.store.look(identity, |view| view.identity()[identity.len()..].to_vec());
            self.owners.insert(owner.clone(), counts);
            if let Some(labels) = shown {
                self.publish_with(&owner, &labels);
            }
        }
    }

    /// Returns the store with the series.
    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns the owner with these label values, the first of which is its namespace unless it has only a name.
    pub(super) fn owner(&self, values: &[&str]) -> Owner {
        let pairs = self.resource.owner.iter().zip(values).map(|(name, value)| (*name, *value));
        let identity = [b"{", &*labels::rendered(&Vec::from_iter(pairs))].concat();
        let namespace = if values.len() > 1 { values[0].into() } else { Vec::new() };
        Owner(Arc::new(OwnerLabels { identity, namespace }))
    }

    /// Adds to a counter, which begins to exist, even if `count` is 0. [`Counters::publish`] shows it.
    pub(super) fn add(&mut self, owner: &Owner, family: usize, values: &[&str], count: u64) {
        if !self.exposed[family] {
            return;
        }
        let row = &self.resource.families[family];
        let text = |fold: Fold| {
            let mut text = Vec::new();
            for (name, value) in row.labels.iter().zip(values) {
                let is_of_status = FOLDED.contains(name);
                let is_folded = match fold {
                    Fold::Long => is_of_status && value.len() > MAX_VALUE,
                    Fold::Status => is_of_status,
                    Fold::All => true,
                };
                labels::push(&mut text, name, if is_folded { OTHER } else { value });
            }
            (family, text.into_boxed_slice())
        };
        let counts = self.owners.entry(owner.clone()).or_default();
        let mut key = text(Fold::Long);
        for (fold, limit) in [(Fold::Status, MAX_SERIES), (Fold::All, 2 * MAX_SERIES)] {
            let of_family = counts.range((family, Box::default())..(family + 1, Box::default()));
            if !counts.contains_key(&key) && of_family.take(limit).count() == limit {
                key = text(fold);
            }
        }
        if let Some(known) = counts.get_mut(&key) {
            *known += count;
            return;
        }
        // Those that are not shown yet are judged when they are.
        if self.is_full() && self.budget.mode != BudgetMode::Off {
            let is_refused = self.budget.mode == BudgetMode::Enforce;
            self.count_beyond(if is_refused { Action::Refused } else { Action::Tracked }, row.name);
            if is_refused {
                return;
            }
        }
        let counts = self.owners.entry(owner.clone()).or_default();
        counts.insert(key, count);
    }

    /// Returns whether the budget has no room for further series.
    fn is_full(&self) -> bool {
        let limit = self.budget.series_per_kind;
        limit > 0 && self.store.series() >= limit
    }

    /// Counts a series beyond the budget.
    fn count_beyond(&self, action: Action, metric: &str) {
        let labels = [action.as_str(), "", Limit::SeriesPerKind.as_str(), metric];
        self.metrics.over_budget(labels, self.resource.name, 1);
    }

    /// Renders the counters of an owner.
    pub(super) fn publish(&mut self, owner: &Owner) {
        self.publish_with(owner, &[]);
    }

    /// Renders the counters of an owner, with rendered labels after its own, unless they are not shown yet and there is no room for
    /// them.
    pub(super) fn publish_with(&mut self, owner: &Owner, labels: &[u8]) {
        let Some(counts) = self.owners.get(owner) else { return };
        let is_refused =
            self.budget.mode == BudgetMode::Enforce && self.is_full() && !self.shows(owner);
        if is_refused {
            for (family, _) in counts.keys() {
                self.count_beyond(Action::Refused, self.resource.families[*family].name);
            }
            return;
        }
        let out = &mut self.rendered;
        out.clear();
        // Also decides about the virtual shard.
        out.uid.extend_from_slice(&owner.0.identity);
        out.namespace.extend_from_slice(&owner.0.namespace);
        out.identity.extend_from_slice(&owner.0.identity);
        out.identity.extend_from_slice(labels);
        for family in (0..self.exposed.len()).filter(|family| self.exposed[*family]) {
            let of_family = counts.range((family, Box::default())..(family + 1, Box::default()));
            for ((_, labels), count) in of_family {
                out.lines.push(b',');
                out.lines.extend_from_slice(labels);
                out.lines.extend_from_slice(b"} ");
                float::write(&mut out.lines, *count as f64);
                out.lines.push(b'\n');
                out.series += 1;
            }
            out.ends.push(u32::try_from(out.lines.len()).unwrap_or(u32::MAX));
        }
        self.store.apply(out);
    }

    /// Returns whether the counters of an owner are shown.
    pub(super) fn shows(&self, owner: &Owner) -> bool {
        self.store.contains(&owner.0.identity)
    }

    /// Hides the counters of an owner.
    pub(super) fn hide(&self, owner: &Owner) {
        self.store.delete(&owner.0.identity);
    }

    /// Removes the counters of an owner.
    pub(super) fn remove(&mut self, owner: &Owner) {
        self.owners.remove(owner);
        self.owners.shrink();
        self.hide(owner);
    }
}
