//! `kstatd diff`: compares two expositions by family, series, value, type, help and labels.
//!
//! The two sides are read in turn, twice each (A, B, pause, A, B) and a third time if they seem to
//! differ. A series differs if it does so in two consecutive comparisons of two samples each, so
//! that neither short-lived series nor changing values count as differences ([`movement`]). A file
//! is read only once. All samples are stored in one [`table`].

mod known;
mod movement;
mod report;
mod source;
mod table;

use std::time::{Duration, Instant};

use regex::Regex;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, sleep_until};

use crate::kube::client::endpoint::Access;
use crate::tools::{CommandError, Result};
use known::DifferenceKind;
use report::Compared;
pub(crate) use report::{Difference, Explained, Family as DifferingFamily, Report};
use source::Form;
pub(crate) use source::{Source, TEXT, fetch, receive};
use table::{About, Family, FamilyDifference, Table, TableSummary};

/// The number of consecutive comparisons in which a difference must occur.
const STREAK: u8 = 2;

/// The rules of a comparison.
pub(crate) struct Rules {
    /// Requests OpenMetrics.
    pub open_metrics: bool,
    /// The request timeout.
    pub timeout: Duration,
    /// Patterns of family names to ignore.
    pub ignore: Vec<Regex>,
    /// True if counters started at different times, so that only their increases are comparable.
    pub increases: bool,
    /// The maximum number of example series per difference.
    pub examples: usize,
}

/// Compares two sides, each a URL, a file, or `-` for standard input, in samples with this interval between them, during
/// `watch` or else as shortly as possible. `access` is for sides that are URLs. `say` receives progress messages.
///
/// # Errors
/// When a side cannot be read.
pub(crate) async fn run(
    sides: [String; 2],
    access: Access,
    watch: Option<Duration>,
    interval: Duration,
    rules: Rules,
    say: impl Fn(&str),
) -> Result<Report> {
    let [a, b] = &sides;
    if a == "-" && b == "-" {
        return Err("only one side can be standard input".into());
    }
    let source = |word: &String| {
        let source = Source::new(word, &access);
        source.map_err(|error| format!("{}: {error}", shown(word)))
    };
    let sources = [source(a)?, source(b)?];
    let fixed = sources.iter().all(Source::is_fixed);
    let comparison = Comparison::new(sides.each_ref().map(|side| shown(side)), sources, rules);
    match watch.filter(|_| !fixed) {
        Some(time) => comparison.watch(time, interval, say).await,
        None => comparison.once(fixed, interval).await,
    }
}

/// A comparison of two sources, which are sampled in turn.
pub(crate) struct Comparison {
    table: Table,
    /// The sides as they are shown.
    names: [String; 2],
    sources: [Source; 2],
    rules: Rules,
    started: Instant,
    /// The format of each side.
    forms: [Option<Form>; 2],
    /// The number of samples of each side.
    samples: [u32; 2],
    /// Families and series of each side, from its last complete sample.
    sizes: [(usize, u64); 2],
    /// Consecutive samples that succeeded on both sides.
    good: u8,
    /// The number of comparisons, and the last one.
    compared: u32,
    seen: TableSummary,
    /// The error of the last round.
    error: Option<CommandError>,
}

impl Comparison {
    /// Prepares a comparison without sampling.
    pub(crate) fn new(names: [String; 2], sources: [Source; 2], rules: Rules) -> Self {
        Self {
            table: Table::new(rules.ignore.clone(), rules.increases),
            names,
            sources,
            rules,
            started: Instant::now(),
            forms: [None; 2],
            samples: [0; 2],
            sizes: [(0, 0); 2],
            good: 0,
            compared: 0,
            seen: TableSummary::default(),
            error: None,
        }
    }

    /// Compares until the result is certain.
    async fn once(mut self, fixed: bool, interval: Duration) -> Result<Report> {
        self.sample().await?;
        let mut streak = 0;
        loop {
            if !fixed {
                sleep(interval).await;
            }
            self.sample().await?;
            self.compare(false);
            streak += 1;
            if self.seen.suspects == 0 || fixed || streak == STREAK {
                break;
            }
        }
        self.settle(streak, 1);
        Ok(self.report())
    }

    /// Compares for a fixed time and collects all differences, waiting while a side is unavailable.
    async fn watch(
        mut self,
        time: Duration,
        interval: Duration,
        say: impl Fn(&str),
    ) -> Result<Report> {
        let end = Instant::now() + time;
        // It ends the watch early. The report is still printed, if there is one.
        let mut stop = signal(SignalKind::interrupt())
            .map_err(|error| format!("cannot handle signals: {error}"))?;
        loop {
            tokio::select! {
                _ = self.round(&say) => {}
                _ = stop.recv() => break,
            }
            let next = Instant::now() + interval;
            // Beyond the end there are further rounds only if the result is not certain yet.
            let next = if Instant::now() < end { next.min(end) } else { next };
            tokio::select! {
                () = sleep_until(next.into()) => {}
                _ = stop.recv() => break,
            }
            let is_certain = self.is_conclusive() || self.good == 0;
            if Instant::now() >= end && self.is_settled() && is_certain {
                break;
            }
        }
        let is_certain = self.is_conclusive() || self.differs();
        match (self.compared, self.error.take()) {
            (0, error) => Err(error.unwrap_or_else(|| "never read twice".into())),
            (compared, error) if !is_certain => Err(error.unwrap_or_else(|| {
                format!("{compared} comparisons are too few for a result").into()
            })),
            _ => Ok(self.report()),
        }
    }

    /// Samples both sides and, if the previous samples succeeded too, compares them. Differences
    /// count from their second consecutive comparison. `say` receives the first difference, a new error, and its end.
    /// Returns whether both sides could be read.
    pub(crate) async fn round(&mut self, mut say: impl FnMut(&str)) -> bool {
        let differed = self.differs();
        let error = self.sample().await.err();
        self.good = if error.is_none() { self.good.saturating_add(1) } else { 0 };
        if self.good >= 2 {
            self.compare(true);
            self.settle(STREAK, STREAK);
            self.table.tidy();
        }
        match &error {
            _ if error == self.error => {}
            Some(error) => say(&error.to_string()),
            None => say("both sides respond again"),
        }
        self.error = error;
        if !differed && self.differs() {
            say("there are differences");
        }
        self.error.is_none()
    }

    /// Returns the error of the last round.
    pub(crate) fn error(&self) -> Option<&CommandError> {
        self.error.as_ref()
    }

    /// Returns whether the last samples were compared often enough to confirm a difference, or
    /// cannot be compared at all.
    pub(crate) fn is_settled(&self) -> bool {
        !(1..=STREAK).contains(&self.good)
    }

    /// Returns whether enough comparisons were made to confirm a difference. Lost increases show only
    /// once they exceed those of a round.
    pub(crate) fn is_conclusive(&self) -> bool {
        self.compared >= if self.rules.increases { 2 + u32::from(STREAK) } else { STREAK.into() }
    }

    /// Returns the number of comparisons.
    pub(crate) fn compared(&self) -> u32 {
        self.compared
    }

    /// Returns whether a difference was confirmed.
    pub(crate) fn differs(&self) -> bool {
        self.table.has_found()
    }

    /// Samples both sides, one after the other.
    async fn sample(&mut self) -> Result<()> {
        let Self { table, names, sources, rules, forms, samples, sizes, .. } = self;
        for (side, source) in sources.iter().enumerate() {
            if source.is_fixed() && samples[side] > 0 {
                table.repeat(side);
                continue;
            }
            let read = source.read(table, side, rules.open_metrics, rules.timeout).await;
            forms[side] = Some(read.map_err(|error| format!("{}: {error}", names[side]))?);
            samples[side] += 1;
            sizes[side] = table.size(side);
        }
        Ok(())
    }

    fn compare(&mut self, since_start: bool) {
        let at = self.started.elapsed().as_secs() as u32;
        self.seen = self.table.compare(since_start, at);
        self.compared += 1;
    }

    /// Confirms differences, given the number of consecutive comparisons that must have had them.
    fn settle(&mut self, series: u8, metadata: u8) {
        let at = self.started.elapsed().as_secs() as u32;
        self.table.settle(series, at);
        let one_form = self.forms[0] == self.forms[1];
        for family in self.table.families.iter_mut().filter(|family| !family.ignored) {
            let now = differences(family, one_form);
            family.found.retain(|known| {
                known.is_confirmed || now.iter().any(|(what, ..)| *what == known.what)
            });
            for (what, a, b) in now {
                match family.found.iter_mut().find(|known| known.what == what) {
                    Some(known) => known.again(at, metadata),
                    None => family.found.push(FamilyDifference::new(what, a, b, at, metadata)),
                }
            }
        }
    }

    /// Returns the result so far.
    pub(crate) fn report(&self) -> Report {
        let compared = |side: usize| {
            let (families, series) = self.sizes[side];
            Compared {
                from: self.names[side].clone(),
                format: self.forms[side].unwrap_or(Form::Text),
                families,
                series,
                samples: self.samples[side],
            }
        };
        Report::new(&self.table, [0, 1].map(compared), self.seen, self.rules.examples)
    }
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
pub(crate) fn shown(word: &str) -> String {
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
