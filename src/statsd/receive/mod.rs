//! From the sockets to lines, in the order in which they came.
//!
//! `intake` is the thread that takes what the sockets hold (`datagram`, `tcp`, with `net` below them) and says in which
//! order it is applied; `pace` makes it rest when much comes. Nothing here knows what a line means.

pub(crate) mod datagram;
pub(crate) mod intake;
pub(crate) mod net;
pub(crate) mod pace;
pub(crate) mod tcp;
