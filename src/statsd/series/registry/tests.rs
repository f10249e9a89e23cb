//! Tests of the registry through [`Registry::resolve`].

use std::time::Duration;

use super::*;
use crate::exposition::budget::BudgetMode;
use crate::exposition::labels::{iter, rendered};
use crate::mapper::Quantile;
use crate::statsd::series::account::{MAX_FOLDED, OVERFLOW, cost, family_cost, kept_bytes};
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
    for (sender, remaining, live) in [(2, 2, 2), (3, 1, 1), (1, 0, 0)] {
        registry.end_senders(&[sender]);
        assert_eq!((sets(), registry.read().live), (remaining, live));
    }
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
    let most = u32::from(u16::MAX);
    let numbers: Vec<u16> = (0..most + 10).map(|ttl| members.ttl_number(ttl * 3)).collect();
    for (ttl, number) in (0..most + 10).zip(numbers) {
        assert_eq!(members.ttl_number(ttl * 3), number);
        let found = members.resolved(SeriesRef { handle, ttl: number }, 7).ttl;
        // Beyond the numbered ones, the time to live of the current rule applies.
        assert_eq!(found, if ttl < most { ttl * 3 } else { 7 });
    }
    assert_eq!(members.ttls.len(), usize::from(u16::MAX));
}
