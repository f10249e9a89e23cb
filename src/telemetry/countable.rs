//! The interface of components whose series can be counted.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::exposition::budget::Budget;
use crate::exposition::series_visitor::SeriesVisitor;
use crate::util::per_minute::MINUTES;

/// A component with series.
pub(crate) trait Countable: Send + Sync {
    /// Takes a snapshot of its series.
    fn snapshot(&self) -> Snapshot;
}

/// A function that visits each family once, followed by its series. Every call presents the same data.
pub(crate) type Visit = Box<dyn Fn(&mut dyn SeriesVisitor) + Send>;

/// The series at one moment.
pub(crate) struct Snapshot {
    pub(crate) visit: Visit,
    /// The series created in each of the last minutes, the current one first, including removed ones.
    pub(crate) growth: [u64; MINUTES],
    pub(crate) budget: Budget,
    /// What exceeded the budgets.
    pub(crate) beyond: Vec<ExceededBudget>,
    /// The senders of new series, if they are known.
    pub(crate) senders: Vec<Sender>,
    /// The objects without series because of a budget.
    pub(crate) left_out: Vec<OmittedObjects>,
}

/// Objects of a kind in a namespace that have no series because of a budget.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OmittedObjects {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) objects: u64,
}

/// A metric or label that exceeded a budget.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExceededBudget {
    pub(crate) metric: String,
    /// The label; empty if the budget is not about one.
    pub(crate) label: String,
    /// The budget, as flags name it without `--limit.`.
    pub(crate) limit: Cow<'static, str>,
    /// The action taken: `folded`, `refused` or `tracked`.
    pub(crate) action: Cow<'static, str>,
    /// The number of unknown label sets; for Kubernetes, how often an object exceeded the budget.
    pub(crate) times: u64,
}

/// A sender of new series.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sender {
    /// The IP address; `None` for a Unix socket and another replica.
    pub(crate) address: Option<String>,
    /// True for another replica, which received the lines.
    #[serde(default)]
    pub(crate) replica: bool,
    /// The container ID in its lines; empty if there is none.
    pub(crate) container: String,
    /// The number of series created.
    pub(crate) new_series: u64,
    /// The number of unknown label sets that exceeded a budget.
    pub(crate) beyond_budget: u64,
    /// The maximum number of series that may have been missed before this sender was tracked.
    pub(crate) missed: u64,
    /// Series created in each of the last minutes, the current one first.
    pub(crate) new_by_minute: Vec<u64>,
    /// The metric of the latest new series.
    pub(crate) last_metric: String,
}

impl Sender {
    /// Returns whether it created series in the last hour or exceeded a budget.
    pub(crate) fn brings(&self) -> bool {
        self.beyond_budget > 0 || self.in_an_hour() > 0
    }

    /// Returns the number of series created in the last hour.
    pub(crate) fn in_an_hour(&self) -> u64 {
        self.new_by_minute.iter().sum()
    }

    /// Describes the sender in words.
    pub(crate) fn display_name(&self) -> String {
        let other = if self.replica { "another replica" } else { "a Unix socket" };
        let address = self.address.as_deref().unwrap_or(other);
        match &*self.container {
            "" => address.to_owned(),
            container => format!("{address}, container {container}"),
        }
    }

    /// Returns the sort key: series of the last hour, then the total.
    pub(super) fn rank(&self) -> (u64, u64) {
        (self.in_an_hour(), self.new_series + self.beyond_budget)
    }
}
