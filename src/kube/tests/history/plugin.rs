//! Credentials by an exec plugin, in some histories: it prints the token that is in the file, with a time at which the server
//! ceases to accept what was printed.
//!
//! It runs seldom, even while it fails or the server rejects its tokens, and requests come again with the token of the next run.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep};

use super::faults::Fault;
use super::scenario::{MIN_TAIL, Scenario, ScheduledFault};
use super::server::Server;
use crate::kube::client::simulated::{Plugin, PrintedToken};

/// The shortest time between two runs.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest time that a run takes, unless the plugin hangs, in milliseconds.
const MAX_RUN: u64 = 60;
/// The possible lifetimes of tokens in seconds. The shortest one is over before kube deems a token fresh.
const LIFETIMES: [Option<u64>; 4] = [None, Some(30), Some(90), Some(300)];

/// The plugin of one client.
pub(super) struct SimulatedPlugin {
    pub(super) server: Arc<Server>,
    pub(super) file: PathBuf,
}

/// The runs of the plugin.
#[derive(Default)]
pub(super) struct PluginRuns {
    /// Determines the runs; `None` without a plugin.
    rng: Option<Rng>,
    lifetime: Option<Duration>,
    is_running: bool,
    /// The end of the last run, and whether it printed a token that is about to expire.
    last: Option<(Instant, bool)>,
    /// The same of the run before. While tokens are about to expire, kube runs the plugin twice for the first call.
    before: Option<(Instant, bool)>,
    /// Describes a run that came too early.
    early: Option<String>,
}

impl PluginRuns {
    /// Returns the plugin of a history.
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x428a_2f98_d728_ae22);
        let lifetime = LIFETIMES[rng.usize(0..LIFETIMES.len())].map(Duration::from_secs);
        Self { rng: Some(rng), lifetime, ..Self::default() }
    }

    /// Notes the beginning of a run, and returns its duration.
    fn begin(&mut self) -> Duration {
        if self.is_running {
            self.early.get_or_insert("the plugin runs twice at once".to_owned());
        }
        let may_be_second = self.last.is_some_and(|(_, is_expiring)| is_expiring);
        if let Some((end, _)) = if may_be_second { self.before } else { self.last }
            && end.elapsed() < PAUSE
        {
            let after = end.elapsed().as_millis();
            self.early.get_or_insert(format!("the plugin runs again after {after} ms"));
        }
        self.is_running = true;
        Duration::from_millis(self.rng.as_mut().map_or(1, |rng| rng.u64(1..MAX_RUN)))
    }

    /// Notes the end of a run.
    fn end(&mut self, has_failed: bool) {
        let is_short = |lifetime| lifetime < Duration::from_secs(60);
        let is_expiring = !has_failed && self.lifetime.is_some_and(is_short);
        self.is_running = false;
        self.before = self.last.replace((Instant::now(), is_expiring));
    }

    /// Returns true if a token that is rejected now makes the plugin run at once, if there is one.
    pub(super) fn may_run(&self) -> bool {
        self.rng.is_none()
            || !self.is_running && self.last.is_none_or(|(end, _)| end.elapsed() >= PAUSE)
    }

    /// Describes a run that came too early.
    pub(super) fn violation(&self) -> Option<String> {
        self.early.clone()
    }
}

impl Plugin for SimulatedPlugin {
    fn run(&self) -> Pin<Box<dyn Future<Output = Result<PrintedToken, String>> + Send>> {
        let (server, file) = (Arc::clone(&self.server), self.file.clone());
        Box::pin(async move {
            let time = server.state().plugin.begin();
            sleep(time).await;
            server.wait_for_end_of(|fault| *fault == Fault::PluginFails { hangs: true }).await;
            let has_failed = server.has_fault(|fault| matches!(fault, Fault::PluginFails { .. }));
            server.state().plugin.end(has_failed);
            if has_failed {
                return Err("exec plugin: exit status: 1".to_owned());
            }
            let number = std::fs::read_to_string(file).expect("a token");
            let end = server.state().plugin.lifetime.map(|lifetime| Instant::now() + lifetime);
            let until = end.map_or(String::new(), |end| format!(".{}", server.millis(end)));
            Ok((format!("{}{until}", number.trim()), end))
        })
    }
}

impl Server {
    /// Returns true if the server accepts a token: the present one, before the time of its expiry.
    pub(super) fn accepts(&self, token: &str) -> bool {
        let (number, until) = token.split_once('.').unwrap_or((token, ""));
        let is_over = until.parse().is_ok_and(|until: u128| until <= self.millis(Instant::now()));
        number == format!("token-{}", self.token()) && !is_over
    }
}

impl Scenario {
    /// Takes the credentials of some histories from a plugin, which fails, also while its token is replaced.
    pub(super) fn with_plugin(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x7137_4491_23ef_65cd);
        if rng.u32(0..6) > 0 || self.ends_calmly {
            return self;
        }
        self.plugin = Some(seed);
        let mut at = Duration::from_millis(rng.u64(15_000..40_000));
        while at < self.length.saturating_sub(MIN_TAIL) {
            let time = Duration::from_millis(rng.u64(1_000..25_000));
            let part = |rng: &mut Rng| time.mul_f64(rng.f64());
            let first = match rng.u32(0..4) {
                0 => Fault::TokenReplaced,
                1 => Fault::PluginFails { hangs: true },
                _ => Fault::PluginFails { hangs: false },
            };
            let is_rotated = first != Fault::TokenReplaced && rng.bool();
            let rotated = is_rotated.then(|| (Fault::TokenRotated, at + part(&mut rng)));
            let reset = rng.u32(0..3) > 0;
            let reset = reset.then(|| (Fault::Reset, at + part(&mut rng)));
            for (fault, begin) in rotated.into_iter().chain(reset) {
                let duration = Duration::ZERO;
                self.events.push(ScheduledFault { fault, begin, duration, is_secondary: true });
            }
            let (fault, duration, is_secondary) = (first, time, false);
            self.events.push(ScheduledFault { fault, begin: at, duration, is_secondary });
            at += Duration::from_millis(rng.u64(30_000..100_000));
        }
        self
    }
}
