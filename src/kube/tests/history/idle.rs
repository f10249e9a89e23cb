//! Tests of the number of requests for watching an idle cluster, and of the time to detect a silent connection or
//! watch.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep};

use super::cluster::{KINDS, Kind, NAMESPACES};
use super::faults::Fault;
use super::reload::{Simulation, all_series};
use super::setup::in_simulated_time;
use crate::kube::workloads::kube_events;

/// The time within which everything is listed.
const LISTED: Duration = Duration::from_secs(10);
/// The time limit of the answer to a watch.
const ANSWER: Duration = Duration::from_secs(15);
const TEN_MINUTES: Duration = Duration::from_secs(600);
/// The interval of connection probes.
const PROBES: Duration = Duration::from_secs(36);
/// The time within which a silent connection is noticed and changes are exposed again.
const CONNECTION: Duration = Duration::from_secs(50);
/// The corresponding time for a silent watch on a working connection.
const STREAM: Duration = Duration::from_secs(155);

/// Returns a simulation that has listed all kinds.
async fn listed(http2: bool) -> Simulation {
    let simulation = Simulation::new(&KINDS, &[], http2).await;
    simulation.wait_for_series(&simulation.expected(&NAMESPACES, all_series), LISTED).await;
    sleep(LISTED).await;
    simulation
}

/// The number of requests in a period: list requests, probes, and all requests.
#[derive(Debug)]
struct Requests {
    lists: u64,
    probes: u64,
    all: u64,
}

impl Requests {
    fn so_far(simulation: &Simulation) -> Self {
        let server = &simulation.server;
        Self { lists: server.lists(), probes: server.probes(), all: server.requests() }
    }

    async fn within(simulation: &Simulation, time: Duration) -> Self {
        let before = Self::so_far(simulation);
        sleep(time).await;
        before.until_now(simulation)
    }

    fn until_now(&self, simulation: &Simulation) -> Self {
        let now = Self::so_far(simulation);
        Self {
            lists: now.lists - self.lists,
            probes: now.probes - self.probes,
            all: now.all - self.all,
        }
    }
}

/// Returns the maximum number of probes of one connection in a period.
fn max_probes(time: Duration) -> u64 {
    (time.as_secs_f64() / PROBES.as_secs_f64()).ceil() as u64
}

/// Changes the cluster until the expected series change, and returns them.
fn change(simulation: &Simulation, rng: &mut Rng) -> Vec<String> {
    let before = simulation.series();
    loop {
        simulation.server.cluster().change(rng);
        let expected = simulation.expected(&NAMESPACES, all_series);
        if expected != before {
            return expected;
        }
    }
}

/// In client-go a watch lasts 5 to 10 minutes, which makes 1.33 requests per kind in ten minutes.
#[test]
fn idle_cost_is_that_of_the_original_plus_one_probe_per_connection() {
    const RUNS: u64 = 6;
    let mut watches = 0;
    for seed in 0..RUNS {
        in_simulated_time(1, async {
            fastrand::seed(seed);
            let simulation = listed(true).await;
            let requests = Requests::within(&simulation, TEN_MINUTES).await;
            assert_eq!(requests.lists, 0, "{requests:?}");
            assert!(requests.probes <= max_probes(TEN_MINUTES), "{requests:?}");
            watches += requests.all - requests.probes;
        });
    }
    let original = (RUNS * KINDS.len() as u64) as f64 * 600.0 / 450.0;
    assert!(watches as f64 <= original, "{watches}, the original {original}");
    assert!(watches > 0, "watches end");
}

/// Over HTTP/1.1 each watch has its own connection, and reopening the watch replaces the probe.
#[test]
fn idle_cost_over_http1_is_one_request_per_watch_and_cycle() {
    in_simulated_time(1, async {
        let simulation = listed(false).await;
        let requests = Requests::within(&simulation, TEN_MINUTES).await;
        let most = KINDS.len() as u64 * max_probes(TEN_MINUTES);
        assert!(requests.lists == 0 && requests.all <= most, "{requests:?} of {most}");
        assert_eq!(requests.probes, 0);
    });
}

/// If a server sends no bookmarks, quiet watches are at first mistaken for dead ones and reopened.
#[test]
fn missing_bookmarks_cost_a_few_requests_once() {
    in_simulated_time(1, async {
        let simulation = listed(true).await;
        simulation.server.stop_bookmarks();
        let kinds = KINDS.len() as u64;
        // At most three reopened watches, each with a version check.
        let requests = Requests::within(&simulation, 2 * TEN_MINUTES).await;
        let most = kinds * (5 + 3 * 2) + max_probes(2 * TEN_MINUTES);
        assert!(requests.lists == 0 && requests.all <= most, "{requests:?} of {most}");
        let requests = Requests::within(&simulation, 3 * TEN_MINUTES).await;
        let most = kinds * 7 + max_probes(3 * TEN_MINUTES);
        assert!(requests.lists == 0 && requests.all <= most, "{requests:?} of {most}");
        let expected = change(&simulation, &mut Rng::with_seed(5));
        simulation.wait_for_series(&expected, Duration::from_secs(1)).await;
    });
}

/// Tests a connection that responds to nothing, or only to PINGs.
#[test]
fn silent_connection_is_noticed_in_time_for_two_requests_per_kind() {
    for fault in [Fault::BackendGone, Fault::Frozen { new_too: false }] {
        for wait in [0, 17, 35, 80] {
            in_simulated_time(1, async {
                let simulation = listed(true).await;
                sleep(Duration::from_secs(wait)).await;
                let before = Requests::so_far(&simulation);
                simulation.server.begin_fault(0, &fault);
                simulation.server.end_fault(0);
                let start = Instant::now();
                let expected = change(&simulation, &mut Rng::with_seed(wait));
                simulation.wait_for_series(&expected, CONNECTION).await;
                assert!(start.elapsed() > Duration::from_secs(5), "the connection was silent");
                sleep(LISTED).await;
                let requests = before.until_now(&simulation);
                let most = 2 * KINDS.len() as u64 + max_probes(start.elapsed()) + 1;
                assert!(requests.lists == 0 && requests.all <= most, "{requests:?} of {most}");
                // Only the first watch after the interruption is short.
                sleep(PROBES + LISTED).await;
                let later = Requests::within(&simulation, Duration::from_secs(240)).await;
                assert!(later.all <= max_probes(Duration::from_secs(240)), "{later:?}");
            });
        }
    }
}

/// A request without an answer is repeated over another connection, before a probe shows that this one is dead.
#[test]
fn unanswered_requests_are_repeated_over_a_new_connection() {
    for wait in [0, 9, 18, 27] {
        in_simulated_time(1, async {
            let simulation = listed(true).await;
            sleep(Duration::from_secs(wait)).await;
            for fault in [Fault::BackendGone, Fault::WatchesBroken] {
                simulation.server.begin_fault(0, &fault);
                simulation.server.end_fault(0);
            }
            let expected = change(&simulation, &mut Rng::with_seed(wait));
            simulation.wait_for_series(&expected, ANSWER + LISTED).await;
        });
    }
}

/// Tests watches that fall silent behind a proxy while their connection works.
#[test]
fn silent_watches_are_noticed_in_time_and_reopened_one_by_one() {
    in_simulated_time(1, async {
        let simulation = listed(true).await;
        // Long enough for bookmarks.
        sleep(Duration::from_secs(90)).await;
        let before = Requests::so_far(&simulation);
        simulation.server.begin_fault(0, &Fault::WatchesSilent);
        simulation.server.end_fault(0);
        let (start, mut reopened) = (Instant::now(), Vec::new());
        let expected = change(&simulation, &mut Rng::with_seed(2));
        let mut last = before.until_now(&simulation);
        while simulation.series() != expected {
            assert!(start.elapsed() < STREAM, "{:#?}", simulation.series());
            sleep(Duration::from_secs(1)).await;
            let now = before.until_now(&simulation);
            reopened.push((now.all - now.probes) - (last.all - last.probes));
            last = now;
        }
        sleep(LISTED + LISTED).await;
        let requests = before.until_now(&simulation);
        // Watches may have ended in the meantime.
        let most = 3 * KINDS.len() as u64 + max_probes(start.elapsed());
        assert!(requests.lists == 0 && requests.all <= most, "{requests:?} of {most}");
        let at_once = reopened.iter().max().copied().unwrap_or_default();
        assert!(at_once <= 4, "{reopened:?}");
    });
}

/// The server does not end a watch whose permission is revoked, so its events are still current.
#[test]
fn revoked_permission_is_noticed_at_the_end_of_the_watch() {
    in_simulated_time(1, async {
        let simulation = listed(true).await;
        simulation.server.begin_fault(0, &Fault::Denied(Kind::Pod));
        let is_pod = |line: &String| line.starts_with("kube_pod_");
        let mut rng = Rng::with_seed(9);
        let start = Instant::now();
        while simulation.series().iter().any(is_pod) {
            assert!(start.elapsed() < TEN_MINUTES + 2 * Duration::from_secs(60));
            simulation.server.cluster().change(&mut rng);
            sleep(Duration::from_secs(5)).await;
        }
        assert!(
            start.elapsed() > Duration::from_secs(60),
            "they are exposed up to the staleness limit"
        );
        let requests = Requests::within(&simulation, TEN_MINUTES).await;
        // One every 8 s, alternately a streaming and a paged list.
        let most = 80 + 2 * KINDS.len() as u64 + max_probes(TEN_MINUTES);
        assert!(requests.all <= most, "{requests:?} of {most}");
        simulation.server.end_fault(0);
        simulation.wait_for_series(&simulation.expected(&NAMESPACES, all_series), LISTED).await;
    });
}

/// In an outage one list/watch at a time tries, every 1.6 s: not more often, and an end of the outage is not noticed later.
#[test]
fn an_outage_is_probed_at_a_steady_rate() {
    const TIME: Duration = Duration::from_secs(160);
    for http2 in [false, true] {
        in_simulated_time(1, async {
            let simulation = listed(http2).await;
            let failing = Fault::Status { code: 503, retry_after: None, share: 1.0 };
            simulation.server.begin_fault(0, &failing);
            simulation.server.begin_fault(1, &Fault::WatchesBroken);
            simulation.server.end_fault(1);
            sleep(3 * LISTED).await;
            let requests = Requests::within(&simulation, TIME).await;
            let attempts = requests.all - requests.probes;
            assert!((98..=102).contains(&attempts), "{attempts} attempts in {TIME:?}");
        });
    }
}

/// A new configuration, here with another shard, takes effect immediately although watches are long.
#[test]
fn new_shard_does_not_wait_for_the_end_of_a_watch() {
    use crate::kube::shard::Shard;
    in_simulated_time(1, async {
        let mut simulation = listed(true).await;
        sleep(Duration::from_secs(90)).await;
        let all = simulation.series().len();
        let before = Requests::so_far(&simulation);
        let number = simulation.reconfigure(|config| config.shard = Shard::new(0, 3));
        sleep(LISTED).await;
        assert!(simulation.pipeline.handle().is_applied(number));
        let exposed = simulation.series().len();
        assert!(exposed > 0 && exposed < all, "{exposed} of {all}");
        let requests = before.until_now(&simulation);
        let most = 2 * KINDS.len() as u64 + 1;
        assert!(requests.all <= most, "{requests:?} of {most}");
    });
}

/// The state of many Kubernetes Events takes long over a slow path. API servers send no bookmarks about them, so the watches that
/// follow are silent until they end, which has to be before they seem dead or out of date.
#[test]
fn long_state_of_events_is_listed_once_and_their_watches_end_soon() {
    const STATE: Duration = Duration::from_secs(150);
    in_simulated_time(1, async {
        let mut simulation = Simulation::new(&[Kind::Event], &[], true).await;
        simulation.server.stop_bookmarks();
        simulation.server.stretch_initial_states(STATE);
        let number = simulation.reconfigure(|config| config.resources = vec![kube_events()]);
        let start = Instant::now();
        while !simulation.pipeline.handle().is_applied(number) {
            assert!(start.elapsed() < STATE + LISTED, "it is not listed");
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(simulation.server.lists_of(Kind::Event), 1);
        assert!(start.elapsed() >= STATE, "it is listed after {:?}", start.elapsed());
        // The client ends the streaming list, and the server the watches.
        for requests in 1..4 {
            let since = Instant::now();
            while simulation.server.requests_for(Kind::Event) == requests {
                sleep(Duration::from_millis(100)).await;
            }
            let span = since.elapsed().as_secs_f64();
            assert!((79.0..111.0).contains(&span), "request {requests} lasts {span} s");
        }
        assert_eq!(simulation.server.lists_of(Kind::Event), 1);
        let status = simulation.pipeline.handle().status();
        assert!(status.iter().all(|list| list.failure.is_none()), "{status:?}");
    });
}
