//! Restricts a snapshot to the objects of some namespaces.
//!
//! A page whose objects all match is shared, including everything memoized with it. A page with other objects, too, is
//! copied without them for this scrape; there are few of these, because objects are ordered by identity. The result is
//! then written like any other snapshot. Pages are filtered before the body begins, a bounded number in one step.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::page::Page;
use super::resource::Resource;
use super::store::Snapshot;
use crate::deflate::Scratch;

/// Maximum work per step; checking a page costs 1.
const STEP: usize = if cfg!(test) { 70 } else { 4_096 };

/// Cost of copying a part of a page.
const CUT: usize = 64;

/// The progress of the filter.
struct NamespaceFilter {
    namespaces: BTreeSet<Vec<u8>>,
    /// Resources to filter, last one first.
    rest: Vec<Resource>,
    done: Vec<Resource>,
    /// Filtered stores of the current resource; the last one may be incomplete.
    stores: Vec<Snapshot>,
    /// Number of pages of the current store that were checked.
    page: usize,
    scratch: Scratch,
}

impl NamespaceFilter {
    /// Does a bounded amount of work. Returns the result when it is complete, without resources that have no matching
    /// objects.
    fn step(&mut self) -> Option<Vec<Resource>> {
        let mut work = 0;
        while let Some(resource) = self.rest.last() {
            let Some(store) = resource.stores.get(self.stores.len().saturating_sub(1)) else {
                self.next_resource();
                continue;
            };
            if self.stores.is_empty() {
                self.stores.push(Snapshot::default());
            }
            let Some(page) = store.pages.get(self.page) else {
                self.page = 0;
                if self.stores.len() == resource.stores.len() {
                    self.next_resource();
                } else {
                    self.stores.push(Snapshot::default());
                }
                continue;
            };
            self.page += 1;
            work += 1;
            if let Some(kept) = filter_page(page, &self.namespaces, &mut self.scratch) {
                work += if Arc::ptr_eq(&kept, page) { 0 } else { CUT };
                self.stores.last_mut()?.pages.push(kept);
            }
            if work >= STEP {
                return None;
            }
        }
        Some(std::mem::take(&mut self.done))
    }

    fn next_resource(&mut self) {
        let stores = std::mem::take(&mut self.stores);
        self.page = 0;
        let Some(whole) = self.rest.pop() else { return };
        if stores.iter().any(|store| !store.pages.is_empty()) {
            let schema = Arc::clone(&whole.schema);
            self.done.push(Resource { schema, stores, part_of: Some(Arc::new(whole)) });
        }
    }
}

/// Returns a page of the objects in these namespaces; `None` if there are none.
fn filter_page(
    page: &Arc<Page>,
    namespaces: &BTreeSet<Vec<u8>>,
    scratch: &mut Scratch,
) -> Option<Arc<Page>> {
    let slots = page.slots_of(namespaces);
    if slots == 0 {
        None
    } else if page.is_all(slots) {
        Some(Arc::clone(page))
    } else {
        Some(Arc::new(page.only(slots, scratch)))
    }
}

/// A body of the matching objects: empty pieces while the filter runs, then the pieces of the body.
pub(super) struct FilteredBody<B: Iterator> {
    filter: Option<(NamespaceFilter, Make<B>)>,
    body: Option<B>,
    nothing: fn() -> B::Item,
}

/// The function that starts the body.
type Make<B> = Box<dyn FnOnce(Vec<Resource>) -> B + Send>;

impl<B: Iterator> FilteredBody<B> {
    pub(super) fn new(
        mut resources: Vec<Resource>,
        namespaces: &BTreeSet<String>,
        make: impl FnOnce(Vec<Resource>) -> B + Send + 'static,
        nothing: fn() -> B::Item,
    ) -> Self {
        resources.reverse();
        let filter = NamespaceFilter {
            namespaces: namespaces.iter().map(|name| name.clone().into_bytes()).collect(),
            rest: resources,
            done: Vec::new(),
            stores: Vec::new(),
            page: 0,
            scratch: Scratch::default(),
        };
        Self { filter: Some((filter, Box::new(make))), body: None, nothing }
    }
}

impl<B: Iterator> Iterator for FilteredBody<B> {
    type Item = B::Item;

    fn next(&mut self) -> Option<B::Item> {
        if let Some((filter, _)) = &mut self.filter {
            let Some(resources) = filter.step() else { return Some((self.nothing)()) };
            let (_, make) = self.filter.take()?;
            self.body = Some(make(resources));
        }
        self.body.as_mut()?.next()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Catalog, Family, MetricKind, Rendered, Schema, Store, inflated};
    use super::*;
    use crate::exposition::{Format, Piece, ScrapeQuery, Source};

    fn schema(resource: &str) -> Arc<Schema> {
        let family = |name: String| Family { name, help: "H.".to_owned(), kind: MetricKind::Gauge };
        let names = ["a", "b"].map(|family_name| family(format!("{resource}_{family_name}")));
        Arc::new(Schema { resource: resource.to_owned(), families: names.into() })
    }

    /// Returns an object of namespace `n{namespace}`, or of none, whose first label may be another one.
    fn object(number: u32, namespace: Option<u32>, first: &str) -> Rendered {
        let mut out = Rendered::default();
        out.uid.extend_from_slice(&number.to_le_bytes());
        let name = namespace.map_or(String::new(), |namespace| format!("n{namespace}"));
        out.namespace.extend_from_slice(name.as_bytes());
        let identity = format!("{{{first}=\"{name}\",x=\"{number}\"");
        out.identity.extend_from_slice(identity.as_bytes());
        out.lines.extend_from_slice(format!("}} {number}\n").as_bytes());
        out.ends.push(out.lines.len() as u32);
        for label in 0..number % 4 {
            out.lines.extend_from_slice(format!(",l=\"{label}\"}} 1\n").as_bytes());
        }
        out.ends.push(out.lines.len() as u32);
        out
    }

    /// Returns a catalog with namespaced objects in order and in random order, cluster-scoped objects, and two stores
    /// per resource.
    fn catalog(count: u32) -> Catalog {
        let catalog = Catalog::new();
        for (resource, of, step) in [("apps", 20, 1), ("pods", 7, 1_237), ("zones", 0, 1)] {
            let schema = schema(resource);
            let stores: Vec<_> =
                (0..2).map(|_| Arc::new(Store::new(Arc::clone(&schema)))).collect();
            let mut lists: Vec<_> = stores.iter().map(Store::replace).collect();
            for place in 0..count {
                let number = place * step % count;
                // Neighbours belong to the same namespace, or to several.
                let namespace = (of > 0).then(|| number * of / count);
                let first = if resource == "pods" { "namespace" } else { "a" };
                lists[(number % 2) as usize].push(&object(number, namespace, first));
            }
            lists.into_iter().for_each(super::super::Replacement::commit);
            // Objects added by updates.
            for number in 0..40 {
                stores[0].apply(&object(count + number, (of > 0).then_some(number % 9), "a"));
            }
            catalog.register(schema, stores);
        }
        catalog
    }

    fn query(namespaces: &[&str]) -> ScrapeQuery {
        let namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
        ScrapeQuery { namespaces: Some(namespaces), ..ScrapeQuery::default() }
    }

    fn text(catalog: &Catalog, query: &ScrapeQuery) -> String {
        let body = catalog.frames(Format::Text, query).flatten().collect();
        String::from_utf8(body).expect("UTF-8")
    }

    /// Returns the lines of the whole exposition that belong to the namespaces, with the headers of families that have
    /// objects.
    fn wanted(catalog: &Catalog, namespaces: &[&str]) -> String {
        let whole = text(catalog, &ScrapeQuery::default());
        let is_wanted =
            |line: &&str| namespaces.iter().any(|name| line.contains(&format!("=\"{name}\",")));
        let mut out = String::new();
        for line in whole.lines() {
            let resource = line.trim_start_matches("# HELP ").trim_start_matches("# TYPE ");
            let resource = resource.split('_').next().expect("a name");
            let has_some = |line: &str| line.starts_with(resource) && is_wanted(&line);
            if is_wanted(&line) || line.starts_with('#') && whole.lines().any(has_some) {
                out.push_str(line);
                out.push('\n');
            }
        }
        out
    }

    #[test]
    fn a_scrape_of_namespaces_has_their_lines_and_no_others() {
        let catalog = catalog(3_000);
        for namespaces in [
            &["n3"][..],
            &["n0", "n6"],
            &["n19"],
            &["n1", "n2", "n5", "absent"],
            &["absent"],
            &["n"],
        ] {
            let query = query(namespaces);
            assert!(text(&catalog, &query) == wanted(&catalog, namespaces), "{namespaces:?}");
        }
        assert_eq!(text(&catalog, &query(&["n"])), "");
    }

    #[test]
    fn compressed_it_is_the_same_and_leaves_the_codes_of_others_alone() {
        let catalog = catalog(30_000);
        let inflated = |query: &ScrapeQuery| {
            let text = inflated::inflated(catalog.deflated(Format::Text, query));
            String::from_utf8(text).expect("UTF-8")
        };
        let size = || -> usize {
            let pieces = catalog.deflated(Format::Text, &ScrapeQuery::default());
            pieces
                .map(|piece| if let Piece::Deflated(part) = piece { part.bytes.len() } else { 0 })
                .sum()
        };
        let narrow = query(&["n2", "n5"]);
        assert!(inflated(&narrow) == text(&catalog, &narrow));
        let (before, whole) = (size(), text(&catalog, &ScrapeQuery::default()));
        assert!(inflated(&narrow) == text(&catalog, &narrow));
        assert!(size() == before && inflated(&ScrapeQuery::default()) == whole);
    }

    /// The filter yields while it checks a large cluster, and pages of one namespace are shared.
    #[test]
    fn work_is_bounded_and_pages_are_shared() {
        let catalog = catalog(30_000);
        let pieces: Vec<_> = catalog.frames(Format::Text, &query(&["absent"])).collect();
        assert!(pieces.len() > 10 && pieces.iter().all(|piece| piece.is_empty()));
        let schema = schema("things");
        let store = Arc::new(Store::new(Arc::clone(&schema)));
        let mut list = store.replace();
        (0..6_400).for_each(|number| list.push(&object(number, Some(number / 640), "a")));
        list.commit();
        let resource = Resource { schema, stores: vec![store.snapshot()], part_of: None };
        let mut filter = FilteredBody::new(
            vec![resource.clone()],
            &["n3".to_owned()].into(),
            |resources| resources.into_iter(),
            || unreachable!("it is a small resource"),
        )
        .filter
        .expect("work")
        .0;
        let narrowed = std::iter::from_fn(|| Some(filter.step())).flatten().next().expect("done");
        let whole = &resource.stores[0].pages;
        let kept = &narrowed[0].stores[0].pages;
        assert_eq!(kept.len(), 640 / 64);
        assert!(kept.iter().all(|page| whole.iter().any(|other| Arc::ptr_eq(page, other))));
    }
}
