//! The buffers that the frames of a body are written in.
//!
//! A body of hundreds of megabytes is thousands of frames, of which a connection holds a few at a time. One
//! that was sent is written again: to allocate each anew is to map its pages anew, and one in eight would be
//! sampled for the heap's profile, with a walk up the stack.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// The buffers of one body.
#[derive(Clone, Debug, Default)]
pub(super) struct Frames(Arc<Mutex<Vec<Vec<u8>>>>);

impl Frames {
    /// One that has been sent, with what was in it, or an empty one.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// The first `len` bytes of a buffer, which comes back when nobody needs them any more.
    pub(super) fn frame(&self, buffer: Vec<u8>, len: usize) -> Bytes {
        if len == 0 {
            self.put(buffer);
            return Bytes::new();
        }
        Bytes::from_owner(Lent { buffer, len, home: self.clone() })
    }

    fn put(&self, buffer: Vec<u8>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

struct Lent {
    buffer: Vec<u8>,
    len: usize,
    home: Frames,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.put(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_written_again_when_its_frame_is_gone() {
        let frames = Frames::default();
        let buffer = b"one and more".to_vec();
        let place = buffer.as_ptr();
        let frame = frames.frame(buffer, 3);
        let part = frame.slice(1..);
        assert_eq!(frame, "one");
        drop(frame);
        // A part of it is still to be sent.
        assert!(frames.buffer().is_empty());
        assert_eq!(part, "ne");
        drop(part);
        let again = frames.buffer();
        assert_eq!(again.as_ptr(), place);
        assert!(frames.frame(Vec::new(), 0).is_empty());
    }
}
