//! Sizes of the frames of a body.

use bytes::Bytes;

/// Size in bytes from which on a frame is complete. Its last lines exceed this up to the capacity of the buffer, and a
/// long line by more. Frames of 16–64 KiB cost the server the least CPU.
pub(super) const FRAME: usize = 40 * 1024;

/// Capacity of the buffer of a frame in bytes.
pub(super) const CAPACITY: usize = FRAME + FRAME / 2;

/// Size in bytes from which on a frame is divided.
pub(super) const LARGE: usize = 2 * FRAME;

/// Takes the next part of a large frame.
pub(super) fn divided(large: &mut Bytes) -> Bytes {
    match large.len() {
        len if len > LARGE => large.split_to(FRAME),
        _ => std::mem::take(large),
    }
}
