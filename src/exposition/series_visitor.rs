//! The interface between a store of series and a report that counts them.

use std::time::Duration;

use super::typed::Kind;

/// A receiver of all series.
pub(crate) trait SeriesVisitor {
    /// Starts families, whose series follow.
    fn families(&mut self, families: &[FamilySize<'_>]);

    /// Receives a series of the last family.
    fn series(&mut self, series: &Series<'_>);

    /// Receives the series of objects.
    fn objects(&mut self, objects: &ObjectSeries<'_>);
}

/// A family without its series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FamilySize<'a> {
    /// The name.
    pub(crate) name: &'a str,
    /// The metric type.
    pub(crate) kind: Kind,
    /// The memory it takes apart from that of [`Series::bytes`].
    pub(crate) bytes: u64,
}

/// A label set of a family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Series<'a> {
    /// The rendered labels.
    pub(crate) labels: &'a [u8],
    /// The number of its lines in the text format.
    pub(crate) samples: u64,
    /// The memory it takes.
    pub(crate) bytes: u64,
    /// The time of creation since the Unix epoch, if known.
    pub(crate) created: Option<Duration>,
}

/// Series of objects. All series of an object have its labels, so that these need not be counted once for each series.
#[derive(Debug)]
pub(crate) struct ObjectSeries<'a> {
    /// The rendered labels of each object.
    pub(crate) objects: Vec<&'a [u8]>,
    /// The series in each of the families.
    pub(crate) families: Vec<FamilySeries<'a>>,
}

/// The series of several objects in a family.
#[derive(Debug, Default)]
pub(crate) struct FamilySeries<'a> {
    /// The number of series of each object. The last objects may be missing.
    pub(crate) counts: Vec<u64>,
    /// The rendered labels that are not those of an object, each with the number of series in a row that have them.
    pub(crate) labels: Vec<(&'a [u8], u64)>,
}

impl<'a> ObjectSeries<'a> {
    /// Returns all labels, each with the number of series that have them.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&'a [u8], u64)> {
        let mut totals = vec![0; self.objects.len()];
        for family in &self.families {
            totals.iter_mut().zip(&family.counts).for_each(|(total, count)| *total += count);
        }
        let others = self.families.iter().flat_map(|family| family.labels.iter().copied());
        self.objects.iter().copied().zip(totals).chain(others)
    }
}
