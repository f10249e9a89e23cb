//! The layout of the synthetic cluster: its workloads, and their pods, nodes and namespaces. Generated once from a
//! seed and never changed; mutable state is in [`Item`].

use super::random::{Random, hex, mix, suffix, uuid};

const DOMAINS: [&str; 20] = [
    "accounts",
    "billing",
    "catalog",
    "checkout",
    "delivery",
    "fraud",
    "identity",
    "inventory",
    "ledger",
    "media",
    "messaging",
    "orders",
    "payments",
    "pricing",
    "profile",
    "search",
    "shipping",
    "tickets",
    "tracking",
    "wallet",
];
const ROLES: &[&str] = &[
    "api",
    "backend",
    "cache-warmer",
    "consumer",
    "exporter",
    "frontend",
    "gateway",
    "indexer",
    "processor",
    "reporter",
    "scheduler",
    "sync",
    "web",
    "worker",
];
const TEAMS: &[&str] = &["core", "data", "edge", "growth", "infra", "mobile", "platform", "risk"];
const AGENTS: &[&str] = &["node-agent", "log-collector", "network-plugin"];
const SIDECARS: &[&str] = &["istio-proxy", "config-reloader", "metrics-adapter"];
const CPU: &[(&str, &str)] = &[("50m", "200m"), ("100m", "500m"), ("250m", "1"), ("500m", "2")];
const MEMORY: &[(&str, &str)] =
    &[("64Mi", "128Mi"), ("128Mi", "256Mi"), ("256Mi", "512Mi"), ("512Mi", "1Gi")];

/// Replica sets of a deployment: the current one and those of earlier rollouts.
pub const REVISIONS: u32 = 3;
/// Jobs kept of each cron job.
const JOBS_KEPT: u32 = 3;

/// The controller of a workload's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// A Deployment and its ReplicaSets.
    Deployment,
    /// A StatefulSet; each of its pods has a claim.
    StatefulSet,
    /// A DaemonSet.
    DaemonSet,
    /// A Job that the cron job of this number created.
    Job {
        /// Index of the cron job.
        cron_job: u32,
    },
}

/// A group of identical pods.
#[derive(Debug)]
pub struct Workload {
    /// The controller of its pods.
    pub controller: Controller,
    /// Index of its namespace.
    pub namespace: u32,
    /// Its name.
    pub name: String,
    /// Value of `app.kubernetes.io/part-of`.
    pub part_of: &'static str,
    /// Value of `team`.
    pub team: &'static str,
    /// Pods wanted.
    pub replicas: u32,
    /// The slot of its first pod, counted over all pods of the cluster.
    pub first_slot: u32,
    /// Seconds since 1970 of its creation.
    pub created: i64,
    /// Hash of its pod template.
    pub hash: String,
    /// Checksum annotation of its pod template.
    pub checksum: String,
    /// Its containers.
    pub containers: Vec<Container>,
    /// Fields in its pods owned by the controller manager, as in `managedFields`.
    pub spec_fields: String,
}

/// A container of a workload's pods.
#[derive(Debug)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Image with tag.
    pub image: String,
    /// Image with digest.
    pub image_id: String,
    /// Request and limit of CPU.
    pub cpu: (&'static str, &'static str),
    /// Request and limit of memory.
    pub memory: (&'static str, &'static str),
    /// Its port.
    pub port: u32,
    /// Environment.
    pub environment: Vec<(&'static str, String)>,
}

/// The layout of the whole cluster.
#[derive(Debug)]
pub struct Layout {
    /// The seed.
    pub seed: u64,
    /// Unix time of the initial state, in seconds.
    pub epoch: i64,
    /// Number of nodes.
    pub nodes: u32,
    /// Names of the namespaces.
    pub namespaces: Vec<String>,
    /// All workloads.
    pub workloads: Vec<Workload>,
    /// Names of the cron jobs, each with the index of its namespace.
    pub cron_jobs: Vec<(u32, String)>,
    /// Number of pods.
    pub pods: u32,
    /// Fields in every pod owned by the kubelet.
    pub status_fields: String,
    /// True if pods have addresses in 127.0.0.0/8.
    pub local_pods: bool,
}

/// The state of one object: its identity, and its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Index of the object within its kind.
    pub index: u32,
    /// Index of its workload, for kinds that have one.
    pub workload: u32,
    /// Number of earlier objects in this slot.
    pub incarnation: u32,
    /// Restarts of a pod's containers.
    pub restarts: u32,
    /// The phase of a pod.
    pub phase: Phase,
    /// Number of changes.
    pub revision: u32,
    /// Resource version.
    pub resource_version: u64,
    /// Seconds since 1970 of its creation.
    pub created: i64,
    /// Seconds since 1970 of its last change.
    pub changed: i64,
}

/// The phase in a pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not bound to a node yet.
    Pending,
    /// Bound, containers not started.
    Creating,
    /// Running and ready.
    Running,
    /// Running, a readiness probe fails.
    NotReady,
    /// A container waits for its next restart.
    CrashLoop,
    /// All containers succeeded.
    Succeeded,
    /// Evicted from its node.
    Failed,
}

impl Layout {
    /// Creates the layout of a seed with exactly `pods` pods and the initial state at `epoch` (Unix seconds).
    pub fn new(pods: u32, seed: u64, epoch: i64) -> Self {
        let nodes = (pods / 30).max(3);
        let mut namespaces: Vec<String> =
            ["default", "kube-node-lease", "kube-system"].map(str::to_owned).into();
        namespaces.extend((0..(pods / 100).max(1)).map(|at| {
            let (domain, round) = cycle(at, &DOMAINS);
            format!("{domain}-{round}")
        }));
        let mut layout = Self {
            seed,
            epoch,
            nodes,
            namespaces,
            workloads: Vec::new(),
            cron_jobs: Vec::new(),
            pods: 0,
            status_fields: status_fields(),
            local_pods: false,
        };
        let mut random = Random::new(seed);
        for agent in AGENTS.iter().take((pods / 10 / nodes) as usize) {
            layout.add(&mut random, Controller::DaemonSet, 2, (*agent).to_owned(), nodes);
        }
        for at in 0..pods / 50 / JOBS_KEPT {
            let name = format!("{}-report-{at}", cycle(at, &DOMAINS).0);
            let namespace = layout.some_namespace(&mut random);
            layout.cron_jobs.push((namespace, name.clone()));
            for run in 0..JOBS_KEPT {
                let scheduled = epoch / 60 - i64::from(run) * 60;
                let controller = Controller::Job { cron_job: at };
                layout.add(&mut random, controller, namespace, format!("{name}-{scheduled}"), 1);
            }
        }
        for at in 0..pods * 6 / 100 / 3 {
            let name = format!("{}-db-{at}", cycle(at, &DOMAINS).0);
            let namespace = layout.some_namespace(&mut random);
            layout.add(&mut random, Controller::StatefulSet, namespace, name, 3);
        }
        for at in 0.. {
            let left = pods - layout.pods;
            if left == 0 {
                break;
            }
            let (role, round) = cycle(at / DOMAINS.len() as u32, ROLES);
            let name = match round {
                0 => format!("{}-{role}", cycle(at, &DOMAINS).0),
                _ => format!("{}-{role}-v{}", cycle(at, &DOMAINS).0, round + 1),
            };
            let replicas = random.between(1, 19).min(left);
            let namespace = layout.some_namespace(&mut random);
            layout.add(&mut random, Controller::Deployment, namespace, name, replicas);
        }
        layout
    }

    fn some_namespace(&self, random: &mut Random) -> u32 {
        3 + random.below(self.namespaces.len() as u32 - 3)
    }

    fn add(
        &mut self,
        random: &mut Random,
        controller: Controller,
        namespace: u32,
        name: String,
        replicas: u32,
    ) {
        let job = matches!(controller, Controller::Job { .. });
        let age = if job { 3_600 } else { random.between(86_400, 200 * 86_400) };
        let containers = containers(random, &name, job);
        self.workloads.push(Workload {
            controller,
            namespace,
            part_of: random.pick(&DOMAINS),
            team: random.pick(TEAMS),
            replicas,
            first_slot: self.pods,
            created: self.epoch - i64::from(age),
            hash: suffix(random.next(), 10),
            checksum: hex(random.next(), 64),
            spec_fields: spec_fields(&containers),
            containers,
            name,
        });
        self.pods += replicas;
    }

    /// Returns the workload with this index.
    pub fn workload(&self, index: u32) -> &Workload {
        &self.workloads[index as usize]
    }

    /// Returns the namespace with this index.
    pub fn namespace(&self, index: u32) -> &str {
        &self.namespaces[index as usize]
    }

    /// Returns the workloads that pass `keep`, with their indices.
    pub fn workloads_of(
        &self,
        keep: impl Fn(&Workload) -> bool,
    ) -> impl Iterator<Item = (u32, &Workload)> {
        self.workloads
            .iter()
            .enumerate()
            .filter_map(move |(index, workload)| keep(workload).then_some((index as u32, workload)))
    }

    /// Name of a node.
    pub fn node_name(&self, node: u32) -> String {
        format!("node-{node:05}")
    }

    /// Address of a node.
    pub fn node_ip(&self, node: u32) -> String {
        format!("10.{}.{}.{}", 16 + (node >> 16), node >> 8 & 255, node & 255)
    }

    /// Address of the pod in this slot.
    pub fn pod_ip(&self, slot: u32) -> String {
        let network = if self.local_pods { 127 } else { 10 };
        format!("{network}.{}.{}.{}", 64 + (slot >> 16 & 127), slot >> 8 & 255, slot & 255)
    }

    /// The node of the pod in this slot.
    pub fn node_of(&self, workload: &Workload, slot: u32) -> u32 {
        match workload.controller {
            Controller::DaemonSet => slot - workload.first_slot,
            _ => (mix(self.seed ^ u64::from(slot)) % u64::from(self.nodes)) as u32,
        }
    }

    /// Returns 64 bits that identify one object.
    pub fn identity(&self, resource: &str, index: u32, incarnation: u32) -> u64 {
        // FNV-1a over the name distinguishes kinds.
        let kind = resource.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        mix(self.seed ^ kind ^ mix(u64::from(index) << 32 | u64::from(incarnation)))
    }

    /// The UID of one object.
    pub fn uid(&self, resource: &str, index: u32, incarnation: u32) -> String {
        uuid(self.identity(resource, index, incarnation))
    }
}

impl Item {
    /// Creates an object in its initial state; the world sets its version.
    pub fn new(index: u32, workload: u32, created: i64) -> Self {
        Self {
            index,
            workload,
            incarnation: 0,
            restarts: 0,
            phase: Phase::Running,
            revision: 0,
            resource_version: 0,
            created,
            changed: created,
        }
    }
}

/// Returns the word at this index of an endless repetition, and the number of the repetition.
fn cycle(at: u32, words: &'static [&'static str]) -> (&'static str, u32) {
    let len = words.len() as u32;
    (words[(at % len) as usize], at / len)
}

fn containers(random: &mut Random, workload: &str, job: bool) -> Vec<Container> {
    let count = if job { 1 } else { [1, 1, 1, 1, 1, 1, 1, 2][random.below(8) as usize] };
    let mut containers = Vec::with_capacity(count);
    for at in 0..count {
        let name = if at == 0 { "app".to_owned() } else { SIDECARS[at % 3].to_owned() };
        let repository = match at {
            0 => format!("registry.example.com/{}/{workload}", random.pick(TEAMS)),
            _ => format!("registry.example.com/platform/{name}"),
        };
        let tag = format!("v{}.{}.{}", random.below(4), random.below(30), random.below(12));
        containers.push(Container {
            image: format!("{repository}:{tag}"),
            image_id: format!("{repository}@sha256:{}", hex(random.next(), 64)),
            cpu: CPU[random.below(4) as usize],
            memory: MEMORY[random.below(4) as usize],
            port: 8080 + at as u32,
            environment: environment(random, workload),
            name,
        });
    }
    containers
}

fn environment(random: &mut Random, workload: &str) -> Vec<(&'static str, String)> {
    let internal = |kind: &str, domain: &str| format!("{domain}-{kind}.internal.example.com");
    vec![
        ("ALLOWED_ORIGINS", DOMAINS.map(|name| format!("https://{name}.example.com")).join(",")),
        ("AWS_REGION", "eu-west-1".to_owned()),
        ("CACHE_HOST", internal("cache", random.pick(&DOMAINS))),
        ("CACHE_TTL", format!("{}s", random.between(5, 600))),
        ("DATABASE_HOST", internal("db", random.pick(&DOMAINS))),
        ("DATABASE_NAME", workload.to_owned()),
        ("DATABASE_POOL_SIZE", random.between(5, 50).to_string()),
        ("FEATURE_FLAGS", format!("new-checkout,fast-path,{}", hex(random.next(), 12))),
        ("GOMAXPROCS", random.between(1, 8).to_string()),
        ("HTTP_LISTEN_ADDRESS", "0.0.0.0:8080".to_owned()),
        (
            "JAVA_TOOL_OPTIONS",
            concat!(
                "-XX:MaxRAMPercentage=75.0 -XX:+UseZGC -XX:+ExitOnOutOfMemoryError ",
                "-XX:+HeapDumpOnOutOfMemoryError -XX:HeapDumpPath=/tmp ",
                "-Dcom.sun.management.jmxremote.port=9010 ",
                "-Dcom.sun.management.jmxremote.authenticate=false ",
                "-javaagent:/otel/opentelemetry-javaagent.jar",
            )
            .to_owned(),
        ),
        ("KAFKA_BROKERS", "kafka-0.kafka:9092,kafka-1.kafka:9092,kafka-2.kafka:9092".to_owned()),
        ("KAFKA_GROUP", format!("{workload}-{}", random.between(1, 4))),
        ("LOG_FORMAT", "json".to_owned()),
        ("LOG_LEVEL", random.pick(&["info", "debug", "warn"]).to_owned()),
        ("METRICS_LISTEN_ADDRESS", "0.0.0.0:9080".to_owned()),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel-collector.monitoring.svc:4317".to_owned()),
        ("OTEL_SERVICE_NAME", workload.to_owned()),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio".to_owned()),
        ("REQUEST_TIMEOUT", format!("{}s", random.between(1, 30))),
        (
            "ROUTES",
            DOMAINS.map(|name| format!("/{name}/=http://{name}-api.{name}-0.svc:80")).join(";"),
        ),
        ("SESSION_KEY_PATH", "/etc/app/session.key".to_owned()),
        ("UPSTREAM_URL", format!("https://{}", internal("api", random.pick(&DOMAINS)))),
    ]
}

/// The fields of a pod set by a controller manager, in the notation of server-side apply.
fn spec_fields(containers: &[Container]) -> String {
    let mut text = concat!(
        r#"{"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{},"f:logs.example.com/pipeline":{},"f:prometheus.io/port":{},"#,
        r#""f:prometheus.io/scrape":{}},"f:generateName":{},"f:labels":{".":{},"f:app":{},"#,
        r#""f:app.kubernetes.io/name":{},"f:app.kubernetes.io/part-of":{},"f:pod-template-hash":{},"#,
        r#""f:team":{},"f:version":{}},"f:ownerReferences":{".":{}}},"f:spec":{"f:affinity":{},"#,
        r#""f:containers":{"#,
    )
    .to_owned();
    for (at, container) in containers.iter().enumerate() {
        text.push_str(if at == 0 { "" } else { "," });
        text.push_str(&format!(
            concat!(r#""k:{{\"name\":\"{}\"}}":{{".":{{}},"f:args":{{}},"f:env":{{".":{{}}"#,),
            container.name
        ));
        for (name, _) in &container.environment {
            text.push_str(&format!(
                r#","k:{{\"name\":\"{name}\"}}":{{".":{{}},"f:name":{{}},"f:value":{{}}}}"#
            ));
        }
        text.push_str(concat!(
            r#"},"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{".":{},"#,
            r#""f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"#,
            r#""f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"f:name":{},"#,
            r#""f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"#,
            r#""f:containerPort":{},"f:name":{},"f:protocol":{}}},"f:readinessProbe":{".":{},"#,
            r#""f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"#,
            r#""f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"#,
            r#""f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}},"f:requests":"#,
            r#"{".":{},"f:cpu":{},"f:memory":{}}},"f:securityContext":{},"#,
            r#""f:terminationMessagePath":{},"f:terminationMessagePolicy":{},"f:volumeMounts":"#,
            r#"{".":{},"k:{\"mountPath\":\"/etc/app\"}":{".":{},"f:mountPath":{},"f:name":{},"#,
            r#""f:readOnly":{}}}}"#,
        ));
    }
    text.push_str(concat!(
        r#"},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"#,
        r#""f:securityContext":{},"f:serviceAccount":{},"f:serviceAccountName":{},"#,
        r#""f:terminationGracePeriodSeconds":{},"f:volumes":{".":{},"k:{\"name\":\"config\"}":"#,
        r#"{".":{},"f:configMap":{".":{},"f:defaultMode":{},"f:name":{}},"f:name":{}},"#,
        r#""k:{\"name\":\"tmp\"}":{".":{},"f:emptyDir":{},"f:name":{}}}}}"#,
    ));
    text
}

/// The fields of a pod set by a kubelet.
fn status_fields() -> String {
    let mut text = r#"{"f:status":{"f:conditions":{"#.to_owned();
    for kind in ["PodReadyToStartContainers", "ContainersReady", "Initialized", "Ready"] {
        text.push_str(&format!(
            concat!(
                r#""k:{{\"type\":\"{}\"}}":{{".":{{}},"f:lastProbeTime":{{}},"#,
                r#""f:lastTransitionTime":{{}},"f:observedGeneration":{{}},"f:status":{{}},"#,
                r#""f:type":{{}}}},"#,
            ),
            kind
        ));
    }
    text.pop();
    text.push_str(concat!(
        r#"},"f:containerStatuses":{},"f:hostIP":{},"f:hostIPs":{},"f:observedGeneration":{},"#,
        r#""f:phase":{},"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"10.64.0.1\"}":{".":{},"#,
        r#""f:ip":{}}},"f:startTime":{}}}"#,
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_pods_asked_for() {
        for pods in [0, 1, 29, 50, 1_000, 10_000] {
            let layout = Layout::new(pods, 1, 1_800_000_000);
            let sum: u32 = layout.workloads.iter().map(|workload| workload.replicas).sum();
            assert_eq!((sum, layout.pods), (pods, pods));
        }
    }

    #[test]
    fn fields_are_json() {
        let layout = Layout::new(200, 1, 1_800_000_000);
        for workload in &layout.workloads {
            serde_json::from_str::<serde_json::Value>(&workload.spec_fields).unwrap();
        }
        serde_json::from_str::<serde_json::Value>(&layout.status_fields).unwrap();
    }

    #[test]
    fn names_are_unique_in_a_namespace() {
        let layout = Layout::new(20_000, 1, 1_800_000_000);
        let mut seen = std::collections::HashSet::new();
        for workload in &layout.workloads {
            assert!(seen.insert((workload.namespace, &workload.name)), "{}", workload.name);
        }
        let mut namespaces = layout.namespaces.clone();
        namespaces.sort();
        namespaces.dedup();
        assert_eq!(namespaces.len(), layout.namespaces.len());
    }
}
