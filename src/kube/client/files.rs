//! Credential files, which are reread when they change.
//!
//! A file has changed if its device, inode, size or modification time differs. Such files are replaced by renaming
//! the file or a symlink to its directory, so a check of the path at each request detects it. Content older than a
//! minute is reread even if these are unchanged.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::config_file::reader;

/// The maximum age of file content whose metadata has not changed.
const FRESH: Duration = Duration::from_secs(60);

/// The metadata that identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Mark {
    fn of(path: &Path) -> Option<Self> {
        let of = reader::metadata(path).ok()?;
        let modified = (of.mtime(), of.mtime_nsec());
        Some(Self { device: of.dev(), inode: of.ino(), size: of.size(), modified })
    }
}

/// A file with its content at the last successful read.
pub(crate) struct Watched {
    path: PathBuf,
    mark: Option<Mark>,
    read: Instant,
    content: Vec<u8>,
}

impl Watched {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let mark = Mark::of(path);
        let content = reader::read(path)?;
        Ok(Self { path: path.to_owned(), mark, read: Instant::now(), content })
    }

    /// Returns an empty entry for a file that could not be read yet.
    pub(crate) fn unread(path: &Path) -> Self {
        Self { path: path.to_owned(), mark: None, read: Instant::now(), content: Vec::new() }
    }

    /// Returns the content at the last read.
    pub(crate) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Rereads the file if it has changed, if its content is older than a minute, or if `now` is set. Returns whether
    /// the content is different.
    ///
    /// # Errors
    /// The file cannot be read; the previous content is kept.
    pub(crate) fn refresh(&mut self, now: bool) -> io::Result<bool> {
        let mark = Mark::of(&self.path);
        if !now && mark.is_some() && mark == self.mark && self.read.elapsed() < FRESH {
            return Ok(false);
        }
        let content = reader::read(&self.path)?;
        let changed = content != self.content;
        (self.mark, self.read, self.content) = (mark, Instant::now(), content);
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn changes_are_seen() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        assert!(Watched::read(&path).is_err());
        fs::write(&path, "one").expect("written");
        let mut file = Watched::read(&path).expect("readable");
        assert!(!file.refresh(false).expect("readable"));
        fs::write(dir.path().join("next"), "two").expect("written");
        fs::rename(dir.path().join("next"), &path).expect("renamed");
        assert!(file.refresh(false).expect("readable"));
        assert_eq!(file.content(), b"two");
        assert!(!file.refresh(true).expect("readable"));
        fs::remove_file(&path).expect("removed");
        assert!(file.refresh(false).is_err());
        assert_eq!(file.content(), b"two");
    }
}
