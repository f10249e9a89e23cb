//! Tests of the hidden objects of a shard change: how many there are, and their number of series.

use super::*;
use crate::cache::Schema;

fn object(uid: &str, series: u32) -> Rendered {
    Rendered { uid: uid.as_bytes().to_vec(), series, ..Rendered::default() }
}

fn store() -> Arc<Store> {
    Arc::new(Store::new(Arc::new(Schema { resource: "pods".to_owned(), families: Vec::new() })))
}

/// Returns a shard that gains all objects, at a stage that does not show them yet.
fn gaining() -> Shard {
    Shard::ALL.replacing(Shard::new(1, 2))
}

#[test]
fn hidden_objects_and_their_series_are_counted_once() {
    let (handover, store) = (Handover::new(gaining()), store());
    let counts = || (handover.hidden(), handover.hidden_series(), store.len());
    for (uid, series, wanted) in [("a", 3, (1, 3, 0)), ("b", 4, (2, 7, 0)), ("a", 5, (2, 9, 0))] {
        handover.put(Ownership::Gained, &object(uid, series), &store);
        assert_eq!(counts(), wanted);
    }
    assert!(handover.hides(b"a") && handover.hides(b"b") && !handover.hides(b"c"));
    let mut seen = Vec::new();
    handover.look(b"a", |view| seen.push(view.series()));
    handover.look(b"c", |view| seen.push(view.series()));
    handover.each(|view| seen.push(view.series()));
    seen.sort_unstable();
    assert_eq!(seen, [4, 5, 5]);
    handover.forget(b"a");
    handover.forget(b"c");
    assert_eq!(counts(), (1, 4, 0));
    for ownership in [Ownership::Kept, Ownership::Lost] {
        handover.put(ownership, &object("c", 1), &store);
        assert_eq!(counts(), (1, 4, 1));
    }
    handover.clear();
    assert_eq!(counts(), (0, 0, 1));
}

#[test]
fn hidden_objects_of_a_list_replace_those_before() {
    let (handover, store) = (Handover::new(gaining()), store());
    handover.put(Ownership::Gained, &object("old", 9), &store);
    let (mut pending, mut collected) = (PendingTransfer::default(), store.replace());
    assert!(pending.is_empty());
    pending.collect(Ownership::Gained, &object("new", 2), &mut collected);
    pending.collect(Ownership::Kept, &object("own", 3), &mut collected);
    assert_eq!((pending.is_empty(), pending.hidden(), pending.series()), (false, 1, 2));
    assert!(handover.hides(b"old") && !handover.hides(b"new"));
    handover.commit(pending, collected);
    assert_eq!((handover.hidden(), handover.hidden_series(), store.len()), (1, 2, 1));
    assert!(handover.hides(b"new") && !handover.hides(b"old"));
    // The switch shows all of them.
    handover.show(Shard::ALL, &store);
    assert_eq!((handover.hidden(), handover.hidden_series(), store.len()), (0, 0, 2));
    assert_eq!(handover.shard(), Shard::ALL);
}
