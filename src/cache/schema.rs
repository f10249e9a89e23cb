//! The families of a resource, and the buffer that an object is rendered into.

use std::collections::BTreeMap;

use super::counted_labels::CountedLabels;
use crate::exposition::typed::Kind;
use crate::exposition::{Format, header};

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that goes up and down.
    Gauge,
    /// A monotonic value. In OpenMetrics the family name keeps `_total`, as in kube-state-metrics.
    Counter,
    /// A monotonic value whose OpenMetrics family name omits `_total`, as the specification requires.
    Total,
    /// A constant 1, of type `info` in OpenMetrics and `gauge` in text.
    Info,
    /// A constant 1 whose OpenMetrics family name omits `_info`, as the specification requires.
    InfoSeries,
    /// One of several states, of type `stateset` in OpenMetrics and `gauge` in text.
    StateSet,
}

impl MetricKind {
    /// Returns the type as printed in a `# TYPE` line.
    pub fn text(self, format: Format) -> &'static str {
        match (self, format) {
            (Self::Counter | Self::Total, _) => "counter",
            (Self::Info | Self::InfoSeries, Format::OpenMetrics) => "info",
            (Self::StateSet, Format::OpenMetrics) => "stateset",
            _ => "gauge",
        }
    }

    /// Returns the type in the formats that have neither infos nor state sets.
    pub(super) fn typed(self) -> Kind {
        match self {
            Self::Counter | Self::Total => Kind::Counter,
            _ => Kind::Gauge,
        }
    }
}

/// A metric family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Name of the metric.
    pub name: String,
    /// Complete HELP text, including the stability level, unescaped.
    pub help: String,
    /// Type of the family.
    pub kind: MetricKind,
}

impl Family {
    /// Appends the HELP and TYPE lines.
    pub fn header(&self, format: Format, out: &mut Vec<u8>) {
        let name = match (self.kind, format) {
            (MetricKind::Total | MetricKind::InfoSeries, Format::OpenMetrics) => self.base_name(),
            _ => &self.name,
        };
        header::write(out, format, name, self.kind.text(format), &self.help);
    }

    fn base_name(&self) -> &str {
        let suffix = if self.kind == MetricKind::Total { "_total" } else { "_info" };
        self.name.strip_suffix(suffix).unwrap_or(&self.name)
    }
}

/// The enabled families of one resource, in exposition order.
#[derive(Clone, Debug)]
pub struct Schema {
    /// Name of the resource, as in `--resources`.
    pub resource: String,
    /// Enabled families, in exposition order.
    pub families: Vec<Family>,
}

impl Schema {
    /// Returns the families with the types and names that the OpenMetrics specification allows, where
    /// kube-state-metrics deviates. `names` are those of the exposition.
    pub fn strict_openmetrics(&self, names: &FamilyNames<'_>) -> Self {
        let FamilyNames(names) = names;
        let mut schema = self.clone();
        for family in &mut schema.families {
            let is_free = |suffix: &str| {
                family.name.strip_suffix(suffix).is_some_and(|base| !names.contains_key(base))
            };
            let kind = names.get(family.name.as_str()).copied().flatten();
            // All families of one name have one type.
            family.kind = match kind.unwrap_or(MetricKind::Gauge) {
                MetricKind::Counter if is_free("_total") => MetricKind::Total,
                MetricKind::Info if is_free("_info") => MetricKind::InfoSeries,
                // An info's series must end in `_info`, and a state set's must have a label of the family's name.
                MetricKind::Info | MetricKind::StateSet => MetricKind::Gauge,
                kind => kind,
            };
        }
        schema
    }
}

/// The names of all families of an exposition, with their types; `None` for one of several types.
#[derive(Debug)]
pub struct FamilyNames<'s>(BTreeMap<&'s str, Option<MetricKind>>);

impl<'s> FamilyNames<'s> {
    /// Returns the names of these resources.
    pub fn of(schemas: impl Iterator<Item = &'s Schema>) -> Self {
        let mut names: BTreeMap<&str, Option<MetricKind>> = BTreeMap::new();
        for family in schemas.flat_map(|schema| &schema.families) {
            let kind = names.entry(&family.name).or_insert(Some(family.kind));
            *kind = kind.filter(|kind| *kind == family.kind);
        }
        Self(names)
    }
}

/// The size of objects' text, without family headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of lines, one per series.
    pub series: u64,
    /// Number of uncompressed bytes.
    pub bytes: u64,
}

/// A rendered object: a buffer that is reused for each object.
///
/// A line of family *f* is, in the exposition, `families[f].name` + `identity` + line. With identity labels,
/// `identity` is `{a="x",b="y"` and a line is `,c="z"} 1\n` or `} 1\n`. Without, `identity` is empty and a line is
/// `{c="z"} 1\n` or ` 1\n`. A line has no other newline than the last byte.
#[derive(Clone, Debug, Default)]
pub struct Rendered {
    /// `metadata.uid`, the key of the object.
    pub uid: Vec<u8>,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.namespace`; empty for a cluster-scoped object.
    pub namespace: Vec<u8>,
    /// Text between the name and the rest of each line.
    pub identity: Vec<u8>,
    /// Lines of all families.
    pub lines: Vec<u8>,
    /// End of each family's lines in `lines`.
    pub ends: Vec<u32>,
    /// Number of lines, one per series.
    pub series: u32,
    /// First family that was left empty because its lines exceed the limit.
    pub oversized: Option<usize>,
    /// Label sets for metrics that count objects; these have no lines.
    pub counted: CountedLabels,
}

impl Rendered {
    /// Empties the object, keeping the allocations.
    pub fn clear(&mut self) {
        self.uid.clear();
        self.resource_version.clear();
        self.namespace.clear();
        self.identity.clear();
        self.lines.clear();
        self.ends.clear();
        self.series = 0;
        self.oversized = None;
        self.counted.clear();
    }

    /// Returns the lines of a family.
    pub fn family(&self, family: usize) -> &[u8] {
        let start = family.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.lines[start as usize..self.ends[family] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_lose_their_suffix_by_the_book_in_open_metrics_alone() {
        let family = Family {
            name: "restarts_total".to_owned(),
            help: "Of \"all\".".to_owned(),
            kind: MetricKind::Counter,
        };
        let schema = Schema { resource: "pods".to_owned(), families: vec![family] };
        let header = |schema: &Schema, format| {
            let mut out = Vec::new();
            schema.families[0].header(format, &mut out);
            String::from_utf8(out).unwrap()
        };
        let book = schema.strict_openmetrics(&FamilyNames::of(std::iter::once(&schema)));
        for (schema, format, want) in [
            (&schema, Format::Text, ("restarts_total", "Of \"all\".")),
            (&schema, Format::OpenMetrics, ("restarts_total", "Of \\\"all\\\".")),
            (&book, Format::Text, ("restarts_total", "Of \"all\".")),
            (&book, Format::OpenMetrics, ("restarts", "Of \\\"all\\\".")),
        ] {
            let (name, help) = want;
            let want = format!("# HELP {name} {help}\n# TYPE {name} counter\n");
            assert_eq!(header(schema, format), want);
        }
    }

    #[test]
    fn types_that_open_metrics_ties_to_names_are_kept_by_the_book_where_names_fit() {
        let family =
            |name: &str, kind| Family { name: name.to_owned(), help: "H".to_owned(), kind };
        let families = vec![
            family("a_info", MetricKind::Info),
            family("b", MetricKind::Info),
            family("c", MetricKind::StateSet),
            family("d", MetricKind::Gauge),
            family("d_info", MetricKind::Info),
            family("e_info", MetricKind::Info),
            family("e_info", MetricKind::Gauge),
        ];
        let schema = Schema { resource: "e.io/v1, Resource=as".to_owned(), families };
        let types = |schema: &Schema, format| -> Vec<String> {
            let header = |family: &Family| {
                let mut out = Vec::new();
                family.header(format, &mut out);
                let text = String::from_utf8(out).unwrap();
                text.lines().nth(1).unwrap().trim_start_matches("# TYPE ").to_owned()
            };
            schema.families.iter().map(header).collect()
        };
        let book = schema.strict_openmetrics(&FamilyNames::of(std::iter::once(&schema)));
        let text = ["a_info", "b", "c", "d", "d_info", "e_info", "e_info"]
            .map(|name| format!("{name} gauge"));
        assert_eq!(types(&schema, Format::Text), text);
        assert_eq!(
            types(&schema, Format::OpenMetrics),
            [
                "a_info info",
                "b info",
                "c stateset",
                "d gauge",
                "d_info info",
                "e_info info",
                "e_info gauge"
            ]
        );
        assert_eq!(types(&book, Format::Text), text);
        assert_eq!(types(&book, Format::OpenMetrics)[..3], ["a info", "b gauge", "c gauge"]);
        assert_eq!(types(&book, Format::OpenMetrics)[3..], text[3..]);
    }
}
