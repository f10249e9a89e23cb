//! The costs of both processes: what they report about themselves, and scrapes of their metrics.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::exposition::reader::{Line, LineWriter};
use crate::kube::client::endpoint::Endpoint;
use crate::status::Track;
use crate::status::words::{bytes, count, duration};
use crate::tools::Result;
use crate::tools::diff::{TEXT, fetch};

const MEMORY: &str = "process_resident_memory_bytes";
const CPU: &str = "process_cpu_seconds_total";
const STARTED: &str = "process_start_time_seconds";
const LISTS: &str = "kube_state_metrics_list_total";
const WATCHES: &str = "kube_state_metrics_watch_total";
/// The counters of client-go, for an original that exposes them.
const CLIENT_REQUESTS: &str = "rest_client_requests_total";
const CLIENT_BYTES: &str = "rest_client_response_size_bytes_sum";
const RECEIVED: &str = "kstatd_kubernetes_received_bytes_total";
const READY: &str = "kstatd_ready";
const LINES: &str = "statsd_exporter_lines_total";

/// The metrics that are read; the values of a metric's series are summed.
const METRICS: [&str; 10] =
    [MEMORY, CPU, STARTED, LISTS, WATCHES, CLIENT_REQUESTS, CLIENT_BYTES, RECEIVED, READY, LINES];

/// What a process reports about itself.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnMetrics(BTreeMap<&'static str, f64>);

impl OwnMetrics {
    /// Requests the own metrics of a process.
    ///
    /// # Errors
    /// There is no complete exposition.
    pub(super) async fn fetch(server: &Endpoint, limit: Duration) -> Result<Self> {
        let mut own = Self::default();
        let mut sink = LineWriter::new(|line: Line<'_>| own.add(&line));
        fetch(server, TEXT, "gzip", limit, &mut sink).await?;
        Ok(own)
    }

    fn add(&mut self, line: &Line<'_>) {
        if let Line::Sample(sample) = line
            && let Some(name) = METRICS.iter().find(|name| **name == sample.name)
        {
            *self.0.entry(name).or_default() += sample.value;
        }
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Returns whether it is a kstatd whose first lists are complete or were rejected.
    pub(super) fn is_ready(&self) -> bool {
        self.get(READY) == Some(1.0)
    }

    /// Returns whether it has received a StatsD line.
    pub(super) fn has_lines(&self) -> bool {
        self.get(LINES).is_some_and(|lines| lines > 0.0)
    }

    fn requests(&self) -> Option<f64> {
        self.get(CLIENT_REQUESTS).or_else(|| match (self.get(LISTS), self.get(WATCHES)) {
            (None, None) => None,
            (lists, watches) => Some(lists.unwrap_or(0.0) + watches.unwrap_or(0.0)),
        })
    }

    fn received(&self) -> Option<f64> {
        self.get(CLIENT_BYTES).or_else(|| self.get(RECEIVED))
    }
}

/// A scrape whose body was discarded.
#[derive(Clone, Copy, Debug)]
struct Scrape {
    seconds: f64,
    /// The size as transferred.
    bytes: f64,
}

/// The codings of the scrapes, in turn.
const CODINGS: [&str; 2] = ["identity", "gzip"];

/// The measurements of one side in one round.
#[derive(Clone, Debug, Default)]
struct Sample {
    own: Option<OwnMetrics>,
    /// A scrape, compressed in every second round.
    scrape: Option<Scrape>,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    Bytes,
    /// CPU seconds per second.
    Cores,
    Seconds,
    Count,
}

impl Unit {
    /// Formats a value with its unit.
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::Bytes => bytes(value),
            Self::Cores => format!("{:.2}% of a core", 100.0 * value),
            Self::Seconds => duration(value),
            Self::Count => count(value.max(0.0) as u64),
        }
    }
}

/// A figure of both sides; `None` if a side does not report it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cost {
    pub name: &'static str,
    pub unit: Unit,
    pub original: Option<f64>,
    pub kstatd: Option<f64>,
}

impl Cost {
    /// Returns the formatted value of each side.
    pub(super) fn shown(&self) -> [String; 2] {
        let show = |value: Option<f64>| {
            value.map_or("not reported".to_owned(), |value| self.unit.show(value))
        };
        [show(self.original), show(self.kstatd)]
    }
}

/// A figure over time.
pub(super) struct Plot {
    pub title: &'static str,
    pub unit: Unit,
    pub tracks: [Track; 2],
}

/// The listeners of a side.
pub(super) struct Listeners {
    /// The side as it is shown.
    pub name: &'static str,
    pub metrics: Endpoint,
    /// Own metrics, if they are known.
    pub telemetry: Option<Endpoint>,
}

/// Measures both sides repeatedly.
pub(super) struct Meter {
    sides: [Listeners; 2],
    timeout: Duration,
    samples: Vec<[Sample; 2]>,
    /// The seconds between the first and the last measurement.
    started: Instant,
    times: Vec<f64>,
}

impl Meter {
    pub(super) fn new(sides: [Listeners; 2], timeout: Duration) -> Self {
        Self { sides, timeout, samples: Vec::new(), started: Instant::now(), times: Vec::new() }
    }

    /// Measures both sides, the scrape plain and compressed in turn. Returns what is worth telling.
    pub(super) async fn measure(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        let mut samples = [Sample::default(), Sample::default()];
        let coding = CODINGS[self.samples.len() % 2];
        for (side, sample) in self.sides.iter().zip(&mut samples) {
            if let Some(telemetry) = &side.telemetry {
                match OwnMetrics::fetch(telemetry, self.timeout).await {
                    Ok(own) => sample.own = Some(own),
                    Err(error) => events.push(format!("own metrics of {}: {error}", side.name)),
                }
            }
            let began = Instant::now();
            let fetched = fetch(&side.metrics, TEXT, coding, self.timeout, &mut io::sink()).await;
            sample.scrape = fetched.ok().map(|fetched| Scrape {
                seconds: began.elapsed().as_secs_f64(),
                bytes: fetched.transferred as f64,
            });
        }
        for (at, sample) in samples.iter().enumerate() {
            let started = |of: &Sample| of.own.as_ref().and_then(|own| own.get(STARTED));
            let before = self.samples.iter().rev().find_map(|samples| started(&samples[at]));
            if let (Some(before), Some(now)) = (before, started(sample))
                && now > before
            {
                events.push(format!("{} restarted", self.sides[at].name));
            }
        }
        self.push(samples);
        events
    }

    /// Records a round without measurements.
    pub(super) fn skip(&mut self) {
        self.push(Default::default());
    }

    fn push(&mut self, samples: [Sample; 2]) {
        self.samples.push(samples);
        self.times.push(self.started.elapsed().as_secs_f64());
    }

    fn own(&self, side: usize) -> impl DoubleEndedIterator<Item = (f64, &OwnMetrics)> {
        let samples = self.times.iter().zip(&self.samples);
        samples.filter_map(move |(at, samples)| Some((*at, samples[side].own.as_ref()?)))
    }

    /// Returns the increase of a counter between the first and the last measurement, and the seconds
    /// between them. A counter that was reset started at 0.
    fn increase(
        &self,
        side: usize,
        counter: impl Fn(&OwnMetrics) -> Option<f64>,
    ) -> Option<(f64, f64)> {
        let mut values = self.own(side).filter_map(|(at, own)| Some((at, counter(own)?)));
        let (first, mut before) = values.next()?;
        let (mut sum, mut last) = (0.0, first);
        for (at, value) in values {
            sum += if value < before { value } else { value - before };
            (before, last) = (value, at);
        }
        (last > first).then_some((sum, last - first))
    }

    /// Returns the scrapes with one of [`CODINGS`].
    fn scrapes(&self, side: usize, coding: usize) -> impl Iterator<Item = Scrape> {
        let samples = self.samples.iter().skip(coding).step_by(2);
        samples.filter_map(move |samples| samples[side].scrape)
    }

    /// Returns the costs; those of the API server for originals that use it.
    pub(super) fn costs(&self, uses_api_server: bool) -> Vec<Cost> {
        let mut costs = Vec::new();
        let mut add = |name, unit, value: &dyn Fn(usize) -> Option<f64>| {
            costs.push(Cost { name, unit, original: value(0), kstatd: value(1) });
        };
        let last = |side, of: fn(&OwnMetrics) -> Option<f64>| {
            self.own(side).rev().find_map(|(_, own)| of(own))
        };
        let grown =
            |side, of: fn(&OwnMetrics) -> Option<f64>| self.increase(side, of).map(|(sum, _)| sum);
        add("memory, last", Unit::Bytes, &|side| last(side, |own| own.get(MEMORY)));
        add("memory, highest", Unit::Bytes, &|side| {
            self.own(side).filter_map(|(_, own)| own.get(MEMORY)).reduce(f64::max)
        });
        add("CPU", Unit::Cores, &|side| {
            self.increase(side, |own| own.get(CPU)).map(|(sum, seconds)| sum / seconds)
        });
        let seconds = |side, coding| {
            let mut seconds: Vec<f64> =
                self.scrapes(side, coding).map(|scrape| scrape.seconds).collect();
            seconds.sort_unstable_by(f64::total_cmp);
            seconds.get(seconds.len() / 2).copied()
        };
        let size = |side, coding| self.scrapes(side, coding).last().map(|scrape| scrape.bytes);
        add("scrape time, plain", Unit::Seconds, &|side| seconds(side, 0));
        add("scrape time, gzip", Unit::Seconds, &|side| seconds(side, 1));
        add("scrape size, plain", Unit::Bytes, &|side| size(side, 0));
        add("scrape size, gzip", Unit::Bytes, &|side| size(side, 1));
        if uses_api_server {
            add("API requests since the start", Unit::Count, &|side| {
                last(side, OwnMetrics::requests)
            });
            add("API bytes since the start", Unit::Bytes, &|side| last(side, OwnMetrics::received));
            add("API requests while comparing", Unit::Count, &|side| {
                grown(side, OwnMetrics::requests)
            });
            add("API watches while comparing", Unit::Count, &|side| {
                grown(side, |own| own.get(WATCHES))
            });
            add("API bytes while comparing", Unit::Bytes, &|side| {
                grown(side, OwnMetrics::received)
            });
        }
        add("age of the process", Unit::Seconds, &|side| {
            let now = jiff::Timestamp::now().as_millisecond() as f64 / 1000.0;
            last(side, |own| own.get(STARTED)).map(|started| now - started)
        });
        costs
    }

    /// Returns the figures over time.
    pub(super) fn plots(&self) -> Vec<Plot> {
        let plot = |title, unit, value: &dyn Fn(usize, usize) -> Option<f64>| Plot {
            title,
            unit,
            tracks: [0, 1].map(|side| Track {
                what: title,
                of: self.sides[side].name.to_owned(),
                values: (0..self.samples.len())
                    .map(|at| value(side, at).map(|v| v as f32))
                    .collect(),
            }),
        };
        let own = |side: usize, at: usize| self.samples.get(at)?[side].own.as_ref();
        let scrape = |side: usize, at: usize| {
            // Every second one is compressed, and stands for the next one too.
            let compressed = if at % 2 == 1 { at } else { at.checked_sub(1)? };
            self.samples[compressed][side].scrape
        };
        vec![
            plot("Memory", Unit::Bytes, &|side, at| own(side, at)?.get(MEMORY)),
            plot("CPU", Unit::Cores, &|side, at| {
                let before = at.checked_sub(1)?;
                let grown = own(side, at)?.get(CPU)? - own(side, before)?.get(CPU)?;
                (grown >= 0.0).then(|| grown / (self.times[at] - self.times[before]))
            }),
            plot("Scrape time, gzip", Unit::Seconds, &|side, at| Some(scrape(side, at)?.seconds)),
            plot("Scrape size, gzip", Unit::Bytes, &|side, at| Some(scrape(side, at)?.bytes)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(values: &[[Option<f64>; 2]]) -> Meter {
        let endpoint = || Endpoint::new("http://a", Default::default()).expect("URL");
        let side = |name| Listeners { name, metrics: endpoint(), telemetry: None };
        let mut meter = Meter::new([side("original"), side("kstatd")], Duration::from_secs(1));
        for (at, [cpu, lists]) in values.iter().enumerate() {
            let figures = [(CPU, *cpu), (LISTS, *lists)];
            let own =
                figures.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
            let of = Sample { own: Some(OwnMetrics(own)), ..Sample::default() };
            meter.samples.push([of, Sample::default()]);
            meter.times.push(10.0 * at as f64);
        }
        meter
    }

    fn cost(meter: &Meter, name: &str) -> [Option<f64>; 2] {
        let costs = meter.costs(true);
        let cost = costs.iter().find(|cost| cost.name == name).expect(name);
        [cost.original, cost.kstatd]
    }

    #[test]
    fn counters_that_were_reset_started_at_zero() {
        let meter = meter(&[
            [Some(5.0), None],
            [None, Some(1.0)],
            [Some(7.0), Some(2.0)],
            [Some(1.0), Some(2.0)],
        ]);
        assert_eq!(cost(&meter, "CPU"), [Some(3.0 / 30.0), None]);
        assert_eq!(cost(&meter, "API requests while comparing"), [Some(1.0), None]);
        assert_eq!(cost(&meter, "API requests since the start"), [Some(2.0), None]);
        assert_eq!(cost(&meter, "API bytes since the start"), [None, None]);
        let plots = meter.plots();
        assert_eq!(plots[1].tracks[0].values, [None, None, None, None]);
    }

    #[test]
    fn own_metrics_are_summed() {
        use std::io::Write as _;

        let mut own = OwnMetrics::default();
        let mut writer = LineWriter::new(|line: Line<'_>| own.add(&line));
        let text = "kube_state_metrics_list_total{resource=\"a\"} 2\nother 5\n\
                    kube_state_metrics_list_total{resource=\"b\"} 3\nkstatd_ready 1\n";
        writer.write_all(text.as_bytes()).expect("an exposition");
        assert!(writer.write_all(b"<html>\n").is_err());
        assert_eq!(own.requests(), Some(5.0));
        assert!(own.is_ready() && own.get(MEMORY).is_none());
    }
}
