//! Requests whose token the server has rejected, and that come again with the same one.
//!
//! A client repeats a request at once with other credentials, if there are any. With the same ones it waits.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Uri};
use tokio::time::Instant;

/// The shortest time after which a request comes again with the same token. It is longer than the way of a response and a
/// request, and shorter than the first backoff.
const PAUSE: Duration = Duration::from_millis(100);

/// The time within which a request comes again that is repeated at once.
const AT_ONCE: Duration = Duration::from_millis(300);

/// The last rejections.
#[derive(Default)]
pub(super) struct RejectedTokens {
    /// The time of the last rejection of a request with a token.
    times: BTreeMap<(String, String), Instant>,
    /// The time of the last rejection of requests for which there is another token by now, and that have not come again.
    unrepeated: BTreeMap<String, Instant>,
    /// List/watches are being replaced: one of each may send the same request.
    are_twice: bool,
    /// The time until which requests may arrive that do not come again, because their list/watch has been replaced or their response was
    /// awaited in vain.
    replaced_until: Option<Instant>,
    /// A request that has come again too early.
    early: Option<String>,
}

impl RejectedTokens {
    /// Notes that a request has arrived.
    pub(super) fn arrived(&mut self, uri: &Uri) {
        self.unrepeated.remove(&uri.to_string());
    }

    /// Notes whether list/watches are being replaced, so that two of them may send the same requests.
    pub(super) fn replacing(&mut self, are_twice: bool) {
        self.are_twice = are_twice;
    }

    /// Notes that list/watches are replaced, or that requests arrive late.
    pub(super) fn replaced(&mut self) {
        self.replaced_until = Some(Instant::now() + AT_ONCE);
        self.excuse();
    }

    /// Notes that requests and responses may get lost. A request that was not answered comes again over another connection.
    pub(super) fn excuse(&mut self) {
        self.unrepeated.clear();
        self.times.clear();
    }

    /// Describes a request that has come again too early, or not at once.
    pub(super) fn violation(&self) -> Option<String> {
        let mut unrepeated = self.unrepeated.iter();
        self.early.clone().or_else(|| {
            let (uri, _) = unrepeated.find(|(_, at)| at.elapsed() > AT_ONCE)?;
            Some(format!("{uri} does not come again with the new token"))
        })
    }

    /// Notes that the server rejects the token of a request. `has_other`: there is another token.
    pub(super) fn note(&mut self, uri: &Uri, headers: &HeaderMap, has_other: bool) {
        let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let request = (uri.to_string(), token.unwrap_or_default().to_owned());
        let now = Instant::now();
        if has_other && self.replaced_until.is_none_or(|until| until <= now) {
            self.unrepeated.insert(uri.to_string(), now);
        }
        if let Some(before) = self.times.insert(request.clone(), now)
            && now - before < PAUSE
            && !self.are_twice
        {
            let (uri, token) = request;
            let after = (now - before).as_millis();
            self.early.get_or_insert(format!(
                "{uri} comes again {after} ms after the server has rejected {token:?}"
            ));
        }
    }
}
