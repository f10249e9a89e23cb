//! Kubernetes Events, told to a ledger.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::kube_events::{Event, MAX_WAIT, RECORD_RETENTION};
use super::super::observer::SharedLedger;
use super::super::state::EXPIRY_INTERVAL;
use super::{HOUR, LedgerKind, RUNNING, World, options, pod, status, workload};
use crate::cache::Catalog;
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::kube::shard::Shard;
use crate::kube::workloads::objects::Workload;
use crate::resources::ObjectBytes;
use crate::telemetry::KubeMetrics;
use crate::wire::view::decode;

/// The list/watch of events.
const EVENTS: u64 = 7;

/// Returns an event about an object, whose UID is its name.
fn event(uid: &str, (kind, name): (&str, &str), reason: &str, counts: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{uid}","namespace":"n","uid":"{uid}","creationTimestamp":"2026-01-01T01:00:00Z"}},
            "involvedObject":{{"kind":"{kind}","namespace":"n","name":"{name}","uid":"{name}"}},
            "reason":"{reason}","type":"Warning"{counts}}}"#
    )
}

const POD: (&str, &str) = ("Pod", "p");
const NODE: (&str, &str) = ("Node", "a");

impl World {
    /// Returns a ledger whose first list of events was empty.
    fn with_events() -> Self {
        let mut world = Self::new();
        world.ledger.show(LedgerKind::Event, EVENTS);
        world.list_events(EVENTS, &[]);
        world
    }

    fn put_event(&mut self, scope: u64, event: &str, of: Option<Workload>) {
        let object = ObjectBytes::Json(event.as_bytes());
        let event: Event<'_> = decode(object).expect("an event");
        self.ledger.put_event(scope, &event, of, self.now);
    }

    fn list_events(&mut self, scope: u64, events: &[&str]) {
        self.ledger.begin_list(LedgerKind::Event, scope);
        events.iter().for_each(|event| self.put_event(scope, event, None));
        self.ledger.end_list(LedgerKind::Event, scope, true, self.now);
    }

    /// Returns the counts by workload, kind and reason.
    fn kube_events(&self) -> BTreeMap<String, f64> {
        let events = self.series().into_iter();
        let events = events.filter(|(name, _)| name.starts_with("kstatd_kube_events_total{"));
        let brief = |name: String| {
            let label = |label: &str| {
                let (_, rest) = name.split_once(&format!("{label}=\"")).expect(label);
                rest.split_once('"').expect("a value").0.to_owned()
            };
            format!("{} {} {}", label("workload"), label("involved_kind"), label("reason"))
        };
        events.map(|(name, value)| (brief(name), value)).collect()
    }
}

fn counts(counts: &[(&str, f64)]) -> BTreeMap<String, f64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// The component that reports an event creates it again if it is gone, with another UID and the count continued.
#[test]
fn an_event_that_is_created_again_counts_once_more() {
    let mut world = World::with_events();
    let again = |uid: &str, first: &str, count: u32| {
        event(uid, NODE, "NodeNotReady", &format!(r#","firstTimestamp":"{first}","count":{count}"#))
    };
    // It is created at 01:00:00. Clocks differ a little.
    for (uid, first, count, total) in [
        ("new", "2026-01-01T00:59:58Z", 3, 3.0),
        ("expired", "2025-12-31T22:00:00Z", 40, 4.0),
        ("expired", "2025-12-31T22:00:00Z", 42, 6.0),
    ] {
        world.put_event(EVENTS, &again(uid, first, count), None);
        assert_eq!(world.kube_events(), counts(&[(" Node NodeNotReady", total)]), "{uid} {count}");
    }
    let series = r#","eventTime":"2025-12-31T22:00:00.5Z","series":{"count":9}"#;
    world.put_event(EVENTS, &event("of a series", NODE, "NodeNotReady", series), None);
    assert_eq!(world.kube_events(), counts(&[(" Node NodeNotReady", 7.0)]));
}

/// The counts of an event are those of the API: its own, or those of its series.
#[test]
fn each_occurrence_counts_once() {
    let mut world = World::with_events();
    for (state, total) in [
        ("", 1.0),
        ("", 1.0),
        (r#","count":1"#, 1.0),
        (r#","count":3"#, 3.0),
        (r#","series":{"count":5}"#, 5.0),
        // An older state is shown again.
        (r#","count":3"#, 5.0),
        (r#","count":-4,"series":{"count":6}"#, 6.0),
    ] {
        world.put_event(EVENTS, &event("e", NODE, "NodeNotReady", state), None);
        assert_eq!(world.kube_events(), counts(&[(" Node NodeNotReady", total)]), "{state}");
    }
    // Lists and list/watches with the same events.
    let (last, next) = (r#","count":6"#, r#","count":8"#);
    world.list_events(EVENTS, &[&event("e", NODE, "NodeNotReady", last)]);
    world.put_event(8, &event("e", NODE, "NodeNotReady", next), None);
    world.ledger.show(LedgerKind::Event, 8);
    world.ledger.forget(LedgerKind::Event, EVENTS, world.now);
    world.list_events(8, &[&event("e", NODE, "NodeNotReady", next)]);
    assert_eq!(world.kube_events(), counts(&[(" Node NodeNotReady", 8.0)]));
    // It is deleted, and shown again by a server that is behind.
    world.ledger.delete(LedgerKind::Event, b"e", world.now);
    world.put_event(8, &event("e", NODE, "NodeNotReady", last), None);
    world.ledger.delete(LedgerKind::Event, b"e", world.now);
    assert_eq!(world.kube_events(), counts(&[(" Node NodeNotReady", 8.0)]));
}

#[test]
fn events_of_the_first_list_are_old() {
    let mut world = World::new();
    world.list_events(EVENTS, &[&event("e", NODE, "Rebooted", r#","count":40"#)]);
    assert_eq!(world.kube_events(), counts(&[]));
    world.put_event(EVENTS, &event("e", NODE, "Rebooted", r#","count":42"#), None);
    let later = event("f", NODE, "Rebooted", "");
    world.list_events(EVENTS, &[&event("e", NODE, "Rebooted", r#","count":43"#), &later]);
    assert_eq!(world.kube_events(), counts(&[(" Node Rebooted", 4.0)]));
}

/// The right to list events was missing for so long that they were dropped and forgotten.
#[test]
fn forgotten_events_are_old() {
    let mut world = World::with_events();
    let text = event("e", NODE, "Rebooted", r#","count":3"#);
    world.put_event(EVENTS, &text, None);
    world.ledger.forget(LedgerKind::Event, EVENTS, world.now);
    world.now += RECORD_RETENTION.max(EXPIRY_INTERVAL);
    world.ledger.expire(world.now);
    let later = event("f", NODE, "Rebooted", "").replace("T01:", "T02:");
    world.list_events(EVENTS, &[&text, &later]);
    assert_eq!(world.kube_events(), counts(&[(" Node Rebooted", 4.0)]));
}

/// The clock of the API server was an hour fast for a while.
#[test]
fn events_count_whatever_the_clock_says() {
    let mut world = World::with_events();
    let fast = event("e", NODE, "Rebooted", "").replace("T01:", "T02:");
    world.put_event(EVENTS, &fast, None);
    world.put_event(EVENTS, &event("f", NODE, "Rebooted", ""), None);
    assert_eq!(world.kube_events(), counts(&[(" Node Rebooted", 2.0)]));
}

/// An event arrives before its object is known, and after it is gone.
#[test]
fn events_belong_to_the_workload_of_their_object() {
    let mut world = World::with_events();
    let web = workload("web");
    world.put_event(EVENTS, &event("e", POD, "Scheduled", ""), None);
    assert_eq!(world.kube_events(), counts(&[]));
    world.see("p", &pod("p", 0, &status(0, RUNNING, "")));
    world.put_event(EVENTS, &event("f", POD, "Started", ""), Some(web.clone()));
    world.delete("p");
    world.put_event(EVENTS, &event("g", POD, "Killing", ""), None);
    let mut all = counts(&[("web Pod Killing", 1.0), ("web Pod Scheduled", 1.0)]);
    all.extend(counts(&[("web Pod Started", 1.0)]));
    assert_eq!(world.kube_events(), all);
    // Those of an owner, of a custom workload, and of one in another namespace.
    world.put_event(EVENTS, &event("h", ("ReplicaSet", "web-1"), "Created", ""), None);
    world.ledger.resolve_events(b"web-1", &web, world.now);
    let custom = ("Deployment", "uid-of-web");
    let of_custom =
        event("i", custom, "Scaled", "").replace(r#""name":"uid-of-web""#, r#""name":"web""#);
    world.ledger.set_exists(&web, true, world.now);
    world.put_event(EVENTS, &of_custom.replace("Deployment", "deployMent"), None);
    let foreign = event("k", POD, "Forged", "").replace(r#""namespace":"n""#, r#""namespace":"m""#);
    world.put_event(EVENTS, &foreign, Some(web));
    all.extend(counts(&[("web ReplicaSet Created", 1.0), ("web deployMent Scaled", 1.0)]));
    let forged = r#"kstatd_kube_events_total{namespace="m",workload="",workload_type="",involved_kind="Pod",reason="Forged",type="Warning"}"#;
    let series = world.series();
    assert_eq!(series.get(forged), Some(&1.0), "{series:?}");
    all.extend(counts(&[(" Pod Forged", 1.0)]));
    assert_eq!(world.kube_events(), all);
}

/// Events about objects that stay unknown count without a workload, after a while or when too many wait.
#[test]
fn events_wait_for_a_while() {
    let mut world = World::with_events();
    world.put_event(EVENTS, &event("e", POD, "Failed", ""), None);
    world.now += MAX_WAIT / 2;
    world.put_event(EVENTS, &event("f", ("Pod", "q"), "Failed", ""), None);
    assert_eq!(world.ledger.deadline(), Some(world.now + MAX_WAIT / 2));
    world.now += MAX_WAIT / 2;
    world.ledger.expire(world.now);
    assert_eq!(world.kube_events(), counts(&[(" Pod Failed", 1.0)]));
    world.now += MAX_WAIT / 2;
    world.ledger.expire(world.now);
    assert_eq!(world.kube_events(), counts(&[(" Pod Failed", 2.0)]));
    for number in 0..205 {
        world.put_event(EVENTS, &event(&format!("x{number}"), POD, "Failed", ""), None);
    }
    assert_eq!(world.kube_events(), counts(&[(" Pod Failed", 7.0)]));
    world.ledger.resolve_events(b"p", &workload("web"), world.now);
    assert_eq!(world.kube_events(), counts(&[(" Pod Failed", 7.0), ("web Pod Failed", 200.0)]));
}

/// Events of a rollout find the workloads of their objects soon, and leave room for those that follow.
#[test]
fn events_that_have_waited_leave_room_for_others() {
    let mut world = World::with_events();
    for number in 0..1_000 {
        let pod = format!("p{number}");
        world.put_event(EVENTS, &event(&format!("e{number}"), ("Pod", &pod), "Pulled", ""), None);
        world.ledger.resolve_events(pod.as_bytes(), &workload("web"), world.now);
    }
    assert_eq!(world.kube_events(), counts(&[("web Pod Pulled", 1_000.0)]));
}

/// Each occurrence waits for its own time, also if an earlier one of the same object has waited for too long.
#[test]
fn each_event_of_an_object_waits_for_a_while() {
    let mut world = World::with_events();
    world.put_event(EVENTS, &event("e", POD, "Scheduled", ""), None);
    world.now += MAX_WAIT / 2;
    world.put_event(EVENTS, &event("f", POD, "Started", ""), None);
    world.now += MAX_WAIT / 2;
    world.ledger.expire(world.now);
    assert_eq!(world.kube_events(), counts(&[(" Pod Scheduled", 1.0)]));
    assert_eq!(world.ledger.deadline(), Some(world.now + MAX_WAIT / 2));
    world.see("p", &pod("p", 0, &status(0, RUNNING, "")));
    let all = counts(&[(" Pod Scheduled", 1.0), ("web Pod Started", 1.0)]);
    assert_eq!(world.kube_events(), all);
    world.now += MAX_WAIT / 2;
    world.ledger.expire(world.now);
    assert_eq!(world.kube_events(), all);
}

/// The workload's UID decides about the shard. Objects without a workload are divided by their own UIDs.
#[test]
fn shards_divide_events() {
    let mut sums = BTreeMap::<String, f64>::new();
    let mut parts = Vec::new();
    for index in 0..2 {
        let mut world = World::with_events();
        world.ledger.set_shard(Shard::new(index, 2));
        for number in 0..20 {
            let (uid, name) = (format!("e{number}"), format!("a{number}"));
            let of = Some(workload(&name)).filter(|_| number % 2 == 0);
            world.put_event(EVENTS, &event(&uid, ("Node", &name), "Rebooted", ""), of);
        }
        let part = world.kube_events();
        parts.push(part.len());
        part.into_iter().for_each(|(name, count)| *sums.entry(name).or_default() += count);
        // What the namespace has counted stays, also over a change of the shards.
        let before = world.kube_events()[" Node Rebooted"];
        world.ledger.set_shard(Shard::new(1 - index, 2));
        assert_eq!(world.kube_events(), counts(&[(" Node Rebooted", before)]));
    }
    assert!(parts.iter().all(|part| (2..11).contains(part)), "{parts:?}");
    assert_eq!((sums.len(), sums.values().sum::<f64>()), (11, 20.0), "{sums:?}");
}

/// Reasons, kinds and types by strangers are bounded, and so is the memory of deleted events.
#[test]
fn events_are_bounded() {
    let mut world = World::with_events();
    for number in 0..100 {
        let (uid, text) = (format!("e{number}"), format!("r{number}"));
        world.put_event(EVENTS, &event(&uid, (&format!("K{number}"), "x"), &text, ""), None);
    }
    let counted = world.kube_events();
    assert!(counted.len() <= 13, "{counted:?}");
    assert_eq!(counted.values().sum::<f64>(), 100.0);
    assert_eq!(counted[" other other"], 88.0);
    let deadline = |world: &World| world.ledger.deadline().map(|at| at - world.now);
    world.ledger.delete(LedgerKind::Event, b"e1", world.now);
    assert_eq!(deadline(&world), Some(RECORD_RETENTION));
    world.now += RECORD_RETENTION;
    world.ledger.expire(world.now);
    assert_eq!(deadline(&world), Some(HOUR - RECORD_RETENTION));
    world.now += HOUR;
    world.ledger.expire(world.now);
    assert!(world.series().is_empty(), "{:?}", world.series());
    assert_eq!(deadline(&world), None);
    // The rest of the events are still known.
    world.put_event(EVENTS, &event("e2", ("K2", "x"), "r2", ""), None);
    assert!(world.kube_events().is_empty());
}

/// Nothing changes and nobody scrapes: counters are removed in time nevertheless.
#[tokio::test(start_paused = true)]
async fn counters_are_removed_at_rest() {
    let (catalog, web) = (Catalog::new(), workload("web"));
    let options = options(|_| true, &Arc::default());
    let ledger = SharedLedger::new(&options, &catalog, &KubeMetrics::default());
    let resting = async |time: Duration| {
        tokio::select! {
            () = ledger.expire_in_time() => {}
            () = tokio::time::sleep(time) => {}
        }
        catalog
            .frames(Format::Text, &ScrapeQuery::default())
            .map(|frame| frame.len())
            .sum::<usize>()
    };
    let empty = resting(Duration::ZERO).await;
    let occur = || {
        ledger.set_exists(&web, true);
        ledger.update(|ledger, _| ledger.begin_list(LedgerKind::Event, EVENTS));
        ledger.update(|ledger, now| ledger.end_list(LedgerKind::Event, EVENTS, true, now));
        ledger.update(|ledger, now| {
            let text = event("e", POD, "Failed", "");
            let event: Event<'_> = decode(ObjectBytes::Json(text.as_bytes())).expect("an event");
            ledger.put_event(EVENTS, &event, Some(web.clone()), now);
        });
    };
    occur();
    assert!(resting(2 * HOUR).await > empty, "the workload exists");
    let wait = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // The timer sleeps without a deadline.
        ledger.set_exists(&web, false);
        std::future::pending::<()>().await
    };
    tokio::select! {
        () = wait => {}
        served = resting(HOUR) => assert!(served > empty, "it has just gone"),
    }
    assert_eq!(resting(EXPIRY_INTERVAL + Duration::from_secs(2)).await, empty);
}
