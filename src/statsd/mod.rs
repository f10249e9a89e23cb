//! The StatsD pipeline: lines in, Prometheus series out.
//!
//! [`line`] reads the grammar, [`name`] escapes, [`mapper`] applies the mapping file. This module knows no Kubernetes.

pub mod line;
pub mod mapper;
pub mod name;
