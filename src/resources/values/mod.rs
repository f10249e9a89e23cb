//! Conversion of Kubernetes values to numbers and label text, one module for each type of value.
//!
//! Everything here is a pure function of text and numbers, used by the resource kinds, the custom resource side and the
//! command line.

pub mod cron;
pub mod ip;
pub mod label_name;
pub mod quantity;
pub mod resource_name;
pub mod time;
