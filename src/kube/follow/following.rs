//! One kind being followed: the list/watches of a resource, their stores, and their restarts.
//!
//! A [`Plan`] says what is to be followed and how; a [`Following`] is that in action. Which kinds there
//! are and when one takes the place of another is the business of [`reconcile`](super::reconcile).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::Instant;

use super::budget::KindBudget;
use super::handover::Handover;
use super::intake::Intake;
use super::left_out::LeftOut;
use super::machine::ListOptions;
use super::progress::Progress;
use super::quota::Quota;
use super::watch::{Health, Reflector, Shared, Timing};
use super::worker::Pace;
use crate::cache::{Schema, Store};
use crate::exposition::budget::Budget;
use crate::kube::client::Client;
use crate::kube::config::{PipelineConfig, Watched};
use crate::kube::shard::Shard;
use crate::kube::target::{Scope, Target};
use crate::telemetry::KubeMetrics;

/// Objects for each page of a list, as in Go's client.
const PAGE: u64 = 500;

/// After so long without a fault the next one counts as the first.
const FORGIVEN: Duration = Duration::from_secs(600);

/// What is to be followed of one resource, and how.
#[derive(Clone)]
pub(crate) struct Plan {
    client: Arc<Client>,
    watched: Watched,
    schema: Arc<Schema>,
    scopes: Vec<Arc<Scope>>,
    shard: Shard,
    object_limit: u64,
    budget: Arc<Budget>,
    options: ListOptions,
    timing: Timing,
}

impl Plan {
    pub(crate) fn new(client: &Arc<Client>, config: &PipelineConfig, watched: &Watched) -> Self {
        // Who follows objects to know what there is needs all of them.
        let partial = watched.renderer.follower().is_none();
        Self {
            client: Arc::clone(client),
            schema: watched.renderer.schema(),
            scopes: scopes(config, &watched.target).into_iter().map(Arc::new).collect(),
            watched: watched.clone(),
            shard: if partial { config.shard } else { Shard::WHOLE },
            object_limit: if partial { config.object_limit } else { 0 },
            budget: Arc::clone(&config.budget),
            options: list_options(config),
            timing: config.timing.clone(),
        }
    }

    /// The resource's name, as the catalog has it.
    pub(crate) fn name(&self) -> &str {
        &self.schema.resource
    }

    /// The families of the resource.
    pub(crate) fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Whether `other` asks the same server for the same objects and makes the same of them, whatever it
    /// shows of them by now.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let families = |plan: &Self| -> Vec<String> {
            plan.schema.families.iter().map(|family| family.name.clone()).collect()
        };
        Arc::ptr_eq(&self.client, &other.client)
            && self.watched.target == other.watched.target
            && self.scopes == other.scopes
            && self.shard.follows_same(&other.shard)
            && self.object_limit == other.object_limit
            && self.budget == other.budget
            && self.options == other.options
            && self.timing == other.timing
            && families(self) == families(other)
            && self.watched.renderer.settings() == other.watched.renderer.settings()
    }
}

/// The list/watches of one resource.
fn scopes(config: &PipelineConfig, target: &Target) -> Vec<Scope> {
    let scope = |namespace: Option<&String>, selector: &str| Scope {
        target: target.clone(),
        namespace: namespace.cloned(),
        selector: selector.to_owned(),
    };
    if !target.namespaced {
        vec![scope(None, "")]
    } else if config.namespaces.is_empty() {
        vec![scope(None, &config.selector)]
    } else {
        let each = config.namespaces.iter();
        each.map(|namespace| scope(Some(namespace), &config.selector)).collect()
    }
}

fn list_options(config: &PipelineConfig) -> ListOptions {
    let limited = config.object_limit > 0;
    ListOptions {
        streaming: !limited,
        limit: if limited { config.object_limit } else { PAGE },
        always_limit: limited,
        from_cache: config.use_apiserver_cache,
    }
}

/// What list/watches run on and count into.
pub(crate) struct Ground {
    pub(crate) pace: Arc<Pace>,
    pub(crate) metrics: KubeMetrics,
    /// What they have in common.
    pub(crate) shared: Arc<Shared>,
    /// Told of every change of a [`Progress`].
    pub(crate) changes: watch::Sender<usize>,
    /// The running list/watches.
    pub(crate) tasks: JoinSet<()>,
    /// Which of them a task is.
    pub(crate) owners: HashMap<Id, Place>,
    /// Numbers the followings.
    pub(crate) next: u64,
}

/// A list/watch: its following and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) following: u64,
    scope: usize,
}

/// Where a list/watch has its objects.
struct Holds {
    store: Arc<Store>,
    handover: Arc<Handover>,
    /// What has no series because of a budget.
    left_out: Arc<LeftOut>,
}

/// One list/watch.
struct Part {
    progress: Arc<Progress>,
    holds: Holds,
    task: AbortHandle,
    /// Ends by a fault of ours, one soon after the other.
    faults: u32,
    last_fault: Option<Instant>,
    /// When to start it again.
    restart: Option<Instant>,
}

/// A plan in action. Dropping it ends its list/watches.
pub(crate) struct Following {
    pub(crate) plan: Plan,
    pub(crate) id: u64,
    /// `--object-limit`, if there is one.
    quota: Option<Arc<Quota>>,
    /// `--limit.…`, if there are any.
    budget: Option<Arc<KindBudget>>,
    parts: Vec<Part>,
}

impl Following {
    /// Begins to list, into stores of its own.
    pub(crate) fn start(plan: Plan, ground: &mut Ground) -> Self {
        ground.next += 1;
        let limit = (plan.object_limit > 0).then_some(plan.object_limit);
        let quota = limit.map(|limit| Quota::new(limit, plan.scopes.len()));
        let resource = plan.watched.target.own_label();
        let about = (resource, &ground.metrics);
        let budget =
            KindBudget::new(&plan.budget, &*plan.watched.renderer, about, plan.scopes.len());
        let mut following = Self { plan, id: ground.next, quota, budget, parts: Vec::new() };
        for (number, scope) in following.plan.scopes.iter().enumerate() {
            let store = Arc::new(Store::new(Arc::clone(&following.plan.schema)));
            let left_out = Arc::new(LeftOut::default());
            let bounded = following.budget.is_some().then(|| Arc::clone(&left_out));
            let progress =
                Progress::new(scope, Arc::clone(&store), bounded, ground.changes.clone());
            let progress = Arc::new(progress);
            let place = Place { following: following.id, scope: number };
            let handover = Arc::new(Handover::new(following.plan.shard));
            let (quota, budget) = (following.quota.as_ref(), following.budget.as_ref());
            let holds = Holds { store, handover, left_out };
            let task = following.plan.spawn(place, &holds, &progress, (quota, budget), ground);
            let (faults, last_fault, restart) = (0, None, None);
            let part = Part { progress, holds, task, faults, last_fault, restart };
            following.parts.push(part);
        }
        following
    }

    /// Goes on as a plan that [is the same](Plan::is_same): shows as much of what it follows.
    pub(crate) fn go_on(&mut self, plan: &Plan) {
        if self.plan.shard != plan.shard {
            self.plan.shard = plan.shard;
            for Part { holds, .. } in &self.parts {
                holds.handover.show(plan.shard, &holds.store);
            }
            if let Some(budget) = &self.budget {
                budget.forget();
            }
        }
    }

    /// The stores, in the order of the namespaces.
    pub(crate) fn stores(&self) -> Vec<Arc<Store>> {
        self.parts.iter().map(|part| Arc::clone(&part.holds.store)).collect()
    }

    /// What can be known of each list/watch.
    pub(crate) fn progress(&self) -> impl Iterator<Item = &Arc<Progress>> {
        self.parts.iter().map(|part| &part.progress)
    }

    /// How many objects it has.
    pub(crate) fn objects(&self) -> usize {
        self.parts.iter().map(|part| part.holds.store.len()).sum()
    }

    /// Whether it has the complete state.
    pub(crate) fn is_listed(&self) -> bool {
        self.progress().all(|progress| progress.is_listed())
    }

    /// Whether it has no state at all.
    pub(crate) fn is_blank(&self) -> bool {
        !self.progress().any(|progress| progress.is_listed())
    }

    /// Whether it has the complete state, but for what the server refuses to give.
    pub(crate) fn is_settled(&self) -> bool {
        self.progress().all(|progress| progress.is_settled())
    }

    /// Whether a list/watch has failed and waits before it tries again.
    pub(crate) fn is_waiting(&self) -> bool {
        self.parts.iter().any(|part| part.restart.is_some() || part.progress.is_waiting())
    }

    /// A list/watch of it has ended by itself, which only a fault of ours makes it do. Its store keeps
    /// what it has until the list of the next one is complete.
    pub(crate) fn ended(&mut self, place: Place, reason: &str, metrics: &KubeMetrics) {
        let backoff = &self.plan.timing.backoff;
        let scope = &self.plan.scopes[place.scope];
        let part = &mut self.parts[place.scope];
        let now = Instant::now();
        if part.last_fault.is_some_and(|last| now.duration_since(last) > FORGIVEN) {
            part.faults = 0;
        }
        let wait = backoff.initial.saturating_mul(1 << part.faults.min(16)).min(backoff.cap);
        part.faults += 1;
        part.last_fault = Some(now);
        part.restart = Some(now + wait);
        metrics.restarted(&scope.target.own_label());
        part.progress.failed(None, reason);
        part.progress.stopped(true);
        tracing::error!(
            resource = %scope.target.plural,
            namespace = scope.namespace,
            error = reason,
            restart_in = ?wait,
            "a list/watch ended by a fault of this program, what it had stays until it has listed anew"
        );
    }

    /// When the next list/watch has to be started again.
    pub(crate) fn next_restart(&self) -> Option<Instant> {
        self.parts.iter().filter_map(|part| part.restart).min()
    }

    /// Starts again what has waited long enough.
    pub(crate) fn restart(&mut self, now: Instant, ground: &mut Ground) {
        for (scope, part) in self.parts.iter_mut().enumerate() {
            if part.restart.is_some_and(|due| due <= now) {
                part.restart = None;
                part.progress.stopped(false);
                let place = Place { following: self.id, scope };
                let bounds = (self.quota.as_ref(), self.budget.as_ref());
                let Part { holds, progress, .. } = &*part;
                part.task = self.plan.spawn(place, holds, progress, bounds, ground);
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.parts.iter().for_each(|part| part.task.abort());
    }
}

impl Plan {
    /// Starts one list/watch.
    fn spawn(
        &self,
        place: Place,
        Holds { store, handover, left_out }: &Holds,
        progress: &Arc<Progress>,
        (quota, budget): (Option<&Arc<Quota>>, Option<&Arc<KindBudget>>),
        ground: &mut Ground,
    ) -> AbortHandle {
        let scope = Arc::clone(&self.scopes[place.scope]);
        let counters = ground.metrics.reflector(&scope.target.own_label());
        let member = ground.shared.enrol(&scope);
        let counter = counters.left_out.clone();
        let share = quota.map(|quota| quota.share(place.scope, store.len(), counter));
        let allowance =
            budget.map(|budget| budget.allowance(place.scope, (store, handover), left_out));
        let intake = Intake::new(
            Arc::clone(&scope),
            Arc::clone(&self.watched.renderer),
            Arc::clone(store),
            Arc::clone(handover),
            (share, allowance),
            counters.clone(),
        );
        let reflector = Reflector {
            needs: intake.needs(),
            client: Client::clone(&self.client),
            options: self.options,
            timing: self.timing.clone(),
            pace: Arc::clone(&ground.pace),
            intake,
            scope,
            progress: Arc::clone(progress),
            calls: ground.metrics.clone(),
            metrics: counters,
            member,
            shared: Arc::clone(&ground.shared),
            health: Health::default(),
            turn: None,
        };
        let task = ground.tasks.spawn(reflector.run());
        ground.owners.insert(task.id(), place);
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{cases, texts};
    use crate::resources::find;

    /// One list/watch for each namespace that is named, as often as it is, else one for all; a kind outside
    /// of namespaces knows neither them nor the selector.
    #[test]
    fn recorded_namespaces() {
        for case in cases("ksm/field_selectors.json", 11) {
            let config = PipelineConfig {
                resources: Vec::new(),
                namespaces: texts(&case["namespaces"]),
                selector: case["field_selector"].as_str().expect("a selector").to_owned(),
                shard: Shard::WHOLE,
                object_limit: 0,
                budget: Arc::default(),
                use_apiserver_cache: false,
                timing: Timing::default(),
            };
            let target = |name: &str| Target::built_in(find(name).expect("a kind"));
            let watched: Vec<_> = scopes(&config, &target("pods"))
                .into_iter()
                .map(|scope| {
                    assert_eq!(scope.selector, config.selector, "{case}");
                    scope.namespace.unwrap_or_default()
                })
                .collect();
            assert_eq!(watched, texts(&case["watched_namespaces"]), "{case}");
            let nodes = scopes(&config, &target("nodes"));
            let alone = |scope: &Scope| scope.namespace.is_none() && scope.selector.is_empty();
            assert!(nodes.len() == 1 && alone(&nodes[0]), "{case}");
        }
    }
}
