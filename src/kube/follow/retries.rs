//! When to try again, as far as all list/watches of one server decide it together.
//!
//! A server that is away costs one modest rate of attempts, however many list/watches there are; the
//! first that succeeds tells all others, which then try at once instead of waiting for their own time.
//! What a request was, and why it failed, is not known here.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::backoff::BackoffConfig;

/// The longest time of our own where the server says when to come back.
const OWN_WITH_ASKED: Duration = Duration::from_secs(1);

/// The attempts of all list/watches of one server.
#[derive(Debug)]
pub(crate) struct Retries {
    spacing: Duration,
    spread: Duration,
    /// The earliest time of the next attempt after a failure.
    next: Mutex<Instant>,
    back: Notify,
}

impl Retries {
    /// No attempt so far.
    pub(crate) fn new(config: &BackoffConfig) -> Self {
        let (spacing, spread) = (config.spacing, config.spread);
        Self { spacing, spread, next: Mutex::new(Instant::now()), back: Notify::new() }
    }

    /// A list/watch that failed before has succeeded: whoever waits need not wait any longer.
    pub(crate) fn succeeded(&self) {
        self.back.notify_waiters();
    }

    /// Waits before the next attempt: for as long as the server has `asked` for, in any case; else for
    /// `own`, or until another has succeeded. Then for a turn among the others, unless `alone`.
    pub(crate) async fn wait(&self, own: Duration, asked: Option<Duration>, alone: bool) {
        let mut due = Instant::now() + own;
        if let Some(asked) = asked {
            due = Instant::now() + own.min(OWN_WITH_ASKED);
            sleep(asked).await;
        }
        tokio::select! {
            () = self.back.notified() => sleep(self.spread.mul_f64(fastrand::f64())).await,
            () = async {
                sleep_until(due).await;
                if !alone {
                    sleep_until(self.turn()).await;
                }
            } => {}
        }
    }

    /// The time of the next attempt that nobody has taken.
    fn turn(&self) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = (*next).max(Instant::now());
        *next = turn + self.spacing;
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn retries(spread: Duration) -> Retries {
        Retries::new(&BackoffConfig { spread, ..BackoffConfig::default() })
    }

    #[tokio::test]
    async fn many_that_wait_make_one_rate_of_attempts() {
        let retries = retries(Duration::ZERO);
        let first = retries.turn();
        let last = (0..39).map(|_| retries.turn()).last().expect("turns");
        assert_eq!(last - first, 39 * Duration::from_millis(200));
    }

    #[tokio::test]
    async fn one_success_ends_all_waits_but_those_the_server_asked_for() {
        let retries = retries(Duration::ZERO);
        let mut free = pin!(retries.wait(HOUR, None, false));
        let mut asked = pin!(retries.wait(Duration::ZERO, Some(HOUR), false));
        let mut context = Context::from_waker(Waker::noop());
        assert!(free.as_mut().poll(&mut context).is_pending());
        assert!(asked.as_mut().poll(&mut context).is_pending());
        retries.succeeded();
        free.await;
        assert!(asked.as_mut().poll(&mut context).is_pending());
    }

    #[tokio::test]
    async fn who_waits_alone_takes_no_turn() {
        let retries = retries(Duration::ZERO);
        let before = retries.turn();
        retries.wait(Duration::ZERO, None, true).await;
        assert_eq!(retries.turn() - before, Duration::from_millis(200));
    }
}
