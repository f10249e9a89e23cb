//! The registry of own metrics as a [`Source`].

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::connections::ConnectionCollector;
use super::process::ProcessCollector;
use super::{protobuf, text};
use crate::exposition::{Format, ScrapeQuery, Source};

/// Takes registrations at start-up; becomes [`OwnMetrics`].
#[derive(Debug, Default)]
pub struct Recorder {
    /// Where metrics are registered.
    pub registry: Registry,
}

/// Labels of a `*_build_info` series, with the names that the originals use.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BuildLabels {
    branch: &'static str,
    goarch: &'static str,
    goos: &'static str,
    goversion: &'static str,
    revision: &'static str,
    tags: &'static str,
    version: &'static str,
}

/// The same of kube-state-metrics, whose client library has a version of its own; in byte order of the names,
/// as Go's client writes labels.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KubeBuildLabels {
    branch: &'static str,
    client_go_version: &'static str,
    goarch: &'static str,
    goos: &'static str,
    goversion: &'static str,
    revision: &'static str,
    tags: &'static str,
    version: &'static str,
}

impl From<BuildLabels> for KubeBuildLabels {
    fn from(build: BuildLabels) -> Self {
        let BuildLabels { branch, goarch, goos, goversion, revision, tags, version } = build;
        let client_go_version = "";
        Self { branch, client_go_version, goarch, goos, goversion, revision, tags, version }
    }
}

impl BuildLabels {
    fn new() -> Self {
        Self {
            branch: "",
            goarch: go_arch(),
            goos: std::env::consts::OS,
            goversion: super::build::TOOLCHAIN,
            revision: option_env!("KSTATD_REVISION").unwrap_or("unknown"),
            tags: "",
            version: super::build::VERSION,
        }
    }
}

const BUILD_HELP: &str = "Build of this program; the value is always 1";

impl Recorder {
    /// A registry with `process_*`, the HTTP connections and `kstatd_build_info`.
    pub fn new() -> Self {
        let mut recorder = Self::process();
        recorder.registry.register_collector(Box::new(ConnectionCollector));
        recorder.build_info("kstatd_build_info");
        recorder
    }

    /// A registry with `process_*` alone, for an exposition that has nothing of kstatd's own.
    pub fn process() -> Self {
        let mut recorder = Self::default();
        recorder.registry.register_collector(Box::new(ProcessCollector));
        recorder
    }

    /// Adds a series of value 1 that names this build.
    pub fn build_info(&mut self, name: &str) {
        let info = Family::<BuildLabels, Gauge>::default();
        info.get_or_create(&BuildLabels::new()).set(1);
        self.registry.register(name, BUILD_HELP, info);
    }

    /// Adds the series by which kube-state-metrics names its build. There is no client-go in it, and so
    /// no version of one.
    pub fn kube_build_info(&mut self) {
        let info = Family::<KubeBuildLabels, Gauge>::default();
        info.get_or_create(&BuildLabels::new().into()).set(1);
        self.registry.register("kube_state_metrics_build_info", BUILD_HELP, info);
    }

    /// Ends registration.
    pub fn finish(self) -> OwnMetrics {
        OwnMetrics(Arc::new(self.registry))
    }
}

/// The name that Go gives this architecture, which the label has in the originals.
pub fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

/// All own metrics, readable at any time.
#[derive(Clone, Debug)]
pub struct OwnMetrics(Arc<Registry>);

impl OwnMetrics {
    /// The names of all families that have a series now.
    pub fn names(&self) -> BTreeSet<String> {
        let body = self.encode(Format::Text);
        let types = body.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types.filter_map(|rest| rest.split(' ').next()).map(str::to_owned).collect()
    }

    /// The body of a scrape.
    pub fn encode(&self, format: Format) -> String {
        let mut body = String::with_capacity(8 << 10);
        // Writing to a String fails only if an encoder of a metric says so.
        if let Err(error) = prometheus_client::encoding::text::encode_registry(&mut body, &self.0) {
            tracing::error!(%error, "own metrics cannot be encoded");
        }
        match format {
            Format::OpenMetrics => body,
            Format::Text => text::from_open_metrics(&body),
        }
    }
}

impl Source for OwnMetrics {
    fn frames(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Bytes> + Send> {
        let mut body = self.encode(format);
        if let Some(names) = &query.names {
            body = text::only(&body, |name| names.contains(name));
        }
        Box::new(std::iter::once(Bytes::from(body)))
    }

    fn protobuf_frames(
        &self,
        query: &ScrapeQuery,
    ) -> Option<Box<dyn Iterator<Item = Bytes> + Send>> {
        let mut body = self.encode(Format::Text);
        if let Some(names) = &query.names {
            body = text::only(&body, |name| names.contains(name));
        }
        Some(Box::new(std::iter::once(Bytes::from(protobuf::from_text(&body)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_and_process_are_there_in_both_formats() {
        let own = Recorder::new().finish();
        let body = own.encode(Format::Text);
        assert!(body.contains("# TYPE kstatd_build_info gauge\nkstatd_build_info{"), "{body}");
        assert!(body.contains("# TYPE process_cpu_seconds_total counter\n"), "{body}");
        assert!(!body.contains("# UNIT") && !body.contains("# EOF"), "{body}");
        let open = own.encode(Format::OpenMetrics);
        assert!(open.contains("# TYPE process_cpu_seconds counter\n"), "{open}");
    }

    #[test]
    fn labels_are_in_order() {
        let mut recorder = Recorder::default();
        recorder.kube_build_info();
        let body = recorder.finish().encode(Format::Text);
        let (_, labels) = body.split_once("build_info{").expect("series");
        let names: Vec<&str> =
            labels.split("\",").filter_map(|label| label.split('=').next()).collect();
        assert!(names.is_sorted() && names.len() == 8, "{names:?}");
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
