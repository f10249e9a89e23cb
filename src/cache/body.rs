//! Expands a snapshot into the exposition, frame by frame.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::buffer_pool::BufferPool;
use super::page::Page;
use super::resource::Resource;
use super::schema::Family;
use crate::exposition::Format;

/// Size in bytes from which on a frame is complete. Its last segment may exceed this: by about 10 KiB, more for
/// objects with many series. Frames of 16–64 KiB cost the server the least CPU.
pub(super) const FRAME: usize = 40 * 1024;

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
    /// Family names whose header was written, or that a resource without objects has claimed. Several resources may
    /// share a name.
    claimed: HashSet<String>,
    /// The names of several families whose series are written together, after one header.
    shared: Arc<HashSet<String>>,
    /// The position after the first family of a shared name, while the others are written.
    back: Option<Position>,
    at: Option<Position>,
}

#[derive(Clone, Copy, Debug)]
struct Position {
    resource: usize,
    family: usize,
    store: usize,
    page: usize,
}

impl Walk {
    pub(super) fn new(
        resources: Arc<[Resource]>,
        names: Option<BTreeSet<String>>,
        shared: Arc<HashSet<String>>,
    ) -> Self {
        let at = Some(Position { resource: 0, family: 0, store: 0, page: 0 });
        Self { resources, names, claimed: HashSet::new(), shared, back: None, at }
    }

    /// Returns the position of the next family with the name of this one.
    fn next_of_name(&self, at: Position, name: &str) -> Option<Position> {
        let resources = self.resources.iter().enumerate().skip(at.resource);
        resources.into_iter().find_map(|(resource, of)| {
            let from = if resource == at.resource { at.family + 1 } else { 0 };
            let mut families = of.schema.families.iter().skip(from);
            let family = from + families.position(|family| family.name == name)?;
            Some(Position { resource, family, store: 0, page: 1 })
        })
    }

    /// Returns true if there are objects of a family, or of others of its name from there on.
    fn has_objects(&self, at: Position, name: &str) -> bool {
        let has = |resource: usize| {
            self.resources[resource].stores.iter().any(|store| !store.pages.is_empty())
        };
        let mut next = Some(at).filter(|_| self.shared.contains(name));
        let others = std::iter::from_fn(|| {
            next = self.next_of_name(next?, name);
            next
        });
        has(at.resource) || others.into_iter().any(|other| has(other.resource))
    }

    /// Returns the family of a step.
    pub(super) fn family(&self, step: &Step) -> &Family {
        &self.resources[step.resource].schema.families[step.family]
    }

    /// Returns true if a step is the first of its resource and the resource has the headers of all its families.
    pub(super) fn opens_all(&self, step: &Step) -> bool {
        let mut others = self.resources[step.resource].schema.families.iter().skip(1);
        let opens = self.names.is_none() && step.family == 0 && step.page.is_none();
        opens
            && !self.shared.contains(&self.family(step).name)
            && !others.any(|family| {
                self.claimed.contains(&family.name) || self.shared.contains(&family.name)
            })
    }

    /// Skips a resource that has the headers of all its families.
    pub(super) fn pass(&mut self, resource: usize) {
        let families = self.resources[resource].schema.families.iter();
        self.claimed.extend(families.map(|family| family.name.clone()));
        self.at = Some(Position { resource: resource + 1, family: 0, store: 0, page: 0 });
    }

    /// Returns true if the query selects a family of this name.
    pub(super) fn wants(&self, name: &str) -> bool {
        wants(self.names.as_ref(), name)
    }

    /// Advances by a bounded number of pages and stores.
    pub(super) fn next(&mut self) -> Progress {
        let mut skipped = 0;
        while skipped < MAX_SKIPPED {
            let Some(mut at) = self.at else {
                return Progress::End;
            };
            let Some(resource) = self.resources.get(at.resource) else {
                self.at = None;
                return Progress::End;
            };
            let Some(family) = resource.schema.families.get(at.family) else {
                self.at =
                    Some(Position { resource: at.resource + 1, family: 0, store: 0, page: 0 });
                continue;
            };
            let after = Position { family: at.family + 1, store: 0, page: 0, ..at };
            if at.store == 0 && at.page == 0 {
                let is_first = !self.claimed.contains(&family.name);
                let is_written = !is_first && self.shared.contains(&family.name);
                if is_written || !wants(self.names.as_ref(), &family.name) {
                    self.at = Some(after);
                    continue;
                }
                // Page 1 of the first store means "header done"; pages are counted from 1.
                self.at = Some(Position { page: 1, ..at });
                if is_first {
                    self.claimed.insert(family.name.clone());
                    if self.has_objects(at, &family.name) {
                        let (resource, family) = (at.resource, at.family);
                        return Progress::Step(Step { resource, family, page: None });
                    }
                }
                continue;
            }
            let Some(store) = resource.stores.get(at.store) else {
                let is_shared = !self.shared.is_empty() && self.shared.contains(&family.name);
                let next = is_shared.then(|| self.next_of_name(at, &family.name)).flatten();
                self.at = match next {
                    Some(next) => {
                        self.back.get_or_insert(after);
                        Some(next)
                    }
                    None => Some(self.back.take().unwrap_or(after)),
                };
                continue;
            };
            let Some(page) = store.pages.get(at.page - 1) else {
                self.at = Some(Position { store: at.store + 1, page: 1, ..at });
                skipped += 1;
                continue;
            };
            at.page += 1;
            self.at = Some(at);
            if page.family(at.family).is_some() {
                let page = Some(Arc::clone(page));
                return Progress::Step(Step { resource: at.resource, family: at.family, page });
            }
            skipped += 1;
        }
        Progress::Yield
    }
}

fn wants(names: Option<&BTreeSet<String>>, name: &str) -> bool {
    names.is_none_or(|names| names.contains(name))
}

/// Appends the series of one family of one page.
pub(super) fn expand(name: &[u8], page: &Page, family: usize, out: &mut Vec<u8>) {
    let Some(segment) = page.family(family) else {
        return;
    };
    let mut identities = page.identities().map(|identities| identities.iter());
    for lines in segment.iter() {
        let identity = identities.as_mut().and_then(Iterator::next).unwrap_or(b"");
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', lines) {
            let rest = &lines[start..=end];
            out.reserve(name.len() + identity.len() + rest.len());
            out.extend_from_slice(name);
            out.extend_from_slice(identity);
            out.extend_from_slice(rest);
            start = end + 1;
        }
    }
}

/// The frames of an uncompressed body.
#[derive(Debug)]
pub(super) struct Body {
    walk: Walk,
    format: Format,
    frames: BufferPool,
}

impl Body {
    pub(super) fn new(
        resources: Vec<Resource>,
        format: Format,
        names: Option<BTreeSet<String>>,
        shared: Arc<HashSet<String>>,
    ) -> Self {
        let walk = Walk::new(resources.into(), names, shared);
        Self { walk, format, frames: BufferPool::default() }
    }
}

impl Iterator for Body {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut frame = self.frames.buffer();
        frame.clear();
        while frame.len() < FRAME {
            let step = match self.walk.next() {
                Progress::Step(step) => step,
                Progress::Yield => break,
                Progress::End if frame.is_empty() => return None,
                Progress::End => break,
            };
            let family = self.walk.family(&step);
            match &step.page {
                None => family.header(self.format, &mut frame),
                Some(page) => {
                    if frame.capacity() == 0 {
                        frame.reserve(FRAME + FRAME / 2);
                    }
                    expand(family.name.as_bytes(), page, step.family, &mut frame);
                }
            }
        }
        let len = frame.len();
        Some(self.frames.frame(frame, len))
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::Snapshot;
    use super::super::{MetricKind, Schema};
    use super::*;

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
        let resource = Resource { schema, stores, part_of: None, is_repeatable: true };
        let mut walk = Walk::new([resource].into(), None, Arc::default());
        let steps = std::iter::from_fn(|| match walk.next() {
            Progress::End => None,
            Progress::Yield => Some(()),
            Progress::Step(step) => panic!("{step:?}"),
        });
        assert_eq!(steps.count(), 2 * 100 / MAX_SKIPPED);
    }
}
