//! Bounds: of the series of rows, of the work that a change causes, and of the tables that are left.

use super::super::tally::MAX_RESOURCES;
use super::*;
use crate::util::shrink::SMALL;
use crate::util::work_counter;

/// A pod that requests one of each of these resources.
fn requesting(number: u8, resources: &[&str]) -> String {
    let requests: Vec<String> = resources.iter().map(|name| format!(r#""{name}":"1""#)).collect();
    format!(
        r#"{{{},"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{{}}}}}}}]}},"status":{{"phase":"Running"}}}}"#,
        metadata(&format!("pod-{number}"), &format!("p{number}"), ""),
        requests.join(",")
    )
}

#[test]
fn rows_beyond_the_budget_are_left_out() {
    let ledger = LedgerOptions::default();
    let options = WorkloadOptions {
        families: FAMILIES.iter().collect(),
        max_series: 30,
        ledger,
        ..WorkloadOptions::default()
    };
    let (catalog, metrics) = (Catalog::new(), KubeMetrics::default());
    let ledger = SharedLedger::new(&options.ledger, &catalog, &metrics);
    let workloads = Workloads::new(&options, &catalog, &metrics, &ledger, None, Shard::ALL);
    let observer = Arc::clone(&workloads.observers["pods"]).observe();
    observer.show();
    for number in 0..20 {
        observer.put(&observed(&pod(number, 1, "")), false);
    }
    let body: Vec<u8> = catalog.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
    let series = String::from_utf8(body).expect("text");
    let series = series.lines().filter(|line| !line.starts_with('#')).count();
    assert!((20..=30).contains(&series), "{series}");
    let rows = || {
        let body: Vec<u8> =
            catalog.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
        let text = String::from_utf8(body).expect("text");
        let rows = text.lines().filter(|line| line.starts_with("kstatd_pod_workload_info{"));
        rows.filter_map(|line| line.split('"').nth(3)).map(str::to_owned).collect::<Vec<_>>()
    };
    let over = metrics.all_over_budget();
    assert!(over.iter().any(|([_, _, limit, _, resource], times)| {
        (&**limit, &**resource) == ("series-per-kind", "workloads") && *times > 10
    }));
    // Without the others there is room for one that was left out.
    let shown = rows();
    let left_out = (0..20).find(|number| !shown.contains(&format!("pod-{number}")));
    let left_out = left_out.expect("a pod without a row");
    for number in (0..20).filter(|number| *number != left_out) {
        observer.delete(format!("p{number}").as_bytes(), false);
    }
    assert_eq!(rows(), [format!("pod-{left_out}")], "{shown:?} before");
}

/// A row that grows beyond the budget has no series until there is room, as an object of a kind has none.
#[test]
fn rows_do_not_grow_beyond_the_budget() {
    let options = WorkloadOptions {
        families: FAMILIES.iter().filter(|family| family.name.contains("_namespace_")).collect(),
        max_series: 12,
        ..WorkloadOptions::default()
    };
    let world = World::of(Shard::ALL, &options);
    let series =
        || world.series().keys().filter(|(name, _)| name.starts_with("kstatd_namespace")).count();
    world.put("pods", &requesting(1, &["cpu"]));
    let one = series();
    assert!((1..=12).contains(&one), "{one}");
    world.put("pods", &requesting(2, &["x/a", "x/b", "x/c", "x/d", "x/e", "x/f", "x/g"]));
    assert_eq!(series(), 0);
    world.put("pods", &requesting(2, &["cpu"]));
    assert_eq!(series(), one);
}

/// Resources with any names cost other pods of their namespace nothing: a row has few of them, and the usual ones always.
#[test]
fn resources_of_a_row_are_bounded() {
    let world = World::new(Shard::ALL);
    let mut most = 0;
    for pod in 0..20 {
        let names: Vec<String> = (0..50).map(|name| format!("a/{pod}-{name}")).collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.extend(["cpu", "memory"]);
        work_counter::take();
        world.put("pods", &requesting(pod, &names));
        most = most.max(work_counter::take());
    }
    assert!(most <= 4 * 2 * MAX_RESOURCES as u64, "{most}");
    let series = world.series();
    let resources = series.keys().filter(|(name, _)| name == "kstatd_namespace_resource_requests");
    let resources: Vec<String> = resources.map(|(_, labels)| labels["resource"].clone()).collect();
    assert_eq!(resources.len(), MAX_RESOURCES + 2, "{resources:?}");
    assert!(resources.ends_with(&["cpu".to_owned(), "memory".to_owned()]), "{resources:?}");
}

/// A replica set that is scaled has the same workload, so its pods are not visited.
#[test]
fn scaled_owners_do_not_visit_their_pods() {
    let world = World::new(Shard::ALL);
    let set = |owner: &str, replicas: u32| {
        let set = metadata("rs", "r", &reference("Deployment", owner, owner));
        format!(r#"{{{set},"spec":{{"replicas":{replicas}}}}}"#)
    };
    world.put("replicasets", &set("web", 1));
    for number in 0..100 {
        world.put("pods", &pod(number, 1, &reference("ReplicaSet", "rs", "r")));
    }
    work_counter::take();
    (2..10).for_each(|replicas| world.put("replicasets", &set("web", replicas)));
    assert_eq!(work_counter::take(), 0);
    world.put("replicasets", &set("other", 10));
    assert!(work_counter::take() >= 100);
    assert_eq!(by_workload(&world, "kstatd_workload_pods")["other"], 100.0);
}

/// Many pods with owners, namespaces and nodes of their own, and many pods of one owner, leave no large tables.
#[test]
fn tables_shrink_when_pods_and_owners_leave() {
    const MANY: usize = 2_000;
    let world = World::new(Shard::ALL);
    world.put("statefulsets", &format!("{{{}}}", metadata("db", "s", "")));
    let uids = |number: usize| [format!("a{number}"), format!("b{number}"), format!("d{number}")];
    for number in 0..MANY {
        let [shared, own, set] = uids(number);
        let owner = metadata(&set, &set, "").replace("\"n\"", &format!("\"{set}\""));
        world.put("statefulsets", &format!("{{{owner}}}"));
        for (uid, owner) in [(shared, ["db", "s"]), (own, [&*set; 2])] {
            let owner_reference = reference("StatefulSet", owner[0], owner[1]);
            let metadata = metadata(&uid, &uid, &owner_reference);
            let namespace = if owner[1] == "s" { "n" } else { owner[0] };
            let metadata = metadata.replace("\"n\"", &format!("\"{namespace}\""));
            world.put("pods", &format!(r#"{{{metadata},"spec":{{"nodeName":"{uid}"}}}}"#));
        }
    }
    let capacity = || world.workloads.hub.state().capacity();
    assert!(capacity() >= MANY);
    for number in 1..MANY {
        let [shared, own, set] = uids(number);
        world.delete("pods", &shared);
        world.delete("pods", &own);
        world.delete("statefulsets", &set);
    }
    assert!(capacity() <= 4 * SMALL, "{}", capacity());
}
