//! What [`scalar`](super::scalar) is made of, in one place, so that `tests/orders` can put something else there.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use std::thread::yield_now;
