//! Random histories of reloads: a [`KubeSide`] that follows a simulated API server with faults gets other options again and again, and
//! a StatsD pipeline gets lines with the names of its families.
//!
//! A seed determines everything, on a simulated clock:
//!
//! - A name of a family that the Kubernetes side serves is reserved, so that no metric is there twice. A StatsD metric is hidden
//!   exactly while its name is reserved, and counts on ([`lines`]).
//! - Once a reload has taken effect, the names are those of its families.
//! - Unless something was wrong, the first lists are complete only when custom resources are there too.
//! - What both the old and the new options show stays, also if the server refuses what is new ([`continuity`]).
//! - A reload takes effect in time after the last fault. Then each kind has the objects of the shard, and nothing else is there.
//!
//! `KSTATD_HISTORIES=100 cargo test --lib sides::kubernetes` runs 100 histories of five minutes, `KSTATD_SEED=n` sets the first
//! seed, and `KSTATD_FIRST=1` ends them at the first violation.

mod continuity;
mod lines;
mod options;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use continuity::Continuity;
use lines::Lines;
use options::Options;

use super::super::connection::Connection;
use super::super::{KUBERNETES, KubeSide, names};
use crate::app::sides::statsd::STATSD;
use crate::app::sides::{FamilyNames, Side as _, StartContext};
use crate::cli::config::Config;
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::kube::tests::history::cluster::Kind;
use crate::kube::tests::history::faults::Fault;
use crate::kube::tests::history::journal::{Entry, Topic, describe};
use crate::kube::tests::history::server::Server;
use crate::kube::tests::history::setup::{connect, in_simulated_time, tls};
use crate::kube::{FirstSync, Pipeline};
use crate::telemetry::KubeMetrics;
use crate::tests::replay::{Journal, assert_same_in_another_process};
use crate::tests::seeds::run_all;
use crate::tests::{env_number, hash, time_bound};

/// The kinds of the cluster.
const KINDS: [Kind; 6] =
    [Kind::ConfigMap, Kind::Node, Kind::Secret, Kind::Widget, Kind::Definition, Kind::WidgetV2];
/// The time without changes after which a scrape must show the present: definitions take longer than objects.
const QUIET: Duration = Duration::from_secs(7);
/// The longest pause between two steps, in milliseconds.
const MAX_PAUSE: u64 = 700;

/// The outcome of a history.
struct Outcome {
    violation: Option<String>,
    journal: Vec<Entry>,
    scrapes: usize,
}

/// A history in progress.
struct History {
    rng: Rng,
    server: Arc<Server>,
    /// The folders with the credentials of each client.
    folders: Vec<tempfile::TempDir>,
    http2: bool,
    names: Arc<FamilyNames>,
    side: KubeSide,
    source: Arc<dyn Source>,
    options: Options,
    config: Config,
    lines: Lines,
    /// The first lists, while they are incomplete and nothing was wrong, and the custom resources since the start.
    first: Option<(Arc<FirstSync>, BTreeSet<String>)>,
    continuity: Continuity,
    /// Determines namespaces, families and the permissions for both, if these change.
    selection: Option<Rng>,
    /// Determines after which reloads the watched kinds have no objects, if there are any.
    emptied: Option<Rng>,
    /// The active fault with its end.
    fault: Option<Instant>,
    /// The number of faults so far.
    faults: usize,
    /// The last reload, or the end of a fault since.
    disturbed: Instant,
    scrapes: usize,
}

/// Returns the names of the families of an exposition as text.
fn families(text: &str) -> BTreeSet<&str> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|rest| rest.split(' ').next()).collect()
}

impl History {
    async fn start(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let http2 = rng.bool();
        let server = Server::new(&KINDS, &mut rng, http2.then(tls), false);
        let folder = tempfile::tempdir().expect("a folder");
        let client = connect(&server, folder.path(), (http2, None));
        let mut options = Options::random(&mut rng);
        let mut selection = Rng::with_seed(seed ^ 0x3956_c25b_f348_b538);
        let mut selection = selection.bool().then_some(selection);
        if let Some(rng) = &mut selection {
            options.vary(rng);
        }
        let mut continuity = Continuity::default();
        continuity.reload(&options);
        let config = options.config();
        let family_names = Arc::<FamilyNames>::default();
        family_names.set(KUBERNETES.name, names(&config));
        let lines = Lines::start(seed, &family_names);
        let metrics = KubeMetrics::default();
        let context = StartContext {
            config: &config,
            metrics: &metrics,
            names: &family_names,
            pods: None,
            merged_metrics: None,
        };
        let kube = config.kube.as_ref().expect("a Kubernetes side");
        let start_pipeline = Pipeline::start_on_this_thread;
        let side = KubeSide::follow(&context, kube, Connection::of(client), start_pipeline);
        let side = side.await.expect("a side");
        let features = side.features();
        let mut emptied = Rng::with_seed(seed ^ 0xa54f_f53a_5f1d_36f1);
        let emptied = (emptied.u32(0..3) == 0).then_some(emptied);
        let widgets = options.custom_objects(&server.cluster());
        let first = features.first_sync.map(|first_sync| (first_sync, widgets));
        Self {
            rng,
            server,
            folders: vec![folder],
            http2,
            names: family_names,
            source: features.source,
            side,
            options,
            config,
            lines,
            first,
            continuity,
            selection,
            emptied,
            fault: None,
            faults: 0,
            disturbed: Instant::now(),
            scrapes: 0,
        }
    }

    /// Lets the side do its work for this time.
    async fn wait(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            tokio::select! {
                biased;
                () = self.side.next_change() => {}
                () = sleep_until(until) => return,
            }
        }
    }

    /// Performs a random step.
    async fn step(&mut self) -> Result<(), String> {
        let often = self.rng.u32(0..4) == 0;
        let pause = self.rng.u64(1..if often { 30 } else { MAX_PAUSE });
        self.wait(Duration::from_millis(pause)).await;
        if self.fault.is_some_and(|end| end <= Instant::now()) {
            self.end_fault();
        }
        self.check_first_lists()?;
        match self.rng.u32(0..200) {
            0..70 => self.server.cluster().change(&mut self.rng),
            70..130 => {
                let line = self.lines.send(&*self.names.of_others(STATSD.name))?;
                self.server.note(Topic::Line, line);
            }
            130..180 => self.scrape()?,
            180..190 => self.reload(),
            190..197 => self.begin_fault(),
            197..199 => self.settle().await?,
            _ => self.change_server(),
        }
        Ok(())
    }

    /// Checks that custom resources are shown, once the first lists are said to be complete.
    fn check_first_lists(&mut self) -> Result<(), String> {
        let is_complete = |(first, _): &mut (Arc<FirstSync>, _)| first.missing().is_empty();
        let Some((_, mut objects)) = self.first.take_if(is_complete) else { return Ok(()) };
        objects.retain(|name| self.options.custom_objects(&self.server.cluster()).contains(name));
        let text = self.text();
        let is_shown = |name: &String| text.contains(&format!("object=\"{name}\""));
        match objects.iter().find(|name| !is_shown(name)) {
            Some(name) => Err(format!("{name} is missing, but the first lists are complete")),
            None => Ok(()),
        }
    }

    fn begin_fault(&mut self) {
        if self.fault.is_some() {
            return;
        }
        self.first = None;
        if self.selection.as_mut().is_some_and(Rng::bool)
            && let Some(rng) = &mut self.selection
        {
            // Nothing may be listed in one namespace, or in all of them at once.
            self.server.forbid(Some(["east", "west", "", ""][rng.usize(..4)]));
            self.fault = Some(Instant::now() + Duration::from_millis(rng.u64(500..40_000)));
            return;
        }
        let rng = &mut self.rng;
        let kind = KINDS[rng.usize(..KINDS.len())];
        let share = [0.5, 1.0][rng.usize(..2)];
        let fault = match rng.u32(0..8) {
            0 | 1 => Fault::Denied(kind),
            2 => Fault::Status { code: 503, retry_after: None, share },
            3 => Fault::Delayed(Duration::from_millis(rng.u64(100..8_000))),
            4 => Fault::Compacted,
            5 => Fault::Reset,
            6 => Fault::Refused,
            _ => Fault::Absent(kind),
        };
        let time = Duration::from_millis(rng.u64(500..20_000));
        self.faults += 1;
        self.server.begin_fault(self.faults, &fault);
        self.fault = Some(Instant::now() + time);
    }

    fn end_fault(&mut self) {
        if self.fault.take().is_some() {
            self.server.end_fault(self.faults);
            self.server.forbid(None);
            self.disturbed = Instant::now();
        }
    }

    /// Applies other options.
    fn reload(&mut self) {
        self.first = None;
        self.options = self.options.next(&mut self.rng);
        if let Some(rng) = &mut self.selection {
            self.options.vary(rng);
        }
        self.continuity.reload(&self.options);
        if self.emptied.as_mut().is_some_and(Rng::bool) {
            let mut cluster = self.server.cluster();
            self.options.watched().for_each(|kind| cluster.empty(kind));
        }
        self.config = self.options.config();
        self.server.note(Topic::Line, format!("{:?}", self.options));
        let connection = self.side.connection.clone();
        self.apply(connection);
    }

    /// Follows another server from now on, with the same options.
    fn change_server(&mut self) {
        self.first = None;
        self.end_fault();
        self.server = self.server.successor(&KINDS, &mut self.rng);
        self.continuity.change_server();
        self.server.note(Topic::Line, "another server".to_owned());
        let folder = tempfile::tempdir().expect("a folder");
        let client = connect(&self.server, folder.path(), (self.http2, None));
        self.folders.push(folder);
        self.apply(Connection::of(client));
    }

    /// Reloads the configuration with a connection that is ready.
    fn apply(&mut self, connection: Connection) {
        let (sender, prepared) = oneshot::channel();
        assert!(sender.send(connection).is_ok(), "it is awaited");
        self.side.prepared = Some(prepared);
        self.side.reload(&self.config).unwrap_or_else(|error| panic!("{error}"));
        self.disturbed = Instant::now();
    }

    /// Checks a scrape of both sides.
    fn scrape(&mut self) -> Result<(), String> {
        self.scrapes += 1;
        let text = self.text();
        let reserved = self.names.of(KUBERNETES.name);
        if let Some(name) = families(&text).into_iter().find(|name| !reserved.contains(*name)) {
            return Err(format!("{name} is served, but its name is not reserved"));
        }
        let of_lines = self.lines.check(&*self.names.of_others(STATSD.name))?;
        if let Some(name) = families(&text).intersection(&families(&of_lines)).next() {
            return Err(format!("both sides have {name}"));
        }
        let is_in_force = self.side.status().in_force;
        if is_in_force && *reserved != names(&self.config).into_iter().collect() {
            return Err("a reload is in force, but other names are reserved".to_owned());
        }
        self.continuity.check(&self.server.cluster(), &text, is_in_force)?;
        let hashes = [&text, &of_lines].map(|text| hash(text.as_bytes()));
        self.server.note(Topic::Scrape, format!("in force: {is_in_force}, hashes {hashes:x?}"));
        Ok(())
    }

    /// Returns the exposition of the Kubernetes side.
    fn text(&self) -> String {
        let frames = self.source.frames(Format::Text, &ScrapeQuery::default());
        let text: Vec<u8> = frames.flatten().collect();
        String::from_utf8(text).expect("UTF-8")
    }

    /// Waits without faults until the last reload is in force, and checks that nothing is there but what it asks for.
    async fn settle(&mut self) -> Result<(), String> {
        self.end_fault();
        let late = self.disturbed + time_bound("lists after a reload of the options");
        while !self.side.status().in_force {
            if Instant::now() >= late {
                let pending = self.side.pipeline.handle().pending();
                return Err(format!("a reload has not been applied: {pending:?}"));
            }
            self.wait(Duration::from_millis(300)).await;
            self.scrape()?;
        }
        let recovered = self.disturbed + time_bound("recovery after a fault");
        self.wait(QUIET.max(recovered.saturating_duration_since(Instant::now()))).await;
        self.scrape()?;
        self.options.check(&self.server.cluster(), &self.text())
    }
}

fn run(seed: u64, length: Duration) -> Outcome {
    in_simulated_time(seed, async {
        let mut history = History::start(seed).await;
        let begin = Instant::now();
        let mut result = Ok(());
        while begin.elapsed() < length && result.is_ok() {
            result = history.step().await;
        }
        if result.is_ok() {
            result = history.settle().await;
        }
        let violation = result.err().map(|why| {
            let at = begin.elapsed().as_secs_f64();
            history.server.note(Topic::Violation, why.clone());
            format!("after {at:.1} s {why}\n    {:?}", history.options)
        });
        let History { server, side, scrapes, .. } = history;
        side.pipeline.stop().await;
        Outcome { violation, journal: server.take_journal(), scrapes }
    })
}

/// In any history no name is there twice, and each reload takes effect.
#[test]
fn random_histories() {
    let seed = env_number("KSTATD_SEED");
    let (count, length) = match env_number("KSTATD_HISTORIES") {
        Some(count) => (count, 300),
        None => (if seed.is_some() { 1 } else { 8 }, 150),
    };
    let first = seed.unwrap_or(1);
    let (mut wrong, mut scrapes, mut seconds) = (String::new(), 0, 0);
    let run = |seed| run(seed, Duration::from_secs(length));
    for (seed, outcome) in run_all(first..first + count, run, |one| one.violation.is_some()) {
        scrapes += outcome.scrapes;
        seconds += outcome.journal.last().map_or(0, |entry| entry.at.as_secs());
        if let Some(violation) = outcome.violation {
            wrong.push_str(&describe("reloads", seed, &violation, &outcome.journal));
        }
    }
    println!("{count} histories, {seconds} s of simulated time, {scrapes} scrapes");
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// A seed determines each request, reload and scrape: two processes do the same.
#[test]
fn a_seed_determines_the_history() {
    let first = env_number("KSTATD_SEED").unwrap_or(1);
    let seeds = first..first + env_number("KSTATD_HISTORIES").unwrap_or(4);
    let journal = |seed| {
        let outcome = run(seed, Duration::from_secs(60));
        let lines = outcome.journal.iter().map(|entry| format!("{entry:?}")).collect();
        Journal { seed, lines }
    };
    assert_same_in_another_process(
        concat!(module_path!(), "::a_seed_determines_the_history"),
        || seeds.map(journal).collect(),
    );
}
