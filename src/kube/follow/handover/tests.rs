//! Tests of the hidden objects of a shard change: how many there are, and their number of series.

use super::*;
use crate::cache::Schema;
use crate::kube::shard::Stage;

fn object(uid: &str, series: u32) -> Rendered {
    Rendered { uid: uid.as_bytes().to_vec(), series, ..Rendered::default() }
}

/// Returns the objects of a shard that gains all, at a stage that does not show them yet.
fn gaining() -> ServedObjects {
    let schema = Schema { resource: "pods".to_owned(), families: Vec::new() };
    let shard = Shard::ALL.replacing(Shard::new(1, 2));
    ServedObjects::new(None, Arc::new(Store::new(Arc::new(schema))), shard)
}

/// Returns the numbers of hidden objects, their series, and visible objects.
fn counts(served: &ServedObjects) -> (usize, u64, usize) {
    (served.hidden(), served.series() - served.store.series(), served.store.len())
}

#[test]
fn hidden_objects_and_their_series_are_counted_once() {
    let served = gaining();
    for (uid, series, wanted) in [("a", 3, (1, 3, 0)), ("b", 4, (2, 7, 0)), ("a", 5, (2, 9, 0))] {
        served.put(Ownership::Gained, &object(uid, series));
        assert_eq!(counts(&served), wanted);
    }
    assert!(served.contains(b"a") && served.contains(b"b") && !served.contains(b"c"));
    let mut seen = Vec::new();
    served.look(b"a", |view| seen.push(view.series()));
    served.look(b"c", |view| seen.push(view.series()));
    served.each(|view| seen.push(view.series()));
    seen.sort_unstable();
    assert_eq!(seen, [4, 5, 5]);
    served.remove(b"a");
    served.remove(b"c");
    assert_eq!(counts(&served), (1, 4, 0));
    for ownership in [Ownership::Kept, Ownership::Lost] {
        served.put(ownership, &object("c", 1));
        assert_eq!((counts(&served), served.len()), ((1, 4, 1), 2));
    }
    assert_eq!(served.clear(), 1);
    assert_eq!((counts(&served), served.len()), ((0, 0, 0), 0));
}

#[test]
fn hidden_objects_of_a_list_replace_those_before() {
    let served = gaining();
    served.put(Ownership::Gained, &object("old", 9));
    let mut collected = served.collect();
    assert_eq!((collected.hidden(), collected.len()), (0, 0));
    collected.put(Ownership::Gained, &object("new", 2));
    let mut uids = (0..20).map(|number| number.to_string());
    let own = uids.find(|uid| Shard::new(1, 2).keeps(uid.as_bytes()));
    collected.put(Ownership::Kept, &object(&own.expect("one of them"), 3));
    assert_eq!((collected.hidden(), collected.visible(), collected.series()), (1, 1, 5));
    assert!(served.contains(b"old") && !served.contains(b"new"));
    served.commit(collected);
    assert_eq!(counts(&served), (1, 2, 1));
    assert!(served.contains(b"new") && !served.contains(b"old"));
    // The switch shows all of them.
    served.show(Shard::ALL);
    assert_eq!(counts(&served), (0, 0, 2));
    assert_eq!(served.shard(), Shard::ALL);
}

/// The changes of objects that neither shard has are not received, so that they would be out of date at a later switch.
#[test]
fn hidden_objects_of_another_shard_are_dropped() {
    let (served, other) = (gaining(), Shard::new(1, 2));
    let uids: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let kept = uids.iter().filter(|uid| other.keeps(uid.as_bytes())).count();
    assert!(0 < kept && kept < uids.len());
    for lists in [false, true] {
        served.show(Shard::ALL.replacing(Shard::NONE));
        let mut collected = served.collect();
        uids.iter().for_each(|uid| served.put(Ownership::Gained, &object(uid, 2)));
        uids.iter().for_each(|uid| collected.put(Ownership::Gained, &object(uid, 3)));
        assert_eq!(counts(&served).0, uids.len());
        served.show(other.replacing(Shard::NONE));
        if lists {
            served.commit(collected);
        }
        let series = kept as u64 * if lists { 3 } else { 2 };
        assert_eq!(counts(&served), (kept, series, 0));
    }
}

/// While a list goes on, the shard can change, and then an object that it has can change.
#[test]
fn an_object_that_changes_after_the_switch_is_there_once() {
    let served = gaining();
    let mut collected = served.collect();
    collected.put(Ownership::Gained, &object("a", 2));
    served.show(Shard::ALL);
    collected.put(Ownership::Kept, &object("a", 7));
    assert_eq!((collected.hidden(), collected.visible(), collected.series()), (0, 1, 7));
    served.commit(collected);
    assert_eq!((counts(&served), served.store.series()), ((0, 0, 1), 7));

    let mut collected = served.collect();
    collected.put(Ownership::Kept, &object("a", 2));
    collected.put(Ownership::Gained, &object("a", 7));
    assert_eq!((collected.hidden(), collected.visible(), collected.series()), (1, 0, 7));
}

/// A list begins while lost objects are still visible, and ends when a second change gains them again but does not show them yet.
#[test]
fn lost_objects_of_a_long_list_stay_lost() {
    let (served, narrow) = (gaining(), Shard::new(1, 2));
    let uids: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let kept = uids.iter().filter(|uid| narrow.keeps(uid.as_bytes())).count();
    assert!(0 < kept && kept < uids.len());
    let narrowing = narrow.replacing(Shard::ALL).at(Stage::Overlap);
    served.show(narrowing);
    let mut collected = served.collect();
    uids.iter().for_each(|uid| collected.put(narrowing.ownership(uid.as_bytes()), &object(uid, 1)));
    assert_eq!(collected.visible(), uids.len());
    served.show(narrow);
    served.show(Shard::ALL.replacing(narrow));
    served.commit(collected);
    assert_eq!(counts(&served).2, kept);
}

/// Of several changes that do not end, three are remembered. Objects of an older shard are dropped, also if the latest gains them.
#[test]
fn objects_of_a_forgotten_shard_are_dropped() {
    let served = gaining();
    let narrow = (1..6).map(|total| Shard::new(0, total)).fold(Shard::ALL, |from, to| {
        let overlap = from.retargeted(to).at(Stage::Overlap);
        served.show(overlap);
        overlap
    });
    let uids: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    uids.iter().for_each(|uid| served.put(Ownership::Lost, &object(uid, 1)));
    let shard = narrow.retargeted(Shard::ALL);
    served.show(shard);
    let exposed = uids.iter().filter(|uid| shard.ownership(uid.as_bytes()).is_exposed()).count();
    assert!(0 < exposed && exposed < uids.len());
    assert_eq!(counts(&served).2, exposed);
}

/// A list begins before gained objects are shown, and ends after the next change of the shard has begun.
#[test]
fn objects_that_are_shown_during_a_list_stay() {
    let (served, old, new) = (gaining(), Shard::new(0, 2), Shard::new(1, 2));
    let uids: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let all = |served: &ServedObjects, shard: Shard| {
        uids.iter().for_each(|uid| served.put(shard.ownership(uid.as_bytes()), &object(uid, 1)));
    };
    let preparing = new.replacing(old);
    let next = preparing.at(Stage::Overlap).retargeted(Shard::ALL);
    for lists in [false, true] {
        served.show(Shard::NONE);
        served.show(preparing);
        all(&served, preparing);
        let mut collected = served.collect();
        uids.iter()
            .for_each(|uid| collected.put(preparing.ownership(uid.as_bytes()), &object(uid, 1)));
        assert!(collected.hidden() > 0 && served.hidden() == collected.hidden());
        if lists {
            served.show(preparing.at(Stage::Overlap));
        }
        served.show(next);
        if lists {
            served.commit(collected);
        }
        assert_eq!(counts(&served), (0, 0, uids.len()), "with a list: {lists}");
    }
}
