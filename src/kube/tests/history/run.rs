//! One history: who does what when, and what is asked of each scrape.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::checker::{Checker, Demand, Violation};
use super::cluster::{KINDS, Kind, NAMESPACES, Scope};
use super::faults::Fault;
use super::server::{Server, Way};
use crate::cache::{Catalog, Family, MetricKind, Rendered, Schema};
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::kube::shard::Shard;
use crate::kube::{Client, ClientOptions, Pipeline, PipelineConfig, Target, Timing, Watched};
use crate::resources::select::filter::FamilyFilter;
use crate::resources::select::selection::Selection;
use crate::resources::{ObjectBytes, RenderOptions, Renderer, find};
use crate::telemetry::KubeMetrics;
use crate::wire::view::{DecodeError, Str, decode, view};

/// How long what may not be listed any more is shown.
const STALENESS_LIMIT: Duration = Duration::from_secs(60);
/// Until a watch has ended at which a refusal is noticed, and what is refused has been asked for once more.
const NOTICED: Duration = Duration::from_secs(60);
/// No fault begins so close to the end, so that all that was begun has to be made good.
const CALM: Duration = Duration::from_secs(75);

/// How long a told history goes on behind all that it has: until the first lists, and what comes last, are certainly shown.
const RESTS: Duration = Duration::from_secs(12);

/// A fault in a history.
struct Event {
    fault: Fault,
    begin: Duration,
    lasts: Duration,
    /// Whether it is part of another one, so that much is asked for while that lasts.
    is_part: bool,
}

/// What is to happen.
pub struct Plan {
    seed: u64,
    length: Duration,
    http2: bool,
    each_namespace: bool,
    /// What is followed, and all that there is.
    kinds: Vec<Kind>,
    events: Vec<Event>,
    /// Changes of the cluster, each with the seed that decides what it is, and scrapes; at random where nothing is said.
    course: Option<Course>,
    /// Whether to print what is asked for, and what goes wrong.
    pub trace: bool,
}

/// When what else happens.
#[derive(Default)]
struct Course {
    changes: Vec<(Duration, u64)>,
    scrapes: Vec<Duration>,
}

/// What came of a fault.
pub struct Told {
    pub name: &'static str,
    /// From its end (from its begin where nobody sees an end) to the last scrape that showed anything but the present.
    pub recovered: Duration,
    /// How old the oldest was that a scrape showed until then.
    pub oldest: Duration,
    /// Whether nothing else was wrong meanwhile.
    pub alone: bool,
}

/// What came of a history.
pub struct Outcome {
    pub violation: Option<String>,
    pub told: Vec<Told>,
    pub scrapes: usize,
    pub requests: u64,
}

impl Plan {
    /// Faults of any kind at any time.
    pub fn random(seed: u64, length: Duration) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (http2, each_namespace) = (rng.bool(), rng.u32(0..4) == 0);
        let mut events = Vec::new();
        let mut at = Duration::from_millis(rng.u64(0..20_000));
        while at < length.saturating_sub(CALM) {
            let (fault, lasts) = Fault::random(&mut rng);
            if rng.bool() && lasts > Duration::ZERO {
                let fault =
                    [Fault::Reset, Fault::Compacted, Fault::Closed][rng.usize(0..3)].clone();
                let begin = at + lasts.mul_f64(rng.f64() * 0.5);
                events.push(Event { fault, begin, lasts: Duration::ZERO, is_part: true });
            }
            events.push(Event { fault, begin: at, lasts, is_part: false });
            at += Duration::from_millis(match rng.u32(0..3) {
                0 => rng.u64(0..5_000),
                1 => rng.u64(0..30_000),
                _ => rng.u64(15_000..60_000),
            });
        }
        let (kinds, course) = (KINDS.to_vec(), None);
        Self { seed, length, http2, each_namespace, kinds, events, course, trace: false }
    }

    /// What bytes say: how the server is reached and which kinds it has, then steps of three bytes each: a change, a scrape or a
    /// fault, which one, and how long nothing happens behind it. Faults end in time to be made good.
    pub fn told(bytes: &[u8]) -> Self {
        /// Of one history.
        const STEPS: usize = 40;
        /// Between two scrapes at most.
        const SCRAPES: Duration = Duration::from_secs(3);
        let (&how, steps) = bytes.split_first().unwrap_or((&0, &[]));
        let (http2, each_namespace, seed) = (how & 1 == 1, how & 2 == 2, u64::from(how));
        let wanted = |(at, _): &(usize, Kind)| how >> 3 & 1 << at != 0;
        let kinds = KINDS.into_iter().enumerate().filter(wanted);
        let mut kinds: Vec<Kind> = kinds.map(|(_, kind)| kind).collect();
        if kinds.is_empty() {
            kinds = KINDS.to_vec();
        }
        let (mut course, mut events) = (Course::default(), Vec::new());
        // The first lists are over by then, unless a fault comes at once.
        let mut at = Duration::from_millis(if how & 4 == 4 { 1 } else { 500 });
        let mut length = at;
        for step in steps.chunks_exact(3).take(STEPS) {
            let &[what, which, pause] = step else { continue };
            match what {
                0..96 => course.changes.push((at, u64::from(what) << 8 | u64::from(which))),
                96..128 => course.scrapes.push(at),
                128.. => {
                    let choice = u32::from(what & 127) % Fault::CHOICES;
                    let share = if which & 1 == 0 { 1.0 } else { 0.5 };
                    let mut rng = Rng::with_seed(u64::from(which));
                    let (fault, lasts) = Fault::chosen(choice, share, &mut rng);
                    length = length.max(at + fault.grace(lasts));
                    events.push(Event { fault, begin: at, lasts, is_part: false });
                }
            }
            let unit = [1, 30, 200, 1000][usize::from(pause >> 6)];
            at += Duration::from_millis(u64::from(pause & 63) * unit);
        }
        length = length.max(at) + RESTS;
        let mut at = Duration::from_millis(2);
        while at < length {
            course.scrapes.push(at);
            at += SCRAPES;
        }
        // The last of all is of the present, whatever was before.
        course.scrapes.push(length);
        let course = Some(course);
        Self { seed, length, http2, each_namespace, kinds, events, course, trace: false }
    }

    /// One fault, with the cut of all connections and the loss of old versions in the middle of it.
    pub fn alone(seed: u64, fault: Fault, lasts: Duration) -> Self {
        // A restore needs something to go back to.
        let begin =
            Duration::from_secs(if matches!(fault, Fault::Restored { .. }) { 150 } else { 20 });
        let mut events = vec![Event { fault: fault.clone(), begin, lasts, is_part: false }];
        for (fault, at) in [(Fault::Reset, 0.1), (Fault::Compacted, 0.2)] {
            if lasts > Duration::ZERO && !seed.is_multiple_of(3) {
                let begin = begin + lasts.mul_f64(at);
                events.push(Event { fault, begin, lasts: Duration::ZERO, is_part: true });
            }
        }
        let (http2, each_namespace) = (seed.is_multiple_of(2), seed.is_multiple_of(5));
        let length = begin + fault.grace(lasts) + Duration::from_secs(5);
        let (kinds, course) = (KINDS.to_vec(), None);
        Self { seed, length, http2, each_namespace, kinds, events, course, trace: false }
    }
}

view! {
    /// An object of the custom kind.
    pub struct Widget<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: Spec<'a> = 2 "spec",
    }

    /// Its metadata.
    pub struct Metadata<'a> {
        name: Str<'a> = 1 "name",
        namespace: Str<'a> = 3 "namespace",
        uid: Str<'a> = 5 "uid",
        resource_version: Str<'a> = 6 "resourceVersion",
    }

    /// What it says.
    pub struct Spec<'a> {
        state: Str<'a> = 1 "state",
    }
}

/// One series for each object of the custom kind.
struct Widgets(Arc<Schema>);

impl Renderer for Widgets {
    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.0)
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

fn watched(kind: Kind) -> Watched {
    if kind == Kind::Widget {
        let target = Target {
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
        return Watched { target, renderer: Arc::new(Widgets(Arc::new(schema))) };
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
    Watched::built_in(find(kind.plural()).expect("a resource"), &options)
}

/// What a server that everybody trusts shows of itself.
fn tls() -> TlsAcceptor {
    static CONFIG: OnceLock<Arc<ServerConfig>> = OnceLock::new();
    let make = || {
        let made = rcgen::generate_simple_self_signed(["api.test".to_owned()]);
        let made = made.expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let mut config = config
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a pair");
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    };
    Arc::clone(CONFIG.get_or_init(make)).into()
}

/// Runs a history in a time of its own.
pub fn history(plan: Plan) -> Outcome {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("an event loop");
    fastrand::seed(plan.seed);
    runtime.block_on(run(plan))
}

/// What happens next.
enum Next {
    /// What this seed says, or anything and then another one.
    Change(Option<u64>),
    /// Whether another one follows by itself.
    Scrape(bool),
    Begin(usize),
    End(usize),
}

/// A fault that has begun, until all has to be well again.
struct Pending {
    told: Told,
    from: Instant,
    until: Instant,
}

async fn run(plan: Plan) -> Outcome {
    let Plan { seed, length, http2, each_namespace, kinds, events, course, trace } = plan;
    let mut rng = Rng::with_seed(seed ^ 0x9e37_79b9_7f4a_7c15);
    let server = Server::new(&kinds, &mut rng, http2.then(tls), trace);
    let folder = tempfile::tempdir().expect("a folder");
    let token_file = folder.path().join("token");
    let write_token = |number| {
        std::fs::write(&token_file, format!("token-{number}{}", " ".repeat(number as usize % 50)))
            .expect("written");
    };
    write_token(server.token());
    let kubeconfig = folder.path().join("config");
    let url = if http2 { "https://api.test:6443" } else { "http://api.test:8080" };
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: '{url}', insecure-skip-tls-verify: {http2}}}}}]\n\
         users: [{{name: u, user: {{tokenFile: '{}'}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         current-context: x\n",
        token_file.display()
    );
    std::fs::write(&kubeconfig, text).expect("written");
    let options = ClientOptions {
        kubeconfig: Some(kubeconfig),
        user_agent: "kstatd/test".to_owned(),
        ..ClientOptions::default()
    };
    let client = Client::over(&options, Arc::new(Way(Arc::clone(&server)))).expect("a client");
    let namespaces = if each_namespace { &NAMESPACES[..] } else { &[] };
    let config = PipelineConfig {
        resources: kinds.iter().copied().map(watched).collect(),
        namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
        selector: String::new(),
        shard: Shard::WHOLE,
        object_limit: 0,
        budget: Arc::default(),
        use_apiserver_cache: false,
        timing: Timing { staleness_limit: Some(STALENESS_LIMIT), ..Timing::default() },
    };
    let (catalog, metrics) = (Catalog::new(), KubeMetrics::default());
    let pipeline = Pipeline::start_here(&client, &config, &catalog, &metrics).expect("a pipeline");

    let start = Instant::now();
    let mut queue: BTreeMap<(Instant, usize), Next> = BTreeMap::new();
    let mut number = 0;
    let mut put = |queue: &mut BTreeMap<_, _>, at: Instant, next: Next| {
        number += 1;
        queue.insert((at, number), next);
    };
    for (id, event) in events.iter().enumerate() {
        put(&mut queue, start + event.begin, Next::Begin(id));
    }
    match course {
        None => {
            put(&mut queue, start + Duration::from_millis(1), Next::Change(None));
            put(&mut queue, start + Duration::from_millis(2), Next::Scrape(true));
        }
        Some(Course { changes, scrapes }) => {
            server.cluster().age();
            for (at, seed) in changes {
                put(&mut queue, start + at, Next::Change(Some(seed)));
            }
            for at in scrapes {
                put(&mut queue, start + at, Next::Scrape(false));
            }
        }
    }

    let mut checker = Checker::default();
    let mut outcome = Outcome { violation: None, told: Vec::new(), scrapes: 0, requests: 0 };
    // The first lists are made good in the time of a fault.
    let mut excused = start + Duration::from_secs(10);
    let mut pending: Vec<Pending> = Vec::new();
    let mut lasting: Vec<(usize, Instant)> = Vec::new();
    while let Some(((at, _), next)) = queue.pop_first() {
        if at > start + length {
            break;
        }
        sleep_until(at).await;
        let now = Instant::now();
        match next {
            Next::Change(told) => {
                let is_away = |fault: &Fault| {
                    matches!(fault, Fault::Restarted { .. } | Fault::Restored { .. })
                };
                // A server that is away takes no changes.
                if !lasting.iter().any(|(id, _)| is_away(&events[*id].fault)) {
                    match told {
                        Some(seed) => server.cluster().change(&mut Rng::with_seed(seed)),
                        None => server.cluster().change(&mut rng),
                    }
                }
                if told.is_none() {
                    let wait = if rng.u32(0..10) == 0 { 5_000 } else { 400 };
                    let wait = Duration::from_millis(rng.u64(1..wait));
                    put(&mut queue, now + wait, Next::Change(None));
                }
            }
            Next::Begin(id) => {
                let Event { fault, lasts, is_part, .. } = &events[id];
                server.begin(id, fault);
                excused = excused.max(now + fault.grace(*lasts));
                if !is_part {
                    let alone = pending.is_empty();
                    pending.iter_mut().for_each(|other| other.told.alone = false);
                    let (name, zero) = (fault.name(), Duration::ZERO);
                    let told = Told { name, recovered: zero, oldest: zero, alone };
                    let from = if fault.is_silence() { now } else { now + *lasts };
                    pending.push(Pending { told, from, until: now + fault.grace(*lasts) });
                }
                if *lasts > Duration::ZERO {
                    lasting.push((id, now));
                }
                put(&mut queue, now + *lasts, Next::End(id));
            }
            Next::End(id) => {
                server.end(id);
                lasting.retain(|(other, _)| *other != id);
                write_token(server.token());
            }
            Next::Scrape(again) => {
                outcome.scrapes += 1;
                let format = if rng.bool() { Format::Text } else { Format::OpenMetrics };
                let body = catalog.frames(format, &ScrapeQuery::default());
                let body: Vec<u8> = body.flatten().collect();
                let body = String::from_utf8_lossy(&body);
                let refused = |scope: Scope| {
                    let mut since = lasting.iter().filter_map(|(id, since)| {
                        let is = match &events[*id].fault {
                            Fault::Denied(kind) => *kind == scope.kind,
                            Fault::Status { code: 401 | 403 | 404, .. } | Fault::TokenReplaced => {
                                true
                            }
                            _ => false,
                        };
                        is.then_some(*since)
                    });
                    since.next()
                };
                let demand = |scope| {
                    let since = refused(scope).map(|since| now - since);
                    let alone = pending.len() == 1;
                    match since {
                        Some(since) if alone && since > STALENESS_LIMIT + NOTICED => {
                            Demand::Nothing
                        }
                        Some(since) if since > STALENESS_LIMIT => Demand::PastOrNothing,
                        _ if now < excused => Demand::Past,
                        _ => Demand::Present,
                    }
                };
                let checked = checker.check(&server.cluster().moments, &body, now, demand);
                match checked {
                    Ok(old) => {
                        for one in pending.iter_mut() {
                            one.told.oldest = one.told.oldest.max(old);
                            if !old.is_zero() {
                                one.told.recovered = now.saturating_duration_since(one.from);
                            }
                        }
                        let over = pending.extract_if(.., |one| now >= one.until);
                        outcome.told.extend(over.map(|one| one.told));
                    }
                    Err(Violation(why)) => {
                        let faults = events.iter().filter(|event| start + event.begin <= now);
                        let faults: Vec<String> = faults
                            .rev()
                            .take(6)
                            .map(|event| {
                                let (begin, lasts) =
                                    (event.begin.as_secs_f64(), event.lasts.as_secs_f64());
                                format!("{:?} at {begin:.1} s for {lasts:.1} s", event.fault)
                            })
                            .collect();
                        let after = (now - start).as_secs_f64();
                        outcome.violation = Some(format!(
                            "after {after:.1} s {why}\n    after {}",
                            faults.join("\n    ")
                        ));
                        break;
                    }
                }
                if again {
                    let wait = Duration::from_millis(rng.u64(100..900));
                    put(&mut queue, now + wait, Next::Scrape(true));
                }
            }
        }
    }
    outcome.requests = server.requests();
    // What never was made good would have been a violation.
    outcome.told.extend(pending.into_iter().map(|one| one.told));
    tokio::time::timeout(Duration::from_secs(60), pipeline.stop()).await.expect("it stops");
    outcome
}
