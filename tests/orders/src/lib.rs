//! Model checking of kstatd's lock-free code with loom, which replaces the atomics: each test runs under
//! every interleaving and every memory order that the memory model allows.
//!
//! Other shared state is behind a mutex, is published as a whole by `arc-swap`, or is a single word for which
//! any order is correct.
#![forbid(unsafe_code)]

#[allow(dead_code)]
#[path = "../../../src/statsd/series/scalar.rs"]
mod scalar;

/// The primitives used by `scalar`.
mod atomics {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) use loom::thread::yield_now;
}

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::thread::{self, JoinHandle};

    use super::scalar::Scalar;

    /// Runs `work` in a second thread.
    fn in_thread(cell: &Arc<Scalar>, work: impl FnOnce(&Scalar) + 'static) -> JoinHandle<()> {
        let cell = Arc::clone(cell);
        thread::spawn(move || work(&cell))
    }

    #[test]
    fn no_addition_is_lost() {
        loom::model(|| {
            let cell = Arc::new(Scalar::default());
            let other = in_thread(&cell, |cell| {
                let guard = cell.lock(0).expect("not retired");
                guard.add(1.0);
                guard.add(0.5);
            });
            cell.lock(0).expect("not retired").add(2.0);
            other.join().expect("no panic");
            assert_eq!(cell.read(0), Some(3.5));
        });
    }

    /// A counter that grows by an integer and a fraction never appears to decrease or to exceed its final
    /// value. Either part may become visible first.
    #[test]
    fn a_reader_sees_a_counter_grow() {
        for more in [[0.5, 2.0], [2.0, 0.5]] {
            loom::model(move || {
                let cell = Arc::new(Scalar::default());
                cell.lock(0).expect("fresh").add(1.0);
                let other = in_thread(&cell, move |cell| {
                    for more in more {
                        cell.lock(0).expect("not retired").add(more);
                    }
                });
                let seen = [(); 2].map(|()| cell.read(0).expect("it lives"));
                assert!([1.0, 1.5, 3.0, 3.5].contains(&seen[0]), "{seen:?}");
                assert!((seen[0]..=3.5).contains(&seen[1]), "{seen:?}");
                other.join().expect("no panic");
            });
        }
    }

    /// Only one of two threads ends a series, and a late addition does not reach the next series in the slot.
    #[test]
    fn a_late_addition_is_discarded() {
        loom::model(|| {
            let cell = Arc::new(Scalar::default());
            let other = in_thread(&cell, |cell| {
                if let Some(guard) = cell.lock(0) {
                    guard.add(7.0);
                }
            });
            cell.lock(0).expect("fresh").retire();
            cell.reset(9);
            assert_eq!(cell.read(1), Some(0.0));
            other.join().expect("no panic");
            assert_eq!((cell.read(0), cell.read(1)), (None, Some(0.0)));
        });
    }

    /// A scrape never shows the values of another series, or a mix of two.
    #[test]
    fn a_reader_of_an_old_series_does_not_see_the_next() {
        loom::model(|| {
            let cell = Arc::new(Scalar::default());
            {
                let guard = cell.lock(0).expect("fresh");
                guard.add(4.0);
                guard.add(0.5);
            }
            let other = in_thread(&cell, |cell| {
                cell.lock(0).expect("fresh").retire();
                cell.reset(9);
                cell.lock(1).expect("fresh").set(100.0);
            });
            let (value, created) = (cell.read(0), cell.created(0));
            assert!(matches!(value, None | Some(4.5)), "{value:?}");
            assert!(matches!(created, None | Some(0)), "{created:?}");
            other.join().expect("no panic");
            assert_eq!((cell.read(1), cell.created(1)), (Some(100.0), Some(9)));
        });
    }
}
