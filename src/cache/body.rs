//! Expanding a snapshot into the exposition, a frame at a time.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::frames::Frames;
use super::page::Page;
use super::resource::Resource;
use super::schema::Family;
use crate::exposition::Format;

/// A frame is sent when it has this many bytes; the segment that fills it comes on top (about 10 KiB,
/// more for objects with many series). Frames of 16–64 KiB cost the least CPU in the server.
pub(super) const FRAME: usize = 40 * 1024;

/// Pages without a line of a family that are passed over in one go.
const PASSED: usize = if cfg!(test) { 3 } else { 2_000 };

/// Where a walk is after it has gone on.
#[derive(Debug)]
pub(super) enum Walked {
    /// Here something is to be written.
    To(Step),
    /// Past many pages that have nothing.
    OverNothing,
    /// At the end.
    Out,
}

/// What comes next in the exposition of a snapshot.
#[derive(Debug)]
pub(super) struct Step {
    /// Which resource.
    pub(super) resource: usize,
    /// Which of its families.
    pub(super) family: usize,
    /// The page whose series come, or none for the header of the family.
    pub(super) page: Option<Arc<Page>>,
}

/// Walks a snapshot in exposition order: resources by name, families by table, stores, pages.
#[derive(Debug)]
pub(super) struct Walk {
    resources: Arc<[Resource]>,
    names: Option<BTreeSet<String>>,
    /// Names whose header is printed, or claimed by a resource without objects. Only a name that
    /// several resources have needs the note.
    claimed: HashSet<String>,
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
    pub(super) fn new(resources: Arc<[Resource]>, names: Option<BTreeSet<String>>) -> Self {
        let at = Some(Position { resource: 0, family: 0, store: 0, page: 0 });
        Self { resources, names, claimed: HashSet::new(), at }
    }

    /// The family of a step.
    pub(super) fn family(&self, step: &Step) -> &Family {
        &self.resources[step.resource].schema.families[step.family]
    }

    /// Whether a step is the first one of its resource and all its families have their headers there.
    pub(super) fn opens_all(&self, step: &Step) -> bool {
        let mut others = self.resources[step.resource].schema.families.iter().skip(1);
        let opens = self.names.is_none() && step.family == 0 && step.page.is_none();
        opens && !others.any(|family| self.claimed.contains(&family.name))
    }

    /// Goes on behind a resource whose families all have their headers there.
    pub(super) fn pass(&mut self, resource: usize) {
        let families = self.resources[resource].schema.families.iter();
        self.claimed.extend(families.map(|family| family.name.clone()));
        self.at = Some(Position { resource: resource + 1, family: 0, store: 0, page: 0 });
    }

    /// Whether a family of this name is asked for.
    pub(super) fn wants(&self, name: &str) -> bool {
        wants(self.names.as_ref(), name)
    }

    /// Goes on by a bounded number of pages.
    pub(super) fn next(&mut self) -> Walked {
        let mut passed = 0;
        while passed < PASSED {
            let Some(at) = self.at.as_mut() else {
                return Walked::Out;
            };
            let Some(resource) = self.resources.get(at.resource) else {
                self.at = None;
                return Walked::Out;
            };
            let Some(family) = resource.schema.families.get(at.family) else {
                *at = Position { resource: at.resource + 1, family: 0, store: 0, page: 0 };
                continue;
            };
            if at.store == 0 && at.page == 0 {
                if !wants(self.names.as_ref(), &family.name) {
                    at.family += 1;
                    continue;
                }
                // Position 1 of the first store stands for "header done"; pages are counted from there.
                at.page = 1;
                let first = self.claimed.insert(family.name.clone());
                if first && resource.stores.iter().any(|store| !store.pages.is_empty()) {
                    return Walked::To(Step {
                        resource: at.resource,
                        family: at.family,
                        page: None,
                    });
                }
            }
            let Some(store) = resource.stores.get(at.store) else {
                *at = Position { family: at.family + 1, store: 0, page: 0, ..*at };
                continue;
            };
            let Some(page) = store.pages.get(at.page - 1) else {
                *at = Position { store: at.store + 1, page: 1, ..*at };
                continue;
            };
            at.page += 1;
            if page.family(at.family).is_some() {
                let page = Some(Arc::clone(page));
                return Walked::To(Step { resource: at.resource, family: at.family, page });
            }
            passed += 1;
        }
        Walked::OverNothing
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

/// The frames of a plain body.
#[derive(Debug)]
pub(super) struct Body {
    walk: Walk,
    format: Format,
    frames: Frames,
}

impl Body {
    pub(super) fn new(
        resources: Vec<Resource>,
        format: Format,
        names: Option<BTreeSet<String>>,
    ) -> Self {
        Self { walk: Walk::new(resources.into(), names), format, frames: Frames::default() }
    }
}

impl Iterator for Body {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut frame = self.frames.buffer();
        frame.clear();
        while frame.len() < FRAME {
            let step = match self.walk.next() {
                Walked::To(step) => step,
                Walked::OverNothing => break,
                Walked::Out if frame.is_empty() => return None,
                Walked::Out => break,
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
