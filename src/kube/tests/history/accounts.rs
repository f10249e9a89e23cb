//! The world's own account of what has happened to each pod, job, node and Kubernetes Event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cluster::{Kind, Object};
use super::status::Status;

/// The time after its deletion for which the ledger remembers an Event.
const EVENT_RETENTION: Duration = Duration::from_secs(300);

/// The account of one object.
#[derive(Debug)]
pub struct Account {
    /// The object as it was created.
    pub object: Object,
    /// The workload of a pod or job, or `None` if only a list/watch of its owners would tell.
    pub workload: Option<String>,
    /// The UID of the workload.
    pub workload_uid: String,
    pub created_at: Instant,
    /// The status when histories begin, if it existed then.
    pub initial: Option<Arc<Status>>,
    /// The last status that its kubelet or controller has reported. It survives the object and restores from a backup.
    pub status: Arc<Status>,
    /// How often it has ceased to exist: it was deleted, or is missing in a backup.
    pub removals: u32,
    /// The time of the last one.
    pub removed_at: Option<Instant>,
    pub is_present: bool,
    /// It has been brought back, or its status has been set back, by a backup.
    pub is_restored: bool,
    /// A backup has set its status back, and its kubelet has not yet reported again.
    pub is_set_back: bool,
    /// The number of times that a backup has set its status back.
    pub set_backs: u32,
    /// The time of the first report after that.
    pub reported_at: Option<Instant>,
    /// The reasons with which the pod or job has ended since histories began, as far as its states prove them.
    pub ends: BTreeSet<&'static str>,
    /// The number of occurrences of an Event, by the time from which on it has had them.
    occurrences: Vec<(Instant, u32)>,
    /// An Event has come back after the ledger had forgotten its number of occurrences.
    pub is_forgotten: bool,
}

impl Account {
    /// Returns the number of the state that it was created with.
    pub fn created(&self) -> u64 {
        self.object.state
    }

    /// Returns the number of occurrences that an Event had at a time.
    pub fn occurrences_before(&self, time: Instant) -> i64 {
        let until = self.occurrences.iter().take_while(|(at, _)| *at <= time);
        let initial = self.initial.as_ref().map_or(0, |initial| initial.occurrences);
        until.last().map_or(initial, |(_, number)| *number).into()
    }

    /// Returns the time of the last occurrence of an Event, if there was one since histories began.
    pub fn last_occurrence(&self) -> Option<Instant> {
        self.occurrences.last().map(|(at, _)| *at)
    }

    fn note_removal(&mut self) {
        self.removals += 1;
        (self.removed_at, self.is_present) = (Some(Instant::now()), false);
    }

    /// Notes the end that a status proves; with `is_gone` also that of a pod without a final phase.
    fn note_end(&mut self, status: &Status, is_gone: bool) {
        let is_old = self.initial.as_ref().is_some_and(|initial| initial.end.is_some());
        if !is_old && (is_gone || status.end.is_some()) {
            self.ends.insert(status.reason());
        }
    }
}

/// The account of a workload.
#[derive(Debug, Default)]
pub struct WorkloadAccount {
    uids: Vec<(Instant, String)>,
    /// The number of its pods and jobs.
    members: usize,
    /// The time since which it has had none.
    pub absent_since: Option<Instant>,
    /// The beginning and the end of each earlier time without any.
    pub absences: Vec<(Instant, Instant)>,
}

impl WorkloadAccount {
    /// Returns the UIDs that it has had, each with the time since which it has been the latest, in this order.
    pub fn uids(&self) -> &[(Instant, String)] {
        &self.uids
    }

    fn enter(&mut self, uid: &str) {
        if self.uids.last().is_none_or(|(_, last)| last != uid) {
            self.uids.push((Instant::now(), uid.to_owned()));
        }
        self.members += 1;
        let absence = self.absent_since.take().map(|since| (since, Instant::now()));
        self.absences.extend(absence);
    }

    fn leave(&mut self) {
        self.members -= 1;
        self.absent_since = (self.members == 0).then(Instant::now);
    }
}

/// The accounts of all such objects there have ever been.
#[derive(Default)]
pub struct Accounts {
    accounts: BTreeMap<String, Account>,
    workloads: BTreeMap<String, WorkloadAccount>,
    /// The UID and the status of each state.
    states: BTreeMap<u64, (String, Arc<Status>)>,
    /// The number of the last state.
    pub last_state: u64,
}

impl Accounts {
    /// Makes the present states those that histories begin with.
    pub fn begin(&mut self) {
        for account in self.accounts.values_mut() {
            account.initial = Some(Arc::clone(&account.status));
            account.ends.clear();
        }
    }

    /// Notes a new state of an object.
    pub fn put(&mut self, object: &Object) {
        self.last_state = object.state;
        if !object.scope.kind.has_account() {
            return;
        }
        let (status, workloads) = (&object.status, &mut self.workloads);
        let workload_uid = object.owner_uid().unwrap_or_else(|| object.uid.clone());
        let mut enter = || {
            let workload = workload_of(object);
            if let Some(workload) = &workload {
                workloads.entry(workload.clone()).or_default().enter(&workload_uid);
            }
            workload
        };
        let account = self.accounts.entry(object.uid.clone()).or_insert_with(|| Account {
            object: object.clone(),
            workload: enter(),
            workload_uid: workload_uid.clone(),
            created_at: Instant::now(),
            initial: None,
            status: Arc::clone(status),
            removals: 0,
            removed_at: None,
            is_present: true,
            is_restored: false,
            is_set_back: false,
            set_backs: 0,
            reported_at: None,
            ends: BTreeSet::new(),
            occurrences: Vec::new(),
            is_forgotten: false,
        });
        account.status = Arc::clone(status);
        if std::mem::take(&mut account.is_set_back) {
            account.reported_at = Some(Instant::now());
        }
        account.note_end(status, false);
        if status.occurrences > 0 {
            account.occurrences.push((Instant::now(), status.occurrences));
        }
        self.states.insert(object.state, (object.uid.clone(), Arc::clone(status)));
    }

    /// Notes that an object was deleted.
    pub fn remove(&mut self, object: &Object) {
        if let Some(account) = self.accounts.get_mut(&object.uid) {
            account.note_end(&object.status, true);
            // A backup has set the status back.
            account.note_end(&Arc::clone(&account.status), true);
            account.note_removal();
            let workload = account.workload.as_ref();
            let workload = workload.and_then(|workload| self.workloads.get_mut(workload));
            workload.into_iter().for_each(WorkloadAccount::leave);
        }
    }

    /// Notes that the cluster consists of the objects of a backup again.
    pub fn restore<'o>(&mut self, objects: impl Iterator<Item = &'o Object>) {
        let present: BTreeMap<&str, &Arc<Status>> =
            objects.map(|object| (&*object.uid, &object.status)).collect();
        for (uid, account) in &mut self.accounts {
            let status = present.get(&**uid);
            let was_present = std::mem::replace(&mut account.is_present, status.is_some());
            account.is_restored |= account.is_present;
            account.is_set_back = status.is_some_and(|status| **status != account.status);
            account.set_backs += u32::from(account.is_set_back);
            account.is_forgotten |= !was_present
                && account.is_present
                && account.removed_at.is_some_and(|at| at.elapsed() >= EVENT_RETENTION);
            let workload = account.workload.as_ref();
            if let Some(workload) = workload.and_then(|name| self.workloads.get_mut(name)) {
                match (was_present, account.is_present) {
                    (false, true) => workload.enter(&account.workload_uid),
                    (true, false) => workload.leave(),
                    _ => {}
                }
            }
            if was_present && !account.is_present {
                let status = Arc::clone(&account.status);
                account.note_end(&status, status.is_disrupted());
                account.note_removal();
            }
        }
    }

    pub fn get(&self, uid: &str) -> Option<&Account> {
        self.accounts.get(uid)
    }

    /// Returns the account of a workload.
    pub fn workload(&self, name: &str) -> Option<&WorkloadAccount> {
        self.workloads.get(name)
    }

    /// Returns the accounts of all workloads with their names.
    pub fn workloads(&self) -> impl Iterator<Item = (&String, &WorkloadAccount)> {
        self.workloads.iter()
    }

    /// Returns the accounts of a kind with their UIDs.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&String, &Account)> {
        self.accounts.iter().filter(move |(_, account)| account.object.scope.kind == kind)
    }

    /// Returns the UID and the status of a state.
    pub fn state(&self, number: u64) -> Option<(&str, &Arc<Status>)> {
        self.states.get(&number).map(|(uid, status)| (&**uid, status))
    }
}

/// Returns the workload of a pod or job, or `None` if only a list/watch of its owners would tell.
fn workload_of(object: &Object) -> Option<String> {
    let by_itself = match object.scope.kind {
        Kind::Pod => "barepod",
        Kind::Job => "job",
        _ => return None,
    };
    let namespace = object.scope.namespace;
    match object.owner() {
        None => Some(format!("{namespace}/{by_itself}/{}", object.name)),
        Some(("Job", _)) => None,
        Some((kind, name)) => Some(format!("{namespace}/{}/{name}", kind.to_lowercase())),
    }
}
