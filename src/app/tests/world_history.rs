//! Random histories of both sides on one simulated clock: a pipeline that follows a simulated API server with faults, and
//! lines that the pods of its cluster send, with reloads of the mapping, budgets, expiry, a relay and another replica.
//!
//! One seed determines both. Each side has the checker of its own histories. Beyond these:
//!
//! - A line has the labels of the pod that had its address (or stated UID) at some moment of the last second, or since the
//!   beginning of a fault; without such a pod, its cause is counted ([`senders`]). In some histories the workload of a pod is only
//!   known once its job is, and stays known when the job is gone. Lines may come in quick succession ([`succession`]).
//! - A scrape of both sides is the same in every format, compressed or not.
//! - The work of a line is bounded, and the number of requests as in the Kubernetes histories.
//!
//! `KSTATD_HISTORIES=100 cargo test --lib world_history` runs 100 histories of five minutes, `KSTATD_SEED=n` sets the first
//! seed, and `KSTATD_FIRST=1` ends them at the first violation. `cargo test --lib pairs_of_both_sides -- --ignored` runs
//! histories, from the 21st on for pairs that are missing, until each feature of the lines was active together with each
//! fault, a reload of the options, custom resources, budgets of objects and both versions of HTTP, and each fault with
//! these. It prints tables with the scrapes of each pair.
//! `KSTATD_PAIR='ONE|OTHER' KSTATD_SEED=n` runs the history of such a pair.

mod pairs;
mod senders;
mod succession;

use std::io::Read as _;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use hyper::body::Body as _;
use hyper::header::{ACCEPT, ACCEPT_ENCODING};
use tokio::time::Instant;

use crate::exposition::Source;
use crate::exposition::negotiate::Dialect;
use crate::exposition::tests::samples;
use crate::kube::tests::history::cluster::Kind;
use crate::kube::tests::history::journal::{Entry, Topic, describe};
use crate::kube::tests::history::run::World;
use crate::kube::tests::history::scenario::Scenario;
use crate::kube::tests::history::setup::in_simulated_time;
use crate::pods::{PodIndex, Selection};
use crate::server::query::Filters;
use crate::server::router::Call;
use crate::server::scrape::{Gzip, Scrape};
use crate::statsd::tests::history::{self as statsd_history, History};
use crate::tests::replay::{Journal, assert_same_in_another_process};
use crate::tests::seeds::run_all;
use crate::tests::{env_number, hash};
use crate::util::work_counter;
use pairs::{Pairs, RELOAD, TRANSPORTS};
use senders::Pods;

/// The longest pause between two steps of the senders, in milliseconds.
const MAX_PAUSE: u64 = 800;
/// The maximum work of one line. Lines have up to 100 bytes.
const WORK_PER_LINE: u64 = 4_000;

/// The formats of a scrape, as a scraper asks for them after the type of the messages.
const FORMATS: [(&str, &str, samples::Reader); 5] = [
    ("text", "text/plain", samples::of_text),
    ("OpenMetrics", "application/openmetrics-text;version=1.0.0", samples::of_text),
    ("protobuf", "delimited", samples::of_messages),
    ("protobuf text", "text", samples::of_prototext),
    ("compact protobuf text", "compact-text", samples::of_prototext),
];

/// The type of messages, before their encoding.
const MESSAGES: &str =
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=";

/// The outcome of a history.
struct Outcome {
    violation: Option<String>,
    journal: Vec<Entry>,
    lines: Vec<(&'static str, u64)>,
    pairs: Pairs,
    scrapes: usize,
    requests: u64,
}

/// Both sides of a history.
struct Both {
    rng: Rng,
    kubernetes: World,
    statsd: History,
    pods: Rc<Pods>,
    scrape: Scrape,
    pairs: Pairs,
    scrapes: usize,
    /// The last reload of the options.
    reloaded: Option<Instant>,
    transport: &'static str,
}

impl Both {
    fn start(seed: u64, scenario: Scenario) -> Self {
        let selection = Selection::parse("workload").expect("a selection");
        let start = Instant::now();
        let index = Arc::new(PodIndex::with_clock(selection, Box::new(move || start.elapsed())));
        let scenario = scenario.with_all_kinds().with_pods_of_jobs(seed);
        let pods = Rc::new(Pods::new(&index, scenario.resolves_senders, seed));
        let transport = TRANSPORTS[usize::from(scenario.http2)];
        let kubernetes = World::with_senders(scenario, Some(index));
        // Other numbers than those of the scenario, so that choices of both sides do not depend on each other.
        let of_lines = seed ^ 0x2545_f491_4f6c_dd1d;
        let statsd = History::with_senders(of_lines, Some(Rc::clone(&pods) as _));
        let sources: Vec<Arc<dyn Source>> =
            vec![Arc::new(kubernetes.catalog.clone()), Arc::new(statsd.source())];
        let scrape = Scrape {
            sources,
            dialect: Dialect::Native { protobuf: true },
            filters: Filters::All,
            gzip: Gzip::ByWeight,
        };
        let rng = Rng::with_seed(seed ^ 0x5851_f42d_4c95_7f2d);
        let (pairs, scrapes, reloaded) = (Pairs::default(), 0, None);
        Self { rng, kubernetes, statsd, pods, scrape, pairs, scrapes, reloaded, transport }
    }

    /// Notes the pods after a step.
    fn observe(&self) {
        let now = self.kubernetes.start.elapsed();
        let refused = self.kubernetes.pods_refused_since().map(|since| since.elapsed());
        let cluster = self.kubernetes.server.cluster();
        let jobs = cluster.of_kind(Kind::Job).map(|job| &job.uid);
        let is_current = self.kubernetes.is_current();
        self.pods.observe(now, (cluster.of_kind(Kind::Pod), jobs), is_current, refused);
    }

    /// Performs a step of the senders and of those who scrape and reload.
    fn step(&mut self) -> Result<(), String> {
        let (lines, features) = (self.statsd.outcome.lines, self.active_features());
        work_counter::take();
        let (now, count) = (self.kubernetes.start.elapsed(), self.pods.begin_succession());
        let steps = (0..count).try_for_each(|_| self.statsd.step(now, count > 1));
        self.pods.end_succession();
        steps?;
        let lines = (self.statsd.outcome.lines - lines).max(count as usize);
        let work = work_counter::take();
        if work > WORK_PER_LINE * lines as u64 {
            return Err(format!("{work} steps for {lines} lines"));
        }
        let about = format!("{lines} lines, {features:?}");
        self.kubernetes.server.note(Topic::Line, about);
        match self.rng.u32(0..40) {
            0 => {
                self.kubernetes.reload();
                self.reloaded = Some(Instant::now());
                Ok(())
            }
            1..5 => self.scrape(),
            _ => Ok(()),
        }
    }

    /// Returns the features and faults that are active now, sorted.
    fn active_features(&self) -> Vec<&'static str> {
        let recently = |at: Instant| at.elapsed() < Duration::from_secs(20);
        let mut active: Vec<&'static str> = self.statsd.recent_features().collect();
        active.extend(self.kubernetes.active_faults());
        active.extend(self.kubernetes.active_features());
        active.extend(self.reloaded.filter(|at| recently(*at)).map(|_| RELOAD));
        active.push(self.transport);
        active.sort_unstable();
        active.dedup();
        active
    }

    /// Returns a body in a format that a scraper asks for.
    fn body(&self, accept: &str, compressed: bool) -> Vec<u8> {
        let request = hyper::Request::get("/metrics").header(ACCEPT, accept);
        let request = request.header(ACCEPT_ENCODING, if compressed { "gzip" } else { "identity" });
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let mut body =
            Box::pin(self.scrape.respond(&Call { head, path: "/metrics".to_owned() }).into_body());
        let (mut bytes, mut context) = (Vec::new(), Context::from_waker(Waker::noop()));
        // A body is never waited for: it only lets others run.
        loop {
            match body.as_mut().poll_frame(&mut context) {
                Poll::Ready(Some(frame)) => {
                    let frame = frame.unwrap_or_else(|never| match never {});
                    bytes.extend(frame.into_data().unwrap_or_default());
                }
                Poll::Ready(None) => break,
                Poll::Pending => {}
            }
        }
        if compressed {
            let mut text = Vec::new();
            flate2::read::GzDecoder::new(&*bytes).read_to_end(&mut text).expect("one member");
            return text;
        }
        bytes
    }

    /// Scrapes both sides in every format and compares these.
    fn scrape(&mut self) -> Result<(), String> {
        self.scrapes += 1;
        let compressed = self.rng.bool();
        self.pairs.count(&self.active_features());
        let text = self.body(FORMATS[0].1, compressed);
        if self.body(FORMATS[0].1, !compressed) != text {
            return Err("a compressed scrape differs from a plain one".to_owned());
        }
        let samples = samples::of_text(&text)?;
        let of_messages = self.rng.usize(2..FORMATS.len());
        for (format, accept, read) in [FORMATS[1], FORMATS[of_messages]] {
            let is_text = format == "OpenMetrics";
            let accept = if is_text { accept.to_owned() } else { format!("{MESSAGES}{accept}") };
            let body = self.body(&accept, compressed);
            let other = read(&body).map_err(|why| format!("{format}: {why}"))?;
            if let Some(key) =
                samples.keys().chain(other.keys()).find(|key| samples.get(key) != other.get(key))
            {
                let values = (samples.get(key), other.get(key));
                return Err(format!("{key:?} in text and {format}: {values:?}"));
            }
            if is_text && !body.ends_with(b"# EOF\n") {
                return Err("OpenMetrics has no end".to_owned());
            }
        }
        let hash = hash(&text);
        let text = String::from_utf8_lossy(&text);
        let is_of_lines = |line: &&str| {
            let name = line.trim_start_matches("# HELP ").trim_start_matches("# TYPE ");
            statsd_history::FAMILIES.iter().any(|family| name.starts_with(family))
        };
        let of_cluster: Vec<&str> = text.lines().filter(|line| !is_of_lines(line)).collect();
        self.kubernetes.check(&of_cluster.join("\n"));
        let about = format!("both sides, {} bytes with hash {hash:016x}", text.len());
        self.kubernetes.server.note(Topic::Scrape, about);
        Ok(())
    }
}

fn run(seed: u64, scenario: Scenario) -> Outcome {
    in_simulated_time(seed, async {
        let mut both = Both::start(seed, scenario);
        let mut violation = None;
        let mut next = both.kubernetes.start + Duration::from_millis(1);
        while let Some(action) = both.kubernetes.next_action() {
            if next < action {
                both.kubernetes.wait_until(next).await;
                both.observe();
                if let Err(why) = both.step() {
                    let at = both.kubernetes.start.elapsed().as_secs_f64();
                    both.kubernetes.server.note(Topic::Violation, why.clone());
                    violation = Some(format!("after {at:.1} s {why}"));
                    break;
                }
                next = Instant::now() + Duration::from_millis(both.rng.u64(1..MAX_PAUSE));
            } else {
                both.kubernetes.step().await;
            }
            both.observe();
        }
        let Both { kubernetes, statsd, pairs, scrapes, .. } = both;
        let outcome = kubernetes.finish().await;
        Outcome {
            violation: violation.or(outcome.violation),
            journal: outcome.journal,
            lines: statsd.outcome.journal,
            pairs,
            scrapes,
            requests: outcome.requests,
        }
    })
}

/// In any history of both sides each line gets the labels of its sender, and each scrape shows what both sides must.
#[test]
fn random_histories() {
    let seed = env_number("KSTATD_SEED");
    let (count, length) = match env_number("KSTATD_HISTORIES") {
        Some(count) => (count, 300),
        None => (if seed.is_some() { 1 } else { 4 }, 130),
    };
    let pair = std::env::var("KSTATD_PAIR").ok();
    let pair = pair.as_deref().map(|pair| pair.split_once('|').expect("KSTATD_PAIR=ONE|OTHER"));
    let first = seed.unwrap_or(1);
    let (mut wrong, mut pairs) = (String::new(), Pairs::default());
    let (mut lines, mut scrapes, mut requests, mut seconds) = (0, 0, 0, 0);
    let run = |seed| run(seed, pairs::scenario(seed, Duration::from_secs(length), pair));
    for (seed, outcome) in run_all(first..first + count, run, |one| one.violation.is_some()) {
        lines += outcome.lines.iter().filter(|(what, _)| *what == "lines").count();
        scrapes += outcome.scrapes;
        requests += outcome.requests;
        seconds += outcome.journal.last().map_or(0, |entry| entry.at.as_secs());
        pairs.add(outcome.pairs);
        if let Some(violation) = outcome.violation {
            wrong.push_str(&describe("world", seed, &violation, &outcome.journal));
        }
    }
    println!(
        "{count} histories, {seconds} s of simulated time, {lines} lines, {scrapes} scrapes, {requests} requests, {} pairs of features and faults",
        pairs.len()
    );
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// A seed determines each request, line and scrape of both sides: two processes do the same to the byte.
#[test]
fn a_seed_determines_the_history() {
    let first = env_number("KSTATD_SEED").unwrap_or(1);
    let seeds = first..first + env_number("KSTATD_HISTORIES").unwrap_or(4);
    let journal = |seed| {
        let outcome = run(seed, Scenario::random(seed, Duration::from_secs(100)));
        assert!(outcome.lines.len() > 50, "seed {seed}: {}", outcome.lines.len());
        let entries = outcome.journal.iter().map(|entry| format!("{entry:?}"));
        let lines = entries.chain(outcome.lines.iter().map(|line| format!("{line:?}"))).collect();
        Journal { seed, lines }
    };
    assert_same_in_another_process(
        concat!(module_path!(), "::a_seed_determines_the_history"),
        || seeds.map(journal).collect(),
    );
}

/// Each feature of the lines is active together with each fault and each way to follow the cluster, and each fault with
/// these.
#[test]
#[ignore = "takes 20 minutes"]
fn pairs_of_both_sides() {
    /// The number of random histories. Each later one is made for a pair that is missing.
    const RANDOM: u64 = 20;
    const LENGTH: Duration = Duration::from_secs(300);
    let (mut pairs, mut seeds) = (Pairs::default(), 0);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let mut missing = pairs.missing();
    while seeds < 1_000 && !missing.is_empty() {
        let round = seeds + 1..seeds + 1 + cores;
        // Another pair each time, because a pair may need several histories.
        let pair = |seed| (seed > RANDOM).then(|| missing[seed as usize % missing.len()]);
        let run = |seed| run(seed, pairs::scenario(seed, LENGTH, pair(seed)));
        for (seed, outcome) in run_all(round, run, |one| one.violation.is_some()) {
            assert_eq!(outcome.violation, None, "KSTATD_SEED={seed} of {:?}", pair(seed));
            pairs.add(outcome.pairs);
        }
        seeds += cores;
        missing = pairs.missing();
        if seeds % 20 < cores {
            println!("{seeds} histories, missing: {missing:?}");
        }
    }
    println!("{seeds} histories\n{}", pairs.tables());
    assert!(missing.is_empty(), "never active together: {missing:?}");
}
