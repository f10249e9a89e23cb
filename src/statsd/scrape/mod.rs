//! From the registry to exposition bytes: text 0.0.4, OpenMetrics and the protobuf forms, in pieces.
//!
//! A [`Scrape`] takes one snapshot of the membership and then writes as it is read, holding no lock: families by name
//! (the user's and our own merged), within a family by number of labels and label values. A series is coherent in
//! itself; its numbers are read when its frame is written, so two series of one body may be as far apart in time as
//! their bytes, as with Prometheus' own client library, which also collects metric by metric.
//!
//! Whoever asks for the next piece waits for a bounded amount of work, however many series a family has: a piece is a
//! frame of bytes, or what could be done of one, or empty where the work has no bytes yet. Formats that must know more
//! of a family before they begin than its first series tells go through its series in several [passes](Writer::begin).

mod names;
mod protobuf;
mod recording;
mod text;
mod writer;

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec::IntoIter;

use bytes::Bytes;

use self::recording::Recording;
use self::writer::{Numbers, Passes, Reading, Series, Writer};
use super::clock::{Clock, Moment};
use super::series::cell::Handle;
use super::series::family::{Family, Kind};
use super::series::observer::Observer;
use super::series::registry::View;
use super::series::tree::{Assembly, Entry, Page};
use crate::exposition::Format;
use crate::exposition::family::Family as OwnFamily;
use crate::exposition::prototext::Layout;

/// A frame is handed on once it has this many bytes.
const FRAME: usize = 48 * 1024;
/// Room for the series that crosses the line.
const SLACK: usize = 8 * 1024;
/// Pages of the registry that one piece goes through at most.
const PAGES: usize = 16;
/// Work on one piece ends with the series that crosses this.
const PIECE: Duration = Duration::from_millis(1);

/// One body being written.
pub(crate) struct Scrape {
    view: View,
    own: Peekable<IntoIter<OwnFamily>>,
    /// Families to write, `None` for all.
    wanted: Option<BTreeSet<String>>,
    clock: Clock,
    at: Place,
    /// The family whose series are being written, by its address: the view keeps all families of its pages.
    family: usize,
    /// Where its series begin.
    start: Place,
    passes: Passes,
    /// The present pass.
    pass: u8,
    /// The numbers of that family, if all passes must see the same.
    recording: Recording,
    scratch: Scratch,
}

/// A series of the snapshot.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    page: usize,
    entry: usize,
}

/// Buffers kept from series to series.
#[derive(Default)]
struct Scratch {
    values: Vec<Option<f64>>,
    numbers: Numbers,
    labels: Assembly,
}

impl Scrape {
    /// Starts a body. `own` are our own families in any order; empty ones are left out.
    pub(crate) fn new(
        view: View,
        mut own: Vec<OwnFamily>,
        wanted: Option<BTreeSet<String>>,
        clock: Clock,
    ) -> Self {
        own.retain(|family| {
            !family.series.is_empty()
                && wanted.as_ref().is_none_or(|wanted| wanted.contains(family.name))
        });
        own.sort_by_key(|family| family.name);
        Self {
            view,
            own: own.into_iter().peekable(),
            wanted,
            clock,
            at: Place::default(),
            family: 0,
            start: Place::default(),
            passes: Passes::NONE,
            pass: 0,
            recording: Recording::default(),
            scratch: Scratch::default(),
        }
    }

    /// The body as text.
    pub(crate) fn text(self, format: Format) -> impl Iterator<Item = Bytes> + Send {
        self.frames(text::TextWriter::new(format))
    }

    /// The body as length-delimited protobuf messages.
    pub(crate) fn protobuf(self) -> impl Iterator<Item = Bytes> + Send {
        let writer = protobuf::DelimitedWriter::new(self.clock.clone());
        self.frames(writer)
    }

    /// The body as protobuf text.
    pub(crate) fn prototext(self, layout: Layout) -> impl Iterator<Item = Bytes> + Send {
        let writer = protobuf::ProtoTextWriter::new(self.clock.clone(), layout);
        self.frames(writer)
    }

    fn frames<W: Writer + Send>(self, writer: W) -> impl Iterator<Item = Bytes> + Send {
        Frames { scrape: self, writer, out: Vec::new(), rest: Bytes::new(), more: true }
    }

    /// Writes a piece; returns whether there may be more.
    fn piece(&mut self, writer: &mut impl Writer, out: &mut Vec<u8>) -> bool {
        let view = self.view.clone();
        let started = Instant::now();
        for _ in 0..PAGES {
            if out.len() >= FRAME || started.elapsed() >= PIECE {
                return true;
            }
            match view.pages.page(self.at.page) {
                Some(page) => self.page(&view, page, writer, out, started),
                None if self.end_pass(&view, writer, out) => {}
                None => {
                    self.own_before(None, &view, writer, out);
                    return false;
                }
            }
        }
        true
    }

    /// Writes the rest of a page, or as much of it as belongs to this piece or as there is before an earlier page has to
    /// be gone through again.
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
                self.own_before(Some(&entry.family.name), view, writer, out);
                self.begin_family(view, &entry.family, writer);
            }
            let index = self.at.entry;
            self.at.entry += 1;
            if self.passes.count == 0 {
                continue;
            }
            let family = &*entry.family;
            let labels = scratch.labels.labels(rest);
            let replays = self.passes.same && self.pass > 0;
            if entry.handle.slot.is_observer() {
                let numbers = &mut scratch.numbers;
                let read = if replays {
                    self.recording.observer(numbers)
                } else {
                    let read = read(view, entry, now, writer.needs_numbers(), numbers);
                    if self.passes.same {
                        self.recording.keep_observer(read.as_ref(), numbers);
                    }
                    read
                };
                if let Some((reading, created)) = &read {
                    let series = Series { labels, reading, numbers, created: *created };
                    writer.observer(family, &series, out);
                }
                if started.elapsed() >= PIECE {
                    break;
                }
            } else {
                let read = if replays {
                    self.recording.scalar()
                } else {
                    if !are_read {
                        prefetch(view, page, first, &mut scratch.values);
                        are_read = true;
                    }
                    let value = scratch.values.get(index - first).copied().flatten();
                    let read = value.map(|value| (value, created(view, entry)));
                    if self.passes.same {
                        self.recording.keep_scalar(read);
                    }
                    read
                };
                if let Some((value, created)) = read {
                    writer.scalar(family, labels, value, created, out);
                }
            }
        }
        self.scratch = scratch;
        if self.at.page == here && page.get(self.at.entry).is_none() {
            self.at = Place { page: here + 1, entry: 0 };
        }
    }

    fn begin_family(&mut self, view: &View, family: &Arc<Family>, writer: &mut impl Writer) {
        self.family = address(family);
        self.start = self.at;
        self.pass = 0;
        let selected = self.wanted.as_ref().is_none_or(|wanted| wanted.contains(&*family.name));
        self.passes =
            if selected { writer.passes(view, self.at.page, family) } else { Passes::NONE };
        if self.passes.count > 0 {
            self.recording.clear();
            writer.begin(view, family, 0);
        }
    }

    /// Ends the present pass, if there is one; returns whether the family's series have to be gone through again, for
    /// which they are begun anew.
    fn end_pass(&mut self, view: &View, writer: &mut impl Writer, out: &mut Vec<u8>) -> bool {
        if self.passes.count == 0 {
            return false;
        }
        writer.end(out);
        self.pass += 1;
        if self.pass >= self.passes.count {
            self.passes = Passes::NONE;
            return false;
        }
        self.at = self.start;
        let family = view.pages.page(self.at.page).and_then(|page| page.get(self.at.entry));
        if let Some((entry, _)) = family {
            writer.begin(view, &entry.family, self.pass);
        }
        true
    }

    /// Writes our own families that come before `name`, or all that are left.
    fn own_before(
        &mut self,
        name: Option<&str>,
        view: &View,
        writer: &mut impl Writer,
        out: &mut Vec<u8>,
    ) {
        while let Some(family) = self.own.next_if(|own| name.is_none_or(|name| own.name < name)) {
            writer.own(view, &family, out);
        }
    }
}

fn address(family: &Arc<Family>) -> usize {
    Arc::as_ptr(family).addr()
}

/// Reads the counters and gauges of a page from entry `first` on.
///
/// Cells and families lie scattered. Touching those of a page in one go lets the processor wait for many of them at once;
/// one after the other they would cost several times the rest of the work.
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

/// Tick in which a counter was created; 0 for a gauge, which has no such time, and for what has just gone.
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

/// Takes the numbers of an observer: count and sum, and the others if they are needed.
fn read(
    view: &View,
    entry: &Entry,
    now: Moment,
    needs_numbers: bool,
    numbers: &mut Numbers,
) -> Option<(Reading, u32)> {
    let handle = entry.handle;
    let mut cell = view.observers.get(handle.slot)?.lock(handle.generation)?;
    let created = cell.created;
    numbers.quantiles.clear();
    numbers.counts.clear();
    let reading = match &mut **cell.observer.as_mut()? {
        Observer::Distinct(set) => Reading::Value(set.estimate(now)),
        Observer::Summary(summary) => {
            if needs_numbers {
                summary.quantiles(now, &mut numbers.quantiles);
            }
            Reading::Summary {
                spec: Arc::clone(summary.spec()),
                count: summary.count(),
                sum: summary.sum(),
            }
        }
        Observer::Histogram(histogram) => {
            if needs_numbers {
                histogram.cumulative(&mut numbers.counts);
            }
            Reading::Histogram {
                spec: Arc::clone(histogram.spec()),
                count: histogram.count(),
                sum: histogram.sum(),
                native: histogram.native().filter(|_| needs_numbers),
            }
        }
    };
    Some((reading, created))
}

struct Frames<W> {
    scrape: Scrape,
    writer: W,
    /// Where the next frame is written.
    out: Vec<u8>,
    /// Written, but too much for one frame.
    rest: Bytes,
    more: bool,
}

impl<W: Writer> Iterator for Frames<W> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.rest.is_empty() {
            if !self.more {
                return None;
            }
            self.out.reserve(FRAME + SLACK);
            self.more = self.scrape.piece(&mut self.writer, &mut self.out);
            if self.out.is_empty() {
                return self.more.then(Bytes::new);
            }
            self.rest = Bytes::from(std::mem::take(&mut self.out));
        }
        let length = match self.rest.len() {
            length if length <= 2 * FRAME => length,
            _ => FRAME,
        };
        Some(self.rest.split_to(length))
    }
}

#[cfg(test)]
mod tests;
