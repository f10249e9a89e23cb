//! Keeps the pages of virtual shards between scrapes.
//!
//! The objects of a virtual shard are spread over all pages of a store, so a scrape packs those of several consecutive
//! pages into one. A packed page is used again while none of its source pages has changed, and with it the compressed
//! text that it remembers. It costs the memory of its objects a second time, so a store keeps the shards of at most two
//! numbers of shards, and none that nobody has scraped for ten minutes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::deflate_cache::DeflateCache;
use super::page::Page;
use super::part::Part;
use crate::util::lock::Lock;

/// Maximum number of different numbers of shards whose pages a store keeps.
const PARTITIONINGS: usize = 2;
/// Time after its last scrape for which the pages of a shard are kept.
const KEPT: Duration = Duration::from_secs(600);

/// The packed pages of a store, by virtual shard. The shard scraped last is the last one.
#[derive(Debug, Default)]
pub(super) struct PackedPages(Lock<Vec<Shard>>);

#[derive(Debug)]
struct Shard {
    part: Part,
    scraped: Instant,
    pages: Arc<PackedPart>,
}

impl PackedPages {
    /// Returns the pages of a virtual shard, for a scrape at `now`.
    pub(super) fn of(&self, part: Part, now: Instant) -> Arc<PackedPart> {
        self.expire(now);
        let mut shards = self.0.lock();
        let at = shards.iter().position(|shard| shard.part == part);
        let pages = at.map_or_else(Arc::default, |at| shards.remove(at).pages);
        shards.push(Shard { part, scraped: now, pages: Arc::clone(&pages) });
        let mut kept = Vec::new();
        for shard in shards.iter().rev() {
            if kept.len() < PARTITIONINGS && !kept.contains(&shard.part.partitioning()) {
                kept.push(shard.part.partitioning());
            }
        }
        shards.retain(|shard| kept.contains(&shard.part.partitioning()));
        pages
    }

    /// Drops the pages of a virtual shard.
    pub(super) fn remove(&self, part: Part) {
        self.0.lock().retain(|shard| shard.part != part);
    }

    /// Drops the pages of shards that are no longer scraped.
    pub(super) fn expire(&self, now: Instant) {
        self.0.lock().retain(|shard| now.saturating_duration_since(shard.scraped) < KEPT);
    }

    /// Drops all pages.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// The packed pages of a store for one virtual shard.
#[derive(Debug, Default)]
pub(super) struct PackedPart {
    /// By the address of the first source page.
    groups: Lock<HashMap<usize, Group>>,
    /// Compressed text of the shard, if it is short.
    pub(super) deflate_cache: Arc<DeflateCache>,
}

impl PackedPart {
    /// Returns the group that begins with the first of these source pages, if none of its pages has changed.
    pub(super) fn group(&self, pages: &[Arc<Page>]) -> Option<Group> {
        let groups = self.groups.lock();
        let group = groups.get(&Arc::as_ptr(pages.first()?).addr())?;
        let is_same = |(old, page): (&Weak<Page>, &Arc<Page>)| old.as_ptr() == Arc::as_ptr(page);
        let is_current = group.len() <= pages.len() && group.sources.iter().zip(pages).all(is_same);
        is_current.then(|| group.clone())
    }

    /// Replaces all groups by those of the latest scrape.
    pub(super) fn replace(&self, groups: Vec<Group>) {
        let key = |group: Group| Some((group.sources.first()?.as_ptr().addr(), group));
        let groups: HashMap<usize, Group> = groups.into_iter().filter_map(key).collect();
        *self.groups.lock() = groups;
    }
}

/// Consecutive source pages and the page of their objects that belong to the shard.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// A weak reference tells a page from later ones at the same address. It does not keep the page's text, and a page
    /// without other references moves to another address when it is changed.
    sources: Vec<Weak<Page>>,
    /// `None` if no object belongs to the shard.
    pub(super) page: Option<Arc<Page>>,
}

impl Group {
    /// Returns the number of source pages.
    pub(super) fn len(&self) -> usize {
        self.sources.len()
    }

    /// Adds a source page.
    pub(super) fn push(&mut self, source: &Arc<Page>) {
        self.sources.push(Arc::downgrade(source));
    }
}
