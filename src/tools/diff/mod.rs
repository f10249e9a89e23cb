//! `kstatd diff`: two expositions by family, series, value, type, help and labels.
//!
//! The two sides are read in turn, each twice and, if they seem to differ, a third time: A, B, a moment, A, B. A series differs
//! where it did so in two comparisons of two samples each, so that neither what comes and goes nor what moves is taken for a
//! difference ([`movement`]). What is never read twice is a file. Everything is in one [`table`].

mod known;
mod movement;
mod report;
mod source;
mod table;
mod what;

use std::time::{Duration, Instant};

use regex::Regex;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, sleep_until};

use crate::kube::client::endpoint::Access;
pub(crate) use movement::Manner;
use report::Compared;
pub(crate) use report::Report;
use source::{Form, Source};
use table::{About, Family, Seen, Table};
use what::{Side, What};

/// In how many comparisons in a row something has to differ.
const STREAK: u8 = 2;

/// What is compared, and how.
pub(crate) struct Options {
    /// URLs, files, or `-` for standard input.
    pub sides: [String; 2],
    /// For both, as far as they are URLs.
    pub access: Access,
    /// What servers are told of us.
    pub user_agent: String,
    /// Whether servers are asked for OpenMetrics.
    pub open_metrics: bool,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Between two samples.
    pub interval: Duration,
    /// How long it goes on; just as long as it needs otherwise.
    pub watch: Option<Duration>,
    /// Names of families that are not looked at.
    pub ignore: Vec<Regex>,
    /// How values are compared.
    pub manner: Manner,
    /// Series shown for each difference.
    pub examples: usize,
}

/// Compares. `say` is told what happens while it goes on.
///
/// # Errors
/// A side cannot be read.
pub(crate) async fn run(options: Options, say: impl Fn(&str)) -> Result<Report, String> {
    let [a, b] = &options.sides;
    if a == "-" && b == "-" {
        return Err("standard input can be one side alone".to_owned());
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
    /// What each side was in.
    forms: [Option<Form>; 2],
    /// How often each was read.
    samples: [u32; 2],
    /// Families and series of each, when it was last read to its end.
    sizes: [(usize, u64); 2],
}

impl Comparison<'_> {
    /// Compares until it is sure.
    async fn once(mut self, fixed: bool) -> Result<Report, String> {
        self.sample().await?;
        let mut streak = 0;
        let seen = loop {
            if !fixed {
                sleep(self.options.interval).await;
            }
            self.sample().await?;
            let seen = self.table.compare(self.options.manner);
            streak += 1;
            if seen.suspects == 0 || fixed || streak == STREAK {
                break seen;
            }
        };
        self.table.settle(streak);
        self.compare_families();
        Ok(self.report(seen))
    }

    /// Compares for so long, and keeps all that was found. Who is away meanwhile is waited for.
    async fn watch(mut self, time: Duration, say: impl Fn(&str)) -> Result<Report, String> {
        let end = Instant::now() + time;
        let mut seen = None;
        // Samples in a row that both sides gave.
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
                        say("both sides answer again");
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
                seen = Some(self.table.compare(self.options.manner));
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
            // However short the time is, what differs has to have done so often enough.
            if Instant::now() >= end && !(1..=STREAK).contains(&good) {
                break;
            }
        }
        match (seen, last_error) {
            (Some(seen), _) => Ok(self.report(seen)),
            (None, error) => Err(error.unwrap_or_else(|| "never read twice".to_owned())),
        }
    }

    /// Takes a sample of each side, one after the other.
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

    /// Notes in what families differ beside their series.
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

    fn report(self, seen: Seen) -> Report {
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

/// What asks for an early end, from now on: an interrupt ends the watching, not the report.
fn stop() -> std::io::Result<Signal> {
    signal(SignalKind::interrupt())
}

/// In what a family differs beside its series.
fn differences(family: &Family, one_form: bool) -> Vec<(What, String, String)> {
    let [a, b] = &family.about;
    let mut found = Vec::new();
    let mut add = |what: What, a: &str, b: &str| {
        if a != b {
            found.push((what, a.to_owned(), b.to_owned()));
        }
    };
    match (a.is_there(), b.is_there()) {
        // Its series say so, if it has any.
        (true, false) if a.series == 0 => add(What::OnlyInA, "no series", ""),
        (false, true) if b.series == 0 => add(What::OnlyInB, "", "no series"),
        (true, true) => {
            let [kind_a, kind_b] =
                [a, b].map(|about| kind(about.kind.as_deref().unwrap_or("untyped"), one_form));
            add(What::Type, kind_a, kind_b);
            let [(mark_a, help_a), (mark_b, help_b)] =
                [a, b].map(|about| marked(about.help.as_deref().unwrap_or_default()));
            add(What::Stability, mark_a, mark_b);
            add(What::Help, help_a, help_b);
            if one_form {
                let name = |about: &About| about.announced.clone().unwrap_or_default();
                add(What::Name, &name(a), &name(b));
                let bounds = |about: &About| if about.decimal { "1.0" } else { "1" };
                if a.series > 0 && b.series > 0 {
                    add(What::Bounds, bounds(a), bounds(b));
                }
            }
            add(What::Repeated, &a.repeated.to_string(), &b.repeated.to_string());
        }
        _ => {}
    }
    found
}

/// A type; in one format where the sides are in two, as text 0.0.4 has fewer.
fn kind(kind: &str, one_form: bool) -> &str {
    match kind {
        "unknown" | "untyped" => "untyped",
        "info" | "stateset" if !one_form => "gauge",
        kind => kind,
    }
}

/// A HELP as its marks of stability and deprecation, and the sentence.
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

/// A side as it may be shown: without a password.
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
    fn marks_stand_before_the_sentence() {
        assert_eq!(marked("Words."), ("", "Words."));
        assert_eq!(marked("[STABLE] Words."), ("[STABLE]", "Words."));
        let both = "[STABLE] (Deprecated since 2.1) Words.";
        assert_eq!(marked(both), ("[STABLE] (Deprecated since 2.1)", "Words."));
        assert_eq!(marked(""), ("", ""));
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(shown("http://u:p@x@h:1/m?a@b"), "http://h:1/m?a@b");
        assert_eq!(shown("http://h/m@n"), "http://h/m@n");
        assert_eq!(shown("-"), "standard input");
    }
}
