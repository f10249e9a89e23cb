//! Rendered label sets: `a="x",b="y"`, sorted by name, values escaped.
//!
//! A series keeps its labels in this form alone; what else is needed of them (order, names, plain values) is read back
//! from it.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::exposition::escape;

/// Appends one label to a rendered set.
pub(crate) fn push(out: &mut Vec<u8>, name: &str, value: &str) {
    if !out.is_empty() {
        out.push(b',');
    }
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"=\"");
    escape::label_value(out, value);
    out.push(b'"');
}

/// The labels of a rendered set: names and escaped values.
pub(crate) struct Labels<'a>(&'a [u8]);

/// Reads a rendered set.
pub(crate) const fn iter(text: &[u8]) -> Labels<'_> {
    Labels(text)
}

impl<'a> Iterator for Labels<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let equals = memchr::memchr(b'=', self.0)?;
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

/// The plain bytes of an escaped value.
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

/// Order of two sets with equally many labels: by values in name order, then by names.
pub(crate) fn compare(a: &[u8], b: &[u8]) -> Ordering {
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

    fn render(labels: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in labels {
            push(&mut out, name, value);
        }
        out
    }

    #[test]
    fn rendered_sets_are_read_back() {
        let nasty = [("a", "x\"y\\z\n,b=\"c\""), ("b", ""), ("c_d", "\\"), ("e", "ü")];
        let text = render(&nasty);
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

    #[test]
    fn sets_are_ordered_by_plain_values_then_names() {
        let less = [
            (vec![("a", "1")], vec![("a", "2")]),
            (vec![("a", "")], vec![("a", "!")]),
            // Plain: newline before quote before backslash. Escaped they all begin with a backslash.
            (vec![("a", "\n")], vec![("a", "\"")]),
            (vec![("a", "\"")], vec![("a", "A")]),
            (vec![("a", "Z")], vec![("a", "\\")]),
            (vec![("a", "x")], vec![("a", "x\"")]),
            (vec![("b", "1")], vec![("a", "2")]),
            (vec![("a", "1")], vec![("b", "1")]),
            (vec![("a", "1"), ("c", "1")], vec![("b", "1"), ("c", "2")]),
        ];
        for (a, b) in less {
            let (a, b) = (render(&a), render(&b));
            assert_eq!(compare(&a, &b), Ordering::Less);
            assert_eq!(compare(&b, &a), Ordering::Greater);
            assert_eq!(compare(&a, &a), Ordering::Equal);
        }
    }
}
