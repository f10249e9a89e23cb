//! Requests whose token the server has rejected, and that come again with the same one.
//!
//! A client may repeat a request at once with other credentials. With the same ones it waits.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Uri};
use tokio::time::Instant;

/// The shortest time after which a request comes again with the same token. It is longer than the way of a response and a
/// request, and shorter than the first backoff.
const PAUSE: Duration = Duration::from_millis(100);

/// The last rejections.
#[derive(Default)]
pub(super) struct RejectedTokens {
    /// The time of the last rejection of a request with a token.
    times: BTreeMap<(String, String), Instant>,
    /// A request that has come again too early.
    pub(super) violation: Option<String>,
}

impl RejectedTokens {
    /// Notes that the server rejects the token of a request.
    pub(super) fn note(&mut self, uri: &Uri, headers: &HeaderMap) {
        let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let request = (uri.to_string(), token.unwrap_or_default().to_owned());
        let now = Instant::now();
        if let Some(before) = self.times.insert(request.clone(), now)
            && now - before < PAUSE
        {
            let (uri, token) = request;
            let after = (now - before).as_millis();
            self.violation.get_or_insert(format!(
                "{uri} comes again {after} ms after the server has rejected {token:?}"
            ));
        }
    }
}
