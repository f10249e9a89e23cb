//! The text of a snapshot, for cardinality reports.

use super::page::Page;
use super::resource::Resource;
use super::schema::Family;

/// A visitor of families and series.
pub(crate) trait SeriesVisitor {
    /// Visits a family, whose series follow. `bytes` is its memory.
    fn family(&mut self, family: &Family, bytes: u64);

    /// Visits the labels of a series, without braces.
    fn series(&mut self, labels: &[u8]);
}

/// The pages of a snapshot.
pub(crate) struct SnapshotText(pub(super) Vec<Resource>);

impl SnapshotText {
    /// Visits everything, in the same order each time. Memory shared by the families of a resource counts for the
    /// first one.
    pub(crate) fn read(&self, reader: &mut dyn SeriesVisitor) {
        for resource in &self.0 {
            let pages = || resource.stores.iter().flat_map(|store| &store.pages);
            let mut other: usize = pages().map(|page| page.other_bytes()).sum();
            for (number, family) in resource.schema.families.iter().enumerate() {
                let own: usize = pages().map(|page| page.family_bytes(number)).sum();
                reader.family(family, (own + std::mem::take(&mut other)) as u64);
                pages().for_each(|page| read(page, number, reader));
            }
        }
    }
}

/// Visits the series of one family.
fn read(page: &Page, family: usize, reader: &mut dyn SeriesVisitor) {
    let Some(segment) = page.family(family) else { return };
    let mut labels = Vec::new();
    for (slot, lines) in segment.iter().enumerate() {
        if lines.is_empty() {
            continue;
        }
        let identity = page.identity(slot);
        labels.clear();
        labels.extend_from_slice(identity.strip_prefix(b"{").unwrap_or(identity));
        let common = labels.len();
        for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let (rest, _) = split_line(line);
            labels.truncate(common);
            labels.extend_from_slice(rest.strip_prefix(b"{").unwrap_or(rest));
            reader.series(&labels);
        }
    }
}

/// Splits the rest of a line behind the identity into its labels, without the closing brace, and its value.
pub(super) fn split_line(line: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memrchr(b' ', line).unwrap_or(line.len());
    let (labels, value) = line.split_at(end);
    (labels.strip_suffix(b"}").unwrap_or(labels), value.get(1..).unwrap_or_default())
}
