//! Caches the compressed text of small resources.
//!
//! Compression takes a hundred times as long as copying the text, and most small resources (nodes, secrets, roles) do
//! not change between scrapes. The cache belongs to the content of a store, so it is dropped when an object changes.
//! It takes a few megabytes at most for each resource.

use std::sync::Arc;

use bytes::Bytes;

use super::frame_size::{FRAME, LARGE};
use super::schema::Schema;
use crate::deflate::Checksum;
use crate::exposition::deflate::Deflater;
use crate::exposition::{DeflatePart, Format, Piece};
use crate::util::lock::Lock;

/// Minimum text of a resource that gets a separate stream, in bytes. Shorter resources are compressed together with
/// their neighbours, which takes less space and hardly any time.
pub(super) const MIN_TEXT: usize = if cfg!(test) { 1_000 } else { 16 * 1024 };

/// The identity of a resource's text in a format.
#[derive(Debug)]
pub(super) struct ContentKey {
    schema: Arc<Schema>,
    format: Format,
    stores: Vec<u64>,
}

impl ContentKey {
    /// Creates the key of a whole resource from the content numbers of its stores.
    pub(super) fn new(schema: Arc<Schema>, format: Format, stores: Vec<u64>) -> Self {
        Self { schema, format, stores }
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.schema, &other.schema)
            && (self.format, &self.stores) == (other.format, &other.stores)
    }
}

/// The compressed texts of a resource, at most one per format, stored with the content of its first store.
#[derive(Debug, Default)]
pub(super) struct DeflateCache(Lock<Vec<(ContentKey, DeflatePart)>>);

impl DeflateCache {
    /// Returns the compressed text, if it is up to date.
    pub(super) fn of(&self, content: &ContentKey) -> Option<DeflatePart> {
        self.0.lock().iter().find(|(of, _)| of.is(content)).map(|(_, part)| part.clone())
    }

    fn insert(&self, content: ContentKey, part: DeflatePart) {
        let mut entries = self.0.lock();
        entries.retain(|(of, _)| of.format != content.format);
        entries.push((content, part));
    }

    /// Drops all compressed texts.
    pub(super) fn forget(&self) {
        *self.0.lock() = Vec::new();
    }
}

/// The text of a resource being compressed.
#[derive(Debug)]
pub(super) struct DeflateJob {
    pub(super) text: Vec<u8>,
    /// Bytes at the start of the text that are compressed already, while at least a frame follows them.
    compressed: usize,
    content: ContentKey,
    deflater: Deflater,
    /// All compressed bytes so far, and the checksum of their text.
    bytes: Vec<u8>,
    sum: Checksum,
}

impl DeflateJob {
    pub(super) fn new(content: ContentKey) -> Self {
        let (text, compressed, deflater, bytes, sum) = Default::default();
        Self { text, compressed, content, deflater, bytes, sum }
    }

    /// Returns true if a piece can be compressed.
    pub(super) fn is_full(&self) -> bool {
        self.text.len() - self.compressed >= FRAME
    }

    /// Compresses the pending text, or the first part of it if it has a long line.
    pub(super) fn piece(&mut self) -> Piece {
        self.compress(|_, _| ())
    }

    /// Compresses the rest, which is shorter than a frame, and stores the whole in the cache.
    pub(super) fn end(mut self, cache: &DeflateCache) -> Piece {
        let last = self.compress(Deflater::end);
        let Checksum { crc, len } = self.sum;
        self.bytes.shrink_to_fit();
        cache.insert(self.content, DeflatePart { bytes: self.bytes.into(), crc, text_len: len });
        last
    }

    fn compress(&mut self, end: impl FnOnce(&mut Deflater, &mut Vec<u8>)) -> Piece {
        let before = self.bytes.len();
        let pending = &self.text[self.compressed..];
        let text = if pending.len() > LARGE { &pending[..FRAME] } else { pending };
        self.deflater.add(text, &mut self.bytes);
        end(&mut self.deflater, &mut self.bytes);
        let sum = Checksum::of(text);
        self.sum.append(sum);
        self.compressed += text.len();
        if !self.is_full() {
            self.text.drain(..self.compressed);
            self.compressed = 0;
        }
        let bytes = Bytes::copy_from_slice(&self.bytes[before..]);
        Piece::Deflated(DeflatePart { bytes, crc: sum.crc, text_len: sum.len })
    }
}

/// Splits at most `at_most` bytes off a cached text. The last piece carries the checksum.
pub(super) fn split(part: &mut DeflatePart, at_most: usize) -> DeflatePart {
    if part.bytes.len() <= at_most {
        let last = DeflatePart { bytes: Bytes::new(), crc: 0, text_len: 0 };
        return std::mem::replace(part, last);
    }
    DeflatePart { bytes: part.bytes.split_to(at_most), crc: 0, text_len: 0 }
}

#[cfg(test)]
mod tests {
    use super::super::tests::inflated::inflated;
    use super::super::{Catalog, CountedLabels, Family, MetricKind, Rendered, Store};
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

    /// Returns an object with a line in each of `families` families.
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

    /// Adds a resource with `objects` objects.
    fn add(catalog: &Catalog, resource: &str, families: &[&str], objects: u32) -> Arc<Store> {
        let schema = schema(resource, families);
        let store = Arc::new(Store::new(Arc::clone(&schema)));
        (0..objects).for_each(|uid| store.apply(&object(uid, 1, families.len())));
        catalog.register(schema, vec![Arc::clone(&store)]);
        store
    }

    /// Returns the compressed parts of a scrape, after comparing the text with that of an uncompressed one.
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
        // Applying an identical object is no change, and the other format has its own text.
        stores[0].apply(&object(7, 1, 1));
        scrape(Format::OpenMetrics);
        let other = scrape(Format::OpenMetrics);
        assert_eq!(places(&scrape(Format::Text)), places(&first));
        assert_eq!(places(&scrape(Format::OpenMetrics)), places(&other));
        // Each of these is a change of one resource and leaves the other one cached.
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
        // Other families under the same name; then the resource is removed.
        add(&catalog, "as", &["as_y", "as_z"], 200);
        scrape(Format::Text);
        scrape(Format::Text);
        catalog.exchange(None, &["as".to_owned()]);
        assert_eq!(places(&scrape(Format::Text)), [first[1].as_ptr()]);
    }

    /// Resources that are too short to be cached keep their order between cached ones.
    #[test]
    fn short_texts_keep_their_places() {
        let catalog = Catalog::new();
        for (name, objects) in [("as", 5), ("bs", 200), ("cs", 5), ("ds", 5), ("es", 200)] {
            add(&catalog, name, &[&format!("{name}_x")], objects);
        }
        for kept in [0, 2] {
            let parts = scrape(&catalog, Format::Text, &ScrapeQuery::default());
            let again = scrape(&catalog, Format::Text, &ScrapeQuery::default());
            assert!(again.len() == 2 && (kept == 0 || places(&again) == places(&parts)));
        }
    }

    /// A cached text is sent in bounded pieces without copying.
    #[test]
    fn kept_texts_are_split() {
        for len in [0, 1, 9, 10, 11, 25] {
            let bytes: Bytes = (0..len).collect::<Vec<u8>>().into();
            let mut part = DeflatePart { bytes: bytes.clone(), crc: 7, text_len: 99 };
            let mut pieces = vec![split(&mut part, 10)];
            while !part.bytes.is_empty() {
                pieces.push(split(&mut part, 10));
            }
            assert!(pieces.iter().all(|piece| piece.bytes.len() <= 10));
            let at = |piece: &DeflatePart| piece.bytes.as_ptr() as usize - bytes.as_ptr() as usize;
            assert!(len == 0 || pieces.iter().enumerate().all(|(n, piece)| at(piece) == n * 10));
            assert_eq!(
                pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>(),
                usize::from(len)
            );
            let sums: Vec<_> = pieces.iter().map(|piece| (piece.crc, piece.text_len)).collect();
            assert_eq!(sums.last(), Some(&(7, 99)));
            assert!(sums.iter().rev().skip(1).all(|sum| *sum == (0, 0)));
        }
    }

    /// A change of content drops the cached text.
    #[test]
    fn nothing_is_kept_of_what_is_gone() {
        let catalog = Catalog::new();
        let store = add(&catalog, "as", &["as_x"], 200);
        let all = ScrapeQuery::default();
        let is_kept = || !store.snapshot().deflate_cache.0.lock().is_empty();
        scrape(&catalog, Format::Text, &all);
        assert!(is_kept());
        store.apply(&object(3, 2, 1));
        assert!(!is_kept());
        // A scrape that began before the change caches nothing afterwards.
        let begun = catalog.deflated(Format::Text, &all);
        store.apply(&object(3, 3, 1));
        assert!(begun.count() > 0 && !is_kept());
        scrape(&catalog, Format::Text, &all);
        assert!(is_kept());
        (0..200).for_each(|uid| assert!(store.delete(format!("uid-{uid}").as_bytes())));
        assert!(!is_kept());
    }

    /// Counts over all objects belong to the content.
    #[test]
    fn counts_are_never_those_of_before() {
        let catalog = Catalog::new();
        let store = add(&catalog, "as", &["as_x", "as_count"], 200);
        let all = ScrapeQuery::default();
        for round in 0..6 {
            for uid in 0..4 {
                let mut one = object(uid, 1, 1);
                one.ends.push(one.lines.len() as u32);
                one.counted = CountedLabels::default();
                one.counted.push(1, format!("{{n=\"{}\"}}", (uid + round) % 3).as_bytes());
                store.apply(&one);
                scrape(&catalog, Format::Text, &all);
                scrape(&catalog, Format::Text, &all);
            }
        }
    }

    /// Of two resources that share a family, the first one has its header.
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
