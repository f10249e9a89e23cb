//! Examples for the status page: the last rejected line for each reason, and the most frequent names without
//! a matching rule.
//!
//! A name is recorded when the mapper looks it up, as long as there is room. After that, and for cached
//! names, one event in [`SAMPLE_INTERVAL`] is recorded with a weight, because recording compares the name with all
//! others. A sender that invents names thus costs no more than others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::util::lock::Lock;

/// The maximum number of bytes kept of a line or name.
const MAX_TEXT: usize = 200;

/// The maximum number of names. A new name replaces the least frequent one and inherits its count, as in the
/// Space-Saving algorithm: frequent names stay, and a count is too high by at most the inherited count.
const MAX_NAMES: usize = 100;

/// The average number of events per recorded event.
const SAMPLE_INTERVAL: u64 = 64;

/// A rejected line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RejectedLine {
    pub(crate) at: SystemTime,
    /// The beginning of the line.
    pub(crate) line: String,
}

/// A name and its estimated number of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameCount {
    pub(crate) name: Box<str>,
    pub(crate) events: u64,
}

/// The names without a matching rule.
#[derive(Debug, Default)]
struct UnmappedNames {
    /// The generation of the mapping.
    generation: u64,
    names: Vec<NameCount>,
}

/// The recorded examples.
#[derive(Debug, Default)]
pub(crate) struct Examples {
    rejected: Lock<BTreeMap<&'static str, RejectedLine>>,
    unmapped: Lock<UnmappedNames>,
    /// True if there are [`MAX_NAMES`] names; a hint that can be read without the lock.
    is_full: AtomicBool,
}

/// Samples events and returns the weight of each sampled event.
#[derive(Debug)]
pub(crate) struct EventSampler {
    /// The number of events to skip.
    skip: u64,
    /// The weight of the next sampled event.
    weight: u64,
}

impl Default for EventSampler {
    fn default() -> Self {
        Self { skip: SAMPLE_INTERVAL, weight: SAMPLE_INTERVAL + 1 }
    }
}

impl EventSampler {
    /// Returns the number of events that these represent, or `None` if they are skipped.
    #[inline]
    pub(crate) fn sample(&mut self, events: u64) -> Option<u64> {
        if let Some(skip) = self.skip.checked_sub(events) {
            self.skip = skip;
            return None;
        }
        // A random interval, because clients send in cycles.
        let next = fastrand::u64(1..2 * SAMPLE_INTERVAL);
        self.skip = next;
        Some(std::mem::replace(&mut self.weight, next + 1).max(events))
    }
}

impl Examples {
    /// Records a rejected line.
    pub(crate) fn record_rejected(&self, reason: &'static str, line: &[u8]) {
        let line = truncated(line);
        self.rejected.lock().insert(reason, RejectedLine { at: SystemTime::now(), line });
    }

    /// Returns true if a name can be recorded without replacing another one.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_full.load(Ordering::Relaxed)
    }

    /// Records events of a name without a matching rule in the mapping of this generation. Threads use a replaced mapping
    /// until their next batch; what they do not find in it is ignored.
    pub(crate) fn record_unmapped(&self, name: &[u8], events: u64, generation: u64) {
        let name = truncated(name);
        let unmapped = &mut *self.unmapped.lock();
        if generation < unmapped.generation {
            return;
        }
        let names = &mut unmapped.names;
        if let Some(known) = names.iter_mut().find(|known| *known.name == *name) {
            known.events += events;
            return;
        }
        let name = name.into_boxed_str();
        if names.len() < MAX_NAMES {
            names.push(NameCount { name, events });
            self.is_full.store(names.len() == MAX_NAMES, Ordering::Relaxed);
            return;
        }
        if let Some(least) = names.iter_mut().min_by_key(|known| known.events) {
            *least = NameCount { name, events: least.events + events };
        }
    }

    /// Returns the last rejected line for each reason.
    pub(crate) fn rejected(&self) -> BTreeMap<&'static str, RejectedLine> {
        self.rejected.lock().clone()
    }

    /// Returns the most frequent names with their estimated number of events.
    pub(crate) fn unmapped_names(&self) -> Vec<NameCount> {
        let mut names = self.unmapped.lock().names.clone();
        names.sort_unstable_by(|a, b| b.events.cmp(&a.events).then_with(|| a.name.cmp(&b.name)));
        names
    }

    /// Removes all names, for a new mapping of this generation.
    pub(crate) fn clear_names(&self, generation: u64) {
        let mut unmapped = self.unmapped.lock();
        *unmapped = UnmappedNames { generation, names: Vec::new() };
        self.is_full.store(false, Ordering::Relaxed);
    }
}

fn truncated(bytes: &[u8]) -> String {
    let cut = bytes.len() > MAX_TEXT;
    let text = String::from_utf8_lossy(bytes.get(..MAX_TEXT).unwrap_or(bytes));
    if cut { format!("{text}...") } else { text.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_names_stay_among_many_others() {
        let examples = Examples::default();
        for round in 0..2_000 {
            examples.record_unmapped(b"busy.a", 3, 0);
            examples.record_unmapped(b"busy.b", 2, 0);
            examples.record_unmapped(format!("once.{round}").as_bytes(), 1, 0);
        }
        let names = examples.unmapped_names();
        assert_eq!(names.len(), MAX_NAMES);
        assert!(!examples.has_room());
        let top: Vec<_> = names.iter().take(2).map(|known| (&*known.name, known.events)).collect();
        assert_eq!(top, [("busy.a", 6_000), ("busy.b", 4_000)]);
        examples.clear_names(1);
        assert!(examples.unmapped_names().is_empty());
        assert!(examples.has_room());
    }

    #[test]
    fn long_names_are_one_name() {
        let examples = Examples::default();
        for _ in 0..3 {
            examples.record_unmapped(&[b'x'; MAX_TEXT + 1], 2, 0);
        }
        let names = examples.unmapped_names();
        assert_eq!(names.iter().map(|known| known.events).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn sampled_weights_add_up_to_the_number_of_events() {
        let mut sampler = EventSampler::default();
        let sum: u64 = (0..1_000_000).filter_map(|_| sampler.sample(1)).sum();
        assert!((900_000..1_100_000).contains(&sum), "{sum}");
    }

    #[test]
    fn long_lines_are_truncated_and_invalid_utf8_is_replaced() {
        let examples = Examples::default();
        examples.record_rejected("malformed_line", &[b'x'; 1_000]);
        examples.record_rejected("other_kind", b"\xff:1|c");
        let rejected = examples.rejected();
        assert!(rejected["malformed_line"].line.len() < 210);
        assert_eq!(rejected["other_kind"].line, "\u{fffd}:1|c");
    }
}
