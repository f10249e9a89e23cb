//! Observes the program: `/proc` each second, and a scrape every few seconds, alternately as text, gzip and
//! OpenMetrics. (A process with a Kubernetes side has no protobuf format.)

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kstatd_endurance::scrape;

use super::exporter::Exporter;
use crate::cluster::Cluster;
use crate::figures::Point;

const OPEN_METRICS: &str = "Accept: application/openmetrics-text;version=1.0.0\r\n";
/// The formats of the scrapes, with their headers.
pub const FORMS: [(&str, &str); 3] =
    [("text", "Accept: text/plain\r\n"), ("gzip", scrape::GZIP), ("OpenMetrics", OPEN_METRICS)];
/// Maximum age of exposed data: an outage of the API server plus some time.
const MAX_AGE: Duration = Duration::from_secs(60);

/// All observations.
#[derive(Default)]
pub struct Observations {
    /// Resident memory in MB.
    pub memory: Vec<Point>,
    /// Open descriptors.
    pub descriptors: Vec<Point>,
    /// Threads.
    pub threads: Vec<Point>,
    /// Milliseconds of scrapes, in the order of [`FORMS`].
    pub scrapes: [Vec<Point>; 3],
    /// Bytes of the last body of each form.
    pub bytes: [u64; 3],
    /// Errors in scrapes.
    pub failures: Vec<String>,
    /// CPU seconds at the end.
    pub cpu: f64,
    pods: Mutex<Vec<(Instant, usize)>>,
}

/// An observer thread; there are two.
pub struct Observer<'a> {
    /// The observed program.
    pub exporter: &'a Exporter,
    /// The cluster it should expose.
    pub cluster: &'a Cluster,
    /// Start of the test.
    pub start: Instant,
    /// Set to end the thread.
    pub is_over: &'a AtomicBool,
    /// The observations.
    pub seen: &'a Mutex<Observations>,
}

impl Observer<'_> {
    fn each(&self, period: Duration, mut look: impl FnMut(usize) -> Result<()>) -> Result<()> {
        for number in 0.. {
            let next = self.start + period * (number as u32 + 1);
            while Instant::now() < next {
                if self.is_over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                sleep((next - Instant::now()).min(Duration::from_millis(50)));
            }
            look(number)?;
        }
        Ok(())
    }

    fn seen(&self, note: impl FnOnce(&mut Observations, Duration)) {
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        note(&mut seen, self.start.elapsed());
    }

    /// Reads `/proc` each second.
    pub fn watch(&self) -> Result<()> {
        let server = &self.exporter.server;
        self.each(Duration::from_secs(1), |_| {
            let (memory, cpu) = (server.memory()?.resident / 1e6, server.cpu()?);
            let (descriptors, threads) = (server.descriptors()?, server.threads()?);
            let pods = self.cluster.objects_of("pods");
            self.seen(|seen, at| {
                seen.memory.push((at, memory));
                seen.descriptors.push((at, descriptors as f64));
                seen.threads.push((at, threads as f64));
                seen.cpu = cpu;
                let mut shown = seen.pods.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                shown.retain(|(since, _)| since.elapsed() < MAX_AGE);
                shown.push((Instant::now(), pods));
            });
            Ok(())
        })
    }

    /// Scrapes at this interval.
    pub fn scrape(&self, period: Duration) -> Result<()> {
        self.each(period, |number| {
            let form = number % FORMS.len();
            let Some((name, headers)) = FORMS.get(form) else { return Ok(()) };
            let start = Instant::now();
            let mut body = Vec::new();
            let answer = scrape::get(self.exporter.port, "/metrics", headers, |part| {
                body.extend_from_slice(part)
            });
            let wall = start.elapsed();
            let verdict = answer.and_then(|_| match form {
                0 => self.text(&body),
                2 => {
                    ensure!(body.ends_with(b"\n# EOF\n"), "the end is missing");
                    self.text(&body)
                }
                _ => Ok(()),
            });
            self.seen(|seen, at| {
                if let Err(error) = verdict {
                    seen.failures.push(format!("{:.1} s, {name}: {error:#}", at.as_secs_f64()));
                }
                if let Some((scrapes, bytes)) =
                    seen.scrapes.get_mut(form).zip(seen.bytes.get_mut(form))
                {
                    scrapes.push((at, wall.as_secs_f64() * 1e3));
                    *bytes = body.len() as u64;
                }
            });
            Ok(())
        })
    }

    /// Checks that there are no duplicate series, and that the number of pods is one of the last minute.
    fn text(&self, body: &[u8]) -> Result<()> {
        let text = std::str::from_utf8(body)?;
        ensure!(text.ends_with('\n'), "the last line is not whole");
        let mut series = BTreeSet::new();
        let mut pods = 0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, _) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
            ensure!(series.insert(name), "twice: {name}");
            pods += usize::from(line.starts_with("kube_pod_info{"));
        }
        let mut bounds = (usize::MAX, 0);
        self.seen(|seen, _| {
            let shown = seen.pods.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            for (_, count) in shown {
                bounds = (bounds.0.min(*count), bounds.1.max(*count));
            }
        });
        // Changes since the last sample and during the scrape.
        let slack = 20;
        if bounds.1 > 0 && !(bounds.0.saturating_sub(slack)..=bounds.1 + slack).contains(&pods) {
            bail!("{pods} pods, there have been {} to {}", bounds.0, bounds.1);
        }
        Ok(())
    }
}
