//! Lines and names to show where something is counted that somebody will ask about: the last line that was refused for
//! each reason, and the busiest names that no rule took.
//!
//! A name is noted when it is looked up among the rules, as long as there is room for it; after that, and of events of
//! names that are known, one in [`ONE_IN`] is noted for all: noting means comparing with all that are kept, and a sender
//! of ever new names is to pay for that as little as others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Bytes of a line or a name that are kept.
const LONGEST: usize = 200;

/// Names that are counted. One that is not among them takes the place, and the count, of the least busy: what comes
/// often stays, and no count is more than one of these places too high.
const NAMES: usize = 100;

/// Of so many events of known names one stands for all.
const ONE_IN: u64 = 64;

/// A line that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) at: SystemTime,
    /// Its beginning.
    pub(crate) line: String,
}

/// What there is to show.
#[derive(Debug, Default)]
pub(crate) struct Examples {
    refused: Mutex<BTreeMap<&'static str, Refused>>,
    unmapped: Mutex<Vec<(Box<str>, u64)>>,
    /// Whether there are [`NAMES`] of these. A hint for those who have not locked them.
    is_full: AtomicBool,
}

/// Chooses events that stand for others.
#[derive(Debug)]
pub(crate) struct Chooser {
    /// How many pass before the next one.
    left: u64,
    /// For how many that one stands.
    stands_for: u64,
}

impl Default for Chooser {
    fn default() -> Self {
        Self { left: ONE_IN, stands_for: ONE_IN + 1 }
    }
}

impl Chooser {
    /// For how many events these stand, if they do for any.
    #[inline]
    pub(crate) fn choose(&mut self, events: u64) -> Option<u64> {
        if let Some(left) = self.left.checked_sub(events) {
            self.left = left;
            return None;
        }
        // Not always as many: clients send in turns.
        let next = fastrand::u64(1..2 * ONE_IN);
        self.left = next;
        Some(std::mem::replace(&mut self.stands_for, next + 1).max(events))
    }
}

impl Examples {
    /// A line was refused for this reason.
    pub(crate) fn refuse(&self, reason: &'static str, line: &[u8]) {
        let line = beginning(line);
        lock(&self.refused).insert(reason, Refused { at: SystemTime::now(), line });
    }

    /// Whether a name can be noted without displacing another.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_full.load(Ordering::Relaxed)
    }

    /// So many events of this name met no rule.
    pub(crate) fn unmapped(&self, name: &[u8], events: u64) {
        let mut names = lock(&self.unmapped);
        let known = names.iter_mut().find(|(known, _)| known.as_bytes() == name);
        if let Some((_, count)) = known {
            *count += events;
            return;
        }
        let name = beginning(name).into_boxed_str();
        if names.len() < NAMES {
            names.push((name, events));
            self.is_full.store(names.len() == NAMES, Ordering::Relaxed);
            return;
        }
        if let Some(least) = names.iter_mut().min_by_key(|(_, count)| *count) {
            *least = (name, least.1 + events);
        }
    }

    /// The last line of each reason.
    pub(crate) fn refused(&self) -> BTreeMap<&'static str, Refused> {
        lock(&self.refused).clone()
    }

    /// The busiest names with their events, estimated.
    pub(crate) fn names(&self) -> Vec<(String, u64)> {
        let mut names: Vec<_> =
            lock(&self.unmapped).iter().map(|(name, count)| (name.to_string(), *count)).collect();
        names.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        names
    }

    /// Other rules take other names.
    pub(crate) fn forget_names(&self) {
        lock(&self.unmapped).clear();
        self.is_full.store(false, Ordering::Relaxed);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn beginning(bytes: &[u8]) -> String {
    let cut = bytes.len() > LONGEST;
    let text = String::from_utf8_lossy(bytes.get(..LONGEST).unwrap_or(bytes));
    if cut { format!("{text}...") } else { text.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_names_stay_among_many_others() {
        let examples = Examples::default();
        for round in 0..2_000 {
            examples.unmapped(b"busy.a", 3);
            examples.unmapped(b"busy.b", 2);
            examples.unmapped(format!("once.{round}").as_bytes(), 1);
        }
        let names = examples.names();
        assert_eq!(names.len(), NAMES);
        assert!(!examples.has_room());
        assert_eq!(names[..2], [("busy.a".to_owned(), 6_000), ("busy.b".to_owned(), 4_000)]);
        examples.forget_names();
        assert!(examples.names().is_empty());
        assert!(examples.has_room());
    }

    #[test]
    fn one_event_stands_for_as_many_as_there_are() {
        let mut chooser = Chooser::default();
        let sum: u64 = (0..1_000_000).filter_map(|_| chooser.choose(1)).sum();
        assert!((900_000..1_100_000).contains(&sum), "{sum}");
    }

    #[test]
    fn a_long_line_is_cut_and_what_is_no_text_is_shown() {
        let examples = Examples::default();
        examples.refuse("malformed_line", &[b'x'; 1_000]);
        examples.refuse("other_kind", b"\xff:1|c");
        let refused = examples.refused();
        assert!(refused["malformed_line"].line.len() < 210);
        assert_eq!(refused["other_kind"].line, "\u{fffd}:1|c");
    }
}
