//! A ledger of events: counters derived from the differences between the successive states of pods, jobs, nodes and
//! Kubernetes Events.
//!
//! The ledger is a state machine without I/O: its input is the objects of each list/watch with the boundaries of lists,
//! the workloads of pods, the shard and the time; its output is the series in its stores. Events that
//! the API does not report any more are counted with the reason `unknown` where it proves their number.
//!
//! The first list of each list/watch is the beginning: what it reports is old. An object that appears later and was
//! created later starts with what its status proves.

mod containers;
mod counters;
mod families;
mod jobs;
mod kube_events;
mod nodes;
mod objects;
mod observer;
mod pods;
mod state;
#[cfg(test)]
mod tests;
mod totals;

pub use counters::{LedgerFamily, LedgerOptions, LedgerResource};
pub use families::{KUBE_EVENTS, RESOURCES};
pub use observer::SharedLedger;
pub(super) use observer::{LedgerObserver, WorkloadLookup};
pub(super) use state::LedgerKind;
