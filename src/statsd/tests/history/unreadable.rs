//! Lines of pods whose stated origin is no text. They are malformed, also if the rest of the line is known.

use super::History;
use super::features::Feature;
use super::model::Kind;

/// A byte in the origin of a line that is no text.
const BYTE: u8 = 0xff;
/// What stands for it in texts.
const MARK: char = char::REPLACEMENT_CHARACTER;

/// Returns a text as it is sent.
pub(super) fn bytes_of(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for (at, part) in text.split(MARK).enumerate() {
        bytes.extend((at > 0).then_some(BYTE));
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes
}

impl History {
    /// Sends such a line, which nothing may accept.
    pub(super) fn line_with_unreadable_origin(&mut self) -> Result<(), String> {
        let Some(rng) = &mut self.unreadable else { return Ok(()) };
        let (kind, user) = (Kind::ALL[rng.usize(0..3)], rng.u32(0..2));
        let suffix = ["c", "g", "ms"][kind as usize];
        let claim = ["|c:ci-", "|e:it-false,cn-"][rng.usize(0..2)];
        let tag = ["", "|#sender:s0"][rng.usize(0..2)];
        let line = format!("{}.v0.u{user}:1|{suffix}{tag}", kind.letter());
        self.used(Feature::UnreadableOrigin);
        let (reasons, _) =
            self.send_with(Some(format!("{claim}{MARK}")), std::slice::from_ref(&line))?;
        match reasons.is_empty() {
            true => Err(format!("{line} with an unreadable origin is accepted")),
            false => Ok(()),
        }
    }
}
