//! Budgets of list/watches without a server, also with random objects, deletions and lists.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::cache::{Store, UpdateLock};
use crate::kube::api_resource::Scope;
use crate::kube::follow::budget::KindBudget;
use crate::kube::follow::handover::ServedObjects;
use crate::kube::follow::machine::Collected;
use crate::kube::follow::object_sink::{ObjectSink, Observers};
use crate::kube::follow::quota::Quota;
use crate::kube::follow::rejected_set::RejectedSet;
use crate::telemetry::metric::Counter;

/// The content of an object.
#[derive(Clone, Copy, Debug, Default)]
struct Content {
    url: u8,
    parts: u8,
}

/// An operation on one of two list/watches of a kind.
#[derive(Clone, Debug)]
enum Step {
    Put { at: usize, name: u8, content: Content },
    Delete { at: usize, name: u8 },
    BeginList { at: usize },
    EndList { at: usize, commits: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let put = (0..2usize, 0..10u8, 0..6u8, 0..4u8);
    prop_oneof![
        20 => put.prop_map(|(at, name, url, parts)| Step::Put { at, name, content: Content { url, parts } }),
        6 => (0..2usize, 0..10u8).prop_map(|(at, name)| Step::Delete { at, name }),
        1 => (0..2usize).prop_map(|at| Step::BeginList { at }),
        2 => (0..2usize, prop::bool::weighted(0.8)).prop_map(|(at, commits)| Step::EndList { at, commits }),
    ]
}

/// A list/watch without a server, and the objects according to the events that it received.
struct ListWatchModel {
    sink: ObjectSink,
    served: Arc<ServedObjects>,
    store: Arc<Store>,
    rejected: Arc<RejectedSet>,
    /// The budgets of its kind, if there are any.
    kind: Option<Arc<KindBudget>>,
    objects: BTreeMap<u8, Content>,
    collected: Option<BTreeMap<u8, Content>>,
}

fn content_json(at: usize, name: u8, Content { url, parts }: Content) -> String {
    let sizes: Vec<_> =
        (0..parts).map(|part| format!(r#"{{"part":"{}","value":1}}"#, url / 2 + part)).collect();
    let long = "x".repeat(usize::from(url / 5) * 8);
    let rest = format!(r#","labels":{{"url":"/{url}{long}"}},"sizes":[{}]"#, sizes.join(","));
    object(&format!("n{at}-{name}"), 1, &rest)
}

impl ListWatchModel {
    fn pair(watched: &WatchedResource, budget: &Budget) -> Vec<Self> {
        Self::pair_of_shard(watched, budget, None, Shard::ALL)
    }

    fn pair_of_shard(
        watched: &WatchedResource,
        budget: &Budget,
        quota: Option<&Arc<Quota>>,
        shard: Shard,
    ) -> Vec<Self> {
        Self::several(watched, budget, quota, shard, 2)
    }

    /// Returns list/watches of one kind in this number of namespaces.
    fn several(
        watched: &WatchedResource,
        budget: &Budget,
        quota: Option<&Arc<Quota>>,
        shard: Shard,
        count: usize,
    ) -> Vec<Self> {
        let metrics = KubeMetrics::default();
        let kind = KindBudget::new(budget, &*watched.renderer, (String::new(), &metrics), count);
        let model = |number| {
            let scope = Scope {
                api: watched.api.clone(),
                namespace: None,
                selector: String::new(),
                labels: String::new(),
                drop_completed_after: None,
            };
            let store = Arc::new(Store::new(watched.renderer.schema()));
            let served = Arc::new(ServedObjects::new(None, Arc::clone(&store), shard));
            let rejected = Arc::new(RejectedSet::default());
            let allowance = kind.as_ref().map(|kind| kind.allowance(number, &served, &rejected));
            let share = quota.map(|quota| quota.share(number, 0, Counter::default()));
            let sink = ObjectSink::new(
                Arc::new(scope),
                Arc::clone(&watched.renderer),
                Arc::clone(&served),
                Observers::new(Arc::default(), &UpdateLock::default()),
                (share, allowance),
                metrics.reflector(""),
            );
            let (kind, objects) = (kind.clone(), BTreeMap::new());
            Self { sink, served, store, rejected, kind, objects, collected: None }
        };
        (0..count).map(model).collect()
    }

    fn current(&mut self) -> &mut BTreeMap<u8, Content> {
        self.collected.as_mut().unwrap_or(&mut self.objects)
    }

    fn put(&mut self, at: usize, name: u8, content: Content) {
        self.sink.put(ObjectBytes::Json(content_json(at, name, content).as_bytes()));
        self.current().insert(name, content);
    }

    fn delete(&mut self, at: usize, name: u8) {
        self.sink.remove(ObjectBytes::Json(content_json(at, name, Content::default()).as_bytes()));
        self.current().remove(&name);
    }

    fn begin_list(&mut self) {
        self.sink.collect();
        self.collected.get_or_insert_default();
    }

    fn end_list(&mut self, commits: bool) {
        if let Some(collected) = self.collected.take() {
            self.sink.settle(if commits { Collected::Commit } else { Collected::Discard });
            if commits {
                self.objects = collected;
            }
        }
    }

    /// Relists the current objects.
    fn relist(&mut self, at: usize) {
        self.end_list(false);
        self.begin_list();
        for (name, content) in self.objects.clone() {
            self.put(at, name, content);
        }
        self.end_list(true);
    }
}

/// Returns the lines of all families without values, each once.
fn exposed(models: &[ListWatchModel]) -> Vec<String> {
    let catalog = Catalog::new();
    let schema = Arc::clone(models[0].store.schema());
    catalog.register(schema, models.iter().map(|model| Arc::clone(&model.store)).collect());
    let body = catalog.frames(Format::Text, &ScrapeQuery::default()).flatten();
    let text = String::from_utf8(body.collect()).expect("UTF-8");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
}

fn assert_bounds(models: &[ListWatchModel], budget: &Budget, open: &[&str]) {
    let lines = exposed(models);
    let series: u64 = models.iter().map(|model| model.store.series()).sum();
    assert_eq!(series, lines.len() as u64);
    assert!(budget.series_per_kind == 0 || series <= budget.series_per_kind);
    let different: BTreeSet<&String> = lines.iter().collect();
    assert_eq!(different.len(), lines.len(), "a series twice: {lines:#?}");
    models.iter().filter_map(|model| model.kind.as_ref()).for_each(|kind| kind.assert_exact());
    for model in models {
        let counted = model.store.len() as u64 + model.rejected.len();
        assert_eq!(counted, model.objects.len() as u64);
    }
    let mut values: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for line in &lines {
        let (family, labels) = line.split_once('{').expect("labels");
        if !open.iter().any(|open| family.starts_with(open)) {
            continue;
        }
        *counts.entry(family).or_default() += 1;
        for pair in labels.trim_end_matches('}').split("\",") {
            let (name, value) = pair.split_once("=\"").expect("a label");
            let value = value.trim_end_matches('"');
            let chosen = !family.starts_with("kube_pod") || name.starts_with("label_");
            if chosen && value != "other" {
                assert!(budget.value_bytes == 0 || value.len() as u64 <= budget.value_bytes);
                values.entry((family, name)).or_default().insert(value);
            }
        }
    }
    for (label, values) in values {
        let most = budget.values_per_label;
        assert!(most == 0 || values.len() as u64 <= most, "{label:?} has {values:?}");
    }
    for (family, count) in counts {
        let most = budget.series_per_metric;
        let bounded = family.starts_with("gadget") && most > 0;
        assert!(!bounded || count <= most, "{family} has {count}");
    }
}

/// Objects that a shard gains count before they are shown, in lists too.
#[test]
fn hidden_objects_of_a_shard_change_count() {
    let watched = pods(&["app"]);
    let alone = |budget: &Budget| {
        let mut models = ListWatchModel::pair(&watched, budget);
        models[0].put(0, 0, Content::default());
        models[0].store.series()
    };
    let series = alone(&Budget::default());
    let budget = enforced(Budget { series_per_kind: 3 * series, ..Budget::default() });
    let gaining = Shard::ALL.replacing(Shard::new(1, 2));
    for lists in [false, true] {
        let mut models = ListWatchModel::pair_of_shard(&watched, &budget, None, gaining);
        if lists {
            models[0].begin_list();
        }
        (0..6).for_each(|name| models[0].put(0, name, Content::default()));
        assert_eq!(models[0].rejected.len(), if lists { 0 } else { 3 });
        models[0].end_list(true);
        assert_eq!(models[0].rejected.len(), 3);
        let shown = models[0].store.series();
        assert!(shown < 3 * series, "some objects are hidden");
        // The other list/watch has no room, whether objects are hidden or not.
        models[1].put(1, 0, Content::default());
        assert_eq!(models[1].rejected.len(), 1);
        models[0].delete(0, 0);
        models[1].put(1, 0, Content::default());
        assert_eq!(models[1].rejected.len(), 0);
    }
}

/// They count once in a list that has them again.
#[test]
fn hidden_objects_of_a_shard_change_count_once_in_a_list() {
    let budget = enforced(Budget { series_per_metric: 6, ..Budget::default() });
    let gaining = Shard::ALL.replacing(Shard::new(1, 2));
    let mut models = ListWatchModel::several(&gadgets(), &budget, None, gaining, 1);
    (0..6).for_each(|name| models[0].put(0, name, Content::default()));
    assert!(exposed(&models).len() < 6, "some objects are hidden");
    models[0].relist(0);
    models[0].served.show(Shard::ALL);
    assert_eq!(exposed(&models).len(), 6);
}

/// The same for the object limit.
#[test]
fn hidden_objects_of_a_shard_change_count_for_the_object_limit() {
    let (watched, quota) = (pods(&["app"]), Quota::new(3, 2));
    let gaining = Shard::ALL.replacing(Shard::new(1, 2));
    let mut models =
        ListWatchModel::pair_of_shard(&watched, &Budget::default(), Some(&quota), gaining);
    for lists in [false, true] {
        if lists {
            models[0].begin_list();
        }
        for name in 0..6 {
            models[0].put(0, name, Content::default());
            let used = if lists { 3 } else { usize::from(name + 1).min(3) };
            assert_eq!(models[0].sink.limit_usage(), Some((used, 3)), "{name}, lists: {lists}");
        }
        models[0].end_list(true);
        assert!(models[0].store.len() < 3, "some objects are hidden");
        models[1].put(1, 0, Content::default());
        assert_eq!(models[0].sink.limit_usage(), Some((3, 3)), "the other one has no room");
    }
}

/// A list may have new objects before those that it has in common with the old state, whose values keep their places.
#[test]
fn a_relist_with_new_values_stays_within_the_budget() {
    for custom in [false, true] {
        let watched = if custom { gadgets() } else { pods(&["url"]) };
        let budget = enforced(Budget { values_per_label: 3, ..Budget::default() });
        let mut models = ListWatchModel::several(&watched, &budget, None, Shard::ALL, 1);
        let _ = [0, 1].map(|name| models[0].put(0, name, Content { url: name, parts: 0 }));
        models[0].begin_list();
        let _ = [2, 3, 0, 1].map(|name| models[0].put(0, name, Content { url: name, parts: 0 }));
        models[0].end_list(true);
        assert_bounds(&models, &budget, &["kube_pod_labels", "gadget_"]);
    }
}

/// In a relist known objects come before new ones, however many series they had before and have now.
#[test]
fn a_relist_with_changed_objects_keeps_known_ones_and_takes_new_ones() {
    let content = |parts| Content { url: 0, parts };
    let each = {
        let mut models =
            ListWatchModel::several(&gadgets(), &enforced(Budget::default()), None, Shard::ALL, 1);
        models[0].put(0, 0, content(0));
        models[0].store.series()
    };
    for (before, after, series_per_kind, shown) in [
        // The first one leaves room for the last one, which is new and not listed last.
        (&[3, 3][..], &[(0, 0), (2, 3), (1, 3)][..], 3 * each + 6, vec![0, 1, 2]),
        // The first one takes the room of the new one.
        (&[0, 3], &[(0, 3), (2, 0), (1, 3)], 3 * each + 5, vec![0, 1]),
        // The old state and the new one exceed the budget together, but not at the beginning.
        (&[0, 0], &[(0, 0), (1, 0), (2, 0), (3, 0)], 4 * each, vec![0, 1, 2, 3]),
    ] {
        let budget = enforced(Budget { series_per_kind, ..Budget::default() });
        let mut models = ListWatchModel::several(&gadgets(), &budget, None, Shard::ALL, 1);
        (0..).zip(before).for_each(|(name, parts)| models[0].put(0, name, content(*parts)));
        models[0].begin_list();
        after.iter().for_each(|(name, parts)| models[0].put(0, *name, content(*parts)));
        models[0].end_list(true);
        let lines = exposed(&models);
        let is_shown =
            |name: &u8| lines.iter().any(|line| line.contains(&format!("\"n0-{name}\"")));
        assert_eq!((0..4).filter(is_shown).collect::<Vec<_>>(), shown, "{lines:#?}");
    }
}

/// Series in both the old state and the new one count once, also those that were collected before label values are counted.
#[test]
fn a_relist_with_new_objects_stays_within_the_series_of_a_metric() {
    let budget = enforced(Budget { series_per_metric: 8, ..Budget::default() });
    let mut models = ListWatchModel::several(&gadgets(), &budget, None, Shard::ALL, 1);
    (0..3).for_each(|name| models[0].put(0, name, Content::default()));
    models[0].begin_list();
    (0..8).for_each(|name| models[0].put(0, name, Content::default()));
    models[0].end_list(true);
    let lines = exposed(&models);
    assert_eq!(lines.len(), 8, "{lines:#?}");
    // There is no room for another one.
    models[0].put(0, 8, Content::default());
    assert_eq!(exposed(&models), lines);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// For any sequence of operations all bounds hold, every object is exposed or counted, no series is duplicated, and series and
    /// label values count as often as objects have them, also if budgets are only tracked.
    /// Once the excess is gone, everything else is exposed unchanged.
    #[test]
    fn bounds_hold_and_nothing_is_lost(
        steps in prop::collection::vec(step(), 0..120),
        series_per_kind in prop_oneof![Just(0), 20..120u64],
        values_per_label in prop_oneof![1 => Just(0), 3 => 1..5u64],
        series_per_metric in prop_oneof![1 => Just(0), 2 => 1..12u64],
        value_bytes in prop_oneof![1 => Just(0), 1 => Just(9u64)],
        custom in any::<bool>(),
        count in 1..3usize,
        tracks in prop::bool::weighted(0.25),
    ) {
        let watched = if custom { gadgets() } else { pods(&["url"]) };
        let open = ["kube_pod_labels", "gadget_"];
        let budget = Budget { series_per_kind, values_per_label, series_per_metric, value_bytes, ..Budget::default() };
        let mode = if tracks { BudgetMode::Track } else { BudgetMode::Enforce };
        let budget = Budget { mode, ..budget };
        let mut models = ListWatchModel::several(&watched, &budget, None, Shard::ALL, count);
        models.iter_mut().for_each(|model| {
            model.begin_list();
            model.end_list(true);
        });
        for step in steps {
            match step {
                Step::Put { at, name, content } => models[at % count].put(at % count, name, content),
                Step::Delete { at, name } => models[at % count].delete(at % count, name),
                Step::BeginList { at } => models[at % count].begin_list(),
                Step::EndList { at, commits } => models[at % count].end_list(commits),
            }
            if tracks {
                models[0].kind.iter().for_each(|kind| kind.assert_exact());
            } else {
                assert_bounds(&models, &budget, &open);
            }
        }
        // A single object is within any budget that it fits in.
        for (at, model) in models.iter_mut().enumerate() {
            model.end_list(true);
            for name in model.objects.keys().copied().collect::<Vec<_>>() {
                model.delete(at, name);
            }
        }
        models[0].put(0, 0, Content { url: 0, parts: 1 });
        models[0].relist(0);
        let mut alone = ListWatchModel::pair(&watched, &enforced(Budget::default()));
        alone[0].put(0, 0, Content { url: 0, parts: 1 });
        if tracks || series_per_kind == 0 || alone[0].store.series() <= series_per_kind {
            prop_assert_eq!(exposed(&models), exposed(&alone));
        }
    }
}
