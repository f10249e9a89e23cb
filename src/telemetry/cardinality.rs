//! How many series there are, and which metrics and labels bring them.
//!
//! Nothing is counted while series come and go: whoever asks makes one thread go through a snapshot of all series. A side
//! that has series is [`Countable`]; it shows them one family after the other, and everything else happens here, alike
//! for all sides. What is kept meanwhile is bounded: the families at the top of the list, a
//! [`Distinct`] for each of [`MAX_LABELS`] label names, and the label pairs that are [`Frequent`].

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::exposition::budget::Budget;
use crate::exposition::family::Kind;
use crate::exposition::labels;
use crate::growth::MINUTES;
use crate::sketch::{Distinct, Frequent};

/// Label names whose values are counted.
const MAX_LABELS: usize = 4_096;
/// Label names of one family whose values are counted.
const MAX_FAMILY_LABELS: usize = 256;
/// Label pairs that are looked at as the most frequent ones: what more than one in so many pairs is, is among them.
const PAIRS: usize = 8_192;
/// Longest label name whose values are counted.
const MAX_LABEL_NAME: usize = 1 << 10;
/// Bytes of a label value that a report shows.
const SHOWN_VALUE: usize = 256;
/// Values of a label that are shown as examples.
const EXAMPLES: usize = 3;
/// Entries of a list unless the query says another number.
pub(crate) const DEFAULT_LIMIT: usize = 10;
/// Most entries of a list.
pub(crate) const MAX_LIMIT: usize = 10_000;

/// One key for the process, so that nobody who chooses labels can make them collide.
static HASHER: LazyLock<foldhash::quality::RandomState> = LazyLock::new(Default::default);

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
    fn rank(&self) -> (u64, u64) {
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

/// The greatest of many.
struct Top<T> {
    limit: usize,
    heap: BinaryHeap<Reverse<Ranked<T>>>,
}

/// Ordered by value, then by name the other way round, so that of equals the first name ranks first.
struct Ranked<T> {
    value: u64,
    name: Reverse<String>,
    about: T,
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Ranked<T> {}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.value.cmp(&other.value).then_with(|| self.name.cmp(&other.name))
    }
}

impl<T> Top<T> {
    fn new(limit: usize) -> Self {
        Self { limit, heap: BinaryHeap::new() }
    }

    fn offer(&mut self, value: u64, name: &str, about: impl FnOnce() -> T) {
        if self.heap.len() >= self.limit {
            let least = self.heap.peek().map(|Reverse(least)| (least.value, least.name.0.as_str()));
            if least.is_none_or(|(least, last)| value < least || (value == least && name >= last)) {
                return;
            }
            self.heap.pop();
        }
        self.heap.push(Reverse(Ranked { value, name: Reverse(name.to_owned()), about: about() }));
    }

    /// The greatest first.
    fn into_vec(self) -> Vec<(String, u64, T)> {
        let sorted = self.heap.into_sorted_vec().into_iter();
        sorted.map(|Reverse(Ranked { value, name, about })| (name.0, value, about)).collect()
    }
}

impl Top<()> {
    fn stats(self) -> Vec<Stat> {
        self.into_vec().into_iter().map(|(name, value, ())| Stat { name, value }).collect()
    }
}

/// A name and a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Stat {
    name: String,
    value: u64,
}

/// Values of one label.
#[derive(Clone, Debug, Default)]
struct Values {
    different: Distinct,
    /// Bytes of the values of all series.
    bytes: u64,
    examples: Vec<String>,
}

impl Values {
    fn note(&mut self, hash: u64, value: &[u8]) {
        self.different.insert(hash);
        self.bytes += value.len() as u64;
    }

    /// Keeps the value as an example, if it is another one than those that are kept.
    fn show(&mut self, value: &[u8]) {
        if self.examples.len() < EXAMPLES {
            let value = shown(value);
            if !self.examples.contains(&value) {
                self.examples.push(value);
            }
        }
    }
}

/// A value as a report shows it, of its rendered form.
fn shown(value: &[u8]) -> String {
    let plain = labels::plain(value.get(..value.len().min(4 * SHOWN_VALUE)).unwrap_or(value));
    let text = String::from_utf8_lossy(&plain);
    if text.len() <= SHOWN_VALUE {
        return text.into_owned();
    }
    let end = text.floor_char_boundary(SHOWN_VALUE);
    format!("{}…", text.get(..end).unwrap_or_default())
}

fn hash(name: &[u8], value: &[u8]) -> u64 {
    HASHER.hash_one((name, value))
}

/// The name under which the series of a sample of this family are, and how many of them there are.
fn names_of(kind: Kind, name: &str, label_sets: u64, samples: u64) -> Vec<(String, u64)> {
    let rest = samples.saturating_sub(2 * label_sets);
    let derived = |suffix: &str| format!("{name}{suffix}");
    let mut names = match kind {
        Kind::Histogram => vec![
            (derived("_bucket"), rest),
            (derived("_sum"), label_sets),
            (derived("_count"), label_sets),
        ],
        Kind::Summary => vec![
            (name.to_owned(), rest),
            (derived("_sum"), label_sets),
            (derived("_count"), label_sets),
        ],
        _ => vec![(name.to_owned(), samples)],
    };
    names.retain(|(_, count)| *count > 0);
    names
}

/// The family that is being shown.
struct Current {
    name: String,
    kind: Kind,
    label_sets: u64,
    samples: u64,
    bytes: u64,
    growth: [u64; MINUTES],
    labels: Vec<(Vec<u8>, Values)>,
}

/// What is said of a family at the top of the list.
struct About {
    kind: Kind,
    label_sets: u64,
    samples: u64,
    bytes: u64,
    growth: [u64; MINUTES],
    labels: Vec<(Vec<u8>, Values)>,
}

/// Counts everything, in one go over the series of each side.
struct Census {
    /// Entries of a list.
    limit: usize,
    order: Order,
    /// The only family that is told of.
    metric: Option<String>,
    now: Duration,
    current: Option<Current>,
    families: Top<About>,
    names: Top<()>,
    labels: HashMap<Vec<u8>, Values, foldhash::fast::RandomState>,
    /// Names of labels beyond [`MAX_LABELS`] or [`MAX_LABEL_NAME`].
    further_labels: Distinct,
    pairs: Frequent,
    family_count: u64,
    name_count: u64,
    name_bytes: u64,
    label_sets: u64,
    samples: u64,
    bytes: u64,
    oldest: Option<Duration>,
}

impl Census {
    fn new(question: &Question) -> Self {
        let Question { limit, order, ref metric } = *question;
        Self {
            limit,
            order,
            metric: metric.clone(),
            now: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            current: None,
            families: Top::new(limit),
            names: Top::new(limit),
            labels: HashMap::default(),
            further_labels: Distinct::default(),
            pairs: Frequent::new(PAIRS),
            family_count: 0,
            name_count: 0,
            name_bytes: 0,
            label_sets: 0,
            samples: 0,
            bytes: 0,
            oldest: None,
        }
    }

    fn of(sides: &[Box<dyn Snapshot>], question: &Question) -> Self {
        let mut census = Self::new(question);
        for side in sides {
            side.visit(&mut census);
            census.finish();
        }
        census
    }

    /// Ends the family that is being shown.
    fn finish(&mut self) {
        let Some(current) = self.current.take() else { return };
        let Current { name, kind, label_sets, samples, bytes, growth, labels } = current;
        self.bytes += bytes;
        if label_sets == 0 {
            return;
        }
        self.family_count += 1;
        self.label_sets += label_sets;
        self.samples += samples;
        for (name, count) in names_of(kind, &name, label_sets, samples) {
            self.name_count += 1;
            self.name_bytes += name.len() as u64 * count;
            self.names.offer(count, &name, || ());
        }
        if self.metric.as_ref().is_some_and(|only| *only != name) {
            return;
        }
        let (limit, rank) = (
            self.limit,
            match self.order {
                Order::Series => samples,
                Order::Growth => growth.iter().sum(),
                Order::Bytes => bytes,
            },
        );
        let labels = || greatest(labels, limit);
        let about = || About { kind, label_sets, samples, bytes, growth, labels: labels() };
        self.families.offer(rank, &name, about);
    }

    /// How many different label pairs there are, metric names included.
    fn pair_count(&self) -> u64 {
        let values = self.labels.values().map(|values| values.different.count());
        values.sum::<u64>() + self.name_count
    }
}

impl Visitor for Census {
    fn family(&mut self, name: &str, kind: Kind, bytes: u64) {
        self.finish();
        self.current = Some(Current {
            name: name.to_owned(),
            kind,
            label_sets: 0,
            samples: 0,
            bytes,
            growth: [0; MINUTES],
            labels: Vec::new(),
        });
    }

    fn series(&mut self, series: &Series<'_>) {
        let Some(current) = &mut self.current else { return };
        let Series { labels: text, samples, bytes, created } = *series;
        current.label_sets += 1;
        current.samples += samples;
        current.bytes += bytes;
        if let Some(created) = created {
            let minutes = self.now.saturating_sub(created).as_secs() / 60;
            let minutes = usize::try_from(minutes).unwrap_or(MINUTES);
            if let Some(count) = current.growth.get_mut(minutes) {
                *count += 1;
            }
            self.oldest = Some(self.oldest.map_or(created, |oldest| oldest.min(created)));
        }
        for (at, (name, value)) in labels::iter(text).enumerate() {
            let hash = hash(name, value);
            self.pairs.note(hash);
            // Series of one family have the same labels as a rule.
            let known = match current.labels.get(at) {
                Some((known, _)) if *known == name => Some(at),
                _ => current.labels.iter().position(|(known, _)| *known == name),
            };
            let is_short = name.len() <= MAX_LABEL_NAME;
            if known.is_none() && is_short && current.labels.len() < MAX_FAMILY_LABELS {
                current.labels.push((name.to_owned(), Values::default()));
            }
            let at = known.unwrap_or_else(|| current.labels.len().saturating_sub(1));
            let values = current.labels.get_mut(at).filter(|(known, _)| *known == name);
            if let Some((_, values)) = values {
                values.note(hash, value);
                values.show(value);
            }
            if let Some(values) = self.labels.get_mut(name) {
                values.note(hash, value);
            } else if is_short && self.labels.len() < MAX_LABELS {
                self.labels.entry(name.to_owned()).or_default().note(hash, value);
            } else {
                self.further_labels.insert(HASHER.hash_one(name));
            }
        }
    }
}

/// The labels with the most values, so many of them.
fn greatest(mut labels: Vec<(Vec<u8>, Values)>, limit: usize) -> Vec<(Vec<u8>, Values)> {
    labels.sort_by_cached_key(|(_, values)| Reverse(values.different.count()));
    labels.truncate(limit);
    labels
}

/// Counts label pairs exactly: those whose hashes it has.
struct Pairs(HashMap<u64, (u64, String), foldhash::fast::FixedState>);

impl Visitor for Pairs {
    fn family(&mut self, _: &str, _: Kind, _: u64) {}

    fn series(&mut self, series: &Series<'_>) {
        for (name, value) in labels::iter(series.labels) {
            if let Some((count, text)) = self.0.get_mut(&hash(name, value)) {
                *count += series.samples;
                if text.is_empty() {
                    *text = format!("{}={}", String::from_utf8_lossy(name), shown(value));
                }
            }
        }
    }
}

/// The answer of Prometheus' `/api/v1/status/tsdb` about these series.
///
/// Series are those that a scrape shows; what histograms and summaries write themselves (`le`, `quantile`) is not among
/// the labels.
pub(crate) fn tsdb(sides: &[Box<dyn Snapshot>], question: &Question) -> serde_json::Value {
    let limit = question.limit;
    let census = Census::of(sides, question);
    let candidates = census.pairs.candidates().map(|hash| (hash, (0, String::new())));
    let mut exact = Pairs(candidates.collect());
    sides.iter().for_each(|side| side.visit(&mut exact));
    let (pair_count, oldest) = (census.pair_count(), census.oldest.unwrap_or(census.now));
    let mut pairs = Top::new(limit);
    for (count, text) in exact.0.values().filter(|(count, _)| *count > 0) {
        pairs.offer(*count, text, || ());
    }
    let (mut values, mut bytes) = (Top::new(limit), Top::new(limit));
    for (name, counted) in &census.labels {
        let name = String::from_utf8_lossy(name);
        values.offer(counted.different.count(), &name, || ());
        bytes.offer(counted.bytes, &name, || ());
    }
    values.offer(census.name_count, NAME, || ());
    bytes.offer(census.name_bytes, NAME, || ());
    let names = census.names.stats();
    for Stat { name, value } in &names {
        pairs.offer(*value, &format!("{NAME}={name}"), || ());
    }
    success(&json!({
        "headStats": {
            "numSeries": census.samples,
            "numLabelPairs": pair_count,
            "chunkCount": 0,
            "minTime": milliseconds(oldest),
            "maxTime": milliseconds(census.now),
        },
        "seriesCountByMetricName": names,
        "labelValueCountByLabelName": values.stats(),
        "memoryInBytesByLabelName": bytes.stats(),
        "seriesCountByLabelValuePair": pairs.stats(),
    }))
}

/// The label under which Prometheus has names of metrics.
const NAME: &str = "__name__";

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn success(data: &serde_json::Value) -> serde_json::Value {
    json!({"status": "success", "data": data})
}

/// What a report is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Entries of each list.
    pub(crate) limit: usize,
    /// What puts a metric before others.
    pub(crate) order: Order,
    /// The only metric that is told of; all otherwise.
    pub(crate) metric: Option<String>,
}

impl Question {
    /// The greatest metrics by their series.
    pub(crate) const fn of(limit: usize) -> Self {
        Self { limit, order: Order::Series, metric: None }
    }
}

/// What puts a metric before others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// Its series.
    #[default]
    Series,
    /// Those made in the last 60 minutes.
    Growth,
    /// What it needs of the memory.
    Bytes,
}

impl Order {
    /// By its word.
    pub(crate) fn read(word: &str) -> Option<Self> {
        match word {
            "series" => Some(Self::Series),
            "growth" => Some(Self::Growth),
            "bytes" => Some(Self::Bytes),
            _ => None,
        }
    }
}

/// Families with their labels, and how they grow.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) series: u64,
    pub(crate) label_sets: u64,
    pub(crate) metric_names: u64,
    pub(crate) bytes: u64,
    pub(crate) label_names: u64,
    /// The present minute first.
    pub(crate) new_by_minute: Vec<u64>,
    pub(crate) budgets: Vec<Budgets>,
    /// Those that brought most lately first.
    pub(crate) senders: Vec<Sender>,
    /// The greatest first.
    pub(crate) metrics: Vec<Metric>,
}

/// The budgets of a side, 0 for none, and what went beyond them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Budgets {
    pub(crate) mode: String,
    pub(crate) series: u64,
    pub(crate) series_per_metric: u64,
    pub(crate) series_per_kind: u64,
    pub(crate) values_per_label: u64,
    pub(crate) value_bytes: u64,
    pub(crate) name_bytes: u64,
    pub(crate) memory: u64,
    pub(crate) fold_value: String,
    /// The most frequent first.
    pub(crate) beyond: Vec<Beyond>,
    /// The most first.
    pub(crate) left_out: Vec<LeftOut>,
}

/// A family.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metric {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: Cow<'static, str>,
    pub(crate) series: u64,
    pub(crate) label_sets: u64,
    pub(crate) bytes: u64,
    /// The present minute first, of those that are still there.
    pub(crate) new_by_minute: Vec<u64>,
    /// Those with the most values first.
    pub(crate) labels: Vec<Label>,
}

impl Metric {
    /// Series made in the last 60 minutes.
    pub(crate) fn grown(&self) -> u64 {
        self.new_by_minute.iter().sum()
    }
}

/// A label of a family.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Label {
    pub(crate) name: String,
    /// How many different ones.
    pub(crate) values: u64,
    /// Whether that is no estimate.
    pub(crate) exact: bool,
    pub(crate) bytes: u64,
    pub(crate) examples: Vec<String>,
}

/// More than [`tsdb`] says: families with their labels, and how they grow.
pub(crate) fn cardinality(sides: &[Box<dyn Snapshot>], question: &Question) -> serde_json::Value {
    success(&serde_json::to_value(report(sides, question)).unwrap_or_default())
}

/// The same as a value.
pub(crate) fn report(sides: &[Box<dyn Snapshot>], question: &Question) -> Report {
    let census = Census::of(sides, question);
    let mut growth = [0; MINUTES];
    for side in sides {
        for (sum, minute) in growth.iter_mut().zip(side.growth()) {
            *sum += minute;
        }
    }
    let mut senders: Vec<_> = sides.iter().flat_map(|side| side.senders()).collect();
    senders.sort_by_key(|sender| Reverse(sender.rank()));
    senders.truncate(question.limit);
    Report {
        series: census.samples,
        label_sets: census.label_sets,
        metric_names: census.family_count,
        bytes: census.bytes,
        label_names: census.labels.len() as u64 + census.further_labels.count(),
        new_by_minute: growth.to_vec(),
        budgets: sides.iter().map(|side| budgets(&**side, question.limit)).collect(),
        senders,
        metrics: census.families.into_vec().into_iter().map(metric).collect(),
    }
}

fn budgets(side: &dyn Snapshot, limit: usize) -> Budgets {
    let budget = side.budget();
    let mut beyond = side.beyond();
    beyond.sort_by_key(|beyond| Reverse(beyond.times));
    beyond.truncate(limit);
    let mut left_out = side.left_out();
    left_out.sort_by_key(|left_out| Reverse(left_out.objects));
    left_out.truncate(limit);
    Budgets {
        mode: budget.mode.as_str().to_owned(),
        series: budget.series,
        series_per_metric: budget.series_per_metric,
        series_per_kind: budget.series_per_kind,
        values_per_label: budget.values_per_label,
        value_bytes: budget.value_bytes,
        name_bytes: budget.name_bytes,
        memory: budget.memory,
        fold_value: budget.fold_value.clone(),
        beyond,
        left_out,
    }
}

fn metric((name, _, about): (String, u64, About)) -> Metric {
    let About { kind, label_sets, samples, bytes, growth, labels } = about;
    let label = |(name, values): (Vec<u8>, Values)| Label {
        name: String::from_utf8_lossy(&name).into_owned(),
        values: values.different.count(),
        exact: values.different.is_exact(),
        bytes: values.bytes,
        examples: values.examples,
    };
    Metric {
        name,
        kind: kind.word().into(),
        series: samples,
        label_sets,
        bytes,
        new_by_minute: growth.to_vec(),
        labels: labels.into_iter().map(label).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::labels::rendered;

    /// Families with the label sets of their series.
    type Families = Vec<(&'static str, Kind, u64, Vec<Vec<u8>>)>;

    struct Fixed(Families, Budget);

    impl Snapshot for Fixed {
        fn visit(&self, visitor: &mut dyn Visitor) {
            let created = SystemTime::now().duration_since(UNIX_EPOCH).expect("now");
            for (name, kind, samples, series) in &self.0 {
                visitor.family(name, *kind, 100);
                for labels in series {
                    visitor.series(&Series {
                        labels,
                        samples: *samples,
                        bytes: 10,
                        created: Some(created),
                    });
                }
            }
        }

        fn growth(&self) -> [u64; MINUTES] {
            let mut growth = [0; MINUTES];
            growth[0] = 7;
            growth
        }

        fn budget(&self) -> &Budget {
            &self.1
        }

        fn beyond(&self) -> Vec<Beyond> {
            let beyond = |metric: &str, times| Beyond {
                metric: metric.to_owned(),
                label: "url".to_owned(),
                limit: "values-per-label".into(),
                action: "folded".into(),
                times,
            };
            vec![beyond("a", 1), beyond("b", 2)]
        }
    }

    fn sides(families: Families) -> Vec<Box<dyn Snapshot>> {
        vec![Box::new(Fixed(families, Budget { series: 9, ..Budget::default() }))]
    }

    fn stats(answer: &serde_json::Value, list: &str) -> Vec<(String, u64)> {
        let list = answer["data"][list].as_array().expect(list).iter();
        let stat = |stat: &serde_json::Value| {
            let name = stat["name"].as_str().expect("name").to_owned();
            (name, stat["value"].as_u64().expect("value"))
        };
        list.map(stat).collect()
    }

    fn named(stats: &[(&str, u64)]) -> Vec<(String, u64)> {
        stats.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    fn little() -> Vec<Box<dyn Snapshot>> {
        let set = |method: &str, code: &str| rendered(&[("code", code), ("method", method)]);
        sides(vec![
            ("a", Kind::Counter, 1, vec![set("get", "200"), set("get", "404"), set("put", "200")]),
            ("h", Kind::Histogram, 5, vec![set("get", "200")]),
            ("plain", Kind::Gauge, 1, vec![Vec::new()]),
        ])
    }

    #[test]
    fn the_lists_of_prometheus() {
        let answer = tsdb(&little(), &Question::of(3));
        assert_eq!(answer["status"], "success");
        assert_eq!(answer["data"]["headStats"]["numSeries"], 9);
        // Two codes, two methods, five names.
        assert_eq!(answer["data"]["headStats"]["numLabelPairs"], 9);
        let names = named(&[("a", 3), ("h_bucket", 3), ("h_count", 1)]);
        assert_eq!(stats(&answer, "seriesCountByMetricName"), names);
        let values = named(&[("__name__", 5), ("code", 2), ("method", 2)]);
        assert_eq!(stats(&answer, "labelValueCountByLabelName"), values);
        let bytes = named(&[("__name__", 44), ("code", 12), ("method", 12)]);
        assert_eq!(stats(&answer, "memoryInBytesByLabelName"), bytes);
        let pairs = named(&[("code=200", 7), ("method=get", 7), ("__name__=a", 3)]);
        assert_eq!(stats(&answer, "seriesCountByLabelValuePair"), pairs);
    }

    #[test]
    fn families_with_their_labels() {
        let answer = cardinality(&little(), &Question::of(2));
        let data = &answer["data"];
        assert_eq!(data["series"], 9);
        assert_eq!((&data["labelSets"], &data["metricNames"]), (&json!(5), &json!(3)));
        assert_eq!(data["bytes"], 350);
        assert_eq!(data["newByMinute"][0], 7);
        let budget = &data["budgets"][0];
        assert_eq!((&budget["mode"], &budget["series"]), (&json!("off"), &json!(9)));
        assert_eq!(
            budget["beyond"][0],
            json!({"metric": "b", "label": "url", "limit": "values-per-label", "action": "folded", "times": 2})
        );
        let expected = json!({
            "name": "h", "type": "histogram", "series": 5, "labelSets": 1, "bytes": 110,
            "labels": [
                {"name": "code", "values": 1, "exact": true, "bytes": 3, "examples": ["200"]},
                {"name": "method", "values": 1, "exact": true, "bytes": 3, "examples": ["get"]},
            ],
        });
        assert_eq!(
            cardinality(&little(), &Question::of(1))["data"]["metrics"][0]["labels"],
            json!([{"name": "code", "values": 1, "exact": true, "bytes": 3, "examples": ["200"]}])
        );
        let mut metric = data["metrics"][0].clone();
        let growth = metric.as_object_mut().and_then(|metric| metric.remove("newByMinute"));
        assert_eq!(growth.map(|growth| growth[0].clone()), Some(json!(1)));
        assert_eq!(metric, expected);
        assert_eq!(data["metrics"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn many_values_are_estimated_and_the_frequent_pair_is_found() {
        let urls = (0..50_000).map(|n| format!("/{n}"));
        let sets = urls.map(|url| rendered(&[("code", "200"), ("url", &url)])).collect();
        let sides = sides(vec![("hits", Kind::Counter, 1, sets)]);
        let answer = tsdb(&sides, &Question::of(10));
        assert_eq!(
            stats(&answer, "seriesCountByLabelValuePair")[1],
            ("code=200".to_owned(), 50_000)
        );
        let (name, values) = stats(&answer, "labelValueCountByLabelName").remove(0);
        assert_eq!(name, "url");
        assert!((45_000..55_000).contains(&values), "{values}");
    }

    #[test]
    fn label_names_without_end_are_bounded() {
        let sets: Vec<_> = (0..10_000).map(|n| rendered(&[(&format!("l{n}"), "v")])).collect();
        let answer = cardinality(&sides(vec![("m", Kind::Counter, 1, sets)]), &Question::of(10));
        let names = answer["data"]["labelNames"].as_u64().expect("a number");
        assert!((9_000..11_000).contains(&names), "{names}");
        let shown = |answer: &serde_json::Value| {
            answer["data"]["metrics"][0]["labels"].as_array().map(Vec::len)
        };
        assert_eq!(shown(&answer), Some(10));
        let sets: Vec<_> = (0..1_000).map(|n| rendered(&[(&format!("l{n}"), "v")])).collect();
        let all =
            cardinality(&sides(vec![("m", Kind::Counter, 1, sets)]), &Question::of(MAX_LIMIT));
        assert_eq!(shown(&all), Some(MAX_FAMILY_LABELS));
    }

    #[test]
    fn long_names_are_counted_alone() {
        let sets = vec![rendered(&[(&"l".repeat(60_000), "v")]), rendered(&[("short", "v")])];
        let answer = cardinality(&sides(vec![("m", Kind::Counter, 1, sets)]), &Question::of(10));
        assert_eq!(answer["data"]["labelNames"], 2);
        assert_eq!(answer["data"]["metrics"][0]["labels"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn long_values_are_cut() {
        let sets = vec![rendered(&[("l", &"é\n".repeat(60_000))])];
        let answer = tsdb(&sides(vec![("m", Kind::Counter, 1, sets)]), &Question::of(10));
        let (name, _) = stats(&answer, "seriesCountByLabelValuePair").pop().expect("a pair");
        assert!(name.starts_with("l=é\n") && name.ends_with('…') && name.len() < 300, "{name}");
    }
}
