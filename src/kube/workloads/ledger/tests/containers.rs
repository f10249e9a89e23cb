//! Containers of all sorts, without IDs, and with restarts that go back.

use super::*;

/// Patched statuses often have no container IDs.
#[test]
fn terminations_without_container_ids_count_once() {
    let mut world = World::new();
    let without = |text: String| {
        let text = text.replace(r#""containerID":"id-"#, r#""ignored":"id-"#);
        pod("p", 0, &text)
    };
    let (first, second) = (ended(10, "OOMKilled"), ended(20, "Error"));
    world.see("p", &without(status(0, RUNNING, "")));
    for (restarts, state, last, sum) in [
        (0, WAITING, &first, 1.0),
        (0, WAITING, &first, 1.0),
        (1, RUNNING, &first, 1.0),
        // This one reports the restart before it happens, like many simulators.
        (2, WAITING, &second, 2.0),
        (2, RUNNING, &second, 2.0),
    ] {
        world.see("p", &without(status(restarts, state, last)));
        let counted: f64 = world.terminations().iter().map(|(_, count)| count).sum();
        assert_eq!(counted, sum, "{restarts} {state}");
    }
}

/// A waiting container without an ID is shown twice, and has run once more when the next state is seen.
#[test]
fn unseen_runs_without_container_ids_count_once() {
    let mut world = World::new();
    let without =
        |text: String| pod("p", 0, &text.replace(r#""containerID":"id-"#, r#""ignored":"id-"#));
    let (first, second) = (ended(10, "OOMKilled"), ended(20, "Error"));
    for (restarts, state, last) in [
        (0, RUNNING, ""),
        (0, &first, ""),
        (0, WAITING, &first),
        (0, WAITING, &first),
        (1, WAITING, &second),
        (1, WAITING, &second),
        (2, RUNNING, &second),
        (2, WAITING, &ended(30, "Error")),
        (2, WAITING, &ended(30, "Error")),
        (3, WAITING, &ended(40, "OOMKilled")),
        (4, RUNNING, &ended(40, "OOMKilled")),
    ] {
        world.see("p", &without(status(restarts, state, last)));
    }
    assert_eq!(world.terminations(), counted(&[("Error", 2.0), ("OOMKilled", 2.0)]));
}

#[test]
fn init_and_ephemeral_containers_count() {
    let mut world = World::new();
    let statuses = format!(
        r#""status":{{"initContainerStatuses":[{{"name":"i","state":{{{}}}}}],"ephemeralContainerStatuses":[{{"name":"e","state":{{{}}}}}]}}"#,
        ended(1, ""),
        ended(2, "Completed"),
    );
    world.see("p", &pod("p", 0, &statuses));
    let name = |container: &str, reason: &str| {
        format!(
            r#"kstatd_workload_container_terminations_total{{namespace="n",workload="web",workload_type="deployment",container="{container}",reason="{reason}"}}"#
        )
    };
    let series = world.series();
    assert_eq!(series[&name("i", "Error")], 1.0);
    assert_eq!(series[&name("e", "Completed")], 1.0);
    assert_eq!(series[&name("c", "OOMKilled")], 0.0);
    assert_eq!(series[&name("e", "OOMKilled")], 0.0);
}

#[test]
fn counters_of_restarts_that_go_back() {
    let mut world = World::new();
    for run in 0..4 {
        world.see("p", &pod("p", 0, &running(run, "Error")));
    }
    // The kubelet has lost its containers and begins at 0 again.
    world.see("p", &pod("p", 0, &status(0, RUNNING, "")));
    let later = |run: i32, reason: &str| ended(run, reason).replace("2026-01-02", "2026-01-03");
    let with_ids = |text: String| text.replace("id-", "other-");
    world.see("p", &with_ids(pod("p", 0, &status(0, &later(0, "OOMKilled"), ""))));
    world.see("p", &with_ids(pod("p", 0, &status(1, RUNNING, &later(0, "OOMKilled")))));
    world.see("p", &with_ids(pod("p", 0, &status(1, &later(1, "OOMKilled"), ""))));
    let counts: BTreeMap<_, _> = world.terminations().into_iter().collect();
    assert_eq!(counts["OOMKilled"], 2.0);
    assert_eq!(counts.values().sum::<f64>(), 5.0);
}

/// An older watch may show the end of the run before again, which ended in the same second.
#[test]
fn ends_in_one_second_count_once() {
    let mut world = World::new();
    let at_once = |run: i32| ended(run, "Error").replace(&format!("00:0{}Z", run + 1), "00:09Z");
    let states = [(0, at_once(0), String::new()), (1, at_once(1), at_once(0))];
    for (restarts, state, last) in states.iter().chain(&states).chain(&states) {
        world.see("p", &pod("p", 0, &status(*restarts, state, last)));
    }
    assert_eq!(world.terminations(), counted(&[("Error", 2.0)]));
}
