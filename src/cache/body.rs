//! Expands a snapshot into the exposition, frame by frame.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::buffer_pool::BufferPool;
use super::frame_size::{CAPACITY, FRAME, LARGE, divided};
use super::page::Page;
use super::resource::{self, FamilyIndex, Resource};
use super::schema::Family;
use crate::exposition::Format;

/// Number of pages without lines, and of stores without more pages, to skip in one step.
const MAX_SKIPPED: usize = if cfg!(test) { 3 } else { 2_000 };

/// The result of one step of a walk.
#[derive(Debug)]
pub(super) enum Progress {
    /// The next item to write.
    Step(Step),
    /// Many pages without lines, or stores, were skipped.
    Yield,
    /// The walk is complete.
    End,
}

/// An item of the exposition.
#[derive(Debug)]
pub(super) struct Step {
    /// Index of the resource.
    pub(super) resource: usize,
    /// Index of the family in its resource.
    pub(super) family: usize,
    /// Page whose series to write, or `None` for the header of the family.
    pub(super) page: Option<Arc<Page>>,
}

/// A walk over a snapshot in exposition order: by resource, family, store and page.
#[derive(Debug)]
pub(super) struct Walk {
    resources: Arc<[Resource]>,
    names: Option<BTreeSet<String>>,
    /// The selected families in order.
    families: Vec<Listed>,
    /// The position of the next step: the index in `families`, the store and the page.
    family: usize,
    store: usize,
    page: usize,
}

/// A family with its place in the exposition.
#[derive(Debug)]
struct Listed {
    of: FamilyIndex,
    /// True until its header is written, if it has one.
    header: bool,
    /// True if the header of its name is that of a family of its resource, and no family of another one is written below
    /// it.
    is_own: bool,
}

impl Walk {
    /// Returns a walk over the families with these names, or all. If they are grouped, the series of all families of one
    /// name follow its header. Otherwise, those of later resources have no header, even if the first has no objects.
    pub(super) fn new(
        resources: Arc<[Resource]>,
        names: Option<BTreeSet<String>>,
        is_grouped: bool,
    ) -> Self {
        let has_objects = |of: &FamilyIndex| {
            resources[of.resource].stores.iter().any(|store| !store.pages.is_empty())
        };
        let mut families = Vec::new();
        for group in resource::groups(&resources, names.as_ref()) {
            let headed = &group[..if is_grouped { group.len() } else { 1 }];
            let has_header = headed.iter().any(has_objects);
            families.extend(group.iter().enumerate().map(|(number, of)| Listed {
                of: *of,
                header: number == 0 && has_header,
                is_own: headed.iter().all(|other| other.resource == of.resource),
            }));
        }
        if !is_grouped {
            families.sort_unstable_by_key(|family| family.of);
        }
        Self { resources, names, families, family: 0, store: 0, page: 0 }
    }

    /// Returns the family of a step.
    pub(super) fn family(&self, step: &Step) -> &Family {
        &self.resources[step.resource].schema.families[step.family]
    }

    /// Returns true if a step is the first of its resource and the resource has the headers of all its families.
    pub(super) fn opens_all(&self, step: &Step) -> bool {
        let opens = self.names.is_none() && step.family == 0 && step.page.is_none();
        let end = self.family + self.resources[step.resource].schema.families.len();
        let is_own = |family: &Listed| family.is_own && family.of.resource == step.resource;
        opens && self.families.get(self.family..end).is_some_and(|own| own.iter().all(is_own))
    }

    /// Skips a resource that has the headers of all its families, at its first step.
    pub(super) fn pass(&mut self, resource: usize) {
        self.family += self.resources[resource].schema.families.len();
    }

    /// Returns true if the query selects a family of this name.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(name))
    }

    /// Advances by a bounded number of pages and stores.
    pub(super) fn next(&mut self) -> Progress {
        let mut skipped = 0;
        while skipped < MAX_SKIPPED {
            let Some(listed) = self.families.get_mut(self.family) else {
                return Progress::End;
            };
            let FamilyIndex { resource, family } = listed.of;
            if std::mem::take(&mut listed.header) {
                return Progress::Step(Step { resource, family, page: None });
            }
            let Some(store) = self.resources[resource].stores.get(self.store) else {
                (self.family, self.store, self.page) = (self.family + 1, 0, 0);
                continue;
            };
            let Some(page) = store.pages.get(self.page) else {
                (self.store, self.page) = (self.store + 1, 0);
                skipped += 1;
                continue;
            };
            self.page += 1;
            if page.family(family).is_some() {
                let page = Some(Arc::clone(page));
                return Progress::Step(Step { resource, family, page });
            }
            skipped += 1;
        }
        Progress::Yield
    }
}

/// A place in the lines of a family of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Slot of the object.
    pub(super) slot: usize,
    /// Start of the line in the lines of the object.
    line: usize,
}

impl Place {
    /// Returns the place of the first line of an object.
    pub(super) fn of(slot: usize) -> Self {
        Self { slot, line: 0 }
    }
}

/// Appends the series of one family of one page, starting at `from`. Stops when the buffer would have to grow beyond
/// [`FRAME`] bytes, and returns the place of the next line then. So the length is not compared for each line.
pub(super) fn expand(
    name: &[u8],
    page: &Page,
    family: usize,
    from: Place,
    out: &mut Vec<u8>,
) -> Option<Place> {
    let segment = page.family(family)?;
    let mut identities = page.identities().map(|identities| identities.iter_from(from.slot));
    let mut identity = || identities.as_mut().and_then(Iterator::next).unwrap_or(b"");
    let mut objects = segment.iter_from(from.slot);
    if from.line > 0 {
        let rest = objects.next()?.get(from.line..)?;
        if let Some(line) = expand_object(name, identity(), rest, out) {
            return Some(Place { slot: from.slot, line: from.line + line });
        }
    }
    while let Some(lines) = objects.next() {
        if let Some(line) = expand_object(name, identity(), lines, out) {
            return Some(Place { slot: segment.pieces() - objects.len() - 1, line });
        }
    }
    None
}

/// Appends the series of one object. Returns the start of the next line if the buffer is full.
#[inline(always)]
fn expand_object(name: &[u8], identity: &[u8], lines: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', lines) {
        let rest = &lines[start..=end];
        let len = name.len() + identity.len() + rest.len();
        if out.capacity() - out.len() < len && !grow(out, len) {
            return Some(start);
        }
        out.extend_from_slice(name);
        out.extend_from_slice(identity);
        out.extend_from_slice(rest);
        start = end + 1;
    }
    None
}

/// Makes room for `len` bytes. Returns false if the buffer is full instead.
#[cold]
#[inline(never)]
fn grow(out: &mut Vec<u8>, len: usize) -> bool {
    let is_full = out.len() >= FRAME;
    if !is_full {
        out.reserve(len);
    }
    !is_full
}

/// The frames of an uncompressed body.
#[derive(Debug)]
pub(super) struct Body {
    walk: Walk,
    format: Format,
    frames: BufferPool,
    /// Current step and the next line, if the last frame ended within the step.
    rest: Option<(Step, Place)>,
    /// Rest of a frame with a long line.
    large: Bytes,
}

impl Body {
    pub(super) fn new(
        resources: Vec<Resource>,
        format: Format,
        names: Option<BTreeSet<String>>,
        is_grouped: bool,
    ) -> Self {
        let walk = Walk::new(resources.into(), names, is_grouped);
        Self { walk, format, frames: BufferPool::default(), rest: None, large: Bytes::new() }
    }
}

impl Iterator for Body {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if !self.large.is_empty() {
            return Some(divided(&mut self.large));
        }
        let mut frame = self.frames.buffer();
        frame.clear();
        while frame.len() < FRAME {
            let (step, from) = match self.rest.take() {
                Some(rest) => rest,
                None => match self.walk.next() {
                    Progress::Step(step) => (step, Place::default()),
                    Progress::Yield => break,
                    Progress::End if frame.is_empty() => return None,
                    Progress::End => break,
                },
            };
            let family = self.walk.family(&step);
            match &step.page {
                None => family.header(self.format, &mut frame),
                Some(page) => {
                    if frame.capacity() < FRAME {
                        frame.reserve(CAPACITY - frame.len());
                    }
                    let name = family.name.as_bytes();
                    if let Some(next) = expand(name, page, step.family, from, &mut frame) {
                        self.rest = Some((step, next));
                    }
                }
            }
        }
        let len = frame.len();
        if frame.capacity() > LARGE {
            // A buffer that has grown for a long line is not kept.
            self.large = frame.into();
            return Some(divided(&mut self.large));
        }
        Some(self.frames.frame(frame, len))
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::Snapshot;
    use super::super::tests::inflated::inflated;
    use super::super::{Catalog, MetricKind, Rendered, Schema, Store};
    use super::*;
    use crate::exposition::{Piece, ScrapeQuery, Source};

    /// Returns a schema with families of these names.
    fn schema(names: &[&str]) -> Arc<Schema> {
        let family = |name: &&str| Family {
            name: (*name).to_owned(),
            help: "H".to_owned(),
            kind: MetricKind::Gauge,
        };
        let families = names.iter().map(family).collect();
        Arc::new(Schema { resource: "things".to_owned(), families })
    }

    #[test]
    fn the_walk_yields_among_stores_without_pages() {
        let schema = schema(&["things_a", "things_b"]);
        let stores = vec![Snapshot::default(); 100];
        let resource = Resource::new(schema, stores, Arc::default());
        let mut walk = Walk::new([resource].into(), None, false);
        let steps = std::iter::from_fn(|| match walk.next() {
            Progress::End => None,
            Progress::Yield => Some(()),
            Progress::Step(step) => panic!("{step:?}"),
        });
        assert_eq!(steps.count(), 2 * 100 / MAX_SKIPPED);
    }

    /// Objects with a long line, with many lines and with few lines, equal to those of the previous object or not. As
    /// text, compressed by zlib, passed on as text for compression, and encoded from templates.
    #[test]
    fn pieces_of_large_objects_are_bounded() {
        let rest = |number: usize, shape: usize| -> String {
            match shape {
                0 => format!(",a=\"{}\"}} 1\n", "long ".repeat(40_000)),
                1 => format!(",a=\"{number}{}\"}} 1\n", "long ".repeat(40_000)),
                2 => (0..2_000).map(|line| format!(",a=\"{line}\"}} {number}\n")).collect(),
                3 => format!(",a=\"{}\"}} 1\n", "short ".repeat(100)),
                _ => String::new(),
            }
        };
        for (objects, shapes) in [
            (60, &[3, 2, 4][..]),
            (11, &[0, 0, 1, 4, 3]),
            (60, &[0, 1, 2, 3, 3]),
            (300, &[3]),
            (600, &[0, 3, 3, 4, 2, 4, 3, 3, 3, 3, 3]),
        ] {
            let schema = schema(&["things_a", "things_b"]);
            let store = Arc::new(Store::new(Arc::clone(&schema)));
            let mut lines = String::new();
            for number in 0..objects {
                let identity = format!("{{n=\"{number:03}\"");
                let rest = rest(number, shapes[number % shapes.len()]);
                for rest in rest.split_inclusive('\n') {
                    lines.extend(["things_a", &identity, rest]);
                }
                let mut object = Rendered::default();
                object.uid.extend_from_slice(&number.to_le_bytes());
                object.identity.extend_from_slice(identity.as_bytes());
                object.lines.extend_from_slice(rest.as_bytes());
                object.ends = vec![object.lines.len() as u32; 2];
                store.apply(&object);
            }
            let catalog = Catalog::new();
            catalog.register(schema, vec![store]);
            let all = ScrapeQuery::default();
            let names = Some(["things_a".to_owned()].into());
            for query in [&ScrapeQuery { names, ..all.clone() }, &all] {
                let pieces: Vec<Bytes> = catalog.frames(Format::Text, query).collect();
                let lens = || pieces.iter().map(Bytes::len).filter(|len| *len > 0);
                assert!(lens().all(|len| len <= LARGE), "{:?}", lens().max());
                assert!(lens().count() <= lens().sum::<usize>() / FRAME + 2);
                let text = String::from_utf8(pieces.concat()).expect("text");
                let headers = text.lines().filter(|line| line.starts_with('#')).count();
                assert_eq!(headers, if query.names.is_some() { 2 } else { 4 });
                let series = text.split_inclusive('\n').filter(|line| !line.starts_with('#'));
                assert!(series.collect::<String>() == lines);
                for _ in 0..2 {
                    let pieces: Vec<Piece> = catalog.deflated(Format::Text, query).collect();
                    for piece in &pieces {
                        assert!(!matches!(piece, Piece::Text(text) if text.len() > LARGE));
                    }
                    assert!(inflated(pieces.into_iter()) == text.as_bytes());
                }
            }
        }
    }
}
