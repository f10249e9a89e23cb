//! Tests of a whole process, and of both sides together.

mod reloads;
mod world_history;
