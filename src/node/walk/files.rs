//! What is remembered of the files in a directory, eight bytes for each: enough to tell, when the directory has changed, which
//! of them were there before.

use std::hash::{BuildHasher, RandomState};

/// Low bits that hold the size, in units of 512 bytes; the others tell files apart.
const SIZE_BITS: u32 = 24;
const SIZES: u64 = (1 << SIZE_BITS) - 1;
const UNIT: u64 = 512;

/// Makes keys of files, which nobody can foresee.
#[derive(Default)]
pub(super) struct Keys(RandomState);

/// A file of a directory, by its name and number there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key(u64);

impl Keys {
    pub(super) fn key(&self, name: &[u8], inode: u64) -> Key {
        Key(self.0.hash_one((name, inode)) & !SIZES)
    }
}

/// The files of a directory, in order.
#[derive(Default)]
pub(super) struct Files(Box<[u64]>);

impl Files {
    /// Bytes of a file, if it is among them.
    pub(super) fn bytes(&self, key: Key) -> Option<u64> {
        let at = self.0.partition_point(|of| *of < key.0);
        let of = self.0.get(at).filter(|of| **of & !SIZES == key.0)?;
        Some((of & SIZES) * UNIT)
    }
}

/// The files of a directory that is being read.
#[derive(Default)]
pub(super) struct Gathered(Vec<u64>);

impl Gathered {
    /// Adds one. One whose size has no room (of 8 GB and more) is left out, and is looked at each time.
    pub(super) fn add(&mut self, key: Key, bytes: u64) {
        let size = bytes / UNIT;
        if size <= SIZES {
            self.0.push(key.0 | size);
        }
    }

    pub(super) fn finish(mut self) -> Files {
        self.0.sort_unstable();
        Files(self.0.into_boxed_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_name_and_number() {
        let (keys, mut gathered) = (Keys::default(), Gathered::default());
        for inode in 0..1000 {
            gathered.add(keys.key(b"name", inode), inode * UNIT);
        }
        gathered.add(keys.key(b"large", 1), 9 << 30);
        let files = gathered.finish();
        for inode in 0..1000 {
            assert_eq!(files.bytes(keys.key(b"name", inode)), Some(inode * UNIT));
        }
        for (name, inode) in [(&b"name"[..], 1000), (b"other", 1), (b"large", 1)] {
            assert_eq!(files.bytes(keys.key(name, inode)), None, "{name:?}");
        }
    }
}
