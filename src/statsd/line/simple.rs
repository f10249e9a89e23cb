//! The dominant shape of a line, taken apart without looking at its contents.
//!
//! A caller that remembers what a key and its tags led to (a series table) needs no more than this: it hashes `key`,
//! `tags` and `kind`, and on a hit only reads the numbers. On a miss, or when this returns `None`, [`super::parse`]
//! decides.

use memchr::memchr;

/// The metric type of a simple line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SimpleKind {
    /// `c`
    Counter,
    /// `g`
    Gauge,
    /// `ms`: the value is in milliseconds, observed in seconds.
    Timer,
    /// `h`
    Histogram,
    /// `d`
    Distribution,
}

/// `name:value|type[|@rate][|#tags]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleLine<'a> {
    /// Everything before the first colon: the name with its name tags. Not empty; not checked to be UTF-8.
    pub key: &'a [u8],
    /// Text of the value: not empty, without `:` and `|`, but not checked to be a number.
    pub value: &'a [u8],
    /// Metric type.
    pub kind: SimpleKind,
    /// Text behind `@`, not checked to be a number.
    pub rate: Option<&'a [u8]>,
    /// What follows `|#`: without `|`, may be empty. Not checked to be UTF-8.
    pub tags: Option<&'a [u8]>,
}

/// Takes a line of the dominant shape apart; `None` for everything else, which says nothing about its validity.
///
/// Guarantees on `Some`: [`super::parse`] sees one sample whose sections are exactly these, so two lines with equal
/// `key`, `tags` and `kind` lead to the same labels and the same tag errors, whatever value and rate are. What is not
/// checked: UTF-8 and numbers. A number that does not parse must be handed to [`super::parse`] to be counted.
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
    let tags = match rest {
        [] => None,
        [b'|', b'#', tags @ ..] if memchr(b'|', tags).is_none() => Some(tags),
        _ => return None,
    };
    Some(SimpleLine { key, value, kind, rate, tags })
}
