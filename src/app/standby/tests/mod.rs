//! Tests of several replicas on one simulated clock and network, and of the answers of one.

#[cfg(test)]
mod checker;
#[cfg(test)]
mod history;
#[cfg(test)]
mod network;
pub(crate) mod peer_answers;
