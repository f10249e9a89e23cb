//! The HTTP server: the listeners of all personalities, which stream the metrics of their sources.
//!
//! A source is an `Arc<dyn Source>`, and a response consists of frames of its snapshot: a slow reader holds
//! memory, never a lock. This module depends neither on Kubernetes nor on StatsD nor on the command line;
//! [`routes`] has the tables of paths.
//!
//! | Module | Purpose |
//! |---|---|
//! | [`listen`] | parsing addresses, binding sockets |
//! | [`serve`], [`admission`] | accepting connections, connection limit, graceful shutdown |
//! | [`connection`] | timeouts of a connection |
//! | [`router`] | routing |
//! | [`authorisation`] | authentication and authorisation by the API server |
//! | `fair_queue` | fair limit on expensive work |
//! | [`web_config`], `handshake`, `socket` | TLS, users, headers and rate limits from a file |
//! | [`scrape`], [`gzip`], `deflate`, [`body`] | response bodies of metrics |
//! | [`cardinality`] | cardinality reports |
//! | [`readiness`], [`health`] | readiness and health checks of the process |
//! | [`status`], `logged_scrape` | the status page and its list of scrapes |
//! | [`pprof`] | profiles |
//! | [`support`] | recent log and configuration, for support archives |

mod admission;
pub(crate) mod authorisation;
pub(crate) mod body;
pub(crate) mod cardinality;
pub(crate) mod connection;
pub(crate) mod explain;
mod fair_queue;
pub mod gzip;
mod handshake;
pub(crate) mod health;
pub(crate) mod host_header;
pub(crate) mod landing_page;
pub(crate) mod listen;
mod logged_scrape;
pub(crate) mod pprof;
pub mod query;
pub(crate) mod readiness;
mod report_queue;
pub(crate) mod response;
pub(crate) mod router;
pub(crate) mod routes;
pub(crate) mod scrape;
pub(crate) mod serve;
mod socket;
pub(crate) mod status;
pub(crate) mod support;
pub(crate) mod web_config;
