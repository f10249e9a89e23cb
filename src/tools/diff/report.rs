//! The result of a comparison, as text and as JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::known::{self, DifferenceKind};
use super::source::Form;
use super::table::{Found, Table, TableSummary};
use crate::exposition::labels;
use crate::status::words::{duration, printable};

/// The maximum number of families listed per reason.
const NAMED: usize = 5;

/// One side of a comparison.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    /// The URL without its password, or the file.
    pub from: String,
    pub(super) format: Form,
    pub families: usize,
    pub series: u64,
    /// The number of samples.
    pub samples: u32,
}

/// A difference of a family.
#[derive(Debug, Serialize)]
pub(crate) struct Difference {
    pub what: DifferenceKind,
    /// The number of differing series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<u64>,
    /// The value of each side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
    /// The reason, if `docs/compatibility.md` has one.
    pub explained: Option<&'static str>,
    /// Seconds from the start of the comparison.
    pub first_seen: u32,
    pub last_seen: u32,
}

impl Difference {
    fn new(family: &str, what: DifferenceKind, first_seen: u32, last_seen: u32) -> Self {
        let explained = known::reason(family, what);
        let (series, a, b, examples) = (None, None, None, Vec::new());
        Self { what, series, a, b, examples, explained, first_seen, last_seen }
    }
}

/// A differing series.
#[derive(Debug, Serialize)]
pub(crate) struct Example {
    pub series: String,
    a: Option<String>,
    b: Option<String>,
}

impl Example {
    /// Formats the series with its values.
    pub(crate) fn text(&self, what: DifferenceKind) -> String {
        let series = &self.series;
        let [a, b] = [&self.a, &self.b].map(|value| value.as_deref().unwrap_or("-"));
        match what {
            DifferenceKind::OnlyInA => format!("{series} {a}"),
            DifferenceKind::OnlyInB => format!("{series} {b}"),
            _ => format!("{series} A: {a}, B: {b}"),
        }
    }
}

/// Formats a value in exposition syntax; JSON has neither NaN nor infinities.
fn exposed(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

/// A differing family.
#[derive(Debug, Serialize)]
pub(crate) struct Family {
    pub family: String,
    /// The number of series of the side that has more.
    pub series: u64,
    pub differences: Vec<Difference>,
}

/// The result of a comparison.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// True if all differences are explained.
    same: bool,
    pub a: Compared,
    pub b: Compared,
    /// Series present on both sides, and those of them that changed.
    series_of_both: u64,
    series_that_moved: u64,
    /// Families with unexplained differences.
    pub differing_families: usize,
    pub families: Vec<Family>,
}

/// The detail in which text lists explained differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Explained {
    /// Some families of each reason.
    Some,
    /// All families of each reason, with their numbers of series.
    All,
    /// Like differences without a reason.
    Strict,
}

impl Report {
    /// Builds the report of a table with up to `examples` examples per difference.
    pub(super) fn new(
        table: &Table,
        [a, b]: [Compared; 2],
        seen: TableSummary,
        examples: usize,
    ) -> Self {
        let families = &table.families;
        let mut found: Vec<BTreeMap<DifferenceKind, Difference>> = Vec::new();
        found.resize_with(families.len(), BTreeMap::new);
        for Found { family, what, series, values, first, last } in table.found() {
            let new = || Difference::new(&families[family].name, what, first, last);
            let difference = found[family].entry(what).or_insert_with(new);
            difference.first_seen = difference.first_seen.min(first);
            difference.last_seen = difference.last_seen.max(last);
            *difference.series.get_or_insert(0) += 1;
            if difference.examples.len() < examples {
                let [a, b] = values.map(|value| value.map(exposed));
                difference.examples.push(Example { series: series.to_owned(), a, b });
            }
        }
        // If both sides have series that the other lacks, differing labels are the likely cause.
        let mut names = BTreeMap::<usize, [BTreeSet<&str>; 2]>::new();
        for side in 0..2 {
            let both = [DifferenceKind::OnlyInA, DifferenceKind::OnlyInB];
            let torn = |family: usize| both.iter().all(|what| found[family].contains_key(what));
            for (family, series) in table.of(side).filter(|(family, _)| torn(*family)) {
                names.entry(family).or_default()[side].extend(labels(series));
            }
        }
        for (family, [a, b]) in names.into_iter().filter(|(_, [a, b])| a != b) {
            let alone = |one: &BTreeSet<&str>, other: &BTreeSet<&str>| {
                one.difference(other).copied().collect::<Vec<_>>().join(", ")
            };
            let times = found[family].values().map(|one| (one.first_seen, one.last_seen));
            let (first, last) =
                times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or_default();
            let name = &families[family].name;
            let difference = Difference::new(name, DifferenceKind::Labels, first, last);
            add(&mut found[family], difference, &alone(&a, &b), &alone(&b, &a));
        }
        for (family, found) in families.iter().zip(&mut found) {
            for of in family.found.iter().filter(|of| of.is_confirmed) {
                let difference = Difference::new(&family.name, of.what, of.first, of.last);
                add(found, difference, &of.a, &of.b);
            }
        }
        let found = families.iter().zip(found).filter(|(_, found)| !found.is_empty());
        let mut families: Vec<Family> = found
            .map(|(family, differences)| Family {
                family: family.name.clone(),
                series: family.about[0].series.max(family.about[1].series),
                differences: differences.into_values().collect(),
            })
            .collect();
        families.sort_by(|one, other| one.family.cmp(&other.family));
        let unexplained = |family: &&Family| family.differences.iter().any(is_unexplained);
        let differing_families = families.iter().filter(unexplained).count();
        Self {
            same: differing_families == 0,
            a,
            b,
            series_of_both: seen.both,
            series_that_moved: seen.moved,
            differing_families,
            families,
        }
    }

    /// Returns whether there are no differences; with `strict`, explained ones count too.
    pub(crate) fn is_same(&self, strict: bool) -> bool {
        if strict { self.families.is_empty() } else { self.same }
    }

    /// Formats the report as one line of JSON.
    pub(crate) fn json(&self) -> String {
        // Serialising strings and numbers cannot fail.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// Formats the report for people, with the times of differences if they were watched for long.
    pub(crate) fn text(&self, detail: Explained, times: bool) -> String {
        let strict = detail == Explained::Strict;
        let mut out = String::new();
        for (name, side) in [("A", &self.a), ("B", &self.b)] {
            let Compared { from, format, families, series, samples } = side;
            let often = if *samples == 1 { "once" } else { &format!("{samples} times") };
            let format = format.as_str();
            out += &format!(
                "{name}: {from} ({format}, {families} families, {series} series, read {often})\n"
            );
        }
        let mut reasons: BTreeMap<(&str, DifferenceKind), Vec<(&str, u64)>> = BTreeMap::new();
        for Family { family, series, differences } in &self.families {
            let mut headed = false;
            for difference in differences {
                if let Some(reason) = difference.explained
                    && !strict
                {
                    let families = reasons.entry((reason, difference.what)).or_default();
                    families.push((family, difference.series.unwrap_or(*series)));
                    continue;
                }
                if !std::mem::replace(&mut headed, true) {
                    out += &format!("\n{family}\n");
                }
                difference.write(&mut out, times);
            }
        }
        if !reasons.is_empty() {
            out += "\nexplained (docs/compatibility.md):\n";
        }
        for ((reason, what), families) in reasons {
            write_reason(&mut out, what, reason, &families, detail);
        }
        let Self { series_of_both: both, series_that_moved: moved, .. } = self;
        let verdict = match (strict, self.differing_families, self.families.len()) {
            (false, 0, _) | (true, _, 0) => "no difference".to_owned(),
            (false, 1, _) | (true, _, 1) => "1 family differs".to_owned(),
            (false, some, _) | (true, _, some) => format!("{some} families differ"),
        };
        out += &format!("\n{verdict}; {both} series on both sides, {moved} of them moved\n");
        // Label values come from servers.
        let lines = out.split_terminator('\n').map(printable);
        lines.flat_map(|line| [line, "\n".into()]).collect()
    }
}

impl Difference {
    fn write(&self, out: &mut String, times: bool) {
        let why = match self.explained {
            Some(reason) => format!(" (explained: {reason})"),
            None => String::new(),
        };
        let what = self.what.as_str();
        let series = self.series.map_or(String::new(), |series| format!(": {series} series"));
        let [first, last] = [self.first_seen, self.last_seen].map(|at| duration(at.into()));
        let seen = if times { &format!(", seen from {first} to {last}") } else { "" };
        *out += &format!("  {what}{series}{seen}{why}\n");
        for (side, said) in [("A", &self.a), ("B", &self.b)] {
            if let Some(said) = said {
                *out += &format!("    {side}: {said}\n");
            }
        }
        for example in &self.examples {
            *out += &format!("    {}\n", example.text(self.what));
        }
        let more = self.series.unwrap_or(0).saturating_sub(self.examples.len() as u64);
        if more > 0 {
            *out += &format!("    and {more} more\n");
        }
    }
}

/// Writes the families whose difference has this reason, with their numbers of series.
fn write_reason(
    out: &mut String,
    what: DifferenceKind,
    reason: &str,
    families: &[(&str, u64)],
    detail: Explained,
) {
    let what = what.as_str();
    if detail == Explained::All {
        *out += &format!("  {what}: {reason}\n");
        for (name, series) in families {
            *out += &format!("    {name} ({series} series)\n");
        }
        return;
    }
    let (named, rest) = families.split_at(families.len().min(NAMED));
    let named = named.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let more = match rest.iter().map(|(_, series)| series).sum::<u64>() {
        _ if rest.is_empty() => String::new(),
        series => format!(" and {} more with {series} series", rest.len()),
    };
    *out += &format!("  {what}: {reason}: {named}{more}\n");
}

fn is_unexplained(difference: &Difference) -> bool {
    difference.explained.is_none()
}

/// Adds a difference with the value of each side, unless there is one of its kind.
fn add(to: &mut BTreeMap<DifferenceKind, Difference>, mut new: Difference, a: &str, b: &str) {
    let said = |text: &str| if text.is_empty() { "nothing".to_owned() } else { text.to_owned() };
    (new.a, new.b) = (Some(said(a)), Some(said(b)));
    to.entry(new.what).or_insert(new);
}

/// Returns the label names in the text of a series.
fn labels(series: &str) -> impl Iterator<Item = &str> {
    let labels = series.split_once('{').map_or("", |(_, labels)| labels.trim_end_matches('}'));
    labels::iter(labels.as_bytes()).filter_map(|(name, _)| std::str::from_utf8(name).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_labels() {
        let names = |series| Vec::from_iter(labels(series));
        assert_eq!(names("a"), Vec::<&str>::new());
        assert_eq!(names(r#"a{b="x,y=\"z\"\\",c="",d="é}"}"#), ["b", "c", "d"]);
    }
}
