//! Runs one history: performs changes, faults and scrapes in time, and checks each scrape.
//!
//! A [`World`] is a simulated server with a pipeline that follows it. [`World::step`] performs its next action, so that
//! it can be run next to other simulations on the same clock. [`simulate`] runs one alone.

#[cfg(test)]
mod both_sides;
mod disturbances;
mod reload_checks;
mod requests;
mod server_change;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::checker::{Checker, Expectation, LeftOut, RequestLimit, Violation};
use super::cluster::{Kind, NAMESPACES, Scope, scopes};
use super::completed::Completed;
use super::custom::{CustomLines, CustomResources};
use super::faults::RECOVERY;
use super::forms;
use super::journal::{Entry, Topic};
use super::kind_reloads::KindReloads;
use super::ledger::{Conditions, LedgerChecker};
use super::limits::{self, Limits};
use super::object_limit::{IN_FLIGHT, ObjectLimit};
use super::object_shards::ObjectShards;
use super::pod_labels;
use super::queue::{Action, Queue};
use super::refusals::Refusals;
#[cfg(test)]
use super::scenario::OptionalFeature;
use super::scenario::{Scenario, Schedule};
use super::server::Server;
use super::setup::{connect, in_simulated_time, pipeline_config, tls};
use super::snapshot::Selected;
use super::totals::{self, Differences, Lines, namespace_totals};
use crate::cache::Catalog;
use crate::cache::tests::ANY_TEXT_HAS_CODES;
use crate::exposition::{Format, ScrapeQuery};
use crate::kube::shard::Shard;
use crate::kube::workloads::Workloads;
use crate::kube::{Client, Pipeline, PipelineConfig};
use crate::pods::PodIndex;
use crate::telemetry::KubeMetrics;
use crate::tests::{hash, time_bound};

/// The time allowed for the first lists.
static FIRST_LISTS: LazyLock<Duration> = LazyLock::new(|| time_bound("first lists"));
/// The same for the lists after a reload of the options, which begin one after the other.
pub(super) static RELOAD: LazyLock<Duration> =
    LazyLock::new(|| time_bound("lists after a reload of the options"));

/// The longest time between two requests of each of more than eight refused list/watches, divided by their number.
const REFUSED: Duration = Duration::from_secs(1);
/// The time of a list without faults.
const LIST: Duration = Duration::from_secs(2);

#[cfg(test)]
const CUSTOM_RELOAD: &str = "reload of custom resources";
#[cfg(test)]
const DEFINITION_CHANGE: &str = "definition comes or goes";
#[cfg(test)]
const LIMITS_RELOAD: &str = "reload of object budgets";
#[cfg(test)]
const LEFT_OUT: &str = "objects left out by a budget";
#[cfg(test)]
const DROPPED: &str = "completed pods dropped";
/// The features that not all histories have.
#[cfg(test)]
pub const FEATURES: [&str; 5] =
    [CUSTOM_RELOAD, DEFINITION_CHANGE, LIMITS_RELOAD, LEFT_OUT, DROPPED];

/// Returns what a scenario needs for one of [`FEATURES`].
#[cfg(test)]
pub fn optional_feature(feature: &str) -> Option<OptionalFeature> {
    match feature {
        CUSTOM_RELOAD | DEFINITION_CHANGE => Some(OptionalFeature::Custom),
        LIMITS_RELOAD | LEFT_OUT => Some(OptionalFeature::Limits),
        DROPPED => Some(OptionalFeature::Completed),
        _ => None,
    }
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
#[derive(Default)]
pub struct Outcome {
    pub violation: Option<String>,
    pub fault_results: Vec<FaultResult>,
    pub scrapes: usize,
    pub requests: u64,
    /// The number of lists started after the first ten seconds.
    pub relists: u64,
    pub journal: Vec<Entry>,
}

/// A fault that has started and whose recovery time is not over.
struct RecoveringFault {
    result: FaultResult,
    from: Instant,
    until: Instant,
    /// The fault is a silence without an observable end.
    is_silence: bool,
    /// The number of lists when it began, if it must not cause any.
    lists: Option<u64>,
}

/// A simulated server, a pipeline that follows it, and the checkers of its scrapes.
pub struct World {
    pub server: Arc<Server>,
    pub catalog: Catalog,
    pub pipeline: Pipeline,
    scenario: Scenario,
    rng: Rng,
    /// The folders with the credentials of each client; the last one is in use.
    folders: Vec<tempfile::TempDir>,
    workloads: Workloads,
    /// The configuration without observers, for reloads.
    config: PipelineConfig,
    metrics: KubeMetrics,
    client: Arc<Client>,
    pub start: Instant,
    queue: Queue,
    checker: Checker,
    ledger: LedgerChecker,
    custom: Option<CustomResources>,
    limits: Option<Limits>,
    /// The largest number of series of totals and workloads; without a limit 0.
    max_rows: u64,
    object_limit: Option<ObjectLimit>,
    completed: Option<Completed>,
    kinds: Option<KindReloads>,
    object_shards: Option<ObjectShards>,
    /// The number of the last change of the pipeline's configuration.
    applied: u64,
    /// The shard whose workloads are counted.
    shard: Shard,
    /// The task that removes counters in time.
    _timer: JoinSet<()>,
    /// The last reload of the options.
    reloaded: Option<Instant>,
    /// The last changes of the features that not all histories have.
    #[cfg(test)]
    feature_changes: BTreeMap<&'static str, Instant>,
    /// A reload came together with a fault: objects that its first list shows count as older than the process, even those
    /// that were created since, and the ends of those that it does not show are not counted.
    may_miss_events: bool,
    request_limit: RequestLimit,
    /// The number of lists after the time of the first ones.
    first_lists: Option<u64>,
    may_be_stale_until: Instant,
    /// The time from which the last fault or change of the options cannot cause lists any more.
    disturbed: Instant,
    pending: Vec<RecoveringFault>,
    /// The active faults with the times of their beginnings.
    lasting: Vec<(usize, Instant)>,
    refusals: Refusals,
    /// The number of lists when watches began to be refused, while no other fault goes on.
    unwatched: Option<u64>,
    /// The time and the number of requests, also by kind, since which nothing has caused requests but the ends of watches.
    calm: Option<(Instant, u64, BTreeMap<Kind, u64>)>,
    /// The time of the last scrape.
    last_check: Instant,
    outcome: Outcome,
}

impl World {
    /// Starts a history in simulated time.
    pub fn start(scenario: Scenario) -> Self {
        Self::with_senders(scenario, None)
    }

    /// Starts a history whose pods are entered into an index.
    pub fn with_senders(mut scenario: Scenario, senders: Option<Arc<PodIndex>>) -> Self {
        let mut rng = Rng::with_seed(scenario.seed ^ 0x9e37_79b9_7f4a_7c15);
        // Lines get labels of the pods.
        scenario.has_pod_labels &= senders.is_none();
        let Scenario { http2, each_namespace, trace, seed, is_lagging, .. } = scenario;
        let has_plugin = scenario.plugin.is_some();
        let kinds = &scenario.kinds;
        let server = Server::new(kinds, &mut rng, http2.then(tls), trace);
        ANY_TEXT_HAS_CODES.set(seed.is_multiple_of(2));
        let folder = tempfile::tempdir().expect("a folder");
        let client = Arc::new(connect(&server, folder.path(), (http2, scenario.plugin)));
        let namespaces = if each_namespace { &NAMESPACES[..] } else { &[] };
        let mut config = pipeline_config(kinds, namespaces);
        config.drop_completed_after = scenario.drop_completed_after;
        // Where options are reloaded, two list/watches of a kind may be served for a while, each with its own limit.
        let object_limit = scenario.object_limit.filter(|_| senders.is_none());
        config.object_limit = object_limit.unwrap_or_default();
        let plain = config.clone();
        let after = scenario.drop_completed_after;
        let completed = after.map(|after| Completed::new(&server, after));
        let (catalog, metrics) = (Catalog::new(), KubeMetrics::default());
        let retention = scenario.retention;
        if scenario.has_pods_of_jobs() {
            server.cluster().create_pods_of_jobs();
        }
        if scenario.resolves_senders {
            server.cluster().create_pods_with_jobs(scenario.seed);
        }
        // A reload of the options would change it.
        let has_row_limit = scenario.limits.is_some() && senders.is_none();
        let max_rows = if has_row_limit { limits::max_rows(scenario.seed) } else { 0 };
        let pod_labels = pod_labels::selected(scenario.has_pod_labels);
        let about = (senders.as_ref(), scenario.resolves_senders);
        let (workloads, counts) =
            namespace_totals(&catalog, &metrics, about, retention, pod_labels, max_rows);
        totals::attach(&workloads, &mut config.resources, kinds);
        let custom = scenario.custom.as_ref();
        let custom = custom.map(|_| CustomResources::new(&server, seed, is_lagging, &metrics));
        config.resources.extend(custom.iter().flat_map(CustomResources::watched));
        let limits = scenario.limits.as_ref();
        let has_shards = scenario.object_shards.is_some();
        let limits = limits.map(|_| Limits::new(scenario.seed, &metrics, has_shards));
        config.budget = limits.as_ref().map_or_else(Arc::default, Limits::current);
        let mut timer = JoinSet::new();
        let expired = Arc::clone(&counts);
        timer.spawn(async move { expired.expire_in_time().await });
        let pipeline = Pipeline::start_on_this_thread(&client, &config, &catalog, &metrics)
            .expect("a pipeline");

        let start = Instant::now();
        let mut queue = Queue::default();
        for (id, event) in scenario.events.iter().enumerate() {
            queue.add(start + event.begin, Action::Begin(id));
        }
        // A reload of the options, which only both sides have, would set the shard of the totals, too.
        if senders.is_none() {
            for (at, shard) in &scenario.shards {
                queue.add(start + *at, Action::Reshard(*shard));
            }
        }
        let shards = scenario.object_shards.take().filter(|_| senders.is_none());
        let object_shards = shards.map(ObjectShards::new);
        if let Some(at) = object_shards.as_ref().and_then(ObjectShards::first) {
            queue.add(start + at, Action::ReshardObjects);
        }
        for at in scenario.custom.iter().flatten() {
            queue.add(start + *at, Action::ReloadCustom);
        }
        for at in scenario.limits.iter().flatten() {
            queue.add(start + *at, Action::ReloadLimits);
        }
        for at in &scenario.ledger_reloads {
            queue.add(start + *at, Action::ReloadLedger);
        }
        for (at, seed) in &scenario.deletions {
            queue.add(start + *at, Action::Delete(*seed));
        }
        let kind_reloads = scenario.kind_reloads.as_ref().map(|times| {
            times.iter().for_each(|at| queue.add(start + *at, Action::ReloadKinds));
            KindReloads::new(scenario.seed, kinds, scenario.reloads_twice)
        });
        for at in &scenario.server_changes {
            queue.add(start + *at, Action::ChangeServer);
        }
        scenario.restrict(&server);
        if scenario.is_fragmented {
            server.fragment();
        }
        if scenario.counts_rest {
            server.count_rest();
        }
        if scenario.has_uncached_events {
            server.serve_events_uncached();
        }
        if scenario.is_lagging {
            server.lag();
        }
        match scenario.schedule.take() {
            None => {
                queue.add(start + Duration::from_millis(1), Action::Change(None));
                queue.add(start + Duration::from_millis(2), Action::Scrape(true));
            }
            Some(Schedule { changes, scrapes }) => {
                server.cluster().add_backup();
                for (at, seed) in changes {
                    queue.add(start + at, Action::Change(Some(seed)));
                }
                for at in scrapes {
                    queue.add(start + at, Action::Scrape(false));
                }
            }
        }
        let list_watches = if each_namespace { scopes(kinds).len() } else { kinds.len() };
        Self {
            server,
            catalog,
            pipeline,
            scenario,
            rng,
            folders: vec![folder],
            workloads,
            config: plain,
            metrics,
            client,
            start,
            queue,
            checker: Checker::default(),
            ledger: LedgerChecker::new(retention),
            custom,
            limits,
            max_rows,
            object_limit: object_limit.map(ObjectLimit::new),
            completed,
            kinds: kind_reloads,
            object_shards,
            applied: 1,
            shard: Shard::ALL,
            _timer: timer,
            reloaded: None,
            #[cfg(test)]
            feature_changes: BTreeMap::new(),
            may_miss_events: false,
            request_limit: RequestLimit::new(list_watches),
            first_lists: None,
            // The first lists get the same recovery time as a fault.
            may_be_stale_until: start + *FIRST_LISTS,
            disturbed: start,
            pending: Vec::new(),
            lasting: Vec::new(),
            refusals: Refusals::new(has_plugin),
            unwatched: None,
            calm: None,
            last_check: start,
            outcome: Outcome::default(),
        }
    }

    /// Returns the time of the next action, or `None` at the end of the history and after a violation.
    pub fn next_action(&self) -> Option<Instant> {
        let at = self.queue.next_time()?;
        let is_over = self.outcome.violation.is_some() || at > self.start + self.scenario.length;
        (!is_over).then_some(at)
    }

    /// Waits for the time of the next action and performs it. Returns false at the end.
    pub async fn step(&mut self) -> bool {
        let Some(at) = self.next_action() else { return false };
        self.wait_until(at).await;
        let Some(action) = self.queue.pop() else { return false };
        match action {
            Action::Change(seed) => self.change(seed),
            Action::Delete(seed) => self.delete(seed),
            Action::Begin(id) => self.begin(id),
            Action::End(id) => self.end(id),
            Action::Reshard(shard) => {
                self.server.note(Topic::Line, format!("{shard:?}"));
                self.shard = shard;
                self.workloads.set_shard(shard);
                self.ledger.reshard(&self.server.cluster().accounts, shard);
            }
            Action::ReshardObjects => self.reshard_objects().await,
            Action::ReloadCustom => {
                if let Some(custom) = &mut self.custom {
                    let entries = custom.reload();
                    if let Some(wait) = custom.reverts_after() {
                        self.queue.add(Instant::now() + wait, Action::RevertCustom);
                    }
                    #[cfg(test)]
                    self.feature_changes.insert(CUSTOM_RELOAD, Instant::now());
                    self.server.note(Topic::Line, entries);
                    self.apply();
                }
            }
            Action::RevertCustom => {
                if let Some(custom) = &mut self.custom {
                    let entries = custom.revert();
                    self.server.note(Topic::Line, entries);
                    self.apply();
                }
            }
            Action::ReloadLimits => {
                if let Some(limits) = &mut self.limits {
                    let budget = limits.reload();
                    #[cfg(test)]
                    self.feature_changes.insert(LIMITS_RELOAD, Instant::now());
                    self.server.note(Topic::Line, format!("{budget:?}"));
                    self.apply();
                }
            }
            // What a new list/watch shows first may count as old.
            Action::ReloadLedger if self.is_current() => self.reload(),
            Action::ReloadLedger => {}
            Action::ReloadKinds => self.reload_kinds(),
            Action::ChangeServer => self.change_server(),
            Action::Scrape(again) => {
                let format = if self.rng.bool() { Format::Text } else { Format::OpenMetrics };
                let body = self.scrape(format);
                self.check(&body);
                // One form in four scrapes, because it costs as much as the scrape.
                if self.rng.u32(0..4) == 0
                    && self.outcome.violation.is_none()
                    && let Err(why) =
                        forms::compare(&self.catalog, format, body.as_bytes(), &mut self.rng)
                {
                    self.violate(&why, &body);
                }
                if again && self.outcome.violation.is_none() {
                    let wait = Duration::from_millis(self.rng.u64(100..900));
                    self.queue.add(Instant::now() + wait, Action::Scrape(true));
                }
            }
        }
        let has_changed = self.custom.as_mut().map(|custom| custom.observe(&self.server));
        if has_changed == Some(true) {
            #[cfg(test)]
            self.feature_changes.insert(DEFINITION_CHANGE, Instant::now());
            self.request_limit.changed(Instant::now());
        }
        true
    }

    /// Waits for this time. Meanwhile definitions that have changed take effect.
    pub async fn wait_until(&mut self, at: Instant) {
        while let Some(custom) = &mut self.custom {
            tokio::select! {
                biased;
                () = custom.definitions_changed() => self.apply(),
                () = sleep_until(at) => return,
            }
        }
        sleep_until(at).await;
    }

    /// Applies the options and the definitions to the pipeline.
    fn apply(&mut self) {
        let mut config = self.config.clone();
        totals::attach(&self.workloads, &mut config.resources, &self.scenario.kinds);
        config.resources.extend(self.custom.iter().flat_map(CustomResources::watched));
        config.budget = self.limits.as_ref().map_or_else(Arc::default, Limits::current);
        self.request_limit.changed(Instant::now());
        self.disturbed = self.disturbed.max(Instant::now());
        self.pending.iter_mut().for_each(|fault| fault.lists = None);
        self.server.note_replacement();
        self.applied = self.pipeline.reconfigure(&self.client, &config);
    }

    /// Makes the next change of the shard whose objects are shown. Gained objects are shown once they have been listed.
    async fn reshard_objects(&mut self) {
        let is_listed = self.pipeline.handle().is_applied(self.applied);
        let Some(shards) = &mut self.object_shards else { return };
        let (has_changed, next) = shards.advance(is_listed);
        let is_switch_next = shards.is_switch_next();
        if has_changed {
            self.config.shard = shards.shard;
            self.server.note(Topic::Line, format!("objects of {:?}", shards.shard));
            self.apply();
            // The pipeline takes it at once.
            sleep(Duration::from_millis(1)).await;
        }
        if let Some(wait) = next {
            if has_changed && is_switch_next {
                self.slow_lists(wait);
            }
            self.queue.add(Instant::now() + wait, Action::ReshardObjects);
        }
    }

    /// Stops the pipeline and returns the results.
    pub async fn finish(self) -> Outcome {
        let Self { server, pipeline, pending, first_lists, mut outcome, .. } = self;
        outcome.requests = server.requests();
        outcome.relists = server.lists() - first_lists.unwrap_or_default();
        // A missing recovery would have been a violation.
        outcome.fault_results.extend(pending.into_iter().map(|one| one.result));
        tokio::time::timeout(Duration::from_secs(60), pipeline.stop()).await.expect("it stops");
        outcome.journal = server.take_journal();
        outcome
    }

    /// Returns a scrape.
    pub fn scrape(&mut self, format: Format) -> String {
        self.outcome.scrapes += 1;
        let body = forms::text(&self.catalog, format, &ScrapeQuery::default());
        let shown = format!("{format:?}, {} bytes with hash {:016x}", body.len(), hash(&body));
        self.server.note(Topic::Scrape, shown);
        String::from_utf8_lossy(&body).into_owned()
    }

    /// Checks a scrape of this moment and notes the violation, if it is one.
    pub fn check(&mut self, body: &str) {
        let now = Instant::now();
        let mut lines = Lines::of(body);
        self.note_refusals(now);
        if now >= self.start + *FIRST_LISTS {
            self.first_lists.get_or_insert(self.server.lists());
        }
        let conditions = Conditions {
            may_be_stale: now < self.may_be_stale_until,
            may_be_dropped: self.refusals.dropped(now).any(|scope| scope.kind.has_account()),
        };
        let custom = match &mut self.custom {
            None => Ok(CustomLines::default()),
            Some(custom) => {
                let found = custom.lines(&mut lines.states, &self.server.cluster().snapshots);
                let until = self.may_be_stale_until;
                found.and_then(|found| custom.check(&found, &self.server, until).map(|()| found))
            }
        };
        let custom = match custom {
            Ok(custom) => custom,
            Err(Violation(why)) => return self.violate(&why, body),
        };
        lines.states.extend(custom.states.iter().map(String::as_str));
        let shards = self.object_shards.as_ref().map(|shards| shards.exposed);
        let of_pods = match self.scenario.has_pod_labels {
            true => {
                let accounts = &self.server.cluster().accounts;
                pod_labels::separate(&mut lines.states, &lines.counters, accounts, shards)
            }
            false => Ok(Vec::new()),
        };
        let of_pods = match of_pods {
            Ok(of_pods) => of_pods,
            Err(why) => return self.violate(&why, body),
        };
        lines.states.extend(of_pods.iter().map(String::as_str));
        let is_changing = self.object_shards.as_ref().is_some_and(|shards| shards.is_changing);
        let left_out = match self.object_limit {
            Some(_) => Some(LeftOut::Unknown),
            // Objects of several shards are left out.
            None if self.limits.is_some() && is_changing => Some(LeftOut::Unknown),
            None => self.limits.is_some().then(|| LeftOut::Known(self.left_out())),
        };
        let last_check = std::mem::replace(&mut self.last_check, now);
        let Self { server, checker, ledger, pending, refusals, may_be_stale_until, shard, .. } =
            self;
        let (isolated, may_miss_events) = (pending.len() == 1, self.may_miss_events);
        let is_applied = self.pipeline.handle().is_applied(self.applied);
        let expectation = |scope| {
            let other = refusals.expectation(scope, (last_check, now), isolated);
            let other = other.unwrap_or(if now < *may_be_stale_until {
                Expectation::Past
            } else {
                Expectation::Present
            });
            match (&self.custom, &self.kinds) {
                (Some(custom), _) => custom.expectation(scope, *may_be_stale_until, other),
                (None, Some(kinds)) => {
                    kinds.expectation(scope, *may_be_stale_until, is_applied, other)
                }
                (None, None) => other,
            }
        };
        let cluster = server.cluster();
        let of_pods = scopes(&[Kind::Pod]);
        let are_pods_left_out = left_out
            .as_ref()
            .is_some_and(|left_out| of_pods.iter().any(|scope| left_out.of(*scope) != Some(0)));
        checker.left_out = left_out;
        checker.selected = Selected {
            shards,
            dropped: self
                .completed
                .as_ref()
                .map(|one| one.dropped(now, cluster.second(), *may_be_stale_until)),
        };
        let checked = checker.check(&cluster.snapshots, &lines.states, now, expectation);
        let checked = checked.and_then(|old| {
            if let Some(limits) = &mut self.limits {
                limits.observe(now < *may_be_stale_until);
                let about = (self.object_shards.as_ref(), is_applied, &**server);
                let fits = &checker.fits;
                let checked = limits.check(&cluster.snapshots, &lines.states, fits, about);
                checked.map_err(Violation)?;
            }
            if let Some(limit) = &mut self.object_limit {
                // A reload lists all objects.
                let has_reloaded = !is_applied || self.disturbed >= last_check;
                let about = (&**server, now < *may_be_stale_until || has_reloaded);
                let checked = limit.check(&cluster.snapshots, &lines.states, &checker.fits, about);
                checked.map_err(Violation)?;
            }
            if self.object_shards.is_some() {
                return Ok(old);
            }
            // Totals and counters are of objects that are not shown, too.
            if are_pods_left_out {
                let is_quiet = now >= *may_be_stale_until && is_applied;
                let dropped = refusals.dropped(now).any(|scope| scope.kind == Kind::Pod);
                if is_quiet && !dropped && self.completed.is_none() {
                    let rows = (*shard, self.max_rows);
                    totals::check_rows(&lines, &cluster.accounts, rows, now - IN_FLIGHT)
                        .map_err(Violation)?;
                }
                return Ok(old);
            }
            let differences = Differences {
                shard: *shard,
                dropped: checker.selected.dropped,
                max_series: self.max_rows,
                are_left_out: self.limits.is_some(),
            };
            totals::compare(&lines, &cluster, differences).map_err(Violation)?;
            let Lines { counters, states, .. } = &lines;
            // It takes the states from the scrape, which may lack some.
            let is_counted = self.limits.is_none() && !self.scenario.has_pods_of_jobs();
            if !may_miss_events && is_counted {
                ledger.check(&cluster.accounts, counters, states, conditions).map_err(Violation)?;
            }
            Ok(old)
        });
        drop(cluster);
        let checked = checked.and_then(|old| self.check_applied().map(|()| old));
        let checked = checked.and_then(|old| self.check_status().map(|()| old));
        let checked = checked.and_then(|old| self.check_failures().map(|()| old));
        let checked = checked.and_then(|old| self.check_watches().map(|()| old));
        let checked = checked.and_then(|old| match self.needless_request() {
            Some(why) => Err(Violation(why)),
            None => Ok(old),
        });
        let checked =
            checked.and_then(|old| self.request_limit.check(self.server.requests()).map(|()| old));
        match checked {
            Ok(old) => {
                for one in &mut self.pending {
                    one.result.oldest = one.result.oldest.max(old);
                    if !old.is_zero() {
                        one.result.recovered = now.saturating_duration_since(one.from);
                    }
                }
                let lists = self.lists();
                let over = self.pending.extract_if(.., |one| now >= one.until);
                let mut needless = None;
                for one in over {
                    let before = one.lists.filter(|before| one.result.isolated && *before < lists);
                    needless = before.map(|before| lists - before).or(needless);
                    self.outcome.fault_results.push(one.result);
                }
                if let Some(number) = needless {
                    self.violate(&format!("{number} lists after a mere disconnect"), body);
                }
            }
            Err(Violation(why)) => self.violate(&why, body),
        }
    }

    /// Returns the number of objects that budgets have left out.
    fn left_out(&self) -> BTreeMap<Scope, u64> {
        let rejected = self.pipeline.handle().rejected();
        let of_scope = |scope: Scope| {
            let resource = limits::resource(scope.kind);
            let of_scope = rejected
                .iter()
                .filter(|one| one.resource == resource && one.namespace == scope.namespace);
            (scope, of_scope.map(|one| one.count).sum())
        };
        scopes(&self.scenario.kinds).into_iter().map(of_scope).collect()
    }

    /// Notes a violation, with the last faults.
    fn violate(&mut self, why: &str, body: &str) {
        let after = self.start.elapsed();
        let faults = self.scenario.events.iter().filter(|event| event.begin <= after);
        let faults = faults.rev().take(6).map(|event| {
            let (begin, duration) = (event.begin.as_secs_f64(), event.duration.as_secs_f64());
            format!("{:?} at {begin:.1} s for {duration:.1} s", event.fault)
        });
        let (after, faults) = (after.as_secs_f64(), faults.collect::<Vec<_>>().join("\n    "));
        self.server.note(Topic::Violation, format!("{why}\n\n{body}"));
        self.outcome.violation = Some(format!("after {after:.1} s {why}\n    after {faults}"));
    }
}

/// Runs a history in simulated time.
pub fn simulate(scenario: Scenario) -> Outcome {
    in_simulated_time(scenario.seed, async {
        let mut world = World::start(scenario);
        while world.step().await {}
        world.finish().await
    })
}
