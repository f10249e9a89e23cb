//! Runs one history: schedules changes, faults and scrapes, and checks each scrape.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::checker::{Checker, Expectation, RequestLimit, Violation};
use super::cluster::{KINDS, Kind, NAMESPACES, Scope, scopes};
use super::faults::{Fault, RECOVERY};
use super::journal::{Entry, Topic};
use super::network::SimulatedNetwork;
use super::server::Server;
use crate::cache::{Catalog, Family, MetricKind, Rendered, Schema};
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::kube::frame::ObjectIdentity;
use crate::kube::shard::Shard;
use crate::kube::workloads::ledger::{LedgerOptions, SharedLedger};
use crate::kube::workloads::{FAMILIES, Subject, WorkloadOptions, Workloads};
use crate::kube::{
    ApiResource, Client, ClientOptions, Pipeline, PipelineConfig, Timing, WatchedResource,
};
use crate::resources::select::filter::FamilyFilter;
use crate::resources::select::selection::Selection;
use crate::resources::{ObjectBytes, RenderOptions, Renderer, find};
use crate::telemetry::KubeMetrics;
use crate::tests::hash;
use crate::wire::view::{DecodeError, Str, decode, view};

/// The staleness limit (`--staleness-limit`).
pub(super) const STALENESS_LIMIT: Duration = Duration::from_secs(60);
/// The time until a watch has ended, the refusal has been noticed and the request has been repeated once. The server does
/// not end a watch whose permission is revoked.
const DENIAL_NOTICED: Duration = Duration::from_secs(620);
/// No fault starts this close to the end, so each has time to recover.
const MIN_TAIL: Duration = Duration::from_secs(75);

/// The time allowed for the first lists.
const FIRST_LISTS: Duration = Duration::from_secs(10);

/// The time that a history from bytes continues after its last event, so that the first lists and the last changes are
/// certainly exposed.
const TAIL: Duration = Duration::from_secs(12);

/// A fault in a history.
struct ScheduledFault {
    fault: Fault,
    begin: Duration,
    duration: Duration,
    /// True if it belongs to another fault, whose recovery time covers it.
    is_secondary: bool,
}

/// The definition of a history.
pub struct Scenario {
    seed: u64,
    length: Duration,
    http2: bool,
    each_namespace: bool,
    /// All kinds in the cluster, which are also the watched ones.
    kinds: Vec<Kind>,
    events: Vec<ScheduledFault>,
    /// The times of changes and scrapes; random if `None`.
    schedule: Option<Schedule>,
    /// Prints requests and faults.
    pub trace: bool,
}

/// The times of changes, with the seed that determines each change, and of scrapes.
#[derive(Default)]
struct Schedule {
    changes: Vec<(Duration, u64)>,
    scrapes: Vec<Duration>,
}

/// The result of a fault.
pub struct FaultResult {
    pub name: &'static str,
    /// The time from its end (or its start, if the end is not observable) to the last stale scrape.
    pub recovered: Duration,
    /// The age of the oldest state exposed until then.
    pub oldest: Duration,
    /// True if no other fault was active.
    pub isolated: bool,
}

/// The outcome of a history.
pub struct Outcome {
    pub violation: Option<String>,
    pub fault_results: Vec<FaultResult>,
    pub scrapes: usize,
    pub requests: u64,
    /// The number of lists started after the first ten seconds.
    pub relists: u64,
    pub journal: Vec<Entry>,
}

impl Scenario {
    /// Random faults at random times.
    pub fn random(seed: u64, length: Duration) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (http2, each_namespace) = (rng.bool(), rng.u32(0..4) == 0);
        let mut events = Vec::new();
        let (mut at, mut end) = (Duration::from_millis(rng.u64(0..20_000)), length);
        while at < length.saturating_sub(MIN_TAIL) {
            let (fault, duration) = Fault::random(&mut rng);
            if rng.bool() && duration > Duration::ZERO {
                let fault =
                    [Fault::Reset, Fault::Compacted, Fault::Closed][rng.usize(0..3)].clone();
                let begin = at + duration.mul_f64(rng.f64() * 0.5);
                events.push(ScheduledFault {
                    fault,
                    begin,
                    duration: Duration::ZERO,
                    is_secondary: true,
                });
            }
            end = end.max(at + fault.grace(duration) + Duration::from_secs(5));
            events.push(ScheduledFault { fault, begin: at, duration, is_secondary: false });
            at += Duration::from_millis(match rng.u32(0..3) {
                0 => rng.u64(0..5_000),
                1 => rng.u64(0..30_000),
                _ => rng.u64(15_000..60_000),
            });
        }
        let (kinds, schedule, length) = (KINDS.to_vec(), None, end);
        Self { seed, length, http2, each_namespace, kinds, events, schedule, trace: false }
    }

    /// Decodes a history from bytes. The first byte selects transport and kinds. Then follow steps of three bytes: the
    /// type of the step (a change, a scrape or a fault), its variant, and the pause after it. The history is long
    /// enough to recover from all faults.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        /// The maximum number of steps.
        const MAX_STEPS: usize = 40;
        /// The longest interval between scrapes.
        const SCRAPE_INTERVAL: Duration = Duration::from_secs(3);
        let (&header, steps) = bytes.split_first().unwrap_or((&0, &[]));
        let (http2, each_namespace, seed) = (header & 1 == 1, header & 2 == 2, u64::from(header));
        let wanted = |(at, _): &(usize, Kind)| header >> 3 & 1 << at != 0;
        let kinds = KINDS.into_iter().enumerate().filter(wanted);
        let mut kinds: Vec<Kind> = kinds.map(|(_, kind)| kind).collect();
        if kinds.is_empty() {
            kinds = KINDS.to_vec();
        }
        let (mut schedule, mut events) = (Schedule::default(), Vec::new());
        // By then the first lists are complete, unless a fault starts immediately.
        let mut at = Duration::from_millis(if header & 4 == 4 { 1 } else { 500 });
        let mut length = at;
        for step in steps.chunks_exact(3).take(MAX_STEPS) {
            let &[operation, variant, pause] = step else { continue };
            match operation {
                0..96 => {
                    schedule.changes.push((at, u64::from(operation) << 8 | u64::from(variant)))
                }
                96..128 => schedule.scrapes.push(at),
                128.. => {
                    let choice = u32::from(operation & 127) % Fault::CHOICES;
                    let share = if variant & 1 == 0 { 1.0 } else { 0.5 };
                    let mut rng = Rng::with_seed(u64::from(variant));
                    let (fault, duration) = Fault::chosen(choice, share, &mut rng);
                    length = length.max(at + fault.grace(duration));
                    events.push(ScheduledFault { fault, begin: at, duration, is_secondary: false });
                }
            }
            let unit = [1, 30, 200, 1000][usize::from(pause >> 6)];
            at += Duration::from_millis(u64::from(pause & 63) * unit);
        }
        length = length.max(at) + TAIL;
        let mut at = Duration::from_millis(2);
        while at < length {
            schedule.scrapes.push(at);
            at += SCRAPE_INTERVAL;
        }
        // The last scrape must be current.
        schedule.scrapes.push(length);
        let schedule = Some(schedule);
        Self { seed, length, http2, each_namespace, kinds, events, schedule, trace: false }
    }

    /// A history with a single fault.
    pub fn single_fault(seed: u64, http2: bool, fault: Fault, duration: Duration) -> Self {
        let begin = Duration::from_secs(20);
        let length = begin + fault.grace(duration) + Duration::from_secs(15);
        let events = vec![ScheduledFault { fault, begin, duration, is_secondary: false }];
        let (kinds, each_namespace) = (KINDS.to_vec(), seed.is_multiple_of(4));
        Self { seed, length, http2, each_namespace, kinds, events, schedule: None, trace: false }
    }

    /// Two faults at once, of these choices: the second one begins while the first one lasts, or shortly after it.
    pub fn pair_of_faults(one: u32, other: u32) -> Self {
        let seed = u64::from(one * Fault::CHOICES + other);
        let mut rng = Rng::with_seed(seed);
        let chosen = [one, other].map(|choice| Fault::chosen(choice, 1.0, &mut rng));
        // A restore needs an old backup.
        let is_restored = |(fault, _): &(Fault, Duration)| matches!(fault, Fault::Restored { .. });
        let mut begin = Duration::from_secs(if chosen.iter().any(is_restored) { 150 } else { 20 });
        let (mut events, mut length) = (Vec::new(), begin);
        for (fault, duration) in chosen {
            length = length.max(begin + fault.grace(duration) + Duration::from_secs(15));
            events.push(ScheduledFault { fault, begin, duration, is_secondary: false });
            begin += (duration / 2).max(Duration::from_millis(rng.u64(0..2_000)));
        }
        let (http2, each_namespace) = (rng.bool(), rng.u32(0..4) == 0);
        let (kinds, schedule) = (KINDS.to_vec(), None);
        Self { seed, length, http2, each_namespace, kinds, events, schedule, trace: false }
    }

    /// A kind is missing until the server is replaced, without an outage.
    pub fn server_replaced(http2: bool) -> Self {
        let duration = Duration::from_secs(70);
        let other = Duration::from_millis(10);
        let absent = Fault::Absent(Kind::Widget);
        let events = vec![
            ScheduledFault { fault: absent, begin: Duration::ZERO, duration, is_secondary: false },
            ScheduledFault {
                fault: Fault::Reset,
                begin: duration + other,
                duration: Duration::ZERO,
                is_secondary: true,
            },
        ];
        let (kinds, length) = (KINDS.to_vec(), duration + Duration::from_secs(15));
        let (seed, each_namespace) = (1, false);
        Self { seed, length, http2, each_namespace, kinds, events, schedule: None, trace: false }
    }

    /// Disconnects and overloads of a healthy server with 40 changes per second.
    pub fn disconnects(seed: u64, http2: bool) -> Self {
        let millis = Duration::from_millis;
        let mut rng = Rng::with_seed(seed);
        let (mut at, mut events) = (millis(15_000), Vec::new());
        for _ in 0..10 {
            let fault = match rng.u32(0..7) {
                0 => Fault::Reset,
                1 => Fault::Closed,
                2 => Fault::WatchesBroken,
                3 => Fault::Refused,
                4 => Fault::Delayed(millis(rng.u64(20..400))),
                _ => {
                    let share = [0.3, 0.7, 1.0][rng.usize(..3)];
                    Fault::Status { code: 503, retry_after: None, share }
                }
            };
            let duration = match fault {
                Fault::Reset | Fault::Closed | Fault::WatchesBroken => Duration::ZERO,
                _ => millis(rng.u64(500..6_000)),
            };
            // Connections are also cut during longer faults.
            if !duration.is_zero() {
                let begin = at + duration.mul_f64(rng.f64());
                let (fault, duration) = (Fault::Reset, Duration::ZERO);
                events.push(ScheduledFault { fault, begin, duration, is_secondary: true });
            }
            events.push(ScheduledFault { fault, begin: at, duration, is_secondary: false });
            at += duration + millis(rng.u64(500..15_000));
        }
        let length = at + Duration::from_secs(15);
        let mut schedule = Schedule::default();
        let mut time = Duration::ZERO;
        while time < length {
            schedule.changes.push((time, rng.u64(..)));
            if time.subsec_millis().is_multiple_of(500) {
                schedule.scrapes.push(time);
            }
            time += millis(25);
        }
        let (kinds, schedule) = (KINDS.to_vec(), Some(schedule));
        let each_namespace = rng.bool();
        Self { seed, length, http2, each_namespace, kinds, events, schedule, trace: false }
    }

    /// One fault, combined with a reset of all connections and a compaction in the middle.
    pub fn isolated_fault(seed: u64, fault: Fault, duration: Duration) -> Self {
        // A restore needs an old backup.
        let begin =
            Duration::from_secs(if matches!(fault, Fault::Restored { .. }) { 150 } else { 20 });
        let mut events =
            vec![ScheduledFault { fault: fault.clone(), begin, duration, is_secondary: false }];
        for (fault, at) in [(Fault::Reset, 0.1), (Fault::Compacted, 0.2)] {
            if duration > Duration::ZERO && !seed.is_multiple_of(3) {
                let begin = begin + duration.mul_f64(at);
                events.push(ScheduledFault {
                    fault,
                    begin,
                    duration: Duration::ZERO,
                    is_secondary: true,
                });
            }
        }
        let (http2, each_namespace) = (seed.is_multiple_of(2), seed.is_multiple_of(5));
        let length = begin + fault.grace(duration) + Duration::from_secs(5);
        let (kinds, schedule) = (KINDS.to_vec(), None);
        Self { seed, length, http2, each_namespace, kinds, events, schedule, trace: false }
    }
}

view! {
    /// An object of the custom kind.
    pub struct Widget<'a> {
        metadata: ObjectIdentity<'a> = 1 "metadata",
        spec: Spec<'a> = 2 "spec",
    }

    /// The specification of a widget.
    pub struct Spec<'a> {
        state: Str<'a> = 1 "state",
    }
}

/// Renders one series per widget.
struct WidgetRenderer {
    schema: Arc<Schema>,
}

impl Renderer for WidgetRenderer {
    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }

    fn render(&self, object: ObjectBytes<'_>, out: &mut Rendered) -> Result<(), DecodeError> {
        out.clear();
        let Widget { metadata, spec, .. } = decode(object)?;
        out.uid.extend_from_slice(metadata.uid.as_bytes());
        out.resource_version.push_str(&metadata.resource_version);
        out.namespace.extend_from_slice(metadata.namespace.as_bytes());
        out.series = 1;
        let (namespace, name, uid) = (&*metadata.namespace, &*metadata.name, &*metadata.uid);
        let identity = format!("{{namespace=\"{namespace}\",name=\"{name}\",uid=\"{uid}\"");
        out.identity.extend(identity.bytes());
        out.lines.extend(format!("}} {}\n", &*spec.state).bytes());
        out.ends.push(out.lines.len() as u32);
        Ok(())
    }
}

fn watched(kind: Kind) -> WatchedResource {
    if kind == Kind::Widget {
        let api = ApiResource {
            group: "example.com".to_owned(),
            version: "v1".to_owned(),
            plural: kind.plural().to_owned(),
            kind: kind.name().to_owned(),
            namespaced: true,
            protobuf: false,
            label: "widgets".to_owned(),
        };
        let name = "widget_state".to_owned();
        let family = Family { name, help: String::new(), kind: MetricKind::Gauge };
        let schema = Schema { resource: "widgets".to_owned(), families: vec![family] };
        return WatchedResource {
            api,
            renderer: Arc::new(WidgetRenderer { schema: Arc::new(schema) }),
            observers: Vec::new(),
        };
    }
    let families = match kind {
        Kind::ConfigMap => &["kube_configmap_labels", "kube_configmap_metadata_resource_version"],
        Kind::Node => &["kube_node_labels", "kube_node_spec_unschedulable"],
        Kind::Secret => &["kube_secret_labels", "kube_secret_type"],
        _ => &["kube_pod_labels", "kube_pod_status_phase"],
    };
    let families = families.map(|name| format!("^{name}$"));
    let filter = FamilyFilter::new(&families, &[], &[]).expect("patterns");
    let options = RenderOptions {
        labels: Selection::new(&["*".to_owned()]),
        families: Arc::new(filter),
        ..RenderOptions::default()
    };
    WatchedResource::built_in(find(kind.plural()).expect("a resource"), &options)
}

/// Returns the TLS configuration of the server; clients do not verify it.
pub(super) fn tls() -> TlsAcceptor {
    static CONFIG: OnceLock<Arc<ServerConfig>> = OnceLock::new();
    let make = || {
        let certified = rcgen::generate_simple_self_signed(["api.test".to_owned()]);
        let certified = certified.expect("a certificate");
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let mut config = config
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .expect("a pair");
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    };
    Arc::clone(CONFIG.get_or_init(make)).into()
}

fn write_token(server: &Server, folder: &Path) {
    let number = server.token();
    // The length differs each time.
    let text = format!("token-{number}{}", " ".repeat(number as usize % 50));
    std::fs::write(folder.join("token"), text).expect("written");
}

/// Returns a client of the server, with its kubeconfig and token in `folder`.
pub(super) fn connect(server: &Arc<Server>, folder: &Path, http2: bool) -> Client {
    write_token(server, folder);
    let kubeconfig = folder.join("config");
    let url = if http2 { "https://api.test:6443" } else { "http://api.test:8080" };
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: '{url}', insecure-skip-tls-verify: {http2}}}}}]\n\
         users: [{{name: u, user: {{tokenFile: token}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         current-context: x\n",
    );
    std::fs::write(&kubeconfig, text).expect("written");
    let options = ClientOptions {
        kubeconfig: Some(kubeconfig),
        user_agent: "kstatd/test".to_owned(),
        ..ClientOptions::default()
    };
    Client::over(&options, Arc::new(SimulatedNetwork(Arc::clone(server)))).expect("a client")
}

/// Returns the configuration of a pipeline that watches these kinds in these namespaces.
pub(super) fn pipeline_config(kinds: &[Kind], namespaces: &[&str]) -> PipelineConfig {
    PipelineConfig {
        resources: kinds.iter().copied().map(watched).collect(),
        namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
        timing: Timing { staleness_limit: Some(STALENESS_LIMIT), ..Timing::default() },
        ..PipelineConfig::default()
    }
}

/// Runs a future in simulated time.
pub(super) fn in_simulated_time<T>(seed: u64, future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("an event loop");
    fastrand::seed(seed);
    runtime.block_on(future)
}

/// Runs a history in simulated time.
pub fn simulate(scenario: Scenario) -> Outcome {
    in_simulated_time(scenario.seed, run(scenario))
}

/// Returns totals over the pods of namespaces, which observe pods and need no other kind.
fn namespace_totals(catalog: &Catalog, metrics: &KubeMetrics) -> Workloads {
    let families = FAMILIES.iter().filter(|family| family.subject == Subject::Namespace);
    let (families, ledger) = (families.collect(), LedgerOptions::default());
    let options = WorkloadOptions { families, max_series: 0, ledger, is_partial: false };
    let ledger = SharedLedger::new(&options.ledger, catalog, metrics);
    Workloads::new(&options, catalog, metrics, &ledger, None, Shard::ALL)
}

/// Returns the lines of a scrape without totals, and a difference between totals and the pods of the same scrape.
fn without_totals(body: &str) -> (String, Option<String>) {
    let (totals, pods): (Vec<&str>, Vec<&str>) =
        body.lines().partition(|line| line.contains("kstatd_namespace_"));
    let count = |lines: &[&str], name: &str| {
        let mut sums: BTreeMap<(String, String), f64> = BTreeMap::new();
        for line in lines.iter().filter(|line| line.starts_with(name)) {
            let label = |name: &str| {
                let (_, rest) = line.split_once(&format!("{name}=\""))?;
                Some(rest.split_once('"')?.0.to_owned())
            };
            let (Some(namespace), Some(phase)) = (label("namespace"), label("phase")) else {
                continue;
            };
            let value = line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok());
            *sums.entry((namespace, phase)).or_default() += value.unwrap_or(f64::NAN);
        }
        sums
    };
    let (have, want) =
        (count(&totals, "kstatd_namespace_pods{"), count(&pods, "kube_pod_status_phase{"));
    let difference = (have != want).then(|| format!("totals {have:?}, pods {want:?}"));
    (pods.join("\n"), difference)
}

/// The kinds of scheduled actions.
enum Action {
    /// The change that this seed determines, or a random one that schedules the next.
    Change(Option<u64>),
    /// A scrape; if true, it schedules the next.
    Scrape(bool),
    Begin(usize),
    End(usize),
}

/// The time for which a scope has been refused, possibly by several faults in a row.
struct Refusal {
    since: Instant,
    last: Instant,
}

/// Returns the time since which an active fault has refused a scope.
fn refused_since(
    events: &[ScheduledFault],
    lasting: &[(usize, Instant)],
    scope: Scope,
) -> Option<Instant> {
    let is_refusal = |fault: &Fault| match fault {
        Fault::Denied(kind) => *kind == scope.kind,
        Fault::Flapping(flap) => !flap.breaks(scope.kind),
        Fault::Status { code: 401 | 403 | 404, .. } | Fault::TokenReplaced => true,
        _ => false,
    };
    let since = lasting.iter().filter(|(id, _)| is_refusal(&events[*id].fault));
    since.map(|(_, since)| *since).min()
}

/// A fault that has started and whose recovery time is not over.
struct RecoveringFault {
    result: FaultResult,
    from: Instant,
    until: Instant,
}

async fn run(scenario: Scenario) -> Outcome {
    let Scenario { seed, length, http2, each_namespace, kinds, events, schedule, trace } = scenario;
    let mut rng = Rng::with_seed(seed ^ 0x9e37_79b9_7f4a_7c15);
    let server = Server::new(&kinds, &mut rng, http2.then(tls), trace);
    let folder = tempfile::tempdir().expect("a folder");
    let client = connect(&server, folder.path(), http2);
    let namespaces = if each_namespace { &NAMESPACES[..] } else { &[] };
    let mut config = pipeline_config(&kinds, namespaces);
    let (catalog, metrics) = (Catalog::new(), KubeMetrics::default());
    let workloads = namespace_totals(&catalog, &metrics);
    workloads.attach(&mut config.resources);
    let pipeline =
        Pipeline::start_on_this_thread(&client, &config, &catalog, &metrics).expect("a pipeline");

    let start = Instant::now();
    let mut queue: BTreeMap<(Instant, usize), Action> = BTreeMap::new();
    let mut number = 0;
    let mut schedule_action = |queue: &mut BTreeMap<_, _>, at: Instant, action: Action| {
        number += 1;
        queue.insert((at, number), action);
    };
    for (id, event) in events.iter().enumerate() {
        schedule_action(&mut queue, start + event.begin, Action::Begin(id));
    }
    match schedule {
        None => {
            schedule_action(&mut queue, start + Duration::from_millis(1), Action::Change(None));
            schedule_action(&mut queue, start + Duration::from_millis(2), Action::Scrape(true));
        }
        Some(Schedule { changes, scrapes }) => {
            server.cluster().add_backup();
            for (at, seed) in changes {
                schedule_action(&mut queue, start + at, Action::Change(Some(seed)));
            }
            for at in scrapes {
                schedule_action(&mut queue, start + at, Action::Scrape(false));
            }
        }
    }

    let mut checker = Checker::default();
    let mut outcome = Outcome {
        violation: None,
        fault_results: Vec::new(),
        scrapes: 0,
        requests: 0,
        relists: 0,
        journal: Vec::new(),
    };
    let list_watches = if each_namespace { scopes(&kinds).len() } else { kinds.len() };
    let (mut request_limit, mut first_lists) = (RequestLimit::new(list_watches), None);
    // The first lists get the same recovery time as a fault.
    let mut may_be_stale_until = start + FIRST_LISTS;
    let mut pending: Vec<RecoveringFault> = Vec::new();
    let mut lasting: Vec<(usize, Instant)> = Vec::new();
    let mut refusals: BTreeMap<Scope, Refusal> = BTreeMap::new();
    while let Some(((at, _), action)) = queue.pop_first() {
        if at > start + length {
            break;
        }
        sleep_until(at).await;
        let now = Instant::now();
        match action {
            Action::Change(change_seed) => {
                let is_away = |fault: &Fault| {
                    matches!(fault, Fault::Restarted { .. } | Fault::Restored { .. })
                };
                // No changes while the server is down.
                if !lasting.iter().any(|(id, _)| is_away(&events[*id].fault)) {
                    match change_seed {
                        Some(seed) => server.cluster().change(&mut Rng::with_seed(seed)),
                        None => server.cluster().change(&mut rng),
                    }
                }
                if change_seed.is_none() {
                    let wait = if rng.u32(0..10) == 0 { 5_000 } else { 400 };
                    let wait = Duration::from_millis(rng.u64(1..wait));
                    schedule_action(&mut queue, now + wait, Action::Change(None));
                }
            }
            Action::Begin(id) => {
                let ScheduledFault { fault, duration, is_secondary, .. } = &events[id];
                server.begin_fault(id, fault);
                let late = fault.grace(*duration) + RECOVERY;
                request_limit
                    .changed(now + if fault.is_noticed_late() { late } else { Duration::ZERO });
                may_be_stale_until = may_be_stale_until.max(now + fault.grace(*duration));
                if !is_secondary {
                    let isolated = pending.is_empty();
                    pending.iter_mut().for_each(|other| other.result.isolated = false);
                    let (name, zero) = (fault.name(), Duration::ZERO);
                    let result = FaultResult { name, recovered: zero, oldest: zero, isolated };
                    let from = if fault.is_silence() { now } else { now + *duration };
                    pending.push(RecoveringFault {
                        result,
                        from,
                        until: now + fault.grace(*duration),
                    });
                }
                if *duration > Duration::ZERO {
                    lasting.push((id, now));
                }
                schedule_action(&mut queue, now + *duration, Action::End(id));
            }
            Action::End(id) => {
                server.end_fault(id);
                request_limit.changed(now);
                lasting.retain(|(other, _)| *other != id);
                write_token(&server, folder.path());
            }
            Action::Scrape(again) => {
                outcome.scrapes += 1;
                let format = if rng.bool() { Format::Text } else { Format::OpenMetrics };
                let body = catalog.frames(format, &ScrapeQuery::default());
                let body: Vec<u8> = body.flatten().collect();
                let shown =
                    format!("{format:?}, {} bytes with hash {:016x}", body.len(), hash(&body));
                server.note(Topic::Scrape, shown);
                let body = String::from_utf8_lossy(&body);
                let (body, totals_differ) = without_totals(&body);
                for scope in scopes(&kinds) {
                    if let Some(since) = refused_since(&events, &lasting, scope) {
                        let refusal = refusals.entry(scope).or_insert(Refusal { since, last: now });
                        // A shorter gap may fall between two of its requests, so that it is not noticed.
                        if now - refusal.last > RECOVERY {
                            refusal.since = since;
                        }
                        refusal.last = now;
                    }
                }
                let expectation = |scope| {
                    let refusal = refusals.get(&scope).filter(|refusal| refusal.last == now);
                    let since = refusal.map(|refusal| now - refusal.since);
                    let isolated = pending.len() == 1;
                    match since {
                        Some(since) if isolated && since > STALENESS_LIMIT + DENIAL_NOTICED => {
                            Expectation::Empty
                        }
                        Some(since) if since > STALENESS_LIMIT => Expectation::PastOrEmpty,
                        _ if now < may_be_stale_until => Expectation::Past,
                        _ => Expectation::Present,
                    }
                };
                if now >= start + FIRST_LISTS {
                    first_lists.get_or_insert(server.lists());
                }
                let checked = checker.check(&server.cluster().snapshots, &body, now, expectation);
                let checked = totals_differ.map_or(checked, |why| Err(Violation(why)));
                let checked =
                    checked.and_then(|old| request_limit.check(server.requests()).map(|()| old));
                match checked {
                    Ok(old) => {
                        for one in pending.iter_mut() {
                            one.result.oldest = one.result.oldest.max(old);
                            if !old.is_zero() {
                                one.result.recovered = now.saturating_duration_since(one.from);
                            }
                        }
                        let over = pending.extract_if(.., |one| now >= one.until);
                        outcome.fault_results.extend(over.map(|one| one.result));
                    }
                    Err(Violation(why)) => {
                        let faults = events.iter().filter(|event| start + event.begin <= now);
                        let faults: Vec<String> = faults
                            .rev()
                            .take(6)
                            .map(|event| {
                                let (begin, duration) =
                                    (event.begin.as_secs_f64(), event.duration.as_secs_f64());
                                format!("{:?} at {begin:.1} s for {duration:.1} s", event.fault)
                            })
                            .collect();
                        let after = (now - start).as_secs_f64();
                        server.note(Topic::Violation, format!("{why}\n\n{body}"));
                        outcome.violation = Some(format!(
                            "after {after:.1} s {why}\n    after {}",
                            faults.join("\n    ")
                        ));
                        break;
                    }
                }
                if again {
                    let wait = Duration::from_millis(rng.u64(100..900));
                    schedule_action(&mut queue, now + wait, Action::Scrape(true));
                }
            }
        }
    }
    outcome.requests = server.requests();
    outcome.relists = server.lists() - first_lists.unwrap_or_default();
    // A missing recovery would have been a violation.
    outcome.fault_results.extend(pending.into_iter().map(|one| one.result));
    tokio::time::timeout(Duration::from_secs(60), pipeline.stop()).await.expect("it stops");
    outcome.journal = server.take_journal();
    outcome
}
