//! Writes the series of the registry as text 0.0.4 or OpenMetrics, or passes them to an encoder, in pieces.
//!
//! A [`Scrape`] takes one snapshot of the membership and then writes without a lock: families by name (the
//! user's and our own merged), within a family by number of labels and label values. Each series is
//! consistent in itself. Its values are read when its frame is written, so two series of one body may be as
//! far apart in time as their bytes. Prometheus' own client library, which collects metric by metric, does
//! the same.
//!
//! Each call for the next piece does a bounded amount of work, regardless of the size of a family. A piece is
//! a frame, a part of one, or empty if the work has produced no bytes yet. A format that needs information
//! about all series of a family before it writes the first one reads the family in several
//! [passes](Writer::begin).

mod openmetrics_names;
mod own;
mod text;
mod typed;
mod value_buffer;
mod writer;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use self::own::OwnFamilies;
use self::value_buffer::ValueBuffer;
use self::writer::{Distribution, ObserverSample, Reading, ScalarSample, Series, Writer};
use super::clock::{Clock, Epoch, Moment};
use super::metrics::ConflictSnapshot;
use super::series::cell::Handle;
use super::series::family::{Family, Kind};
use super::series::observer::Observer;
use super::series::registry::View;
use super::series::tree::{Entry, LabelAssembler, Page};
use crate::exposition::Format;
use crate::exposition::family::Family as OwnFamily;
use crate::exposition::frames::{FRAME, Frames};

/// The maximum number of registry pages per piece.
const MAX_PAGES: usize = 16;
/// The time limit of a piece. It ends with the first series after this.
const PIECE_TIME: Duration = Duration::from_millis(1);

/// A response body being written.
pub(crate) struct Scrape {
    view: View,
    own: OwnFamilies,
    /// The families to write; `None` for all.
    wanted: Option<BTreeSet<String>>,
    clock: Clock,
    epoch: Epoch,
    at: SeriesPosition,
    /// The address of the current family. The view keeps all families alive.
    family: usize,
    /// The position of its first series.
    start: SeriesPosition,
    /// The number of passes over it; 0 if it is omitted.
    passes: u8,
    /// The current pass.
    pass: u8,
    /// The values of that family, if all passes must use the same values.
    buffer: ValueBuffer,
    scratch: Scratch,
}

/// The position of a series in the snapshot.
#[derive(Clone, Copy, Debug, Default)]
struct SeriesPosition {
    page: usize,
    entry: usize,
}

/// Buffers reused for each series.
#[derive(Default)]
struct Scratch {
    values: Vec<Option<f64>>,
    distribution: Distribution,
    labels: LabelAssembler,
}

impl Scrape {
    /// Starts a body. `own` are our own families in any order; empty ones are omitted. The family of conflicts has the
    /// series of `conflicts`, if there are any.
    pub(crate) fn new(
        view: View,
        own: Vec<OwnFamily>,
        conflicts: Option<ConflictSnapshot>,
        wanted: Option<BTreeSet<String>>,
        clock: Clock,
    ) -> Self {
        Self {
            view,
            own: OwnFamilies::new(own, conflicts, wanted.as_ref()),
            wanted,
            epoch: clock.epoch(),
            clock,
            at: SeriesPosition::default(),
            family: 0,
            start: SeriesPosition::default(),
            passes: 0,
            pass: 0,
            buffer: ValueBuffer::default(),
            scratch: Scratch::default(),
        }
    }

    /// Writes the body as text. `with_created` adds start times as `_created` samples to OpenMetrics.
    pub(crate) fn text(
        self,
        format: Format,
        with_created: bool,
    ) -> impl Iterator<Item = Bytes> + Send {
        let with_created = with_created && format == Format::OpenMetrics;
        let epoch = with_created.then_some(self.epoch);
        let (mut scrape, mut writer) = (self, text::TextWriter::new(format, epoch));
        Frames::new(move |out| scrape.piece(&mut writer, out))
    }

    /// Writes a piece. Returns true if there may be more.
    fn piece(&mut self, writer: &mut impl Writer, out: &mut Vec<u8>) -> bool {
        let view = self.view.clone();
        let started = Instant::now();
        for _ in 0..MAX_PAGES {
            if out.len() >= FRAME || started.elapsed() >= PIECE_TIME {
                return true;
            }
            match view.pages.page(self.at.page) {
                Some(page) => self.page(&view, page, writer, out, started),
                None if self.end_pass(&view, writer, out) => {}
                None => return !self.write_own_before(None, &view, writer, out, started),
            }
        }
        true
    }

    /// Writes the rest of a page. Stops early at the end of the piece, and if an earlier page must be read
    /// again for the next pass.
    fn page<W: Writer>(
        &mut self,
        view: &View,
        page: &Page,
        writer: &mut W,
        out: &mut Vec<u8>,
        started: Instant,
    ) {
        let now = self.clock.now();
        let here = self.at.page;
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.labels.begin(page);
        let first = self.at.entry;
        let mut are_read = false;
        while let Some((entry, rest)) = page.get(self.at.entry) {
            if out.len() >= FRAME {
                break;
            }
            if self.family != address(&entry.family) {
                if self.end_pass(view, writer, out) {
                    if self.at.page != here || self.at.entry < first {
                        break;
                    }
                    continue;
                }
                if !self.write_own_before(Some(&entry.family.name), view, writer, out, started) {
                    break;
                }
                self.begin_family(view, &entry.family, writer);
            }
            let index = self.at.entry;
            self.at.entry += 1;
            if self.passes == 0 {
                continue;
            }
            let family = &*entry.family;
            let labels = scratch.labels.labels(rest);
            let keeps = W::REUSES_VALUES && self.passes > 1;
            let replays = keeps && self.pass > 0;
            if entry.handle.slot.is_observer() {
                let distribution = &mut scratch.distribution;
                let read = if replays {
                    self.buffer.pop_observer(distribution)
                } else {
                    let read = read(view, entry, now, writer.needs_distribution(), distribution);
                    if keeps {
                        self.buffer.push_observer(read.as_ref(), distribution);
                    }
                    read
                };
                if let Some(ObserverSample { reading, created }) = &read {
                    let series = Series { labels, reading, distribution, created: *created };
                    writer.observer(family, &series, out);
                }
                if started.elapsed() >= PIECE_TIME {
                    break;
                }
            } else {
                let read = if replays {
                    self.buffer.pop_scalar()
                } else {
                    if !are_read {
                        prefetch(view, page, first, &mut scratch.values);
                        are_read = true;
                    }
                    let value = scratch.values.get(index - first).copied().flatten();
                    let read =
                        value.map(|value| ScalarSample { value, created: created(view, entry) });
                    if keeps {
                        self.buffer.push_scalar(read);
                    }
                    read
                };
                if let Some(read) = read {
                    writer.scalar(family, labels, read, out);
                }
            }
        }
        self.scratch = scratch;
        if self.at.page == here && page.get(self.at.entry).is_none() {
            self.at = SeriesPosition { page: here + 1, entry: 0 };
        }
    }

    fn begin_family(&mut self, view: &View, family: &Arc<Family>, writer: &mut impl Writer) {
        self.family = address(family);
        self.start = self.at;
        self.pass = 0;
        let selected = self.wanted.as_ref().is_none_or(|wanted| wanted.contains(&*family.name))
            && !view.is_hidden(family);
        self.passes = if selected { writer.passes(view, self.at.page, family) } else { 0 };
        if self.passes > 0 {
            self.buffer.clear();
            writer.begin(view, family, 0);
        }
    }

    /// Ends the current pass, if any. Returns true if another pass over the family has begun.
    fn end_pass(&mut self, view: &View, writer: &mut impl Writer, out: &mut Vec<u8>) -> bool {
        if self.passes == 0 {
            return false;
        }
        writer.end(out);
        self.pass += 1;
        if self.pass >= self.passes {
            self.passes = 0;
            return false;
        }
        self.at = self.start;
        let family = view.pages.page(self.at.page).and_then(|page| page.get(self.at.entry));
        if let Some((entry, _)) = family {
            writer.begin(view, &entry.family, self.pass);
        }
        true
    }

    /// Writes our own families that come before `name`, or all that are left. Returns false at the end of the piece, if
    /// some are left.
    fn write_own_before(
        &mut self,
        name: Option<&str>,
        view: &View,
        writer: &mut impl Writer,
        out: &mut Vec<u8>,
        started: Instant,
    ) -> bool {
        self.own.write_before(name, view, writer, out, (started, PIECE_TIME))
    }
}

fn address(family: &Arc<Family>) -> usize {
    Arc::as_ptr(family).addr()
}

/// Reads the counters and gauges of a page from entry `first` on.
///
/// Cells and families are scattered in memory. Reading those of a page in one loop lets the processor overlap
/// the cache misses; one at a time they would take several times as long as the rest of the work.
fn prefetch(view: &View, page: &Page, first: usize, values: &mut Vec<Option<f64>>) {
    let mut family = 0;
    let mut touched = 0u8;
    values.clear();
    values.extend(page.iter().skip(first).map(|(entry, _)| {
        let here = address(&entry.family);
        if family != here {
            family = here;
            touched ^= entry.family.name.as_bytes().first().copied().unwrap_or_default();
        }
        let handle = entry.handle;
        if handle.slot.is_observer() {
            return None;
        }
        view.scalars.get(handle.slot)?.read(handle.generation)
    }));
    std::hint::black_box(touched);
}

/// Returns the tick in which a counter was created; 0 for a gauge, which has no creation time, and for an
/// expired series.
fn created(view: &View, entry: &Entry) -> u32 {
    let Handle { slot, generation } = entry.handle;
    match entry.family.kind {
        Kind::Counter => {
            let cell = view.scalars.get(slot);
            cell.and_then(|cell| cell.created(generation)).unwrap_or_default()
        }
        _ => 0,
    }
}

/// Reads an observer under its lock: count and sum, and quantiles or buckets if they are needed.
fn read(
    view: &View,
    entry: &Entry,
    now: Moment,
    needs_distribution: bool,
    distribution: &mut Distribution,
) -> Option<ObserverSample> {
    let handle = entry.handle;
    let mut cell = view.observers.get(handle.slot)?.lock(handle.generation)?;
    let created = cell.created;
    distribution.quantiles.clear();
    distribution.counts.clear();
    let reading = match &mut **cell.observer.as_mut()? {
        Observer::Distinct(set) => Reading::Value(set.estimate(now)),
        Observer::Summary(summary) => {
            if needs_distribution {
                summary.quantiles(now, &mut distribution.quantiles);
            }
            Reading::Summary {
                spec: Arc::clone(&summary.spec),
                count: summary.count,
                sum: summary.sum,
            }
        }
        Observer::Histogram(histogram) => {
            if needs_distribution {
                histogram.cumulative(&mut distribution.counts);
            }
            Reading::Histogram {
                spec: Arc::clone(&histogram.spec),
                count: histogram.count,
                sum: histogram.sum,
                native: histogram.native().filter(|_| needs_distribution),
            }
        }
    };
    Some(ObserverSample { reading, created })
}

#[cfg(test)]
mod tests;
