//! A snapshot of all series for the cardinality report: labels, samples, memory and age of each.

use crate::exposition::series_visitor::{FamilySize, Series, SeriesVisitor};
use crate::statsd::clock::Epoch;
use crate::statsd::series::cell::{ObserverCell, Scalar};
use crate::statsd::series::family::Family;
use crate::statsd::series::observer::Observer;
use crate::statsd::series::registry::{Registry, View};
use crate::statsd::series::tree::{Entry, LabelAssembler};
use crate::telemetry::countable::{ExceededBudget, Snapshot};

/// Takes a snapshot of a registry.
pub(crate) fn snapshot(registry: &Registry) -> Snapshot {
    let beyond = registry.violations.all().into_iter().map(|violation| ExceededBudget {
        metric: violation.metric,
        label: violation.label,
        limit: violation.limit.as_str().into(),
        action: violation.action.as_str().into(),
        times: violation.times,
    });
    let series = AllSeries { view: registry.view(), epoch: registry.clock.epoch() };
    Snapshot {
        growth: registry.growth(),
        budget: registry.budget.clone(),
        beyond: beyond.collect(),
        senders: registry.senders.all(registry.clock.now()),
        left_out: Vec::new(),
        visit: Box::new(move |visitor| series.visit(visitor)),
    }
}

/// The series of a registry at one moment.
struct AllSeries {
    view: View,
    epoch: Epoch,
}

impl AllSeries {
    /// Returns the samples, the bytes of the values and the creation tick of a series; `None` if it has
    /// expired.
    fn numbers(&self, entry: &Entry) -> Option<(u64, usize, u32)> {
        let handle = entry.handle;
        if !handle.slot.is_observer() {
            let cell = self.view.scalars.get(handle.slot)?;
            return Some((1, size_of::<Scalar>(), cell.created(handle.generation)?));
        }
        let cell = self.view.observers.get(handle.slot)?.lock(handle.generation)?;
        let observer = cell.observer.as_deref()?;
        let bytes = size_of::<ObserverCell>() + size_of::<Observer>() + observer.heap_bytes();
        Some((observer.samples(), bytes, cell.created))
    }

    fn visit(&self, visitor: &mut dyn SeriesVisitor) {
        let mut assembler = LabelAssembler::default();
        let mut current = None;
        for page in self.view.pages.iter() {
            assembler.begin(page);
            for (entry, rest) in page.iter() {
                let family = &entry.family;
                if current != Some(family.id) {
                    current = Some(family.id);
                    let bytes = (size_of::<Family>() + family.name.len()) as u64;
                    let kind = family.kind.exposed_kind();
                    visitor.families(&[FamilySize { name: &family.name, kind, bytes }]);
                }
                let Some((samples, bytes, created)) = self.numbers(entry) else { continue };
                // The registry also stores the page number of each slot.
                let bytes = bytes + rest.len() + size_of::<Entry>() + size_of::<u32>();
                visitor.series(&Series {
                    labels: assembler.labels(rest),
                    samples,
                    bytes: bytes as u64,
                    created: Some(self.epoch.wall(created)),
                });
            }
        }
    }
}
