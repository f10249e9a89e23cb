//! `kstatd diff`: compares two expositions by family, series, value, type, help and labels.
//!
//! The two sides are read in turn, twice each (A, B, pause, A, B) and a third time if they seem to
//! differ. A series differs if it does so in two consecutive comparisons of two samples each, so
//! that neither short-lived series nor changing values count as differences ([`movement`]). A file
//! is read only once. All samples are stored in one [`table`].

mod difference_kind;
mod known;
mod movement;
mod report;
mod source;
mod table;

use std::time::{Duration, Instant};

use regex::Regex;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, sleep_until};

use crate::kube::client::endpoint::Access;
use difference_kind::{DifferenceKind, Side};
use report::Compared;
pub(crate) use report::Report;
use source::{Form, Source};
use table::{About, Family, Table, TableSummary};

/// The number of consecutive comparisons in which a difference must occur.
const STREAK: u8 = 2;

/// The settings of a comparison.
pub(crate) struct Options {
    /// URLs, files, or `-` for standard input.
    pub sides: [String; 2],
    /// Access settings for both sides, as far as they are URLs.
    pub access: Access,
    /// The user agent.
    pub user_agent: String,
    /// Requests OpenMetrics.
    pub open_metrics: bool,
    /// The request timeout.
    pub timeout: Duration,
    /// The interval between samples.
    pub interval: Duration,
    /// The total duration; `None` for as short as possible.
    pub watch: Option<Duration>,
    /// Patterns of family names to ignore.
    pub ignore: Vec<Regex>,
    /// True if counters started at different times, so that only their increases are comparable.
    pub increases: bool,
    /// The maximum number of example series per difference.
    pub examples: usize,
}

/// Runs the comparison. `say` receives progress messages.
///
/// # Errors
/// When a side cannot be read.
pub(crate) async fn run(options: Options, say: impl Fn(&str)) -> Result<Report, String> {
    let [a, b] = &options.sides;
    if a == "-" && b == "-" {
        return Err("only one side can be standard input".to_owned());
    }
    let source = |word: &String| {
        let source = Source::new(word, &options.access, &options.user_agent);
        source.map_err(|error| format!("{}: {error}", shown(word)))
    };
    let sources = [source(a)?, source(b)?];
    let fixed = sources.iter().all(Source::is_fixed);
    let comparison = Comparison {
        table: Table::new(options.ignore.clone()),
        sources,
        options: &options,
        forms: [None; 2],
        samples: [0; 2],
        sizes: [(0, 0); 2],
    };
    match options.watch.filter(|_| !fixed) {
        Some(time) => comparison.watch(time, say).await,
        None => comparison.once(fixed).await,
    }
}

struct Comparison<'o> {
    table: Table,
    sources: [Source; 2],
    options: &'o Options,
    /// The format of each side.
    forms: [Option<Form>; 2],
    /// The number of samples of each side.
    samples: [u32; 2],
    /// Families and series of each side, from its last complete sample.
    sizes: [(usize, u64); 2],
}

impl Comparison<'_> {
    /// Compares until the result is certain.
    async fn once(mut self, fixed: bool) -> Result<Report, String> {
        self.sample().await?;
        let mut streak = 0;
        let seen = loop {
            if !fixed {
                sleep(self.options.interval).await;
            }
            self.sample().await?;
            let seen = self.table.compare(self.options.increases);
            streak += 1;
            if seen.suspects == 0 || fixed || streak == STREAK {
                break seen;
            }
        };
        self.table.settle(streak);
        self.compare_families();
        Ok(self.report(seen))
    }

    /// Compares for a fixed time and collects all differences, waiting while a side is unavailable.
    async fn watch(mut self, time: Duration, say: impl Fn(&str)) -> Result<Report, String> {
        let end = Instant::now() + time;
        let mut seen = None;
        // Consecutive samples that succeeded on both sides.
        let mut good = 0_u8;
        let mut last_error = None;
        let mut stop = stop().map_err(|error| format!("cannot handle signals: {error}"))?;
        loop {
            let sampled = tokio::select! {
                sampled = self.sample() => sampled,
                _ = stop.recv() => break,
            };
            match sampled {
                Ok(()) => {
                    if last_error.take().is_some() {
                        say("both sides respond again");
                    }
                    good = good.saturating_add(1);
                }
                Err(error) => {
                    good = 0;
                    if last_error.as_ref() != Some(&error) {
                        say(&error);
                    }
                    last_error = Some(error);
                }
            }
            if good >= 2 {
                seen = Some(self.table.compare(self.options.increases));
                let before = self.table.has_found();
                self.table.settle(STREAK);
                self.compare_families();
                self.table.tidy();
                if !before && self.table.has_found() {
                    say("there are differences");
                }
            }
            let next = (Instant::now() + self.options.interval).min(end);
            tokio::select! {
                () = sleep_until(next.into()) => {}
                _ = stop.recv() => break,
            }
            // Even a short run needs enough comparisons to confirm a difference.
            if Instant::now() >= end && !(1..=STREAK).contains(&good) {
                break;
            }
        }
        match (seen, last_error) {
            (Some(seen), _) => Ok(self.report(seen)),
            (None, error) => Err(error.unwrap_or_else(|| "never read twice".to_owned())),
        }
    }

    /// Samples both sides, one after the other.
    async fn sample(&mut self) -> Result<(), String> {
        let Self { table, sources, options, forms, samples, sizes } = self;
        for side in Side::BOTH {
            let (source, at) = (&sources[side.index()], side.index());
            if source.is_fixed() && samples[at] > 0 {
                table.repeat(side);
                continue;
            }
            let read = source.read(table, side, options.open_metrics, options.timeout).await;
            forms[at] =
                Some(read.map_err(|error| format!("{}: {error}", shown(&options.sides[at])))?);
            samples[at] += 1;
            sizes[at] = table.size(side);
        }
        Ok(())
    }

    /// Records differences of family metadata.
    fn compare_families(&mut self) {
        let one_form = self.forms[0] == self.forms[1];
        for family in self.table.families.iter_mut().filter(|family| !family.ignored) {
            for difference in differences(family, one_form) {
                if !family.found.iter().any(|known| known.0 == difference.0) {
                    family.found.push(difference);
                }
            }
        }
    }

    fn report(self, seen: TableSummary) -> Report {
        let compared = |side: Side| {
            let (families, series) = self.sizes[side.index()];
            Compared {
                from: shown(&self.options.sides[side.index()]),
                format: self.forms[side.index()].unwrap_or(Form::Text),
                families,
                series,
                samples: self.samples[side.index()],
            }
        };
        Report::new(&self.table, Side::BOTH.map(compared), seen, self.options.examples)
    }
}

/// Returns the signal that ends a watch early; the report is still printed.
fn stop() -> std::io::Result<Signal> {
    signal(SignalKind::interrupt())
}

/// Returns the differences of a family's metadata.
fn differences(family: &Family, one_form: bool) -> Vec<(DifferenceKind, String, String)> {
    let [a, b] = &family.about;
    let mut found = Vec::new();
    let mut add = |what: DifferenceKind, a: &str, b: &str| {
        if a != b {
            found.push((what, a.to_owned(), b.to_owned()));
        }
    };
    match (a.is_there(), b.is_there()) {
        // If the family has series, they are reported instead.
        (true, false) if a.series == 0 => add(DifferenceKind::OnlyInA, "no series", ""),
        (false, true) if b.series == 0 => add(DifferenceKind::OnlyInB, "", "no series"),
        (true, true) => {
            let [kind_a, kind_b] =
                [a, b].map(|about| kind(about.kind.as_deref().unwrap_or("untyped"), one_form));
            add(DifferenceKind::Type, kind_a, kind_b);
            let [(mark_a, help_a), (mark_b, help_b)] =
                [a, b].map(|about| marked(about.help.as_deref().unwrap_or_default()));
            add(DifferenceKind::Stability, mark_a, mark_b);
            add(DifferenceKind::Help, help_a, help_b);
            if one_form {
                let name = |about: &About| about.announced.clone().unwrap_or_default();
                add(DifferenceKind::Name, &name(a), &name(b));
                let bounds = |about: &About| if about.decimal { "1.0" } else { "1" };
                if a.series > 0 && b.series > 0 {
                    add(DifferenceKind::Bounds, bounds(a), bounds(b));
                }
            }
            add(DifferenceKind::Repeated, &a.repeated.to_string(), &b.repeated.to_string());
        }
        _ => {}
    }
    found
}

/// Normalises a type: if the sides use different formats, to those that text 0.0.4 has.
fn kind(kind: &str, one_form: bool) -> &str {
    match kind {
        "unknown" | "untyped" => "untyped",
        "info" | "stateset" if !one_form => "gauge",
        kind => kind,
    }
}

/// Splits a HELP text into its stability and deprecation markers, and the sentence.
fn marked(help: &str) -> (&str, &str) {
    let mut rest = help.strip_prefix("[STABLE] ").unwrap_or(help);
    if rest.starts_with("(Deprecated since ")
        && let Some((_, sentence)) = rest.split_once(") ")
    {
        rest = sentence;
    }
    let (mark, sentence) = help.split_at(help.len() - rest.len());
    (mark.trim_end(), sentence)
}

/// Formats a side without its password.
fn shown(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else {
        return if word == "-" { "standard input".to_owned() } else { word.to_owned() };
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((_, place)) => format!("{scheme}://{place}{}", &rest[end..]),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_markers_precede_the_text() {
        assert_eq!(marked("Words."), ("", "Words."));
        assert_eq!(marked("[STABLE] Words."), ("[STABLE]", "Words."));
        let both = "[STABLE] (Deprecated since 2.1) Words.";
        assert_eq!(marked(both), ("[STABLE] (Deprecated since 2.1)", "Words."));
        assert_eq!(marked(""), ("", ""));
    }

    #[test]
    fn passwords_are_hidden() {
        assert_eq!(shown("http://u:p@x@h:1/m?a@b"), "http://h:1/m?a@b");
        assert_eq!(shown("http://h/m@n"), "http://h/m@n");
        assert_eq!(shown("-"), "standard input");
    }
}
