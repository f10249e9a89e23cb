//! A fast splitter for the most common form of a line.
//!
//! A caller that caches the result for each key and its tags hashes `key`, `tags` and `kind`, and parses only
//! the numbers on a hit. On a miss, or if this returns `None`, it calls [`super::parse`].

use memchr::{memchr, memrchr};

use crate::util::short_search::first;

/// The metric type of a simple line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SimpleKind {
    /// `c`
    Counter,
    /// `g`
    Gauge,
    /// `ms`; the value is in milliseconds and observed in seconds.
    Timer,
    /// `h`
    Histogram,
    /// `d`
    Distribution,
}

/// A line of the form `name:value|type`, followed by at most one section of each kind in any order: `|@rate`, `|#tags`,
/// `|c:container`, `|e:external data` and `|Ttimestamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleLine<'a> {
    /// Everything before the first colon: the name and its name tags. Not empty, not validated as UTF-8.
    pub key: &'a [u8],
    /// The text of the value. Not empty, without `:` and `|`, not validated as a number.
    pub value: &'a [u8],
    /// The metric type.
    pub kind: SimpleKind,
    /// The text after `@`, not validated as a number.
    pub rate: Option<&'a [u8]>,
    /// The text after `|#`, which may be empty. Not validated as UTF-8.
    pub tags: Option<&'a [u8]>,
    /// The adjacent sections that state the origin of the line, with the `|` before each. Not validated as UTF-8.
    pub origin: &'a [u8],
    /// True if the origin precedes the tags: of two labels with one name, the last is kept.
    pub origin_is_first: bool,
}

/// The origin of an earlier line.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownOrigin<'a> {
    pub(crate) text: &'a [u8],
    /// True if it is a container ID alone. External data without tags could be a classic multi-value line.
    pub(crate) is_container: bool,
}

impl<'a> From<&'a [u8]> for KnownOrigin<'a> {
    /// Any other text becomes an empty one, with which no line is split faster.
    fn from(text: &'a [u8]) -> Self {
        let kind = |section: &[u8]| match section {
            [b'|', kind @ (b'c' | b'e'), b':', first, ..] if *first != b'|' => Some(*kind),
            _ => None,
        };
        let (before, last) = text.split_at(memrchr(b'|', text).unwrap_or(0));
        match (kind(before), kind(last)) {
            (None, Some(kind)) if before.is_empty() => Self { text, is_container: kind == b'c' },
            (Some(one), Some(other)) if one != other && memrchr(b'|', before) == Some(0) => {
                Self { text, is_container: false }
            }
            _ => Self::default(),
        }
    }
}

/// Splits a line like [`split_simple`], faster if it ends with `origin`, which is then the origin of the result.
#[inline]
pub fn split_simple_with<'a>(
    line: &'a [u8],
    origin: impl Into<KnownOrigin<'a>>,
) -> Option<SimpleLine<'a>> {
    let KnownOrigin { text, is_container } = origin.into();
    let before = if text.is_empty() { None } else { line.strip_suffix(text) };
    // One call, whose result stays in place.
    let mut simple = split_simple(before.unwrap_or(line));
    if before.is_some() {
        match &mut simple {
            Some(simple) if simple.origin.is_empty() && (simple.tags.is_some() || is_container) => {
                simple.origin = text;
            }
            _ => return split_simple(line),
        }
    }
    simple
}

/// Splits a line of the most common form. Returns `None` for any other line, valid or not.
///
/// If it returns `Some`, [`super::parse`] finds one sample with exactly these sections, or rejects a line with external data.
/// Two lines with equal `key`, `tags`, `kind`, `origin` and `origin_is_first` therefore have the same labels and the same tag
/// errors for any value, rate and timestamp. A timestamp has no effect.
/// UTF-8 and numbers are not validated: if a number does not parse, [`super::parse`] must be called to count
/// the error.
pub fn split_simple(line: &[u8]) -> Option<SimpleLine<'_>> {
    let colon = first(b':', line)?;
    let (key, rest) = (line.get(..colon)?, line.get(colon + 1..)?);
    let end = rest.iter().position(|&byte| matches!(byte, b'|' | b':'))?;
    let (value, rest) = (rest.get(..end)?, rest.get(end..)?);
    if key.is_empty() || value.is_empty() {
        return None;
    }
    let (kind, sections) = match rest {
        [b'|', b'c', rest @ ..] => (SimpleKind::Counter, rest),
        [b'|', b'g', rest @ ..] => (SimpleKind::Gauge, rest),
        [b'|', b'm', b's', rest @ ..] => (SimpleKind::Timer, rest),
        [b'|', b'h', rest @ ..] => (SimpleKind::Histogram, rest),
        [b'|', b'd', rest @ ..] => (SimpleKind::Distribution, rest),
        _ => return None,
    };
    let mut line = SimpleLine {
        key,
        value,
        kind,
        rate: None,
        tags: None,
        origin: &[],
        origin_is_first: false,
    };
    if sections.is_empty() {
        return Some(line);
    }
    let mut rest = sections;
    let (mut container, mut external, mut timestamp) = (false, false, false);
    let mut origin = 0..0;
    while let [b'|', section @ ..] = rest {
        // Of sections with numbers, only the bytes of the number are taken: what follows must be a section.
        let length = match section {
            [b'@', rate @ ..] if line.rate.is_none() => {
                let end = rate.iter().position(|byte| matches!(byte, b'|' | b':'));
                let rate = rate.get(..end.unwrap_or(rate.len()))?;
                line.rate = Some(rate);
                1 + rate.len()
            }
            [b'T', digits @ ..] if !timestamp => {
                timestamp = true;
                let end = digits.iter().position(|byte| !byte.is_ascii_digit());
                1 + end.unwrap_or(digits.len())
            }
            [b'#', tags @ ..] if line.tags.is_none() => {
                let tags = tags.get(..memchr(b'|', tags).unwrap_or(tags.len()))?;
                line.tags = Some(tags);
                line.origin_is_first = !origin.is_empty();
                1 + tags.len()
            }
            [letter @ (b'c' | b'e'), b':', first, rest_of_id @ ..] if *first != b'|' => {
                let seen = if *letter == b'c' { &mut container } else { &mut external };
                let length = 3 + memchr(b'|', rest_of_id).unwrap_or(rest_of_id.len());
                let start = sections.len() - rest.len();
                if origin.is_empty() {
                    origin.start = start;
                } else if origin.end != start {
                    // The sections of the origin must be one piece of the line.
                    return None;
                }
                origin.end = start + 1 + length;
                if std::mem::replace(seen, true) {
                    return None;
                }
                length
            }
            _ => return None,
        };
        rest = section.get(length..)?;
    }
    line.origin = sections.get(origin)?;
    // External data without tags could be a classic multi-value line.
    (rest.is_empty() && !(external && line.tags.is_none())).then_some(line)
}
