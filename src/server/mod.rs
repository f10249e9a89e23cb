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
//! | [`scrape`], [`gzip`], `deflate`, [`body`] | metrics bodies |
//! | [`readiness`], [`shutdown`] | the process's state as the server sees it |
//! | [`pprof`] | profiles |

mod admission;
pub mod body;
pub mod connection;
mod deflate;
pub mod gzip;
pub mod landing;
pub mod listen;
pub mod pprof;
pub mod query;
pub mod readiness;
pub mod response;
pub mod router;
pub mod routes;
pub mod scrape;
pub mod serve;
pub mod shutdown;
pub mod validity;
