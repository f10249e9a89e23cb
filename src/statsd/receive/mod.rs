//! From the sockets to lines, in the order in which they came.
//!
//! `intake` is the thread that takes what the sockets hold (`datagram`, `tcp`, with `net` and `batch` below them) and says in
//! which order it is applied, by what the kernel notes (`stamp`); `pace` makes it rest when much comes. Nothing here knows what a line means.

mod batch;
pub(crate) mod datagram;
pub(crate) mod intake;
mod kernel;
pub(crate) mod net;
pub(crate) mod pace;
mod stamp;
pub(crate) mod tcp;
