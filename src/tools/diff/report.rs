//! The result of a comparison, as text and as JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};

use super::difference_kind::{DifferenceKind, Side};
use super::known;
use super::source::Form;
use super::table::{Found, Table, TableSummary};
use crate::status::words::printable;

/// The maximum number of families listed per reason.
const NAMED: usize = 5;

/// One side of a comparison.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    /// The URL without its password, or the file.
    pub from: String,
    pub format: Form,
    pub families: usize,
    pub series: u64,
    /// The number of samples.
    pub samples: u32,
}

/// A difference of a family.
#[derive(Debug, Serialize)]
struct Difference {
    what: DifferenceKind,
    /// The number of differing series.
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<u64>,
    /// The value of each side.
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    examples: Vec<Example>,
    /// The reason, if `docs/compatibility.md` has one.
    explained: Option<&'static str>,
}

/// A differing series.
#[derive(Debug, Serialize)]
struct Example {
    series: String,
    a: Number,
    b: Number,
}

/// A value in exposition syntax; JSON has neither NaN nor infinities.
#[derive(Debug)]
struct Number(Option<f64>);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            None => serializer.serialize_none(),
            Some(_) => serializer.serialize_str(&self.text()),
        }
    }
}

impl Number {
    fn text(&self) -> String {
        match self.0 {
            None => "-".to_owned(),
            Some(f64::INFINITY) => "+Inf".to_owned(),
            Some(f64::NEG_INFINITY) => "-Inf".to_owned(),
            Some(value) => value.to_string(),
        }
    }
}

/// A differing family.
#[derive(Debug, Serialize)]
struct Family {
    family: String,
    differences: Vec<Difference>,
}

/// The result of a comparison.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// True if all differences are explained.
    same: bool,
    a: Compared,
    b: Compared,
    /// Series present on both sides, and those of them that changed.
    series_of_both: u64,
    series_that_moved: u64,
    /// Families with unexplained differences.
    differing_families: usize,
    families: Vec<Family>,
}

impl Report {
    /// Builds the report of a table with up to `examples` examples per difference.
    pub(super) fn new(
        table: &Table,
        [a, b]: [Compared; 2],
        seen: TableSummary,
        examples: usize,
    ) -> Self {
        let mut found: BTreeMap<&str, BTreeMap<DifferenceKind, Difference>> = BTreeMap::new();
        let mut torn = BTreeMap::<usize, u8>::new();
        for Found { family: number, what, series, values } in table.found() {
            let name = table.families[number].name.as_str();
            let entry = found.entry(name).or_default().entry(what);
            let difference = entry.or_insert_with(|| Difference {
                what,
                series: Some(0),
                a: None,
                b: None,
                examples: Vec::new(),
                explained: known::reason(name, what),
            });
            *difference.series.get_or_insert(0) += 1;
            if difference.examples.len() < examples {
                let [a, b] = values.map(Number);
                difference.examples.push(Example { series: series.to_owned(), a, b });
            }
            match what {
                DifferenceKind::OnlyInA => *torn.entry(number).or_default() |= 1,
                DifferenceKind::OnlyInB => *torn.entry(number).or_default() |= 2,
                _ => {}
            }
        }
        // If both sides have series that the other lacks, differing labels are the likely cause.
        torn.retain(|_, sides| *sides == 3);
        let labels = Side::BOTH.map(|side| label_names(table, side, &torn));
        for &number in torn.keys() {
            let none = BTreeSet::new();
            let [a, b] = labels.each_ref().map(|labels| labels.get(&number).unwrap_or(&none));
            if a != b {
                let alone = |one: &BTreeSet<&str>, other: &BTreeSet<&str>| {
                    one.difference(other).copied().collect::<Vec<_>>().join(", ")
                };
                let name = table.families[number].name.as_str();
                let said = (DifferenceKind::Labels, alone(a, b), alone(b, a));
                add(found.entry(name).or_default(), name, &said);
            }
        }
        for family in &table.families {
            for said in &family.found {
                add(found.entry(family.name.as_str()).or_default(), &family.name, said);
            }
        }
        let families: Vec<Family> = found
            .into_iter()
            .map(|(name, differences)| Family {
                family: name.to_owned(),
                differences: differences.into_values().collect(),
            })
            .collect();
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

    /// Formats the report for people.
    pub(crate) fn text(&self, strict: bool) -> String {
        let mut out = String::new();
        for (name, side) in [("A", &self.a), ("B", &self.b)] {
            let Compared { from, format, families, series, samples } = side;
            let often = if *samples == 1 { "once" } else { &format!("{samples} times") };
            put(
                &mut out,
                format_args!(
                    "{name}: {from} ({}, {families} families, {series} series, read {often})",
                    format.text()
                ),
            );
        }
        let mut reasons: BTreeMap<(&str, DifferenceKind), Vec<&str>> = BTreeMap::new();
        for Family { family, differences } in &self.families {
            let mut headed = false;
            for difference in differences {
                if let Some(reason) = difference.explained
                    && !strict
                {
                    reasons.entry((reason, difference.what)).or_default().push(family);
                    continue;
                }
                if !std::mem::replace(&mut headed, true) {
                    put(&mut out, format_args!("\n{family}"));
                }
                difference.write(&mut out);
            }
        }
        if !reasons.is_empty() {
            put(&mut out, format_args!("\nexplained (docs/compatibility.md):"));
        }
        for ((reason, what), families) in reasons {
            let more = match families.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let named = families.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
            let what = what.text();
            put(&mut out, format_args!("  {what}: {reason}: {named}{more}"));
        }
        let Self { series_of_both: both, series_that_moved: moved, .. } = self;
        let verdict = match (strict, self.differing_families, self.families.len()) {
            (false, 0, _) | (true, _, 0) => "no difference".to_owned(),
            (false, 1, _) | (true, _, 1) => "1 family differs".to_owned(),
            (false, some, _) | (true, _, some) => format!("{some} families differ"),
        };
        put(
            &mut out,
            format_args!("\n{verdict}; {both} series on both sides, {moved} of them moved"),
        );
        out
    }
}

impl Difference {
    fn write(&self, out: &mut String) {
        let why = match self.explained {
            Some(reason) => format!(" (explained: {reason})"),
            None => String::new(),
        };
        let what = self.what.text();
        match self.series {
            Some(1) => put(out, format_args!("  {what}: 1 series{why}")),
            Some(series) => put(out, format_args!("  {what}: {series} series{why}")),
            None => put(out, format_args!("  {what}{why}")),
        }
        for (side, said) in [("A", &self.a), ("B", &self.b)] {
            if let Some(said) = said {
                put(out, format_args!("    {side}: {said}"));
            }
        }
        for Example { series, a, b } in &self.examples {
            let values = match (self.what, a, b) {
                (DifferenceKind::OnlyInA, value, _) | (DifferenceKind::OnlyInB, _, value) => {
                    value.text()
                }
                (_, a, b) => format!("A: {}, B: {}", a.text(), b.text()),
            };
            put(out, format_args!("    {series} {values}"));
        }
        let shown = self.examples.len() as u64;
        if let Some(more) =
            self.series.map(|all| all.saturating_sub(shown)).filter(|more| *more > 0)
        {
            put(out, format_args!("    and {more} more"));
        }
    }
}

fn is_unexplained(difference: &Difference) -> bool {
    difference.explained.is_none()
}

/// Appends lines. Label values come from servers, so control characters are escaped.
fn put(out: &mut String, lines: std::fmt::Arguments<'_>) {
    for line in lines.to_string().split('\n') {
        out.push_str(&printable(line));
        out.push('\n');
    }
}

fn add(
    to: &mut BTreeMap<DifferenceKind, Difference>,
    family: &str,
    (what, a, b): &(DifferenceKind, String, String),
) {
    let said = |text: &str| if text.is_empty() { "nothing".to_owned() } else { text.to_owned() };
    to.entry(*what).or_insert_with(|| Difference {
        what: *what,
        series: None,
        a: Some(said(a)),
        b: Some(said(b)),
        examples: Vec::new(),
        explained: known::reason(family, *what),
    });
}

/// Returns the label names of the series of some families.
fn label_names<'t>(
    table: &'t Table,
    side: Side,
    families: &BTreeMap<usize, u8>,
) -> BTreeMap<usize, BTreeSet<&'t str>> {
    let mut names = BTreeMap::<usize, BTreeSet<&str>>::new();
    if families.is_empty() {
        return names;
    }
    for (family, series) in table.of(side) {
        if families.contains_key(&family) {
            names.entry(family).or_default().extend(labels(series));
        }
    }
    names
}

/// Returns the label names in the text of a series.
fn labels(series: &str) -> impl Iterator<Item = &str> {
    let mut rest = series.split_once('{').map_or("", |(_, labels)| labels);
    std::iter::from_fn(move || {
        let (name, value) = rest.split_once("=\"")?;
        let mut escaped = false;
        let end = value.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        })?;
        rest = value[end + 1..].trim_start_matches(',');
        Some(name)
    })
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
