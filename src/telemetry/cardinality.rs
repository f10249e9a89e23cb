//! Reports the number of series by metric and label.
//!
//! Nothing is counted while series are created and removed; each request makes one thread scan a
//! snapshot of all series. A side with series implements [`Countable`](super::countable::Countable)
//! and presents them one family at a time; a [`Census`] does the counting for all sides.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::census::{About, Census, Pairs, Question, Stat, Top, Values};
use super::countable::{ExceededBudget, OmittedObjects, Sender, Snapshot};
use crate::exposition::budget::Budget;
use crate::util::per_minute::MINUTES;

/// The default list length.
pub(crate) const DEFAULT_LIMIT: usize = 10;
/// The maximum list length.
pub(crate) const MAX_LIMIT: usize = 10_000;

/// The data of Prometheus' `/api/v1/status/tsdb`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tsdb {
    head_stats: HeadStats,
    series_count_by_metric_name: Vec<Stat>,
    label_value_count_by_label_name: Vec<Stat>,
    memory_in_bytes_by_label_name: Vec<Stat>,
    series_count_by_label_value_pair: Vec<Stat>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HeadStats {
    num_series: u64,
    num_label_pairs: u64,
    chunk_count: u64,
    /// In milliseconds, as the next one.
    min_time: u64,
    max_time: u64,
}

/// Returns the answer of Prometheus' `/api/v1/status/tsdb` for these series, as JSON.
///
/// Series are counted as in a scrape. The labels `le` and `quantile` of histograms and summaries
/// are not counted as labels.
pub(crate) fn tsdb(sides: &[Snapshot], question: &Question) -> String {
    let limit = question.limit;
    let census = Census::of_labels(sides, question);
    let candidates = census.values.pairs.candidates().map(|hash| (hash, (0, String::new())));
    let mut exact = Pairs(candidates.collect());
    sides.iter().for_each(|side| (side.visit)(&mut exact));
    let (pair_count, oldest) = (census.pair_count(), census.oldest.unwrap_or(census.now));
    let mut pairs = Top::new(limit);
    for (count, text) in exact.0.values().filter(|(count, _)| *count > 0) {
        pairs.offer(*count, text, || ());
    }
    let (mut values, mut bytes) = (Top::new(limit), Top::new(limit));
    for (name, counted) in &census.values.labels {
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
    success(&Tsdb {
        head_stats: HeadStats {
            num_series: census.samples,
            num_label_pairs: pair_count,
            chunk_count: 0,
            min_time: milliseconds(oldest),
            max_time: milliseconds(census.now),
        },
        series_count_by_metric_name: names,
        label_value_count_by_label_name: values.stats(),
        memory_in_bytes_by_label_name: bytes.stats(),
        series_count_by_label_value_pair: pairs.stats(),
    })
}

/// The label in which Prometheus stores the metric name.
const NAME: &str = "__name__";

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a successful answer of Prometheus' API. A report may have megabytes, so it is written at once.
fn success(data: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Answer<'a, T> {
        status: &'static str,
        data: &'a T,
    }
    serde_json::to_string(&Answer { status: "success", data }).unwrap_or_default()
}

/// Metrics with their labels and growth.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) series: u64,
    pub(crate) label_sets: u64,
    pub(crate) metric_names: u64,
    pub(crate) bytes: u64,
    pub(crate) label_names: u64,
    /// The current minute first.
    pub(crate) new_by_minute: Vec<u64>,
    pub(crate) budgets: Vec<Budgets>,
    /// The largest recent senders first.
    pub(crate) senders: Vec<Sender>,
    /// The largest first.
    pub(crate) metrics: Vec<Metric>,
}

/// The budgets of a side (0 for none), and what exceeded them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Budgets {
    #[serde(flatten)]
    pub(crate) budget: Budget,
    /// The most frequent first.
    pub(crate) beyond: Vec<ExceededBudget>,
    /// The largest first.
    pub(crate) left_out: Vec<OmittedObjects>,
}

/// A metric family.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metric {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: Cow<'static, str>,
    pub(crate) series: u64,
    pub(crate) label_sets: u64,
    pub(crate) bytes: u64,
    /// Surviving series by minute of creation, the current minute first.
    pub(crate) new_by_minute: Option<Vec<u64>>,
    /// Labels with the most values first.
    pub(crate) labels: Vec<Label>,
}

impl Metric {
    /// Returns the series created in the last `minutes` minutes, 60 at most; `None` if unknown.
    pub(crate) fn grown(&self, minutes: usize) -> Option<u64> {
        Some(self.new_by_minute.as_ref()?.iter().take(minutes).sum())
    }
}

/// A label of a family.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Label {
    pub(crate) name: String,
    /// The number of distinct values.
    pub(crate) values: u64,
    /// True if the number is exact rather than an estimate.
    pub(crate) exact: bool,
    pub(crate) bytes: u64,
    pub(crate) examples: Vec<String>,
}

/// Returns more than [`tsdb`] does: metrics with their labels and growth.
pub(crate) fn cardinality(sides: &[Snapshot], question: &Question) -> String {
    success(&report(sides, question))
}

/// Returns the same report as a value.
pub(crate) fn report(sides: &[Snapshot], question: &Question) -> Report {
    let census = Census::of(sides, question);
    let mut growth = [0; MINUTES];
    for side in sides {
        for (sum, minute) in growth.iter_mut().zip(side.growth) {
            *sum += minute;
        }
    }
    let mut senders: Vec<_> = sides.iter().flat_map(|side| side.senders.clone()).collect();
    senders.sort_by_key(|sender| Reverse(sender.rank()));
    senders.truncate(question.limit);
    Report {
        series: census.samples,
        label_sets: census.label_sets,
        metric_names: census.family_count,
        bytes: census.bytes,
        label_names: census.values.labels.len() as u64 + census.values.further_labels.count(),
        new_by_minute: growth.to_vec(),
        budgets: sides.iter().map(|side| budgets(side, question.limit)).collect(),
        senders,
        metrics: census.families.into_vec().into_iter().map(metric).collect(),
    }
}

fn budgets(side: &Snapshot, limit: usize) -> Budgets {
    let mut beyond = side.beyond.clone();
    beyond.sort_by_key(|beyond| Reverse(beyond.times));
    beyond.truncate(limit);
    let mut left_out = side.left_out.clone();
    left_out.sort_by_key(|left_out| Reverse(left_out.objects));
    left_out.truncate(limit);
    Budgets { budget: side.budget.clone(), beyond, left_out }
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
        kind: kind.as_str().into(),
        series: samples,
        label_sets,
        bytes,
        new_by_minute: growth.map(|growth| growth.to_vec()),
        labels: labels.into_iter().map(label).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::super::census::MAX_FAMILY_LABELS;
    use serde_json::json;

    use super::*;
    use crate::exposition::budget::Budget;
    use crate::exposition::family::Kind;
    use crate::exposition::labels::rendered;
    use crate::exposition::series_visitor::{
        FamilySeries, FamilySize, ObjectSeries, Series, SeriesVisitor,
    };

    fn tsdb(sides: &[Snapshot], question: &Question) -> serde_json::Value {
        serde_json::from_str(&super::tsdb(sides, question)).expect("JSON")
    }

    fn cardinality(sides: &[Snapshot], question: &Question) -> serde_json::Value {
        serde_json::from_str(&super::cardinality(sides, question)).expect("JSON")
    }

    /// Families with the label sets of their series.
    type Families = Vec<(&'static str, Kind, u64, Vec<Vec<u8>>)>;

    impl Snapshot {
        fn of(visit: impl Fn(&mut dyn SeriesVisitor) + Send + 'static) -> Self {
            Self {
                visit: Box::new(visit),
                growth: [0; MINUTES],
                budget: Budget::default(),
                beyond: Vec::new(),
                senders: Vec::new(),
                left_out: Vec::new(),
            }
        }
    }

    fn fixed(families: Families, budget: Budget) -> Snapshot {
        let visit = move |visitor: &mut dyn SeriesVisitor| {
            let created = SystemTime::now().duration_since(UNIX_EPOCH).expect("now");
            for (name, kind, samples, series) in &families {
                visitor.families(&[FamilySize { name, kind: *kind, bytes: 100 }]);
                for labels in series {
                    visitor.series(&Series {
                        labels,
                        samples: *samples,
                        bytes: 10,
                        created: Some(created),
                    });
                }
            }
        };
        let beyond = |metric: &str, times| ExceededBudget {
            metric: metric.to_owned(),
            label: "url".to_owned(),
            limit: "values-per-label".into(),
            action: "folded".into(),
            times,
        };
        let mut growth = [0; MINUTES];
        growth[0] = 7;
        let beyond = vec![beyond("a", 1), beyond("b", 2)];
        Snapshot { growth, budget, beyond, ..Snapshot::of(visit) }
    }

    /// Two families of objects, as objects or as series.
    fn objects(as_series: bool) -> Snapshot {
        Snapshot::of(move |visitor| {
            let ids: Vec<String> = (0..40).map(|id| format!("id=\"{id}\",of=\"all\"")).collect();
            let states = ["state=\"on\"", "state=\"off\""];
            let family = |name| FamilySize { name, kind: Kind::Gauge, bytes: 100 };
            if as_series {
                visitor.families(&[family("info")]);
                let mut series = |labels: &str| {
                    let labels = labels.as_bytes();
                    visitor.series(&Series { labels, samples: 1, bytes: 0, created: None });
                };
                ids.iter().for_each(|id| series(id));
                visitor.families(&[family("state")]);
                for (id, state) in
                    ids.iter().skip(10).flat_map(|id| states.map(|state| (id, state)))
                {
                    let labels = format!("{id},{state}");
                    let labels = labels.as_bytes();
                    visitor.series(&Series { labels, samples: 1, bytes: 0, created: None });
                }
                return;
            }
            visitor.families(&[family("info"), family("state")]);
            // The second family has no series of the first objects.
            for (from, counts) in [(0, [1, 0]), (10, [1, 2])] {
                let objects: Vec<&[u8]> = ids
                    .iter()
                    .skip(from)
                    .take(if from == 0 { 10 } else { 30 })
                    .map(|id| id.as_bytes())
                    .collect();
                let times = objects.len() as u64;
                let families = counts.map(|count| FamilySeries {
                    counts: vec![count; objects.len()],
                    labels: states
                        .iter()
                        .take(count as usize / 2 * 2)
                        .map(|state| (state.as_bytes(), times))
                        .collect(),
                });
                visitor.objects(&ObjectSeries { objects, families: families.into() });
            }
        })
    }

    #[test]
    fn objects_are_counted_like_their_series() {
        let report = |report: fn(&[Snapshot], &Question) -> serde_json::Value| {
            [false, true].map(|as_series| {
                let mut answer = report(&[objects(as_series)], &Question::of(100));
                if let Some(head) = answer["data"]["headStats"].as_object_mut() {
                    head.retain(|name, _| !name.ends_with("Time"));
                }
                answer
            })
        };
        for [objects, series] in [report(tsdb), report(cardinality)] {
            assert_eq!(objects, series);
        }
    }

    fn sides(families: Families) -> Vec<Snapshot> {
        vec![fixed(families, Budget { series: 9, ..Budget::default() })]
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

    fn little() -> Vec<Snapshot> {
        let set = |method: &str, code: &str| rendered(&[("code", code), ("method", method)]);
        sides(vec![
            ("a", Kind::Counter, 1, vec![set("get", "200"), set("get", "404"), set("put", "200")]),
            ("h", Kind::Histogram, 5, vec![set("get", "200")]),
            ("plain", Kind::Gauge, 1, vec![Vec::new()]),
        ])
    }

    #[test]
    fn prometheus_tsdb_lists() {
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
    fn many_values_are_estimated_and_frequent_pairs_are_found() {
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
    fn label_names_are_bounded() {
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
    fn long_names_are_counted_separately() {
        let sets = vec![rendered(&[(&"l".repeat(60_000), "v")]), rendered(&[("short", "v")])];
        let answer = cardinality(&sides(vec![("m", Kind::Counter, 1, sets)]), &Question::of(10));
        assert_eq!(answer["data"]["labelNames"], 2);
        assert_eq!(answer["data"]["metrics"][0]["labels"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn long_values_are_truncated() {
        let sets = vec![rendered(&[("l", &"é\n".repeat(60_000))])];
        let answer = tsdb(&sides(vec![("m", Kind::Counter, 1, sets)]), &Question::of(10));
        let (name, _) = stats(&answer, "seriesCountByLabelValuePair").pop().expect("a pair");
        assert!(name.starts_with("l=é\n") && name.ends_with('…') && name.len() < 300, "{name}");
    }
}
