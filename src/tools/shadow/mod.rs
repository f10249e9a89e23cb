//! `kstatd shadow`: runs kstatd next to an original, and compares their metrics and their costs.
//!
//! The [`candidate`] is a process of its own, so its costs are those of a kstatd alone. Each round
//! compares both expositions ([`diff`](super::diff)) and measures both processes ([`costs`]). Failures of
//! the original are events of the report.

mod candidate;
mod costs;
mod html;
mod report;
mod target;

use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, sleep_until};

use crate::kube::client::endpoint::{Access, Endpoint};
use crate::telemetry::VERSION;
use crate::tools::Result;
use crate::tools::diff::{Comparison, Rules, Source};
use candidate::Candidate;
pub(crate) use candidate::{CommandLine, Original};
use costs::{Listeners, Meter, OwnMetrics};
pub(crate) use report::ShadowReport;
use report::{Event, Verdict};
pub(crate) use target::Target;

/// The maximum time until the first lists of kstatd are complete.
const SYNC_TIMEOUT: Duration = Duration::from_secs(300);

/// The interval of asking whether they are.
const SYNC_INTERVAL: Duration = Duration::from_millis(250);

/// Compares kstatd with the original that has this command line, for a total time and with one comparison `every` interval.
/// `say` receives progress messages.
///
/// # Errors
/// The comparison cannot begin.
pub(crate) async fn run(
    line: &CommandLine,
    target: Target,
    rules: Rules,
    total: Duration,
    every: Duration,
    say: impl Fn(&str),
) -> Result<ShadowReport> {
    let handled = |kind| signal(kind).map_err(|error| format!("cannot handle signals: {error}"));
    let mut interrupt = handled(SignalKind::interrupt())?;
    let mut terminate = handled(SignalKind::terminate())?;
    // It ends a run early; the report is still printed.
    let mut stopped = pin!(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    let timeout = rules.timeout;
    let mut candidate = Candidate::start(line)?;
    let endpoints = tokio::select! {
        endpoints = prepare(&mut candidate, line, timeout, &say) => endpoints?,
        () = &mut stopped => return Err("stopped before the first comparison".into()),
    };
    let commands = target.commands(line).await;
    let [ours, telemetry] = endpoints;
    let sources = [target.metrics.clone(), ours.clone()].map(Source::Server);
    let names = [target.name.clone(), "kstatd".to_owned()];
    let sides = [
        Listeners { name: "original", metrics: target.metrics, telemetry: target.telemetry },
        Listeners { name: "kstatd", metrics: ours, telemetry: Some(telemetry) },
    ];
    let mut run = Run {
        comparison: Comparison::new(names, sources, rules),
        meter: Meter::new(sides, timeout),
        costs: String::new(),
        log: EventLog { started: Instant::now(), events: Vec::new(), say },
    };
    let intervals = (every.as_secs_f64(), total.as_secs_f64());
    (run.log.say)(&format!("comparing every {} s for {} s", intervals.0, intervals.1));
    let failure = tokio::select! {
        () = run.rounds(total, every) => None,
        () = &mut stopped => None,
        failure = candidate.ended() => Some(failure),
    };
    candidate.stop().await;
    let Run { comparison, meter, log: EventLog { started, events, .. }, .. } = run;
    let report = comparison.report();
    let too_few = format!("{} comparisons are too few", comparison.compared());
    let inconclusive = || comparison.error().map_or(too_few, ToString::to_string);
    let reason = failure.or_else(|| (!comparison.is_conclusive()).then(inconclusive));
    let verdict = match reason {
        Some(_) => Verdict::NotCompared,
        None if comparison.differs() => Verdict::Different,
        None => Verdict::Equal,
    };
    Ok(ShadowReport {
        verdict,
        reason,
        version: VERSION,
        program: line.program(),
        comparisons: comparison.compared(),
        seconds: started.elapsed().as_secs_f64(),
        differences: report,
        events,
        costs: meter.costs(matches!(line.original, Original::KubeStateMetrics(_))),
        plots: meter.plots(),
        commands,
    })
}

/// Waits until kstatd has the state of the cluster, or the first StatsD line. Returns the endpoints of its metrics and of its own metrics.
async fn prepare(
    candidate: &mut Candidate,
    line: &CommandLine,
    timeout: Duration,
    say: &impl Fn(&str),
) -> Result<[Endpoint; 2]> {
    let (metrics, telemetry) = candidate.urls(line).await?;
    let endpoint = |url: &str| Endpoint::new(url, Access::default());
    let endpoints = [endpoint(&metrics)?, endpoint(&telemetry)?];
    let is_statsd = matches!(line.original, Original::StatsdExporter(_));
    if is_statsd {
        say("waiting for StatsD lines");
    }
    let synced = async {
        loop {
            match OwnMetrics::fetch(&endpoints[1], timeout).await {
                Ok(own) if own.is_ready() || (is_statsd && own.has_lines()) => return Ok(()),
                Ok(_) => sleep(SYNC_INTERVAL).await,
                Err(error) => return Err(format!("own metrics of kstatd: {error}")),
            }
        }
    };
    tokio::select! {
        synced = synced => synced?,
        failure = candidate.ended() => return Err(failure.into()),
        () = sleep(SYNC_TIMEOUT), if !is_statsd => {
            let seconds = SYNC_TIMEOUT.as_secs();
            return Err(format!("the first lists took more than {seconds} s:\n{}", candidate.last_lines()).into());
        }
    }
    Ok(endpoints)
}

/// A run in progress.
struct Run<S> {
    comparison: Comparison,
    meter: Meter,
    /// The events of the last measurement.
    costs: String,
    log: EventLog<S>,
}

/// The events of a run, which are also shown at once.
struct EventLog<S> {
    started: Instant,
    events: Vec<Event>,
    say: S,
}

impl<S: Fn(&str)> EventLog<S> {
    fn add(&mut self, text: &str) {
        (self.say)(text);
        self.events
            .push(Event { seconds: self.started.elapsed().as_secs(), text: text.to_owned() });
    }
}

impl<S: Fn(&str)> Run<S> {
    /// Compares and measures until the time is over and the result is certain.
    async fn rounds(&mut self, total: Duration, every: Duration) {
        let end = self.log.started + total;
        loop {
            let next = (Instant::now() + every).min(end);
            let is_compared = self.comparison.round(|text| self.log.add(text)).await;
            // A side that does not answer would be waited for again.
            if is_compared {
                let events = self.meter.measure().await.join("; ");
                if !events.is_empty() && events != self.costs {
                    self.log.add(&events);
                }
                self.costs = events;
            } else {
                self.meter.skip();
            }
            let is_settled =
                !is_compared || self.comparison.is_conclusive() && self.comparison.is_settled();
            if Instant::now() >= end && is_settled {
                return;
            }
            // The rounds that are still needed at the end keep their distance.
            let next = if next <= Instant::now() { Instant::now() + every } else { next };
            sleep_until(next.into()).await;
        }
    }
}
