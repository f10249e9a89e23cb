//! Timeouts, intervals and retry delays of list/watches.

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;

use super::backoff::{Backoff, BackoffConfig, Failure};

/// The number of refused list/watches above which their backoff grows with their number.
const FEW_REFUSED: usize = 8;
/// The largest factor of that growth.
const MANY_REFUSED: f64 = 7.5;

/// The number of consecutive streams that are cut before the heartbeat timeout grows, if bookmarks had arrived before.
const KNOWN_HEARTBEAT_CUTS: u32 = 2;

/// Timeouts, intervals and limits of list/watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The backoff after failures.
    pub backoff: BackoffConfig,
    /// The timeout for the response headers of a list. The server sends them when the whole list is encoded, and itself
    /// gives up after a minute.
    pub list_answer: Duration,
    /// The timeout for the response headers of a watch, which the server can send at once.
    pub watch_answer: Duration,
    /// The longest time between two chunks of a list.
    pub list_idle: Duration,
    /// The time after which a list gives its permit back.
    pub list_turn: Duration,
    /// The requested duration (`timeoutSeconds`) of streaming lists and of watches over a shared connection, in seconds.
    pub watch_seconds: RangeInclusive<u64>,
    /// The duration of watches of kinds without bookmarks over a shared connection, in seconds. They may be silent until they end,
    /// so they end before `heartbeat`, and before the status calls the kind stale. The requested duration of a streaming list
    /// includes its initial state, so that is as long as for other kinds, and the client ends the watch that follows.
    pub unmarked_watch_seconds: RangeInclusive<u64>,
    /// The interval of the common times at which all short watches end. Together with `watch_slack` and `watch_answer` it
    /// limits how long a dead HTTP/1.1 connection or a restored server goes unnoticed.
    pub watch_cycle: Duration,
    /// The longest silence of a watch over a shared connection, reduced at random by up to 10%. The server sends a
    /// bookmark every minute. It doubles with each watch that was cut because no bookmark arrived.
    pub heartbeat: Duration,
    /// The time by which a watch may exceed its requested duration.
    pub watch_slack: Duration,
    /// The interval at which frequent events are processed in batches, to save wake-ups. It applies when events are less
    /// than twice this apart, and delays the data by up to as much. If only bookmarks and ends of watches arrived
    /// before, both times are six times as long.
    pub gather: Duration,
    /// A watch that ends sooner, without events or bookmarks, counts as a failure.
    pub short_watch: Duration,
    /// A watch that ends sooner and leads to a relist counts as a failure, with or without events: lists are expensive.
    pub short_relist: Duration,
    /// The time for which objects stay served after the server starts to refuse lists (401, 403, 404); `None` means
    /// forever.
    pub staleness_limit: Option<Duration>,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            backoff: BackoffConfig::default(),
            list_answer: Duration::from_secs(55),
            watch_answer: Duration::from_secs(15),
            list_idle: Duration::from_secs(30),
            list_turn: Duration::from_secs(1),
            watch_seconds: 300..=600,
            unmarked_watch_seconds: 80..=110,
            watch_cycle: Duration::from_secs(36),
            heartbeat: Duration::from_secs(150),
            watch_slack: Duration::from_secs(5),
            gather: Duration::from_millis(50),
            short_watch: Duration::from_secs(1),
            short_relist: Duration::from_secs(5),
            staleness_limit: Some(Duration::from_secs(600)),
        }
    }
}

/// Returns the time from `since` (after the origin) to the next multiple of `cycle`, or to the one after that if the
/// next is less than an eighth of a cycle away. Everything that uses the same cycle happens at the same times.
pub(super) fn span(since: Duration, cycle: Duration) -> Duration {
    let cycle_nanos = cycle.as_nanos().max(1);
    let into = Duration::from_nanos((since.as_nanos() % cycle_nanos) as u64);
    let left = cycle.saturating_sub(into);
    if left < cycle / 8 { left + cycle } else { left }
}

/// Returns the longest silence of the next stream, which doubles with each of the consecutive `cuts`. `jitter` (0 to 1)
/// reduces it by up to 10%.
pub(super) fn longest_silence(
    heartbeat: Duration,
    cuts: u32,
    has_heartbeat: bool,
    jitter: f64,
) -> Duration {
    let futile = if has_heartbeat { KNOWN_HEARTBEAT_CUTS } else { 0 };
    let longest = heartbeat * (1 << cuts.saturating_sub(futile).min(8));
    longest.mul_f64(1.0 - jitter / 10.0)
}

/// Returns the retry delay after a failure. Long-lasting refusals are retried together, at common times after the origin.
/// The delay of a denied list/watch grows with the number of `refused` ones, so that many of them do not cause many
/// requests. `refused` is only called for these: it takes linear work,
/// and in an outage all list/watches fail.
pub(super) fn pause(
    backoff: &mut Backoff,
    config: &BackoffConfig,
    now: Instant,
    failure: Failure,
    since: Duration,
    refused: impl FnOnce() -> usize,
) -> Duration {
    let own = backoff.failed(now, failure, fastrand::f64());
    let factor = || (refused() as f64 / FEW_REFUSED as f64).clamp(1.0, MANY_REFUSED);
    match failure {
        Failure::Denied if backoff.is_lasting(now) => {
            span(since, config.lasting_cycle.mul_f64(factor()))
        }
        Failure::Denied => own.mul_f64(factor()),
        Failure::Absent if backoff.is_lasting(now) => span(since, config.absent_cycle),
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_end_together() {
        let span = |since, cycle| {
            let millis = span(Duration::from_millis(since), Duration::from_millis(cycle));
            millis.as_millis()
        };
        assert_eq!(span(0, 40_000), 40_000);
        assert_eq!(span(10_000, 40_000), 30_000);
        assert_eq!(span(399_000, 40_000), 41_000);
        assert_eq!(span(400_010, 40_000), 39_990);
        assert_eq!(span(35_000, 40_000), 5_000);
        assert_eq!(span(35_001, 40_000), 44_999);
        assert_eq!(span(7, 0), 0);
    }

    #[test]
    fn longest_silence_doubles_with_each_cut() {
        let seconds = |cuts, has_heartbeat, jitter| {
            longest_silence(Duration::from_secs(100), cuts, has_heartbeat, jitter).as_secs()
        };
        let without: Vec<u64> = (0..10).map(|cuts| seconds(cuts, false, 0.0)).collect();
        assert_eq!(without, [1, 2, 4, 8, 16, 32, 64, 128, 256, 256].map(|times| 100 * times));
        let with: Vec<u64> = (0..5).map(|cuts| seconds(cuts, true, 0.0)).collect();
        assert_eq!(with, [100, 100, 100, 200, 400]);
        assert_eq!((seconds(0, false, 0.5), seconds(1, false, 1.0)), (95, 180));
    }

    #[test]
    fn delay_of_a_denied_kind_grows_with_the_number_of_refused_ones() {
        let (config, now) = (BackoffConfig::default(), Instant::now());
        let delay = |failure, refused| {
            fastrand::seed(7);
            let mut backoff = Backoff::new(config);
            pause(&mut backoff, &config, now, failure, Duration::ZERO, || refused)
        };
        let own = delay(Failure::Transient, 3000);
        for (refused, factor) in [(0, 1.0), (8, 1.0), (12, 1.5), (60, 7.5), (3000, 7.5)] {
            assert_eq!(delay(Failure::Denied, refused), own.mul_f64(factor), "{refused} refused");
            assert_eq!(delay(Failure::Absent, refused), own, "{refused} refused");
        }
    }

    /// Returning permissions are noticed within 8 s, even after weeks, and all long-refused kinds are retried with one
    /// wake-up.
    #[test]
    fn long_refused_kinds_are_retried_together() {
        let config = BackoffConfig::default();
        let (now, begun) = (Instant::now(), Duration::from_millis(12_345));
        let mut one = Backoff::new(config);
        let mut other = Backoff::new(config);
        let denied = Failure::Denied;
        pause(&mut other, &config, now, denied, begun, || 8);
        for hour in 0..1_000 {
            let later = Duration::from_millis(3_600_100 * hour);
            let (now, since) = (now + later, begun + later);
            let wait = pause(&mut one, &config, now, denied, since, || 8);
            assert!(wait <= Duration::from_secs(8), "{wait:?}");
            if hour > 0 {
                // The other one fails 3 ms after the first.
                let late = Duration::from_millis(3);
                let second = pause(&mut other, &config, now + late, denied, since + late, || 8);
                assert_eq!(since + wait, since + late + second);
            }
        }
        // A server that is unavailable for long is retried with the ordinary backoff.
        let away = pause(&mut one, &config, now + config.lasting, Failure::Transient, begun, || 0);
        assert!(away <= 2 * config.cap);
    }

    /// Up to 60 refused kinds cost less than 1.6 requests/s. Thousands cost no more than with kube-state-metrics, which
    /// retries each every 30 to 60 s.
    #[test]
    fn backoff_grows_with_the_number_of_refused_kinds() {
        let config = BackoffConfig::default();
        let start = Instant::now();
        for (refused, most) in [(1, 0.3), (8, 1.6), (29, 1.6), (60, 1.6), (3000, 80.0)] {
            let mut one = Backoff::new(config);
            let (mut since, mut asked) = (Duration::ZERO, 0);
            while since < Duration::from_secs(3600) {
                let wait =
                    pause(&mut one, &config, start + since, Failure::Denied, since, || refused);
                assert!(wait <= Duration::from_secs(61), "{wait:?}");
                (since, asked) = (since + wait, asked + 1);
            }
            let rate = f64::from(asked) * refused as f64 / since.as_secs_f64();
            assert!(rate < most, "{refused} refused: {rate}/s");
        }
    }

    /// A missing kind is requested less often than by kube-state-metrics, which does so every 30 to 60 s. One that appears
    /// without a sign is found within 135 s.
    #[test]
    fn missing_kinds_are_retried_rarely() {
        let config = BackoffConfig::default();
        let (start, mut backoff) = (Instant::now(), Backoff::new(config));
        let (mut since, mut asked) = (Duration::ZERO, 0);
        while since < Duration::from_secs(24 * 3600) {
            let wait = pause(&mut backoff, &config, start + since, Failure::Absent, since, || 32);
            assert!(wait <= Duration::from_secs(135), "{wait:?}");
            (since, asked) = (since + wait, asked + 1);
        }
        assert!(asked < 24 * 3600 / 60, "{asked} times a day");
        // A transient failure of a missing kind has the ordinary backoff.
        let away = pause(&mut backoff, &config, start + since, Failure::Transient, since, || 32);
        assert!(away <= 2 * config.cap);
    }

    /// The guarantee to notice a dead connection within a minute requires these sums.
    #[test]
    fn dead_connection_is_detected_within_a_minute() {
        use crate::kube::client::probe;
        let timing = Timing::default();
        let minute = Duration::from_secs(60);
        let longest = timing.watch_cycle + timing.watch_cycle / 8 + timing.watch_slack;
        assert!(longest < minute, "{longest:?}");
        let probed = probe::SILENCE + probe::ANSWER;
        assert!(probed < Duration::from_secs(50), "{probed:?}");
        // A streaming list that became a watch is first reopened, possibly over a dead connection too.
        let anew = timing.watch_cycle + timing.watch_cycle / 8 + timing.watch_answer;
        assert!(anew < minute, "{anew:?}");
        assert!(timing.list_answer < minute && timing.list_idle < minute);
    }
}
