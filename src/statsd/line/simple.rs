//! A fast splitter for the most common form of a line.
//!
//! A caller that caches the result for each key and its tags hashes `key`, `tags` and `kind`, and parses only
//! the numbers on a hit. On a miss, or if this returns `None`, it calls [`super::parse`].

use memchr::{memchr, memchr_iter};

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

/// A line of the form `name:value|type[|@rate][|#tags[|e:external data]][|c:container]`.
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
    /// The remaining sections, which state the origin of the line, with the `|` before each. Not validated as UTF-8.
    pub origin: &'a [u8],
}

/// Splits a line of the most common form. Returns `None` for any other line, valid or not.
///
/// If it returns `Some`, [`super::parse`] finds one sample with exactly these sections, or rejects a line with external data.
/// Two lines with equal `key`, `tags`, `kind` and `origin` therefore have the same labels and the same tag errors for any
/// value and rate.
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
    let (rate, rest) = match rest {
        [b'|', b'@', rest @ ..] => {
            let end = rest.iter().position(|&byte| byte == b'|').unwrap_or(rest.len());
            let (rate, rest) = (rest.get(..end)?, rest.get(end..)?);
            if rate.contains(&b':') {
                return None;
            }
            (Some(rate), rest)
        }
        _ => (None, rest),
    };
    let (tags, origin) = match rest {
        [] => (None, rest),
        [b'|', b'#', tags @ ..] => {
            let end = memchr(b'|', tags).unwrap_or(tags.len());
            (Some(tags.get(..end)?), tags.get(end..)?)
        }
        _ => (None, rest),
    };
    is_origin(origin, tags.is_some()).then_some(SimpleLine { key, value, kind, rate, tags, origin })
}

/// Returns true if there are only sections that state an origin. Any other section could affect the value, and external data
/// without tags could be a classic multi-value line.
fn is_origin(sections: &[u8], is_tagged: bool) -> bool {
    sections.is_empty()
        || sections.first() == Some(&b'|')
            && memchr_iter(b'|', sections).all(|bar| {
                let section = sections.get(bar + 1..).unwrap_or_default();
                matches!(section, [kind, b':', first, ..]
            if (*kind == b'c' || *kind == b'e' && is_tagged) && *first != b'|')
            })
}
