//! The command line: argv into a configuration.
//!
//! Three grammars (kstatd's own by clap, kube-state-metrics' by [`pflag`], statsd_exporter's by
//! [`kingpin`]) read the same two tables of flags ([`kube_flags`], [`statsd_flags`]). Parsing only checks
//! and stores; [`config`] turns what was stored, and the options file, into one [`config::Config`].
//! What is done with it is the matter of [`app`](crate::app), which nothing here knows.

pub(crate) mod clap_table;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod custom;
pub(crate) mod error;
pub(crate) mod flag;
pub(crate) mod kingpin;
pub(crate) mod klog;
pub(crate) mod kube_args;
pub mod kube_flags;
mod limits;
pub(crate) mod manual;
pub(crate) mod native;
pub(crate) mod node;
pub mod options_file;
pub(crate) mod overhead;
pub(crate) mod pflag;
pub(crate) mod read_options;
pub(crate) mod selection;
pub(crate) mod services;
pub(crate) mod shared;
pub(crate) mod statsd_flags;
