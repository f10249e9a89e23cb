//! The pods that sent lines, resolved once for each peer and stated origin until a pod changes.
//!
//! Socket credentials outrank the source address, which outranks the origin that a line states. An origin that contradicts
//! one of the others is rejected.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use foldhash::quality::RandomState;

use crate::pods::{Cgroup, Claim, ContainerClaim, Found, Missing, PodIndex, SenderLabels};
use crate::statsd::metrics::{RejectedClaim, SenderOutcome};

/// The maximum number of resolved senders. Stated origins can be invented.
const MAX_SENDERS: usize = 16_384;
/// The maximum length of the sections that state an origin. Longer ones state none.
const MAX_ORIGIN: usize = 512;

/// The time for which the ID of a process is taken for the same process, and the inode of a cgroup for a known or unknown
/// one.
const NUMBER_LIFETIME: Duration = Duration::from_secs(1);

/// The peer that a line came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// Nothing is known about the sender.
    #[default]
    Unknown,
    /// The address that the lines were sent from.
    Address(IpAddr),
    /// A process that sent to the Unix socket.
    Process(u32),
    /// Another replica, which states the UID of the pod.
    Replica,
}

/// The pod that a line is attributed to, or the cause why there is none.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// The labels of its lines.
    pub(crate) labels: Option<Arc<SenderLabels>>,
    /// The UID of the pod.
    pub(crate) uid: Option<Arc<str>>,
    pub(crate) outcome: SenderOutcome,
    pub(crate) rejected: Option<RejectedClaim>,
}

impl Sender {
    /// Finds the pod by the strongest evidence of a peer and a stated origin.
    pub(crate) fn resolve(index: &PodIndex, peer: Peer, origin: &[u8]) -> Self {
        let proven = match peer {
            Peer::Unknown => Err(SenderOutcome::NoOrigin),
            Peer::Address(address) => match index.by_address(address) {
                Ok(found) => Ok((found, SenderOutcome::Address)),
                Err(missing) => Err(outcome(missing, SenderOutcome::UnknownAddress)),
            },
            Peer::Process(process) => by_process(index, process),
            Peer::Replica => {
                let uid = std::str::from_utf8(origin).unwrap_or_default();
                return match index.by_replicated_uid(uid) {
                    Ok(found) => Self::of(found, SenderOutcome::Replica, None),
                    Err(_) if uid.is_empty() => Self::unknown(SenderOutcome::NoOrigin, None),
                    Err(missing) => {
                        Self::unknown(outcome(missing, SenderOutcome::UnknownPod), None)
                    }
                };
            }
        };
        let stated = (origin.len() <= MAX_ORIGIN).then(|| Claim::parse(origin));
        match (proven, stated.and_then(|claim| by_claim(index, &claim))) {
            (Ok((found, by)), Some(Ok((claimed, _)))) if claimed.pod.uid != found.pod.uid => {
                let rejected = match by {
                    SenderOutcome::Credentials => RejectedClaim::Credentials,
                    _ => RejectedClaim::Address,
                };
                Self::of(found, by, Some(rejected))
            }
            (Ok((found, by)), _) => Self::of(found, by, None),
            (Err(SenderOutcome::HostNetwork), Some(Ok((claimed, _))))
                if !claimed.pod.node_addresses.iter().any(|node| Peer::Address(*node) == peer) =>
            {
                Self::unknown(SenderOutcome::HostNetwork, Some(RejectedClaim::NodeAddress))
            }
            (Err(_), Some(Ok((claimed, by)))) => Self::of(claimed, by, None),
            (Err(SenderOutcome::UnknownAddress | SenderOutcome::NoOrigin), Some(Err(cause))) => {
                Self::unknown(cause, None)
            }
            (Err(cause), _) => Self::unknown(cause, None),
        }
    }

    fn of(found: Found, by: SenderOutcome, rejected: Option<RejectedClaim>) -> Self {
        let outcome = if found.labels.is_some() { by } else { SenderOutcome::NoWorkload };
        let uid = Some(Arc::clone(&found.pod.uid));
        Self { labels: found.labels, uid, outcome, rejected }
    }

    fn unknown(outcome: SenderOutcome, rejected: Option<RejectedClaim>) -> Self {
        Self { labels: None, uid: None, outcome, rejected }
    }
}

/// Returns the cause for which no pod is found, given the one for an unknown key.
fn outcome(missing: Missing, unknown: SenderOutcome) -> SenderOutcome {
    match missing {
        Missing::NotSynced => SenderOutcome::NotSynced,
        Missing::Unknown => unknown,
        Missing::Ended => SenderOutcome::Ended,
        Missing::HostNetwork => SenderOutcome::HostNetwork,
    }
}

fn by_process(index: &PodIndex, process: u32) -> Result<(Found, SenderOutcome), SenderOutcome> {
    let cgroup = Cgroup::of_process(process).map_err(|_| SenderOutcome::HiddenProcess)?;
    match index.by_cgroup(&cgroup) {
        None => Err(SenderOutcome::HostProcess),
        Some(Ok(found)) => Ok((found, SenderOutcome::Credentials)),
        Some(Err(missing)) => Err(outcome(missing, SenderOutcome::UnknownContainer)),
    }
}

/// Returns the pod of a stated origin, or the cause for which there is none; `None` if none is stated.
fn by_claim(
    index: &PodIndex,
    claim: &Claim<'_>,
) -> Option<Result<(Found, SenderOutcome), SenderOutcome>> {
    let by_container = claim.container.map(|container| match container {
        ContainerClaim::Id(id) => index.by_container(id),
        ContainerClaim::Inode(inode) => index.by_inode(inode),
    });
    let by_uid = || Some((index.by_uid(claim.pod_uid?), SenderOutcome::ExternalData));
    let result = match by_container {
        Some(Ok(found)) => (Ok(found), SenderOutcome::ContainerId),
        Some(missing) => by_uid().unwrap_or((missing, SenderOutcome::ContainerId)),
        None => by_uid()?,
    };
    let (found, by) = result;
    let unknown = SenderOutcome::UnknownContainer;
    Some(found.map(|found| (found, by)).map_err(|missing| outcome(missing, unknown)))
}

/// The number of peers that are found without hashing, one for each value of a byte.
const SLOTS: usize = 256;

/// What each line of a sender needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    /// Distinguishes the keys of its lines from those of senders with other labels.
    pub(super) salt: u64,
    /// The number of the sender.
    sender: u32,
    pub(super) outcome: SenderOutcome,
    pub(super) rejected: Option<RejectedClaim>,
}

impl Current {
    const NOBODY: Self =
        Self { salt: 0, sender: u32::MAX, outcome: SenderOutcome::NoOrigin, rejected: None };
}

/// A peer, the sender of its lines that state no origin, and that of the last origin.
#[derive(Debug)]
struct Slot {
    /// The peer as a number if it is an IPv4 address, otherwise 0.
    ipv4: u64,
    /// The peer; `None` if the slot is free.
    peer: Option<Peer>,
    sender: Current,
    origin: Vec<u8>,
    /// The hash of that origin; 0 if it is not known.
    origin_hash: u64,
    origin_sender: Current,
}

impl Slot {
    fn free() -> Self {
        let (sender, origin, origin_hash) = (Current::NOBODY, Vec::new(), 0);
        Self { ipv4: 0, peer: None, sender, origin, origin_hash, origin_sender: sender }
    }
}

/// Returns an IPv4 address as a number that is not 0.
#[inline]
fn ipv4_key(address: Ipv4Addr) -> u64 {
    u64::from(u32::from(address)) | 1 << 32
}

/// Returns the slot for a number. Multiplicative hashing: the highest bits of the product depend on all bits of the number.
#[inline]
fn slot_of(number: u32) -> u8 {
    (number.wrapping_mul(0x9e37_79b1) >> 24) as u8
}

/// Returns the slot of a peer.
fn slot_of_peer(peer: Peer) -> u8 {
    slot_of(match peer {
        Peer::Unknown | Peer::Replica => 0,
        Peer::Process(process) => process,
        Peer::Address(IpAddr::V4(address)) => address.into(),
        Peer::Address(IpAddr::V6(address)) => {
            let bits = u128::from(address);
            (bits ^ bits >> 32 ^ bits >> 64) as u32
        }
    })
}

/// The resolved senders of one ingest thread.
#[derive(Debug)]
pub(super) struct SenderCache {
    index: Arc<PodIndex>,
    /// The generation of the index that the senders are from.
    generation: u64,
    /// The time on the clock of the index at which the first of them was searched by the number of a process or an inode.
    numbers_since: Option<Duration>,
    hasher: RandomState,
    senders: Vec<Sender>,
    by_peer: HashMap<Peer, Current, RandomState>,
    /// By the number of the sender without a stated origin, followed by the origin.
    by_origin: HashMap<Box<[u8]>, Current, RandomState>,
    slots: Box<[Slot; SLOTS]>,
    /// The slot of the current peer.
    slot: u8,
    /// The sender of the current line.
    current: Current,
    /// True if the current line states an origin.
    is_stated: bool,
    scratch: Vec<u8>,
}

impl SenderCache {
    pub(super) fn new(index: &Arc<PodIndex>) -> Self {
        let mut cache = Self {
            index: Arc::clone(index),
            generation: index.generation(),
            numbers_since: None,
            hasher: RandomState::default(),
            senders: Vec::new(),
            by_peer: HashMap::default(),
            by_origin: HashMap::default(),
            slots: Box::new(std::array::from_fn(|_| Slot::free())),
            slot: 0,
            current: Current::NOBODY,
            is_stated: false,
            scratch: Vec::new(),
        };
        cache.set_peer(Peer::Unknown);
        cache
    }

    /// Begins a batch: forgets all senders if a pod has changed, or if the
    /// number of a process or a cgroup may belong to another one.
    pub(super) fn begin(&mut self) {
        let is_old =
            self.numbers_since.is_some_and(|since| self.index.now() > since + NUMBER_LIFETIME);
        let generation = self.index.generation();
        if is_old || generation != self.generation {
            self.generation = generation;
            self.forget();
        }
    }

    /// Forgets all senders and resolves the current peer again.
    fn forget(&mut self) {
        let peer = self.slots[usize::from(self.slot)].peer.unwrap_or_default();
        self.clear();
        self.set_peer(peer);
    }

    fn clear(&mut self) {
        self.numbers_since = None;
        self.senders.clear();
        self.by_peer.clear();
        self.by_origin.clear();
        for slot in self.slots.iter_mut() {
            (slot.ipv4, slot.peer) = (0, None);
        }
    }

    /// Forgets all senders if there is no room for another one.
    fn make_room(&mut self) {
        if self.senders.len() >= MAX_SENDERS {
            self.clear();
        }
    }

    /// Sets the peer of the following lines.
    #[inline]
    pub(super) fn set_peer(&mut self, peer: Peer) {
        if let Peer::Address(IpAddr::V4(address)) = peer {
            let at = slot_of(address.into());
            let slot = &self.slots[usize::from(at)];
            if slot.ipv4 == ipv4_key(address) {
                (self.slot, self.current, self.is_stated) = (at, slot.sender, false);
                return;
            }
        }
        self.find_peer(peer);
    }

    fn find_peer(&mut self, peer: Peer) {
        let at = slot_of_peer(peer);
        let slot = &self.slots[usize::from(at)];
        if slot.peer == Some(peer) {
            (self.slot, self.current, self.is_stated) = (at, slot.sender, false);
            return;
        }
        self.make_room();
        let sender = match self.by_peer.get(&peer) {
            Some(sender) => *sender,
            None => {
                let sender = self.add(peer, b"");
                self.by_peer.insert(peer, sender);
                sender
            }
        };
        self.use_slot(peer, sender);
    }

    fn use_slot(&mut self, peer: Peer, sender: Current) {
        (self.slot, self.current, self.is_stated) = (slot_of_peer(peer), sender, false);
        let slot = &mut self.slots[usize::from(self.slot)];
        slot.ipv4 = match peer {
            Peer::Address(IpAddr::V4(address)) => ipv4_key(address),
            _ => 0,
        };
        (slot.peer, slot.sender, slot.origin_sender) = (Some(peer), sender, sender);
        slot.origin.clear();
        slot.origin_hash = 0;
    }

    /// Sets the sections of the current line that state its origin, with their hash; 0 if there are none.
    #[inline]
    pub(super) fn set_hashed_origin(&mut self, origin: &[u8], hash: u64) {
        let slot = &self.slots[usize::from(self.slot)];
        if hash == 0 {
            self.set_origin(origin);
        } else if slot.origin_hash == hash {
            (self.current, self.is_stated) = (slot.origin_sender, true);
        } else {
            self.set_origin(origin);
            self.slots[usize::from(self.slot)].origin_hash = hash;
        }
    }

    /// Sets the sections of the current line that state its origin.
    #[inline]
    pub(super) fn set_origin(&mut self, origin: &[u8]) {
        if !origin.is_empty() || self.is_stated {
            self.find_origin(origin);
        }
    }

    fn find_origin(&mut self, origin: &[u8]) {
        self.is_stated = !origin.is_empty();
        let slot = &self.slots[usize::from(self.slot)];
        self.current = slot.sender;
        // Another replica has resolved the origin.
        if origin.is_empty() || slot.peer == Some(Peer::Replica) {
            return;
        }
        if origin == slot.origin {
            self.current = slot.origin_sender;
            return;
        }
        if self.senders.len() >= MAX_SENDERS {
            self.forget();
            self.is_stated = true;
        }
        let slot = &self.slots[usize::from(self.slot)];
        let (peer, sender) = (slot.peer.unwrap_or_default(), slot.sender);
        let origin = origin.get(..=MAX_ORIGIN).unwrap_or(origin);
        self.current = self.by_origin(peer, sender.sender, origin);
        let slot = &mut self.slots[usize::from(self.slot)];
        slot.origin_hash = 0;
        slot.origin.clear();
        slot.origin.extend_from_slice(origin);
        slot.origin_sender = self.current;
    }

    fn by_origin(&mut self, peer: Peer, without: u32, origin: &[u8]) -> Current {
        self.scratch.clear();
        self.scratch.extend_from_slice(&without.to_ne_bytes());
        self.scratch.extend_from_slice(origin);
        if let Some(sender) = self.by_origin.get(self.scratch.as_slice()) {
            return *sender;
        }
        let sender = self.add(peer, origin);
        self.by_origin.insert(self.scratch.as_slice().into(), sender);
        sender
    }

    /// Sets the UID of the pod that sent the following lines to another replica.
    pub(super) fn set_pod(&mut self, uid: &[u8]) {
        self.make_room();
        let uid = uid.get(..=MAX_ORIGIN).unwrap_or(uid);
        let sender = self.by_origin(Peer::Replica, u32::MAX, uid);
        self.use_slot(Peer::Replica, sender);
    }

    fn add(&mut self, peer: Peer, origin: &[u8]) -> Current {
        let container = Claim::parse(origin).container;
        if matches!(peer, Peer::Process(_)) || matches!(container, Some(ContainerClaim::Inode(_))) {
            self.numbers_since.get_or_insert_with(|| self.index.now());
        }
        let found = Sender::resolve(&self.index, peer, origin);
        let salt = found.labels.as_ref().map_or(0, |labels| self.hasher.hash_one(labels.id));
        let (outcome, rejected) = (found.outcome, found.rejected);
        let sender = self.senders.len() as u32;
        self.senders.push(found);
        Current { salt, sender, outcome, rejected }
    }

    /// Returns the sender of the current line.
    pub(super) fn sender(&self) -> Option<&Sender> {
        self.senders.get(self.current.sender as usize)
    }

    /// Returns what the current line needs of its sender.
    #[inline]
    pub(super) fn current(&self) -> &Current {
        &self.current
    }
}
