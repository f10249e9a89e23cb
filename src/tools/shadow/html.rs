//! The report as a page in one file, which has no scripts and loads nothing.

use maud::{Markup, html};

use super::report::{ShadowReport, Verdict};
use crate::status::words::{clock, count, duration};
use crate::status::{document, drawing, table};
use crate::telemetry::VERSION;
use crate::tools::diff::{Difference, DifferingFamily};

impl ShadowReport {
    /// Renders the page.
    pub(crate) fn html(&self) -> String {
        let now = jiff::Timestamp::now().as_second() as f64;
        let step = self.seconds / f64::from(self.comparisons.max(1));
        let body = html! {
            header {
                h1 { "kstatd next to " (self.program) }
                span.dim { "kstatd " (VERSION) ", " (clock(now, f64::INFINITY)) }
            }
            div class=(self.class()) role="status" {
                strong { (self.word()) } " "
                @for line in self.sentence().split('\n') { div { (line) } }
            }
            h2 { "Costs" }
            section {
                (table(html! { th {} th.n { "original" } th.n { "kstatd" } }, &self.costs, |cost| html! {
                    td { (cost.name) } @for value in cost.shown() { td.n { (value) } }
                }))
            }
            div.grid.wide {
                @for plot in &self.plots {
                    (drawing(plot.title, &[&plot.tracks[0], &plot.tracks[1]], step, ["before the end", "end"], |value| plot.unit.show(value)))
                }
            }
            h2 { "Differences" }
            section { (self.difference_tables()) }
            @if !self.events.is_empty() {
                h2 { "Events" }
                section {
                    (table(html! { th { "after" } th { "event" } }, &self.events, |event| html! {
                        td { (duration(event.seconds as f64)) } td.t { (event.text) }
                    }))
                }
            }
            @for (title, commands) in [("Swap", &self.commands.swap), ("Roll back", &self.commands.roll_back)] {
                h2 { (title) }
                section {
                    @for (number, command) in commands.iter().enumerate() {
                        @if number > 0 { p { "or" } }
                        pre { (command) }
                    }
                }
            }
        };
        document(&format!("kstatd shadow: {}", self.word()), false, &body) + "\n"
    }

    fn word(&self) -> &'static str {
        match self.verdict {
            Verdict::Equal => "EQUAL",
            Verdict::Different => "DIFFERENT",
            Verdict::NotCompared => "NOT COMPARED",
        }
    }

    fn class(&self) -> &'static str {
        if self.verdict == Verdict::Equal { "banner" } else { "banner degraded" }
    }

    fn difference_tables(&self) -> Markup {
        let report = &self.differences;
        let rows = |is_explained: bool| {
            let families = report.families.iter();
            families.flat_map(move |family| {
                let of = family.differences.iter();
                of.filter(move |one| one.explained.is_some() == is_explained)
                    .map(move |one| (family, one))
            })
        };
        html! {
            @for (name, side) in [("A", &report.a), ("B", &report.b)] {
                div {
                    b { (name) } ": " (side.from) ", " (count(side.families as u64)) " families, "
                    (count(side.series)) " series, read " (count(side.samples.into())) " times"
                }
            }
            @if rows(false).next().is_none() { p.ok { "No undocumented difference." } }
            @else { (difference_table(rows(false))) }
            @if rows(true).next().is_some() {
                details {
                    summary { "Documented differences (" (count(rows(true).count() as u64)) ")" }
                    (difference_table(rows(true)))
                }
            }
        }
    }
}

fn difference_table<'r>(
    rows: impl Iterator<Item = (&'r DifferingFamily, &'r Difference)>,
) -> Markup {
    html! {
        div.scroll { table {
            tr { th { "family" } th { "difference" } th.n { "series" } th.n.w { "first seen" } th.n.w { "last seen" } th { "documented" } }
            @for (family, one) in rows {
                tr {
                    td.t { code { (family.family) } }
                    td { (one.what.as_str()) }
                    td.n { (count(one.series.unwrap_or(family.series))) }
                    td.n.w { (duration(one.first_seen.into())) }
                    td.n.w { (duration(one.last_seen.into())) }
                    td.t { @if let Some(reason) = one.explained { (reason) } @else { span.bad { "no" } } }
                }
                @if !one.examples.is_empty() || one.a.is_some() {
                    tr.more { td colspan="6" { pre {
                        @if let (Some(a), Some(b)) = (&one.a, &one.b) { "A: " (a) "\nB: " (b) "\n" }
                        @for example in &one.examples { (example.text(one.what)) "\n" }
                    } } }
                }
            }
        } }
    }
}
