//! What has series that can be counted, and what it says of them.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::exposition::budget::Budget;
use crate::exposition::family::Kind;
use crate::growth::MINUTES;

/// Something that has series.
pub(crate) trait Countable: Send + Sync {
    /// Its series of this moment.
    fn snapshot(&self) -> Box<dyn Snapshot>;
}

/// The series of one moment.
pub(crate) trait Snapshot: Send {
    /// Shows all of them: each family once, followed by its series. The same whenever it is called.
    fn visit(&self, visitor: &mut dyn Visitor);

    /// Series made in each of the last minutes, the present one first, whether they live still or not.
    fn growth(&self) -> [u64; MINUTES];

    /// What it may have.
    fn budget(&self) -> &Budget;

    /// What went beyond.
    fn beyond(&self) -> Vec<Beyond>;

    /// Who brings new series, where somebody does.
    fn senders(&self) -> Vec<Sender> {
        Vec::new()
    }

    /// What has no series because of a budget.
    fn left_out(&self) -> Vec<LeftOut> {
        Vec::new()
    }
}

/// Objects of a kind in a namespace that have no series because of a budget.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) objects: u64,
}

/// Something that went beyond a budget.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Beyond {
    pub(crate) metric: String,
    /// Empty where it is not about one label.
    pub(crate) label: String,
    /// Which budget, as its flag calls it.
    pub(crate) limit: Cow<'static, str>,
    /// What became of it: `folded`, `refused` or `tracked`.
    pub(crate) action: Cow<'static, str>,
    /// How many label sets came that were not known; of Kubernetes objects how often one came.
    pub(crate) times: u64,
}

/// Who brings new series.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sender {
    /// The IP address; none of who writes to a Unix socket.
    pub(crate) address: Option<String>,
    /// What its lines say of its container, empty if nothing.
    pub(crate) container: String,
    /// Series that were made for it.
    pub(crate) new_series: u64,
    /// Label sets that were not known and went beyond a budget.
    pub(crate) beyond_budget: u64,
    /// At most so many more came before it was told apart from others.
    pub(crate) missed: u64,
    /// Series made in each of the last minutes, the present one first.
    pub(crate) new_by_minute: Vec<u64>,
    /// The metric of the last one.
    pub(crate) last_metric: String,
}

impl Sender {
    /// Whether it brought any in the last hour, or went beyond a budget.
    pub(crate) fn brings(&self) -> bool {
        self.beyond_budget > 0 || self.in_an_hour() > 0
    }

    /// Series made for it in the last hour.
    pub(crate) fn in_an_hour(&self) -> u64 {
        self.new_by_minute.iter().sum()
    }

    /// Who it is, in words.
    pub(crate) fn who(&self) -> String {
        let address = self.address.as_deref().unwrap_or("a Unix socket");
        match &*self.container {
            "" => address.to_owned(),
            container => format!("{address}, container {container}"),
        }
    }

    /// By what they brought in the last minutes, then in all.
    pub(super) fn rank(&self) -> (u64, u64) {
        (self.in_an_hour(), self.new_series + self.beyond_budget)
    }
}

/// Who is shown the series.
pub(crate) trait Visitor {
    /// A family; its series follow. `bytes` is what it costs beside them.
    fn family(&mut self, name: &str, kind: Kind, bytes: u64);

    /// A series of that family.
    fn series(&mut self, series: &Series<'_>);
}

/// One label set of a family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Series<'a> {
    /// The labels, rendered.
    pub(crate) labels: &'a [u8],
    /// Lines of it in the text format.
    pub(crate) samples: u64,
    /// Memory that it needs.
    pub(crate) bytes: u64,
    /// When it was made, since the Unix epoch, where that is known.
    pub(crate) created: Option<Duration>,
}
