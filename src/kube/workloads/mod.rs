//! The workload of each pod, and totals over the pods of workloads, namespaces and nodes.
//!
//! [`Workloads`] observes pods and the kinds that own them ([`observer`](super::observer)). [`objects`] decodes them,
//! [`state`] resolves each pod to its workload and keeps the totals, and [`families`] renders them into stores of the
//! catalog. Every shard observes all pods, and serves the workloads whose UIDs it owns. The state outlives a change of the
//! options, so that list/watches of the former configuration count for as long as they are served.

mod families;
pub mod ledger;
mod objects;
mod options;
mod pod_labels;
mod senders;
mod state;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard, Once, OnceLock};

pub use families::{FAMILIES, RESOURCE, Subject, WorkloadFamily};
use ledger::{KUBE_EVENTS, LedgerKind, LedgerObserver, SharedLedger, WorkloadLookup};
use objects::{LINKS, OTHERS, OwnerFacts, PodFacts, Uid};
pub use options::WorkloadOptions;
pub use pod_labels::{PodLabels, PodLabelsError};
use state::State;
use tally::Contribution;

use super::config::WatchedResource;
use super::observed::ObservedObject;
use super::observer::{NoFamilies, ObjectObserver, ObjectSeries, ObserverFactory};
use super::shard::Shard;
use crate::cache::Catalog;
use crate::pods::PodIndex;
use crate::resources::{Api, Representation};
use crate::telemetry::KubeMetrics;
use crate::util::lock::Lock;
use crate::util::shrink::Shrink as _;

/// The workloads of a cluster.
pub struct Workloads {
    ledger: Arc<SharedLedger>,
    ledger_observers: HashMap<&'static str, Arc<dyn ObserverFactory>>,
    hub: Arc<Hub>,
    /// The observers by plural of the kind.
    observers: HashMap<&'static str, Arc<dyn ObserverFactory>>,
}

/// What all list/watches of a configuration share.
struct Hub {
    catalog: Catalog,
    options: WorkloadOptions,
    /// The state of all configurations.
    state: Arc<Lock<State>>,
    registered: Once,
    /// True if pods have rows of their own, or may get them with other options.
    names_pods: bool,
    /// The same for totals over pods.
    has_totals: bool,
    /// The index of the senders of StatsD lines, if it is wanted.
    senders: Option<Arc<PodIndex>>,
    /// The distinct parts of pods that totals are computed from.
    contributions: Lock<HashSet<Arc<Contribution>>>,
}

impl Workloads {
    /// Returns the workloads of a cluster. They are served as soon as its pods are. Pods are also entered into `senders`.
    #[must_use]
    pub fn new(
        options: &WorkloadOptions,
        catalog: &Catalog,
        metrics: &KubeMetrics,
        ledger: &Arc<SharedLedger>,
        senders: Option<&Arc<PodIndex>>,
        shard: Shard,
    ) -> Self {
        ledger.configure(&options.ledger, metrics);
        ledger.set_shard(shard);
        let state = State::new(options, metrics, ledger, senders, shard);
        let hub = Hub::new(catalog, options, Arc::new(Lock::new(state)), senders.cloned());
        Self::observing(Arc::new(hub), ledger)
    }

    /// Returns the same workloads with other options. They replace these as soon as pods have been listed for them; pods and
    /// owners that cannot be listed are those that are still served.
    #[must_use]
    pub fn renewed(&self, options: &WorkloadOptions, metrics: &KubeMetrics, shard: Shard) -> Self {
        self.ledger.configure(&options.ledger, metrics);
        self.set_shard(shard);
        let Hub { catalog, state, senders, .. } = &*self.hub;
        let hub = Hub::new(catalog, options, Arc::clone(state), senders.clone());
        Self::observing(Arc::new(hub), &self.ledger)
    }

    fn observing(hub: Arc<Hub>, ledger: &Arc<SharedLedger>) -> Self {
        let options = &hub.options;
        let needs_object = options.families.iter().any(|family| family.needs_object());
        let of_others =
            if needs_object { Representation::Object } else { Representation::Metadata };
        let pods = observers::<PodFacts>(&hub, "Pod", Representation::Object);
        let mut observers = HashMap::from([("pods", pods)]);
        if options.resolves_owners() || hub.senders.is_some() {
            for (kinds, representation) in
                [(&LINKS[..], Representation::Metadata), (&OTHERS, of_others)]
            {
                for (plural, kind) in kinds {
                    let factory = self::observers::<OwnerFacts>(&hub, kind, representation);
                    observers.insert(plural, factory);
                }
            }
        }
        let known = Arc::clone(&hub);
        let lookup: WorkloadLookup = Arc::new(move |uid| known.state().workload_of(uid));
        let factory = |kind| {
            let (ledger, lookup) = (Arc::clone(ledger), Arc::clone(&lookup));
            let observe = move || LedgerObserver::new(&ledger, kind, &lookup);
            Arc::new(Factory { representation: Representation::Object, observe })
                as Arc<dyn ObserverFactory>
        };
        let ledger_observers = HashMap::from([
            ("pods", factory(LedgerKind::Pod)),
            ("jobs", factory(LedgerKind::Job)),
            ("nodes", factory(LedgerKind::Node)),
            ("events", factory(LedgerKind::Event)),
        ]);
        Self { ledger: Arc::clone(ledger), ledger_observers, hub, observers }
    }

    /// Returns the options.
    #[must_use]
    pub fn options(&self) -> &WorkloadOptions {
        &self.hub.options
    }

    /// Returns whether anything needs the workloads of pods: a family, a label or the senders of StatsD lines.
    #[must_use]
    pub fn is_on(&self) -> bool {
        let options = self.options();
        self.hub.senders.is_some()
            || !options.families.is_empty()
            || !options.ledger.families.is_empty()
            || !options.pod_labels.is_empty()
    }

    /// Observes the built-in resources to watch, and adds Kubernetes Events if they are counted, and
    /// [links](WorkloadOptions::links). Resources without families are requested as far as they are observed.
    pub fn attach(&self, resources: &mut Vec<WatchedResource>) {
        if !self.is_on() {
            return;
        }
        let ledger_families = &self.options().ledger.families;
        if ledger_families.contains(&KUBE_EVENTS) {
            resources.push(kube_events());
        }
        // The ledger has to see an object before its workload is resolved.
        for watched in resources.iter_mut().filter(|_| !ledger_families.is_empty()) {
            watched.observers.extend(self.ledger_observers.get(&*watched.api.plural).cloned());
        }
        let watched: Vec<&str> = resources.iter().map(|watched| &*watched.api.plural).collect();
        let links = self.options().links(&watched);
        resources.extend(links.iter().map(|link| WatchedResource::observed(link.api())));
        if !resources.iter().any(|watched| watched.api.plural == "pods") {
            return;
        }
        for watched in resources {
            let plural = watched.api.plural.as_str();
            let Some(observer) = self.observers.get(plural) else { continue };
            if watched.renderer.schema().families.is_empty() {
                watched.renderer = Arc::new(NoFamilies::new(plural));
            }
            watched.observers.push(Arc::clone(observer));
        }
    }

    /// Serves the rows of another shard, or of another stage of a shard change.
    pub fn set_shard(&self, shard: Shard) {
        let updates = self.hub.catalog.update_lock();
        let _update = updates.hold();
        self.ledger.set_shard(shard);
        self.hub.state().set_shard(shard);
    }
}

/// Returns the resource of Kubernetes Events. That of the core group exists in every cluster, and shows the events of
/// `events.k8s.io` with their counts and series, too.
pub(super) fn kube_events() -> WatchedResource {
    WatchedResource::observed(&Api::namespaced("", "v1", "Event", "events"))
}

impl Hub {
    fn new(
        catalog: &Catalog,
        options: &WorkloadOptions,
        state: Arc<Lock<State>>,
        senders: Option<Arc<PodIndex>>,
    ) -> Self {
        let any = |is_one: fn(&WorkloadFamily) -> bool| {
            options.may_change || options.families.iter().any(|family| is_one(family))
        };
        Self {
            catalog: catalog.clone(),
            names_pods: senders.is_some() || any(|family| family.subject == Subject::Pod),
            has_totals: any(WorkloadFamily::is_total),
            options: options.clone(),
            state,
            registered: Once::new(),
            senders,
            contributions: Lock::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the labels of a pod that are shown on its series, unless it is malformed.
    fn labels_of<'o>(&self, pod: &'o ObservedObject<'_>) -> Option<&'o [u8]> {
        let labels = || self.options.pod_labels.of_pod(pod.bytes).ok();
        pod.labels.get_or_init(labels).as_deref()
    }

    /// Returns the shared copy of a contribution.
    fn shared(&self, contribution: Arc<Contribution>) -> Arc<Contribution> {
        let mut all = self.contributions.lock();
        if let Some(shared) = all.get(&contribution) {
            return Arc::clone(shared);
        }
        if all.len() == all.capacity() {
            all.retain(|shared| Arc::strong_count(shared) > 1);
            all.shrink();
            all.make_room();
        }
        all.insert(Arc::clone(&contribution));
        contribution
    }
}

/// The facts that are kept of an object.
trait Facts: PartialEq + Send + Sync + Sized + 'static {
    /// Returns the UID and the facts of an object of the kind, unless it is malformed.
    fn decode(kind: &'static str, object: &ObservedObject<'_>, hub: &Hub) -> Option<(Uid, Self)>;

    /// Registers the families, if these are the objects that most of them are about.
    fn register(_: &Hub) {}

    /// Writes labels after the identity labels of an object.
    fn identify(_: &Hub, _: &ObservedObject<'_>, _: &mut Vec<u8>) {}

    /// Notes that an object was rendered anew, with labels whose values are not folded yet.
    fn touch(_: &mut State, _: &Uid) {}

    /// Returns the facts of the object without a row of its own, if it had one.
    fn hidden(&self) -> Option<Self> {
        None
    }

    /// Notes a served list/watch, and whether its list is complete; `None` if it is not served any more.
    fn set_list(_: &Hub, _list: u64, _is_complete: Option<bool>) {}

    /// Adds or changes an object. `is_new` states whether its list/watch did not have it before.
    fn put(state: &mut State, uid: &Uid, facts: Arc<Self>, is_new: bool);

    /// Removes an object of a list/watch.
    fn remove(state: &mut State, uid: &Uid);
}

impl Facts for PodFacts {
    fn decode(_: &'static str, object: &ObservedObject<'_>, hub: &Hub) -> Option<(Uid, Self)> {
        let (uid, mut facts) = objects::pod_facts(object.pod()?, hub.has_totals);
        facts.labels = hub.labels_of(object)?.into();
        facts.contribution = hub.shared(facts.contribution);
        if hub.senders.is_some() {
            facts.sender = Some(Box::new(senders::sender_facts(object, hub.options.is_partial)?));
        }
        if !hub.names_pods {
            facts.name = Box::default();
        }
        facts.is_hidden = object.is_hidden;
        Some((uid, facts))
    }

    fn identify(hub: &Hub, object: &ObservedObject<'_>, out: &mut Vec<u8>) {
        if hub.options.pod_labels.is_empty() && !hub.options.may_change {
            return;
        }
        // Objects that are still served have the labels of the options in force.
        let (state, is_in_force) = (hub.state(), hub.registered.is_completed());
        let labels = if is_in_force { state.pod_labels() } else { &hub.options.pod_labels };
        if let Some(pod) = object.pod().filter(|_| !labels.is_empty()) {
            let (owner, own) = (objects::owner_of(pod), hub.labels_of(object).unwrap_or_default());
            state.write_labels(labels, own, (&owner, &pod.metadata.namespace), out);
        }
    }

    fn touch(state: &mut State, uid: &Uid) {
        state.touch_pod(uid);
    }

    fn register(hub: &Hub) {
        hub.registered.call_once(|| {
            let mut state = hub.state();
            state.configure(&hub.options);
            let schema = Arc::clone(state.stores()[0].schema());
            match schema.families.is_empty() {
                true => hub.catalog.exchange(None, &[RESOURCE.to_owned()]),
                false => hub.catalog.register(schema, state.stores().to_vec()),
            }
        });
    }

    fn hidden(&self) -> Option<Self> {
        Some(Self { is_hidden: true, ..self.clone() })
    }

    fn set_list(hub: &Hub, list: u64, is_complete: Option<bool>) {
        if let Some(senders) = &hub.senders {
            senders.set_list(list, is_complete);
        }
    }

    fn put(state: &mut State, uid: &Uid, facts: Arc<Self>, is_new: bool) {
        state.put_pod(uid, facts, is_new);
    }

    fn remove(state: &mut State, uid: &Uid) {
        state.remove_pod(uid);
    }
}

impl Facts for OwnerFacts {
    fn decode(kind: &'static str, object: &ObservedObject<'_>, hub: &Hub) -> Option<(Uid, Self)> {
        let (uid, mut facts) = objects::owner(kind, object.bytes).ok()?;
        if facts.is_workload {
            facts.labels = hub.options.pod_labels.of_workload(object.bytes).ok()?;
        }
        Some((uid, facts))
    }

    fn put(state: &mut State, uid: &Uid, facts: Arc<Self>, is_new: bool) {
        state.put_owner(uid, facts, is_new);
    }

    fn remove(state: &mut State, uid: &Uid) {
        state.remove_owner(uid);
    }
}

/// Creates the observers of one kind.
struct Factory<F> {
    representation: Representation,
    observe: F,
}

impl<O: ObjectObserver + 'static, F: Fn() -> O + Send + Sync> ObserverFactory for Factory<F> {
    fn representation(&self) -> Representation {
        self.representation
    }

    fn observe(self: Arc<Self>) -> Arc<dyn ObjectObserver> {
        Arc::new((self.observe)())
    }
}

fn observers<F: Facts>(
    hub: &Arc<Hub>,
    kind: &'static str,
    representation: Representation,
) -> Arc<dyn ObserverFactory> {
    let hub = Arc::clone(hub);
    let observe = move || {
        let list = ObservedList::<F> {
            number: hub.senders.as_ref().map_or(0, |senders| senders.writer()),
            is_shown: false,
            is_complete: false,
            current: HashMap::new(),
            collected: None,
        };
        Observer { hub: Arc::clone(&hub), kind, list: Lock::new(list), series: OnceLock::new() }
    };
    Arc::new(Factory { representation, observe })
}

/// The observer of one list/watch.
struct Observer<F> {
    hub: Arc<Hub>,
    kind: &'static str,
    list: Lock<ObservedList<F>>,
    /// The series of the objects.
    series: OnceLock<Arc<dyn ObjectSeries>>,
}

/// The objects of one list/watch.
struct ObservedList<F> {
    number: u64,
    is_shown: bool,
    is_complete: bool,
    current: HashMap<Uid, Arc<F>>,
    /// The objects of a list in progress.
    collected: Option<HashMap<Uid, Arc<F>>>,
}

impl<F: Facts> ObjectObserver for Observer<F> {
    fn begin_list(&self) {
        self.list.lock().collected.get_or_insert_default();
    }

    fn end_list(&self, commit: bool) {
        let mut list = self.list.lock();
        let Some(collected) = list.collected.take().filter(|_| commit) else { return };
        let old = std::mem::replace(&mut list.current, collected);
        list.is_complete = true;
        if !list.is_shown {
            return;
        }
        let mut state = self.hub.state();
        for (uid, facts) in &list.current {
            F::put(&mut state, uid, Arc::clone(facts), !old.contains_key(uid));
        }
        for uid in old.keys().filter(|uid| !list.current.contains_key(*uid)) {
            F::remove(&mut state, uid);
        }
        state.flush();
        F::set_list(&self.hub, list.number, Some(true));
    }

    fn put(&self, object: &ObservedObject<'_>, fresh: bool) {
        let Some((uid, facts)) = F::decode(self.kind, object, &self.hub) else { return };
        let mut list = self.list.lock();
        let known = list.current.get_key_value(&uid);
        let is_new = known.is_none();
        let (uid, facts) = match known {
            Some((uid, old)) if **old == facts => (Arc::clone(uid), Arc::clone(old)),
            _ => (uid, Arc::new(facts)),
        };
        if let Some(collected) = list.collected.as_mut().filter(|_| fresh) {
            collected.insert(uid, facts);
            return;
        }
        if list.current.get(&uid) == Some(&facts) {
            // Nothing else has changed that a budget would be asked about.
            if list.is_shown {
                let mut state = self.hub.state();
                F::touch(&mut state, &uid);
                state.flush();
            }
            return;
        }
        list.current.insert(Arc::clone(&uid), Arc::clone(&facts));
        if list.is_shown {
            let mut state = self.hub.state();
            F::put(&mut state, &uid, facts, is_new);
            state.flush();
        }
    }

    fn delete(&self, uid: &[u8], fresh: bool) {
        let mut list = self.list.lock();
        if let Some(collected) = list.collected.as_mut().filter(|_| fresh) {
            collected.remove(uid);
            return;
        }
        let removed = list.current.remove_entry(uid);
        list.current.shrink();
        if let Some((uid, _)) = removed
            && list.is_shown
        {
            let mut state = self.hub.state();
            F::remove(&mut state, &uid);
            state.flush();
        }
    }

    fn attach(&self, series: Arc<dyn ObjectSeries>) {
        if self.kind == "Pod" {
            let _ = self.series.set(series);
        }
    }

    fn identify(&self, object: &ObservedObject<'_>, identity: &mut Vec<u8>) {
        F::identify(&self.hub, object, identity);
    }

    fn hide(&self, uid: &[u8]) {
        let mut list = self.list.lock();
        let known = list.current.get_key_value(uid);
        let Some((uid, facts)) =
            known.and_then(|(uid, old)| Some((Arc::clone(uid), old.hidden()?)))
        else {
            return;
        };
        let facts = Arc::new(facts);
        list.current.insert(Arc::clone(&uid), Arc::clone(&facts));
        if list.is_shown {
            let mut state = self.hub.state();
            F::put(&mut state, &uid, facts, false);
            state.flush();
        }
    }

    fn show(&self) {
        let mut list = self.list.lock();
        F::register(&self.hub);
        if std::mem::replace(&mut list.is_shown, true) {
            return;
        }
        let mut state = self.hub.state();
        state.add_series(self.series.get());
        for (uid, facts) in &list.current {
            F::put(&mut state, uid, Arc::clone(facts), true);
        }
        state.flush();
        F::set_list(&self.hub, list.number, Some(list.is_complete));
    }

    fn purge(&self) {
        self.begin_list();
        self.end_list(true);
        let mut list = self.list.lock();
        list.is_complete = false;
        if list.is_shown {
            F::set_list(&self.hub, list.number, Some(false));
        }
    }

    fn close(&self) {
        let mut list = self.list.lock();
        if !std::mem::replace(&mut list.is_shown, false) {
            return;
        }
        let mut state = self.hub.state();
        state.remove_series(self.series.get());
        list.current.keys().for_each(|uid| F::remove(&mut state, uid));
        state.flush();
        F::set_list(&self.hub, list.number, None);
    }
}
