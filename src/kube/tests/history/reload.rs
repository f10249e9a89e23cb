//! Tests of configuration changes while a namespace is forbidden: when they take effect, and the requests that they
//! cost.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep};

use super::cluster::{KINDS, Kind};
use super::faults::Fault;
use super::server::Server;
use super::setup::{STALENESS_LIMIT, connect, in_simulated_time, pipeline_config, tls};
use crate::cache::Catalog;
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::kube::{Client, Pipeline, PipelineConfig, WatchedResource};
use crate::resources::select::filter::FamilyFilter;
use crate::resources::{RenderOptions, find};
use crate::telemetry::KubeMetrics;
use crate::tests::time_bound;

/// The time within which kube-state-metrics exposes what a reload adds.
static RELOAD_TIME: LazyLock<Duration> =
    LazyLock::new(|| time_bound("a reload with a forbidden namespace takes effect"));
/// The time within which a newly granted permission is noticed.
static PERMISSION_NOTICED: LazyLock<Duration> =
    LazyLock::new(|| time_bound("a granted permission is noticed"));
/// The maximum number of requests per second after the first ten seconds.
const MAX_REQUEST_RATE: u64 = 3;

/// A synced pipeline on a simulated server.
pub(super) struct Simulation {
    pub(super) server: Arc<Server>,
    client: Arc<Client>,
    catalog: Catalog,
    pub(super) pipeline: Pipeline,
    config: PipelineConfig,
    _folder: tempfile::TempDir,
}

impl Simulation {
    /// Watches these kinds in these namespaces.
    pub(super) async fn new(kinds: &[Kind], namespaces: &[&str], http2: bool) -> Self {
        let server = Server::new(kinds, &mut Rng::with_seed(3), http2.then(tls), false);
        let folder = tempfile::tempdir().expect("a folder");
        let client = Arc::new(connect(&server, folder.path(), (http2, None)));
        let config = pipeline_config(kinds, namespaces);
        let (catalog, metrics) = (Catalog::new(), KubeMetrics::default());
        let pipeline = Pipeline::start_on_this_thread(&client, &config, &catalog, &metrics)
            .expect("a pipeline");
        Self { server, client, catalog, pipeline, config, _folder: folder }
    }

    pub(super) fn reconfigure(&mut self, change: impl FnOnce(&mut PipelineConfig)) -> u64 {
        change(&mut self.config);
        self.pipeline.reconfigure(&self.client, &self.config)
    }

    /// Returns the exposed series, sorted.
    pub(super) fn series(&self) -> Vec<String> {
        let body = self.catalog.frames(Format::Text, &ScrapeQuery::default()).flatten();
        let body = String::from_utf8(body.collect()).expect("UTF-8");
        let mut lines: Vec<String> =
            body.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// Returns the expected series of these namespaces that `wanted` accepts.
    pub(super) fn expected(
        &self,
        namespaces: &[&str],
        wanted: impl Fn(&str, &str) -> bool,
    ) -> Vec<String> {
        let cluster = self.server.cluster();
        let scopes = cluster.snapshots.iter().filter(|(scope, _)| {
            scope.namespace.is_empty() || namespaces.contains(&scope.namespace)
        });
        let mut lines: Vec<String> = scopes
            .flat_map(|(scope, snapshots)| {
                let lines = snapshots.last().expect("a snapshot").lines.iter();
                lines.filter(|line| wanted(scope.namespace, line)).cloned()
            })
            .collect();
        assert!(!lines.is_empty());
        lines.sort();
        lines
    }

    /// Waits until the exposed series are these.
    pub(super) async fn wait_for_series(&self, expected: &[String], within: Duration) {
        let start = Instant::now();
        while self.series() != expected {
            assert!(start.elapsed() < within, "{:#?} instead of {expected:#?}", self.series());
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Accepts the series of all families.
pub(super) fn all_series(_: &str, _: &str) -> bool {
    true
}

/// Permitted scopes are exposed in time and listed once. Forbidden ones are requested rarely, and exposed soon after
/// they are permitted.
#[test]
fn forbidden_namespace_does_not_delay_a_reload() {
    for http2 in [false, true] {
        in_simulated_time(1, async {
            let mut simulation = Simulation::new(&KINDS, &["east"], http2).await;
            simulation
                .wait_for_series(&simulation.expected(&["east"], all_series), *PERMISSION_NOTICED)
                .await;
            let namespaced = KINDS.iter().filter(|kind| kind.namespaced()).count() as u64;
            simulation.server.forbid(Some("closed"));
            for namespace in ["east", "west", "closed"] {
                simulation.server.take_request_counts(namespace);
            }
            let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
            let number = simulation
                .reconfigure(|config| config.namespaces = names(&["east", "closed", "west"]));
            simulation
                .wait_for_series(&simulation.expected(&["east", "west"], all_series), *RELOAD_TIME)
                .await;
            assert!(simulation.pipeline.handle().is_applied(number));
            sleep(*PERMISSION_NOTICED).await;
            for namespace in ["east", "west"] {
                assert_eq!(
                    simulation.server.take_request_counts(namespace).lists,
                    namespaced,
                    "{namespace}"
                );
            }
            simulation.server.take_request_counts("closed");
            let before = simulation.server.requests();
            sleep(Duration::from_secs(120)).await;
            let requests = simulation.server.requests() - before;
            assert!(requests <= 120 * MAX_REQUEST_RATE, "{requests}");
            assert!(
                simulation.server.take_request_counts("closed").requests >= namespaced,
                "it is still requested"
            );
            assert_eq!(
                ["east", "west"].map(|name| simulation.server.take_request_counts(name).lists),
                [0, 0]
            );
            // A namespace that is first forbidden and then permitted.
            simulation.server.forbid(Some("west"));
            simulation.reconfigure(|config| config.namespaces = names(&["east"]));
            simulation
                .wait_for_series(&simulation.expected(&["east"], all_series), *RELOAD_TIME)
                .await;
            let number =
                simulation.reconfigure(|config| config.namespaces = names(&["east", "west"]));
            sleep(*RELOAD_TIME).await;
            assert!(simulation.pipeline.handle().is_applied(number));
            sleep(Duration::from_secs(120)).await;
            assert_eq!(simulation.series(), simulation.expected(&["east"], all_series));
            simulation.server.forbid(None);
            simulation
                .wait_for_series(
                    &simulation.expected(&["east", "west"], all_series),
                    *PERMISSION_NOTICED,
                )
                .await;
            assert!(simulation.pipeline.handle().is_applied(number));
        });
    }
}

/// A new list of families takes effect immediately where objects can be listed. A namespace that has become forbidden
/// keeps the families that remain, up to the staleness limit.
#[test]
fn new_families_with_a_newly_forbidden_namespace() {
    let pods = |families: &[&str]| {
        let families: Vec<String> = families.iter().map(|name| format!("^{name}$")).collect();
        let filter = FamilyFilter::new(&families, &[], &[]).expect("patterns");
        let labels = crate::resources::select::selection::Selection::new(&["*".to_owned()]);
        let families = Arc::new(filter);
        let options = RenderOptions { labels, families, ..RenderOptions::default() };
        WatchedResource::built_in(find("pods").expect("a resource"), &options)
    };
    in_simulated_time(1, async {
        let mut simulation = Simulation::new(&[Kind::Pod], &["east", "west"], true).await;
        simulation
            .wait_for_series(
                &simulation.expected(&["east", "west"], all_series),
                *PERMISSION_NOTICED,
            )
            .await;
        simulation.server.forbid(Some("west"));
        let other = pods(&["kube_pod_status_phase", "kube_pod_created", "kube_pod_info"]);
        let number = simulation.reconfigure(|config| config.resources = vec![other]);
        let is_phase = |_: &str, line: &str| line.starts_with("kube_pod_status_phase");
        let start = Instant::now();
        let phases = simulation.expected(&["east", "west"], is_phase);
        let own = |line: &String| line.starts_with("kube_pod_info{namespace=\"east\"");
        let is_reloaded = || {
            let shown = simulation.series();
            let (phase, rest): (Vec<_>, Vec<_>) =
                shown.into_iter().partition(|line| line.starts_with("kube_pod_status_phase"));
            phase == phases
                && rest.iter().any(own)
                && rest.iter().all(|line| line.contains("\"east\""))
        };
        while !is_reloaded() {
            assert!(start.elapsed() < *RELOAD_TIME, "{:#?}", simulation.series());
            sleep(Duration::from_millis(50)).await;
        }
        sleep(STALENESS_LIMIT - *RELOAD_TIME).await;
        assert!(is_reloaded() && !simulation.pipeline.handle().is_applied(number));
        sleep(*RELOAD_TIME + *PERMISSION_NOTICED).await;
        assert!(
            simulation.series().iter().all(|line| !line.contains("\"west\"")),
            "{:#?}",
            simulation.series()
        );
        assert!(simulation.pipeline.handle().is_applied(number));
        simulation.server.forbid(None);
        sleep(*PERMISSION_NOTICED).await;
        assert!(
            simulation
                .series()
                .iter()
                .any(|line| line.starts_with("kube_pod_info{namespace=\"west\""))
        );
    });
}

/// Nor does it interrupt lists of other namespaces that take long.
#[test]
fn forbidden_namespace_interrupts_no_slow_list() {
    in_simulated_time(1, async {
        let mut simulation = Simulation::new(&KINDS, &["east"], true).await;
        simulation
            .wait_for_series(&simulation.expected(&["east"], all_series), *PERMISSION_NOTICED)
            .await;
        simulation.server.forbid(Some("closed"));
        // Each page takes long, and a refusal only as long as the first one.
        simulation.server.begin_fault(0, &Fault::NoStreaming);
        simulation.server.begin_fault(1, &Fault::Delayed(Duration::from_secs(3)));
        simulation.server.take_request_counts("west");
        let names = ["east", "closed", "west"].map(str::to_owned).to_vec();
        simulation.reconfigure(|config| config.namespaces = names);
        simulation
            .wait_for_series(
                &simulation.expected(&["east", "west"], all_series),
                Duration::from_secs(240),
            )
            .await;
        // A streaming list that is refused, and a paged one.
        let namespaced = KINDS.iter().filter(|kind| kind.namespaced()).count() as u64;
        assert_eq!(simulation.server.take_request_counts("west").lists, 2 * namespaced);
    });
}

/// Objects that may be listed stay, even if the permission to watch is missing for longer than the staleness limit.
#[test]
fn objects_stay_while_only_watches_are_refused() {
    in_simulated_time(1, async {
        let mut simulation = Simulation::new(&[Kind::ConfigMap], &[], true).await;
        let number = simulation
            .reconfigure(|config| config.timing.staleness_limit = Some(Duration::from_secs(3)));
        while !simulation.pipeline.handle().is_applied(number) {
            sleep(Duration::from_millis(50)).await;
        }
        let series = simulation.series();
        assert!(!series.is_empty());
        simulation.server.begin_fault(0, &Fault::WatchesRefused { code: 403, streaming: true });
        simulation.server.begin_fault(1, &Fault::Reset);
        for _ in 0..600 {
            sleep(Duration::from_millis(200)).await;
            assert_eq!(simulation.series(), series);
        }
    });
}

/// A refusal before and one after an outage are not one that lasted all the time: servers refuse for a moment when they
/// start, or when a token is replaced.
#[test]
fn refusals_before_and_after_an_outage_drop_nothing() {
    in_simulated_time(1, async {
        let simulation = Simulation::new(&[Kind::ConfigMap], &["west"], true).await;
        simulation
            .wait_for_series(&simulation.expected(&["west"], all_series), *PERMISSION_NOTICED)
            .await;
        let series = simulation.series();
        simulation.server.forbid(Some("west"));
        simulation.server.begin_fault(0, &Fault::Reset);
        sleep(Duration::from_secs(5)).await;
        simulation.server.forbid(None);
        simulation
            .server
            .begin_fault(1, &Fault::Status { code: 503, retry_after: None, share: 1.0 });
        sleep(STALENESS_LIMIT * 2).await;
        simulation.server.forbid(Some("west"));
        simulation.server.end_fault(1);
        simulation.server.take_request_counts("west");
        let again = Instant::now();
        while again.elapsed() < STALENESS_LIMIT - *PERMISSION_NOTICED {
            sleep(Duration::from_millis(200)).await;
            assert_eq!(simulation.series(), series, "{:?} after the outage", again.elapsed());
        }
        assert!(simulation.server.take_request_counts("west").lists > 1);
        // This one lasts.
        while !simulation.series().is_empty() {
            assert!(again.elapsed() < STALENESS_LIMIT + *PERMISSION_NOTICED);
            sleep(Duration::from_millis(200)).await;
        }
    });
}
