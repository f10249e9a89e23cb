//! `kstatd demo`: kstatd without a cluster.
//!
//! An API server double ([`kstatd_double`]) with a synthetic cluster and a StatsD client feed an
//! ordinary run of the exporter, which the caller starts with [`Demo::api_server`] as its API
//! server. All displayed figures come from real scrapes over HTTP, as Prometheus would make them;
//! nothing here accesses the pipelines directly.

mod sender;
mod summary;

use std::io::{self, IsTerminal, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use kstatd_double::{Double, Options};
use tokio::time::sleep;

use crate::cli::native::DemoArgs;
use crate::kube::client::endpoint::Endpoint;
use crate::resources::registry;
use summary::Summary;

/// The addresses of the exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// `/metrics` of both sides.
    pub metrics: SocketAddr,
    /// Own metrics.
    pub telemetry: SocketAddr,
    /// StatsD over UDP.
    pub statsd: SocketAddr,
}

/// A running simulated cluster.
pub struct Demo {
    double: Double,
    size: DemoArgs,
}

/// The interval of progress checks during the first list.
const LOADING_INTERVAL: Duration = Duration::from_millis(100);
/// The time from the first reading of the counters to the first summary; rates need two readings.
const FIRST_SUMMARY: Duration = Duration::from_secs(1);
/// The interval between summaries if the output is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// The interval between summaries on a terminal.
const TERMINAL_INTERVAL: Duration = Duration::from_secs(2);
/// Scrapes take at most 1/10 of the time.
const SCRAPE_SHARE: u32 = 10;

impl Demo {
    /// Starts the simulated cluster.
    ///
    /// # Errors
    /// When no port is available.
    pub async fn start(size: &DemoArgs) -> io::Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let double = Options {
            pods: size.pods,
            events_per_second: size.churn,
            epoch: now.as_secs().cast_signed(),
            ..Options::default()
        };
        Ok(Self { double: Double::start(&double).await?, size: size.clone() })
    }

    /// Returns the URL of the simulated API server.
    pub fn api_server(&self) -> String {
        self.double.url()
    }

    /// Sends StatsD lines to the exporter at `addresses` and displays its state until dropped.
    ///
    /// # Errors
    /// When no socket is available.
    pub async fn show(&self, addresses: Addresses) -> io::Result<()> {
        let screen = Screen::new();
        screen.say(&format!("status page  http://{}/status\n", addresses.metrics));
        let metrics = Endpoint::of_peer(addresses.metrics).map_err(io::Error::other)?;
        let telemetry = Endpoint::of_peer(addresses.telemetry).map_err(io::Error::other)?;
        self.load(&metrics, &screen).await;
        screen.say(&self.introduction(addresses));
        let summary = Summary::new(metrics, telemetry);
        let sender = sender::run(addresses.statsd, self.size.statsd_rate);
        tokio::select! {
            ended = sender => ended,
            () = self.watch(addresses, summary, &screen) => Ok(()),
        }
    }

    /// Waits until the exporter is ready, displaying its progress.
    async fn load(&self, metrics: &Endpoint, screen: &Screen) {
        let watched = registry().iter().filter(|resource| resource.api().default_enabled);
        let objects =
            watched.map(|resource| self.double.objects_of(resource.name())).sum::<usize>();
        screen.begin_loading(objects as u64);
        let ready = || metrics.get_at("/readyz", "*/*", "identity");
        while !ready().await.is_ok_and(|answer| answer.status() == StatusCode::OK) {
            screen.loaded(self.double.delivered().min(objects as u64));
            sleep(LOADING_INTERVAL).await;
        }
        screen.end_loading();
    }

    async fn watch(&self, addresses: Addresses, mut summary: Summary, screen: &Screen) {
        if let Err(error) = summary.begin().await {
            screen.show(&format!("no answer from {}: {error}", addresses.telemetry));
        }
        sleep(FIRST_SUMMARY).await;
        loop {
            let pause = match summary.take(self.double.objects()).await {
                Ok(line) => {
                    screen.show(&line);
                    summary.last_scrape() * SCRAPE_SHARE
                }
                Err(error) => {
                    screen.show(&format!("no answer from {}: {error}", addresses.metrics));
                    Duration::ZERO
                }
            };
            sleep(pause.max(screen.interval())).await;
        }
    }

    fn introduction(&self, addresses: Addresses) -> String {
        let DemoArgs { pods, churn, statsd_rate, .. } = &self.size;
        let Addresses { metrics, telemetry, statsd } = addresses;
        format!(
            "{} pods in a cluster of {} objects, {churn} changes/s, \
             {statsd_rate} StatsD lines/s\n\
             \n\
             \x20 metrics      http://{metrics}/metrics\n\
             \x20 kubernetes   http://{metrics}/metrics/kubernetes\n\
             \x20 statsd       http://{metrics}/metrics/statsd\n\
             \x20 own metrics  http://{telemetry}/metrics\n\
             \x20 API double   {}/api/v1/pods?limit=1\n\
             \x20 send lines   echo 'hello.world:1|c' | nc -u -w0 {} {}\n\
             \n\
             Ctrl-C ends it.",
            HumanCount((*pods).into()),
            HumanCount(self.double.objects() as u64),
            self.double.url(),
            statsd.ip(),
            statsd.port(),
        )
    }
}

/// Standard output: a redrawn status line on a terminal, plain lines elsewhere.
struct Screen {
    bar: ProgressBar,
    terminal: bool,
}

impl Screen {
    fn new() -> Self {
        let terminal = io::stdout().is_terminal();
        let target =
            if terminal { ProgressDrawTarget::stdout() } else { ProgressDrawTarget::hidden() };
        Self { bar: ProgressBar::with_draw_target(None, target), terminal }
    }

    fn interval(&self) -> Duration {
        if self.terminal { TERMINAL_INTERVAL } else { LINE_INTERVAL }
    }

    /// Prints permanent text.
    fn say(&self, text: &str) {
        if self.terminal {
            self.bar.println(text);
        } else {
            // There is nowhere to report a failure.
            let _ = writeln!(io::stdout().lock(), "{text}");
        }
    }

    fn begin_loading(&self, objects: u64) {
        let template = "first list {wide_bar} {human_pos}/{human_len} objects";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
        self.bar.set_length(objects);
        if !self.terminal {
            self.say(&format!("loading {} objects", HumanCount(objects)));
        }
    }

    fn loaded(&self, objects: u64) {
        self.bar.set_position(objects);
    }

    fn end_loading(&self) {
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            self.bar.set_style(style);
        }
    }

    /// Replaces the status line.
    fn show(&self, line: &str) {
        if self.terminal {
            self.bar.set_message(line.to_owned());
            self.bar.tick();
        } else {
            self.say(line);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
