//! A StatsD pipeline that gets lines with the names of families of the Kubernetes side.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;

use super::options::custom_names;
use crate::app::sides::FamilyNames;
use crate::app::sides::statsd::STATSD;
use crate::exposition::{Format, ScrapeQuery, Source as _};
use crate::statsd::{Clock, Pipeline, PipelineConfig, SelfMetrics};

/// The name of a metric that the Kubernetes side never has.
const OTHER: &str = "other";

/// The pipeline and what it must show.
pub(super) struct Lines {
    rng: Rng,
    pipeline: Arc<Pipeline>,
    names: Vec<String>,
    /// The value of each gauge.
    values: BTreeMap<String, u32>,
}

impl Lines {
    /// Starts a pipeline whose metrics are hidden while their names are reserved.
    pub(super) fn start(seed: u64, names: &Arc<FamilyNames>) -> Self {
        let reserved = names.of_others(STATSD.name);
        let config = PipelineConfig {
            clock: Clock::manual(),
            reserved,
            self_metrics: SelfMetrics::None,
            ..PipelineConfig::default()
        };
        let pipeline = Arc::new(Pipeline::start(config).expect("a pipeline without listeners"));
        let notified = Arc::clone(&pipeline);
        names.subscribe(STATSD.name, move |taken| notified.reserve(taken));
        let mut names = custom_names();
        names.push(OTHER.to_owned());
        let rng = Rng::with_seed(seed ^ 0x8eb4_4a87_68c7_b1f3);
        Self { rng, pipeline, names, values: BTreeMap::new() }
    }

    /// Sends a line, which begins no metric with a reserved name. Returns it.
    pub(super) fn send(&mut self, reserved: &dyn Fn(&str) -> bool) -> Result<String, String> {
        let name = self.names[self.rng.usize(..self.names.len())].clone();
        let value = self.rng.u32(0..1_000);
        let line = format!("{name}:{value}|g\n");
        self.pipeline.receive(line.as_bytes());
        if self.values.contains_key(&name) || !reserved(&name) {
            self.values.insert(name, value);
        }
        self.check(reserved)?;
        Ok(line)
    }

    /// Compares a scrape with the lines: a metric is there unless its name is reserved. Returns the scrape.
    pub(super) fn check(&self, reserved: &dyn Fn(&str) -> bool) -> Result<String, String> {
        let frames = self.pipeline.frames(Format::Text, &ScrapeQuery::default());
        let text: Vec<u8> = frames.flatten().collect();
        let text = String::from_utf8(text).expect("UTF-8");
        let series = text.lines().filter(|line| !line.starts_with('#'));
        let shown: BTreeMap<&str, &str> = series.filter_map(|line| line.split_once(' ')).collect();
        for name in &self.names {
            let value = self.values.get(name).filter(|_| !reserved(name));
            let wanted = value.map(u32::to_string);
            let shown = shown.get(&**name);
            if shown.copied() != wanted.as_deref() {
                return Err(format!("{name} is {shown:?}, not {wanted:?}"));
            }
        }
        Ok(text)
    }
}
