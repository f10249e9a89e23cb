//! The command line: from argv to the configuration.
//!
//! Three parsers (clap for kstatd's own commands, [`pflag`] for kube-state-metrics, [`kingpin`] for
//! statsd_exporter) read the same two tables of flags ([`kube_flags`], [`statsd_flags`]). They only
//! validate and store values; [`config`] combines these with the options file into a
//! [`config::Config`], which [`app`](crate::app) executes.

pub(crate) mod asking;
pub(crate) mod check;
pub(crate) mod clap_table;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod custom;
pub(crate) mod error;
pub(crate) mod flag;
mod flag_selection;
pub(crate) mod kingpin;
pub(crate) mod klog;
pub(crate) mod kube_args;
mod kube_config;
pub mod kube_flags;
pub(crate) mod kubectl;
mod limits;
pub mod load;
pub(crate) mod manual;
pub(crate) mod native;
pub(crate) mod node;
mod node_options;
pub mod options_file;
pub(crate) mod pflag;
pub(crate) mod process;
pub(crate) mod read_options;
pub(crate) mod selection;
pub(crate) mod services;
pub(crate) mod shadow;
pub(crate) mod shared;
pub(crate) mod statsd_flags;
pub(crate) mod usage_error;
