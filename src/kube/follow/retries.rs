//! The rate limit for retries of all list/watches of one server, and signals that end a backoff early.
//!
//! A token bucket limits the requests after failures and early ends of watches. It holds one token for each list/watch,
//! so that all of them may reopen their watches at once after a disconnect, and is refilled at a low rate. During an outage of
//! the server, a retry costs four tokens. The first watch that works again ends the backoff of the others.
//!
//! After a fault that has emptied the bucket but not stopped all list/watches, one token after the other would take long. Once
//! the server has answered without a failure for a moment, they may therefore take as many tokens in advance as the
//! bucket holds.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex as Queue, Notify};
use tokio::time::{Instant, sleep, sleep_until};

use super::backoff::BackoffConfig;
use super::journal::Journal;
use crate::util::lock::Lock;

/// The upper limit of a server's `Retry-After`.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);
/// The longest backoff in addition to a `Retry-After` of the server.
const OWN_WITH_ASKED: Duration = Duration::from_secs(1);
/// The number of list/watches above which the rate grows in proportion.
const SMALL: usize = 100;
/// The maximum number of tokens that requests may take in advance while the server fails.
const DEBT: u32 = 8;
/// The time without a failure after which a server that answers counts as recovered.
const CALM: Duration = Duration::from_secs(2);
/// The price of an attempt, in tokens, during an outage.
const PROBE: u32 = 4;
/// The time without a useful response after which the failure of all list/watches counts as an outage.
const OUTAGE: Duration = Duration::from_secs(3);

/// The signals that may end a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    /// The end of an outage of the server.
    pub(crate) recovery: bool,
    /// A sign that the server may have other kinds.
    pub(crate) change: bool,
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The backoff is over.
    No,
    /// An outage of the server is over.
    Recovery,
    /// The server may have other kinds.
    Change,
}

/// The retries of all list/watches of one server.
#[derive(Debug)]
pub(crate) struct Retries {
    spacing: Duration,
    spread: Duration,
    journal: Arc<Journal>,
    /// The time of the last useful response.
    answered: Lock<Instant>,
    /// The time of the first useful response after the last failure.
    works_since: Lock<Option<Instant>>,
    /// The time from which tokens are available again. If it is in the past, tokens have accumulated since.
    paid: Lock<Instant>,
    /// The queue for tokens, in order of arrival.
    queue: Queue<()>,
    /// Notified when an outage is over.
    recovery: Notify,
    /// Notified when the server may have other kinds.
    change: Notify,
}

impl Retries {
    /// Creates a full bucket for the list/watches that are registered in a journal.
    pub(crate) fn new(config: &BackoffConfig, journal: &Arc<Journal>) -> Self {
        Self {
            spacing: config.spacing,
            spread: config.spread,
            journal: Arc::clone(journal),
            answered: Lock::new(Instant::now()),
            works_since: Lock::new(None),
            paid: Lock::new(Instant::now()),
            queue: Queue::new(()),
            recovery: Notify::new(),
            change: Notify::new(),
        }
    }

    /// Records a useful response: there is no outage.
    pub(crate) fn answered(&self) {
        let now = Instant::now();
        *self.answered.lock() = now;
        self.works_since.lock().get_or_insert(now);
    }

    /// Records a failure that may be over soon.
    pub(crate) fn failed(&self) {
        *self.works_since.lock() = None;
    }

    /// Records a watch that works again. If every list/watch has failed until now, this signals the end of the outage to
    /// those in backoff.
    pub(crate) fn works(&self) {
        if self.journal.is_all_failing() {
            self.recovery.notify_waiters();
        }
    }

    fn is_outage(&self) -> bool {
        self.answered.lock().elapsed() >= OUTAGE && self.journal.is_all_failing()
    }

    /// Signals that the server may have other kinds.
    pub(crate) fn changed(&self) {
        self.change.notify_waiters();
    }

    /// Waits before a retry: for `asked` (`Retry-After`) up to two minutes, and until `own` has passed or a signal arrives. If `own`
    /// passed without a signal, it also waits for a token if `token` is set.
    pub(crate) async fn wait(
        &self,
        own: Duration,
        asked: Option<Duration>,
        signals: Signals,
        token: bool,
    ) -> Woken {
        let mut due = Instant::now() + own;
        if let Some(asked) = asked {
            due = Instant::now() + own.min(OWN_WITH_ASKED);
            sleep(asked.min(MAX_RETRY_AFTER)).await;
        }
        let woken = tokio::select! {
            biased;
            () = self.recovery.notified(), if signals.recovery => Woken::Recovery,
            () = self.change.notified(), if signals.change => Woken::Change,
            () = async {
                sleep_until(due).await;
                if token {
                    self.take().await;
                }
            } => return Woken::No,
        };
        sleep(self.spread.mul_f64(fastrand::f64())).await;
        woken
    }

    fn is_calm(&self) -> bool {
        self.works_since.lock().is_some_and(|since| since.elapsed() >= CALM)
    }

    /// Returns the debt, as the time to refill it, up to which a token is given: if the server has recovered, each list/watch
    /// gets one.
    fn credit(&self) -> Duration {
        if self.is_calm() {
            self.capacity().saturating_sub(self.interval())
        } else {
            Duration::ZERO
        }
    }

    /// Waits for a token and takes it, first come, first served.
    pub(crate) async fn take(&self) {
        let _first = self.queue.lock().await;
        loop {
            let paid = *self.paid.lock();
            let missing = paid.saturating_duration_since(Instant::now() + self.credit());
            if missing.is_zero() {
                break;
            }
            // The server may have recovered by then.
            sleep(missing.min(self.spacing)).await;
        }
        self.pay(if self.is_outage() { PROBE } else { 1 });
    }

    /// Takes a token for a request that does not wait. When the server has recovered, the token for the first of several
    /// requests of a list/watch pays for all of them.
    pub(crate) fn spend(&self) {
        if !self.is_calm() {
            self.pay(1);
        }
    }

    /// The time in which a token is refilled.
    fn interval(&self) -> Duration {
        self.spacing.mul_f64(SMALL as f64 / self.journal.members().max(SMALL) as f64)
    }

    /// The time in which the empty bucket is refilled.
    fn capacity(&self) -> Duration {
        self.interval().mul_f64(self.journal.members() as f64)
    }

    /// Takes tokens from the bucket, down to the debt that is allowed now, or the present one.
    fn pay(&self, tokens: u32) {
        let (interval, now) = (self.interval(), Instant::now());
        let lowest = now + (self.credit() + interval).max(interval * DEBT);
        let mut paid = self.paid.lock();
        let full = now.checked_sub(self.capacity()).unwrap_or(now);
        *paid = ((*paid).max(full) + interval * tokens).min(lowest.max(*paid));
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::super::journal::Member;
    use super::*;
    use crate::telemetry::kube::Reason;

    const HOUR: Duration = Duration::from_secs(3600);
    const ALL: Signals = Signals { recovery: true, change: true };

    /// Creates the bucket of `count` list/watches.
    fn retries(count: usize) -> (Retries, Vec<Member>) {
        let journal = Arc::default();
        let config = BackoffConfig { spread: Duration::ZERO, ..BackoffConfig::default() };
        let members = (0..count).map(|_| Journal::register(&journal, "pods".into())).collect();
        (Retries::new(&config, &journal), members)
    }

    /// Returns the time that this number of attempts takes.
    async fn takes(retries: &Retries, attempts: u32) -> Duration {
        let start = Instant::now();
        for _ in 0..attempts {
            retries.take().await;
        }
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn all_retry_at_once_and_then_at_a_low_rate() {
        let (few, members) = retries(9);
        tokio::time::advance(HOUR).await;
        assert_eq!(takes(&few, 9).await, Duration::ZERO);
        let rate = 1000.0 / takes(&few, 1000).await.as_secs_f64();
        assert!((2.4..2.6).contains(&rate), "{rate}/s");
        members.iter().for_each(|member| member.failed(Reason::Broken, "refused"));
        let rate = 1000.0 / takes(&few, 1000).await.as_secs_f64();
        assert!((0.6..0.65).contains(&rate), "{rate}/s");
        let (many, _members) = retries(4000);
        takes(&many, 4000).await;
        let rate = 1000.0 / takes(&many, 1000).await.as_secs_f64();
        assert!((98.0..102.0).contains(&rate), "{rate}/s");
    }

    #[tokio::test(start_paused = true)]
    async fn debt_of_requests_without_wait_is_limited() {
        let (retries, _members) = retries(9);
        (0..1000).for_each(|_| retries.spend());
        let wait = takes(&retries, 1).await;
        assert!(wait > Duration::from_secs(3) && wait < Duration::from_secs(4), "{wait:?}");
    }

    /// When the server has answered for a moment, all may retry at once, but not again soon.
    #[tokio::test(start_paused = true)]
    async fn a_recovered_server_is_asked_in_advance_once() {
        let (retries, _members) = retries(30);
        tokio::time::advance(HOUR).await;
        takes(&retries, 30).await;
        retries.failed();
        assert!(takes(&retries, 4).await >= 3 * BackoffConfig::default().spacing);
        retries.answered();
        tokio::time::advance(CALM).await;
        let (once, again) = (takes(&retries, 30).await, takes(&retries, 30).await);
        assert!(once < Duration::from_secs(1), "{once:?}");
        assert!(again > Duration::from_secs(10), "{again:?}");
        let rate = 100.0 / takes(&retries, 100).await.as_secs_f64();
        assert!((2.4..2.6).contains(&rate), "{rate}/s");
    }

    #[tokio::test(start_paused = true)]
    async fn signal_ends_the_backoff_of_its_listeners() {
        let (retries, members) = retries(2);
        let none = Signals::default();
        let mut deaf = pin!(retries.wait(HOUR, None, none, true));
        let mut free = pin!(retries.wait(HOUR, None, ALL, true));
        let mut asked = pin!(retries.wait(Duration::ZERO, Some(HOUR), ALL, true));
        let change = Signals { change: true, ..none };
        let mut absent = pin!(retries.wait(HOUR, None, change, false));
        let mut context = Context::from_waker(Waker::noop());
        assert!(deaf.as_mut().poll(&mut context).is_pending());
        assert!(free.as_mut().poll(&mut context).is_pending());
        assert!(asked.as_mut().poll(&mut context).is_pending());
        assert!(absent.as_mut().poll(&mut context).is_pending());
        // Only one of two fails: this is no outage.
        members[0].failed(Reason::Broken, "refused");
        retries.works();
        assert!(free.as_mut().poll(&mut context).is_pending());
        // Both watches fail, while lists still succeed: a successful list does not end the outage.
        members[1].failed(Reason::ServerError, "the watch");
        retries.answered();
        assert!(free.as_mut().poll(&mut context).is_pending());
        retries.works();
        assert_eq!(free.await, Woken::Recovery);
        assert!(absent.as_mut().poll(&mut context).is_pending());
        retries.changed();
        assert_eq!(absent.await, Woken::Change);
        assert!(deaf.as_mut().poll(&mut context).is_pending());
        assert!(asked.as_mut().poll(&mut context).is_pending());
    }
}
