//! The world's own account of what has happened to each pod and node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;

use super::cluster::{Kind, Object};
use super::status::Status;

/// The account of one object.
#[derive(Debug)]
pub struct Account {
    /// The object as it was created.
    pub object: Object,
    /// The workload of a pod, or `None` if only a list/watch of its owners would tell.
    pub workload: Option<String>,
    pub created_at: Instant,
    /// The status when histories begin, if it existed then.
    pub initial: Option<Arc<Status>>,
    /// The last status that its kubelet has reported. It survives the object and restores from a backup.
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
    /// The time of the first report after that.
    pub reported_at: Option<Instant>,
    /// The reasons with which the pod has ended since histories began, as far as its states prove them.
    pub ends: BTreeSet<&'static str>,
}

impl Account {
    /// Returns the number of the state that it was created with.
    pub fn created(&self) -> u64 {
        self.object.state
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

/// The accounts of all pods and nodes there have ever been.
#[derive(Default)]
pub struct Accounts {
    accounts: BTreeMap<String, Account>,
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
        if !matches!(object.scope.kind, Kind::Pod | Kind::Node) {
            return;
        }
        let status = &object.status;
        let account = self.accounts.entry(object.uid.clone()).or_insert_with(|| Account {
            object: object.clone(),
            workload: workload_of(object),
            created_at: Instant::now(),
            initial: None,
            status: Arc::clone(status),
            removals: 0,
            removed_at: None,
            is_present: true,
            is_restored: false,
            is_set_back: false,
            reported_at: None,
            ends: BTreeSet::new(),
        });
        account.status = Arc::clone(status);
        if std::mem::take(&mut account.is_set_back) {
            account.reported_at = Some(Instant::now());
        }
        account.note_end(status, false);
        self.states.insert(object.state, (object.uid.clone(), Arc::clone(status)));
    }

    /// Notes that an object was deleted.
    pub fn remove(&mut self, object: &Object) {
        if let Some(account) = self.accounts.get_mut(&object.uid) {
            account.note_end(&object.status, true);
            // A backup has set the status back.
            account.note_end(&Arc::clone(&account.status), true);
            account.note_removal();
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

    /// Returns the accounts of a kind with their UIDs.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&String, &Account)> {
        self.accounts.iter().filter(move |(_, account)| account.object.scope.kind == kind)
    }

    /// Returns the UID and the status of a state.
    pub fn state(&self, number: u64) -> Option<(&str, &Arc<Status>)> {
        self.states.get(&number).map(|(uid, status)| (&**uid, status))
    }
}

/// Returns the workload of a pod, or `None` if only a list/watch of its owners would tell.
fn workload_of(pod: &Object) -> Option<String> {
    let namespace = pod.scope.namespace;
    match pod.owner() {
        None => Some(format!("{namespace}/barepod/{}", pod.name)),
        Some(("Job", _)) => None,
        Some((kind, name)) => Some(format!("{namespace}/{}/{name}", kind.to_lowercase())),
    }
}
