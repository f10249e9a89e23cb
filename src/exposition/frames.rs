//! The frames of a body that is written step by step.

use bytes::Bytes;

/// The size in bytes from which on a frame is complete.
pub const FRAME: usize = 48 * 1024;
/// Spare capacity for the series that exceeds the frame size.
const SLACK: usize = 8 * 1024;

/// An iterator over the frames of a body.
pub struct Frames<F> {
    /// Appends the next part of the body. Returns true if there may be more.
    step: F,
    /// Bytes already written that did not fit into one frame.
    rest: Bytes,
    more: bool,
}

impl<F: FnMut(&mut Vec<u8>) -> bool> Frames<F> {
    /// Returns the frames that `step` writes. It appends until the buffer has [`FRAME`] bytes or a millisecond has
    /// passed, and returns true if there may be more.
    pub fn new(step: F) -> Self {
        Self { step, rest: Bytes::new(), more: true }
    }
}

impl<F: FnMut(&mut Vec<u8>) -> bool> Iterator for Frames<F> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.rest.is_empty() {
            if !self.more {
                return None;
            }
            let mut out = Vec::with_capacity(FRAME + SLACK);
            self.more = (self.step)(&mut out);
            if out.is_empty() {
                return self.more.then(Bytes::new);
            }
            self.rest = Bytes::from(out);
        }
        let length = match self.rest.len() {
            length if length <= 2 * FRAME => length,
            _ => FRAME,
        };
        Some(self.rest.split_to(length))
    }
}
