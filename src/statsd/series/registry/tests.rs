//! Tests of the registry through [`Registry::resolve`].

use std::time::Duration;

use super::*;
use crate::exposition::budget::BudgetMode;
use crate::exposition::labels::{iter, rendered};
use crate::mapper::Quantile;
use crate::statsd::series::account::{MAX_FOLDED, OVERFLOW, cost, family_cost, folds, kept_bytes};
use crate::statsd::series::placement::Placement;

fn registry(budget: Budget) -> Registry {
    Registry::new(Clock::manual(), Arc::new(|_| false), budget, Box::new(|| {}))
}

fn enforced() -> Budget {
    Budget { mode: BudgetMode::Enforce, ..Budget::default() }
}

/// Resolves a series of mapping generation 1 that lives for 10 ticks.
fn resolve(
    registry: &Registry,
    name: &str,
    labels: &[u8],
    aggregation: Aggregation<'_>,
) -> Result<Handle, Rejection> {
    let resolved = registry.resolve(&wanted(name, labels, aggregation, &Origin::default()));
    resolved.map(|resolved| resolved.handle).map_err(|rejected| rejected.rejection)
}

fn wanted<'a>(
    name: &'a str,
    labels: &'a [u8],
    aggregation: Aggregation<'a>,
    origin: &'a Origin,
) -> NewSeries<'a> {
    NewSeries {
        key: Key { name, labels, label_count: iter(labels).count() as _ },
        aggregation,
        help: "",
        ttl: 10,
        generation: 1,
        budget: RuleBudget::default(),
        origin,
        sender: 0,
    }
}

fn histogram(bounds: &[f64]) -> Aggregation<'_> {
    Aggregation::Histogram { bounds, native_factor: 0.0, native_max_buckets: 0 }
}

fn summary(quantiles: &[f64]) -> SummaryOptions {
    let quantiles = quantiles.iter().map(|&quantile| Quantile { quantile, error: 0.01 });
    SummaryOptions { quantiles: quantiles.collect(), ..SummaryOptions::default() }
}

fn number(count: u32) -> Vec<u8> {
    rendered(&[("n", &count.to_string())])
}

#[test]
fn names_that_prometheus_rejects_get_no_series() {
    let registry = registry(Budget::default());
    for name in ["a", "Z", "_", ":", "a:b", "a_b9"] {
        assert!(resolve(&registry, name, b"", Aggregation::Counter).is_ok(), "{name}");
    }
    for name in ["0a", "9", "a-b", "a.b", "a b", "é", "aé"] {
        let result = resolve(&registry, name, b"", Aggregation::Counter);
        assert_eq!(result, Err(Rejection::InvalidName), "{name}");
    }
    assert_eq!(resolve(&registry, "", b"", Aggregation::Counter), Err(Rejection::EmptyName));
    for label in ["a", "Z", "_", "_a", "a_9", "a__"] {
        let labels = rendered(&[(label, "v")]);
        assert!(resolve(&registry, "m", &labels, Aggregation::Counter).is_ok(), "{label}");
    }
    for label in ["0a", "a-b", ":", "a:b", "é", "aé", "__", "__a"] {
        let result = resolve(&registry, "m", &rendered(&[(label, "v")]), Aggregation::Counter);
        assert_eq!(result, Err(Rejection::InvalidLabel), "{label}");
    }
}

#[test]
fn labels_that_a_kind_writes_are_rejected() {
    let registry = registry(Budget::default());
    let options = summary(&[0.5]);
    let kinds = [
        ("c", Aggregation::Counter, [true, true]),
        ("g", Aggregation::Gauge, [true, true]),
        ("t", Aggregation::Set(&options), [true, true]),
        ("s", Aggregation::Summary(&options), [false, true]),
        ("h", histogram(&[1.0]), [true, false]),
    ];
    for (name, aggregation, accepted) in kinds {
        for (label, accepted) in ["quantile", "le"].into_iter().zip(accepted) {
            let result = resolve(&registry, name, &rendered(&[(label, "1")]), aggregation);
            let expected = if accepted { None } else { Some(Rejection::ReservedLabel) };
            assert_eq!(result.err(), expected, "{name}, {label}");
        }
    }
}

#[test]
fn derived_names_belong_to_one_family() {
    let options = summary(&[0.5]);
    let summary = Aggregation::Summary(&options);
    let set = Aggregation::Set(&options);
    let (counter, gauge, histogram) = (Aggregation::Counter, Aggregation::Gauge, histogram(&[1.0]));
    let mut cases = Vec::new();
    for kind in [counter, gauge, set, summary, histogram] {
        for suffix in ["_sum", "_count", "_bucket"] {
            cases.push((histogram, "x", kind, format!("x{suffix}"), false));
        }
        cases.push((summary, "x", kind, "x_sum".to_owned(), false));
        cases.push((summary, "x", kind, "x_count".to_owned(), false));
        // A summary writes no buckets, but only observers may have the name.
        let observer = kind.kind().is_observer();
        cases.push((summary, "x", kind, "x_bucket".to_owned(), observer));
        cases.push((histogram, "x", kind, "x_other".to_owned(), true));
        cases.push((kind, "x_sum", summary, "x".to_owned(), false));
        cases.push((kind, "x_count", histogram, "x".to_owned(), false));
        cases.push((kind, "x_bucket", histogram, "x".to_owned(), false));
        cases.push((kind, "x_bucket", summary, "x".to_owned(), true));
        cases.push((kind, "x_sum", counter, "x".to_owned(), true));
    }
    for scalar in [counter, gauge, set] {
        cases.push((scalar, "x", counter, "x_sum".to_owned(), true));
        cases.push((scalar, "x", counter, "x_bucket".to_owned(), true));
    }
    for (first, name, second, other, accepted) in cases {
        let registry = registry(Budget::default());
        resolve(&registry, name, b"", first).expect("the first family");
        let result = resolve(&registry, &other, b"", second);
        let expected = if accepted { None } else { Some(Rejection::DerivedName) };
        assert_eq!(
            result.err(),
            expected,
            "{:?} {name}, {:?} {other}",
            first.kind(),
            second.kind()
        );
    }
}

#[test]
fn families_are_hidden_while_their_names_are_reserved() {
    let registry = registry(Budget::default());
    resolve(&registry, "a", b"", Aggregation::Counter).expect("a series");
    resolve(&registry, "b", b"", histogram(&[1.0])).expect("a series");
    let hidden = || {
        let (view, members) = (registry.view(), registry.read());
        let hidden = members.families.iter().filter(|family| view.is_hidden(family));
        hidden.map(|family| family.name.to_string()).collect::<BTreeSet<_>>()
    };
    let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
    for (reserved, now_hidden, now_shown, times) in [
        (&["a"][..], &["a"][..], &[][..], 1),
        (&["a", "b_bucket"][..], &["b"][..], &[][..], 2),
        (&["b_sum", "c"][..], &[][..], &["a"][..], 2),
        (&[][..], &[][..], &["b"][..], 2),
        (&["b_other"][..], &[][..], &[][..], 2),
    ] {
        let changes = registry.reserve(Arc::new(move |name| reserved.contains(&name)));
        assert_eq!((changes.hidden, changes.shown), (set(now_hidden), set(now_shown)));
        assert_eq!(registry.counts.hidden.load(Ordering::Relaxed), times);
        let reserved: BTreeSet<_> = [("a", "a"), ("b", "b_sum"), ("b", "b_bucket")]
            .into_iter()
            .filter(|(_, name)| reserved.contains(name))
            .map(|(family, _)| family.to_owned())
            .collect();
        assert_eq!(hidden(), reserved);
    }
}

/// To check the names of many families takes long.
#[test]
fn new_series_do_not_wait_while_names_are_reserved() {
    let registry = Arc::new(registry(Budget::default()));
    for name in ["a", "b"] {
        resolve(&registry, name, b"", Aggregation::Counter).expect("a series");
    }
    let (other, checked) = (Arc::clone(&registry), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&checked);
    registry.reserve(Arc::new(move |_| {
        assert!(other.members.try_write().is_ok(), "the registry is locked");
        count.fetch_add(1, Ordering::Relaxed);
        false
    }));
    assert_eq!(checked.load(Ordering::Relaxed), 2);
}

#[test]
fn growth_counts_the_series_of_each_minute() {
    let registry = registry(Budget::default());
    for count in 0..3 {
        resolve(&registry, "c", &number(count), Aggregation::Counter).expect("a series");
    }
    assert_eq!(registry.growth().iter().sum::<u64>(), 3);
    registry.clock.advance(Duration::from_secs(60));
    resolve(&registry, "c", &number(9), Aggregation::Counter).expect("a series");
    assert_eq!(registry.growth()[..3], [1, 3, 0]);
}

#[test]
fn an_overflow_series_has_as_many_samples_as_fit() {
    let (few, many) = (summary(&[0.5, 0.9]), summary(&[0.1, 0.5, 0.9, 0.95, 0.99]));
    for (first, second, samples) in [
        (histogram(&[1.0, 2.0]), histogram(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 5),
        (Aggregation::Summary(&few), Aggregation::Summary(&many), 4),
    ] {
        // Room for the first series, and for one more that is as wide.
        let kind = first.kind();
        let memory =
            family_cost("m") + cost(number(1).len(), kind, samples) + kept_bytes(kind, samples);
        for budget in [
            Budget { series_per_metric: 2 * samples, ..enforced() },
            Budget { series: 2 * samples, ..enforced() },
            Budget { memory, ..enforced() },
        ] {
            let registry = registry(budget);
            let used = || {
                let members = registry.read();
                (members.account.samples, members.account.reserved)
            };
            resolve(&registry, "m", &number(1), first).expect("room");
            assert_eq!(used(), (samples, samples));
            let origin = Origin::default();
            let labels = number(2);
            let wider = NewSeries { generation: 2, ..wanted("m", &labels, second, &origin) };
            let handle = registry.resolve(&wider).expect("room for overflow").handle;
            assert_eq!(registry.read().samples_of(handle.slot), samples);
            assert_eq!(used(), (2 * samples, 0));
        }
    }
}

/// Rules of one mapping share the settings of the first for a set of label names; a reload replaces them.
#[test]
fn settings_of_a_set_change_with_the_mapping() {
    let registry = registry(Budget { mode: BudgetMode::Track, ..Budget::default() });
    let origin = Origin::default();
    let (few, many) = ([1.0, 2.0], [1.0, 2.0, 3.0, 4.0, 5.0]);
    let steps = [(1, &few[..], 5), (1, &many[..], 5), (2, &many[..], 8), (2, &few[..], 8)];
    for (count, (generation, bounds, samples)) in (0..).zip(steps) {
        let labels = number(count);
        let series = NewSeries { generation, ..wanted("h", &labels, histogram(bounds), &origin) };
        let handle = registry.resolve(&series).expect("a series").handle;
        assert_eq!(registry.read().samples_of(handle.slot), samples, "series {count}");
    }
}

#[test]
fn label_names_are_forgotten_with_their_last_series() {
    let registry = registry(Budget::default());
    let origin = Origin::default();
    for (label, value, sender) in [("a", "1", 1), ("b", "1", 2), ("b", "2", 3)] {
        let labels = rendered(&[(label, value)]);
        let series = NewSeries { sender, ..wanted("c", &labels, Aggregation::Counter, &origin) };
        registry.resolve(&series).expect("a series");
    }
    let sets = || registry.read().sets.values().map(HashMap::len).sum::<usize>();
    resolve(&registry, "d", b"", Aggregation::Counter).expect("a series");
    assert_eq!(sets(), 2, "a metric with one set of label names needs none");
    for (sender, remaining, live) in [(2, 2, 3), (3, 1, 2), (1, 0, 1)] {
        registry.end_senders(&[sender]);
        assert_eq!((sets(), registry.read().live), (remaining, live));
    }
}

#[test]
fn a_name_is_free_again_after_its_last_series() {
    let registry = registry(Budget::default());
    let (origin, labels) = (Origin::default(), [number(1), number(2)]);
    for (sender, labels) in (1..).zip(&labels) {
        let series = NewSeries { sender, ..wanted("m", labels, Aggregation::Counter, &origin) };
        registry.resolve(&series).expect("a series");
    }
    let gauge = || resolve(&registry, "m", b"", Aggregation::Gauge);
    for sender in [1, 2] {
        assert_eq!(gauge(), Err(Rejection::OtherKind));
        registry.end_senders(&[sender]);
    }
    assert!(gauge().is_ok());
}

#[test]
fn rejections_name_the_exceeded_budget() {
    for (budget, rejection) in [
        (Budget { memory: 1, ..enforced() }, Rejection::MemoryLimit),
        // An overflow series of a histogram has at least three samples.
        (Budget { series: 2, ..enforced() }, Rejection::SeriesLimit),
        (Budget { series_per_metric: 2, ..enforced() }, Rejection::SeriesLimit),
        (Budget { name_bytes: 1, ..enforced() }, Rejection::NameLimit),
    ] {
        let result = resolve(&registry(budget.clone()), "mm", b"", histogram(&[1.0]));
        assert_eq!(result, Err(rejection), "{budget:?}");
    }
    for aggregation in [Aggregation::Counter, Aggregation::Gauge] {
        let registry = registry(Budget { memory: 1, ..enforced() });
        let result = resolve(&registry, "mm", b"", aggregation);
        assert_eq!(result, Err(Rejection::MemoryLimit), "{aggregation:?}");
    }
}

#[test]
fn folds_into_ended_series_are_forgotten_after_many_misses() {
    let registry = registry(Budget { series_per_metric: 2, ..enforced() });
    resolve(&registry, "c", b"", Aggregation::Counter).expect("room");
    let folded = || registry.read().account.folded.len();
    let fill = || {
        let ended = Handle { slot: SlotId::scalar(4_000_000), generation: 0 };
        let mut members = registry.write();
        let account = &mut members.account;
        for hash in 0..MAX_FOLDED as u64 {
            if account.folded.len() < MAX_FOLDED {
                account.folded.insert(hash, (ended, 10));
            }
        }
    };
    let mut next = 0;
    let mut fold = |times: usize| {
        for _ in 0..times {
            next += 1;
            resolve(&registry, "c", &number(next), Aggregation::Counter).expect("it folds");
        }
    };
    let misses = MAX_FOLDED / 16;
    fill();
    fold(misses + 1);
    assert_eq!(folded(), MAX_FOLDED, "no series has been removed");
    registry.write().account.has_removed = true;
    fold(1);
    assert_eq!(folded(), 1, "only the last one is folded into a series that exists");
    fill();
    registry.write().account.has_removed = true;
    fold(misses);
    assert_eq!(folded(), MAX_FOLDED, "too few to search for ended series");
    fold(1);
    assert_eq!(folded(), 2);
}

#[test]
fn what_is_due_expires_and_is_reported() {
    let registry = registry(Budget { mode: BudgetMode::Track, series: 1, ..Budget::default() });
    let handle = resolve(&registry, "c", &number(1), Aggregation::Counter).expect("a series");
    resolve(&registry, "c", &number(2), Aggregation::Counter).expect("a series");
    let bucket = {
        let view = registry.scalars();
        let cell = view.get(handle.slot).and_then(|cell| cell.lock(handle.generation));
        let cell = cell.expect("alive");
        let (life, bucket) = Registry::extend_life(cell.life(), 0, 10);
        cell.set_life(life);
        bucket.expect("a deadline")
    };
    registry.schedule(handle, bucket);
    assert!(registry.violations.due().is_some());
    registry.clock.advance(Duration::from_secs(60));
    registry.run_due();
    assert_eq!(registry.read().live, 1);
    assert_eq!(registry.next_wakeup(), None);
}

/// Tracked budgets tell whether the limit of another rule, or of a later mapping, would be enough.
#[test]
fn a_larger_limit_is_compared_with_all_values() {
    let registry = registry(Budget { mode: BudgetMode::Track, ..Budget::default() });
    let origin = Origin::default();
    let times = |range: std::ops::Range<u32>, values_per_label| {
        let budget =
            RuleBudget { values_per_label: Some(values_per_label), ..RuleBudget::default() };
        for count in range {
            let labels = number(count);
            let series =
                NewSeries { budget, ..wanted("c", &labels, Aggregation::Counter, &origin) };
            registry.resolve(&series).expect("a series");
        }
        registry.violations.all().iter().map(|violation| violation.times).sum::<u64>()
    };
    assert_eq!(times(0..10, 5), 5);
    assert_eq!(times(10..20, 15), 10);
    assert_eq!(times(20..22, 5), 12);
}

#[test]
fn the_next_wakeup_is_at_the_earliest_deadline() {
    let registry = registry(Budget::default());
    let handle = resolve(&registry, "c", b"", Aggregation::Counter).expect("a series");
    for second in [9, 7, 8] {
        registry.schedule(handle, second);
    }
    assert_eq!(registry.next_wakeup(), Some(7_000_000_000));
}

#[test]
fn a_series_without_a_time_to_live_has_no_deadline() {
    let life = Lifetime { deadline: 50, scheduled: 3 };
    let (life, bucket) = Registry::extend_life(life, 60, 0);
    assert_eq!((life.deadline, life.scheduled, bucket), (0, 3, None));
}

#[test]
fn previews_find_folded_series_on_any_page() {
    let registry = registry(Budget { series_per_metric: 1_000, ..enforced() });
    let origin = Origin::default();
    for count in 0..1_001 {
        resolve(&registry, "m", &number(count), Aggregation::Counter).expect("room");
    }
    let labels = number(1_000);
    let preview = registry.preview(&wanted("m", &labels, Aggregation::Counter, &origin));
    assert_eq!(preview.placement, Ok(Placement::Folded(Some(OVERFLOW.to_vec()))));
}

#[test]
fn times_to_live_are_numbered_and_found_again() {
    let mut members = Members::default();
    let handle = Handle { slot: SlotId::scalar(0), generation: 0 };
    assert_eq!([5, 3, 5, 8].map(|ttl| members.ttl_number(ttl)), [0, 1, 0, 2]);
    // Room for one more.
    members.ttls.extend(10..u32::from(u16::MAX) + 6);
    for (ttl, number, found) in [(3, 1, 3), (1, 65_534, 1), (2, 65_535, 7), (1, 65_534, 1)] {
        assert_eq!(members.ttl_number(ttl), number);
        // Beyond the numbered ones, the time to live of the current rule applies.
        assert_eq!(members.resolved(SeriesRef { handle, ttl: number }, 7).ttl, found);
    }
    assert_eq!(members.ttls.len(), usize::from(u16::MAX));
}

/// Resolves series of a metric until one has no series of its own. Returns the number of those that do.
fn fill(registry: &Registry, name: &str, aggregation: Aggregation<'_>) -> u64 {
    let origin = Origin::default();
    let is_own = |count: &u32| {
        let labels = number(*count);
        let sender = u64::from(*count);
        let series = NewSeries { sender, ..wanted(name, &labels, aggregation, &origin) };
        let preview = registry.preview(&series);
        let result = registry.resolve(&series);
        let is_own = preview.placement == Ok(Placement::New(labels.clone()));
        assert_eq!(result.is_ok(), is_own || folds(aggregation.kind()), "{name} {count}");
        is_own
    };
    (10..99).take_while(is_own).count() as u64
}

/// Budgets are exact: with one unit less, there is one series less. The overflow series always has its room.
#[test]
fn as_many_series_fit_as_the_budget_says() {
    let options = summary(&[0.5, 0.9]);
    let kinds = [
        (Aggregation::Counter, 1),
        (Aggregation::Gauge, 1),
        (Aggregation::Set(&options), 1),
        (Aggregation::Summary(&options), 4),
        (histogram(&[1.0, 2.0]), 5),
    ];
    for (aggregation, samples) in kinds {
        let kind = aggregation.kind();
        assert_eq!(aggregation.samples(), samples, "{kind:?}");
        let reserved = if folds(kind) { samples } else { 0 };
        let bytes = cost(number(10).len(), kind, samples);
        for count in 2..5 {
            let lines = count * samples + reserved;
            let memory = family_cost("mm") + count * bytes + kept_bytes(kind, reserved);
            // The second metric has one series, and room for its own overflow.
            let two_lines = lines + samples + reserved;
            let two_memory = memory + family_cost("nn") + bytes + kept_bytes(kind, reserved);
            for less in [0, 1] {
                let budgets = [
                    Budget { series_per_metric: lines - less, ..enforced() },
                    Budget { series: lines - less, ..enforced() },
                    Budget { memory: memory - less, ..enforced() },
                ];
                for budget in budgets {
                    let what = format!("{kind:?}: {budget:?}");
                    let registry = registry(budget);
                    assert_eq!(fill(&registry, "mm", aggregation), count - less, "{what}");
                    assert_accounts(&registry, kind, &what);
                }
                let budgets = [
                    Budget { series: two_lines - less, ..enforced() },
                    Budget { memory: two_memory - less, ..enforced() },
                ];
                for budget in budgets {
                    let what = format!("two of {kind:?}: {budget:?}");
                    let registry = registry(budget);
                    let origin = Origin::default();
                    let labels = number(98);
                    let other =
                        NewSeries { sender: 98, ..wanted("nn", &labels, aggregation, &origin) };
                    registry.resolve(&other).expect("room");
                    assert_eq!(fill(&registry, "mm", aggregation), count - less, "{what}");
                    assert_accounts(&registry, kind, &what);
                }
            }
        }
    }
}

/// Asserts that the usage is that of the series that exist, also after all those of senders have ended.
fn assert_accounts(registry: &Registry, kind: Kind, what: &str) {
    for ends in [false, true] {
        if ends {
            registry.end_senders(&(10..99).collect::<Vec<_>>());
        }
        let members = registry.read();
        let (account, mut lines, mut bytes, mut kept) = (&members.account, 0, 0, (0, 0));
        for family in &members.families {
            bytes += family_cost(&family.name);
            kept.0 += family.reserved();
            kept.1 += kept_bytes(kind, family.reserved());
            let mut own = 0;
            members.tree.snapshot().find_series(&family.name, |_, text| {
                let parsed = ParsedLabels::new(text);
                let key = Key { name: &family.name, labels: text, label_count: 1 };
                let at = members.tree.find(&key, &parsed, Some(family)).expect("a series");
                let slot = members.tree.series_ref(at).expect("a series").handle.slot;
                own += members.samples_of(slot);
                bytes += cost(text.len(), kind, members.samples_of(slot));
                None::<()>
            });
            assert_eq!(family.samples(), own, "{what}");
            let needs_room = folds(kind) && !family.has_overflow();
            assert_eq!(family.reserved() > 0, needs_room, "{what}");
            lines += own;
        }
        assert_eq!((account.samples, account.bytes), (lines, bytes), "{what}");
        assert_eq!((account.reserved, account.reserved_bytes), kept, "{what}");
        let budget = &registry.budget;
        assert!(budget.series == 0 || lines + kept.0 <= budget.series, "{what}");
        assert!(budget.memory == 0 || bytes + kept.1 <= budget.memory, "{what}");
    }
}

#[test]
fn names_may_be_as_long_as_the_budget_says() {
    let registry = registry(Budget { name_bytes: 3, ..enforced() });
    for (name, label, is_accepted) in
        [("mmm", "lll", true), ("mmmm", "l", false), ("m", "llll", false), ("m", "l", true)]
    {
        let labels = rendered(&[("a", "1"), (label, "1")]);
        let result = resolve(&registry, name, &labels, Aggregation::Counter);
        let expected = if is_accepted { None } else { Some(Rejection::NameLimit) };
        assert_eq!(result.err(), expected, "{name}, {label}");
    }
    let found: Vec<_> = registry.violations.all();
    let found: Vec<_> = found.iter().map(|found| (&*found.metric, &*found.label)).collect();
    assert_eq!(found, [("m", "llll"), ("mmmm", "")]);
}

/// The values of a label are only kept for metrics that have nearly as many series as a label may have values.
#[test]
fn values_of_a_small_metric_are_not_kept() {
    let registry = registry(Budget { values_per_label: 6, ..enforced() });
    let is_kept = || !registry.read().account.values.is_empty();
    let origin = Origin::default();
    for sender in 1..8 {
        let labels = number(sender);
        let series = NewSeries {
            sender: u64::from(sender),
            ..wanted("m", &labels, Aggregation::Counter, &origin)
        };
        registry.resolve(&series).expect("a series");
        assert_eq!(is_kept(), sender > 6, "{sender} series");
    }
    // The seventh is folded.
    assert_eq!(registry.read().live, 7);
    for (sender, kept) in [(1, true), (2, true), (3, true), (4, true), (5, false)] {
        registry.end_senders(&[sender]);
        assert_eq!(is_kept(), kept, "without {sender}");
    }
}

/// With `--limit.mode=track` the values beyond the budget count too, once others have ended.
#[test]
fn a_tracked_budget_counts_all_values() {
    let registry =
        registry(Budget { mode: BudgetMode::Track, values_per_label: 6, ..Budget::default() });
    let origin = Origin::default();
    let times = |senders: std::ops::RangeInclusive<u64>| {
        for sender in senders {
            let labels = number(sender as u32);
            let series =
                NewSeries { sender, ..wanted("m", &labels, Aggregation::Counter, &origin) };
            registry.resolve(&series).expect("a series");
        }
        registry.violations.all().iter().map(|violation| violation.times).sum::<u64>()
    };
    assert_eq!(times(1..=9), 3);
    registry.end_senders(&[1, 2, 3, 4, 5, 6]);
    assert_eq!((times(10..=12), times(13..=13)), (3, 4));
}

/// A series that has ended but is not removed yet, as after a panic, is not in the way of a new one.
#[test]
fn an_ended_series_is_replaced() {
    let registry = registry(Budget::default());
    let series = || resolve(&registry, "c", &number(1), Aggregation::Counter).expect("a series");
    let old = series();
    let mut members = registry.write();
    let view = registry.scalars();
    view.get(old.slot).and_then(|cell| cell.lock(old.generation)).expect("alive").retire();
    members.ended.push(old);
    drop(members);
    let new = series();
    assert_ne!(new, old);
    assert_eq!(series(), new, "it is found");
    assert_eq!(registry.read().live, 1);
}

#[test]
fn a_series_lives_to_the_end_of_its_deadline() {
    let registry = registry(Budget::default());
    let handle = resolve(&registry, "c", b"", Aggregation::Counter).expect("a series");
    let event = |tick, ttl| {
        let view = registry.scalars();
        let cell = view.get(handle.slot).and_then(|cell| cell.lock(handle.generation));
        let cell = cell.expect("alive");
        let (life, bucket) = Registry::extend_life(cell.life(), tick, ttl);
        cell.set_life(life);
        drop(cell);
        bucket.into_iter().for_each(|bucket| registry.schedule(handle, bucket));
    };
    let is_alive = || handle.is_alive(&registry.scalars(), &registry.observers());
    event(1, 5);
    event(4, 6);
    // The first deadline was in the second that ends now, and the second one is this tick.
    registry.clock.advance(Duration::from_millis(900));
    assert_eq!(registry.clock.now().tick(), 10);
    registry.run_due();
    assert!(is_alive());
    assert_eq!(registry.next_wakeup(), Some(2_000_000_000));
    registry.clock.advance(Duration::from_secs(1));
    registry.run_due();
    assert!(!is_alive());
    assert_eq!((registry.read().live, registry.next_wakeup()), (0, None));
}

/// `metrics_total` counts each pair of a name and a set of label names once, also if its series expire and return.
#[test]
fn pairs_of_name_and_label_names_are_counted_once() {
    let registry = registry(Budget::default());
    let origin = Origin::default();
    let pairs = || registry.counts.pairs.each_ref().map(|pairs| pairs.load(Ordering::Relaxed));
    let total = || pairs().iter().sum::<u64>();
    let create = |name: &str, label: &str, aggregation| {
        let labels = rendered(&[(label, "1")]);
        let series = NewSeries { sender: 7, ..wanted(name, &labels, aggregation, &origin) };
        registry.resolve(&series).expect("a series");
    };
    for returns in [false, true] {
        create("c", "a", Aggregation::Counter);
        create("c", "b", Aggregation::Counter);
        create("h", "a", histogram(&[1.0]));
        create("h", "b", histogram(&[1.0]));
        create("alone", "a", Aggregation::Gauge);
        assert_eq!(total(), 5, "returns: {returns}");
        registry.end_senders(&[7]);
        assert_eq!(registry.read().live, 0);
    }
    // As many are remembered as there is room for.
    let room = super::expiry::MAX_EXPIRED_PAIRS - 1;
    registry.write().expired_pairs.extend((0..).take(room - 5));
    create("e", "a", Aggregation::Gauge);
    create("e", "b", Aggregation::Gauge);
    registry.end_senders(&[7]);
    assert_eq!(registry.read().expired_pairs.len(), room + 1);
    create("e", "a", Aggregation::Gauge);
    create("e", "b", Aggregation::Gauge);
    assert_eq!(total(), 8, "one of two was remembered");
    registry.write().expired_pairs.retain(|pair| *pair >= room as u64);
    // A new one is counted while others have expired.
    create("d", "a", Aggregation::Gauge);
    assert_eq!(total(), 9);
    // The name is another metric as another kind.
    create("c", "a", Aggregation::Gauge);
    assert_eq!(total(), 10);
}

#[test]
fn other_help_texts_of_a_metric_are_counted() {
    let registry = registry(Budget::default());
    let origin = Origin::default();
    let mismatches = || registry.counts.help_mismatches.load(Ordering::Relaxed);
    for (count, help, found) in [(1, "a", 0), (2, "a", 0), (3, "b", 1), (4, "a", 1), (5, "c", 2)] {
        let labels = number(count);
        let series = NewSeries { help, ..wanted("c", &labels, Aggregation::Counter, &origin) };
        registry.resolve(&series).expect("a series");
        assert_eq!(mismatches(), found, "series {count}");
    }
    let other = NewSeries { help: "b", ..wanted("d", b"", Aggregation::Counter, &origin) };
    registry.resolve(&other).expect("a series");
    let members = registry.read();
    let help = |name: &str| {
        let family = registry.family(&members, name).expect("a family");
        members.helps.get(family.help).expect("a text").to_owned()
    };
    assert_eq!((help("c"), help("d")), ("a".to_owned(), "b".to_owned()));
}
