//! Files with credentials: read again when they change.
//!
//! A file counts as changed when it is another one, or has another size or time. Such files are replaced
//! by renaming them or a link to their folder, so a look at the path at each request sees it; once a
//! minute it is read whatever it looks like.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

/// How long what was read is taken for what is in the file, when that looks the same.
const FRESH: Duration = Duration::from_secs(60);

/// What tells that a file is not the one that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Mark {
    fn of(path: &Path) -> Option<Self> {
        let of = fs::metadata(path).ok()?;
        let modified = (of.mtime(), of.mtime_nsec());
        Some(Self { device: of.dev(), inode: of.ino(), size: of.size(), modified })
    }
}

/// A file and what was last read from it.
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
        let content = fs::read(path)?;
        Ok(Self { path: path.to_owned(), mark, read: Instant::now(), content })
    }

    /// What was last read.
    pub(crate) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Its place.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it again if it has changed or if `now` is set; whether what is in it is something else.
    ///
    /// # Errors
    /// It cannot be read; what was read before stays.
    pub(crate) fn refresh(&mut self, now: bool) -> io::Result<bool> {
        let mark = Mark::of(&self.path);
        if !now && mark.is_some() && mark == self.mark && self.read.elapsed() < FRESH {
            return Ok(false);
        }
        let content = fs::read(&self.path)?;
        let changed = content != self.content;
        (self.mark, self.read, self.content) = (mark, Instant::now(), content);
        Ok(changed)
    }
}

/// What is in a file, or what stands in its place.
pub(crate) enum Material {
    /// It may change.
    File(Watched),
    /// It may not.
    Inline(Vec<u8>),
}

impl Material {
    /// What is in it.
    pub(crate) fn content(&self) -> &[u8] {
        match self {
            Self::File(file) => file.content(),
            Self::Inline(content) => content,
        }
    }

    /// See [`Watched::refresh`].
    ///
    /// # Errors
    /// The file, and why it cannot be read.
    pub(crate) fn refresh(&mut self, now: bool) -> Result<bool, String> {
        match self {
            Self::File(file) => {
                file.refresh(now).map_err(|error| format!("{}: {error}", file.path().display()))
            }
            Self::Inline(_) => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
