//! The system calls used by [`batch`](super::batch), in a module of their own so that `tests/pointers` can
//! substitute them.

pub(super) use libc::recvmmsg;
