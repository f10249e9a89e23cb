//! Authorises requests through the API server.
//!
//! A TokenReview identifies the owner of a bearer token, and a SubjectAccessReview decides whether
//! the owner may use this method on this path. A caller without that right may still see the
//! metrics of namespaces, if the request names only these and a review of each allows it. Answers
//! are cached for as long as in the original; failed reviews are not cached and deny access. The
//! number of concurrent reviews is limited, and no request waits longer than [`REVIEW_TIMEOUT`].
//!
//! Tokens can be invented. Therefore grants and denials are cached separately, and some reviews
//! are reserved for callers granted before: a flood of denied requests neither evicts a grant nor
//! delays its renewal. The other reviews are shared fairly between client addresses. Only digests
//! of tokens are stored. [`Reviews`] makes the requests to the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use ring::digest::{Context, SHA256};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::connection::Peer;
use super::fair_queue::{FairQueue, SharedByKey};
use super::query;
use super::response::{self, Response};
use crate::util::lock::Lock;
use crate::util::log_limit::LogLimit;
use crate::util::reasons::reason;

/// The maximum wait for a review.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// The cache size for grants of tokens and of actions, for the denials of each, and for wrong passwords.
pub(super) const MAX_CACHED: usize = 1024;

/// The maximum number of concurrent reviews; how many of them are for callers never granted; and
/// how many of these for one client.
const MAX_REVIEWS: usize = 16;
const MAX_NEW_REVIEWS: usize = 12;
const MAX_NEW_REVIEWS_PER_CLIENT: usize = 6;

/// The lifetimes of cached token owners, grants and denials.
const IDENTITY_TTL: Duration = Duration::from_secs(60);
const ALLOWED_TTL: Duration = Duration::from_secs(300);
const DENIED_TTL: Duration = Duration::from_secs(30);

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name for log messages.
    pub name: String,
    /// The complete user information from the API server, for the next review.
    pub identity: Arc<str>,
}

/// An action that a caller requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Using a non-resource path.
    Path {
        /// The path.
        path: String,
        /// The HTTP method in lower case.
        verb: String,
    },
    /// Reading the metrics of a namespace.
    Namespace(String),
}

/// The decision of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// True if an authoriser allows the action.
    pub allowed: bool,
    /// True if an authoriser denies the action.
    pub denied: bool,
}

reason! {
    /// The reason why there is no answer to a review, or to another question to the API server; for the log.
    pub struct ReviewError;
}

/// A pending review.
pub type Review<T> = Pin<Box<dyn Future<Output = Result<T, ReviewError>> + Send>>;

/// A client for reviews.
pub trait Reviews: Send + Sync {
    /// Returns a unique number for the API server and credentials in use. Answers of one API server
    /// are not valid for another. Later reviews use the same server or a newer one.
    fn client_number(&self) -> u64;
    /// Returns the owner of a token, if the token is valid.
    fn caller(&self, token: &str) -> Review<Option<Caller>>;
    /// Decides whether a caller may perform an action.
    fn access(&self, caller: &Caller, action: &Action) -> Review<Access>;
}

pub(super) type Digest = [u8; 32];

/// The filter of one listener.
pub struct Authorisation {
    reviews: Arc<dyn Reviews>,
    callers: Lock<ReviewCache<Option<Caller>>>,
    accesses: Lock<ReviewCache<Access>>,
    permits: Semaphore,
    /// The reviews available to callers never granted.
    new: FairQueue,
    review_timeout: Duration,
    /// Counts of failures for the log: unknown tokens, and reviews of tokens and of actions that failed.
    unknown_tokens: Lock<LogLimit>,
    failed_authentications: Lock<LogLimit>,
    failed_authorisations: Lock<LogLimit>,
}

impl Authorisation {
    /// Creates a filter with empty caches.
    pub fn new(reviews: Arc<dyn Reviews>) -> Self {
        Self {
            reviews,
            callers: Lock::default(),
            accesses: Lock::default(),
            permits: Semaphore::new(MAX_REVIEWS),
            new: FairQueue::new(MAX_NEW_REVIEWS, MAX_NEW_REVIEWS_PER_CLIENT),
            review_timeout: REVIEW_TIMEOUT,
            unknown_tokens: Lock::default(),
            failed_authentications: Lock::default(),
            failed_authorisations: Lock::default(),
        }
    }

    /// Decides whether a request for `path` may proceed; the response of some paths can be limited
    /// to namespaces.
    ///
    /// # Errors
    ///
    /// The response to a request that may not.
    pub(crate) async fn admit(
        &self,
        head: &Parts,
        path: &str,
        by_namespace: bool,
    ) -> Result<(), Box<Response>> {
        let Some(token) =
            head.headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()))
        else {
            return refuse(401, "Unauthorized");
        };
        let client = head.extensions.get::<Peer>().and_then(Peer::address);
        let (limit, error) = match self.caller(token, client).await {
            Ok(Some(caller)) => {
                return self.authorise(caller, client, head, path, by_namespace).await;
            }
            Ok(None) => (&self.unknown_tokens, "the token is not valid".into()),
            Err(error) => (&self.failed_authentications, error),
        };
        if let Some(times) = limit.lock().add(1, Instant::now().into_std()) {
            tracing::warn!(
                %error,
                times,
                client = client.map(tracing::field::display),
                "Authentication failed"
            );
        }
        refuse(500, "Authentication failed")
    }

    /// Decides whether an authenticated caller has access.
    async fn authorise(
        &self,
        caller: Caller,
        client: Option<IpAddr>,
        head: &Parts,
        path: &str,
        by_namespace: bool,
    ) -> Result<(), Box<Response>> {
        let action =
            Action::Path { path: path.to_owned(), verb: head.method.as_str().to_ascii_lowercase() };
        let mut access = self.is_allowed(&caller, client, &action).await;
        let mut refused = Vec::new();
        if by_namespace
            && access == Ok(false)
            && let Ok(Some(namespaces)) = query::namespaces(head.uri.query().unwrap_or_default())
        {
            let reviews = self.refused(&caller, client, namespaces);
            access = self.in_time(reviews).await.map(|some| {
                refused = some;
                refused.is_empty()
            });
        }
        let name = &caller.name;
        match access {
            Ok(true) => Ok(()),
            Ok(false) if refused.is_empty() => {
                refuse(403, format!("Authorization denied for user {name}"))
            }
            Ok(false) => {
                let namespaces = refused.join(", ");
                refuse(403, format!("Authorization denied for user {name} in {namespaces}"))
            }
            Err(error) => {
                let due = self.failed_authorisations.lock().add(1, Instant::now().into_std());
                if let Some(times) = due {
                    tracing::warn!(user = name, %error, times, "Authorization failed");
                }
                refuse(500, format!("Authorization for user {name} failed"))
            }
        }
    }

    async fn caller(
        &self,
        token: &str,
        client: Option<IpAddr>,
    ) -> Result<Option<Caller>, ReviewError> {
        let digest = digest(&[&self.client_number(), token]);
        let review = || self.reviews.caller(token);
        let judge = |caller: &Option<Caller>| (caller.is_some(), IDENTITY_TTL);
        self.cached(&self.callers, client, digest, review, judge).await
    }

    /// Returns the server's number as a part of each digest, so that answers of another API server
    /// are not found.
    fn client_number(&self) -> String {
        self.reviews.client_number().to_string()
    }

    /// Returns the namespaces whose metrics the caller must not see.
    async fn refused(
        &self,
        caller: &Caller,
        client: Option<IpAddr>,
        namespaces: BTreeSet<String>,
    ) -> Result<Vec<String>, ReviewError> {
        let mut refused = Vec::new();
        for namespace in namespaces {
            if !self.is_allowed(caller, client, &Action::Namespace(namespace.clone())).await? {
                refused.push(namespace);
            }
        }
        Ok(refused)
    }

    async fn is_allowed(
        &self,
        caller: &Caller,
        client: Option<IpAddr>,
        action: &Action,
    ) -> Result<bool, ReviewError> {
        let (asked, identity) = (&*self.client_number(), &*caller.identity);
        let digest = match action {
            Action::Path { path, verb } => digest(&[asked, identity, "path", path, verb]),
            Action::Namespace(name) => digest(&[asked, identity, "namespace", name]),
        };
        let review = || self.reviews.access(caller, action);
        let judge = |access: &Access| {
            let lasts = if access.allowed { ALLOWED_TTL } else { DENIED_TTL };
            (access.allowed && !access.denied, lasts)
        };
        let access = self.cached(&self.accesses, client, digest, review, judge).await?;
        let both = "the API server both allows and denies it";
        if access.allowed && access.denied { Err(both.into()) } else { Ok(access.allowed) }
    }

    /// Returns a cached answer or requests a review; concurrent requests for the same answer share
    /// one. `judge` returns whether an answer is a grant, and its lifetime.
    async fn cached<T: Clone>(
        &self,
        memory: &Lock<ReviewCache<T>>,
        client: Option<IpAddr>,
        digest: Digest,
        review: impl Fn() -> Review<T>,
        judge: impl Fn(&T) -> (bool, Duration),
    ) -> Result<T, ReviewError> {
        let answer = async {
            if let Some(value) = memory.lock().get(&digest, Instant::now()) {
                return Ok(value);
            }
            // Requests for the same answer share this lock.
            let turn = memory.lock().pending.get(digest, Default::default);
            let _turn = turn.lock().await;
            if let Some(value) = memory.lock().get(&digest, Instant::now()) {
                return Ok(value);
            }
            let _new = if memory.lock().was_granted(&digest) {
                None
            } else {
                let permit = self.new.acquire(client, 1).await;
                Some(permit.ok_or("too many pending reviews of new tokens and requests")?)
            };
            let _permit = self.permits.acquire().await.map_err(|error| error.to_string())?;
            let value = review().await?;
            let (is_grant, lasts) = judge(&value);
            memory.lock().put(digest, value.clone(), Instant::now() + lasts, is_grant);
            Ok(value)
        };
        self.in_time(answer).await
    }

    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, ReviewError>>,
    ) -> Result<T, ReviewError> {
        timeout(self.review_timeout, answer).await.unwrap_or_else(|_| {
            Err(format!("no response from the API server within {:?}", self.review_timeout).into())
        })
    }
}

fn refuse(status: u16, text: impl Display) -> Result<(), Box<Response>> {
    Err(Box::new(response::error(status, format!("{text}\n"))))
}

/// Parses the token of an `Authorization` header like the original does.
fn bearer(value: &[u8]) -> Option<&str> {
    let mut words = std::str::from_utf8(value).ok()?.trim().split(' ');
    let scheme = words.next()?;
    let token = words.next().filter(|token| !token.is_empty())?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

fn digest(parts: &[&str]) -> Digest {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part.as_bytes());
    }
    context.finish().as_ref().try_into().unwrap_or_default()
}

/// A cache of review answers that expire.
struct ReviewCache<T> {
    granted: RecentValues<(Instant, T)>,
    refused: RecentValues<(Instant, T)>,
    pending: SharedByKey<Digest, tokio::sync::Mutex<()>>,
}

/// The last values, by the hash of what they are about; further ones replace the oldest.
pub(super) struct RecentValues<V> {
    /// Each value with its number, in the order in which they were put.
    pub(super) by_digest: BTreeMap<Digest, (u64, V)>,
    next: u64,
}

impl<V> Default for RecentValues<V> {
    fn default() -> Self {
        Self { by_digest: BTreeMap::new(), next: 0 }
    }
}

impl<V> RecentValues<V> {
    pub(super) fn put(&mut self, digest: Digest, value: V) {
        self.by_digest.insert(digest, (self.next, value));
        self.next += 1;
        let oldest = || self.by_digest.iter().min_by_key(|(_, (number, _))| *number);
        if self.by_digest.len() > MAX_CACHED
            && let Some(oldest) = oldest().map(|(digest, _)| *digest)
        {
            self.by_digest.remove(&oldest);
        }
    }

    fn get(&self, digest: &Digest) -> Option<&V> {
        self.by_digest.get(digest).map(|(_, value)| value)
    }
}

impl<T> Default for ReviewCache<T> {
    fn default() -> Self {
        let (granted, refused) = (RecentValues::default(), RecentValues::default());
        Self { granted, refused, pending: SharedByKey::default() }
    }
}

impl<T: Clone> ReviewCache<T> {
    fn get(&self, digest: &Digest, now: Instant) -> Option<T> {
        let (until, value) = self.granted.get(digest).or_else(|| self.refused.get(digest))?;
        (now < *until).then(|| value.clone())
    }

    /// Returns whether the last answer was a grant, even if it has expired.
    fn was_granted(&self, digest: &Digest) -> bool {
        self.granted.by_digest.contains_key(digest)
    }

    fn put(&mut self, digest: Digest, value: T, until: Instant, is_grant: bool) {
        let Self { granted, refused, .. } = self;
        let (of_this_sort, other) = if is_grant { (granted, refused) } else { (refused, granted) };
        other.by_digest.remove(&digest);
        of_this_sort.put(digest, (until, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    /// `good` is a valid token, reviews of `mute` never finish; reads are allowed.
    #[derive(Default)]
    struct Stub {
        tokens: AtomicUsize,
        accesses: AtomicUsize,
        asked: AtomicU64,
    }

    impl Reviews for Stub {
        fn client_number(&self) -> u64 {
            self.asked.load(Ordering::Relaxed)
        }

        fn caller(&self, token: &str) -> Review<Option<Caller>> {
            self.tokens.fetch_add(1, Ordering::Relaxed);
            match token {
                _ if token.starts_with("mute") => Box::pin(pending()),
                "broken" => Box::pin(ready(Err("broken".into()))),
                "good" => {
                    let caller = Caller { name: "me".into(), identity: "me".into() };
                    Box::pin(ready(Ok(Some(caller))))
                }
                _ => Box::pin(ready(Ok(None))),
            }
        }

        fn access(&self, _: &Caller, action: &Action) -> Review<Access> {
            self.accesses.fetch_add(1, Ordering::Relaxed);
            let allowed = match action {
                Action::Path { path, verb } => path == "/metrics" && verb == "get",
                Action::Namespace(name) => name.starts_with("my-"),
            };
            let access = Access { allowed, denied: false };
            Box::pin(ready(Ok(access)))
        }
    }

    fn request(method: &str, authorization: &str) -> Parts {
        let request = hyper::Request::builder().method(method).header(AUTHORIZATION, authorization);
        request.body(()).expect("request").into_parts().0
    }

    async fn status(filter: &Authorisation, method: &str, authorization: &str) -> u16 {
        match filter.admit(&request(method, authorization), "/metrics", false).await {
            Ok(()) => 200,
            Err(response) => response.status().as_u16(),
        }
    }

    #[tokio::test]
    async fn reviews_are_cached_and_failures_are_not() {
        let stub = Arc::new(Stub::default());
        let filter = Authorisation::new(Arc::clone(&stub) as Arc<dyn Reviews>);
        let counts =
            || (stub.tokens.load(Ordering::Relaxed), stub.accesses.load(Ordering::Relaxed));
        for (method, authorization, want, reviews) in [
            ("GET", "Bearer good", 200, (1, 1)),
            ("GET", "bearer good x", 200, (1, 1)),
            ("POST", "Bearer good", 403, (1, 2)),
            ("POST", "Bearer good", 403, (1, 2)),
            ("GET", "Bearer broken", 500, (2, 2)),
            ("GET", "Bearer broken", 500, (3, 2)),
            ("GET", "Bearer bad", 500, (4, 2)),
            ("GET", "Bearer bad", 500, (4, 2)),
            ("GET", "Bearer  good", 401, (4, 2)),
            ("GET", "Basic good", 401, (4, 2)),
        ] {
            assert_eq!(status(&filter, method, authorization).await, want, "{authorization}");
            assert_eq!(counts(), reviews, "{method} {authorization}");
        }
        // The answer of another API server does not count.
        for reviews in [(5, 3), (5, 3)] {
            stub.asked.store(1, Ordering::Relaxed);
            assert_eq!(status(&filter, "GET", "Bearer good").await, 200);
            assert_eq!(counts(), reviews);
        }
    }

    /// A caller without access to everything can access namespaces on the paths that support it, if it may see each of
    /// them.
    #[tokio::test]
    async fn permitted_namespaces_are_served() {
        let stub = Arc::new(Stub::default());
        let filter = Authorisation::new(Arc::clone(&stub) as Arc<dyn Reviews>);
        let refusal = async |uri: &str, method: &str, by_namespace: bool| {
            let mut head = request(method, "Bearer good");
            head.uri = uri.parse().expect("URI");
            let path = head.uri.path().to_owned();
            let refusal = filter.admit(&head, &path, by_namespace).await.err()?;
            let status = refusal.status().as_u16();
            let body = http_body_util::BodyExt::collect(refusal.into_body()).await.expect("body");
            Some((status, String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8")))
        };
        let denied = |more: &str| Some((403, format!("Authorization denied for user me{more}\n")));
        for (uri, method, by_namespace, want) in [
            ("/metrics?namespace=other", "GET", true, None),
            ("/m?namespace=my-a", "GET", true, None),
            ("/m?namespace=my-a&namespace=my-b,my-a", "POST", true, None),
            ("/m?namespace=my-a", "GET", false, denied("")),
            ("/m", "GET", true, denied("")),
            ("/m?namespace=", "GET", true, denied("")),
            ("/m?namespace=my-a&namespace=A", "GET", true, denied("")),
            ("/m?namespace=my-a;&namespace=my-b", "GET", true, denied("")),
            ("/m?namespace=my-a,other,yours", "GET", true, denied(" in other, yours")),
        ] {
            assert_eq!(refusal(uri, method, by_namespace).await, want, "{method} {uri}");
        }
        // The path with two methods, four namespaces once each, and the open path.
        assert_eq!(stub.accesses.load(Ordering::Relaxed), 2 + 4 + 1);
    }

    #[test]
    fn cached_reviews_expire() {
        let (mut memory, now) = (ReviewCache::default(), Instant::now());
        let one = digest(&["one"]);
        memory.put(one, 1, now + DENIED_TTL, false);
        assert_eq!(memory.get(&one, now + DENIED_TTL / 2), Some(1));
        assert_eq!(memory.get(&one, now + DENIED_TTL), None);
        assert!(!memory.was_granted(&one));
        memory.put(one, 2, now + ALLOWED_TTL, true);
        assert_eq!(memory.get(&one, now + DENIED_TTL), Some(2));
        assert_eq!(memory.get(&one, now + ALLOWED_TTL), None);
        assert!(memory.was_granted(&one), "although its time is over");
        memory.put(one, 3, now + DENIED_TTL, false);
        assert!(!memory.was_granted(&one));
        assert_eq!(memory.get(&one, now), Some(3));
    }

    #[tokio::test]
    async fn a_cancelled_review_frees_its_permit() {
        let stub = Arc::new(Stub::default());
        let mut filter = Authorisation::new(Arc::clone(&stub) as Arc<dyn Reviews>);
        {
            let mut first = std::pin::pin!(status(&filter, "GET", "Bearer mute"));
            tokio::select! {
                biased;
                _ = &mut first => panic!("there is no answer"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(status(&filter, "GET", "Bearer good").await, 200);
        filter.review_timeout = Duration::from_millis(1);
        assert_eq!(status(&filter, "GET", "Bearer mute").await, 500);
        assert_eq!(stub.tokens.load(Ordering::Relaxed), 3);
    }

    /// However many tokens are invented, the review of a previously granted caller starts at once.
    #[tokio::test]
    async fn unknown_tokens_delay_only_unknown_tokens() {
        let stub = Arc::new(Stub::default());
        let filter = Authorisation::new(Arc::clone(&stub) as Arc<dyn Reviews>);
        assert_eq!(status(&filter, "GET", "Bearer good").await, 200);
        let good = Caller { name: "me".into(), identity: "me".into() };
        filter.callers.lock().put(digest(&["0", "good"]), Some(good), Instant::now(), true);
        let tokens: Vec<String> = (0..2 * MAX_REVIEWS).map(|n| format!("Bearer mute{n}")).collect();
        let mut strangers: Vec<_> =
            tokens.iter().map(|token| Box::pin(status(&filter, "GET", token))).collect();
        for stranger in &mut strangers {
            tokio::select! {
                biased;
                _ = stranger => panic!("there is no answer"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(stub.tokens.load(Ordering::Relaxed), 1 + MAX_NEW_REVIEWS_PER_CLIENT);
        assert_eq!(status(&filter, "GET", "Bearer good").await, 200);
        assert_eq!(
            stub.tokens.load(Ordering::Relaxed),
            2 + MAX_NEW_REVIEWS_PER_CLIENT,
            "it was asked about"
        );
    }

    /// More invented tokens than fit into the cache, while the API server answers no other reviews.
    #[tokio::test]
    async fn denials_do_not_evict_grants() {
        let stub = Arc::new(Stub::default());
        let filter = Authorisation::new(Arc::clone(&stub) as Arc<dyn Reviews>);
        assert_eq!(status(&filter, "GET", "Bearer good").await, 200);
        for number in 0..2 * MAX_CACHED {
            assert_eq!(status(&filter, "GET", &format!("Bearer bad{number}")).await, 500);
        }
        assert_eq!(filter.callers.lock().refused.by_digest.len(), MAX_CACHED);
        let reviews = stub.tokens.load(Ordering::Relaxed);
        assert_eq!(status(&filter, "GET", "Bearer good").await, 200);
        assert_eq!(stub.tokens.load(Ordering::Relaxed), reviews, "it is remembered");
        // Denials of the same owner do not evict its grants either.
        for number in 0..2 * MAX_CACHED {
            let head = request("GET", "Bearer good");
            let refusal = filter.admit(&head, &format!("/{number}"), false).await.err();
            assert_eq!(refusal.map(|refusal| refusal.status().as_u16()), Some(403));
        }
        let reviews = stub.accesses.load(Ordering::Relaxed);
        assert_eq!(status(&filter, "GET", "Bearer good").await, 200);
        assert_eq!(stub.accesses.load(Ordering::Relaxed), reviews, "it is remembered");
    }

    #[test]
    fn the_cache_is_bounded() {
        let (mut memory, now) = (ReviewCache::default(), Instant::now());
        for is_grant in [true, false] {
            let digest = |number: usize| digest(&[&is_grant.to_string(), &number.to_string()]);
            for number in 0..=MAX_CACHED {
                memory.put(digest(number), number, now + IDENTITY_TTL, is_grant);
            }
            assert_eq!(memory.get(&digest(0), now), None);
            assert_eq!(memory.get(&digest(1), now), Some(1));
        }
        for answers in [&memory.granted, &memory.refused] {
            assert_eq!(answers.by_digest.len(), MAX_CACHED);
        }
    }
}
