//! Whether a caller may have what it asks for, as the API server sees it.
//!
//! A caller shows a bearer token; a review says whose it is, another whether its owner may use this method on this
//! path. Who may not may still see the metrics of namespaces, if a request asks for these alone and a review of each says
//! so. Answers are remembered for as long as the original remembers them; a review that fails is not, and lets nobody
//! in. Reviews are few at once, and nobody waits longer for one than [`PATIENCE`]; who gives up waiting takes nothing
//! from the next. Tokens are kept nowhere, only their digests. How a review is made is [`Reviews`]' business.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use hyper::Method;
use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use ring::digest::{Context, SHA256};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::query;
use super::response::{self, Response};

/// How long a caller waits for one review.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers that are remembered of each kind.
const REMEMBERED: usize = 1024;

/// Reviews under way at once, and of them those of tokens that were never heard of: anybody can think of one.
const AT_ONCE: usize = 16;
const STRANGERS_AT_ONCE: usize = 12;

/// How long it is known whose a token is, and what its owner may and may not do.
const KNOWN: Duration = Duration::from_secs(60);
const ALLOWED: Duration = Duration::from_secs(300);
const DENIED: Duration = Duration::from_secs(30);

/// Somebody whom the API server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// For people.
    pub name: String,
    /// All that the API server said, for the next review.
    pub identity: Arc<str>,
}

/// What a caller wants to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// To use a path outside the resources of the API.
    Path {
        /// The path.
        path: String,
        /// The method in small letters.
        verb: String,
    },
    /// To see the metrics of what is in a namespace.
    Namespace(String),
}

/// What the API server says of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Somebody allows it.
    pub allowed: bool,
    /// Somebody forbids it.
    pub denied: bool,
}

/// What comes of a review, some time; the error is for the log.
pub type Review<T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send>>;

/// Asks the API server.
pub trait Reviews: Send + Sync {
    /// Which API server is asked, with which credentials, as a number that no other has: what one says is not what
    /// another says. Whoever is asked later is this one or a newer one.
    fn asked(&self) -> u64;
    /// Whose a token is, if anybody's.
    fn caller(&self, token: &str) -> Review<Option<Caller>>;
    /// Whether a caller may do something.
    fn access(&self, caller: &Caller, action: &Action) -> Review<Access>;
}

type Digest = [u8; 32];

/// The filter of one listener.
pub struct Authorisation {
    reviews: Arc<dyn Reviews>,
    callers: Memory<Option<Caller>>,
    accesses: Memory<Access>,
    room: Semaphore,
    /// The part of it that is for those who were never heard of.
    strangers: Semaphore,
    patience: Duration,
}

impl Authorisation {
    /// A filter that remembers nothing yet.
    pub fn new(reviews: Arc<dyn Reviews>) -> Self {
        let (room, strangers) = (Semaphore::new(AT_ONCE), Semaphore::new(STRANGERS_AT_ONCE));
        let (callers, accesses) = (Memory::default(), Memory::default());
        Self { reviews, callers, accesses, room, strangers, patience: PATIENCE }
    }

    /// Whether a request for `path` may go on; the answer of some paths can be limited to namespaces.
    ///
    /// # Errors
    ///
    /// The answer, if it may not.
    pub(crate) async fn admit(
        &self,
        head: &Parts,
        path: &str,
        by_namespace: bool,
    ) -> Result<(), Box<Response>> {
        let refuse =
            |status: u16, text: String| Err(Box::new(response::error(status, text + "\n")));
        let Some(token) =
            head.headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()))
        else {
            return refuse(401, "Unauthorized".to_owned());
        };
        let caller = match self.caller(token).await {
            Ok(Some(caller)) => caller,
            Ok(None) => {
                tracing::warn!(error = "the token is nobody's", "Authentication failed");
                return refuse(500, "Authentication failed".to_owned());
            }
            Err(error) => {
                tracing::warn!(error, "Authentication failed");
                return refuse(500, "Authentication failed".to_owned());
            }
        };
        let verb = verb(&head.method);
        let mut access = self.may(&caller, &Action::Path { path: path.to_owned(), verb }).await;
        let mut refused = Vec::new();
        if by_namespace
            && access == Ok(false)
            && let Ok(Some(namespaces)) = query::namespaces(head.uri.query().unwrap_or_default())
        {
            let reviews = self.refused(&caller, namespaces);
            let late = |_| Err(format!("no answer of the API server within {:?}", self.patience));
            access = timeout(self.patience, reviews).await.unwrap_or_else(late).map(|some| {
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
                tracing::warn!(user = name, error, "Authorization failed");
                refuse(500, format!("Authorization for user {name} failed"))
            }
        }
    }

    async fn caller(&self, token: &str) -> Result<Option<Caller>, String> {
        let digest = digest(&[&self.asked(), token]);
        let review = || self.reviews.caller(token);
        self.remembered(&self.callers, Some(&self.strangers), digest, review, |_| KNOWN).await
    }

    /// What answers are remembered with: those of another API server are not found any more.
    fn asked(&self) -> String {
        self.reviews.asked().to_string()
    }

    /// Those of some namespaces of which the caller must not see the metrics.
    async fn refused(
        &self,
        caller: &Caller,
        namespaces: BTreeSet<String>,
    ) -> Result<Vec<String>, String> {
        let mut refused = Vec::new();
        for namespace in namespaces {
            if !self.may(caller, &Action::Namespace(namespace.clone())).await? {
                refused.push(namespace);
            }
        }
        Ok(refused)
    }

    async fn may(&self, caller: &Caller, action: &Action) -> Result<bool, String> {
        let Access { allowed, denied } = self.access(caller, action).await?;
        let both = "the API server both allows and denies it".to_owned();
        if allowed && denied { Err(both) } else { Ok(allowed) }
    }

    async fn access(&self, caller: &Caller, action: &Action) -> Result<Access, String> {
        let (asked, identity) = (&*self.asked(), &*caller.identity);
        let digest = match action {
            Action::Path { path, verb } => digest(&[asked, identity, "path", path, verb]),
            Action::Namespace(name) => digest(&[asked, identity, "namespace", name]),
        };
        let review = || self.reviews.access(caller, action);
        let lasts = |access: &Access| if access.allowed { ALLOWED } else { DENIED };
        self.remembered(&self.accesses, None, digest, review, lasts).await
    }

    /// What is remembered, or what comes of a review; those who want the same wait for one of them.
    async fn remembered<T: Clone>(
        &self,
        memory: &Memory<T>,
        strangers: Option<&Semaphore>,
        digest: Digest,
        review: impl Fn() -> Review<T>,
        lasts: impl Fn(&T) -> Duration,
    ) -> Result<T, String> {
        let answer = async {
            if let Some(value) = memory.get(&digest, Instant::now()) {
                return Ok(value);
            }
            let turn = memory.turn(digest);
            let _turn = turn.lock().await;
            if let Some(value) = memory.get(&digest, Instant::now()) {
                return Ok(value);
            }
            let _stranger = match strangers.filter(|_| !memory.has_heard_of(&digest)) {
                Some(room) => Some(room.acquire().await.map_err(|error| error.to_string())?),
                None => None,
            };
            let _room = self.room.acquire().await.map_err(|error| error.to_string())?;
            let value = review().await?;
            memory.put(digest, value.clone(), Instant::now() + lasts(&value));
            Ok(value)
        };
        let late = |_| Err(format!("no answer of the API server within {:?}", self.patience));
        timeout(self.patience, answer).await.unwrap_or_else(late)
    }
}

/// The method as the rules of Kubernetes write it.
fn verb(method: &Method) -> String {
    method.as_str().to_ascii_lowercase()
}

/// The token in an `Authorization` header, read as the original reads it.
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

/// Answers, each until its time is over.
struct Memory<T>(Mutex<Remembered<T>>);

struct Remembered<T> {
    answers: BTreeMap<Digest, (Instant, T)>,
    /// In the order in which they came.
    order: VecDeque<Digest>,
    turns: BTreeMap<Digest, Weak<tokio::sync::Mutex<()>>>,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        let (answers, order, turns) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        Self(Mutex::new(Remembered { answers, order, turns }))
    }
}

impl<T: Clone> Memory<T> {
    fn inner(&self) -> std::sync::MutexGuard<'_, Remembered<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, digest: &Digest, now: Instant) -> Option<T> {
        let inner = self.inner();
        let (until, value) = inner.answers.get(digest)?;
        (now < *until).then(|| value.clone())
    }

    /// Whether there was an answer, even if its time is over.
    fn has_heard_of(&self, digest: &Digest) -> bool {
        self.inner().answers.contains_key(digest)
    }

    fn put(&self, digest: Digest, value: T, until: Instant) {
        let mut inner = self.inner();
        if inner.answers.insert(digest, (until, value)).is_none() {
            inner.order.push_back(digest);
        }
        while inner.order.len() > REMEMBERED {
            if let Some(oldest) = inner.order.pop_front() {
                inner.answers.remove(&oldest);
            }
        }
    }

    /// The lock that those share who wait for the same answer.
    fn turn(&self, digest: Digest) -> Arc<tokio::sync::Mutex<()>> {
        let mut inner = self.inner();
        if let Some(turn) = inner.turns.get(&digest).and_then(Weak::upgrade) {
            return turn;
        }
        inner.turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        inner.turns.insert(digest, Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    /// `good` is a token, `mute` one for which there is no answer; reads are allowed.
    #[derive(Default)]
    struct Stub {
        tokens: AtomicUsize,
        accesses: AtomicUsize,
        asked: AtomicU64,
    }

    impl Reviews for Stub {
        fn asked(&self) -> u64 {
            self.asked.load(Ordering::Relaxed)
        }

        fn caller(&self, token: &str) -> Review<Option<Caller>> {
            self.tokens.fetch_add(1, Ordering::Relaxed);
            match token {
                _ if token.starts_with("mute") => Box::pin(pending()),
                "broken" => Box::pin(ready(Err("broken".to_owned()))),
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
    async fn answers_are_remembered_and_failures_are_not() {
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
        // What another API server said does not count.
        for reviews in [(5, 3), (5, 3)] {
            stub.asked.store(1, Ordering::Relaxed);
            assert_eq!(status(&filter, "GET", "Bearer good").await, 200);
            assert_eq!(counts(), reviews);
        }
    }

    /// Who may not see everything may see namespaces, where a path knows them; all of those that are named, or none.
    #[tokio::test]
    async fn namespaces_can_be_had_by_those_who_may_see_them() {
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
        // The path by two methods and four namespaces, each once, and the path that is free.
        assert_eq!(stub.accesses.load(Ordering::Relaxed), 2 + 4 + 1);
    }

    #[test]
    fn what_is_remembered_has_its_time() {
        let (memory, now) = (Memory::default(), Instant::now());
        let one = digest(&["one"]);
        memory.put(one, 1, now + DENIED);
        assert_eq!(memory.get(&one, now + DENIED / 2), Some(1));
        assert_eq!(memory.get(&one, now + DENIED), None);
        memory.put(one, 2, now + ALLOWED);
        assert_eq!(memory.get(&one, now + DENIED), Some(2));
    }

    #[tokio::test]
    async fn who_gives_up_takes_nothing_from_the_next() {
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
        filter.patience = Duration::from_millis(1);
        assert_eq!(status(&filter, "GET", "Bearer mute").await, 500);
        assert_eq!(stub.tokens.load(Ordering::Relaxed), 3);
    }

    /// However many tokens strangers think of, who was admitted before is asked about at once.
    #[tokio::test]
    async fn strangers_hold_up_strangers_alone() {
        let stub = Arc::new(Stub::default());
        let filter = Authorisation::new(Arc::clone(&stub) as Arc<dyn Reviews>);
        assert_eq!(status(&filter, "GET", "Bearer good").await, 200);
        let good = Caller { name: "me".into(), identity: "me".into() };
        filter.callers.put(digest(&["good"]), Some(good), Instant::now());
        let tokens: Vec<String> = (0..2 * AT_ONCE).map(|n| format!("Bearer mute{n}")).collect();
        let mut strangers: Vec<_> =
            tokens.iter().map(|token| Box::pin(status(&filter, "GET", token))).collect();
        for stranger in &mut strangers {
            tokio::select! {
                biased;
                _ = stranger => panic!("there is no answer"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(stub.tokens.load(Ordering::Relaxed), 1 + STRANGERS_AT_ONCE);
        assert_eq!(status(&filter, "GET", "Bearer good").await, 200);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (memory, now) = (Memory::default(), Instant::now());
        for number in 0..=REMEMBERED {
            memory.put(digest(&[&number.to_string()]), number, now + KNOWN);
        }
        assert_eq!(memory.inner().answers.len(), REMEMBERED);
        assert_eq!(memory.get(&digest(&["0"]), now), None);
        assert_eq!(memory.get(&digest(&["1"]), now), Some(1));
    }
}
