//! What is known of the Kubernetes side at one moment: the one place that own metrics, `/readyz?verbose` and pages for
//! people read.
//!
//! [`Facts`] are put together when somebody asks ([`PipelineHandle::facts`](super::PipelineHandle::facts)), of what
//! list/watches note in any case: at rest nothing is done for them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::follow::progress::{ListWatch, Totals};
use crate::exposition::family::{Family, Kind, Series};
use crate::telemetry::kube::Reason;

/// The Kubernetes side at one moment.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Every list/watch: kinds in the order of the configuration, their namespaces in that of the flag.
    pub lists: Vec<ListWatch>,
    /// Whether each had a complete state once, or was refused one.
    pub ready: bool,
    /// The kinds for which the latest change of the configuration is not in force yet.
    pub pending: Arc<[String]>,
    /// Namespaces that are to be followed and were not there when the API server was asked.
    pub missing_namespaces: Vec<String>,
}

/// A kind: the list/watches of it that are shown, one for each namespace.
#[derive(Clone, Debug)]
pub struct KindFacts<'f> {
    /// What it is called: the plural for a built-in kind, `plural.version.group` for a custom one.
    pub name: String,
    /// At least one.
    pub lists: Vec<&'f ListWatch>,
}

/// What is wrong with a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Of the list/watch that it is worst with.
    pub what: What,
    /// Since when that is so, as far as is known.
    pub since: Option<SystemTime>,
    /// With how many list/watches something is wrong, and how many there are.
    pub of: (usize, usize),
}

/// What may be wrong with a list/watch, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// What is shown is as old as the last success.
    Stale(Cause),
    /// There is no complete state yet, and nothing that speaks against one.
    Unlisted,
    /// There was no complete state yet.
    Missing(Cause),
    /// The objects are shown no more.
    GivenUp(Cause),
}

/// Why a list or a watch does not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// What the API server or the way to it does.
    Server(Reason),
    /// A fault of this program.
    Own,
}

impl Facts {
    /// The kinds that are shown, by name.
    #[must_use]
    pub fn kinds(&self) -> Vec<KindFacts<'_>> {
        let mut kinds: BTreeMap<String, Vec<&ListWatch>> = BTreeMap::new();
        for list in self.lists.iter().filter(|list| list.shown) {
            kinds.entry(list.target.name()).or_default().push(list);
        }
        kinds.into_iter().map(|(name, lists)| KindFacts { name, lists }).collect()
    }

    /// What own metrics say of it.
    pub(super) fn families(&self) -> impl Iterator<Item = Family> + use<> {
        let mut numbers: BTreeMap<(String, String), Numbers> = BTreeMap::new();
        for list in self.lists.iter().filter(|list| list.shown) {
            let own = Numbers::of(list);
            let namespace = list.status.namespace.clone().unwrap_or_default();
            let entry = numbers.entry((namespace, list.target.own_label()));
            entry.and_modify(|all| *all = all.and(own)).or_insert(own);
        }
        FAMILIES.into_iter().map(move |(name, help, value)| {
            let series = numbers.iter().map(|((namespace, resource), numbers)| {
                Series::new(&[("namespace", namespace), ("resource", resource)], value(numbers))
            });
            Family { name, help, kind: Kind::Gauge, series: series.collect() }.sorted()
        })
    }
}

/// How many objects there are of each kind in each namespace, with series or without.
pub(super) fn totals(all: &[Totals]) -> Family {
    let mut numbers: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for Totals { resource, shown, left_out } in all {
        let left_out = left_out.iter().map(|(namespace, count)| (namespace, count));
        for (namespace, count) in shown.iter().chain(left_out) {
            let namespace = String::from_utf8_lossy(namespace).into_owned();
            *numbers.entry((namespace, resource)).or_default() += count;
        }
    }
    let series = numbers.iter().map(|((namespace, resource), count)| {
        Series::new(&[("namespace", namespace), ("resource", resource)], *count as f64)
    });
    Family {
        name: "kstatd_kube_objects",
        help: "Objects in each namespace, also those that have no series because of a budget.",
        kind: Kind::Gauge,
        series: series.collect(),
    }
    .sorted()
}

/// Name, help, and what it says.
type Gauge = (&'static str, &'static str, fn(&Numbers) -> f64);

/// The namespace is one of those that are followed, or empty for all.
const FAMILIES: [Gauge; 7] = [
    ("kstatd_kubernetes_objects", "Objects that are shown.", |numbers| numbers.objects as f64),
    (
        "kstatd_kubernetes_left_out_objects",
        "Objects that have no series because of a budget (--limit.series-per-kind).",
        |numbers| numbers.left_out as f64,
    ),
    ("kstatd_kubernetes_series", "Series of the objects that are shown.", |numbers| {
        numbers.series as f64
    }),
    (
        "kstatd_kubernetes_bytes",
        "Bytes that these series have in a scrape, before it is compressed.",
        |numbers| numbers.bytes as f64,
    ),
    (
        "kstatd_kubernetes_synced",
        "Whether a complete state is shown, however old: 0 before the first list, and when the objects were given up.",
        |numbers| f64::from(numbers.synced),
    ),
    (
        "kstatd_kubernetes_last_list_success_timestamp_seconds",
        "Unix time at which a list was last complete, 0 for never.",
        |numbers| numbers.listed,
    ),
    (
        "kstatd_kubernetes_last_heard_timestamp_seconds",
        "Unix time at which anything last came from the API server, 0 for never.",
        |numbers| numbers.heard,
    ),
];

impl KindFacts<'_> {
    /// What is wrong with it, if anything is.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        let all = self.lists.iter().filter_map(|list| trouble_of(list));
        let of = (all.clone().count(), self.lists.len());
        let (what, since) = all.max_by_key(|(what, _)| *what)?;
        Some(Trouble { what, since, of })
    }

    /// Whether all its list/watches run: one that does not ended by a fault of this program, and is about to be started
    /// again.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.lists.iter().all(|list| !list.status.stopped)
    }
}

fn trouble_of(list: &ListWatch) -> Option<(What, Option<SystemTime>)> {
    let status = &list.status;
    let failure = status.failure.as_ref();
    let cause = failure.map(|failure| failure.reason.map_or(Cause::Own, Cause::Server));
    let what = match cause {
        None if status.is_complete() => return None,
        None => What::Unlisted,
        Some(cause) if status.given_up => What::GivenUp(cause),
        Some(cause) if status.listed.is_none() => What::Missing(cause),
        Some(cause) => What::Stale(cause),
    };
    Some((what, failure.map(|failure| failure.since)))
}

impl Cause {
    /// One word, as the label `reason` of the errors has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Server(reason) => reason.label(),
            Self::Own => "fault",
        }
    }
}

/// In words for everybody: neither the server's nor the names of namespaces, which not all may know.
impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::Unlisted => f.write_str("not listed yet")?,
            What::Stale(cause) | What::Missing(cause) | What::GivenUp(cause) => {
                f.write_str(cause.word())?;
            }
        }
        let since = self.since.and_then(|since| jiff::Timestamp::try_from(since).ok());
        if let Some(since) = since {
            write!(f, " since {since:.0}")?;
        }
        match self.what {
            What::Stale(_) | What::Unlisted => {}
            What::Missing(_) => f.write_str(", never listed")?,
            What::GivenUp(_) => f.write_str(", no longer shown")?,
        }
        match self.of {
            (_, 1) => Ok(()),
            (count, all) => write!(f, ", in {count} of {all} namespaces"),
        }
    }
}

/// What own metrics say of a kind in a namespace.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    objects: usize,
    left_out: u64,
    series: u64,
    bytes: u64,
    synced: bool,
    listed: f64,
    heard: f64,
}

impl Numbers {
    fn of(list: &ListWatch) -> Self {
        let seconds = |time: Option<SystemTime>| {
            let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            since.unwrap_or_default().as_secs_f64()
        };
        Self {
            objects: list.status.objects,
            left_out: list.left_out,
            series: list.size.series,
            bytes: list.size.bytes,
            synced: list.status.is_complete(),
            listed: seconds(list.status.listed),
            heard: seconds(list.status.heard),
        }
    }

    /// A namespace that is named twice has two list/watches.
    fn and(self, other: Self) -> Self {
        Self {
            objects: self.objects + other.objects,
            left_out: self.left_out + other.left_out,
            series: self.series + other.series,
            bytes: self.bytes + other.bytes,
            synced: self.synced && other.synced,
            listed: self.listed.min(other.listed),
            heard: self.heard.min(other.heard),
        }
    }
}
