//! Tests of the figures that readers of a [`Progress`] get.

use super::*;
use crate::cache::{Rendered, Store};
use crate::resources::find;

const SECOND: Duration = Duration::from_secs(1);

fn schema() -> Arc<Schema> {
    Arc::new(Schema { resource: "pods".to_owned(), families: Vec::new() })
}

/// Returns a list/watch of pods with its store, and the number of list/watches that have not settled.
fn progress() -> (Progress, Arc<Store>, watch::Receiver<usize>) {
    let scope = Scope {
        api: ApiResource::built_in(find("pods").expect("a kind").api()),
        namespace: Some("space".to_owned()),
        selector: String::new(),
        labels: String::new(),
        drop_completed_after: None,
    };
    let store = Arc::new(Store::new(schema()));
    let served = ServedObjects::new(Some("space"), Arc::clone(&store), Shard::ALL);
    let (pending, changes) = watch::channel(0);
    let rejected = Some(Arc::new(RejectedSet::default()));
    (Progress::new(Arc::new(scope), served, (rejected, None), pending), store, changes)
}

/// Returns whether the reconciler was notified since the last call.
fn notified(changes: &mut watch::Receiver<usize>) -> bool {
    let notified = changes.has_changed().expect("a sender");
    changes.mark_unchanged();
    notified
}

#[test]
fn it_settles_once() {
    let (progress, _, mut changes) = progress();
    assert_eq!((*changes.borrow_and_update(), progress.is_settled()), (1, false));
    progress.settle();
    assert_eq!((*changes.borrow_and_update(), progress.is_settled()), (0, true));
    progress.settle();
    assert!(!notified(&mut changes));
    assert!(!progress.is_listed(), "it was refused");
    progress.listed();
    assert!(notified(&mut changes) && progress.is_listed());
    assert_eq!(*changes.borrow(), 0);
}

#[test]
fn the_reconciler_learns_about_backoff() {
    let (progress, _, mut changes) = progress();
    notified(&mut changes);
    assert_eq!((progress.status().phase, progress.is_waiting()), (Phase::Listing, false));
    progress.phase(Phase::Waiting);
    assert!(notified(&mut changes) && progress.is_waiting());
    progress.listed();
    assert_eq!((progress.status().phase, progress.is_waiting()), (Phase::Watching, false));
    progress.phase(Phase::Waiting);
    progress.resumed();
    assert_eq!(progress.status().phase, Phase::Watching);
}

#[test]
fn a_failure_lasts_from_its_first_request_to_the_next_success() {
    let (progress, ..) = progress();
    progress.failed(Some(Reason::Broken), "one");
    let first = progress.status().failure.expect("a failure");
    assert_eq!((first.reason, &*first.message), (Some(Reason::Broken), "one"));
    progress.failed(None, "two");
    let second = progress.status().failure.expect("a failure");
    assert_eq!((second.reason, &*second.message, second.since), (None, "two", first.since));
    assert!(second.at >= first.at);
    for works in [Progress::listed, Progress::resumed] {
        progress.failed(None, "three");
        works(&progress);
        assert_eq!(progress.status().failure, None);
    }
}

#[test]
fn failures_are_counted_by_reason() {
    let (progress, ..) = progress();
    for (reason, message) in
        [(Reason::Timeout, "a"), (Reason::Broken, "b"), (Reason::Timeout, "c"), (Reason::Slow, "d")]
    {
        progress.count(reason, message);
    }
    let errors = progress.facts().errors;
    let mut found: Vec<_> =
        errors.iter().map(|errors| (errors.reason, errors.count, &*errors.message)).collect();
    found.sort_by_key(|(.., message)| *message);
    let wanted = [(Reason::Broken, 1, "b"), (Reason::Timeout, 2, "c"), (Reason::Slow, 1, "d")];
    assert_eq!(found, wanted);
    assert!(errors.iter().all(|errors| errors.at > UNIX_EPOCH));
    assert_eq!(progress.status().failure, None, "a failure may be handled without backoff");
}

#[test]
fn data_is_current_until_the_last_data_or_the_first_failure() {
    let (progress, ..) = progress();
    assert_eq!((progress.status().heard, progress.pulse().current), (None, None));
    let before = SystemTime::now();
    progress.heard();
    let heard = progress.status().heard.expect("data");
    assert!(heard + SECOND > before && heard <= SystemTime::now(), "{heard:?}");
    assert_eq!((progress.pulse().current, progress.status().current()), (Some(heard), None));
    progress.listed();
    assert_eq!(progress.status().current(), Some(heard));
    let status = |failed: SystemTime| {
        let failure = Failure { since: failed, at: failed, reason: None, message: String::new() };
        Status { failure: Some(failure), ..progress.status() }
    };
    assert_eq!(status(heard + SECOND).current(), Some(heard));
    assert_eq!(status(heard - SECOND).current(), Some(heard - SECOND));
}

#[test]
fn dropped_objects_are_no_complete_state() {
    let (progress, ..) = progress();
    let is_complete = || (progress.is_complete(), progress.status().is_complete());
    assert_eq!(is_complete(), (false, false));
    progress.listed();
    assert_eq!((is_complete(), progress.is_given_up()), ((true, true), false));
    progress.given_up();
    assert_eq!((is_complete(), progress.is_given_up()), ((false, false), true));
    assert!(progress.status().given_up && progress.is_listed());
    progress.listed();
    assert_eq!((is_complete(), progress.status().given_up), ((true, true), false));
}

#[test]
fn changes_and_objects_are_counted() {
    let (progress, store, _) = progress();
    for uid in [&b"a"[..], b"b"] {
        store.apply(&Rendered { uid: uid.to_vec(), ..Rendered::default() });
    }
    (0..3).for_each(|_| progress.event());
    progress.coming(7);
    progress.encoding(Encoding::Json);
    progress.stopped(true);
    let (status, pulse, facts) = (progress.status(), progress.pulse(), progress.facts());
    assert_eq!((status.objects, pulse.objects, facts.status.objects), (2, 2, 2));
    assert_eq!((pulse.events, facts.events, status.coming), (3, 3, 7));
    assert_eq!((&*pulse.kind, &*status.resource), ("pods", "pods"));
    assert_eq!(status.namespace.as_deref(), Some("space"));
    assert_eq!((status.encoding, status.stopped), (Some(Encoding::Json), true));
    progress.stopped(false);
    assert!(!progress.status().stopped);
}

#[test]
fn only_served_objects_are_counted_by_namespace() {
    let (progress, store, _) = progress();
    let (uid, namespace) = (b"a".to_vec(), b"space".to_vec());
    store.apply(&Rendered { uid, namespace: namespace.clone(), ..Rendered::default() });
    let rejected = progress.rejected.as_ref().expect("a budget");
    rejected.insert(store.key(b"b"), b"other");
    assert!(progress.totals().is_none() && progress.rejected().is_none());
    assert!(!progress.is_shown() && !progress.pulse().shown && !progress.facts().shown);
    progress.show();
    assert!(progress.is_shown() && progress.pulse().shown && progress.facts().shown);
    let Totals { resource, shown, rejected } = progress.totals().expect("served");
    assert_eq!((&*resource, shown), ("*v1.Pod", BTreeMap::from([(namespace, 1)])));
    assert_eq!(rejected, [(b"other".to_vec(), 1)]);
    assert_eq!(progress.facts().rejected, 1);
    assert!(progress.place(b"b").rejected && !progress.place(b"a").rejected);
    assert_eq!(
        (progress.place(b"a").families, progress.place(b"b").families),
        (Some(vec![]), None)
    );
}

#[test]
fn a_list_watch_that_is_behind_tells_when_it_is_not() {
    let ((old, ..), (new, _, mut changes)) = (progress(), progress());
    assert!(new.has_reached(&old), "nothing is known about the old one");
    old.reached("10", true);
    assert!(new.has_reached(&old), "the new one has not listed");
    new.listed();
    new.reached("9", true);
    notified(&mut changes);
    new.reached("9", true);
    assert!(!notified(&mut changes), "nothing waits");
    assert!(!new.has_reached(&old));
    // Bookmarks of the old one are no changes that the new one could miss.
    old.reached("20", false);
    new.reached("10", false);
    assert!(notified(&mut changes) && new.has_reached(&old));
    new.reached("11", true);
    assert!(!notified(&mut changes));
    old.reached("21", true);
    assert!(!new.has_reached(&old));
    // Versions that are not numbers cannot be compared.
    new.reached("x", true);
    assert!(new.has_reached(&old));
}
