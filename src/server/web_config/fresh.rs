//! Something made from files, made anew when they are not what they were.
//!
//! Files are told apart by what the system says about them, which costs little. That does not tell two changes of one
//! instant apart, so a file that was changed just before it was read is read again.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a file may have in bytes; certificates of all authorities of the world are smaller.
const LARGEST: u64 = 4 << 20;

/// Within this time of a change another may look the same: the longest tick of any clock of file systems in use.
const TICK: Duration = Duration::from_secs(2);

/// What the system says about a file; `None` when it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(Stamp {
        file: (metadata.dev(), metadata.ino()),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

/// Files as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents(Vec<(PathBuf, Result<Vec<u8>, String>)>);

impl Contents {
    fn read(paths: Vec<PathBuf>) -> Self {
        let read = |path: PathBuf| {
            let content = read(&path).map_err(|error| error.to_string());
            (path, content)
        };
        Self(paths.into_iter().map(read).collect())
    }

    /// The content of one of them.
    ///
    /// # Errors
    ///
    /// Why it has none.
    pub(super) fn of(&self, path: &Path) -> Result<Vec<u8>, String> {
        let found = self.0.iter().find(|(known, _)| known == path);
        found.map_or_else(|| Err("not read".to_owned()), |(_, content)| content.clone())
    }
}

/// A file of some size; nothing that is read once only, such as a pipe.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.len() > LARGEST {
        return Err(io::Error::other(format!("larger than {LARGEST} bytes")));
    }
    std::fs::read(path)
}

/// A value and the files that it was made from.
#[derive(Debug)]
pub(super) struct Fresh<T> {
    made: Option<Made<T>>,
}

#[derive(Debug)]
struct Made<T> {
    stamps: Vec<Option<Stamp>>,
    /// Before the files were read.
    at: SystemTime,
    contents: Contents,
    value: T,
}

impl<T> Default for Fresh<T> {
    fn default() -> Self {
        Self { made: None }
    }
}

impl<T: Clone> Fresh<T> {
    /// The value that belongs to these files now.
    pub(super) fn get(&mut self, paths: Vec<PathBuf>, make: impl FnOnce(&Contents) -> T) -> T {
        let at = SystemTime::now();
        let stamps: Vec<Option<Stamp>> = paths.iter().map(|path| stamp(path)).collect();
        if let Some(made) = &self.made
            && made.is_of(&paths, &stamps)
        {
            return made.value.clone();
        }
        let contents = Contents::read(paths);
        let value = match self.made.take() {
            Some(made) if made.contents == contents => made.value,
            _ => make(&contents),
        };
        self.made = Some(Made { stamps, at, contents, value: value.clone() });
        value
    }
}

impl<T> Made<T> {
    fn is_of(&self, paths: &[PathBuf], stamps: &[Option<Stamp>]) -> bool {
        let known = self.contents.0.iter().map(|(path, _)| path);
        self.stamps == stamps
            && known.eq(paths)
            && stamps.iter().flatten().all(|stamp| stamp.is_settled(self.at))
    }
}

impl Stamp {
    /// Whether a change after `at` cannot have left this stamp.
    fn is_settled(&self, at: SystemTime) -> bool {
        let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = i64::try_from(at.saturating_sub(TICK).as_secs()).unwrap_or(i64::MAX);
        self.modified.0 < since && self.changed.0 < since
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_value_is_made_once_for_a_content() {
        let dir = tempfile::tempdir().expect("dir");
        let (one, other) = (dir.path().join("a"), dir.path().join("b"));
        let mut fresh = Fresh::default();
        let mut made = 0;
        let mut get = |paths: &[&PathBuf], fresh: &mut Fresh<Result<Vec<u8>, String>>| {
            let paths: Vec<PathBuf> = paths.iter().map(|path| (*path).clone()).collect();
            let first = paths[0].clone();
            let value = fresh.get(paths, |contents| {
                made += 1;
                contents.of(&first)
            });
            (value, made)
        };
        let (absent, 1) = get(&[&one], &mut fresh) else { panic!("made") };
        assert!(absent.expect_err("absent").contains("No such file"));
        // Written twice within a tick, with the same size.
        for (content, count) in [("a", 2), ("a", 2), ("b", 3)] {
            fs::write(&one, content).expect("write");
            assert_eq!(get(&[&one], &mut fresh), (Ok(content.into()), count));
        }
        fs::write(&other, "x").expect("write");
        assert_eq!(get(&[&one, &other], &mut fresh).1, 4);
        assert_eq!(get(&[&one, &other], &mut fresh).1, 4);
        assert!(read(dir.path()).is_err());
    }
}
