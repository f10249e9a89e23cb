//! A simulated wall clock of the current thread.

use std::cell::RefCell;

type Clock = Box<dyn Fn() -> i64>;

thread_local! {
    static CLOCK: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

/// Restores the real wall clock when it is dropped.
pub struct Simulated(());

impl Drop for Simulated {
    fn drop(&mut self) {
        CLOCK.set(None);
    }
}

/// Makes this function, which returns Unix seconds, the wall clock of the current thread.
pub fn simulate(clock: impl Fn() -> i64 + 'static) -> Simulated {
    CLOCK.set(Some(Box::new(clock)));
    Simulated(())
}

/// Returns the Unix seconds of the simulated clock, if there is one.
pub fn seconds() -> Option<i64> {
    CLOCK.with_borrow(|clock| clock.as_ref().map(|clock| clock()))
}
