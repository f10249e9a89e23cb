//! The node's side of a run: flags to servers and a plan, and what can be asked of it.

use std::sync::Arc;

use http::Response;
use http_body_util::BodyExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Awaited, Health, Kind, Side, Start, Task};
use crate::app::access::access;
use crate::cli::node::{NodeArgs, PodSource};
use crate::exposition::Source;
use crate::kube::client::Body;
use crate::kube::client::endpoint::{Access, Endpoint};
use crate::kube::{Client, ClientOptions};
use crate::node::kubelet::{self, Answer, Ask, Asking, Pods, Polls, Rhythm};
use crate::node::store::Store;
use crate::node::walk::{Cost, Plan, Walk};
use crate::node::{families, report};
use crate::server::health::Check;
use crate::status::{Facts, Reporter};
use crate::telemetry::{Recorder, VERSION};

/// What the pods of a node hold on its disks.
pub(crate) static NODE: Kind = Kind {
    name: "node",
    path: "/metrics/node",
    about: "what the pods of this node hold on its disks",
    protobuf: false,
    off: |config| {
        let idle = config.node.as_ref().is_none_or(|args| args.kubelet.is_empty() && !walks(args));
        idle.then_some("the node's side is off: there is nobody to ask and nothing to walk")
    },
    files: |_| Vec::new(),
    names: |config| {
        let names = config.node.iter().flat_map(|_| families::names());
        names.map(str::to_owned).collect()
    },
    start: |start| Box::pin(NodeSide::start(start)),
};

/// Whether the disks are looked at by this process itself.
fn walks(args: &NodeArgs) -> bool {
    args.walk || args.quotas || !args.walk_path.is_empty()
}

/// A running side.
struct NodeSide {
    store: Arc<Store>,
    polls: Polls,
    /// The task that asks the kubelet, and whether it had a whole answer.
    asking: Option<(JoinHandle<()>, watch::Receiver<bool>)>,
    cost: Cost,
    walk: Option<Arc<Walk>>,
}

impl NodeSide {
    async fn start(start: Start<'_>) -> Result<Box<dyn Side>, String> {
        let args = start.config.node.as_ref().ok_or("no node's side is configured")?;
        let store = Arc::new(Store::new(&args.node, args.compat_ephemeral_storage_names));
        let polls = Polls::default();
        let asking = match args.kubelet.as_str() {
            "" => None,
            url => Some(ask(url, args, Arc::clone(&store), polls.clone()).await?),
        };
        let cost = Cost::default();
        let walk = walks(args).then(|| Walk::start(plan(args), Arc::clone(&store), cost.clone()));
        let walk = walk.transpose().map_err(|error| format!("cannot walk: {error}"))?;
        Ok(Box::new(Self { store, polls, asking, cost, walk: walk.map(Arc::new) }))
    }
}

fn plan(args: &NodeArgs) -> Plan {
    Plan {
        root: args.host_root.clone(),
        mounts: args.host_mounts.clone(),
        quotas: args.quotas,
        walk: args.walk,
        paths: args.walk_path.clone(),
        calls: args.walk_entries_per_second,
        bytes: args.walk_bytes_per_second,
        interval: args.walk_interval,
        passes: args.walk_reread_passes,
        pressure: args.walk_io_pressure,
        pressure_file: args.walk_pressure_file.clone(),
    }
}

/// Begins to ask the kubelet.
async fn ask(
    url: &str,
    args: &NodeArgs,
    store: Arc<Store>,
    polls: Polls,
) -> Result<(JoinHandle<()>, watch::Receiver<bool>), String> {
    let user_agent = format!("kstatd/{VERSION}");
    let access: Access = access(args.access.clone())?.or_service_account();
    let endpoint = Endpoint::new(url, access, &user_agent);
    let endpoint = endpoint.map_err(|error| format!("--kubelet={url}: {error}"))?;
    let kubelet: Arc<dyn Ask> = Arc::new(Kubelet(endpoint));
    let pods = match args.pods {
        PodSource::Nobody => None,
        PodSource::Kubelet => Some(Pods { server: Arc::clone(&kubelet), is_api_server: false }),
        PodSource::ApiServer => {
            let options = ClientOptions {
                kubeconfig: args.kubeconfig.clone(),
                apiserver: args.apiserver.clone(),
                environment: true,
                user_agent,
            };
            if options.is_configured() {
                let client = Client::new(&options).await.map_err(|error| error.to_string())?;
                Some(Pods { server: Arc::new(ApiServer(client)), is_api_server: true })
            } else {
                tracing::info!(
                    "limits and owners are not known: set --kubeconfig, --apiserver or KUBECONFIG, run in a pod with \
                     a service account, or ask the kubelet for them with --pods=kubelet"
                );
                None
            }
        }
    };
    let rhythm = Rhythm { interval: args.interval, deadline: args.timeout };
    let (first, whole) = watch::channel(false);
    let task = tokio::spawn(kubelet::poll(store, kubelet, pods, rhythm, polls, first));
    Ok((task, whole))
}

struct Kubelet(Endpoint);

impl Ask for Kubelet {
    fn ask<'a>(&'a self, path: &'a str) -> Asking<'a> {
        Box::pin(
            async move { Ok(answer(self.0.get_at(path, "application/json", "identity").await?)) },
        )
    }
}

struct ApiServer(Client);

impl Ask for ApiServer {
    fn ask<'a>(&'a self, path: &'a str) -> Asking<'a> {
        Box::pin(async move { Ok(answer(self.0.get(path, "application/json", None).await?)) })
    }
}

fn answer(response: Response<Body>) -> Answer {
    response.map(|body| body.map_err(|error| error.to_string()).boxed_unsync())
}

/// Tells the status page of it.
struct NodeReport(Arc<Store>, Polls);

impl Reporter for NodeReport {
    fn report(&self, facts: &mut Facts) {
        facts.node = Some(report::facts(&self.0, &self.1, facts.at));
    }
}

impl Side for NodeSide {
    fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.store) as _
    }

    fn telemetry(&self, recorder: &mut Recorder) {
        if self.asking.is_some() {
            self.polls.register(recorder);
        }
        if self.walk.is_some() {
            self.cost.register(recorder);
        }
    }

    fn reporter(&self) -> Option<Arc<dyn Reporter>> {
        Some(Arc::new(NodeReport(Arc::clone(&self.store), self.polls.clone())))
    }

    fn ready(&self) -> Option<Awaited> {
        let (_, whole) = self.asking.as_ref()?;
        let mut whole = whole.clone();
        let done = Box::pin(async move {
            let _ = whole.wait_for(|whole| *whole).await;
        });
        Some(Awaited { what: "the kubelet's first summary", done })
    }

    fn health(&self) -> Option<Health> {
        let (polls, asks) = (self.polls.clone(), self.asking.is_some());
        let ready = move || {
            let name = "node/kubelet".to_owned();
            asks.then(|| Check { name, failure: polls.standing().1 }).into_iter().collect()
        };
        let walk = self.walk.as_ref().map(Arc::downgrade);
        let live = move || {
            let lives = |walk: &std::sync::Weak<Walk>| walk.upgrade().is_none_or(|of| of.lives());
            let check = |lives: bool| Check {
                name: "node/walk".to_owned(),
                failure: (!lives).then(|| "the thread that walks has ended".to_owned()),
            };
            walk.iter().map(lives).map(check).collect()
        };
        Some(Health { ready: Arc::new(ready), live: Arc::new(live) })
    }

    fn stop(self: Box<Self>) -> Task<'static, ()> {
        if let Some((task, _)) = &self.asking {
            task.abort();
        }
        Box::pin(async move { drop(self) })
    }
}
