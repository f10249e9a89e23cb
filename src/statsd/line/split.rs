//! Splits text at an ASCII byte: on the short pieces of a line this takes less than half the time of the standard library's
//! search for a character.

use crate::util::short_search::first;

/// Splits a text at the first `byte`, which must be ASCII.
#[inline]
pub(super) fn split_once(text: &str, byte: u8) -> Option<(&str, &str)> {
    let at = first(byte, text.as_bytes())?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// Splits a text at every `byte`, which must be ASCII.
pub(super) fn split(text: &str, byte: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let (piece, behind) =
            split_once(text, byte).map_or((text, None), |(piece, behind)| (piece, Some(behind)));
        rest = behind;
        Some(piece)
    })
}
