//! A value built from files and rebuilt when a source file changes.
//!
//! Changes are detected by file metadata, which is cheap. Metadata cannot distinguish two changes
//! within one timestamp tick, so a file that was changed just before it was read is read again.

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::unusable::Unusable;
use crate::config_file::reader::{self, Stamp};

/// The maximum size of a file in bytes; a bundle of all public CA certificates is smaller.
const MAX_FILE_SIZE: u64 = 4 << 20;

/// Two changes within this time may have the same timestamp: the coarsest resolution of any common
/// file system.
const MTIME_GRANULARITY: Duration = Duration::from_secs(2);

/// Returns the stamp of a file, if there is one.
///
/// # Errors
///
/// The file system does not answer.
fn stamp(path: &Path) -> io::Result<Option<Stamp>> {
    match reader::stamp(path) {
        Err(error) if error.kind() == ErrorKind::TimedOut => Err(error),
        stamp => Ok(stamp.ok()),
    }
}

/// The content of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents(Vec<(PathBuf, Result<Vec<u8>, Unusable>)>);

impl Contents {
    /// # Errors
    ///
    /// When the file system does not respond for one of them, unless it is the `first` time.
    fn read(paths: Vec<PathBuf>, first: bool) -> io::Result<Self> {
        let read = |path: PathBuf| match read(&path, first) {
            Err(error) if error.kind() == ErrorKind::TimedOut && !first => Err(error),
            content => Ok((path, content.map_err(|error| error.to_string().into()))),
        };
        paths.into_iter().map(read).collect::<io::Result<_>>().map(Self)
    }

    /// Returns the content of a file.
    ///
    /// # Errors
    ///
    /// The reason why it has none.
    pub(super) fn of(&self, path: &Path) -> Result<Vec<u8>, Unusable> {
        let found = self.0.iter().find(|(known, _)| known == path);
        found.map_or_else(|| Err("not read".into()), |(_, content)| content.clone())
    }
}

/// Reads a regular file up to the maximum size, but nothing that can be read only once, such as a
/// pipe. If a file is replaced by such a thing later, it counts as not responding.
fn read(path: &Path, first: bool) -> io::Result<Vec<u8>> {
    reader::read_if(path, move |metadata| {
        if metadata.is_dir() {
            return Err(io::Error::from(ErrorKind::IsADirectory));
        }
        if !metadata.is_file() && (first || !metadata.file_type().is_fifo()) {
            return Err(io::Error::other("not a regular file"));
        }
        if metadata.len() > MAX_FILE_SIZE {
            return Err(io::Error::other(format!("larger than {MAX_FILE_SIZE} bytes")));
        }
        Ok(())
    })
}

/// A value and the files it was built from, once it was.
#[derive(Debug)]
pub(super) struct FileCache<T>(pub(super) Option<CachedValue<T>>);

#[derive(Debug)]
pub(super) struct CachedValue<T> {
    stamps: Vec<Option<Stamp>>,
    /// The time before the files were read.
    at: SystemTime,
    contents: Contents,
    value: T,
}

impl<T: Clone> FileCache<T> {
    /// Returns the value for the current files, or the last one while a file does not respond.
    pub(super) fn get(&mut self, paths: Vec<PathBuf>, make: impl FnOnce(&Contents) -> T) -> T {
        let at = SystemTime::now();
        let first = self.0.is_none();
        let stamps = paths.iter().map(|path| stamp(path)).collect::<io::Result<Vec<_>>>();
        let (stamps, contents) = match (stamps, &self.0) {
            (Ok(stamps), Some(made)) if made.is_of(&paths, &stamps) => return made.value.clone(),
            (Err(_), Some(made)) => return made.value.clone(),
            (stamps, made) => match (Contents::read(paths, first), made) {
                (Err(_), Some(made)) => return made.value.clone(),
                (contents, _) => (stamps.unwrap_or_default(), contents.unwrap_or_default()),
            },
        };
        let value = match self.0.take() {
            Some(made) if made.contents == contents => made.value,
            _ => make(&contents),
        };
        self.0 = Some(CachedValue { stamps, at, contents, value: value.clone() });
        value
    }
}

impl<T> CachedValue<T> {
    fn is_of(&self, paths: &[PathBuf], stamps: &[Option<Stamp>]) -> bool {
        let known = self.contents.0.iter().map(|(path, _)| path);
        // A file that is there but could not be read may be readable again without another change: descriptors may have been lacking.
        let mut pairs = self.contents.0.iter().zip(stamps);
        let is_complete = pairs.all(|((_, content), stamp)| content.is_ok() || stamp.is_none());
        self.stamps == stamps
            && is_complete
            && known.eq(paths)
            && stamps.iter().flatten().all(|stamp| stamp.is_settled(self.at))
    }
}

impl Stamp {
    /// Returns whether a change after `at` would have changed this metadata.
    fn is_settled(&self, at: SystemTime) -> bool {
        let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let since =
            i64::try_from(at.saturating_sub(MTIME_GRANULARITY).as_secs()).unwrap_or(i64::MAX);
        self.modified.0 < since && self.changed.0 < since
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_value_is_built_once_per_content() {
        let dir = tempfile::tempdir().expect("dir");
        let (one, other) = (dir.path().join("a"), dir.path().join("b"));
        let mut file_cache = FileCache(None);
        let mut made = 0;
        let mut get =
            |paths: &[&PathBuf], file_cache: &mut FileCache<Result<Vec<u8>, Unusable>>| {
                let paths: Vec<PathBuf> = paths.iter().map(|path| (*path).clone()).collect();
                let first = paths[0].clone();
                let value = file_cache.get(paths, |contents| {
                    made += 1;
                    contents.of(&first)
                });
                (value, made)
            };
        let (absent, 1) = get(&[&one], &mut file_cache) else { panic!("made") };
        assert!(absent.expect_err("absent").to_string().contains("No such file"));
        // Written twice within a tick, with the same size.
        for (content, count) in [("a", 2), ("a", 2), ("b", 3)] {
            fs::write(&one, content).expect("write");
            assert_eq!(get(&[&one], &mut file_cache), (Ok(content.into()), count));
        }
        fs::write(&other, "x").expect("write");
        assert_eq!(get(&[&one, &other], &mut file_cache).1, 4);
        assert_eq!(get(&[&one, &other], &mut file_cache).1, 4);
        assert!(read(dir.path(), false).is_err());
    }

    #[test]
    fn a_file_that_could_not_be_read_is_read_again() {
        let dir = tempfile::tempdir().expect("dir");
        let file = dir.path().join("a");
        fs::write(&file, "a").expect("write");
        // The file has not changed for long.
        let at = SystemTime::now() + Duration::from_secs(60);
        let contents = Contents(vec![(file.clone(), Err("Too many open files".into()))]);
        let (stamps, value) = (vec![stamp(&file).expect("stamp")], contents.of(&file));
        let mut file_cache = FileCache(Some(CachedValue { stamps, at, contents, value }));
        let value = file_cache.get(vec![file.clone()], |contents| contents.of(&file));
        assert_eq!(value, Ok(b"a".to_vec()));
    }
}
