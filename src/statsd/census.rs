//! The series as the report about them sees them: labels, lines, memory and age of each.

use crate::exposition::budget::Budget;
use crate::growth::MINUTES;
use crate::statsd::clock::Clock;
use crate::statsd::series::cell::{ObserverCell, Scalar};
use crate::statsd::series::family::Family;
use crate::statsd::series::observer::Observer;
use crate::statsd::series::over::Over;
use crate::statsd::series::registry::{Registry, View};
use crate::statsd::series::tree::{Assembly, Entry};
use crate::telemetry::countable::{Beyond, Sender, Series, Snapshot, Visitor};

/// The series of a registry at one moment.
pub(crate) struct Census {
    view: View,
    growth: [u64; MINUTES],
    budget: Budget,
    beyond: Vec<Over>,
    senders: Vec<Sender>,
    clock: Clock,
}

impl Census {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            growth: registry.growth(),
            budget: registry.budget.clone(),
            beyond: registry.over.all(),
            senders: registry.senders.all(registry.clock.now()),
            view: registry.view(),
            clock: registry.clock.clone(),
        }
    }

    /// Lines, bytes of its numbers, and the tick of its creation; `None` if it has gone.
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
}

impl Snapshot for Census {
    fn visit(&self, visitor: &mut dyn Visitor) {
        let mut assembly = Assembly::default();
        let mut current = None;
        let mut index = 0;
        while let Some(page) = self.view.pages.page(index) {
            index += 1;
            assembly.begin(page);
            for (entry, rest) in page.iter() {
                let family = &entry.family;
                if current != Some(family.id) {
                    current = Some(family.id);
                    let bytes = size_of::<Family>() + family.name.len();
                    visitor.family(&family.name, family.kind.shown(), bytes as u64);
                }
                let Some((samples, bytes, created)) = self.numbers(entry) else { continue };
                // The page of each slot is noted beside it.
                let bytes = bytes + rest.len() + size_of::<Entry>() + size_of::<u32>();
                visitor.series(&Series {
                    labels: assembly.labels(rest),
                    samples,
                    bytes: bytes as u64,
                    created: Some(self.clock.wall(created)),
                });
            }
        }
    }

    fn growth(&self) -> [u64; MINUTES] {
        self.growth
    }

    fn budget(&self) -> &Budget {
        &self.budget
    }

    fn beyond(&self) -> Vec<Beyond> {
        let beyond = self.beyond.iter().cloned().map(|over| Beyond {
            metric: over.metric,
            label: over.label,
            limit: over.limit.as_str().into(),
            action: over.action.as_str().into(),
            times: over.times,
        });
        beyond.collect()
    }

    fn senders(&self) -> Vec<Sender> {
        self.senders.clone()
    }
}
