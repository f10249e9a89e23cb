//! What the StatsD side counts about itself.
//!
//! An ingest thread counts into a [`Tally`] of its own and adds it to the shared [`Metrics`] once for each batch, so a
//! line costs no atomic operation. Every line and every sample ends in exactly one outcome. The families that say so
//! come from [`Metrics::original`] and [`Metrics::ours`].

pub(crate) mod counters;
mod examples;
mod families;
mod queue;
mod rule_hits;

pub use counters::Listener;
pub(crate) use counters::{Count, EventType, LineOutcome, Metrics, SampleOutcome, Tally, bump};
pub use families::is_own_name;
pub(crate) use families::{Context, SocketFacts};
pub(crate) use queue::EventQueue;
pub(crate) use rule_hits::{RuleHits, number as rule_number};
