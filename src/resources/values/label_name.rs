//! Label names derived from the keys of an object's maps: labels, annotations, node selectors.
//!
//! Pairs of key and value, sorted by key, go in; rendered labels, each with a leading comma, come out. The caller
//! chooses the pairs ([`selection`](crate::resources::select::selection)) and the family.
//!
//! A key becomes a name in three steps: characters outside `[a-zA-Z0-9_]` become underscores, an underscore is inserted
//! between a lower-case letter or digit and an upper-case letter after it, and everything is lower-cased. Different
//! keys can become the same name; a suffix then distinguishes them, see [`write_labels`].

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::exposition::escape;

/// Appends `key` as a label name without a prefix.
#[inline]
pub fn sanitise(out: &mut Vec<u8>, key: &str) {
    let mut after_small = false;
    for &byte in key.as_bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' => {
                out.push(byte);
                after_small = true;
                continue;
            }
            b'A'..=b'Z' => {
                if after_small {
                    out.push(b'_');
                }
                out.push(byte.to_ascii_lowercase());
            }
            // A multi-byte character becomes one underscore, for its first byte.
            0x80..=0xbf => {}
            _ => out.push(b'_'),
        }
        after_small = false;
    }
}

/// Appends `,<prefix>_<name>="<escaped value>"` for each pair. Keys must be distinct and sorted.
///
/// If several keys become the same name, the first of them gets the suffix `_conflict1`, the next `_conflict2` and so
/// on. A suffixed name that is already taken is skipped, and a later key that becomes a suffixed name conflicts with it
/// in turn.
///
/// Without conflicts it does not allocate for up to 32 pairs, and allocates one short list beyond; with conflicts it is
/// still linear in the length of the keys.
#[inline]
pub fn write_labels<'p>(
    out: &mut Vec<u8>,
    prefix: &str,
    pairs: impl Iterator<Item = (&'p str, &'p str)> + Clone,
) {
    let start = out.len();
    let mut names = Names::default();
    for (key, value) in pairs.clone() {
        out.push(b',');
        out.extend_from_slice(prefix.as_bytes());
        out.push(b'_');
        let name = out.len();
        sanitise(out, key);
        if names.may_have_seen(&out[name..]) {
            out.truncate(start);
            write_conflicting(out, prefix, pairs);
            return;
        }
        write_value(out, value);
    }
    if names.may_repeat() {
        out.truncate(start);
        write_conflicting(out, prefix, pairs);
    }
}

#[inline]
fn write_value(out: &mut Vec<u8>, value: &str) {
    out.extend_from_slice(b"=\"");
    escape::label_value(out, value);
    out.push(b'"');
}

/// The hashes of the names so far. Equal hashes only lead to [`write_conflicting`], which is also correct for distinct
/// names, so a cheap hash without collision resistance suffices.
struct Names {
    count: usize,
    few: [u32; Self::FEW],
    many: Vec<u32>,
}

impl Default for Names {
    fn default() -> Self {
        Self { count: 0, few: [0; Self::FEW], many: Vec::new() }
    }
}

impl Names {
    const FEW: usize = 32;

    /// Adds a name; returns true if it may equal one of the first [`Self::FEW`].
    fn may_have_seen(&mut self, name: &[u8]) -> bool {
        let hash = hash(name);
        let known = self.count.min(Self::FEW);
        if self.few[..known].contains(&hash) {
            return true;
        }
        match self.few.get_mut(self.count) {
            Some(free) => *free = hash,
            None => self.many.push(hash),
        }
        self.count += 1;
        false
    }

    /// True if two names beyond the first [`Self::FEW`] may be equal.
    fn may_repeat(mut self) -> bool {
        self.many.sort_unstable();
        self.many.windows(2).any(|pair| pair[0] == pair[1])
    }
}

/// Returns a multiplicative hash over words of eight bytes.
fn hash(name: &[u8]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = name.len() as u64;
    let mut words = name.chunks_exact(8);
    for word in &mut words {
        let word = word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        state = (state.rotate_left(5) ^ word).wrapping_mul(ODD);
    }
    let rest = words.remainder().iter().fold(0u64, |rest, &byte| rest << 8 | u64::from(byte));
    ((state.rotate_left(5) ^ rest).wrapping_mul(ODD) >> 32) as u32
}

/// Implements [`write_labels`] for pairs with potential conflicts.
#[cold]
fn write_conflicting<'p>(
    out: &mut Vec<u8>,
    prefix: &str,
    pairs: impl Iterator<Item = (&'p str, &'p str)>,
) {
    let mut labels: Vec<(String, &str)> = Vec::new();
    let mut taken: HashMap<String, Taken> = HashMap::new();
    let mut name = Vec::new();
    for (key, value) in pairs {
        name.clear();
        sanitise(&mut name, key);
        let name = String::from_utf8_lossy(&name).into_owned();
        let at = labels.len();
        let (suffixes, holder) = match taken.entry(name.clone()) {
            Entry::Vacant(free) => {
                free.insert(Taken { by: at, suffixes: 0 });
                labels.push((name, value));
                continue;
            }
            Entry::Occupied(taken) => {
                let taken = taken.get();
                (taken.suffixes, (taken.suffixes == 0).then_some(taken.by))
            }
        };
        let mut suffixes = suffixes;
        if let Some(holder) = holder
            && let Some(label) = labels.get_mut(holder)
        {
            label.0 = next_free(&mut taken, &name, &mut suffixes, holder);
        }
        labels.push((next_free(&mut taken, &name, &mut suffixes, at), value));
        if let Some(taken) = taken.get_mut(&name) {
            taken.suffixes = suffixes;
        }
    }
    for (name, value) in labels {
        out.push(b',');
        out.extend_from_slice(prefix.as_bytes());
        out.push(b'_');
        out.extend_from_slice(name.as_bytes());
        write_value(out, value);
    }
}

/// A name that a label has or had.
struct Taken {
    /// The index of the label that has it, if no suffix was assigned.
    by: usize,
    /// The highest suffix assigned to labels of this name.
    suffixes: usize,
}

/// Assigns the next free suffix of `name` to the label at `by`.
fn next_free(
    taken: &mut HashMap<String, Taken>,
    name: &str,
    suffixes: &mut usize,
    by: usize,
) -> String {
    loop {
        *suffixes += 1;
        let candidate = format!("{name}_conflict{suffixes}");
        if let Entry::Vacant(free) = taken.entry(candidate.clone()) {
            free.insert(Taken { by, suffixes: 0 });
            return candidate;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn written(prefix: &str, pairs: &[(&str, &str)]) -> String {
        let mut out = b"kept".to_vec();
        write_labels(&mut out, prefix, pairs.iter().copied());
        String::from_utf8(out).unwrap().strip_prefix("kept").unwrap().to_owned()
    }

    fn by_conflict_rules(prefix: &str, pairs: &[(&str, &str)]) -> String {
        let mut out = Vec::new();
        write_conflicting(&mut out, prefix, pairs.iter().copied());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn recorded_names() {
        for case in crate::recorded::cases("ksm/label_names.json", 201) {
            let input: BTreeMap<&str, &str> = case["input"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str().unwrap()))
                .collect();
            let pairs: Vec<_> = input.into_iter().collect();
            let mut expected = Vec::new();
            for label in case["labels"].as_array().unwrap() {
                expected.push(b',');
                expected.extend_from_slice(label[0].as_str().unwrap().as_bytes());
                write_value(&mut expected, label[1].as_str().unwrap());
            }
            let prefix = case["prefix"].as_str().unwrap();
            assert_eq!(written(prefix, &pairs), String::from_utf8(expected).unwrap());
        }
    }

    #[test]
    fn without_pairs_nothing_is_written() {
        assert_eq!(written("label", &[]), "");
    }

    #[test]
    fn values_are_escaped() {
        assert_eq!(written("label", &[("a", "x\"\\\n")]), r#",label_a="x\"\\\n""#);
    }

    #[test]
    fn conflicts_among_many_keys() {
        let keys: Vec<String> = (0..100).map(|n| format!("k{n:03}")).collect();
        let mut pairs: Vec<_> = keys.iter().map(|key| (key.as_str(), "v")).collect();
        assert_eq!(written("label", &pairs), by_conflict_rules("label", &pairs));
        pairs.push(("l-1", "v"));
        pairs.push(("l.1", "v"));
        let text = written("label", &pairs);
        assert!(
            text.ends_with(r#",label_k099="v",label_l_1_conflict1="v",label_l_1_conflict2="v""#)
        );
    }

    #[test]
    fn hostile_conflicts_take_linear_work() {
        // Every key conflicts with all others, and the first suffixes are taken.
        let mut keys: Vec<String> = (0..20_000).map(|n| format!("a_conflict{n}")).collect();
        keys.extend((0..20_000u32).map(|n| {
            let marks = (0..15).map(|bit| if n >> bit & 1 == 0 { '-' } else { '.' });
            format!("a{}", marks.collect::<String>())
        }));
        keys.sort_unstable();
        let pairs: Vec<_> = keys.iter().map(|key| (key.as_str(), "")).collect();
        let text = written("label", &pairs);
        let names: std::collections::HashSet<&str> = text.split(',').skip(1).collect();
        assert_eq!(names.len(), keys.len());
    }

    proptest! {
        #[test]
        fn the_fast_way_agrees_with_the_conflict_rules(
            map in proptest::collection::btree_map("[abAB1._é-]{0,4}", "[a-c\"]{0,2}", 0..40),
        ) {
            let pairs: Vec<_> = map.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            prop_assert_eq!(written("label", &pairs), by_conflict_rules("label", &pairs));
        }

        #[test]
        fn names_are_distinct_and_valid(
            map in proptest::collection::btree_map(".{0,6}", "", 0..40),
        ) {
            let pairs: Vec<_> = map.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let text = written("x", &pairs);
            let names: Vec<_> = text.split(',').skip(1).collect();
            prop_assert_eq!(names.len(), pairs.len());
            for name in &names {
                let name = name.strip_suffix("=\"\"").unwrap();
                let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
                prop_assert!(name.bytes().all(valid), "{}", name);
            }
            let distinct: std::collections::HashSet<_> = names.iter().collect();
            prop_assert_eq!(distinct.len(), names.len());
        }
    }
}
