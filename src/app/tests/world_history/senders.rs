//! The pods of the simulated cluster as senders: where lines come from, and the labels that they must get.
//!
//! The model keeps which pod has each address and UID at each moment. An index of pods that follows the cluster shows some
//! moment between its horizon and the present. The horizon is a second ago; during a fault it stays where it was.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::succession::Succession;
use crate::kube::tests::history::cluster::{Kind, Object, Scope};
use crate::pods::PodIndex;
use crate::statsd::tests::history::{Labels, Origin, Senders, SeriesEnd};

/// The labels of a sender.
const LABELS: [&str; 3] = ["namespace", "workload", "workload_type"];
/// The cause of a line of a pod whose workload is not known.
const WITHOUT: &str = "unknown_workload";
/// The maximum age of what an index shows without faults.
const MAX_DELAY: Duration = Duration::from_secs(1);
/// The time after its end for which lines are attributed to a pod.
const LAST_LINES: Duration = Duration::from_secs(5);
/// The time after which an ended pod is forgotten, and the series with its labels end.
const LINGER: Duration = Duration::from_secs(90);
/// The time by which a series may end later: both the pause between two steps and the rounding of ticks, and the time for
/// which lines may still get labels that no pod has.
const LATE: Duration = Duration::from_millis(2_500);
/// The time for which pods may be refused until an index may lose them, a little less than the staleness limit.
const REFUSED: Duration = Duration::from_secs(55);
/// The inaccuracy of limits.
const ROUNDING: Duration = Duration::from_millis(20);

/// The evidence by which a pod is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Address(IpAddr),
    Uid(String),
    /// The address of a node.
    Node(IpAddr),
}

/// A pod that exists and has not finished.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    uid: String,
    pub(super) started: u64,
    /// Its address, its UID, its node, and its second address, if it has one.
    pub(super) keys: Vec<Key>,
}

/// Returns the section of a line that states this pod as its origin.
pub(super) fn claim_of(pod: &Pod) -> String {
    format!("|e:it-false,cn-app,pu-{}", pod.uid)
}

/// What is known of the workload of a pod.
#[derive(Clone, Debug)]
struct Membership {
    /// The labels of its lines, unless its workload is never known.
    labels: Option<Labels>,
    /// The UID of the job by which its workload is known, if only that tells it.
    job: Option<String>,
    /// The time since which it has existed without an interruption, if it does.
    since: Option<Duration>,
    /// The index has seen it together with its job, if it needs that.
    is_certain: bool,
}

/// The pods that a key has belonged to: each with the time from which on, `None` if it belonged to none.
type Timeline = Vec<(Duration, Option<String>)>;

/// The use of labels of a sender.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// The time since which a pod has had them, if one has.
    since: Option<Duration>,
    /// The earliest time since which the index may know no pod with them.
    may_end: Option<Duration>,
    /// The time since which the index has certainly known no pod with them.
    has_ended: Option<Duration>,
    /// The time since which no pod has had them.
    unused_since: Duration,
}

#[derive(Debug, Default)]
struct Model {
    now: Duration,
    live: Vec<Pod>,
    /// The index knows the workload of a pod of a job from the job, not from its name.
    resolves: bool,
    /// The workload of every pod there ever was.
    members: BTreeMap<String, Membership>,
    /// The jobs that exist, with the time since which they have.
    jobs: BTreeMap<String, Duration>,
    timelines: BTreeMap<Key, Timeline>,
    /// The keys that belonged to a pod when the pods were noted last.
    owned: BTreeSet<Key>,
    /// The last time when the index certainly found a pod by this key.
    found: BTreeMap<Key, Duration>,
    uses: BTreeMap<Labels, Use>,
    /// The horizon after each change.
    horizons: Vec<(Duration, Duration)>,
    /// The time since which the index has had to show the present.
    current_since: Option<Duration>,
    last_current: Duration,
    /// True if the index may have lost pods, because the server has refused them, or has no complete list yet.
    is_lenient: bool,
}

/// The pods of a simulated cluster.
pub(super) struct Pods {
    index: Arc<PodIndex>,
    model: RefCell<Model>,
    /// Decides whether lines come from the same origin as the last ones, and that origin.
    last: RefCell<(Rng, Origin)>,
    /// The same for two origins that the lines of one peer state in turn, while others come in between.
    stated: RefCell<(Rng, [Option<Origin>; 2])>,
    succession: RefCell<Succession>,
    /// Decides which lines precede others in their datagram.
    before: RefCell<Rng>,
}

/// The outcomes that are right for a line.
#[derive(Debug, Default)]
struct Allowed {
    labels: BTreeSet<Labels>,
    /// The pod is found, but its workload is not known.
    is_without: bool,
    is_ended: bool,
    is_unknown: bool,
    is_not_synced: bool,
}

impl Pods {
    /// Returns the pods of a cluster, whose jobs tell their workloads if the index `resolves` these.
    pub(super) fn new(index: &Arc<PodIndex>, resolves: bool, seed: u64) -> Self {
        let model = Model { is_lenient: true, resolves, ..Model::default() };
        let last = RefCell::new((Rng::with_seed(1), Origin::default()));
        let stated = RefCell::new((Rng::with_seed(2), [None, None]));
        let succession = RefCell::new(Succession::new(seed));
        let before = RefCell::new(Rng::with_seed(seed ^ 0x3c6e_f372_fe94_f82b));
        Self {
            index: Arc::clone(index),
            model: RefCell::new(model),
            last,
            stated,
            succession,
            before,
        }
    }

    /// Begins lines in quick succession, or not. Returns the number of the senders' steps that follow at once.
    pub(super) fn begin_succession(&self) -> u32 {
        self.succession.borrow_mut().begin(&self.model.borrow().live)
    }

    pub(super) fn end_succession(&self) {
        self.succession.borrow_mut().end();
    }

    /// Notes the pods and the UIDs of jobs at a time, whether an index has to show the present, and since when pods have been refused.
    pub(super) fn observe<'a>(
        &self,
        now: Duration,
        (pods, jobs): (impl Iterator<Item = &'a Object>, impl Iterator<Item = &'a String>),
        is_current: bool,
        refused_for: Option<Duration>,
    ) {
        let mut model = self.model.borrow_mut();
        model.now = now;
        model.current_since = is_current.then(|| model.current_since.unwrap_or(now));
        if is_current {
            model.last_current = now;
        }
        let settled = model.current_since.is_some_and(|since| since + MAX_DELAY <= now);
        model.is_lenient = match refused_for {
            Some(time) if time >= REFUSED => true,
            _ => model.is_lenient && !settled,
        };
        let horizon = model.last_current.saturating_sub(MAX_DELAY);
        model.horizons.push((now, horizon));
        model.live.clear();
        for object in pods {
            model.note(object);
        }
        model.note_memberships(jobs, settled);
        model.note_keys();
        model.note_uses(settled);
    }
}

impl Model {
    fn note(&mut self, object: &Object) {
        let is_new = !self.members.contains_key(&object.uid);
        if is_new {
            let labels = labels_of(object, self.resolves);
            if let Some(labels) = &labels {
                self.uses.entry(labels.clone()).or_default();
            }
            let job = object.subject.as_ref().filter(|_| self.resolves);
            let job = job.map(|job| job.uid.clone());
            let member = Membership { labels, job, since: None, is_certain: false };
            self.members.insert(object.uid.clone(), member);
        }
        let node = Key::Node(object.node_address().into());
        let address = match object.is_in_host_network() {
            true => node.clone(),
            false => Key::Address(object.address().into()),
        };
        let mut keys = vec![address, Key::Uid(object.uid.clone()), node];
        keys.extend(object.second_address().map(|address| Key::Address(address.into())));
        let (uid, started) = (object.uid.clone(), object.started());
        if matches!(object.phase(), "Succeeded" | "Failed") {
            if is_new {
                self.note_moment(&uid, keys);
            }
            return;
        }
        self.live.push(Pod { uid, started, keys });
    }

    /// Notes that the keys belonged for a moment to a pod, which had already finished when it was seen first, and that its
    /// labels were in use.
    fn note_moment(&mut self, uid: &str, keys: Vec<Key>) {
        let labels = self.members[uid].labels.as_ref();
        if let Some(used) = labels.and_then(|labels| self.uses.get_mut(labels))
            && used.since.is_none()
        {
            used.may_end.get_or_insert(self.now);
            (used.unused_since, used.has_ended) = (self.now, None);
        }
        for key in keys {
            let timeline = self.timelines.entry(key).or_default();
            let owner = timeline.last().and_then(|(_, owner)| owner.clone());
            timeline.extend([(self.now, Some(uid.to_owned())), (self.now, owner)]);
        }
    }

    /// Notes which pods and jobs exist, and whose workload the index certainly knows: of those that it has shown together with their
    /// job. It stays known without the job.
    fn note_memberships<'a>(&mut self, jobs: impl Iterator<Item = &'a String>, settled: bool) {
        let now = self.now;
        let before = std::mem::take(&mut self.jobs);
        let since = |uid: &String| before.get(uid).copied().unwrap_or(now);
        self.jobs = jobs.map(|uid| (uid.clone(), since(uid))).collect();
        let horizon = self.horizon(now);
        let live: BTreeSet<&String> = self.live.iter().map(|pod| &pod.uid).collect();
        for (uid, member) in &mut self.members {
            let Some(job) = &member.job else {
                member.is_certain = true;
                continue;
            };
            if !live.contains(uid) {
                member.since = None;
                continue;
            }
            let is_back = member.since.is_none();
            let since = *member.since.get_or_insert(now);
            let has_job = self.jobs.get(job).is_some_and(|of_job| since.max(*of_job) <= horizon);
            member.is_certain &= !is_back && !self.is_lenient;
            member.is_certain |= settled && !self.is_lenient && has_job;
        }
    }

    /// Notes the pod that each key belongs to: of several, the one that started last.
    fn note_keys(&mut self) {
        let mut owners: BTreeMap<&Key, &Pod> = BTreeMap::new();
        for pod in &self.live {
            for key in &pod.keys {
                let owner = owners.entry(key).or_insert(pod);
                if owner.started < pod.started {
                    *owner = pod;
                }
            }
        }
        let keys: BTreeSet<Key> = owners.keys().map(|key| (*key).clone()).collect();
        let horizon = self.horizon(self.now);
        for key in keys.union(&self.owned) {
            let timeline = self.timelines.entry(key.clone()).or_default();
            let owner = owners.get(key).map(|pod| &pod.uid);
            if timeline.last().map(|(_, last)| last.as_ref()) != Some(owner) {
                timeline.push((self.now, owner.cloned()));
            }
            let is_there = since(timeline, horizon).all(|(_, owner)| owner.is_some());
            if is_there && timeline[0].0 <= horizon && !self.is_lenient {
                self.found.insert(key.clone(), self.now);
            }
        }
        self.owned = keys;
    }

    /// Notes which labels are in use.
    fn note_uses(&mut self, settled: bool) {
        let (now, current_since) = (self.now, self.current_since);
        let live = || self.live.iter().map(|pod| &self.members[&pod.uid]);
        let certain = live().filter(|member| member.is_certain);
        let certain: BTreeSet<&Labels> =
            certain.filter_map(|member| member.labels.as_ref()).collect();
        let live: BTreeSet<&Labels> = live().filter_map(|member| member.labels.as_ref()).collect();
        for (labels, used) in &mut self.uses {
            match (live.contains(labels), used.since) {
                (true, None) => used.since = Some(now),
                (false, Some(_)) => {
                    used.may_end.get_or_insert(now);
                    (used.since, used.unused_since, used.has_ended) = (None, now, None);
                }
                _ => {}
            }
            let is_certain = certain.contains(labels) && !self.is_lenient;
            if !is_certain {
                used.may_end.get_or_insert(now);
            }
            let shown_since = used.since.max(current_since);
            if used.since.is_some() {
                used.has_ended = None;
                let is_shown = shown_since.is_some_and(|since| since + MAX_DELAY < now);
                if settled && is_shown && is_certain {
                    used.may_end = None;
                }
            } else if settled && used.unused_since + MAX_DELAY < now {
                used.has_ended.get_or_insert(now);
            }
        }
    }

    /// Returns the earliest moment that an index may have shown at a time.
    fn horizon(&self, at: Duration) -> Duration {
        let before = self.horizons.iter().rev().find(|(time, _)| *time <= at);
        before.map_or(Duration::ZERO, |(_, horizon)| *horizon)
    }

    /// Returns the labels of the pods that a key has belonged to, and whether the workload of one may not be known.
    fn owners(&self, timeline: &Timeline, from: Duration) -> Allowed {
        let owners = since(timeline, from).filter_map(|(_, owner)| owner.as_ref());
        let owners: Vec<&Membership> = owners.map(|uid| &self.members[uid]).collect();
        let is_unknown = |member: &&Membership| !member.is_certain || member.labels.is_none();
        let is_without = self.resolves && owners.iter().any(is_unknown);
        let labels = owners.into_iter().filter_map(|member| member.labels.clone()).collect();
        Allowed { labels, is_without, ..Allowed::default() }
    }

    fn allowed(&self, key: &Key) -> Allowed {
        let none = Timeline::new();
        let timeline = self.timelines.get(key).unwrap_or(&none);
        let horizon = self.horizon(self.now);
        let owners = self.owners(timeline, horizon);
        let is_certain = timeline.first().is_some_and(|(begin, _)| *begin <= horizon)
            && since(timeline, horizon).all(|(_, owner)| owner.is_some());
        if self.is_lenient {
            let owners = self.owners(timeline, Duration::ZERO);
            return Allowed { is_ended: true, is_unknown: true, is_not_synced: true, ..owners };
        }
        if is_certain {
            return owners;
        }
        let earlier = self.horizon(self.now.saturating_sub(LAST_LINES + ROUNDING));
        let found = self.found.get(key);
        let is_after = |time| found.is_none_or(|found| *found + time <= self.now + ROUNDING);
        Allowed {
            is_ended: is_after(LAST_LINES) && timeline.iter().any(|(_, owner)| owner.is_some()),
            is_unknown: is_after(LINGER),
            ..self.owners(timeline, earlier)
        }
    }
}

/// Returns the labels that lines of a pod get, or `None` if its job is unknown, and with it the workload.
fn labels_of(object: &Object, resolves: bool) -> Option<Labels> {
    let (workload, kind) = match object.owner() {
        None => (object.name.clone(), "barepod"),
        Some(("Job", _)) if resolves => {
            let name = object.subject.as_ref()?.name.clone();
            let scope = Scope { kind: Kind::Job, ..object.scope };
            let job = Object { scope, name, subject: None, ..object.clone() };
            match job.owner() {
                None => (job.name, "job"),
                Some((_, name)) => (name, "cronjob"),
            }
        }
        Some(("Job", name)) => (name.rsplit_once('-').expect("a minute").0.to_owned(), "cronjob"),
        Some((kind, name)) => (name, if kind == "Rollout" { "rollout" } else { "statefulset" }),
    };
    let values = [object.scope.namespace, &workload, kind].map(str::to_owned);
    Some(LABELS.map(str::to_owned).into_iter().zip(values).collect())
}

/// Returns the entries of a timeline that hold at some time since `from`.
fn since(timeline: &Timeline, from: Duration) -> impl Iterator<Item = &(Duration, Option<String>)> {
    let before = timeline.iter().rposition(|(begin, _)| *begin <= from);
    timeline[before.unwrap_or_default()..].iter()
}

impl Allowed {
    /// Returns true if a line with this outcome is right, given the words for a pod that was found and for one that is not
    /// known.
    fn has(&self, labels: &Labels, outcome: &str, (found, unknown): (&str, &str)) -> bool {
        match outcome {
            "pod_ended" => self.is_ended,
            WITHOUT => self.is_without && labels.is_empty(),
            "not_synced" => self.is_not_synced,
            _ if outcome == unknown => self.is_unknown,
            _ => outcome == found && self.labels.contains(labels),
        }
    }

    fn may_be_missing(&self) -> bool {
        self.is_ended || self.is_unknown || self.is_not_synced
    }
}

impl Senders for Pods {
    fn index(&self) -> &Arc<PodIndex> {
        &self.index
    }

    fn next(&self, rng: &mut Rng) -> Origin {
        if let Some(origin) = self.succession.borrow_mut().next() {
            return origin;
        }
        let model = self.model.borrow();
        let known = |at: usize| model.members.keys().nth(at % model.members.len());
        let address = match rng.u32(0..10) {
            0 => None,
            1 => Some(Ipv4Addr::from([127, 9, 0, rng.u8(0..2)]).into()),
            2 => Some(Ipv4Addr::from([127, 1, rng.u8(0..2), rng.u8(0..13)]).into()),
            _ => {
                let live = model.live.get(rng.usize(..model.live.len().max(1)));
                // Without another choice, so that those that follow stay the same.
                let is_second = model.now.as_millis().is_multiple_of(2);
                live.and_then(|pod| {
                    match pod.keys.get(3).filter(|_| is_second).or(pod.keys.first())? {
                        Key::Address(address) | Key::Node(address) => Some(*address),
                        Key::Uid(_) => None,
                    }
                })
            }
        };
        let uid = match rng.u32(0..8) {
            0 => known(rng.usize(..)),
            1 => model.live.get(rng.usize(..model.live.len().max(1))).map(|pod| &pod.uid),
            _ => None,
        };
        let claim = uid.map_or(String::new(), |uid| format!("|e:it-false,cn-app,pu-{uid}"));
        let (choice, last) = &mut *self.last.borrow_mut();
        if choice.u32(0..3) > 0 {
            *last = Origin { address, claim };
        }
        let (choice, stated) = &mut *self.stated.borrow_mut();
        if choice.u32(0..3) > 0 {
            return last.clone();
        }
        let stated = &mut stated[choice.usize(0..2)];
        match choice.u32(0..12) {
            0..2 => {
                let pod = model.live.get(choice.usize(..model.live.len().max(1)));
                *stated = pod.map(|pod| Origin { address: None, claim: claim_of(pod) });
            }
            // The same peer without a statement.
            2..5 => return Origin::default(),
            _ => {}
        }
        stated.as_ref().unwrap_or(last).clone()
    }

    fn before(&self) -> Option<String> {
        let rng = &mut *self.before.borrow_mut();
        let live = &self.model.borrow().live;
        if rng.u32(0..6) > 0 {
            return None;
        }
        rng.choice(live).map(claim_of)
    }

    fn check(&self, origin: &Origin, labels: &Labels, outcome: &'static str) -> Result<(), String> {
        let model = self.model.borrow();
        let uid = origin.claim.split_once("pu-").map(|(_, uid)| Key::Uid(uid.to_owned()));
        let claimed = uid.as_ref().map(|uid| model.allowed(uid));
        let by_claim = ("external_data", "unknown_container");
        let claimed_is = |found_only: bool| {
            claimed.as_ref().is_some_and(|claimed| {
                let is_found = [by_claim.0, WITHOUT].contains(&outcome);
                (!found_only || is_found) && claimed.has(labels, outcome, by_claim)
            })
        };
        let is_node = |address: &IpAddr| matches!(address, IpAddr::V4(v4) if v4.octets()[1] == 9);
        let (is_right, allowed) = match origin.address {
            None if uid.is_none() => (outcome == "no_origin", None),
            None => (claimed_is(false), None),
            Some(address) if is_node(&address) => {
                let allowed = model.allowed(&Key::Node(address));
                let right = outcome == "host_network"
                    || claimed_is(true)
                    || allowed.may_be_missing()
                        && (allowed.has(labels, outcome, ("host_network", "unknown_address"))
                            || claimed_is(false));
                (right, Some(allowed))
            }
            Some(address) => {
                let allowed = model.allowed(&Key::Address(address));
                let right = allowed.has(labels, outcome, ("address", "unknown_address"))
                    || allowed.may_be_missing() && claimed_is(false);
                (right, Some(allowed))
            }
        };
        let timeline =
            origin.address.and_then(|address| model.timelines.get(&Key::Address(address)));
        is_right.then_some(()).ok_or_else(|| {
            format!("from {origin:?}: {outcome} with {labels:?}, but by its address {allowed:?}, by its claim {claimed:?}; the address belonged to {timeline:?}")
        })
    }

    fn end(&self, labels: &Labels) -> SeriesEnd {
        let model = self.model.borrow();
        let own = LABELS.map(|name| Some((name.to_owned(), labels.get(name)?.clone())));
        let own: Option<Labels> = own.into_iter().collect();
        let Some(used) = own.and_then(|own| model.uses.get(&own)) else {
            return SeriesEnd::default();
        };
        SeriesEnd {
            may: used.may_end.is_some_and(|since| since + LINGER <= model.now + ROUNDING)
                || model.is_lenient,
            must: used.has_ended.is_some_and(|since| since + LINGER + LATE < model.now),
        }
    }
}
