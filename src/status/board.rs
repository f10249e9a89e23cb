//! Collects the status from its reporters.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::task::JoinError;
use tokio::time::{MissedTickBehavior, interval};

use super::explanation::{Explanation, LineQuestion};
use super::facts::{Facts, Kind, LARGEST, Program};
use super::history::{History, STEP, Sample};
use super::object_explanation::{ObjectExplanation, ObjectName};
use super::{judge, text};
use crate::telemetry::cardinality::{self, Report};
use crate::telemetry::census::Question;
use crate::telemetry::countable::Countable;
use crate::telemetry::scrapes::ScrapeLog;
use crate::telemetry::{VERSION, process};
use crate::util::lock::Lock;
use crate::util::program_pages;
use crate::util::serial_blocking::SerialBlocking;

/// The number of resource kinds drawn in a chart.
const DRAWN: usize = 5;

/// The change of the wall clock, in seconds, that the time of the start does not follow.
const MAX_CHANGE: f64 = 10.0;

/// The time for which a summary is cached.
const SUMMARY: Duration = Duration::from_secs(1);

/// The time between questions about objects in the long run, and by how much they may be ahead of that.
const OBJECT_INTERVAL: Duration = Duration::from_millis(500);
const OBJECT_BURST: Duration = Duration::from_millis(500 * 9);

/// A component that contributes to the status.
pub(crate) trait Reporter: Send + Sync {
    /// Adds its facts. It takes time in proportion to the number of list/watches, and may not wait for anything.
    fn report(&self, facts: &mut Facts);

    /// Adds its values to the history. Called every 15 s, even if the page is never viewed.
    fn sample(&self, sample: &mut Sample) {
        let _ = sample;
    }

    /// Returns its series, if they can be counted.
    fn series(&self) -> Option<Arc<dyn Countable>> {
        None
    }

    /// Explains the effect of a StatsD line; `None` if it receives no lines. It may block.
    fn explain(&self, question: &LineQuestion) -> Option<Explanation> {
        let _ = question;
        None
    }

    /// Explains why an object has its series, or none; `None` if it watches no objects.
    fn explain_object(&self, object: ObjectName) -> Option<ObjectFuture> {
        let _ = object;
        None
    }
}

/// The future explanation of an object.
pub(crate) type ObjectFuture = Pin<Box<dyn Future<Output = ObjectExplanation> + Send>>;

/// All reporters, and the history of the last hour.
pub(crate) struct Board {
    name: &'static str,
    begun: Instant,
    /// The Unix time of that, which changes only with the wall clock: other tools recognise the process by it.
    started: Lock<f64>,
    scrapes: ScrapeLog,
    reporters: Vec<Arc<dyn Reporter>>,
    past: Lock<BoardState>,
    /// The last summary and the time it was made.
    summary: Lock<Option<(Instant, String)>>,
    /// Limits explanations and counts to one at a time.
    worker: SerialBlocking,
    /// Limits pages to one at a time. They do not wait for a count of all series.
    pages: SerialBlocking,
    /// Limits questions about objects to one at a time, and has the time when the next one is due.
    objects: tokio::sync::Mutex<Instant>,
}

#[derive(Default)]
struct BoardState {
    history: History,
    at: Option<Instant>,
}

/// Converts a time to Unix seconds.
fn unix(time: SystemTime) -> f64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as f64 / 1000.0
}

impl Board {
    /// Creates the board of a program running under this name.
    pub(crate) fn new(
        name: &'static str,
        scrapes: ScrapeLog,
        reporters: Vec<Arc<dyn Reporter>>,
    ) -> Self {
        let (begun, started) = (Instant::now(), Lock::new(unix(SystemTime::now())));
        let (past, summary, worker) = (Lock::default(), Lock::default(), SerialBlocking::default());
        let objects = tokio::sync::Mutex::new(Instant::now());
        let pages = SerialBlocking::default();
        Self { name, begun, started, scrapes, reporters, past, summary, worker, pages, objects }
    }

    /// Runs a part of the work on a page on the blocking pool. With many list/watches it takes longer than other requests may
    /// wait.
    ///
    /// # Errors
    /// Returns an error if `part` panics.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        part: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let board = Arc::clone(self);
        self.pages.run(move || part(&board)).await
    }

    /// Returns the Unix time of the start. The wall clock, which shows `at` now, may have been wrong then.
    fn started(&self, at: f64) -> f64 {
        let (mut started, by_now) = (self.started.lock(), at - self.begun.elapsed().as_secs_f64());
        if (*started - by_now).abs() > MAX_CHANGE {
            *started = by_now;
        }
        *started
    }

    /// Collects the current facts. With many list/watches, it takes long.
    pub(crate) fn facts(&self) -> Facts {
        let (usage, scrapes) = (process::usage(), self.scrapes.kept.lock().clone());
        let (history, cpu) = {
            let past = self.past.lock();
            (past.history.past(DRAWN), past.history.recent("cpu", ""))
        };
        let at = unix(SystemTime::now());
        let started = self.started(at);
        let mut facts = Facts {
            at,
            program: Program {
                name: self.name,
                version: VERSION,
                started,
                memory_bytes: usage.map(|usage| usage.memory),
                memory_limit_bytes: process::memory_limit(),
                cpu_percent: cpu.map(|cores| 100.0 * cores),
            },
            scrapes: scrapes.scrapes.into(),
            incomplete_scrapes: scrapes.incomplete,
            slow_scrapes: scrapes.slow,
            history,
            ..Facts::default()
        };
        self.reporters.iter().for_each(|reporter| reporter.report(&mut facts));
        if let Some(kubernetes) = &mut facts.kubernetes {
            let past = self.past.lock();
            for kind in &mut kubernetes.kinds {
                kind.events_per_second = past.history.recent("events", &kind.resource);
            }
            drop(past);
            let order = |kind: &Kind| (kind.health, std::cmp::Reverse(kind.objects), kind.name());
            kubernetes.kinds.sort_by_cached_key(order);
        }
        judge::judge(&mut facts);
        facts
    }

    /// Returns state and totals in one sentence without any names, so that it may be public. It is
    /// computed at most once per second, which takes as long as [`Board::facts`].
    pub(crate) fn summary(&self) -> String {
        let mut summary = self.summary.lock();
        match &*summary {
            Some((at, text)) if at.elapsed() < SUMMARY => text.clone(),
            _ => {
                let text = text::summary(&self.facts());
                *summary = Some((Instant::now(), text.clone()));
                text
            }
        }
    }

    /// Explains a line; `None` if the process receives no lines. Runs one explanation at a time on
    /// the blocking pool.
    pub(crate) async fn explain(self: &Arc<Self>, question: LineQuestion) -> Option<Explanation> {
        let board = Arc::clone(self);
        let tell = move || board.reporters.iter().find_map(|reporter| reporter.explain(&question));
        let told = self.worker.run(tell).await;
        told.inspect_err(|error| tracing::error!(%error, "Explaining a line failed")).ok()?
    }

    /// Explains an object, one at a time, and no more than two a second after the first ten: anybody may ask, and each question
    /// costs requests to the API server. `None` if the process watches no objects.
    pub(crate) async fn explain_object(&self, object: ObjectName) -> Option<ObjectExplanation> {
        let mut reporters = self.reporters.iter();
        let told = reporters.find_map(|reporter| reporter.explain_object(object.clone()))?;
        let mut due = self.objects.lock().await;
        let wait = due.saturating_duration_since(Instant::now()).saturating_sub(OBJECT_BURST);
        tokio::time::sleep(wait).await;
        *due = Instant::now().max(*due) + OBJECT_INTERVAL;
        Some(told.await)
    }

    /// Reports the largest metrics and their labels; `None` if no reporter has countable series. It
    /// scans all series, one scan at a time on the blocking pool.
    pub(crate) async fn cardinality(self: &Arc<Self>) -> Option<Report> {
        let sides: Vec<_> =
            self.reporters.iter().filter_map(|reporter| reporter.series()).collect();
        if sides.is_empty() {
            return None;
        }
        let made = self.worker.run(move || {
            let sides: Vec<_> = sides.iter().map(|side| side.snapshot()).collect();
            cardinality::report(&sides, &Question::of(LARGEST))
        });
        made.await.inspect_err(|error| tracing::error!(%error, "Counting the series failed")).ok()
    }

    /// Takes samples forever. Each runs through code that an idle process does not need until the next one.
    pub(crate) async fn keep(self: &Arc<Self>) {
        let mut steps = interval(STEP);
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            steps.tick().await;
            if let Err(error) = self.run(Self::take).await {
                tracing::error!(%error, "Taking a sample failed");
            }
            program_pages::unmap();
        }
    }

    fn take(&self) {
        let mut sample = Sample::default();
        self.reporters.iter().for_each(|reporter| reporter.sample(&mut sample));
        if let Some(usage) = process::usage() {
            sample.level("memory", "", usage.memory as f64);
            sample.total("cpu", "", usage.cpu);
        }
        if let Some(scrape) = self.scrapes.kept.lock().scrapes.front() {
            sample.level("scrape_seconds", "", scrape.seconds);
            sample.level("scrape_bytes", "", scrape.bytes as f64);
        }
        let now = Instant::now();
        let mut past = self.past.lock();
        let before = past.at.replace(now);
        let after = before.map_or(STEP, |before| now.duration_since(before));
        past.history.enter(sample, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{PageContext, page};
    use crate::telemetry::scrapes::Scrape;

    /// Samples of hundreds of custom kinds.
    struct ManyKinds;

    impl Reporter for ManyKinds {
        fn report(&self, _: &mut Facts) {}

        fn sample(&self, sample: &mut Sample) {
            for kind in 0..400 {
                sample.total("events", &format!("kind{kind}.v1.example.io"), 0.0);
            }
        }
    }

    #[test]
    fn the_start_follows_a_corrected_clock() {
        let board = Board::new("kstatd", ScrapeLog::default(), Vec::new());
        let first = unix(SystemTime::now());
        assert_eq!(board.started(first), board.started(first + 5.0));
        let corrected = board.started(first + 1e9);
        assert!((corrected - first - 1e9).abs() < 60.0, "{corrected}");
        assert_eq!(board.started(first + 1e9 + 5.0), corrected);
    }

    #[test]
    fn scrapes_are_drawn_beside_hundreds_of_kinds() {
        let scrapes = ScrapeLog::default();
        let board = Board::new("kstatd", scrapes.clone(), vec![Arc::new(ManyKinds)]);
        board.take();
        scrapes.note(Scrape { seconds: 0.5, bytes: 1_000, ..Scrape::default() });
        board.take();
        let place = PageContext { path: "/status", profiles: false };
        let page = page(&board.facts(), place, false);
        for chart in ["Scrape duration", "Scrape size"] {
            assert!(page.contains(chart), "{chart}");
        }
    }
}
