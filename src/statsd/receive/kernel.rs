//! What [`batch`](super::batch) asks of the kernel, in one place, so that `tests/pointers` can put something else there.

pub(super) use libc::recvmmsg;
