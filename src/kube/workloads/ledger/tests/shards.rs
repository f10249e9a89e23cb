//! Counters of one shard, and of workloads that move to another.

use super::*;

/// The workload's UID decides about the shard of its counters and those of its pods. A gained workload starts at 0.
#[test]
fn shards_serve_their_workloads() {
    let mut world = World::new();
    for uid in ["p", "q"] {
        let name = format!("web-{uid}");
        world.put(1, &pod(uid, 0, &status(0, &ended(0, "Error"), "")));
        world.ledger.assign_pod(uid.as_bytes(), &workload(&name), world.now);
    }
    let is_error = |(name, value): &(&String, &f64)| name.contains("Error") && **value > 0.0;
    assert_eq!(world.series().iter().filter(is_error).count(), 4);
    let kept = |index: i32, uid: &str| {
        let shard = Shard::new(index, 2);
        shard.keeps(&workload(&format!("web-{uid}")).uid)
    };
    world.ledger.set_shard(Shard::new(0, 2));
    for uid in ["p", "q"] {
        let name = format!("web-{uid}");
        let series = world.series();
        let shown = series.keys().filter(|key| key.contains(&format!("workload=\"{name}\"")));
        assert_eq!(shown.count() > 0, kept(0, uid));
        let of_pod = series.keys().any(|key| key.contains(&format!("pod=\"{uid}\"")));
        assert_eq!(of_pod, kept(0, uid));
    }
    world.ledger.set_shard(Shard::ALL);
    let series = world.series();
    for uid in ["p", "q"] {
        let errors: f64 = series
            .iter()
            .filter(|(name, _)| {
                name.contains(&format!("workload=\"web-{uid}\"")) && name.contains("Error")
            })
            .map(|(_, value)| value)
            .sum();
        assert_eq!(errors, if kept(0, uid) { 1.0 } else { 0.0 }, "{uid} {series:?}");
    }
}

/// Counters of jobs exist from the beginning of a shard, not only from the first end.
#[test]
fn a_gained_workload_has_counters_of_jobs() {
    let mut world = World::new();
    let job = r#"{"metadata":{"name":"j","namespace":"n","uid":"j"},"status":{}}"#;
    world.ledger.put_job(5, &decoded(job), &workload("web"), world.now);
    let jobs = |world: &World| {
        world.series().keys().filter(|name| name.starts_with("kstatd_jobs_finished")).count()
    };
    assert_eq!(jobs(&world), 3);
    world.ledger.set_shard(Shard::NONE);
    assert_eq!(jobs(&world), 0);
    world.ledger.set_shard(Shard::ALL);
    assert_eq!(jobs(&world), 3);
}

/// Returns the first of two shards, and `web` with a UID that belongs to it and one with a UID that does not.
fn own_and_foreign() -> (Shard, Workload, Workload) {
    let shard = Shard::new(0, 2);
    let find = |is_own: bool| {
        let mut uids = (0..20).map(|number| format!("u{number}"));
        let uid = uids.find(|uid| shard.keeps(uid.as_bytes()) == is_own).expect("one");
        Workload { uid: uid.as_bytes().into(), ..workload("web") }
    };
    (shard, find(true), find(false))
}

/// A list in progress shows the successors of nodes, which decide about the shard of the names, also if that changes now.
#[test]
fn successors_of_nodes_decide_about_the_shard() {
    let mut world = World::new();
    let shard = Shard::new(0, 2);
    let names: Vec<String> = (0..20).map(|number| format!("a{number}")).collect();
    let put = |world: &mut World, is_own: bool| {
        world.ledger.begin_list(LedgerKind::Node, 9);
        for (number, name) in names.iter().enumerate() {
            let is_own = is_own == (number % 2 == 0);
            let mut uids = (0..).map(|number| format!("{name}-{number}"));
            let uid = uids.find(|uid| shard.keeps(uid.as_bytes()) == is_own).expect("one");
            let node = format!(
                r#"{{"metadata":{{"name":"{name}","uid":"{uid}"}},"status":{{"conditions":[{{"type":"Ready","status":"True"}}]}}}}"#
            );
            world.ledger.put_node(9, &decoded(&node), true, world.now);
        }
    };
    let shown = |world: &World| -> Vec<bool> {
        let series = world.series();
        let is_shown = |name: &String| {
            let label = format!("{{node=\"{name}\",");
            series.keys().any(|name| name.contains(&label))
        };
        names.iter().map(is_shown).collect()
    };
    let even: Vec<bool> = (0..20).map(|number| number % 2 == 0).collect();
    let odd: Vec<bool> = even.iter().map(|is_even| !is_even).collect();
    world.ledger.show(LedgerKind::Node, 9);
    put(&mut world, true);
    world.ledger.end_list(LedgerKind::Node, 9, true, world.now);
    world.ledger.set_shard(shard);
    assert_eq!(shown(&world), even);
    put(&mut world, false);
    for (shard, expected) in [(Shard::new(1, 2), &even), (shard, &odd)] {
        world.ledger.set_shard(shard);
        assert_eq!(&shown(&world), expected);
    }
    world.ledger.end_list(LedgerKind::Node, 9, true, world.now);
    assert_eq!(shown(&world), odd);
}

/// A new workload with the name of an old one may belong to another shard, which serves the counters from then on.
#[test]
fn a_new_uid_decides_about_the_shard() {
    let mut world = World::new();
    let (shard, own, other) = own_and_foreign();
    world.ledger.set_shard(shard);
    let see = |world: &mut World, name: &str, workload: &Workload| {
        world.put(1, &pod(name, 0, &status(0, &ended(0, "Error"), "")));
        world.ledger.assign_pod(name.as_bytes(), workload, world.now);
        world.terminations()
    };
    assert_eq!(see(&mut world, "p", &own), counted(&[("Error", 1.0)]));
    assert_eq!(see(&mut world, "q", &other), []);
    world.delete("p");
    assert_eq!(see(&mut world, "r", &own), counted(&[("Error", 1.0)]));
}

/// A restored server shows an old workload again, whose successor is gone.
#[test]
fn an_old_workload_decides_again_about_the_shard() {
    let mut world = World::new();
    let (shard, own, other) = own_and_foreign();
    world.ledger.set_shard(shard);
    let put = |world: &mut World, name: &str, workload: &Workload| {
        world.put(1, &pod(name, 0, &running(0, "")));
        world.ledger.assign_pod(name.as_bytes(), workload, world.now);
    };
    put(&mut world, "old", &own);
    world.ledger.begin_list(LedgerKind::Pod, 1);
    put(&mut world, "new", &other);
    world.ledger.end_list(LedgerKind::Pod, 1, false, world.now);
    assert!(world.series().is_empty());
    world.ledger.begin_list(LedgerKind::Pod, 1);
    put(&mut world, "old", &own);
    world.ledger.end_list(LedgerKind::Pod, 1, true, world.now);
    assert_eq!(world.series().len(), 6, "{:?}", world.series());
    assert_eq!(world.ends(), []);
}

/// A list shows the successor of a workload before it shows that the old one has ended, which its own shard counts.
#[test]
fn the_end_of_a_workload_of_another_shard_does_not_count() {
    let (shard, own, other) = own_and_foreign();
    for (old, new, is_counted) in [(&own, &own, true), (&other, &own, false), (&own, &other, false)]
    {
        let mut world = World::new();
        world.ledger.set_shard(shard);
        let job = |uid: &str| {
            format!(
                r#"{{"metadata":{{"name":"web","namespace":"n","uid":"{uid}"}},"status":{{}}}}"#
            )
        };
        let mut list = |(name, workload): (&str, &Workload)| {
            world.ledger.begin_list(LedgerKind::Job, 5);
            world.ledger.put_job(5, &decoded(&job(name)), workload, world.now);
            world.ledger.end_list(LedgerKind::Job, 5, true, world.now);
            world.ledger.begin_list(LedgerKind::Pod, 1);
            world.put(1, &pod(name, 0, &running(0, "")));
            world.ledger.assign_pod(name.as_bytes(), workload, world.now);
            world.ledger.end_list(LedgerKind::Pod, 1, true, world.now);
        };
        list(("old", old));
        list(("new", new));
        let expected = if is_counted { counted(&[("unknown", 1.0)]) } else { vec![] };
        assert_eq!(world.counts("kstatd_jobs_finished_total"), expected);
        assert_eq!(world.ends(), expected);
    }
}
