//! The text of a snapshot, for cardinality reports.

use super::page::Page;
use super::resource::Resource;
use crate::deflate::{Segment, padded};
use crate::exposition::series_visitor::{FamilySeries, FamilySize, ObjectSeries, SeriesVisitor};

/// The pages of a snapshot.
pub(crate) struct SnapshotText(pub(super) Vec<Resource>);

impl SnapshotText {
    /// Visits everything, in the same order each time. Memory shared by the families of a resource counts for the
    /// first one.
    pub(crate) fn visit(&self, visitor: &mut dyn SeriesVisitor) {
        for resource in &self.0 {
            let pages = || resource.stores.iter().flat_map(|store| &store.pages);
            let mut other: usize = pages().map(|page| page.other_bytes()).sum();
            let families = resource.schema.families.iter().enumerate();
            let families: Vec<_> = families
                .map(|(number, family)| {
                    let own: usize = pages().map(|page| page.family_bytes(number)).sum();
                    let bytes = (own + std::mem::take(&mut other)) as u64;
                    FamilySize { name: &family.name, kind: family.kind.typed(), bytes }
                })
                .collect();
            visitor.families(&families);
            pages().for_each(|page| visitor.objects(&series(page, families.len())));
        }
    }
}

/// Returns the series of a page.
fn series(page: &Page, families: usize) -> ObjectSeries<'_> {
    let identities = padded(page.identities(), page.len());
    ObjectSeries {
        objects: identities.map(|text| text.strip_prefix(b"{").unwrap_or(text)).collect(),
        families: (0..families).map(|number| family_series(page.family(number))).collect(),
    }
}

/// Returns the series of one family. Lines of neighbours that differ only in the value count together.
fn family_series(segment: Option<&Segment>) -> FamilySeries<'_> {
    let mut series = FamilySeries::default();
    // Those of the last object, in the order of its lines.
    let mut last: Vec<(&[u8], u64)> = Vec::new();
    for (slots, lines) in segment.into_iter().flat_map(Segment::runs) {
        let objects = slots.len() as u64;
        let mut count = 0;
        for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let (labels, _) = split_line(line);
            match last.get_mut(count) {
                Some((known, times)) if *known == labels => *times += objects,
                Some(known) => series.labels.push(std::mem::replace(known, (labels, objects))),
                None => last.push((labels, objects)),
            }
            count += 1;
        }
        series.counts.extend(std::iter::repeat_n(count as u64, slots.len()));
    }
    series.labels.append(&mut last);
    series
}

/// Splits what follows the identity in a line into labels, without the comma before and the brace after them, and value.
pub(super) fn split_line(line: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memrchr(b' ', line).unwrap_or(line.len());
    let (labels, value) = line.split_at(end);
    let labels = labels.strip_suffix(b"}").unwrap_or(labels);
    let labels = labels.strip_prefix(b"{").or(labels.strip_prefix(b",")).unwrap_or(labels);
    (labels, value.get(1..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::typed_snapshot::tests::catalog;
    use super::*;
    use crate::exposition::series_visitor::Series;
    use crate::exposition::{Format, ScrapeQuery, Source, labels};

    /// The numbers of series by family and by label.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Counts {
        families: Vec<String>,
        series: BTreeMap<String, u64>,
        labels: BTreeMap<(Vec<u8>, Vec<u8>), u64>,
    }

    impl Counts {
        fn add(&mut self, text: &[u8], series: u64) {
            for (name, value) in labels::iter(text) {
                *self.labels.entry((name.to_vec(), value.to_vec())).or_default() += series;
            }
        }
    }

    impl SeriesVisitor for Counts {
        fn families(&mut self, families: &[FamilySize<'_>]) {
            self.families = families.iter().map(|family| family.name.to_owned()).collect();
        }

        fn series(&mut self, series: &Series<'_>) {
            panic!("{series:?} is not that of an object");
        }

        fn objects(&mut self, objects: &ObjectSeries<'_>) {
            objects.labels().for_each(|(text, series)| self.add(text, series));
            for (family, series) in self.families.iter().zip(&objects.families) {
                let count: u64 = series.counts.iter().sum();
                if count > 0 {
                    *self.series.entry(family.clone()).or_default() += count;
                }
            }
        }
    }

    #[test]
    fn series_and_labels_are_those_of_the_text() {
        let catalog = catalog();
        let (mut counts, mut lines) = (Counts::default(), Counts::default());
        catalog.texts().visit(&mut counts);
        let text: Vec<u8> =
            catalog.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
        for line in text.split(|byte| *byte == b'\n') {
            let name = line.iter().position(|byte| b"{ ".contains(byte)).unwrap_or(line.len());
            let (name, rest) = line.split_at(name);
            if !name.is_empty() && !name.starts_with(b"#") {
                let name = String::from_utf8(name.to_vec()).expect("a name");
                *lines.series.entry(name).or_default() += 1;
                lines.add(rest.strip_prefix(b"{").unwrap_or_default(), 1);
            }
        }
        counts.families.clear();
        assert_eq!(counts, lines);
    }
}
