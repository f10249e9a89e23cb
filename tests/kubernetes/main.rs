//! The Kubernetes side as a library: decoders, tables of families, rendering, and compressed bodies.
//!
//! One binary, because linking the library takes longer than compiling most of these tests.

#[path = "../common/mod.rs"]
mod common;
#[path = "../support/mod.rs"]
mod support;

mod api_double;
mod conformance_values;
mod docs;
mod families;
mod gzip;
mod namespaces;
mod oracle;
mod protobuf;
mod resources;
mod virtual_shards;
