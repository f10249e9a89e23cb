//! The rules by which Kubernetes values become numbers and label text: one module for each kind of value.
//!
//! Everything here is a pure function of text and numbers. The modules know no object, no view and no
//! metric; the resource kinds, the custom resource side and the command line call them.

pub mod cron;
pub mod ip;
pub mod label_name;
pub mod quantity;
pub mod resource_name;
pub mod time;
