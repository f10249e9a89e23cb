//! Lines whose series depend on options that the other lines do not use: tags of dialects that are switched off, `honor_labels`,
//! `normalise`, labels without a value, names with captures, and defaults for lines without a rule.

use std::fmt::Write as _;
use std::time::Duration;

use fastrand::Rng;

use super::History;
use super::features::Feature;
use super::known_series::KnownSeries;
use super::model::{Labels, Mapping};
use crate::exposition::budget::BudgetMode;
use crate::exposition::tests::samples::Samples;
use crate::statsd::line::ParserFlags;

/// The beginnings of the names: with a rule, and without one.
pub(super) const PREFIXES: [&str; 2] = ["opt_", "free_"];

/// A way to write the tag of a line.
#[derive(Clone, Copy)]
pub(super) enum TagStyle {
    DogStatsd,
    Influx,
    Librato,
    SignalFx,
}

impl TagStyle {
    /// DogStatsD is the most common one.
    pub(super) const ALL: [Self; 5] =
        [Self::DogStatsd, Self::DogStatsd, Self::Influx, Self::Librato, Self::SignalFx];

    /// Returns what follows the name of the metric, and the end of the line.
    pub(super) fn texts(self, sender: &str) -> (String, String) {
        match self {
            Self::DogStatsd => (String::new(), format!("|#sender:{sender}")),
            Self::Influx => (format!(",sender={sender}"), String::new()),
            Self::Librato => (format!("#sender={sender}"), String::new()),
            Self::SignalFx => (format!("[sender={sender}]"), String::new()),
        }
    }
}

/// The options that reloads change.
struct Reloaded {
    ttl: Duration,
    honor_labels: bool,
    /// The defaults replace numbers, the rule cuts values.
    replaces: bool,
    cuts: bool,
}

impl Reloaded {
    fn random(rng: &mut Rng, mapping: &Mapping) -> Self {
        let ttl = Duration::from_secs(mapping.ttl);
        Self { ttl, honor_labels: rng.bool(), replaces: rng.bool(), cuts: rng.u32(0..3) == 0 }
    }
}

/// The options of a history.
pub(super) struct Options {
    rng: Rng,
    pub(super) flags: ParserFlags,
    pub(super) keep_empty_labels: bool,
    reloaded: Reloaded,
    known: KnownSeries,
}

impl Options {
    pub(super) fn new(seed: u64, mapping: &Mapping, is_of_pods: bool) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0xa54f_f53a_5f1d_36f1);
        // Pods state their origin like tags.
        let mut is_on = || is_of_pods || rng.u32(0..3) > 0;
        let flags = ParserFlags {
            dogstatsd: is_on(),
            influxdb: is_on(),
            librato: is_on(),
            signalfx: is_on(),
            sets: true,
            origins: is_of_pods,
        };
        let (keep_empty_labels, reloaded) = (rng.bool(), Reloaded::random(&mut rng, mapping));
        Self { rng, flags, keep_empty_labels, reloaded, known: KnownSeries::default() }
    }

    pub(super) fn reload(&mut self, mapping: &Mapping) {
        self.reloaded = Reloaded::random(&mut self.rng, mapping);
    }

    /// Returns true if the next line is one of these.
    pub(super) fn is_next(&mut self) -> bool {
        self.rng.u32(0..8) == 0
    }

    /// Returns true if tags in this style are read.
    pub(super) fn reads(&self, style: TagStyle) -> bool {
        match style {
            TagStyle::DogStatsd => self.flags.dogstatsd,
            TagStyle::Influx => self.flags.influxdb,
            TagStyle::Librato => self.flags.librato,
            TagStyle::SignalFx => self.flags.signalfx,
        }
    }

    /// Returns the time to live of lines without a rule.
    pub(super) fn ttl(&self) -> Duration {
        self.reloaded.ttl
    }

    /// Returns the defaults, which precede the rules.
    pub(super) fn defaults(&self) -> String {
        let replaces = if self.reloaded.replaces { "  normalise: {t: number}\n" } else { "" };
        format!("defaults:\n  ttl: {}s\n{replaces}", self.reloaded.ttl.as_secs())
    }

    pub(super) fn yaml(&self) -> String {
        let Reloaded { ttl, honor_labels, cuts, .. } = self.reloaded;
        let mut yaml = format!(
            "- match: opt.*\n  name: opt_$1\n  ttl: {}s\n  honor_labels: {honor_labels}\n  labels: {{k: rule, e: ''}}\n",
            ttl.as_secs()
        );
        if cuts {
            let _ = writeln!(yaml, "  normalise: {{t: {{truncate: 1}}}}");
        }
        yaml
    }

    /// Returns the labels of a line with these tags that are read.
    fn labels(&self, has_rule: bool, tags: &[(&str, &str)]) -> Labels {
        let Reloaded { honor_labels, replaces, cuts, .. } = self.reloaded;
        let mut labels: Labels = tags
            .iter()
            .map(|(name, value)| match *name {
                "t" if has_rule && cuts => (*name, &value[..1]),
                "t" if replaces => (*name, "<number>"),
                _ => (*name, *value),
            })
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        if has_rule {
            if !honor_labels || !labels.contains_key("k") {
                labels.insert("k".to_owned(), "rule".to_owned());
            }
            if self.keep_empty_labels {
                labels.insert("e".to_owned(), String::new());
            }
        }
        labels
    }
}

impl History {
    /// Sends a line of one of these metrics.
    pub(super) fn line_with_options(&mut self) -> Result<(), String> {
        let (mode, rng) = (self.mode, &mut self.options.rng);
        let (has_rule, sender) = (rng.bool(), rng.usize(0..self.senders.len()));
        // Counters may be folded, gauges are not.
        let suffix = if mode == BudgetMode::Enforce || rng.bool() { "g" } else { "c" };
        let (number, letter) = (rng.u32(1..9), ["a", "b"][rng.usize(0..2)]);
        let all = [("k", "tag"), ("t", "12")];
        let mut tags: Vec<(&str, &str)> = all.into_iter().filter(|_| rng.bool()).collect();
        let style = TagStyle::ALL[rng.usize(0..TagStyle::ALL.len())];
        let is_read = self.options.reads(style);
        if !is_read {
            // A comma would begin tags in Influx style.
            tags.truncate(1);
        }
        let joined = |sign: &str| {
            let pairs = tags.iter().map(|(name, value)| format!("{name}{sign}{value}"));
            pairs.collect::<Vec<_>>().join(",")
        };
        let (of_name, of_line) = match style {
            _ if tags.is_empty() => Default::default(),
            TagStyle::DogStatsd => (String::new(), format!("|#{}", joined(":"))),
            TagStyle::Influx => (format!(",{}", joined("=")), String::new()),
            TagStyle::Librato => (format!("#{}", joined("=")), String::new()),
            TagStyle::SignalFx => (format!("[{}]", joined("=")), String::new()),
        };
        let prefix = PREFIXES[usize::from(!has_rule)];
        let name = format!("{}.{suffix}{letter}", prefix.trim_end_matches('_'));
        let line = format!("{name}{of_name}:{number}|{suffix}{of_line}");
        // Tags that are not read are part of the name.
        let metric = if is_read { name } else { name + &of_name };
        let metric = metric.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "_");
        let read: &[(&str, &str)] = if is_read { &tags } else { &[] };
        let labels = self.options.labels(has_rule, read);
        let features = [
            (!has_rule, Feature::Unmapped),
            (has_rule && is_read && tags.contains(&all[0]), Feature::TakenLabel),
            (is_read && tags.contains(&all[1]), Feature::Normalise),
            (!is_read && !tags.is_empty(), Feature::UnreadTags),
        ];
        features.iter().filter(|(is_used, _)| *is_used).for_each(|(_, each)| self.used(*each));
        self.outcome.lines += 1;
        let (reasons, own) = self.send(Some(self.senders[sender]), std::slice::from_ref(&line))?;
        let key = (metric, labels.into_iter().chain(own).collect());
        let is_budget = |reason: &&str| matches!(*reason, "series_limit" | "label_limit");
        if !reasons.is_empty() {
            let may_be = mode == BudgetMode::Enforce && reasons.iter().all(is_budget);
            return match may_be && !self.options.known.contains(&key) {
                true => Ok(()),
                false => Err(format!("{line} is rejected for {reasons:?}: {key:?}")),
            };
        }
        let ttl = self.options.reloaded.ttl;
        let adds = suffix == "c";
        self.options.known.apply(key, (f64::from(number), adds), (self.now, ttl));
        Ok(())
    }

    /// Compares these metrics of a scrape with the model.
    pub(super) fn check_options(&mut self, samples: &Samples) -> Result<(), String> {
        let ended = self.compare_known(&self.options.known, &PREFIXES, samples)?;
        self.options.known.forget(&ended);
        Ok(())
    }
}
