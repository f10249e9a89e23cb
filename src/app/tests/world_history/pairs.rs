//! The pairs of features and faults that were active together in scrapes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use fastrand::Rng;

use crate::kube::tests::history::faults::Fault;
use crate::kube::tests::history::run::{FEATURES, optional_feature};
use crate::kube::tests::history::scenario::Scenario;
use crate::statsd::tests::history::History;

/// A reload of the options, as a feature.
pub(super) const RELOAD: &str = "reload of options";
/// The versions of HTTP, as features.
pub(super) const TRANSPORTS: [&str; 2] = ["HTTP/1.1", "HTTP/2"];

/// The number of scrapes of each pair, whose names are sorted.
#[derive(Default)]
pub(super) struct Pairs(BTreeMap<(&'static str, &'static str), usize>);

/// Returns the ways to follow the cluster, which each feature of the lines and each fault has to meet.
fn ways() -> impl Iterator<Item = &'static str> {
    TRANSPORTS.into_iter().chain([RELOAD]).chain(FEATURES)
}

fn faults() -> BTreeSet<&'static str> {
    let mut rng = Rng::with_seed(1);
    (0..2_000).map(|_| Fault::random(Fault::USUAL_CHOICES, &mut rng).0.name()).collect()
}

/// Returns a history in which these two are likely to be active together, or a random one.
pub(super) fn scenario(seed: u64, length: Duration, pair: Option<(&str, &str)>) -> Scenario {
    let Some((one, other)) = pair else { return Scenario::random(seed, length) };
    let names = [one, other];
    let faults = faults();
    let fault = names.into_iter().find(|name| faults.contains(name));
    let feature = names.into_iter().find_map(optional_feature);
    let mut scenario = Scenario::of_fault_and_feature(seed, length, fault, feature);
    if let Some(transport) = TRANSPORTS.iter().position(|transport| names.contains(transport)) {
        scenario.http2 = transport == 1;
    }
    scenario
}

impl Pairs {
    /// Counts a scrape during which these features were active.
    pub(super) fn count(&mut self, active: &[&'static str]) {
        for (at, one) in active.iter().enumerate() {
            for other in &active[at + 1..] {
                *self.0.entry((*one.min(other), *one.max(other))).or_default() += 1;
            }
        }
    }

    /// Adds the scrapes of another history.
    pub(super) fn add(&mut self, others: Self) {
        for (pair, scrapes) in others.0 {
            *self.0.entry(pair).or_default() += scrapes;
        }
    }

    /// Returns the number of pairs.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of scrapes in which two features were active together.
    fn scrapes(&self, one: &str, other: &str) -> usize {
        self.0.get(&(one.min(other), one.max(other))).copied().unwrap_or_default()
    }

    /// Returns the pairs that have to be active together but never were.
    pub(super) fn missing(&self) -> Vec<(&'static str, &'static str)> {
        let faults = faults();
        let of_lines = History::feature_names()
            .flat_map(|one| ways().chain(faults.clone()).map(move |other| (one, other)));
        let of_cluster = faults.iter().flat_map(|one| ways().map(move |other| (*one, other)));
        of_lines.chain(of_cluster).filter(|(one, other)| self.scrapes(one, other) == 0).collect()
    }

    /// Returns a table of the features of the lines, and one of the faults: the scrapes of each with each way to follow the
    /// cluster, and those with the fault or the feature that it met least often.
    pub(super) fn tables(&self) -> String {
        let (features, faults) = (History::feature_names().collect(), faults());
        let mut text = String::new();
        for (title, rows, others, rarest) in [
            ("Feature of the lines", &features, &faults, "Rarest fault"),
            ("Fault", &faults, &features, "Rarest feature of the lines"),
        ] {
            let ways: Vec<&str> = ways().collect();
            let _ = writeln!(text, "| {title} | {} | {rarest} |", ways.join(" | "));
            let _ = writeln!(text, "|{}", "---|".repeat(ways.len() + 2));
            for row in rows {
                let _ = write!(text, "| {row} |");
                for way in &ways {
                    let _ = write!(text, " {} |", self.scrapes(row, way));
                }
                let rarest = others.iter().map(|other| (self.scrapes(row, other), other)).min();
                let _ = writeln!(
                    text,
                    "{}",
                    rarest.map_or(String::new(), |(scrapes, other)| format!(
                        " {scrapes} ({other}) |"
                    ))
                );
            }
            text.push('\n');
        }
        text
    }
}
