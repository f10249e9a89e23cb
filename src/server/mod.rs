//! HTTP: the listeners of all personalities, streaming what the sources have.
//!
//! Sources come in as `Arc<dyn Source>`, requests go out as frames of a snapshot: a slow reader holds
//! memory, never a lock. This module knows neither Kubernetes nor StatsD nor the command line; the tables
//! of paths are in [`routes`].
//!
//! | Part | For |
//! |---|---|
//! | [`listen`] | address texts and sockets |
//! | [`serve`], [`admission`] | accepting, room for connections, graceful end |
//! | [`connection`] | deadlines of a connection |
//! | [`router`] | paths to handlers |
//! | [`authorisation`] | tokens and rights, as the API server sees them |
//! | [`web_config`], `handshake`, `socket` | TLS, users, headers and limits from a file |
//! | [`scrape`], [`gzip`], `deflate`, [`body`] | metrics bodies |
//! | [`cardinality`] | reports about the series |
//! | [`readiness`], [`health`], [`shutdown`] | the process's state as the server sees it |
//! | [`status`], `noted` | the status page, and the scrapes that it shows |
//! | [`pprof`] | profiles |

mod admission;
pub(crate) mod authorisation;
pub(crate) mod body;
pub(crate) mod cardinality;
pub(crate) mod connection;
pub(crate) mod explain;
pub mod gzip;
mod handshake;
pub(crate) mod health;
pub(crate) mod landing;
pub(crate) mod listen;
mod noted;
pub(crate) mod pprof;
pub mod query;
pub(crate) mod readiness;
pub(crate) mod response;
pub(crate) mod router;
pub(crate) mod routes;
pub(crate) mod scrape;
pub(crate) mod serve;
pub(crate) mod shutdown;
mod socket;
pub(crate) mod status;
pub(crate) mod validity;
pub(crate) mod web_config;
