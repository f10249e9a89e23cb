//! The registry of own metrics as a [`Source`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::connections::CONNECTIONS;
use super::metric::Row;
use super::process::Process;
use super::{build, process};
use crate::exposition::family::{Collect, Family, Series, TypedFamilies};
use crate::exposition::frames::{FRAME, Frames};
use crate::exposition::typed::TypedBody;
use crate::exposition::{Format, ScrapeQuery, Source, labels};

/// Collects registrations at start-up; [`finish`](Self::finish) turns it into [`OwnMetrics`].
#[derive(Default)]
pub struct Recorder(Vec<Arc<dyn Collect>>);

impl Recorder {
    /// Creates a registry with `process_*`, the HTTP connections and `kstatd_build_info`.
    pub fn new() -> Self {
        let mut recorder = Self::process();
        CONNECTIONS.register(&mut recorder);
        recorder.add(build::info("kstatd_build_info", &[]));
        recorder
    }

    /// Creates a registry with `process_*` only, for expositions without kstatd's own metrics.
    pub fn process() -> Self {
        let mut recorder = Self::default();
        recorder.add(Process);
        recorder
    }

    /// Adds kube-state-metrics' build information.
    pub fn kube_build_info(&mut self) {
        // There is no client-go.
        self.add(build::info("kube_state_metrics_build_info", &[("client_go_version", "")]));
    }

    /// Adds a collector.
    pub fn add(&mut self, families: impl Collect + 'static) {
        self.0.push(Arc::new(families));
    }

    /// Adds all collectors of another recorder.
    pub fn include(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// Ends the registration.
    pub fn finish(self) -> OwnMetrics {
        OwnMetrics { collectors: self.0.into(), start: None, size: Arc::new(usize::MAX.into()) }
    }
}

impl From<OwnMetrics> for Recorder {
    /// Starts with the collectors of a finished registry.
    fn from(own: OwnMetrics) -> Self {
        Self(own.collectors.to_vec())
    }
}

impl Extend<Row> for Recorder {
    fn extend<I: IntoIterator<Item = Row>>(&mut self, rows: I) {
        rows.into_iter().for_each(|row| self.add(row));
    }
}

/// All own metrics.
#[derive(Clone)]
pub struct OwnMetrics {
    collectors: Arc<[Arc<dyn Collect>]>,
    /// The start of the process, if counters have a start time.
    start: Option<Duration>,
    /// The size of the last complete body, which may be large before there is one.
    size: Arc<AtomicUsize>,
}

impl OwnMetrics {
    /// Gives counters and histograms the start of the process as their start time.
    #[must_use]
    pub fn with_start(self) -> Self {
        Self { start: process::start(), ..self }
    }

    /// Returns the families that currently have series, sorted by name: all, or those with one of these names. Only
    /// collectors that may have one are asked, because some take long with many namespaces, and other pods of a
    /// StatefulSet wait for a single family.
    fn families(&self, names: Option<&BTreeSet<String>>) -> Vec<Family> {
        let mut families = Vec::new();
        let asked =
            self.collectors.iter().filter(|of| names.is_none_or(|names| of.may_have(names)));
        asked.for_each(|of| of.collect(&mut families));
        families.retain(|family| names.is_none_or(|names| names.contains(family.name)));
        families.retain(|family| !family.series.is_empty());
        families.sort_by_key(|family| family.name);
        families
    }

    /// Returns the families that match a query.
    fn asked_for(&self, query: &ScrapeQuery) -> Vec<Family> {
        let mut families = self.families(query.names.as_ref());
        if let Some(namespaces) = &query.namespaces {
            families.iter_mut().for_each(|family| {
                family.series.retain(|series| is_of(namespaces, &series.labels));
            });
            families.retain(|family| !family.series.is_empty());
        } else if query.names.is_none() {
            let size = |family: &Family| {
                let labels: usize = family.series.iter().map(|series| series.labels.len()).sum();
                labels + size_of_val(&*family.series)
            };
            self.size.store(families.iter().map(size).sum(), Ordering::Relaxed);
        }
        families
    }

    /// Returns the names of all families that currently have series.
    pub fn names(&self) -> BTreeSet<String> {
        self.families(None).iter().map(|family| family.name.to_owned()).collect()
    }

    /// Encodes the body of a scrape.
    #[cfg(test)]
    pub(crate) fn encode(&self, format: Format) -> String {
        let body: Vec<Bytes> = self.frames(format, &ScrapeQuery::default()).collect();
        String::from_utf8_lossy(&body.concat()).into_owned()
    }
}

/// A part of a body as text: the head of a family without series, or a series with the name of its family.
enum Part {
    Head(Family),
    Series(&'static str, Series),
}

/// Returns whether rendered labels contain one of these namespaces.
fn is_of(namespaces: &BTreeSet<String>, labels: &[u8]) -> bool {
    labels::iter(labels).any(|(name, value)| {
        name == b"namespace"
            && str::from_utf8(&labels::plain(value)).is_ok_and(|value| namespaces.contains(value))
    })
}

impl Collect for OwnMetrics {
    fn collect(&self, out: &mut Vec<Family>) {
        self.collectors.iter().for_each(|of| of.collect(out));
    }

    fn may_have(&self, names: &BTreeSet<String>) -> bool {
        self.collectors.iter().any(|of| of.may_have(names))
    }
}

impl Source for OwnMetrics {
    fn frames(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Bytes> + Send> {
        // A slow client holds what is not written yet, which for histograms is far less than their text.
        let mut parts = self.asked_for(query).into_iter().flat_map(|mut family| {
            let (name, series) = (family.name, std::mem::take(&mut family.series));
            let series = series.into_iter().map(move |series| Part::Series(name, series));
            std::iter::once(Part::Head(family)).chain(series)
        });
        Box::new(Frames::new(move |out| {
            while out.len() < FRAME {
                match parts.next() {
                    Some(Part::Head(family)) => family.head_text(out, format),
                    Some(Part::Series(name, series)) => series.text(name, out, format),
                    None => return false,
                }
            }
            true
        }))
    }

    fn last_size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    fn has_namespaces(&self) -> bool {
        true
    }

    fn typed(&self, query: &ScrapeQuery) -> Option<Box<dyn TypedBody>> {
        // The network namespace may be older than the process.
        let counts_from_start = |family: &Family| !family.name.starts_with("process_network_");
        let families = self.asked_for(query).into_iter().map(|family| {
            let created = self.start.filter(|_| counts_from_start(&family));
            (family, created)
        });
        Some(Box::new(TypedFamilies::new(families.collect())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::message::{self, ProtoText};
    use crate::exposition::prototext::Layout;
    use crate::telemetry::metric::{Gauge, Labelled};

    #[test]
    fn build_and_process_metrics_exist_in_both_formats() {
        let own = Recorder::new().finish();
        let body = own.encode(Format::Text);
        assert!(body.contains("# TYPE kstatd_build_info gauge\nkstatd_build_info{"), "{body}");
        assert!(body.contains("# TYPE process_cpu_seconds_total counter\n"), "{body}");
        assert!(!body.contains("# UNIT") && !body.contains("# EOF"), "{body}");
        let open = own.encode(Format::OpenMetrics);
        assert!(open.contains("# TYPE process_cpu_seconds counter\n"), "{open}");
    }

    /// A client that reads slowly, compression and other requests wait for a frame, not for everything.
    #[test]
    fn many_series_are_sent_in_frames() {
        let many = Labelled::<Gauge, 1>::new(["label"]);
        (0..5_000).for_each(|number| many.with([&format!("{number:050}")]).set(1.0));
        let mut recorder = Recorder::default();
        recorder.extend([Row::gauge("many", "Many.", many), Row::gauge("one", "One.", || 1.0)]);
        let (own, query) = (recorder.finish(), ScrapeQuery::default());
        let text: Vec<Bytes> = own.frames(Format::Text, &query).collect();
        let mut whole = Vec::new();
        own.families(None).iter().for_each(|family| family.text(&mut whole, Format::Text));
        assert_eq!(text.concat(), whole);
        let typed = own.typed(&query).expect("a typed form");
        let typed: Vec<Bytes> =
            message::frames(vec![typed], ProtoText::new(Layout::Lines)).collect();
        for frames in [text, typed] {
            assert!(frames.len() > 4 && frames.iter().all(|frame| frame.len() <= 2 * FRAME));
            let body = String::from_utf8(frames.concat()).expect("UTF-8");
            assert_eq!(body.matches("00000\"").count(), 1, "the first series of `many`");
            assert_eq!(body.matches("04999\"").count(), 1, "the last series of `many`");
        }
    }

    #[test]
    fn families_are_sorted_and_have_help() {
        let mut recorder = Recorder::new();
        let metrics = crate::telemetry::KubeMetrics::default();
        metrics.register(&mut recorder);
        let http = crate::telemetry::HttpMetrics::default();
        http.register_duration(&mut recorder);
        http.register_scrapes(&mut recorder);
        recorder.kube_build_info();
        metrics.list("*v1.Pod", true);
        let families = recorder.finish().families(None);
        assert!(families.is_sorted_by(|a, b| a.name < b.name), "a name twice or out of order");
        for Family { name, help, kind, .. } in families {
            let is_counter = kind == crate::exposition::family::Kind::Counter;
            assert!(help.ends_with('.'), "{name}: {help}");
            assert_eq!(name.ends_with("_total"), is_counter, "{name}");
        }
    }

    #[test]
    fn series_of_namespaces() {
        let sizes = Labelled::<Gauge, 2>::new(["namespace", "z"]);
        let mut recorder = Recorder::default();
        for (namespace, size) in [("x", 1.0), ("y", 2.0), ("xx", 3.0), (",namespace=\"x\"", 4.0)] {
            sizes.with([namespace, "x"]).set(size);
        }
        let others = Labelled::<Gauge, 1>::new(["in_namespace"]);
        others.with(["x"]).set(1.0);
        recorder.extend([Row::gauge("a", "A.", sizes), Row::gauge("b", "B.", others)]);
        let own = recorder.finish();
        let of = |names: &[&str]| {
            let namespaces = Some(names.iter().map(|&name| name.to_owned()).collect());
            let query = ScrapeQuery { namespaces, ..ScrapeQuery::default() };
            let body: Vec<u8> = own.frames(Format::Text, &query).flatten().collect();
            String::from_utf8(body).expect("UTF-8")
        };
        let head = "# HELP a A.\n# TYPE a gauge\n";
        assert_eq!(of(&["x"]), format!("{head}a{{namespace=\"x\",z=\"x\"}} 1\n"));
        assert_eq!(of(&["y", "w"]), format!("{head}a{{namespace=\"y\",z=\"x\"}} 2\n"));
        assert_eq!(of(&["v"]), "");
    }

    #[test]
    fn filtered_by_name() {
        let own = Recorder::new().finish();
        let names = Some(["kstatd_build_info".to_owned()].into());
        let query = ScrapeQuery { names, ..ScrapeQuery::default() };
        let body: Vec<u8> = own.frames(Format::Text, &query).flatten().collect();
        let body = String::from_utf8(body).expect("UTF-8");
        assert_eq!(body.lines().count(), 3, "{body}");
        assert!(body.lines().all(|line| line.contains("kstatd_build_info")), "{body}");
    }
}
