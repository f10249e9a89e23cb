//! The StatsD pipeline's own metrics.
//!
//! An ingest thread counts into its own [`Tally`] and adds it to the shared [`Metrics`] once per batch, so a
//! line needs no atomic operation. Every line and every sample is counted with exactly one outcome.
//! [`Metrics::original`] and [`Metrics::additional`] return the families.

mod conflicts;
pub(crate) mod counters;
mod examples;
mod families;
mod largest_families;
mod rule_hits;
mod sender_outcome;

pub(crate) use conflicts::ConflictSnapshot;
pub use counters::Listener;
pub(crate) use counters::{Count, EventType, LineOutcome, Metrics, SampleOutcome, Tally, bump};
pub(crate) use examples::NameCount;
pub use families::is_own_name;
pub(crate) use families::{CONFLICTS, FamilyInputs, OwnSelection, SocketStats};
pub(crate) use rule_hits::{RuleHits, number as rule_number};
pub(crate) use sender_outcome::{RejectedClaim, SenderOutcome};
