//! From the registry to exposition bytes: text 0.0.4, OpenMetrics and protobuf, in frames.
//!
//! A [`Scrape`] takes one snapshot of the membership and then writes as it is read, holding no lock: families by name
//! (the user's and our own merged), within a family by number of labels and label values. A series is coherent in
//! itself; its numbers are read when its frame is written, so two series of one body may be as far apart in time as
//! their bytes, as with Prometheus' own client library, which also collects metric by metric.

mod names;
mod protobuf;
mod text;

use std::collections::{BTreeSet, VecDeque};
use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use bytes::Bytes;

use super::clock::{Clock, Moment};
use super::family::{Family, Kind};
use super::metrics::SelfFamily;
use super::observer::{HistogramSpec, NativeView, Observer, SummarySpec};
use super::registry::View;
use super::tree::{Assembly, Entry, Page};
use crate::exposition::Format;

/// A frame is handed on once it has this many bytes.
const FRAME: usize = 48 * 1024;
/// Room for the series that crosses the line.
const SLACK: usize = 8 * 1024;

/// One body being written.
pub(crate) struct Scrape {
    view: View,
    own: Peekable<IntoIter<SelfFamily>>,
    /// Families to write, `None` for all.
    wanted: Option<BTreeSet<String>>,
    clock: Clock,
    page: usize,
    entry: usize,
    /// The family whose series are being written, by its address: the view keeps all families of its pages.
    family: usize,
    /// Whether that family has been announced; it is when its first living series comes.
    announced: bool,
    /// Whether that family is to be written at all.
    selected: bool,
    /// Values of that family read ahead, for a writer that must know its size before it begins.
    ahead: Option<VecDeque<Option<f64>>>,
    scratch: Scratch,
}

/// Buffers kept from series to series.
#[derive(Default)]
struct Scratch {
    values: Vec<Option<f64>>,
    quantiles: Vec<f64>,
    counts: Vec<u64>,
    labels: Assembly,
}

/// The numbers of one observer, taken under its lock.
enum Reading {
    Value(f64),
    Summary { spec: Arc<SummarySpec>, count: u64, sum: f64 },
    Histogram { spec: Arc<HistogramSpec>, count: u64, sum: f64, native: Option<NativeView> },
}

/// Receives what a scrape meets, in exposition order.
trait Writer {
    /// A family begins.
    fn family(&mut self, scrape: &View, family: &Family, out: &mut Vec<u8>);
    /// A counter or gauge of that family.
    fn scalar(
        &mut self,
        family: &Family,
        labels: &[u8],
        value: f64,
        created: u32,
        out: &mut Vec<u8>,
    );
    /// Any other series of that family.
    fn observer(
        &mut self,
        family: &Family,
        labels: &[u8],
        reading: &Reading,
        numbers: (&[f64], &[u64]),
        created: u32,
        out: &mut Vec<u8>,
    );
    /// One of our own families.
    fn own(&mut self, scrape: &View, family: &SelfFamily, out: &mut Vec<u8>);
    /// The family is complete.
    fn end(&mut self, out: &mut Vec<u8>);
    /// Whether [`Writer::plan`] is to be called for all counters or gauges of a family before it begins.
    const PLANS: bool = false;
    /// A counter or gauge that will be written with [`Writer::scalar`].
    fn plan(&mut self, _family: &Family, _labels: &[u8], _value: f64, _created: u32) {}
}

impl Scrape {
    /// Starts a body. `own` are our own families in any order; empty ones are left out.
    pub(crate) fn new(
        view: View,
        mut own: Vec<SelfFamily>,
        wanted: Option<BTreeSet<String>>,
        clock: Clock,
    ) -> Self {
        own.retain(|family| {
            !family.samples.is_empty()
                && wanted.as_ref().is_none_or(|wanted| wanted.contains(family.name))
        });
        own.sort_by_key(|family| family.name);
        Self {
            view,
            own: own.into_iter().peekable(),
            wanted,
            clock,
            page: 0,
            entry: 0,
            family: 0,
            announced: false,
            selected: false,
            ahead: None,
            scratch: Scratch::default(),
        }
    }

    /// The body as text.
    pub(crate) fn text(self, format: Format) -> impl Iterator<Item = Bytes> + Send {
        self.frames(text::TextWriter::new(format))
    }

    /// The body as length-delimited protobuf messages.
    pub(crate) fn protobuf(self) -> impl Iterator<Item = Bytes> + Send {
        let writer = protobuf::ProtobufWriter::new(self.clock.clone());
        self.frames(writer)
    }

    fn frames<W: Writer + Send>(self, writer: W) -> impl Iterator<Item = Bytes> + Send {
        Frames { scrape: self, writer, rest: Bytes::new() }
    }

    /// Writes until `enough` says so or everything is written; returns whether there may be more.
    fn fill(&mut self, writer: &mut impl Writer, out: &mut Vec<u8>, enough: usize) -> bool {
        let view = self.view.clone();
        while let Some(page) = view.pages.page(self.page) {
            if !self.fill_page(&view, page, writer, out, enough) {
                return true;
            }
            self.page += 1;
            self.entry = 0;
        }
        self.finish_family(writer, out);
        self.own_before(None, &view, writer, out);
        false
    }

    /// Writes the rest of a page; returns whether it is complete.
    fn fill_page<W: Writer>(
        &mut self,
        view: &View,
        page: &Page,
        writer: &mut W,
        out: &mut Vec<u8>,
        enough: usize,
    ) -> bool {
        let now = self.clock.now();
        let mut scratch = std::mem::take(&mut self.scratch);
        // Cells and families lie scattered. Touching those of a page in one go lets the processor wait for many of them
        // at once; one after the other they would cost several times the rest of the work.
        scratch.values.clear();
        let mut family = self.family;
        let mut touched = 0u8;
        scratch.values.extend(page.iter().skip(self.entry).map(|(entry, _)| {
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
        let values = std::mem::take(&mut scratch.values);
        let mut complete = true;
        let mut assembly = std::mem::take(&mut scratch.labels);
        assembly.begin(page);
        for ((entry, rest), value) in page.iter().skip(self.entry).zip(&values) {
            if out.len() >= enough {
                complete = false;
                break;
            }
            let at = self.entry;
            self.entry += 1;
            if !self.follows(entry) {
                self.finish_family(writer, out);
                self.own_before(Some(&entry.family.name), view, writer, out);
                let wanted = self.wanted.as_ref();
                self.selected = wanted.is_none_or(|wanted| wanted.contains(&*entry.family.name));
                self.family = address(&entry.family);
                self.ahead = (W::PLANS && self.selected && !entry.handle.slot.is_observer())
                    .then(|| self.read_ahead(view, at, &entry.family, writer));
            }
            if !self.selected {
                continue;
            }
            let family = &*entry.family;
            let labels = assembly.labels(rest);
            let value = match &mut self.ahead {
                Some(ahead) => ahead.pop_front().flatten(),
                None => *value,
            };
            if entry.handle.slot.is_observer() {
                let Some((reading, created)) = read(view, entry, now, &mut scratch) else {
                    continue;
                };
                self.announce(view, family, writer, out);
                let numbers = (&*scratch.quantiles, &*scratch.counts);
                writer.observer(family, labels, &reading, numbers, created, out);
            } else if let Some(value) = value {
                self.announce(view, family, writer, out);
                writer.scalar(family, labels, value, created(view, entry), out);
            }
        }
        scratch.values = values;
        scratch.labels = assembly;
        self.scratch = scratch;
        complete
    }

    /// Reads all values of a family, whose first entry is `at` on the present page, and tells the writer of them.
    fn read_ahead(
        &self,
        view: &View,
        at: usize,
        family: &Arc<Family>,
        writer: &mut impl Writer,
    ) -> VecDeque<Option<f64>> {
        let mut values = VecDeque::new();
        let mut skip = at;
        let mut assembly = Assembly::default();
        for page in (self.page..).map_while(|index| view.pages.page(index)) {
            assembly.begin(page);
            for (entry, rest) in page.iter().skip(std::mem::take(&mut skip)) {
                if !Arc::ptr_eq(&entry.family, family) {
                    return values;
                }
                let cell = view.scalars.get(entry.handle.slot);
                let value = cell.and_then(|cell| cell.read(entry.handle.generation));
                if let Some(value) = value {
                    writer.plan(family, assembly.labels(rest), value, created(view, entry));
                }
                values.push_back(value);
            }
        }
        values
    }

    fn follows(&self, entry: &Entry) -> bool {
        self.family == address(&entry.family)
    }

    fn announce(
        &mut self,
        view: &View,
        family: &Family,
        writer: &mut impl Writer,
        out: &mut Vec<u8>,
    ) {
        if !self.announced {
            self.announced = true;
            writer.family(view, family, out);
        }
    }

    fn finish_family(&mut self, writer: &mut impl Writer, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.announced) {
            writer.end(out);
        }
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
            writer.end(out);
        }
    }
}

fn address(family: &Arc<Family>) -> usize {
    Arc::as_ptr(family).addr()
}

/// Tick in which a counter was created; 0 for a gauge, which has no such time.
fn created(view: &View, entry: &Entry) -> u32 {
    match entry.family.kind {
        Kind::Counter => view.scalars.get(entry.handle.slot).map_or(0, |cell| cell.created()),
        _ => 0,
    }
}

/// Takes the numbers of an observer.
fn read(view: &View, entry: &Entry, now: Moment, scratch: &mut Scratch) -> Option<(Reading, u32)> {
    let handle = entry.handle;
    let mut cell = view.observers.get(handle.slot)?.lock(handle.generation)?;
    let created = cell.created;
    scratch.quantiles.clear();
    scratch.counts.clear();
    let reading = match &mut **cell.observer.as_mut()? {
        Observer::Distinct(set) => Reading::Value(set.estimate(now)),
        Observer::Summary(summary) => {
            summary.quantiles(now, &mut scratch.quantiles);
            Reading::Summary {
                spec: Arc::clone(summary.spec()),
                count: summary.count(),
                sum: summary.sum(),
            }
        }
        Observer::Histogram(histogram) => {
            histogram.cumulative(&mut scratch.counts);
            Reading::Histogram {
                spec: Arc::clone(histogram.spec()),
                count: histogram.count(),
                sum: histogram.sum(),
                native: histogram.native(),
            }
        }
    };
    Some((reading, created))
}

struct Frames<W> {
    scrape: Scrape,
    writer: W,
    /// Written, but too much for one frame.
    rest: Bytes,
}

impl<W: Writer> Iterator for Frames<W> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.rest.is_empty() {
            let mut out = Vec::with_capacity(FRAME + SLACK);
            while self.scrape.fill(&mut self.writer, &mut out, FRAME) && out.is_empty() {}
            self.rest = Bytes::from(out);
        }
        let length = match self.rest.len() {
            length if length <= 2 * FRAME => length,
            _ => FRAME,
        };
        let frame = self.rest.split_to(length);
        (!frame.is_empty()).then_some(frame)
    }
}
