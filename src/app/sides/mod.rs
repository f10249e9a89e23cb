//! What a process serves: a [`Side`] for each place that metrics come from.
//!
//! The [run loop](super::run) knows sides by this trait alone. Each is a file here, with a [`Kind`] that says what can be
//! said of it before it is there, and a row of each [personality](super::personality) that has it. Sides do not know each
//! other, nor the paths and listeners by which they are served.

pub(crate) mod kubernetes;
pub(crate) mod node;
pub(crate) mod statsd;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use crate::cli::config::Config;
use crate::exposition::Source;
use crate::exposition::family::Collect;
use crate::server::authorisation::Reviews;
use crate::server::health::Look;
use crate::server::routes::LivenessProbe;
use crate::status::Reporter;
use crate::telemetry::countable::Countable;
use crate::telemetry::{KubeMetrics, Recorder};

/// What a side does, for as long as it takes.
pub(crate) type Task<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Tells the names of families that the rest of an exposition has.
pub(crate) type Taken = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Reads again what a side alone reads, and says in the log what has come of it.
pub(crate) type Reread = Arc<dyn Fn(Trigger) + Send + Sync>;

/// What asked for files to be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// SIGHUP.
    Hangup,
    /// The lifecycle API.
    Request,
}

/// One kind of side.
pub(crate) struct Kind {
    /// What it is called.
    pub(crate) name: &'static str,
    /// Where kstatd serves it alone.
    pub(crate) path: &'static str,
    /// What is to be seen there, for the landing page.
    pub(crate) about: &'static str,
    /// Whether its source has a protobuf form.
    pub(crate) protobuf: bool,
    /// Why this configuration has no such side, as a sentence for the log.
    pub(crate) off: fn(&Config) -> Option<&'static str>,
    /// The files, beside the options file, whose change may change it.
    pub(crate) files: fn(&Config) -> Vec<PathBuf>,
    /// The names of all families that it may have, now or after a reload, if those are known.
    pub(crate) names: fn(&Config) -> BTreeSet<String>,
    /// Starts it.
    pub(crate) start: for<'a> fn(Start<'a>) -> Starting<'a>,
}

/// A side that is being started, or what keeps it from starting.
pub(crate) type Starting<'a> = Task<'a, Result<Box<dyn Side>, String>>;

/// A side that gets what another configuration needs, or what is in the way now.
pub(crate) type Preparing = Task<'static, Result<(), String>>;

/// What a side is started with.
pub(crate) struct Start<'a> {
    pub(crate) config: &'a Config,
    /// Where the Kubernetes side counts.
    pub(crate) metrics: &'a KubeMetrics,
    /// The names of families that it must leave alone.
    pub(crate) taken: Taken,
    /// What stands among its families, where one body has all there is.
    pub(crate) beside: Option<Arc<dyn Collect>>,
}

/// Something that ready is waited for.
pub(crate) struct Awaited {
    /// In words for an operator.
    pub(crate) what: &'static str,
    /// Completes when it is there.
    pub(crate) done: Task<'static, ()>,
}

/// What can be looked at to tell how a side is doing, for whoever asks in detail.
pub(crate) struct Health {
    /// Whether what it serves is complete and kept up to date.
    pub(crate) ready: Look,
    /// Whether all of it runs.
    pub(crate) live: Look,
}

/// How a side is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    /// Whether all that the latest configuration asks for is being served.
    pub(crate) in_force: bool,
}

/// A running side. What has a body here is what a side without that feature does.
pub(crate) trait Side: Send {
    /// What it serves, from the start to the end of the process.
    fn source(&self) -> Arc<dyn Source>;

    /// Its series, for reports about them, if they can be counted.
    fn series(&self) -> Option<Arc<dyn Countable>> {
        None
    }

    /// Adds what it says about itself, beside what is registered in [`Telemetry`](super::telemetry::Telemetry).
    fn telemetry(&self, recorder: &mut Recorder) {
        let _ = recorder;
    }

    /// What is to be waited for before its source has all there is.
    fn ready(&self) -> Option<Awaited> {
        None
    }

    /// Tells whether that which it follows lives.
    fn liveness(&self) -> Option<LivenessProbe> {
        None
    }

    /// Who tells the status page of it.
    fn reporter(&self) -> Option<Arc<dyn Reporter>> {
        None
    }

    /// What can be looked at of it.
    fn health(&self) -> Option<Health> {
        None
    }

    /// Who can be asked about those who ask for metrics.
    fn reviews(&self) -> Option<Arc<dyn Reviews>> {
        None
    }

    /// Reads anew what only SIGHUP and the lifecycle API make it read.
    fn reread(&self) -> Option<Reread> {
        None
    }

    /// Gets what this configuration needs and may take its time; the present one stays in force. A later call takes the
    /// place of an earlier one. `None` if nothing is needed.
    ///
    /// # Errors
    ///
    /// Why it cannot be followed, now or later. What the task ends with may be a matter of time.
    fn prepare(&mut self, config: &Config) -> Result<Option<Preparing>, String> {
        let _ = config;
        Ok(None)
    }

    /// Follows this configuration from here on, for which it is prepared.
    ///
    /// # Errors
    ///
    /// Why it goes on as before, which may be a matter of time.
    fn reload(&mut self, config: &Config) -> Result<(), String> {
        let _ = config;
        Ok(())
    }

    /// Does what is to be done now and then: completes when [`Side::status`] may be another. It may be dropped at any
    /// time.
    fn attend(&mut self) -> Task<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// How it is doing.
    fn status(&self) -> Status {
        Status { in_force: true }
    }

    /// What has to be done when the process is told to end while it still starts.
    fn at_once(&self) -> Option<Task<'static, ()>> {
        None
    }

    /// Ends it cleanly. The source goes on with what it has.
    fn stop(self: Box<Self>) -> Task<'static, ()>;
}
