//! The list/watches of one kind, their stores, and their restarts after panics.
//!
//! A [`Plan`] is the configuration of a kind; a [`Following`] is a running plan. [`reconcile`](super::reconcile) decides
//! which plans run and when a new one replaces an old one.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::Instant;

use super::backoff::BackoffConfig;
use super::budget::KindBudget;
use super::handover::ServedObjects;
use super::machine::ListOptions;
use super::object_sink::{ObjectSink, Observers};
use super::progress::Progress;
use super::quota::Quota;
use super::reflector::{Health, Reflector};
use super::shared::Shared;
use super::timing::Timing;
use super::worker::WakeupBatcher;
use crate::cache::{Schema, Store, UpdateLock, fnv1a64};
use crate::exposition::budget::Budget;
use crate::kube::api_resource::{ApiResource, Scope};
use crate::kube::client::Client;
use crate::kube::config::{PipelineConfig, WatchedResource};
use crate::kube::selector::{self, KindSelectors};
use crate::kube::shard::Shard;
use crate::telemetry::KubeMetrics;
use crate::util::work_counter;

/// The number of objects per page of a list, as in client-go.
const PAGE_SIZE: u64 = 500;

/// The time without a fault after which the restart delay is reset.
const FAULT_RESET: Duration = Duration::from_secs(600);

/// The scopes of one resource to list and watch, and the options for it.
#[derive(Clone)]
pub(crate) struct Plan {
    client: Arc<Client>,
    watched: WatchedResource,
    /// The metric families of the resource.
    pub(super) schema: Arc<Schema>,
    scopes: Vec<Arc<Scope>>,
    pub(super) shard: Shard,
    object_limit: u64,
    budget: Arc<Budget>,
    options: ListOptions,
    timing: Timing,
}

impl Plan {
    pub(crate) fn new(
        client: &Arc<Client>,
        config: &PipelineConfig,
        watched: &WatchedResource,
    ) -> Self {
        // A resource without families is watched for its observers, which need all objects.
        let partial = !watched.renderer.schema().families.is_empty();
        Self {
            client: Arc::clone(client),
            schema: watched.renderer.schema(),
            scopes: scopes(config, &watched.api).into_iter().map(Arc::new).collect(),
            watched: watched.clone(),
            shard: if partial { config.shard } else { Shard::ALL },
            object_limit: if partial { config.object_limit } else { 0 },
            budget: Arc::clone(&config.budget),
            options: list_options(config, watched),
            timing: config.timing.clone(),
        }
    }

    /// Returns the resource's name in the catalog.
    pub(crate) fn name(&self) -> &str {
        &self.schema.resource
    }

    /// Returns whether `other` is for the same server.
    pub(crate) fn has_same_client(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.client, &other.client)
    }

    /// Returns whether `other` requests the same objects from the same server and renders them in the same way. The
    /// stage of a shard change may differ.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let families = |plan: &Self| -> Vec<String> {
            plan.schema.families.iter().map(|family| family.name.clone()).collect()
        };
        self.has_same_client(other)
            && self.watched.api == other.watched.api
            && self.scopes == other.scopes
            && self.shard.follows_same(&other.shard)
            && self.object_limit == other.object_limit
            && self.budget == other.budget
            && self.options == other.options
            && self.timing == other.timing
            && families(self) == families(other)
            && self.watched.renderer.settings() == other.watched.renderer.settings()
            && self.watched.has_same_observers(&other.watched)
    }
}

/// Returns the scopes of one resource: one for each configured namespace, or one for the whole cluster.
fn scopes(config: &PipelineConfig, api: &ApiResource) -> Vec<Scope> {
    let name = api.name();
    let own = |selectors: &KindSelectors| selectors.get(&name).cloned().unwrap_or_default();
    let (fields, labels) = (own(&config.field_selectors), own(&config.label_selectors));
    let scope = |namespace: Option<&String>, selector: &str| {
        let mut selector = selector.to_owned();
        selector::append(&mut selector, &fields);
        Scope {
            api: api.clone(),
            namespace: namespace.cloned(),
            selector,
            labels: labels.clone(),
            drop_completed_after: config.drop_completed_after.filter(|_| name == "pods"),
        }
    };
    if !api.namespaced {
        vec![scope(None, "")]
    } else if config.namespaces.is_empty() {
        vec![scope(None, &config.selector)]
    } else {
        let each = config.namespaces.iter();
        each.map(|namespace| scope(Some(namespace), &config.selector)).collect()
    }
}

fn list_options(config: &PipelineConfig, watched: &WatchedResource) -> ListOptions {
    let is_limited = config.object_limit > 0 && !watched.renderer.schema().families.is_empty();
    // Observers need all objects, which are many pages if these are as small as the limit.
    let is_short = is_limited && watched.observers.is_empty();
    ListOptions {
        streaming: !is_limited,
        limit: if is_short { config.object_limit } else { PAGE_SIZE },
        always_limit: is_short,
        from_cache: config.use_apiserver_cache,
    }
}

/// The shared state, metrics and tasks of all list/watches.
pub(crate) struct WatchContext {
    pub(crate) batcher: Arc<WakeupBatcher>,
    pub(crate) metrics: KubeMetrics,
    /// Held while a store and the observers of its objects change.
    pub(crate) updates: UpdateLock,
    /// The state shared by all list/watches of the server.
    pub(crate) shared: Arc<Shared>,
    /// Notified of every change of a [`Progress`].
    pub(crate) changes: watch::Sender<usize>,
    /// The tasks of the list/watches.
    pub(crate) join_set: JoinSet<()>,
}

/// One running list/watch. Dropping it aborts its task.
struct ScopeTask {
    /// The index of its scope in the plan.
    number: usize,
    progress: Arc<Progress>,
    observers: Observers,
    handle: AbortHandle,
    faults: Faults,
    /// The time of the next restart, if the task has ended.
    restart: Option<Instant>,
}

/// The recent panics and unexpected ends of a task.
#[derive(Default)]
struct Faults {
    count: u32,
    last: Option<Instant>,
}

impl Faults {
    /// Counts a fault and returns the delay before the restart.
    fn add(&mut self, now: Instant, backoff: &BackoffConfig) -> Duration {
        if self.last.is_some_and(|last| now.duration_since(last) > FAULT_RESET) {
            self.count = 0;
        }
        let wait = backoff.initial.saturating_mul(1 << self.count.min(16)).min(backoff.cap);
        self.count += 1;
        self.last = Some(now);
        wait
    }
}

impl ScopeTask {
    fn namespace(&self) -> Option<&str> {
        self.progress.scope().namespace.as_deref()
    }

    fn store(&self) -> &Arc<Store> {
        &self.progress.served.store
    }

    /// Returns whether it is in backoff after a failure, or waits for a restart.
    fn is_waiting(&self) -> bool {
        self.restart.is_some() || self.progress.is_waiting()
    }

    /// Tells the observers that it is served.
    fn show(&self) {
        self.progress.show();
        self.observers.each(|observer| observer.show());
    }

    /// Tells the observers that it is no longer served.
    fn close(&self) {
        self.observers.each(|observer| observer.close());
    }

    /// Returns whether it shows an older state of the same server than `old`. This is known only if it gets every event that
    /// `old` gets; the reconciler is then notified when it is newer.
    fn is_behind(&self, old: &Self) -> bool {
        let (own, other) = (self.progress.scope(), old.progress.scope());
        let gets_all = (own.namespace.is_none() || own.namespace == other.namespace)
            && (own.selector.is_empty() || own.selector == other.selector)
            && (own.labels.is_empty() || own.labels == other.labels);
        gets_all && !self.progress.has_reached(&old.progress)
    }
}

/// Returns a hash of a namespace; `None` is the whole cluster.
fn hash_of(namespace: Option<&str>) -> u64 {
    fnv1a64(namespace.unwrap_or_default().as_bytes())
}

impl Drop for ScopeTask {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// A running plan.
pub(crate) struct Following {
    pub(crate) plan: Plan,
    /// The `--limit.…` budgets, if set.
    budget: Option<Arc<KindBudget>>,
    tasks: Vec<ScopeTask>,
    /// Their indexes, ordered by the hashes of their namespaces, while this is the current plan.
    by_namespace: Vec<(u64, usize)>,
    /// The number of its list/watches at the beginning that have settled. They stay settled.
    settled: Cell<usize>,
    /// The number of list/watches whose task has ended.
    ended: usize,
    /// The progress of all list/watches, of earlier plans too. It is shared with the readers, and not collected again with each
    /// change of one of them: with many namespaces there are many changes.
    progress: Arc<[Arc<Progress>]>,
    /// List/watches of earlier plans, which are served until the overlapping list/watches of this plan have listed.
    older: Vec<Following>,
    /// List/watches of earlier plans that are no longer needed, until the others are served.
    retired: Vec<ScopeTask>,
    /// It was switched to a shard that follows other objects than its plan, whose changes it has therefore missed.
    has_gaps: bool,
}

impl Following {
    /// Starts the list/watches of a plan, with new stores. They request nothing before `earliest`.
    pub(crate) fn start(plan: Plan, earliest: Option<Instant>, context: &mut WatchContext) -> Self {
        let earliest = earliest.filter(|earliest| *earliest > Instant::now());
        let limit = (plan.object_limit > 0).then_some(plan.object_limit);
        let quota = limit.map(|limit| Quota::new(limit, plan.scopes.len()));
        let about = (plan.watched.api.unique_label(), &context.metrics);
        let budget =
            KindBudget::new(&plan.budget, &*plan.watched.renderer, about, plan.scopes.len());
        let mut tasks = Vec::new();
        for (number, scope) in plan.scopes.iter().enumerate() {
            let store = Arc::new(Store::new(Arc::clone(&plan.schema)));
            let served = ServedObjects::new(scope.namespace.as_deref(), store, plan.shard);
            let progress = Arc::new(Progress::new(
                Arc::clone(scope),
                served,
                (budget.is_some().then(Arc::default), quota.clone()),
                context.changes.clone(),
            ));
            if earliest.is_some() {
                progress.waits(earliest);
            }
            let observers = plan.watched.observers.iter();
            let observers = observers.map(|observer| Arc::clone(observer).observe()).collect();
            let observers = Observers::new(observers, &context.updates);
            observers.each(|observer| observer.attach(progress.served.clone()));
            let handle = plan.spawn(number, &progress, &observers, budget.as_ref(), context);
            let (faults, restart) = (Faults::default(), None);
            tasks.push(ScopeTask { number, progress, observers, handle, faults, restart });
        }
        let all = tasks.iter().enumerate();
        let mut by_namespace: Vec<_> =
            all.map(|(at, task)| (hash_of(task.namespace()), at)).collect();
        by_namespace.sort_unstable();
        let mut following = Self {
            plan,
            budget,
            tasks,
            by_namespace,
            settled: Cell::default(),
            ended: 0,
            progress: Arc::default(),
            older: Vec::new(),
            retired: Vec::new(),
            has_gaps: false,
        };
        following.collect_progress();
        following
    }

    /// Returns its list/watches and those of earlier plans.
    fn all(&self) -> impl Iterator<Item = &ScopeTask> {
        self.tasks.iter().chain(self.older.iter().flat_map(|older| &older.tasks))
    }

    /// Returns the indexes of its list/watches that may have objects in common with one of an earlier plan.
    fn overlapping(&self, old: &ScopeTask) -> impl Iterator<Item = usize> {
        let all = &*self.by_namespace;
        let of = |namespace: Option<&str>| {
            let hash = hash_of(namespace);
            let start = all.partition_point(|(other, _)| *other < hash);
            let found = all.get(start..).unwrap_or_default();
            let count = found.partition_point(|(other, _)| *other == hash);
            found.get(..count).unwrap_or_default()
        };
        let (own, whole) = match old.namespace() {
            None => (all, &[][..]),
            namespace => (of(namespace), of(None)),
        };
        own.iter().chain(whole).map(|(_, at)| *at).inspect(|_| work_counter::add(1))
    }

    /// Returns whether one of its list/watches that may have objects in common with one of an earlier plan matches.
    fn any_overlapping(&self, old: &ScopeTask, matches: impl Fn(&ScopeTask) -> bool) -> bool {
        self.overlapping(old).filter_map(|at| self.tasks.get(at)).any(matches)
    }

    fn collect_progress(&mut self) {
        self.progress = self.all().map(|task| Arc::clone(&task.progress)).collect();
    }

    /// Switches to another shard or to another stage of a shard change. Objects of the new shard that were not
    /// listed before appear when they change.
    pub(crate) fn show(&mut self, shard: Shard) {
        self.has_gaps |= !self.plan.shard.follows_same(&shard);
        let is_shown = |task: &ScopeTask| task.progress.served.shard() == shard;
        if !self.tasks.iter().all(is_shown) {
            self.tasks.iter().for_each(|task| task.progress.reshard(shard));
            if let Some(budget) = &self.budget {
                budget.drop_counts();
            }
        }
        self.older.iter_mut().for_each(|older| older.show(shard));
    }

    /// Returns whether it has followed all objects of `plan` since it has listed them, so that they need no other list. The
    /// stage of a shard change may differ.
    pub(crate) fn follows(&self, plan: &Plan) -> bool {
        !self.has_gaps && self.plan.is_same(plan)
    }

    /// Adopts a plan that it [follows](Self::follows) but for the stage of its shard change.
    pub(crate) fn adopt(&mut self, plan: &Plan) {
        self.plan.shard = plan.shard;
        self.show(plan.shard);
    }

    /// Replaces `old`. Scopes of `old` are kept until this plan has listed them, but for those that still wait for an older
    /// list/watch of the same objects, which is kept instead.
    pub(crate) fn supersede(&mut self, mut old: Self) {
        self.older = std::mem::take(&mut old.older);
        old.tasks.retain(|task| task.progress.is_shown());
        self.older.push(old);
        self.show(self.plan.shard);
        self.retire();
        self.collect_progress();
    }

    /// Drops list/watches of earlier plans that are no longer needed; returns whether there were any.
    ///
    /// One is needed if it has a complete state, no overlapping list/watch of this plan has listed a state as new as its own,
    /// and the server has not refused all of those for longer than the staleness limit. A list that takes long is behind a
    /// watch that goes on meanwhile.
    pub(crate) fn retire(&mut self) -> bool {
        let mut older = std::mem::take(&mut self.older);
        let client = &self.plan.client;
        let is_needed = |old: &ScopeTask, old_client: &Arc<Client>| {
            // Versions of different servers cannot be compared.
            let is_comparable = Arc::ptr_eq(client, old_client);
            let replaces = |new: &ScopeTask| {
                new.progress.is_listed() && !(is_comparable && new.is_behind(old))
            };
            if !old.progress.is_complete() || self.any_overlapping(old, replaces) {
                return false;
            }
            let waits = self.any_overlapping(old, |new| !new.progress.is_given_up());
            if !waits && self.any_overlapping(old, |_| true) {
                tracing::warn!(
                    resource = %old.progress.scope().api.plural,
                    namespace = old.namespace(),
                    objects = old.store().len(),
                    "Refused for long, the objects are shown no more"
                );
            }
            waits
        };
        let mut gone = Vec::new();
        for Self { tasks, plan, .. } in &mut older {
            gone.extend(tasks.extract_if(.., |task| !is_needed(task, &plan.client)));
        }
        older.retain(|older| !older.tasks.is_empty());
        self.older = older;
        let has_retired = !gone.is_empty();
        self.retired.append(&mut gone);
        if has_retired {
            self.collect_progress();
        }
        has_retired
    }

    /// Ends the list/watches that are no longer needed, after the others are served.
    pub(crate) fn end_retired(&mut self) {
        self.retired.drain(..).for_each(|task| task.close());
    }

    /// Tells the observers that none of its list/watches is served any more.
    pub(crate) fn close(&self) {
        self.all().for_each(ScopeTask::close);
    }

    /// Returns the served list/watches: the older ones, and its own that do not overlap with them.
    fn shown(&self) -> impl Iterator<Item = &ScopeTask> {
        let older = || self.older.iter().flat_map(|older| &older.tasks);
        let mut is_shown = vec![true; self.tasks.len()];
        for at in older().flat_map(|old| self.overlapping(old)) {
            is_shown[at] = false;
        }
        let own = self.tasks.iter().zip(is_shown);
        own.filter_map(|(task, is_shown)| is_shown.then_some(task)).chain(older())
    }

    /// Returns the stores to serve, in the order of the namespaces, older ones last, and marks their list/watches as served.
    pub(crate) fn show_stores(&self) -> Vec<Arc<Store>> {
        let shown = self.shown().inspect(|task| task.show());
        shown.map(|task| Arc::clone(task.store())).collect()
    }

    /// Returns the progress of each list/watch.
    pub(crate) fn progress(&self) -> &Arc<[Arc<Progress>]> {
        &self.progress
    }

    /// Returns the namespaces without a complete state; an empty name stands for the whole cluster.
    pub(crate) fn unlisted(&self) -> Vec<&str> {
        let unlisted = self.tasks.iter().filter(|task| !task.progress.is_listed());
        unlisted.map(|task| task.namespace().unwrap_or_default()).collect()
    }

    /// Returns the number of served objects.
    pub(crate) fn objects(&self) -> usize {
        self.shown().map(|task| task.store().len()).sum()
    }

    /// Returns whether nothing has been listed yet.
    pub(crate) fn is_unlisted(&self) -> bool {
        !self.progress.iter().any(|progress| progress.is_listed())
    }

    /// Returns whether each scope is listed, or refused by the server.
    pub(crate) fn is_settled(&self) -> bool {
        let rest = self.tasks.iter().skip(self.settled.get());
        let settled = rest.take_while(|task| task.progress.is_settled()).count();
        self.settled.update(|before| before + settled);
        self.settled.get() == self.tasks.len()
    }

    /// Returns whether it still serves a scope of an earlier plan.
    pub(crate) fn is_outdated(&self) -> bool {
        !self.older.is_empty()
    }

    /// Returns whether an older list/watch is shown only until one that has listed is as new as it.
    pub(crate) fn is_behind(&self) -> bool {
        let mut older = self.older.iter().flat_map(|older| &older.tasks);
        older.any(|old| self.any_overlapping(old, |new| new.progress.is_listed()))
    }

    /// Returns whether a list/watch is in backoff after a failure, and no other one is being listed.
    pub(crate) fn is_waiting(&self) -> bool {
        let is_idle = |task: &ScopeTask| task.is_waiting() || task.progress.is_listed();
        // The last ones are listed last.
        self.tasks.iter().rev().all(is_idle) && self.tasks.iter().any(ScopeTask::is_waiting)
    }

    /// Returns the time until which the server has asked its list/watches to wait with `Retry-After`.
    pub(crate) fn asked_until(&self) -> Option<Instant> {
        self.tasks.iter().filter_map(|task| task.progress.asked_until()).max()
    }

    /// Returns whether it can replace `old`: all scopes are listed or refused. Scopes that are in backoff or `overdue` do
    /// not block the others, if at least one scope is listed and `old` serves no cluster-wide scope.
    pub(crate) fn can_supersede(&self, old: Option<&Self>, overdue: bool) -> bool {
        let is_apart = |old: &Self| old.shown().all(|task| task.namespace().is_some());
        let is_done = |task: &ScopeTask| task.progress.is_settled() || overdue || task.is_waiting();
        self.is_settled()
            || self.tasks.iter().skip(self.settled.get()).all(is_done)
                && self.tasks.iter().any(|task| task.progress.is_listed())
                && old.is_none_or(is_apart)
    }

    /// Schedules the restart of a list/watch whose task has ended, which only a bug in this program can cause. Its
    /// store keeps its objects until the restarted one has listed.
    pub(crate) fn ended(&mut self, id: Id, reason: &str, metrics: &KubeMetrics) {
        self.older.iter_mut().for_each(|older| older.ended(id, reason, metrics));
        let backoff = &self.plan.timing.backoff;
        let Some(task) = self.tasks.iter_mut().find(|task| task.handle.id() == id) else { return };
        let scope = Arc::clone(&task.progress.scope);
        let now = Instant::now();
        let wait = task.faults.add(now, backoff);
        self.ended += usize::from(task.restart.replace(now + wait).is_none());
        metrics.restarts.with([&scope.api.unique_label()]).inc();
        task.progress.failed(None, reason);
        task.progress.stopped(true);
        tracing::error!(
            resource = %scope.api.plural,
            namespace = scope.namespace,
            error = reason,
            restart_in = ?wait,
            "A list/watch ended by a fault of this program, what it had stays until it has listed anew"
        );
    }

    /// Returns the time of the next restart.
    pub(crate) fn next_restart(&self) -> Option<Instant> {
        let older = self.older.iter().filter_map(Self::next_restart);
        let own = (self.ended > 0).then_some(&self.tasks).into_iter().flatten();
        own.filter_map(|task| task.restart).chain(older).min()
    }

    /// Restarts the list/watches that are due.
    pub(crate) fn restart(&mut self, now: Instant, context: &mut WatchContext) {
        // A task seldom ends, and this is called with each change of a list/watch.
        for task in (self.ended > 0).then_some(&mut self.tasks).into_iter().flatten() {
            if task.restart.is_some_and(|due| due <= now) {
                task.restart = None;
                self.ended -= 1;
                task.progress.stopped(false);
                let ScopeTask { number, progress, observers, .. } = &*task;
                let budget = self.budget.as_ref();
                task.handle = self.plan.spawn(*number, progress, observers, budget, context);
            }
        }
        self.older.iter_mut().for_each(|older| older.restart(now, context));
    }
}

impl Plan {
    /// Spawns the task of one list/watch.
    fn spawn(
        &self,
        number: usize,
        progress: &Arc<Progress>,
        observers: &Observers,
        budget: Option<&Arc<KindBudget>>,
        context: &mut WatchContext,
    ) -> AbortHandle {
        let Progress { scope, served, rejected, quota, .. } = &**progress;
        let counters = context.metrics.reflector(&scope.api.unique_label());
        let member = context.shared.journal.register(scope.name());
        let left_out = counters.left_out.clone();
        let quota = quota.as_ref();
        let share = quota.map(|quota| quota.share(number, served.store.len(), left_out));
        let budget = budget.zip(rejected.as_ref());
        let allowance = budget.map(|(budget, rejected)| budget.allowance(number, served, rejected));
        let sink = ObjectSink::new(
            Arc::clone(scope),
            Arc::clone(&self.watched.renderer),
            Arc::clone(served),
            observers.clone(),
            (share, allowance),
            counters.clone(),
        );
        let reflector = Reflector {
            representation: self.watched.representation(),
            client: Client::clone(&self.client),
            options: self.options,
            timing: self.timing.clone(),
            batcher: Arc::clone(&context.batcher),
            sink,
            scope: Arc::clone(scope),
            progress: Arc::clone(progress),
            calls: context.metrics.clone(),
            metrics: counters,
            member,
            shared: Arc::clone(&context.shared),
            versions: context.shared.versions(&self.client),
            health: Health::default(),
            list_permit: None,
        };
        context.join_set.spawn(reflector.run())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{cases, texts};
    use crate::resources::find;

    #[test]
    fn restarts_are_delayed_by_recent_faults() {
        let (mut faults, backoff) = (Faults::default(), BackoffConfig::default());
        let start = Instant::now();
        let mut at =
            |seconds| faults.add(start + Duration::from_secs(seconds), &backoff).as_millis();
        let waits = [0, 600, 1200, 1800, 2400, 3001, 3001].map(&mut at);
        assert_eq!(waits, [250, 500, 1000, 2000, 2000, 250, 500]);
    }

    /// One list/watch for each configured namespace, duplicates included, or one for all namespaces. A cluster-scoped
    /// kind ignores namespaces and the selector.
    #[test]
    fn recorded_namespaces() {
        for case in cases("ksm/field_selectors.json", 11) {
            let config = PipelineConfig {
                namespaces: texts(&case["namespaces"]),
                selector: case["field_selector"].as_str().expect("a selector").to_owned(),
                ..PipelineConfig::default()
            };
            let api = |name: &str| ApiResource::built_in(find(name).expect("a kind").api());
            let watched: Vec<_> = scopes(&config, &api("pods"))
                .into_iter()
                .map(|scope| {
                    assert_eq!(scope.selector, config.selector, "{case}");
                    scope.namespace.unwrap_or_default()
                })
                .collect();
            assert_eq!(watched, texts(&case["watched_namespaces"]), "{case}");
            let nodes = scopes(&config, &api("nodes"));
            let alone = |scope: &Scope| scope.namespace.is_none() && scope.selector.is_empty();
            assert!(nodes.len() == 1 && alone(&nodes[0]), "{case}");
        }
    }
}
