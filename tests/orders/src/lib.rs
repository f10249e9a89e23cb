//! kstatd's files without locks, with loom's atomics in the place of the processor's: each test runs in every order in which
//! its threads can take their steps and see each other's words, also where a processor of weak order alone would show it.
//!
//! What else is shared is behind a mutex or published whole by `arc-swap`, or is a word by itself for which any order will do.
#![forbid(unsafe_code)]

#[allow(dead_code)]
#[path = "../../../src/statsd/series/scalar.rs"]
mod scalar;

/// What `scalar` is made of.
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

    /// Runs something beside the test.
    fn beside(cell: &Arc<Scalar>, work: impl FnOnce(&Scalar) + 'static) -> JoinHandle<()> {
        let cell = Arc::clone(cell);
        thread::spawn(move || work(&cell))
    }

    #[test]
    fn no_addition_is_lost() {
        loom::model(|| {
            let cell = Arc::new(Scalar::default());
            let other = beside(&cell, |cell| {
                let guard = cell.lock(0).expect("nobody retires it");
                guard.add(1.0);
                guard.add(0.5);
            });
            cell.lock(0).expect("nobody retires it").add(2.0);
            other.join().expect("no panic");
            assert_eq!(cell.read(0), Some(3.5));
        });
    }

    /// A counter that grows by a whole number and by a fraction is never seen to fall, nor beyond what it comes to; the one
    /// may be seen before the other.
    #[test]
    fn who_reads_sees_a_counter_grow() {
        for more in [[0.5, 2.0], [2.0, 0.5]] {
            loom::model(move || {
                let cell = Arc::new(Scalar::default());
                cell.lock(0).expect("fresh").add(1.0);
                let other = beside(&cell, move |cell| {
                    for more in more {
                        cell.lock(0).expect("nobody retires it").add(more);
                    }
                });
                let seen = [(); 2].map(|()| cell.read(0).expect("it lives"));
                assert!([1.0, 1.5, 3.0, 3.5].contains(&seen[0]), "{seen:?}");
                assert!((seen[0]..=3.5).contains(&seen[1]), "{seen:?}");
                other.join().expect("no panic");
            });
        }
    }

    /// Only one of both ends a series, and nothing is added to the next one in its place.
    #[test]
    fn what_is_added_late_is_nowhere() {
        loom::model(|| {
            let cell = Arc::new(Scalar::default());
            let other = beside(&cell, |cell| {
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

    /// A scrape never shows one series under the name of another, nor half of it.
    #[test]
    fn who_reads_an_old_series_does_not_see_the_next() {
        loom::model(|| {
            let cell = Arc::new(Scalar::default());
            {
                let guard = cell.lock(0).expect("fresh");
                guard.add(4.0);
                guard.add(0.5);
            }
            let other = beside(&cell, |cell| {
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
