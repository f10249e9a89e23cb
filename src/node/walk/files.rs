//! A compact set of the files in a directory, eight bytes each. It tells which files of a changed
//! directory are new.

use std::hash::{BuildHasher, RandomState};

/// The low bits hold the size in units of 512 bytes; the high bits identify the file.
const SIZE_BITS: u32 = 24;
const SIZES: u64 = (1 << SIZE_BITS) - 1;
const UNIT: u64 = 512;

/// Hashes files to keys with a random seed, so that nobody can provoke collisions.
#[derive(Default)]
pub(super) struct FileHasher(RandomState);

/// A file in a directory, identified by name and inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileKey(u64);

impl FileHasher {
    pub(super) fn key(&self, name: &[u8], inode: u64) -> FileKey {
        FileKey(self.0.hash_one((name, inode)) & !SIZES)
    }
}

/// The files of a directory, sorted.
#[derive(Default)]
pub(super) struct Files(Box<[u64]>);

impl Files {
    /// Returns the memory size in bytes.
    pub(super) fn bytes_held(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Returns the size of a file in bytes, if it is in the set.
    pub(super) fn bytes(&self, key: FileKey) -> Option<u64> {
        let at = self.0.partition_point(|of| *of < key.0);
        let of = self.0.get(at).filter(|of| **of & !SIZES == key.0)?;
        Some((of & SIZES) * UNIT)
    }
}

/// Collects the files of a directory while it is read. Beyond its memory it drops all of them.
#[derive(Default)]
pub(super) struct FilesBuilder {
    files: Vec<u64>,
    /// The maximum number of files.
    room: usize,
}

impl FilesBuilder {
    /// Creates a builder that takes at most `memory` bytes.
    pub(super) fn new(memory: usize) -> Self {
        Self { files: Vec::new(), room: memory / size_of::<u64>() }
    }

    /// Adds a file. Files of 8 GB and more do not fit; they are omitted and checked on every read.
    pub(super) fn add(&mut self, key: FileKey, bytes: u64) {
        let size = bytes / UNIT;
        if size > SIZES {
            return;
        }
        let length = self.files.len();
        if length == self.files.capacity() {
            let more = self.room.saturating_sub(length).min(length.max(64));
            if more == 0 {
                *self = Self::default();
                return;
            }
            self.files.reserve_exact(more);
        }
        self.files.push(key.0 | size);
    }

    /// Returns the memory size of the finished set in bytes.
    pub(super) fn bytes_held(&self) -> usize {
        size_of_val(&*self.files)
    }

    pub(super) fn finish(mut self) -> Files {
        self.files.sort_unstable();
        Files(self.files.into_boxed_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_name_and_number() {
        let (keys, mut builder) = (FileHasher::default(), FilesBuilder::new(8000));
        for inode in 0..1000 {
            builder.add(keys.key(b"name", inode), inode * UNIT);
        }
        builder.add(keys.key(b"large", 1), 9 << 30);
        let files = builder.finish();
        for inode in 0..1000 {
            assert_eq!(files.bytes(keys.key(b"name", inode)), Some(inode * UNIT));
        }
        for (name, inode) in [(&b"name"[..], 1000), (b"other", 1), (b"large", 1)] {
            assert_eq!(files.bytes(keys.key(name, inode)), None, "{name:?}");
        }
    }

    #[test]
    fn files_beyond_the_memory_are_dropped() {
        let (keys, mut builder) = (FileHasher::default(), FilesBuilder::new(8000));
        for inode in 0..3000 {
            builder.add(keys.key(b"name", inode), 0);
            assert!(builder.files.capacity() <= 1000, "{inode}");
        }
        assert_eq!(builder.finish().bytes_held(), 0);
    }
}
