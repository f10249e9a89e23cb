//! What a scrape has of a resource.

use std::sync::Arc;

use super::schema::Schema;
use super::store::Snapshot;

/// One resource at one moment.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) schema: Arc<Schema>,
    pub(super) stores: Vec<Snapshot>,
}
