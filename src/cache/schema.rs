//! What a store holds for each object: the families of a resource, and the scratch an object is
//! rendered into.

use std::collections::BTreeMap;

use super::counted::Counted;
use crate::exposition::{Format, header};

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only goes up. In OpenMetrics too the family has the name of its series, as kube-state-metrics has it.
    Counter,
    /// The same, its family named as OpenMetrics wants it: without the `_total` of its series.
    Total,
    /// Always 1; OpenMetrics only, text prints `gauge`.
    Info,
    /// The same, its family named as OpenMetrics wants it: without the `_info` of its series.
    InfoSeries,
    /// One of several states; OpenMetrics only, text prints `gauge`.
    StateSet,
}

impl MetricKind {
    /// The word after `# TYPE name`.
    #[must_use]
    pub fn text(self, format: Format) -> &'static str {
        match (self, format) {
            (Self::Counter | Self::Total, _) => "counter",
            (Self::Info | Self::InfoSeries, Format::OpenMetrics) => "info",
            (Self::StateSet, Format::OpenMetrics) => "stateset",
            _ => "gauge",
        }
    }
}

/// One metric family.
#[derive(Clone, Debug)]
pub struct Family {
    /// The metric's name.
    pub name: String,
    /// The whole HELP text, stability mark included, not yet escaped.
    pub help: String,
    /// Its type.
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

/// The families of one resource that are switched on, in exposition order.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The resource's name, as in `--resources`.
    pub resource: String,
    /// The families.
    pub families: Vec<Family>,
}

impl Schema {
    /// The same families under names that the specification of OpenMetrics allows, where those of kube-state-metrics are
    /// others.
    #[must_use]
    pub fn by_the_book(&self) -> Self {
        let mut schema = self.clone();
        let mut names: BTreeMap<&str, Option<MetricKind>> = BTreeMap::new();
        for family in &self.families {
            let kind = names.entry(&family.name).or_insert(Some(family.kind));
            *kind = kind.filter(|kind| *kind == family.kind);
        }
        for family in &mut schema.families {
            let is_free = |suffix: &str| {
                family.name.strip_suffix(suffix).is_some_and(|base| !names.contains_key(base))
            };
            let kind = names.get(family.name.as_str()).copied().flatten();
            // Of one name there is one type.
            family.kind = match kind.unwrap_or(MetricKind::Gauge) {
                MetricKind::Counter if is_free("_total") => MetricKind::Total,
                MetricKind::Info if is_free("_info") => MetricKind::InfoSeries,
                // The series of an info end in `_info`, and those of a state set have a label of its name.
                MetricKind::Info | MetricKind::StateSet => MetricKind::Gauge,
                kind => kind,
            };
        }
        schema
    }
}

/// How large the text of objects is, without the headers of families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Lines: one for each series.
    pub series: u64,
    /// Bytes, uncompressed.
    pub bytes: u64,
}

/// One object, rendered: scratch space that is filled again for each object.
///
/// A line of family *f* reads, in the exposition, `families[f].name` + `identity` + line. With identity
/// labels, `identity` is `{a="x",b="y"` and a line continues with `,c="z"} 1\n` or `} 1\n`; without,
/// `identity` is empty and a line is `{c="z"} 1\n` or ` 1\n`. Escaping makes the newline at its end the
/// only one in a line.
#[derive(Clone, Debug, Default)]
pub struct Rendered {
    /// `metadata.uid`: the key of the object.
    pub uid: Vec<u8>,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.namespace`, empty for an object of none.
    pub namespace: Vec<u8>,
    /// What every line of the object has between name and rest.
    pub identity: Vec<u8>,
    /// The lines of all families, one after the other.
    pub lines: Vec<u8>,
    /// For each family of the schema, where its lines end in `lines`.
    pub ends: Vec<u32>,
    /// How many lines there are.
    pub series: u32,
    /// The first family that has no lines, because they would be too many.
    pub oversized: Option<usize>,
    /// What the object is counted in, which is no line of its own.
    pub counted: Counted,
}

impl Rendered {
    /// Empties everything, keeping the allocations.
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

    /// The lines of family number `family`.
    #[must_use]
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
        let book = schema.by_the_book();
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
        let book = schema.by_the_book();
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
