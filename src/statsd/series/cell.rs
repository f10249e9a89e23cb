//! The cells that hold the values of series, shared by ingest threads and scrapes.
//!
//! A series occupies a slot in a slab. Slabs only grow and slots are reused; a generation number in each slot
//! tells a reference to the current series from a stale one. Counters and gauges are [`Scalar`]s. Larger
//! values are behind a mutex in an [`ObserverCell`]. The registry knows which slot belongs to which series.

use std::sync::{Arc, MutexGuard};

use arc_swap::ArcSwap;

use super::observer::Observer;
pub(crate) use super::scalar::{Lifetime, Scalar};
use crate::util::lock::Lock;

/// The number of slots per chunk. A chunk has 128 KiB, which fits a size class of the allocator well.
const CHUNK: usize = 4096;
/// The bit that marks a slot of the observer slab.
const OBSERVER_BIT: u32 = 1 << 31;

/// A slot in one of the two slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotId(u32);

impl SlotId {
    /// Returns slot `index` of the scalar slab.
    pub(crate) const fn scalar(index: u32) -> Self {
        Self(index & !OBSERVER_BIT)
    }

    /// Returns slot `index` of the observer slab.
    pub(crate) const fn observer(index: u32) -> Self {
        Self(index | OBSERVER_BIT)
    }

    /// Returns true if this is a slot of the observer slab.
    pub(crate) const fn is_observer(self) -> bool {
        self.0 & OBSERVER_BIT != 0
    }

    /// Returns the number of its slab: 0 for scalars, 1 for observers.
    pub(crate) const fn slab(self) -> usize {
        self.is_observer() as usize
    }

    /// Returns the slot as a number that is unique across both slabs.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the slot with this number.
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the index within the slab.
    pub(crate) const fn index(self) -> usize {
        (self.0 & !OBSERVER_BIT) as usize
    }
}

/// A reference to a series: its slot and the generation of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) slot: SlotId,
    pub(crate) generation: u32,
}

impl Handle {
    /// Returns true if the series still exists.
    pub(crate) fn is_alive(self, scalars: &View<Scalar>, observers: &View<ObserverCell>) -> bool {
        let Self { slot, generation } = self;
        if slot.is_observer() {
            observers.get(slot).is_some_and(|cell| cell.lock(generation).is_some())
        } else {
            scalars.get(slot).is_some_and(|cell| cell.read(generation).is_some())
        }
    }
}

/// A cell for a summary, a histogram or a set.
#[derive(Debug, Default)]
pub(crate) struct ObserverCell(Lock<ObserverSlot>);

/// The content of an [`ObserverCell`].
#[derive(Debug, Default)]
pub(crate) struct ObserverSlot {
    pub(crate) generation: u32,
    pub(crate) created: u32,
    pub(crate) life: Lifetime,
    pub(crate) observer: Option<Box<Observer>>,
}

impl ObserverCell {
    /// Locks the cell regardless of its generation.
    pub(crate) fn lock_any(&self) -> MutexGuard<'_, ObserverSlot> {
        // Only the observer's arithmetic can panic under this lock, and its numbers stay usable.
        self.0.lock()
    }

    /// Locks the cell if it still has this generation.
    pub(crate) fn lock(&self, generation: u32) -> Option<MutexGuard<'_, ObserverSlot>> {
        let guard = self.lock_any();
        (guard.generation == generation).then_some(guard)
    }
}

impl ObserverSlot {
    /// Ends the series and frees its observer.
    pub(crate) fn retire(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.observer = None;
        self.life = Lifetime::default();
    }
}

/// A slab of cells that grows by chunks and never moves a cell.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    view: ArcSwap<Vec<Arc<[T]>>>,
}

/// The chunks of a slab at one moment. It does not contain slots that were allocated later.
#[derive(Debug)]
pub(crate) struct View<T>(Arc<Vec<Arc<[T]>>>);

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> View<T> {
    /// Returns the cell of a slot; `None` if it was allocated after this view was taken.
    #[inline]
    pub(crate) fn get(&self, slot: SlotId) -> Option<&T> {
        let index = slot.index();
        self.0.get(index / CHUNK)?.get(index % CHUNK)
    }
}

impl<T: Default> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { view: ArcSwap::from_pointee(Vec::new()) }
    }

    /// Returns the current chunks.
    pub(crate) fn view(&self) -> View<T> {
        View(self.view.load_full())
    }

    /// Grows the slab until slot `index` exists, and returns the current chunks. Must not be called concurrently;
    /// only the registry's writer calls it.
    pub(crate) fn grow_to(&self, index: usize) -> View<T> {
        let View(view) = self.view();
        if index / CHUNK < view.len() {
            return View(view);
        }
        let mut chunks = Vec::with_capacity(index / CHUNK + 1);
        chunks.extend(view.iter().cloned());
        while chunks.len() <= index / CHUNK {
            chunks.push((0..CHUNK).map(|_| T::default()).collect());
        }
        let view = Arc::new(chunks);
        self.view.store(Arc::clone(&view));
        View(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_keeps_whole_additions_exact() {
        let cell = Scalar::default();
        for value in [9_007_199_254_740_992.0, 1.0, 1.0, 0.5] {
            cell.lock(0).expect("fresh").add(value);
        }
        assert_eq!(cell.read(0), Some(9_007_199_254_740_994.5));
    }

    #[test]
    fn a_counter_over_64_bits_becomes_a_float() {
        let cell = Scalar::default();
        for _ in 0..3 {
            cell.lock(0).expect("fresh").add(9_223_372_036_854_775_808.0);
        }
        assert_eq!(cell.read(0), Some(3.0 * 9_223_372_036_854_775_808.0));
        cell.lock(0).expect("fresh").add(18_446_744_073_709_551_616.0);
        assert_eq!(cell.read(0), Some(5.0 * 9_223_372_036_854_775_808.0));
    }

    #[test]
    fn a_stale_reference_neither_reads_nor_writes() {
        let cell = Scalar::default();
        cell.lock(0).expect("fresh").set(1.0);
        cell.lock(0).expect("fresh").retire();
        assert!(cell.lock(0).is_none());
        assert_eq!(cell.read(0), None);
        assert_eq!(cell.generation(), 1);
        cell.reset(7);
        assert_eq!(cell.read(1), Some(0.0));
        assert_eq!((cell.created(0), cell.created(1)), (None, Some(7)));
    }

    #[test]
    fn concurrent_additions_are_all_counted() {
        let cell = Scalar::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let guard = cell.lock(0).expect("fresh");
                        guard.add(1.0);
                        guard.add(0.5);
                    }
                });
            }
        });
        assert_eq!(cell.read(0), Some(60_000.0));
    }

    #[test]
    fn a_slab_grows_without_moving_cells() {
        let slab: Slab<Scalar> = Slab::new();
        slab.grow_to(0);
        let early = slab.view();
        early.get(SlotId::scalar(0)).and_then(|cell| cell.lock(0)).expect("allocated").set(5.0);
        slab.grow_to(5_000);
        assert!(early.get(SlotId::scalar(5_000)).is_none());
        let late = slab.view();
        assert!(late.get(SlotId::scalar(5_000)).is_some());
        assert_eq!(late.get(SlotId::scalar(0)).and_then(|cell| cell.read(0)), Some(5.0));
    }
}
