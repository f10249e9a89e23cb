//! The shared parts of a client.

use http::Uri;
use http::uri::PathAndQuery;

use super::connection::Connections;
use super::error::{TransportError, causes};
use super::identity::Identity;

/// A client without its reference count: the parts that all clones share.
pub(super) struct Inner {
    pub(super) number: u64,
    pub(super) connections: Connections,
    pub(super) identity: Identity,
    pub(super) url: Uri,
}

impl Inner {
    /// Returns the URL of a path on the server, relative to the path of the server's own URL.
    pub(super) fn uri(&self, path: &str) -> Result<Uri, TransportError> {
        let mut parts = self.url.clone().into_parts();
        let base = self.url.path().trim_end_matches('/');
        let path = PathAndQuery::try_from(format!("{base}{path}"));
        parts.path_and_query = Some(path.map_err(|error| causes(&error))?);
        Uri::from_parts(parts).map_err(|error| causes(&error).into())
    }
}
