//! Replicas that run on one simulated clock, and the network between them, with injected faults.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{DuplexStream, duplex};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::super::state::{Shared, Standby, peers_for_log};
use super::super::{answer, group};
use crate::cli::config::{self, Config, Load};
use crate::cli::kube_flags::KubeArgs;
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::kube::client::connection::{Connecting, Network, Stream};
use crate::kube::tests::history::signal::Signal;
use crate::pods::{Pod, PodIndex, Selection};
use crate::server::router::{Call, Unprotected};
use crate::statsd::{Clock, Pipeline, PipelineConfig};

/// The maximum latency of a message, in microseconds.
const LATENCY: u64 = 3_000;

/// The time by which clocks of hosts differ at most, in seconds.
const SKEW: u64 = 3_600;

/// The name of the replicas.
const NAME: &str = "replicas.test:8081";

/// The container that sends all lines, if they get labels of its pod.
pub(super) const CONTAINER: &str = "0c0ffee";

/// A line that does not say who sent it.
pub(super) const PLAIN: &str = "plain:1|c\n";

/// The counts of the lines that a process has applied.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) all: u64,
    /// Those without labels of a pod.
    pub(super) unlabelled: u64,
}

/// A process at an address.
pub(super) struct Process {
    /// A number that no other process of the history has.
    pub(super) number: usize,
    pub(super) standby: Standby,
    pub(super) lines: Arc<Pipeline>,
    pub(super) started: Instant,
    /// The number of shards in its configuration.
    shards: AtomicI64,
    gate: Gate,
    /// Everything it runs, and the other ends of its connections.
    tasks: Vec<AbortHandle>,
}

impl Process {
    pub(super) fn is_frozen(&self) -> bool {
        self.gate.is_frozen.load(Ordering::Relaxed)
    }

    pub(super) fn freeze(&self, is_frozen: bool) {
        self.gate.is_frozen.store(is_frozen, Ordering::Relaxed);
        self.gate.changes.announce();
    }

    /// Returns a future that does not proceed while this process is frozen.
    pub(super) fn gated<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        self.gate.clone().pass(future)
    }

    /// Loads a configuration with this number of shards.
    fn reload(&self, shards: i64) {
        self.shards.store(shards, Ordering::Relaxed);
        self.standby.reload(&configuration(shards));
    }

    fn has_shards(&self, shards: i64) -> bool {
        self.shards.load(Ordering::Relaxed) == shards
    }

    /// Returns what it knows about itself and the others.
    pub(super) fn describe(&self) -> String {
        let state = self.standby.lock();
        let (own, peers) = (&state.election.own, peers_for_log(&state));
        format!("process {}: {own:?}, {peers:?}", self.number)
    }

    /// Returns the addresses of the processes that it knows, itself included.
    fn known(&self) -> BTreeSet<SocketAddr> {
        self.standby.lock().peers.keys().copied().collect()
    }

    fn metrics(&self) -> String {
        let query = ScrapeQuery::default();
        let body: Vec<u8> = self.lines.frames(Format::Text, &query).flatten().collect();
        String::from_utf8(body).expect("UTF-8")
    }

    /// Returns whether lines that do not say who sent them have labels of a pod.
    pub(super) fn has_invented_sender(&self) -> bool {
        self.metrics().lines().any(|line| line.starts_with("plain{"))
    }

    /// Returns the counters of lines, by the number of the process that received them.
    pub(super) fn counts(&self) -> BTreeMap<usize, Counts> {
        let body = self.metrics();
        let mut all: BTreeMap<usize, Counts> = BTreeMap::new();
        for sample in body.lines().filter_map(|line| line.strip_prefix("lines_of_")) {
            let (series, value) = sample.split_once(' ').expect("a value");
            let (number, labels) = series.split_once('{').unwrap_or((series, ""));
            let counts = all.entry(number.parse().expect("a number")).or_default();
            let value: u64 = value.parse().expect("a count");
            counts.all += value;
            counts.unlabelled += if labels.is_empty() { value } else { 0 };
        }
        all
    }
}

/// Keeps a process from running while it is frozen.
#[derive(Clone, Default)]
struct Gate {
    is_frozen: Arc<AtomicBool>,
    changes: Signal,
}

impl Gate {
    /// Polls a future only while the process runs.
    async fn pass<F: Future>(self, future: F) -> F::Output {
        let (mut future, mut changes) = (pin!(future), self.changes.observe());
        loop {
            let changed = changes.changed();
            if self.is_frozen.load(Ordering::Relaxed) {
                changed.await;
                continue;
            }
            tokio::select! {
                biased;
                () = changed => {}
                output = &mut future => return output,
            }
        }
    }
}

/// The number of requests from one address to another.
pub(super) type Requests = BTreeMap<(usize, usize), u64>;

/// Takes the lines that a process has relayed.
type TakeRelayed = Box<dyn FnMut() -> Vec<u8> + Send>;

struct State {
    rng: Rng,
    /// The latencies of each connection: messages at the same moment arrive in any order.
    latencies: BTreeMap<(usize, usize), Rng>,
    begin: Instant,
    /// The process at each address.
    processes: Vec<Option<Process>>,
    /// The pairs of addresses between which packets are lost, the lower one first.
    cut: BTreeSet<(usize, usize)>,
    requests: Requests,
    started: usize,
    /// The number of shards in the configuration that each process is to have.
    shards: i64,
    /// The processes are configured with a name, which has the addresses of those that run.
    is_named: bool,
    /// The name can be resolved.
    is_resolvable: bool,
    /// Take the lines that each process so far has relayed, if they relay.
    relayed: Option<Vec<TakeRelayed>>,
    /// Lines get labels of the pod that sent them.
    is_enriched: bool,
}

/// Returns a configuration of the first of several shards.
fn configuration(shards: i64) -> Config {
    let mut args = KubeArgs { total_shards: shards, ..KubeArgs::default() };
    args.resources.insert("configmaps".to_owned());
    config::kube_state_metrics(&args, Load::First).unwrap_or_else(|error| panic!("{error}"))
}

/// The addresses of a group of replicas.
#[derive(Clone)]
pub(super) struct Group {
    state: Arc<Mutex<State>>,
    /// Announces the ends of cuts.
    healed: Signal,
}

impl Group {
    /// Returns a group without processes, which relay their lines if it `relays`. They find each other by addresses or, if it
    /// `is_named`, by a name.
    pub(super) fn new(size: usize, rng: &mut Rng, relays: bool, is_named: bool) -> Self {
        let processes = (0..size).map(|_| None).collect();
        let (cut, requests, begin) = (BTreeSet::new(), Requests::new(), Instant::now());
        let pairs = (0..size).flat_map(|from| (0..size).map(move |to| (from, to)));
        let latencies = pairs.map(|pair| (pair, rng.fork())).collect();
        let rng = rng.fork();
        let (started, shards, relayed) = (0, 1, relays.then(Vec::new));
        let state = State {
            rng,
            latencies,
            begin,
            processes,
            cut,
            requests,
            started,
            shards,
            is_named,
            is_resolvable: true,
            relayed,
            is_enriched: false,
        };
        Self { state: Arc::new(Mutex::new(state)), healed: Signal::default() }
    }

    /// Gives lines the labels of the pod that sent them, in all processes that start from now on.
    pub(super) fn enrich(&self) {
        self.state().is_enriched = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `with` for the process at an address, if there is one.
    pub(super) fn with<T>(&self, address: usize, with: impl FnOnce(&Process) -> T) -> Option<T> {
        self.state().processes[address].as_ref().map(with)
    }

    pub(super) fn size(&self) -> usize {
        self.state().processes.len()
    }

    /// Returns the addresses at which a process runs.
    pub(super) fn running(&self) -> Vec<usize> {
        let state = self.state();
        (0..state.processes.len()).filter(|at| state.processes[*at].is_some()).collect()
    }

    /// Compares the addresses that each process knows with those of the name, if they have one.
    ///
    /// # Errors
    /// Names a process that knows others.
    pub(super) fn check_addresses(&self) -> Result<(), String> {
        let Some(named) = self.named() else { return Ok(()) };
        let mut processes = Vec::new();
        for at in self.running() {
            processes.extend(self.with(at, |process| (process.number, process.known())));
        }
        match processes.iter().find(|(_, known)| *known != named) {
            Some((number, known)) => {
                Err(format!("process {number} knows {known:?}, the name has {named:?}"))
            }
            None => Ok(()),
        }
    }

    /// Lets the look-ups of the name fail, or succeed again.
    pub(super) fn set_resolvable(&self, is_resolvable: bool) {
        self.state().is_resolvable = is_resolvable;
    }

    /// Returns the addresses of the processes that run, if they have a name.
    fn named(&self) -> Option<BTreeSet<SocketAddr>> {
        let running = self.running().into_iter().map(socket_address);
        self.state().is_named.then(|| running.collect())
    }

    pub(super) fn take_requests(&self) -> Requests {
        std::mem::take(&mut self.state().requests)
    }

    /// Returns the lines that all processes have relayed since the last call; `None` if they do not relay.
    pub(super) fn take_relayed(&self) -> Option<Vec<u8>> {
        self.state().relayed.as_mut().map(|all| all.iter_mut().flat_map(|take| take()).collect())
    }

    /// Starts a process at a free address, which is synced after some time. Returns its number.
    pub(super) fn start(&self, address: usize, sync: Duration) -> usize {
        let mut state = self.state();
        let State {
            rng, processes, started, begin, shards, is_named, relayed, is_enriched, ..
        } = &mut *state;
        *started += 1;
        let number = *started;
        let pods = is_enriched.then(|| Arc::new(pods()));
        let config = PipelineConfig {
            clock: Clock::manual(),
            mirrored: true,
            pods: pods.clone(),
            ..PipelineConfig::default()
        };
        let lines = match relayed {
            Some(relayed) => {
                let (lines, take) = Pipeline::start_relaying(config);
                relayed.push(take);
                lines
            }
            None => Pipeline::start(config).expect("a pipeline without listeners"),
        };
        let lines = Arc::new(lines);
        // Clocks of hosts differ.
        let unix = Duration::from_secs(rng.u64(0..SKEW)) + begin.elapsed();
        let own = group(&configuration(*shards));
        let mut shared = Shared::new(own, unix, None, Some(Arc::clone(&lines)));
        shared.network = Some(Arc::new(Link { from: address, group: self.clone() }));
        let standby = Standby(Arc::new(shared));
        let gate = Gate::default();
        let started = Instant::now();
        let is_synced = move || {
            let is_synced = started.elapsed() >= sync;
            pods.iter().filter(|_| is_synced).for_each(|pods| list(pods));
            is_synced
        };
        let names = match is_named {
            true => vec![NAME.to_owned()],
            false => (0..processes.len()).map(|at| socket_address(at).to_string()).collect(),
        };
        let run = standby.clone().run(is_synced, names);
        let tasks = vec![tokio::spawn(gate.clone().pass(run)).abort_handle()];
        let shards = AtomicI64::new(*shards);
        processes[address] = Some(Process { number, standby, lines, started, shards, gate, tasks });
        number
    }

    /// Ends the process at an address at once, with its connections.
    pub(super) fn kill(&self, address: usize) {
        let process = self.state().processes[address].take();
        process.into_iter().flat_map(|process| process.tasks).for_each(|task| task.abort());
    }

    /// Changes the shard of all processes: those that start from now on have it, and each other one after its reload.
    pub(super) fn change_shard(&self) {
        self.state().shards += 1;
    }

    /// Returns true if the process at an address still has the former shard.
    fn is_outdated(&self, address: usize) -> bool {
        let state = self.state();
        let process = state.processes[address].as_ref();
        process.is_some_and(|process| !process.has_shards(state.shards))
    }

    /// Returns the addresses of the processes that still have the former shard.
    pub(super) fn outdated(&self) -> Vec<usize> {
        self.running().into_iter().filter(|at| self.is_outdated(*at)).collect()
    }

    /// Lets the process at an address load its configuration.
    pub(super) fn reload(&self, address: usize) {
        let shards = self.state().shards;
        self.with(address, |process| process.reload(shards));
    }

    /// Loses all packets between two addresses from now on, or passes them on with those that were lost.
    pub(super) fn cut(&self, one: usize, other: usize, is_cut: bool) {
        let pair = (one.min(other), one.max(other));
        if is_cut {
            self.state().cut.insert(pair);
        } else {
            self.state().cut.remove(&pair);
            self.healed.announce();
        }
    }

    /// Returns the pairs of addresses that do not reach each other.
    pub(super) fn cuts(&self) -> Vec<(usize, usize)> {
        self.state().cut.iter().copied().collect()
    }

    /// Passes a message from one address to the other, which arrives after a cut.
    async fn pass(&self, one: usize, other: usize) {
        let latency = {
            let mut state = self.state();
            let rng = state.latencies.get_mut(&(one, other)).expect("two addresses");
            Duration::from_micros(rng.u64(50..LATENCY))
        };
        sleep(latency).await;
        let pair = (one.min(other), one.max(other));
        let mut healed = self.healed.observe();
        while self.state().cut.contains(&pair) {
            healed.changed().await;
        }
    }

    /// Answers the requests of a connection from one address to another.
    fn serve(&self, (from, to): (usize, usize), stream: DuplexStream) -> Option<AbortHandle> {
        let group = self.clone();
        let (standby, gate) =
            self.with(to, |process| (process.standby.clone(), process.gate.clone()))?;
        let serve = async move {
            let respond = |request: hyper::Request<hyper::body::Incoming>| {
                let (group, standby, gate) = (group.clone(), standby.clone(), gate.clone());
                async move {
                    *group.state().requests.entry((from, to)).or_default() += 1;
                    group.pass(from, to).await;
                    let (mut head, _) = request.into_parts();
                    head.extensions.insert(Unprotected);
                    let path = head.uri.path().to_owned();
                    let call = Call { head, path };
                    let response = gate.pass(answer::answer(standby, call)).await;
                    group.pass(from, to).await;
                    Ok::<_, Infallible>(response)
                }
            };
            let serve = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(respond));
            // The other side has ended.
            let _ = serve.await;
        };
        Some(tokio::spawn(serve).abort_handle())
    }
}

/// Returns an index of pods that have not been listed.
fn pods() -> PodIndex {
    let selection = Selection::parse("pod").expect("a selection");
    let pods = PodIndex::with_clock(selection, Box::new(|| Duration::ZERO));
    pods.set_list(pods.writer(), Some(false));
    pods
}

/// Lists the pod that sends the lines.
fn list(pods: &PodIndex) {
    let pod = Pod {
        uid: "uid".into(),
        namespace: "shop".into(),
        name: "web".into(),
        node: "n".into(),
        workload: None,
        addresses: Box::default(),
        node_addresses: Box::default(),
        containers: Box::new([CONTAINER.into()]),
        started: None,
        is_finished: false,
    };
    pods.put(1, pod);
    pods.set_list(0, Some(true));
}

/// The telemetry listener at an address.
fn socket_address(at: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(at + 1).expect("few addresses")))
}

/// The network as one address sees it.
struct Link {
    from: usize,
    group: Group,
}

impl Network for Link {
    fn addresses(&self, _name: &str) -> Option<Result<BTreeSet<SocketAddr>, String>> {
        let named = self.group.named()?;
        Some(if self.group.state().is_resolvable { Ok(named) } else { Err("no answer".to_owned()) })
    }

    fn connect<'a>(&'a self, _host: &'a str, port: u16) -> Connecting<'a> {
        Box::pin(async move {
            let to = usize::from(port) - 1;
            self.group.pass(self.from, to).await;
            let (near, far) = duplex(64 << 10);
            let Some(task) = self.group.serve((self.from, to), far) else {
                return Err("Connection refused".into());
            };
            if let Some(process) = &mut self.group.state().processes[to] {
                process.tasks.push(task);
            }
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}
