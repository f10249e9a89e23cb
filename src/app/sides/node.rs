//! The node side: connects flags to the kubelet, the API server, the walk and the reader of `/proc`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Response;
use http_body_util::BodyExt;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::kubernetes::Connection;
use super::{
    ConfigStatus, Features, PrepareFuture, ReadinessCondition, Side, SideKind, StartContext, Task,
};
use crate::app::access::access;
use crate::cli::config::Config;
use crate::cli::node::{NodeArgs, PodSource};
use crate::kube::client::Body;
use crate::kube::client::endpoint::{Access, Endpoint};
use crate::kube::{Client, ClientOptions, TransportError};
use crate::node::NodeSource;
use crate::node::host::{Host, ProcessNames};
use crate::node::kubelet::{FetchError, HttpGet, JsonResponse, Pods, PollMetrics, Poller};
use crate::node::status::NodeReporter;
use crate::node::store::Store;
use crate::node::walk::{Walk, WalkConfig, WalkMetrics};
use crate::server::health::{Check, Checks, HealthCheck};
use crate::telemetry::{Recorder, user_agent};
use crate::tools::CommandError;
use crate::util::serial_blocking::SharedRuns;

/// Disk usage of a node's pods, resource usage of its system processes, and pressure.
pub(crate) static NODE: SideKind = SideKind {
    name: "node",
    path: "/metrics/node",
    description: "disk usage of this node's pods, resource usage of its system processes, and pressure",
    protobuf: false,
    disabled_reason: |config| {
        let idle = config.node.as_ref().is_none_or(|args| {
            args.kubelet.is_empty() && !walks_disks(args) && process_names(args).is_empty()
        });
        idle.then_some(
            "The node side is disabled: set --kubelet, --processes, --quotas, --walk or --walk-path",
        )
    },
    files: |config| {
        let options = config.node.as_deref().and_then(api_options);
        options.iter().flat_map(ClientOptions::files).collect()
    },
    names: |config| {
        let names = config.node.iter().flat_map(|_| NodeSource::names());
        names.map(str::to_owned).collect()
    },
    start: |start| Box::pin(NodeSide::start(start)),
};

/// Returns true if this process walks the disks itself.
fn walks_disks(args: &NodeArgs) -> bool {
    args.walk || args.quotas || !args.walk_path.is_empty()
}

/// Returns the options of the API server's client, if pods come from an API server.
fn api_options(args: &NodeArgs) -> Option<ClientOptions> {
    let options = ClientOptions {
        context: None,
        kubeconfig: args.kubeconfig.clone(),
        apiserver: args.apiserver.clone(),
        environment: true,
        user_agent: user_agent(),
    };
    let is_used = !args.kubelet.is_empty() && matches!(args.pods, PodSource::ApiServer);
    Some(options).filter(|options| is_used && options.is_configured())
}

/// The names of the processes to report, which are valid in a resolved configuration.
fn process_names(args: &NodeArgs) -> ProcessNames {
    ProcessNames::new(&args.processes).unwrap_or_default()
}

/// A running node side.
struct NodeSide {
    store: Arc<Store>,
    host: Arc<Host>,
    polls: PollMetrics,
    kubelet: Option<KubeletPoll>,
    walk_metrics: WalkMetrics,
    walk: Option<Arc<Walk>>,
    /// The connection for the next configuration.
    prepared: Option<oneshot::Receiver<Connection>>,
}

/// The task that polls the kubelet.
struct KubeletPoll {
    _task: JoinSet<()>,
    /// True once a complete summary has been received.
    has_summary: watch::Receiver<bool>,
    /// The connection to the API server, if pods come from one, and the client that polls use.
    api_server: Option<(Connection, Arc<ArcSwap<Client>>)>,
}

impl NodeSide {
    async fn start(start: StartContext<'_>) -> Result<Box<dyn Side>, CommandError> {
        let args = start.config.node.as_ref().ok_or("no node side is configured")?;
        let store = Arc::new(Store::new(&args.node, args.compat_ephemeral_storage_names));
        let host = Arc::new(Host::new(args.host_proc.clone(), &process_names(args)));
        let first = Arc::clone(&host);
        // Later readings count from this one.
        tokio::task::spawn_blocking(move || first.read()).await?;
        let polls = PollMetrics::default();
        let kubelet = match args.kubelet.as_str() {
            "" => None,
            url => Some(start_polling(url, args, Arc::clone(&store), polls.clone()).await?),
        };
        let walk_metrics = WalkMetrics::new();
        let walk = walks_disks(args)
            .then(|| Walk::start(walk_config(args), Arc::clone(&store), walk_metrics.clone()));
        let walk = walk.transpose().map_err(|error| format!("cannot walk: {error}"))?;
        let (walk, prepared) = (walk.map(Arc::new), None);
        Ok(Box::new(Self { store, host, polls, kubelet, walk_metrics, walk, prepared }))
    }

    /// Returns the connection to the API server, if pods come from one.
    fn connection(&self) -> Option<&Connection> {
        let (connection, _) = self.kubelet.as_ref()?.api_server.as_ref()?;
        Some(connection)
    }

    fn health(&self) -> Checks {
        let polls = self.polls.clone();
        let poll =
            move || vec![Check { name: "node/kubelet".to_owned(), failure: polls.status().1 }];
        let walk = |walk: &Arc<Walk>| -> HealthCheck {
            let walk = Arc::downgrade(walk);
            Arc::new(move || {
                let is_running = walk.upgrade().is_none_or(|walk| walk.is_running());
                let failure = (!is_running).then(|| "the walk thread has terminated".to_owned());
                vec![Check { name: "node/walk".to_owned(), failure }]
            })
        };
        Checks {
            ready: self.kubelet.iter().map(|_| Arc::new(poll.clone()) as HealthCheck).collect(),
            live: self.walk.iter().map(walk).collect(),
            ..Checks::default()
        }
    }
}

fn walk_config(args: &NodeArgs) -> WalkConfig {
    WalkConfig {
        root: args.host_root.clone(),
        mounts: args.host_mounts.clone(),
        quotas: args.quotas,
        walk: args.walk,
        paths: args.walk_path.clone(),
        calls: args.walk_entries_per_second,
        interval: args.walk_interval,
        memory: usize::try_from(args.walk_memory).unwrap_or(usize::MAX),
        pressure_file: args.host_proc.join("pressure/io"),
    }
}

/// Starts to poll the kubelet.
async fn start_polling(
    url: &str,
    args: &NodeArgs,
    store: Arc<Store>,
    polls: PollMetrics,
) -> Result<KubeletPoll, CommandError> {
    let access: Access = access(args.access.clone())?.or_service_account();
    let endpoint = Endpoint::new(url, access);
    let endpoint = endpoint.map_err(|error| format!("--kubelet={url}: {error}"))?;
    let endpoint = Arc::new(endpoint);
    let kubelet: HttpGet = Arc::new(move |path| {
        let endpoint = Arc::clone(&endpoint);
        Box::pin(async move {
            json_response(endpoint.get_at(&path, "application/json", "identity").await)
        })
    });
    let api_server = match api_options(args) {
        Some(options) => {
            let connection = Connection::open(options, None).await?;
            let client = Arc::new(ArcSwap::new(Arc::clone(&connection.client)));
            Some((connection, client))
        }
        None => None,
    };
    let client = api_server.as_ref().map(|(_, client)| Arc::clone(client));
    let pods = match (&args.pods, client) {
        (PodSource::Nobody, _) => None,
        (PodSource::Kubelet, _) => {
            Some(Pods { server: Arc::clone(&kubelet), is_api_server: false })
        }
        (PodSource::ApiServer, Some(client)) => {
            let server: HttpGet = Arc::new(move |path| {
                let client = client.load_full();
                Box::pin(
                    async move { json_response(client.get(&path, "application/json", None).await) },
                )
            });
            Some(Pods { server, is_api_server: true })
        }
        (PodSource::ApiServer, None) => {
            tracing::info!(
                "Pod limits and owners are unavailable: set --kubeconfig, --apiserver or KUBECONFIG, run in a pod with a service account, or use --pods=kubelet"
            );
            None
        }
    };
    let (first, has_summary) = watch::channel(false);
    let mut task = JoinSet::new();
    let (interval, deadline) = (args.interval, args.timeout);
    task.spawn(Poller { store, kubelet, pods, interval, deadline, polls }.run(first));
    Ok(KubeletPoll { _task: task, has_summary, api_server })
}

fn json_response(
    response: Result<Response<Body>, TransportError>,
) -> Result<JsonResponse, FetchError> {
    let failed = |error: &dyn std::fmt::Display| FetchError(error.to_string());
    let response = response.map_err(|error| failed(&error))?;
    Ok(response.map(|body| body.map_err(move |error| failed(&error)).boxed_unsync()))
}

impl Side for NodeSide {
    fn features(&self) -> Features {
        let (store, host, polls) = (&self.store, &self.host, self.polls.clone());
        let mut telemetry = Recorder::default();
        if self.kubelet.is_some() {
            polls.register(&mut telemetry);
        }
        host.metrics.register(&mut telemetry);
        if self.walk.is_some() {
            self.walk_metrics.register(&mut telemetry);
        }
        let condition = |kubelet: &KubeletPoll| {
            let mut has_summary = kubelet.has_summary.clone();
            let met = Box::pin(async move {
                let _ = has_summary.wait_for(|has_summary| *has_summary).await;
            });
            ReadinessCondition { description: "the kubelet's first summary", met }
        };
        Features {
            source: Arc::new(NodeSource {
                store: Arc::clone(store),
                host: Arc::clone(host),
                readings: SharedRuns::default(),
            }),
            first_sync: None,
            series: None,
            telemetry,
            ready: self.kubelet.as_ref().map(condition),
            liveness: None,
            health: self.health(),
            reporter: Arc::new(NodeReporter {
                store: Arc::clone(store),
                polls,
                host: Arc::clone(host),
            }),
            lines: None,
            reviews: None,
            file_reload: None,
            abort: None,
        }
    }

    fn prepare(&mut self, config: &Config) -> Result<Option<PrepareFuture>, CommandError> {
        let options = config.node.as_deref().and_then(api_options);
        let Some((current, options)) = self.connection().zip(options) else { return Ok(None) };
        let (opening, prepared) = current.clone().reopen(options);
        self.prepared = Some(prepared);
        Ok(Some(opening))
    }

    fn reload(&mut self, config: &Config) -> Result<(), CommandError> {
        let prepared = self.prepared.take().and_then(|mut prepared| prepared.try_recv().ok());
        let kubelet = self.kubelet.as_mut();
        let api_server = kubelet.and_then(|kubelet| kubelet.api_server.as_mut());
        if let Some((prepared, (connection, client))) = prepared.zip(api_server) {
            client.store(Arc::clone(&prepared.client));
            *connection = prepared;
        }
        if let Some(args) = &config.node {
            self.host.set_names(&process_names(args));
        }
        Ok(())
    }

    fn status(&self) -> ConfigStatus {
        let rejected = self.connection().and_then(|connection| connection.rejected.clone());
        ConfigStatus { in_force: true, rejected }
    }

    fn stop(self: Box<Self>) -> Task<'static, ()> {
        Box::pin(async move { drop(self) })
    }
}
