//! The compressed text of resources that have little of it, kept until it changes.
//!
//! A general compressor takes a hundred times as long as to copy the text, and most of these resources (nodes, secrets, roles)
//! are the same from scrape to scrape. Kept are at most the compressed bytes of a few megabytes for each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::crc::Checksum;
use super::resource::Resource;
use super::schema::Schema;
use crate::exposition::deflate::Deflater;
use crate::exposition::{DeflatePart, Format, Piece};

/// Text of a resource (in bytes) from which on it is a stream of its own: what is shorter is compressed with its
/// neighbours, which takes less room, and next to no time.
pub(super) const FROM: usize = if cfg!(test) { 1_000 } else { 16 * 1024 };

/// What a compressed text is of.
#[derive(Clone, Debug)]
pub(super) struct Content {
    schema: Arc<Schema>,
    format: Format,
    stores: Vec<u64>,
}

impl Content {
    /// The present content of a resource, all of it.
    pub(super) fn of(resource: &Resource, format: Format) -> Self {
        let stores = resource.stores.iter().map(|store| store.content).collect();
        Self { schema: Arc::clone(&resource.schema), format, stores }
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.schema, &other.schema) && self.stores == other.stores
    }
}

/// The text of a resource while it is being compressed.
#[derive(Debug)]
pub(super) struct Packing {
    pub(super) resource: usize,
    pub(super) text: Vec<u8>,
    content: Content,
    deflater: Deflater,
    /// All compressed bytes so far, and what they are of.
    bytes: Vec<u8>,
    sum: Checksum,
}

impl Packing {
    pub(super) fn new(resource: usize, content: Content) -> Self {
        let (text, deflater, bytes, sum) = Default::default();
        Self { resource, text, content, deflater, bytes, sum }
    }

    /// Compresses the text at hand.
    pub(super) fn piece(&mut self) -> Piece {
        self.compress(|_, _| ())
    }

    /// Compresses the last of it, and keeps it all.
    pub(super) fn end(mut self, packed: &Packed) -> Piece {
        let last = self.compress(Deflater::end);
        let (name, format) = (self.content.schema.resource.clone(), self.content.format);
        let Checksum { crc, len } = self.sum;
        self.bytes.shrink_to_fit();
        let part = DeflatePart { bytes: self.bytes.into(), crc, text_len: len };
        packed.kept().insert((name, format), (self.content, part));
        last
    }

    fn compress(&mut self, end: impl FnOnce(&mut Deflater, &mut Vec<u8>)) -> Piece {
        let before = self.bytes.len();
        self.deflater.add(&self.text, &mut self.bytes);
        end(&mut self.deflater, &mut self.bytes);
        let sum = Checksum::of(&self.text);
        self.sum.append(sum);
        self.text.clear();
        let bytes = Bytes::copy_from_slice(&self.bytes[before..]);
        Piece::Deflated(DeflatePart { bytes, crc: sum.crc, text_len: sum.len })
    }
}

/// The compressed texts by their resources' names and their formats.
#[derive(Debug, Default)]
pub(super) struct Packed(Mutex<HashMap<(String, Format), (Content, DeflatePart)>>);

impl Packed {
    /// The whole text of a resource, if it has been compressed since it changed.
    pub(super) fn of(&self, content: &Content) -> Option<DeflatePart> {
        let kept = self.kept();
        let (of, part) = kept.get(&(content.schema.resource.clone(), content.format))?;
        of.is(content).then(|| part.clone())
    }

    /// The resource has other families from here on, or is gone.
    pub(super) fn forget(&self, resource: &str) {
        self.kept().retain(|(name, _), _| name != resource);
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<(String, Format), (Content, DeflatePart)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::inflated::inflated;
    use super::super::{Catalog, Counted, Family, MetricKind, Rendered, Store};
    use super::*;
    use crate::exposition::{ScrapeQuery, Source};

    fn schema(resource: &str, families: &[&str]) -> Arc<Schema> {
        let family = |name: &&str| Family {
            name: (*name).to_owned(),
            help: format!("Help of {name}."),
            kind: MetricKind::Gauge,
        };
        let families = families.iter().map(family).collect();
        Arc::new(Schema { resource: resource.into(), families })
    }

    /// An object with a line in each of so many families.
    fn object(uid: u32, value: u32, families: usize) -> Rendered {
        let mut out = Rendered::default();
        out.uid.extend_from_slice(format!("uid-{uid}").as_bytes());
        out.identity.extend_from_slice(format!("{{uid=\"{uid}\"").as_bytes());
        for _ in 0..families {
            out.lines.extend_from_slice(format!("}} {value}\n").as_bytes());
            out.ends.push(out.lines.len() as u32);
        }
        out
    }

    /// A resource with so many objects.
    fn add(catalog: &Catalog, resource: &str, families: &[&str], objects: u32) -> Arc<Store> {
        let schema = schema(resource, families);
        let store = Arc::new(Store::new(Arc::clone(&schema)));
        (0..objects).for_each(|uid| store.apply(&object(uid, 1, families.len())));
        catalog.register(schema, vec![Arc::clone(&store)]);
        store
    }

    /// The compressed parts of a scrape whose text is what a plain one has.
    fn scrape(catalog: &Catalog, format: Format, query: &ScrapeQuery) -> Vec<Bytes> {
        let pieces: Vec<Piece> = catalog.deflated(format, query).collect();
        let plain: Vec<u8> = catalog.frames(format, query).flatten().collect();
        assert!(inflated(pieces.clone().into_iter()) == plain);
        let part = |piece| match piece {
            Piece::Deflated(part) if !part.bytes.is_empty() => Some(part.bytes),
            _ => None,
        };
        pieces.into_iter().filter_map(part).collect()
    }

    fn places(parts: &[Bytes]) -> Vec<*const u8> {
        parts.iter().map(|part| part.as_ptr()).collect()
    }

    #[test]
    fn what_has_not_changed_is_not_compressed_again() {
        let catalog = Catalog::new();
        let stores = ["as", "bs"].map(|name| add(&catalog, name, &[&format!("{name}_x")], 200));
        let all = ScrapeQuery::default();
        let scrape = |format| scrape(&catalog, format, &all);
        scrape(Format::Text);
        let first = scrape(Format::Text);
        assert_eq!(first.len(), 2);
        // An object as it was is no change, and the other format has a text of its own.
        stores[0].apply(&object(7, 1, 1));
        scrape(Format::OpenMetrics);
        let other = scrape(Format::OpenMetrics);
        assert_eq!(places(&scrape(Format::Text)), places(&first));
        assert_eq!(places(&scrape(Format::OpenMetrics)), places(&other));
        // Each of the others is one, and costs the other resource nothing.
        let changes: [&dyn Fn(&Store); 3] = [
            &|store| store.apply(&object(7, 2, 1)),
            &|store| store.apply(&object(900, 1, 1)),
            &|store| assert!(store.delete(b"uid-9")),
        ];
        for change in changes {
            change(&stores[0]);
            let parts = scrape(Format::Text);
            assert_eq!(parts.last().map(|part| part.as_ptr()), Some(first[1].as_ptr()));
            assert_eq!(places(&scrape(Format::Text))[1], first[1].as_ptr());
        }
        let mut list = stores[0].replace();
        (0..300).for_each(|uid| list.push(&object(uid, 3, 1)));
        list.commit();
        scrape(Format::Text);
        // Other families under the same name; then it has gone.
        add(&catalog, "as", &["as_y", "as_z"], 200);
        scrape(Format::Text);
        scrape(Format::Text);
        catalog.exchange(None, &["as".to_owned()]);
        assert_eq!(places(&scrape(Format::Text)), [first[1].as_ptr()]);
    }

    /// What is counted over all objects belongs to the content.
    #[test]
    fn counts_are_never_those_of_before() {
        let catalog = Catalog::new();
        let store = add(&catalog, "as", &["as_x", "as_count"], 200);
        let all = ScrapeQuery::default();
        for round in 0..6 {
            for uid in 0..4 {
                let mut one = object(uid, 1, 1);
                one.ends.push(one.lines.len() as u32);
                one.counted = Counted::default();
                one.counted.push(1, format!("{{n=\"{}\"}}", (uid + round) % 3).as_bytes());
                store.apply(&one);
                scrape(&catalog, Format::Text, &all);
                scrape(&catalog, Format::Text, &all);
            }
        }
    }

    /// Of two resources with a family in common the first one has its header.
    #[test]
    fn a_family_of_two_resources_has_one_header() {
        let catalog = Catalog::new();
        add(&catalog, "as", &["as_x", "shared"], 200);
        add(&catalog, "bs", &["bs_x", "shared"], 200);
        let scrape = |query: &ScrapeQuery| {
            scrape(&catalog, Format::Text, query);
            scrape(&catalog, Format::Text, query)
        };
        let query = |only: &[&str]| {
            let names = only.iter().map(|name| (*name).to_owned()).collect();
            ScrapeQuery { resources: Some(names), ..ScrapeQuery::default() }
        };
        for _ in 0..2 {
            scrape(&ScrapeQuery::default());
            scrape(&query(&["bs"]));
            scrape(&query(&["as"]));
            let names = Some(["shared".to_owned()].into());
            scrape(&ScrapeQuery { names, ..ScrapeQuery::default() });
        }
    }
}
