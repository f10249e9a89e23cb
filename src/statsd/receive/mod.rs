//! Receives lines from sockets.
//!
//! `receiver` is the thread that reads from the sockets (`datagram` and `tcp`, based on `net` and `batch`) and
//! applies the lines. `wakeup_batcher` makes it sleep between single datagrams that arrive quickly.

mod batch;
pub(crate) mod datagram;
mod kernel;
pub(crate) mod net;
pub(crate) mod receiver;
pub(crate) mod tcp;
pub(crate) mod wakeup_batcher;
