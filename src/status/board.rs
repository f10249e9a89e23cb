//! Who reports, and what comes of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::time::{MissedTickBehavior, interval};

use super::explanation::Explanation;
use super::facts::{Facts, Kind, LARGEST, Program, State};
use super::history::{History, STEP, Sample};
use super::{judge, text};
use crate::aside::Aside;
use crate::telemetry::cardinality::{self, Report};
use crate::telemetry::census::Question;
use crate::telemetry::countable::Countable;
use crate::telemetry::scrapes::ScrapeLog;
use crate::telemetry::{VERSION, process};

/// Kinds that are drawn.
const DRAWN: usize = 5;

/// How long a summary is good for.
const SUMMARY: Duration = Duration::from_secs(1);

/// Somebody who knows something.
pub(crate) trait Reporter: Send + Sync {
    /// Enters what it knows. It may take a millisecond.
    fn report(&self, facts: &mut Facts);

    /// Enters what is drawn. It is asked for every quarter of a minute, whether anybody looks or not.
    fn sample(&self, sample: &mut Sample) {
        let _ = sample;
    }

    /// The series that it has, if they can be counted.
    fn series(&self) -> Option<Arc<dyn Countable>> {
        None
    }

    /// What would become of a line, with all that was tried if `all` is set; nothing if it takes no lines. It may take
    /// its time.
    fn explain(&self, line: &[u8], all: bool) -> Option<Explanation> {
        let _ = (line, all);
        None
    }
}

/// All who report, and the last hour.
pub(crate) struct Board {
    name: &'static str,
    started: f64,
    scrapes: ScrapeLog,
    reporters: Vec<Arc<dyn Reporter>>,
    past: Mutex<Noted>,
    /// The last summary and when it was made.
    summary: Mutex<Option<(Instant, String)>>,
    /// Held by who looks at more than takes a millisecond.
    aside: Aside,
}

#[derive(Default)]
struct Noted {
    history: History,
    at: Option<Instant>,
}

/// A time as the facts have it.
fn unix(time: SystemTime) -> f64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as f64 / 1000.0
}

impl Board {
    /// Of the program that runs under this name.
    pub(crate) fn new(
        name: &'static str,
        scrapes: ScrapeLog,
        reporters: Vec<Arc<dyn Reporter>>,
    ) -> Self {
        let started = unix(SystemTime::now());
        let (past, summary, aside) = (Mutex::default(), Mutex::default(), Aside::default());
        Self { name, started, scrapes, reporters, past, summary, aside }
    }

    /// What is known now.
    pub(crate) fn facts(&self) -> Facts {
        let usage = process::usage();
        let (history, cpu) = {
            let past = self.lock();
            (past.history.past(DRAWN), past.history.recent("cpu", ""))
        };
        let mut facts = Facts {
            state: State::Ok,
            reasons: Vec::new(),
            notes: Vec::new(),
            at: unix(SystemTime::now()),
            program: Program {
                name: self.name,
                version: VERSION,
                started: self.started,
                memory_bytes: usage.map(|usage| usage.memory),
                cpu_percent: cpu.map(|cores| 100.0 * cores),
            },
            kubernetes: None,
            statsd: None,
            node: None,
            files: Vec::new(),
            scrapes: self.scrapes.latest(),
            cardinality: None,
            explanation: None,
            history,
        };
        self.reporters.iter().for_each(|reporter| reporter.report(&mut facts));
        if let Some(kubernetes) = &mut facts.kubernetes {
            let past = self.lock();
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

    /// The state and how much there is, in a sentence for everybody: no name is in it. It is made once a second at most.
    pub(crate) fn summary(&self) -> String {
        let mut summary = self.summary.lock().unwrap_or_else(PoisonError::into_inner);
        match &*summary {
            Some((at, text)) if at.elapsed() < SUMMARY => text.clone(),
            _ => {
                let text = text::summary(&self.facts());
                *summary = Some((Instant::now(), text.clone()));
                text
            }
        }
    }

    /// What would become of a line; nothing if none are taken here. One is explained at a time, beside the workers.
    pub(crate) async fn explain(self: &Arc<Self>, line: Vec<u8>, all: bool) -> Option<Explanation> {
        let board = Arc::clone(self);
        let tell = move || board.reporters.iter().find_map(|reporter| reporter.explain(&line, all));
        let told = self.aside.run(tell).await;
        told.inspect_err(|error| tracing::error!(%error, "explaining a line failed")).ok()?
    }

    /// The largest metrics with their labels; nothing if nobody has series that can be counted. Every series is looked
    /// at, by one at a time, beside the workers.
    pub(crate) async fn cardinality(self: &Arc<Self>) -> Option<Report> {
        let sides: Vec<_> =
            self.reporters.iter().filter_map(|reporter| reporter.series()).collect();
        if sides.is_empty() {
            return None;
        }
        let made = self.aside.run(move || {
            let sides: Vec<_> = sides.iter().map(|side| side.snapshot()).collect();
            cardinality::report(&sides, &Question::of(LARGEST))
        });
        made.await.inspect_err(|error| tracing::error!(%error, "counting the series failed")).ok()
    }

    /// Takes samples as long as the process runs.
    pub(crate) async fn keep(&self) {
        let mut steps = interval(STEP);
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            steps.tick().await;
            self.take();
        }
    }

    fn take(&self) {
        let mut sample = Sample::default();
        self.reporters.iter().for_each(|reporter| reporter.sample(&mut sample));
        if let Some(usage) = process::usage() {
            sample.level("memory", "", usage.memory as f64);
            sample.total("cpu", "", usage.cpu);
        }
        if let Some(scrape) = self.scrapes.last() {
            sample.level("scrape_seconds", "", scrape.seconds);
            sample.level("scrape_bytes", "", scrape.bytes as f64);
        }
        let now = Instant::now();
        let mut past = self.lock();
        let before = past.at.replace(now);
        let after = before.map_or(STEP, |before| now.duration_since(before));
        past.history.enter(sample, after);
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
