//! Tests of both sides together.

mod world_history;
