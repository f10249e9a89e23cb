//! A fast splitter for the most common form of a line.
//!
//! A caller that caches the result for each key and its tags hashes `key`, `tags` and `kind`, and parses only
//! the numbers on a hit. On a miss, or if this returns `None`, it calls [`super::parse`].

use memchr::{memchr, memrchr};

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

/// Splits a line like [`split_simple`], faster if it ends with `origin`, the origin of an earlier line.
#[must_use]
pub fn split_simple_with<'a>(line: &'a [u8], origin: &[u8]) -> Option<SimpleLine<'a>> {
    if !origin.is_empty()
        && let Some(rest) = line.strip_suffix(origin)
        && let Some(simple) = split_simple(rest)
        && simple.origin.is_empty()
        // External data without tags could be a classic multi-value line.
        && (simple.tags.is_some() || is_container(origin))
    {
        return Some(SimpleLine { origin: line.get(rest.len()..)?, ..simple });
    }
    split_simple(line)
}

/// Returns true if the origin is a container ID alone.
fn is_container(origin: &[u8]) -> bool {
    origin.starts_with(b"|c:") && memrchr(b'|', origin) == Some(0)
}

/// Splits a line of the most common form. Returns `None` for any other line, valid or not.
///
/// If it returns `Some`, [`super::parse`] finds one sample with exactly these sections, or rejects a line with external data.
/// Two lines with equal `key`, `tags`, `kind`, `origin` and `origin_is_first` therefore have the same labels and the same tag
/// errors for any value, rate and timestamp. A timestamp has no effect.
/// UTF-8 and numbers are not validated: if a number does not parse, [`super::parse`] must be called to count
/// the error.
#[must_use]
pub fn split_simple(line: &[u8]) -> Option<SimpleLine<'_>> {
    let colon = memchr(b':', line)?;
    let (key, rest) = (line.get(..colon)?, line.get(colon + 1..)?);
    let bar = rest.iter().position(|&byte| byte == b'|')?;
    let (value, rest) = (rest.get(..bar)?, rest.get(bar + 1..)?);
    if key.is_empty() || value.is_empty() || value.contains(&b':') {
        return None;
    }
    let (kind, rest) = match rest {
        [b'c', rest @ ..] => (SimpleKind::Counter, rest),
        [b'g', rest @ ..] => (SimpleKind::Gauge, rest),
        [b'm', b's', rest @ ..] => (SimpleKind::Timer, rest),
        [b'h', rest @ ..] => (SimpleKind::Histogram, rest),
        [b'd', rest @ ..] => (SimpleKind::Distribution, rest),
        _ => return None,
    };
    let sections = rest;
    let mut line = SimpleLine {
        key,
        value,
        kind,
        rate: None,
        tags: None,
        origin: &[],
        origin_is_first: false,
    };
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
