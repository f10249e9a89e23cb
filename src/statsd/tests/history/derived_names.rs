//! Metrics whose samples would share a name: a summary `x` has `x_sum`, so it and a gauge `x_sum` exclude each other while
//! one of them exists.

use std::time::Duration;

use fastrand::Rng;

use super::History;
use super::features::Feature;
use super::lifetime::Lifetime;
use super::model::Mapping;
use crate::exposition::budget::BudgetMode;
use crate::exposition::tests::samples::Samples;

/// The name of the summary.
pub(super) const METRIC: &str = "derived_x";
/// The metrics: the end of the name, and the type of the lines.
const METRICS: [(&str, &str); 3] = [("", "ms"), ("_sum", "g"), ("_bucket", "g")];
const SUMMARY: usize = 0;
const BUCKET: usize = 2;

/// Returns true if a metric cannot begin while another one exists. As in statsd_exporter, a summary may begin beside a gauge with
/// the name of a bucket, but not the other way round.
fn excludes(existing: usize, new: usize) -> bool {
    (existing == SUMMARY) != (new == SUMMARY) && (existing, new) != (BUCKET, SUMMARY)
}

/// The metrics of a history.
pub(super) struct DerivedNames {
    rng: Rng,
    ttl: Duration,
    known: [Option<Lifetime>; METRICS.len()],
}

impl DerivedNames {
    pub(super) fn new(seed: u64, mapping: &Mapping) -> Self {
        let rng = Rng::with_seed(seed ^ 0x2748_774c_df8e_eb99);
        Self { rng, ttl: Duration::from_secs(mapping.ttl), known: [None; METRICS.len()] }
    }

    pub(super) fn reload(&mut self, mapping: &Mapping) {
        self.ttl = Duration::from_secs(mapping.ttl);
    }

    /// Returns true if the next line is of one of these metrics.
    pub(super) fn is_next(&mut self) -> bool {
        self.rng.u32(0..12) == 0
    }

    pub(super) fn yaml(&self) -> String {
        format!("- match: derived.*\n  name: derived_$1\n  ttl: {}s\n", self.ttl.as_secs())
    }

    /// Returns the number of samples that are reserved for an overflow series: three quantiles, sum, count and start time.
    pub(super) fn reserved(&self) -> usize {
        if self.known[SUMMARY].is_some() { 6 } else { 0 }
    }
}

impl History {
    /// Sends a line of one of the metrics.
    pub(super) fn line_with_derived_name(&mut self) -> Result<(), String> {
        let metric = self.derived_names.rng.usize(0..METRICS.len());
        let (end, suffix) = METRICS[metric];
        let sender = self.derived_names.rng.usize(0..self.senders.len());
        let line = format!("derived.x{end}:1|{suffix}");
        let (reasons, _) = self.send(Some(self.senders[sender]), std::slice::from_ref(&line))?;
        self.outcome.lines += 1;
        let known = self.derived_names.known;
        let mut others = (0..METRICS.len()).filter(|other| excludes(*other, metric));
        let certain = others.clone().find(|other| self.exists(known[*other]));
        let may_be_excluded = others.any(|other| self.may_exist(known[other]));
        let (is_there, may_be_there) = (self.exists(known[metric]), self.may_exist(known[metric]));
        let is_budget = |reason: &&str| matches!(*reason, "series_limit" | "label_limit");
        let wrong = match &reasons[..] {
            [] if certain.is_some() && !may_be_there => "accepted",
            [] => {
                let life = self.prolonged(known[metric], self.derived_names.ttl);
                self.derived_names.known[metric] = Some(life);
                return Ok(());
            }
            ["derived_name"] if may_be_excluded && !is_there => {
                self.used(Feature::DerivedName);
                return Ok(());
            }
            all if self.mode == BudgetMode::Enforce && !is_there && all.iter().all(is_budget) => {
                return Ok(());
            }
            _ => "rejected",
        };
        Err(format!("{line} is {wrong}, {reasons:?}, known: {known:?}, now {:?}", self.now))
    }

    /// Compares the metrics of a scrape with the model.
    pub(super) fn check_derived_names(&self, samples: &Samples) -> Result<(), String> {
        let has = |end: &str| {
            let name = format!("{METRIC}{end}");
            samples.keys().any(|(each, _)| *each == name)
        };
        let has_summary = has("_count");
        let known = self.derived_names.known;
        let shown = [has_summary, !has_summary && has("_sum"), has("_bucket")];
        for (metric, is_shown) in shown.into_iter().enumerate() {
            let wrong = match is_shown {
                true if !self.may_exist(known[metric]) => "there",
                false if self.exists(known[metric]) => "missing",
                _ => continue,
            };
            let (end, _) = METRICS[metric];
            return Err(format!("{METRIC}{end} is {wrong}: {known:?}, now {:?}", self.now));
        }
        Ok(())
    }
}
