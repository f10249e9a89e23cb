//! Credential files, which are reread when they change.
//!
//! A file has changed if its device, inode, size or times differ. Such files are replaced by renaming
//! the file or a symlink to its directory, so a check of the path before a request detects it. Content older than a
//! minute is reread even if these are unchanged.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::TransportError;
use crate::config_file::reader::{self, Stamp};

/// The maximum age of file content whose metadata has not changed.
const FRESH: Duration = Duration::from_secs(60);

/// The time after a look that found no change until the next one. Each takes a thread, and there may be thousands of requests a
/// second.
const LOOK_INTERVAL: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 100 });

/// A file with its content at the last successful read.
pub(crate) struct Watched {
    path: PathBuf,
    stamp: Option<Stamp>,
    /// The time of the last look, if it found no change.
    looked: Option<Instant>,
    read: Instant,
    content: Vec<u8>,
}

impl Watched {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(path: &Path) -> Result<Self, TransportError> {
        let mut file = Self::unread(path);
        file.refresh(true)?;
        Ok(file)
    }

    /// Returns an empty entry for a file that could not be read yet.
    pub(crate) fn unread(path: &Path) -> Self {
        let (path, read) = (path.to_owned(), Instant::now());
        Self { path, stamp: None, looked: None, read, content: Vec::new() }
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
    pub(crate) fn refresh(&mut self, now: bool) -> Result<bool, TransportError> {
        if !now && self.looked.is_some_and(|looked| looked.elapsed() < LOOK_INTERVAL) {
            return Ok(false);
        }
        self.looked = None;
        let stamp = reader::stamp(&self.path).ok();
        if !now && stamp.is_some() && stamp == self.stamp && self.read.elapsed() < FRESH {
            self.looked = Some(Instant::now());
            return Ok(false);
        }
        let content = reader::read(&self.path)
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        let changed = content != self.content;
        (self.stamp, self.read, self.content) = (stamp, Instant::now(), content);
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
