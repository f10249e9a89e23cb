//! Rendered label sets: `a="x",b="y"`, sorted by name, values escaped.
//!
//! A series stores its labels in this form only; order, names and unescaped values are read back from it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::escape;
use crate::util::short_search::common_prefix;

/// Appends one label to a rendered set.
pub(crate) fn push(out: &mut Vec<u8>, name: &str, value: &str) {
    if !out.is_empty() {
        out.push(b',');
    }
    write(out, name, value);
}

/// Appends one label, escaping its value.
#[inline]
pub(crate) fn write(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"=\"");
    escape::label_value(out, value);
    out.push(b'"');
}

/// Appends one label whose value is escaped already.
pub(crate) fn push_rendered(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if !out.is_empty() {
        out.push(b',');
    }
    out.extend_from_slice(name);
    out.extend_from_slice(b"=\"");
    out.extend_from_slice(value);
    out.push(b'"');
}

/// Renders labels that are sorted by name.
pub(crate) fn rendered(pairs: &[(&str, &str)]) -> Vec<u8> {
    // Plus an equals sign, two quotes and a comma.
    let len = pairs.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    let mut text = Vec::with_capacity(len);
    for (name, value) in pairs {
        push(&mut text, name, value);
    }
    text
}

/// An iterator over the names and escaped values of a rendered set.
pub(crate) struct Labels<'a>(&'a [u8]);

/// Iterates over a rendered set.
pub(crate) const fn iter(text: &[u8]) -> Labels<'_> {
    Labels(text)
}

impl<'a> Iterator for Labels<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // Most names are too short for a faster search.
        let equals = self.0.iter().position(|byte| *byte == b'=')?;
        let name = self.0.get(..equals)?;
        let rest = self.0.get(equals + 2..)?;
        let mut end = 0;
        loop {
            end += memchr::memchr2(b'"', b'\\', rest.get(end..)?)?;
            if rest.get(end) == Some(&b'"') {
                break;
            }
            end += 2;
        }
        self.0 = rest.get(end + 2..).unwrap_or_default();
        Some((name, rest.get(..end)?))
    }
}

/// Finds an empty value: a quote inside a value is preceded by a backslash. Preparing the search takes longer than most
/// searches.
static EMPTY_VALUE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"=\"\""));

/// True if a label of a rendered set has an empty value.
pub(crate) fn has_empty(text: &[u8]) -> bool {
    EMPTY_VALUE.find(text).is_some()
}

/// Returns a rendered set without the labels that have an empty value, with or without braces or a leading comma. Sets
/// with equal results are the same series to Prometheus.
pub(crate) fn without_empty(text: &[u8]) -> Cow<'_, [u8]> {
    let inner = text.strip_prefix(b"{").or(text.strip_prefix(b",")).unwrap_or(text);
    let inner = inner.strip_suffix(b"}").unwrap_or(inner);
    if !has_empty(inner) {
        return Cow::Borrowed(inner);
    }
    let mut out = Vec::with_capacity(inner.len());
    for (name, value) in iter(inner).filter(|(_, value)| !value.is_empty()) {
        push_rendered(&mut out, name, value);
    }
    Cow::Owned(out)
}

/// Unescapes a label value.
pub(crate) fn plain(escaped: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', escaped).is_none() {
        return Cow::Borrowed(escaped);
    }
    let mut out = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => out.push(b'\n'),
                Some(&other) => out.push(other),
                None => {}
            },
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}

/// Unescapes a label value or a HELP text.
pub(crate) fn plain_text(escaped: &str) -> Cow<'_, str> {
    match plain(escaped.as_bytes()) {
        Cow::Borrowed(_) => Cow::Borrowed(escaped),
        Cow::Owned(plain) => Cow::Owned(String::from_utf8_lossy(&plain).into_owned()),
    }
}

/// True if an escaped value has more than `most` bytes once unescaped; 0 means no limit.
pub(crate) fn is_long(escaped: &[u8], most: u64) -> bool {
    most > 0 && escaped.len() as u64 > most && plain(escaped).len() as u64 > most
}

/// A rendered set in two pieces, split anywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitLabels<'a> {
    pub(crate) prefix: &'a [u8],
    pub(crate) rest: &'a [u8],
    /// The length of the common prefix of the first piece and the text that it is compared with, if it is known.
    pub(crate) common: Option<usize>,
}

impl SplitLabels<'_> {
    const fn len(&self) -> usize {
        self.prefix.len() + self.rest.len()
    }

    fn get(&self, index: usize) -> Option<u8> {
        let piece = match index.checked_sub(self.prefix.len()) {
            Some(index) => self.rest.get(index),
            None => self.prefix.get(index),
        };
        piece.copied()
    }
}

/// A rendered set with the places of its first values, for several uses.
#[derive(Debug, Default)]
pub(crate) struct ParsedLabels<'a> {
    text: &'a [u8],
    /// The start of each label, of its value, and the end of that.
    places: [(usize, usize, usize); 8],
    len: usize,
    /// The labels after these.
    rest: &'a [u8],
}

impl<'a> ParsedLabels<'a> {
    /// Parses a rendered set.
    pub(crate) fn new(text: &'a [u8]) -> Self {
        let mut parsed = Self { text, ..Self::default() };
        let (mut labels, mut start) = (iter(text), 0);
        for (place, (name, value)) in parsed.places.iter_mut().zip(&mut labels) {
            let at = start + name.len() + 2;
            *place = (start, at, at + value.len());
            start = at + value.len() + 2;
            parsed.len += 1;
        }
        parsed.rest = labels.0;
        parsed
    }

    /// Returns the whole set.
    pub(crate) fn text(&self) -> &'a [u8] {
        self.text
    }

    fn places(&self) -> &[(usize, usize, usize)] {
        self.places.get(..self.len).unwrap_or_default()
    }

    /// Returns the names of the labels.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a [u8]> {
        let (text, rest) = (self.text, iter(self.rest).map(|(name, _)| name));
        let places = self.places().iter();
        places.map(|&(start, at, _)| text.get(start..at - 2).unwrap_or_default()).chain(rest)
    }
}

/// Compares two sets with the same number of labels: by values in name order, then by names.
pub(crate) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    compare_split(&ParsedLabels::new(a), SplitLabels { prefix: b"", rest: b, common: None })
}

/// Compares like [`compare`], with one set in two pieces.
///
/// Neighbours in this order share most of their text, so the first difference is located before anything of the second
/// set is parsed.
pub(crate) fn compare_split(parsed: &ParsedLabels<'_>, b: SplitLabels<'_>) -> Ordering {
    let a = parsed.text;
    let mut differs = b.common.unwrap_or_else(|| common_prefix(a, b.prefix));
    if differs == b.prefix.len() {
        differs += common_prefix(a.get(differs..).unwrap_or_default(), b.rest);
    }
    if differs == a.len() || differs == b.len() {
        return a.len().cmp(&b.len());
    }
    let by_labels = |start: usize| {
        let whole = [b.prefix, b.rest].concat();
        let rest = |text| -> &[u8] { <[u8]>::get(text, start..).unwrap_or_default() };
        compare_all(rest(a), rest(&whole))
    };
    for &(start, value, end) in parsed.places() {
        if differs < value {
            // The names differ from here on, but the values after them count first.
            return by_labels(start);
        }
        if differs <= end {
            let backslashes = |end| a.get(value..end).map_or(0, |text| trailing(text, b'\\'));
            // An escape has two bytes; the difference may be in the second one.
            let at = differs - backslashes(differs) % 2;
            return plain_at(|index| a.get(index).copied(), at)
                .cmp(&plain_at(|index| b.get(index), at));
        }
    }
    by_labels(a.len() - parsed.rest.len())
}

fn trailing(text: &[u8], byte: u8) -> usize {
    text.iter().rev().take_while(|other| **other == byte).count()
}

/// Returns the unescaped byte at `at` in an escaped value; `None` at its end.
fn plain_at(text: impl Fn(usize) -> Option<u8>, at: usize) -> Option<u8> {
    match (text(at)?, text(at + 1)) {
        (b'"', _) => None,
        (b'\\', Some(b'n')) => Some(b'\n'),
        (b'\\', Some(escaped)) => Some(escaped),
        (byte, _) => Some(byte),
    }
}

fn compare_all(a: &[u8], b: &[u8]) -> Ordering {
    let mut names = Ordering::Equal;
    for ((a_name, a_value), (b_name, b_value)) in iter(a).zip(iter(b)) {
        if a_value != b_value {
            let order = plain(a_value).cmp(&plain(b_value));
            if order.is_ne() {
                return order;
            }
        }
        names = names.then_with(|| a_name.cmp(b_name));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rendered_sets_are_read_back() {
        let nasty = [("a", "x\"y\\z\n,b=\"c\""), ("b", ""), ("c_d", "\\"), ("e", "ü")];
        let text = rendered(&nasty);
        let back: Vec<_> = iter(&text)
            .map(|(name, value)| {
                (
                    String::from_utf8(name.to_vec()).expect("text"),
                    String::from_utf8(plain(value).into_owned()).expect("text"),
                )
            })
            .collect();
        assert_eq!(back.len(), nasty.len());
        for ((name, value), (want_name, want_value)) in back.iter().zip(nasty) {
            assert_eq!((name.as_str(), value.as_str()), (want_name, want_value));
        }
        assert_eq!(iter(b"").count(), 0);
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_the_plain_labels(
            sets in prop::collection::vec(
                prop::collection::vec(("[ab]{1,2}", "[\\\\\"\n!a ]{0,4}"), 2..=3),
                2,
            ),
            equal in 0..10usize,
            cut in 0..20usize,
        ) {
            // Some labels at the beginning may be equal in both sets.
            let equal = vec![("c".to_owned(), "=".to_owned()); equal];
            let [a, b] = &[0, 1].map(|index| [&equal[..], &sets[index]].concat());
            prop_assume!(a.len() == b.len());
            let text = |set: &[(String, String)]| {
                let set: Vec<_> = set.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                rendered(&set)
            };
            let key = |set: &[(String, String)]| {
                let (names, values): (Vec<_>, Vec<_>) = set.iter().cloned().unzip();
                (values, names)
            };
            prop_assert_eq!(compare(&text(a), &text(b)), key(a).cmp(&key(b)));
            let whole = text(b);
            prop_assert!(ParsedLabels::new(&whole).names().eq(iter(&whole).map(|(name, _)| name)));
            let (prefix, rest) = whole.split_at(cut.min(whole.len()));
            let (set, known) = (text(a), common_prefix(&text(a), prefix));
            for common in [None, Some(known)] {
                let split = SplitLabels { prefix, rest, common };
                prop_assert_eq!(compare_split(&ParsedLabels::new(&set), split), key(a).cmp(&key(b)));
            }
        }
    }

    #[test]
    fn sets_are_ordered_by_plain_values_then_names() {
        let less = [
            (vec![("a", "1")], vec![("a", "2")]),
            (vec![("a", "")], vec![("a", "!")]),
            // Unescaped, newline sorts before quote before backslash. Escaped, all of them begin with a backslash.
            (vec![("a", "\n")], vec![("a", "\"")]),
            (vec![("a", "\"")], vec![("a", "A")]),
            (vec![("a", "Z")], vec![("a", "\\")]),
            (vec![("a", "x")], vec![("a", "x\"")]),
            (vec![("b", "1")], vec![("a", "2")]),
            (vec![("a", "1")], vec![("b", "1")]),
            (vec![("a", "1"), ("c", "1")], vec![("b", "1"), ("c", "2")]),
        ];
        for (a, b) in less {
            let (a, b) = (rendered(&a), rendered(&b));
            assert_eq!(compare(&a, &b), Ordering::Less);
            assert_eq!(compare(&b, &a), Ordering::Greater);
            assert_eq!(compare(&a, &a), Ordering::Equal);
        }
    }
}
