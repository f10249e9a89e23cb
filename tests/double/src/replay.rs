//! A cluster of any size that repeats a recording: each unit under other names, with other identities and times.

use std::sync::Arc;

use super::layout::{Item, Phase};
use super::random::{Random, hex, mix, suffix, uuid};
use super::recording::{Class, Object, Recording, Role, State, Token, Unit, UnitKind, Values};

/// Workloads in a namespace.
const PER_NAMESPACE: u32 = 5;
/// Pods on a node.
const PER_NODE: u32 = 30;
/// Characters at the end of the name of a workload and of a namespace.
const CODE: usize = 5;
/// Longest age of the current revision of a workload, in seconds.
const OLDEST: u32 = 30 * 86_400;
/// Time between two rollouts of a workload before the initial state, in seconds.
const BETWEEN: i64 = 7 * 86_400;

/// A replayed cluster.
pub struct Replay {
    /// The recording.
    pub recording: Arc<Recording>,
    /// The seed of all identities.
    pub seed: u64,
    /// Unix time of the initial state.
    pub epoch: i64,
    /// The unit of each workload.
    pub workloads: Vec<usize>,
    nodes: Vec<usize>,
    namespaces: Vec<usize>,
    namespace_names: Vec<String>,
}

/// The times of a workload's last rollouts.
#[derive(Clone, Copy, Debug)]
pub struct RolloutTimes {
    /// Creation of the workload.
    pub created: i64,
    /// Start of the rollout of the previous revision.
    pub previous: i64,
    /// Start of the rollout of the current revision.
    pub current: i64,
}

impl Replay {
    /// Creates a cluster with exactly `pods` pods.
    pub fn new(recording: Arc<Recording>, pods: u32, seed: u64, epoch: i64) -> Self {
        let units = |kind| {
            let units = recording.units.iter().enumerate();
            units.filter(move |(_, unit)| unit.kind == kind).map(|(index, _)| index).collect()
        };
        let (workloads, nodes, namespaces): (Vec<_>, Vec<_>, Vec<_>) =
            (units(UnitKind::Workload), units(UnitKind::Node), units(UnitKind::Namespace));
        let mut random = Random::new(seed);
        let workloads = fill(&recording, &workloads, pods, &mut random);
        let repeat = |units: &[usize], count: u32| -> Vec<usize> {
            units.iter().copied().cycle().take(count as usize).collect()
        };
        let nodes = repeat(&nodes, (pods / PER_NODE).max(3));
        let namespaces = repeat(&namespaces, (workloads.len() as u32).div_ceil(PER_NAMESPACE));
        let mut replay = Self {
            recording,
            seed,
            epoch,
            workloads,
            nodes,
            namespaces,
            namespace_names: Vec::new(),
        };
        replay.namespace_names = replay.names_of_namespaces();
        replay
    }

    fn names_of_namespaces(&self) -> Vec<String> {
        let names = self.namespaces.iter().zip(0..).filter_map(|(unit, number)| {
            let namespaced = self.recording.units[*unit].objects.iter();
            let object = namespaced.into_iter().find(|object| !object.namespace.is_empty())?;
            let unit = &self.recording.units[*unit];
            let item = Item::new(0, number, self.epoch);
            Some(unit.text(&object.namespace, &Place { replay: self, unit, object, item: &item }))
        });
        names.collect()
    }

    /// Returns the initial times of a workload.
    pub fn rollout_times(&self, workload: u32) -> RolloutTimes {
        let age = Random::new(self.seed ^ mix(u64::from(workload))).between(3_600, OLDEST);
        let current = self.epoch - i64::from(age);
        let previous = current - BETWEEN;
        RolloutTimes { created: previous - BETWEEN, previous, current }
    }

    /// Returns the initial objects of a resource.
    pub fn items(&self, resource: &str) -> Vec<Item> {
        let mut items = Vec::new();
        for units in [&self.workloads, &self.nodes, &self.namespaces] {
            for (unit, instance) in units.iter().zip(0..) {
                let times = self.rollout_times(instance);
                let recorded = &self.recording.units[*unit];
                for state in &recorded.present {
                    let object = recorded.object(&recorded.states[*state as usize]);
                    if object.resource == resource {
                        // The recorded end is that of the rollout from the generation before the first one.
                        let rollout = Rollout { generation: 0, start: times.current, times };
                        items.push(self.item(*unit, *state, instance, &rollout));
                    }
                }
            }
        }
        items
    }

    /// Returns an object in a state that it has in a rollout or at its end.
    pub fn item(&self, unit: usize, state: u32, instance: u32, rollout: &Rollout) -> Item {
        let recorded = &self.recording.units[unit];
        let object = recorded.object(&recorded.states[state as usize]);
        let created = match object.role {
            Role::Permanent => rollout.times.created,
            Role::Previous => rollout.times.previous,
            // At the end of its rollout, its times are already those of the next one.
            Role::Current if rollout.start == rollout.times.current => rollout.times.previous,
            Role::Current => rollout.times.current,
            Role::Next => rollout.start,
        };
        let mut item = Item::new(self.recording.number(unit, state), instance, created);
        item.incarnation = rollout.generation;
        item.changed = rollout.start;
        item.phase = Phase::Running;
        item
    }

    /// Returns the namespace and the name of an object.
    pub fn name(&self, item: &Item) -> (Option<&str>, String) {
        let place = self.place(item);
        let number = match place.unit.kind {
            _ if place.object.namespace.is_empty() => None,
            UnitKind::Namespace => Some(item.workload),
            _ => Some(item.workload / PER_NAMESPACE),
        };
        let namespace = number.and_then(|number| self.namespace_names.get(number as usize));
        (namespace.map(String::as_str), place.unit.text(&place.object.name, &place))
    }

    /// Returns the node of a pod, empty before it is bound.
    pub fn node_name(&self, item: &Item) -> String {
        let (unit, state) = self.recording.state(item.index);
        unit.text(&state.node, &self.place(item))
    }

    /// Returns the phase of a pod.
    pub fn phase(&self, item: &Item) -> &str {
        &self.recording.state(item.index).1.phase
    }

    /// Returns the label `app`.
    pub fn app(&self, item: &Item) -> String {
        let place = self.place(item);
        place.unit.text(&place.object.app, &place)
    }

    /// Appends the protobuf message of an object.
    pub fn write(&self, item: &Item, out: &mut Vec<u8>) {
        let (unit, state) = self.recording.state(item.index);
        unit.write(state, &self.place(item), out);
    }

    fn place<'a>(&'a self, item: &'a Item) -> Place<'a> {
        let (unit, state): (&Unit, &State) = self.recording.state(item.index);
        Place { replay: self, unit, object: unit.object(state), item }
    }
}

/// A rollout of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Rollout {
    /// The number of the replaced revision.
    pub generation: u32,
    /// Unix time of its start.
    pub start: i64,
    /// The rollouts before it.
    pub times: RolloutTimes,
}

/// Returns units, chosen by their weight, with this many pods in total.
fn fill(recording: &Recording, units: &[usize], pods: u32, random: &mut Random) -> Vec<usize> {
    let weights = units.iter().map(|unit| recording.units[*unit].weight).sum();
    let mut chosen = Vec::new();
    let mut left = pods;
    while left > 0 && weights > 0 {
        let mut at = random.below(weights);
        let by_weight = |unit: &&usize| match at.checked_sub(recording.units[**unit].weight) {
            Some(rest) => {
                at = rest;
                false
            }
            None => true,
        };
        let fits = |unit: &&usize| (1..=left).contains(&recording.units[**unit].pods);
        let unit = units.iter().find(by_weight).filter(fits).or_else(|| units.iter().find(fits));
        let Some(unit) = unit else {
            break;
        };
        left -= recording.units[*unit].pods;
        chosen.push(*unit);
    }
    chosen
}

/// An object of the cluster, for the values of its tokens.
struct Place<'a> {
    replay: &'a Replay,
    unit: &'a Unit,
    object: &'a Object,
    item: &'a Item,
}

impl Place<'_> {
    fn bits(&self, token: &Token) -> u64 {
        let generation = match token.role {
            Role::Permanent => 0,
            Role::Previous => self.item.incarnation,
            Role::Current => self.item.incarnation + 1,
            Role::Next => self.item.incarnation + 2,
        };
        let revision = u64::from(generation) << 32 | u64::from(token.ordinal);
        let kind = (token.class as u64) << 40 | (self.unit.kind as u64) << 34;
        mix(self.replay.seed ^ mix(kind | u64::from(self.item.workload)) ^ mix(revision))
    }

    fn node(&self, token: &Token) -> u32 {
        match self.unit.kind {
            UnitKind::Node => self.item.workload,
            _ => {
                let bits = mix(self.replay.seed ^ mix(u64::from(self.item.workload)))
                    .wrapping_add(u64::from(token.ordinal));
                (bits % self.replay.nodes.len().max(1) as u64) as u32
            }
        }
    }
}

impl Values for Place<'_> {
    fn text(&self, token: &Token) -> String {
        match token.class {
            Class::Hex => hex(self.bits(token), token.width),
            Class::Instance => code(self.item.workload),
            Class::Namespace => code(match self.unit.kind {
                UnitKind::Namespace => self.item.workload,
                _ => self.item.workload / PER_NAMESPACE,
            }),
            Class::Ip => {
                let prefix = if token.width > "10.100.100.100".len() { "100" } else { "10" };
                address(prefix, self.bits(token), '.')
            }
            Class::NodeIp => address("10", u64::from(self.node(token)), '.'),
            Class::NodeName => address("ip-10", u64::from(self.node(token)), '-'),
            Class::Suffix => suffix(self.bits(token), token.width),
            Class::Uuid => uuid(self.bits(token)),
            Class::Version => self.item.resource_version.to_string(),
        }
    }

    fn time(&self, recorded: i64) -> i64 {
        let [first, second, third] = self.replay.recording.starts;
        if recorded >= third {
            return self.item.changed + recorded - third;
        }
        let origin = if self.object.role == Role::Current { second } else { first };
        self.item.created + recorded - origin
    }
}

/// Returns the end of a name: letters and digits that differ for each number.
fn code(number: u32) -> String {
    // A factor that has no divisor in common with the number of codes.
    const CODES: u64 = 36_u64.pow(CODE as u32);
    let mut bits = u64::from(number) * 48_271 % CODES;
    let mut text = [b'0'; CODE];
    for digit in &mut text {
        *digit = b"0123456789abcdefghijklmnopqrstuvwxyz"[(bits % 36) as usize];
        bits /= 36;
    }
    text.iter().map(|byte| char::from(*byte)).collect()
}

/// Returns an address whose last three numbers have three digits each.
fn address(prefix: &str, bits: u64, separator: char) -> String {
    let part = |at: u32| 100 + bits / 156_u64.pow(at) % 156;
    format!("{prefix}{separator}{}{separator}{}{separator}{}", part(2), part(1), part(0))
}
