//! Tests of several replicas on one simulated clock and network.

mod checker;
mod history;
mod network;
