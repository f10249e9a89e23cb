//! The primitives used by [`scalar`](super::scalar), in a module of their own so that `tests/orders` can
//! substitute loom's.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use std::thread::yield_now;
