//! The index of pods by address, container ID and UID.
//!
//! Pods that have ended are told apart by time: for [`LAST_LINES`] after its end a pod is still found, because its last
//! lines may be on their way. For [`LINGER`] its address and containers are known to be those of an ended pod, and its
//! labels stay in use, so that the last values are scraped. Lines that another replica has received get them for almost as long,
//! because they state the UID of the pod, which belongs to no other one.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use super::cgroup::{Cgroup, CgroupInodes};
use super::pod::Pod;
use super::selection::{PodLabel, Selection};
use crate::util::lock::Lock;
use crate::util::shrink::Shrink as _;

/// The time after its end for which a pod is still found.
pub(super) const LAST_LINES: Duration = Duration::from_secs(5);
/// The time after which an ended pod is forgotten. Longer than most scrape intervals.
pub(super) const LINGER: Duration = Duration::from_secs(90);

/// The time for which a line may still get the labels of a pod that has other ones now: longer than a batch of lines takes,
/// whose senders are looked up at its beginning.
pub(super) const LAST_BATCH: Duration = Duration::from_secs(1);

/// The times after the end of a pod: then senders do not find it any more, then other replicas do not, then it is forgotten.
const STAGES: [Duration; 3] = [LAST_LINES, REPLICATED_LINES, LINGER];
/// The time after its end for which a pod is still found for lines that another replica has received.
const REPLICATED_LINES: Duration = LINGER.saturating_sub(LAST_BATCH);

/// Names and values of labels, sorted by name.
pub type LabelPairs = Box<[(PodLabel, Box<str>)]>;

/// The labels that lines of a pod get. Pods with equal labels share them.
#[derive(Debug, PartialEq, Eq)]
pub struct SenderLabels {
    /// A number that is never used for other labels.
    pub id: u64,
    /// Names and values, sorted by name.
    pub pairs: LabelPairs,
}

impl SenderLabels {
    /// Returns true if there is a label with this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.pairs.iter().any(|(label, _)| label.as_str() == name)
    }
}

/// The reason why no pod is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The pods have not been listed yet, or cannot be listed.
    NotSynced,
    /// No known pod has this address, container or UID.
    Unknown,
    /// The pod ended a while ago.
    Ended,
    /// The address is that of a node, which its processes and pods in the host network share.
    HostNetwork,
}

/// A pod that was found, with its labels, or `None` for those if its workload is not known.
#[derive(Clone, Debug)]
pub struct Found {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The labels.
    pub labels: Option<Arc<SenderLabels>>,
}

/// The result of a look-up.
pub type Lookup = Result<Found, Missing>;

/// A known pod.
struct Entry {
    pod: Arc<Pod>,
    labels: Option<Arc<SenderLabels>>,
    /// The writer that has it, see [`PodIndex::writer`].
    writer: u64,
    /// The time of its end.
    ended: Option<Duration>,
    /// It had ended before it was known, so only lines of other replicas can be from it.
    is_past: bool,
}

/// Labels in use, and the number of pods that have them.
struct UsedLabels {
    labels: Arc<SenderLabels>,
    pods: usize,
}

#[derive(Default)]
struct State {
    pods: HashMap<Arc<str>, Entry>,
    by_address: HashMap<IpAddr, Vec<Arc<str>>>,
    by_container: HashMap<Box<str>, Arc<str>>,
    /// The addresses of nodes, with the number of pods on the node.
    nodes: HashMap<IpAddr, usize>,
    labels: HashMap<LabelPairs, UsedLabels>,
    next_labels: u64,
    /// Labels whose last pod has been unlinked, possibly to be linked again.
    released: Vec<Arc<SenderLabels>>,
    /// Labels that no pod has any more, and when their series end.
    unused_labels: Vec<(Duration, u64)>,
    /// The pods that have ended, with the time of the end, by the next of the [`STAGES`].
    ending: [VecDeque<(Duration, Arc<str>)>; STAGES.len()],
    /// The list/watches of pods that are served, and whether each is complete.
    lists: HashMap<u64, bool>,
}

/// The index of pods.
pub struct PodIndex {
    selection: Selection,
    state: Lock<State>,
    generation: AtomicU64,
    next_writer: AtomicU64,
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    /// The cgroups of containers on this node.
    inodes: CgroupInodes,
    /// Lines of other replicas may be from pods that had ended before the first list. Therefore finished pods are known for a while if
    /// they come with a list that is not complete, also with that of a reload.
    has_replicas: bool,
    /// Called when [`PodIndex::advance`] has to be called earlier than it returned.
    on_end: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for PodIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodIndex").field("selection", &self.selection).finish_non_exhaustive()
    }
}

impl PodIndex {
    /// Returns an empty index for these labels.
    #[must_use]
    pub fn new(selection: Selection) -> Self {
        let start = Instant::now();
        Self::with_clock(selection, Box::new(move || start.elapsed()))
    }

    /// Returns an empty index with a clock, which need not start at a particular time.
    #[must_use]
    pub fn with_clock(
        selection: Selection,
        clock: Box<dyn Fn() -> Duration + Send + Sync>,
    ) -> Self {
        Self {
            selection,
            state: Lock::default(),
            generation: AtomicU64::new(0),
            next_writer: AtomicU64::new(0),
            clock,
            inodes: CgroupInodes::default(),
            has_replicas: false,
            on_end: OnceLock::new(),
        }
    }

    /// Expects lines that other replicas have received, also those of pods that had ended before the first list.
    #[must_use]
    pub fn for_replicas(self) -> Self {
        Self { has_replicas: true, ..self }
    }

    /// Returns the time of the clock.
    pub(crate) fn now(&self) -> Duration {
        (self.clock)()
    }

    /// Sets the function that is called when a pod ends. Later calls have no effect.
    pub fn on_end(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_end.set(Box::new(call));
    }

    /// Returns a number that differs whenever a look-up may have another result.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the number of a new writer. A pod belongs to the last writer that put it, so that a writer that is replaced
    /// can remove its pods without removing those of its successor.
    pub fn writer(&self) -> u64 {
        self.next_writer.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds or changes a pod. Its workload stays known while its owners are not, as during a change of the configuration.
    pub fn put(&self, writer: u64, mut pod: Pod) {
        let now = self.now();
        let mut state = self.state.lock();
        let old = state.pods.remove(&pod.uid);
        let (mut ended, mut is_past) = (None, false);
        if let Some(old) = old {
            pod.workload = pod.workload.or_else(|| old.pod.workload.clone());
            if *old.pod == pod && old.ended.is_some() == pod.is_finished {
                state.pods.insert(Arc::clone(&pod.uid), Entry { writer, ..old });
                return;
            }
            state.unlink(&old);
            ended = pod.is_finished.then_some(old.ended.unwrap_or(now));
            is_past = old.is_past && ended.is_some();
            if ended.is_some() && old.ended.is_none() {
                state.ending[0].push_back((now, Arc::clone(&pod.uid)));
            }
        } else if pod.is_finished {
            // It ended before this process knew it, so it sends nothing. Another replica may have its last lines.
            if !self.has_replicas || state.is_synced() {
                return;
            }
            (ended, is_past) = (Some(now), true);
            state.ending[0].push_back((now, Arc::clone(&pod.uid)));
        }
        let entry = Entry { pod: Arc::new(pod), labels: None, writer, ended, is_past };
        state.link(&self.selection, entry);
        self.changed(state, ended == Some(now));
    }

    /// Removes a pod, if it still belongs to the writer.
    pub fn remove(&self, writer: u64, uid: &str) {
        let now = self.now();
        let mut state = self.state.lock();
        let Some(entry) = state.pods.get_mut(uid).filter(|entry| entry.writer == writer) else {
            return;
        };
        if entry.ended.is_none() {
            entry.ended = Some(now);
            let uid = Arc::clone(&entry.pod.uid);
            state.ending[0].push_back((now, uid));
        }
        self.changed(state, true);
    }

    /// Notes a served list/watch of pods, and whether its list is complete; `None` if it is not served any more.
    pub fn set_list(&self, list: u64, is_complete: Option<bool>) {
        let mut state = self.state.lock();
        match is_complete {
            Some(is_complete) => state.lists.insert(list, is_complete),
            None => state.lists.remove(&list),
        };
        self.changed(state, false);
    }

    /// Forgets pods that ended long ago. Returns the labels that lines do not get any more, and the time until the next call
    /// is necessary.
    pub fn advance(&self) -> (Vec<u64>, Option<Duration>) {
        let now = self.now();
        let mut state = self.state.lock();
        let mut has_changed = false;
        for next in 1..STAGES.len() {
            let before = |(at, _): &mut (Duration, _)| *at + STAGES[next - 1] < now;
            while let Some(ended) = state.ending[next - 1].pop_front_if(before) {
                state.ending[next].push_back(ended);
                has_changed = true;
            }
        }
        let last = STAGES.len() - 1;
        while let Some((ended, uid)) = state.ending[last].pop_front_if(|(at, _)| *at + LINGER < now)
        {
            if state.pods.get(&uid).is_some_and(|entry| entry.ended == Some(ended))
                && let Some(entry) = state.pods.remove(&uid)
            {
                state.pods.shrink();
                state.unlink(&entry);
                has_changed = true;
            }
        }
        // These pods have not been found for long.
        state.drop_released_labels(now);
        let State { ending, unused_labels, .. } = &mut *state;
        let unused = unused_labels.extract_if(.., |(at, _)| *at <= now).map(|(_, id)| id).collect();
        let stages = ending.iter().zip(STAGES);
        let ending = stages.filter_map(|(queue, time)| Some(queue.front()?.0 + time));
        let unused_at = unused_labels.iter().map(|(at, _)| *at);
        let next = ending.chain(unused_at).min();
        if has_changed {
            self.changed(state, false);
        }
        (unused, next.map(|next| next.saturating_sub(now) + Duration::from_millis(1)))
    }

    /// Finds the pod that has this address alone. Of several, the one that started last has it.
    ///
    /// # Errors
    /// Returns the reason why there is none.
    pub fn by_address(&self, address: IpAddr) -> Lookup {
        let state = self.state.lock();
        let pods = state.by_address.get(&address).into_iter().flatten();
        let pods = pods.filter_map(|uid| state.pods.get(uid)).filter(|entry| !entry.is_past);
        let last = pods.max_by_key(|entry| (entry.ended.is_none(), entry.ended, entry.pod.started));
        match self.found(&state, last) {
            Err(_) if state.nodes.contains_key(&address) => Err(Missing::HostNetwork),
            found => found,
        }
    }

    /// Finds the pod of a container.
    ///
    /// # Errors
    /// Returns the reason why there is none.
    pub fn by_container(&self, id: &str) -> Lookup {
        let state = self.state.lock();
        let uid = state.by_container.get(id);
        self.found(&state, uid.and_then(|uid| state.pods.get(uid)))
    }

    /// Finds the pod of a cgroup. `None` if the cgroup belongs to no container.
    pub fn by_cgroup(&self, cgroup: &Cgroup) -> Option<Lookup> {
        let by_container = cgroup.container.as_ref().map(|id| self.by_container(id));
        match by_container {
            Some(Ok(found)) => Some(Ok(found)),
            missing => cgroup.pod_uid.as_ref().map(|uid| self.by_uid(uid)).or(missing),
        }
    }

    /// Finds the pod of the container whose cgroup on this node has this inode.
    ///
    /// # Errors
    /// Returns the reason why there is none.
    pub fn by_inode(&self, inode: u64) -> Lookup {
        let cgroup = self.inodes.get(inode, self.now());
        cgroup.and_then(|cgroup| self.by_cgroup(&cgroup)).unwrap_or(Err(Missing::Unknown))
    }

    /// Finds the pod with this UID.
    ///
    /// # Errors
    /// Returns the reason why there is none.
    pub fn by_uid(&self, uid: &str) -> Lookup {
        let state = self.state.lock();
        self.found(&state, state.pods.get(uid))
    }

    /// Finds the pod with this UID for a line that another replica has received.
    ///
    /// # Errors
    /// Returns the reason why there is none.
    pub fn by_replicated_uid(&self, uid: &str) -> Lookup {
        let state = self.state.lock();
        match state.pods.get(uid) {
            Some(Entry { pod, labels, ended: Some(ended), .. })
                if *ended + REPLICATED_LINES >= self.now() =>
            {
                Ok(Found { pod: Arc::clone(pod), labels: labels.clone() })
            }
            entry => self.found(&state, entry),
        }
    }

    fn found(&self, state: &State, entry: Option<&Entry>) -> Lookup {
        let now = self.now();
        match entry {
            Some(Entry { ended: Some(ended), is_past, .. })
                if *is_past || *ended + LAST_LINES < now =>
            {
                Err(Missing::Ended)
            }
            Some(Entry { pod, labels, .. }) => {
                Ok(Found { pod: Arc::clone(pod), labels: labels.clone() })
            }
            None if state.is_synced() => Err(Missing::Unknown),
            None => Err(Missing::NotSynced),
        }
    }

    /// Publishes a change.
    fn changed(&self, mut state: MutexGuard<'_, State>, has_ended: bool) {
        let has_ended = has_ended | state.drop_released_labels(self.now() + LAST_BATCH);
        // Under the lock, so that a look-up with the new generation sees the change.
        self.generation.fetch_add(1, Ordering::Release);
        drop(state);
        if let Some(on_end) = self.on_end.get().filter(|_| has_ended) {
            on_end();
        }
    }
}

impl State {
    fn is_synced(&self) -> bool {
        !self.lists.is_empty() && self.lists.values().all(|is_complete| *is_complete)
    }

    /// Adds a pod with its labels.
    fn link(&mut self, selection: &Selection, mut entry: Entry) {
        let pod = Arc::clone(&entry.pod);
        for address in &pod.addresses {
            self.by_address.entry(*address).or_default().push(Arc::clone(&pod.uid));
        }
        for id in &pod.containers {
            self.by_container.insert(id.clone(), Arc::clone(&pod.uid));
        }
        for node in &pod.node_addresses {
            *self.nodes.entry(*node).or_default() += 1;
        }
        let pairs = selection.labels().map(|label| Some((label, Box::from(label.value(&pod)?))));
        if let Some(pairs) = pairs.collect::<Option<Box<[_]>>>() {
            let next = &mut self.next_labels;
            let used = self.labels.entry(pairs).or_insert_with_key(|pairs| {
                *next += 1;
                let labels = SenderLabels { id: *next, pairs: pairs.clone() };
                UsedLabels { labels: Arc::new(labels), pods: 0 }
            });
            used.pods += 1;
            entry.labels = Some(Arc::clone(&used.labels));
        }
        self.pods.insert(Arc::clone(&pod.uid), entry);
    }

    /// Removes what [`State::link`] has added, but for the pod itself.
    fn unlink(&mut self, entry: &Entry) {
        let pod = &entry.pod;
        for address in &pod.addresses {
            if let Some(uids) = self.by_address.get_mut(address) {
                uids.retain(|uid| *uid != pod.uid);
                if uids.is_empty() {
                    self.by_address.remove(address);
                    self.by_address.shrink();
                }
            }
        }
        for id in &pod.containers {
            if self.by_container.get(id) == Some(&pod.uid) {
                self.by_container.remove(id);
                self.by_container.shrink();
            }
        }
        for node in &pod.node_addresses {
            let Some(pods) = self.nodes.get_mut(node) else { continue };
            *pods -= 1;
            if *pods == 0 {
                self.nodes.remove(node);
                self.nodes.shrink();
            }
        }
        if let Some(labels) = &entry.labels
            && let Some(used) = self.labels.get_mut(&labels.pairs)
        {
            used.pods -= 1;
            if used.pods == 0 {
                self.released.push(Arc::clone(labels));
            }
        }
    }

    /// Drops the released labels, whose series end at a time, unless a pod has got them since. Returns true if there were any.
    fn drop_released_labels(&mut self, end: Duration) -> bool {
        let before = self.unused_labels.len();
        for labels in std::mem::take(&mut self.released) {
            if self.labels.get(&labels.pairs).is_some_and(|used| used.pods == 0) {
                self.labels.remove(&labels.pairs);
                self.labels.shrink();
                self.unused_labels.push((end, labels.id));
            }
        }
        self.unused_labels.len() > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl PodIndex {
        /// Searches inodes in this mount of the cgroups only.
        pub(crate) fn with_cgroups(mut self, root: std::path::PathBuf) -> Self {
            self.inodes = CgroupInodes::below(root);
            self
        }

        /// Returns the largest capacity of a table.
        pub(in crate::pods) fn capacity(&self) -> usize {
            let State { pods, by_address, by_container, nodes, labels, .. } = &*self.state.lock();
            let addresses = [by_address.capacity(), nodes.capacity()];
            let others = [pods.capacity(), by_container.capacity(), labels.capacity()];
            addresses.into_iter().chain(others).max().unwrap_or_default()
        }
    }
}
