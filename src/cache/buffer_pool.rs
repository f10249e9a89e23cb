//! Reuses the buffers of a body's frames.
//!
//! A body of hundreds of megabytes consists of thousands of frames, but a connection holds only a few at a time. New
//! allocations would cost page faults, and the heap profiler would sample one in eight with a stack trace.

use std::sync::Arc;

use bytes::Bytes;

use crate::util::lock::Lock;

/// The buffers of one body.
#[derive(Clone, Debug, Default)]
pub(super) struct BufferPool(Arc<Lock<Vec<Vec<u8>>>>);

impl BufferPool {
    /// Takes a buffer that has been sent, with its old content, or an empty one.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_default()
    }

    /// Turns the first `len` bytes of a buffer into a frame. The buffer returns to the pool when the frame is dropped.
    pub(super) fn frame(&self, buffer: Vec<u8>, len: usize) -> Bytes {
        if len == 0 {
            self.put(buffer);
            return Bytes::new();
        }
        Bytes::from_owner(PooledBuffer { buffer, len, pool: self.clone() })
    }

    fn put(&self, buffer: Vec<u8>) {
        self.0.lock().push(buffer);
    }
}

struct PooledBuffer {
    buffer: Vec<u8>,
    len: usize,
    pool: BufferPool,
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_written_again_when_its_frame_is_gone() {
        let frames = BufferPool::default();
        let buffer = b"one and more".to_vec();
        let place = buffer.as_ptr();
        let frame = frames.frame(buffer, 3);
        let part = frame.slice(1..);
        assert_eq!(frame, "one");
        drop(frame);
        // Another part of the frame is alive.
        assert!(frames.buffer().is_empty());
        assert_eq!(part, "ne");
        drop(part);
        let again = frames.buffer();
        assert_eq!(again.as_ptr(), place);
        assert!(frames.frame(Vec::new(), 0).is_empty());
    }
}
